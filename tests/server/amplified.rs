//! Requests of a few bytes whose answers, or what it takes to make them, could be many.

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::{
    CreateTopicsRequest, DescribeConfigsRequest, DescribeGroupsRequest, DescribeLogDirsRequest,
    DescribeProducersRequest, ElectLeadersRequest, FindCoordinatorRequest, GroupId,
    ListGroupsRequest, ListOffsetsRequest, MetadataRequest, OffsetCommitRequest,
    OffsetFetchRequest, TopicName, create_topics_request::CreatableTopic,
};

use crate::support::client::{Client, FETCH, Outcome, encode, fetch_request, text};
use crate::support::process::{Broker, Launch};
use crate::support::wait;

const LOAD_IN_PROGRESS: i16 = 14;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const INVALID_TOPIC: i16 = 17;
const INVALID_PARTITIONS: i16 = 37;
const INVALID_REQUEST: i16 = 42;
const POLICY_VIOLATION: i16 = 44;
/// Types of resources.
const TOPIC: i8 = 2;
const GROUP: i8 = 32;
/// Elements of a request that are within its limit.
const MANY: i32 = 90_000;
/// What a server may take in all of these tests but one.
const MEMORY_KIB_MAX: u64 = 300 << 10;

fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// A server with loaded coordinators, a topic of 100 partitions and a group that has committed an
/// offset of each.
fn started(launch: &Launch) -> (Broker, Client) {
    let broker = launch.start();
    let mut client = broker.connect();
    client.create("topic", 100, &[]);
    let find = FindCoordinatorRequest::default().with_coordinator_keys(vec![text("any")]);
    wait::until("a coordinator", || client.call(&find, 4).coordinators[0].error_code == 0);
    let list = ListGroupsRequest::default();
    wait::until("loaded groups", || client.call(&list, 4).error_code != LOAD_IN_PROGRESS);
    let partition = |index| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(index)
            .with_committed_offset(5)
            .with_committed_metadata(Some(text("")))
    };
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic_name("topic"))
        .with_partitions((0..100).map(partition).collect());
    let commit = OffsetCommitRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    assert_eq!(client.call(&commit, 8).topics[0].partitions[99].error_code, 0);
    (broker, client)
}

fn assert_small(broker: &Broker) {
    let peak = broker.memory_kib("VmHWM");
    assert!(peak < MEMORY_KIB_MAX, "{peak} KiB at the peak");
}

#[test]
fn a_long_name_with_many_partitions_is_kept_once() {
    let (broker, mut client) = started(&Launch::new("uring"));
    let long = "n".repeat(30_000);
    let topic = OffsetFetchRequestTopics::default()
        .with_name(topic_name(&long))
        .with_partition_indexes((0..MANY).collect());
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(GroupId(text("g")))
        .with_topics(Some(vec![topic]));
    let fetch = OffsetFetchRequest::default().with_groups(vec![group]);
    let fetched = client.call(&fetch, 8).groups.remove(0).topics.remove(0);
    assert_eq!((fetched.name.len(), fetched.partitions.len()), (30_000, 90_000));
    let topic = DescribableLogDirTopic::default()
        .with_topic(topic_name(&long))
        .with_partitions((0..MANY).collect());
    let directories = DescribeLogDirsRequest::default().with_topics(Some(vec![topic]));
    assert!(client.call(&directories, 4).results[0].topics.is_empty());
    let topic = TopicPartitions::default()
        .with_topic(topic_name(&long))
        .with_partitions((0..MANY).collect());
    let elect = ElectLeadersRequest::default().with_topic_partitions(Some(vec![topic]));
    let told = client.call(&elect, 2).replica_election_results.remove(0).partition_result;
    assert_eq!(told.len(), 90_000);
    let message = told[0].error_message.as_deref().expect("it is refused");
    assert_eq!(message, format!("No such topic as {}", &long[..249]));
    assert_small(&broker);
}

/// A name of 30 KB for each of a million partitions are 30 GB to look at.
#[test]
fn a_long_name_with_many_partitions_is_looked_at_once() {
    let (_broker, mut client) = started(&Launch::new("uring"));
    let long = "n".repeat(30_000);
    let partition = |index| ListOffsetsPartition::default().with_partition_index(index);
    let mut partitions: Vec<_> = (0..899_999).map(partition).collect();
    partitions.push(partition(7));
    let topic =
        ListOffsetsTopic::default().with_name(topic_name(&long)).with_partitions(partitions);
    let request = ListOffsetsRequest::default().with_topics(vec![topic]);
    let told = client.call(&request, 6).topics.remove(0).partitions;
    let refused = told.iter().filter(|it| it.error_code == INVALID_REQUEST);
    let repeated: Vec<i32> = refused.map(|it| it.partition_index).collect();
    assert_eq!((told.len(), repeated), (900_000, vec![7, 7]));
    // A session of them, of which a fetch tells again that they aren't there.
    let mut fetch = fetch_request(&long, 0, 0, 1 << 20).with_session_epoch(0);
    let one = fetch.topics[0].partitions.remove(0);
    fetch.topics[0].partitions = (0..MANY).map(|it| one.clone().with_partition(it)).collect();
    let began = client.call(&fetch, FETCH);
    assert_eq!(began.responses[0].partitions.len(), 90_000);
    fetch.topics.clear();
    let next = fetch.with_session_id(began.session_id).with_session_epoch(1);
    let told = client.call(&next, FETCH);
    assert_eq!((told.error_code, told.responses.len()), (0, 1));
    assert_eq!(told.responses[0].partitions.len(), 90_000);
    assert_eq!(told.responses[0].partitions[0].error_code, UNKNOWN_TOPIC_OR_PARTITION);
    // And of producers, where what is named again is told once.
    let topic = TopicRequest::default()
        .with_name(topic_name(&long))
        .with_partition_indexes((0..MANY).chain([7]).collect());
    let producers = DescribeProducersRequest::default().with_topics(vec![topic]);
    let told = client.call(&producers, 0).topics.remove(0).partitions;
    assert_eq!((told.len(), told[7].error_code), (90_000, INVALID_TOPIC));
}

#[test]
fn what_is_named_again_is_described_once() {
    let (broker, mut client) = started(&Launch::new("uring"));
    let names = |count: usize| std::iter::repeat_n("topic", count);
    let topics = names(90_000)
        .map(|name| MetadataRequestTopic::default().with_name(Some(topic_name(name))))
        .collect();
    let metadata = client.call(&MetadataRequest::default().with_topics(Some(topics)), 9);
    assert_eq!(metadata.topics.len(), 1);
    assert_eq!(metadata.topics[0].partitions.len(), 100);
    let all =
        OffsetFetchRequestGroup::default().with_group_id(GroupId(text("g"))).with_topics(None);
    let fetch = OffsetFetchRequest::default().with_groups(vec![all; 90_000]);
    let fetched = client.call(&fetch, 8).groups;
    assert_eq!((fetched.len(), fetched[0].topics[0].partitions.len()), (1, 100));
    let groups = vec![GroupId(text("g")), GroupId(text("h")), GroupId(text("g"))];
    let described = client.call(&DescribeGroupsRequest::default().with_groups(groups), 5).groups;
    let described: Vec<&str> = described.iter().map(|it| it.group_id.as_str()).collect();
    assert_eq!(described, ["g", "h"]);
    let resource = DescribeConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text("topic"))
        .with_configuration_keys(None);
    let describe = DescribeConfigsRequest::default()
        .with_resources(vec![resource; 90_000])
        .with_include_synonyms(true)
        .with_include_documentation(true);
    assert_eq!(client.call(&describe, 4).results.len(), 1);
    assert_small(&broker);
}

/// Groups that nobody knows have configs, too.
#[test]
fn configs_of_more_resources_than_there_can_be_end_the_connection_with_the_reason() {
    let (broker, mut client) = started(&Launch::new("uring"));
    let group = |number: u32| {
        DescribeConfigsResource::default()
            .with_resource_type(GROUP)
            .with_resource_name(text(&number.to_string()))
            .with_configuration_keys(None)
    };
    let describe = |groups: u32| {
        DescribeConfigsRequest::default().with_resources((0..groups).map(group).collect())
    };
    let of_one = client.call(&describe(1), 4).results[0].configs.len();
    assert_eq!(client.call(&describe(1_000), 4).results.len(), 1_000);
    let too_many = u32::try_from(1_000_000 / of_one + 1).expect("it fits");
    let outcome = broker.connect().outcome(&encode(&describe(too_many), 4, 1));
    assert_eq!(outcome, Outcome::Closed);
    wait::until("the log names it", || {
        broker.output().contains("the answer's configs has 1000001 elements")
    });
    let peak = broker.memory_kib("VmHWM");
    assert!(peak < 700 << 10, "{peak} KiB at the peak");
}

/// Kafka has no limit of names, only one of bytes.
#[test]
fn a_million_topics_are_looked_for_and_none_of_them_is_made() {
    let (broker, mut client) = started(&Launch::new("uring"));
    let name = |number: u32| topic_name(&format!("t{number}"));
    let topics = |count| {
        let named = |number| MetadataRequestTopic::default().with_name(Some(name(number)));
        MetadataRequest::default()
            .with_topics(Some((0..count).map(named).collect()))
            .with_allow_auto_topic_creation(true)
    };
    let answer = client.call(&topics(1_000_000), 9);
    assert_eq!(answer.topics.len(), 1_000_000);
    let is_unknown = |code| code == UNKNOWN_TOPIC_OR_PARTITION;
    assert!(answer.topics.iter().all(|topic| is_unknown(topic.error_code)));
    assert!(broker.output().contains("1000000 topics are not made: "), "{}", broker.output());
    let peak = broker.memory_kib("VmHWM");
    assert!(peak < 700 << 10, "{peak} KiB at the peak");
    let outcome = broker.connect().outcome(&encode(&topics(1_000_001), 9, 1));
    assert_eq!(outcome, Outcome::Closed);
}

fn to_create(topics: &[(&str, i32)], is_trial: bool) -> CreateTopicsRequest {
    let topics = topics.iter().map(|(name, partitions)| {
        CreatableTopic::default()
            .with_name(topic_name(name))
            .with_num_partitions(*partitions)
            .with_replication_factor(1)
    });
    CreateTopicsRequest::default()
        .with_topics(topics.collect())
        .with_validate_only(is_trial)
        .with_timeout_ms(60_000)
}

/// As Kafka 4.3.1 answers the same requests.
#[test]
fn a_request_makes_ten_thousand_partitions_at_most() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    let mut codes = |topics: &[(&str, i32)], is_trial: bool| {
        let answer = client.call(&to_create(topics, is_trial), 5);
        let codes = answer.topics.into_iter().map(|it| (it.name.to_string(), it.error_code));
        codes.collect::<Vec<_>>()
    };
    let told = |codes: &[(&str, i16)]| {
        codes.iter().map(|(name, code)| ((*name).to_owned(), *code)).collect::<Vec<_>>()
    };
    for is_trial in [true, false] {
        let refused = codes(&[("a", 10_001)], is_trial);
        assert_eq!(refused, told(&[("a", POLICY_VIOLATION)]));
        let refused = codes(&[("a", 5_000), ("bad/name", 5_000), ("c", 1)], is_trial);
        let each =
            [("a", POLICY_VIOLATION), ("bad/name", POLICY_VIOLATION), ("c", POLICY_VIOLATION)];
        assert_eq!(refused, told(&each));
    }
    // None of those that are named twice counts, nor one with a number that is none.
    let answer = codes(&[("a", 9_000), ("a", 9_000), ("b", -7), ("c", 1_001)], true);
    let twice = ("a", INVALID_REQUEST);
    assert_eq!(answer, told(&[twice, ("b", INVALID_PARTITIONS), ("c", 0)]));
}

/// What is only looked at is held against the limit of partitions as what is made.
#[test]
fn topics_that_could_not_all_be_made_are_not_all_valid() {
    // The topic and those of groups have 150.
    let launch = Launch::new("uring").set("uringlog.partitions.max=400");
    let (_broker, mut client) = started(&launch);
    let topics = [("more-0", 100), ("more-1", 100), ("more-2", 100)];
    let answer = client.call(&to_create(&topics, true), 5);
    let codes: Vec<i16> = answer.topics.iter().map(|it| it.error_code).collect();
    assert_eq!(codes, [0, 0, INVALID_PARTITIONS]);
}
