//! What the append that rolls costs, against its neighbours.
//!
//! In each turn every partition gets a batch, and the turn is over when all are acknowledged. All
//! partitions have the same batches, so all of them roll in the same turn.

use std::path::Path;
use std::time::{Duration, Instant};

use uringlog::{Engine, Partition, RecordBatch, now};

use crate::engines::server::Server;
use crate::engines::sink::Sink;
use crate::engines::{batches, files, library};
use crate::experiments::measure::{f64_of, u64_of};
use crate::experiments::{Failure, measure};
use crate::record::picture::names;
use crate::record::{Kind, Latency, Picture, Recorder, unit};
use crate::run::Context;

const TOPIC: &str = "rolls";
/// Bytes of a segment.
const SEGMENT_BYTES: u64 = 1 << 20;
/// Rolls of each partition at least: with fewer, the first roll's caches would be the figure.
const ROLLS_MIN: u64 = 3;
/// Turns on either side of a roll that are its neighbours.
const NEIGHBOURS: u64 = 2;
/// Points of the series.
const SAMPLES_MAX: u64 = 600;

/// A sweep's point: how many partitions take how many batches.
pub struct Point {
    pub partitions: u64,
    pub batch: RecordBatch,
    /// Batches that fit a segment.
    fit: u64,
    pub rolls: u64,
}

impl Point {
    pub fn new(context: &Context, partitions: u64) -> Point {
        let parameters = &context.parameters;
        let around = batches::length(1, 0) + 8;
        let length = SEGMENT_BYTES / parameters.number("cost_batches") - around;
        let value = batches::bytes(measure::usize_of(length), context.seed);
        let batch = batches::uniform(&[&value], now());
        let fit = SEGMENT_BYTES / u64_of(batch.as_bytes().len());
        let rolls = (parameters.number("cost_rolls") / partitions).max(ROLLS_MIN);
        Point { partitions, batch, fit, rolls }
    }

    pub fn batch_bytes(&self) -> u64 {
        u64_of(self.batch.as_bytes().len())
    }

    fn turns(&self) -> u64 {
        self.fit * (self.rolls + 1)
    }

    /// Whether the batch of this turn begins a segment that is not the first.
    fn rolls_in(&self, turn: u64) -> bool {
        fit_remainder(turn, self.fit) == 0 && 0 < turn
    }

    fn is_neighbour(&self, turn: u64) -> bool {
        let past = fit_remainder(turn, self.fit);
        !self.rolls_in(turn) && (past <= NEIGHBOURS || self.fit - past <= NEIGHBOURS)
    }
}

fn fit_remainder(turn: u64, fit: u64) -> u64 {
    turn % fit
}

/// Latencies of appends by what they do.
#[derive(Default)]
struct Latencies {
    all: Latency,
    roll: Latency,
    neighbour: Latency,
    other: Latency,
}

/// Every point of the sweep.
///
/// # Errors
/// Whatever the log refuses.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let sweep = context.parameters.numbers("cost_partitions");
    for partitions in &sweep {
        let point = Point::new(context, *partitions);
        let mut options = library::options(context)?;
        options.directory = context.folder.join(format!("cost-{partitions}"));
        recorder.vary("cost_partitions", *partitions);
        library::with_engine(context, options.clone(), async |engine| {
            measure_point(context, engine, (&point, recorder)).await
        })?;
        // The next point is to find the disk as this one did.
        std::fs::remove_dir_all(&options.directory)
            .map_err(|source| Failure::Io { doing: "remove what was measured on", source })?;
    }
    pictures(recorder, &sweep);
    notes(recorder);
    Ok(())
}

async fn measure_point(
    context: &Context,
    engine: &Engine,
    (point, recorder): (&Point, &mut Recorder),
) -> Result<(), Failure> {
    let mut partitions = Vec::new();
    for number in 0..u32::try_from(point.partitions).expect("at most 1,000") {
        let preallocate = context.parameters.flag("preallocate");
        let spec = library::spec(context, (TOPIC, number), |config| {
            config.segment_bytes.0 = SEGMENT_BYTES;
            config.batch_bytes_max.0 = SEGMENT_BYTES;
            config.preallocate = preallocate;
        });
        partitions.push(engine.open_or_create(spec).await?);
    }
    let started = (Instant::now(), measure::process_cpu());
    let latencies = turns(context, &partitions, (point, recorder)).await?;
    let (wall, cpu) = (started.0.elapsed(), measure::process_cpu() - started.1);
    for partition in &partitions {
        verify(partition.directory(), point)?;
    }
    let bytes = point.turns() * point.partitions * u64_of(point.batch.as_bytes().len());
    let gigabytes = f64_of(bytes) / 1e9;
    recorder.latency("append", &latencies.all);
    recorder.latency("append_that_rolls", &latencies.roll);
    recorder.latency("append_beside_a_roll", &latencies.neighbour);
    recorder.latency("other_append", &latencies.other);
    let rate = f64_of(bytes) / wall.as_secs_f64();
    recorder.figure("rolling_throughput", rate.round(), unit::BYTES_PER_SECOND);
    let cost = cpu.as_secs_f64() / gigabytes;
    recorder.figure("rolling_cpu", cost, unit::CPU_SECONDS_PER_GB);
    let rolling = f64_of(latencies.roll.total().value_at_quantile(0.5));
    let other = f64_of(latencies.other.total().value_at_quantile(0.5));
    recorder.figure("roll_to_other_p50", rolling / other, unit::RATIO);
    Ok(())
}

async fn turns(
    context: &Context,
    partitions: &[Partition],
    (point, recorder): (&Point, &mut Recorder),
) -> Result<Latencies, Failure> {
    let what = format!("{} partitions roll together", point.partitions);
    let progress = context.progress(point.turns(), &what);
    let mut latencies = Latencies::default();
    let begun = recorder.elapsed();
    let every = point.turns().div_ceil(SAMPLES_MAX);
    let mut slowest = Duration::ZERO;
    let started = Instant::now();
    for turn in 0..point.turns() {
        context.check()?;
        let copies: Vec<RecordBatch> =
            partitions.iter().map(|_| batches::copy(&point.batch)).collect();
        let took = one_turn(partitions, copies).await?;
        let kind = match (point.rolls_in(turn), point.is_neighbour(turn)) {
            (true, _) => &mut latencies.roll,
            (false, true) => &mut latencies.neighbour,
            (false, false) => &mut latencies.other,
        };
        for one in &took {
            latencies.all.record(*one);
            kind.record(*one);
        }
        slowest = took.into_iter().fold(slowest, Duration::max);
        let at = begun + started.elapsed();
        if point.rolls_in(turn) {
            recorder.event_at("roll", at, "");
        }
        if turn % every == every - 1 {
            let value = slowest.as_secs_f64() * 1e9;
            recorder.sample_at("slowest append", at, (value, unit::NS));
            slowest = Duration::ZERO;
        }
        progress.advance(1);
    }
    Ok(latencies)
}

/// The same for one partition of a server: one connection, one request under way. The first quarter
/// of the turns only warms the server up.
///
/// # Errors
/// Whatever the server refuses.
pub async fn through_the_wire(
    context: &Context,
    server: &Server,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    recorder.vary("cost_partitions", 1);
    let point = Point::new(context, 1);
    let settings = [("segment.bytes", SEGMENT_BYTES), ("max.message.bytes", SEGMENT_BYTES)];
    let sink = Sink::wire(server, (TOPIC, 1), &settings).await?;
    let progress = context.progress(point.turns(), "rolls, through the wire");
    let (mut roll, mut other) = (Latency::new(), Latency::new());
    for turn in 0..point.turns() {
        context.check()?;
        let batch = batches::copy(&point.batch);
        let started = Instant::now();
        sink.append(0, batch).await?;
        let kind = if point.rolls_in(turn) { &mut roll } else { &mut other };
        if point.turns() / 4 < turn {
            kind.record(started.elapsed());
        }
        progress.advance(1);
    }
    verify(&sink.directory(0), &point)?;
    recorder.latency("wire_append_that_rolls", &roll);
    recorder.latency("wire_other_append", &other);
    recorder.picture(Picture::new(
        "wire-roll-latency",
        "The append that rolls, through the wire",
        "The distance of an engine's two lines is what a roll adds to a request; Kafka makes the \
         same files.",
        Kind::Percentiles { latencies: names(&["wire_append_that_rolls", "wire_other_append"]) },
    ));
    Ok(())
}

/// A batch for each partition; how long each took to be acknowledged.
///
/// # Errors
/// When one of them is refused or lost.
pub async fn one_turn(
    partitions: &[Partition],
    batches: Vec<RecordBatch>,
) -> Result<Vec<Duration>, Failure> {
    let mut waiting = Vec::new();
    for (partition, batch) in partitions.iter().zip(batches) {
        let started = Instant::now();
        let appended = partition.append(batch)?;
        waiting.push((started, partition.reached(appended.due)));
    }
    // Each is asked when it is over, not when those before it are: all of them are polled.
    let mut took = vec![Duration::ZERO; waiting.len()];
    let mut open: Vec<_> = waiting.into_iter().enumerate().collect();
    std::future::poll_fn(|context| {
        let mut failed = None;
        open.retain_mut(|(number, (started, reached))| {
            match std::pin::Pin::new(reached).poll(context) {
                std::task::Poll::Pending => true,
                std::task::Poll::Ready(outcome) => {
                    took[*number] = started.elapsed();
                    failed = outcome.err().or(failed.take());
                    false
                }
            }
        });
        match (failed, open.is_empty()) {
            (Some(error), _) => std::task::Poll::Ready(Err(error)),
            (None, true) => std::task::Poll::Ready(Ok(())),
            (None, false) => std::task::Poll::Pending,
        }
    })
    .await?;
    Ok(took)
}

/// The turns that were counted as rolls are those in which the files say that there was one.
fn verify(partition: &Path, point: &Point) -> Result<(), Failure> {
    let segments = files::segments(partition)?;
    let bases: Vec<u64> = segments.iter().map(|it| it.base).collect();
    let expected: Vec<u64> = (0..=point.rolls).map(|it| it * point.fit).collect();
    if bases == expected {
        return Ok(());
    }
    Err(Failure::Wrong(format!("rolls were to be at {expected:?}, and are at {bases:?}")))
}

fn pictures(recorder: &mut Recorder, sweep: &[u64]) {
    let kinds = names(&["append_that_rolls", "append_beside_a_roll", "other_append"]);
    let ends = [sweep.first(), sweep.last().filter(|it| Some(*it) != sweep.first())];
    for partitions in ends.into_iter().flatten() {
        recorder.picture(
            Picture::new(
                &format!("roll-latency-{partitions}"),
                &format!("The append that rolls, and its neighbours; {partitions} together"),
                "The lines of the appends that roll lie above those of their engine's other \
                 appends by what making three files and trimming two indexes costs; where a \
                 neighbour's line leaves the others', a roll is felt after it is over.",
                Kind::Percentiles { latencies: kinds.clone() },
            )
            .only("cost_partitions", *partitions),
        );
    }
    if let Some(first) = sweep.first() {
        recorder.picture(
            Picture::new(
                "roll-times",
                "Latency over time, rolls marked",
                "Each line across marks a roll. Peaks at the marks are the price of a roll; peaks \
                 between them are something else.",
                Kind::Timeline { series: names(&["slowest append"]), events: names(&["roll"]) },
            )
            .only("cost_partitions", *first),
        );
        recorder.picture(
            Picture::new(
                "roll-heat",
                "Latencies over time",
                "A band is what appends usually take; specks above it at even distances are rolls.",
                Kind::HeatMap { latency: "append".to_owned() },
            )
            .only("cost_partitions", *first),
        );
    }
    recorder.picture(Picture::new(
        "roll-scaling",
        "Median append against partitions that roll together",
        "How far the lines of an engine are apart is what a roll adds; parallel lines mean that it \
         adds the same factor for many partitions as for one.",
        Kind::Scaling {
            figures: names(&["append_that_rolls_p50", "other_append_p50"]),
            against: "cost_partitions".to_owned(),
        },
    ));
    recorder.picture(Picture::new(
        "roll-throughput",
        "Throughput with rolls, in segments of 1 MiB",
        "Higher is better. Whiskers are the range over the rounds.",
        Kind::Bars {
            figures: names(&["rolling_throughput"]),
            by: Some("cost_partitions".to_owned()),
        },
    ));
}

fn notes(recorder: &mut Recorder) {
    recorder.note(
        "uringlog, like Kafka, makes the next segment when a batch no longer fits, as steps of the \
         same plan: appends that roll are timed with unprepared next segments. What preparing \
         them would save is measured on the plans themselves (`plan_that_rolls_prepared`). \
         `--set preallocate=true` has the .log file made at its full length (Kafka's \
         `preallocate`), which is the only preparation that either offers.",
    );
    recorder.note(
        "Timed rolls are of batches of about 64 KiB in segments of 1 MiB, one batch for each \
         partition in a turn; an append's time ends with its acknowledgement.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(fit: u64) -> Point {
        let batch = batches::uniform(&[b"x"], uringlog::Timestamp(0));
        Point { partitions: 1, batch, fit, rolls: 3 }
    }

    #[test]
    fn turns_are_told_apart() {
        let point = point(16);
        let kinds: Vec<u64> = (0..33).filter(|it| point.rolls_in(*it)).collect();
        assert_eq!(kinds, [16, 32]);
        let beside: Vec<u64> = (10..24).filter(|it| point.is_neighbour(*it)).collect();
        assert_eq!(beside, [14, 15, 17, 18]);
        assert_eq!(point.turns(), 64);
    }
}
