//! Values that several of the tests draw.

#[path = "admin_samples.rs"]
mod admin_samples;
#[path = "samples/groups.rs"]
mod groups;
#[path = "samples/transactions.rs"]
mod transactions;

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{
    ApiVersionsRequest, BrokerId, CreateTopicsRequest, DeleteTopicsRequest, DescribeClusterRequest,
    DescribeConfigsRequest, FetchRequest, FindCoordinatorRequest, InitProducerIdRequest,
    ListOffsetsRequest, MetadataRequest, OffsetForLeaderEpochRequest, ProduceRequest, ProducerId,
    TopicName, create_topics_request, delete_topics_request, describe_configs_request,
    fetch_request, list_offsets_request, metadata_request, offset_for_leader_epoch_request,
    produce_request,
};
use kafka_protocol::protocol::{Encodable, StrBytes};
use proptest::prelude::*;
use uringlog::wire::control::Request;
use uringlog::wire::versions::{ADVERTISED, api};

/// Short texts, and some whose compact length takes two bytes.
pub fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9._-]{0,20}", "[a-zä]{120,140}"]
}

pub fn their_text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Tagged fields that no version of the protocol has.
pub fn unknown_tags() -> impl Strategy<Value = BTreeMap<i32, Bytes>> {
    let value = prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from);
    prop::collection::btree_map(50_i32..20_000, value, 0..3)
}

/// The crate's answer as a frame, size prefix included.
pub fn framed<M: Encodable>(message: &M, version: i16, (id, tags): (i32, bool)) -> Bytes {
    let mut body = BytesMut::new();
    message.encode(&mut body, version).expect("the message fits the version");
    let header = size_of::<i32>() + usize::from(tags);
    let mut frame = BytesMut::new();
    frame.put_i32(i32::try_from(header + body.len()).expect("small"));
    frame.put_i32(id);
    if tags {
        frame.put_u8(0);
    }
    frame.put_slice(&body);
    frame.freeze()
}

/// A request's number, version and body.
pub struct Sample {
    pub api_key: i16,
    pub version: i16,
    pub body: Bytes,
}

impl Sample {
    fn new<M: Encodable>(api_key: i16, version: i16, message: &M) -> Sample {
        // Two requests of versions that the crate lacks are laid out as those before.
        let theirs = match api_key {
            api::LIST_OFFSETS => version.min(10),
            api::DESCRIBE_LOG_DIRS => version.min(4),
            _ => version,
        };
        let mut body = BytesMut::new();
        message.encode(&mut body, theirs).expect("fitted to the version");
        Sample { api_key, version, body: body.freeze() }
    }
}

/// A filled request of every API in every version that is served.
pub fn requests() -> Vec<(Sample, Option<Request>)> {
    let mut samples = Vec::new();
    for range in ADVERTISED {
        for version in range.served_min..=range.max {
            samples.push(sample(range.key, version));
        }
    }
    samples
}

fn sample(key: i16, version: i16) -> (Sample, Option<Request>) {
    macro_rules! control {
        ($variant:ident, $message:expr) => {{
            let message = $message;
            (Sample::new(key, version, &message), Some(Request::$variant(message)))
        }};
    }
    match key {
        api::PRODUCE => (Sample::new(key, version, &produce(version)), None),
        api::FETCH => (Sample::new(key, version, &fetch(version)), None),
        api::LIST_OFFSETS => control!(ListOffsets, list_offsets(version)),
        api::METADATA => control!(Metadata, metadata(version)),
        api::FIND_COORDINATOR => control!(FindCoordinator, find_coordinator(version)),
        api::API_VERSIONS => control!(ApiVersions, api_versions(version)),
        api::CREATE_TOPICS => control!(CreateTopics, create_topics()),
        api::DELETE_TOPICS => control!(DeleteTopics, delete_topics(version)),
        api::INIT_PRODUCER_ID => control!(InitProducerId, init_producer_id(version)),
        api::OFFSET_FOR_LEADER_EPOCH => {
            control!(OffsetForLeaderEpoch, offset_for_leader_epoch(version))
        }
        api::DESCRIBE_CONFIGS => control!(DescribeConfigs, describe_configs(version)),
        api::DESCRIBE_CLUSTER => control!(DescribeCluster, describe_cluster(version)),
        other => {
            match admin_samples::sample(other, version).or_else(|| groups::sample(other, version)) {
                Some(sample) => sample,
                None => transactions::sample(other, version),
            }
        }
    }
}

fn name(text: &'static str) -> TopicName {
    TopicName(StrBytes::from_static_str(text))
}

fn id(byte: u8) -> uuid::Uuid {
    uuid::Uuid::from_bytes([byte; 16])
}

fn produce(version: i16) -> ProduceRequest {
    let partition = produce_request::PartitionProduceData::default()
        .with_index(1)
        .with_records(Some(Bytes::from_static(b"a batch")));
    let mut topic = produce_request::TopicProduceData::default()
        .with_partition_data(vec![partition.clone(), partition]);
    if version >= 13 {
        topic.topic_id = id(7);
    } else {
        topic.name = name("topic");
    }
    ProduceRequest::default().with_acks(-1).with_timeout_ms(30).with_topic_data(vec![topic])
}

fn fetch(version: i16) -> FetchRequest {
    let partition = fetch_request::FetchPartition::default().with_fetch_offset(5);
    let mut topic =
        fetch_request::FetchTopic::default().with_partitions(vec![partition.clone(), partition]);
    let mut gone = fetch_request::ForgottenTopic::default().with_partitions(vec![1, 2]);
    if version >= 13 {
        topic.topic_id = id(7);
        gone.topic_id = id(8);
    } else {
        topic.topic = name("topic");
        gone.topic = name("gone");
    }
    let mut request = FetchRequest::default().with_topics(vec![topic]);
    if version >= 7 {
        request.forgotten_topics_data = vec![gone];
    }
    if version >= 12 {
        request.cluster_id = Some(StrBytes::from_static_str("cluster"));
    }
    if version >= 15 {
        request.replica_state.replica_epoch = 4;
    }
    request
}

fn list_offsets(version: i16) -> ListOffsetsRequest {
    let mut partition = list_offsets_request::ListOffsetsPartition::default()
        .with_partition_index(3)
        .with_timestamp(-2);
    if version >= 4 {
        partition.current_leader_epoch = 6;
    }
    let topic = list_offsets_request::ListOffsetsTopic::default()
        .with_name(name("topic"))
        .with_partitions(vec![partition]);
    let mut request = ListOffsetsRequest::default().with_topics(vec![topic.clone(), topic]);
    request.isolation_level = i8::from(version >= 2);
    if version >= 10 {
        request.timeout_ms = 9;
    }
    request
}

fn metadata(version: i16) -> MetadataRequest {
    let mut topic =
        metadata_request::MetadataRequestTopic::default().with_name(Some(name("topic")));
    if version >= 10 {
        topic.topic_id = id(7);
    }
    let mut request = MetadataRequest::default().with_topics(Some(vec![topic.clone(), topic]));
    request.allow_auto_topic_creation = version < 4;
    request.include_topic_authorized_operations = version >= 8;
    request
}

fn find_coordinator(version: i16) -> FindCoordinatorRequest {
    let key = StrBytes::from_static_str("group");
    let mut request = FindCoordinatorRequest::default().with_key_type(i8::from(version >= 1));
    if version >= 4 {
        request.coordinator_keys = vec![key.clone(), key];
    } else {
        request.key = key;
    }
    request
}

fn api_versions(version: i16) -> ApiVersionsRequest {
    let mut request = ApiVersionsRequest::default();
    if version >= 3 {
        request.client_software_name = StrBytes::from_static_str("client");
        request.client_software_version = StrBytes::from_static_str("1.0");
    }
    request
}

fn create_topics() -> CreateTopicsRequest {
    let assignment = create_topics_request::CreatableReplicaAssignment::default()
        .with_broker_ids(vec![BrokerId(1), BrokerId(2)]);
    let config = create_topics_request::CreatableTopicConfig::default()
        .with_name(StrBytes::from_static_str("segment.bytes"))
        .with_value(Some(StrBytes::from_static_str("1048576")));
    let topic = create_topics_request::CreatableTopic::default()
        .with_name(name("topic"))
        .with_assignments(vec![assignment])
        .with_configs(vec![config.clone(), config]);
    CreateTopicsRequest::default().with_topics(vec![topic]).with_validate_only(true)
}

fn delete_topics(version: i16) -> DeleteTopicsRequest {
    let mut request = DeleteTopicsRequest::default().with_timeout_ms(5);
    if version >= 6 {
        let topic =
            delete_topics_request::DeleteTopicState::default().with_name(Some(name("topic")));
        request.topics = vec![topic.clone(), topic.with_name(None).with_topic_id(id(3))];
    } else {
        request.topic_names = vec![name("topic"), name("other")];
    }
    request
}

fn init_producer_id(version: i16) -> InitProducerIdRequest {
    let mut request = InitProducerIdRequest::default().with_transaction_timeout_ms(60_000);
    if version >= 3 {
        request.producer_id = ProducerId(4);
        request.producer_epoch = 5;
    }
    request
}

fn offset_for_leader_epoch(version: i16) -> OffsetForLeaderEpochRequest {
    let partition = offset_for_leader_epoch_request::OffsetForLeaderPartition::default()
        .with_current_leader_epoch(3)
        .with_leader_epoch(2);
    let topic = offset_for_leader_epoch_request::OffsetForLeaderTopic::default()
        .with_topic(name("topic"))
        .with_partitions(vec![partition]);
    let replica = BrokerId(if version >= 3 { -1 } else { -2 });
    OffsetForLeaderEpochRequest::default().with_replica_id(replica).with_topics(vec![topic])
}

fn describe_configs(version: i16) -> DescribeConfigsRequest {
    let keys = vec![StrBytes::from_static_str("segment.bytes")];
    let resource = describe_configs_request::DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(StrBytes::from_static_str("topic"));
    let some = resource.clone().with_configuration_keys(Some(keys));
    DescribeConfigsRequest::default()
        .with_resources(vec![some, resource.with_configuration_keys(None)])
        .with_include_synonyms(true)
        .with_include_documentation(version >= 3)
}

fn describe_cluster(version: i16) -> DescribeClusterRequest {
    let mut request =
        DescribeClusterRequest::default().with_include_cluster_authorized_operations(true);
    request.endpoint_type = if version >= 1 { 2 } else { 1 };
    request.include_fenced_brokers = version >= 2;
    request
}
