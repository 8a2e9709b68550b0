//! Transactions at the log: markers, the last stable offset, `.txnindex`.

use uringlog::disk::plain::PlainDisk;
use uringlog::format::aborted::{self, AbortedTransaction};
use uringlog::format::names::FileKind;
use uringlog::format::record::RecordsIter;
use uringlog::log::producers::{Ended, Marker};
use uringlog::log::{AppendError, LogConfig};
use uringlog::units::{ByteCount, Offset, ProducerEpoch, ProducerId, Sequence};

use crate::fixture::{Folder, bases, marker, transactional};
use crate::support::{CLEAN, KILLED, START, Store, batch, idempotent};

fn begin(store: &mut Store<PlainDisk>, id: i64, sequence: i32, count: usize) -> Offset {
    let batch = transactional(id, sequence, count);
    store.log.append_verified(batch, START).expect("vouched for").base_offset
}

fn end(store: &mut Store<PlainDisk>, id: i64, commits: bool) -> Offset {
    store.log.append_marker(&marker(id, commits), START).expect("its epoch").base_offset
}

fn txn_index(folder: &Folder, base: u64) -> Vec<AbortedTransaction> {
    let bytes = std::fs::read(folder.file(base, FileKind::TxnIndex)).expect("it exists");
    assert_eq!(bytes.len() % aborted::ENTRY_BYTES, 0);
    aborted::entries(&bytes).map(|it| it.expect("an entry")).collect()
}

fn entry((id, first, last, stable): (i64, i64, i64, i64)) -> AbortedTransaction {
    AbortedTransaction {
        version: 0,
        producer_id: ProducerId(id),
        first_offset: first,
        last_offset: last,
        last_stable_offset: stable,
    }
}

/// Item 7: a marker is one record of a control batch, its value six bytes.
#[test]
fn a_marker_has_the_bytes_of_kafkas() {
    for (commits, kind) in [(false, 0), (true, 1)] {
        let folder = Folder::new();
        let mut store = folder.create();
        begin(&mut store, 7, 0, 1);
        end(&mut store, 7, commits);
        store.settle();
        let batches = store.batches_from(Offset(1));
        let [batch] = batches.as_slice() else { panic!("one marker") };
        assert_eq!(batch.size(), ByteCount(78));
        let header = batch.header();
        assert!(header.is_control() && header.is_transactional());
        assert_eq!(header.base_sequence, Sequence(-1));
        let records: Vec<_> = RecordsIter::new(header, batch.payload()).collect();
        let [Ok(record)] = records.as_slice() else { panic!("one record") };
        assert_eq!(record.key, Some(&[0, 0, 0, kind][..]));
        assert_eq!(record.value, Some(&[0, 0, 0, 0, 0, 3][..]));
    }
}

/// Item 79.
#[test]
fn markers_of_old_epochs_and_of_old_coordinators_are_refused() {
    let folder = Folder::new();
    let mut store = folder.create();
    begin(&mut store, 7, 0, 1);
    let of = |epoch, coordinator_epoch, raises_epoch| Marker {
        epoch: ProducerEpoch(epoch),
        coordinator_epoch,
        raises_epoch,
        ..marker(7, true)
    };
    let mut append =
        |marker: Marker| store.log.append_marker(&marker, START).map(|it| it.base_offset);
    let is_old = |result: Result<Offset, AppendError>| {
        matches!(result, Err(AppendError::InvalidProducerEpoch { .. }))
    };
    assert!(is_old(append(of(-1, 3, false))));
    // Version 2: the marker raises the epoch, so that of the producer is too old.
    assert!(is_old(append(of(0, 3, true))));
    assert_eq!(append(of(1, 3, true)), Ok(Offset(1)));
    // Once more, since its answer was lost; then with an epoch that was.
    assert_eq!(append(of(1, 3, true)), Ok(Offset(2)));
    assert!(is_old(append(of(0, 3, true))));
    // Version 1 raises nothing.
    assert_eq!(append(of(1, 3, false)), Ok(Offset(3)));
    let fenced = append(of(1, 2, false));
    assert!(matches!(fenced, Err(AppendError::CoordinatorFenced { .. })), "{fenced:?}");
    assert_eq!(append(of(1, 4, false)), Ok(Offset(4)));
    store.settle();
    assert_eq!(store.log.last_stable(), Offset(5));
}

/// Item 79: a transaction without records leaves no trace in the index.
#[test]
fn an_empty_transaction_has_no_entry() {
    let folder = Folder::new();
    let mut store = folder.create();
    end(&mut store, 7, false);
    store.append(batch(1, 10, START));
    store.close();
    assert!(!folder.has(0, FileKind::TxnIndex));
    assert_eq!(store.log.aborted(Offset(0), Offset(9)).count(), 0);
}

/// Items 60 and 80.
#[test]
fn the_last_stable_offset_is_that_of_the_oldest_open_transaction() {
    let folder = Folder::new();
    let mut store = folder.create();
    let stable = |store: &mut Store<PlainDisk>| {
        store.settle();
        (store.log.last_stable().0, store.log.cursors().high_watermark.0)
    };
    store.append(batch(2, 10, START));
    assert_eq!(stable(&mut store), (2, 2));
    begin(&mut store, 1, 0, 2);
    store.append(batch(1, 10, START));
    begin(&mut store, 2, 0, 1);
    assert_eq!(stable(&mut store), (2, 6));
    begin(&mut store, 1, 2, 1);
    end(&mut store, 2, false);
    assert_eq!(stable(&mut store), (2, 8), "the older one is open still");
    end(&mut store, 1, true);
    assert_eq!(stable(&mut store), (9, 9));
    begin(&mut store, 2, 1, 1);
    assert_eq!(stable(&mut store), (9, 10));
    store.log.advance_log_start(Offset(10)).expect("below the high watermark");
    assert_eq!(stable(&mut store), (10, 10), "no lower than the log start");
    assert_eq!(txn_index(&folder, 0), [entry((2, 5, 7, 2))]);
    let end = end(&mut store, 2, false);
    // Staged, but not written: readers still wait.
    assert_eq!((end, store.log.last_stable()), (Offset(10), Offset(10)));
    assert_eq!(stable(&mut store), (11, 11));
}

/// Item 63: the entry is in the segment of the marker, and readers of the first segment find it.
#[test]
fn an_aborted_transaction_may_span_segments() {
    let folder = Folder::new();
    let mut store = folder.create();
    begin(&mut store, 1, 0, 1);
    for sequence in 1..4 {
        store.append(batch(1, 3_900, START));
        begin(&mut store, 1, sequence, 1);
    }
    end(&mut store, 1, false);
    store.settle();
    let bases = bases(&store);
    assert!(4 <= bases.len(), "{bases:?}");
    let last = *bases.last().expect("the active one");
    for base in &bases[..bases.len() - 1] {
        assert!(!folder.has(*base, FileKind::TxnIndex));
    }
    assert_eq!(txn_index(&folder, last), [entry((1, 0, 7, 8))]);
    let found = |store: &Store<PlainDisk>, from, to| -> Vec<Ended> {
        store.log.aborted(Offset(from), Offset(to)).copied().collect()
    };
    assert_eq!(found(&store, 0, 1).len(), 1);
    store.close();
    let (store, _) = folder.open(CLEAN);
    assert_eq!(found(&store, 0, 1).len(), 1);
    assert_eq!(found(&store, 8, 9).len(), 0);
}

/// Items 21, 33 and 89: the index is what the log says, whatever became of the file.
#[test]
fn a_lost_index_of_transactions_is_written_again() {
    let folder = Folder::new();
    let mut store = folder.create_at(100);
    begin(&mut store, 1, 0, 2);
    begin(&mut store, 2, 0, 2);
    begin(&mut store, 1, 2, 1);
    store.append(batch(1, 10, START));
    assert_eq!(end(&mut store, 2, false), Offset(106));
    end(&mut store, 1, true);
    store.settle();
    drop(store);
    let expected = [entry((2, 102, 106, 100))];
    assert_eq!(txn_index(&folder, 100), expected);
    let file = folder.file(100, FileKind::TxnIndex);
    let right = std::fs::read(&file).expect("written");
    let wrong =
        [None, Some(vec![]), Some(right[..20].to_vec()), Some([&right[..], &right].concat())];
    for bytes in wrong {
        match bytes {
            None => std::fs::remove_file(&file).expect("it was there"),
            Some(bytes) => std::fs::write(&file, bytes).expect("writable"),
        }
        for snapshot in folder.names().iter().filter(|it| it.ends_with(".snapshot")) {
            std::fs::remove_file(folder.path().join(snapshot)).expect("it was there");
        }
        let (store, _) =
            folder.open(uringlog::log::Opening { log_start: Some(Offset(100)), ..KILLED });
        assert_eq!(txn_index(&folder, 100), expected);
        assert_eq!(store.log.aborted(Offset(100), Offset(108)).count(), 1);
    }
}

/// A snapshot behind it says nothing of what the index should hold.
#[test]
fn a_wrong_index_of_transactions_is_written_again_behind_a_snapshot() {
    let folder = Folder::new();
    let mut store = folder.create_at(100);
    begin(&mut store, 1, 0, 2);
    end(&mut store, 1, false);
    store.close();
    drop(store);
    let file = folder.file(100, FileKind::TxnIndex);
    let right = std::fs::read(&file).expect("written");
    let newer = [&[0, 2], &right[2..]].concat();
    for wrong in [vec![0; right.len()], right[..20].to_vec(), newer] {
        for how in [CLEAN, KILLED] {
            std::fs::write(&file, &wrong).expect("writable");
            let how = uringlog::log::Opening { log_start: Some(Offset(100)), ..how };
            let (store, report) = folder.open(how);
            assert!(!report.is_lossy() && !report.is_uneventful(), "{report}");
            assert_eq!(std::fs::read(&file).expect("there"), right);
            assert_eq!(store.log.aborted(Offset(100), Offset(103)).count(), 1);
        }
    }
}

/// Where no batch is left, no transaction of one is.
#[test]
fn an_empty_segment_has_an_empty_index_of_transactions() {
    for how in [CLEAN, KILLED] {
        let folder = Folder::new();
        let mut store = folder.create();
        begin(&mut store, 1, 0, 2);
        end(&mut store, 1, false);
        store.close();
        drop(store);
        std::fs::write(folder.file(0, FileKind::Log), b"").expect("writable");
        let (store, _) = folder.open(how);
        assert_eq!(txn_index(&folder, 0), []);
        assert_eq!(store.log.aborted(Offset(0), Offset(9)).count(), 0);
    }
}

/// Replaying from an offset takes in the whole batch that it lies in.
#[test]
fn the_producer_of_the_batch_that_the_log_starts_in_is_known_again() {
    let folder = Folder::new();
    let mut store = folder.create();
    store.append(idempotent(7, 0, 10));
    store.settle();
    drop(store);
    let how = uringlog::log::Opening { log_start: Some(Offset(5)), ..KILLED };
    let (mut store, _) = folder.open(how);
    assert!(store.append(idempotent(7, 0, 10)).duplicate);
}

/// Item 77: an open transaction is in the snapshot, and goes on behind the stop.
#[test]
fn an_open_transaction_survives_a_stop() {
    for how in [CLEAN, KILLED] {
        let folder = Folder::new();
        let mut store = folder.create();
        store.append(batch(3, 10, START));
        begin(&mut store, 1, 0, 2);
        if how == CLEAN {
            store.close();
        } else {
            store.settle();
        }
        drop(store);
        let (mut store, _) = folder.open(how);
        assert_eq!(store.log.last_stable(), Offset(3));
        // Nobody has to vouch for what goes on.
        store.log.append(transactional(1, 2, 1), START).expect("it is open");
        assert_eq!(end(&mut store, 1, false), Offset(6));
        store.settle();
        assert_eq!(store.log.last_stable(), Offset(7));
        assert_eq!(txn_index(&folder, 0), [entry((1, 3, 6, 7))]);
    }
}

/// Item 81: who vouches for a transaction's first batch is asked each time anew.
#[test]
fn a_transaction_begins_with_the_word_of_its_coordinator_only() {
    let config = LogConfig { segment_bytes: ByteCount(1 << 20), ..Folder::new().config };
    let folder = Folder::with(config);
    let mut store = folder.create();
    let is_refused =
        |result: Result<_, AppendError>| matches!(result, Err(AppendError::InvalidTxnState { .. }));
    for round in 0..2 {
        let sequence = 2 * round;
        let first = || transactional(1, sequence, 1);
        assert!(is_refused(store.log.append(first(), START)));
        store.log.append_verified(first(), START).expect("vouched for");
        store.log.append(transactional(1, sequence + 1, 1), START).expect("it is open");
        let outside = idempotent(1, sequence + 2, 1);
        assert!(is_refused(store.log.append(outside, START)), "not while it is open");
        end(&mut store, 1, round == 0);
    }
    store.settle();
    assert_eq!(store.log.last_stable(), Offset(6));
}

/// Items 21 and 33: damage cuts a segment apart; the transactions of both parts are in the right
/// files, whatever snapshots there are.
#[test]
fn transactions_of_a_segment_that_is_cut_apart_are_in_the_files_of_its_parts() {
    let config = LogConfig { segment_bytes: ByteCount(1 << 20), ..Folder::new().config };
    let folder = Folder::with(config);
    let mut store = folder.create();
    begin(&mut store, 1, 0, 2);
    end(&mut store, 1, false);
    begin(&mut store, 2, 0, 1);
    store.append(batch(1, 10, START));
    begin(&mut store, 3, 0, 2);
    end(&mut store, 2, false);
    end(&mut store, 3, false);
    store.close();
    assert_eq!(txn_index(&folder, 0).len(), 3);
    let log = folder.file(0, FileKind::Log);
    let mut bytes = std::fs::read(&log).expect("written");
    let header = uringlog::format::batch::HEADER_BYTES;
    let plain = bytes.windows(10).position(|it| it == b"abcdefghij").expect("the plain batch");
    bytes[plain] ^= 1;
    assert!(header < plain);
    std::fs::write(&log, bytes).expect("writable");
    let (store, report) = folder.open(KILLED);
    assert_eq!(report.damages.len(), 1, "{report}");
    assert_eq!(bases(&store), [0, 5]);
    assert_eq!(txn_index(&folder, 0), [entry((1, 0, 2, 3))]);
    assert_eq!(txn_index(&folder, 5), [entry((2, 3, 7, 5)), entry((3, 5, 8, 9))]);
    drop(store);
    let (store, report) = folder.open(CLEAN);
    assert!(!report.is_lossy(), "{report}");
    assert_eq!(store.log.aborted(Offset(0), Offset(9)).count(), 3);
}
