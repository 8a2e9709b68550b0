//! What topic may be made: checks of a request against settings and image, in Kafka's order.

use std::collections::{BTreeSet, HashSet};

use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};

use crate::broker::config::{ServerConfig, TopicConfigs};
use crate::broker::errors::Refusal;
use crate::broker::image::{Image, Overrides};
use crate::broker::mail::NewTopic;
use crate::broker::node::Brokers;
use crate::format::names::TopicName;
use crate::units::u64_of;
use crate::wire::error::ErrorCode;

/// Most partitions of one topic: its records must fit one batch of the metadata log, so that a
/// topic is made as a whole or not at all.
pub const TOPIC_PARTITIONS_MAX: u32 = 10_000;

/// Most partitions that one request makes (`ReplicationControlManager#MAX_PARTITIONS_PER_BATCH`),
/// as bounds what is decided and written before the answer.
pub const REQUEST_PARTITIONS_MAX: u64 = 10_000;

/// The request's way to say "as the broker is configured".
const DEFAULT: i32 = -1;

/// A topic that is made because a client asked for it.
pub fn automatic(name: TopicName, config: &ServerConfig) -> NewTopic {
    let (partitions, overrides) = (config.partitions_default, Overrides::new());
    NewTopic { name, partitions, overrides, first_shard: None }
}

/// Checks one topic of a CreateTopics request by itself.
///
/// # Errors
/// The first rule that is broken.
pub fn check(
    wanted: &CreatableTopic,
    config: &ServerConfig,
    brokers: &Brokers,
) -> Result<NewTopic, Refusal> {
    let name = check_name(wanted.name.as_str())?;
    let (partitions, first_shard) = if wanted.assignments.is_empty() {
        check_replication(wanted.replication_factor)?;
        (check_partitions(wanted.num_partitions, config.partitions_default)?, None)
    } else {
        check_left_open(wanted)?;
        let partitions = check_assignments(&wanted.assignments, brokers)?;
        (partitions, Some(check_round(&wanted.assignments, brokers)?))
    };
    let overrides = check_configs(&wanted.configs, config)?;
    Ok(NewTopic { name, partitions, overrides, first_shard })
}

/// Checks how many partitions a CreateTopics request asks for in all, of topics that may be made or
/// not, but for those named twice (`ReplicationControlManager#validateTotalNumberOfPartitions`).
///
/// # Errors
/// POLICY_VIOLATION, for each of them.
pub fn check_request<'a>(
    topics: impl Iterator<Item = &'a CreatableTopic>,
    partitions_default: u32,
) -> Result<(), Refusal> {
    let partitions = |topic: &CreatableTopic| match (topic.assignments.len(), topic.num_partitions)
    {
        (0, DEFAULT) => u64::from(partitions_default),
        (0, wanted) => u64::try_from(wanted).unwrap_or(0),
        (assigned, _) => u64_of(assigned),
    };
    check_at_once(topics.map(partitions).sum())
}

/// Checks how many partitions would be made at once.
///
/// # Errors
/// POLICY_VIOLATION.
pub fn check_at_once(partitions: u64) -> Result<(), Refusal> {
    if REQUEST_PARTITIONS_MAX < partitions {
        let message = "Excessively large number of partitions per request.";
        return Err(Refusal::new(ErrorCode::PolicyViolation, message));
    }
    Ok(())
}

/// Checks a topic against those that are there; whoever makes one comes by here.
///
/// # Errors
/// INVALID_REQUEST for the metadata log, which is no topic (`ControllerApis#createTopics`),
/// TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION for a name that collides, INVALID_PARTITIONS when
/// there would be more than
/// `uringlog.partitions.max`.
pub fn admit(new: &NewTopic, image: &Image, config: &ServerConfig) -> Result<(), Refusal> {
    let name = &new.name;
    if *name == TopicName::cluster_metadata() {
        let message = format!("Creation of internal topic {name} is prohibited.");
        return Err(Refusal::new(ErrorCode::InvalidRequest, message));
    }
    if image.topic(name.as_str()).is_some() {
        let message = format!("Topic '{name}' already exists.");
        return Err(Refusal::new(ErrorCode::TopicAlreadyExists, message));
    }
    if let Some(other) = image.colliding(name) {
        // Metrics can't tell '.' from '_' in names.
        let message = format!("Topic '{name}' collides with existing topic: {other}");
        return Err(Refusal::new(ErrorCode::InvalidTopicException, message));
    }
    check_total(image, u64::from(new.partitions), config)
}

/// Checks whether so many more partitions fit.
///
/// # Errors
/// INVALID_PARTITIONS.
pub fn check_total(image: &Image, more: u64, config: &ServerConfig) -> Result<(), Refusal> {
    let total = image.partition_count() + more;
    let limit = config.partitions_max;
    if total > u64::from(limit) {
        let message = format!(
            "the broker would have {total} partitions, its limit is {limit} \
             (uringlog.partitions.max, or fewer when uringlog.ring.files.max is small)"
        );
        return Err(Refusal::new(ErrorCode::InvalidPartitions, message));
    }
    Ok(())
}

/// Checks the brokers that a request wants to hold one partition
/// (`ReplicationControlManager#validateManualPartitionAssignment`).
///
/// # Errors
/// INVALID_REPLICA_ASSIGNMENT.
pub fn check_replicas(wanted: &[i32], ours: &[i32]) -> Result<(), Refusal> {
    let refused = |what: String| {
        let message = format!("The manual partition assignment includes {what}");
        Err(Refusal::new(ErrorCode::InvalidReplicaAssignment, message))
    };
    if wanted.is_empty() {
        return refused("an empty replica list.".to_owned());
    }
    if let Some(stranger) = wanted.iter().find(|id| !ours.contains(id)) {
        return refused(format!("broker {stranger}, but no such broker is registered."));
    }
    let is_repeated = |id: &&i32| 1 < wanted.iter().filter(|other| other == id).count();
    if let Some(twice) = wanted.iter().find(is_repeated) {
        return refused(format!("the broker {twice} more than once."));
    }
    match wanted.len() {
        1 => Ok(()),
        count => refused(format!(
            "a partition with {count} replica(s), but this is not consistent with previous \
             partitions, which have 1 replica(s)."
        )),
    }
}

/// Names that stand in a request more than once; none of them is made.
pub fn duplicates(topics: &[CreatableTopic]) -> HashSet<&str> {
    let mut seen = HashSet::new();
    let names = topics.iter().map(|topic| topic.name.as_str());
    names.filter(|name| !seen.insert(*name)).collect()
}

fn check_name(name: &str) -> Result<TopicName, Refusal> {
    let invalid = |message: String| Refusal::new(ErrorCode::InvalidTopicException, message);
    TopicName::new(name).map_err(|error| invalid(error.to_string()))
}

fn check_replication(factor: i16) -> Result<(), Refusal> {
    match factor {
        1 | -1 => Ok(()),
        2.. => Err(Refusal::new(
            ErrorCode::InvalidReplicationFactor,
            format!(
                "replication factor {factor}: this broker serves one host and keeps one replica; \
                 use 1 (or -1)"
            ),
        )),
        _ => Err(Refusal::new(
            ErrorCode::InvalidReplicationFactor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )),
    }
}

fn check_partitions(wanted: i32, default: u32) -> Result<u32, Refusal> {
    if wanted == DEFAULT {
        return Ok(default);
    }
    if wanted < 1 {
        let message = "Number of partitions was set to an invalid non-positive value.";
        return Err(Refusal::new(ErrorCode::InvalidPartitions, message));
    }
    match u32::try_from(wanted) {
        Ok(partitions @ 1..=TOPIC_PARTITIONS_MAX) => Ok(partitions),
        _ => Err(Refusal::new(
            ErrorCode::InvalidPartitions,
            format!("{wanted} partitions: use 1 to {TOPIC_PARTITIONS_MAX}, or -1 for the default"),
        )),
    }
}

/// With a manual assignment, numbers of partitions and replicas follow from it.
fn check_left_open(wanted: &CreatableTopic) -> Result<(), Refusal> {
    let refused = |what: &str| {
        let message =
            format!("A manual partition assignment was specified, but {what} was not set to -1.");
        Err(Refusal::new(ErrorCode::InvalidRequest, message))
    };
    if i32::from(wanted.replication_factor) != DEFAULT {
        return refused("replication factor");
    }
    if wanted.num_partitions != DEFAULT {
        return refused("numPartitions");
    }
    Ok(())
}

/// A manual assignment must name every partition from 0 on once, with one of our brokers.
fn check_assignments(
    assignments: &[CreatableReplicaAssignment],
    brokers: &Brokers,
) -> Result<u32, Refusal> {
    let invalid = |message: String| Refusal::new(ErrorCode::InvalidReplicaAssignment, message);
    let ours: Vec<i32> = brokers.iter().map(|(id, _, _)| id.0).collect();
    let mut numbers = BTreeSet::new();
    for assignment in assignments {
        let partition = assignment.partition_index;
        if !numbers.insert(partition) {
            return Err(invalid(format!(
                "Found multiple manual partition assignments for partition {partition}"
            )));
        }
        let replicas: Vec<i32> = assignment.broker_ids.iter().map(|id| id.0).collect();
        check_replicas(&replicas, &ours)?;
    }
    if !numbers.iter().copied().eq(0..i32::try_from(numbers.len()).unwrap_or(i32::MAX)) {
        let message = "partitions should be a consecutive 0-based integer sequence";
        return Err(invalid(message.to_owned()));
    }
    check_partitions(i32::try_from(u64_of(numbers.len())).unwrap_or(i32::MAX), 1)
}

/// The shard that partition 0 gets. A topic's partitions go round the shards, each of which is a
/// broker to clients, from one that the topic's id chooses: an assignment that does so as well is
/// followed, any other one is refused rather than taken and not kept.
fn check_round(
    assignments: &[CreatableReplicaAssignment],
    brokers: &Brokers,
) -> Result<usize, Refusal> {
    let shards = brokers.ports.len();
    let first_of = |assignment: &CreatableReplicaAssignment| {
        let broker = assignment.broker_ids.first().expect("checked").0;
        let shard = usize::try_from(broker - brokers.node.0).expect("one of ours");
        let partition = usize::try_from(assignment.partition_index).expect("checked");
        (shard + shards - partition % shards) % shards
    };
    let first = first_of(&assignments[0]);
    let stray = assignments.iter().find(|assignment| first_of(assignment) != first);
    match stray {
        None => Ok(first),
        Some(stray) => Err(not_in_turn(stray.partition_index, stray.broker_ids[0].0)),
    }
}

/// The refusal of an assignment that would not be kept.
pub fn not_in_turn(partition: i32, broker: i32) -> Refusal {
    let message = format!(
        "partition {partition} can't be on broker {broker}: the brokers here are the shards of one \
         server, and a topic's partitions go round them in turn. Leave the assignment out, or \
         assign the partitions in the order of the brokers' ids"
    );
    Refusal::new(ErrorCode::InvalidReplicaAssignment, message)
}

fn check_configs(
    configs: &[CreatableTopicConfig],
    config: &ServerConfig,
) -> Result<Overrides, Refusal> {
    let mut overrides = Overrides::new();
    for CreatableTopicConfig { name, value, .. } in configs {
        let Some(value) = value else {
            let message = format!("topic config {name:?} has no value");
            return Err(Refusal::new(ErrorCode::InvalidConfig, message));
        };
        overrides.insert(name.to_string(), value.to_string());
    }
    let checked = TopicConfigs::new(config).validate(&overrides);
    checked.map_err(|error| Refusal::new(ErrorCode::InvalidConfig, error.to_string()))?;
    Ok(overrides)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_shard(brokers: &[i32]) -> Result<usize, (ErrorCode, String)> {
        let assignment = |(partition, broker): (i32, &i32)| {
            CreatableReplicaAssignment::default()
                .with_partition_index(partition)
                .with_broker_ids(vec![(*broker).into()])
        };
        let assignments = (0..).zip(brokers).map(assignment).collect();
        let wanted = CreatableTopic::default()
            .with_name(kafka_protocol::protocol::StrBytes::from_static_str("ot").into())
            .with_num_partitions(DEFAULT)
            .with_replication_factor(-1)
            .with_assignments(assignments);
        let node = crate::units::BrokerId(5);
        let brokers = Brokers { node, host: String::new(), ports: vec![1, 2, 3] };
        let checked = check(&wanted, &ServerConfig::defaults(), &brokers);
        let checked = checked.map_err(|refusal| (refusal.code, refusal.message))?;
        Ok(checked.first_shard.expect("it is assigned"))
    }

    #[test]
    fn an_assignment_is_followed_where_partitions_go_round_the_shards_and_refused_elsewhere() {
        assert_eq!(first_shard(&[5]), Ok(0));
        assert_eq!(first_shard(&[7]), Ok(2));
        assert_eq!(first_shard(&[6, 7, 5, 6, 7]), Ok(1));
        for (brokers, partition) in [(&[5, 5][..], 1), (&[6, 7, 6], 2), (&[7, 6, 5], 1)] {
            let (code, message) = first_shard(brokers).expect_err("not in turn");
            assert_eq!(code, ErrorCode::InvalidReplicaAssignment);
            assert!(message.starts_with(&format!("partition {partition} can't")), "{message}");
        }
    }

    /// A Metadata request that may create topics doesn't come by the checks of CreateTopics.
    #[test]
    fn the_metadata_log_is_no_topic_that_anybody_may_make() {
        let config = ServerConfig::defaults();
        let new = automatic(TopicName::cluster_metadata(), &config);
        let refused = admit(&new, &Image::default(), &config).expect_err("prohibited");
        assert_eq!(refused.code, ErrorCode::InvalidRequest);
        let new = automatic(TopicName::new("flights").expect("legal"), &config);
        admit(&new, &Image::default(), &config).expect("allowed");
    }
}
