//! The command line: each command is a function over plain options.

use std::io::{self, IsTerminal};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

pub mod args;

pub mod serve;

pub mod recover;

pub mod doctor;

mod log_file;

mod holder;

mod object;

pub mod flat;

pub mod dump;

pub mod verify;

pub mod explain;

pub mod repair;

pub mod command;

mod dispatch;

pub mod time;

pub mod output;

pub mod manual;

pub mod record_format;

pub mod topic;

pub mod group;

pub mod offsets;

pub mod config;

pub mod cluster;

pub mod produce;

mod producer_window;

pub mod consume;

pub mod bench;

use args::{Command, CommandLine, HostPort};
use command::CommandError;

use crate::broker::log_levels::LogLevels;

/// What a failed command exits with; clap's own errors exit with 2.
const FAILURE: u8 = 1;

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let line = CommandLine::parse();
    let log_levels = log_to_stderr();
    let command = match dispatch::run(line.command) {
        Ok(outcome) => return exit_advised(outcome),
        Err(other) => other,
    };
    match *command {
        Command::Serve(serve) => exit(run_serve(&serve, log_levels)),
        Command::Recover(recover) => run_recover(&recover),
        Command::Doctor(doctor) => run_doctor(&doctor),
        Command::Dump(dump) => run_dump(&dump),
        Command::Verify(verify) => run_verify(&verify),
        Command::DecodeFlat(flat) => run_decode_flat(&flat),
        Command::Explain(explain) => run_explain(&explain),
        Command::Repair(repair) => run_repair(&repair),
        _ => exit(Err("this command is run elsewhere".to_owned())),
    }
}

/// Like [`exit`], with what to do about the error.
fn exit_advised(outcome: Result<(), CommandError>) -> ExitCode {
    match outcome {
        // Whoever read the output has seen enough.
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            let code = exit(Err(error.to_string()));
            if let Some(advice) = command::advice(&error) {
                output::say(&format!("  help: {advice}"));
            }
            code
        }
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// `RUST_LOG` chooses what is logged; warnings and worse are, unless it says otherwise.
fn log_to_stderr() -> LogLevels {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let base = filter.to_string();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .with_filter_reloading();
    let handle = subscriber.reload_handle();
    subscriber.init();
    let apply = move |filter: &str| {
        let filter = EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
        handle.reload(filter).map_err(|error| error.to_string())
    };
    LogLevels::new(base, Box::new(apply))
}

fn exit(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            output::say(&format!("uringlog: {reason}"));
            ExitCode::from(FAILURE)
        }
    }
}

fn run_serve(serve: &args::Serve, log_levels: LogLevels) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let listen = resolve(&serve.listen)?;
    let http = serve.http.as_ref().map(resolve).transpose()?;
    serve.check(serve.shards.unwrap_or(1)).map_err(|error| text(&error))?;
    let options = serve::ServeOptions {
        directory: serve.dir.clone(),
        listen,
        advertise: serve.advertise.clone().map(|it| (it.host, it.port)),
        shards: serve.shards.map(usize::from),
        engine: serve.engine.into(),
        sources: serve.sources(),
        http,
    };
    serve::run(options, log_levels).map_err(|error| text(&error))
}

fn resolve(address: &HostPort) -> Result<SocketAddr, String> {
    let unknown = |why: String| format!("{address}: {why}");
    let mut found = (address.host.as_str(), address.port)
        .to_socket_addrs()
        .map_err(|error| unknown(error.to_string()))?;
    found.next().ok_or_else(|| unknown("the host has no address".to_owned()))
}

fn run_recover(recover: &args::Recover) -> ExitCode {
    let options = recover::RecoverOptions {
        directory: recover.dir.clone(),
        shards: recover.shards.map(usize::from),
        engine: recover.engine.into(),
        sources: recover.sources(),
    };
    exit(recover::run(options, &mut io::stdout().lock()).map_err(|error| error.to_string()))
}

fn run_doctor(doctor: &args::Doctor) -> ExitCode {
    match doctor::run(&doctor.dir, &mut io::stdout().lock()) {
        Ok(verdict) => ExitCode::from(verdict.exit_status()),
        // Whoever read the output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => exit(Err(format!("cannot write the report: {error}"))),
    }
}

fn run_dump(dump: &args::Dump) -> ExitCode {
    // A line at a time would be a system call each.
    let mut out = io::BufWriter::with_capacity(1 << 20, io::stdout().lock());
    match dump::run(&dump.options(), &mut out, &mut io::stderr().lock()) {
        Err(dump::DumpError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            // What is left in the buffer has no reader.
            drop(out.into_parts());
            ExitCode::SUCCESS
        }
        outcome => exit(outcome.map_err(|error| error.to_string())),
    }
}

fn run_verify(verify: &args::Verify) -> ExitCode {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let outcome = verify::run(&verify.options(), &mut out);
    match outcome.and_then(|verdict| Ok(io::Write::flush(&mut out).map(|()| verdict)?)) {
        Ok(verdict) => ExitCode::from(verdict.exit_status()),
        Err(verify::VerifyError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("uringlog: {error}");
            ExitCode::from(verify::Verdict::Unseen.exit_status())
        }
    }
}

fn run_decode_flat(flat: &args::DecodeFlat) -> ExitCode {
    match flat::run(&flat.file, &mut io::stdout().lock()) {
        Err(flat::FlatError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        outcome => exit(outcome.map_err(|error| error.to_string())),
    }
}

fn run_explain(explain: &args::Explain) -> ExitCode {
    match explain::run(&explain.options(), &mut io::stdout().lock()) {
        Err(explain::ExplainError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        outcome => exit(outcome.map_err(|error| error.to_string())),
    }
}

fn run_repair(repair: &args::Repair) -> ExitCode {
    match repair::run(&repair.options(), &mut io::stdout().lock()) {
        Ok(outcome) => ExitCode::from(outcome.exit_status()),
        Err(error) => {
            eprintln!("uringlog: {error}");
            ExitCode::from(repair::NOT_REPAIRED)
        }
    }
}

fn wire_number(partition: crate::units::PartitionId) -> i32 {
    i32::try_from(partition.0).expect("parsed from 31 bits")
}
