//! Requests without records that are larger than a batch may be: they are served, one after the
//! other, and cost no memory before they are there.

use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    CreateTopicsRequest, FindCoordinatorRequest, GroupId, JoinGroupRequest, ListGroupsRequest,
    OffsetCommitRequest, OffsetFetchRequest, SyncGroupRequest, TopicName,
};

use crate::support::client::{Client, Outcome, encode, frame, text};
use crate::support::process::{Broker, Launch};
use crate::support::{batch, wait};

const LOAD_IN_PROGRESS: i16 = 14;
const UNKNOWN_SERVER_ERROR: i16 = -1;
const MEMBER_ID_REQUIRED: i16 = 79;
const MIB: usize = 1 << 20;
/// Partitions of the topic whose offsets are committed.
const PARTITIONS: i32 = 300;
/// A batch of `__consumer_offsets` may have 64 MiB.
const WIDE: &str = "message.max.bytes=67108864";

fn group_id(group: &str) -> GroupId {
    GroupId(text(group))
}

fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// A server whose coordinators are loaded.
fn started(launch: &Launch) -> (Broker, Client) {
    let broker = launch.start();
    let mut client = broker.connect();
    let find = FindCoordinatorRequest::default().with_coordinator_keys(vec![text("any")]);
    wait::until("a coordinator", || client.call(&find, 4).coordinators[0].error_code == 0);
    let list = ListGroupsRequest::default();
    wait::until("loaded groups", || client.call(&list, 4).error_code != LOAD_IN_PROGRESS);
    (broker, client)
}

/// A commit that names all partitions `rounds` times, each with a text of 4,000 bytes; what is
/// named last counts.
fn commit(rounds: i64) -> OffsetCommitRequest {
    let metadata = text(&"m".repeat(4_000));
    let partition = |index, offset| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(index)
            .with_committed_offset(offset)
            .with_committed_metadata(Some(metadata.clone()))
    };
    let of_round = |round| (0..PARTITIONS).map(move |index| (index, 1_000 * round));
    let partitions = (1..=rounds).flat_map(of_round);
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic_name("topic"))
        .with_partitions(partitions.map(|(index, offset)| partition(index, offset)).collect());
    OffsetCommitRequest::default()
        .with_group_id(group_id("g"))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic])
}

/// Asks for the topic's offsets, and for those of many topics with long names that aren't there.
fn fetch(strangers: usize) -> OffsetFetchRequest {
    let topic = |name: &str, partitions: i32| {
        OffsetFetchRequestTopics::default()
            .with_name(topic_name(name))
            .with_partition_indexes((0..partitions).collect())
    };
    let mut topics = vec![topic("topic", PARTITIONS)];
    topics.extend((0..strangers).map(|number| topic(&format!("{number:030000}"), 1)));
    let group =
        OffsetFetchRequestGroup::default().with_group_id(group_id("g")).with_topics(Some(topics));
    OffsetFetchRequest::default().with_groups(vec![group])
}

#[test]
fn commits_and_fetches_of_offsets_above_1_and_10_mib_are_served() {
    let (_broker, mut client) = started(&Launch::new("uring").set(WIDE));
    client.create("topic", PARTITIONS, &[]);
    for (rounds, strangers, bytes_min) in [(1, 40, MIB), (9, 400, 10 * MIB)] {
        let request = commit(rounds);
        assert!(bytes_min < encode(&request, 9, 1).len());
        let answer = client.call(&request, 9);
        let outcomes = &answer.topics[0].partitions;
        assert_eq!(outcomes.len(), request.topics[0].partitions.len());
        assert!(outcomes.iter().all(|it| it.error_code == 0), "{:?}", outcomes[0]);
        let request = fetch(strangers);
        assert!(bytes_min < encode(&request, 8, 1).len());
        let groups = client.call(&request, 8).groups;
        let topics = &groups[0].topics;
        assert_eq!((groups[0].error_code, topics.len()), (0, strangers + 1));
        let known = &topics[0].partitions;
        assert!(known.iter().all(|it| it.committed_offset == 1_000 * rounds));
        assert!(topics[1..].iter().all(|it| it.partitions[0].committed_offset == -1));
    }
}

#[test]
fn a_commit_that_fits_no_batch_is_refused_and_its_connection_lives() {
    let (_broker, mut client) = started(&Launch::new("uring"));
    client.create("topic", PARTITIONS, &[]);
    let answer = client.call(&commit(9), 9);
    let outcomes = &answer.topics[0].partitions;
    assert!(outcomes.iter().all(|it| it.error_code == UNKNOWN_SERVER_ERROR));
    assert!(client.call(&commit(0), 9).topics[0].partitions.is_empty());
}

/// Joins a group without an instance id; `bytes` of metadata.
fn join(member: &str, bytes: usize) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(vec![7; bytes].into());
    JoinGroupRequest::default()
        .with_group_id(group_id("many"))
        .with_session_timeout_ms(300_000)
        .with_rebalance_timeout_ms(300_000)
        .with_member_id(text(member))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

#[test]
fn a_leader_assigns_a_thousand_members_in_more_than_1_mib() {
    const MEMBERS: usize = 1_000;
    let launch = Launch::new("uring").set(WIDE).set("group.initial.rebalance.delay.ms=3000");
    let (broker, mut client) = started(&launch);
    let mut members = Vec::with_capacity(MEMBERS);
    for _ in 0..MEMBERS {
        let refused = client.call(&join("", 10), 5);
        assert_eq!(refused.error_code, MEMBER_ID_REQUIRED);
        members.push((broker.connect(), refused.member_id));
    }
    for (connection, member) in &mut members {
        connection.post(&join(member, 10), 5).expect("it fits the socket's buffer");
    }
    let mut generation = 0;
    let mut leader = None;
    for (number, (connection, _)) in members.iter_mut().enumerate() {
        let joined = connection.collect::<JoinGroupRequest>(5).expect("the group is whole");
        assert_eq!(joined.error_code, 0);
        generation = joined.generation_id;
        if joined.leader == joined.member_id {
            assert_eq!(joined.members.len(), MEMBERS);
            leader = Some(number);
        }
    }
    let leader = leader.expect("one of them leads");
    let assignment = |number: usize| vec![u8::try_from(number % 251).expect("small"); 5_000];
    let assignments = members.iter().enumerate().map(|(number, (_, member))| {
        SyncGroupRequestAssignment::default()
            .with_member_id(member.clone())
            .with_assignment(assignment(number).into())
    });
    let assignments: Vec<_> = assignments.collect();
    for (number, (connection, member)) in members.iter_mut().enumerate() {
        let brought = if number == leader { assignments.clone() } else { Vec::new() };
        let sync = SyncGroupRequest::default()
            .with_group_id(group_id("many"))
            .with_generation_id(generation)
            .with_member_id(member.clone())
            .with_assignments(brought);
        connection.post(&sync, 3).expect("it is taken");
    }
    for (number, (connection, _)) in members.iter_mut().enumerate() {
        let synced = connection.collect::<SyncGroupRequest>(3).expect("the leader has assigned");
        assert_eq!(synced.error_code, 0);
        assert_eq!(synced.assignment[..], assignment(number), "member {number}");
    }
}

/// As in Kafka, what a member says is taken, and the record that it doesn't fit is refused; what
/// four batches can't hold isn't taken either.
#[test]
fn metadata_of_a_member_that_fits_no_batch_is_refused() {
    let (_broker, mut client) = started(&Launch::new("uring"));
    assert_eq!(client.call(&join("", 5 * MIB), 3).error_code, UNKNOWN_SERVER_ERROR);
    let joined = client.call(&join("", 2 * MIB), 3);
    assert_eq!((joined.error_code, joined.members[0].metadata.len()), (0, 2 * MIB));
    let sync = SyncGroupRequest::default()
        .with_group_id(group_id("many"))
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id);
    assert_eq!(client.call(&sync, 3).error_code, UNKNOWN_SERVER_ERROR);
    assert_eq!(client.call(&join("", 10), 5).error_code, MEMBER_ID_REQUIRED);
}

#[test]
fn topics_of_more_than_1_mib_are_created() {
    let (_broker, mut client) = started(&Launch::new("uring"));
    let topics = (0..9_000).map(|number| {
        let config = CreatableTopicConfig::default()
            .with_name(text("cleanup.policy"))
            .with_value(Some(text(if number % 1_000 == 0 { "compact" } else { "wrong" })));
        CreatableTopic::default()
            .with_name(topic_name(&format!("{number:0100}")))
            .with_num_partitions(1)
            .with_replication_factor(1)
            .with_configs(vec![config])
    });
    let request =
        CreateTopicsRequest::default().with_topics(topics.collect()).with_timeout_ms(60_000);
    assert!(MIB < encode(&request, 5, 1).len());
    let answer = client.call(&request, 5);
    assert_eq!(answer.topics.len(), 9_000);
    assert_eq!(answer.topics.iter().filter(|it| it.error_code == 0).count(), 9);
    let created = client.try_metadata(None).expect("it answers").topics;
    assert_eq!(created.iter().filter(|topic| !topic.is_internal).count(), 9);
}

/// OffsetFetch 5 of one group: `bytes` of topic names.
fn names(bytes: usize) -> Vec<u8> {
    const NAME: usize = 30_000;
    let count = bytes / NAME;
    let mut body = vec![0, 1, b'g'];
    body.extend(i32::try_from(count).expect("small").to_be_bytes());
    for _ in 0..count {
        body.extend(i16::try_from(NAME).expect("it fits").to_be_bytes());
        body.extend(std::iter::repeat_n(b'n', NAME));
        body.extend([0; 4]);
    }
    frame(9, 5, false, &body)
}

/// 100 MB each would be 1.2 GB; a shard holds 128 MiB and one more of them, and serves one.
#[test]
fn many_large_requests_at_once_are_all_served_within_the_budget() {
    let (broker, mut witness) = started(&Launch::new("uring").shards(1));
    witness.create("witness", 1, &[]);
    let body: std::sync::Arc<[u8]> = names(90_000_000).into();
    let clients: Vec<_> = (0..12)
        .map(|_| {
            let (mut client, body) = (broker.connect(), body.clone());
            std::thread::spawn(move || client.outcome(&body))
        })
        .collect();
    for seed in 0..20 {
        witness.accepted("witness", 0, batch::large(seed, 10_000));
    }
    for client in clients {
        let outcome = client.join().expect("it doesn't panic");
        assert!(matches!(outcome, Outcome::Answer(_)), "it is served");
    }
    let peak = broker.memory_kib("VmHWM");
    // The budget, one large frame over it, and an answer that names everything again.
    assert!(peak < 700 << 10, "{peak} KiB at the peak");
}

/// More elements than a shard may hold of one request: bytes alone don't say what decoding costs.
#[test]
fn too_many_elements_end_the_connection_with_the_reason() {
    let (broker, mut client) = started(&Launch::new("uring"));
    let mut body = vec![0, 1, b'g', 0, 0, 0, 1, 0, 1, b't'];
    body.extend(1_000_000_i32.to_be_bytes());
    body.extend(vec![0; 4_000_000]);
    assert_eq!(broker.connect().outcome(&frame(9, 5, false, &body)), Outcome::Closed);
    wait::until("the log names it", || {
        broker
            .output()
            .contains("request of API 9 version 5: partition indexes has 1000000 elements")
    });
    assert_eq!(client.call(&fetch(0), 8).groups[0].error_code, 0);
}
