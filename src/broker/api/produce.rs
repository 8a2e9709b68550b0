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
//! - Batches of a transaction go by `vouch`: the first one for a partition waits for the word of
//!   the transaction's coordinator, and those behind it on the connection wait with it. Without a
//!   transactional id they are error 53.

mod vouch;

use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use smallvec::SmallVec;

use self::vouch::{Question, Vouched};
use crate::broker::api::endpoints;
use crate::broker::errors::{self, Refusal};
use crate::broker::node::{Node, NotHere};
use crate::coordinator::transactions::TopicPartition;
use crate::format::batch::{BatchHeader, Codec, RecordBatch};
use crate::format::names::TopicName;
use crate::log::{AppendError, Appended};
use crate::shard::{Answer, Partition, Reached, Reply};
use crate::units::PartitionId;
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
pub fn answer(
    node: &Rc<Node>,
    (header, throttle_ms): (RequestHeader, i32),
    body: BytesMut,
) -> Reply {
    let frame = match ProduceFrame::walk(body, header.version) {
        Ok(frame) => frame,
        Err(error) => return Reply::Ready(Answer::Close(format!("Produce: {error}"))),
    };
    let node = node.clone();
    let asked = Asked { header, throttle_ms, acks: frame.acks, timeout_ms: frame.timeout_ms };
    if !(-1..=1).contains(&frame.acks) {
        let refused = refuse_all(frame, ErrorCode::InvalidRequiredAcks);
        return Reply::Later(Box::pin(asked.answer(node, refused)));
    }
    let appended = match Question::of(&node, asked.header.version, &frame) {
        Ok(Some(question)) => {
            return Reply::Unsettled(Box::pin(async move {
                let vouched = question.put(&node).await;
                let appended = append(&node, &asked.header, frame, &vouched);
                Reply::Later(Box::pin(asked.answer(node, appended)))
            }));
        }
        Ok(None) => append(&node, &asked.header, frame, &Vouched::default()),
        Err(code) => refuse_all(frame, code),
    };
    Reply::Later(Box::pin(asked.answer(node, appended)))
}

/// How a request wants to be answered.
struct Asked {
    header: RequestHeader,
    throttle_ms: i32,
    acks: i16,
    timeout_ms: i32,
}

impl Asked {
    async fn answer(self, node: Rc<Node>, (topics, pendings): (TopicGroups, Pendings)) -> Answer {
        if self.acks == 0 {
            return silent(pendings).await;
        }
        let (answers, late) = reached(pendings, self.timeout_ms).await;
        match encode(&node, (self.header, self.throttle_ms), &topics, &answers) {
            Answer::Parts(parts) if !late.is_empty() => {
                Answer::Early(parts, Box::pin(all_over(late)))
            }
            answer => answer,
        }
    }
}

/// What acks 0 is answered with: nothing, but not before the batches are as durable as they are to
/// be. Until then the frame counts against the connection's and the shard's limits, or a producer
/// that is faster than the disk would fill the memory.
async fn silent(pendings: Pendings) -> Answer {
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

fn append(
    node: &Node,
    header: &RequestHeader,
    frame: ProduceFrame,
    vouched: &Vouched,
) -> (TopicGroups, Pendings) {
    let may_be_transactional = frame.transactional_id.is_some();
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
                Ok(topic) => node.partition(topic, index).map(|partition| (topic, partition)),
                Err(code) => Err(NotHere::from(*code)),
            };
            pendings.push(match found {
                Ok((topic, partition)) => {
                    let vouched = may_be_transactional.then_some(vouched);
                    let place = Place { topic: &topic.name, index, partition, vouched };
                    place.append(node, header.version, batch)
                }
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

/// Where a batch goes, and what is known of it.
struct Place<'a> {
    topic: &'a TopicName,
    index: i32,
    partition: Partition,
    /// Of a request with a transactional id.
    vouched: Option<&'a Vouched>,
}

impl Place<'_> {
    fn append(&self, node: &Node, version: i16, batch: BytesMut) -> Pending {
        let batch = RecordBatch::decode(batch).map_err(AppendError::from);
        let header = batch.as_ref().map(RecordBatch::header);
        if header.is_ok_and(|it| it.codec() == Ok(Codec::Zstd)) && version < ZSTD_FROM {
            return Pending { answer: zstd_refused(self.index, version), due: None };
        }
        let appended = if header.is_ok_and(BatchHeader::is_transactional) {
            match self.vouched {
                None => return self.refuse(node, &no_transactional_id()),
                Some(vouched) => {
                    let number = PartitionId(u32::try_from(self.index).unwrap_or(u32::MAX));
                    let name = TopicPartition { topic: self.topic.clone(), partition: number };
                    if let Some(refusal) = vouched.refusal(&name) {
                        return self.refuse(node, refusal);
                    }
                    batch.and_then(|batch| vouched.append(&name, &self.partition, batch))
                }
            }
        } else {
            batch.and_then(|batch| self.partition.append(batch))
        };
        match appended {
            Ok(appended) => {
                let answer = accepted(self.index, &appended);
                Pending { answer, due: Some(self.partition.reached(appended.due)) }
            }
            Err(error) => {
                node.complain(|| format!("{}: {error}", self.partition.directory().display()));
                let answer = self.with_log_start(failed(self.index, &error));
                Pending { answer, due: None }
            }
        }
    }

    /// Kafka tells where the log starts beside a refusal, too, but for what it finds out before it
    /// looks into the batch, and for what is wrong with the log itself.
    fn with_log_start(&self, answer: PartitionAnswer) -> PartitionAnswer {
        let is_early = matches!(
            answer.error,
            ErrorCode::UnknownTopicOrPartition
                | ErrorCode::NotLeaderOrFollower
                | ErrorCode::MessageTooLarge
                | ErrorCode::RecordListTooLarge
                | ErrorCode::CorruptMessage
                | ErrorCode::KafkaStorageError
        );
        if is_early {
            return answer;
        }
        PartitionAnswer { log_start: self.partition.cursors().log_start.to_wire(), ..answer }
    }

    fn refuse(&self, node: &Node, refusal: &Refusal) -> Pending {
        // It comes again and again while transactions follow one another.
        if refusal.code != ErrorCode::ConcurrentTransactions {
            node.complain(|| format!("{}: {refusal}", self.partition.directory().display()));
        }
        let answer = PartitionAnswer::refused(self.index, refusal.code);
        let message = Some(refusal.message.clone());
        Pending { answer: PartitionAnswer { message, ..answer }, due: None }
    }
}

fn no_transactional_id() -> Refusal {
    let message = "a batch of a transaction came without a transactional id";
    Refusal::new(ErrorCode::TransactionalIdAuthorizationFailed, message)
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
    (header, throttle_ms): (RequestHeader, i32),
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
        throttle_ms,
    };
    match answer.encode() {
        Ok(frame) => Answer::bytes(frame.freeze()),
        Err(error) => Answer::Close(format!("Produce: {error}")),
    }
}
