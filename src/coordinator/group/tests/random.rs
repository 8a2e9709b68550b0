//! Random histories: members join, sync, leave, fall silent; offsets are committed with and without
//! transactions; the server is killed. Whatever happens, the state is consistent with itself and
//! with the log, and every request is answered once.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::world::{GROUP, World, identity, marker, new_offset};
use crate::coordinator::Ticket;
use crate::coordinator::group::answer::{Answer, Joined};
use crate::coordinator::group::classic::State;
use crate::coordinator::group::request::{Commit, Leave, Request, Sync, TransactionalCommit};
use crate::coordinator::group::{GroupCoordinator, GroupError};
use crate::units::{ProducerEpoch, ProducerId};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A new member asks for its id, or a known one joins.
    Join(usize),
    JoinStatic(usize),
    Sync(usize),
    Heartbeat(usize),
    Leave(usize),
    Commit(usize, i64),
    CommitTransactional(usize, i64),
    EndTransaction(usize, bool),
    Delete,
    Wait(i64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_usize..6).prop_map(Step::Join),
        2 => (0_usize..3).prop_map(Step::JoinStatic),
        6 => (0_usize..6).prop_map(Step::Sync),
        4 => (0_usize..6).prop_map(Step::Heartbeat),
        1 => (0_usize..6).prop_map(Step::Leave),
        3 => (0_usize..6, 0_i64..100).prop_map(|(member, offset)| Step::Commit(member, offset)),
        2 => (0_usize..3, 0_i64..100).prop_map(|(it, at)| Step::CommitTransactional(it, at)),
        2 => (0_usize..3, any::<bool>()).prop_map(|(it, done)| Step::EndTransaction(it, done)),
        1 => Just(Step::Delete),
        4 => (1_i64..4_000).prop_map(Step::Wait),
        1 => (4_000_i64..70_000).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

/// The clients, as far as they know.
#[derive(Default)]
struct Clients {
    ids: BTreeMap<usize, String>,
    joined: BTreeMap<usize, Joined>,
    waiting: BTreeMap<Ticket, usize>,
}

impl Clients {
    /// Reads the answers that have come.
    fn read(&mut self, world: &mut World) {
        for (ticket, answer) in std::mem::take(&mut world.answers) {
            let client = self.waiting.remove(&ticket).expect("an answer to a request that waits");
            if let Answer::Join(joined) = answer {
                match joined.error {
                    None => {
                        self.ids.insert(client, joined.member.clone());
                        self.joined.insert(client, joined);
                    }
                    Some(GroupError::MemberIdRequired) => {
                        self.ids.insert(client, joined.member);
                    }
                    Some(_) => {
                        self.ids.remove(&client);
                    }
                }
            }
        }
    }

    fn send(&mut self, world: &mut World, client: usize, request: Request) {
        self.waiting.insert(Ticket(world.asked), client);
        world.send(request);
        self.read(world);
    }

    fn take(&mut self, world: &mut World, step: Step) {
        match step {
            Step::Join(client) => {
                let id = self.ids.get(&client).cloned().unwrap_or_default();
                let join = world.join_request(&id);
                self.send(world, client, Request::Join(join));
            }
            Step::JoinStatic(number) => {
                let mut join = world.join_request("");
                join.instance = Some(format!("instance-{number}"));
                self.send(world, 10 + number, Request::Join(join));
            }
            Step::Sync(client) => {
                let Some(joined) = self.joined.get(&client) else { return };
                let assign = |it: &crate::coordinator::group::answer::JoinedMember| {
                    (it.id.clone(), Bytes::from_static(b"x"))
                };
                let sync = Sync {
                    identity: identity(&joined.member, joined.generation),
                    protocol_type: None,
                    protocol: None,
                    assignments: joined.members.iter().map(assign).collect(),
                };
                self.send(world, client, Request::Sync(sync));
            }
            Step::Heartbeat(client) => {
                let Some(joined) = self.joined.get(&client) else { return };
                let identity = identity(&joined.member, joined.generation);
                self.send(world, client, Request::Heartbeat(identity));
            }
            Step::Leave(client) => {
                let Some(id) = self.ids.remove(&client) else { return };
                let members = vec![(id, None)];
                let leave = Leave { group: GROUP.to_owned(), members };
                self.send(world, client, Request::Leave(leave));
            }
            Step::Commit(..) | Step::CommitTransactional(..) | Step::EndTransaction(..) => {
                self.take_offset(world, step);
            }
            Step::Delete => self.send(world, 0, Request::Delete(GROUP.to_owned())),
            Step::Wait(ms) => {
                world.wait(ms);
                self.read(world);
            }
            Step::Restart => {
                // Whoever waits sees its connection break.
                self.waiting.clear();
                world.restart();
                self.read(world);
            }
        }
    }

    fn take_offset(&mut self, world: &mut World, step: Step) {
        match step {
            Step::Commit(client, offset) => {
                let joined = self.joined.get(&client);
                let who = joined
                    .map_or_else(|| identity("", -1), |it| identity(&it.member, it.generation));
                let commit = Commit {
                    identity: who,
                    knows_group_errors: true,
                    retention_ms: -1,
                    offsets: vec![new_offset("flights", 0, offset)],
                };
                self.send(world, client, Request::Commit(commit));
            }
            Step::CommitTransactional(producer, offset) => {
                let commit = TransactionalCommit {
                    identity: identity("", -1),
                    producer_id: producer_id(producer),
                    producer_epoch: ProducerEpoch(0),
                    offsets: vec![new_offset("flights", 0, offset)],
                };
                self.send(world, producer, Request::CommitTransactional(commit));
            }
            Step::EndTransaction(producer, commits) => {
                let marker = marker(producer_id(producer), commits);
                self.send(world, producer, Request::EndTransaction(marker));
            }
            _ => unreachable!("a step about offsets"),
        }
    }
}

fn producer_id(number: usize) -> ProducerId {
    ProducerId(i64::try_from(number).expect("small"))
}

/// What a restart must not lose.
fn durable(machine: &GroupCoordinator) -> impl PartialEq + std::fmt::Debug + use<> {
    let group = machine.groups.get(GROUP);
    // A rebalance under way is lost: what was stable before is there again, or nothing.
    let settled = group.filter(|it| matches!(it.state(), State::Stable | State::Empty));
    let members = settled.map(|group| {
        let members = group.members().map(|it| (it.id.to_string(), it.assignment.clone()));
        (group.generation, group.protocol.clone(), members.collect::<Vec<_>>())
    });
    let offsets: Vec<_> = machine
        .offsets
        .of_group(GROUP)
        .map(|(partition, committed)| (partition.clone(), committed.clone()))
        .collect();
    let open = machine.offsets.partitions(GROUP);
    (members, offsets, open)
}

fn check(world: &World) {
    world.machine.offsets.check();
    let Some(group) = world.machine.groups.get(GROUP) else { return };
    group.check();
    let has_settled = matches!(group.state(), State::Stable | State::Empty);
    let reloaded = world.reloaded();
    if has_settled {
        // A group that has only given out ids knows no more than its offsets say.
        assert_eq!(format!("{:?}", durable(&reloaded)), format!("{:?}", durable(&world.machine)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_history_is_consistent(steps in proptest::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        let mut clients = Clients::default();
        for step in steps {
            clients.take(&mut world, step);
            check(&world);
        }
        // When nobody does anything any more, everybody is answered and the group is empty.
        world.wait(3_600_000);
        clients.read(&mut world);
        prop_assert!(clients.waiting.is_empty(), "{:?}", clients.waiting);
        if let Some(group) = world.machine.groups.get(GROUP) {
            prop_assert_eq!(group.state(), State::Empty);
        }
    }
}
