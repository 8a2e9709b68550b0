//! Records without keys: whoever fills one partition's batch before going to the next sends few
//! large batches; whoever deals records out one by one sends many small ones.

use std::time::Instant;

use serde_json::Value;
use uringlog::{BatchBuilder, Codec, NewRecord, RecordBatch, now};

use crate::engines::reach::{NO_LIMIT, Reach};
use crate::engines::sink::Sink;
use crate::engines::{batches, stored};
use crate::experiments::Failure;
use crate::experiments::measure::{f64_of, u64_of, usize_of};
use crate::parameters::Parameters;
use crate::record::picture::names;
use crate::record::{Kind, Latency, Picture, Recorder, Table, unit};
use crate::run::Context;

/// How a producer spreads records without keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Partitioner {
    /// One record here, the next there: Kafka's clients before 2.4.
    Dealing,
    /// One partition until it got `batch.size` bytes, then one at random: Kafka's clients since.
    Sticky,
    /// One partition until its batch is sent, then the next: `uringlog produce`.
    Turns,
}

impl Partitioner {
    const ALL: [Partitioner; 3] = [Partitioner::Dealing, Partitioner::Sticky, Partitioner::Turns];

    fn name(self) -> &'static str {
        match self {
            Partitioner::Dealing => "record by record",
            Partitioner::Sticky => "sticky",
            Partitioner::Turns => "batch by batch",
        }
    }
}

/// The producing side: open batches, and where the next record goes.
struct Producer {
    partitioner: Partitioner,
    open: Vec<BatchBuilder>,
    batch_bytes: u64,
    current: usize,
    /// Bytes that the current partition has got.
    sent_bytes: u64,
    random: u64,
}

impl Producer {
    fn new(partitioner: Partitioner, partitions: u64, batch_bytes: u64, seed: u64) -> Producer {
        let open = (0..partitions).map(|_| BatchBuilder::new(Codec::None)).collect();
        Producer { partitioner, open, batch_bytes, current: 0, sent_bytes: 0, random: seed | 1 }
    }

    /// Takes a record in; the batch that had no room for it, with its partition.
    fn push(&mut self, record: &NewRecord<'_>) -> Option<(u32, RecordBatch)> {
        let open = &self.open[self.current];
        let is_full =
            0 < open.count() && self.batch_bytes < u64_of(open.size()) + u64_of(record.bytes_max());
        let full = is_full.then(|| self.close(self.current));
        self.open[self.current].push(record);
        if self.partitioner == Partitioner::Dealing {
            self.current = (self.current + 1) % self.open.len();
        }
        full
    }

    /// Every batch that has a record: `linger.ms` is over.
    fn flush(&mut self) -> Vec<(u32, RecordBatch)> {
        let filled: Vec<usize> =
            (0..self.open.len()).filter(|it| 0 < self.open[*it].count()).collect();
        filled.into_iter().map(|it| self.close(it)).collect()
    }

    fn close(&mut self, at: usize) -> (u32, RecordBatch) {
        let batch = std::mem::replace(&mut self.open[at], BatchBuilder::new(Codec::None)).build();
        self.sent_bytes += batch.size().0;
        let is_over = match self.partitioner {
            Partitioner::Dealing => false,
            // A batch is full when the next record doesn't fit, a little below batch.size.
            Partitioner::Sticky => self.batch_bytes * 9 / 10 <= self.sent_bytes,
            Partitioner::Turns => true,
        };
        if is_over {
            self.sent_bytes = 0;
            self.current = match self.partitioner {
                Partitioner::Sticky => self.draw(),
                _ => (self.current + 1) % self.open.len(),
            };
        }
        (u32::try_from(at).expect("at most 1,000"), batch)
    }

    fn draw(&mut self) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize_of((self.random >> 33) % u64_of(self.open.len()))
    }
}

/// Every partitioner on every number of partitions.
///
/// # Errors
/// Whatever is refused.
pub async fn run(
    context: &Context,
    reach: &Reach<'_>,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let sweep = context.parameters.numbers("sticky_partitions");
    let columns = ["partitions", "filled", "batches", "records a batch", "bytes", "most, least"];
    let mut table = Table::new("Records without keys", &columns);
    for partitions in &sweep {
        for partitioner in Partitioner::ALL {
            context.check()?;
            recorder.vary("sticky_partitions", *partitions);
            recorder.vary("partitioner", partitioner.name());
            let kind = partitioner.name().replace(' ', "-");
            let count = u32::try_from(*partitions).expect("at most 1,000");
            let settings = [("retention.ms", NO_LIMIT), ("max.message.bytes", 64 << 20)];
            let sink = reach.topic((&format!("{kind}-{partitions}"), count), &settings).await?;
            let (latency, seconds) = produce(context, &sink, partitioner).await?;
            let records = context.parameters.number("sticky_records");
            recorder.latency("append", &latency);
            let rate = (f64_of(records) / seconds).round();
            recorder.figure("throughput", rate, unit::RECORDS_PER_SECOND);
            table.row(read_back(&sink, (partitioner, records), recorder)?);
        }
    }
    recorder.table(table);
    recorder.vary("sticky_partitions", Value::from(sweep));
    recorder.forget("partitioner");
    Ok(())
}

/// One batch under way; latencies of batches, and seconds in all.
async fn produce(
    context: &Context,
    sink: &Sink,
    partitioner: Partitioner,
) -> Result<(Latency, f64), Failure> {
    let Parts { records, linger, value, batch_bytes } =
        Parts::of(&context.parameters, context.seed);
    let partitions = u64::from(sink.partitions());
    let mut producer = Producer::new(partitioner, partitions, batch_bytes, context.seed);
    let progress = context.progress(records, partitioner.name());
    let (mut latency, started, at) = (Latency::new(), Instant::now(), now());
    for number in 1..=records {
        let mut due = Vec::from_iter(producer.push(&NewRecord::value(at, &value)));
        if number % linger == 0 || number == records {
            due.extend(producer.flush());
        }
        for (partition, batch) in due {
            context.check()?;
            let began = Instant::now();
            sink.append(partition, batch).await?;
            latency.record(began.elapsed());
        }
        progress.advance(1);
    }
    Ok((latency, started.elapsed().as_secs_f64()))
}

struct Parts {
    records: u64,
    linger: u64,
    value: Vec<u8>,
    batch_bytes: u64,
}

impl Parts {
    fn of(parameters: &Parameters, seed: u64) -> Parts {
        Parts {
            records: parameters.number("sticky_records"),
            linger: parameters.number("linger_records"),
            value: batches::bytes(parameters.length("record_size"), seed),
            batch_bytes: parameters.number("batch_bytes"),
        }
    }
}

fn read_back(
    sink: &Sink,
    (partitioner, sent): (Partitioner, u64),
    recorder: &mut Recorder,
) -> Result<Vec<String>, Failure> {
    let (mut spread, mut batches, mut bytes) = (Vec::new(), 0, 0);
    for partition in 0..sink.partitions() {
        let mut records = 0;
        for batch in stored::batches(&sink.directory(partition))? {
            batches += 1;
            bytes += batch.bytes();
            batch.each_record(|_| records += 1)?;
        }
        spread.push(records);
    }
    let records: u64 = spread.iter().sum();
    recorder.expect("records", (records, sent), "what was sent");
    let average = f64_of(records) / f64_of(batches);
    let (most, least) = (spread.iter().max(), spread.iter().min());
    let range = most.zip(least).map_or(String::new(), |(most, least)| format!("{most}, {least}"));
    let cells = [
        spread.len().to_string(),
        partitioner.name().to_owned(),
        batches.to_string(),
        format!("{average:.1}"),
        bytes.to_string(),
        range,
    ];
    recorder.figure("batches", batches, unit::COUNT);
    recorder.figure("records_in_batch", average, unit::RATIO);
    recorder.figure("records_per_partition", spread, unit::COUNT);
    recorder.figure("log_bytes", bytes, unit::BYTES);
    Ok(cells.into())
}

/// What spreading looks like.
pub fn pictures(recorder: &mut Recorder) {
    for partitioner in Partitioner::ALL {
        let file = partitioner.name().replace(' ', "-");
        recorder.picture(
            Picture::new(
                &format!("throughput-{file}"),
                &format!("Records a second against partitions, spread {}", partitioner.name()),
                "Dealt out record by record, every partition more makes batches smaller, and the \
                 line falls; filled one batch after the other, batches stay as large and the line \
                 stays level.",
                Kind::Scaling {
                    figures: names(&["throughput"]),
                    against: "sticky_partitions".to_owned(),
                },
            )
            .only("partitioner", partitioner.name()),
        );
    }
    recorder.note(
        "Producers here are models of three rules, with time counted in records: after \
         linger_records of them every open batch is sent. Records that come faster than linger.ms \
         passes fill batches whatever the rule (raise linger_records to see that).",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use uringlog::Timestamp;

    /// Records in each batch, with its partition.
    fn sent(partitioner: Partitioner, linger: u64) -> Vec<(u32, i32)> {
        let mut producer = Producer::new(partitioner, 4, 2000, 7);
        let mut batches = Vec::new();
        for number in 1..=60 {
            batches.extend(producer.push(&NewRecord::value(Timestamp(1), &[7; 100])));
            if number % linger == 0 {
                batches.extend(producer.flush());
            }
        }
        batches.extend(producer.flush());
        batches.into_iter().map(|(at, it)| (at, it.header().record_count)).collect()
    }

    #[test]
    fn dealing_makes_small_batches_and_the_others_large_ones() {
        let dealt = sent(Partitioner::Dealing, 12);
        assert_eq!(dealt.len(), 20);
        assert!(dealt.iter().all(|it| it.1 == 3), "{dealt:?}");
        let turns = sent(Partitioner::Turns, 12);
        assert_eq!(turns, [(0, 12), (1, 12), (2, 12), (3, 12), (0, 12)]);
        let sticky = sent(Partitioner::Sticky, 12);
        assert_eq!(sticky.iter().map(|it| it.1).collect::<Vec<_>>(), [12; 5]);
        // 1,800 bytes are two batches of 12 records.
        assert_eq!(sticky[0].0, sticky[1].0);
    }

    #[test]
    fn a_batch_that_has_no_room_is_sent_without_waiting() {
        let turns = sent(Partitioner::Turns, 1000);
        assert!(turns.len() == 4 && turns[..3].iter().all(|it| it.1 == turns[0].1), "{turns:?}");
        assert_eq!(turns.iter().map(|it| it.1).sum::<i32>(), 60);
    }
}
