//! The partition log on a plain-file disk: appends, rolls, reads, tiers, failures.

#[expect(dead_code, reason = "each test uses its own part")]
mod support;

use std::path::Path;

use support::{START, Store, batch, config, idempotent, spec};
use uringlog::disk::faults::FaultHook;
use uringlog::disk::plain::PlainDisk;
use uringlog::disk::{Disk, DiskError, Finished, Place, Step, StepFailure};
use uringlog::log::{
    AppendError, Cause, Durability, Located, LogConfig, LogState, ReadError, TimestampSearch,
};
use uringlog::units::{ByteCount, LeaderEpoch, Offset, Position, Timestamp};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

struct Fixture {
    store: Store<PlainDisk>,
    faults: FaultHook,
    directory: tempfile::TempDir,
}

fn fixture(config: LogConfig) -> Fixture {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let faults = FaultHook::new();
    let disk = PlainDisk::new(100, Some(faults.clone()));
    let spec = spec(&directory.path().join("topic-0"), config);
    Fixture { store: Store::create(disk, spec), faults, directory }
}

fn page_cache() -> Fixture {
    fixture(config(Durability::PageCache))
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory.join("topic-0")).expect("it exists");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("readable").file_name().into_string().expect("ASCII"))
        .collect();
    names.sort();
    names
}

#[test]
fn offsets_are_assigned_and_everything_staged_is_one_plan() {
    let mut fixture = page_cache();
    let store = &mut fixture.store;
    let first = store.append(batch(3, 10, START));
    let second = store.append(batch(2, 10, START));
    assert_eq!((first.base_offset, first.last_offset), (Offset(0), Offset(2)));
    assert_eq!((second.base_offset, second.due), (Offset(3), Offset(5)));
    let plan = store.log.plan(START).expect("staged");
    assert_eq!(plan.steps.len(), 1, "one write: {plan:?}");
    assert!(store.log.plan(START).is_none(), "one plan is under way at a time");
    let third = store.append(batch(1, 10, START));
    let finished = Disk::run(&mut store.disk, plan);
    let completed = store.log.complete(finished, START);
    assert_eq!(completed.high_watermark, Some(second.due));
    assert_eq!(store.log.cursors().next, third.due);
    store.settle();
    assert_eq!(store.read_from(Offset(0)), [(0, 2), (3, 4), (5, 5)]);
}

#[test]
fn a_batch_is_written_from_where_it_arrived() {
    let mut fixture = page_cache();
    let batch = batch(3, 100, START);
    let range = batch.as_bytes().as_ptr_range();
    fixture.store.append(batch);
    let plan = fixture.store.log.plan(START).expect("staged");
    let Step::Write { parts, .. } = &plan.steps[0] else { panic!("{plan:?}") };
    assert!(range.contains(&parts[0].as_ptr()), "the batch was copied");
}

#[test]
fn the_device_tier_shows_nothing_before_the_sync() {
    let mut fixture = fixture(config(Durability::Device));
    let store = &mut fixture.store;
    let appended = store.append(batch(3, 10, START));
    let plan = store.log.plan(START).expect("staged");
    assert!(matches!(plan.steps.last(), Some(Step::Sync { .. })), "{plan:?}");
    assert_eq!(store.log.locate(Offset(0)), Ok(Located::Empty));
    assert_eq!(store.log.timestamp_search(START), Ok(TimestampSearch::Nothing));
    let finished = Disk::run(&mut store.disk, plan);
    assert_eq!(store.log.complete(finished, START).high_watermark, Some(appended.due));
    let cursors = store.log.cursors();
    assert_eq!((cursors.durable_end, cursors.recovery_point), (Offset(3), Offset(3)));
}

#[test]
fn a_new_name_is_synced_before_the_acknowledgement() {
    let mut fixture = fixture(config(Durability::Device));
    let store = &mut fixture.store;
    store.append(batch(1, 3_000, START));
    store.append(batch(1, 3_000, START));
    let plan = store.log.plan(START).expect("staged");
    let at = |wanted: fn(&Step) -> bool| {
        plan.steps.iter().rposition(wanted).expect("the plan has such a step")
    };
    let created =
        at(|step| matches!(step, Step::Create { place, .. } if place.name.ends_with(".log")));
    let synced = at(|step| matches!(step, Step::Sync { .. }));
    let named = at(|step| matches!(step, Step::SyncDirectory { .. }));
    assert!(created < synced && synced < named, "{plan:?}");
    let first_sync = plan.steps.iter().position(|step| matches!(step, Step::Sync { .. }));
    assert!(first_sync < Some(created), "the sealed segment is durable before the next one begins");
}

#[test]
fn flush_messages_and_flush_ms_sync_now_and_then() {
    let settings =
        LogConfig { flush_messages: 3, flush_ms: 1_000, ..config(Durability::PageCache) };
    let mut fixture = fixture(settings);
    let store = &mut fixture.store;
    store.append(batch(2, 10, START));
    store.settle();
    assert_eq!(store.log.cursors().durable_end, Offset(0));
    assert_eq!(store.log.cursors().high_watermark, Offset(2));
    store.append(batch(1, 10, START));
    store.settle();
    assert_eq!(store.log.cursors().durable_end, Offset(3));
    store.append(batch(1, 10, START));
    store.settle();
    assert_eq!(store.log.cursors().durable_end, Offset(3));
    assert_eq!(store.log.next_due(), Some(Timestamp(START.0 + 1_000)));
    store.now = Timestamp(START.0 + 1_000);
    store.settle();
    assert_eq!(store.log.cursors().durable_end, Offset(4));
}

#[test]
fn several_rolls_of_one_turn_stay_in_order() {
    let mut fixture = page_cache();
    let store = &mut fixture.store;
    for _ in 0..7 {
        store.append(batch(1, 3_000, START));
    }
    assert_eq!(store.log.segments().count(), 7);
    store.settle();
    assert_eq!(store.log.cursors().high_watermark, Offset(7));
    assert_eq!(store.read_from(Offset(0)), (0..7).map(|at| (at, at)).collect::<Vec<_>>());
    // The flush of the sealed segments followed.
    assert_eq!(store.log.cursors().recovery_point, Offset(6));
    assert_eq!(names(fixture.directory.path()).len(), 7 * 3 + 6 + 2); // 6 snapshots
}

#[test]
fn size_rolls_leave_segments_at_most_full() {
    // Eleven batches of s bytes, room for less than ten of them: exactly two segments.
    let size = batch(1, 300, START).size().0;
    let segment_bytes = ByteCount(10 * (size - 1));
    let mut fixture = fixture(LogConfig { segment_bytes, ..config(Durability::PageCache) });
    for _ in 0..11 {
        fixture.store.append(batch(1, 300, START));
    }
    let sizes: Vec<u64> = fixture.store.log.segments().map(|it| it.size.0).collect();
    assert_eq!(sizes, [9 * size, 2 * size]);
}

#[test]
fn time_rolls_follow_the_records_clock() {
    let settings = LogConfig { segment_ms: 1_000, ..config(Durability::PageCache) };
    let segments = |timestamps: &[i64], now: &[i64]| {
        let mut fixture = fixture(settings.clone());
        for (timestamp, now) in timestamps.iter().zip(now) {
            fixture.store.now = Timestamp(START.0 + now);
            let timestamp = if *timestamp < 0 { *timestamp } else { START.0 + timestamp };
            fixture.store.append(batch(1, 10, Timestamp(timestamp)));
        }
        fixture.store.log.segments().map(|it| it.base.0).collect::<Vec<_>>()
    };
    // Strictly more than segment.ms after the first batch; the wall clock is irrelevant.
    assert_eq!(segments(&[0, 1_000, 1_001], &[0, 90_000, 90_000]), [0, 2]);
    // Old and missing timestamps never roll.
    assert_eq!(segments(&[5_000, 0, -1], &[0, 0, 90_000]), [0]);
    // Without timestamps the age of the segment counts.
    assert_eq!(segments(&[-1, -1, -1], &[0, 1_000, 1_001]), [0, 2]);
}

#[test]
fn jitter_is_drawn_once_per_segment_from_the_seed() {
    let settings = LogConfig {
        segment_ms: 1_000,
        segment_jitter_ms: 900,
        segment_bytes: ByteCount(1 << 20),
        ..config(Durability::PageCache)
    };
    let rolls_at = || {
        let mut fixture = fixture(settings.clone());
        fixture.store.append(batch(1, 10, START));
        (0..=1_001).find(|ms| {
            fixture.store.append(batch(1, 10, Timestamp(START.0 + ms)));
            fixture.store.log.segments().count() > 1
        })
    };
    let first = rolls_at().expect("at the latest behind segment.ms");
    assert!((100..=1_001).contains(&first));
    assert_eq!(rolls_at(), Some(first));
}

#[test]
fn reads_begin_at_the_very_batch_after_a_note() {
    let mut fixture = page_cache();
    let store = &mut fixture.store;
    for _ in 0..20 {
        store.append(batch(2, 60, START));
        store.settle();
    }
    let slice = store.locate(Offset(13)).expect("there");
    assert!(slice.at <= Position(slice.end.0));
    let size = batch(2, 60, START).size();
    // The end of each plan is remembered: a consumer at the tail never scans.
    let next = store.locate(Offset(36)).expect("there");
    assert_eq!(next.at, Position((36 - next.segment.0) / 2 * size.0));
    assert!(next.exact);
    assert_eq!(store.locate(Offset(40)), None);
    assert!(matches!(store.log.locate(Offset(41)), Err(ReadError::OffsetOutOfRange { .. })));
    for offset in 0..40 {
        let first = store.read_from(Offset(offset))[0];
        assert!(first.0 <= offset && offset <= first.1, "{offset} in {first:?}");
    }
}

#[test]
fn aligned_ends_are_batch_starts() {
    let mut fixture = page_cache();
    let store = &mut fixture.store;
    for _ in 0..40 {
        store.append(batch(1, 60, START));
    }
    store.settle();
    let size = batch(1, 60, START).size().0;
    for segment in [0, store.log.segments().last().expect("one").base.0] {
        let slice = store.locate(Offset(segment)).expect("there");
        for limit in 0..slice.end.0 + 10 {
            let end = store.log.align_end(&slice, slice.at, Position(limit));
            assert!(end.0.is_multiple_of(size), "{limit} -> {end}");
            assert!(end <= Position(limit).max(slice.at));
        }
        assert_eq!(store.log.align_end(&slice, slice.at, slice.end), slice.end);
    }
}

#[test]
fn sealed_segments_are_unloaded_and_loaded_again() {
    let mut fixture = page_cache();
    let store = &mut fixture.store;
    for _ in 0..100 {
        store.append(batch(1, 60, START));
    }
    store.settle();
    let bases: Vec<Offset> = store.log.segments().map(|it| it.base).collect();
    let before = store.disk.files_open();
    for base in &bases[..bases.len() - 1] {
        let plan = store.log.unload(*base).expect("it is open");
        let finished = Disk::run(&mut store.disk, plan);
        store.log.complete(finished, START);
        assert!(store.log.unload(*base).is_none());
    }
    assert_eq!(store.disk.files_open(), before - (bases.len() - 1));
    assert!(matches!(store.log.locate(Offset(5)), Ok(Located::Load(_))));
    assert!(matches!(store.log.locate(Offset(5)), Ok(Located::Loading)));
    assert_eq!(store.read_from(bases[1]).len(), 100 - usize::try_from(bases[1].0).expect("small"));
}

#[test]
fn a_missing_index_costs_a_scan_and_nothing_else() {
    let mut fixture = page_cache();
    let store = &mut fixture.store;
    for _ in 0..60 {
        store.append(batch(1, 60, START));
    }
    store.settle();
    let plan = store.log.unload(Offset(0)).expect("it is open");
    let finished = Disk::run(&mut store.disk, plan);
    store.log.complete(finished, START);
    let index = fixture.directory.path().join("topic-0/00000000000000000000.index");
    std::fs::remove_file(index).expect("it was there");
    assert_eq!(store.read_from(Offset(0)).len(), 60);
}

#[test]
fn timestamps_are_found_where_the_index_says() {
    let mut fixture = page_cache();
    let store = &mut fixture.store;
    for at in 0..100 {
        store.append(batch(1, 60, Timestamp(START.0 + at * 10)));
    }
    store.settle();
    for (target, expected) in [(0, 0), (1, 1), (555, 56), (990, 99)] {
        let target = Timestamp(START.0 + target);
        let found = loop {
            match store.log.timestamp_search(target).expect("online") {
                TimestampSearch::Load(plan) => {
                    let finished = Disk::run(&mut store.disk, plan);
                    store.log.complete(finished, START);
                }
                TimestampSearch::Scan(scan) => break scan,
                other => panic!("{other:?}"),
            }
        };
        let bytes = store.bytes(found.file, found.from, found.to);
        let size = usize::try_from(batch(1, 60, START).size().0).expect("small");
        let headers = bytes.chunks(size).map(|bytes| {
            uringlog::format::batch::BatchHeader::decode(bytes).expect("a slice of batches")
        });
        let first = headers.into_iter().find(|header| header.max_timestamp >= target);
        assert_eq!(first.map(|header| header.base_offset), Some(expected));
    }
    let beyond = store.log.timestamp_search(Timestamp(START.0 + 991));
    assert_eq!(beyond, Ok(TimestampSearch::Nothing));
    let TimestampSearch::Scan(newest) = store.log.max_timestamp_search().expect("online") else {
        panic!("the newest is in the active segment")
    };
    assert_eq!(newest.timestamp, Timestamp(START.0 + 990));
}

#[test]
fn a_newer_timestamp_that_is_only_staged_hides_nothing() {
    let mut fixture = fixture(config(Durability::Device));
    let store = &mut fixture.store;
    let newest = |store: &mut Store<PlainDisk>| match store.log.max_timestamp_search() {
        Ok(TimestampSearch::Scan(scan)) => (scan.segment, scan.timestamp),
        other => panic!("{other:?}"),
    };
    store.append(batch(1, 100, Timestamp(START.0 + 5)));
    store.append(batch(1, 100, START));
    store.settle();
    for bytes in [100, 3_900] {
        store.append(batch(1, bytes, Timestamp(START.0 + 9)));
        assert_eq!(newest(store), (Offset(0), Timestamp(START.0 + 5)));
        let found = store.log.timestamp_search(Timestamp(START.0 + 3));
        assert!(matches!(found, Ok(TimestampSearch::Scan(_))), "{found:?}");
    }
    store.settle();
    assert_eq!(newest(store), (Offset(0), Timestamp(START.0 + 9)));
}

#[test]
fn the_duplicate_of_a_batch_in_flight_waits_for_the_original() {
    let mut fixture = fixture(config(Durability::Device));
    let store = &mut fixture.store;
    let original = store.append(idempotent(5, 0, 3));
    let plan = store.log.plan(START).expect("staged");
    store.append(idempotent(6, 0, 1));
    let again = store.append(idempotent(5, 0, 3));
    assert!(again.duplicate);
    assert_eq!((again.base_offset, again.due), (original.base_offset, original.due));
    assert!(store.log.cursors().high_watermark < again.due);
    let finished = Disk::run(&mut store.disk, plan);
    store.log.complete(finished, START);
    assert_eq!(store.log.cursors().high_watermark, again.due);
    let error = store.log.append(idempotent(5, 9, 1), START);
    assert!(matches!(error, Err(AppendError::OutOfOrderSequence { .. })));
}

#[test]
fn refusals_leave_the_log_end_alone() {
    let mut fixture = page_cache();
    let store = &mut fixture.store;
    let error = store.log.append(batch(1, 4_000, START), START);
    assert!(matches!(error, Err(AppendError::RecordListTooLarge { .. })), "{error:?}");
    let late = store.log.append(batch(1, 10, Timestamp(START.0 + 3_600_001)), START);
    assert!(matches!(late, Err(AppendError::InvalidTimestamp(_))), "{late:?}");
    assert_eq!(store.log.cursors().next, Offset(0));
}

#[test]
fn a_failed_sync_takes_the_log_offline() {
    let mut fixture = fixture(config(Durability::Device));
    let store = &mut fixture.store;
    store.append(batch(1, 10, START));
    store.settle();
    fixture.faults.fail_sync(1, EIO);
    store.append(batch(1, 10, START));
    let finished = store.step().expect("staged");
    store.append(batch(1, 10, START));
    let completed = store.log.complete(finished, START);
    let Some(LogState::Offline(Cause::Sync { error, .. })) = completed.stopped else {
        panic!("{completed:?}")
    };
    assert_eq!(error, DiskError::Io(EIO));
    let cursors = store.log.cursors();
    assert_eq!((cursors.high_watermark, cursors.next), (Offset(1), Offset(1)));
    assert!(store.log.plan(START).is_none());
    assert!(matches!(store.log.locate(Offset(0)), Err(ReadError::Offline(_))));
    let error = store.log.append(batch(1, 10, START), START);
    assert!(matches!(error, Err(AppendError::Offline { .. })));
    let plan = store.log.close(START);
    assert!(plan.steps.iter().all(|step| matches!(step, Step::Close { .. })));
    assert_eq!(Disk::run(&mut store.disk, plan).result, Ok(()));
    assert_eq!(store.disk.files_open(), 0);
}

#[test]
fn a_transient_failure_with_nothing_done_is_tried_again() {
    let mut fixture = page_cache();
    let store = &mut fixture.store;
    let appended = store.append(batch(1, 10, START));
    let failure = StepFailure { step: 0, partial: false, error: DiskError::Transient(11) };
    for _ in 0..8 {
        let plan = store.log.plan(START).expect("offered again");
        let completed = store.log.complete(Finished { plan, result: Err(failure) }, START);
        assert_eq!(completed.stopped, None);
    }
    store.settle();
    assert_eq!(store.log.cursors().high_watermark, appended.due);
    store.append(batch(1, 10, START));
    let plan = store.log.plan(START).expect("staged");
    let partial = StepFailure { partial: true, ..failure };
    let completed = store.log.complete(Finished { plan, result: Err(partial) }, START);
    assert!(matches!(completed.stopped, Some(LogState::Offline(Cause::Write { .. }))));
}

#[test]
fn a_plan_under_way_when_housekeeping_fails_counts_no_more() {
    let mut fixture = page_cache();
    let store = &mut fixture.store;
    store.append(batch(1, 3_000, START));
    store.append(batch(1, 3_000, START));
    let plan = store.log.plan(START).expect("staged");
    let finished = Disk::run(&mut store.disk, plan);
    store.log.complete(finished, START);
    store.append(batch(1, 10, START));
    let under_way = store.log.plan(START).expect("staged");
    fixture.faults.fail_sync(1, EIO);
    let flush = store.log.housekeeping(START).expect("a sealed segment");
    let finished = Disk::run(&mut store.disk, flush);
    let completed = store.log.complete(finished, START);
    assert!(matches!(completed.stopped, Some(LogState::Offline(Cause::Sync { .. }))));
    let finished = Disk::run(&mut store.disk, under_way);
    assert_eq!(store.log.complete(finished, START).high_watermark, None);
    assert_eq!(store.log.cursors().next, Offset(2));
    assert!(!store.log.is_in_flight());
    let plan = store.log.close(START);
    assert_eq!(Disk::run(&mut store.disk, plan).result, Ok(()));
    assert!(!matches!(store.log.state(), LogState::Offline(Cause::Closed)), "no clean stop");
    assert_eq!(store.disk.files_open(), 0);
}

#[test]
fn the_tier_may_change_while_the_log_serves() {
    let mut fixture = page_cache();
    let store = &mut fixture.store;
    store.append(batch(1, 3_000, START));
    store.append(batch(1, 3_000, START));
    let plan = store.log.plan(START).expect("staged");
    let finished = Disk::run(&mut store.disk, plan);
    store.log.complete(finished, START);
    store.log.reconfigure(config(Durability::Device));
    store.append(batch(1, 10, START));
    let plan = store.log.plan(START).expect("staged");
    let finished = Disk::run(&mut store.disk, plan);
    // The first segment is not flushed yet, so the sync of the second one promises nothing.
    assert_eq!(store.log.complete(finished, START).high_watermark, None);
    assert_eq!(store.log.cursors().durable_end, Offset(0));
    store.settle();
    let cursors = store.log.cursors();
    assert_eq!((cursors.durable_end, cursors.high_watermark), (Offset(3), Offset(3)));
}

#[test]
fn a_full_disk_makes_the_log_read_only_until_it_is_resumed() {
    for (bytes, device) in [(0, false), (40, false), (0, true), (40, true), (200, true)] {
        let tier = if device { Durability::Device } else { Durability::PageCache };
        let mut fixture = fixture(config(tier));
        let store = &mut fixture.store;
        store.append(idempotent(5, 0, 3));
        store.settle();
        fixture.faults.short_write(1, bytes, ENOSPC);
        store.append(idempotent(5, 3, 2));
        store.append(batch(1, 3_900, START));
        let finished = store.step().expect("staged");
        let completed = store.log.complete(finished, START);
        assert!(matches!(completed.stopped, Some(LogState::ReadOnly(_))), "{completed:?}");
        let error = store.log.append(idempotent(5, 3, 2), START);
        assert!(matches!(error, Err(AppendError::NoSpace { .. })));
        assert_eq!(store.read_from(Offset(0)), [(0, 2)]);
        store.log.resume(&mut store.disk, START).expect("there is room again");
        assert_eq!(store.log.state(), LogState::Serving);
        let again = store.append(idempotent(5, 3, 2));
        assert_eq!((again.base_offset, again.duplicate), (Offset(3), false));
        store.settle();
        assert_eq!(store.read_from(Offset(0)), [(0, 2), (3, 4)]);
        store.close();
        assert_eq!(store.disk.files_open(), 0, "no file is left open");
    }
}

#[test]
fn the_log_start_bounds_reads_and_deletes_whole_segments() {
    let mut fixture = page_cache();
    let store = &mut fixture.store;
    for _ in 0..100 {
        store.append(batch(1, 60, START));
    }
    store.settle();
    let bases: Vec<Offset> = store.log.segments().map(|it| it.base).collect();
    assert!(store.log.advance_log_start(Offset(101)).is_err());
    store.log.advance_log_start(bases[1] + 1).expect("below the high watermark");
    assert!(store.log.needs_log_start_checkpoint());
    assert!(store.log.locate(bases[1]).is_err());
    let retained = store.log.retain(START);
    assert_eq!((retained.segments, retained.rolled), (1, false));
    store.settle();
    let marked = names(fixture.directory.path());
    let marked = marked.iter().filter(|name| name.ends_with(".deleted")).count();
    assert_eq!(marked, 3);
    assert_eq!(store.log.next_due(), Some(Timestamp(START.0 + 60_000)));
    store.now = Timestamp(START.0 + 60_000);
    store.settle();
    let left = names(fixture.directory.path());
    assert!(left.iter().all(|name| !name.ends_with(".deleted")), "{left:?}");
    assert_eq!(
        store.read_from(bases[1] + 1).len(),
        usize::try_from(99 - bases[1].0).expect("small")
    );
}

#[test]
fn retention_of_everything_leaves_one_empty_segment() {
    let settings = LogConfig { retention_ms: Some(1_000), ..config(Durability::PageCache) };
    let mut fixture = fixture(settings);
    let store = &mut fixture.store;
    for _ in 0..100 {
        store.append(batch(1, 60, START));
    }
    store.settle();
    store.now = Timestamp(START.0 + 1_001);
    let retained = store.log.retain(store.now);
    assert!(retained.rolled);
    assert!(retained.segments > 1);
    store.settle();
    let cursors = store.log.cursors();
    assert_eq!((cursors.log_start, cursors.high_watermark), (Offset(100), Offset(100)));
    assert_eq!(store.log.size(), ByteCount(0));
    assert_eq!(store.log.retain(store.now).segments, 0, "a second pass finds nothing");
    assert_eq!(store.append(batch(1, 60, store.now)).base_offset, Offset(100));
    store.settle();
    store.close();
    assert_eq!(store.disk.files_open(), 0);
}

#[test]
fn epochs_begin_where_the_leader_does() {
    let mut fixture = page_cache();
    let store = &mut fixture.store;
    store.append(batch(4, 10, START));
    store.settle();
    store.log.become_leader(LeaderEpoch(2), START);
    store.append(batch(1, 10, START));
    store.settle();
    assert_eq!(store.log.end_offset_for_epoch(LeaderEpoch(0)), (LeaderEpoch(0), Some(Offset(4))));
    assert_eq!(store.log.end_offset_for_epoch(LeaderEpoch(2)), (LeaderEpoch(2), Some(Offset(5))));
    let file = fixture.directory.path().join("topic-0/leader-epoch-checkpoint");
    assert_eq!(std::fs::read_to_string(file).expect("written"), "0\n2\n0 0\n2 4\n");
    let batches = store.batches_from(Offset(4));
    assert_eq!(batches[0].header().leader_epoch, LeaderEpoch(2));
}

#[test]
fn preallocated_segments_are_cut_at_the_roll_and_the_stop() {
    let mut fixture = fixture(LogConfig { preallocate: true, ..config(Durability::PageCache) });
    let store = &mut fixture.store;
    let path = fixture.directory.path().join("topic-0/00000000000000000000.log");
    let length = || std::fs::metadata(&path).expect("it exists").len();
    assert_eq!(length(), 4_000);
    store.append(batch(1, 3_000, START));
    store.settle();
    assert_eq!(length(), 4_000);
    store.append(batch(1, 3_000, START));
    store.settle();
    assert_eq!(length(), batch(1, 3_000, START).size().0);
    store.close();
    let second = fixture.directory.path().join("topic-0/00000000000000000001.log");
    assert_eq!(std::fs::metadata(second).expect("it exists").len(), length());
}

#[test]
fn a_retired_log_is_out_of_sight() {
    let mut fixture = page_cache();
    fixture.store.append(batch(1, 10, START));
    fixture.store.settle();
    let name = "topic-0.0123456789abcdef0123456789abcdef-delete".into();
    let renamed = Place { directory: fixture.directory.path().into(), name };
    let Store { log, disk, .. } = &mut fixture.store;
    let finished = Disk::run(disk, log.retire(renamed.clone()));
    assert_eq!(finished.result, Ok(()));
    log.complete(finished, START);
    assert_eq!(log.state(), LogState::Offline(Cause::Retired));
    assert_eq!(disk.files_open(), 0);
    assert!(renamed.directory.join(&*renamed.name).is_dir());
    assert!(!fixture.directory.path().join("topic-0").exists());
}
