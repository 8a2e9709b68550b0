//! `uringlog verify`'s arguments.

use std::path::PathBuf;

use clap::Args;

use super::VerifyOptions;
use crate::ring::affinity;

/// `uringlog verify`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct Verify {
    /// A log directory of Kafka's or of uringlog's, or the folder of one partition.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Segments that are read at the same time [default: the cores that this process may run on].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// Take the records of all batches apart, too: compressed ones are unpacked.
    #[arg(long)]
    pub deep: bool,
    /// One JSON object a line instead of text.
    #[arg(long)]
    pub json: bool,
}

impl Verify {
    /// What is to be done.
    pub fn options(&self) -> VerifyOptions {
        VerifyOptions {
            directory: self.directory.clone(),
            threads: self.threads.map_or_else(|| affinity::allowed_cores().len(), usize::from),
            is_deep: self.deep,
            json: self.json,
        }
    }
}
