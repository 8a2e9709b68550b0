//! OffsetFetch (9), versions 1 to 10.
//!
//! - One group up to version 7, many from 8 on. No list of topics means all, from version 2 on; an
//!   empty one in version 1 is none.
//! - What nobody has committed is offset -1 without an error.
//! - From version 7 on a client may refuse offsets that an open transaction is about to change:
//!   UNSTABLE_OFFSET_COMMIT.
//! - Errors of a group stand at its partitions in version 1, and once from version 2 on.
//! - Topics are named by id from version 10 on.
//! - All offsets of a group are told once, however often a request asks for them.

use std::collections::HashSet;
use std::rc::Rc;

use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponse, OffsetFetchResponseGroup, OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};

use crate::broker::api::groups::{ask, code};
use crate::broker::api::{text, topic_name};
use crate::broker::image::Image;
use crate::broker::node::Node;
use crate::coordinator::group::answer::FetchedOffset;
use crate::coordinator::group::request::{Fetch, WantedOffset};
use crate::coordinator::group::{Answer, Request};
use crate::format::group_records::CommittedOffset;
use crate::units::TopicId;
use crate::wire::error::ErrorCode;
use crate::wire::offsets::IDS_FROM;
use uuid::Uuid;

/// First version with a list of groups.
const GROUPS_FROM: i16 = 8;

/// First version with the member that asks.
const MEMBERS_FROM: i16 = 9;

/// Answers a request.
pub async fn answer(node: &Node, request: OffsetFetchRequest, version: i16) -> OffsetFetchResponse {
    node.served().await;
    let stable = request.require_stable;
    if version >= GROUPS_FROM {
        let mut groups = Vec::new();
        let mut seen = HashSet::new();
        for group in request.groups {
            if group.topics.is_none() && !seen.insert(group.group_id.clone()) {
                continue;
            }
            groups.push(fetch(node, group, (version, stable)).await);
        }
        return OffsetFetchResponse::default().with_groups(groups);
    }
    let topics = request.topics.map(|topics| {
        let topics = topics.into_iter().map(|topic| {
            OffsetFetchRequestTopics::default()
                .with_name(topic.name)
                .with_partition_indexes(topic.partition_indexes)
        });
        topics.collect()
    });
    let group =
        OffsetFetchRequestGroup::default().with_group_id(request.group_id).with_topics(topics);
    of_one_group(fetch(node, group, (version, stable)).await)
}

/// The answer as versions up to 7 have it.
fn of_one_group(group: OffsetFetchResponseGroup) -> OffsetFetchResponse {
    let topics = group.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|partition| {
            OffsetFetchResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_committed_offset(partition.committed_offset)
                .with_committed_leader_epoch(partition.committed_leader_epoch)
                .with_metadata(partition.metadata)
                .with_error_code(match partition.error_code {
                    0 => group.error_code,
                    error => error,
                })
        });
        OffsetFetchResponseTopic::default()
            .with_name(topic.name)
            .with_partitions(partitions.collect())
    });
    OffsetFetchResponse::default().with_topics(topics.collect()).with_error_code(group.error_code)
}

async fn fetch(
    node: &Node,
    group: OffsetFetchRequestGroup,
    (version, require_stable): (i16, bool),
) -> OffsetFetchResponseGroup {
    let image = node.image();
    let name = group.group_id.0.to_string();
    let answer = OffsetFetchResponseGroup::default().with_group_id(group.group_id);
    let wanted = group.topics.map(|topics| Wanted::look_up(&image, topics, version));
    let offsets = wanted.as_ref().map(Wanted::offsets);
    // Version 8 on, where a member id that isn't sent is null.
    let member = group.member_id.filter(|_| version >= MEMBERS_FROM);
    let member = member.map(|member| (member.to_string(), group.member_epoch));
    let fetch = Fetch { group: name.clone(), member, wanted: offsets, require_stable };
    match ask(node, &name, Request::Fetch(fetch)).await {
        Ok(Answer::Fetch(Err(error))) => answer.with_error_code(code(error).to_wire()),
        Ok(Answer::Fetch(Ok(fetched))) => answer.with_topics(match wanted {
            None => all(&image, fetched, version),
            Some(wanted) => wanted.describe(fetched),
        }),
        Ok(_) => unreachable!("a fetch is answered as one"),
        Err(code) => {
            let failed = wanted.map(Wanted::failed).unwrap_or_default();
            // Version 1 has no other place for the error.
            let topics = if version < 2 { failed } else { Vec::new() };
            answer.with_error_code(code.to_wire()).with_topics(topics)
        }
    }
}

/// The topics asked for; without a name when the id is that of none.
struct Wanted(Vec<(OffsetFetchRequestTopics, bool)>);

impl Wanted {
    fn look_up(image: &Image, topics: Vec<OffsetFetchRequestTopics>, version: i16) -> Wanted {
        let found = topics.into_iter().map(|topic| {
            if version < IDS_FROM {
                return (topic, true);
            }
            match image.topic_by_id(TopicId(topic.topic_id.into_bytes())) {
                Some(known) => (topic.with_name(topic_name(&known.name)), true),
                None => (topic, false),
            }
        });
        Wanted(found.collect())
    }

    fn offsets(&self) -> Vec<WantedOffset> {
        let known = self.0.iter().filter(|(_, is_known)| *is_known);
        let offsets = known.flat_map(|(topic, _)| {
            let name: Rc<str> = topic.name.as_str().into();
            topic.partition_indexes.iter().map(move |partition| WantedOffset {
                topic: name.clone(),
                topic_id: TopicId(topic.topic_id.into_bytes()),
                partition: *partition,
            })
        });
        offsets.collect()
    }

    fn describe(self, fetched: Vec<FetchedOffset>) -> Vec<OffsetFetchResponseTopics> {
        let mut fetched = fetched.into_iter();
        let topics = self.0.into_iter().map(|(topic, is_known)| {
            let partitions = topic.partition_indexes.iter().map(|index| match is_known {
                true => partition(fetched.next().expect("every offset is answered")),
                false => nothing(*index).with_error_code(ErrorCode::UnknownTopicId.to_wire()),
            });
            let partitions = partitions.collect();
            OffsetFetchResponseTopics::default()
                .with_name(topic.name)
                .with_topic_id(topic.topic_id)
                .with_partitions(partitions)
        });
        topics.collect()
    }

    fn failed(self) -> Vec<OffsetFetchResponseTopics> {
        let topics = self.0.into_iter().map(|(topic, _)| {
            let partitions = topic.partition_indexes.iter().map(|index| nothing(*index));
            OffsetFetchResponseTopics::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions.collect())
        });
        topics.collect()
    }
}

/// All offsets of a group; a topic that is no more has no id to be named by.
fn all(image: &Image, fetched: Vec<FetchedOffset>, version: i16) -> Vec<OffsetFetchResponseTopics> {
    let mut topics: Vec<OffsetFetchResponseTopics> = Vec::new();
    for offset in fetched {
        let id = image.topic(&offset.topic).map(|topic| Uuid::from_bytes(topic.id.0));
        if version >= IDS_FROM && id.is_none() {
            continue;
        }
        if topics.last().is_none_or(|last| last.name.as_str() != &*offset.topic) {
            let name = kafka_protocol::messages::TopicName(text(&offset.topic));
            let topic = OffsetFetchResponseTopics::default().with_name(name);
            topics.push(topic.with_topic_id(id.unwrap_or_default()));
        }
        topics.last_mut().expect("pushed just now").partitions.push(partition(offset));
    }
    topics
}

fn partition(fetched: FetchedOffset) -> OffsetFetchResponsePartitions {
    let index = fetched.partition;
    match fetched.committed {
        Ok(Some(CommittedOffset { offset, leader_epoch, metadata, .. })) => nothing(index)
            .with_committed_offset(offset)
            .with_committed_leader_epoch(leader_epoch)
            .with_metadata(Some(text(&metadata))),
        Ok(None) => nothing(index),
        Err(error) => nothing(index).with_error_code(code(error).to_wire()),
    }
}

fn nothing(index: i32) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions::default()
        .with_partition_index(index)
        .with_committed_offset(-1)
        .with_committed_leader_epoch(-1)
        .with_metadata(Some(text("")))
}
