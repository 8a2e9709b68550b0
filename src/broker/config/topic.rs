//! Topic configs: checking what a client sends, and what a partition's log is told.

use std::collections::BTreeMap;

use super::ServerConfig;
use super::table::{self, Synonym, TopicSetting};
use super::topic_settings::TOPIC;
use super::value;
use crate::format::batch::Codec;
use crate::log::config::{CleanupPolicy, LogConfig, TimestampType};
use crate::units::ByteCount;

/// Why a topic's configs are refused: the message of an INVALID_CONFIG answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TopicConfigError {
    /// No such config.
    #[error("Unknown topic config name: {name}{}", .hint.as_deref().unwrap_or(""))]
    Unknown {
        /// The name.
        name: String,
        /// What was perhaps meant, as the end of the sentence.
        hint: Option<String>,
    },
    /// A value out of range or of another type.
    #[error("Invalid value {value} for configuration {name}: {why}")]
    Value {
        /// The name.
        name: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// The shortest lag before compaction exceeds the longest.
    #[error(
        "conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms \
         ({most})"
    )]
    Lag {
        /// `min.compaction.lag.ms`.
        least: i64,
        /// `max.compaction.lag.ms`.
        most: i64,
    },
    /// `remote.storage.enable=true`.
    #[error(
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with \
         remote log storage."
    )]
    Remote,
}

/// What topics' configs mean, given the server's settings.
#[derive(Clone, Copy, Debug)]
pub struct TopicConfigs<'a> {
    server: &'a ServerConfig,
}

impl<'a> TopicConfigs<'a> {
    /// On top of these settings.
    pub fn new(server: &'a ServerConfig) -> TopicConfigs<'a> {
        TopicConfigs { server }
    }

    /// Checks all configs that a topic is to have.
    ///
    /// # Errors
    /// The first fault, in the order of the names.
    pub fn validate(&self, overrides: &BTreeMap<String, String>) -> Result<(), TopicConfigError> {
        for (name, value) in overrides {
            let setting = table::topic_setting(name).ok_or_else(|| unknown(name))?;
            setting.kind.check(value).map_err(|why| TopicConfigError::Value {
                name: setting.name,
                value: value.clone(),
                why,
            })?;
        }
        let resolved = Resolved { server: self.server, overrides };
        if resolved.flag("remote.storage.enable") {
            return Err(TopicConfigError::Remote);
        }
        let least = resolved.number("min.compaction.lag.ms");
        let most = resolved.number("max.compaction.lag.ms");
        if least > most { Err(TopicConfigError::Lag { least, most }) } else { Ok(()) }
    }

    /// What a partition's log is told. The configs must have been validated; one that a former
    /// version took and this one doesn't is left at its default.
    pub fn resolve(&self, overrides: &BTreeMap<String, String>) -> LogConfig {
        let resolved = Resolved { server: self.server, overrides };
        let segment_bytes = match resolved.optional("internal.segment.bytes") {
            Some(text) => ByteCount(parse(&text)),
            None => resolved.bytes("segment.bytes"),
        };
        LogConfig {
            segment_bytes,
            segment_ms: resolved.millis("segment.ms"),
            segment_jitter_ms: resolved.millis("segment.jitter.ms"),
            segment_index_bytes: resolved.bytes("segment.index.bytes"),
            index_interval_bytes: resolved.bytes("index.interval.bytes"),
            retention_ms: u64::try_from(resolved.number("retention.ms")).ok(),
            retention_bytes: u64::try_from(resolved.number("retention.bytes")).ok().map(ByteCount),
            file_delete_delay_ms: resolved.millis("file.delete.delay.ms"),
            batch_bytes_max: resolved.bytes("max.message.bytes"),
            flush_messages: resolved.millis("flush.messages"),
            flush_ms: resolved.millis("flush.ms"),
            cleanup_policy: resolved.cleanup_policy(),
            compression: resolved.compression(),
            gzip_level: parse(&resolved.text("compression.gzip.level")),
            lz4_level: parse(&resolved.text("compression.lz4.level")),
            zstd_level: parse(&resolved.text("compression.zstd.level")),
            timestamp_type: match resolved.text("message.timestamp.type").as_str() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            timestamp_before_max_ms: resolved.millis("message.timestamp.before.max.ms"),
            timestamp_after_max_ms: resolved.millis("message.timestamp.after.max.ms"),
            preallocate: resolved.flag("preallocate"),
            compaction_lag_min_ms: resolved.millis("min.compaction.lag.ms"),
            compaction_lag_max_ms: resolved.millis("max.compaction.lag.ms"),
            delete_retention_ms: resolved.millis("delete.retention.ms"),
            cleanable_ratio_millionths: millionths(&resolved.text("min.cleanable.dirty.ratio")),
            producer_expiration_ms: self.millis("producer.id.expiration.ms"),
            decompressed_bytes_max: ByteCount(self.millis("uringlog.decompressed.bytes.max")),
        }
    }

    fn millis(&self, name: &str) -> u64 {
        parse(self.server.value(name).expect("the setting has a default"))
    }
}

/// The value that the server's settings give a topic config.
pub(super) fn server_value(server: &ServerConfig, name: &str) -> Option<String> {
    let setting = table::topic_setting(name)?;
    // What is given beats every default: only one of the names has one, usually the last.
    let given = setting
        .synonyms
        .iter()
        .find_map(|synonym| server.given.get(synonym.name).map(|value| (synonym, &*value.text)));
    let with_default =
        || setting.synonyms.iter().find_map(|one| Some((one, table::server(one.name)?.default?)));
    match given.or_else(with_default) {
        Some((synonym, text)) => Some(converted(setting, synonym, text)),
        None => setting.default.map(str::to_owned),
    }
}

/// A value of the server's setting in the topic config's unit. Kafka takes every negative retention
/// for unlimited.
fn converted(setting: &TopicSetting, synonym: &Synonym, text: &str) -> String {
    if synonym.factor == 1 && setting.name != "retention.ms" {
        return text.to_owned();
    }
    let number: i64 = parse(text);
    if number < 0 { "-1".to_owned() } else { number.saturating_mul(synonym.factor).to_string() }
}

struct Resolved<'a> {
    server: &'a ServerConfig,
    overrides: &'a BTreeMap<String, String>,
}

impl Resolved<'_> {
    fn optional(&self, name: &str) -> Option<String> {
        let setting = table::topic_setting(name).expect("the names here are in the table");
        let own = self.overrides.get(name).and_then(|text| setting.kind.check(text).ok());
        own.or_else(|| server_value(self.server, name))
    }

    fn text(&self, name: &str) -> String {
        self.optional(name).expect("every config but the hidden one has a default")
    }

    fn number(&self, name: &str) -> i64 {
        parse(&self.text(name))
    }

    fn flag(&self, name: &str) -> bool {
        self.text(name) == "true"
    }

    fn bytes(&self, name: &str) -> ByteCount {
        ByteCount(parse(&self.text(name)))
    }

    /// A number of which the largest that Kafka can write means "never".
    fn millis(&self, name: &str) -> u64 {
        let number = self.number(name);
        if number == i64::MAX { u64::MAX } else { u64::try_from(number).unwrap_or(0) }
    }

    fn cleanup_policy(&self) -> CleanupPolicy {
        let text = self.text("cleanup.policy");
        let has = |word| value::items(&text).any(|item| item == word);
        CleanupPolicy { delete: has("delete"), compact: has("compact") }
    }

    fn compression(&self) -> Option<Codec> {
        match self.text("compression.type").as_str() {
            "uncompressed" => Some(Codec::None),
            "gzip" => Some(Codec::Gzip),
            "snappy" => Some(Codec::Snappy),
            "lz4" => Some(Codec::Lz4),
            "zstd" => Some(Codec::Zstd),
            _ => None,
        }
    }
}

/// A share between 0 and 1, written with a point, an exponent or both.
pub(super) fn millionths(share: &str) -> u64 {
    let share: f64 = parse(share);
    let text = format!("{:.0}", share.clamp(0.0, 1.0) * 1e6);
    parse(&text)
}

fn parse<T: std::str::FromStr>(text: &str) -> T {
    let number = text.parse().ok();
    number.expect("the value was checked against its type and range")
}

fn unknown(name: &str) -> TopicConfigError {
    let is_synonym =
        |setting: &&TopicSetting| setting.synonyms.iter().any(|synonym| synonym.name == name);
    let hint = match TOPIC.iter().find(is_synonym) {
        Some(setting) => Some(format!(" (it is a broker's config, topics have {})", setting.name)),
        None => table::nearest(name, TOPIC.iter().map(|setting| setting.name))
            .map(|known| format!(" (did you mean {known}?)")),
    };
    TopicConfigError::Unknown { name: name.to_owned(), hint }
}
