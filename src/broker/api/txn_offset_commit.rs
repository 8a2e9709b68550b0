//! TxnOffsetCommit (28), versions 0 to 5.

use kafka_protocol::messages::txn_offset_commit_request::TxnOffsetCommitRequest;
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponse, TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};

use crate::broker::node::Node;
use crate::wire::error::ErrorCode;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: TxnOffsetCommitRequest,
    _version: i16,
) -> TxnOffsetCommitResponse {
    node.served().await;
    let topics = request.topics.into_iter().map(|topic| {
        let refused = topic.partitions.iter().map(|partition| {
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(ErrorCode::CoordinatorNotAvailable.to_wire())
        });
        let partitions = refused.collect();
        TxnOffsetCommitResponseTopic::default().with_name(topic.name).with_partitions(partitions)
    });
    TxnOffsetCommitResponse::default().with_topics(topics.collect())
}
