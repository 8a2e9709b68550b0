//! The indexes, with the numbers of Kafka's tests.

use uringlog::format::aborted::{self, AbortedTransaction};
use uringlog::format::index::{
    OffsetEntry, TimeEntry, floor_by_offset, floor_by_timestamp, upper_position,
};
use uringlog::format::names::FileKind;
use uringlog::log::LogConfig;
use uringlog::log::producers::Ended;
use uringlog::units::{ByteCount, Offset, ProducerId, Timestamp};

use crate::fixture::{Folder, bases, timed};
use crate::support::{CLEAN, START, batch};

fn offset_index(entries: &[(u32, u32)]) -> Vec<u8> {
    let entry = |&(relative_offset, position)| OffsetEntry { relative_offset, position };
    entries.iter().map(entry).flat_map(OffsetEntry::encode).collect()
}

/// Items 9 and 10.
#[test]
fn an_absent_offset_gives_the_entry_before_it() {
    assert_eq!(floor_by_offset(&[], 77), None);
    let entries: Vec<(u32, u32)> = (1..=100).map(|at| (at * 7, at * 100)).collect();
    let full = offset_index(&entries);
    for wanted in 0..=710 {
        let expected = entries.iter().rfind(|it| it.0 <= wanted).map(|it| it.1);
        assert_eq!(floor_by_offset(&full, wanted).map(|it| it.position), expected, "{wanted}");
    }
    assert_eq!(floor_by_offset(&full, u32::MAX).map(|it| it.relative_offset), Some(700));
}

/// Item 12.
#[test]
fn the_bound_of_a_fetch_is_the_first_entry_at_or_behind_it() {
    let index = offset_index(&[(45, 0), (46, 10), (47, 23), (48, 37)]);
    let bound = |from: u32, size: u32| {
        upper_position(&index, from + size).map(|entry| entry.relative_offset)
    };
    assert_eq!((bound(0, 5), bound(0, 10)), (Some(46), Some(46)));
    assert_eq!((bound(0, 22), bound(0, 23)), (Some(47), Some(47)));
    assert_eq!(bound(10, 24), Some(48));
    assert_eq!(bound(0, 38), None);
    assert_eq!(upper_position(&[], 5), None);
}

/// Item 16.
#[test]
fn a_timestamp_is_found_at_the_entry_before_it() {
    let entries =
        (1..=6).map(|at| TimeEntry { timestamp: i64::from(at) * 10, relative_offset: at * 10 });
    let index: Vec<u8> = entries.flat_map(TimeEntry::encode).collect();
    let found = |timestamp| {
        let entry = floor_by_timestamp(&index, timestamp);
        entry.map(|entry| (entry.timestamp, entry.offset(Offset(45)).0))
    };
    assert_eq!(found(9), None);
    assert_eq!(found(25), Some((20, 65)));
    assert_eq!(found(30), Some((30, 75)));
}

/// Items 11 and 17: nothing is ever added to a full index, since a full one begins a new segment.
#[test]
fn a_full_index_rolls_and_the_time_index_keeps_a_place_for_its_end() {
    let config = LogConfig {
        segment_bytes: ByteCount(1 << 20),
        segment_index_bytes: ByteCount(120),
        index_interval_bytes: ByteCount(0),
        ..Folder::new().config
    };
    let check = |rises: bool, batches: u64, entries: (usize, usize)| {
        let folder = Folder::with(config.clone());
        let mut store = folder.create();
        for at in 0..=batches {
            let later = if rises { i64::try_from(at).expect("small") } else { 0 };
            store.append(timed(START.0 + later));
        }
        store.settle();
        assert_eq!(bases(&store), [0, batches]);
        assert_eq!((folder.offsets(0).len(), folder.times(0).len()), entries);
    };
    // The first batch has no entry; ten slots for times, of which one is for the end.
    check(true, 10, (9, 9));
    check(false, 16, (15, 1));
}

/// Item 18.
#[test]
fn a_segment_without_an_entry_has_the_time_of_its_batches() {
    let folder = Folder::new();
    let mut store = folder.create();
    store.append(timed(START.0 + 5));
    store.settle();
    assert_eq!(folder.times(0), []);
    store.close();
    assert_eq!(folder.times(0), [(START.0 + 5, 0)], "the closing entry");
    std::fs::write(folder.file(0, FileKind::TimeIndex), [0; 11]).expect("writable");
    let (mut store, report) = folder.open(CLEAN);
    assert_eq!(report.indexes_rebuilt, [Offset(0)], "no whole number of entries");
    store.close();
    assert_eq!(folder.times(0), [(START.0 + 5, 0)]);
}

/// Items 20 and 21.
#[test]
fn aborted_transactions_are_listed_as_far_as_a_read_needs_them() {
    let folder = Folder::new();
    let mut store = folder.create();
    store.append(batch(60, 10, START));
    store.close();
    let all = [(0, 0, 10, 11), (1, 5, 15, 13), (2, 18, 35, 25), (3, 32, 50, 40)];
    let entries =
        all.map(|(id, first_offset, last_offset, last_stable_offset)| AbortedTransaction {
            version: aborted::VERSION,
            producer_id: ProducerId(id),
            first_offset,
            last_offset,
            last_stable_offset,
        });
    // What lies outside of the segment is none of its.
    let beyond = AbortedTransaction { first_offset: 61, last_offset: 70, ..entries[0] };
    let bytes: Vec<u8> = entries.iter().chain([&beyond]).flat_map(|it| it.encode()).collect();
    assert_eq!(bytes.len(), 5 * 34);
    std::fs::write(folder.file(0, FileKind::TxnIndex), bytes).expect("writable");
    let (store, _) = folder.open(CLEAN);
    let ids = |from, to| -> Vec<i64> {
        let found = store.log.aborted(Offset(from), Offset(to));
        found.map(|Ended { producer_id, .. }| producer_id.0).collect()
    };
    assert_eq!(ids(0, 100), [0, 1, 2, 3]);
    assert_eq!(ids(0, 32), [0, 1, 2]);
    assert_eq!(ids(0, 35), [0, 1, 2, 3]);
    assert_eq!(ids(11, 35), [1, 2, 3]);
    assert_eq!(ids(20, 41), [2, 3]);
    assert_eq!(ids(51, 60), [0; 0]);
}

/// Items 22, 23 and 42: a new log has both indexes at full length; a rolled segment has only its
/// `.log` until somebody touches an index; a clean stop makes and trims what is missing.
#[test]
fn indexes_are_made_when_they_are_touched() {
    let config = LogConfig { retention_ms: Some(1_000), ..Folder::new().config };
    let folder = Folder::with(config);
    let mut store = folder.create();
    let length = |kind| std::fs::metadata(folder.file(0, kind)).expect("it exists").len();
    assert_eq!((length(FileKind::Index), length(FileKind::TimeIndex)), (10_000, 9_996));
    store.append(timed(START.0));
    store.settle();
    store.now = Timestamp(START.0 + 1_001);
    assert!(store.log.retain(store.now).rolled);
    store.settle();
    assert!(folder.has(1, FileKind::Log));
    assert!(!folder.has(1, FileKind::Index), "{:?}", folder.names());
    let marked = folder.names();
    for kind in ["log", "index", "timeindex"] {
        let name = format!("{:020}.{kind}.deleted", 0);
        assert!(marked.contains(&name), "{marked:?}");
    }
    store.close();
    for kind in [FileKind::Index, FileKind::TimeIndex, FileKind::Log] {
        assert_eq!(std::fs::read(folder.file(1, kind)).expect("made"), [0; 0]);
    }
    let (_store, report) = folder.open(CLEAN);
    assert!(!report.is_lossy(), "{report}");
    let length = |kind| std::fs::metadata(folder.file(1, kind)).expect("it exists").len();
    assert_eq!((length(FileKind::Index), length(FileKind::TimeIndex)), (10_000, 9_996));
}
