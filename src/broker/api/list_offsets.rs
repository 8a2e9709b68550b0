//! ListOffsets (2), versions 1 to 11.
//!
//! - -1 is the end: the high watermark, or the last stable offset for a client that reads committed
//!   records. -2 and -4 the log start, -3 the record with the largest timestamp, -5 and -6 nothing
//!   without tiers; 0 and up the first record at that time or later.
//! - A record at or beyond the end is not shown: it isn't durable, or not committed. As in Kafka
//!   there is then no answer, even when one before it would do.
//! - The leader epoch that the client believes in is checked from version 4 on.
//! - A special time that the request's version doesn't have yet is error 35, a partition that is
//!   asked for twice is error 42.

use std::collections::{HashMap, HashSet};

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsRequest};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};

use crate::broker::api::fetch::check_epoch;
use crate::broker::errors;
use crate::broker::node::Node;
use crate::shard::{FoundRecord, Partition, ReadError};
use crate::units::{LeaderEpoch, Offset, Timestamp};
use crate::wire::StrBytes;
use crate::wire::error::ErrorCode;
use crate::wire::topics::TopicKey;

const READ_COMMITTED: i8 = 1;

/// Which record a request looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    Earliest,
    Latest,
    LargestTimestamp,
    At(Timestamp),
    /// Something that only exists with tiered storage.
    Tiered,
}

impl Target {
    /// What a time means in a version of the request; `None` when it means nothing
    /// (`ReplicaManager#timestampMinSupportedVersion`).
    fn of(timestamp: i64, version: i16) -> Option<Target> {
        let (target, from) = match timestamp {
            -1 => (Target::Latest, 1),
            -2 => (Target::Earliest, 1),
            -3 => (Target::LargestTimestamp, 7),
            -4 => (Target::Earliest, 8),
            -5 => (Target::Tiered, 9),
            -6 => (Target::Tiered, 11),
            0.. => (Target::At(Timestamp(timestamp)), 1),
            _ => return None,
        };
        (from <= version).then_some(target)
    }
}

/// Answers a request.
pub async fn answer(node: &Node, request: ListOffsetsRequest, version: i16) -> ListOffsetsResponse {
    node.served().await;
    let twice = repeated(&request);
    let is_committed = request.isolation_level == READ_COMMITTED;
    let mut topics = Vec::with_capacity(request.topics.len());
    for wanted in request.topics {
        let topic_name = wanted.name.0.clone();
        let topic = node.topic(&TopicKey::Name(topic_name.clone()));
        let twice = &twice[&topic_name];
        let mut partitions = Vec::with_capacity(wanted.partitions.len());
        for wanted in &wanted.partitions {
            let partition = match &topic {
                _ if twice.contains(&wanted.partition_index) => Err(ErrorCode::InvalidRequest),
                Ok(topic) => node.partition(topic, wanted.partition_index).map_err(|it| it.code),
                Err(code) => Err(*code),
            };
            let found = match partition {
                Ok(partition) => look(node, (&partition, is_committed), (wanted, version)).await,
                Err(code) => Err(code),
            };
            partitions.push(describe(wanted.partition_index, found));
        }
        let topic = ListOffsetsTopicResponse::default().with_name(wanted.name);
        topics.push(topic.with_partitions(partitions));
    }
    ListOffsetsResponse::default().with_topics(topics)
}

/// Partitions of each topic that the request names more than once.
fn repeated(request: &ListOffsetsRequest) -> HashMap<StrBytes, HashSet<i32>> {
    let mut by_topic: HashMap<StrBytes, (HashSet<i32>, HashSet<i32>)> = HashMap::new();
    for topic in &request.topics {
        let (seen, twice) = by_topic.entry(topic.name.0.clone()).or_default();
        let indexes = topic.partitions.iter().map(|it| it.partition_index);
        twice.extend(indexes.filter(|index| !seen.insert(*index)));
    }
    by_topic.into_iter().map(|(topic, (_, twice))| (topic, twice)).collect()
}

fn describe(
    index: i32,
    found: Result<Option<FoundRecord>, ErrorCode>,
) -> ListOffsetsPartitionResponse {
    let answer = ListOffsetsPartitionResponse::default()
        .with_partition_index(index)
        .with_timestamp(-1)
        .with_offset(-1)
        .with_leader_epoch(-1);
    match found {
        Ok(Some((timestamp, offset, epoch))) => answer
            .with_timestamp(timestamp.0)
            .with_offset(offset.to_wire())
            .with_leader_epoch(epoch.0),
        Ok(None) => answer,
        Err(code) => answer.with_error_code(code.to_wire()),
    }
}

async fn look(
    node: &Node,
    (partition, is_committed): (&Partition, bool),
    (wanted, version): (&ListOffsetsPartition, i16),
) -> Result<Option<FoundRecord>, ErrorCode> {
    let target = Target::of(wanted.timestamp, version).ok_or(ErrorCode::UnsupportedVersion)?;
    let epoch = partition.leader_epoch();
    check_epoch(LeaderEpoch(wanted.current_leader_epoch), epoch)?;
    let cursors = partition.cursors();
    let found = match target {
        Target::Latest => Ok(Some((Timestamp::NONE, end_of(partition, is_committed), epoch))),
        Target::Earliest => {
            let epoch = partition.epoch_of(cursors.log_start);
            Ok(Some((Timestamp::NONE, cursors.log_start, epoch)))
        }
        Target::Tiered => Ok(None),
        Target::LargestTimestamp => partition.offset_of_max_timestamp().await,
        Target::At(time) => partition.offset_for_timestamp(time).await,
    };
    let found = found.map_err(|error: ReadError| {
        node.complain(|| format!("{}: {error}", partition.directory().display()));
        errors::of_read(&error)
    })?;
    let end = end_of(partition, is_committed);
    Ok(found.filter(|(_, offset, _)| is_shown(target, *offset, end)))
}

/// Where the partition ends for this client.
fn end_of(partition: &Partition, is_committed: bool) -> Offset {
    if is_committed { partition.last_stable() } else { partition.cursors().high_watermark }
}

/// Whether a client may see the offset: a record that is found lies before the end.
fn is_shown(target: Target, offset: Offset, end: Offset) -> bool {
    match target {
        Target::Earliest | Target::Latest | Target::Tiered => true,
        Target::LargestTimestamp | Target::At(_) => offset < end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_timestamps_are_told_from_times() {
        let newest = |timestamp| Target::of(timestamp, 11);
        assert_eq!(newest(-1), Some(Target::Latest));
        assert_eq!(newest(-4), newest(-2));
        assert_eq!(newest(-6), Some(Target::Tiered));
        assert_eq!(newest(0), Some(Target::At(Timestamp(0))));
        assert_eq!(newest(-7), None);
        assert_eq!(newest(i64::MIN), None);
    }

    #[test]
    fn special_timestamps_have_a_first_version() {
        for (timestamp, from) in [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (7, 1)] {
            assert!(Target::of(timestamp, from).is_some(), "{timestamp}");
            assert!(from == 1 || Target::of(timestamp, from - 1).is_none(), "{timestamp}");
        }
    }

    #[test]
    fn a_record_beyond_the_end_is_not_shown() {
        let at = Target::At(Timestamp(5));
        assert!(is_shown(at, Offset(6), Offset(7)));
        assert!(!is_shown(at, Offset(7), Offset(7)));
        assert!(!is_shown(Target::LargestTimestamp, Offset(7), Offset(7)));
        assert!(is_shown(Target::Latest, Offset(7), Offset(7)));
    }
}
