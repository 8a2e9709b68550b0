//! `index.interval.bytes` against batch size: what the index takes, what a lookup has to scan, and
//! how long it takes, hot and cold.

use std::fs::File;
use std::time::Instant;

use serde_json::Value;
use uringlog::format::batch::HEADER_BYTES;
use uringlog::shard::JournalMode;
use uringlog::{ByteCount, Offset, Partition};

use super::fill::{Filled, Shape, fill};
use super::index::{Walk, mean, targets};
use super::phenomenon::Contents;
use crate::engines::library;
use crate::experiments::measure::{f64_of, u64_of};
use crate::experiments::{DoingTo, Failure, page_cache};
use crate::record::picture::names;
use crate::record::{Better, Kind, Latency, Picture, Recorder, Table, Unit, unit};
use crate::run::Context;

const RULE: &str = "one batch more than fit the interval for each entry, the first one has none";
/// Two: a lookup in the one makes the engine forget the other.
const SEALED: u64 = 2;
/// Kafka's `index.interval.bytes`.
const DEFAULT_INTERVAL: f64 = 4096.0;
/// Means of bytes, which follow from parameters and seed.
const MEAN_BYTES: Unit = Unit { name: "bytes", better: Better::Exact };
const MEAN_COUNT: Unit = Unit { name: "count", better: Better::Exact };

/// Every point of both sweeps.
///
/// # Errors
/// Whatever the log refuses.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let parameters = &context.parameters;
    let (batches, intervals) =
        (parameters.numbers("sweep_batches"), parameters.numbers("sweep_intervals"));
    let mut table = Table::new(
        "Index and scan against interval and batch size",
        &[
            "batch bytes",
            "index.interval.bytes",
            "entries",
            "index bytes",
            "bytes walked, mean",
            "most",
            "hot p50 us",
            "cold p50 us",
        ],
    );
    for batch in &batches {
        for interval in &intervals {
            context.check()?;
            recorder.vary("sweep_batches", *batch);
            recorder.vary("sweep_intervals", *interval);
            table.row(point(context, (*batch, *interval), recorder)?);
        }
    }
    recorder.table(table);
    recorder.vary("sweep_batches", Value::from(batches.clone()));
    recorder.vary("sweep_intervals", Value::from(intervals.clone()));
    pictures(recorder, (&batches, &intervals));
    notes(recorder);
    Ok(())
}

fn point(
    context: &Context,
    (batch_bytes, interval): (u64, u64),
    recorder: &mut Recorder,
) -> Result<Vec<String>, Failure> {
    let segment_bytes = context.parameters.number("sweep_segment_bytes");
    let shape = Shape { batch_bytes, interval, segment_bytes, sealed: SEALED };
    let mut options = library::options(context)?;
    options.directory = context.folder.join(format!("sweep-{batch_bytes}-{interval}"));
    options.journals.mode = JournalMode::Never;
    // So that a lookup in another segment makes this one cold.
    options.sealed_files_max = 1;
    let directory = options.directory.clone();
    let row = library::with_engine(context, options, async |engine| {
        let filled = fill(context, engine, ("sweep", shape)).await?;
        let mut row = vec![filled.batch_bytes.to_string(), interval.to_string()];
        row.extend(sizes(&filled, interval, recorder));
        row.extend(scans(context, &filled, recorder)?);
        let hot = hot(context, &filled).await?;
        let (cold, device_bytes) = cold(context, &filled).await?;
        for (name, latency) in [("lookup_hot", &hot), ("lookup_cold", &cold)] {
            recorder.latency(name, latency);
            row.push(format!("{:.1}", f64_of(latency.total().value_at_quantile(0.5)) / 1e3));
        }
        recorder.figure("lookup_cold_device_bytes", device_bytes, MEAN_BYTES.told());
        Ok(row)
    })?;
    std::fs::remove_dir_all(&directory).doing_to("remove", &directory)?;
    Ok(row)
}

fn sizes(filled: &Filled, interval: u64, recorder: &mut Recorder) -> Vec<String> {
    let contents = &filled.sealed[0];
    let bytes = u64_of(contents.index.len());
    let batches = contents.log_bytes / filled.batch_bytes;
    let expected = (batches - 1) / (interval / filled.batch_bytes + 1);
    recorder.expect("sweep_index_entries", (bytes / 8, expected), RULE);
    recorder.figure("sweep_batch_bytes", filled.batch_bytes, unit::BYTES);
    recorder.figure("sweep_log_bytes", contents.log_bytes, unit::BYTES);
    recorder.figure("sweep_index_bytes", bytes, unit::BYTES);
    recorder.figure("sweep_index_entries", bytes / 8, unit::COUNT);
    vec![(bytes / 8).to_string(), bytes.to_string()]
}

/// Offsets of a sealed segment.
fn range(contents: &Contents, filled: &Filled) -> std::ops::Range<u64> {
    contents.base..contents.base + contents.log_bytes / filled.batch_bytes
}

/// The same lookups as the engine's, on the files, with everything counted.
fn scans(
    context: &Context,
    filled: &Filled,
    recorder: &mut Recorder,
) -> Result<Vec<String>, Failure> {
    let contents = &filled.sealed[0];
    let file = File::open(&contents.log).doing_to("open", &contents.log)?;
    let (mut bytes, mut headers, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    let count = context.parameters.number("hot_lookups");
    for offset in targets(count, range(contents, filled), context.seed) {
        context.check()?;
        let (_, from) = contents.floor(offset, |_| {});
        let mut walk = Walk::new(&file, from, contents.log_bytes);
        let missing = || Failure::Wrong(format!("offset {offset} is behind no index entry"));
        let batch = walk.find(offset)?.ok_or_else(missing)?;
        bytes.push(batch.at + u64_of(HEADER_BYTES) - from);
        headers.push(walk.headers);
        reads.push(walk.reads);
    }
    let most = bytes.iter().copied().max().unwrap_or_default();
    recorder.figure("walked_bytes_mean", mean(&bytes), MEAN_BYTES);
    recorder.figure("walked_bytes_max", most, unit::BYTES);
    recorder.figure("walked_headers_mean", mean(&headers), MEAN_COUNT);
    recorder.figure("walk_reads_mean", mean(&reads), MEAN_COUNT);
    Ok(vec![format!("{:.0}", mean(&bytes)), most.to_string()])
}

/// By the engine, the index on its heap and the `.log` in the page cache.
async fn hot(context: &Context, filled: &Filled) -> Result<Latency, Failure> {
    let contents = &filled.sealed[0];
    let count = context.parameters.number("hot_lookups");
    // The first one loads the segment.
    look_up(&filled.partition, contents.base).await?;
    let mut latency = Latency::new();
    let progress = context.progress(count, "hot lookups");
    for offset in targets(count, range(contents, filled), context.seed) {
        context.check()?;
        let started = Instant::now();
        look_up(&filled.partition, offset).await?;
        latency.record(started.elapsed());
        progress.advance(1);
    }
    Ok(latency)
}

/// By the engine, nothing of the segment in memory: its files are closed, its index is not loaded,
/// and the page cache has none of it. With the bytes that the device gave for a lookup.
async fn cold(context: &Context, filled: &Filled) -> Result<(Latency, f64), Failure> {
    let index = |contents: &Contents| contents.log.with_extension("index");
    for contents in &filled.sealed {
        page_cache::sync_file(&contents.log)?;
        page_cache::sync_file(&index(contents))?;
    }
    let count = context.parameters.number("cold_lookups");
    let mut latency = Latency::new();
    let before = page_cache::device_bytes();
    let of_first = targets(count, range(&filled.sealed[0], filled), context.seed);
    for (number, offset) in of_first.into_iter().enumerate() {
        context.check()?;
        // Turn and turn about: reading the one makes the engine close the other.
        let (this, first) = (&filled.sealed[number % filled.sealed.len()], &filled.sealed[0]);
        page_cache::drop_file(&this.log)?;
        page_cache::drop_file(&index(this))?;
        let started = Instant::now();
        look_up(&filled.partition, offset - first.base + this.base).await?;
        latency.record(started.elapsed());
    }
    let bytes = page_cache::device_bytes() - before;
    Ok((latency, f64_of(bytes) / f64_of(count.max(1))))
}

async fn look_up(partition: &Partition, offset: u64) -> Result<(), Failure> {
    // One byte: the batch that has the offset and no more.
    match partition.locate(Offset(offset), ByteCount(1), true).await? {
        Some(_) => Ok(()),
        None => Err(Failure::Wrong(format!("offset {offset} can't be found"))),
    }
}

fn pictures(recorder: &mut Recorder, (batches, intervals): (&[u64], &[u64])) {
    let against = |figures: &[&str], parameter: &str| Kind::Scaling {
        figures: names(figures),
        against: parameter.to_owned(),
    };
    // The batch that is nearest to a usual small one, and the interval nearest to the default.
    let near =
        |list: &[u64], wanted: u64| list.iter().copied().min_by_key(|it| it.abs_diff(wanted));
    if let Some(batch) = near(batches, 1000) {
        recorder.picture(
            Picture::new(
                "interval-trade",
                &format!("Where 4,096 lies: index and scan, batches of {batch} bytes"),
                "Falling: bytes of the index. Rising: bytes that a lookup walks over. Left of the \
                 mark the index grows while a walk is a page at most; right of it the index is \
                 small already and every lookup pays.",
                against(&["sweep_index_bytes", "walked_bytes_mean"], "sweep_intervals"),
            )
            .only("sweep_batches", batch)
            .mark(DEFAULT_INTERVAL, "4096"),
        );
        recorder.picture(
            Picture::new(
                "interval-latency",
                &format!("Lookup against index.interval.bytes, batches of {batch} bytes"),
                "Hot lookups are flat up to the mark, since one read of 8 KiB finds the batch, and \
                 rise with every doubling behind it. Cold ones cost a device's latency at any \
                 interval, and rise where the index, which is read whole, is large.",
                against(&["lookup_hot_p50", "lookup_cold_p50"], "sweep_intervals"),
            )
            .only("sweep_batches", batch)
            .mark(DEFAULT_INTERVAL, "4096"),
        );
        recorder.picture(
            Picture::new(
                "lookup-percentiles",
                &format!("Lookups in batches of {batch} bytes, hot"),
                "A line for each interval: the larger it is, the further the line lies above.",
                Kind::Percentiles { latencies: names(&["lookup_hot"]) },
            )
            .only("sweep_batches", batch),
        );
    }
    if let Some(interval) = near(intervals, 4096) {
        recorder.picture(
            Picture::new(
                "batch-size",
                &format!("Index and scan against batch size, index.interval.bytes={interval}"),
                "A batch longer than the interval gets an entry of its own: from there on the \
                 index shrinks with the number of batches, and an entry names the very batch.",
                against(&["sweep_index_bytes", "walked_bytes_mean"], "sweep_batches"),
            )
            .only("sweep_intervals", interval),
        );
    }
}

fn notes(recorder: &mut Recorder) {
    recorder.note(
        "Bytes walked are those from the index entry to the end of the header that ends the walk, \
         that of the batch with the offset: 61 at least. Only headers are looked at, in windows of \
         8 KiB, as the log does it. The swept batches have one record each, so that an index with \
         an entry a batch names the very batch. With more records only the last offset of a batch \
         has the entry, and for all others the batch before is walked over, too.",
    );
    recorder.note(
        "Cold means: the engine has closed the segment and forgotten its index, and the page cache \
         was told to drop its files (POSIX_FADV_DONTNEED). lookup_cold_device_bytes says what came \
         from the device for one lookup; 0 means that the file system lives in memory, and then \
         cold figures say nothing.",
    );
}
