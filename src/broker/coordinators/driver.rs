//! One partition's coordinator: its state, the requests that wait for it, its timers.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::broker::coordinators::load;
use crate::coordinator::{Coordinator, Entry, Origin, Output, Record, Ticket, Write};
use crate::format::batch::{Codec, RecordBatch};
use crate::format::record::{BatchBuilder, NewRecord};
use crate::log::{AppendError, Appended, LogState};
use crate::shard::{Partition, Reached, edge, now};
use crate::units::{
    ByteCount, Offset, PartitionId, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicId,
};
use crate::wire::error::ErrorCode;

/// Time between two tries to load a partition that can't be loaded.
const LOAD_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Changes that a coordinator hears of when it has been loaded; further ones are lost to it, which
/// costs offsets of deleted topics until they expire.
const TOLD_MAX: usize = 1_000;

/// Time between two looks at the timers, at least: should a coordinator break its promise about
/// deadlines the shard still serves others.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(1);

/// Who carries out effects.
pub type Act<C> = Rc<dyn Fn(PartitionId, <C as Coordinator>::Effect)>;

type Answered<C> = oneshot::Sender<Result<<C as Coordinator>::Answer, ErrorCode>>;

type OutputOf<C> = Output<<C as Coordinator>::Answer, <C as Coordinator>::Effect>;

enum State<C> {
    /// The log is being read, or will be tried again.
    Loading,
    /// It serves.
    Active(C),
    /// The topic is gone.
    Ended,
}

/// One partition's coordinator on its shard.
pub struct Driver<C: Coordinator> {
    name: String,
    id: PartitionId,
    partition: Partition,
    settings: RefCell<Rc<C::Settings>>,
    act: Act<C>,
    state: RefCell<State<C>>,
    /// Requests whose answers have not come out of the state yet.
    waiting: RefCell<HashMap<Ticket, Answered<C>>>,
    /// What it has to hear of as soon as it is loaded.
    told: RefCell<Vec<C::Request>>,
    /// Whether the last load has failed.
    has_failed: Cell<bool>,
    tickets: Cell<u64>,
    /// Where the last batch that was appended is due.
    due: Cell<Option<Offset>>,
    /// Told when the state or its deadline may have changed.
    changed: Notify,
}

/// Answers and effects that wait for the records before them.
struct Held<C: Coordinator> {
    answers: Vec<(Answered<C>, C::Answer)>,
    effects: Vec<C::Effect>,
}

impl<C: Coordinator> Driver<C> {
    /// One that is to be loaded, by [`Driver::run`].
    pub fn new(
        (name, id): (String, PartitionId),
        partition: Partition,
        settings: Rc<C::Settings>,
        act: Act<C>,
    ) -> Driver<C> {
        Driver {
            name,
            id,
            partition,
            settings: RefCell::new(settings),
            act,
            state: RefCell::new(State::Loading),
            waiting: RefCell::default(),
            told: RefCell::default(),
            has_failed: Cell::new(false),
            tickets: Cell::new(0),
            due: Cell::new(None),
            changed: Notify::new(),
        }
    }

    /// Which topic it belongs to.
    pub fn topic_id(&self) -> TopicId {
        self.partition.topic_id()
    }

    /// The partition is gone: whoever waits is told, and [`Driver::run`] ends.
    pub fn end(&self) {
        *self.state.borrow_mut() = State::Ended;
        self.refuse_waiting(ErrorCode::NotCoordinator);
        self.changed.notify_one();
    }

    /// The coordinator follows a change of its settings, at once or when it is loaded.
    pub fn configure(&self, settings: &Rc<C::Settings>) {
        *self.settings.borrow_mut() = settings.clone();
        if let State::Active(coordinator) = &mut *self.state.borrow_mut() {
            coordinator.configure(settings);
        }
    }

    /// Puts a request to the coordinator and waits for its answer.
    ///
    /// # Errors
    /// See [`Store::ask`](super::Store::ask).
    pub async fn ask(self: &Rc<Self>, request: C::Request) -> Result<C::Answer, ErrorCode> {
        let (answer, answered) = oneshot::channel();
        self.submit(request, answer)?;
        answered.await.unwrap_or(Err(ErrorCode::NotCoordinator))
    }

    /// Puts a request whose answer doesn't matter to the coordinator, when it is being loaded
    /// afterwards.
    pub fn tell(self: &Rc<Self>, request: C::Request) {
        if matches!(*self.state.borrow(), State::Loading) {
            let mut told = self.told.borrow_mut();
            if told.len() < TOLD_MAX {
                return told.push(request);
            }
            return tracing::warn!("{}: {TOLD_MAX} changes wait already", self.name);
        }
        let (answer, _) = oneshot::channel();
        if let Err(error) = self.submit(request, answer) {
            tracing::warn!("{}: it could not follow a change: {error}", self.name);
        }
    }

    fn submit(self: &Rc<Self>, request: C::Request, answer: Answered<C>) -> Result<(), ErrorCode> {
        let ticket = Ticket(self.tickets.get());
        let output = match &mut *self.state.borrow_mut() {
            State::Loading => return Err(ErrorCode::CoordinatorLoadInProgress),
            State::Ended => return Err(ErrorCode::NotCoordinator),
            State::Active(_) if C::may_write(&request) && !self.is_serving() => {
                return Err(ErrorCode::CoordinatorNotAvailable);
            }
            State::Active(coordinator) => {
                self.tickets.set(ticket.0 + 1);
                self.waiting.borrow_mut().insert(ticket, answer);
                coordinator.limit_batches(self.batch_bytes_max());
                coordinator.handle(ticket, request, now())
            }
        };
        self.carry_out(output);
        Ok(())
    }

    /// The largest batch that the partition takes.
    fn batch_bytes_max(&self) -> ByteCount {
        let config = self.partition.config();
        config.batch_bytes_max.min(config.segment_bytes)
    }

    fn is_serving(&self) -> bool {
        matches!(self.partition.state(), LogState::Serving)
    }

    /// Loads the partition and keeps its timers, until the topic is gone.
    pub async fn run(self: Rc<Self>) {
        loop {
            let deadline = match &*self.state.borrow() {
                State::Ended => return,
                State::Loading => Wait::Load,
                State::Active(coordinator) => Wait::Until(coordinator.deadline()),
            };
            match deadline {
                Wait::Load => self.load().await,
                Wait::Until(deadline) => self.wait_until(deadline).await,
            }
        }
    }

    async fn load(self: &Rc<Self>) {
        let settings = self.settings.borrow().clone();
        match load::load::<C>(&self.partition, &settings).await {
            Ok(mut coordinator) => {
                if matches!(*self.state.borrow(), State::Ended) {
                    return;
                }
                tracing::debug!("{} is loaded", self.name);
                self.due.set(None);
                // They may have changed meanwhile.
                coordinator.configure(&self.settings.borrow());
                coordinator.limit_batches(self.batch_bytes_max());
                let output = coordinator.loaded(now());
                *self.state.borrow_mut() = State::Active(coordinator);
                self.has_failed.set(false);
                self.carry_out(output);
                let told = std::mem::take(&mut *self.told.borrow_mut());
                told.into_iter().for_each(|request| self.tell(request));
            }
            Err(error) => {
                // Said once: an offline log stays so until the next start.
                if !self.has_failed.replace(true) {
                    tracing::error!("{}: its coordinator can't be loaded: {error}", self.name);
                }
                tokio::time::sleep(LOAD_AGAIN_AFTER).await;
            }
        }
    }

    async fn wait_until(self: &Rc<Self>, deadline: Option<Timestamp>) {
        let Some(deadline) = deadline else { return self.changed.notified().await };
        let left = u64::try_from(deadline.0.saturating_sub(now().0)).unwrap_or(0);
        let left = Duration::from_millis(left).max(LOOK_AGAIN_AFTER);
        if tokio::time::timeout(left, self.changed.notified()).await.is_ok() {
            return;
        }
        // What would be written waits, as the requests do.
        if !self.is_serving() {
            return tokio::time::sleep(LOAD_AGAIN_AFTER).await;
        }
        let output = match &mut *self.state.borrow_mut() {
            State::Active(coordinator) => {
                coordinator.limit_batches(self.batch_bytes_max());
                coordinator.expire(now())
            }
            _ => return,
        };
        self.carry_out(output);
    }

    fn carry_out(self: &Rc<Self>, output: OutputOf<C>) {
        self.changed.notify_one();
        let Output { writes, answers, effects } = output;
        let answers = self.take_waiting(answers);
        for write in writes {
            if let Err(error) = self.write(write) {
                return self.write_failed(&error, answers);
            }
        }
        if answers.is_empty() && effects.is_empty() {
            return;
        }
        let held = Held { answers, effects };
        let Some(due) = self.due.get() else { return self.release(held) };
        let reached = self.partition.reached(due);
        match reached.outcome() {
            Some(outcome) => self.over(outcome, held),
            None => edge::spawn(self.clone().hold(reached, held)),
        }
    }

    async fn hold(self: Rc<Self>, reached: Reached, held: Held<C>) {
        let outcome = reached.await;
        self.over(outcome, held);
    }

    fn over(&self, outcome: Result<(), AppendError>, held: Held<C>) {
        match outcome {
            Ok(()) => self.release(held),
            Err(error) => {
                refuse(held.answers, refusal_of(&error));
                self.reload(&error);
            }
        }
    }

    fn release(&self, held: Held<C>) {
        for (answered, answer) in held.answers {
            // Whoever asked may be gone.
            drop(answered.send(Ok(answer)));
        }
        held.effects.into_iter().for_each(|effect| (self.act)(self.id, effect));
    }

    fn take_waiting(&self, answers: Vec<(Ticket, C::Answer)>) -> Vec<(Answered<C>, C::Answer)> {
        let mut waiting = self.waiting.borrow_mut();
        let taken = answers.into_iter().map(|(ticket, answer)| {
            (waiting.remove(&ticket).expect("a ticket is answered once"), answer)
        });
        taken.collect()
    }

    fn write(&self, write: Write) -> Result<(), AppendError> {
        let appended = match write {
            Write::Records(records) => {
                let nobody = (ProducerId::NONE, ProducerEpoch(-1));
                self.partition.append(batch(builder(nobody, C::SEQUENCE), &records))?
            }
            Write::Transactional { producer_id, producer_epoch, records } => {
                let producer = (producer_id, producer_epoch);
                let builder = builder(producer, C::SEQUENCE).transactional();
                let appended = self.partition.append_coordinated(batch(builder, &records))?;
                self.replay(&records, (Origin::Transaction(producer_id), appended));
                appended
            }
            Write::Marker(marker) => {
                let appended = self.partition.append_marker(&marker)?;
                if let State::Active(coordinator) = &mut *self.state.borrow_mut() {
                    coordinator.replay_marker(marker.producer_id, marker.commits);
                }
                appended
            }
        };
        self.due.set(Some(appended.due));
        Ok(())
    }

    /// The state takes what the log has taken.
    fn replay(&self, records: &[Record], (origin, appended): (Origin, Appended)) {
        let State::Active(coordinator) = &mut *self.state.borrow_mut() else { return };
        for (offset, record) in (appended.base_offset.to_wire()..).zip(records) {
            let (key, value) = (record.key.as_slice(), record.value.as_deref());
            let replayed = coordinator.replay(Entry { key, value, origin, offset });
            replayed.expect("a coordinator reads what it has written");
        }
    }

    fn write_failed(&self, error: &AppendError, answers: Vec<(Answered<C>, C::Answer)>) {
        refuse(answers, refusal_of(error));
        if !is_producers_fault(error) {
            self.reload(error);
        }
    }

    /// Throws the state away: it says more than the log does.
    fn reload(&self, error: &AppendError) {
        {
            let mut state = self.state.borrow_mut();
            // Of many answers that fail at once the first has done it.
            if !matches!(*state, State::Active(_)) {
                return;
            }
            *state = State::Loading;
        }
        tracing::error!("{}: {error}; its coordinator is loaded again", self.name);
        self.refuse_waiting(refusal_of(error));
        self.changed.notify_one();
    }

    fn refuse_waiting(&self, code: ErrorCode) {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        waiting.into_values().for_each(|answered| drop(answered.send(Err(code))));
    }
}

enum Wait {
    Load,
    Until(Option<Timestamp>),
}

fn refuse<A>(answers: Vec<(oneshot::Sender<Result<A, ErrorCode>>, A)>, code: ErrorCode) {
    answers.into_iter().for_each(|(answered, _)| drop(answered.send(Err(code))));
}

fn builder((producer_id, epoch): (ProducerId, ProducerEpoch), sequence: Sequence) -> BatchBuilder {
    BatchBuilder::new(Codec::None).with_producer(producer_id, epoch, sequence)
}

fn batch(mut builder: BatchBuilder, records: &[Record]) -> RecordBatch {
    let timestamp = now();
    for Record { key, value } in records {
        let value = value.as_deref();
        builder.push(&NewRecord { timestamp, key: Some(key), value, headers: &[] });
    }
    builder.build()
}

/// Whether the log refuses one producer, so that everybody else's state is right.
fn is_producers_fault(error: &AppendError) -> bool {
    matches!(
        error,
        AppendError::InvalidProducerEpoch { .. }
            | AppendError::InvalidTxnState { .. }
            | AppendError::CoordinatorFenced { .. }
            | AppendError::TooManyProducers { .. }
            | AppendError::OutOfOrderSequence { .. }
    )
}

/// What a client is told when a record can't be written
/// (`CoordinatorOperationExceptionHelper`): to look for the coordinator and try again, unless it
/// was the record's fault.
fn refusal_of(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
        AppendError::InvalidTxnState { .. } => ErrorCode::InvalidTxnState,
        AppendError::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
        AppendError::Offline { .. } | AppendError::NoSpace { .. } => {
            ErrorCode::CoordinatorNotAvailable
        }
        AppendError::CorruptMessage(_)
        | AppendError::MessageTooLarge { .. }
        | AppendError::RecordListTooLarge { .. }
        | AppendError::DecompressedTooLarge { .. }
        | AppendError::InvalidTimestamp(_)
        | AppendError::TooManyProducers { .. }
        | AppendError::OutOfOrderSequence { .. }
        | AppendError::UnsupportedCompression(_)
        | AppendError::InvalidBatch(_)
        | AppendError::InvalidRecord(_) => ErrorCode::UnknownServerError,
    }
}
