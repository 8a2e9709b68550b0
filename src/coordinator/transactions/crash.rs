//! Random histories of one coordinator with crashes at every step: the state is dropped and read
//! back from the records that were durable. Whatever happens, every partition of a decided
//! transaction gets the marker that was decided, at least once, and never the other one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::tests::{partition, settings};
use super::*;
use crate::coordinator::transactions::state::TopicPartition;
use crate::units::LeaderEpoch;

const IDS: [&str; 3] = ["alpha", "beta", "gamma"];
const STEPS: usize = 400;
const SEEDS: u64 = 300;

/// A generator that is the same everywhere (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// What the outside has seen of one transaction.
#[derive(Default, Debug)]
struct Seen {
    /// Its partitions by durable records, and who wrote to them.
    added: BTreeSet<TopicPartition>,
    producer: Option<Producer>,
    /// The decision, once its record is durable.
    commits: Option<bool>,
    markers: BTreeMap<TopicPartition, BTreeSet<bool>>,
    is_complete: bool,
}

/// What is under way; a crash loses all of it.
#[derive(Debug)]
enum Work {
    Write(Change),
    Mark(TopicPartition, usize),
}

struct World {
    random: Random,
    now: Timestamp,
    fresh: i64,
    coordinator: Transactions,
    /// The topic: durable records in their order.
    log: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    work: VecDeque<Work>,
    marking: Vec<Option<(MarkersDue, BTreeSet<TopicPartition>)>>,
    /// What the client of each id knows itself as.
    clients: BTreeMap<TransactionalId, Producer>,
    /// The transactions of each id, oldest first.
    seen: BTreeMap<TransactionalId, Vec<Seen>>,
    version: TransactionVersion,
}

impl World {
    fn new(seed: u64) -> World {
        let version =
            if seed.is_multiple_of(2) { TransactionVersion::Two } else { TransactionVersion::Zero };
        World {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            now: Timestamp(1_000_000),
            fresh: 0,
            coordinator: Transactions::new(settings()),
            log: Vec::new(),
            work: VecDeque::new(),
            marking: Vec::new(),
            clients: BTreeMap::new(),
            seen: BTreeMap::new(),
            version,
        }
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            self.now =
                Timestamp(self.now.0 + 1 + i64::try_from(self.random.below(40)).expect("few"));
            match self.random.below(12) {
                0 => self.crash(),
                1 => self.time_out(),
                2 => self.init(),
                3 | 4 => self.add(),
                5 => self.end(),
                _ => self.progress(),
            }
        }
        // Without further faults everything comes to its end.
        while !self.work.is_empty() {
            self.progress_well();
        }
        self.check_settled();
    }

    fn fresh_id(&mut self) -> ProducerId {
        self.fresh += 1;
        ProducerId(self.fresh)
    }

    fn crash(&mut self) {
        self.work.clear();
        self.marking.clear();
        self.coordinator = Transactions::new(settings());
        for (key, value) in &self.log {
            let record = Record::decode(Some(key), value.as_deref()).expect("our own record");
            self.coordinator.load(record);
        }
        for due in self.coordinator.resume(self.now) {
            self.begin_marking(due);
        }
    }

    fn some_id(&mut self) -> &'static str {
        IDS[usize::try_from(self.random.below(3)).expect("few")]
    }

    fn init(&mut self) {
        let id = self.some_id();
        let expected = if self.random.one_in(2) { self.clients.get(id).copied() } else { None };
        let request = Init { id: id.into(), timeout_ms: 300, expected };
        let mut fresh = None;
        loop {
            match self.coordinator.init_producer(&request, fresh, self.now) {
                Ok(Outcome::NeedsProducerId) => fresh = Some(self.fresh_id()),
                Ok(Outcome::Change(change)) => return self.work.push_back(Work::Write(change)),
                Ok(Outcome::Answer(_)) => panic!("every use of an id is written"),
                Err(Refused::Fenced | Refused::Concurrent) => return,
                Err(other) => panic!("{other}"),
            }
        }
    }

    fn add(&mut self) {
        let id = self.some_id();
        let Some(producer) = self.clients.get(id).copied() else { return };
        let wanted: BTreeSet<_> =
            (0..3).filter(|_| self.random.one_in(2)).map(|it| partition("t", it)).collect();
        let key: TransactionalId = id.into();
        let version = self.version;
        match self.coordinator.add_partitions((&key, producer), &wanted, version, self.now) {
            Ok(Outcome::Change(change)) => self.work.push_back(Work::Write(change)),
            Ok(Outcome::Answer(Added)) => {}
            Ok(Outcome::NeedsProducerId) => panic!("partitions take no producer id"),
            Err(Refused::Fenced | Refused::Mapping | Refused::Concurrent) => {}
            Err(other) => panic!("{other}"),
        }
    }

    fn end(&mut self) {
        let id = self.some_id();
        let Some(producer) = self.clients.get(id).copied() else { return };
        let commits = self.random.one_in(2);
        let request = End { id: id.into(), producer, commits, version: self.version };
        let mut fresh = None;
        loop {
            match self.coordinator.end(&request, fresh, self.now) {
                Ok(Outcome::NeedsProducerId) => fresh = Some(self.fresh_id()),
                Ok(Outcome::Change(change)) => return self.work.push_back(Work::Write(change)),
                Ok(Outcome::Answer(Ended(found))) => {
                    // The answer to the first try was lost in a crash.
                    if found != Producer::NONE {
                        self.clients.insert(id.into(), found);
                    }
                    return;
                }
                Err(
                    Refused::Fenced | Refused::Mapping | Refused::Concurrent | Refused::State(_),
                ) => return,
                Err(other) => panic!("{other}"),
            }
        }
    }

    fn time_out(&mut self) {
        for id in self.coordinator.timed_out(self.now) {
            match self.coordinator.time_out(&id, None, self.now) {
                Some(Outcome::Change(change)) => self.work.push_back(Work::Write(change)),
                other => panic!("{other:?}"),
            }
        }
    }

    /// One thing that is under way comes to its end, well or badly, or a crash comes in between.
    fn progress(&mut self) {
        if self.work.is_empty() {
            return;
        }
        // A record that can't be written throws the state away, as a crash does.
        if self.random.one_in(15) && matches!(self.work.front(), Some(Work::Write(_))) {
            return self.crash();
        }
        self.progress_well();
    }

    fn progress_well(&mut self) {
        match self.work.pop_front() {
            Some(Work::Write(change)) => {
                self.log.push(change.record());
                self.note(&change);
                // The record is durable; whoever was to hear of it never does.
                if self.random.one_in(20) {
                    return self.crash();
                }
                if let Some(due) = self.coordinator.written(&change, self.now) {
                    self.begin_marking(due);
                }
                self.tell(&change);
            }
            Some(Work::Mark(partition, number)) => self.mark(&partition, number),
            None => {}
        }
    }

    /// What the durable record promises.
    fn note(&mut self, change: &Change) {
        let to = &change.to;
        let seen = self.seen.entry(change.id.clone()).or_default();
        let is_over = seen.last().is_none_or(|last| last.is_complete);
        match change.state() {
            State::Ongoing | State::PrepareAbort if is_over => seen.push(Seen::default()),
            State::Empty | State::Dead => return assert!(is_over, "only between transactions"),
            _ => {}
        }
        let last = seen.last_mut().expect("it has begun");
        match change.state() {
            State::Ongoing => {
                assert_eq!(last.commits, None, "nothing is added to a decided one");
                last.added.extend(to.partitions.iter().cloned());
                let producer = Producer { id: to.producer_id, epoch: to.epoch };
                assert_eq!(*last.producer.get_or_insert(producer), producer);
            }
            State::PrepareCommit | State::PrepareAbort => {
                let commits = change.state() == State::PrepareCommit;
                assert!(!(change.is_fence && commits), "only the producer commits");
                assert_eq!(last.added, to.partitions, "all partitions are in the decision");
                assert_eq!(last.commits.replace(commits), None, "it is decided once");
            }
            _ => {
                let commits = change.state() == State::CompleteCommit;
                assert_eq!(last.commits, Some(commits), "the decision stays");
                let marked: BTreeSet<_> = last.markers.keys().cloned().collect();
                assert_eq!(marked, last.added, "every partition has its marker");
                last.is_complete = true;
            }
        }
    }

    fn begin_marking(&mut self, due: MarkersDue) {
        let number = self.marking.len();
        let left: BTreeSet<_> = due.partitions.iter().cloned().collect();
        for partition in &due.partitions {
            self.work.push_back(Work::Mark(partition.clone(), number));
        }
        if left.is_empty() {
            self.work.push_back(Work::Write(due.complete.clone()));
        }
        self.marking.push(Some((due, left)));
    }

    fn mark(&mut self, partition: &TopicPartition, number: usize) {
        let (due, left) = self.marking[number].as_mut().expect("it is under way");
        let marker = due.marker(LeaderEpoch(0));
        let seen = self.seen.get_mut(&due.id).and_then(|all| all.last_mut());
        let seen = seen.expect("only decided transactions are marked");
        assert!(!seen.is_complete);
        assert_eq!(seen.commits, Some(marker.commits), "no marker but the decided one");
        let writer = seen.producer.expect("it has partitions");
        assert_eq!(writer.id, marker.producer_id);
        assert!(writer.epoch < marker.epoch || !marker.raises_epoch, "late records are fenced");
        assert!(writer.epoch <= marker.epoch);
        seen.markers.entry(partition.clone()).or_default().insert(marker.commits);
        left.remove(partition);
        self.coordinator.marked(&due.id, partition);
        if left.is_empty() {
            self.work.push_back(Work::Write(due.complete.clone()));
        }
    }

    /// The client gets its answer.
    fn tell(&mut self, change: &Change) {
        let told = match change.state() {
            State::Empty => change.producer(),
            State::PrepareCommit | State::PrepareAbort
                if !change.is_fence && change.to.version.raises_epoch() =>
            {
                let last = self.marking.last().and_then(Option::as_ref);
                last.map(|(due, _)| due.producer())
            }
            _ => None,
        };
        if let Some(producer) = told {
            self.clients.insert(change.id.clone(), producer);
        }
    }

    fn check_settled(&self) {
        for seen in self.seen.values().flatten() {
            assert!(seen.commits.is_none() || seen.is_complete, "what is decided is finished");
            for kinds in seen.markers.values() {
                assert_eq!(kinds.len(), 1, "never both");
            }
        }
    }
}

#[test]
fn whatever_happens_every_partition_gets_the_decided_marker_and_no_other() {
    let mut decided = 0;
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        world.run();
        decided += world.seen.values().flatten().filter(|seen| seen.is_complete).count();
    }
    // The histories are about something.
    assert!(2_000 < decided, "{decided} finished transactions");
}
