//! Who coordinates a key.

use crate::broker::coordinators::internal_topic::{self, Kind};
use crate::broker::errors::Refusal;
use crate::broker::image::Topic;
use crate::broker::node::Node;
use crate::coordinator::partition_for;
use crate::units::{BrokerId, PartitionId};

/// The partition of the topic that a key belongs to.
pub fn partition_of(topic: &Topic, key: &str) -> PartitionId {
    partition_for(key, topic.partition_count())
}

/// The broker that coordinates a key; the internal topic is made if it isn't there.
///
/// # Errors
/// As [`internal_topic::get_or_make`].
pub async fn coordinator_of(node: &Node, kind: Kind, key: &str) -> Result<BrokerId, Refusal> {
    let topic = internal_topic::get_or_make(node, kind).await?;
    Ok(node.leader(topic.id, partition_of(&topic, key)))
}
