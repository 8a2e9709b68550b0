//! What the checkpoint files of a data directory say about its partitions.

use std::collections::HashMap;

use crate::format::names::TopicName;
use crate::units::{Offset, PartitionId};

/// A partition, by name.
pub type PartitionKey = (TopicName, PartitionId);

/// What the checkpoint files said at the start. A file that can't be read counts as empty: recovery
/// then reads more than it would have to.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Checkpoints {
    pub(super) recovery_points: HashMap<PartitionKey, Offset>,
    pub(super) log_starts: HashMap<PartitionKey, Offset>,
    pub(super) first_dirty: HashMap<PartitionKey, Offset>,
}

impl Checkpoints {
    /// First offset of the partition that may not be durable.
    pub fn recovery_point(&self, key: &PartitionKey) -> Option<Offset> {
        self.recovery_points.get(key).copied()
    }

    /// First offset of the partition that is still readable, if it lies behind its first segment's.
    pub fn log_start(&self, key: &PartitionKey) -> Option<Offset> {
        self.log_starts.get(key).copied()
    }

    /// First offset of the partition that the cleaner has not gone over, if it has cleaned any.
    pub fn first_dirty(&self, key: &PartitionKey) -> Option<Offset> {
        self.first_dirty.get(key).copied()
    }
}

/// What a partition contributes to the checkpoint files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionReport {
    /// Which partition.
    pub key: PartitionKey,
    /// First offset not known durable.
    pub recovery_point: Offset,
    /// Log start, when it must be remembered: it lies behind the first segment's base.
    pub log_start: Option<Offset>,
    /// First offset that the cleaner has not gone over, if it has cleaned any.
    pub first_dirty: Option<Offset>,
    /// First offset that consumers may not read.
    pub high_watermark: Offset,
}
