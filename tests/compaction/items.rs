//! What Kafka's own tests of its cleaner ask for, one by one: items 66, 72, 82 and 95 to 102 of the
//! project's list.

use std::path::Path;

use uringlog::log::clean::{CleanError, OffsetMap, RoundEnd, RoundOptions};
use uringlog::log::{CleanupPolicy, LogState};
use uringlog::units::{ByteCount, Offset, ProducerId, Timestamp};

use crate::rounds;
use crate::topic::{DELETE_RETENTION_MS, Topic};

const BOTH: CleanupPolicy = CleanupPolicy { delete: true, compact: true };

/// A round whose map holds so many keys.
fn with_keys(keys: u64) -> RoundOptions {
    let map = OffsetMap::new(ByteCount((keys + 1) * 24), 1_000, (1, 2));
    RoundOptions { map, ..rounds::options(rounds::MEMORY, 200) }
}

#[test]
fn item_95_of_each_key_the_newest_value_stays_once() {
    let mut topic = Topic::new();
    for number in 0..40 {
        if number % 10 == 0 {
            topic.roll();
        }
        topic.put(&format!("key-{}", number % 13), Some(&format!("value-{number}")));
    }
    topic.seal("active");
    let report = topic.clean();
    assert_eq!((report.from, report.to), (Offset(0), Offset(40)));
    assert_eq!((report.seen.records, report.seen.kept), (40, 13));
    let wanted: Vec<_> = (27..40)
        .map(|it| (it, Some(format!("key-{}", it % 13)), Some(format!("value-{it}"))))
        .collect();
    assert_eq!(topic.records(), wanted);
    assert_eq!(topic.bases(), [Offset(0), Offset(40)], "neighbours have become one segment");
    assert_eq!(topic.store.log.cursors().log_end, Offset(41));
    assert_eq!(topic.store.log.cursors().log_start, Offset(0), "compaction doesn't move it");
}

/// A map with room for one key: each round comes one record further.
#[test]
fn item_95_a_segment_that_is_gone_over_in_part_loses_what_is_known_to_be_old() {
    let mut topic = Topic::new();
    for number in 0..5 {
        topic.put(&(number % 2).to_string(), Some("value"));
    }
    topic.seal("active");
    topic.store.log.set_first_dirty(Some(Offset(2)));
    for (to, left) in [(3, &[1, 2, 3, 4][..]), (4, &[2, 3, 4]), (5, &[3, 4])] {
        assert_eq!(topic.clean_with(with_keys(1)).to, Offset(to));
        assert_eq!(topic.offsets(), left);
    }
}

#[test]
fn item_95_segments_from_the_last_stable_offset_on_stay_as_they_are() {
    let mut topic = Topic::new();
    for segment in 0..4 {
        topic.roll();
        for number in 0..6 {
            topic.put(&(number % 2).to_string(), Some(&format!("{segment}")));
        }
        if segment == 2 {
            topic.transact(&["open"]);
        }
    }
    topic.seal("active");
    assert_eq!(topic.store.log.last_stable(), Offset(18));
    let report = topic.clean();
    assert_eq!(report.to, Offset(12), "the segment with the open transaction stays, too");
    let left: Vec<u64> = [10, 11].into_iter().chain(12..25).collect();
    assert_eq!(topic.offsets(), left);
}

#[test]
fn item_95_records_without_a_key_go() {
    let mut topic = Topic::with(|config| {
        config.cleanup_policy = CleanupPolicy { delete: true, compact: false };
    });
    topic.put_record(None, Some("without"));
    topic.put("key", Some("with"));
    topic.seal("active");
    topic.store.settle();
    let mut config = topic.store.log.config().clone();
    config.cleanup_policy = CleanupPolicy { delete: false, compact: true };
    topic.store.log.reconfigure(config);
    let report = topic.clean();
    assert_eq!(report.seen.keyless, 1);
    assert_eq!(topic.offsets(), [1]);
}

#[test]
fn item_96_a_tombstone_stays_until_its_horizon() {
    let mut topic = Topic::new();
    topic.put("key", Some("value"));
    topic.put("key", None);
    topic.put("other", Some("value"));
    topic.seal("a");
    let horizon = Timestamp(topic.store.now.0 + DELETE_RETENTION_MS);
    topic.clean();
    assert_eq!(topic.offsets(), [1, 2], "the value goes, the tombstone stays");
    let header = *topic.batches()[0].header();
    assert!(header.has_delete_horizon());
    assert_eq!(header.base_timestamp, horizon);
    topic.seal("b");
    topic.store.now = Timestamp(horizon.0 - 1);
    topic.clean();
    assert_eq!(topic.offsets(), [1, 2, 3], "not yet");
    assert_eq!(topic.batches()[0].header().base_timestamp, horizon, "it is not put off");
    topic.store.now = horizon;
    topic.seal("c");
    topic.store.now = horizon;
    topic.clean();
    assert_eq!(topic.offsets(), [2, 3, 4]);
}

#[test]
fn item_97_a_commit_marker_goes_after_the_last_record_of_its_transaction() {
    let mut topic = Topic::new();
    topic.transact(&["1"]);
    topic.transact(&["2", "3"]);
    topic.end(true);
    topic.transact(&["2"]);
    topic.end(true);
    topic.roll();
    topic.transact(&["1", "3"]);
    topic.clean();
    assert_eq!(topic.offsets(), [0, 2, 3, 4, 5]);
    assert_eq!(topic.keys(), ["1", "3", "2"]);
    topic.end(true);
    topic.seal("a");
    topic.clean();
    assert_eq!(topic.offsets(), [3, 4, 5, 6, 7, 8], "records of it were seen in this round");
    assert_eq!(topic.keys(), ["2", "1", "3"]);
    topic.seal("b");
    let horizon = topic.store.now.0 + DELETE_RETENTION_MS;
    topic.clean();
    assert_eq!(topic.offsets(), [3, 4, 5, 6, 7, 8, 9], "now it has a horizon");
    topic.store.now.0 = horizon - 5_001;
    topic.seal("c");
    topic.clean();
    assert_eq!(topic.offsets(), [3, 4, 5, 6, 7, 8, 9, 10], "not before it");
    topic.store.now.0 = horizon;
    topic.seal("d");
    topic.clean();
    assert_eq!(topic.offsets(), [4, 5, 6, 7, 8, 9, 10, 11]);
}

#[test]
fn item_97_an_abort_marker_goes_in_a_later_round_than_its_records() {
    let mut topic = Topic::new();
    topic.transact(&["1"]);
    topic.transact(&["2", "3"]);
    topic.end(false);
    topic.transact(&["3"]);
    topic.end(true);
    topic.seal("a");
    assert_eq!(topic.store.log.aborted(Offset(0), Offset(6)).count(), 1);
    topic.clean();
    assert_eq!(topic.offsets(), [3, 4, 5], "the records go at once");
    let aborted = topic.store.log.aborted(Offset(0), Offset(6)).count();
    assert_eq!(aborted, 1, "a reader may be in the middle of them");
    assert!(topic.names().contains(&"00000000000000000000.txnindex".to_owned()));
    topic.seal("b");
    topic.clean();
    assert_eq!(topic.offsets(), [3, 4, 5, 6], "now it has a horizon");
    assert_eq!(topic.store.log.aborted(Offset(0), Offset(6)).count(), 0);
    topic.store.now.0 += DELETE_RETENTION_MS;
    topic.seal("c");
    topic.clean();
    assert_eq!(topic.offsets(), [4, 5, 6, 7]);
    assert!(!topic.names().iter().any(|name| name.ends_with(".txnindex")));
}

/// The next round, and a follower, must know that the log has come so far.
#[test]
fn item_98_the_last_batch_of_a_round_leaves_its_header() {
    let mut topic = Topic::new();
    topic.put("a", Some("value"));
    topic.transact(&["b"]);
    topic.roll();
    topic.end(false);
    // Otherwise the header would stay for the producer's sake.
    topic.transact(&["c"]);
    topic.clean();
    assert_eq!(topic.offsets(), [0]);
    let headers: Vec<_> = topic.batches().iter().map(|it| *it.header()).collect();
    assert_eq!((headers[1].base_offset, headers[1].record_count), (1, 0));
    assert_eq!(headers[1].last_offset().map(|it| it + 1), topic.bases().last().copied());
}

#[test]
fn item_98_and_82_the_last_batch_of_a_producer_leaves_its_sequence() {
    let mut topic = Topic::new();
    topic.put_numbered(5, 0, "key");
    topic.put_numbered(5, 1, "key");
    topic.put_numbered(6, 0, "key");
    topic.seal("active");
    topic.clean();
    assert_eq!(topic.offsets(), [2], "one record stays");
    let batches = topic.store.read_from(Offset(0));
    assert_eq!(batches[..2], [(1, 1), (2, 2)], "and the header of the other producer's last one");
    for is_clean in [true, false] {
        topic = topic.restart(is_clean);
        for (producer, sequence) in [(5, 1), (6, 0)] {
            let known = topic.store.log.producers().last_sequence(ProducerId(producer));
            assert_eq!(known.map(|it| it.1.0), Some(sequence), "producer {producer}, {is_clean}");
        }
    }
}

#[test]
fn item_100_a_full_map_ends_the_dirty_part() {
    let mut topic = Topic::new();
    for key in ["0", "1", "2", "3", "4"] {
        topic.put(key, Some("value"));
    }
    topic.seal("active");
    topic.store.log.set_first_dirty(Some(Offset(2)));
    let report = topic.clean_with(with_keys(2));
    assert_eq!((report.from, report.to), (Offset(2), Offset(4)));
    assert_eq!(topic.store.log.first_dirty(), Some(Offset(4)));
    assert_eq!(topic.offsets(), [0, 1, 2, 3, 4]);
}

/// Without its checkpoint a log is cleaned again, holes and all.
#[test]
fn item_100_a_round_passes_over_missing_offsets() {
    let mut topic = Topic::with(|config| config.segment_bytes = ByteCount(400));
    for _ in 0..20 {
        topic.put("key", Some("value"));
    }
    topic.seal("active");
    let active = Offset(20);
    assert_eq!(topic.clean().to, active);
    assert_eq!(topic.offsets(), [19]);
    topic.store.log.set_first_dirty(None);
    let cleanable = topic.store.log.cleanable(topic.store.now).expect("it serves");
    assert_eq!(cleanable.first_dirty, Offset(0));
    assert_eq!(topic.clean().to, active);
    assert_eq!(topic.offsets(), [19]);
}

fn log_of(base: u64) -> String {
    format!("{base:020}.log")
}

#[test]
fn item_101_what_a_round_writes_has_no_preallocated_tail() {
    let mut topic = Topic::with(|config| {
        config.preallocate = true;
        config.segment_bytes = ByteCount(64 << 10);
    });
    for _ in 0..20 {
        topic.put("key", Some("value"));
    }
    topic.seal("active");
    topic.clean();
    let tree = topic.store.disk.tree(topic.directory()).expect("it is there");
    let size = |base| tree[Path::new(&log_of(base))].len();
    assert_eq!(size(0), topic.batches()[0].as_bytes().len());
    assert_eq!(size(20), 64 << 10, "the active one has room");
}

#[test]
fn item_101_a_batch_may_be_longer_than_a_slice() {
    let mut topic = Topic::new();
    let value = "v".repeat(20_000);
    topic.put("key", Some("old"));
    topic.put("key", Some(&value));
    topic.seal("active");
    topic.clean();
    assert_eq!(topic.records(), [(1, Some("key".into()), Some(value))]);
}

#[test]
fn item_101_a_damaged_length_ends_the_round_and_changes_nothing() {
    let mut topic = Topic::new();
    for _ in 0..10 {
        topic.put("key", Some("value"));
    }
    topic.seal("active");
    topic.store.settle();
    let log = topic.directory().join(log_of(0));
    let before = topic.names();
    // The third batch's length becomes larger than the file.
    let third = topic.batches()[..2].iter().map(|it| it.as_bytes().len()).sum::<usize>();
    let third = u64::try_from(third).expect("small");
    topic.store.disk.flip_bit(&log, third + 8, 6);
    let (now, options) = (topic.store.now, rounds::options(rounds::MEMORY, 200));
    let cleanable = topic.store.log.cleanable(now).expect("it serves");
    topic.store.log.begin_cleaning(&cleanable, options, now);
    topic.store.settle();
    let report = topic.store.log.take_cleaned().expect("it is over");
    let RoundEnd::Failed(CleanError::Damaged { segment, at, .. }) = report.end else {
        panic!("{report:?}")
    };
    assert_eq!((segment, at.0), (Offset(0), third));
    assert_eq!(report.to, Offset(0));
    assert_eq!(topic.names(), before, "nothing of it is left");
    assert_eq!(topic.store.log.state(), LogState::Serving);
}

#[test]
fn item_102_what_is_younger_than_the_lag_is_not_cleaned() {
    let mut topic = Topic::with(|config| config.compaction_lag_min_ms = 12_000);
    for segment in 0..3 {
        topic.roll();
        topic.put("key", Some(&format!("{segment}")));
    }
    topic.seal("active");
    // The segments are 15, 10 and 5 seconds old.
    assert_eq!(topic.clean().to, Offset(1));
    topic.store.now.0 += 3_000;
    assert_eq!(topic.clean().to, Offset(2));
    assert_eq!(topic.offsets(), [1, 2], "the newest is not known of yet");
}

#[test]
fn item_102_the_longest_lag_makes_a_round_due() {
    let mut topic = Topic::with(|config| config.compaction_lag_max_ms = 60_000);
    topic.put("a", Some("value"));
    topic.seal("b");
    topic.clean();
    for number in 0..5 {
        topic.put("b", Some(&number.to_string()));
    }
    topic.seal("c");
    topic.store.settle();
    let due = |topic: &Topic| {
        let cleanable = topic.store.log.cleanable(topic.store.now).expect("it serves");
        cleanable.is_due(999_999)
    };
    assert!(!due(&topic), "it isn't dirty enough");
    topic.store.now.0 += 60_000;
    assert!(due(&topic));
}

#[test]
fn item_66_a_log_that_is_compacted_and_deleted_gets_both() {
    let mut topic = Topic::with(|config| {
        config.cleanup_policy = BOTH;
        config.retention_ms = Some(30_000);
        config.segment_bytes = ByteCount(300);
    });
    for number in 0..12 {
        topic.put(&(number % 2).to_string(), Some("value"));
    }
    topic.seal("a");
    topic.clean();
    assert_eq!(topic.offsets(), [10, 11]);
    topic.store.now.0 += 31_000;
    topic.seal("b");
    topic.store.settle();
    let now = topic.store.now;
    assert!(0 < topic.store.log.retain(now).segments);
    topic.store.settle();
    assert_eq!(topic.bases(), [Offset(13)]);
    assert_eq!(topic.store.log.cursors().log_start, Offset(13));
    topic.seal("c");
    topic.store.settle();
    let cleanable = topic.store.log.cleanable(topic.store.now).expect("it serves");
    assert!(cleanable.resets_checkpoint, "what was cleaned last is gone");
    assert_eq!(cleanable.first_dirty, Offset(13));
}

#[test]
fn item_72_a_log_that_is_compacted_only_keeps_its_old_segments() {
    let mut topic = Topic::with(|config| {
        config.retention_ms = Some(1);
        config.retention_bytes = Some(ByteCount(1));
    });
    topic.put("a", Some("value"));
    topic.seal("b");
    topic.store.settle();
    let now = Timestamp(topic.store.now.0 + 1_000_000);
    assert_eq!(topic.store.log.retain(now).segments, 0);
    topic.store.log.advance_log_start(Offset(1)).expect("below the high watermark");
    assert_eq!(topic.store.log.retain(now).segments, 1, "but for the log start");
    topic.store.settle();
    assert_eq!(topic.bases(), [Offset(1)]);
}
