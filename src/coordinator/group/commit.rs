//! The requests about offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete.

use std::rc::Rc;

use crate::coordinator::group::answer::{Answer, FetchedOffset};
use crate::coordinator::group::classic::State;
use crate::coordinator::group::error::GroupError;
use crate::coordinator::group::machine::{GroupCoordinator, GroupOutput};
use crate::coordinator::group::offsets::Partition;
use crate::coordinator::group::request::{
    Commit, DeleteOffsets, Fetch, Identity, NewOffset, TransactionalCommit, WantedOffset,
};
use crate::coordinator::{BatchSize, Record, Ticket, Write};
use crate::format::group_records::{CommittedOffset, Key, TEXT_BYTES_MAX};
use crate::units::{Timestamp, TopicId};

/// Longest name of a topic that an offset is kept for; no topic has a longer one.
const TOPIC_BYTES_MAX: usize = 249;

impl GroupCoordinator {
    pub(super) fn commit(&mut self, ticket: Ticket, commit: Commit, now: Timestamp) -> GroupOutput {
        let group = match self.committing(&commit, now) {
            Ok(group) => group,
            Err(error) => return GroupOutput::answer(ticket, Answer::Commit(Err(error))),
        };
        let expire_timestamp = match commit.retention_ms {
            -1 => Timestamp::NONE,
            retention => Timestamp(now.0.saturating_add(retention)),
        };
        let accepted = match self.accept(&group, commit.offsets, (now, expire_timestamp)) {
            Ok(accepted) => accepted,
            Err(error) => return GroupOutput::answer(ticket, Answer::Commit(Err(error))),
        };
        let mut output = GroupOutput::answer(ticket, Answer::Commit(Ok(accepted.outcomes)));
        for (partition, committed) in accepted.offsets {
            self.offsets.commit(&group, partition, committed);
        }
        output.write(accepted.records);
        output
    }

    /// The group that a commit is for, if the client may (`validateOffsetCommit`). A group without
    /// members that isn't known is made by its first commit.
    fn committing(&mut self, commit: &Commit, now: Timestamp) -> Result<Rc<str>, GroupError> {
        let Identity { group, member, instance, generation } = &commit.identity;
        if let Some(known) = self.consumers.get(group.as_str()) {
            let offsets = (commit.knows_group_errors, commit.offsets.as_slice());
            self.check_commit(known, &commit.identity, offsets)?;
            return Ok(known.id.clone());
        }
        let Some(known) = self.group(group) else {
            return match (*generation < 0, commit.knows_group_errors) {
                (true, _) => self.make_group(group, now),
                (false, true) => Err(GroupError::GroupIdNotFound),
                (false, false) => Err(GroupError::IllegalGeneration),
            };
        };
        let state = known.state();
        if *generation < 0 && state == State::Empty {
            return Ok(known.id.clone());
        }
        if *generation >= 0 || !member.is_empty() || instance.is_some() {
            known.check_member(member, instance.as_deref())?;
            if *generation != known.generation {
                return Err(GroupError::IllegalGeneration);
            }
        } else if state != State::Empty {
            return Err(GroupError::UnknownMemberId);
        }
        if state == State::Completing {
            return Err(GroupError::RebalanceInProgress);
        }
        let id = known.id.clone();
        self.turn(&id, now, &mut GroupOutput::nothing(), |turn| turn.heard_of(member));
        Ok(id)
    }

    /// What of a commit is to be kept. Everything is refused when it would not fit a batch, or be
    /// more than a group may have.
    fn accept(
        &self,
        group: &str,
        offsets: Vec<NewOffset>,
        (now, expire_timestamp): (Timestamp, Timestamp),
    ) -> Result<Accepted, GroupError> {
        let mut accepted = Accepted::default();
        let mut size = BatchSize::default();
        let mut added = 0;
        for offset in offsets {
            let metadata = offset.metadata.unwrap_or_default();
            let length = i32::try_from(metadata.encode_utf16().count()).unwrap_or(i32::MAX);
            if self.settings.metadata_max < length {
                accepted.outcomes.push(Err(GroupError::OffsetMetadataTooLarge));
                continue;
            }
            if TOPIC_BYTES_MAX < offset.topic.len() || TEXT_BYTES_MAX < metadata.len() {
                accepted.outcomes.push(Err(GroupError::InvalidCommitOffsetSize));
                continue;
            }
            let partition: Partition = (offset.topic.as_str().into(), offset.partition);
            let committed = CommittedOffset {
                offset: offset.offset,
                leader_epoch: offset.leader_epoch,
                metadata,
                commit_timestamp: now,
                expire_timestamp,
                topic_id: offset.topic_id,
            };
            let record = record(group, &partition, Some(&committed));
            if self.settings.write_bytes_max < size.add(&record) {
                // As in Kafka, where a commit is one batch, too.
                return Err(GroupError::UnknownServerError);
            }
            added += usize::from(self.offsets.get(group, &partition).is_none());
            accepted.outcomes.push(Ok(()));
            accepted.offsets.push((partition, committed));
            accepted.records.push(record);
        }
        if added > 0 && self.settings.offsets_max < self.offsets.count(group) + added {
            return Err(GroupError::InvalidCommitOffsetSize);
        }
        Ok(accepted)
    }

    /// Offsets that count when the producer's transaction is committed: the state learns of them
    /// when the log has taken them.
    pub(super) fn commit_transactional(
        &mut self,
        ticket: Ticket,
        commit: TransactionalCommit,
        now: Timestamp,
    ) -> GroupOutput {
        let refused = |error| GroupOutput::answer(ticket, Answer::Commit(Err(error)));
        let group = match self.committing_transactional(&commit.identity, &commit.offsets, now) {
            Ok(group) => group,
            Err(error) => return refused(error),
        };
        // Kafka keeps no topic ids of these.
        let without_id = |offset| NewOffset { topic_id: TopicId::ZERO, ..offset };
        let offsets = commit.offsets.into_iter().map(without_id).collect();
        let accepted = match self.accept(&group, offsets, (now, Timestamp::NONE)) {
            Ok(accepted) => accepted,
            Err(error) => return refused(error),
        };
        let mut output = GroupOutput::answer(ticket, Answer::Commit(Ok(accepted.outcomes)));
        let records = accepted.records;
        if !records.is_empty() {
            let (producer_id, producer_epoch) = (commit.producer_id, commit.producer_epoch);
            output.writes.push(Write::Transactional { producer_id, producer_epoch, records });
        }
        output
    }

    /// As for other commits, but that a rebalance doesn't matter and nobody's session goes on
    /// (`validateTransactionalOffsetCommit`).
    fn committing_transactional(
        &mut self,
        identity: &Identity,
        offsets: &[NewOffset],
        now: Timestamp,
    ) -> Result<Rc<str>, GroupError> {
        let Identity { group, member, instance, generation } = identity;
        if let Some(known) = self.consumers.get(group.as_str()) {
            let is_anybody = *generation == -1 && member.is_empty() && instance.is_none();
            if !is_anybody {
                // The producer's client doesn't know the other error.
                let older = |error| match error {
                    GroupError::StaleMemberEpoch => GroupError::IllegalGeneration,
                    error => error,
                };
                self.check_commit(known, identity, (true, offsets)).map_err(older)?;
            }
            return Ok(known.id.clone());
        }
        let Some(known) = self.group(group) else {
            return match *generation < 0 {
                true => self.make_group(group, now),
                false => Err(GroupError::IllegalGeneration),
            };
        };
        if *generation < 0 && known.state() == State::Empty {
            return Ok(known.id.clone());
        }
        if *generation >= 0 || !member.is_empty() || instance.is_some() {
            known.check_member(member, instance.as_deref())?;
            if *generation != known.generation {
                return Err(GroupError::IllegalGeneration);
            }
        }
        Ok(known.id.clone())
    }

    /// Whether a member of a group with the consumer protocol may ask for offsets, if it says who
    /// it is (`ConsumerGroup#validateOffsetFetch`).
    fn check_fetch(&self, fetch: &Fetch) -> Result<(), GroupError> {
        let Some((member, epoch)) = &fetch.member else { return Ok(()) };
        let Some(group) = self.consumers.get(fetch.group.as_str()) else { return Ok(()) };
        let member = group.member(member).ok_or(GroupError::UnknownMemberId)?;
        match member.epoch == *epoch {
            true => Ok(()),
            false if member.is_classic() => Err(GroupError::IllegalGeneration),
            false => Err(GroupError::StaleMemberEpoch),
        }
    }

    pub(super) fn fetch(&self, fetch: &Fetch) -> Result<Vec<FetchedOffset>, GroupError> {
        self.check_fetch(fetch)?;
        Ok(self.fetch_allowed(fetch))
    }

    fn fetch_allowed(&self, fetch: &Fetch) -> Vec<FetchedOffset> {
        let is_known = self.groups.contains_key(fetch.group.as_str())
            || self.consumers.contains_key(fetch.group.as_str());
        let is_open = |partition: &Partition| {
            fetch.require_stable && self.offsets.is_open(&fetch.group, partition)
        };
        let Some(wanted) = &fetch.wanted else {
            if !is_known {
                return Vec::new();
            }
            let all = self.offsets.of_group(&fetch.group);
            let fetched = all.map(|(partition, committed)| FetchedOffset {
                topic: partition.0.clone(),
                partition: partition.1,
                committed: match is_open(partition) {
                    true => Err(GroupError::UnstableOffsetCommit),
                    false => Ok(Some(committed.clone())),
                },
            });
            return fetched.collect();
        };
        let fetched = wanted.iter().map(|WantedOffset { topic, topic_id, partition }| {
            let key: Partition = (topic.clone(), *partition);
            let is_same_topic = |committed: &&CommittedOffset| {
                let its_id = committed.topic_id;
                its_id == TopicId::ZERO || *topic_id == TopicId::ZERO || its_id == *topic_id
            };
            let committed = self.offsets.get(&fetch.group, &key).filter(is_same_topic);
            FetchedOffset {
                topic: topic.clone(),
                partition: *partition,
                committed: match is_open(&key) {
                    true => Err(GroupError::UnstableOffsetCommit),
                    false => Ok(committed.filter(|_| is_known).cloned()),
                },
            }
        });
        fetched.collect()
    }

    pub(super) fn delete_offsets(&mut self, ticket: Ticket, delete: DeleteOffsets) -> GroupOutput {
        let refused = |error| GroupOutput::answer(ticket, Answer::DeleteOffsets(Err(error)));
        if self.consumers.contains_key(delete.group.as_str()) {
            return self.delete_subscribed(ticket, delete);
        }
        let Some(group) = self.group(&delete.group) else {
            return refused(GroupError::GroupIdNotFound);
        };
        // Of topics that consumers don't subscribe to, offsets may go while they run.
        if group.state() != State::Empty && !group.is_consumer() {
            return refused(GroupError::NonEmptyGroup);
        }
        self.delete_subscribed(ticket, delete)
    }

    /// Deletes offsets of topics that the group doesn't subscribe to.
    fn delete_subscribed(&mut self, ticket: Ticket, delete: DeleteOffsets) -> GroupOutput {
        let id: Rc<str> = delete.group.as_str().into();
        let mut outcomes = Vec::with_capacity(delete.partitions.len());
        let mut partitions = Vec::new();
        for (topic, partition) in delete.partitions {
            if self.is_subscribed(&id, &topic) {
                outcomes.push(Err(GroupError::GroupSubscribedToTopic));
                continue;
            }
            outcomes.push(Ok(()));
            partitions.push((topic.as_str().into(), partition));
        }
        let known = self.offsets.partitions(&id);
        let records = partitions
            .into_iter()
            .filter(|partition| known.contains(partition))
            .map(|partition| self.forget(&id, &partition))
            .collect();
        let mut output = GroupOutput::answer(ticket, Answer::DeleteOffsets(Ok(outcomes)));
        output.write(records);
        output
    }

    fn is_subscribed(&self, group: &str, topic: &str) -> bool {
        self.groups.get(group).is_some_and(|it| it.is_subscribed(topic))
            || self.consumers.get(group).is_some_and(|it| it.is_subscribed(topic))
    }

    /// Forgets an offset; the record says so.
    pub(super) fn forget(&mut self, group: &Rc<str>, partition: &Partition) -> Record {
        self.offsets.remove(group, partition);
        record(group, partition, None)
    }
}

/// What of a commit is to be kept.
#[derive(Default)]
struct Accepted {
    /// In the order of the request.
    outcomes: Vec<Result<(), GroupError>>,
    offsets: Vec<(Partition, CommittedOffset)>,
    /// The same for the log.
    records: Vec<Record>,
}

fn record(group: &str, partition: &Partition, committed: Option<&CommittedOffset>) -> Record {
    let (topic, partition) = partition;
    let key =
        Key::Offset { group: group.to_owned(), topic: topic.to_string(), partition: *partition };
    Record { key: key.encode(), value: committed.map(CommittedOffset::encode) }
}
