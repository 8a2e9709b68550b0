//! A topic that is deleted and made again has another id: whoever still has the old one is told so,
//! and gets nothing of the new topic.

use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{DeleteTopicsRequest, FetchRequest, MetadataRequest};
use uuid::Uuid;

use crate::support::ENGINES;
use crate::support::batch::of;
use crate::support::client::{Client, fetch_request, only, produce_request};
use crate::support::process::Launch;

const UNKNOWN_TOPIC_ID: i16 = 100;

/// The first versions that name topics by their ids.
const PRODUCE_BY_ID: i16 = 13;
const FETCH_BY_ID: i16 = 13;
const METADATA_BY_ID: i16 = 12;
const DELETE_BY_ID: i16 = 6;

/// The epoch of a fetch that begins a session.
const FIRST: i32 = 0;

fn id_of(client: &mut Client, topic: &str) -> Uuid {
    let wanted = MetadataRequestTopic::default()
        .with_name(Some(kafka_protocol::messages::TopicName(crate::support::client::text(topic))));
    let request = MetadataRequest::default().with_topics(Some(vec![wanted]));
    client.call(&request, METADATA_BY_ID).topics[0].topic_id
}

fn produce(client: &mut Client, id: Uuid, value: &str) -> i16 {
    let mut request = produce_request("topic", 0, of(&[value]).into(), -1);
    request.topic_data[0].topic_id = id;
    only(client.call(&request, PRODUCE_BY_ID)).error_code
}

fn by_id(id: Uuid, (session, epoch): (i32, i32)) -> FetchRequest {
    let mut request = fetch_request("topic", 0, 0, 1 << 20);
    request.topics[0].topic_id = id;
    request.with_session_id(session).with_session_epoch(epoch)
}

/// Error code and bytes of records.
fn fetch(client: &mut Client, id: Uuid) -> (i16, usize) {
    let mut answer = client.call(&by_id(id, (0, -1)), FETCH_BY_ID);
    let found = answer.responses.remove(0).partitions.remove(0);
    (found.error_code, found.records.map_or(0, |it| it.len()))
}

#[test]
fn the_id_of_a_deleted_topic_is_unknown_though_its_name_is_there_again() {
    for engine in ENGINES {
        let launch = Launch::new(engine).with(&["--durability", "page-cache"]);
        let broker = launch.start();
        let mut client = broker.connect();
        client.create("topic", 1, &[]);
        let old = id_of(&mut client, "topic");
        assert_eq!(produce(&mut client, old, "of the first"), 0);
        let began = client.call(&by_id(old, (0, FIRST)), FETCH_BY_ID);
        assert_eq!((began.error_code, began.responses.len()), (0, 1));
        client.delete("topic");
        client.create("topic", 1, &[]);
        let new = id_of(&mut client, "topic");
        assert_ne!(old, new);
        assert_eq!(produce(&mut client, old, "for the first"), UNKNOWN_TOPIC_ID);
        assert_eq!(fetch(&mut client, old), (UNKNOWN_TOPIC_ID, 0));
        assert_eq!(fetch(&mut client, new), (0, 0), "nothing was written to it");
        // A session names it once; Kafka, too, answers for that partition alone.
        let mut next = by_id(old, (began.session_id, FIRST + 1));
        next.topics.clear();
        let answer = client.call(&next, FETCH_BY_ID);
        assert_eq!(answer.error_code, 0);
        let codes: Vec<i16> =
            answer.responses.iter().map(|it| it.partitions[0].error_code).collect();
        assert_eq!(codes, [UNKNOWN_TOPIC_ID]);
        let wanted = MetadataRequestTopic::default().with_name(None).with_topic_id(old);
        let request = MetadataRequest::default().with_topics(Some(vec![wanted]));
        let told = client.call(&request, METADATA_BY_ID).topics.remove(0);
        assert_eq!((told.error_code, told.name), (UNKNOWN_TOPIC_ID, None));
        let state = DeleteTopicState::default().with_name(None).with_topic_id(old);
        let request =
            DeleteTopicsRequest::default().with_topics(vec![state]).with_timeout_ms(60_000);
        let deleted = client.call(&request, DELETE_BY_ID).responses.remove(0);
        assert_eq!(deleted.error_code, UNKNOWN_TOPIC_ID);
        assert_eq!(produce(&mut client, new, "of the second"), 0);
        assert_eq!(client.end("topic", 0), 1);
    }
}
