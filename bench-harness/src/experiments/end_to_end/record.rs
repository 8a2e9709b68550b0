//! What came of a point, as figures, latencies and a row of the table.

use std::time::Duration;

use super::programme::{self, Sweep, figure_name, name};
use crate::engines::usage::Usage;
use crate::experiments::load::Kind;
use crate::experiments::load::served::Observed;
use crate::experiments::measure::f64_of;
use crate::record::{Better, Recorder, Table, Unit, unit};
use crate::run::Context;

pub const REQUESTS_PER_SECOND: Unit = Unit { name: "requests/s", better: Better::Higher };
pub const CORES: Unit = Unit { name: "cores", better: Better::None };
/// How the server's memory over time is called.
pub const MEMORY: &str = "server memory";
/// And its CPU.
pub const CPU: &str = "server CPU";

/// The maximum, or a share of it.
pub struct Point<'a> {
    /// `None`: the maximum.
    pub percent: Option<u64>,
    /// Requests a second by the schedule.
    pub offered: Option<f64>,
    /// The parameter, which may leave it to be found.
    pub rate_given: u64,
    pub observed: &'a Observed,
}

/// What is recorded from here on is of this sweep.
pub fn begin(recorder: &mut Recorder, sweep: &Sweep) {
    recorder.vary("load", name(sweep.kind));
    recorder.vary("varied", sweep.shape.varied);
    recorder.vary("batch_records", sweep.shape.batch_records);
    recorder.vary("partitions", sweep.shape.partitions);
    recorder.vary("acks", sweep.shape.acks.clone());
}

/// The base again.
pub fn end(context: &Context, recorder: &mut Recorder) {
    recorder.forget("load");
    recorder.forget("varied");
    for (name, value) in context.parameters.values() {
        recorder.vary(name, value.clone());
    }
}

/// Without rows.
pub fn table(context: &Context, sweep: &Sweep) -> Table {
    let title = format!("{}: {}", name(sweep.kind), sweep.shape.shown(&context.parameters));
    let columns = [
        "offered",
        "requests/s",
        "answered/s",
        "MB/s",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "server cores",
        "CPU s/GB",
        "memory MB",
        "generator busy",
        "mark",
    ];
    Table::new(&title, &columns)
}

/// Records a point, and adds its row.
pub fn point(recorder: &mut Recorder, sweep: &Sweep, point: &Point<'_>, table: &mut Table) {
    table.row(row(point));
    if point.observed.measured.broken_off.is_some() {
        return broken_off(recorder, sweep.kind, point);
    }
    match point.percent {
        None => maximum(recorder, point),
        Some(_) => share(recorder, sweep.kind, point),
    }
    if let Some(why) = point.observed.measured.bottleneck() {
        let what = shown_percent(point.percent);
        recorder.note(&format!(
            "Mark: at {what} of {} the load generator itself was the bottleneck ({why}); a server \
             may be faster than such a point says. It has one thread; servers have the other \
             cores.",
            name(sweep.kind)
        ));
    }
}

fn maximum(recorder: &mut Recorder, point: &Point<'_>) {
    let measured = &point.observed.measured;
    recorder.figure("maximum_rate", measured.answered_rate(), REQUESTS_PER_SECOND);
    recorder.figure("maximum_throughput", measured.bytes_rate().round(), unit::BYTES_PER_SECOND);
    if let Some(cost) = point.observed.cost() {
        recorder.figure("maximum_server_cpu", cost.cores(), CORES);
    }
    recorder.figure("maximum_generator_busy", measured.busy(), unit::RATIO);
    let is_bottleneck = u64::from(measured.bottleneck().is_some());
    recorder.figure("maximum_generator_is_bottleneck", is_bottleneck, unit::COUNT.told());
}

fn share(recorder: &mut Recorder, kind: Kind, point: &Point<'_>) {
    let (measured, of) = (&point.observed.measured, figure_name(kind));
    let tally = &measured.tally;
    recorder.latency(&format!("{of}_latency"), &tally.latencies);
    if kind == Kind::EndToEnd {
        recorder.latency(&format!("{of}_acknowledged"), &tally.acknowledged);
    }
    let offered = point.offered.unwrap_or_default();
    let told = REQUESTS_PER_SECOND.told();
    recorder.figure("offered_rate", offered, told);
    recorder.figure("answered_rate", measured.answered_rate(), told);
    recorder.figure("throughput", measured.bytes_rate().round(), unit::BYTES_PER_SECOND.told());
    recorder.figure("unanswered_requests", tally.open(), unit::COUNT.told());
    server(recorder, point.observed);
    let generator = measured.busy() * measured.wall.as_secs_f64();
    recorder.figure("generator_cpu_seconds", generator, unit::SECONDS.told());
    recorder.figure("generator_busy", measured.busy(), unit::RATIO);
    recorder.figure("generator_late_p99", tally.late_p99(), unit::NS.told());
    let is_bottleneck = measured.bottleneck().is_some();
    recorder.figure("generator_is_bottleneck", u64::from(is_bottleneck), unit::COUNT.told());
    let p99 = tally.latencies.total().value_at_quantile(0.99);
    if is_bottleneck {
        recorder.figure(&format!("{of}_latency_p99_of_a_late_generator"), p99, unit::NS.told());
    }
    recorder.forget("percent");
    recorder.vary("rate", offered.round());
    recorder.figure(&format!("{of}_latency_p99_at_rate"), p99, unit::NS.told());
    recorder.vary("rate", point.rate_given);
    if let Some(percent) = point.percent {
        recorder.vary("percent", percent);
    }
}

fn server(recorder: &mut Recorder, observed: &Observed) {
    if let Some(cost) = observed.cost() {
        recorder.figure("server_cpu_seconds", cost.cpu.as_secs_f64(), unit::SECONDS.told());
        recorder.figure("server_cpu_cores", cost.cores(), CORES);
        if 0 < cost.bytes {
            recorder.figure("server_cpu_per_gb", cost.per_gigabyte(), unit::CPU_SECONDS_PER_GB);
        }
    }
    if let Some(memory) = observed.memory() {
        recorder.figure("server_memory", memory, unit::BYTES.told());
    }
}

/// What there is of it, under names that no other point has.
fn broken_off(recorder: &mut Recorder, kind: Kind, point: &Point<'_>) {
    let measured = &point.observed.measured;
    let after = measured.after.as_secs_f64();
    recorder.figure("broken_off_after", after, unit::SECONDS.told());
    let latency = format!("{}_latency_until_broken_off", figure_name(kind));
    recorder.latency(&latency, &measured.tally.latencies);
    let why = measured.broken_off.as_ref().map(ToString::to_string).unwrap_or_default();
    recorder.note(&format!(
        "Partial: {} at {} broke off after {after:.1} s, with {} requests answered and {} not: \
         {why}. Points before it are whole; those after it are missing.",
        name(kind),
        shown_percent(point.percent),
        measured.tally.answers() - measured.tally.failed_count(),
        measured.tally.open() + measured.tally.failed_count(),
    ));
}

fn shown_percent(percent: Option<u64>) -> String {
    percent.map_or_else(|| "the maximum".to_owned(), |it| format!("{it} %"))
}

fn row(point: &Point<'_>) -> Vec<String> {
    let measured = &point.observed.measured;
    let latencies = measured.tally.latencies.total();
    let ms = |quantile| format!("{:.3}", f64_of(latencies.value_at_quantile(quantile)) / 1e6);
    let cost = point.observed.cost();
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mark = match (&measured.broken_off, measured.bottleneck(), measured.tally.open()) {
        (Some(_), _, _) => "broke off".to_owned(),
        (None, Some(why), _) => format!("generator: {why}"),
        (None, None, 0) => String::new(),
        (None, None, open) => format!("{open} unanswered"),
    };
    vec![
        shown_percent(point.percent),
        point.offered.map_or_else(|| "closed loop".to_owned(), |it| format!("{it:.0}")),
        format!("{:.0}", measured.answered_rate()),
        format!("{:.1}", measured.bytes_rate() / 1e6),
        ms(0.5),
        ms(0.99),
        ms(0.999),
        ms(1.0),
        or_none(cost.map(|it| format!("{:.2}", it.cores()))),
        or_none(cost.filter(|it| 0 < it.bytes).map(|it| format!("{:.2}", it.per_gigabyte()))),
        or_none(point.observed.memory().map(|it| format!("{:.1}", f64_of(it) / 1e6))),
        format!("{:.0} %", 100.0 * measured.busy()),
        mark,
    ]
}

/// The server's process at a time since the cell began.
pub fn sample(recorder: &mut Recorder, at: Duration, (before, usage): (Option<Usage>, &Usage)) {
    recorder.sample_at(MEMORY, at, (f64_of(usage.memory_bytes), unit::BYTES));
    if let Some(before) = before {
        let wall = (usage.at - before.at).as_secs_f64();
        let cores = usage.cpu.saturating_sub(before.cpu).as_secs_f64() / wall.max(1e-3);
        recorder.sample_at(CPU, at, (cores, CORES));
    }
}

/// The maxima against each factor that was varied: the base is a point of each.
pub fn factors(recorder: &mut Recorder, maxima: &[(&Sweep, f64)]) {
    for factor in ["batch_records", "partitions", "acks"] {
        for kind in [Kind::Produce, Kind::Fetch, Kind::EndToEnd] {
            let of = |it: &&(&Sweep, f64)| {
                it.0.kind == kind && [factor, "nothing"].contains(&it.0.shape.varied)
            };
            let points: Vec<_> = maxima.iter().filter(of).collect();
            if points.len() < 2 {
                continue;
            }
            for (sweep, throughput) in points {
                begin(recorder, sweep);
                recorder.forget("varied");
                let figure = format!("throughput_by_{factor}");
                recorder.figure(&figure, throughput.round(), unit::BYTES_PER_SECOND);
            }
        }
    }
    recorder.forget("load");
    if maxima.iter().any(|it| it.0.kind == Kind::EndToEnd) {
        recorder.note(
            "produce-to-consume: latencies end when a consumer that follows has the batch, read \
             by the same thread that sends; so its generator is busier than that of produce.",
        );
    }
    let what = programme::ACKS.join(", ");
    recorder.note(&format!(
        "With acks=0 (of {what}) nothing is answered: a produce latency ends when the request was \
         handed to the connection."
    ));
}
