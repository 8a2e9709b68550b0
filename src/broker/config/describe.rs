//! What DescribeConfigs tells about topics and brokers.

use std::collections::BTreeMap;

use super::server_settings::SERVER;
use super::table::{self, Setting, TopicSetting};
use super::topic::server_value;
use super::topic_settings::TOPIC;
use super::value::{Kind, TypeCode};
use super::{ServerConfig, dynamic};

/// Where a value comes from, with Kafka's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigSource {
    /// Set on the topic.
    DynamicTopic,
    /// Set at run time for this broker.
    DynamicBroker,
    /// Set at run time for all brokers.
    DynamicDefaultBroker,
    /// The level of a logger.
    BrokerLogger,
    /// Set on the subscription.
    ClientMetrics,
    /// Set on the group.
    Group,
    /// Set in the file or on the command line.
    StaticBroker,
    /// Not set.
    Default,
}

impl ConfigSource {
    /// Kafka's number (`ConfigEntry.ConfigSource`).
    pub fn code(self) -> i8 {
        match self {
            ConfigSource::DynamicTopic => 1,
            ConfigSource::DynamicBroker => 2,
            ConfigSource::DynamicDefaultBroker => 3,
            ConfigSource::BrokerLogger => 6,
            ConfigSource::ClientMetrics => 7,
            ConfigSource::Group => 8,
            ConfigSource::StaticBroker => 4,
            ConfigSource::Default => 5,
        }
    }
}

/// One config of a topic or broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// Its value; `None` is null.
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// All values that were considered, the strongest first.
    pub synonyms: Vec<Synonym>,
    /// Its type.
    pub type_code: TypeCode,
    /// Whether no request can change it: most of the server's settings are fixed at the start.
    pub is_read_only: bool,
    /// What it does.
    pub documentation: &'static str,
}

impl Described {
    /// Whether nobody set it.
    pub fn is_default(&self) -> bool {
        self.source == ConfigSource::Default
    }
}

/// A value under one of the names that give it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Synonym {
    /// The name.
    pub name: &'static str,
    /// Its value, in its own unit.
    pub value: Option<String>,
    /// Where that comes from.
    pub source: ConfigSource,
}

/// All configs of a topic with these overrides.
pub fn describe_topic(
    server: &ServerConfig,
    overrides: &BTreeMap<String, String>,
) -> Vec<Described> {
    let is_shown =
        |setting: &&TopicSetting| !setting.is_hidden || overrides.contains_key(setting.name);
    TOPIC.iter().filter(is_shown).map(|setting| topic_config(server, overrides, setting)).collect()
}

fn topic_config(
    server: &ServerConfig,
    overrides: &BTreeMap<String, String>,
    setting: &TopicSetting,
) -> Described {
    let own = overrides.get(setting.name).cloned();
    let mut synonyms = Vec::new();
    if let Some(value) = own.clone() {
        let source = ConfigSource::DynamicTopic;
        synonyms.push(Synonym { name: setting.name, value: Some(value), source });
    }
    let names: Vec<_> = setting.synonyms.iter().map(|synonym| synonym.name).collect();
    synonyms.extend(server_synonyms(server, &names));
    Described {
        name: setting.name,
        source: synonyms.first().map_or(ConfigSource::Default, |first| first.source),
        value: own.or_else(|| server_value(server, setting.name)),
        synonyms,
        type_code: setting.kind.type_code(),
        is_read_only: false,
        documentation: setting.text,
    }
}

/// Settings of the server that stand for each other, the strongest first
/// (`DynamicBrokerConfig#brokerConfigSynonyms`).
const GROUPS: &[&[&str]] = &[
    &["log.roll.ms", "log.roll.hours"],
    &["log.roll.jitter.ms", "log.roll.jitter.hours"],
    &["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
    &["log.retention.ms", "log.retention.minutes", "log.retention.hours"],
];

/// By where they were set, the strongest first; then the names that have a default.
pub(super) fn server_synonyms(server: &ServerConfig, names: &[&'static str]) -> Vec<Synonym> {
    let of = |source: ConfigSource, value: &dyn Fn(&str) -> Option<String>| {
        let synonym =
            |name: &&'static str| Some(Synonym { name, value: Some(value(name)?), source });
        names.iter().filter_map(synonym).collect::<Vec<_>>()
    };
    let layers = &server.layers;
    let fixed = layers.fixed.as_ref().unwrap_or(&server.given);
    let dynamic = |layer: &BTreeMap<String, String>, name: &str| {
        layer.get(name).filter(|_| dynamic::is_dynamic(name)).cloned()
    };
    let mut synonyms = of(ConfigSource::DynamicBroker, &|name| dynamic(&layers.own, name));
    synonyms.extend(of(ConfigSource::DynamicDefaultBroker, &|name| dynamic(&layers.all, name)));
    synonyms.extend(of(ConfigSource::StaticBroker, &|name| Some(fixed.get(name)?.text.clone())));
    synonyms
        .extend(of(ConfigSource::Default, &|name| Some(table::server(name)?.default?.to_owned())));
    synonyms
}

/// A logger and its level; Kafka tells of no type.
pub fn describe_logger(name: &'static str, level: &str) -> Described {
    Described {
        name,
        value: Some(level.to_owned()),
        source: ConfigSource::BrokerLogger,
        synonyms: Vec::new(),
        type_code: TypeCode(0),
        is_read_only: false,
        documentation: "",
    }
}

/// All settings of the server.
pub fn describe_server(server: &ServerConfig) -> Vec<Described> {
    let known = SERVER.iter().map(|setting| server_setting(server, setting));
    let (all, own) = (&server.layers.all, &server.layers.own);
    let taken = dynamic::WITHOUT_EFFECT.iter().filter_map(|setting| {
        let values = [
            (own.get(setting.name), ConfigSource::DynamicBroker),
            (all.get(setting.name), ConfigSource::DynamicDefaultBroker),
        ];
        without_effect(setting, &values)
    });
    known.chain(taken).collect()
}

/// Where clients are told to connect, under Kafka's name for it; here `--advertise` gives it.
pub fn describe_address(host: &str, port: u16) -> Described {
    let name = "advertised.listeners";
    let source = ConfigSource::StaticBroker;
    // An address of IPv6 stands in brackets, as in Kafka's `EndPoint#connectionString`.
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let value = Some(format!("PLAINTEXT://{host}:{port}"));
    Described {
        name,
        value: value.clone(),
        source,
        synonyms: vec![Synonym { name, value, source }],
        type_code: Kind::List.type_code(),
        is_read_only: true,
        documentation: "Where clients are told to connect; see --advertise.",
    }
}

/// What was set for all brokers.
pub fn describe_common(all: &BTreeMap<String, String>) -> Vec<Described> {
    let source = ConfigSource::DynamicDefaultBroker;
    let describe = |(name, value): (&String, &String)| {
        let Some(setting) = table::server(name) else {
            return without_effect(dynamic::ignored(name)?, &[(Some(value), source)]);
        };
        let synonyms = vec![Synonym { name: setting.name, value: Some(value.clone()), source }];
        Some(Described {
            name: setting.name,
            value: Some(value.clone()),
            source,
            synonyms,
            type_code: setting.kind.type_code(),
            is_read_only: !dynamic::is_dynamic(name),
            documentation: setting.text,
        })
    };
    all.iter().filter_map(describe).collect()
}

fn without_effect(
    setting: &dynamic::Ignored,
    values: &[(Option<&String>, ConfigSource)],
) -> Option<Described> {
    let name = setting.name;
    let synonym = |(value, source): &(Option<&String>, ConfigSource)| {
        value.map(|value| Synonym { name, value: Some(value.clone()), source: *source })
    };
    let synonyms: Vec<Synonym> = values.iter().filter_map(synonym).collect();
    let first = synonyms.first()?;
    Some(Described {
        name,
        value: first.value.clone(),
        source: first.source,
        type_code: setting.kind.type_code(),
        is_read_only: false,
        documentation: setting.text,
        synonyms,
    })
}

fn server_setting(server: &ServerConfig, setting: &Setting) -> Described {
    let own = [setting.name];
    let group = GROUPS.iter().find(|group| group.contains(&setting.name)).copied();
    let synonyms = server_synonyms(server, group.unwrap_or(&own));
    // As Kafka cuts them: what stands before the setting's own name is left out.
    let synonyms: Vec<Synonym> =
        synonyms.into_iter().skip_while(|synonym| synonym.name != setting.name).collect();
    Described {
        name: setting.name,
        value: server.value(setting.name).map(str::to_owned),
        source: synonyms.first().map_or(ConfigSource::Default, |first| first.source),
        synonyms,
        type_code: setting.kind.type_code(),
        is_read_only: !dynamic::is_dynamic(setting.name),
        documentation: setting.text,
    }
}

/// The configs of a subscription to clients' metrics (KIP-714).
const METRICS: &[(&str, Kind, &str, &str)] = &[
    ("interval.ms", Kind::Int(100, 3_600_000), "300000", "Time between two reports of a client."),
    ("match", Kind::List, "", "Which clients are to report."),
    ("metrics", Kind::List, "", "Beginnings of the names of the metrics that are wanted."),
];

/// All configs of a subscription to clients' metrics. Nobody is told of it: no receiver is there.
pub fn describe_metrics(overrides: &BTreeMap<String, String>) -> Vec<Described> {
    let describe = |(name, kind, default, text): &(&'static str, Kind, &str, &'static str)| {
        let own = overrides.get(*name);
        let source = own.map_or(ConfigSource::Default, |_| ConfigSource::ClientMetrics);
        let synonym = |value: &String| Synonym { name, value: Some(value.clone()), source };
        Described {
            name,
            value: Some(own.map_or(*default, String::as_str).to_owned()),
            source,
            synonyms: own.map(synonym).into_iter().collect(),
            type_code: kind.type_code(),
            is_read_only: false,
            documentation: text,
        }
    };
    METRICS.iter().map(describe).collect()
}
