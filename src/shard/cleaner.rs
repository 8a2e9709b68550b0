//! The shard's cleaner: which compacted log is cleaned next, and what becomes of a round
//! (`LogCleaner`, `LogCleanerManager`).
//!
//! One round at a time, the filthiest log first. A round's slices are plans of its log's
//! housekeeping lane, so that a turn of everybody else's lies between two of them; see
//! [`crate::log::cleaning`].

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::log::LogState;
use crate::log::clean::{Cleanable, OffsetMap, RoundEnd, RoundOptions, RoundReport};
use crate::shard::engine::Core;
use crate::shard::journals::nonce;
use crate::shard::partition::PartitionCell;
use crate::units::{ByteCount, Timestamp, u64_of};

/// Slices are no longer, whatever `log.cleaner.io.buffer.size` says: appends wait for what is made
/// of one.
const SLICE_BYTES_MAX: u64 = 512 << 10;

/// Nor shorter.
const SLICE_BYTES_MIN: u64 = 16 << 10;

/// Least memory for keys.
const MEMORY_MIN: u64 = 1 << 20;

/// How the cleaner works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CleanerOptions {
    /// `log.cleaner.enable`.
    pub is_enabled: bool,
    /// Memory for keys (`log.cleaner.dedupe.buffer.size`), of all shards.
    pub memory: ByteCount,
    /// How full it gets (`log.cleaner.io.buffer.load.factor`), in thousandths.
    pub load_thousandths: u64,
    /// Memory for reading and writing (`log.cleaner.io.buffer.size`), of all shards.
    pub buffer: ByteCount,
    /// Limit of reads and writes (`log.cleaner.io.max.bytes.per.second`), of all shards.
    pub bytes_per_second: Option<u64>,
    /// Pause when nothing is dirty enough (`log.cleaner.backoff.ms`).
    pub backoff_ms: u64,
}

impl Default for CleanerOptions {
    fn default() -> CleanerOptions {
        CleanerOptions {
            is_enabled: true,
            memory: ByteCount(128 << 20),
            load_thousandths: 900,
            buffer: ByteCount(512 << 10),
            bytes_per_second: None,
            backoff_ms: 15_000,
        }
    }
}

impl CleanerOptions {
    /// One shard's part of them.
    pub fn share(self, shards: usize) -> CleanerOptions {
        let shards = u64_of(shards.max(1));
        CleanerOptions {
            memory: ByteCount(self.memory.0 / shards),
            buffer: ByteCount(self.buffer.0 / shards),
            bytes_per_second: self.bytes_per_second.map(|rate| (rate / shards).max(1)),
            ..self
        }
    }

    /// What a round over such a part of a log gets.
    fn round(&self, cleanable: &Cleanable) -> RoundOptions {
        let memory = ByteCount(self.memory.0.max(MEMORY_MIN));
        let offsets = cleanable.first_uncleanable - cleanable.first_dirty;
        let secret = (nonce(), nonce());
        // One half is for reading, the other for what is written of it.
        let slice = (self.buffer.0 / 2).clamp(SLICE_BYTES_MIN, SLICE_BYTES_MAX);
        RoundOptions {
            map: OffsetMap::for_offsets((offsets, memory), self.load_thousandths, secret),
            slice_bytes: ByteCount(slice),
            bytes_per_second: self.bytes_per_second,
        }
    }
}

/// What the cleaner is at.
#[derive(Default)]
pub(crate) struct Cleaner {
    round: RefCell<Option<UnderWay>>,
    not_before: Cell<Option<Instant>>,
    /// When old segments of all compacted logs were looked for.
    retained: Cell<Option<Instant>>,
    /// Slices that began since the appends that wait now began to wait.
    turn_slices: Cell<u64>,
}

impl Cleaner {
    /// The first append of a turn begins to wait.
    pub fn turn_begins(&self) {
        self.turn_slices.set(0);
    }
}

struct UnderWay {
    cell: Rc<PartitionCell>,
    began: Instant,
}

impl Core {
    /// Goes on with cleaning: takes in a round that is over, begins the next one.
    pub fn keep_clean(&self, now: Timestamp) {
        if !self.options.cleaner.is_enabled || self.is_stopped() || self.is_cleaning() {
            return;
        }
        if let Some(UnderWay { cell, began }) = self.cleaner.round.take() {
            let report = cell.log.borrow_mut().take_cleaned();
            self.stats.clean.record(began.elapsed());
            self.cleaned(&cell, report);
            self.retain_one(&cell, now);
            if self.cleaner.retained.get().is_none_or(|it| self.pause() < it.elapsed()) {
                self.retain_compacted(now);
            }
        }
        let is_early = self.cleaner.not_before.get().is_some_and(|it| Instant::now() < it);
        if is_early {
            return;
        }
        match self.filthiest(now) {
            Some((cell, cleanable)) => self.begin_cleaning(&cell, &cleanable, now),
            None => {
                self.retain_compacted(now);
                self.cleaner.not_before.set(Instant::now().checked_add(self.pause()));
            }
        }
    }

    /// Time between two looks for something to clean.
    fn pause(&self) -> Duration {
        Duration::from_millis(self.options.cleaner.backoff_ms)
    }

    /// A plan of the housekeeping lane begins. If it is a slice of a round and appends are waiting,
    /// it is counted: they wait for one slice at most.
    pub fn note_slice(&self, cell: &PartitionCell, do_appends_wait: bool) {
        if !do_appends_wait || !cell.log.borrow().is_cleaning() {
            return;
        }
        let slices = self.cleaner.turn_slices.get() + 1;
        self.cleaner.turn_slices.set(slices);
        let most = &self.stats.cleaner_turn_slices_max;
        most.set(most.get().max(slices));
    }

    /// Forgets a first dirty offset that lies outside of the log, before the log grows past it.
    pub fn check_first_dirty(&self, cell: &PartitionCell, now: Timestamp) {
        let _ = self.cleanable(cell, now);
    }

    /// Whether a round is under way. One that waits until the commit journal has passed what it has
    /// of the log asks for that.
    fn is_cleaning(&self) -> bool {
        let round = self.cleaner.round.borrow();
        let Some(UnderWay { cell, .. }) = round.as_ref() else { return false };
        let log = cell.log.borrow();
        if let Some(record) = log.awaited_record() {
            self.pass_record(record);
        }
        // What can't go on any more is dropped with its log.
        log.is_cleaning() && !matches!(log.state(), LogState::Offline(_))
    }

    /// The compacted log with the largest dirty part, if one is dirty enough or late.
    fn filthiest(&self, now: Timestamp) -> Option<(Rc<PartitionCell>, Cleanable)> {
        let (mut best, mut most_dirty) = (None::<(Rc<PartitionCell>, Cleanable)>, 0);
        let mut uncleanable = 0;
        for cell in self.cells() {
            uncleanable += u64::from(cell.is_uncleanable.get());
            if cell.is_uncleanable.get() {
                continue;
            }
            let Some(cleanable) = self.cleanable(&cell, now) else { continue };
            most_dirty = most_dirty.max(cleanable.ratio_millionths());
            let ratio = cell.log.borrow().config().cleanable_ratio_millionths;
            let is_worse =
                |it: &(_, Cleanable)| cleanable.ratio_millionths() <= it.1.ratio_millionths();
            if cleanable.is_due(ratio) && !best.as_ref().is_some_and(is_worse) {
                best = Some((cell, cleanable));
            }
        }
        self.stats.cleaner_uncleanable_partitions.set(uncleanable);
        self.stats.cleaner_max_dirty_percent.set(most_dirty / 10_000);
        best
    }

    fn cleanable(&self, cell: &PartitionCell, now: Timestamp) -> Option<Cleanable> {
        let cleanable = cell.log.borrow().cleanable(now)?;
        if cleanable.resets_checkpoint {
            let mut log = cell.log.borrow_mut();
            let policy = log.config().cleanup_policy;
            let known = log.first_dirty().unwrap_or_default();
            log.set_first_dirty(Some(cleanable.first_dirty));
            // With retention this is how it goes.
            if !policy.delete || cleanable.first_dirty < known {
                tracing::warn!(
                    partition = %cell.directory.display(),
                    "it was cleaned up to {known}, which lies outside of the log; cleaning begins \
                     at its start {}", cleanable.first_dirty
                );
            }
        }
        Some(cleanable)
    }

    fn begin_cleaning(&self, cell: &Rc<PartitionCell>, cleanable: &Cleanable, now: Timestamp) {
        let options = self.options.cleaner.round(cleanable);
        cell.log.borrow_mut().begin_cleaning(cleanable, options, now);
        let under_way = UnderWay { cell: cell.clone(), began: Instant::now() };
        self.cleaner.round.replace(Some(under_way));
        self.want_house(cell);
    }

    /// Says and counts what a round has done; without a report, its log was recovered meanwhile.
    fn cleaned(&self, cell: &PartitionCell, report: Option<RoundReport>) {
        let partition = cell.directory.display();
        let Some(report) = report else { return self.stats.cleaner_aborted.add(1) };
        let RoundReport { from, to, seen, mapped, read, written, .. } = report;
        self.stats.cleaner_bytes_read.add(mapped + read);
        self.stats.cleaner_bytes_written.add(written);
        match report.end {
            RoundEnd::Done => {
                self.stats.cleaner_rounds.add(1);
                self.stats.cleaner_records_dropped.add(seen.records - seen.kept);
                self.stats.cleaner_map_percent.set(report.map_thousandths / 10);
                tracing::info!(
                    %partition,
                    "cleaned from {from} to {to}: {written} of {read} bytes and {} of {} records \
                     stay", seen.kept, seen.records
                );
                if 0 < seen.keyless {
                    tracing::warn!(%partition, "{} records without a key went", seen.keyless);
                }
            }
            RoundEnd::Aborted => self.stats.cleaner_aborted.add(1),
            RoundEnd::Failed(error) if error.is_passing() => {
                self.stats.cleaner_aborted.add(1);
                self.cleaner.not_before.set(Instant::now().checked_add(self.pause()));
                tracing::warn!(%partition, %error, "not cleaned; to be tried again");
            }
            RoundEnd::Failed(error) => {
                self.stats.cleaner_failed.add(1);
                cell.is_uncleanable.set(true);
                tracing::error!(
                    %partition, %error,
                    "this partition can't be cleaned and is left alone until the next start"
                );
            }
        }
    }

    /// Old segments of compacted logs go when the cleaner looks, so that no two work on one log.
    fn retain_compacted(&self, now: Timestamp) {
        self.cleaner.retained.set(Some(Instant::now()));
        for cell in self.cells() {
            if self.is_the_cleaners(&cell) {
                self.retain_one(&cell, now);
            }
        }
    }

    /// Whether the cleaner looks after a log's old segments.
    pub fn is_the_cleaners(&self, cell: &PartitionCell) -> bool {
        self.options.cleaner.is_enabled && cell.log.borrow().config().cleanup_policy.compact
    }

    /// A round may be over: then the next need not wait for the next look.
    pub fn go_on_cleaning(&self, now: Timestamp) {
        let round = self.cleaner.round.borrow();
        let is_over = round.as_ref().is_some_and(|it| !it.cell.log.borrow().is_cleaning());
        drop(round);
        if is_over {
            self.keep_clean(now);
        }
    }
}
