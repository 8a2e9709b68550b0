//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::experiments::{Failure, chains, journal, load, splice};
use crate::{compare, registry, report, run};

/// Experiments on a partition log, with latency histograms, engine against engine.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Every experiment with the question that it answers, and what can be set.
    List,
    /// Run experiments, and write raw data and report to a new folder.
    Run(run::Options),
    /// Make the report anew from recorded data; with several folders, side by side.
    Report(Report),
    /// What differs between two runs, with confidence; fails on a regression beyond the noise.
    Compare(Compare),
    /// Whether the histograms show a delay that is known: the same as `run self-test`.
    SelfTest(SelfTest),
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

#[derive(clap::Args)]
struct Report {
    /// Folders of runs.
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    /// The report's file [default: report.md in the folder; required for several].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Compare {
    /// Folder of the run before.
    #[arg(value_name = "DIR_A")]
    before: PathBuf,
    /// Folder of the run after.
    #[arg(value_name = "DIR_B")]
    after: PathBuf,
}

#[derive(clap::Args)]
struct SelfTest {
    /// A new folder for raw data and report [default: results/run-DATE].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Does what the command line says.
///
/// # Errors
/// What went wrong, for the user.
pub fn execute(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        Command::List => {
            print!("{}", registry::listing());
            Ok(())
        }
        Command::Run(options) => run::run(options),
        Command::Report(options) => {
            let written = report::write(&options.folders, options.out.as_deref())?;
            println!("report: {}", written.display());
            Ok(())
        }
        Command::Compare(options) => compare::run(&options.before, &options.after),
        Command::SelfTest(options) => run::run(self_test(options)),
        Command::Chains(options) => chains::run(&options),
        Command::Journal(options) => journal::run(&options),
        Command::Load(load) => load::run(&load),
        Command::Replay(options) => journal::replay::run(&options),
        Command::Splice(options) => splice::run(&options),
    }
}

fn self_test(options: SelfTest) -> run::Options {
    let mut words = vec!["bench-harness".into(), "run".into(), "self-test".into()];
    if let Some(out) = options.out {
        words.extend(["--out".into(), out.into_os_string()]);
    }
    words.push("--quick".into());
    match Arguments::parse_from(words).command {
        Command::Run(options) => options,
        _ => unreachable!("the second word is run"),
    }
}
