//! The wire layer against `kafka-protocol` as its oracle, and against bytes that lie.
//!
//! What is written here by hand has to be byte for byte what the crate writes for the same values,
//! in every version. Bytes that lie may cost an error, never a panic, and never more memory than a
//! small multiple of their own number.

#[path = "wire/allocations.rs"]
mod allocations;
#[path = "wire/client.rs"]
mod client;
#[path = "wire/control.rs"]
mod control;
#[path = "wire/fetch.rs"]
mod fetch;
#[path = "wire/hostile.rs"]
mod hostile;
#[path = "wire/produce.rs"]
mod produce;
#[path = "wire/samples.rs"]
mod samples;
#[path = "wire/table.rs"]
mod table;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;
