//! What group coordinators are configured with.

use std::sync::Arc;

pub use crate::coordinator::group::assignor::Assignor;
use crate::coordinator::group::topics::Topics;
use crate::coordinator::{BatchSize, Record};

/// The settings of one group coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupSettings {
    /// `group.min.session.timeout.ms`.
    pub session_timeout_min_ms: i32,
    /// `group.max.session.timeout.ms`.
    pub session_timeout_max_ms: i32,
    /// `group.initial.rebalance.delay.ms`.
    pub initial_delay_ms: i32,
    /// `group.max.size`: members of a classic group; and, for each, ids given out to members that
    /// have not joined yet.
    pub members_max: usize,
    /// Groups of one partition.
    pub groups_max: usize,
    /// Offsets that one group has committed.
    pub offsets_max: usize,
    /// `offset.metadata.max.bytes`, in UTF-16 units.
    pub metadata_max: i32,
    /// `offsets.retention.minutes` in milliseconds.
    pub retention_ms: i64,
    /// `offsets.retention.check.interval.ms`.
    pub retention_check_ms: i64,
    /// Of the consumer protocol.
    pub consumer: ConsumerSettings,
    /// Largest batch that one event may write: `max.message.bytes` of the topic, which beats this
    /// as soon as the partition is there.
    pub write_bytes_max: usize,
}

impl GroupSettings {
    /// Whether a batch may have this record.
    pub fn fits(&self, record: &Record) -> bool {
        BatchSize::default().with(record) <= self.write_bytes_max
    }
}

/// The least and the most that a number may be; the least is not above.
pub type Bounds = (i32, i32);

/// The settings of groups with the consumer protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsumerSettings {
    /// `group.consumer.session.timeout.ms`.
    pub session_timeout_ms: i32,
    /// What it may be for one group.
    pub session_timeout_bounds: Bounds,
    /// `group.consumer.heartbeat.interval.ms`.
    pub heartbeat_interval_ms: i32,
    /// What it may be for one group.
    pub heartbeat_interval_bounds: Bounds,
    /// `group.consumer.max.size`.
    pub members_max: usize,
    /// `group.consumer.assignors`, the first one for members that prefer none; never empty.
    pub assignors: Vec<Assignor>,
    /// `group.consumer.assignment.interval.ms`.
    pub assignment_interval_ms: i32,
    /// What it may be for one group.
    pub assignment_interval_bounds: Bounds,
    /// `group.consumer.regex.refresh.interval.ms`.
    pub regex_refresh_ms: i32,
    /// Whether a group becomes one with the consumer protocol when a member with that joins.
    pub can_upgrade: bool,
    /// Whether it becomes a classic one when the last member with the consumer protocol leaves.
    pub can_downgrade: bool,
}

/// A group's own `group.consumer.session.timeout.ms`.
pub const OWN_SESSION_TIMEOUT: &str = "consumer.session.timeout.ms";
/// A group's own `group.consumer.heartbeat.interval.ms`.
pub const OWN_HEARTBEAT_INTERVAL: &str = "consumer.heartbeat.interval.ms";
/// A group's own `group.consumer.assignment.interval.ms`.
pub const OWN_ASSIGNMENT_INTERVAL: &str = "consumer.assignment.interval.ms";

/// What a group coordinator has to know.
#[derive(Clone, Debug)]
pub struct GroupContext {
    /// The settings.
    pub settings: GroupSettings,
    /// The topics that there are.
    pub topics: Arc<dyn Topics>,
}

/// Time that a member has to join once it was added, whatever its session timeout
/// (`CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS`).
pub const NEW_MEMBER_TIMEOUT_MS: i64 = 5 * 60 * 1000;

#[cfg(test)]
impl GroupSettings {
    /// Kafka's defaults, with small limits.
    pub(crate) fn for_tests() -> GroupSettings {
        GroupSettings {
            session_timeout_min_ms: 6_000,
            session_timeout_max_ms: 1_800_000,
            initial_delay_ms: 3_000,
            members_max: 5,
            groups_max: 20,
            offsets_max: 50,
            metadata_max: 4096,
            retention_ms: 7 * 86_400_000,
            retention_check_ms: 600_000,
            consumer: ConsumerSettings {
                session_timeout_ms: 45_000,
                session_timeout_bounds: (45_000, 60_000),
                heartbeat_interval_ms: 5_000,
                heartbeat_interval_bounds: (5_000, 15_000),
                members_max: 6,
                assignors: vec![Assignor::Uniform, Assignor::Range],
                assignment_interval_ms: 0,
                assignment_interval_bounds: (0, 15_000),
                regex_refresh_ms: 600_000,
                can_upgrade: true,
                can_downgrade: true,
            },
            write_bytes_max: 1 << 20,
        }
    }
}
