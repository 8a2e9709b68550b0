//! DescribeQuorum (55), versions 0 to 2: the metadata log with its one voter, which leads it.
//!
//! The voter is the first shard, where the controller lives; it is reached where clients reach that
//! shard.

use kafka_protocol::messages::describe_quorum_request::DescribeQuorumRequest;
use kafka_protocol::messages::describe_quorum_response::{
    DescribeQuorumResponse, Listener, Node as VoterNode, PartitionData, ReplicaState, TopicData,
};
use uuid::Uuid;

use crate::broker::api::{broker_id, text};
use crate::broker::node::Node;
use crate::format::names::CLUSTER_METADATA;
use crate::shard::now;
use crate::wire::error::ErrorCode;

/// Name of the listener, as Kafka's default names it.
const LISTENER: &str = "PLAINTEXT";

/// The metadata log has had one leader since it was made.
const LEADER_EPOCH: i32 = 1;

/// Answers a request.
pub async fn answer(node: &Node, request: DescribeQuorumRequest) -> DescribeQuorumResponse {
    node.served().await;
    let is_ours = |name: &str, index: i32| name == CLUSTER_METADATA && index == 0;
    let all_ours = request.topics.len() == 1
        && request.topics.iter().all(|topic| {
            let name = topic.topic_name.as_str();
            topic.partitions.len() == 1
                && topic.partitions.iter().all(|it| is_ours(name, it.partition_index))
        });
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let data = PartitionData::default().with_partition_index(partition.partition_index);
            if all_ours { describe(node, data) } else { refuse(data) }
        });
        let partitions = partitions.collect();
        TopicData::default().with_topic_name(topic.topic_name).with_partitions(partitions)
    });
    let topics = topics.collect();
    let answer =
        DescribeQuorumResponse::default().with_error_message(Some(text(""))).with_topics(topics);
    if all_ours { answer.with_nodes(voters(node)) } else { answer }
}

fn refuse(data: PartitionData) -> PartitionData {
    let error = ErrorCode::UnknownTopicOrPartition;
    data.with_error_code(error.to_wire()).with_error_message(None)
}

fn describe(node: &Node, data: PartitionData) -> PartitionData {
    let end = node.image().log_end.to_wire();
    let voter = ReplicaState::default()
        .with_replica_id(broker_id(node.shared.node))
        .with_replica_directory_id(Uuid::from_bytes(node.shared.directory_id.0))
        .with_log_end_offset(end)
        .with_last_fetch_timestamp(now().0)
        .with_last_caught_up_timestamp(now().0);
    data.with_error_message(Some(text("")))
        .with_leader_id(broker_id(node.shared.node))
        .with_leader_epoch(LEADER_EPOCH)
        .with_high_watermark(end)
        .with_current_voters(vec![voter])
}

fn voters(node: &Node) -> Vec<VoterNode> {
    let first = node.shared.brokers.iter().next();
    let voter = first.map(|(id, host, port)| {
        let listener =
            Listener::default().with_name(text(LISTENER)).with_host(text(host)).with_port(port);
        VoterNode::default().with_node_id(broker_id(id)).with_listeners(vec![listener])
    });
    voter.into_iter().collect()
}
