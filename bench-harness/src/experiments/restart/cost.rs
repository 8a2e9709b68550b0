//! Time of a restart against the number of partitions, and against the data in one.

use std::time::Instant;

use serde_json::Value;
use uringlog::{LogConfig, now};

use super::open;
use super::scene::{Case, Scene};
use crate::engines::batches;
use crate::engines::sink::Sink;
use crate::experiments::Failure;
use crate::experiments::measure::{u64_of, usize_of};
use crate::parameters::Scale;
use crate::record::picture::names;
use crate::record::{Kind, Latency, Picture, Recorder, unit};
use crate::run::Context;

const CASES: &[Case] = &[Case::Clean, Case::KilledBeforeCheckpoint, Case::Killed];
/// The least and the most: of a quick run, and of Kafka, where every start after a kill takes nine
/// seconds more (the session of the broker that was killed has to expire).
const FEW_CASES: &[Case] = &[Case::Clean, Case::KilledBeforeCheckpoint];

/// A point of a sweep.
#[derive(Clone, Copy, Debug)]
struct Point {
    partitions: u64,
    /// Of each partition, about.
    bytes: u64,
}

/// Both sweeps.
///
/// # Errors
/// Those of servers, files and the engine.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let parameters = &context.parameters;
    let (partitions, data) =
        (parameters.numbers("cost_partitions"), parameters.numbers("cost_data_bytes"));
    recorder.vary("sweep", "partitions");
    for count in &partitions {
        recorder.vary("cost_partitions", *count);
        let bytes = parameters.number("cost_partition_bytes");
        measure(context, Point { partitions: *count, bytes }, recorder)?;
    }
    recorder.vary("cost_partitions", Value::from(partitions));
    recorder.vary("sweep", "data");
    for bytes in &data {
        recorder.vary("cost_data_bytes", *bytes);
        measure(context, Point { partitions: 1, bytes: *bytes }, recorder)?;
    }
    recorder.vary("cost_data_bytes", Value::from(data));
    recorder.forget("sweep");
    pictures(recorder);
    Ok(())
}

fn measure(context: &Context, point: Point, recorder: &mut Recorder) -> Result<(), Failure> {
    context.check()?;
    let segment_bytes = context.parameters.number("cost_segment_bytes");
    let settings = [("segment.bytes", segment_bytes)];
    let partitions = u32::try_from(point.partitions).expect("at most 10,000");
    let scene =
        Scene::make(context, partitions, &settings, async |sink| fill(context, sink, point).await)?;
    let configure = |config: &mut LogConfig| config.segment_bytes.0 = segment_bytes;
    let is_quick = context.scale == Scale::Quick;
    let is_library = context.engine().is_some_and(|it| it.of_library().is_some());
    for case in if is_quick || !is_library { FEW_CASES } else { CASES } {
        recorder.vary("case", case.name());
        let (mut opening, mut ready) = (Latency::new(), Latency::new());
        for _ in 0..context.parameters.number("repeats") {
            context.check()?;
            if is_library {
                let data = scene.prepare(*case)?;
                let opened = open::open(context, (&data, partitions), configure)?;
                opening.record(opened.took);
                let checked = opened.sum(|it| it.checked.0);
                recorder.figure("cost_checked_bytes", checked, unit::BYTES.told());
            }
            if is_library && is_quick {
                continue;
            }
            scene.prepare(*case)?;
            let started = Instant::now();
            let server = scene.start()?;
            ready.record(started.elapsed());
            server.kill()?;
        }
        for (name, latency) in [("cost_open", &opening), ("cost_ready", &ready)] {
            if !latency.total().is_empty() {
                recorder.latency(name, latency);
            }
        }
    }
    recorder.forget("case");
    Ok(())
}

/// Batches of a length to all partitions by turns.
async fn fill(context: &Context, sink: &Sink, point: Point) -> Result<(), Failure> {
    let length = context.parameters.number("cost_batch_bytes");
    let around = batches::length(1, 0) + 8;
    let value = batches::bytes(usize_of(length.saturating_sub(around)), context.seed);
    let batch = batches::uniform(&[&value], now());
    let each = point.bytes.div_ceil(u64_of(batch.as_bytes().len()));
    let progress = context.progress(each * point.partitions, "what is recovered later");
    for _ in 0..each {
        for partition in 0..sink.partitions() {
            context.check()?;
            sink.append(partition, batches::copy(&batch)).await?;
            progress.advance(1);
        }
    }
    Ok(())
}

fn pictures(recorder: &mut Recorder) {
    let sweeps = [
        ("partitions", "cost_partitions", "partitions"),
        ("data", "cost_data_bytes", "bytes in one partition"),
    ];
    for (sweep, against, what) in sweeps {
        for (figure, how) in [
            ("cost_open_p50", "opened in this process"),
            ("cost_ready_p50", "until the server serves"),
        ] {
            let name = figure.trim_start_matches("cost_").trim_end_matches("_p50");
            let kind = Kind::Scaling { figures: names(&[figure]), against: against.to_owned() };
            let see = match sweep {
                "partitions" => {
                    "Each partition costs its share, whatever the stop was: files are opened, \
                     indexes made at full length. The distance of the lines is what is scanned."
                }
                _ => {
                    "Without a checkpoint the time follows the data, since all of it is checked; \
                     with one, and after an orderly stop, only headers are read, and the lines are \
                     flatter."
                }
            };
            let picture = Picture::new(
                &format!("{name}-by-{sweep}"),
                &format!("Restart against {what}, {how}"),
                see,
                kind,
            );
            recorder.picture(picture.only("sweep", sweep));
        }
    }
}
