//! AddPartitionsToTxn, AddOffsetsToTxn, and the question whether a partition belongs to a
//! transaction (KIP-890).

use std::collections::BTreeSet;

use crate::coordinator::transactions::record;
use crate::coordinator::transactions::state::{State, TopicPartition, TransactionVersion};
use crate::coordinator::transactions::{
    Outcome, Producer, Refused, TRANSACTION_BYTES_MAX, TRANSACTION_PARTITIONS_MAX, TransactionalId,
    Transactions,
};
use crate::units::Timestamp;

/// The answer to a partition that was added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Added;

impl Transactions {
    /// Adds partitions to the producer's transaction; the first one begins it.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn add_partitions(
        &mut self,
        (id, producer): (&TransactionalId, Producer),
        partitions: &BTreeSet<TopicPartition>,
        version: TransactionVersion,
        now: Timestamp,
    ) -> Result<Outcome<Added>, Refused> {
        let entry = self.entry(id)?;
        if entry.pending.is_some() {
            return Err(Refused::Concurrent);
        }
        entry.now.check_producer(producer)?;
        let is_ongoing = entry.now.state == State::Ongoing;
        if is_ongoing && partitions.is_subset(&entry.now.partitions) {
            return Ok(Outcome::Answer(Added));
        }
        let mut to = entry.now.next(State::Ongoing);
        to.partitions.extend(partitions.iter().cloned());
        if TRANSACTION_PARTITIONS_MAX < to.partitions.len()
            || TRANSACTION_BYTES_MAX < record::value_bytes_max(&to)
                && TRANSACTION_BYTES_MAX < record::encode_value(&to).len()
        {
            return Err(Refused::TooManyPartitions);
        }
        if !is_ongoing {
            to.started = now;
        }
        (to.updated, to.version) = (now, version);
        Ok(Outcome::Change(entry.change(id, to)))
    }

    /// Which of these partitions belong to the producer's transaction
    /// (`handleVerifyPartitionsInTransaction`). The others are TRANSACTION_ABORTABLE. A change on
    /// its way doesn't matter: the log has the last word.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn verify_partitions(
        &mut self,
        (id, producer): (&TransactionalId, Producer),
        partitions: &BTreeSet<TopicPartition>,
    ) -> Result<BTreeSet<TopicPartition>, Refused> {
        let entry = self.entry(id)?;
        entry.now.check_producer(producer)?;
        if entry.now.state.is_prepared() {
            return Err(Refused::Concurrent);
        }
        Ok(partitions.intersection(&entry.now.partitions).cloned().collect())
    }
}

impl super::Transaction {
    fn check_producer(&self, producer: Producer) -> Result<(), Refused> {
        if self.producer_id != producer.id {
            return Err(Refused::Mapping);
        }
        if self.epoch != producer.epoch {
            return Err(Refused::Fenced);
        }
        Ok(())
    }
}
