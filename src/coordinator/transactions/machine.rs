//! The coordinator as its driver sees it: requests, answers, timers.

use std::collections::BTreeSet;

use crate::coordinator::transactions::record::Record;
use crate::coordinator::transactions::state::{TopicPartition, Transaction, TransactionVersion};
use crate::coordinator::transactions::{
    Added, Change, End, Ended, Filter, Init, Listed, MarkersDue, Outcome, Producer, Refused,
    Settings, TransactionalId, Transactions,
};
use crate::coordinator::{self, Coordinator, Entry, Output, ReplayError, Ticket, Write};
use crate::units::{ProducerId, Sequence, Timestamp};

/// Tombstones that go into one batch, in bytes of their keys.
const TOMBSTONE_BYTES_MAX: usize = 256 << 10;

/// What a coordinator is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// InitProducerId with a transactional id.
    Init {
        /// The request.
        request: Init,
        /// A producer id that nobody has had, after [`Answer::NeedsProducerId`].
        fresh: Option<ProducerId>,
    },
    /// AddPartitionsToTxn and AddOffsetsToTxn.
    AddPartitions {
        /// The transactional id.
        id: TransactionalId,
        /// Who produces.
        producer: Producer,
        /// What it is going to write to.
        partitions: BTreeSet<TopicPartition>,
        /// What the client speaks.
        version: TransactionVersion,
    },
    /// AddPartitionsToTxn 4 and 5 of a broker that asks whether a batch belongs to a transaction.
    Verify {
        /// The transactional id.
        id: TransactionalId,
        /// Who produces.
        producer: Producer,
        /// What it writes to.
        partitions: BTreeSet<TopicPartition>,
    },
    /// EndTxn.
    End {
        /// The request.
        request: End,
        /// A producer id that nobody has had, after [`Answer::NeedsProducerId`].
        fresh: Option<ProducerId>,
    },
    /// A transaction is open for too long: [`Effect::NeedsProducerId`].
    TimeOut {
        /// The transactional id.
        id: TransactionalId,
        /// A producer id that nobody has had.
        fresh: ProducerId,
    },
    /// Partitions have their markers, others don't yet.
    Marked {
        /// The transactional id.
        id: TransactionalId,
        /// Which partitions.
        partitions: Vec<TopicPartition>,
    },
    /// All partitions have their markers: [`MarkersDue::complete`].
    Finish(Change),
    /// DescribeTransactions, one id.
    Describe(TransactionalId),
    /// ListTransactions.
    List(Filter),
}

/// What a coordinator answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Nothing has changed.
    Refused(Refused),
    /// Ask again with a producer id that nobody has had.
    NeedsProducerId,
    /// To Init and End: the producer as it is now.
    Producer(Producer),
    /// To AddPartitions.
    Added,
    /// To Verify: those that belong to the transaction.
    Verified(BTreeSet<TopicPartition>),
    /// To TimeOut, Marked and Finish.
    Noted,
    /// To Describe.
    Described(Box<Transaction>),
    /// To List.
    Listed(Vec<Listed>),
}

/// What is to be done elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Write the markers, tell of some by [`Request::Marked`], of all by [`Request::Finish`].
    Markers(MarkersDue),
    /// Come back with [`Request::TimeOut`].
    NeedsProducerId(TransactionalId),
}

/// When the coordinator looks for what is due by itself.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Timers {
    abort: Timestamp,
    expiration: Timestamp,
}

impl Coordinator for Transactions {
    const SEQUENCE: Sequence = Sequence(-1);

    type Settings = Settings;
    type Request = Request;
    type Answer = Answer;
    type Effect = Effect;

    fn new(settings: &Settings) -> Transactions {
        Transactions::new(*settings)
    }

    fn replay(&mut self, entry: Entry<'_>) -> Result<(), ReplayError> {
        let record = Record::decode(Some(entry.key), entry.value);
        self.load(record.map_err(|error| ReplayError(error.to_string()))?);
        Ok(())
    }

    /// Nobody writes to this topic in a transaction.
    fn replay_marker(&mut self, _producer_id: ProducerId, _commits: bool) {}

    fn loaded(&mut self, now: Timestamp) -> Output<Answer, Effect> {
        self.timers = Timers {
            abort: later(now, self.settings.abort_interval_ms),
            expiration: later(now, self.settings.expiration_interval_ms),
        };
        let markers = self.resume(now).into_iter().map(Effect::Markers);
        Output { effects: markers.collect(), ..Output::nothing() }
    }

    fn may_write(request: &Request) -> bool {
        match request {
            Request::Init { .. }
            | Request::AddPartitions { .. }
            | Request::End { .. }
            | Request::TimeOut { .. }
            | Request::Finish(_) => true,
            Request::Verify { .. }
            | Request::Marked { .. }
            | Request::Describe(_)
            | Request::List(_) => false,
        }
    }

    fn handle(
        &mut self,
        ticket: Ticket,
        request: Request,
        now: Timestamp,
    ) -> Output<Answer, Effect> {
        let mut output = Output::nothing();
        let answer = self.answer(request, now, &mut output);
        output.answers.push((ticket, answer.unwrap_or_else(Answer::Refused)));
        output
    }

    fn deadline(&self) -> Option<Timestamp> {
        (!self.is_empty()).then(|| self.timers.abort.min(self.timers.expiration))
    }

    fn expire(&mut self, now: Timestamp) -> Output<Answer, Effect> {
        let mut output = Output::nothing();
        if self.timers.abort <= now {
            self.timers.abort = later(now, self.settings.abort_interval_ms);
            for id in self.timed_out(now) {
                self.abort(id, None, now, &mut output);
            }
        }
        if self.timers.expiration <= now {
            self.timers.expiration = later(now, self.settings.expiration_interval_ms);
            self.forget_unused(now, &mut output);
        }
        output
    }
}

/// Timers never stand still, whatever the settings.
fn later(now: Timestamp, interval_ms: u64) -> Timestamp {
    Timestamp(now.0.saturating_add(i64::try_from(interval_ms.max(1)).unwrap_or(i64::MAX)))
}

impl Transactions {
    fn answer(
        &mut self,
        request: Request,
        now: Timestamp,
        output: &mut Output<Answer, Effect>,
    ) -> Result<Answer, Refused> {
        Ok(match request {
            Request::Init { request, fresh } => match self.init_producer(&request, fresh, now)? {
                Outcome::NeedsProducerId => Answer::NeedsProducerId,
                Outcome::Answer(producer) => Answer::Producer(producer),
                Outcome::Change(change) => {
                    let _ = self.carry_out(&change, now, output);
                    Answer::Producer(change.producer().ok_or(Refused::Concurrent)?)
                }
            },
            Request::AddPartitions { id, producer, partitions, version } => {
                match self.add_partitions((&id, producer), &partitions, version, now)? {
                    Outcome::Answer(Added) => {}
                    Outcome::Change(change) => drop(self.carry_out(&change, now, output)),
                    Outcome::NeedsProducerId => unreachable!("partitions take no producer id"),
                }
                Answer::Added
            }
            Request::Verify { id, producer, partitions } => {
                Answer::Verified(self.verify_partitions((&id, producer), &partitions)?)
            }
            Request::End { request, fresh } => match self.end(&request, fresh, now)? {
                Outcome::NeedsProducerId => Answer::NeedsProducerId,
                Outcome::Answer(Ended(producer)) => Answer::Producer(producer),
                Outcome::Change(change) => {
                    let due = self.carry_out(&change, now, output);
                    Answer::Producer(due.expect("a decision has markers"))
                }
            },
            Request::TimeOut { id, fresh } => {
                self.abort(id, Some(fresh), now, output);
                Answer::Noted
            }
            Request::Marked { id, partitions } => {
                partitions.iter().for_each(|partition| self.marked(&id, partition));
                Answer::Noted
            }
            Request::Finish(change) => {
                if self.awaits(&change) {
                    let _ = self.carry_out(&change, now, output);
                }
                Answer::Noted
            }
            Request::Describe(id) => Answer::Described(Box::new(self.describe(&id)?.clone())),
            Request::List(filter) => Answer::Listed(self.list(&filter, now).collect()),
        })
    }

    /// The state takes the change; its record is written, and what is due then is due. Returns the
    /// producer as a decision leaves it.
    fn carry_out(
        &mut self,
        change: &Change,
        now: Timestamp,
        output: &mut Output<Answer, Effect>,
    ) -> Option<Producer> {
        output.write(vec![record_of(change)]);
        let due = self.written(change, now)?;
        let producer = due.producer();
        output.effects.push(Effect::Markers(due));
        Some(producer)
    }

    fn abort(
        &mut self,
        id: TransactionalId,
        fresh: Option<ProducerId>,
        now: Timestamp,
        output: &mut Output<Answer, Effect>,
    ) {
        match self.time_out(&id, fresh, now) {
            Some(Outcome::Change(change)) => drop(self.carry_out(&change, now, output)),
            Some(Outcome::NeedsProducerId) => output.effects.push(Effect::NeedsProducerId(id)),
            // It was ended meanwhile.
            Some(Outcome::Answer(())) | None => {}
        }
    }

    fn forget_unused(&mut self, now: Timestamp, output: &mut Output<Answer, Effect>) {
        let (mut tombstones, mut bytes) = (Vec::new(), 0);
        for change in self.expire_ids(now) {
            bytes += change.id().len();
            tombstones.push(record_of(&change));
            let due = self.written(&change, now);
            assert_eq!(due, None, "an unused id has no transaction");
            if TOMBSTONE_BYTES_MAX < bytes {
                output.writes.push(Write::Records(std::mem::take(&mut tombstones)));
                bytes = 0;
            }
        }
        output.write(tombstones);
    }
}

fn record_of(change: &Change) -> coordinator::Record {
    let (key, value) = change.record();
    coordinator::Record { key, value }
}
