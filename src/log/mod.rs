//! The pure core: batches go in, plans come out, completions move the cursors.
//!
//! No clock, no file, no thread, no random number and no async in here: time is an argument.

pub mod config;

pub mod error;

pub mod cursors;

pub mod validate;

pub mod producers;

pub mod epochs;

pub mod retention;

pub mod clean;

mod segment;

mod roll;

mod recorded;

pub mod journal;

pub mod partition;

pub mod append;

mod planning;

pub mod complete;

pub mod locate;

pub mod search;

pub mod housekeeping;

pub mod cleaning;

mod lifecycle;

mod room;

pub mod recovery;

pub use append::Appended;
pub use complete::Completed;
pub use config::{CleanupPolicy, Durability, LogConfig, TimestampType};
pub use cursors::Cursors;
pub use error::AppendError;
pub use housekeeping::{AdvanceError, Retained};
pub use journal::{Journal, JournalError, JournalReplay};
pub use locate::{Located, ReadError, Slice};
pub use partition::{Cause, FileName, LogSpec, LogState, PartitionLog};
pub use recovery::{OpenError, Opening, RecoveryReport};
pub use retention::SegmentInfo;
pub use search::{Scan as TimestampScan, TimestampSearch};
