//! uringlog: Apache Kafka's partition log and wire protocol on io_uring, for one Linux host.
//!
//! As a library it is the log without the network. One thread runs an [`Engine`] on a data
//! directory laid out as Kafka's; a [`Partition`] of it takes record batches, acknowledges them
//! when they are as safe as its [`Durability`] promises, and gives them back, at once or as they
//! come:
//!
//! ```
//! use uringlog::{
//!     BatchBuilder, ByteCount, Codec, Durability, EdgeKind, Engine, EngineKind, EngineOptions,
//!     NewRecord, Offset, PartitionSpec, RecordsIter, TopicName, edge, now,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let temporary = tempfile::tempdir()?;
//! # let directory = temporary.path().join("data");
//! // Plain files work everywhere; `EngineKind::Ring` on `EdgeKind::Uring` is the fast engine.
//! let values = edge::run(EdgeKind::Tokio, async {
//!     let options = EngineOptions::new(&directory, EngineKind::PlainFile);
//!     let engine = Engine::open_directory(options)?;
//!     let spec = PartitionSpec::new(TopicName::new("flights")?, Durability::Device);
//!     let partition = engine.open_or_create(spec).await?;
//!
//!     let mut batch = BatchBuilder::new(Codec::None);
//!     batch.push(&NewRecord::value(now(), b"LH123 departed"));
//!     let appended = partition.append(batch.build())?;
//!     // The bytes are written at the end of this turn; awaiting this is the acknowledgement.
//!     partition.reached(appended.due).await?;
//!
//!     let mut follow = partition.follow(Offset(0));
//!     let batch = follow.next().await?;
//!     let mut values = Vec::new();
//!     for record in RecordsIter::new(batch.header(), batch.payload()) {
//!         values.push(record?.value.map(<[u8]>::to_vec));
//!     }
//!     assert!(partition.read(Offset(0), ByteCount(4096)).await?.len() > 61);
//!     assert!(engine.close().await.is_empty());
//!     Ok::<_, Box<dyn std::error::Error>>(values)
//! })??;
//! assert_eq!(values, [Some(b"LH123 departed".to_vec())]);
//! # Ok(())
//! # }
//! ```
//!
//! `examples/embed.rs` does the same on io_uring, with many batches on their way at once. The
//! server is built on this face and adds the protocol.
//!
//! The layers, ground floor first; each uses only those before it (`tests/tidy.rs` enforces it):

pub mod units;

pub mod format;

pub mod disk;

pub mod log;

pub mod coordinator;

pub mod ring;

pub mod wire;

pub mod client;

pub mod shard;

pub mod broker;

pub mod cli;

pub use format::batch::{Codec, RecordBatch};
pub use format::names::TopicName;
pub use format::record::{BatchBuilder, NewRecord, RecordView, RecordsIter};
pub use log::{AppendError, Appended, Cursors, Durability, LogConfig};
pub use shard::edge::{self, EdgeKind};
pub use shard::{
    Engine, EngineError, EngineKind, EngineOptions, Follow, Partition, PartitionSpec, Reached,
    ReadError, now,
};
pub use units::{ByteCount, LeaderEpoch, Offset, PartitionId, Timestamp, TopicId};
