//! Schemas of the requests about groups.

use super::{BOOL, Field, INT32, INT32S, INT64, Kind, TEXTS, UUID, dropped, field};
use crate::wire::versions::api;

pub(super) fn request_fields(api_key: i16) -> Option<&'static [Field]> {
    Some(match api_key {
        api::OFFSET_COMMIT => OFFSET_COMMIT_REQUEST,
        api::OFFSET_FETCH => OFFSET_FETCH_REQUEST,
        api::JOIN_GROUP => JOIN_GROUP_REQUEST,
        api::HEARTBEAT => HEARTBEAT_REQUEST,
        api::LEAVE_GROUP => LEAVE_GROUP_REQUEST,
        api::SYNC_GROUP => SYNC_GROUP_REQUEST,
        api::DESCRIBE_GROUPS => DESCRIBE_GROUPS_REQUEST,
        api::LIST_GROUPS => LIST_GROUPS_REQUEST,
        api::DELETE_GROUPS => DELETE_GROUPS_REQUEST,
        api::OFFSET_DELETE => OFFSET_DELETE_REQUEST,
        api::CONSUMER_GROUP_HEARTBEAT => CONSUMER_GROUP_HEARTBEAT_REQUEST,
        api::CONSUMER_GROUP_DESCRIBE => CONSUMER_GROUP_DESCRIBE_REQUEST,
        _ => return None,
    })
}

const OFFSET_COMMIT_REQUEST: &[Field] = &[
    field("group", Kind::Text, 0),
    field("generation", INT32, 1),
    field("member", Kind::Text, 1),
    field("instance", Kind::Text, 7),
    dropped(field("retention time", INT64, 2), 4),
    field("topics", Kind::Array(&Kind::Struct(OFFSET_COMMIT_TOPIC)), 0),
];
const OFFSET_COMMIT_TOPIC: &[Field] = &[
    dropped(field("topic name", Kind::Text, 0), 9),
    field("topic id", UUID, 10),
    field("partitions", Kind::Array(&Kind::Struct(OFFSET_COMMIT_PARTITION)), 0),
];
const OFFSET_COMMIT_PARTITION: &[Field] = &[
    field("partition index", INT32, 0),
    field("committed offset", INT64, 0),
    field("committed leader epoch", INT32, 6),
    field("committed metadata", Kind::Text, 0),
];

const OFFSET_FETCH_REQUEST: &[Field] = &[
    dropped(field("group", Kind::Text, 0), 7),
    dropped(field("topics", Kind::Array(&Kind::Struct(OFFSET_FETCH_TOPIC)), 0), 7),
    field("groups", Kind::Array(&Kind::Struct(OFFSET_FETCH_GROUP)), 8),
    field("require stable", BOOL, 7),
];
const OFFSET_FETCH_TOPIC: &[Field] = &[
    dropped(field("topic name", Kind::Text, 0), 9),
    field("topic id", UUID, 10),
    field("partition indexes", INT32S, 0),
];
const OFFSET_FETCH_GROUP: &[Field] = &[
    field("group", Kind::Text, 8),
    field("member", Kind::Text, 9),
    field("member epoch", INT32, 9),
    field("topics", Kind::Array(&Kind::Struct(OFFSET_FETCH_TOPIC)), 8),
];

const JOIN_GROUP_REQUEST: &[Field] = &[
    field("group", Kind::Text, 0),
    field("session timeout", INT32, 0),
    field("rebalance timeout", INT32, 1),
    field("member", Kind::Text, 0),
    field("instance", Kind::Text, 5),
    field("protocol type", Kind::Text, 0),
    field("protocols", Kind::Array(&Kind::Struct(JOIN_GROUP_PROTOCOL)), 0),
    field("reason", Kind::Text, 8),
];
const JOIN_GROUP_PROTOCOL: &[Field] =
    &[field("protocol name", Kind::Text, 0), field("metadata", Kind::Blob, 0)];

const HEARTBEAT_REQUEST: &[Field] = &[
    field("group", Kind::Text, 0),
    field("generation", INT32, 0),
    field("member", Kind::Text, 0),
    field("instance", Kind::Text, 3),
];

const LEAVE_GROUP_REQUEST: &[Field] = &[
    field("group", Kind::Text, 0),
    dropped(field("member", Kind::Text, 0), 2),
    field("members", Kind::Array(&Kind::Struct(LEAVE_GROUP_MEMBER)), 3),
];
const LEAVE_GROUP_MEMBER: &[Field] = &[
    field("member", Kind::Text, 3),
    field("instance", Kind::Text, 3),
    field("reason", Kind::Text, 5),
];

const SYNC_GROUP_REQUEST: &[Field] = &[
    field("group", Kind::Text, 0),
    field("generation", INT32, 0),
    field("member", Kind::Text, 0),
    field("instance", Kind::Text, 3),
    field("protocol type", Kind::Text, 5),
    field("protocol name", Kind::Text, 5),
    field("assignments", Kind::Array(&Kind::Struct(SYNC_GROUP_ASSIGNMENT)), 0),
];
const SYNC_GROUP_ASSIGNMENT: &[Field] =
    &[field("member", Kind::Text, 0), field("assignment", Kind::Blob, 0)];

const DESCRIBE_GROUPS_REQUEST: &[Field] =
    &[field("groups", TEXTS, 0), field("include authorized operations", BOOL, 3)];

const LIST_GROUPS_REQUEST: &[Field] =
    &[field("states filter", TEXTS, 4), field("types filter", TEXTS, 5)];

const DELETE_GROUPS_REQUEST: &[Field] = &[field("groups", TEXTS, 0)];

const OFFSET_DELETE_REQUEST: &[Field] = &[
    field("group", Kind::Text, 0),
    field("topics", Kind::Array(&Kind::Struct(OFFSET_DELETE_TOPIC)), 0),
];
const OFFSET_DELETE_TOPIC: &[Field] = &[
    field("topic name", Kind::Text, 0),
    field("partitions", Kind::Array(&Kind::Struct(OFFSET_DELETE_PARTITION)), 0),
];
const OFFSET_DELETE_PARTITION: &[Field] = &[field("partition index", INT32, 0)];

const CONSUMER_GROUP_HEARTBEAT_REQUEST: &[Field] = &[
    field("group", Kind::Text, 0),
    field("member", Kind::Text, 0),
    field("member epoch", INT32, 0),
    field("instance", Kind::Text, 0),
    field("rack", Kind::Text, 0),
    field("rebalance timeout", INT32, 0),
    field("topic names", TEXTS, 0),
    field("topic regex", Kind::Text, 1),
    field("assignor", Kind::Text, 0),
    field("topic partitions", Kind::Array(&Kind::Struct(OWNED_TOPIC)), 0),
];
const OWNED_TOPIC: &[Field] = &[field("topic id", UUID, 0), field("partitions", INT32S, 0)];

const CONSUMER_GROUP_DESCRIBE_REQUEST: &[Field] =
    &[field("groups", TEXTS, 0), field("include authorized operations", BOOL, 0)];
