//! What the APIs of transactions have in common.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::broker::errors::{Refusal, of_transaction};
use crate::broker::node::Node;
use crate::coordinator::transactions::{
    Answer, Producer, Refused, Request, TopicPartition, TransactionVersion, TransactionalId,
};
use crate::format::names::TopicName;
use crate::units::{PartitionId, ProducerEpoch, ProducerId};
use crate::wire::error::ErrorCode;

/// What a client is told of a coordinator's refusal.
pub fn refusal(refused: &Refused) -> Refusal {
    Refusal::new(of_transaction(refused), refused.to_string())
}

/// Clients of the first versions know INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED.
pub fn fenced_as(code: ErrorCode, knows_fenced: bool) -> ErrorCode {
    match code {
        ErrorCode::ProducerFenced if !knows_fenced => ErrorCode::InvalidProducerEpoch,
        other => other,
    }
}

/// A producer from a request's fields.
pub fn producer(id: i64, epoch: i16) -> Producer {
    Producer { id: ProducerId(id), epoch: ProducerEpoch(epoch) }
}

/// A partition that a request names, if there is one.
pub fn existing(node: &Node, topic: &str, number: i32) -> Option<TopicPartition> {
    let image = node.image();
    let topic = image.topic(topic)?;
    let partition = PartitionId(u32::try_from(number).ok()?);
    topic.leader_epoch(partition)?;
    Some(TopicPartition { topic: topic.name.clone(), partition })
}

/// A partition that may be there or not.
pub fn named(topic: &str, number: i32) -> Option<TopicPartition> {
    let partition = PartitionId(u32::try_from(number).ok()?);
    Some(TopicPartition { topic: TopicName::new(topic).ok()?, partition })
}

/// How a client's protocol has partitions become part of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Joining {
    /// By what is written to them (transaction version 2).
    Writing,
    /// By AddPartitionsToTxn and AddOffsetsToTxn, before.
    Asking,
}

impl Joining {
    fn question(
        self,
        (id, partitions): (TransactionalId, BTreeSet<TopicPartition>),
        producer: Producer,
    ) -> Request {
        match self {
            Joining::Writing => {
                let version = TransactionVersion::Two;
                Request::AddPartitions { id, producer, partitions, version }
            }
            Joining::Asking => Request::Verify { id, producer, partitions },
        }
    }
}

/// Which of these partitions belong to the producer's transaction, now that it wants to write to
/// them (KIP-890). While the transaction before is still being ended the question is put again for
/// a while (`add.partitions.to.txn.retry.backoff.max.ms`).
///
/// # Errors
/// What the coordinator refuses, and those of [`Node::ask_transactions`].
pub async fn members(
    node: &Node,
    (id, producer): (&TransactionalId, Producer),
    partitions: &BTreeSet<TopicPartition>,
    joining: Joining,
) -> Result<BTreeSet<TopicPartition>, ErrorCode> {
    let config = &node.shared.config.coordinators.transactions;
    if joining == Joining::Asking && !node.config().verifies_transactions() {
        return Ok(partitions.clone());
    }
    let deadline = Instant::now() + Duration::from_millis(config.add_wait_ms_max);
    loop {
        let asked = (id.clone(), partitions.clone());
        let answer = node.ask_transactions(id, joining.question(asked, producer)).await?;
        let is_busy = answer == Answer::Refused(Refused::Concurrent);
        if !is_busy || deadline <= Instant::now() {
            return match answer {
                Answer::Added => Ok(partitions.clone()),
                Answer::Verified(verified) => Ok(verified),
                Answer::Refused(refused) => Err(of_transaction(&refused)),
                other => unreachable!("no answer to this question: {other:?}"),
            };
        }
        tokio::time::sleep(Duration::from_millis(config.add_again_after_ms)).await;
    }
}
