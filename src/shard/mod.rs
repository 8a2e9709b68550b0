//! The loop that joins logs and disk, and a shard's connections.
//!
//! A shard is one thread, pinned to a core. It owns its partitions outright: no lock, nothing
//! shared. Its runtime comes from [`edge`]; its storage from a ring of its own or from plain files
//! (`storage`). [`Engine`] and [`Partition`] are the library's face; [`serve`] is what the
//! broker adds a protocol to.

mod answer;
mod budget;
mod chores;
mod cleaner;
mod completion;
mod connection;
mod create;
pub mod edge;
mod engine;
mod error;
mod follow;
mod frames;
mod journal;
pub mod journals;
mod mailbox;
mod partition;
mod reader;
mod sealed;
mod server;
mod stats;
mod storage;
mod turns;
mod waiting;

pub use answer::{Answer, AnswerPart, AnswerParts, Reply, Rest};
pub use cleaner::CleanerOptions;
pub use connection::ConnectionInfo;
pub use engine::{Engine, EngineOptions, PartitionSpec, now};
pub use error::EngineError;
pub use follow::Follow;
pub use journal::JournalStats;
pub use journals::{JournalFile, JournalMode, JournalOptions, NoJournal};
pub use mailbox::{Inbox, MAILBOX_MESSAGES_MAX, Mailbox, ShardStopped};
pub use partition::{Partition, Reached, ReadSlice};
pub use reader::{FoundRecord, ReadError};
pub use server::{NetworkOptions, Service, ThreadOptions, serve, start_thread};
pub use stats::{ShardStats, Stats};
pub use storage::EngineKind;
