//! AddOffsetsToTxn (25), versions 0 to 4: the transaction is going to commit offsets of a group, so
//! the group's partition of `__consumer_offsets` belongs to it. Clients with transaction version 2
//! don't send it: TxnOffsetCommit adds the partition.
//!
//! PRODUCER_FENCED from version 2 on, INVALID_PRODUCER_EPOCH before.

use kafka_protocol::messages::add_offsets_to_txn_request::AddOffsetsToTxnRequest;
use kafka_protocol::messages::add_offsets_to_txn_response::AddOffsetsToTxnResponse;

use crate::broker::api::transactions::{fenced_as, producer};
use crate::broker::coordinators::{Kind, find, internal_topic};
use crate::broker::errors::of_transaction;
use crate::broker::node::Node;
use crate::coordinator::transactions::{
    Answer, Request, TopicPartition, TransactionVersion, TransactionalId,
};
use crate::wire::error::ErrorCode;

/// First version whose clients know PRODUCER_FENCED.
const FENCED_FROM: i16 = 2;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: AddOffsetsToTxnRequest,
    version: i16,
) -> AddOffsetsToTxnResponse {
    node.served().await;
    let code = match add(node, &request).await {
        Ok(()) => ErrorCode::None,
        Err(code) => fenced_as(code, version >= FENCED_FROM),
    };
    AddOffsetsToTxnResponse::default().with_error_code(code.to_wire())
}

async fn add(node: &Node, request: &AddOffsetsToTxnRequest) -> Result<(), ErrorCode> {
    // The group may have committed nothing yet.
    let topic = internal_topic::get_or_make(node, Kind::Groups).await.map_err(|it| it.code)?;
    let partition = find::partition_of(&topic, request.group_id.0.as_str());
    let partition = TopicPartition { topic: topic.name.clone(), partition };
    let id: TransactionalId = request.transactional_id.0.as_str().into();
    let asked = Request::AddPartitions {
        id: id.clone(),
        producer: producer(request.producer_id.0, request.producer_epoch),
        partitions: [partition].into(),
        version: TransactionVersion::Zero,
    };
    match node.coordinators.transactions.ask(node, &id, asked).await? {
        Answer::Added => Ok(()),
        Answer::Refused(refused) => Err(of_transaction(&refused)),
        other => unreachable!("no answer to this question: {other:?}"),
    }
}
