//! What Kafka's coordinators decide, as pure state machines: an event and the time go in, records
//! for an internal topic and answers come out. Who appends those records, who waits for them and
//! who owns the clock is `broker::coordinators`.
//!
//! There is one state machine for each partition of an internal topic, a [`Coordinator`]. It knows
//! nothing but what its records say, so that reading the partition from its start brings it back.

mod hash;
mod machine;
mod timers;

pub mod group;

pub mod transactions;

pub use hash::partition_for;
pub use machine::{
    BatchSize, Coordinator, Entry, Origin, Output, Record, ReplayError, Ticket, Write,
};
pub use timers::Timers;
