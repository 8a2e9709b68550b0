//! `.snapshot`: what a partition knows of its producers at an offset (`ProducerStateManager`).
//!
//! ```text
//! 0 version i16 = 1    2 crc u32 = CRC-32C of all that follows    6 count i32    10 entries
//! entry: producer id i64, epoch i16, last sequence i32, last offset i64, offset delta i32,
//!        timestamp i64, coordinator epoch i32, first offset of the open transaction i64 or -1
//! ```
//!
//! Big-endian, 46 bytes an entry. Only the last batch of a producer is kept.

use crate::format::compact::{CompactError, Reader};
use crate::units::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, u64_of};

const VERSION: i16 = 1;
const CRC_AT: usize = size_of::<i16>();
const COUNT_AT: usize = CRC_AT + size_of::<u32>();
const ENTRIES_AT: usize = COUNT_AT + size_of::<i32>();
/// Size of an entry.
pub const ENTRY_BYTES: usize = 46;

/// The last batch that a producer appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastBatch {
    /// Sequence of its last record.
    pub last_sequence: Sequence,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Last offset minus first offset.
    pub offset_delta: i32,
    /// Its largest timestamp.
    pub timestamp: Timestamp,
}

impl LastBatch {
    /// Sequence of its first record; sequences begin again at 0 behind 2^31 - 1.
    pub fn first_sequence(&self) -> Sequence {
        match self.last_sequence.0.checked_sub(self.offset_delta) {
            Some(first) if 0 <= first => Sequence(first),
            Some(first) => Sequence(i32::MAX - (-1 - first)),
            None => Sequence(-1),
        }
    }
}

/// What is known of a producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerEntry {
    /// Who it is.
    pub producer_id: ProducerId,
    /// Its newest epoch.
    pub epoch: ProducerEpoch,
    /// Epoch of the coordinator that wrote its last marker, -1 before the first one.
    pub coordinator_epoch: i32,
    /// Time of its last batch or marker.
    pub timestamp: Timestamp,
    /// Its last batch; a marker that raises the epoch leaves none.
    pub batch: Option<LastBatch>,
    /// Where its open transaction began.
    pub transaction: Option<Offset>,
}

/// Why bytes are no snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Not version 1.
    #[error("version {0} of a producer snapshot, where only {VERSION} is known")]
    Version(i16),
    /// The stored CRC-32C isn't that of the bytes.
    #[error("CRC-32C is {stored:#010x}, the bytes have {computed:#010x}")]
    Crc {
        /// As stored.
        stored: u32,
        /// As the bytes are.
        computed: u32,
    },
    /// More entries than there are bytes, or fewer than none.
    #[error("{count} producers are announced with {bytes} bytes behind the head")]
    Count {
        /// As announced.
        count: i32,
        /// Bytes at hand.
        bytes: u64,
    },
    /// The bytes end inside a field.
    #[error(transparent)]
    Bytes(#[from] CompactError),
}

/// The file's bytes, of producers in the order in which they came; `most` is how many of them were
/// known at once, now or before. Kafka gets the same from the same producers, since they are put in
/// Kafka's order.
pub fn encode(entries: &[ProducerEntry], most: usize) -> Vec<u8> {
    let sorted = in_order(entries, most);
    let mut out = Vec::with_capacity(ENTRIES_AT + entries.len() * ENTRY_BYTES);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&[0; size_of::<u32>()]);
    let count = i32::try_from(entries.len()).expect("producers are limited far below");
    out.extend_from_slice(&count.to_be_bytes());
    for entry in &sorted {
        put(&mut out, entry);
    }
    let crc = crc32c::crc32c(&out[COUNT_AT..]);
    out[CRC_AT..COUNT_AT].copy_from_slice(&crc.to_be_bytes());
    out
}

/// The producers as the file that [`encode`] makes lists them.
pub fn in_order(entries: &[ProducerEntry], most: usize) -> Vec<ProducerEntry> {
    let mut sorted = entries.to_vec();
    java_order(&mut sorted, most);
    sorted
}

fn put(out: &mut Vec<u8>, entry: &ProducerEntry) {
    let none = LastBatch {
        last_sequence: Sequence(-1),
        last_offset: Offset(0),
        offset_delta: 0,
        timestamp: entry.timestamp,
    };
    let batch = entry.batch.unwrap_or(none);
    let last_offset = entry.batch.map_or(-1, |it| it.last_offset.to_wire());
    out.extend_from_slice(&entry.producer_id.0.to_be_bytes());
    out.extend_from_slice(&entry.epoch.0.to_be_bytes());
    out.extend_from_slice(&batch.last_sequence.0.to_be_bytes());
    out.extend_from_slice(&last_offset.to_be_bytes());
    out.extend_from_slice(&batch.offset_delta.to_be_bytes());
    out.extend_from_slice(&entry.timestamp.0.to_be_bytes());
    out.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
    out.extend_from_slice(&entry.transaction.map_or(-1, Offset::to_wire).to_be_bytes());
}

/// Reads a file. An error is what Kafka takes for damage, and in its order: the entries before the
/// checksum. It passes over bytes behind the announced producers, which the checksum covers.
///
/// # Errors
/// [`SnapshotError`].
pub fn decode(bytes: &[u8]) -> Result<Vec<ProducerEntry>, SnapshotError> {
    let mut reader = Reader::new(bytes);
    let version = reader.i16()?;
    if version != VERSION {
        return Err(SnapshotError::Version(version));
    }
    let stored = u32::from_be_bytes(reader.array()?);
    let count = reader.i32()?;
    let left = reader.left();
    if !usize::try_from(count).is_ok_and(|it| it <= left) {
        return Err(SnapshotError::Count { count, bytes: u64_of(left) });
    }
    let entries = (0..count).map(|_| take(&mut reader)).collect::<Result<_, _>>()?;
    let computed = crc32c::crc32c(&bytes[COUNT_AT..]);
    if stored != computed {
        return Err(SnapshotError::Crc { stored, computed });
    }
    Ok(entries)
}

/// Length of a file with so many producers.
pub fn file_bytes(entries: usize) -> usize {
    ENTRIES_AT + entries * ENTRY_BYTES
}

fn take(reader: &mut Reader<'_>) -> Result<ProducerEntry, CompactError> {
    let producer_id = ProducerId(reader.i64()?);
    let epoch = ProducerEpoch(reader.i16()?);
    let last_sequence = Sequence(reader.i32()?);
    let last_offset = Offset::from_wire(reader.i64()?);
    let offset_delta = reader.i32()?;
    let timestamp = Timestamp(reader.i64()?);
    let batch = last_offset.map(|last_offset| LastBatch {
        last_sequence,
        last_offset,
        offset_delta,
        timestamp,
    });
    Ok(ProducerEntry {
        producer_id,
        epoch,
        coordinator_epoch: reader.i32()?,
        timestamp,
        batch,
        transaction: Offset::from_wire(reader.i64()?),
    })
}

/// The order in which a Java `HashMap<Long, ...>` goes through these keys: by bucket, and within
/// a bucket in the order in which they came. The table has 16 buckets at first, doubles when more
/// than three quarters as many keys are in it, and never shrinks.
fn java_order(entries: &mut [ProducerEntry], most: usize) {
    let mut buckets = 16_usize;
    while buckets / 4 * 3 < most.max(entries.len()) {
        buckets *= 2;
    }
    while buckets < BUCKETS_OF_TREES && is_crowded(entries, buckets) {
        buckets *= 2;
    }
    entries.sort_by_key(|entry| bucket(entry.producer_id, buckets));
}

/// Tables of so many buckets or more keep a crowded one as a tree; smaller ones grow instead.
const BUCKETS_OF_TREES: usize = 64;
/// A bucket with more keys is crowded.
const KEYS_PER_BUCKET: usize = 8;

fn is_crowded(entries: &[ProducerEntry], buckets: usize) -> bool {
    let mut counts = [0_usize; BUCKETS_OF_TREES];
    for entry in entries {
        counts[bucket(entry.producer_id, buckets)] += 1;
    }
    counts.iter().any(|count| KEYS_PER_BUCKET < *count)
}

fn bucket(id: ProducerId, buckets: usize) -> usize {
    let [a, b, c, d, e, f, g, h] = id.0.to_be_bytes();
    let hash = u32::from_be_bytes([a, b, c, d]) ^ u32::from_be_bytes([e, f, g, h]);
    let spread = hash ^ (hash >> 16);
    usize::try_from(spread).expect("32 bits fit") & (buckets - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(id: i64) -> ProducerEntry {
        ProducerEntry {
            producer_id: ProducerId(id),
            epoch: ProducerEpoch(3),
            coordinator_epoch: -1,
            timestamp: Timestamp(1_700_000_000_000),
            batch: Some(LastBatch {
                last_sequence: Sequence(9),
                last_offset: Offset(109),
                offset_delta: 9,
                timestamp: Timestamp(1_700_000_000_000),
            }),
            transaction: None,
        }
    }

    #[test]
    fn an_empty_snapshot_has_ten_bytes_and_one_producer_46_more() {
        assert_eq!(encode(&[], 0).len(), 10);
        let one = encode(&[entry(7)], 1);
        assert_eq!(one.len(), 56);
        assert_eq!(decode(&one), Ok(vec![entry(7)]));
        assert_eq!(decode(&encode(&[], 0)), Ok(vec![]));
    }

    #[test]
    fn producers_come_in_the_order_of_a_java_map() {
        // 17 and 1 share a bucket of 16; 65,536 is spread to bucket 1 by its upper half.
        let ids = |ids: &[i64]| {
            let entries: Vec<_> = ids.iter().copied().map(entry).collect();
            let read = decode(&encode(&entries, 0)).expect("just written");
            read.iter().map(|it| it.producer_id.0).collect::<Vec<_>>()
        };
        assert_eq!(ids(&[65_536, 17, 2, 1, 16]), [16, 65_536, 17, 1, 2]);
        // With 13 of them there are 32 buckets, and 16 comes behind 15.
        let many: Vec<i64> = (4..17).collect();
        assert_eq!(ids(&many), many);
        // Nine in a bucket make a table of 32, although it is not three quarters full.
        let nine: Vec<i64> = (0..9).map(|it| 16 * it).collect();
        assert_eq!(ids(&nine), [0, 32, 64, 96, 128, 16, 48, 80, 112]);
    }

    #[test]
    fn the_table_stays_as_large_as_it_once_was() {
        let entries = [entry(16), entry(1)];
        let read = |most| decode(&encode(&entries, most)).expect("just written");
        assert_eq!(read(12)[0].producer_id, ProducerId(16));
        assert_eq!(read(13)[0].producer_id, ProducerId(1));
    }

    #[test]
    fn damage_is_named() {
        let good = encode(&[entry(7)], 1);
        let mut bytes = good.clone();
        bytes[1] = 2;
        assert_eq!(decode(&bytes), Err(SnapshotError::Version(2)));
        let mut bytes = good.clone();
        bytes[20] ^= 1;
        assert!(matches!(decode(&bytes), Err(SnapshotError::Crc { .. })));
        let truncated = Err(SnapshotError::Bytes(CompactError::Truncated));
        for length in [0, 1, 5, 9, 55] {
            assert_eq!(decode(&good[..length]), truncated, "{length} bytes");
        }
        let mut bytes = good;
        bytes[9] = 47;
        assert_eq!(decode(&bytes), Err(SnapshotError::Count { count: 47, bytes: 46 }));
        bytes[6] = 0x80;
        assert!(matches!(decode(&bytes), Err(SnapshotError::Count { count: ..0, .. })));
    }

    #[test]
    fn the_first_sequence_may_lie_before_the_wrap() {
        let batch = |last, delta| LastBatch {
            last_sequence: Sequence(last),
            last_offset: Offset(50),
            offset_delta: delta,
            timestamp: Timestamp(0),
        };
        assert_eq!(batch(9, 4).first_sequence(), Sequence(5));
        assert_eq!(batch(1, 4).first_sequence(), Sequence(i32::MAX - 2));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = decode(&bytes);
        }
    }
}
