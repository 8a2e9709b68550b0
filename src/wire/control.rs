//! Everything but Produce and Fetch: `kafka-protocol`'s messages behind the [`guard`].
//!
//! An answer is filled for the newest version; [`Answer::fit`] clears what an older one doesn't
//! have, since the crate refuses to encode a field that would be lost.

mod transactions;

pub use transactions::TransactionRequest;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest, CreateTopicsRequest, CreateTopicsResponse, DeleteGroupsRequest,
    DeleteTopicsRequest, DeleteTopicsResponse, DescribeClusterRequest, DescribeClusterResponse,
    DescribeConfigsRequest, DescribeConfigsResponse, DescribeGroupsRequest, FindCoordinatorRequest,
    FindCoordinatorResponse, HeartbeatRequest, InitProducerIdRequest, InitProducerIdResponse,
    JoinGroupRequest, LeaveGroupRequest, ListGroupsRequest, ListOffsetsRequest,
    ListOffsetsResponse, MetadataRequest, MetadataResponse, OffsetCommitRequest,
    OffsetDeleteRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse, SyncGroupRequest, api_versions_response::ApiVersion,
};
use kafka_protocol::protocol::{Decodable, Encodable};

use super::admin::{self, AdminRequest};
use super::error::{ErrorCode, WireError};
use super::frame::{HEADER_BYTES_MIN, RequestHeader};
use super::guard;
use super::offsets;
use super::versions::{self, ADVERTISED, ApiRange, api};
use super::write::Writer;
use crate::units::ByteCount;

/// Authorized operations of a client that didn't ask for them, and all that versions without the
/// field may have.
pub const NO_AUTHORIZED_OPERATIONS: i32 = i32::MIN;

/// A decoded request of any API but Produce and Fetch.
#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    /// What the broker speaks.
    ApiVersions(ApiVersionsRequest),
    /// Topics, partitions, leaders.
    Metadata(MetadataRequest),
    /// Offsets by time.
    ListOffsets(ListOffsetsRequest),
    /// New topics.
    CreateTopics(CreateTopicsRequest),
    /// Topics to be deleted.
    DeleteTopics(DeleteTopicsRequest),
    /// Who coordinates.
    FindCoordinator(FindCoordinatorRequest),
    /// Ends of leader epochs.
    OffsetForLeaderEpoch(OffsetForLeaderEpochRequest),
    /// Brokers and controller.
    DescribeCluster(DescribeClusterRequest),
    /// Settings.
    DescribeConfigs(DescribeConfigsRequest),
    /// A producer's id.
    InitProducerId(InitProducerIdRequest),
    /// Something of an administrator.
    Admin(AdminRequest),
    /// Transactions.
    Transactions(TransactionRequest),
    /// Offsets of a group to be kept.
    OffsetCommit(OffsetCommitRequest),
    /// Offsets of groups.
    OffsetFetch(OffsetFetchRequest),
    /// A member that joins.
    JoinGroup(JoinGroupRequest),
    /// A member that is there.
    Heartbeat(HeartbeatRequest),
    /// Members that leave.
    LeaveGroup(LeaveGroupRequest),
    /// Assignments.
    SyncGroup(SyncGroupRequest),
    /// Members and assignments of groups.
    DescribeGroups(DescribeGroupsRequest),
    /// The groups of a broker.
    ListGroups(ListGroupsRequest),
    /// Groups to be deleted.
    DeleteGroups(DeleteGroupsRequest),
    /// Offsets of a group to be deleted.
    OffsetDelete(OffsetDeleteRequest),
    /// A member of a group whose coordinator assigns.
    ConsumerGroupHeartbeat(ConsumerGroupHeartbeatRequest),
    /// Such groups, their members.
    ConsumerGroupDescribe(ConsumerGroupDescribeRequest),
}

/// Decodes a request's body; see [`super::frame::split`].
///
/// # Errors
/// [`WireError`]: unsupported API or version, a length that doesn't fit, too many array elements,
/// or anything else that the codec refuses.
pub fn decode(header: &RequestHeader, body: BytesMut) -> Result<Request, WireError> {
    decode_counted(header, body).map(|(request, _)| request)
}

/// The same, with the number of array elements.
///
/// # Errors
/// As [`decode`].
pub fn decode_counted(header: &RequestHeader, body: BytesMut) -> Result<(Request, u64), WireError> {
    let (key, version) = (header.api_key, header.version);
    versions::check(key, version)?;
    let elements = guard::check_request(key, version, &body)?;
    decode_checked(header, body).map(|request| (request, elements))
}

fn decode_checked(header: &RequestHeader, body: BytesMut) -> Result<Request, WireError> {
    let (key, version) = (header.api_key, header.version);
    if version >= offsets::IDS_FROM {
        match key {
            api::OFFSET_COMMIT => return offsets::decode_commit(body).map(Request::OffsetCommit),
            api::OFFSET_FETCH => return offsets::decode_fetch(body).map(Request::OffsetFetch),
            _ => {}
        }
    }
    let mut body = body.freeze();
    let request = match key {
        api::API_VERSIONS => Request::ApiVersions(decode_body(key, version, &mut body)?),
        api::METADATA => Request::Metadata(decode_body(key, version, &mut body)?),
        api::LIST_OFFSETS => Request::ListOffsets(decode_body(key, version, &mut body)?),
        api::CREATE_TOPICS => Request::CreateTopics(decode_body(key, version, &mut body)?),
        api::DELETE_TOPICS => Request::DeleteTopics(decode_body(key, version, &mut body)?),
        api::FIND_COORDINATOR => Request::FindCoordinator(decode_body(key, version, &mut body)?),
        api::OFFSET_FOR_LEADER_EPOCH => {
            Request::OffsetForLeaderEpoch(decode_body(key, version, &mut body)?)
        }
        api::DESCRIBE_CLUSTER => Request::DescribeCluster(decode_body(key, version, &mut body)?),
        api::DESCRIBE_CONFIGS => Request::DescribeConfigs(decode_body(key, version, &mut body)?),
        api::INIT_PRODUCER_ID => Request::InitProducerId(decode_body(key, version, &mut body)?),
        _ if transactions::has(key) => {
            Request::Transactions(transactions::decode(key, version, body)?)
        }
        _ => match admin::decode(key, version, &mut body)? {
            Some(request) => Request::Admin(request),
            None => return decode_group_request(key, version, &mut body),
        },
    };
    Ok(request)
}

fn decode_group_request(key: i16, version: i16, body: &mut Bytes) -> Result<Request, WireError> {
    Ok(match key {
        api::OFFSET_COMMIT => Request::OffsetCommit(decode_body(key, version, body)?),
        api::OFFSET_FETCH => Request::OffsetFetch(decode_body(key, version, body)?),
        api::JOIN_GROUP => Request::JoinGroup(decode_body(key, version, body)?),
        api::HEARTBEAT => Request::Heartbeat(decode_body(key, version, body)?),
        api::LEAVE_GROUP => Request::LeaveGroup(decode_body(key, version, body)?),
        api::SYNC_GROUP => Request::SyncGroup(decode_body(key, version, body)?),
        api::DESCRIBE_GROUPS => Request::DescribeGroups(decode_body(key, version, body)?),
        api::LIST_GROUPS => Request::ListGroups(decode_body(key, version, body)?),
        api::DELETE_GROUPS => Request::DeleteGroups(decode_body(key, version, body)?),
        api::OFFSET_DELETE => Request::OffsetDelete(decode_body(key, version, body)?),
        api::CONSUMER_GROUP_HEARTBEAT => {
            Request::ConsumerGroupHeartbeat(decode_body(key, version, body)?)
        }
        api::CONSUMER_GROUP_DESCRIBE => {
            Request::ConsumerGroupDescribe(decode_body(key, version, body)?)
        }
        _ => return Err(WireError::Unsupported { api_key: key, version }),
    })
}

pub(super) fn decode_body<M: Decodable>(
    key: i16,
    version: i16,
    body: &mut Bytes,
) -> Result<M, WireError> {
    M::decode(body, codec_version(key, version)).map_err(|why| {
        let text = why.to_string();
        WireError::Malformed { api_key: key, version, text }
    })
}

/// The version as `kafka-protocol` knows it. ListOffsets 11 is laid out as 10 is; it only allows
/// one more special timestamp (-6), and the crate stops at 10. A request of DescribeLogDirs 5 is
/// laid out as one of 4. Answers to WriteTxnMarkers are the
/// same in both versions, and the crate has the first.
fn codec_version(api_key: i16, version: i16) -> i16 {
    match api_key {
        api::LIST_OFFSETS => version.min(10),
        api::DESCRIBE_LOG_DIRS => version.min(4),
        api::WRITE_TXN_MARKERS => version.min(1),
        _ => version,
    }
}

/// An answer that [`encode`] can write in any version that is served.
pub trait Answer: Encodable + Decodable {
    /// Its API.
    const API: i16;

    /// Clears or moves what `version` doesn't have.
    fn fit(&mut self, version: i16) {
        let _ = version;
    }
}

/// Encodes an answer as a whole frame, size prefix included.
///
/// # Errors
/// [`WireError::Unsupported`]; [`WireError::Malformed`] when a field has no place in this version,
/// null where there may be none for example; [`WireError::AnswerTooLarge`].
pub fn encode<A: Answer>(header: &RequestHeader, mut answer: A) -> Result<Bytes, WireError> {
    let range = versions::check(A::API, header.version)?;
    answer.fit(header.version);
    encode_fitted(range, header.version, (header.correlation_id, &answer))
}

fn encode_fitted<A: Answer>(
    range: &ApiRange,
    version: i16,
    (correlation_id, answer): (i32, &A),
) -> Result<Bytes, WireError> {
    let codec = codec_version(A::API, version);
    let error = |text| WireError::Malformed { api_key: A::API, version, text };
    let size = answer.compute_size(codec).map_err(|why| error(why.to_string()))?;
    let has_tags = range.answer_header_has_tags(version);
    let mut writer = Writer::answer(correlation_id, has_tags, HEADER_BYTES_MIN + 1 + size);
    writer.message(answer, codec).map_err(error)?;
    Ok(writer.finish(ByteCount(0))?.freeze())
}

/// Decodes an answer's body, on the client's side.
///
/// # Errors
/// [`WireError`]: unsupported version, a length that doesn't fit, or what the codec refuses.
pub fn decode_answer<A: Answer>(version: i16, body: BytesMut) -> Result<A, WireError> {
    guard::check_answer(A::API, version, &body)?;
    decode_body(A::API, version, &mut body.freeze())
}

/// The answer to ApiVersions: everything that is advertised. Features are the broker's to add.
pub fn api_versions() -> ApiVersionsResponse {
    let ranges = ADVERTISED.iter().map(api_version).collect();
    ApiVersionsResponse::default().with_api_keys(ranges)
}

fn api_version(range: &ApiRange) -> ApiVersion {
    ApiVersion::default()
        .with_api_key(range.key)
        .with_min_version(range.min)
        .with_max_version(range.max)
}

/// The answer to an ApiVersions request whose version isn't known (KIP-511): version 0, error 35,
/// and the range of ApiVersions, from which the client takes its next try.
///
/// # Errors
/// Never in practice; the types allow [`WireError::AnswerTooLarge`].
pub fn api_versions_unsupported(correlation_id: i32) -> Result<Bytes, WireError> {
    let range = versions::check(api::API_VERSIONS, 0)?;
    let answer = ApiVersionsResponse::default()
        .with_error_code(ErrorCode::UnsupportedVersion.to_wire())
        .with_api_keys(vec![api_version(range)]);
    encode_fitted(range, 0, (correlation_id, &answer))
}

/// Whether a client may call itself, or its version, so (`ApiVersionsRequest.isValid`): letters,
/// digits, `-` and `.`, beginning and ending with a letter or digit. Error 42 otherwise.
pub fn is_software_name(name: &str) -> bool {
    let ends = [name.bytes().next(), name.bytes().last()];
    ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
}

impl Answer for ApiVersionsResponse {
    const API: i16 = api::API_VERSIONS;

    /// Versions 0 to 3 can't carry a feature whose lowest level is 0 (KAFKA-17011).
    fn fit(&mut self, version: i16) {
        if version < 4 {
            self.supported_features.retain(|feature| feature.min_version > 0);
        }
    }
}

impl Answer for MetadataResponse {
    const API: i16 = api::METADATA;

    fn fit(&mut self, version: i16) {
        if !(8..=10).contains(&version) {
            self.cluster_authorized_operations = NO_AUTHORIZED_OPERATIONS;
        }
        if version < 8 {
            for topic in &mut self.topics {
                topic.topic_authorized_operations = NO_AUTHORIZED_OPERATIONS;
            }
        }
    }
}

impl Answer for ListOffsetsResponse {
    const API: i16 = api::LIST_OFFSETS;

    fn fit(&mut self, version: i16) {
        if version < 4 {
            let partitions = self.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
            partitions.for_each(|partition| partition.leader_epoch = -1);
        }
    }
}

impl Answer for FindCoordinatorResponse {
    const API: i16 = api::FIND_COORDINATOR;

    /// Before version 4 there is one coordinator, whose fields are the answer's own.
    fn fit(&mut self, version: i16) {
        if version >= 4 {
            return;
        }
        if let Some(only) = self.coordinators.drain(..).next() {
            self.error_code = only.error_code;
            self.error_message = only.error_message;
            self.node_id = only.node_id;
            self.host = only.host;
            self.port = only.port;
        }
    }
}

impl Answer for DescribeClusterResponse {
    const API: i16 = api::DESCRIBE_CLUSTER;

    fn fit(&mut self, version: i16) {
        if version < 1 {
            self.endpoint_type = 1;
        }
        if version < 2 {
            self.brokers.iter_mut().for_each(|broker| broker.is_fenced = false);
        }
    }
}

impl Answer for CreateTopicsResponse {
    const API: i16 = api::CREATE_TOPICS;
}

impl Answer for DeleteTopicsResponse {
    const API: i16 = api::DELETE_TOPICS;
}

impl Answer for OffsetForLeaderEpochResponse {
    const API: i16 = api::OFFSET_FOR_LEADER_EPOCH;
}

impl Answer for DescribeConfigsResponse {
    const API: i16 = api::DESCRIBE_CONFIGS;
}

impl Answer for InitProducerIdResponse {
    const API: i16 = api::INIT_PRODUCER_ID;
}

/// A request that the client sends.
pub trait Ask: Encodable {
    /// What comes back.
    type Answer: Answer;
}

impl Ask for ApiVersionsRequest {
    type Answer = ApiVersionsResponse;
}

impl Ask for MetadataRequest {
    type Answer = MetadataResponse;
}

impl Ask for ListOffsetsRequest {
    type Answer = ListOffsetsResponse;
}

impl Ask for CreateTopicsRequest {
    type Answer = CreateTopicsResponse;
}

impl Ask for DeleteTopicsRequest {
    type Answer = DeleteTopicsResponse;
}

impl Ask for InitProducerIdRequest {
    type Answer = InitProducerIdResponse;
}

impl Ask for DescribeConfigsRequest {
    type Answer = DescribeConfigsResponse;
}

/// Encodes a request as a whole frame, size prefix included.
///
/// # Errors
/// [`WireError::Unsupported`]; [`WireError::Malformed`] when a field has no place in this version;
/// [`WireError::AnswerTooLarge`].
pub fn encode_request<Q: Ask>(header: &RequestHeader, request: &Q) -> Result<Bytes, WireError> {
    let range = versions::check(Q::Answer::API, header.version)?;
    assert_eq!(header.api_key, range.key, "the header is the request's own");
    let codec = codec_version(range.key, header.version);
    let (api_key, version) = (header.api_key, header.version);
    let error = |text| WireError::Malformed { api_key, version, text };
    let size = request.compute_size(codec).map_err(|why| error(why.to_string()))?;
    let mut writer = header.start(range, size);
    writer.message(request, codec).map_err(error)?;
    Ok(writer.finish(ByteCount(0))?.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_apiversions_version_is_answered_with_version_0() {
        let frame = api_versions_unsupported(9).expect("small");
        let expected = [0, 0, 0, 16, 0, 0, 0, 9, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4];
        assert_eq!(&frame[..], expected);
    }

    #[test]
    fn software_names_are_checked_as_kafka_does() {
        for good in ["a", "apache-kafka-java", "4.3.1", "A.b-9"] {
            assert!(is_software_name(good), "{good}");
        }
        for bad in ["", "-a", "a.", "a b", "ä", "a_b"] {
            assert!(!is_software_name(bad), "{bad}");
        }
    }
}
