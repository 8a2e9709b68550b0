//! Which segments have had their time: a pure decision over a list of segments.
//!
//! Kafka's order is kept (`UnifiedLog#deleteOldSegments`): what lies before the log start, then
//! what is over `retention.bytes`, then what is older than `retention.ms`. Each rule looks at the
//! oldest segment that is left and stops at the first that stays, so that only a prefix ever goes.

use std::fmt;

use super::config::LogConfig;
use crate::units::{ByteCount, Offset, Timestamp};

/// What a decision needs to know of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentInfo {
    /// Base offset.
    pub base: Offset,
    /// Bytes of its `.log`; indexes don't count, as in Kafka.
    pub size: ByteCount,
    /// Largest timestamp of its records, -1 for none.
    pub largest_timestamp: Timestamp,
    /// When its `.log` was last written; stands in when no record has a timestamp.
    pub modified_ms: i64,
    /// Base of the segment after it; the log end for the active one.
    pub next_base: Offset,
}

impl SegmentInfo {
    /// The timestamp that retention goes by.
    pub fn retention_timestamp(&self) -> Timestamp {
        if self.largest_timestamp < Timestamp(0) {
            Timestamp(self.modified_ms)
        } else {
            self.largest_timestamp
        }
    }
}

/// A log as retention sees it.
#[derive(Clone, Copy, Debug)]
pub struct RetentionView<'a> {
    /// All segments, oldest first; the last one is active.
    pub segments: &'a [SegmentInfo],
    /// Nothing at or above it goes.
    pub high_watermark: Offset,
    /// First offset still readable.
    pub log_start: Offset,
}

/// Why a segment goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// All of it lies before the log start offset.
    LogStart,
    /// The log keeps `retention.bytes` without it.
    Size,
    /// Its newest record is older than `retention.ms`.
    Time,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::LogStart => "it lies before the log start offset",
            Reason::Size => "the log keeps retention.bytes without it",
            Reason::Time => "its newest record is older than retention.ms",
        })
    }
}

/// A record from the future keeps its segment and all later ones: usually a producer that sends
/// microseconds or a wrong clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FutureTimestamp {
    /// Base offset of the segment.
    pub segment: Offset,
    /// Its largest timestamp, beyond the time of the decision.
    pub timestamp: Timestamp,
}

/// What goes: a prefix of the segments, first those before the log start, then those by size, then
/// those by time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Expired {
    by_log_start: usize,
    by_size: usize,
    by_time: usize,
    /// What stopped the rule of `retention.ms`, to be warned of at every pass.
    pub blocked_by: Option<FutureTimestamp>,
}

impl Expired {
    /// How many of the oldest segments go. When it is all of them, the active one is sealed and a
    /// new one opened at the log end first.
    pub fn count(&self) -> usize {
        self.by_log_start + self.by_size + self.by_time
    }

    /// Why segment number `index`, counted from the oldest, goes; `None` when it stays.
    pub fn reason(&self, index: usize) -> Option<Reason> {
        if index < self.by_log_start {
            Some(Reason::LogStart)
        } else if index < self.by_log_start + self.by_size {
            Some(Reason::Size)
        } else if index < self.count() {
            Some(Reason::Time)
        } else {
            None
        }
    }
}

/// Decides which segments go now.
pub fn expired(view: RetentionView<'_>, config: &LogConfig, now: Timestamp) -> Expired {
    let mut expired = Expired { by_log_start: before_log_start(view), ..Expired::default() };
    if !config.cleanup_policy.delete {
        return expired;
    }
    if let Some(bytes) = config.retention_bytes {
        expired.by_size = over_size(view.without(expired.count()), bytes);
    }
    if let Some(retention_ms) = config.retention_ms {
        let left = view.without(expired.count());
        let rule = Age { retention_ms, now };
        expired.by_time = left.count_deletable(|segment| rule.is_expired(segment));
        let stopped_at = left.segments.get(expired.by_time);
        expired.blocked_by = stopped_at.and_then(|segment| rule.future(segment));
    }
    expired
}

/// When the oldest segment will have outlived `retention.ms`; `None` when that never happens.
pub fn next_expiry(view: RetentionView<'_>, config: &LogConfig) -> Option<Timestamp> {
    let retention_ms = config.retention_ms.filter(|_| config.cleanup_policy.delete)?;
    let oldest = view.segments.first()?;
    let is_empty_active = view.segments.len() == 1 && oldest.size == ByteCount(0);
    if is_empty_active {
        return None;
    }
    let after = i64::try_from(retention_ms).ok()?.checked_add(1)?;
    oldest.retention_timestamp().0.checked_add(after).map(Timestamp)
}

impl RetentionView<'_> {
    fn without(self, oldest: usize) -> Self {
        RetentionView { segments: &self.segments[oldest..], ..self }
    }

    /// How many of the oldest segments `is_expired` holds for, bounded by the high watermark. An
    /// empty active segment stays: dropping it would only make another.
    fn count_deletable(self, mut is_expired: impl FnMut(&SegmentInfo) -> bool) -> usize {
        let active = self.segments.len().saturating_sub(1);
        let mut count = 0;
        for segment in self.segments {
            let is_empty_active = count == active && segment.size == ByteCount(0);
            let is_readable = segment.next_base <= self.high_watermark;
            if is_empty_active || !is_readable || !is_expired(segment) {
                break;
            }
            count += 1;
        }
        count
    }
}

fn before_log_start(view: RetentionView<'_>) -> usize {
    let sealed = view.segments.split_last().map_or(&[][..], |(_, sealed)| sealed);
    // The active segment never goes by this rule, whatever it holds, so none of these is it.
    sealed
        .iter()
        .take_while(|it| it.next_base <= view.log_start && it.next_base <= view.high_watermark)
        .count()
}

/// Keeps at least `retention_bytes`: a segment goes while the log has as much without it.
fn over_size(view: RetentionView<'_>, retention_bytes: ByteCount) -> usize {
    let total: u64 = view.segments.iter().map(|segment| segment.size.0).sum();
    let Some(mut over) = total.checked_sub(retention_bytes.0) else { return 0 };
    view.count_deletable(|segment| match over.checked_sub(segment.size.0) {
        Some(left) => {
            over = left;
            true
        }
        None => false,
    })
}

struct Age {
    retention_ms: u64,
    now: Timestamp,
}

impl Age {
    fn is_expired(&self, segment: &SegmentInfo) -> bool {
        let age_ms = self.now.0.saturating_sub(segment.retention_timestamp().0);
        u64::try_from(age_ms).is_ok_and(|age_ms| self.retention_ms < age_ms)
    }

    fn future(&self, segment: &SegmentInfo) -> Option<FutureTimestamp> {
        let timestamp = segment.retention_timestamp();
        let future = FutureTimestamp { segment: segment.base, timestamp };
        (self.now < timestamp).then_some(future)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::config::{CleanupPolicy, Durability};

    const MIB: u64 = 1 << 20;

    /// Segments of `(size, largest timestamp)` with ten offsets each.
    fn segments(of: &[(u64, i64)]) -> Vec<SegmentInfo> {
        let with_base = of.iter().zip((0..).step_by(10));
        let segment = |(&(size, timestamp), base): (&(u64, i64), u64)| SegmentInfo {
            base: Offset(base),
            size: ByteCount(size),
            largest_timestamp: Timestamp(timestamp),
            modified_ms: 500,
            next_base: Offset(base + 10),
        };
        with_base.map(segment).collect()
    }

    fn config(retention_bytes: Option<u64>, retention_ms: Option<u64>) -> LogConfig {
        LogConfig {
            retention_bytes: retention_bytes.map(ByteCount),
            retention_ms,
            ..LogConfig::defaults(Durability::PageCache)
        }
    }

    fn all(segments: &[SegmentInfo]) -> RetentionView<'_> {
        RetentionView { segments, high_watermark: Offset(u64::MAX), log_start: Offset(0) }
    }

    #[test]
    fn size_keeps_at_least_the_limit() {
        let check = |sizes: &[u64], limit: u64, expected: usize| {
            let of: Vec<_> = sizes.iter().map(|size| (*size, 0)).collect();
            let gone = expired(all(&segments(&of)), &config(Some(limit), None), Timestamp(0));
            assert_eq!((gone.by_size, gone.count()), (expected, expected), "{sizes:?} {limit}");
        };
        // As a broker was observed: the third would leave less than 2 MiB.
        check(&[1_031_522, 1_031_656, 1_032_144, 1_032_144, 911_243], 2 * MIB, 2);
        check(&[5, 5, 5], 10, 1);
        check(&[5, 5, 5], 15, 0);
        check(&[5, 5, 5], 16, 0);
        // An exact fit goes, one byte less stays.
        check(&[100, 50, 50], 100, 1);
        check(&[100, 50, 50], 101, 0);
        // All of them, the active one too, unless it is empty.
        check(&[5, 5, 5], 0, 3);
        check(&[5, 5, 0], 0, 2);
        check(&[0], 0, 0);
        check(&[], 0, 0);
    }

    #[test]
    fn time_is_compared_strictly() {
        let check = |of: &[(u64, i64)], retention_ms: u64, now: i64, expected: usize| {
            let gone =
                expired(all(&segments(of)), &config(None, Some(retention_ms)), Timestamp(now));
            assert_eq!((gone.by_time, gone.count()), (expected, expected), "{of:?} at {now}");
        };
        check(&[(5, 100), (5, 200), (5, 300)], 100, 200, 0);
        check(&[(5, 100), (5, 200), (5, 300)], 100, 201, 1);
        check(&[(5, 100), (5, 200), (5, 300)], 100, 401, 3);
        check(&[(5, 100), (5, 200), (0, -1)], 100, 10_000, 2);
        // The newest record counts, and the oldest segment that stays protects the rest.
        check(&[(5, 300), (5, 100), (5, 100)], 100, 400, 0);
        // Without timestamps the file's age counts; 0 is a timestamp.
        check(&[(5, -1), (5, 0)], 100, 600, 0);
        check(&[(5, -1), (5, 0)], 100, 601, 2);
        check(&[(5, i64::MAX)], 0, i64::MIN, 0);
        check(&[(5, 0)], u64::MAX, i64::MAX, 0);
    }

    #[test]
    fn nothing_at_or_above_the_high_watermark_goes() {
        let segments = segments(&[(5, 0), (5, 0), (5, 0)]);
        for (high_watermark, expected) in [(9, 0), (10, 1), (29, 2), (30, 3)] {
            let view = RetentionView { high_watermark: Offset(high_watermark), ..all(&segments) };
            for config in [config(Some(0), None), config(None, Some(1))] {
                assert_eq!(expired(view, &config, Timestamp(10_000)).count(), expected);
            }
        }
    }

    #[test]
    fn what_lies_before_the_log_start_goes_under_every_policy() {
        let segments = segments(&[(5, 0), (5, 0), (5, 0)]);
        let compact = CleanupPolicy { delete: false, compact: true };
        let config = LogConfig { cleanup_policy: compact, ..config(Some(0), Some(0)) };
        for (log_start, expected) in [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (30, 2)] {
            let view = RetentionView { log_start: Offset(log_start), ..all(&segments) };
            let gone = expired(view, &config, Timestamp(10_000));
            assert_eq!((gone.by_log_start, gone.count()), (expected, expected), "at {log_start}");
        }
    }

    #[test]
    fn the_rules_come_one_after_the_other() {
        let segments = segments(&[(10, 900), (10, 900), (10, 100), (10, 900)]);
        let view = RetentionView { log_start: Offset(10), ..all(&segments) };
        let gone = expired(view, &config(Some(20), Some(500)), Timestamp(1_000));
        assert_eq!((gone.by_log_start, gone.by_size, gone.by_time), (1, 1, 1));
        let reasons: Vec<_> = (0..4).map(|index| gone.reason(index)).collect();
        let expected = [Some(Reason::LogStart), Some(Reason::Size), Some(Reason::Time), None];
        assert_eq!(reasons, expected);
        // What is left is kept by a second pass.
        let left = RetentionView { segments: &segments[gone.count()..], ..view };
        assert_eq!(expired(left, &config(Some(20), Some(500)), Timestamp(1_000)).count(), 0);
    }

    #[test]
    fn a_timestamp_in_the_future_blocks_and_is_named() {
        let segments = segments(&[(5, 100), (5, 1_700_000_000_000_000), (5, 100)]);
        let config = config(None, Some(100));
        let gone = expired(all(&segments), &config, Timestamp(1_000));
        let blocked_by =
            FutureTimestamp { segment: Offset(10), timestamp: Timestamp(1_700_000_000_000_000) };
        assert_eq!((gone.count(), gone.blocked_by), (1, Some(blocked_by)));
        let young = expired(all(&segments), &config, Timestamp(150));
        assert_eq!((young.count(), young.blocked_by), (0, None), "not reached yet");
    }

    #[test]
    fn the_next_expiry_is_the_oldest_segments() {
        let check = |of: &[(u64, i64)], config: LogConfig, expected: Option<i64>| {
            let segments = segments(of);
            assert_eq!(next_expiry(all(&segments), &config), expected.map(Timestamp));
            if let Some(due) = expected {
                let at = |now| expired(all(&segments), &config, Timestamp(now)).count();
                assert_eq!((at(due - 1), at(due)), (0, 1));
            }
        };
        check(&[(5, 100), (5, 900)], config(None, Some(50)), Some(151));
        check(&[(0, -1)], config(None, Some(50)), None);
        check(&[(5, 100)], config(None, None), None);
        check(&[(5, 100)], config(None, Some(u64::MAX)), None);
        check(&[], config(None, Some(50)), None);
    }
}
