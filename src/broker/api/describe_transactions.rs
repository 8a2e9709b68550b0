//! DescribeTransactions (65), version 0: transactional ids that this shard coordinates, each
//! once however often it is named.

use kafka_protocol::messages::TransactionalId;
use kafka_protocol::messages::describe_transactions_request::DescribeTransactionsRequest;
use kafka_protocol::messages::describe_transactions_response::{
    DescribeTransactionsResponse, TopicData, TransactionState,
};

use crate::broker::api::{once, text, topic_name};
use crate::broker::errors::of_transaction;
use crate::broker::node::Node;
use crate::coordinator::transactions::{Answer, Request, Transaction};
use crate::wire::error::ErrorCode;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse {
    node.served().await;
    let mut states = Vec::new();
    for id in once(request.transactional_ids) {
        let state = match describe(node, &id).await {
            Ok(transaction) => state(&transaction),
            Err(code) => TransactionState::default().with_error_code(code.to_wire()),
        };
        states.push(state.with_transactional_id(id));
    }
    DescribeTransactionsResponse::default().with_transaction_states(states)
}

async fn describe(node: &Node, id: &TransactionalId) -> Result<Box<Transaction>, ErrorCode> {
    let id = id.0.as_str();
    if id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    match node.coordinators.transactions.ask(node, id, Request::Describe(id.into())).await? {
        Answer::Described(transaction) => Ok(transaction),
        Answer::Refused(refused) => Err(of_transaction(&refused)),
        other => unreachable!("no answer to this question: {other:?}"),
    }
}

fn state(it: &Transaction) -> TransactionState {
    let mut topics: Vec<TopicData> = Vec::new();
    for partition in &it.partitions {
        let name = topic_name(&partition.topic);
        let number = i32::try_from(partition.partition.0).expect("partitions have 31 bits");
        match topics.last_mut() {
            Some(last) if last.topic == name => last.partitions.push(number),
            _ => topics.push(TopicData::default().with_topic(name).with_partitions(vec![number])),
        }
    }
    TransactionState::default()
        .with_producer_id(it.producer_id.0.into())
        .with_producer_epoch(it.epoch.0)
        .with_transaction_state(text(it.state.name()))
        .with_transaction_timeout_ms(it.timeout_ms)
        .with_transaction_start_time_ms(it.started.0)
        .with_topics(topics)
}
