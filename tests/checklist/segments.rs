//! Segments: what an append does to them, where they end.

use uringlog::disk::Disk;
use uringlog::disk::plain::PlainDisk;
use uringlog::format::batch::BatchHeader;
use uringlog::format::names::FileKind;
use uringlog::log::retention::{RetentionView, SegmentInfo, expired};
use uringlog::log::{LogConfig, LogState, Opening, TimestampSearch};
use uringlog::units::{ByteCount, Offset, Timestamp};

use crate::fixture::{Folder, bases, stored, timed};
use crate::support::{KILLED, START, Store, batch};

const EIO: i32 = 5;

/// Item 24: an offset that no index entry can hold begins a segment.
#[test]
fn an_offset_too_far_from_the_base_begins_a_segment() {
    let far = (1 << 31) - 3;
    let folder = Folder::new();
    folder.lay(0, vec![stored(0, 1), stored(far, 1)]);
    let (mut store, report) = folder.open(KILLED);
    assert_eq!(report.damages, [], "{report}");
    assert_eq!(store.log.cursors().log_end, Offset(far + 1));
    store.append(batch(1, 10, START));
    assert_eq!(bases(&store), [0]);
    // The last record of this batch would be 2^31 away.
    store.append(batch(2, 10, START));
    assert_eq!(bases(&store), [0, far + 2]);
    store.settle();
    assert_eq!(
        store.read_from(Offset(0)),
        [(0, 0), (far, far), (far + 1, far + 1), (far + 2, far + 3)]
    );
}

/// Items 24 and 85: a segment whose offsets are too far apart, as old cleaners have left them, is
/// split; a crash in the middle leaves both copies, and the next start finishes it.
#[test]
fn a_segment_with_offsets_too_far_apart_is_split() {
    let far = 1 << 31;
    let batches = || vec![stored(0, 1), stored(7, 2), stored(far, 1), stored(far + 1, 3)];
    let expected = [(0, 0), (7, 8), (far, far), (far + 1, far + 3)];
    let folder = Folder::new();
    folder.lay(0, batches());
    let (mut store, report) = folder.open(KILLED);
    assert_eq!(report.split, [Offset(far)], "{report}");
    assert!(!report.is_lossy(), "{report}");
    assert_eq!(bases(&store), [0, far]);
    assert_eq!(store.read_from(Offset(0)), expected);
    drop(store);

    let folder = Folder::new();
    folder.lay(0, batches());
    folder.lay(far, batches().split_off(2));
    let (mut store, report) = folder.open(KILLED);
    assert!(report.damages.is_empty() && report.gaps.is_empty(), "{report}");
    assert_eq!(bases(&store), [0, far]);
    assert_eq!(store.read_from(Offset(0)), expected);
}

fn indexed(timestamps: &[i64]) -> Folder {
    let config = LogConfig { index_interval_bytes: ByteCount(1), ..Folder::new().config };
    let folder = Folder::with(config);
    let mut store = folder.create();
    for timestamp in timestamps {
        store.append(timed(*timestamp));
    }
    store.settle();
    folder
}

/// Items 27 and 28: staged together or not, each batch but the first has its entry, of the newest
/// time so far.
#[test]
fn every_batch_but_the_first_is_indexed_at_the_newest_time_so_far() {
    let relative = |entries: Vec<(u32, u32)>| entries.iter().map(|it| it.0).collect::<Vec<_>>();
    let rising = indexed(&[0, 1, 2]);
    assert_eq!(relative(rising.offsets(0)), [1, 2]);
    assert_eq!(rising.times(0), [(1, 1), (2, 2)]);
    let falling = indexed(&[1, 0, 2]);
    assert_eq!(relative(falling.offsets(0)), [1, 2]);
    assert_eq!(falling.times(0), [(1, 0), (2, 2)]);
}

fn newest(store: &mut Store<PlainDisk>) -> Timestamp {
    match store.log.max_timestamp_search().expect("online") {
        TimestampSearch::Scan(scan) => scan.timestamp,
        other => panic!("{other:?}"),
    }
}

/// Item 29: with a cut file in the place of a truncation.
#[test]
fn the_newest_time_and_the_next_offset_are_read_again_from_what_is_left() {
    let size = timed(0).size().0;
    let config = LogConfig {
        segment_bytes: ByteCount(1 << 20),
        index_interval_bytes: ByteCount(2 * size - 1),
        ..Folder::new().config
    };
    let folder = Folder::with(config);
    let mut store = folder.create_at(40);
    for offset in 40..70 {
        assert_eq!(store.append(timed(offset * 10)).base_offset.to_wire(), offset);
    }
    store.settle();
    assert_eq!(folder.times(40).len(), 14);
    assert_eq!(newest(&mut store), Timestamp(690));
    drop(store);
    let log = std::fs::OpenOptions::new().write(true).open(folder.file(40, FileKind::Log));
    log.expect("it exists").set_len(size).expect("writable");
    let (mut store, _) = folder.open(Opening { log_start: Some(Offset(40)), ..KILLED });
    assert_eq!(store.log.cursors().log_end, Offset(41));
    assert_eq!(newest(&mut store), Timestamp(400));
    assert_eq!(folder.offsets(40), []);
    store.append(timed(5));
    store.settle();
    assert_eq!(newest(&mut store), Timestamp(400));
}

/// The offset of the first record at or above a time: the first batch of what is to be scanned.
fn find(store: &mut Store<PlainDisk>, timestamp: i64) -> Option<u64> {
    let scan = match store.log.timestamp_search(Timestamp(timestamp)).expect("online") {
        TimestampSearch::Nothing => return None,
        TimestampSearch::Scan(scan) => scan,
        other => panic!("{other:?}"),
    };
    let bytes = store.bytes(scan.file, scan.from, scan.to);
    let size = usize::try_from(timed(0).size().0).expect("small");
    let headers = bytes.chunks(size).map(|it| BatchHeader::decode(it).expect("a batch"));
    let first = headers.into_iter().find(|it| scan.timestamp <= it.max_timestamp);
    first.map(|it| it.base().expect("stored").0)
}

/// Item 32.
#[test]
fn times_between_records_give_the_next_record() {
    let folder = Folder::new();
    let mut store = folder.create_at(40);
    for offset in 40..50 {
        store.append(timed(offset * 10));
    }
    store.settle();
    for (timestamp, expected) in
        [(420, 42), (421, 43), (430, 43), (431, 44), (401, 41), (399, 40), (0, 40)]
    {
        assert_eq!(find(&mut store, timestamp), Some(expected), "{timestamp}");
    }
    assert_eq!(find(&mut store, 491), None);
}

/// Item 36.
#[test]
fn sizes_beyond_31_bits_are_added_up() {
    let segment = |number: u64| SegmentInfo {
        base: Offset(number * 10),
        size: ByteCount((1 << 31) - 1),
        largest_timestamp: START,
        modified_ms: 0,
        next_base: Offset(number * 10 + 10),
    };
    let segments: Vec<SegmentInfo> = (0..4).map(segment).collect();
    let view =
        RetentionView { segments: &segments, high_watermark: Offset(40), log_start: Offset(0) };
    for (kept, gone) in [(4, 0), (3, 1), (2, 2)] {
        let limit = Some(ByteCount(kept * ((1 << 31) - 1)));
        let config = LogConfig { retention_bytes: limit, ..Folder::new().config };
        assert_eq!(expired(view, &config, START).count(), gone);
    }
}

/// Item 40: what a crash has left under the name of the next segment's files does no harm.
#[test]
fn leftovers_under_the_names_of_the_next_segment_are_gone_before_it_begins() {
    let folder = Folder::new();
    let mut store = folder.create();
    store.append(batch(1, 3_000, START));
    store.settle();
    drop(store);
    for kind in [FileKind::Index, FileKind::TimeIndex, FileKind::TxnIndex, FileKind::Snapshot] {
        std::fs::write(folder.file(1, kind), [0x55; 3_000]).expect("writable");
    }
    let (mut store, _) = folder.open(KILLED);
    for _ in 0..3 {
        store.append(batch(1, 3_000, START));
    }
    store.settle();
    assert_eq!(bases(&store), [0, 1, 2, 3]);
    assert_eq!(store.read_from(Offset(0)), [(0, 0), (1, 1), (2, 2), (3, 3)]);
    assert_eq!(folder.offsets(1), []);
    assert_eq!(folder.times(1), [(START.0, 0)]);
    assert!(!folder.has(1, FileKind::TxnIndex));
    assert_eq!(std::fs::read(folder.file(1, FileKind::Snapshot)).expect("written").len(), 10);
}

/// Item 44: the flush behind a roll also makes the snapshot durable; when that fails, the recovery
/// point stays.
#[test]
fn the_recovery_point_waits_for_the_snapshot() {
    let folder = Folder::new();
    let mut store = folder.create();
    store.append(batch(1, 3_000, START));
    store.append(batch(1, 3_000, START));
    let finished = store.step().expect("staged");
    store.log.complete(finished, START);
    // Of the segment's three files, then of the snapshot.
    folder.faults.fail_sync(4, EIO);
    let flush = store.log.housekeeping(START).expect("a sealed segment");
    let snapshot = SNAPSHOT_OF_THE_ROLL;
    let finished = Disk::run(&mut store.disk, flush);
    let failed = finished.result.expect_err("the snapshot's sync").step;
    let opened = &finished.plan.steps[failed - 1];
    assert!(format!("{opened:?}").contains(snapshot), "{opened:?}");
    let completed = store.log.complete(finished, START);
    assert!(matches!(completed.stopped, Some(LogState::Offline(_))), "{completed:?}");
    assert_eq!(store.log.cursors().recovery_point, Offset(0));
}

const SNAPSHOT_OF_THE_ROLL: &str = "00000000000000000001.snapshot";

/// Item 46: at once after a roll readers at the end wait in the new segment.
#[test]
fn the_high_watermark_stands_in_the_new_segment() {
    let config = LogConfig { retention_ms: Some(1_000), ..Folder::new().config };
    let folder = Folder::with(config);
    let mut store = folder.create();
    store.append(batch(3, 10, START));
    store.settle();
    assert!(!store.log.is_complete(Offset(0)));
    store.now = Timestamp(START.0 + 1_001);
    assert!(store.log.retain(store.now).rolled);
    store.settle();
    assert_eq!(bases(&store), [3]);
    assert!(store.log.is_complete(Offset(0)));
    assert_eq!(store.locate(Offset(3)), None);
    store.append(batch(1, 10, store.now));
    store.settle();
    let slice = store.locate(Offset(3)).expect("appended");
    assert_eq!((slice.segment, slice.at.0), (Offset(3), 0));
}
