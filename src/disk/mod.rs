//! The seam between the log and the files: plans, and the disks that run them.

pub mod plan;

pub use plan::{
    Disk, DiskError, FileId, Finished, Lane, Listed, Place, Plan, PlanTag, Step, StepFailure,
};
