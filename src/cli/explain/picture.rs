//! The segments on a line, and what the partition is configured with.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use super::segments::Segment;
use super::time;
use crate::log::LogConfig;

/// Boxes that are drawn; of more, the first and the last ones.
const BOXES_MAX: usize = 6;
const BOX_WIDTH: usize = 18;

/// Bytes as people read them.
pub fn size(bytes: u64) -> String {
    let mut left = bytes;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if left < 10 * 1024 {
            break;
        }
        left = (left + 512) / 1024;
        unit = larger;
    }
    format!("{left} {unit}")
}

/// Digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at != 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Draws the log; the segment that was asked for is marked.
///
/// # Errors
/// Of `out`.
pub fn draw(
    folder: &Path,
    segments: &[Segment],
    chosen: Option<i64>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else { return Ok(()) };
    let bytes = segments.iter().map(Segment::bytes).sum();
    writeln!(
        out,
        "{}: {} in {} segment{}, offsets from {}, the next one is {}",
        folder.display(),
        size(bytes),
        segments.len(),
        if segments.len() == 1 { "" } else { "s" },
        first.base,
        last.end(),
    )?;
    writeln!(out)?;
    let shown = shown(segments.len());
    let mut rows = vec![String::new(); 5];
    for (at, number) in shown.iter().enumerate() {
        let segment = &segments[*number];
        let is_last = number + 1 == segments.len();
        if at != 0 && shown[at - 1] + 1 != *number {
            for (row, text) in rows.iter_mut().zip(["+- ... ", "|", "|", "|", "+------"]) {
                row.push_str(&format!("{text:7}"));
            }
        }
        let mark = if chosen == Some(segment.base) { "*" } else { "" };
        let largest = time::utc(segment.largest_timestamp);
        let (day, clock) = largest.split_once(' ').unwrap_or((&largest, ""));
        let head = format!("+- {}{mark} ", segment.base);
        rows[0].push_str(&format!("{head:-<BOX_WIDTH$}"));
        let about = if is_last {
            format!("{}, active", size(segment.bytes()))
        } else {
            size(segment.bytes())
        };
        for (row, text) in rows[1..4].iter_mut().zip([about.as_str(), day, clock]) {
            row.push_str(&format!("| {text:width$}", width = BOX_WIDTH - 2));
        }
        rows[4].push_str(&format!("+{:-<width$}", "", width = BOX_WIDTH - 1));
    }
    rows[0].push('>');
    rows[4].push('>');
    for row in rows {
        writeln!(out, "  {}", row.trim_end())?;
    }
    writeln!(out, "  base offset and size of each segment, time (UTC) of its newest record")?;
    if let Some(segment) = segments.iter().find(|it| Some(it.base) == chosen) {
        writeln!(
            out,
            "* {}: offsets {} to {}, {} bytes, {} index entries, {} time index entries",
            segment.path.display(),
            segment.first.map_or(segment.base, |it| it.first),
            segment.end() - 1,
            grouped(segment.bytes()),
            segment.offsets.len(),
            segment.times.len(),
        )?;
    }
    Ok(())
}

/// The numbers of the segments that are drawn.
fn shown(count: usize) -> Vec<usize> {
    if count <= BOXES_MAX {
        return (0..count).collect();
    }
    let half = BOXES_MAX / 2;
    (0..half).chain(count - half..count).collect()
}

/// Says by which settings the rest is reckoned.
///
/// # Errors
/// Of `out`.
pub fn settings(
    config: &LogConfig,
    (is_known, given): (bool, &BTreeMap<String, String>),
    out: &mut dyn Write,
) -> io::Result<()> {
    let source = if is_known { "the metadata beside it" } else { "Kafka's defaults" };
    let more = if given.is_empty() { "" } else { " and --config" };
    let limit = |it: Option<u64>| it.map_or("unlimited".to_owned(), |it| it.to_string());
    writeln!(
        out,
        "reckoned by {source}{more}: segment.bytes {}, segment.ms {}, index.interval.bytes {}, \
         retention.ms {}, retention.bytes {}",
        config.segment_bytes,
        config.segment_ms,
        config.index_interval_bytes,
        limit(config.retention_ms),
        limit(config.retention_bytes.map(|it| it.0)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_numbers_are_readable() {
        assert_eq!(size(900), "900 B");
        assert_eq!(size(1_044_700), "1020 KiB");
        assert_eq!(size(1 << 30), "1024 MiB");
        assert_eq!(grouped(1_044_700), "1,044,700");
        assert_eq!(grouped(528), "528");
    }

    #[test]
    fn of_many_segments_the_ends_are_drawn() {
        assert_eq!(shown(3), [0, 1, 2]);
        assert_eq!(shown(100), [0, 1, 2, 97, 98, 99]);
    }
}
