//! `uniform` when members subscribe to different topics (`UniformHeterogeneousAssignmentBuilder`):
//! each keeps what it has and still subscribes to; what nobody has goes to the subscriber with
//! least; then partitions move from those with most to those with least, topic by topic, until
//! nothing gets better or the rounds are over.
//!
//! Topics with most partitions for each subscriber come first: theirs have least choice.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Subscribers, numbers};
use crate::coordinator::group::consumer::Partitions;
use crate::units::TopicId;

/// Rounds over all topics; each about halves what is out of balance.
const ROUNDS_MAX: usize = 16;

pub fn assign(subscribers: &Subscribers<'_>) -> Vec<Partitions> {
    let mut mixed = Mixed::new(subscribers);
    mixed.keep(subscribers);
    for topic in mixed.order.clone() {
        mixed.give_out(topic, subscribers.partitions[&topic]);
    }
    for _ in 0..ROUNDS_MAX {
        let topics = mixed.order.clone();
        let moved: usize = topics.into_iter().map(|topic| mixed.balance(topic)).sum();
        if moved == 0 {
            break;
        }
    }
    mixed.assigned
}

struct Mixed {
    assigned: Vec<Partitions>,
    /// How many partitions each member has.
    sizes: Vec<usize>,
    /// The subscribers of each topic.
    takers: BTreeMap<TopicId, Vec<usize>>,
    order: Vec<TopicId>,
}

impl Mixed {
    fn new(subscribers: &Subscribers<'_>) -> Mixed {
        let mut takers: BTreeMap<TopicId, Vec<usize>> = BTreeMap::new();
        for (index, member) in subscribers.members.iter().enumerate() {
            for topic in &member.topics {
                takers.entry(*topic).or_default().push(index);
            }
        }
        let mut order: Vec<TopicId> = takers.keys().copied().collect();
        order.sort_by(|a, b| {
            let share = |topic: &TopicId| {
                let takers = u64::try_from(takers[topic].len()).expect("a count fits 64 bits");
                (u64::from(subscribers.partitions[topic]), takers)
            };
            let ((a_count, a_takers), (b_count, b_takers)) = (share(a), share(b));
            // Fractions are compared crosswise.
            let by_share = (b_count * a_takers).cmp(&(a_count * b_takers));
            by_share.then(a_takers.cmp(&b_takers)).then(a.cmp(b))
        });
        let members = subscribers.members.len();
        Mixed { assigned: vec![Partitions::new(); members], sizes: vec![0; members], takers, order }
    }

    fn keep(&mut self, subscribers: &Subscribers<'_>) {
        for (index, member) in subscribers.members.iter().enumerate() {
            for (topic, partitions) in member.has.into_iter().flatten() {
                if member.topics.contains(topic) {
                    self.sizes[index] += partitions.len();
                    self.assigned[index].insert(*topic, partitions.clone());
                }
            }
        }
    }

    fn least(&self, topic: TopicId) -> usize {
        let takers = self.takers[&topic].iter().copied();
        takers.min_by_key(|it| (self.sizes[*it], *it)).expect("a topic here has a subscriber")
    }

    /// The subscriber with most, of those that have something of the topic.
    fn most(&self, topic: TopicId) -> Option<usize> {
        let takers = self.takers[&topic].iter().copied();
        let givers = takers.filter(|it| self.assigned[*it].contains_key(&topic));
        givers.max_by_key(|it| (self.sizes[*it], Reverse(*it)))
    }

    fn give_out(&mut self, topic: TopicId, count: u32) {
        let is_free = |partition: &i32| {
            let has = |it: &usize| self.assigned[*it].get(&topic);
            !self.takers[&topic].iter().filter_map(has).any(|it| it.contains(partition))
        };
        let free: Vec<i32> = numbers(count).filter(is_free).collect();
        for partition in free {
            let taker = self.least(topic);
            self.give(taker, (topic, partition));
        }
    }

    fn give(&mut self, taker: usize, (topic, partition): (TopicId, i32)) {
        self.assigned[taker].entry(topic).or_default().insert(partition);
        self.sizes[taker] += 1;
    }

    /// Moves partitions of a topic while that makes its subscribers more equal.
    fn balance(&mut self, topic: TopicId) -> usize {
        let mut moved = 0;
        while let Some(most) = self.most(topic) {
            let least = self.least(topic);
            if self.sizes[most] <= self.sizes[least] + 1 {
                break;
            }
            let has = self.assigned[most].get_mut(&topic).expect("it has something of the topic");
            let partition = has.pop_last().expect("no topic is there without a partition");
            if has.is_empty() {
                self.assigned[most].remove(&topic);
            }
            self.sizes[most] -= 1;
            self.give(least, (topic, partition));
            moved += 1;
        }
        moved
    }
}
