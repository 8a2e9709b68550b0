//! Fetch (1), versions 4 to 18.
//!
//! - Sessions (KIP-227): a request that goes on with one reads all of its partitions, and the
//!   answer names those that have something new.
//! - A client that is over its byte rate gets an empty answer with a throttle time.
//! - Partitions are read in the request's order, each within its own limit and what is left of the
//!   request's; the first one with anything to read gives at least one whole batch.
//! - The answer leaves when there are `min_bytes`, any partition has an error or is read in an
//!   older segment, or `max_wait` is over. In between the request sleeps on the ends of its
//!   partitions; whatever moves one wakes it, and it reads again from the start.
//! - The end is the high watermark, or the last stable offset for readers of committed records.
//!   They are also told of the aborted transactions in what they get.
//! - Topics by id from version 13; leader epochs are checked from version 9; whether the client's
//!   log departs from ours from version 12.
//! - A read that fails on our side is error 56, and error 6 for the versions below 6 that don't
//!   know it. CORRUPT_MESSAGE would end the consumer.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::broker::api::fetch_end::Asker;
use crate::broker::errors;
use crate::broker::node::{Node, NotHere};
use crate::log::Cursors;
use crate::log::producers::Ended;
use crate::shard::{Answer, AnswerPart, AnswerParts, ConnectionInfo, Partition, ReadSlice};
use crate::units::{ByteCount, LeaderEpoch, Offset};
use crate::wire::error::ErrorCode;
use crate::wire::fetch::{
    AbortedTransaction, EpochEnd, FetchAnswer, FetchPartition, FetchRequest, Part, PartitionAnswer,
    Records,
};
use crate::wire::frame::RequestHeader;

/// First version whose clients know KAFKA_STORAGE_ERROR.
const STORAGE_ERROR_FROM: i16 = 6;

const READ_COMMITTED: i8 = 1;

/// Answers a request.
pub async fn answer(
    node: Rc<Node>,
    (header, connection): (RequestHeader, ConnectionInfo),
    mut request: FetchRequest,
) -> Answer {
    let asker = Asker { node: &node, header: &header, connection: &connection };
    let session = match asker.begin(&mut request) {
        Ok(session) => session,
        Err(error) => return refuse(&node, &header, error),
    };
    let reader = Reader { node: &node, version: header.version, request: &request };
    // No longer than a connection may be idle: whoever asked for more is gone by then.
    let idle_ms = node.shared.config.connection_idle_ms_max.unwrap_or(u64::MAX);
    let patience_ms = u64::try_from(request.wait_max_ms).unwrap_or(0).min(idle_ms);
    let patience = Duration::from_millis(patience_ms);
    let deadline = Instant::now() + patience;
    loop {
        let round = reader.read().await;
        let now = Instant::now();
        if round.is_due || deadline <= now {
            return asker.end(request, session, round);
        }
        // Nothing is held while the request sleeps: the slices of this round are dropped.
        let parked = round.parked;
        drop(round.slices);
        let changes = any_changes(parked, reader.is_committed());
        let _ = tokio::time::timeout(deadline - now, changes).await;
    }
}

/// A partition that may give more later, and the end that it had for this reader.
type Parked = SmallVec<[(Partition, Offset); 2]>;

/// One pass over the partitions of a request.
pub(super) struct Round {
    pub answers: SmallVec<[PartitionAnswer; 2]>,
    /// By the place of the partition in the request.
    pub slices: SmallVec<[Option<ReadSlice>; 2]>,
    parked: Parked,
    is_due: bool,
}

/// What a pass reads with.
struct Reader<'a> {
    node: &'a Node,
    version: i16,
    request: &'a FetchRequest,
}

impl Reader<'_> {
    fn is_committed(&self) -> bool {
        self.request.isolation_level == READ_COMMITTED
    }

    async fn read(&self) -> Round {
        let mut limits = Limits::new(self.request, self.node.shared.config.fetch_bytes_max);
        let mut round = Round {
            answers: SmallVec::new(),
            slices: SmallVec::new(),
            parked: SmallVec::new(),
            is_due: self.request.partitions.is_empty(),
        };
        let mut partitions = self.request.partitions.iter();
        for group in &self.request.topics {
            let topic = self.node.topic(&group.key);
            for wanted in partitions.by_ref().take(group.partitions) {
                let found = match &topic {
                    Ok(topic) => self.node.partition(topic, wanted.index),
                    Err(code) => Err(NotHere::from(*code)),
                };
                match found {
                    Ok(partition) => {
                        self.read_one(&partition, wanted, &mut limits, &mut round).await
                    }
                    Err(not_here) => round.refuse(wanted.index, self.of(not_here)),
                }
            }
        }
        round.is_due |= limits.is_enough();
        round
    }

    async fn read_one(
        &self,
        partition: &Partition,
        wanted: &FetchPartition,
        limits: &mut Limits,
        round: &mut Round,
    ) {
        let cursors = partition.cursors();
        let offset = match check(wanted, partition.leader_epoch(), &cursors) {
            Ok(offset) => offset,
            Err(code) => return round.refuse(wanted.index, NotHere::from(code)),
        };
        let stable = partition.last_stable();
        let mut answer = self.empty(wanted.index, &cursors, stable);
        match diverging(wanted, partition) {
            Ok(None) => {}
            Ok(end) => {
                answer.diverging = end;
                round.is_due = true;
                return round.push(answer, None);
            }
            Err(code) => return round.refuse(wanted.index, NotHere::from(code)),
        }
        let (bytes_max, at_least_one) = limits.of(wanted);
        let located = if bytes_max.0 == 0 && !at_least_one {
            Ok(None)
        } else if self.is_committed() {
            partition.locate_stable((offset, stable), bytes_max, at_least_one).await
        } else {
            partition.locate(offset, bytes_max, at_least_one).await
        };
        match located {
            Ok(slice) => {
                let length = slice.as_ref().map_or(ByteCount(0), |slice| slice.length);
                limits.take(length);
                round.is_due |= slice.as_ref().is_some_and(ReadSlice::is_of_complete_segment);
                if length.0 > 0 {
                    answer.records = Records::Slice(length);
                }
                let end = if self.is_committed() { stable } else { cursors.high_watermark };
                round.parked.push((partition.clone(), end));
                if let (Some(slice), Some(aborted)) = (&slice, &mut answer.aborted) {
                    aborted.extend(partition.aborted_in(offset, slice).iter().map(aborted_answer));
                }
                round.push(answer, slice);
            }
            Err(error) => {
                self.node.complain(|| format!("{}: {error}", partition.directory().display()));
                round.refuse(wanted.index, self.of(errors::of_read(&error).into()));
            }
        }
    }

    /// The answer as long as there are no records.
    fn empty(&self, index: i32, cursors: &Cursors, stable: Offset) -> PartitionAnswer {
        PartitionAnswer {
            index,
            error: ErrorCode::None,
            high_watermark: cursors.high_watermark.to_wire(),
            last_stable: stable.to_wire(),
            log_start: cursors.log_start.to_wire(),
            aborted: self.is_committed().then(Vec::new),
            preferred_replica: -1,
            diverging: None,
            leader: None,
            records: Records::Empty,
        }
    }

    /// The refusal as the request's version can carry it.
    fn of(&self, not_here: NotHere) -> NotHere {
        match not_here.code {
            ErrorCode::KafkaStorageError if self.version < STORAGE_ERROR_FROM => {
                NotHere::from(ErrorCode::NotLeaderOrFollower)
            }
            _ => not_here,
        }
    }
}

impl Round {
    fn push(&mut self, answer: PartitionAnswer, slice: Option<ReadSlice>) {
        self.answers.push(answer);
        self.slices.push(slice);
    }

    fn refuse(&mut self, index: i32, not_here: NotHere) {
        self.is_due = true;
        let answer = PartitionAnswer::refused(index, not_here.code);
        // Kafka has an empty list for a partition that there isn't, and none for others.
        let is_unknown =
            matches!(not_here.code, ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId);
        let aborted = is_unknown.then(Vec::new);
        self.push(PartitionAnswer { leader: not_here.leader, aborted, ..answer }, None);
    }
}

/// The byte limits of a request, and what has been used of them.
struct Limits {
    bytes_min: ByteCount,
    left: ByteCount,
    taken: ByteCount,
}

impl Limits {
    fn new(request: &FetchRequest, broker_bytes_max: ByteCount) -> Limits {
        let left = bytes(request.bytes_max).min(broker_bytes_max);
        let bytes_min = bytes(request.bytes_min).min(left);
        Limits { bytes_min, left, taken: ByteCount(0) }
    }

    /// How much a partition may give, and whether its first batch comes whatever its size.
    fn of(&self, wanted: &FetchPartition) -> (ByteCount, bool) {
        (bytes(wanted.bytes_max).min(self.left), self.taken.0 == 0)
    }

    fn take(&mut self, length: ByteCount) {
        self.left = ByteCount(self.left.0.saturating_sub(length.0));
        self.taken += length;
    }

    fn is_enough(&self) -> bool {
        self.bytes_min <= self.taken
    }
}

/// A limit off the wire; a negative one is none of anything.
fn bytes(limit: i32) -> ByteCount {
    ByteCount(u64::try_from(limit).unwrap_or(0))
}

/// Checks epoch and offset against where the partition stands, and returns the offset.
fn check(
    wanted: &FetchPartition,
    epoch: LeaderEpoch,
    cursors: &Cursors,
) -> Result<Offset, ErrorCode> {
    check_epoch(wanted.leader_epoch, epoch)?;
    let offset = Offset::from_wire(wanted.offset).ok_or(ErrorCode::OffsetOutOfRange)?;
    let readable = cursors.log_start..=cursors.log_end;
    if readable.contains(&offset) { Ok(offset) } else { Err(ErrorCode::OffsetOutOfRange) }
}

/// Checks the leader epoch that a client believes in, if it names one.
///
/// # Errors
/// FENCED_LEADER_EPOCH for an old one, UNKNOWN_LEADER_EPOCH for one that is yet to come.
pub(super) fn check_epoch(believed: LeaderEpoch, epoch: LeaderEpoch) -> Result<(), ErrorCode> {
    if believed == LeaderEpoch::NONE || believed == epoch {
        Ok(())
    } else if believed < epoch {
        Err(ErrorCode::FencedLeaderEpoch)
    } else {
        Err(ErrorCode::UnknownLeaderEpoch)
    }
}

/// Where the client's log departs from ours, if it says what its last record's epoch is.
fn diverging(
    wanted: &FetchPartition,
    partition: &Partition,
) -> Result<Option<EpochEnd>, ErrorCode> {
    let last = wanted.last_fetched_epoch;
    if last == LeaderEpoch::NONE {
        return Ok(None);
    }
    let (epoch, end) = partition.end_offset_for_epoch(last);
    let end = end.ok_or(ErrorCode::OffsetOutOfRange)?.to_wire();
    let departs = epoch < last || end < wanted.offset;
    Ok(departs.then_some(EpochEnd { epoch, end_offset: end }))
}

/// Waits until one of the partitions moves.
async fn any_changes(parked: Parked, is_committed: bool) {
    type Change = Pin<Box<dyn Future<Output = ()>>>;
    let change = |(partition, beyond): (Partition, Offset)| -> Change {
        if is_committed {
            Box::pin(async move { partition.changed_stable(beyond).await })
        } else {
            Box::pin(async move { partition.changed(beyond).await })
        }
    };
    let mut changes: SmallVec<[Change; 2]> = parked.into_iter().map(change).collect();
    poll_fn(|context| {
        let is_over = |change: &mut Change| change.as_mut().poll(context).is_ready();
        if changes.iter_mut().any(is_over) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn aborted_answer(ended: &Ended) -> AbortedTransaction {
    AbortedTransaction {
        producer_id: ended.producer_id.0,
        first_offset: ended.first_offset.to_wire(),
    }
}

pub(super) fn refuse(node: &Node, header: &RequestHeader, error: ErrorCode) -> Answer {
    let answer = FetchAnswer {
        version: header.version,
        correlation_id: header.correlation_id,
        throttle_ms: 0,
        error,
        session_id: 0,
        topics: &[],
        partitions: &[],
        nodes: &[],
    };
    node.complain(|| format!("Fetch: {error}"));
    join(&answer, SmallVec::new())
}

/// Encodes the answer and puts the slices into its holes.
pub(super) fn join(
    answer: &FetchAnswer<'_>,
    mut slices: SmallVec<[Option<ReadSlice>; 2]>,
) -> Answer {
    let parts = match answer.encode() {
        Ok(parts) => parts,
        Err(error) => return Answer::Close(format!("Fetch: {error}")),
    };
    let fill = |part| match part {
        Part::Bytes(bytes) => AnswerPart::Bytes(bytes),
        Part::Slice(hole) => {
            let slice = slices[hole.owner].take().expect("a hole for every slice, once");
            assert_eq!(slice.length, hole.length);
            AnswerPart::Slice(slice)
        }
    };
    Answer::Parts(parts.into_iter().map(fill).collect::<AnswerParts>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(offset: i64, epoch: i32) -> FetchPartition {
        FetchPartition {
            index: 0,
            leader_epoch: LeaderEpoch(epoch),
            offset,
            last_fetched_epoch: LeaderEpoch::NONE,
            log_start: -1,
            bytes_max: 1_000,
        }
    }

    fn cursors() -> Cursors {
        Cursors {
            log_start: Offset(10),
            high_watermark: Offset(20),
            log_end: Offset(30),
            next: Offset(30),
            durable_end: Offset(20),
            recovery_point: Offset(10),
        }
    }

    #[test]
    fn offsets_between_log_start_and_log_end_are_in_range() {
        let outcome = |offset| check(&wanted(offset, -1), LeaderEpoch(3), &cursors());
        for inside in [10, 20, 30] {
            assert_eq!(outcome(inside).map(Offset::to_wire), Ok(inside));
        }
        for outside in [-1, 0, 9, 31, i64::MAX] {
            assert_eq!(outcome(outside), Err(ErrorCode::OffsetOutOfRange), "{outside}");
        }
    }

    #[test]
    fn epochs_are_checked_when_they_are_named() {
        let outcome = |epoch| check(&wanted(10, epoch), LeaderEpoch(3), &cursors());
        assert_eq!(outcome(2), Err(ErrorCode::FencedLeaderEpoch));
        assert_eq!(outcome(3), Ok(Offset(10)));
        assert_eq!(outcome(4), Err(ErrorCode::UnknownLeaderEpoch));
    }

    #[test]
    fn the_first_partition_with_records_ignores_the_limits_and_the_others_share_them() {
        let mut limits =
            Limits { bytes_min: ByteCount(1), left: ByteCount(1_500), taken: ByteCount(0) };
        assert_eq!(limits.of(&wanted(0, -1)), (ByteCount(1_000), true));
        limits.take(ByteCount(0));
        assert_eq!(limits.of(&wanted(0, -1)), (ByteCount(1_000), true));
        assert!(!limits.is_enough());
        limits.take(ByteCount(1_200));
        assert_eq!(limits.of(&wanted(0, -1)), (ByteCount(300), false));
        assert!(limits.is_enough());
        limits.take(ByteCount(400));
        assert_eq!(limits.of(&wanted(0, -1)), (ByteCount(0), false));
    }
}
