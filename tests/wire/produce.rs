//! Produce against the crate.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint as TheirEndpoint,
    PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{
    BrokerId as TheirBrokerId, ProduceRequest, ProduceResponse, TopicName, TransactionalId,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use proptest::prelude::*;
use uringlog::units::{BrokerId, LeaderEpoch, TopicId};
use uringlog::wire::error::ErrorCode;
use uringlog::wire::produce::{PartitionAnswer, ProduceAnswer, ProduceFrame, RecordError};
use uringlog::wire::topics::{CurrentLeader, NodeEndpoint, TopicGroup, TopicKey};

use crate::allocations::measure;
use crate::samples::{framed, text, their_text, unknown_tags};

fn partition() -> impl Strategy<Value = PartitionProduceData> {
    let records = prop::option::of(prop::collection::vec(any::<u8>(), 0..300));
    (any::<i32>(), records, unknown_tags()).prop_map(|(index, records, tags)| {
        PartitionProduceData::default()
            .with_index(index)
            .with_records(records.map(Bytes::from))
            .with_unknown_tagged_fields(tags)
    })
}

fn topic() -> impl Strategy<Value = TopicProduceData> {
    let partitions = prop::collection::vec(partition(), 0..4);
    (text(), any::<[u8; 16]>(), partitions, unknown_tags()).prop_map(|(name, id, list, tags)| {
        TopicProduceData::default()
            .with_name(TopicName(their_text(&name)))
            .with_topic_id(uuid::Uuid::from_bytes(id))
            .with_partition_data(list)
            .with_unknown_tagged_fields(tags)
    })
}

fn request() -> impl Strategy<Value = (i16, ProduceRequest)> {
    let topics = prop::collection::vec(topic(), 0..4);
    let id = prop::option::of(text());
    (3_i16..=13, id, any::<i16>(), any::<i32>(), topics).prop_map(
        |(version, id, acks, timeout, mut topics)| {
            topics.iter_mut().for_each(|topic| fit_topic(topic, version));
            let request = ProduceRequest::default()
                .with_transactional_id(id.map(|id| TransactionalId(their_text(&id))))
                .with_acks(acks)
                .with_timeout_ms(timeout)
                .with_topic_data(topics);
            (version, request)
        },
    )
}

fn fit_topic(topic: &mut TopicProduceData, version: i16) {
    if version >= 13 {
        topic.name = TopicName::default();
    } else {
        topic.topic_id = uuid::Uuid::nil();
    }
    if version < 9 {
        topic.unknown_tagged_fields.clear();
        topic.partition_data.iter_mut().for_each(|one| one.unknown_tagged_fields.clear());
    }
}

fn assert_same(theirs: &ProduceRequest, ours: &ProduceFrame, version: i16) {
    let id = theirs.transactional_id.as_ref().map(|id| id.0.as_str());
    assert_eq!(ours.transactional_id.as_deref(), id);
    assert_eq!((ours.acks, ours.timeout_ms), (theirs.acks, theirs.timeout_ms));
    assert_eq!(ours.topics.len(), theirs.topic_data.len());
    let mut rest = &ours.partitions[..];
    for (ours, theirs) in ours.topics.iter().zip(&theirs.topic_data) {
        let key = match version {
            13 => TopicKey::Id(TopicId(theirs.topic_id.into_bytes())),
            _ => TopicKey::Name(theirs.name.0.clone()),
        };
        assert_eq!(ours.key, key);
        assert_eq!(ours.partitions, theirs.partition_data.len());
        for theirs in &theirs.partition_data {
            let (first, others) = rest.split_first().expect("as many as theirs");
            rest = others;
            assert_eq!(first.index, theirs.index);
            assert_eq!(&first.batch[..], theirs.records.as_deref().unwrap_or_default());
        }
    }
    assert!(rest.is_empty());
}

proptest! {
    #[test]
    fn requests_are_read_as_the_crate_writes_them((version, theirs) in request()) {
        let mut bytes = BytesMut::new();
        theirs.encode(&mut bytes, version).expect("fitted to the version");
        let memory = bytes.as_ptr_range();
        let ours = ProduceFrame::walk(bytes, version).expect("well-formed");
        assert_same(&theirs, &ours, version);
        for partition in ours.partitions.iter().filter(|one| !one.batch.is_empty()) {
            prop_assert!(memory.contains(&partition.batch.as_ptr()), "batches stay in the frame");
        }
    }

    #[test]
    fn answers_are_written_as_the_crate_writes_them(
        version in 3_i16..=13,
        correlation_id: i32,
        throttle_ms: i32,
        topics in prop::collection::vec(
            (text(), any::<[u8; 16]>(), prop::collection::vec(answer(), 0..4)),
            0..4,
        ),
        nodes in prop::collection::vec((any::<i32>(), text(), any::<u16>()), 0..3),
    ) {
        let groups: Vec<TopicGroup> = topics.iter().map(|topic| group(topic, version)).collect();
        let partitions: Vec<_> = topics.iter().flat_map(|topic| topic.2.clone()).collect();
        let endpoints: Vec<_> = nodes.iter().map(endpoint).collect();
        let ours = ProduceAnswer {
            version,
            correlation_id,
            topics: &groups,
            partitions: &partitions,
            nodes: &endpoints,
            throttle_ms,
        };
        let frame = ours.encode().expect("small");
        let theirs = ProduceResponse::default()
            .with_responses(topics.iter().map(|topic| their_topic(topic, version)).collect())
            .with_throttle_time_ms(throttle_ms)
            .with_node_endpoints(their_nodes(&nodes, version));
        prop_assert_eq!(&frame[..], &framed(&theirs, version, (correlation_id, version >= 9))[..]);
    }
}

fn answer() -> impl Strategy<Value = PartitionAnswer> {
    let message = || prop::option::of(text());
    let errors = prop::collection::vec((any::<i32>(), message()), 0..3);
    let leader = prop::option::of((0_i32..9, 0_i32..9));
    let code = prop::sample::select(ErrorCode::ALL);
    (any::<i32>(), code, any::<[i64; 3]>(), errors, message(), leader).prop_map(
        |(index, error, numbers, errors, message, leader)| PartitionAnswer {
            index,
            error,
            base_offset: numbers[0],
            log_append_time: numbers[1],
            log_start: numbers[2],
            record_errors: errors
                .into_iter()
                .map(|(batch_index, message)| RecordError { batch_index, message })
                .collect(),
            message,
            leader: leader
                .map(|(id, epoch)| CurrentLeader { id: BrokerId(id), epoch: LeaderEpoch(epoch) }),
        },
    )
}

type Topic = (String, [u8; 16], Vec<PartitionAnswer>);

fn group(topic: &Topic, version: i16) -> TopicGroup {
    let key = match version {
        13 => TopicKey::Id(TopicId(topic.1)),
        _ => TopicKey::Name(their_text(&topic.0)),
    };
    TopicGroup { key, partitions: topic.2.len() }
}

fn endpoint((id, host, port): &(i32, String, u16)) -> NodeEndpoint {
    NodeEndpoint { id: BrokerId(*id), host: host.clone(), port: *port }
}

fn their_nodes(nodes: &[(i32, String, u16)], version: i16) -> Vec<TheirEndpoint> {
    let nodes = if version >= 10 { nodes } else { &[] };
    nodes
        .iter()
        .map(|(id, host, port)| {
            TheirEndpoint::default()
                .with_node_id(TheirBrokerId(*id))
                .with_host(their_text(host))
                .with_port(i32::from(*port))
        })
        .collect()
}

fn their_topic(topic: &Topic, version: i16) -> TopicProduceResponse {
    let partitions = topic.2.iter().map(|answer| their_partition(answer, version)).collect();
    let theirs = TopicProduceResponse::default().with_partition_responses(partitions);
    match version {
        13 => theirs.with_topic_id(uuid::Uuid::from_bytes(topic.1)),
        _ => theirs.with_name(TopicName(their_text(&topic.0))),
    }
}

fn their_partition(answer: &PartitionAnswer, version: i16) -> PartitionProduceResponse {
    let text = |text: &Option<String>| text.as_deref().map(their_text);
    let mut theirs = PartitionProduceResponse::default()
        .with_index(answer.index)
        .with_error_code(answer.error.to_wire())
        .with_base_offset(answer.base_offset)
        .with_log_append_time_ms(answer.log_append_time)
        .with_log_start_offset(answer.log_start);
    if version >= 8 {
        theirs.error_message = text(&answer.message);
        theirs.record_errors = answer
            .record_errors
            .iter()
            .map(|error| {
                BatchIndexAndErrorMessage::default()
                    .with_batch_index(error.batch_index)
                    .with_batch_index_error_message(text(&error.message))
            })
            .collect();
    }
    if let Some(leader) = answer.leader.filter(|_| version >= 10) {
        theirs.current_leader = LeaderIdAndEpoch::default()
            .with_leader_id(TheirBrokerId(leader.id.0))
            .with_leader_epoch(leader.epoch.0);
    }
    theirs
}

/// A request with one batch costs one allocation (the frame's buffer becomes shared) and its answer
/// one; the buffer itself is the receiver's.
#[test]
fn a_request_and_its_answer_cost_two_allocations() {
    let partition = PartitionProduceData::default().with_records(Some(Bytes::from(vec![7; 9_000])));
    let topic = TopicProduceData::default()
        .with_name(TopicName(StrBytes::from_static_str("flights")))
        .with_partition_data(vec![partition]);
    let request = ProduceRequest::default().with_acks(-1).with_topic_data(vec![topic]);
    for version in [3, 8, 9, 12] {
        let mut body = BytesMut::new();
        request.encode(&mut body, version).expect("fits");
        let (frame, walk) = measure(|| ProduceFrame::walk(body, version).expect("well-formed"));
        assert_eq!(walk.count, 1, "version {version}");
        assert!(walk.peak < 100, "version {version}: {walk:?}");
        let partitions = [PartitionAnswer::refused(0, ErrorCode::None)];
        let answer = ProduceAnswer {
            version,
            correlation_id: 1,
            topics: &frame.topics,
            partitions: &partitions,
            nodes: &[],
            throttle_ms: 0,
        };
        let (bytes, encode) = measure(|| answer.encode().expect("small"));
        assert_eq!(encode.count, 1, "version {version}");
        let body = &bytes[if version >= 9 { 9 } else { 8 }..];
        ProduceResponse::decode(&mut Bytes::copy_from_slice(body), version).expect("readable");
    }
}
