//! What a leader checks and changes in a client's batch before it gets its offsets
//! (`LogValidator`), in Kafka's order of checks and with its error codes.
//!
//! The records of every batch are walked, since the header's max timestamp may lie, and the time
//! index and retention live on it. A batch stays where it came from the network: base offset, epoch
//! and max timestamp are written in place. Only another `compression.type`, or inner offsets
//! that don't count from 0, make a new one.

use std::borrow::Cow;

use super::config::{LogConfig, TimestampType};
use super::error::{AppendError, RecordErrors};
use crate::format::batch::{BatchHeader, Codec, RecordBatch};
use crate::format::codec::{self, CodecError, Levels};
use crate::format::record::{BatchBuilder, NewRecord, RecordError, RecordsIter};
use crate::units::{ProducerId, Timestamp};

/// A batch that may be appended once it has its offsets.
#[derive(Debug)]
pub struct Validated {
    /// As it will be stored, but for base offset and leader epoch.
    pub batch: RecordBatch,
    /// What the producer is told: `now` on a LogAppendTime topic, otherwise none.
    pub log_append_time: Timestamp,
}

/// Checks a client's batch against the topic's settings and makes it what Kafka would store. Length
/// and CRC were checked by [`RecordBatch::decode`]; what depends on the producer's earlier batches
/// is checked by [`Producers::check`](super::producers::Producers::check).
///
/// # Errors
/// [`AppendError::InvalidBatch`], [`AppendError::MessageTooLarge`],
/// [`AppendError::DecompressedTooLarge`], [`AppendError::UnsupportedCompression`],
/// [`AppendError::InvalidRecord`], [`AppendError::InvalidTimestamp`].
pub fn validate(
    mut batch: RecordBatch,
    config: &LogConfig,
    now: Timestamp,
) -> Result<Validated, AppendError> {
    let header = *batch.header();
    check_base_offset(&header)?;
    check_size(&batch, config)?;
    let codec = header.codec()?;
    check_header(&header)?;
    let records = records(&batch, codec, config)?;
    let rules = Rules { header: &header, config, now };
    let walked = rules.walk(&records)?;

    let wanted = config.compression.unwrap_or(codec);
    let is_kept = codec == wanted && (codec == Codec::None || walked.is_numbered);
    if !is_kept {
        batch = rebuild(&header, &records, wanted, config)?;
        check_size(&batch, config)?;
    }
    let log_append_time = match config.timestamp_type {
        TimestampType::CreateTime => {
            batch.set_max_timestamp(false, walked.max_timestamp);
            Timestamp::NONE
        }
        TimestampType::LogAppendTime => {
            batch.set_max_timestamp(true, now);
            now
        }
    };
    Ok(Validated { batch, log_append_time })
}

fn check_base_offset(header: &BatchHeader) -> Result<(), AppendError> {
    if header.base_offset == 0 {
        return Ok(());
    }
    refuse(format!(
        "its base offset is {}, a producer's must be 0; the broker assigns offsets",
        header.base_offset
    ))
}

fn check_size(batch: &RecordBatch, config: &LogConfig) -> Result<(), AppendError> {
    let (size, limit) = (batch.size(), config.batch_bytes_max);
    if limit < size { Err(AppendError::MessageTooLarge { size, limit }) } else { Ok(()) }
}

/// What needs no look at the records.
fn check_header(header: &BatchHeader) -> Result<(), AppendError> {
    let (last, count) = (header.last_offset_delta, header.record_count);
    if last < 0 {
        return refuse(format!("its last offset delta is {last}, the least is 0"));
    }
    if count <= 0 {
        return refuse(format!("it says that it has {count} records, the least is 1"));
    }
    if i64::from(last) + 1 != i64::from(count) {
        return refuse(format!(
            "it says that it has {count} records and that the last one is number {last}, counted \
             from 0"
        ));
    }
    if header.is_control() {
        return refuse("it is a control batch, which only a broker may write".to_owned());
    }
    if ProducerId::NONE < header.producer_id && header.base_sequence.0 < 0 {
        return refuse(format!(
            "it has the producer id {} and no sequence ({}); an idempotent producer counts from 0",
            header.producer_id, header.base_sequence
        ));
    }
    Ok(())
}

fn refuse<T>(message: String) -> Result<T, AppendError> {
    Err(AppendError::InvalidBatch(message))
}

/// The records as they are when decompressed: never more than `decompressed_bytes_max`, whatever
/// the batch says.
fn records<'a>(
    batch: &'a RecordBatch,
    codec: Codec,
    config: &LogConfig,
) -> Result<Cow<'a, [u8]>, AppendError> {
    let limit = config.decompressed_bytes_max;
    codec::decompress(codec, batch.payload(), limit).map_err(|error| match error {
        CodecError::TooLarge { .. } => {
            AppendError::DecompressedTooLarge { size: batch.size(), limit }
        }
        CodecError::Corrupt { .. } => AppendError::InvalidBatch(error.to_string()),
    })
}

/// The batch anew: in the wanted codec, offsets counted from 0, everything else as it came.
fn rebuild(
    header: &BatchHeader,
    records: &[u8],
    wanted: Codec,
    config: &LogConfig,
) -> Result<RecordBatch, AppendError> {
    let levels = Levels { gzip: config.gzip_level, zstd: config.zstd_level };
    let mut builder = BatchBuilder::new(wanted).with_levels(levels).with_producer(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    );
    if header.is_transactional() {
        builder = builder.transactional();
    }
    let mut headers = Vec::new();
    for (index, record) in (0_u32..).zip(RecordsIter::new(header, records)) {
        let record = record.map_err(|error| at_record(index, error))?;
        headers.clear();
        headers.extend(record.headers);
        builder.push(&NewRecord {
            timestamp: record.timestamp,
            key: record.key,
            value: record.value,
            headers: &headers,
        });
    }
    Ok(builder.build())
}

fn at_record(index: u32, error: RecordError) -> AppendError {
    AppendError::InvalidBatch(format!("at record {index}: {error}"))
}

/// What the walk over the records found.
struct Walked {
    /// Largest timestamp, -1 when no record has one.
    max_timestamp: Timestamp,
    /// Whether the offset deltas count from 0 without a gap.
    is_numbered: bool,
}

/// What each record is held against.
struct Rules<'a> {
    header: &'a BatchHeader,
    config: &'a LogConfig,
    now: Timestamp,
}

impl Rules<'_> {
    fn walk(&self, records: &[u8]) -> Result<Walked, AppendError> {
        let mut walked = Walked { max_timestamp: Timestamp::NONE, is_numbered: true };
        let mut refused = Refused::default();
        for (index, record) in (0_u32..).zip(RecordsIter::new(self.header, records)) {
            let record = record.map_err(|error| at_record(index, error))?;
            let timestamp = record.timestamp;
            if self.config.cleanup_policy.compact && record.key.is_none() {
                refused.errors.add(index, || NULL_KEY.to_owned());
            } else if let Some(fault) = self.timestamp_fault(timestamp) {
                refused.is_timestamp = true;
                refused.errors.add(index, || self.explain(fault, timestamp));
            }
            walked.max_timestamp = walked.max_timestamp.max(timestamp);
            walked.is_numbered &= i64::from(record.offset_delta) == i64::from(index);
        }
        refused.into_result().map(|()| walked)
    }

    /// Kafka compares differences that may wrap, so that a timestamp near the ends of 64 bits
    /// counts as one of the future.
    fn timestamp_fault(&self, timestamp: Timestamp) -> Option<TimestampFault> {
        let is_checked =
            self.config.timestamp_type == TimestampType::CreateTime && timestamp != Timestamp::NONE;
        if !is_checked {
            return self.header.is_log_append_time().then_some(TimestampFault::Type);
        }
        let age_ms = self.now.0.wrapping_sub(timestamp.0);
        let is_over = |ms: i64, limit: u64| u64::try_from(ms).is_ok_and(|ms| limit < ms);
        let is_out = is_over(age_ms, self.config.timestamp_before_max_ms)
            || is_over(age_ms.wrapping_neg(), self.config.timestamp_after_max_ms);
        is_out.then_some(TimestampFault::OutOfRange)
    }

    fn explain(&self, fault: TimestampFault, timestamp: Timestamp) -> String {
        match fault {
            TimestampFault::Type => "the batch has the timestamp type LogAppendTime, which only \
                                     the broker sets; send CreateTime"
                .to_owned(),
            TimestampFault::OutOfRange => format!(
                "timestamp {timestamp} is not within {} ms before (message.timestamp.before.max.ms) \
                 and {} ms after (message.timestamp.after.max.ms) the broker's {}; timestamps are \
                 milliseconds since 1970",
                self.config.timestamp_before_max_ms, self.config.timestamp_after_max_ms, self.now
            ),
        }
    }
}

#[derive(Clone, Copy)]
enum TimestampFault {
    OutOfRange,
    Type,
}

#[derive(Default)]
struct Refused {
    errors: RecordErrors,
    is_timestamp: bool,
}

impl Refused {
    /// One record refused for its timestamp makes it an error of timestamps, whatever the others
    /// are refused for.
    fn into_result(self) -> Result<(), AppendError> {
        if self.errors.count() == 0 {
            Ok(())
        } else if self.is_timestamp {
            Err(AppendError::InvalidTimestamp(self.errors))
        } else {
            Err(AppendError::InvalidRecord(self.errors))
        }
    }
}

const NULL_KEY: &str = "it has no key, which a compacted topic (cleanup.policy=compact) needs";

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::format::batch;
    use crate::log::config::{CleanupPolicy, Durability};
    use crate::units::{ByteCount, LeaderEpoch, Offset, ProducerEpoch, Sequence, u64_of};

    const NOW: Timestamp = Timestamp(1_700_000_000_000);
    const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    const LOG_APPEND_TIME: i16 = 0x08;
    const CONTROL: i16 = 0x20;

    fn config() -> LogConfig {
        LogConfig::defaults(Durability::PageCache)
    }

    fn append_time() -> LogConfig {
        LogConfig { timestamp_type: TimestampType::LogAppendTime, ..config() }
    }

    fn compacted() -> LogConfig {
        LogConfig { cleanup_policy: CleanupPolicy { delete: false, compact: true }, ..config() }
    }

    /// A keyed batch with records at these times.
    fn batch(codec: Codec, timestamps: &[i64]) -> RecordBatch {
        let mut builder =
            BatchBuilder::new(codec).with_producer(ProducerId(7), ProducerEpoch(1), Sequence(5));
        for timestamp in timestamps {
            builder.push(&NewRecord {
                timestamp: Timestamp(*timestamp),
                key: Some(b"key"),
                value: Some(&[b'v'; 300]),
                headers: &[(b"h", None), (b"", Some(b"x"))],
            });
        }
        builder.build()
    }

    /// The same batch with another header, its CRC right.
    fn changed(batch: &RecordBatch, change: impl FnOnce(&mut BatchHeader)) -> RecordBatch {
        let mut header = *batch.header();
        change(&mut header);
        decode(batch::encode(&header, batch.payload()))
    }

    /// A batch of raw record bytes.
    fn raw(codec: Codec, count: i32, records: &[u8]) -> RecordBatch {
        let payload = codec::compress(codec, Levels::default(), records).expect("packs");
        let header = BatchHeader {
            attributes: codec.attribute(),
            last_offset_delta: count - 1,
            record_count: count,
            ..*batch(Codec::None, &[NOW.0]).header()
        };
        decode(batch::encode(&header, &payload))
    }

    fn decode(bytes: BytesMut) -> RecordBatch {
        RecordBatch::decode(bytes).expect("length and CRC are right")
    }

    fn unpacked(batch: &RecordBatch) -> Vec<u8> {
        let codec = batch.header().codec().expect("known");
        let limit = config().decompressed_bytes_max;
        codec::decompress(codec, batch.payload(), limit).expect("unpacks").into_owned()
    }

    fn timestamps(batch: &RecordBatch) -> Vec<i64> {
        let records = unpacked(batch);
        let records = RecordsIter::new(batch.header(), &records);
        records.map(|record| record.expect("valid").timestamp.0).collect()
    }

    fn refusal(batch: RecordBatch, config: &LogConfig) -> AppendError {
        validate(batch, config, NOW).expect_err("refused")
    }

    fn refused_records(error: &AppendError) -> Vec<u32> {
        error.record_errors().iter().map(|error| error.batch_index).collect()
    }

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
        let config =
            LogConfig { batch_bytes_max: limit, compression: Some(Codec::None), ..config() };
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
        let limits =
            LogConfig { timestamp_before_max_ms: 10, timestamp_after_max_ms: 20, ..config() };
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
            let mut stored =
                validate(raw(codec, 2, &records), &config(), NOW).expect("taken").batch;
            // Kafka doesn't look at those of plain batches either.
            let expected = if codec == Codec::None { [0, 0] } else { [0, 1] };
            assert_eq!(deltas(&stored), expected, "{codec:?}");
            stored.assign(Offset(40), LeaderEpoch(3));
            assert_eq!(stored.header().last_offset(), Some(Offset(41)));
        }
    }
}
