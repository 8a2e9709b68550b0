//! Which neighbouring segments become one.

use crate::log::config::LogConfig;
use crate::log::segment::RELATIVE_OFFSET_MAX;
use crate::units::{ByteCount, Offset};

/// A segment as grouping sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Its base offset.
    pub base: Offset,
    /// Base of the next segment, or where the cleaning ends.
    pub next_base: Offset,
    /// Bytes of its log.
    pub size: ByteCount,
    /// Bytes of entries in its offset index.
    pub index_bytes: ByteCount,
    /// Bytes of entries in its time index.
    pub time_index_bytes: ByteCount,
}

/// Groups of neighbours, none of which is larger than one segment may be; sizes are those before
/// cleaning (`Cleaner#groupSegmentsBySize`). A segment that is too large stands alone.
pub fn groups<'a>(segments: &'a [Measured], config: &LogConfig) -> Vec<&'a [Measured]> {
    let mut groups = Vec::new();
    let mut rest = segments;
    while let [first, ..] = rest {
        let mut count = 1;
        let (mut size, mut index, mut times) =
            (first.size, first.index_bytes, first.time_index_bytes);
        for next in &rest[1..] {
            size += next.size;
            index += next.index_bytes;
            times += next.time_index_bytes;
            let span = next.next_base.0.saturating_sub(1).saturating_sub(first.base.0);
            let fits = size <= config.segment_bytes
                && index <= config.segment_index_bytes
                && times <= config.segment_index_bytes
                && (next.size == ByteCount(0) || span <= RELATIVE_OFFSET_MAX);
            if !fits {
                break;
            }
            count += 1;
        }
        let (group, behind) = rest.split_at(count);
        groups.push(group);
        rest = behind;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::config::Durability;

    fn segment(base: u64, next_base: u64, size: u64) -> Measured {
        Measured {
            base: Offset(base),
            next_base: Offset(next_base),
            size: ByteCount(size),
            index_bytes: ByteCount(8),
            time_index_bytes: ByteCount(12),
        }
    }

    fn lengths(segments: &[Measured], segment_bytes: u64, index_bytes: u64) -> Vec<usize> {
        let config = LogConfig {
            segment_bytes: ByteCount(segment_bytes),
            segment_index_bytes: ByteCount(index_bytes),
            ..LogConfig::defaults(Durability::PageCache)
        };
        groups(segments, &config).iter().map(|group| group.len()).collect()
    }

    #[test]
    fn neighbours_join_as_long_as_they_fit() {
        let segments: Vec<_> = (0..4).map(|it| segment(it * 10, it * 10 + 10, 100)).collect();
        assert_eq!(lengths(&segments, 1 << 20, 1 << 20), [4]);
        assert_eq!(lengths(&segments, 200, 1 << 20), [2, 2]);
        assert_eq!(lengths(&segments, 50, 1 << 20), [1, 1, 1, 1]);
        assert_eq!(lengths(&segments, 1 << 20, 24), [2, 2], "time index");
        assert_eq!(lengths(&[], 1 << 20, 24), [0_usize; 0]);
    }

    #[test]
    fn offsets_of_a_group_fit_31_bits() {
        let far = 1_u64 << 31;
        let segments = [segment(0, 10, 1), segment(10, far, 1), segment(far, far + 1, 1)];
        assert_eq!(lengths(&segments, 1 << 20, 1 << 20), [2, 1]);
        let empty = [segment(0, 10, 1), segment(10, far + 9, 0)];
        assert_eq!(lengths(&empty, 1 << 20, 1 << 20), [2]);
    }
}
