//! Walks the batches of a `.log` from its base: headers always, checksums from a given position on.
//!
//! On the way both indexes are built anew by the rule of an append, and the existing ones are
//! checked: each of their entries must name the start and the last offset of a batch.

use bytes::BytesMut;

use super::files::Files;
use super::report::OpenError;
use crate::disk::FileId;
use crate::format::batch::{BatchHeader, Codec, HEADER_BYTES};
use crate::format::control;
use crate::format::index::{self, OffsetEntry, TimeEntry};
use crate::format::record::RecordsIter;
use crate::format::scan::{self, Scan};
use crate::log::epochs::LeaderEpochs;
use crate::log::producers::{Ended, Producers};
use crate::log::segment::{IndexBytes, Largest, relative};
use crate::units::{
    ByteCount, LeaderEpoch, Offset, Position, Timestamp, byte_count, u64_of, usize_of,
};

/// What one read brings in.
pub(super) const WINDOW_BYTES: u64 = 256 << 10;
/// What one read brings in while batches are so large that only their headers are wanted.
const HEADER_WINDOW_BYTES: u64 = 4 << 10;

/// The checksum covers everything behind itself: attributes onward.
const CHECKSUMMED_FROM: u64 = 21;

/// A `.log` that is open for reading.
pub(super) struct Window {
    pub file: FileId,
    pub length: Position,
    at: Position,
    bytes: BytesMut,
}

impl Window {
    pub fn new(file: FileId, length: ByteCount) -> Window {
        Window { file, length: Position(length.0), at: Position(0), bytes: BytesMut::new() }
    }

    /// Whether there are only zeros from `at` on.
    pub fn is_empty_from(
        &mut self,
        files: &mut Files<'_>,
        mut at: Position,
    ) -> Result<bool, OpenError> {
        while at < self.length {
            let bytes = self.get(files, at, WINDOW_BYTES, WINDOW_BYTES)?;
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += byte_count(bytes.len());
        }
        Ok(true)
    }

    /// At least `least` bytes from `at` on, unless the file ends before.
    pub fn get(
        &mut self,
        files: &mut Files<'_>,
        at: Position,
        least: u64,
        ahead: u64,
    ) -> Result<&[u8], OpenError> {
        let wanted = Position((at.0 + least).min(self.length.0));
        let have = self.at + byte_count(self.bytes.len());
        if at < self.at || wanted > have {
            let length = ahead.max(least).min(self.length.0.saturating_sub(at.0));
            let mut buffer = std::mem::take(&mut self.bytes);
            buffer.resize(usize_of(length), 0);
            self.at = at;
            self.bytes = if length == 0 { buffer } else { files.read(self.file, at, buffer)? };
        }
        Ok(&self.bytes[usize_of((at - self.at).0)..])
    }

    /// First and last offset of the whole batch at a position, and its end; `None` when none is
    /// there.
    pub fn whole_batch(
        &mut self,
        files: &mut Files<'_>,
        at: Position,
    ) -> Result<Option<(Offset, Offset, Position)>, OpenError> {
        let end = self.length;
        let bytes = self.get(files, at, u64_of(HEADER_BYTES), WINDOW_BYTES)?;
        let scan = scan::header_at(scan::Window { bytes, at }, at, end);
        let Scan::Batch { header, next, .. } = scan else { return Ok(None) };
        let is_whole = self.is_crc_right(files, at, &header)?;
        let offsets = header.base().zip(header.last_offset()).filter(|_| is_whole);
        Ok(offsets.map(|(first, last)| (first, last, next)))
    }

    /// Whether the batch's bytes have the CRC that its header says.
    pub fn is_crc_right(
        &mut self,
        files: &mut Files<'_>,
        at: Position,
        header: &BatchHeader,
    ) -> Result<bool, OpenError> {
        let (from, end) = (at + ByteCount(CHECKSUMMED_FROM), at + header.size);
        let mut crc = 0;
        self.each(files, from, end, |bytes| crc = crc32c::crc32c_append(crc, bytes))?;
        Ok(crc == header.crc)
    }

    /// Hands out the bytes of `[from, end)`, which lies within the file, piece by piece.
    pub fn each(
        &mut self,
        files: &mut Files<'_>,
        from: Position,
        end: Position,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), OpenError> {
        assert!(end <= self.length, "the range lies within the file");
        let mut from = from;
        while from < end {
            let bytes = self.get(files, from, 1, WINDOW_BYTES)?;
            let length = bytes.len().min(usize_of((end - from).0));
            take(&bytes[..length]);
            from += byte_count(length);
        }
        Ok(())
    }
}

/// What a walk needs to know beforehand.
pub(super) struct Walk<'a> {
    pub base: Offset,
    pub interval: ByteCount,
    /// Checksums are computed for batches that start here or behind.
    pub checked_from: Position,
    /// Batches that start at or after this offset are none of this walk's.
    pub limit: Offset,
    pub existing: &'a IndexBytes,
}

/// State that is rebuilt from the headers of the batches that are walked.
#[derive(Default)]
pub(super) struct Rebuilt {
    pub epochs: LeaderEpochs,
}

/// What a walk found.
#[derive(Debug)]
pub(super) struct Walked {
    /// End of the last valid batch.
    pub end: Position,
    /// Offset after its last record; the segment's base when there is none.
    pub next: Offset,
    /// Indexes by the rule of an append, without the closing time entry.
    pub index: IndexBytes,
    /// Whether every entry of the existing indexes belongs to a batch.
    pub is_existing_right: bool,
    pub largest: Largest,
    pub first_timestamp: Option<Timestamp>,
    pub batches: u64,
    pub checked: ByteCount,
}

impl Walk<'_> {
    /// Walks until the first bytes that are no valid batch.
    pub fn run(
        &self,
        files: &mut Files<'_>,
        window: &mut Window,
        rebuilt: &mut Rebuilt,
    ) -> Result<Walked, OpenError> {
        let mut state = State::new(self.base, self.existing);
        let mut ahead = WINDOW_BYTES;
        while let Some(header) = self.header_at(files, window, &state.walked, ahead)? {
            let at = state.walked.end;
            if at >= self.checked_from {
                if !window.is_crc_right(files, at, &header)? {
                    break;
                }
                state.walked.checked += header.size;
            } else {
                let is_large = header.size.0 > WINDOW_BYTES / 4;
                ahead = if is_large { HEADER_WINDOW_BYTES } else { WINDOW_BYTES };
            }
            state.take(&header, self.base, self.interval);
            rebuilt.take(&header);
        }
        Ok(state.finish())
    }

    fn header_at(
        &self,
        files: &mut Files<'_>,
        window: &mut Window,
        walked: &Walked,
        ahead: u64,
    ) -> Result<Option<BatchHeader>, OpenError> {
        let at = walked.end;
        let least = u64_of(HEADER_BYTES);
        let end = window.length;
        let bytes = window.get(files, at, least, ahead)?;
        match scan::header_at(scan::Window { bytes, at }, at, end) {
            Scan::Batch { header, .. } if self.fits(&header, walked.next) => Ok(Some(header)),
            Scan::Batch { .. } | Scan::End | Scan::Invalid(_) | Scan::NeedMore { .. } => Ok(None),
        }
    }

    /// Whether a header's offsets continue the segment.
    fn fits(&self, header: &BatchHeader, next: Offset) -> bool {
        let (Some(first), Some(last)) = (header.base(), header.last_offset()) else { return false };
        next <= first && last < self.limit && relative(self.base, last).is_some()
    }
}

/// Takes the producers of a segment in, whose batches are known to be whole.
pub(super) struct Replay<'a> {
    /// Batches that end before it are in the state already.
    pub from: Offset,
    /// When the producers count as last seen.
    pub now: Timestamp,
    pub producers: &'a mut Producers,
    /// Headers that were read.
    pub batches: u64,
    /// Batches from here on are none of the segment's.
    pub end: Offset,
    /// Transactions whose markers say that they were given up.
    pub aborted: Vec<Ended>,
}

impl Replay<'_> {
    /// Reads headers up to the first bytes that are none.
    pub fn run(&mut self, files: &mut Files<'_>, window: &mut Window) -> Result<(), OpenError> {
        let (mut at, end) = (Position(0), window.length);
        let mut ahead = WINDOW_BYTES;
        loop {
            let bytes = window.get(files, at, u64_of(HEADER_BYTES), ahead)?;
            let scan = scan::header_at(scan::Window { bytes, at }, at, end);
            let Scan::Batch { header, next, .. } = scan else { return Ok(()) };
            self.batches += 1;
            if header.base().is_none_or(|base| self.end <= base) {
                return Ok(());
            }
            // As Kafka reads from an offset: the batch that it lies in comes whole.
            if header.last_offset().is_some_and(|last| self.from <= last) {
                let marker = match header.is_control() {
                    true => marker_of(files, window, at, &header)?,
                    false => None,
                };
                let epoch = marker.map(|(_, epoch)| epoch);
                let ended = self.producers.update_with(&header, epoch, self.now);
                if let (Some(ended), Some((control::ABORT, _))) = (ended, marker) {
                    self.aborted.push(ended);
                }
            }
            let is_large = header.size.0 > WINDOW_BYTES / 4;
            ahead = if is_large { HEADER_WINDOW_BYTES } else { WINDOW_BYTES };
            at = next;
        }
    }
}

/// The type of the marker that a control batch holds, and its coordinator's epoch.
fn marker_of(
    files: &mut Files<'_>,
    window: &mut Window,
    at: Position,
    header: &BatchHeader,
) -> Result<Option<(i16, i32)>, OpenError> {
    if header.size.0 > WINDOW_BYTES || header.codec() != Ok(Codec::None) {
        return Ok(None);
    }
    let batch = window.get(files, at, header.size.0, WINDOW_BYTES)?;
    let payload = batch.get(HEADER_BYTES..usize_of(header.size.0)).unwrap_or_default();
    let Some(Ok(record)) = RecordsIter::new(header, payload).next() else { return Ok(None) };
    let marker = (control::kind(record.key), control::coordinator_epoch(record.value));
    Ok(if let (Ok(kind), Ok(epoch)) = marker { Some((kind, epoch)) } else { None })
}

impl Rebuilt {
    fn take(&mut self, header: &BatchHeader) {
        let latest = self.epochs.latest().map_or(LeaderEpoch::NONE, |it| it.epoch);
        if header.leader_epoch > latest {
            let base = header.base().expect("checked by the walk");
            self.epochs.assign(header.leader_epoch, base);
        }
    }
}

/// A walk under way.
struct State<'a> {
    walked: Walked,
    bytes_since_entry: u64,
    offsets: std::iter::Peekable<Box<dyn Iterator<Item = OffsetEntry> + 'a>>,
    times: std::iter::Peekable<Box<dyn Iterator<Item = TimeEntry> + 'a>>,
}

impl<'a> State<'a> {
    fn new(base: Offset, existing: &'a IndexBytes) -> State<'a> {
        let offsets: Box<dyn Iterator<Item = OffsetEntry>> =
            Box::new(index::offset_entries(&existing.offsets));
        let times: Box<dyn Iterator<Item = TimeEntry>> =
            Box::new(index::time_entries(&existing.times));
        State {
            walked: Walked {
                end: Position(0),
                next: base,
                index: IndexBytes::default(),
                is_existing_right: true,
                largest: Largest::none(base),
                first_timestamp: None,
                batches: 0,
                checked: ByteCount(0),
            },
            bytes_since_entry: 0,
            offsets: offsets.peekable(),
            times: times.peekable(),
        }
    }

    fn take(&mut self, header: &BatchHeader, base: Offset, interval: ByteCount) {
        let walked = &mut self.walked;
        let last = header.last_offset().expect("checked by the walk");
        if header.max_timestamp > walked.largest.timestamp {
            walked.largest = Largest { timestamp: header.max_timestamp, offset: last };
        }
        walked.first_timestamp.get_or_insert(header.max_timestamp);
        if self.bytes_since_entry > interval.0 {
            walked.index.push_offset(base, last, walked.end);
            walked.index.push_time(base, walked.largest);
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += header.size.0;
        self.check_existing(base, last);
        self.walked.end += header.size;
        self.walked.next = last + 1;
        self.walked.batches += 1;
    }

    fn check_existing(&mut self, base: Offset, last: Offset) {
        let at = self.walked.end;
        if let Some(entry) = self.offsets.next_if(|it| u64::from(it.position) <= at.0) {
            let is_it = u64::from(entry.position) == at.0 && entry.offset(base) == last;
            self.walked.is_existing_right &= is_it;
        }
        let largest = self.walked.largest;
        self.times.next_if(|entry| {
            Timestamp(entry.timestamp) == largest.timestamp && entry.offset(base) == largest.offset
        });
    }

    /// Entries that no batch has met are wrong.
    fn finish(mut self) -> Walked {
        let is_used_up = self.offsets.next().is_none() && self.times.next().is_none();
        self.walked.is_existing_right &= is_used_up;
        self.walked
    }
}
