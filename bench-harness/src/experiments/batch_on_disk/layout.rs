//! Batches of one record, read back: where they begin, how long they are, what their headers hold.

use std::fmt::Display;

use uringlog::{BatchBuilder, Codec, NewRecord, Timestamp};

use super::SETTINGS;
use crate::engines::reach::Reach;
use crate::engines::stored::{self, StoredBatch};
use crate::engines::{batches, files};
use crate::experiments::Failure;
use crate::experiments::measure::{u64_of, usize_of};
use crate::record::{Better, Recorder, Table, Unit, unit};
use crate::run::Context;

const DOCUMENT: &str = "the document on batches in a segment (Kafka 2.2)";
const CRC: Unit = Unit { name: "CRC-32C", better: Better::Exact };
/// Setting one of these asks for other records than the document's.
const OF_THE_LAYOUT: &[&str] = &["value_sizes", "key_size", "headers", "header_size"];
/// The document gives times, sizes and checksums; of all short words these have the checksums.
const VALUES: [(&[u8], i64); 4] = [
    (b"hello1", 1_573_196_383_092),
    (b"hello5", 1_573_197_544_156),
    (b"a", 1_573_197_561_451),
    (b"d", 1_573_197_562_538),
];
const CRCS: [u64; 4] = [1_103_641_000, 4_128_348_420, 978_536_071, 4_154_198_374];

/// Fields of a header that `kafka-dump-log` has no column for: byte and length.
const FIELDS: [(&str, usize, usize); 13] = [
    ("base offset", 0, 8),
    ("length of what follows", 8, 4),
    ("leader epoch", 12, 4),
    ("magic", 16, 1),
    ("CRC-32C of what follows", 17, 4),
    ("attributes", 21, 2),
    ("last offset delta", 23, 4),
    ("base timestamp", 27, 8),
    ("max timestamp", 35, 8),
    ("producer id", 43, 8),
    ("producer epoch", 51, 2),
    ("base sequence", 53, 4),
    ("record count", 57, 4),
];
const HEADER_BYTES: usize = 61;

/// Appends them, reads them back, shows them as Kafka's tool does.
///
/// # Errors
/// Whatever is refused, and bytes that are no batch.
pub async fn run(
    context: &Context,
    reach: &Reach<'_>,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let is_document = !context.parameters.is_any_set(OF_THE_LAYOUT);
    let sink = reach.topic(("layout", 1), SETTINGS).await?;
    let records = if is_document { of_the_document() } else { as_set(context) };
    for record in &records {
        sink.append(0, record.batch()).await?;
    }
    let stored = stored::batches(&sink.directory(0))?;
    let list = |of: &dyn Fn(&StoredBatch) -> u64| stored.iter().map(of).collect::<Vec<u64>>();
    let (positions, lengths) = (list(&|it| it.position), list(&StoredBatch::bytes));
    let crcs = list(&|it| u64::from(it.header.crc));
    let overhead = overhead(&stored)?;
    if is_document {
        recorder.expect("positions", (positions.clone(), vec![0, 74, 148, 217]), DOCUMENT);
        recorder.expect("batch_bytes", (lengths.clone(), vec![74, 74, 69, 69]), DOCUMENT);
        recorder.expect("overhead_bytes", (overhead.clone(), vec![68; 4]), DOCUMENT);
        recorder.expect("crcs", (crcs.clone(), CRCS.to_vec()), DOCUMENT);
    }
    let segments = files::segments(&sink.directory(0))?;
    let log = segments.iter().filter_map(|it| it.log).map(|it| it.bytes).sum::<u64>();
    recorder.figure("positions", positions, unit::POSITION);
    recorder.figure("batch_bytes", lengths, unit::BYTES);
    recorder.figure("base_offsets", list(&StoredBatch::base_offset), unit::OFFSET);
    recorder.figure("overhead_bytes", overhead, unit::BYTES);
    recorder.figure("crcs", crcs, CRC);
    recorder.figure("log_bytes", log, unit::BYTES);
    tables(&stored, recorder)?;
    notes(recorder);
    Ok(())
}

/// A record that stands alone in its batch.
struct Lone {
    value: Vec<u8>,
    key: Option<Vec<u8>>,
    headers: Vec<Vec<u8>>,
    timestamp: Timestamp,
}

impl Lone {
    fn batch(&self) -> uringlog::RecordBatch {
        let headers: Vec<(&[u8], Option<&[u8]>)> =
            self.headers.iter().map(|it| (&b"h"[..], Some(it.as_slice()))).collect();
        let mut batch = BatchBuilder::new(Codec::None);
        batch.push(&NewRecord {
            timestamp: self.timestamp,
            key: self.key.as_deref(),
            value: Some(&self.value),
            headers: &headers,
        });
        batch.build()
    }
}

fn of_the_document() -> Vec<Lone> {
    let lone = |(value, at): (&[u8], i64)| Lone {
        value: value.to_vec(),
        key: None,
        headers: Vec::new(),
        timestamp: Timestamp(at),
    };
    VALUES.map(lone).into()
}

fn as_set(context: &Context) -> Vec<Lone> {
    let parameters = &context.parameters;
    let bytes = |length: usize| batches::bytes(length, context.seed);
    let (key, header) = (parameters.length("key_size"), parameters.length("header_size"));
    let lone = |size: u64| Lone {
        value: bytes(usize_of(size)),
        key: (0 < key).then(|| bytes(key)),
        headers: vec![bytes(header); parameters.length("headers")],
        // The same in every run, and so are the checksums.
        timestamp: Timestamp(VALUES[0].1),
    };
    parameters.numbers("value_sizes").into_iter().map(lone).collect()
}

/// Of each batch, its bytes that are not of keys, values and headers.
fn overhead(stored: &[StoredBatch]) -> Result<Vec<u64>, Failure> {
    let length = |bytes: Option<&[u8]>| u64_of(bytes.map_or(0, <[u8]>::len));
    let mut overhead = Vec::new();
    for batch in stored {
        let mut held = 0;
        batch.each_record(|record| {
            let headers = record.headers.map(|(key, value)| u64_of(key.len()) + length(value));
            held += length(record.key) + length(record.value) + headers.sum::<u64>();
        })?;
        overhead.push(batch.bytes() - held);
    }
    Ok(overhead)
}

fn tables(stored: &[StoredBatch], recorder: &mut Recorder) -> Result<(), Failure> {
    let columns = [
        "baseOffset",
        "lastOffset",
        "count",
        "baseSequence",
        "producerId",
        "partitionLeaderEpoch",
        "isTransactional",
        "isControl",
        "position",
        "CreateTime",
        "size",
        "magic",
        "compresscodec",
        "crc",
        "isvalid",
    ];
    let mut table = Table::new("The batches, as Kafka's tool shows them", &columns);
    for it in stored {
        let header = &it.header;
        let last = header.base_offset + i64::from(header.last_offset_delta);
        let (transactional, control) = (header.is_transactional(), header.is_control());
        let magic = it.as_bytes()[16];
        let codec = it.codec()?;
        let cells: [&dyn Display; 15] = [
            &header.base_offset,
            &last,
            &header.record_count,
            &header.base_sequence,
            &header.producer_id,
            &header.leader_epoch,
            &transactional,
            &control,
            &it.position,
            &header.max_timestamp.0,
            &header.size.0,
            &magic,
            &codec,
            &header.crc,
            // It would not have been read back otherwise.
            &true,
        ];
        table.row(cells.iter().map(ToString::to_string).collect());
    }
    recorder.table(table);
    let Some(first) = stored.first() else { return Ok(()) };
    let title = "Where the bytes of the first batch are";
    let mut table = Table::new(title, &["byte", "bytes", "field", "value"]);
    for (name, at, length) in FIELDS {
        let bytes = &first.as_bytes()[at..at + length];
        let value = if name.starts_with("CRC") { unsigned(bytes) } else { signed(bytes) };
        table.row(vec![at.to_string(), length.to_string(), name.to_owned(), value]);
    }
    let records = first.as_bytes().len() - HEADER_BYTES;
    let cells = [HEADER_BYTES.to_string(), records.to_string(), "records".to_owned()];
    table.row(cells.into_iter().chain([String::new()]).collect());
    recorder.table(table);
    Ok(())
}

fn signed(bytes: &[u8]) -> String {
    let negative = bytes.first().is_some_and(|it| 128 <= *it);
    let fill = if negative { 0xff } else { 0 };
    let mut whole = [fill; 8];
    whole[8 - bytes.len()..].copy_from_slice(bytes);
    i64::from_be_bytes(whole).to_string()
}

fn unsigned(bytes: &[u8]) -> String {
    let mut whole = [0; 8];
    whole[8 - bytes.len()..].copy_from_slice(bytes);
    u64::from_be_bytes(whole).to_string()
}

fn notes(recorder: &mut Recorder) {
    recorder.note(
        "The document shows times, sizes and checksums of four batches, not their values. The \
         values hello1, hello5, a and d give all four checksums at these times, so the batches \
         here are the document's, byte for byte; only its tool is older and prints less.",
    );
    recorder.note(
        "A batch of one record without key and headers takes 68 bytes beside a short value: 61 of \
         the header and 7 of the record. Values of more than 57 bytes need longer lengths.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_batches_have_its_checksums() {
        let crcs: Vec<u64> =
            of_the_document().iter().map(|it| u64::from(it.batch().header().crc)).collect();
        assert_eq!(crcs, CRCS);
    }

    #[test]
    fn fields_are_read_as_numbers_and_fill_the_header() {
        assert_eq!((signed(&[255, 254]), signed(&[1, 0])), ("-2".to_owned(), "256".to_owned()));
        assert_eq!(unsigned(&[255, 254]), "65534");
        let ends = FIELDS.iter().map(|(_, at, length)| at + length);
        let starts = FIELDS.iter().map(|(_, at, _)| *at).skip(1).chain([HEADER_BYTES]);
        assert!(ends.eq(starts));
    }
}
