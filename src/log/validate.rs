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
                "timestamp {timestamp} is not within {} ms before \
                 (message.timestamp.before.max.ms) and {} ms after \
                 (message.timestamp.after.max.ms) the broker's {}; timestamps are milliseconds \
                 since 1970",
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
