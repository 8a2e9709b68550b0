//! Experiments on a partition log, with latency histograms, engine against engine.
//!
//! ```text
//! bench-harness list                     what there is
//! bench-harness run NAME...|all          run it: raw data, figures, report with pictures
//! bench-harness report DIR...            the report anew, or several runs side by side
//! bench-harness compare DIR_A DIR_B      what differs, and whether it is worse
//! ```
//!
//! [`registry`] says how an experiment is added, [`record`] what a run leaves behind, [`compare`]
//! how two runs are judged.

mod cli;

mod registry;

mod parameters;

mod run;

mod record;

mod report;

mod compare;

mod engines;

mod experiments;

mod sys;

use std::process::ExitCode;

use clap::Parser;

/// The server under test is this program, too: of the same build, in a process of its own.
const SERVE: &str = "serve";

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|it| it == SERVE) {
        return serve();
    }
    match cli::execute(cli::Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench-harness: {}", run::explained(&failure));
            ExitCode::FAILURE
        }
    }
}

/// As `uringlog serve`; ends with the thread that started it.
fn serve() -> ExitCode {
    let signal = Some(rustix::process::Signal::TERM);
    if let Err(error) = rustix::process::set_parent_process_death_signal(signal) {
        eprintln!("bench-harness: the server outlives its starter: {error}");
    }
    uringlog::cli::main()
}
