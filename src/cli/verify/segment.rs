//! One segment from its first batch to its last.

use indicatif::ProgressBar;

use super::finding::{Finding, Limited};
use super::index::{Indexes, Passing};
use super::partition::{Partition, Walked};
use super::transactions::Event;
use crate::cli::dump;
use crate::cli::log_file::{Found, LogFile, LogFileError};
use crate::format::batch::{BatchHeader, Codec, MAGIC_V2};
use crate::format::control;
use crate::format::record::RecordsIter;

/// Offsets of a segment, counted from its base, at most.
const RELATIVE_OFFSET_MAX: i64 = (1 << 31) - 1;
/// Bytes looked at once behind the last batch.
const TAIL_WINDOW_BYTES: u64 = 1 << 20;

/// Reads a segment of the partition.
pub fn walk(partition: &Partition, number: usize, is_deep: bool, progress: &ProgressBar) -> Walked {
    let segment = &partition.segments[number];
    let mut walked = Walked { is_seen: true, ..Walked::default() };
    let mut log = match LogFile::open(&segment.paths.log) {
        Ok(log) => log,
        Err(error) => {
            walked.findings.push(Finding::of_log(error));
            walked.is_seen = false;
            return walked;
        }
    };
    let is_last = number + 1 == partition.segments.len();
    let may_have_tail = is_last || partition.is_doomed();
    let indexes = (segment.paths.offsets.as_path(), segment.paths.times.as_path());
    let mut walk = Walk {
        base: segment.base,
        next_base: partition.segments.get(number + 1).map(|it| it.base),
        is_deep,
        found: Limited::new(&segment.paths.log),
        indexes: Indexes::read(segment.base, indexes, may_have_tail, &mut walked.findings),
        walked: &mut walked,
    };
    if let Err(error) = walk.run(&mut log, progress) {
        walk.walked.is_seen = false;
        walk.walked.findings.push(Finding::of_log(error));
    }
    let Walk { found, indexes, .. } = walk;
    let (has_offsets, has_times) = indexes.are_there();
    walked.findings.extend(indexes.finish(log.length()));
    walked.findings.extend(found.into_findings());
    // Of a log that a server has removed meanwhile, the indexes are gone, too.
    if log.length() != 0 && partition.is_log() && segment.paths.log.exists() {
        for (is_there, path) in
            [(has_offsets, &segment.paths.offsets), (has_times, &segment.paths.times)]
        {
            let was_seen = walked.findings.iter().any(|it| it.path == *path);
            if !is_there && !was_seen {
                let what = "the index is missing; it is built anew at the next start";
                walked.findings.push(Finding::damage(path, None, what));
            }
        }
    }
    walked
}

struct Walk<'a> {
    base: i64,
    next_base: Option<i64>,
    is_deep: bool,
    found: Limited,
    indexes: Indexes,
    walked: &'a mut Walked,
}

impl Walk<'_> {
    fn run(&mut self, log: &mut LogFile, progress: &ProgressBar) -> Result<(), LogFileError> {
        let mut at = 0;
        let end = log.length();
        loop {
            match log.batch(at, end) {
                Ok(Some(found)) => {
                    self.batch(log, found)?;
                    progress.inc(found.size);
                    at = found.end();
                }
                Ok(None) => break,
                Err(LogFileError::Corrupt { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        self.walked.bytes = at;
        progress.inc(end - at);
        self.tail(log, at)
    }

    /// What lies behind the last batch.
    fn tail(&mut self, log: &mut LogFile, at: u64) -> Result<(), LogFileError> {
        let bytes = log.length() - at;
        if bytes == 0 {
            return Ok(());
        }
        let is_zero = are_zeros(log, at)?;
        if is_zero && self.next_base.is_none() {
            let what = format!(
                "{bytes} bytes of zeros from position {at} on: a log that was allocated beforehand"
            );
            self.walked.findings.push(Finding::note(log.path(), what));
        } else {
            let what = if is_zero { "are zeros" } else { "are no whole batch" };
            self.found.damage(at, format!("the {bytes} bytes from here to the end {what}"));
        }
        Ok(())
    }

    fn batch(&mut self, log: &mut LogFile, found: Found) -> Result<(), LogFileError> {
        self.walked.batches += 1;
        if found.magic < MAGIC_V2 {
            return self.old_batch(log, found);
        }
        let (header, is_valid) = match log.header(found) {
            Ok(read) => read,
            Err(LogFileError::Corrupt { what, .. }) => {
                self.found.damage(found.at, what);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if found.magic != MAGIC_V2 {
            self.found.damage(found.at, format!("format {} is not known, 2 is", found.magic));
        }
        if !is_valid {
            let what = format!("the batch of {} bytes does not have its CRC-32C", found.size);
            self.found.damage(found.at, what);
        }
        let last = header.base_offset.wrapping_add(header.last_offset_delta.into());
        self.offsets(found, header.base_offset, last);
        let codec = match header.codec() {
            Ok(codec) => Some(codec),
            Err(error) => {
                self.found.damage(found.at, error);
                None
            }
        };
        if i64::from(header.record_count) > i64::from(header.last_offset_delta) + 1
            || header.record_count < 0
        {
            let what = format!(
                "{} records in a batch of {} offsets",
                header.record_count,
                i64::from(header.last_offset_delta) + 1
            );
            self.found.damage(found.at, what);
        }
        self.walked.epochs.note(header.leader_epoch.0, header.base_offset, last);
        let max_timestamp = header.max_timestamp.0;
        self.indexes.pass(Passing { at: found.at, last_offset: last, max_timestamp });
        if let Some(codec) = codec.filter(|_| is_valid) {
            self.contents(log, found, (&header, codec))?;
        }
        Ok(())
    }

    /// Offsets rise from batch to batch and stay within the segment.
    fn offsets(&mut self, found: Found, base: i64, last: i64) {
        let expected = self.walked.end.unwrap_or(self.base);
        if last < base {
            self.found
                .damage(found.at, format!("the batch ends with {last}, before its base {base}"));
        }
        if base < expected {
            let what = format!("the batch begins with offset {base}, {expected} was the least");
            self.found.damage(found.at, what);
        } else if expected < base {
            self.walked.gaps.push((found.at, expected, base));
        }
        if RELATIVE_OFFSET_MAX < last.saturating_sub(self.base) {
            let what = format!("offset {last} is too far from the segment's base {}", self.base);
            self.found.damage(found.at, what);
        }
        if let Some(next) = self.next_base.filter(|next| *next <= last) {
            let what =
                format!("offset {last} belongs to the next segment, which begins with {next}");
            self.found.damage(found.at, what);
        }
        self.walked.end = Some(last.saturating_add(1).max(expected));
    }

    /// Markers, and with `--deep` all records.
    fn contents(
        &mut self,
        log: &mut LogFile,
        found: Found,
        (header, codec): (&BatchHeader, Codec),
    ) -> Result<(), LogFileError> {
        let (producer, offset) = (header.producer_id.0, header.base_offset);
        if header.is_transactional() && !header.is_control() {
            self.walked.events.push(Event::Data { producer, offset });
        }
        if !self.is_deep && !header.is_control() {
            return Ok(());
        }
        let payload = match dump::payload(log, found, codec) {
            Ok(payload) => payload,
            Err(LogFileError::Corrupt { what, .. }) => {
                self.found.damage(found.at, what);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut before = -1;
        for record in RecordsIter::new(header, &payload) {
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    self.found.damage(found.at, error);
                    break;
                }
            };
            if record.offset_delta <= before || header.last_offset_delta < record.offset_delta {
                let what = format!("a record has offset delta {}", record.offset_delta);
                self.found.damage(found.at, what);
            }
            before = record.offset_delta;
            let kind = control::kind(record.key);
            if let (true, Ok(kind @ (control::ABORT | control::COMMIT))) =
                (header.is_control(), kind)
            {
                let offset = offset + i64::from(record.offset_delta);
                let aborts = kind == control::ABORT;
                self.walked.events.push(Event::Marker { producer, offset, aborts });
            }
        }
        Ok(())
    }

    fn old_batch(&mut self, log: &mut LogFile, found: Found) -> Result<(), LogFileError> {
        match dump::old_batch(log, found) {
            Ok(old) => {
                if !old.is_valid {
                    self.found.damage(found.at, "the record of the old format has another CRC-32");
                }
                self.offsets(found, old.first_offset, old.last_offset);
                let (last_offset, max_timestamp) = (old.last_offset, old.max_timestamp);
                self.indexes.pass(Passing { at: found.at, last_offset, max_timestamp });
                Ok(())
            }
            Err(LogFileError::Corrupt { what, .. }) => {
                self.found.damage(found.at, what);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether nothing but zeros follows; what was never written isn't read.
fn are_zeros(log: &mut LogFile, mut at: u64) -> Result<bool, LogFileError> {
    while let Some(from) = log.next_data(at)? {
        let count = TAIL_WINDOW_BYTES.min(log.length() - from);
        if log.bytes(from, count)?.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at = from + count;
    }
    Ok(true)
}
