//! Where do records go among a topic's partitions, and do offsets count them?
//!
//! [`keys`]: records with keys, before and after the topic got more partitions. [`sticky`]: records
//! without keys, by the ways that producers have to spread them. [`gaps`]: a log with control
//! records, from which compaction took records away.
//!
//! # Figures
//!
//! Keys:
//!
//! - `keys_per_partition`: for each partition, the keys that lie in it while there are
//!   `partitions`
//! - `keys_per_partition_grown`: the same with `grown_partitions`, one set for each of them
//! - `moved_keys`, `moved_share`: keys whose later records lie elsewhere than the earlier ones,
//!   and their share
//! - `example_key_partition`, `example_key_partition_grown`: where the records of `user-N`, N =
//!   `example_key`, lie
//!
//! Sticky:
//!
//! - `batches`: in all partitions, for each `partitioner` and `sticky_partitions`
//! - `records_in_batch`: on average
//! - `records_per_partition`: for each partition
//! - `log_bytes`: of all partitions
//! - `append_*`, `throughput`: latency of a batch, records a second with one batch under way
//!
//! Gaps:
//!
//! - `offset_difference`: log end minus log start
//! - `readable_records`: records that a consumer gets
//! - `control_records`: offsets that markers of transactions take
//! - `compacted_offsets`: offsets that nothing stands at
//! - `overcount`: the first by the second

mod gaps;
mod keys;
mod sticky;

use super::Failure;
use crate::engines::{EngineName, Tier, reach};
use crate::parameters::{Kind, Parameter, Scaled, number};
use crate::record::Recorder;
use crate::registry::Experiment;
use crate::run::Context;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "partitions",
    question: "Where do records go among partitions, which keys move when there are more, and do \
               offsets count records?",
    parameters: PARAMETERS,
    engines: EngineName::ALL,
    tiers: Tier::ALL,
    file_systems: false,
    seconds: Scaled { quick: 2, normal: 5, full: 120 },
    run,
};

const PARAMETERS: &[Parameter] = &[
    number("keys", Scaled::same(1000), (1, 1_000_000), "", "keys, `user-0` and up"),
    number(
        "example_key",
        Scaled::same(7),
        (0, 1_000_000),
        "",
        "number of the key that is followed",
    ),
    number("partitions", Scaled::same(4), (1, 1000), "", "partitions at first"),
    Parameter {
        name: "grown_partitions",
        kind: Kind::Numbers { default: Scaled::same(&[5, 6, 8]), min: 1, max: 1000 },
        unit: "",
        help: "partitions afterwards, no fewer than before; a topic for each",
    },
    Parameter {
        name: "through",
        kind: Kind::Choice { default: "both", of: &["both", "library", "wire"] },
        unit: "",
        help: "by what the log is reached; Kafka by the wire only",
    },
    Parameter {
        name: "sticky_partitions",
        kind: Kind::Numbers {
            default: Scaled { quick: &[1, 8], normal: &[1, 4, 16, 64], full: &[1, 4, 16, 64, 256] },
            min: 1,
            max: 1000,
        },
        unit: "",
        help: "partitions over which records without keys are spread",
    },
    number(
        "sticky_records",
        Scaled { quick: 1000, normal: 20_000, full: 200_000 },
        (1, 100_000_000),
        "",
        "records without keys",
    ),
    number("record_size", Scaled::same(100), (0, 1 << 20), "bytes", "their values"),
    number("batch_bytes", Scaled::same(16_384), (100, 16 << 20), "bytes", "batch.size"),
    number(
        "linger_records",
        Scaled::same(100),
        (1, 100_000_000),
        "",
        "records that come within linger.ms: then open batches are sent, full or not",
    ),
    number("gap_records", Scaled::same(1000), (1, 1_000_000), "", "records of the log with gaps"),
    number("gap_keys", Scaled::same(100), (1, 1_000_000), "", "keys that they have by turns"),
    number("transaction_records", Scaled::same(10), (1, 10_000), "", "records in a transaction"),
    Parameter {
        name: "compacted",
        kind: Kind::Flag { default: true },
        unit: "",
        help: "take away all but the newest record of each key",
    },
];

fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    keys::check(context)?;
    reach::by_each(context, recorder, async |reach, recorder| {
        keys::run(context, reach, recorder).await?;
        // Batches are the producer's whatever takes them: one way shows them.
        if reach.is_measured(context) {
            sticky::run(context, reach, recorder).await?;
        }
        Ok(())
    })?;
    let is_library = context.engine().is_some_and(|it| it.of_library().is_some());
    if is_library && context.parameters.choice("through") != "wire" {
        recorder.vary("through", "library");
        gaps::run(context, recorder)?;
    }
    keys::pictures(context, recorder);
    sticky::pictures(recorder);
    Ok(())
}
