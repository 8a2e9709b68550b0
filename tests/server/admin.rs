//! What administrators do: configs, partitions, records, sizes, the cluster.

use std::net::Shutdown;

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, CreatePartitionsRequest, DeleteRecordsRequest,
    DescribeConfigsRequest, DescribeLogDirsRequest, DescribeQuorumRequest,
    DescribeTopicPartitionsRequest, ElectLeadersRequest, IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest, ListOffsetsRequest, ListPartitionReassignmentsRequest, TopicName,
    alter_partition_reassignments_request as reassign, describe_quorum_request,
    elect_leaders_request,
};

use crate::support::ENGINES;
use crate::support::batch::{self, of};
use crate::support::client::{Client, text};
use crate::support::process::{Broker, Launch};
use crate::support::wait;

const OFFSET_OUT_OF_RANGE: i16 = 1;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const UNSUPPORTED_VERSION: i16 = 35;
const INVALID_PARTITIONS: i16 = 37;
const INVALID_CONFIG: i16 = 40;
const INVALID_REQUEST: i16 = 42;
const POLICY_VIOLATION: i16 = 44;
const ELECTION_NOT_NEEDED: i16 = 84;
const NO_REASSIGNMENT_IN_PROGRESS: i16 = 85;

/// Kinds of things that have configs.
const OF_TOPIC: i8 = 2;
const OF_BROKER: i8 = 4;
const OF_LOGGERS: i8 = 8;

/// Kafka's numbers of where a value comes from.
const FROM_TOPIC: i8 = 1;
const FROM_BROKER: i8 = 2;
const FROM_ALL_BROKERS: i8 = 3;
const FROM_FILE: i8 = 4;
const FROM_DEFAULT: i8 = 5;
const FROM_LOGGER: i8 = 6;

/// Kafka's number of a type.
const LIST: i8 = 7;

const SET: i8 = 0;
const DELETE: i8 = 1;

fn name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// Error code of one change of one config.
pub fn alter(
    client: &mut Client,
    (kind, resource): (i8, &str),
    (config, operation, value): (&str, i8, Option<&str>),
    is_trial: bool,
) -> i16 {
    let config = AlterableConfig::default()
        .with_name(text(config))
        .with_config_operation(operation)
        .with_value(value.map(text));
    let resource = AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(resource))
        .with_configs(vec![config]);
    let request = IncrementalAlterConfigsRequest::default()
        .with_resources(vec![resource])
        .with_validate_only(is_trial);
    client.call(&request, 1).responses[0].error_code
}

fn described(
    client: &mut Client,
    (kind, resource): (i8, &str),
    config: &str,
) -> DescribeConfigsResourceResult {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(resource))
        .with_configuration_keys(Some(vec![text(config)]));
    let request = DescribeConfigsRequest::default()
        .with_resources(vec![resource])
        .with_include_synonyms(true)
        .with_include_documentation(true);
    let mut answer = client.call(&request, 4);
    assert_eq!(answer.results[0].error_code, 0);
    answer.results.remove(0).configs.remove(0)
}

/// Value and source of a config, and its synonyms' sources.
fn value(client: &mut Client, of: (i8, &str), config: &str) -> (String, i8, Vec<i8>) {
    let found = described(client, of, config);
    assert!(found.documentation.is_some_and(|text| !text.is_empty()), "{config} is explained");
    let value = found.value.map_or_else(String::new, |value| value.to_string());
    (value, found.config_source, found.synonyms.iter().map(|it| it.source).collect())
}

/// A client that leaves in the middle of a frame, which is worth a line of level INFO; its address.
fn leave_in_a_frame(broker: &Broker) -> String {
    let mut client = broker.connect();
    let name = client.stream().local_addr().expect("it is connected").to_string();
    client.send(&[0, 0, 0, 100, 0]).expect("it is taken");
    client.stream().shutdown(Shutdown::Write).expect("it is connected");
    client.receive().expect_err("the server hangs up, too");
    name
}

#[test]
fn levels_of_loggers_are_changed_while_it_runs() {
    let broker = Launch::new("uring").shards(2).wrapped(["env", "RUST_LOG=error"]).start();
    let mut client = broker.connect();
    let level = |client: &mut Client, broker| {
        let found = described(client, (OF_LOGGERS, broker), "uringlog.shard");
        assert_eq!((found.config_source, found.synonyms.len()), (FROM_LOGGER, 0));
        found.value.map_or_else(String::new, |value| value.to_string())
    };
    let set = |level| ("uringlog.shard", SET, Some(level));
    assert_eq!(level(&mut client, "1"), "ERROR");
    let unseen = leave_in_a_frame(&broker);
    assert_eq!(alter(&mut client, (OF_LOGGERS, "1"), set("DEBUG"), true), 0);
    assert_eq!(level(&mut client, "1"), "ERROR", "it was only a question");
    assert_eq!(alter(&mut client, (OF_LOGGERS, "1"), set("DEBUG"), false), 0);
    assert_eq!(level(&mut client, "2"), "DEBUG", "both shards are the one broker");
    let seen = leave_in_a_frame(&broker);
    wait::until("a line about it", || broker.output().contains(&seen));
    assert!(!broker.output().contains(&unseen), "{}", broker.output());
    for (resource, change, expected) in [
        ("1", ("no.such", SET, Some("DEBUG")), INVALID_CONFIG),
        ("1", set("LOUD"), INVALID_CONFIG),
        ("1", ("root", DELETE, None), INVALID_REQUEST),
        ("3", set("INFO"), INVALID_REQUEST),
        ("x", set("INFO"), INVALID_REQUEST),
    ] {
        let found = alter(&mut client, (OF_LOGGERS, resource), change, false);
        assert_eq!(found, expected, "{resource} {change:?}");
    }
    assert_eq!(alter(&mut client, (OF_LOGGERS, "1"), ("uringlog.shard", DELETE, None), false), 0);
    assert_eq!(level(&mut client, "1"), "ERROR");
}

#[test]
fn configs_are_changed_explained_and_kept() {
    for engine in ENGINES {
        let broker = Launch::new(engine).start();
        let mut client = broker.connect();
        client.create("topic", 1, &[]);
        let (topic, own, all) = ((OF_TOPIC, "topic"), (OF_BROKER, "1"), (OF_BROKER, ""));
        let of_topic = |client: &mut Client| value(client, topic, "retention.ms");
        assert_eq!(of_topic(&mut client).1, FROM_DEFAULT);
        let set = |value| ("log.retention.ms", SET, Some(value));
        assert_eq!(alter(&mut client, all, set("7000000"), false), 0);
        assert_eq!(of_topic(&mut client).0, "7000000");
        assert_eq!(alter(&mut client, own, set("8000000"), false), 0);
        let sources = [FROM_BROKER, FROM_ALL_BROKERS];
        assert_eq!(value(&mut client, own, "log.retention.ms").2[..2], sources[..]);
        let change = ("retention.ms", SET, Some("9000000"));
        assert_eq!(alter(&mut client, topic, change, true), 0);
        assert_eq!(of_topic(&mut client).0, "8000000", "it was only a question");
        assert_eq!(alter(&mut client, topic, change, false), 0);
        let (value_now, source, synonyms) = of_topic(&mut client);
        assert_eq!((value_now.as_str(), source), ("9000000", FROM_TOPIC));
        assert_eq!(synonyms[..3], [FROM_TOPIC, FROM_BROKER, FROM_ALL_BROKERS]);
        let broker = broker.kill().start();
        let mut client = broker.connect();
        assert_eq!(of_topic(&mut client), (value_now, source, synonyms), "after a kill");
        let delete = |name| (name, DELETE, None);
        assert_eq!(alter(&mut client, topic, delete("retention.ms"), false), 0);
        assert_eq!(of_topic(&mut client).0, "8000000");
        assert_eq!(alter(&mut client, own, delete("log.retention.ms"), false), 0);
        assert_eq!(of_topic(&mut client).0, "7000000");
        assert_eq!(alter(&mut client, all, delete("log.retention.ms"), false), 0);
        assert_eq!(of_topic(&mut client).1, FROM_DEFAULT);
    }
}

/// librdkafka's own tests set them, and Kafka takes them.
#[test]
fn settings_of_what_is_not_here_are_taken_and_kept() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    let own = (OF_BROKER, "1");
    for (name, good, bad) in
        [("background.threads", "9", "0"), ("sasl.kerberos.min.time.before.relogin", "58000", "-1")]
    {
        assert_eq!(alter(&mut client, own, (name, SET, Some(bad)), false), INVALID_REQUEST);
        assert_eq!(alter(&mut client, own, (name, SET, Some(good)), false), 0);
        assert_eq!(
            value(&mut client, own, name),
            (good.to_owned(), FROM_BROKER, vec![FROM_BROKER])
        );
        assert_eq!(alter(&mut client, own, (name, DELETE, None), false), 0);
    }
}

/// Kafka's client libraries look there for a broker's address (kafka-python's own tests).
#[test]
fn every_broker_id_tells_its_own_address() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    let found = described(&mut client, (OF_BROKER, "1"), "advertised.listeners");
    let address = format!("PLAINTEXT://127.0.0.1:{}", broker.ports()[0]);
    assert_eq!(found.value.as_deref(), Some(address.as_str()));
    assert_eq!((found.config_source, found.config_type), (FROM_FILE, LIST));
    assert!(found.read_only);
}

#[test]
fn configs_that_make_no_sense_are_refused() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    client.create("topic", 1, &[]);
    let mut refused =
        |resource, config, value| alter(&mut client, resource, (config, SET, value), false);
    let (topic, own) = ((OF_TOPIC, "topic"), (OF_BROKER, "1"));
    assert_eq!(refused(topic, "retention.ms", Some("soon")), INVALID_CONFIG);
    assert_eq!(refused(topic, "no.such.config", Some("1")), INVALID_CONFIG);
    assert_eq!(refused(topic, "retention.ms", None), INVALID_REQUEST);
    assert_eq!(refused((OF_TOPIC, "other"), "retention.ms", Some("1")), UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(refused(own, "node.id", Some("2")), INVALID_REQUEST);
    assert_eq!(refused((OF_BROKER, "99"), "log.retention.ms", Some("1")), INVALID_REQUEST);
    assert_eq!(refused((77, "topic"), "retention.ms", Some("1")), INVALID_REQUEST);
}

#[test]
fn what_has_configs_is_listed() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    client.create("topic", 1, &[]);
    let mut listed = |types: Vec<i8>| {
        let request = ListConfigResourcesRequest::default().with_resource_types(types);
        let answer = client.call(&request, 1);
        let resources = answer.config_resources.iter();
        let pair = resources.map(|it| (it.resource_type, it.resource_name.to_string()));
        (answer.error_code, pair.collect::<Vec<_>>())
    };
    assert_eq!(listed(vec![OF_TOPIC]), (0, vec![(OF_TOPIC, "topic".to_owned())]));
    assert_eq!(listed(vec![OF_BROKER]), (0, vec![(OF_BROKER, "1".to_owned())]));
    assert_eq!(listed(vec![OF_LOGGERS]), (0, vec![(OF_LOGGERS, "1".to_owned())]));
    assert!(3 <= listed(vec![]).1.len());
    assert_eq!(listed(vec![77]), (UNSUPPORTED_VERSION, vec![]));
}

/// Error code and low watermark of a deletion of what lies before an offset.
fn delete_records(client: &mut Client, topic: &str, offset: i64) -> (i16, i64) {
    let partition = DeleteRecordsPartition::default().with_partition_index(0).with_offset(offset);
    let topic =
        DeleteRecordsTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
    let answer = client.call(&request, 2);
    let result = &answer.topics[0].partitions[0];
    (result.error_code, result.low_watermark)
}

#[test]
fn records_are_deleted_up_to_an_offset_and_stay_deleted() {
    for engine in ENGINES {
        let broker = Launch::new(engine).start();
        let mut client = broker.connect();
        client.create("topic", 1, &[]);
        client.create("compact", 1, &[("cleanup.policy", "compact")]);
        for number in 0..10 {
            client.accepted("topic", 0, of(&[number.to_string()]));
        }
        assert_eq!(delete_records(&mut client, "topic", 4), (0, 4));
        assert_eq!(delete_records(&mut client, "topic", 2), (0, 4), "they are gone already");
        assert_eq!(delete_records(&mut client, "topic", 11), (OFFSET_OUT_OF_RANGE, -1));
        assert_eq!(delete_records(&mut client, "topic", -2), (OFFSET_OUT_OF_RANGE, -1));
        assert_eq!(delete_records(&mut client, "nowhere", 1), (UNKNOWN_TOPIC_OR_PARTITION, -1));
        assert_eq!(delete_records(&mut client, "compact", 0), (POLICY_VIOLATION, -1));
        assert_eq!(client.list_offset("topic", 0, -2), (0, 4));
        assert_eq!(client.fetch("topic", 0, 3, 1 << 20).error_code, OFFSET_OUT_OF_RANGE);
        assert_eq!(batch::consume(&mut client, "topic", 0, 4).len(), 6);
        let broker = broker.stop().1.start();
        let mut client = broker.connect();
        assert_eq!(client.list_offset("topic", 0, -2), (0, 4), "after a restart");
        assert_eq!(delete_records(&mut client, "topic", -1), (0, 10));
        assert_eq!(batch::consume(&mut client, "topic", 0, 10).len(), 0);
        assert_eq!(client.accepted("topic", 0, of(&["on"])), 10);
    }
}

fn create_partitions(client: &mut Client, topic: &str, (count, is_trial): (i32, bool)) -> i16 {
    let topic = CreatePartitionsTopic::default()
        .with_name(name(topic))
        .with_count(count)
        .with_assignments(None);
    let request = CreatePartitionsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000)
        .with_validate_only(is_trial);
    client.call(&request, 3).results[0].error_code
}

#[test]
fn a_topic_gets_more_partitions_which_take_records_at_once() {
    for engine in ENGINES {
        let broker = Launch::new(engine).shards(2).start();
        let mut client = broker.connect();
        client.create("topic", 1, &[]);
        assert_eq!(create_partitions(&mut client, "topic", (6, true)), 0);
        assert_eq!(client.leaders("topic").len(), 1, "it was only a question");
        assert_eq!(create_partitions(&mut client, "topic", (1, false)), INVALID_PARTITIONS);
        assert_eq!(create_partitions(&mut client, "no", (6, false)), UNKNOWN_TOPIC_OR_PARTITION);
        assert_eq!(create_partitions(&mut client, "topic", (6, false)), 0);
        for (partition, leader) in (0..).zip(client.leaders("topic")) {
            assert_eq!(Client::open(leader).accepted("topic", partition, of(&["x"])), 0);
        }
        let broker = broker.kill().start();
        let leaders = broker.connect().leaders("topic");
        assert_eq!(leaders.len(), 6, "after a kill");
        assert_eq!(Client::open(leaders[5]).end("topic", 5), 1);
    }
}

#[test]
fn log_directories_tell_sizes_in_every_version() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    client.create("topic", 2, &[]);
    client.accepted("topic", 1, of(&["some bytes"]));
    for version in 1..=4 {
        let request = DescribeLogDirsRequest::default().with_topics(None);
        let answer = client.call(&request, version);
        let [directory] = &answer.results[..] else { panic!("one directory: {answer:?}") };
        assert_eq!(directory.error_code, 0);
        let [topic] = &directory.topics[..] else { panic!("one topic: {directory:?}") };
        let sizes: Vec<_> =
            topic.partitions.iter().map(|it| (it.partition_index, 0 < it.partition_size)).collect();
        assert_eq!(sizes, [(0, false), (1, true)]);
        assert_eq!(0 < directory.total_bytes, 4 <= version);
    }
}

/// Error code and offset of each of these times, in one request.
fn offsets(client: &mut Client, times: &[i64], version: i16) -> Vec<(i16, i64)> {
    let at = |time: &i64| {
        let wanted = ListOffsetsPartition::default().with_partition_index(0).with_timestamp(*time);
        let topic =
            ListOffsetsTopic::default().with_name(name("topic")).with_partitions(vec![wanted]);
        let request = ListOffsetsRequest::default().with_topics(vec![topic]);
        let answer = client.call(&request, version);
        let found = &answer.topics[0].partitions[0];
        (found.error_code, found.offset)
    };
    times.iter().map(at).collect()
}

#[test]
fn special_times_mean_what_they_mean_in_kafka() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    client.create("topic", 1, &[]);
    assert_eq!(offsets(&mut client, &[-1, -2, -3], 7), [(0, 0), (0, 0), (0, -1)]);
    let now = batch::now();
    let ago = uringlog::units::Timestamp(now.0 - 5_000);
    client.accepted("topic", 0, batch::at(ago, &["a", "b"]));
    client.accepted("topic", 0, batch::at(now, &["c"]));
    client.accepted("topic", 0, batch::at(ago, &["d"]));
    assert_eq!(delete_records(&mut client, "topic", 1), (0, 1));
    let newest = offsets(&mut client, &[-1, -2, -3, -4, -5], 10);
    assert_eq!(newest, [(0, 4), (0, 1), (0, 2), (0, 1), (0, -1)]);
    assert_eq!(offsets(&mut client, &[now.0, now.0 + 1, 0], 10), [(0, 2), (0, -1), (0, 1)]);
    let unknown = (UNSUPPORTED_VERSION, -1);
    assert_eq!(offsets(&mut client, &[-3], 6), [unknown]);
    assert_eq!(offsets(&mut client, &[-4], 7), [unknown]);
    assert_eq!(offsets(&mut client, &[-5], 8), [unknown]);
    assert_eq!(offsets(&mut client, &[-6, -7, i64::MIN], 10), [unknown; 3]);
    let twice = ListOffsetsPartition::default().with_partition_index(0).with_timestamp(-1);
    let topic = ListOffsetsTopic::default()
        .with_name(name("topic"))
        .with_partitions(vec![twice.clone(), twice]);
    let answer = client.call(&ListOffsetsRequest::default().with_topics(vec![topic]), 10);
    let errors = answer.topics[0].partitions.iter().map(|it| it.error_code);
    assert_eq!(errors.collect::<Vec<_>>(), [INVALID_REQUEST; 2]);
}

#[test]
fn topics_are_described_page_by_page() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    client.create("a", 2, &[]);
    client.create("b", 3, &[]);
    let mut seen = Vec::new();
    let mut cursor: Option<Cursor> = None;
    for _ in 0..3 {
        let request = DescribeTopicPartitionsRequest::default()
            .with_response_partition_limit(2)
            .with_cursor(cursor.take());
        let answer = client.call(&request, 0);
        for topic in &answer.topics {
            let name = topic.name.as_ref().expect("topics have names").to_string();
            seen.extend(topic.partitions.iter().map(|it| (name.clone(), it.partition_index)));
        }
        cursor = answer.next_cursor.map(|it| {
            Cursor::default()
                .with_topic_name(it.topic_name)
                .with_partition_index(it.partition_index)
        });
    }
    assert_eq!(cursor, None);
    let expected = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)];
    assert_eq!(seen, expected.map(|(name, index)| (name.to_owned(), index)));
    let missing = TopicRequest::default().with_name(name("zz"));
    let request = DescribeTopicPartitionsRequest::default().with_topics(vec![missing]);
    assert_eq!(client.call(&request, 0).topics[0].error_code, UNKNOWN_TOPIC_OR_PARTITION);
}

#[test]
fn one_broker_has_nothing_to_elect_or_move() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    client.create("topic", 1, &[]);
    let topic = elect_leaders_request::TopicPartitions::default()
        .with_topic(name("topic"))
        .with_partitions(vec![0, 5]);
    let request = ElectLeadersRequest::default().with_topic_partitions(Some(vec![topic]));
    let answer = client.call(&request, 2);
    let results = &answer.replica_election_results[0].partition_result;
    let errors: Vec<_> = results.iter().map(|it| it.error_code).collect();
    assert_eq!(errors, [ELECTION_NOT_NEEDED, UNKNOWN_TOPIC_OR_PARTITION]);
    let listed = ListPartitionReassignmentsRequest::default().with_topics(None);
    assert_eq!(client.call(&listed, 0).topics.len(), 0);
    let cancel = reassign::ReassignablePartition::default().with_replicas(None);
    let topic = reassign::ReassignableTopic::default()
        .with_name(name("topic"))
        .with_partitions(vec![cancel]);
    let request = AlterPartitionReassignmentsRequest::default().with_topics(vec![topic]);
    let answer = client.call(&request, 0);
    assert_eq!(answer.responses[0].partitions[0].error_code, NO_REASSIGNMENT_IN_PROGRESS);
    assert_eq!((answer.error_code, answer.error_message), (0, None));
    let nothing = client.call(&AlterPartitionReassignmentsRequest::default(), 0);
    assert_eq!(nothing.error_message, Some(text("")));
}

#[test]
fn the_metadata_log_has_one_voter_that_leads_it() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    let mut describe = |topic| {
        let partition = describe_quorum_request::PartitionData::default();
        let topic = describe_quorum_request::TopicData::default()
            .with_topic_name(name(topic))
            .with_partitions(vec![partition]);
        client.call(&DescribeQuorumRequest::default().with_topics(vec![topic]), 2)
    };
    let before = describe("__cluster_metadata").topics[0].partitions[0].clone();
    assert_eq!((before.error_code, before.leader_id.0), (0, 1));
    assert_eq!(before.error_message, Some(text("")));
    assert_eq!(before.current_voters.len(), 1);
    assert_eq!(before.current_voters[0].log_end_offset, before.high_watermark);
    let other = describe("topic");
    assert_eq!(other.topics[0].partitions[0].error_code, UNKNOWN_TOPIC_OR_PARTITION);
    broker.connect().create("topic", 1, &[]);
    let after = describe("__cluster_metadata").topics[0].partitions[0].clone();
    assert!(before.high_watermark < after.high_watermark);
}
