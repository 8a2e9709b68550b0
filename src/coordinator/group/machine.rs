//! The groups of one partition as a state machine.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;

use crate::coordinator::group::answer::{Answer, Joined};
use crate::coordinator::group::classic::{ClassicGroup, Timer, Turn, group_record};
use crate::coordinator::group::consumer;
use crate::coordinator::group::consumer::{Change, ConsumerGroup, partitions};
use crate::coordinator::group::error::GroupError;
use crate::coordinator::group::offsets::Offsets;
use crate::coordinator::group::request::{Identity, Join, Request};
use crate::coordinator::group::settings::{GroupContext, GroupSettings};
use crate::coordinator::group::topics::Topics;
use crate::coordinator::{Coordinator, Entry, Origin, Output, ReplayError, Ticket, Timers, Write};
use crate::format::group_records::{
    CommittedOffset, CurrentAssignment, GroupMetadata, Key, ModernMember, RecordError,
    RegularExpression, TEXT_BYTES_MAX, TargetEpoch, decode_group, decode_target,
};
use crate::units::{ByteCount, ProducerId, Sequence, Timestamp, usize_of};

/// What an event leads to.
pub(super) type GroupOutput = Output<Answer, Infallible>;

/// The groups of one partition of `__consumer_offsets`.
#[derive(Debug)]
pub struct GroupCoordinator {
    pub(super) settings: GroupSettings,
    /// Classic groups, and those that are nothing but a name for offsets.
    pub(super) groups: BTreeMap<Rc<str>, ClassicGroup>,
    /// Groups with the consumer protocol; no name is in both.
    pub(super) consumers: BTreeMap<Rc<str>, ConsumerGroup>,
    pub(super) topics: Arc<dyn Topics>,
    pub(super) offsets: Offsets,
    pub(super) timers: Timers<Timer>,
}

impl GroupCoordinator {
    pub(super) fn group(&self, name: &str) -> Option<&ClassicGroup> {
        self.groups.get(name)
    }

    /// How many groups there are.
    pub(super) fn count(&self) -> usize {
        self.groups.len() + self.consumers.len()
    }

    /// A group that is not there yet; without a member it is nothing but a name for offsets.
    ///
    /// # Errors
    /// When there are as many as there may be.
    pub(super) fn make_group(&mut self, name: &str, now: Timestamp) -> Result<Rc<str>, GroupError> {
        if self.settings.groups_max <= self.count() {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        if TEXT_BYTES_MAX < name.len() {
            return Err(GroupError::InvalidGroupId);
        }
        let id: Rc<str> = name.into();
        self.groups.insert(id.clone(), ClassicGroup::new(id.clone(), now));
        Ok(id)
    }

    /// The group and its timers are no more.
    pub(super) fn drop_group(&mut self, id: &Rc<str>) {
        let mut output = GroupOutput::nothing();
        self.turn(id, Timestamp::NONE, &mut output, |turn| turn.stop_timers());
        self.groups.remove(id);
    }

    /// Has one event happen to a group, if it is there.
    pub(super) fn turn<T>(
        &mut self,
        group: &str,
        now: Timestamp,
        out: &mut GroupOutput,
        event: impl FnOnce(&mut Turn<'_>) -> T,
    ) -> Option<T> {
        let group = self.groups.get_mut(group)?;
        let (timers, settings) = (&mut self.timers, &self.settings);
        Some(event(&mut Turn { group, timers, settings, now, out }))
    }

    fn join(&mut self, ticket: Ticket, join: Join, now: Timestamp) -> GroupOutput {
        if let Err(error) = self.check_join(&join) {
            let refused = Joined::refused(&join.member, error);
            return GroupOutput::answer(ticket, Answer::Join(refused));
        }
        let mut output = GroupOutput::nothing();
        match self.consumers.get(join.group.as_str()) {
            Some(group) if group.is_empty() => {
                // Its last member is long gone: the name is free for either protocol.
                let tombstones = group.tombstones();
                self.consumers.remove(join.group.as_str());
                self.write_all(&mut output, tombstones);
            }
            Some(_) => return self.join_consumer(ticket, &join, now),
            None => {}
        }
        output.append(self.join_classic(ticket, join, now));
        output
    }

    fn check_join(&self, join: &Join) -> Result<(), GroupError> {
        let timeouts = self.settings.session_timeout_min_ms..=self.settings.session_timeout_max_ms;
        if join.group.is_empty() {
            return Err(GroupError::InvalidGroupId);
        }
        if !timeouts.contains(&join.session_timeout_ms) {
            return Err(GroupError::InvalidSessionTimeout);
        }
        if has_short_texts(join) { Ok(()) } else { Err(GroupError::UnknownServerError) }
    }

    fn join_classic(&mut self, ticket: Ticket, join: Join, now: Timestamp) -> GroupOutput {
        let refused = |member: &str, error| {
            GroupOutput::answer(ticket, Answer::Join(Joined::refused(member, error)))
        };
        let name = join.group.clone();
        let is_new = !self.groups.contains_key(name.as_str());
        if is_new {
            if !join.member.is_empty() {
                return refused(&join.member, GroupError::UnknownMemberId);
            }
            if join.protocol_type.is_empty() || join.protocols.is_empty() {
                return refused("", GroupError::InconsistentGroupProtocol);
            }
            if let Err(error) = self.make_group(&name, now) {
                return refused("", error);
            }
        }
        let mut output = GroupOutput::nothing();
        self.turn(&name, now, &mut output, |turn| turn.join(ticket, join));
        if is_new && output.writes.is_empty() {
            let group = self.groups.get(name.as_str()).expect("it was made just now");
            let empty = GroupMetadata {
                protocol_type: String::new(),
                generation: 0,
                protocol: None,
                leader: None,
                state_timestamp: group.state_timestamp,
                members: Vec::new(),
            };
            output.write(vec![group_record(&name, &empty)]);
        }
        output
    }

    fn of_member<T: From<Refused>>(
        &mut self,
        identity: &Identity,
        now: Timestamp,
        out: &mut GroupOutput,
        event: impl FnOnce(&mut Turn<'_>) -> T,
    ) -> T {
        if identity.group.is_empty() {
            return T::from(Refused(GroupError::InvalidGroupId));
        }
        let outcome = self.turn(&identity.group, now, out, event);
        outcome.unwrap_or_else(|| T::from(Refused(GroupError::UnknownMemberId)))
    }

    fn take_record(&mut self, entry: Entry<'_>) -> Result<(), RecordError> {
        let key = match Key::decode(entry.key) {
            // Of share and streams groups, which this broker doesn't have.
            Err(RecordError::Type(10..=15 | 17..=23)) => return Ok(()),
            key => key?,
        };
        match key {
            Key::Offset { group, topic, partition } => {
                let committed = entry.value.map(CommittedOffset::decode).transpose()?;
                let group: Rc<str> = group.as_str().into();
                let partition = (topic.as_str().into(), partition);
                self.take_offset((group, partition), committed, entry.origin);
            }
            Key::Group(group) => {
                let group: Rc<str> = group.as_str().into();
                match entry.value.map(GroupMetadata::decode).transpose()? {
                    Some(record) => {
                        let taken = ClassicGroup::from_record(group.clone(), record);
                        self.groups.insert(group, taken);
                    }
                    None => drop(self.groups.remove(&group)),
                }
            }
            key => return self.take_consumer_record(key, entry.value),
        }
        Ok(())
    }

    fn take_consumer_record(&mut self, key: Key, value: Option<&[u8]>) -> Result<(), RecordError> {
        let (group, change) = match key {
            Key::ModernGroup(group) => match value.map(decode_group).transpose()? {
                Some((epoch, hash)) => (group, Change::Epoch(epoch, hash)),
                None => {
                    self.consumers.remove(group.as_str());
                    return Ok(());
                }
            },
            Key::TargetEpoch(group) => match value.map(TargetEpoch::decode).transpose()? {
                Some(target) => (group, Change::TargetEpoch(target)),
                // The group's own tombstone follows.
                None => return Ok(()),
            },
            Key::Member(group, member) => {
                let said = value.map(ModernMember::decode).transpose()?;
                (group, Change::Member(member.as_str().into(), said))
            }
            Key::Target(group, member) => {
                let target = value.map(decode_target).transpose()?.map(partitions);
                (group, Change::Target(member.as_str().into(), target))
            }
            Key::Current(group, member) => {
                let current = value.map(CurrentAssignment::decode).transpose()?;
                (group, Change::Current(member.as_str().into(), current))
            }
            Key::RegularExpression(group, text) => {
                let resolved = value.map(RegularExpression::decode).transpose()?;
                (group, Change::Regex(text, resolved))
            }
            // What Kafka has not written since 4.1, and what isn't about these groups.
            Key::PartitionMetadata(_) | Key::Offset { .. } | Key::Group(_) => return Ok(()),
        };
        let id: Rc<str> = group.as_str().into();
        if !self.consumers.contains_key(&id) {
            if value.is_none() {
                return Ok(());
            }
            // A name for offsets that were read before.
            self.groups.remove(&id);
            self.consumers.insert(id.clone(), ConsumerGroup::new(id.clone()));
        }
        self.consumers.get_mut(&id).expect("it is there now").apply(change);
        Ok(())
    }

    fn take_offset(
        &mut self,
        (group, partition): (Rc<str>, (Rc<str>, i32)),
        committed: Option<CommittedOffset>,
        origin: Origin,
    ) {
        let Some(committed) = committed else { return self.offsets.remove(&group, &partition) };
        if !self.groups.contains_key(&group) && !self.consumers.contains_key(&group) {
            let made = ClassicGroup::new(group.clone(), committed.commit_timestamp);
            self.groups.insert(group.clone(), made);
        }
        match origin {
            Origin::Own => self.offsets.commit(&group, partition, committed),
            Origin::Transaction(producer_id) => {
                self.offsets.commit_pending((producer_id, &group), partition, committed);
            }
        }
    }
}

/// Why nothing of a request is done.
struct Refused(GroupError);

impl<T> From<Refused> for Result<T, GroupError> {
    fn from(Refused(error): Refused) -> Result<T, GroupError> {
        Err(error)
    }
}

/// Whether everything fits the strings of a group's record.
fn has_short_texts(join: &Join) -> bool {
    let names = join.protocols.iter().map(|(name, _)| name);
    let texts = [&join.fresh_id, &join.member, &join.client.id, &join.protocol_type];
    let mut all = names.chain(texts).chain(join.instance.iter());
    all.all(|text| text.len() <= TEXT_BYTES_MAX)
}

impl Coordinator for GroupCoordinator {
    const SEQUENCE: Sequence = Sequence(0);

    type Settings = GroupContext;
    type Request = Request;
    type Answer = Answer;
    type Effect = Infallible;

    fn new(context: &GroupContext) -> GroupCoordinator {
        GroupCoordinator {
            settings: context.settings.clone(),
            groups: BTreeMap::new(),
            consumers: BTreeMap::new(),
            topics: context.topics.clone(),
            offsets: Offsets::default(),
            timers: Timers::default(),
        }
    }

    fn configure(&mut self, context: &GroupContext) {
        self.topics = context.topics.clone();
    }

    fn limit_batches(&mut self, bytes_max: ByteCount) {
        self.settings.write_bytes_max = usize_of(bytes_max.0);
    }

    fn replay(&mut self, entry: Entry<'_>) -> Result<(), ReplayError> {
        self.take_record(entry).map_err(|error| ReplayError(error.to_string()))
    }

    fn replay_marker(&mut self, producer_id: ProducerId, commits: bool) {
        self.offsets.complete(producer_id, commits);
    }

    fn loaded(&mut self, now: Timestamp) -> GroupOutput {
        let mut output = GroupOutput::nothing();
        let ids: Vec<Rc<str>> = self.groups.keys().cloned().collect();
        for id in ids {
            self.turn(&id, now, &mut output, |turn| turn.loaded());
        }
        let ids: Vec<Rc<str>> = self.consumers.keys().cloned().collect();
        for id in ids {
            self.consumer_turn(&id, now, &mut output, |turn| turn.loaded());
        }
        self.timers.start(Timer::Retention, now, self.settings.retention_check_ms);
        output
    }

    fn may_write(request: &Request) -> bool {
        match request {
            Request::Heartbeat(_)
            | Request::Fetch(_)
            | Request::Describe(_)
            | Request::ConsumerDescribe(_)
            | Request::List => false,
            Request::Join(_)
            | Request::ConsumerHeartbeat(_)
            | Request::Sync(_)
            | Request::Leave(_)
            | Request::Commit(_)
            | Request::CommitTransactional(_)
            | Request::EndTransaction(_)
            | Request::DeleteOffsets(_)
            | Request::Delete(_)
            | Request::TopicsDeleted(_) => true,
        }
    }

    fn handle(&mut self, ticket: Ticket, request: Request, now: Timestamp) -> GroupOutput {
        let mut output = GroupOutput::nothing();
        let answer = match request {
            Request::ConsumerHeartbeat(beat) => {
                return self.consumer_heartbeat(ticket, &beat, now);
            }
            Request::ConsumerDescribe(group) => {
                Answer::ConsumerDescribe(self.describe_consumers(&group))
            }
            Request::Sync(sync) if self.is_modern(&sync.identity.group) => {
                Answer::Sync(self.sync_consumer(&sync, now, &mut output))
            }
            Request::Heartbeat(identity) if self.is_modern(&identity.group) => {
                Answer::Heartbeat(self.classic_heartbeat(&identity, now, &mut output))
            }
            Request::Leave(leave) if self.is_modern(&leave.group) => {
                Answer::Leave(self.leave_consumers(&leave, now, &mut output))
            }
            Request::Join(join) => return self.join(ticket, join, now),
            Request::Sync(sync) => {
                let identity = sync.identity.clone();
                let done: Result<(), GroupError> =
                    self.of_member(&identity, now, &mut output, |turn| {
                        turn.sync(ticket, sync);
                        Ok(())
                    });
                let Err(error) = done else { return output };
                Answer::Sync(Err(error))
            }
            Request::Heartbeat(identity) => {
                Answer::Heartbeat(
                    self.of_member(&identity, now, &mut output, |turn| turn.heartbeat(&identity)),
                )
            }
            Request::Leave(leave) => {
                let left =
                    self.turn(&leave.group, now, &mut output, |turn| turn.leave(&leave.members));
                let nobody = || vec![Err(GroupError::UnknownMemberId); leave.members.len()];
                Answer::Leave(left.unwrap_or_else(nobody))
            }
            Request::Commit(commit) => return self.commit(ticket, commit, now),
            Request::CommitTransactional(commit) => {
                return self.commit_transactional(ticket, commit, now);
            }
            Request::EndTransaction(marker) => {
                output.writes.push(Write::Marker(marker));
                Answer::Done
            }
            Request::Fetch(fetch) => Answer::Fetch(self.fetch(&fetch)),
            Request::DeleteOffsets(delete) => return self.delete_offsets(ticket, delete),
            Request::Describe(group) => {
                Answer::Describe(self.group(&group).map(ClassicGroup::describe))
            }
            Request::List => Answer::List(self.list()),
            Request::Delete(group) => return self.delete(ticket, &group),
            Request::TopicsDeleted(topics) => {
                output = self.topics_deleted(&topics);
                Answer::Done
            }
        };
        output.answers.push((ticket, answer));
        output
    }

    fn deadline(&self) -> Option<Timestamp> {
        self.timers.deadline()
    }

    fn expire(&mut self, now: Timestamp) -> GroupOutput {
        let mut output = GroupOutput::nothing();
        while let Some(timer) = self.timers.take_due(now) {
            match timer {
                Timer::Session(group, member) if self.consumers.contains_key(&group) => {
                    self.member_is_late(&group, &member, (now, &mut output));
                }
                Timer::Revoke(group, member) => {
                    let event = |turn: &mut consumer::Turn<'_>| turn.has_not_revoked(&member);
                    if self.consumer_turn(&group, now, &mut output, event) == Some(true) {
                        self.member_is_late(&group, &member, (now, &mut output));
                    }
                }
                Timer::Rejoin(group, member) | Timer::Resync(group, member) => {
                    self.member_is_late(&group, &member, (now, &mut output));
                }
                Timer::Session(group, member) => {
                    self.turn(&group, now, &mut output, |turn| turn.session_over(&member));
                }
                Timer::Join(group) => {
                    self.turn(&group, now, &mut output, |turn| turn.join_time_over());
                }
                Timer::Sync(group) => {
                    self.turn(&group, now, &mut output, |turn| turn.sync_time_over());
                }
                Timer::Retention => {
                    output.append(self.expire_offsets(now));
                    self.timers.start(Timer::Retention, now, self.settings.retention_check_ms);
                }
            }
        }
        output
    }
}
