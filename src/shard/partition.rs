//! One partition as its users see it: append and acknowledgement, reads, cursors.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::sync::{Notify, oneshot};

use crate::disk::{DiskError, FileId, Finished, Lane, Place, Plan, Step};
use crate::format::batch::RecordBatch;
use crate::format::control;
use crate::format::producer_snapshot::ProducerEntry;
use crate::log::journal::Turn;
use crate::log::producers::{Marker, Standing};
use crate::log::{
    AdvanceError, AppendError, Appended, Completed, Cursors, Journal, LogConfig, LogState,
    PartitionLog,
};
use crate::shard::edge;
use crate::shard::engine::{Core, now};
use crate::shard::error::EngineError;
use crate::shard::stats::Stats;
use crate::shard::waiting::Waiting;
use crate::units::{ByteCount, LeaderEpoch, Offset, Position, ProducerId, Timestamp, TopicId};

/// How the log stopped serving: what had been reached by then, and the reason.
struct Stop {
    high_watermark: Offset,
    error: AppendError,
}

/// A time of serving, with its end when it is over. Offsets beyond what was reached by then may be
/// given again after a resume, so acknowledgements belong to one of these times.
type Term = Rc<OnceCell<Stop>>;

/// A partition and what waits on it. Borrowed for moments only, never across a wait.
pub(crate) struct PartitionCell {
    pub number: u32,
    pub directory: Arc<Path>,
    pub log: RefCell<PartitionLog>,
    pub waiting: RefCell<Waiting>,
    /// Whether it stands in the engine's list for the end of this turn.
    pub dirty: Cell<bool>,
    /// When the oldest staged batch of the next plan was appended.
    staged_at: Cell<Option<Instant>>,
    /// When the append plan under way was submitted, and whether it ends in a sync.
    submitted: Cell<Option<(Instant, bool)>>,
    housekeeping: Cell<bool>,
    /// While it is read-only: when it may be tried again whether there is space.
    pub resume_not_before: Cell<Option<Instant>>,
    /// Whether a round over it has failed for good: it is left alone until the next start.
    pub is_uncleanable: Cell<bool>,
    /// Told when a load of a sealed segment's index is over.
    pub loaded: Notify,
    /// The time of serving that is not over yet.
    term: RefCell<Term>,
    /// Told when no plan of the append lane is under way and nothing is staged.
    pub idle: Notify,
    /// Slices of this partition's files that an answer still needs.
    pub pins: RefCell<std::collections::HashMap<Offset, u32>>,
}

impl PartitionCell {
    pub fn new(number: u32, log: PartitionLog, directory: Arc<Path>) -> PartitionCell {
        PartitionCell {
            number,
            directory,
            log: RefCell::new(log),
            waiting: RefCell::default(),
            dirty: Cell::new(false),
            staged_at: Cell::new(None),
            submitted: Cell::new(None),
            housekeeping: Cell::new(false),
            resume_not_before: Cell::new(None),
            is_uncleanable: Cell::new(false),
            loaded: Notify::new(),
            term: RefCell::default(),
            idle: Notify::new(),
            pins: RefCell::default(),
        }
    }

    /// The plan of everything staged, unless one is under way; with a journal, which may be what
    /// makes it durable.
    pub fn plan(&self, now: Timestamp, stats: &Stats, journal: Option<&mut Journal>) -> Turn {
        if self.submitted.get().is_some() {
            return Turn::Nothing;
        }
        let mut log = self.log.borrow_mut();
        let turn = match journal {
            Some(journal) => journal.plan(&mut log, now),
            None => log.plan(now).map_or(Turn::Nothing, Turn::Plan),
        };
        if let Turn::Plan(plan) = &turn {
            let started = Instant::now();
            let syncs = plan.steps.iter().any(|step| matches!(step, Step::Sync { .. }));
            self.submitted.set(Some((started, syncs || log.is_recorded())));
            if let Some(staged) = self.staged_at.take() {
                stats.wait_for_turn.record(started - staged);
            }
            stats.plans.add(1);
        }
        turn
    }

    /// Whether a plan of the append lane is under way.
    pub fn is_planned(&self) -> bool {
        self.submitted.get().is_some()
    }

    /// The plan of the housekeeping lane that is due, unless one is under way.
    pub fn housekeeping_plan(&self, now: Timestamp) -> Option<Plan> {
        if self.housekeeping.get() {
            return None;
        }
        let plan = self.log.borrow_mut().housekeeping(now)?;
        self.housekeeping.set(true);
        Some(plan)
    }

    /// Whether something is staged or under way in the lanes that change files.
    pub fn is_busy(&self) -> bool {
        // The plans that make, retire and close a log are under way without being the flusher's.
        self.submitted.get().is_some()
            || self.log.borrow().is_in_flight()
            || (self.log.borrow().has_staged()
                && matches!(self.log.borrow().state(), LogState::Serving))
    }

    /// Takes in the outcome of one of the log's plans.
    pub fn complete(&self, finished: Finished, stats: &Stats) -> Completed {
        let lane = finished.plan.tag.lane;
        if lane == Lane::Housekeeping {
            self.housekeeping.set(false);
        }
        let completed = self.log.borrow_mut().complete(finished, now());
        if lane == Lane::Append {
            self.append_over(stats);
        }
        self.settle_waits(&completed);
        if completed.swapped.is_some() || completed.stopped.is_some() {
            // They wait until the segments have their names again.
            self.loaded.notify_waiters();
        }
        completed
    }

    /// The record that covers the plan under way is over.
    pub fn record_over(&self, is_durable: bool, stats: &Stats) {
        let was_awaited = self.log.borrow().awaits_record();
        let completed = self.log.borrow_mut().record_over(is_durable);
        if was_awaited {
            self.append_over(stats);
        }
        self.settle_waits(&completed);
    }

    /// The append plan is over, unless its record is not.
    fn append_over(&self, stats: &Stats) {
        if self.log.borrow().awaits_record() {
            return;
        }
        if let Some((started, syncs)) = self.submitted.take() {
            let stage = if syncs { &stats.sync } else { &stats.write };
            stage.record(started.elapsed());
        }
    }

    fn settle_waits(&self, completed: &Completed) {
        self.release(completed);
        if !self.is_busy() {
            self.told_idle();
        }
    }

    /// Wakes whoever waits for what just moved.
    pub fn release(&self, completed: &Completed) {
        if let Some(end) = completed.high_watermark {
            self.waiting.borrow_mut().release(end);
        }
        if let Some(LogState::ReadOnly(cause) | LogState::Offline(cause)) = completed.stopped {
            tracing::error!(partition = %self.directory.display(), %cause, "no longer serving");
            let log = self.log.borrow();
            let error = log.append_refusal().expect("it has just stopped");
            let high_watermark = log.cursors().high_watermark;
            let over = std::mem::take(&mut *self.term.borrow_mut());
            assert!(over.set(Stop { high_watermark, error }).is_ok(), "a time ends once");
            self.waiting.borrow_mut().release_all();
        }
    }

    fn told_idle(&self) {
        self.idle.notify_waiters();
        self.idle.notify_one();
    }
}

/// A handle on a partition; cheap to clone, bound to its shard's thread.
#[derive(Clone)]
pub struct Partition {
    pub(crate) core: Rc<Core>,
    pub(crate) cell: Rc<PartitionCell>,
}

impl Partition {
    pub(crate) fn new(core: Rc<Core>, cell: Rc<PartitionCell>) -> Partition {
        Partition { core, cell }
    }

    /// Appends a batch: offsets are assigned now, the bytes are written at the end of this turn.
    /// [`Partition::reached`] with the returned `due` is the acknowledgement.
    ///
    /// # Errors
    /// As Kafka's append, see [`AppendError`].
    pub fn append(&self, batch: RecordBatch) -> Result<Appended, AppendError> {
        let bytes = batch.size();
        self.append_with(bytes, |log| log.append(batch, now()))
    }

    /// The same for a batch of a transaction that the coordinator has vouched for, which may be
    /// the first of it here.
    ///
    /// # Errors
    /// As [`Partition::append`].
    pub fn append_verified(&self, batch: RecordBatch) -> Result<Appended, AppendError> {
        let bytes = batch.size();
        self.append_with(bytes, |log| log.append_verified(batch, now()))
    }

    /// The same for a batch that a coordinator writes on behalf of a producer: sequences don't
    /// count.
    ///
    /// # Errors
    /// As [`Partition::append`].
    pub fn append_coordinated(&self, batch: RecordBatch) -> Result<Appended, AppendError> {
        let bytes = batch.size();
        self.append_with(bytes, |log| log.append_coordinated(batch, now()))
    }

    /// Appends the marker that ends a producer's transaction here.
    ///
    /// # Errors
    /// [`AppendError::InvalidProducerEpoch`], [`AppendError::CoordinatorFenced`], and those of a
    /// log that doesn't serve.
    pub fn append_marker(&self, marker: &Marker) -> Result<Appended, AppendError> {
        self.append_with(control::MARKER_BATCH_BYTES, |log| log.append_marker(marker, now()))
    }

    fn append_with(
        &self,
        bytes: ByteCount,
        append: impl FnOnce(&mut PartitionLog) -> Result<Appended, AppendError>,
    ) -> Result<Appended, AppendError> {
        if self.core.is_stopped() {
            return Err(AppendError::Offline { reason: "the server is being stopped".to_owned() });
        }
        let appended = append(&mut self.cell.log.borrow_mut())?;
        if !appended.duplicate {
            self.core.stats.batches.add(1);
            self.core.stats.bytes_in.add(bytes.0);
            if self.cell.staged_at.get().is_none() {
                self.cell.staged_at.set(Some(Instant::now()));
            }
            self.core.mark_dirty(&self.cell);
        }
        Ok(appended)
    }

    /// Waits until the high watermark is `due` or more: the batch that ends there is as durable as
    /// the partition's tier promises, and visible. To be called when the batch was appended, even
    /// if it is awaited later: should the partition stop serving and resume in between, the offset
    /// may belong to another batch by then.
    ///
    /// # Errors
    /// The future's [`AppendError`] when the partition stopped serving before that.
    pub fn reached(&self, due: Offset) -> Reached {
        let term = self.cell.term.borrow().clone();
        Reached { cell: self.cell.clone(), due, term, waker: None }
    }

    /// Waits until the high watermark is beyond `offset`, or the partition stops serving.
    pub async fn changed(&self, beyond: Offset) {
        let place = self.cell.waiting.borrow_mut().place();
        let waiting = Waits { cell: &self.cell, place };
        poll_fn(|context| {
            let log = waiting.cell.log.borrow();
            let serving = matches!(log.state(), LogState::Serving | LogState::ReadOnly(_));
            if beyond < log.cursors().high_watermark || !serving {
                return Poll::Ready(());
            }
            let mut waits = waiting.cell.waiting.borrow_mut();
            waits.for_more(waiting.place, beyond, context.waker());
            Poll::Pending
        })
        .await;
    }

    /// Waits until the last stable offset is beyond `offset`, or the partition stops serving.
    pub async fn changed_stable(&self, beyond: Offset) {
        let place = self.cell.waiting.borrow_mut().place();
        let waiting = Waits { cell: &self.cell, place };
        poll_fn(|context| {
            let log = waiting.cell.log.borrow();
            let serving = matches!(log.state(), LogState::Serving | LogState::ReadOnly(_));
            if beyond < log.last_stable() || !serving {
                return Poll::Ready(());
            }
            // It only ever moves with the high watermark: a marker counts when that has passed it.
            let high_watermark = log.cursors().high_watermark;
            let mut waits = waiting.cell.waiting.borrow_mut();
            waits.for_more(waiting.place, high_watermark, context.waker());
            Poll::Pending
        })
        .await;
    }

    /// Where a producer stands; `None` when the partition doesn't know it.
    pub fn standing(&self, producer_id: ProducerId) -> Option<Standing> {
        self.cell.log.borrow().producers().standing(producer_id)
    }

    /// The producers that the partition knows, as a snapshot would list them.
    pub fn producers(&self) -> Vec<ProducerEntry> {
        self.cell.log.borrow().producers().entries()
    }

    /// Where readers of committed records stop.
    pub fn last_stable(&self) -> Offset {
        self.cell.log.borrow().last_stable()
    }

    /// Where the partition's offsets stand.
    pub fn cursors(&self) -> Cursors {
        self.cell.log.borrow().cursors()
    }

    /// Whether it serves, and why not.
    pub fn state(&self) -> LogState {
        self.cell.log.borrow().state()
    }

    /// The topic's id.
    pub fn topic_id(&self) -> TopicId {
        self.cell.log.borrow().topic_id()
    }

    /// The directory that holds the partition's files.
    pub fn directory(&self) -> &Path {
        &self.cell.directory
    }

    /// Bytes of all `.log` files.
    pub fn size(&self) -> ByteCount {
        self.cell.log.borrow().size()
    }

    /// The epoch that batches are stamped with.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.cell.log.borrow().leader_epoch()
    }

    /// The settings.
    pub fn config(&self) -> LogConfig {
        self.cell.log.borrow().config().clone()
    }

    /// First offset that no cleaning has gone over, if one has gone over any.
    pub fn first_dirty(&self) -> Option<Offset> {
        self.cell.log.borrow().first_dirty()
    }

    /// Takes what `cleaner-offset-checkpoint` says.
    pub fn set_first_dirty(&self, first_dirty: Option<Offset>) {
        self.cell.log.borrow_mut().set_first_dirty(first_dirty);
        self.core.check_first_dirty(&self.cell, now());
    }

    /// New settings from now on.
    pub fn reconfigure(&self, config: LogConfig) {
        self.cell.log.borrow_mut().reconfigure(config);
        // What was written in the page-cache tier is synced as soon as the device tier goes.
        self.core.mark_dirty(&self.cell);
    }

    /// The partition gets its leader: batches carry `epoch` from now on.
    pub fn become_leader(&self, epoch: LeaderEpoch) {
        self.cell.log.borrow_mut().become_leader(epoch, now());
    }

    /// Kafka's answer to OffsetForLeaderEpoch: the epoch found, and where it ends.
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> (LeaderEpoch, Option<Offset>) {
        self.cell.log.borrow().end_offset_for_epoch(epoch)
    }

    /// The leader epoch that `offset` was written in.
    pub fn epoch_of(&self, offset: Offset) -> LeaderEpoch {
        self.cell.log.borrow().epoch_of(offset).unwrap_or(LeaderEpoch::NONE)
    }

    /// Whether the log start has to be kept in the checkpoint file.
    pub fn needs_log_start_checkpoint(&self) -> bool {
        self.cell.log.borrow().needs_log_start_checkpoint()
    }

    /// Records below `to` are no longer readable; whole segments go with the next retention pass.
    ///
    /// # Errors
    /// [`AdvanceError`] beyond the high watermark.
    pub fn advance_log_start(&self, to: Offset) -> Result<(), AdvanceError> {
        self.cell.log.borrow_mut().advance_log_start(to)
    }

    /// The topic is deleted: the directory takes Kafka's `-delete` name, waiters are told. The
    /// files are removed later, by whoever sweeps such directories. Once begun it is carried out,
    /// even if whoever wants it gives up.
    ///
    /// # Errors
    /// [`EngineError::Disk`] when the renaming fails.
    pub async fn retire(&self, renamed: Place) -> Result<(), EngineError> {
        self.core.drained(&self.cell).await;
        let plan = self.cell.log.borrow_mut().retire(renamed);
        self.cell.waiting.borrow_mut().release_all();
        let (running, partition) = (self.core.run(plan), self.clone());
        let (outcome, retired) = oneshot::channel();
        edge::spawn(async move {
            let finished = running.await;
            let result = finished.result;
            partition.cell.log.borrow_mut().complete(finished, now());
            partition.core.forget(&partition.cell);
            partition.cell.told_idle();
            // Whoever waited may have given up.
            let _ = outcome.send(result);
        });
        let result = retired.await.expect("the task lives as long as its runtime");
        result.map_err(|failure| self.disk_error(failure.error))
    }

    fn disk_error(&self, error: DiskError) -> EngineError {
        EngineError::Disk { directory: self.cell.directory.to_path_buf(), error }
    }
}

/// A place among those that wait for more; given up when the wait ends, however it does.
struct Waits<'a> {
    cell: &'a PartitionCell,
    place: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.cell.waiting.borrow_mut().forget(self.place);
    }
}

/// The acknowledgement of an append; see [`Partition::reached`].
pub struct Reached {
    cell: Rc<PartitionCell>,
    due: Offset,
    /// When the batch was appended.
    term: Term,
    /// Who is woken already when it is due.
    waker: Option<Waker>,
}

impl Reached {
    /// The outcome, if it is decided.
    pub fn outcome(&self) -> Option<Result<(), AppendError>> {
        let log = self.cell.log.borrow();
        if let Some(stop) = self.term.get() {
            let was_reached = self.due <= stop.high_watermark;
            return Some(if was_reached { Ok(()) } else { Err(stop.error.clone()) });
        }
        if self.due <= log.cursors().high_watermark {
            return Some(Ok(()));
        }
        log.append_refusal().map(Err)
    }
}

impl Future for Reached {
    type Output = Result<(), AppendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.outcome() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                let known = self.waker.as_ref().is_some_and(|it| it.will_wake(context.waker()));
                if !known {
                    self.cell.waiting.borrow_mut().for_ack(self.due, context.waker());
                    self.waker = Some(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

/// Whole batches of one segment's file, ready to be sent. While it exists the file stays open.
pub struct ReadSlice {
    pub(crate) file: FileId,
    pub(crate) at: Position,
    /// How many bytes.
    pub length: ByteCount,
    pub(crate) segment: Offset,
    pub(crate) core: Rc<Core>,
    cell: Rc<PartitionCell>,
}

impl ReadSlice {
    pub(crate) fn new(
        partition: &Partition,
        (segment, file): (Offset, FileId),
        at: Position,
        length: ByteCount,
    ) -> ReadSlice {
        *partition.cell.pins.borrow_mut().entry(segment).or_default() += 1;
        let (core, cell) = (partition.core.clone(), partition.cell.clone());
        ReadSlice { file, at, length, segment, core, cell }
    }
}

impl ReadSlice {
    /// Whether its segment will never have more: a reader behind it has no reason to wait.
    pub fn is_of_complete_segment(&self) -> bool {
        self.cell.log.borrow().is_complete(self.segment)
    }

    /// Takes the first `length` bytes off, to be read on their own.
    ///
    /// # Panics
    /// When there are fewer.
    pub(crate) fn split_to(&mut self, length: ByteCount) -> ReadSlice {
        let rest = self.length.0.checked_sub(length.0).expect("no more than there is");
        let partition = Partition::new(self.core.clone(), self.cell.clone());
        let first = ReadSlice::new(&partition, (self.segment, self.file), self.at, length);
        self.at += length;
        self.length = ByteCount(rest);
        first
    }
}

impl Drop for ReadSlice {
    fn drop(&mut self) {
        let mut pins = self.cell.pins.borrow_mut();
        let count = pins.get_mut(&self.segment).expect("pinned when it was made");
        *count -= 1;
        if *count == 0 {
            pins.remove(&self.segment);
        }
    }
}
