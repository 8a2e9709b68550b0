//! What groups look at outside of themselves: the topics that there are, and their own configs.

use std::fmt;

use crate::units::TopicId;

/// The topics that there are at some moment, and what was set for single groups.
pub trait Topics: fmt::Debug {
    /// Grows with every change.
    fn version(&self) -> u64;

    /// Id and number of partitions of the topic with that name.
    fn by_name(&self, name: &str) -> Option<(TopicId, u32)>;

    /// Name and number of partitions of the topic with that id.
    fn by_id(&self, id: TopicId) -> Option<(&str, u32)>;

    /// All names, sorted.
    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_>;

    /// A number that was set for one group (`GroupConfig`), within the bounds of that config;
    /// `None` when the value of all groups counts.
    fn group_config(&self, group: &str, name: &str) -> Option<i32>;
}
