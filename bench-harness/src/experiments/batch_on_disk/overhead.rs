//! Bytes beside the values against the records in a batch, and what appending such batches costs.

use std::time::Instant;

use serde_json::Value;
use uringlog::{BatchBuilder, Codec, NewRecord, RecordBatch, Timestamp, now};

use super::{SETTINGS, shown_way};
use crate::engines::reach::Reach;
use crate::engines::{batches, stored};
use crate::experiments::Failure;
use crate::experiments::measure::{f64_of, u64_of, usize_of};
use crate::record::picture::names;
use crate::record::{Better, Kind, Latency, Picture, Recorder, Table, Unit, unit};
use crate::run::Context;

const BYTES_PER_RECORD: Unit = Unit { name: "bytes/record", better: Better::Exact };

/// Both sweeps.
///
/// # Errors
/// Whatever is refused.
pub async fn run(
    context: &Context,
    reach: &Reach<'_>,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let (counts, sizes) =
        (context.parameters.numbers("batch_records"), context.parameters.numbers("record_sizes"));
    sizes_on_disk(context, reach, recorder).await?;
    recorder.vary("record_sizes", Value::from(sizes));
    if reach.is_measured(context) {
        for count in &counts {
            recorder.vary("batch_records", *count);
            cost(context, reach, (*count, recorder)).await?;
        }
    }
    recorder.vary("batch_records", Value::from(counts));
    Ok(())
}

fn batch(context: &Context, (count, size): (u64, u64)) -> Result<RecordBatch, Failure> {
    let value = batches::bytes(usize_of(size), context.seed);
    let gap = context.parameters.number("record_gap_ms");
    let first = batches::first_time(now(), (count, gap), "record_gap_ms")?;
    let mut batch = BatchBuilder::new(Codec::None);
    for number in 0..count {
        let since = (number * gap).cast_signed();
        batch.push(&NewRecord::value(Timestamp(first.0 + since), &value));
    }
    Ok(batch.build())
}

/// A batch for each point, appended and read back.
async fn sizes_on_disk(
    context: &Context,
    reach: &Reach<'_>,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let counts = context.parameters.numbers("batch_records");
    let columns = ["value", "records", "bytes of the batch", "overhead per record", "share"];
    let mut table = Table::new("Bytes beside the values", &columns);
    for size in context.parameters.numbers("record_sizes") {
        context.check()?;
        recorder.vary("record_sizes", size);
        let sink = reach.topic((&format!("overhead-{size}"), 1), SETTINGS).await?;
        for count in &counts {
            sink.append(0, batch(context, (*count, size))?).await?;
        }
        let stored = stored::batches(&sink.directory(0))?;
        recorder.expect("batches", (stored.len(), counts.len()), "one for each point");
        for (batch, count) in stored.iter().zip(&counts) {
            recorder.vary("batch_records", *count);
            let (mut records, mut values) = (0, 0);
            batch.each_record(|record| {
                records += 1;
                values += u64_of(record.value.map_or(0, <[u8]>::len));
            })?;
            let (bytes, beside) = (batch.bytes(), f64_of(batch.bytes() - values));
            let (each, share) = (beside / f64_of(records), beside / f64_of(bytes));
            recorder.expect("records", (records, *count), "what was appended");
            recorder.figure("bytes_in_batch", bytes, unit::BYTES);
            recorder.figure("overhead_per_record", each, BYTES_PER_RECORD);
            recorder.figure("overhead_share", share, unit::RATIO);
            let share = format!("{:.1} %", 100.0 * share);
            let cells = [size, records, bytes].map(|it| it.to_string());
            table.row(cells.into_iter().chain([format!("{each:.2}"), share]).collect());
        }
    }
    recorder.table(table);
    Ok(())
}

/// One batch after the other, each acknowledged before the next.
async fn cost(
    context: &Context,
    reach: &Reach<'_>,
    (count, recorder): (u64, &mut Recorder),
) -> Result<(), Failure> {
    let size = context.parameters.number("cost_record_size");
    let rounds = context.parameters.number("cost_batches");
    let sink = reach.topic((&format!("cost-{count}"), 1), SETTINGS).await?;
    let batch = batch(context, (count, size))?;
    // The first one makes the connection, or the files' first blocks.
    sink.append(0, batches::copy(&batch)).await?;
    let progress = context.progress(rounds, &format!("batches of {count} records"));
    let (mut latency, started) = (Latency::new(), Instant::now());
    for _ in 0..rounds {
        context.check()?;
        let copy = batches::copy(&batch);
        let began = Instant::now();
        sink.append(0, copy).await?;
        latency.record(began.elapsed());
        progress.advance(1);
    }
    let records = f64_of(rounds * count) / started.elapsed().as_secs_f64();
    recorder.latency("append", &latency);
    recorder.figure("append_throughput", records.round(), unit::RECORDS_PER_SECOND);
    recorder.figure("append_rate", (records * f64_of(size)).round(), unit::BYTES_PER_SECOND);
    Ok(())
}

/// What the sweeps look like.
pub fn pictures(context: &Context, recorder: &mut Recorder) {
    let against = || "batch_records".to_owned();
    recorder.picture(
        Picture::new(
            "overhead-per-record",
            "Bytes beside the value, per record, against records in a batch",
            "All lines fall from about 70 bytes for a record alone in its batch to 8 or 10 in a \
             full one: the header is shared, and what is left are a record's own lengths. Longer \
             values lie a byte or two higher. Engines lie on each other.",
            Kind::Scaling { figures: names(&["overhead_per_record"]), against: against() },
        )
        .only("through", shown_way(context)),
    );
    recorder.picture(Picture::new(
        "throughput-by-batch",
        "Records a second against records in a batch, one batch under way",
        "As long as the line rises with slope 1 an append costs the same however many records it \
         has; where it bends, bytes begin to count.",
        Kind::Scaling { figures: names(&["append_throughput"]), against: against() },
    ));
    recorder.picture(Picture::new(
        "latency-by-batch",
        "Median append against records in a batch",
        "The flat part is what an append costs by itself, the rising part what its bytes cost.",
        Kind::Scaling { figures: names(&["append_p50"]), against: against() },
    ));
}
