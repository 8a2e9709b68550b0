//! What a change of configs means: the records that make it, or why it is refused. Checks and words
//! are Kafka's (`ConfigurationControlManager`, `ConfigAdminManager`).

use std::collections::BTreeSet;

use crate::broker::config::{self, ServerConfig, TopicConfigs};
use crate::broker::errors::Refusal;
use crate::broker::image::{Image, Overrides};
use crate::broker::settings::RESOURCES_MAX;
use crate::format::kraft::{ConfigResource, MetadataRecord};
use crate::format::names::TopicName;
use crate::units::BrokerId;
use crate::wire::error::ErrorCode;

/// Kafka's numbers of what has configs (`ConfigResource.Type`).
pub mod kind {
    /// Topics.
    pub const TOPIC: i8 = 2;
    /// Brokers.
    pub const BROKER: i8 = 4;
    /// Log levels of a broker.
    pub const BROKER_LOGGER: i8 = 8;
    /// Subscriptions to clients' metrics.
    pub const CLIENT_METRICS: i8 = 16;
    /// Groups.
    pub const GROUP: i8 = 32;
}

/// Longest name of a group or subscription.
const NAME_BYTES_MAX: usize = 1024;

/// Longest value of a config.
const VALUE_BYTES_MAX: usize = 32 << 10;

/// How one config changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// It gets this value.
    Set(String),
    /// It is as if it had never been set.
    Delete,
    /// These items are added to its list.
    Append(String),
    /// These items are taken out of its list.
    Subtract(String),
}

/// How the configs of one resource change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Alteration {
    /// Some of them; each name once.
    Some(Vec<(String, Operation)>),
    /// All of them: what isn't named here is deleted.
    All(Overrides),
}

/// What a request names, if it may have configs that are kept.
///
/// # Errors
/// INVALID_REQUEST, INVALID_TOPIC_EXCEPTION.
pub fn resource(
    kind: i8,
    name: &str,
    is_ours: impl Fn(i32) -> bool,
    node: BrokerId,
) -> Result<ConfigResource, Refusal> {
    let invalid = |message: String| Refusal::new(ErrorCode::InvalidRequest, message);
    if NAME_BYTES_MAX < name.len() {
        return Err(invalid(format!("the name is longer than {NAME_BYTES_MAX} bytes")));
    }
    match kind {
        kind::TOPIC if name.is_empty() => {
            Err(invalid("Default topic resources are not allowed.".to_owned()))
        }
        kind::TOPIC => TopicName::new(name)
            .map(ConfigResource::Topic)
            .map_err(|error| Refusal::new(ErrorCode::InvalidTopicException, error.to_string())),
        kind::BROKER if name.is_empty() => Ok(ConfigResource::Broker(String::new())),
        // Every shard's id means the one broker that they are.
        kind::BROKER => match name.parse::<i32>() {
            Ok(id) if is_ours(id) => Ok(ConfigResource::Broker(node.0.to_string())),
            Ok(id) => Err(invalid(format!(
                "Unexpected broker id, expected {} or empty string, but received {id}",
                node.0
            ))),
            Err(_) => Err(invalid(format!("Broker id must be an integer, but it is: {name}"))),
        },
        kind::CLIENT_METRICS if name.is_empty() => {
            Err(invalid("Subscription name can't be empty".to_owned()))
        }
        kind::CLIENT_METRICS => Ok(ConfigResource::ClientMetrics(name.to_owned())),
        kind::GROUP if name.is_empty() => {
            Err(invalid("Default group resources are not allowed.".to_owned()))
        }
        kind::GROUP => Ok(ConfigResource::Group(name.to_owned())),
        other => Err(invalid(format!("Unknown resource type {other}"))),
    }
}

/// The records that change a resource's configs.
///
/// # Errors
/// Why they can't be so.
pub fn decide(
    image: &Image,
    server: &ServerConfig,
    (resource, alteration): (&ConfigResource, Alteration),
) -> Result<Vec<MetadataRecord>, Refusal> {
    let before = current(image, resource);
    let after = match alteration {
        Alteration::All(all) => all,
        Alteration::Some(changes) => changed(&before, server, (resource, changes))?,
    };
    check_sizes(&after)?;
    validate(image, server, (resource, &after))?;
    let is_new = before.is_empty() && !after.is_empty();
    let is_counted = !matches!(resource, ConfigResource::Topic(_));
    if is_new && is_counted && RESOURCES_MAX <= image.settings().resources().count() {
        let message = format!("{RESOURCES_MAX} brokers, groups and subscriptions have configs");
        return Err(Refusal::new(ErrorCode::PolicyViolation, message));
    }
    Ok(records(resource, &before, &after))
}

fn current(image: &Image, resource: &ConfigResource) -> Overrides {
    match resource {
        ConfigResource::Topic(topic) => {
            image.topic(topic.as_str()).map(|topic| topic.overrides.clone()).unwrap_or_default()
        }
        other => image.settings().configs(other).cloned().unwrap_or_default(),
    }
}

fn check_sizes(overrides: &Overrides) -> Result<(), Refusal> {
    match overrides.iter().find(|(_, value)| VALUE_BYTES_MAX < value.len()) {
        Some((name, _)) => {
            let message = format!("the value of {name} is longer than {VALUE_BYTES_MAX} bytes");
            Err(Refusal::new(ErrorCode::InvalidConfig, message))
        }
        None => Ok(()),
    }
}

fn changed(
    before: &Overrides,
    server: &ServerConfig,
    (resource, changes): (&ConfigResource, Vec<(String, Operation)>),
) -> Result<Overrides, Refusal> {
    let mut after = before.clone();
    for (name, operation) in changes {
        match operation {
            Operation::Set(value) => {
                after.insert(name, value);
            }
            Operation::Delete => {
                after.remove(&name);
            }
            Operation::Append(items) => {
                let mut list = list(&after, server, (resource, &name, "APPEND"))?;
                for item in items.split(',') {
                    if !list.iter().any(|known| known == item) {
                        list.push(item.to_owned());
                    }
                }
                after.insert(name, list.join(","));
            }
            Operation::Subtract(items) => {
                let mut list = list(&after, server, (resource, &name, "SUBTRACT"))?;
                for item in items.split(',') {
                    if let Some(place) = list.iter().position(|known| known == item) {
                        list.remove(place);
                    }
                }
                after.insert(name, list.join(","));
            }
        }
    }
    Ok(after)
}

/// The items of a config's value, or of its default.
fn list(
    overrides: &Overrides,
    server: &ServerConfig,
    (resource, name, operation): (&ConfigResource, &str, &str),
) -> Result<Vec<String>, Refusal> {
    let default = match resource {
        ConfigResource::Topic(_) => config::topic_list_default(server, name),
        ConfigResource::Broker(_) => config::server_list_default(server, name),
        ConfigResource::ClientMetrics(_) if ["match", "metrics"].contains(&name) => {
            Some(String::new())
        }
        ConfigResource::ClientMetrics(_) | ConfigResource::Group(_) => None,
    };
    let default = default.ok_or_else(|| {
        let message = format!("Can't {operation} to key {name} because its type is not LIST.");
        Refusal::new(ErrorCode::InvalidConfig, message)
    })?;
    let text = overrides.get(name).unwrap_or(&default);
    Ok(text.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect())
}

fn validate(
    image: &Image,
    server: &ServerConfig,
    (resource, after): (&ConfigResource, &Overrides),
) -> Result<(), Refusal> {
    let invalid = |message: String| Refusal::new(ErrorCode::InvalidConfig, message);
    match resource {
        ConfigResource::Topic(topic) => {
            TopicConfigs::new(server).validate(after).map_err(|it| invalid(it.to_string()))?;
            if image.topic(topic.as_str()).is_none() {
                let message = format!("The topic '{topic}' does not exist.");
                return Err(Refusal::new(ErrorCode::UnknownTopicOrPartition, message));
            }
            Ok(())
        }
        ConfigResource::Broker(_) => config::validate_dynamic(server, after)
            .map_err(|error| Refusal::new(ErrorCode::InvalidRequest, error.to_string())),
        ConfigResource::ClientMetrics(_) => validate_metrics(after),
        ConfigResource::Group(_) => {
            config::validate_group(server, after).map_err(|error| invalid(error.to_string()))
        }
    }
}

/// What a client may be told from others by (`ClientMetricsConfigs`).
const CLIENT_KEYS: [&str; 6] = [
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
];

fn validate_metrics(overrides: &Overrides) -> Result<(), Refusal> {
    let invalid = |message: String| Refusal::new(ErrorCode::InvalidRequest, message);
    for (name, value) in overrides {
        match name.as_str() {
            "interval.ms" => match value.parse::<i32>() {
                Ok(100..=3_600_000) => {}
                _ => {
                    return Err(invalid(format!(
                        "Invalid value {value} for interval.ms, interval must be between 100 and \
                         3600000 (1 hour)"
                    )));
                }
            },
            "match" => {
                let is_pattern = |item: &str| {
                    let pair = item.split_once('=');
                    pair.is_some_and(|(key, it)| CLIENT_KEYS.contains(&key) && !it.is_empty())
                };
                let mut items = value.split(',').map(str::trim).filter(|item| !item.is_empty());
                if let Some(wrong) = items.find(|item| !is_pattern(item)) {
                    let message = format!("Illegal client matching pattern: {wrong}");
                    return Err(Refusal::new(ErrorCode::InvalidConfig, message));
                }
            }
            "metrics" => {}
            _ => return Err(invalid(format!("Unknown client metrics configuration: {name}"))),
        }
    }
    Ok(())
}

/// Only what changes is written, but for brokers: to set a value again is how they are told to read
/// it anew (KAFKA-14136).
fn records(
    resource: &ConfigResource,
    before: &Overrides,
    after: &Overrides,
) -> Vec<MetadataRecord> {
    let is_broker = matches!(resource, ConfigResource::Broker(_));
    let record = |name: &String, value: Option<&String>| MetadataRecord::Config {
        resource: resource.clone(),
        name: name.clone(),
        value: value.cloned(),
    };
    let is_changed =
        |(name, value): &(&String, &String)| is_broker || before.get(*name) != Some(*value);
    let set = after.iter().filter(is_changed).map(|(name, value)| record(name, Some(value)));
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    set.chain(gone.map(|name| record(name, None))).collect()
}

/// Names that a list has more than once.
pub fn repeated<'a>(names: impl Iterator<Item = &'a str>) -> bool {
    let mut seen = BTreeSet::new();
    names.into_iter().any(|name| !seen.insert(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::TopicId;

    fn topic() -> ConfigResource {
        ConfigResource::Topic(TopicName::new("t").expect("a legal name"))
    }

    fn image() -> Image {
        let mut image = Image::default();
        let name = TopicName::new("t").expect("a legal name");
        let record = MetadataRecord::Topic { name, topic_id: TopicId([1; 16]) };
        image.apply(&record).expect("the first record");
        image
    }

    /// Names and values that a change writes.
    type Written = Vec<(String, Option<String>)>;

    fn change(
        image: &mut Image,
        resource: &ConfigResource,
        (name, operation): (&str, Operation),
    ) -> Result<Written, (ErrorCode, String)> {
        let server = ServerConfig::defaults();
        let alteration = Alteration::Some(vec![(name.to_owned(), operation)]);
        let records = decide(image, &server, (resource, alteration));
        let records = records.map_err(|refusal| (refusal.code, refusal.message))?;
        let told = |record: MetadataRecord| {
            image.apply(&record).expect("it was decided on this image");
            match record {
                MetadataRecord::Config { name, value, .. } => (name, value),
                other => panic!("{other:?}"),
            }
        };
        Ok(records.into_iter().map(told).collect())
    }

    fn set(value: &str) -> Operation {
        Operation::Set(value.to_owned())
    }

    fn one(name: &str, value: Option<&str>) -> Written {
        vec![(name.to_owned(), value.map(str::to_owned))]
    }

    #[test]
    fn lists_grow_and_shrink_from_their_default() {
        let mut image = image();
        let mut change = |operation| change(&mut image, &topic(), ("cleanup.policy", operation));
        let append = Operation::Append("compact,delete".to_owned());
        assert_eq!(change(append.clone()), Ok(one("cleanup.policy", Some("delete,compact"))));
        assert_eq!(change(append), Ok(Vec::new()), "nothing changes");
        let subtract = Operation::Subtract("delete".to_owned());
        assert_eq!(change(subtract), Ok(one("cleanup.policy", Some("compact"))));
        assert_eq!(change(Operation::Delete), Ok(one("cleanup.policy", None)));
        assert_eq!(change(Operation::Delete), Ok(Vec::new()));
    }

    #[test]
    fn refusals_have_kafkas_codes_and_words() {
        let mut image = image();
        let mut refused = |resource: &ConfigResource, name, operation| {
            change(&mut image, resource, (name, operation)).expect_err("refused")
        };
        let append = Operation::Append("1".to_owned());
        assert_eq!(refused(&topic(), "retention.ms", append), {
            let message = "Can't APPEND to key retention.ms because its type is not LIST.";
            (ErrorCode::InvalidConfig, message.to_owned())
        });
        assert_eq!(refused(&topic(), "foo.bar", set("1")).1, "Unknown topic config name: foo.bar");
        let other = ConfigResource::Topic(TopicName::new("other").expect("a legal name"));
        let (code, message) = refused(&other, "retention.ms", set("1"));
        assert_eq!(code, ErrorCode::UnknownTopicOrPartition);
        assert_eq!(message, "The topic 'other' does not exist.");
        let broker = ConfigResource::Broker("1".to_owned());
        assert_eq!(refused(&broker, "node.id", set("3")), {
            let message = "Cannot update these configs dynamically: [node.id]";
            (ErrorCode::InvalidRequest, message.to_owned())
        });
        assert_eq!(refused(&broker, "log.retention.ms", set("abc")).1, {
            "Invalid value abc for configuration log.retention.ms: Not a number of type LONG"
        });
        assert!(refused(&broker, "log.retention.ms", set("0")).1.contains("at least 1 ms"));
        let metrics = ConfigResource::ClientMetrics("all".to_owned());
        assert_eq!(refused(&metrics, "interval.ms", set("1")).0, ErrorCode::InvalidRequest);
        assert_eq!(refused(&metrics, "match", set("foo=bar")).0, ErrorCode::InvalidConfig);
        // Kafka's pools can be resized at run time; there are none here, and no harm is done.
        let threads = change(&mut image, &broker, ("num.io.threads", set("4")));
        assert_eq!(threads, Ok(one("num.io.threads", Some("4"))));
    }

    #[test]
    fn replacing_all_deletes_the_rest() {
        let mut image = image();
        change(&mut image, &topic(), ("retention.ms", set("1000"))).expect("valid");
        let all = Overrides::from([("segment.ms".to_owned(), "5000".to_owned())]);
        let server = ServerConfig::defaults();
        let records = decide(&image, &server, (&topic(), Alteration::All(all))).expect("valid");
        for record in &records {
            image.apply(record).expect("it was decided on this image");
        }
        let names: Vec<_> = current(&image, &topic()).into_keys().collect();
        assert_eq!(names, ["segment.ms"]);
    }

    #[test]
    fn a_brokers_config_is_written_again_when_it_is_set_again() {
        let mut image = image();
        let broker = ConfigResource::Broker(String::new());
        let expected = one("message.max.bytes", Some("3000000"));
        for _ in 0..2 {
            let outcome = change(&mut image, &broker, ("message.max.bytes", set("3000000")));
            assert_eq!(outcome, Ok(expected.clone()));
        }
        let (all, own) = image.settings().of_brokers(BrokerId(1));
        let now = ServerConfig::defaults().changed(&all, &own);
        let resolved = TopicConfigs::new(&now).resolve(&Overrides::new());
        assert_eq!(resolved.batch_bytes_max.0, 3_000_000);
    }

    #[test]
    fn resources_are_named_as_kafka_names_them() {
        let find = |kind, name| resource(kind, name, |id| [1, 2].contains(&id), BrokerId(1));
        assert_eq!(find(kind::BROKER, "2"), Ok(ConfigResource::Broker("1".to_owned())));
        assert_eq!(find(kind::BROKER, ""), Ok(ConfigResource::Broker(String::new())));
        for (kind, name) in [(kind::BROKER, "3"), (kind::BROKER, "x"), (kind::TOPIC, ""), (7, "x")]
        {
            let refused = find(kind, name).map_err(|refusal| refusal.code);
            assert_eq!(refused, Err(ErrorCode::InvalidRequest), "{kind} {name}");
        }
        let refused = find(kind::TOPIC, "no/pe").map_err(|refusal| refusal.code);
        assert_eq!(refused, Err(ErrorCode::InvalidTopicException));
    }
}
