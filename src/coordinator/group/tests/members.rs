//! Clients with the consumer protocol: they do as they are told.

use std::collections::{BTreeMap, BTreeSet};

use super::world::{GROUP, World};
use crate::coordinator::group::GroupError;
use crate::coordinator::group::answer::{Answer, Beat, DescribedConsumerGroup};
use crate::coordinator::group::request::{Client, ConsumerHeartbeat, Request};
use crate::units::TopicId;

/// A client.
#[derive(Clone, Debug)]
pub struct Consumer {
    pub id: String,
    pub instance: Option<String>,
    pub epoch: i32,
    pub topics: Option<Vec<String>>,
    pub regex: Option<String>,
    pub assignor: Option<String>,
    /// What it has.
    pub has: BTreeMap<TopicId, BTreeSet<i32>>,
    /// What it is to have; it gives up the rest when it gets round to it.
    pub wants: BTreeMap<TopicId, BTreeSet<i32>>,
}

impl Consumer {
    pub fn new(id: &str, topics: &[&str]) -> Consumer {
        Consumer {
            id: id.to_owned(),
            instance: None,
            epoch: 0,
            topics: Some(topics.iter().map(|it| (*it).to_owned()).collect()),
            regex: None,
            assignor: None,
            has: BTreeMap::new(),
            wants: BTreeMap::new(),
        }
    }

    pub fn count(&self) -> usize {
        self.has.values().map(BTreeSet::len).sum()
    }

    /// Gives up what it isn't to have, and takes what it is to.
    pub fn settle(&mut self) {
        self.has = self.wants.clone();
    }

    /// A full request, as clients send when they join.
    pub fn request(&self) -> ConsumerHeartbeat {
        let owned = self.has.iter().map(|(topic, it)| (*topic, it.iter().copied().collect()));
        ConsumerHeartbeat {
            group: GROUP.to_owned(),
            member: self.id.clone(),
            epoch: self.epoch,
            instance: self.instance.clone(),
            rack: None,
            rebalance_timeout_ms: 60_000,
            topics: self.topics.clone(),
            regex: self.regex.clone(),
            assignor: self.assignor.clone(),
            owned: Some(owned.collect()),
            client: Client { id: "client".to_owned(), host: "/127.0.0.1".to_owned() },
            fresh_id: "fresh".to_owned(),
            brings_id: true,
        }
    }

    /// Takes the answer; a member that is fenced gives everything up and joins anew.
    pub fn take(&mut self, outcome: Result<Beat, GroupError>) -> Result<(), GroupError> {
        match outcome {
            Ok(beat) => {
                self.id = beat.member;
                self.epoch = beat.epoch;
                if let Some(assignment) = beat.assignment {
                    let wanted = assignment.into_iter();
                    self.wants =
                        wanted.map(|(topic, it)| (topic, it.into_iter().collect())).collect();
                }
                Ok(())
            }
            Err(error) => {
                self.epoch = 0;
                self.has.clear();
                self.wants.clear();
                Err(error)
            }
        }
    }

    pub fn beat(&mut self, world: &mut World) -> Result<(), GroupError> {
        let outcome = world.beat(self.request());
        self.take(outcome)
    }

    /// What a member sends when nothing has changed but what it has.
    pub fn short(&self) -> ConsumerHeartbeat {
        let full = self.request();
        ConsumerHeartbeat {
            rebalance_timeout_ms: -1,
            topics: None,
            regex: None,
            owned: None,
            ..full
        }
    }

    pub fn leave(&mut self, world: &mut World, epoch: i32) -> Result<Beat, GroupError> {
        let outcome = world.beat(ConsumerHeartbeat { epoch, ..self.short() });
        self.epoch = 0;
        self.has.clear();
        self.wants.clear();
        outcome
    }
}

impl World {
    pub fn beat(&mut self, beat: ConsumerHeartbeat) -> Result<Beat, GroupError> {
        match self.ask(Request::ConsumerHeartbeat(beat)) {
            Answer::ConsumerHeartbeat(outcome) => outcome,
            other => panic!("{other:?} is no answer to a heartbeat"),
        }
    }

    pub fn describe_consumers(&mut self) -> Option<DescribedConsumerGroup> {
        match self.ask(Request::ConsumerDescribe(GROUP.to_owned())) {
            Answer::ConsumerDescribe(group) => group,
            other => panic!("{other:?} is no description"),
        }
    }
}

/// Everybody says that it is there and does as told, until the group is stable.
pub fn settle(world: &mut World, consumers: &mut [Consumer]) {
    for _ in 0..20 {
        for consumer in consumers.iter_mut() {
            consumer.beat(world).expect("a member");
            consumer.settle();
            consumer.beat(world).expect("a member");
        }
        world.wait(100);
        if world.describe_consumers().is_some_and(|group| group.state == "Stable") {
            for consumer in consumers.iter_mut() {
                consumer.beat(world).expect("a member");
                consumer.settle();
            }
            return;
        }
    }
    panic!("the group does not settle: {:?}", world.describe_consumers());
}

/// No partition is in two hands.
pub fn assert_apart<'a>(consumers: impl IntoIterator<Item = &'a Consumer>) {
    let mut taken = BTreeSet::new();
    for consumer in consumers {
        for (topic, partitions) in &consumer.has {
            for partition in partitions {
                assert!(taken.insert((*topic, *partition)), "{partition} is in two hands");
            }
        }
    }
}
