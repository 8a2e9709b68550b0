//! `range` (`RangeAssignor`): of each topic its subscribers get ranges in their order, the first
//! ones one partition more when they don't divide evenly. Static members come first, by instance
//! id, so that their ranges stay when they come back with another member id.

use std::collections::{BTreeMap, BTreeSet};

use super::{Subscribers, numbers};
use crate::coordinator::group::consumer::Partitions;
use crate::units::{TopicId, usize_of};

pub fn assign(subscribers: &Subscribers<'_>) -> Vec<Partitions> {
    let members = &subscribers.members;
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|index| {
        let member = &members[*index];
        (member.instance.is_none(), member.instance.unwrap_or(member.id))
    });
    let mut by_topic: BTreeMap<TopicId, Vec<usize>> = BTreeMap::new();
    for index in order {
        for topic in &members[index].topics {
            by_topic.entry(*topic).or_default().push(index);
        }
    }
    let mut assigned = vec![Partitions::new(); members.len()];
    for (topic, takers) in by_topic {
        let count = subscribers.partitions[&topic];
        let all = usize_of(u64::from(count));
        let (least, more) = (all / takers.len(), all % takers.len());
        let mut left = numbers(count);
        for (place, index) in takers.into_iter().enumerate() {
            let share = least + usize::from(place < more);
            let range: BTreeSet<i32> = left.by_ref().take(share).collect();
            if !range.is_empty() {
                assigned[index].insert(topic, range);
            }
        }
    }
    assigned
}
