//! Compaction: rounds over whole logs, on every disk, with a crash at every step. What Kafka's
//! cleaner left is compared in `tests/golden`.

#[expect(dead_code, reason = "made for other tests, too")]
#[path = "../support/mod.rs"]
mod support;

mod history;
mod items;
mod random;
mod rounds;
mod topic;
mod turns;
