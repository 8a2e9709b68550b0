//! The settings of groups and transactions.

use super::server_settings::of;
use super::table::{ONE, SEGMENT_BYTES, Setting};
use super::value::Kind;

/// The settings of groups and transactions, in the order of the documentation.
pub const COORDINATORS: &[Setting] = &[
    of(
        "offsets.topic.num.partitions",
        Kind::Int(1, 10_000),
        Some("50"),
        "Partitions of __consumer_offsets, which is made when a group is first asked for. A group \
         belongs to one of them by its name, so it must not change afterwards.",
    ),
    of("offsets.topic.segment.bytes", SEGMENT_BYTES, Some("104857600"), "Its segment.bytes."),
    of("offsets.topic.replication.factor", ONE, Some("1"), "There is one replica. Kafka: 3."),
    of(
        "offset.metadata.max.bytes",
        Kind::INT,
        Some("4096"),
        "Longest text that a consumer may commit with an offset, in UTF-16 units.",
    ),
    of(
        "offsets.retention.minutes",
        Kind::INT_POSITIVE,
        Some("10080"),
        "Time for which offsets are kept when their group has no member any more, or doesn't \
         subscribe to the topic any more.",
    ),
    of(
        "offsets.retention.check.interval.ms",
        Kind::LONG_POSITIVE,
        Some("600000"),
        "How often it is looked for such offsets.",
    ),
    of(
        "group.min.session.timeout.ms",
        Kind::INT,
        Some("6000"),
        "Shortest session timeout that a member may ask for.",
    ),
    of(
        "group.max.session.timeout.ms",
        Kind::INT,
        Some("1800000"),
        "Longest session timeout that a member may ask for.",
    ),
    of(
        "group.initial.rebalance.delay.ms",
        Kind::INT_NOT_NEGATIVE,
        Some("3000"),
        "How long an empty group waits for further members when the first one has come. Kafka: \
         any number.",
    ),
    of(
        "group.max.size",
        Kind::INT_POSITIVE,
        Some("10000"),
        "Most members of one group. Kafka: 2147483647.",
    ),
    of(
        "group.consumer.session.timeout.ms",
        Kind::INT_POSITIVE,
        Some("45000"),
        "How long a member with the consumer protocol may be silent.",
    ),
    of(
        "group.consumer.min.session.timeout.ms",
        Kind::INT_POSITIVE,
        Some("45000"),
        "Least that it may be, for all groups and for one (consumer.session.timeout.ms).",
    ),
    of(
        "group.consumer.max.session.timeout.ms",
        Kind::INT_POSITIVE,
        Some("60000"),
        "Most that it may be.",
    ),
    of(
        "group.consumer.heartbeat.interval.ms",
        Kind::INT_POSITIVE,
        Some("5000"),
        "How often it is to say that it is there.",
    ),
    of(
        "group.consumer.min.heartbeat.interval.ms",
        Kind::INT_POSITIVE,
        Some("5000"),
        "Least that this may be, for all groups and for one (consumer.heartbeat.interval.ms).",
    ),
    of(
        "group.consumer.max.heartbeat.interval.ms",
        Kind::INT_POSITIVE,
        Some("15000"),
        "Most that it may be.",
    ),
    of(
        "group.consumer.max.size",
        Kind::INT_POSITIVE,
        Some("10000"),
        "Most members of one group with the consumer protocol. Kafka: 2147483647.",
    ),
    of(
        "group.consumer.assignors",
        Kind::AnyOf(&["uniform", "range"]),
        Some("uniform,range"),
        "What may compute assignments; the first one does when members prefer none. Kafka: also \
         names of classes.",
    ),
    of(
        "group.consumer.migration.policy",
        Kind::OneOf(&["bidirectional", "upgrade", "downgrade", "disabled"]),
        Some("bidirectional"),
        "Whether a group with members becomes one with the consumer protocol when a member with \
         that joins (upgrade), and a classic one when the last such member leaves (downgrade).",
    ),
    of(
        "group.consumer.assignment.interval.ms",
        Kind::INT_NOT_NEGATIVE,
        Some("1000"),
        "Least time between two assignments of a group with the consumer protocol.",
    ),
    of(
        "group.consumer.min.assignment.interval.ms",
        Kind::INT_NOT_NEGATIVE,
        Some("0"),
        "Least that this may be, for all groups and for one (consumer.assignment.interval.ms).",
    ),
    of(
        "group.consumer.max.assignment.interval.ms",
        Kind::INT_NOT_NEGATIVE,
        Some("15000"),
        "Most that it may be.",
    ),
    of(
        "group.consumer.regex.refresh.interval.ms",
        Kind::INT_POSITIVE,
        Some("600000"),
        "How often it is looked anew for topics that match a subscription, when topics have not \
         changed.",
    ),
    of(
        "uringlog.groups.max",
        Kind::INT_POSITIVE,
        Some("100000"),
        "Most groups of one partition of __consumer_offsets; further ones are refused with \
         COORDINATOR_NOT_AVAILABLE.",
    ),
    of(
        "uringlog.group.offsets.max",
        Kind::INT_POSITIVE,
        Some("100000"),
        "Most offsets that one group has committed; further ones are refused with \
         INVALID_COMMIT_OFFSET_SIZE.",
    ),
    of(
        "transaction.state.log.num.partitions",
        Kind::Int(1, 10_000),
        Some("50"),
        "Partitions of __transaction_state, which is made when a transactional id is first asked \
         for. An id belongs to one of them by its name, so it must not change afterwards.",
    ),
    of(
        "transaction.state.log.segment.bytes",
        SEGMENT_BYTES,
        Some("104857600"),
        "Its segment.bytes.",
    ),
    of("transaction.state.log.replication.factor", ONE, Some("1"), "One replica. Kafka: 3."),
    of("transaction.state.log.min.isr", ONE, Some("1"), "One replica. Kafka: 2."),
    of(
        "transaction.max.timeout.ms",
        Kind::INT_POSITIVE,
        Some("900000"),
        "Longest transaction timeout that a producer may ask for.",
    ),
    of(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind::INT_POSITIVE,
        Some("10000"),
        "How often transactions that are open for longer than their timeout are looked for, and \
         aborted.",
    ),
    of(
        "transactional.id.expiration.ms",
        Kind::INT_POSITIVE,
        Some("604800000"),
        "Time for which a transactional id is kept that nobody uses.",
    ),
    of(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind::INT_POSITIVE,
        Some("3600000"),
        "How often such ids are looked for.",
    ),
    of(
        "transaction.partition.verification.enable",
        Kind::Boolean,
        Some("true"),
        "Whether a partition asks the coordinator before it takes the first batch of a \
         transaction from a client that speaks transaction version 0 or 1. Otherwise a batch that \
         comes late may hold up readers of committed records for ever.",
    ),
    of(
        "add.partitions.to.txn.retry.backoff.max.ms",
        Kind::INT_NOT_NEGATIVE,
        Some("100"),
        "How long the first batch of a transaction waits for the end of the one before.",
    ),
    of(
        "add.partitions.to.txn.retry.backoff.ms",
        Kind::INT_POSITIVE,
        Some("20"),
        "Time between two tries meanwhile.",
    ),
];
