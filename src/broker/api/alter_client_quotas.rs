//! AlterClientQuotas (49), versions 0 and 1: quotas are set and removed.
//!
//! - Kept in the metadata log. Byte rates of producers and consumers are enforced; the others are
//!   kept alone.
//! - An entity is a user, a client id, both, or an address; null is the default.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::messages::alter_client_quotas_request::{
    AlterClientQuotasRequest, EntityData as EntityAsked, EntryData, OpData,
};
use kafka_protocol::messages::alter_client_quotas_response::{
    AlterClientQuotasResponse, EntityData, EntryData as EntryAnswer,
};

use crate::broker::api::text;
use crate::broker::errors::Refusal;
use crate::broker::image::Image;
use crate::broker::mail::Decide;
use crate::broker::node::Node;
use crate::broker::quota::{CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, part};
use crate::broker::settings::QUOTAS_MAX;
use crate::format::kraft::MetadataRecord;
use crate::format::kraft_users::{QuotaEntity, QuotaRecord, QuotaValue};
use crate::wire::error::ErrorCode;

/// Longest name of an entity.
const NAME_BYTES_MAX: usize = 1024;

/// Answers a request.
pub async fn answer(node: &Node, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse {
    node.served().await;
    let mut seen: BTreeSet<QuotaEntity> = BTreeSet::new();
    let mut changes: Vec<Decide> = Vec::new();
    let mut checked = Vec::with_capacity(request.entries.len());
    for entry in &request.entries {
        let outcome = check(entry).and_then(|change| {
            if !seen.insert(change.entity.clone()) {
                let message = format!("Ignoring duplicate entity {:?}", change.entity);
                return Err(Refusal::new(ErrorCode::InvalidRequest, message));
            }
            Ok(change)
        });
        checked.push(outcome.map(|change| {
            changes.push(Box::new(move |image: &Image| decide(image, &change)));
        }));
    }
    let mut outcomes = node.change(changes, request.validate_only).await.into_iter();
    let entries = request.entries.iter().zip(checked).map(|(entry, checked)| {
        let outcome = checked.and_then(|()| outcomes.next().expect("every change is answered"));
        let parts = entry.entity.iter().map(|part| {
            EntityData::default()
                .with_entity_type(part.entity_type.clone())
                .with_entity_name(part.entity_name.clone())
        });
        let answer = EntryAnswer::default().with_entity(parts.collect());
        match outcome {
            Ok(()) => answer.with_error_message(None),
            Err(refusal) => answer
                .with_error_code(refusal.code.to_wire())
                .with_error_message(Some(text(&refusal.message))),
        }
    });
    AlterClientQuotasResponse::default().with_entries(entries.collect())
}

/// A change of one entity's quotas.
struct Change {
    entity: QuotaEntity,
    quotas: BTreeMap<String, Option<f64>>,
}

/// What kind of number a quota is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    Int,
    Long,
    Double,
}

/// Quotas of users and clients (`QuotaConfig#userAndClientQuotaConfigs`).
const OF_CLIENTS: &[(&str, Number)] = &[
    (PRODUCER_BYTE_RATE, Number::Long),
    (CONSUMER_BYTE_RATE, Number::Long),
    ("request_percentage", Number::Double),
    ("controller_mutation_rate", Number::Double),
];

/// Quotas of addresses.
const OF_ADDRESSES: &[(&str, Number)] = &[("connection_creation_rate", Number::Int)];

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new(ErrorCode::InvalidRequest, message)
}

fn check(entry: &EntryData) -> Result<Change, Refusal> {
    let entity = entity(entry)?;
    let has_ip = entity.contains_key(part::IP);
    if has_ip && 1 < entity.len() {
        return Err(invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or \
             ClientId",
        ));
    }
    if let Some(Some(address)) = entity.get(part::IP)
        && address.parse::<std::net::IpAddr>().is_err()
    {
        return Err(invalid(format!("{address} is not a valid IP or resolvable host.")));
    }
    let known = if has_ip { OF_ADDRESSES } else { OF_CLIENTS };
    let mut quotas = BTreeMap::new();
    for operation in &entry.ops {
        let value = value(known, operation)?;
        if quotas.insert(operation.key.to_string(), value).is_some() {
            return Err(invalid(format!("Duplicate quota key {}", operation.key.as_str())));
        }
    }
    Ok(Change { entity, quotas })
}

fn entity(entry: &EntryData) -> Result<QuotaEntity, Refusal> {
    let mut entity = QuotaEntity::new();
    for EntityPart { kind, name } in entry.entity.iter().map(EntityPart::of) {
        if ![part::USER, part::CLIENT_ID, part::IP].contains(&kind.as_str()) {
            return Err(invalid(format!("Unhandled client quota entity type: {kind}")));
        }
        if name.as_ref().is_some_and(String::is_empty) {
            return Err(invalid(format!("Empty {kind} not supported")));
        }
        if name.as_ref().is_some_and(|name| NAME_BYTES_MAX < name.len()) {
            return Err(invalid(format!("{kind}: the name is longer than {NAME_BYTES_MAX} bytes")));
        }
        if entity.insert(kind.clone(), name).is_some() {
            return Err(invalid(format!(
                "Invalid client quota entity, duplicate entity entry {kind}"
            )));
        }
    }
    if entity.is_empty() {
        return Err(invalid("Invalid empty client quota entity"));
    }
    Ok(entity)
}

struct EntityPart {
    kind: String,
    name: Option<String>,
}

impl EntityPart {
    fn of(part: &EntityAsked) -> EntityPart {
        let name = part.entity_name.as_ref().map(ToString::to_string);
        EntityPart { kind: part.entity_type.to_string(), name }
    }
}

/// The value that a quota gets; `None` removes it, whatever its name.
fn value(known: &[(&str, Number)], operation: &OpData) -> Result<Option<f64>, Refusal> {
    const TOO_LARGE: &str = "Proposed value for";
    /// Further from a whole number than arithmetic explains.
    const FRACTION_MIN: f64 = 1e-6;
    let (key, value) = (operation.key.as_str(), operation.value);
    if operation.remove {
        return Ok(None);
    }
    let number = known.iter().find(|(name, _)| *name == key).map(|(_, number)| *number);
    let number = number.ok_or_else(|| invalid(format!("Invalid configuration key {key}")))?;
    if value.is_nan() || value <= 0.0 {
        return Err(invalid(format!("Quota {key} must be greater than 0")));
    }
    let (name, most) = match number {
        Number::Int => ("an INT", f64::from(i32::MAX)),
        Number::Long => ("a LONG", 9_223_372_036_854_775_807.0),
        Number::Double => ("a DOUBLE", f64::MAX),
    };
    if most < value {
        return Err(invalid(format!("{TOO_LARGE} {key} is too large for {name}.")));
    }
    if number != Number::Double && FRACTION_MIN < value.fract() {
        return Err(invalid(format!("{key} cannot be a fractional value.")));
    }
    Ok(Some(value))
}

/// Only what changes is written.
fn decide(image: &Image, change: &Change) -> Result<Vec<MetadataRecord>, Refusal> {
    let all = image.settings().quotas();
    let now = all.get(&change.entity);
    if now.is_none() && QUOTAS_MAX <= all.len() {
        let message = format!("{QUOTAS_MAX} entities have quotas, which is the limit");
        return Err(Refusal::new(ErrorCode::PolicyViolation, message));
    }
    let value_now = |key: &String| now.and_then(|quotas| quotas.get(key)).copied();
    let is_changed = |(key, value): &(&String, &Option<f64>)| value_now(key) != **value;
    let record = |(key, value): (&String, &Option<f64>)| {
        MetadataRecord::ClientQuota(QuotaRecord {
            entity: change.entity.clone(),
            key: key.clone(),
            value: value.map(QuotaValue),
        })
    };
    Ok(change.quotas.iter().filter(is_changed).map(record).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::messages::alter_client_quotas_request::EntityData as Part;

    fn entry(parts: &[(&str, Option<&str>)], ops: &[(&str, f64)]) -> EntryData {
        let part = |(kind, name): &(&str, Option<&str>)| {
            Part::default().with_entity_type(text(kind)).with_entity_name(name.map(text))
        };
        let op =
            |(key, value): &(&str, f64)| OpData::default().with_key(text(key)).with_value(*value);
        EntryData::default()
            .with_entity(parts.iter().map(part).collect())
            .with_ops(ops.iter().map(op).collect())
    }

    fn refused(parts: &[(&str, Option<&str>)], ops: &[(&str, f64)]) -> String {
        match check(&entry(parts, ops)) {
            Err(Refusal { code: ErrorCode::InvalidRequest, message }) => message,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("{parts:?} {ops:?} passed"),
        }
    }

    #[test]
    fn refusals_have_kafkas_words() {
        let client = [("client-id", Some("c"))];
        let rate = |value| refused(&client, &[(PRODUCER_BYTE_RATE, value)]);
        assert_eq!(rate(0.0), "Quota producer_byte_rate must be greater than 0");
        assert_eq!(rate(1000.5), "producer_byte_rate cannot be a fractional value.");
        assert_eq!(rate(1e30), "Proposed value for producer_byte_rate is too large for a LONG.");
        assert_eq!(rate(f64::NAN), "Quota producer_byte_rate must be greater than 0");
        assert_eq!(refused(&client, &[("foo", 1.0)]), "Invalid configuration key foo");
        let address = [("ip", Some("1.2.3.4"))];
        assert!(refused(&address, &[(PRODUCER_BYTE_RATE, 1.0)]).contains("Invalid configuration"));
        assert!(refused(&[("ip", Some("no such host"))], &[]).contains("is not a valid IP"));
        assert!(refused(&[("ip", None), ("user", None)], &[]).contains("combination"));
        assert!(refused(&[("zz", None)], &[]).contains("Unhandled client quota entity type: zz"));
        assert!(refused(&[("user", Some(""))], &[]).contains("Empty user"));
        assert!(refused(&[], &[]).contains("empty client quota entity"));
        let twice = [(PRODUCER_BYTE_RATE, 1.0), (PRODUCER_BYTE_RATE, 2.0)];
        assert!(refused(&client, &twice).contains("Duplicate quota key"));
    }

    #[test]
    fn only_what_changes_is_written() {
        let mut image = Image::default();
        let entry = entry(&[("user", None)], &[(CONSUMER_BYTE_RATE, 5.0)]);
        let change = check(&entry).map_err(|refusal| refusal.message).expect("legal");
        let records = decide(&image, &change).expect("legal");
        assert_eq!(records.len(), 1);
        image.apply(&records[0]).expect("it was decided on this image");
        assert_eq!(decide(&image, &change), Ok(Vec::new()));
    }
}
