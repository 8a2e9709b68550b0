//! What can change in a group: the records of the consumer protocol.

use std::rc::Rc;

use crate::coordinator::Record;
use crate::coordinator::group::consumer::Partitions;
use crate::format::group_records::{
    CurrentAssignment, Key, ModernMember, RegularExpression, TargetEpoch, TopicPartitions,
    encode_group, encode_target,
};

/// One change of a group. `None` is a tombstone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// What a member says about itself.
    Member(Rc<str>, Option<ModernMember>),
    /// The group's epoch, and the hash of the topics that it looks at.
    Epoch(i32, i64),
    /// The target's epoch.
    TargetEpoch(TargetEpoch),
    /// What a member is to have.
    Target(Rc<str>, Option<Partitions>),
    /// What a member has.
    Current(Rc<str>, Option<CurrentAssignment>),
    /// The topics that a regular expression names.
    Regex(String, Option<RegularExpression>),
}

impl Change {
    /// As a record.
    pub fn record(&self, group: &str) -> Record {
        let group = group.to_owned();
        let (key, value) = match self {
            Change::Member(member, said) => {
                (Key::Member(group, member.to_string()), said.as_ref().map(ModernMember::encode))
            }
            Change::Epoch(epoch, hash) => {
                (Key::ModernGroup(group), Some(encode_group(*epoch, *hash)))
            }
            Change::TargetEpoch(target) => (Key::TargetEpoch(group), Some(target.encode())),
            Change::Target(member, target) => {
                let value = target.as_ref().map(|target| encode_target(&listed(target)));
                (Key::Target(group, member.to_string()), value)
            }
            Change::Current(member, current) => (
                Key::Current(group, member.to_string()),
                current.as_ref().map(CurrentAssignment::encode),
            ),
            Change::Regex(text, resolved) => (
                Key::RegularExpression(group, text.clone()),
                resolved.as_ref().map(RegularExpression::encode),
            ),
        };
        Record { key: key.encode(), value }
    }
}

fn listed(partitions: &Partitions) -> Vec<TopicPartitions> {
    let topics = partitions.iter().map(|(topic, partitions)| TopicPartitions {
        topic_id: *topic,
        partitions: partitions.iter().copied().collect(),
        epochs: Vec::new(),
    });
    topics.collect()
}

/// What a target's record says.
pub fn partitions(topics: Vec<TopicPartitions>) -> Partitions {
    let topics = topics.into_iter().filter(|topic| !topic.partitions.is_empty());
    topics.map(|topic| (topic.topic_id, topic.partitions.into_iter().collect())).collect()
}
