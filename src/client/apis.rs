//! The APIs that the client calls beyond those that this broker advertises, and the shapes of their
//! answers.
//!
//! What the client may ask of any Kafka is more than what the broker of this crate serves, so the
//! client has a table of its own. Versions end where `kafka-protocol` ends; names and numbers are
//! those of Kafka's message definitions.

use super::error::ClientError;
use crate::wire::guard::{
    BOOL, Field, INT8, INT16, INT32, INT32S, INT64, Kind, TEXTS, UUID, dropped, field,
};
use crate::wire::versions::{self, ApiRange};

/// An API with the shape of its answer.
#[derive(Debug)]
pub(super) struct Called {
    pub range: ApiRange,
    pub answer: &'static [Field],
}

const fn called(
    key: i16,
    name: &'static str,
    (min, max): (i16, i16),
    (flexible_from, answer): (i16, &'static [Field]),
) -> Called {
    Called { range: ApiRange { key, name, min, max, served_min: min, flexible_from }, answer }
}

/// What [`super::Connection::ask`] can ask.
pub(super) const CALLED: &[Called] = &[
    called(8, "OffsetCommit", (2, 9), (8, OFFSET_COMMIT_ANSWER)),
    called(9, "OffsetFetch", (1, 9), (6, OFFSET_FETCH_ANSWER)),
    called(10, "FindCoordinator", (0, 6), (3, FIND_COORDINATOR_ANSWER)),
    called(11, "JoinGroup", (0, 9), (6, JOIN_GROUP_ANSWER)),
    called(12, "Heartbeat", (0, 4), (4, HEARTBEAT_ANSWER)),
    called(13, "LeaveGroup", (0, 5), (4, LEAVE_GROUP_ANSWER)),
    called(14, "SyncGroup", (0, 5), (4, SYNC_GROUP_ANSWER)),
    called(15, "DescribeGroups", (0, 6), (5, DESCRIBE_GROUPS_ANSWER)),
    called(16, "ListGroups", (0, 5), (3, LIST_GROUPS_ANSWER)),
    called(21, "DeleteRecords", (0, 2), (2, DELETE_RECORDS_ANSWER)),
    called(35, "DescribeLogDirs", (1, 4), (2, DESCRIBE_LOG_DIRS_ANSWER)),
    called(37, "CreatePartitions", (0, 3), (2, CREATE_PARTITIONS_ANSWER)),
    called(42, "DeleteGroups", (0, 2), (2, DELETE_GROUPS_ANSWER)),
    called(44, "IncrementalAlterConfigs", (0, 1), (1, INCREMENTAL_ALTER_CONFIGS_ANSWER)),
    called(47, "OffsetDelete", (0, 0), (i16::MAX, OFFSET_DELETE_ANSWER)),
    called(60, "DescribeCluster", (0, 2), (0, DESCRIBE_CLUSTER_ANSWER)),
    called(69, "ConsumerGroupDescribe", (0, 1), (0, CONSUMER_GROUP_DESCRIBE_ANSWER)),
];

/// The API, when [`super::Connection::ask`] knows it.
pub(super) fn find(api_key: i16) -> Option<&'static Called> {
    CALLED.iter().find(|one| one.range.key == api_key)
}

/// Versions and header forms of an API, of this table or the broker's.
pub(super) fn range(api_key: i16) -> Option<&'static ApiRange> {
    find(api_key).map(|one| &one.range).or_else(|| versions::find(api_key))
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
            let key = kafka_protocol::messages::ApiKey::try_from(one.range.key).expect("known");
            let theirs = key.valid_versions();
            assert_eq!(one.range.min, theirs.min, "{key:?}");
            // Versions that name topics by id are not for a client that has names.
            let by_id = [8, 9].contains(&one.range.key);
            assert_eq!(one.range.max, if by_id { 9 } else { theirs.max }, "{key:?}");
            assert_eq!(format!("{key:?}"), one.range.name);
            for version in theirs.min..=theirs.max {
                let flexible = one.range.is_flexible(version);
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
