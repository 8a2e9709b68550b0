//! The way to an offset, or to a time, step by step as a broker goes it.

use std::io::Write;

use super::ExplainError;
use super::picture::grouped;
use super::segments::{Batch, Segment, batch, warm};
use super::time;
use crate::cli::log_file::LogFile;
use crate::format::index::{OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES};
use crate::units::u64_of;

/// Shows where an offset is found.
///
/// # Errors
/// [`ExplainError`].
pub fn offset(segments: &[Segment], offset: i64, out: &mut dyn Write) -> Result<(), ExplainError> {
    writeln!(out, "The way to offset {offset}")?;
    let number = segments.partition_point(|it| it.base <= offset).checked_sub(1);
    let Some(segment) = number.map(|it| &segments[it]) else {
        let first = segments.first().map_or(0, |it| it.base);
        return Ok(writeln!(out, "  it lies before the first segment, which begins with {first}")?);
    };
    let end = segments.last().map_or(0, Segment::end);
    if end <= offset {
        return Ok(writeln!(out, "  nothing is there yet: the next record gets offset {end}")?);
    }
    writeln!(
        out,
        "  1. segment {}: the last one whose base offset is not above {offset} ({})",
        segment.base,
        segment.path.display(),
    )?;
    let from = entry(segment, offset, out)?;
    scan(segment, (from, offset), |batch| offset <= batch.last, "3", out)
}

/// The index entry that a lookup lands on; returns its position.
fn entry(segment: &Segment, offset: i64, out: &mut dyn Write) -> Result<u64, ExplainError> {
    let entries = segment.offsets.len();
    let warm = warm(entries, OFFSET_ENTRY_BYTES);
    let Some((number, entry)) = segment.floor(offset) else {
        writeln!(
            out,
            "  2. index: none of its {entries} entries is at or below {offset}, so the scan begins \
             at position 0 (the first batch of a segment never has an entry)",
        )?;
        return Ok(0);
    };
    let is_warm = u64_of(entries - 1 - number) <= warm;
    writeln!(
        out,
        "  2. index: entry {} of {entries} is the last one at or below {offset}: the batch that \
         ends with offset {} begins at position {}; it lies in the {} section (the last {warm} \
         entries are searched first, since they stay in memory)",
        number + 1,
        segment.base + i64::from(entry.relative_offset),
        grouped(entry.position.into()),
        if is_warm { "warm" } else { "cold" },
    )?;
    Ok(entry.position.into())
}

/// From a position to the first batch that is it.
fn scan(
    segment: &Segment,
    (from, target): (u64, i64),
    is_it: impl Fn(&Batch) -> bool,
    step: &str,
    out: &mut dyn Write,
) -> Result<(), ExplainError> {
    let mut log = LogFile::open(&segment.path)?;
    let (mut at, mut passed) = (from, 0_u64);
    while let Some(found) = batch(&mut log, at)? {
        if is_it(&found) {
            writeln!(
                out,
                "  {step}. scan: {passed} {} passed over ({} bytes); the batch at position {} has \
                 offsets {} to {}, {} bytes, time {}",
                if passed == 1 { "batch is" } else { "batches are" },
                grouped(at - from),
                grouped(found.at),
                found.first,
                found.last,
                grouped(found.size),
                time::utc(found.max_timestamp),
            )?;
            if i64::MIN < target && target < found.first {
                writeln!(
                    out,
                    "     offset {target} itself is gone (compaction); the next record is given",
                )?;
            }
            return Ok(());
        }
        passed += 1;
        at = found.at + found.size;
    }
    Ok(writeln!(out, "  {step}. scan: no such batch up to the end of the segment")?)
}

/// Shows where the first record of a time or later is found.
///
/// # Errors
/// [`ExplainError`].
pub fn timestamp(
    segments: &[Segment],
    timestamp: i64,
    out: &mut dyn Write,
) -> Result<(), ExplainError> {
    writeln!(out, "The way to time {timestamp} ({} UTC)", time::utc(timestamp))?;
    let Some(segment) = segments.iter().find(|it| timestamp <= it.largest_timestamp) else {
        return Ok(writeln!(out, "  no record is that new")?);
    };
    writeln!(
        out,
        "  1. segment {}: the first one whose newest record is not older ({})",
        segment.base,
        time::utc(segment.largest_timestamp),
    )?;
    let entries = segment.times.len();
    let number = segment.times.partition_point(|it| it.timestamp <= timestamp).checked_sub(1);
    let from = match number.map(|it| (it, segment.times[it])) {
        Some((number, entry)) => {
            let offset = segment.base + i64::from(entry.relative_offset);
            writeln!(
                out,
                "  2. time index: entry {} of {entries} says that nothing up to offset {offset} is \
                 newer than {} (the last {} entries are searched first)",
                number + 1,
                time::utc(entry.timestamp),
                warm(entries, TIME_ENTRY_BYTES),
            )?;
            segment.floor(offset).map_or(0, |(_, entry)| u64::from(entry.position))
        }
        None => {
            writeln!(out, "  2. time index: none of its {entries} entries is that old")?;
            0
        }
    };
    writeln!(out, "  3. index: the scan begins at position {}", grouped(from))?;
    scan(segment, (from, i64::MIN), |batch| timestamp <= batch.max_timestamp, "4", out)
}
