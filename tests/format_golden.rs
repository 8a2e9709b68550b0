//! The format layer against bytes that Apache Kafka 4.3.1 wrote: `golden/format`.
//!
//! `*.batch` hold the same 40 records, packed by the broker with each codec;
//! `cluster-metadata.log` is a metadata snapshot; the other files have Kafka's names.

use std::fs;
use std::path::Path;

use uringlog::format::batch::{BatchHeader, Codec};
use uringlog::format::codec::decompress;
use uringlog::format::kraft::MetadataRecord;
use uringlog::format::record::{self, NewRecord, RecordView, RecordsIter};
use uringlog::format::scan::{Scan, Window, batch_at, bytes_of};
use uringlog::format::{batch, checkpoint, partition_metadata, properties};
use uringlog::units::{BrokerId, ByteCount, Position, Timestamp, byte_count};

const UNPACKED_BYTES_MAX: ByteCount = ByteCount(16 << 20);

fn golden(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/format").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every batch of a log: header and payload.
fn batches(log: &[u8]) -> Vec<(BatchHeader, Vec<u8>)> {
    let window = Window { bytes: log, at: Position(0) };
    let end = Position(0) + byte_count(log.len());
    let (mut batches, mut position) = (Vec::new(), Position(0));
    loop {
        match batch_at(window, position, end) {
            Scan::Batch { header, at, next } => {
                let payload = bytes_of(window, at, &header)[batch::HEADER_BYTES..].to_vec();
                batches.push((header, payload));
                position = next;
            }
            Scan::End => return batches,
            other => panic!("at {position}: {other:?}"),
        }
    }
}

fn unpacked(header: &BatchHeader, payload: &[u8]) -> Vec<u8> {
    let codec = header.codec().expect("a known codec");
    decompress(codec, payload, UNPACKED_BYTES_MAX).expect("Kafka packed it").into_owned()
}

/// The records written again, field by field.
fn encoded_again(header: &BatchHeader, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for item in RecordsIter::new(header, payload) {
        let RecordView { timestamp_delta, offset_delta, key, value, headers, .. } =
            item.expect("Kafka wrote it");
        let headers: Vec<_> = headers.collect();
        let record = NewRecord { timestamp: Timestamp(0), key, value, headers: &headers };
        record::encode(&mut out, offset_delta, timestamp_delta, &record);
    }
    out
}

#[test]
fn every_codec_holds_the_same_records() {
    let mut plain = Vec::new();
    for (codec, name) in [
        (Codec::None, "uncompressed.batch"),
        (Codec::Gzip, "gzip.batch"),
        (Codec::Snappy, "snappy.batch"),
        (Codec::Lz4, "lz4.batch"),
        (Codec::Zstd, "zstd.batch"),
    ] {
        let (header, payload) = batches(&golden(name)).pop().expect("one batch");
        assert_eq!(header.codec(), Ok(codec));
        assert_eq!(header.record_count, 40);
        let records = unpacked(&header, &payload);
        assert_eq!(encoded_again(&header, &records), records, "{name}");
        if codec == Codec::None {
            plain = records;
        } else {
            assert_eq!(records, plain, "{name}");
        }
    }
}

#[test]
fn metadata_records_are_read_and_written_alike() {
    let (mut known, mut unknown) = (0, 0);
    for (header, payload) in batches(&golden("cluster-metadata.log")) {
        if header.is_control() {
            continue;
        }
        let records = unpacked(&header, &payload);
        for item in RecordsIter::new(&header, &records) {
            let value = item.expect("Kafka wrote it").value.expect("a metadata record");
            match MetadataRecord::decode(value) {
                // Kafka's brokers and controllers register; ours doesn't.
                Ok(MetadataRecord::OfBrokers { kind: 0 | 27 }) => unknown += 1,
                Ok(record) => {
                    assert_eq!(record.encode(), value, "{record:?}");
                    known += 1;
                }
                Err(other) => panic!("{other}: {value:02x?}"),
            }
        }
    }
    assert_eq!((known, unknown), (48, 2));
}

#[test]
fn small_files_are_read_and_written_alike() {
    let text = String::from_utf8(golden("meta.properties")).expect("text");
    let meta = properties::parse(text.as_bytes()).expect("valid");
    assert_eq!(meta.node_id, BrokerId(1));
    assert_eq!(meta.cluster_id, "uringlog-golden-000001");
    // 22:20:58 on 2026-11-29, as the file says.
    assert_eq!(properties::print(&meta, Timestamp(1_795_990_858_000)), text);

    let text = golden("recovery-point-offset-checkpoint");
    let offsets = checkpoint::parse_offsets(&text).expect("valid");
    assert_eq!(checkpoint::print_offsets(&offsets).as_bytes(), text);

    let text = golden("leader-epoch-checkpoint");
    let epochs = checkpoint::parse_epochs(&text).expect("valid");
    assert_eq!(checkpoint::print_epochs(&epochs).as_bytes(), text);

    let text = golden("partition.metadata");
    let topic_id = partition_metadata::parse(&text).expect("valid");
    assert_eq!(partition_metadata::print(topic_id).as_bytes(), text);
}
