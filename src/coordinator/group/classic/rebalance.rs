//! From one generation to the next.

use crate::coordinator::group::answer::{Answer, Joined};
use crate::coordinator::group::classic::group::State;
use crate::coordinator::group::classic::turn::{Timer, Turn};
use crate::coordinator::group::error::GroupError;

impl Turn<'_> {
    /// `maybePrepareRebalanceOrCompleteJoin`.
    pub(super) fn rebalance_or_complete(&mut self) {
        match self.group.state() {
            State::Empty | State::Completing | State::Stable => self.prepare_rebalance(),
            State::Preparing { .. } => self.complete_if_due(),
        }
    }

    /// Completes the joining when all are there, unless the first ones of an empty group wait for
    /// others: then time decides.
    pub(super) fn complete_if_due(&mut self) {
        let is_rejoining = self.group.state() == State::Preparing { initial: false };
        if is_rejoining && self.group.have_all_joined() {
            self.complete_join();
        }
    }

    /// Members are to join again.
    pub(super) fn prepare_rebalance(&mut self) {
        if self.group.state() == State::Completing {
            self.give_up_assigning(GroupError::RebalanceInProgress);
        }
        self.group.unsynced.clear();
        self.cancel(Timer::Sync);
        let initial = self.group.state() == State::Empty;
        self.group.enter(State::Preparing { initial }, self.now);
        if initial {
            let delay = i64::from(self.settings.initial_delay_ms);
            let timeout = i64::from(self.group.rebalance_timeout_ms());
            self.group.initial_wait_ms = (delay, (timeout - delay).max(0));
            self.group.has_newcomer = false;
            self.start(Timer::Join, delay);
        } else if self.group.have_all_joined() {
            self.complete_join();
        } else {
            self.start(Timer::Join, i64::from(self.group.rebalance_timeout_ms()));
        }
    }

    /// Whoever waits for an assignment gets an error instead.
    pub(super) fn give_up_assigning(&mut self, error: GroupError) {
        for id in self.group.member_ids() {
            let member = self.group.member_mut(&id).expect("one of its members");
            member.assignment.clear();
            if let Some(ticket) = member.syncing.take() {
                self.answer(ticket, Answer::Sync(Err(error)));
                self.heard_of(&id);
            }
        }
    }

    /// The time to join is over.
    pub fn join_time_over(&mut self) {
        match self.group.state() {
            State::Preparing { initial: true } => self.initial_wait_over(),
            State::Preparing { initial: false } => self.complete_join(),
            State::Empty | State::Completing | State::Stable => {}
        }
    }

    /// The first members wait on as long as others come, up to their rebalance timeout.
    fn initial_wait_over(&mut self) {
        let (delay, remaining) = self.group.initial_wait_ms;
        if !self.group.has_newcomer || remaining == 0 {
            return self.complete_join();
        }
        self.group.has_newcomer = false;
        let next = i64::from(self.settings.initial_delay_ms).min(remaining);
        self.group.initial_wait_ms = (next, (remaining - delay).max(0));
        self.start(Timer::Join, next);
    }

    /// Ends the joining: who is missing is out, the others are a generation.
    pub(super) fn complete_join(&mut self) {
        self.cancel(Timer::Join);
        let is_late = |id: &str| {
            self.group.member(id).is_some_and(|it| !it.is_joining() && it.instance.is_none())
        };
        let late: Vec<_> = self.group.member_ids().into_iter().filter(|it| is_late(it)).collect();
        late.iter().for_each(|id| self.remove(id));
        if !self.group.elect_joined_leader() && self.group.len() > 0 {
            // Static members alone, none of which has joined: they keep their places.
            return self.start(Timer::Join, i64::from(self.group.rebalance_timeout_ms()));
        }
        self.group.begin_generation(self.now);
        if self.group.state() == State::Empty {
            self.write_group();
            return;
        }
        for id in self.group.member_ids() {
            if let Some(ticket) = self.group.take_joining(&id) {
                let joined = self.joined(&id);
                self.answer(ticket, Answer::Join(joined));
            }
            self.heard_of(&id);
            self.group.member_mut(&id).expect("one of its members").is_new = false;
            self.group.unsynced.insert(id);
        }
        self.start(Timer::Sync, i64::from(self.group.rebalance_timeout_ms()));
    }

    /// The answer to a member of this generation.
    pub(super) fn joined(&self, id: &str) -> Joined {
        let group = &*self.group;
        let leads = group.is_leader(id);
        Joined {
            error: None,
            member: id.to_owned(),
            generation: group.generation,
            protocol_type: group.protocol_type.clone(),
            protocol: group.protocol.clone(),
            leader: group.leader_text(),
            skip_assignment: false,
            members: if leads { group.joined_members() } else { Vec::new() },
        }
    }

    /// The time to ask for assignments is over: who has not is out.
    pub fn sync_time_over(&mut self) {
        let is_running = matches!(self.group.state(), State::Completing | State::Stable);
        if !is_running || self.group.unsynced.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.group.unsynced) {
            self.remove(&id);
        }
        self.prepare_rebalance();
    }
}
