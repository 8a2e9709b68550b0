//! What a partition remembers of idempotent producers (`ProducerStateManager`), so that a batch
//! sent twice is written once and a lost one is noticed.
//!
//! Kept in `.snapshot` files as Kafka keeps it, one at each roll and one at a clean stop; a start
//! reads the newest and replays the headers of what follows. An append to a known producer
//! allocates nothing.
//!
//! Silent producers are forgotten by this server's clock: counted from their last append or, after
//! a start, from the start. Kafka counts from the time of their last record, so that records of the
//! past (an import) have no idempotence there across a restart: the batch that was written, but not
//! answered, before a kill is taken again. Such producers are remembered here, but no longer
//! written to snapshots, which stay what Kafka's would be. A transactional batch may go on with the
//! producer's open transaction; to begin one here its coordinator must have vouched for it.

mod listing;

use std::collections::{BTreeMap, BTreeSet};

use super::error::AppendError;
use crate::format::aborted::{self, AbortedTransaction};
use crate::format::batch::BatchHeader;
use crate::format::producer_snapshot::{LastBatch, ProducerEntry};
use crate::units::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// How many of a producer's last batches are recognised when they come again; clients keep at most
/// five in flight for that reason.
const BATCHES_REMEMBERED: usize = 5;

/// How many producers one partition remembers, about 20 MB. Kafka has no limit, so that short-lived
/// producers (one a second makes 86,400 a day) may take its whole heap.
pub const PRODUCERS_MAX: usize = 100_000;

/// How many are forgotten at once when a replayed log has more than [`PRODUCERS_MAX`].
const FORGOTTEN_AT_ONCE: usize = PRODUCERS_MAX / 8;

const COORDINATOR_EPOCH_NONE: i32 = -1;
const EPOCH_NONE: ProducerEpoch = ProducerEpoch(-1);
const SEQUENCE_NONE: Sequence = Sequence(-1);

/// What is to be done with a batch that breaks no rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Append it.
    New,
    /// It is in the log already: answer with these, write nothing.
    Duplicate {
        /// Offset of its first record.
        base_offset: Offset,
        /// Offset of its last record.
        last_offset: Offset,
        /// Its max timestamp as stored, which Kafka answers as the append time.
        timestamp: Timestamp,
    },
}

/// One appended batch of a producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Batch {
    base_sequence: Sequence,
    last_sequence: Sequence,
    base_offset: Offset,
    last_offset: Offset,
    timestamp: Timestamp,
}

/// The last batches of one producer epoch, oldest first.
#[derive(Clone, Copy, Debug)]
struct Batches {
    ring: [Batch; BATCHES_REMEMBERED],
    len: usize,
}

impl Batches {
    const EMPTY: Batches = Batches {
        ring: [Batch {
            base_sequence: SEQUENCE_NONE,
            last_sequence: SEQUENCE_NONE,
            base_offset: Offset(0),
            last_offset: Offset(0),
            timestamp: Timestamp::NONE,
        }; BATCHES_REMEMBERED],
        len: 0,
    };

    fn as_slice(&self) -> &[Batch] {
        &self.ring[..self.len]
    }

    fn push(&mut self, batch: Batch) {
        if self.len == BATCHES_REMEMBERED {
            self.ring.rotate_left(1);
            self.len -= 1;
        }
        self.ring[self.len] = batch;
        self.len += 1;
    }
}

/// State of one producer id.
#[derive(Clone, Copy, Debug)]
struct Producer {
    epoch: ProducerEpoch,
    batches: Batches,
    /// When its last batch or marker was appended or replayed, by this server's clock.
    last_seen: Timestamp,
    /// Where its open transaction began, which only a replayed log can have.
    transaction: Option<Offset>,
    /// Last offset that it wrote to; whoever wrote last is forgotten last.
    last_offset: Offset,
    /// Time of its last batch or marker, as the log has it.
    timestamp: Timestamp,
    /// Of the coordinator that wrote its last marker.
    coordinator_epoch: i32,
    /// Whether Kafka would have forgotten it when it read the snapshot.
    is_unlisted: bool,
    /// Its place among all producers in the order in which Kafka got to know them.
    arrival: u64,
}

impl Producer {
    const UNKNOWN: Producer = Producer {
        epoch: EPOCH_NONE,
        batches: Batches::EMPTY,
        last_seen: Timestamp::NONE,
        transaction: None,
        last_offset: Offset(0),
        timestamp: Timestamp::NONE,
        coordinator_epoch: COORDINATOR_EPOCH_NONE,
        is_unlisted: true,
        arrival: 0,
    };

    fn last_sequence(&self) -> Sequence {
        self.batches.as_slice().last().map_or(SEQUENCE_NONE, |batch| batch.last_sequence)
    }

    fn duplicate_of(&self, header: &BatchHeader) -> Option<&Batch> {
        if header.producer_epoch != self.epoch {
            return None;
        }
        let (base, last) = (header.base_sequence, header.last_sequence());
        let batches = self.batches.as_slice().iter();
        batches.rev().find(|it| it.base_sequence == base && it.last_sequence == last)
    }

    fn check_epoch(&self, header: &BatchHeader) -> Result<(), AppendError> {
        if header.producer_epoch < self.epoch {
            return Err(AppendError::InvalidProducerEpoch {
                producer_id: header.producer_id,
                current: self.epoch,
                found: header.producer_epoch,
            });
        }
        Ok(())
    }

    /// A new epoch begins at 0. A producer that isn't known (expired, or its records are gone) may
    /// begin anywhere: its earlier batches can't be told from lost ones any more.
    fn check_sequence(&self, header: &BatchHeader) -> Result<(), AppendError> {
        let last =
            if header.producer_epoch == self.epoch { self.last_sequence() } else { SEQUENCE_NONE };
        let expected = last.plus(1);
        if self.epoch == EPOCH_NONE || header.base_sequence == expected {
            return Ok(());
        }
        Err(AppendError::OutOfOrderSequence {
            producer_id: header.producer_id,
            epoch: header.producer_epoch,
            expected,
            found: header.base_sequence,
        })
    }

    /// As a snapshot has it: of the batches only the last.
    fn entry(&self, producer_id: ProducerId) -> ProducerEntry {
        let batch = self.batches.as_slice().last().map(|batch| LastBatch {
            last_sequence: batch.last_sequence,
            last_offset: batch.last_offset,
            offset_delta: i32::try_from(batch.last_offset - batch.base_offset).unwrap_or(0),
            timestamp: batch.timestamp,
        });
        ProducerEntry {
            producer_id,
            epoch: self.epoch,
            coordinator_epoch: self.coordinator_epoch,
            timestamp: self.timestamp,
            batch,
            transaction: self.transaction,
        }
    }

    fn enter_epoch(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.batches = Batches::EMPTY;
        }
    }
}

/// The producers of one partition.
#[derive(Clone, Debug, Default)]
pub struct Producers {
    // Ordered, so that the same history always gives the same state; and the keys come from
    // clients, which could aim at the weakness of a fixed hash function.
    producers: BTreeMap<ProducerId, Producer>,
    forgotten: u64,
    transactions: Transactions,
    /// The next one's [`Producer::arrival`].
    arrivals: u64,
    /// How many are listed, and how many were at most: Kafka's table never shrinks.
    listed: usize,
    listed_max: usize,
}

/// How the marker of a transaction came to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    /// Whose transaction ends.
    pub producer_id: ProducerId,
    /// The epoch that the marker carries.
    pub epoch: ProducerEpoch,
    /// Whether each marker raises the producer's epoch (transaction version 2, KIP-890).
    pub raises_epoch: bool,
    /// Epoch of the coordinator that writes it.
    pub coordinator_epoch: i32,
    /// Whether the records count.
    pub commits: bool,
}

impl Producers {
    /// Judges a validated batch of a client, in Kafka's order of checks.
    ///
    /// # Errors
    /// [`AppendError::InvalidProducerEpoch`], [`AppendError::InvalidTxnState`],
    /// [`AppendError::OutOfOrderSequence`], [`AppendError::TooManyProducers`].
    ///
    /// # Panics
    /// On a control batch, which no client may send and validation refuses.
    pub fn check(&self, header: &BatchHeader, guard: Guard) -> Result<Verdict, AppendError> {
        assert!(!header.is_control(), "validation lets no control batch of a client pass");
        if header.producer_id <= ProducerId::NONE && !header.is_transactional() {
            return Ok(Verdict::New);
        }
        let known = self.producers.get(&header.producer_id);
        // Kafka has forgotten the unlisted: they may begin anywhere.
        let producer = known.filter(|it| !it.is_unlisted).unwrap_or(&Producer::UNKNOWN);
        if guard == Guard::Coordinator {
            producer.check_epoch(header)?;
            return self.with_room(known);
        }
        if let Some(batch) = known.and_then(|it| it.duplicate_of(header)) {
            return Ok(Verdict::Duplicate {
                base_offset: batch.base_offset,
                last_offset: batch.last_offset,
                timestamp: batch.timestamp,
            });
        }
        producer.check_epoch(header)?;
        let is_open = producer.transaction.is_some();
        if header.is_transactional() && !is_open && guard == Guard::Unverified {
            return Err(invalid_transaction(header, NO_TRANSACTION));
        }
        producer.check_sequence(header)?;
        if !header.is_transactional() && is_open {
            return Err(invalid_transaction(header, TRANSACTION_OPEN));
        }
        self.with_room(known)
    }

    fn with_room(&self, known: Option<&Producer>) -> Result<Verdict, AppendError> {
        if known.is_none() && self.producers.len() >= PRODUCERS_MAX {
            return Err(AppendError::TooManyProducers { limit: PRODUCERS_MAX });
        }
        Ok(Verdict::New)
    }

    /// Where a producer stands; `None` when it isn't known.
    pub fn standing(&self, producer_id: ProducerId) -> Option<Standing> {
        let producer = self.producers.get(&producer_id)?;
        Some(Standing {
            epoch: producer.epoch,
            is_open: producer.transaction.is_some(),
            last_offset: producer.last_offset,
        })
    }

    /// Judges a marker that a transaction coordinator wants to write.
    ///
    /// # Errors
    /// [`AppendError::InvalidProducerEpoch`], [`AppendError::CoordinatorFenced`].
    pub fn check_marker(&self, marker: &Marker) -> Result<(), AppendError> {
        let Some(producer) = self.producers.get(&marker.producer_id) else { return Ok(()) };
        // A second try of a marker that was written, but not answered.
        let is_retry = producer.transaction.is_none() && marker.epoch == producer.epoch;
        let is_newer = producer.epoch < marker.epoch;
        let is_right = match marker.raises_epoch {
            true => is_newer || is_retry,
            false => producer.epoch <= marker.epoch,
        };
        if !is_right {
            return Err(AppendError::InvalidProducerEpoch {
                producer_id: marker.producer_id,
                current: producer.epoch,
                found: marker.epoch,
            });
        }
        if marker.coordinator_epoch < producer.coordinator_epoch {
            return Err(AppendError::CoordinatorFenced {
                producer_id: marker.producer_id,
                current: producer.coordinator_epoch,
                found: marker.coordinator_epoch,
            });
        }
        Ok(())
    }

    /// The first offset of a transaction that is not over, or whose end is not replicated.
    pub fn first_unstable(&self) -> Option<Offset> {
        self.transactions.first_unstable()
    }

    /// Ends of transactions before the high watermark hold readers up no longer.
    pub fn replicated(&mut self, high_watermark: Offset) {
        self.transactions.replicated(high_watermark);
    }

    /// Remembers an appended batch, or one read back from the log at start, markers of transactions
    /// included: its offsets are assigned. Batches without a producer change nothing.
    ///
    /// A batch read back counts as seen at the start, too: the server may have been down for longer
    /// than producers are remembered, while the answer to this batch was still being waited for.
    pub fn update(&mut self, header: &BatchHeader, now: Timestamp) -> Option<Ended> {
        self.update_with(header, None, now)
    }

    /// The same, with what a marker says of the coordinator that wrote it. Returns the transaction
    /// that a marker ends.
    pub fn update_with(
        &mut self,
        header: &BatchHeader,
        coordinator_epoch: Option<i32>,
        now: Timestamp,
    ) -> Option<Ended> {
        let (base_offset, last_offset) = (header.base()?, header.last_offset()?);
        // A marker whose record was compacted away says nothing any more.
        let is_empty_marker = header.is_control() && header.record_count <= 0;
        if header.producer_id <= ProducerId::NONE || is_empty_marker {
            return None;
        }
        if self.producers.len() >= PRODUCERS_MAX && !self.is_known(header.producer_id) {
            self.forget_oldest();
        }
        let producer = self.producers.entry(header.producer_id).or_insert(Producer::UNKNOWN);
        if std::mem::take(&mut producer.is_unlisted) {
            producer.arrival = self.arrivals;
            self.arrivals += 1;
            self.listed += 1;
            self.listed_max = self.listed_max.max(self.listed);
        }
        producer.enter_epoch(header.producer_epoch);
        producer.last_seen = now;
        producer.last_offset = last_offset;
        producer.timestamp = header.max_timestamp;
        if let Some(epoch) = coordinator_epoch {
            producer.coordinator_epoch = epoch;
        }
        if header.is_control() {
            let first = producer.transaction.take()?;
            return Some(self.transactions.end(header.producer_id, first, last_offset));
        }
        producer.batches.push(Batch {
            base_sequence: header.base_sequence,
            last_sequence: header.last_sequence(),
            base_offset,
            last_offset,
            timestamp: header.max_timestamp,
        });
        if header.is_transactional() && producer.transaction.is_none() {
            producer.transaction = Some(base_offset);
            self.transactions.begin(base_offset);
        }
        None
    }

    /// The producers of a snapshot that is read at a start. Those that have been silent for
    /// `expiration_ms` by their records are no longer written to snapshots, as Kafka forgets them
    /// here.
    pub fn of_entries(entries: &[ProducerEntry], now: Timestamp, expiration_ms: u64) -> Producers {
        let limit = i64::try_from(expiration_ms).unwrap_or(i64::MAX);
        let mut producers = Producers::default();
        for entry in entries {
            let mut batches = Batches::EMPTY;
            if let Some(batch) = &entry.batch {
                let delta = u64::from(batch.offset_delta.max(0).unsigned_abs());
                batches.push(Batch {
                    base_sequence: batch.first_sequence(),
                    last_sequence: batch.last_sequence,
                    base_offset: Offset(batch.last_offset.0.saturating_sub(delta)),
                    last_offset: batch.last_offset,
                    timestamp: batch.timestamp,
                });
            }
            let age_ms = now.0.saturating_sub(entry.timestamp.0);
            let producer = Producer {
                epoch: entry.epoch,
                batches,
                last_seen: now,
                transaction: entry.transaction,
                last_offset: entry.batch.map_or(Offset(0), |batch| batch.last_offset),
                timestamp: entry.timestamp,
                coordinator_epoch: entry.coordinator_epoch,
                is_unlisted: entry.transaction.is_none() && limit <= age_ms,
                arrival: producers.arrivals,
            };
            producers.arrivals += 1;
            producers.listed += usize::from(!producer.is_unlisted);
            producers.listed_max = producers.listed;
            producers.transactions.ongoing.extend(entry.transaction);
            producers.producers.insert(entry.producer_id, producer);
        }
        producers
    }

    /// Forgets producers without an open transaction that were last seen `expiration_ms` or longer
    /// before `now` (`producer.id.expiration.ms`).
    pub fn expire(&mut self, now: Timestamp, expiration_ms: u64) {
        let limit = i64::try_from(expiration_ms).unwrap_or(i64::MAX);
        self.producers.retain(|_, producer| {
            let age_ms = now.0.saturating_sub(producer.last_seen.0);
            producer.transaction.is_some() || age_ms < limit
        });
        self.count_listed();
    }

    fn count_listed(&mut self) {
        self.listed = self.producers.values().filter(|it| !it.is_unlisted).count();
    }

    /// How many producers are remembered.
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// How many were forgotten because a replayed log had more than [`PRODUCERS_MAX`].
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Epoch and last sequence of a producer; the sequence is -1 when its epoch has no batch yet.
    pub fn last_sequence(&self, producer_id: ProducerId) -> Option<(ProducerEpoch, Sequence)> {
        let producer = self.producers.get(&producer_id)?;
        Some((producer.epoch, producer.last_sequence()))
    }

    /// The last data batch of a producer, if it has one, and its epoch, as long as Kafka would know
    /// the producer (`UnifiedLog#lastRecordsOfActiveProducers`).
    pub fn last_data(&self, producer_id: ProducerId) -> Option<(Option<Offset>, ProducerEpoch)> {
        let producer = self.producers.get(&producer_id).filter(|it| !it.is_unlisted)?;
        let last = producer.batches.as_slice().last().map(|batch| batch.last_offset);
        Some((last, producer.epoch))
    }

    fn is_known(&self, producer_id: ProducerId) -> bool {
        self.producers.contains_key(&producer_id)
    }

    /// Makes room in a replay: a log of Kafka's, or one of many expired producers, may name more
    /// than the limit. Those that wrote longest ago go, many at once, since finding them takes a
    /// walk over all.
    fn forget_oldest(&mut self) {
        let mut offsets: Vec<Offset> = self.producers.values().map(|it| it.last_offset).collect();
        let (_, newest_to_go, _) = offsets.select_nth_unstable(FORGOTTEN_AT_ONCE - 1);
        let newest_to_go = *newest_to_go;
        let before = self.producers.len();
        self.producers.retain(|_, producer| newest_to_go < producer.last_offset);
        self.count_listed();
        self.forgotten += crate::units::u64_of(before - self.producers.len());
    }
}

/// Whether a transaction coordinator has vouched for a client's transactional batch (KIP-890).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// Nobody has: such a batch may go on with a transaction, but not begin one.
    Unverified,
    /// The coordinator has the partition in the transaction.
    Verified,
    /// A group coordinator writes on behalf of the producer (`AppendOrigin.COORDINATOR`): all its
    /// batches have sequence 0, so sequences say nothing, and nothing is a duplicate.
    Coordinator,
}

/// Where a producer stands on a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Whether it has a transaction open.
    pub is_open: bool,
    /// Last offset that it wrote to, markers included.
    pub last_offset: Offset,
}

/// A transaction that a marker has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Whose it was.
    pub producer_id: ProducerId,
    /// Its first record.
    pub first_offset: Offset,
    /// The marker.
    pub last_offset: Offset,
    /// Before it all transactions are over: the oldest other one's first record, or what follows
    /// the marker.
    pub last_stable_offset: Offset,
}

impl Ended {
    /// The entry of an aborted one in a `.txnindex`.
    pub fn entry(&self) -> AbortedTransaction {
        AbortedTransaction {
            version: aborted::VERSION,
            producer_id: self.producer_id,
            first_offset: self.first_offset.to_wire(),
            last_offset: self.last_offset.to_wire(),
            last_stable_offset: self.last_stable_offset.to_wire(),
        }
    }

    /// What an entry says; `None` when it can't be.
    pub fn of_entry(entry: &AbortedTransaction) -> Option<Ended> {
        Some(Ended {
            producer_id: entry.producer_id,
            first_offset: Offset::from_wire(entry.first_offset)?,
            last_offset: Offset::from_wire(entry.last_offset)?,
            last_stable_offset: Offset::from_wire(entry.last_stable_offset)?,
        })
    }
}

/// Transactions by where they began.
#[derive(Clone, Debug, Default)]
struct Transactions {
    ongoing: BTreeSet<Offset>,
    /// Over, by first offset, with the marker's offset, while that is not replicated.
    unreplicated: BTreeMap<Offset, Offset>,
}

impl Transactions {
    fn begin(&mut self, first: Offset) {
        self.ongoing.insert(first);
    }

    fn end(&mut self, producer_id: ProducerId, first: Offset, last: Offset) -> Ended {
        self.ongoing.remove(&first);
        self.unreplicated.insert(first, last);
        let last_stable_offset = self.ongoing.first().copied().unwrap_or(last + 1);
        Ended { producer_id, first_offset: first, last_offset: last, last_stable_offset }
    }

    fn replicated(&mut self, high_watermark: Offset) {
        self.unreplicated.retain(|_, last| high_watermark <= *last);
    }

    fn first_unstable(&self) -> Option<Offset> {
        let unreplicated = self.unreplicated.keys().next();
        self.ongoing.first().into_iter().chain(unreplicated).min().copied()
    }
}

const NO_TRANSACTION: &str = "the partition was not added to the producer's transaction";
const TRANSACTION_OPEN: &str = "its transaction on this partition is still open, so that a batch \
                                outside of it can't follow; use a new producer";

fn invalid_transaction(header: &BatchHeader, message: &'static str) -> AppendError {
    AppendError::InvalidTxnState { producer_id: header.producer_id, message }
}

#[cfg(test)]
mod tests;
