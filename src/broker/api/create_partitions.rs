//! CreatePartitions (37), versions 0 to 3: topics get more partitions.
//!
//! - The answer leaves when every shard has made its new partitions.
//! - An assignment names one broker of ours for each new partition. A partition's place follows
//!   from its number, so any other broker than that one is error 39.
//! - The topics of coordinators stay as they are (error 37): which of their partitions has what a
//!   group has committed follows from how many there are. Kafka makes more, and looks for the
//!   offsets elsewhere from its next start on.
//! - What would exceed `uringlog.partitions.max` is error 37.

use std::collections::HashSet;
use std::sync::Arc;

use kafka_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic,
};
use kafka_protocol::messages::create_partitions_response::{
    CreatePartitionsResponse, CreatePartitionsTopicResult,
};

use crate::broker::api::text;
use crate::broker::errors::Refusal;
use crate::broker::image::Image;
use crate::broker::mail::Decide;
use crate::broker::node::{Node, Shared};
use crate::broker::placement::{broker_of, shard_of};
use crate::broker::topics::{self, TOPIC_PARTITIONS_MAX};
use crate::format::kraft::{MetadataRecord, PartitionRecord};
use crate::units::{PartitionId, u64_of};
use crate::wire::error::ErrorCode;

/// Answers a request.
pub async fn answer(node: &Node, request: CreatePartitionsRequest) -> CreatePartitionsResponse {
    node.served().await;
    let mut seen = HashSet::new();
    let names = request.topics.iter().map(|topic| topic.name.clone());
    let twice: HashSet<_> = names.filter(|name| !seen.insert(name.clone())).collect();
    let mut results = Vec::with_capacity(request.topics.len());
    let mut changes: Vec<Decide> = Vec::new();
    for topic in request.topics.into_iter().filter(|topic| !twice.contains(&topic.name)) {
        results.push(topic.name.clone());
        let shared = node.shared.clone();
        changes.push(Box::new(move |image: &Image| decide(image, &shared, &topic)));
    }
    let outcomes = node.change(changes, request.validate_only).await;
    let repeated = || Refusal::new(ErrorCode::InvalidRequest, "Duplicate topic name.");
    let refused = twice.into_iter().map(|name| (name, Err(repeated())));
    let results = refused.chain(results.into_iter().zip(outcomes)).map(|(name, outcome)| {
        let result = CreatePartitionsTopicResult::default().with_name(name);
        match outcome {
            Ok(()) => result.with_error_message(None),
            Err(refusal) => result
                .with_error_code(refusal.code.to_wire())
                .with_error_message(Some(text(&refusal.message))),
        }
    });
    CreatePartitionsResponse::default().with_results(results.collect())
}

/// The records of the new partitions, in Kafka's order of checks
/// (`ReplicationControlManager#createPartitions`).
fn decide(
    image: &Image,
    shared: &Arc<Shared>,
    wanted: &CreatePartitionsTopic,
) -> Result<Vec<MetadataRecord>, Refusal> {
    let topic = image.topic(wanted.name.as_str()).ok_or_else(|| {
        let message = "This server does not host this topic-partition.";
        Refusal::new(ErrorCode::UnknownTopicOrPartition, message)
    })?;
    if topic.name.is_internal() {
        let message = format!(
            "{} keeps its number of partitions: what is stored in it would not be found any more",
            topic.name
        );
        return Err(Refusal::new(ErrorCode::InvalidPartitions, message));
    }
    let ours: Vec<i32> = shared.brokers.iter().map(|(id, _, _)| id.0).collect();
    let before = topic.partition_count();
    let count = check(wanted, before, &ours)?;
    for (number, assignment) in (before..count).zip(wanted.assignments.iter().flatten()) {
        let shard = shard_of(topic.id, PartitionId(number), shared.shards);
        let broker = assignment.broker_ids[0].0;
        if broker_of(shared.node, shard).0 != broker {
            let number = i32::try_from(number).expect("checked");
            return Err(topics::not_in_turn(number, broker));
        }
    }
    topics::check_total(image, u64::from(count - before), &shared.config)?;
    let record = |number| {
        let partition = PartitionId(number);
        let (node, directory) = (shared.node, shared.directory_id);
        MetadataRecord::Partition(PartitionRecord::single(topic.id, partition, node, directory))
    };
    Ok((before..count).map(record).collect())
}

/// Checks the request against how many partitions there are; returns how many there will be.
fn check(wanted: &CreatePartitionsTopic, before: u32, ours: &[i32]) -> Result<u32, Refusal> {
    let invalid = |message: String| Refusal::new(ErrorCode::InvalidPartitions, message);
    let count = u32::try_from(wanted.count).unwrap_or(0);
    if count == before {
        return Err(invalid(format!("Topic already has {before} partition(s).")));
    }
    if count < before {
        return Err(invalid(format!(
            "The topic {} currently has {before} partition(s); {} would not be an increase.",
            wanted.name.as_str(),
            wanted.count
        )));
    }
    if let Some(assignments) = &wanted.assignments {
        check_assignments(assignments, count - before, ours)?;
    }
    if TOPIC_PARTITIONS_MAX < count {
        return Err(invalid(format!("a topic has at most {TOPIC_PARTITIONS_MAX} partitions here")));
    }
    Ok(count)
}

fn check_assignments(
    assignments: &[CreatePartitionsAssignment],
    additional: u32,
    ours: &[i32],
) -> Result<(), Refusal> {
    let count = assignments.len();
    if u64_of(count) != u64::from(additional) {
        let message = format!(
            "Attempted to add {additional} additional partition(s), but only {count} \
             assignment(s) were specified."
        );
        return Err(Refusal::new(ErrorCode::InvalidReplicaAssignment, message));
    }
    let lists = assignments.iter().map(|assignment| &assignment.broker_ids);
    lists.into_iter().try_for_each(|brokers| {
        let brokers: Vec<i32> = brokers.iter().map(|id| id.0).collect();
        topics::check_replicas(&brokers, ours)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::messages::BrokerId;

    fn outcome(count: i32, assignments: Option<&[&[i32]]>) -> Result<u32, (ErrorCode, String)> {
        let assignment = |ids: &&[i32]| {
            let ids = ids.iter().copied().map(BrokerId).collect();
            CreatePartitionsAssignment::default().with_broker_ids(ids)
        };
        let assignments = assignments.map(|lists| lists.iter().map(assignment).collect());
        let name = kafka_protocol::messages::TopicName(text("ot"));
        let wanted = CreatePartitionsTopic::default()
            .with_name(name)
            .with_count(count)
            .with_assignments(assignments);
        check(&wanted, 2, &[1, 2]).map_err(|refusal| (refusal.code, refusal.message))
    }

    #[test]
    fn only_more_partitions_are_taken() {
        assert_eq!(outcome(3, None), Ok(3));
        let code = ErrorCode::InvalidPartitions;
        assert_eq!(outcome(2, None), Err((code, "Topic already has 2 partition(s).".to_owned())));
        for less in [1, 0, -1, i32::MIN] {
            let message = format!(
                "The topic ot currently has 2 partition(s); {less} would not be an increase."
            );
            assert_eq!(outcome(less, None), Err((code, message)));
        }
        assert_eq!(outcome(10_001, None).map_err(|it| it.0), Err(code));
    }

    #[test]
    fn assignments_name_one_broker_of_ours_for_each_new_partition() {
        assert_eq!(outcome(4, Some(&[&[1], &[2]])), Ok(4));
        let refused = |lists: &[&[i32]]| match outcome(3, Some(lists)) {
            Err((ErrorCode::InvalidReplicaAssignment, message)) => message,
            other => panic!("{other:?}"),
        };
        assert!(refused(&[&[1], &[1]]).contains("only 2 assignment(s)"));
        assert!(refused(&[&[9]]).contains("includes broker 9, but no such broker"));
        assert!(refused(&[&[1, 1]]).contains("includes the broker 1 more than once"));
        assert!(refused(&[&[]]).contains("empty replica list"));
        assert!(refused(&[&[1, 2]]).contains("2 replica(s)"));
    }
}
