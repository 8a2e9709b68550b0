//! When the active segment is sealed and the next one opened: `LogSegment#shouldRoll`, asked before
//! each append and at no other time.

use super::config::LogConfig;
use super::segment::{ActiveSegment, relative};
use crate::format::batch::BatchHeader;
use crate::units::{ByteCount, Offset, Timestamp};

/// Why a segment is sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RollReason {
    /// The batch doesn't fit `segment.bytes`.
    Size,
    /// `segment.ms` is over, by the records' timestamps.
    Time,
    /// One of the indexes has no room for another entry.
    IndexFull,
    /// The batch's offset is too far from the segment's base for an index entry.
    OffsetOverflow,
}

/// Why the batch with this header, offsets assigned, needs a new segment; `None` when it doesn't.
pub(super) fn reason(
    active: &ActiveSegment,
    batch: &BatchHeader,
    config: &LogConfig,
    now: Timestamp,
) -> Option<RollReason> {
    if active.size == ByteCount(0) {
        // A new segment takes any batch that is not larger than segment.bytes.
        return None;
    }
    if active.size + batch.size > config.segment_bytes {
        return Some(RollReason::Size);
    }
    if is_old(active, batch, config, now) {
        return Some(RollReason::Time);
    }
    if active.is_index_full() {
        return Some(RollReason::IndexFull);
    }
    let last_offset = batch.last_offset().expect("offsets were just assigned");
    relative(active.base, last_offset).is_none().then_some(RollReason::OffsetOverflow)
}

fn is_old(active: &ActiveSegment, batch: &BatchHeader, config: &LogConfig, now: Timestamp) -> bool {
    let waited = match active.first_timestamp {
        Some(first) if first >= Timestamp(0) => batch.max_timestamp.0.saturating_sub(first.0),
        _ => now.0.saturating_sub(active.created.0),
    };
    let limit = segment_ms(config).saturating_sub(active.jitter_ms);
    u64::try_from(waited).is_ok_and(|waited| waited > limit)
}

fn segment_ms(config: &LogConfig) -> u64 {
    if config.cleanup_policy.compact && config.compaction_lag_max_ms > 0 {
        config.segment_ms.min(config.compaction_lag_max_ms)
    } else {
        config.segment_ms
    }
}

/// How much earlier than `segment.ms` the segment with this base rolls: below
/// `segment.jitter.ms`, the same for the same seed and base.
pub(super) fn jitter_ms(config: &LogConfig, seed: u64, base: Offset) -> u64 {
    match config.segment_jitter_ms.min(config.segment_ms) {
        0 => 0,
        bound => mix(seed ^ mix(base.0)) % bound,
    }
}

/// The finalizer of splitmix64: every bit of the result depends on every bit of the input.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
