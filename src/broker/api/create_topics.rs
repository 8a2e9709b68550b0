//! CreateTopics (19), versions 2 to 7.
//!
//! - The answer leaves when every shard has made its partitions. A topic that some shard can't make
//!   is taken back and answered with error 56.
//! - Only one replica: a factor above 1 is error 38 with the reason.
//! - A request for more than 10,000 partitions is refused as a whole (error 44), and so is each of
//!   its topics.
//! - A name that a request has more than once is answered once, with error 42.
//! - From version 5 on the answer tells the topic's configs, from 7 on its id.

use std::collections::HashSet;

use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse,
};
use uuid::Uuid;

use crate::broker::api::text;
use crate::broker::config;
use crate::broker::errors::Refusal;
use crate::broker::image::Overrides;
use crate::broker::mail::NewTopic;
use crate::broker::node::Node;
use crate::broker::topics;
use crate::units::TopicId;
use crate::wire::error::ErrorCode;

const REPLICATION_FACTOR: i16 = 1;

/// Answers a request.
pub async fn answer(node: &Node, request: CreateTopicsRequest) -> CreateTopicsResponse {
    node.served().await;
    let twice = topics::duplicates(&request.topics);
    let once = request.topics.iter().filter(|topic| !twice.contains(topic.name.as_str()));
    let config = node.config();
    let fits = topics::check_request(once, config.partitions_default);
    let mut more = 0;
    let check = |topic: &CreatableTopic| {
        if twice.contains(topic.name.as_str()) {
            let message = "the request names this topic more than once";
            return Err(Refusal::new(ErrorCode::InvalidRequest, message));
        }
        fits.clone()?;
        let new = topics::check(topic, &config, &node.shared.brokers)?;
        topics::admit(&new, &node.image(), &node.shared.config)?;
        // Those before it in the request count, whether they are made or only looked at.
        let total = more + u64::from(new.partitions);
        topics::check_total(&node.image(), total, &node.shared.config)?;
        more = total;
        Ok(new)
    };
    let checked: Vec<Result<NewTopic, Refusal>> = request.topics.iter().map(check).collect();
    let made = if request.validate_only { validated(checked) } else { make(node, checked).await };
    let mut told = HashSet::new();
    let answers = request.topics.iter().zip(made);
    let once = answers.filter(|(wanted, _)| told.insert(wanted.name.as_str()));
    let results = once.map(|(wanted, made)| {
        let result = CreatableTopicResult::default().with_name(wanted.name.clone());
        match made {
            Ok(made) => describe(node, result, &made),
            Err(refusal) => refuse(result, &refusal),
        }
    });
    CreateTopicsResponse::default().with_topics(results.collect())
}

/// A topic that was made, or would have been.
struct Made {
    id: TopicId,
    partitions: u32,
    overrides: Overrides,
}

fn validated(checked: Vec<Result<NewTopic, Refusal>>) -> Vec<Result<Made, Refusal>> {
    let made = |new: NewTopic| Made {
        id: TopicId::ZERO,
        partitions: new.partitions,
        overrides: new.overrides,
    };
    checked.into_iter().map(|checked| checked.map(made)).collect()
}

/// Has the topics made that passed the checks; the refusals stay in their places.
async fn make(node: &Node, checked: Vec<Result<NewTopic, Refusal>>) -> Vec<Result<Made, Refusal>> {
    let topics: Vec<NewTopic> = checked.iter().filter_map(|it| it.as_ref().ok().cloned()).collect();
    let mut outcomes = if topics.is_empty() {
        Vec::new().into_iter()
    } else {
        node.create_topics(topics).await.into_iter()
    };
    let outcome = |checked: Result<NewTopic, Refusal>| {
        checked?;
        let topic = outcomes.next().expect("every topic is answered")?;
        let (id, partitions) = (topic.id, topic.partition_count());
        Ok(Made { id, partitions, overrides: topic.overrides.clone() })
    };
    checked.into_iter().map(outcome).collect()
}

fn describe(node: &Node, result: CreatableTopicResult, made: &Made) -> CreatableTopicResult {
    let configs = config::describe_topic(&node.config(), &made.overrides);
    let configs = configs.into_iter().map(|entry| {
        CreatableTopicConfigs::default()
            .with_name(text(entry.name))
            .with_value(entry.value.as_deref().map(text))
            .with_read_only(entry.is_read_only)
            .with_config_source(entry.source.code())
    });
    result
        .with_error_message(None)
        .with_topic_id(Uuid::from_bytes(made.id.0))
        .with_num_partitions(i32::try_from(made.partitions).expect("checked"))
        .with_replication_factor(REPLICATION_FACTOR)
        .with_configs(Some(configs.collect()))
}

fn refuse(result: CreatableTopicResult, refusal: &Refusal) -> CreatableTopicResult {
    result
        .with_error_code(refusal.code.to_wire())
        .with_error_message(Some(text(&refusal.message)))
        .with_num_partitions(-1)
        .with_replication_factor(-1)
        .with_configs(Some(Vec::new()))
}
