//! Experiments on a partition log, with latency histograms, engine against engine.

mod experiments;
mod sys;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use experiments::{Failure, chains, journal, load, splice};

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// From socket to file with two rings on one thread: linked chains against plain writes.
    Chains(chains::Options),
    /// Turns of one shard that are durable on the device: the commit journal against linked syncs
    /// and plain files.
    Journal(journal::Options),
    /// Open-loop load on any Kafka broker: latency from the scheduled time.
    #[command(subcommand)]
    Load(load::Load),
    /// How long a full commit journal takes to be put in place after a crash.
    Replay(journal::replay::Options),
    /// Ranges of a file to sockets by linked splices, beside stalled readers; sendfile and
    /// read+send as controls.
    Splice(splice::Options),
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench-harness: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.experiment {
        Experiment::Chains(options) => chains::run(&options),
        Experiment::Journal(options) => journal::run(&options),
        Experiment::Load(load) => load::run(&load),
        Experiment::Replay(options) => journal::replay::run(&options),
        Experiment::Splice(options) => splice::run(&options),
    }
}
