//! One connection's requests, sent when they are due, and their answers.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use uringlog::client::{
    Acks, Answering, ClientError, Connection, Encoded, FetchFrom, FetchLimits, decode_fetched,
    decode_produced, encode_fetch, encode_produce,
};
use uringlog::{BatchBuilder, Codec, NewRecord, now};

use super::drive::{Kind, Run};

/// Run and due time in front of a record's value.
pub const STAMP_BYTES: usize = 16;

/// How long the broker may take for a batch.
const PRODUCE_TIMEOUT_MS: i32 = 30_000;

/// Sends each request that comes through `due`, to the partitions by turns; each with its end.
pub async fn serve(
    run: Rc<Run>,
    connection: Connection,
    partitions: Vec<(i32, i64)>,
    mut due: mpsc::UnboundedReceiver<Duration>,
) {
    // Batches that nobody reads are all the same, which costs the harness nothing.
    let same = batch(&run, Duration::ZERO);
    let mut offsets: Vec<_> = partitions.iter().map(|it| Offsets::new(*it)).collect();
    let mut turn = 0;
    while let Some(due) = due.recv().await {
        let partition = partitions[turn].0;
        let request = match run.plan.kind {
            Kind::Fetch => fetch(&run, &connection, (partition, offsets[turn].next())),
            Kind::Produce => produce(&run, &connection, partition, same.clone()),
            Kind::EndToEnd => produce(&run, &connection, partition, batch(&run, due)),
        };
        turn = (turn + 1) % partitions.len();
        let sent = match request {
            Ok((request, bytes)) => {
                let version = request.header.version;
                connection.send(request).await.map(|answering| (answering, version, bytes))
            }
            Err(error) => Err(error),
        };
        match sent {
            Ok(sent) => drop(tokio::task::spawn_local(take_answer(run.clone(), sent, due))),
            Err(error) => run.failed(&error.to_string()),
        }
    }
}

async fn take_answer(
    run: Rc<Run>,
    (answering, version, bytes): (Answering, i16, usize),
    due: Duration,
) {
    match answer(&run, answering, (version, bytes)).await {
        // An end-to-end latency ends at the consumer.
        Ok(_) if run.plan.kind == Kind::EndToEnd => run.acknowledged(due),
        Ok(bytes) => run.answered(due, bytes),
        Err(error) => run.failed(&error.to_string()),
    }
}

/// The bytes of records that the request moved.
async fn answer(
    run: &Run,
    answering: Answering,
    (version, bytes): (i16, usize),
) -> Result<usize, ClientError> {
    let connection = answering.connection().clone();
    let body = answering.body().await?;
    if run.plan.kind == Kind::Fetch {
        let fetched = decode_fetched(&connection, version, body)?;
        fetched.iter().try_for_each(|one| one.check())?;
        return Ok(fetched.iter().map(|one| one.records.len()).sum());
    }
    if run.plan.acks != Acks::None {
        decode_produced(&connection, version, body)?;
    }
    Ok(bytes)
}

fn produce(
    run: &Run,
    connection: &Connection,
    partition: i32,
    batch: Bytes,
) -> Result<(Encoded, usize), ClientError> {
    let bytes = batch.len();
    let to = (run.plan.topic.as_str(), partition);
    let how = (run.plan.acks, PRODUCE_TIMEOUT_MS);
    Ok((encode_produce(connection, to, batch, how)?, bytes))
}

fn fetch(
    run: &Run,
    connection: &Connection,
    (partition, offset): (i32, i64),
) -> Result<(Encoded, usize), ClientError> {
    let (topic, bytes_max) = (run.plan.topic.clone(), run.plan.fetch_bytes);
    let limits = FetchLimits { bytes_max, ..FetchLimits::default() };
    let from = FetchFrom { topic, partition, offset, bytes_max };
    Ok((encode_fetch(connection, &[from], limits)?, 0))
}

fn batch(run: &Run, due: Duration) -> Bytes {
    let mut value = vec![b'x'; run.plan.record_bytes];
    let due = u64::try_from(due.as_nanos()).expect("a run is far shorter than 500 years");
    value[..8].copy_from_slice(&run.id.to_be_bytes());
    value[8..STAMP_BYTES].copy_from_slice(&due.to_be_bytes());
    let mut batch = BatchBuilder::new(Codec::None);
    let now = now();
    for _ in 0..run.plan.batch_records {
        batch.push(&NewRecord::value(now, &value));
    }
    batch.build().freeze()
}

/// Offsets that jump about in what a partition holds, the same in every run.
struct Offsets {
    end: i64,
    state: u64,
}

impl Offsets {
    fn new((partition, end): (i32, i64)) -> Offsets {
        Offsets { end, state: u64::from(partition.unsigned_abs()) + 1 }
    }

    fn next(&mut self) -> i64 {
        // Knuth's linear congruential generator; its upper bits are the good ones.
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let upper = i64::try_from(self.state >> 33).expect("31 bits");
        upper % self.end.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_stay_inside_and_move_about() {
        let mut offsets = Offsets::new((0, 1_000));
        let some: Vec<_> = (0..1_000).map(|_| offsets.next()).collect();
        assert!(some.iter().all(|offset| (0..1_000).contains(offset)));
        assert!(some.iter().any(|offset| *offset < 100));
        assert!(some.iter().any(|offset| 900 <= *offset));
        assert_eq!(Offsets::new((0, 0)).next(), 0);
    }
}
