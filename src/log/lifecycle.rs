//! A log's birth, its clean stop and its retirement.

use std::collections::VecDeque;

use bytes::BytesMut;

use super::cleaning::Cleaning;
use super::cursors::Cursors;
use super::epochs::LeaderEpochs;
use super::housekeeping::{Housekeeping, place_of_directory};
use super::locate::Notes;
use super::partition::{Cause, InFlight, LogSpec, LogState, PartitionLog, Target};
use super::producers::{Ended, Producers};
use super::recorded::{self, Recorded};
use super::roll;
use super::segment::{
    ActiveSegment, Beginning, EndSnapshot, Planner, SealedSegment, SegmentFiles, snapshot_steps,
};
use crate::disk::plan::{Parts, Steps};
use crate::disk::{FileId, Lane, Place, Plan, Step};
use crate::format::names::{FileKind, SegmentFile};
use crate::format::partition_metadata;
use crate::units::{Offset, Timestamp};

/// What a log is put together from.
pub(super) struct LogParts {
    pub cursors: Cursors,
    pub sealed: VecDeque<SealedSegment>,
    pub active: ActiveSegment,
    pub end: Target,
    pub producers: Producers,
    pub aborted: Vec<Ended>,
    /// Offset of the newest `.snapshot`, if there is one.
    pub snapshot: Option<Offset>,
    pub epochs: LeaderEpochs,
    /// How many [`FileId`]s were given.
    pub files: u32,
    pub now: Timestamp,
}

impl PartitionLog {
    /// A new partition, and the plan that makes its directory and its first files, names synced.
    /// Batches may be appended before that plan is over.
    pub fn create(spec: LogSpec, now: Timestamp) -> (PartitionLog, Plan) {
        let base = Offset(0);
        let files = |number| FileId { owner: spec.number, number };
        let files = SegmentFiles { log: files(0), index: files(1), time_index: files(2) };
        let jitter_ms = roll::jitter_ms(&spec.config, spec.jitter_seed, base);
        let beginning = Beginning { base, files, now, jitter_ms };
        let mut active = ActiveSegment::new(beginning, &spec.config);
        active.touch_indexes();
        let mut epochs = LeaderEpochs::default();
        epochs.assign(spec.leader_epoch, base);
        let parts = LogParts {
            cursors: Cursors::recovered(base, base, base),
            sealed: VecDeque::new(),
            active,
            end: Target::base_of(base),
            producers: Producers::default(),
            aborted: Vec::new(),
            snapshot: None,
            epochs,
            files: 3,
            now,
        };
        let mut log = PartitionLog::assemble(spec, parts);
        let steps = log.create_steps();
        let target = Target::base_of(base);
        log.in_flight = Some(InFlight::new(target, true));
        let plan = Plan { tag: log.tag(Lane::Append, 0), steps };
        (log, plan)
    }

    fn create_steps(&mut self) -> Steps {
        let place = place_of_directory(&self.directory);
        let parent = place.directory.clone();
        let mut steps = Steps::from_iter([Step::CreateDirectory { place }]);
        let metadata = partition_metadata::print(self.topic_id).into_bytes();
        steps.extend(self.replace_steps(partition_metadata::FILE_NAME, metadata));
        steps.extend(self.epochs_steps());
        let mut planner = Planner {
            directory: &self.directory,
            steps,
            scratch: &mut self.scratch,
            spare: &mut self.spare,
            has_new_log: false,
        };
        self.active.take_steps(&mut planner);
        let mut steps = planner.steps;
        steps.push(Step::Sync { file: self.active.files.log });
        steps.push(Step::SyncDirectory { directory: self.directory.clone() });
        steps.push(Step::SyncDirectory { directory: parent });
        steps
    }

    /// The last plan of a clean stop: closing time entry, files cut to what is in them, everything
    /// synced and closed. Staged batches are written with it. Afterwards the log is offline, and
    /// its recovery point is the log end.
    ///
    /// # Panics
    /// While another plan of the log is under way.
    pub fn close(&mut self, now: Timestamp) -> Plan {
        assert!(!self.is_in_flight(), "a plan is still under way");
        let is_serving = self.state == LogState::Serving;
        let undo = self.drop_round();
        let closing = if is_serving { self.closing_steps() } else { Steps::new() };
        let mut steps: Steps = undo.into_iter().chain(closing).collect();
        steps.extend(self.open_files().map(|file| Step::Close { file }));
        let target = self.end_of_staged();
        self.last_sync = now;
        self.in_flight = Some(InFlight::new(target, is_serving));
        self.state = match self.state {
            LogState::Serving => LogState::Offline(Cause::Closed),
            LogState::ReadOnly(cause) | LogState::Offline(cause) => LogState::Offline(cause),
        };
        Plan { tag: self.tag(Lane::Append, 0), steps }
    }

    fn end_of_staged(&self) -> Target {
        if self.cursors.next == self.end.next {
            return self.end;
        }
        self.active_target()
    }

    fn closing_steps(&mut self) -> Steps {
        let snapshot = self.new_snapshot();
        self.number_aborted_files();
        let unflushed = self.sealed.iter().filter(|segment| segment.unflushed.is_some());
        let mut unsynced_extras: Vec<(Offset, FileKind)> = Vec::new();
        for segment in unflushed {
            if self.has_snapshot(segment.next_base) {
                unsynced_extras.push((segment.next_base, FileKind::Snapshot));
            }
            if segment.extras.txn_index {
                unsynced_extras.push((segment.base, FileKind::TxnIndex));
            }
        }
        if self.active.extras.txn_index {
            unsynced_extras.push((self.active.base, FileKind::TxnIndex));
        }
        let mut planner = Planner {
            directory: &self.directory,
            steps: Steps::new(),
            scratch: &mut self.scratch,
            spare: &mut self.spare,
            has_new_log: false,
        };
        let mut unsynced: Vec<FileId> = Vec::new();
        for mut active in self.sealing.drain(..) {
            active.seal_steps(&mut planner);
        }
        self.active.seal_steps(&mut planner);
        for files in self.sealed.iter().filter_map(|segment| segment.unflushed) {
            unsynced.extend([files.log, files.index, files.time_index]);
        }
        let active = self.active.files;
        unsynced.extend([active.log, active.index, active.time_index]);
        let mut steps = planner.steps;
        steps.extend(unsynced.into_iter().map(|file| Step::Sync { file }));
        if let Some(EndSnapshot { file, at, bytes }) = snapshot {
            let place = self.place_of(SegmentFile::new(at, FileKind::Snapshot));
            let [create, truncate, write, close] = snapshot_steps(file, place, bytes);
            steps.extend([create, truncate, write, Step::Sync { file }, close]);
        }
        for (at, kind) in unsynced_extras {
            steps.extend(self.sync_steps(SegmentFile::new(at, kind)));
        }
        if self.housekeeping.has_new_epochs {
            self.housekeeping.has_new_epochs = false;
            steps.extend(self.epochs_steps());
        }
        steps.push(Step::SyncDirectory { directory: self.directory.clone() });
        steps
    }

    /// Every file that the log has open.
    pub(super) fn open_files(&self) -> impl Iterator<Item = FileId> + use<> {
        let (mut files, _) = self.active.files_by_presence();
        for segment in &self.sealed {
            files.extend(segment.log);
            let indexes = segment.unflushed.map(|files| [files.index, files.time_index]);
            files.extend(indexes.into_iter().flatten());
        }
        files.extend(self.housekeeping.open_files());
        files.extend(self.cleaning.open_files());
        files.retain(|file| !self.not_open.contains(file));
        files.into_iter()
    }

    /// The plan that takes a deleted topic's partition out of sight: files closed, directory
    /// renamed to `renamed` (in the same parent). Afterwards the log is offline.
    ///
    /// # Panics
    /// While another plan of the log is under way.
    pub fn retire(&mut self, renamed: Place) -> Plan {
        assert!(!self.is_in_flight(), "a plan is still under way");
        let from = place_of_directory(&self.directory);
        let parent = from.directory.clone();
        // First, so that what no plan has opened isn't closed.
        self.stop(LogState::Offline(Cause::Retired));
        let mut steps: Steps = self.open_files().map(|file| Step::Close { file }).collect();
        steps.push(Step::Rename { from, to: renamed });
        steps.push(Step::SyncDirectory { directory: parent });
        let target = self.end;
        self.in_flight = Some(InFlight::new(target, false));
        Plan { tag: self.tag(Lane::Append, 0), steps }
    }

    /// Puts a log together from what was created or recovered.
    pub(super) fn assemble(spec: LogSpec, parts: LogParts) -> PartitionLog {
        let end = parts.end;
        let name = recorded::name_of(spec.topic_id, &spec.directory);
        PartitionLog {
            number: spec.number,
            directory: spec.directory,
            topic_id: spec.topic_id,
            config: spec.config,
            leader_epoch: spec.leader_epoch,
            jitter_seed: spec.jitter_seed,
            files: parts.files,
            cursors: parts.cursors,
            state: LogState::Serving,
            sealed: parts.sealed,
            sealing: VecDeque::new(),
            active: parts.active,
            end,
            readable: end,
            synced: end,
            last_sync: parts.now,
            has_unsynced_name: false,
            in_flight: None,
            not_open: Vec::new(),
            retry: None,
            producers: parts.producers,
            aborted: parts.aborted,
            last_snapshot: parts.snapshot.unwrap_or(parts.cursors.log_start),
            has_last_snapshot: parts.snapshot.is_some(),
            epochs: parts.epochs,
            housekeeping: Housekeeping::default(),
            cleaning: Cleaning::default(),
            notes: Notes::default(),
            recorded: Recorded::new(end, name),
            scratch: BytesMut::new(),
            spare: Parts::new(),
        }
    }
}
