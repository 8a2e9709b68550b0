//! Every case on a fresh copy of the same directory: what opening it scans and rebuilds, what is
//! readable afterwards, and how long that takes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use uringlog::Offset;
use uringlog::format::index::offset_index_used;
use uringlog::format::names::{FileKind, SegmentFile};

use super::open::{self, Opened};
use super::scene::{self, Case, Scene, TOPIC};
use crate::engines::server::block_on;
use crate::engines::sink::Sink;
use crate::engines::{Tier, files};
use crate::experiments::Failure;
use crate::experiments::measure::{f64_of, u64_of};
use crate::experiments::roll_by_size::programme::Programme;
use crate::experiments::sparse_index::index;
use crate::record::picture::names;
use crate::record::{Kind, Latency, Picture, Recorder, Table, Unit, unit};
use crate::run::Context;

const RULE: &str = "every byte from the recovery point's segment on is checked, no other";
/// Figures that follow from the parameters, but for what a journal restores.
const TOLD: Unit = unit::COUNT.told();

/// What the log was when its server was killed.
struct Before {
    /// Base, bytes and batches of partition 0's segments.
    segments: Vec<(u64, u64, u64)>,
    indexes: BTreeMap<u64, Vec<u8>>,
    /// Records of all partitions, all of them acknowledged.
    records: u64,
}

impl Before {
    fn read(data: &Path, records: u64) -> Result<Before, Failure> {
        let directory = Scene::directory(data, 0);
        let mut segments = Vec::new();
        for segment in files::segments(&directory)? {
            let bytes = segment.log.map_or(0, |it| it.bytes);
            let batches = index::batches(&scene::log_path(&directory, segment.base), bytes)?;
            segments.push((segment.base, bytes, u64_of(batches.len())));
        }
        Ok(Before { segments, indexes: indexes(data)?, records })
    }
}

/// Used bytes of each `.index` of partition 0, by base offset.
fn indexes(data: &Path) -> Result<BTreeMap<u64, Vec<u8>>, Failure> {
    let directory = Scene::directory(data, 0);
    let mut indexes = BTreeMap::new();
    for segment in files::segments(&directory)? {
        let name = SegmentFile::new(Offset(segment.base), FileKind::Index).to_string();
        // One that was removed is an empty one.
        let mut bytes = fs::read(directory.join(name)).unwrap_or_default();
        bytes.truncate(offset_index_used(&bytes));
        indexes.insert(segment.base, bytes);
    }
    Ok(indexes)
}

/// The cases on the programme's log.
///
/// # Errors
/// Those of servers, files and the engine.
pub fn run(
    context: &Context,
    programme: &Programme,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let partitions = programme.partition_count();
    let scene = Scene::make(context, partitions, &programme.settings(), async |sink| {
        programme.play(context, sink).await
    })?;
    let before = Before::read(&scene.prepare(Case::Killed)?, programme.records)?;
    recorder.figure("records_acknowledged", before.records, unit::COUNT);
    let bases: Vec<u64> = before.segments.iter().map(|it| it.0).collect();
    recorder.figure("base_offsets", bases, unit::OFFSET);
    let mut table = Table::new(
        "What a start scans and rebuilds",
        &[
            "case",
            "recovery point",
            "segments",
            "walked",
            "headers",
            "bytes checked",
            "indexes rebuilt",
            "cut off",
            "from journal",
            "readable",
            "lost",
            "open ms",
            "ready ms",
        ],
    );
    for case in Case::ALL {
        context.check()?;
        recorder.vary("case", case.name());
        let mut cells = vec![case.name().to_owned()];
        cells.extend(opened((context, &scene), *case, (programme, &before), recorder)?);
        cells.extend(started((context, &scene), *case, (partitions, &before), recorder)?);
        // What opening took comes behind what is readable.
        let open = cells.remove(9);
        cells.insert(11, open);
        table.row(cells);
    }
    recorder.table(table);
    recorder.forget("case");
    pictures(recorder);
    notes(recorder);
    Ok(())
}

/// In this process; empty cells for Kafka.
fn opened(
    (context, scene): (&Context, &Scene<'_>),
    case: Case,
    (programme, before): (&Programme, &Before),
    recorder: &mut Recorder,
) -> Result<Vec<String>, Failure> {
    let partitions = programme.partition_count();
    if context.engine().is_none_or(|it| it.of_library().is_none()) {
        let data = scene.prepare(case)?;
        let point = point(&data, partitions, recorder);
        let none = || "-".to_owned();
        return Ok([point].into_iter().chain((0..8).map(|_| none())).collect());
    }
    let (mut latency, mut last) = (Latency::new(), None);
    for _ in 0..context.parameters.number("repeats") {
        let data = scene.prepare(case)?;
        let configure = |config: &mut uringlog::LogConfig| programme.configure(config);
        let opened = open::open(context, (&data, partitions), configure)?;
        latency.record(opened.took);
        last = Some(opened);
    }
    recorder.latency("open", &latency);
    let opened = last.expect("once at least");
    let data = scene.prepare(case)?;
    let point = point(&data, partitions, recorder);
    let mut cells = vec![point];
    cells.extend(figures(&opened, recorder));
    check(context, case, (&opened, &data), (before, recorder));
    cells.push(format!("{:.1}", f64_of(latency.total().value_at_quantile(0.5)) / 1e6));
    Ok(cells)
}

fn point(data: &Path, partitions: u32, recorder: &mut Recorder) -> String {
    let points = scene::recovery_points(data, partitions);
    let known: Vec<u64> = points.iter().flatten().copied().collect();
    recorder.figure("recovery_points", known, unit::OFFSET.told());
    points.first().copied().flatten().map_or("none".to_owned(), |it| it.to_string())
}

fn figures(opened: &Opened, recorder: &mut Recorder) -> Vec<String> {
    let ends: Vec<u64> = opened.reports.iter().map(|it| it.log_end.0).collect();
    recorder.figure("log_end_offsets", ends, unit::OFFSET.told());
    let rebuilt = opened.reports.first().map(|it| &it.indexes_rebuilt);
    let rebuilt: Vec<u64> = rebuilt.into_iter().flatten().map(|it| it.0).collect();
    recorder.figure("rebuilt_index_bases", rebuilt, unit::OFFSET.told());
    let counts = [
        ("segments", opened.sum(|it| u64_of(it.segments)), TOLD),
        ("segments_walked", opened.sum(|it| u64_of(it.walked)), TOLD),
        ("headers_read", opened.sum(|it| it.batches), TOLD),
        ("checked_bytes", opened.sum(|it| it.checked.0), unit::BYTES.told()),
        ("indexes_rebuilt", opened.rebuilt(), TOLD),
        ("cut_off_bytes", opened.cut_off(), unit::BYTES.told()),
        ("journal_records_replayed", opened.journal_records(), TOLD),
        ("journal_bytes_restored", opened.journal_written(), unit::BYTES.told()),
    ];
    for (name, value, unit) in counts {
        recorder.figure(name, value, unit);
    }
    // All but the journal's records have a column.
    let shown = counts.iter().filter(|it| it.0 != "journal_records_replayed");
    shown.map(|it| it.1.to_string()).collect()
}

/// What must be so wherever no journal changes what lies in the files: in the page cache's tier.
fn check(
    context: &Context,
    case: Case,
    (opened, data): (&Opened, &Path),
    (before, recorder): (&Before, &mut Recorder),
) {
    if context.tier() != Some(Tier::PageCache) || opened.reports.len() != 1 {
        return;
    }
    let (all, batches) =
        before.segments.iter().fold((0, 0), |sum, it| (sum.0 + it.1, sum.1 + it.2));
    let point = scene::recovery_points(data, 1).first().copied().flatten();
    match case {
        Case::KilledBeforeCheckpoint => {
            recorder.expect("checked_bytes", (opened.sum(|it| it.checked.0), all), RULE);
            recorder.expect("headers_read", (opened.sum(|it| it.batches), batches), RULE);
        }
        Case::Killed if before.segments.iter().any(|it| Some(it.0) == point) => {
            let behind = before.segments.iter().filter(|it| point <= Some(it.0));
            let behind: u64 = behind.map(|it| it.1).sum();
            recorder.expect("checked_bytes", (opened.sum(|it| it.checked.0), behind), RULE);
        }
        Case::IndexRemoved => {
            let segments = u64_of(before.segments.len());
            let by = "an index that is missing is built from the .log";
            recorder.expect("indexes_rebuilt", (opened.rebuilt(), segments), by);
        }
        _ => {}
    }
}

/// The server on a copy: until it is ready, and what it gives then.
fn started(
    (context, scene): (&Context, &Scene<'_>),
    case: Case,
    (partitions, before): (u32, &Before),
    recorder: &mut Recorder,
) -> Result<Vec<String>, Failure> {
    let (mut latency, mut records) = (Latency::new(), 0);
    let repeats = context.parameters.number("repeats");
    for repeat in 0..repeats {
        let data = scene.prepare(case)?;
        let started = Instant::now();
        let server = scene.start()?;
        latency.record(started.elapsed());
        if repeat + 1 == repeats {
            recorder.figure("recovered_segments_said", recovered(&scene.said()), TOLD);
            records = block_on(async {
                let sink = Sink::attach(&server, (TOPIC, partitions)).await?;
                let mut records = 0;
                for partition in 0..partitions {
                    records += scene::readable(&sink, partition).await?;
                }
                Ok(records)
            })?;
            rebuilt(&data, before, recorder)?;
        }
        server.kill()?;
    }
    recorder.latency("ready", &latency);
    let lost = before.records.saturating_sub(records);
    recorder.figure("records_readable", records, TOLD);
    recorder.figure("records_lost", lost, TOLD);
    if case != Case::TornTail {
        recorder.expect("records_lost", (lost, 0), "SIGKILL leaves the page cache as it is");
    }
    let ready = f64_of(latency.total().value_at_quantile(0.5)) / 1e6;
    Ok(vec![records.to_string(), lost.to_string(), format!("{ready:.1}")])
}

/// The indexes of partition 0 against those before the kill.
fn rebuilt(data: &Path, before: &Before, recorder: &mut Recorder) -> Result<(), Failure> {
    let after = indexes(data)?;
    let lengths = |of: &BTreeMap<u64, Vec<u8>>| -> Vec<u64> {
        of.values().map(|it| u64_of(it.len())).collect()
    };
    recorder.figure("index_bytes_before", lengths(&before.indexes), unit::BYTES);
    recorder.figure("index_bytes_after", lengths(&after), unit::BYTES.told());
    let none = Vec::new();
    let differing = before
        .indexes
        .iter()
        .map(|(base, bytes)| scene::differing_bytes(bytes, after.get(base).unwrap_or(&none)));
    recorder.figure("index_bytes_differing", differing.sum::<u64>(), unit::BYTES.told());
    Ok(())
}

/// How many segments Kafka says it has recovered; 0 for those that don't say it this way.
fn recovered(said: &str) -> u64 {
    let is_it = |line: &&str| line.contains(TOPIC) && line.contains("Recovering unflushed segment");
    u64_of(said.lines().filter(is_it).count())
}

fn pictures(recorder: &mut Recorder) {
    let by_case =
        |figures: &[&str]| Kind::Bars { figures: names(figures), by: Some("case".to_owned()) };
    recorder.picture(Picture::new(
        "scanned",
        "Bytes whose checksums a start computes",
        "Nothing after an orderly stop but the tail; after a kill what the checkpoint doesn't know \
         to be synced, which is the last segment; everything when there is no checkpoint yet.",
        by_case(&["checked_bytes"]),
    ));
    recorder.picture(Picture::new(
        "headers",
        "Batch headers that a start reads",
        "After a stop in order only the tail's; after a kill those from the newest producer \
         snapshot on, which a roll writes, and of segments that the checkpoint doesn't know.",
        by_case(&["headers_read"]),
    ));
    recorder.picture(Picture::new(
        "time-to-ready",
        "From starting the process to serving",
        "The bars of a server differ by what it scans and rebuilds; the distance between servers \
         is mostly what starting the process takes, a Java machine for Kafka.",
        by_case(&["ready_p50"]),
    ));
    recorder.picture(Picture::new(
        "time-to-open",
        "Journals replayed and all partitions opened, in this process",
        "The part of a restart that is the log's: as the bytes checked, plus files that are made \
         anew.",
        by_case(&["open_p50"]),
    ));
}

fn notes(recorder: &mut Recorder) {
    recorder.note(
        "The document says that the last segment is scanned at a restart. It is every segment from \
         the recovery point's on, and their checksums only after an unclean stop; since the \
         recovery point follows every roll, that is the last segment once a checkpoint was \
         written, which happens once a minute by default and every 100 ms here.",
    );
    recorder
        .note("Both servers read the newest producer snapshot, and only the headers behind it.");
    recorder.note(
        "SIGKILL takes a process and leaves the page cache: nothing that was written is lost, in \
         either tier. A torn tail stands for a power cut. What was acknowledged from the page \
         cache and torn off is lost; in the device tier the journal puts it back as far as it \
         holds it, which is why it is asked for here (--set journal=auto leaves it to a probe of \
         the device). It has 4 MiB here, where 64 are the default. Replaying it writes to files \
         that are in place already, which makes old segments new again: their headers are then \
         read, too.",
    );
    recorder.note(
        "Kafka's time to ready includes its script's, which looks ten times a second. What it \
         scans is told by its log only: recovered_segments_said counts those lines.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_this_topic_are_counted() {
        let said = "[LogLoader partition=restarts-0, dir=/d] Recovering unflushed segment 0. 0/2\n\
                    [LogLoader partition=other-0, dir=/d] Recovering unflushed segment 0. 0/1\n\
                    [LogLoader partition=restarts-0, dir=/d] Loading producer state\n\
                    [LogLoader partition=restarts-0, dir=/d] Recovering unflushed segment 7. 1/2\n";
        assert_eq!(recovered(said), 2);
    }
}
