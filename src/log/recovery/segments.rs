//! One segment after the other: walked where that is necessary, repaired where it is damaged.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use super::directory::Seen;
use super::files::Files;
use super::formats;
use super::report::{Damage, Gap, OpenError, RecoveryReport, Truncated};
use super::search::{Search, has_empty_sector};
use super::walk::{Rebuilt, Walk, Walked, Window};
use crate::disk::Step;
use crate::format::batch::HEADER_BYTES;
use crate::format::index::{self, TIME_ENTRY_BYTES};
use crate::format::names::{FileKind, SegmentFile, Suffix};
use crate::log::config::{Durability, LogConfig};
use crate::log::segment::{Extras, Found, IndexBytes, SealedSegment, relative};
use crate::units::{ByteCount, Offset, Position, byte_count, u64_of};

/// What the positions of an index can address.
const SEGMENT_BYTES_MAX: u64 = (1 << 31) - 1;
/// Suffix of a file that keeps damaged bytes. Kafka ignores it.
pub(super) const QUARANTINE_SUFFIX: &str = ".log.quarantine";

/// What the segments are examined with.
pub(super) struct Examination<'a, 'b> {
    pub files: &'a mut Files<'b>,
    pub config: &'a LogConfig,
    pub report: &'a mut RecoveryReport,
    pub rebuilt: &'a mut Rebuilt,
    pub clean: bool,
    pub recovery_point: Offset,
    /// Nothing at or behind it is kept.
    pub limit: Offset,
    /// Names of the files that former recoveries have set aside.
    pub quarantines: Vec<String>,
    /// Whether the headers of every segment are wanted.
    pub walks_all: bool,
}

/// The segments in use afterwards.
pub(super) struct Examined {
    pub sealed: Vec<SealedSegment>,
    /// Base, what was found, and the offset after its last record.
    pub last: Option<(Offset, Found, Offset)>,
}

impl Examination<'_, '_> {
    pub fn run(&mut self, mut seen: BTreeMap<Offset, Seen>) -> Result<Examined, OpenError> {
        let mut examined = Examined { sealed: Vec::new(), last: None };
        let mut end: Option<Offset> = None;
        // First, and the last one first: a crash between them must not leave a gap.
        while let Some(last) = seen.last_entry().filter(|it| self.limit < *it.key()) {
            let (base, segment) = last.remove_entry();
            self.remove_segment(base, segment)?;
        }
        while let Some((base, segment)) = seen.pop_first() {
            if segment.log_bytes.0 > SEGMENT_BYTES_MAX {
                let bytes = segment.log_bytes;
                return Err(OpenError::SegmentTooLong { segment: base, bytes });
            }
            let next_base = seen.keys().next().copied();
            if base == self.limit && end.is_some() {
                self.remove_segment(base, segment)?;
                continue;
            }
            self.note_gap(end, base);
            let trusted = next_base.filter(|next| self.is_trusted(*next, segment));
            if let Some(next_base) = trusted
                && self.are_indexes_sound(base, next_base, segment)?
            {
                let sealed = self.trust(base, next_base, segment)?;
                end = Some(next_base);
                examined.sealed.push(sealed);
                continue;
            }
            let repaired = self.walk(base, next_base, segment, &mut seen)?;
            let Some(Kept { found, next, segment }) = repaired else { continue };
            end = Some(next);
            match seen.keys().next().copied().filter(|next| *next < self.limit) {
                Some(next_base) => {
                    self.write_indexes(base, segment, &found.index)?;
                    examined.sealed.push(sealed(base, next_base, segment, &found));
                }
                None => examined.last = Some((base, found, next)),
            }
        }
        // A segment whose batches are all gone leaves its place to the next one.
        let mut next_base = examined.last.as_ref().map(|last| last.0);
        for segment in examined.sealed.iter_mut().rev() {
            segment.next_base = next_base.unwrap_or(segment.next_base);
            next_base = Some(segment.base);
        }
        Ok(examined)
    }

    /// Offsets missing before a segment, once: not where a former recovery has set bytes aside, and
    /// not where everything was durable and complete.
    fn note_gap(&mut self, end: Option<Offset>, base: Offset) {
        let Some(from) = end.filter(|end| *end < base) else { return };
        let is_new = !self.clean && base >= self.recovery_point;
        let is_known = self.report.split.contains(&base)
            || self.report.damages.iter().any(|damage| damage.lost_to == base)
            || self.quarantines.contains(&quarantine_name(from));
        if is_new && !is_known && !self.config.cleanup_policy.compact {
            self.report.gaps.push(Gap { from, to: base });
        }
    }

    /// Whether a sealed segment's files are known to be durable and complete, indexes included. A
    /// recovery point at its very end says that of its `.log` only: the point came there before the
    /// segment was sealed, maybe, and the indexes were to be synced behind that.
    fn is_trusted(&self, next_base: Offset, segment: Segment) -> bool {
        let is_durable = self.clean || next_base < self.recovery_point;
        let is_full = |length: Option<ByteCount>| {
            length.is_some_and(|it| it.0 / 8 > 1 + segment.log_bytes.0 / u64_of(HEADER_BYTES))
        };
        is_durable
            && !self.walks_all
            && next_base < self.limit
            && has_whole_entries(segment)
            && !is_full(segment.index_bytes)
    }

    /// After a kill also the indexes of segments that aren't walked are looked at, which is little
    /// to read beside the rest: Kafka keeps one that is garbage. A clean stop is trusted.
    fn are_indexes_sound(
        &mut self,
        base: Offset,
        next_base: Offset,
        segment: Segment,
    ) -> Result<bool, OpenError> {
        if self.clean {
            return Ok(true);
        }
        let found = self.existing(base, segment)?;
        let is_whole =
            |length: Option<ByteCount>, found: &[u8]| length == Some(byte_count(found.len()));
        let span = next_base.0 - base.0;
        let offset = index::offset_entries(&found.offsets).last();
        let time = index::time_entries(&found.times).last();
        Ok(is_whole(segment.index_bytes, &found.offsets)
            && is_whole(segment.time_index_bytes, &found.times)
            && index::check_offset_index(&found.offsets).is_ok()
            && index::check_time_index(&found.times).is_ok()
            && offset.is_none_or(|it| {
                u64::from(it.relative_offset) < span && u64::from(it.position) < segment.log_bytes.0
            })
            && time.is_none_or(|it| u64::from(it.relative_offset) < span))
    }

    fn trust(
        &mut self,
        base: Offset,
        next_base: Offset,
        segment: Segment,
    ) -> Result<SealedSegment, OpenError> {
        let length = segment.time_index_bytes.expect("trusted").0;
        let entry = u64_of(TIME_ENTRY_BYTES);
        let name = SegmentFile::new(base, FileKind::TimeIndex).to_string();
        let last = match length.checked_sub(entry) {
            Some(at) => self.files.read_range(&name, at, entry)?,
            None => BytesMut::new(),
        };
        let times = IndexBytes { offsets: Vec::new(), times: last.to_vec() };
        let found = Found {
            size: segment.log_bytes,
            index: IndexBytes::default(),
            largest: times.last_time(base),
            first_timestamp: None,
            modified_ms: segment.modified_ms,
            extras: Extras::default(),
            aborted_bytes: 0,
        };
        let u32_of = |length: ByteCount| u32::try_from(length.0).unwrap_or(0);
        Ok(SealedSegment {
            index_bytes: segment.index_bytes.map_or(0, u32_of),
            time_index_bytes: u32_of(ByteCount(length)),
            ..sealed(base, next_base, segment, &found)
        })
    }

    /// Walks a segment and repairs it. `None` when nothing of it is left.
    fn walk(
        &mut self,
        base: Offset,
        next_base: Option<Offset>,
        segment: Segment,
        seen: &mut BTreeMap<Offset, Seen>,
    ) -> Result<Option<Kept>, OpenError> {
        let name = SegmentFile::new(base, FileKind::Log).to_string();
        let is_durable = next_base.is_some_and(|it| it <= self.recovery_point);
        if !self.clean && !is_durable {
            self.files.forget(&name, segment.log_bytes)?;
        }
        let file = self.files.open(&name)?;
        let mut window = Window::new(file, segment.log_bytes);
        let existing = self.existing(base, segment)?;
        let limit = next_base.unwrap_or(Offset::MAX).min(self.limit);
        let walk = Walk {
            base,
            interval: self.config.index_interval_bytes,
            checked_from: self.checked_from(base, next_base, &existing),
            limit,
            existing: &existing,
        };
        let walked = walk.run(self.files, &mut window, self.rebuilt)?;
        self.report.walked += 1;
        self.report.batches += walked.batches;
        self.report.checked += walked.checked;
        if walked.batches == 0 {
            formats::refuse_legacy(self.files, base, &mut window)?;
        }
        let broken = Broken { base, next_base, limit, segment, walked: &walked };
        let left = self.repair(&broken, &mut window, seen)?;
        if !self.clean {
            self.files.step(Step::Sync { file })?;
        }
        self.files.close(file)?;
        match left {
            Left::Replaced => Ok(None),
            Left::Nothing => self.remove_segment(base, segment).map(|()| None),
            Left::Batches => {
                let next = walked.next;
                let kept = (self.clean || is_durable).then_some(existing);
                let found = self.reindex(base, segment, walked, kept);
                Ok(Some(Kept { found, next, segment }))
            }
        }
    }

    /// Both index files as they are. Those of a segment that is not known to be complete are looked
    /// at only for a place to begin, so at no more bytes than its `.log` can have entries for.
    fn existing(&mut self, base: Offset, segment: Segment) -> Result<IndexBytes, OpenError> {
        let entries_max = segment.log_bytes.0 / u64_of(HEADER_BYTES) + 2;
        let mut read = |kind: FileKind, length: Option<ByteCount>, entry_bytes: usize| {
            let length = length.map_or(0, |length| length.0);
            let length = length.min(entries_max * u64_of(entry_bytes));
            let name = SegmentFile::new(base, kind).to_string();
            self.files.read_range(&name, 0, length)
        };
        let offsets = read(FileKind::Index, segment.index_bytes, index::OFFSET_ENTRY_BYTES)?;
        let times = read(FileKind::TimeIndex, segment.time_index_bytes, TIME_ENTRY_BYTES)?;
        let offsets = offsets[..index::offset_index_used(&offsets)].to_vec();
        let times = times[..index::time_index_used(&times)].to_vec();
        Ok(IndexBytes { offsets, times })
    }

    /// Where checksums begin to matter: a clean stop leaves only the tail to doubt, a kill
    /// everything from the last index entry at or below the recovery point on. The walk finds out
    /// whether that entry is the start of a batch.
    fn checked_from(
        &self,
        base: Offset,
        next_base: Option<Offset>,
        existing: &IndexBytes,
    ) -> Position {
        let is_durable = next_base.is_some_and(|it| self.clean || it <= self.recovery_point);
        if is_durable {
            return Position(u64::MAX);
        }
        let known = if self.clean { Offset::MAX } else { self.recovery_point };
        let Some(distance) = known.0.checked_sub(base.0 + 1) else { return Position(0) };
        let distance = u32::try_from(distance).unwrap_or(u32::MAX);
        if index::check_offset_index(&existing.offsets).is_err() {
            return Position(0);
        }
        let entry = index::floor_by_offset(&existing.offsets, distance);
        entry.map_or(Position(0), |entry| Position(u64::from(entry.position)))
    }

    /// The indexes to go on with: the existing ones when Kafka would not recover the segment and
    /// each entry belongs to a batch; otherwise those of the walk. After a kill they are closed as
    /// Kafka's recovery closes them.
    fn reindex(
        &mut self,
        base: Offset,
        segment: Segment,
        walked: Walked,
        existing: Option<IndexBytes>,
    ) -> Found {
        let is_right = has_whole_entries(segment) && walked.is_existing_right;
        if !is_right {
            self.report.indexes_rebuilt.push(base);
        }
        let is_kept = |it: &IndexBytes| is_right && (self.clean || has_most_of(it, &walked.index));
        let kept = existing.filter(is_kept);
        let is_closed = self.clean && kept.is_some();
        let mut index = kept.unwrap_or(walked.index);
        if !is_closed {
            index.push_time(base, walked.largest);
        }
        Found {
            size: ByteCount(walked.end.0),
            index,
            largest: walked.largest,
            first_timestamp: walked.first_timestamp,
            modified_ms: segment.modified_ms,
            extras: Extras { snapshot: false, txn_index: segment.txn_index_bytes.is_some() },
            aborted_bytes: 0,
        }
    }

    /// Brings both index files of a sealed segment to what they should be, durably but for names.
    fn write_indexes(
        &mut self,
        base: Offset,
        segment: Segment,
        index: &IndexBytes,
    ) -> Result<(), OpenError> {
        self.write_index(base, FileKind::Index, segment.index_bytes, &index.offsets)?;
        self.write_index(base, FileKind::TimeIndex, segment.time_index_bytes, &index.times)
    }

    fn write_index(
        &mut self,
        base: Offset,
        kind: FileKind,
        length: Option<ByteCount>,
        bytes: &[u8],
    ) -> Result<(), OpenError> {
        let file = SegmentFile::new(base, kind);
        let name = file.to_string();
        if let Some(length) = length.filter(|it| *it == byte_count(bytes.len())) {
            if !self.clean {
                self.files.forget(&name, length)?;
            }
            let found = self.files.read_range(&name, 0, length.0)?;
            if found == bytes {
                return Ok(());
            }
        }
        let cleaned = file.with(Suffix::Cleaned).to_string();
        let target = self.files.create(&cleaned)?;
        self.files.truncate(target, ByteCount(0))?;
        self.files.write(target, Position(0), Bytes::copy_from_slice(bytes))?;
        self.files.step(Step::Sync { file: target })?;
        self.files.close(target)?;
        self.files.rename(&cleaned, &name)
    }

    /// Deals with what stands behind the last valid batch.
    fn repair(
        &mut self,
        broken: &Broken<'_>,
        window: &mut Window,
        seen: &mut BTreeMap<Offset, Seen>,
    ) -> Result<Left, OpenError> {
        let Broken { base, limit, segment, walked, .. } = *broken;
        let (from, end) = (walked.end, Position(segment.log_bytes.0));
        if from == end {
            return Ok(Left::Batches);
        }
        // Batches behind the limit, or bytes behind which the next segment goes on: nothing is
        // lost.
        if walked.next == self.limit || broken.next_base == Some(walked.next) {
            return self.cut(base, from, window);
        }
        if let Some((first, last)) = self.goes_on(broken, window)? {
            // A former start was cut off between the two steps of a split.
            if broken.next_base == Some(first) {
                self.report.split.push(first);
                return self.cut(base, from, window);
            }
            if last < limit && relative(base, last).is_none() {
                self.report.split.push(first);
                return self.split(broken, window, from, first, seen);
            }
        }
        let search = Search { base, next: walked.next, limit, from };
        let behind = search.run(self.files, window)?;
        match (behind, broken.next_base) {
            (None, None) => match formats::unknown(self.files, window, from)? {
                Some(lost_to) if walked.next < lost_to => {
                    self.quarantine(broken, window, end, Some(lost_to))?;
                    self.files.truncate(window.file, ByteCount(from.0))?;
                    Ok(Left::Batches)
                }
                Some(_) | None => self.cut(base, from, window),
            },
            (None, Some(next_base)) => {
                self.quarantine(broken, window, end, Some(next_base))?;
                self.files.truncate(window.file, ByteCount(from.0))?;
                Ok(if from > Position(0) { Left::Batches } else { Left::Nothing })
            }
            (Some((to, _)), None) if self.is_unsynced(broken, window, to)? => {
                self.quarantine(broken, window, end, None)?;
                self.files.truncate(window.file, ByteCount(from.0))?;
                Ok(Left::Batches)
            }
            (Some((to, new_base)), _) => {
                self.quarantine(broken, window, to, Some(new_base))?;
                self.split(broken, window, to, new_base, seen)
            }
        }
    }

    /// First and last offset of what stands behind the walk, if that is a whole batch: its distance
    /// from the segment's base is one that no index entry can hold. Old cleaners wrote such
    /// segments, and Kafka splits them, too (`LogSegmentOffsetOverflowException`). Offsets aren't
    /// covered by checksums: what follows has to go on from there, or else this one is damaged.
    fn goes_on(
        &mut self,
        broken: &Broken<'_>,
        window: &mut Window,
    ) -> Result<Option<(Offset, Offset)>, OpenError> {
        let Walked { end: at, next, .. } = *broken.walked;
        let found = window.whole_batch(self.files, at)?.filter(|it| next <= it.0);
        let Some((first, last, behind)) = found else { return Ok(None) };
        let is_followed = match window.whole_batch(self.files, behind)? {
            Some((after, ..)) => last < after,
            None => behind == window.length && broken.next_base.is_some(),
        };
        Ok(is_followed.then_some((first, last)))
    }

    fn cut(
        &mut self,
        segment: Offset,
        at: Position,
        window: &mut Window,
    ) -> Result<Left, OpenError> {
        // What was preallocated and not written yet is no loss.
        let is_room = self.config.preallocate && window.is_empty_from(self.files, at)?;
        self.files.truncate(window.file, ByteCount(at.0))?;
        if is_room {
            return Ok(Left::Batches);
        }
        let bytes = window.length - at;
        self.report.truncated.push(Truncated { segment, at, bytes });
        Ok(Left::Batches)
    }

    /// In the device tier, what was acknowledged was synced, and a sync leaves no hole: behind one
    /// stands only what nobody was told of.
    fn is_unsynced(
        &mut self,
        broken: &Broken<'_>,
        window: &mut Window,
        to: Position,
    ) -> Result<bool, OpenError> {
        let Walked { end, next, .. } = *broken.walked;
        let is_possible = !self.clean
            && self.config.durability() == Durability::Device
            && next >= self.recovery_point;
        Ok(is_possible && has_empty_sector(self.files, window, end, to)?)
    }

    /// Copies the bytes from the last valid batch up to `to` to a file of their own. Without an
    /// offset behind them, they are what was never synced.
    fn quarantine(
        &mut self,
        broken: &Broken<'_>,
        window: &Window,
        to: Position,
        lost_to: Option<Offset>,
    ) -> Result<(), OpenError> {
        let Walked { end: at, next: lost_from, .. } = *broken.walked;
        let quarantine = quarantine_name(lost_from);
        if at < to {
            self.files.copy(window.file, at, to, &quarantine)?;
            self.files.sync_directory()?;
        }
        let was_unsynced = lost_to.is_none();
        let lost_to = lost_to.unwrap_or(lost_from);
        let (segment, bytes) = (broken.base, to - at);
        self.report.damages.push(Damage {
            segment,
            at,
            bytes,
            quarantine,
            lost_from,
            lost_to,
            was_unsynced,
        });
        Ok(())
    }

    /// Gives the valid batches behind the damage a segment of their own, then cuts them off here.
    /// A crash in between leaves both, and the next start sees the copy as the next segment.
    fn split(
        &mut self,
        broken: &Broken<'_>,
        window: &Window,
        from: Position,
        new_base: Offset,
        seen: &mut BTreeMap<Offset, Seen>,
    ) -> Result<Left, OpenError> {
        let file = SegmentFile::new(new_base, FileKind::Log);
        let cleaned = file.with(Suffix::Cleaned).to_string();
        self.files.copy(window.file, from, window.length, &cleaned)?;
        self.files.rename(&cleaned, &file.to_string())?;
        self.files.sync_directory()?;
        let (log_bytes, modified_ms) = (window.length - from, broken.segment.modified_ms);
        seen.insert(new_base, Seen { log_bytes, modified_ms, ..Seen::default() });
        if new_base == broken.base {
            // Garbage in front of the first batch: the copy has taken the segment's name.
            return Ok(Left::Replaced);
        }
        self.files.truncate(window.file, ByteCount(broken.walked.end.0))?;
        Ok(if broken.walked.end > Position(0) { Left::Batches } else { Left::Nothing })
    }

    fn remove_segment(&mut self, base: Offset, segment: Segment) -> Result<(), OpenError> {
        let kinds = [
            (FileKind::Index, segment.index_bytes.is_some()),
            (FileKind::TimeIndex, segment.time_index_bytes.is_some()),
            (FileKind::TxnIndex, segment.txn_index_bytes.is_some()),
            (FileKind::Snapshot, segment.has_snapshot),
            (FileKind::Log, true),
        ];
        for (kind, _) in kinds.into_iter().filter(|(_, is_present)| *is_present) {
            let name = SegmentFile::new(base, kind).to_string();
            self.files.remove(&name)?;
            self.report.removed.push(name);
        }
        self.files.sync_directory()
    }
}

type Segment = Seen;

/// Whether both indexes are there and no entry of them is cut.
fn has_whole_entries(segment: Segment) -> bool {
    let is_whole = |length: Option<ByteCount>, entry_bytes: usize| {
        length.is_some_and(|length| length.0.is_multiple_of(u64_of(entry_bytes)))
    };
    is_whole(segment.index_bytes, index::OFFSET_ENTRY_BYTES)
        && is_whole(segment.time_index_bytes, TIME_ENTRY_BYTES)
}

/// Whether an index lacks no more than what restarts explain, behind which bytes are counted anew:
/// a power cut may have left nothing of it.
fn has_most_of(existing: &IndexBytes, walked: &IndexBytes) -> bool {
    const RESTARTS: usize = 4;
    let entries = |index: &IndexBytes| index.offsets.len() / index::OFFSET_ENTRY_BYTES;
    let (existing, walked) = (entries(existing), entries(walked));
    walked <= (existing + RESTARTS).max(2 * existing)
}

fn quarantine_name(lost_from: Offset) -> String {
    format!("{:020}{QUARANTINE_SUFFIX}", lost_from.0)
}

/// What a repair leaves of a segment.
enum Left {
    Batches,
    Nothing,
    /// Other bytes under the same name, to be walked anew.
    Replaced,
}

/// A segment that was walked and stays.
struct Kept {
    found: Found,
    /// Offset after its last record.
    next: Offset,
    segment: Segment,
}

/// A walked segment with something behind its last valid batch.
struct Broken<'a> {
    base: Offset,
    next_base: Option<Offset>,
    limit: Offset,
    segment: Segment,
    walked: &'a Walked,
}

fn sealed(base: Offset, next_base: Offset, segment: Segment, found: &Found) -> SealedSegment {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("an index is that short");
    SealedSegment {
        base,
        next_base,
        size: found.size,
        largest: found.largest,
        first_timestamp: found.first_timestamp,
        modified_ms: segment.modified_ms,
        index_bytes: length(&found.index.offsets),
        time_index_bytes: length(&found.index.times),
        // Snapshots are looked at when all segments have been.
        extras: Extras { snapshot: false, txn_index: segment.txn_index_bytes.is_some() },
        log: None,
        unflushed: None,
        is_settled: true,
        is_log_durable: true,
        last_record: None,
        is_loading: false,
        loaded: None,
    }
}
