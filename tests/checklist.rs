//! The checklist of behaviours that Kafka's own tests of its log describe, 105 items: the table in
//! `tests/checklist.md` maps each of them to a test here or elsewhere, or says why it can't apply.
//! The tests in this folder are those that no other file was the place for; each names its item.

#[path = "checklist/fixture.rs"]
mod fixture;
#[path = "checklist/indexes.rs"]
mod indexes;
#[path = "checklist/reads.rs"]
mod reads;
#[path = "checklist/records.rs"]
mod records;
#[path = "checklist/segments.rs"]
mod segments;
#[path = "checklist/startup.rs"]
mod startup;
mod support;
#[path = "checklist/table.rs"]
mod table;
#[path = "checklist/transactions.rs"]
mod transactions;
