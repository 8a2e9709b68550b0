//! The requests of transactions, and their answers.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse, DescribeProducersRequest, DescribeProducersResponse,
    DescribeTransactionsRequest, DescribeTransactionsResponse, EndTxnRequest, EndTxnResponse,
    ListTransactionsRequest, ListTransactionsResponse, TxnOffsetCommitRequest,
    TxnOffsetCommitResponse, WriteTxnMarkersResponse,
};

use super::{Answer, decode_body};
use crate::wire::error::WireError;
use crate::wire::txn_markers::WriteTxnMarkersRequest;
use crate::wire::versions::api;

/// A decoded request of transactions.
#[derive(Clone, PartialEq, Debug)]
pub enum TransactionRequest {
    /// What a transaction is going to write to.
    AddPartitions(AddPartitionsToTxnRequest),
    /// That it is going to commit offsets of a group.
    AddOffsets(AddOffsetsToTxnRequest),
    /// Commit or abort.
    End(EndTxnRequest),
    /// Offsets of a group, as part of a transaction.
    OffsetCommit(TxnOffsetCommitRequest),
    /// Ends of transactions, on single partitions.
    WriteMarkers(WriteTxnMarkersRequest),
    /// What is known of some.
    Describe(DescribeTransactionsRequest),
    /// Which there are.
    List(ListTransactionsRequest),
    /// What partitions know of producers.
    DescribeProducers(DescribeProducersRequest),
}

/// Whether an API is one of these.
pub(super) fn has(key: i16) -> bool {
    matches!(
        key,
        api::ADD_PARTITIONS_TO_TXN
            | api::ADD_OFFSETS_TO_TXN
            | api::END_TXN
            | api::WRITE_TXN_MARKERS
            | api::TXN_OFFSET_COMMIT
            | api::DESCRIBE_PRODUCERS
            | api::DESCRIBE_TRANSACTIONS
            | api::LIST_TRANSACTIONS
    )
}

/// Decodes the body of one, after the guard has walked it.
pub(super) fn decode(
    key: i16,
    version: i16,
    mut body: Bytes,
) -> Result<TransactionRequest, WireError> {
    use TransactionRequest as Request;
    let body = &mut body;
    Ok(match key {
        api::ADD_PARTITIONS_TO_TXN => Request::AddPartitions(decode_body(key, version, body)?),
        api::ADD_OFFSETS_TO_TXN => Request::AddOffsets(decode_body(key, version, body)?),
        api::END_TXN => Request::End(decode_body(key, version, body)?),
        api::TXN_OFFSET_COMMIT => Request::OffsetCommit(decode_body(key, version, body)?),
        api::WRITE_TXN_MARKERS => {
            let body = BytesMut::from(&body[..]);
            Request::WriteMarkers(WriteTxnMarkersRequest::decode(body, version)?)
        }
        api::DESCRIBE_TRANSACTIONS => Request::Describe(decode_body(key, version, body)?),
        api::LIST_TRANSACTIONS => Request::List(decode_body(key, version, body)?),
        api::DESCRIBE_PRODUCERS => Request::DescribeProducers(decode_body(key, version, body)?),
        _ => return Err(WireError::Unsupported { api_key: key, version }),
    })
}

impl Answer for AddPartitionsToTxnResponse {
    const API: i16 = api::ADD_PARTITIONS_TO_TXN;
}

impl Answer for AddOffsetsToTxnResponse {
    const API: i16 = api::ADD_OFFSETS_TO_TXN;
}

impl Answer for EndTxnResponse {
    const API: i16 = api::END_TXN;

    fn fit(&mut self, version: i16) {
        if version < 5 {
            (self.producer_id, self.producer_epoch) = ((-1).into(), -1);
        }
    }
}

impl Answer for TxnOffsetCommitResponse {
    const API: i16 = api::TXN_OFFSET_COMMIT;
}

impl Answer for WriteTxnMarkersResponse {
    const API: i16 = api::WRITE_TXN_MARKERS;
}

impl Answer for DescribeTransactionsResponse {
    const API: i16 = api::DESCRIBE_TRANSACTIONS;
}

impl Answer for ListTransactionsResponse {
    const API: i16 = api::LIST_TRANSACTIONS;
}

impl Answer for DescribeProducersResponse {
    const API: i16 = api::DESCRIBE_PRODUCERS;
}
