//! Groups as their clients see them; each test is named after a rule of Kafka's.

mod classic;
mod offsets;
mod random;
mod world;
