//! ListConfigResources (74), versions 0 and 1: names of what has configs.
//!
//! - Version 0 asks for subscriptions to clients' metrics alone; from version 1 on a request names
//!   types, or none for all of them.
//! - Every topic and broker has configs, and every broker loggers, unless the embedding program
//!   sets what is logged; groups and subscriptions are listed when some are set.

use std::collections::BTreeSet;

use kafka_protocol::messages::list_config_resources_request::ListConfigResourcesRequest;
use kafka_protocol::messages::list_config_resources_response::{
    ConfigResource as Listed, ListConfigResourcesResponse,
};

use crate::broker::alterations::kind;
use crate::broker::api::text;
use crate::broker::node::Node;
use crate::format::kraft::ConfigResource;
use crate::wire::error::ErrorCode;

/// In the order in which Kafka lists them.
const KINDS: [i8; 5] =
    [kind::GROUP, kind::CLIENT_METRICS, kind::BROKER_LOGGER, kind::BROKER, kind::TOPIC];

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: ListConfigResourcesRequest,
    version: i16,
) -> ListConfigResourcesResponse {
    node.served().await;
    let wanted: BTreeSet<i8> = request.resource_types.into_iter().collect();
    let kinds = match version {
        0 => vec![kind::CLIENT_METRICS],
        _ if wanted.is_empty() => KINDS.to_vec(),
        _ => KINDS.into_iter().filter(|kind| wanted.contains(kind)).collect(),
    };
    if wanted.iter().any(|kind| !KINDS.contains(kind)) {
        let error = ErrorCode::UnsupportedVersion.to_wire();
        return ListConfigResourcesResponse::default().with_error_code(error);
    }
    let listed = kinds.into_iter().flat_map(|kind| {
        let listed = move |name: String| {
            Listed::default().with_resource_name(text(&name)).with_resource_type(kind)
        };
        names(node, kind).into_iter().map(listed)
    });
    ListConfigResourcesResponse::default().with_config_resources(listed.collect())
}

fn names(node: &Node, kind: i8) -> Vec<String> {
    let image = node.image();
    let set = |resource: &ConfigResource| match resource {
        ConfigResource::Group(name) if kind == kind::GROUP => Some(name.clone()),
        ConfigResource::ClientMetrics(name) if kind == kind::CLIENT_METRICS => Some(name.clone()),
        ConfigResource::Group(_)
        | ConfigResource::ClientMetrics(_)
        | ConfigResource::Broker(_)
        | ConfigResource::Topic(_) => None,
    };
    let brokers = || node.shared.brokers.iter().map(|(id, _, _)| id.0.to_string()).collect();
    match kind {
        kind::TOPIC => image.topics().map(|topic| topic.name.to_string()).collect(),
        kind::BROKER => brokers(),
        kind::BROKER_LOGGER if node.shared.log_levels.is_some() => brokers(),
        _ => image.settings().resources().filter_map(set).collect(),
    }
}
