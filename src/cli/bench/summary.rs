//! What a measurement shows.

use std::io::Write;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::cli::command::CommandError;
use crate::cli::output::{self, Cell, Output, Table, float, left, right};

/// Longest latency that is told from longer ones.
const LATENCY_US_MAX: u64 = 600_000_000;
const QUANTILES: &[(&str, f64)] =
    &[("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];

/// Latencies in microseconds.
#[derive(Debug)]
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(super) fn new() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3);
        Latencies(histogram.expect("the bounds are constants that hdrhistogram takes"))
    }

    /// Adds a latency of so many records.
    pub(super) fn record(&mut self, latency: Duration, records: u64) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record_n(us.clamp(1, LATENCY_US_MAX), records);
    }
}

/// The outcome of a measurement.
#[derive(Debug)]
pub(super) struct Summary {
    /// `produced` or `consumed`.
    pub what: &'static str,
    /// Of what the latencies are.
    pub latency_of: &'static str,
    pub records: u64,
    /// Bytes of values, or of batches as they were read.
    pub bytes: u64,
    pub elapsed: Duration,
    pub latencies: Latencies,
    /// What the measurement was made with, for the reader of the JSON.
    pub settings: Value,
}

impl Summary {
    fn per_second(&self, count: u64) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { float(count) / seconds } else { 0.0 }
    }

    fn line(&self) -> String {
        format!(
            "{} {} records, {} in {:.3} s: {:.0} records/s, {}\n",
            self.what,
            self.records,
            output::bytes(i64::try_from(self.bytes).unwrap_or(i64::MAX)),
            self.elapsed.as_secs_f64(),
            self.per_second(self.records),
            output::byte_rate(self.bytes, self.elapsed),
        )
    }

    fn table(&self) -> Table {
        let names = QUANTILES.iter().map(|(name, _)| right(name));
        let columns: Vec<_> =
            [left("LATENCY")].into_iter().chain(names).chain([right("max")]).collect();
        let mut table = Table::new(&columns);
        let values = QUANTILES.iter().map(|(_, at)| self.latencies.0.value_at_quantile(*at));
        let cells = values.chain([self.latencies.0.max()]).map(milliseconds).map(Cell::from);
        table.row([Cell::from(self.latency_of)].into_iter().chain(cells));
        table
    }

    fn json(&self) -> Value {
        let quantile = |(name, at): &(&str, f64)| {
            ((*name).to_owned(), json!(self.latencies.0.value_at_quantile(*at)))
        };
        let mut latency: serde_json::Map<String, Value> = QUANTILES.iter().map(quantile).collect();
        latency.insert("mean".to_owned(), json!(self.latencies.0.mean()));
        latency.insert("max".to_owned(), json!(self.latencies.0.max()));
        json!({
            "what": self.what,
            "records": self.records,
            "bytes": self.bytes,
            "seconds": self.elapsed.as_secs_f64(),
            "records_per_second": self.per_second(self.records),
            "bytes_per_second": self.per_second(self.bytes),
            "latency_of": self.latency_of,
            "latency_us": latency,
            "settings": self.settings,
        })
    }

    /// Prints it.
    pub(super) fn show<W: Write>(
        &self,
        (output, out): (&Output, &mut W),
    ) -> Result<(), CommandError> {
        if !output.json {
            output::print(out, &self.line())?;
        }
        output.show(out, &self.table(), &self.json())
    }
}

/// Microseconds as milliseconds with as many digits as they deserve.
fn milliseconds(us: u64) -> String {
    match us {
        0..=9_999 => format!("{:.3} ms", float(us) / 1e3),
        10_000..=99_999 => format!("{:.1} ms", float(us) / 1e3),
        _ => format!("{:.0} ms", float(us) / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_quantiles() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::from_micros(500), 990);
        latencies.record(Duration::from_millis(20), 10);
        let summary = Summary {
            what: "produced",
            latency_of: "record",
            records: 1_000,
            bytes: 1_000_000,
            elapsed: Duration::from_millis(500),
            latencies,
            settings: json!({"acks": "all"}),
        };
        let line = "produced 1000 records, 1.0 MB in 0.500 s: 2000 records/s, 2.0 MB/s\n";
        assert_eq!(summary.line(), line);
        let expected = "\
LATENCY       p50       p90       p99    p99.9   p99.99      max
record   0.500 ms  0.500 ms  0.500 ms  20.0 ms  20.0 ms  20.0 ms
";
        assert_eq!(summary.table().render(false, false), expected);
        let json = summary.json();
        assert_eq!(json["latency_us"]["p99"], 500);
        assert_eq!(json["records_per_second"], 2000.0);
    }

    #[test]
    fn digits_fit_the_size() {
        assert_eq!(milliseconds(1), "0.001 ms");
        assert_eq!(milliseconds(12_345), "12.3 ms");
        assert_eq!(milliseconds(1_234_567), "1235 ms");
    }
}
