//! What members of a group tell each other through the coordinator, which doesn't look into it:
//! Kafka's `ConsumerProtocol`, a version and a message.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::TopicName;
use kafka_protocol::messages::consumer_protocol_assignment::{
    ConsumerProtocolAssignment, TopicPartition as AssignedTopic,
};
use kafka_protocol::messages::consumer_protocol_subscription::{
    ConsumerProtocolSubscription, TopicPartition as OwnedTopic,
};
use kafka_protocol::protocol::{Decodable, Encodable};

use super::assign::Subscriber;
use crate::client::TopicPartition;
use crate::wire::StrBytes;
use crate::wire::guard::{Field, INT32, INT32S, Kind, TEXTS, check_fields, field};

/// The versions that are written; members with an older client skip what they don't know.
const SUBSCRIPTION_VERSION: i16 = 2;
const ASSIGNMENT_VERSION: i16 = 1;

/// The newest version that is read; a newer one is read as this, as Kafka does.
const VERSION_MAX: i16 = 3;

const SUBSCRIPTION: &[Field] = &[
    field("topics", TEXTS, 0),
    field("user data", Kind::Blob, 0),
    field("owned partitions", Kind::Array(&Kind::Struct(PARTITIONS)), 1),
    field("generation id", INT32, 2),
    field("rack id", Kind::Text, 3),
];
const ASSIGNMENT: &[Field] = &[
    field("assigned partitions", Kind::Array(&Kind::Struct(PARTITIONS)), 0),
    field("user data", Kind::Blob, 0),
];
const PARTITIONS: &[Field] = &[field("topic", Kind::Text, 0), field("partitions", INT32S, 0)];

/// What a member says of itself when it joins.
pub fn write_subscription(topics: &[String], owned: &[TopicPartition], generation: i32) -> Bytes {
    let mut topics: Vec<_> = topics.iter().cloned().map(StrBytes::from_string).collect();
    topics.sort();
    let owned = by_topic(owned).into_iter().map(|(topic, partitions)| {
        OwnedTopic::default().with_topic(name(topic)).with_partitions(partitions)
    });
    let message = ConsumerProtocolSubscription::default()
        .with_topics(topics)
        .with_user_data(None)
        .with_owned_partitions(owned.collect())
        .with_generation_id(generation);
    write(&message, SUBSCRIPTION_VERSION)
}

/// What the leader tells a member.
pub fn write_assignment(partitions: &[TopicPartition]) -> Bytes {
    let assigned = by_topic(partitions).into_iter().map(|(topic, partitions)| {
        AssignedTopic::default().with_topic(name(topic)).with_partitions(partitions)
    });
    let message = ConsumerProtocolAssignment::default()
        .with_assigned_partitions(assigned.collect())
        .with_user_data(None);
    write(&message, ASSIGNMENT_VERSION)
}

/// What a member has said of itself; `None` when it isn't a consumer's subscription.
pub fn read_subscription(id: &str, instance: Option<&str>, bytes: &Bytes) -> Option<Subscriber> {
    let message: ConsumerProtocolSubscription = read(SUBSCRIPTION, bytes)?;
    let owned = message.owned_partitions.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| TopicPartition::new(&topic.topic, *partition))
    });
    Some(Subscriber {
        id: id.to_owned(),
        instance: instance.map(str::to_owned),
        topics: message.topics.iter().map(ToString::to_string).collect(),
        owned: owned.collect(),
        generation: message.generation_id,
    })
}

/// What a member was told to read; `None` when it isn't a consumer's assignment. No bytes mean
/// nothing to read.
pub fn read_assignment(bytes: &Bytes) -> Option<Vec<TopicPartition>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let message: ConsumerProtocolAssignment = read(ASSIGNMENT, bytes)?;
    let partitions = message.assigned_partitions.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| TopicPartition::new(&topic.topic, *partition))
    });
    Some(partitions.collect())
}

fn write(message: &impl Encodable, version: i16) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.extend_from_slice(&version.to_be_bytes());
    message.encode(&mut bytes, version).expect("names of topics are short");
    bytes.freeze()
}

fn read<M: Decodable>(shape: &'static [Field], bytes: &Bytes) -> Option<M> {
    let mut rest = bytes.clone();
    let version = (rest.remaining() >= size_of::<i16>()).then(|| rest.get_i16())?;
    let version = version.min(VERSION_MAX);
    if version < 0 {
        return None;
    }
    check_fields(shape, (version, false), &rest).ok()?;
    M::decode(&mut rest, version).ok()
}

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

fn by_topic(partitions: &[TopicPartition]) -> BTreeMap<&str, Vec<i32>> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for one in partitions {
        topics.entry(&one.topic).or_default().push(one.partition);
    }
    topics.values_mut().for_each(|own| own.sort_unstable());
    topics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let owned = [("t", 2), ("t", 0), ("u", 1)].map(|(t, p)| TopicPartition::new(t, p));
        let topics = ["u".to_owned(), "t".to_owned()];
        let bytes = write_subscription(&topics, &owned, 7);
        let read = read_subscription("m", Some("i"), &bytes).expect("a subscription");
        assert_eq!(read.topics, ["t", "u"]);
        assert_eq!((read.generation, read.id.as_str()), (7, "m"));
        let sorted = [("t", 0), ("t", 2), ("u", 1)].map(|(t, p)| TopicPartition::new(t, p));
        assert_eq!(read.owned, sorted);
        assert_eq!(read_assignment(&write_assignment(&owned)).expect("fine"), sorted);
    }

    #[test]
    fn subscriptions_of_old_clients_own_nothing() {
        // Version 0, one topic "t", no user data.
        let bytes = Bytes::from_static(&[0, 0, 0, 0, 0, 1, 0, 1, b't', 255, 255, 255, 255]);
        let read = read_subscription("m", None, &bytes).expect("a subscription");
        assert_eq!((read.topics, read.generation), (vec!["t".to_owned()], -1));
        assert!(read.owned.is_empty());
    }

    #[test]
    fn bytes_that_claim_too_much_are_no_assignment() {
        let whole = write_assignment(&[TopicPartition::new("t", 0)]);
        for cut in 1..whole.len() {
            assert_eq!(read_assignment(&whole.slice(..cut)), None, "{cut}");
        }
        let huge = Bytes::from_static(&[0, 0, 0x7f, 255, 255, 255]);
        assert_eq!(read_assignment(&huge), None);
        assert_eq!(read_assignment(&Bytes::new()), Some(Vec::new()));
    }
}
