//! Which latency do clients see through the wire, at which share of the greatest rate, and what
//! does the server take for it?
//!
//! The load is open-loop (`bench-harness load`): requests have a schedule that doesn't wait for
//! answers, and latency counts from the time that the schedule names. The maximum is found first,
//! closed-loop: with as many requests under way as the connections allow, the next is sent as soon
//! as one is answered. Then shares of it are offered, `percents`. The same load drives uringlog's
//! server with both engines, and Kafka.
//!
//! `load` is one of `produce` (until the batch is acknowledged), `fetch` (at offsets that jump
//! about in `fetch_data_mib` of data) and `produce-to-consume` (until a consumer that follows has
//! the batch). `varied` names the factor in which a load differs from the base: `nothing`,
//! `batch_records`, `partitions` or `acks`; full runs vary each, one at a time. Engine, tier and
//! file system are cells. An interrupted run goes on with `--resume`.
//!
//! # Figures
//!
//! For each `load` and `varied`:
//!
//! | figure | holds |
//! |---|---|
//! | `maximum_rate` | requests/s that were answered in the closed loop |
//! | `maximum_throughput` | bytes/s of records in them |
//! | `maximum_server_cpu` | cores that the server kept busy |
//! | `maximum_generator_busy` | share of its core that the load generator needed |
//! | `maximum_generator_is_bottleneck` | 1 when that was above 0.95, else 0 |
//!
//! and for each `percent` of it:
//!
//! | figure | holds |
//! |---|---|
//! | `LOAD_latency_p50` ... `_max` | from the intended send time; `LOAD` with underscores |
//! | `produce_to_consume_acknowledged_p50` ... | the same to the acknowledgement |
//! | `offered_rate`, `answered_rate` | requests/s by the schedule, and until the last answer |
//! | `throughput` | bytes/s of records that were answered |
//! | `scheduled_requests` | warm-up included; checked to be what the rate says |
//! | `unanswered_requests` | 10 s after the last one was due |
//! | `server_cpu_seconds`, `server_cpu_cores` | of its process, while requests counted |
//! | `server_cpu_per_gb` | the same for each 10^9 bytes of records |
//! | `server_memory` | the most that was resident |
//! | `generator_cpu_seconds`, `generator_busy` | without waiting for due times; share of its core |
//! | `generator_late_p99` | how late one request in a hundred was sent |
//! | `generator_is_bottleneck` | 1 when it was late by 1 ms, or busy above 0.95; else 0 |
//!
//! `LOAD_latency_p99_at_rate` is the same latency for the parameter `rate` instead of `percent`;
//! `LOAD_latency_p99_of_a_late_generator` stands there for marked points only;
//! `throughput_by_FACTOR` gathers the maxima of the points of a factor. A point that broke off has
//! `broken_off_after` (seconds) and its latencies as `LOAD_latency_until_broken_off`.

mod pictures;
mod point;
mod programme;
mod record;

use std::time::Duration;

use super::Failure;
use super::measure::u64_of;
use crate::engines::server::Server;
use crate::engines::{EngineName, Tier};
use crate::parameters::{Kind, Parameter, Scaled, number, same};
use crate::record::Recorder;
use crate::registry::Experiment;
use crate::run::Context;

pub use programme::{ACKS, scheduled};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "end-to-end",
    question: "Which latency do clients see through the wire at which share of the greatest rate, \
               and what does that cost the server?",
    parameters: PARAMETERS,
    engines: EngineName::ALL,
    tiers: Tier::ALL,
    file_systems: true,
    seconds: Scaled { quick: 3, normal: 47, full: 1000 },
    run,
};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "loads",
        kind: Kind::Choice {
            default: "all",
            of: &["all", "produce", "fetch", "produce-to-consume"],
        },
        unit: "",
        help: "which of them",
    },
    Parameter {
        name: "percents",
        kind: Kind::Numbers {
            default: Scaled {
                quick: &[10, 50, 100],
                normal: &[10, 25, 50, 75, 90, 100],
                full: &[10, 20, 30, 40, 50, 60, 70, 80, 90, 100],
            },
            min: 1,
            max: 200,
        },
        unit: "percent",
        help: "shares of the maximum that are offered",
    },
    Parameter {
        name: "rate",
        kind: Kind::Number { default: Scaled::same(0), min: 0, max: 10_000_000 },
        unit: "requests/s",
        help: "what 100 percent is; 0: the maximum is found first",
    },
    seconds("seconds", (0.12, 2.0, 10.0), "time of a point that counts"),
    seconds("warm_up_seconds", (0.05, 0.25, 1.0), "time of a point before that"),
    seconds("maximum_seconds", (0.12, 1.5, 5.0), "time of the search for a maximum"),
    seconds("server_warm_up_seconds", (0.1, 1.0, 5.0), "load before the first point"),
    seconds("java_warm_up_seconds", (0.1, 25.0, 60.0), "the same for Kafka: Java is slow at first"),
    number("partitions", same(4), (1, 1000), "", "of the topic"),
    number("connections", same(4), (1, 1000), "", "that take the requests by turns"),
    number("in_flight", same(64), (1, 10_000), "", "requests under way on a connection at most"),
    number("batch_records", same(10), (1, 100_000), "", "records in a batch"),
    number("record_bytes", same(1000), (16, 1 << 20), "bytes", "value of a record"),
    number("fetch_bytes", same(64 << 10), (1, 64 << 20), "bytes", "that a fetch may bring"),
    Parameter {
        name: "fetch_data_mib",
        kind: Kind::Number {
            default: Scaled { quick: 2, normal: 64, full: 256 },
            min: 1,
            max: 1 << 20,
        },
        unit: "MiB",
        help: "of records that fetches read from",
    },
    Parameter {
        name: "acks",
        kind: Kind::Choice { default: "all", of: ACKS },
        unit: "",
        help: "that producers ask for",
    },
    Parameter {
        name: "vary",
        kind: Kind::Choice { default: "in-full-runs", of: &["in-full-runs", "always", "never"] },
        unit: "",
        help: "change batch size, partitions and acks, too, one at a time",
    },
    Parameter {
        name: "batch_records_sweep",
        kind: Kind::Numbers { default: Scaled::same(&[1, 10, 100, 500]), min: 1, max: 100_000 },
        unit: "",
        help: "points when batch_records is varied",
    },
    Parameter {
        name: "partitions_sweep",
        kind: Kind::Numbers { default: Scaled::same(&[1, 4, 16, 64]), min: 1, max: 1000 },
        unit: "",
        help: "points when partitions is varied",
    },
    Parameter {
        name: "varied_percents",
        kind: Kind::Numbers { default: Scaled::same(&[50, 90]), min: 1, max: 200 },
        unit: "percent",
        help: "shares of the maximum that are offered then",
    },
    number(
        "point_mib_max",
        same(4096),
        (1, 1 << 30),
        "MiB",
        "that one point may write: it is shorter \
            where that would be more",
    ),
];

const fn seconds(
    name: &'static str,
    (quick, normal, full): (f64, f64, f64),
    help: &'static str,
) -> Parameter {
    let default = Scaled { quick, normal, full };
    let kind = Kind::Decimal { default, min: 0.01, max: 86_400.0 };
    Parameter { name, kind, unit: "s", help }
}

/// Topics go at once when they are deleted, so that no point's data weighs on the next one. Batches
/// of every size are taken.
const SETTINGS: &[(&str, &str)] =
    &[("log.segment.delete.delay.ms", "0"), ("message.max.bytes", "134217728")];

fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    pictures::declare(context, recorder);
    let sweeps = programme::sweeps(context);
    let time = programme::estimate(&context.parameters, programme::warm_up_of(context), &sweeps);
    let points: usize = sweeps.iter().map(|it| it.percents.len()).sum();
    if Duration::from_secs(10) < time {
        context.tell(&format!(
            "end-to-end: {} maxima and {points} points in this cell, about {} s",
            sweeps.len(),
            time.as_secs()
        ));
    }
    let mut server = Server::start(context, "server", SETTINGS)?;
    let mut maxima = Vec::new();
    let progress = context.progress(u64_of(points + sweeps.len()), "end to end");
    let outcome = point::warm_up(context, &mut server).and_then(|()| {
        for (number, sweep) in sweeps.iter().enumerate() {
            let at = (number, &mut server);
            let maximum = point::sweep(context, at, (sweep, recorder), &progress)?;
            maxima.extend(maximum.map(|it| (sweep, it)));
        }
        Ok(())
    });
    record::factors(recorder, &maxima);
    outcome?;
    server.stop()
}
