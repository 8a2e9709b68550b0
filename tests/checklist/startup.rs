//! Starts: what is kept, what is removed.

use uringlog::format::batch::{self, BatchHeader};
use uringlog::format::names::FileKind;
use uringlog::format::record::RecordsIter;
use uringlog::log::{LogConfig, Opening};
use uringlog::units::{LeaderEpoch, Offset, ProducerId, Sequence, Timestamp};

use crate::fixture::{Folder, at, bases, stored};
use crate::support::batch as plain;
use crate::support::{CLEAN, KILLED, START, idempotent};

/// Item 86.
#[test]
fn an_empty_active_segment_is_opened_at_its_base() {
    let config = LogConfig { retention_ms: Some(1_000), ..Folder::new().config };
    let folder = Folder::with(config);
    let mut store = folder.create();
    store.append(plain(4, 100, START));
    store.settle();
    store.now = Timestamp(START.0 + 1_001);
    assert!(store.log.retain(store.now).rolled);
    store.settle();
    drop(store);
    let how = Opening { recovery_point: Some(Offset(4)), ..KILLED };
    let (mut store, report) = folder.open(how);
    assert!(!report.is_lossy(), "{report}");
    assert_eq!((bases(&store), store.log.cursors().log_end), (vec![4], Offset(4)));
    assert_eq!(store.append(plain(1, 100, START)).base_offset, Offset(4));
    store.settle();
    assert_eq!(store.read_from(Offset(4)), [(4, 4)]);
}

/// Items 78 and 90: of the snapshots that belong to no segment only the newest stays, and that only
/// when it lies in the last segment.
#[test]
fn the_newest_stray_snapshot_is_kept() {
    let folder = Folder::new();
    let mut store = folder.create();
    for sequence in 0..120 {
        store.append(idempotent(5, sequence, 1));
    }
    store.close();
    let (bases, end) = (bases(&store), store.log.cursors().log_end.0);
    let last = *bases.last().expect("one is active");
    assert!(3 <= bases.len() && last + 2 < end);
    drop(store);
    let state = std::fs::read(folder.file(end, FileKind::Snapshot)).expect("written at the stop");
    for stray in [bases[1] + 1, last + 1] {
        std::fs::write(folder.file(stray, FileKind::Snapshot), &state).expect("writable");
    }
    let snapshots = || -> Vec<u64> {
        let names = folder.names();
        let bases = names.iter().filter_map(|it| it.strip_suffix(".snapshot"));
        bases.map(|it| it.parse().expect("an offset")).collect()
    };
    let (store, _) = folder.open(CLEAN);
    let mut expected: Vec<u64> = bases[1..].to_vec();
    expected.push(end);
    assert_eq!(snapshots(), expected);
    assert_eq!(
        store.log.producers().last_sequence(ProducerId(5)).map(|it| it.1),
        Some(Sequence(119))
    );
    drop(store);
    // A snapshot beyond the end of the log says nothing.
    std::fs::write(folder.file(end + 9, FileKind::Snapshot), &state).expect("writable");
    drop(folder.open(CLEAN));
    assert_eq!(snapshots(), expected);
}

/// Items 82 and 98: a batch without records still says how far its producer has come.
#[test]
fn the_sequence_of_a_compacted_batch_is_known() {
    let full = at(10, idempotent(5, 7, 3));
    let empty = BatchHeader { record_count: 0, ..*full.header() };
    let bytes = batch::encode(&empty, &[]);
    assert_eq!(bytes.len(), batch::HEADER_BYTES);
    assert_eq!(RecordsIter::new(&empty, &[]).count(), 0);
    let folder = Folder::new();
    let emptied = uringlog::format::batch::RecordBatch::decode(bytes).expect("a batch");
    folder.lay(0, vec![stored(0, 1), emptied]);
    let (mut store, report) = folder.open(KILLED);
    assert!(!report.is_lossy(), "{report}");
    assert_eq!(store.log.cursors().log_end, Offset(13));
    let known = store.log.producers().last_sequence(ProducerId(5));
    assert_eq!(known.map(|it| it.1), Some(Sequence(9)));
    assert!(store.append(idempotent(5, 7, 3)).duplicate);
    assert_eq!(store.append(idempotent(5, 10, 1)).base_offset, Offset(13));
}

/// Item 33: epochs as the batches have them.
#[test]
fn epochs_are_rebuilt_from_the_batches() {
    let folder = Folder::new();
    let with_epoch = |offset, epoch| {
        let mut batch = stored(offset, 2);
        batch.assign(Offset(offset), LeaderEpoch(epoch));
        batch
    };
    let epochs = [(104, 0), (106, 1), (108, 1), (110, 2), (112, 2)];
    folder.lay(104, epochs.map(|(offset, epoch)| with_epoch(offset, epoch)).into());
    let (mut store, report) = folder.open(Opening { log_start: Some(Offset(104)), ..KILLED });
    assert!(report.epochs_rebuilt);
    store.settle();
    let text = std::fs::read_to_string(folder.path().join("leader-epoch-checkpoint"));
    assert_eq!(text.expect("written"), "0\n3\n0 104\n1 106\n2 110\n");
    assert_eq!(store.log.epoch_of(Offset(109)), Some(LeaderEpoch(1)));
}
