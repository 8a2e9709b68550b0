//! ConsumerGroupHeartbeat (68), versions 0 and 1: members of groups with the consumer protocol
//! join, say what they subscribe to and have, learn what they are to have, and leave.
//!
//! - From version 1 on members bring their ids, and may subscribe by a regular expression.

use kafka_protocol::messages::consumer_group_heartbeat_request::ConsumerGroupHeartbeatRequest;
use kafka_protocol::messages::consumer_group_heartbeat_response::{
    Assignment, ConsumerGroupHeartbeatResponse, TopicPartitions,
};
use uuid::Uuid;

use crate::broker::api::groups::{ask, code, kept};
use crate::broker::api::text;
use crate::broker::node::Node;
use crate::coordinator::group::answer::Beat;
use crate::coordinator::group::request::{Client, ConsumerHeartbeat};
use crate::coordinator::group::{Answer, Request};
use crate::units::TopicId;

/// First version whose members bring their ids.
const IDS_FROM: i16 = 1;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: ConsumerGroupHeartbeatRequest,
    (version, client): (i16, Client),
) -> ConsumerGroupHeartbeatResponse {
    let beat = beat(request, version, client);
    let group = beat.group.clone();
    match ask(node, &group, Request::ConsumerHeartbeat(beat)).await {
        Ok(Answer::ConsumerHeartbeat(Ok(beat))) => describe(beat),
        Ok(Answer::ConsumerHeartbeat(Err(error))) => ConsumerGroupHeartbeatResponse::default()
            .with_error_code(code(error).to_wire())
            .with_error_message(Some(text(&error.to_string()))),
        Ok(_) => unreachable!("a heartbeat is answered as one"),
        Err(code) => ConsumerGroupHeartbeatResponse::default().with_error_code(code.to_wire()),
    }
}

fn beat(request: ConsumerGroupHeartbeatRequest, version: i16, client: Client) -> ConsumerHeartbeat {
    let owned = request.topic_partitions.map(|topics| {
        let topics = topics.into_iter();
        topics.map(|it| (TopicId(it.topic_id.into_bytes()), it.partitions)).collect()
    });
    let names = request.subscribed_topic_names;
    ConsumerHeartbeat {
        group: request.group_id.0.to_string(),
        member: request.member_id.to_string(),
        epoch: request.member_epoch,
        instance: kept(request.instance_id),
        rack: kept(request.rack_id),
        rebalance_timeout_ms: request.rebalance_timeout_ms,
        topics: names.map(|names| names.into_iter().map(|it| it.0.to_string()).collect()),
        regex: kept(request.subscribed_topic_regex),
        assignor: kept(request.server_assignor),
        owned,
        client,
        fresh_id: Uuid::from_bytes(TopicId::random().0).to_string(),
        brings_id: version >= IDS_FROM,
    }
}

fn describe(beat: Beat) -> ConsumerGroupHeartbeatResponse {
    let assignment = beat.assignment.map(|topics| {
        let topics = topics.into_iter().map(|(topic, partitions)| {
            TopicPartitions::default()
                .with_topic_id(Uuid::from_bytes(topic.0))
                .with_partitions(partitions)
        });
        Assignment::default().with_topic_partitions(topics.collect())
    });
    ConsumerGroupHeartbeatResponse::default()
        .with_member_id(Some(text(&beat.member)))
        .with_member_epoch(beat.epoch)
        .with_heartbeat_interval_ms(beat.interval_ms)
        .with_assignment(assignment)
}
