//! The segments of a partition as far as an explanation needs them: names, lengths, indexes, and
//! the batches at both ends.

use std::fs;
use std::path::{Path, PathBuf};

use super::ExplainError;
use crate::cli::dump;
use crate::cli::log_file::{Found, LogFile, LogFileError, read_whole};
use crate::format::batch::MAGIC_V2;
use crate::format::index::{self, OffsetEntry, TimeEntry};
use crate::format::names::{FileKind, SegmentFile, Suffix};
use crate::log::retention::SegmentInfo;
use crate::units::{ByteCount, Offset, Timestamp, u64_of};

/// A batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    pub at: u64,
    pub size: u64,
    pub first: i64,
    pub last: i64,
    /// Of its first record, as far as the header says it.
    pub first_timestamp: i64,
    pub max_timestamp: i64,
}

/// A segment.
#[derive(Debug)]
pub struct Segment {
    pub base: i64,
    pub path: PathBuf,
    /// Bytes of whole batches; of a sealed segment all there are.
    used: u64,
    pub offsets: Vec<OffsetEntry>,
    pub times: Vec<TimeEntry>,
    /// The first batch and the last one.
    pub first: Option<Batch>,
    pub last: Option<Batch>,
    pub largest_timestamp: i64,
    /// Last offset of the batch that has it.
    pub largest_at: i64,
    modified_ms: i64,
}

impl Segment {
    pub fn bytes(&self) -> u64 {
        self.used
    }

    /// The offset behind its last record.
    pub fn end(&self) -> i64 {
        self.last.map_or(self.base, |batch| batch.last + 1)
    }

    pub fn info(&self, next_base: i64) -> SegmentInfo {
        let offset = |it: i64| Offset::from_wire(it).unwrap_or_default();
        SegmentInfo {
            base: offset(self.base),
            size: ByteCount(self.used),
            largest_timestamp: Timestamp(self.largest_timestamp),
            modified_ms: self.modified_ms,
            next_base: offset(next_base),
        }
    }

    /// The last index entry at or below an offset.
    pub fn floor(&self, offset: i64) -> Option<(usize, OffsetEntry)> {
        let is_below = |it: &OffsetEntry| self.base + i64::from(it.relative_offset) <= offset;
        let number = self.offsets.partition_point(is_below).checked_sub(1)?;
        Some((number, self.offsets[number]))
    }
}

/// All segments of a folder, oldest first.
///
/// # Errors
/// [`ExplainError::Read`], [`ExplainError::File`].
pub fn read(folder: &Path) -> Result<Vec<Segment>, ExplainError> {
    let unreadable = |error| ExplainError::Read { path: folder.to_owned(), error };
    let mut logs = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        if let Some(SegmentFile { base, kind: FileKind::Log, suffix: Suffix::None }) =
            SegmentFile::parse(name)
        {
            logs.push((base.to_wire(), path));
        }
    }
    logs.sort();
    logs.into_iter().map(|(base, path)| Ok(segment(base, path)?)).collect()
}

fn segment(base: i64, path: PathBuf) -> Result<Segment, LogFileError> {
    let mut log = LogFile::open(&path)?;
    let modified = fs::metadata(&path).and_then(|it| it.modified()).ok();
    let since = modified.and_then(|it| it.duration_since(std::time::UNIX_EPOCH).ok());
    let offsets = read_whole(&path.with_extension("index")).unwrap_or_default();
    let times = read_whole(&path.with_extension("timeindex")).unwrap_or_default();
    let mut segment = Segment {
        base,
        used: 0,
        offsets: index::offset_entries(&offsets[..index::offset_index_used(&offsets)]).collect(),
        times: index::time_entries(&times[..index::time_index_used(&times)]).collect(),
        first: batch(&mut log, 0)?,
        last: None,
        largest_timestamp: -1,
        largest_at: base,
        modified_ms: since.map_or(0, |it| i64::try_from(it.as_millis()).unwrap_or(i64::MAX)),
        path,
    };
    if let Some(entry) = segment.times.last() {
        segment.largest_timestamp = entry.timestamp;
        segment.largest_at = base + i64::from(entry.relative_offset);
    }
    let mut at = segment.offsets.last().map_or(0, |it| u64::from(it.position));
    if log.length() < at || batch(&mut log, at)?.is_none() {
        at = 0;
    }
    while let Some(found) = batch(&mut log, at)? {
        if segment.largest_timestamp < found.max_timestamp {
            (segment.largest_timestamp, segment.largest_at) = (found.max_timestamp, found.last);
        }
        segment.last = Some(found);
        at = found.at + found.size;
    }
    segment.used = at;
    Ok(segment)
}

/// The batch at a position, if a whole one is there.
///
/// # Errors
/// [`LogFileError::Read`].
pub fn batch(log: &mut LogFile, at: u64) -> Result<Option<Batch>, LogFileError> {
    let found = match log.batch(at, log.length()) {
        Ok(found) => found,
        Err(LogFileError::Corrupt { .. }) => None,
        Err(error) => return Err(error),
    };
    let Some(found @ Found { size, magic, offset, .. }) = found else { return Ok(None) };
    if magic < MAGIC_V2 {
        let old = dump::old_batch(log, found)?;
        let (first, last, max_timestamp) = (old.first_offset, old.last_offset, old.max_timestamp);
        let first_timestamp = max_timestamp;
        return Ok(Some(Batch { at, size, first, last, first_timestamp, max_timestamp }));
    }
    match log.header(found) {
        Ok((header, _)) => Ok(Some(Batch {
            at,
            size,
            first: offset,
            last: offset.wrapping_add(header.last_offset_delta.into()),
            // The base is another time in a batch that the cleaner or the broker has stamped.
            first_timestamp: match header.has_delete_horizon() || header.is_log_append_time() {
                true => header.max_timestamp.0,
                false => header.base_timestamp.0,
            },
            max_timestamp: header.max_timestamp.0,
        })),
        Err(LogFileError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Entries of an index that Kafka searches first.
pub fn warm(entries: usize, entry_bytes: usize) -> u64 {
    const WARM_BYTES: usize = 8192;
    u64_of(entries.saturating_sub(1).min(WARM_BYTES / entry_bytes))
}
