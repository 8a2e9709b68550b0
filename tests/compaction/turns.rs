//! What a round may cost everybody else: slices have a bound, appends go on in the middle of each,
//! a limit of the rate is kept, and a disk that fails ends the round and no more.

use uringlog::disk::{Disk, Finished, Plan, Step};
use uringlog::log::clean::{CleanError, RoundEnd, RoundOptions, RoundReport};
use uringlog::log::{LogState, PartitionLog};
use uringlog::units::{ByteCount, Offset, Timestamp, u64_of};

use crate::rounds;
use crate::support::Store;
use crate::topic::Topic;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const SLICE_BYTES: u64 = 1_000;
const KEYS: u64 = 8;
/// Records that a round leaves: one of each key that all segments have, and ten of each segment's
/// own.
const LEFT: usize = 8 + 5 * 10;

/// Five segments with a few keys, and an active one.
fn filled() -> Topic {
    let mut topic = Topic::with(|config| config.segment_bytes = ByteCount(20_000));
    for segment in 0..5 {
        topic.roll();
        for number in 0..60 {
            let value = format!("{segment}-{number}-{}", "v".repeat(100));
            let own = || format!("own-{segment}-{number}");
            let key = if number % 6 == 0 { own() } else { format!("key-{}", number % KEYS) };
            topic.put(&key, Some(&value));
        }
    }
    topic.seal("active");
    topic.store.settle();
    topic
}

fn begin(topic: &mut Topic, options: RoundOptions) {
    let now = topic.store.now;
    let cleanable = topic.store.log.cleanable(now).expect("it serves");
    topic.store.log.begin_cleaning(&cleanable, options, now);
}

fn report(log: &mut PartitionLog) -> RoundReport {
    log.take_cleaned().expect("the round is over")
}

/// Bytes that the steps of a plan move.
fn moved(plan: &Plan) -> (u64, u64) {
    let read = plan.steps.iter().map(|step| match step {
        Step::Read { bytes, .. } => u64_of(bytes.len()),
        _ => 0,
    });
    let written = plan.steps.iter().map(|step| match step {
        Step::Write { parts, .. } => parts.iter().map(|part| u64_of(part.len())).sum(),
        _ => 0,
    });
    (read.sum(), written.sum())
}

/// An append that comes in the middle of a slice is planned, written and acknowledged before that
/// slice is over; and slices are short.
#[test]
fn no_append_waits_for_more_than_the_slice_under_way() {
    let mut topic = filled();
    begin(&mut topic, rounds::options(rounds::MEMORY, SLICE_BYTES));
    let (mut slices, mut waited_max, mut waited) = (0_u64, 0, 0);
    while topic.store.log.is_cleaning() {
        let now = topic.store.now;
        let Some(slice) = topic.store.log.housekeeping(now) else { break };
        let (read, written) = moved(&slice);
        assert!(read <= SLICE_BYTES, "{read} bytes are read at once");
        assert!(written <= 2 * SLICE_BYTES, "{written} bytes are written at once");
        topic.put("later", Some("value"));
        let Store { log, disk, .. } = &mut topic.store;
        let plan = log.plan(now).expect("appends have a lane of their own");
        let finished = Disk::run(disk, plan);
        assert_eq!(finished.result, Ok(()));
        log.complete(finished, now);
        waited_max = waited_max.max(waited);
        waited = 0;
        assert_eq!(log.cursors().log_end, log.cursors().next, "it is acknowledged");
        let finished = Disk::run(disk, slice);
        log.complete(finished, now);
        slices += 1;
        waited += 1;
    }
    assert_eq!(report(&mut topic.store.log).end, RoundEnd::Done);
    assert!(50 < slices, "{slices} slices");
    assert_eq!(waited_max, 1, "slices between two appends");
    assert_eq!(topic.offsets().len(), LEFT);
}

/// Simulated time that a round takes.
fn took(bytes_per_second: Option<u64>) -> (i64, RoundReport) {
    let mut topic = filled();
    let options = rounds::options(rounds::MEMORY, SLICE_BYTES);
    begin(&mut topic, RoundOptions { bytes_per_second, ..options });
    let began = topic.store.now;
    while topic.store.log.is_cleaning() {
        topic.store.settle();
        if topic.store.log.is_cleaning() {
            let due = topic.store.log.next_due().expect("the round wants to go on");
            assert!(topic.store.now < due, "it would have gone on");
            topic.store.now = due;
        }
    }
    (topic.store.now.0 - began.0, report(&mut topic.store.log))
}

#[test]
fn a_limit_of_the_rate_is_kept() {
    const RATE: u64 = 50_000;
    let (unlimited_ms, free) = took(None);
    let (limited_ms, limited) = took(Some(RATE));
    assert_eq!(unlimited_ms, 0);
    assert_eq!(free.seen, limited.seen, "the same comes of it");
    let bytes = limited.mapped + limited.read + limited.written;
    assert!(50_000 < bytes, "{bytes} bytes");
    let wanted_ms = i64::try_from(bytes * 1_000 / RATE).expect("small");
    // A round runs ahead by what a shard's look takes.
    let share = ((wanted_ms - 200) * 9 / 10, wanted_ms * 12 / 10);
    assert!((share.0..=share.1).contains(&limited_ms), "{limited_ms} ms for {wanted_ms}");
}

/// A clock that is set back far doesn't stop a round for that long.
#[test]
fn a_clock_that_is_set_back_holds_up_no_round() {
    let mut topic = filled();
    let options = rounds::options(rounds::MEMORY, SLICE_BYTES);
    begin(&mut topic, RoundOptions { bytes_per_second: Some(1_000), ..options });
    topic.store.settle();
    assert!(topic.store.log.is_cleaning(), "the limit holds it up");
    let now = Timestamp(topic.store.now.0 - 1_000_000);
    let plan = topic.store.log.housekeeping(now).expect("it goes on");
    let finished: Finished = topic.store.disk.run(plan);
    topic.store.log.complete(finished, now);
}

/// Runs a round whose nth write fails.
fn failing(nth: u64, errno: i32) -> Option<(Topic, RoundReport)> {
    let mut topic = filled();
    begin(&mut topic, rounds::options(rounds::MEMORY, SLICE_BYTES));
    topic.faults.fail_write(nth, errno);
    topic.store.settle();
    let report = report(&mut topic.store.log);
    (report.end != RoundEnd::Done).then_some((topic, report))
}

#[test]
fn a_write_that_fails_ends_the_round_and_changes_nothing() {
    let before = filled().records();
    let mut failed = 0;
    for errno in [EIO, ENOSPC] {
        let mut nth = 1;
        while let Some((mut topic, report)) = failing(nth, errno) {
            let RoundEnd::Failed(error @ CleanError::Disk(_)) = report.end else {
                panic!("{report:?}")
            };
            assert_eq!(error.is_passing(), errno == ENOSPC, "{error}");
            assert_eq!(topic.store.log.state(), LogState::Serving);
            let names = topic.names();
            assert!(!names.iter().any(|it| it.ends_with(".cleaned")), "{names:?}");
            // Groups that were swapped before are as good as they will be.
            let after = topic.records();
            assert!(after.iter().all(|record| before.contains(record)));
            topic.put("later", Some("value"));
            topic.store.settle();
            let report = topic.clean();
            assert_eq!((report.end, report.from), (RoundEnd::Done, Offset(0)));
            assert_eq!(topic.keys().len(), LEFT);
            failed += 1;
            nth += 1;
        }
    }
    assert!(20 < failed, "{failed} writes failed");
}

/// Reads go on in the middle of a swap: whoever has the old files open keeps them until they are
/// unlinked.
#[test]
fn a_reader_with_an_old_file_reads_on() {
    let mut topic = filled();
    let slice = topic.store.locate(Offset(0)).expect("there are records");
    let before = topic.store.bytes(slice.file, slice.at, slice.end);
    topic.clean();
    let after = topic.store.bytes(slice.file, slice.at, slice.end);
    assert_eq!(before, after, "the delay of deletion isn't over");
    assert!(topic.names().iter().any(|name| name.ends_with(".log.deleted")));
    topic.store.now.0 += 1_000;
    topic.store.settle();
    assert!(!topic.names().iter().any(|name| name.ends_with(".deleted")));
}
