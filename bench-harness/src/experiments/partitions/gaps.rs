//! A log whose offsets don't count records: markers of transactions take offsets that no consumer
//! sees, and compaction leaves none at others.
//!
//! The log is made as a file, as a Kafka leaves it that has compacted it (uringlog neither writes
//! markers nor compacts yet), then opened, recovered and consumed by the engine.

use std::fs;

use uringlog::format::batch::{self, BatchHeader};
use uringlog::format::names::{FileKind, SegmentFile};
use uringlog::format::record;
use uringlog::units::{ByteCount, ProducerEpoch, ProducerId, Sequence};
use uringlog::{LeaderEpoch, NewRecord, Offset, Partition, RecordsIter, Timestamp, now};

use crate::engines::library;
use crate::experiments::measure::{f64_of, u64_of};
use crate::experiments::{DoingTo, Failure};
use crate::parameters::Parameters;
use crate::record::picture::names;
use crate::record::{Kind, Picture, Recorder, Table, unit};
use crate::run::Context;

const RULE: &str = "what the file was made from";
const TOPIC: &str = "gaps";
/// Attribute bits of a batch in a transaction, and of a batch of control records.
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
/// Key (version 0, commit) and value (version 0, coordinator epoch 0) of a transaction's end.
const COMMIT: (&[u8], &[u8]) = (&[0, 0, 0, 1], &[0, 0, 0, 0, 0, 0]);

/// What the file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Made {
    end: u64,
    records: u64,
    markers: u64,
}

/// Makes the file, and has the engine consume it.
///
/// # Errors
/// Whatever the engine refuses.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let mut options = library::options(context)?;
    options.directory = context.folder.join(TOPIC);
    let folder = options.directory.join(format!("{TOPIC}-0"));
    fs::create_dir_all(&folder).doing_to("make the folder", &folder)?;
    let path = folder.join(SegmentFile::new(Offset(0), FileKind::Log).to_string());
    let (bytes, made) = log(&context.parameters, now());
    fs::write(&path, bytes).doing_to("write", &path)?;
    let seen = library::with_engine(context, options, async |engine| {
        let spec = library::spec(context, (TOPIC, 0), |config| config.retention_ms = None);
        consume(context, &engine.open_or_create(spec).await?).await
    })?;
    record((made, seen), recorder);
    Ok(())
}

/// What a consumer found.
#[derive(Clone, Copy, Default)]
struct Seen {
    start: u64,
    end: u64,
    records: u64,
    control: u64,
}

async fn consume(context: &Context, partition: &Partition) -> Result<Seen, Failure> {
    let cursors = partition.cursors();
    let (start, end) = (cursors.log_start.0, cursors.log_end.0);
    let mut seen = Seen { start, end, ..Seen::default() };
    let mut follow = partition.follow(cursors.log_start);
    while follow.position().0 < end {
        context.check()?;
        let batch = follow.next().await?;
        let count = RecordsIter::new(batch.header(), batch.payload()).filter(Result::is_ok).count();
        let kind = if batch.header().is_control() { &mut seen.control } else { &mut seen.records };
        *kind += u64_of(count);
    }
    Ok(seen)
}

fn record((made, seen): (Made, Seen), recorder: &mut Recorder) {
    let difference = seen.end - seen.start;
    let compacted = difference - seen.records - seen.control;
    recorder.expect("log_end_offset", (seen.end, made.end), RULE);
    recorder.expect("readable_records", (seen.records, made.records), RULE);
    recorder.expect("control_records", (seen.control, made.markers), RULE);
    recorder.figure("offset_difference", difference, unit::COUNT);
    recorder.figure("readable_records", seen.records, unit::COUNT);
    recorder.figure("control_records", seen.control, unit::COUNT);
    recorder.figure("compacted_offsets", compacted, unit::COUNT);
    let over = f64_of(difference) / f64_of(seen.records.max(1));
    recorder.figure("overcount", over, unit::RATIO);
    let mut table = Table::new("Offsets are no count of records", &["what", "how many"]);
    for (what, count) in [
        ("log end minus log start", difference),
        ("records that a consumer gets", seen.records),
        ("control records", seen.control),
        ("offsets that compaction emptied", compacted),
    ] {
        table.row(vec![what.to_owned(), count.to_string()]);
    }
    recorder.table(table);
    recorder.picture(Picture::new(
        "offsets-and-records",
        "Offsets, records, control records, offsets without anything",
        "The first bar is what \"end minus start\" says, the second what there is to read; the \
         other two are the difference.",
        Kind::Bars {
            figures: names(&[
                "offset_difference",
                "readable_records",
                "control_records",
                "compacted_offsets",
            ]),
            by: None,
        },
    ));
    recorder.note(
        "The log with gaps is made as a file, batch by batch as a compacting Kafka leaves it, so \
         that it is known which offsets are gone whatever a cleaner would have got to; the engine \
         recovers and serves it. Kafka's column has no such part.",
    );
}

/// Records in transactions, each followed by its marker; of each key the newest record, if it is
/// compacted. Also what there is in it.
fn log(parameters: &Parameters, at: Timestamp) -> (Vec<u8>, Made) {
    let (records, keys) = (parameters.number("gap_records"), parameters.number("gap_keys"));
    let size = parameters.number("transaction_records");
    let is_compacted = parameters.flag("compacted");
    let is_kept = |record: u64| !is_compacted || records <= record + keys;
    let (mut bytes, mut made) = (Vec::new(), Made::default());
    for first in (0..records).step_by(usize::try_from(size).expect("at most 10,000")) {
        let numbers = first..(first + size).min(records);
        let span = numbers.end - numbers.start;
        let mut payload = Vec::new();
        let mut count = 0;
        for number in numbers.filter(|it| is_kept(*it)) {
            let key = format!("user-{}", number % keys);
            let delta = i32::try_from(number - first).expect("at most 10,000");
            let (key, value) = (Some(key.as_bytes()), Some(&b"value"[..]));
            let new = NewRecord { timestamp: at, key, value, headers: &[] };
            record::encode(&mut payload, delta, 0, &new);
            count += 1;
        }
        let sequence = i32::try_from(first).expect("at most 1,000,000");
        if 0 < count {
            let batch = Batch { base: made.end, span, count, sequence, flags: TRANSACTIONAL, at };
            bytes.extend_from_slice(&batch.encode(&payload));
        }
        let mut marker = Vec::new();
        let (key, value) = (Some(COMMIT.0), Some(COMMIT.1));
        record::encode(&mut marker, 0, 0, &NewRecord { timestamp: at, key, value, headers: &[] });
        let flags = TRANSACTIONAL | CONTROL;
        let end = Batch { base: made.end + span, span: 1, count: 1, sequence: -1, flags, at };
        bytes.extend_from_slice(&end.encode(&marker));
        made.records += u64::from(count.unsigned_abs());
        made.markers += 1;
        made.end += span + 1;
    }
    (bytes, made)
}

struct Batch {
    base: u64,
    /// Offsets that it takes.
    span: u64,
    /// Records that it still has.
    count: i32,
    sequence: i32,
    flags: i16,
    at: Timestamp,
}

impl Batch {
    fn encode(&self, payload: &[u8]) -> Vec<u8> {
        let header = BatchHeader {
            base_offset: Offset(self.base).to_wire(),
            // Length and checksum are those of the bytes.
            size: ByteCount(0),
            crc: 0,
            leader_epoch: LeaderEpoch(0),
            attributes: self.flags,
            last_offset_delta: i32::try_from(self.span - 1).expect("at most 10,000"),
            base_timestamp: self.at,
            max_timestamp: self.at,
            producer_id: ProducerId(1),
            producer_epoch: ProducerEpoch(0),
            base_sequence: Sequence(self.sequence),
            record_count: self.count,
        };
        batch::encode(&header, payload).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::Scale;

    fn made(settings: &[&str]) -> (usize, Made) {
        let settings: Vec<_> = settings.iter().map(|it| it.parse().expect("a setting")).collect();
        let parameters = Parameters::new(&super::super::EXPERIMENT, Scale::Quick, &settings);
        let (bytes, made) = log(&parameters.expect("in bounds"), Timestamp(1));
        (bytes.len(), made)
    }

    #[test]
    fn the_newest_of_each_key_and_every_marker_stay() {
        let (_, default) = made(&[]);
        assert_eq!(default, Made { end: 1100, records: 100, markers: 100 });
        let (_, whole) = made(&["compacted=false"]);
        assert_eq!(whole, Made { end: 1100, records: 1000, markers: 100 });
        let (bytes, one) = made(&["gap_records=1", "transaction_records=1"]);
        assert_eq!(one, Made { end: 2, records: 1, markers: 1 });
        // A record with a key of six bytes and a value of five, and a marker of 78.
        assert_eq!(bytes, 61 + 7 + 6 + 5 + 78);
    }
}
