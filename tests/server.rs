//! The real binary, driven over raw sockets: what clients and hosts do wrong, what a kill leaves
//! behind, what the counters say.

#[path = "server/admin.rs"]
mod admin;
#[path = "server/amplified.rs"]
mod amplified;
#[path = "server/batches.rs"]
mod batches;
#[path = "server/commits.rs"]
mod commits;
#[path = "server/compaction.rs"]
mod compaction;
#[path = "server/counts.rs"]
mod counts;
#[path = "server/frames.rs"]
mod frames;
#[path = "server/full_disk.rs"]
mod full_disk;
#[path = "server/groups.rs"]
mod groups;
#[path = "server/in_place.rs"]
mod in_place;
#[path = "server/journal.rs"]
mod journal;
#[path = "server/journal_files.rs"]
mod journal_files;
#[path = "server/kills.rs"]
mod kills;
#[path = "server/large.rs"]
mod large;
#[path = "server/no_io_uring.rs"]
mod no_io_uring;
#[path = "server/places.rs"]
mod places;
#[path = "server/producer_ids.rs"]
mod producer_ids;
#[path = "server/proofs.rs"]
mod proofs;
#[path = "server/quotas.rs"]
mod quotas;
#[path = "server/readers.rs"]
mod readers;
#[path = "server/requests.rs"]
mod requests;
#[path = "wire/samples.rs"]
#[expect(dead_code, reason = "the requests alone are wanted here")]
mod samples;
#[path = "server/sessions.rs"]
mod sessions;
#[path = "server/starts.rs"]
mod starts;
#[path = "server/support/mod.rs"]
mod support;
#[path = "server/topic_ids.rs"]
mod topic_ids;
#[path = "server/transactions.rs"]
mod transactions;
