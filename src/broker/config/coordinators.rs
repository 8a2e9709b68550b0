//! What coordinators are configured with.

use super::Values;

/// An internal topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InternalTopicConfig {
    /// How many partitions it is made with.
    pub partitions: u32,
    /// `segment.bytes` of the topic.
    pub segment_bytes: u32,
}

/// The settings of groups and transactions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoordinatorConfig {
    /// `__consumer_offsets`.
    pub offsets_topic: InternalTopicConfig,
    /// `__transaction_state`.
    pub transaction_topic: InternalTopicConfig,
}

impl CoordinatorConfig {
    pub(super) fn from_values(values: &Values<'_>) -> CoordinatorConfig {
        CoordinatorConfig {
            offsets_topic: InternalTopicConfig {
                partitions: values.count("offsets.topic.num.partitions"),
                segment_bytes: values.count("offsets.topic.segment.bytes"),
            },
            transaction_topic: InternalTopicConfig {
                partitions: values.count("transaction.state.log.num.partitions"),
                segment_bytes: values.count("transaction.state.log.segment.bytes"),
            },
        }
    }
}
