//! Requests of transactions.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, DescribeProducersRequest,
    DescribeTransactionsRequest, EndTxnRequest, GroupId, ListTransactionsRequest, ProducerId,
    TransactionalId, TxnOffsetCommitRequest, add_partitions_to_txn_request,
    describe_producers_request, txn_offset_commit_request,
};
use kafka_protocol::protocol::StrBytes;
use uringlog::units::{LeaderEpoch, ProducerEpoch};
use uringlog::wire::control::{Request, TransactionRequest};
use uringlog::wire::txn_markers::{TxnMarker, WriteTxnMarkersRequest};
use uringlog::wire::versions::api;

use super::{Sample, name};

/// A filled request of an API of transactions.
pub fn sample(key: i16, version: i16) -> (Sample, Option<Request>) {
    macro_rules! request {
        ($variant:ident, $message:expr) => {{
            let message = $message;
            let sample = Sample::new(key, version, &message);
            (sample, TransactionRequest::$variant(message))
        }};
    }
    let (sample, request) = match key {
        api::ADD_PARTITIONS_TO_TXN => request!(AddPartitions, add_partitions(version)),
        api::ADD_OFFSETS_TO_TXN => request!(AddOffsets, add_offsets()),
        api::END_TXN => request!(End, end()),
        api::TXN_OFFSET_COMMIT => request!(OffsetCommit, offset_commit(version)),
        api::DESCRIBE_TRANSACTIONS => request!(Describe, describe()),
        api::LIST_TRANSACTIONS => request!(List, list(version)),
        api::DESCRIBE_PRODUCERS => request!(DescribeProducers, describe_producers()),
        api::WRITE_TXN_MARKERS => write_markers(version),
        other => panic!("API {other} is advertised without a sample"),
    };
    (sample, Some(Request::Transactions(request)))
}

fn id() -> TransactionalId {
    TransactionalId(StrBytes::from_static_str("copier"))
}

fn group() -> GroupId {
    GroupId(StrBytes::from_static_str("group"))
}

fn add_partitions(version: i16) -> AddPartitionsToTxnRequest {
    let topic = add_partitions_to_txn_request::AddPartitionsToTxnTopic::default()
        .with_name(name("topic"))
        .with_partitions(vec![1, 2]);
    let topics = vec![topic.clone(), topic];
    let request = AddPartitionsToTxnRequest::default();
    if version < 4 {
        return request
            .with_v3_and_below_transactional_id(id())
            .with_v3_and_below_producer_id(ProducerId(5))
            .with_v3_and_below_producer_epoch(6)
            .with_v3_and_below_topics(topics);
    }
    let transaction = add_partitions_to_txn_request::AddPartitionsToTxnTransaction::default()
        .with_transactional_id(id())
        .with_producer_id(ProducerId(5))
        .with_producer_epoch(6)
        .with_verify_only(true)
        .with_topics(topics);
    request.with_transactions(vec![transaction.clone(), transaction])
}

fn add_offsets() -> AddOffsetsToTxnRequest {
    AddOffsetsToTxnRequest::default()
        .with_transactional_id(id())
        .with_producer_id(ProducerId(5))
        .with_producer_epoch(6)
        .with_group_id(group())
}

fn end() -> EndTxnRequest {
    EndTxnRequest::default()
        .with_transactional_id(id())
        .with_producer_id(ProducerId(5))
        .with_producer_epoch(6)
        .with_committed(true)
}

fn offset_commit(version: i16) -> TxnOffsetCommitRequest {
    let mut partition = txn_offset_commit_request::TxnOffsetCommitRequestPartition::default()
        .with_partition_index(1)
        .with_committed_offset(9)
        .with_committed_metadata(None);
    if version >= 2 {
        partition.committed_leader_epoch = 4;
    }
    let topic = txn_offset_commit_request::TxnOffsetCommitRequestTopic::default()
        .with_name(name("topic"))
        .with_partitions(vec![partition.clone(), partition]);
    let mut request = TxnOffsetCommitRequest::default()
        .with_transactional_id(id())
        .with_group_id(group())
        .with_producer_id(ProducerId(5))
        .with_producer_epoch(6)
        .with_topics(vec![topic]);
    if version >= 3 {
        request.generation_id = 3;
        request.member_id = StrBytes::from_static_str("member");
        request.group_instance_id = Some(StrBytes::from_static_str("instance"));
    }
    request
}

fn describe() -> DescribeTransactionsRequest {
    DescribeTransactionsRequest::default().with_transactional_ids(vec![id(), id()])
}

fn list(version: i16) -> ListTransactionsRequest {
    let mut request = ListTransactionsRequest::default()
        .with_state_filters(vec![StrBytes::from_static_str("Ongoing")])
        .with_producer_id_filters(vec![ProducerId(5), ProducerId(6)]);
    if version >= 1 {
        request.duration_filter = 1000;
    }
    if version >= 2 {
        request.transactional_id_pattern = Some(StrBytes::from_static_str("cop.*"));
    }
    request
}

fn describe_producers() -> DescribeProducersRequest {
    let topic = describe_producers_request::TopicRequest::default()
        .with_name(name("topic"))
        .with_partition_indexes(vec![1, 2]);
    DescribeProducersRequest::default().with_topics(vec![topic])
}

/// Written by hand: the crate has no version 2.
fn write_markers(version: i16) -> (Sample, TransactionRequest) {
    let mut body = BytesMut::new();
    body.put_slice(&[2]);
    body.put_i64(5);
    body.put_i16(6);
    body.put_slice(&[1, 2, 6]);
    body.put_slice(b"topic");
    body.put_slice(&[2]);
    body.put_i32(7);
    body.put_u8(0);
    body.put_i32(8);
    if version >= 2 {
        body.put_i8(2);
    }
    body.put_slice(&[0, 0]);
    let marker = TxnMarker {
        producer_id: uringlog::units::ProducerId(5),
        producer_epoch: ProducerEpoch(6),
        commits: true,
        topics: vec![(StrBytes::from_static_str("topic"), vec![7])],
        coordinator_epoch: LeaderEpoch(8),
        transaction_version: if version >= 2 { 2 } else { 0 },
    };
    let request = WriteTxnMarkersRequest { markers: vec![marker] };
    let sample = Sample { api_key: api::WRITE_TXN_MARKERS, version, body: Bytes::from(body) };
    (sample, TransactionRequest::WriteMarkers(request))
}
