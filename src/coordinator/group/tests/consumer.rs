//! The consumer protocol.

use super::members::{Consumer, assert_apart, settle};
use super::world::{GROUP, World, identity};
use crate::coordinator::group::answer::Answer;
use crate::coordinator::group::request::{ConsumerHeartbeat, Fetch, Request};
use crate::coordinator::group::{GroupError, GroupSettings};

fn world(partitions: u32) -> World {
    let mut world = World::new();
    world.set_topic("flights", partitions);
    world
}

fn consumers(count: usize) -> Vec<Consumer> {
    (0..count).map(|number| Consumer::new(&format!("m{number}"), &["flights"])).collect()
}

fn counts(consumers: &[Consumer]) -> Vec<usize> {
    consumers.iter().map(Consumer::count).collect()
}

#[test]
fn the_first_member_gets_everything_at_once() {
    let mut world = world(6);
    let mut consumer = Consumer::new("m", &["flights", "not there"]);
    consumer.beat(&mut world).expect("a member");
    consumer.settle();
    assert_eq!((consumer.epoch, consumer.count()), (2, 6));
    let group = world.describe_consumers().expect("it is there");
    assert_eq!((group.state, group.epoch, group.target_epoch), ("Stable", 2, 2));
    assert_eq!(group.assignor, "uniform");
    // Nothing new is to be said about an assignment that the member has.
    let beat = world.beat(consumer.short()).expect("a member");
    assert_eq!((beat.assignment, beat.interval_ms), (None, 5_000));
}

#[test]
fn a_partition_goes_to_another_member_only_when_its_owner_has_given_it_up() {
    let mut world = world(2);
    let mut all = consumers(2);
    all[0].beat(&mut world).expect("a member");
    all[0].settle();
    all[1].beat(&mut world).expect("a member");
    all[1].settle();
    assert_eq!((all[1].epoch, all[1].count()), (3, 0));
    // The owner learns that it has to give one up, and says later that it has.
    all[0].beat(&mut world).expect("a member");
    assert_eq!((all[0].epoch, all[0].wants.values().next().map(|it| it.len())), (2, Some(1)));
    all[1].beat(&mut world).expect("a member");
    assert_eq!(all[1].wants.len(), 0);
    assert_eq!(world.describe_consumers().map(|it| it.state), Some("Reconciling"));
    all[0].settle();
    all[0].beat(&mut world).expect("a member");
    assert_eq!(all[0].epoch, 3);
    all[1].beat(&mut world).expect("a member");
    all[1].settle();
    assert_apart(&all);
    assert_eq!(counts(&all), [1, 1]);
}

#[test]
fn members_share_evenly_and_get_what_others_leave() {
    let mut world = world(6);
    let mut all = consumers(3);
    settle(&mut world, &mut all);
    assert_eq!(counts(&all), [2, 2, 2]);
    let mut last = all.pop().expect("three");
    last.leave(&mut world, -1).expect("a member");
    settle(&mut world, &mut all);
    assert_eq!(counts(&all), [3, 3]);
    assert_apart(&all);
}

#[test]
fn the_server_assigns_ranges_when_most_members_prefer_that() {
    let mut world = world(5);
    world.set_topic("planes", 5);
    let mut all = consumers(2);
    for consumer in &mut all {
        consumer.topics = Some(vec!["planes".to_owned(), "flights".to_owned()]);
        consumer.assignor = Some("range".to_owned());
    }
    settle(&mut world, &mut all);
    assert_eq!(counts(&all), [6, 4]);
    for partitions in all[0].has.values() {
        assert_eq!(partitions.iter().copied().collect::<Vec<_>>(), [0, 1, 2]);
    }
    let mut odd = Consumer::new("odd", &["flights"]);
    odd.assignor = Some("sticky".to_owned());
    assert_eq!(odd.beat(&mut world), Err(GroupError::UnsupportedAssignor));
}

#[test]
fn partitions_and_topics_that_are_added_are_assigned() {
    let mut world = world(2);
    let mut all = consumers(2);
    for consumer in &mut all {
        consumer.topics = Some(vec!["flights".to_owned(), "planes".to_owned()]);
    }
    settle(&mut world, &mut all);
    world.set_topic("flights", 4);
    settle(&mut world, &mut all);
    assert_eq!(counts(&all), [2, 2]);
    world.set_topic("planes", 2);
    settle(&mut world, &mut all);
    assert_eq!(counts(&all), [3, 3]);
}

#[test]
fn a_topic_that_is_made_anew_is_another_one() {
    let mut world = world(2);
    let mut all = consumers(1);
    settle(&mut world, &mut all);
    let before = all[0].has.keys().copied().collect::<Vec<_>>();
    assert_eq!(world.commit(identity("m0", all[0].epoch), 7), Ok(()));
    world.drop_topic("flights");
    assert_eq!(world.fetch(false), Ok(None));
    settle(&mut world, &mut all);
    assert_eq!(all[0].count(), 0);
    world.set_topic("flights", 3);
    settle(&mut world, &mut all);
    assert_eq!(all[0].count(), 3);
    assert!(!before.contains(all[0].has.keys().next().expect("a topic")));
}

#[test]
fn a_regular_expression_subscribes_to_topics_that_come_later_too() {
    let mut world = world(2);
    world.set_topic("aflights", 4);
    let mut consumer = Consumer { regex: Some("flights.*".to_owned()), ..Consumer::new("m", &[]) };
    consumer.beat(&mut world).expect("a member");
    consumer.settle();
    assert_eq!(consumer.count(), 2);
    world.set_topic("flights-2", 3);
    world.wait(10_001);
    settle(&mut world, std::slice::from_mut(&mut consumer));
    assert_eq!(consumer.count(), 5);
    world.restart();
    settle(&mut world, std::slice::from_mut(&mut consumer));
    assert_eq!((consumer.count(), consumer.epoch), (5, 3));
    consumer.regex = Some("(".to_owned());
    assert_eq!(consumer.beat(&mut world), Err(GroupError::InvalidRegularExpression));
    consumer.regex = Some(String::new());
    settle(&mut world, std::slice::from_mut(&mut consumer));
    assert_eq!(consumer.count(), 0);
    world.machine.consumers[GROUP].check();
}

#[test]
fn a_silent_member_is_out_and_fenced() {
    let mut world = world(4);
    let mut all = consumers(2);
    settle(&mut world, &mut all);
    world.wait(30_000);
    all[0].beat(&mut world).expect("a member");
    world.wait(20_000);
    let mut silent = all.pop().expect("two");
    assert_eq!(silent.clone().beat(&mut world), Err(GroupError::UnknownMemberId));
    settle(&mut world, &mut all);
    assert_eq!(counts(&all), [4]);
    silent.epoch = 0;
    silent.has.clear();
    all.push(silent);
    settle(&mut world, &mut all);
    assert_eq!(counts(&all), [2, 2]);
}

#[test]
fn who_does_not_give_up_within_its_rebalance_timeout_is_out() {
    let mut world = world(2);
    let mut all = consumers(2);
    all[0].beat(&mut world).expect("a member");
    all[0].settle();
    for _ in 0..7 {
        all[1].beat(&mut world).expect("a member");
        // It hears that it has to give something up, and doesn't.
        let _ = all[0].clone().beat(&mut world);
        world.wait(10_000);
    }
    assert_eq!(all[0].beat(&mut world), Err(GroupError::UnknownMemberId));
    all[1].beat(&mut world).expect("a member");
    all[1].settle();
    assert_eq!(all[1].count(), 2);
}

#[test]
fn epochs_that_are_not_the_members_are_fenced() {
    let mut world = world(2);
    let mut all = consumers(2);
    settle(&mut world, &mut all);
    let newer = ConsumerHeartbeat { epoch: all[0].epoch + 1, ..all[0].request() };
    assert_eq!(world.beat(newer).err(), Some(GroupError::FencedMemberEpoch));
    let older = ConsumerHeartbeat { epoch: 2, owned: None, ..all[1].request() };
    assert_eq!(world.beat(older).err(), Some(GroupError::FencedMemberEpoch));
    // The answer with the newer epoch may have been lost: nothing is owned but what was given.
    let previous = ConsumerHeartbeat { epoch: 2, ..all[0].request() };
    assert!(world.beat(previous).is_ok());
    let stranger = Consumer { epoch: 2, ..Consumer::new("stranger", &["flights"]) };
    assert_eq!(world.beat(stranger.request()).err(), Some(GroupError::UnknownMemberId));
}

#[test]
fn requests_that_make_no_sense_are_invalid() {
    let mut world = world(1);
    let good = Consumer::new("m", &["flights"]).request();
    for bad in [
        ConsumerHeartbeat { member: String::new(), ..good.clone() },
        ConsumerHeartbeat { group: String::new(), ..good.clone() },
        ConsumerHeartbeat { instance: Some(String::new()), ..good.clone() },
        ConsumerHeartbeat { rack: Some(String::new()), ..good.clone() },
        ConsumerHeartbeat { rebalance_timeout_ms: -1, ..good.clone() },
        ConsumerHeartbeat { owned: None, ..good.clone() },
        ConsumerHeartbeat { topics: None, ..good.clone() },
        ConsumerHeartbeat { epoch: -2, ..good.clone() },
        ConsumerHeartbeat { epoch: -3, ..good.clone() },
        ConsumerHeartbeat { topics: Some(vec!["x".repeat(300_000)]), ..good.clone() },
    ] {
        let refused = world.beat(bad.clone()).err();
        assert!(matches!(refused, Some(GroupError::InvalidRequest(_))), "{bad:?}: {refused:?}");
    }
    let gone = ConsumerHeartbeat { epoch: -1, ..good.clone() };
    assert_eq!(world.beat(gone).err(), Some(GroupError::GroupIdNotFound));
    let later = ConsumerHeartbeat { epoch: 3, ..good.clone() };
    assert_eq!(world.beat(later).err(), Some(GroupError::GroupIdNotFound));
    assert!(world.machine.consumers.is_empty() && world.log.is_empty());
    // Version 0 leaves the id to the coordinator.
    let fresh = ConsumerHeartbeat { member: String::new(), brings_id: false, ..good };
    assert_eq!(world.beat(fresh).map(|it| it.member), Ok("fresh".to_owned()));
}

#[test]
fn a_static_member_that_has_left_finds_its_place_and_a_second_one_is_refused() {
    let mut world = world(4);
    let mut all = consumers(2);
    all[0].instance = Some("i".to_owned());
    settle(&mut world, &mut all);
    let had = all[0].has.clone();
    let mut second =
        Consumer { instance: all[0].instance.clone(), ..Consumer::new("s", &["flights"]) };
    assert_eq!(second.beat(&mut world), Err(GroupError::UnreleasedInstanceId));
    let epoch = world.describe_consumers().map(|it| it.epoch);
    let left = all[0].leave(&mut world, -2).expect("a member");
    assert_eq!(left.epoch, -2);
    second.beat(&mut world).expect("a member");
    second.settle();
    assert_eq!(second.has, had);
    assert_eq!(world.describe_consumers().map(|it| it.epoch), epoch);
    let former = ConsumerHeartbeat { epoch: 2, ..all[0].request() };
    assert_eq!(world.beat(former).err(), Some(GroupError::FencedInstanceId));
    // One that doesn't come back is out in the end.
    second.leave(&mut world, -2).expect("a member");
    for _ in 0..5 {
        world.wait(10_000);
        all[1].beat(&mut world).expect("a member");
        all[1].settle();
    }
    assert_eq!(all[1].count(), 4);
}

#[test]
fn a_group_lives_through_a_restart() {
    let mut world = world(6);
    let mut all = consumers(3);
    settle(&mut world, &mut all);
    let before = world.describe_consumers();
    world.restart();
    assert_eq!(world.describe_consumers(), before);
    for consumer in &mut all {
        let epoch = consumer.epoch;
        consumer.beat(&mut world).expect("a member");
        assert_eq!(consumer.epoch, epoch);
    }
}

#[test]
fn members_commit_with_their_epoch_or_with_an_older_one_what_they_had_then() {
    let mut world = world(2);
    let mut all = consumers(1);
    settle(&mut world, &mut all);
    let first = all[0].epoch;
    assert_eq!(world.commit(identity("m0", first), 3), Ok(()));
    assert_eq!(world.commit(identity("m0", first + 1), 3), Err(GroupError::StaleMemberEpoch));
    assert_eq!(world.commit(identity("m0", 0), 3), Err(GroupError::StaleMemberEpoch));
    assert_eq!(world.commit(identity("stranger", first), 3), Err(GroupError::UnknownMemberId));
    assert_eq!(world.commit(identity("", -1), 3), Err(GroupError::UnknownMemberId));
    all.push(Consumer::new("m1", &["flights"]));
    settle(&mut world, &mut all);
    assert!(first < all[0].epoch);
    // Partition 0 stays with one of them; it was given at the first epoch if it is the first one.
    let stays = all[0].has.values().any(|it| it.contains(&0));
    let outcome = world.commit(identity("m0", first), 4);
    assert_eq!(outcome.is_ok(), stays, "{outcome:?}");
    let fetch = |member: &str, epoch| Fetch {
        group: GROUP.to_owned(),
        member: Some((member.to_owned(), epoch)),
        wanted: None,
        require_stable: false,
    };
    for (member, epoch, error) in [
        ("m0", first, Some(GroupError::StaleMemberEpoch)),
        ("stranger", first, Some(GroupError::UnknownMemberId)),
        ("m0", all[0].epoch, None),
    ] {
        match world.ask(Request::Fetch(fetch(member, epoch))) {
            Answer::Fetch(fetched) => assert_eq!(fetched.err(), error),
            other => panic!("{other:?} is no answer to a fetch"),
        }
    }
}

#[test]
fn a_group_has_as_many_members_as_the_limit() {
    let mut world = world(2);
    let limit = world.settings.consumer.members_max;
    let mut all = consumers(limit);
    settle(&mut world, &mut all);
    let mut late = Consumer::new("late", &["flights"]);
    assert_eq!(late.beat(&mut world), Err(GroupError::GroupMaxSizeReached));
    all[0].beat(&mut world).expect("it is one of them");
}

#[test]
fn a_group_without_members_is_deleted_or_expires() {
    let mut world = world(2);
    let mut all = consumers(1);
    settle(&mut world, &mut all);
    let delete = || Request::Delete(GROUP.to_owned());
    assert_eq!(world.commit(identity("m0", all[0].epoch), 3), Ok(()));
    assert_eq!(world.ask(delete()), Answer::Delete(Err(GroupError::NonEmptyGroup)));
    all[0].leave(&mut world, -1).expect("a member");
    assert_eq!(world.describe_consumers().map(|it| it.state), Some("Empty"));
    assert_eq!(world.commit(identity("", -1), 5), Ok(()));
    let retention = world.settings.retention_ms;
    world.wait(retention - 1_000_000);
    assert_eq!(world.fetch(false), Ok(Some(5)));
    world.wait(2_000_000);
    assert_eq!(world.fetch(false), Ok(None));
    assert!(world.machine.consumers.is_empty() && world.reloaded().consumers.is_empty());
    assert_eq!(world.ask(delete()), Answer::Delete(Err(GroupError::GroupIdNotFound)));
}

#[test]
fn what_is_set_for_a_group_beats_what_counts_for_all() {
    let mut world = world(2);
    world.set_group_config("consumer.session.timeout.ms", 50_000);
    world.set_group_config("consumer.heartbeat.interval.ms", 7_000);
    let consumer = Consumer::new("m", &["flights"]);
    let beat = world.beat(consumer.request()).expect("a member");
    assert_eq!(beat.interval_ms, 7_000);
    let count = |world: &mut World| world.describe_consumers().map_or(0, |it| it.members.len());
    for restarts in [false, true] {
        let mut world = world_of(&consumer);
        if restarts {
            world.restart();
        }
        world.wait(49_999);
        assert_eq!(count(&mut world), 1, "restarted: {restarts}");
        world.wait(1);
        assert_eq!(count(&mut world), 0, "restarted: {restarts}");
    }
    world.set_group_config("consumer.assignment.interval.ms", 1_000);
    let mut second = Consumer::new("n", &["flights"]);
    second.beat(&mut world).expect("a member");
    assert_eq!(world.describe_consumers().map(|it| (it.epoch, it.target_epoch)), Some((3, 2)));
}

#[test]
fn what_was_set_under_other_bounds_counts_as_the_nearest_within() {
    let mut world = world(2);
    for (set, counts) in [(1, 5_000), (4_999, 5_000), (15_000, 15_000), (i32::MAX, 15_000)] {
        world.set_group_config("consumer.heartbeat.interval.ms", set);
        let consumer = Consumer::new("m", &["flights"]);
        assert_eq!(world.beat(consumer.request()).expect("a member").interval_ms, counts);
    }
}

/// A group with a longer session timeout of its own, of one member.
fn world_of(consumer: &Consumer) -> World {
    let mut world = world(2);
    world.set_group_config("consumer.session.timeout.ms", 50_000);
    world.beat(consumer.request()).expect("a member");
    world
}

#[test]
fn targets_are_computed_no_oftener_than_the_interval() {
    let mut settings = GroupSettings::for_tests();
    settings.consumer.assignment_interval_ms = 1_000;
    let mut world = World::with(settings);
    world.set_topic("flights", 4);
    let mut all = consumers(2);
    all[0].beat(&mut world).expect("a member");
    all[1].beat(&mut world).expect("a member");
    assert_eq!(world.describe_consumers().map(|it| (it.epoch, it.target_epoch)), Some((3, 2)));
    world.wait(1_000);
    all[1].beat(&mut world).expect("a member");
    assert_eq!(world.describe_consumers().map(|it| (it.epoch, it.target_epoch)), Some((3, 3)));
}

#[test]
fn large_targets_are_written_in_many_batches() {
    let mut settings = GroupSettings::for_tests();
    settings.write_bytes_max = 2_000;
    let mut world = World::with(settings);
    world.set_topic("flights", 1_500);
    let mut all = consumers(5);
    settle(&mut world, &mut all);
    assert_eq!(counts(&all), [300; 5]);
    let before = world.describe_consumers();
    world.restart();
    assert_eq!(world.describe_consumers(), before);
}
