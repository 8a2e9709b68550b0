//! What members of a group tell each other through the coordinator, in the client's words: Kafka's
//! `ConsumerProtocol` (`format::consumer_protocol`) has partitions by topic.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::assign::Subscriber;
use crate::client::TopicPartition;
use crate::format::consumer_protocol::{
    Assignment, NamedPartitions, Subscription, encode_assignment, encode_subscription,
};

/// The version that is written; members with an older client skip what they don't know.
const ASSIGNMENT_VERSION: i16 = 1;

/// What a member says of itself when it joins.
pub fn write_subscription(topics: &[String], owned: &[TopicPartition], generation: i32) -> Bytes {
    let mut topics = topics.to_vec();
    topics.sort();
    encode_subscription(&topics, &by_topic(owned), generation).into()
}

/// What the leader tells a member.
pub fn write_assignment(partitions: &[TopicPartition]) -> Bytes {
    encode_assignment(ASSIGNMENT_VERSION, &by_topic(partitions)).into()
}

/// What a member has said of itself; `None` when it isn't a consumer's subscription.
pub fn read_subscription(id: &str, instance: Option<&str>, bytes: &Bytes) -> Option<Subscriber> {
    let Subscription { topics, owned, generation, .. } = Subscription::decode(bytes).ok()?;
    let (id, instance) = (id.to_owned(), instance.map(str::to_owned));
    Some(Subscriber { id, instance, topics, owned: one_by_one(&owned), generation })
}

/// What a member was told to read; `None` when it isn't a consumer's assignment. No bytes mean
/// nothing to read.
pub fn read_assignment(bytes: &Bytes) -> Option<Vec<TopicPartition>> {
    Assignment::decode(bytes).ok().map(|assigned| one_by_one(&assigned.partitions))
}

fn one_by_one(partitions: &[(String, Vec<i32>)]) -> Vec<TopicPartition> {
    let of_topic = |(topic, numbers): &(String, Vec<i32>)| {
        let partition = |number: &i32| TopicPartition::new(topic, *number);
        numbers.iter().map(partition).collect::<Vec<_>>()
    };
    partitions.iter().flat_map(of_topic).collect()
}

fn by_topic(partitions: &[TopicPartition]) -> NamedPartitions {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for one in partitions {
        topics.entry(&one.topic).or_default().push(one.partition);
    }
    topics.values_mut().for_each(|own| own.sort_unstable());
    topics.into_iter().map(|(topic, own)| (topic.to_owned(), own)).collect()
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
