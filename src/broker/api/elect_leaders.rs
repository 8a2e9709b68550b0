//! ElectLeaders (43), versions 0 to 2. Every partition has one replica, which leads it: there is
//! never anything to elect (error 84). Null asks for all partitions and is told of none.

use kafka_protocol::messages::elect_leaders_request::ElectLeadersRequest;
use kafka_protocol::messages::elect_leaders_response::{
    ElectLeadersResponse, PartitionResult, ReplicaElectionResult,
};

use crate::broker::api::{shown, text};
use crate::broker::errors::Refusal;
use crate::broker::image::Image;
use crate::broker::node::Node;
use crate::wire::error::ErrorCode;

/// Preferred and unclean elections.
const TYPES: [i8; 2] = [0, 1];

/// Answers a request.
pub async fn answer(node: &Node, request: ElectLeadersRequest) -> ElectLeadersResponse {
    node.served().await;
    if !TYPES.contains(&request.election_type) {
        let error = ErrorCode::InvalidRequest.to_wire();
        return ElectLeadersResponse::default().with_error_code(error);
    }
    let image = node.image();
    let Some(topics) = request.topic_partitions else {
        let all = image.topics().map(|topic| {
            ReplicaElectionResult::default().with_topic(super::topic_name(&topic.name))
        });
        return ElectLeadersResponse::default().with_replica_election_results(all.collect());
    };
    let results = topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|index| {
            let refusal = refusal(&image, topic.topic.as_str(), *index);
            let message = (!refusal.message.is_empty()).then(|| text(&refusal.message));
            PartitionResult::default()
                .with_partition_id(*index)
                .with_error_code(refusal.code.to_wire())
                .with_error_message(message)
        });
        let partitions = partitions.collect();
        ReplicaElectionResult::default().with_topic(topic.topic).with_partition_result(partitions)
    });
    ElectLeadersResponse::default().with_replica_election_results(results.collect())
}

fn refusal(image: &Image, topic: &str, index: i32) -> Refusal {
    let unknown = |message| Refusal::new(ErrorCode::UnknownTopicOrPartition, message);
    match image.topic(topic) {
        None => unknown(format!("No such topic as {}", shown(topic))),
        Some(found) if !found.has(index) => {
            unknown(format!("No such partition as {topic}-{index}"))
        }
        Some(_) => Refusal::new(
            ErrorCode::ElectionNotNeeded,
            "Leader election not needed for topic partition.",
        ),
    }
}
