//! How does retention take old records away: which files go, when, in which order; how long does a
//! record really live; and what does a pass that deletes cost those who append and fetch meanwhile?
//!
//! [`stages`] shows the two stages of a deletion, by `retention.ms` and by `retention.bytes`,
//! [`lifetime`] how long records live, [`held`] what one record from the future does, [`cost`] what
//! a pass costs.
//!
//! # Figures
//!
//! Of the two stages, with the parameters `through` (`library`, `wire`), `rule` (`time`, `size`)
//! and those of the programme; all read back from names and sizes of files and from the log:
//!
//! - `base_offsets`, `log_bytes`: of all segments before any went (lists).
//! - `deleted_base_offsets`, `deleted_log_bytes`: of those renamed to `.deleted` (lists).
//! - `kept_base_offsets`, `kept_log_bytes`: of those left when all `.deleted` files are gone
//!   (lists); `kept_bytes` is their sum; `kept_index_bytes`, `kept_time_index_bytes`: of the
//!   index files that there are beside them (lists).
//! - `earliest_offset`, `latest_offset`: what can be read afterwards, as ListOffsets answers.
//! - `latest_offset_after_one_more`: when one more record has been appended; offsets go on.
//! - `looks_without_an_active_segment`: how often a look at the directory found no `.log` to write.
//! - `renamed_after`, `gone_after` (s): from the newest record's time to the first `.deleted`
//!   name, and from there to the last one's end.
//!
//! Of lifetimes, with the parameter `span_ms`: `oldest_record_lifetime`, `newest_record_lifetime`
//! and `segment_span` (ms; the greatest, the least, and the greatest over the segments that went),
//! `segments_that_went`. Series `age of the
//! oldest record`.
//!
//! Of the record from the future: `held_from_offset`, `held_records`, `earliest_after_release`;
//! `released_after` (ms) counts from the time that the record bears.
//!
//! Of the cost, with the parameter `cost_segments`: latencies `append_before_pass`,
//! `append_during_pass`, `fetch_before_pass`, `fetch_during_pass` with their quantiles;
//! `segments_deleted`, `files_removed`; `pass_time` (s) from the first segment's leaving the log
//! until no file of a deleted segment is left.

mod cost;
mod held;
mod lifetime;
mod stages;

use std::time::Duration;

use tokio::time::sleep;

use super::Failure;
use super::roll_by_size::programme::{KIB_RECORDS_ONLY, NUMBERED_RECORDS, Programme};
use crate::engines::server::{self, Server};
use crate::engines::{EngineName, Tier, library};
use crate::parameters::{Kind, Parameter, Scale, Scaled, flag, number};
use crate::record::{Better, Recorder, Unit};
use crate::registry::Experiment;
use crate::run::Context;

use stages::{Rule, Stages};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "retention",
    question: "Which files does retention take away, in which two stages, how long do records \
               really live, and what does a pass cost appends and fetches?",
    parameters: PARAMETERS,
    engines: EngineName::ALL,
    tiers: Tier::ALL,
    file_systems: true,
    seconds: Scaled { quick: 5, normal: 50, full: 400 },
    run,
};

/// Times by the wall clock.
const MS: Unit = Unit { name: "ms", better: Better::None };
/// How often retention looks; the shard's chores come every 200 ms anyway.
const CHECK_MS: u64 = 100;

/// Setting one of these asks for that programme only, and for no other document's.
const OF_THE_PROGRAMME: &[&str] =
    &["record_size", "records", "batch_records", "numbered", "segment_bytes"];

const PARAMETERS: &[Parameter] = &[
    number("record_size", Scaled::same(1024), (0, 1 << 20), "bytes", "value of a record"),
    number("records", Scaled::same(4000), (1, 1_000_000), "", "records of the log"),
    number("batch_records", Scaled::same(15), (1, 1_000_000), "", "records in a batch"),
    flag("numbered", false, "a value ends with a hyphen and the record's number"),
    number("segment_bytes", Scaled::same(1 << 20), (1 << 20, INT_MAX), "bytes", "segment.bytes"),
    number(
        "retention_ms",
        Scaled { quick: 600, normal: 10_000, full: 10_000 },
        (1, HOUR_MS),
        "ms",
        "retention.ms, set when all records are there",
    ),
    number("retention_bytes", Scaled::same(2 << 20), (0, 1 << 40), "bytes", "retention.bytes"),
    number(
        "file_delete_delay_ms",
        Scaled { quick: 400, normal: 5_000, full: 60_000 },
        // What is gone sooner may not be seen in between.
        (100, HOUR_MS),
        "ms",
        "file.delete.delay.ms: from the first stage to the second, long enough to be seen",
    ),
    Parameter {
        name: "through",
        kind: Kind::Choice { default: "both", of: &["both", "library", "wire"] },
        unit: "",
        help: "by what the log is reached; Kafka by the wire only, the others in quick runs by the \
               library only unless this is set",
    },
    number(
        "lifetime_retention_ms",
        Scaled { quick: 400, normal: 2_000, full: 5_000 },
        (1, HOUR_MS),
        "ms",
        "retention.ms where lifetimes are measured and a record comes from the future",
    ),
    Parameter {
        name: "span_ms",
        kind: Kind::Numbers {
            default: Scaled {
                quick: &[100, 200, 500],
                normal: &[500, 1000, 2000, 4000],
                full: &[500, 1000, 2000, 4000, 8000, 16_000, 32_000],
            },
            min: 10,
            max: HOUR_MS,
        },
        unit: "ms",
        help: "segment.ms where lifetimes are measured: how much time a segment spans",
    },
    number("span_records", Scaled::same(8), (2, 1000), "", "records appended within such a span"),
    number(
        "future_ms",
        Scaled { quick: 800, normal: 5_000, full: 10_000 },
        (1, HOUR_MS),
        "ms",
        "how far ahead of the clock the record from the future is",
    ),
    number("future_record", Scaled::same(3), (0, 7), "", "its offset; each segment has two of 8"),
    flag("cost", true, "measure what a pass costs, too"),
    Parameter {
        name: "cost_segments",
        kind: Kind::Numbers {
            default: Scaled { quick: &[1, 20], normal: &[1, 100, 1000], full: &[1, 100, 10_000] },
            min: 1,
            max: 100_000,
        },
        unit: "",
        help: "segments that a pass deletes",
    },
    number(
        "cost_partitions",
        Scaled { quick: 4, normal: 8, full: 8 },
        (1, 400),
        "",
        "partitions that these segments are spread over, at most",
    ),
    number(
        "cost_before_ms",
        Scaled { quick: 200, normal: 3_000, full: 10_000 },
        (100, HOUR_MS),
        "ms",
        "how long appends and fetches are timed before a pass",
    ),
    number(
        "cost_interval_us",
        Scaled::same(2_000),
        (100, 1_000_000),
        "us",
        "from one append and fetch to the next ones, while a pass is measured",
    ),
];

const INT_MAX: u64 = (1 << 31) - 1;
const HOUR_MS: u64 = 3_600_000;

fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let runs = planned(context)?;
    let is_library = context.engine().is_some_and(|it| it.of_library().is_some());
    let parameters = &context.parameters;
    let through = parameters.choice("through");
    let is_asked = context.scale != Scale::Quick || parameters.is_any_set(&["through"]);
    if is_library && through != "wire" {
        recorder.vary("through", "library");
        by_library(context, &runs, recorder)?;
        if parameters.flag("cost") {
            cost::run(context, recorder)?;
        }
    }
    if !is_library || (through != "library" && is_asked) {
        recorder.vary("through", "wire");
        by_wire(context, &runs, recorder)?;
    }
    let is_directly = is_library && through != "wire";
    stages::pictures(recorder, if is_directly { "library" } else { "wire" }, &runs);
    notes(recorder);
    Ok(())
}

/// What is shown: by time the programme that is set, by size that one, too, and unless one is set
/// the one of the document on `retention.bytes`.
fn planned(context: &Context) -> Result<Vec<(Rule, Programme)>, Failure> {
    let parameters = &context.parameters;
    let asked = Programme {
        record_size: parameters.number("record_size"),
        records: parameters.number("records"),
        batch_records: parameters.number("batch_records"),
        numbered: parameters.flag("numbered"),
        segment_bytes: parameters.number("segment_bytes"),
        ..KIB_RECORDS_ONLY
    };
    let title = if asked == KIB_RECORDS_ONLY { asked.title } else { "as set" };
    let asked = Programme { title, ..asked };
    asked.check()?;
    let mut runs = vec![(Rule::Time, asked.clone()), (Rule::Size, asked)];
    if !parameters.is_any_set(OF_THE_PROGRAMME) {
        runs.push((Rule::Size, NUMBERED_RECORDS));
    }
    Ok(runs)
}

/// All at once on one engine: each of them mostly waits.
fn by_library(
    context: &Context,
    runs: &[(Rule, Programme)],
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let mut options = library::options(context)?;
    options.retention_check_ms = CHECK_MS;
    options.first_retention_ms = CHECK_MS;
    let seen = library::with_engine(context, options, async |engine| {
        let stages = async |from: usize, to: usize| {
            let mut seen = Vec::new();
            for (number, (rule, programme)) in runs.iter().enumerate().take(to).skip(from) {
                let topic = format!("stages-{number}");
                seen.push(stages::by_library(context, engine, (&topic, *rule, programme)).await?);
            }
            Ok::<Vec<Stages>, Failure>(seen)
        };
        let lifetimes = lifetime::run(context, engine);
        let held = held::run(context, engine);
        tokio::try_join!(stages(0, 1), stages(1, 2), stages(2, runs.len()), lifetimes, held)
    })?;
    let (by_time, by_size, of_document, lifetimes, held) = seen;
    for (stages, planned) in by_time.iter().chain(&by_size).chain(&of_document).zip(runs) {
        stages.record(context, (planned.0, &planned.1), recorder);
    }
    runs[0].1.declare(recorder);
    lifetime::record(context, &lifetimes, recorder);
    held.record(context, recorder);
    Ok(())
}

fn by_wire(
    context: &Context,
    runs: &[(Rule, Programme)],
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let check = CHECK_MS.to_string();
    let settings = [
        ("log.retention.check.interval.ms", check.as_str()),
        ("log.initial.task.delay.ms", check.as_str()),
    ];
    let server = Server::start(context, "server", &settings)?;
    let (by_time, by_size, of_document) = server::block_on(async {
        let stages = async |from: usize, to: usize| {
            let mut seen = Vec::new();
            for (number, (rule, programme)) in runs.iter().enumerate().take(to).skip(from) {
                let topic = format!("stages-{number}");
                seen.push(stages::by_wire(context, &server, (&topic, *rule, programme)).await?);
            }
            Ok::<Vec<Stages>, Failure>(seen)
        };
        tokio::try_join!(stages(0, 1), stages(1, 2), stages(2, runs.len()))
    })?;
    for (stages, planned) in by_time.iter().chain(&by_size).chain(&of_document).zip(runs) {
        stages.record(context, (planned.0, &planned.1), recorder);
    }
    runs[0].1.declare(recorder);
    server.stop()
}

fn notes(recorder: &mut Recorder) {
    recorder.note(
        "The document shows a `.snapshot` of 56 bytes beside the new segment: that of one \
         idempotent producer. The records here come from none, so theirs has 10 bytes.",
    );
    recorder.note(
        "uringlog looks for segments to delete in its chores, every 200 ms, and carries out one \
         renaming or unlinking of each partition at a time, the next one as soon as that is over: \
         a listing may show some of a pass's segments with `.deleted` and others without. Kafka \
         renames all of them while it holds the log.",
    );
    recorder.note(
        "Lifetimes count from a record's time until it can't be read any more. A pass of retention \
         comes every 200 ms, so they are up to that much longer than the rule says.",
    );
}

/// Between two looks at a directory.
async fn pause() {
    sleep(Duration::from_millis(5)).await;
}
