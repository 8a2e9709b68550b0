//! Do the histograms show what happened? A known delay is put into every so-manyth sync, and has to
//! be found at its percentile and at its height, in the files that a report is made from.

use std::time::{Duration, Instant};

use uringlog::disk::faults::FaultHook;
use uringlog::shard::JournalMode;
use uringlog::{Partition, now};

use super::Failure;
use super::measure::u64_of;
use crate::engines::{EngineName, Tier, batches, library};
use crate::parameters::{Kind, Parameter, Scaled};
use crate::record::latency::{parse_log, total};
use crate::record::picture::names;
use crate::record::{self, Latency, Picture, Recorder, unit};
use crate::registry::Experiment;
use crate::run::Context;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "self-test",
    question: "Do the histograms show a delay that is known, at its percentile and its height?",
    parameters: PARAMETERS,
    engines: EngineName::OURS,
    tiers: &[Tier::Device],
    file_systems: true,
    seconds: Scaled::same(3),
    run,
};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "delay_ms",
        kind: Kind::Number { default: Scaled::same(5), min: 1, max: 1000 },
        unit: "ms",
        help: "how much later a delayed sync begins; more on a slow disk, unless set",
    },
    Parameter {
        name: "delay_every",
        kind: Kind::Number { default: Scaled::same(1000), min: 200, max: 100_000 },
        unit: "syncs",
        help: "one sync of so many is delayed",
    },
    Parameter {
        name: "delays",
        kind: Kind::Number {
            default: Scaled { quick: 4, normal: 10, full: 20 },
            min: 1,
            max: 1000,
        },
        unit: "",
        help: "how many delayed syncs there are",
    },
];

/// How many times the disk's own 99th percentile a delay has to be to stand out.
const STANDS_OUT: u32 = 4;
/// Appends that this percentile is taken from.
const PROBES: u64 = 300;
/// How often the delays are put in before the disk is given up: it may have become slower since the
/// probes, when others use it.
const ATTEMPTS: u32 = 4;

fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let hook = FaultHook::new();
    let mut options = library::options(context)?;
    options.faults = Some(hook.clone());
    // With the journal an append is one write in place, and no sync.
    options.journals.mode = JournalMode::Never;
    let (latency, delay) = library::with_engine(context, options, async |engine| {
        let partition = library::spec(context, ("known-delay", 0), |_| {});
        let partition = engine.open_or_create(partition).await?;
        standing_out(context, &partition, &hook).await
    })?;
    let delay_ns = u64::try_from(delay.as_nanos()).expect("some seconds at most");
    recorder.figure("delay", delay_ns, unit::NS.told());
    recorder.latency("append", &latency);
    pictures(recorder);
    check(context, recorder, (&latency, delay))
}

/// Appends with the delay that is set; unless it is, with a longer one on a slow disk, so that it
/// stands out.
async fn standing_out(
    context: &Context,
    partition: &Partition,
    hook: &FaultHook,
) -> Result<(Latency, Duration), Failure> {
    let mut delay = Duration::from_millis(context.parameters.number("delay_ms"));
    if context.parameters.is_any_set(&["delay_ms"]) {
        return Ok((appends(context, partition, (hook, delay)).await?, delay));
    }
    let mut usual = p99(&single_appends(context, partition, PROBES).await?);
    let mut attempt = 1;
    loop {
        let stands_out = u64::try_from((STANDS_OUT * usual).as_millis());
        delay = delay.max(Duration::from_millis(stands_out.expect("milliseconds are few")));
        let latency = appends(context, partition, (hook, delay)).await?;
        usual = p99(&latency);
        if usual < delay || attempt == ATTEMPTS {
            return Ok((latency, delay));
        }
        attempt += 1;
    }
}

fn p99(latency: &Latency) -> Duration {
    Duration::from_nanos(latency.total().value_at_quantile(0.99))
}

async fn appends(
    context: &Context,
    partition: &Partition,
    (hook, delay): (&FaultHook, Duration),
) -> Result<Latency, Failure> {
    let every = context.parameters.number("delay_every");
    let count = every * context.parameters.number("delays");
    hook.delay_syncs(every, delay);
    let latency = single_appends(context, partition, count).await;
    hook.delay_syncs(0, Duration::ZERO);
    latency
}

/// One append after the other, each with its sync.
async fn single_appends(
    context: &Context,
    partition: &Partition,
    count: u64,
) -> Result<Latency, Failure> {
    let progress = context.progress(count, "appends with known delays");
    let value = batches::bytes(100, context.seed);
    let mut latency = Latency::new();
    for _ in 0..count {
        context.check()?;
        let batch = batches::uniform(&[&value], now());
        let started = Instant::now();
        let appended = partition.append(batch)?;
        partition.reached(appended.due).await?;
        latency.record(started.elapsed());
        progress.advance(1);
    }
    Ok(latency)
}

/// Reads the histogram as a report does, and looks for the delay.
fn check(
    context: &Context,
    recorder: &mut Recorder,
    (latency, delay): (&Latency, Duration),
) -> Result<(), Failure> {
    let parameters = &context.parameters;
    let (every, delays) = (parameters.number("delay_every"), parameters.number("delays"));
    let delay_ns = u64::try_from(delay.as_nanos()).expect("some seconds at most");
    let slices = parse_log(&latency.log("append"));
    let slices = slices.ok_or_else(|| Failure::Wrong("the log can't be read back".to_owned()))?;
    let histogram = total(slices.iter().map(|it| &it.histogram));
    recorder.expect("appends", (histogram.len(), every * delays), "the programme");
    let high = histogram.iter_recorded().filter(|it| delay_ns <= it.value_iterated_to());
    let high: u64 = high.map(|it| it.count_since_last_iteration()).sum();
    recorder.figure("delayed_appends", high, unit::COUNT.told());
    let is_enough = delays <= high;
    recorder.expect(
        "every_delay_is_shown_at_its_height_or_above",
        (is_enough, true),
        "the delay that was put in",
    );
    let p99 = histogram.value_at_quantile(0.99);
    let is_below = p99 < delay_ns;
    recorder.expect("p99_is_below_the_delay", (is_below, true), "one sync of many is delayed");
    if !is_below {
        recorder.note(
            "The device itself takes as long as the delay for more than one sync of a hundred: \
             give a longer one with --set delay_ms=N.",
        );
    }
    let slowest = slices.iter().filter(|it| delay_ns <= it.histogram.max()).count();
    recorder.expect("slices_with_a_delay", (0 < slowest, true), "the delay that was put in");
    let told = u64_of(slowest);
    recorder.figure("slices_with_delay", told, unit::COUNT.told());
    Ok(())
}

fn pictures(recorder: &mut Recorder) {
    let kind = record::Kind::Percentiles { latencies: names(&["append"]) };
    recorder.picture(Picture::new(
        "known-delay",
        "A known delay in the histogram",
        "All lines rise to the height of the delay (5 ms unless set) where one append in 1,000 is \
         slower, at 99.9 %, and not before: the harness sees what it is to see. Only a \
         disk that is slow itself gets a longer delay.",
        kind,
    ));
}
