//! What a log has to do with the commit journal of its shard.
//!
//! A small plan is made durable by a record of the journal instead of a sync of its own file: its
//! batches stand in the record as they stand in `.log`. The files follow when the journal wants its
//! space back ([`PartitionLog::settle`]). A replay knows the files by name and position only, so:
//!
//! - A plan that makes a file, or seals one, syncs it as ever, and its name: a segment that a
//!   record names and that isn't there was deleted since.
//! - Offsets that a failed plan had are given again only after its data was taken back.

use smallvec::SmallVec;

use super::complete::Completed;
use super::journal::OpenRecord;
use super::partition::{Cause, LogState, PartitionLog, Target};
use super::segment::SealedSegment;
use crate::disk::plan::Steps;
use crate::disk::{FileId, Plan, Step};
use crate::format::journal::{Data, ENTRY_HEADER_BYTES, PartitionName, Void};
use crate::format::names::PartitionDirectory;
use crate::units::{Offset, Position, TopicId};

/// How far the record is that covers the append plan under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InRecord {
    /// Neither the plan nor the record is over.
    UnderWay,
    /// The plan is over.
    Awaited,
    /// The record is durable.
    Written,
    /// The record could not be written.
    Lost,
}

/// What a log knows of the journal.
#[derive(Debug)]
pub(super) struct Recorded {
    /// What records call the log; `None` when its directory has no partition's name.
    name: Option<PartitionName>,
    /// Newest end that a durable record covers; everything before it is durable, too.
    pub end: Target,
    /// Sequence of the newest record that has data of this log.
    last: Option<u64>,
    /// First record that a replay would look at.
    tail: u64,
    /// Data at this offset or beyond is to be taken back before the offset is given again.
    above: Option<Offset>,
    /// What the record under way takes back.
    asked: Option<Offset>,
}

impl Recorded {
    /// Of a log whose records all stand in its files.
    pub fn new(end: Target, name: Option<PartitionName>) -> Recorded {
        Recorded { name, end, last: None, tail: 0, above: None, asked: None }
    }

    /// The newest record that has data of this log.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// Whether a replay would come upon this record, or one behind it.
    pub fn is_needed(&self, record: u64) -> bool {
        self.tail <= record
    }

    /// Whether a replay would come upon data of this log.
    fn is_live(&self) -> bool {
        self.last.is_some_and(|last| self.tail <= last)
    }
}

impl PartitionLog {
    /// Bytes that the next plan would take in a record; `None` when it can't be made durable that
    /// way: nothing is staged, another plan comes first, the tier doesn't ask for it, something
    /// before it isn't durable, or it makes or seals a file.
    pub fn recordable_bytes(&self) -> Option<usize> {
        let is_ready = self.state == LogState::Serving
            && self.retry.is_none()
            && self.in_flight.is_none()
            && self.is_device_tier()
            && self.sealing.is_empty()
            && self.active.is_log_present()
            && !self.has_unsynced_name
            && self.cursors.durable_end == self.cursors.log_end;
        if !is_ready || self.recorded.name.is_none() {
            return None;
        }
        let (_, _, parts) = self.active.staged()?;
        Some(ENTRY_HEADER_BYTES + parts.iter().map(bytes::Bytes::len).sum::<usize>())
    }

    /// As [`PartitionLog::plan`], for a plan that `record` makes durable: the batches are copied to
    /// it, and the plan has no sync. It is over when [`PartitionLog::record_over`] was called, too.
    ///
    /// # Panics
    /// When there is nothing recordable, and when the record has no room for it.
    pub fn plan_recorded(&mut self, record: &mut OpenRecord<'_>) -> Plan {
        assert!(self.recordable_bytes().is_some(), "there is something to record");
        let name = self.recorded.name.expect("checked before");
        let (segment, at, parts) = self.active.staged().expect("checked before");
        let first = first_offset(&parts[0]);
        let data = Data { name, epoch: self.leader_epoch, first, segment, at, bytes: &[] };
        record.data(data, parts.iter().map(|part| &part[..]));
        let plan = self.plan_steps(false);
        let in_flight = self.in_flight.as_mut().expect("it was just planned");
        in_flight.record = Some(InRecord::UnderWay);
        self.recorded.last = Some(record.sequence());
        plan
    }

    /// Whether a record makes the append plan under way durable.
    pub fn is_recorded(&self) -> bool {
        self.in_flight.is_some_and(|it| it.record.is_some())
    }

    /// Whether an append plan waits for nothing but its record.
    pub fn awaits_record(&self) -> bool {
        self.in_flight.is_some_and(|it| it.record == Some(InRecord::Awaited))
    }

    /// The record that covers the plan under way is over; with `is_durable`, it is on the device.
    pub fn record_over(&mut self, is_durable: bool) -> Completed {
        let before = self.cursors.high_watermark;
        let Some(in_flight) = &mut self.in_flight else { return Completed::default() };
        let Some(record) = &mut in_flight.record else { return Completed::default() };
        let is_chain_over = *record == InRecord::Awaited;
        *record = if is_durable { InRecord::Written } else { InRecord::Lost };
        if is_chain_over {
            self.in_flight_done();
        }
        let after = self.cursors.high_watermark;
        let high_watermark = (after != before).then_some(after);
        Completed { high_watermark, ..Completed::default() }
    }

    /// End of what the log's own files are known to have on the device.
    pub fn on_file_end(&self) -> Offset {
        self.file_target().next
    }

    /// End of what either the files or the journal have on the device.
    pub(super) fn secured(&self) -> Offset {
        self.synced.next.max(self.recorded.end.next)
    }

    /// A plan that the journal covers failed: its offsets may be given again.
    pub(super) fn take_back(&mut self) {
        let from = self.cursors.log_end;
        let above = self.recorded.above.map_or(from, |above| above.min(from));
        self.recorded.above = Some(above);
    }

    /// Says which record is the first that a replay would look at.
    pub fn note_journal_tail(&mut self, tail: u64) {
        self.recorded.tail = tail;
        if !self.recorded.is_live() {
            self.recorded.above = None;
        }
    }

    /// What the next record should take back.
    pub fn void_wanted(&self) -> Option<Void> {
        let from = self.recorded.above.filter(|_| self.recorded.is_live())?;
        Some(Void { name: self.recorded.name?, from })
    }

    /// The record under way takes back what [`PartitionLog::void_wanted`] says.
    pub fn void_under_way(&mut self) {
        self.recorded.asked = self.recorded.above;
    }

    /// The record that takes back is over.
    pub fn void_over(&mut self, is_durable: bool) {
        let asked = self.recorded.asked.take();
        if is_durable && self.recorded.above == asked {
            self.recorded.above = None;
        }
    }

    /// Whether the journal still has data at offsets that [`PartitionLog::resume`] would give
    /// again.
    pub fn awaits_void(&self) -> bool {
        self.recorded.above.is_some() && self.recorded.is_live()
    }

    /// Has the housekeeping lane sync what only the journal holds.
    pub fn settle(&mut self) {
        self.housekeeping.wants_settle = true;
    }

    /// Whether that is under way or will be.
    pub fn is_settling(&self) -> bool {
        self.housekeeping.is_settling()
    }

    /// Whether the files can be synced: not once a sync has failed, nor after the end.
    pub fn can_settle(&self) -> bool {
        !matches!(
            self.state,
            LogState::Offline(Cause::Sync { .. } | Cause::Closed | Cause::Retired)
        )
    }

    /// Syncs every `.log` that may hold what isn't durable, and their names.
    pub(super) fn settle_steps(&self) -> (Target, Steps) {
        let is_open = |file: &FileId| !self.not_open.contains(file);
        // The segment of the log end may be sealed already, by a plan that isn't over.
        let is_last = |base| base == self.end.segment && Position(0) < self.end.at;
        let is_wanted = |it: &&SealedSegment| it.is_settled || is_last(it.base);
        let sealed = self.sealed.iter().filter(|it| !it.is_log_durable).filter(is_wanted);
        let files = sealed.filter_map(|it| it.unflushed.map(|files| files.log));
        let has_bytes = is_last(self.active.base);
        let active = has_bytes.then_some(self.active.files.log);
        let files: SmallVec<[FileId; 4]> = files.chain(active).filter(is_open).collect();
        let mut steps: Steps = files.into_iter().map(|file| Step::Sync { file }).collect();
        if self.has_unsynced_name {
            steps.push(Step::SyncDirectory { directory: self.directory.clone() });
        }
        (self.end, steps)
    }

    pub(super) fn settled(&mut self, target: Target) {
        for segment in &mut self.sealed {
            if segment.is_settled && segment.next_base <= target.segment {
                segment.is_log_durable = true;
            }
        }
        if self.synced.next < target.next {
            self.synced = target;
        }
        self.advance_ends();
    }

    /// After a resume: the journal may still have data of the log.
    pub(super) fn inherit_record(&mut self, before: &PartitionLog) {
        let Recorded { name, last, tail, .. } = before.recorded;
        self.recorded = Recorded { last, tail, ..Recorded::new(self.end, name) };
        for segment in &mut self.sealed {
            segment.last_record = last;
        }
    }
}

fn first_offset(batch: &[u8]) -> Offset {
    let bytes = *batch.first_chunk().expect("a batch has a header");
    Offset(u64::from_be_bytes(bytes))
}

/// What records call the partition that lies in a directory.
pub(super) fn name_of(topic: TopicId, directory: &std::path::Path) -> Option<PartitionName> {
    let name = directory.file_name()?.to_str()?;
    let partition = PartitionDirectory::parse(name).ok()?.partition;
    Some(PartitionName { topic, partition })
}
