//! Appending: Kafka's checks in Kafka's order, offsets assigned, the batch staged. No I/O.

use super::error::AppendError;
use super::partition::{LogState, PartitionLog};
use super::producers::{Guard, Marker, Verdict};
use super::roll;
use super::validate::{Validated, validate};
use crate::format::batch::{Codec, RecordBatch};
use crate::format::control;
use crate::format::record::{BatchBuilder, NewRecord};
use crate::units::{Offset, Sequence, Timestamp};

/// What becomes of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// When it was appended; none on topics that keep the producer's time.
    pub log_append_time: Timestamp,
    /// First offset still readable.
    pub log_start: Offset,
    /// It may be acknowledged once the high watermark has reached this.
    pub due: Offset,
    /// Whether it was in the log already and nothing was staged.
    pub duplicate: bool,
}

impl PartitionLog {
    /// Assigns offsets to one batch of a client and stages it for the next plan.
    ///
    /// # Errors
    /// Every [`AppendError`], decided by the first failing check in Kafka's order
    /// (`UnifiedLog#append`). A batch that the producer checks refuse may leave the segment rolled.
    pub fn append(&mut self, batch: RecordBatch, now: Timestamp) -> Result<Appended, AppendError> {
        self.append_guarded(batch, Guard::Unverified, now)
    }

    /// The same for a batch of a transaction that the coordinator has vouched for, which may be
    /// the first of it here.
    ///
    /// # Errors
    /// As [`PartitionLog::append`].
    pub fn append_verified(
        &mut self,
        batch: RecordBatch,
        now: Timestamp,
    ) -> Result<Appended, AppendError> {
        self.append_guarded(batch, Guard::Verified, now)
    }

    /// The same for a batch that a coordinator writes on behalf of a producer.
    ///
    /// # Errors
    /// As [`PartitionLog::append`].
    pub fn append_coordinated(
        &mut self,
        batch: RecordBatch,
        now: Timestamp,
    ) -> Result<Appended, AppendError> {
        self.append_guarded(batch, Guard::Coordinator, now)
    }

    /// Ends a producer's transaction: stages the marker that readers of committed records wait
    /// for. `now` is the marker's time.
    ///
    /// # Errors
    /// [`AppendError::InvalidProducerEpoch`], [`AppendError::CoordinatorFenced`], and those of a
    /// log that doesn't serve.
    pub fn append_marker(
        &mut self,
        marker: &Marker,
        now: Timestamp,
    ) -> Result<Appended, AppendError> {
        self.check_serving()?;
        let mut batch = marker_batch(marker, now);
        let base_offset = self.cursors.next;
        batch.assign(base_offset, self.leader_epoch);
        if self.epochs.assign(self.leader_epoch, base_offset) {
            self.housekeeping.has_new_epochs = true;
        }
        self.make_room(&batch, now);
        self.producers.check_marker(marker)?;
        Ok(self.stage(batch, (Timestamp::NONE, Some(marker)), now))
    }

    fn append_guarded(
        &mut self,
        batch: RecordBatch,
        guard: Guard,
        now: Timestamp,
    ) -> Result<Appended, AppendError> {
        self.check_serving()?;
        let Validated { mut batch, log_append_time } = validate(batch, &self.config, now)?;
        let base_offset = self.cursors.next;
        batch.assign(base_offset, self.leader_epoch);
        if self.epochs.assign(self.leader_epoch, base_offset) {
            self.housekeeping.has_new_epochs = true;
        }
        let (size, limit) = (batch.size(), self.config.segment_bytes);
        if size > limit {
            return Err(AppendError::RecordListTooLarge { size, limit });
        }
        self.make_room(&batch, now);
        match self.producers.check(batch.header(), guard)? {
            Verdict::New => Ok(self.stage(batch, (log_append_time, None), now)),
            Verdict::Duplicate { base_offset, last_offset, timestamp } => Ok(Appended {
                base_offset,
                last_offset,
                log_append_time: timestamp,
                log_start: self.cursors.log_start,
                // The original may still be in flight.
                due: last_offset + 1,
                duplicate: true,
            }),
        }
    }

    pub(super) fn check_serving(&self) -> Result<(), AppendError> {
        match self.state {
            LogState::Serving => Ok(()),
            LogState::ReadOnly(cause) => Err(AppendError::NoSpace { reason: cause.to_string() }),
            LogState::Offline(cause) => Err(AppendError::Offline { reason: cause.to_string() }),
        }
    }

    /// Kafka's `maybeRoll`, with its side effect: whoever asks the indexes whether they are full
    /// makes them.
    fn make_room(&mut self, batch: &RecordBatch, now: Timestamp) {
        match roll::reason(&self.active, batch.header(), &self.config, now) {
            Some(_) => self.roll(now),
            None => self.active.touch_indexes(),
        }
    }

    fn stage(
        &mut self,
        batch: RecordBatch,
        (log_append_time, marker): (Timestamp, Option<&Marker>),
        now: Timestamp,
    ) -> Appended {
        let header = *batch.header();
        let base_offset = self.cursors.next;
        let last_offset = header.last_offset().expect("offsets were just assigned");
        let coordinator_epoch = marker.map(|marker| marker.coordinator_epoch);
        let ended = self.producers.update_with(&header, coordinator_epoch, now);
        if let (Some(ended), Some(Marker { commits: false, .. })) = (ended, marker) {
            self.active.stage_aborted(ended);
            self.aborted.push(ended);
        }
        self.active.stage(batch, self.config.index_interval_bytes, now);
        self.cursors.set_next(last_offset + 1);
        Appended {
            base_offset,
            last_offset,
            log_append_time,
            log_start: self.cursors.log_start,
            due: last_offset + 1,
            duplicate: false,
        }
    }
}

/// The batch of one control record that ends a transaction (`MemoryRecords`,
/// `EndTransactionMarker`).
fn marker_batch(marker: &Marker, now: Timestamp) -> RecordBatch {
    let (key, value) = control::marker(marker.commits, marker.coordinator_epoch);
    let record = NewRecord { key: Some(&key), ..NewRecord::value(now, &value) };
    let mut batch = BatchBuilder::new(Codec::None)
        .with_producer(marker.producer_id, marker.epoch, Sequence(-1))
        .transactional()
        .control();
    batch.push(&record);
    let batch = batch.build();
    assert_eq!(batch.size(), control::MARKER_BATCH_BYTES);
    batch
}
