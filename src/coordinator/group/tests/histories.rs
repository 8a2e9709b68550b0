//! Random histories of groups with the consumer protocol: members join, beat, are slow to give
//! partitions up, leave, fall silent; topics come, grow and go; clients change over; the server is
//! killed. Whatever happens, no partition is in two hands, the state is what the log says, and the
//! group settles when everybody does as told.

use proptest::prelude::*;

use super::members::{Consumer, assert_apart, settle};
use super::world::{GROUP, World, identity};
use crate::coordinator::group::request::{Join, Request};

const CLIENTS: usize = 5;
const TOPICS: [&str; 3] = ["flights", "flights-2", "planes"];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A client says what it has, in full or in short.
    Beat(usize, bool),
    /// It gives up and takes what it was told.
    Settle(usize),
    Subscribe(usize, usize),
    Regex(usize),
    Leave(usize),
    /// A static member leaves and means to come back.
    GoAway(usize),
    /// A member with the classic protocol joins.
    Classic(usize),
    Grow(usize),
    Drop(usize),
    Commit(usize),
    Wait(i64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let client = || 0..CLIENTS;
    prop_oneof![
        12 => (client(), any::<bool>()).prop_map(|(it, full)| Step::Beat(it, full)),
        8 => client().prop_map(Step::Settle),
        2 => (client(), 0_usize..8).prop_map(|(it, mask)| Step::Subscribe(it, mask)),
        1 => client().prop_map(Step::Regex),
        2 => client().prop_map(Step::Leave),
        1 => client().prop_map(Step::GoAway),
        1 => (0_usize..2).prop_map(Step::Classic),
        3 => (0_usize..3).prop_map(Step::Grow),
        1 => (0_usize..3).prop_map(Step::Drop),
        1 => client().prop_map(Step::Commit),
        3 => (1_i64..4_000).prop_map(Step::Wait),
        1 => (4_000_i64..70_000).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

fn clients() -> Vec<Consumer> {
    let made = (0..CLIENTS).map(|number| {
        let instance = (number < 2).then(|| format!("i{number}"));
        Consumer { instance, ..Consumer::new(&format!("m{number}"), &["flights"]) }
    });
    made.collect()
}

fn take(world: &mut World, clients: &mut [Consumer], step: Step) {
    match step {
        Step::Beat(number, full) => {
            let client = &mut clients[number];
            let request = if full || client.epoch == 0 { client.request() } else { client.short() };
            let outcome = world.beat(request);
            let _ = client.take(outcome);
        }
        Step::Settle(number) => clients[number].settle(),
        Step::Subscribe(number, mask) => {
            let chosen = TOPICS.iter().enumerate().filter(|(bit, _)| mask & (1 << bit) != 0);
            clients[number].topics = Some(chosen.map(|(_, it)| (*it).to_owned()).collect());
            clients[number].regex = Some(String::new());
        }
        Step::Regex(number) => clients[number].regex = Some("fl.*".to_owned()),
        Step::Leave(number) => drop(clients[number].leave(world, -1)),
        Step::GoAway(number) => drop(clients[number].leave(world, -2)),
        Step::Classic(number) => {
            let join = world.join_request("");
            let instance = (number == 0).then(|| "i0".to_owned());
            world.send(Request::Join(Join { needs_id: false, instance, ..join }));
        }
        Step::Grow(number) => {
            let now = world.topics_count(TOPICS[number]);
            world.set_topic(TOPICS[number], now + 2);
        }
        Step::Drop(number) => world.drop_topic(TOPICS[number]),
        Step::Commit(number) => {
            let client = &clients[number];
            let _ = world.commit(identity(&client.id, client.epoch), 1);
        }
        Step::Wait(ms) => world.wait(ms),
        Step::Restart => world.restart(),
    }
    world.answers.clear();
}

/// Those that the coordinator would still take for what they are; the others are to give up what
/// they have as soon as they hear of it.
fn members<'a>(world: &World, clients: &'a [Consumer]) -> Vec<&'a Consumer> {
    let group = world.machine.consumers.get(GROUP);
    let is_member = |client: &&Consumer| {
        let member = group.and_then(|group| group.member(&client.id));
        client.epoch > 0 && member.is_some_and(|it| client.epoch <= it.epoch)
    };
    clients.iter().filter(is_member).collect()
}

fn check(world: &World) {
    let Some(group) = world.machine.consumers.get(GROUP) else { return };
    assert!(!world.machine.groups.contains_key(GROUP));
    group.check();
    let reloaded = world.reloaded();
    let Some(mut read) = reloaded.consumers.get(GROUP).cloned() else {
        panic!("the log doesn't have the group");
    };
    (read.seen, read.resolved) = (group.seen, group.resolved);
    assert_eq!(format!("{read:?}"), format!("{group:?}"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_history_is_consistent(steps in proptest::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        world.set_topic("flights", 3);
        let mut all = clients();
        for step in steps {
            take(&mut world, &mut all, step);
            check(&world);
            assert_apart(members(&world, &all));
        }
        // Who is silent is out; then all come back and do as told.
        world.wait(3_600_000);
        world.answers.clear();
        for client in &mut all {
            client.epoch = 0;
            client.has.clear();
            client.wants.clear();
        }
        settle(&mut world, &mut all);
        check(&world);
        assert_apart(&all);
        for topic in TOPICS {
            let has = |it: &Consumer| {
                it.topics.iter().flatten().any(|it| it == topic)
                    || it.regex.as_deref() == Some("fl.*") && topic.starts_with("fl")
            };
            if all.iter().any(has) {
                let count = world.topics_count(topic);
                let id = world.topic_id(topic);
                let given = all.iter().filter_map(|it| it.has.get(&id?)).map(|it| it.len());
                prop_assert_eq!(u32::try_from(given.sum::<usize>()), Ok(count), "{}", topic);
            }
        }
    }
}
