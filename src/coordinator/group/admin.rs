//! The requests about groups as a whole, and what becomes of groups that nobody uses.

use std::rc::Rc;

use crate::coordinator::group::answer::{Answer, GroupType, ListedGroup};
use crate::coordinator::group::classic::{CONSUMER, State};
use crate::coordinator::group::consumer::ConsumerGroup;
use crate::coordinator::group::error::GroupError;
use crate::coordinator::group::machine::{GroupCoordinator, GroupOutput};
use crate::coordinator::{BatchSize, Record, Ticket};
use crate::format::group_records::{CommittedOffset, Key};
use crate::units::{Timestamp, TopicId};

impl GroupCoordinator {
    pub(super) fn list(&self) -> Vec<ListedGroup> {
        let classic = self.groups.values().map(|group| ListedGroup {
            group: group.id.to_string(),
            protocol_type: group.protocol_type.clone().unwrap_or_default(),
            state: group.state().name(),
            kind: GroupType::Classic,
        });
        let consumers = self.consumers.values().map(|group| ListedGroup {
            group: group.id.to_string(),
            protocol_type: CONSUMER.to_owned(),
            state: group.state(),
            kind: GroupType::Consumer,
        });
        classic.chain(consumers).collect()
    }

    pub(super) fn delete(&mut self, ticket: Ticket, name: &str) -> GroupOutput {
        let refused = |error| GroupOutput::answer(ticket, Answer::Delete(Err(error)));
        if let Some(group) = self.consumers.get(name) {
            if !group.is_empty() {
                return refused(GroupError::NonEmptyGroup);
            }
            let id = group.id.clone();
            let mut records = self.forget_all(&id);
            records.append(&mut self.remove_consumer_group(&id));
            let mut output = GroupOutput::answer(ticket, Answer::Delete(Ok(())));
            self.write_all(&mut output, records);
            return output;
        }
        let Some(group) = self.group(name) else { return refused(GroupError::GroupIdNotFound) };
        if group.state() != State::Empty {
            return refused(GroupError::NonEmptyGroup);
        }
        let id = group.id.clone();
        let mut records = self.forget_all(&id);
        records.push(self.remove_group(&id));
        let mut output = GroupOutput::answer(ticket, Answer::Delete(Ok(())));
        self.write_all(&mut output, records);
        output
    }

    /// Forgets a group without members; the records say so.
    fn remove_consumer_group(&mut self, id: &Rc<str>) -> Vec<Record> {
        let group = self.consumers.remove(id);
        group.map(|group| group.tombstones()).unwrap_or_default()
    }

    fn forget_all(&mut self, group: &Rc<str>) -> Vec<Record> {
        let partitions = self.offsets.partitions(group);
        partitions.iter().map(|partition| self.forget(group, partition)).collect()
    }

    /// Forgets a group; the record says so.
    pub(super) fn remove_group(&mut self, id: &Rc<str>) -> Record {
        self.drop_group(id);
        Record { key: Key::Group(id.to_string()).encode(), value: None }
    }

    /// Topics are gone, and the offsets that groups have of them go, too.
    pub(super) fn topics_deleted(&mut self, topics: &[(String, TopicId)]) -> GroupOutput {
        let topics = topics.iter().map(|(name, id)| (name.as_str(), *id)).collect();
        let gone = self.offsets.of_topics(&topics).into_iter();
        let records = gone.map(|(group, partition)| self.forget(&group, &partition)).collect();
        let mut output = GroupOutput::nothing();
        self.write_all(&mut output, records);
        output
    }

    /// Offsets that nobody has used for long go, and groups without members and offsets
    /// (`GroupCoordinatorShard#cleanupGroupMetadata`).
    pub(super) fn expire_offsets(&mut self, now: Timestamp) -> GroupOutput {
        let mut output = GroupOutput::nothing();
        let ids: Vec<Rc<str>> = self.groups.keys().cloned().collect();
        for id in ids {
            let mut records = self.expire_of_group(&id, now);
            let is_empty = self.group(&id).is_some_and(|group| group.state() == State::Empty);
            if is_empty && !self.offsets.has_any(&id) {
                records.push(self.remove_group(&id));
            }
            self.write_all(&mut output, records);
        }
        let ids: Vec<Rc<str>> = self.consumers.keys().cloned().collect();
        for id in ids {
            let mut records = self.expire_of_consumers(&id, now);
            let is_empty = self.consumers.get(&id).is_some_and(ConsumerGroup::is_empty);
            if is_empty && !self.offsets.has_any(&id) {
                records.append(&mut self.remove_consumer_group(&id));
            }
            self.write_all(&mut output, records);
        }
        output
    }

    fn expire_of_consumers(&mut self, id: &Rc<str>, now: Timestamp) -> Vec<Record> {
        let Some(group) = self.consumers.get(id) else { return Vec::new() };
        let mut expired = Vec::new();
        for (partition, committed) in self.offsets.of_group(id) {
            let is_over = self.is_over(committed, committed.commit_timestamp, now);
            let is_used = group.is_subscribed(&partition.0) || self.offsets.is_open(id, partition);
            if is_over && !is_used {
                expired.push(partition.clone());
            }
        }
        expired.iter().map(|partition| self.forget(id, partition)).collect()
    }

    fn is_over(&self, committed: &CommittedOffset, since: Timestamp, now: Timestamp) -> bool {
        match committed.expire_timestamp {
            Timestamp::NONE => now.0.saturating_sub(since.0) >= self.settings.retention_ms,
            // The client has said so itself.
            expires => expires <= now,
        }
    }

    fn expire_of_group(&mut self, id: &Rc<str>, now: Timestamp) -> Vec<Record> {
        let Some(group) = self.group(id) else { return Vec::new() };
        let mut expired = Vec::new();
        for (partition, committed) in self.offsets.of_group(id) {
            let Some(since) = group.unused_since(committed.commit_timestamp) else { continue };
            let is_over = self.is_over(committed, since, now);
            let is_used = group.is_subscribed(&partition.0) || self.offsets.is_open(id, partition);
            if is_over && !is_used {
                expired.push(partition.clone());
            }
        }
        expired.iter().map(|partition| self.forget(id, partition)).collect()
    }

    /// Writes records, in as many batches as they take. They come in an order that a crash may cut
    /// off anywhere: what is lost is done again.
    pub(super) fn write_all(&self, output: &mut GroupOutput, records: Vec<Record>) {
        let (mut batch, mut size) = (Vec::new(), BatchSize::default());
        for record in records {
            if self.settings.write_bytes_max < size.with(&record) {
                output.write(std::mem::take(&mut batch));
                size = BatchSize::default();
            }
            size.add(&record);
            batch.push(record);
        }
        output.write(batch);
    }
}
