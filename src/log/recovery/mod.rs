//! Opening a log: from whatever a clean stop, a kill or a power cut left to a log that serves.
//!
//! Straight-line code over the [`Disk`] trait: it must read before it can decide, and at start-up
//! blocking is fine. Every step may be its last (the power may go again) and may be repeated.
//!
//! Each retained segment is either trusted (sealed, synced before the recovery point) or walked:
//! its batch headers are read, which rebuilds leader epochs and both indexes, and from where the
//! data may not be durable the checksums are computed, too. The state of producers comes from the
//! newest snapshot and the headers behind it.
//!
//! - A torn tail, with nothing valid behind it, is cut off; a last batch of an unknown format whose
//!   checksum is right is kept aside.
//! - Damage with valid batches behind it costs only itself: it is copied to
//!   `NNNNNNNNNNNNNNNNNNNN.log.quarantine` (named by the first offset that is lost; Kafka ignores
//!   such files), and the batches behind it become a segment of their own. Kafka would cut off all
//!   of it and every later segment.
//! - The exception: in the device tier, a hole in the last segment that was never synced. What
//!   stands behind it was never acknowledged, so the log ends at the hole, and its bytes are kept
//!   aside.

mod directory;

mod producers;

pub(in crate::log) mod files;

mod report;

mod search;

mod formats;

mod segments;

mod walk;

use std::collections::VecDeque;

pub use report::{Damage, Gap, OpenError, RecoveryReport, Truncated};

use super::cursors::Cursors;
use super::epochs::LeaderEpochs;
use super::housekeeping::EPOCHS_NAME;
use super::lifecycle::LogParts;
use super::partition::{Cause, FileName, LogSpec, LogState, PartitionLog, Target};
use super::roll;
use super::segment::{ActiveSegment, Beginning, Extras, Found, IndexBytes, Largest, SegmentFiles};
use crate::disk::{Disk, Step};
use crate::format::names::{FileKind, SegmentFile};
use crate::format::partition_metadata;
use crate::units::{ByteCount, LeaderEpoch, Offset, Position, Timestamp, TopicId};
use directory::Directory;
use files::Files;
use producers::{Rebuild, Recovered, Span};
use segments::{Examination, Examined, QUARANTINE_SUFFIX};
use walk::Rebuilt;

/// Small files are read whole only up to this length; a longer one is no file of ours.
const SMALL_FILE_BYTES_MAX: u64 = 1 << 20;

/// What is known of a log from outside its directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// Whether the log directory has a clean-shutdown marker.
    pub clean: bool,
    /// From `recovery-point-offset-checkpoint`.
    pub recovery_point: Option<Offset>,
    /// From `log-start-offset-checkpoint`.
    pub log_start: Option<Offset>,
    /// Raises the leader epoch by one when something was lost, so that clients that saw it notice.
    pub leader_epoch_bump: bool,
}

/// What a recovery begins with.
struct Start {
    /// How many file numbers were given before.
    files: u32,
    /// Nothing at or behind it is kept.
    limit: Offset,
}

impl PartitionLog {
    /// Opens a partition's log, recovering what has to be. The caller follows up with
    /// [`PartitionLog::become_leader`], as Kafka does.
    ///
    /// # Errors
    /// [`OpenError`]; opening again repeats what wasn't finished.
    pub fn open(
        disk: &mut dyn Disk,
        spec: LogSpec,
        how: Opening,
        now: Timestamp,
    ) -> Result<(PartitionLog, RecoveryReport), OpenError> {
        let start = Start { files: 0, limit: Offset::MAX };
        let mut files = Files::new(disk, spec.directory.clone(), spec.number);
        Recovery { spec, how, now, start }.run(&mut files)
    }

    /// Brings a read-only log back into service, once there may be room again: everything behind
    /// the log end, which was never acknowledged, is cut off, and the state in memory is rebuilt
    /// from the files. On failure the log stays as it is, but for a failed sync: that takes it
    /// offline.
    ///
    /// # Errors
    /// [`OpenError`]; with [`crate::disk::DiskError::NoSpace`] there is still no room.
    ///
    /// # Panics
    /// When the log isn't read-only, and while a plan of it is under way.
    pub fn resume(
        &mut self,
        disk: &mut dyn Disk,
        now: Timestamp,
    ) -> Result<RecoveryReport, OpenError> {
        assert!(matches!(self.state, LogState::ReadOnly(_)), "there is nothing to resume");
        assert!(!self.is_in_flight(), "a plan is still under way");
        assert!(!self.awaits_void(), "the journal would bring back what failed");
        let cursors = self.cursors;
        let how = Opening {
            clean: false,
            // What only the journal holds is not durable in the files.
            recovery_point: Some(cursors.recovery_point.max(self.on_file_end())),
            log_start: Some(cursors.log_start),
            leader_epoch_bump: false,
        };
        let start = Start { files: self.files, limit: cursors.log_end };
        let recovery = Recovery { spec: self.spec(), how, now, start };
        let mut files = Files::new(disk, self.directory.clone(), self.number);
        let (log, report) = match recovery.run(&mut files) {
            Ok(opened) => opened,
            Err(error) => {
                if let (OpenError::Disk { error, .. }, true) = (&error, files.has_failed_sync) {
                    let (file, error) = (FileName::Other, *error);
                    self.state = LogState::Offline(Cause::Sync { file, error });
                }
                return Err(error);
            }
        };
        let before = std::mem::replace(self, log);
        for file in before.open_files() {
            // Nothing depends on it: the new numbers stand for the same files.
            let tag = self.tag(crate::disk::Lane::Housekeeping, 0);
            let steps = crate::disk::plan::Steps::from_iter([Step::Close { file }]);
            disk.run(crate::disk::Plan { tag, steps });
        }
        self.inherit_record(&before);
        self.set_first_dirty(before.first_dirty());
        self.epochs = before.epochs;
        self.epochs.truncate_from_end(self.cursors.log_end);
        self.become_leader(before.leader_epoch, now);
        self.housekeeping.has_new_epochs = true;
        Ok(report)
    }

    fn spec(&self) -> LogSpec {
        LogSpec {
            number: self.number,
            directory: self.directory.clone(),
            topic_id: self.topic_id,
            config: self.config.clone(),
            leader_epoch: self.leader_epoch,
            jitter_seed: self.jitter_seed,
        }
    }
}

struct Recovery {
    spec: LogSpec,
    how: Opening,
    now: Timestamp,
    start: Start,
}

impl Recovery {
    fn run(self, files: &mut Files<'_>) -> Result<(PartitionLog, RecoveryReport), OpenError> {
        files.count = self.start.files;
        let opened = self.recover(files);
        if opened.is_err() {
            files.abandon();
        }
        opened
    }

    fn recover(self, files: &mut Files<'_>) -> Result<(PartitionLog, RecoveryReport), OpenError> {
        let mut report = RecoveryReport::default();
        let directory = Directory::tidy(files, &mut report)?;
        check_topic_id(files, &directory, self.spec.topic_id)?;
        let on_disk = read_epochs(files, &directory)?;
        report.epochs_rebuilt = on_disk.is_none();
        let mut rebuilt = Rebuilt { epochs: on_disk.clone().unwrap_or_default() };
        let (snapshots, aborted_bytes) = (directory.snapshots.clone(), directory.txn_indexes());
        let recovered = self.recovered(&directory);
        let mut examined = self.examine(files, directory, &mut report, &mut rebuilt)?;
        let wanted = self.how.log_start.unwrap_or(Offset(0));
        let last = self.last_segment(files, &mut report, &mut examined, wanted)?;
        let (base, found, log_end) = last;
        let first = examined.sealed.first().map_or(base, |segment| segment.base);
        let log_start = wanted.max(first);
        let mut spans: Vec<Span> = examined.sealed.iter().map(Span::of).collect();
        spans.push(Span { base, end: log_end, bytes: found.size });
        let rebuild = Rebuild {
            files,
            report: &mut report,
            spans: &spans,
            log_start,
            recovered,
            now: self.now,
            expiration_ms: self.spec.config.producer_expiration_ms,
        };
        let known = rebuild.run(snapshots, &aborted_bytes)?;
        for segment in &mut examined.sealed {
            segment.extras = known.extras(segment.base);
        }
        let aborted_bytes = known.aborted_files.get(&base).map_or(0, |it| it.0);
        let found = Found { extras: known.extras(base), aborted_bytes, ..found };
        let active = self.open_active(files, base, found)?;
        if !self.how.clean || !report.is_uneventful() {
            files.sync_directory()?;
        }
        report.segments = examined.sealed.len() + 1;
        (report.log_start, report.log_end) = (log_start, log_end);
        let recovery_point = self.recovery_point(log_start, log_end);
        rebuilt.epochs.truncate_from_end(log_end);
        // As Kafka: by what is known of the start, not by the first segment that is there.
        rebuilt.epochs.truncate_from_start(wanted);
        let has_new_epochs = on_disk.as_ref() != Some(&rebuilt.epochs);
        let at = Position(active.size.0);
        let end = Target { next: log_end, segment: base, at, largest: active.largest };
        let parts = LogParts {
            cursors: Cursors::recovered(log_start, log_end, recovery_point),
            sealed: VecDeque::from(examined.sealed),
            active,
            end,
            producers: known.producers,
            aborted: known.aborted,
            snapshot: known.snapshots.last().copied(),
            epochs: rebuilt.epochs,
            files: files.count,
            now: self.now,
        };
        let is_bumped = self.how.leader_epoch_bump && report.is_lossy();
        let mut log = PartitionLog::assemble(self.spec, parts);
        log.housekeeping.has_new_epochs = has_new_epochs;
        if is_bumped {
            log.leader_epoch = LeaderEpoch(log.leader_epoch.0 + 1);
        }
        Ok((log, report))
    }

    fn recovered(&self, directory: &Directory) -> Recovered {
        let point = self.how.recovery_point.unwrap_or(Offset(0));
        let recovery_point = (!self.how.clean).then_some(point);
        Recovered { recovery_point, unindexed: directory.unindexed() }
    }

    /// Base, contents and end of the segment that goes on; when all lie before the log start, they
    /// are removed, and it is a new one.
    fn last_segment(
        &self,
        files: &mut Files<'_>,
        report: &mut RecoveryReport,
        examined: &mut Examined,
        log_start: Offset,
    ) -> Result<(Offset, Found, Offset), OpenError> {
        match examined.last.take() {
            Some(last) if log_start <= last.2 => Ok(last),
            last => {
                let bases = examined.sealed.drain(..).map(|segment| segment.base);
                let bases: Vec<Offset> = bases.chain(last.map(|last| last.0)).collect();
                remove_segments(files, report, &bases)?;
                Ok((log_start, Found::nothing(log_start, self.now), log_start))
            }
        }
    }

    fn examine(
        &self,
        files: &mut Files<'_>,
        directory: Directory,
        report: &mut RecoveryReport,
        rebuilt: &mut Rebuilt,
    ) -> Result<Examined, OpenError> {
        let others = directory.others.into_keys();
        let quarantines = others.filter(|name| name.ends_with(QUARANTINE_SUFFIX)).collect();
        let walks_all = report.epochs_rebuilt;
        Examination {
            files,
            config: &self.spec.config,
            report,
            rebuilt,
            clean: self.how.clean,
            recovery_point: self.how.recovery_point.unwrap_or(Offset(0)),
            limit: self.start.limit,
            quarantines,
            walks_all,
        }
        .run(directory.segments)
    }

    /// Kafka's: the log end after a clean stop, and otherwise what was known before; recovery does
    /// not advance it.
    fn recovery_point(&self, log_start: Offset, log_end: Offset) -> Offset {
        if self.how.clean {
            return log_end;
        }
        self.how.recovery_point.unwrap_or(Offset(0)).max(log_start).min(log_end)
    }

    /// Opens the files of the last segment and gives its indexes their full length.
    fn open_active(
        &self,
        files: &mut Files<'_>,
        base: Offset,
        found: Found,
    ) -> Result<ActiveSegment, OpenError> {
        let name = |kind: FileKind| SegmentFile::new(base, kind).to_string();
        let log = files.create(&name(FileKind::Log))?;
        let index = files.create(&name(FileKind::Index))?;
        let time_index = files.create(&name(FileKind::TimeIndex))?;
        let IndexBytes { offsets, times } = found.index.clone();
        let jitter_ms = roll::jitter_ms(&self.spec.config, self.spec.jitter_seed, base);
        let segment_files = SegmentFiles { log, index, time_index };
        let beginning = Beginning { base, files: segment_files, now: self.now, jitter_ms };
        let active = ActiveSegment::reopened(beginning, &self.spec.config, found);
        let (index_length, time_index_length) = active.index_lengths();
        for (file, bytes, length) in
            [(index, offsets, index_length), (time_index, times, time_index_length)]
        {
            let length = length.max(ByteCount(crate::units::u64_of(bytes.len())));
            files.step(Step::Truncate { file, length: ByteCount(0) })?;
            files.write(file, Position(0), bytes.into())?;
            files.step(Step::Allocate { file, length })?;
        }
        Ok(active)
    }
}

impl Found {
    /// A segment that is made anew.
    fn nothing(base: Offset, now: Timestamp) -> Found {
        Found {
            size: ByteCount(0),
            index: IndexBytes::default(),
            largest: Largest::none(base),
            first_timestamp: None,
            modified_ms: now.0,
            extras: Extras::default(),
            aborted_bytes: 0,
        }
    }
}

fn check_topic_id(
    files: &mut Files<'_>,
    directory: &Directory,
    expected: TopicId,
) -> Result<(), OpenError> {
    let name = partition_metadata::FILE_NAME;
    let Some(length) = directory.others.get(name) else {
        return files.replace(name, partition_metadata::print(expected).into_bytes());
    };
    let bytes = files.read_range(name, 0, length.0.min(SMALL_FILE_BYTES_MAX))?;
    let found = partition_metadata::parse(&bytes).map_err(OpenError::Metadata)?;
    if found == expected { Ok(()) } else { Err(OpenError::TopicId { expected, found }) }
}

/// The leader epochs as the file has them; `None` when it is absent, empty or wrong, so that they
/// have to be taken from the batches.
fn read_epochs(
    files: &mut Files<'_>,
    directory: &Directory,
) -> Result<Option<LeaderEpochs>, OpenError> {
    let Some(length) = directory.others.get(EPOCHS_NAME) else { return Ok(None) };
    let bytes = files.read_range(EPOCHS_NAME, 0, length.0.min(SMALL_FILE_BYTES_MAX))?;
    if bytes.is_empty() {
        return Ok(None);
    }
    Ok(LeaderEpochs::from_text(&bytes).ok())
}

/// Removes segments that all lie before the log start.
fn remove_segments(
    files: &mut Files<'_>,
    report: &mut RecoveryReport,
    bases: &[Offset],
) -> Result<(), OpenError> {
    for base in bases {
        for kind in [
            FileKind::Index,
            FileKind::TimeIndex,
            FileKind::TxnIndex,
            FileKind::Snapshot,
            FileKind::Log,
        ] {
            let name = SegmentFile::new(*base, kind).to_string();
            files.remove(&name)?;
            report.removed.push(name);
        }
    }
    Ok(())
}
