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
use crate::log::producers::Standing;
use crate::log::{AppendError, Appended};
use crate::shard::Partition;
use crate::units::PartitionId;
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
    accepted: BTreeMap<TopicPartition, Option<Standing>>,
}

/// What the coordinator is asked.
pub struct Question {
    id: TransactionalId,
    version: i16,
    producer: Producer,
    /// With where the producer stands.
    partitions: BTreeMap<TopicPartition, Option<Standing>>,
}

impl Vouched {
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
        match self.accepted.get(name) {
            Some(stood) if *stood == partition.standing(producer_id) => {
                partition.append_verified(batch)
            }
            _ => partition.append(batch),
        }
    }
}

impl Question {
    /// The partitions of this shard whose batches go on with no open transaction; `None` when
    /// there is none.
    ///
    /// # Errors
    /// INVALID_PRODUCER_ID_MAPPING for batches of more than one producer.
    pub fn of(
        node: &Node,
        version: i16,
        frame: &ProduceFrame,
    ) -> Result<Option<Question>, ErrorCode> {
        // Such batches are refused one by one.
        let Some(id) = &frame.transactional_id else { return Ok(None) };
        let mut producer: Option<Producer> = None;
        let mut asking = BTreeMap::new();
        let mut partitions = frame.partitions.iter();
        for group in &frame.topics {
            let topic = node.topic(&group.key);
            for sent in partitions.by_ref().take(group.partitions) {
                let Some(header) = transactional(&sent.batch) else { continue };
                let its = Producer { id: header.producer_id, epoch: header.producer_epoch };
                if *producer.get_or_insert(its) != its {
                    return Err(ErrorCode::InvalidProducerIdMapping);
                }
                let Ok(topic) = &topic else { continue };
                let Ok(partition) = node.partition(topic, sent.index) else { continue };
                let standing = partition.standing(its.id);
                if standing.is_some_and(|it| it.is_open && it.epoch == its.epoch) {
                    continue;
                }
                let number = u32::try_from(sent.index).expect("the partition was found");
                let partition = PartitionId(number);
                let name = TopicPartition { topic: topic.name.clone(), partition };
                asking.insert(name, standing);
            }
        }
        let producer = producer.filter(|_| !asking.is_empty());
        Ok(producer.map(|producer| {
            let id: TransactionalId = id.as_str().into();
            Question { id, version, producer, partitions: asking }
        }))
    }

    /// Asks.
    pub async fn put(self, node: &Node) -> Vouched {
        let joining = match self.version {
            ..ADDS_FROM => Joining::Asking,
            ADDS_FROM.. => Joining::Writing,
        };
        let partitions = self.partitions.keys().cloned().collect();
        let answer = members(node, (&self.id, self.producer), &partitions, joining).await;
        self.vouched(&answer)
    }

    fn vouched(self, answer: &Result<BTreeSet<TopicPartition>, ErrorCode>) -> Vouched {
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
            vouched.refused.insert(partition, as_produce(code, self.version));
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
