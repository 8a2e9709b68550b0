//! What records hold: text, or records of Kafka's internal topics.

use super::java;
use super::remote::{self, RemoteFault};
use crate::format::compact::{CompactError, Reader};
use crate::format::schema::{self, Schema, SchemaError, Topic, Value};
use crate::format::varint;

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
    /// As `__remote_log_metadata`.
    RemoteLog,
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

/// What ends Kafka's tool in the middle of a line, behind what the record says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ContentsFault {
    /// A record of an internal topic has none.
    #[error(
        "Failed to decode message at offset {0} using the specified decoder (message had a \
         missing key)"
    )]
    MissingKey(i64),
    /// `IntegerDecoder` and `LongDecoder` want 4 and 8 bytes at least.
    #[error("the key or value at offset {offset} has {bytes} bytes, too few for a number")]
    NoNumber {
        /// The record's.
        offset: i64,
        /// As many as there are.
        bytes: usize,
    },
}

impl Decoder {
    /// What stands for a record whose key or value goes beyond it, where that doesn't end Kafka's
    /// tool.
    pub fn unread(self, offset: i64, error: &CompactError) -> Option<Contents> {
        let (Decoder::Offsets | Decoder::Transactions | Decoder::ShareState) = self else {
            return None;
        };
        let CompactError::Length { announced, left } = error else { return None };
        let told = format!(
            "Error at offset {offset}, skipping. newLimit > capacity: ({announced} > {left})"
        );
        Some(Contents { key: Some(Shown::Text(told)), value: None })
    }

    /// Reads a record's key and value.
    ///
    /// # Errors
    /// `ContentsFault`; whatever else is wrong becomes text.
    pub fn read(
        self,
        offset: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<Contents, ContentsFault> {
        match self {
            Decoder::Plain { key: of_key, value: of_value } => Ok(Contents {
                key: key.map(|it| of_key.read(offset, it)).transpose()?,
                value: value.map(|it| of_value.read(offset, it)).transpose()?,
            }),
            Decoder::Offsets => coordinator(&schema::GROUPS, offset, key, value),
            Decoder::Transactions => coordinator(&schema::TRANSACTIONS, offset, key, value),
            Decoder::ShareState => coordinator(&schema::SHARE_STATE, offset, key, value),
            Decoder::ClusterMetadata => Ok(framed(metadata(value), offset, "Error at")),
            Decoder::RemoteLog => Ok(framed(remote_log(value), offset, "Error at offset")),
        }
    }
}

impl TextDecoder {
    fn read(self, offset: i64, bytes: &[u8]) -> Result<Shown, ContentsFault> {
        let mut reader = Reader::new(bytes);
        let number = match self {
            TextDecoder::Text => return Ok(Shown::Text(java::text(bytes).into_owned())),
            TextDecoder::Integer => reader.i32().map(i64::from),
            TextDecoder::Long => reader.i64(),
        };
        let none = |_| ContentsFault::NoNumber { offset, bytes: bytes.len() };
        number.map(|it| Shown::Text(it.to_string())).map_err(none)
    }
}

/// Why a record of a coordinator isn't shown.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error("Unknown record type {kind} at offset {offset}, skipping.")]
    Kind { kind: i16, offset: i64 },
    #[error("Error at offset {offset}, skipping. Could not read version from {part}'s buffer.")]
    Short { offset: i64, part: &'static str },
    #[error(
        "Error at offset {offset}, skipping. Found an unknown record version {version} for \
         {kind} type"
    )]
    Version { offset: i64, version: i16, kind: i16 },
    #[error(
        "Error at offset {offset}, skipping. Could not read record with version {version} from \
         {part}'s buffer due to: {}.",
        java::reason(error)
    )]
    Record { offset: i64, version: i16, part: &'static str, error: SchemaError },
}

fn coordinator(
    topic: &Topic,
    offset: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Result<Contents, ContentsFault> {
    let key = key.ok_or(ContentsFault::MissingKey(offset))?;
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
    let mut reader = Reader::new(key);
    let kind = reader.i16().map_err(|_| Unreadable::Short { offset, part: "key" })?;
    let (Some(of_key), Some(of_value)) = (topic.keys.get(&kind), topic.values.get(&kind)) else {
        return Err(Unreadable::Kind { kind, offset });
    };
    let data = of_key.decode_front(0, &mut reader).map_err(|error| Unreadable::Record {
        offset,
        version: kind,
        part: "key",
        error,
    })?;
    let shown_key = Value::Struct(vec![("type", Value::Text(kind.to_string())), ("data", data)]);
    let Some(value) = value else {
        return Ok((Shown::Record(shown_key), Shown::Text("<DELETE>".to_owned())));
    };
    let mut reader = Reader::new(value);
    let version = reader.i16().map_err(|_| Unreadable::Short { offset, part: "value" })?;
    let mut data = of_value.decode_front(version, &mut reader).map_err(|error| match error {
        SchemaError::Version { version, .. } => Unreadable::Version { offset, version, kind },
        error => Unreadable::Record { offset, version, part: "value", error },
    })?;
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

/// Why a metadata record isn't shown, as `AbstractApiMessageSerde` says it.
#[derive(Debug, thiserror::Error)]
enum MetadataFault {
    #[error("Error while reading {0}")]
    Head(&'static str),
    #[error("Value for {0} was too large.")]
    Large(&'static str),
    #[error(
        "Could not deserialize metadata record with frame version 0. Note that upgrades from the \
         preview release of KRaft in 2.8 to newer versions are not supported."
    )]
    Preview,
    #[error(
        "Could not deserialize metadata record due to unknown frame version {0}(only frame \
         version 1 is supported)"
    )]
    Frame(i16),
    #[error("org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {0}")]
    Kind(i16),
    #[error("Failed to deserialize record with type {0}")]
    Record(i16),
    #[error("Found {bytes} byte(s) of garbage after {kind}")]
    Surplus { bytes: usize, kind: i16 },
    /// As Java says it.
    #[error(
        "Cannot invoke \"java.nio.ByteBuffer.remaining()\" because the return value of \
         \"org.apache.kafka.common.record.internal.Record.value()\" is null"
    )]
    NoValue,
    #[error(transparent)]
    Remote(#[from] RemoteFault),
}

/// A record without a key, or why it isn't shown.
fn framed(read: Result<Shown, MetadataFault>, offset: i64, error_at: &str) -> Contents {
    let told = |why| Shown::Text(format!("{error_at} {offset}, skipping. {why}"));
    Contents { key: None, value: Some(read.unwrap_or_else(told)) }
}

fn metadata(value: Option<&[u8]>) -> Result<Shown, MetadataFault> {
    let (kind, version, data) = frame(&schema::METADATA, value.unwrap_or_default())?;
    Ok(Shown::Record(Value::Struct(vec![
        ("type", Value::Text(schema::METADATA.values[&kind].name.to_owned())),
        ("version", Value::Number(version.into())),
        ("data", data),
    ])))
}

fn remote_log(value: Option<&[u8]>) -> Result<Shown, MetadataFault> {
    let (kind, _, data) = frame(&schema::REMOTE_LOG, value.ok_or(MetadataFault::NoValue)?)?;
    Ok(Shown::Text(remote::text(kind, &data)?))
}

/// Frame version, type and version, each an unsigned varint, and the record. Says type and version.
fn frame(topic: &Topic, mut bytes: &[u8]) -> Result<(i16, i16, Value), MetadataFault> {
    match short(&mut bytes, "frame version")? {
        0 => return Err(MetadataFault::Preview),
        1 => {}
        other => return Err(MetadataFault::Frame(other)),
    }
    let kind = short(&mut bytes, "type")?;
    let version = short(&mut bytes, "version")?;
    let schema = topic.values.get(&kind).ok_or(MetadataFault::Kind(kind))?;
    let mut reader = Reader::new(bytes);
    let data = schema.decode_front(version, &mut reader);
    let data = data.map_err(|_| MetadataFault::Record(kind))?;
    if reader.left() != 0 {
        return Err(MetadataFault::Surplus { bytes: reader.left(), kind });
    }
    Ok((kind, version, data))
}

/// A number of the record's head. Java reads it as signed, and cuts off what is negative.
fn short(bytes: &mut &[u8], what: &'static str) -> Result<i16, MetadataFault> {
    let number = varint::take_u32(bytes).map_err(|_| MetadataFault::Head(what))?.cast_signed();
    if i32::from(i16::MAX) < number {
        return Err(MetadataFault::Large(what));
    }
    let [.., high, low] = number.to_be_bytes();
    Ok(i16::from_be_bytes([high, low]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(decoder: Decoder, key: &[u8], value: &[u8]) -> String {
        let contents = decoder.read(7, Some(key), Some(value)).expect("shown");
        let mut text = String::new();
        contents.key.or(contents.value).expect("one of them").write_text(&mut text);
        text
    }

    #[test]
    fn what_is_no_record_is_told_in_the_words_of_kafka() {
        let of_key = |key: &[u8]| shown(Decoder::Offsets, key, b"");
        let prefix = "Error at offset 7, skipping. Could not read";
        assert_eq!(of_key(b"k"), format!("{prefix} version from key's buffer."));
        let head = format!("{prefix} record with version 1 from key's buffer due to: ");
        assert_eq!(of_key(&[0, 1, 0]), format!("{head}null."));
        assert_eq!(
            of_key(&[0, 1, 0, 9, b'g']),
            format!("{head}Error reading byte array of 9 byte(s): only 1 byte(s) available.")
        );
        assert_eq!(
            of_key(&[0, 1, 0xff, 0xff]),
            format!("{head}non-nullable field group was serialized as null.")
        );
        assert_eq!(of_key(&[0x7f, 0]), "Unknown record type 32512 at offset 7, skipping.");
        let key = [0, 1, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 0];
        assert_eq!(
            shown(Decoder::Offsets, &key, &[0, 99]),
            "Error at offset 7, skipping. Found an unknown record version 99 for 1 type"
        );
    }

    #[test]
    fn text_that_is_no_utf_8_is_replaced_in_records_too() {
        let key = [0, 1, 0, 2, b'g', 0xff, 0, 1, b't', 0, 0, 0, 3];
        let expected =
            "{\"type\":\"1\",\"data\":{\"group\":\"g\u{fffd}\",\"topic\":\"t\",\"partition\":3}}";
        let value = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(shown(Decoder::Offsets, &key, &value), expected);
    }

    #[test]
    fn remote_log_metadata_is_shown_as_kafka_shows_it() {
        let id = [0; 16];
        let record = [&[1, 2, 0, 2, b't'][..], &id, &[0, 0, 0, 7, 0, 0, 0, 1], &[0; 8], &[2, 0]];
        let mut record = record.concat();
        let expected = "RemotePartitionDeleteMetadata{topicPartition=AAAAAAAAAAAAAAAAAAAAAA:t-7, \
                        state=DELETE_PARTITION_FINISHED, eventTimestampMs=0, brokerId=1}";
        // The partition's own tagged fields stand behind its number.
        record.insert(25, 0);
        assert_eq!(shown(Decoder::RemoteLog, b"", &record), expected);
        let at = record.len() - 2;
        record[at] = 9;
        assert_eq!(shown(Decoder::RemoteLog, b"", &record), "Error at offset 7, skipping. null");
    }

    #[test]
    fn what_is_no_metadata_is_told_in_the_words_of_kafka() {
        for (value, expected) in [
            (&b""[..], "Error while reading frame version"),
            (
                b"o",
                "Could not deserialize metadata record due to unknown frame version 111(only \
                    frame version 1 is supported)",
            ),
            (&[1, 0xff, 0xff, 0x7f], "Value for type was too large."),
            (
                &[1, 99, 0],
                "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown \
                           metadata id 99",
            ),
            (&[1, 2, 0, 9], "Failed to deserialize record with type 2"),
        ] {
            let text = shown(Decoder::ClusterMetadata, b"", value);
            assert_eq!(text, format!("Error at 7, skipping. {expected}"));
        }
    }
}
