//! Groups whose clients are changed over from one protocol to the other while they run.

use super::members::{Consumer, assert_apart, settle};
use super::world::{GROUP, World, identity, subscription};
use crate::coordinator::Coordinator;
use crate::coordinator::group::answer::{Answer, Joined};
use crate::coordinator::group::request::{Join, Request, Sync};
use crate::coordinator::group::{GroupError, GroupSettings};
use crate::format::consumer_protocol::{Assignment, NamedPartitions, encode_assignment};
use crate::units::ByteCount;

/// A client with the classic protocol.
struct Classic {
    id: String,
    generation: i32,
    has: NamedPartitions,
}

impl Classic {
    fn join(&self, world: &mut World) -> Joined {
        let join = world.join_request(&self.id);
        let ticket = world.send(Request::Join(Join { needs_id: false, ..join }));
        world.joined(ticket)
    }

    /// Joins again and takes what it is given.
    fn rejoin(&mut self, world: &mut World) {
        let joined = self.join(world);
        assert_eq!(joined.error, None);
        (self.id, self.generation) = (joined.member.clone(), joined.generation);
        let sync = Sync {
            identity: identity(&self.id, self.generation),
            protocol_type: joined.protocol_type,
            protocol: joined.protocol,
            assignments: Vec::new(),
        };
        let ticket = world.send(Request::Sync(sync));
        let synced = world.synced(ticket).expect("an assignment");
        let assignment = Assignment::decode(&synced.assignment).expect("an assignment");
        self.has = assignment.partitions;
    }

    fn heartbeat(&self, world: &mut World) -> Result<(), GroupError> {
        match world.ask(Request::Heartbeat(identity(&self.id, self.generation))) {
            Answer::Heartbeat(outcome) => outcome,
            other => panic!("{other:?} is no answer to a heartbeat"),
        }
    }

    fn count(&self) -> usize {
        self.has.iter().map(|(_, it)| it.len()).sum()
    }
}

/// A stable classic group of two, each with half of the partitions.
fn classic_group(world: &mut World) -> [Classic; 2] {
    let ids = [world.new_id(), world.new_id()];
    let tickets = ids.clone().map(|id| world.join(&id));
    world.wait(6_000);
    let mut joined = tickets.map(|ticket| world.joined(ticket));
    joined.sort_by_key(|it| it.member != it.leader);
    let halves = [vec![0, 1], vec![2, 3]];
    let given = joined.clone().map(|it| it.member).into_iter().zip(halves);
    let assigned: Vec<(String, NamedPartitions)> =
        given.map(|(id, half)| (id, vec![("flights".to_owned(), half)])).collect();
    for joined in joined.iter().rev() {
        let encoded = assigned.iter().map(|(id, it)| (id.clone(), encode_assignment(1, it).into()));
        let sync = Sync {
            identity: identity(&joined.member, joined.generation),
            protocol_type: None,
            protocol: None,
            assignments: if joined.member == joined.leader { encoded.collect() } else { vec![] },
        };
        world.send(Request::Sync(sync));
    }
    world.answers.clear();
    let member = |number: usize| Classic {
        id: joined[number].member.clone(),
        generation: joined[number].generation,
        has: assigned[number].1.clone(),
    };
    [member(0), member(1)]
}

fn world() -> World {
    let mut world = World::new();
    world.set_topic("flights", 4);
    world
}

fn is_classic(world: &World) -> bool {
    assert_eq!(
        world.machine.groups.contains_key(GROUP),
        !world.machine.consumers.contains_key(GROUP)
    );
    world.machine.groups.contains_key(GROUP)
}

#[test]
fn a_group_is_changed_over_member_by_member_and_back() {
    let mut world = world();
    let mut old = classic_group(&mut world);
    assert_eq!(world.commit(identity(&old[0].id, old[0].generation), 7), Ok(()));
    let mut new = [Consumer::new("new", &["flights"])];
    new[0].beat(&mut world).expect("a member");
    new[0].settle();
    assert!(!is_classic(&world));
    assert_eq!(world.fetch(false), Ok(Some(7)));
    // The classic members keep what they have until they have joined again.
    assert_eq!(new[0].count(), 0);
    let before: Vec<usize> = old.iter().map(Classic::count).collect();
    assert_eq!(before, [2, 2]);
    for _ in 0..3 {
        for member in &mut old {
            if member.heartbeat(&mut world) == Err(GroupError::RebalanceInProgress) {
                member.has.clear();
                member.rejoin(&mut world);
            }
        }
        new[0].beat(&mut world).expect("a member");
        new[0].settle();
    }
    // A client says which partitions it has when it joins; these say that they have none.
    let mut counts = vec![old[0].count(), old[1].count(), new[0].count()];
    counts.sort_unstable();
    assert_eq!(counts, [1, 1, 2]);
    let kinds = world.describe_consumers().expect("it is there");
    let classic = kinds.members.iter().filter(|it| it.said.classic.is_some()).count();
    assert_eq!((kinds.state, classic), ("Stable", 2));
    world.restart();
    new[0].leave(&mut world, -1).expect("a member");
    assert!(is_classic(&world));
    for member in &mut old {
        assert_eq!(member.heartbeat(&mut world).err(), Some(GroupError::RebalanceInProgress));
    }
    let tickets: Vec<_> = old.iter().map(|it| world.join(&it.id)).collect();
    for ticket in tickets {
        assert_eq!(world.joined(ticket).error, None);
    }
    assert_eq!(world.fetch(false), Ok(Some(7)));
    let reloaded = world.reloaded();
    assert!(reloaded.groups.contains_key(GROUP) && reloaded.consumers.is_empty());
}

#[test]
fn who_waits_in_a_classic_group_is_to_join_again_when_it_becomes_another() {
    let mut world = world();
    let old = classic_group(&mut world);
    let join = Join {
        protocols: vec![("range".to_owned(), subscription(&["flights", "more"]))],
        ..world.join_request(&old[0].id)
    };
    let waiting = world.send(Request::Join(join));
    let mut new = Consumer::new("new", &["flights"]);
    new.beat(&mut world).expect("a member");
    assert_eq!(world.joined(waiting).error, Some(GroupError::RebalanceInProgress));
    assert!(!is_classic(&world));
}

#[test]
fn the_policy_may_forbid_either_way() {
    for (can_upgrade, can_downgrade) in [(false, true), (true, false)] {
        let mut settings = GroupSettings::for_tests();
        settings.consumer.can_upgrade = can_upgrade;
        settings.consumer.can_downgrade = can_downgrade;
        let mut world = World::with(settings);
        world.set_topic("flights", 4);
        let mut old = classic_group(&mut world);
        let mut new = Consumer::new("new", &["flights"]);
        let joined = new.beat(&mut world);
        if !can_upgrade {
            assert_eq!(joined, Err(GroupError::GroupIdNotFound));
            assert!(is_classic(&world));
            continue;
        }
        old[0].rejoin(&mut world);
        new.leave(&mut world, -1).expect("a member");
        assert!(!is_classic(&world), "it stays what it is");
    }
}

#[test]
fn a_group_that_assigns_by_itself_is_not_changed_over() {
    let mut world = world();
    // What these members have can't be read: it isn't of consumers.
    world.stable(2);
    let mut new = Consumer::new("new", &["flights"]);
    assert_eq!(new.beat(&mut world), Err(GroupError::GroupIdNotFound));
    assert!(is_classic(&world));
}

#[test]
fn an_empty_group_takes_either_protocol() {
    let mut world = world();
    let mut new = [Consumer::new("new", &["flights"])];
    settle(&mut world, &mut new);
    new[0].leave(&mut world, -1).expect("a member");
    let joined = world.stable(1).remove(0);
    assert!(is_classic(&world));
    assert_eq!(world.leave(&joined.member, None), Ok(()));
    settle(&mut world, &mut new);
    assert!(!is_classic(&world));
    assert_apart(&new);
    let reloaded = world.reloaded();
    assert!(reloaded.groups.is_empty() && reloaded.consumers.contains_key(GROUP));
}

#[test]
fn a_classic_member_that_does_not_join_again_in_time_is_out() {
    let mut world = world();
    let old = classic_group(&mut world);
    let mut new = [Consumer::new("new", &["flights"])];
    new[0].beat(&mut world).expect("a member");
    for _ in 0..8 {
        for member in &old {
            let _ = member.heartbeat(&mut world);
        }
        world.wait(8_000);
        new[0].beat(&mut world).expect("a member");
        new[0].settle();
    }
    assert_eq!(old[0].heartbeat(&mut world), Err(GroupError::UnknownMemberId));
    settle(&mut world, &mut new);
    assert_eq!(new[0].count(), 4);
}

#[test]
fn a_classic_member_leaves_and_a_static_one_is_taken_over_by_either_protocol() {
    let mut world = world();
    let mut new =
        [Consumer { instance: Some("i".to_owned()), ..Consumer::new("new", &["flights"]) }];
    settle(&mut world, &mut new);
    // The same static member comes back with the classic protocol: nobody is left with the other.
    let ticket = world.join_static("i");
    let joined = world.joined(ticket);
    assert_eq!(joined.error, None);
    assert!(is_classic(&world));
    let mut again =
        Consumer { instance: Some("i".to_owned()), ..Consumer::new("again", &["flights"]) };
    again.beat(&mut world).expect("it takes the place of a classic member");
    assert!(!is_classic(&world));
    again.settle();
    assert_eq!(again.count(), 4);
    assert_eq!(world.leave("", Some("i")), Ok(()));
    assert_eq!(world.describe_consumers().map(|it| it.state), Some("Empty"));
}

/// What doesn't fit a record is refused before anything has changed: a log that refuses it would
/// have the coordinator load its whole partition again.
#[test]
fn what_fits_no_record_is_refused_and_keeps_a_group_from_changing_over() {
    const LIMIT: u64 = 2_000;
    // Alone it fits a record, two of them don't.
    let long = "t".repeat(900);
    let join = |world: &mut World, id: &str, copies: usize| {
        let said = vec![("range".to_owned(), subscription(&[&long])); copies];
        let join = Join { protocols: said, needs_id: false, ..world.join_request(id) };
        let ticket = world.send(Request::Join(join));
        world.joined(ticket)
    };
    let mut world = world();
    world.machine.limit_batches(ByteCount(LIMIT));
    let mut new = Consumer::new("new", &["flights"]);
    new.beat(&mut world).expect("a member");
    let logged = world.log.len();
    assert_eq!(join(&mut world, "", 3).error, Some(GroupError::UnknownServerError));
    assert_eq!(world.log.len(), logged);
    let ids = [(); 2].map(|()| {
        let joined = join(&mut world, "", 1);
        assert_eq!(joined.error, None);
        joined.member
    });
    // The last member with the consumer protocol leaves; the others' record would be too large.
    new.epoch = -1;
    world.beat(new.request()).expect("it leaves");
    assert!(!is_classic(&world));
    assert_eq!(world.leave(&ids[0], None), Ok(()));
    assert!(is_classic(&world), "one of them fits");
    // A classic member may say more than one record holds, but not become one of the other kind.
    let refused = join(&mut world, &ids[1], 3).error;
    assert_eq!(refused, None);
    let back = Consumer::new("back", &["flights"]);
    assert_eq!(world.beat(back.request()), Err(GroupError::UnknownServerError));
    assert!(is_classic(&world));
}
