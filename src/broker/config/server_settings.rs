//! The server's settings.

use super::coordinator_settings::COORDINATORS;
use super::table::{
    CLEANUP, COMPRESSION, INDEX_BYTES, LZ4_LEVEL, ONE, SEGMENT_BYTES, Setting, TIMESTAMP_TYPE,
    ZSTD_LEVEL,
};
use super::value::Kind;

const NEVER: Option<&str> = Some("9223372036854775807");
const DAY_MS: Option<&str> = Some("86400000");

pub(super) const fn of(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    text: &'static str,
) -> Setting {
    Setting { name, kind, default, text }
}

/// The server's settings, in the order of the documentation.
pub const SERVER: &[Setting] = &joined::<{ BROKER.len() + COORDINATORS.len() }>();

const fn joined<const COUNT: usize>() -> [Setting; COUNT] {
    let mut all = [BROKER[0]; COUNT];
    let mut at = 0;
    while at < COUNT {
        all[at] = if at < BROKER.len() { BROKER[at] } else { COORDINATORS[at - BROKER.len()] };
        at += 1;
    }
    all
}

const BROKER: &[Setting] = &[
    of(
        "node.id",
        Kind::INT_NOT_NEGATIVE,
        Some("1"),
        "This broker's number: the only replica of every partition on disk. On the wire shard i is \
         broker node.id + i.",
    ),
    of(
        "log.dirs",
        Kind::List,
        None,
        "The data directory; exactly one. `--dir` beats it. It beats log.dir.",
    ),
    of("log.dir", Kind::Text, None, "The same by its other name. Kafka: /tmp/kafka-logs."),
    of("num.partitions", Kind::INT_POSITIVE, Some("1"), "Partitions of a topic that names none."),
    of(
        "default.replication.factor",
        ONE,
        Some("1"),
        "There is one replica of each partition; nothing else is taken.",
    ),
    of(
        "auto.create.topics.enable",
        Kind::Boolean,
        Some("true"),
        "Whether a client's Metadata request creates the topics that it asks for.",
    ),
    // Sizes and limits of requests and connections.
    of(
        "message.max.bytes",
        Kind::INT_NOT_NEGATIVE,
        Some("1048588"),
        "Largest batch, in bytes as it is stored. Topics: max.message.bytes.",
    ),
    of(
        "socket.request.max.bytes",
        Kind::INT_POSITIVE,
        Some("104857600"),
        "Largest request; a longer one closes its connection.",
    ),
    of(
        "fetch.max.bytes",
        Kind::Int(1024, i32::MAX),
        Some("57671680"),
        "Largest answer to a fetch, whatever the client asks for; at least one batch is sent.",
    ),
    of(
        "max.connections",
        Kind::INT_NOT_NEGATIVE,
        Some("10000"),
        "Most connections of one shard; further ones are closed at once. Kafka: 2147483647, per \
         broker.",
    ),
    of(
        "max.incremental.fetch.session.cache.slots",
        Kind::INT_NOT_NEGATIVE,
        Some("1000"),
        "Fetch sessions that one shard keeps; further clients name all their partitions in every \
         fetch. Kafka: per broker.",
    ),
    of(
        "connections.max.idle.ms",
        Kind::LONG,
        Some("600000"),
        "A connection without a request for so long is closed; below 0 never.",
    ),
    // Segments.
    of(
        "log.segment.bytes",
        SEGMENT_BYTES,
        Some("1073741824"),
        "Size at which a segment is rolled.",
    ),
    of("log.roll.ms", Kind::LONG_POSITIVE, None, "Age, by timestamps, at which it is rolled."),
    of(
        "log.roll.hours",
        Kind::INT_POSITIVE,
        Some("168"),
        "The same in hours; log.roll.ms beats it.",
    ),
    of(
        "log.roll.jitter.ms",
        Kind::LONG_NOT_NEGATIVE,
        None,
        "Most that is taken off that age by chance, so that partitions don't roll together.",
    ),
    of(
        "log.roll.jitter.hours",
        Kind::INT_NOT_NEGATIVE,
        Some("0"),
        "The same in hours; log.roll.jitter.ms beats it.",
    ),
    of(
        "log.index.size.max.bytes",
        INDEX_BYTES,
        Some("10485760"),
        "Size of an active segment's indexes; a full one rolls the segment. Kafka: from 4.",
    ),
    of(
        "log.index.interval.bytes",
        Kind::INT_NOT_NEGATIVE,
        Some("4096"),
        "Bytes of batches between two entries of an index.",
    ),
    of(
        "log.preallocate",
        Kind::Boolean,
        Some("false"),
        "Whether a new segment's file has its full size at once.",
    ),
    of(
        "log.segment.delete.delay.ms",
        Kind::LONG_NOT_NEGATIVE,
        Some("60000"),
        "Time between the renaming of a deleted file and its removal.",
    ),
    // Retention.
    of(
        "log.retention.ms",
        Kind::LONG,
        None,
        "Age, by timestamps, at which segments are deleted; -1 keeps them.",
    ),
    of("log.retention.minutes", Kind::INT, None, "The same in minutes; log.retention.ms beats it."),
    of("log.retention.hours", Kind::INT, Some("168"), "The same in hours; the two others beat it."),
    of(
        "log.retention.bytes",
        Kind::LONG,
        Some("-1"),
        "Size of a partition above which its oldest segments are deleted; below 0 there is none.",
    ),
    of(
        "log.retention.check.interval.ms",
        Kind::LONG_POSITIVE,
        Some("300000"),
        "Time between two looks for segments to delete.",
    ),
    of(
        "log.initial.task.delay.ms",
        Kind::LONG_NOT_NEGATIVE,
        Some("30000"),
        "Time from the start to the first of these looks.",
    ),
    of(
        "log.cleanup.policy",
        CLEANUP,
        Some("delete"),
        "delete, compact, both or neither: what becomes of old segments. compact keeps the newest \
         record of each key, and demands keys.",
    ),
    // Durability.
    of(
        "log.flush.interval.messages",
        Kind::LONG_POSITIVE,
        Some("1"),
        "Records between two syncs. 1 is the device tier: an acknowledged record is on the device. \
         Kafka: 9223372036854775807, the page-cache tier. `--durability` sets it.",
    ),
    of(
        "log.flush.interval.ms",
        Kind::LONG_NOT_NEGATIVE,
        None,
        "Time after which records are synced, in the page-cache tier.",
    ),
    of(
        "log.flush.scheduler.interval.ms",
        Kind::LONG_NOT_NEGATIVE,
        NEVER,
        "The same where log.flush.interval.ms isn't set.",
    ),
    of(
        "log.flush.offset.checkpoint.interval.ms",
        Kind::LONG_NOT_NEGATIVE,
        Some("60000"),
        "Time between two writes of recovery-point-offset-checkpoint.",
    ),
    of(
        "log.flush.start.offset.checkpoint.interval.ms",
        Kind::LONG_NOT_NEGATIVE,
        Some("60000"),
        "Time between two writes of log-start-offset-checkpoint.",
    ),
    of(
        "replica.high.watermark.checkpoint.interval.ms",
        Kind::LONG_NOT_NEGATIVE,
        Some("5000"),
        "Time between two writes of replication-offset-checkpoint.",
    ),
    // What a batch must be like.
    of(
        "compression.type",
        COMPRESSION,
        Some("producer"),
        "Codec that batches are stored with; producer keeps them as they come.",
    ),
    of("compression.gzip.level", Kind::GzipLevel, Some("-1"), "Level when the broker uses gzip."),
    of(
        "compression.lz4.level",
        LZ4_LEVEL,
        Some("9"),
        "Accepted; the broker's LZ4 encoder has one level.",
    ),
    of("compression.zstd.level", ZSTD_LEVEL, Some("3"), "Level when the broker uses zstd."),
    of(
        "log.message.timestamp.type",
        TIMESTAMP_TYPE,
        Some("CreateTime"),
        "Whether records keep the producer's time or get that of the append.",
    ),
    of(
        "log.message.timestamp.before.max.ms",
        Kind::LONG_NOT_NEGATIVE,
        NEVER,
        "How far a record's time may lie in the past.",
    ),
    of(
        "log.message.timestamp.after.max.ms",
        Kind::LONG_NOT_NEGATIVE,
        Some("3600000"),
        "How far it may lie in the future.",
    ),
    of(
        "producer.id.expiration.ms",
        Kind::INT_POSITIVE,
        DAY_MS,
        "Time after which a silent idempotent producer's sequence numbers are forgotten, by this \
         server's clock since its last append or the start (Kafka: since its last timestamp).",
    ),
    of("min.insync.replicas", ONE, Some("1"), "There is one replica; nothing else is taken."),
    of(
        "unclean.leader.election.enable",
        Kind::Boolean,
        Some("false"),
        "Accepted without effect: there is one replica.",
    ),
    // Compaction.
    of(
        "log.cleaner.enable",
        Kind::Boolean,
        Some("true"),
        "Whether compacted topics are compacted. Without it those with compact,delete still lose \
         what is too old (Kafka: not).",
    ),
    of(
        "log.cleaner.threads",
        Kind::INT_NOT_NEGATIVE,
        Some("1"),
        "Each shard has one cleaner, whatever the number; 0: log.cleaner.enable=false.",
    ),
    of(
        "log.cleaner.dedupe.buffer.size",
        Kind::Long((1 << 20) + 1, i64::MAX),
        Some("134217728"),
        "Memory for the newest offsets of keys while a log is cleaned, 24 bytes each, shared out \
         to the shards. A dirty part with more keys takes several rounds.",
    ),
    of(
        "log.cleaner.io.buffer.size",
        Kind::INT_NOT_NEGATIVE,
        Some("524288"),
        "Bytes that cleaning reads and writes at a time, shared out to the shards; 16 KiB to 512 \
         KiB of each are obeyed.",
    ),
    of(
        "log.cleaner.io.buffer.load.factor",
        Kind::Double(0.01, 1.0),
        Some("0.9"),
        "How full that memory gets.",
    ),
    of(
        "log.cleaner.io.max.bytes.per.second",
        Kind::Double(1.0, f64::MAX),
        Some("1.7976931348623157E308"),
        "Bytes per second that cleaning reads and writes at most, shared out to the shards.",
    ),
    of(
        "log.cleaner.backoff.ms",
        Kind::LONG_NOT_NEGATIVE,
        Some("15000"),
        "Pause of the cleaner when nothing is dirty enough.",
    ),
    of(
        "log.cleaner.delete.retention.ms",
        Kind::LONG_NOT_NEGATIVE,
        DAY_MS,
        "Time that tombstones and markers of transactions stay once they could go.",
    ),
    of(
        "log.cleaner.min.compaction.lag.ms",
        Kind::LONG_NOT_NEGATIVE,
        Some("0"),
        "Age, by timestamps, below which nothing is compacted.",
    ),
    of(
        "log.cleaner.max.compaction.lag.ms",
        Kind::LONG_POSITIVE,
        NEVER,
        "Age, by timestamps, at which segments of compacted topics are rolled, and compacted \
         however small the dirty part is.",
    ),
    of(
        "log.cleaner.min.cleanable.ratio",
        Kind::Double(0.0, 1.0),
        Some("0.5"),
        "A compacted log is cleaned when more than this part of it is dirty.",
    ),
    // Own settings.
    of(
        "journal.enable",
        Kind::OneOf(&["auto", "true", "false"]),
        Some("auto"),
        "Whether small plans of a turn are made durable by one write to the shard's commit journal \
         instead of an fdatasync of each file. auto: unless a probe at the start finds a direct \
         write slower than a sync; true: wherever the file system permits it.",
    ),
    of(
        "journal.bytes",
        Kind::Long(1 << 20, 1 << 30),
        Some("67108864"),
        "Length of each shard's journal, shard-N.journal in the data directory; rounded up to \
         4,096. A crash costs its replay: well below a second for the default.",
    ),
    of(
        "journal.plan.bytes.max",
        Kind::Long(4096, 1 << 20),
        Some("131072"),
        "A partition's batches of one turn go to the journal up to this size; more of them sync \
         their own file, since a journal writes everything twice.",
    ),
    of(
        "uringlog.splice.bytes.min",
        Kind::LONG_NOT_NEGATIVE,
        Some("131072"),
        "Answers of so many bytes and more travel from the file to the socket by splice; smaller \
         ones are read and sent.",
    ),
    of(
        "uringlog.frames.bytes.max",
        Kind::LONG_POSITIVE,
        Some("134217728"),
        "Bytes of requests that one shard holds in memory; above, it stops reading its sockets. At \
         least socket.request.max.bytes.",
    ),
    of(
        "uringlog.decompressed.bytes.max",
        Kind::LONG_POSITIVE,
        Some("134217728"),
        "Largest size of one batch's records when they are decompressed for validation.",
    ),
    of(
        "uringlog.connection.pipeline.max",
        Kind::Int(1, 10_000),
        Some("1024"),
        "Produce requests of one connection that may wait for their answers; then it isn't read.",
    ),
    of(
        "uringlog.ring.entries",
        Kind::Int(64, 32_768),
        Some("1024"),
        "Entries of a shard's submission queue; rounded up to a power of two.",
    ),
    of(
        "uringlog.ring.files.max",
        Kind::Int(64, 1 << 20),
        Some("65536"),
        "Files that one shard holds open, if RLIMIT_NOFILE allows as many; sealed segments are \
         closed and opened again.",
    ),
    of(
        "uringlog.pipes.max",
        Kind::Int(1, 1024),
        Some("16"),
        "Pipes of 1 MiB that one shard splices through at a time; further answers wait.",
    ),
    of(
        "uringlog.workers.bounded.max",
        Kind::Int(1, 1024),
        Some("4"),
        "Kernel workers of a shard's ring for file operations that can't be done at once.",
    ),
    of(
        "uringlog.workers.unbounded.max",
        Kind::Int(1, 1024),
        Some("4"),
        "Kernel workers of a shard's ring for the rest.",
    ),
    of(
        "uringlog.partitions.max",
        Kind::Int(1, 1_000_000),
        Some("20000"),
        "Most partitions of the whole server; creating more is refused. Of each shard's files \
         three quarters are for partitions, three for each, and that is a limit, too.",
    ),
];
