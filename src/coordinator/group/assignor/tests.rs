//! Assignments that Kafka's own make, and properties of random ones.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{Assignor, Subscriber, Subscribers, assign};
use crate::coordinator::group::consumer::Partitions;
use crate::units::TopicId;

fn topic(number: u8) -> TopicId {
    TopicId([number; 16])
}

/// Members by name with their topics, and the counts of partitions.
struct Group {
    members: Vec<(String, BTreeSet<u8>)>,
    counts: BTreeMap<u8, u32>,
    has: Vec<Partitions>,
}

impl Group {
    fn new(members: &[&[u8]], counts: &[u32]) -> Group {
        let named = members.iter().enumerate().map(|(index, topics)| {
            (format!("m{index:03}"), topics.iter().copied().collect::<BTreeSet<u8>>())
        });
        let counts = (0_u8..).zip(counts.iter().copied()).collect();
        let has = vec![Partitions::new(); members.len()];
        Group { members: named.collect(), counts, has }
    }

    fn assign(&mut self, assignor: Assignor) -> &[Partitions] {
        let members: Vec<Subscriber<'_>> = self
            .members
            .iter()
            .zip(&self.has)
            .map(|((id, topics), has)| Subscriber {
                id,
                instance: None,
                topics: topics.iter().map(|it| topic(*it)).collect(),
                has: Some(has),
            })
            .collect();
        let wanted: BTreeSet<u8> = self.members.iter().flat_map(|it| it.1.clone()).collect();
        let partitions = self
            .counts
            .iter()
            .filter(|(id, _)| wanted.contains(id))
            .map(|(id, n)| (topic(*id), *n));
        let are_same = self.members.windows(2).all(|pair| pair[0].1 == pair[1].1);
        let assigned =
            assign(assignor, &Subscribers { partitions: partitions.collect(), members, are_same });
        self.has = assigned;
        self.check();
        &self.has
    }

    /// Every partition of every topic with a subscriber belongs to one of its subscribers.
    fn check(&self) {
        let mut owners: BTreeMap<(TopicId, i32), usize> = BTreeMap::new();
        for (index, has) in self.has.iter().enumerate() {
            for (topic_id, partitions) in has {
                assert!(self.members[index].1.iter().any(|it| topic(*it) == *topic_id));
                for partition in partitions {
                    let before = owners.insert((*topic_id, *partition), index);
                    assert_eq!(before, None, "one owner");
                }
            }
        }
        let wanted: BTreeSet<u8> = self.members.iter().flat_map(|it| it.1.clone()).collect();
        let all: u32 = wanted.iter().map(|it| self.counts[it]).sum();
        assert_eq!(u32::try_from(owners.len()), Ok(all), "every partition has an owner");
    }

    fn sizes(&self) -> Vec<usize> {
        self.has.iter().map(|it| it.values().map(BTreeSet::len).sum()).collect()
    }
}

#[test]
fn ranges_of_each_topic_begin_with_the_first_member() {
    let mut group = Group::new(&[&[0, 1], &[0, 1], &[0, 1]], &[7, 4]);
    let assigned = group.assign(Assignor::Range).to_vec();
    let of = |index: usize, id: u8| assigned[index].get(&topic(id)).cloned().unwrap_or_default();
    assert_eq!(of(0, 0), BTreeSet::from([0, 1, 2]));
    assert_eq!(of(1, 0), BTreeSet::from([3, 4]));
    assert_eq!(of(2, 1), BTreeSet::from([3]));
}

#[test]
fn static_members_have_their_ranges_by_their_instance_ids() {
    let topics = BTreeSet::from([topic(0)]);
    let member = |id, instance| Subscriber { id, instance, topics: topics.clone(), has: None };
    let subscribers = Subscribers {
        members: vec![member("a", None), member("b", Some("2")), member("c", Some("1"))],
        partitions: BTreeMap::from([(topic(0), 3)]),
        are_same: true,
    };
    let assigned = assign(Assignor::Range, &subscribers);
    let of = |index: usize| assigned[index][&topic(0)].clone();
    assert_eq!(of(2), BTreeSet::from([0]));
    assert_eq!(of(1), BTreeSet::from([1]));
    assert_eq!(of(0), BTreeSet::from([2]));
}

#[test]
fn uniform_moves_no_more_than_it_must() {
    let mut group = Group::new(&[&[0], &[0]], &[6]);
    let before = group.assign(Assignor::Uniform).to_vec();
    group.members.push(("m002".to_owned(), BTreeSet::from([0])));
    group.has.push(Partitions::new());
    let after = group.assign(Assignor::Uniform).to_vec();
    assert_eq!(group.sizes(), [2, 2, 2]);
    for index in 0..2 {
        assert!(after[index][&topic(0)].is_subset(&before[index][&topic(0)]));
    }
    group.members.remove(0);
    group.has.remove(0);
    let last = group.assign(Assignor::Uniform).to_vec();
    assert!(last[0][&topic(0)].is_superset(&after[1][&topic(0)]));
}

#[test]
fn uniform_balances_what_overlaps() {
    let mut group = Group::new(&[&[0], &[0, 1], &[1]], &[12, 0]);
    group.assign(Assignor::Uniform);
    group.counts.insert(1, 12);
    group.assign(Assignor::Uniform);
    let sizes = group.sizes();
    let spread = sizes.iter().max().expect("three") - sizes.iter().min().expect("three");
    assert!(spread <= 2, "{sizes:?}");
}

fn groups() -> impl Strategy<Value = (Vec<Vec<u8>>, Vec<u32>)> {
    let member = proptest::collection::vec(0_u8..4, 0..4);
    (proptest::collection::vec(member, 1..7), proptest::collection::vec(0_u32..9, 4..5))
}

proptest! {
    #[test]
    fn every_partition_has_one_owner((members, counts) in groups(), (more, _) in groups()) {
        for assignor in [Assignor::Uniform, Assignor::Range] {
            let members: Vec<&[u8]> = members.iter().map(Vec::as_slice).collect();
            let mut group = Group::new(&members, &counts);
            group.assign(assignor);
            // Some subscribe to something else, some come, some go.
            for (index, topics) in more.iter().enumerate() {
                let topics: BTreeSet<u8> = topics.iter().copied().collect();
                match group.members.get_mut(index) {
                    Some(member) if index % 2 == 0 => member.1 = topics,
                    Some(_) => {}
                    None => {
                        group.members.push((format!("m{index:03}"), topics));
                        group.has.push(Partitions::new());
                    }
                }
            }
            group.assign(assignor);
            let first = group.has.clone();
            prop_assert_eq!(group.assign(assignor), &first[..]);
        }
    }

    #[test]
    fn those_with_the_same_subscription_differ_by_one_at_most(
        members in 1_usize..9,
        counts in proptest::collection::vec(0_u32..9, 1..4),
        leave in 0_usize..4,
    ) {
        let all: Vec<u8> = (0_u8..).zip(&counts).map(|(id, _)| id).collect();
        let topics: Vec<&[u8]> = vec![&all; members];
        let mut group = Group::new(&topics, &counts);
        group.assign(Assignor::Uniform);
        let stay = members - leave.min(members - 1);
        group.members.truncate(stay);
        group.has.truncate(stay);
        group.assign(Assignor::Uniform);
        let sizes = group.sizes();
        let (most, least) = (sizes.iter().max(), sizes.iter().min());
        prop_assert!(most.expect("one") - least.expect("one") <= 1, "{:?}", sizes);
    }
}
