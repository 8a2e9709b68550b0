//! What groups have committed, and what open transactions are about to change.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::format::group_records::CommittedOffset;
use crate::units::{ProducerId, TopicId};

/// A partition as a group knows it.
pub type Partition = (Rc<str>, i32);

/// An offset with its place among all that were committed.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    committed: CommittedOffset,
    /// Rises with every commit: the later one counts.
    order: u64,
}

/// Offsets of one group, or of one producer's transaction for one group.
type OfGroup = BTreeMap<Partition, Entry>;

/// Committed offsets.
#[derive(Clone, Default, Debug)]
pub struct Offsets {
    groups: BTreeMap<Rc<str>, OfGroup>,
    /// By producer: what counts if its transaction is committed.
    pending: BTreeMap<ProducerId, BTreeMap<Rc<str>, OfGroup>>,
    /// The producers with a pending offset, by group and partition.
    open: BTreeMap<Rc<str>, BTreeMap<Partition, BTreeSet<ProducerId>>>,
    commits: u64,
}

impl Offsets {
    /// A group has committed an offset.
    pub fn commit(&mut self, group: &Rc<str>, partition: Partition, committed: CommittedOffset) {
        let entry = self.entry(committed);
        self.groups.entry(group.clone()).or_default().insert(partition, entry);
    }

    /// A producer has committed an offset for a group as part of its transaction.
    pub fn commit_pending(
        &mut self,
        (producer_id, group): (ProducerId, &Rc<str>),
        partition: Partition,
        committed: CommittedOffset,
    ) {
        let entry = self.entry(committed);
        let of_producer = self.pending.entry(producer_id).or_default();
        of_producer.entry(group.clone()).or_default().insert(partition.clone(), entry);
        let open = self.open.entry(group.clone()).or_default();
        open.entry(partition).or_default().insert(producer_id);
    }

    fn entry(&mut self, committed: CommittedOffset) -> Entry {
        self.commits += 1;
        Entry { committed, order: self.commits }
    }

    /// A producer's transaction is over. Its offsets count from now on, unless it is aborted, or
    /// the group has committed the partition since.
    pub fn complete(&mut self, producer_id: ProducerId, commits: bool) {
        for (group, offsets) in self.pending.remove(&producer_id).unwrap_or_default() {
            for partition in offsets.keys() {
                self.close(&group, partition, producer_id);
            }
            // Their topic may have been deleted meanwhile.
            if !commits || offsets.is_empty() {
                continue;
            }
            let of_group = self.groups.entry(group).or_default();
            for (partition, entry) in offsets {
                let is_newer = |old: &Entry| old.order < entry.order;
                if of_group.get(&partition).is_none_or(is_newer) {
                    of_group.insert(partition, entry);
                }
            }
        }
    }

    fn close(&mut self, group: &Rc<str>, partition: &Partition, producer_id: ProducerId) {
        let Some(open) = self.open.get_mut(group) else { return };
        if let Some(producers) = open.get_mut(partition) {
            producers.remove(&producer_id);
            if producers.is_empty() {
                open.remove(partition);
            }
        }
        if open.is_empty() {
            self.open.remove(group);
        }
    }

    /// Forgets an offset, and what open transactions wanted to make of it.
    pub fn remove(&mut self, group: &Rc<str>, partition: &Partition) {
        if let Some(of_group) = self.groups.get_mut(group) {
            of_group.remove(partition);
            if of_group.is_empty() {
                self.groups.remove(group);
            }
        }
        let producers = self.open.get(group).and_then(|open| open.get(partition)).cloned();
        for producer_id in producers.unwrap_or_default() {
            self.close(group, partition, producer_id);
            let of_producer = self.pending.get_mut(&producer_id);
            if let Some(offsets) = of_producer.and_then(|it| it.get_mut(group)) {
                offsets.remove(partition);
            }
        }
    }

    /// The offset of a partition.
    pub fn get(&self, group: &str, partition: &Partition) -> Option<&CommittedOffset> {
        self.groups.get(group)?.get(partition).map(|entry| &entry.committed)
    }

    /// All offsets of a group.
    pub fn of_group(&self, group: &str) -> impl Iterator<Item = (&Partition, &CommittedOffset)> {
        let of_group = self.groups.get(group).into_iter().flatten();
        of_group.map(|(partition, entry)| (partition, &entry.committed))
    }

    /// How many offsets a group has, those of open transactions included.
    pub fn count(&self, group: &str) -> usize {
        let pending = |of_producer: &BTreeMap<Rc<str>, OfGroup>| {
            of_producer.get(group).map_or(0, BTreeMap::len)
        };
        let pending: usize = match self.open.contains_key(group) {
            true => self.pending.values().map(pending).sum(),
            false => 0,
        };
        self.groups.get(group).map_or(0, BTreeMap::len) + pending
    }

    /// Whether an open transaction is about to change the offset.
    pub fn is_open(&self, group: &str, partition: &Partition) -> bool {
        self.open.get(group).is_some_and(|open| open.contains_key(partition))
    }

    /// All partitions that a group has an offset of, or an open transaction for it.
    pub fn partitions(&self, group: &str) -> BTreeSet<Partition> {
        let committed = self.groups.get(group).into_iter().flat_map(BTreeMap::keys);
        let open = self.open.get(group).into_iter().flat_map(BTreeMap::keys);
        committed.chain(open).cloned().collect()
    }

    /// Whether a group has an offset, or an open transaction for one.
    pub fn has_any(&self, group: &str) -> bool {
        self.groups.contains_key(group) || self.open.contains_key(group)
    }

    /// All groups and partitions of topics that are gone; an offset with another topic id stays.
    pub fn of_topics(&self, topics: &BTreeMap<&str, TopicId>) -> BTreeSet<(Rc<str>, Partition)> {
        let is_of_topic = |(partition, entry): &(&Partition, &Entry)| {
            let its_id = entry.committed.topic_id;
            topics.get(&*partition.0).is_some_and(|id| its_id == TopicId::ZERO || its_id == *id)
        };
        let pending = self.pending.values().flatten();
        let all = self.groups.iter().chain(pending);
        let of_group = |(group, offsets): (&Rc<str>, &OfGroup)| {
            let found = offsets.iter().filter(is_of_topic);
            found.map(|(partition, _)| (group.clone(), partition.clone())).collect::<Vec<_>>()
        };
        all.flat_map(of_group).collect()
    }

    /// Everything that follows from something else does.
    #[cfg(test)]
    pub fn check(&self) {
        let mut open: BTreeMap<Rc<str>, BTreeMap<Partition, BTreeSet<ProducerId>>> =
            BTreeMap::new();
        for (producer, groups) in &self.pending {
            for (group, offsets) in groups {
                for partition in offsets.keys() {
                    let of_group = open.entry(group.clone()).or_default();
                    of_group.entry(partition.clone()).or_default().insert(*producer);
                }
            }
        }
        assert_eq!(self.open, open);
        assert!(self.groups.values().all(|offsets| !offsets.is_empty()));
    }
}
