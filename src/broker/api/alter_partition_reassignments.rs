//! AlterPartitionReassignments (45), versions 0 and 1. A partition's place follows from its id, so
//! that the only assignment that can be asked for is the one that it has; nothing is ever moving
//! that could be cancelled (error 85).

use kafka_protocol::messages::alter_partition_reassignments_request::{
    AlterPartitionReassignmentsRequest, ReassignablePartition,
};
use kafka_protocol::messages::alter_partition_reassignments_response::{
    AlterPartitionReassignmentsResponse, ReassignablePartitionResponse, ReassignableTopicResponse,
};

use crate::broker::api::{shown, text};
use crate::broker::errors::Refusal;
use crate::broker::image::Topic;
use crate::broker::node::Node;
use crate::broker::topics;
use crate::units::PartitionId;
use crate::wire::error::ErrorCode;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    node.served().await;
    let image = node.image();
    // As Kafka's: only who asks for nothing gets an empty text.
    let message = request.topics.is_empty().then(|| text(""));
    let responses = request.topics.into_iter().map(|wanted| {
        let topic = image.topic(wanted.name.as_str());
        let partitions = wanted.partitions.iter().map(|partition| {
            let outcome = match topic {
                Some(topic) => check(node, topic, partition),
                None => {
                    let name = shown(wanted.name.as_str());
                    Err(unknown(format!("Unable to find a topic named {name}.")))
                }
            };
            let response = ReassignablePartitionResponse::default()
                .with_partition_index(partition.partition_index);
            match outcome {
                Ok(()) => response.with_error_message(None),
                Err(refusal) => response
                    .with_error_code(refusal.code.to_wire())
                    .with_error_message(Some(text(&refusal.message))),
            }
        });
        let partitions = partitions.collect();
        ReassignableTopicResponse::default().with_name(wanted.name).with_partitions(partitions)
    });
    AlterPartitionReassignmentsResponse::default()
        .with_allow_replication_factor_change(request.allow_replication_factor_change)
        .with_error_message(message)
        .with_responses(responses.collect())
}

fn unknown(message: String) -> Refusal {
    Refusal::new(ErrorCode::UnknownTopicOrPartition, message)
}

fn check(node: &Node, topic: &Topic, wanted: &ReassignablePartition) -> Result<(), Refusal> {
    let index = wanted.partition_index;
    let number = u32::try_from(index).ok().filter(|_| topic.has(index));
    let number = number
        .ok_or_else(|| unknown(format!("Unable to find partition {}:{index}.", topic.name)))?;
    let Some(replicas) = &wanted.replicas else {
        let message = "No partition reassignment is in progress.";
        return Err(Refusal::new(ErrorCode::NoReassignmentInProgress, message));
    };
    let replicas: Vec<i32> = replicas.iter().map(|id| id.0).collect();
    let ours: Vec<i32> = node.shared.brokers.iter().map(|(id, _, _)| id.0).collect();
    topics::check_replicas(&replicas, &ours)?;
    let leader = node.leader(topic.id, PartitionId(number)).0;
    match replicas[..] == [leader] {
        true => Ok(()),
        false => Err(Refusal::new(
            ErrorCode::InvalidReplicaAssignment,
            format!(
                "partition {}-{index} is on broker {leader} by its id; brokers here are shards of \
                 one process, between which partitions can't be moved",
                topic.name
            ),
        )),
    }
}
