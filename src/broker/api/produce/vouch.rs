//! Whether the batches of a transaction belong to it (KIP-890): its coordinator is asked before a
//! partition takes the first one. A batch that comes late would begin a transaction that nobody
//! ends, and hold up readers of committed records for ever.
//!
//! - From Produce 12 on the question adds the partition to the transaction (transaction version
//!   2); before that clients have added it themselves, and it is only looked up.
//! - While the transaction before is still being ended the question is put again for a while
//!   (`add.partitions.to.txn.retry.backoff.max.ms`).
//! - Between the answer and the append the transaction may be ended, by its timeout: then the
//!   partition has a marker that it hadn't before, and the answer counts no longer.

use std::collections::{BTreeMap, BTreeSet};

use crate::broker::api::transactions::{Joining, members};
use crate::broker::errors::Refusal;
use crate::broker::node::Node;
use crate::coordinator::transactions::{Producer, TopicPartition, TransactionalId};
use crate::format::batch::{BatchHeader, RecordBatch};
use crate::log::{AppendError, Appended};
use crate::shard::Partition;
use crate::units::{Offset, PartitionId};
use crate::wire::error::ErrorCode;
use crate::wire::produce::ProduceFrame;

/// First version whose clients know TRANSACTION_ABORTABLE.
const ABORTABLE_FROM: i16 = 11;

/// First version whose batches add their partition to the transaction.
const ADDS_FROM: i16 = 12;

/// What the coordinator says of the partitions that asked; nobody else is in here.
#[derive(Default, Debug)]
pub struct Vouched {
    refused: BTreeMap<TopicPartition, Refusal>,
    /// Where the producer stood when it was asked.
    accepted: BTreeMap<TopicPartition, Option<Offset>>,
}

/// A partition's question: who produces, and where it stood before.
struct Wanted {
    producer: Producer,
    partitions: BTreeMap<TopicPartition, Option<Offset>>,
}

impl Vouched {
    /// Asks for all partitions of a frame that have to.
    ///
    /// # Errors
    /// The code for every partition: batches of a transaction without a transactional id, or of
    /// more than one producer.
    pub async fn of(node: &Node, version: i16, frame: &ProduceFrame) -> Result<Vouched, ErrorCode> {
        let Some(wanted) = Wanted::of(node, frame)? else { return Ok(Vouched::default()) };
        let id = frame.transactional_id.as_ref();
        let id = id.ok_or(ErrorCode::TransactionalIdAuthorizationFailed)?;
        if wanted.partitions.is_empty() {
            return Ok(Vouched::default());
        }
        let joining = match version {
            ..ADDS_FROM => Joining::Asking,
            ADDS_FROM.. => Joining::Writing,
        };
        let id: TransactionalId = id.as_str().into();
        let partitions = wanted.partitions.keys().cloned().collect();
        let answer = members(node, (&id, wanted.producer), &partitions, joining).await;
        Ok(wanted.vouched(version, &answer))
    }

    /// Why a partition may not take its batch.
    pub fn refusal(&self, partition: &TopicPartition) -> Option<&Refusal> {
        self.refused.get(partition)
    }

    /// Appends a batch, with what the coordinator has said of its partition.
    ///
    /// # Errors
    /// As [`Partition::append`].
    pub fn append(
        &self,
        name: &TopicPartition,
        partition: &Partition,
        batch: RecordBatch,
    ) -> Result<Appended, AppendError> {
        let producer_id = batch.header().producer_id;
        let stands = || partition.standing(producer_id).map(|it| it.last_offset);
        match self.accepted.get(name) {
            Some(stood) if *stood == stands() => partition.append_verified(batch),
            _ => partition.append(batch),
        }
    }
}

impl Wanted {
    /// The partitions of this shard whose batches go on with no open transaction; `None` when no
    /// batch belongs to a transaction.
    fn of(node: &Node, frame: &ProduceFrame) -> Result<Option<Wanted>, ErrorCode> {
        let mut wanted: Option<Wanted> = None;
        let mut partitions = frame.partitions.iter();
        for group in &frame.topics {
            let topic = node.topic(&group.key);
            for sent in partitions.by_ref().take(group.partitions) {
                let Some(header) = transactional(&sent.batch) else { continue };
                let producer = Producer { id: header.producer_id, epoch: header.producer_epoch };
                let wanted =
                    wanted.get_or_insert_with(|| Wanted { producer, partitions: BTreeMap::new() });
                if wanted.producer != producer {
                    return Err(ErrorCode::InvalidProducerIdMapping);
                }
                let Ok(topic) = &topic else { continue };
                let Ok(partition) = node.partition(topic, sent.index) else { continue };
                let standing = partition.standing(producer.id);
                if standing.is_some_and(|it| it.is_open && it.epoch == producer.epoch) {
                    continue;
                }
                let number = u32::try_from(sent.index).expect("the partition was found");
                let partition = PartitionId(number);
                let name = TopicPartition { topic: topic.name.clone(), partition };
                wanted.partitions.insert(name, standing.map(|it| it.last_offset));
            }
        }
        Ok(wanted)
    }

    fn vouched(
        self,
        version: i16,
        answer: &Result<BTreeSet<TopicPartition>, ErrorCode>,
    ) -> Vouched {
        let mut vouched = Vouched::default();
        for (partition, stood) in self.partitions {
            let code = match answer {
                Ok(verified) if verified.contains(&partition) => {
                    vouched.accepted.insert(partition, stood);
                    continue;
                }
                Ok(_) => ErrorCode::TransactionAbortable,
                Err(code) => *code,
            };
            vouched.refused.insert(partition, as_produce(code, version));
        }
        vouched
    }
}

/// The header of a transaction's batch. What is no batch is refused later.
fn transactional(batch: &[u8]) -> Option<BatchHeader> {
    let header = BatchHeader::decode(batch).ok()?;
    (header.is_transactional() && !header.is_control()).then_some(header)
}

/// What the coordinator says, in codes that producers understand (`AddPartitionsToTxnManager`,
/// `ReplicaManager#handleProduceAppend`). NOT_ENOUGH_REPLICAS makes all of them try again.
fn as_produce(code: ErrorCode, version: i16) -> Refusal {
    const NOT_ADDED: &str = "the partition was not added to the transaction";
    let again = || {
        let message = format!("the transaction could not be verified: {code}");
        Refusal::new(ErrorCode::NotEnoughReplicas, message)
    };
    match code {
        ErrorCode::ProducerFenced => Refusal::new(ErrorCode::InvalidProducerEpoch, code.name()),
        ErrorCode::TransactionAbortable if version < ABORTABLE_FROM => {
            Refusal::new(ErrorCode::InvalidTxnState, NOT_ADDED)
        }
        ErrorCode::TransactionAbortable => Refusal::new(code, NOT_ADDED),
        ErrorCode::ConcurrentTransactions if version < ADDS_FROM => again(),
        ErrorCode::NetworkException
        | ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::NotCoordinator => again(),
        other => Refusal::new(other, other.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn producers_hear_what_they_understand() {
        let check = |code, version, expected| {
            assert_eq!(as_produce(code, version).code, expected, "{code} {version}");
        };
        check(ErrorCode::ProducerFenced, 9, ErrorCode::InvalidProducerEpoch);
        check(ErrorCode::TransactionAbortable, 10, ErrorCode::InvalidTxnState);
        check(ErrorCode::TransactionAbortable, 11, ErrorCode::TransactionAbortable);
        check(ErrorCode::ConcurrentTransactions, 11, ErrorCode::NotEnoughReplicas);
        check(ErrorCode::ConcurrentTransactions, 12, ErrorCode::ConcurrentTransactions);
        check(ErrorCode::NotCoordinator, 13, ErrorCode::NotEnoughReplicas);
        check(ErrorCode::InvalidProducerIdMapping, 13, ErrorCode::InvalidProducerIdMapping);
    }
}
