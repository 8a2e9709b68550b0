//! AlterConfigs (33), versions 0 to 2: all configs of a resource are replaced at once. Older
//! clients send it; newer ones IncrementalAlterConfigs.
//!
//! - Changes go through the controller into the metadata log and take effect on every shard before
//!   the answer leaves.
//! - A resource that the request names twice is refused both times.

use std::collections::HashSet;
use std::sync::Arc;

use kafka_protocol::messages::alter_configs_request::{AlterConfigsRequest, AlterConfigsResource};
use kafka_protocol::messages::alter_configs_response::{
    AlterConfigsResourceResponse, AlterConfigsResponse,
};

use crate::broker::alterations::{self, Alteration, kind};
use crate::broker::api::describe_configs::log_levels;
use crate::broker::api::text;
use crate::broker::config::ServerConfig;
use crate::broker::errors::Refusal;
use crate::broker::image::{Image, Overrides};
use crate::broker::mail::Decide;
use crate::broker::node::{Node, Shared};
use crate::broker::settings::Settings;
use crate::format::kraft::ConfigResource;
use crate::wire::error::ErrorCode;

/// Answers a request.
pub async fn answer(node: &Node, request: AlterConfigsRequest) -> AlterConfigsResponse {
    node.served().await;
    let named = |it: &AlterConfigsResource| (it.resource_type, it.resource_name.to_string());
    let names: Vec<(i8, String)> = request.resources.iter().map(named).collect();
    let wanted = request.resources.into_iter().map(alteration).collect();
    let outcomes = alter(node, (names, wanted), request.validate_only).await;
    let responses = outcomes.into_iter().map(|((kind, name), outcome)| {
        let response = AlterConfigsResourceResponse::default()
            .with_resource_type(kind)
            .with_resource_name(text(&name));
        match outcome {
            Ok(()) => response.with_error_message(None),
            Err(refusal) => response
                .with_error_code(refusal.code.to_wire())
                .with_error_message(Some(text(&refusal.message))),
        }
    });
    AlterConfigsResponse::default().with_responses(responses.collect())
}

fn alteration(resource: AlterConfigsResource) -> Result<Alteration, Refusal> {
    if alterations::repeated(resource.configs.iter().map(|it| it.name.as_str())) {
        return Err(repeated_keys());
    }
    let is_null = |value: &Option<_>| value.is_none();
    let nulls = resource.configs.iter().filter(|it| is_null(&it.value));
    let nulls: Vec<&str> = nulls.map(|it| it.name.as_str()).collect();
    if !nulls.is_empty() {
        return Err(null_values(&nulls));
    }
    let pair = |it: &kafka_protocol::messages::alter_configs_request::AlterableConfig| {
        (it.name.to_string(), it.value.as_deref().unwrap_or_default().to_owned())
    };
    Ok(Alteration::All(resource.configs.iter().map(pair).collect::<Overrides>()))
}

pub(super) fn repeated_keys() -> Refusal {
    Refusal::new(ErrorCode::InvalidRequest, "Error due to duplicate config keys")
}

pub(super) fn null_values(names: &[&str]) -> Refusal {
    let message = format!("Null value not supported for : {}", names.join(", "));
    Refusal::new(ErrorCode::InvalidRequest, message)
}

/// Resources by type and name, and what is wanted of each.
type Wanted = (Vec<(i8, String)>, Vec<Result<Alteration, Refusal>>);

/// Has the configs of these resources changed, or only looks whether they could be; every resource
/// is answered.
pub(super) async fn alter(
    node: &Node,
    (names, wanted): Wanted,
    is_trial: bool,
) -> Vec<((i8, String), Result<(), Refusal>)> {
    let mut changes = Vec::new();
    let mut decided = Vec::with_capacity(names.len());
    let mut seen = HashSet::new();
    let twice: HashSet<_> = names.iter().filter(|name| !seen.insert(*name)).collect();
    let current = Current { settings: node.image().settings().clone(), config: node.config() };
    for (name, wanted) in names.iter().zip(wanted) {
        let found = if twice.contains(name) {
            let message = "Each resource must appear at most once.";
            Err(Refusal::new(ErrorCode::InvalidRequest, message))
        } else {
            wanted.and_then(|alteration| find(node, name, (alteration, is_trial)))
        };
        decided.push(found.map(|change| {
            let change = change.map(|(resource, alteration)| {
                decide((node.shared.clone(), current.clone()), resource, alteration)
            });
            let is_open = change.is_some();
            changes.extend(change);
            is_open
        }));
    }
    let mut outcomes = node.change(changes, is_trial).await.into_iter();
    let outcome = |decided: Result<bool, Refusal>| match decided? {
        true => outcomes.next().expect("every change is answered"),
        false => Ok(()),
    };
    names.into_iter().zip(decided.into_iter().map(outcome)).collect()
}

/// What is to be changed in the metadata log. Levels of loggers are changed here and now, since
/// they are this process's; as in Kafka not all of them at once.
fn find(
    node: &Node,
    (kind, name): &(i8, String),
    (alteration, is_trial): (Alteration, bool),
) -> Result<Option<(ConfigResource, Alteration)>, Refusal> {
    if let (kind::BROKER_LOGGER, Alteration::Some(levels)) = (*kind, &alteration) {
        log_levels(node, name)?.alter(levels, is_trial)?;
        return Ok(None);
    }
    let is_ours = |id| node.shared.brokers.iter().any(|(known, _, _)| known.0 == id);
    let resource = alterations::resource(*kind, name, is_ours, node.shared.node)?;
    Ok(Some((resource, alteration)))
}

/// The settings of the metadata log, and the server's with them.
#[derive(Clone)]
struct Current {
    settings: Arc<Settings>,
    config: Arc<ServerConfig>,
}

fn decide(
    (shared, current): (Arc<Shared>, Current),
    resource: ConfigResource,
    alteration: Alteration,
) -> Decide {
    Box::new(move |image: &Image| {
        if Arc::ptr_eq(image.settings(), &current.settings) {
            return alterations::decide(image, &current.config, (&resource, alteration));
        }
        // Settings have changed in between, perhaps by this very request.
        let (all, own) = image.settings().of_brokers(shared.node);
        let server = shared.config.changed(&all, &own);
        alterations::decide(image, &server, (&resource, alteration))
    })
}
