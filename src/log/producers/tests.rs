//! What is taken from a producer, and what is not.

use super::*;
use crate::units::{ByteCount, LeaderEpoch};

const ID: ProducerId = ProducerId(7);
const NOW: Timestamp = Timestamp(5_000);
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;

fn batch(epoch: i16, sequence: i32, records: i32) -> BatchHeader {
    BatchHeader {
        base_offset: 0,
        size: ByteCount(100),
        leader_epoch: LeaderEpoch(0),
        crc: 0,
        attributes: 0,
        last_offset_delta: records - 1,
        base_timestamp: Timestamp(1_000),
        max_timestamp: Timestamp(1_000),
        producer_id: ID,
        producer_epoch: ProducerEpoch(epoch),
        base_sequence: Sequence(sequence),
        record_count: records,
    }
}

fn transactional(epoch: i16, sequence: i32) -> BatchHeader {
    BatchHeader { attributes: TRANSACTIONAL, ..batch(epoch, sequence, 1) }
}

fn marker(epoch: i16) -> BatchHeader {
    BatchHeader { attributes: TRANSACTIONAL | CONTROL, ..batch(epoch, -1, 1) }
}

/// A log that appends only what is new, at the offset where it ends.
#[derive(Default)]
struct Partition {
    producers: Producers,
    next: i64,
}

impl Partition {
    fn append(&mut self, header: BatchHeader) -> Result<Verdict, AppendError> {
        let verdict = self.producers.check(&header, Guard::Unverified)?;
        if verdict == Verdict::New {
            self.replay(header);
        }
        Ok(verdict)
    }

    fn replay(&mut self, header: BatchHeader) {
        let header = BatchHeader { base_offset: self.next, ..header };
        self.producers.update(&header, NOW);
        self.next += i64::from(header.last_offset_delta) + 1;
    }

    fn appended(headers: &[BatchHeader]) -> Partition {
        let mut partition = Partition::default();
        for header in headers {
            assert_eq!(partition.append(*header), Ok(Verdict::New));
        }
        partition
    }
}

fn out_of_order(expected: i32, header: BatchHeader) -> Result<Verdict, AppendError> {
    Err(AppendError::OutOfOrderSequence {
        producer_id: ID,
        epoch: header.producer_epoch,
        expected: Sequence(expected),
        found: header.base_sequence,
    })
}

fn is_txn_error(result: &Result<Verdict, AppendError>) -> bool {
    matches!(result, Err(AppendError::InvalidTxnState { .. }))
}

#[test]
fn sequences_follow_one_another() {
    let mut partition = Partition::appended(&[batch(0, 0, 10), batch(0, 10, 1)]);
    for (sequence, records) in [(12, 1), (0, 9), (9, 1), (1, 10)] {
        let header = batch(0, sequence, records);
        assert_eq!(partition.append(header), out_of_order(11, header));
    }
    assert_eq!(partition.append(batch(0, 11, 1)), Ok(Verdict::New));
    assert_eq!(partition.producers.last_sequence(ID), Some((ProducerEpoch(0), Sequence(11))));
}

#[test]
fn an_unknown_producer_begins_anywhere() {
    Partition::appended(&[batch(15, 4_711, 3), batch(15, 4_714, 1)]);
}

#[test]
fn batches_without_a_producer_are_not_remembered() {
    let none = BatchHeader { producer_id: ProducerId::NONE, ..batch(-1, -1, 1) };
    let partition = Partition::appended(&[none, none]);
    assert!(partition.producers.is_empty());
}

#[test]
fn a_new_epoch_begins_at_zero_and_shuts_the_old_one_out() {
    let mut partition = Partition::appended(&[batch(1, 0, 5)]);
    let late = batch(2, 5, 1);
    assert_eq!(partition.append(late), out_of_order(0, late));
    assert_eq!(partition.append(batch(2, 0, 1)), Ok(Verdict::New));
    let old = AppendError::InvalidProducerEpoch {
        producer_id: ID,
        current: ProducerEpoch(2),
        found: ProducerEpoch(1),
    };
    // Its old batches are no duplicates any more either.
    assert_eq!(partition.append(batch(1, 0, 5)), Err(old.clone()));
    assert_eq!(partition.append(batch(1, 5, 1)), Err(old));
}

#[test]
fn sequences_wrap_past_the_largest() {
    let mut partition = Partition::appended(&[batch(0, i32::MAX - 9, 10), batch(0, 0, 3)]);
    // Inside of a batch: MAX - 1, MAX, 0, 1.
    let mut inside = Partition::appended(&[batch(0, i32::MAX - 1, 4)]);
    assert_eq!(inside.append(batch(0, 2, 1)), Ok(Verdict::New));
    assert_eq!(
        inside.append(batch(0, i32::MAX - 1, 4)),
        Ok(Verdict::Duplicate {
            base_offset: Offset(0),
            last_offset: Offset(3),
            timestamp: Timestamp(1_000)
        })
    );
    let gap = batch(0, 1, 1);
    assert_eq!(partition.append(gap), out_of_order(3, gap));
    let too_early = batch(0, 0, 1);
    let mut before = Partition::appended(&[batch(0, i32::MAX - 5, 4)]);
    assert_eq!(before.append(too_early), out_of_order(i32::MAX - 1, too_early));
}

#[test]
fn the_last_five_batches_are_recognised() {
    let batches: Vec<_> = (0..7).map(|n| batch(0, n * 2, 2)).collect();
    let mut partition = Partition::appended(&batches);
    for (n, header) in batches.iter().enumerate() {
        let base = crate::units::u64_of(n * 2);
        let expected = if n < 2 {
            out_of_order(14, *header)
        } else {
            Ok(Verdict::Duplicate {
                base_offset: Offset(base),
                last_offset: Offset(base + 1),
                timestamp: Timestamp(1_000),
            })
        };
        assert_eq!(partition.append(*header), expected, "batch {n}");
    }
    // The same first sequence with another last one is no duplicate.
    let longer = batch(0, 12, 3);
    assert_eq!(partition.append(longer), out_of_order(14, longer));
}

#[test]
fn a_batch_reordered_before_the_first_one_is_refused() {
    // Sent as 0, 1; the network delivers 1 first. Kafka and we take it, since the producer is
    // unknown; then 0 is out of order, and its sender starts a new epoch.
    let mut partition = Partition::appended(&[batch(0, 1, 1)]);
    let first = batch(0, 0, 1);
    assert_eq!(partition.append(first), out_of_order(2, first));
}

#[test]
fn transactions_of_clients_are_refused() {
    let mut partition = Partition::default();
    assert!(is_txn_error(&partition.append(transactional(0, 0))));
    let unnamed = BatchHeader { producer_id: ProducerId::NONE, ..transactional(0, 0) };
    assert!(is_txn_error(&partition.append(unnamed)));
    assert!(partition.producers.is_empty());
    // The epoch comes first.
    partition.replay(batch(3, 0, 1));
    let old = partition.append(transactional(2, 0));
    assert!(matches!(old, Err(AppendError::InvalidProducerEpoch { .. })));
}

#[test]
fn a_replayed_transaction_ends_with_its_marker() {
    let mut partition = Partition::default();
    partition.replay(transactional(0, 0));
    partition.replay(transactional(0, 1));
    assert!(is_txn_error(&partition.append(batch(0, 2, 1))));
    // Sent once more it is still known.
    let again = partition.append(transactional(0, 1));
    assert!(matches!(again, Ok(Verdict::Duplicate { base_offset: Offset(1), .. })));
    partition.producers.expire(Timestamp(i64::MAX), 0);
    assert_eq!(partition.producers.len(), 1, "an open transaction is not forgotten");

    let compacted = BatchHeader { record_count: 0, ..marker(1) };
    partition.replay(compacted);
    assert!(is_txn_error(&partition.append(batch(0, 2, 1))));
    // Transaction version 2: the marker raises the epoch, so that no batch is remembered.
    partition.replay(marker(1));
    assert_eq!(partition.producers.last_sequence(ID), Some((ProducerEpoch(1), SEQUENCE_NONE)));
    let late = batch(1, 2, 1);
    assert_eq!(partition.append(late), out_of_order(0, late));
    assert_eq!(partition.append(batch(1, 0, 1)), Ok(Verdict::New));
}

#[test]
fn silent_producers_expire_by_the_time_of_their_last_append() {
    let expired = |now, expiration_ms| {
        let mut partition = Partition::appended(&[batch(0, 0, 1)]);
        partition.producers.expire(Timestamp(now), expiration_ms);
        partition.producers.is_empty()
    };
    // The time of the records, which is 1,000, counts for nothing.
    assert!(!expired(5_099, 100));
    assert!(expired(5_100, 100));
    assert!(!expired(i64::MIN, 100));
    assert!(!expired(i64::MAX, u64::MAX));
}

#[test]
fn the_number_of_producers_is_bounded() {
    let mut partition = Partition::default();
    let of = |id| BatchHeader { producer_id: ProducerId(id), ..batch(0, 0, 1) };
    let limit = i64::try_from(PRODUCERS_MAX).expect("a small number");
    for id in 0..limit {
        partition.replay(of(id));
    }
    let refused = partition.append(of(limit));
    assert_eq!(refused, Err(AppendError::TooManyProducers { limit: PRODUCERS_MAX }));
    let known = BatchHeader { producer_id: ProducerId(0), ..batch(0, 1, 1) };
    assert_eq!(partition.append(known), Ok(Verdict::New), "known ones go on");

    // A replay takes it, and forgets those that wrote longest ago.
    partition.replay(of(limit));
    assert_eq!(partition.producers.forgotten(), crate::units::u64_of(FORGOTTEN_AT_ONCE));
    assert_eq!(partition.producers.len(), PRODUCERS_MAX - FORGOTTEN_AT_ONCE + 1);
    assert!(partition.producers.is_known(ProducerId(0)));
    assert!(!partition.producers.is_known(ProducerId(1)));
    assert!(partition.producers.is_known(ProducerId(limit - 1)));
}

#[test]
fn offsets_that_make_no_sense_change_nothing() {
    let mut producers = Producers::default();
    producers.update(&BatchHeader { base_offset: -1, ..batch(0, 0, 1) }, NOW);
    producers.update(&BatchHeader { last_offset_delta: -1, ..batch(0, 0, 1) }, NOW);
    producers.update(&BatchHeader { base_offset: i64::MAX, ..batch(0, 0, 2) }, NOW);
    assert!(producers.is_empty());
}
