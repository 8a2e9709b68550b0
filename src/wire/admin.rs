//! The administrators' requests and answers: like the rest of [`super::control`], a list of its
//! own.

use bytes::Bytes;
use kafka_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult;
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, AlterConfigsRequest, AlterConfigsResponse,
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse, CreateAclsRequest, CreateAclsResponse,
    CreatePartitionsRequest, CreatePartitionsResponse, DeleteAclsRequest, DeleteAclsResponse,
    DeleteRecordsRequest, DeleteRecordsResponse, DescribeAclsRequest, DescribeAclsResponse,
    DescribeClientQuotasRequest, DescribeClientQuotasResponse, DescribeLogDirsRequest,
    DescribeLogDirsResponse, DescribeQuorumRequest, DescribeQuorumResponse,
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, ElectLeadersRequest,
    ElectLeadersResponse, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest, ListConfigResourcesResponse, ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse, SaslAuthenticateRequest, SaslAuthenticateResponse,
    SaslHandshakeRequest, SaslHandshakeResponse, UnregisterBrokerRequest, UnregisterBrokerResponse,
    UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use uuid::Uuid;

use super::control::{self, Answer, decode_body};
use super::error::WireError;
use super::frame::RequestHeader;
use super::versions::{self, api};
use super::write::Writer;
use crate::units::ByteCount;

macro_rules! requests {
    ($($(#[$about:meta])* $name:ident($request:ident) = $key:ident,)*) => {
        /// A decoded request of an administrator.
        #[derive(Clone, PartialEq, Debug)]
        pub enum AdminRequest {
            $($(#[$about])* $name($request),)*
        }

        /// Decodes a body that passed the guard; `None` when the API is none of these.
        pub(super) fn decode(
            key: i16,
            version: i16,
            body: &mut Bytes,
        ) -> Result<Option<AdminRequest>, WireError> {
            Ok(Some(match key {
                $(api::$key => AdminRequest::$name(decode_body(key, version, body)?),)*
                _ => return Ok(None),
            }))
        }
    };
}

requests! {
    /// Starts SASL.
    SaslHandshake(SaslHandshakeRequest) = SASL_HANDSHAKE,
    /// Goes on with SASL.
    SaslAuthenticate(SaslAuthenticateRequest) = SASL_AUTHENTICATE,
    /// Log starts to be advanced.
    DeleteRecords(DeleteRecordsRequest) = DELETE_RECORDS,
    /// Which ACLs there are.
    DescribeAcls(DescribeAclsRequest) = DESCRIBE_ACLS,
    /// New ACLs.
    CreateAcls(CreateAclsRequest) = CREATE_ACLS,
    /// ACLs to be deleted.
    DeleteAcls(DeleteAclsRequest) = DELETE_ACLS,
    /// Settings to be replaced as a whole.
    AlterConfigs(AlterConfigsRequest) = ALTER_CONFIGS,
    /// Settings to be changed.
    IncrementalAlterConfigs(IncrementalAlterConfigsRequest) = INCREMENTAL_ALTER_CONFIGS,
    /// What has settings.
    ListConfigResources(ListConfigResourcesRequest) = LIST_CONFIG_RESOURCES,
    /// Replicas to be moved to another directory.
    AlterReplicaLogDirs(AlterReplicaLogDirsRequest) = ALTER_REPLICA_LOG_DIRS,
    /// Sizes.
    DescribeLogDirs(DescribeLogDirsRequest) = DESCRIBE_LOG_DIRS,
    /// More partitions.
    CreatePartitions(CreatePartitionsRequest) = CREATE_PARTITIONS,
    /// Leaders to be elected.
    ElectLeaders(ElectLeadersRequest) = ELECT_LEADERS,
    /// Replicas to be moved to other brokers.
    AlterPartitionReassignments(AlterPartitionReassignmentsRequest)
        = ALTER_PARTITION_REASSIGNMENTS,
    /// Replicas that are moving.
    ListPartitionReassignments(ListPartitionReassignmentsRequest) = LIST_PARTITION_REASSIGNMENTS,
    /// Which quotas there are.
    DescribeClientQuotas(DescribeClientQuotasRequest) = DESCRIBE_CLIENT_QUOTAS,
    /// Quotas to be changed.
    AlterClientQuotas(AlterClientQuotasRequest) = ALTER_CLIENT_QUOTAS,
    /// Which users have credentials.
    DescribeUserScramCredentials(DescribeUserScramCredentialsRequest)
        = DESCRIBE_USER_SCRAM_CREDENTIALS,
    /// Credentials to be changed.
    AlterUserScramCredentials(AlterUserScramCredentialsRequest) = ALTER_USER_SCRAM_CREDENTIALS,
    /// State of the metadata log.
    DescribeQuorum(DescribeQuorumRequest) = DESCRIBE_QUORUM,
    /// Feature levels to be changed.
    UpdateFeatures(UpdateFeaturesRequest) = UPDATE_FEATURES,
    /// A broker to be forgotten.
    UnregisterBroker(UnregisterBrokerRequest) = UNREGISTER_BROKER,
    /// Topics, page by page.
    DescribeTopicPartitions(DescribeTopicPartitionsRequest) = DESCRIBE_TOPIC_PARTITIONS,
}

macro_rules! answers {
    ($($answer:ident = $key:ident,)*) => {
        $(impl Answer for $answer {
            const API: i16 = api::$key;
        })*
    };
}

// What each of these may hold has a place in every version.
answers! {
    SaslHandshakeResponse = SASL_HANDSHAKE,
    SaslAuthenticateResponse = SASL_AUTHENTICATE,
    DeleteRecordsResponse = DELETE_RECORDS,
    DescribeAclsResponse = DESCRIBE_ACLS,
    CreateAclsResponse = CREATE_ACLS,
    DeleteAclsResponse = DELETE_ACLS,
    AlterConfigsResponse = ALTER_CONFIGS,
    IncrementalAlterConfigsResponse = INCREMENTAL_ALTER_CONFIGS,
    ListConfigResourcesResponse = LIST_CONFIG_RESOURCES,
    AlterReplicaLogDirsResponse = ALTER_REPLICA_LOG_DIRS,
    CreatePartitionsResponse = CREATE_PARTITIONS,
    ListPartitionReassignmentsResponse = LIST_PARTITION_REASSIGNMENTS,
    DescribeClientQuotasResponse = DESCRIBE_CLIENT_QUOTAS,
    AlterClientQuotasResponse = ALTER_CLIENT_QUOTAS,
    DescribeUserScramCredentialsResponse = DESCRIBE_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsResponse = ALTER_USER_SCRAM_CREDENTIALS,
    UnregisterBrokerResponse = UNREGISTER_BROKER,
    DescribeTopicPartitionsResponse = DESCRIBE_TOPIC_PARTITIONS,
}

impl Answer for ElectLeadersResponse {
    const API: i16 = api::ELECT_LEADERS;

    fn fit(&mut self, version: i16) {
        if version < 1 {
            self.error_code = 0;
        }
    }
}

impl Answer for AlterPartitionReassignmentsResponse {
    const API: i16 = api::ALTER_PARTITION_REASSIGNMENTS;

    fn fit(&mut self, version: i16) {
        if version < 1 {
            self.allow_replication_factor_change = true;
        }
    }
}

impl Answer for DescribeQuorumResponse {
    const API: i16 = api::DESCRIBE_QUORUM;

    fn fit(&mut self, version: i16) {
        for partition in self.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            if version < 2 {
                partition.error_message = None;
            }
            let replicas = partition.current_voters.iter_mut().chain(&mut partition.observers);
            for replica in replicas {
                if version < 1 {
                    replica.last_fetch_timestamp = -1;
                    replica.last_caught_up_timestamp = -1;
                }
                if version < 2 {
                    replica.replica_directory_id = Uuid::nil();
                }
            }
        }
        if version < 2 {
            self.error_message = None;
            self.nodes.clear();
        }
    }
}

impl Answer for UpdateFeaturesResponse {
    const API: i16 = api::UPDATE_FEATURES;

    /// From version 2 on there is one outcome for all.
    fn fit(&mut self, version: i16) {
        if version >= 2 {
            self.results.clear();
        }
    }
}

/// First version of DescribeLogDirs that tells whether a directory is cordoned (KIP-1066). The
/// crate stops before it.
const CORDONED_FROM: i16 = 5;

impl Answer for DescribeLogDirsResponse {
    const API: i16 = api::DESCRIBE_LOG_DIRS;

    fn fit(&mut self, version: i16) {
        if version < 3 {
            self.error_code = 0;
        }
        if version < 4 {
            for directory in &mut self.results {
                (directory.total_bytes, directory.usable_bytes) = (-1, -1);
            }
        }
    }
}

/// Encodes the answer to DescribeLogDirs, whose one directory is never cordoned.
///
/// # Errors
/// As [`control::encode`].
pub fn encode_log_dirs(
    header: &RequestHeader,
    answer: DescribeLogDirsResponse,
) -> Result<Bytes, WireError> {
    if header.version < CORDONED_FROM {
        return control::encode(header, answer);
    }
    let range = versions::check(api::DESCRIBE_LOG_DIRS, header.version)?;
    let has_tags = range.answer_header_has_tags(header.version);
    let mut writer = Writer::answer(header.correlation_id, has_tags, 0);
    writer.i32(answer.throttle_time_ms);
    writer.i16(answer.error_code);
    writer.array(Some(answer.results.len()));
    for directory in &answer.results {
        put_log_dir(&mut writer, directory);
    }
    writer.no_tags();
    Ok(writer.finish(ByteCount(0))?.freeze())
}

fn put_log_dir(writer: &mut Writer, directory: &DescribeLogDirsResult) {
    writer.i16(directory.error_code);
    writer.text(Some(&directory.log_dir));
    writer.array(Some(directory.topics.len()));
    for topic in &directory.topics {
        writer.text(Some(&topic.name));
        writer.array(Some(topic.partitions.len()));
        for partition in &topic.partitions {
            writer.i32(partition.partition_index);
            writer.i64(partition.partition_size);
            writer.i64(partition.offset_lag);
            writer.i8(i8::from(partition.is_future_key));
            writer.no_tags();
        }
        writer.no_tags();
    }
    writer.i64(directory.total_bytes);
    writer.i64(directory.usable_bytes);
    writer.i8(i8::from(false));
    writer.no_tags();
}
