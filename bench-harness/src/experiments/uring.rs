//! What does io_uring buy on this host, and where does it lose?
//!
//! The experiment compares *ways* of doing the same work. A way stands where other experiments
//! have the engine: in figures, histograms and pictures. `part` says what is compared:
//!
//! | part | question | operation |
//! |---|---|---|
//! | [`disk`] | sequential against random writes | `write` |
//! | [`plans`] | the log's own plans as linked chains and in seven other ways | `append` |
//! | [`socket`] | frames from a socket into files, chains against calls | `frame` |
//! | [`reads`] | file ranges to sockets in five ways | `read` |
//! | [`queues`] | set-ups of a ring, registration, depth of the queue | `queued_write` |
//! | [`syncs`] | ways to make one append durable | `synced_write` |
//! | [`index`] | index entries by a write or by a store into mapped memory | `indexed_append` |
//!
//! The last three can't run the log's plans, so they are loops of their own; each says what
//! differs.
//!
//! # Figures
//!
//! Of each operation and way:
//!
//! | figure | is |
//! |---|---|
//! | `OPERATION_throughput` | bytes/s of what was asked for, without rewritten and index bytes |
//! | `OPERATION_cpu` | CPU seconds for 10^9 bytes, kernel workers and other threads included |
//! | `OPERATION_system_calls` | for one operation, by the kernel's tracepoint, where permitted |
//! | `OPERATION_punted` | ring entries handed to a kernel worker for one operation, likewise |
//! | `OPERATION_workers` | kernel workers of the ring that were seen |
//! | `OPERATION_p50` ... `OPERATION_max`, `OPERATION_count` | its latency |
//!
//! Of each way on the ring, at each point, against the best of all others there (which may be
//! another one for each of the three): `throughput_to_best_other`, `p99_to_best_other`,
//! `cpu_to_best_other`. Of each part, with way `none`: `points_compared`, and `points_lost` where
//! the ring has less throughput than the best other way, more latency, or more CPU.
//!
//! Further, by part:
//!
//! | figure | is |
//! |---|---|
//! | `sequential_to_random` | disk: throughput in order over that in disorder |
//! | `append_syncs` | plans: syncs and durable writes handed over for one batch |
//! | `append_chains`, `append_entries`, `append_enters` | plans, on the ring: of one batch |
//! | `frame_rate`, `frame_cpu`, `frame_enters`, `frame_punted` | socket: MB/s; of one frame |
//! | `frames_in_a_plan` | socket: frames that a write gathers |
//! | `read_enters` | reads: calls that enter the ring, for one answer |
//! | `device_bytes_read` | reads: what the device gave; nothing when hot, all of it when cold |
//! | `rewritten_bytes` | syncs: of the block at the log's end, for one append |
//!
//! What isn't a parameter of the command line and yet varies: `sweep` (what is varied in plans and
//! reads), `pattern` (disk), `sync`, `batches` (of a partition in a turn), `group_commit`, `cache`
//! (`hot`, `cold`). The series `cpu_of_others` says how disturbed plans were, and the counter
//! `bytes_appended` how much each way appended at a point.

mod cost;
mod disk;
mod index;
mod parameters;
mod pictures;
mod plans;
mod queues;
mod reads;
mod socket;
mod syncs;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use super::{DoingTo, Failure};
use crate::parameters::Scaled;
use crate::record::Recorder;
use crate::registry::Experiment;
use crate::run::Context;
use crate::sys::Ring;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "uring",
    question: "What does io_uring buy on this host, against system calls and pools of threads, \
               and where does it lose?",
    parameters: parameters::PARAMETERS,
    // It compares ways of its own, each with and without syncs.
    engines: &[],
    tiers: &[],
    file_systems: true,
    seconds: Scaled { quick: 10, normal: 180, full: 1500 },
    run,
};

type Part = fn(&Context, &mut Recorder) -> Result<(), Failure>;

const PARTS: [(&str, Part); 7] = [
    ("disk", disk::run),
    ("plans", plans::run),
    ("socket", socket::run),
    ("reads", reads::run),
    ("queues", queues::run),
    ("syncs", syncs::run),
    ("index", index::run),
];

fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    uringlog::ring::limits::raise_nofile();
    let asked = context.parameters.choice("part");
    for (name, part) in PARTS.iter().filter(|(name, _)| asked == "all" || asked == *name) {
        context.check()?;
        if *name != "disk"
            && let Err(error) = Ring::new(8)
        {
            return Err(Failure::Skipped(format!("io_uring is refused here: {error}")));
        }
        restore(context, recorder);
        recorder.vary("part", *name);
        part(context, recorder)?;
    }
    restore(context, recorder);
    cost::notes(recorder);
    Ok(())
}

/// All parameters as they were given, and no way.
fn restore(context: &Context, recorder: &mut Recorder) {
    recorder.as_engine("none");
    for (name, value) in context.parameters.values() {
        recorder.vary(name, value.clone());
    }
    for name in ["sweep", "pattern", "sync", "group_commit", "cache", "batches"] {
        recorder.forget(name);
    }
}

/// How long each way is measured at each point.
fn point_time(context: &Context) -> Duration {
    Duration::from_millis(context.parameters.number("point_ms"))
}

/// The ways in the order in which this round takes them: none always follows the same other one.
fn in_turn<T: Copy>(context: &Context, ways: &[T]) -> Vec<T> {
    let mut ways = ways.to_vec();
    let round = usize::try_from(context.round).expect("usize is 64 bits");
    let shift = round % ways.len().max(1);
    ways.rotate_left(shift);
    if round % 2 == 1 {
        ways.reverse();
    }
    ways
}

/// A new file to be read and written.
fn new_file(path: &Path) -> Result<File, Failure> {
    let opened = File::options().read(true).write(true).create_new(true).open(path);
    opened.doing_to("make", path)
}

fn remove(path: &Path) -> Result<(), Failure> {
    std::fs::remove_file(path).doing_to("remove", path)
}
