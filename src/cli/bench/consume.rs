//! `uringlog bench consume`: one fetch under way at each leader, from the beginning to the end that
//! the topic has at the start.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::summary::{Latencies, Summary};
use crate::cli::args::bench::BenchConsume;
use crate::cli::command::{CommandError, Interrupt};
use crate::cli::consume::Batches;
use crate::cli::{output, topic};
use crate::client::{
    Asker, Client, ClientError, Connection, FetchFrom, FetchLimits, TopicPartition, decode_fetched,
    encode_fetch, timestamp,
};
use crate::units::u64_of;

/// Answers that wait to be counted.
const ANSWERS_MAX: usize = 16;

/// What an answer brought.
struct Counted {
    records: u64,
    bytes: u64,
    latency: Duration,
}

/// A partition with the offset where it is done.
struct Place {
    from: FetchFrom,
    end: i64,
}

/// The places of each leader.
type Leaders = Vec<(Connection, Vec<Place>)>;

pub(super) async fn run(client: &Client, options: &BenchConsume) -> Result<Summary, CommandError> {
    let mut interrupt = Interrupt::install()?;
    let found = topic::find(client, options.topic.as_str()).await?;
    let wanted = topic::partitions_of(&found, None)?;
    let (leaders, held) = places(client, &wanted, options.partition_bytes).await?;
    let (sender, mut answers) = mpsc::channel(ANSWERS_MAX);
    let start = Instant::now();
    let mut tasks: JoinSet<Result<(), ClientError>> = JoinSet::new();
    for (connection, places) in leaders {
        tasks.spawn(read(connection, places, sender.clone()));
    }
    drop(sender);
    let limit = options.duration.map_or(Duration::MAX, |span| {
        Duration::from_millis(u64::try_from(span.0).expect("a span is not negative"))
    });
    let wanted = options.records.unwrap_or(held);
    let bar = output::progress(Some(wanted));
    let (mut records, mut bytes, mut latencies) = (0, 0, Latencies::new());
    while records < wanted && start.elapsed() < limit {
        let counted = tokio::select! {
            counted = answers.recv() => counted,
            () = interrupt.wait() => None,
        };
        let Some(Counted { records: more, bytes: size, latency }) = counted else { break };
        records += more;
        bytes += size;
        latencies.record(latency, 1);
        bar.set_message(output::byte_rate(bytes, start.elapsed()));
        bar.set_position(records);
    }
    let elapsed = start.elapsed();
    bar.finish_and_clear();
    while let Some(Some(ended)) = tasks.try_join_next().map(Some) {
        ended.expect("a task neither panics nor is cancelled")?;
    }
    let settings = json!({
        "topic": options.topic.as_str(), "partition_bytes": options.partition_bytes,
    });
    let (what, latency_of) = ("consumed", "fetch");
    Ok(Summary { what, latency_of, records, bytes, elapsed, latencies, settings })
}

/// Where to read, and how many offsets that is in all.
async fn places(
    client: &Client,
    wanted: &[TopicPartition],
    bytes_max: i32,
) -> Result<(Leaders, u64), CommandError> {
    let starts = client.lookup_offsets(wanted, timestamp::EARLIEST, Asker::Consumer).await?;
    let ends = client.lookup_offsets(wanted, timestamp::LATEST, Asker::Consumer).await?;
    let (mut leaders, mut held): (Leaders, u64) = (Vec::new(), 0);
    for ((at, start), (_, end)) in starts.into_iter().zip(ends) {
        let (start, end) = (start?.offset, end?.offset);
        held += u64::try_from(end - start).unwrap_or(0);
        let (topic, partition) = (at.topic, at.partition);
        let connection = client.leader(&topic, partition).await?;
        let from = FetchFrom { topic, partition, offset: start, bytes_max };
        let place = Place { from, end };
        let own = leaders.iter_mut().find(|(it, _)| it.address() == connection.address());
        match own {
            Some((_, list)) => list.push(place),
            None => leaders.push((connection, vec![place])),
        }
    }
    Ok((leaders, held))
}

async fn read(
    connection: Connection,
    mut places: Vec<Place>,
    answers: mpsc::Sender<Counted>,
) -> Result<(), ClientError> {
    loop {
        places.retain(|place| place.from.offset < place.end);
        if places.is_empty() {
            return Ok(());
        }
        let from: Vec<_> = places.iter().map(|place| place.from.clone()).collect();
        let sent = Instant::now();
        let request = encode_fetch(&connection, &from, FetchLimits::default())?;
        let version = request.header.version;
        let body = connection.send(request).await?.body().await?;
        let latency = sent.elapsed();
        let mut counted = Counted { records: 0, bytes: 0, latency };
        for fetched in decode_fetched(&connection, version, body)? {
            fetched.check()?;
            counted.bytes += u64_of(fetched.records.len());
            let own = places.iter_mut().find(|place| place.from.partition == fetched.partition);
            let Some(place) = own else { continue };
            for batch in Batches::new(&fetched.records) {
                let (header, _) = batch.map_err(|error| {
                    ClientError::Argument(format!("partition {}: {error}", fetched.partition))
                })?;
                counted.records += u64::try_from(header.record_count).unwrap_or(0);
                let last = header.base_offset.saturating_add(i64::from(header.last_offset_delta));
                place.from.offset = place.from.offset.max(last.saturating_add(1));
            }
        }
        if answers.send(counted).await.is_err() {
            return Ok(());
        }
    }
}
