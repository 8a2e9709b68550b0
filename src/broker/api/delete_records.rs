//! DeleteRecords (21), versions 0 to 2: the log starts of partitions advance.
//!
//! - Offset -1 means the high watermark; what lies beyond it is error 1.
//! - A topic that is only compacted is error 44, an internal one 17.
//! - Whole segments before the new start go with the next look of retention; what is left of the
//!   start is kept in `log-start-offset-checkpoint`.

use kafka_protocol::messages::delete_records_request::DeleteRecordsRequest;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsResponse, DeleteRecordsTopicResult,
};

use crate::broker::image::Topic;
use crate::broker::node::Node;
use crate::log::Cursors;
use crate::shard::Partition;
use crate::units::Offset;
use crate::wire::error::ErrorCode;
use crate::wire::topics::TopicKey;

/// The request's way to say "everything that consumers may read".
const HIGH_WATERMARK: i64 = -1;

/// Answers a request.
pub async fn answer(node: &Node, request: DeleteRecordsRequest) -> DeleteRecordsResponse {
    node.served().await;
    let topics = request.topics.into_iter().map(|wanted| {
        let topic = node.topic(&TopicKey::Name(wanted.name.0.clone()));
        let partitions = wanted.partitions.iter().map(|it| {
            let index = it.partition_index;
            let found = match &topic {
                Ok(topic) => find(node, topic, index),
                Err(code) => Err(*code),
            };
            let outcome = found.and_then(|partition| advance(&partition, it.offset));
            let result = DeleteRecordsPartitionResult::default().with_partition_index(index);
            match outcome {
                Ok(log_start) => result.with_low_watermark(log_start.to_wire()),
                Err(code) => result.with_low_watermark(-1).with_error_code(code.to_wire()),
            }
        });
        let partitions = partitions.collect();
        DeleteRecordsTopicResult::default().with_name(wanted.name).with_partitions(partitions)
    });
    DeleteRecordsResponse::default().with_topics(topics.collect())
}

fn find(node: &Node, topic: &Topic, index: i32) -> Result<Partition, ErrorCode> {
    if topic.name.is_internal() {
        return Err(ErrorCode::InvalidTopicException);
    }
    node.partition(topic, index).map_err(|not_here| not_here.code)
}

fn advance(partition: &Partition, offset: i64) -> Result<Offset, ErrorCode> {
    let policy = partition.config().cleanup_policy;
    if policy.compact && !policy.delete {
        return Err(ErrorCode::PolicyViolation);
    }
    let to = target(offset, &partition.cursors())?;
    partition.advance_log_start(to).map_err(|_| ErrorCode::OffsetOutOfRange)?;
    Ok(partition.cursors().log_start)
}

/// The offset that a request means.
fn target(offset: i64, cursors: &Cursors) -> Result<Offset, ErrorCode> {
    match offset {
        HIGH_WATERMARK => Ok(cursors.high_watermark),
        _ => Offset::from_wire(offset)
            .filter(|to| *to <= cursors.high_watermark)
            .ok_or(ErrorCode::OffsetOutOfRange),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_end_at_the_high_watermark() {
        let cursors = Cursors {
            log_start: Offset(10),
            high_watermark: Offset(20),
            log_end: Offset(30),
            next: Offset(30),
            durable_end: Offset(20),
            recovery_point: Offset(10),
        };
        let of = |offset| target(offset, &cursors);
        assert_eq!(of(-1), Ok(Offset(20)));
        assert_eq!(of(0), Ok(Offset(0)), "what is gone already is no error");
        assert_eq!(of(20), Ok(Offset(20)));
        for beyond in [-2, 21, i64::MAX, i64::MIN] {
            assert_eq!(of(beyond), Err(ErrorCode::OffsetOutOfRange), "{beyond}");
        }
    }
}
