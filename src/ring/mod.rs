//! The ring layer: a disk on io_uring, and file ranges to sockets by splice.
//!
//! A plan becomes a *chain* of linked entries. The kernel runs them in order and cancels what
//! follows a failure, which is exactly what a plan promises. Where links alone can't keep the
//! promise, a plan runs as several chains, one after the other:
//!
//! - An operation whose failure doesn't break its link ends its chain ([`Links`]; on Linux 6.18
//!   these are `FSYNC`, `FTRUNCATE` and `RENAMEAT`). An append is one chain all the same: its sync
//!   is last.
//! - A step whose failure may be fine (an existing directory, an absent name) ends its chain, since
//!   its failure would cancel what must run, and a hard link would run what must not.
//! - A write or read that one entry can't carry (more than [`WRITE_PARTS_MAX`] parts, more than
//!   1 GiB) ends its chain, and the next one goes on behind what was done. So does a short one:
//!   the entries behind it were cancelled, and nothing of the plan is in the kernel while the
//!   remainder is prepared. That is how a short write's hidden errno comes to light, and no sync
//!   is ever queued behind a write that may yet go on.
//! - A durable write ends its chain: nothing is queued behind a write that goes past the page
//!   cache, and its short count is judged by blocks.
//! - A plan longer than the submission queue is cut where the queue ends.
//! - A step that runs as a system call (a kernel without `FTRUNCATE` or without direct descriptors
//!   in chains), or that the fault hook acts on, stands between two chains.
//!
//! A chain is pushed only when all of it fits, so it never is split over two submissions.
//!
//! [`WRITE_PARTS_MAX`]: crate::disk::plain::WRITE_PARTS_MAX

mod disk;

mod detours;

mod slots;

mod chain;

mod durable;

mod verdict;

mod files;

mod pipes;

mod splice;

mod links;

mod setup;

mod error;

pub mod affinity;

pub mod limits;

pub mod probe;

mod descriptor;

pub use descriptor::duplicate;
pub use disk::{RingCounters, RingDisk};
pub use error::{Cause, RingError};
pub use links::Links;
pub use setup::{RingOptions, SetupFlags};
pub use splice::{SendError, SendFinished, TRANSFERS_MAX};
