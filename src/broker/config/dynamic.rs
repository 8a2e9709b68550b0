//! Settings of the server that are changed at run time: which ones may be, and what they do to the
//! others.
//!
//! Kafka's precedence: what was set for this broker, for all brokers, in the file or on the command
//! line, the default.

use std::collections::BTreeMap;

use super::server_settings::SERVER;
use super::source::Origin;
use super::table;
use super::topic_settings::TOPIC;
use super::value::Kind;
use super::{ServerConfig, Value};

/// A setting that is taken at run time and kept, but changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Ignored {
    /// Its name.
    pub name: &'static str,
    /// The values it takes.
    pub kind: Kind,
    /// Why it has no effect.
    pub text: &'static str,
}

/// Tools set the first ones around a reassignment, operators and client libraries' own tests the
/// others; Kafka takes each of them at run time (`DynamicBrokerConfig`).
pub const WITHOUT_EFFECT: &[Ignored] = &[
    replication("leader.replication.throttled.rate"),
    replication("follower.replication.throttled.rate"),
    replication("replica.alter.log.dirs.io.max.bytes.per.second"),
    threads("background.threads"),
    threads("num.io.threads"),
    threads("num.network.threads"),
    threads("num.recovery.threads.per.data.dir"),
    threads("num.replica.fetchers"),
    Ignored {
        name: "sasl.kerberos.min.time.before.relogin",
        kind: Kind::LONG_NOT_NEGATIVE,
        text: "Accepted without effect: there is no authentication.",
    },
];

const fn replication(name: &'static str) -> Ignored {
    let text = "Accepted without effect: there is one replica.";
    Ignored { name, kind: Kind::LONG_NOT_NEGATIVE, text }
}

const fn threads(name: &'static str) -> Ignored {
    let text = "Accepted without effect: each shard is one thread, see --shards.";
    Ignored { name, kind: Kind::Int(1, i32::MAX), text }
}

/// The setting of that name, if it is one that changes nothing.
pub fn ignored(name: &str) -> Option<&'static Ignored> {
    WITHOUT_EFFECT.iter().find(|setting| setting.name == name)
}

/// What was set at run time.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Layers {
    /// For this broker.
    pub own: BTreeMap<String, String>,
    /// For all brokers.
    pub all: BTreeMap<String, String>,
    /// From the file and the command line; `None` as long as nothing was changed.
    pub fixed: Option<BTreeMap<&'static str, Value>>,
}

/// Why a setting can't be changed at run time: the message of an INVALID_REQUEST answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DynamicError {
    /// It is fixed at the start.
    #[error("Cannot update these configs dynamically: [{0}]")]
    Fixed(&'static str),
    /// Kafka knows it, and it means nothing here.
    #[error("{name} is known to Kafka but not supported here: {instead}")]
    Unsupported {
        /// The name.
        name: String,
        /// Why, or what to do instead.
        instead: &'static str,
    },
    /// Nobody knows it.
    #[error("Unknown broker config name: {name}{}", .hint.map_or(String::new(), hinted))]
    Unknown {
        /// The name.
        name: String,
        /// What was perhaps meant.
        hint: Option<&'static str>,
    },
    /// A value out of range or of another type.
    #[error("Invalid value {value} for configuration {name}: {why}")]
    Value {
        /// The name.
        name: String,
        /// The value.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// It contradicts another one.
    #[error("{0}")]
    Contradiction(String),
}

fn hinted(name: &'static str) -> String {
    format!(" (did you mean {name}?)")
}

/// Whether a setting of the server may be changed at run time
/// (`DynamicBrokerConfig#ALL_DYNAMIC_CONFIGS`): the defaults of topics, and what else is asked for
/// whenever it is needed.
pub fn is_dynamic(name: &str) -> bool {
    let is_default =
        |name| TOPIC.iter().any(|it| it.synonyms.first().is_some_and(|s| s.name == name));
    is_default(name)
        || ["producer.id.expiration.ms", "transaction.partition.verification.enable"]
            .contains(&name)
}

/// Checks all that is to be set at run time for one broker, or for all.
///
/// # Errors
/// The first fault, in the order of the names.
pub fn validate_dynamic(
    server: &ServerConfig,
    overrides: &BTreeMap<String, String>,
) -> Result<(), DynamicError> {
    for (name, value) in overrides {
        check_one(name, value)?;
    }
    match server.changed(&BTreeMap::new(), overrides).contradictions().into_iter().next() {
        Some(fault) => Err(DynamicError::Contradiction(fault.to_string())),
        None => Ok(()),
    }
}

fn check_one(name: &str, value: &str) -> Result<(), DynamicError> {
    let invalid = |why: String| {
        let (name, value) = (name.to_owned(), value.to_owned());
        DynamicError::Value { name, value, why }
    };
    if let Some(setting) = ignored(name) {
        return setting.kind.check(value).map(drop).map_err(invalid);
    }
    match table::server(name) {
        Some(setting) if is_dynamic(name) => setting.kind.check(value).map(drop).map_err(invalid),
        Some(setting) => Err(DynamicError::Fixed(setting.name)),
        None => Err(match table::unsupported(name) {
            Some(instead) => DynamicError::Unsupported { name: name.to_owned(), instead },
            None => DynamicError::Unknown {
                name: name.to_owned(),
                hint: table::nearest(name, SERVER.iter().map(|setting| setting.name)),
            },
        }),
    }
}

impl ServerConfig {
    /// The settings with what was set for all brokers and for this one at run time. What a former
    /// version took and this one doesn't has no effect.
    pub fn changed(
        &self,
        all: &BTreeMap<String, String>,
        own: &BTreeMap<String, String>,
    ) -> ServerConfig {
        let fixed = self.layers.fixed.as_ref().unwrap_or(&self.given).clone();
        let mut given = fixed.clone();
        for (overrides, origin) in [(all, "all brokers' config"), (own, "the broker's config")] {
            for (name, value) in overrides.iter().filter(|(name, _)| is_dynamic(name)) {
                let Some(setting) = table::server(name) else { continue };
                let Ok(text) = setting.kind.check(value) else { continue };
                given.insert(setting.name, Value { text, origin: Origin::Flag(origin) });
            }
        }
        let layers = Layers { own: own.clone(), all: all.clone(), fixed: Some(fixed) };
        // None of the fields besides these can be changed at run time.
        ServerConfig { given, layers, ..self.clone() }
    }
}

/// The value that an unset topic config has, if it is a list; `None` when it is none.
pub fn topic_list_default(server: &ServerConfig, name: &str) -> Option<String> {
    let is_list = table::topic_setting(name)?.kind.is_list();
    is_list.then(|| super::topic::server_value(server, name).unwrap_or_default())
}

/// The same of a setting of the server.
pub fn server_list_default(server: &ServerConfig, name: &str) -> Option<String> {
    let is_list = table::server(name)?.kind.is_list();
    is_list.then(|| server.value(name).unwrap_or_default().to_owned())
}

/// The strongest of the server's settings that give a topic config its default.
pub fn server_name_of(topic_config: &str) -> Option<&'static str> {
    table::topic_setting(topic_config)?.synonyms.first().map(|synonym| synonym.name)
}
