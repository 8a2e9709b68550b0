//! What does a batch look like on disk, what does it cost a record, and what do codecs save?
//!
//! [`layout`]: small batches of one record, read back byte by byte. [`overhead`]: bytes beside the
//! values, against the records in a batch, and what appending such batches costs. [`codecs`]: what
//! producers pack, and what `compression.type` has the log pack.
//!
//! # Figures
//!
//! Layout:
//!
//! - `positions`, `batch_bytes`, `base_offsets`: of each batch of `value_sizes`, where it
//!   begins in the file, its length, its first record's offset
//! - `overhead_bytes`: of each, the bytes that are not of keys, values and headers
//! - `crcs`: of each, the CRC-32C in its header; every one was found to hold
//! - `log_bytes`: length of the file
//!
//! Overhead:
//!
//! - `bytes_in_batch`: of a batch, for each of `record_sizes` and `batch_records`
//! - `overhead_per_record`: its bytes that are not of values, by its records
//! - `overhead_share`: those bytes by all its bytes
//! - `append_*`, `append_throughput`, `append_rate`: latency of appends of such batches of
//!   `cost_record_size`, records and bytes of values a second
//!
//! Codecs:
//!
//! - `packed_bytes`, `unpacked_bytes`, `packed_ratio`: of a batch, for each `codec`: as stored,
//!   as it would be without a codec, the second by the first
//! - `pack_rate`, `unpack_rate`: bytes of unpacked records a second
//! - `repacked_bytes`: of a batch that came without a codec, stored by `compression_type`
//! - `append_repacked_*`: latency of such appends

mod codecs;
mod layout;
mod overhead;

use super::Failure;
use crate::engines::reach::{self, NO_LIMIT, Settings};
use crate::engines::{EngineName, Tier};
use crate::parameters::{Kind, Parameter, Scaled, number};
use crate::record::Recorder;
use crate::registry::Experiment;
use crate::run::Context;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "batch-on-disk",
    question: "What does a batch look like on disk, how many bytes does it add to a record, and \
               what do codecs save?",
    parameters: PARAMETERS,
    engines: EngineName::ALL,
    tiers: Tier::ALL,
    file_systems: false,
    seconds: Scaled { quick: 2, normal: 4, full: 120 },
    run,
};

/// Of every topic: old times don't make records go, and the sweeps' batches are let in.
const SETTINGS: Settings<'_> =
    &[("retention.ms", NO_LIMIT), ("max.message.bytes", 2 * VALUES_BYTES_MAX)];
/// Values of a batch together.
const VALUES_BYTES_MAX: u64 = 32 << 20;

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "value_sizes",
        kind: Kind::Numbers { default: Scaled::same(&[6, 6, 1, 1]), min: 0, max: 1 << 20 },
        unit: "bytes",
        help: "values of the records that stand alone in their batches",
    },
    number("key_size", Scaled::same(0), (0, 1 << 16), "bytes", "their keys; 0: none"),
    number("headers", Scaled::same(0), (0, 1000), "", "their headers, each with the key `h`"),
    number("header_size", Scaled::same(8), (0, 1 << 16), "bytes", "value of a header"),
    Parameter {
        name: "through",
        kind: Kind::Choice { default: "both", of: &["both", "library", "wire"] },
        unit: "",
        help: "by what the log is reached; Kafka by the wire only",
    },
    Parameter {
        name: "batch_records",
        kind: Kind::Numbers {
            default: Scaled {
                quick: &[1, 10, 100, 1000],
                normal: &[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000],
                full: &[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000],
            },
            min: 1,
            max: 1_000_000,
        },
        unit: "",
        help: "records in a batch",
    },
    Parameter {
        name: "record_sizes",
        kind: Kind::Numbers { default: Scaled::same(&[10, 100, 1000]), min: 0, max: 1 << 20 },
        unit: "bytes",
        help: "their values",
    },
    number("record_gap_ms", Scaled::same(0), (0, 86_400_000), "ms", "between them in a batch"),
    number("cost_record_size", Scaled::same(100), (0, 1 << 20), "bytes", "values where timed"),
    number(
        "cost_batches",
        Scaled { quick: 30, normal: 500, full: 5000 },
        (1, 1_000_000),
        "",
        "batches that are timed at each number of records",
    ),
    number("codec_records", Scaled::same(100), (1, 100_000), "", "records in a packed batch"),
    number("codec_record_size", Scaled::same(1000), (0, 1 << 20), "bytes", "their values"),
    Parameter {
        name: "codec_values",
        kind: Kind::Choice { default: "json", of: &["json", "random", "zeros"] },
        unit: "",
        help: "what they hold",
    },
    number(
        "codec_rounds",
        Scaled { quick: 10, normal: 200, full: 1000 },
        (1, 1_000_000),
        "",
        "how often each is packed, unpacked and appended",
    ),
];

fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    check(context)?;
    reach::by_each(context, recorder, async |reach, recorder| {
        layout::run(context, reach, recorder).await?;
        overhead::run(context, reach, recorder).await?;
        codecs::run(context, reach, recorder).await
    })?;
    overhead::pictures(context, recorder);
    codecs::pictures(context, recorder);
    Ok(())
}

/// Every batch of the sweeps can be made and is let in.
fn check(context: &Context) -> Result<(), Failure> {
    let parameters = &context.parameters;
    let most = |name: &str| parameters.numbers(name).into_iter().max().unwrap_or_default();
    let size = most("record_sizes").max(parameters.number("cost_record_size"));
    let swept = ("batch_records", most("batch_records"), "record_sizes", size);
    let (count, size) =
        (parameters.number("codec_records"), parameters.number("codec_record_size"));
    let packed = ("codec_records", count, "codec_record_size", size);
    for (records, count, sizes, size) in [swept, packed] {
        if VALUES_BYTES_MAX < count.saturating_mul(size) {
            return Err(Failure::Usage(format!(
                "{records}={count} with {sizes}={size} make batches of more than \
                 {VALUES_BYTES_MAX} bytes: lower one of the two"
            )));
        }
    }
    Ok(())
}

/// Ways of which a picture shows one: the same bytes come of both.
fn shown_way(context: &Context) -> &'static str {
    if context.parameters.choice("through") == "library" { "library" } else { "wire" }
}
