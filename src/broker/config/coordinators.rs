//! What coordinators are configured with.

use super::Values;
use crate::coordinator::group::GroupSettings;
use crate::units::usize_of;

/// What a batch takes besides its records, generously.
const BATCH_OVERHEAD: u64 = 1024;

const MINUTE_MS: i64 = 60_000;

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
    /// Groups.
    pub groups: GroupSettings,
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
            groups: groups(values),
        }
    }
}

fn groups(values: &Values<'_>) -> GroupSettings {
    let count = |name| usize_of(u64::from(values.count(name)));
    let batch = values.bytes("message.max.bytes").0.saturating_sub(BATCH_OVERHEAD);
    GroupSettings {
        session_timeout_min_ms: values.int("group.min.session.timeout.ms"),
        session_timeout_max_ms: values.int("group.max.session.timeout.ms"),
        initial_delay_ms: values.int("group.initial.rebalance.delay.ms"),
        members_max: count("group.max.size"),
        groups_max: count("uringlog.groups.max"),
        offsets_max: count("uringlog.group.offsets.max"),
        metadata_max: values.int("offset.metadata.max.bytes"),
        retention_ms: values.number("offsets.retention.minutes").saturating_mul(MINUTE_MS),
        retention_check_ms: values.number("offsets.retention.check.interval.ms"),
        write_bytes_max: usize_of(batch),
    }
}
