//! What coordinators are configured with.

use super::Values;
use crate::broker::config::value::items;
use crate::coordinator::group::GroupSettings;
use crate::coordinator::group::settings::{Assignor, ConsumerSettings};
use crate::units::usize_of;

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
    /// Transactions.
    pub transactions: TransactionConfig,
}

/// The settings of transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransactionConfig {
    /// Longest timeout that a producer may ask for.
    pub timeout_ms_max: i32,
    /// How long an unused transactional id is kept.
    pub id_expiration_ms: u64,
    /// How often transactions that are open for too long are looked for.
    pub abort_interval_ms: u64,
    /// How often unused ids are looked for.
    pub expiration_interval_ms: u64,
    /// How long a batch waits for the end of the transaction before.
    pub add_wait_ms_max: u64,
    /// Time between two tries meanwhile.
    pub add_again_after_ms: u64,
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
            transactions: TransactionConfig::from_values(values),
        }
    }
}

impl CoordinatorConfig {
    /// What contradicts itself (`GroupCoordinatorConfig`): the setting at fault, and why.
    pub(super) fn contradictions(&self) -> Vec<(String, String)> {
        let it = &self.groups.consumer;
        let mut faults = Vec::new();
        for (name, value, (least, most)) in [
            ("session.timeout.ms", it.session_timeout_ms, it.session_timeout_bounds),
            ("heartbeat.interval.ms", it.heartbeat_interval_ms, it.heartbeat_interval_bounds),
            ("assignment.interval.ms", it.assignment_interval_ms, it.assignment_interval_bounds),
        ] {
            let setting = |bound: &str| format!("group.consumer.{bound}{name}");
            let mut check = |is_wrong, (lower, greater): (&str, &str)| {
                let (lower, greater) = (setting(lower), setting(greater));
                if is_wrong {
                    let text = format!("{greater} must be greater than or equal to {lower}");
                    faults.push((greater, text));
                }
            };
            check(most < least, ("min.", "max."));
            check(value < least, ("min.", ""));
            check(most < value, ("", "max."));
        }
        if it.session_timeout_ms <= it.heartbeat_interval_ms {
            let name = "group.consumer.heartbeat.interval.ms";
            let text = format!("{name} must be less than group.consumer.session.timeout.ms");
            faults.push((name.to_owned(), text));
        }
        faults
    }
}

impl TransactionConfig {
    fn from_values(values: &Values<'_>) -> TransactionConfig {
        let ms = |name| u64::from(values.count(name));
        TransactionConfig {
            timeout_ms_max: values.int("transaction.max.timeout.ms"),
            id_expiration_ms: ms("transactional.id.expiration.ms"),
            abort_interval_ms: ms("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiration_interval_ms: ms(
                "transaction.remove.expired.transaction.cleanup.interval.ms",
            ),
            add_wait_ms_max: ms("add.partitions.to.txn.retry.backoff.max.ms"),
            add_again_after_ms: ms("add.partitions.to.txn.retry.backoff.ms"),
        }
    }
}

fn groups(values: &Values<'_>) -> GroupSettings {
    let count = |name| usize_of(u64::from(values.count(name)));
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
        consumer: consumer(values),
        write_bytes_max: usize_of(values.bytes("message.max.bytes").0),
    }
}

fn consumer(values: &Values<'_>) -> ConsumerSettings {
    let policy = values.text("group.consumer.migration.policy");
    let named = items(values.text("group.consumer.assignors"));
    let assignors = named.map(|it| Assignor::named(it).expect("the value was checked"));
    let mut assignors: Vec<Assignor> = assignors.collect();
    if assignors.is_empty() {
        // As if it were not set: groups can't do without.
        assignors = vec![Assignor::Uniform, Assignor::Range];
    }
    let bounds = |name: &str| {
        let bound = |which: &str| values.int(&format!("group.consumer.{which}.{name}"));
        (bound("min"), bound("max"))
    };
    ConsumerSettings {
        session_timeout_ms: values.int("group.consumer.session.timeout.ms"),
        session_timeout_bounds: bounds("session.timeout.ms"),
        heartbeat_interval_ms: values.int("group.consumer.heartbeat.interval.ms"),
        heartbeat_interval_bounds: bounds("heartbeat.interval.ms"),
        members_max: usize_of(u64::from(values.count("group.consumer.max.size"))),
        assignors,
        assignment_interval_ms: values.int("group.consumer.assignment.interval.ms"),
        assignment_interval_bounds: bounds("assignment.interval.ms"),
        regex_refresh_ms: values.int("group.consumer.regex.refresh.interval.ms"),
        can_upgrade: matches!(policy, "bidirectional" | "upgrade"),
        can_downgrade: matches!(policy, "bidirectional" | "downgrade"),
    }
}
