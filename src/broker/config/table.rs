//! Every setting of the server and of topics: name, values, default, meaning.
//!
//! Names, ranges and defaults are Kafka's; where ours differ the text says so. Own settings begin
//! with `uringlog.`.

use super::server_settings::SERVER;
use super::topic_settings::TOPIC;
use super::unsupported::UNSUPPORTED;
use super::value::Kind;

/// One setting of the server.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// The values it takes.
    pub kind: Kind,
    /// Its default; `None` for null.
    pub default: Option<&'static str>,
    /// What it does, in a sentence or two.
    pub text: &'static str,
}

/// One config of topics.
#[derive(Clone, Copy, Debug)]
pub struct TopicSetting {
    /// Its name.
    pub name: &'static str,
    /// The values it takes.
    pub kind: Kind,
    /// Names of the server's settings that give its default, the strongest first.
    pub synonyms: &'static [Synonym],
    /// Its default where no setting of the server gives one; `None` for null.
    pub default: Option<&'static str>,
    /// What it does.
    pub text: &'static str,
    /// Left out of lists unless it is set.
    pub is_hidden: bool,
}

/// A setting of the server that gives a topic config its default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Synonym {
    /// Its name.
    pub name: &'static str,
    /// How many of the topic config's unit its unit has: 60,000 for minutes against milliseconds.
    pub factor: i64,
}

// Values that a topic config and its server setting share.
pub(super) const CLEANUP: Kind = Kind::AnyOf(&["compact", "delete"]);
pub(super) const COMPRESSION: Kind =
    Kind::OneOf(&["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]);
pub(super) const TIMESTAMP_TYPE: Kind = Kind::OneOf(&["CreateTime", "LogAppendTime"]);
pub(super) const SEGMENT_BYTES: Kind = Kind::Int(1 << 20, i32::MAX);
/// Kafka takes 4 and above and then fails, or rolls at every batch, below two entries of 12 bytes.
pub(super) const INDEX_BYTES: Kind = Kind::Int(24, i32::MAX);
pub(super) const LZ4_LEVEL: Kind = Kind::Int(1, 17);
pub(super) const ZSTD_LEVEL: Kind = Kind::Int(-131_072, 22);
/// There is one replica.
pub(super) const ONE: Kind = Kind::Int(1, 1);

/// The server's setting of that name.
pub fn server(name: &str) -> Option<&'static Setting> {
    SERVER.iter().find(|setting| setting.name == name)
}

/// The topic config of that name.
pub fn topic_setting(name: &str) -> Option<&'static TopicSetting> {
    TOPIC.iter().find(|setting| setting.name == name)
}

/// Why a name that Kafka knows isn't supported; `None` when Kafka doesn't know it either.
pub fn unsupported(name: &str) -> Option<&'static str> {
    let matches = |pattern: &str| match pattern.strip_suffix('.') {
        Some(_) => name.starts_with(pattern) && name.len() > pattern.len(),
        None => name == pattern,
    };
    UNSUPPORTED.iter().find(|(pattern, _)| matches(pattern)).map(|(_, instead)| *instead)
}

/// Of `names` the one most like `name`, if any is.
pub fn nearest(name: &str, names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    /// Below this likeness a guess would rather mislead.
    const LIKENESS_MIN: f64 = 0.6;
    let name = name.to_ascii_lowercase();
    names
        .map(|known| (strsim::normalized_damerau_levenshtein(&name, known), known))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_default_is_in_its_range_and_every_synonym_exists() {
        for setting in SERVER {
            if let Some(default) = setting.default {
                assert_eq!(setting.kind.check(default).as_deref(), Ok(default), "{}", setting.name);
            }
        }
        for setting in TOPIC {
            for synonym in setting.synonyms {
                assert!(server(synonym.name).is_some(), "{}", synonym.name);
            }
            let last = setting.synonyms.last().map(|synonym| server(synonym.name));
            let default = last.flatten().map_or(setting.default, |setting| setting.default);
            assert!(default.is_some() || setting.is_hidden, "{}", setting.name);
        }
    }

    #[test]
    fn names_are_unique_and_supported_ones_are_not_unsupported() {
        let names: BTreeSet<_> = SERVER.iter().map(|setting| setting.name).collect();
        assert_eq!(names.len(), SERVER.len());
        let names: BTreeSet<_> = TOPIC.iter().map(|setting| setting.name).collect();
        assert_eq!(names.len(), TOPIC.len());
        // A prefix may cover names that are supported: those are looked up first.
        for (pattern, _) in UNSUPPORTED {
            assert!(server(pattern).is_none(), "{pattern}");
        }
        assert_eq!(unsupported("ssl.keystore.location"), Some("there is no TLS"));
        assert_eq!(unsupported("ssl."), None);
        assert_eq!(unsupported("log.segment.byte"), None);
    }

    #[test]
    fn guesses_are_near() {
        let guess = |name| nearest(name, SERVER.iter().map(|setting| setting.name));
        assert_eq!(guess("log.segment.byte"), Some("log.segment.bytes"));
        assert_eq!(guess("log.retension.ms"), Some("log.retention.ms"));
        assert_eq!(guess("LOG.SEGMENT.BYTES"), Some("log.segment.bytes"));
        assert_eq!(guess("colour"), None);
    }
}
