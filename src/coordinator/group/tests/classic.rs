//! The classic protocol.

use bytes::Bytes;

use super::world::{GROUP, World, identity, subscription};
use crate::coordinator::group::answer::Answer;
use crate::coordinator::group::request::{Join, Request, Sync};
use crate::coordinator::group::{GroupError, GroupSettings};

fn state(world: &mut World) -> &'static str {
    match world.ask(Request::Describe(GROUP.to_owned())) {
        Answer::Describe(Some(group)) => group.state,
        other => panic!("{other:?} describes no group"),
    }
}

#[test]
fn a_dynamic_member_has_to_come_back_with_the_id_it_is_given_from_version_4_on() {
    let mut world = World::new();
    let id = world.new_id();
    assert_eq!(state(&mut world), "Empty");
    let ticket = world.join(&id);
    world.wait(3_000);
    let joined = world.joined(ticket);
    assert_eq!((joined.error, joined.generation, &joined.leader), (None, 1, &id));
    let older = Join { needs_id: false, ..world.join_request("") };
    let ticket = world.send(Request::Join(older));
    let again = world.join(&id);
    assert_eq!(world.joined(ticket).generation, 2);
    assert_eq!(world.joined(again).generation, 2);
}

#[test]
fn an_id_that_was_given_out_is_forgotten_after_the_session_timeout() {
    let mut world = World::new();
    let id = world.new_id();
    world.wait(10_000);
    let ticket = world.join(&id);
    assert_eq!(world.joined(ticket).error, Some(GroupError::UnknownMemberId));
}

#[test]
fn the_first_members_of_an_empty_group_wait_for_others_as_long_as_others_come() {
    let mut world = World::new();
    let ids = [world.new_id(), world.new_id(), world.new_id()];
    let first = world.join(&ids[0]);
    world.wait(2_900);
    let second = world.join(&ids[1]);
    world.wait(2_900);
    let third = world.join(&ids[2]);
    assert!(world.answers.is_empty());
    world.wait(3_200);
    let joined = [first, second, third].map(|ticket| world.joined(ticket));
    assert!(joined.iter().all(|it| it.generation == 1));
    let leaders: Vec<_> = joined.iter().filter(|it| it.member == it.leader).collect();
    assert_eq!(leaders.len(), 1);
    assert_eq!(leaders[0].members.len(), 3);
}

#[test]
fn the_leaders_assignments_reach_everybody_and_stand_in_the_group_record() {
    let mut world = World::new();
    let joined = world.stable(3);
    assert_eq!(state(&mut world), "Stable");
    let Answer::Describe(Some(group)) = world.ask(Request::Describe(GROUP.to_owned())) else {
        panic!("the group is there");
    };
    for member in &group.members {
        assert_eq!(member.assignment, Bytes::from(format!("of {}", member.id)));
    }
    world.restart();
    assert_eq!(state(&mut world), "Stable");
    for member in &joined {
        assert_eq!(world.heartbeat(member), Ok(()));
    }
}

#[test]
fn a_member_that_is_silent_for_its_session_timeout_is_removed_and_the_others_join_again() {
    let mut world = World::new();
    let joined = world.stable(2);
    world.wait(6_000);
    assert_eq!(world.heartbeat(&joined[0]), Ok(()));
    world.wait(6_000);
    assert_eq!(world.heartbeat(&joined[0]), Err(GroupError::RebalanceInProgress));
    assert_eq!(world.heartbeat(&joined[1]), Err(GroupError::UnknownMemberId));
    let ticket = world.join(&joined[0].member);
    let again = world.joined(ticket);
    assert_eq!((again.generation, again.members.len()), (2, 1));
}

#[test]
fn a_group_read_from_the_log_gives_its_members_a_session_to_be_heard_of() {
    let mut world = World::new();
    let joined = world.stable(2);
    world.wait(9_000);
    world.restart();
    world.wait(9_000);
    assert_eq!(world.heartbeat(&joined[0]), Ok(()));
    world.wait(1_000);
    assert_eq!(world.heartbeat(&joined[0]), Err(GroupError::RebalanceInProgress));
}

#[test]
fn who_has_not_joined_when_the_rebalance_timeout_is_over_is_out() {
    let mut world = World::new();
    let joined = world.stable(2);
    let id = world.new_id();
    let newcomer = world.join(&id);
    let ticket = world.join(&joined[0].member);
    for _ in 0..7 {
        world.wait(9_000);
        let _ = world.heartbeat(&joined[1]);
    }
    assert_eq!(world.joined(ticket).generation, 2);
    assert_eq!(world.joined(newcomer).generation, 2);
    assert_eq!(world.heartbeat(&joined[1]), Err(GroupError::UnknownMemberId));
}

#[test]
fn who_has_not_synced_when_the_rebalance_timeout_is_over_is_out() {
    let mut world = World::new();
    let ids = [world.new_id(), world.new_id()];
    let tickets = ids.clone().map(|id| world.join(&id));
    world.wait(9_000);
    let mut joined = tickets.map(|ticket| world.joined(ticket));
    joined.sort_by_key(|it| it.member != it.leader);
    let sync = world.sync(&joined[0]);
    world.synced(sync).expect("the leader has its assignment");
    for _ in 0..8 {
        world.wait(8_000);
        let _ = world.heartbeat(&joined[0]);
        let _ = world.heartbeat(&joined[1]);
    }
    assert_eq!(world.heartbeat(&joined[1]), Err(GroupError::UnknownMemberId));
    assert_eq!(world.heartbeat(&joined[0]), Err(GroupError::RebalanceInProgress));
}

#[test]
fn a_sync_with_another_generation_or_protocol_is_refused() {
    let mut world = World::new();
    let joined = world.stable(1).remove(0);
    let sync = Sync {
        identity: identity(&joined.member, joined.generation + 1),
        protocol_type: None,
        protocol: None,
        assignments: Vec::new(),
    };
    let outcome = |world: &mut World, sync: Sync| {
        let ticket = world.send(Request::Sync(sync));
        world.synced(ticket).err()
    };
    assert_eq!(outcome(&mut world, sync.clone()), Some(GroupError::IllegalGeneration));
    let right = Sync { identity: identity(&joined.member, joined.generation), ..sync };
    let other = Sync { protocol: Some("sticky".to_owned()), ..right.clone() };
    assert_eq!(outcome(&mut world, other), Some(GroupError::InconsistentGroupProtocol));
    let stranger = Sync { identity: identity("stranger", joined.generation), ..right.clone() };
    assert_eq!(outcome(&mut world, stranger), Some(GroupError::UnknownMemberId));
    assert_eq!(outcome(&mut world, right), None);
}

#[test]
fn the_protocol_is_the_one_that_most_prefer_of_those_that_all_have() {
    let mut world = World::new();
    let named = |names: &[&str]| {
        names.iter().map(|name| ((*name).to_owned(), subscription(&["t"]))).collect::<Vec<_>>()
    };
    let mut tickets = Vec::new();
    for names in [&["own", "range", "sticky"][..], &["sticky", "range"], &["sticky", "range"]] {
        let join = Join { protocols: named(names), needs_id: false, ..world.join_request("") };
        tickets.push(world.send(Request::Join(join)));
    }
    let alien = Join { protocols: named(&["own"]), needs_id: false, ..world.join_request("") };
    let ticket = world.send(Request::Join(alien));
    assert_eq!(world.joined(ticket).error, Some(GroupError::InconsistentGroupProtocol));
    world.wait(10_000);
    for ticket in tickets {
        assert_eq!(world.joined(ticket).protocol.as_deref(), Some("sticky"));
    }
}

#[test]
fn a_member_that_leaves_is_gone_at_once_and_a_group_without_members_is_empty() {
    let mut world = World::new();
    let joined = world.stable(2);
    assert_eq!(world.leave("stranger", None), Err(GroupError::UnknownMemberId));
    assert_eq!(world.leave(&joined[1].member, None), Ok(()));
    assert_eq!(state(&mut world), "PreparingRebalance");
    assert_eq!(world.leave(&joined[0].member, None), Ok(()));
    assert_eq!(state(&mut world), "Empty");
    world.restart();
    assert_eq!(state(&mut world), "Empty");
}

#[test]
fn a_static_member_comes_back_without_a_rebalance_and_its_former_self_is_fenced() {
    let mut world = World::new();
    let ticket = world.join_static("i");
    world.wait(6_000);
    let first = world.joined(ticket);
    let sync = world.sync(&first);
    let assigned = world.synced(sync).expect("its assignment");
    let ticket = world.join_static("i");
    let second = world.joined(ticket);
    assert_eq!((second.error, second.generation), (None, first.generation));
    assert_ne!(second.member, first.member);
    assert!(second.skip_assignment && second.members.len() == 1);
    let sync = world.sync(&second);
    assert_eq!(world.synced(sync), Ok(assigned));
    let mut fenced = identity(&first.member, first.generation);
    fenced.instance = Some("i".to_owned());
    let answer = world.ask(Request::Heartbeat(fenced));
    assert_eq!(answer, Answer::Heartbeat(Err(GroupError::FencedInstanceId)));
    // An older client must not believe that it leads.
    let older = Join {
        instance: Some("i".to_owned()),
        can_skip_assignment: false,
        ..world.join_request("")
    };
    let ticket = world.send(Request::Join(older));
    let third = world.joined(ticket);
    assert_eq!(third.leader, second.member);
    assert!(third.members.is_empty());
}

#[test]
fn a_static_member_keeps_its_place_through_a_rebalance_it_does_not_join() {
    let mut world = World::new();
    let tickets = [world.join_static("a"), world.join_static("b")];
    world.wait(9_000);
    let mut joined = tickets.map(|ticket| world.joined(ticket));
    joined.sort_by_key(|it| it.member != it.leader);
    for member in joined.iter().rev() {
        world.sync(member);
    }
    world.answers.clear();
    let id = world.new_id();
    let newcomer = world.join(&id);
    let mut rejoin = world.join_request(&joined[0].member);
    rejoin.instance = Some(if joined[0].member < joined[1].member { "a" } else { "b" }.to_owned());
    let again = world.send(Request::Join(rejoin));
    for _ in 0..7 {
        world.wait(9_000);
        let mut identity = identity(&joined[1].member, joined[1].generation);
        identity.instance = None;
        world.ask(Request::Heartbeat(identity));
    }
    assert_eq!(world.joined(newcomer).generation, 2);
    assert_eq!(world.joined(again).generation, 2);
    let Answer::Describe(Some(group)) = world.ask(Request::Describe(GROUP.to_owned())) else {
        panic!("the group is there");
    };
    assert_eq!(group.members.len(), 3);
}

#[test]
fn an_administrator_removes_a_static_member_by_its_instance_id() {
    let mut world = World::new();
    let ticket = world.join_static("i");
    world.wait(6_000);
    let joined = world.joined(ticket);
    assert_eq!(world.leave(&joined.member, Some("other")), Err(GroupError::UnknownMemberId));
    assert_eq!(world.leave("other", Some("i")), Err(GroupError::FencedInstanceId));
    assert_eq!(world.leave("", Some("i")), Ok(()));
    assert_eq!(state(&mut world), "Empty");
}

#[test]
fn a_group_has_group_max_size_members_at_most() {
    let mut world = World::new();
    let limit = world.settings.members_max;
    let joined = world.stable(limit);
    assert_eq!(joined.len(), limit);
    let join = world.join_request("");
    let ticket = world.send(Request::Join(join));
    assert_eq!(world.joined(ticket).error, Some(GroupError::GroupMaxSizeReached));
}

#[test]
fn session_timeouts_and_names_have_bounds() {
    let mut world = World::new();
    for (session_timeout_ms, group, error) in [
        (5_999, GROUP, GroupError::InvalidSessionTimeout),
        (1_800_001, GROUP, GroupError::InvalidSessionTimeout),
        (10_000, "", GroupError::InvalidGroupId),
    ] {
        let group = group.to_owned();
        let join = Join { session_timeout_ms, group, ..world.join_request("") };
        let ticket = world.send(Request::Join(join));
        assert_eq!(world.joined(ticket).error, Some(error));
    }
    assert!(world.machine.groups.is_empty());
}

#[test]
fn only_groups_without_members_are_deleted() {
    let mut world = World::new();
    let joined = world.stable(1).remove(0);
    let delete = Request::Delete(GROUP.to_owned());
    assert_eq!(world.ask(delete.clone()), Answer::Delete(Err(GroupError::NonEmptyGroup)));
    assert_eq!(world.leave(&joined.member, None), Ok(()));
    assert_eq!(world.ask(delete.clone()), Answer::Delete(Ok(())));
    assert_eq!(world.ask(delete), Answer::Delete(Err(GroupError::GroupIdNotFound)));
    assert!(world.reloaded().groups.is_empty());
}

#[test]
fn there_are_no_more_groups_than_the_limit() {
    let mut world = World::with(GroupSettings { groups_max: 1, ..GroupSettings::for_tests() });
    world.new_id();
    let join = Join { group: "other".to_owned(), ..world.join_request("") };
    let ticket = world.send(Request::Join(join));
    assert_eq!(world.joined(ticket).error, Some(GroupError::CoordinatorNotAvailable));
}

#[test]
fn assignments_that_fit_no_batch_are_refused_and_the_members_join_again() {
    let settings = GroupSettings { write_bytes_max: 200, ..GroupSettings::for_tests() };
    let mut world = World::with(settings);
    let id = world.new_id();
    let ticket = world.join(&id);
    world.wait(3_000);
    let joined = world.joined(ticket);
    let sync = world.send(Request::Sync(Sync {
        identity: identity(&joined.member, joined.generation),
        protocol_type: None,
        protocol: None,
        assignments: vec![(id, Bytes::from(vec![0; 300]))],
    }));
    assert_eq!(world.synced(sync), Err(GroupError::UnknownServerError));
    assert_eq!(state(&mut world), "PreparingRebalance");
}

/// Kafka takes whatever members say; what it can't write is refused when the leader assigns.
#[test]
fn what_members_say_is_bounded_for_the_whole_group() {
    const KIB: usize = 1 << 10;
    let settings = GroupSettings { write_bytes_max: 100 * KIB, ..GroupSettings::for_tests() };
    let mut world = World::with(settings);
    let join = |world: &mut World, protocols: &[usize]| {
        let said = |bytes: &usize| Bytes::from(vec![0; *bytes]);
        let named = protocols.iter().zip(["a", "b", "c"]);
        let join = Join {
            protocols: named.map(|(bytes, name)| (name.to_owned(), said(bytes))).collect(),
            needs_id: false,
            ..world.join_request("")
        };
        world.send(Request::Join(join))
    };
    let error = |world: &mut World, ticket| world.joined(ticket).error;
    let refused = join(&mut world, &[401 * KIB]);
    assert_eq!(error(&mut world, refused), Some(GroupError::UnknownServerError));
    // Each protocol alone would fit a batch.
    let first = join(&mut world, &[80 * KIB, 80 * KIB, 80 * KIB]);
    let refused = join(&mut world, &[80 * KIB, 80 * KIB, 1]);
    assert_eq!(error(&mut world, refused), Some(GroupError::GroupMaxSizeReached));
    let second = join(&mut world, &[80 * KIB, 10 * KIB, 10 * KIB]);
    world.wait(6_000);
    let joined = world.joined(first);
    assert_eq!((joined.error, joined.protocol.as_deref()), (None, Some("a")));
    assert_eq!(error(&mut world, second), None);
    let sync = world.sync(&joined);
    assert_eq!(world.synced(sync), Err(GroupError::UnknownServerError), "160 KiB in one record");
    // Whoever leaves makes room.
    assert_eq!(world.leave(&joined.member, None), Ok(()));
    let third = join(&mut world, &[90 * KIB, 90 * KIB, 90 * KIB]);
    assert!(!world.answers.contains_key(&third), "it waits for the others");
    world.machine.group(GROUP).expect("it is there").check();
}
