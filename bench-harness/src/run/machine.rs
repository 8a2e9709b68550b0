//! `machine.json`: on what it was measured, and with what.

use std::process::Command;

use serde::{Deserialize, Serialize};

use super::{Options, Where};
use crate::experiments::Failure;
use crate::experiments::journal::machine::{self, Host, Machine};

/// A file system under test.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileSystem {
    /// As `--fs` names it.
    pub label: String,
    /// Its type, with the mount's options.
    pub kind: String,
    /// Below it.
    pub device: String,
    /// Bytes that are free.
    pub free_bytes: u64,
}

/// The record of a machine and a configuration.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MachineRecord {
    /// Name of the host.
    pub host: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the processor.
    pub processor: String,
    /// All of the machine's.
    pub cores: usize,
    /// Those that this process may use.
    pub cores_usable: usize,
    /// All of it.
    pub memory_bytes: u64,
    /// Those that were measured on.
    pub file_systems: Vec<FileSystem>,
    /// Whether io_uring can be had, and why not.
    pub io_uring: String,
    /// Of the harness and of uringlog.
    pub version: String,
    /// As git knows it, or "unknown".
    pub revision: String,
    /// The compiler in the path, or "unknown".
    pub rustc: String,
    /// `release` or `debug`: figures of a debug build say little.
    pub build: String,
    /// Java's version line, "none", or "not asked" without Kafka's column.
    pub java: String,
    /// UTC.
    pub date: String,
    /// How it is run again.
    pub command: String,
    /// quick, normal or full.
    pub scale: String,
    /// How many there are.
    pub rounds: u32,
    /// Of everything random.
    pub seed: u64,
    /// Load average of the minute before.
    pub load_before: String,
}

impl MachineRecord {
    /// Of this machine.
    ///
    /// # Errors
    /// When a file system can't be looked at.
    pub fn here(options: &Options, places: &[Where]) -> Result<MachineRecord, Failure> {
        let host = Host::here();
        let file_systems: Result<Vec<_>, Failure> = places.iter().map(file_system).collect();
        let probed = uringlog::ring::probe::probe();
        Ok(MachineRecord {
            host: first_line(&["uname", "-n"]),
            kernel: host.kernel,
            processor: host.processor,
            cores: host.cores,
            cores_usable: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: host.memory_bytes,
            file_systems: file_systems?,
            io_uring: probed.ring.map_or_else(|why| why.to_string(), |_| "yes".to_owned()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: machine::revision(),
            rustc: first_line(&["rustc", "--version"]),
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            java: if options.wants_kafka() { java() } else { "not asked".to_owned() },
            date: super::clock::now(),
            command: machine::command(),
            scale: options.scale().name().to_owned(),
            rounds: options.rounds(),
            seed: options.seed,
            load_before: machine::load(),
        })
    }
}

fn file_system(place: &Where) -> Result<FileSystem, Failure> {
    let machine = Machine::of(&place.path, &place.label)?;
    let free = rustix::fs::statvfs(&place.path).map_or(0, |it| it.f_bavail * it.f_frsize);
    Ok(FileSystem {
        label: machine.label,
        kind: machine.file_system,
        device: machine.device,
        free_bytes: free,
    })
}

/// What a program says first, on either channel.
fn first_line(command: &[&str]) -> String {
    let said = Command::new(command[0]).args(&command[1..]).output().ok().and_then(|output| {
        let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
        let text = String::from_utf8_lossy(&text).into_owned();
        output.status.success().then(|| text.lines().next().unwrap_or_default().to_owned())
    });
    said.unwrap_or_else(|| "unknown".to_owned())
}

/// Java's version line, or "none".
pub fn java() -> String {
    match first_line(&["java", "-version"]) {
        unknown if unknown == "unknown" => "none".to_owned(),
        version => version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_say_their_line_or_nothing() {
        assert_eq!(first_line(&["echo", "one"]), "one");
        assert_eq!(first_line(&["false"]), "unknown");
        assert_eq!(first_line(&["/no/such/program"]), "unknown");
    }
}
