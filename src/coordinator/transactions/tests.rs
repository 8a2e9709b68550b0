//! Single rules, each with the case that tells it from its neighbours.

use std::collections::BTreeSet;

use super::*;
use crate::coordinator::{Coordinator, Ticket, Write};
use crate::format::names::TopicName;
use crate::log::producers::Marker;
use crate::units::{LeaderEpoch, PartitionId};

const NOW: Timestamp = Timestamp(5_000);
const TIMEOUT_MS: i32 = 60_000;
const ID: &str = "t";

pub(super) fn settings() -> Settings {
    Settings {
        timeout_ms_max: 900_000,
        id_expiration_ms: 604_800_000,
        abort_interval_ms: 10_000,
        expiration_interval_ms: 3_600_000,
        version: TransactionVersion::Two,
    }
}

pub(super) fn partition(topic: &str, number: u32) -> TopicPartition {
    let topic = TopicName::new(topic).expect("a topic's name");
    TopicPartition { topic, partition: PartitionId(number) }
}

fn producer(id: i64, epoch: i16) -> Producer {
    Producer { id: ProducerId(id), epoch: ProducerEpoch(epoch) }
}

/// A coordinator whose records are durable at once.
struct Desk {
    coordinator: Transactions,
    fresh: i64,
    records: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Desk {
    fn new() -> Desk {
        Desk { coordinator: Transactions::new(settings()), fresh: 0, records: Vec::new() }
    }

    fn begun(version: TransactionVersion) -> (Desk, Producer) {
        let mut desk = Desk::new();
        let it = desk.init(None).expect("the id is free");
        desk.add(it, &[partition("a", 0), partition("b", 3)], version).expect("it begins");
        (desk, it)
    }

    fn write(&mut self, change: &Change) -> Option<MarkersDue> {
        self.records.push(change.record());
        self.coordinator.written(change, NOW)
    }

    fn finish(&mut self, due: &MarkersDue) {
        for partition in &due.partitions {
            self.coordinator.marked(&due.id, partition);
        }
        assert_eq!(self.write(&due.complete), None);
    }

    fn init(&mut self, expected: Option<Producer>) -> Result<Producer, Refused> {
        let request = Init { id: ID.into(), timeout_ms: TIMEOUT_MS, expected };
        let mut fresh = None;
        loop {
            match self.coordinator.init_producer(&request, fresh, NOW)? {
                Outcome::NeedsProducerId => {
                    assert_eq!(fresh, None, "one is enough");
                    self.fresh += 1;
                    fresh = Some(ProducerId(self.fresh));
                }
                Outcome::Change(change) => {
                    let due = self.write(&change);
                    if let Some(due) = due {
                        self.finish(&due);
                    }
                    return change.producer().ok_or(Refused::Concurrent);
                }
                Outcome::Answer(_) => panic!("every use of an id is written"),
            }
        }
    }

    fn add(
        &mut self,
        producer: Producer,
        partitions: &[TopicPartition],
        version: TransactionVersion,
    ) -> Result<(), Refused> {
        let partitions: BTreeSet<_> = partitions.iter().cloned().collect();
        let id: TransactionalId = ID.into();
        let added = self.coordinator.add_partitions((&id, producer), &partitions, version, NOW)?;
        if let Outcome::Change(change) = added {
            assert_eq!(self.write(&change), None);
        }
        Ok(())
    }

    fn decide(
        &mut self,
        producer: Producer,
        commits: bool,
        version: TransactionVersion,
    ) -> Result<Result<MarkersDue, Producer>, Refused> {
        let request = End { id: ID.into(), producer, commits, version };
        let mut fresh = None;
        loop {
            match self.coordinator.end(&request, fresh, NOW)? {
                Outcome::NeedsProducerId => {
                    self.fresh += 1;
                    fresh = Some(ProducerId(self.fresh));
                }
                Outcome::Change(change) => {
                    return Ok(Ok(self.write(&change).expect("it is decided")));
                }
                Outcome::Answer(Ended(producer)) => return Ok(Err(producer)),
            }
        }
    }

    fn state(&self) -> State {
        self.coordinator.describe(ID).expect("the id is known").state
    }
}

#[test]
fn a_transaction_from_begin_to_end_with_version_2() {
    let (mut desk, first) = Desk::begun(TransactionVersion::Two);
    assert_eq!(first, producer(1, 0));
    let due = desk.decide(first, true, TransactionVersion::Two).expect("allowed");
    let due = due.expect("it is written");
    assert_eq!(due.partitions, [partition("a", 0), partition("b", 3)]);
    assert_eq!(
        due.marker(LeaderEpoch(7)),
        Marker {
            producer_id: ProducerId(1),
            epoch: ProducerEpoch(1),
            raises_epoch: true,
            coordinator_epoch: 7,
            commits: true,
        }
    );
    assert_eq!(due.producer(), producer(1, 1));
    assert_eq!(desk.state(), State::PrepareCommit);
    // Whatever is asked now has to wait, but for what makes no sense.
    let (again, other) = (first, producer(1, 1));
    assert_eq!(desk.decide(again, true, TransactionVersion::Two), Err(Refused::Concurrent));
    assert_eq!(desk.decide(other, true, TransactionVersion::Two), Err(Refused::Concurrent));
    assert_eq!(desk.init(None), Err(Refused::Concurrent));
    assert_eq!(desk.add(other, &[], TransactionVersion::Two), Err(Refused::Concurrent));
    desk.finish(&due);
    assert_eq!(desk.state(), State::CompleteCommit);
    // The answer to the first try was lost.
    assert_eq!(desk.decide(first, true, TransactionVersion::Two), Ok(Err(other)));
    let refused = desk.decide(first, false, TransactionVersion::Two);
    assert_eq!(refused, Err(Refused::State(State::CompleteCommit)));
}

#[test]
fn the_table_of_ends_that_end_nothing_with_version_2() {
    let check = |complete: Option<bool>, commits, is_retry, expected: Result<bool, Refused>| {
        let mut desk = Desk::new();
        let mut it = desk.init(None).expect("the id is free");
        if let Some(commits) = complete {
            let two = TransactionVersion::Two;
            desk.add(it, &[partition("a", 0)], two).expect("it begins");
            let due = desk.decide(it, commits, two).expect("allowed").expect("written");
            desk.finish(&due);
            it = due.producer();
        }
        let asked = producer(it.id.0, if is_retry { it.epoch.0 - 1 } else { it.epoch.0 });
        let found = desk.decide(asked, commits, TransactionVersion::Two);
        let found = found.map(|decided| decided.is_ok());
        assert_eq!(found, expected, "{complete:?} {commits} {is_retry}");
    };
    let (raises, as_answered) = (Ok(true), Ok(false));
    let state = |state| Err(Refused::State(state));
    check(None, false, false, raises);
    check(None, false, true, Err(Refused::Fenced));
    check(None, true, false, state(State::Empty));
    check(None, true, true, Err(Refused::Fenced));
    let aborted = Some(false);
    check(aborted, false, true, as_answered);
    check(aborted, false, false, raises);
    let committed = Some(true);
    check(committed, true, true, as_answered);
    check(committed, true, false, state(State::CompleteCommit));
}

#[test]
fn before_version_2_the_epoch_stays_and_an_end_is_answered_again() {
    let (mut desk, it) = Desk::begun(TransactionVersion::Zero);
    let zero = TransactionVersion::Zero;
    let due = desk.decide(it, false, zero).expect("allowed").expect("written");
    assert_eq!((due.marked, due.raises_epoch), (it, false));
    assert_eq!(desk.decide(it, true, zero), Err(Refused::Concurrent));
    assert_eq!(desk.decide(it, false, zero), Err(Refused::Concurrent));
    desk.finish(&due);
    assert_eq!(desk.decide(it, false, zero), Ok(Err(Producer::NONE)));
    assert_eq!(desk.decide(it, true, zero), Err(Refused::State(State::CompleteAbort)));
    // Nothing was begun since; an empty one can't be ended.
    desk.init(None).expect("the id is free");
    assert_eq!(desk.decide(producer(1, 1), true, zero), Err(Refused::State(State::Empty)));
    assert_eq!(desk.decide(it, true, zero), Err(Refused::Fenced));
}

#[test]
fn a_new_holder_shuts_the_old_one_out_and_aborts_what_it_left_open() {
    let (mut desk, old) = Desk::begun(TransactionVersion::Two);
    assert_eq!(desk.init(None), Err(Refused::Concurrent), "the client asks again");
    assert_eq!(desk.state(), State::CompleteAbort);
    let aborted = desk.coordinator.describe(ID).expect("known").epoch;
    assert_eq!(aborted, ProducerEpoch(1));
    let new = desk.init(None).expect("it is free now");
    assert_eq!(new, producer(1, 2));
    for version in [TransactionVersion::Zero, TransactionVersion::Two] {
        assert_eq!(desk.add(old, &[partition("a", 0)], version), Err(Refused::Fenced));
        assert_eq!(desk.decide(old, true, version), Err(Refused::Fenced));
    }
    assert_eq!(desk.init(Some(old)), Err(Refused::Fenced));
    assert_eq!(desk.init(Some(producer(9, 2))), Err(Refused::Fenced));
    // One that goes on after an error names itself; it may ask twice.
    assert_eq!(desk.init(Some(new)), Ok(producer(1, 3)));
    assert_eq!(desk.init(Some(new)), Ok(producer(1, 3)));
}

#[test]
fn a_producer_whose_epochs_are_used_up_gets_a_new_id() {
    let mut desk = Desk::new();
    let mut it = desk.init(None).expect("the id is free");
    while it.epoch.0 < i16::MAX - 1 {
        it = desk.init(Some(it)).expect("it goes on");
    }
    assert_eq!(it, producer(1, i16::MAX - 1));
    // By an end: the marker has the largest epoch, the client goes on with the new id.
    let two = TransactionVersion::Two;
    desk.add(it, &[partition("a", 0)], two).expect("it begins");
    let due = desk.decide(it, true, two).expect("allowed").expect("written");
    assert_eq!(due.marked, producer(1, i16::MAX));
    assert_eq!(due.producer(), producer(2, 0));
    desk.finish(&due);
    assert_eq!(desk.decide(it, true, two), Ok(Err(producer(2, 0))), "it may ask again");
    assert_eq!(desk.decide(it, false, two), Err(Refused::State(State::CompleteCommit)));
    // By InitProducerId.
    let mut it = producer(2, 0);
    while it.epoch.0 < i16::MAX - 1 {
        it = desk.init(Some(it)).expect("it goes on");
    }
    assert_eq!(desk.init(Some(producer(2, 5))), Err(Refused::Fenced));
    assert_eq!(desk.init(Some(it)), Ok(producer(3, 0)));
    assert_eq!(desk.init(Some(it)), Ok(producer(3, 0)), "the answer was lost");
}

#[test]
fn partitions_are_verified_against_the_open_transaction() {
    let (mut desk, it) = Desk::begun(TransactionVersion::Zero);
    let id: TransactionalId = ID.into();
    let asked: BTreeSet<_> = [partition("a", 0), partition("a", 1)].into();
    let mut verify = |producer| desk.coordinator.verify_partitions((&id, producer), &asked);
    assert_eq!(verify(it), Ok([partition("a", 0)].into()));
    assert_eq!(verify(producer(1, 1)), Err(Refused::Fenced));
    assert_eq!(verify(producer(2, 0)), Err(Refused::Mapping));
    let due = desk.decide(it, true, TransactionVersion::Zero).expect("allowed").expect("written");
    let verified = desk.coordinator.verify_partitions((&id, it), &asked);
    assert_eq!(verified, Err(Refused::Concurrent));
    desk.finish(&due);
    let verified = desk.coordinator.verify_partitions((&id, it), &asked);
    assert_eq!(verified, Ok(BTreeSet::new()));
    let unknown: TransactionalId = "other".into();
    let verified = desk.coordinator.verify_partitions((&unknown, it), &asked);
    assert_eq!(verified, Err(Refused::Mapping));
}

#[test]
fn open_transactions_time_out_and_unused_ids_expire() {
    let (mut desk, it) = Desk::begun(TransactionVersion::Two);
    let end = Timestamp(NOW.0 + i64::from(TIMEOUT_MS));
    assert!(desk.coordinator.timed_out(end).is_empty());
    let late = Timestamp(end.0 + 1);
    let id: TransactionalId = ID.into();
    assert_eq!(desk.coordinator.timed_out(late), std::slice::from_ref(&id));
    let change = match desk.coordinator.time_out(&id, None, late) {
        Some(Outcome::Change(change)) => change,
        other => panic!("{other:?}"),
    };
    assert_eq!(desk.coordinator.time_out(&id, None, late), None, "it is under way");
    let due = desk.write(&change).expect("it is decided");
    assert!(!due.commits);
    desk.finish(&due);
    let two = TransactionVersion::Two;
    assert_eq!(desk.decide(it, true, two), Err(Refused::State(State::CompleteAbort)));

    let limit = i64::try_from(settings().id_expiration_ms).expect("a week");
    assert_eq!(desk.coordinator.expire_ids(Timestamp(NOW.0 + limit - 1)), []);
    let [change] = &desk.coordinator.expire_ids(Timestamp(NOW.0 + limit))[..] else {
        panic!("one")
    };
    assert_eq!(change.record().1, None, "a tombstone");
    assert_eq!(desk.coordinator.describe(ID).map(|it| it.state), Ok(State::CompleteAbort));
    desk.write(change);
    assert_eq!(desk.coordinator.describe(ID), Err(Refused::NotFound));
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let mut desk = Desk::new();
    let mut init = |id: &str, timeout_ms| {
        let request = Init { id: id.into(), timeout_ms, expected: None };
        desk.coordinator.init_producer(&request, Some(ProducerId(1)), NOW).map(|_| ())
    };
    assert_eq!(init("", 1), Err(Refused::EmptyId));
    for timeout_ms in [0, -1, 900_001] {
        assert_eq!(init("t", timeout_ms), Err(Refused::Timeout { timeout_ms, limit: 900_000 }));
    }
    assert_eq!(init("t", 900_000), Ok(()));
    let (mut desk, it) = Desk::begun(TransactionVersion::Two);
    let many: Vec<_> = (0..10_000).map(|number| partition("m", number)).collect();
    assert_eq!(desk.add(it, &many, TransactionVersion::Two), Err(Refused::TooManyPartitions));
    assert_eq!(desk.add(it, &many[..9_998], TransactionVersion::Two), Ok(()));
}

#[test]
fn lists_are_filtered() {
    let (mut desk, _) = Desk::begun(TransactionVersion::Two);
    let other = Init { id: "u".into(), timeout_ms: 1, expected: None };
    let change = match desk.coordinator.init_producer(&other, Some(ProducerId(8)), NOW) {
        Ok(Outcome::Change(change)) => change,
        outcome => panic!("{outcome:?}"),
    };
    desk.write(&change);
    let all = Filter { duration_ms: -1, ..Filter::default() };
    let check = |filter: &Filter, expected: &[&str]| {
        let now = Timestamp(NOW.0 + 10);
        let found: Vec<_> = desk.coordinator.list(filter, now).map(|it| it.id).collect();
        assert_eq!(found.iter().map(|id| &**id).collect::<Vec<_>>(), expected, "{filter:?}");
    };
    check(&all, &["t", "u"]);
    check(&Filter { producer_ids: [ProducerId(8)].into(), ..all.clone() }, &["u"]);
    check(&Filter { states: Some([State::Ongoing].into()), ..all.clone() }, &["t"]);
    check(&Filter { states: Some(BTreeSet::new()), ..all.clone() }, &[]);
    // What has not begun is as old as time, as in Kafka.
    check(&Filter { duration_ms: 10, ..all.clone() }, &["u"]);
    check(&Filter { duration_ms: 9, ..all }, &["t", "u"]);
}

#[test]
fn records_are_read_back_as_they_were_written() {
    let (mut desk, it) = Desk::begun(TransactionVersion::Two);
    let due = desk.decide(it, true, TransactionVersion::Two).expect("allowed").expect("written");
    let mut loaded = Transactions::new(settings());
    for (key, value) in &desk.records {
        loaded.load(Record::decode(Some(key), value.as_deref()).expect("our own record"));
    }
    let described = loaded.describe(ID).expect("known").clone();
    assert_eq!(described.state, State::PrepareCommit);
    let [again] = &loaded.resume(NOW)[..] else { panic!("its markers are due") };
    assert_eq!(again.partitions, due.partitions);
    assert_eq!((again.marked, again.commits), (due.marked, true));
    assert_eq!(again.complete.record(), due.complete.record());
    let tombstone = Record::decode(Some(&desk.records[0].0), None).expect("a key alone");
    loaded.load(tombstone);
    assert!(loaded.is_empty());
}

#[test]
fn what_is_no_record_is_refused() {
    let decode = |key: &[u8], value: &[u8]| Record::decode(Some(key), Some(value));
    assert_eq!(Record::decode(None, None), Err(LoadError::Short));
    assert_eq!(decode(&[0, 9], &[]), Err(LoadError::KeyType(9)));
    assert_eq!(decode(&[0, 0, 0, 1, b't'], &[0]), Err(LoadError::Short));
    assert!(matches!(decode(&[0, 0, 0, 1, b't'], &[0, 9]), Err(LoadError::Schema(_))));
}

#[test]
fn the_driver_gets_records_answers_markers_and_timers() {
    let mut machine = <Transactions as Coordinator>::new(&settings());
    assert_eq!(machine.deadline(), None, "there is nothing to look for");
    assert!(machine.loaded(NOW).effects.is_empty());
    let init = Init { id: ID.into(), timeout_ms: 100, expected: None };
    let ask = |machine: &mut Transactions, request| machine.handle(Ticket(3), request, NOW);
    let output = ask(&mut machine, Request::Init { request: init.clone(), fresh: None });
    assert_eq!(output.answers, [(Ticket(3), Answer::NeedsProducerId)]);
    assert!(output.writes.is_empty());
    let fresh = Some(ProducerId(1));
    let output = ask(&mut machine, Request::Init { request: init, fresh });
    let it = producer(1, 0);
    assert_eq!(output.answers, [(Ticket(3), Answer::Producer(it))]);
    assert!(matches!(&output.writes[..], [Write::Records(records)] if records.len() == 1));
    let add = Request::AddPartitions {
        id: ID.into(),
        producer: it,
        partitions: [partition("a", 0)].into(),
        version: TransactionVersion::Two,
    };
    assert_eq!(ask(&mut machine, add).answers, [(Ticket(3), Answer::Added)]);

    // It is open for too long.
    let deadline = machine.deadline().expect("there is an id");
    assert_eq!(deadline, Timestamp(NOW.0 + 10_000));
    let output = machine.expire(deadline);
    assert!(deadline < machine.deadline().expect("there is an id"));
    assert_eq!(output.writes.len(), 1);
    let [Effect::Markers(due)] = &output.effects[..] else { panic!("{:?}", output.effects) };
    assert!(!due.commits);
    let again = machine.loaded(NOW).effects;
    assert_eq!(again.len(), 1, "a start goes on with the markers");
    let finish = || Request::Finish(due.complete.clone());
    let output = ask(&mut machine, finish());
    assert_eq!((output.writes.len(), &output.answers[0].1), (1, &Answer::Noted));
    let output = ask(&mut machine, finish());
    assert_eq!((output.writes.len(), &output.answers[0].1), (0, &Answer::Noted), "once is enough");
}
