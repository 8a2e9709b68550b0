//! What the coordinator does by itself: transactions that are open for too long are aborted, ids
//! that nobody uses are forgotten.

use crate::coordinator::transactions::state::State;
use crate::coordinator::transactions::{Change, Entry, Outcome, TransactionalId, Transactions};
use crate::units::{ProducerId, Timestamp};

/// Ids that are forgotten in one go.
pub const EXPIRED_AT_ONCE: usize = 1000;

/// A producer that asks for this never times out: it takes part in a transaction of somebody else
/// (KIP-939).
const NO_TIMEOUT: i32 = i32::MAX;

impl Transactions {
    /// Transactions that have been open for longer than their timeout.
    pub fn timed_out(&self, now: Timestamp) -> Vec<TransactionalId> {
        let due = self.entries.iter().filter(|(_, entry)| entry.is_timed_out(now));
        due.map(|(id, _)| id.clone()).collect()
    }

    /// Aborts a transaction that has been open for longer than its timeout, if it still has. Its
    /// producer is shut out, which may take a fresh producer id.
    pub fn time_out(
        &mut self,
        id: &TransactionalId,
        fresh: Option<ProducerId>,
        now: Timestamp,
    ) -> Option<Outcome<()>> {
        let version = self.settings.version;
        let entry = self.entries.get_mut(id).filter(|entry| entry.is_timed_out(now))?;
        Some(match entry.fence(id, version, fresh, now) {
            Some(change) => Outcome::Change(change),
            None => Outcome::NeedsProducerId,
        })
    }

    /// Forgets ids that have not been used for `transactional.id.expiration.ms`, at most
    /// `EXPIRED_AT_ONCE`.
    pub fn expire_ids(&mut self, now: Timestamp) -> Vec<Change> {
        let expiration_ms = i64::try_from(self.settings.id_expiration_ms).unwrap_or(i64::MAX);
        let limit = Timestamp(now.0.saturating_sub(expiration_ms));
        let unused = self.entries.iter().filter(|(_, entry)| entry.is_unused_since(limit));
        let ids: Vec<TransactionalId> =
            unused.take(EXPIRED_AT_ONCE).map(|(id, _)| id.clone()).collect();
        let forget = |id: TransactionalId| {
            let entry = self.entries.get_mut(&id).expect("it was just found");
            let mut to = entry.now.next(State::Dead);
            to.partitions.clear();
            entry.change(&id, to)
        };
        ids.into_iter().map(forget).collect()
    }
}

impl Entry {
    fn is_timed_out(&self, now: Timestamp) -> bool {
        let is_open = self.now.state == State::Ongoing && self.pending.is_none();
        let end = self.now.started.0.saturating_add(self.now.timeout_ms.into());
        is_open && self.now.timeout_ms != NO_TIMEOUT && end < now.0
    }

    fn is_unused_since(&self, limit: Timestamp) -> bool {
        let is_idle = match self.now.state {
            State::Empty | State::CompleteCommit | State::CompleteAbort => true,
            State::Ongoing | State::PrepareCommit | State::PrepareAbort | State::Dead => false,
        };
        is_idle && self.pending.is_none() && self.now.updated <= limit
    }
}
