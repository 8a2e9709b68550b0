//! Configuration: one TOML file and `--set NAME=VALUE`, with Kafka's property names.
//!
//! Later sources beat earlier ones for the same name (file, then `--set`, then a flag of its own).
//! Between names that mean the same Kafka's precedence holds, wherever they stand:
//! `log.retention.ms` beats `log.retention.minutes` beats `log.retention.hours`, and a topic's
//! config beats them all.

mod coordinator_settings;
mod coordinators;
mod describe;
mod dynamic;
mod groups;
mod markdown;
mod server_settings;
mod source;
mod table;
mod topic;
mod topic_settings;
mod unsupported;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

pub use coordinators::{CoordinatorConfig, InternalTopicConfig, TransactionConfig};
pub use describe::{
    ConfigSource, Described, Synonym, describe_address, describe_common, describe_logger,
    describe_metrics, describe_server, describe_topic,
};
pub use dynamic::{
    DynamicError, is_dynamic, server_list_default, server_name_of, topic_list_default,
    validate_dynamic,
};
pub use groups::{GroupConfigError, describe_group, group_number, validate_group};
pub use markdown::markdown_table;
pub use source::Origin;
pub use topic::{TopicConfigError, TopicConfigs};
pub use value::TypeCode;

use crate::log::config::Durability;
use crate::shard::{CleanerOptions, JournalMode, JournalOptions};
use crate::units::{BrokerId, ByteCount};
use source::{Given, SyntaxError};

/// Largest configuration file that is read, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where to look for settings.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// `--config`.
    pub file: Option<PathBuf>,
    /// Each `--set`.
    pub set: Vec<String>,
    /// `--durability`.
    pub durability: Option<Durability>,
}

/// The server's settings, checked. Numbers that the parts of the server need are fields; the rest
/// comes by topic configs and descriptions.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerConfig {
    given: BTreeMap<&'static str, Value>,
    layers: dynamic::Layers,
    /// `node.id`.
    pub node_id: BrokerId,
    /// `log.dirs` or `log.dir`, when given.
    pub directory: Option<PathBuf>,
    /// `num.partitions`.
    pub partitions_default: u32,
    /// `auto.create.topics.enable`.
    pub creates_topics: bool,
    /// `socket.request.max.bytes`.
    pub request_bytes_max: ByteCount,
    /// `fetch.max.bytes`.
    pub fetch_bytes_max: ByteCount,
    /// `max.connections`, for each shard.
    pub connections_max: u32,
    /// `max.incremental.fetch.session.cache.slots`, for each shard.
    pub fetch_sessions_max: u32,
    /// `connections.max.idle.ms`; `None` is for ever.
    pub connection_idle_ms_max: Option<u64>,
    /// `log.retention.check.interval.ms`.
    pub retention_check_ms: u64,
    /// `log.initial.task.delay.ms`.
    pub first_task_delay_ms: u64,
    /// `log.flush.offset.checkpoint.interval.ms`.
    pub recovery_point_checkpoint_ms: u64,
    /// `log.flush.start.offset.checkpoint.interval.ms`.
    pub log_start_checkpoint_ms: u64,
    /// `replica.high.watermark.checkpoint.interval.ms`.
    pub high_watermark_checkpoint_ms: u64,
    /// What groups and transactions are configured with.
    pub coordinators: CoordinatorConfig,
    /// `log.cleaner.enable` and the others of the cleaner, of all shards.
    pub cleaner: CleanerOptions,
    /// `journal.enable`, `journal.bytes` and `journal.plan.bytes.max`.
    pub journal: JournalOptions,
    /// `uringlog.splice.bytes.min`.
    pub splice_bytes_min: ByteCount,
    /// `uringlog.frames.bytes.max`.
    pub frames_bytes_max: ByteCount,
    /// `uringlog.connection.pipeline.max`.
    pub pipeline_max: u32,
    /// `uringlog.ring.entries`.
    pub ring_entries: u32,
    /// `uringlog.ring.files.max`.
    pub ring_files_max: u32,
    /// `uringlog.pipes.max`.
    pub pipes_max: u32,
    /// `uringlog.workers.bounded.max`.
    pub workers_bounded_max: u32,
    /// `uringlog.workers.unbounded.max`.
    pub workers_unbounded_max: u32,
    /// `uringlog.partitions.max`.
    pub partitions_max: u32,
}

/// A value that fits its setting, in its one way of writing.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Value {
    text: String,
    origin: Origin,
}

/// Something about a setting that can't be obeyed, and where it stands.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigFault {
    /// The file can't be read.
    #[error("{path}: can't read the configuration file: {why}")]
    Unreadable {
        /// As given to `--config`.
        path: String,
        /// What the system says.
        why: String,
    },
    /// Neither a name with a value nor TOML.
    #[error("{origin}: {text}")]
    Syntax {
        /// Where.
        origin: Origin,
        /// What is wrong.
        text: String,
    },
    /// Neither Kafka nor uringlog knows the name.
    #[error("{origin}: unknown setting {name}{}", Hint(.hint))]
    Unknown {
        /// Where.
        origin: Origin,
        /// The name.
        name: String,
        /// What was perhaps meant.
        hint: Option<String>,
    },
    /// Kafka knows the name, but it means nothing here.
    #[error("{origin}: {name} is known to Kafka but not supported here: {instead}")]
    Unsupported {
        /// Where.
        origin: Origin,
        /// The name.
        name: String,
        /// Why, or what to do instead.
        instead: &'static str,
    },
    /// A value out of range or of another type.
    #[error("{origin}: invalid value {value:?} for {name}: {why} (allowed: {allowed})")]
    Value {
        /// Where.
        origin: Origin,
        /// The name.
        name: &'static str,
        /// As it was given.
        value: String,
        /// What is wrong with it.
        why: String,
        /// The values allowed.
        allowed: String,
    },
    /// Settings that contradict each other.
    #[error("{origin}: {text}")]
    Contradiction {
        /// Where one of them stands.
        origin: Origin,
        /// Which and why.
        text: String,
    },
}

struct Hint<'a>(&'a Option<String>);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

/// Everything that is wrong with a configuration, one fault a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError(pub Vec<ConfigFault>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, fault) in self.0.iter().enumerate() {
            let end = if number == 0 { "" } else { "\n" };
            write!(f, "{end}{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl ServerConfig {
    /// Reads the sources and checks all settings.
    ///
    /// # Errors
    /// Every fault of every source.
    pub fn load(sources: &Sources) -> Result<ServerConfig, ConfigError> {
        let (mut given, mut errors) = (Vec::new(), Vec::new());
        if let Some(path) = &sources.file {
            let text = read_file(path).map_err(|fault| ConfigError(vec![fault]))?;
            (given, errors) = source::parse_file(path, &text);
        }
        for argument in &sources.set {
            match source::parse_set(argument) {
                Ok(setting) => given.push(setting),
                Err(error) => errors.push(error),
            }
        }
        given.extend(sources.durability.map(durability_flag));
        ServerConfig::check(given, errors)
    }

    /// The defaults, in the device tier.
    pub fn defaults() -> ServerConfig {
        ServerConfig::load(&Sources::default()).expect("the defaults are valid, a test says")
    }

    fn check(given: Vec<Given>, errors: Vec<SyntaxError>) -> Result<ServerConfig, ConfigError> {
        let syntax =
            |SyntaxError { origin, text }: SyntaxError| ConfigFault::Syntax { origin, text };
        let mut faults: Vec<_> = errors.into_iter().map(syntax).collect();
        let mut values = BTreeMap::new();
        for setting in given {
            match check_one(setting) {
                Ok((name, value)) => {
                    let before = values.insert(name, value);
                    faults.extend(before.and_then(|before| repeated(name, &before, &values)));
                }
                Err(fault) => faults.push(fault),
            }
        }
        let config = ServerConfig::from_values(values);
        faults.extend(config.contradictions());
        if faults.is_empty() { Ok(config) } else { Err(ConfigError(faults)) }
    }

    fn from_values(given: BTreeMap<&'static str, Value>) -> ServerConfig {
        let values = Values(&given);
        let idle_ms = values.number("connections.max.idle.ms");
        ServerConfig {
            node_id: BrokerId(values.int("node.id")),
            directory: values.directory(),
            partitions_default: values.count("num.partitions"),
            creates_topics: values.text("auto.create.topics.enable") == "true",
            request_bytes_max: values.bytes("socket.request.max.bytes"),
            fetch_bytes_max: values.bytes("fetch.max.bytes"),
            connections_max: values.count("max.connections"),
            fetch_sessions_max: values.count("max.incremental.fetch.session.cache.slots"),
            connection_idle_ms_max: u64::try_from(idle_ms).ok(),
            retention_check_ms: values.bytes("log.retention.check.interval.ms").0,
            first_task_delay_ms: values.bytes("log.initial.task.delay.ms").0,
            recovery_point_checkpoint_ms: values.bytes("log.flush.offset.checkpoint.interval.ms").0,
            log_start_checkpoint_ms: values
                .bytes("log.flush.start.offset.checkpoint.interval.ms")
                .0,
            high_watermark_checkpoint_ms: values
                .bytes("replica.high.watermark.checkpoint.interval.ms")
                .0,
            coordinators: CoordinatorConfig::from_values(&values),
            cleaner: values.cleaner(),
            journal: JournalOptions {
                mode: match values.text("journal.enable") {
                    "true" => JournalMode::Always,
                    "false" => JournalMode::Never,
                    _ => JournalMode::Auto,
                },
                bytes: ByteCount(values.bytes("journal.bytes").0.next_multiple_of(4096)),
                plan_bytes_max: values.bytes("journal.plan.bytes.max"),
            },
            splice_bytes_min: values.bytes("uringlog.splice.bytes.min"),
            frames_bytes_max: values.bytes("uringlog.frames.bytes.max"),
            pipeline_max: values.count("uringlog.connection.pipeline.max"),
            ring_entries: values.count("uringlog.ring.entries").next_power_of_two(),
            ring_files_max: values.count("uringlog.ring.files.max"),
            pipes_max: values.count("uringlog.pipes.max"),
            workers_bounded_max: values.count("uringlog.workers.bounded.max"),
            workers_unbounded_max: values.count("uringlog.workers.unbounded.max"),
            partitions_max: values.count("uringlog.partitions.max"),
            layers: dynamic::Layers::default(),
            given,
        }
    }

    /// Settings that are given and have no effect, because another one beats them; one line each.
    pub fn shadowed(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for setting in topic_settings::TOPIC {
            let mut given = setting.synonyms.iter().filter_map(|synonym| {
                self.given.get(synonym.name).map(|value| (synonym.name, value))
            });
            let Some((strongest, value)) = given.next() else { continue };
            lines.extend(given.map(|(name, weaker)| {
                format!(
                    "{}: {name} has no effect, {strongest} ({}) beats it",
                    weaker.origin, value.origin
                )
            }));
        }
        lines
    }

    /// Whether a partition asks the coordinator before it takes the first batch of a transaction
    /// from a client that doesn't speak transaction version 2. May change at run time.
    pub fn verifies_transactions(&self) -> bool {
        self.value("transaction.partition.verification.enable") == Some("true")
    }

    fn value(&self, name: &str) -> Option<&str> {
        Values(&self.given).optional(name)
    }

    fn contradictions(&self) -> Vec<ConfigFault> {
        let origin = |name: &str| {
            let value = self.given.get(name);
            value.map_or(Origin::Flag("default"), |value| value.origin.clone())
        };
        let contradiction =
            |name: &str, text| ConfigFault::Contradiction { origin: origin(name), text };
        let mut faults = Vec::new();
        if self.frames_bytes_max < self.request_bytes_max {
            let text = format!(
                "uringlog.frames.bytes.max is {}, below socket.request.max.bytes {}: such a \
                 request could never be received",
                self.frames_bytes_max, self.request_bytes_max
            );
            let given = ["uringlog.frames.bytes.max", "socket.request.max.bytes"];
            let name = given.into_iter().find(|name| self.given.contains_key(name));
            faults.push(contradiction(name.unwrap_or("uringlog.frames.bytes.max"), text));
        }
        for name in ["log.dirs", "log.dir"] {
            let several = self.given.get(name).filter(|value| value.text.contains(','));
            if several.is_some() {
                let text = format!("{name}: exactly one data directory is supported");
                faults.push(contradiction(name, text));
            }
        }
        let retention = topic::server_value(self, "retention.ms");
        if retention.as_deref() == Some("0") {
            let text = "log.retention.ms, .minutes or .hours must give -1 or at least 1 ms";
            let names = ["log.retention.ms", "log.retention.minutes", "log.retention.hours"];
            let name = names.into_iter().find(|name| self.given.contains_key(name));
            faults.push(contradiction(name.unwrap_or(names[0]), text.to_owned()));
        }
        let lag = |name| topic::server_value(self, name).and_then(|text| text.parse::<i64>().ok());
        if lag("min.compaction.lag.ms") > lag("max.compaction.lag.ms") {
            let (least, most) =
                ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms");
            faults.push(contradiction(least, format!("{least} exceeds {most}")));
        }
        let of_groups = self.coordinators.contradictions();
        faults.extend(of_groups.into_iter().map(|(name, text)| contradiction(&name, text)));
        faults
    }
}

/// Values by name, the defaults included; each fits its setting.
struct Values<'a>(&'a BTreeMap<&'static str, Value>);

impl<'a> Values<'a> {
    fn optional(&self, name: &str) -> Option<&'a str> {
        let given = self.0.get(name).map(|value| value.text.as_str());
        given.or_else(|| table::server(name)?.default)
    }

    fn text(&self, name: &str) -> &'a str {
        self.optional(name).expect("the setting exists and has a default")
    }

    fn number(&self, name: &str) -> i64 {
        self.text(name).parse().expect("the value was checked against its type")
    }

    fn int(&self, name: &str) -> i32 {
        i32::try_from(self.number(name)).expect("the value was checked against its range")
    }

    fn count(&self, name: &str) -> u32 {
        u32::try_from(self.number(name)).expect("the value was checked against its range")
    }

    fn bytes(&self, name: &str) -> ByteCount {
        let number = u64::try_from(self.number(name));
        ByteCount(number.expect("the value was checked against its range"))
    }

    fn cleaner(&self) -> CleanerOptions {
        let rate: f64 = self.share("log.cleaner.io.max.bytes.per.second");
        // Rates beyond 2^53 are none; and 0 would never come to an end.
        let is_limited = rate < LIMITED_RATE_MAX;
        let rate = format!("{:.0}", rate.clamp(1.0, LIMITED_RATE_MAX)).parse().ok();
        CleanerOptions {
            is_enabled: self.text("log.cleaner.enable") == "true"
                && self.number("log.cleaner.threads") != 0,
            memory: self.bytes("log.cleaner.dedupe.buffer.size"),
            load_thousandths: topic::millionths(self.text("log.cleaner.io.buffer.load.factor"))
                / 1000,
            buffer: self.bytes("log.cleaner.io.buffer.size"),
            bytes_per_second: rate.filter(|_| is_limited),
            backoff_ms: self.bytes("log.cleaner.backoff.ms").0,
        }
    }

    fn share(&self, name: &str) -> f64 {
        self.text(name).parse().expect("the value was checked against its type")
    }

    fn directory(&self) -> Option<PathBuf> {
        self.optional("log.dirs").or_else(|| self.optional("log.dir")).map(PathBuf::from)
    }
}

/// Limits of rates from here on are none: 2^53 bytes per second.
const LIMITED_RATE_MAX: f64 = 9_007_199_254_740_992.0;

fn read_file(path: &Path) -> Result<String, ConfigFault> {
    let shown = path.display().to_string();
    let unreadable = |why: String| ConfigFault::Unreadable { path: shown.clone(), why };
    let length = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
    if length > FILE_BYTES_MAX {
        return Err(unreadable(format!("{length} bytes, at most {FILE_BYTES_MAX} are read")));
    }
    std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))
}

fn durability_flag(durability: Durability) -> Given {
    let value = match durability {
        Durability::Device => 1,
        Durability::PageCache => i64::MAX,
    };
    Given {
        name: DURABILITY_SETTING.to_owned(),
        value: value.to_string(),
        origin: Origin::Flag("--durability"),
    }
}

const DURABILITY_SETTING: &str = "log.flush.interval.messages";

/// Two values of one name: a later source beats an earlier one, but a flag and `--set` that
/// disagree stand on one command line, and so do two of `--set`, or two lines of the file.
fn repeated(
    name: &'static str,
    before: &Value,
    values: &BTreeMap<&'static str, Value>,
) -> Option<ConfigFault> {
    let now = &values[name];
    let is_file = |value: &Value| matches!(value.origin, Origin::File { .. });
    if is_file(before) != is_file(now) || before.text == now.text {
        return None;
    }
    let text = format!("{name} is {}, but {} says {}", now.text, before.origin, before.text);
    Some(ConfigFault::Contradiction { origin: now.origin.clone(), text })
}

fn check_one(given: Given) -> Result<(&'static str, Value), ConfigFault> {
    let Given { name, value, origin } = given;
    let Some(setting) = table::server(&name) else {
        return Err(not_a_setting(name, origin));
    };
    match setting.kind.check(&value) {
        Ok(text) => Ok((setting.name, Value { text, origin })),
        Err(why) => {
            let allowed = setting.kind.to_string();
            Err(ConfigFault::Value { origin, name: setting.name, value, why, allowed })
        }
    }
}

fn not_a_setting(name: String, origin: Origin) -> ConfigFault {
    let topic = table::topic_setting(&name).filter(|setting| !setting.is_hidden);
    if let Some(setting) = topic {
        let hint = match setting.synonyms.first() {
            Some(synonym) => {
                format!("it is a topic's config, the server's setting is {}", synonym.name)
            }
            None => "it is a topic's config and has no setting of the server".to_owned(),
        };
        return ConfigFault::Unknown { origin, name, hint: Some(hint) };
    }
    if let Some(instead) = table::unsupported(&name) {
        return ConfigFault::Unsupported { origin, name, instead };
    }
    let nearest = table::nearest(&name, server_settings::SERVER.iter().map(|one| one.name));
    let hint = nearest.map(|known| format!("did you mean {known}?"));
    ConfigFault::Unknown { origin, name, hint }
}

#[cfg(test)]
mod tests;
