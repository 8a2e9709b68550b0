//! What the settings of a log allow, and what each of them does when it is made smaller or larger.
//!
//! [`refusal`]: what a server says to a `segment.bytes` that is too small. [`settings`]: segments,
//! index entries and what is kept, for each setting swept. [`flush`]: what syncing after every so
//! many records costs.

mod flush;
mod refusal;
mod settings;

use serde_json::Value;

use super::Failure;
use crate::engines::EngineName;
use crate::engines::server::Server;
use crate::parameters::{Kind, Parameter, Scaled};
use crate::record::Recorder;
use crate::registry::Experiment;
use crate::run::Context;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "limits",
    question: "Which segment.bytes is refused, what does each setting of a log do when it is \
               swept, and what does flush.messages cost?",
    parameters: PARAMETERS,
    engines: EngineName::ALL,
    // flush.messages chooses the tier, and is swept.
    tiers: &[],
    file_systems: true,
    seconds: Scaled { quick: 6, normal: 10, full: 300 },
    run,
};

/// `flush.messages` without a limit, as Kafka's default has it.
const NO_LIMIT: u64 = i64::MAX.unsigned_abs();
const HOURS_MAX: u64 = 24 * 365;
const INT_MAX: u64 = (1 << 31) - 1;

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "refused_segment_bytes",
        kind: Kind::Number { default: Scaled::same(300), min: 1, max: (1 << 20) - 1 },
        unit: "bytes",
        help: "a segment.bytes that servers are to refuse",
    },
    sweep("segment_bytes", &[1 << 20, 2 << 20, 4 << 20, 16 << 20], (1 << 20, INT_MAX), "bytes"),
    sweep("segment_hours", &[6, 24, 168], (1, HOURS_MAX), "hours"),
    sweep("retention_hours", &[168, 72, 24], (1, HOURS_MAX), "hours"),
    sweep("index_interval_bytes", &[0, 4096, 65_536, 1 << 20], (0, INT_MAX), "bytes"),
    sweep("index_bytes", &[120, 1200, 10 << 20], (48, INT_MAX), "bytes"),
    sweep("flush_messages", &[1, 10, 100, 1000, NO_LIMIT], (1, NO_LIMIT), "records"),
    Parameter {
        name: "flush_appends",
        kind: Kind::Number {
            default: Scaled { quick: 300, normal: 5000, full: 50_000 },
            min: 10,
            max: 100_000_000,
        },
        unit: "",
        help: "records to be timed for each flush.messages, one in a batch",
    },
    Parameter {
        name: "flush_warm_up",
        kind: Kind::Number {
            default: Scaled { quick: 300, normal: 5000, full: 20_000 },
            min: 0,
            max: 100_000_000,
        },
        unit: "",
        help: "records before that through the wire, not timed: a Java server runs slowly at first",
    },
    Parameter {
        name: "flush_record_size",
        kind: Kind::Number { default: Scaled::same(1000), min: 1, max: 1 << 20 },
        unit: "bytes",
        help: "their values",
    },
];

const fn sweep(
    name: &'static str,
    points: &'static [u64],
    (min, max): (u64, u64),
    unit: &'static str,
) -> Parameter {
    let kind = Kind::Numbers { default: Scaled::same(points), min, max };
    Parameter { name, kind, unit, help: "points of the sweep" }
}

/// Carries out a sweep: the parameter has one value after the other, and its list afterwards.
fn each(
    context: &Context,
    recorder: &mut Recorder,
    name: &str,
    mut point: impl FnMut(u64, &mut Recorder) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let points = context.parameters.numbers(name);
    for value in &points {
        context.check()?;
        recorder.vary(name, *value);
        point(*value, recorder)?;
    }
    recorder.vary(name, Value::from(points));
    Ok(())
}

fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let server = Server::start(context, "server", &[])?;
    refusal::run(context, &server, recorder)?;
    flush::through_the_wire(context, &server, recorder)?;
    server.stop()?;
    let is_library = context.engine().is_some_and(|it| it.of_library().is_some());
    if is_library {
        settings::run(context, recorder)?;
        flush::directly(context, recorder)?;
    }
    flush::pictures(recorder);
    settings::pictures(recorder);
    Ok(())
}
