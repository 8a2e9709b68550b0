//! A server is killed while it is appended to, and started again: what a producer sees.

use std::time::{Duration, Instant};

use uringlog::now;

use super::scene::{TOPIC, start};
use crate::engines::batches;
use crate::engines::server::block_on;
use crate::engines::sink::Sink;
use crate::experiments::Failure;
use crate::experiments::measure::f64_of;
use crate::record::picture::names;
use crate::record::{Kind, Picture, Recorder, unit};
use crate::run::Context;

/// Of the server in the cell's folder.
const SERVER: &str = "outage";
const VALUE_BYTES: usize = 1000;
/// Points of the series on either side.
const SAMPLES: u64 = 200;

/// Appends, SIGKILL, start, appends again.
///
/// # Errors
/// Those of the server; an acknowledged record that is gone.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let count = context.parameters.number("outage_appends");
    let server = start(context, SERVER, &[])?;
    block_on(async {
        let sink = Sink::wire(&server, (TOPIC, 1), &[]).await?;
        appends(context, (&sink, count), recorder).await.map(drop)
    })?;
    let killed = Instant::now();
    recorder.event_at("kill", recorder.elapsed(), "SIGKILL");
    server.kill()?;
    let server = start(context, SERVER, &[])?;
    recorder.event_at("ready", recorder.elapsed(), "ready");
    let (first, end) = block_on(async {
        let sink = Sink::attach(&server, (TOPIC, 1)).await?;
        let end = sink.end(0).await?;
        Ok((appends(context, (&sink, count), recorder).await?, end))
    })?;
    recorder.expect("offset_after_the_kill", (end, count), "every acknowledged append is there");
    let outage = (first - killed).as_secs_f64();
    recorder.figure("outage", outage, unit::SECONDS);
    recorder.picture(Picture::new(
        "outage",
        "Acknowledged offset over time, through a kill",
        "The line is flat from the kill on, until the server is ready and the first append after \
         it is acknowledged; it goes on where it was, so nothing acknowledged is lost.",
        Kind::Timeline {
            series: names(&["acknowledged offset"]),
            events: names(&["kill", "ready"]),
        },
    ));
    server.stop()
}

/// One after the other; when the first one was acknowledged.
async fn appends(
    context: &Context,
    (sink, count): (&Sink, u64),
    recorder: &mut Recorder,
) -> Result<Instant, Failure> {
    let batch = batches::uniform(&[&batches::bytes(VALUE_BYTES, context.seed)], now());
    let start = sink.end(0).await?;
    let every = (count / SAMPLES).max(1);
    let mut first = None;
    for number in 0..count {
        context.check()?;
        sink.append(0, batches::copy(&batch)).await?;
        first.get_or_insert_with(Instant::now);
        if number % every == 0 || number + 1 == count {
            let at: Duration = recorder.elapsed();
            let offset = f64_of(start + number);
            recorder.sample_at("acknowledged offset", at, (offset, unit::OFFSET));
        }
    }
    Ok(first.expect("one append at least"))
}
