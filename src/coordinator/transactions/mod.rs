//! The transaction coordinator: what it remembers of each transactional id, and what it answers.
//!
//! One [`Transactions`] looks after the ids of one partition of `__transaction_state`. An event
//! either has its answer at once or is a [`Change`]: its record must be durable before anybody
//! hears of it. Until then the id is busy and everybody else is told CONCURRENT_TRANSACTIONS, so
//! there is one change of an id under way at a time.
//!
//! ```text
//!            AddPartitions          EndTxn                 markers written
//!     Empty ---------------> Ongoing ------> PrepareCommit ---------------> CompleteCommit
//!       ^                       |  \                                            |
//!       |                       |   +------> PrepareAbort ----------------> CompleteAbort
//!       |                       +-- timeout, InitProducerId --^                 |
//!       +------------------------------ InitProducerId -------------------------+
//! ```
//!
//! The decision is the Prepare record: once it is durable, every partition of the transaction gets
//! the marker that it names, at least once and whatever happens in between, and only then the
//! Complete record is written. A start reads the records back and goes on with the markers of all
//! ids that it finds in a Prepare state.
//!
//! Rules and names are those of Kafka's `TransactionCoordinator`, `TransactionMetadata` and
//! `TransactionStateManager`. With transaction version 2 (KIP-890) every end of a transaction
//! raises the producer's epoch, so that nothing of an ended transaction can be taken for the next.

mod state;

mod record;

mod change;

mod init;

mod partitions;

mod end;

mod upkeep;

mod view;

#[cfg(test)]
mod crash;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use change::{Change, MarkersDue};
pub use end::{End, Ended};
pub use init::Init;
pub use partitions::Added;
pub use record::{LoadError, Record};
pub use state::{State, TopicPartition, Transaction, TransactionVersion};
pub use view::{Described, Filter, Listed};

use crate::units::{ProducerEpoch, ProducerId, Timestamp};

/// A transactional id. Cheap to clone.
pub type TransactionalId = Arc<str>;

/// Transactional ids that one partition of `__transaction_state` may have, about 50 MB. Kafka has
/// no limit; ids that nobody uses go after `transactional.id.expiration.ms`.
pub const TRANSACTIONAL_IDS_MAX: usize = 100_000;

/// Partitions that one transaction may have; its record has to fit into one batch.
pub const TRANSACTION_PARTITIONS_MAX: usize = 10_000;

/// Settings of the coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Longest timeout that a producer may ask for (`transaction.max.timeout.ms`).
    pub timeout_ms_max: i32,
    /// How long an unused id is kept (`transactional.id.expiration.ms`).
    pub id_expiration_ms: u64,
    /// The finalized `transaction.version`.
    pub version: TransactionVersion,
}

/// Who produces, as requests name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Producer {
    /// Its id.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
}

impl Producer {
    /// What answers carry when there is none.
    pub const NONE: Producer = Producer { id: ProducerId::NONE, epoch: ProducerEpoch(-1) };
}

/// Why an event changes nothing; each is the Kafka error of that name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// INVALID_REQUEST (42).
    #[error("the transactional id is empty")]
    EmptyId,
    /// INVALID_TRANSACTION_TIMEOUT (50).
    #[error("a transaction timeout of {timeout_ms} ms is not within 1 to {limit}")]
    Timeout {
        /// As asked for.
        timeout_ms: i32,
        /// `transaction.max.timeout.ms`.
        limit: i32,
    },
    /// INVALID_PRODUCER_ID_MAPPING (49).
    #[error("the transactional id is unknown or belongs to another producer id")]
    Mapping,
    /// PRODUCER_FENCED (90).
    #[error("a newer producer has taken the transactional id over")]
    Fenced,
    /// CONCURRENT_TRANSACTIONS (51): ask again soon.
    #[error("the transaction before is still being ended")]
    Concurrent,
    /// INVALID_TXN_STATE (48).
    #[error("a transaction in state {} can't be ended like this", .0.name())]
    State(State),
    /// TRANSACTIONAL_ID_NOT_FOUND (105).
    #[error("there is no such transactional id")]
    NotFound,
    /// POLICY_VIOLATION (44).
    #[error("this partition of the coordinator has {TRANSACTIONAL_IDS_MAX} transactional ids")]
    TooManyIds,
    /// POLICY_VIOLATION (44).
    #[error("a transaction has at most {TRANSACTION_PARTITIONS_MAX} partitions")]
    TooManyPartitions,
}

/// What becomes of an event that isn't refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome<T> {
    /// Nothing to write.
    Answer(T),
    /// Ask again with a producer id that nobody has had.
    NeedsProducerId,
    /// Write it, then hand it to [`Transactions::written`] or [`Transactions::failed`].
    Change(Change),
}

/// One transactional id: what is durable, and what is on the way.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    now: Transaction,
    /// The state that a change under way leads to.
    pending: Option<State>,
    /// Whether the epoch was raised to shut a producer out, and the record of it was lost: it was
    /// never given to anybody, so it need not be raised again.
    has_failed_fence: bool,
}

impl Entry {
    fn new(now: Transaction) -> Entry {
        Entry { now, pending: None, has_failed_fence: false }
    }
}

/// The transactional ids of one partition of `__transaction_state`.
#[derive(Clone, Debug)]
pub struct Transactions {
    settings: Settings,
    /// The leader epoch of the partition, which markers carry: of two coordinators the newer wins.
    coordinator_epoch: i32,
    // Ordered, so that the same history always gives the same state.
    entries: BTreeMap<TransactionalId, Entry>,
}

impl Transactions {
    /// A coordinator that knows no id yet.
    pub fn new(settings: Settings, coordinator_epoch: i32) -> Transactions {
        Transactions { settings, coordinator_epoch, entries: BTreeMap::new() }
    }

    /// Takes over a record of the partition, in their order: the start of a coordinator.
    pub fn load(&mut self, record: Record) {
        match record.transaction {
            Some(transaction) => {
                self.entries.insert(record.id, Entry::new(transaction));
            }
            None => {
                self.entries.remove(&record.id);
            }
        }
    }

    /// After the last record: the markers of transactions that were decided and not finished.
    pub fn resume(&mut self, now: Timestamp) -> Vec<MarkersDue> {
        let is_decided = |entry: &Entry| entry.now.state.is_prepared();
        let decided = self.entries.iter().filter(|(_, entry)| is_decided(entry));
        let ids: Vec<TransactionalId> = decided.map(|(id, _)| id.clone()).collect();
        ids.into_iter().map(|id| self.markers_of(&id, now)).collect()
    }

    /// How many ids there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn entry(&mut self, id: &str) -> Result<&mut Entry, Refused> {
        if id.is_empty() {
            return Err(Refused::EmptyId);
        }
        self.entries.get_mut(id).ok_or(Refused::Mapping)
    }
}

/// Which partition of `__transaction_state` has a transactional id: Java's hash of the string, as
/// Kafka takes it.
pub fn partition_for(id: &str, partitions: u32) -> u32 {
    assert!(partitions > 0, "the topic has partitions");
    // The sign bit goes: of the smallest number there is no absolute value in Java either.
    (java_hash(id) & 0x7fff_ffff) % partitions
}

/// Java's `String.hashCode`, over UTF-16.
fn java_hash(text: &str) -> u32 {
    let step = |hash: u32, unit: u16| hash.wrapping_mul(31).wrapping_add(unit.into());
    text.encode_utf16().fold(0, step)
}
