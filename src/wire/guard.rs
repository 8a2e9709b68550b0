//! Walks a message by its schema before `kafka-protocol` decodes it.
//!
//! The crate allocates each array for as many elements as the bytes claim: a Metadata request of
//! five bytes that claims two billion topics would abort the process. After a walk every element is
//! known to be there, and their number to be within a limit.
//!
//! The schemas say what a walk has to know: widths, order and versions of the fields, from Kafka
//! 4.3's message definitions. None of these messages has an array inside a tagged field.

mod admin;
mod groups;
mod transactions;

use bytes::Buf;

use super::error::WireError;
use super::read::Reader;
use super::versions::api;
use crate::units::u64_of;

/// Array elements that one request may have in all. The crate's largest element takes some 130
/// bytes, so that a request costs at most 13 MB for as long as it is served.
pub const REQUEST_ELEMENTS_MAX: u64 = 100_000;

/// The same for requests whose elements are partitions, or topics to be deleted or found, and are
/// answered in a few bytes each, or once however often they are named. A shard serves one at a
/// time of those that have more than [`REQUEST_ELEMENTS_MAX`], which costs 130 MB at most, and up
/// to 700 MB where the answer is a Metadata with as many names.
pub const LIST_ELEMENTS_MAX: u64 = 1_000_000;

/// Array elements that one answer may have in all, on the client's side.
pub const ANSWER_ELEMENTS_MAX: u64 = 10_000_000;

/// The shape of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// So many bytes.
    Bytes(usize),
    /// A text, possibly null.
    Text,
    /// Bytes with their length before them, possibly null.
    Blob,
    /// An array, possibly null.
    Array(&'static Kind),
    /// Fields, then tagged fields in flexible versions.
    Struct(&'static [Field]),
    /// The same, or null: a byte says which.
    Optional(&'static [Field]),
}

/// A field and the versions that have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    name: &'static str,
    kind: Kind,
    since: i16,
    until: i16,
}

pub(crate) const INT8: Kind = Kind::Bytes(size_of::<i8>());
pub(crate) const INT16: Kind = Kind::Bytes(size_of::<i16>());
pub(crate) const INT32: Kind = Kind::Bytes(size_of::<i32>());
pub(crate) const INT64: Kind = Kind::Bytes(size_of::<i64>());
pub(crate) const UUID: Kind = Kind::Bytes(16);
pub(crate) const BOOL: Kind = INT8;
pub(crate) const INT32S: Kind = Kind::Array(&INT32);
pub(crate) const TEXTS: Kind = Kind::Array(&Kind::Text);

pub(crate) const fn field(name: &'static str, kind: Kind, since: i16) -> Field {
    Field { name, kind, since, until: i16::MAX }
}

pub(crate) const fn dropped(field: Field, until: i16) -> Field {
    Field { until, ..field }
}

/// Walks a request's body, and says how many array elements it has.
///
/// # Errors
/// [`WireError`]: a length that doesn't fit, more than [`REQUEST_ELEMENTS_MAX`] elements
/// ([`LIST_ELEMENTS_MAX`] for some APIs), or an API without a schema here.
pub fn check_request(api_key: i16, version: i16, body: &[u8]) -> Result<u64, WireError> {
    let fields = request_fields(api_key).ok_or(WireError::Unsupported { api_key, version })?;
    let elements_max = elements_max(api_key);
    let mut walk = Walk::start(api_key, version, elements_max)?;
    walk.run(fields, body)?;
    Ok(elements_max - walk.elements_left)
}

/// Only where an element costs no more than itself: one of DescribeConfigs is answered with all
/// configs of a topic. And never where an answer waits for other clients (JoinGroup, SyncGroup),
/// whose requests would wait for this one.
fn elements_max(api_key: i16) -> u64 {
    match api_key {
        api::OFFSET_COMMIT
        | api::OFFSET_FETCH
        | api::OFFSET_DELETE
        | api::TXN_OFFSET_COMMIT
        | api::LIST_OFFSETS
        | api::OFFSET_FOR_LEADER_EPOCH
        | api::METADATA
        | api::DELETE_TOPICS => LIST_ELEMENTS_MAX,
        _ => REQUEST_ELEMENTS_MAX,
    }
}

/// Walks an answer's body, on the client's side.
///
/// # Errors
/// [`WireError`]: a length that doesn't fit, more than [`ANSWER_ELEMENTS_MAX`] elements, or an API
/// without a schema here.
pub fn check_answer(api_key: i16, version: i16, body: &[u8]) -> Result<(), WireError> {
    let fields = answer_fields(api_key).ok_or(WireError::Unsupported { api_key, version })?;
    Walk::start(api_key, version, ANSWER_ELEMENTS_MAX)?.run(fields, body)
}

/// Walks the body of an answer that the client's own table of APIs knows.
///
/// # Errors
/// [`WireError`]: a length that doesn't fit, more than [`ANSWER_ELEMENTS_MAX`] elements.
pub(crate) fn check_fields(
    fields: &'static [Field],
    (version, flexible): (i16, bool),
    body: &[u8],
) -> Result<(), WireError> {
    let (elements_max, elements_left) = (ANSWER_ELEMENTS_MAX, ANSWER_ELEMENTS_MAX);
    Walk { version, flexible, elements_max, elements_left }.run(fields, body)
}

struct Walk {
    version: i16,
    flexible: bool,
    elements_max: u64,
    elements_left: u64,
}

impl Walk {
    fn start(api_key: i16, version: i16, elements_max: u64) -> Result<Walk, WireError> {
        let flexible = super::versions::check(api_key, version)?.is_flexible(version);
        Ok(Walk { version, flexible, elements_max, elements_left: elements_max })
    }

    fn run(&mut self, fields: &[Field], body: &[u8]) -> Result<(), WireError> {
        self.walk_struct(&mut Reader::new(body, self.flexible), fields)
    }

    fn walk_struct<B: Buf>(
        &mut self,
        reader: &mut Reader<B>,
        fields: &[Field],
    ) -> Result<(), WireError> {
        for field in fields {
            if field.since <= self.version && self.version <= field.until {
                self.walk(reader, field.kind, field.name)?;
            }
        }
        reader.skip_tags("tagged fields")
    }

    fn walk<B: Buf>(
        &mut self,
        reader: &mut Reader<B>,
        kind: Kind,
        name: &'static str,
    ) -> Result<(), WireError> {
        match kind {
            Kind::Bytes(count) => reader.skip(count, name),
            Kind::Text => {
                let length = reader.text_length(name)?.unwrap_or(0);
                reader.skip(length, name)
            }
            Kind::Blob => {
                let length = reader.bytes_length(name)?.unwrap_or(0);
                reader.skip(length, name)
            }
            Kind::Struct(fields) => self.walk_struct(reader, fields),
            Kind::Optional(fields) => match reader.i8(name)? {
                ..0 => Ok(()),
                0.. => self.walk_struct(reader, fields),
            },
            Kind::Array(element) => {
                let count = reader.array_length(1, name)?.unwrap_or(0);
                self.count(u64_of(count), name)?;
                (0..count).try_for_each(|_| self.walk(reader, *element, name))
            }
        }
    }

    fn count(&mut self, count: u64, what: &'static str) -> Result<(), WireError> {
        let limit = self.elements_max;
        let left = self.elements_left.checked_sub(count);
        self.elements_left = left.ok_or(WireError::TooMany { what, count, limit })?;
        Ok(())
    }
}

fn request_fields(api_key: i16) -> Option<&'static [Field]> {
    Some(match api_key {
        api::LIST_OFFSETS => LIST_OFFSETS_REQUEST,
        api::METADATA => METADATA_REQUEST,
        api::FIND_COORDINATOR => FIND_COORDINATOR_REQUEST,
        api::API_VERSIONS => API_VERSIONS_REQUEST,
        api::CREATE_TOPICS => CREATE_TOPICS_REQUEST,
        api::DELETE_TOPICS => DELETE_TOPICS_REQUEST,
        api::INIT_PRODUCER_ID => INIT_PRODUCER_ID_REQUEST,
        api::OFFSET_FOR_LEADER_EPOCH => OFFSET_FOR_LEADER_EPOCH_REQUEST,
        api::DESCRIBE_CONFIGS => DESCRIBE_CONFIGS_REQUEST,
        api::DESCRIBE_CLUSTER => DESCRIBE_CLUSTER_REQUEST,
        other => {
            let groups = groups::request_fields(other);
            return groups
                .or_else(|| transactions::request_fields(other))
                .or_else(|| admin::request_fields(other));
        }
    })
}

fn answer_fields(api_key: i16) -> Option<&'static [Field]> {
    Some(match api_key {
        api::LIST_OFFSETS => LIST_OFFSETS_ANSWER,
        api::METADATA => METADATA_ANSWER,
        api::API_VERSIONS => API_VERSIONS_ANSWER,
        api::CREATE_TOPICS => CREATE_TOPICS_ANSWER,
        api::DELETE_TOPICS => DELETE_TOPICS_ANSWER,
        api::DESCRIBE_CONFIGS => DESCRIBE_CONFIGS_ANSWER,
        api::INIT_PRODUCER_ID => INIT_PRODUCER_ID_ANSWER,
        _ => return None,
    })
}

const API_VERSIONS_REQUEST: &[Field] = &[
    field("client software name", Kind::Text, 3),
    field("client software version", Kind::Text, 3),
];

const METADATA_REQUEST: &[Field] = &[
    field("topics", Kind::Array(&Kind::Struct(METADATA_REQUEST_TOPIC)), 0),
    field("allow auto topic creation", BOOL, 4),
    dropped(field("include cluster authorized operations", BOOL, 8), 10),
    field("include topic authorized operations", BOOL, 8),
];
const METADATA_REQUEST_TOPIC: &[Field] =
    &[field("topic id", UUID, 10), field("topic name", Kind::Text, 0)];

const LIST_OFFSETS_REQUEST: &[Field] = &[
    field("replica id", INT32, 0),
    field("isolation level", INT8, 2),
    field("topics", Kind::Array(&Kind::Struct(LIST_OFFSETS_REQUEST_TOPIC)), 0),
    field("timeout", INT32, 10),
];
const LIST_OFFSETS_REQUEST_TOPIC: &[Field] = &[
    field("topic name", Kind::Text, 0),
    field("partitions", Kind::Array(&Kind::Struct(LIST_OFFSETS_REQUEST_PARTITION)), 0),
];
const LIST_OFFSETS_REQUEST_PARTITION: &[Field] = &[
    field("partition index", INT32, 0),
    field("current leader epoch", INT32, 4),
    field("timestamp", INT64, 0),
];

const CREATE_TOPICS_REQUEST: &[Field] = &[
    field("topics", Kind::Array(&Kind::Struct(CREATABLE_TOPIC)), 0),
    field("timeout", INT32, 0),
    field("validate only", BOOL, 1),
];
const CREATABLE_TOPIC: &[Field] = &[
    field("topic name", Kind::Text, 0),
    field("partitions", INT32, 0),
    field("replication factor", INT16, 0),
    field("assignments", Kind::Array(&Kind::Struct(CREATABLE_ASSIGNMENT)), 0),
    field("configs", Kind::Array(&Kind::Struct(CREATABLE_CONFIG)), 0),
];
const CREATABLE_ASSIGNMENT: &[Field] =
    &[field("partition index", INT32, 0), field("broker ids", INT32S, 0)];
const CREATABLE_CONFIG: &[Field] =
    &[field("config name", Kind::Text, 0), field("config value", Kind::Text, 0)];

const DELETE_TOPICS_REQUEST: &[Field] = &[
    field("topics", Kind::Array(&Kind::Struct(DELETABLE_TOPIC)), 6),
    dropped(field("topic names", TEXTS, 0), 5),
    field("timeout", INT32, 0),
];
const DELETABLE_TOPIC: &[Field] = &[field("topic name", Kind::Text, 6), field("topic id", UUID, 6)];

const FIND_COORDINATOR_REQUEST: &[Field] =
    &[dropped(field("key", Kind::Text, 0), 3), field("key type", INT8, 1), field("keys", TEXTS, 4)];

const INIT_PRODUCER_ID_REQUEST: &[Field] = &[
    field("transactional id", Kind::Text, 0),
    field("transaction timeout", INT32, 0),
    field("producer id", INT64, 3),
    field("producer epoch", INT16, 3),
];

const OFFSET_FOR_LEADER_EPOCH_REQUEST: &[Field] = &[
    field("replica id", INT32, 3),
    field("topics", Kind::Array(&Kind::Struct(OFFSET_FOR_LEADER_EPOCH_TOPIC)), 0),
];
const OFFSET_FOR_LEADER_EPOCH_TOPIC: &[Field] = &[
    field("topic name", Kind::Text, 0),
    field("partitions", Kind::Array(&Kind::Struct(OFFSET_FOR_LEADER_EPOCH_PARTITION)), 0),
];
const OFFSET_FOR_LEADER_EPOCH_PARTITION: &[Field] = &[
    field("partition index", INT32, 0),
    field("current leader epoch", INT32, 2),
    field("leader epoch", INT32, 0),
];

const DESCRIBE_CONFIGS_REQUEST: &[Field] = &[
    field("resources", Kind::Array(&Kind::Struct(DESCRIBE_CONFIGS_RESOURCE)), 0),
    field("include synonyms", BOOL, 1),
    field("include documentation", BOOL, 3),
];
const DESCRIBE_CONFIGS_RESOURCE: &[Field] = &[
    field("resource type", INT8, 0),
    field("resource name", Kind::Text, 0),
    field("configuration keys", TEXTS, 0),
];

const DESCRIBE_CLUSTER_REQUEST: &[Field] = &[
    field("include cluster authorized operations", BOOL, 0),
    field("endpoint type", INT8, 1),
    field("include fenced brokers", BOOL, 2),
];

const LIST_OFFSETS_ANSWER: &[Field] = &[
    field("throttle time", INT32, 2),
    field("topics", Kind::Array(&Kind::Struct(LIST_OFFSETS_ANSWER_TOPIC)), 0),
];
const LIST_OFFSETS_ANSWER_TOPIC: &[Field] = &[
    field("topic name", Kind::Text, 0),
    field("partitions", Kind::Array(&Kind::Struct(LIST_OFFSETS_ANSWER_PARTITION)), 0),
];
const LIST_OFFSETS_ANSWER_PARTITION: &[Field] = &[
    field("partition index", INT32, 0),
    field("error code", INT16, 0),
    field("timestamp", INT64, 1),
    field("offset", INT64, 1),
    field("leader epoch", INT32, 4),
];

const METADATA_ANSWER: &[Field] = &[
    field("throttle time", INT32, 3),
    field("brokers", Kind::Array(&Kind::Struct(METADATA_BROKER)), 0),
    field("cluster id", Kind::Text, 2),
    field("controller id", INT32, 1),
    field("topics", Kind::Array(&Kind::Struct(METADATA_TOPIC)), 0),
    dropped(field("cluster authorized operations", INT32, 8), 10),
    field("error code", INT16, 13),
];
const METADATA_BROKER: &[Field] = &[
    field("broker id", INT32, 0),
    field("host", Kind::Text, 0),
    field("port", INT32, 0),
    field("rack", Kind::Text, 1),
];
const METADATA_TOPIC: &[Field] = &[
    field("error code", INT16, 0),
    field("topic name", Kind::Text, 0),
    field("topic id", UUID, 10),
    field("is internal", BOOL, 1),
    field("partitions", Kind::Array(&Kind::Struct(METADATA_PARTITION)), 0),
    field("topic authorized operations", INT32, 8),
];
const METADATA_PARTITION: &[Field] = &[
    field("error code", INT16, 0),
    field("partition index", INT32, 0),
    field("leader id", INT32, 0),
    field("leader epoch", INT32, 7),
    field("replicas", INT32S, 0),
    field("in-sync replicas", INT32S, 0),
    field("offline replicas", INT32S, 5),
];

const API_VERSIONS_ANSWER: &[Field] = &[
    field("error code", INT16, 0),
    field("APIs", Kind::Array(&Kind::Struct(API_VERSIONS_RANGE)), 0),
    field("throttle time", INT32, 1),
];
const API_VERSIONS_RANGE: &[Field] =
    &[field("API key", INT16, 0), field("min version", INT16, 0), field("max version", INT16, 0)];

const CREATE_TOPICS_ANSWER: &[Field] = &[
    field("throttle time", INT32, 2),
    field("topics", Kind::Array(&Kind::Struct(CREATE_TOPICS_ANSWER_TOPIC)), 0),
];
const CREATE_TOPICS_ANSWER_TOPIC: &[Field] = &[
    field("topic name", Kind::Text, 0),
    field("topic id", UUID, 7),
    field("error code", INT16, 0),
    field("error message", Kind::Text, 1),
    field("partitions", INT32, 5),
    field("replication factor", INT16, 5),
    field("configs", Kind::Array(&Kind::Struct(CREATE_TOPICS_ANSWER_CONFIG)), 5),
];
const CREATE_TOPICS_ANSWER_CONFIG: &[Field] = &[
    field("config name", Kind::Text, 5),
    field("config value", Kind::Text, 5),
    field("read only", BOOL, 5),
    field("config source", INT8, 5),
    field("is sensitive", BOOL, 5),
];

const DELETE_TOPICS_ANSWER: &[Field] = &[
    field("throttle time", INT32, 1),
    field("topics", Kind::Array(&Kind::Struct(DELETE_TOPICS_ANSWER_TOPIC)), 0),
];
const DELETE_TOPICS_ANSWER_TOPIC: &[Field] = &[
    field("topic name", Kind::Text, 0),
    field("topic id", UUID, 6),
    field("error code", INT16, 0),
    field("error message", Kind::Text, 5),
];

const INIT_PRODUCER_ID_ANSWER: &[Field] = &[
    field("throttle time", INT32, 0),
    field("error code", INT16, 0),
    field("producer id", INT64, 0),
    field("producer epoch", INT16, 0),
];

const DESCRIBE_CONFIGS_ANSWER: &[Field] = &[
    field("throttle time", INT32, 0),
    field("results", Kind::Array(&Kind::Struct(DESCRIBE_CONFIGS_RESULT)), 0),
];
const DESCRIBE_CONFIGS_RESULT: &[Field] = &[
    field("error code", INT16, 0),
    field("error message", Kind::Text, 0),
    field("resource type", INT8, 0),
    field("resource name", Kind::Text, 0),
    field("configs", Kind::Array(&Kind::Struct(DESCRIBE_CONFIGS_ENTRY)), 0),
];
const DESCRIBE_CONFIGS_ENTRY: &[Field] = &[
    field("config name", Kind::Text, 0),
    field("config value", Kind::Text, 0),
    field("read only", BOOL, 0),
    field("config source", INT8, 1),
    field("is sensitive", BOOL, 0),
    field("synonyms", Kind::Array(&Kind::Struct(DESCRIBE_CONFIGS_SYNONYM)), 1),
    field("config type", INT8, 3),
    field("documentation", Kind::Text, 3),
];
const DESCRIBE_CONFIGS_SYNONYM: &[Field] = &[
    field("config name", Kind::Text, 1),
    field("config value", Kind::Text, 1),
    field("config source", INT8, 1),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::usize_of;

    #[test]
    fn five_bytes_that_claim_two_billion_topics_are_refused() {
        let body = [0x7f, 0xff, 0xff, 0xff, 1];
        let refused = check_request(api::METADATA, 4, &body);
        assert!(matches!(refused, Err(WireError::Truncated { what: "topics", .. })));
        check_request(api::METADATA, 4, &[0xff, 0xff, 0xff, 0xff, 1]).expect("null: all topics");
    }

    #[test]
    fn elements_are_counted_over_the_whole_request() {
        let many = usize_of(REQUEST_ELEMENTS_MAX) + 1;
        let mut body = i32::try_from(many).expect("small").to_be_bytes().to_vec();
        body.extend(vec![0; 2 * many]);
        let refused = check_request(api::DESCRIBE_GROUPS, 0, &body);
        assert!(matches!(refused, Err(WireError::TooMany { count: 100_001, .. })));
        assert_eq!(check_request(api::METADATA, 0, &body), Ok(100_001), "found or not");
        body.extend([0; 4]);
        assert_eq!(check_request(api::DELETE_TOPICS, 1, &body), Ok(100_001), "a list");
    }

    #[test]
    fn every_api_but_those_walked_by_hand_has_a_schema() {
        for range in super::super::versions::ADVERTISED {
            let walked = [api::PRODUCE, api::FETCH].contains(&range.key);
            assert_eq!(request_fields(range.key).is_none(), walked, "{}", range.name);
        }
    }
}
