//! From socket to file: frames as long as Produce requests, written by linked chains, by calls, and
//! not at all. What chains cost in between is [`chains`]' own question; this is its short form.

use super::pictures;
use crate::experiments::measure;
use crate::experiments::{Failure, chains};
use crate::record::{Better, Recorder, Table, Unit, unit};
use crate::run::Context;

const FRAME_BYTES: u64 = 10_240;
/// As that experiment names them.
const WAYS: [&str; 5] = ["network", "pwrite", "chain", "due", "late"];
const CPU_PER_FRAME: Unit = Unit { name: "CPU us/frame", better: Better::Lower };
const MB_PER_SECOND: Unit = Unit { name: "MB/s", better: Better::Higher };

/// That experiment's figures as they are named here.
const FIGURES: [(&str, &str, Unit); 5] = [
    ("MB/s", "frame_rate", MB_PER_SECOND),
    ("CPU us/batch", "frame_cpu", CPU_PER_FRAME),
    ("enters/batch", "frame_enters", unit::RATIO),
    ("punts/batch", "frame_punted", unit::RATIO),
    ("batches/plan", "frames_in_a_plan", unit::RATIO),
];

/// Every number of frames under way.
///
/// # Errors
/// Whatever the network or the disk refuses.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    if measure::cores() < 2 {
        recorder.note("uring, socket: left out, as server and client need a core each.");
        return Ok(());
    }
    let heads: Vec<&str> =
        ["in flight", "way"].into_iter().chain(FIGURES.iter().map(|it| it.1)).collect();
    let mut table = Table::new("From socket to file", &heads);
    // Shorter runs are all beginning.
    let millis = context.parameters.number("point_ms").max(60);
    for in_flight in context.parameters.numbers("in_flight") {
        recorder.vary("in_flight", in_flight);
        for way in super::in_turn(context, &WAYS) {
            context.check()?;
            let load = format!("{FRAME_BYTES}:1:{in_flight}");
            let measured = chains::measured(&context.folder, (&load, way), false, millis)?;
            recorder.as_engine(way);
            let mut row = vec![in_flight.to_string(), way.to_owned()];
            for (theirs, ours, unit) in FIGURES {
                let value = measured.iter().find(|it| it.0 == theirs).map(|it| it.1);
                // Without tracepoints some are no numbers.
                let value = value.filter(|it| it.is_finite());
                if let Some(value) = value {
                    recorder.figure(ours, value, unit);
                }
                row.push(value.map_or("-".to_owned(), |it| format!("{it:.2}")));
            }
            table.row(row);
        }
    }
    recorder.as_engine("none");
    recorder.table(table);
    recorder.note(
        "uring, socket: frames of 10,240 bytes on one connection, nothing synced. `network` \
         writes nothing: what remains above it is the price of writing. `chain` writes log and \
         two index entries for each plan, `due` the entries only when they are due, `late` in \
         pages; `pwrite` is `due` by system calls.",
    );
    pictures::socket(recorder);
    Ok(())
}
