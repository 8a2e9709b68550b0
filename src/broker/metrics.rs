//! What the shards count, in Prometheus' (OpenMetrics') text format.

use std::fmt::Error;

use hdrhistogram::Histogram;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::shard::ShardStats;

/// Upper bounds of the exported buckets, in microseconds: what HDR keeps finer is summed up here.
const BUCKETS_US: [u64; 20] = [
    5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000,
    500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000,
];

const US_PER_SECOND: f64 = 1e6;

/// All shards' metrics as text.
///
/// # Errors
/// None in practice: writing to a string doesn't fail.
pub fn render(shards: Vec<ShardStats>) -> Result<String, Error> {
    let mut registry = Registry::with_prefix("uringlog");
    registry.register_collector(Box::new(Shards(shards)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Shards(Vec<ShardStats>);

type Label = [(&'static str, String); 1];

impl Collector for Shards {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let Some(first) = self.0.first() else { return Ok(()) };
        for (index, (name, help, _)) in first.counts().into_iter().enumerate() {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (shard, stats) in self.0.iter().enumerate() {
                let label: Label = [("shard", shard.to_string())];
                let (_, _, value) = stats.counts()[index];
                ConstCounter::new(value).encode(metric.encode_family(&label)?)?;
            }
        }
        for (index, (name, help, _)) in first.gauges().into_iter().enumerate() {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (shard, stats) in self.0.iter().enumerate() {
                let label: Label = [("shard", shard.to_string())];
                let (_, _, value) = stats.gauges()[index];
                ConstGauge::new(value).encode(metric.encode_family(&label)?)?;
            }
        }
        for (index, (name, _)) in first.stages.iter().enumerate() {
            let name = format!("stage_{name}_seconds");
            let help = "Latency of this stage.";
            let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Histogram)?;
            for (shard, stats) in self.0.iter().enumerate() {
                let label: Label = [("shard", shard.to_string())];
                let (sum, count, buckets) = buckets(&stats.stages[index].1);
                metric
                    .encode_family(&label)?
                    .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
            }
        }
        Ok(())
    }
}

/// Sum (s), count, and how many lie in each bucket by its upper bound (s).
fn buckets(histogram: &Histogram<u64>) -> (f64, u64, Vec<(f64, u64)>) {
    let mut counts = vec![0; BUCKETS_US.len() + 1];
    let mut sum_us = 0.0;
    for value in histogram.iter_recorded() {
        let us = value.value_iterated_to();
        let count = value.count_at_value();
        let at = BUCKETS_US.partition_point(|bound| *bound < us);
        counts[at] += count;
        sum_us += seconds(us) * US_PER_SECOND * seconds(count) * US_PER_SECOND;
    }
    let bounds = BUCKETS_US.iter().map(|us| seconds(*us)).chain([f64::MAX]);
    (sum_us / US_PER_SECOND, histogram.len(), bounds.zip(counts).collect())
}

/// Microseconds as seconds.
fn seconds(us: u64) -> f64 {
    std::time::Duration::from_micros(us).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::Stats;
    use std::time::Duration;

    #[test]
    fn counters_and_buckets_are_rendered_for_each_shard() {
        let stats = Stats::default();
        stats.batches.add(7);
        stats.sync.record(Duration::from_micros(150));
        let text = render(vec![stats.snapshot(None, None), Stats::default().snapshot(None, None)])
            .expect("a string takes everything");
        assert!(text.contains("uringlog_batches_total{shard=\"0\"} 7"), "{text}");
        assert!(text.contains("uringlog_batches_total{shard=\"1\"} 0"), "{text}");
        assert!(text.contains("uringlog_stage_sync_seconds_count{shard=\"0\"} 1"), "{text}");
        let bucket = "uringlog_stage_sync_seconds_bucket{le=\"0.0002\",shard=\"0\"} 1";
        assert!(text.contains(bucket), "{text}");
    }
}
