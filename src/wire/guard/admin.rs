//! Shapes of the administrators' requests, from Kafka 4.3's message definitions.

use super::{BOOL, Field, INT8, INT16, INT32, INT32S, INT64, Kind, dropped, field};
use crate::wire::versions::api;

/// A double of eight bytes.
const FLOAT64: Kind = INT64;
const INT8S: Kind = Kind::Array(&INT8);

const fn array(element: &'static Kind) -> Kind {
    Kind::Array(element)
}

pub(super) fn request_fields(api_key: i16) -> Option<&'static [Field]> {
    Some(match api_key {
        api::SASL_HANDSHAKE => SASL_HANDSHAKE,
        api::DELETE_RECORDS => DELETE_RECORDS,
        api::DESCRIBE_ACLS => DESCRIBE_ACLS,
        api::CREATE_ACLS => CREATE_ACLS,
        api::DELETE_ACLS => DELETE_ACLS,
        api::ALTER_CONFIGS => ALTER_CONFIGS,
        api::ALTER_REPLICA_LOG_DIRS => ALTER_REPLICA_LOG_DIRS,
        api::DESCRIBE_LOG_DIRS => DESCRIBE_LOG_DIRS,
        api::SASL_AUTHENTICATE => SASL_AUTHENTICATE,
        api::CREATE_PARTITIONS => CREATE_PARTITIONS,
        api::ELECT_LEADERS => ELECT_LEADERS,
        api::INCREMENTAL_ALTER_CONFIGS => INCREMENTAL_ALTER_CONFIGS,
        api::ALTER_PARTITION_REASSIGNMENTS => ALTER_PARTITION_REASSIGNMENTS,
        api::LIST_PARTITION_REASSIGNMENTS => LIST_PARTITION_REASSIGNMENTS,
        api::DESCRIBE_CLIENT_QUOTAS => DESCRIBE_CLIENT_QUOTAS,
        api::ALTER_CLIENT_QUOTAS => ALTER_CLIENT_QUOTAS,
        api::DESCRIBE_USER_SCRAM_CREDENTIALS => DESCRIBE_USER_SCRAM_CREDENTIALS,
        api::ALTER_USER_SCRAM_CREDENTIALS => ALTER_USER_SCRAM_CREDENTIALS,
        api::DESCRIBE_QUORUM => DESCRIBE_QUORUM,
        api::UPDATE_FEATURES => UPDATE_FEATURES,
        api::UNREGISTER_BROKER => UNREGISTER_BROKER,
        api::LIST_CONFIG_RESOURCES => LIST_CONFIG_RESOURCES,
        api::DESCRIBE_TOPIC_PARTITIONS => DESCRIBE_TOPIC_PARTITIONS,
        _ => return None,
    })
}

const SASL_HANDSHAKE: &[Field] = &[field("mechanism", Kind::Text, 0)];
const SASL_AUTHENTICATE: &[Field] = &[field("authentication bytes", Kind::Blob, 0)];

const DELETE_RECORDS: &[Field] =
    &[field("topics", array(&Kind::Struct(DELETE_RECORDS_TOPIC)), 0), field("timeout", INT32, 0)];
const DELETE_RECORDS_TOPIC: &[Field] = &[
    field("topic name", Kind::Text, 0),
    field("partitions", array(&Kind::Struct(DELETE_RECORDS_PARTITION)), 0),
];
const DELETE_RECORDS_PARTITION: &[Field] =
    &[field("partition index", INT32, 0), field("offset", INT64, 0)];

const DESCRIBE_ACLS: &[Field] = &[
    field("resource type", INT8, 0),
    field("resource name", Kind::Text, 0),
    field("pattern type", INT8, 1),
    field("principal", Kind::Text, 0),
    field("host", Kind::Text, 0),
    field("operation", INT8, 0),
    field("permission type", INT8, 0),
];
// Filters of a deletion and ACLs that are created look like the filter of a description.
const CREATE_ACLS: &[Field] = &[field("creations", array(&Kind::Struct(DESCRIBE_ACLS)), 0)];
const DELETE_ACLS: &[Field] = &[field("filters", array(&Kind::Struct(DESCRIBE_ACLS)), 0)];

const ALTER_CONFIGS: &[Field] = &[
    field("resources", array(&Kind::Struct(ALTER_CONFIGS_RESOURCE)), 0),
    field("validate only", BOOL, 0),
];
const ALTER_CONFIGS_RESOURCE: &[Field] = &[
    field("resource type", INT8, 0),
    field("resource name", Kind::Text, 0),
    field("configs", array(&Kind::Struct(ALTERED_CONFIG)), 0),
];
const ALTERED_CONFIG: &[Field] =
    &[field("config name", Kind::Text, 0), field("config value", Kind::Text, 0)];

const INCREMENTAL_ALTER_CONFIGS: &[Field] = &[
    field("resources", array(&Kind::Struct(INCREMENTAL_RESOURCE)), 0),
    field("validate only", BOOL, 0),
];
const INCREMENTAL_RESOURCE: &[Field] = &[
    field("resource type", INT8, 0),
    field("resource name", Kind::Text, 0),
    field("configs", array(&Kind::Struct(INCREMENTAL_CONFIG)), 0),
];
const INCREMENTAL_CONFIG: &[Field] = &[
    field("config name", Kind::Text, 0),
    field("operation", INT8, 0),
    field("config value", Kind::Text, 0),
];

const ALTER_REPLICA_LOG_DIRS: &[Field] =
    &[field("directories", array(&Kind::Struct(ALTER_REPLICA_LOG_DIR)), 0)];
const ALTER_REPLICA_LOG_DIR: &[Field] =
    &[field("path", Kind::Text, 0), field("topics", array(&Kind::Struct(TOPIC_PARTITIONS)), 0)];
const TOPIC_PARTITIONS: &[Field] =
    &[field("topic name", Kind::Text, 0), field("partitions", INT32S, 0)];

const DESCRIBE_LOG_DIRS: &[Field] = &[field("topics", array(&Kind::Struct(TOPIC_PARTITIONS)), 0)];

const CREATE_PARTITIONS: &[Field] = &[
    field("topics", array(&Kind::Struct(CREATE_PARTITIONS_TOPIC)), 0),
    field("timeout", INT32, 0),
    field("validate only", BOOL, 0),
];
const CREATE_PARTITIONS_TOPIC: &[Field] = &[
    field("topic name", Kind::Text, 0),
    field("count", INT32, 0),
    field("assignments", array(&Kind::Struct(CREATE_PARTITIONS_ASSIGNMENT)), 0),
];
const CREATE_PARTITIONS_ASSIGNMENT: &[Field] = &[field("broker ids", INT32S, 0)];

const ELECT_LEADERS: &[Field] = &[
    field("election type", INT8, 1),
    field("topics", array(&Kind::Struct(TOPIC_PARTITIONS)), 0),
    field("timeout", INT32, 0),
];

const ALTER_PARTITION_REASSIGNMENTS: &[Field] = &[
    field("timeout", INT32, 0),
    field("allow replication factor change", BOOL, 1),
    field("topics", array(&Kind::Struct(REASSIGNABLE_TOPIC)), 0),
];
const REASSIGNABLE_TOPIC: &[Field] = &[
    field("topic name", Kind::Text, 0),
    field("partitions", array(&Kind::Struct(REASSIGNABLE_PARTITION)), 0),
];
const REASSIGNABLE_PARTITION: &[Field] =
    &[field("partition index", INT32, 0), field("replicas", INT32S, 0)];

const LIST_PARTITION_REASSIGNMENTS: &[Field] =
    &[field("timeout", INT32, 0), field("topics", array(&Kind::Struct(TOPIC_PARTITIONS)), 0)];

const DESCRIBE_CLIENT_QUOTAS: &[Field] =
    &[field("components", array(&Kind::Struct(QUOTA_COMPONENT)), 0), field("strict", BOOL, 0)];
const QUOTA_COMPONENT: &[Field] = &[
    field("entity type", Kind::Text, 0),
    field("match type", INT8, 0),
    field("match", Kind::Text, 0),
];

const ALTER_CLIENT_QUOTAS: &[Field] =
    &[field("entries", array(&Kind::Struct(QUOTA_ENTRY)), 0), field("validate only", BOOL, 0)];
const QUOTA_ENTRY: &[Field] = &[
    field("entity", array(&Kind::Struct(QUOTA_ENTITY)), 0),
    field("operations", array(&Kind::Struct(QUOTA_OPERATION)), 0),
];
const QUOTA_ENTITY: &[Field] =
    &[field("entity type", Kind::Text, 0), field("entity name", Kind::Text, 0)];
const QUOTA_OPERATION: &[Field] =
    &[field("key", Kind::Text, 0), field("value", FLOAT64, 0), field("remove", BOOL, 0)];

const DESCRIBE_USER_SCRAM_CREDENTIALS: &[Field] =
    &[field("users", array(&Kind::Struct(USER_NAME)), 0)];
const USER_NAME: &[Field] = &[field("user name", Kind::Text, 0)];

const ALTER_USER_SCRAM_CREDENTIALS: &[Field] = &[
    field("deletions", array(&Kind::Struct(SCRAM_DELETION)), 0),
    field("upsertions", array(&Kind::Struct(SCRAM_UPSERTION)), 0),
];
const SCRAM_DELETION: &[Field] = &[field("user name", Kind::Text, 0), field("mechanism", INT8, 0)];
const SCRAM_UPSERTION: &[Field] = &[
    field("user name", Kind::Text, 0),
    field("mechanism", INT8, 0),
    field("iterations", INT32, 0),
    field("salt", Kind::Blob, 0),
    field("salted password", Kind::Blob, 0),
];

const DESCRIBE_QUORUM: &[Field] = &[field("topics", array(&Kind::Struct(QUORUM_TOPIC)), 0)];
const QUORUM_TOPIC: &[Field] = &[
    field("topic name", Kind::Text, 0),
    field("partitions", array(&Kind::Struct(QUORUM_PARTITION)), 0),
];
const QUORUM_PARTITION: &[Field] = &[field("partition index", INT32, 0)];

const UPDATE_FEATURES: &[Field] = &[
    field("timeout", INT32, 0),
    field("feature updates", array(&Kind::Struct(FEATURE_UPDATE)), 0),
    field("validate only", BOOL, 1),
];
const FEATURE_UPDATE: &[Field] = &[
    field("feature", Kind::Text, 0),
    field("max version level", INT16, 0),
    dropped(field("allow downgrade", BOOL, 0), 0),
    field("upgrade type", INT8, 1),
];

const UNREGISTER_BROKER: &[Field] = &[field("broker id", INT32, 0)];

const LIST_CONFIG_RESOURCES: &[Field] = &[field("resource types", INT8S, 1)];

const DESCRIBE_TOPIC_PARTITIONS: &[Field] = &[
    field("topics", array(&Kind::Struct(DESCRIBED_TOPIC)), 0),
    field("partition limit", INT32, 0),
    field("cursor", Kind::Optional(CURSOR), 0),
];
const DESCRIBED_TOPIC: &[Field] = &[field("topic name", Kind::Text, 0)];
const CURSOR: &[Field] = &[field("topic name", Kind::Text, 0), field("partition index", INT32, 0)];
