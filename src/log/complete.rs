//! What a finished plan changes: cursors forward, or the log out of service.

use smallvec::SmallVec;

use super::partition::{Cause, LogState, PartitionLog, Target};
use super::recorded::InRecord;
use super::segment::SealedSegment;
use crate::disk::{DiskError, Finished, Lane, Plan, Step, StepFailure};
use crate::units::{Offset, Timestamp};

/// How often a plan is submitted again that failed with nothing done and a transient error.
const TRIES_MAX: u32 = 8;

/// What moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// The high watermark, when it moved.
    pub high_watermark: Option<Offset>,
    /// Why the log went out of service, when it did; every append that is not yet due fails.
    pub stopped: Option<LogState>,
    /// Base offsets of segments that were sealed and flushed: they are still in memory, and from
    /// now on [`PartitionLog::unload`] may be called for them.
    pub sealed: SmallVec<[Offset; 1]>,
    /// Segments with these bases were replaced by one, cleaned: first base, and end.
    pub swapped: Option<(Offset, Offset)>,
    /// Why a load failed; the read that waited for it fails.
    pub load_failed: Option<DiskError>,
}

impl PartitionLog {
    /// Takes the outcome of one of this log's plans.
    ///
    /// # Panics
    /// When the plan isn't one that this log gave and that is still under way.
    pub fn complete(&mut self, finished: Finished, now: Timestamp) -> Completed {
        assert_eq!(finished.plan.tag.owner, self.number, "a plan of another log");
        let before = self.cursors.high_watermark;
        let mut completed = match finished.plan.tag.lane {
            Lane::Append => self.complete_append(finished),
            Lane::Housekeeping => self.complete_housekeeping(finished, now),
            Lane::Read => self.complete_load(finished),
        };
        let after = self.cursors.high_watermark;
        completed.high_watermark = (after != before).then_some(after);
        completed
    }

    fn complete_append(&mut self, finished: Finished) -> Completed {
        let Finished { mut plan, result } = finished;
        let Err(failure) = result else { return self.append_done(plan) };
        let in_flight = self.in_flight.as_mut().expect("one append plan is under way");
        let is_untouched = failure.step == 0 && !failure.partial;
        let is_transient = matches!(failure.error, DiskError::Transient(_));
        if is_untouched && is_transient && in_flight.tries < TRIES_MAX {
            in_flight.tries += 1;
            self.retry = Some(plan);
            return Completed::default();
        }
        let is_given_up = in_flight.is_given_up;
        let was_recorded = in_flight.record.is_some();
        self.in_flight = None;
        if was_recorded {
            self.take_back();
        }
        let state = self.state_after(&plan.steps[failure.step], failure);
        self.not_open.extend(plan.steps.drain(failure.step..).filter_map(|step| match step {
            Step::Create { file, .. } => Some(file),
            _ => None,
        }));
        if is_given_up {
            return Completed::default();
        }
        Completed { stopped: Some(self.stop(state)), ..Completed::default() }
    }

    fn append_done(&mut self, plan: Plan) -> Completed {
        self.recycle(plan);
        let in_flight = self.in_flight.as_mut().expect("one append plan is under way");
        match &mut in_flight.record {
            Some(record @ InRecord::UnderWay) => {
                *record = InRecord::Awaited;
                return Completed::default();
            }
            _ => self.in_flight_done(),
        }
        Completed::default()
    }

    /// The append plan, and the record that covers it, if any, are over.
    pub(super) fn in_flight_done(&mut self) {
        let in_flight = self.in_flight.take().expect("one append plan is under way");
        if in_flight.is_given_up {
            return;
        }
        let target = in_flight.target;
        self.end = target;
        self.cursors.set_log_end(target.next);
        // A retention pass may have deleted the segment while it was being sealed.
        let deleted = self.housekeeping.deleted.iter_mut().rev();
        let sealed = self.sealed.iter_mut().rev().take_while(|segment| !segment.is_settled);
        for segment in sealed.chain(deleted.take_while(|segment| !segment.is_settled)) {
            if segment.next_base <= target.segment {
                segment.is_settled = true;
                segment.is_log_durable = in_flight.is_synced;
            }
        }
        if in_flight.is_synced {
            self.synced = target;
            self.has_unsynced_name = false;
        }
        if in_flight.record == Some(InRecord::Written) {
            self.recorded.end = target;
        }
        if self.state == LogState::Offline(Cause::Closed) && in_flight.is_synced {
            for segment in &mut self.sealed {
                segment.unflushed = None;
                (segment.is_settled, segment.is_log_durable) = (true, true);
            }
        }
        self.advance_ends();
    }

    /// Lets `durable_end` follow what was synced, the high watermark follow the end that the tier
    /// promises, and the recovery point what was flushed with its indexes.
    pub(super) fn advance_ends(&mut self) {
        let on_file = self.file_target();
        let is_ahead = self.recorded.end.next > on_file.next;
        let durable = if is_ahead { self.recorded.end } else { on_file };
        if durable.next > self.cursors.durable_end {
            self.cursors.set_durable_end(durable.next);
        }
        let shown = if self.is_device_tier() { durable } else { self.end };
        if shown.next > self.cursors.high_watermark {
            let Target { next, segment, at, .. } = self.readable;
            if let Some(file) = self.open_log(segment) {
                self.note(next, file, at);
            }
            self.cursors.set_high_watermark(shown.next);
            self.producers.replicated(shown.next);
            self.readable = shown;
        } else if shown.next == self.cursors.high_watermark && shown.segment > self.readable.segment
        {
            self.readable = shown;
        }
        // What only the journal holds is not durable for Kafka.
        let flushed = self.unflushed().next().map_or(on_file.next, |segment| segment.base);
        let point = flushed.min(on_file.next);
        if point > self.cursors.recovery_point {
            self.cursors.set_recovery_point(point);
        }
    }

    /// The end of what the log's own files have on the device: a sync of the active segment counts
    /// only as far as every segment before it is there, too.
    pub(super) fn file_target(&self) -> Target {
        // What a failed plan sealed lies behind the log end.
        let is_behind =
            |segment: &&SealedSegment| !segment.is_log_durable && segment.base <= self.end.next;
        let Some(first) = self.unflushed().find(is_behind) else {
            let last = self.sealed.iter().rev().find(|segment| segment.is_settled);
            let base = last.map(|segment| Target::base_of(segment.next_base));
            return base.filter(|base| base.next > self.synced.next).unwrap_or(self.synced);
        };
        if self.synced.segment == first.base { self.synced } else { Target::base_of(first.base) }
    }

    /// A list of parts that has come home is filled again by later appends.
    fn recycle(&mut self, plan: Plan) {
        for step in plan.steps {
            if let Step::Write { mut parts, .. } = step
                && parts.spilled()
                && self.spare.capacity() < parts.capacity()
            {
                parts.clear();
                self.spare = parts;
            }
        }
    }

    pub(super) fn state_after(&self, step: &Step, failure: StepFailure) -> LogState {
        let (file, error) = (self.file_of(step), failure.error);
        match step {
            Step::Sync { .. } | Step::SyncDirectory { .. } => {
                LogState::Offline(Cause::Sync { file, error })
            }
            _ => {
                let cause = Cause::Write { file, error };
                // Both pass: there is room, or a file table has a place, sooner or later.
                match error {
                    DiskError::NoSpace | DiskError::TooManyFiles(_) => LogState::ReadOnly(cause),
                    DiskError::Transient(_)
                    | DiskError::NotFound
                    | DiskError::Denied(_)
                    | DiskError::UnexpectedEnd
                    | DiskError::Io(_) => LogState::Offline(cause),
                }
            }
        }
    }

    /// Takes the log out of service: what was staged is given up, and its offsets with it. What
    /// was shown stays readable while the log is read-only.
    pub(super) fn stop(&mut self, state: LogState) -> LogState {
        self.state = state;
        self.cleaning.abort();
        for segment in self.sealing.drain(..) {
            self.not_open.extend(segment.files_by_presence().1);
        }
        self.active.discard_pending();
        self.cursors.set_next(self.cursors.log_end);
        if self.retry.take().is_some() {
            let in_flight = self.in_flight.take();
            if in_flight.is_some_and(|it| it.record.is_some()) {
                self.take_back();
            }
        }
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.is_given_up = true;
            if in_flight.record.is_some() {
                self.take_back();
            }
        }
        state
    }
}
