//! OffsetDelete (47), version 0: offsets of topics that the group's members don't subscribe to.
//!
//! A topic or partition that isn't there is UNKNOWN_TOPIC_OR_PARTITION; what nobody has committed
//! is deleted without an error.

use kafka_protocol::messages::offset_delete_request::OffsetDeleteRequest;
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};

use crate::broker::api::groups::{ask_named, code, wire};
use crate::broker::node::Node;
use crate::coordinator::group::request::DeleteOffsets;
use crate::coordinator::group::{Answer, Request};
use crate::units::PartitionId;
use crate::wire::error::ErrorCode;

/// Answers a request.
pub async fn answer(node: &Node, request: OffsetDeleteRequest) -> OffsetDeleteResponse {
    node.served().await;
    let group = request.group_id.0.to_string();
    let image = node.image();
    let is_there = |topic: &str, partition: i32| {
        let number = u32::try_from(partition).map(PartitionId).ok();
        let topic = image.topic(topic);
        topic.zip(number).is_some_and(|(topic, it)| topic.leader_epoch(it).is_some())
    };
    let mut partitions = Vec::new();
    for topic in &request.topics {
        let name = topic.name.as_str();
        let numbers = topic.partitions.iter().map(|it| it.partition_index);
        let there = numbers.filter(|number| is_there(name, *number));
        partitions.extend(there.map(|number| (name.to_owned(), number)));
    }
    let delete = DeleteOffsets { group: group.clone(), partitions };
    let refused = |code: ErrorCode| OffsetDeleteResponse::default().with_error_code(code.to_wire());
    let mut outcomes = match ask_named(node, &group, Request::DeleteOffsets(delete)).await {
        Ok(Answer::DeleteOffsets(Ok(outcomes))) => outcomes.into_iter(),
        Ok(Answer::DeleteOffsets(Err(error))) => return refused(code(error)),
        Ok(_) => unreachable!("a deletion is answered as one"),
        Err(code) => return refused(code),
    };
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let index = partition.partition_index;
            let error = match is_there(topic.name.as_str(), index) {
                true => wire(outcomes.next().expect("every offset has its outcome")),
                false => ErrorCode::UnknownTopicOrPartition.to_wire(),
            };
            OffsetDeleteResponsePartition::default()
                .with_partition_index(index)
                .with_error_code(error)
        });
        let partitions = partitions.collect();
        OffsetDeleteResponseTopic::default().with_name(topic.name).with_partitions(partitions)
    });
    OffsetDeleteResponse::default().with_topics(topics.collect())
}
