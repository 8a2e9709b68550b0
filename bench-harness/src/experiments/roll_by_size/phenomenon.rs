//! What lies on disk afterwards, read back from names and sizes, beside what the documents show.

use std::path::Path;

use serde_json::Value;

use super::programme::{
    KIB_RECORDS, KIB_RECORDS_ONLY, NUMBERED_RECORDS, Programme, TWO_PARTITIONS,
};
use crate::engines::files::{self, Segment, Size};
use crate::engines::sink::Sink;
use crate::experiments::Failure;
use crate::record::{Recorder, Table, Unit, unit};

const SEGMENTS: &str = "the document on segments and indexes (Kafka 4.3.1)";
const RETENTION_RUN: &str = "its retention run, without the small records";
const FILES: &str = "the document on segment files (Kafka 4.3.1)";
const RULE: &str = "a batch that doesn't fit segment.bytes begins the next segment";

/// An index without a limit of its own is made this long, cut to whole entries of 8 and 12 bytes.
const INDEX_BYTES: u64 = 10 << 20;
const TIME_INDEX_BYTES: u64 = INDEX_BYTES / 12 * 12;

/// What a document, or the rule, says of a partition; empty lists say nothing.
struct Expected {
    source: &'static str,
    base_offsets: &'static [u64],
    log_bytes: &'static [u64],
    closed_index_bytes: &'static [u64],
    end: u64,
}

fn expected(programme: &Programme, partition: u32) -> Option<Expected> {
    let programme = Programme { title: "", ..programme.clone() };
    let is = |other: &Programme| programme == Programme { title: "", ..other.clone() };
    if is(&KIB_RECORDS) {
        return Some(Expected {
            source: SEGMENTS,
            base_offsets: &[0, 1028, 2033, 3038],
            log_bytes: &[1_044_700, 1_042_252, 1_042_252, 1_021_531],
            closed_index_bytes: &[528, 528, 528],
            end: 4023,
        });
    }
    if is(&KIB_RECORDS_ONLY) {
        return Some(Expected {
            source: RETENTION_RUN,
            base_offsets: &[0, 1005, 2010, 3015],
            log_bytes: &[1_042_252, 1_042_252, 1_042_252, 1_021_531],
            closed_index_bytes: &[528, 528, 528],
            end: 4000,
        });
    }
    if is(&NUMBERED_RECORDS) {
        return Some(Expected {
            source: FILES,
            base_offsets: &[0, 512, 1024, 1536, 2048],
            log_bytes: &[1_031_522, 1_031_656, 1_032_144, 1_032_144, 911_243],
            closed_index_bytes: &[120, 120, 120, 120],
            end: 2500,
        });
    }
    // 129 batches for the one, 128 for the other: 64 fill a segment, 32 records are in the last.
    let (base_offsets, end): (&[u64], u64) = match partition {
        0 => (&[0, 4992, 9984], 10_016),
        _ => (&[0, 4992], 9984),
    };
    is(&TWO_PARTITIONS).then_some(Expected {
        source: RULE,
        base_offsets,
        log_bytes: &[],
        closed_index_bytes: &[],
        end,
    })
}

/// Figures, checks and the listing of every partition.
///
/// # Errors
/// Files that can't be read, or aren't there.
pub async fn record(
    sink: &Sink,
    programme: &Programme,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    programme.declare(recorder);
    for partition in 0..sink.partitions() {
        let folder = sink.directory(partition);
        let (segments, end) = (files::segments(&folder)?, sink.end(partition).await?);
        if segments.is_empty() {
            return Err(Failure::Wrong(format!("there is no segment in {}", folder.display())));
        }
        if 1 < programme.partitions {
            recorder.vary("partition", partition);
        }
        figures((&segments, end), recorder);
        if let Some(expected) = expected(programme, partition) {
            check((&segments, end), &expected, recorder);
        }
        if partition == 0 {
            listing(&folder, programme.title, recorder)?;
        }
    }
    recorder.forget("partition");
    Ok(())
}

fn bytes(size: Option<Size>) -> u64 {
    size.unwrap_or_default().bytes
}

fn list(segments: &[Segment], of: impl Fn(&Segment) -> u64) -> Vec<u64> {
    segments.iter().map(of).collect()
}

/// Base offsets and sizes of a log's segments, and where it ends.
///
/// # Panics
/// Without a segment.
pub fn figures((segments, end): (&[Segment], u64), recorder: &mut Recorder) {
    let (active, closed) = segments.split_last().expect("a log has a segment");
    let logs = |it: &Segment| bytes(it.log);
    let bases = list(segments, |it| it.base);
    let with_end: Vec<u64> = bases.iter().copied().chain([end]).collect();
    let lists: [(&str, Vec<u64>, Unit); 8] = [
        ("base_offsets", bases, unit::OFFSET),
        ("base_offsets_and_end", with_end, unit::OFFSET),
        ("log_bytes", list(segments, logs), unit::BYTES),
        ("closed_log_bytes", list(closed, logs), unit::BYTES),
        ("index_bytes", list(segments, |it| bytes(it.index)), unit::BYTES),
        ("closed_index_bytes", list(closed, |it| bytes(it.index)), unit::BYTES),
        ("time_index_bytes", list(segments, |it| bytes(it.time_index)), unit::BYTES),
        ("closed_time_index_bytes", list(closed, |it| bytes(it.time_index)), unit::BYTES),
    ];
    for (name, values, unit) in lists {
        recorder.figure(name, values, unit);
    }
    let (index, time_index) =
        (active.index.unwrap_or_default(), active.time_index.unwrap_or_default());
    recorder.figure("log_end_offset", end, unit::OFFSET);
    recorder.figure("segments", u64::try_from(segments.len()).expect("few"), unit::COUNT);
    recorder.figure("active_log_bytes", logs(active), unit::BYTES);
    recorder.figure("active_index_bytes", index.bytes, unit::BYTES);
    recorder.figure("active_time_index_bytes", time_index.bytes, unit::BYTES);
    let told = unit::BYTES.told();
    recorder.figure("active_index_allocated_bytes", index.allocated, told);
    recorder.figure("active_time_index_allocated_bytes", time_index.allocated, told);
}

fn check((segments, end): (&[Segment], u64), expected: &Expected, recorder: &mut Recorder) {
    let (active, closed) = segments.split_last().expect("a log has a segment");
    let source = expected.source;
    let mut lists = |name: &str, measured: Vec<u64>, expected: &[u64], by: &str| {
        if !expected.is_empty() {
            recorder.expect(name, (measured, Value::from(expected.to_vec())), by);
        }
    };
    lists("base_offsets", list(segments, |it| it.base), expected.base_offsets, source);
    lists("log_bytes", list(segments, |it| bytes(it.log)), expected.log_bytes, source);
    let indexes = list(closed, |it| bytes(it.index));
    lists("closed_index_bytes", indexes, expected.closed_index_bytes, source);
    recorder.expect("log_end_offset", (end, expected.end), source);
    recorder.expect("active_index_bytes", (bytes(active.index), INDEX_BYTES), SEGMENTS);
    let time_index = bytes(active.time_index);
    recorder.expect("active_time_index_bytes", (time_index, TIME_INDEX_BYTES), SEGMENTS);
}

/// As the document lists the directory.
///
/// # Errors
/// A directory that can't be read.
pub fn listing(folder: &Path, title: &str, recorder: &mut Recorder) -> Result<(), Failure> {
    let mut table = Table::new(title, &["bytes", "allocated", "file"]);
    for (name, Size { bytes, allocated }) in files::listing(folder)? {
        table.row(vec![bytes.to_string(), allocated.to_string(), name]);
    }
    recorder.table(table);
    Ok(())
}

/// What can't be the same as in the documents.
pub fn notes(recorder: &mut Recorder) {
    recorder.note(
        "Sizes of time indexes follow from the records' times, which the documents don't give: \
         here all records of a programme have one time, so a closed time index has one entry of \
         12 bytes, where the document shows 780 and 756.",
    );
    recorder.note(
        "`.snapshot` files, which a roll writes, hold the state of idempotent producers: 10 bytes \
         and 46 for each. The records here come from none; the document's 608 and 56 bytes are of \
         13 and of 1.",
    );
    recorder.note(
        "Active indexes are 10,485,760 and 10,485,756 bytes long and take the blocks that the \
         column beside says: the rest of them are holes.",
    );
    recorder.note(
        "The document with records of about 2,000 B gives sizes that fit values of 2,000 bytes, \
         one byte more, and the record's number in decimal; with these all five sizes are exactly \
         those of the document.",
    );
    recorder.note(
        "The document with two partitions gives no sizes. 78 records of 200 B fill a batch of \
         16 KiB, and batches go to the partitions by turns, which a sticky partitioner does only \
         on average.",
    );
}
