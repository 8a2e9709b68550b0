//! The segments on a line, and what the partition is configured with.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use super::segments::Segment;
use super::time;
use crate::cli::output::plural;
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
        "{}: {} in {}, offsets from {}, the next one is {}",
        folder.display(),
        size(bytes),
        plural(segments.len(), "segment"),
        first.base,
        last.end(),
    )?;
    writeln!(out)?;
    let shown = shown(segments.len());
    let mut rows = vec![String::new(); 7];
    for (at, number) in shown.iter().enumerate() {
        let segment = &segments[*number];
        let is_last = number + 1 == segments.len();
        if at != 0 && shown[at - 1] + 1 != *number {
            let between = ["+- ... ", "|", "|", "|", "|", "|", "+------"];
            for (row, text) in rows.iter_mut().zip(between) {
                row.push_str(&format!("{text:7}"));
            }
        }
        let mark = if chosen == Some(segment.base) { "*" } else { "" };
        let times = span(segment);
        let head = format!("+- {}{mark} ", segment.base);
        rows[0].push_str(&format!("{head:-<BOX_WIDTH$}"));
        let about = if is_last {
            format!("{}, active", size(segment.bytes()))
        } else {
            size(segment.bytes())
        };
        for (row, text) in rows[1..6].iter_mut().zip([about].iter().chain(&times)) {
            row.push_str(&format!("| {text:width$}", width = BOX_WIDTH - 2));
        }
        rows[6].push_str(&format!("+{:-<width$}", "", width = BOX_WIDTH - 1));
    }
    rows[0].push('>');
    rows[6].push('>');
    for row in rows {
        writeln!(out, "  {}", row.trim_end())?;
    }
    writeln!(
        out,
        "  base offset and size of each segment, times (UTC) of its first record and of its newest"
    )?;
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

/// The times of a segment in four short lines.
fn span(segment: &Segment) -> [String; 4] {
    let Some(first) = segment.first else { return ["no records", "", "", ""].map(str::to_owned) };
    if segment.largest_timestamp < 0 {
        return ["no times", "", "", ""].map(str::to_owned);
    }
    let parts = |ms: i64| {
        let text = time::utc(ms);
        let (day, clock) = text.split_once(' ').unwrap_or((&text, ""));
        (day.to_owned(), clock.to_owned())
    };
    let ((day, clock), (to_day, to_clock)) =
        (parts(first.first_timestamp), parts(segment.largest_timestamp));
    [day, format!("{clock} to"), to_day, to_clock]
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
    let source = if is_known {
        "the topic's configs in the metadata beside it and Kafka's defaults"
    } else {
        "Kafka's defaults"
    };
    let more = if given.is_empty() { "" } else { " and --config" };
    let limit = |it: Option<u64>| it.map_or("unlimited".to_owned(), |it| it.to_string());
    writeln!(
        out,
        "reckoned by {source}{more}: segment.bytes {}, segment.ms {}, index.interval.bytes {}, \
         retention.ms {}, retention.bytes {}; what server.properties says is not known here, give \
         it with --config NAME=VALUE",
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
