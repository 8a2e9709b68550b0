//! Where a server is, and the commands about topics and records.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};

use super::{ADDRESS_DEFAULT, BATCH_BYTES_MAX, HostPort, parse_pair};
use crate::cli::command::CommandError;
use crate::cli::consume::{From, Until};
use crate::cli::output::ColourChoice;
use crate::cli::record_format::{self, RecordFormat};
use crate::client::Isolation;
use crate::format::batch;
use crate::format::names::TopicName;
use crate::units::PartitionId;

/// Where to find a server.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct Bootstrap {
    /// Address of any shard or broker; several are tried in turn.
    #[arg(long, short = 'b', value_name = "HOST:PORT", env = "URINGLOG_BOOTSTRAP",
          default_value = ADDRESS_DEFAULT, value_parser = parse_bootstrap)]
    pub bootstrap: String,
}

/// Where to find a server, and how to show what it says.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct Server {
    /// The server.
    #[command(flatten)]
    pub server: Bootstrap,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Colours; without one, on a terminal unless NO_COLOR is set.
    #[arg(long, value_enum, default_value_t = ColourChoice::Auto, value_name = "WHEN")]
    pub color: ColourChoice,
}

/// `uringlog topic`.
#[derive(Clone, PartialEq, Debug, Subcommand)]
pub enum Topic {
    /// Create topics.
    Create(CreateTopic),
    /// List topics.
    #[command(visible_alias = "ls")]
    List {
        /// List the topics of the broker itself too.
        #[arg(long)]
        internal: bool,
        /// The server.
        #[command(flatten)]
        server: Server,
    },
    /// Show ids, partitions and configs of topics.
    Describe {
        /// Their names.
        #[arg(value_parser = parse_topic, required = true)]
        names: Vec<TopicName>,
        /// The server.
        #[command(flatten)]
        server: Server,
    },
    /// Delete topics and their records.
    #[command(visible_alias = "rm")]
    Delete {
        /// Their names.
        #[arg(value_parser = parse_topic, required = true)]
        names: Vec<TopicName>,
        /// Don't fail for a topic that doesn't exist.
        #[arg(long)]
        if_exists: bool,
        /// The server.
        #[command(flatten)]
        server: Server,
    },
    /// Give a topic more partitions.
    AddPartitions {
        /// Its name.
        #[arg(value_parser = parse_topic)]
        name: TopicName,
        /// Number of partitions that it shall have.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
        total: i32,
        /// The server.
        #[command(flatten)]
        server: Server,
    },
    /// Change configs of a topic; the same as config set and config unset.
    #[command(group(clap::ArgGroup::new("change").args(["set", "unset"]).required(true)
                    .multiple(true)))]
    Alter {
        /// Its name.
        #[arg(value_parser = parse_topic)]
        name: TopicName,
        /// A config and its value. May be repeated.
        #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
        set: Vec<(String, String)>,
        /// A config that goes back to its default. May be repeated.
        #[arg(long, value_name = "NAME")]
        unset: Vec<String>,
        /// The server.
        #[command(flatten)]
        server: Server,
    },
    /// Delete the records of a topic below an offset.
    Trim {
        /// Its name.
        #[arg(value_parser = parse_topic)]
        name: TopicName,
        /// Partition [default: all].
        #[arg(long, value_name = "P", value_parser = parse_partition)]
        partition: Option<PartitionId>,
        /// First offset that stays: earliest, latest, an offset, or a time.
        #[arg(long, value_name = "WHERE", value_parser = parse_from)]
        before: From,
        /// The server.
        #[command(flatten)]
        server: Server,
    },
}

/// `uringlog topic create`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct CreateTopic {
    /// Their names.
    #[arg(value_parser = parse_topic, required = true)]
    pub names: Vec<TopicName>,
    /// Number of partitions [default: num.partitions of the server].
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub partitions: Option<i32>,
    /// Number of replicas [default: default.replication.factor of the server].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i16).range(1..))]
    pub replication_factor: Option<i16>,
    /// A config of the topic. May be repeated.
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub config: Vec<(String, String)>,
    /// Don't fail for a topic that exists.
    #[arg(long)]
    pub if_not_exists: bool,
    /// The server.
    #[command(flatten)]
    pub server: Server,
}

/// `uringlog produce`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct Produce {
    /// Topic to send to.
    #[arg(value_parser = parse_topic)]
    pub topic: TopicName,
    /// Partition [default: by key, or one after the other without keys].
    #[arg(long, short, value_name = "P", value_parser = parse_partition)]
    pub partition: Option<PartitionId>,
    /// What separates key and value in a line; without it lines have no keys.
    #[arg(long, short = 'K', value_name = "S",
          value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub key_separator: Option<String>,
    /// A header of every record. May be repeated.
    #[arg(long, short = 'H', value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub header: Vec<(String, String)>,
    /// Whose acknowledgement to wait for.
    #[arg(long, value_enum, default_value_t = Acks::All)]
    pub acks: Acks,
    /// Compression of batches.
    #[arg(long, short = 'z', value_enum, default_value_t = Codec::None)]
    pub codec: Codec,
    /// Size at which a batch is sent.
    #[arg(long, value_name = "N", default_value_t = 262_144,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(BATCH_BYTES_MAX)))]
    pub batch_bytes: u32,
    /// Print what was acknowledged as JSON on standard output.
    #[arg(long)]
    pub json: bool,
    /// The server.
    #[command(flatten)]
    pub server: Bootstrap,
    /// File of lines, - for standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: Input,
}

/// Where lines come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// `-`.
    StandardInput,
    /// A file.
    File(PathBuf),
}

impl FromStr for Input {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Input, Self::Err> {
        Ok(if text == "-" { Input::StandardInput } else { Input::File(text.into()) })
    }
}

/// `--acks`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Acks {
    /// All replicas in sync; here the same as 1.
    All,
    /// The leader.
    #[value(name = "1")]
    One,
    /// No one.
    #[value(name = "0")]
    None,
}

impl std::convert::From<Acks> for crate::client::Acks {
    fn from(acks: Acks) -> crate::client::Acks {
        match acks {
            Acks::All => crate::client::Acks::All,
            Acks::One => crate::client::Acks::Leader,
            Acks::None => crate::client::Acks::None,
        }
    }
}

/// `--codec`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Codec {
    /// No compression.
    None,
    /// Gzip.
    Gzip,
    /// Snappy.
    Snappy,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl std::convert::From<Codec> for batch::Codec {
    fn from(codec: Codec) -> batch::Codec {
        match codec {
            Codec::None => batch::Codec::None,
            Codec::Gzip => batch::Codec::Gzip,
            Codec::Snappy => batch::Codec::Snappy,
            Codec::Lz4 => batch::Codec::Lz4,
            Codec::Zstd => batch::Codec::Zstd,
        }
    }
}

/// `uringlog consume`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct Consume {
    /// Topics to read.
    #[arg(value_name = "TOPIC", required = true, value_parser = parse_topic)]
    pub topics: Vec<TopicName>,
    /// Partition of each topic [default: all].
    #[arg(long, short, value_name = "P", value_parser = parse_partition)]
    pub partition: Option<PartitionId>,
    /// Where to begin: earliest, latest, an offset, or a time: @ and milliseconds since the epoch,
    /// 2026-11-30T14:00 (UTC, unless it ends in an offset such as +01:00), 15m (ago). With --group:
    /// where partitions begin that the group has committed nothing of.
    #[arg(long, short, value_name = "WHERE", default_value = "earliest", value_parser = parse_from)]
    pub from: From,
    /// Leave out records from this offset or time on, in the forms of --from.
    #[arg(long, value_name = "WHERE", value_parser = parse_until)]
    pub until: Option<Until>,
    /// Stop after so many records.
    #[arg(long, short = 'n', value_name = "N")]
    pub count: Option<u64>,
    /// Wait for more records at the end instead of stopping.
    #[arg(long, short = 'F')]
    pub follow: bool,
    /// Which records of transactions to print.
    #[arg(long, value_enum, default_value_t = IsolationChoice::ReadUncommitted)]
    pub isolation: IsolationChoice,
    /// Read as a member of this group: partitions are shared with other members, and what was
    /// printed is committed.
    #[arg(long, short, value_name = "GROUP", conflicts_with = "partition",
          value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub group: Option<String>,
    /// How members of the group speak to the broker [default: classic].
    #[arg(long, value_enum, requires = "group")]
    pub protocol: Option<ProtocolChoice>,
    /// How the group shares out partitions [default: range, and cooperative-sticky where the others
    /// offer nothing else; with --protocol consumer the broker's first, which is uniform].
    #[arg(long, value_enum, requires = "group")]
    pub assignor: Option<AssignorChoice>,
    /// A name of its own in the group (static membership).
    #[arg(long, value_name = "NAME", requires = "group")]
    pub instance: Option<String>,
    /// Show on standard error, with each commit, the log start, committed offset, position, high
    /// watermark, log end and lag of each partition of the group.
    #[arg(long, requires = "group")]
    pub lag: bool,
    /// What is printed of a record, in kcat's tokens: %s value, %k key, %h headers, %t topic,
    /// %p partition, %o offset, %T timestamp, \n newline; and %U for the time in UTC.
    #[arg(long, default_value = record_format::DEFAULT, value_parser = parse_format)]
    pub format: RecordFormat,
    /// Print these before the value, with tabs between.
    #[arg(long, short, value_enum, value_delimiter = ',', conflicts_with_all = ["format", "json"])]
    pub with: Vec<With>,
    /// Print each record as a line of JSON.
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// The server.
    #[command(flatten)]
    pub server: Bootstrap,
}

/// `--isolation`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum IsolationChoice {
    /// All records.
    ReadUncommitted,
    /// Records of transactions only once they are committed.
    ReadCommitted,
}

impl std::convert::From<IsolationChoice> for Isolation {
    fn from(choice: IsolationChoice) -> Isolation {
        match choice {
            IsolationChoice::ReadUncommitted => Isolation::ReadUncommitted,
            IsolationChoice::ReadCommitted => Isolation::ReadCommitted,
        }
    }
}

/// `--assignor`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum AssignorChoice {
    /// Neighbouring partitions of each topic.
    Range,
    /// One after the other.
    #[value(name = "roundrobin")]
    RoundRobin,
    /// As few moves as possible, without a stop.
    CooperativeSticky,
    /// Even shares, as few moves as possible; with --protocol consumer.
    Uniform,
}

/// `--protocol`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ProtocolChoice {
    /// A member shares out partitions, while all of them wait.
    Classic,
    /// The broker does, and only those wait whose partitions move (KIP-848).
    Consumer,
}

/// `--with`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum With {
    /// The time, in UTC.
    Timestamp,
    /// The topic.
    Topic,
    /// The partition.
    Partition,
    /// The offset.
    Offset,
    /// The key.
    Key,
    /// The headers.
    Headers,
    /// All of them but the topic.
    All,
}

fn parse_bootstrap(text: &str) -> Result<String, String> {
    for one in text.split(',') {
        one.trim().parse::<HostPort>()?;
    }
    Ok(text.to_owned())
}

pub(super) fn parse_topic(text: &str) -> Result<TopicName, String> {
    TopicName::new(text).map_err(|error| error.to_string())
}

fn parse_from(text: &str) -> Result<From, String> {
    text.parse().map_err(|error: CommandError| error.to_string())
}

fn parse_until(text: &str) -> Result<Until, String> {
    text.parse().map_err(|error: CommandError| error.to_string())
}

fn parse_format(text: &str) -> Result<RecordFormat, String> {
    RecordFormat::parse(text).map_err(|error| error.to_string())
}

pub(super) fn parse_partition(text: &str) -> Result<PartitionId, String> {
    let number: i32 = text.parse().map_err(|_| "not a number".to_owned())?;
    let number = u32::try_from(number).map_err(|_| "a partition is 0 or more".to_owned())?;
    Ok(PartitionId(number))
}
