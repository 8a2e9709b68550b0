//! IncrementalAlterConfigs (44), versions 0 and 1: single configs of a resource are set, deleted,
//! or their lists get more or fewer items. Otherwise as AlterConfigs.

use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use kafka_protocol::messages::incremental_alter_configs_response::{
    AlterConfigsResourceResponse, IncrementalAlterConfigsResponse,
};

use crate::broker::alterations::{self, Alteration, Operation};
use crate::broker::api::alter_configs::{alter, null_values, repeated_keys};
use crate::broker::api::text;
use crate::broker::errors::Refusal;
use crate::broker::node::Node;
use crate::wire::error::ErrorCode;

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    node.served().await;
    let named = |it: &AlterConfigsResource| (it.resource_type, it.resource_name.to_string());
    let names: Vec<(i8, String)> = request.resources.iter().map(named).collect();
    let wanted = request.resources.iter().map(alteration).collect();
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
    IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
}

fn alteration(resource: &AlterConfigsResource) -> Result<Alteration, Refusal> {
    if alterations::repeated(resource.configs.iter().map(|it| it.name.as_str())) {
        return Err(repeated_keys());
    }
    let is_null = |it: &&AlterableConfig| it.config_operation != DELETE && it.value.is_none();
    let nulls: Vec<&str> =
        resource.configs.iter().filter(is_null).map(|it| it.name.as_str()).collect();
    if !nulls.is_empty() {
        return Err(null_values(&nulls));
    }
    resource.configs.iter().map(operation).collect::<Result<_, _>>().map(Alteration::Some)
}

fn operation(config: &AlterableConfig) -> Result<(String, Operation), Refusal> {
    let value = config.value.as_deref().unwrap_or_default().to_owned();
    let operation = match config.config_operation {
        SET => Operation::Set(value),
        DELETE => Operation::Delete,
        APPEND => Operation::Append(value),
        SUBTRACT => Operation::Subtract(value),
        other => {
            let message = format!("Unknown operations type {other}");
            return Err(Refusal::new(ErrorCode::InvalidRequest, message));
        }
    };
    Ok((config.name.to_string(), operation))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, operation: i8, value: Option<&str>) -> AlterableConfig {
        AlterableConfig::default()
            .with_name(text(name))
            .with_config_operation(operation)
            .with_value(value.map(text))
    }

    #[test]
    fn only_a_deletion_needs_no_value_and_each_name_comes_once() {
        let outcome = |configs: Vec<AlterableConfig>| {
            alteration(&AlterConfigsResource::default().with_configs(configs))
                .map_err(|it| it.message)
        };
        let deletion = vec![("a".to_owned(), Operation::Delete)];
        assert_eq!(outcome(vec![config("a", DELETE, None)]), Ok(Alteration::Some(deletion)));
        let nulls = outcome(vec![config("a", SET, None), config("b", APPEND, None)]);
        assert_eq!(nulls, Err("Null value not supported for : a, b".to_owned()));
        let twice = outcome(vec![config("a", SET, Some("1")), config("a", DELETE, None)]);
        assert_eq!(twice, Err("Error due to duplicate config keys".to_owned()));
        assert_eq!(outcome(vec![config("a", 4, Some("1"))]), {
            Err("Unknown operations type 4".to_owned())
        });
    }
}
