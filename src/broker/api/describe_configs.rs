//! DescribeConfigs (32), versions 1 to 4: settings of topics, of this broker, of groups and of
//! subscriptions to clients' metrics; levels of what this broker logs.
//!
//! - A broker is named by its id; every shard's id means the one broker that they are. An empty
//!   name asks for what was set for all brokers.
//! - Synonyms (where a value comes from, in the order of precedence) and documentation on demand.
//! - No setting is secret.
//! - A resource that is named again is described once. Kafka: as often as it is named.

use std::collections::HashSet;

use kafka_protocol::messages::describe_configs_request::{
    DescribeConfigsRequest, DescribeConfigsResource,
};
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResponse, DescribeConfigsResult,
    DescribeConfigsSynonym,
};

use crate::broker::alterations::{self, kind};
use crate::broker::api::text;
use crate::broker::config::{self, ConfigSource, Described, Synonym};
use crate::broker::errors::Refusal;
use crate::broker::log_levels::LogLevels;
use crate::broker::node::Node;
use crate::format::kraft::ConfigResource;
use crate::format::names::TopicName;
use crate::units::u64_of;
use crate::wire::StrBytes;
use crate::wire::error::{ErrorCode, WireError};

/// Configs that one answer may have in all: those of all topics that there may be. They take up to
/// 400 bytes each, until they are encoded. A request may name more resources than there are, since
/// groups that nobody knows have configs, too.
pub const DESCRIBED_CONFIGS_MAX: usize = 1_000_000;

/// Answers a request.
///
/// # Errors
/// [`WireError::TooMany`] beyond [`DESCRIBED_CONFIGS_MAX`].
pub async fn answer(
    node: &Node,
    request: DescribeConfigsRequest,
) -> Result<DescribeConfigsResponse, WireError> {
    node.served().await;
    let mut seen = HashSet::with_capacity(request.resources.len());
    let mut left = DESCRIBED_CONFIGS_MAX;
    let mut results = Vec::new();
    for resource in &request.resources {
        if !seen.insert((resource.resource_type, &resource.resource_name)) {
            continue;
        }
        let result = DescribeConfigsResult::default()
            .with_error_message(Some(text("")))
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        results.push(match entries(node, resource) {
            Ok(entries) => {
                let wanted = entries.iter().filter(|entry| is_wanted(resource, entry.name));
                let configs: Vec<_> = wanted.map(|entry| describe(entry, &request)).collect();
                left = left.checked_sub(configs.len()).ok_or_else(too_many)?;
                result.with_configs(configs)
            }
            Err(refusal) => result
                .with_error_code(refusal.code.to_wire())
                .with_error_message(Some(text(&refusal.message))),
        });
    }
    Ok(DescribeConfigsResponse::default().with_results(results))
}

fn too_many() -> WireError {
    let limit = u64_of(DESCRIBED_CONFIGS_MAX);
    WireError::TooMany { what: "the answer's configs", count: limit + 1, limit }
}

/// Null asks for all, and so does an empty list (as old clients send it).
fn is_wanted(resource: &DescribeConfigsResource, name: &str) -> bool {
    match resource.configuration_keys.as_deref() {
        None | Some([]) => true,
        Some(keys) => keys.iter().any(|key| key.as_str() == name),
    }
}

fn entries(node: &Node, resource: &DescribeConfigsResource) -> Result<Vec<Described>, Refusal> {
    let invalid = |message: String| Refusal::new(ErrorCode::InvalidRequest, message);
    let name = resource.resource_name.as_str();
    let image = node.image();
    let set = |resource| image.settings().configs(&resource).cloned().unwrap_or_default();
    match resource.resource_type {
        kind::TOPIC => {
            TopicName::new(name).map_err(|error| {
                Refusal::new(ErrorCode::InvalidTopicException, error.to_string())
            })?;
            let topic = image.topic(name);
            let unknown = || Refusal::new(ErrorCode::UnknownTopicOrPartition, "");
            let topic = topic.ok_or_else(unknown)?;
            let entries = config::describe_topic(&node.config(), &topic.overrides);
            Ok(entries.into_iter().map(as_kafka_cuts).collect())
        }
        kind::BROKER if name.is_empty() => {
            Ok(config::describe_common(&set(ConfigResource::Broker(String::new()))))
        }
        kind::BROKER => {
            let is_ours = |id| node.shared.brokers.iter().any(|(known, _, _)| known.0 == id);
            alterations::resource(kind::BROKER, name, is_ours, node.shared.node)?;
            let mut entries = config::describe_server(&node.config());
            let mut brokers = node.shared.brokers.iter();
            let named = brokers.find(|(id, _, _)| id.0.to_string() == name);
            entries.extend(named.map(|(_, host, port)| config::describe_address(host, port)));
            Ok(entries)
        }
        kind::CLIENT_METRICS if name.is_empty() => {
            Err(invalid("Client metrics subscription name must not be empty".to_owned()))
        }
        kind::CLIENT_METRICS => {
            Ok(config::describe_metrics(&set(ConfigResource::ClientMetrics(name.to_owned()))))
        }
        kind::GROUP if name.is_empty() => Err(invalid("Group name must not be empty".to_owned())),
        kind::GROUP => {
            let own = set(ConfigResource::Group(name.to_owned()));
            Ok(config::describe_group(&node.config(), &own))
        }
        kind::BROKER_LOGGER if name.is_empty() => {
            Err(invalid("Broker id must not be empty".to_owned()))
        }
        kind::BROKER_LOGGER => {
            let levels = log_levels(node, name)?.all().into_iter();
            Ok(levels.map(|(logger, level)| config::describe_logger(logger, level)).collect())
        }
        other => Err(invalid(format!("resources of type {other} have no configs here"))),
    }
}

/// The levels of the broker of this name: every shard's id means the one broker that they are.
///
/// # Errors
/// INVALID_REQUEST: it is another broker's name or none; levels are the embedding program's.
pub(super) fn log_levels<'a>(node: &'a Node, name: &str) -> Result<&'a LogLevels, Refusal> {
    let invalid = |message: String| Refusal::new(ErrorCode::InvalidRequest, message);
    let id: i32 = name
        .parse()
        .map_err(|_| invalid(format!("Node id must be an integer, but it is: {name}")))?;
    if !node.shared.brokers.iter().any(|(known, _, _)| known.0 == id) {
        let expected = node.shared.node.0;
        return Err(invalid(format!("Unexpected node id. Expected {expected}, but received {id}")));
    }
    let levels = node.shared.log_levels.as_deref();
    levels.ok_or_else(|| invalid("this server's program sets what it logs".to_owned()))
}

/// As Kafka cuts a topic config's synonyms: those that stand before the strongest of the server's
/// names are left out, and with them the source that they would have told.
fn as_kafka_cuts(mut entry: Described) -> Described {
    let primary = config::server_name_of(entry.name);
    let is_own = entry.source == ConfigSource::DynamicTopic;
    let mut synonyms = entry.synonyms.into_iter();
    let own: Vec<Synonym> = synonyms.by_ref().take(usize::from(is_own)).collect();
    let rest = synonyms.skip_while(|synonym| Some(synonym.name) != primary);
    entry.synonyms = own.into_iter().chain(rest).collect();
    entry.source = entry.synonyms.first().map_or(ConfigSource::Default, |first| first.source);
    entry
}

fn describe(entry: &Described, request: &DescribeConfigsRequest) -> DescribeConfigsResourceResult {
    let synonyms = if request.include_synonyms { entry.synonyms.as_slice() } else { &[] };
    let synonyms = synonyms.iter().map(|synonym| {
        DescribeConfigsSynonym::default()
            .with_name(StrBytes::from_static_str(synonym.name))
            .with_value(synonym.value.as_deref().map(text))
            .with_source(synonym.source.code())
    });
    let documentation =
        request.include_documentation.then(|| StrBytes::from_static_str(entry.documentation));
    DescribeConfigsResourceResult::default()
        .with_name(StrBytes::from_static_str(entry.name))
        .with_value(entry.value.as_deref().map(text))
        .with_read_only(entry.is_read_only)
        .with_config_source(entry.source.code())
        .with_synonyms(synonyms.collect())
        .with_config_type(entry.type_code.0)
        .with_documentation(documentation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::config::ServerConfig;
    use crate::broker::image::Overrides;

    fn retention(server: &ServerConfig, own: Option<&str>) -> (i8, Vec<(&'static str, i8)>) {
        let own = own.map(|value| ("retention.ms".to_owned(), value.to_owned()));
        let overrides: Overrides = own.into_iter().collect();
        let entries = config::describe_topic(server, &overrides);
        let found = entries.into_iter().find(|entry| entry.name == "retention.ms");
        let entry = as_kafka_cuts(found.expect("described"));
        (entry.source.code(), entry.synonyms.iter().map(|it| (it.name, it.source.code())).collect())
    }

    #[test]
    fn synonyms_begin_with_the_strongest_name() {
        let server = ServerConfig::defaults();
        assert_eq!(retention(&server, None), (5, Vec::new()), "hours alone have a default");
        assert_eq!(retention(&server, Some("1")), (1, vec![("retention.ms", 1)]));
        let set = Overrides::from([("log.retention.ms".to_owned(), "5".to_owned())]);
        let changed = server.changed(&Overrides::new(), &set);
        let (ms, hours) = (("log.retention.ms", 2), ("log.retention.hours", 5));
        assert_eq!(retention(&changed, None), (2, vec![ms, hours]));
        let changed = server.changed(&set, &set);
        let expected = vec![ms, ("log.retention.ms", 3), hours];
        assert_eq!(retention(&changed, None), (2, expected));
    }
}
