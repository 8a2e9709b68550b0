//! Why an engine can't do what it was asked for.

use std::path::PathBuf;

use crate::disk::DiskError;
use crate::disk::lock::LockError;
use crate::format::partition_metadata::PartitionMetadataError;
use crate::format::properties::MetaPropertiesError;
use crate::log::{JournalError, OpenError};
use crate::ring::RingError;

/// Why an engine or a partition of it could not be had.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// [`Engine::close`](crate::Engine::close) was called.
    #[error("the engine is stopped")]
    Stopped,
    /// io_uring is refused.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The shard's runtime or a descriptor of it.
    #[error("cannot set up the shard's event loop: {0}")]
    Runtime(std::io::Error),
    /// A step on the partition's files failed.
    #[error("{directory}: {error}")]
    Disk {
        /// The partition's directory.
        directory: PathBuf,
        /// What went wrong.
        error: DiskError,
    },
    /// An existing log can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A journal that was left can't be replayed, or one that was made can't be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Another process works on the data directory.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The data directory, or what names a partition in it, can't be had.
    #[error("{}: {error}", .path.display())]
    Directory {
        /// Which directory or file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// `meta.properties` of the data directory makes no sense.
    #[error("{}: {error}", .path.display())]
    Properties {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: MetaPropertiesError,
    },
    /// A partition's directory holds no `partition.metadata` that makes sense.
    #[error("{}: {error}", .path.display())]
    Metadata {
        /// The partition's directory.
        path: PathBuf,
        /// What is wrong with the file.
        error: PartitionMetadataError,
    },
}
