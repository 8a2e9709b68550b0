//! What a group coordinator answers.

use std::rc::Rc;

use bytes::Bytes;

use crate::coordinator::group::consumer::Partitions;
use crate::coordinator::group::error::GroupError;
use crate::format::group_records::{CommittedOffset, ModernMember};
use crate::units::TopicId;

/// What a group coordinator answers; named after the request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// To Join.
    Join(Joined),
    /// To Sync.
    Sync(Result<Synced, GroupError>),
    /// To Heartbeat.
    Heartbeat(Result<(), GroupError>),
    /// To Leave, member by member.
    Leave(Vec<Result<(), GroupError>>),
    /// To Commit and CommitTransactional, offset by offset.
    Commit(Result<Vec<Result<(), GroupError>>, GroupError>),
    /// To EndTransaction and TopicsDeleted: it is done.
    Done,
    /// To Fetch, in the order asked for, or of the names when all were.
    Fetch(Result<Vec<FetchedOffset>, GroupError>),
    /// To ConsumerHeartbeat.
    ConsumerHeartbeat(Result<Beat, GroupError>),
    /// To ConsumerDescribe; `None` when there is no such group.
    ConsumerDescribe(Option<DescribedConsumerGroup>),
    /// To DeleteOffsets, partition by partition.
    DeleteOffsets(Result<Vec<Result<(), GroupError>>, GroupError>),
    /// To Describe; `None` when there is no such group.
    Describe(Option<DescribedGroup>),
    /// To List.
    List(Vec<ListedGroup>),
    /// To Delete.
    Delete(Result<(), GroupError>),
}

/// The answer to a member that joins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joined {
    /// Why it can't.
    pub error: Option<GroupError>,
    /// The member's id; empty when it has none.
    pub member: String,
    /// The group's generation; -1 with an error.
    pub generation: i32,
    /// The group's.
    pub protocol_type: Option<String>,
    /// What the members have agreed on.
    pub protocol: Option<String>,
    /// Id of the leading member; empty with an error.
    pub leader: String,
    /// Whether the leader is to keep the assignment that there is.
    pub skip_assignment: bool,
    /// For the leader: all members.
    pub members: Vec<JoinedMember>,
}

/// A member as the leader sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinedMember {
    /// Its id.
    pub id: String,
    /// `group.instance.id` of a static member.
    pub instance: Option<String>,
    /// What it said about itself for the protocol.
    pub metadata: Bytes,
}

impl Joined {
    /// A member can't join.
    pub fn refused(member: &str, error: GroupError) -> Joined {
        Joined {
            error: Some(error),
            member: member.to_owned(),
            generation: -1,
            protocol_type: None,
            protocol: None,
            leader: String::new(),
            skip_assignment: false,
            members: Vec::new(),
        }
    }
}

/// A member's assignment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Synced {
    /// The group's.
    pub protocol_type: Option<String>,
    /// What the members have agreed on.
    pub protocol: Option<String>,
    /// What the leader has assigned to the member.
    pub assignment: Bytes,
}

/// A committed offset; `None` when there is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchedOffset {
    /// The topic; one text for all its partitions.
    pub topic: Rc<str>,
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub committed: Result<Option<CommittedOffset>, GroupError>,
}

/// What kind of group it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupType {
    /// Members assign partitions themselves.
    Classic,
    /// The coordinator does (KIP-848).
    Consumer,
}

impl GroupType {
    /// Kafka's word.
    pub fn name(self) -> &'static str {
        match self {
            GroupType::Classic => "classic",
            GroupType::Consumer => "consumer",
        }
    }
}

/// A group in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedGroup {
    /// Its name.
    pub group: String,
    /// `consumer` and the like; empty for one without members ever.
    pub protocol_type: String,
    /// Kafka's word for its state.
    pub state: &'static str,
    /// What kind it is.
    pub kind: GroupType,
}

/// A classic group in full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedGroup {
    /// Kafka's word for its state.
    pub state: &'static str,
    /// `consumer` and the like.
    pub protocol_type: String,
    /// What the members have agreed on; empty unless it is stable.
    pub protocol: String,
    /// The members.
    pub members: Vec<DescribedMember>,
}

/// A member of a classic group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedMember {
    /// Its id.
    pub id: String,
    /// `group.instance.id` of a static member.
    pub instance: Option<String>,
    /// The client's own name.
    pub client_id: String,
    /// Where it comes from.
    pub client_host: String,
    /// What it said about itself for the protocol; empty unless the group is stable.
    pub metadata: Bytes,
    /// What it has; empty unless the group is stable.
    pub assignment: Bytes,
}

/// Topics with partitions.
pub type TopicPartitions = Vec<(TopicId, Vec<i32>)>;

pub(super) fn listed(partitions: &Partitions) -> TopicPartitions {
    partitions.iter().map(|(topic, it)| (*topic, it.iter().copied().collect())).collect()
}

/// The answer to a member of a group with the consumer protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beat {
    /// Its id.
    pub member: String,
    /// Its epoch.
    pub epoch: i32,
    /// How often it is to say that it is there.
    pub interval_ms: i32,
    /// What it is to have; `None` when that has not changed.
    pub assignment: Option<TopicPartitions>,
}

/// A group with the consumer protocol in full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedConsumerGroup {
    /// Kafka's word for its state.
    pub state: &'static str,
    /// Its epoch.
    pub epoch: i32,
    /// The epoch that its target is of.
    pub target_epoch: i32,
    /// The assignor that computes it.
    pub assignor: String,
    /// The members.
    pub members: Vec<DescribedConsumer>,
}

/// A member of a group with the consumer protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedConsumer {
    /// Its id.
    pub id: String,
    /// What it said about itself.
    pub said: ModernMember,
    /// The epoch that it has come to.
    pub epoch: i32,
    /// What it has, that which it is to give up included.
    pub assignment: TopicPartitions,
    /// What it is to have.
    pub target: TopicPartitions,
}
