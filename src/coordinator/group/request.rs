//! What a group coordinator is asked.

use std::rc::Rc;

use bytes::Bytes;

use crate::log::producers::Marker;
use crate::units::{ProducerEpoch, ProducerId, TopicId};

/// What a group coordinator is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// JoinGroup.
    Join(Join),
    /// SyncGroup.
    Sync(Sync),
    /// Heartbeat.
    Heartbeat(Identity),
    /// LeaveGroup.
    Leave(Leave),
    /// OffsetCommit.
    Commit(Commit),
    /// TxnOffsetCommit.
    CommitTransactional(TransactionalCommit),
    /// WriteTxnMarkers for this partition.
    EndTransaction(Marker),
    /// OffsetFetch of one group.
    Fetch(Fetch),
    /// OffsetDelete.
    DeleteOffsets(DeleteOffsets),
    /// ConsumerGroupHeartbeat.
    ConsumerHeartbeat(ConsumerHeartbeat),
    /// ConsumerGroupDescribe of one group.
    ConsumerDescribe(String),
    /// DescribeGroups of one group.
    Describe(String),
    /// ListGroups.
    List,
    /// DeleteGroups of one group.
    Delete(String),
    /// These topics are no longer there.
    TopicsDeleted(Rc<[(String, TopicId)]>),
}

/// Who sends a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Client {
    /// The client's own name.
    pub id: String,
    /// Where it comes from, as Java prints an address.
    pub host: String,
}

/// A member wants to join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    /// The group.
    pub group: String,
    /// The member; empty when it has no id yet.
    pub member: String,
    /// `group.instance.id` of a static member.
    pub instance: Option<String>,
    /// Who it is.
    pub client: Client,
    /// The id that the member gets if it has none: random.
    pub fresh_id: String,
    /// Whether it has to come back with that id (version 4 on).
    pub needs_id: bool,
    /// Whether it understands that it leads without having to assign (version 9 on).
    pub can_skip_assignment: bool,
    /// `consumer` and the like.
    pub protocol_type: String,
    /// Its protocols, the preferred one first, with what it says about itself for each.
    pub protocols: Vec<(String, Bytes)>,
    /// How long it may be silent.
    pub session_timeout_ms: i32,
    /// How long it may take to join again.
    pub rebalance_timeout_ms: i32,
}

/// A member of a group with the consumer protocol says that it is there, joins or leaves. `None`
/// is what has not changed since it said it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsumerHeartbeat {
    /// The group.
    pub group: String,
    /// The member; empty when it has no id yet.
    pub member: String,
    /// Its epoch: 0 to join, -1 to leave, -2 to leave and come back.
    pub epoch: i32,
    /// `group.instance.id` of a static member.
    pub instance: Option<String>,
    /// Its rack.
    pub rack: Option<String>,
    /// How long it may take to give partitions up; -1 when that has not changed.
    pub rebalance_timeout_ms: i32,
    /// Topics it subscribes to by name.
    pub topics: Option<Vec<String>>,
    /// Topics it subscribes to by a regular expression; empty for none.
    pub regex: Option<String>,
    /// The assignor that it prefers.
    pub assignor: Option<String>,
    /// What it has.
    pub owned: Option<Vec<(TopicId, Vec<i32>)>>,
    /// Who it is.
    pub client: Client,
    /// The id that the member gets if it has none: random.
    pub fresh_id: String,
    /// Whether members bring their ids (version 1 on).
    pub brings_id: bool,
}

/// A member says that it is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The group.
    pub group: String,
    /// The member.
    pub member: String,
    /// `group.instance.id` of a static member.
    pub instance: Option<String>,
    /// The generation, or the member's epoch, that it knows.
    pub generation: i32,
}

/// A member wants its assignment; the leader brings all of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sync {
    /// Who.
    pub identity: Identity,
    /// What the member believes to be the group's; from version 5 on.
    pub protocol_type: Option<String>,
    /// The same.
    pub protocol: Option<String>,
    /// By member; only the leader's count.
    pub assignments: Vec<(String, Bytes)>,
}

/// Members leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leave {
    /// The group.
    pub group: String,
    /// Member id, empty for a static one that is removed by its instance id, and that.
    pub members: Vec<(String, Option<String>)>,
}

/// An offset to be committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewOffset {
    /// The topic.
    pub topic: String,
    /// Its id; zero when it isn't known.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
    /// Leader epoch of the last record consumed; -1 for none.
    pub leader_epoch: i32,
    /// The client's own text.
    pub metadata: Option<String>,
}

/// Offsets to be committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commit {
    /// Who; the generation is -1 for somebody who isn't a member.
    pub identity: Identity,
    /// Whether an unknown group is GROUP_ID_NOT_FOUND (version 9 on) or ILLEGAL_GENERATION.
    pub knows_group_errors: bool,
    /// How long they are kept, if the client says so (up to version 4); -1 otherwise.
    pub retention_ms: i64,
    /// What is committed.
    pub offsets: Vec<NewOffset>,
}

/// Offsets to be committed as part of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransactionalCommit {
    /// Who; the generation is -1 for somebody who isn't a member.
    pub identity: Identity,
    /// The producer.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub producer_epoch: ProducerEpoch,
    /// What is committed.
    pub offsets: Vec<NewOffset>,
}

/// A partition whose offset is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedOffset {
    /// The topic; one text for all its partitions.
    pub topic: Rc<str>,
    /// Its id; zero when it isn't known.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: i32,
}

/// Committed offsets are asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetch {
    /// The group.
    pub group: String,
    /// The member that asks with its epoch, if it says so (version 9 on).
    pub member: Option<(String, i32)>,
    /// Which ones; `None` for all.
    pub wanted: Option<Vec<WantedOffset>>,
    /// Whether offsets that an open transaction is about to change are errors.
    pub require_stable: bool,
}

/// Committed offsets are to be forgotten.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeleteOffsets {
    /// The group.
    pub group: String,
    /// Topic and partition.
    pub partitions: Vec<(String, i32)>,
}
