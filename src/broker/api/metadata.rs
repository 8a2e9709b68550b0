//! Metadata (3), versions 0 to 13: brokers, topics, leaders.
//!
//! - Topics: null means all; an empty list means all in version 0 and none later. By id from
//!   version 10 in the answer and 12 in the request, where the name is then null.
//! - Every shard is a broker; the one that a partition is placed on is its leader and, on the wire,
//!   its only replica.
//! - A topic asked for by name that isn't there is made, when the broker allows it and the request
//!   doesn't forbid it (version 4 on). Unlike Kafka's, the answer already shows it. None is made
//!   of those that would have more than 10,000 partitions together.
//! - The controller is the first shard: without one admin clients wait until they time out.

use std::collections::HashSet;
use std::sync::Arc;

use kafka_protocol::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use kafka_protocol::messages::metadata_response::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use uuid::Uuid;

use crate::broker::api::{
    AUTHORIZED_OPERATIONS_NONE, CLUSTER_OPERATIONS, TOPIC_OPERATIONS, broker_id, operations, text,
    topic_name,
};
use crate::broker::image::{Image, Topic};
use crate::broker::node::Node;
use crate::broker::topics;
use crate::format::names::TopicName;
use crate::units::{BrokerId, PartitionId, TopicId, u64_of};
use crate::wire::error::ErrorCode;

/// Answers a request.
pub async fn answer(node: &Node, request: MetadataRequest, version: i16) -> MetadataResponse {
    node.served().await;
    let of_topics = request.include_topic_authorized_operations;
    let of_cluster = request.include_cluster_authorized_operations;
    let wanted = wanted(request.topics, version);
    if request.allow_auto_topic_creation
        && let Wanted::Listed(listed) = &wanted
    {
        create_missing(node, listed).await;
    }
    let image = node.image();
    let mut topics: Vec<_> = match wanted {
        Wanted::All => image.topics().map(|topic| describe(node, topic)).collect(),
        Wanted::Listed(listed) => {
            listed.into_iter().map(|topic| find(node, &image, topic)).collect()
        }
    };
    for topic in &mut topics {
        topic.topic_authorized_operations = operations(of_topics, TOPIC_OPERATIONS);
    }
    MetadataResponse::default()
        .with_brokers(node.shared.brokers.iter().map(describe_broker).collect())
        .with_cluster_id(Some(text(&node.shared.cluster_id)))
        .with_controller_id(broker_id(node.shared.node))
        .with_topics(topics)
        .with_cluster_authorized_operations(operations(of_cluster, CLUSTER_OPERATIONS))
}

/// Which topics a request wants to see.
enum Wanted {
    All,
    Listed(Vec<MetadataRequestTopic>),
}

fn wanted(topics: Option<Vec<MetadataRequestTopic>>, version: i16) -> Wanted {
    match topics {
        None => Wanted::All,
        Some(listed) if listed.is_empty() && version == 0 => Wanted::All,
        Some(listed) => Wanted::Listed(once_each(listed)),
    }
}

/// As Kafka, which makes a set of them: a topic may have many partitions, and its name is short.
fn once_each(mut listed: Vec<MetadataRequestTopic>) -> Vec<MetadataRequestTopic> {
    let mut seen = HashSet::with_capacity(listed.len());
    listed.retain(|topic| seen.insert((topic.name.clone(), topic.topic_id)));
    listed
}

/// Makes the topics that were asked for by name and aren't there. Whatever fails is told by the
/// answer, which looks again.
async fn create_missing(node: &Node, listed: &[MetadataRequestTopic]) {
    if !node.shared.config.creates_topics {
        return;
    }
    let image = node.image();
    let missing = listed.iter().filter_map(|topic| topic.name.as_ref()).filter_map(|name| {
        let is_missing = image.topic(name.as_str()).is_none();
        is_missing.then(|| TopicName::new(name.as_str()).ok()).flatten()
    });
    let mut wanted: Vec<TopicName> = missing.filter(|name| !name.is_internal()).collect();
    wanted.sort();
    wanted.dedup();
    if wanted.is_empty() {
        return;
    }
    let partitions = u64_of(wanted.len()) * u64::from(node.shared.config.partitions_default);
    if let Err(refusal) = topics::check_at_once(partitions) {
        node.complain(|| format!("{} topics are not made: {refusal}", wanted.len()));
        return;
    }
    let topics = wanted.into_iter().map(|name| topics::automatic(name, &node.shared.config));
    for refusal in node.create_topics(topics.collect()).await.into_iter().filter_map(Result::err) {
        // Of two clients that ask for one new topic at a time, one finds it made.
        if refusal.code != ErrorCode::TopicAlreadyExists {
            node.complain(|| format!("automatic creation of a topic failed: {refusal}"));
        }
    }
}

fn find(node: &Node, image: &Image, wanted: MetadataRequestTopic) -> MetadataResponseTopic {
    match wanted.name {
        Some(name) => match image.topic(name.as_str()) {
            Some(topic) => describe(node, topic),
            None => missing(unknown_name(name.as_str())).with_name(Some(name)),
        },
        None => match image.topic_by_id(TopicId(wanted.topic_id.into_bytes())) {
            Some(topic) => describe(node, topic),
            None => {
                missing(ErrorCode::UnknownTopicId).with_name(None).with_topic_id(wanted.topic_id)
            }
        },
    }
}

fn unknown_name(name: &str) -> ErrorCode {
    match TopicName::new(name) {
        Ok(_) => ErrorCode::UnknownTopicOrPartition,
        Err(_) => ErrorCode::InvalidTopicException,
    }
}

fn missing(error: ErrorCode) -> MetadataResponseTopic {
    MetadataResponseTopic::default()
        .with_error_code(error.to_wire())
        .with_topic_authorized_operations(AUTHORIZED_OPERATIONS_NONE)
}

fn describe(node: &Node, topic: &Arc<Topic>) -> MetadataResponseTopic {
    let partitions = topic.partitions().map(|partition| describe_partition(node, topic, partition));
    MetadataResponseTopic::default()
        .with_name(Some(topic_name(&topic.name)))
        .with_topic_id(Uuid::from_bytes(topic.id.0))
        .with_is_internal(topic.name.is_internal())
        .with_partitions(partitions.collect())
        .with_topic_authorized_operations(AUTHORIZED_OPERATIONS_NONE)
}

fn describe_partition(
    node: &Node,
    topic: &Topic,
    partition: PartitionId,
) -> MetadataResponsePartition {
    let leader = broker_id(node.leader(topic.id, partition));
    let epoch = topic.leader_epoch(partition).expect("a partition of the topic");
    MetadataResponsePartition::default()
        .with_partition_index(i32::try_from(partition.0).expect("31 bits"))
        .with_leader_id(leader)
        .with_leader_epoch(epoch.0)
        .with_replica_nodes(vec![leader])
        .with_isr_nodes(vec![leader])
}

fn describe_broker((id, host, port): (BrokerId, &str, u16)) -> MetadataResponseBroker {
    MetadataResponseBroker::default()
        .with_node_id(broker_id(id))
        .with_host(text(host))
        .with_port(i32::from(port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_means_all_and_an_empty_list_none_except_in_version_0() {
        assert!(matches!(wanted(None, 1), Wanted::All));
        assert!(matches!(wanted(Some(Vec::new()), 0), Wanted::All));
        assert!(matches!(wanted(Some(Vec::new()), 1), Wanted::Listed(list) if list.is_empty()));
    }

    #[test]
    fn an_illegal_name_is_told_from_an_unknown_one() {
        assert_eq!(unknown_name("flights"), ErrorCode::UnknownTopicOrPartition);
        assert_eq!(unknown_name("no/such"), ErrorCode::InvalidTopicException);
    }
}
