//! TxnOffsetCommit (28), versions 0 to 5: offsets of a group that count when the producer's
//! transaction is committed.
//!
//! - The group's partition of `__consumer_offsets` has to belong to the transaction: up to version
//!   4 by AddOffsetsToTxn, from version 5 on this request adds it (transaction version 2).
//! - A topic or partition that isn't there is UNKNOWN_TOPIC_OR_PARTITION; the others are committed
//!   all the same.
//! - From version 3 on the consumer names itself as a member of the group, and is fenced like one.
//! - A partition that the transaction doesn't have is TRANSACTION_ABORTABLE from version 4 on,
//!   INVALID_TXN_STATE before; COORDINATOR_LOAD_IN_PROGRESS is COORDINATOR_NOT_AVAILABLE before
//!   version 2, whose clients don't know it (KAFKA-7296).

use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponse, TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};

use crate::broker::api::groups;
use crate::broker::api::transactions::{Joining, existing, members, producer};
use crate::broker::coordinators::{Kind, find, internal_topic};
use crate::broker::node::Node;
use crate::coordinator::group::request::{NewOffset, TransactionalCommit};
use crate::coordinator::group::{Answer, Request};
use crate::coordinator::transactions::{TopicPartition, TransactionalId};
use crate::units::TopicId;
use crate::wire::error::ErrorCode;

/// First version whose clients know COORDINATOR_LOAD_IN_PROGRESS.
const LOADING_FROM: i16 = 2;

/// First version whose clients know TRANSACTION_ABORTABLE.
const ABORTABLE_FROM: i16 = 4;

/// First version that adds the group's partition to the transaction.
const ADDS_FROM: i16 = 5;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: TxnOffsetCommitRequest,
    version: i16,
) -> TxnOffsetCommitResponse {
    node.served().await;
    let mut offsets = Vec::new();
    let look_up = |topic| look_up(node, topic, &mut offsets);
    let mut topics: Vec<_> = request.topics.iter().map(look_up).collect();
    let outcomes = match offsets.is_empty() {
        true => Vec::new(),
        false => commit(node, &request, (version, offsets)).await,
    };
    let mut outcomes = outcomes.into_iter();
    for partition in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        if partition.error_code == PENDING {
            let code = outcomes.next().expect("every offset has its outcome");
            partition.error_code = as_sent(code, version).to_wire();
        }
    }
    TxnOffsetCommitResponse::default().with_topics(topics)
}

/// Stands for an outcome that the coordinator decides; no error has this number.
const PENDING: i16 = i16::MAX;

/// The answer to a topic as far as the image decides it; what it doesn't goes to `offsets`.
fn look_up(
    node: &Node,
    wanted: &TxnOffsetCommitRequestTopic,
    offsets: &mut Vec<NewOffset>,
) -> TxnOffsetCommitResponseTopic {
    let topic = wanted.name.0.as_str();
    let of_partition = |partition: &TxnOffsetCommitRequestPartition| {
        let index = partition.partition_index;
        let error_code = match existing(node, topic, index) {
            Some(_) => {
                offsets.push(new_offset(topic, partition));
                PENDING
            }
            None => ErrorCode::UnknownTopicOrPartition.to_wire(),
        };
        TxnOffsetCommitResponsePartition::default()
            .with_partition_index(index)
            .with_error_code(error_code)
    };
    TxnOffsetCommitResponseTopic::default()
        .with_name(wanted.name.clone())
        .with_partitions(wanted.partitions.iter().map(of_partition).collect())
}

fn new_offset(topic: &str, partition: &TxnOffsetCommitRequestPartition) -> NewOffset {
    NewOffset {
        topic: topic.to_owned(),
        topic_id: TopicId::ZERO,
        partition: partition.partition_index,
        offset: partition.committed_offset,
        leader_epoch: partition.committed_leader_epoch,
        metadata: groups::kept(partition.committed_metadata.clone()),
    }
}

/// The outcome of each offset.
async fn commit(
    node: &Node,
    request: &TxnOffsetCommitRequest,
    (version, offsets): (i16, Vec<NewOffset>),
) -> Vec<ErrorCode> {
    let count = offsets.len();
    if let Err(code) = join(node, request, version).await {
        return vec![code; count];
    }
    let group = request.group_id.0.as_str();
    let member = (&request.member_id, request.group_instance_id.clone());
    let producer = producer(request.producer_id.0, request.producer_epoch);
    let commit = TransactionalCommit {
        identity: groups::identity(group, member, request.generation_id),
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        offsets,
    };
    // Nothing is awaited between the last look at the partition and the append.
    match node.coordinators.groups.ask(node, group, Request::CommitTransactional(commit)).await {
        Ok(Answer::Commit(Ok(outcomes))) => {
            let code = |it: Result<_, _>| it.err().map_or(ErrorCode::None, groups::code);
            outcomes.into_iter().map(code).collect()
        }
        Ok(Answer::Commit(Err(error))) => vec![groups::code(error); count],
        Ok(_) => unreachable!("a commit is answered as one"),
        Err(code) => vec![code; count],
    }
}

/// Sees to it that the group's partition belongs to the transaction.
async fn join(
    node: &Node,
    request: &TxnOffsetCommitRequest,
    version: i16,
) -> Result<(), ErrorCode> {
    let group = request.group_id.0.as_str();
    if group.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let producer = producer(request.producer_id.0, request.producer_epoch);
    let topic = internal_topic::get(node, Kind::Groups).ok_or(ErrorCode::NotCoordinator)?;
    let number = find::partition_of(&topic, group);
    let open = node.open_partition(topic.id, number).ok_or(ErrorCode::NotCoordinator)?;
    let before = open.standing(producer.id);
    if before.is_some_and(|it| it.is_open && it.epoch == producer.epoch) {
        return Ok(());
    }
    let id: TransactionalId = request.transactional_id.0.as_str().into();
    let joining = match version {
        ..ADDS_FROM => Joining::Asking,
        ADDS_FROM.. => Joining::Writing,
    };
    let name = TopicPartition { topic: topic.name.clone(), partition: number };
    let found = members(node, (&id, producer), &[name.clone()].into(), joining).await?;
    if !found.contains(&name) {
        return Err(ErrorCode::TransactionAbortable);
    }
    // The transaction may have been ended meanwhile, and the coordinator's word counts no longer.
    match open.standing(producer.id) == before {
        true => Ok(()),
        false => Err(ErrorCode::InvalidTxnState),
    }
}

/// In codes that the client understands.
fn as_sent(code: ErrorCode, version: i16) -> ErrorCode {
    match code {
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        ErrorCode::TransactionAbortable if version < ABORTABLE_FROM => ErrorCode::InvalidTxnState,
        ErrorCode::CoordinatorLoadInProgress if version < LOADING_FROM => {
            ErrorCode::CoordinatorNotAvailable
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_hear_what_they_understand() {
        let check = |code, version, expected| {
            assert_eq!(as_sent(code, version), expected, "{code} {version}");
        };
        check(ErrorCode::ProducerFenced, 5, ErrorCode::InvalidProducerEpoch);
        check(ErrorCode::TransactionAbortable, 3, ErrorCode::InvalidTxnState);
        check(ErrorCode::TransactionAbortable, 4, ErrorCode::TransactionAbortable);
        check(ErrorCode::CoordinatorLoadInProgress, 1, ErrorCode::CoordinatorNotAvailable);
        check(ErrorCode::CoordinatorLoadInProgress, 2, ErrorCode::CoordinatorLoadInProgress);
        check(ErrorCode::UnknownMemberId, 5, ErrorCode::UnknownMemberId);
    }
}
