//! Which APIs and versions this broker speaks: exactly what it advertises.
//!
//! The ranges are those of Kafka 4.3.1, so a client meets what it was tested with. Two floors look
//! too low and are meant:
//! - Produce is advertised from 0 although only 3 and up are served. librdkafka up to 2.10 sends
//!   compressed batches only where version 0 is in range (KAFKA-18659); it never sends version 0.
//! - FindCoordinator 0 must be there: the same clients take it for the sign that a broker
//!   understands LZ4.
//!
//! librdkafka 2.16 crashes when it finds a coordinator that has no OffsetFetch: whoever takes the
//! APIs of groups out has to refuse FindCoordinator for groups, too.

use super::error::WireError;

/// The numbers of the APIs, as request headers carry them.
pub mod api {
    /// Appends batches.
    pub const PRODUCE: i16 = 0;
    /// Reads batches.
    pub const FETCH: i16 = 1;
    /// Looks up offsets by time.
    pub const LIST_OFFSETS: i16 = 2;
    /// Topics, partitions, leaders.
    pub const METADATA: i16 = 3;
    /// Commits offsets of a group.
    pub const OFFSET_COMMIT: i16 = 8;
    /// Reads the offsets that groups have committed.
    pub const OFFSET_FETCH: i16 = 9;
    /// Who coordinates a group or transactional id.
    pub const FIND_COORDINATOR: i16 = 10;
    /// Joins a group.
    pub const JOIN_GROUP: i16 = 11;
    /// Says that a member of a group is there.
    pub const HEARTBEAT: i16 = 12;
    /// Takes members out of a group.
    pub const LEAVE_GROUP: i16 = 13;
    /// Brings and gets assignments.
    pub const SYNC_GROUP: i16 = 14;
    /// Members and assignments of groups.
    pub const DESCRIBE_GROUPS: i16 = 15;
    /// The groups of a broker.
    pub const LIST_GROUPS: i16 = 16;
    /// Names a SASL mechanism.
    pub const SASL_HANDSHAKE: i16 = 17;
    /// What is advertised here.
    pub const API_VERSIONS: i16 = 18;
    /// Creates topics.
    pub const CREATE_TOPICS: i16 = 19;
    /// Deletes topics.
    pub const DELETE_TOPICS: i16 = 20;
    /// Advances log starts.
    pub const DELETE_RECORDS: i16 = 21;
    /// Gives a producer its id.
    pub const INIT_PRODUCER_ID: i16 = 22;
    /// Where a leader epoch ends.
    pub const OFFSET_FOR_LEADER_EPOCH: i16 = 23;
    /// What a transaction is going to write to.
    pub const ADD_PARTITIONS_TO_TXN: i16 = 24;
    /// That a transaction is going to commit offsets.
    pub const ADD_OFFSETS_TO_TXN: i16 = 25;
    /// Commits or aborts a transaction.
    pub const END_TXN: i16 = 26;
    /// Ends transactions on single partitions.
    pub const WRITE_TXN_MARKERS: i16 = 27;
    /// Commits offsets as part of a transaction.
    pub const TXN_OFFSET_COMMIT: i16 = 28;
    /// Lists ACLs.
    pub const DESCRIBE_ACLS: i16 = 29;
    /// Makes ACLs.
    pub const CREATE_ACLS: i16 = 30;
    /// Deletes ACLs.
    pub const DELETE_ACLS: i16 = 31;
    /// Settings of topics and brokers.
    pub const DESCRIBE_CONFIGS: i16 = 32;
    /// Replaces settings.
    pub const ALTER_CONFIGS: i16 = 33;
    /// Moves replicas between directories.
    pub const ALTER_REPLICA_LOG_DIRS: i16 = 34;
    /// Sizes of partitions and directories.
    pub const DESCRIBE_LOG_DIRS: i16 = 35;
    /// Authenticates by SASL.
    pub const SASL_AUTHENTICATE: i16 = 36;
    /// Adds partitions to topics.
    pub const CREATE_PARTITIONS: i16 = 37;
    /// Deletes groups.
    pub const DELETE_GROUPS: i16 = 42;
    /// Elects leaders.
    pub const ELECT_LEADERS: i16 = 43;
    /// Changes settings.
    pub const INCREMENTAL_ALTER_CONFIGS: i16 = 44;
    /// Moves replicas between brokers.
    pub const ALTER_PARTITION_REASSIGNMENTS: i16 = 45;
    /// Lists replicas that are moving.
    pub const LIST_PARTITION_REASSIGNMENTS: i16 = 46;
    /// Deletes offsets that a group has committed.
    pub const OFFSET_DELETE: i16 = 47;
    /// Lists quotas.
    pub const DESCRIBE_CLIENT_QUOTAS: i16 = 48;
    /// Changes quotas.
    pub const ALTER_CLIENT_QUOTAS: i16 = 49;
    /// Lists users with credentials.
    pub const DESCRIBE_USER_SCRAM_CREDENTIALS: i16 = 50;
    /// Changes credentials.
    pub const ALTER_USER_SCRAM_CREDENTIALS: i16 = 51;
    /// State of the metadata log.
    pub const DESCRIBE_QUORUM: i16 = 55;
    /// Changes levels of features.
    pub const UPDATE_FEATURES: i16 = 57;
    /// Brokers, controller, cluster id.
    pub const DESCRIBE_CLUSTER: i16 = 60;
    /// What partitions know of producers.
    pub const DESCRIBE_PRODUCERS: i16 = 61;
    /// Forgets a broker.
    pub const UNREGISTER_BROKER: i16 = 64;
    /// What is known of transactional ids.
    pub const DESCRIBE_TRANSACTIONS: i16 = 65;
    /// Which transactional ids there are.
    pub const LIST_TRANSACTIONS: i16 = 66;
    /// Members of groups whose coordinator assigns.
    pub const CONSUMER_GROUP_HEARTBEAT: i16 = 68;
    /// Such groups, their members.
    pub const CONSUMER_GROUP_DESCRIBE: i16 = 69;
    /// Lists what has settings.
    pub const LIST_CONFIG_RESOURCES: i16 = 74;
    /// Topics and partitions, page by page.
    pub const DESCRIBE_TOPIC_PARTITIONS: i16 = 75;
}

/// One API with the versions that are advertised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ApiRange {
    /// The API's number.
    pub key: i16,
    /// Its name in Kafka's documentation.
    pub name: &'static str,
    /// Lowest version advertised.
    pub min: i16,
    /// Highest version advertised and served.
    pub max: i16,
    /// Lowest version served.
    pub served_min: i16,
    /// First version with compact lengths and tagged fields.
    pub flexible_from: i16,
}

const fn range(key: i16, name: &'static str, versions: (i16, i16), flexible: i16) -> ApiRange {
    let (min, max) = versions;
    ApiRange { key, name, min, max, served_min: min, flexible_from: flexible }
}

/// For APIs that have no flexible version.
const NEVER: i16 = i16::MAX;

/// Everything that is advertised, by API number.
pub const ADVERTISED: &[ApiRange] = &[
    ApiRange { served_min: 3, ..range(api::PRODUCE, "Produce", (0, 13), 9) },
    range(api::FETCH, "Fetch", (4, 18), 12),
    range(api::LIST_OFFSETS, "ListOffsets", (1, 11), 6),
    range(api::METADATA, "Metadata", (0, 13), 9),
    range(api::OFFSET_COMMIT, "OffsetCommit", (2, 10), 8),
    range(api::OFFSET_FETCH, "OffsetFetch", (1, 10), 6),
    range(api::FIND_COORDINATOR, "FindCoordinator", (0, 6), 3),
    range(api::JOIN_GROUP, "JoinGroup", (0, 9), 6),
    range(api::HEARTBEAT, "Heartbeat", (0, 4), 4),
    range(api::LEAVE_GROUP, "LeaveGroup", (0, 5), 4),
    range(api::SYNC_GROUP, "SyncGroup", (0, 5), 4),
    range(api::DESCRIBE_GROUPS, "DescribeGroups", (0, 6), 5),
    range(api::LIST_GROUPS, "ListGroups", (0, 5), 3),
    range(api::SASL_HANDSHAKE, "SaslHandshake", (0, 1), NEVER),
    range(api::API_VERSIONS, "ApiVersions", (0, 4), 3),
    range(api::CREATE_TOPICS, "CreateTopics", (2, 7), 5),
    range(api::DELETE_TOPICS, "DeleteTopics", (1, 6), 4),
    range(api::DELETE_RECORDS, "DeleteRecords", (0, 2), 2),
    range(api::INIT_PRODUCER_ID, "InitProducerId", (0, 5), 2),
    range(api::OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", (2, 4), 4),
    range(api::ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", (0, 5), 3),
    range(api::ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", (0, 4), 3),
    range(api::END_TXN, "EndTxn", (0, 5), 3),
    range(api::WRITE_TXN_MARKERS, "WriteTxnMarkers", (1, 2), 1),
    range(api::TXN_OFFSET_COMMIT, "TxnOffsetCommit", (0, 5), 3),
    range(api::DESCRIBE_ACLS, "DescribeAcls", (1, 3), 2),
    range(api::CREATE_ACLS, "CreateAcls", (1, 3), 2),
    range(api::DELETE_ACLS, "DeleteAcls", (1, 3), 2),
    range(api::DESCRIBE_CONFIGS, "DescribeConfigs", (1, 4), 4),
    range(api::ALTER_CONFIGS, "AlterConfigs", (0, 2), 2),
    range(api::ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", (1, 2), 2),
    range(api::DESCRIBE_LOG_DIRS, "DescribeLogDirs", (1, 5), 2),
    range(api::SASL_AUTHENTICATE, "SaslAuthenticate", (0, 2), 2),
    range(api::CREATE_PARTITIONS, "CreatePartitions", (0, 3), 2),
    range(api::DELETE_GROUPS, "DeleteGroups", (0, 2), 2),
    range(api::ELECT_LEADERS, "ElectLeaders", (0, 2), 2),
    range(api::INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", (0, 1), 1),
    range(api::ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", (0, 1), 0),
    range(api::LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", (0, 0), 0),
    range(api::OFFSET_DELETE, "OffsetDelete", (0, 0), NEVER),
    range(api::DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", (0, 1), 1),
    range(api::ALTER_CLIENT_QUOTAS, "AlterClientQuotas", (0, 1), 1),
    range(api::DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", (0, 0), 0),
    range(api::ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", (0, 0), 0),
    range(api::DESCRIBE_QUORUM, "DescribeQuorum", (0, 2), 0),
    range(api::UPDATE_FEATURES, "UpdateFeatures", (0, 2), 0),
    range(api::DESCRIBE_CLUSTER, "DescribeCluster", (0, 2), 0),
    range(api::DESCRIBE_PRODUCERS, "DescribeProducers", (0, 0), 0),
    range(api::UNREGISTER_BROKER, "UnregisterBroker", (0, 0), 0),
    range(api::DESCRIBE_TRANSACTIONS, "DescribeTransactions", (0, 0), 0),
    range(api::LIST_TRANSACTIONS, "ListTransactions", (0, 2), 0),
    range(api::CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", (0, 1), 0),
    range(api::CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", (0, 1), 0),
    range(api::LIST_CONFIG_RESOURCES, "ListConfigResources", (0, 1), 0),
    range(api::DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", (0, 0), 0),
];

/// What is known of an API.
pub fn find(api_key: i16) -> Option<&'static ApiRange> {
    ADVERTISED.iter().find(|range| range.key == api_key)
}

/// Whether requests of this version are served.
pub fn is_supported(api_key: i16, version: i16) -> bool {
    check(api_key, version).is_ok()
}

/// The API, when this version of it is served.
///
/// # Errors
/// [`WireError::Unsupported`]: the connection is closed, as Kafka does. ApiVersions alone is
/// answered instead, with version 0 and error 35 (KIP-511).
pub fn check(api_key: i16, version: i16) -> Result<&'static ApiRange, WireError> {
    match find(api_key) {
        Some(range) if range.served_min <= version && version <= range.max => Ok(range),
        _ => Err(WireError::Unsupported { api_key, version }),
    }
}

impl ApiRange {
    /// Whether `version` has compact lengths and tagged fields.
    pub const fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_from
    }

    /// Whether the request header of `version` ends in tagged fields (header version 2). The
    /// header's version follows the body's.
    pub const fn request_header_has_tags(&self, version: i16) -> bool {
        self.is_flexible(version)
    }

    /// Whether the answer's header ends in tagged fields (header version 1). Never for ApiVersions:
    /// a client reads that answer before it knows what the broker speaks.
    pub const fn answer_header_has_tags(&self, version: i16) -> bool {
        self.is_flexible(version) && self.key != api::API_VERSIONS
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::ApiKey;

    use super::*;

    #[test]
    fn headers_are_those_of_kafka_protocol() {
        for range in ADVERTISED {
            let key = ApiKey::try_from(range.key).expect("an API of Kafka");
            let theirs = key.valid_versions();
            assert!(range.served_min >= theirs.min, "{}", range.name);
            for version in range.served_min..=range.max.min(theirs.max) {
                let header = key.request_header_version(version);
                assert_eq!(header == 2, range.request_header_has_tags(version), "{}", range.name);
                let header = key.response_header_version(version);
                assert_eq!(header == 1, range.answer_header_has_tags(version), "{}", range.name);
            }
        }
    }

    #[test]
    fn few_apis_are_ahead_of_kafka_protocol() {
        let ahead: Vec<_> = ADVERTISED
            .iter()
            .filter(|range| {
                let key = ApiKey::try_from(range.key).expect("an API of Kafka");
                range.max > key.valid_versions().max
            })
            .map(|range| range.name)
            .collect();
        // Of OffsetCommit and OffsetFetch 10 it has the answers; see `wire::offsets`.
        assert_eq!(ahead, ["ListOffsets", "WriteTxnMarkers", "DescribeLogDirs"]);
    }

    #[test]
    fn single_versions_that_old_clients_look_for_are_in_range() {
        let wanted = [
            (api::PRODUCE, 0),
            (api::PRODUCE, 3),
            (api::PRODUCE, 7),
            (api::FETCH, 4),
            (api::FETCH, 10),
            (api::FIND_COORDINATOR, 0),
            (api::LIST_OFFSETS, 1),
            (api::INIT_PRODUCER_ID, 0),
            (api::API_VERSIONS, 0),
        ];
        for (key, version) in wanted {
            let range = find(key).expect("advertised");
            assert!(range.min <= version && version <= range.max, "{} {version}", range.name);
        }
        assert!(!is_supported(api::PRODUCE, 2));
        assert!(!is_supported(api::API_VERSIONS, 5));
        assert!(!is_supported(99, 0));
    }
}
