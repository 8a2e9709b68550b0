//! The topics that there are, as far as groups look at them.

use std::fmt;

use crate::units::TopicId;

/// The topics that there are at some moment.
pub trait Topics: fmt::Debug {
    /// Grows with every change.
    fn version(&self) -> u64;

    /// Id and number of partitions of the topic with that name.
    fn by_name(&self, name: &str) -> Option<(TopicId, u32)>;

    /// Name and number of partitions of the topic with that id.
    fn by_id(&self, id: TopicId) -> Option<(&str, u32)>;

    /// All names, sorted.
    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_>;
}
