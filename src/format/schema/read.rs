//! Records taken apart by their field lists.

use super::{Field, Kind, Schema, SchemaError, Value};
use crate::format::compact::{CompactError, Reader};
use crate::format::{id, java_text};
use crate::units::{u64_of, usize_of};

/// Kafka's generated code takes no longer strings in either encoding.
const TEXT_BYTES_MAX: usize = 0x7fff;

impl Schema {
    /// Reads the record that `bytes` hold, from first to last. Tagged fields that have their
    /// default are left out, as Kafka's tools do; tags that are not known are passed over.
    ///
    /// # Errors
    /// [`SchemaError`].
    pub fn decode(&self, version: i16, bytes: &[u8]) -> Result<Value, SchemaError> {
        let mut reader = Reader::new(bytes);
        let value = self.decode_front(version, &mut reader)?;
        reader.end()?;
        Ok(value)
    }

    /// The same for a record at the front of bytes: whatever is behind it is left.
    ///
    /// # Errors
    /// [`SchemaError`].
    pub fn decode_front(
        &self,
        version: i16,
        reader: &mut Reader<'_>,
    ) -> Result<Value, SchemaError> {
        if !self.versions.contains(version) {
            return Err(SchemaError::Version { record: self.name, version });
        }
        let encoding = Encoding { version, is_flexible: self.flexible.contains(version) };
        encoding.fields(&self.fields, reader)
    }
}

#[derive(Clone, Copy)]
struct Encoding {
    version: i16,
    is_flexible: bool,
}

impl Encoding {
    fn fields(self, fields: &[Field], reader: &mut Reader<'_>) -> Result<Value, SchemaError> {
        let mut values: Vec<Option<Value>> = vec![None; fields.len()];
        for (field, value) in fields.iter().zip(&mut values) {
            if field.versions.contains(self.version) && field.tag_in(self.version).is_none() {
                *value = Some(self.field(field, reader)?);
            }
        }
        if self.is_flexible {
            self.tagged(fields, &mut values, reader)?;
        }
        let named = fields.iter().zip(values);
        Ok(Value::Struct(named.filter_map(|(it, value)| Some((it.name, value?))).collect()))
    }

    /// As Kafka's generated code goes through them: in any order, the last one of a tag counts, and
    /// of a known one the size is not looked at.
    fn tagged(
        self,
        fields: &[Field],
        values: &mut [Option<Value>],
        reader: &mut Reader<'_>,
    ) -> Result<(), SchemaError> {
        for _ in 0..reader.uvarint()? {
            let (tag, size) = (reader.uvarint()?, reader.uvarint()?);
            match fields.iter().position(|it| it.tag_in(self.version) == Some(tag)) {
                Some(at) => {
                    let value = self.field(&fields[at], reader)?;
                    values[at] = fields[at].unless_default(value);
                }
                None => drop(reader.take(usize_of(size.into()))?),
            }
        }
        Ok(())
    }

    fn field(self, field: &Field, reader: &mut Reader<'_>) -> Result<Value, SchemaError> {
        let is_nullable = field.nullable.contains(self.version);
        self.value(&field.kind, is_nullable, reader).map_err(|error| match error {
            SchemaError::Bytes(error) => SchemaError::Field { field: field.name, error },
            other => other,
        })
    }

    fn value(
        self,
        kind: &Kind,
        is_nullable: bool,
        reader: &mut Reader<'_>,
    ) -> Result<Value, SchemaError> {
        let value = match kind {
            Kind::Bool => Value::Bool(reader.i8()? != 0),
            Kind::Int8 => Value::Number(reader.i8()?.into()),
            Kind::Int16 => Value::Number(reader.i16()?.into()),
            Kind::Int32 => Value::Number(reader.i32()?.into()),
            Kind::Int64 => Value::Number(reader.i64()?),
            Kind::Uint16 => Value::Number(u16::from_be_bytes(reader.array()?).into()),
            Kind::Float64 => Value::Float(f64::from_be_bytes(reader.array()?)),
            Kind::Uuid => Value::Text(id::encode(reader.array()?)),
            Kind::String => match self.text_length(reader)? {
                Some(length) => Value::Text(java_text::text(reader.take(length)?).into_owned()),
                None => null(is_nullable)?,
            },
            Kind::Bytes => match self.length(reader)? {
                Some(length) => Value::Bytes(reader.take(length)?.to_vec()),
                None => null(is_nullable)?,
            },
            Kind::Array(item) => match self.length(reader)? {
                Some(length) => self.items(item, length, reader)?,
                None => null(is_nullable)?,
            },
            // A struct that may be null says first whether it is there: 1, or -1 in line and 0
            // under a tag.
            Kind::Struct(_) if is_nullable && reader.i8()? <= 0 => Value::Null,
            Kind::Struct(fields) => self.fields(fields, reader)?,
        };
        Ok(value)
    }

    fn items(
        self,
        item: &Kind,
        length: usize,
        reader: &mut Reader<'_>,
    ) -> Result<Value, SchemaError> {
        if reader.left() < length {
            let (announced, left) = (u64_of(length), u64_of(reader.left()));
            return Err(CompactError::Items { announced, left }.into());
        }
        let mut items = Vec::new();
        for _ in 0..length {
            let before = reader.left();
            items.push(self.value(item, false, reader)?);
            if reader.left() == before {
                // An item without a byte can be announced two thousand million times.
                return Err(CompactError::Truncated.into());
            }
        }
        Ok(Value::List(items))
    }

    fn text_length(self, reader: &mut Reader<'_>) -> Result<Option<usize>, CompactError> {
        let length = if self.is_flexible { compact(reader) } else { plain(reader.i16()?.into()) };
        match length? {
            Some(long) if TEXT_BYTES_MAX < long => Err(CompactError::LongText(u64_of(long))),
            length => Ok(length),
        }
    }

    fn length(self, reader: &mut Reader<'_>) -> Result<Option<usize>, CompactError> {
        if self.is_flexible { compact(reader) } else { plain(reader.i32()?) }
    }
}

fn compact(reader: &mut Reader<'_>) -> Result<Option<usize>, CompactError> {
    let length = reader.uvarint()?.checked_sub(1);
    Ok(length.map(|length| usize_of(u64::from(length))))
}

fn plain(length: i32) -> Result<Option<usize>, CompactError> {
    Ok(usize::try_from(length).ok())
}

fn null(is_nullable: bool) -> Result<Value, CompactError> {
    if is_nullable { Ok(Value::Null) } else { Err(CompactError::Null) }
}

impl Field {
    /// `None` for the default of the field, which goes without saying in a tagged one.
    fn unless_default(&self, value: Value) -> Option<Value> {
        let is_default = match (&value, self.default) {
            (Value::Null, default) => default == Some("null"),
            (_, Some("null")) => false,
            (Value::Number(number), default) => {
                let default = default.map_or(Ok(0), str::parse);
                *number == default.expect("the default of a number is one")
            }
            (Value::Bool(it), default) => *it == (default == Some("true")),
            (Value::Text(text), default) if self.kind == Kind::Uuid => {
                default.is_none() && *text == id::encode([0; 16])
            }
            (Value::Text(text), default) => text.as_str() == default.unwrap_or_default(),
            (Value::List(items), _) => items.is_empty(),
            (Value::Bytes(bytes), _) => bytes.is_empty(),
            (Value::Float(_) | Value::Struct(_), _) => false,
        };
        (!is_default).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{CONSUMER, GROUPS, METADATA, TRANSACTIONS};

    #[test]
    fn tagged_fields_come_in_the_order_of_the_list_and_defaults_not_at_all() {
        // partitionId, topicId, then isr (tag 0) and leader (tag 1) with its default.
        let mut bytes = vec![0, 0, 0, 7];
        bytes.extend_from_slice(&[0; 16]);
        bytes.extend_from_slice(&[2, 0, 5, 2, 0, 0, 0, 1, 1, 4, 0xff, 0xff, 0xff, 0xfe]);
        let value = METADATA.values[&5].decode(0, &bytes).expect("a change");
        let zero = "AAAAAAAAAAAAAAAAAAAAAA";
        let expected = format!(r#"{{"partitionId":7,"topicId":"{zero}","isr":[1]}}"#);
        assert_eq!(value.to_json(), expected);
        // The same with the tags the other way round, an unknown one between, a wrong size.
        bytes.truncate(20);
        bytes.extend_from_slice(&[3, 1, 4, 0xff, 0xff, 0xff, 0xfe, 9, 2, 7, 7]);
        bytes.extend_from_slice(&[0, 99, 2, 0, 0, 0, 1]);
        let value = METADATA.values[&5].decode(0, &bytes).expect("a change");
        assert_eq!(value.to_json(), expected);
    }

    #[test]
    fn plain_encodings_have_lengths_of_fixed_width() {
        let bytes = [0, 1, b'g', 0, 2, b't', b'u', 0, 0, 0, 3];
        let value = GROUPS.keys[&1].decode(0, &bytes).expect("a key");
        assert_eq!(value.to_json(), r#"{"group":"g","topic":"tu","partition":3}"#);
        let bytes = [0, 0, 0, 1, 0, 1, b't', 0xff, 0xff, 0xff, 0xff];
        let value = CONSUMER.values[&0].decode(0, &bytes).expect("a subscription");
        assert_eq!(value.to_json(), r#"{"topics":["t"],"userData":null}"#);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let schema = &TRANSACTIONS.keys[&0];
        let error = schema.decode(0, &[0, 9, b'x']).expect_err("too short");
        assert_eq!(
            error.to_string(),
            "field transactionalId: a field announces 9 items or bytes with 1 bytes left"
        );
        let error = schema.decode(3, &[]).expect_err("no such version");
        assert_eq!(error.to_string(), "TRANSACTION_LOG has no version 3 here");
        let error = schema.decode(0, &[0, 0, 1]).expect_err("one byte more");
        assert_eq!(error.to_string(), "1 bytes are left over");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for topic in [&METADATA, &GROUPS, &TRANSACTIONS, &CONSUMER] {
                for schema in topic.keys.values().chain(topic.values.values()) {
                    for version in 0..=4 {
                        let _ = schema.decode(version, &bytes);
                    }
                }
            }
        }
    }
}
