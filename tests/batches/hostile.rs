//! Whatever bytes a client sends, decoding and validating them neither panics nor takes more memory
//! than the limits say, and what is taken is a batch that every reader can read.

use bytes::BytesMut;
use proptest::prelude::*;
use uringlog::format::batch::{self, BatchHeader, Codec, HEADER_BYTES, RecordBatch};
use uringlog::format::codec::{self, Levels};
use uringlog::format::record::RecordsIter;
use uringlog::log::config::LogConfig;
use uringlog::log::error::{AppendError, RECORD_ERRORS_MAX};
use uringlog::log::validate::validate;
use uringlog::units::{
    ByteCount, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, u64_of,
};

use crate::make::{CODECS, NOW, append_time, batch, compacted, config, decode};

/// Small enough that some of the generated batches are bombs.
const LIMIT: ByteCount = ByteCount(10_000);

fn configs() -> Vec<LogConfig> {
    let mut configs = vec![config(), append_time(), compacted()];
    configs.extend(CODECS.map(|codec| LogConfig { compression: Some(codec), ..config() }));
    configs.iter_mut().for_each(|config| config.decompressed_bytes_max = LIMIT);
    configs
}

/// Offers the bytes to every kind of topic.
fn offer(bytes: &[u8]) -> Result<(), TestCaseError> {
    for config in configs() {
        let Ok(batch) = RecordBatch::decode(BytesMut::from(bytes)) else { return Ok(()) };
        let is_flagged = batch.header().is_log_append_time();
        match validate(batch, &config, NOW) {
            Ok(validated) => check_stored(validated.batch, &config, is_flagged)?,
            Err(error) => {
                prop_assert!(error.record_errors().len() <= RECORD_ERRORS_MAX);
                prop_assert!(error.to_string().len() < 1_000);
            }
        }
    }
    Ok(())
}

/// What was taken can be read, and validating it again changes nothing; but for a batch that came
/// with the flag of LogAppendTime, which Kafka stores with a max timestamp that no record has.
fn check_stored(
    batch: RecordBatch,
    config: &LogConfig,
    was_flagged: bool,
) -> Result<(), TestCaseError> {
    let stored = decode(BytesMut::from(batch.as_bytes()));
    let header = *stored.header();
    prop_assert_eq!(&header, batch.header());
    prop_assert!(stored.size() <= config.batch_bytes_max);
    let codec = header.codec().expect("known");
    let records = codec::decompress(codec, stored.payload(), LIMIT).expect("within the limit");
    let count = RecordsIter::new(&header, &records).filter(Result::is_ok).count();
    prop_assert_eq!(u64_of(count), stored.offsets());
    if !was_flagged && !header.is_log_append_time() {
        let again = validate(batch, config, NOW).expect("it was taken once").batch;
        prop_assert_eq!(again.as_bytes(), stored.as_bytes());
    }
    Ok(())
}

fn header() -> impl Strategy<Value = BatchHeader> {
    let number = || prop_oneof![4 => -2..5_i32, 1 => any::<i32>()];
    let time = || prop_oneof![4 => Just(NOW.0), 2 => Just(-1), 1 => any::<i64>()];
    (
        prop_oneof![8 => Just(0), 1 => any::<i64>()],
        prop_oneof![4 => 0..16_i16, 1 => any::<i16>()],
        number(),
        prop_oneof![4 => Just(None), 1 => number().prop_map(Some)],
        (time(), time()),
        (prop_oneof![Just(-1), Just(7), any::<i64>()], any::<i16>(), number()),
    )
        .prop_map(|(base_offset, attributes, count, last, times, producer)| BatchHeader {
            base_offset,
            size: ByteCount(0),
            leader_epoch: LeaderEpoch(-1),
            crc: 0,
            attributes,
            last_offset_delta: last.unwrap_or(count.wrapping_sub(1)),
            base_timestamp: Timestamp(times.0),
            max_timestamp: Timestamp(times.1),
            producer_id: ProducerId(producer.0),
            producer_epoch: ProducerEpoch(producer.1),
            base_sequence: Sequence(producer.2),
            record_count: count,
        })
}

/// A record whose numbers mostly fit.
fn record() -> impl Strategy<Value = Vec<u8>> {
    let tail = prop_oneof![
        4 => Just(vec![1, 1, 0]),
        2 => Just(vec![2, b'k', 2, b'v', 0]),
        1 => Just(vec![2, b'k', 2, b'v', 2, 2, b'h', 1]),
        1 => prop::collection::vec(any::<u8>(), 0..12),
    ];
    let length = prop_oneof![8 => Just(0_i8), 1 => -3..3_i8];
    (length, 0..4_u8, any::<bool>(), tail).prop_map(|(off, delta, is_long, tail)| {
        let mut body = vec![0];
        body.extend(if is_long { vec![0x80, 0x80, 0x01] } else { vec![0] });
        body.push(delta * 2);
        body.extend(tail);
        let length = u8::try_from(body.len()).expect("short").wrapping_mul(2);
        body.insert(0, length.wrapping_add_signed(off));
        body
    })
}

fn records() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(record(), 0..5).prop_map(|records| records.concat()),
        1 => prop::collection::vec(any::<u8>(), 0..100),
        1 => (0..30_000_usize).prop_map(|bytes| vec![0; bytes]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        offer(&bytes)?;
    }

    #[test]
    fn a_right_crc_is_no_licence(
        header in header(),
        records in records(),
        packing in prop::sample::select(&CODECS[..]),
    ) {
        // Half of them say which codec they are packed with, the others lie.
        let payload = codec::compress(packing, Levels::default(), &records).expect("packs");
        offer(&batch::encode(&header, &payload))?;
        let attributes = header.attributes & !0x07 | packing.attribute();
        offer(&batch::encode(&BatchHeader { attributes, ..header }, &payload))?;
    }

    #[test]
    fn a_spoilt_payload_is_no_panic(
        codec in prop::sample::select(&CODECS[..]),
        spoilt in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let good = batch(codec, &[NOW.0 - 1, NOW.0]);
        let mut payload = good.payload().to_vec();
        for (at, byte) in spoilt {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        offer(&batch::encode(good.header(), &payload))?;
    }
}

#[test]
fn every_cut_is_refused() {
    let whole = batch(Codec::None, &[NOW.0; 3]);
    for length in 0..whole.as_bytes().len() {
        let cut = BytesMut::from(&whole.as_bytes()[..length]);
        let error = AppendError::from(RecordBatch::decode(cut).expect_err("cut"));
        assert!(matches!(error, AppendError::CorruptMessage(_)), "{length}: {error}");
    }
}

#[test]
fn decoding_errors_have_kafkas_codes() {
    let good = batch(Codec::None, &[NOW.0]);
    let spoilt = |at: usize, byte: u8| {
        let mut bytes = BytesMut::from(good.as_bytes());
        bytes[at] = byte;
        AppendError::from(RecordBatch::decode(bytes).expect_err("spoilt"))
    };
    assert!(matches!(spoilt(HEADER_BYTES, 0xff), AppendError::CorruptMessage(_)));
    assert!(matches!(spoilt(8, 0xff), AppendError::CorruptMessage(_)));
    for magic in [0, 1, 3] {
        assert!(matches!(spoilt(16, magic), AppendError::InvalidBatch(_)));
    }
    for codec in 5..8 {
        let header = BatchHeader { attributes: codec, ..*good.header() };
        let bytes = batch::encode(&header, good.payload());
        let error = AppendError::from(RecordBatch::decode(bytes).expect_err("unknown codec"));
        assert!(matches!(error, AppendError::UnsupportedCompression(_)), "{error}");
    }
}

#[test]
fn a_million_bad_records_make_a_short_answer() {
    let record = [12, 0, 0, 0, 1, 1, 0];
    let count = 100_000;
    let header = BatchHeader {
        record_count: count,
        last_offset_delta: count - 1,
        ..*batch(Codec::None, &[NOW.0]).header()
    };
    let mut bad = decode(batch::encode(&header, &record.repeat(100_000)));
    bad.assign(Offset(0), LeaderEpoch(0));
    let error = validate(bad, &compacted(), NOW).expect_err("no keys");
    assert_eq!(error.record_errors().len(), RECORD_ERRORS_MAX);
    assert!(error.to_string().contains("100000 of the batch's records"), "{error}");
}
