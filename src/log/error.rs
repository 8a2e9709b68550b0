//! Why an append is refused: one variant per Kafka error code, so that the broker's mapping is a
//! list and nothing more.
//!
//! Messages name the thing, the limit and what to do about it: producers print them as they are.

use std::fmt;

use crate::format::batch::BatchError;
use crate::units::{ByteCount, ProducerEpoch, ProducerId, Sequence};

/// How many refused records of one batch are listed; the rest are only counted. Kafka lists all,
/// so that its answer may become larger than the request.
pub const RECORD_ERRORS_MAX: usize = 100;

/// One refused record of a batch (`record_errors` of the Produce answer).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordError {
    /// Which record of the batch, from 0.
    pub batch_index: u32,
    /// What is wrong with it and what to do.
    pub message: String,
}

/// The refused records of a batch, at most [`RECORD_ERRORS_MAX`] of them listed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecordErrors {
    listed: Vec<RecordError>,
    count: u64,
}

impl RecordErrors {
    /// Counts one more refused record; `message` is called only if it will be listed.
    pub fn add(&mut self, batch_index: u32, message: impl FnOnce() -> String) {
        self.count += 1;
        if self.listed.len() < RECORD_ERRORS_MAX {
            self.listed.push(RecordError { batch_index, message: message() });
        }
    }

    /// The first of them.
    pub fn listed(&self) -> &[RecordError] {
        &self.listed
    }

    /// How many there are, listed or not.
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl fmt::Display for RecordErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of the batch's records", self.count)?;
        match self.listed.first() {
            Some(first) => write!(f, ", first at index {}: {}", first.batch_index, first.message),
            None => Ok(()),
        }
    }
}

/// Why a batch was not appended. Nothing of the log has changed then.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AppendError {
    /// CORRUPT_MESSAGE (2): the bytes are not the batch that their sender made; it may try again.
    #[error("the batch is damaged: {0}; send it again")]
    CorruptMessage(BatchError),
    /// MESSAGE_TOO_LARGE (10).
    #[error(
        "the batch has {size} bytes, max.message.bytes of the topic allows {limit}; send smaller \
         batches (batch.size, max.request.size) or raise the limit"
    )]
    MessageTooLarge {
        /// Whole batch, as compressed as it came or as compression.type made it.
        size: ByteCount,
        /// `max.message.bytes`.
        limit: ByteCount,
    },
    /// MESSAGE_TOO_LARGE (10) as well: a Java producer then splits the batch and sends its halves,
    /// which is right if it is no bomb. Kafka decompresses without a limit.
    #[error(
        "the batch of {size} bytes has records of more than {limit} bytes when decompressed, the \
         limit; send smaller batches (batch.size)"
    )]
    DecompressedTooLarge {
        /// Whole batch as it came.
        size: ByteCount,
        /// `decompressed_bytes_max` of [`LogConfig`](super::config::LogConfig).
        limit: ByteCount,
    },
    /// RECORD_LIST_TOO_LARGE (18).
    #[error(
        "the batch has {size} bytes, a segment of the topic holds {limit} (segment.bytes); send \
         smaller batches or raise segment.bytes"
    )]
    RecordListTooLarge {
        /// Whole batch.
        size: ByteCount,
        /// `segment.bytes`.
        limit: ByteCount,
    },
    /// INVALID_TIMESTAMP (32): at least one record's timestamp isn't allowed.
    #[error("invalid timestamp: {0}")]
    InvalidTimestamp(RecordErrors),
    /// POLICY_VIOLATION (44): the partition keeps state for no more producers than this.
    #[error(
        "the partition already remembers {limit} idempotent producers, the limit; use fewer \
         producers, switch idempotence off, or lower producer.id.expiration.ms"
    )]
    TooManyProducers {
        /// [`PRODUCERS_MAX`](super::producers::PRODUCERS_MAX).
        limit: usize,
    },
    /// OUT_OF_ORDER_SEQUENCE_NUMBER (45): a batch of this producer is missing in between, or this
    /// one is a duplicate too old to be recognised.
    #[error(
        "producer {producer_id} with epoch {epoch} sent sequence {found}, {expected} is due; \
         a batch before it was lost, or this one was already appended too long ago"
    )]
    OutOfOrderSequence {
        /// The producer.
        producer_id: ProducerId,
        /// The batch's epoch.
        epoch: ProducerEpoch,
        /// What would have been accepted.
        expected: Sequence,
        /// What came.
        found: Sequence,
    },
    /// INVALID_PRODUCER_EPOCH (47): the producer was replaced.
    #[error(
        "producer {producer_id} sent epoch {found}, but has already written with {current}; \
         another instance took its place, or it must ask for a new epoch (InitProducerId)"
    )]
    InvalidProducerEpoch {
        /// The producer.
        producer_id: ProducerId,
        /// Newest epoch that the partition has seen of it.
        current: ProducerEpoch,
        /// What came.
        found: ProducerEpoch,
    },
    /// INVALID_TXN_STATE (48).
    #[error("producer {producer_id}: {message}")]
    InvalidTxnState {
        /// The producer.
        producer_id: ProducerId,
        /// Which rule was broken and what to do.
        message: &'static str,
    },
    /// TRANSACTION_COORDINATOR_FENCED (52): another coordinator has written since.
    #[error(
        "a marker of coordinator epoch {found} for producer {producer_id}, but one of epoch \
         {current} was written already"
    )]
    CoordinatorFenced {
        /// The producer.
        producer_id: ProducerId,
        /// Newest coordinator epoch that the partition has seen.
        current: i32,
        /// What came.
        found: i32,
    },
    /// KAFKA_STORAGE_ERROR (56): the partition takes no more appends until it has been recovered.
    #[error("the partition is offline: {reason}; it is recovered at the next start")]
    Offline {
        /// What took it offline.
        reason: String,
    },
    /// KAFKA_STORAGE_ERROR (56): the partition serves reads, but has no room for writes.
    #[error("no space left for the partition: {reason}; free space or lower its retention")]
    NoSpace {
        /// Which file couldn't grow.
        reason: String,
    },
    /// UNSUPPORTED_COMPRESSION_TYPE (76).
    #[error("{0}; gzip (1), snappy (2), lz4 (3), zstd (4) and none (0) are supported")]
    UnsupportedCompression(BatchError),
    /// INVALID_RECORD (87): the batch as a whole breaks a rule.
    #[error("invalid batch: {0}")]
    InvalidBatch(String),
    /// INVALID_RECORD (87): at least one record breaks a rule.
    #[error("invalid record: {0}")]
    InvalidRecord(RecordErrors),
}

impl AppendError {
    /// The records to list in the answer, empty when the batch was refused as a whole.
    pub fn record_errors(&self) -> &[RecordError] {
        match self {
            AppendError::InvalidTimestamp(errors) | AppendError::InvalidRecord(errors) => {
                errors.listed()
            }
            AppendError::CorruptMessage(_)
            | AppendError::MessageTooLarge { .. }
            | AppendError::DecompressedTooLarge { .. }
            | AppendError::RecordListTooLarge { .. }
            | AppendError::TooManyProducers { .. }
            | AppendError::OutOfOrderSequence { .. }
            | AppendError::InvalidProducerEpoch { .. }
            | AppendError::InvalidTxnState { .. }
            | AppendError::CoordinatorFenced { .. }
            | AppendError::Offline { .. }
            | AppendError::NoSpace { .. }
            | AppendError::UnsupportedCompression(_)
            | AppendError::InvalidBatch(_) => &[],
        }
    }
}

impl From<BatchError> for AppendError {
    /// What `RecordBatch::decode` found, as Kafka answers it. An unknown codec makes Kafka fail
    /// with UNKNOWN_SERVER_ERROR; ours says what is wrong.
    fn from(error: BatchError) -> AppendError {
        match error {
            BatchError::Truncated { .. } | BatchError::Length(_) | BatchError::Crc { .. } => {
                AppendError::CorruptMessage(error)
            }
            BatchError::Magic(_) => {
                AppendError::InvalidBatch(format!("{error}; use a newer client"))
            }
            BatchError::Codec(_) => AppendError::UnsupportedCompression(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_records_are_counted_and_the_first_hundred_listed() {
        let mut errors = RecordErrors::default();
        for index in 0..1_000 {
            errors.add(index, || format!("bad {index}"));
        }
        assert_eq!(errors.count(), 1_000);
        assert_eq!(errors.listed().len(), RECORD_ERRORS_MAX);
        let error = AppendError::InvalidRecord(errors);
        assert_eq!(
            error.to_string(),
            "invalid record: 1000 of the batch's records, first at index 0: bad 0"
        );
        assert_eq!(error.record_errors()[7].batch_index, 7);
    }

    #[test]
    fn size_errors_name_both_numbers_and_the_setting() {
        let (size, limit) = (ByteCount(2_000), ByteCount(1_000));
        let text = AppendError::MessageTooLarge { size, limit }.to_string();
        for part in ["2000", "1000", "max.message.bytes"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }
}
