//! What appends and fetches of one log feel of a pass that deletes segments of others, on the same
//! shard.
//!
//! An append and a fetch come at even distances. One that begins late, because the shard was busy,
//! counts from when it was to begin: a stall is felt by all that would have come meanwhile.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;
use uringlog::{ByteCount, Engine, LogConfig, Offset, Partition, RecordBatch, Timestamp, now};

use super::{CHECK_MS, pause};
use crate::engines::{batches, files, library};
use crate::experiments::measure::u64_of;
use crate::experiments::{DoingTo, Failure};
use crate::record::picture::names;
use crate::record::{Kind, Latency, Picture, Recorder, Table, unit};
use crate::run::Context;

/// Where segments are deleted.
const TOPIC: &str = "old";
/// Where appends and fetches are timed.
const OTHER: &str = "busy";
const RULE: &str = "the programme";
/// Records that are to go are so old, and may be this old.
const OLD_MS: i64 = 2 * 3_600_000;
const RETENTION_MS: u64 = 3_600_000;
/// From one record to the next, by their times; more than `segment.ms`, so that each rolls.
const STEP_MS: i64 = 2;
const VALUE_BYTES: usize = 1000;
/// Timers are exact to this: one that is later than that was kept waiting.
const TIMER: Duration = Duration::from_millis(2);
/// Nothing waits longer than what is asked for and this.
const GRACE: Duration = Duration::from_secs(120);
/// Looks of the shard's chores come this often; each renames or unlinks a segment of a partition.
const LOOK: Duration = Duration::from_millis(200);
/// Open files of sealed segments, so that those of many partitions fit the ring's table.
const SEALED_FILES_MAX: usize = 64;
/// Sealed segments that may wait for their sync while old ones are made; each has three files open.
/// The shard's chores begin with them at their next look only, so that a wait after each roll would
/// take minutes for thousands of segments.
const UNSYNCED_MAX: u64 = 512;
/// Points of the series.
const SAMPLES_MAX: usize = 500;

/// A sweep's point.
struct Point {
    segments: u64,
    partitions: u64,
}

impl Point {
    fn new(segments: u64, partitions_max: u64) -> Point {
        Point { segments, partitions: partitions_max.min(segments) }
    }

    /// Segments of a partition that are to go.
    fn of_partition(&self, number: u64) -> u64 {
        self.segments / self.partitions + u64::from(number < self.segments % self.partitions)
    }

    fn most(&self) -> u64 {
        self.segments.div_ceil(self.partitions)
    }

    /// Whether what was sealed is to be synced before the next turn.
    fn syncs_after(&self, turn: u64) -> bool {
        turn == self.most() || turn.is_multiple_of((UNSYNCED_MAX / self.partitions).max(1))
    }
}

/// Every point of the sweep.
///
/// # Errors
/// Whatever the log refuses.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let sweep = context.parameters.numbers("cost_segments");
    let columns =
        ["segments", "partitions", "pass, s", "append p99, us", "fetch p99, us", "slowest, us"];
    let mut table = Table::new("During a pass of retention", &columns);
    for segments in &sweep {
        let point = Point::new(*segments, context.parameters.number("cost_partitions"));
        recorder.vary("cost_segments", *segments);
        let mut options = library::options(context)?;
        options.directory = context.folder.join(format!("cost-{segments}"));
        options.retention_check_ms = CHECK_MS;
        options.first_retention_ms = CHECK_MS;
        options.sealed_files_max = SEALED_FILES_MAX;
        let measured = library::with_engine(context, options.clone(), async |engine| {
            measure(context, engine, &point).await
        })?;
        record(&point, &measured, (recorder, &mut table));
        let folder = &options.directory;
        std::fs::remove_dir_all(folder).doing_to("remove what was measured in", folder)?;
    }
    recorder.table(table);
    pictures(recorder, &sweep);
    recorder.vary("cost_segments", Value::from(sweep));
    recorder.note(
        "Segments that a timed pass deletes have one record each and are spread over partitions \
         of the shard (cost_partitions), as on a broker where many logs expire together.",
    );
    Ok(())
}

/// What came out at a point.
struct Measured {
    before: Latencies,
    during: Latencies,
    turns: Vec<Turn>,
    /// From the first log start that moved until no file is left.
    pass: (Instant, Instant),
    segments_deleted: u64,
    files_removed: u64,
    interval: Duration,
}

#[derive(Default)]
struct Latencies {
    append: Latency,
    fetch: Latency,
}

impl Latencies {
    fn record(&mut self, turn: &Turn) {
        self.append.record(turn.append);
        self.fetch.record(turn.fetch);
    }
}

async fn measure(context: &Context, engine: &Engine, point: &Point) -> Result<Measured, Failure> {
    let old = fill(context, engine, point).await?;
    let there = count(&old)?;
    let mut busy = Busy::new(context, engine).await?;
    let before = Duration::from_millis(context.parameters.number("cost_before_ms"));
    let (mut latencies, mut turns) = (Latencies::default(), Vec::new());
    let until = Instant::now() + before;
    while Instant::now() < until {
        context.check()?;
        let turn = busy.turn().await?;
        latencies.record(&turn);
        turns.push(turn);
    }
    for partition in &old {
        let mut config = partition.config();
        config.retention_ms = Some(RETENTION_MS);
        partition.reconfigure(config);
    }
    let watch = Watch::start(&old, point);
    let (mut during, mut began) = (Latencies::default(), None);
    let progress = context.progress(point.segments, "deletion while others append and fetch");
    while !watch.is_over() {
        context.check()?;
        let turn = busy.turn().await?;
        if began.is_none() && old.iter().any(|it| Offset(0) < it.cursors().log_start) {
            // The pass came within this turn.
            began = Some(turn.due);
        }
        let kind = if began.is_some() { &mut during } else { &mut latencies };
        kind.record(&turn);
        turns.push(turn);
    }
    let ended = watch.end()?;
    progress.advance(point.segments);
    let left = count(&old)?;
    Ok(Measured {
        before: latencies,
        during,
        turns,
        pass: (began.unwrap_or(ended), ended),
        segments_deleted: there.segments - left.segments,
        files_removed: there.files - left.files,
        interval: busy.interval,
    })
}

/// What lies in directories.
#[derive(Clone, Copy, Default)]
struct Count {
    segments: u64,
    files: u64,
}

fn count(partitions: &[Partition]) -> Result<Count, Failure> {
    let mut sum = Count::default();
    for partition in partitions {
        sum.segments += u64_of(files::segments(partition.directory())?.len());
        sum.files += u64_of(files::listing(partition.directory())?.len());
    }
    Ok(sum)
}

/// Logs of old segments with one record each, and an active one with a record of now.
async fn fill(
    context: &Context,
    engine: &Engine,
    point: &Point,
) -> Result<Vec<Partition>, Failure> {
    let mut partitions = Vec::new();
    for number in 0..u32::try_from(point.partitions).expect("at most 400") {
        let spec = library::spec(context, (TOPIC, number), |config: &mut LogConfig| {
            config.segment_ms = 1;
            config.retention_ms = None;
            config.file_delete_delay_ms = 0;
        });
        partitions.push(engine.open_or_create(spec).await?);
    }
    let first = now().0 - OLD_MS;
    let progress = context.progress(point.most() + 1, "making old segments");
    for turn in 0..=point.most() {
        context.check()?;
        let mut waiting = Vec::new();
        for (number, partition) in (0u64..).zip(&partitions) {
            let count = point.of_partition(number);
            let step = i64::try_from(turn).expect("few") * STEP_MS;
            let at = if turn < count { Timestamp(first + step) } else { now() };
            if turn <= count {
                let due = partition.append(batches::uniform(&[b"old"], at))?.due;
                waiting.push(partition.reached(due));
            }
        }
        for reached in waiting {
            reached.await?;
        }
        if point.syncs_after(turn) {
            for partition in &partitions {
                flushed(context, partition).await?;
            }
        }
        progress.advance(1);
    }
    Ok(partitions)
}

/// What has been sealed so far is on the device: its files no longer have to stay open.
async fn flushed(context: &Context, partition: &Partition) -> Result<(), Failure> {
    let until = Instant::now() + GRACE;
    // Each record has a segment, so the last one is where the active one begins.
    let base = partition.cursors().next.0 - 1;
    while partition.cursors().recovery_point.0 < base {
        context.check()?;
        if until < Instant::now() {
            let directory = partition.directory().display();
            return Err(Failure::Wrong(format!("{directory}: a sealed segment isn't synced")));
        }
        pause().await;
    }
    Ok(())
}

/// When an append and the fetch behind it were due, and how long they took.
struct Turn {
    due: Instant,
    append: Duration,
    fetch: Duration,
}

/// A log that takes a batch at even distances, each of which is fetched then.
struct Busy {
    partition: Partition,
    batch: RecordBatch,
    due: Instant,
    interval: Duration,
}

impl Busy {
    /// The distances are those asked for, or longer ones that leave the log idle for half the time.
    async fn new(context: &Context, engine: &Engine) -> Result<Busy, Failure> {
        const WARM_UP: u32 = 20;
        let spec = library::spec(context, (OTHER, 0), |config| config.retention_ms = None);
        let partition = engine.open_or_create(spec).await?;
        let value = batches::bytes(VALUE_BYTES, context.seed);
        let batch = batches::uniform(&[&value], now());
        let (due, interval) = (Instant::now(), Duration::ZERO);
        let mut busy = Busy { partition, batch, due, interval };
        let started = Instant::now();
        for _ in 0..WARM_UP {
            busy.due = Instant::now();
            busy.turn().await?;
        }
        let asked = Duration::from_micros(context.parameters.number("cost_interval_us"));
        busy.interval = asked.max(started.elapsed() * 2 / WARM_UP);
        busy.due = Instant::now();
        Ok(busy)
    }

    async fn turn(&mut self) -> Result<Turn, Failure> {
        sleep(self.due.saturating_duration_since(Instant::now())).await;
        let due = self.due;
        let began = began(due);
        let appended = self.partition.append(batches::copy(&self.batch))?;
        self.partition.reached(appended.due).await?;
        let (append, began) = (began.elapsed(), Instant::now());
        let bytes_max = ByteCount(u64_of(self.batch.as_bytes().len()));
        let read = self.partition.read(appended.base_offset, bytes_max).await?;
        if read.len() != self.batch.as_bytes().len() {
            let text = format!("{} of {bytes_max} acknowledged bytes can be read", read.len());
            return Err(Failure::Wrong(text));
        }
        self.due += self.interval;
        Ok(Turn { due, append, fetch: began.elapsed() })
    }
}

/// Something that is later than a timer makes it was kept waiting, which is to be counted.
fn began(due: Instant) -> Instant {
    let now = Instant::now();
    if due + TIMER < now { due } else { now }
}

/// Looks at directories from a thread of its own, so that looking takes no time of the shard's.
struct Watch {
    thread: Option<JoinHandle<Result<Instant, Failure>>>,
    is_given_up: Arc<AtomicBool>,
}

impl Watch {
    fn start(partitions: &[Partition], point: &Point) -> Watch {
        let most = u32::try_from(point.most()).unwrap_or(u32::MAX);
        let until = Instant::now() + LOOK.saturating_mul(most.saturating_mul(8)) + GRACE;
        let is_given_up = Arc::new(AtomicBool::new(false));
        let mut left: Vec<PathBuf> =
            partitions.iter().map(|it| it.directory().to_owned()).collect();
        let flag = is_given_up.clone();
        let watched = move || {
            while !left.is_empty() {
                let mut waiting = Vec::new();
                for path in left {
                    if !is_clean(&path)? {
                        waiting.push(path);
                    }
                }
                left = waiting;
                if until < Instant::now() || flag.load(Ordering::Relaxed) {
                    let text = format!("{} logs still have files of deleted segments", left.len());
                    return Err(Failure::Wrong(text));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(Instant::now())
        };
        Watch { thread: Some(std::thread::spawn(watched)), is_given_up }
    }

    fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// When the last file was gone.
    fn end(mut self) -> Result<Instant, Failure> {
        let failed = || Failure::Wrong("the thread that looks at directories failed".to_owned());
        let thread = self.thread.take().ok_or_else(failed)?;
        thread.join().map_err(|_| failed())?
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }
}

/// Whether only the active segment is left, and no file of another.
fn is_clean(directory: &Path) -> Result<bool, Failure> {
    let listing = files::listing(directory)?;
    let logs = listing.iter().filter(|it| it.0.contains(".log")).count();
    Ok(logs == 1 && !listing.iter().any(|it| it.0.ends_with(".deleted")))
}

fn record(point: &Point, measured: &Measured, (recorder, table): (&mut Recorder, &mut Table)) {
    let Measured { before, during, pass, .. } = measured;
    recorder.latency("append_before_pass", &before.append);
    recorder.latency("append_during_pass", &during.append);
    recorder.latency("fetch_before_pass", &before.fetch);
    recorder.latency("fetch_during_pass", &during.fetch);
    recorder.expect("segments_deleted", (measured.segments_deleted, point.segments), RULE);
    recorder.figure("segments_deleted", measured.segments_deleted, unit::COUNT);
    recorder.figure("files_removed", measured.files_removed, unit::COUNT);
    let seconds = (pass.1 - pass.0).as_secs_f64();
    recorder.figure("pass_time", seconds, unit::SECONDS);
    let interval = measured.interval.as_secs_f64() * 1e9;
    recorder.figure("cost_interval_used", interval, unit::NS.told());
    let us = |latency: &Latency, quantile| latency.total().value_at_quantile(quantile) / 1000;
    let slowest = us(&during.append, 1.0).max(us(&during.fetch, 1.0));
    table.row(vec![
        point.segments.to_string(),
        point.partitions.to_string(),
        format!("{seconds:.2}"),
        us(&during.append, 0.99).to_string(),
        us(&during.fetch, 0.99).to_string(),
        slowest.to_string(),
    ]);
    series(measured, recorder);
}

fn series(measured: &Measured, recorder: &mut Recorder) {
    let past = |recorder: &Recorder, at: Instant| recorder.elapsed().saturating_sub(at.elapsed());
    let every = measured.turns.len().div_ceil(SAMPLES_MAX).max(1);
    for turns in measured.turns.chunks(every) {
        let at = past(recorder, turns[0].due);
        let slowest = |of: fn(&Turn) -> Duration| {
            let most = turns.iter().map(of).max().unwrap_or_default();
            most.as_secs_f64() * 1e9
        };
        recorder.sample_at("slowest append", at, (slowest(|it| it.append), unit::NS));
        recorder.sample_at("slowest fetch", at, (slowest(|it| it.fetch), unit::NS));
    }
    for (event, at) in [("pass begins", measured.pass.0), ("files are gone", measured.pass.1)] {
        let at = past(recorder, at);
        recorder.event_at(event, at, "");
    }
}

fn pictures(recorder: &mut Recorder, sweep: &[u64]) {
    let Some(most) = sweep.iter().max() else { return };
    recorder.picture(
        Picture::new(
            "pass-times",
            &format!("Appends and fetches while {most} segments are deleted"),
            "Between the marks segments leave their logs, files are renamed and unlinked. Peaks \
             there, and not before, are what others feel of it.",
            Kind::Timeline {
                series: names(&["slowest append", "slowest fetch"]),
                events: names(&["pass begins", "files are gone"]),
            },
        )
        .only("cost_segments", *most),
    );
    for (what, latencies) in [
        ("append", names(&["append_before_pass", "append_during_pass"])),
        ("fetch", names(&["fetch_before_pass", "fetch_during_pass"])),
    ] {
        recorder.picture(
            Picture::new(
                &format!("pass-{what}-latency"),
                &format!("The {what} before and during a pass that deletes {most} segments"),
                "Where an engine's two lines part is the share of requests that feel the pass; the \
                 distance is what they feel.",
                Kind::Percentiles { latencies },
            )
            .only("cost_segments", *most),
        );
    }
    recorder.picture(Picture::new(
        "pass-scaling",
        "Slowest append and fetch against the segments that a pass deletes",
        "A level line means that a pass is spread so well that nobody feels its size.",
        Kind::Scaling {
            figures: names(&["append_during_pass_max", "fetch_during_pass_max"]),
            against: "cost_segments".to_owned(),
        },
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_spread_evenly() {
        for (segments, partitions) in [(1, 20), (20, 20), (10_000, 400), (105, 10)] {
            let point = Point::new(segments, partitions);
            let sum: u64 = (0..point.partitions).map(|it| point.of_partition(it)).sum();
            assert_eq!(sum, segments);
            assert!((0..point.partitions).all(|it| {
                let count = point.of_partition(it);
                0 < count && count <= point.most() && point.most() <= count + 1
            }));
        }
    }

    #[test]
    fn what_waits_for_its_sync_is_bounded() {
        for partitions in [1, 8, 400, 10_000] {
            let point = Point::new(100_000, partitions);
            let mut waiting = 0;
            for turn in 0..=point.most() {
                waiting += point.partitions;
                assert!(waiting <= UNSYNCED_MAX.max(point.partitions) + point.partitions);
                waiting = if point.syncs_after(turn) { 0 } else { waiting };
            }
            assert_eq!(waiting, 0, "{partitions} partitions");
        }
    }

    #[test]
    fn a_directory_is_clean_when_one_segment_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str| std::fs::write(folder.path().join(name), b"x").expect("a file");
        let is_clean = || is_clean(folder.path()).expect("a listing");
        write("00000000000000000001.log");
        write("00000000000000000001.index");
        assert!(is_clean());
        write("00000000000000000000.index.deleted");
        assert!(!is_clean());
        std::fs::remove_file(folder.path().join("00000000000000000000.index.deleted"))
            .expect("it is there");
        write("00000000000000000000.log");
        assert!(!is_clean());
    }

    #[test]
    fn what_was_kept_waiting_counts_from_when_it_was_due() {
        let now = Instant::now();
        let late = now.checked_sub(Duration::from_millis(50)).expect("up for longer than that");
        assert_eq!(began(late), late);
        assert!(now <= began(now));
    }
}
