//! Fetch sessions (KIP-227) as a client sees them, request by request.

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::{FetchRequest, FetchResponse, TopicName};

use crate::support::ENGINES;
use crate::support::batch::{self, of};
use crate::support::client::{Client, FETCH, text};
use crate::support::process::{Broker, Launch};

const OFFSET_OUT_OF_RANGE: i16 = 1;
const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
const INVALID_FETCH_SESSION_EPOCH: i16 = 71;
const FETCH_SESSION_TOPIC_ID_ERROR: i16 = 106;

/// The epochs that make a session and that end one.
const INITIAL: i32 = 0;
const FINAL: i32 = -1;

const TOPIC: &str = "topic";

fn started(launch: &Launch) -> (Broker, Client) {
    let broker = launch.start();
    let mut client = broker.connect();
    client.create(TOPIC, 3, &[]);
    (broker, client)
}

/// A request of a session; partitions with the offsets to read from.
fn request((id, epoch): (i32, i32), partitions: &[(i32, i64)]) -> FetchRequest {
    let partition = |(index, offset): &(i32, i64)| {
        FetchPartition::default()
            .with_partition(*index)
            .with_fetch_offset(*offset)
            .with_partition_max_bytes(1 << 20)
    };
    let topic = FetchTopic::default()
        .with_topic(TopicName(text(TOPIC)))
        .with_partitions(partitions.iter().map(partition).collect());
    let topics = if partitions.is_empty() { Vec::new() } else { vec![topic] };
    FetchRequest::default()
        .with_max_wait_ms(0)
        .with_min_bytes(0)
        .with_max_bytes(1 << 20)
        .with_session_id(id)
        .with_session_epoch(epoch)
        .with_topics(topics)
}

/// The partitions that an answer names, with the number of their records.
fn told(answer: &FetchResponse) -> Vec<(i32, usize)> {
    assert_eq!(answer.error_code, 0);
    let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
    let count = |partition: &kafka_protocol::messages::fetch_response::PartitionData| {
        let records = partition.records.clone().unwrap_or_default();
        (partition.partition_index, batch::records(&records).len())
    };
    partitions.map(count).collect()
}

/// Error, session and number of topics of a refusal.
fn refused(answer: &FetchResponse) -> (i16, i32, usize) {
    (answer.error_code, answer.session_id, answer.responses.len())
}

#[test]
fn an_incremental_fetch_names_only_what_is_new() {
    for engine in ENGINES {
        let (_broker, mut client) = started(&Launch::new(engine));
        let full = client.call(&request((0, INITIAL), &[(0, 0), (1, 0), (2, 0)]), FETCH);
        let id = full.session_id;
        assert!(0 < id, "a session was made");
        assert_eq!(told(&full), [(0, 0), (1, 0), (2, 0)]);
        let quiet = client.call(&request((id, 1), &[]), FETCH);
        assert_eq!((quiet.session_id, told(&quiet)), (id, vec![]));
        client.accepted(TOPIC, 1, of(&["a", "b"]));
        let news = client.call(&request((id, 2), &[]), FETCH);
        assert_eq!(told(&news), [(1, 2)]);
        // The client goes on behind what it got.
        let rest = client.call(&request((id, 3), &[(1, 2)]), FETCH);
        assert_eq!(told(&rest), []);
        // It is wrong about one partition: an error is told again and again.
        for epoch in [4, 5] {
            let wrong = client.call(&request((id, epoch), &[(2, 99)]), FETCH);
            assert_eq!(told(&wrong), [(2, 0)]);
            let error = wrong.responses[0].partitions[0].error_code;
            assert_eq!(error, OFFSET_OUT_OF_RANGE);
        }
    }
}

#[test]
fn partitions_are_forgotten_and_a_session_without_any_ends() {
    let (_broker, mut client) = started(&Launch::new("uring"));
    let id = client.call(&request((0, INITIAL), &[(0, 0), (1, 0)]), FETCH).session_id;
    let forget = |epoch, partitions: Vec<i32>| {
        let gone = ForgottenTopic::default().with_topic(TopicName(text(TOPIC)));
        request((id, epoch), &[]).with_forgotten_topics_data(vec![gone.with_partitions(partitions)])
    };
    client.accepted(TOPIC, 0, of(&["a"]));
    client.accepted(TOPIC, 1, of(&["b"]));
    let left = client.call(&forget(1, vec![0]), FETCH);
    assert_eq!(told(&left), [(1, 1)]);
    let last = client.call(&forget(2, vec![1]), FETCH);
    assert_eq!((last.error_code, last.session_id), (0, 0));
    let after = client.call(&request((id, 3), &[]), FETCH);
    assert_eq!(refused(&after), (FETCH_SESSION_ID_NOT_FOUND, 0, 0));
}

#[test]
fn wrong_ids_epochs_and_versions_are_refused_as_a_whole() {
    let (_broker, mut client) = started(&Launch::new("uring"));
    let id = client.call(&request((0, INITIAL), &[(0, 0)]), FETCH).session_id;
    let mut outcome = |session, version| refused(&client.call(&request(session, &[]), version));
    assert_eq!(outcome((id ^ 1, 1), FETCH), (FETCH_SESSION_ID_NOT_FOUND, 0, 0));
    assert_eq!(outcome((0, 1), FETCH), (FETCH_SESSION_ID_NOT_FOUND, 0, 0));
    assert_eq!(outcome((id, 2), FETCH), (INVALID_FETCH_SESSION_EPOCH, 0, 0));
    assert_eq!(outcome((id, i32::MIN), FETCH), (INVALID_FETCH_SESSION_EPOCH, 0, 0));
    // From version 13 on topics have ids, and a session keeps to one way of naming them.
    assert_eq!(outcome((id, 1), 13), (FETCH_SESSION_TOPIC_ID_ERROR, 0, 0));
    assert_eq!(outcome((id, 1), FETCH), (0, id, 0));
    assert_eq!(outcome((id, 1), FETCH), (INVALID_FETCH_SESSION_EPOCH, 0, 0), "it is used up");
    assert_eq!(outcome((id, FINAL), FETCH), (0, 0, 0));
    assert_eq!(outcome((id, 2), FETCH), (FETCH_SESSION_ID_NOT_FOUND, 0, 0), "it has ended");
}

#[test]
fn a_session_is_found_from_any_connection() {
    let (broker, mut client) = started(&Launch::new("uring"));
    let id = client.call(&request((0, INITIAL), &[(0, 0)]), FETCH).session_id;
    client.accepted(TOPIC, 0, of(&["a"]));
    let other = broker.connect().call(&request((id, 1), &[]), FETCH);
    assert_eq!((other.session_id, told(&other)), (id, vec![(0, 1)]));
}

#[test]
fn there_are_no_more_sessions_than_slots_and_the_others_are_served_without() {
    let setting = "max.incremental.fetch.session.cache.slots=2";
    let (_broker, mut client) = started(&Launch::new("uring").set(setting));
    client.accepted(TOPIC, 0, of(&["a"]));
    let full = request((0, INITIAL), &[(0, 0)]);
    let ids: Vec<i32> = (0..3).map(|_| client.call(&full, FETCH).session_id).collect();
    assert!(ids[0] != 0 && ids[1] != 0 && ids[0] != ids[1], "{ids:?}");
    assert_eq!(ids[2], 0, "nobody is old enough to make room");
    assert_eq!(told(&client.call(&full, FETCH)), [(0, 1)]);
    // One that ends makes room at once; so does one that starts anew.
    client.call(&request((ids[0], FINAL), &[]), FETCH);
    assert_ne!(client.call(&full, FETCH).session_id, 0);
    let anew = client.call(&request((ids[1], INITIAL), &[(0, 0)]), FETCH);
    assert_ne!(anew.session_id, 0);
    let old = client.call(&request((ids[1], 1), &[]), FETCH);
    assert_eq!(refused(&old), (FETCH_SESSION_ID_NOT_FOUND, 0, 0));
}
