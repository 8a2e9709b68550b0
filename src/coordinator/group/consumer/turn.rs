//! One event for one group: what it may change.

use std::rc::Rc;

use crate::coordinator::group::classic::Timer;
use crate::coordinator::group::consumer::member::without_epochs;
use crate::coordinator::group::consumer::{Change, ConsumerGroup, Member};
use crate::coordinator::group::error::GroupError;
use crate::coordinator::group::settings::{
    Bounds, ConsumerSettings, GroupSettings, OWN_SESSION_TIMEOUT,
};
use crate::coordinator::group::topics::Topics;
use crate::coordinator::{Record, Timers};
use crate::format::group_records::{ModernMember, TargetEpoch};
use crate::units::Timestamp;

/// One event for one group.
pub struct Turn<'a> {
    pub group: &'a mut ConsumerGroup,
    pub timers: &'a mut Timers<Timer>,
    pub settings: &'a GroupSettings,
    pub topics: &'a dyn Topics,
    pub now: Timestamp,
    /// What has changed, for the log.
    pub records: Vec<Record>,
}

impl Turn<'_> {
    /// Changes the group and says so in a record.
    pub(super) fn write(&mut self, change: Change) {
        self.records.push(change.record(&self.group.id));
        self.group.apply(change);
    }

    /// Whether what a member says of itself fits a record.
    ///
    /// # Errors
    /// UNKNOWN_SERVER_ERROR, as in Kafka, which finds it out when it writes the record.
    pub(super) fn check_fits(&self, id: &Rc<str>, said: &ModernMember) -> Result<(), GroupError> {
        let record = Change::Member(id.clone(), Some(said.clone())).record(&self.group.id);
        if self.settings.fits(&record) { Ok(()) } else { Err(GroupError::UnknownServerError) }
    }

    /// The member was heard of: its session begins anew.
    pub fn heard_of(&mut self, member: &str) {
        let classic = self.group.member(member).and_then(|it| it.said.classic.as_ref());
        let timeout = match classic {
            Some(classic) => classic.session_timeout_ms,
            None => self.session_timeout_ms(),
        };
        self.start(Timer::Session, member, timeout);
    }

    fn session_timeout_ms(&self) -> i32 {
        let ConsumerSettings { session_timeout_ms, session_timeout_bounds, .. } =
            self.settings.consumer;
        self.own(OWN_SESSION_TIMEOUT, (session_timeout_ms, session_timeout_bounds))
    }

    /// A setting of the group: what was set for it, or else what counts for all groups. One that
    /// was set when the bounds were others counts as the nearest within (`GroupConfig#evaluate`).
    pub(super) fn own(&self, name: &str, (of_all, (least, most)): (i32, Bounds)) -> i32 {
        let own = self.topics.group_config(&self.group.id, name);
        own.map_or(of_all, |own| own.clamp(least, most))
    }

    pub(super) fn start(
        &mut self,
        timer: fn(Rc<str>, Rc<str>) -> Timer,
        member: &str,
        after_ms: i32,
    ) {
        let timer = timer(self.group.id.clone(), member.into());
        self.timers.start(timer, self.now, i64::from(after_ms));
    }

    pub(super) fn cancel(&mut self, timer: fn(Rc<str>, Rc<str>) -> Timer, member: &str) {
        self.timers.cancel(&timer(self.group.id.clone(), member.into()));
    }

    pub(super) fn stop_timers_of(&mut self, member: &str) {
        for timer in [Timer::Session, Timer::Revoke, Timer::Rejoin, Timer::Resync] {
            self.cancel(timer, member);
        }
    }

    /// All timers of the group stop: it is deleted, or becomes a classic one.
    pub fn stop_timers(&mut self) {
        for member in self.group.member_ids() {
            self.stop_timers_of(&member);
        }
    }

    /// The group was read from the log: its members have their time to be heard of.
    pub fn loaded(&mut self) {
        for id in self.group.member_ids() {
            // As in Kafka, also for members with the classic protocol.
            self.start(Timer::Session, &id, self.session_timeout_ms());
            self.watch_revoking(&id);
        }
    }

    /// A group that was a classic one begins with these members.
    pub fn begin(&mut self, generation: i32, members: Vec<Member>) {
        for member in &members {
            self.write(Change::Member(member.id.clone(), Some(member.said.clone())));
        }
        let hash = self.hash();
        self.write(Change::Epoch(generation, hash));
        for member in &members {
            let target = without_epochs(&member.assigned);
            self.write(Change::Target(member.id.clone(), Some(target)));
        }
        let target = TargetEpoch { epoch: generation, timestamp: Timestamp(0) };
        self.write(Change::TargetEpoch(target));
        for member in members {
            self.write(Change::Current(member.id.clone(), Some(member.current())));
            self.heard_of(&member.id);
        }
    }
}
