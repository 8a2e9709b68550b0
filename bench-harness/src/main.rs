//! Experiments on a partition log, with latency histograms, engine against engine.

mod experiments;
mod sys;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use experiments::{Failure, splice};

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
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
        Experiment::Splice(options) => splice::run(&options),
    }
}
