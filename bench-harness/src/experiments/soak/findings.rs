//! What a soak shows: slices of time, and whether anything grows from the first to the last.

use std::time::Duration;

use serde_json::Value;

use super::kept::Kept;
use crate::engines::usage::Usage;
use crate::experiments::load::Tally;
use crate::experiments::load::served::Observed;
use crate::experiments::measure::{f64_of, u64_of};
use crate::record::{Better, Recorder, Table, Unit, unit};

/// Names of series.
pub const MEMORY: &str = "memory";
pub const DESCRIPTORS: &str = "descriptors";
pub const THREADS: &str = "threads";
pub const P50: &str = "p50";
pub const P99: &str = "p99";
pub const MAX: &str = "max";
pub const KEPT: &str = "logs on disk";
/// An event.
pub const DELETED: &str = "retention";

/// More marks than this hide what they are to explain.
const EVENTS_MAX: usize = 40;
const HOUR: f64 = 3600.0;
/// Seconds below which the table shows no change for an hour: it would be noise, times a thousand.
const SPAN_MIN: f64 = 300.0;
const OPEN: Unit = Unit { name: "open", better: Better::None };
const PER_HOUR: Unit = Unit { name: "per hour", better: Better::None };
const BYTES_PER_HOUR: Unit = Unit { name: "bytes per hour", better: Better::None };
const CORES: Unit = Unit { name: "cores", better: Better::None };

/// A slice of time, at its end.
#[derive(Clone, Copy, Debug)]
struct Slice {
    /// Seconds since the load began.
    at: f64,
    usage: Usage,
    /// Nanoseconds.
    p50: u64,
    p99: u64,
}

/// Everything that was seen so far.
pub struct Findings {
    begun: Duration,
    length: Duration,
    next: Option<Duration>,
    slices: Vec<Slice>,
    usage: Option<Usage>,
    kept: Kept,
    kept_max: u64,
    events: usize,
}

impl Findings {
    /// From that time of the cell on, with slices of this length.
    pub fn new(begun: Duration, length: Duration) -> Findings {
        Findings {
            begun,
            length,
            next: None,
            slices: Vec::new(),
            usage: None,
            kept: Kept::default(),
            kept_max: 0,
            events: 0,
        }
    }

    /// What the process takes, and what lies on disk.
    pub fn look(
        &mut self,
        elapsed: Duration,
        (samples, kept): (&[Usage], &[Kept]),
        recorder: &mut Recorder,
    ) {
        let at = self.begun + elapsed;
        for usage in samples {
            recorder.sample_at(MEMORY, at, (f64_of(usage.memory_bytes), unit::BYTES));
            recorder.sample_at(DESCRIPTORS, at, (f64_of(usage.descriptors), OPEN));
            recorder.sample_at(THREADS, at, (f64_of(usage.threads), OPEN));
            self.usage = Some(*usage);
        }
        for kept in kept {
            recorder.sample_at(KEPT, at, (f64_of(kept.bytes), unit::BYTES));
            if kept.bytes < self.kept.bytes && self.events < EVENTS_MAX {
                self.events += 1;
                recorder.event_at(DELETED, at, "");
            }
            self.kept_max = self.kept_max.max(kept.bytes);
            self.kept = *kept;
        }
    }

    /// Ends a slice when it is as long as slices are.
    pub fn slice_if_due(&mut self, elapsed: Duration, tally: &mut Tally, recorder: &mut Recorder) {
        let next = *self.next.get_or_insert(elapsed + self.length);
        if elapsed < next {
            return;
        }
        self.next = Some(next + self.length);
        let window = tally.window();
        let Some(usage) = self.usage.filter(|_| !window.is_empty()) else { return };
        let at = self.begun + elapsed;
        let [p50, p99] = [0.5, 0.99].map(|it| window.value_at_quantile(it));
        for (series, value) in [(P50, p50), (P99, p99), (MAX, window.max())] {
            recorder.sample_at(series, at, (f64_of(value), unit::NS));
        }
        self.slices.push(Slice { at: elapsed.as_secs_f64(), usage, p50, p99 });
    }

    /// Slices and what becomes of them, as figures and as a table.
    pub fn record(&self, recorder: &mut Recorder) {
        recorder.figure("slices", u64_of(self.slices.len()), unit::COUNT.told());
        let list = |of: &dyn Fn(&Slice) -> u64| {
            Value::from(self.slices.iter().map(of).collect::<Vec<u64>>())
        };
        let bytes = unit::BYTES.told();
        recorder.figure("memory_by_slice", list(&|it| it.usage.memory_bytes), bytes);
        recorder.figure("descriptors_by_slice", list(&|it| it.usage.descriptors), OPEN);
        recorder.figure("threads_by_slice", list(&|it| it.usage.threads), OPEN);
        recorder.figure("latency_p50_by_slice", list(&|it| it.p50), unit::NS.told());
        recorder.figure("latency_p99_by_slice", list(&|it| it.p99), unit::NS.told());
        recorder.figure("kept_bytes_max", self.kept_max, bytes);
        if self.slices.is_empty() {
            return;
        }
        let of = |of: fn(&Slice) -> u64| {
            Change::of(&self.slices.iter().map(|it| (it.at, f64_of(of(it)))).collect::<Vec<_>>())
        };
        let memory = of(|it| it.usage.memory_bytes);
        let descriptors = of(|it| it.usage.descriptors);
        let (p50, p99) = (of(|it| it.p50), of(|it| it.p99));
        recorder.figure("memory_at_begin", memory.begin, bytes);
        recorder.figure("memory_at_end", memory.end, bytes);
        recorder.figure("memory_growth_per_hour", memory.per_hour, BYTES_PER_HOUR);
        recorder.figure("descriptors_at_begin", descriptors.begin, OPEN);
        recorder.figure("descriptors_at_end", descriptors.end, OPEN);
        recorder.figure("descriptor_growth_per_hour", descriptors.per_hour, PER_HOUR);
        recorder.figure("latency_p50_drift", p50.ratio(), unit::RATIO);
        recorder.figure("latency_p99_drift", p99.ratio(), unit::RATIO);
        let columns = ["what", "first fifth", "last fifth", "ratio", "an hour"];
        let mut table = Table::new("From the first to the last fifth of the time", &columns);
        let mb = |it: f64| format!("{:.2} MB", it / 1e6);
        let count = |it: f64| format!("{it:.1}");
        let ms = |it: f64| format!("{:.3} ms", it / 1e6);
        table.row(memory.row("memory", &mb));
        table.row(descriptors.row("descriptors", &count));
        table.row(of(|it| it.usage.threads).row("threads", &count));
        table.row(p50.row("p50 of produce-to-consume", &ms));
        table.row(p99.row("p99 of produce-to-consume", &ms));
        recorder.table(table);
    }
}

/// What retention has left of all bytes, and whether that is as much as its rule says.
pub fn retention(
    recorder: &mut Recorder,
    (kept, most, written): (Kept, u64, u64),
    (starts, ends): (&[i64], &[i64]),
) {
    recorder.figure("kept_bytes_at_end", kept.bytes, unit::BYTES.told());
    let offset = unit::OFFSET.told();
    recorder.figure("log_starts", starts.to_vec(), offset);
    recorder.figure("log_ends", ends.to_vec(), offset);
    let source = "retention.bytes: a log keeps less than that and one segment";
    recorder.expect("kept_is_within_retention", (kept.bytes <= most, true), source);
    if most < written {
        let has = starts.iter().any(|it| 0 < *it);
        recorder.expect("retention_has_deleted", (has, true), source);
    }
    let columns = ["partition", "log start offset", "log end offset"];
    let mut table = Table::new("What retention has left", &columns);
    for (partition, (start, end)) in starts.iter().zip(ends).enumerate() {
        table.row(vec![partition.to_string(), start.to_string(), end.to_string()]);
    }
    recorder.table(table);
}

/// The latencies of the whole time, and what the server took.
pub fn whole(recorder: &mut Recorder, observed: &Observed) {
    let measured = &observed.measured;
    let tally = &measured.tally;
    if let Some(failure) = &measured.broken_off {
        let after = measured.after.as_secs_f64();
        recorder.figure("broken_off_after", after, unit::SECONDS.told());
        recorder.latency("produce_to_consume_latency_until_broken_off", &tally.latencies);
        recorder.note(&format!(
            "Partial: the soak broke off after {after:.1} s, with {} batches consumed and {} not: \
             {failure}. Its slices up to then are whole.",
            tally.answers() - tally.failed_count(),
            tally.open() + tally.failed_count(),
        ));
        return;
    }
    recorder.latency("produce_to_consume_latency", &tally.latencies);
    recorder.latency("produce_to_consume_acknowledged", &tally.acknowledged);
    let rate = Unit { name: "requests/s", better: Better::None };
    recorder.figure("answered_rate", measured.answered_rate(), rate);
    recorder.figure("scheduled_requests", tally.scheduled_count(), unit::COUNT.told());
    recorder.figure("unanswered_requests", tally.open(), unit::COUNT.told());
    if let Some(cost) = observed.cost().filter(|it| 0 < it.bytes) {
        recorder.figure("server_cpu_cores", cost.cores(), CORES);
        recorder.figure("server_cpu_per_gb", cost.per_gigabyte(), unit::CPU_SECONDS_PER_GB);
    }
    recorder.figure("generator_busy", measured.busy(), unit::RATIO);
    recorder.figure("generator_late_p99", tally.late_p99(), unit::NS.told());
    let bottleneck = measured.bottleneck();
    let is_bottleneck = u64::from(bottleneck.is_some());
    recorder.figure("generator_is_bottleneck", is_bottleneck, unit::COUNT.told());
    if let Some(why) = bottleneck {
        recorder.note(&format!(
            "Mark: the load generator itself was the bottleneck ({why}); latencies say more of it \
             than of the server."
        ));
    }
}

/// How something was at first and at last, and the slope of a line through it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Change {
    begin: f64,
    end: f64,
    per_hour: f64,
    /// Seconds from the first to the last.
    span: f64,
}

impl Change {
    /// Of values at times in seconds; at least one.
    fn of(points: &[(f64, f64)]) -> Change {
        let fifth = points.len().div_ceil(5);
        let median = |points: &[(f64, f64)]| {
            let mut values: Vec<f64> = points.iter().map(|it| it.1).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Change {
            begin: median(&points[..fifth]),
            end: median(&points[points.len() - fifth..]),
            per_hour: slope(points) * HOUR,
            span: points[points.len() - 1].0 - points[0].0,
        }
    }

    fn ratio(self) -> f64 {
        self.end / self.begin.max(1e-9)
    }

    fn row(self, what: &str, shown: &dyn Fn(f64) -> String) -> Vec<String> {
        let Change { begin, end, per_hour, span } = self;
        let ratio = format!("{:.3}", self.ratio());
        let hour = if span < SPAN_MIN { "too short".to_owned() } else { shown(per_hour) };
        vec![what.to_owned(), shown(begin), shown(end), ratio, hour]
    }
}

/// Of the line with the least squares; 0 for a single point.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = f64_of(u64_of(points.len()));
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|it| it.0), mean(|it| it.1));
    let both: f64 = points.iter().map(|it| (it.0 - x) * (it.1 - y)).sum();
    let square: f64 = points.iter().map(|it| (it.0 - x).powi(2)).sum();
    if square <= 0.0 { 0.0 } else { both / square }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_is_a_slope_and_a_level_line_is_none() {
        let line = |of: fn(f64) -> f64| {
            let points = (0..100u32).map(|it| f64::from(it) * 36.0);
            Change::of(&points.map(|at| (at, of(at))).collect::<Vec<_>>())
        };
        let leak = line(|at| 1000.0 + 2.0 * at);
        assert!((leak.per_hour - 7200.0).abs() < 1e-6, "{leak:?}");
        // Medians of 20 of 100 slices each: those of number 10 and number 90.
        assert_eq!((leak.begin, leak.end), (1720.0, 7480.0));
        let level = line(|_| 5.0);
        assert_eq!(level, Change { begin: 5.0, end: 5.0, per_hour: 0.0, span: 3564.0 });
        assert!((level.ratio() - 1.0).abs() < 1e-12);
        let single = Change { begin: 7.0, end: 7.0, per_hour: 0.0, span: 0.0 };
        assert_eq!(Change::of(&[(1.0, 7.0)]), single);
        let shown = |it: f64| it.to_string();
        assert_eq!(single.row("x", &shown), ["x", "7", "7", "1.000", "too short"]);
        assert_eq!(level.row("x", &shown), ["x", "5", "5", "1.000", "0"]);
    }
}
