//! DescribeProducers (61), version 0: what partitions of this shard know of producers, each
//! once however often it is named.

use std::collections::{HashMap, HashSet};

use kafka_protocol::messages::describe_producers_request::DescribeProducersRequest;
use kafka_protocol::messages::describe_producers_response::{
    DescribeProducersResponse, PartitionResponse, ProducerState, TopicResponse,
};

use crate::broker::api::text;
use crate::broker::node::Node;
use crate::format::names::TopicName;
use crate::format::producer_snapshot::ProducerEntry;
use crate::wire::StrBytes;
use crate::wire::error::ErrorCode;
use crate::wire::topics::TopicKey;

/// Answers a request.
pub async fn answer(node: &Node, request: &DescribeProducersRequest) -> DescribeProducersResponse {
    node.served().await;
    let mut seen: HashMap<StrBytes, HashSet<i32>> = HashMap::new();
    let of_topic = |wanted: &kafka_protocol::messages::describe_producers_request::TopicRequest| {
        let of_partition = |number: &i32| {
            let name = wanted.name.0.as_str();
            let answer = PartitionResponse::default().with_partition_index(*number);
            match producers(node, name, *number) {
                Ok(producers) => answer.with_active_producers(producers).with_error_message(None),
                Err((code, message)) => answer
                    .with_error_code(code.to_wire())
                    .with_error_message(message.map(|it| text(&it))),
            }
        };
        let seen = seen.entry(wanted.name.0.clone()).or_default();
        let numbers = wanted.partition_indexes.iter().filter(|number| seen.insert(**number));
        TopicResponse::default()
            .with_name(wanted.name.clone())
            .with_partitions(numbers.map(of_partition).collect())
    };
    DescribeProducersResponse::default().with_topics(request.topics.iter().map(of_topic).collect())
}

fn producers(
    node: &Node,
    topic: &str,
    number: i32,
) -> Result<Vec<ProducerState>, (ErrorCode, Option<String>)> {
    let name = TopicName::new(topic);
    name.map_err(|error| (ErrorCode::InvalidTopicException, Some(error.to_string())))?;
    let key = TopicKey::Name(text(topic));
    let found = node.topic(&key).map_err(|code| (code, None))?;
    let partition = node.partition(&found, number).map_err(|it| (it.code, None))?;
    Ok(partition.producers().iter().map(state).collect())
}

fn state(it: &ProducerEntry) -> ProducerState {
    ProducerState::default()
        .with_producer_id(it.producer_id.0.into())
        .with_producer_epoch(it.epoch.0.into())
        .with_last_sequence(it.batch.map_or(-1, |batch| batch.last_sequence.0))
        .with_last_timestamp(it.timestamp.0)
        .with_coordinator_epoch(it.coordinator_epoch)
        .with_current_txn_start_offset(it.transaction.map_or(-1, |offset| offset.to_wire()))
}
