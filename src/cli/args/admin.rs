//! `uringlog offsets`, `config` and `cluster`.

use clap::{Args, Subcommand};

use super::clients::{Server, parse_partition, parse_topic};
use super::parse_pair;
use crate::cli::config::Target;
use crate::cli::time::When;
use crate::format::names::TopicName;
use crate::units::PartitionId;

/// `uringlog offsets`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct Offsets {
    /// Topics; without one, all but the broker's own.
    #[arg(value_parser = parse_topic)]
    pub topics: Vec<TopicName>,
    /// Partition [default: all].
    #[arg(long, short, value_name = "P", value_parser = parse_partition, requires = "topics")]
    pub partition: Option<PartitionId>,
    /// Show the first offset of this time or later: 2026-11-30T14:00 (UTC, unless it ends in an
    /// offset such as +01:00), @ and milliseconds since the epoch, or 15m (ago). May be repeated.
    #[arg(long, value_name = "TIME")]
    pub at: Vec<When>,
    /// The server.
    #[command(flatten)]
    pub server: Server,
}

/// `uringlog config`.
#[derive(Clone, PartialEq, Debug, Subcommand)]
pub enum Config {
    /// Show settings.
    Describe {
        /// topic/NAME, group/NAME, broker/ID, loggers/ID, or brokers for what holds of all brokers.
        #[arg(value_name = "RESOURCE")]
        target: Target,
        /// Show defaults too.
        #[arg(long, short)]
        all: bool,
        /// The server.
        #[command(flatten)]
        server: Server,
    },
    /// Change settings, all or none.
    Set {
        /// topic/NAME, group/NAME, broker/ID, loggers/ID, or brokers for what holds of all brokers.
        #[arg(value_name = "RESOURCE")]
        target: Target,
        /// Settings and their values.
        #[arg(value_name = "NAME=VALUE", required = true, value_parser = parse_pair)]
        settings: Vec<(String, String)>,
        /// Have the broker check it only.
        #[arg(long)]
        dry_run: bool,
        /// The server.
        #[command(flatten)]
        server: Server,
    },
    /// Let settings go back to their defaults.
    Unset {
        /// topic/NAME, group/NAME, broker/ID, loggers/ID, or brokers for what holds of all brokers.
        #[arg(value_name = "RESOURCE")]
        target: Target,
        /// Settings.
        #[arg(value_name = "NAME", required = true)]
        settings: Vec<String>,
        /// Have the broker check it only.
        #[arg(long)]
        dry_run: bool,
        /// The server.
        #[command(flatten)]
        server: Server,
    },
}

/// `uringlog cluster`.
#[derive(Clone, PartialEq, Debug, Subcommand)]
pub enum Cluster {
    /// Show the cluster's id, its controller and its brokers.
    #[command(visible_alias = "brokers")]
    Describe {
        /// The server.
        #[command(flatten)]
        server: Server,
    },
    /// Show features and the levels that they are at.
    Features {
        /// The server.
        #[command(flatten)]
        server: Server,
    },
    /// Show the APIs that a broker speaks, and their versions.
    ApiVersions {
        /// Number of the broker [default: any].
        #[arg(long, value_name = "ID")]
        broker: Option<i32>,
        /// The server.
        #[command(flatten)]
        server: Server,
    },
    /// Show log directories, their room, and the size of what lies in them.
    LogDirs {
        /// Number of the broker [default: all].
        #[arg(long, value_name = "ID")]
        broker: Option<i32>,
        /// Show each partition.
        #[arg(long, short)]
        partitions: bool,
        /// The server.
        #[command(flatten)]
        server: Server,
    },
}
