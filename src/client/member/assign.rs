//! Who reads which partition: what the leader of a group decides. Plain data in and out.
//!
//! - `range`: of each topic every member gets a run of neighbouring partitions; the first ones get
//!   one more when they can't be shared evenly (Kafka's `RangeAssignor`).
//! - `roundrobin`: all partitions are dealt out in turn (`RoundRobinAssignor`).
//! - `cooperative-sticky`: everyone keeps what it has as far as the shares stay even; what goes
//!   from one to another is handed out in the round after its owner has let go of it (KIP-429).

use std::collections::{BTreeMap, BTreeSet};

use crate::client::TopicPartition;

/// How partitions are shared out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assignor {
    /// Neighbouring partitions of each topic.
    Range,
    /// One after the other.
    RoundRobin,
    /// As few moves as possible, and no stop for what stays.
    CooperativeSticky,
}

impl Assignor {
    /// Kafka's name of it, as members announce it.
    pub fn name(self) -> &'static str {
        match self {
            Assignor::Range => "range",
            Assignor::RoundRobin => "roundrobin",
            Assignor::CooperativeSticky => "cooperative-sticky",
        }
    }

    /// Whether members keep their partitions while the group is rebalanced.
    pub fn is_cooperative(self) -> bool {
        self == Assignor::CooperativeSticky
    }
}

/// A member, as the leader sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subscriber {
    /// The id that the coordinator gave it.
    pub id: String,
    /// The name that it gave itself; such members are put first, so that they keep their place.
    pub instance: Option<String>,
    /// The topics that it wants.
    pub topics: Vec<String>,
    /// What it reads at the moment, in [`Subscriber::generation`].
    pub owned: Vec<TopicPartition>,
    /// The generation that `owned` is of; -1 when it doesn't say.
    pub generation: i32,
}

/// Partitions of each member; every member has a place in it.
pub type Assignment = BTreeMap<String, Vec<TopicPartition>>;

/// Shares out all partitions of the subscribed topics; a topic without a count has none.
pub fn assign(
    assignor: Assignor,
    subscribers: &[Subscriber],
    counts: &BTreeMap<String, i32>,
) -> Assignment {
    let mut subscribers: Vec<&Subscriber> = subscribers.iter().collect();
    // Kafka's order of members: those with a name of their own first, then by id.
    subscribers.sort_by_key(|one| (one.instance.is_none(), one.instance.clone(), one.id.clone()));
    match assignor {
        Assignor::Range => range(&subscribers, counts),
        Assignor::RoundRobin => round_robin(&subscribers, counts),
        Assignor::CooperativeSticky => cooperative(&subscribers, counts),
    }
}

fn nothing(subscribers: &[&Subscriber]) -> Assignment {
    subscribers.iter().map(|one| (one.id.clone(), Vec::new())).collect()
}

fn give(assignment: &mut Assignment, member: &str, partition: TopicPartition) {
    assignment.get_mut(member).expect("every member has a place").push(partition);
}

/// All partitions of topics that somebody wants.
fn wanted(subscribers: &[&Subscriber], counts: &BTreeMap<String, i32>) -> Vec<TopicPartition> {
    let topics: BTreeSet<&String> = subscribers.iter().flat_map(|one| &one.topics).collect();
    let all = topics.into_iter().flat_map(|topic| {
        let count = counts.get(topic).copied().unwrap_or(0);
        (0..count).map(move |partition| TopicPartition::new(topic, partition))
    });
    all.collect()
}

fn range(subscribers: &[&Subscriber], counts: &BTreeMap<String, i32>) -> Assignment {
    let mut assignment = nothing(subscribers);
    let topics: BTreeSet<&String> = subscribers.iter().flat_map(|one| &one.topics).collect();
    for topic in topics {
        let readers: Vec<_> = subscribers.iter().filter(|one| one.topics.contains(topic)).collect();
        let count = counts.get(topic).copied().unwrap_or(0);
        let members = i32::try_from(readers.len()).unwrap_or(i32::MAX);
        let (each, more) = (count / members, count % members);
        let mut next = 0;
        for (index, reader) in (0..).zip(readers) {
            let share = each + i32::from(index < more);
            for partition in next..next + share {
                give(&mut assignment, &reader.id, TopicPartition::new(topic, partition));
            }
            next += share;
        }
    }
    assignment
}

fn round_robin(subscribers: &[&Subscriber], counts: &BTreeMap<String, i32>) -> Assignment {
    let mut assignment = nothing(subscribers);
    let mut turn = 0;
    for partition in wanted(subscribers, counts) {
        // Somebody wants it, so the search ends.
        while !subscribers[turn % subscribers.len()].topics.contains(&partition.topic) {
            turn += 1;
        }
        give(&mut assignment, &subscribers[turn % subscribers.len()].id, partition);
        turn += 1;
    }
    assignment
}

fn cooperative(subscribers: &[&Subscriber], counts: &BTreeMap<String, i32>) -> Assignment {
    let owners = owners(subscribers, counts);
    let mut assignment = nothing(subscribers);
    let all = wanted(subscribers, counts);
    for (partition, owner) in &owners {
        give(&mut assignment, owner, partition.clone());
    }
    for partition in all.iter().filter(|one| !owners.contains_key(one)) {
        let readers = subscribers.iter().filter(|one| one.topics.contains(&partition.topic));
        let least = readers.min_by_key(|one| assignment[&one.id].len());
        let least = least.expect("somebody wants it");
        give(&mut assignment, &least.id, partition.clone());
    }
    even_out(subscribers, &mut assignment);
    // What changes hands is nobody's until its owner has let go of it.
    for (member, own) in &mut assignment {
        own.retain(|one| owners.get(one).is_none_or(|owner| owner == member));
        own.sort();
    }
    assignment
}

/// Who has what, as far as it still wants it: of two who claim a partition the one with the newer
/// generation, and neither when both are as new.
fn owners(
    subscribers: &[&Subscriber],
    counts: &BTreeMap<String, i32>,
) -> BTreeMap<TopicPartition, String> {
    let mut claims: BTreeMap<&TopicPartition, Vec<&Subscriber>> = BTreeMap::new();
    for one in subscribers {
        for partition in &one.owned {
            let count = counts.get(&partition.topic).copied().unwrap_or(0);
            if one.topics.contains(&partition.topic) && partition.partition < count {
                claims.entry(partition).or_default().push(one);
            }
        }
    }
    let newest = |claims: Vec<&Subscriber>| {
        let generation = claims.iter().map(|one| one.generation).max()?;
        let mut newest = claims.into_iter().filter(|one| one.generation == generation);
        let first = newest.next()?;
        newest.next().is_none().then(|| first.id.clone())
    };
    let owners = claims.into_iter();
    owners.filter_map(|(partition, claims)| Some((partition.clone(), newest(claims)?))).collect()
}

/// Moves partitions from who has most to who has least, until no move makes it more even. Each move
/// makes the sum of the squares smaller, so it ends.
fn even_out(subscribers: &[&Subscriber], assignment: &mut Assignment) {
    while let Some((from, at, to)) = uneven(subscribers, assignment) {
        let moved = assignment.get_mut(&from).expect("a member").remove(at);
        give(assignment, &to, moved);
    }
}

/// A partition that somebody with at least two fewer wants too: its holder, its place there, the
/// other.
fn uneven(subscribers: &[&Subscriber], assignment: &Assignment) -> Option<(String, usize, String)> {
    let load = |one: &Subscriber| assignment[&one.id].len();
    let mut by_load: Vec<&&Subscriber> = subscribers.iter().collect();
    by_load.sort_by_key(|one| load(one));
    for from in by_load.iter().rev() {
        for to in by_load.iter().take_while(|to| load(to) + 1 < load(from)) {
            let place = assignment[&from.id].iter().rposition(|one| to.topics.contains(&one.topic));
            if let Some(at) = place {
                return Some((from.id.clone(), at, to.id.clone()));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, topics: &[&str], owned: &[(&str, i32)]) -> Subscriber {
        Subscriber {
            id: id.to_owned(),
            instance: None,
            topics: topics.iter().map(|&topic| topic.to_owned()).collect(),
            owned: owned.iter().map(|(topic, at)| TopicPartition::new(topic, *at)).collect(),
            generation: 1,
        }
    }

    fn counts(counts: &[(&str, i32)]) -> BTreeMap<String, i32> {
        counts.iter().map(|(topic, count)| ((*topic).to_owned(), *count)).collect()
    }

    /// `a: t0 t1; b: t2`
    fn shown(assignment: &Assignment) -> String {
        let member = |(id, own): (&String, &Vec<TopicPartition>)| {
            let own: Vec<_> =
                own.iter().map(|one| format!(" {}{}", one.topic, one.partition)).collect();
            format!("{id}:{}", own.concat())
        };
        assignment.iter().map(member).collect::<Vec<_>>().join("; ")
    }

    fn check(assignor: Assignor, members: &[Subscriber], topics: &[(&str, i32)], expected: &str) {
        assert_eq!(shown(&assign(assignor, members, &counts(topics))), expected);
    }

    #[test]
    fn ranges_are_those_of_kafkas_documentation() {
        let two = [member("a", &["t", "u"], &[]), member("b", &["t", "u"], &[])];
        check(Assignor::Range, &two, &[("t", 3), ("u", 3)], "a: t0 t1 u0 u1; b: t2 u2");
        let apart = [member("a", &["t"], &[]), member("b", &["u"], &[])];
        check(Assignor::Range, &apart, &[("t", 2), ("u", 1)], "a: t0 t1; b: u0");
        check(Assignor::Range, &apart, &[("t", 1)], "a: t0; b:");
    }

    #[test]
    fn members_with_a_name_come_first() {
        let named = Subscriber { instance: Some("z".to_owned()), ..member("b", &["t"], &[]) };
        let members = [member("a", &["t"], &[]), named];
        check(Assignor::Range, &members, &[("t", 3)], "a: t2; b: t0 t1");
    }

    #[test]
    fn round_robin_deals_to_those_who_want_it() {
        let two = [member("a", &["t", "u"], &[]), member("b", &["t", "u"], &[])];
        check(Assignor::RoundRobin, &two, &[("t", 3), ("u", 3)], "a: t0 t2 u1; b: t1 u0 u2");
        let three =
            [member("a", &["t"], &[]), member("b", &["t", "u"], &[]), member("c", &["t"], &[])];
        check(Assignor::RoundRobin, &three, &[("t", 2), ("u", 2)], "a: t0; b: t1 u0 u1; c:");
    }

    #[test]
    fn a_newcomer_gets_nothing_before_the_owner_lets_go() {
        let owned = [("t", 0), ("t", 1), ("t", 2), ("t", 3)];
        let both = [member("a", &["t"], &owned), member("b", &["t"], &[])];
        check(Assignor::CooperativeSticky, &both, &[("t", 4)], "a: t0 t1; b:");
        let both = [member("a", &["t"], &owned[..2]), member("b", &["t"], &[])];
        check(Assignor::CooperativeSticky, &both, &[("t", 4)], "a: t0 t1; b: t2 t3");
    }

    #[test]
    fn nobody_moves_without_need() {
        let held = [member("a", &["t"], &[("t", 3), ("t", 1)]), member("b", &["t"], &[("t", 0)])];
        check(Assignor::CooperativeSticky, &held, &[("t", 4)], "a: t1 t3; b: t0 t2");
        // The third has left; what it had goes where there is least.
        let left = [member("a", &["t"], &[("t", 0)]), member("b", &["t"], &[("t", 1), ("t", 4)])];
        check(Assignor::CooperativeSticky, &left, &[("t", 5)], "a: t0 t2 t3; b: t1 t4");
    }

    #[test]
    fn of_two_claims_the_newer_one_counts() {
        let old = Subscriber { generation: 0, ..member("a", &["t"], &[("t", 0), ("t", 1)]) };
        let members = [old, member("b", &["t"], &[("t", 0)])];
        check(Assignor::CooperativeSticky, &members, &[("t", 2)], "a: t1; b: t0");
        let same = [member("a", &["t"], &[("t", 0)]), member("b", &["t"], &[("t", 0)])];
        check(Assignor::CooperativeSticky, &same, &[("t", 2)], "a: t0; b: t1");
    }

    #[test]
    fn unequal_wishes_are_evened_out_too() {
        let owned = [("t", 0), ("t", 1), ("t", 2)];
        let members = [member("a", &["t"], &owned), member("b", &["t", "u"], &[("u", 0)])];
        check(Assignor::CooperativeSticky, &members, &[("t", 3), ("u", 1)], "a: t0 t1; b: u0");
        // Partitions that are gone are nobody's.
        check(Assignor::CooperativeSticky, &members, &[("t", 1), ("u", 1)], "a: t0; b: u0");
    }

    #[test]
    fn every_partition_goes_to_exactly_one_who_wants_it() {
        for members in 1..6_i32 {
            for count in 0..9 {
                let each = |index: i32| member(&format!("m{index}"), &["t"], &[]);
                let subscribers: Vec<_> = (0..members).map(each).collect();
                for assignor in [Assignor::Range, Assignor::RoundRobin, Assignor::CooperativeSticky]
                {
                    let given = assign(assignor, &subscribers, &counts(&[("t", count)]));
                    let mut all: Vec<_> = given.values().flatten().collect();
                    all.sort();
                    all.dedup();
                    assert_eq!(all.len(), given.values().map(Vec::len).sum::<usize>());
                    assert_eq!(i32::try_from(all.len()), Ok(count), "{assignor:?}");
                    let sizes: Vec<_> = given.values().map(Vec::len).collect();
                    let (min, max) = (sizes.iter().min(), sizes.iter().max());
                    let (min, max) = (min.expect("a member"), max.expect("a member"));
                    assert!(max - min <= 1, "{assignor:?}: {sizes:?}");
                }
            }
        }
    }
}
