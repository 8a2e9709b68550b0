//! When does a segment roll by its age, whose clock counts, and what do many rolls at once cost?
//!
//! [`programme`]: records some time apart, by their timestamps; nothing waits. [`full_index`]: the
//! roll that a full index asks for. [`idle`]: two logs under a real clock, of which one gets
//! nothing. [`jitter`]: many partitions whose segments began together, timed.
//!
//! # Figures
//!
//! Programme:
//!
//! - `base_offsets`, `log_end_offset`, `log_bytes`, `closed_log_bytes`, `closed_index_bytes`,
//!   `closed_time_index_bytes`, `active_index_bytes`, ...: as in roll-by-size, of the log of
//!   `records` records; one set for each `timestamps`
//!
//! Full index:
//!
//! - `full_index_base_offsets`: base offsets, for each `index_timestamps` (`rising`: each
//!   record has a time of its own, `equal`: all have the same)
//! - `full_index_closed_index_bytes`, `full_index_closed_time_index_bytes`: sizes of the closed
//!   segments' indexes
//!
//! Idle:
//!
//! - `busy_segments`, `idle_segments`, `idle_segments_after_append`: segments of the log that
//!   got records all the time, of the one that got one at the beginning, and of the latter
//!   after one more record
//! - `idle_record_age_ms`: how old the first record was then
//!
//! Jitter:
//!
//! - `first_roll_ms`: for each partition, how much later than the first record of the first
//!   segment that of the second is, for each of `jitter_ms`
//! - `most_that_roll_together`: partitions that roll in the same turn at most
//! - `rolls`: of all partitions
//! - `append_that_rolls_*`, `other_append_*`: latency of appends
//! - `turn_that_rolls_*`, `other_turn_*`: until all partitions of a turn have their
//!   acknowledgement

mod full_index;
mod idle;
mod jitter;
mod programme;

use super::Failure;
use crate::engines::{EngineName, Tier, reach};
use crate::parameters::{Kind, Parameter, Scaled, number};
use crate::record::Recorder;
use crate::registry::Experiment;
use crate::run::Context;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "roll-by-time",
    question: "When is a segment old enough to roll, by which clock, and what does it cost when \
               many roll together?",
    parameters: PARAMETERS,
    engines: EngineName::ALL,
    tiers: Tier::ALL,
    file_systems: true,
    seconds: Scaled { quick: 2, normal: 11, full: 120 },
    run,
};

/// A week.
const MS_MAX: u64 = 7 * 86_400_000;
/// Setting one of these asks for that programme only.
const OF_THE_PROGRAMME: &[&str] =
    &["segment_ms", "records", "record_gap_ms", "record_size", "first_record_size", "timestamps"];

const PARAMETERS: &[Parameter] = &[
    number("segment_ms", Scaled::same(10_000), (1, MS_MAX), "ms", "segment.ms"),
    number("records", Scaled::same(3), (1, 100_000), "", "records, one in a batch"),
    number(
        "record_gap_ms",
        Scaled::same(10_000),
        (0, MS_MAX),
        "ms",
        "between the timestamps of a record and the next",
    ),
    number("record_size", Scaled::same(6), (0, 10_000), "bytes", "value of a record"),
    number("first_record_size", Scaled::same(5), (0, 10_000), "bytes", "value of the first one"),
    Parameter {
        name: "timestamps",
        kind: Kind::Choice { default: "rising", of: &["rising", "falling", "none"] },
        unit: "",
        help: "each record later than the one before it, earlier, or without a time",
    },
    Parameter {
        name: "through",
        kind: Kind::Choice { default: "both", of: &["both", "library", "wire"] },
        unit: "",
        help: "by what the log is reached; Kafka by the wire only",
    },
    number(
        "segment_index_bytes",
        Scaled::same(120),
        (48, 1 << 20),
        "bytes",
        "segment.index.bytes, where an index fills up",
    ),
    number(
        "index_records",
        Scaled { quick: 24, normal: 50, full: 50 },
        (1, 100_000),
        "",
        "records, where an index fills up",
    ),
    number(
        "idle_segment_ms",
        Scaled { quick: 100, normal: 500, full: 2000 },
        (20, 60_000),
        "ms",
        "segment.ms under a real clock",
    ),
    number("idle_spans", Scaled::same(5), (2, 1000), "", "so many times that is waited for"),
    Parameter {
        name: "jitter_ms",
        kind: Kind::Numbers { default: Scaled::same(&[0, 10_000]), min: 0, max: MS_MAX },
        unit: "ms",
        help: "values of segment.jitter.ms; those above jitter_segment_ms count as that",
    },
    number(
        "jitter_segment_ms",
        Scaled::same(10_000),
        (1, MS_MAX),
        "ms",
        "segment.ms, where jitter is swept",
    ),
    number("jitter_gap_ms", Scaled::same(500), (1, MS_MAX), "ms", "between a turn and the next"),
    number(
        "jitter_partitions",
        Scaled { quick: 8, normal: 100, full: 500 },
        (1, 1000),
        "",
        "partitions whose segments begin together",
    ),
    number(
        "jitter_turns",
        Scaled { quick: 45, normal: 200, full: 500 },
        (2, 100_000),
        "",
        "batches for each of them, a record in each",
    ),
    number("jitter_record_size", Scaled::same(1000), (0, 10_000), "bytes", "their values"),
];

fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let parameters = &context.parameters;
    let asked = programme::Programme::asked(parameters);
    let mut programmes = vec![asked.clone()];
    if !parameters.is_any_set(OF_THE_PROGRAMME) {
        programmes.extend(programme::others());
    }
    reach::by_each(context, recorder, async |reach, recorder| {
        for (number, programme) in programmes.iter().enumerate() {
            programme.run(reach, number, recorder).await?;
        }
        asked.declare(recorder);
        full_index::run(context, reach, recorder).await?;
        idle::run(context, reach, recorder).await
    })?;
    let is_library = context.engine().is_some_and(|it| it.of_library().is_some());
    if is_library && parameters.choice("through") != "wire" {
        recorder.vary("through", "library");
        jitter::run(context, recorder)?;
    }
    programme::notes(recorder);
    Ok(())
}
