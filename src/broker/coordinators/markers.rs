//! The markers of a decided transaction: to every partition of it, on whichever shard that is,
//! again and again until each has its own; then the transaction is over.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use crate::broker::coordinators::internal_topic::{self, Kind};
use crate::broker::coordinators::transactions::Round;
use crate::broker::errors;
use crate::broker::node::Node;
use crate::broker::peers::Marked;
use crate::broker::placement::shard_of;
use crate::coordinator::group;
use crate::coordinator::transactions::{MarkersDue, Request, TopicPartition};
use crate::log::producers::Marker;
use crate::units::{LeaderEpoch, PartitionId};
use crate::wire::error::ErrorCode;

/// Time between two tries.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A marker that has been appended, and will be durable.
pub type UnderWay = Vec<(TopicPartition, Pin<Box<dyn Future<Output = Result<(), ErrorCode>>>>)>;

/// Writes all markers of a decided transaction, then its last record.
pub async fn finish(round: Round, coordinator: PartitionId, due: MarkersDue) {
    let node = round.node().clone();
    let marker = due.marker(coordinator_epoch(&node, coordinator));
    let mut left = due.partitions.clone();
    while round.is_current() {
        let marked = write(&node, &marker, std::mem::take(&mut left)).await;
        let is_over = |(it, outcome): &Marked| is_settled(&node, &due, it, *outcome);
        let (done, again): (Vec<_>, Vec<_>) = marked.into_iter().partition(is_over);
        left = again.into_iter().map(|(it, _)| it).collect();
        if left.is_empty() {
            break;
        }
        // Whoever describes the transaction sees what is left.
        let partitions = done.into_iter().map(|(it, _)| it).collect();
        let request = Request::Marked { id: due.id.clone(), partitions };
        let _ = node.coordinators.transactions.ask_partition(coordinator, request).await;
        tokio::time::sleep(AGAIN_AFTER).await;
    }
    while round.is_current() {
        let request = Request::Finish(due.complete.clone());
        match node.coordinators.transactions.ask_partition(coordinator, request).await {
            // The topic is gone, and the transactions with it.
            Ok(_) | Err(ErrorCode::NotCoordinator) => return,
            // When the coordinator has been loaded again the markers are somebody else's.
            Err(_) => tokio::time::sleep(AGAIN_AFTER).await,
        }
    }
}

/// The leader epoch of the coordinator's partition.
fn coordinator_epoch(node: &Node, partition: PartitionId) -> LeaderEpoch {
    let topic = internal_topic::get(node, Kind::Transactions);
    let open = topic.and_then(|topic| node.open_partition(topic.id, partition));
    open.map_or(LeaderEpoch(0), |open| open.leader_epoch())
}

/// Whether nothing more is to be done for a partition.
fn is_settled(
    node: &Node,
    due: &MarkersDue,
    partition: &TopicPartition,
    outcome: Result<(), ErrorCode>,
) -> bool {
    match outcome {
        Ok(()) => true,
        // The partition knows of a later epoch: this transaction is over there. Kafka gives the
        // whole transaction up until the coordinator is loaded again.
        Err(code @ (ErrorCode::InvalidProducerEpoch | ErrorCode::TransactionCoordinatorFenced)) => {
            tracing::warn!("transaction {:?}: marker for {partition}: {code}", due.id);
            true
        }
        Err(ErrorCode::UnknownTopicOrPartition) => {
            tracing::info!("transaction {:?}: {partition} has been deleted", due.id);
            true
        }
        Err(code) => {
            node.mention(|| format!("transaction {:?}: marker for {partition}: {code}", due.id));
            false
        }
    }
}

/// Writes a marker to partitions of any shard.
async fn write(node: &Rc<Node>, marker: &Marker, partitions: Vec<TopicPartition>) -> Vec<Marked> {
    let mut marked = Vec::with_capacity(partitions.len());
    let mut shards: BTreeMap<usize, Vec<TopicPartition>> = BTreeMap::new();
    for partition in partitions {
        match shard_of_partition(node, &partition) {
            Some(shard) => shards.entry(shard).or_default().push(partition),
            None => marked.push((partition, Err(ErrorCode::UnknownTopicOrPartition))),
        }
    }
    // All are under way at the same time.
    let own = append(node, marker, shards.remove(&node.shard).unwrap_or_default());
    let mut others = Vec::with_capacity(shards.len());
    for (shard, partitions) in shards {
        let (peers, marker, asked) = (node.peers.clone(), *marker, partitions.clone());
        let task = tokio::task::spawn_local(async move { peers.mark(shard, marker, asked).await });
        others.push((task, partitions));
    }
    marked.extend(reached(own).await);
    for (task, partitions) in others {
        match task.await {
            Ok(Ok(more)) => marked.extend(more),
            Ok(Err(_)) | Err(_) => {
                let stopped = |it| (it, Err(ErrorCode::NotLeaderOrFollower));
                marked.extend(partitions.into_iter().map(stopped));
            }
        }
    }
    marked
}

fn shard_of_partition(node: &Node, it: &TopicPartition) -> Option<usize> {
    let image = node.image();
    let topic = image.topic(it.topic.as_str())?;
    topic.leader_epoch(it.partition)?;
    Some(shard_of(topic.id, it.partition, node.shared.shards))
}

/// Appends a marker to partitions of this shard, now; [`reached`] waits for them.
pub fn append(node: &Rc<Node>, marker: &Marker, partitions: Vec<TopicPartition>) -> UnderWay {
    partitions.into_iter().map(|it| (it.clone(), append_one(node, marker, &it))).collect()
}

fn append_one(
    node: &Rc<Node>,
    marker: &Marker,
    it: &TopicPartition,
) -> Pin<Box<dyn Future<Output = Result<(), ErrorCode>>>> {
    if it.topic.as_str() == Kind::Groups.topic_name() {
        return Box::pin(tell_groups(node.clone(), *marker, it.partition));
    }
    let image = node.image();
    let topic = image.topic(it.topic.as_str()).ok_or(ErrorCode::UnknownTopicOrPartition);
    let number = i32::try_from(it.partition.0).unwrap_or(i32::MAX);
    let found =
        topic.and_then(|topic| node.partition(topic, number).map_err(|not_here| not_here.code));
    let appended = found.and_then(|partition| {
        let appended = partition.append_marker(marker).map_err(|error| errors::of_append(&error));
        Ok(partition.reached(appended?.due))
    });
    Box::pin(async move { appended?.await.map_err(|error| errors::of_append(&error)) })
}

/// A marker for a partition of `__consumer_offsets` goes by its coordinator, which learns that the
/// producer's offsets count. One that isn't ready is NOT_LEADER_OR_FOLLOWER, as in Kafka: whoever
/// writes the marker tries again.
async fn tell_groups(
    node: Rc<Node>,
    marker: Marker,
    partition: PartitionId,
) -> Result<(), ErrorCode> {
    let topic = internal_topic::get(&node, Kind::Groups);
    if topic.is_none_or(|topic| topic.leader_epoch(partition).is_none()) {
        return Err(ErrorCode::UnknownTopicOrPartition);
    }
    let request = group::Request::EndTransaction(marker);
    match node.coordinators.groups.ask_partition(partition, request).await {
        Ok(_) => Ok(()),
        Err(
            ErrorCode::CoordinatorNotAvailable
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::NotCoordinator,
        ) => Err(ErrorCode::NotLeaderOrFollower),
        Err(code) => Err(code),
    }
}

/// Waits until markers are as durable as their partitions promise.
pub async fn reached(under_way: UnderWay) -> Vec<Marked> {
    let mut marked = Vec::with_capacity(under_way.len());
    for (partition, outcome) in under_way {
        marked.push((partition, outcome.await));
    }
    marked
}
