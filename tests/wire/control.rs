//! The control plane through the guard, in every version.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{
    AddPartitionsToTxnResponse, ApiVersionsResponse, BrokerId, CreateTopicsResponse,
    DeleteTopicsResponse, DescribeClusterResponse, DescribeConfigsResponse, EndTxnResponse,
    FindCoordinatorResponse, InitProducerIdResponse, ListOffsetsResponse, ListTransactionsResponse,
    MetadataResponse, OffsetForLeaderEpochResponse, ProducerId, TopicName,
    add_partitions_to_txn_response, api_versions_response, create_topics_response,
    delete_topics_response, describe_cluster_response, describe_configs_response,
    list_offsets_response, list_transactions_response, metadata_response,
    offset_for_leader_epoch_response,
};
use kafka_protocol::protocol::StrBytes;
use uringlog::wire::control::{self, Answer};
use uringlog::wire::frame::{self, FRAME_BYTES_MAX, RequestHeader, SIZE_BYTES};
use uringlog::wire::versions;

use crate::samples::requests;

fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

fn header(api_key: i16, version: i16) -> RequestHeader {
    RequestHeader { api_key, version, correlation_id: 77, client_id: None }
}

#[test]
fn requests_are_read_in_every_version() {
    let mut count = 0;
    for (sample, expected) in requests() {
        let Some(expected) = expected else { continue };
        let header = header(sample.api_key, sample.version);
        let request = control::decode(&header, BytesMut::from(&sample.body[..]));
        assert_eq!(request.as_ref(), Ok(&expected), "version {}", sample.version);
        count += 1;
    }
    assert!(count > 110, "{count} versions of all APIs but two");
}

/// Encodes `full` in every version and decodes it again.
fn check<A: Answer>(full: impl Fn(i16) -> A, look: impl Fn(i16, A)) {
    let range = versions::find(A::API).expect("advertised");
    for version in range.served_min..=range.max {
        let frame = control::encode(&header(A::API, version), full(version))
            .unwrap_or_else(|error| panic!("{} {version}: {error}", range.name));
        let prefix = *frame.first_chunk::<SIZE_BYTES>().expect("a frame has a size");
        let size = frame::frame_size(prefix, FRAME_BYTES_MAX).expect("within the limits");
        assert_eq!(size + SIZE_BYTES, frame.len(), "{} {version}", range.name);
        assert_eq!(frame[SIZE_BYTES..8], [0, 0, 0, 77]);
        let body = if range.answer_header_has_tags(version) {
            assert_eq!(frame[8], 0);
            frame.slice(9..)
        } else {
            frame.slice(8..)
        };
        look(version, decode(version, body));
    }
}

fn decode<A: Answer>(version: i16, body: Bytes) -> A {
    let theirs = if A::API == versions::api::LIST_OFFSETS { version.min(10) } else { version };
    let mut rest = body.clone();
    let answer = A::decode(&mut rest, theirs).expect("readable");
    assert!(rest.is_empty(), "nothing is left over");
    answer
}

/// What the client reads goes through a schema as well; it has to fit what the crate writes.
fn check_guarded<A: Answer>(full: impl Fn(i16) -> A) {
    let range = versions::find(A::API).expect("advertised");
    for version in range.served_min..=range.max {
        let frame = control::encode(&header(A::API, version), full(version)).expect("fits");
        let start = if range.answer_header_has_tags(version) { 9 } else { 8 };
        for cut in start..frame.len() {
            let body = BytesMut::from(&frame[start..cut]);
            control::decode_answer::<A>(version, body)
                .err()
                .unwrap_or_else(|| panic!("{} {version} cut at {cut}", range.name));
        }
        control::decode_answer::<A>(version, BytesMut::from(&frame[start..])).expect("whole");
    }
}

fn metadata(version: i16) -> MetadataResponse {
    let partition = metadata_response::MetadataResponsePartition::default()
        .with_leader_id(BrokerId(1))
        .with_leader_epoch(4)
        .with_replica_nodes(vec![BrokerId(1)])
        .with_isr_nodes(vec![BrokerId(1)])
        .with_offline_replicas(vec![BrokerId(2)]);
    let topic = metadata_response::MetadataResponseTopic::default()
        .with_name(Some(TopicName(text("topic"))))
        .with_topic_id(uuid::Uuid::from_bytes([7; 16]))
        .with_partitions(vec![partition])
        .with_topic_authorized_operations(3);
    let broker = metadata_response::MetadataResponseBroker::default()
        .with_node_id(BrokerId(1))
        .with_host(text("localhost"))
        .with_port(9092)
        .with_rack(Some(text("rack")));
    MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_cluster_id(Some(text("cluster")))
        .with_controller_id(BrokerId(1))
        .with_topics(vec![topic])
        .with_cluster_authorized_operations(5)
        .with_error_code(if version >= 13 { 129 } else { 0 })
}

#[test]
fn metadata_fits_every_version() {
    check(metadata, |version, answer| {
        assert_eq!(answer.topics[0].partitions[0].leader_id, BrokerId(1));
        assert_eq!(answer.topics[0].topic_id.is_nil(), version < 10);
        let operations = if version >= 8 { 3 } else { i32::MIN };
        assert_eq!(answer.topics[0].topic_authorized_operations, operations);
    });
    check_guarded(metadata);
}

fn api_versions(_: i16) -> ApiVersionsResponse {
    let feature = |name, level| {
        api_versions_response::SupportedFeatureKey::default()
            .with_name(text(name))
            .with_min_version(level)
            .with_max_version(1)
    };
    control::api_versions()
        .with_supported_features(vec![feature("kraft.version", 0), feature("group.version", 1)])
}

#[test]
fn apiversions_drops_features_that_old_versions_cannot_say() {
    check(api_versions, |version, answer| {
        let expected = [0, 0, 0, 1, 2][usize::try_from(version).expect("small")];
        assert_eq!(answer.supported_features.len(), expected);
        let produce = &answer.api_keys[0];
        assert_eq!((produce.api_key, produce.min_version, produce.max_version), (0, 0, 13));
        assert_eq!(answer.api_keys.len(), versions::ADVERTISED.len());
    });
    check_guarded(api_versions);
}

fn list_offsets(_: i16) -> ListOffsetsResponse {
    let partition = list_offsets_response::ListOffsetsPartitionResponse::default()
        .with_offset(42)
        .with_timestamp(43)
        .with_leader_epoch(4);
    let topic = list_offsets_response::ListOffsetsTopicResponse::default()
        .with_name(TopicName(text("topic")))
        .with_partitions(vec![partition]);
    ListOffsetsResponse::default().with_topics(vec![topic])
}

#[test]
fn listoffsets_fits_every_version_11_included() {
    check(list_offsets, |version, answer| {
        let partition = &answer.topics[0].partitions[0];
        assert_eq!((partition.offset, partition.timestamp), (42, 43));
        assert_eq!(partition.leader_epoch, if version >= 4 { 4 } else { -1 });
    });
    check_guarded(list_offsets);
}

#[test]
fn findcoordinator_moves_the_only_coordinator() {
    let full = |_| {
        let coordinator = Coordinator::default()
            .with_key(text("group"))
            .with_node_id(BrokerId(1))
            .with_host(text("localhost"))
            .with_port(9092)
            .with_error_code(15)
            .with_error_message(Some(text("there are no groups yet")));
        FindCoordinatorResponse::default().with_coordinators(vec![coordinator])
    };
    check(full, |version, answer| {
        let port = if version >= 4 { answer.coordinators[0].port } else { answer.port };
        assert_eq!(port, 9092);
        assert_eq!(answer.error_code, if version >= 4 { 0 } else { 15 });
    });
}

fn create_topics(_: i16) -> CreateTopicsResponse {
    let config = create_topics_response::CreatableTopicConfigs::default()
        .with_name(text("segment.bytes"))
        .with_value(Some(text("1048576")));
    let topic = create_topics_response::CreatableTopicResult::default()
        .with_name(TopicName(text("topic")))
        .with_topic_id(uuid::Uuid::from_bytes([7; 16]))
        .with_error_message(Some(text("why")))
        .with_num_partitions(3)
        .with_configs(Some(vec![config]));
    CreateTopicsResponse::default().with_topics(vec![topic])
}

fn delete_topics(_: i16) -> DeleteTopicsResponse {
    let topic = delete_topics_response::DeletableTopicResult::default()
        .with_name(Some(TopicName(text("topic"))))
        .with_topic_id(uuid::Uuid::from_bytes([7; 16]))
        .with_error_message(Some(text("why")));
    DeleteTopicsResponse::default().with_responses(vec![topic])
}

fn describe_configs(_: i16) -> DescribeConfigsResponse {
    let synonym = describe_configs_response::DescribeConfigsSynonym::default()
        .with_name(text("log.segment.bytes"))
        .with_value(Some(text("1048576")))
        .with_source(5);
    let entry = describe_configs_response::DescribeConfigsResourceResult::default()
        .with_name(text("segment.bytes"))
        .with_value(Some(text("1048576")))
        .with_config_source(5)
        .with_synonyms(vec![synonym])
        .with_config_type(3)
        .with_documentation(Some(text("how large")));
    let result = describe_configs_response::DescribeConfigsResult::default()
        .with_resource_name(text("topic"))
        .with_configs(vec![entry]);
    DescribeConfigsResponse::default().with_results(vec![result])
}

#[test]
fn topic_administration_fits_every_version() {
    check(create_topics, |version, answer| {
        let topic = &answer.topics[0];
        assert_eq!(topic.topic_id.is_nil(), version < 7);
        assert_eq!(topic.num_partitions, if version >= 5 { 3 } else { -1 });
    });
    check_guarded(create_topics);
    check(delete_topics, |version, answer| {
        assert_eq!(answer.responses[0].error_message.is_some(), version >= 5);
    });
    check_guarded(delete_topics);
    check(describe_configs, |_, answer| {
        assert_eq!(answer.results[0].configs[0].synonyms.len(), 1);
    });
    check_guarded(describe_configs);
}

#[test]
fn the_rest_fits_every_version() {
    let cluster = |_| {
        let broker = describe_cluster_response::DescribeClusterBroker::default()
            .with_broker_id(BrokerId(1))
            .with_host(text("localhost"))
            .with_is_fenced(true);
        DescribeClusterResponse::default().with_endpoint_type(2).with_brokers(vec![broker])
    };
    check(cluster, |version, answer| {
        assert_eq!(answer.endpoint_type, if version >= 1 { 2 } else { 1 });
    });
    let epochs = |_| {
        let end = offset_for_leader_epoch_response::EpochEndOffset::default().with_end_offset(9);
        let topic = offset_for_leader_epoch_response::OffsetForLeaderTopicResult::default()
            .with_topic(TopicName(text("topic")))
            .with_partitions(vec![end]);
        OffsetForLeaderEpochResponse::default().with_topics(vec![topic])
    };
    check(epochs, |_, answer| assert_eq!(answer.topics[0].partitions[0].end_offset, 9));
    let producer = |_| InitProducerIdResponse::default().with_producer_id(ProducerId(5));
    check(producer, |_, answer| assert_eq!(answer.producer_id, ProducerId(5)));
}

#[test]
fn transactions_fit_every_version() {
    check(
        |version| {
            let result =
                add_partitions_to_txn_response::AddPartitionsToTxnPartitionResult::default()
                    .with_partition_index(3)
                    .with_partition_error_code(120);
            let topic = add_partitions_to_txn_response::AddPartitionsToTxnTopicResult::default()
                .with_results_by_partition(vec![result]);
            let answer = AddPartitionsToTxnResponse::default();
            if version < 4 {
                return answer.with_results_by_topic_v3_and_below(vec![topic]);
            }
            let of_transaction =
                add_partitions_to_txn_response::AddPartitionsToTxnResult::default()
                    .with_topic_results(vec![topic]);
            answer.with_results_by_transaction(vec![of_transaction])
        },
        |version, mut answer| {
            let mut topics = match version {
                ..4 => answer.results_by_topic_v3_and_below,
                4.. => answer.results_by_transaction.remove(0).topic_results,
            };
            let result = topics.remove(0).results_by_partition.remove(0);
            assert_eq!((result.partition_index, result.partition_error_code), (3, 120));
        },
    );
    check(
        |_| {
            let producer = EndTxnResponse::default().with_producer_id(ProducerId(5));
            producer.with_producer_epoch(6).with_error_code(51)
        },
        |version, answer| {
            let expected = if version < 5 { (-1, -1) } else { (5, 6) };
            assert_eq!((answer.producer_id.0, answer.producer_epoch), expected);
            assert_eq!(answer.error_code, 51);
        },
    );
    check(
        |_| {
            let state = list_transactions_response::TransactionState::default()
                .with_producer_id(ProducerId(5));
            ListTransactionsResponse::default().with_transaction_states(vec![state])
        },
        |_, answer| assert_eq!(answer.transaction_states[0].producer_id.0, 5),
    );
}
