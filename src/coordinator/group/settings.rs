//! What group coordinators are configured with.

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
    /// Largest size of what one event writes: a batch must fit `max.message.bytes`.
    pub write_bytes_max: usize,
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
            write_bytes_max: 1 << 20,
        }
    }
}
