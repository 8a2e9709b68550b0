//! What the APIs of transactions have in common.

use crate::broker::errors::{Refusal, of_transaction};
use crate::broker::node::Node;
use crate::coordinator::transactions::{Producer, Refused, TopicPartition};
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
