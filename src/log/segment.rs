//! Segments: three files with one base offset. The last one of a log is active, the others are
//! sealed.
//!
//! An [`ActiveSegment`] runs ahead of its files: what was staged counts as present, and is kept as
//! pending bytes until a plan takes them. Sealing consumes it.

use bytes::{Bytes, BytesMut};

use super::config::LogConfig;
use super::producers::Ended;
use crate::disk::plan::Parts;
use crate::disk::{FileId, Place, Step};
use crate::format::batch::{BatchHeader, RecordBatch};
use crate::format::index::{OFFSET_ENTRY_BYTES, OffsetEntry, TIME_ENTRY_BYTES, TimeEntry};
use crate::format::names::{FileKind, SegmentFile};
use crate::units::{ByteCount, Offset, Position, Timestamp, byte_count, u64_of, usize_of};

/// The numbers under which the disk knows a segment's files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SegmentFiles {
    pub log: FileId,
    pub index: FileId,
    pub time_index: FileId,
}

/// Name of a segment's file in its directory.
pub(super) fn place(
    directory: &std::sync::Arc<std::path::Path>,
    base: Offset,
    kind: FileKind,
) -> Place {
    let name = SegmentFile::new(base, kind).to_string().into_boxed_str();
    Place { directory: directory.clone(), name }
}

/// The newest timestamp of a segment and the last offset of the batch that first had it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Largest {
    pub timestamp: Timestamp,
    pub offset: Offset,
}

impl Largest {
    /// Of a segment in which no record has a timestamp (`TimeIndex.lastEntry` of an empty one).
    pub fn none(base: Offset) -> Largest {
        Largest { timestamp: Timestamp::NONE, offset: base }
    }
}

/// Both sparse indexes of a segment, as their files hold them.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct IndexBytes {
    pub offsets: Vec<u8>,
    pub times: Vec<u8>,
}

impl IndexBytes {
    /// `OffsetIndex.append`.
    pub fn push_offset(&mut self, base: Offset, last_offset: Offset, at: Position) {
        let relative_offset = relative(base, last_offset).expect("checked before the append");
        let position = u32::try_from(at.0).expect("a segment is shorter than 2^31 bytes");
        self.offsets.extend_from_slice(&OffsetEntry { relative_offset, position }.encode());
    }

    /// `TimeIndex.maybeAppend`: only a timestamp above the last entry's is written.
    pub fn push_time(&mut self, base: Offset, largest: Largest) {
        if largest.timestamp <= self.last_time(base).timestamp {
            return;
        }
        let relative_offset = relative(base, largest.offset).expect("checked before the append");
        let entry = TimeEntry { timestamp: largest.timestamp.0, relative_offset };
        self.times.extend_from_slice(&entry.encode());
    }

    /// `TimeIndex.lastEntry`.
    pub fn last_time(&self, base: Offset) -> Largest {
        let Some(last) = self.times.last_chunk::<TIME_ENTRY_BYTES>() else {
            return Largest::none(base);
        };
        let entry = TimeEntry::decode(last);
        Largest { timestamp: Timestamp(entry.timestamp), offset: entry.offset(base) }
    }
}

/// Largest distance of an offset from its segment's base.
pub(super) const RELATIVE_OFFSET_MAX: u64 = (1 << 31) - 1;

/// Distance of an offset from its segment's base, if an index can hold it (31 bits).
pub(super) fn relative(base: Offset, offset: Offset) -> Option<u32> {
    let distance = offset.0.checked_sub(base.0)?;
    u32::try_from(distance).ok().filter(|distance| *distance <= i32::MAX.unsigned_abs())
}

/// Which of an active segment's files exist, or will by the next plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Presence {
    Absent,
    /// The next plan makes it.
    Wanted,
    Present,
}

/// The segment that appends go to.
#[derive(Debug)]
pub(super) struct ActiveSegment {
    pub base: Offset,
    pub files: SegmentFiles,
    /// Bytes of `.log`, staged ones included.
    pub size: ByteCount,
    pub index: IndexBytes,
    pub largest: Largest,
    /// Max timestamp of the first batch; rolling by time counts from it.
    pub first_timestamp: Option<Timestamp>,
    /// When the segment was made; rolling without timestamps counts from it.
    pub created: Timestamp,
    pub modified_ms: i64,
    pub jitter_ms: u64,
    /// `segment.index.bytes` when the segment was made.
    index_bytes_max: ByteCount,
    bytes_since_entry: u64,
    log: Presence,
    offset_index: Presence,
    time_index: Presence,
    /// Length of `.log` beyond its data (`preallocate`).
    preallocated: Option<ByteCount>,
    /// Files beside the three that are there, or will be when the segment before is sealed.
    pub extras: Extras,
    /// Producer state where the next segment begins, which sealing writes.
    pub end_snapshot: Option<EndSnapshot>,
    /// Entries of `.txnindex` that no plan has taken, and bytes of those that one has.
    aborted: Vec<u8>,
    aborted_written: u64,
    /// Number for the file while entries are written.
    pub aborted_file: Option<FileId>,
    pending: Parts,
    pending_at: Position,
    offsets_written: usize,
    times_written: usize,
}

/// What a new or reopened active segment begins with.
#[derive(Debug)]
pub(super) struct Beginning {
    pub base: Offset,
    pub files: SegmentFiles,
    pub now: Timestamp,
    pub jitter_ms: u64,
}

impl ActiveSegment {
    /// A segment whose `.log` the next plan makes. Kafka makes the indexes of a segment later than
    /// its `.log`, except for those of a new or reloaded log.
    pub fn new(beginning: Beginning, config: &LogConfig) -> ActiveSegment {
        let Beginning { base, files, now, jitter_ms } = beginning;
        ActiveSegment {
            base,
            files,
            size: ByteCount(0),
            index: IndexBytes::default(),
            largest: Largest::none(base),
            first_timestamp: None,
            created: now,
            modified_ms: now.0,
            jitter_ms,
            index_bytes_max: config.segment_index_bytes,
            bytes_since_entry: 0,
            log: Presence::Wanted,
            offset_index: Presence::Absent,
            time_index: Presence::Absent,
            preallocated: config.preallocate.then_some(config.segment_bytes),
            extras: Extras::default(),
            end_snapshot: None,
            aborted: Vec::new(),
            aborted_written: 0,
            aborted_file: None,
            pending: Parts::new(),
            pending_at: Position(0),
            offsets_written: 0,
            times_written: 0,
        }
    }

    /// A segment whose three files recovery has opened and sized. The byte counter of the index
    /// starts anew, as Kafka's does.
    pub fn reopened(beginning: Beginning, config: &LogConfig, found: Found) -> ActiveSegment {
        ActiveSegment {
            size: found.size,
            largest: found.largest,
            first_timestamp: found.first_timestamp,
            modified_ms: found.modified_ms,
            log: Presence::Present,
            offset_index: Presence::Present,
            time_index: Presence::Present,
            preallocated: None,
            extras: found.extras,
            aborted_written: found.aborted_bytes,
            pending_at: Position(found.size.0),
            offsets_written: found.index.offsets.len(),
            times_written: found.index.times.len(),
            index: found.index,
            ..ActiveSegment::new(beginning, config)
        }
    }

    /// Whether an append or a retention pass finds one of the indexes full. One time entry is kept
    /// free for sealing.
    pub fn is_index_full(&self) -> bool {
        let offsets = self.index.offsets.len() / OFFSET_ENTRY_BYTES;
        let times = self.index.times.len() / TIME_ENTRY_BYTES;
        offsets >= self.entries_max(OFFSET_ENTRY_BYTES)
            || times + 1 >= self.entries_max(TIME_ENTRY_BYTES)
    }

    /// Has the next plan make both index files, at full length: Kafka's roll check asks both.
    pub fn touch_indexes(&mut self) {
        if self.offset_index == Presence::Absent {
            self.offset_index = Presence::Wanted;
        }
        self.touch_time_index();
    }

    /// Has the next plan make the time index: Kafka asks it for the largest timestamp.
    pub fn touch_time_index(&mut self) {
        if self.time_index == Presence::Absent {
            self.time_index = Presence::Wanted;
        }
    }

    /// Takes a batch whose offsets are assigned: Kafka's `LogSegment#append`. The entry of a batch
    /// is its last offset and its own position, and is tested before the batch counts.
    pub fn stage(&mut self, batch: RecordBatch, interval: ByteCount, now: Timestamp) {
        let header = *batch.header();
        let last_offset = header.last_offset().expect("offsets were just assigned");
        // Kafka asks both indexes: one whether the offset fits, the other for the largest
        // timestamp.
        self.touch_indexes();
        let at = Position(self.size.0);
        self.index_batch(&header, last_offset, interval);
        self.first_timestamp.get_or_insert(header.max_timestamp);
        if self.pending.is_empty() {
            self.pending_at = at;
        }
        self.size += batch.size();
        self.modified_ms = now.0;
        self.pending.push(batch.freeze());
    }

    fn index_batch(&mut self, header: &BatchHeader, last_offset: Offset, interval: ByteCount) {
        if header.max_timestamp > self.largest.timestamp {
            self.largest = Largest { timestamp: header.max_timestamp, offset: last_offset };
        }
        if self.bytes_since_entry > interval.0 {
            self.index.push_offset(self.base, last_offset, Position(self.size.0));
            self.index.push_time(self.base, self.largest);
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += header.size.0;
    }

    /// Takes an aborted transaction whose marker is in this segment.
    pub fn stage_aborted(&mut self, ended: Ended) {
        self.aborted.extend_from_slice(&ended.entry().encode());
        self.extras.txn_index = true;
    }

    /// Whether aborted transactions wait for a plan, which needs a file number for them.
    pub fn has_aborted(&self) -> bool {
        !self.aborted.is_empty()
    }

    /// Whether a plan has anything to do for this segment.
    pub fn is_dirty(&self) -> bool {
        !self.pending.is_empty()
            || [self.log, self.offset_index, self.time_index].contains(&Presence::Wanted)
    }

    /// What no plan has taken yet: segment, position of the first batch, batches.
    pub fn staged(&self) -> Option<(Offset, Position, &Parts)> {
        (!self.pending.is_empty()).then_some((self.base, self.pending_at, &self.pending))
    }

    /// Whether a plan has made the `.log`.
    pub fn is_log_present(&self) -> bool {
        self.log == Presence::Present
    }

    /// Moves what is pending into steps, and says whether a name was made.
    pub fn take_steps(&mut self, out: &mut Planner<'_>) {
        self.log_steps(out);
        let (full_offsets, full_times) =
            (self.full_bytes(OFFSET_ENTRY_BYTES), self.full_bytes(TIME_ENTRY_BYTES));
        if self.offset_index == Presence::Wanted {
            self.offset_index = Presence::Present;
            out.create(self.files.index, self.base, FileKind::Index, Some(full_offsets));
        }
        if self.time_index == Presence::Wanted {
            self.time_index = Presence::Present;
            out.create(self.files.time_index, self.base, FileKind::TimeIndex, Some(full_times));
        }
        self.entry_steps(out);
        self.aborted_steps(out);
    }

    /// Ends the segment: the closing time entry, both indexes and a preallocated `.log` cut to what
    /// is in them. An index that doesn't exist yet is made at its final length.
    pub fn seal_steps(&mut self, out: &mut Planner<'_>) {
        self.index.push_time(self.base, self.largest);
        self.log_steps(out);
        let is_index_long = self.offset_index == Presence::Present;
        let is_time_index_long = self.time_index == Presence::Present;
        if !is_index_long {
            out.create(self.files.index, self.base, FileKind::Index, None);
        }
        if !is_time_index_long {
            out.create(self.files.time_index, self.base, FileKind::TimeIndex, None);
        }
        (self.offset_index, self.time_index) = (Presence::Present, Presence::Present);
        self.entry_steps(out);
        self.aborted_steps(out);
        if is_index_long {
            let length = byte_count(self.index.offsets.len());
            out.steps.push(Step::Truncate { file: self.files.index, length });
        }
        if is_time_index_long {
            let length = byte_count(self.index.times.len());
            out.steps.push(Step::Truncate { file: self.files.time_index, length });
        }
        if self.preallocated.take().is_some() {
            out.steps.push(Step::Truncate { file: self.files.log, length: self.size });
        }
        if let Some(EndSnapshot { file, at, bytes }) = self.end_snapshot.take() {
            let place = place(out.directory, at, FileKind::Snapshot);
            out.steps.extend(snapshot_steps(file, place, bytes));
        }
    }

    fn log_steps(&mut self, out: &mut Planner<'_>) {
        if self.log == Presence::Wanted {
            self.log = Presence::Present;
            out.create(self.files.log, self.base, FileKind::Log, self.preallocated);
            out.has_new_log = true;
        }
        if !self.pending.is_empty() {
            let parts = std::mem::replace(&mut self.pending, std::mem::take(out.spare));
            out.write(self.files.log, self.pending_at, parts);
        }
    }

    /// Adds to `.txnindex`, which isn't kept open: aborted transactions are rare.
    fn aborted_steps(&mut self, out: &mut Planner<'_>) {
        if self.aborted.is_empty() {
            return;
        }
        let file = self.aborted_file.take().expect("the planner gives a number");
        let place = place(out.directory, self.base, FileKind::TxnIndex);
        let at = Position(self.aborted_written);
        let bytes = Bytes::from(std::mem::take(&mut self.aborted));
        self.aborted_written += crate::units::u64_of(bytes.len());
        out.steps.extend([
            Step::Create { file, place },
            Step::Write { file, at, parts: Parts::from_iter([bytes]) },
            Step::Close { file },
        ]);
    }

    fn entry_steps(&mut self, out: &mut Planner<'_>) {
        let from = std::mem::replace(&mut self.offsets_written, self.index.offsets.len());
        out.entries(self.files.index, from, &self.index.offsets[from..]);
        let from = std::mem::replace(&mut self.times_written, self.index.times.len());
        out.entries(self.files.time_index, from, &self.index.times[from..]);
    }

    /// The files that a plan has opened, and those that none has.
    pub fn files_by_presence(&self) -> (Vec<FileId>, Vec<FileId>) {
        let files = [
            (self.files.log, self.log),
            (self.files.index, self.offset_index),
            (self.files.time_index, self.time_index),
        ];
        let (open, absent): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|(_, presence)| *presence == Presence::Present);
        let ids = |files: Vec<(FileId, Presence)>| files.into_iter().map(|(file, _)| file);
        (ids(open).collect(), ids(absent).collect())
    }

    /// Gives up what no plan has taken.
    pub fn discard_pending(&mut self) {
        self.pending.clear();
    }

    /// The sealed form, closing time entry included; the files follow with `seal_steps`.
    pub fn seal(&mut self, next_base: Offset) -> SealedSegment {
        self.index.push_time(self.base, self.largest);
        SealedSegment {
            base: self.base,
            next_base,
            size: self.size,
            largest: self.largest,
            first_timestamp: Some(self.first_timestamp.unwrap_or(Timestamp::NONE)),
            modified_ms: self.modified_ms,
            index_bytes: u32_of(self.index.offsets.len()),
            time_index_bytes: u32_of(self.index.times.len()),
            extras: self.extras,
            log: Some(self.files.log),
            unflushed: Some(self.files),
            is_settled: false,
            is_log_durable: false,
            last_record: None,
            is_loading: false,
            // Readers are often right behind the roll.
            loaded: Some(Box::new(Loaded {
                offsets: Bytes::copy_from_slice(&self.index.offsets),
                times: Bytes::copy_from_slice(&self.index.times),
            })),
        }
    }

    fn entries_max(&self, entry_bytes: usize) -> usize {
        usize_of(self.index_bytes_max.0) / entry_bytes
    }

    fn full_bytes(&self, entry_bytes: usize) -> ByteCount {
        byte_count(self.entries_max(entry_bytes) * entry_bytes)
    }

    /// Length that this segment's index files have while it is active.
    pub fn index_lengths(&self) -> (ByteCount, ByteCount) {
        (self.full_bytes(OFFSET_ENTRY_BYTES), self.full_bytes(TIME_ENTRY_BYTES))
    }
}

/// What recovery found in the segment that becomes active.
#[derive(Debug)]
pub(super) struct Found {
    pub size: ByteCount,
    pub index: IndexBytes,
    pub largest: Largest,
    pub first_timestamp: Option<Timestamp>,
    pub modified_ms: i64,
    pub extras: Extras,
    /// Length of `.txnindex`.
    pub aborted_bytes: u64,
}

/// Producer state that a roll writes: a `.snapshot` of the offset where the next segment begins.
#[derive(Debug)]
pub(super) struct EndSnapshot {
    pub file: FileId,
    pub at: Offset,
    pub bytes: Bytes,
}

/// Writes a `.snapshot` under its final name, as Kafka does: its checksum tells when it isn't
/// whole. Synced later, if at all.
pub(super) fn snapshot_steps(file: FileId, place: Place, bytes: Bytes) -> [Step; 4] {
    [
        Step::Create { file, place },
        // A crash may have left a longer one.
        Step::Truncate { file, length: ByteCount(0) },
        Step::Write { file, at: Position(0), parts: Parts::from_iter([bytes]) },
        Step::Close { file },
    ]
}

/// A segment that nothing is appended to any more. Below a kilobyte of memory while its indexes
/// are not loaded.
#[derive(Debug)]
pub(super) struct SealedSegment {
    pub base: Offset,
    pub next_base: Offset,
    pub size: ByteCount,
    pub largest: Largest,
    /// Of the first batch, -1 without one; `None` while nobody has read it.
    pub first_timestamp: Option<Timestamp>,
    pub modified_ms: i64,
    pub index_bytes: u32,
    pub time_index_bytes: u32,
    pub extras: Extras,
    /// The open `.log`, if it is.
    pub log: Option<FileId>,
    /// Files that the flush after the roll has still to sync and close.
    pub unflushed: Option<SegmentFiles>,
    /// Whether the plan that seals it is over.
    pub is_settled: bool,
    pub is_log_durable: bool,
    /// Newest record of the commit journal that may have data of it: a replay before that record
    /// is passed would write into the segment again.
    pub last_record: Option<u64>,
    /// Whether a plan that loads it is under way.
    pub is_loading: bool,
    pub loaded: Option<Box<Loaded>>,
}

const _: () = assert!(size_of::<SealedSegment>() < 512);

/// Files that a segment may have beside the three.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Extras {
    pub snapshot: bool,
    pub txn_index: bool,
}

/// Both indexes of a sealed segment, in memory until it is unloaded.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub offsets: Bytes,
    pub times: Bytes,
}

pub(super) fn u32_of(length: usize) -> u32 {
    u32::try_from(length).expect("an index is shorter than 2^31 bytes")
}

/// Collects the steps of one plan.
pub(super) struct Planner<'a> {
    pub directory: &'a std::sync::Arc<std::path::Path>,
    pub steps: crate::disk::plan::Steps,
    /// Index entries on their way out; refilled without allocating while plans come home.
    pub scratch: &'a mut BytesMut,
    /// A list of parts that has come home and can be filled again.
    pub spare: &'a mut Parts,
    /// Whether a `.log` is made, so that its directory must be synced before the ack.
    pub has_new_log: bool,
}

/// How many buffers one write takes (`IOV_MAX`).
const PARTS_PER_WRITE_MAX: usize = 1024;

impl Planner<'_> {
    pub fn create(
        &mut self,
        file: FileId,
        base: Offset,
        kind: FileKind,
        length: Option<ByteCount>,
    ) {
        self.steps.push(Step::Create { file, place: place(self.directory, base, kind) });
        if let Some(length) = length {
            self.steps.push(Step::Allocate { file, length });
        }
    }

    fn write(&mut self, file: FileId, at: Position, mut parts: Parts) {
        let mut at = at;
        while parts.len() > PARTS_PER_WRITE_MAX {
            let rest = parts.drain(PARTS_PER_WRITE_MAX..).collect();
            let head = std::mem::replace(&mut parts, rest);
            let bytes: usize = head.iter().map(Bytes::len).sum();
            self.steps.push(Step::Write { file, at, parts: head });
            at += byte_count(bytes);
        }
        self.steps.push(Step::Write { file, at, parts });
    }

    fn entries(&mut self, file: FileId, from: usize, entries: &[u8]) {
        if entries.is_empty() {
            return;
        }
        self.scratch.extend_from_slice(entries);
        let part = self.scratch.split().freeze();
        let at = Position(u64_of(from));
        self.steps.push(Step::Write { file, at, parts: Parts::from_iter([part]) });
    }
}
