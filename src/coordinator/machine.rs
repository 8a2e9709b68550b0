//! The face that every coordinator shows to its driver.

use crate::format::batch::HEADER_BYTES;
use crate::format::record::{self, NewRecord};
use crate::log::producers::Marker;
use crate::units::{ByteCount, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// A request that awaits its answer; drawn by the driver, never twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// A record for the internal topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
}

/// Counts what the batch of some records has, in bytes.
#[derive(Clone, Copy, Default, Debug)]
pub struct BatchSize {
    records: i32,
    bytes: usize,
}

impl BatchSize {
    /// Bytes of the batch with one more record.
    pub fn with(self, record: &Record) -> usize {
        let Record { key, value } = record;
        let (key, value) = (Some(key.as_slice()), value.as_deref());
        // All have the time of the batch.
        let record = NewRecord { timestamp: Timestamp(0), key, value, headers: &[] };
        self.bytes.max(HEADER_BYTES) + record::size(self.records, 0, &record)
    }

    /// Adds a record; returns what the batch has then.
    pub fn add(&mut self, record: &Record) -> usize {
        self.bytes = self.with(record);
        self.records += 1;
        self.bytes
    }
}

/// What is to be appended to the partition. Each is one batch: all of it or nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write {
    /// Records of the coordinator's own. The state says already what they say.
    Records(Vec<Record>),
    /// Records that are part of a producer's transaction. The state doesn't know of them: should
    /// the log take them the driver replays them, with their [`Origin`].
    Transactional {
        /// Whose transaction.
        producer_id: ProducerId,
        /// The producer's epoch.
        producer_epoch: ProducerEpoch,
        /// What is written.
        records: Vec<Record>,
    },
    /// The end of a producer's transaction. The driver replays it when the log has taken it.
    Marker(Marker),
}

/// What an event leads to.
///
/// Answers and effects are held until everything that was written up to them is as durable as the
/// partition's tier promises. When the log refuses a [`Write::Transactional`] or a
/// [`Write::Marker`] for the producer's fault, the answers of this output are the error, and
/// nothing else happens.
#[derive(Debug)]
pub struct Output<A, F> {
    /// For the log, in this order.
    pub writes: Vec<Write>,
    /// Answers to the requests with these tickets, each at most once.
    pub answers: Vec<(Ticket, A)>,
    /// What is to be done elsewhere afterwards.
    pub effects: Vec<F>,
}

impl<A, F> Default for Output<A, F> {
    fn default() -> Output<A, F> {
        Output { writes: Vec::new(), answers: Vec::new(), effects: Vec::new() }
    }
}

impl<A, F> Output<A, F> {
    /// Nothing happens.
    pub fn nothing() -> Output<A, F> {
        Output::default()
    }

    /// One answer and nothing else.
    pub fn answer(ticket: Ticket, answer: A) -> Output<A, F> {
        Output { answers: vec![(ticket, answer)], ..Output::default() }
    }

    /// Adds records, if there are any.
    pub fn write(&mut self, records: Vec<Record>) {
        if !records.is_empty() {
            self.writes.push(Write::Records(records));
        }
    }

    /// Adds what another event leads to, behind this.
    pub fn append(&mut self, mut other: Output<A, F>) {
        self.writes.append(&mut other.writes);
        self.answers.append(&mut other.answers);
        self.effects.append(&mut other.effects);
    }
}

/// Where a replayed record comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The coordinator's own.
    Own,
    /// A transaction of this producer: it counts when that is committed.
    Transaction(ProducerId),
}

/// A record as it stands in the log.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its key; records without one mean nothing here.
    pub key: &'a [u8],
    /// Its value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Who wrote it.
    pub origin: Origin,
    /// Its offset in the partition.
    pub offset: i64,
}

/// A record that can't be read; the state is as before.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReplayError(pub String);

/// The state machine of one partition of an internal topic.
///
/// Methods run to their end. `now` is the wall clock in milliseconds.
pub trait Coordinator: Sized + 'static {
    /// The sequence that batches of [`Write::Records`] carry, which have no producer: as Kafka's
    /// coordinator of this kind writes it.
    const SEQUENCE: Sequence;

    /// What it is configured with.
    type Settings;
    /// What it is asked; carries what is needed to answer, random ids included.
    type Request: 'static;
    /// What it answers, errors included.
    type Answer: 'static;
    /// What it wants done elsewhere.
    type Effect: 'static;

    /// The state of an empty partition.
    fn new(settings: &Self::Settings) -> Self;

    /// Follows a change of what it was made with.
    fn configure(&mut self, _settings: &Self::Settings) {}

    /// A batch may have so many bytes from now on: what the partition takes, which may change.
    fn limit_batches(&mut self, _bytes_max: ByteCount) {}

    /// Takes one record of the log: while the partition is loaded, and later those of
    /// [`Write::Transactional`].
    ///
    /// # Errors
    /// [`ReplayError`]: the driver says so and goes on with the next record.
    fn replay(&mut self, entry: Entry<'_>) -> Result<(), ReplayError>;

    /// Takes the end of a producer's transaction.
    fn replay_marker(&mut self, producer_id: ProducerId, commits: bool);

    /// All records have been replayed: timers start, what was under way goes on.
    fn loaded(&mut self, now: Timestamp) -> Output<Self::Answer, Self::Effect>;

    /// Whether the request may write: it is refused when the partition takes no records.
    fn may_write(request: &Self::Request) -> bool;

    /// Carries out a request. Its answer may come later, with another event's output.
    fn handle(
        &mut self,
        ticket: Ticket,
        request: Self::Request,
        now: Timestamp,
    ) -> Output<Self::Answer, Self::Effect>;

    /// When [`Coordinator::expire`] is to be called; `None` when no timer runs.
    fn deadline(&self) -> Option<Timestamp>;

    /// Does what is due. Afterwards the deadline lies behind `now`.
    fn expire(&mut self, now: Timestamp) -> Output<Self::Answer, Self::Effect>;
}
