//! The transaction coordinator: what it remembers of each transactional id, and what it answers.
//!
//! One [`Transactions`] looks after the ids of one partition of `__transaction_state`. An event
//! either has its answer at once or is a [`Change`] with a record. The state runs ahead of the log;
//! answers and markers wait until the record is durable, see [`Coordinator`].
//!
//! [`Coordinator`]: crate::coordinator::Coordinator
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

mod machine;

#[cfg(test)]
mod crash;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use change::{Change, MarkersDue};
pub use end::{End, Ended};
pub use init::Init;
pub use machine::{Answer, Effect, Request};
pub use partitions::Added;
pub use record::{LoadError, Record};
pub use state::{State, TopicPartition, Transaction, TransactionVersion};
pub use view::{Described, Filter, Listed};

use crate::coordinator::transactions::machine::Timers;
use crate::units::{ProducerEpoch, ProducerId, Timestamp};

/// A transactional id. Cheap to clone.
pub type TransactionalId = Arc<str>;

/// Transactional ids that one partition of `__transaction_state` may have, about 50 MB. Kafka has
/// no limit; ids that nobody uses go after `transactional.id.expiration.ms`.
pub const TRANSACTIONAL_IDS_MAX: usize = 100_000;

/// Partitions that one transaction may have.
pub const TRANSACTION_PARTITIONS_MAX: usize = 10_000;

/// Bytes that the record of one transaction may have: it has to fit into a batch of the default
/// `max.message.bytes`.
pub const TRANSACTION_BYTES_MAX: usize = 900 << 10;

/// Settings of the coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Longest timeout that a producer may ask for (`transaction.max.timeout.ms`).
    pub timeout_ms_max: i32,
    /// How long an unused id is kept (`transactional.id.expiration.ms`).
    pub id_expiration_ms: u64,
    /// How often transactions that are open for too long are looked for
    /// (`transaction.abort.timed.out.transaction.cleanup.interval.ms`).
    pub abort_interval_ms: u64,
    /// How often unused ids are looked for
    /// (`transaction.remove.expired.transaction.cleanup.interval.ms`).
    pub expiration_interval_ms: u64,
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
    #[error(
        "a transaction has at most {TRANSACTION_PARTITIONS_MAX} partitions, with names that fit \
         into {TRANSACTION_BYTES_MAX} bytes"
    )]
    TooManyPartitions,
}

/// What becomes of an event that isn't refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome<T> {
    /// Nothing to write.
    Answer(T),
    /// Ask again with a producer id that nobody has had.
    NeedsProducerId,
    /// Write it, then hand it to [`Transactions::written`]. When it can't be written the whole
    /// state is read from the log again.
    Change(Change),
}

/// One transactional id: what is durable, and what is on the way.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    now: Transaction,
    /// The state that a change under way leads to.
    pending: Option<State>,
}

impl Entry {
    fn new(now: Transaction) -> Entry {
        Entry { now, pending: None }
    }
}

/// The transactional ids of one partition of `__transaction_state`.
#[derive(Clone, Debug)]
pub struct Transactions {
    settings: Settings,
    timers: Timers,
    // Ordered, so that the same history always gives the same state.
    entries: BTreeMap<TransactionalId, Entry>,
}

impl Transactions {
    /// A coordinator that knows no id yet.
    pub fn new(settings: Settings) -> Transactions {
        Transactions { settings, timers: Timers::default(), entries: BTreeMap::new() }
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
