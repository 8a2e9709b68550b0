//! EndTxn: the decision.
//!
//! With transaction version 2 the epoch is raised by every end, so an epoch tells a request that
//! comes twice from the end of the next transaction; `now` is the epoch that the coordinator has:
//!
//! ```text
//!                    abort, epoch now-1   abort, epoch now   commit, now-1   commit, now
//! Empty              fenced               raise the epoch    fenced          invalid state
//! CompleteAbort      as answered          raise the epoch    invalid state   invalid state
//! CompleteCommit     invalid state        raise the epoch    as answered     invalid state
//! ```
//!
//! Before version 2 the epoch stays, and the end that a transaction had is answered again.

use crate::coordinator::transactions::change::Change;
use crate::coordinator::transactions::state::{
    State, Transaction, TransactionVersion, is_exhausted, raised,
};
use crate::coordinator::transactions::{
    Entry, Outcome, Producer, Refused, TransactionalId, Transactions,
};
use crate::units::{ProducerEpoch, ProducerId, Timestamp};

/// The request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// The transactional id.
    pub id: TransactionalId,
    /// Who ends its transaction.
    pub producer: Producer,
    /// Whether the records count.
    pub commits: bool,
    /// What the client speaks: version 2 from EndTxn 5 on.
    pub version: TransactionVersion,
}

/// The answer to an end that needs no record: the producer as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended(pub Producer);

/// A producer whose epoch is the last one before the largest gets a new id.
const LAST_EPOCH: ProducerEpoch = ProducerEpoch(i16::MAX - 1);

impl Transactions {
    /// Decides the producer's transaction. The answer leaves when the change is written: with the
    /// producer of [`super::MarkersDue::producer`].
    ///
    /// # Errors
    /// [`Refused`].
    pub fn end(
        &mut self,
        request: &End,
        fresh: Option<ProducerId>,
        now: Timestamp,
    ) -> Result<Outcome<Ended>, Refused> {
        let entry = self.entry(&request.id)?;
        if request.version.raises_epoch() {
            entry.end_raising(request, fresh, now)
        } else {
            entry.end_plainly(request, now)
        }
    }
}

impl Entry {
    /// `endTransactionWithTV1`.
    fn end_plainly(&mut self, request: &End, now: Timestamp) -> Result<Outcome<Ended>, Refused> {
        let producer = request.producer;
        if self.now.producer_id != producer.id {
            return Err(Refused::Mapping);
        }
        if self.now.epoch != producer.epoch {
            return Err(Refused::Fenced);
        }
        if self.pending.is_some() {
            return Err(Refused::Concurrent);
        }
        match (self.now.state, request.commits) {
            (State::Ongoing, commits) => {
                let mut to = self.now.decided(commits, now);
                to.version = TransactionVersion::Zero;
                to.next_producer_id = ProducerId::NONE;
                Ok(Outcome::Change(self.change(&request.id, to)))
            }
            (State::CompleteCommit, true) | (State::CompleteAbort, false) => {
                Ok(Outcome::Answer(Ended(Producer::NONE)))
            }
            (State::PrepareCommit, true) | (State::PrepareAbort, false) => Err(Refused::Concurrent),
            (state, _) => Err(Refused::State(state)),
        }
    }

    /// The same with version 2.
    fn end_raising(
        &mut self,
        request: &End,
        fresh: Option<ProducerId>,
        now: Timestamp,
    ) -> Result<Outcome<Ended>, Refused> {
        if self.pending.is_some() {
            // First of all: the client may know itself already as what the change makes of it.
            return Err(Refused::Concurrent);
        }
        let comes_twice = self.comes_twice(request.producer);
        let has_new_id = self.has_new_id_since(request.producer);
        if self.now.producer_id != request.producer.id && !has_new_id {
            return Err(Refused::Mapping);
        }
        let is_current = request.producer.epoch == self.now.epoch;
        let is_valid = match self.now.state {
            State::Ongoing | State::Empty | State::Dead => is_current,
            State::PrepareCommit | State::PrepareAbort => comes_twice,
            State::CompleteCommit | State::CompleteAbort => comes_twice || has_new_id || is_current,
        };
        if !is_valid {
            return Err(Refused::Fenced);
        }
        let is_retry = comes_twice || has_new_id;
        match (self.now.state, request.commits) {
            (State::Ongoing, _) => self.decide(request, fresh, now),
            (State::CompleteCommit, true) | (State::CompleteAbort, false) if is_retry => {
                let producer = Producer { id: self.now.producer_id, epoch: self.now.epoch };
                Ok(Outcome::Answer(Ended(producer)))
            }
            // A client can't know whether its first record has arrived: it may end what isn't.
            (State::CompleteCommit | State::CompleteAbort | State::Empty, false) if !is_retry => {
                self.decide(request, fresh, now)
            }
            (State::PrepareCommit, true) | (State::PrepareAbort, false) => Err(Refused::Concurrent),
            (state, _) => Err(Refused::State(state)),
        }
    }

    /// Whether the request is the one that raised the epoch.
    fn comes_twice(&self, producer: Producer) -> bool {
        i32::from(self.now.epoch.0) == i32::from(producer.epoch.0) + 1
    }

    /// The same, when the epochs were used up and the producer got a new id.
    fn has_new_id_since(&self, producer: Producer) -> bool {
        self.now.previous_producer_id == producer.id
            && producer.epoch == LAST_EPOCH
            && self.now.epoch == ProducerEpoch(0)
    }

    fn decide(
        &mut self,
        request: &End,
        fresh: Option<ProducerId>,
        now: Timestamp,
    ) -> Result<Outcome<Ended>, Refused> {
        let is_used_up = is_exhausted(self.now.epoch);
        if is_used_up && fresh.is_none() {
            return Ok(Outcome::NeedsProducerId);
        }
        let mut to = self.now.decided(request.commits, now);
        if self.now.state != State::Ongoing {
            // There is no time at which it began, but the record has one.
            to.started = now;
        }
        to.raise(request.version);
        to.next_producer_id = fresh.filter(|_| is_used_up).unwrap_or(ProducerId::NONE);
        Ok(Outcome::Change(self.change(&request.id, to)))
    }

    /// Shuts out whoever has the id, and aborts its open transaction (`prepareFenceProducerEpoch`).
    /// Nobody gets the epoch that it has then. `None` when that takes a fresh producer id.
    pub(super) fn fence(
        &mut self,
        id: &TransactionalId,
        version: TransactionVersion,
        fresh: Option<ProducerId>,
        now: Timestamp,
    ) -> Option<Change> {
        assert_eq!(self.now.state, State::Ongoing, "only what is open is aborted");
        let mut to = self.now.decided(false, now);
        to.next_producer_id = ProducerId::NONE;
        if version.raises_epoch() {
            if is_exhausted(self.now.epoch) {
                to.next_producer_id = fresh?;
            }
            to.raise(version);
        } else {
            (to.epoch, to.last_epoch) = (raised(to.epoch), ProducerEpoch(-1));
            to.version = TransactionVersion::Zero;
        }
        Some(Change { is_fence: true, ..self.change(id, to) })
    }
}

impl Transaction {
    fn decided(&self, commits: bool, now: Timestamp) -> Transaction {
        let state = if commits { State::PrepareCommit } else { State::PrepareAbort };
        let mut to = self.next(state);
        to.updated = now;
        to
    }

    fn raise(&mut self, version: TransactionVersion) {
        self.last_epoch = self.epoch;
        self.epoch = raised(self.epoch);
        self.version = version;
    }
}
