//! What a partition's log is configured with: Kafka's topic configs, as far as the log obeys them.
//!
//! Parsed and range-checked above; here they are plain numbers.

use crate::format::batch::Codec;
use crate::units::ByteCount;

/// `cleanup.policy`: any subset of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CleanupPolicy {
    /// `delete`: whole segments go by age and size.
    pub delete: bool,
    /// `compact`: the newest record of each key stays.
    pub compact: bool,
}

/// `message.timestamp.type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimestampType {
    /// Records keep the producer's time.
    CreateTime,
    /// Batches are stamped when they are appended.
    LogAppendTime,
}

/// One partition's settings. Names and defaults are Kafka's (`LogConfig`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogConfig {
    /// `segment.bytes`.
    pub segment_bytes: ByteCount,
    /// `segment.ms`.
    pub segment_ms: u64,
    /// `segment.jitter.ms`; the draw for each segment comes in with its creation.
    pub segment_jitter_ms: u64,
    /// `segment.index.bytes`.
    pub segment_index_bytes: ByteCount,
    /// `index.interval.bytes`.
    pub index_interval_bytes: ByteCount,
    /// `retention.ms`; `None` keeps for ever.
    pub retention_ms: Option<u64>,
    /// `retention.bytes`; `None` has no limit.
    pub retention_bytes: Option<ByteCount>,
    /// `file.delete.delay.ms`.
    pub file_delete_delay_ms: u64,
    /// `max.message.bytes`: limit of a whole batch.
    pub batch_bytes_max: ByteCount,
    /// `flush.messages`; 1 is the device tier.
    pub flush_messages: u64,
    /// `flush.ms`.
    pub flush_ms: u64,
    /// `cleanup.policy`.
    pub cleanup_policy: CleanupPolicy,
    /// `compression.type`; `None` keeps the producer's codec.
    pub compression: Option<Codec>,
    /// `compression.gzip.level`, -1 for the library's default.
    pub gzip_level: i32,
    /// `compression.lz4.level`.
    pub lz4_level: i32,
    /// `compression.zstd.level`.
    pub zstd_level: i32,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: u64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: u64,
    /// `preallocate`.
    pub preallocate: bool,
    /// `min.compaction.lag.ms`.
    pub compaction_lag_min_ms: u64,
    /// `max.compaction.lag.ms`.
    pub compaction_lag_max_ms: u64,
    /// `delete.retention.ms`: how long tombstones and markers stay once they could go.
    pub delete_retention_ms: u64,
    /// `min.cleanable.dirty.ratio`, in millionths.
    pub cleanable_ratio_millionths: u64,
    /// `producer.id.expiration.ms` of the broker, counted by the server's clock.
    pub producer_expiration_ms: u64,
    /// Limit for the decompressed records of one batch; ours, not Kafka's: a bomb is refused.
    pub decompressed_bytes_max: ByteCount,
}

impl LogConfig {
    /// Kafka's defaults, in the given durability tier.
    pub fn defaults(durability: Durability) -> LogConfig {
        const DAY_MS: u64 = 86_400_000;
        LogConfig {
            segment_bytes: ByteCount(1 << 30),
            segment_ms: 7 * DAY_MS,
            segment_jitter_ms: 0,
            segment_index_bytes: ByteCount(10 << 20),
            index_interval_bytes: ByteCount(4096),
            retention_ms: Some(7 * DAY_MS),
            retention_bytes: None,
            file_delete_delay_ms: 60_000,
            batch_bytes_max: ByteCount((1 << 20) + 12),
            flush_messages: match durability {
                Durability::Device => 1,
                Durability::PageCache => u64::MAX,
            },
            flush_ms: u64::MAX,
            cleanup_policy: CleanupPolicy { delete: true, compact: false },
            compression: None,
            gzip_level: -1,
            lz4_level: 9,
            zstd_level: 3,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: u64::MAX,
            timestamp_after_max_ms: 3_600_000,
            preallocate: false,
            compaction_lag_min_ms: 0,
            compaction_lag_max_ms: u64::MAX,
            delete_retention_ms: DAY_MS,
            cleanable_ratio_millionths: 500_000,
            producer_expiration_ms: DAY_MS,
            decompressed_bytes_max: ByteCount(128 << 20),
        }
    }

    /// Which promise an acknowledgement makes.
    pub fn durability(&self) -> Durability {
        if self.flush_messages == 1 { Durability::Device } else { Durability::PageCache }
    }
}

/// What an acknowledgement promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// The record is on the device: `flush.messages` is 1.
    Device,
    /// The record is in the kernel's page cache, as with Kafka's defaults.
    PageCache,
}
