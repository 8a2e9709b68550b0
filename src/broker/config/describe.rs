//! What DescribeConfigs tells about topics and brokers.

use std::collections::BTreeMap;

use super::ServerConfig;
use super::server_settings::SERVER;
use super::table::{self, Setting, TopicSetting};
use super::topic::server_value;
use super::topic_settings::TOPIC;
use super::value::TypeCode;

/// Where a value comes from, with Kafka's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigSource {
    /// Set on the topic.
    DynamicTopic,
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
    /// Whether no request can change it: the server's settings are fixed at the start.
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

/// Those names that are set, then those that have a default.
fn server_synonyms(server: &ServerConfig, names: &[&'static str]) -> Vec<Synonym> {
    let set = names.iter().filter_map(|name| {
        let value = server.given.get(name)?.text.clone();
        Some(Synonym { name, value: Some(value), source: ConfigSource::StaticBroker })
    });
    let defaults = names.iter().filter_map(|name| {
        let value = table::server(name)?.default?.to_owned();
        Some(Synonym { name, value: Some(value), source: ConfigSource::Default })
    });
    set.chain(defaults).collect()
}

/// All settings of the server.
pub fn describe_server(server: &ServerConfig) -> Vec<Described> {
    SERVER.iter().map(|setting| server_setting(server, setting)).collect()
}

fn server_setting(server: &ServerConfig, setting: &Setting) -> Described {
    let is_set = server.given.contains_key(setting.name);
    Described {
        name: setting.name,
        value: server.value(setting.name).map(str::to_owned),
        source: if is_set { ConfigSource::StaticBroker } else { ConfigSource::Default },
        synonyms: server_synonyms(server, &[setting.name]),
        type_code: setting.kind.type_code(),
        is_read_only: true,
        documentation: setting.text,
    }
}
