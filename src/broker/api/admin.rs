//! Which API answers which of an administrator's requests.

use bytes::Bytes;

use crate::broker::api::{
    alter_client_quotas, alter_configs, alter_partition_reassignments, alter_replica_log_dirs,
    alter_user_scram_credentials, create_acls, create_partitions, delete_acls, delete_records,
    describe_acls, describe_client_quotas, describe_log_dirs, describe_quorum,
    describe_topic_partitions, describe_user_scram_credentials, elect_leaders,
    incremental_alter_configs, list_config_resources, list_partition_reassignments,
    sasl_authenticate, sasl_handshake, unregister_broker, update_features,
};
use crate::broker::node::Node;
use crate::wire::admin::{self, AdminRequest as Admin};
use crate::wire::control;
use crate::wire::error::WireError;
use crate::wire::frame::RequestHeader;

/// Answers a request.
///
/// # Errors
/// As [`control::encode`].
pub async fn answer(
    node: &Node,
    header: &RequestHeader,
    request: Admin,
) -> Result<Bytes, WireError> {
    let version = header.version;
    /// An answer that takes nothing but the node and the request.
    macro_rules! by {
        ($api:ident, $request:expr) => {
            control::encode(header, $api::answer(node, $request).await)
        };
    }
    match request {
        Admin::DescribeLogDirs(request) => {
            admin::encode_log_dirs(header, describe_log_dirs::answer(node, request).await)
        }
        Admin::DeleteRecords(request) => by!(delete_records, request),
        Admin::AlterConfigs(request) => by!(alter_configs, request),
        Admin::IncrementalAlterConfigs(request) => by!(incremental_alter_configs, request),
        Admin::AlterReplicaLogDirs(request) => by!(alter_replica_log_dirs, request),
        Admin::CreatePartitions(request) => by!(create_partitions, request),
        Admin::ElectLeaders(request) => by!(elect_leaders, request),
        Admin::AlterPartitionReassignments(request) => by!(alter_partition_reassignments, request),
        Admin::DescribeClientQuotas(request) => by!(describe_client_quotas, request),
        Admin::AlterClientQuotas(request) => by!(alter_client_quotas, request),
        Admin::DescribeUserScramCredentials(request) => {
            by!(describe_user_scram_credentials, request)
        }
        Admin::AlterUserScramCredentials(request) => by!(alter_user_scram_credentials, request),
        Admin::DescribeQuorum(request) => by!(describe_quorum, request),
        Admin::DescribeTopicPartitions(request) => by!(describe_topic_partitions, request),
        Admin::SaslHandshake(_) => control::encode(header, sasl_handshake::answer()),
        Admin::SaslAuthenticate(_) => control::encode(header, sasl_authenticate::answer()),
        Admin::DescribeAcls(_) => control::encode(header, describe_acls::answer()),
        Admin::CreateAcls(request) => control::encode(header, create_acls::answer(&request)),
        Admin::DeleteAcls(request) => control::encode(header, delete_acls::answer(&request)),
        Admin::ListConfigResources(request) => {
            control::encode(header, list_config_resources::answer(node, request, version).await)
        }
        Admin::ListPartitionReassignments(_) => {
            control::encode(header, list_partition_reassignments::answer())
        }
        Admin::UpdateFeatures(request) => {
            control::encode(header, update_features::answer(node, request, version).await)
        }
        Admin::UnregisterBroker(request) => {
            control::encode(header, unregister_broker::answer(&node.shared, &request))
        }
    }
}
