//! DescribeLogDirs (35), versions 1 to 5: sizes of this shard's partitions and of the file system.
//!
//! - A tool asks every broker, and each shard answers for its own partitions; the directory is the
//!   same for all of them.
//! - Null asks for all partitions.
//! - Sizes of the file system from version 4 on, whether the directory is cordoned from 5 on (it
//!   never is).

use std::collections::{HashMap, HashSet};
use std::path::Path;

use kafka_protocol::messages::describe_log_dirs_request::DescribeLogDirsRequest;
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResponse, DescribeLogDirsResult, DescribeLogDirsTopic,
};

use crate::broker::api::text;
use crate::broker::image::Topic;
use crate::broker::node::Node;
use crate::wire::StrBytes;
use crate::wire::error::ErrorCode;

/// Which partitions of each topic are asked for; `None` for all.
type Wanted = Option<HashMap<StrBytes, HashSet<i32>>>;

/// Answers a request.
pub async fn answer(node: &Node, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse {
    node.served().await;
    let wanted: Wanted = request.topics.map(|topics| {
        let mut wanted: HashMap<StrBytes, HashSet<i32>> = HashMap::new();
        for topic in topics {
            wanted.entry(topic.topic.0).or_default().extend(topic.partitions);
        }
        wanted
    });
    let image = node.image();
    let topics = image.topics().filter_map(|topic| describe(node, topic, &wanted));
    let directory = std::path::absolute(&node.shared.directory);
    let directory = directory.unwrap_or_else(|_| node.shared.directory.clone());
    let result = DescribeLogDirsResult::default()
        .with_log_dir(text(&directory.display().to_string()))
        .with_topics(topics.collect());
    let result = match space(&directory) {
        Ok((total, usable)) => result.with_total_bytes(total).with_usable_bytes(usable),
        Err(error) => {
            node.complain(|| format!("{}: {error}", directory.display()));
            result.with_error_code(ErrorCode::KafkaStorageError.to_wire())
        }
    };
    DescribeLogDirsResponse::default().with_results(vec![result])
}

fn describe(node: &Node, topic: &Topic, wanted: &Wanted) -> Option<DescribeLogDirsTopic> {
    let mut partitions = Vec::new();
    let name = text(topic.name.as_str());
    let of_topic = match wanted {
        Some(wanted) => Some(wanted.get(&name)?),
        None => None,
    };
    for number in topic.partitions() {
        let index = i32::try_from(number.0).expect("31 bits");
        let is_wanted = of_topic.is_none_or(|wanted| wanted.contains(&index));
        let Some(partition) = node.open_partition(topic.id, number).filter(|_| is_wanted) else {
            continue;
        };
        let size = i64::try_from(partition.size().0).unwrap_or(i64::MAX);
        partitions.push(
            DescribeLogDirsPartition::default()
                .with_partition_index(index)
                .with_partition_size(size),
        );
    }
    let name = kafka_protocol::messages::TopicName(name);
    let topic = DescribeLogDirsTopic::default().with_name(name).with_partitions(partitions);
    (!topic.partitions.is_empty()).then_some(topic)
}

/// Size of the file system and what of it an ordinary user may still fill, in bytes.
fn space(directory: &Path) -> std::io::Result<(i64, i64)> {
    let system = rustix::fs::statvfs(directory)?;
    let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(system.f_frsize));
    let bytes = |blocks| bytes(blocks).unwrap_or(i64::MAX);
    Ok((bytes(system.f_blocks), bytes(system.f_bavail)))
}
