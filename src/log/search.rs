//! ListOffsets by timestamp: which range of which segment holds the answer.
//!
//! The log gives the range; whoever asks reads the batches in it and finds the record
//! (`LogSegment#findOffsetByTimestamp`).

use super::locate::{Located, ReadError};
use super::partition::PartitionLog;
use super::segment::{Largest, relative};
use crate::disk::{FileId, Plan};
use crate::format::index;
use crate::units::{Offset, Position, Timestamp};

/// Where the record with a timestamp is to be looked for.
#[expect(clippy::large_enum_variant, reason = "a load is rare, and its plan is handed on at once")]
#[derive(Debug, PartialEq)]
pub enum TimestampSearch {
    /// No record has such a timestamp.
    Nothing,
    /// Run this plan, complete it, search again.
    Load(Plan),
    /// A plan given before is loading the segment: complete that one, then search again.
    Loading,
    /// Read the batches of this range, in order.
    Scan(Scan),
}

/// A range of batches, and what to find in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scan {
    /// Base offset of the segment.
    pub segment: Offset,
    /// Its open `.log`.
    pub file: FileId,
    /// Start of the first batch to look at.
    pub from: Position,
    /// Readable end of the segment.
    pub to: Position,
    /// The answer is the first record from here on.
    pub offset_min: Offset,
    /// By timestamp: the first record at or above it. For the newest: the first batch whose max
    /// timestamp is exactly this, and in it the first record that has it.
    pub timestamp: Timestamp,
}

impl PartitionLog {
    /// Where to look for the first record, by offset, with a timestamp at or above `target`.
    ///
    /// # Errors
    /// [`ReadError::Offline`].
    pub fn timestamp_search(&mut self, target: Timestamp) -> Result<TimestampSearch, ReadError> {
        self.check_readable()?;
        let found = self.segments().position(|it| it.retention_timestamp() >= target);
        let Some(number) = found else { return Ok(TimestampSearch::Nothing) };
        Ok(self.scan(number, |offsets, times, base, log_start| {
            let floor = index::floor_by_timestamp(times, target.0);
            let offset = floor.map_or(base, |entry| entry.offset(base)).max(log_start);
            (floor_position(offsets, base, offset), target)
        }))
    }

    /// Where to look for the first record with the newest timestamp of what may be read: a newer
    /// one that isn't readable yet doesn't hide it.
    ///
    /// # Errors
    /// [`ReadError::Offline`].
    pub fn max_timestamp_search(&mut self) -> Result<TimestampSearch, ReadError> {
        self.check_readable()?;
        // The first segment with the newest one has the first record.
        let visible = self.visible_largest().enumerate();
        let newest = visible.reduce(
            |one, other| {
                if one.1.timestamp < other.1.timestamp { other } else { one }
            },
        );
        let Some((number, largest)) = newest else { return Ok(TimestampSearch::Nothing) };
        let newest = largest.timestamp;
        Ok(self.scan(number, |offsets, _, base, _| {
            (floor_position(offsets, base, largest.offset), newest)
        }))
    }

    /// The largest timestamps of the segments' readable parts, oldest segment first.
    fn visible_largest(&self) -> impl Iterator<Item = Largest> + '_ {
        let sealed = self.sealed.iter().map(|segment| (segment.base, segment.largest));
        let all = sealed.chain([(self.active.base, self.active.largest)]);
        let readable = self.readable;
        all.take_while(move |(base, _)| *base <= readable.segment).map(move |(base, largest)| {
            if base == readable.segment { readable.largest } else { largest }
        })
    }

    fn scan(
        &mut self,
        number: usize,
        find: impl Fn(&[u8], &[u8], Offset, Offset) -> (Position, Timestamp),
    ) -> TimestampSearch {
        let log_start = self.cursors.log_start;
        if number < self.sealed.len() {
            match self.ensure_loaded(number) {
                Some(Located::Load(plan)) => return TimestampSearch::Load(plan),
                Some(_) => return TimestampSearch::Loading,
                None => {}
            }
        }
        let (segment, file, size, (from, timestamp)) = match self.sealed.get(number) {
            Some(sealed) => {
                let (file, loaded) = sealed.readable().expect("it was just loaded");
                let found = find(&loaded.offsets, &loaded.times, sealed.base, log_start);
                (sealed.base, file, sealed.size, found)
            }
            None => {
                let (base, index) = (self.active.base, &self.active.index);
                let found = find(&index.offsets, &index.times, base, log_start);
                (base, self.active.files.log, self.active.size, found)
            }
        };
        let to = match segment.cmp(&self.readable.segment) {
            std::cmp::Ordering::Less => Position(size.0),
            std::cmp::Ordering::Equal => self.readable.at,
            std::cmp::Ordering::Greater => Position(0),
        };
        if from >= to {
            return TimestampSearch::Nothing;
        }
        TimestampSearch::Scan(Scan { segment, file, from, to, offset_min: log_start, timestamp })
    }
}

fn floor_position(offsets: &[u8], base: Offset, offset: Offset) -> Position {
    let relative = relative(base, offset).unwrap_or(u32::MAX);
    let entry = index::floor_by_offset(offsets, relative);
    entry.map_or(Position(0), |entry| Position(u64::from(entry.position)))
}
