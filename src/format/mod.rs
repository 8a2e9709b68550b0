//! Bytes: what Kafka's files and record batches look like. No I/O, no clock.

pub mod batch;
pub mod codec;
pub mod control;
pub mod record;
pub mod scan;
pub mod varint;

pub mod compact;
pub mod consumer_protocol;
pub mod group_records;
pub mod kraft;
pub mod kraft_users;
pub mod schema;

pub mod checkpoint;
pub mod clean_shutdown;
pub mod id;
pub mod java_text;

pub mod aborted;
pub mod index;
pub mod journal;
pub mod journal_count;
pub mod names;
pub mod partition_metadata;
pub mod producer_snapshot;
pub mod properties;
