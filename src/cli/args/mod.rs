//! The command line: what each command takes, checked before anything runs.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;

pub mod admin;

pub mod bench;

pub mod clients;

pub mod group;

#[cfg(test)]
mod lines;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use self::admin::{Cluster, Config, Offsets};
pub use self::bench::Bench;
pub use self::clients::{Acks, Bootstrap, Consume, Input, Produce, Server, Topic};
pub use self::group::Group;
use crate::broker::config::{ServerConfig, Sources};
use crate::broker::server;
pub use crate::cli::dump::args::Dump;
pub use crate::cli::explain::args::Explain;
pub use crate::cli::repair::args::Repair;
pub use crate::cli::verify::args::Verify;
use crate::log::config::Durability;

/// Most shards of one server; each takes a port, a broker id and a thread.
pub const SHARDS_MAX: u16 = 256;
/// Where the server keeps its data unless it is told.
pub const DIRECTORY_DEFAULT: &str = "data";
/// Largest `--batch-bytes`, in bytes.
pub const BATCH_BYTES_MAX: u32 = 1 << 30;

/// Where a server is, unless it is said.
pub const ADDRESS_DEFAULT: &str = "127.0.0.1:9092";

/// Apache Kafka's partition log and wire protocol on io_uring, for one Linux host.
#[derive(Clone, PartialEq, Debug, Parser)]
#[command(name = "uringlog", version, about, max_term_width = 100)]
pub struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Clone, PartialEq, Debug, Subcommand)]
pub enum Command {
    /// Serve Kafka clients from a data directory.
    Serve(Serve),
    /// Bring a data directory in order after a crash, without serving anybody.
    Recover(Recover),
    /// List, create, describe, alter and delete topics.
    #[command(subcommand)]
    Topic(Topic),
    /// List and describe consumer groups, set their offsets, delete them.
    #[command(subcommand)]
    Group(Group),
    /// Send lines of a file, each as a record.
    Produce(Produce),
    /// Print records of a topic.
    Consume(Consume),
    /// Show where partitions begin and end, and what offset a time has.
    Offsets(Offsets),
    /// Show and change settings of topics and brokers.
    #[command(subcommand)]
    Config(Config),
    /// Show brokers, features, API versions and log directories.
    #[command(subcommand)]
    Cluster(Cluster),
    /// Measure how fast a broker takes and gives records.
    #[command(subcommand)]
    Bench(Bench),
    /// Print completions for a shell.
    Completions(Completions),
    /// Write man pages of all commands into a directory.
    Man(Man),
    /// Say what this host offers and which engine would run.
    Doctor(Doctor),
    /// Print what lies in the files of a Kafka log directory, as kafka-dump-log does.
    Dump(Dump),
    /// Check a Kafka log directory without changing it.
    ///
    /// Exit status: 0 when nothing is wrong, 1 with findings, 2 when something, or the whole
    /// directory, could not be looked at.
    Verify(Verify),
    /// Show a partition's segments, the way to an offset, and what goes or rolls next.
    Explain(Explain),
    /// Bring a Kafka log directory in order, in a copy or in place.
    ///
    /// Exit status: 0 when nothing is lost, 1 when something is, 2 when a partition or the whole
    /// directory could not be repaired.
    Repair(Repair),
    /// Read a file in a layout that texts show for Kafka's, and that it is not.
    DecodeFlat(DecodeFlat),
}

/// `uringlog decode-flat`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct DecodeFlat {
    /// The file.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `uringlog completions`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `uringlog man`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct Man {
    /// The directory; made when it is absent.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// `uringlog serve`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct Serve {
    /// Data directory; made when it is absent [default: log.dirs of the configuration, or data].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Address of shard 0; shard i listens on the port plus i. Port 0 takes free ones.
    #[arg(long, value_name = "HOST:PORT", default_value = ADDRESS_DEFAULT)]
    pub listen: HostPort,
    /// Address that clients are told for shard 0 [default: that of --listen].
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<HostPort>,
    /// Number of shards [default: the cores that this process may run on].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub shards: Option<u16>,
    /// What runs the file operations.
    #[arg(long, value_enum, default_value_t = EngineChoice::Auto)]
    pub engine: EngineChoice,
    /// What an acknowledgement promises [default: device, unless the configuration says otherwise].
    #[arg(long, value_enum)]
    pub durability: Option<DurabilityChoice>,
    /// Configuration file (TOML) with Kafka's property names.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// One setting; beats the file. May be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Address for /metrics, /livez and /readyz.
    #[arg(long, value_name = "HOST:PORT")]
    pub http: Option<HostPort>,
}

/// `uringlog recover`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct Recover {
    /// Data directory.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Number of threads that recover [default: the cores that this process may run on].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub shards: Option<u16>,
    /// What runs the file operations.
    #[arg(long, value_enum, default_value_t = EngineChoice::Auto)]
    pub engine: EngineChoice,
    /// Configuration file (TOML), as for serve.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// One setting; beats the file. May be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
}

impl Recover {
    /// Where the settings come from.
    pub fn sources(&self) -> Sources {
        Sources { file: self.config.clone(), set: self.set.clone(), durability: None }
    }
}

/// `--engine`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum EngineChoice {
    /// io_uring where it can run, plain files where not.
    Auto,
    /// io_uring, or no start.
    Uring,
    /// Ordinary system calls.
    PlainFile,
}

/// `--durability`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DurabilityChoice {
    /// On the device.
    Device,
    /// In the page cache, as with Kafka's defaults.
    PageCache,
}

impl std::convert::From<EngineChoice> for server::EngineChoice {
    fn from(choice: EngineChoice) -> server::EngineChoice {
        match choice {
            EngineChoice::Auto => server::EngineChoice::Auto,
            EngineChoice::Uring => server::EngineChoice::Uring,
            EngineChoice::PlainFile => server::EngineChoice::PlainFile,
        }
    }
}

impl std::convert::From<DurabilityChoice> for Durability {
    fn from(choice: DurabilityChoice) -> Durability {
        match choice {
            DurabilityChoice::Device => Durability::Device,
            DurabilityChoice::PageCache => Durability::PageCache,
        }
    }
}

/// Arguments that don't go together.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ArgumentError {
    /// The last shard's port would exceed 65535.
    #[error("{flag} {address}: {shards} shards need ports up to {last}, the last one is 65535")]
    Ports {
        /// `--listen` or `--advertise`.
        flag: &'static str,
        /// Its address.
        address: HostPort,
        /// The number of shards.
        shards: u16,
        /// Port of the last shard.
        last: u32,
    },
    /// Clients would be told an address that no one can connect to.
    #[error(
        "--listen {0} takes connections on every interface, but clients can't connect to that \
         address: say with --advertise HOST:PORT what they should use"
    )]
    Wildcard(HostPort),
}

impl Serve {
    /// Where the settings come from.
    pub fn sources(&self) -> Sources {
        Sources {
            file: self.config.clone(),
            set: self.set.clone(),
            durability: self.durability.map(Durability::from),
        }
    }

    /// The data directory: `--dir`, or the configuration's, or `data`.
    pub fn directory(&self, config: &ServerConfig) -> PathBuf {
        let configured = self.dir.clone().or_else(|| config.directory.clone());
        configured.unwrap_or_else(|| DIRECTORY_DEFAULT.into())
    }

    /// Checks the arguments against one another, for this number of shards.
    ///
    /// # Errors
    /// [`ArgumentError`].
    pub fn check(&self, shards: u16) -> Result<(), ArgumentError> {
        let advertise = self.advertise.as_ref().map(|address| ("--advertise", address));
        for (flag, address) in [("--listen", &self.listen)].into_iter().chain(advertise) {
            let last = u32::from(address.port) + u32::from(shards) - 1;
            if address.port != 0 && last > u32::from(u16::MAX) {
                let address = address.clone();
                return Err(ArgumentError::Ports { flag, address, shards, last });
            }
        }
        if self.advertise.is_none() && self.listen.is_wildcard() {
            return Err(ArgumentError::Wildcard(self.listen.clone()));
        }
        Ok(())
    }
}

/// A host, by name or number, and a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPort {
    /// Name or number; an IPv6 number without its brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl HostPort {
    /// The address of shard `index`; port 0 stays 0.
    ///
    /// # Panics
    /// When the port would exceed 65535, which [`Serve::check`] refuses.
    pub fn of_shard(&self, index: u16) -> HostPort {
        let step = if self.port == 0 { 0 } else { index };
        let port = self.port.checked_add(step).expect("checked against the number of shards");
        HostPort { host: self.host.clone(), port }
    }

    /// Whether it means every address of this host.
    pub fn is_wildcard(&self) -> bool {
        let address: IpAddr = self.host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        address.is_unspecified()
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<HostPort, String> {
        let wrong = || format!("{text:?} is not HOST:PORT");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bracketed.unwrap_or(host);
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let is_valid = match bracketed {
            Some(host) => host.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(is_host),
        };
        if !is_valid {
            return Err(wrong());
        }
        let port = port.parse().map_err(|_| format!("{port:?} is no port from 0 to 65535"))?;
        Ok(HostPort { host: host.to_owned(), port })
    }
}

/// `uringlog doctor`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct Doctor {
    /// Directory whose file system is looked at.
    #[arg(long, value_name = "DIR", default_value = DIRECTORY_DEFAULT)]
    pub dir: PathBuf,
}

pub(super) fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.to_owned()))
        }
        _ => Err("not NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    pub(super) fn parsed(line: &str) -> Result<Command, String> {
        let words = std::iter::once("uringlog").chain(line.split_whitespace());
        let command = CommandLine::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(command.command)
    }

    fn serve(line: &str) -> Serve {
        match parsed(line).expect("valid") {
            Command::Serve(serve) => serve,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_holds() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn serve_needs_nothing() {
        let bare = serve("serve");
        assert_eq!(bare.listen.to_string(), "127.0.0.1:9092");
        assert_eq!(bare.check(1), Ok(()));
        let config = ServerConfig::load(&bare.sources()).expect("the defaults");
        assert_eq!(bare.directory(&config), PathBuf::from("data"));
        let set = serve("serve --set log.dir=/srv/k --set num.partitions=2");
        let config = ServerConfig::load(&set.sources()).expect("valid");
        assert_eq!(set.directory(&config), PathBuf::from("/srv/k"));
        let dir = serve("serve --dir x --set log.dir=/srv/k --durability page-cache");
        assert_eq!(dir.directory(&config), PathBuf::from("x"));
        assert_eq!(dir.sources().durability, Some(Durability::PageCache));
    }

    #[test]
    fn ports_of_all_shards_must_exist() {
        let high = serve("serve --listen 127.0.0.1:65534");
        assert_eq!(high.check(2), Ok(()));
        assert!(matches!(high.check(3), Err(ArgumentError::Ports { last: 65536, .. })));
        assert_eq!(high.listen.of_shard(1).port, 65535);
        let free = serve("serve --listen 127.0.0.1:0");
        assert_eq!(free.check(4), Ok(()));
        assert_eq!(free.listen.of_shard(3).port, 0);
        let advertise = serve("serve --advertise box:65535");
        assert!(advertise.check(2).expect_err("refused").to_string().starts_with("--advertise"));
    }

    #[test]
    fn every_interface_needs_an_advertised_address() {
        for address in ["0.0.0.0:9092", "[::]:9092"] {
            let open = serve(&format!("serve --listen {address}"));
            assert_eq!(open.check(1), Err(ArgumentError::Wildcard(open.listen.clone())));
            let told = serve(&format!("serve --listen {address} --advertise box:9092"));
            assert_eq!(told.check(1), Ok(()));
        }
    }

    #[test]
    fn addresses() {
        let check = |text: &str, host: &str, port| {
            let address: HostPort = text.parse().expect("valid");
            assert_eq!((address.host.as_str(), address.port), (host, port));
            assert_eq!(address.to_string(), text);
        };
        check("localhost:9092", "localhost", 9092);
        check("[::1]:1", "::1", 1);
        for bad in ["localhost", ":9092", "a b:1", "a:65536", "a:-1", "::1:9092", "[x]:1", "[]:1"] {
            assert!(bad.parse::<HostPort>().is_err(), "{bad}");
        }
    }
}
