//! OffsetCommit (8), versions 2 to 10.
//!
//! - A topic or partition that isn't there is UNKNOWN_TOPIC_OR_PARTITION (UNKNOWN_TOPIC_ID from
//!   version 10 on, which names topics by id); the others are committed all the same.
//! - Versions 2 to 4 may say for how long offsets are kept.
//! - From version 9 on an unknown group is GROUP_ID_NOT_FOUND, not ILLEGAL_GENERATION.
//! - The answer waits until the offsets are as durable as `__consumer_offsets` promises.

use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};

use crate::broker::api::groups::{ask, code, identity, kept, wire};
use crate::broker::api::topic_name;
use crate::broker::image::{Image, Topic};
use crate::broker::node::Node;
use crate::coordinator::group::request::{Commit, NewOffset};
use crate::coordinator::group::{Answer, Request};
use crate::units::{PartitionId, TopicId};
use crate::wire::error::ErrorCode;
use crate::wire::offsets::IDS_FROM;

/// Last version that has a retention time.
const RETENTION_UNTIL: i16 = 4;
/// First version that knows GROUP_ID_NOT_FOUND.
const GROUP_ERRORS_FROM: i16 = 9;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: OffsetCommitRequest,
    version: i16,
) -> OffsetCommitResponse {
    node.served().await;
    let group = request.group_id.0.to_string();
    let member = (&request.member_id, request.group_instance_id.clone());
    let image = node.image();
    let mut topics = Vec::with_capacity(request.topics.len());
    let mut offsets = Vec::new();
    for topic in request.topics {
        topics.push(look_up(&image, topic, (version, &mut offsets)));
    }
    let outcomes = if offsets.is_empty() {
        Vec::new()
    } else {
        let count = offsets.len();
        let commit = Commit {
            identity: identity(&group, member, request.generation_id_or_member_epoch),
            knows_group_errors: version >= GROUP_ERRORS_FROM,
            retention_ms: match version {
                ..=RETENTION_UNTIL => request.retention_time_ms,
                _ => -1,
            },
            offsets,
        };
        match ask(node, &group, Request::Commit(commit)).await {
            Ok(Answer::Commit(Ok(outcomes))) => outcomes.into_iter().map(wire).collect(),
            Ok(Answer::Commit(Err(error))) => vec![code(error).to_wire(); count],
            Ok(_) => unreachable!("a commit is answered as one"),
            Err(code) => vec![code.to_wire(); count],
        }
    };
    let mut outcomes = outcomes.into_iter();
    for partition in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        if partition.error_code == PENDING {
            partition.error_code = outcomes.next().expect("every offset has its outcome");
        }
    }
    OffsetCommitResponse::default().with_topics(topics)
}

/// Stands for an outcome that the coordinator decides; no error has this number.
const PENDING: i16 = i16::MAX;

/// The answer to a topic as far as the image decides it; what it doesn't goes to `offsets`.
fn look_up(
    image: &Image,
    wanted: OffsetCommitRequestTopic,
    (version, offsets): (i16, &mut Vec<NewOffset>),
) -> OffsetCommitResponseTopic {
    let topic = match version {
        IDS_FROM.. => image.topic_by_id(TopicId(wanted.topic_id.into_bytes())),
        _ => image.topic(wanted.name.as_str()),
    };
    let unknown = match version {
        IDS_FROM.. => ErrorCode::UnknownTopicId,
        _ => ErrorCode::UnknownTopicOrPartition,
    };
    let name = topic.map_or(wanted.name, |topic| topic_name(&topic.name));
    let partitions = wanted.partitions.into_iter().map(|partition| {
        let index = partition.partition_index;
        let error_code = match topic {
            None => unknown.to_wire(),
            Some(topic) if has(topic, index) => {
                let topic_id = if version >= IDS_FROM { topic.id } else { TopicId::ZERO };
                offsets.push(new_offset(topic, topic_id, partition));
                PENDING
            }
            Some(_) => ErrorCode::UnknownTopicOrPartition.to_wire(),
        };
        OffsetCommitResponsePartition::default()
            .with_partition_index(index)
            .with_error_code(error_code)
    });
    OffsetCommitResponseTopic::default()
        .with_partitions(partitions.collect())
        .with_name(name)
        .with_topic_id(wanted.topic_id)
}

fn has(topic: &Topic, partition: i32) -> bool {
    u32::try_from(partition).is_ok_and(|it| topic.leader_epoch(PartitionId(it)).is_some())
}

fn new_offset(
    topic: &Topic,
    topic_id: TopicId,
    partition: OffsetCommitRequestPartition,
) -> NewOffset {
    NewOffset {
        topic: topic.name.to_string(),
        topic_id,
        partition: partition.partition_index,
        offset: partition.committed_offset,
        leader_epoch: partition.committed_leader_epoch,
        metadata: kept(partition.committed_metadata),
    }
}
