//! Records of `__consumer_offsets`, as Kafka 4.3.1 writes them (`GroupCoordinatorRecordHelpers`),
//! and as it and older ones have written them.
//!
//! ```text
//! key    type i16, fields in the plain encoding (a string has its length as i16)
//! value  version i16, fields: plain, or flexible as the schema of that version says
//! ```
//!
//! Versions written: 4 of an offset (1 when a client set its own retention), 3 of a classic group,
//! 0 of everything else.

mod classic;
mod consumer;
mod offset;

pub use classic::{GroupMetadata, MemberMetadata};
pub use consumer::{
    ClassicMember, CurrentAssignment, ModernMember, RegularExpression, TargetEpoch, TopicPartitions,
};
pub(crate) use consumer::{decode_group, decode_target, encode_group, encode_target};
pub use offset::CommittedOffset;

use super::compact::{CompactError, Reader};
use super::schema::SchemaError;

/// What a record is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// An offset that a group has committed (types 0 and 1).
    Offset {
        /// The group.
        group: String,
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// A classic group (type 2).
    Group(String),
    /// Epoch of a group with the consumer protocol (type 3).
    ModernGroup(String),
    /// Its topics, which Kafka has not written since 4.1 (type 4).
    PartitionMetadata(String),
    /// A member of it (type 5).
    Member(String, String),
    /// Epoch of its target assignment (type 6).
    TargetEpoch(String),
    /// What a member is to have (type 7).
    Target(String, String),
    /// What a member has (type 8).
    Current(String, String),
    /// The topics that a regular expression names (type 16).
    RegularExpression(String, String),
}

/// Why bytes are no record that is known here.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// A type of key that a newer Kafka, or a feature that isn't here, has written.
    #[error("records of type {0} are not known")]
    Type(i16),
    /// A version of a value that isn't known.
    #[error("a value of type {key} has the unknown version {version}")]
    Version {
        /// The key's type.
        key: i16,
        /// As found.
        version: i16,
    },
    /// A field is wrong.
    #[error(transparent)]
    Field(#[from] CompactError),
    /// As the schema's reader says.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

impl Key {
    /// The type that begins the key.
    pub fn number(&self) -> i16 {
        match self {
            Key::Offset { .. } => 1,
            Key::Group(_) => 2,
            Key::ModernGroup(_) => 3,
            Key::PartitionMetadata(_) => 4,
            Key::Member(..) => 5,
            Key::TargetEpoch(_) => 6,
            Key::Target(..) => 7,
            Key::Current(..) => 8,
            Key::RegularExpression(..) => 16,
        }
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.number().to_be_bytes().to_vec();
        match self {
            Key::Offset { group, topic, partition } => {
                put_text(&mut out, group);
                put_text(&mut out, topic);
                out.extend_from_slice(&partition.to_be_bytes());
            }
            Key::Group(group)
            | Key::ModernGroup(group)
            | Key::PartitionMetadata(group)
            | Key::TargetEpoch(group) => put_text(&mut out, group),
            Key::Member(group, other)
            | Key::Target(group, other)
            | Key::Current(group, other)
            | Key::RegularExpression(group, other) => {
                put_text(&mut out, group);
                put_text(&mut out, other);
            }
        }
        out
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decode(bytes: &[u8]) -> Result<Key, RecordError> {
        let mut reader = Reader::new(bytes);
        let number = reader.i16()?;
        let group = |reader: &mut Reader<'_>| reader.plain_string().map(str::to_owned);
        let pair =
            |reader: &mut Reader<'_>| Ok::<_, CompactError>((group(reader)?, group(reader)?));
        let key = match number {
            0 | 1 => Key::Offset {
                group: group(&mut reader)?,
                topic: group(&mut reader)?,
                partition: reader.i32()?,
            },
            2 => Key::Group(group(&mut reader)?),
            3 => Key::ModernGroup(group(&mut reader)?),
            4 => Key::PartitionMetadata(group(&mut reader)?),
            5 => pair(&mut reader).map(|(group, member)| Key::Member(group, member))?,
            6 => Key::TargetEpoch(group(&mut reader)?),
            7 => pair(&mut reader).map(|(group, member)| Key::Target(group, member))?,
            8 => pair(&mut reader).map(|(group, member)| Key::Current(group, member))?,
            16 => pair(&mut reader).map(|(group, text)| Key::RegularExpression(group, text))?,
            other => return Err(RecordError::Type(other)),
        };
        reader.end()?;
        Ok(key)
    }
}

/// Longest string of the plain encoding; callers hold names against it.
pub const TEXT_BYTES_MAX: usize = 32_767;

fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = i16::try_from(text.len()).expect("names are held against TEXT_BYTES_MAX");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_nullable_text(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => put_text(out, text),
        None => out.extend_from_slice(&(-1_i16).to_be_bytes()),
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = i32::try_from(bytes.len()).expect("a field is shorter than 2^31 bytes");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}

fn bytes<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], CompactError> {
    let length = usize::try_from(reader.i32()?).map_err(|_| CompactError::Null)?;
    reader.take(length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_come_back_as_written() {
        let (group, other) = ("g".to_owned(), "other".to_owned());
        for key in [
            Key::Offset { group: group.clone(), topic: other.clone(), partition: 7 },
            Key::Group(group.clone()),
            Key::ModernGroup(group.clone()),
            Key::PartitionMetadata(group.clone()),
            Key::Member(group.clone(), other.clone()),
            Key::TargetEpoch(group.clone()),
            Key::Target(group.clone(), other.clone()),
            Key::Current(group.clone(), other.clone()),
            Key::RegularExpression(group, other),
        ] {
            assert_eq!(Key::decode(&key.encode()), Ok(key));
        }
    }

    #[test]
    fn a_key_of_an_offset_is_kafkas() {
        let key = Key::Offset { group: "g".to_owned(), topic: "tu".to_owned(), partition: 3 };
        let expected = [0, 1, 0, 1, b'g', 0, 2, b't', b'u', 0, 0, 0, 3];
        assert_eq!(key.encode(), expected);
        assert_eq!(Key::decode(&[0, 11, 0, 1, b'g']), Err(RecordError::Type(11)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = Key::decode(&bytes);
            let _ = CommittedOffset::decode(&bytes);
            let _ = GroupMetadata::decode(&bytes);
            let _ = ModernMember::decode(&bytes);
            let _ = CurrentAssignment::decode(&bytes);
            let _ = TargetEpoch::decode(&bytes);
            let _ = consumer::decode_target(&bytes);
            let _ = RegularExpression::decode(&bytes);
        }
    }
}
