//! OffsetForLeaderEpoch (23), versions 2 to 4: where a leader epoch ends in our log, so that a
//! client finds out whether records that it has read were lost.

use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};

use crate::broker::api::fetch::check_epoch;
use crate::broker::node::Node;
use crate::shard::Partition;
use crate::units::{LeaderEpoch, Offset};
use crate::wire::error::ErrorCode;
use crate::wire::topics::TopicKey;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    node.served().await;
    let mut topics = Vec::with_capacity(request.topics.len());
    for wanted in request.topics {
        let topic = node.topic(&TopicKey::Name(wanted.topic.0.clone()));
        let ends = wanted.partitions.iter().map(|wanted| {
            let partition = match &topic {
                Ok(topic) => node.partition(topic, wanted.partition).map_err(|it| it.code),
                Err(code) => Err(*code),
            };
            let end = partition.and_then(|partition| look(&partition, wanted));
            describe(wanted.partition, end)
        });
        let partitions = ends.collect();
        let topic = OffsetForLeaderTopicResult::default().with_topic(wanted.topic);
        topics.push(topic.with_partitions(partitions));
    }
    OffsetForLeaderEpochResponse::default().with_topics(topics)
}

fn look(
    partition: &Partition,
    wanted: &OffsetForLeaderPartition,
) -> Result<(LeaderEpoch, Option<Offset>), ErrorCode> {
    check_epoch(LeaderEpoch(wanted.current_leader_epoch), partition.leader_epoch())?;
    Ok(partition.end_offset_for_epoch(LeaderEpoch(wanted.leader_epoch)))
}

fn describe(
    partition: i32,
    end: Result<(LeaderEpoch, Option<Offset>), ErrorCode>,
) -> EpochEndOffset {
    let answer = EpochEndOffset::default()
        .with_partition(partition)
        .with_leader_epoch(-1)
        .with_end_offset(-1);
    match end {
        Ok((epoch, end)) => {
            answer.with_leader_epoch(epoch.0).with_end_offset(end.map_or(-1, Offset::to_wire))
        }
        Err(code) => answer.with_error_code(code.to_wire()),
    }
}
