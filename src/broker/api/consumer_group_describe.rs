//! ConsumerGroupDescribe (69), versions 0 and 1: groups with the consumer protocol, their members,
//! what those have and what they are to have.
//!
//! - Version 1 says which members speak the classic protocol.
//! - A group that is named again is described once. Kafka: as often as it is named.

use kafka_protocol::messages::TopicName;
use kafka_protocol::messages::consumer_group_describe_request::ConsumerGroupDescribeRequest;
use kafka_protocol::messages::consumer_group_describe_response::{
    Assignment, ConsumerGroupDescribeResponse, DescribedGroup, Member, TopicPartitions,
};
use uuid::Uuid;

use crate::broker::api::groups::ask_named;
use crate::broker::api::{
    AUTHORIZED_OPERATIONS_NONE, GROUP_OPERATIONS, once, operations, text, topic_name,
};
use crate::broker::image::Image;
use crate::broker::node::Node;
use crate::coordinator::group::answer::{self, DescribedConsumer, DescribedConsumerGroup};
use crate::coordinator::group::{Answer, Request};
use crate::wire::error::ErrorCode;

/// A member with the classic protocol.
const CLASSIC: i8 = 0;
/// One with the consumer protocol.
const CONSUMER: i8 = 1;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: ConsumerGroupDescribeRequest,
) -> ConsumerGroupDescribeResponse {
    let mut groups = Vec::new();
    for group in once(request.group_ids) {
        let name = group.0.to_string();
        let described = DescribedGroup::default()
            .with_group_id(group)
            .with_authorized_operations(AUTHORIZED_OPERATIONS_NONE);
        groups.push(match ask_named(node, &name, Request::ConsumerDescribe(name.clone())).await {
            Ok(Answer::ConsumerDescribe(Some(found))) => {
                let asked = request.include_authorized_operations;
                describe(described, found, &node.image())
                    .with_authorized_operations(operations(asked, GROUP_OPERATIONS))
            }
            Ok(Answer::ConsumerDescribe(None)) => {
                let is_there = ask_named(node, &name, Request::Describe(name.clone())).await;
                let message = match is_there {
                    Ok(Answer::Describe(Some(_))) => {
                        format!("Group {name} is not a consumer group.")
                    }
                    _ => format!("Group {name} not found."),
                };
                described
                    .with_error_code(ErrorCode::GroupIdNotFound.to_wire())
                    .with_error_message(Some(text(&message)))
            }
            Ok(_) => unreachable!("a description is answered as one"),
            Err(code) => described.with_error_code(code.to_wire()),
        });
    }
    ConsumerGroupDescribeResponse::default().with_groups(groups)
}

fn describe(
    described: DescribedGroup,
    group: DescribedConsumerGroup,
    image: &Image,
) -> DescribedGroup {
    let members = group.members.into_iter().map(|it| member(it, image));
    described
        .with_group_state(text(group.state))
        .with_group_epoch(group.epoch)
        .with_assignment_epoch(group.target_epoch)
        .with_assignor_name(text(&group.assignor))
        .with_members(members.collect())
}

fn member(member: DescribedConsumer, image: &Image) -> Member {
    let said = member.said;
    let optional = |it: Option<String>| it.as_deref().map(text);
    Member::default()
        .with_member_id(text(&member.id))
        .with_instance_id(optional(said.instance))
        .with_rack_id(optional(said.rack))
        .with_member_epoch(member.epoch)
        .with_client_id(text(&said.client_id))
        .with_client_host(text(&said.client_host))
        .with_subscribed_topic_names(said.topics.iter().map(|it| TopicName(text(it))).collect())
        .with_subscribed_topic_regex(optional(said.regex))
        .with_assignment(assignment(member.assignment, image))
        .with_target_assignment(assignment(member.target, image))
        .with_member_type(if said.classic.is_some() { CLASSIC } else { CONSUMER })
}

/// Topics that are gone are left out.
fn assignment(topics: answer::TopicPartitions, image: &Image) -> Assignment {
    let topics = topics.into_iter().filter_map(|(id, partitions)| {
        let topic = image.topic_by_id(id)?;
        let listed = TopicPartitions::default()
            .with_topic_id(Uuid::from_bytes(id.0))
            .with_topic_name(topic_name(&topic.name))
            .with_partitions(partitions);
        Some(listed)
    });
    Assignment::default().with_topic_partitions(topics.collect())
}
