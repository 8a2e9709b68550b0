//! What Produce and Fetch have in common: topics by name or id, and where leaders are.

use smallvec::SmallVec;

use super::StrBytes;
use super::error::WireError;
use super::read::Reader;
use super::write::{Writer, uvarint_bytes};
use crate::units::{BrokerId, LeaderEpoch, TopicId, u64_of};

/// Topics plus partitions that one Produce or Fetch may name.
pub const PARTITIONS_MAX: usize = 100_000;

/// How a request names a topic: by name in older versions, by id in newer ones.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum TopicKey {
    /// The name, as sent; it may be illegal.
    Name(StrBytes),
    /// The id; it may be unknown or all zero.
    Id(TopicId),
}

/// A topic and how many of a request's (or an answer's) partitions are its own. Partitions stand in
/// one list, those of the first topic first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicGroup {
    /// The topic.
    pub key: TopicKey,
    /// Length of its run in the list of partitions.
    pub partitions: usize,
}

/// The topics of a request; nearly always one.
pub type TopicGroups = SmallVec<[TopicGroup; 1]>;

/// Who leads a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CurrentLeader {
    /// The broker.
    pub id: BrokerId,
    /// Its epoch.
    pub epoch: LeaderEpoch,
}

/// Where a leader that an answer names can be reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeEndpoint {
    /// The broker.
    pub id: BrokerId,
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl Reader<bytes::BytesMut> {
    /// A topic's name or id.
    pub(super) fn topic_key(&mut self, by_id: bool) -> Result<TopicKey, WireError> {
        if by_id {
            Ok(TopicKey::Id(self.topic_id("topic id")?))
        } else {
            Ok(TopicKey::Name(self.text("topic name")?))
        }
    }
}

impl Writer {
    /// A topic's name or id.
    pub(super) fn topic_key(&mut self, key: &TopicKey) {
        match key {
            TopicKey::Name(name) => self.text(Some(name)),
            TopicKey::Id(id) => self.raw(&id.0),
        }
    }

    /// A tagged field with a partition's leader.
    pub(super) fn current_leader(&mut self, number: u64, leader: CurrentLeader) {
        self.tag(number, 2 * size_of::<i32>() + 1);
        self.i32(leader.id.0);
        self.i32(leader.epoch.0);
        self.no_tags();
    }

    /// The end of an answer's body: tagged field 0 with the leaders' endpoints, if there are any.
    pub(super) fn node_endpoints(&mut self, nodes: &[NodeEndpoint]) {
        if nodes.is_empty() {
            return self.no_tags();
        }
        let each = |node: &NodeEndpoint| {
            let host = node.host.len();
            // Id, host, port, null rack, no tagged fields.
            size_of::<i32>() + uvarint_bytes(u64_of(host) + 1) + host + size_of::<i32>() + 2
        };
        let size = uvarint_bytes(u64_of(nodes.len()) + 1) + nodes.iter().map(each).sum::<usize>();
        self.uvarint(1);
        self.tag(0, size);
        self.array(Some(nodes.len()));
        for node in nodes {
            self.i32(node.id.0);
            self.text(Some(&node.host));
            self.i32(i32::from(node.port));
            self.text(None);
            self.no_tags();
        }
    }
}

/// Fails when a request names more than [`PARTITIONS_MAX`].
pub(super) fn check_count(count: usize) -> Result<(), WireError> {
    if count <= PARTITIONS_MAX {
        return Ok(());
    }
    let (count, limit) = (u64_of(count), u64_of(PARTITIONS_MAX));
    Err(WireError::TooMany { what: "topics and partitions", count, limit })
}
