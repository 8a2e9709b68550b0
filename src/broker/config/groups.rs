//! The configs of groups (KIP-848, KIP-932, KIP-1071): checks, and what DescribeConfigs tells.

use std::collections::BTreeMap;

use super::ServerConfig;
use super::describe::{ConfigSource, Described, Synonym, server_synonyms};
use super::value::Kind;
use crate::coordinator::group::settings::{
    Bounds, OWN_ASSIGNMENT_INTERVAL, OWN_HEARTBEAT_INTERVAL, OWN_SESSION_TIMEOUT,
};

/// One config of groups.
struct GroupSetting {
    name: &'static str,
    kind: Kind,
    /// The broker's setting that gives the default and, by its name, the bounds.
    synonym: &'static str,
    default: &'static str,
    text: &'static str,
}

const fn of(
    name: &'static str,
    kind: Kind,
    (synonym, default): (&'static str, &'static str),
    text: &'static str,
) -> GroupSetting {
    GroupSetting { name, kind, synonym, default, text }
}

const SESSION: Kind = Kind::Int(45_000, 60_000);
const HEARTBEAT: Kind = Kind::Int(5_000, 15_000);
const ASSIGNMENT: Kind = Kind::Int(0, 15_000);

const GROUP: &[GroupSetting] = &[
    of(
        "consumer.assignment.interval.ms",
        ASSIGNMENT,
        ("group.consumer.assignment.interval.ms", "1000"),
        "Time between two assignments of a consumer group.",
    ),
    of(
        "consumer.heartbeat.interval.ms",
        HEARTBEAT,
        ("group.consumer.heartbeat.interval.ms", "5000"),
        "Heartbeat interval that members of a consumer group are told.",
    ),
    of(
        "consumer.session.timeout.ms",
        SESSION,
        ("group.consumer.session.timeout.ms", "45000"),
        "Time without a heartbeat after which a member of a consumer group is gone.",
    ),
    of(
        "share.assignment.interval.ms",
        ASSIGNMENT,
        ("group.share.assignment.interval.ms", "1000"),
        "Kept without effect: there are no share groups.",
    ),
    of(
        "share.auto.offset.reset",
        Kind::Text,
        ("share.auto.offset.reset", "latest"),
        "Kept without effect: there are no share groups.",
    ),
    of(
        "share.delivery.count.limit",
        Kind::Int(2, 10),
        ("group.share.delivery.count.limit", "5"),
        "Kept without effect: there are no share groups.",
    ),
    of(
        "share.heartbeat.interval.ms",
        HEARTBEAT,
        ("group.share.heartbeat.interval.ms", "5000"),
        "Kept without effect: there are no share groups.",
    ),
    of(
        "share.isolation.level",
        Kind::OneOf(&["read_committed", "read_uncommitted"]),
        ("share.isolation.level", "read_uncommitted"),
        "Kept without effect: there are no share groups.",
    ),
    of(
        "share.partition.max.record.locks",
        Kind::Int(100, 10_000),
        ("group.share.partition.max.record.locks", "2000"),
        "Kept without effect: there are no share groups.",
    ),
    of(
        "share.record.lock.duration.ms",
        Kind::Int(15_000, 60_000),
        ("group.share.record.lock.duration.ms", "30000"),
        "Kept without effect: there are no share groups.",
    ),
    of(
        "share.renew.acknowledge.enable",
        Kind::Boolean,
        ("share.renew.acknowledge.enable", "true"),
        "Kept without effect: there are no share groups.",
    ),
    of(
        "share.session.timeout.ms",
        SESSION,
        ("group.share.session.timeout.ms", "45000"),
        "Kept without effect: there are no share groups.",
    ),
    of(
        "streams.assignment.interval.ms",
        ASSIGNMENT,
        ("group.streams.assignment.interval.ms", "1000"),
        "Kept without effect: there are no streams groups.",
    ),
    of(
        "streams.heartbeat.interval.ms",
        HEARTBEAT,
        ("group.streams.heartbeat.interval.ms", "5000"),
        "Kept without effect: there are no streams groups.",
    ),
    of(
        "streams.initial.rebalance.delay.ms",
        Kind::INT_NOT_NEGATIVE,
        ("group.streams.initial.rebalance.delay.ms", "3000"),
        "Kept without effect: there are no streams groups.",
    ),
    of(
        "streams.num.standby.replicas",
        Kind::Int(0, 2),
        ("group.streams.num.standby.replicas", "0"),
        "Kept without effect: there are no streams groups.",
    ),
    of(
        "streams.session.timeout.ms",
        SESSION,
        ("group.streams.session.timeout.ms", "45000"),
        "Kept without effect: there are no streams groups.",
    ),
];

/// Why a group's configs are refused: the message of an INVALID_CONFIG answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GroupConfigError {
    /// No such config.
    #[error("Unknown group config name: {0}")]
    Unknown(String),
    /// A value of another type.
    #[error("Invalid value {value} for configuration {name}: {why}")]
    Value {
        /// The name.
        name: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// Below what the broker allows.
    #[error("{0} must be greater than or equal to group.{bound}", bound = with("min", .0))]
    TooSmall(&'static str),
    /// Above what the broker allows.
    #[error("{0} must be less than or equal to group.{bound}", bound = with("max", .0))]
    TooLarge(&'static str),
}

/// The broker's setting that bounds a group's: `consumer.session.timeout.ms` is bounded by
/// `group.consumer.min.session.timeout.ms`.
fn with(bound: &str, name: &str) -> String {
    match name.split_once('.') {
        Some((kind, rest)) => format!("{kind}.{bound}.{rest}"),
        None => name.to_owned(),
    }
}

/// Checks all configs that a group is to have.
///
/// # Errors
/// The first fault, in the order of the names.
pub fn validate_group(
    server: &ServerConfig,
    overrides: &BTreeMap<String, String>,
) -> Result<(), GroupConfigError> {
    for (name, value) in overrides {
        let setting = GROUP.iter().find(|setting| setting.name == name);
        let setting = setting.ok_or_else(|| GroupConfigError::Unknown(name.clone()))?;
        let unbounded = match setting.kind {
            Kind::Int(..) => Kind::INT,
            other => other,
        };
        let text = unbounded.check(value).map_err(|why| GroupConfigError::Value {
            name: setting.name,
            value: value.clone(),
            why,
        })?;
        if let (Some((least, most)), Ok(number)) = (bounds(server, setting), text.parse::<i32>()) {
            let name = setting.name;
            if number < least {
                return Err(GroupConfigError::TooSmall(name));
            }
            if number > most {
                return Err(GroupConfigError::TooLarge(name));
            }
        }
    }
    Ok(())
}

/// What a number may be: for consumer groups as the server's settings say.
fn bounds(server: &ServerConfig, setting: &GroupSetting) -> Option<Bounds> {
    let consumer = &server.coordinators.groups.consumer;
    match (setting.name, setting.kind) {
        (OWN_SESSION_TIMEOUT, _) => Some(consumer.session_timeout_bounds),
        (OWN_HEARTBEAT_INTERVAL, _) => Some(consumer.heartbeat_interval_bounds),
        (OWN_ASSIGNMENT_INTERVAL, _) => Some(consumer.assignment_interval_bounds),
        (_, Kind::Int(least, most)) => Some((least, most)),
        _ => None,
    }
}

/// A number that was set for a group; whoever uses it holds it against the bounds of now.
pub fn group_number(name: &str, value: &str) -> Option<i32> {
    match GROUP.iter().find(|setting| setting.name == name)?.kind {
        Kind::Int(..) => value.parse().ok(),
        _ => None,
    }
}

/// All configs of a group with these overrides.
pub fn describe_group(
    server: &ServerConfig,
    overrides: &BTreeMap<String, String>,
) -> Vec<Described> {
    let describe = |setting: &GroupSetting| {
        let own = overrides.get(setting.name);
        let mut synonyms = Vec::new();
        if let Some(value) = own {
            let (name, source) = (setting.name, ConfigSource::Group);
            synonyms.push(Synonym { name, value: Some(value.clone()), source });
        }
        let of_all = server_synonyms(server, &[setting.synonym]);
        if of_all.is_empty() {
            let (name, source) = (setting.synonym, ConfigSource::Default);
            synonyms.push(Synonym { name, value: Some(setting.default.to_owned()), source });
        }
        synonyms.extend(of_all);
        Described {
            name: setting.name,
            value: synonyms[0].value.clone(),
            source: synonyms[0].source,
            synonyms,
            type_code: setting.kind.type_code(),
            is_read_only: false,
            documentation: setting.text,
        }
    };
    GROUP.iter().map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::config::Sources;

    fn overrides(name: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn defaults_are_valid_and_bounds_are_named() {
        for setting in GROUP {
            let set = overrides(setting.name, setting.default);
            assert_eq!(validate_group(&ServerConfig::defaults(), &set), Ok(()));
        }
        let server = ServerConfig::defaults();
        let refused = |name, value| validate_group(&server, &overrides(name, value)).err();
        let message = |name, value| refused(name, value).map(|it| it.to_string());
        assert_eq!(
            message("consumer.session.timeout.ms", "5").as_deref(),
            Some(
                "consumer.session.timeout.ms must be greater than or equal to \
                 group.consumer.min.session.timeout.ms"
            )
        );
        assert!(message("consumer.heartbeat.interval.ms", "15001").is_some());
        assert_eq!(refused("foo", "1"), Some(GroupConfigError::Unknown("foo".to_owned())));
        assert!(message("consumer.session.timeout.ms", "x").is_some());
        assert_eq!(
            message("consumer.assignment.interval.ms", "15001").as_deref(),
            Some(
                "consumer.assignment.interval.ms must be less than or equal to \
                 group.consumer.max.assignment.interval.ms"
            )
        );
    }

    #[test]
    fn a_groups_own_value_comes_first() {
        let server = ServerConfig::defaults();
        let list = describe_group(&server, &overrides("consumer.session.timeout.ms", "50000"));
        let timeout = list.iter().find(|it| it.name == "consumer.session.timeout.ms");
        let timeout = timeout.expect("described");
        assert_eq!((timeout.value.as_deref(), timeout.source.code()), (Some("50000"), 8));
        let synonyms: Vec<_> =
            timeout.synonyms.iter().map(|it| (it.name, it.source.code())).collect();
        let expected =
            [("consumer.session.timeout.ms", 8), ("group.consumer.session.timeout.ms", 5)];
        assert_eq!(synonyms, expected);
    }

    #[test]
    fn what_is_set_for_all_groups_is_told_of_each() {
        let set = vec!["group.consumer.session.timeout.ms=55000".to_owned()];
        let server = ServerConfig::load(&Sources { set, ..Sources::default() }).expect("valid");
        let list = describe_group(&server, &BTreeMap::new());
        let timeout = list.iter().find(|it| it.name == "consumer.session.timeout.ms");
        let timeout = timeout.expect("described");
        assert_eq!((timeout.value.as_deref(), timeout.source.code()), (Some("55000"), 4));
    }

    #[test]
    fn the_servers_bounds_are_those_of_a_group() {
        let set = [
            "group.consumer.min.session.timeout.ms=6000",
            "group.consumer.max.session.timeout.ms=50000",
        ];
        let set = set.map(str::to_owned).to_vec();
        let server = ServerConfig::load(&Sources { set, ..Sources::default() }).expect("valid");
        let name = "consumer.session.timeout.ms";
        let outcome = |value| validate_group(&server, &overrides(name, value));
        assert_eq!((outcome("6000"), outcome("50000")), (Ok(()), Ok(())));
        assert_eq!(outcome("5999"), Err(GroupConfigError::TooSmall(name)));
        assert_eq!(outcome("50001"), Err(GroupConfigError::TooLarge(name)));
    }

    #[test]
    fn bounds_that_contradict_each_other_or_a_value_are_refused() {
        for (name, set) in [
            ("session.timeout.ms", "group.consumer.session.timeout.ms=44999"),
            ("max.session.timeout.ms", "group.consumer.session.timeout.ms=60001"),
            ("max.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms=4999"),
            ("heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms=5001"),
            ("max.assignment.interval.ms", "group.consumer.max.assignment.interval.ms=999"),
        ] {
            let sources = Sources { set: vec![set.to_owned()], ..Sources::default() };
            let text = ServerConfig::load(&sources).expect_err("refused").to_string();
            let expected = format!("group.consumer.{name} must be greater than or equal to");
            assert!(text.contains(&expected), "{set}: {text}");
        }
        let set = ["min.session.timeout.ms=1", "session.timeout.ms=5000"];
        let set = set.map(|it| format!("group.consumer.{it}")).to_vec();
        let sources = Sources { set, ..Sources::default() };
        let text = ServerConfig::load(&sources).expect_err("refused").to_string();
        assert!(text.contains("must be less than group.consumer.session.timeout.ms"), "{text}");
    }
}
