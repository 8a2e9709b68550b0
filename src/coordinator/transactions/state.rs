//! What is remembered of a transactional id.

use std::collections::BTreeSet;

use crate::format::names::TopicName;
use crate::units::{PartitionId, ProducerEpoch, ProducerId, Timestamp};

/// How far a transaction is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// The producer has an id and no transaction yet.
    Empty,
    /// It has partitions.
    Ongoing,
    /// It will be committed, whatever happens.
    PrepareCommit,
    /// It will be aborted, whatever happens.
    PrepareAbort,
    /// All partitions know that it is committed.
    CompleteCommit,
    /// All partitions know that it is aborted.
    CompleteAbort,
    /// The id is being forgotten; never in a record.
    Dead,
}

impl State {
    /// Every state, by its number.
    pub const ALL: [State; 7] = [
        State::Empty,
        State::Ongoing,
        State::PrepareCommit,
        State::PrepareAbort,
        State::CompleteCommit,
        State::CompleteAbort,
        State::Dead,
    ];

    /// Its number in records.
    pub fn to_wire(self) -> i8 {
        match self {
            State::Empty => 0,
            State::Ongoing => 1,
            State::PrepareCommit => 2,
            State::PrepareAbort => 3,
            State::CompleteCommit => 4,
            State::CompleteAbort => 5,
            State::Dead => 6,
        }
    }

    /// The state with this number.
    pub fn from_wire(number: i8) -> Option<State> {
        State::ALL.into_iter().find(|state| state.to_wire() == number)
    }

    /// As Kafka's tools print it.
    pub fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::Ongoing => "Ongoing",
            State::PrepareCommit => "PrepareCommit",
            State::PrepareAbort => "PrepareAbort",
            State::CompleteCommit => "CompleteCommit",
            State::CompleteAbort => "CompleteAbort",
            State::Dead => "Dead",
        }
    }

    /// Whether it is decided, and not every partition knows.
    pub fn is_prepared(self) -> bool {
        matches!(self, State::PrepareCommit | State::PrepareAbort)
    }
}

/// Which transaction protocol a client speaks, or the broker has finalized (`transaction.version`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TransactionVersion {
    /// Records without tagged fields.
    Zero,
    /// Records with tagged fields.
    One,
    /// Every end raises the epoch (KIP-890, part 2).
    Two,
}

impl TransactionVersion {
    /// The feature's level.
    pub fn level(self) -> i16 {
        match self {
            TransactionVersion::Zero => 0,
            TransactionVersion::One => 1,
            TransactionVersion::Two => 2,
        }
    }

    /// The version of this level.
    pub fn of_level(level: i16) -> Option<TransactionVersion> {
        use TransactionVersion::{One, Two, Zero};
        [Zero, One, Two].into_iter().find(|version| version.level() == level)
    }

    /// Whether every end of a transaction raises the producer's epoch.
    pub fn raises_epoch(self) -> bool {
        self == TransactionVersion::Two
    }
}

/// A partition that a transaction writes to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicPartition {
    /// Its topic.
    pub topic: TopicName,
    /// Its number.
    pub partition: PartitionId,
}

impl std::fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// What a record says of a transactional id, and two things that only memory has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// The id that the producer has.
    pub producer_id: ProducerId,
    /// The one that it had before the last record.
    pub previous_producer_id: ProducerId,
    /// The one that it will have when this transaction is over, since the epochs are used up.
    pub next_producer_id: ProducerId,
    /// The epoch that the producer has.
    pub epoch: ProducerEpoch,
    /// The one before, to recognise a request that comes twice; not in records.
    pub last_epoch: ProducerEpoch,
    /// The coordinator aborts a transaction that is open for longer.
    pub timeout_ms: i32,
    /// How far the transaction is.
    pub state: State,
    /// What it wrote to; while it is being ended, those that don't know of it yet.
    pub partitions: BTreeSet<TopicPartition>,
    /// When the first partition was added.
    pub started: Timestamp,
    /// When it last changed.
    pub updated: Timestamp,
    /// What the client spoke at the last change.
    pub version: TransactionVersion,
}

/// The largest epoch but one: a producer never gets the largest, so that it can be shut out.
const LAST_USABLE_EPOCH: ProducerEpoch = ProducerEpoch(i16::MAX - 1);

/// Whether the epochs of a producer id are used up.
pub(super) fn is_exhausted(epoch: ProducerEpoch) -> bool {
    LAST_USABLE_EPOCH <= epoch
}

impl Transaction {
    /// That of an id that is new to the coordinator, before its first record.
    pub(super) fn new(producer_id: ProducerId, timeout_ms: i32, now: Timestamp) -> Transaction {
        Transaction {
            producer_id,
            previous_producer_id: ProducerId::NONE,
            next_producer_id: ProducerId::NONE,
            epoch: ProducerEpoch(-1),
            last_epoch: ProducerEpoch(-1),
            timeout_ms,
            state: State::Empty,
            partitions: BTreeSet::new(),
            started: Timestamp::NONE,
            updated: now,
            version: TransactionVersion::Zero,
        }
    }

    /// Where each change starts from: what is now, with the present producer id as the former one.
    pub(super) fn next(&self, state: State) -> Transaction {
        Transaction { state, previous_producer_id: self.producer_id, ..self.clone() }
    }
}

/// One more, or the largest.
pub(super) fn raised(epoch: ProducerEpoch) -> ProducerEpoch {
    ProducerEpoch(epoch.0.saturating_add(1))
}
