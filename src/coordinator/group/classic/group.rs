//! A classic group: its members and what follows from them.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;

use crate::coordinator::group::answer::{DescribedGroup, DescribedMember, JoinedMember};
use crate::coordinator::group::classic::turn::group_record;
use crate::coordinator::group::error::GroupError;
use crate::coordinator::{Record, Ticket};
use crate::format::consumer_protocol;
use crate::format::group_records::{GroupMetadata, MemberMetadata};
use crate::units::Timestamp;

/// The protocol type of consumers.
pub const CONSUMER: &str = "consumer";

/// What the group is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nobody is in it.
    Empty,
    /// Members are joining.
    Preparing {
        /// Whether it was empty before: the first ones wait for others.
        initial: bool,
    },
    /// All have joined; the leader is assigning.
    Completing,
    /// Everybody has an assignment.
    Stable,
}

impl State {
    /// Kafka's word.
    pub fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::Preparing { .. } => "PreparingRebalance",
            State::Completing => "CompletingRebalance",
            State::Stable => "Stable",
        }
    }
}

/// A member of a classic group.
#[derive(Clone, Debug)]
pub struct Member {
    pub id: Rc<str>,
    pub instance: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    /// The preferred one first.
    pub protocols: Vec<(String, Bytes)>,
    pub assignment: Bytes,
    /// Its JoinGroup, while that waits.
    joining: Option<Ticket>,
    /// Its SyncGroup, while that waits.
    pub syncing: Option<Ticket>,
    /// It has never been in a generation.
    pub is_new: bool,
}

impl Member {
    /// A member as a request describes it.
    pub fn new(id: Rc<str>, metadata: MemberMetadata, protocols: Vec<(String, Bytes)>) -> Member {
        Member {
            id,
            instance: metadata.instance,
            client_id: metadata.client_id,
            client_host: metadata.client_host,
            rebalance_timeout_ms: metadata.rebalance_timeout_ms,
            session_timeout_ms: metadata.session_timeout_ms,
            protocols,
            assignment: metadata.assignment,
            joining: None,
            syncing: None,
            is_new: false,
        }
    }

    /// Whether its join waits.
    pub fn is_joining(&self) -> bool {
        self.joining.is_some()
    }

    /// What it said about itself for a protocol.
    pub fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|(name, _)| name == protocol);
        found.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
    }

    /// Whether it may be silent: its request waits here.
    pub fn is_waiting(&self) -> bool {
        !self.is_new && (self.joining.is_some() || self.syncing.is_some())
    }
}

/// Bytes of what a member says of itself, for all its protocols.
pub fn said_bytes(protocols: &[(String, Bytes)]) -> usize {
    protocols.iter().map(|(name, said)| name.len() + said.len()).sum()
}

/// A classic group.
#[derive(Clone, Debug)]
pub struct ClassicGroup {
    pub id: Rc<str>,
    state: State,
    /// Since when it has its state; none when that isn't known.
    pub state_timestamp: Timestamp,
    pub generation: i32,
    pub protocol_type: Option<String>,
    pub protocol: Option<String>,
    pub leader: Option<Rc<str>>,
    members: BTreeMap<Rc<str>, Member>,
    /// Member ids by instance id.
    instances: BTreeMap<String, Rc<str>>,
    /// Ids that were given out to members which have not joined with them yet.
    pub pending: BTreeSet<Rc<str>>,
    /// Members of this generation that have not asked for their assignment yet.
    pub unsynced: BTreeSet<Rc<str>>,
    /// For how many members each protocol is right; none is listed for nobody.
    supported: BTreeMap<String, usize>,
    /// Bytes of what the members say of themselves.
    said_bytes: usize,
    /// How many members' joins wait.
    joining: usize,
    /// Topics that the members subscribe to, when that is known.
    topics: Option<BTreeSet<String>>,
    /// Whether somebody came while the first ones wait for others.
    pub has_newcomer: bool,
    /// How long the first ones wait this time, and may wait further.
    pub initial_wait_ms: (i64, i64),
}

impl ClassicGroup {
    /// A group without members.
    pub fn new(id: Rc<str>, now: Timestamp) -> ClassicGroup {
        ClassicGroup {
            id,
            state: State::Empty,
            state_timestamp: now,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            pending: BTreeSet::new(),
            unsynced: BTreeSet::new(),
            supported: BTreeMap::new(),
            said_bytes: 0,
            joining: 0,
            topics: None,
            has_newcomer: false,
            initial_wait_ms: (0, 0),
        }
    }

    /// A group as its record says.
    pub fn from_record(id: Rc<str>, record: GroupMetadata) -> ClassicGroup {
        let GroupMetadata { protocol_type, generation, .. } = record;
        let GroupMetadata { protocol, leader, state_timestamp, members, .. } = record;
        let mut group = ClassicGroup::new(id, state_timestamp);
        group.generation = generation;
        group.protocol_type = Some(protocol_type).filter(|it| !it.is_empty());
        group.protocol = protocol.clone();
        let name = protocol.unwrap_or_default();
        if !members.is_empty() {
            group.state = State::Stable;
        }
        for member in members {
            let protocols = vec![(name.clone(), member.subscription.clone())];
            group.add(Member::new(member.id.as_str().into(), member, protocols), None);
        }
        let leader = leader.map(Rc::from).filter(|id: &Rc<str>| group.has(id));
        if leader.is_some() {
            group.leader = leader;
        }
        group.topics = group.subscribed_topics();
        group
    }

    /// A stable group whose members had another protocol; all have one of their protocols.
    pub fn converted(
        id: Rc<str>,
        generation: i32,
        members: Vec<Member>,
        now: Timestamp,
    ) -> ClassicGroup {
        let mut group = ClassicGroup::new(id, now);
        group.generation = generation;
        group.protocol_type = Some(CONSUMER.to_owned());
        group.state = State::Stable;
        members.into_iter().for_each(|member| group.add(member, None));
        group.protocol = Some(group.elect_protocol());
        group.topics = group.subscribed_topics();
        group
    }

    /// As a record; the members have the assignments of this generation.
    pub fn record(&self) -> GroupMetadata {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let member = |member: &Member| MemberMetadata {
            id: member.id.to_string(),
            instance: member.instance.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            session_timeout_ms: member.session_timeout_ms,
            subscription: member.metadata(protocol),
            assignment: member.assignment.clone(),
        };
        GroupMetadata {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.as_deref().map(str::to_owned),
            state_timestamp: self.state_timestamp,
            members: self.members.values().map(member).collect(),
        }
    }

    /// The same for the log.
    pub fn as_record(&self) -> Record {
        group_record(&self.id, &self.record())
    }

    pub fn state(&self) -> State {
        self.state
    }

    pub fn enter(&mut self, state: State, now: Timestamp) {
        self.state = state;
        self.state_timestamp = now;
    }

    pub fn has(&self, member: &str) -> bool {
        self.members.contains_key(member)
    }

    pub fn member(&self, id: &str) -> Option<&Member> {
        self.members.get(id)
    }

    /// To change what nothing else follows from.
    pub fn member_mut(&mut self, id: &str) -> Option<&mut Member> {
        self.members.get_mut(id)
    }

    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    pub fn member_ids(&self) -> Vec<Rc<str>> {
        self.members.keys().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn joining(&self) -> usize {
        self.joining
    }

    pub fn is_leader(&self, member: &str) -> bool {
        self.leader.as_deref() == Some(member)
    }

    pub fn leader_text(&self) -> String {
        self.leader.as_deref().unwrap_or_default().to_owned()
    }

    /// The member with that instance id.
    pub fn instance(&self, instance: &str) -> Option<Rc<str>> {
        self.instances.get(instance).cloned()
    }

    /// Whether everybody has joined who is or may become a member.
    pub fn have_all_joined(&self) -> bool {
        self.members.len() == self.joining && self.pending.is_empty()
    }

    /// The longest rebalance timeout of a member.
    pub fn rebalance_timeout_ms(&self) -> i32 {
        self.members.values().map(|it| it.rebalance_timeout_ms).max().unwrap_or(0)
    }

    /// Adds a member whose join waits, or that was in the group before a restart.
    pub fn add(&mut self, mut member: Member, joining: Option<Ticket>) {
        assert!(!self.has(&member.id), "a member joins once");
        if let Some(instance) = &member.instance {
            let before = self.instances.insert(instance.clone(), member.id.clone());
            assert!(before.is_none(), "an instance id belongs to one member");
        }
        self.leader.get_or_insert_with(|| member.id.clone());
        self.pending.remove(&member.id);
        self.count_protocols(&member.protocols, true);
        member.joining = joining;
        self.joining += usize::from(member.is_joining());
        self.members.insert(member.id.clone(), member);
    }

    /// Takes a member out, or an id that was given out. Another member leads if it did.
    pub fn remove(&mut self, id: &str) -> Option<Member> {
        self.pending.remove(id);
        self.unsynced.remove(id);
        let member = self.members.remove(id)?;
        self.count_protocols(&member.protocols, false);
        self.joining -= usize::from(member.is_joining());
        if let Some(instance) = &member.instance {
            self.instances.remove(instance);
        }
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
        Some(member)
    }

    /// Gives the place of a static member, with its assignment, to another id. Returns the requests
    /// of the old one that wait.
    pub fn replace(&mut self, old: &str, new: &Rc<str>) -> (Option<Ticket>, Option<Ticket>) {
        let was_leader = self.is_leader(old);
        let mut member = self.remove(old).expect("an instance id names a member");
        let waiting = (member.joining.take(), member.syncing.take());
        member.id = new.clone();
        member.is_new = false;
        self.add(member, None);
        if was_leader {
            self.leader = Some(new.clone());
        }
        waiting
    }

    /// A member joins again. Returns the ticket of an earlier join that still waited.
    pub fn update(
        &mut self,
        id: &str,
        (protocols, rebalance_timeout_ms, session_timeout_ms): (Vec<(String, Bytes)>, i32, i32),
        joining: Ticket,
    ) -> Option<Ticket> {
        let member = self.members.get_mut(id).expect("it was looked up");
        let old = std::mem::replace(&mut member.protocols, protocols.clone());
        member.rebalance_timeout_ms = rebalance_timeout_ms;
        member.session_timeout_ms = session_timeout_ms;
        let before = member.joining.replace(joining);
        self.joining += usize::from(before.is_none());
        self.count_protocols(&old, false);
        self.count_protocols(&protocols, true);
        before
    }

    /// The member's join is answered now.
    pub fn take_joining(&mut self, id: &str) -> Option<Ticket> {
        let ticket = self.members.get_mut(id)?.joining.take();
        self.joining -= usize::from(ticket.is_some());
        ticket
    }

    /// Bytes of what the members say of themselves, for all their protocols.
    pub fn said_bytes(&self) -> usize {
        self.said_bytes
    }

    fn count_protocols(&mut self, protocols: &[(String, Bytes)], more: bool) {
        let bytes = said_bytes(protocols);
        self.said_bytes = if more { self.said_bytes + bytes } else { self.said_bytes - bytes };
        // A name that a member repeats counts once.
        let names: BTreeSet<&String> = protocols.iter().map(|(name, _)| name).collect();
        for name in names {
            let count = self.supported.entry(name.clone()).or_default();
            *count = if more { *count + 1 } else { *count - 1 };
            if *count == 0 {
                self.supported.remove(name);
            }
        }
    }

    /// Whether a member with these protocols fits the others.
    pub fn supports(&self, protocol_type: &str, protocols: &[(String, Bytes)]) -> bool {
        if self.state == State::Empty {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        let for_all = |(name, _): &(String, Bytes)| {
            self.supported.get(name).copied().unwrap_or(0) == self.members.len()
        };
        self.protocol_type.as_deref() == Some(protocol_type) && protocols.iter().any(for_all)
    }

    /// The protocol that most members prefer of those that all have.
    pub fn elect_protocol(&self) -> String {
        let all = self.members.len();
        let is_candidate = |name: &String| self.supported.get(name) == Some(&all);
        let mut votes: BTreeMap<&String, usize> = BTreeMap::new();
        for member in self.members.values() {
            let vote = member.protocols.iter().map(|(name, _)| name).find(|it| is_candidate(it));
            let vote = vote.expect("a member that joins has a protocol that all have");
            *votes.entry(vote).or_default() += 1;
        }
        let most = votes.into_iter().max_by_key(|(_, count)| *count);
        most.expect("the group has members").0.clone()
    }

    /// The next generation begins: with the members that there are, or as an empty group.
    pub fn begin_generation(&mut self, now: Timestamp) {
        // After some thousand million rebalances it begins anew.
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.unsynced.clear();
        if self.members.is_empty() {
            self.protocol = None;
            self.leader = None;
            self.enter(State::Empty, now);
        } else {
            self.protocol = Some(self.elect_protocol());
            self.enter(State::Completing, now);
        }
        self.topics = self.subscribed_topics();
    }

    /// Another member leads when the leader has not joined; `false` when nobody has.
    pub fn elect_joined_leader(&mut self) -> bool {
        let Some(leader) = self.leader.as_ref().and_then(|it| self.members.get(it)) else {
            return false;
        };
        if leader.is_joining() {
            return true;
        }
        match self.members.values().find(|it| it.is_joining()) {
            Some(member) => {
                self.leader = Some(member.id.clone());
                true
            }
            None => false,
        }
    }

    /// What the leader sees of the members.
    pub fn joined_members(&self) -> Vec<JoinedMember> {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let member = |member: &Member| JoinedMember {
            id: member.id.to_string(),
            instance: member.instance.clone(),
            metadata: member.metadata(protocol),
        };
        self.members.values().map(member).collect()
    }

    /// Whether a request comes from the member that it names.
    pub fn check_member(&self, id: &str, instance: Option<&str>) -> Result<(), GroupError> {
        if let Some(instance) = instance {
            match self.instances.get(instance) {
                None => return Err(GroupError::UnknownMemberId),
                Some(current) if &**current != id => return Err(GroupError::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.has(id) { Ok(()) } else { Err(GroupError::UnknownMemberId) }
    }

    pub fn is_consumer(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER)
    }

    /// Whether members consume the topic; when that can't be known, consumers are taken to.
    pub fn is_subscribed(&self, topic: &str) -> bool {
        match &self.topics {
            Some(topics) => topics.contains(topic),
            None => self.is_consumer(),
        }
    }

    fn subscribed_topics(&self) -> Option<BTreeSet<String>> {
        if !self.is_consumer() {
            return None;
        }
        let mut topics = BTreeSet::new();
        if self.members.is_empty() {
            return Some(topics);
        }
        let protocol = self.protocol.as_deref()?;
        for member in self.members.values() {
            topics.extend(consumer_protocol::subscribed_topics(&member.metadata(protocol)).ok()?);
        }
        Some(topics)
    }

    /// Since when an offset of the group counts as unused, given when it was committed; `None` when
    /// it is in use (`ClassicGroup#offsetExpirationCondition`).
    pub fn unused_since(&self, committed: Timestamp) -> Option<Timestamp> {
        match (&self.protocol_type, self.state) {
            (None, _) => Some(committed),
            (Some(_), State::Empty) if self.state_timestamp == Timestamp::NONE => Some(committed),
            (Some(_), State::Empty) => Some(self.state_timestamp),
            (Some(_), State::Stable) if self.is_consumer() && self.topics.is_some() => {
                Some(committed)
            }
            (Some(_), _) => None,
        }
    }

    pub fn describe(&self) -> DescribedGroup {
        let is_stable = self.state == State::Stable;
        let protocol = self.protocol.clone().filter(|_| is_stable).unwrap_or_default();
        let member = |member: &Member| DescribedMember {
            id: member.id.to_string(),
            instance: member.instance.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: if is_stable { member.metadata(&protocol) } else { Bytes::new() },
            assignment: if is_stable { member.assignment.clone() } else { Bytes::new() },
        };
        DescribedGroup {
            state: self.state.name(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            members: self.members.values().map(member).collect(),
            protocol,
        }
    }

    /// Everything that follows from something else does.
    #[cfg(test)]
    pub fn check(&self) {
        let joining = self.members.values().filter(|it| it.is_joining()).count();
        assert_eq!(self.joining, joining);
        let mut supported: BTreeMap<String, usize> = BTreeMap::new();
        for member in self.members.values() {
            let names: BTreeSet<_> = member.protocols.iter().map(|(name, _)| name).collect();
            names.into_iter().for_each(|it| *supported.entry(it.clone()).or_default() += 1);
        }
        assert_eq!(self.supported, supported);
        let said = self.members.values().map(|it| said_bytes(&it.protocols));
        assert_eq!(self.said_bytes, said.sum::<usize>());
        let instances: BTreeMap<_, _> = self
            .members
            .values()
            .filter_map(|it| Some((it.instance.clone()?, it.id.clone())))
            .collect();
        assert_eq!(self.instances, instances);
        assert!(self.leader.as_ref().is_none_or(|it| self.has(it)), "{self:?}");
        assert_eq!(self.leader.is_none(), self.members.is_empty(), "{self:?}");
        assert!(self.unsynced.iter().all(|it| self.has(it)));
        assert!(self.pending.iter().all(|it| !self.has(it)));
        match self.state {
            State::Empty => assert!(self.members.is_empty()),
            State::Preparing { .. } => {}
            State::Completing => assert_eq!(self.joining, 0, "{self:?}"),
            State::Stable => {
                assert!(self.members.values().all(|it| it.syncing.is_none()), "{self:?}");
                assert_eq!(self.joining, 0, "{self:?}");
            }
        }
    }
}
