//! DescribeTransactions and ListTransactions.

use std::collections::BTreeSet;

use crate::coordinator::transactions::state::{State, Transaction};
use crate::coordinator::transactions::{Refused, TransactionalId, Transactions};
use crate::units::{ProducerId, Timestamp};

/// What DescribeTransactions says of an id.
pub type Described = Transaction;

/// What ListTransactions says of an id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The id.
    pub id: TransactionalId,
    /// Its producer.
    pub producer_id: ProducerId,
    /// How far its transaction is.
    pub state: State,
}

/// What ListTransactions lists; the empty filter lists everything.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Filter {
    /// Only these producers, unless it is empty.
    pub producer_ids: BTreeSet<ProducerId>,
    /// Only these states; `Some` of none lists nothing.
    pub states: Option<BTreeSet<State>>,
    /// Only what began longer ago than this many milliseconds; negative: all.
    pub duration_ms: i64,
}

impl Transactions {
    /// One id.
    ///
    /// # Errors
    /// [`Refused::EmptyId`], [`Refused::NotFound`].
    pub fn describe(&self, id: &str) -> Result<&Described, Refused> {
        if id.is_empty() {
            return Err(Refused::EmptyId);
        }
        let entry = self.entries.get(id).ok_or(Refused::NotFound)?;
        Ok(&entry.now)
    }

    /// All ids that the filter lets pass.
    pub fn list(&self, filter: &Filter, now: Timestamp) -> impl Iterator<Item = Listed> {
        let passes = move |it: &Transaction| {
            let is_wanted =
                filter.producer_ids.is_empty() || filter.producer_ids.contains(&it.producer_id);
            let has_state = filter.states.as_ref().is_none_or(|states| states.contains(&it.state));
            let age_ms = now.0.saturating_sub(it.started.0);
            is_wanted && has_state && (filter.duration_ms < 0 || filter.duration_ms < age_ms)
        };
        let entries = self.entries.iter().filter(move |(_, entry)| passes(&entry.now));
        entries.map(|(id, entry)| Listed {
            id: id.clone(),
            producer_id: entry.now.producer_id,
            state: entry.now.state,
        })
    }
}
