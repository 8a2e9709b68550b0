//! From a timestamp to an offset: the time index names an offset, the offset index its position,
//! and headers and records behind it are looked at. And reads and lookups in a warmed-up server or
//! library, timed.

use std::fs::File;
use std::time::Instant;

use uringlog::{BatchBuilder, Codec, NewRecord, RecordBatch, Timestamp, now};

use super::index::{self, Walk, targets};
use super::phenomenon::Contents;
use crate::engines::sink::Sink;
use crate::engines::{batches, files};
use crate::experiments::measure::u64_of;
use crate::experiments::{DoingTo, Failure};
use crate::record::picture::names;
use crate::record::{Kind, Latency, Picture, Recorder, Table, Unit, unit};
use crate::run::Context;

/// Of the topic that [`fill`] fills.
pub const TOPIC: &str = "times";
/// Records of a batch, one each millisecond.
const BATCH_RECORDS: u64 = 10;
/// Milliseconds since the first record.
const MS: Unit = Unit { name: "ms", better: crate::record::Better::Exact };
const RULE: &str = "a record each millisecond, the first one with offset 0";

/// Appends records, one each millisecond up to now; returns the time of the first.
async fn fill(context: &Context, sink: &Sink) -> Result<Timestamp, Failure> {
    let count = context.parameters.number("time_records");
    let first = now().0 - i64::try_from(count).expect("records of a run are few");
    let value = batches::bytes(context.parameters.length("time_record_size"), context.seed);
    let progress = context.progress(count, "records with a time each");
    let mut at = 0;
    while at < count {
        context.check()?;
        let records = BATCH_RECORDS.min(count - at);
        sink.append(0, batch((at, records), first, &value)).await?;
        at += records;
        progress.advance(records);
    }
    Ok(Timestamp(first))
}

fn batch((at, records): (u64, u64), first: i64, value: &[u8]) -> RecordBatch {
    let mut batch = BatchBuilder::new(Codec::None);
    for number in at..at + records {
        let number = i64::try_from(number).expect("records of a run are few");
        batch.push(&NewRecord::value(Timestamp(first + number), value));
    }
    batch.build()
}

/// One lookup step by step, and many of them timed.
///
/// # Errors
/// A time that no record has, and whatever is refused.
pub async fn run(context: &Context, sink: &Sink, recorder: &mut Recorder) -> Result<(), Failure> {
    let count = context.parameters.number("time_records");
    let wanted = context.parameters.number("lookup_ms");
    if count <= wanted {
        return Err(Failure::Usage(format!(
            "lookup_ms={wanted}: time_records={count} end before that; lower the one, or raise the \
             other"
        )));
    }
    let first = fill(context, sink).await?;
    let segments = files::segments(&sink.directory(0))?;
    let segment = segments.first().ok_or_else(|| Failure::Wrong("there is no segment".into()))?;
    if segments.len() != 1 {
        return Err(Failure::Wrong(format!("{} segments, not one", segments.len())));
    }
    let contents = Contents::read(&sink.directory(0), segment)?;
    let lookup = Lookup::run(&contents, first, wanted)?;
    lookup.record(recorder);
    recorder.figure("time_index_entries", u64_of(contents.times.len() / 12), unit::COUNT);
    recorder.figure("time_index_file_bytes", u64_of(contents.times.len()), unit::BYTES);
    recorder.figure("time_offset_index_bytes", u64_of(contents.index.len()), unit::BYTES);
    let found = sink.offset_for_timestamp(0, at(first, wanted)).await?;
    recorder.expect("time_found_offset", (found.unwrap_or(u64::MAX), wanted), RULE);
    recorder.figure("time_found_offset", found.unwrap_or(u64::MAX), unit::OFFSET);
    latencies(context, (sink, first), recorder).await
}

fn at(first: Timestamp, ms: u64) -> Timestamp {
    Timestamp(first.0 + i64::try_from(ms).expect("records of a run are few"))
}

async fn latencies(
    context: &Context,
    (sink, first): (&Sink, Timestamp),
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let (lookups, records) =
        (context.parameters.number("hot_lookups"), context.parameters.number("time_records"));
    let wanted = targets(lookups, 0..records, context.seed);
    let progress = context.progress(4 * lookups, "lookups");
    let (mut by_offset, mut by_time) = (Latency::new(), Latency::new());
    for is_timed in [false, true] {
        // Once without the clock: a Java server runs slowly at first.
        for target in &wanted {
            context.check()?;
            let started = Instant::now();
            let bytes = sink.read(0, *target, 1).await?;
            let took = started.elapsed();
            if bytes.is_empty() {
                return Err(Failure::Wrong(format!("nothing was read at offset {target}")));
            }
            let started = Instant::now();
            let found = sink.offset_for_timestamp(0, at(first, *target)).await?;
            if found != Some(*target) {
                return Err(Failure::Wrong(format!("{found:?} for the time of {target}")));
            }
            if is_timed {
                by_offset.record(took);
                by_time.record(started.elapsed());
            }
            progress.advance(2);
        }
    }
    recorder.latency("read_at_offset", &by_offset);
    recorder.latency("find_timestamp", &by_time);
    Ok(())
}

/// What a lookup by time goes through; times are milliseconds since the first record.
struct Lookup {
    wanted: u64,
    /// The last time entry at or below it: its time and offset.
    entry: Option<(u64, u64)>,
    /// The last offset entry at or below that one: where the walk begins.
    floor: (u64, u64),
    headers: u64,
    batch: index::Batch,
}

impl Lookup {
    fn run(contents: &Contents, first: Timestamp, wanted: u64) -> Result<Lookup, Failure> {
        let target = at(first, wanted);
        let entries = index::time_entries(&contents.times, contents.base);
        let above = entries.partition_point(|it| it.0 <= target.0);
        let entry = above.checked_sub(1).map(|it| entries[it]);
        let floor = contents.floor(entry.map_or(contents.base, |it| it.1), |_| {});
        let file = File::open(&contents.log).doing_to("open", &contents.log)?;
        let mut walk = Walk::new(&file, floor.1, contents.log_bytes);
        let batch = loop {
            match walk.next()? {
                Some(batch) if batch.max_timestamp < target.0 => {}
                Some(batch) => break batch,
                None => return Err(Failure::Wrong(format!("no batch at {wanted} ms or later"))),
            }
        };
        let since = |ms: i64| u64::try_from(ms - first.0).unwrap_or_default();
        let entry = entry.map(|(ms, offset)| (since(ms), offset));
        Ok(Lookup { wanted, entry, floor, headers: walk.headers, batch })
    }

    fn record(&self, recorder: &mut Recorder) {
        let Lookup { wanted, entry, floor, headers, batch } = self;
        let title = format!("Lookup of the record at {wanted} ms, step by step");
        let mut table = Table::new(&title, &["step", "what", "found"]);
        let mut row = |what: &str, found: String| {
            table.row(vec![(table.rows.len() + 1).to_string(), what.to_owned(), found]);
        };
        let named = entry.map_or("none".to_owned(), |it| format!("{} ms, offset {}", it.0, it.1));
        row("last entry of the time index up to that", named);
        let named = format!("offset {}, position {}", floor.0, floor.1);
        row("last entry of the offset index up to that offset", named);
        row("headers read from there", headers.to_string());
        let named = format!("offsets {} to {}, position {}", batch.base, batch.last, batch.at);
        row("first batch with that time or a later one", named);
        recorder.table(table);
        let (ms, offset) = entry.unwrap_or_default();
        recorder.figure("time_floor_ms", ms, MS);
        recorder.figure("time_floor_offset", offset, unit::OFFSET);
        recorder.figure("time_walk_from_position", floor.1, unit::POSITION);
        recorder.figure("time_walk_headers", *headers, unit::COUNT);
        recorder.figure("time_batch_offset", batch.base, unit::OFFSET);
        recorder.figure("time_batch_position", batch.at, unit::POSITION);
    }
}

/// A segment that takes all of it.
pub fn segment_bytes(context: &Context) -> u64 {
    let parameters = &context.parameters;
    let batches = parameters.number("time_records").div_ceil(BATCH_RECORDS);
    let batch = batches::length(BATCH_RECORDS, parameters.number("time_record_size")) + 64;
    (batches * batch).clamp(1 << 20, (1 << 31) - 1)
}

/// What the latencies look like.
pub fn pictures(recorder: &mut Recorder) {
    for (through, how) in [("library", "by the library"), ("wire", "through the wire")] {
        recorder.picture(
            Picture::new(
                &format!("lookups-{through}"),
                &format!("Read at an offset, find a timestamp, {how}"),
                "Finding a timestamp asks two indexes and reads the batch, so its line lies above \
                 that of a read, which asks one. Through the wire a request's own cost hides most \
                 of either.",
                Kind::Percentiles { latencies: names(&["read_at_offset", "find_timestamp"]) },
            )
            .only("through", through),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_has_its_own_millisecond() {
        let batch = batch((20, 10), 1000, &[1; 50]);
        let header = batch.header();
        assert_eq!(
            (header.base_timestamp, header.max_timestamp),
            (Timestamp(1020), Timestamp(1029))
        );
        assert_eq!(header.record_count, 10);
    }
}
