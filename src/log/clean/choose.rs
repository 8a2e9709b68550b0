//! How much of a log is dirty, and whether that is worth a round.

use crate::log::config::LogConfig;
use crate::log::retention::SegmentInfo;
use crate::units::{ByteCount, Offset, Timestamp};

const MILLION: u64 = 1_000_000;

/// A log with something to clean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cleanable {
    /// First offset that no round has cleaned.
    pub first_dirty: Offset,
    /// First offset that this one may not; the base of a segment.
    pub first_uncleanable: Offset,
    /// Bytes below the dirty part.
    pub clean: ByteCount,
    /// Bytes of the part that may be cleaned.
    pub dirty: ByteCount,
    /// Whether `max.compaction.lag.ms` is over for something in it.
    pub is_overdue: bool,
    /// Whether the checkpoint lay outside of the log and is to be written anew.
    pub resets_checkpoint: bool,
}

impl Cleanable {
    /// Whether a round is due, for a threshold in millionths (`min.cleanable.dirty.ratio`): more
    /// than it, not as much.
    pub fn is_due(&self, ratio_millionths: u64) -> bool {
        let all = u128::from(self.clean.0) + u128::from(self.dirty.0);
        let dirty = u128::from(self.dirty.0) * u128::from(MILLION);
        let is_filthy = u128::from(ratio_millionths) * all < dirty;
        self.dirty.0 != 0 && (self.is_overdue || is_filthy)
    }

    /// The dirty part in millionths of what a round would go over.
    pub fn ratio_millionths(&self) -> u64 {
        let all = u128::from(self.clean.0) + u128::from(self.dirty.0);
        let dirty = u128::from(self.dirty.0) * u128::from(MILLION);
        u64::try_from(dirty.checked_div(all).unwrap_or(0)).expect("at most a million")
    }
}

/// What of a log may be cleaned (`LogCleanerManager#cleanableOffsets`): nothing from the last
/// stable offset on, nothing of the active segment, nothing younger than `min.compaction.lag.ms`.
/// `first_timestamps` are those of the segments' first batches.
pub fn cleanable(
    segments: &[SegmentInfo],
    first_timestamps: &[Timestamp],
    (checkpoint, log_start, last_stable): (Option<Offset>, Offset, Offset),
    (config, now): (&LogConfig, Timestamp),
) -> Cleanable {
    let (active, sealed) = segments.split_last().expect("a log has an active segment");
    let end = active.next_base;
    let known = checkpoint.unwrap_or(log_start);
    let resets_checkpoint = known < log_start || end < known;
    let first_dirty = if resets_checkpoint { log_start } else { known };
    let is_dirty = |segment: &&SegmentInfo| first_dirty < segment.next_base;
    let lag_ms = i64::try_from(config.compaction_lag_min_ms).unwrap_or(i64::MAX);
    let young = sealed.iter().filter(is_dirty).find(|segment| {
        0 < lag_ms && now.0.saturating_sub(lag_ms) < segment.retention_timestamp().0
    });
    let young = young.map_or(active.base, |segment| segment.base);
    let limit = last_stable.min(active.base).min(young).max(first_dirty);
    // Only whole segments are cleaned.
    let floor = segments.iter().rev().find(|segment| segment.base <= limit);
    let first_uncleanable = floor.map_or(limit, |segment| segment.base);
    let size = |segments: &mut dyn Iterator<Item = &SegmentInfo>| {
        ByteCount(segments.map(|segment| segment.size.0).sum())
    };
    let dirty_from = segments.iter().rev().find(|it| it.base <= first_dirty).map(|it| it.base);
    let dirty_from = dirty_from.unwrap_or(first_dirty);
    // A segment that is clean up to its middle counts for both.
    let clean = size(&mut sealed.iter().filter(|it| it.base < first_dirty));
    let dirty =
        size(&mut sealed.iter().filter(|it| dirty_from <= it.base && it.base < first_uncleanable));
    let max_lag_ms = i64::try_from(config.compaction_lag_max_ms).unwrap_or(i64::MAX);
    let until = now.0.saturating_sub(max_lag_ms);
    let firsts = sealed.iter().zip(first_timestamps).filter(|(segment, _)| is_dirty(segment));
    let oldest = firsts.map(|(_, first)| first.0).filter(|first| 0 < *first).min();
    let is_overdue = oldest.is_some_and(|oldest| oldest < until);
    Cleanable { first_dirty, first_uncleanable, clean, dirty, is_overdue, resets_checkpoint }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::config::Durability;

    fn segments() -> Vec<SegmentInfo> {
        (0..4_u64)
            .map(|it| SegmentInfo {
                base: Offset(it * 10),
                size: ByteCount(100),
                largest_timestamp: Timestamp(i64::try_from(it).expect("small") * 1000 + 999),
                modified_ms: 0,
                next_base: Offset(it * 10 + 10),
            })
            .collect()
    }

    const FIRSTS: [Timestamp; 4] =
        [Timestamp(1), Timestamp(1000), Timestamp(2000), Timestamp(3000)];

    fn of(checkpoint: Option<u64>, stable: u64, change: impl FnOnce(&mut LogConfig)) -> Cleanable {
        let mut config = LogConfig::defaults(Durability::PageCache);
        change(&mut config);
        let offsets = (checkpoint.map(Offset), Offset(0), Offset(stable));
        cleanable(&segments(), &FIRSTS, offsets, (&config, Timestamp(10_000)))
    }

    #[test]
    fn the_active_segment_and_what_is_unstable_stay() {
        let all = of(None, 40, |_| ());
        assert_eq!((all.first_dirty, all.first_uncleanable), (Offset(0), Offset(30)));
        assert_eq!((all.clean, all.dirty), (ByteCount(0), ByteCount(300)));
        assert!(all.is_due(999_999) && !all.is_overdue && !all.resets_checkpoint);
        let unstable = of(None, 15, |_| ());
        assert_eq!((unstable.first_uncleanable, unstable.dirty), (Offset(10), ByteCount(100)));
    }

    #[test]
    fn a_part_is_clean_already() {
        let half = of(Some(20), 40, |_| ());
        assert_eq!((half.clean, half.dirty), (ByteCount(200), ByteCount(100)));
        assert!(half.is_due(333_333) && !half.is_due(333_334));
        assert_eq!(half.ratio_millionths(), 333_333);
        assert!(!of(Some(30), 40, |_| ()).is_due(0), "nothing is dirty");
    }

    #[test]
    fn a_checkpoint_outside_of_the_log_is_forgotten() {
        let outside = of(Some(99), 40, |_| ());
        assert!(outside.resets_checkpoint);
        assert_eq!(outside.first_dirty, Offset(0));
    }

    #[test]
    fn lags_keep_the_young_and_hurry_the_old() {
        let young = of(None, 40, |config| config.compaction_lag_min_ms = 8_500);
        assert_eq!(young.first_uncleanable, Offset(10));
        let old = of(None, 40, |config| config.compaction_lag_max_ms = 9_500);
        assert!(old.is_overdue && old.is_due(MILLION));
        assert!(!of(None, 40, |config| config.compaction_lag_max_ms = 9_999).is_overdue);
    }
}
