//! Which segments have had their time: a pure decision over a list of segments.
//!
//! Kafka's order is kept (`UnifiedLog#deleteOldSegments`): what lies before the log start, then what
//! is over `retention.bytes`, then what is older than `retention.ms`. Each rule looks at the oldest
//! segment that is left and stops at the first that stays, so that only a prefix ever goes.

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
