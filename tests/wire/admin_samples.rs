//! A filled request of each of the administrators' APIs.

use bytes::Bytes;
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterConfigsRequest, AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest, AlterUserScramCredentialsRequest, BrokerId, CreateAclsRequest,
    CreatePartitionsRequest, DeleteAclsRequest, DeleteRecordsRequest, DescribeAclsRequest,
    DescribeClientQuotasRequest, DescribeLogDirsRequest, DescribeQuorumRequest,
    DescribeTopicPartitionsRequest, DescribeUserScramCredentialsRequest, ElectLeadersRequest,
    IncrementalAlterConfigsRequest, ListConfigResourcesRequest, ListPartitionReassignmentsRequest,
    SaslAuthenticateRequest, SaslHandshakeRequest, UnregisterBrokerRequest, UpdateFeaturesRequest,
    alter_client_quotas_request, alter_configs_request, alter_partition_reassignments_request,
    alter_replica_log_dirs_request, alter_user_scram_credentials_request, create_acls_request,
    create_partitions_request, delete_acls_request, delete_records_request,
    describe_client_quotas_request, describe_log_dirs_request, describe_quorum_request,
    describe_topic_partitions_request, describe_user_scram_credentials_request,
    elect_leaders_request, incremental_alter_configs_request, list_partition_reassignments_request,
    update_features_request,
};
use uringlog::wire::admin::AdminRequest;
use uringlog::wire::control::Request;
use uringlog::wire::versions::api;

use super::{Sample, name, their_text as text};

/// The request in this version; `None` when the API is none of an administrator's.
pub fn sample(key: i16, version: i16) -> Option<(Sample, Option<Request>)> {
    macro_rules! samples {
        ($($key:ident => $variant:ident($message:expr),)*) => {
            match key {
                $(api::$key => {
                    let message = $message;
                    let sample = Sample::new(key, version, &message);
                    (sample, Some(Request::Admin(AdminRequest::$variant(message))))
                })*
                _ => return None,
            }
        };
    }
    Some(samples! {
        SASL_HANDSHAKE => SaslHandshake(SaslHandshakeRequest::default().with_mechanism(text("X"))),
        SASL_AUTHENTICATE => SaslAuthenticate(
            SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from_static(b"token"))
        ),
        DELETE_RECORDS => DeleteRecords(delete_records()),
        DESCRIBE_ACLS => DescribeAcls(describe_acls()),
        CREATE_ACLS => CreateAcls(create_acls()),
        DELETE_ACLS => DeleteAcls(delete_acls()),
        ALTER_CONFIGS => AlterConfigs(alter_configs()),
        INCREMENTAL_ALTER_CONFIGS => IncrementalAlterConfigs(incremental_alter_configs()),
        LIST_CONFIG_RESOURCES => ListConfigResources(list_config_resources(version)),
        ALTER_REPLICA_LOG_DIRS => AlterReplicaLogDirs(alter_replica_log_dirs()),
        DESCRIBE_LOG_DIRS => DescribeLogDirs(describe_log_dirs()),
        CREATE_PARTITIONS => CreatePartitions(create_partitions()),
        ELECT_LEADERS => ElectLeaders(elect_leaders(version)),
        ALTER_PARTITION_REASSIGNMENTS => AlterPartitionReassignments(alter_reassignments(version)),
        LIST_PARTITION_REASSIGNMENTS => ListPartitionReassignments(list_reassignments()),
        DESCRIBE_CLIENT_QUOTAS => DescribeClientQuotas(describe_client_quotas()),
        ALTER_CLIENT_QUOTAS => AlterClientQuotas(alter_client_quotas()),
        DESCRIBE_USER_SCRAM_CREDENTIALS => DescribeUserScramCredentials(describe_users()),
        ALTER_USER_SCRAM_CREDENTIALS => AlterUserScramCredentials(alter_users()),
        DESCRIBE_QUORUM => DescribeQuorum(describe_quorum()),
        UPDATE_FEATURES => UpdateFeatures(update_features(version)),
        UNREGISTER_BROKER => UnregisterBroker(
            UnregisterBrokerRequest::default().with_broker_id(BrokerId(7))
        ),
        DESCRIBE_TOPIC_PARTITIONS => DescribeTopicPartitions(describe_topic_partitions()),
    })
}

fn delete_records() -> DeleteRecordsRequest {
    let partition = delete_records_request::DeleteRecordsPartition::default()
        .with_partition_index(3)
        .with_offset(-1);
    let topic = delete_records_request::DeleteRecordsTopic::default()
        .with_name(name("topic"))
        .with_partitions(vec![partition.clone(), partition]);
    DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(9)
}

fn describe_acls() -> DescribeAclsRequest {
    DescribeAclsRequest::default()
        .with_resource_type_filter(2)
        .with_resource_name_filter(Some(text("topic")))
        .with_pattern_type_filter(4)
        .with_principal_filter(None)
        .with_host_filter(Some(text("*")))
        .with_operation(1)
        .with_permission_type(1)
}

fn create_acls() -> CreateAclsRequest {
    let creation = create_acls_request::AclCreation::default()
        .with_resource_type(2)
        .with_resource_name(text("topic"))
        .with_resource_pattern_type(4)
        .with_principal(text("User:u"))
        .with_host(text("*"))
        .with_operation(3)
        .with_permission_type(3);
    CreateAclsRequest::default().with_creations(vec![creation.clone(), creation])
}

fn delete_acls() -> DeleteAclsRequest {
    let filter = delete_acls_request::DeleteAclsFilter::default()
        .with_resource_type_filter(2)
        .with_resource_name_filter(Some(text("topic")))
        .with_pattern_type_filter(4)
        .with_principal_filter(Some(text("User:u")))
        .with_host_filter(None)
        .with_operation(1)
        .with_permission_type(1);
    DeleteAclsRequest::default().with_filters(vec![filter.clone(), filter])
}

fn alter_configs() -> AlterConfigsRequest {
    let config = alter_configs_request::AlterableConfig::default()
        .with_name(text("retention.ms"))
        .with_value(Some(text("5")));
    let none = config.clone().with_value(None);
    let resource = alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("topic"))
        .with_configs(vec![config, none]);
    AlterConfigsRequest::default().with_resources(vec![resource]).with_validate_only(true)
}

fn incremental_alter_configs() -> IncrementalAlterConfigsRequest {
    let config = incremental_alter_configs_request::AlterableConfig::default()
        .with_name(text("cleanup.policy"))
        .with_config_operation(2)
        .with_value(Some(text("compact")));
    let none = config.clone().with_config_operation(1).with_value(None);
    let resource = incremental_alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("topic"))
        .with_configs(vec![config, none]);
    IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
}

fn list_config_resources(version: i16) -> ListConfigResourcesRequest {
    let types = if version == 0 { Vec::new() } else { vec![2, 4, 16] };
    ListConfigResourcesRequest::default().with_resource_types(types)
}

fn alter_replica_log_dirs() -> AlterReplicaLogDirsRequest {
    let topic = alter_replica_log_dirs_request::AlterReplicaLogDirTopic::default()
        .with_name(name("topic"))
        .with_partitions(vec![0, 1]);
    let directory = alter_replica_log_dirs_request::AlterReplicaLogDir::default()
        .with_path(text("/elsewhere"))
        .with_topics(vec![topic]);
    AlterReplicaLogDirsRequest::default().with_dirs(vec![directory])
}

fn describe_log_dirs() -> DescribeLogDirsRequest {
    let topic = describe_log_dirs_request::DescribableLogDirTopic::default()
        .with_topic(name("topic"))
        .with_partitions(vec![0, 1]);
    DescribeLogDirsRequest::default().with_topics(Some(vec![topic]))
}

fn create_partitions() -> CreatePartitionsRequest {
    let assignment = create_partitions_request::CreatePartitionsAssignment::default()
        .with_broker_ids(vec![BrokerId(1)]);
    let topic = create_partitions_request::CreatePartitionsTopic::default()
        .with_name(name("topic"))
        .with_count(5);
    let assigned = topic.clone().with_assignments(Some(vec![assignment]));
    CreatePartitionsRequest::default()
        .with_topics(vec![topic.with_assignments(None), assigned])
        .with_timeout_ms(9)
        .with_validate_only(true)
}

fn elect_leaders(version: i16) -> ElectLeadersRequest {
    let topic = elect_leaders_request::TopicPartitions::default()
        .with_topic(name("topic"))
        .with_partitions(vec![0, 1]);
    ElectLeadersRequest::default()
        .with_election_type(i8::from(version >= 1))
        .with_topic_partitions(Some(vec![topic]))
        .with_timeout_ms(9)
}

fn alter_reassignments(version: i16) -> AlterPartitionReassignmentsRequest {
    let partition = alter_partition_reassignments_request::ReassignablePartition::default();
    let moved = partition.clone().with_replicas(Some(vec![BrokerId(1), BrokerId(2)]));
    let topic = alter_partition_reassignments_request::ReassignableTopic::default()
        .with_name(name("topic"))
        .with_partitions(vec![moved, partition.with_replicas(None)]);
    AlterPartitionReassignmentsRequest::default()
        .with_timeout_ms(9)
        .with_allow_replication_factor_change(version < 1)
        .with_topics(vec![topic])
}

fn list_reassignments() -> ListPartitionReassignmentsRequest {
    let topic = list_partition_reassignments_request::ListPartitionReassignmentsTopics::default()
        .with_name(name("topic"))
        .with_partition_indexes(vec![0, 1]);
    ListPartitionReassignmentsRequest::default().with_timeout_ms(9).with_topics(Some(vec![topic]))
}

fn describe_client_quotas() -> DescribeClientQuotasRequest {
    let component = describe_client_quotas_request::ComponentData::default()
        .with_entity_type(text("user"))
        .with_match(Some(text("u")));
    let default = describe_client_quotas_request::ComponentData::default()
        .with_entity_type(text("client-id"))
        .with_match_type(1)
        .with_match(None);
    DescribeClientQuotasRequest::default()
        .with_components(vec![component, default])
        .with_strict(true)
}

fn alter_client_quotas() -> AlterClientQuotasRequest {
    let part = alter_client_quotas_request::EntityData::default()
        .with_entity_type(text("client-id"))
        .with_entity_name(Some(text("c")));
    let operation = alter_client_quotas_request::OpData::default()
        .with_key(text("producer_byte_rate"))
        .with_value(1_000.0)
        .with_remove(false);
    let entry = alter_client_quotas_request::EntryData::default()
        .with_entity(vec![part.clone().with_entity_name(None), part])
        .with_ops(vec![operation.clone(), operation.with_remove(true)]);
    AlterClientQuotasRequest::default().with_entries(vec![entry]).with_validate_only(true)
}

fn describe_users() -> DescribeUserScramCredentialsRequest {
    let user = describe_user_scram_credentials_request::UserName::default().with_name(text("u"));
    DescribeUserScramCredentialsRequest::default().with_users(Some(vec![user]))
}

fn alter_users() -> AlterUserScramCredentialsRequest {
    let deletion = alter_user_scram_credentials_request::ScramCredentialDeletion::default()
        .with_name(text("gone"))
        .with_mechanism(1);
    let upsertion = alter_user_scram_credentials_request::ScramCredentialUpsertion::default()
        .with_name(text("u"))
        .with_mechanism(2)
        .with_iterations(4_096)
        .with_salt(Bytes::from_static(b"salt"))
        .with_salted_password(Bytes::from_static(b"password"));
    AlterUserScramCredentialsRequest::default()
        .with_deletions(vec![deletion])
        .with_upsertions(vec![upsertion])
}

fn describe_quorum() -> DescribeQuorumRequest {
    let partition = describe_quorum_request::PartitionData::default();
    let topic = describe_quorum_request::TopicData::default()
        .with_topic_name(name("__cluster_metadata"))
        .with_partitions(vec![partition]);
    DescribeQuorumRequest::default().with_topics(vec![topic])
}

fn update_features(version: i16) -> UpdateFeaturesRequest {
    let mut update = update_features_request::FeatureUpdateKey::default()
        .with_feature(text("metadata.version"))
        .with_max_version_level(1);
    if version == 0 {
        update.allow_downgrade = true;
    } else {
        update.upgrade_type = 2;
    }
    UpdateFeaturesRequest::default()
        .with_timeout_ms(9)
        .with_feature_updates(vec![update.clone(), update])
        .with_validate_only(version >= 1)
}

fn describe_topic_partitions() -> DescribeTopicPartitionsRequest {
    let topic = describe_topic_partitions_request::TopicRequest::default().with_name(name("topic"));
    let cursor = describe_topic_partitions_request::Cursor::default()
        .with_topic_name(name("topic"))
        .with_partition_index(3);
    DescribeTopicPartitionsRequest::default()
        .with_topics(vec![topic])
        .with_response_partition_limit(5)
        .with_cursor(Some(cursor))
}
