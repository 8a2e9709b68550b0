//! A server is killed or stopped, and starts again: what is scanned, what is rebuilt, what is lost,
//! and how long that takes.
//!
//! A server of the cell's engine is filled through the wire and killed (SIGKILL). What it left is
//! copied for every case ([`scene`]), opened in this process ([`open`]) for a report, and served
//! from by a new server, which is timed and read to the end ([`cases`]). [`cost`] varies partitions
//! and data; [`outage`] shows a kill as a producer sees it.
//!
//! # Figures
//!
//! Of the log before (`record_size`, `records`, `batch_records`, `segment_bytes`,
//! `index_interval_bytes`, `partitions`): `records_acknowledged`, `base_offsets` (partition 0).
//!
//! For each `case` (clean, killed, killed-before-checkpoint, killed-two-days-ago, index-removed,
//! torn-tail), sums over the partitions unless they are lists:
//!
//! | figure | |
//! |---|---|
//! | `recovery_points` | list: what the checkpoint says of each partition; empty without one |
//! | `log_end_offsets` | list: where each partition ends after opening |
//! | `segments`, `segments_walked` | all, and those whose batch headers were read |
//! | `headers_read`, `checked_bytes` | batch headers read; bytes whose checksums were computed |
//! | `indexes_rebuilt`, `rebuilt_index_bases` | how many, and which of partition 0 (list) |
//! | `cut_off_bytes` | of torn tails |
//! | `journal_records_replayed`, `journal_bytes_restored` | records read; bytes that files lacked |
//! | `index_bytes_before`, `index_bytes_after` | lists: used bytes of partition 0's indexes |
//! | `index_bytes_differing` | bytes in which they differ, all together |
//! | `records_readable`, `records_lost` | read through the wire; acknowledged before and gone |
//! | `recovered_segments_said` | lines of Kafka's log about recovered segments |
//! | latencies `open`, `ready` | journals and partitions here; process start to serving |
//!
//! Before means before the kill, after means once a server serves again.
//!
//! For each `cost_partitions` and `cost_data_bytes` (the parameter `sweep` says which is varied)
//! and three cases (two of Kafka's): latencies `cost_open`, `cost_ready`; `cost_checked_bytes`.
//! `outage`: seconds from SIGKILL to the first append that is acknowledged again.

mod cases;
mod cost;
mod open;
mod outage;
mod scene;

use super::Failure;
use super::roll_by_size::programme::{KIB_RECORDS_ONLY, Programme};
use crate::engines::{EngineName, Tier};
use crate::parameters::{Kind, Parameter, Scaled, number, numbers, same, scaled};
use crate::record::Recorder;
use crate::registry::Experiment;
use crate::run::Context;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "restart",
    question: "After kill -9, what does a start scan and rebuild, what is lost, and how long does \
               it take by partitions and by data?",
    parameters: PARAMETERS,
    engines: EngineName::ALL,
    tiers: Tier::ALL,
    file_systems: true,
    seconds: Scaled { quick: 5, normal: 45, full: 900 },
    run,
};

const INT_MAX: u64 = (1 << 31) - 1;

const PARAMETERS: &[Parameter] = &[
    number("record_size", same(1024), (0, 1 << 20), "bytes", "value of a record"),
    number("records", same(4000), (1, 10_000_000), "", "records over all partitions"),
    number("batch_records", same(15), (1, 1_000_000), "", "records in a batch"),
    number("segment_bytes", same(1 << 20), (1 << 20, INT_MAX), "bytes", "segment.bytes"),
    number("index_interval_bytes", same(4096), (0, INT_MAX), "bytes", "index.interval.bytes"),
    number("partitions", same(1), (1, 1000), "", "partitions that take the batches by turns"),
    number("torn_bytes", same(100), (1, INT_MAX), "bytes", "cut off the newest segment's end"),
    Parameter {
        name: "journal",
        kind: Kind::Choice { default: "always", of: &["always", "auto", "never"] },
        unit: "",
        help: "the commit journal (journal.enable); auto asks a probe of the device",
    },
    number("repeats", scaled(1, 3, 11), (1, 1000), "", "starts of each case"),
    number("outage_appends", scaled(100, 2000, 10_000), (1, 10_000_000), "", "before and after"),
    Parameter {
        name: "cost",
        kind: Kind::Flag { default: true },
        unit: "",
        help: "vary partitions and data, too",
    },
    numbers(
        "cost_partitions",
        Scaled { quick: &[1, 8], normal: &[1, 10, 100], full: &[1, 10, 100, 1000] },
        (1, 10_000),
        "",
        "partitions of a restart",
    ),
    number("cost_partition_bytes", same(256 << 10), (1, INT_MAX), "bytes", "in each of these"),
    numbers(
        "cost_data_bytes",
        Scaled {
            quick: &[1 << 20, 4 << 20],
            normal: &[4 << 20, 32 << 20, 256 << 20],
            full: &[16 << 20, 128 << 20, 1 << 30, 4 << 30],
        },
        (1, 1 << 40),
        "bytes",
        "data in one partition",
    ),
    number(
        "cost_segment_bytes",
        scaled(2 << 20, 16 << 20, 256 << 20),
        (1 << 20, INT_MAX),
        "bytes",
        "segment.bytes of both",
    ),
    number("cost_batch_bytes", same(65_536), (100, 1 << 20), "bytes", "batches of both"),
];

fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let programme = asked(context)?;
    cases::run(context, &programme, recorder)?;
    outage::run(context, recorder)?;
    if context.parameters.flag("cost") { cost::run(context, recorder) } else { Ok(()) }
}

fn asked(context: &Context) -> Result<Programme, Failure> {
    let parameters = &context.parameters;
    let asked = Programme {
        title: "as set",
        record_size: parameters.number("record_size"),
        records: parameters.number("records"),
        batch_records: parameters.number("batch_records"),
        segment_bytes: parameters.number("segment_bytes"),
        index_interval_bytes: parameters.number("index_interval_bytes"),
        partitions: parameters.number("partitions"),
        ..KIB_RECORDS_ONLY
    };
    asked.check()?;
    Ok(asked)
}
