//! The seam between the log and the files: plans, and the disks that run them.
//!
//! Every disk keeps the same promise: the steps of a plan run front to back, and the first failure
//! ends it. On top of that, the same on all of them:
//!
//! - A short write is no failure yet: the remainder is written next, as long as bytes get
//!   through. The failure that then comes names the cause, with [`StepFailure::partial`] set.
//! - A step that had no effect and failed for a passing reason is tried again, a bounded number of
//!   times ([`errors::is_retried`]). A failed sync never is.
//! - A step on a file that isn't open fails with `EBADF`.
//! - A durable write goes straight to the device and is over when it is there. It is as final as a
//!   sync: what a failed one left on the device is unknown, and it is never tried again.

pub mod plan;

pub mod aligned;

pub mod errors;

pub mod faults;

pub mod plain;

pub mod sim;

pub mod lock;

pub use aligned::{Aligned, BLOCK_BYTES};
pub use plan::{
    Disk, DiskError, FileId, Finished, Lane, Listed, Place, Plan, PlanTag, Step, StepFailure,
};
