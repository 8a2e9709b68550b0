//! `uringlog explain`'s arguments.

use std::path::PathBuf;

use clap::Args;

use super::ExplainOptions;
use crate::cli::args::parse_pair;
use crate::cli::time;

/// `uringlog explain`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct Explain {
    /// The folder of a partition, a file in it, or a log directory.
    #[arg(value_name = "DIR|FILE")]
    pub path: PathBuf,
    /// Show the way to this offset.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    pub offset: Option<i64>,
    /// Show the way to the first record of this time or later, in ms since 1970.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(i64).range(0..))]
    pub timestamp: Option<i64>,
    /// A topic config to count with instead of what the directory's metadata says. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub config: Vec<(String, String)>,
    /// Explain as if it were this time, in ms since 1970 [default: now].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(i64).range(0..))]
    pub now: Option<i64>,
}

impl Explain {
    /// What is to be done.
    pub fn options(&self) -> ExplainOptions {
        ExplainOptions {
            path: self.path.clone(),
            offset: self.offset,
            timestamp: self.timestamp,
            configs: self.config.iter().cloned().collect(),
            now: self.now.unwrap_or(time::now_ms()),
        }
    }
}
