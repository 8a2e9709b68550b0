//! What Apache Kafka 4.3.1 stored and answered, replayed.
//!
//! `tests/golden/codecs` and `timestamps-shared` hold `.log` files that it wrote: `codec-X` as a
//! producer with codec X sent them, `to-X` made anew by `compression.type=X` from batches of every
//! codec. `tests/golden/idempotent/history.txt` is one partition's history of idempotent producers,
//! one line each:
//!
//! ```text
//! append|duplicate ID EPOCH SEQUENCE RECORDS MAX_TIMESTAMP BASE_OFFSET
//! refused ID EPOCH SEQUENCE RECORDS TIMESTAMP ERROR_CODE
//! known ID EPOCH LAST_SEQUENCE     from the producer snapshot taken here
//! known-count PRODUCERS            so many are in it
//! restart NOW                      expired producers are forgotten then
//! ```

use std::path::{Path, PathBuf};

use bytes::BytesMut;
use uringlog::format::batch::{BatchHeader, Codec, RecordBatch};
use uringlog::log::config::LogConfig;
use uringlog::log::error::AppendError;
use uringlog::log::producers::{Guard, Producers, Verdict};
use uringlog::log::validate::validate;
use uringlog::units::{
    LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, usize_of,
};

use crate::make::{CODECS, batch, config, timestamps, unpacked};

const DAY_MS: u64 = 86_400_000;

fn golden(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(case)
}

/// The batches of a `.log`, as stored.
fn stored(file: &Path) -> Vec<RecordBatch> {
    let mut rest = BytesMut::from(&*std::fs::read(file).expect("readable"));
    let mut batches = Vec::new();
    while !rest.is_empty() {
        let size = BatchHeader::decode(&rest).expect("a header").size;
        let batch = rest.split_to(usize_of(size.0));
        batches.push(RecordBatch::decode(batch).expect("a valid batch"));
    }
    assert!(!batches.is_empty(), "{}", file.display());
    batches
}

/// A stored batch as its producer sent it.
fn sent(stored: &RecordBatch) -> RecordBatch {
    let mut sent = RecordBatch::decode(BytesMut::from(stored.as_bytes())).expect("valid");
    sent.assign(Offset(0), LeaderEpoch::NONE);
    sent
}

fn validated(sent: RecordBatch, config: &LogConfig) -> RecordBatch {
    let now = sent.header().max_timestamp;
    validate(sent, config, now).expect("Kafka took it").batch
}

fn logs(case: &str, prefix: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(golden(case)).expect("the golden files are there");
    let files = files.map(|file| file.expect("readable").path());
    let is_wanted = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|it| it.starts_with(prefix))
    };
    let files: Vec<_> = files.filter(is_wanted).collect();
    assert!(!files.is_empty(), "{case}/{prefix}");
    files
}

#[test]
fn what_the_producer_compressed_is_stored_as_it_came() {
    let files = [logs("codecs", "codec-"), logs("timestamps-shared", "share-")].concat();
    for file in files {
        for stored in stored(&file) {
            let header = *stored.header();
            let mut found = validated(sent(&stored), &config());
            found.assign(header.base().expect("stored"), header.leader_epoch);
            assert_eq!(found.as_bytes(), stored.as_bytes(), "{}", file.display());
        }
    }
}

#[test]
fn compression_type_makes_what_kafka_made() {
    for (name, target) in [
        ("to-uncompressed", Codec::None),
        ("to-gzip", Codec::Gzip),
        ("to-snappy", Codec::Snappy),
        ("to-lz4", Codec::Lz4),
        ("to-zstd", Codec::Zstd),
    ] {
        for stored in stored(&golden("codecs").join(format!("{name}.log"))) {
            assert_eq!(stored.header().codec(), Ok(target), "{name}");
            for source in CODECS {
                let into = |codec| LogConfig { compression: Some(codec), ..config() };
                let sent = validated(sent(&stored), &into(source));
                let found = validated(sent, &into(target));
                assert_eq!(found.header().codec(), Ok(target));
                // The bytes depend on the compressor, but for plain ones.
                assert_eq!(unpacked(&found), unpacked(&stored), "{name} from {source:?}");
                assert_eq!(timestamps(&found), timestamps(&stored), "{name} from {source:?}");
                let same = BatchHeader {
                    base_offset: 0,
                    leader_epoch: LeaderEpoch::NONE,
                    size: found.header().size,
                    crc: found.header().crc,
                    ..*stored.header()
                };
                assert_eq!(*found.header(), same, "{name} from {source:?}");
            }
        }
    }
}

#[test]
fn idempotent_producers_get_kafkas_answers() {
    let history = golden("idempotent").join("history.txt");
    let history = std::fs::read_to_string(history).expect("the golden file is there");
    let mut producers = Producers::default();
    let mut appended = Vec::new();
    for line in history.lines() {
        let (what, numbers) = line.split_once(' ').expect("a word and numbers");
        let numbers: Vec<i64> =
            numbers.split(' ').map(|number| number.parse().expect("a number")).collect();
        match (what, numbers.as_slice()) {
            ("restart", [now]) => {
                producers = Producers::default();
                appended.iter().for_each(|header| update(&mut producers, header));
                producers.expire(Timestamp(*now), DAY_MS);
            }
            ("known", [id, epoch, sequence]) => {
                let found = producers.last_sequence(ProducerId(*id));
                assert_eq!(found, Some((epoch_of(*epoch), sequence_of(*sequence))), "{line}");
            }
            ("known-count", [count]) => assert_eq!(i64::try_from(producers.len()), Ok(*count)),
            ("append", [batch @ .., base]) => {
                let header = header(batch);
                assert_eq!(producers.check(&header, Guard::Unverified), Ok(Verdict::New), "{line}");
                let header = BatchHeader { base_offset: *base, ..header };
                update(&mut producers, &header);
                appended.push(header);
            }
            ("duplicate", [batch @ .., base]) => {
                let header = header(batch);
                let stored = BatchHeader { base_offset: *base, ..header };
                let duplicate = Verdict::Duplicate {
                    base_offset: stored.base().expect("positive"),
                    last_offset: stored.last_offset().expect("positive"),
                    timestamp: header.max_timestamp,
                };
                assert_eq!(producers.check(&header, Guard::Unverified), Ok(duplicate), "{line}");
            }
            ("refused", [batch @ .., code]) => {
                let error = producers.check(&header(batch), Guard::Unverified).expect_err(line);
                assert_eq!(code_of(&error), *code, "{line}");
            }
            _ => panic!("unknown line: {line}"),
        }
    }
    assert!(appended.len() > 200, "{}", appended.len());
}

/// Kafka counts the expiry from the record's time, we count from the append: here both are one.
fn update(producers: &mut Producers, header: &BatchHeader) {
    producers.update(header, header.max_timestamp);
}

fn code_of(error: &AppendError) -> i64 {
    match error {
        AppendError::OutOfOrderSequence { .. } => 45,
        AppendError::InvalidProducerEpoch { .. } => 47,
        other => panic!("{other}"),
    }
}

fn header(numbers: &[i64]) -> BatchHeader {
    let [id, epoch, sequence, records, timestamp] = numbers else { panic!("{numbers:?}") };
    let records = i32::try_from(*records).expect("a count");
    BatchHeader {
        producer_id: ProducerId(*id),
        producer_epoch: epoch_of(*epoch),
        base_sequence: sequence_of(*sequence),
        record_count: records,
        last_offset_delta: records - 1,
        max_timestamp: Timestamp(*timestamp),
        ..*batch(Codec::None, &[*timestamp]).header()
    }
}

fn epoch_of(epoch: i64) -> ProducerEpoch {
    ProducerEpoch(i16::try_from(epoch).expect("an epoch"))
}

fn sequence_of(sequence: i64) -> Sequence {
    Sequence(i32::try_from(sequence).expect("a sequence"))
}
