//! How large a commit of offsets may be: a batch of its topic, whatever that is at the moment.

use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    FindCoordinatorRequest, GroupId, IncrementalAlterConfigsRequest, ListGroupsRequest,
    OffsetCommitRequest, OffsetFetchRequest, TopicName,
};

use crate::support::client::{Client, text};
use crate::support::process::Launch;
use crate::support::wait;

const UNKNOWN_SERVER_ERROR: i16 = -1;
const LOAD_IN_PROGRESS: i16 = 14;
const PARTITIONS: i32 = 300;
/// The type of a topic among resources.
const TOPIC: i8 = 2;

/// Waits until the coordinators are there and loaded.
fn coordinated(client: &mut Client) {
    let find = FindCoordinatorRequest::default().with_coordinator_keys(vec![text("any")]);
    wait::until("a coordinator", || client.call(&find, 4).coordinators[0].error_code == 0);
    let list = ListGroupsRequest::default();
    wait::until("loaded groups", || client.call(&list, 4).error_code != LOAD_IN_PROGRESS);
}

/// Commits one offset for all partitions, each with a text of 1,000 bytes: some 315 KB of records.
fn commit(client: &mut Client, offset: i64) -> i16 {
    let partitions = (0..PARTITIONS).map(|index| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(index)
            .with_committed_offset(offset)
            .with_committed_metadata(Some(text(&"m".repeat(1_000))))
    });
    let topic = OffsetCommitRequestTopic::default()
        .with_name(TopicName(text("topic")))
        .with_partitions(partitions.collect());
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    let answer = client.call(&request, 8);
    let outcomes = &answer.topics[0].partitions;
    assert_eq!(outcomes.len(), 300);
    assert!(outcomes.iter().all(|it| it.error_code == outcomes[0].error_code), "all or nothing");
    outcomes[0].error_code
}

/// The offsets of all partitions, which are the same.
fn committed(client: &mut Client) -> i64 {
    let request = OffsetFetchRequest::default().with_group_id(GroupId(text("g"))).with_topics(None);
    let answer = client.call(&request, 7);
    let offsets = &answer.topics[0].partitions;
    assert_eq!(offsets.len(), 300);
    assert!(offsets.iter().all(|it| it.committed_offset == offsets[0].committed_offset));
    offsets[0].committed_offset
}

fn limit_batches(client: &mut Client, bytes: u32) {
    let config = AlterableConfig::default()
        .with_name(text("max.message.bytes"))
        .with_value(Some(text(&bytes.to_string())));
    let resource = AlterConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text("__consumer_offsets"))
        .with_configs(vec![config]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    assert_eq!(client.call(&request, 1).responses[0].error_code, 0);
}

#[test]
fn a_commit_may_be_as_large_as_the_topic_of_offsets_takes_a_batch() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    client.create("topic", PARTITIONS, &[]);
    coordinated(&mut client);
    assert_eq!(commit(&mut client, 1), 0);
    limit_batches(&mut client, 200_000);
    assert_eq!(commit(&mut client, 2), UNKNOWN_SERVER_ERROR);
    assert_eq!(committed(&mut client), 1, "nothing of it counts, and the others stay");
    limit_batches(&mut client, 400_000);
    assert_eq!(commit(&mut client, 3), 0);
    let broker = broker.kill().start();
    let mut client = broker.connect();
    coordinated(&mut client);
    assert_eq!(committed(&mut client), 3);
}
