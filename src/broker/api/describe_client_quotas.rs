//! DescribeClientQuotas (48), versions 0 and 1: quotas whose entities match a filter.
//!
//! Each component of the filter wants one kind of part to be there: with a name, as the default, or
//! with any name. A strict filter wants no other parts.

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_client_quotas_request::{
    ComponentData, DescribeClientQuotasRequest,
};
use kafka_protocol::messages::describe_client_quotas_response::{
    DescribeClientQuotasResponse, EntityData, EntryData, ValueData,
};

use crate::broker::api::text;
use crate::broker::errors::Refusal;
use crate::broker::node::Node;
use crate::broker::quota::part;
use crate::broker::settings::Quotas;
use crate::format::kraft_users::QuotaEntity;
use crate::wire::error::ErrorCode;

const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const SPECIFIED: i8 = 2;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: DescribeClientQuotasRequest,
) -> DescribeClientQuotasResponse {
    node.served().await;
    let filter = match filter(&request.components) {
        Ok(filter) => filter,
        Err(refusal) => {
            return DescribeClientQuotasResponse::default()
                .with_error_code(refusal.code.to_wire())
                .with_error_message(Some(text(&refusal.message)))
                .with_entries(None);
        }
    };
    let image = node.image();
    let quotas = image.settings().quotas().iter();
    let matching = quotas.filter(|(entity, _)| matches(entity, &filter, request.strict));
    let entries = matching.map(|(entity, quotas)| describe(entity, quotas)).collect();
    let response = DescribeClientQuotasResponse::default().with_error_message(Some(text("")));
    response.with_entries(Some(entries))
}

fn describe(entity: &QuotaEntity, quotas: &Quotas) -> EntryData {
    let parts = entity.iter().map(|(kind, name)| {
        EntityData::default()
            .with_entity_type(text(kind))
            .with_entity_name(name.as_deref().map(text))
    });
    let values = quotas
        .iter()
        .map(|(key, value)| ValueData::default().with_key(text(key)).with_value(*value));
    EntryData::default().with_entity(parts.collect()).with_values(values.collect())
}

/// What one kind of part has to be.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Match {
    /// This name, or the default.
    Is(Option<String>),
    /// Anything.
    IsThere,
}

type Filter = BTreeMap<String, Match>;

fn filter(components: &[ComponentData]) -> Result<Filter, Refusal> {
    let invalid = |message: String| Refusal::new(ErrorCode::InvalidRequest, message);
    let mut filter = Filter::new();
    for component in components {
        let kind = component.entity_type.to_string();
        if kind.is_empty() {
            return Err(invalid("Invalid empty entity type.".to_owned()));
        }
        if filter.contains_key(&kind) {
            return Err(invalid(format!(
                "Entity type {kind} cannot appear more than once in the filter."
            )));
        }
        if ![part::USER, part::CLIENT_ID, part::IP].contains(&kind.as_str()) {
            let message = format!("Unsupported entity type {kind}");
            return Err(Refusal::new(ErrorCode::UnsupportedVersion, message));
        }
        let wanted = match (component.match_type, &component._match) {
            (EXACT, Some(name)) => Match::Is(Some(name.to_string())),
            (DEFAULT, None) => Match::Is(None),
            (SPECIFIED, None) => Match::IsThere,
            (EXACT, None) => {
                return Err(invalid(
                    "Request specified MATCH_TYPE_EXACT, but set match string to null.".to_owned(),
                ));
            }
            (DEFAULT | SPECIFIED, Some(_)) => {
                let name = if component.match_type == DEFAULT { "DEFAULT" } else { "SPECIFIED" };
                return Err(invalid(format!(
                    "Request specified MATCH_TYPE_{name}, but also specified a match string."
                )));
            }
            (other, _) => return Err(invalid(format!("Unknown match type {other}"))),
        };
        filter.insert(kind, wanted);
    }
    if filter.contains_key(part::IP) && 1 < filter.len() {
        return Err(invalid(
            "Invalid entity filter component combination. IP filter component should not be used \
             with user or clientId filter component."
                .to_owned(),
        ));
    }
    Ok(filter)
}

fn matches(entity: &QuotaEntity, filter: &Filter, is_strict: bool) -> bool {
    let is_met = |(kind, wanted): (&String, &Match)| match (entity.get(kind), wanted) {
        (None, _) => false,
        (Some(_), Match::IsThere) => true,
        (Some(name), Match::Is(wanted)) => name == wanted,
    };
    filter.iter().all(is_met) && (!is_strict || entity.len() == filter.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(kind: &str, match_type: i8, name: Option<&str>) -> ComponentData {
        ComponentData::default()
            .with_entity_type(text(kind))
            .with_match_type(match_type)
            .with_match(name.map(text))
    }

    fn entity(parts: &[(&str, Option<&str>)]) -> QuotaEntity {
        let owned =
            |(kind, name): &(&str, Option<&str>)| ((*kind).to_owned(), name.map(str::to_owned));
        parts.iter().map(owned).collect()
    }

    #[test]
    fn components_want_their_part_and_strict_filters_no_other() {
        let both = entity(&[("user", Some("u")), ("client-id", None)]);
        let check = |components: &[ComponentData], is_strict, expected| {
            let filter = filter(components).expect("a legal filter");
            assert_eq!(matches(&both, &filter, is_strict), expected, "{filter:?}");
        };
        check(&[], false, true);
        check(&[], true, false);
        check(&[component("user", EXACT, Some("u"))], false, true);
        check(&[component("user", EXACT, Some("u"))], true, false);
        check(&[component("user", EXACT, Some("v"))], false, false);
        check(&[component("user", DEFAULT, None)], false, false);
        check(&[component("client-id", DEFAULT, None)], false, true);
        check(&[component("client-id", SPECIFIED, None)], false, true);
        check(&[component("ip", SPECIFIED, None)], false, false);
    }

    #[test]
    fn filters_that_make_no_sense_are_refused() {
        let code = |components: &[ComponentData]| filter(components).map_err(|it| it.code).err();
        let invalid = Some(ErrorCode::InvalidRequest);
        assert_eq!(code(&[component("", EXACT, Some("u"))]), invalid);
        assert_eq!(code(&[component("zz", EXACT, Some("u"))]), Some(ErrorCode::UnsupportedVersion));
        assert_eq!(code(&[component("user", EXACT, None)]), invalid);
        assert_eq!(code(&[component("user", DEFAULT, Some("u"))]), invalid);
        assert_eq!(code(&[component("user", 7, None)]), invalid);
        let user = component("user", SPECIFIED, None);
        assert_eq!(code(&[user.clone(), user.clone()]), invalid);
        assert_eq!(code(&[user, component("ip", SPECIFIED, None)]), invalid);
    }
}
