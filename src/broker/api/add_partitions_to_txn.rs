//! AddPartitionsToTxn (24), versions 0 to 5.
//!
//! - Versions 0 to 3 come from clients: one transaction. Versions 4 and 5 come from brokers: many,
//!   each either added (transaction version 2) or only looked up (`verify_only`).
//! - When a partition isn't there or is one of an internal topic, which is no client's to write to
//!   (TOPIC_AUTHORIZATION_FAILED), none is added: the others say OPERATION_NOT_ATTEMPTED.
//! - PRODUCER_FENCED from version 2 on, INVALID_PRODUCER_EPOCH before.

use std::collections::BTreeSet;

use kafka_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResponse, AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
};

use crate::broker::api::transactions::{existing, fenced_as, producer};
use crate::broker::errors::of_transaction;
use crate::broker::node::Node;
use crate::coordinator::transactions::{
    Answer, Request, TopicPartition, TransactionVersion, TransactionalId,
};
use crate::format::names::TopicName;
use crate::wire::error::ErrorCode;

/// First version with many transactions.
const MANY_FROM: i16 = 4;

/// First version whose clients know PRODUCER_FENCED.
const FENCED_FROM: i16 = 2;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: AddPartitionsToTxnRequest,
    version: i16,
) -> AddPartitionsToTxnResponse {
    node.served().await;
    if version < MANY_FROM {
        let only = AddPartitionsToTxnTransaction::default()
            .with_transactional_id(request.v3_and_below_transactional_id)
            .with_producer_id(request.v3_and_below_producer_id)
            .with_producer_epoch(request.v3_and_below_producer_epoch)
            .with_topics(request.v3_and_below_topics);
        let results = add(node, &only, version).await;
        return AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(results);
    }
    let mut results = Vec::with_capacity(request.transactions.len());
    for transaction in request.transactions {
        let topics = add(node, &transaction, version).await;
        let result = AddPartitionsToTxnResult::default()
            .with_transactional_id(transaction.transactional_id)
            .with_topic_results(topics);
        results.push(result);
    }
    AddPartitionsToTxnResponse::default().with_results_by_transaction(results)
}

async fn add(
    node: &Node,
    transaction: &AddPartitionsToTxnTransaction,
    version: i16,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let (mut partitions, mut is_whole) = (BTreeSet::new(), true);
    for topic in &transaction.topics {
        for number in &topic.partitions {
            match writable(node, topic.name.0.as_str(), *number) {
                Ok(partition) => drop(partitions.insert(partition)),
                Err(_) => is_whole = false,
            }
        }
    }
    if !is_whole {
        return results(&transaction.topics, |topic, number| {
            let refused = writable(node, topic, number).err();
            refused.unwrap_or(ErrorCode::OperationNotAttempted)
        });
    }
    let outcome = ask(node, transaction, (version, partitions)).await;
    results(&transaction.topics, |topic, number| match &outcome {
        Ok(found) => match existing(node, topic, number) {
            Some(partition) if found.contains(&partition) => ErrorCode::None,
            _ => ErrorCode::TransactionAbortable,
        },
        Err(code) => fenced_as(*code, version >= FENCED_FROM),
    })
}

/// A partition that clients may write to.
fn writable(node: &Node, topic: &str, number: i32) -> Result<TopicPartition, ErrorCode> {
    if TopicName::new(topic).is_ok_and(|name| name.is_internal()) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    existing(node, topic, number).ok_or(ErrorCode::UnknownTopicOrPartition)
}

/// Those that are in the transaction now.
async fn ask(
    node: &Node,
    transaction: &AddPartitionsToTxnTransaction,
    (version, partitions): (i16, BTreeSet<TopicPartition>),
) -> Result<BTreeSet<TopicPartition>, ErrorCode> {
    let id: TransactionalId = transaction.transactional_id.0.as_str().into();
    let producer = producer(transaction.producer_id.0, transaction.producer_epoch);
    let request = if transaction.verify_only {
        Request::Verify { id: id.clone(), producer, partitions: partitions.clone() }
    } else {
        let version = match version {
            ..MANY_FROM => TransactionVersion::Zero,
            MANY_FROM.. => TransactionVersion::Two,
        };
        let partitions = partitions.clone();
        Request::AddPartitions { id: id.clone(), producer, partitions, version }
    };
    match node.coordinators.transactions.ask(node, &id, request).await? {
        Answer::Added => Ok(partitions),
        Answer::Verified(verified) => Ok(verified),
        Answer::Refused(refused) => Err(of_transaction(&refused)),
        other => unreachable!("no answer to this question: {other:?}"),
    }
}

fn results(
    topics: &[AddPartitionsToTxnTopic],
    code: impl Fn(&str, i32) -> ErrorCode,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let of_topic = |topic: &AddPartitionsToTxnTopic| {
        let of_partition = |number: &i32| {
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(*number)
                .with_partition_error_code(code(topic.name.0.as_str(), *number).to_wire())
        };
        AddPartitionsToTxnTopicResult::default()
            .with_name(topic.name.clone())
            .with_results_by_partition(topic.partitions.iter().map(of_partition).collect())
    };
    topics.iter().map(of_topic).collect()
}
