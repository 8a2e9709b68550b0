//! Plans of the housekeeping lane: what no append touches. Sealed segments are flushed, the leader
//! epochs written, deleted segments renamed and, after a delay, unlinked.
//!
//! Deletion never touches bytes: a reader that holds a segment open reads on.

use std::collections::VecDeque;

use bytes::BytesMut;

use super::cleaning::Slice;
use super::complete::Completed;
use super::locate::opened;
use super::partition::{Cause, FileName, LogState, PartitionLog, Target};
use super::retention::{self, FutureTimestamp, RetentionView, SegmentInfo};
use super::segment::{Extras, SealedSegment, SegmentFiles};
use crate::disk::plan::{Parts, Steps};
use crate::disk::{DiskError, FileId, Finished, Lane, Place, Plan, Step, StepFailure};
use crate::format::batch::{BatchHeader, HEADER_BYTES};
use crate::format::names::{FileKind, SegmentFile, Suffix};
use crate::units::{Offset, Position, Timestamp};

/// Name of the file that holds the leader epochs.
pub(super) const EPOCHS_NAME: &str = "leader-epoch-checkpoint";
/// Suffix of a file that replaces another one once it is whole.
pub(super) const TEMPORARY_SUFFIX: &str = ".tmp";

/// How long a plan that found no room waits before it is tried again.
const RETRY_MS: i64 = 1_000;

/// What a retention pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// How many segments were deleted.
    pub segments: usize,
    /// Whether the active segment had expired, too, and was sealed first: a plan is due.
    pub rolled: bool,
    /// A record from the future that holds up `retention.ms`.
    pub blocked_by: Option<FutureTimestamp>,
}

/// Why the log start can't be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AdvanceError {
    /// OFFSET_OUT_OF_RANGE (1).
    #[error("the log start can't move to {to}, beyond the high watermark {high_watermark}")]
    BeyondHighWatermark {
        /// Where it should go.
        to: Offset,
        /// The limit.
        high_watermark: Offset,
    },
}

/// What the housekeeping plan under way does.
#[derive(Debug)]
enum Job {
    /// Syncs the sealed segment with this base, its indexes and the directory.
    Flush(Offset),
    /// Syncs what only the commit journal holds so far: up to this end.
    Settle(Target),
    /// Writes `leader-epoch-checkpoint`.
    Epochs,
    /// Renames the files of a deleted segment.
    Rename(Doomed),
    /// Unlinks them.
    Unlink,
    /// Closes files that nobody needs.
    Close,
    /// Reads the first header of the sealed segment with this base.
    Peek(Offset),
    /// A slice of a cleaning round.
    Clean(Slice),
}

/// A deleted segment whose files still exist.
#[derive(Debug)]
struct Doomed {
    base: Offset,
    extras: Extras,
    open: Vec<FileId>,
    unlink_at: Timestamp,
}

/// The state of the lane.
#[derive(Debug, Default)]
pub(super) struct Housekeeping {
    job: Option<Job>,
    pub has_new_epochs: bool,
    /// Off the log, their files not yet renamed. Oldest first.
    pub deleted: VecDeque<SealedSegment>,
    renamed: VecDeque<Doomed>,
    to_close: Vec<FileId>,
    not_before: Option<Timestamp>,
    /// Whether the journal wants its space back.
    pub wants_settle: bool,
}

impl Housekeeping {
    pub fn is_in_flight(&self) -> bool {
        self.job.is_some()
    }

    pub fn is_settling(&self) -> bool {
        self.wants_settle || self.is_settle_under_way()
    }

    pub fn is_settle_under_way(&self) -> bool {
        matches!(self.job, Some(Job::Settle(_)))
    }

    /// Files of deleted segments that are still open.
    pub fn open_files(&self) -> impl Iterator<Item = FileId> + '_ {
        let indexes = |files: SegmentFiles| [files.log, files.index, files.time_index];
        let deleted = self.deleted.iter().flat_map(move |segment| {
            let unflushed = segment.unflushed.map(indexes).into_iter().flatten();
            unflushed.chain(segment.log.filter(|_| segment.unflushed.is_none()))
        });
        let renamed = self.renamed.iter().flat_map(|doomed| doomed.open.iter().copied());
        deleted.chain(renamed).chain(self.to_close.iter().copied())
    }

    /// Has files closed that a load opened in vain.
    pub fn close_later(&mut self, files: impl Iterator<Item = FileId>) {
        self.to_close.extend(files);
    }
}

impl PartitionLog {
    /// A retention pass: decides which of the oldest segments go and takes them off the log. Their
    /// files follow with [`PartitionLog::housekeeping`]. Producers that were silent for too
    /// long are forgotten, too.
    pub fn retain(&mut self, now: Timestamp) -> Retained {
        if matches!(self.state, LogState::Offline(_)) {
            return Retained::default();
        }
        self.producers.expire(now, self.config.producer_expiration_ms);
        // Its segments are the round's (`LogCleanerManager#deletableLogs`).
        if self.is_cleaning() {
            return Retained::default();
        }
        let segments: Vec<SegmentInfo> = self.segments().collect();
        let (high_watermark, log_start) = (self.cursors.high_watermark, self.cursors.log_start);
        let view = RetentionView { segments: &segments, high_watermark, log_start };
        let expired = retention::expired(view, &self.config, now);
        let is_serving = self.state == LogState::Serving;
        let asks_active = self.config.cleanup_policy.delete && self.config.retention_ms.is_some();
        if is_serving && asks_active && expired.count() + 1 >= segments.len() {
            self.active.touch_time_index();
        }
        let rolled = is_serving && expired.count() == segments.len();
        if rolled {
            self.roll(now);
        }
        // A read-only log keeps what its failed plan may have touched.
        let settled = self.sealed.iter().take_while(|it| is_serving || it.is_settled).count();
        let count = expired.count().min(settled);
        self.housekeeping.deleted.extend(self.sealed.drain(..count));
        if count > 0 {
            let first = self.sealed.front().map_or(self.active.base, |segment| segment.base);
            self.raise_log_start(first);
        }
        Retained { segments: count, rolled, blocked_by: expired.blocked_by }
    }

    /// Forgets the idempotent producers that have been silent for `producer.id.expiration.ms`.
    pub fn expire_producers(&mut self, now: Timestamp) {
        self.producers.expire(now, self.config.producer_expiration_ms);
    }

    /// Moves the log start up to `to` (DeleteRecords); a lower value is ignored. Whole segments
    /// below it go with the next retention pass.
    ///
    /// # Errors
    /// [`AdvanceError::BeyondHighWatermark`].
    pub fn advance_log_start(&mut self, to: Offset) -> Result<(), AdvanceError> {
        let high_watermark = self.cursors.high_watermark;
        if to > high_watermark {
            return Err(AdvanceError::BeyondHighWatermark { to, high_watermark });
        }
        self.raise_log_start(to);
        Ok(())
    }

    fn raise_log_start(&mut self, to: Offset) {
        if to <= self.cursors.log_start {
            return;
        }
        self.cursors.set_log_start(to);
        let gone = self.aborted.partition_point(|it| it.last_offset < to);
        self.aborted.drain(..gone);
        if self.cursors.recovery_point < to {
            self.cursors.set_recovery_point(to);
        }
        if self.epochs.truncate_from_start(to) {
            self.housekeeping.has_new_epochs = true;
        }
    }

    /// The next plan of the lane; `None` while one is under way and while nothing is due.
    pub fn housekeeping(&mut self, now: Timestamp) -> Option<Plan> {
        let is_offline = matches!(self.state, LogState::Offline(_));
        if is_offline && self.can_settle() && !self.housekeeping.is_in_flight() {
            return self.settle_plan();
        }
        let is_early = self.housekeeping.not_before.is_some_and(|it| now < it);
        if is_offline || is_early || self.housekeeping.is_in_flight() {
            return None;
        }
        let (job, steps) = self.next_job(now)?;
        self.housekeeping.job = Some(job);
        Some(Plan { tag: self.tag(Lane::Housekeeping, 0), steps })
    }

    /// When [`PartitionLog::housekeeping`], or [`PartitionLog::plan`] for a sync, wants to be
    /// called again; a time in the past means now.
    pub fn next_due(&self) -> Option<Timestamp> {
        let housekeeping = &self.housekeeping;
        if matches!(self.state, LogState::Offline(_)) {
            return (housekeeping.wants_settle && self.can_settle()).then_some(Timestamp(0));
        }
        let has_work = housekeeping.has_new_epochs
            || housekeeping.wants_settle
            || !housekeeping.to_close.is_empty()
            || self.unflushed().any(SealedSegment::wants_flush)
            || housekeeping.deleted.front().is_some_and(|segment| segment.is_settled);
        let at_once = has_work.then_some(housekeeping.not_before.unwrap_or(Timestamp(0)));
        let unlink = housekeeping.renamed.front().map(|doomed| doomed.unlink_at);
        let is_unsynced = self.cursors.next > self.secured();
        let flush_ms = i64::try_from(self.config.flush_ms).ok().filter(|_| is_unsynced);
        let sync = flush_ms.and_then(|ms| self.last_sync.0.checked_add(ms)).map(Timestamp);
        let peek = self.unknown_first().map(|_| Timestamp(0));
        [at_once, unlink, sync, peek, self.cleaning.due()].into_iter().flatten().min()
    }

    fn next_job(&mut self, now: Timestamp) -> Option<(Job, Steps)> {
        let unflushed = self.unflushed().find(|segment| segment.wants_flush());
        if let Some((files, bases, has_txn_index)) = unflushed.map(|segment| {
            let files = segment.unflushed.expect("it waits for its flush");
            (files, (segment.base, segment.next_base), segment.extras.txn_index)
        }) {
            return Some((Job::Flush(bases.0), self.flush_steps(bases, files, has_txn_index)));
        }
        if let Some(settle) = self.settle_job() {
            return Some(settle);
        }
        if std::mem::take(&mut self.housekeeping.has_new_epochs) {
            return Some((Job::Epochs, self.epochs_steps()));
        }
        if self.housekeeping.deleted.front().is_some_and(|segment| segment.is_settled) {
            let segment = self.housekeeping.deleted.pop_front().expect("it was just seen");
            let doomed = Doomed::new(segment, self.unlink_at(now));
            let steps = self.rename_steps(&doomed);
            return Some((Job::Rename(doomed), steps));
        }
        if self.housekeeping.renamed.front().is_some_and(|doomed| doomed.unlink_at <= now) {
            let doomed = self.housekeeping.renamed.pop_front().expect("it was just seen");
            return Some((Job::Unlink, self.unlink_steps(&doomed)));
        }
        if !self.housekeeping.to_close.is_empty() {
            let files = std::mem::take(&mut self.housekeeping.to_close);
            return Some((
                Job::Close,
                files.into_iter().map(|file| Step::Close { file }).collect(),
            ));
        }
        if let Some(base) = self.unknown_first().map(|segment| segment.base) {
            return Some((Job::Peek(base), self.peek_steps(base)));
        }
        self.cleaning_job(now).map(|(slice, steps)| (Job::Clean(slice), steps))
    }

    fn peek_steps(&mut self, base: Offset) -> Steps {
        let file = self.new_file();
        let place = self.place_of(SegmentFile::new(base, FileKind::Log));
        let bytes = BytesMut::zeroed(HEADER_BYTES);
        let read = Step::Read { file, at: Position(0), bytes };
        Steps::from_iter([Step::Open { file, place }, read, Step::Close { file }])
    }

    /// Takes in the header that was read. One that can't be read says nothing: the segment's age
    /// hurries no round.
    fn peeked(&mut self, base: Offset, (plan, result): (Plan, Result<(), StepFailure>)) {
        let done = result.map_or_else(|failure| failure.step, |()| plan.steps.len());
        self.housekeeping.close_later(opened(&plan.steps[..done]));
        let header = plan.steps.into_iter().find_map(|step| match step {
            Step::Read { bytes, .. } => BatchHeader::decode(&bytes).ok(),
            _ => None,
        });
        let first = header.filter(|_| result.is_ok()).map(|header| header.max_timestamp);
        if let Ok(number) = self.sealed.binary_search_by_key(&base, |segment| segment.base) {
            self.sealed[number].first_timestamp = Some(first.unwrap_or(Timestamp::NONE));
        }
    }

    /// Has the files of a segment, renamed already, unlinked after the delay.
    pub(super) fn unlink_later(&mut self, segment: SealedSegment, now: Timestamp) {
        let doomed = Doomed::new(segment, self.unlink_at(now));
        self.housekeeping.renamed.push_back(doomed);
    }

    /// Renames what a deleted segment has.
    pub(super) fn deleted_steps(&self, base: Offset, extras: Extras) -> Steps {
        let renames = files_of(base, extras).map(|file| Step::Rename {
            from: self.place_of(file),
            to: self.place_of(file.with(Suffix::Deleted)),
        });
        renames.collect()
    }

    fn unlink_at(&self, now: Timestamp) -> Timestamp {
        let delay_ms = i64::try_from(self.config.file_delete_delay_ms).unwrap_or(i64::MAX);
        Timestamp(now.0.saturating_add(delay_ms))
    }

    /// Kafka's `flush-log` after a roll. The index files are closed: they are read on demand.
    fn flush_steps(
        &mut self,
        (base, next_base): (Offset, Offset),
        files: SegmentFiles,
        has_txn_index: bool,
    ) -> Steps {
        let directory = self.directory.clone();
        let mut steps = Steps::from_iter([
            Step::Sync { file: files.log },
            Step::Sync { file: files.index },
            Step::Sync { file: files.time_index },
        ]);
        if self.has_snapshot(next_base) {
            steps.extend(self.sync_steps(SegmentFile::new(next_base, FileKind::Snapshot)));
        }
        if has_txn_index {
            steps.extend(self.sync_steps(SegmentFile::new(base, FileKind::TxnIndex)));
        }
        steps.extend([
            Step::SyncDirectory { directory },
            Step::Close { file: files.index },
            Step::Close { file: files.time_index },
        ]);
        steps
    }

    /// Makes a file durable that is there and not kept open.
    pub(super) fn sync_steps(&mut self, name: SegmentFile) -> [Step; 3] {
        let file = self.new_file();
        let place = self.place_of(name);
        [Step::Open { file, place }, Step::Sync { file }, Step::Close { file }]
    }

    /// The steps that replace `leader-epoch-checkpoint` in one go.
    pub(super) fn epochs_steps(&mut self) -> Steps {
        let text = self.epochs.to_text();
        self.replace_steps(EPOCHS_NAME, text.into_bytes())
    }

    /// Writes a small file under a temporary name, syncs it, renames it, syncs the directory.
    pub(super) fn replace_steps(&mut self, name: &str, text: Vec<u8>) -> Steps {
        let file = self.new_file();
        replace_steps(file, &self.directory, name, text)
    }

    fn rename_steps(&self, doomed: &Doomed) -> Steps {
        let renames = self.deleted_steps(doomed.base, doomed.extras);
        // The name of the segment that stays comes before those that go: a power cut between them
        // would otherwise leave no segment, and nothing that says where the log goes on.
        let directory = self.directory.clone();
        let first = self.has_unsynced_name.then_some(Step::SyncDirectory { directory });
        first.into_iter().chain(renames).collect()
    }

    fn unlink_steps(&self, doomed: &Doomed) -> Steps {
        let close = doomed.open.iter().map(|file| Step::Close { file: *file });
        let remove = doomed
            .files()
            .map(|file| Step::Remove { place: self.place_of(file.with(Suffix::Deleted)) });
        close.chain(remove).collect()
    }

    pub(super) fn place_of(&self, file: SegmentFile) -> Place {
        let name = file.to_string().into_boxed_str();
        Place { directory: self.directory.clone(), name }
    }

    pub(super) fn complete_housekeeping(
        &mut self,
        finished: Finished,
        now: Timestamp,
    ) -> Completed {
        let job = self.housekeeping.job.take().expect("one housekeeping plan is under way");
        let Finished { plan, result } = finished;
        let mut completed = Completed::default();
        match (job, result) {
            (Job::Clean(slice), result) => {
                return self.complete_slice(slice, (plan, result), now);
            }
            (Job::Peek(base), result) => self.peeked(base, (plan, result)),
            (job, Err(failure)) if failure.error == DiskError::NoSpace => {
                self.housekeeping.not_before = Some(Timestamp(now.0.saturating_add(RETRY_MS)));
                let step = &plan.steps[failure.step];
                let is_sync = matches!(step, Step::Sync { .. } | Step::SyncDirectory { .. });
                if is_sync || !self.housekeeping.again(job) {
                    let (file, error) = (FileName::Other, failure.error);
                    let cause = match is_sync {
                        true => Cause::Sync { file, error },
                        false => Cause::Write { file, error },
                    };
                    completed.stopped = Some(self.stop(LogState::Offline(cause)));
                }
            }
            (_, Err(failure)) => {
                let state = self.state_after(&plan.steps[failure.step], failure);
                completed.stopped = Some(self.stop(state));
            }
            // A sync of the other lane has failed: what one behind it says means nothing.
            (Job::Flush(_) | Job::Settle(_), Ok(())) if !self.can_settle() => {
                self.not_open.extend(plan.steps.iter().filter_map(|step| match step {
                    Step::Close { file } => Some(*file),
                    _ => None,
                }));
            }
            (Job::Flush(base), Ok(())) => {
                self.flushed(base);
                completed.sealed.push(base);
            }
            (Job::Settle(target), Ok(())) => self.settled(target),
            (Job::Rename(doomed), Ok(())) => self.housekeeping.renamed.push_back(doomed),
            (Job::Epochs | Job::Unlink | Job::Close, Ok(())) => {}
        }
        completed
    }

    fn settle_plan(&mut self) -> Option<Plan> {
        let (job, steps) = self.settle_job()?;
        self.housekeeping.job = Some(job);
        Some(Plan { tag: self.tag(Lane::Housekeeping, 0), steps })
    }

    fn settle_job(&mut self) -> Option<(Job, Steps)> {
        // A plan that syncs by itself settles more, and of two syncs of one file only one hears of
        // an error.
        let is_syncing = self.in_flight.is_some_and(|it| it.is_synced);
        if !self.housekeeping.wants_settle || is_syncing {
            return None;
        }
        self.housekeeping.wants_settle = false;
        if self.end.next <= self.on_file_end() {
            return None;
        }
        let (target, steps) = self.settle_steps();
        (!steps.is_empty()).then_some((Job::Settle(target), steps))
    }

    fn flushed(&mut self, base: Offset) {
        self.housekeeping.not_before = None;
        let number = self.sealed.binary_search_by_key(&base, |segment| segment.base);
        // Retention may have taken it meanwhile; its rename follows.
        if let Ok(number) = number {
            let segment = &mut self.sealed[number];
            segment.unflushed = None;
            segment.is_log_durable = true;
        } else if let Some(it) = self.housekeeping.deleted.iter_mut().find(|it| it.base == base) {
            it.unflushed = None;
        }
        self.advance_ends();
    }
}

impl Housekeeping {
    /// Puts a job back that found no room; `false` when it can't be repeated.
    fn again(&mut self, job: Job) -> bool {
        match job {
            Job::Epochs => self.has_new_epochs = true,
            Job::Flush(_) => {}
            Job::Settle(_) => self.wants_settle = true,
            Job::Rename(_) | Job::Unlink | Job::Close | Job::Peek(_) | Job::Clean(_) => {
                return false;
            }
        }
        true
    }
}

impl SealedSegment {
    fn wants_flush(&self) -> bool {
        self.is_settled && self.unflushed.is_some()
    }
}

impl Doomed {
    fn new(segment: SealedSegment, unlink_at: Timestamp) -> Doomed {
        let unflushed = segment.unflushed.map(|files| [files.index, files.time_index]);
        let open = segment.log.into_iter().chain(unflushed.into_iter().flatten());
        Doomed { base: segment.base, extras: segment.extras, open: open.collect(), unlink_at }
    }

    fn files(&self) -> impl Iterator<Item = SegmentFile> + use<> {
        files_of(self.base, self.extras)
    }
}

/// The files of a sealed segment.
fn files_of(base: Offset, extras: Extras) -> impl Iterator<Item = SegmentFile> {
    let Extras { snapshot, txn_index } = extras;
    let kinds = [
        (FileKind::Log, true),
        (FileKind::Index, true),
        (FileKind::TimeIndex, true),
        (FileKind::TxnIndex, txn_index),
        (FileKind::Snapshot, snapshot),
    ];
    let present = kinds.into_iter().filter(|(_, is_present)| *is_present);
    present.map(move |(kind, _)| SegmentFile::new(base, kind))
}

/// Writes a small file under a temporary name, syncs it, renames it, syncs the directory.
pub(super) fn replace_steps(
    file: FileId,
    directory: &std::sync::Arc<std::path::Path>,
    name: &str,
    text: Vec<u8>,
) -> Steps {
    let at = |name: String| Place { directory: directory.clone(), name: name.into_boxed_str() };
    let temporary = || at(format!("{name}{TEMPORARY_SUFFIX}"));
    let mut steps = Steps::new();
    steps.push(Step::Create { file, place: temporary() });
    // A crash may have left a longer one.
    steps.push(Step::Truncate { file, length: crate::units::ByteCount(0) });
    if !text.is_empty() {
        steps.push(Step::Write { file, at: Position(0), parts: Parts::from_iter([text.into()]) });
    }
    steps.push(Step::Sync { file });
    steps.push(Step::Rename { from: temporary(), to: at(name.to_owned()) });
    steps.push(Step::SyncDirectory { directory: directory.clone() });
    steps.push(Step::Close { file });
    steps
}

/// A place beside the partition's own directory.
pub(super) fn place_of_directory(directory: &std::path::Path) -> Place {
    let parent = directory.parent().expect("a partition lies in a log directory");
    let name = directory.file_name().and_then(std::ffi::OsStr::to_str);
    let name = name.expect("topic names are ASCII");
    Place { directory: parent.into(), name: name.into() }
}
