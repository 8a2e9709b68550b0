//! Consumer groups: the coordinator of one partition of `__consumer_offsets`.
//!
//! - [`request`], [`answer`], [`error`]: what comes in and goes out, without the protocol's bytes.
//! - `classic`: groups whose members assign partitions themselves (JoinGroup, SyncGroup).
//! - `consumer`: groups whose coordinator assigns (ConsumerGroupHeartbeat); `assignor`: how.
//! - `consumers`, `convert`: their requests; from one protocol to the other.
//! - `offsets`: what groups have committed, those of open transactions included.
//! - `commit`, `admin`: the requests about offsets and about groups as a whole.
//! - `machine`: all of it as a [`Coordinator`](crate::coordinator::Coordinator).

pub mod answer;
pub mod error;
pub mod request;
pub mod settings;
pub mod topics;

mod admin;
mod assignor;
mod classic;
mod commit;
mod consumer;
mod consumers;
mod convert;
mod machine;
mod offsets;

#[cfg(test)]
mod tests;

pub use answer::Answer;
pub use error::GroupError;
pub use machine::GroupCoordinator;
pub use request::Request;
pub use settings::{GroupContext, GroupSettings};
pub use topics::Topics;
