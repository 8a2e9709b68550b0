//! One file per API: what a request means, what it is answered with, what differs by version.

pub mod api_versions;

pub mod metadata;

pub mod produce;

pub mod fetch;

mod fetch_end;

pub mod list_offsets;

pub mod offset_for_leader_epoch;

pub mod create_topics;

pub mod delete_topics;

pub mod describe_configs;

pub mod describe_cluster;

pub mod find_coordinator;

pub mod init_producer_id;

pub mod admin;

pub mod alter_client_quotas;

pub mod alter_configs;

pub mod alter_partition_reassignments;

pub mod alter_replica_log_dirs;

pub mod alter_user_scram_credentials;

pub mod create_acls;

pub mod create_partitions;

pub mod delete_acls;

pub mod delete_records;

pub mod describe_acls;

pub mod describe_client_quotas;

pub mod describe_log_dirs;

pub mod describe_quorum;

pub mod describe_topic_partitions;

pub mod describe_user_scram_credentials;

pub mod elect_leaders;

pub mod incremental_alter_configs;

pub mod list_config_resources;

pub mod list_partition_reassignments;

pub mod sasl_authenticate;

pub mod sasl_handshake;

pub mod unregister_broker;

pub mod update_features;

mod transactions;

pub mod add_partitions_to_txn;

pub mod add_offsets_to_txn;

pub mod end_txn;

pub mod txn_offset_commit;

pub mod write_txn_markers;

pub mod describe_transactions;

pub mod list_transactions;

pub mod describe_producers;

mod groups;

pub mod join_group;

pub mod sync_group;

pub mod heartbeat;

pub mod leave_group;

pub mod consumer_group_heartbeat;

pub mod consumer_group_describe;

pub mod offset_commit;

pub mod offset_fetch;

pub mod describe_groups;

pub mod list_groups;

pub mod delete_groups;

pub mod offset_delete;

pub(super) use groups::client;

use std::collections::HashSet;
use std::hash::Hash;

use kafka_protocol::messages;

use crate::broker::node::Node;
use crate::format::names::{TOPIC_NAME_BYTES_MAX, TopicName};
use crate::units::BrokerId;
use crate::wire::StrBytes;
use crate::wire::topics::{CurrentLeader, NodeEndpoint};

/// What a client sees that didn't ask for, or can't be told, what it may do.
const AUTHORIZED_OPERATIONS_NONE: i32 = crate::wire::control::NO_AUTHORIZED_OPERATIONS;

/// What may be done with each kind of resource: everything there is, as nobody watches (Kafka's
/// `AclEntry.supportedOperations`). Bits by `AclOperation`: READ is 3, WRITE 4, CREATE 5, DELETE 6,
/// ALTER 7, DESCRIBE 8, CLUSTER_ACTION 9, DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11, IDEMPOTENT_WRITE
/// 12.
const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;
const GROUP_OPERATIONS: i32 = 0b1101_0100_1000;
const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;

/// One of these, if the client asked for it.
fn operations(is_asked: bool, all: i32) -> i32 {
    if is_asked { all } else { AUTHORIZED_OPERATIONS_NONE }
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// A list without what stands in it again. What asks for a description takes a few bytes, and the
/// description as many as there are to tell: no request may multiply them.
fn once<T: Clone + Eq + Hash>(listed: Vec<T>) -> Vec<T> {
    let mut seen = HashSet::with_capacity(listed.len());
    listed.into_iter().filter(|it| seen.insert(it.clone())).collect()
}

/// A name as messages show it that stand at each of its partitions: what is longer is no topic's.
fn shown(name: &str) -> &str {
    &name[..name.floor_char_boundary(TOPIC_NAME_BYTES_MAX)]
}

fn topic_name(name: &TopicName) -> messages::TopicName {
    messages::TopicName(text(name.as_str()))
}

fn broker_id(id: BrokerId) -> messages::BrokerId {
    messages::BrokerId(id.0)
}

/// Where the leaders that an answer names can be reached, each once.
fn endpoints(node: &Node, leaders: impl Iterator<Item = CurrentLeader>) -> Vec<NodeEndpoint> {
    let mut nodes: Vec<NodeEndpoint> = Vec::new();
    for leader in leaders {
        if !nodes.iter().any(|known| known.id == leader.id) {
            nodes.extend(node.shared.brokers.endpoint(leader.id));
        }
    }
    nodes
}
