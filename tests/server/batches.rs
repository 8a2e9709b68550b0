//! Batches that are not what a producer may send: refused with Kafka's code, nothing is stored.

use uringlog::format::batch::Codec;

use crate::support::batch::{
    ATTRIBUTES_AT, CRC_AT, LAST_OFFSET_DELTA_AT, LENGTH_AT, MAGIC_AT, RECORD_COUNT_AT, RECORDS_AT,
    of, packed, patched, records, sealed,
};
use crate::support::process::Launch;
use crate::support::{ENGINES, batch};

const CORRUPT_MESSAGE: i16 = 2;
const MESSAGE_TOO_LARGE: i16 = 10;
const UNSUPPORTED_COMPRESSION: i16 = 76;
const INVALID_RECORD: i16 = 87;
/// What Kafka's 32-bit limit of a batch is made of: `message.max.bytes`.
const BATCH_BYTES_MAX: usize = 1_048_588;

type Case = (&'static str, Vec<u8>, i16);

/// The header's fields against what is there.
fn wrong_headers() -> Vec<Case> {
    let good = of(&["one", "two", "three"]);
    let end = good.len();
    let with = |at: usize, bytes: &[u8]| sealed(patched(&good, at, bytes));
    let length = |length: i32| patched(&good, LENGTH_AT, &length.to_be_bytes());
    let codec = |bits: u8| with(ATTRIBUTES_AT + 1, &[bits]);
    let right = i32::try_from(end - 12).expect("small");
    vec![
        ("a wrong CRC", patched(&good, CRC_AT, &[1, 2, 3, 4]), CORRUPT_MESSAGE),
        ("a flipped bit", patched(&good, end - 1, &[good[end - 1] ^ 1]), CORRUPT_MESSAGE),
        ("magic 0", patched(&good, MAGIC_AT, &[0]), INVALID_RECORD),
        ("magic 1", patched(&good, MAGIC_AT, &[1]), INVALID_RECORD),
        ("magic 3", patched(&good, MAGIC_AT, &[3]), INVALID_RECORD),
        ("length 0", length(0), CORRUPT_MESSAGE),
        ("a negative length", length(-1), CORRUPT_MESSAGE),
        ("a length below a header's", length(48), CORRUPT_MESSAGE),
        ("a length one short", length(right - 1), CORRUPT_MESSAGE),
        ("a length one over", length(right + 1), CORRUPT_MESSAGE),
        ("a length of two billion", length(i32::MAX), CORRUPT_MESSAGE),
        ("more records than there are", with(RECORD_COUNT_AT, &[0, 0, 0, 4]), INVALID_RECORD),
        ("fewer records than there are", with(RECORD_COUNT_AT, &[0, 0, 0, 2]), INVALID_RECORD),
        ("no records", with(RECORD_COUNT_AT, &[0, 0, 0, 0]), INVALID_RECORD),
        ("minus one records", with(RECORD_COUNT_AT, &[0xff; 4]), INVALID_RECORD),
        ("two billion records", with(RECORD_COUNT_AT, &[0x7f, 0xff, 0xff, 0xff]), INVALID_RECORD),
        ("a last offset too far", with(LAST_OFFSET_DELTA_AT, &[0, 0, 0, 9]), INVALID_RECORD),
        ("a negative last offset", with(LAST_OFFSET_DELTA_AT, &[0xff; 4]), INVALID_RECORD),
        ("a base offset", patched(&good, 7, &[5]), INVALID_RECORD),
        ("codec 5", codec(5), UNSUPPORTED_COMPRESSION),
        ("codec 6", codec(6), UNSUPPORTED_COMPRESSION),
        ("codec 7", codec(7), UNSUPPORTED_COMPRESSION),
        ("a control batch", codec(0x20), INVALID_RECORD),
    ]
}

/// Records that aren't any, behind a header that is right.
fn wrong_records() -> Vec<Case> {
    let good = of(&["one", "two", "three"]);
    let with = |at: usize, bytes: &[u8]| sealed(patched(&good, at, bytes));
    let claims = |bits: u8| with(ATTRIBUTES_AT + 1, &[bits]);
    let two = [of(&["one"]), of(&["two"])].concat();
    vec![
        ("a record of negative length", with(RECORDS_AT, &[1]), INVALID_RECORD),
        ("a record longer than the batch", with(RECORDS_AT, &[0xfe, 0x7f]), INVALID_RECORD),
        ("noise for records", with(RECORDS_AT, &[0xff; 12]), INVALID_RECORD),
        ("no gzip stream", claims(1), INVALID_RECORD),
        ("no snappy stream", claims(2), INVALID_RECORD),
        ("no lz4 stream", claims(3), INVALID_RECORD),
        ("no zstd stream", claims(4), INVALID_RECORD),
        ("two batches in one", two, CORRUPT_MESSAGE),
        ("a header alone", of(&["one"])[..RECORDS_AT].to_vec(), CORRUPT_MESSAGE),
        ("half a header", of(&["one"])[..30].to_vec(), CORRUPT_MESSAGE),
        ("nothing", Vec::new(), CORRUPT_MESSAGE),
    ]
}

/// Batches that are well made and too large, before or after decompression.
fn too_large() -> Vec<Case> {
    // 192 MB of zeros: less than 1 MB when packed.
    let zeros = vec![vec![0_u8; 16 << 20]; 12];
    let bomb = |codec| {
        let bomb = packed(codec, &zeros);
        assert!(bomb.len() < BATCH_BYTES_MAX, "{codec:?}: it passes the first limit");
        bomb
    };
    vec![
        ("one byte over message.max.bytes", batch::large(1, BATCH_BYTES_MAX), MESSAGE_TOO_LARGE),
        ("far over message.max.bytes", batch::large(1, 8 << 20), MESSAGE_TOO_LARGE),
        ("a gzip bomb", bomb(Codec::Gzip), MESSAGE_TOO_LARGE),
        ("an lz4 bomb", bomb(Codec::Lz4), MESSAGE_TOO_LARGE),
        ("a zstd bomb", bomb(Codec::Zstd), MESSAGE_TOO_LARGE),
    ]
}

/// Each batch is refused with its code and the log stays as it was, for both engines.
fn assert_refused(cases: &[Case]) {
    for engine in ENGINES {
        let broker = Launch::new(engine).start();
        let mut client = broker.connect();
        client.create("topic", 1, &[]);
        client.accepted("topic", 0, of(&["before"]));
        for (what, bytes, code) in cases {
            let answer = client.produce("topic", 0, bytes.clone());
            assert_eq!(answer.error_code, *code, "{engine}: {what}: {answer:?}");
            assert_eq!(answer.base_offset, -1, "{engine}: {what}");
            assert_eq!(client.end("topic", 0), 1, "{engine}: {what}");
        }
        assert_eq!(client.accepted("topic", 0, of(&["after"])), 1);
        let stored = batch::consume(&mut client, "topic", 0, 0);
        assert_eq!(stored, [(0, b"before".to_vec()), (1, b"after".to_vec())]);
        let peak = broker.memory_kib("VmHWM");
        assert!(peak < 200 << 10, "{engine}: {peak} KiB at the peak");
    }
}

#[test]
fn a_batch_whose_header_lies_is_refused_and_nothing_is_stored() {
    assert_refused(&wrong_headers());
}

#[test]
fn a_batch_whose_records_are_none_is_refused_and_nothing_is_stored() {
    assert_refused(&wrong_records());
}

#[test]
fn oversize_batches_and_bombs_are_refused_and_cost_no_memory() {
    assert_refused(&too_large());
}

#[test]
fn a_batch_of_just_message_max_bytes_is_taken() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    client.create("topic", 1, &[]);
    let overhead = batch::large(1, 1_000_000).len() - 1_000_000;
    let largest = batch::large(1, BATCH_BYTES_MAX - overhead);
    assert_eq!(largest.len(), BATCH_BYTES_MAX);
    client.accepted("topic", 0, largest.clone());
    let answer = client.fetch("topic", 0, 0, 1);
    let stored = answer.records.expect("at least one whole batch");
    assert_eq!(records(&stored), [(0, records(&largest).remove(0).1)]);
}

#[test]
fn a_refused_batch_beside_a_good_one_is_refused_alone() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    client.create("good", 1, &[]);
    client.create("bad", 1, &[]);
    for version in 3..=crate::support::client::PRODUCE {
        let good = crate::support::client::produce_request("good", 0, of(&["x"]).into(), -1);
        let wrong = patched(&of(&["x"]), CRC_AT, &[0; 4]).into();
        let bad = crate::support::client::produce_request("bad", 0, wrong, -1);
        let mut both = good;
        both.topic_data.extend(bad.topic_data);
        let answer = client.call(&both, version);
        let codes: Vec<_> = answer
            .responses
            .iter()
            .map(|topic| (topic.name.as_str(), topic.partition_responses[0].error_code))
            .collect();
        assert_eq!(codes, [("good", 0), ("bad", CORRUPT_MESSAGE)], "version {version}");
    }
    assert_eq!((client.end("good", 0), client.end("bad", 0)), (10, 0));
}
