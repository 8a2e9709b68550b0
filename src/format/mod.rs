//! Bytes: what Kafka's files and record batches look like. No I/O, no clock.

pub mod batch;
