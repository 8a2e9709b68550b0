//! What experiments run on: engines, durability tiers, and the ways to get hold of them.

pub mod batches;
pub mod files;
pub mod library;
pub mod server;
pub mod sink;
pub mod usage;

use std::fmt;
use std::str::FromStr;

use uringlog::{Durability, EdgeKind, EngineKind};

/// What keeps the log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EngineName {
    /// uringlog on io_uring.
    Uring,
    /// uringlog by system calls on the shard's thread.
    PlainFile,
    /// Apache Kafka, started by `scripts/kafka`.
    Kafka,
}

impl EngineName {
    /// Every one.
    pub const ALL: &'static [EngineName] =
        &[EngineName::Uring, EngineName::PlainFile, EngineName::Kafka];
    /// Those that are libraries, too.
    pub const OURS: &'static [EngineName] = &[EngineName::Uring, EngineName::PlainFile];

    /// As the command line and the figures name it.
    pub fn name(self) -> &'static str {
        match self {
            EngineName::Uring => "uring",
            EngineName::PlainFile => "plain-file",
            EngineName::Kafka => "kafka",
        }
    }

    /// The library's engine, and the runtime that its thread needs; Kafka is none.
    pub fn of_library(self) -> Option<(EngineKind, EdgeKind)> {
        match self {
            EngineName::Uring => Some((EngineKind::Ring, EdgeKind::Uring)),
            EngineName::PlainFile => Some((EngineKind::PlainFile, EdgeKind::Tokio)),
            EngineName::Kafka => None,
        }
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for EngineName {
    type Err = String;

    fn from_str(text: &str) -> Result<EngineName, String> {
        let found = EngineName::ALL.iter().find(|it| it.name() == text);
        found.copied().ok_or_else(|| {
            let known: Vec<_> = EngineName::ALL.iter().map(|it| it.name()).collect();
            format!("unknown engine {text}; there are: {}", known.join(", "))
        })
    }
}

/// What an acknowledgement promises.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Tier {
    /// On the device: Kafka's `flush.messages` is 1.
    Device,
    /// In the page cache, as with Kafka's defaults.
    PageCache,
}

impl Tier {
    /// Both.
    pub const ALL: &'static [Tier] = &[Tier::Device, Tier::PageCache];

    /// As the command line and the figures name it.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Device => "device",
            Tier::PageCache => "page-cache",
        }
    }

    /// As the library names it.
    pub fn durability(self) -> Durability {
        match self {
            Tier::Device => Durability::Device,
            Tier::PageCache => Durability::PageCache,
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Tier {
    type Err = String;

    fn from_str(text: &str) -> Result<Tier, String> {
        let found = Tier::ALL.iter().find(|it| it.name() == text);
        let unknown = || format!("unknown durability {text}; there are: device, page-cache");
        found.copied().ok_or_else(unknown)
    }
}
