//! Entries of the offset index and the time index, and lookups over a whole sealed index.
//!
//! ```text
//! .index      0 relative offset u32   4 position u32                      8 bytes
//! .timeindex  0 timestamp i64         8 relative offset u32              12 bytes
//! ```
//!
//! Big-endian. An offset is relative to the segment's base and stays below 2^31. An entry of the
//! offset index names the last offset of a batch and the position of the batch's first byte; the
//! first batch of a segment has none, so that position 0 marks the zero tail of a live index.

use crate::units::{Offset, u64_of};

const RELATIVE_OFFSET_AT: usize = 0;
const POSITION_AT: usize = RELATIVE_OFFSET_AT + size_of::<u32>();
/// Size of an entry of the offset index.
pub const OFFSET_ENTRY_BYTES: usize = POSITION_AT + size_of::<u32>();

const TIMESTAMP_AT: usize = 0;
const TIME_RELATIVE_OFFSET_AT: usize = TIMESTAMP_AT + size_of::<i64>();
/// Size of an entry of the time index.
pub const TIME_ENTRY_BYTES: usize = TIME_RELATIVE_OFFSET_AT + size_of::<u32>();

/// Largest relative offset that an entry can hold: Kafka reads it as a signed number.
pub const RELATIVE_OFFSET_MAX: u32 = i32::MAX.unsigned_abs();

const _: () = assert!(OFFSET_ENTRY_BYTES == 8);
const _: () = assert!(TIME_ENTRY_BYTES == 12);

/// One entry of the offset index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OffsetEntry {
    /// Last offset of the batch, minus the segment's base offset.
    pub relative_offset: u32,
    /// Where the batch starts in the `.log` file.
    pub position: u32,
}

/// One entry of the time index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TimeEntry {
    /// Largest timestamp of the segment up to the offset; milliseconds since the epoch.
    pub timestamp: i64,
    /// Last offset of the batch that has it, minus the segment's base offset.
    pub relative_offset: u32,
}

/// Why the bytes of an index can't be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IndexError {
    /// Not a multiple of an entry's size.
    #[error("the index has {bytes} bytes, no multiple of {entry_bytes}")]
    Length {
        /// Bytes of the file.
        bytes: u64,
        /// Bytes of an entry.
        entry_bytes: u64,
    },
    /// The entry with this number isn't larger than the one before it, or is out of range.
    #[error("entry {0} of the index is out of order or out of range")]
    Order(u64),
}

impl OffsetEntry {
    /// The entry as it stands in the file.
    pub fn encode(self) -> [u8; OFFSET_ENTRY_BYTES] {
        let mut bytes = [0; OFFSET_ENTRY_BYTES];
        bytes[..POSITION_AT].copy_from_slice(&self.relative_offset.to_be_bytes());
        bytes[POSITION_AT..].copy_from_slice(&self.position.to_be_bytes());
        bytes
    }

    /// Reads an entry.
    pub fn decode(bytes: &[u8; OFFSET_ENTRY_BYTES]) -> OffsetEntry {
        OffsetEntry {
            relative_offset: u32_at(bytes, RELATIVE_OFFSET_AT),
            position: u32_at(bytes, POSITION_AT),
        }
    }

    /// The offset in the log that the entry means.
    pub fn offset(self, base: Offset) -> Offset {
        base + u64::from(self.relative_offset)
    }
}

impl TimeEntry {
    /// The entry as it stands in the file.
    pub fn encode(self) -> [u8; TIME_ENTRY_BYTES] {
        let mut bytes = [0; TIME_ENTRY_BYTES];
        bytes[..TIME_RELATIVE_OFFSET_AT].copy_from_slice(&self.timestamp.to_be_bytes());
        bytes[TIME_RELATIVE_OFFSET_AT..].copy_from_slice(&self.relative_offset.to_be_bytes());
        bytes
    }

    /// Reads an entry.
    pub fn decode(bytes: &[u8; TIME_ENTRY_BYTES]) -> TimeEntry {
        let timestamp = bytes.first_chunk().expect("an entry begins with its timestamp");
        TimeEntry {
            timestamp: i64::from_be_bytes(*timestamp),
            relative_offset: u32_at(bytes, TIME_RELATIVE_OFFSET_AT),
        }
    }

    /// The offset in the log that the entry means.
    pub fn offset(self, base: Offset) -> Offset {
        base + u64::from(self.relative_offset)
    }
}

/// The whole entries of an offset index, in file order; bytes behind the last one are left out.
pub fn offset_entries(
    bytes: &[u8],
) -> impl DoubleEndedIterator<Item = OffsetEntry> + ExactSizeIterator {
    bytes.as_chunks::<OFFSET_ENTRY_BYTES>().0.iter().map(OffsetEntry::decode)
}

/// The whole entries of a time index, in file order; bytes behind the last one are left out.
pub fn time_entries(
    bytes: &[u8],
) -> impl DoubleEndedIterator<Item = TimeEntry> + ExactSizeIterator {
    bytes.as_chunks::<TIME_ENTRY_BYTES>().0.iter().map(TimeEntry::decode)
}

/// The last entry whose offset is at or below `relative_offset`. `None`: start at the segment's
/// base. The entries must be in order.
pub fn floor_by_offset(bytes: &[u8], relative_offset: u32) -> Option<OffsetEntry> {
    let entries = bytes.as_chunks::<OFFSET_ENTRY_BYTES>().0;
    let above = entries
        .partition_point(|entry| OffsetEntry::decode(entry).relative_offset <= relative_offset);
    above.checked_sub(1).map(|at| OffsetEntry::decode(&entries[at]))
}

/// The last entry whose position is at or below `position`: the last batch start that is known not
/// to lie behind it. The entries must be in order.
pub fn floor_by_position(bytes: &[u8], position: u32) -> Option<OffsetEntry> {
    let entries = bytes.as_chunks::<OFFSET_ENTRY_BYTES>().0;
    let above = entries.partition_point(|entry| OffsetEntry::decode(entry).position <= position);
    above.checked_sub(1).map(|at| OffsetEntry::decode(&entries[at]))
}

/// The first entry whose position is at or behind `position` (`fetchUpperBoundOffset`). The entries
/// must be in order.
pub fn upper_position(bytes: &[u8], position: u32) -> Option<OffsetEntry> {
    let entries = bytes.as_chunks::<OFFSET_ENTRY_BYTES>().0;
    let at = entries.partition_point(|entry| OffsetEntry::decode(entry).position < position);
    entries.get(at).map(OffsetEntry::decode)
}

/// The last entry whose timestamp is at or below `timestamp`. `None`: start at the segment's base.
/// The entries must be in order.
pub fn floor_by_timestamp(bytes: &[u8], timestamp: i64) -> Option<TimeEntry> {
    let entries = bytes.as_chunks::<TIME_ENTRY_BYTES>().0;
    let above = entries.partition_point(|entry| TimeEntry::decode(entry).timestamp <= timestamp);
    above.checked_sub(1).map(|at| TimeEntry::decode(&entries[at]))
}

/// Bytes of an offset index in use: those before the zero tail that a live index has.
pub fn offset_index_used(bytes: &[u8]) -> usize {
    let used = offset_entries(bytes).rposition(|entry| entry.position != 0);
    used.map_or(0, |last| (last + 1) * OFFSET_ENTRY_BYTES)
}

/// Bytes of a time index in use: those before the zero tail that a live index has. An entry of
/// zeros in the middle stays, for [`check_time_index`] to find.
pub fn time_index_used(bytes: &[u8]) -> usize {
    let zero = TimeEntry { timestamp: 0, relative_offset: 0 };
    let used = time_entries(bytes).rposition(|entry| entry != zero);
    used.map_or(0, |last| (last + 1) * TIME_ENTRY_BYTES)
}

/// Checks that a trimmed offset index is whole, and that its offsets and positions rise.
///
/// # Errors
/// The first entry that doesn't.
pub fn check_offset_index(bytes: &[u8]) -> Result<(), IndexError> {
    check_length(bytes, OFFSET_ENTRY_BYTES)?;
    let mut before = OffsetEntry { relative_offset: 0, position: 0 };
    for (number, entry) in offset_entries(bytes).enumerate() {
        let rises =
            entry.relative_offset > before.relative_offset && entry.position > before.position;
        if !rises || entry.relative_offset > RELATIVE_OFFSET_MAX {
            return Err(IndexError::Order(u64_of(number)));
        }
        before = entry;
    }
    Ok(())
}

/// Checks that a trimmed time index is whole, and that its timestamps rise and its offsets never
/// fall.
///
/// # Errors
/// The first entry that doesn't.
pub fn check_time_index(bytes: &[u8]) -> Result<(), IndexError> {
    check_length(bytes, TIME_ENTRY_BYTES)?;
    let mut before = TimeEntry { timestamp: -1, relative_offset: 0 };
    for (number, entry) in time_entries(bytes).enumerate() {
        let rises =
            entry.timestamp > before.timestamp && entry.relative_offset >= before.relative_offset;
        if !rises || entry.relative_offset > RELATIVE_OFFSET_MAX {
            return Err(IndexError::Order(u64_of(number)));
        }
        before = entry;
    }
    Ok(())
}

fn check_length(bytes: &[u8], entry_bytes: usize) -> Result<(), IndexError> {
    if bytes.len().is_multiple_of(entry_bytes) {
        return Ok(());
    }
    Err(IndexError::Length { bytes: u64_of(bytes.len()), entry_bytes: u64_of(entry_bytes) })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().expect("the entry is longer than its last field"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn offset_index(entries: &[(u32, u32)]) -> Vec<u8> {
        let entry = |&(relative_offset, position)| OffsetEntry { relative_offset, position };
        entries.iter().map(entry).flat_map(OffsetEntry::encode).collect()
    }

    fn time_index(entries: &[(i64, u32)]) -> Vec<u8> {
        let entry = |&(timestamp, relative_offset)| TimeEntry { timestamp, relative_offset };
        entries.iter().map(entry).flat_map(TimeEntry::encode).collect()
    }

    #[test]
    fn entries_are_big_endian() {
        assert_eq!(offset_index(&[(67, 33_560)]), [0, 0, 0, 67, 0, 0, 0x83, 0x18]);
        assert_eq!(time_index(&[(-2, 1)]), [255, 255, 255, 255, 255, 255, 255, 254, 0, 0, 0, 1]);
    }

    #[test]
    fn lookups_at_the_edges() {
        let index = offset_index(&[(10, 100), (20, 200)]);
        let found = |entry: Option<OffsetEntry>| entry.map(|entry| entry.relative_offset);
        assert_eq!(found(floor_by_offset(&index, 9)), None);
        assert_eq!(found(floor_by_offset(&index, 10)), Some(10));
        assert_eq!(found(floor_by_offset(&index, 19)), Some(10));
        assert_eq!(found(floor_by_offset(&index, u32::MAX)), Some(20));
        assert_eq!(found(floor_by_position(&index, 99)), None);
        assert_eq!(found(floor_by_position(&index, 200)), Some(20));
        assert_eq!(found(upper_position(&index, 100)), Some(10));
        assert_eq!(found(upper_position(&index, 101)), Some(20));
        assert_eq!(found(upper_position(&index, 201)), None);
        assert_eq!(floor_by_offset(&[], 0), None);
        let times = time_index(&[(5, 1), (7, 2)]);
        assert_eq!(floor_by_timestamp(&times, 4), None);
        assert_eq!(floor_by_timestamp(&times, 6).map(|entry| entry.relative_offset), Some(1));
        assert_eq!(floor_by_timestamp(&times, 7).map(|entry| entry.offset(Offset(10))), {
            Some(Offset(12))
        });
    }

    #[test]
    fn the_zero_tail_of_a_live_index_is_not_in_use() {
        let mut live = offset_index(&[(10, 100), (20, 200)]);
        live.resize(80, 0);
        assert_eq!(offset_index_used(&live), 16);
        assert_eq!(offset_index_used(&[0; 80]), 0);
        let mut times = time_index(&[(0, 1), (7, 2)]);
        times.resize(120, 0);
        assert_eq!(time_index_used(&times), 24);
    }

    #[test]
    fn what_is_out_of_order_is_found() {
        let check = |entries: &[(u32, u32)]| check_offset_index(&offset_index(entries));
        assert_eq!(check(&[(10, 100), (20, 200)]), Ok(()));
        assert_eq!(check(&[(10, 100), (10, 200)]), Err(IndexError::Order(1)));
        assert_eq!(check(&[(10, 100), (11, 100)]), Err(IndexError::Order(1)));
        assert_eq!(check(&[(0, 0)]), Err(IndexError::Order(0)));
        assert_eq!(check(&[(u32::MAX, 1)]), Err(IndexError::Order(0)));
        let length = IndexError::Length { bytes: 9, entry_bytes: 8 };
        assert_eq!(check_offset_index(&[0; 9]), Err(length));
        let check = |entries: &[(i64, u32)]| check_time_index(&time_index(entries));
        assert_eq!(check(&[(0, 0), (1, 0), (2, 5)]), Ok(()));
        assert_eq!(check(&[(1, 0), (1, 1)]), Err(IndexError::Order(1)));
        assert_eq!(check(&[(1, 3), (2, 2)]), Err(IndexError::Order(1)));
        assert_eq!(check(&[(-1, 3)]), Err(IndexError::Order(0)));
    }

    proptest! {
        #[test]
        fn lookups_agree_with_a_scan(
            steps in prop::collection::vec((1_u32..50, 61_u32..5000), 0..60),
            target in 0_u32..3000,
        ) {
            let mut at = OffsetEntry { relative_offset: 0, position: 0 };
            let mut entries = Vec::new();
            for (records, bytes) in steps {
                at.relative_offset += records;
                at.position += bytes;
                entries.push(at);
            }
            let index: Vec<u8> = entries.iter().flat_map(|entry| entry.encode()).collect();
            prop_assert_eq!(check_offset_index(&index), Ok(()));
            prop_assert_eq!(offset_entries(&index).collect::<Vec<_>>(), entries.clone());
            let floor = entries.iter().rfind(|entry| entry.relative_offset <= target).copied();
            prop_assert_eq!(floor_by_offset(&index, target), floor);
            let position = target * 40;
            let upper = entries.iter().find(|entry| entry.position >= position).copied();
            prop_assert_eq!(upper_position(&index, position), upper);
            let times: Vec<u8> = entries
                .iter()
                .map(|entry| TimeEntry {
                    timestamp: i64::from(entry.position),
                    relative_offset: entry.relative_offset,
                })
                .flat_map(TimeEntry::encode)
                .collect();
            prop_assert_eq!(check_time_index(&times), Ok(()));
            let floor = entries.iter().rfind(|entry| entry.position <= position);
            prop_assert_eq!(
                floor_by_timestamp(&times, i64::from(position)).map(|entry| entry.relative_offset),
                floor.map(|entry| entry.relative_offset)
            );
        }
    }
}
