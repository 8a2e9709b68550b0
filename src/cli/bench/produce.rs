//! `uringlog bench produce`.

use std::time::{Duration, Instant};

use bytes::Bytes;
use indicatif::ProgressBar;
use serde_json::json;
use tokio::task::JoinSet;

use super::schedule::{Action, Schedule, records_of_batch};
use super::summary::{Latencies, Summary};
use crate::cli::args::bench::BenchProduce;
use crate::cli::args::clients::Codec;
use crate::cli::command::{CommandError, Interrupt};
use crate::cli::output;
use crate::cli::{time, topic};
use crate::client::{Acks, Client, ClientError, Target};
use crate::format::record::{BatchBuilder, NewRecord};
use crate::units::{Timestamp, usize_of};

/// Records, unless number or duration are said.
const RECORDS_DEFAULT: u64 = 1_000_000;

/// A batch on its way.
struct Sent {
    first: u64,
    records: u64,
    /// When it was handed to the client, from the start.
    at: Duration,
}

/// What has become of a batch, and when.
type Answered = (Sent, Duration, Result<(), ClientError>);

struct Run<'a> {
    client: &'a Client,
    options: &'a BenchProduce,
    schedule: Schedule,
    partitions: Vec<i32>,
    value: Vec<u8>,
    start: Instant,
    sent: u64,
    batches: usize,
    acknowledged: u64,
    latencies: Latencies,
    under_way: JoinSet<Answered>,
    bar: ProgressBar,
}

pub(super) async fn run(client: &Client, options: &BenchProduce) -> Result<Summary, CommandError> {
    let mut interrupt = Interrupt::install()?;
    let topic = topic::find(client, options.topic.as_str()).await?;
    let partitions = topic.partitions.iter().map(|one| one.index).collect();
    let value = value(usize_of(u64::from(options.size)));
    let record_bytes = NewRecord::value(Timestamp(0), &value).bytes_max();
    let records = match (options.records, options.duration) {
        (None, None) => Some(RECORDS_DEFAULT),
        (records, _) => records,
    };
    let schedule = Schedule {
        rate: options.rate,
        linger: Duration::from_millis(options.linger_ms),
        batch_records: records_of_batch(u64::from(options.batch_bytes), record_bytes),
        records,
    };
    let mut run = Run {
        client,
        options,
        schedule,
        partitions,
        value,
        start: Instant::now(),
        sent: 0,
        batches: 0,
        acknowledged: 0,
        latencies: Latencies::new(),
        under_way: JoinSet::new(),
        bar: output::progress(records),
    };
    let result = tokio::select! {
        result = run.drive() => result,
        () = interrupt.wait() => Ok(()),
    };
    result?;
    run.bar.finish_and_clear();
    Ok(run.summary())
}

impl Run<'_> {
    async fn drive(&mut self) -> Result<(), CommandError> {
        let in_flight_max = usize::from(self.options.in_flight);
        let limit = self.options.duration.map(|span| {
            Duration::from_millis(u64::try_from(span.0).expect("a span is not negative"))
        });
        loop {
            let now = self.start.elapsed();
            let is_over = limit.is_some_and(|limit| limit <= now);
            match self.schedule.action(now, self.sent) {
                Action::Done => break,
                _ if is_over => break,
                Action::Send(_) if self.under_way.len() >= in_flight_max => self.settle().await?,
                Action::Send(records) => self.send(records),
                Action::Wait(until) => self.wait(until).await?,
            }
        }
        while !self.under_way.is_empty() {
            self.settle().await?;
        }
        Ok(())
    }

    async fn wait(&mut self, until: Duration) -> Result<(), CommandError> {
        let until = tokio::time::Instant::from_std(self.start + until);
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(until) => Ok(()),
            answered = self.under_way.join_next(), if !self.under_way.is_empty() => {
                self.take(answered)
            }
        }
    }

    async fn settle(&mut self) -> Result<(), CommandError> {
        let answered = self.under_way.join_next().await;
        self.take(answered)
    }

    fn take(
        &mut self,
        answered: Option<Result<Answered, tokio::task::JoinError>>,
    ) -> Result<(), CommandError> {
        let Some(answered) = answered else { return Ok(()) };
        let (sent, done, result) = answered.expect("a task neither panics nor is cancelled");
        result?;
        self.acknowledged += sent.records;
        if self.schedule.rate.is_none() {
            self.latencies.record(done.saturating_sub(sent.at), sent.records);
        } else {
            for index in sent.first..sent.first + sent.records {
                self.latencies.record(done.saturating_sub(self.schedule.due(index)), 1);
            }
        }
        let bytes = self.acknowledged * u64::from(self.options.size);
        self.bar.set_message(output::byte_rate(bytes, self.start.elapsed()));
        self.bar.set_position(self.acknowledged);
        Ok(())
    }

    fn send(&mut self, records: u64) {
        let at = self.start.elapsed();
        let batch = self.batch(records);
        let partition = self.partitions[self.batches % self.partitions.len()];
        let sent = Sent { first: self.sent, records, at };
        self.sent += records;
        self.batches += 1;
        let (client, topic) = (self.client.clone(), self.options.topic.clone());
        let (acks, start) = (Acks::from(self.options.acks), self.start);
        self.under_way.spawn(async move {
            let target = Target { topic: topic.as_str(), partition, acks };
            let result = client.produce(target, batch).await.map(drop);
            (sent, start.elapsed(), result)
        });
    }

    fn batch(&self, records: u64) -> Bytes {
        let mut builder = BatchBuilder::new(self.options.codec.into());
        let record = NewRecord::value(Timestamp(time::now_ms()), &self.value);
        (0..records).for_each(|_| builder.push(&record));
        builder.build().freeze()
    }

    fn summary(self) -> Summary {
        let codec = match self.options.codec {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        };
        Summary {
            what: "produced",
            latency_of: "record",
            records: self.acknowledged,
            bytes: self.acknowledged * u64::from(self.options.size),
            elapsed: self.start.elapsed(),
            latencies: self.latencies,
            settings: json!({
                "topic": self.options.topic.as_str(),
                "partitions": self.partitions.len(),
                "size": self.options.size,
                "acks": Acks::from(self.options.acks).to_wire(),
                "codec": codec,
                "batch_records": self.schedule.batch_records,
                "in_flight": self.options.in_flight,
                "rate": self.schedule.rate,
            }),
        }
    }
}

/// Letters that look random and are the same in every run.
fn value(bytes: usize) -> Vec<u8> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz012345";
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        LETTERS[usize_of(state % 32)]
    };
    std::iter::repeat_with(letter).take(bytes).collect()
}
