//! A group coordinator with a clock that is set by hand and a log that never fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::coordinator::group::answer::{Answer, Joined, Synced};
use crate::coordinator::group::machine::GroupOutput;
use crate::coordinator::group::request::{
    Client, Commit, Fetch, Identity, Join, Leave, NewOffset, Request, Sync, WantedOffset,
};
use crate::coordinator::group::{
    GroupContext, GroupCoordinator, GroupError, GroupSettings, Topics,
};
use crate::coordinator::{Coordinator, Entry, Origin, Record, Ticket, Write};
use crate::log::producers::Marker;
use crate::units::{ProducerEpoch, ProducerId, Timestamp, TopicId};

pub const GROUP: &str = "g";

/// Topics by name.
#[derive(Clone, Default, Debug)]
pub struct TopicTable {
    version: u64,
    topics: BTreeMap<String, (TopicId, u32)>,
    made: u8,
    /// By group and name.
    configs: BTreeMap<(String, String), i32>,
}

impl TopicTable {
    fn set(&mut self, name: &str, partitions: u32) {
        self.version += 1;
        let known = self.topics.get(name).map(|(id, _)| *id);
        let id = known.unwrap_or_else(|| {
            self.made = self.made.wrapping_add(1);
            TopicId([self.made; 16])
        });
        self.topics.insert(name.to_owned(), (id, partitions));
    }

    fn remove(&mut self, name: &str) -> Option<TopicId> {
        self.version += 1;
        self.topics.remove(name).map(|(id, _)| id)
    }
}

impl Topics for TopicTable {
    fn version(&self) -> u64 {
        self.version
    }

    fn by_name(&self, name: &str) -> Option<(TopicId, u32)> {
        self.topics.get(name).copied()
    }

    fn by_id(&self, id: TopicId) -> Option<(&str, u32)> {
        let found = self.topics.iter().find(|(_, topic)| topic.0 == id);
        found.map(|(name, (_, partitions))| (name.as_str(), *partitions))
    }

    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.topics.keys().map(String::as_str))
    }

    fn group_config(&self, group: &str, name: &str) -> Option<i32> {
        self.configs.get(&(group.to_owned(), name.to_owned())).copied()
    }
}

fn context(settings: &GroupSettings, topics: &TopicTable) -> GroupContext {
    GroupContext { settings: settings.clone(), topics: Arc::new(topics.clone()) }
}

/// What stands in the log.
#[derive(Clone, Debug)]
pub enum Logged {
    Record(Record, Origin),
    Marker(ProducerId, bool),
}

pub struct World {
    pub machine: GroupCoordinator,
    pub settings: GroupSettings,
    pub now: Timestamp,
    pub log: Vec<Logged>,
    pub answers: BTreeMap<Ticket, Answer>,
    pub asked: u64,
    pub topics: TopicTable,
    ids: u64,
}

impl World {
    pub fn new() -> World {
        World::with(GroupSettings::for_tests())
    }

    pub fn with(settings: GroupSettings) -> World {
        let now = Timestamp(1_000_000);
        let topics = TopicTable::default();
        let mut machine = GroupCoordinator::new(&context(&settings, &topics));
        let output = machine.loaded(now);
        assert!(output.writes.is_empty());
        let (log, answers) = (Vec::new(), BTreeMap::new());
        World { machine, settings, now, log, answers, asked: 0, topics, ids: 0 }
    }

    /// A coordinator that has read the same log.
    pub fn reloaded(&self) -> GroupCoordinator {
        let mut machine = GroupCoordinator::new(&context(&self.settings, &self.topics));
        for (offset, logged) in (0_i64..).zip(&self.log) {
            replay(&mut machine, offset, logged);
        }
        machine
    }

    /// The server was killed and starts again.
    pub fn restart(&mut self) {
        self.machine = self.reloaded();
        let output = self.machine.loaded(self.now);
        self.take(output);
    }

    /// A topic is made, or has so many partitions from now on.
    pub fn set_topic(&mut self, name: &str, partitions: u32) {
        self.topics.set(name, partitions);
        self.machine.configure(&context(&self.settings, &self.topics));
    }

    /// A config of the group is set.
    pub fn set_group_config(&mut self, name: &str, value: i32) {
        self.topics.configs.insert((GROUP.to_owned(), name.to_owned()), value);
        self.machine.configure(&context(&self.settings, &self.topics));
    }

    pub fn topics_count(&self, name: &str) -> u32 {
        self.topics.by_name(name).map_or(0, |(_, partitions)| partitions)
    }

    pub fn topic_id(&self, name: &str) -> Option<TopicId> {
        self.topics.by_name(name).map(|(id, _)| id)
    }

    /// A topic is deleted.
    pub fn drop_topic(&mut self, name: &str) {
        let gone = self.topics.remove(name);
        self.machine.configure(&context(&self.settings, &self.topics));
        if let Some(id) = gone {
            self.ask(Request::TopicsDeleted([(name.to_owned(), id)].into()));
        }
    }

    pub fn take(&mut self, output: GroupOutput) {
        for write in output.writes {
            let logged: Vec<Logged> = match write {
                Write::Records(records) => {
                    records.into_iter().map(|it| Logged::Record(it, Origin::Own)).collect()
                }
                Write::Transactional { producer_id, records, .. } => {
                    let origin = Origin::Transaction(producer_id);
                    let logged = records.into_iter().map(|it| Logged::Record(it, origin));
                    let logged: Vec<_> = logged.collect();
                    logged.iter().for_each(|it| replay(&mut self.machine, 0, it));
                    logged
                }
                Write::Marker(marker) => {
                    let logged = Logged::Marker(marker.producer_id, marker.commits);
                    replay(&mut self.machine, 0, &logged);
                    vec![logged]
                }
            };
            self.log.extend(logged);
        }
        for (ticket, answer) in output.answers {
            assert!(self.answers.insert(ticket, answer).is_none(), "{ticket:?} has two answers");
        }
    }

    pub fn send(&mut self, request: Request) -> Ticket {
        let ticket = Ticket(self.asked);
        self.asked += 1;
        let output = self.machine.handle(ticket, request, self.now);
        self.take(output);
        ticket
    }

    pub fn ask(&mut self, request: Request) -> Answer {
        let ticket = self.send(request);
        self.answers.remove(&ticket).expect("an answer at once")
    }

    /// Time goes on, and whatever is due on the way happens.
    pub fn wait(&mut self, ms: i64) {
        let end = Timestamp(self.now.0 + ms);
        while let Some(due) = self.machine.deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let output = self.machine.expire(self.now);
            assert!(self.machine.deadline().is_none_or(|next| self.now < next));
            self.take(output);
        }
        self.now = end;
    }

    pub fn fresh_id(&mut self) -> String {
        self.ids += 1;
        format!("member-{}", self.ids)
    }

    pub fn join_request(&mut self, member: &str) -> Join {
        Join {
            group: GROUP.to_owned(),
            member: member.to_owned(),
            instance: None,
            client: Client { id: "client".to_owned(), host: "/127.0.0.1".to_owned() },
            fresh_id: self.fresh_id(),
            needs_id: true,
            can_skip_assignment: true,
            protocol_type: "consumer".to_owned(),
            protocols: vec![("range".to_owned(), subscription(&["flights"]))],
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 60_000,
        }
    }

    pub fn joined(&mut self, ticket: Ticket) -> Joined {
        match self.answers.remove(&ticket) {
            Some(Answer::Join(joined)) => joined,
            other => panic!("{other:?} is no answer to a join"),
        }
    }

    pub fn synced(&mut self, ticket: Ticket) -> Result<Synced, GroupError> {
        match self.answers.remove(&ticket) {
            Some(Answer::Sync(synced)) => synced,
            other => panic!("{other:?} is no answer to a sync"),
        }
    }

    /// A dynamic member gets its id.
    pub fn new_id(&mut self) -> String {
        let join = self.join_request("");
        let ticket = self.send(Request::Join(join));
        let joined = self.joined(ticket);
        assert_eq!(joined.error, Some(GroupError::MemberIdRequired));
        joined.member
    }

    /// A dynamic member with its id joins and waits.
    pub fn join(&mut self, member: &str) -> Ticket {
        let join = self.join_request(member);
        self.send(Request::Join(join))
    }

    pub fn join_static(&mut self, instance: &str) -> Ticket {
        let join = Join { instance: Some(instance.to_owned()), ..self.join_request("") };
        self.send(Request::Join(join))
    }

    pub fn sync(&mut self, joined: &Joined) -> Ticket {
        let assign = |member: &crate::coordinator::group::answer::JoinedMember| {
            (member.id.clone(), Bytes::from(format!("of {}", member.id)))
        };
        self.send(Request::Sync(Sync {
            identity: identity(&joined.member, joined.generation),
            protocol_type: joined.protocol_type.clone(),
            protocol: joined.protocol.clone(),
            assignments: joined.members.iter().map(assign).collect(),
        }))
    }

    /// Dynamic members in one generation, the leader first.
    pub fn stable(&mut self, count: usize) -> Vec<Joined> {
        let ids: Vec<String> = (0..count).map(|_| self.new_id()).collect();
        let tickets: Vec<Ticket> = ids.iter().map(|id| self.join(id)).collect();
        self.wait(6_000);
        let mut joined: Vec<Joined> = tickets.into_iter().map(|it| self.joined(it)).collect();
        joined.sort_by_key(|it| it.member != it.leader);
        let syncs: Vec<Ticket> = joined.iter().rev().map(|it| self.sync(it)).collect();
        for ticket in syncs {
            self.synced(ticket).expect("an assignment");
        }
        joined
    }

    pub fn heartbeat(&mut self, joined: &Joined) -> Result<(), GroupError> {
        match self.ask(Request::Heartbeat(identity(&joined.member, joined.generation))) {
            Answer::Heartbeat(outcome) => outcome,
            other => panic!("{other:?} is no answer to a heartbeat"),
        }
    }

    pub fn leave(&mut self, member: &str, instance: Option<&str>) -> Result<(), GroupError> {
        let members = vec![(member.to_owned(), instance.map(str::to_owned))];
        match self.ask(Request::Leave(Leave { group: GROUP.to_owned(), members })) {
            Answer::Leave(outcomes) => outcomes[0],
            other => panic!("{other:?} is no answer to a leave"),
        }
    }

    pub fn commit(&mut self, identity: Identity, offset: i64) -> Result<(), GroupError> {
        let commit = Commit {
            identity,
            knows_group_errors: true,
            retention_ms: -1,
            offsets: vec![new_offset("flights", 0, offset)],
        };
        match self.ask(Request::Commit(commit)) {
            Answer::Commit(outcomes) => outcomes.and_then(|it| it[0]),
            other => panic!("{other:?} is no answer to a commit"),
        }
    }

    pub fn fetch(&mut self, require_stable: bool) -> Result<Option<i64>, GroupError> {
        let wanted =
            WantedOffset { topic: "flights".into(), topic_id: TopicId::ZERO, partition: 0 };
        let group = GROUP.to_owned();
        let wanted = Some(vec![wanted]);
        let fetch = Fetch { group, member: None, wanted, require_stable };
        match self.ask(Request::Fetch(fetch)) {
            Answer::Fetch(Ok(mut fetched)) => {
                let committed = fetched.remove(0).committed;
                committed.map(|it| it.map(|it| it.offset))
            }
            other => panic!("{other:?} is no answer to a fetch"),
        }
    }
}

fn replay(machine: &mut GroupCoordinator, offset: i64, logged: &Logged) {
    match logged {
        Logged::Record(Record { key, value }, origin) => {
            let entry = Entry { key, value: value.as_deref(), origin: *origin, offset };
            machine.replay(entry).expect("it reads what it has written");
        }
        Logged::Marker(producer_id, commits) => machine.replay_marker(*producer_id, *commits),
    }
}

pub fn identity(member: &str, generation: i32) -> Identity {
    Identity { group: GROUP.to_owned(), member: member.to_owned(), instance: None, generation }
}

pub fn new_offset(topic: &str, partition: i32, offset: i64) -> NewOffset {
    NewOffset {
        topic: topic.to_owned(),
        topic_id: TopicId::ZERO,
        partition,
        offset,
        leader_epoch: -1,
        metadata: None,
    }
}

pub fn marker(producer_id: ProducerId, commits: bool) -> Marker {
    Marker {
        producer_id,
        epoch: ProducerEpoch(0),
        raises_epoch: false,
        coordinator_epoch: 0,
        commits,
    }
}

/// What a consumer of these topics says about itself.
pub fn subscription(topics: &[&str]) -> Bytes {
    let mut bytes = vec![0, 0];
    bytes.extend_from_slice(&i32::try_from(topics.len()).expect("few").to_be_bytes());
    for topic in topics {
        bytes.extend_from_slice(&i16::try_from(topic.len()).expect("short").to_be_bytes());
        bytes.extend_from_slice(topic.as_bytes());
    }
    bytes.extend_from_slice(&[0xff; 4]);
    bytes.into()
}
