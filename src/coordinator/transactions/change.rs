//! Changes on their way to the log, and what is due when they have got there.

use crate::coordinator::transactions::record::Record;
use crate::coordinator::transactions::state::{State, TopicPartition, Transaction};
use crate::coordinator::transactions::{Entry, Producer, TransactionalId, Transactions};
use crate::log::producers::Marker;
use crate::units::{LeaderEpoch, ProducerEpoch, ProducerId, Timestamp};

/// A new state of a transactional id, to be made durable.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "the id stays busy until the change is written or has failed"]
pub struct Change {
    pub(super) id: TransactionalId,
    pub(super) to: Transaction,
    /// Whether it shuts out a producer whose transaction is open.
    pub(super) is_fence: bool,
}

impl Change {
    /// Whose it is.
    pub fn id(&self) -> &TransactionalId {
        &self.id
    }

    /// Key and value of its record; no value for an id that is forgotten.
    pub fn record(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        let transaction = (self.to.state != State::Dead).then(|| self.to.clone());
        Record { id: self.id.clone(), transaction }.encode()
    }

    /// The producer as it is afterwards: the answer to InitProducerId. `None` when a transaction
    /// had to be ended first: CONCURRENT_TRANSACTIONS, and the client asks again.
    pub fn producer(&self) -> Option<Producer> {
        (!self.is_fence).then_some(Producer { id: self.to.producer_id, epoch: self.to.epoch })
    }

    /// The state that it leads to.
    pub fn state(&self) -> State {
        self.to.state
    }
}

/// A decided transaction: every partition is to get the marker, then the last change is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MarkersDue {
    /// Whose transaction.
    pub id: TransactionalId,
    /// Who produced; the epoch is the marker's.
    pub marked: Producer,
    /// Whether each marker raises the producer's epoch (transaction version 2).
    pub raises_epoch: bool,
    /// Whether the records count.
    pub commits: bool,
    /// Which ones.
    pub partitions: Vec<TopicPartition>,
    /// What is written when all have it.
    pub complete: Change,
}

impl MarkersDue {
    /// What the partitions get. `coordinator_epoch` is the leader epoch of the coordinator's
    /// partition: of two coordinators the newer one wins.
    pub fn marker(&self, coordinator_epoch: LeaderEpoch) -> Marker {
        Marker {
            producer_id: self.marked.id,
            epoch: self.marked.epoch,
            raises_epoch: self.raises_epoch,
            coordinator_epoch: coordinator_epoch.0,
            commits: self.commits,
        }
    }

    /// The producer as it is when the transaction is over: what EndTxn 5 answers.
    pub fn producer(&self) -> Producer {
        Producer { id: self.complete.to.producer_id, epoch: self.complete.to.epoch }
    }
}

impl Transactions {
    /// The change counts from here on. Returns the markers that are due when its record is durable.
    ///
    /// # Panics
    /// When the change isn't the one that is under way.
    pub fn written(&mut self, change: &Change, now: Timestamp) -> Option<MarkersDue> {
        let entry = self.pending(change);
        entry.pending = None;
        if change.to.state == State::Dead {
            self.entries.remove(&change.id);
            return None;
        }
        entry.now = change.to.clone();
        entry.now.state.is_prepared().then(|| self.markers_of(&change.id, now))
    }

    fn pending(&mut self, change: &Change) -> &mut Entry {
        let entry = self.entries.get_mut(&change.id).expect("an id with a change stays");
        assert_eq!(entry.pending, Some(change.to.state), "one change at a time");
        entry
    }

    /// Whether this is the change that a decided transaction still waits for. After the state was
    /// read again the same markers are written again, and the first round's end may come late.
    pub(super) fn awaits(&self, change: &Change) -> bool {
        self.entries.get(&change.id).is_some_and(|entry| {
            entry.now.state.is_prepared()
                && entry.pending == Some(change.to.state)
                && entry.now.producer_id == change.to.previous_producer_id
                && entry.now.started == change.to.started
        })
    }

    /// A partition has the marker.
    pub fn marked(&mut self, id: &str, partition: &TopicPartition) {
        if let Some(entry) = self.entries.get_mut(id)
            && entry.now.state.is_prepared()
        {
            entry.now.partitions.remove(partition);
        }
    }

    /// What a decided transaction still has to do. From here to its last record it is busy.
    pub(super) fn markers_of(&mut self, id: &TransactionalId, now: Timestamp) -> MarkersDue {
        let entry = self.entries.get_mut(id).expect("a decided transaction has an entry");
        let complete = entry.complete(now);
        entry.pending = Some(complete.state);
        MarkersDue {
            id: id.clone(),
            marked: Producer { id: entry.now.producer_id, epoch: entry.now.epoch },
            raises_epoch: entry.now.version.raises_epoch(),
            commits: entry.now.state == State::PrepareCommit,
            partitions: entry.now.partitions.iter().cloned().collect(),
            complete: Change { id: id.clone(), to: complete, is_fence: false },
        }
    }
}

impl Entry {
    /// A change to be written; the entry is busy from here on.
    pub(super) fn change(&mut self, id: &TransactionalId, to: Transaction) -> Change {
        assert_eq!(self.pending, None, "one change at a time");
        self.pending = Some(to.state);
        Change { id: id.clone(), to, is_fence: false }
    }

    /// The end of a decided transaction (`prepareComplete`). A producer whose epochs are used up
    /// goes on with its next id, while the last epoch stays the one that the client knows.
    fn complete(&mut self, now: Timestamp) -> Transaction {
        assert!(self.now.state.is_prepared());
        let state = match self.now.state {
            State::PrepareCommit => State::CompleteCommit,
            _ => State::CompleteAbort,
        };
        let mut to = self.now.next(state);
        if self.now.version.raises_epoch() && self.now.next_producer_id != ProducerId::NONE {
            to.producer_id = self.now.next_producer_id;
            to.epoch = ProducerEpoch(0);
        }
        to.next_producer_id = ProducerId::NONE;
        to.partitions.clear();
        to.updated = now;
        to
    }
}
