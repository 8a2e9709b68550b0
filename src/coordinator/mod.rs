//! What Kafka's coordinators decide, as pure state machines: an event and the time go in, records
//! for an internal topic and answers come out. Who appends those records, who waits for them and
//! who owns the clock is `broker::coordinators`.

pub mod transactions;
