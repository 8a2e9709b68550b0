//! Produce (0), versions 3 to 13 (advertised from 0, see the version table).
//!
//! - The batches are appended before the call returns; the answer waits until all of them are as
//!   durable as their partitions promise, for acks 1 and -1 alike.
//! - acks 0 is answered by nothing, and by the end of the connection when anything fails: the
//!   client then asks for metadata anew.
//! - Topics by id from version 13. A partition of another shard is error 6, with its leader from
//!   version 10 on.
//! - Internal topics are INVALID_TOPIC_EXCEPTION to all but the client that calls itself
//!   `__admin_client`, as in Kafka (`ReplicaManager#appendRecordsToLeader`).
//! - zstd needs version 7, or it is error 76.

use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use smallvec::SmallVec;

use crate::broker::api::endpoints;
use crate::broker::errors;
use crate::broker::node::{Node, NotHere};
use crate::format::batch::{Codec, RecordBatch};
use crate::log::{AppendError, Appended};
use crate::shard::{Answer, Partition, Reached, Reply};
use crate::wire::error::ErrorCode;
use crate::wire::frame::RequestHeader;
use crate::wire::produce::{
    PartitionAnswer, ProduceAnswer, ProduceFrame, ProducePartition, RecordError,
};
use crate::wire::topics::TopicGroups;

/// First version whose batches may be compressed with zstd.
const ZSTD_FROM: i16 = 7;

/// The one client that may write to internal topics (`AdminUtils.ADMIN_CLIENT_ID`).
const ADMIN_CLIENT_ID: &str = "__admin_client";

/// A partition's part of the answer, and what it waits for.
struct Pending {
    answer: PartitionAnswer,
    due: Option<Reached>,
}

/// Nearly every request is for one or two partitions.
type Pendings = SmallVec<[Pending; 2]>;

type Answers = SmallVec<[PartitionAnswer; 2]>;

/// Appends the batches of a request.
pub fn answer(node: &Rc<Node>, header: RequestHeader, body: BytesMut) -> Reply {
    let frame = match ProduceFrame::walk(body, header.version) {
        Ok(frame) => frame,
        Err(error) => return Reply::Ready(Answer::Close(format!("Produce: {error}"))),
    };
    let (acks, timeout_ms) = (frame.acks, frame.timeout_ms);
    let (topics, pendings) = if (-1..=1).contains(&acks) {
        append(node, &header, frame)
    } else {
        refuse_all(frame, ErrorCode::InvalidRequiredAcks)
    };
    if acks == 0 {
        return silent(pendings);
    }
    let node = node.clone();
    Reply::Later(Box::pin(async move {
        let (answers, late) = reached(pendings, timeout_ms).await;
        match encode(&node, header, &topics, &answers) {
            Answer::Parts(parts) if !late.is_empty() => {
                Answer::Early(parts, Box::pin(all_over(late)))
            }
            answer => answer,
        }
    }))
}

/// What acks 0 is answered with: nothing, but not before the batches are as durable as they are to
/// be. Until then the frame counts against the connection's and the shard's limits, or a producer
/// that is faster than the disk would fill the memory.
fn silent(pendings: Pendings) -> Reply {
    Reply::Later(Box::pin(async move {
        let mut failure = None;
        for Pending { answer, due } in pendings {
            let failed = |error: &dyn std::fmt::Display| unanswered(answer.index, error);
            if !answer.error.is_none() {
                failure.get_or_insert_with(|| failed(&answer.error));
            }
            if let Some(reached) = due
                && let Err(error) = reached.await
            {
                failure.get_or_insert_with(|| failed(&error));
            }
        }
        failure.unwrap_or(Answer::Nothing)
    }))
}

/// How a producer that waits for no answer learns of a failure.
fn unanswered(partition: i32, error: &dyn std::fmt::Display) -> Answer {
    Answer::Close(format!("Produce with acks=0 failed for partition {partition}: {error}"))
}

fn refuse_all(frame: ProduceFrame, error: ErrorCode) -> (TopicGroups, Pendings) {
    let refused = |partition: ProducePartition| Pending {
        answer: PartitionAnswer::refused(partition.index, error),
        due: None,
    };
    (frame.topics, frame.partitions.into_iter().map(refused).collect())
}

fn append(node: &Node, header: &RequestHeader, frame: ProduceFrame) -> (TopicGroups, Pendings) {
    let by_admin = header.client_id.as_deref() == Some(ADMIN_CLIENT_ID);
    let mut pendings = Pendings::with_capacity(frame.partitions.len());
    let mut partitions = frame.partitions.into_iter();
    for group in &frame.topics {
        let topic = node.topic(&group.key);
        for ProducePartition { index, batch } in partitions.by_ref().take(group.partitions) {
            let found = match &topic {
                Ok(topic) if topic.name.is_internal() && !by_admin => {
                    Err(NotHere::from(ErrorCode::InvalidTopicException))
                }
                Ok(topic) => node.partition(topic, index),
                Err(code) => Err(NotHere::from(*code)),
            };
            pendings.push(match found {
                Ok(partition) => append_one(node, (partition, index), header.version, batch),
                Err(not_here) => refused(index, not_here),
            });
        }
    }
    (frame.topics, pendings)
}

fn refused(index: i32, not_here: NotHere) -> Pending {
    let answer = PartitionAnswer::refused(index, not_here.code);
    Pending { answer: PartitionAnswer { leader: not_here.leader, ..answer }, due: None }
}

fn append_one(
    node: &Node,
    (partition, index): (Partition, i32),
    version: i16,
    batch: BytesMut,
) -> Pending {
    let batch = RecordBatch::decode(batch).map_err(AppendError::from);
    let is_zstd = batch.as_ref().is_ok_and(|it| it.header().codec() == Ok(Codec::Zstd));
    if is_zstd && version < ZSTD_FROM {
        return Pending { answer: zstd_refused(index, version), due: None };
    }
    let batch = batch.and_then(check_transaction);
    match batch.and_then(|batch| partition.append(batch)) {
        Ok(appended) => {
            let answer = accepted(index, &appended);
            Pending { answer, due: Some(partition.reached(appended.due)) }
        }
        Err(error) => {
            node.complain(|| format!("{}: {error}", partition.directory().display()));
            Pending { answer: failed(index, &error), due: None }
        }
    }
}

fn zstd_refused(index: i32, version: i16) -> PartitionAnswer {
    let message = format!(
        "zstd needs Produce version {ZSTD_FROM}, this request has {version}; use a newer client"
    );
    PartitionAnswer {
        message: Some(message),
        ..PartitionAnswer::refused(index, ErrorCode::UnsupportedCompressionType)
    }
}

/// What this broker doesn't do yet.
fn check_transaction(batch: RecordBatch) -> Result<RecordBatch, AppendError> {
    let header = batch.header();
    if header.is_transactional() {
        return Err(AppendError::InvalidTxnState {
            producer_id: header.producer_id,
            message: "transactions are not supported yet; produce without a transactional id",
        });
    }
    Ok(batch)
}

fn accepted(index: i32, appended: &Appended) -> PartitionAnswer {
    PartitionAnswer {
        index,
        error: ErrorCode::None,
        base_offset: appended.base_offset.to_wire(),
        log_append_time: appended.log_append_time.0,
        log_start: appended.log_start.to_wire(),
        record_errors: Vec::new(),
        message: None,
        leader: None,
    }
}

fn failed(index: i32, error: &AppendError) -> PartitionAnswer {
    let record_errors = error.record_errors().iter().map(|record| RecordError {
        batch_index: i32::try_from(record.batch_index).unwrap_or(i32::MAX),
        message: Some(record.message.clone()),
    });
    PartitionAnswer {
        record_errors: record_errors.collect(),
        message: Some(error.to_string()),
        ..PartitionAnswer::refused(index, errors::of_append(error))
    }
}

/// Waits until everything appended is due, or the client's patience ends: what isn't due then is
/// answered by REQUEST_TIMED_OUT, and may be durable all the same; it comes back, too.
async fn reached(mut pendings: Pendings, timeout_ms: i32) -> (Answers, Vec<Reached>) {
    let patience = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    let all = async {
        for Pending { answer, due } in &mut pendings {
            if let Some(reached) = due
                && let Err(error) = reached.await
            {
                *answer = failed(answer.index, &error);
            }
            *due = None;
        }
    };
    // What the patience did not last for still says what it waits for.
    let _ = tokio::time::timeout(patience, all).await;
    let mut late = Vec::new();
    let settled = |Pending { answer, due }: Pending| {
        let Some(reached) = due else { return answer };
        match reached.outcome() {
            Some(Ok(())) => answer,
            Some(Err(error)) => failed(answer.index, &error),
            None => {
                late.push(reached);
                PartitionAnswer::refused(answer.index, ErrorCode::RequestTimedOut)
            }
        }
    };
    (pendings.into_iter().map(settled).collect(), late)
}

/// Waits until the batches that a timed-out request left behind are out of memory: nobody hears
/// whether they made it.
async fn all_over(late: Vec<Reached>) {
    for reached in late {
        let _ = reached.await;
    }
}

fn encode(
    node: &Node,
    header: RequestHeader,
    topics: &TopicGroups,
    partitions: &[PartitionAnswer],
) -> Answer {
    let leaders = partitions.iter().filter_map(|partition| partition.leader);
    let nodes = endpoints(node, leaders);
    let answer = ProduceAnswer {
        version: header.version,
        correlation_id: header.correlation_id,
        topics,
        partitions,
        nodes: &nodes,
        throttle_ms: 0,
    };
    match answer.encode() {
        Ok(frame) => Answer::bytes(frame.freeze()),
        Err(error) => Answer::Close(format!("Produce: {error}")),
    }
}
