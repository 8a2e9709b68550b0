//! What topic may be made: checks of a request against settings and image, in Kafka's order.

use std::collections::HashSet;

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

/// The request's way to say "as the broker is configured".
const DEFAULT: i32 = -1;

/// A topic that is made because a client asked for it.
pub fn automatic(name: TopicName, config: &ServerConfig) -> NewTopic {
    NewTopic { name, partitions: config.partitions_default, overrides: Overrides::new() }
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
    let partitions = if wanted.assignments.is_empty() {
        check_replication(wanted.replication_factor)?;
        check_partitions(wanted.num_partitions, config.partitions_default)?
    } else {
        if wanted.num_partitions != DEFAULT || i32::from(wanted.replication_factor) != DEFAULT {
            return Err(Refusal::new(
                ErrorCode::InvalidRequest,
                "with a replica assignment, partitions and replication factor must both be -1",
            ));
        }
        check_assignments(&wanted.assignments, brokers)?
    };
    let overrides = check_configs(&wanted.configs, config)?;
    Ok(NewTopic { name, partitions, overrides })
}

/// Checks a topic against those that are there.
///
/// # Errors
/// TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION for a name that collides, INVALID_PARTITIONS when
/// there would be more than
/// `uringlog.partitions.max`.
pub fn admit(new: &NewTopic, image: &Image, config: &ServerConfig) -> Result<(), Refusal> {
    let name = &new.name;
    if image.topic(name.as_str()).is_some() {
        let message = format!("topic {name} exists already");
        return Err(Refusal::new(ErrorCode::TopicAlreadyExists, message));
    }
    if let Some(other) = image.colliding(name) {
        let message =
            format!("topic {name} collides with {other}: metrics can't tell '.' from '_' in names");
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
    let name = TopicName::new(name).map_err(|error| invalid(error.to_string()))?;
    if name == TopicName::cluster_metadata() {
        return Err(invalid(format!("{name} is the broker's own")));
    }
    Ok(name)
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
            format!("replication factor {factor}: use 1 (or -1)"),
        )),
    }
}

fn check_partitions(wanted: i32, default: u32) -> Result<u32, Refusal> {
    if wanted == DEFAULT {
        return Ok(default);
    }
    match u32::try_from(wanted) {
        Ok(partitions @ 1..=TOPIC_PARTITIONS_MAX) => Ok(partitions),
        _ => Err(Refusal::new(
            ErrorCode::InvalidPartitions,
            format!("{wanted} partitions: use 1 to {TOPIC_PARTITIONS_MAX}, or -1 for the default"),
        )),
    }
}

/// A manual assignment must name every partition from 0 on once, with one of our brokers. Which one
/// doesn't matter: all of them are this process, and the placement spreads the partitions.
fn check_assignments(
    assignments: &[CreatableReplicaAssignment],
    brokers: &Brokers,
) -> Result<u32, Refusal> {
    let invalid = |message: String| Refusal::new(ErrorCode::InvalidReplicaAssignment, message);
    for assignment in assignments {
        let partition = assignment.partition_index;
        match assignment.broker_ids.as_slice() {
            [broker] if brokers.iter().any(|(id, _, _)| id.0 == broker.0) => {}
            [broker] => {
                return Err(invalid(format!("partition {partition}: no broker {}", broker.0)));
            }
            [] => return Err(invalid(format!("partition {partition} has no replica"))),
            more => check_replication(i16::try_from(more.len()).unwrap_or(i16::MAX))?,
        }
    }
    let mut numbers: Vec<i32> = assignments.iter().map(|it| it.partition_index).collect();
    numbers.sort_unstable();
    if !numbers.iter().copied().eq(0..i32::try_from(numbers.len()).unwrap_or(i32::MAX)) {
        return Err(invalid("partitions must be numbered from 0 without a gap".to_owned()));
    }
    check_partitions(i32::try_from(u64_of(numbers.len())).unwrap_or(i32::MAX), 1)
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
