//! `uringlog bench`.

use clap::{Args, Subcommand};

use super::BATCH_BYTES_MAX;
use super::clients::{Acks, Codec, Server, parse_topic};
use crate::cli::time::Span;
use crate::format::names::TopicName;

/// `uringlog bench`.
#[derive(Clone, PartialEq, Debug, Subcommand)]
pub enum Bench {
    /// Send records to a topic that exists.
    Produce(BenchProduce),
    /// Read a topic from its beginning.
    Consume(BenchConsume),
}

/// `uringlog bench produce`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct BenchProduce {
    /// The topic.
    #[arg(value_parser = parse_topic)]
    pub topic: TopicName,
    /// Stop after so many records [default: 1000000, unless --duration is given].
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub records: Option<u64>,
    /// Stop after so long: 90s, 15m.
    #[arg(long, value_name = "DURATION")]
    pub duration: Option<Span>,
    /// Bytes of a record's value.
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(0..=i64::from(BATCH_BYTES_MAX)))]
    pub size: u32,
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
    /// Batches that may be under way at once, all partitions together.
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub in_flight: u16,
    /// Records a second, whether the broker keeps up or not: latency then counts from the time at
    /// which a record was due (an open loop). Without it the broker sets the pace.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: Option<u64>,
    /// With --rate: how long a record may wait for its batch to fill, in milliseconds.
    #[arg(long, value_name = "N", default_value_t = 5, requires = "rate")]
    pub linger_ms: u64,
    /// The server.
    #[command(flatten)]
    pub server: Server,
}

/// `uringlog bench consume`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct BenchConsume {
    /// The topic.
    #[arg(value_parser = parse_topic)]
    pub topic: TopicName,
    /// Stop after so many records [default: what the topic holds].
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub records: Option<u64>,
    /// Stop after so long: 90s, 15m.
    #[arg(long, value_name = "DURATION")]
    pub duration: Option<Span>,
    /// Bytes of one partition in one answer, at most.
    #[arg(long, value_name = "N", default_value_t = 1 << 20,
          value_parser = clap::value_parser!(i32).range(1..))]
    pub partition_bytes: i32,
    /// The server.
    #[command(flatten)]
    pub server: Server,
}
