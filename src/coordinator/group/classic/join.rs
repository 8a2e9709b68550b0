//! JoinGroup.

use std::rc::Rc;

use bytes::Bytes;

use crate::coordinator::Ticket;
use crate::coordinator::group::answer::{Answer, Joined};
use crate::coordinator::group::classic::group::{Member, State, said_bytes};
use crate::coordinator::group::classic::turn::Turn;
use crate::coordinator::group::error::GroupError;
use crate::coordinator::group::request::Join;
use crate::coordinator::group::settings::NEW_MEMBER_TIMEOUT_MS;
use crate::format::group_records::MemberMetadata;

/// How many protocols clients have at most; they have more than one while a group moves from one to
/// another.
const PROTOCOLS_OF_A_MEMBER: usize = 4;

impl Turn<'_> {
    /// A member joins (`classicGroupJoinToClassicGroup`).
    pub fn join(&mut self, ticket: Ticket, join: Join) {
        if !self.accepts(&join.member) {
            let member = join.member.as_str();
            self.group.pending.remove(member);
            return self.refuse_join(ticket, "", GroupError::GroupMaxSizeReached);
        }
        if let Err(error) = self.fits(&join) {
            return self.refuse_join(ticket, &join.member, error);
        }
        if !self.group.supports(&join.protocol_type, &join.protocols) {
            let error = GroupError::InconsistentGroupProtocol;
            return self.refuse_join(ticket, &join.member, error);
        }
        match (join.member.is_empty(), &join.instance) {
            (true, Some(instance)) => match self.group.instance(instance) {
                Some(old) => self.join_replacing(ticket, &old, join),
                None => self.add_member(ticket, join.fresh_id.as_str().into(), join),
            },
            (true, None) if join.needs_id => self.give_id(ticket, &join),
            (true, None) => self.add_member(ticket, join.fresh_id.as_str().into(), join),
            (false, _) => self.join_known(ticket, join),
        }
    }

    /// Whether the group has room for the member (`acceptJoiningMember`).
    fn accepts(&self, member: &str) -> bool {
        let limit = self.settings.members_max;
        let known = self.group.member(member);
        match self.group.state() {
            State::Empty => true,
            State::Preparing { .. } => {
                known.is_some_and(Member::is_joining) || self.group.joining() < limit
            }
            State::Completing | State::Stable => known.is_some() || self.group.len() < limit,
        }
    }

    /// Whether the group may keep what the member says of itself. In Kafka nothing bounds it but
    /// the record of a generation, which has it for one protocol of each member: the SyncGroup that
    /// would write a larger one is refused. A group whose record fits a batch fits here, too, with
    /// as many protocols as clients have.
    fn fits(&self, join: &Join) -> Result<(), GroupError> {
        let limit = PROTOCOLS_OF_A_MEMBER * self.settings.write_bytes_max;
        let own = said_bytes(&join.protocols);
        let instance = join.instance.as_deref().filter(|_| join.member.is_empty());
        let former = instance.and_then(|it| self.group.instance(it));
        let former = self.group.member(former.as_deref().unwrap_or(&join.member));
        let before = former.map_or(0, |it| said_bytes(&it.protocols));
        if limit < own {
            return Err(GroupError::UnknownServerError);
        }
        match self.group.said_bytes() - before + own <= limit {
            true => Ok(()),
            false => Err(GroupError::GroupMaxSizeReached),
        }
    }

    /// A new member gets its id, and a session's time to come back with it.
    fn give_id(&mut self, ticket: Ticket, join: &Join) {
        if self.group.pending.len() >= self.settings.members_max {
            return self.refuse_join(ticket, "", GroupError::GroupMaxSizeReached);
        }
        let id: Rc<str> = join.fresh_id.as_str().into();
        self.group.pending.insert(id.clone());
        self.start_session(&id, i64::from(join.session_timeout_ms));
        self.refuse_join(ticket, &id, GroupError::MemberIdRequired);
    }

    fn add_member(&mut self, ticket: Ticket, id: Rc<str>, join: Join) {
        if self.group.len() == 0 {
            self.group.protocol_type = Some(join.protocol_type);
        }
        let metadata = MemberMetadata {
            id: id.to_string(),
            instance: join.instance,
            client_id: join.client.id,
            client_host: join.client.host,
            rebalance_timeout_ms: join.rebalance_timeout_ms,
            session_timeout_ms: join.session_timeout_ms,
            subscription: Bytes::new(),
            assignment: Bytes::new(),
        };
        let mut member = Member::new(id.clone(), metadata, join.protocols);
        member.is_new = true;
        if self.group.state() == (State::Preparing { initial: true }) {
            self.group.has_newcomer = true;
        }
        self.group.add(member, Some(ticket));
        self.start_session(&id, NEW_MEMBER_TIMEOUT_MS);
        self.rebalance_or_complete();
    }

    /// A member that names its id.
    fn join_known(&mut self, ticket: Ticket, join: Join) {
        let id = join.member.clone();
        if self.group.pending.contains(id.as_str()) {
            if join.instance.is_some() {
                // Static members never wait for an id: this one is somebody else's.
                return self.refuse_join(ticket, &id, GroupError::UnknownMemberId);
            }
            return self.add_member(ticket, id.as_str().into(), join);
        }
        if let Err(error) = self.group.check_member(&id, join.instance.as_deref()) {
            return self.refuse_join(ticket, &id, error);
        }
        let member = self.group.member(&id).expect("it was checked");
        let is_same = member.protocols == join.protocols;
        match self.group.state() {
            State::Completing if is_same => {
                let joined = self.joined(&id);
                self.answer(ticket, Answer::Join(joined));
            }
            State::Stable if is_same && !self.group.is_leader(&id) => {
                let joined = self.joined(&id);
                self.answer(ticket, Answer::Join(joined));
            }
            State::Preparing { .. } | State::Completing | State::Stable => {
                self.join_again(ticket, &id, join);
                self.rebalance_or_complete();
            }
            State::Empty => self.refuse_join(ticket, &id, GroupError::UnknownMemberId),
        }
    }

    fn join_again(&mut self, ticket: Ticket, id: &str, join: Join) {
        let changed = (join.protocols, join.rebalance_timeout_ms, join.session_timeout_ms);
        // The client has given up waiting for its earlier join.
        if let Some(before) = self.group.update(id, changed, ticket) {
            self.refuse_join(before, id, GroupError::RebalanceInProgress);
        }
    }

    /// A static member comes back without its id: it takes the place of its former self
    /// (`updateStaticMemberThenRebalanceOrCompleteJoin`).
    fn join_replacing(&mut self, ticket: Ticket, old: &str, join: Join) {
        let can_skip = join.can_skip_assignment;
        let former_leader = self.group.leader_text();
        let id: Rc<str> = join.fresh_id.as_str().into();
        let (joining, syncing) = self.group.replace(old, &id);
        if let Some(ticket) = joining {
            self.refuse_join(ticket, old, GroupError::FencedInstanceId);
        }
        if let Some(ticket) = syncing {
            self.answer(ticket, Answer::Sync(Err(GroupError::FencedInstanceId)));
        }
        self.forget_session(old);
        self.heard_of(&id);
        self.join_again(ticket, &id, join);
        match self.group.state() {
            State::Stable if self.group.protocol.as_ref() == Some(&self.group.elect_protocol()) => {
                self.group.take_joining(&id);
                self.write_group();
                let joined = self.joined(&id);
                let answer = match can_skip {
                    true => Joined { skip_assignment: self.group.is_leader(&id), ..joined },
                    // It must not believe that it leads, or it would assign without a rebalance.
                    false => Joined { leader: former_leader, members: Vec::new(), ..joined },
                };
                self.answer(ticket, Answer::Join(answer));
            }
            State::Stable | State::Completing => self.prepare_rebalance(),
            State::Preparing { .. } => self.complete_if_due(),
            State::Empty => unreachable!("a group with a static member is not empty"),
        }
    }

    fn forget_session(&mut self, member: &str) {
        let group = self.group.id.clone();
        self.timers
            .cancel(&crate::coordinator::group::classic::Timer::Session(group, member.into()));
    }
}
