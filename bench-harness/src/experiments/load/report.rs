//! The summary of a load, and the files that were asked for.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;

use hdrhistogram::Histogram;
use serde_json::json;

use super::Options;
use super::tally::{Measured, ms};
use crate::experiments::measure::f64_of;
use crate::experiments::{Doing, Failure};

const NS_PER_MS: f64 = 1e6;

/// Prints the summary and writes the files that were asked for; fails when requests did.
pub fn write(measured: &Measured, options: &Options) -> Result<(), Failure> {
    println!("{}", summary(measured, options));
    if let Some(why) = measured.bottleneck() {
        println!("the harness itself is the bottleneck: {why}");
    }
    if let Some(path) = &options.hgrm {
        fs::write(path, hgrm(&measured.tally.latencies.total())).doing("write the distribution")?;
    }
    if let Some(path) = &options.out {
        let file = File::options().create(true).append(true).open(path);
        let mut file = file.doing("open the file for the figures")?;
        writeln!(file, "{}", line(measured, options)).doing("write the figures")?;
    }
    let tally = &measured.tally;
    match (tally.first_error(), tally.open()) {
        (Some(error), _) => {
            Err(Failure::Wrong(format!("{} failed: {error}", tally.failed_count())))
        }
        (None, 0) => Ok(()),
        (None, open) => Err(Failure::Wrong(format!("{open} requests were never answered"))),
    }
}

fn summary(measured: &Measured, options: &Options) -> String {
    let (tally, latencies) = (&measured.tally, measured.tally.latencies.total());
    let at = |quantile| ms(latencies.value_at_quantile(quantile));
    let seconds = f64_of(options.seconds);
    let mut text = format!(
        "{}: {:.0} requests/s of {} offered, {:.1} MB/s; latency ms p50 {:.3} p90 {:.3} p99 {:.3} \
         p99.9 {:.3} max {:.3}",
        measured.plan.kind.name(),
        f64_of(latencies.len()) / seconds,
        options.rate,
        f64_of(tally.bytes()) / seconds / 1e6,
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        ms(latencies.max()),
    );
    let late = ms(tally.late_p99());
    let (failed, open) = (tally.failed_count(), tally.open());
    write!(text, "; failed {failed}, unanswered {open}; sent late p99 {late:.3}")
        .expect("a string takes everything");
    text
}

fn line(measured: &Measured, options: &Options) -> serde_json::Value {
    let (tally, latencies) = (&measured.tally, measured.tally.latencies.total());
    let at = |quantile| ms(latencies.value_at_quantile(quantile));
    json!({
        "experiment": "load",
        "load": measured.plan.kind.name(),
        "rate": options.rate,
        "connections": options.connections,
        "partitions": options.partitions,
        "in_flight": options.in_flight,
        "batch_records": options.batch_records,
        "record_bytes": options.record_bytes,
        "fetch_bytes": options.fetch_bytes,
        "acks": options.acks.to_wire(),
        "seconds": options.seconds,
        "counted": latencies.len(),
        "bytes": tally.bytes(),
        "failed": tally.failed_count(),
        "unanswered": tally.open(),
        "p50_ms": at(0.5),
        "p90_ms": at(0.9),
        "p99_ms": at(0.99),
        "p99_9_ms": at(0.999),
        "max_ms": ms(latencies.max()),
        "late_p99_ms": ms(tally.late_p99()),
        "harness_cpu_seconds": measured.cpu.as_secs_f64(),
        "bottleneck": measured.bottleneck(),
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
    use std::time::Duration;

    use super::super::{Pace, tally};
    use super::*;

    #[test]
    fn the_distribution_ends_with_all_of_them() {
        let latency = (Duration::from_millis(2), Duration::ZERO);
        let measured = tally::tests::measured(Pace::Rate(10.0), latency);
        let text = hgrm(&measured.tally.latencies.total());
        assert!(text.contains("Total count    =          100"), "{text}");
        assert!(text.lines().any(|line| line.contains(" 1.000000000000        100")), "{text}");
    }
}
