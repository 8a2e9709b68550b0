//! The transaction coordinator against `__transaction_state` as Apache Kafka 4.3.1 wrote it: what
//! clients must have asked for follows from the records, and our coordinator, asked the same at the
//! same times, writes the same bytes.

#[path = "support/archives.rs"]
mod archives;

use std::fs;
use std::path::{Path, PathBuf};

use archives::Archive;
use uringlog::coordinator::transactions::{
    Change, End, Init, MarkersDue, Outcome, Producer, Record, Settings, State, Transaction,
    TransactionVersion, TransactionalId, Transactions,
};
use uringlog::format::batch;
use uringlog::format::record::RecordsIter;
use uringlog::format::scan::{Scan, Window, batch_at, bytes_of};
use uringlog::units::{Position, Timestamp, byte_count};

/// Key and value of a record.
type Bytes = (Vec<u8>, Option<Vec<u8>>);

const SETTINGS: Settings = Settings {
    timeout_ms_max: 900_000,
    id_expiration_ms: 604_800_000,
    abort_interval_ms: 10_000,
    expiration_interval_ms: 3_600_000,
    version: TransactionVersion::Two,
};

/// The logs of the topic's partitions in a case, in every state of it.
fn logs(root: &Path) -> Vec<PathBuf> {
    let mut logs = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let is_ours = folder.to_string_lossy().contains("__transaction_state-");
            if path.is_dir() {
                folders.push(path);
            } else if is_ours && path.extension().is_some_and(|it| it == "log") {
                logs.push(path);
            }
        }
    }
    logs.sort();
    logs
}

fn records(log: &[u8]) -> Vec<Bytes> {
    let window = Window { bytes: log, at: Position(0) };
    let end = Position(0) + byte_count(log.len());
    let (mut records, mut position) = (Vec::new(), Position(0));
    while let Scan::Batch { header, at, next } = batch_at(window, position, end) {
        let payload = &bytes_of(window, at, &header)[batch::HEADER_BYTES..];
        for record in RecordsIter::new(&header, payload) {
            let record = record.expect("Kafka wrote it");
            let key = record.key.expect("a key").to_vec();
            records.push((key, record.value.map(<[u8]>::to_vec)));
        }
        position = next;
    }
    records
}

/// A coordinator that is asked for what the records say.
struct Replay {
    coordinator: Transactions,
    due: Vec<MarkersDue>,
}

impl Replay {
    /// The change that leads to `to`, from what is known of the id.
    fn change(&mut self, id: &TransactionalId, to: &Transaction) -> Change {
        let known = self.coordinator.describe(id).ok().cloned();
        let producer = known.as_ref().map(|it| Producer { id: it.producer_id, epoch: it.epoch });
        match to.state {
            State::Empty => self.init(id, to),
            State::Ongoing => {
                let who = (id, producer.expect("it has an id first"));
                let added =
                    self.coordinator.add_partitions(who, &to.partitions, to.version, to.updated);
                change_of(added.expect("Kafka allowed it"))
            }
            State::PrepareCommit | State::PrepareAbort => {
                let producer = producer.expect("it has an id first");
                let commits = to.state == State::PrepareCommit;
                let request = End { id: id.clone(), producer, commits, version: to.version };
                let ended = self.coordinator.end(&request, None, to.updated);
                change_of(ended.expect("Kafka allowed it"))
            }
            State::CompleteCommit | State::CompleteAbort => {
                let at = self.due.iter().position(|due| due.id == *id).expect("decided before");
                self.due.swap_remove(at).complete
            }
            State::Dead => panic!("no record has this state"),
        }
    }

    fn init(&mut self, id: &TransactionalId, to: &Transaction) -> Change {
        let request = Init { id: id.clone(), timeout_ms: to.timeout_ms, expected: None };
        let fresh = Some(to.producer_id);
        let given = self.coordinator.init_producer(&request, fresh, to.updated);
        change_of(given.expect("Kafka allowed it"))
    }
}

fn change_of<T: std::fmt::Debug>(outcome: Outcome<T>) -> Change {
    match outcome {
        Outcome::Change(change) => change,
        other => panic!("Kafka wrote a record, we answer {other:?}"),
    }
}

/// When the markers of a decision were sent: the Complete record has that time.
fn completed(records: &[Bytes], id: &TransactionalId) -> Option<Timestamp> {
    let decoded = records.iter().map(|(key, value)| decode(key, value.as_deref()));
    decoded.filter(|it| it.id == *id).find_map(|it| Some(it.transaction?.updated))
}

fn decode(key: &[u8], value: Option<&[u8]>) -> Record {
    Record::decode(Some(key), value).expect("Kafka wrote it")
}

fn check(log: &[u8], name: &str) -> usize {
    let records = records(log);
    let mut replay = Replay { coordinator: Transactions::new(SETTINGS), due: Vec::new() };
    for (number, (key, value)) in records.iter().enumerate() {
        let record = decode(key, value.as_deref());
        assert_eq!(record.encode(), (key.clone(), value.clone()), "{name}: record {number}");
        let Some(to) = &record.transaction else { continue };
        let change = replay.change(&record.id, to);
        assert_eq!(change.record(), record.encode(), "{name}: record {number}: {to:?}");
        let complete = completed(&records[number + 1..], &record.id);
        let due = replay.coordinator.written(&change, complete.unwrap_or(Timestamp(0)));
        replay.due.extend(due);
    }
    records.len()
}

#[test]
fn the_coordinator_writes_the_records_that_kafka_wrote() {
    let mut checked = 0;
    for archive in Archive::all() {
        let case = archive.unpack();
        for path in logs(&case.path()) {
            let log = fs::read(&path).expect("it was just unpacked");
            checked += check(&log, &path.display().to_string());
        }
    }
    assert!(500 < checked, "only {checked} records were found");
}
