//! Fetch against the crate.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{
    FetchPartition, FetchTopic, ForgottenTopic, ReplicaState,
};
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction as TheirAborted, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch,
    NodeEndpoint as TheirEndpoint, PartitionData,
};
use kafka_protocol::messages::{
    BrokerId as TheirBrokerId, FetchRequest as TheirRequest, FetchResponse,
    ProducerId as TheirProducerId, TopicName,
};
use kafka_protocol::protocol::Encodable;
use proptest::prelude::*;
use uringlog::units::{BrokerId, ByteCount, LeaderEpoch, TopicId, usize_of};
use uringlog::wire::error::ErrorCode;
use uringlog::wire::fetch::{
    AbortedTransaction, EpochEnd, FetchAnswer, FetchRequest, Part, PartitionAnswer, Records,
};
use uringlog::wire::topics::{CurrentLeader, NodeEndpoint, TopicGroup, TopicKey};

use crate::samples::{framed, text, their_text, unknown_tags};

fn partition() -> impl Strategy<Value = FetchPartition> {
    let high_watermark = prop_oneof![Just(i64::MAX), any::<i64>()];
    let directory = any::<[u8; 16]>();
    (any::<[i32; 4]>(), any::<[i64; 2]>(), unknown_tags(), high_watermark, directory).prop_map(
        |(small, large, tags, high_watermark, directory)| {
            FetchPartition::default()
                .with_partition(small[0])
                .with_current_leader_epoch(small[1])
                .with_last_fetched_epoch(small[2])
                .with_partition_max_bytes(small[3])
                .with_fetch_offset(large[0])
                .with_log_start_offset(large[1])
                .with_replica_directory_id(uuid::Uuid::from_bytes(directory))
                .with_high_watermark(high_watermark)
                .with_unknown_tagged_fields(tags)
        },
    )
}

fn topic() -> impl Strategy<Value = FetchTopic> {
    let partitions = prop::collection::vec(partition(), 0..4);
    (text(), any::<[u8; 16]>(), partitions, unknown_tags()).prop_map(|(name, id, list, tags)| {
        FetchTopic::default()
            .with_topic(TopicName(their_text(&name)))
            .with_topic_id(uuid::Uuid::from_bytes(id))
            .with_partitions(list)
            .with_unknown_tagged_fields(tags)
    })
}

fn forgotten() -> impl Strategy<Value = ForgottenTopic> {
    (text(), any::<[u8; 16]>(), prop::collection::vec(any::<i32>(), 0..4)).prop_map(
        |(name, id, partitions)| {
            ForgottenTopic::default()
                .with_topic(TopicName(their_text(&name)))
                .with_topic_id(uuid::Uuid::from_bytes(id))
                .with_partitions(partitions)
        },
    )
}

fn request() -> impl Strategy<Value = (i16, TheirRequest)> {
    let numbers = (any::<[i32; 6]>(), any::<i64>(), any::<i8>());
    let lists = (prop::collection::vec(topic(), 0..4), prop::collection::vec(forgotten(), 0..3));
    let texts = (text(), prop::option::of(text()), unknown_tags());
    (4_i16..=18, numbers, lists, texts).prop_map(|(version, numbers, lists, texts)| {
        let (small, replica_epoch, isolation) = numbers;
        let replica = ReplicaState::default()
            .with_replica_id(TheirBrokerId(small[0]))
            .with_replica_epoch(replica_epoch);
        let mut request = TheirRequest::default()
            .with_replica_id(TheirBrokerId(small[0]))
            .with_max_wait_ms(small[1])
            .with_min_bytes(small[2])
            .with_max_bytes(small[3])
            .with_isolation_level(isolation)
            .with_session_id(small[4])
            .with_session_epoch(small[5])
            .with_topics(lists.0)
            .with_forgotten_topics_data(lists.1)
            .with_rack_id(their_text(&texts.0))
            .with_cluster_id(texts.1.as_deref().map(their_text))
            .with_replica_state(replica)
            .with_unknown_tagged_fields(texts.2);
        fit(&mut request, version);
        (version, request)
    })
}

/// Resets what `version` doesn't have to the default.
fn fit(request: &mut TheirRequest, version: i16) {
    let default = TheirRequest::default();
    if version < 7 {
        request.session_id = 0;
        request.session_epoch = -1;
        request.forgotten_topics_data.clear();
    }
    if version < 11 {
        request.rack_id = default.rack_id.clone();
    }
    if version < 12 {
        request.cluster_id = None;
        request.unknown_tagged_fields.clear();
    }
    if version < 15 {
        request.replica_state = default.replica_state;
    } else {
        request.replica_id = default.replica_id;
    }
    for topic in &mut request.topics {
        fit_topic(topic, version);
    }
    for topic in &mut request.forgotten_topics_data {
        if version >= 13 {
            topic.topic = TopicName::default();
        } else {
            topic.topic_id = uuid::Uuid::nil();
        }
    }
}

fn fit_topic(topic: &mut FetchTopic, version: i16) {
    if version >= 13 {
        topic.topic = TopicName::default();
    } else {
        topic.topic_id = uuid::Uuid::nil();
    }
    for partition in &mut topic.partitions {
        if version < 5 {
            partition.log_start_offset = -1;
        }
        if version < 9 {
            partition.current_leader_epoch = -1;
        }
        if version < 12 {
            partition.last_fetched_epoch = -1;
            partition.unknown_tagged_fields.clear();
        }
        if version < 17 {
            partition.replica_directory_id = uuid::Uuid::nil();
        }
        if version < 18 {
            partition.high_watermark = i64::MAX;
        }
    }
    if version < 12 {
        topic.unknown_tagged_fields.clear();
    }
}

fn key(name: &TopicName, id: uuid::Uuid, version: i16) -> TopicKey {
    if version >= 13 {
        TopicKey::Id(TopicId(id.into_bytes()))
    } else {
        TopicKey::Name(name.0.clone())
    }
}

fn assert_same(theirs: &TheirRequest, ours: &FetchRequest, version: i16) {
    let replica = match version {
        15.. => (theirs.replica_state.replica_id.0, theirs.replica_state.replica_epoch),
        _ => (theirs.replica_id.0, -1),
    };
    assert_eq!((ours.replica.0, ours.replica_epoch), replica);
    assert_eq!(ours.wait_max_ms, theirs.max_wait_ms);
    assert_eq!((ours.bytes_min, ours.bytes_max), (theirs.min_bytes, theirs.max_bytes));
    assert_eq!(ours.isolation_level, theirs.isolation_level);
    assert_eq!(ours.session_id, theirs.session_id);
    assert_eq!(ours.session_epoch, theirs.session_epoch);
    assert_eq!(ours.rack, theirs.rack_id);
    assert_eq!(ours.cluster_id, theirs.cluster_id);
    assert_eq!(ours.topics.len(), theirs.topics.len());
    for (ours, theirs) in ours.topics.iter().zip(&theirs.topics) {
        assert_eq!(ours.key, key(&theirs.topic, theirs.topic_id, version));
        assert_eq!(ours.partitions, theirs.partitions.len());
    }
    let theirs_flat: Vec<_> = theirs.topics.iter().flat_map(|topic| &topic.partitions).collect();
    assert_eq!(ours.partitions.len(), theirs_flat.len());
    for (ours, theirs) in ours.partitions.iter().zip(theirs_flat) {
        assert_eq!(ours.index, theirs.partition);
        assert_eq!(ours.leader_epoch.0, theirs.current_leader_epoch);
        assert_eq!(ours.offset, theirs.fetch_offset);
        assert_eq!(ours.last_fetched_epoch.0, theirs.last_fetched_epoch);
        assert_eq!(ours.log_start, theirs.log_start_offset);
        assert_eq!(ours.bytes_max, theirs.partition_max_bytes);
    }
    assert_eq!(ours.forgotten.len(), theirs.forgotten_topics_data.len());
    for (ours, theirs) in ours.forgotten.iter().zip(&theirs.forgotten_topics_data) {
        assert_eq!(ours.key, key(&theirs.topic, theirs.topic_id, version));
        assert_eq!(ours.partitions, theirs.partitions);
    }
}

/// A partition with the bytes that belong into it, and whether they are a slice of a file.
type Filled = (PartitionAnswer, Vec<u8>, bool);

fn filled() -> impl Strategy<Value = Filled> {
    let length = prop_oneof![0_usize..4, 125_usize..130, 16_380_usize..16_386];
    let records = length.prop_flat_map(|length| prop::collection::vec(any::<u8>(), length));
    let aborted = prop::option::of(prop::collection::vec(any::<(i64, i64)>(), 0..3));
    let tags = (prop::option::of((0_i32..9, 0_i64..9)), prop::option::of((0_i32..9, 0_i32..9)));
    let numbers = (any::<i32>(), prop::sample::select(ErrorCode::ALL), any::<[i64; 3]>());
    (numbers, aborted, any::<i32>(), tags, records, any::<bool>()).prop_map(
        |((index, error, offsets), aborted, preferred_replica, tags, bytes, is_slice)| {
            let records = match (bytes.len(), is_slice) {
                (0, true) => Records::Empty,
                (length, true) => Records::Slice(ByteCount(length.try_into().expect("small"))),
                (_, false) => Records::Bytes(Bytes::from(bytes.clone())),
            };
            let aborted = aborted.map(|list| list.into_iter().map(aborted_transaction).collect());
            let answer = PartitionAnswer {
                index,
                error,
                high_watermark: offsets[0],
                last_stable: offsets[1],
                log_start: offsets[2],
                aborted,
                preferred_replica,
                diverging: tags
                    .0
                    .map(|(epoch, end_offset)| EpochEnd { epoch: LeaderEpoch(epoch), end_offset }),
                leader: tags.1.map(|(id, epoch)| CurrentLeader {
                    id: BrokerId(id),
                    epoch: LeaderEpoch(epoch),
                }),
                records,
            };
            (answer, bytes, is_slice)
        },
    )
}

fn aborted_transaction((producer_id, first_offset): (i64, i64)) -> AbortedTransaction {
    AbortedTransaction { producer_id, first_offset }
}

fn their_partition((answer, bytes, _): &Filled, version: i16) -> PartitionData {
    let aborted = answer.aborted.as_ref().map(|list| {
        let theirs = |one: &AbortedTransaction| {
            TheirAborted::default()
                .with_producer_id(TheirProducerId(one.producer_id))
                .with_first_offset(one.first_offset)
        };
        list.iter().map(theirs).collect()
    });
    let mut theirs = PartitionData::default()
        .with_partition_index(answer.index)
        .with_error_code(answer.error.to_wire())
        .with_high_watermark(answer.high_watermark)
        .with_last_stable_offset(answer.last_stable)
        .with_log_start_offset(answer.log_start)
        .with_aborted_transactions(aborted)
        .with_records(Some(Bytes::from(bytes.clone())));
    if version >= 11 {
        theirs.preferred_read_replica = TheirBrokerId(answer.preferred_replica);
    }
    if let Some(end) = answer.diverging.filter(|_| version >= 12) {
        theirs.diverging_epoch =
            EpochEndOffset::default().with_epoch(end.epoch.0).with_end_offset(end.end_offset);
    }
    if let Some(leader) = answer.leader.filter(|_| version >= 12) {
        theirs.current_leader = LeaderIdAndEpoch::default()
            .with_leader_id(TheirBrokerId(leader.id.0))
            .with_leader_epoch(leader.epoch.0);
    }
    theirs
}

type Topic = (String, [u8; 16], Vec<Filled>);

fn their_topic((name, id, list): &Topic, version: i16) -> FetchableTopicResponse {
    let partitions = list.iter().map(|filled| their_partition(filled, version)).collect();
    let theirs = FetchableTopicResponse::default().with_partitions(partitions);
    if version >= 13 {
        theirs.with_topic_id(uuid::Uuid::from_bytes(*id))
    } else {
        theirs.with_topic(TopicName(their_text(name)))
    }
}

fn group((name, id, list): &Topic, version: i16) -> TopicGroup {
    let name = TopicName(their_text(name));
    let key = key(&name, uuid::Uuid::from_bytes(*id), version);
    TopicGroup { key, partitions: list.len() }
}

/// Sends the parts as a server would, slices from their partitions' files.
fn send(parts: &[Part], files: &[&Filled]) -> Vec<u8> {
    let mut sent = Vec::new();
    for part in parts {
        match part {
            Part::Bytes(bytes) => sent.extend_from_slice(bytes),
            Part::Slice(slice) => {
                let (_, file, is_slice) = files[slice.owner];
                assert!(is_slice, "only slices are holes");
                assert!(slice.length.0 > 0, "no hole is empty");
                sent.extend_from_slice(&file[..usize_of(slice.length.0)]);
            }
        }
    }
    sent
}

proptest! {
    #[test]
    fn requests_are_read_as_the_crate_writes_them((version, theirs) in request()) {
        let mut bytes = BytesMut::new();
        theirs.encode(&mut bytes, version).expect("fitted to the version");
        let ours = FetchRequest::decode(bytes, version).expect("well-formed");
        assert_same(&theirs, &ours, version);
    }

    #[test]
    fn answers_are_written_as_the_crate_writes_them(
        version in 4_i16..=18,
        numbers: (i32, i32, i32),
        error in prop::sample::select(ErrorCode::ALL),
        topics in prop::collection::vec(
            (text(), any::<[u8; 16]>(), prop::collection::vec(filled(), 0..4)),
            0..4,
        ),
        nodes in prop::collection::vec((any::<i32>(), text(), any::<u16>()), 0..3),
    ) {
        let (correlation_id, throttle_ms, session_id) = numbers;
        let has_session = version >= 7;
        let groups: Vec<_> = topics.iter().map(|topic| group(topic, version)).collect();
        let files: Vec<_> = topics.iter().flat_map(|topic| &topic.2).collect();
        let partitions: Vec<_> = files.iter().map(|filled| filled.0.clone()).collect();
        let endpoints: Vec<_> = nodes
            .iter()
            .map(|(id, host, port)| NodeEndpoint {
                id: BrokerId(*id),
                host: host.clone(),
                port: *port,
            })
            .collect();
        let answer = FetchAnswer {
            version,
            correlation_id,
            throttle_ms,
            error,
            session_id,
            topics: &groups,
            partitions: &partitions,
            nodes: &endpoints,
        };
        let parts = answer.encode().expect("small");
        let their_nodes = nodes.iter().filter(|_| version >= 16).map(|(id, host, port)| {
            TheirEndpoint::default()
                .with_node_id(TheirBrokerId(*id))
                .with_host(their_text(host))
                .with_port(i32::from(*port))
        });
        let theirs = FetchResponse::default()
            .with_throttle_time_ms(throttle_ms)
            .with_error_code(if has_session { error.to_wire() } else { 0 })
            .with_session_id(if has_session { session_id } else { 0 })
            .with_responses(topics.iter().map(|topic| their_topic(topic, version)).collect())
            .with_node_endpoints(their_nodes.collect());
        let expected = framed(&theirs, version, (correlation_id, version >= 12));
        prop_assert_eq!(send(&parts, &files), expected);
    }
}
