//! The requests about groups with the consumer protocol.

use std::rc::Rc;

use crate::coordinator::Ticket;
use crate::coordinator::group::answer::{Answer, Beat, DescribedConsumerGroup, Joined, Synced};
use crate::coordinator::group::classic::State;
use crate::coordinator::group::consumer::{ConsumerGroup, Turn, check_heartbeat, is_valid, leaves};
use crate::coordinator::group::error::GroupError;
use crate::coordinator::group::machine::{GroupCoordinator, GroupOutput};
use crate::coordinator::group::request::{
    ConsumerHeartbeat, Identity, Join, Leave, NewOffset, Sync,
};
use crate::format::group_records::TEXT_BYTES_MAX;
use crate::units::{Timestamp, TopicId};

impl GroupCoordinator {
    /// Has one event happen to a group, if it is there; writes what has changed.
    pub(super) fn consumer_turn<T>(
        &mut self,
        group: &str,
        now: Timestamp,
        out: &mut GroupOutput,
        event: impl FnOnce(&mut Turn<'_>) -> T,
    ) -> Option<T> {
        let group = self.consumers.get_mut(group)?;
        let (timers, settings, topics) = (&mut self.timers, &self.settings, &*self.topics);
        let records = Vec::new();
        let mut turn = Turn { group, timers, settings, topics, now, records };
        let outcome = event(&mut turn);
        let records = turn.records;
        self.write_all(out, records);
        Some(outcome)
    }

    /// Whether a group has the consumer protocol.
    pub(super) fn is_modern(&self, group: &str) -> bool {
        self.consumers.contains_key(group)
    }

    pub(super) fn describe_consumers(&self, group: &str) -> Option<DescribedConsumerGroup> {
        let default = self.settings.consumer.assignors[0].name();
        self.consumers.get(group).map(|it| it.describe(default))
    }

    /// A classic member's synchronization, of a group that [`GroupCoordinator::is_modern`].
    pub(super) fn sync_consumer(
        &mut self,
        sync: &Sync,
        now: Timestamp,
        out: &mut GroupOutput,
    ) -> Result<Synced, GroupError> {
        let group = sync.identity.group.as_str();
        let synced = self.consumer_turn(group, now, out, |turn| turn.sync(sync));
        synced.unwrap_or(Err(GroupError::UnknownMemberId))
    }

    /// A classic member's heartbeat, of a group that [`GroupCoordinator::is_modern`].
    pub(super) fn classic_heartbeat(
        &mut self,
        identity: &Identity,
        now: Timestamp,
        out: &mut GroupOutput,
    ) -> Result<(), GroupError> {
        let event = |turn: &mut Turn<'_>| turn.classic_heartbeat(identity);
        let outcome = self.consumer_turn(&identity.group, now, out, event);
        outcome.unwrap_or(Err(GroupError::UnknownMemberId))
    }

    pub(super) fn consumer_heartbeat(
        &mut self,
        ticket: Ticket,
        beat: &ConsumerHeartbeat,
        now: Timestamp,
    ) -> GroupOutput {
        let mut output = GroupOutput::nothing();
        let answer = self.try_heartbeat(beat, now, &mut output);
        self.drop_if_nothing(&beat.group);
        output.answers.push((ticket, Answer::ConsumerHeartbeat(answer)));
        output
    }

    fn try_heartbeat(
        &mut self,
        beat: &ConsumerHeartbeat,
        now: Timestamp,
        out: &mut GroupOutput,
    ) -> Result<Beat, GroupError> {
        check_heartbeat(beat)?;
        self.check_assignor(beat.assignor.as_deref())?;
        if leaves(beat) {
            return self.leave_consumer(beat, now, out);
        }
        let name = beat.group.as_str();
        if !self.consumers.contains_key(name) {
            if beat.epoch != 0 {
                return Err(GroupError::GroupIdNotFound);
            }
            let regex = beat.regex.as_deref().filter(|it| !it.is_empty());
            if regex.is_some_and(|it| !is_valid(it)) {
                return Err(GroupError::InvalidRegularExpression);
            }
            self.make_consumer_group(name, now, out)?;
        }
        let outcome = self.consumer_turn(name, now, out, |turn| turn.heartbeat(beat));
        outcome.expect("the group is there")
    }

    fn check_assignor(&self, name: Option<&str>) -> Result<(), GroupError> {
        let Some(name) = name else { return Ok(()) };
        let is_known = self.settings.consumer.assignors.iter().any(|it| it.name() == name);
        if is_known { Ok(()) } else { Err(GroupError::UnsupportedAssignor) }
    }

    /// A group for the first member with the consumer protocol: a new one, or a classic one that
    /// becomes one.
    fn make_consumer_group(
        &mut self,
        name: &str,
        now: Timestamp,
        out: &mut GroupOutput,
    ) -> Result<(), GroupError> {
        if TEXT_BYTES_MAX < name.len() {
            return Err(GroupError::InvalidRequest("GroupId is longer than it may be."));
        }
        let Some(classic) = self.groups.get(name) else {
            if self.settings.groups_max <= self.count() {
                return Err(GroupError::CoordinatorNotAvailable);
            }
            let id: Rc<str> = name.into();
            self.consumers.insert(id.clone(), ConsumerGroup::new(id));
            return Ok(());
        };
        let id = classic.id.clone();
        if classic.len() > 0 {
            return self.upgrade(&id, now, out);
        }
        // Joins that wait for ids which were given out have nobody to wait for.
        assert!(classic.state() != State::Stable);
        let tombstone = self.remove_group(&id);
        out.write(vec![tombstone]);
        self.consumers.insert(id.clone(), ConsumerGroup::new(id));
        Ok(())
    }

    /// A group that has come to be for a request that was refused.
    fn drop_if_nothing(&mut self, name: &str) {
        if self.consumers.get(name).is_some_and(ConsumerGroup::is_nothing)
            && !self.offsets.has_any(name)
        {
            self.consumers.remove(name);
        }
    }

    fn leave_consumer(
        &mut self,
        beat: &ConsumerHeartbeat,
        now: Timestamp,
        out: &mut GroupOutput,
    ) -> Result<Beat, GroupError> {
        let outcome = self.consumer_turn(&beat.group, now, out, |turn| turn.leave(beat));
        if outcome.ok_or(GroupError::GroupIdNotFound)?? {
            self.take_out(&beat.group, &[beat.member.as_str().into()], (now, out));
        }
        let (member, epoch) = (beat.member.clone(), beat.epoch);
        Ok(Beat { member, epoch, interval_ms: 0, assignment: None })
    }

    /// A member with the classic protocol joins.
    pub(super) fn join_consumer(
        &mut self,
        ticket: Ticket,
        join: &Join,
        now: Timestamp,
    ) -> GroupOutput {
        let mut output = GroupOutput::nothing();
        let consumer = &self.settings.consumer;
        let joined = if consumer.can_upgrade || consumer.can_downgrade {
            let had_others = self.has_consumers(&join.group);
            let joined = self.consumer_turn(&join.group, now, &mut output, |turn| turn.join(join));
            let joined = joined.expect("the group was looked up");
            if had_others && joined.is_ok() && self.may_become_classic(&join.group, &[]) {
                self.downgrade(&join.group, &[], (now, &mut output));
            }
            joined
        } else {
            Err(GroupError::InconsistentGroupProtocol)
        };
        let joined = joined.unwrap_or_else(|error| Joined::refused(&join.member, error));
        output.answers.push((ticket, Answer::Join(joined)));
        output
    }

    /// Whether a group has members with the consumer protocol.
    fn has_consumers(&self, group: &str) -> bool {
        self.consumers.get(group).is_some_and(|it| it.members().any(|it| !it.is_classic()))
    }

    /// Members leave with LeaveGroup, or an administrator takes them out.
    pub(super) fn leave_consumers(
        &mut self,
        leave: &Leave,
        now: Timestamp,
        out: &mut GroupOutput,
    ) -> Vec<Result<(), GroupError>> {
        let left = self.consumer_turn(&leave.group, now, out, |turn| turn.leavers(&leave.members));
        let (outcomes, ids) = left.expect("the group was looked up");
        self.take_out(&leave.group, &ids, (now, out));
        outcomes
    }

    /// Takes members out of a group; should none with the consumer protocol be left it becomes a
    /// classic one.
    pub(super) fn take_out(
        &mut self,
        group: &str,
        ids: &[Rc<str>],
        (now, out): (Timestamp, &mut GroupOutput),
    ) {
        if ids.is_empty() {
            return;
        }
        if self.may_become_classic(group, ids) {
            self.downgrade(group, ids, (now, out));
        } else {
            self.consumer_turn(group, now, out, |turn| turn.fence(ids));
        }
    }

    /// A member's time is over, whichever it was.
    pub(super) fn member_is_late(
        &mut self,
        group: &str,
        member: &Rc<str>,
        (now, out): (Timestamp, &mut GroupOutput),
    ) {
        let is_there = self.consumers.get(group).is_some_and(|it| it.member(member).is_some());
        if is_there {
            self.take_out(group, std::slice::from_ref(member), (now, out));
        }
    }

    /// Whether a member of a group with the consumer protocol, or somebody who is none, may commit
    /// (`ConsumerGroup#validateOffsetCommit`). With an older epoch it may commit what it has been
    /// given at that epoch or before.
    ///
    /// # Errors
    /// Why not: nothing is committed then.
    pub(super) fn check_commit(
        &self,
        group: &ConsumerGroup,
        identity: &Identity,
        (has_epochs, offsets): (bool, &[NewOffset]),
    ) -> Result<(), GroupError> {
        let Identity { member, generation, .. } = identity;
        if *generation < 0 && group.is_empty() {
            return Ok(());
        }
        let member = group.member(member).ok_or(GroupError::UnknownMemberId)?;
        if !has_epochs && !member.is_classic() {
            return Err(GroupError::UnsupportedVersion);
        }
        if *generation == member.epoch {
            return Ok(());
        }
        let stale = match member.is_classic() {
            true => GroupError::IllegalGeneration,
            false => GroupError::StaleMemberEpoch,
        };
        let was_given = |offset: &NewOffset| {
            let id = match offset.topic_id {
                TopicId::ZERO => self.topics.by_name(&offset.topic).map(|(id, _)| id),
                id => Some(id),
            };
            let epoch = id.and_then(|id| member.epoch_of(id, offset.partition));
            epoch.is_some_and(|epoch| epoch <= *generation)
        };
        if *generation < member.epoch && offsets.iter().all(was_given) {
            Ok(())
        } else {
            Err(stale)
        }
    }
}
