//! A group with the consumer protocol: what its records say and what follows from it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::coordinator::Record;
use crate::coordinator::group::answer::{DescribedConsumer, DescribedConsumerGroup, listed};
use crate::coordinator::group::consumer::member::without_epochs;
use crate::coordinator::group::consumer::{Change, Member, Partitions, Standing};
use crate::coordinator::group::topics::Topics;
use crate::format::group_records::{Key, RegularExpression, TargetEpoch};
use crate::units::{Timestamp, TopicId};

/// Epoch of a group before its first change, which brings the next one (`ModernGroup`, as of 4.3).
const EPOCH_INITIAL: i32 = 1;

/// A group.
#[derive(Clone, Debug)]
pub struct ConsumerGroup {
    pub id: Rc<str>,
    epoch: i32,
    hash: i64,
    target_epoch: TargetEpoch,
    members: BTreeMap<Rc<str>, Member>,
    /// Member ids by instance id.
    instances: BTreeMap<String, Rc<str>>,
    targets: BTreeMap<Rc<str>, Partitions>,
    /// Who answers for a partition: has it, or has not given it up yet.
    owners: BTreeMap<(TopicId, i32), Rc<str>>,
    /// Regular expressions with the topics that they name.
    regexes: BTreeMap<String, RegularExpression>,
    /// Version of the topics that the hash is known to be right for; in memory only.
    pub seen: Option<u64>,
    /// When the regular expressions were looked at, and for which version; in memory only.
    pub resolved: Option<(Timestamp, u64)>,
}

impl ConsumerGroup {
    /// A group that has no records yet.
    pub fn new(id: Rc<str>) -> ConsumerGroup {
        ConsumerGroup {
            id,
            epoch: EPOCH_INITIAL,
            hash: 0,
            target_epoch: TargetEpoch { epoch: 0, timestamp: Timestamp(0) },
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            targets: BTreeMap::new(),
            owners: BTreeMap::new(),
            regexes: BTreeMap::new(),
            seen: None,
            resolved: None,
        }
    }

    /// Takes a change.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Member(id, Some(said)) => {
                if let Some(instance) = &said.instance {
                    self.instances.insert(instance.clone(), id.clone());
                }
                match self.members.get_mut(&id) {
                    Some(member) => member.said = said,
                    None => drop(self.members.insert(id.clone(), Member::new(id, said))),
                }
            }
            Change::Member(id, None) => self.remove(&id),
            Change::Epoch(epoch, hash) => (self.epoch, self.hash) = (epoch, hash),
            Change::TargetEpoch(target) => self.target_epoch = target,
            Change::Target(id, Some(target)) => drop(self.targets.insert(id, target)),
            Change::Target(id, None) => drop(self.targets.remove(&id)),
            Change::Current(id, current) => {
                self.disown(&id);
                let Some(member) = self.members.get_mut(&id) else { return };
                member.take(current);
                let owned = member.owned().map(|partition| (partition, id.clone()));
                self.owners.extend(owned);
            }
            Change::Regex(text, Some(resolved)) => drop(self.regexes.insert(text, resolved)),
            Change::Regex(text, None) => drop(self.regexes.remove(&text)),
        }
    }

    fn remove(&mut self, id: &str) {
        self.disown(id);
        let Some(member) = self.members.remove(id) else { return };
        if let Some(instance) = &member.said.instance
            && self.instances.get(instance).is_some_and(|it| &**it == id)
        {
            self.instances.remove(instance);
        }
    }

    fn disown(&mut self, id: &str) {
        let Some(member) = self.members.get(id) else { return };
        for partition in member.owned() {
            if self.owners.get(&partition).is_some_and(|owner| &**owner == id) {
                self.owners.remove(&partition);
            }
        }
    }

    pub fn epoch(&self) -> i32 {
        self.epoch
    }

    pub fn hash(&self) -> i64 {
        self.hash
    }

    pub fn target_epoch(&self) -> TargetEpoch {
        self.target_epoch
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether nothing has happened to it yet: it has no records.
    pub fn is_nothing(&self) -> bool {
        self.is_empty() && self.epoch == EPOCH_INITIAL
    }

    pub fn member(&self, id: &str) -> Option<&Member> {
        self.members.get(id)
    }

    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    pub fn member_ids(&self) -> Vec<Rc<str>> {
        self.members.keys().cloned().collect()
    }

    /// The member with that instance id.
    pub fn instance(&self, instance: &str) -> Option<&Member> {
        self.instances.get(instance).and_then(|id| self.members.get(id))
    }

    pub fn target(&self, member: &str) -> Option<&Partitions> {
        self.targets.get(member)
    }

    pub fn regexes(&self) -> &BTreeMap<String, RegularExpression> {
        &self.regexes
    }

    /// How many members have that regular expression.
    pub fn users_of(&self, regex: &str) -> usize {
        self.members.values().filter(|it| it.regex() == Some(regex)).count()
    }

    /// Whether another member answers for the partition.
    pub fn is_taken(&self, partition: (TopicId, i32), from: &str) -> bool {
        self.owners.get(&partition).is_some_and(|owner| &**owner != from)
    }

    /// Names of the topics that a member subscribes to; a regular expression that isn't resolved
    /// names none.
    pub fn names_of<'a>(&'a self, member: &'a Member) -> impl Iterator<Item = &'a str> + 'a {
        let resolved = member.regex().and_then(|regex| self.regexes.get(regex));
        let matched = resolved.into_iter().flat_map(|it| &it.topics);
        member.said.topics.iter().chain(matched).map(String::as_str)
    }

    /// The topics that a member subscribes to, of those that there are.
    pub fn topics_of(&self, member: &Member, topics: &dyn Topics) -> BTreeSet<TopicId> {
        let known = self.names_of(member).filter_map(|name| topics.by_name(name));
        known.map(|(id, _)| id).collect()
    }

    /// All names that the group looks at.
    pub fn names(&self) -> BTreeSet<&str> {
        let named = self.members.values().flat_map(|it| it.said.topics.iter());
        let matched = self.regexes.values().flat_map(|it| it.topics.iter());
        named.chain(matched).map(String::as_str).collect()
    }

    /// Whether members subscribe to the topic.
    pub fn is_subscribed(&self, topic: &str) -> bool {
        let is_it = |name: &String| name == topic;
        self.members.values().any(|it| it.said.topics.iter().any(is_it))
            || self.regexes.values().any(|it| it.topics.iter().any(is_it))
    }

    /// Kafka's word for what the group is doing.
    pub fn state(&self) -> &'static str {
        let target = self.target_epoch.epoch;
        let is_there = |it: &Member| it.standing == Standing::Stable && it.epoch == target;
        match () {
            () if self.members.is_empty() => "Empty",
            () if self.epoch > target => "Assigning",
            () if self.members.values().all(is_there) => "Stable",
            () => "Reconciling",
        }
    }

    /// The assignor that most members prefer.
    pub fn preferred_assignor(&self) -> Option<&str> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for assignor in self.members.values().filter_map(|it| it.said.assignor.as_deref()) {
            *votes.entry(assignor).or_default() += 1;
        }
        votes.into_iter().max_by_key(|(_, count)| *count).map(|(name, _)| name)
    }

    /// Tombstones of everything, in an order that can be cut off anywhere.
    pub fn tombstones(&self) -> Vec<Record> {
        let mut records = Vec::new();
        for id in self.members.keys() {
            for change in [Change::Current(id.clone(), None), Change::Target(id.clone(), None)] {
                records.push(change.record(&self.id));
            }
        }
        let tombstone = |key: Key| Record { key: key.encode(), value: None };
        let group = || self.id.to_string();
        records.push(tombstone(Key::TargetEpoch(group())));
        for id in self.members.keys() {
            records.push(Change::Member(id.clone(), None).record(&self.id));
        }
        for regex in self.regexes.keys() {
            records.push(Change::Regex(regex.clone(), None).record(&self.id));
        }
        records.push(tombstone(Key::PartitionMetadata(group())));
        records.push(tombstone(Key::ModernGroup(group())));
        records
    }

    pub fn describe(&self, default_assignor: &str) -> DescribedConsumerGroup {
        let member = |member: &Member| {
            let mut partitions = without_epochs(&member.assigned);
            for (topic, more) in without_epochs(&member.revoking) {
                partitions.entry(topic).or_default().extend(more);
            }
            DescribedConsumer {
                id: member.id.to_string(),
                said: member.said.clone(),
                epoch: member.epoch,
                assignment: listed(&partitions),
                target: self.targets.get(&member.id).map(listed).unwrap_or_default(),
            }
        };
        DescribedConsumerGroup {
            state: self.state(),
            epoch: self.epoch,
            target_epoch: self.target_epoch.epoch,
            assignor: self.preferred_assignor().unwrap_or(default_assignor).to_owned(),
            members: self.members.values().map(member).collect(),
        }
    }

    /// Everything that follows from something else does.
    #[cfg(test)]
    pub fn check(&self) {
        let mut owners = BTreeMap::new();
        for member in self.members.values() {
            for partition in member.owned() {
                let before = owners.insert(partition, member.id.clone());
                assert_eq!(before, None, "{partition:?} belongs to one member: {self:?}");
            }
        }
        assert_eq!(self.owners, owners);
        let instances: BTreeMap<_, _> = self
            .members
            .values()
            .filter_map(|it| Some((it.said.instance.clone()?, it.id.clone())))
            .collect();
        assert_eq!(self.instances, instances);
        assert!(self.targets.keys().all(|it| self.members.contains_key(it)), "{self:?}");
        let used: BTreeSet<&str> = self.members.values().filter_map(Member::regex).collect();
        assert!(self.regexes.keys().all(|it| used.contains(it.as_str())), "{self:?}");
    }
}
