//! The requests of transactions.

use super::{BOOL, Field, INT8, INT16, INT32, INT32S, INT64, Kind, TEXTS, api, dropped, field};

/// The fields of a request of transactions.
pub(super) fn request_fields(api_key: i16) -> Option<&'static [Field]> {
    Some(match api_key {
        api::ADD_PARTITIONS_TO_TXN => ADD_PARTITIONS,
        api::ADD_OFFSETS_TO_TXN => ADD_OFFSETS,
        api::END_TXN => END,
        api::TXN_OFFSET_COMMIT => OFFSET_COMMIT,
        api::DESCRIBE_TRANSACTIONS => DESCRIBE,
        api::LIST_TRANSACTIONS => LIST,
        api::DESCRIBE_PRODUCERS => DESCRIBE_PRODUCERS,
        api::WRITE_TXN_MARKERS => WRITE_TXN_MARKERS_REQUEST,
        _ => return None,
    })
}

const ADD_PARTITIONS: &[Field] = &[
    field("transactions", Kind::Array(&Kind::Struct(ADD_PARTITIONS_TRANSACTION)), 4),
    dropped(field("transactional id", Kind::Text, 0), 3),
    dropped(field("producer id", INT64, 0), 3),
    dropped(field("producer epoch", INT16, 0), 3),
    dropped(field("topics", Kind::Array(&Kind::Struct(ADD_PARTITIONS_TOPIC)), 0), 3),
];
const ADD_PARTITIONS_TRANSACTION: &[Field] = &[
    field("transactional id", Kind::Text, 4),
    field("producer id", INT64, 4),
    field("producer epoch", INT16, 4),
    field("verify only", BOOL, 4),
    field("topics", Kind::Array(&Kind::Struct(ADD_PARTITIONS_TOPIC)), 4),
];
const ADD_PARTITIONS_TOPIC: &[Field] =
    &[field("topic name", Kind::Text, 0), field("partitions", INT32S, 0)];

const ADD_OFFSETS: &[Field] = &[
    field("transactional id", Kind::Text, 0),
    field("producer id", INT64, 0),
    field("producer epoch", INT16, 0),
    field("group id", Kind::Text, 0),
];

const END: &[Field] = &[
    field("transactional id", Kind::Text, 0),
    field("producer id", INT64, 0),
    field("producer epoch", INT16, 0),
    field("committed", BOOL, 0),
];

const OFFSET_COMMIT: &[Field] = &[
    field("transactional id", Kind::Text, 0),
    field("group id", Kind::Text, 0),
    field("producer id", INT64, 0),
    field("producer epoch", INT16, 0),
    field("generation id", INT32, 3),
    field("member id", Kind::Text, 3),
    field("group instance id", Kind::Text, 3),
    field("topics", Kind::Array(&Kind::Struct(OFFSET_COMMIT_TOPIC)), 0),
];
const OFFSET_COMMIT_TOPIC: &[Field] = &[
    field("topic name", Kind::Text, 0),
    field("partitions", Kind::Array(&Kind::Struct(OFFSET_COMMIT_PARTITION)), 0),
];
const OFFSET_COMMIT_PARTITION: &[Field] = &[
    field("partition index", INT32, 0),
    field("committed offset", INT64, 0),
    field("committed leader epoch", INT32, 2),
    field("committed metadata", Kind::Text, 0),
];

const DESCRIBE: &[Field] = &[field("transactional ids", TEXTS, 0)];

const LIST: &[Field] = &[
    field("state filters", TEXTS, 0),
    field("producer id filters", Kind::Array(&INT64), 0),
    field("duration filter", INT64, 1),
    field("transactional id pattern", Kind::Text, 2),
];

const DESCRIBE_PRODUCERS: &[Field] =
    &[field("topics", Kind::Array(&Kind::Struct(DESCRIBE_PRODUCERS_TOPIC)), 0)];
const DESCRIBE_PRODUCERS_TOPIC: &[Field] =
    &[field("topic name", Kind::Text, 0), field("partition indexes", INT32S, 0)];

const WRITE_TXN_MARKERS_REQUEST: &[Field] =
    &[field("markers", Kind::Array(&Kind::Struct(TXN_MARKER)), 0)];
const TXN_MARKER: &[Field] = &[
    field("producer id", INT64, 0),
    field("producer epoch", INT16, 0),
    field("transaction result", BOOL, 0),
    field("topics", Kind::Array(&Kind::Struct(TXN_MARKER_TOPIC)), 0),
    field("coordinator epoch", INT32, 0),
    field("transaction version", INT8, 2),
];
const TXN_MARKER_TOPIC: &[Field] =
    &[field("topic name", Kind::Text, 0), field("partition indexes", INT32S, 0)];
