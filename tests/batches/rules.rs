//! The rules one by one: what is refused and why, what is changed and how.

use bytes::BytesMut;
use uringlog::format::batch::{BatchHeader, Codec, RecordBatch};
use uringlog::format::record::{BatchBuilder, NewRecord, RecordsIter};
use uringlog::log::config::LogConfig;
use uringlog::log::error::AppendError;
use uringlog::log::validate::validate;
use uringlog::units::{ByteCount, LeaderEpoch, Offset, ProducerId, Sequence, Timestamp, u64_of};

use crate::make::*;

#[test]
fn a_good_batch_stays_as_it_is() {
    for codec in CODECS {
        let good = batch(codec, &[NOW.0 - 5, NOW.0, NOW.0 - 9]);
        let (bytes, at) = (good.as_bytes().to_vec(), good.as_bytes().as_ptr());
        let validated = validate(good, &config(), NOW).expect("valid");
        assert_eq!(validated.batch.as_bytes(), bytes, "{codec:?}");
        assert_eq!(validated.batch.as_bytes().as_ptr(), at, "{codec:?}: copied");
        assert_eq!(validated.log_append_time, Timestamp::NONE);
    }
}

#[test]
fn headers_that_lie_are_refused_in_order() {
    let good = batch(Codec::None, &[NOW.0, NOW.0]);
    let check = |part: &str, change: fn(&mut BatchHeader)| {
        let error = refusal(changed(&good, change), &config());
        let AppendError::InvalidBatch(text) = &error else { panic!("{part}: {error}") };
        assert!(text.contains(part), "{part} is missing in: {text}");
    };
    check("base offset is 3", |header| header.base_offset = 3);
    check("last offset delta is -1", |header| header.last_offset_delta = -1);
    check("has 0 records", |header| header.record_count = 0);
    check("has -2 records", |header| header.record_count = -2);
    check("has 3 records", |header| header.record_count = 3);
    check("number 2", |header| header.last_offset_delta = 2);
    check("control batch", |header| header.attributes |= CONTROL);
    check("no sequence (-1)", |header| header.base_sequence = Sequence(-1));
    check("announces 3 records and has 2", |header| {
        (header.record_count, header.last_offset_delta) = (3, 2);
    });
    check("left behind the last record", |header| {
        (header.record_count, header.last_offset_delta) = (1, 0);
    });
    // The first fault decides.
    check("base offset", |header| (header.base_offset, header.record_count) = (1, -1));
    // Without a producer id no sequence is asked for.
    let plain = changed(&good, |header| {
        (header.producer_id, header.base_sequence) = (ProducerId::NONE, Sequence(-1));
    });
    validate(plain, &config(), NOW).expect("valid");
}

#[test]
fn records_with_a_wrong_structure_are_refused() {
    let check = |part: &str, count: i32, records: &[u8]| {
        for codec in CODECS {
            let error = refusal(raw(codec, count, records), &config());
            let AppendError::InvalidBatch(text) = &error else { panic!("{part}: {error}") };
            assert!(text.contains(part), "{codec:?}: {part} is missing in: {text}");
        }
    };
    // length 6, attributes, two deltas, null key, null value, no headers.
    let record = [12, 0, 0, 0, 1, 1, 0];
    check("at record 0: record length 6", 1, &record[..6]);
    check("at record 1: the batch announces 2 records and has 1", 2, &record);
    check("at record 0: 1 bytes of a record are left over", 1, &[14, 0, 0, 0, 1, 1, 0, 0]);
    check("at record 0: record length -1", 1, &[1, 0, 0, 0, 1, 1, 0]);
    check("at record 0: -1 record headers", 1, &[12, 0, 0, 0, 1, 1, 1]);
    check("at record 0: 32 record headers", 1, &[12, 0, 0, 0, 1, 1, 64]);
    check("at record 0: length 5", 1, &[12, 0, 0, 0, 10, 1, 0]);
    check("at record 0", 1, &[12, 0, 0xff, 0xff, 0xff, 0xff, 0xff]);
}

#[test]
fn the_limit_of_a_batch_is_its_whole_size() {
    let good = batch(Codec::None, &[NOW.0]);
    let size = good.size();
    let exact = LogConfig { batch_bytes_max: size, ..config() };
    validate(changed(&good, |_| ()), &exact, NOW).expect("fits");
    let limit = ByteCount(size.0 - 1);
    let error = refusal(good, &LogConfig { batch_bytes_max: limit, ..config() });
    assert_eq!(error, AppendError::MessageTooLarge { size, limit });
}

#[test]
fn the_limit_holds_for_the_rebuilt_batch_too() {
    let packed = batch(Codec::Zstd, &[NOW.0; 100]);
    let limit = packed.size();
    let config = LogConfig { batch_bytes_max: limit, compression: Some(Codec::None), ..config() };
    let error = refusal(packed, &config);
    assert!(matches!(error, AppendError::MessageTooLarge { .. }), "{error}");
}

#[test]
fn a_bomb_is_refused() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let packed = batch(codec, &[NOW.0; 100]);
        let bytes = u64_of(unpacked(&packed).len());
        let limited = |limit| LogConfig { decompressed_bytes_max: limit, ..config() };
        validate(changed(&packed, |_| ()), &limited(ByteCount(bytes)), NOW).expect("fits");
        let (size, limit) = (packed.size(), ByteCount(bytes - 1));
        let error = refusal(packed, &limited(limit));
        assert_eq!(error, AppendError::DecompressedTooLarge { size, limit }, "{codec:?}");
    }
}

#[test]
fn damaged_compression_is_refused() {
    let text = |codec| {
        refusal(
            changed(&batch(Codec::None, &[NOW.0; 9]), |header| {
                header.attributes = codec;
            }),
            &config(),
        )
        .to_string()
    };
    for (attributes, name) in [(1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")] {
        assert!(text(attributes).contains(name), "{}", text(attributes));
    }
}

#[test]
fn a_lying_max_timestamp_is_corrected() {
    for codec in CODECS {
        let good = batch(codec, &[NOW.0 - 5, NOW.0, NOW.0 - 9]);
        let bytes = good.as_bytes().to_vec();
        for lie in [-1, 0, NOW.0 + 1, i64::MAX] {
            let lying = changed(&good, |header| header.max_timestamp = Timestamp(lie));
            let validated = validate(lying, &config(), NOW).expect("valid");
            assert_eq!(validated.batch.as_bytes(), bytes, "{codec:?} {lie}");
        }
    }
}

#[test]
fn timestamps_may_be_missing_and_stand_within_bounds() {
    let limits = LogConfig { timestamp_before_max_ms: 10, timestamp_after_max_ms: 20, ..config() };
    let check = |timestamps: &[i64], limits: &LogConfig, expected: &[u32]| {
        for codec in CODECS {
            let result = validate(batch(codec, timestamps), limits, NOW);
            match result {
                Ok(validated) => {
                    let max = timestamps.iter().copied().max().expect("not empty").max(-1);
                    assert_eq!(validated.batch.header().max_timestamp, Timestamp(max));
                    assert!(expected.is_empty(), "{timestamps:?} was taken");
                }
                Err(error) => {
                    assert!(matches!(error, AppendError::InvalidTimestamp(_)), "{error}");
                    assert_eq!(refused_records(&error), expected);
                }
            }
        }
    };
    check(&[-1, -1], &limits, &[]);
    check(&[NOW.0 - 10, NOW.0 + 20], &limits, &[]);
    check(&[NOW.0 - 11, NOW.0, NOW.0 + 21], &limits, &[0, 2]);
    // Differences wrap as Kafka's do: the far past near -2^63 counts as future.
    check(&[i64::MIN, 0, -7], &config(), &[0]);
    check(&[NOW.0, i64::MAX], &config(), &[1]);
    check(&[NOW.0 + 3_600_000, NOW.0 + 3_600_001], &config(), &[1]);
}

#[test]
fn the_append_time_replaces_the_producers() {
    for codec in CODECS {
        for wanted in [None, Some(Codec::None), Some(Codec::Gzip)] {
            // Two hours ahead, none, long ago: nobody asks on such a topic.
            let sent = batch(codec, &[NOW.0 + 7_200_000, -1, 5]);
            let base = sent.header().base_timestamp;
            let config = LogConfig { compression: wanted, ..append_time() };
            let validated = validate(sent, &config, NOW).expect("valid");
            assert_eq!(validated.log_append_time, NOW);
            let batch = decode(BytesMut::from(validated.batch.as_bytes()));
            assert!(batch.header().is_log_append_time());
            assert_eq!(batch.header().max_timestamp, NOW);
            assert_eq!(batch.header().base_timestamp, base);
            assert_eq!(timestamps(&batch), [NOW.0; 3]);
        }
    }
}

#[test]
fn the_flag_of_append_time_is_the_brokers() {
    let flagged = |max: i64| {
        changed(&batch(Codec::None, &[-1, -1]), |header| {
            header.attributes |= LOG_APPEND_TIME;
            header.max_timestamp = Timestamp(max);
        })
    };
    for (max, config) in [(NOW.0, append_time()), (-1, config())] {
        let error = refusal(flagged(max), &config);
        assert!(matches!(error, AppendError::InvalidTimestamp(_)), "{error}");
        assert_eq!(refused_records(&error), [0, 1]);
    }
    // With a max timestamp a CreateTime topic takes it, as if all its records had that, and
    // stores it without the flag (seen on a broker).
    let validated = validate(flagged(NOW.0), &config(), NOW).expect("taken");
    assert!(!validated.batch.header().is_log_append_time());
    assert_eq!(validated.batch.header().max_timestamp, NOW);
    assert_eq!(timestamps(&validated.batch), [-1, -1]);
}

#[test]
fn compacted_topics_want_keys() {
    for codec in CODECS {
        let mut builder = BatchBuilder::new(codec);
        for key in [Some(&b"k"[..]), None, Some(&b""[..]), None] {
            let record = NewRecord::value(NOW, b"v");
            builder.push(&NewRecord { key, ..record });
        }
        let error = refusal(builder.build(), &compacted());
        assert!(matches!(error, AppendError::InvalidRecord(_)), "{error}");
        assert_eq!(refused_records(&error), [1, 3]);
    }
    validate(batch(Codec::None, &[NOW.0]), &compacted(), NOW).expect("keyed");
}

#[test]
fn a_bad_timestamp_decides_over_a_missing_key() {
    let mut builder = BatchBuilder::new(Codec::None);
    builder.push(&NewRecord::value(NOW, b"no key"));
    let late = NewRecord::value(Timestamp(NOW.0 + 9_999_999), b"late");
    builder.push(&NewRecord { key: Some(b"k"), ..late });
    let error = refusal(builder.build(), &compacted());
    assert!(matches!(error, AppendError::InvalidTimestamp(_)), "{error}");
    assert_eq!(refused_records(&error), [0, 1]);
}

#[test]
fn another_codec_keeps_everything_else() {
    let times = [NOW.0 - 5, NOW.0, NOW.0 - 9];
    let plain = unpacked(&batch(Codec::None, &times));
    for source in CODECS {
        for target in CODECS {
            let sent = batch(source, &times);
            let header = *sent.header();
            let config = LogConfig { compression: Some(target), ..config() };
            let stored = validate(sent, &config, NOW).expect("valid").batch;
            let stored = decode(BytesMut::from(stored.as_bytes()));
            assert_eq!(stored.header().codec(), Ok(target));
            assert_eq!(unpacked(&stored), plain, "{source:?} to {target:?}");
            let found = stored.header();
            let same = BatchHeader {
                size: found.size,
                crc: found.crc,
                attributes: target.attribute(),
                ..header
            };
            assert_eq!(*found, same, "{source:?} to {target:?}");
        }
    }
}

#[test]
fn wrong_inner_offsets_are_counted_anew_when_compressed() {
    // Two records that both say offset delta 0.
    let records = [12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 0, 1, 1, 0];
    let deltas = |batch: &RecordBatch| -> Vec<i32> {
        let records = unpacked(batch);
        let records = RecordsIter::new(batch.header(), &records);
        records.map(|record| record.expect("valid").offset_delta).collect()
    };
    for codec in CODECS {
        let mut stored = validate(raw(codec, 2, &records), &config(), NOW).expect("taken").batch;
        // Kafka doesn't look at those of plain batches either.
        let expected = if codec == Codec::None { [0, 0] } else { [0, 1] };
        assert_eq!(deltas(&stored), expected, "{codec:?}");
        stored.assign(Offset(40), LeaderEpoch(3));
        assert_eq!(stored.header().last_offset(), Some(Offset(41)));
    }
}

#[test]
fn a_rebuilt_batch_stays_in_its_transaction() {
    let mut builder = BatchBuilder::new(Codec::None).transactional();
    builder.push(&NewRecord::value(NOW, b"v"));
    let config = LogConfig { compression: Some(Codec::Gzip), ..config() };
    let stored = validate(builder.build(), &config, NOW).expect("valid").batch;
    assert!(stored.header().is_transactional());
    assert_eq!(stored.header().codec(), Ok(Codec::Gzip));
}

#[test]
fn levels_are_the_topics() {
    let mut builder = BatchBuilder::new(Codec::None);
    for number in 0..2_000_u32 {
        let value = number.wrapping_mul(2_654_435_761).to_string();
        builder.push(&NewRecord::value(NOW, value.as_bytes()));
    }
    let sent = builder.build();
    let size = |config: LogConfig| {
        validate(changed(&sent, |_| ()), &config, NOW).expect("valid").batch.size()
    };
    let gzip =
        |gzip_level| size(LogConfig { compression: Some(Codec::Gzip), gzip_level, ..config() });
    let zstd =
        |zstd_level| size(LogConfig { compression: Some(Codec::Zstd), zstd_level, ..config() });
    assert!(gzip(9) < gzip(1));
    assert!(zstd(19) < zstd(-100));
}
