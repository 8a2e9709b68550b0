//! Records that Kafka keeps in its internal topics, read by field lists instead of by a struct
//! each: whoever wants to show such a record, or only one field of it, needs no more.
//!
//! The lists are text files beside this module. A record begins with what it is, its number, its
//! name, the versions that exist and those with the flexible encoding; its fields follow, indented,
//! in the order in which they are encoded:
//!
//! ```text
//! record 3 PARTITION_RECORD 0-2 flexible 0+
//!   isr []int32 0+                                   name, type, versions that have it
//!   leaderRecoveryState int8 0+ tag 0 0+ default 0   tagged, left out when it has the default
//!   directories []uuid 1+                            an array
//!   endPoints []{} 2+ null 2+                        an array of what is indented below, or null
//!     host string 2+
//! ```

mod read;
mod value;

pub use value::Value;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::format::compact::CompactError;

/// Why bytes are none of the record that they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SchemaError {
    /// No such version is known.
    #[error("{record} has no version {version} here")]
    Version {
        /// The record's name.
        record: &'static str,
        /// As found.
        version: i16,
    },
    /// A field isn't what its type says.
    #[error("field {field}: {error}")]
    Field {
        /// The field's name.
        field: &'static str,
        /// What is wrong with it.
        error: CompactError,
    },
    /// Bytes behind the record, or no record.
    #[error(transparent)]
    Bytes(#[from] CompactError),
}

/// Versions from the first to the last one, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Versions {
    first: i16,
    last: i16,
}

impl Versions {
    const NONE: Versions = Versions { first: 0, last: -1 };

    fn contains(self, version: i16) -> bool {
        (self.first..=self.last).contains(&version)
    }

    fn parse(text: &str) -> Option<Versions> {
        if text == "none" {
            return Some(Versions::NONE);
        }
        if let Some(first) = text.strip_suffix('+') {
            return Some(Versions { first: first.parse().ok()?, last: i16::MAX });
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some(Versions { first: first.parse().ok()?, last: last.parse().ok()? })
    }
}

#[derive(Clone, PartialEq, Debug)]
enum Kind {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint16,
    Float64,
    Uuid,
    String,
    Bytes,
    Struct(Vec<Field>),
    Array(Box<Kind>),
}

#[derive(Clone, PartialEq, Debug)]
struct Field {
    name: &'static str,
    kind: Kind,
    versions: Versions,
    nullable: Versions,
    tag: Option<(u32, Versions)>,
    default: Option<&'static str>,
}

impl Field {
    /// The tag under which the field stands at the end of the struct, if it doesn't stand in line.
    fn tag_in(&self, version: i16) -> Option<u32> {
        self.tag.filter(|(_, versions)| versions.contains(version)).map(|(tag, _)| tag)
    }
}

/// How one record is encoded.
#[derive(Clone, PartialEq, Debug)]
pub struct Schema {
    /// In capitals, as Kafka's tools print the type of a metadata record.
    pub name: &'static str,
    versions: Versions,
    flexible: Versions,
    fields: Vec<Field>,
}

/// Schemas of one kind by their numbers.
pub type Schemas = BTreeMap<i16, Schema>;

/// The records of an internal topic.
#[derive(Debug)]
pub struct Topic {
    /// Schemas of keys; empty where keys are not used.
    pub keys: Schemas,
    /// Schemas of values, under the same numbers.
    pub values: Schemas,
}

/// `__cluster_metadata`.
pub static METADATA: LazyLock<Topic> = LazyLock::new(|| topic(include_str!("metadata.txt")));
/// `__consumer_offsets`.
pub static GROUPS: LazyLock<Topic> = LazyLock::new(|| topic(include_str!("groups.txt")));
/// `__transaction_state`.
pub static TRANSACTIONS: LazyLock<Topic> =
    LazyLock::new(|| topic(include_str!("transactions.txt")));
/// `__share_group_state`.
pub static SHARE_STATE: LazyLock<Topic> = LazyLock::new(|| topic(include_str!("share_state.txt")));
/// `__remote_log_metadata`.
pub static REMOTE_LOG: LazyLock<Topic> = LazyLock::new(|| topic(include_str!("remote_log.txt")));
/// Values of control records, by the type in their key.
pub static CONTROL: LazyLock<Topic> = LazyLock::new(|| topic(include_str!("control.txt")));
/// What members of classic consumer groups write into `subscription` (0) and `assignment` (1).
pub static CONSUMER: LazyLock<Topic> = LazyLock::new(|| topic(include_str!("consumer.txt")));

fn topic(text: &'static str) -> Topic {
    let mut topic = Topic { keys: Schemas::new(), values: Schemas::new() };
    let lines = text.lines().filter(|it| !it.is_empty() && !it.starts_with('#'));
    let mut lines = lines.peekable();
    while let Some(head) = lines.next() {
        let mut body = Vec::new();
        while let Some(line) = lines.next_if(|it| it.starts_with(' ')) {
            body.push(line);
        }
        let (what, number, schema) = schema(head, &body)
            .unwrap_or_else(|| panic!("the field list of `{head}` breaks its own notation"));
        let schemas = if what == "key" { &mut topic.keys } else { &mut topic.values };
        assert!(schemas.insert(number, schema).is_none(), "`{head}` comes twice");
    }
    topic
}

fn schema(head: &'static str, body: &[&'static str]) -> Option<(&'static str, i16, Schema)> {
    let words: Vec<&str> = head.split_whitespace().collect();
    let [what, number, name, versions, "flexible", flexible] = words[..] else { return None };
    let mut rest = body;
    let schema = Schema {
        name,
        versions: Versions::parse(versions)?,
        flexible: Versions::parse(flexible)?,
        fields: fields(&mut rest, 1)?,
    };
    rest.is_empty().then_some((what, number.parse().ok()?, schema))
}

/// The lines that are indented by `depth`, with what is below them.
fn fields(rest: &mut &[&'static str], depth: usize) -> Option<Vec<Field>> {
    let mut found = Vec::new();
    while let [line, others @ ..] = *rest {
        if line.len() - line.trim_start().len() != 2 * depth {
            break;
        }
        *rest = others;
        let mut words = line.split_whitespace();
        let (name, kind) = (words.next()?, words.next()?);
        let mut field = Field {
            name,
            kind: kind_of(kind, rest, depth)?,
            versions: Versions::parse(words.next()?)?,
            nullable: Versions::NONE,
            tag: None,
            default: None,
        };
        while let Some(word) = words.next() {
            let argument = words.next()?;
            match word {
                "null" => field.nullable = Versions::parse(argument)?,
                "tag" => {
                    field.tag = Some((argument.parse().ok()?, Versions::parse(words.next()?)?))
                }
                "default" => field.default = Some(argument),
                _ => return None,
            }
        }
        found.push(field);
    }
    Some(found)
}

fn kind_of(text: &'static str, rest: &mut &[&'static str], depth: usize) -> Option<Kind> {
    if let Some(item) = text.strip_prefix("[]") {
        return Some(Kind::Array(Box::new(kind_of(item, rest, depth)?)));
    }
    Some(match text {
        "bool" => Kind::Bool,
        "int8" => Kind::Int8,
        "int16" => Kind::Int16,
        "int32" => Kind::Int32,
        "int64" => Kind::Int64,
        "uint16" => Kind::Uint16,
        "float64" => Kind::Float64,
        "uuid" => Kind::Uuid,
        "string" => Kind::String,
        "bytes" => Kind::Bytes,
        "{}" => Kind::Struct(fields(rest, depth + 1)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_is_read() {
        for (topic, keys, values) in [
            (&METADATA, 0, 26),
            (&GROUPS, 22, 22),
            (&TRANSACTIONS, 1, 1),
            (&SHARE_STATE, 2, 2),
            (&REMOTE_LOG, 0, 4),
            (&CONTROL, 0, 5),
            (&CONSUMER, 0, 2),
        ] {
            assert_eq!((topic.keys.len(), topic.values.len()), (keys, values));
        }
        assert_eq!(METADATA.values[&3].name, "PARTITION_RECORD");
    }

    #[test]
    fn versions_are_single_open_or_a_range() {
        let versions = |text| Versions::parse(text).expect("versions");
        assert!(versions("1").contains(1) && !versions("1").contains(2));
        assert!(versions("1+").contains(9) && !versions("1+").contains(0));
        assert!(versions("1-2").contains(2) && !versions("1-2").contains(3));
        assert!(!versions("none").contains(0));
        assert_eq!(Versions::parse("one"), None);
    }
}
