//! What the tests of this folder share: a round over a log from its begin to its end.

use uringlog::disk::Disk;
use uringlog::log::PartitionLog;
use uringlog::log::clean::{OffsetMap, RoundEnd, RoundOptions, RoundReport};
use uringlog::units::{ByteCount, Timestamp};

/// Memory for more keys than any test has.
pub const MEMORY: ByteCount = ByteCount(1 << 20);

/// A round with so much memory for keys, in slices of so many bytes.
pub fn options(memory: ByteCount, slice_bytes: u64) -> RoundOptions {
    RoundOptions {
        map: OffsetMap::new(memory, 900, (1, 2)),
        slice_bytes: ByteCount(slice_bytes),
        bytes_per_second: None,
    }
}

/// Runs everything that is due, a round that is under way included.
pub fn settle<D: Disk>(log: &mut PartitionLog, disk: &mut D, now: Timestamp) {
    while let Some(plan) = log.plan(now).or_else(|| log.housekeeping(now)) {
        let finished = disk.run(plan);
        log.complete(finished, now);
    }
}

/// One round, if anything is dirty.
pub fn clean<D: Disk>(
    log: &mut PartitionLog,
    disk: &mut D,
    options: RoundOptions,
    now: Timestamp,
) -> Option<RoundReport> {
    settle(log, disk, now);
    let cleanable = log.cleanable(now).expect("it is compacted and serves");
    if cleanable.dirty == ByteCount(0) {
        return None;
    }
    log.begin_cleaning(&cleanable, options, now);
    settle(log, disk, now);
    let report = log.take_cleaned().expect("the round is over");
    assert_eq!(report.end, RoundEnd::Done);
    Some(report)
}
