//! Compaction of a log's sealed segments: a round's slices are plans of the housekeeping lane, one
//! at a time, and only when that lane has nothing else to do. Appends and reads go on meanwhile.
//!
//! What is written stands under names that end in `.cleaned` until it is whole and durable. Then
//! one plan gives it the place of the old segments, in an order in which a crash at any step leaves
//! either the old ones or what recovery finishes (`LocalLog#replaceSegments`):
//!
//! 1. every new file becomes `.swap`; the directory is synced: from here on the swap is finished,
//!    before that it is undone;
//! 2. every old file becomes `.deleted`; the directory is synced;
//! 3. `.swap` goes away; the directory is synced.
//!
//! Until the plan is over nobody may open one of the segments by its name. Readers that have the
//! old files open read on: these are unlinked with the delay of every deletion.

use std::collections::VecDeque;

use bytes::BytesMut;

use super::clean::{
    CleanError, Cleanable, CleanedTransactions, Measured, Output, Phase, Round, RoundEnd,
    RoundOptions, RoundReport, Source, With, cleanable, groups,
};
use super::complete::Completed;
use super::config::LogConfig;
use super::partition::{Cause, FileName, LogState, PartitionLog, Target};
use super::segment::{Extras, SealedSegment, u32_of};
use crate::disk::plan::{Parts, Steps};
use crate::disk::{FileId, Place, Plan, Step, StepFailure};
use crate::format::names::{FileKind, SegmentFile, Suffix};
use crate::units::{Offset, Position, Timestamp, usize_of};

/// The files of a segment that a round writes.
const KINDS: [FileKind; 4] =
    [FileKind::Log, FileKind::Index, FileKind::TimeIndex, FileKind::TxnIndex];

/// What a plan of a round does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Slice {
    /// Reads a piece, after writing what stays of the last one.
    Read,
    /// Ends the new segment: indexes, syncs.
    Finish,
    /// Changes names.
    Swap,
    /// Removes what was written.
    Undo,
}

/// What cleaning keeps of a log.
#[derive(Debug, Default)]
pub(super) struct Cleaning {
    round: Option<Box<Round>>,
    /// First offset that no round has cleaned, if one has cleaned any.
    first_dirty: Option<Offset>,
    over: Option<RoundReport>,
}

impl Cleaning {
    pub fn is_under_way(&self) -> bool {
        self.round.is_some()
    }

    /// When the round wants to go on.
    pub fn due(&self) -> Option<Timestamp> {
        self.round.as_ref().map(|round| round.due())
    }

    /// Files that the round has open.
    pub fn open_files(&self) -> impl Iterator<Item = FileId> + '_ {
        self.round.iter().flat_map(|round| round.open.iter().copied())
    }

    /// Ends the round at the next opportunity.
    pub fn abort(&mut self) {
        if let Some(round) = &mut self.round {
            round.give_up(RoundEnd::Aborted);
        }
    }
}

impl PartitionLog {
    /// What of the log may be cleaned; `None` when it isn't compacted or doesn't serve, and while a
    /// round is under way.
    pub fn cleanable(&self, now: Timestamp) -> Option<Cleanable> {
        let is_wanted = self.state == LogState::Serving && self.config.cleanup_policy.compact;
        if !is_wanted || self.cleaning.is_under_way() {
            return None;
        }
        let segments: Vec<_> = self.segments().collect();
        let firsts: Vec<_> =
            self.sealed.iter().map(|it| it.first_timestamp.unwrap_or(Timestamp::NONE)).collect();
        // A segment that is not flushed yet is open, and may still be written to.
        let unflushed = self.unflushed().next().map_or(Offset::MAX, |segment| segment.base);
        let limit = self.last_stable().min(unflushed);
        let offsets = (self.cleaning.first_dirty, self.cursors.log_start, limit);
        Some(cleanable(&segments, &firsts, offsets, (&self.config, now)))
    }

    /// First offset that no round has cleaned: the log's line in `cleaner-offset-checkpoint`.
    pub fn first_dirty(&self) -> Option<Offset> {
        self.cleaning.first_dirty
    }

    /// Takes what `cleaner-offset-checkpoint` says, or forgets what it said. A value outside of the
    /// log is noticed by [`PartitionLog::cleanable`].
    pub fn set_first_dirty(&mut self, first_dirty: Option<Offset>) {
        self.cleaning.first_dirty = first_dirty;
    }

    /// Begins a round; its plans are the housekeeping lane's last ones.
    ///
    /// # Panics
    /// While one is under way.
    pub fn begin_cleaning(&mut self, cleanable: &Cleanable, options: RoundOptions, now: Timestamp) {
        assert!(!self.cleaning.is_under_way(), "one round at a time");
        let Cleanable { first_dirty, first_uncleanable, .. } = *cleanable;
        let is_dirty =
            |it: &&SealedSegment| first_dirty < it.next_base && it.base < first_uncleanable;
        let dirty = self.sealed.iter().filter(is_dirty).map(SealedSegment::source).collect();
        let range = (first_dirty, first_uncleanable);
        let mut round = Round::new(options, range, dirty, now);
        round.transactions.add(self.aborted(first_dirty, first_uncleanable).copied());
        self.cleaning.over = None;
        self.cleaning.round = Some(Box::new(round));
    }

    /// Whether a round is under way.
    pub fn is_cleaning(&self) -> bool {
        self.cleaning.is_under_way()
    }

    /// Ends a round that is under way; what it has written is removed.
    pub fn abort_cleaning(&mut self) {
        self.cleaning.abort();
    }

    /// What the round that is over has done; once.
    pub fn take_cleaned(&mut self) -> Option<RoundReport> {
        self.cleaning.over.take()
    }

    /// The record of the commit journal that a replay must have passed before the round can go on.
    pub fn awaited_record(&self) -> Option<u64> {
        let round = self.cleaning.round.as_ref()?;
        let is_waiting = round.phase == Phase::Swap && !round.is_swapping;
        let records = self.of_group(round).filter_map(|segment| segment.last_record);
        records.filter(|record| is_waiting && self.recorded.is_needed(*record)).max()
    }

    /// Whether a plan is giving this segment another's place.
    pub(super) fn is_swapping(&self, segment: Offset) -> bool {
        self.cleaning.round.as_ref().is_some_and(|round| round.is_swapping(segment))
    }

    /// The next plan of the round, unless it has to wait.
    pub(super) fn cleaning_job(&mut self, now: Timestamp) -> Option<(Slice, Steps)> {
        let mut round = self.cleaning.round.take()?;
        if round.is_paused(now) {
            self.cleaning.round = Some(round);
            return None;
        }
        let next = match round.end {
            None => self.next_slice(&mut round),
            Some(_) => self.undo(&round).map(|steps| (Slice::Undo, steps)),
        };
        let is_over = next.is_none() && round.end.is_some();
        match is_over {
            true => self.end_round(&round),
            false => self.cleaning.round = Some(round),
        }
        next
    }

    /// What to do next; `None` when it has to wait, or is over, which its end says.
    fn next_slice(&mut self, round: &mut Round) -> Option<(Slice, Steps)> {
        loop {
            if let Some((at, length)) = round.wanted() {
                return Some((Slice::Read, self.read_steps(round, (at, length))));
            }
            if self.end_source(round) || round.next_source() {
                continue;
            }
            match round.phase {
                Phase::Map => {
                    self.group(round);
                    if !self.begin_group(round) {
                        round.give_up(RoundEnd::Done);
                        return None;
                    }
                }
                Phase::Copy => return Some((Slice::Finish, self.finish_steps(round))),
                Phase::Swap => return self.swap_steps(round).map(|steps| (Slice::Swap, steps)),
            }
        }
    }

    /// Forgets a segment that is read to its end; its file is closed with the round's next plan.
    fn end_source(&self, round: &mut Round) -> bool {
        round.reading.take().is_some()
    }

    fn read_steps(&mut self, round: &mut Round, (at, length): (Position, u64)) -> Steps {
        let mut steps = Steps::new();
        if let Some(output) = &mut round.output {
            if output.size.0 == 0 && !round.open.contains(&output.file) {
                steps.extend(self.begin_steps(output));
            }
            steps.extend(output.write_step());
        }
        let reading = round.reading.as_mut().expect("it has more");
        let kept = [round.output.as_ref().map(|output| output.file), reading.file];
        let done = |file: &&FileId| !kept.contains(&Some(**file));
        steps.extend(round.open.iter().filter(done).map(|file| Step::Close { file: *file }));
        let file = match reading.file {
            Some(file) => file,
            None => {
                let (file, base) = (self.new_file(), reading.source.base);
                let place = self.place_of(SegmentFile::new(base, FileKind::Log));
                steps.push(Step::Open { file, place });
                reading.file = Some(file);
                file
            }
        };
        steps.push(Step::Read { file, at, bytes: BytesMut::zeroed(usize_of(length)) });
        steps
    }

    /// Makes the new segment's `.log`; what an earlier round left there goes first.
    fn begin_steps(&self, output: &Output) -> Steps {
        let place = |kind| self.cleaned_place(output.base, kind, Suffix::Cleaned);
        let mut steps: Steps = KINDS.map(|kind| Step::Remove { place: place(kind) }).into();
        steps.push(Step::Create { file: output.file, place: place(FileKind::Log) });
        steps
    }

    fn cleaned_place(&self, base: Offset, kind: FileKind, suffix: Suffix) -> Place {
        self.place_of(SegmentFile::new(base, kind).with(suffix))
    }

    /// Which segments become one: all up to where the map came.
    fn group(&self, round: &mut Round) {
        let (end, upper) = (round.to(), round.upper);
        if end <= round.from {
            return;
        }
        let sources: Vec<_> = self.sealed.iter().take_while(|it| it.base < end).collect();
        let measured: Vec<Measured> = sources
            .iter()
            .enumerate()
            .map(|(number, segment)| Measured {
                base: segment.base,
                next_base: match number + 1 < sources.len() {
                    true => segment.next_base,
                    false => upper,
                },
                size: segment.size,
                index_bytes: crate::units::ByteCount(u64::from(segment.index_bytes)),
                time_index_bytes: crate::units::ByteCount(u64::from(segment.time_index_bytes)),
            })
            .collect();
        let mut sources = sources.into_iter().map(SealedSegment::source);
        round.groups = groups(&measured, &self.config)
            .into_iter()
            .map(|group| sources.by_ref().take(group.len()).collect())
            .collect();
        round.transactions = CleanedTransactions::default();
        let first = measured.first().map_or(end, |first| first.base);
        round.transactions.add(self.aborted(first, upper).copied());
    }

    /// Begins with the next group; `false` when there is none.
    fn begin_group(&mut self, round: &mut Round) -> bool {
        let Some(group) = round.groups.pop_front() else { return false };
        let base = group.first().expect("a group has a segment").base;
        round.queue = VecDeque::from(group.clone());
        round.group = group;
        round.output = Some(Output::new(base, self.new_file()));
        round.phase = Phase::Copy;
        true
    }

    /// Ends the new segment (`LogSegment#onBecomeInactiveSegment`, `#flush`, `#setLastModified`).
    fn finish_steps(&mut self, round: &mut Round) -> Steps {
        let output = round.output.as_mut().expect("a group is written");
        let mut steps = Steps::new();
        if !round.open.contains(&output.file) {
            // All of its segments were empty.
            steps.extend(self.begin_steps(output));
        }
        steps.extend(output.write_step());
        output.close();
        let aborted: Vec<u8> = output.aborted.iter().flat_map(|it| it.entry().encode()).collect();
        let mut files = vec![output.file];
        let contents = [
            (FileKind::Index, output.index.offsets.clone(), true),
            (FileKind::TimeIndex, output.index.times.clone(), true),
            (FileKind::TxnIndex, aborted, false),
        ];
        for (kind, bytes, is_always) in contents {
            if !is_always && bytes.is_empty() {
                continue;
            }
            let file = self.new_file();
            let place = self.cleaned_place(output.base, kind, Suffix::Cleaned);
            steps.push(Step::Create { file, place });
            if !bytes.is_empty() {
                let parts = Parts::from_iter([bytes.into()]);
                steps.push(Step::Write { file, at: Position(0), parts });
            }
            files.push(file);
        }
        steps.extend(files.iter().map(|file| Step::Sync { file: *file }));
        let modified_ms = round.group.last().expect("a group has a segment").modified_ms;
        for kind in [FileKind::Log, FileKind::Index, FileKind::TimeIndex] {
            let place = self.cleaned_place(output.base, kind, Suffix::Cleaned);
            steps.push(Step::SetModified { place, modified_ms });
        }
        files.extend(round.open.iter().filter(|file| **file != output.file));
        steps.extend(files.into_iter().map(|file| Step::Close { file }));
        steps.push(Step::SyncDirectory { directory: self.directory.clone() });
        steps
    }

    /// The segments of the group that is written.
    fn of_group<'a>(&'a self, round: &'a Round) -> impl Iterator<Item = &'a SealedSegment> {
        let is_in = |it: &&SealedSegment| {
            let found = round.group.binary_search_by_key(&it.base, |source| source.base);
            found.is_ok()
        };
        let ends = round.group.first().zip(round.group.last());
        let (first, last) = ends.map_or((Offset(0), Offset(0)), |(a, b)| (a.base, b.next_base));
        let from = self.sealed.partition_point(|segment| segment.base < first);
        let to = self.sealed.partition_point(|segment| segment.base < last);
        self.sealed.range(from..to).filter(is_in)
    }

    /// Gives the new segment the old ones' place; `None` while one of them is being loaded, or has
    /// data that a replay of the journal would write into it.
    fn swap_steps(&self, round: &mut Round) -> Option<Steps> {
        let must_wait = |segment: &SealedSegment| {
            let record = segment.last_record;
            segment.is_loading || record.is_some_and(|record| self.recorded.is_needed(record))
        };
        if self.of_group(round).any(must_wait) {
            return None;
        }
        round.is_swapping = true;
        let output = round.output.as_ref().expect("a group is written");
        let has_txn_index = !output.aborted.is_empty();
        let is_there = |kind: &FileKind| *kind != FileKind::TxnIndex || has_txn_index;
        let rename = |kind, from, to| Step::Rename {
            from: self.cleaned_place(output.base, kind, from),
            to: self.cleaned_place(output.base, kind, to),
        };
        let sync = || Step::SyncDirectory { directory: self.directory.clone() };
        let kinds = || KINDS.into_iter().filter(is_there);
        let mut steps: Steps =
            kinds().map(|kind| rename(kind, Suffix::Cleaned, Suffix::Swap)).collect();
        steps.push(sync());
        for segment in self.of_group(round) {
            let extras = Extras { snapshot: false, ..segment.extras };
            steps.extend(self.deleted_steps(segment.base, extras));
        }
        steps.push(sync());
        steps.extend(kinds().map(|kind| rename(kind, Suffix::Swap, Suffix::None)));
        steps.push(sync());
        for segment in self.of_group(round).filter(|it| it.base != output.base) {
            if segment.extras.snapshot {
                let file = SegmentFile::new(segment.base, FileKind::Snapshot);
                let (from, to) = (self.place_of(file), self.place_of(file.with(Suffix::Deleted)));
                steps.push(Step::Rename { from, to });
            }
        }
        Some(steps)
    }

    /// Closes and removes what a round that is given up has made; `None` when that is nothing.
    fn undo(&self, round: &Round) -> Option<Steps> {
        let mut steps: Steps = round.open.iter().map(|file| Step::Close { file: *file }).collect();
        if let Some(output) = &round.output {
            let place = |kind| self.cleaned_place(output.base, kind, Suffix::Cleaned);
            steps.extend(KINDS.map(|kind| Step::Remove { place: place(kind) }));
        }
        (!steps.is_empty()).then_some(steps)
    }

    /// Steps that a clean stop takes so that nothing of a round is left.
    pub(super) fn drop_round(&mut self) -> Steps {
        let Some(mut round) = self.cleaning.round.take() else { return Steps::new() };
        round.give_up(RoundEnd::Aborted);
        let steps = self.undo(&round).unwrap_or_default();
        self.end_round(&round);
        steps
    }

    fn end_round(&mut self, round: &Round) {
        let report = round.report();
        if report.end == RoundEnd::Done {
            self.cleaning.first_dirty = Some(report.to);
        }
        self.cleaning.over = Some(report);
    }

    /// A plan of the round is over.
    pub(super) fn complete_slice(
        &mut self,
        slice: Slice,
        (plan, result): (Plan, Result<(), StepFailure>),
        now: Timestamp,
    ) -> Completed {
        let mut round = self.cleaning.round.take().expect("it stays while a plan is under way");
        let done = result.map_or_else(|failure| failure.step, |()| plan.steps.len());
        round.note_files(&plan.steps[..done]);
        let mut completed = Completed::default();
        match (slice, result) {
            (Slice::Undo, _) => {
                self.end_round(&round);
                return completed;
            }
            (Slice::Swap, Ok(())) => completed.swapped = Some(self.swapped(&mut round, now)),
            (Slice::Swap, Err(failure)) => {
                round.give_up(RoundEnd::Failed(CleanError::Disk(failure.error)));
                // What is there under which name tells recovery what to do: nothing is undone.
                round.output = None;
                self.cleaning.round = Some(round);
                let state = swap_failed(&plan.steps[failure.step], failure);
                completed.stopped = Some(self.stop(state));
                return completed;
            }
            (Slice::Read | Slice::Finish, Err(failure)) => {
                round.give_up(RoundEnd::Failed(CleanError::Disk(failure.error)));
            }
            (Slice::Finish, Ok(())) => round.phase = Phase::Swap,
            (Slice::Read, Ok(())) => self.take_slice(&mut round, plan, now),
        }
        self.cleaning.round = Some(round);
        completed
    }

    fn take_slice(&mut self, round: &mut Round, mut plan: Plan, now: Timestamp) {
        if round.end.is_some() {
            return;
        }
        let Some(Step::Read { bytes, .. }) = plan.steps.pop() else {
            unreachable!("the last step is the read")
        };
        let with = With { config: &self.config, producers: &self.producers, now };
        if let Err(error) = round.take(&bytes, &with) {
            round.give_up(RoundEnd::Failed(error));
        }
    }

    /// The new segment has its names. Returns the range of offsets that it stands for.
    fn swapped(&mut self, round: &mut Round, now: Timestamp) -> (Offset, Offset) {
        round.is_swapping = false;
        let group = std::mem::take(&mut round.group);
        let output = round.output.take().expect("a group is written");
        let end = group.last().expect("a group has a segment").next_base;
        let from = self.sealed.partition_point(|segment| segment.base < output.base);
        let to = self.sealed.partition_point(|segment| segment.base < end);
        let modified_ms = group.last().expect("a group has a segment").modified_ms;
        let kept = self.sealed[from].extras.snapshot;
        let old: Vec<SealedSegment> = self.sealed.drain(from..to).collect();
        let base = output.base;
        self.aborted.retain(|it| it.last_offset < base || end <= it.last_offset);
        let at = self.aborted.partition_point(|it| it.last_offset < base);
        self.aborted.splice(at..at, output.aborted.iter().copied());
        let segment = SealedSegment::cleaned(output, (end, modified_ms, kept));
        self.sealed.insert(from, segment);
        for target in [&mut self.end, &mut self.readable, &mut self.synced, &mut self.recorded.end]
        {
            // An end that stands behind the last batch of an old file.
            if base <= target.segment && target.segment < end {
                *target = Target::base_of(end);
            }
        }
        for segment in old {
            self.bury(segment, base, now);
        }
        match round.end.is_some() || self.begin_group(round) {
            true => {}
            false => round.give_up(RoundEnd::Done),
        }
        (base, end)
    }

    /// Has the renamed files of a replaced segment unlinked later.
    fn bury(&mut self, segment: SealedSegment, base: Offset, now: Timestamp) {
        let snapshot = segment.extras.snapshot && segment.base != base;
        let extras = Extras { snapshot, ..segment.extras };
        self.unlink_later(SealedSegment { extras, ..segment }, now);
    }

    /// Takes other settings; a round under way began with others and is given up.
    pub(super) fn abort_if_changed(&mut self, config: &LogConfig) {
        if self.config != *config {
            self.cleaning.abort();
        }
    }

    /// The segment whose first batch nobody has looked at, although `max.compaction.lag.ms` counts
    /// from its timestamp.
    pub(super) fn unknown_first(&self) -> Option<&SealedSegment> {
        let is_wanted = self.config.cleanup_policy.compact
            && self.config.compaction_lag_max_ms != u64::MAX
            && !self.cleaning.is_under_way();
        if !is_wanted {
            return None;
        }
        let dirty = self.cleaning.first_dirty.unwrap_or(self.cursors.log_start);
        let is_unknown = |it: &&SealedSegment| {
            it.first_timestamp.is_none() && 0 < it.size.0 && dirty < it.next_base
        };
        self.sealed.iter().find(is_unknown)
    }
}

/// What the names are after a swap that failed, only recovery can tell: it finishes or undoes it.
fn swap_failed(step: &Step, failure: StepFailure) -> LogState {
    let (file, error) = (FileName::Other, failure.error);
    LogState::Offline(match step {
        Step::SyncDirectory { .. } => Cause::Sync { file, error },
        _ => Cause::Write { file, error },
    })
}

impl SealedSegment {
    fn source(&self) -> Source {
        Source {
            base: self.base,
            next_base: self.next_base,
            size: self.size,
            modified_ms: self.modified_ms,
        }
    }

    /// What a round has written, synced and named.
    fn cleaned(
        output: Output,
        (next_base, modified_ms, snapshot): (Offset, i64, bool),
    ) -> SealedSegment {
        SealedSegment {
            base: output.base,
            next_base,
            size: output.size,
            largest: output.largest,
            first_timestamp: Some(output.first_timestamp.unwrap_or(Timestamp::NONE)),
            modified_ms,
            index_bytes: u32_of(output.index.offsets.len()),
            time_index_bytes: u32_of(output.index.times.len()),
            extras: Extras { snapshot, txn_index: !output.aborted.is_empty() },
            log: None,
            unflushed: None,
            is_settled: true,
            is_log_durable: true,
            last_record: None,
            is_loading: false,
            loaded: None,
        }
    }
}
