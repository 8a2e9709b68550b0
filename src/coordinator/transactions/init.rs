//! InitProducerId with a transactional id: who uses it from here on.
//!
//! The epoch is raised, so that a producer that had the id before is shut out. One that names its
//! id and epoch goes on after an error (KIP-360): it must be the newest. A transaction that is
//! still open is aborted first, and the client asks again.

use crate::coordinator::transactions::state::{State, Transaction, is_exhausted, raised};
use crate::coordinator::transactions::{
    Entry, Outcome, Producer, Refused, TRANSACTIONAL_IDS_MAX, TransactionalId, Transactions,
};
use crate::units::{ProducerEpoch, ProducerId, Timestamp};

const EPOCH_NONE: ProducerEpoch = ProducerEpoch(-1);

/// The request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Init {
    /// The transactional id.
    pub id: TransactionalId,
    /// The coordinator aborts transactions that are open for longer.
    pub timeout_ms: i32,
    /// Who the client was, when it goes on after an error.
    pub expected: Option<Producer>,
}

impl Transactions {
    /// Gives the id to whoever asks. `fresh` is a producer id that nobody has had, when one was
    /// asked for by [`Outcome::NeedsProducerId`]. [`super::Change::producer`] is the answer.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn init_producer(
        &mut self,
        request: &Init,
        fresh: Option<ProducerId>,
        now: Timestamp,
    ) -> Result<Outcome<Producer>, Refused> {
        if request.id.is_empty() {
            return Err(Refused::EmptyId);
        }
        let (timeout_ms, limit) = (request.timeout_ms, self.settings.timeout_ms_max);
        if !(1..=limit).contains(&timeout_ms) {
            return Err(Refused::Timeout { timeout_ms, limit });
        }
        let is_full = self.entries.len() >= TRANSACTIONAL_IDS_MAX;
        // One fresh id serves for one purpose only.
        let mut fresh = fresh;
        if !self.entries.contains_key(&request.id) {
            if is_full {
                return Err(Refused::TooManyIds);
            }
            let Some(id) = fresh.take() else { return Ok(Outcome::NeedsProducerId) };
            let new = Transaction::new(id, timeout_ms, now);
            self.entries.insert(request.id.clone(), Entry::new(new));
        }
        let version = self.settings.version;
        let entry = self.entry(&request.id)?;
        if entry.pending.is_some() {
            return Err(Refused::Concurrent);
        }
        if request.expected.is_some_and(|expected| !entry.may_be(expected)) {
            return Err(Refused::Fenced);
        }
        match entry.now.state {
            State::PrepareCommit | State::PrepareAbort => Err(Refused::Concurrent),
            State::Ongoing => Ok(match entry.fence(&request.id, version, fresh, now) {
                Some(change) => Outcome::Change(change),
                None => Outcome::NeedsProducerId,
            }),
            State::Empty | State::CompleteCommit | State::CompleteAbort | State::Dead => {
                let mut to = match entry.next_holder(request.expected, fresh)? {
                    Some(to) => to,
                    None => return Ok(Outcome::NeedsProducerId),
                };
                to.timeout_ms = timeout_ms;
                to.partitions.clear();
                (to.started, to.updated) = (Timestamp::NONE, now);
                Ok(Outcome::Change(entry.change(&request.id, to)))
            }
        }
    }
}

impl Entry {
    /// Whether a producer that names this id may be the one that has it: it is; or the entry is
    /// new, so that no answer has left; or it asks again after its epochs were used up.
    fn may_be(&self, expected: Producer) -> bool {
        self.now.epoch == EPOCH_NONE
            || expected.id == self.now.producer_id
            || (expected.id == self.now.previous_producer_id && is_exhausted(expected.epoch))
    }

    /// The entry with the epoch, or with the producer id, of the next one who has it; `None` when
    /// it takes a fresh id (`prepareIncrementProducerEpoch`, `prepareProducerIdRotation`).
    fn next_holder(
        &self,
        expected: Option<Producer>,
        fresh: Option<ProducerId>,
    ) -> Result<Option<Transaction>, Refused> {
        let epoch = self.now.epoch;
        let mut to = self.now.next(State::Empty);
        if is_exhausted(epoch) && expected.is_none_or(|expected| expected.epoch == epoch) {
            let Some(id) = fresh else { return Ok(None) };
            (to.producer_id, to.epoch) = (id, ProducerEpoch(0));
            to.last_epoch = if expected.is_some() { epoch } else { EPOCH_NONE };
            return Ok(Some(to));
        }
        match expected {
            None => (to.epoch, to.last_epoch) = (raised(epoch), EPOCH_NONE),
            Some(expected) if epoch == EPOCH_NONE || expected.epoch == epoch => {
                (to.epoch, to.last_epoch) = (raised(epoch), epoch);
            }
            // It asks again: the answer was lost.
            Some(expected) if expected.epoch == self.now.last_epoch => {}
            Some(_) => return Err(Refused::Fenced),
        }
        Ok(Some(to))
    }
}
