//! `uniform` when all members subscribe to the same (`UniformHomogeneousAssignmentBuilder`): each
//! keeps what it has up to its share, and what nobody has then fills up whoever has less.

use super::{Subscribers, numbers};
use crate::coordinator::group::consumer::Partitions;
use crate::units::{TopicId, usize_of};

pub fn assign(subscribers: &Subscribers<'_>) -> Vec<Partitions> {
    let members = subscribers.members.len();
    if members == 0 {
        return Vec::new();
    }
    let all: u64 = subscribers.partitions.values().map(|it| u64::from(*it)).sum();
    let all = usize_of(all);
    let mut shares = Shares { least: all / members, larger: all % members };
    let mut free = unassigned(subscribers);
    let mut assigned = Vec::with_capacity(members);
    let mut room = Vec::new();
    for (index, member) in subscribers.members.iter().enumerate() {
        let mut keeps = Partitions::new();
        let share = shares.least + usize::from(shares.larger > 0);
        let mut left = share;
        for (topic, partitions) in member.has.into_iter().flatten() {
            if !member.topics.contains(topic) {
                continue;
            }
            for partition in partitions {
                if left > 0 {
                    left -= 1;
                    keeps.entry(*topic).or_default().insert(*partition);
                } else {
                    free.push((*topic, *partition));
                }
            }
        }
        let quota = shares.take(left, members - index);
        if quota > 0 {
            room.push((index, quota));
        }
        assigned.push(keeps);
    }
    let mut free = free.into_iter();
    for (index, quota) in room {
        for (topic, partition) in free.by_ref().take(quota) {
            assigned[index].entry(topic).or_default().insert(partition);
        }
    }
    assert!(free.next().is_none(), "the shares add up to all partitions");
    assigned
}

struct Shares {
    least: usize,
    /// How many members get one more.
    larger: usize,
}

impl Shares {
    /// How much a member lacks that has `left` less than the larger share. One that lacks
    /// something leaves the larger share to others, as long as there are enough of them.
    fn take(&mut self, left: usize, members_left: usize) -> usize {
        if self.larger == 0 {
            return left;
        }
        if left > 0 && members_left > self.larger {
            return left - 1;
        }
        self.larger -= 1;
        left
    }
}

fn unassigned(subscribers: &Subscribers<'_>) -> Vec<(TopicId, i32)> {
    let mut free = Vec::new();
    for (topic, count) in &subscribers.partitions {
        let taken: std::collections::BTreeSet<i32> = subscribers
            .members
            .iter()
            .filter_map(|it| it.has?.get(topic))
            .flatten()
            .copied()
            .collect();
        free.extend(numbers(*count).filter(|it| !taken.contains(it)).map(|it| (*topic, it)));
    }
    free
}
