//! What records hold: text, or records of Kafka's internal topics.

use super::java;
use crate::format::compact::Reader;
use crate::format::schema::{self, Schema, SchemaError, Topic, Value};
use crate::format::varint;
use crate::units::u64_of;

/// How keys and values are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoder {
    /// Each by itself.
    Plain {
        /// Of keys.
        key: TextDecoder,
        /// Of values.
        value: TextDecoder,
    },
    /// As `__consumer_offsets`.
    Offsets,
    /// As `__transaction_state`.
    Transactions,
    /// As `__cluster_metadata`.
    ClusterMetadata,
    /// As `__share_group_state`.
    ShareState,
}

/// Kafka's decoder classes whose output means something without Java.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TextDecoder {
    /// `StringDecoder`: UTF-8.
    #[default]
    Text,
    /// `IntegerDecoder`: 32 bits, big-endian.
    Integer,
    /// `LongDecoder`: 64 bits, big-endian.
    Long,
}

/// What a record holds.
pub struct Contents {
    /// The key, where there is one.
    pub key: Option<Shown>,
    /// The value, where there is one.
    pub value: Option<Shown>,
}

/// A key or a value.
pub enum Shown {
    /// As text.
    Text(String),
    /// A record of an internal topic.
    Record(Value),
}

impl Shown {
    pub fn write_text(&self, out: &mut String) {
        match self {
            Shown::Text(text) => out.push_str(text),
            Shown::Record(value) => value.write_json(out),
        }
    }

    pub fn to_json(&self) -> Value {
        match self {
            Shown::Text(text) => Value::Text(text.clone()),
            Shown::Record(value) => value.clone(),
        }
    }
}

/// A record of an internal topic that has no key, which ends Kafka's tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "Failed to decode message at offset {0} using the specified decoder (message had a missing key)"
)]
pub struct MissingKey(i64);

impl Decoder {
    /// Reads a record's key and value.
    ///
    /// # Errors
    /// `MissingKey`; whatever else is wrong becomes text.
    pub fn read(
        self,
        offset: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<Contents, MissingKey> {
        match self {
            Decoder::Plain { key: of_key, value: of_value } => Ok(Contents {
                key: key.map(|it| of_key.read(it)),
                value: value.map(|it| of_value.read(it)),
            }),
            Decoder::Offsets => coordinator(&schema::GROUPS, offset, key, value),
            Decoder::Transactions => coordinator(&schema::TRANSACTIONS, offset, key, value),
            Decoder::ShareState => coordinator(&schema::SHARE_STATE, offset, key, value),
            Decoder::ClusterMetadata => {
                let shown = metadata(value.unwrap_or_default()).unwrap_or_else(|why| {
                    Shown::Text(format!("Error at {offset}, skipping. {why}"))
                });
                Ok(Contents { key: None, value: Some(shown) })
            }
        }
    }
}

impl TextDecoder {
    fn read(self, bytes: &[u8]) -> Shown {
        let mut reader = Reader::new(bytes);
        let number = match self {
            TextDecoder::Text => return Shown::Text(java::text(bytes).into_owned()),
            TextDecoder::Integer => reader.i32().map(i64::from),
            TextDecoder::Long => reader.i64(),
        };
        Shown::Text(match number {
            Ok(number) => number.to_string(),
            Err(_) => format!("({} bytes are no number)", bytes.len()),
        })
    }
}

/// Why a record of a coordinator isn't shown.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error("Unknown record type {kind} at offset {offset}, skipping.")]
    Kind { kind: i16, offset: i64 },
    #[error("Error at offset {offset}, skipping. {error}")]
    Record { offset: i64, error: SchemaError },
}

fn coordinator(
    topic: &Topic,
    offset: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Result<Contents, MissingKey> {
    let key = key.ok_or(MissingKey(offset))?;
    Ok(match coordinated(topic, offset, key, value) {
        Ok((key, value)) => Contents { key: Some(key), value: Some(value) },
        Err(why) => Contents { key: Some(Shown::Text(why.to_string())), value: None },
    })
}

fn coordinated(
    topic: &Topic,
    offset: i64,
    key: &[u8],
    value: Option<&[u8]>,
) -> Result<(Shown, Shown), Unreadable> {
    let at = |error: SchemaError| Unreadable::Record { offset, error };
    let mut reader = Reader::new(key);
    let kind = reader.i16().map_err(|it| at(it.into()))?;
    let (Some(of_key), Some(of_value)) = (topic.keys.get(&kind), topic.values.get(&kind)) else {
        return Err(Unreadable::Kind { kind, offset });
    };
    let data = of_key.decode_front(0, &mut reader).map_err(at)?;
    let shown_key = Value::Struct(vec![("type", Value::Text(kind.to_string())), ("data", data)]);
    let Some(value) = value else {
        return Ok((Shown::Record(shown_key), Shown::Text("<DELETE>".to_owned())));
    };
    let mut reader = Reader::new(value);
    let version = reader.i16().map_err(|it| at(it.into()))?;
    let mut data = of_value.decode_front(version, &mut reader).map_err(at)?;
    if of_value.name == "GROUP_METADATA" {
        unfold_members(&mut data);
    }
    let shown_value =
        Value::Struct(vec![("version", Value::Text(version.to_string())), ("data", data)]);
    Ok((Shown::Record(shown_key), Shown::Record(shown_value)))
}

/// What members of a consumer group asked for and got: bytes to the coordinator, and known here.
fn unfold_members(group: &mut Value) {
    let is_consumer =
        matches!(group.get("protocolType"), Some(Value::Text(it)) if it == "consumer");
    let Some(Value::List(members)) = group.get_mut("members") else { return };
    if !is_consumer {
        return;
    }
    for member in members {
        for (number, name) in [(0, "subscription"), (1, "assignment")] {
            let Some(field) = member.get_mut(name) else { continue };
            let Value::Bytes(bytes) = &*field else { continue };
            // What isn't what it should be stays as it is.
            if let Some(value) = unfold(&schema::CONSUMER.values[&number], bytes) {
                *field = value;
            }
        }
    }
}

fn unfold(schema: &Schema, bytes: &[u8]) -> Option<Value> {
    let mut reader = Reader::new(bytes);
    let version = reader.i16().ok()?;
    schema.decode_front(version, &mut reader).ok()
}

/// Why a metadata record isn't shown.
#[derive(Debug, thiserror::Error)]
enum MetadataFault {
    #[error("frame version {0} is not 1")]
    Frame(u32),
    #[error("unknown metadata record type {0}")]
    Kind(u32),
    #[error(transparent)]
    Record(#[from] SchemaError),
    #[error("the record's head: {0}")]
    Head(#[from] varint::VarintError),
    #[error("{0} bytes behind the record")]
    Surplus(u64),
}

/// Frame version, type and version, each an unsigned varint, and the record.
fn metadata(mut bytes: &[u8]) -> Result<Shown, MetadataFault> {
    let frame = varint::take_u32(&mut bytes)?;
    if frame != 1 {
        return Err(MetadataFault::Frame(frame));
    }
    let kind = varint::take_u32(&mut bytes)?;
    let version = i16::try_from(varint::take_u32(&mut bytes)?).unwrap_or(i16::MAX);
    let known = i16::try_from(kind).ok().and_then(|it| schema::METADATA.values.get(&it));
    let schema = known.ok_or(MetadataFault::Kind(kind))?;
    let mut reader = Reader::new(bytes);
    let data = schema.decode_front(version, &mut reader)?;
    if reader.left() != 0 {
        return Err(MetadataFault::Surplus(u64_of(reader.left())));
    }
    Ok(Shown::Record(Value::Struct(vec![
        ("type", Value::Text(schema.name.to_owned())),
        ("version", Value::Number(version.into())),
        ("data", data),
    ])))
}
