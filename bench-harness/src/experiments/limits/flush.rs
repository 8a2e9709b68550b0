//! `flush.messages` from 1, which is the device tier, to no limit, which is the page cache.

use std::time::Instant;

use uringlog::{ByteCount, LogConfig, RecordBatch, now};

use super::each;
use crate::engines::server::{Server, block_on};
use crate::engines::sink::Sink;
use crate::engines::{batches, library};
use crate::experiments::Failure;
use crate::experiments::measure::f64_of;
use crate::record::picture::names;
use crate::record::{Kind, Latency, Picture, Recorder, unit};
use crate::run::Context;

/// `max.message.bytes`: the largest value that can be set, and more than a batch adds to it.
const BATCH_BYTES_MAX: u64 = 2 << 20;

fn batch(context: &Context) -> RecordBatch {
    let value = batches::bytes(context.parameters.length("flush_record_size"), context.seed);
    batches::uniform(&[&value], now())
}

/// Records and latencies of a point.
fn record(recorder: &mut Recorder, (prefix, latency): (&str, &Latency), started: Instant) {
    let rate = f64_of(latency.total().len()) / started.elapsed().as_secs_f64();
    recorder.latency(&format!("{prefix}_append"), latency);
    recorder.figure(&format!("{prefix}_throughput"), rate.round(), unit::RECORDS_PER_SECOND);
}

/// One record after the other through the library, each acknowledged before the next.
///
/// # Errors
/// Whatever the log refuses.
pub fn directly(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    each(context, recorder, "flush_messages", |every, recorder| {
        let mut options = library::options(context)?;
        options.directory = context.folder.join(format!("flush-{every}"));
        let (latency, started) = library::with_engine(context, options, async |engine| {
            let change = |it: &mut LogConfig| {
                it.flush_messages = every;
                it.batch_bytes_max = ByteCount(BATCH_BYTES_MAX);
            };
            let sink = Sink::library(context, engine, ("flush", 1), change).await?;
            let (count, started) = (context.parameters.number("flush_appends"), Instant::now());
            Ok((appends(context, &sink, count).await?, started))
        })?;
        record(recorder, ("library", &latency), started);
        Ok(())
    })
}

/// The same through the wire: one connection, one request under way.
///
/// # Errors
/// Whatever the server refuses.
pub fn through_the_wire(
    context: &Context,
    server: &Server,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let warm_up = context.parameters.number("flush_warm_up");
    block_on(async {
        let setting = [("max.message.bytes", BATCH_BYTES_MAX)];
        let sink = Sink::wire(server, ("warm-up", 1), &setting).await?;
        appends(context, &sink, warm_up).await
    })?;
    each(context, recorder, "flush_messages", |every, recorder| {
        let count = context.parameters.number("flush_appends");
        let topic = format!("flush-{every}");
        let (latency, started, cpu) = block_on(async {
            let settings = [("flush.messages", every), ("max.message.bytes", BATCH_BYTES_MAX)];
            let sink = Sink::wire(server, (&topic, 1), &settings).await?;
            // The first one finds the leader, and makes the connection.
            appends(context, &sink, 1).await?;
            let (cpu, started) = (server.cpu(), Instant::now());
            Ok((appends(context, &sink, count).await?, started, cpu))
        })?;
        record(recorder, ("wire", &latency), started);
        let cpu = (server.cpu() - cpu).as_secs_f64() * 1e6 / f64_of(latency.total().len());
        recorder.figure("wire_server_cpu", cpu, US_CPU_PER_RECORD);
        Ok(())
    })
}

/// One after the other, each acknowledged before the next.
async fn appends(context: &Context, sink: &Sink, count: u64) -> Result<Latency, Failure> {
    let batch = batch(context);
    let progress = context.progress(count, "single appends");
    let mut latency = Latency::new();
    for _ in 0..count {
        context.check()?;
        let copy = batches::copy(&batch);
        let began = Instant::now();
        sink.append(0, copy).await?;
        latency.record(began.elapsed());
        progress.advance(1);
    }
    Ok(latency)
}

const US_CPU_PER_RECORD: crate::record::Unit =
    crate::record::Unit { name: "us CPU/record", better: crate::record::Better::Lower };

/// What the sweep looks like.
pub fn pictures(recorder: &mut Recorder) {
    for (prefix, how) in [("wire", "through the wire"), ("library", "by the library")] {
        let throughput = names(&[&format!("{prefix}_throughput")]);
        recorder.picture(Picture::new(
            &format!("flush-{prefix}-throughput"),
            &format!("Throughput against flush.messages, {how}"),
            "Left, every record is on the device before it is acknowledged; right, only in the \
             page cache. A line that rises to the right shows what waiting for the device costs, \
             and where it flattens, syncing less often buys nothing more.",
            Kind::Scaling { figures: throughput, against: "flush_messages".to_owned() },
        ));
        let quantiles = names(&[&format!("{prefix}_append_p50"), &format!("{prefix}_append_p99")]);
        recorder.picture(Picture::new(
            &format!("flush-{prefix}-latency"),
            &format!("Latency against flush.messages, {how}"),
            "The median falls as soon as most appends no longer wait for a sync; the 99th \
             percentile only when fewer than one in a hundred does.",
            Kind::Scaling { figures: quantiles, against: "flush_messages".to_owned() },
        ));
    }
    recorder.note(
        "flush.messages=1 is the device tier: uringlog makes small batches durable by its commit \
         journal where that is faster than a sync of the file, Kafka by a sync for each append. \
         Above 1 both acknowledge from the page cache; the append that a sync falls to waits for \
         it.",
    );
}
