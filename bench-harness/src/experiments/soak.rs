//! Does a server stay as it is: its memory, its descriptors, its latency, with retention deleting
//! what it serves?
//!
//! A fixed rate of batches is produced and consumed for an hour (`--full`; `--set seconds=` for
//! another time), open-loop, with segments that roll and retention that deletes them all the time.
//! One round says it all: `bench-harness run soak --full --rounds 1`.
//!
//! # Figures
//!
//! Time is cut into slices of `slice_seconds`; lists have a value for each whole one.
//!
//! | figure | holds |
//! |---|---|
//! | `slices` | how many there are |
//! | `memory_by_slice` | bytes that were resident at the end of each |
//! | `descriptors_by_slice`, `threads_by_slice` | open ones, at the same time |
//! | `latency_p50_by_slice`, `latency_p99_by_slice` | ns, of produce-to-consume |
//! | `memory_at_begin`, `memory_at_end` | medians of the first and the last fifth of the slices |
//! | `descriptors_at_begin`, `descriptors_at_end` | the same |
//! | `memory_growth_per_hour`, `descriptor_growth_per_hour` | slope of a line through all slices |
//! | `latency_p50_drift`, `latency_p99_drift` | last fifth over first fifth: 1 is no drift |
//! | `produce_to_consume_latency_p50` ..., `..._acknowledged_p50` ... | of all batches |
//! | `scheduled_requests`, `unanswered_requests` | checked: all were due, all came |
//! | `answered_rate`, `server_cpu_cores`, `server_cpu_per_gb` | of the whole time |
//! | `kept_bytes_max`, `kept_bytes_at_end` | of logs, under load and when retention is done |
//! | `log_starts`, `log_ends` | offsets of the partitions at the end |
//! | `generator_busy`, `generator_late_p99`, `generator_is_bottleneck` | as in end-to-end |
//!
//! A soak that broke off has `broken_off_after` (seconds), the lists up to then, and its latencies
//! as `produce_to_consume_latency_until_broken_off`.

mod findings;
mod kept;
mod pictures;

use std::time::Duration;

use uringlog::client::{Acks, timestamp};

use super::Failure;
use super::end_to_end;
use super::load::served::{Observed, observe};
use super::load::{Kind as Load, Pace, Plan, Reach, Tally};
use super::measure::f64_of;
use crate::engines::server::{self, Server};
use crate::engines::usage::{Usage, Watcher};
use crate::engines::{EngineName, Tier};
use crate::parameters::{Kind, Parameter, Scaled};
use crate::record::Recorder;
use crate::registry::Experiment;
use crate::run::Context;

use findings::Findings;
use kept::Kept;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "soak",
    question: "Do memory, descriptors and latency of a server stay what they are, for an hour, \
               with retention on?",
    parameters: PARAMETERS,
    engines: EngineName::ALL,
    tiers: Tier::ALL,
    file_systems: false,
    seconds: Scaled { quick: 3, normal: 66, full: 3661 },
    run,
};

const TOPIC: &str = "soak";
const MIB: u64 = 1 << 20;
/// What is left of logs is looked at that often while retention has its last passes.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// So long may they take, passes aside.
const SETTLE_MAX: Duration = Duration::from_secs(20);

const PARAMETERS: &[Parameter] = &[
    decimal("seconds", (1.6, 60.0, 3600.0), "s", "time that counts"),
    decimal("warm_up_seconds", (0.2, 5.0, 60.0), "s", "time before that: Java is slow at first"),
    decimal("slice_seconds", (0.2, 2.0, 30.0), "s", "time between two values of a series"),
    scaled("rate", (600, 500, 500), (1, 1_000_000), "requests/s", "batches that are sent"),
    scaled("partitions", (1, 4, 4), (1, 1000), "", "of the topic"),
    scaled("connections", (1, 4, 4), (1, 1000), "", "that take the batches by turns"),
    scaled("batch_records", (10, 10, 10), (1, 100_000), "", "records in a batch"),
    scaled("record_bytes", (1000, 1000, 1000), (16, 65_536), "bytes", "value of a record"),
    scaled("segment_mib", (1, 4, 16), (1, 1024), "MiB", "segment.bytes"),
    scaled("retention_mib", (5, 16, 64), (1, 1 << 20), "MiB", "retention.bytes of a partition"),
    scaled(
        "retention_check_ms",
        (200, 1000, 5000),
        (10, 3_600_000),
        "ms",
        "log.retention.check.interval.ms",
    ),
];

const fn decimal(
    name: &'static str,
    (quick, normal, full): (f64, f64, f64),
    unit: &'static str,
    help: &'static str,
) -> Parameter {
    let default = Scaled { quick, normal, full };
    let kind = Kind::Decimal { default, min: 0.05, max: 1_000_000.0 };
    Parameter { name, kind, unit, help }
}

const fn scaled(
    name: &'static str,
    (quick, normal, full): (u64, u64, u64),
    (min, max): (u64, u64),
    unit: &'static str,
    help: &'static str,
) -> Parameter {
    let default = Scaled { quick, normal, full };
    Parameter { name, kind: Kind::Number { default, min, max }, unit, help }
}

fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    pictures::declare(recorder);
    let check = context.parameters.number("retention_check_ms").to_string();
    let settings = [
        ("log.retention.check.interval.ms", check.as_str()),
        ("log.initial.task.delay.ms", "100"),
        ("log.segment.delete.delay.ms", "100"),
    ];
    let mut server = Server::start(context, "server", &settings)?;
    let mut findings = Findings::new(recorder.elapsed(), slice(context));
    let observed = soak(context, &mut server, (&mut findings, recorder));
    let observed = observed.inspect_err(|_| findings.record(recorder))?;
    findings.record(recorder);
    findings::whole(recorder, &observed);
    if let Some(failure) = observed.measured.broken_off {
        return Err(failure);
    }
    let scheduled = observed.measured.tally.scheduled_count();
    let written = observed.measured.tally.bytes_ever();
    let length = observed.measured.plan.warm_up + observed.measured.plan.counted;
    let planned = end_to_end::scheduled(f64_of(context.parameters.number("rate")), length);
    let source = "an open loop offers what its rate says, whatever becomes of it";
    let beside = scheduled.abs_diff(planned);
    recorder.expect("requests_beside_the_schedule", (beside, 0), source);
    let source = "every batch that is sent reaches the consumer";
    recorder.expect("unanswered_requests", (observed.measured.tally.open(), 0), source);
    retention(context, (&server, written), recorder)?;
    server.stop()
}

fn slice(context: &Context) -> Duration {
    Duration::from_secs_f64(context.parameters.decimal("slice_seconds"))
}

fn soak(
    context: &Context,
    server: &mut Server,
    (findings, recorder): (&mut Findings, &mut Recorder),
) -> Result<Observed, Failure> {
    /// Looks in a slice.
    const LOOKS: u32 = 10;
    let plan = plan(context, server);
    let every = (slice(context) / LOOKS).clamp(Duration::from_millis(20), Duration::from_secs(1));
    let data = server.data.clone();
    let kept = Watcher::start(every, move || Some(Kept::of(&data, TOPIC)))?;
    let whole = plan.warm_up + plan.counted;
    let progress = context.progress(whole.as_secs(), "soak");
    let (warm_up, mut told) = (plan.warm_up, 0);
    let mut each = |elapsed: Duration, tally: &mut Tally, samples: &[Usage]| {
        progress.advance(elapsed.as_secs().saturating_sub(told));
        told = elapsed.as_secs();
        let kept = kept.read().unwrap_or_default();
        findings.look(elapsed, (samples, &kept), recorder);
        if warm_up <= elapsed {
            findings.slice_if_due(elapsed, tally, recorder);
        }
    };
    observe(context, server, (plan, every), &mut each)
}

fn plan(context: &Context, server: &Server) -> Plan {
    let parameters = &context.parameters;
    let number = |name: &str| i32::try_from(parameters.number(name)).expect("bounded by the table");
    let setting =
        |name: &str, of: &str| (name.to_owned(), (parameters.number(of) * MIB).to_string());
    let seconds = |name: &str| Duration::from_secs_f64(parameters.decimal(name));
    Plan {
        kind: Load::EndToEnd,
        bootstrap: server.address.clone(),
        topic: TOPIC.to_owned(),
        topic_settings: vec![
            setting("segment.bytes", "segment_mib"),
            setting("retention.bytes", "retention_mib"),
            setting("max.message.bytes", "segment_mib"),
        ],
        partitions: number("partitions"),
        pace: Pace::Rate(f64_of(parameters.number("rate"))),
        connections: number("connections"),
        reach: Reach::ItsShare,
        in_flight: 64,
        batch_records: parameters.length("batch_records"),
        record_bytes: parameters.length("record_bytes"),
        acks: Acks::All,
        fetch_bytes: 1 << 20,
        warm_up: seconds("warm_up_seconds"),
        counted: seconds("seconds"),
    }
}

/// Nothing is written any more: retention comes to its end, and what it leaves is looked at.
fn retention(
    context: &Context,
    (server, written): (&Server, u64),
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let parameters = &context.parameters;
    let most = parameters.number("partitions")
        * MIB
        * (parameters.number("retention_mib") + parameters.number("segment_mib"));
    let pass = Duration::from_millis(parameters.number("retention_check_ms"));
    let until = recorder.elapsed() + SETTLE_MAX + 2 * pass;
    let mut kept = Kept::of(&server.data, TOPIC);
    while most < kept.bytes && recorder.elapsed() < until {
        context.check()?;
        std::thread::sleep(LOOK_EVERY);
        kept = Kept::of(&server.data, TOPIC);
    }
    let (starts, ends) = server::block_on(async {
        let client = server.client().await?;
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        let partitions = parameters.number("partitions");
        for partition in 0..i32::try_from(partitions).expect("bounded by the table") {
            for (at, list) in [(timestamp::EARLIEST, &mut starts), (timestamp::LATEST, &mut ends)] {
                list.push(client.list_offsets(TOPIC, partition, at).await?.offset);
            }
        }
        Ok((starts, ends))
    })?;
    findings::retention(recorder, (kept, most, written), (&starts, &ends));
    Ok(())
}
