//! What came of a load: counts, latencies, and whether the harness kept its own schedule.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::json;

use super::Options;
use crate::experiments::measure::f64_of;
use crate::experiments::{Doing, Failure};

const NS_PER_MS: f64 = 1e6;

/// Longest latency that is told apart.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// The harness is behind its schedule when one request in a hundred leaves later than this.
const LATE_MAX: Duration = Duration::from_millis(1);

/// The harness has no time left when it takes more of its core than this.
const BUSY_MAX: f64 = 0.95;

/// Counts of a run as it goes on.
pub struct Tally {
    latencies: Histogram<u64>,
    late: Histogram<u64>,
    scheduled: u64,
    answered: u64,
    failed: u64,
    /// Bytes of records in what counts.
    bytes: u64,
    first_error: Option<String>,
}

/// A finished run.
pub struct Measured {
    pub kind: &'static str,
    /// CPU time of the harness, spinning towards due times included.
    pub cpu: Duration,
    pub wall: Duration,
    pub tally: Tally,
}

impl Tally {
    pub fn new() -> Result<Tally, Failure> {
        let histogram = || {
            Histogram::new_with_max(LATENCY_NS_MAX, 3)
                .map_err(|error| Failure::Wrong(error.to_string()))
        };
        Ok(Tally {
            latencies: histogram()?,
            late: histogram()?,
            scheduled: 0,
            answered: 0,
            failed: 0,
            bytes: 0,
            first_error: None,
        })
    }

    pub fn scheduled(&mut self, late: Duration, counts: bool) {
        self.scheduled += 1;
        if counts {
            self.late.saturating_record(ns(late));
        }
    }

    pub fn answered(&mut self, latency: Duration, (bytes, counts): (u64, bool)) {
        self.answered += 1;
        if counts {
            self.latencies.saturating_record(ns(latency));
            self.bytes += bytes;
        }
    }

    pub fn failed(&mut self, error: &str) {
        self.failed += 1;
        self.first_error.get_or_insert_with(|| error.to_owned());
    }

    /// Requests that are neither answered nor failed.
    pub fn open(&self) -> u64 {
        self.scheduled.saturating_sub(self.answered + self.failed)
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn ms(ns: u64) -> f64 {
    f64_of(ns) / NS_PER_MS
}

/// Prints the summary and writes the files that were asked for; fails when requests did.
pub fn write(measured: &Measured, options: &Options) -> Result<(), Failure> {
    println!("{}", summary(measured, options));
    if let Some(why) = bottleneck(measured) {
        println!("the harness itself is the bottleneck: {why}");
    }
    if let Some(path) = &options.hgrm {
        fs::write(path, hgrm(&measured.tally.latencies)).doing("write the distribution")?;
    }
    if let Some(path) = &options.out {
        let file = File::options().create(true).append(true).open(path);
        let mut file = file.doing("open the file for the figures")?;
        writeln!(file, "{}", line(measured, options)).doing("write the figures")?;
    }
    let tally = &measured.tally;
    match (&tally.first_error, tally.open()) {
        (Some(error), _) => Err(Failure::Wrong(format!("{} failed: {error}", tally.failed))),
        (None, 0) => Ok(()),
        (None, open) => Err(Failure::Wrong(format!("{open} requests were never answered"))),
    }
}

fn summary(measured: &Measured, options: &Options) -> String {
    let tally = &measured.tally;
    let at = |quantile| ms(tally.latencies.value_at_quantile(quantile));
    let seconds = f64_of(options.seconds);
    let mut text = format!(
        "{}: {:.0} requests/s of {} offered, {:.1} MB/s; latency ms p50 {:.3} p90 {:.3} p99 {:.3} \
         p99.9 {:.3} max {:.3}",
        measured.kind,
        f64_of(tally.latencies.len()) / seconds,
        options.rate,
        f64_of(tally.bytes) / seconds / 1e6,
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        ms(tally.latencies.max()),
    );
    let late = ms(tally.late.value_at_quantile(0.99));
    let (failed, open) = (tally.failed, tally.open());
    write!(text, "; failed {failed}, unanswered {open}; sent late p99 {late:.3}")
        .expect("a string takes everything");
    text
}

/// Why the figures say more of the harness than of the broker, if they do.
fn bottleneck(measured: &Measured) -> Option<String> {
    let late = measured.tally.late.value_at_quantile(0.99);
    if ns(LATE_MAX) < late {
        return Some(format!("one request in a hundred was sent {:.3} ms late or more", ms(late)));
    }
    // Spinning shows as load, too, but leaves no request late.
    let busy = measured.cpu.as_secs_f64() / measured.wall.as_secs_f64();
    let median = measured.tally.latencies.value_at_quantile(0.5);
    let is_slow = ns(LATE_MAX) < median;
    (BUSY_MAX < busy && is_slow).then(|| format!("its thread was busy {:.0} %", 100.0 * busy))
}

fn line(measured: &Measured, options: &Options) -> serde_json::Value {
    let tally = &measured.tally;
    let at = |quantile| ms(tally.latencies.value_at_quantile(quantile));
    json!({
        "experiment": "load",
        "load": measured.kind,
        "rate": options.rate,
        "connections": options.connections,
        "partitions": options.partitions,
        "in_flight": options.in_flight,
        "batch_records": options.batch_records,
        "record_bytes": options.record_bytes,
        "fetch_bytes": options.fetch_bytes,
        "acks": options.acks.to_wire(),
        "seconds": options.seconds,
        "counted": tally.latencies.len(),
        "bytes": tally.bytes,
        "failed": tally.failed,
        "unanswered": tally.open(),
        "p50_ms": at(0.5),
        "p90_ms": at(0.9),
        "p99_ms": at(0.99),
        "p99_9_ms": at(0.999),
        "max_ms": ms(tally.latencies.max()),
        "late_p99_ms": ms(tally.late.value_at_quantile(0.99)),
        "harness_cpu_seconds": measured.cpu.as_secs_f64(),
        "bottleneck": bottleneck(measured),
    })
}

/// The percentile distribution in the text form that HdrHistogram's plotters read.
fn hgrm(latencies: &Histogram<u64>) -> String {
    let mut text = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let mut total = 0;
    for step in latencies.iter_quantiles(5) {
        total += step.count_since_last_iteration();
        let (value, quantile) = (ms(step.value_iterated_to()), step.quantile_iterated_to());
        write!(text, "{value:>12.3} {quantile:>2.12} {total:>10}").expect("a string");
        if quantile < 1.0 {
            write!(text, " {:>14.2}", 1.0 / (1.0 - quantile)).expect("a string");
        }
        text.push('\n');
    }
    let (mean, deviation) = (latencies.mean() / NS_PER_MS, latencies.stdev() / NS_PER_MS);
    let (max, count) = (ms(latencies.max()), latencies.len());
    text + &format!(
        "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]\n\
         #[Max     = {max:>12.3}, Total count    = {count:>12}]\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(latency: Duration, late: Duration) -> Tally {
        let mut tally = Tally::new().expect("bounds");
        for _ in 0..100 {
            tally.scheduled(late, true);
            tally.answered(latency, (10, true));
        }
        tally
    }

    #[test]
    fn a_late_harness_says_so() {
        let of = |tally| Measured {
            kind: "produce",
            cpu: Duration::from_secs(1),
            wall: Duration::from_secs(10),
            tally,
        };
        let short = Duration::from_micros(50);
        assert_eq!(bottleneck(&of(tally(short, short))), None);
        let late = bottleneck(&of(tally(short, Duration::from_millis(5))));
        assert!(late.is_some_and(|text| text.contains("late")));
    }

    #[test]
    fn the_distribution_ends_with_all_of_them() {
        let text = hgrm(&tally(Duration::from_millis(2), Duration::ZERO).latencies);
        assert!(text.contains("Total count    =          100"), "{text}");
        assert!(text.lines().any(|line| line.contains(" 1.000000000000        100")), "{text}");
    }

    #[test]
    fn warm_up_counts_as_answered_only() {
        let mut tally = Tally::new().expect("bounds");
        tally.scheduled(Duration::ZERO, false);
        assert_eq!(tally.open(), 1);
        tally.answered(Duration::from_millis(1), (10, false));
        assert_eq!((tally.open(), tally.latencies.len(), tally.bytes), (0, 0, 0));
    }
}
