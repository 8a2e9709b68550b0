//! Open-loop load on a Kafka broker, ours or any other: which latency do clients see at a rate?
//!
//! Requests have a schedule that doesn't wait for answers, and a latency counts from the time that
//! the schedule names, not from when the request could be sent: a broker that stalls pays for every
//! request of the stall (no coordinated omission). The harness says when it was late itself.
//!
//! [`drive`] carries a load out; the experiments end-to-end and soak use it, too.

mod alarm;
mod consume;
pub mod drive;
mod report;
mod send;
pub mod served;
mod tally;

use std::path::PathBuf;
use std::time::Duration;

use tokio::task::LocalSet;
use uringlog::client::Acks;

use super::measure::{self, f64_of};
use super::{Doing, Failure};
pub use drive::{Kind, Pace, Plan, Reach};
pub use send::STAMP_BYTES;
pub use tally::Tally;

/// Which load.
#[derive(clap::Subcommand)]
pub enum Load {
    /// Batches, each answered when the broker has them.
    Produce(Options),
    /// Reads at offsets spread over what the partitions hold.
    Fetch(Options),
    /// Batches, until a consumer that follows has them.
    EndToEnd(Options),
}

/// The load's shape.
#[derive(clap::Args, Clone)]
pub struct Options {
    /// Any broker of the cluster.
    #[arg(long, default_value = "127.0.0.1:9092")]
    bootstrap: String,
    /// Created when it isn't there.
    #[arg(long, default_value = "load")]
    topic: String,
    #[arg(long, default_value_t = 1)]
    partitions: i32,
    /// Requests a second, all connections together.
    #[arg(long, default_value_t = 1_000)]
    rate: u64,
    /// Connections that the requests take in turn; connection i serves partition i modulo their
    /// number.
    #[arg(long, default_value_t = 1)]
    connections: i32,
    /// Requests under way on one connection; more wait in the harness, and their latency grows.
    #[arg(long, default_value_t = 64)]
    in_flight: usize,
    /// Records in a batch.
    #[arg(long, default_value_t = 10)]
    batch_records: usize,
    /// Bytes of a record's value.
    #[arg(long, default_value_t = 1_000)]
    record_bytes: usize,
    /// all, 1 or 0; with 0 nothing is answered, and a latency ends when the request was sent.
    #[arg(long, default_value = "all", value_parser = acks)]
    acks: Acks,
    /// Bytes that one fetch may bring.
    #[arg(long, default_value_t = 1 << 20)]
    fetch_bytes: i32,
    /// Seconds that count.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Seconds before that, which don't.
    #[arg(long, default_value_t = 2)]
    warm_up_seconds: u64,
    /// Core of the harness.
    #[arg(long)]
    core: Option<usize>,
    /// Write the latencies' percentile distribution (in ms) to this file.
    #[arg(long)]
    hgrm: Option<PathBuf>,
    /// Append one JSON line to this file.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// As the command line names them.
pub fn acks(text: &str) -> Result<Acks, String> {
    match text {
        "all" | "-1" => Ok(Acks::All),
        "1" => Ok(Acks::Leader),
        "0" => Ok(Acks::None),
        _ => Err("all, 1 or 0".to_owned()),
    }
}

/// Carries the load out and prints what came of it.
pub fn run(load: &Load) -> Result<(), Failure> {
    let (kind, options) = match load {
        Load::Produce(options) => (Kind::Produce, options),
        Load::Fetch(options) => (Kind::Fetch, options),
        Load::EndToEnd(options) => (Kind::EndToEnd, options),
    };
    let positive = [options.rate, options.seconds].iter().all(|it| 0 < *it)
        && [options.connections, options.partitions, options.fetch_bytes].iter().all(|it| 0 < *it)
        && STAMP_BYTES <= options.record_bytes
        && [options.batch_records, options.in_flight].iter().all(|it| 0 < *it);
    if !positive {
        let text = "rate, times, connections, partitions and sizes are positive, and a record has \
                    16 bytes or more";
        return Err(Failure::Wrong(text.to_owned()));
    }
    if let Some(core) = options.core {
        measure::pin(core)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let mut watch = |_: Duration, _: &mut Tally| Ok(());
    let driven = drive::drive(options.plan(kind), &mut watch);
    let measured = LocalSet::new().block_on(&runtime.doing("runtime")?, driven)?;
    report::write(&measured, options)
}

impl Options {
    fn plan(&self, kind: Kind) -> Plan {
        Plan {
            kind,
            bootstrap: self.bootstrap.clone(),
            topic: self.topic.clone(),
            topic_settings: Vec::new(),
            partitions: self.partitions,
            pace: Pace::Rate(f64_of(self.rate)),
            connections: self.connections,
            reach: Reach::OnePartition,
            in_flight: self.in_flight,
            batch_records: self.batch_records,
            record_bytes: self.record_bytes,
            acks: self.acks,
            fetch_bytes: self.fetch_bytes,
            warm_up: Duration::from_secs(self.warm_up_seconds),
            counted: Duration::from_secs(self.seconds),
        }
    }
}
