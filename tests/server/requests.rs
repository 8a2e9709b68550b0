//! Requests that are well formed and ask for what isn't there or isn't allowed.

use std::fs;

use crate::support::batch::{self, of};
use crate::support::client::{Client, Outcome, encode, produce_request};
use crate::support::process::{Broker, Launch, directory};
use crate::support::{ENGINES, wait};

const OFFSET_OUT_OF_RANGE: i16 = 1;
const CORRUPT_MESSAGE: i16 = 2;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const NOT_LEADER_OR_FOLLOWER: i16 = 6;
const INVALID_TOPIC: i16 = 17;
const INVALID_REQUIRED_ACKS: i16 = 21;
const INVALID_PARTITIONS: i16 = 37;
const INVALID_REPLICATION_FACTOR: i16 = 38;
const INVALID_CONFIG: i16 = 40;
const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;

fn started(engine: &str) -> (Broker, Client) {
    let broker = Launch::new(engine).start();
    let client = broker.connect();
    (broker, client)
}

#[test]
fn produce_to_an_unknown_topic_or_partition_is_refused_and_makes_neither() {
    for engine in ENGINES {
        let (_broker, mut client) = started(engine);
        client.create("known", 1, &[]);
        for (topic, partition) in [("unknown", 0), ("known", 1), ("known", -1), ("known", i32::MAX)]
        {
            let answer = client.produce(topic, partition, of(&["x"]));
            assert_eq!(answer.error_code, UNKNOWN_TOPIC_OR_PARTITION, "{topic}-{partition}");
            let answer = client.fetch(topic, partition, 0, 1_000);
            assert_eq!(answer.error_code, UNKNOWN_TOPIC_OR_PARTITION, "{topic}-{partition}");
            let (error, _) = client.list_offset(topic, partition, -1);
            assert_eq!(error, UNKNOWN_TOPIC_OR_PARTITION, "{topic}-{partition}");
        }
        let answer = client.try_metadata(None).expect("it answers");
        assert_eq!(answer.topics.len(), 1, "the topic that was there");
    }
}

#[test]
fn acks_that_dont_exist_are_refused_and_acks_0_to_nowhere_ends_the_connection() {
    let (broker, mut client) = started("uring");
    client.create("topic", 1, &[]);
    for acks in [-2, 2, i16::MAX] {
        let request = produce_request("topic", 0, of(&["x"]).into(), acks);
        let answer = crate::support::client::only(client.call(&request, 9));
        assert_eq!(answer.error_code, INVALID_REQUIRED_ACKS, "acks {acks}");
    }
    let silent = produce_request("nowhere", 0, of(&["x"]).into(), 0);
    assert_eq!(broker.connect().outcome(&encode(&silent, 9, 1)), Outcome::Closed);
    assert_eq!(client.end("topic", 0), 0);
}

#[test]
fn a_shard_refuses_the_other_shards_partitions_and_names_their_leader() {
    for engine in ENGINES {
        let broker = Launch::new(engine).shards(2).start();
        let [first, second] = *broker.ports() else { panic!("two shards have two ports") };
        let mut client = broker.connect();
        client.create("topic", 16, &[]);
        let leaders = client.leaders("topic");
        assert!(leaders.contains(&first) && leaders.contains(&second), "both lead: {leaders:?}");
        for (partition, leader) in (0..).zip(leaders) {
            let stranger = if leader == first { second } else { first };
            assert_refused_by_a_stranger(&mut Client::open(stranger), partition, leader);
            let mut owner = Client::open(leader);
            assert_eq!(owner.accepted("topic", partition, of(&["x"])), 0);
            assert_eq!(batch::consume(&mut owner, "topic", partition, 0).len(), 1);
        }
    }
}

fn assert_refused_by_a_stranger(stranger: &mut Client, partition: i32, leader: u16) {
    let request = produce_request("topic", partition, of(&["x"]).into(), -1);
    let answer = stranger.call(&request, 12);
    let refused = &answer.responses[0].partition_responses[0];
    assert_eq!(refused.error_code, NOT_LEADER_OR_FOLLOWER);
    let node =
        answer.node_endpoints.iter().find(|it| it.node_id == refused.current_leader.leader_id);
    assert_eq!(node.map(|it| it.port), Some(i32::from(leader)), "the leader is named");
    let answer = stranger.fetch("topic", partition, 0, 1_000);
    assert_eq!(answer.error_code, NOT_LEADER_OR_FOLLOWER);
    assert_eq!(stranger.list_offset("topic", partition, -1).0, NOT_LEADER_OR_FOLLOWER);
}

#[test]
fn a_fetch_outside_of_the_log_says_so_and_the_log_itself_is_served() {
    for engine in ENGINES {
        let broker = Launch::new(engine)
            .set("log.segment.bytes=1048576")
            .set("log.retention.bytes=3000000")
            .set("log.retention.check.interval.ms=50")
            .set("log.initial.task.delay.ms=0")
            .start();
        let mut client = broker.connect();
        client.create("topic", 1, &[]);
        for seed in 0..40 {
            client.accepted("topic", 0, batch::large(seed, 200_000));
        }
        let start = wait::for_some("retention deletes a segment", || {
            let (error, start) = client.list_offset("topic", 0, -2);
            assert_eq!(error, 0);
            (0 < start).then_some(start)
        });
        for offset in [-1, 0, start - 1, 41, i64::MAX, i64::MIN] {
            let answer = client.fetch("topic", 0, offset, 1 << 20);
            assert_eq!(answer.error_code, OFFSET_OUT_OF_RANGE, "{engine}: offset {offset}");
            assert!(answer.records.is_none_or(|records| records.is_empty()));
        }
        let (_, start) = client.list_offset("topic", 0, -2);
        let records = batch::consume(&mut client, "topic", 0, start);
        let offsets: Vec<_> = records.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, (start..40).collect::<Vec<_>>());
        let at_the_end = client.fetch("topic", 0, 40, 1 << 20);
        assert_eq!((at_the_end.error_code, at_the_end.high_watermark), (0, 40));
    }
}

#[test]
fn a_refusal_says_beside_its_code_what_kafkas_says() {
    let (_broker, mut client) = started("uring");
    client.create("topic", 1, &[]);
    let producer = client.producer_id();
    client.accepted("topic", 0, batch::sequenced(producer, 0, &["0".to_owned()]));
    let late = client.produce("topic", 0, batch::sequenced(producer, 7, &["7".to_owned()]));
    assert_eq!((late.error_code, late.log_start_offset), (OUT_OF_ORDER_SEQUENCE_NUMBER, 0));
    let mut broken = of(&["1"]);
    broken[20] ^= 1;
    let broken = client.produce("topic", 0, broken);
    assert_eq!((broken.error_code, broken.log_start_offset), (CORRUPT_MESSAGE, -1));
    let unknown = client.fetch("topic", 9, 0, 1 << 20);
    assert_eq!(unknown.error_code, UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(unknown.aborted_transactions, Some(Vec::new()));
    let beyond = client.fetch("topic", 0, 9, 1 << 20);
    assert_eq!((beyond.error_code, beyond.aborted_transactions), (OFFSET_OUT_OF_RANGE, None));
}

#[test]
fn illegal_topic_names_are_refused_and_leave_no_directory() {
    let kept = directory();
    let broker = Launch::at("uring", kept.path()).start();
    let mut client = broker.connect();
    let (long, longest) = ("x".repeat(250), "x".repeat(249));
    let illegal = [
        "",
        ".",
        "..",
        "a/b",
        "../escape",
        "/absolute",
        "a b",
        "a\0b",
        "a\nb",
        "ümlaut",
        "a:b",
        "a,b",
        "a*b",
        "a\\b",
        &long,
    ];
    for name in illegal {
        assert_eq!(client.try_create(name, 1, &[]), INVALID_TOPIC, "{name:?}");
    }
    client.create("with.dot", 1, &[]);
    assert_eq!(client.try_create("with_dot", 1, &[]), INVALID_TOPIC, "metrics names collide");
    client.create(&longest, 1, &[]);
    let mut names: Vec<_> = fs::read_dir(kept.path())
        .expect("it is there")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("ASCII"))
        .filter(|name| kept.path().join(name).is_dir() && !name.starts_with("__"))
        .collect();
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.contains(&"with.dot-0".to_owned()));
    let parent = kept.path().parent().expect("it has one");
    assert!(!parent.join("escape-0").exists());
}

#[test]
fn impossible_topics_are_refused_with_kafkas_codes() {
    let (_broker, mut client) = started("uring");
    assert_eq!(client.try_create("none", 0, &[]), INVALID_PARTITIONS);
    assert_eq!(client.try_create("negative", -7, &[]), INVALID_PARTITIONS);
    for config in [("no.such.config", "1"), ("retention.ms", "soon"), ("segment.bytes", "-1")] {
        assert_eq!(client.try_create("config", 1, &[config]), INVALID_CONFIG, "{config:?}");
    }
    let factor = kafka_protocol::messages::create_topics_request::CreatableTopic::default()
        .with_name(kafka_protocol::messages::TopicName("factor".into()))
        .with_num_partitions(1)
        .with_replication_factor(2);
    let request = kafka_protocol::messages::CreateTopicsRequest::default()
        .with_topics(vec![factor])
        .with_timeout_ms(1_000);
    let refused = &client.call(&request, 5).topics[0];
    assert_eq!(refused.error_code, INVALID_REPLICATION_FACTOR);
    assert!(refused.error_message.is_some(), "with the reason");
    let answer = client.try_metadata(None).expect("it answers");
    assert_eq!(answer.topics.len(), 0);
}
