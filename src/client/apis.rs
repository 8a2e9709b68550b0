//! The shapes of the answers that the client reads, and where its versions end before the broker's.

use super::error::ClientError;
use crate::wire::guard::{
    BOOL, Field, INT8, INT16, INT32, INT32S, INT64, Kind, TEXTS, UUID, dropped, field,
};
use crate::wire::versions::{self, ApiRange, api};

/// An API with the shape of its answer.
#[derive(Debug)]
pub(super) struct Called {
    pub key: i16,
    /// The newest version that is asked in, where that isn't the broker's.
    max: Option<i16>,
    pub answer: &'static [Field],
}

const fn called(key: i16, answer: &'static [Field]) -> Called {
    Called { key, max: None, answer }
}

const fn up_to(max: i16, key: i16, answer: &'static [Field]) -> Called {
    Called { key, max: Some(max), answer }
}

/// What [`super::Connection::ask`] can ask. From OffsetCommit and OffsetFetch 10 on topics are
/// named by id, which the client has no use for; `kafka-protocol` has no DescribeLogDirs 5.
pub(super) const CALLED: &[Called] = &[
    up_to(9, api::OFFSET_COMMIT, OFFSET_COMMIT_ANSWER),
    up_to(9, api::OFFSET_FETCH, OFFSET_FETCH_ANSWER),
    called(api::FIND_COORDINATOR, FIND_COORDINATOR_ANSWER),
    called(api::JOIN_GROUP, JOIN_GROUP_ANSWER),
    called(api::HEARTBEAT, HEARTBEAT_ANSWER),
    called(api::LEAVE_GROUP, LEAVE_GROUP_ANSWER),
    called(api::SYNC_GROUP, SYNC_GROUP_ANSWER),
    called(api::DESCRIBE_GROUPS, DESCRIBE_GROUPS_ANSWER),
    called(api::LIST_GROUPS, LIST_GROUPS_ANSWER),
    called(api::DELETE_RECORDS, DELETE_RECORDS_ANSWER),
    up_to(4, api::DESCRIBE_LOG_DIRS, DESCRIBE_LOG_DIRS_ANSWER),
    called(api::CREATE_PARTITIONS, CREATE_PARTITIONS_ANSWER),
    called(api::DELETE_GROUPS, DELETE_GROUPS_ANSWER),
    called(api::INCREMENTAL_ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS_ANSWER),
    called(api::OFFSET_DELETE, OFFSET_DELETE_ANSWER),
    called(api::DESCRIBE_CLUSTER, DESCRIBE_CLUSTER_ANSWER),
    called(api::CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_HEARTBEAT_ANSWER),
    called(api::CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_DESCRIBE_ANSWER),
];

/// The API, when [`super::Connection::ask`] knows it.
pub(super) fn find(api_key: i16) -> Option<&'static Called> {
    CALLED.iter().find(|one| one.key == api_key)
}

/// Versions and header forms of an API: the broker's, as far as the client goes.
pub(super) fn range(api_key: i16) -> Option<ApiRange> {
    let max = find(api_key).and_then(|one| one.max);
    versions::find(api_key).map(|range| ApiRange { max: max.unwrap_or(range.max), ..*range })
}

/// The name of any API of Kafka.
pub fn api_name(api_key: i16) -> String {
    match kafka_protocol::messages::ApiKey::try_from(api_key) {
        Ok(key) => format!("{key:?}"),
        Err(()) => format!("API {api_key}"),
    }
}

/// What to say of an API that a broker lacks, or has in other versions only.
pub(super) fn unsupported(address: &str, api_key: i16, theirs: Option<(i16, i16)>) -> ClientError {
    let ours = range(api_key).map(|range| (range.served_min, range.max));
    let versions = |(min, max): (i16, i16)| match min == max {
        true => format!("version {min}"),
        false => format!("versions {min} to {max}"),
    };
    let name = api_name(api_key);
    let api = match (ours, theirs) {
        (Some(ours), None) => format!("{name} at all; wanted is {name} in {}", versions(ours)),
        (Some(ours), Some(theirs)) => {
            format!("{name} in {}, but only in {}", versions(ours), versions(theirs))
        }
        (None, _) => name,
    };
    ClientError::Unsupported { address: address.to_owned(), api }
}

const OFFSET_COMMIT_ANSWER: &[Field] = &[
    field("throttle time", INT32, 3),
    field("topics", Kind::Array(&Kind::Struct(OFFSET_COMMIT_TOPIC)), 0),
];
const OFFSET_COMMIT_TOPIC: &[Field] = &[
    field("name", Kind::Text, 0),
    field("partitions", Kind::Array(&Kind::Struct(OFFSET_COMMIT_PARTITION)), 0),
];
const OFFSET_COMMIT_PARTITION: &[Field] =
    &[field("partition index", INT32, 0), field("error code", INT16, 0)];

const OFFSET_FETCH_ANSWER: &[Field] = &[
    field("throttle time", INT32, 3),
    dropped(field("topics", Kind::Array(&Kind::Struct(OFFSET_FETCH_TOPIC)), 0), 7),
    dropped(field("error code", INT16, 2), 7),
    field("groups", Kind::Array(&Kind::Struct(OFFSET_FETCH_GROUP)), 8),
];
const OFFSET_FETCH_TOPIC: &[Field] = &[
    dropped(field("name", Kind::Text, 0), 7),
    dropped(field("partitions", Kind::Array(&Kind::Struct(OFFSET_FETCH_PARTITION)), 0), 7),
];
const OFFSET_FETCH_PARTITION: &[Field] = &[
    dropped(field("partition index", INT32, 0), 7),
    dropped(field("committed offset", INT64, 0), 7),
    dropped(field("committed leader epoch", INT32, 5), 7),
    dropped(field("metadata", Kind::Text, 0), 7),
    dropped(field("error code", INT16, 0), 7),
];
const OFFSET_FETCH_GROUP: &[Field] = &[
    field("group id", Kind::Text, 8),
    field("topics", Kind::Array(&Kind::Struct(OFFSET_FETCH_TOPICS)), 8),
    field("error code", INT16, 8),
];
const OFFSET_FETCH_TOPICS: &[Field] = &[
    field("name", Kind::Text, 8),
    field("partitions", Kind::Array(&Kind::Struct(OFFSET_FETCH_PARTITIONS)), 8),
];
const OFFSET_FETCH_PARTITIONS: &[Field] = &[
    field("partition index", INT32, 8),
    field("committed offset", INT64, 8),
    field("committed leader epoch", INT32, 8),
    field("metadata", Kind::Text, 8),
    field("error code", INT16, 8),
];

const FIND_COORDINATOR_ANSWER: &[Field] = &[
    field("throttle time", INT32, 1),
    dropped(field("error code", INT16, 0), 3),
    dropped(field("error message", Kind::Text, 1), 3),
    dropped(field("node id", INT32, 0), 3),
    dropped(field("host", Kind::Text, 0), 3),
    dropped(field("port", INT32, 0), 3),
    field("coordinators", Kind::Array(&Kind::Struct(FIND_COORDINATOR_COORDINATOR)), 4),
];
const FIND_COORDINATOR_COORDINATOR: &[Field] = &[
    field("key", Kind::Text, 4),
    field("node id", INT32, 4),
    field("host", Kind::Text, 4),
    field("port", INT32, 4),
    field("error code", INT16, 4),
    field("error message", Kind::Text, 4),
];

const JOIN_GROUP_ANSWER: &[Field] = &[
    field("throttle time", INT32, 2),
    field("error code", INT16, 0),
    field("generation id", INT32, 0),
    field("protocol type", Kind::Text, 7),
    field("protocol name", Kind::Text, 0),
    field("leader", Kind::Text, 0),
    field("skip assignment", BOOL, 9),
    field("member id", Kind::Text, 0),
    field("members", Kind::Array(&Kind::Struct(JOIN_GROUP_MEMBER)), 0),
];
const JOIN_GROUP_MEMBER: &[Field] = &[
    field("member id", Kind::Text, 0),
    field("group instance id", Kind::Text, 5),
    field("metadata", Kind::Blob, 0),
];

const HEARTBEAT_ANSWER: &[Field] =
    &[field("throttle time", INT32, 1), field("error code", INT16, 0)];

const LEAVE_GROUP_ANSWER: &[Field] = &[
    field("throttle time", INT32, 1),
    field("error code", INT16, 0),
    field("members", Kind::Array(&Kind::Struct(LEAVE_GROUP_MEMBER)), 3),
];
const LEAVE_GROUP_MEMBER: &[Field] = &[
    field("member id", Kind::Text, 3),
    field("group instance id", Kind::Text, 3),
    field("error code", INT16, 3),
];

const SYNC_GROUP_ANSWER: &[Field] = &[
    field("throttle time", INT32, 1),
    field("error code", INT16, 0),
    field("protocol type", Kind::Text, 5),
    field("protocol name", Kind::Text, 5),
    field("assignment", Kind::Blob, 0),
];

const DESCRIBE_GROUPS_ANSWER: &[Field] = &[
    field("throttle time", INT32, 1),
    field("groups", Kind::Array(&Kind::Struct(DESCRIBED_GROUP)), 0),
];
const DESCRIBED_GROUP: &[Field] = &[
    field("error code", INT16, 0),
    field("error message", Kind::Text, 6),
    field("group id", Kind::Text, 0),
    field("group state", Kind::Text, 0),
    field("protocol type", Kind::Text, 0),
    field("protocol data", Kind::Text, 0),
    field("members", Kind::Array(&Kind::Struct(DESCRIBED_GROUP_MEMBER)), 0),
    field("authorized operations", INT32, 3),
];
const DESCRIBED_GROUP_MEMBER: &[Field] = &[
    field("member id", Kind::Text, 0),
    field("group instance id", Kind::Text, 4),
    field("client id", Kind::Text, 0),
    field("client host", Kind::Text, 0),
    field("member metadata", Kind::Blob, 0),
    field("member assignment", Kind::Blob, 0),
];

const LIST_GROUPS_ANSWER: &[Field] = &[
    field("throttle time", INT32, 1),
    field("error code", INT16, 0),
    field("groups", Kind::Array(&Kind::Struct(LISTED_GROUP)), 0),
];
const LISTED_GROUP: &[Field] = &[
    field("group id", Kind::Text, 0),
    field("protocol type", Kind::Text, 0),
    field("group state", Kind::Text, 4),
    field("group type", Kind::Text, 5),
];

const DELETE_RECORDS_ANSWER: &[Field] = &[
    field("throttle time", INT32, 0),
    field("topics", Kind::Array(&Kind::Struct(DELETE_RECORDS_TOPIC_RESULT)), 0),
];
const DELETE_RECORDS_TOPIC_RESULT: &[Field] = &[
    field("name", Kind::Text, 0),
    field("partitions", Kind::Array(&Kind::Struct(DELETE_RECORDS_PARTITION_RESULT)), 0),
];
const DELETE_RECORDS_PARTITION_RESULT: &[Field] = &[
    field("partition index", INT32, 0),
    field("low watermark", INT64, 0),
    field("error code", INT16, 0),
];

const DESCRIBE_LOG_DIRS_ANSWER: &[Field] = &[
    field("throttle time", INT32, 0),
    field("error code", INT16, 3),
    field("results", Kind::Array(&Kind::Struct(DESCRIBE_LOG_DIRS_RESULT)), 0),
];
const DESCRIBE_LOG_DIRS_RESULT: &[Field] = &[
    field("error code", INT16, 0),
    field("log dir", Kind::Text, 0),
    field("topics", Kind::Array(&Kind::Struct(DESCRIBE_LOG_DIRS_TOPIC)), 0),
    field("total bytes", INT64, 4),
    field("usable bytes", INT64, 4),
];
const DESCRIBE_LOG_DIRS_TOPIC: &[Field] = &[
    field("name", Kind::Text, 0),
    field("partitions", Kind::Array(&Kind::Struct(DESCRIBE_LOG_DIRS_PARTITION)), 0),
];
const DESCRIBE_LOG_DIRS_PARTITION: &[Field] = &[
    field("partition index", INT32, 0),
    field("partition size", INT64, 0),
    field("offset lag", INT64, 0),
    field("is future key", BOOL, 0),
];

const CREATE_PARTITIONS_ANSWER: &[Field] = &[
    field("throttle time", INT32, 0),
    field("results", Kind::Array(&Kind::Struct(CREATE_PARTITIONS_TOPIC)), 0),
];
const CREATE_PARTITIONS_TOPIC: &[Field] = &[
    field("name", Kind::Text, 0),
    field("error code", INT16, 0),
    field("error message", Kind::Text, 0),
];

const DELETE_GROUPS_ANSWER: &[Field] = &[
    field("throttle time", INT32, 0),
    field("results", Kind::Array(&Kind::Struct(DELETE_GROUPS_RESULT)), 0),
];
const DELETE_GROUPS_RESULT: &[Field] =
    &[field("group id", Kind::Text, 0), field("error code", INT16, 0)];

const INCREMENTAL_ALTER_CONFIGS_ANSWER: &[Field] = &[
    field("throttle time", INT32, 0),
    field("responses", Kind::Array(&Kind::Struct(INCREMENTAL_ALTER_CONFIGS_RESOURCE)), 0),
];
const INCREMENTAL_ALTER_CONFIGS_RESOURCE: &[Field] = &[
    field("error code", INT16, 0),
    field("error message", Kind::Text, 0),
    field("resource type", INT8, 0),
    field("resource name", Kind::Text, 0),
];

const OFFSET_DELETE_ANSWER: &[Field] = &[
    field("error code", INT16, 0),
    field("throttle time", INT32, 0),
    field("topics", Kind::Array(&Kind::Struct(OFFSET_DELETE_TOPIC)), 0),
];
const OFFSET_DELETE_TOPIC: &[Field] = &[
    field("name", Kind::Text, 0),
    field("partitions", Kind::Array(&Kind::Struct(OFFSET_DELETE_PARTITION)), 0),
];
const OFFSET_DELETE_PARTITION: &[Field] =
    &[field("partition index", INT32, 0), field("error code", INT16, 0)];

const DESCRIBE_CLUSTER_ANSWER: &[Field] = &[
    field("throttle time", INT32, 0),
    field("error code", INT16, 0),
    field("error message", Kind::Text, 0),
    field("endpoint type", INT8, 1),
    field("cluster id", Kind::Text, 0),
    field("controller id", INT32, 0),
    field("brokers", Kind::Array(&Kind::Struct(DESCRIBE_CLUSTER_BROKER)), 0),
    field("cluster authorized operations", INT32, 0),
];
const DESCRIBE_CLUSTER_BROKER: &[Field] = &[
    field("broker id", INT32, 0),
    field("host", Kind::Text, 0),
    field("port", INT32, 0),
    field("rack", Kind::Text, 0),
    field("is fenced", BOOL, 2),
];

const CONSUMER_GROUP_HEARTBEAT_ANSWER: &[Field] = &[
    field("throttle time", INT32, 0),
    field("error code", INT16, 0),
    field("error message", Kind::Text, 0),
    field("member id", Kind::Text, 0),
    field("member epoch", INT32, 0),
    field("heartbeat interval", INT32, 0),
    field("assignment", Kind::Optional(CONSUMER_GROUP_GIVEN), 0),
];
const CONSUMER_GROUP_GIVEN: &[Field] =
    &[field("topic partitions", Kind::Array(&Kind::Struct(CONSUMER_GROUP_GIVEN_TOPIC)), 0)];
const CONSUMER_GROUP_GIVEN_TOPIC: &[Field] =
    &[field("topic id", UUID, 0), field("partitions", INT32S, 0)];

const CONSUMER_GROUP_DESCRIBE_ANSWER: &[Field] = &[
    field("throttle time", INT32, 0),
    field("groups", Kind::Array(&Kind::Struct(CONSUMER_GROUP)), 0),
];
const CONSUMER_GROUP: &[Field] = &[
    field("error code", INT16, 0),
    field("error message", Kind::Text, 0),
    field("group id", Kind::Text, 0),
    field("group state", Kind::Text, 0),
    field("group epoch", INT32, 0),
    field("assignment epoch", INT32, 0),
    field("assignor name", Kind::Text, 0),
    field("members", Kind::Array(&Kind::Struct(CONSUMER_GROUP_MEMBER)), 0),
    field("authorized operations", INT32, 0),
];
const CONSUMER_GROUP_MEMBER: &[Field] = &[
    field("member id", Kind::Text, 0),
    field("instance id", Kind::Text, 0),
    field("rack id", Kind::Text, 0),
    field("member epoch", INT32, 0),
    field("client id", Kind::Text, 0),
    field("client host", Kind::Text, 0),
    field("subscribed topic names", TEXTS, 0),
    field("subscribed topic regex", Kind::Text, 0),
    field("assignment", Kind::Struct(CONSUMER_GROUP_ASSIGNMENT), 0),
    field("target assignment", Kind::Struct(CONSUMER_GROUP_ASSIGNMENT), 0),
    field("member type", INT8, 1),
];
const CONSUMER_GROUP_ASSIGNMENT: &[Field] =
    &[field("topic partitions", Kind::Array(&Kind::Struct(CONSUMER_GROUP_PARTITIONS)), 0)];
const CONSUMER_GROUP_PARTITIONS: &[Field] = &[
    field("topic id", UUID, 0),
    field("topic name", Kind::Text, 0),
    field("partitions", INT32S, 0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_kafka_protocol() {
        for one in CALLED {
            let key = kafka_protocol::messages::ApiKey::try_from(one.key).expect("known");
            let (range, theirs) = (range(one.key).expect("advertised"), key.valid_versions());
            assert_eq!(range.min, theirs.min, "{key:?}");
            // Versions that name topics by id are not for a client that has names.
            let by_id = [api::OFFSET_COMMIT, api::OFFSET_FETCH].contains(&one.key);
            assert_eq!(range.max, if by_id { 9 } else { theirs.max }, "{key:?}");
            for version in theirs.min..=theirs.max {
                let flexible = range.is_flexible(version);
                assert_eq!(key.request_header_version(version) == 2, flexible, "{key:?}");
                assert_eq!(key.response_header_version(version) == 1, flexible, "{key:?}");
            }
        }
    }

    #[test]
    fn what_a_broker_lacks_is_named() {
        let absent = unsupported("a:1", 47, None).to_string();
        let expected = "a:1 doesn't speak OffsetDelete at all; wanted is OffsetDelete in version 0";
        assert_eq!(absent, expected);
        let old = unsupported("a:1", 9, Some((0, 0))).to_string();
        assert!(old.contains("OffsetFetch in versions 1 to 9, but only in version 0"), "{old}");
    }
}
