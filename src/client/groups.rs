//! Consumer groups seen from outside: who is in them, what they have committed, and changing that.

use kafka_protocol::messages::describe_groups_response::DescribedGroupMember;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_fetch_response::OffsetFetchResponse;
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, DeleteGroupsRequest, DescribeGroupsRequest,
    FindCoordinatorRequest, FindCoordinatorResponse, GroupId, ListGroupsRequest,
    OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, TopicName,
    consumer_group_describe_response as new_groups, describe_groups_response as classic,
};
use kafka_protocol::protocol::Request as _;

use super::cluster::{Client, join_address};
use super::connection::Connection;
use super::error::ClientError;
use super::member::protocol;
use super::resources::only;
use crate::wire::StrBytes;
use crate::wire::error::ErrorCode;

const GROUP_ID_NOT_FOUND: i16 = ErrorCode::GroupIdNotFound.to_wire();
/// What a coordinator calls a group that it doesn't know, before it had an error for that.
const DEAD: &str = "Dead";

/// A partition of a topic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: String,
    /// The partition's number.
    pub partition: i32,
}

impl TopicPartition {
    /// A partition of this topic.
    pub fn new(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.to_owned(), partition }
    }
}

/// A group as its coordinator lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupListing {
    /// Its name.
    pub id: String,
    /// `consumer` for consumers; empty for a group that only has offsets.
    pub protocol_type: String,
    /// Its state, empty when the broker doesn't say (before Kafka 2.6).
    pub state: String,
    /// `classic` or `consumer` (KIP-848), empty when the broker doesn't say.
    pub kind: String,
    /// The broker that coordinates it.
    pub coordinator: i32,
}

/// A group with its members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupDescription {
    /// Its name.
    pub id: String,
    /// `classic`, or `consumer` when its members speak KIP-848's protocol.
    pub kind: &'static str,
    /// Its state, in Kafka's words.
    pub state: String,
    /// The assignor; empty without members.
    pub assignor: String,
    /// Host and port of the broker that coordinates it.
    pub coordinator: String,
    /// Its members.
    pub members: Vec<GroupMember>,
}

impl GroupDescription {
    /// Whether there is somebody in it who would overwrite what is committed from outside.
    pub fn has_members(&self) -> bool {
        !self.members.is_empty()
    }
}

/// A member of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMember {
    /// The id that the coordinator gave it.
    pub id: String,
    /// The name that it gave itself (static membership).
    pub instance: Option<String>,
    /// As its client calls itself.
    pub client_id: String,
    /// Where it comes from.
    pub host: String,
    /// What it reads.
    pub assigned: Vec<TopicPartition>,
}

/// An offset that a group has committed, or shall have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Whose.
    pub at: TopicPartition,
    /// The next offset to be read.
    pub offset: i64,
    /// Epoch of the leader that the record before it was read from; -1 when not known.
    pub leader_epoch: i32,
    /// What the member left with it.
    pub metadata: String,
}

impl Client {
    /// A connection to the broker that coordinates the group.
    ///
    /// # Errors
    /// [`ClientError`]; that there is no coordinator (yet) is tried again until time is up.
    pub async fn coordinator(&self, group: &str) -> Result<Connection, ClientError> {
        let what = format!("looking for the coordinator of group {group:?}");
        self.retried(what, move || self.try_coordinator(group)).await
    }

    pub(super) async fn try_coordinator(&self, group: &str) -> Result<Connection, ClientError> {
        let connection = self.any_connection().await?;
        let header = connection.header(FindCoordinatorRequest::KEY)?;
        let request = FindCoordinatorRequest::default();
        let request = match header.version {
            0..=3 => request.with_key(text(group)),
            _ => request.with_coordinator_keys(vec![text(group)]),
        };
        let answer: FindCoordinatorResponse = connection.ask_with(header, &request).await?;
        let (code, message, host, port) = match answer.coordinators.first() {
            Some(one) => (one.error_code, &one.error_message, &one.host, one.port),
            None => (answer.error_code, &answer.error_message, &answer.host, answer.port),
        };
        let what = || format!("look for the coordinator of group {group:?}");
        ClientError::check_message(code, message.as_deref(), what)?;
        self.connection_to(&join_address(host, port)).await
    }

    /// The groups of all brokers, by name.
    ///
    /// # Errors
    /// [`ClientError`]; one broker that can't be asked is enough.
    pub async fn list_groups(&self) -> Result<Vec<GroupListing>, ClientError> {
        let cluster = self.metadata(Some(&[])).await?;
        let mut all = Vec::new();
        for broker in &cluster.brokers {
            let connection = self.broker(broker.id).await?;
            let answer = connection.ask(&ListGroupsRequest::default()).await?;
            ClientError::check(answer.error_code, || format!("list groups of {}", broker.id))?;
            all.extend(answer.groups.iter().map(|one| GroupListing {
                id: one.group_id.to_string(),
                protocol_type: one.protocol_type.to_string(),
                state: one.group_state.to_string(),
                kind: one.group_type.to_string(),
                coordinator: broker.id,
            }));
        }
        all.sort_by(|one, other| one.id.cmp(&other.id));
        all.dedup_by(|one, other| one.id == other.id);
        Ok(all)
    }

    /// A group with its members; `None` when there is no such group.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn describe_group(
        &self,
        group: &str,
    ) -> Result<Option<GroupDescription>, ClientError> {
        let what = format!("describing group {group:?}");
        self.retried(what, move || self.try_describe_group(group)).await
    }

    async fn try_describe_group(
        &self,
        group: &str,
    ) -> Result<Option<GroupDescription>, ClientError> {
        let connection = self.try_coordinator(group).await?;
        let request = DescribeGroupsRequest::default().with_groups(vec![group_id(group)]);
        let answer = connection.ask(&request).await?;
        let described = only(&connection, answer.groups, "groups")?;
        let is_absent =
            described.error_code == GROUP_ID_NOT_FOUND || &*described.group_state == DEAD;
        if !is_absent {
            let what = || format!("describe group {group:?}");
            let message = described.error_message.as_deref();
            ClientError::check_message(described.error_code, message, what)?;
            return Ok(Some(from_classic(&connection, &described)));
        }
        if !connection.speaks(ConsumerGroupDescribeRequest::KEY) {
            return Ok(None);
        }
        let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group_id(group)]);
        let answer = connection.ask(&request).await?;
        let described = only(&connection, answer.groups, "groups")?;
        if described.error_code == GROUP_ID_NOT_FOUND {
            return Ok(None);
        }
        let what = || format!("describe group {group:?}");
        let message = described.error_message.as_deref();
        ClientError::check_message(described.error_code, message, what)?;
        Ok(Some(from_new(&connection, &described)))
    }

    /// What the group has committed, by topic and partition.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn committed_offsets(&self, group: &str) -> Result<Vec<Committed>, ClientError> {
        let what = format!("asking for the offsets of group {group:?}");
        self.retried(what, move || self.try_committed_offsets(group, None)).await
    }

    /// What the group has committed of these partitions.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn committed_offsets_of(
        &self,
        group: &str,
        wanted: &[TopicPartition],
    ) -> Result<Vec<Committed>, ClientError> {
        let what = format!("asking for the offsets of group {group:?}");
        self.retried(what, move || self.try_committed_offsets(group, Some(wanted))).await
    }

    async fn try_committed_offsets(
        &self,
        group: &str,
        wanted: Option<&[TopicPartition]>,
    ) -> Result<Vec<Committed>, ClientError> {
        let connection = self.try_coordinator(group).await?;
        let header = connection.header(OffsetFetchRequest::KEY)?;
        let topics = wanted.map(offset_fetch_topics);
        let request = OffsetFetchRequest::default().with_require_stable(header.version >= 7);
        let request = match header.version {
            0..=7 => request.with_group_id(group_id(group)).with_topics(topics),
            _ => request.with_groups(vec![
                OffsetFetchRequestGroup::default()
                    .with_group_id(group_id(group))
                    .with_topics(topics.map(|topics| topics.into_iter().map(renamed).collect())),
            ]),
        };
        let answer = connection.ask_with(header, &request).await?;
        let (code, mut committed) = read_committed(answer);
        ClientError::check(code, || format!("ask for the offsets of group {group:?}"))?;
        committed.retain(|one| one.offset >= 0);
        committed.sort_by(|one, other| one.at.cmp(&other.at));
        Ok(committed)
    }

    /// Commits for a group without members.
    ///
    /// # Errors
    /// [`ClientError::Refused`] for the first partition that is refused: UNKNOWN_MEMBER_ID when
    /// the group has members.
    pub async fn commit_offsets(
        &self,
        group: &str,
        offsets: &[Committed],
    ) -> Result<(), ClientError> {
        let what = format!("committing offsets of group {group:?}");
        let request = OffsetCommitRequest::default()
            .with_group_id(group_id(group))
            .with_generation_id_or_member_epoch(-1)
            .with_topics(commit_topics(offsets));
        let request = &request;
        let attempt = move || async move {
            let connection = self.try_coordinator(group).await?;
            check_commit(group, connection.ask(request).await?)
        };
        self.retried(what, attempt).await
    }

    /// Forgets what the group has committed of these partitions; which of them were refused, and
    /// why.
    ///
    /// # Errors
    /// [`ClientError`] when nothing was done.
    pub async fn delete_offsets(
        &self,
        group: &str,
        partitions: &[TopicPartition],
    ) -> Result<Vec<(TopicPartition, i16)>, ClientError> {
        let connection = self.coordinator(group).await?;
        let one = |one: &TopicPartition| {
            OffsetDeleteRequestPartition::default().with_partition_index(one.partition)
        };
        let topic = |own: &[TopicPartition]| {
            OffsetDeleteRequestTopic::default()
                .with_name(TopicName(text(&own[0].topic)))
                .with_partitions(own.iter().map(one).collect())
        };
        let topics = partitions.chunk_by(|one, next| one.topic == next.topic).map(topic);
        let request = OffsetDeleteRequest::default()
            .with_group_id(group_id(group))
            .with_topics(topics.collect());
        let answer = connection.ask(&request).await?;
        ClientError::check(answer.error_code, || format!("delete offsets of group {group:?}"))?;
        let results = answer.topics.iter().flat_map(|topic| {
            let each = topic.partitions.iter();
            each.map(|one| (TopicPartition::new(&topic.name, one.partition_index), one.error_code))
        });
        Ok(results.collect())
    }

    /// Deletes a group without members, and what it has committed.
    ///
    /// # Errors
    /// [`ClientError::Refused`]: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND.
    pub async fn delete_group(&self, group: &str) -> Result<(), ClientError> {
        let connection = self.coordinator(group).await?;
        let request = DeleteGroupsRequest::default().with_groups_names(vec![group_id(group)]);
        let answer = connection.ask(&request).await?;
        let deleted = only(&connection, answer.results, "results")?;
        ClientError::check(deleted.error_code, || format!("delete group {group:?}"))
    }
}

pub(super) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub(super) fn group_id(group: &str) -> GroupId {
    GroupId(text(group))
}

fn from_classic(connection: &Connection, group: &classic::DescribedGroup) -> GroupDescription {
    let member = |member: &DescribedGroupMember| GroupMember {
        id: member.member_id.to_string(),
        instance: member.group_instance_id.as_deref().map(str::to_owned),
        client_id: member.client_id.to_string(),
        host: member.client_host.trim_start_matches('/').to_owned(),
        assigned: protocol::read_assignment(&member.member_assignment).unwrap_or_default(),
    };
    GroupDescription {
        id: group.group_id.to_string(),
        kind: "classic",
        state: group.group_state.to_string(),
        assignor: group.protocol_data.to_string(),
        coordinator: connection.address().to_owned(),
        members: group.members.iter().map(member).collect(),
    }
}

fn from_new(connection: &Connection, group: &new_groups::DescribedGroup) -> GroupDescription {
    let assigned = |topic: &new_groups::TopicPartitions| {
        let name = topic.topic_name.to_string();
        let one = move |partition: &i32| TopicPartition::new(&name, *partition);
        topic.partitions.iter().map(one).collect::<Vec<_>>()
    };
    let member = |member: &new_groups::Member| GroupMember {
        id: member.member_id.to_string(),
        instance: member.instance_id.as_deref().map(str::to_owned),
        client_id: member.client_id.to_string(),
        host: member.client_host.trim_start_matches('/').to_owned(),
        assigned: member.assignment.topic_partitions.iter().flat_map(assigned).collect(),
    };
    GroupDescription {
        id: group.group_id.to_string(),
        kind: "consumer",
        state: group.group_state.to_string(),
        assignor: group.assignor_name.to_string(),
        coordinator: connection.address().to_owned(),
        members: group.members.iter().map(member).collect(),
    }
}

fn offset_fetch_topics(wanted: &[TopicPartition]) -> Vec<OffsetFetchRequestTopic> {
    let topic = |own: &[TopicPartition]| {
        OffsetFetchRequestTopic::default()
            .with_name(TopicName(text(&own[0].topic)))
            .with_partition_indexes(own.iter().map(|one| one.partition).collect())
    };
    wanted.chunk_by(|one, next| one.topic == next.topic).map(topic).collect()
}

/// The same topic as versions from 8 on carry it.
fn renamed(topic: OffsetFetchRequestTopic) -> OffsetFetchRequestTopics {
    OffsetFetchRequestTopics::default()
        .with_name(topic.name)
        .with_partition_indexes(topic.partition_indexes)
}

/// The group's error, or else the first partition's, and its offsets.
fn read_committed(answer: OffsetFetchResponse) -> (i16, Vec<Committed>) {
    let mut code = answer.error_code;
    let mut committed = Vec::new();
    let mut add = |topic: &str, partition: i32, found: (i64, i32, Option<&str>)| {
        committed.push(Committed {
            at: TopicPartition::new(topic, partition),
            offset: found.0,
            leader_epoch: found.1,
            metadata: found.2.unwrap_or_default().to_owned(),
        });
    };
    for topic in &answer.topics {
        for one in &topic.partitions {
            code = if code == 0 { one.error_code } else { code };
            let found = (one.committed_offset, one.committed_leader_epoch, one.metadata.as_deref());
            add(&topic.name, one.partition_index, found);
        }
    }
    for group in &answer.groups {
        code = if code == 0 { group.error_code } else { code };
        for topic in &group.topics {
            for one in &topic.partitions {
                code = if code == 0 { one.error_code } else { code };
                let (offset, epoch) = (one.committed_offset, one.committed_leader_epoch);
                add(&topic.name, one.partition_index, (offset, epoch, one.metadata.as_deref()));
            }
        }
    }
    (code, committed)
}

pub(super) fn commit_topics(offsets: &[Committed]) -> Vec<OffsetCommitRequestTopic> {
    let partition = |one: &Committed| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(one.at.partition)
            .with_committed_offset(one.offset)
            .with_committed_metadata(Some(text(&one.metadata)))
    };
    let topic = |own: &[Committed]| {
        OffsetCommitRequestTopic::default()
            .with_name(TopicName(text(&own[0].at.topic)))
            .with_partitions(own.iter().map(partition).collect())
    };
    let topics = offsets.chunk_by(|one, next| one.at.topic == next.at.topic);
    topics.map(topic).collect()
}

/// Fails with the first partition that was refused.
pub(super) fn check_commit(
    group: &str,
    answer: kafka_protocol::messages::OffsetCommitResponse,
) -> Result<(), ClientError> {
    for topic in &answer.topics {
        for one in &topic.partitions {
            let (name, index) = (&topic.name, one.partition_index);
            ClientError::check(one.error_code, || {
                format!("commit for group {group:?} in partition {index} of topic {name:?}")
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::offset_fetch_response as fetched;

    use super::*;

    #[test]
    fn commits_of_one_topic_stand_together() {
        let one = |topic: &str, partition, offset| Committed {
            at: TopicPartition::new(topic, partition),
            offset,
            leader_epoch: -1,
            metadata: String::new(),
        };
        let topics = commit_topics(&[one("a", 0, 5), one("a", 1, 6), one("b", 0, 7)]);
        let found: Vec<_> =
            topics.iter().map(|topic| (topic.name.to_string(), topic.partitions.len())).collect();
        assert_eq!(found, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
        assert_eq!(topics[1].partitions[0].committed_offset, 7);
    }

    #[test]
    fn offsets_are_read_from_old_and_new_answers() {
        let old = fetched::OffsetFetchResponsePartition::default()
            .with_partition_index(3)
            .with_committed_offset(9);
        let topic = fetched::OffsetFetchResponseTopic::default()
            .with_name(TopicName(text("t")))
            .with_partitions(vec![old]);
        let (code, old) = read_committed(OffsetFetchResponse::default().with_topics(vec![topic]));
        let new = fetched::OffsetFetchResponsePartitions::default()
            .with_partition_index(3)
            .with_committed_offset(9)
            .with_error_code(88);
        let topic = fetched::OffsetFetchResponseTopics::default()
            .with_name(TopicName(text("t")))
            .with_partitions(vec![new]);
        let group = fetched::OffsetFetchResponseGroup::default().with_topics(vec![topic]);
        let (later, new) = read_committed(OffsetFetchResponse::default().with_groups(vec![group]));
        assert_eq!((code, later), (0, 88));
        assert_eq!(old, new);
        assert_eq!((old[0].at.clone(), old[0].offset), (TopicPartition::new("t", 3), 9));
    }
}
