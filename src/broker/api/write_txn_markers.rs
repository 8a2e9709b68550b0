//! WriteTxnMarkers (27), versions 1 and 2: ends of transactions for partitions of this shard, from
//! a coordinator elsewhere, or from an operator who ends a hanging one (by `kafka-transactions`).
//!
//! - A partition that isn't on this shard is UNKNOWN_TOPIC_OR_PARTITION, as in Kafka.
//! - From version 2 on a marker says which transaction version it is of: with version 2 it has to
//!   raise the producer's epoch.

use std::rc::Rc;

use kafka_protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
};

use crate::broker::api::transactions::named;
use crate::broker::coordinators::markers;
use crate::broker::node::Node;
use crate::log::producers::Marker;
use crate::wire::error::ErrorCode;
use crate::wire::txn_markers::{TxnMarker, WriteTxnMarkersRequest};

/// Level of `transaction.version` from which markers raise the epoch.
const RAISES_FROM: i8 = 2;

/// Answers a request.
pub async fn answer(node: &Rc<Node>, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse {
    node.served().await;
    let mut results = Vec::with_capacity(request.markers.len());
    for marker in request.markers {
        results.push(write(node, &marker).await);
    }
    WriteTxnMarkersResponse::default().with_markers(results)
}

async fn write(node: &Rc<Node>, sent: &TxnMarker) -> WritableTxnMarkerResult {
    let marker = Marker {
        producer_id: sent.producer_id,
        epoch: sent.producer_epoch,
        raises_epoch: RAISES_FROM <= sent.transaction_version,
        coordinator_epoch: sent.coordinator_epoch.0,
        commits: sent.commits,
    };
    let mut topics = Vec::with_capacity(sent.topics.len());
    for (topic, numbers) in &sent.topics {
        let names = numbers.iter().filter_map(|number| named(topic.as_str(), *number));
        let under_way = markers::append(node, &marker, names.collect());
        // In the order of the names.
        let mut outcomes = markers::reached(under_way).await.into_iter().map(|(_, it)| it);
        let mut partitions = Vec::with_capacity(numbers.len());
        for number in numbers {
            let outcome = named(topic.as_str(), *number).and_then(|_| outcomes.next());
            let code = match outcome {
                Some(Ok(())) => ErrorCode::None,
                Some(Err(ErrorCode::NotLeaderOrFollower)) | None => {
                    ErrorCode::UnknownTopicOrPartition
                }
                Some(Err(code)) => code,
            };
            let result = WritableTxnMarkerPartitionResult::default()
                .with_partition_index(*number)
                .with_error_code(code.to_wire());
            partitions.push(result);
        }
        let name = kafka_protocol::messages::TopicName(topic.clone());
        let result = WritableTxnMarkerTopicResult::default().with_name(name);
        topics.push(result.with_partitions(partitions));
    }
    WritableTxnMarkerResult::default()
        .with_producer_id(sent.producer_id.0.into())
        .with_topics(topics)
}
