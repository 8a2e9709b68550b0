//! Many groups, many members.

use super::members::Consumer;
use super::world::{World, identity, new_offset};
use crate::coordinator::group::GroupSettings;
use crate::coordinator::group::answer::Answer;
use crate::coordinator::group::request::{Commit, ConsumerHeartbeat, Identity, Join, Request};

fn large() -> World {
    let mut settings = GroupSettings::for_tests();
    settings.members_max = 2_000;
    settings.groups_max = 20_000;
    settings.consumer.members_max = 2_000;
    settings.consumer.assignment_interval_ms = 1_000;
    World::with(settings)
}

#[test]
fn ten_thousand_groups_of_either_protocol_live_through_a_restart() {
    let mut world = large();
    world.set_topic("flights", 2);
    for number in 0..5_000 {
        let group = format!("classic-{number}");
        let identity = Identity { group: group.clone(), ..identity("", -1) };
        let commit = Commit {
            identity,
            knows_group_errors: true,
            retention_ms: -1,
            offsets: vec![new_offset("flights", 0, number)],
        };
        let Answer::Commit(Ok(_)) = world.ask(Request::Commit(commit)) else { panic!("{group}") };
        let consumer = Consumer::new("m", &["flights"]);
        let group = format!("consumer-{number}");
        let beat = world.beat(ConsumerHeartbeat { group, ..consumer.request() });
        assert_eq!(beat.map(|it| it.epoch), Ok(2));
    }
    world.restart();
    let Answer::List(listed) = world.ask(Request::List) else { panic!("no list") };
    assert_eq!(listed.len(), 10_000);
    assert_eq!(listed.iter().filter(|it| it.state == "Stable").count(), 5_000);
    // All consumers fall silent at once.
    world.wait(60_000);
    let Answer::List(listed) = world.ask(Request::List) else { panic!("no list") };
    assert!(listed.iter().all(|it| it.state == "Empty"));
}

#[test]
fn a_thousand_members_share_a_topic() {
    let mut world = large();
    world.set_topic("flights", 1_500);
    let mut all: Vec<Consumer> =
        (0..1_000).map(|number| Consumer::new(&format!("m{number}"), &["flights"])).collect();
    for _ in 0..6 {
        for consumer in &mut all {
            consumer.beat(&mut world).expect("a member");
            consumer.settle();
        }
        world.wait(2_000);
    }
    let group = world.describe_consumers().expect("it is there");
    assert_eq!((group.state, group.members.len()), ("Stable", 1_000));
    assert!(all.iter().all(|it| matches!(it.count(), 1 | 2)));
    super::members::assert_apart(&all);
}

#[test]
fn a_thousand_members_join_a_classic_group() {
    let mut world = large();
    let tickets: Vec<_> = (0..1_000)
        .map(|_| {
            let join = world.join_request("");
            world.send(Request::Join(Join { needs_id: false, ..join }))
        })
        .collect();
    world.wait(120_000);
    let joined: Vec<_> = tickets.into_iter().map(|it| world.joined(it)).collect();
    assert!(joined.iter().all(|it| it.error.is_none() && it.generation == 1));
    let leaders: Vec<_> = joined.iter().filter(|it| !it.members.is_empty()).collect();
    assert_eq!(leaders.len(), 1);
    assert_eq!(leaders[0].members.len(), 1_000);
}
