//! `uringlog group`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::clients::Server;
use crate::cli::group::selection::Selection;
use crate::cli::time::{Span, When};

/// `uringlog group`.
#[derive(Clone, PartialEq, Debug, Subcommand)]
pub enum Group {
    /// List groups.
    #[command(visible_alias = "ls")]
    List {
        /// Only groups in this state, such as Stable or Empty.
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
        /// The server.
        #[command(flatten)]
        server: Server,
    },
    /// Show offsets and lag of groups, partition by partition.
    Describe {
        /// Their names; without one, all groups.
        groups: Vec<String>,
        /// The server.
        #[command(flatten)]
        server: Server,
    },
    /// Show who is in a group and what each member reads.
    Members {
        /// Its name.
        group: String,
        /// The server.
        #[command(flatten)]
        server: Server,
    },
    /// Set the offsets of a group that has no members. Only shows what would change, unless
    /// --execute is given.
    Reset(Box<Reset>),
    /// Delete groups without members, and their offsets.
    #[command(visible_alias = "rm")]
    Delete {
        /// Their names.
        #[arg(required = true)]
        groups: Vec<String>,
        /// The server.
        #[command(flatten)]
        server: Server,
    },
    /// Forget the offsets of a group in topics that it no longer reads.
    DeleteOffsets {
        /// Its name.
        group: String,
        /// Topic, or topic and partitions: t, t:0, t:0,2-4. May be repeated.
        #[arg(long, value_name = "TOPIC[:P,...]", required = true)]
        topic: Vec<Selection>,
        /// The server.
        #[command(flatten)]
        server: Server,
    },
}

/// `uringlog group reset`.
#[derive(Clone, PartialEq, Debug, Args)]
#[command(group(clap::ArgGroup::new("goal").required(true).args([
    "to_earliest", "to_latest", "to_current", "to_offset", "to_time", "by_duration", "shift_by",
    "from_file",
])))]
#[command(group(clap::ArgGroup::new("scope").args(["topic", "all_topics"])))]
pub struct Reset {
    /// Its name.
    pub group: String,
    /// Topic, or topic and partitions: t, t:0, t:0,2-4. May be repeated.
    #[arg(long, value_name = "TOPIC[:P,...]")]
    pub topic: Vec<Selection>,
    /// All topics that the group has offsets in.
    #[arg(long)]
    pub all_topics: bool,
    /// To the log start offset.
    #[arg(long)]
    pub to_earliest: bool,
    /// To the high watermark.
    #[arg(long)]
    pub to_latest: bool,
    /// To where it is; makes a file for --from-file together with --csv.
    #[arg(long)]
    pub to_current: bool,
    /// To this offset.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    pub to_offset: Option<i64>,
    /// To the first record of this time or later: 2026-11-30T14:00 (UTC, unless it ends in an
    /// offset such as +01:00), @ and milliseconds since the epoch, or 15m (ago).
    #[arg(long, value_name = "TIME")]
    pub to_time: Option<When>,
    /// To the first record that is younger than this: 90s, 15m, 2h, 1d, or PT1H30M.
    #[arg(long, value_name = "DURATION")]
    pub by_duration: Option<Span>,
    /// So many records on, or back when it is negative.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub shift_by: Option<i64>,
    /// To the offsets in a file with lines TOPIC,PARTITION,OFFSET.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["topic", "all_topics"])]
    pub from_file: Option<PathBuf>,
    /// Change the offsets.
    #[arg(long, conflicts_with = "dry_run")]
    pub execute: bool,
    /// Only show what would change; the default.
    #[arg(long)]
    pub dry_run: bool,
    /// Print lines TOPIC,PARTITION,OFFSET for --from-file instead of a table.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// The server.
    #[command(flatten)]
    pub server: Server,
}
