//! SyncGroup and Heartbeat.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::coordinator::Ticket;
use crate::coordinator::group::answer::{Answer, Synced};
use crate::coordinator::group::classic::group::State;
use crate::coordinator::group::classic::turn::{Timer, Turn};
use crate::coordinator::group::error::GroupError;
use crate::coordinator::group::request::{Identity, Sync};

impl Turn<'_> {
    /// A member wants its assignment (`classicGroupSyncToClassicGroup`).
    pub fn sync(&mut self, ticket: Ticket, sync: Sync) {
        let member = sync.identity.member.clone();
        if let Err(error) = self.check_sync(&sync) {
            return self.answer(ticket, Answer::Sync(Err(error)));
        }
        match self.group.state() {
            State::Empty | State::Preparing { .. } => {
                let error = GroupError::RebalanceInProgress;
                self.answer(ticket, Answer::Sync(Err(error)));
            }
            State::Completing => {
                let waiting = self.group.member_mut(&member).expect("it was checked");
                if let Some(before) = waiting.syncing.replace(ticket) {
                    self.answer(before, Answer::Sync(Err(GroupError::RebalanceInProgress)));
                }
                self.has_synced(&member);
                if self.group.is_leader(&member) {
                    self.assign(sync.assignments);
                }
            }
            State::Stable => {
                self.has_synced(&member);
                let synced = self.synced(&member);
                self.answer(ticket, Answer::Sync(Ok(synced)));
            }
        }
    }

    fn check_sync(&self, sync: &Sync) -> Result<(), GroupError> {
        let Identity { member, instance, generation, .. } = &sync.identity;
        self.group.check_member(member, instance.as_deref())?;
        if *generation != self.group.generation {
            return Err(GroupError::IllegalGeneration);
        }
        let differs = |theirs: &Option<String>, ours: &Option<String>| {
            theirs.is_some() && ours.is_some() && theirs != ours
        };
        if differs(&sync.protocol_type, &self.group.protocol_type)
            || differs(&sync.protocol, &self.group.protocol)
        {
            return Err(GroupError::InconsistentGroupProtocol);
        }
        Ok(())
    }

    fn has_synced(&mut self, member: &str) {
        self.group.unsynced.remove(member);
        if self.group.unsynced.is_empty() {
            self.cancel(Timer::Sync);
        }
    }

    /// The leader's assignments make the group stable; a member that it forgot gets an empty one.
    fn assign(&mut self, assignments: Vec<(String, Bytes)>) {
        let mut assignments: BTreeMap<String, Bytes> = assignments.into_iter().collect();
        let ids = self.group.member_ids();
        for id in &ids {
            let assignment = assignments.remove(&**id).unwrap_or_default();
            self.group.member_mut(id).expect("one of its members").assignment = assignment;
        }
        let record = self.group.as_record();
        if !self.settings.fits(&record) {
            // As in Kafka, which finds it out when it writes the record.
            self.give_up_assigning(GroupError::UnknownServerError);
            return self.prepare_rebalance();
        }
        // The record has the time of the state before, as Kafka's: it becomes stable afterwards.
        self.out.write(vec![record]);
        self.group.enter(State::Stable, self.now);
        for id in &ids {
            let member = self.group.member_mut(id).expect("one of its members");
            if let Some(ticket) = member.syncing.take() {
                let synced = self.synced(id);
                self.answer(ticket, Answer::Sync(Ok(synced)));
                self.heard_of(id);
            }
        }
    }

    fn synced(&self, member: &str) -> Synced {
        let member = self.group.member(member).expect("it was checked");
        Synced {
            protocol_type: self.group.protocol_type.clone(),
            protocol: self.group.protocol.clone(),
            assignment: member.assignment.clone(),
        }
    }

    /// A member says that it is there (`classicGroupHeartbeatToClassicGroup`).
    ///
    /// # Errors
    /// What it has to do, or why it isn't one.
    pub fn heartbeat(&mut self, heartbeat: &Identity) -> Result<(), GroupError> {
        let Identity { member, instance, generation, .. } = heartbeat;
        self.group.check_member(member, instance.as_deref())?;
        if *generation != self.group.generation {
            return Err(GroupError::IllegalGeneration);
        }
        self.heard_of(member);
        match self.group.state() {
            State::Empty => Err(GroupError::UnknownMemberId),
            State::Preparing { .. } => Err(GroupError::RebalanceInProgress),
            State::Completing | State::Stable => Ok(()),
        }
    }
}
