//! Latencies as HDR histograms over time.

use std::fmt::Write;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{
    IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag,
};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};

/// Significant digits of every histogram; values are nanoseconds.
const DIGITS: u8 = 3;
/// An hour: nothing that is timed takes longer.
const NS_MAX: u64 = 3_600_000_000_000;
/// Length of the first slices.
const SLICE: Duration = Duration::from_millis(10);
/// When there would be more, two become one: a picture has no more columns, and memory stays small.
const SLICES_MAX: usize = 128;
/// Ticks of the percentile text for each halving of the distance to 100 %.
const TICKS: u32 = 5;

/// Latencies of one kind of operation in one cell, sliced by time.
pub struct Latency {
    started: Instant,
    slice: Duration,
    slices: Vec<Histogram<u64>>,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency::new()
    }
}

impl Latency {
    /// Empty; time counts from now.
    pub fn new() -> Latency {
        Latency { started: Instant::now(), slice: SLICE, slices: Vec::new() }
    }

    /// An operation that took so long is over now.
    pub fn record(&mut self, took: Duration) {
        self.record_at(self.started.elapsed(), took);
    }

    /// An operation that took so long was over that long after the beginning.
    pub fn record_at(&mut self, at: Duration, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).clamp(1, NS_MAX);
        let mut slice = self.slice_of(at);
        while SLICES_MAX <= slice {
            self.halve();
            slice = self.slice_of(at);
        }
        while self.slices.len() <= slice {
            self.slices.push(empty());
        }
        // Saturating would cut the value to what the histogram holds without growing.
        self.slices[slice].record(took).expect("it grows by itself");
    }

    fn slice_of(&self, at: Duration) -> usize {
        usize::try_from(at.as_nanos() / self.slice.as_nanos()).unwrap_or(usize::MAX)
    }

    fn halve(&mut self) {
        self.slice *= 2;
        let mut halved = Vec::with_capacity(SLICES_MAX);
        for pair in self.slices.chunks(2) {
            let mut sum = pair[0].clone();
            if let Some(second) = pair.get(1) {
                sum.add(second).expect("it grows by itself");
            }
            halved.push(sum);
        }
        self.slices = halved;
    }

    /// All of them in one histogram.
    pub fn total(&self) -> Histogram<u64> {
        total(self.slices.iter())
    }

    /// As an interval log that HdrHistogram's tools read: V2, compressed.
    pub fn log(&self, tag: &str) -> String {
        let mut text = Vec::new();
        let mut serializer = V2DeflateSerializer::new();
        let mut builder = IntervalLogWriterBuilder::new();
        builder.add_comment("[Histogram log format version 1.3]");
        builder.add_comment("Values are nanoseconds; times count from the beginning.");
        let writer = builder.begin_log_with(&mut text, &mut serializer);
        let mut writer = writer.expect("memory takes everything");
        for (number, slice) in (0u32..).zip(&self.slices).filter(|(_, it)| !it.is_empty()) {
            let written =
                writer.write_histogram(slice, self.slice * number, self.slice, Tag::new(tag));
            written.expect("memory takes everything");
        }
        String::from_utf8(text).expect("the log is base64 and digits")
    }
}

fn empty() -> Histogram<u64> {
    Histogram::new(DIGITS).expect("3 digits are fine")
}

/// All histograms in one.
pub fn total<'a>(histograms: impl Iterator<Item = &'a Histogram<u64>>) -> Histogram<u64> {
    let mut total = empty();
    for histogram in histograms {
        total.add(histogram).expect("it grows by itself");
    }
    total
}

/// A slice of a log: when it began, how long it is, and what it holds.
pub struct Slice {
    /// Seconds since the beginning.
    pub start: f64,
    /// Seconds.
    pub length: f64,
    /// Nanoseconds.
    pub histogram: Histogram<u64>,
}

/// Reads what [`Latency::log`] writes; `None` when the text is no such log.
pub fn parse_log(text: &str) -> Option<Vec<Slice>> {
    let mut slices = Vec::new();
    for entry in IntervalLogIterator::new(text.as_bytes()) {
        let Ok(LogEntry::Interval(interval)) = entry else { return None };
        let bytes = BASE64.decode(interval.encoded_histogram()).ok()?;
        let histogram = Deserializer::new().deserialize(&mut bytes.as_slice()).ok()?;
        slices.push(Slice {
            start: interval.start_timestamp().as_secs_f64(),
            length: interval.duration().as_secs_f64(),
            histogram,
        });
    }
    Some(slices)
}

/// The percentile distribution (in nanoseconds) in the text form that HdrHistogram's plotters read.
pub fn hgrm(latencies: &Histogram<u64>) -> String {
    let mut text = format!(
        "{:>16} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let mut total = 0;
    for step in latencies.iter_quantiles(TICKS) {
        total += step.count_since_last_iteration();
        let (value, quantile) = (step.value_iterated_to(), step.quantile_iterated_to());
        write!(text, "{value:>12}.000 {quantile:>2.12} {total:>10}").expect("a string");
        if quantile < 1.0 {
            write!(text, " {:>14.2}", 1.0 / (1.0 - quantile)).expect("a string");
        }
        text.push('\n');
    }
    let (mean, deviation) = (latencies.mean(), latencies.stdev());
    text + &format!(
        "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]\n\
         #[Max     = {:>12}.000, Total count    = {:>12}]\n\
         #[Buckets = {:>12}, SubBuckets     = {:>12}]\n",
        latencies.max(),
        latencies.len(),
        latencies.buckets(),
        2048,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency() -> Latency {
        let mut latency = Latency::new();
        for at in 0..10_000 {
            let took = if at % 100 == 0 { 5_000_000 } else { 10_000 };
            latency.record_at(Duration::from_millis(at), Duration::from_nanos(took));
        }
        latency
    }

    #[test]
    fn slices_stay_few_and_lose_nothing() {
        let latency = latency();
        assert!(latency.slices.len() <= SLICES_MAX);
        assert!(SLICES_MAX / 2 <= latency.slices.len(), "{}", latency.slices.len());
        let total = latency.total();
        assert_eq!(total.len(), 10_000);
        assert!(total.value_at_quantile(0.5).abs_diff(10_000) < 20);
        assert!(total.value_at_quantile(0.995).abs_diff(5_000_000) < 5_000);
    }

    #[test]
    fn a_log_comes_back() {
        let latency = latency();
        let slices = parse_log(&latency.log("append")).expect("a log");
        assert_eq!(slices.len(), latency.slices.len());
        assert_eq!(total(slices.iter().map(|it| &it.histogram)), latency.total());
        assert!((slices[1].start - latency.slice.as_secs_f64()).abs() < 1e-6);
        assert!((slices[1].length - latency.slice.as_secs_f64()).abs() < 1e-6);
        assert!(parse_log("nonsense,").is_none());
        assert!(parse_log(&Latency::new().log("none")).expect("a log").is_empty());
    }

    #[test]
    fn the_percentile_text_ends_with_all_of_them() {
        let text = hgrm(&latency().total());
        assert!(text.contains("Total count    =        10000"), "{text}");
        let last = text.lines().rfind(|line| !line.starts_with('#')).expect("a line");
        assert!(last.contains("1.000000000000      10000"), "{text}");
        let first = text.lines().nth(2).expect("a line");
        assert!(first.trim_start().starts_with("10007.000") | first.contains("10"), "{first}");
    }
}
