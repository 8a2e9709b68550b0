//! What retention will delete next, and why the active segment will roll.

use std::io::Write;
use std::path::Path;

use super::ExplainError;
use super::picture::grouped;
use super::segments::Segment;
use super::time;
use crate::cli::log_file::read_whole;
use crate::format::checkpoint;
use crate::format::index::{OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES};
use crate::format::names::{CLUSTER_METADATA, PartitionDirectory};
use crate::log::LogConfig;
use crate::log::retention::{self, RetentionView, SegmentInfo};
use crate::units::{Offset, Timestamp, u64_of};

/// Segments whose fate is told one by one.
const TOLD_MAX: usize = 10;

/// Which segments go now, and when the next one does.
///
/// # Errors
/// [`ExplainError::Output`].
pub fn retention(
    folder: &Path,
    segments: &[Segment],
    (config, now): (&LogConfig, i64),
    out: &mut dyn Write,
) -> Result<(), ExplainError> {
    writeln!(out, "Retention")?;
    if quorum(folder, out)? {
        return Ok(());
    }
    let ends = segments.iter().skip(1).map(|it| it.base);
    let ends = ends.chain(segments.last().map(Segment::end));
    let infos: Vec<SegmentInfo> =
        segments.iter().zip(ends).map(|(segment, end)| segment.info(end)).collect();
    let first = infos.first().map_or(Offset(0), |it| it.base);
    let log_start = log_start(folder).map_or(first, |it| it.max(first));
    let view = RetentionView {
        segments: &infos,
        high_watermark: infos.last().map_or(first, |it| it.next_base),
        log_start,
    };
    if !config.cleanup_policy.delete {
        writeln!(
            out,
            "  cleanup.policy is {}: whole segments only go with the log start",
            if config.cleanup_policy.compact { "compact" } else { "empty" },
        )?;
    }
    let expired = retention::expired(view, config, Timestamp(now));
    for (number, segment) in segments.iter().enumerate().take(expired.count().min(TOLD_MAX)) {
        let reason = expired.reason(number).map(|it| it.to_string()).unwrap_or_default();
        writeln!(out, "  segment {} goes with the next pass: {reason}", segment.base)?;
    }
    if TOLD_MAX < expired.count() {
        writeln!(out, "  ... and {} more", expired.count() - TOLD_MAX)?;
    }
    if let Some(future) = expired.blocked_by {
        writeln!(
            out,
            "  held back: segment {} has a record of {}, {} ahead of now; it and all behind it \
             stay until then and retention.ms more",
            future.segment,
            time::utc(future.timestamp.0),
            time::span(future.timestamp.0 - now),
        )?;
    }
    let Some(segment) = segments.get(expired.count()) else {
        return Ok(writeln!(
            out,
            "  that is all of the log: the active segment is rolled first, and an empty one stays"
        )?);
    };
    if !config.cleanup_policy.delete {
        return Ok(());
    }
    if segment.first.is_none() {
        writeln!(out, "  segment {} is empty and active: it stays", segment.base)?;
    } else {
        by_time(segment, expired.count() + 1 == segments.len(), (config, now), out)?;
    }
    by_size(segments, expired.count(), config, out)
}

/// Whose segments are deleted by other rules.
fn quorum(folder: &Path, out: &mut dyn Write) -> Result<bool, ExplainError> {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let name = absolute.file_name().and_then(|it| it.to_str()).unwrap_or_default();
    if name != format!("{CLUSTER_METADATA}-0") {
        return Ok(false);
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|it| it.file_name().to_string_lossy().into_owned());
    let ends = names.filter_map(|it| {
        let (end, _) = it.strip_suffix(".checkpoint")?.split_once('-')?;
        end.parse::<u64>().ok()
    });
    let newest = match ends.max() {
        Some(end) => format!("the newest one here ends with offset {end}"),
        None => "there is none yet".to_owned(),
    };
    writeln!(
        out,
        "  this is the quorum's log: retention.* don't count. Kafka deletes sealed segments that \
         lie before its newest snapshot ({newest}) when they are older than \
         metadata.max.retention.ms (7 d) or all is more than metadata.max.retention.bytes (100 MiB)"
    )?;
    Ok(true)
}

fn by_time(
    segment: &Segment,
    is_active: bool,
    (config, now): (&LogConfig, i64),
    out: &mut dyn Write,
) -> Result<(), ExplainError> {
    let Some(limit) = config.retention_ms else {
        return Ok(writeln!(out, "  by time: never (retention.ms is unlimited)")?);
    };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let newest = segment.info(segment.end()).retention_timestamp().0;
    let due = newest.saturating_add(limit).saturating_add(1);
    let holder = match segment.largest_timestamp {
        ..0 => "its records have no times, so that its file's last change counts".to_owned(),
        _ => format!(
            "its newest record holds it: offset {} of {}",
            segment.largest_at,
            time::utc(newest)
        ),
    };
    Ok(writeln!(
        out,
        "  by time: segment {}{} is the next, at {} (in {}); {holder}",
        segment.base,
        if is_active { ", which is rolled then," } else { "" },
        time::utc(due),
        time::span(due.saturating_sub(now)),
    )?)
}

fn by_size(
    segments: &[Segment],
    gone: usize,
    config: &LogConfig,
    out: &mut dyn Write,
) -> Result<(), ExplainError> {
    let Some(limit) = config.retention_bytes else {
        return Ok(writeln!(out, "  by size: never (retention.bytes is unlimited)")?);
    };
    let left: u64 = segments.iter().skip(gone).map(Segment::bytes).sum();
    let oldest = segments.get(gone).map_or(0, Segment::bytes);
    let base = segments.get(gone).map_or(0, |it| it.base);
    let missing = (limit.0 + oldest).saturating_sub(left);
    Ok(writeln!(
        out,
        "  by size: {} bytes are there; segment {base} goes when {} more have come, so that {} \
         stay without it",
        grouped(left),
        grouped(missing),
        grouped(limit.0),
    )?)
}

/// From `log-start-offset-checkpoint` beside the folder.
fn log_start(folder: &Path) -> Option<Offset> {
    let folder = std::path::absolute(folder).ok()?;
    let of = PartitionDirectory::parse(folder.file_name()?.to_str()?).ok()?;
    let bytes = read_whole(&folder.parent()?.join("log-start-offset-checkpoint")).ok()?;
    let lines = checkpoint::parse_offsets(&bytes).ok()?;
    let line = lines.iter().find(|it| it.topic == of.topic && it.partition == of.partition)?;
    Some(line.offset)
}

/// What will seal the active segment.
///
/// # Errors
/// [`ExplainError::Output`].
pub fn roll(
    segments: &[Segment],
    (config, now): (&LogConfig, i64),
    out: &mut dyn Write,
) -> Result<(), ExplainError> {
    let Some(active) = segments.last() else { return Ok(()) };
    writeln!(out, "The active segment, {}, rolls before the next batch that", active.base)?;
    if active.bytes() == 0 {
        return Ok(writeln!(out, "  ... comes when something is in it: it is empty")?);
    }
    writeln!(
        out,
        "  - is larger than {} bytes (segment.bytes {} less {} that are there), or",
        grouped(config.segment_bytes.0.saturating_sub(active.bytes())),
        grouped(config.segment_bytes.0),
        grouped(active.bytes()),
    )?;
    let limit = i64::try_from(config.segment_ms).unwrap_or(i64::MAX);
    match active.first.map(|batch| batch.max_timestamp).filter(|it| 0 <= *it) {
        Some(first) => {
            let due = first.saturating_add(limit);
            writeln!(
                out,
                "  - has a record newer than {} (segment.ms behind the first batch's {}, which is \
                 {}), or",
                time::utc(due),
                time::utc(first),
                match due.saturating_sub(now) {
                    left if 0 < left => format!("in {}", time::span(left)),
                    over => format!("{} ago", time::span(-over)),
                },
            )?;
        }
        None => writeln!(
            out,
            "  - comes {} after the segment was made (its first batch has no time), or",
            time::span(limit),
        )?,
    }
    let room = |entry_bytes: usize, used: usize, kept: u64| {
        let most = config.segment_index_bytes.0 / u64_of(entry_bytes);
        most.saturating_sub(u64_of(used) + kept)
    };
    let offsets = room(OFFSET_ENTRY_BYTES, active.offsets.len(), 0);
    let times = room(TIME_ENTRY_BYTES, active.times.len(), 1);
    writeln!(
        out,
        "  - comes when an index is full: there is room for {} entries in the offset index and {} \
         in the time index",
        grouped(offsets),
        grouped(times),
    )?;
    let left = Left {
        bytes: config.segment_bytes.0.saturating_sub(active.bytes()),
        segment_ms: limit,
        entries: offsets.min(times),
        entry_bytes: config.index_interval_bytes.0,
    };
    Ok(writeln!(out, "  {}", first_reason(active, left, now))?)
}

/// What the active segment still has room for.
#[derive(Clone, Copy)]
struct Left {
    bytes: u64,
    segment_ms: i64,
    entries: u64,
    /// Bytes of batches between two entries, at least.
    entry_bytes: u64,
}

/// Which of the reasons comes first when records go on to come as they did.
fn first_reason(active: &Segment, left: Left, now: i64) -> String {
    let Some(first) = active.first.filter(|it| 0 <= it.max_timestamp) else {
        return "which of them comes first can't be told: the first batch has no time".to_owned();
    };
    let due = first.max_timestamp.saturating_add(left.segment_ms);
    if due < now {
        return "the time comes first: it is over, and the next batch of now rolls the segment"
            .to_owned();
    }
    let newest = active.largest_timestamp;
    let span = newest.saturating_sub(first.first_timestamp);
    let Some(span) = u64::try_from(span).ok().filter(|it| 0 < *it) else {
        return "the time comes first unless more records come: those here are of one moment"
            .to_owned();
    };
    // Of what comes at the pace of the segment so far.
    let until = |room: u64| {
        let ms = u128::from(room) * u128::from(span) / u128::from(active.bytes().max(1));
        newest.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX))
    };
    let entries = u64_of(active.offsets.len().max(1));
    let entry_bytes = left.entry_bytes.max(active.bytes() / entries);
    let candidates = [
        (until(left.bytes), "the size"),
        (due, "the time"),
        (until(left.entries.saturating_mul(entry_bytes)), "a full index"),
    ];
    let (at, what) = candidates.into_iter().min_by_key(|it| it.0).expect("there are three");
    format!(
        "at the pace of its records so far ({} bytes in {}) {what} comes first, about {}",
        grouped(active.bytes()),
        time::span(i64::try_from(span).unwrap_or(i64::MAX)),
        time::utc(at),
    )
}
