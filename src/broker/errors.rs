//! From the layers below to Kafka's error codes: lists and nothing more.

use std::cell::Cell;
use std::fmt;
use std::time::{Duration, Instant};

use crate::coordinator::transactions::Refused;
use crate::log::{self, AppendError};
use crate::shard::ReadError;
use crate::wire::error::ErrorCode;

/// Why a request, or one part of it, is not carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// What the client sees.
    pub code: ErrorCode,
    /// What is wrong and what to do; goes to the client where the protocol has a place for it.
    pub message: String,
}

impl Refusal {
    /// A refusal with its reason.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// The code of a refused append.
pub fn of_append(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::CorruptMessage(_) => ErrorCode::CorruptMessage,
        AppendError::MessageTooLarge { .. } => ErrorCode::MessageTooLarge,
        AppendError::RecordListTooLarge { .. } => ErrorCode::RecordListTooLarge,
        AppendError::DecompressedTooLarge { .. } => ErrorCode::MessageTooLarge,
        AppendError::InvalidTimestamp(_) => ErrorCode::InvalidTimestamp,
        AppendError::TooManyProducers { .. } => ErrorCode::PolicyViolation,
        AppendError::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
        AppendError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
        AppendError::InvalidTxnState { .. } => ErrorCode::InvalidTxnState,
        AppendError::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
        AppendError::Offline { .. } | AppendError::NoSpace { .. } => ErrorCode::KafkaStorageError,
        AppendError::UnsupportedCompression(_) => ErrorCode::UnsupportedCompressionType,
        AppendError::InvalidBatch(_) | AppendError::InvalidRecord(_) => ErrorCode::InvalidRecord,
    }
}

/// The code of what a transaction coordinator refuses.
pub fn of_transaction(refused: &Refused) -> ErrorCode {
    match refused {
        Refused::EmptyId => ErrorCode::InvalidRequest,
        Refused::Timeout { .. } => ErrorCode::InvalidTransactionTimeout,
        Refused::Mapping => ErrorCode::InvalidProducerIdMapping,
        Refused::Fenced => ErrorCode::ProducerFenced,
        Refused::Concurrent => ErrorCode::ConcurrentTransactions,
        Refused::State(_) => ErrorCode::InvalidTxnState,
        Refused::NotFound => ErrorCode::TransactionalIdNotFound,
        Refused::TooManyIds | Refused::TooManyPartitions => ErrorCode::PolicyViolation,
    }
}

/// The code of a failed read. A damaged batch is a fault of our storage, not of the client: Kafka's
/// CORRUPT_MESSAGE would end the consumer.
pub fn of_read(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::Log(log::ReadError::OffsetOutOfRange { .. }) => ErrorCode::OffsetOutOfRange,
        ReadError::Log(log::ReadError::Offline(_))
        | ReadError::Disk(_)
        | ReadError::Corrupt { .. } => ErrorCode::KafkaStorageError,
    }
}

/// Lines about clients' faults that a shard writes in a second; the rest is counted.
const COMPLAINTS_PER_SECOND_MAX: u32 = 10;

/// Time between two lines about what clients do in good faith.
const RARE: Duration = Duration::from_secs(60);

/// Keeps a client that does the same thing wrong a thousand times a second from filling the log.
#[derive(Debug)]
pub struct Complaints {
    second: Cell<Instant>,
    written: Cell<u32>,
    suppressed: Cell<u64>,
    /// When the last of the rare lines was written.
    rare: Cell<Option<Instant>>,
}

impl Default for Complaints {
    fn default() -> Complaints {
        Complaints {
            second: Cell::new(Instant::now()),
            written: Cell::new(0),
            suppressed: Cell::new(0),
            rare: Cell::new(None),
        }
    }
}

impl Complaints {
    /// Writes a line, unless too many came within this second.
    pub fn write(&self, now: Instant, line: impl FnOnce() -> String) {
        if now.duration_since(self.second.get()) >= Duration::from_secs(1) {
            self.second.set(now);
            self.written.set(0);
            let suppressed = self.suppressed.take();
            if suppressed > 0 {
                tracing::warn!("{suppressed} more such lines were left out");
            }
        }
        if self.written.get() < COMPLAINTS_PER_SECOND_MAX {
            self.written.set(self.written.get() + 1);
            let line = line();
            tracing::warn!("{line}");
        } else {
            self.suppressed.set(self.suppressed.get() + 1);
        }
    }
}

impl Complaints {
    /// Writes a line about what clients do again and again in good faith, once a minute.
    pub fn write_rarely(&self, now: Instant, line: impl FnOnce() -> String) {
        if self.rare.get().is_none_or(|last| now.duration_since(last) >= RARE) {
            self.rare.set(Some(now));
            let line = line();
            tracing::info!("{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_bounded_per_second() {
        let complaints = Complaints::default();
        let start = Instant::now();
        let mut written = 0;
        for _ in 0..1_000 {
            complaints.write(start, || {
                written += 1;
                String::new()
            });
        }
        assert_eq!(written, COMPLAINTS_PER_SECOND_MAX);
        complaints.write(start + Duration::from_secs(2), || {
            written += 1;
            String::new()
        });
        assert_eq!(written, COMPLAINTS_PER_SECOND_MAX + 1);
    }
    #[test]
    fn what_is_done_in_good_faith_is_said_once_a_minute() {
        let complaints = Complaints::default();
        let start = Instant::now();
        let mut written = Vec::new();
        for second in 0..121 {
            let now = start + Duration::from_secs(second);
            complaints.write_rarely(now, || {
                written.push(second);
                String::new()
            });
        }
        assert_eq!(written, [0, 60, 120]);
    }
}
