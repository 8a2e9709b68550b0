//! DescribeConfigs (32), versions 1 to 4: settings of topics and of this broker.
//!
//! - A broker is named by its id; every shard's id means the one broker that they are.
//! - Synonyms (where a value comes from, in the order of precedence) and documentation on demand.
//! - No setting is secret.

use kafka_protocol::messages::describe_configs_request::{
    DescribeConfigsRequest, DescribeConfigsResource,
};
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResponse, DescribeConfigsResult,
    DescribeConfigsSynonym,
};

use crate::broker::api::text;
use crate::broker::config::{self, Described};
use crate::broker::errors::Refusal;
use crate::broker::node::Node;
use crate::format::names::TopicName;
use crate::wire::error::ErrorCode;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// Answers a request.
pub async fn answer(node: &Node, request: DescribeConfigsRequest) -> DescribeConfigsResponse {
    node.served().await;
    let results = request.resources.iter().map(|resource| {
        let result = DescribeConfigsResult::default()
            .with_error_message(None)
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match entries(node, resource) {
            Ok(entries) => {
                let wanted = entries.iter().filter(|entry| is_wanted(resource, entry.name));
                result.with_configs(wanted.map(|entry| describe(entry, &request)).collect())
            }
            Err(refusal) => result
                .with_error_code(refusal.code.to_wire())
                .with_error_message(Some(text(&refusal.message))),
        }
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

/// Null asks for all, and so does an empty list (as old clients send it).
fn is_wanted(resource: &DescribeConfigsResource, name: &str) -> bool {
    match resource.configuration_keys.as_deref() {
        None | Some([]) => true,
        Some(keys) => keys.iter().any(|key| key.as_str() == name),
    }
}

fn entries(node: &Node, resource: &DescribeConfigsResource) -> Result<Vec<Described>, Refusal> {
    let name = resource.resource_name.as_str();
    let settings = &node.shared.config;
    match resource.resource_type {
        TOPIC => {
            TopicName::new(name).map_err(|error| {
                Refusal::new(ErrorCode::InvalidTopicException, error.to_string())
            })?;
            let image = node.image();
            let topic = image.topic(name).ok_or_else(|| {
                let message = format!("there is no topic {name}");
                Refusal::new(ErrorCode::UnknownTopicOrPartition, message)
            })?;
            Ok(config::describe_topic(settings, &topic.overrides))
        }
        // An empty name asks for what all brokers have in common, which is nothing: their settings
        // come from one configuration file each.
        BROKER if name.is_empty() => Ok(Vec::new()),
        BROKER => {
            let is_ours = |id: i32| node.shared.brokers.iter().any(|(known, _, _)| known.0 == id);
            if name.parse().is_ok_and(is_ours) {
                return Ok(config::describe_server(settings));
            }
            let message = format!("{name:?} is not the id of a broker here");
            Err(Refusal::new(ErrorCode::InvalidRequest, message))
        }
        other => {
            let message = format!("resources of type {other} have no configs here");
            Err(Refusal::new(ErrorCode::InvalidRequest, message))
        }
    }
}

fn describe(entry: &Described, request: &DescribeConfigsRequest) -> DescribeConfigsResourceResult {
    let synonyms = if request.include_synonyms { entry.synonyms.as_slice() } else { &[] };
    let synonyms = synonyms.iter().map(|synonym| {
        DescribeConfigsSynonym::default()
            .with_name(text(synonym.name))
            .with_value(synonym.value.as_deref().map(text))
            .with_source(synonym.source.code())
    });
    let documentation = request.include_documentation.then(|| text(entry.documentation));
    DescribeConfigsResourceResult::default()
        .with_name(text(entry.name))
        .with_value(entry.value.as_deref().map(text))
        .with_read_only(entry.is_read_only)
        .with_config_source(entry.source.code())
        .with_synonyms(synonyms.collect())
        .with_config_type(entry.type_code.0)
        .with_documentation(documentation)
}
