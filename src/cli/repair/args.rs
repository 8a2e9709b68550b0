//! `uringlog repair`'s arguments.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::RepairOptions;
use crate::cli::time;

/// `uringlog repair`.
#[derive(Clone, PartialEq, Debug, Args)]
#[command(group(ArgGroup::new("place").required(true)))]
pub struct Repair {
    /// A log directory of Kafka's or of uringlog's, or the folder of one partition.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Where the repaired copy goes.
    #[arg(long, value_name = "NEWDIR", group = "place")]
    pub to: Option<PathBuf>,
    /// Repair the directory itself; each partition is copied to DIR.before-repair first.
    #[arg(long, group = "place")]
    pub in_place: bool,
}

impl Repair {
    /// What is to be done.
    pub fn options(&self) -> RepairOptions {
        RepairOptions {
            directory: self.directory.clone(),
            to: self.to.clone(),
            now: time::now_ms(),
        }
    }
}
