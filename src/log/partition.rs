//! [`PartitionLog`]: what it holds, and what can be asked of it without changing it.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;

use super::cleaning::Cleaning;
use super::config::{Durability, LogConfig};
use super::cursors::Cursors;
use super::epochs::LeaderEpochs;
use super::error::AppendError;
use super::housekeeping::Housekeeping;
use super::locate::Notes;
use super::producers::{Ended, Producers};
use super::recorded::{InRecord, Recorded};
use super::retention::SegmentInfo;
use super::roll;
use super::segment::{ActiveSegment, Beginning, EndSnapshot, Largest, SealedSegment, SegmentFiles};
use crate::disk::plan::Parts;
use crate::disk::{DiskError, FileId, Plan, Step};
use crate::units::{ByteCount, LeaderEpoch, Offset, Position, Timestamp, TopicId, byte_count};

/// What a log is, apart from its records.
#[derive(Clone, Debug)]
pub struct LogSpec {
    /// Owner of the log's [`FileId`]s and plan tags, unique per disk.
    pub number: u32,
    /// The partition's directory.
    pub directory: Arc<Path>,
    /// Written to `partition.metadata`.
    pub topic_id: TopicId,
    /// Settings, range-checked.
    pub config: LogConfig,
    /// Stamped into every batch.
    pub leader_epoch: LeaderEpoch,
    /// `segment.jitter.ms` is drawn from it.
    pub jitter_seed: u64,
}

/// What a log still does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogState {
    /// Reads and appends.
    Serving,
    /// Reads only, until [`PartitionLog::resume`] finds room.
    ReadOnly(Cause),
    /// Nothing, until it is opened anew. After [`Cause::Closed`], and no other, the directory is as
    /// a clean stop leaves it.
    Offline(Cause),
}

/// Why a log doesn't serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Cause {
    /// A write found no room.
    #[error("writing {file}: {error}")]
    Write {
        /// Which file, or what about it.
        file: FileName,
        /// What the disk said.
        error: DiskError,
    },
    /// A sync failed: what the page cache holds is unknown, and a second sync would lie.
    #[error("syncing {file}: {error}")]
    Sync {
        /// Which file.
        file: FileName,
        /// What the disk said.
        error: DiskError,
    },
    /// It was closed by a clean stop.
    #[error("the log is closed")]
    Closed,
    /// Its topic was deleted.
    #[error("the topic is deleted")]
    Retired,
}

/// Which of a log's files an error is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileName {
    /// A file of the segment with this base offset.
    Segment(Offset),
    /// Another file of the partition, or its directory.
    Other,
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FileName::Segment(base) => write!(f, "a file of segment {base:020}", base = base.0),
            FileName::Other => f.write_str("the partition's directory"),
        }
    }
}

/// An end of the log that a plan reaches: an offset and where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Target {
    pub next: Offset,
    pub segment: Offset,
    pub at: Position,
    /// Of what the segment has before `at`.
    pub largest: Largest,
}

/// What the append plan under way will have done.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub target: Target,
    pub is_synced: bool,
    /// Set when a record of the commit journal makes it durable: it is over when both are.
    pub record: Option<InRecord>,
    /// How often it was already submitted in vain.
    pub tries: u32,
    /// Whether the log went out of service meanwhile: its success doesn't count.
    pub is_given_up: bool,
}

/// One partition's log: takes batches, gives plans, takes their outcomes.
#[derive(Debug)]
pub struct PartitionLog {
    pub(super) number: u32,
    pub(super) directory: Arc<Path>,
    pub(super) topic_id: TopicId,
    pub(super) config: LogConfig,
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) jitter_seed: u64,
    /// How many [`FileId`]s were given.
    pub(super) files: u32,
    pub(super) cursors: Cursors,
    pub(super) state: LogState,
    /// Oldest first. Those at the end may still stand in `sealing`.
    pub(super) sealed: VecDeque<SealedSegment>,
    /// Segments whose last steps no plan has taken yet.
    pub(super) sealing: VecDeque<ActiveSegment>,
    pub(super) active: ActiveSegment,
    /// Where `log_end` stands.
    pub(super) end: Target,
    /// Where `high_watermark` stands.
    pub(super) readable: Target,
    /// The newest end that a plan has synced.
    pub(super) synced: Target,
    pub(super) last_sync: Timestamp,
    /// Whether a `.log` was made whose name is not known to be durable.
    pub(super) has_unsynced_name: bool,
    pub(super) in_flight: Option<InFlight>,
    /// Files that were to be made when the log went out of service.
    pub(super) not_open: Vec<FileId>,
    /// A plan that failed with nothing done and may be tried again.
    pub(super) retry: Option<Plan>,
    pub(super) producers: Producers,
    /// Aborted transactions, by their markers' offsets.
    pub(super) aborted: Vec<Ended>,
    /// Offset of the newest `.snapshot`; where the log began when it was opened, if there is none.
    pub(super) last_snapshot: Offset,
    pub(super) has_last_snapshot: bool,
    pub(super) epochs: LeaderEpochs,
    pub(super) housekeeping: Housekeeping,
    pub(super) cleaning: Cleaning,
    pub(super) notes: Notes,
    pub(super) recorded: Recorded,
    pub(super) scratch: BytesMut,
    pub(super) spare: Parts,
}

impl PartitionLog {
    /// The number that the disk and the journal know the log by.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Where the log begins, ends, and how far it has come.
    pub fn cursors(&self) -> Cursors {
        self.cursors
    }

    /// What the log still does.
    pub fn state(&self) -> LogState {
        self.state
    }

    /// Bytes of all `.log` files, staged ones included.
    pub fn size(&self) -> ByteCount {
        ByteCount(self.segments().map(|segment| segment.size.0).sum())
    }

    /// Whether a segment lies before the one that the high watermark is in: all that it will ever
    /// have is visible.
    pub fn is_complete(&self, segment: Offset) -> bool {
        segment < self.readable.segment
    }

    /// The settings.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// The partition's directory.
    pub fn directory(&self) -> &Arc<Path> {
        &self.directory
    }

    /// The topic's id.
    pub fn topic_id(&self) -> TopicId {
        self.topic_id
    }

    /// The epoch that batches are stamped with.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// The epoch that a stored offset was written in.
    pub fn epoch_of(&self, offset: Offset) -> Option<LeaderEpoch> {
        self.epochs.epoch_of(offset)
    }

    /// What the log knows of idempotent producers.
    pub fn producers(&self) -> &Producers {
        &self.producers
    }

    /// All segments, oldest first; the last one is active.
    pub fn segments(&self) -> impl Iterator<Item = SegmentInfo> + '_ {
        let active = SegmentInfo {
            base: self.active.base,
            size: self.active.size,
            largest_timestamp: self.active.largest.timestamp,
            modified_ms: self.active.modified_ms,
            next_base: self.cursors.next,
        };
        self.sealed.iter().map(SealedSegment::info).chain([active])
    }

    /// Where readers of committed records stop: before the first transaction that is not over
    /// (`UnifiedLog#lastStableOffset`).
    pub fn last_stable(&self) -> Offset {
        let high_watermark = self.cursors.high_watermark;
        let unstable = self.producers.first_unstable();
        unstable.map_or(high_watermark, |it| it.max(self.cursors.log_start).min(high_watermark))
    }

    /// Aborted transactions that have records in `[from, to)`, by their markers' offsets: what a
    /// reader of committed records has to leave out (`TransactionIndex#collectAbortedTxns`).
    pub fn aborted(&self, from: Offset, to: Offset) -> impl Iterator<Item = &Ended> {
        let first = self.aborted.partition_point(|it| it.last_offset < from);
        let mut is_complete = false;
        let behind = self.aborted[first..].iter().take_while(move |it| {
            // The entry that says so still counts.
            !std::mem::replace(&mut is_complete, to <= it.last_stable_offset)
        });
        behind.filter(move |it| it.first_offset < to)
    }

    /// Gives numbers to the `.txnindex` files that the next plan writes.
    pub(super) fn number_aborted_files(&mut self) {
        for at in 0..=self.sealing.len() {
            let segment = self.sealing.get(at).unwrap_or(&self.active);
            if segment.has_aborted() {
                let file = Some(self.new_file());
                self.sealing.get_mut(at).unwrap_or(&mut self.active).aborted_file = file;
            }
        }
    }

    /// Whether the log start lies inside a segment, so that no file name says it: only such logs
    /// have a line in `log-start-offset-checkpoint`.
    pub fn needs_log_start_checkpoint(&self) -> bool {
        let first = self.sealed.front().map_or(self.active.base, |segment| segment.base);
        self.cursors.log_start > first
    }

    /// Where the log of `epoch` ended: the largest known epoch at or below it, and the offset after
    /// its last one. The newest epoch ends at the high watermark.
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> (LeaderEpoch, Option<Offset>) {
        self.epochs.end_offset_for(epoch, self.cursors.high_watermark)
    }

    /// Takes other settings. Segments keep the index size that they were made with.
    pub fn reconfigure(&mut self, config: LogConfig) {
        self.abort_if_changed(&config);
        self.config = config;
    }

    /// Notes that this broker leads the partition in `epoch`, from the next offset on.
    pub fn become_leader(&mut self, epoch: LeaderEpoch, _now: Timestamp) {
        self.leader_epoch = epoch;
        if self.epochs.assign(epoch, self.cursors.next) {
            self.housekeeping.has_new_epochs = true;
        }
    }

    /// Whether an append plan is under way. While one is, the log may not be closed, retired or
    /// resumed.
    pub fn is_in_flight(&self) -> bool {
        self.in_flight.is_some() || self.housekeeping.is_in_flight()
    }

    /// Whether a plan of the append lane is due or will be: something is staged, or one that failed
    /// with nothing done is to be tried again, or a record that was to make it durable is lost.
    pub fn has_staged(&self) -> bool {
        let is_unsynced =
            self.is_device_tier() && self.in_flight.is_none() && self.secured() < self.cursors.next;
        let has_more = self.is_dirty() || is_unsynced;
        self.retry.is_some() || (self.state == LogState::Serving && has_more)
    }

    /// Why nothing can be appended, or what was appended and is not yet due can't be acknowledged.
    pub fn append_refusal(&self) -> Option<AppendError> {
        self.check_serving().err()
    }

    /// Sealed segments that are loaded, with the heap that their indexes take.
    pub fn loaded(&self) -> impl Iterator<Item = (Offset, ByteCount)> + '_ {
        self.sealed.iter().filter_map(|segment| Some((segment.base, segment.loaded_bytes()?)))
    }

    /// Sealed segments whose flush isn't over. They are the last ones: flushes go in order.
    pub(super) fn unflushed(&self) -> impl Iterator<Item = &SealedSegment> {
        let is_unflushed = |segment: &&SealedSegment| segment.unflushed.is_some();
        let count = self.sealed.iter().rev().take_while(is_unflushed).count();
        self.sealed.range(self.sealed.len() - count..)
    }

    pub(super) fn is_device_tier(&self) -> bool {
        self.config.durability() == Durability::Device
    }

    pub(super) fn new_file(&mut self) -> FileId {
        let number = self.files;
        self.files = number.checked_add(1).expect("a log opens fewer than 2^32 files");
        FileId { owner: self.number, number }
    }

    pub(super) fn new_files(&mut self) -> SegmentFiles {
        SegmentFiles { log: self.new_file(), index: self.new_file(), time_index: self.new_file() }
    }

    /// Seals the active segment and opens one at the next offset. The files follow with the plans.
    pub(super) fn roll(&mut self, now: Timestamp) {
        let base = self.cursors.next;
        assert!(self.active.base < base, "an empty segment is never rolled");
        let jitter_ms = roll::jitter_ms(&self.config, self.jitter_seed, base);
        let files = self.new_files();
        let beginning = Beginning { base, files, now, jitter_ms };
        let mut next = ActiveSegment::new(beginning, &self.config);
        let end_snapshot = self.new_snapshot();
        // Made now, or when the log was opened.
        next.extras.snapshot = self.has_last_snapshot && self.last_snapshot == base;
        let mut active = std::mem::replace(&mut self.active, next);
        active.end_snapshot = end_snapshot;
        let mut sealed = active.seal(base);
        sealed.last_record = self.recorded.last();
        self.sealed.push_back(sealed);
        self.sealing.push_back(active);
    }

    /// Producer state at the log's end, unless a `.snapshot` of this offset has it already
    /// (`ProducerStateManager#takeSnapshot`).
    pub(super) fn new_snapshot(&mut self) -> Option<EndSnapshot> {
        let at = self.cursors.next;
        if at <= self.last_snapshot {
            return None;
        }
        (self.last_snapshot, self.has_last_snapshot) = (at, true);
        let bytes = self.producers.snapshot();
        Some(EndSnapshot { file: self.new_file(), at, bytes: bytes.into() })
    }

    /// Whether the `.snapshot` of a segment's base is there, or will be when the segment before it
    /// is sealed.
    pub(super) fn has_snapshot(&self, base: Offset) -> bool {
        if self.active.base == base {
            return self.active.extras.snapshot;
        }
        let number = self.sealed.binary_search_by_key(&base, |segment| segment.base);
        number.is_ok_and(|number| self.sealed[number].extras.snapshot)
    }

    /// The segment that a step is about, for messages.
    pub(super) fn file_of(&self, step: &Step) -> FileName {
        let (Step::Create { file, .. }
        | Step::Open { file, .. }
        | Step::Allocate { file, .. }
        | Step::Write { file, .. }
        | Step::Read { file, .. }
        | Step::Truncate { file, .. }
        | Step::Sync { file }
        | Step::Close { file }) = step
        else {
            return FileName::Other;
        };
        let is_it = |files: SegmentFiles| [files.log, files.index, files.time_index].contains(file);
        if is_it(self.active.files) {
            return FileName::Segment(self.active.base);
        }
        let sealed = self.sealed.iter().rev();
        let found = sealed
            .into_iter()
            .find(|segment| segment.log == Some(*file) || segment.unflushed.is_some_and(is_it));
        found.map_or(FileName::Other, |segment| FileName::Segment(segment.base))
    }
}

impl SealedSegment {
    /// Heap that its indexes take; `None` while they aren't loaded.
    fn loaded_bytes(&self) -> Option<ByteCount> {
        let loaded = self.loaded.as_ref()?;
        Some(byte_count(loaded.offsets.len() + loaded.times.len()))
    }

    /// The segment as retention sees it.
    pub(super) fn info(&self) -> SegmentInfo {
        SegmentInfo {
            base: self.base,
            size: self.size,
            largest_timestamp: self.largest.timestamp,
            modified_ms: self.modified_ms,
            next_base: self.next_base,
        }
    }
}
