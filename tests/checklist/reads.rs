//! Reads: gaps, bounds, the log start.

use uringlog::log::{Located, LogConfig, ReadError};
use uringlog::units::{ByteCount, Offset};

use crate::fixture::{Folder, bases, stored};
use crate::support::{KILLED, START, batch};

/// Items 5, 25, 31 and 59: offsets may be missing, in a segment and between two.
#[test]
fn a_read_in_a_gap_goes_on_with_the_next_batch() {
    let folder = Folder::new();
    folder.lay(0, vec![stored(0, 3), stored(5, 2)]);
    folder.lay(10, vec![stored(12, 1), stored(20, 4)]);
    folder.lay(30, vec![stored(31, 1)]);
    let (mut store, report) = folder.open(KILLED);
    assert!(report.damages.is_empty() && report.truncated.is_empty(), "{report}");
    let all = [(0, 2), (5, 6), (12, 12), (20, 23), (31, 31)];
    for offset in 0..32 {
        let expected: Vec<(u64, u64)> = all.into_iter().filter(|it| offset <= it.1).collect();
        assert_eq!(store.read_from(Offset(offset)), expected, "from {offset}");
    }
    assert_eq!(store.locate(Offset(32)), None);
    let before = store.read_from(Offset(0));
    store.append(batch(2, 10, START));
    store.settle();
    assert_eq!(store.read_from(Offset(32)), [(32, 33)]);
    assert_eq!(store.read_from(Offset(0))[..before.len()], before);
}

/// Item 58.
#[test]
fn only_what_lies_between_log_start_and_log_end_is_in_range() {
    let folder = Folder::new();
    let mut store = folder.create_at(1_024);
    store.append(batch(1, 10, START));
    store.settle();
    assert_eq!(store.read_from(Offset(1_024)), [(1_024, 1_024)]);
    assert_eq!(store.log.locate(Offset(1_025)), Ok(Located::Empty));
    for outside in [0, 1_023, 1_026] {
        let error = store.log.locate(Offset(outside));
        assert!(matches!(error, Err(ReadError::OffsetOutOfRange { .. })), "{outside}");
    }
}

/// Item 68, with its numbers.
#[test]
fn deleted_records_take_their_segments_along() {
    let five = 5 * batch(1, 20, START).size().0;
    let config = LogConfig { segment_bytes: ByteCount(five), ..Folder::new().config };
    let folder = Folder::with(config);
    let mut store = folder.create();
    for _ in 0..15 {
        store.append(batch(1, 20, START));
    }
    store.settle();
    assert_eq!(bases(&store), [0, 5, 10]);
    for (to, left) in [(1, 3), (6, 2), (15, 1)] {
        store.log.advance_log_start(Offset(to)).expect("below the high watermark");
        store.log.retain(START);
        store.settle();
        assert_eq!(bases(&store).len(), left, "log start {to}");
        assert_eq!(store.log.cursors().log_start, Offset(to));
        assert!(store.log.needs_log_start_checkpoint());
    }
    store.log.advance_log_start(Offset(16)).expect_err("beyond the high watermark");
    assert_eq!(store.append(batch(1, 20, START)).base_offset, Offset(15));
}
