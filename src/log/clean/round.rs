//! One round over a log: where it stands, and what it makes of the bytes that were read.

use std::collections::VecDeque;

use super::filter::{Filter, FilterError, Kept, LastOfProducers, Seen};
use super::map::OffsetMap;
use super::output::Output;
use super::transactions::CleanedTransactions;
use crate::disk::{DiskError, FileId, Step};
use crate::format::batch::{self, BatchHeader, HEADER_BYTES};
use crate::format::codec;
use crate::format::record::RecordsIter;
use crate::log::config::LogConfig;
use crate::units::{ByteCount, Offset, Position, Timestamp, u64_of, usize_of};

/// How much is unpacked between two turns: packed batches may be a hundred times as large as what
/// is read.
const UNPACKED_BYTES_MAX: u64 = 4 << 20;

/// Longest pause that a limit of the rate makes; a longer one comes of a clock that was set back.
const PAUSE_MS_MAX: i64 = 60_000;

/// How far a round may run ahead of its limit of the rate: a shard looks for slices that are due
/// this often, and one slice a look would be all that it gets.
const AHEAD_MS: i64 = 200;

/// What a round works with.
#[derive(Debug)]
pub struct RoundOptions {
    /// An empty map.
    pub map: OffsetMap,
    /// How much is read at a time; a longer batch is read whole.
    pub slice_bytes: ByteCount,
    /// Bytes read and written per second (`log.cleaner.io.max.bytes.per.second`).
    pub bytes_per_second: Option<u64>,
}

/// Why a log can't be cleaned.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CleanError {
    /// A file could not be read or written. Those of the log are as they were.
    #[error("{0}")]
    Disk(DiskError),
    /// The cleaned batches' offsets don't fit one segment.
    #[error("offsets of segment {segment} are more than 2^31 apart")]
    TooFar {
        /// Its base offset.
        segment: Offset,
    },
    /// The cleaned batches are too long for one segment.
    #[error("segment {segment} would be longer than 2^31 bytes")]
    TooLong {
        /// Its base offset.
        segment: Offset,
    },
    /// A batch is damaged; what is good is not to be copied around it.
    #[error("segment {segment} is damaged at {at}: {error}")]
    Damaged {
        /// Base offset of the segment.
        segment: Offset,
        /// Where in its `.log`.
        at: Position,
        /// What is wrong there.
        error: FilterError,
    },
}

impl CleanError {
    /// Whether the next round may well succeed.
    pub fn is_passing(&self) -> bool {
        match self {
            CleanError::Disk(error) => matches!(
                error,
                DiskError::NoSpace | DiskError::TooManyFiles(_) | DiskError::Transient(_)
            ),
            CleanError::TooFar { .. } | CleanError::TooLong { .. } | CleanError::Damaged { .. } => {
                false
            }
        }
    }
}

/// How a round ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RoundEnd {
    /// It came to its end.
    Done,
    /// The log went out of service or got other settings; what is written is gone again.
    Aborted,
    /// The log can't be cleaned.
    Failed(CleanError),
}

/// What a round has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoundReport {
    /// First offset that was dirty before.
    pub from: Offset,
    /// First offset that is dirty now.
    pub to: Offset,
    /// How it ended.
    pub end: RoundEnd,
    /// What the second pass saw and kept.
    pub seen: Seen,
    /// Bytes read for the map.
    pub mapped: u64,
    /// Bytes read by the second pass.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// How many thousandths of the map were used.
    pub map_thousandths: u64,
}

/// A segment that is read.
#[derive(Clone, Copy, Debug)]
pub(in crate::log) struct Source {
    pub base: Offset,
    pub next_base: Offset,
    pub size: ByteCount,
    pub modified_ms: i64,
}

/// How far a segment is read.
#[derive(Debug)]
pub(in crate::log) struct Reading {
    pub source: Source,
    pub file: Option<FileId>,
    pub at: Position,
    /// What a batch needs that is longer than a slice.
    wanted: u64,
}

/// What a round is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::log) enum Phase {
    /// Notes where the newest record of each key is.
    Map,
    /// Writes what stays of a group.
    Copy,
    /// Gives a group's new segment the old ones' place.
    Swap,
}

/// A round under way.
#[derive(Debug)]
pub(in crate::log) struct Round {
    pub map: OffsetMap,
    pub slice_bytes: ByteCount,
    bytes_per_second: Option<u64>,
    /// When it began: horizons count from here (`Cleaner#doClean`).
    began: Timestamp,
    pub from: Offset,
    /// First offset that it may not clean.
    pub upper: Offset,
    pub phase: Phase,
    /// Still to be read by this pass.
    pub queue: VecDeque<Source>,
    pub reading: Option<Reading>,
    /// Still to be written.
    pub groups: VecDeque<Vec<Source>>,
    /// The one that is written.
    pub group: Vec<Source>,
    pub output: Option<Output>,
    pub transactions: CleanedTransactions,
    /// Files that it has open.
    pub open: Vec<FileId>,
    pub end: Option<RoundEnd>,
    /// While names change: nobody may open these segments.
    pub is_swapping: bool,
    not_before: Option<Timestamp>,
    /// Thousandths of bytes that no whole millisecond was waited for.
    owed: u64,
    report: RoundReport,
}

impl Round {
    /// A round over `[from, upper)`, whose first pass reads these segments.
    pub fn new(
        options: RoundOptions,
        (from, upper): (Offset, Offset),
        dirty: VecDeque<Source>,
        now: Timestamp,
    ) -> Round {
        let RoundOptions { map, slice_bytes, bytes_per_second } = options;
        let report = RoundReport {
            from,
            to: from,
            end: RoundEnd::Aborted,
            seen: Seen::default(),
            mapped: 0,
            read: 0,
            written: 0,
            map_thousandths: 0,
        };
        Round {
            map,
            slice_bytes,
            bytes_per_second,
            began: now,
            from,
            upper,
            phase: Phase::Map,
            queue: dirty,
            reading: None,
            groups: VecDeque::new(),
            group: Vec::new(),
            output: None,
            transactions: CleanedTransactions::default(),
            open: Vec::new(),
            end: None,
            is_swapping: false,
            not_before: None,
            owed: 0,
            report,
        }
    }

    /// Where it has come: the first offset that is dirty when it ends.
    pub fn to(&self) -> Offset {
        self.map.latest().map_or(self.from, |latest| latest + 1).max(self.from)
    }

    /// Ends it at the next opportunity, unless it ends anyway.
    pub fn give_up(&mut self, end: RoundEnd) {
        self.end.get_or_insert(end);
    }

    /// Whether names of this segment's files change.
    pub fn is_swapping(&self, base: Offset) -> bool {
        self.is_swapping && self.group.iter().any(|source| source.base == base)
    }

    /// When it wants to go on; a time in the past means now.
    pub fn due(&self) -> Timestamp {
        match self.end {
            None => self.not_before.map_or(Timestamp(0), |it| Timestamp(it.0 - AHEAD_MS)),
            Some(_) => Timestamp(0),
        }
    }

    /// Whether a limit of the rate holds it up.
    pub fn is_paused(&self, now: Timestamp) -> bool {
        let due = self.due();
        now < due && due.0 - now.0 <= PAUSE_MS_MAX
    }

    /// Counts bytes that were read or written against the rate.
    fn spend(&mut self, bytes: u64, now: Timestamp) {
        let Some(rate) = self.bytes_per_second else { return };
        let owed = bytes.saturating_mul(1_000).saturating_add(self.owed);
        self.owed = owed % rate.max(1);
        let wait_ms = i64::try_from(owed / rate.max(1)).unwrap_or(i64::MAX);
        let from = self.not_before.map_or(now, |it| it.max(now));
        let until = from.0.saturating_add(wait_ms.min(PAUSE_MS_MAX));
        self.not_before = Some(Timestamp(until.min(now.0.saturating_add(PAUSE_MS_MAX))));
    }

    /// Notes which files a plan's steps have left open.
    pub fn note_files(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Create { file, .. } | Step::Open { file, .. } => self.open.push(*file),
                Step::Close { file } => self.open.retain(|open| open != file),
                _ => {}
            }
        }
    }

    /// Begins with the next segment of this pass; `false` when there is none.
    pub fn next_source(&mut self) -> bool {
        let next = self.queue.pop_front();
        self.reading =
            next.map(|source| Reading { source, file: None, at: Position(0), wanted: 0 });
        self.reading.is_some()
    }

    /// The bytes to be read next, if the present segment has more.
    pub fn wanted(&self) -> Option<(Position, u64)> {
        let reading = self.reading.as_ref()?;
        let left = reading.source.size.0 - reading.at.0;
        let length = self.slice_bytes.0.max(reading.wanted).min(left);
        (0 < length).then_some((reading.at, length))
    }

    /// Takes in what was read.
    ///
    /// # Errors
    /// [`CleanError`].
    pub fn take(&mut self, bytes: &[u8], with: &With<'_>) -> Result<(), CleanError> {
        let before = self.report.written;
        let taken = match self.phase {
            Phase::Map => self.map_slice(bytes, with),
            Phase::Copy => self.copy_slice(bytes, with),
            Phase::Swap => unreachable!("nothing is read while names change"),
        }?;
        let reading = self.reading.as_mut().expect("it is being read");
        reading.at += ByteCount(taken.bytes);
        reading.wanted = taken.wanted;
        match self.phase {
            Phase::Map => self.report.mapped += taken.bytes,
            Phase::Copy | Phase::Swap => self.report.read += taken.bytes,
        }
        self.spend(u64_of(bytes.len()) + self.report.written - before, with.now);
        Ok(())
    }

    fn map_slice(&mut self, bytes: &[u8], with: &With<'_>) -> Result<Taken, CleanError> {
        let mut batches = Batches::new(bytes, self.reading.as_ref().expect("it is being read"));
        let mut unpacked = 0;
        while unpacked < UNPACKED_BYTES_MAX
            && let Some((header, bytes)) = batches.next()?
        {
            let noted = self.note_batch(&header, bytes, with);
            let noted = noted.map_err(|error| batches.damaged(error))?;
            let Some(length) = noted else {
                // The map is full: what comes is for the next round.
                self.queue.clear();
                return Ok(Taken { bytes: batches.left(), wanted: 0 });
            };
            unpacked += length;
        }
        let taken = batches.taken();
        let reading = self.reading.as_ref().expect("it is being read");
        if reading.at.0 + taken.bytes == reading.source.size.0 {
            // Offsets may be missing at its end.
            self.map.advance(Offset(reading.source.next_base.0 - 1));
        }
        Ok(taken)
    }

    /// Notes the keys of a batch; `None` when the map is full, else the length of its records
    /// (`Cleaner#buildOffsetMapForSegment`).
    fn note_batch(
        &mut self,
        header: &BatchHeader,
        bytes: &[u8],
        with: &With<'_>,
    ) -> Result<Option<u64>, FilterError> {
        let last = header.last_offset().ok_or(FilterError::Offsets)?;
        let base = header.base().ok_or(FilterError::Offsets)?;
        let packed = bytes.get(HEADER_BYTES..).unwrap_or_default();
        let max = with.config.decompressed_bytes_max;
        let is_left_out = !header.is_control()
            && self.transactions.data(header.producer_id, last, header.is_transactional());
        if is_left_out || (!header.is_control() && last < self.from) {
            // Nothing of it is noted, so it need not be unpacked.
            if self.from <= last {
                self.map.advance(last);
            }
            return Ok(Some(0));
        }
        let payload = codec::decompress(header.codec()?, packed, max)?;
        if header.is_control() {
            // Whether it could go matters to the second pass only.
            let _ = self.transactions.control(header, &payload, last)?;
        } else {
            for record in RecordsIter::new(header, &payload) {
                let record = record?;
                let delta = u64::try_from(record.offset_delta).map_err(|_| FilterError::Offsets)?;
                let offset = base + delta;
                let Some(key) = record.key.filter(|_| self.from <= offset) else { continue };
                // Kafka asks before it looks whether it knows the key.
                if self.map.is_full() || !self.map.put(key, offset) {
                    return Ok(None);
                }
            }
        }
        if self.from <= last {
            self.map.advance(last);
        }
        Ok(Some(u64_of(payload.len())))
    }

    fn copy_slice(&mut self, bytes: &[u8], with: &With<'_>) -> Result<Taken, CleanError> {
        let mut batches = Batches::new(bytes, self.reading.as_ref().expect("it is being read"));
        let output = self.output.as_mut().expect("a group is written");
        let before = output.size;
        let mut filter = Filter {
            map: &self.map,
            producers: with.producers,
            upper: self.upper,
            now: self.began,
            delete_retention_ms: with.config.delete_retention_ms,
            unpacked_max: with.config.decompressed_bytes_max,
            transactions: std::mem::take(&mut self.transactions),
            aborted: std::mem::take(&mut output.aborted),
            seen: Seen::default(),
        };
        while filter.seen.unpacked < UNPACKED_BYTES_MAX
            && let Some((header, bytes)) = batches.next()?
        {
            let kept = filter.next(&header, bytes).map_err(|error| batches.damaged(error))?;
            match kept {
                Kept::Whole => output.take(bytes, with.config)?,
                Kept::Rewritten(bytes) => output.take(&bytes, with.config)?,
                Kept::Nothing => {}
            }
        }
        let Filter { transactions, aborted, seen, .. } = filter;
        (self.transactions, output.aborted) = (transactions, aborted);
        self.report.seen.add(seen);
        self.report.written += (output.size.0) - before.0;
        Ok(batches.taken())
    }

    /// What came of it.
    pub fn report(&self) -> RoundReport {
        let end = self.end.clone().unwrap_or(RoundEnd::Done);
        let to = if end == RoundEnd::Done { self.to() } else { self.from };
        let map_thousandths = self.map.used_thousandths();
        RoundReport { to, end, map_thousandths, ..self.report.clone() }
    }
}

/// What a round asks of its log.
pub(in crate::log) struct With<'a> {
    pub config: &'a LogConfig,
    pub producers: &'a dyn LastOfProducers,
    pub now: Timestamp,
}

/// How much of a slice was taken, and how much more than a slice the next batch needs.
struct Taken {
    bytes: u64,
    wanted: u64,
}

/// The batches of a slice.
struct Batches<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the last one began.
    last_at: usize,
    wanted: u64,
    segment: Offset,
    position: Position,
    /// Bytes from the slice's begin to the segment's end.
    left: u64,
}

impl<'a> Batches<'a> {
    fn new(bytes: &'a [u8], reading: &Reading) -> Batches<'a> {
        let Reading { source, at, .. } = reading;
        Batches {
            bytes,
            at: 0,
            last_at: 0,
            wanted: 0,
            segment: source.base,
            position: *at,
            left: source.size.0 - at.0,
        }
    }

    /// The next whole batch, its checksum verified: damage must not get a new, right one.
    fn next(&mut self) -> Result<Option<(BatchHeader, &'a [u8])>, CleanError> {
        let rest = &self.bytes[self.at..];
        self.last_at = self.at;
        let left = self.left - u64_of(self.at);
        if left == 0 {
            return Ok(None);
        }
        if rest.len() < HEADER_BYTES && u64_of(rest.len()) < left {
            self.wanted = u64_of(HEADER_BYTES);
            return Ok(None);
        }
        let header = BatchHeader::decode(rest).map_err(|error| self.damaged(error.into()))?;
        if left < header.size.0 {
            return Err(self.damaged(FilterError::Torn));
        }
        let size = usize_of(header.size.0);
        let Some(batch) = rest.get(..size) else {
            self.wanted = header.size.0;
            return Ok(None);
        };
        batch::check_crc(&header, batch).map_err(|error| self.damaged(error.into()))?;
        self.at += size;
        Ok(Some((header, batch)))
    }

    fn damaged(&self, error: FilterError) -> CleanError {
        let at = self.position + ByteCount(u64_of(self.last_at));
        CleanError::Damaged { segment: self.segment, at, error }
    }

    fn taken(&self) -> Taken {
        Taken { bytes: u64_of(self.at), wanted: self.wanted }
    }

    fn left(&self) -> u64 {
        self.left
    }
}
