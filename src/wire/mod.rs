//! Kafka's wire protocol: bytes off a socket to requests, answers to bytes. No I/O, no clock.
//!
//! A frame is a 4-byte size, a request header and a body ([`frame`]). Produce and Fetch, which
//! carry the records, are taken apart and put together here by hand: a batch stays where it
//! arrived, and an answer has holes where record bytes go straight from file to socket. Everything
//! else is `kafka-protocol`'s, behind a [`guard`] that checks lengths before anything is allocated.

pub mod error;

pub mod read;

pub mod write;

pub mod frame;

pub mod versions;

pub mod topics;

pub mod produce;

pub mod fetch;

pub mod txn_markers;

pub mod guard;

pub mod offsets;

pub mod control;

pub mod admin;
mod group_answers;

pub use kafka_protocol::protocol::StrBytes;
