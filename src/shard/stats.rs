//! What a shard counts, and how long each stage takes. Written by the shard alone; whoever wants
//! them asks by mailbox and gets a copy.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::log::journal::JournalCounters;
use crate::ring::RingCounters;
use crate::shard::journal::JournalStats;

/// Latencies are kept from 1 us to this, with two significant digits; longer ones count as this.
const LATENCY_MAX_US: u64 = 60_000_000;

/// A count that only rises.
#[derive(Default)]
pub struct Count(Cell<u64>);

impl Count {
    /// Adds to it.
    pub fn add(&self, more: u64) {
        self.0.set(self.0.get().wrapping_add(more));
    }

    /// As it stands.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// How long one stage took, each time, in microseconds.
pub struct Stage(RefCell<Histogram<u64>>);

impl Default for Stage {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX_US, 2);
        Stage(RefCell::new(histogram.expect("the bounds are constants that hdrhistogram takes")))
    }
}

/// What rises and falls.
#[derive(Default)]
pub struct Level(Cell<u64>);

impl Level {
    /// It is this now.
    pub fn set(&self, value: u64) {
        self.0.set(value);
    }

    /// As it stands.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

impl Stage {
    /// Records one passage.
    pub fn record(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(LATENCY_MAX_US);
        self.0.borrow_mut().saturating_record(us.max(1));
    }

    fn copy(&self) -> Histogram<u64> {
        self.0.borrow().clone()
    }
}

macro_rules! stats {
    (
        counts { $($(#[doc = $count_doc:literal])* $count:ident,)* }
        levels { $($(#[doc = $level_doc:literal])* $level:ident,)* }
        stages { $($(#[doc = $doc:literal])* $stage:ident,)* }
    ) => {
        /// A shard's own counters.
        #[derive(Default)]
        pub struct Stats {
            $($(#[doc = $count_doc])* pub $count: Count,)*
            $($(#[doc = $level_doc])* pub $level: Level,)*
            $($(#[doc = $doc])* pub $stage: Stage,)*
        }

        /// A copy of everything a shard counts.
        #[derive(Clone, Debug)]
        pub struct ShardStats {
            /// Name, help text and value of each counter.
            counts: Vec<(&'static str, &'static str, u64)>,
            /// The same of what rises and falls.
            levels: Vec<(&'static str, &'static str, u64)>,
            /// Name and latencies (us) of each stage.
            pub stages: Vec<(&'static str, Histogram<u64>)>,
            /// The storage ring's counters; `None` on plain files.
            pub ring: Option<RingCounters>,
            /// The commit journal's; `None` where there is none.
            pub journal: Option<JournalStats>,
        }

        impl Stats {
            /// A copy.
            pub fn snapshot(
                &self,
                ring: Option<RingCounters>,
                journal: Option<JournalStats>,
            ) -> ShardStats {
                ShardStats {
                    counts: vec![$((
                        stringify!($count),
                        concat!($($count_doc),*),
                        self.$count.get(),
                    ),)*],
                    levels: vec![$((
                        stringify!($level),
                        concat!($($level_doc),*),
                        self.$level.get(),
                    ),)*],
                    stages: vec![$((stringify!($stage), self.$stage.copy()),)*],
                    ring,
                    journal,
                }
            }
        }
    };
}

stats! {
    counts {
        #[doc = "Batches appended."]
        batches,
        #[doc = "Bytes of batches appended."]
        bytes_in,
        #[doc = "Bytes of batches sent to consumers."]
        bytes_out,
        #[doc = "Plans of appended batches."]
        plans,
        #[doc = "Turns that planned anything."]
        turns,
        #[doc = "Segments deleted by retention."]
        segments_deleted,
        #[doc = "Requests received."]
        requests,
        #[doc = "Connections accepted."]
        connections_opened,
        #[doc = "Connections ended."]
        connections_closed,
        #[doc = "Connections ended because of what the client sent."]
        connections_refused,
        #[doc = "Slices of answers that travelled by splice."]
        slices_spliced,
        #[doc = "Slices of answers that were read and sent."]
        slices_copied,
        #[doc = "Rounds over compacted logs that came to their end."]
        cleaner_rounds,
        #[doc = "Rounds given up: the log changed meanwhile, or there was no room."]
        cleaner_aborted,
        #[doc = "Rounds that failed for good: their partitions are left alone."]
        cleaner_failed,
        #[doc = "Bytes read by cleaning, both passes."]
        cleaner_bytes_read,
        #[doc = "Bytes written by cleaning."]
        cleaner_bytes_written,
        #[doc = "Records that cleaning left out."]
        cleaner_records_dropped,
    }
    levels {
        #[doc = "Partitions that can't be cleaned."]
        cleaner_uncleanable_partitions,
        #[doc = "Dirty part of the filthiest compacted log when the cleaner last looked."]
        cleaner_max_dirty_percent,
        #[doc = "How full the last round's map of keys was."]
        cleaner_map_percent,
        #[doc = "Most slices of cleaning that began while appends waited for their turn."]
        cleaner_turn_slices_max,
    }
    stages {
        #[doc = "From a whole Produce frame to its batches being appended."]
        parse,
        #[doc = "From the first append of a turn to its plan's submission."]
        wait_for_turn,
        #[doc = "From submission to completion of a plan without a sync."]
        write,
        #[doc = "From submission to completion of a plan that ends in a sync."]
        sync,
        #[doc = "From the beginning of a cleaning round to its end."]
        clean,
        #[doc = "From an answer being due to its last byte having been sent."]
        answer,
    }
}

impl ShardStats {
    /// Name, help text and value of each counter, the ring's included (0 on plain files).
    pub fn counts(&self) -> Vec<(&'static str, &'static str, u64)> {
        let ring = self.ring.unwrap_or_default();
        let mut counts = self.counts.clone();
        counts.extend([
            ("ring_chains", "Chains that went to the storage ring.", ring.chains),
            ("ring_linked_sqes", "Entries that were linked to a successor.", ring.linked_sqes),
            ("ring_sqes", "Entries of the storage ring.", ring.sqes),
            ("ring_enters", "Calls of io_uring_enter on the storage ring.", ring.enters),
            ("ring_splices", "Entries that moved bytes by splice.", ring.splices),
            ("ring_syncs", "Syncs of files and directories.", ring.syncs),
            (
                "ring_short_writes",
                "Writes and reads that moved less than wanted.",
                ring.short_writes,
            ),
            ("ring_punts", "Entries seen to be handed to a kernel worker.", ring.punts),
            ("ring_waited", "Plans that waited for a free slot.", ring.waited),
            ("ring_durable_writes", "Durable writes in place.", ring.durable_writes),
            ("ring_fixed_writes", "Of these, from a registered buffer.", ring.fixed_writes),
        ]);
        counts.extend(journal_counts(self.journal.map(|it| it.counters).unwrap_or_default()));
        counts
    }

    /// Name, help text and value of what rises and falls.
    pub fn gauges(&self) -> Vec<(&'static str, &'static str, u64)> {
        let journal = self.journal;
        let bytes = |of: fn(JournalStats) -> u64| journal.map_or(0, of);
        let mut gauges = vec![
            (
                "journal_used_bytes",
                "Bytes of the commit journal that a replay would look at.",
                bytes(|it| it.used.0),
            ),
            ("journal_bytes", "Bytes that it has for records.", bytes(|it| it.capacity.0)),
            (
                "journal_serving",
                "1 while it takes plans, 0 where there is none or it can't be written.",
                bytes(|it| u64::from(it.is_serving)),
            ),
        ];
        gauges.extend(self.levels.iter().copied());
        gauges
    }

    /// One counter by its name.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.counts().into_iter().find(|(it, _, _)| *it == name).map(|(_, _, value)| value)
    }
}

fn journal_counts(journal: JournalCounters) -> [(&'static str, &'static str, u64); 7] {
    [
        ("journal_records", "Records of the commit journal.", journal.records),
        ("journal_plans", "Plans that a record made durable.", journal.plans),
        ("journal_copied_bytes", "Bytes copied into records.", journal.copied),
        ("journal_written_bytes", "Bytes of records, padding included.", journal.written),
        ("journal_full", "Plans that synced their own file: it was full.", journal.full),
        ("journal_large", "Plans that synced their own file: too large.", journal.large),
        ("journal_settles", "Syncs asked for to have space again.", journal.settles),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_holds_every_counter_and_stage() {
        let stats = Stats::default();
        stats.batches.add(3);
        stats.sync.record(Duration::from_millis(5));
        let copy = stats.snapshot(None, None);
        assert_eq!(copy.count("batches"), Some(3));
        assert_eq!(copy.count("ring_chains"), Some(0));
        let (_, sync) = copy.stages.iter().find(|(name, _)| *name == "sync").expect("a stage");
        assert_eq!(sync.len(), 1);
        assert!((4_900..=5_100).contains(&sync.max()));
    }
}
