//! Groups as their clients see them; each test is named after a rule of Kafka's.

mod classic;
mod consumer;
mod convert;
mod histories;
mod limits;
mod members;
mod offsets;
mod random;
mod world;
