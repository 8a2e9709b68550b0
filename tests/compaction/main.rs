//! Compaction: rounds over whole logs, on every disk, with a crash at every step, and compared
//! with what Apache Kafka 4.3.1 left.

#[path = "../support/archives.rs"]
mod archives;
#[expect(dead_code, reason = "made for other tests, too")]
#[path = "../support/mod.rs"]
mod support;

mod case;
mod golden;
mod history;
mod items;
mod random;
mod rounds;
mod topic;
mod turns;
