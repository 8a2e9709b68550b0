//! Groups over raw sockets: ten thousand of them are there after a kill, and whoever isn't a member
//! may neither commit nor heartbeat.

use kafka_protocol::messages::consumer_group_heartbeat_request::ConsumerGroupHeartbeatRequest;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::{
    ConsumerGroupHeartbeatResponse, CreatePartitionsRequest, DescribeConfigsRequest,
    FindCoordinatorRequest, GroupId, HeartbeatRequest, ListGroupsRequest, OffsetCommitRequest,
    OffsetFetchRequest, TopicName,
};

use crate::support::client::{Client, text};
use crate::support::process::Launch;
use crate::support::wait;

const LOAD_IN_PROGRESS: i16 = 14;
const UNKNOWN_MEMBER_ID: i16 = 25;
const INVALID_REQUEST: i16 = 42;
const INVALID_PARTITIONS: i16 = 37;
const GROUP_MAX_SIZE_REACHED: i16 = 81;
const GROUP_ID_NOT_FOUND: i16 = 69;
const FENCED_MEMBER_EPOCH: i16 = 110;
const UNRELEASED_INSTANCE_ID: i16 = 111;
const UNSUPPORTED_ASSIGNOR: i16 = 112;
const STALE_MEMBER_EPOCH: i16 = 113;
const INVALID_REGULAR_EXPRESSION: i16 = 128;

/// The type of a broker among resources.
const BROKER: i8 = 4;

/// Groups in one OffsetFetch.
const AT_A_TIME: usize = 500;

fn group_id(group: &str) -> GroupId {
    GroupId(text(group))
}

/// Waits until the coordinators are there and loaded.
fn coordinated(client: &mut Client) {
    let find = FindCoordinatorRequest::default().with_coordinator_keys(vec![text("any")]);
    wait::until("a coordinator", || client.call(&find, 4).coordinators[0].error_code == 0);
    let list = ListGroupsRequest::default();
    wait::until("loaded groups", || client.call(&list, 4).error_code != LOAD_IN_PROGRESS);
}

fn commit(client: &mut Client, group: &str, (member, epoch): (&str, i32), offset: i64) -> i16 {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(offset)
        .with_committed_metadata(Some(text("")));
    let topic = OffsetCommitRequestTopic::default()
        .with_name(TopicName(text("topic")))
        .with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_group_id(group_id(group))
        .with_member_id(text(member))
        .with_generation_id_or_member_epoch(epoch)
        .with_topics(vec![topic]);
    client.call(&request, 9).topics[0].partitions[0].error_code
}

#[test]
fn ten_thousand_groups_are_there_after_a_kill() {
    let launch = Launch::new("uring").with(&["--durability", "page-cache"]);
    let broker = launch.start();
    let mut client = broker.connect();
    client.create("topic", 1, &[]);
    coordinated(&mut client);
    let names: Vec<String> = (0..10_000).map(|number| format!("group-{number}")).collect();
    for (name, offset) in names.iter().zip(0..) {
        assert_eq!(commit(&mut client, name, ("", -1), offset), 0, "{name}");
    }
    let broker = broker.kill().start();
    let mut client = broker.connect();
    coordinated(&mut client);
    let listed = client.call(&ListGroupsRequest::default(), 4);
    assert_eq!(listed.groups.len(), names.len());
    let mut offset = 0;
    for names in names.chunks(AT_A_TIME) {
        let topic = OffsetFetchRequestTopics::default()
            .with_name(TopicName(text("topic")))
            .with_partition_indexes(vec![0]);
        let wanted = names.iter().map(|name| {
            OffsetFetchRequestGroup::default()
                .with_group_id(group_id(name))
                .with_topics(Some(vec![topic.clone()]))
        });
        let request = OffsetFetchRequest::default().with_groups(wanted.collect());
        for group in client.call(&request, 8).groups {
            let found = &group.topics[0].partitions[0];
            assert_eq!((found.error_code, found.committed_offset), (0, offset));
            offset += 1;
        }
    }
}

/// Where a group's offsets lie follows from the number of partitions.
#[test]
fn the_topic_of_committed_offsets_keeps_its_number_of_partitions() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    client.create("topic", 1, &[]);
    coordinated(&mut client);
    assert_eq!(commit(&mut client, "g", ("", -1), 7), 0);
    for is_trial in [true, false] {
        let wanted = CreatePartitionsTopic::default()
            .with_name(TopicName(text("__consumer_offsets")))
            .with_count(75)
            .with_assignments(None);
        let request = CreatePartitionsRequest::default()
            .with_topics(vec![wanted])
            .with_validate_only(is_trial)
            .with_timeout_ms(30_000);
        let told = client.call(&request, 3).results.remove(0);
        assert_eq!(told.error_code, INVALID_PARTITIONS);
        let why = "__consumer_offsets keeps its number of partitions";
        assert!(told.error_message.expect("why").starts_with(why));
    }
    assert_eq!(client.leaders("__consumer_offsets").len(), 50);
    assert_eq!(commit(&mut client, "g", ("", -1), 8), 0);
}

#[test]
fn whoever_is_no_member_or_was_one_is_told_so() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    client.create("topic", 2, &[]);
    coordinated(&mut client);
    let first = beat("m", 0);
    let joined = client.call(&first, 1);
    assert_eq!((joined.error_code, joined.member_epoch), (0, 2));
    let assignment = joined.assignment.expect("everything");
    assert_eq!(assignment.topic_partitions[0].partitions.len(), 2);
    for (code, request) in [
        (UNKNOWN_MEMBER_ID, beat("stranger", 1)),
        (FENCED_MEMBER_EPOCH, beat("m", 3)),
        (INVALID_REQUEST, beat("", 0)),
        (INVALID_REQUEST, beat("m", -3)),
        (UNSUPPORTED_ASSIGNOR, beat("n", 0).with_server_assignor(Some(text("sticky")))),
        (INVALID_REGULAR_EXPRESSION, beat("n", 0).with_subscribed_topic_regex(Some(text("(")))),
        (GROUP_ID_NOT_FOUND, beat("m", 1).with_group_id(group_id("other"))),
    ] {
        let refused: ConsumerGroupHeartbeatResponse = client.call(&request, 1);
        assert_eq!(refused.error_code, code, "{request:?}");
        assert!(refused.error_message.is_some());
    }
    let named = |member| beat(member, 0).with_instance_id(Some(text("i")));
    assert_eq!(client.call(&named("one"), 1).error_code, 0);
    assert_eq!(client.call(&named("two"), 1).error_code, UNRELEASED_INSTANCE_ID);
    assert_eq!(commit(&mut client, "g", ("m", 2), 5), 0);
    assert_eq!(commit(&mut client, "g", ("m", 9), 5), STALE_MEMBER_EPOCH);
    assert_eq!(commit(&mut client, "g", ("stranger", 1), 5), UNKNOWN_MEMBER_ID);
    assert_eq!(commit(&mut client, "g", ("", -1), 5), UNKNOWN_MEMBER_ID);
    let classic = HeartbeatRequest::default()
        .with_group_id(group_id("g"))
        .with_member_id(text("m"))
        .with_generation_id(1);
    assert_eq!(client.call(&classic, 4).error_code, UNKNOWN_MEMBER_ID);
}

/// Nobody hears from it again, and its connection is still there.
#[test]
fn a_consumer_that_falls_silent_is_put_out() {
    let launch = Launch::new("uring")
        .set("group.consumer.min.session.timeout.ms=500")
        .set("group.consumer.session.timeout.ms=500")
        .set("group.consumer.min.heartbeat.interval.ms=100")
        .set("group.consumer.heartbeat.interval.ms=100");
    let broker = launch.start();
    let mut client = broker.connect();
    client.create("topic", 2, &[]);
    coordinated(&mut client);
    let joined = client.call(&beat("m", 0), 1);
    assert_eq!(joined.error_code, 0);
    let mut stranger = broker.connect();
    wait::until("the group is empty", || match commit(&mut stranger, "g", ("", -1), 5) {
        0 => true,
        code => code != UNKNOWN_MEMBER_ID,
    });
    assert_eq!(commit(&mut stranger, "g", ("", -1), 6), 0);
    assert_eq!(client.call(&beat("m", joined.member_epoch), 1).error_code, UNKNOWN_MEMBER_ID);
    assert_eq!(client.call(&beat("m", 0), 1).error_code, 0, "it may come back");
}

#[test]
fn bounds_of_consumer_groups_are_the_servers_settings() {
    let bound = "group.consumer.min.heartbeat.interval.ms";
    let launch = Launch::new("uring")
        .set(&format!("{bound}=1000"))
        .set("group.consumer.heartbeat.interval.ms=2000")
        .set("group.consumer.max.size=1");
    let broker = launch.start();
    let mut client = broker.connect();
    client.create("topic", 2, &[]);
    coordinated(&mut client);
    let joined = client.call(&beat("m", 0), 1);
    assert_eq!((joined.error_code, joined.heartbeat_interval_ms), (0, 2_000));
    assert_eq!(client.call(&beat("n", 0), 1).error_code, GROUP_MAX_SIZE_REACHED);
    let resource = DescribeConfigsResource::default()
        .with_resource_type(BROKER)
        .with_resource_name(text("1"))
        .with_configuration_keys(Some(vec![text(bound)]));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let told = client.call(&request, 4).results.remove(0).configs;
    let told: Vec<_> = told.iter().map(|it| (it.name.as_str(), it.value.as_deref())).collect();
    assert_eq!(told, [(bound, Some("1000"))]);
}

/// What a member sends that joins with epoch 0, and says everything anew with any other.
fn beat(member: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group_id("g"))
        .with_member_id(text(member))
        .with_member_epoch(epoch)
        .with_rebalance_timeout_ms(60_000)
        .with_subscribed_topic_names(Some(vec![TopicName(text("topic"))]))
        .with_topic_partitions(Some(Vec::new()))
}
