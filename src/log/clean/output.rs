//! The segment that takes the place of a group: what is written to it, and its indexes.

use bytes::{Bytes, BytesMut};

use super::round::CleanError;
use crate::disk::plan::Parts;
use crate::disk::{FileId, Step};
use crate::format::batch::BatchHeader;
use crate::format::index::OFFSET_ENTRY_BYTES;
use crate::log::config::LogConfig;
use crate::log::producers::Ended;
use crate::log::segment::{IndexBytes, Largest, relative};
use crate::units::{ByteCount, Offset, Position, Timestamp, u64_of};

/// A `.log` may not be longer (Kafka's positions have 31 bits).
const LOG_BYTES_MAX: u64 = (1 << 31) - 1;

/// A segment under construction. Like an active one it runs ahead of its file.
#[derive(Debug)]
pub(in crate::log) struct Output {
    pub base: Offset,
    pub file: FileId,
    /// Bytes of its `.log`, those that no plan has taken included.
    pub size: ByteCount,
    pub index: IndexBytes,
    pub largest: Largest,
    /// Max timestamp of its first batch.
    pub first_timestamp: Option<Timestamp>,
    /// Aborted transactions whose markers stay.
    pub aborted: Vec<Ended>,
    bytes_since_entry: u64,
    pending: BytesMut,
}

impl Output {
    pub fn new(base: Offset, file: FileId) -> Output {
        Output {
            base,
            file,
            size: ByteCount(0),
            index: IndexBytes::default(),
            largest: Largest::none(base),
            first_timestamp: None,
            aborted: Vec::new(),
            bytes_since_entry: 0,
            pending: BytesMut::new(),
        }
    }

    /// Takes a batch, by the rule of every append (`LogSegment#append`).
    ///
    /// # Errors
    /// [`CleanError::TooFar`], [`CleanError::TooLong`]: the group can't be one segment.
    pub fn take(&mut self, bytes: &[u8], config: &LogConfig) -> Result<(), CleanError> {
        let header = BatchHeader::decode(bytes).map_err(|error| self.damaged(error.into()))?;
        let last = header.last_offset().filter(|last| relative(self.base, *last).is_some());
        let last = last.ok_or(CleanError::TooFar { segment: self.base })?;
        if LOG_BYTES_MAX < self.size.0 + header.size.0 {
            return Err(CleanError::TooLong { segment: self.base });
        }
        if self.largest.timestamp < header.max_timestamp {
            self.largest = Largest { timestamp: header.max_timestamp, offset: last };
        }
        if self.bytes_since_entry > config.index_interval_bytes.0 && self.has_room(config) {
            self.index.push_offset(self.base, last, Position(self.size.0));
            self.index.push_time(self.base, self.largest);
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += header.size.0;
        self.first_timestamp.get_or_insert(header.max_timestamp);
        self.size += header.size;
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    /// Whether the offset index takes another entry: the interval may have become smaller since the
    /// sources were written. A sparser index is as right.
    fn has_room(&self, config: &LogConfig) -> bool {
        let longer = u64_of(self.index.offsets.len() + OFFSET_ENTRY_BYTES);
        longer <= config.segment_index_bytes.0
    }

    fn damaged(&self, error: super::FilterError) -> CleanError {
        CleanError::Damaged { segment: self.base, at: Position(self.size.0), error }
    }

    /// The write of what was taken since the last one.
    pub fn write_step(&mut self) -> Option<Step> {
        if self.pending.is_empty() {
            return None;
        }
        let bytes = Bytes::from(std::mem::take(&mut self.pending));
        let at = Position(self.size.0 - u64_of(bytes.len()));
        Some(Step::Write { file: self.file, at, parts: Parts::from_iter([bytes]) })
    }

    /// Ends it: the closing time entry.
    pub fn close(&mut self) {
        self.index.push_time(self.base, self.largest);
    }
}
