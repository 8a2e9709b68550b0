//! Reading: from an offset to the byte range that a fetch may send. No I/O; what isn't in memory
//! yet is asked for with a plan.

use bytes::Bytes;

use super::complete::Completed;
use super::partition::{LogState, PartitionLog};
use super::segment::{Loaded, SealedSegment, place, relative};
use crate::disk::plan::Steps;
use crate::disk::{DiskError, FileId, Finished, Lane, Plan, Step};
use crate::format::index;
use crate::format::names::FileKind;
use crate::units::{ByteCount, Offset, Position, usize_of};
use bytes::BytesMut;

/// How many exact batch starts are remembered: the ends of the last plans and of the last fetches.
const NOTES_MAX: usize = 32;

/// Where an offset is to be read.
#[expect(clippy::large_enum_variant, reason = "a load is rare, and its plan is handed on at once")]
#[derive(Debug, PartialEq)]
pub enum Located {
    /// Nothing to read there yet.
    Empty,
    /// A range of a file.
    Slice(Slice),
    /// The segment's indexes must be loaded first: run the plan, complete it, locate again.
    Load(Plan),
    /// A plan given before is loading them, or replaces the segment by its cleaned form: complete
    /// that one, then locate again.
    Loading,
}

/// A readable range of one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Base offset of the segment.
    pub segment: Offset,
    /// Its open `.log`.
    pub file: FileId,
    /// Start of a batch: of the one with the offset, or of one before it.
    pub at: Position,
    /// Readable end of the segment, the end of a batch.
    pub end: Position,
    /// Whether `at` is the start of the very batch; otherwise scan from there.
    pub exact: bool,
    /// Where to locate when the scan finds no batch with the offset or a later one: the offsets up
    /// to the next segment are missing (compacted, or lost and reported by recovery).
    pub next_segment: Option<Offset>,
}

/// Why an offset can't be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    /// OFFSET_OUT_OF_RANGE (1).
    #[error("offset {offset} is out of range: the log has {log_start} to {log_end}")]
    OffsetOutOfRange {
        /// What was asked for.
        offset: Offset,
        /// First offset still readable.
        log_start: Offset,
        /// First offset not assigned.
        log_end: Offset,
    },
    /// KAFKA_STORAGE_ERROR (56).
    #[error("the partition is offline: {0}")]
    Offline(super::partition::Cause),
}

/// Where exactly a batch starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BatchStart {
    offset: Offset,
    /// Not the segment: cleaning gives one another file, with batches in other places.
    file: FileId,
    at: Position,
}

/// Exact batch starts, newest last.
#[derive(Debug, Default)]
pub(super) struct Notes {
    ring: Vec<BatchStart>,
    next: usize,
}

impl Notes {
    fn note(&mut self, start: BatchStart) {
        if self.ring.contains(&start) {
            return;
        }
        if self.ring.len() < NOTES_MAX {
            self.ring.push(start);
        } else {
            self.ring[self.next] = start;
        }
        self.next = (self.next + 1) % NOTES_MAX;
    }

    fn start_of(&self, offset: Offset, file: FileId) -> Option<Position> {
        let found = self.ring.iter().find(|it| it.offset == offset && it.file == file);
        found.map(|it| it.at)
    }

    fn floor(&self, file: FileId, limit: Position) -> Option<Position> {
        let starts = self.ring.iter().filter(|it| it.file == file && it.at <= limit);
        starts.map(|it| it.at).max()
    }
}

impl PartitionLog {
    /// Where to read from `offset` on.
    ///
    /// # Errors
    /// [`ReadError::OffsetOutOfRange`] before the log start and beyond the log end,
    /// [`ReadError::Offline`].
    pub fn locate(&mut self, offset: Offset) -> Result<Located, ReadError> {
        self.check_readable()?;
        let (log_start, log_end) = (self.cursors.log_start, self.cursors.next);
        if offset < log_start || offset > log_end {
            return Err(ReadError::OffsetOutOfRange { offset, log_start, log_end });
        }
        if offset >= self.cursors.high_watermark {
            return Ok(Located::Empty);
        }
        if offset >= self.active.base {
            return Ok(Located::Slice(self.locate_active(offset)));
        }
        let number = self.sealed_floor(offset).expect("the log start lies in a segment");
        // Cleaning may leave nothing of a segment.
        let rest = self.sealed.range(number..);
        let number = number + rest.take_while(|segment| segment.size == ByteCount(0)).count();
        match self.sealed.get(number).map(|segment| offset.max(segment.base)) {
            Some(offset) => Ok(self.locate_sealed(number, offset)),
            None if self.active.base < self.cursors.high_watermark => {
                Ok(Located::Slice(self.locate_active(self.active.base)))
            }
            None => Ok(Located::Empty),
        }
    }

    pub(super) fn check_readable(&self) -> Result<(), ReadError> {
        match self.state {
            LogState::Serving | LogState::ReadOnly(_) => Ok(()),
            LogState::Offline(cause) => Err(ReadError::Offline(cause)),
        }
    }

    /// The last sealed segment whose base is at or below the offset.
    pub(super) fn sealed_floor(&self, offset: Offset) -> Option<usize> {
        self.sealed.partition_point(|segment| segment.base <= offset).checked_sub(1)
    }

    fn locate_active(&self, offset: Offset) -> Slice {
        let (segment, file) = (self.active.base, self.active.files.log);
        let (at, exact) = self.start((segment, file), &self.active.index.offsets, offset);
        let end = self.readable_end(segment, Position(self.active.size.0));
        Slice { segment, file, at, end, exact, next_segment: None }
    }

    fn locate_sealed(&mut self, number: usize, offset: Offset) -> Located {
        if let Some(wait) = self.ensure_loaded(number) {
            return wait;
        }
        let segment = &self.sealed[number];
        let (file, loaded) = segment.readable().expect("it was just loaded");
        let (at, exact) = self.start((segment.base, file), &loaded.offsets, offset);
        let end = self.readable_end(segment.base, Position(segment.size.0));
        let next_segment = Some(segment.next_base);
        let segment = segment.base;
        Located::Slice(Slice { segment, file, at, end, exact, next_segment })
    }

    /// The start of the batch with the offset, if it is known, or of one before it.
    fn start(
        &self,
        (segment, file): (Offset, FileId),
        offsets: &[u8],
        offset: Offset,
    ) -> (Position, bool) {
        if let Some(at) = self.notes.start_of(offset, file) {
            return (at, true);
        }
        let relative = relative(segment, offset).unwrap_or(u32::MAX);
        match index::floor_by_offset(offsets, relative) {
            Some(entry) => (Position(u64::from(entry.position)), entry.relative_offset == relative),
            None => (Position(0), offset == segment),
        }
    }

    pub(super) fn readable_end(&self, segment: Offset, size: Position) -> Position {
        if segment == self.readable.segment { self.readable.at } else { size }
    }

    /// The last batch start of a slice's segment that is known to lie at or before `limit`, or
    /// `from` when none behind it is. `limit` itself is returned when it is the segment's readable
    /// end.
    pub fn align_end(&self, slice: &Slice, from: Position, limit: Position) -> Position {
        let segment = slice.segment;
        let (offsets, size, file) = if segment == self.active.base {
            let offsets = Some(self.active.index.offsets.as_slice());
            (offsets, self.active.size, Some(self.active.files.log))
        } else {
            let number = self.sealed_floor(segment);
            let Some(sealed) = number.map(|number| &self.sealed[number]) else { return from };
            let offsets = sealed.loaded.as_ref().map(|loaded| loaded.offsets.as_ref());
            (offsets, sealed.size, sealed.log)
        };
        // The slice is of the file from before a cleaning: what is known now is of another one.
        if file != Some(slice.file) {
            return if limit >= slice.end { slice.end } else { from };
        }
        let end = self.readable_end(segment, Position(size.0));
        if limit >= end {
            return end;
        }
        let position = u32::try_from(limit.0).unwrap_or(u32::MAX);
        let entry = offsets.and_then(|offsets| index::floor_by_position(offsets, position));
        let known = entry.map_or(Position(0), |entry| Position(u64::from(entry.position)));
        let noted = self.notes.floor(slice.file, limit).unwrap_or(Position(0));
        known.max(noted).max(from)
    }

    /// An offset that no record before `to` in a segment reaches: that of the first index entry
    /// from there on, or where the segment ends (`LocalLog#addAbortedTransactions`).
    pub fn offset_bound(&self, (segment, file): (Offset, FileId), to: Position) -> Offset {
        if self.open_log(segment) != Some(file) {
            // The file is from before a cleaning: too high a bound does no harm.
            return self.cursors.next;
        }
        let (offsets, end) = if segment == self.active.base {
            (Some(self.active.index.offsets.as_slice()), self.cursors.next)
        } else {
            match self.sealed_floor(segment).map(|number| &self.sealed[number]) {
                Some(sealed) => {
                    (sealed.loaded.as_ref().map(|it| it.offsets.as_ref()), sealed.next_base)
                }
                None => (None, self.cursors.next),
            }
        };
        let position = u32::try_from(to.0).unwrap_or(u32::MAX);
        let entry = offsets.and_then(|offsets| index::upper_position(offsets, position));
        entry.map_or(end, |entry| entry.offset(segment))
    }

    /// Remembers that the batch with `offset` starts exactly at `at`, for the fetch that follows.
    pub fn note(&mut self, offset: Offset, file: FileId, at: Position) {
        self.notes.note(BatchStart { offset, file, at });
    }

    /// The open `.log` of a segment.
    pub(super) fn open_log(&self, segment: Offset) -> Option<FileId> {
        if segment == self.active.base {
            return Some(self.active.files.log);
        }
        let number = self.sealed.binary_search_by_key(&segment, |it| it.base).ok()?;
        self.sealed[number].log
    }

    /// What to wait for before a sealed segment can be read: its `.log` opened, its indexes read
    /// whole. `None` when that is so already.
    pub(super) fn ensure_loaded(&mut self, number: usize) -> Option<Located> {
        let segment = &self.sealed[number];
        if segment.readable().is_some() {
            return None;
        }
        if segment.is_loading || self.is_swapping(segment.base) {
            return Some(Located::Loading);
        }
        let (base, log) = (segment.base, segment.log);
        let (offsets, times) = (segment.index_bytes, segment.time_index_bytes);
        let mut steps = Steps::new();
        if log.is_none() {
            let file = self.new_file();
            steps.push(Step::Open { file, place: place(&self.directory, base, FileKind::Log) });
        }
        self.load_index(&mut steps, base, FileKind::Index, offsets);
        self.load_index(&mut steps, base, FileKind::TimeIndex, times);
        if steps.is_empty() {
            self.sealed[number].loaded(None, Loaded::default());
            return None;
        }
        self.sealed[number].is_loading = true;
        Some(Located::Load(Plan { tag: self.tag(Lane::Read, base.0), steps }))
    }

    fn load_index(&mut self, steps: &mut Steps, base: Offset, kind: FileKind, length: u32) {
        if length == 0 {
            return;
        }
        let file = self.new_file();
        let bytes = BytesMut::zeroed(usize_of(u64::from(length)));
        steps.push(Step::Open { file, place: place(&self.directory, base, kind) });
        steps.push(Step::Read { file, at: Position(0), bytes });
        steps.push(Step::Close { file });
    }

    pub(super) fn complete_load(&mut self, finished: Finished) -> Completed {
        let Finished { plan, result } = finished;
        let base = Offset(plan.tag.number);
        let done = result.map_or_else(|failure| failure.step, |()| plan.steps.len());
        let number = self.sealed.binary_search_by_key(&base, |segment| segment.base);
        let (Ok(number), Ok(())) = (number, result) else {
            // It failed, or retention was faster: what it opened is of no use.
            self.housekeeping.close_later(opened(&plan.steps[..done]));
            let failure = result.err().zip(number.ok());
            return failure.map_or_else(Completed::default, |(failure, number)| {
                self.load_failed(number, &plan.steps[failure.step], failure.error)
            });
        };
        self.sealed[number].take_load(plan);
        Completed::default()
    }

    /// An index that is gone or short is left out from now on; everything else fails the read.
    fn load_failed(&mut self, number: usize, step: &Step, error: DiskError) -> Completed {
        let segment = &mut self.sealed[number];
        segment.is_loading = false;
        let is_log = |name: &str| name.ends_with(FileKind::Log.extension());
        let is_index = !matches!(step, Step::Open { place, .. } if is_log(&place.name));
        if is_index && matches!(error, DiskError::NotFound | DiskError::UnexpectedEnd) {
            (segment.index_bytes, segment.time_index_bytes) = (0, 0);
            return Completed::default();
        }
        Completed { load_failed: Some(error), ..Completed::default() }
    }

    /// Forgets a sealed segment's indexes and closes its `.log`. `None` when nothing is open, and
    /// while the segment isn't flushed yet or is being loaded.
    pub fn unload(&mut self, segment: Offset) -> Option<Plan> {
        let number = self.sealed.binary_search_by_key(&segment, |it| it.base).ok()?;
        let sealed = &mut self.sealed[number];
        if sealed.unflushed.is_some() || sealed.is_loading {
            return None;
        }
        sealed.loaded = None;
        let file = sealed.log.take()?;
        let steps = Steps::from_iter([Step::Close { file }]);
        Some(Plan { tag: self.tag(Lane::Read, u64::MAX), steps })
    }
}

impl SealedSegment {
    /// The open `.log` and the indexes, when both are there.
    pub(super) fn readable(&self) -> Option<(FileId, &Loaded)> {
        self.log.zip(self.loaded.as_deref())
    }

    fn loaded(&mut self, log: Option<FileId>, loaded: Loaded) {
        self.is_loading = false;
        self.log = self.log.or(log);
        self.loaded = Some(Box::new(loaded));
    }

    /// Takes the buffers of a load home. An index that isn't in order is left out: a scan from the
    /// segment's base finds every batch, only slower.
    fn take_load(&mut self, plan: Plan) {
        let mut steps = plan.steps.into_iter().peekable();
        let log = match steps.next_if(|_| self.log.is_none()) {
            Some(Step::Open { file, .. }) => Some(file),
            _ => None,
        };
        let mut reads = steps.filter_map(|step| match step {
            Step::Read { bytes, .. } => Some(bytes.freeze()),
            _ => None,
        });
        let offsets = if self.index_bytes > 0 { reads.next() } else { None };
        let times = if self.time_index_bytes > 0 { reads.next() } else { None };
        let offsets = offsets.unwrap_or_default();
        let offsets = offsets.slice(..index::offset_index_used(&offsets));
        let times = times.unwrap_or_default();
        let times = times.slice(..index::time_index_used(&times));
        let is_sound = |result: Result<(), index::IndexError>| result.is_ok();
        let loaded = Loaded {
            offsets: if is_sound(index::check_offset_index(&offsets)) {
                offsets
            } else {
                Bytes::new()
            },
            times: if is_sound(index::check_time_index(&times)) { times } else { Bytes::new() },
        };
        self.loaded(log, loaded);
    }
}

/// The files that these steps leave open.
pub(super) fn opened(steps: &[Step]) -> impl Iterator<Item = FileId> + '_ {
    steps.iter().filter_map(|step| match step {
        Step::Open { file, .. } => {
            let is_closed = steps.iter().any(|it| *it == Step::Close { file: *file });
            (!is_closed).then_some(*file)
        }
        _ => None,
    })
}
