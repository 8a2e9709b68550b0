//! A member of a group with the consumer protocol.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::coordinator::group::consumer::Partitions;
use crate::format::group_records::{CurrentAssignment, ModernMember, TopicPartitions};
use crate::units::TopicId;

/// Partitions by topic, each with the epoch at which the member got it.
pub type Held = BTreeMap<TopicId, BTreeMap<i32, i32>>;

/// Epoch of a static member that has left and is expected back.
pub const EPOCH_AWAY: i32 = -2;

/// How a member stands to its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It has what its epoch's target says, or as much of it as it may.
    Stable,
    /// It is to give something up.
    Revoking,
    /// Others have not given up what it is to get.
    Waiting,
    /// A later Kafka has written something else.
    Unknown,
}

impl Standing {
    fn to_record(self) -> i8 {
        match self {
            Standing::Stable => 0,
            Standing::Revoking => 1,
            Standing::Waiting => 2,
            Standing::Unknown => 127,
        }
    }

    fn from_record(number: i8) -> Standing {
        match number {
            0 => Standing::Stable,
            1 => Standing::Revoking,
            2 => Standing::Waiting,
            _ => Standing::Unknown,
        }
    }
}

/// A member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    pub id: Rc<str>,
    /// What it said about itself; topics are sorted.
    pub said: ModernMember,
    /// The target epoch that it has come to; 0 when new, -2 when it is away.
    pub epoch: i32,
    /// The one before: an answer may have been lost.
    pub previous_epoch: i32,
    pub standing: Standing,
    pub assigned: Held,
    /// What it is to give up.
    pub revoking: Held,
}

impl Member {
    /// A member that has nothing yet.
    pub fn new(id: Rc<str>, said: ModernMember) -> Member {
        Member {
            id,
            said,
            epoch: 0,
            previous_epoch: 0,
            standing: Standing::Stable,
            assigned: Held::new(),
            revoking: Held::new(),
        }
    }

    /// Whether it speaks the classic protocol.
    pub fn is_classic(&self) -> bool {
        self.said.classic.is_some()
    }

    /// Its regular expression, if it has one.
    pub fn regex(&self) -> Option<&str> {
        self.said.regex.as_deref().filter(|regex| !regex.is_empty())
    }

    /// Takes what a record says that it has; `None` for a tombstone.
    pub fn take(&mut self, current: Option<CurrentAssignment>) {
        let Some(current) = current else {
            (self.epoch, self.previous_epoch, self.standing) = (-1, -1, Standing::Stable);
            self.assigned.clear();
            self.revoking.clear();
            return;
        };
        self.epoch = current.epoch;
        self.previous_epoch = current.previous_epoch;
        self.standing = Standing::from_record(current.state);
        self.assigned = held(current.assigned, current.epoch);
        self.revoking = held(current.revoking, current.epoch);
    }

    /// What it has, as a record.
    pub fn current(&self) -> CurrentAssignment {
        CurrentAssignment {
            epoch: self.epoch,
            previous_epoch: self.previous_epoch,
            state: self.standing.to_record(),
            assigned: listed(&self.assigned),
            revoking: listed(&self.revoking),
        }
    }

    /// Everything that it answers for.
    pub fn owned(&self) -> impl Iterator<Item = (TopicId, i32)> + '_ {
        let all = self.assigned.iter().chain(&self.revoking);
        all.flat_map(|(topic, partitions)| partitions.keys().map(|it| (*topic, *it)))
    }

    /// At which epoch it got a partition that it answers for.
    pub fn epoch_of(&self, topic: TopicId, partition: i32) -> Option<i32> {
        let of = |held: &Held| held.get(&topic).and_then(|it| it.get(&partition)).copied();
        of(&self.assigned).or_else(|| of(&self.revoking))
    }
}

/// Older records have no epochs of partitions.
fn held(topics: Vec<TopicPartitions>, epoch: i32) -> Held {
    let held = topics.into_iter().map(|topic| {
        let epochs = topic.epochs.into_iter().chain(std::iter::repeat(epoch));
        (topic.topic_id, topic.partitions.into_iter().zip(epochs).collect())
    });
    held.collect()
}

fn listed(held: &Held) -> Vec<TopicPartitions> {
    let topics = held.iter().map(|(topic, partitions)| TopicPartitions {
        topic_id: *topic,
        partitions: partitions.keys().copied().collect(),
        epochs: partitions.values().copied().collect(),
    });
    topics.collect()
}

/// Without the epochs.
pub fn without_epochs(held: &Held) -> Partitions {
    let partitions = held
        .iter()
        .map(|(topic, partitions)| (*topic, partitions.keys().copied().collect::<BTreeSet<i32>>()));
    partitions.collect()
}
