//! Open-loop load on a Kafka broker, ours or any other: which latency do clients see at a rate?
//!
//! Requests have a schedule that doesn't wait for answers, and a latency counts from the time that
//! the schedule names, not from when the request could be sent: a broker that stalls pays for every
//! request of the stall (no coordinated omission). The harness says when it was late itself.

mod consume;
mod report;
mod send;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::LocalSet;
use uringlog::client::{
    Acks, Client, ClientOptions, Connection, ConnectionOptions, NewTopic, timestamp,
};

use super::measure::{self, f64_of, u64_of};
use super::{Doing, Failure};
use report::{Measured, Tally};

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

fn acks(text: &str) -> Result<Acks, String> {
    match text {
        "all" | "-1" => Ok(Acks::All),
        "1" => Ok(Acks::Leader),
        "0" => Ok(Acks::None),
        _ => Err("all, 1 or 0".to_owned()),
    }
}

/// What a connection is told to send, by turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Produce,
    Fetch,
    EndToEnd,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Produce => "produce",
            Kind::Fetch => "fetch",
            Kind::EndToEnd => "end-to-end",
        }
    }
}

/// What all tasks of a run share; one thread.
struct Run {
    kind: Kind,
    options: Options,
    /// The schedule's zero.
    start: Instant,
    /// Latencies of what is scheduled from here on count.
    count_from: Duration,
    /// Tells this run's batches from others in the topic.
    id: u64,
    tally: RefCell<Tally>,
}

/// Longest wait for answers after the last request.
const DRAIN: Duration = Duration::from_secs(10);

/// tokio's timers are exact to a millisecond; the rest is waited for by giving way to others.
const TIMER_EXACT: Duration = Duration::from_millis(2);

/// Carries the load out and prints what came of it.
pub fn run(load: &Load) -> Result<(), Failure> {
    let (kind, options) = match load {
        Load::Produce(options) => (Kind::Produce, options),
        Load::Fetch(options) => (Kind::Fetch, options),
        Load::EndToEnd(options) => (Kind::EndToEnd, options),
    };
    let positive = [options.rate, options.seconds].iter().all(|it| 0 < *it)
        && [options.connections, options.partitions, options.fetch_bytes].iter().all(|it| 0 < *it)
        && send::STAMP_BYTES <= options.record_bytes
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
    let measured =
        LocalSet::new().block_on(&runtime.doing("runtime")?, drive(kind, options.clone()))?;
    report::write(&measured, options)
}

async fn drive(kind: Kind, options: Options) -> Result<Measured, Failure> {
    let client = Client::connect(&options.bootstrap, ClientOptions::default()).await?;
    create_topic(&client, &options).await?;
    let mut connections = Vec::new();
    for number in 0..options.connections {
        let partition = number % options.partitions;
        connections.push((connect(&client, &options, partition).await?, partition));
    }
    let ends = ends(&client, &options).await?;
    let run = Rc::new(Run {
        kind,
        start: Instant::now(),
        count_from: Duration::from_secs(options.warm_up_seconds),
        id: u64::from(std::process::id()),
        tally: RefCell::new(Tally::new()?),
        options,
    });
    if kind == Kind::EndToEnd {
        for (partition, end) in (0..).zip(ends.iter().copied()) {
            let connection = connect(&client, &run.options, partition).await?;
            tokio::task::spawn_local(consume::follow(run.clone(), connection, (partition, end)));
        }
    }
    let mut queues = Vec::new();
    for (connection, partition) in connections {
        let (queue, due) = mpsc::unbounded_channel();
        queues.push(queue);
        let end = ends[usize::try_from(partition).expect("not negative")];
        tokio::task::spawn_local(send::serve(run.clone(), connection, (partition, end), due));
    }
    let cpu = measure::thread_cpu();
    schedule(&run, queues).await;
    let cpu = measure::thread_cpu() - cpu;
    drain(&run).await;
    let tally = run.tally.replace(Tally::new()?);
    Ok(Measured { kind: kind.name(), cpu, wall: run.length(), tally })
}

impl Run {
    fn length(&self) -> Duration {
        self.count_from + Duration::from_secs(self.options.seconds)
    }

    /// When request `number` is due, counted from the schedule's zero.
    fn due(&self, number: u64) -> Duration {
        Duration::from_secs_f64(f64_of(number) / f64_of(self.options.rate))
    }

    fn counts(&self, due: Duration) -> bool {
        self.count_from <= due
    }

    /// A request's answer has come.
    fn answered(&self, due: Duration, bytes: usize) {
        let latency = self.start.elapsed().saturating_sub(due);
        self.tally.borrow_mut().answered(latency, (u64_of(bytes), self.counts(due)));
    }

    /// A request failed.
    fn failed(&self, error: &str) {
        self.tally.borrow_mut().failed(error);
    }
}

/// Hands each request to its connection when it is due.
async fn schedule(run: &Run, queues: Vec<mpsc::UnboundedSender<Duration>>) {
    for (number, queue) in (0..).zip(queues.iter().cycle()) {
        let due = run.due(number);
        if run.length() <= due {
            return;
        }
        wait_until(run.start + due).await;
        let late = run.start.elapsed().saturating_sub(due);
        run.tally.borrow_mut().scheduled(late, run.counts(due));
        // A connection that has ended says so in the tally.
        let _ = queue.send(due);
    }
}

async fn wait_until(due: Instant) {
    let early = due.checked_sub(TIMER_EXACT).unwrap_or(due);
    if Instant::now() < early {
        tokio::time::sleep_until(early.into()).await;
    }
    loop {
        // Once at least, so that answers are taken in even when the schedule is behind.
        tokio::task::yield_now().await;
        if due <= Instant::now() {
            return;
        }
    }
}

async fn drain(run: &Run) {
    let until = Instant::now() + DRAIN;
    while 0 < run.tally.borrow().open() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn create_topic(client: &Client, options: &Options) -> Result<(), Failure> {
    let known = client.metadata(Some(&[options.topic.as_str()])).await?;
    if known.topics.iter().any(|topic| topic.error_code == 0) {
        return Ok(());
    }
    let (name, partitions) = (options.topic.clone(), options.partitions);
    let topic = NewTopic { name, partitions, replication_factor: -1, configs: Vec::new() };
    client.create_topic(&topic).await?;
    Ok(())
}

/// A connection of one's own to the partition's leader.
async fn connect(
    client: &Client,
    options: &Options,
    partition: i32,
) -> Result<Connection, Failure> {
    let leader = client.leader(&options.topic, partition).await?;
    let set = ConnectionOptions {
        client_id: "bench-harness".to_owned(),
        in_flight_max: options.in_flight,
        ..ConnectionOptions::default()
    };
    Ok(Connection::open(leader.address(), &set).await?)
}

/// Where each partition ends now.
async fn ends(client: &Client, options: &Options) -> Result<Vec<i64>, Failure> {
    let mut ends = Vec::new();
    for partition in 0..options.partitions {
        let found = client.list_offsets(&options.topic, partition, timestamp::LATEST).await?;
        ends.push(found.offset);
    }
    Ok(ends)
}
