//! AlterReplicaLogDirs (34), versions 1 and 2. There is one log directory: to be moved there is no
//! move, and there is no other (error 57).

use std::path::Path;

use kafka_protocol::messages::alter_replica_log_dirs_request::AlterReplicaLogDirsRequest;
use kafka_protocol::messages::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult, AlterReplicaLogDirsResponse,
};

use crate::broker::node::Node;
use crate::wire::error::ErrorCode;
use crate::wire::topics::TopicKey;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse {
    node.served().await;
    let own = std::path::absolute(&node.shared.directory);
    let mut results = Vec::new();
    for wanted in request.dirs {
        let path = Path::new(wanted.path.as_str());
        let is_own = own.as_ref().is_ok_and(|own| own == path) || path == node.shared.directory;
        for topic in wanted.topics {
            let found = node.topic(&TopicKey::Name(topic.name.0.clone()));
            let partitions = topic.partitions.iter().map(|index| {
                let error = match (&found, is_own) {
                    (_, false) => ErrorCode::LogDirNotFound,
                    (Err(code), true) => *code,
                    (Ok(topic), true) => match node.partition(topic, *index) {
                        Ok(_) => ErrorCode::None,
                        Err(it) if it.code == ErrorCode::NotLeaderOrFollower => {
                            ErrorCode::ReplicaNotAvailable
                        }
                        Err(it) => it.code,
                    },
                };
                AlterReplicaLogDirPartitionResult::default()
                    .with_partition_index(*index)
                    .with_error_code(error.to_wire())
            });
            let partitions = partitions.collect();
            results.push(
                AlterReplicaLogDirTopicResult::default()
                    .with_topic_name(topic.name)
                    .with_partitions(partitions),
            );
        }
    }
    AlterReplicaLogDirsResponse::default().with_results(results)
}
