//! The requests about groups as a whole, and what becomes of groups that nobody uses.

use std::rc::Rc;

use crate::coordinator::group::answer::{Answer, GroupType, ListedGroup};
use crate::coordinator::group::classic::State;
use crate::coordinator::group::error::GroupError;
use crate::coordinator::group::machine::{GroupCoordinator, GroupOutput};
use crate::coordinator::{Record, Ticket};
use crate::format::group_records::Key;
use crate::units::{Timestamp, TopicId};

/// Tombstones that go into one batch.
const TOMBSTONES_PER_BATCH: usize = 1_000;

impl GroupCoordinator {
    pub(super) fn list(&self) -> Vec<ListedGroup> {
        let listed = self.groups.values().map(|group| ListedGroup {
            group: group.id.to_string(),
            protocol_type: group.protocol_type.clone().unwrap_or_default(),
            state: group.state().name(),
            kind: GroupType::Classic,
        });
        listed.collect()
    }

    pub(super) fn delete(&mut self, ticket: Ticket, name: &str) -> GroupOutput {
        let refused = |error| GroupOutput::answer(ticket, Answer::Delete(Err(error)));
        let Some(group) = self.group(name) else { return refused(GroupError::GroupIdNotFound) };
        if group.state() != State::Empty {
            return refused(GroupError::NonEmptyGroup);
        }
        let id = group.id.clone();
        let mut records = self.forget_all(&id);
        records.push(self.remove_group(&id));
        let mut output = GroupOutput::answer(ticket, Answer::Delete(Ok(())));
        write(&mut output, records);
        output
    }

    fn forget_all(&mut self, group: &Rc<str>) -> Vec<Record> {
        let partitions = self.offsets.partitions(group);
        partitions.iter().map(|partition| self.forget(group, partition)).collect()
    }

    /// Forgets a group; the record says so.
    fn remove_group(&mut self, id: &Rc<str>) -> Record {
        self.drop_group(id);
        Record { key: Key::Group(id.to_string()).encode(), value: None }
    }

    /// Topics are gone, and the offsets that groups have of them go, too.
    pub(super) fn topics_deleted(&mut self, topics: &[(String, TopicId)]) -> GroupOutput {
        let mut records = Vec::new();
        for (name, id) in topics {
            for (group, partition) in self.offsets.of_topic(name, *id) {
                records.push(self.forget(&group, &partition));
            }
        }
        let mut output = GroupOutput::nothing();
        write(&mut output, records);
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
            if is_empty && self.offsets.partitions(&id).is_empty() {
                records.push(self.remove_group(&id));
            }
            write(&mut output, records);
        }
        output
    }

    fn expire_of_group(&mut self, id: &Rc<str>, now: Timestamp) -> Vec<Record> {
        let Some(group) = self.group(id) else { return Vec::new() };
        let retention_ms = self.settings.retention_ms;
        let mut expired = Vec::new();
        for (partition, committed) in self.offsets.of_group(id) {
            let Some(since) = group.unused_since(committed.commit_timestamp) else { continue };
            let is_over = match committed.expire_timestamp {
                Timestamp::NONE => now.0.saturating_sub(since.0) >= retention_ms,
                // The client has said so itself.
                expires => expires <= now,
            };
            let is_used = group.is_subscribed(&partition.0) || self.offsets.is_open(id, partition);
            if is_over && !is_used {
                expired.push(partition.clone());
            }
        }
        expired.iter().map(|partition| self.forget(id, partition)).collect()
    }
}

/// Writes tombstones; it doesn't matter should a crash part them.
fn write(output: &mut GroupOutput, mut records: Vec<Record>) {
    while records.len() > TOMBSTONES_PER_BATCH {
        let rest = records.split_off(TOMBSTONES_PER_BATCH);
        output.write(std::mem::replace(&mut records, rest));
    }
    output.write(records);
}
