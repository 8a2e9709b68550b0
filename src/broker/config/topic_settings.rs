//! The configs of topics.

use super::table::{
    CLEANUP, COMPRESSION, INDEX_BYTES, LZ4_LEVEL, ONE, SEGMENT_BYTES, Synonym, TIMESTAMP_TYPE,
    TopicSetting, ZSTD_LEVEL,
};
use super::value::Kind;

const HOUR_MS: i64 = 3_600_000;
const MINUTE_MS: i64 = 60_000;

const fn syn(name: &'static str) -> Synonym {
    Synonym { name, factor: 1 }
}

const fn topic(
    name: &'static str,
    kind: Kind,
    synonyms: &'static [Synonym],
    text: &'static str,
) -> TopicSetting {
    TopicSetting { name, kind, synonyms, default: None, text, is_hidden: false }
}

const fn topic_only(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    text: &'static str,
) -> TopicSetting {
    TopicSetting { name, kind, synonyms: &[], default, text, is_hidden: false }
}

/// The configs of topics.
pub const TOPIC: &[TopicSetting] = &[
    topic(
        "cleanup.policy",
        CLEANUP,
        &[syn("log.cleanup.policy")],
        "delete, compact, both or neither: what becomes of old segments. compact keeps the newest \
         record of each key, and demands keys.",
    ),
    topic(
        "compression.type",
        COMPRESSION,
        &[syn("compression.type")],
        "Codec that batches are stored with; producer keeps them as they come.",
    ),
    topic(
        "compression.gzip.level",
        Kind::GzipLevel,
        &[syn("compression.gzip.level")],
        "Level when the broker uses gzip.",
    ),
    topic(
        "compression.lz4.level",
        LZ4_LEVEL,
        &[syn("compression.lz4.level")],
        "Accepted; the broker's LZ4 encoder has one level.",
    ),
    topic(
        "compression.zstd.level",
        ZSTD_LEVEL,
        &[syn("compression.zstd.level")],
        "Level when the broker uses zstd.",
    ),
    topic(
        "delete.retention.ms",
        Kind::LONG_NOT_NEGATIVE,
        &[syn("log.cleaner.delete.retention.ms")],
        "Time that tombstones and markers of transactions stay once they could go.",
    ),
    topic(
        "file.delete.delay.ms",
        Kind::LONG_NOT_NEGATIVE,
        &[syn("log.segment.delete.delay.ms")],
        "Time between the renaming of a deleted file and its removal.",
    ),
    topic(
        "flush.messages",
        Kind::LONG_POSITIVE,
        &[syn("log.flush.interval.messages")],
        "Records between two syncs. 1 is the device tier: an acknowledged record is on the device.",
    ),
    topic(
        "flush.ms",
        Kind::LONG_NOT_NEGATIVE,
        &[syn("log.flush.interval.ms"), syn("log.flush.scheduler.interval.ms")],
        "Time after which records are synced, in the page-cache tier.",
    ),
    topic(
        "index.interval.bytes",
        Kind::INT_NOT_NEGATIVE,
        &[syn("log.index.interval.bytes")],
        "Bytes of batches between two entries of an index.",
    ),
    topic(
        "max.message.bytes",
        Kind::INT_NOT_NEGATIVE,
        &[syn("message.max.bytes")],
        "Largest batch, in bytes as it is stored.",
    ),
    topic(
        "max.compaction.lag.ms",
        Kind::LONG_POSITIVE,
        &[syn("log.cleaner.max.compaction.lag.ms")],
        "Age, by timestamps, at which segments of a compacted topic are rolled, and compacted \
         however small the dirty part is.",
    ),
    topic(
        "min.compaction.lag.ms",
        Kind::LONG_NOT_NEGATIVE,
        &[syn("log.cleaner.min.compaction.lag.ms")],
        "Age, by timestamps, below which nothing is compacted.",
    ),
    topic(
        "min.cleanable.dirty.ratio",
        Kind::Double(0.0, 1.0),
        &[syn("log.cleaner.min.cleanable.ratio")],
        "The log is cleaned when more than this part of it is dirty.",
    ),
    topic(
        "message.timestamp.type",
        TIMESTAMP_TYPE,
        &[syn("log.message.timestamp.type")],
        "Whether records keep the producer's time or get that of the append.",
    ),
    topic(
        "message.timestamp.before.max.ms",
        Kind::LONG_NOT_NEGATIVE,
        &[syn("log.message.timestamp.before.max.ms")],
        "How far a record's time may lie in the past.",
    ),
    topic(
        "message.timestamp.after.max.ms",
        Kind::LONG_NOT_NEGATIVE,
        &[syn("log.message.timestamp.after.max.ms")],
        "How far it may lie in the future.",
    ),
    topic(
        "min.insync.replicas",
        ONE,
        &[syn("min.insync.replicas")],
        "There is one replica; nothing else is taken.",
    ),
    topic(
        "preallocate",
        Kind::Boolean,
        &[syn("log.preallocate")],
        "Whether a new segment's file has its full size at once.",
    ),
    topic(
        "retention.bytes",
        Kind::LONG,
        &[syn("log.retention.bytes")],
        "Size of a partition above which its oldest segments are deleted; below 0 there is none.",
    ),
    topic(
        "retention.ms",
        Kind::Long(-1, i64::MAX),
        &[
            syn("log.retention.ms"),
            Synonym { name: "log.retention.minutes", factor: MINUTE_MS },
            Synonym { name: "log.retention.hours", factor: HOUR_MS },
        ],
        "Age, by timestamps, at which segments are deleted; -1 keeps them.",
    ),
    topic(
        "segment.bytes",
        SEGMENT_BYTES,
        &[syn("log.segment.bytes")],
        "Size at which a segment is rolled.",
    ),
    topic(
        "segment.ms",
        Kind::LONG_POSITIVE,
        &[syn("log.roll.ms"), Synonym { name: "log.roll.hours", factor: HOUR_MS }],
        "Age, by timestamps, at which it is rolled.",
    ),
    topic(
        "segment.jitter.ms",
        Kind::LONG_NOT_NEGATIVE,
        &[syn("log.roll.jitter.ms"), Synonym { name: "log.roll.jitter.hours", factor: HOUR_MS }],
        "Most that is taken off that age by chance, so that partitions don't roll together.",
    ),
    topic(
        "segment.index.bytes",
        INDEX_BYTES,
        &[syn("log.index.size.max.bytes")],
        "Size of an active segment's indexes; a full one rolls the segment. Kafka: from 4.",
    ),
    topic(
        "unclean.leader.election.enable",
        Kind::Boolean,
        &[syn("unclean.leader.election.enable")],
        "Accepted without effect: there is one replica.",
    ),
    topic_only(
        "leader.replication.throttled.replicas",
        Kind::List,
        Some(""),
        "Accepted without effect: there is one replica.",
    ),
    topic_only(
        "follower.replication.throttled.replicas",
        Kind::List,
        Some(""),
        "Accepted without effect: there is one replica.",
    ),
    topic_only(
        "remote.storage.enable",
        Kind::Boolean,
        Some("false"),
        "Only false: there is no tiered storage.",
    ),
    topic_only(
        "remote.log.copy.disable",
        Kind::Boolean,
        Some("false"),
        "Accepted without effect: there is no tiered storage.",
    ),
    topic_only(
        "remote.log.delete.on.disable",
        Kind::Boolean,
        Some("false"),
        "Accepted without effect: there is no tiered storage.",
    ),
    topic_only(
        "local.retention.ms",
        Kind::Long(-2, i64::MAX),
        Some("-2"),
        "Accepted without effect: there is no tiered storage.",
    ),
    topic_only(
        "local.retention.bytes",
        Kind::Long(-2, i64::MAX),
        Some("-2"),
        "Accepted without effect: there is no tiered storage.",
    ),
    TopicSetting {
        name: "internal.segment.bytes",
        kind: Kind::INT_POSITIVE,
        synonyms: &[],
        default: None,
        text: "For tests: beats segment.bytes and may be smaller.",
        is_hidden: true,
    },
];
