//! Consumer groups: the coordinator of one partition of `__consumer_offsets`.
//!
//! - [`request`], [`answer`], [`error`]: what comes in and goes out, without the protocol's bytes.
//! - `classic`: groups whose members assign partitions themselves (JoinGroup, SyncGroup).
//! - `offsets`: what groups have committed, those of open transactions included.
//! - `commit`, `admin`: the requests about offsets and about groups as a whole.
//! - `machine`: all of it as a [`Coordinator`](crate::coordinator::Coordinator).

pub mod answer;
pub mod error;
pub mod request;
pub mod settings;

mod admin;
mod classic;
mod commit;
mod machine;
mod offsets;

#[cfg(test)]
mod tests;

pub use answer::Answer;
pub use error::GroupError;
pub use machine::GroupCoordinator;
pub use request::Request;
pub use settings::GroupSettings;
