//! One event for one classic group: what it may change.

use std::convert::Infallible;
use std::rc::Rc;

use crate::coordinator::group::answer::{Answer, Joined};
use crate::coordinator::group::classic::group::{ClassicGroup, Member, State};
use crate::coordinator::group::error::GroupError;
use crate::coordinator::group::settings::GroupSettings;
use crate::coordinator::{Output, Record, Ticket, Timers};
use crate::format::group_records::{GroupMetadata, Key};
use crate::units::Timestamp;

/// What a group coordinator waits for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// A member of a group is silent.
    Session(Rc<str>, Rc<str>),
    /// A member has not given up what it is to give up.
    Revoke(Rc<str>, Rc<str>),
    /// A member with the classic protocol in a group with the other has not joined again.
    Rejoin(Rc<str>, Rc<str>),
    /// It has not asked for its assignment.
    Resync(Rc<str>, Rc<str>),
    /// The members of a group join.
    Join(Rc<str>),
    /// They ask for their assignments.
    Sync(Rc<str>),
    /// Offsets that nobody uses are looked for.
    Retention,
}

/// One event for one classic group.
pub struct Turn<'a> {
    pub group: &'a mut ClassicGroup,
    pub timers: &'a mut Timers<Timer>,
    pub settings: &'a GroupSettings,
    pub now: Timestamp,
    pub out: &'a mut Output<Answer, Infallible>,
}

impl Turn<'_> {
    pub(super) fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.out.answers.push((ticket, answer));
    }

    pub(super) fn refuse_join(&mut self, ticket: Ticket, member: &str, error: GroupError) {
        self.answer(ticket, Answer::Join(Joined::refused(member, error)));
    }

    /// Writes the group as it is.
    pub(super) fn write_group(&mut self) {
        self.out.write(vec![self.group.as_record()]);
    }

    /// The member was heard of: its session begins anew.
    pub fn heard_of(&mut self, member: &str) {
        if let Some(timeout) = self.group.member(member).map(|it| it.session_timeout_ms) {
            self.start_session(member, i64::from(timeout));
        }
    }

    pub(super) fn start_session(&mut self, member: &str, timeout_ms: i64) {
        let timer = Timer::Session(self.group.id.clone(), member.into());
        self.timers.start(timer, self.now, timeout_ms);
    }

    pub(super) fn start(&mut self, timer: fn(Rc<str>) -> Timer, after_ms: i64) {
        self.timers.start(timer(self.group.id.clone()), self.now, after_ms);
    }

    pub(super) fn cancel(&mut self, timer: fn(Rc<str>) -> Timer) {
        self.timers.cancel(&timer(self.group.id.clone()));
    }

    /// Takes a member out; whatever it waits for is answered.
    pub(super) fn remove(&mut self, id: &str) {
        self.timers.cancel(&Timer::Session(self.group.id.clone(), id.into()));
        let joining = self.group.take_joining(id);
        let member = self.group.remove(id);
        if let Some(ticket) = joining {
            self.refuse_join(ticket, "", GroupError::UnknownMemberId);
        }
        if let Some(Member { syncing: Some(ticket), .. }) = member {
            self.answer(ticket, Answer::Sync(Err(GroupError::UnknownMemberId)));
        }
    }

    /// All timers of the group stop: it is deleted.
    pub fn stop_timers(&mut self) {
        self.cancel(Timer::Join);
        self.cancel(Timer::Sync);
        let ids = self.group.member_ids().into_iter().chain(self.group.pending.iter().cloned());
        for id in ids.collect::<Vec<_>>() {
            self.timers.cancel(&Timer::Session(self.group.id.clone(), id));
        }
    }

    /// Whoever waits is to join again: the group is about to have another protocol.
    pub fn send_away(&mut self) {
        self.stop_timers();
        for id in self.group.member_ids() {
            if let Some(ticket) = self.group.take_joining(&id) {
                self.refuse_join(ticket, &id, GroupError::RebalanceInProgress);
            }
        }
        for id in self.group.member_ids() {
            let member = self.group.member_mut(&id).expect("one of its members");
            if let Some(ticket) = member.syncing.take() {
                self.answer(ticket, Answer::Sync(Err(GroupError::RebalanceInProgress)));
            }
        }
    }

    /// The group has had another protocol: its members' sessions begin, and with `joins_again` they
    /// are to join.
    pub fn converted(&mut self, joins_again: bool) {
        self.write_group();
        for id in self.group.member_ids() {
            self.heard_of(&id);
        }
        if joins_again {
            self.prepare_rebalance();
        }
    }

    /// A member, or an id that was given out, has been silent for too long.
    pub fn session_over(&mut self, member: &str) {
        if self.group.pending.contains(member) {
            self.remove(member);
            self.complete_if_all_joined();
            return;
        }
        // Whose request waits here needs no heartbeats; its session goes on with the answer.
        if self.group.member(member).is_some_and(|it| !it.is_waiting()) {
            self.remove(member);
            match self.group.state() {
                State::Stable | State::Completing => self.rebalance_or_complete(),
                State::Preparing { .. } => self.complete_if_all_joined(),
                State::Empty => {}
            }
        }
    }

    fn complete_if_all_joined(&mut self) {
        let is_preparing = matches!(self.group.state(), State::Preparing { .. });
        if is_preparing && self.group.have_all_joined() {
            self.complete_join();
        }
    }

    /// The group was read from the log: its members have their time to be heard of.
    pub fn loaded(&mut self) {
        for member in self.group.member_ids() {
            self.heard_of(&member);
        }
        if self.group.len() > self.settings.members_max {
            self.prepare_rebalance();
        }
    }
}

/// The record of a group.
pub fn group_record(id: &str, group: &GroupMetadata) -> Record {
    Record { key: Key::Group(id.to_owned()).encode(), value: Some(group.encode()) }
}
