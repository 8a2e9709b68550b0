//! uringlog: Apache Kafka's partition log and wire protocol on io_uring, for one Linux host.
//!
//! The layers, ground floor first; each uses only those before it (`tests/tidy.rs` enforces it):

pub mod units;

pub mod format;

pub mod disk;

pub mod log;

pub mod ring;

pub mod wire;

pub mod client;

pub mod shard;

pub mod broker;

pub mod cli;
