//! DescribeTopicPartitions (75), version 0: topics by name, so many partitions at a time.
//!
//! - No topics means all of them. They come in the order of their names, from the cursor on; the
//!   answer's cursor says where to go on.
//! - At most `PARTITIONS_MAX` partitions a page, whatever the client wants
//!   (`max.request.partition.size.limit`).

use std::collections::BTreeSet;

use kafka_protocol::messages::describe_topic_partitions_request::DescribeTopicPartitionsRequest;
use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponse, DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
};
use uuid::Uuid;

use crate::broker::api::{AUTHORIZED_OPERATIONS_NONE, TOPIC_OPERATIONS, broker_id, text};
use crate::broker::image::{Image, Topic};
use crate::broker::node::Node;
use crate::format::names::TopicName;
use crate::units::{PartitionId, u64_of, usize_of};
use crate::wire::error::ErrorCode;

/// Most partitions of one answer.
const PARTITIONS_MAX: i32 = 2_000;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    node.served().await;
    let image = node.image();
    let limit = request.response_partition_limit.clamp(1, PARTITIONS_MAX);
    let limit = u32::try_from(limit).expect("it is positive");
    let wants_all = request.topics.is_empty();
    let wanted: BTreeSet<String> = match wants_all {
        true => image.topics().map(|topic| topic.name.to_string()).collect(),
        false => request.topics.iter().map(|topic| topic.name.to_string()).collect(),
    };
    let cursor = match request.cursor {
        None => None,
        Some(cursor) => {
            let name = cursor.topic_name.to_string();
            match u32::try_from(cursor.partition_index) {
                Ok(from) if wants_all || wanted.contains(&name) => Some((name, from)),
                _ => return refuse(&wanted),
            }
        }
    };
    let page = page(&image, (&wanted, wants_all), cursor, limit);
    let topics = page.topics.iter().map(|(name, found)| describe(node, name, found.as_ref()));
    let topics = topics.collect();
    let next = page.next.map(|(name, index)| {
        Cursor::default()
            .with_topic_name(kafka_protocol::messages::TopicName(text(&name)))
            .with_partition_index(i32::try_from(index).expect("31 bits"))
    });
    DescribeTopicPartitionsResponse::default().with_topics(topics).with_next_cursor(next)
}

/// A cursor that makes no sense: the only place for an error is every topic's.
fn refuse(wanted: &BTreeSet<String>) -> DescribeTopicPartitionsResponse {
    let topic = |name: &String| {
        DescribeTopicPartitionsResponseTopic::default()
            .with_name(Some(kafka_protocol::messages::TopicName(text(name))))
            .with_error_code(ErrorCode::InvalidRequest.to_wire())
            .with_topic_authorized_operations(AUTHORIZED_OPERATIONS_NONE)
    };
    let topics = wanted.iter().map(topic).collect();
    DescribeTopicPartitionsResponse::default().with_topics(topics).with_next_cursor(None)
}

/// A topic with the partitions of it that come in this page; `None` when there is no such topic.
type Found = Option<(std::sync::Arc<Topic>, std::ops::Range<u32>)>;

/// What one answer tells.
#[derive(PartialEq, Debug)]
struct Page {
    topics: Vec<(String, Found)>,
    next: Option<(String, u32)>,
}

fn page(
    image: &Image,
    (wanted, wants_all): (&BTreeSet<String>, bool),
    cursor: Option<(String, u32)>,
    limit: u32,
) -> Page {
    let start = cursor.as_ref().map_or("", |(name, _)| name.as_str()).to_owned();
    let mut left = limit;
    let mut page = Page { topics: Vec::new(), next: None };
    for name in wanted.range(start..) {
        if left == 0 {
            page.next = Some((name.clone(), 0));
            break;
        }
        let Some(topic) = image.topic(name) else {
            if !wants_all {
                page.topics.push((name.clone(), None));
            }
            continue;
        };
        let own = cursor.as_ref().filter(|(cursor, _)| cursor == name);
        let from = own.map_or(0, |(_, from)| *from).min(topic.partition_count());
        let to = topic.partition_count().min(from.saturating_add(left));
        page.topics.push((name.clone(), Some((topic.clone(), from..to))));
        if to < topic.partition_count() {
            page.next = Some((name.clone(), to));
            break;
        }
        left -= to - from;
    }
    page
}

fn describe(
    node: &Node,
    name: &str,
    found: Option<&(std::sync::Arc<Topic>, std::ops::Range<u32>)>,
) -> DescribeTopicPartitionsResponseTopic {
    let answer = DescribeTopicPartitionsResponseTopic::default()
        .with_name(Some(kafka_protocol::messages::TopicName(text(name))))
        .with_topic_authorized_operations(AUTHORIZED_OPERATIONS_NONE);
    let Some((topic, range)) = found else {
        let error = match TopicName::new(name) {
            Ok(_) => ErrorCode::UnknownTopicOrPartition,
            Err(_) => ErrorCode::InvalidTopicException,
        };
        return answer.with_error_code(error.to_wire());
    };
    let mut partitions = Vec::with_capacity(usize_of(u64_of(range.len())));
    for number in range.clone() {
        let leader = broker_id(node.leader(topic.id, PartitionId(number)));
        let epoch = topic.leader_epoch(PartitionId(number)).expect("a partition of the topic");
        partitions.push(
            DescribeTopicPartitionsResponsePartition::default()
                .with_partition_index(i32::try_from(number).expect("31 bits"))
                .with_leader_id(leader)
                .with_leader_epoch(epoch.0)
                .with_replica_nodes(vec![leader])
                .with_isr_nodes(vec![leader])
                .with_eligible_leader_replicas(Some(Vec::new()))
                .with_last_known_elr(Some(Vec::new())),
        );
    }
    answer
        .with_topic_id(Uuid::from_bytes(topic.id.0))
        .with_is_internal(topic.name.is_internal())
        .with_partitions(partitions)
        .with_topic_authorized_operations(TOPIC_OPERATIONS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::kraft::{MetadataRecord, PartitionRecord};
    use crate::format::properties::DirectoryId;
    use crate::units::{BrokerId, TopicId};

    fn image() -> Image {
        let mut image = Image::default();
        for (byte, (name, partitions)) in (1..).zip([("a", 3), ("b", 1), ("c", 2)]) {
            let id = TopicId([byte; 16]);
            let topic = TopicName::new(name).expect("a legal name");
            image.apply(&MetadataRecord::Topic { name: topic, topic_id: id }).expect("new");
            for number in 0..partitions {
                let directory = DirectoryId([9; 16]);
                let record =
                    PartitionRecord::single(id, PartitionId(number), BrokerId(1), directory);
                image.apply(&MetadataRecord::Partition(record)).expect("the next");
            }
        }
        image
    }

    fn pages(limit: u32) -> Vec<Vec<(String, std::ops::Range<u32>)>> {
        let image = image();
        let wanted = ["a", "b", "c"].map(str::to_owned).into();
        let (mut pages, mut cursor) = (Vec::new(), None);
        loop {
            let Page { topics, next } = page(&image, (&wanted, true), cursor, limit);
            let shown = topics.into_iter().map(|(name, found)| {
                let (_, range) = found.expect("all of them exist");
                (name, range)
            });
            pages.push(shown.collect());
            match next {
                Some(next) => cursor = Some(next),
                None => return pages,
            }
        }
    }

    #[test]
    fn pages_go_on_where_the_one_before_ended() {
        let row = |name: &str, range| (name.to_owned(), range);
        assert_eq!(pages(10), [vec![row("a", 0..3), row("b", 0..1), row("c", 0..2)]]);
        let two =
            [vec![row("a", 0..2)], vec![row("a", 2..3), row("b", 0..1)], vec![row("c", 0..2)]];
        assert_eq!(pages(2), two);
        assert_eq!(pages(1).len(), 6);
    }

    #[test]
    fn a_topic_that_isnt_there_is_told_only_if_it_was_named() {
        let wanted = ["b", "x"].map(str::to_owned).into();
        let named = page(&image(), (&wanted, false), None, 10);
        assert_eq!(named.topics.len(), 2);
        assert_eq!(named.topics[1], ("x".to_owned(), None));
        let all = page(&image(), (&wanted, true), Some(("c".to_owned(), 0)), 10);
        assert_eq!(all.topics.len(), 0);
    }
}
