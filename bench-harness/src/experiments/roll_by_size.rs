//! When does a segment roll by size, what do its files look like, and what does a roll cost?
//!
//! [`programme`] says what is appended, [`phenomenon`] reads the files back, [`cost`] times the
//! appends that roll against those that don't, [`prepared`] what prepared next segments would save.

pub(super) mod cost;
pub(super) mod phenomenon;
mod prepared;
pub mod programme;

use uringlog::LogConfig;

use super::Failure;
use crate::engines::server::{self, Server};
use crate::engines::sink::Sink;
use crate::engines::{EngineName, Tier, library};
use crate::parameters::{Kind, Parameter, Scaled, number, same};
use crate::record::Recorder;
use crate::registry::Experiment;
use crate::run::Context;

use programme::{Programme, TOPIC};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "roll-by-size",
    question: "Where does segment.bytes cut a log, what is left of each file, and what does the \
               append that rolls cost?",
    parameters: PARAMETERS,
    engines: EngineName::ALL,
    tiers: Tier::ALL,
    file_systems: true,
    seconds: Scaled { quick: 4, normal: 10, full: 600 },
    run,
};

/// Setting one of these asks for that programme only, and for no other document's.
const OF_THE_PROGRAMME: &[&str] = &[
    "record_size",
    "records",
    "batch_records",
    "small_records",
    "numbered",
    "segment_bytes",
    "index_interval_bytes",
    "partitions",
];

const PARAMETERS: &[Parameter] = &[
    number("record_size", same(1024), (0, 1 << 20), "bytes", "value of a record"),
    number("records", same(4000), (1, 10_000_000), "", "records, without the small ones"),
    number("batch_records", same(15), (1, 1_000_000), "", "records in a batch"),
    Parameter {
        name: "small_records",
        kind: Kind::Flag { default: true },
        unit: "",
        help: "begin with 23 small records in batches of one: 22 of 106 bytes, one of 116",
    },
    Parameter {
        name: "numbered",
        kind: Kind::Flag { default: false },
        unit: "",
        help: "a value ends with a hyphen and the record's number",
    },
    number("segment_bytes", same(1 << 20), (1 << 20, (1 << 31) - 1), "bytes", "segment.bytes"),
    number("index_interval_bytes", same(4096), (0, (1 << 31) - 1), "bytes", "index.interval.bytes"),
    number("partitions", same(1), (1, 1000), "", "partitions that take the batches by turns"),
    Parameter {
        name: "through",
        kind: Kind::Choice { default: "both", of: &["both", "library", "wire"] },
        unit: "",
        help: "by what the log is reached; Kafka by the wire only",
    },
    Parameter {
        name: "cost",
        kind: Kind::Flag { default: true },
        unit: "",
        help: "time the appends that roll, too",
    },
    Parameter {
        name: "cost_partitions",
        kind: Kind::Numbers {
            default: Scaled { quick: &[1, 8], normal: &[1, 10, 100], full: &[1, 10, 100, 1000] },
            min: 1,
            max: 1000,
        },
        unit: "",
        help: "partitions that roll together",
    },
    Parameter {
        name: "cost_rolls",
        kind: Kind::Number {
            default: Scaled { quick: 40, normal: 300, full: 3000 },
            min: 3,
            max: 1_000_000,
        },
        unit: "",
        help: "rolls to be timed at each number of partitions, three of each at least",
    },
    number(
        "cost_batches",
        same(16),
        (4, 1000),
        "",
        "batches that fit a segment where rolls are timed",
    ),
    Parameter {
        name: "prepared",
        kind: Kind::Flag { default: true },
        unit: "",
        help: "time plans that roll to prepared next segments, too",
    },
    Parameter {
        name: "preallocate",
        kind: Kind::Flag { default: false },
        unit: "",
        help: "Kafka's preallocate, where rolls are timed",
    },
];

fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let asked = Programme::asked(&context.parameters)?;
    let mut programmes = vec![asked.clone()];
    if !context.parameters.is_any_set(OF_THE_PROGRAMME) {
        programmes.extend(programme::others());
    }
    let is_library = context.engine().is_some_and(|it| it.of_library().is_some());
    let through = context.parameters.choice("through");
    let (directly, by_wire) =
        (is_library && through != "wire", !is_library || through != "library");
    if directly {
        recorder.vary("through", "library");
        for (number, programme) in programmes.iter().enumerate() {
            by_library(context, (number, programme), recorder)?;
        }
    }
    if by_wire {
        // The rules are the log's, whoever it is reached by: ours show one programme this way.
        let count = if directly { 1 } else { programmes.len() };
        recorder.vary("through", "wire");
        through_the_wire(context, &programmes[..count], recorder)?;
    }
    phenomenon::notes(recorder);
    asked.declare(recorder);
    recorder.vary("through", "library");
    if !directly || !context.parameters.flag("cost") {
        return Ok(());
    }
    cost::run(context, recorder)?;
    if context.parameters.flag("prepared") { prepared::run(context, recorder) } else { Ok(()) }
}

fn by_library(
    context: &Context,
    (number, programme): (usize, &Programme),
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let mut options = library::options(context)?;
    options.directory = context.folder.join(format!("programme-{number}"));
    library::with_engine(context, options, async |engine| {
        let topic = (TOPIC, programme.partition_count());
        let configure = |config: &mut LogConfig| programme.configure(config);
        let sink = Sink::library(context, engine, topic, configure).await?;
        programme.play(context, &sink).await?;
        // Before the engine is closed: that would cut the active indexes to their length.
        phenomenon::record(&sink, programme, recorder).await
    })
}

fn through_the_wire(
    context: &Context,
    programmes: &[Programme],
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let server = Server::start(context, "server", &[])?;
    server::block_on(async {
        for (number, programme) in programmes.iter().enumerate() {
            let topic = format!("{TOPIC}-{number}");
            let topic = (topic.as_str(), programme.partition_count());
            let sink = Sink::wire(&server, topic, &programme.settings()).await?;
            programme.play(context, &sink).await?;
            phenomenon::record(&sink, programme, recorder).await?;
        }
        match context.parameters.flag("cost") {
            true => cost::through_the_wire(context, &server, recorder).await,
            false => Ok(()),
        }
    })?;
    server.stop()
}
