//! Record batch v2, the unit of append and of the CRC.
//!
//! ```text
//!  0 base offset i64          23 last offset delta i32     51 producer epoch i16
//!  8 batch length i32         27 base timestamp i64        53 base sequence i32
//! 12 leader epoch i32         35 max timestamp i64         57 record count i32
//! 16 magic i8 (2)             43 producer id i64           61 records ...
//! 17 crc u32 of [21, end)
//! 21 attributes i16
//! ```
//!
//! Big-endian throughout. Base offset, length, leader epoch and magic lie outside the CRC, so
//! assigning offsets leaves it alone (Kafka's `DefaultRecordBatch`).

use bytes::{Bytes, BytesMut};

use crate::units::{
    ByteCount, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, byte_count,
    u64_of, usize_of,
};

const BASE_OFFSET_AT: usize = 0;
const LENGTH_AT: usize = BASE_OFFSET_AT + size_of::<i64>();
const LEADER_EPOCH_AT: usize = LENGTH_AT + size_of::<i32>();
const MAGIC_AT: usize = LEADER_EPOCH_AT + size_of::<i32>();
const CRC_AT: usize = MAGIC_AT + size_of::<i8>();
const ATTRIBUTES_AT: usize = CRC_AT + size_of::<u32>();
const LAST_OFFSET_DELTA_AT: usize = ATTRIBUTES_AT + size_of::<i16>();
const BASE_TIMESTAMP_AT: usize = LAST_OFFSET_DELTA_AT + size_of::<i32>();
const MAX_TIMESTAMP_AT: usize = BASE_TIMESTAMP_AT + size_of::<i64>();
const PRODUCER_ID_AT: usize = MAX_TIMESTAMP_AT + size_of::<i64>();
const PRODUCER_EPOCH_AT: usize = PRODUCER_ID_AT + size_of::<i64>();
const BASE_SEQUENCE_AT: usize = PRODUCER_EPOCH_AT + size_of::<i16>();
const RECORD_COUNT_AT: usize = BASE_SEQUENCE_AT + size_of::<i32>();

/// Length of a batch header, and so of the smallest batch.
pub const HEADER_BYTES: usize = RECORD_COUNT_AT + size_of::<i32>();
/// What the length field doesn't count: itself and the base offset before it.
pub const LENGTH_OVERHEAD_BYTES: usize = LENGTH_AT + size_of::<i32>();
/// The only magic that clients may send to a Kafka 4 broker.
pub const MAGIC_V2: i8 = 2;

const _: () = assert!(HEADER_BYTES == 61);
const _: () = assert!(LENGTH_OVERHEAD_BYTES == 12);
const _: () = assert!(ATTRIBUTES_AT == 21);

const CODEC_MASK: i16 = 0x07;
pub(crate) const LOG_APPEND_TIME: i16 = 0x08;
pub(crate) const TRANSACTIONAL: i16 = 0x10;
pub(crate) const CONTROL: i16 = 0x20;
pub(crate) const DELETE_HORIZON: i16 = 0x40;

/// The codec that a batch's records are packed with: the low three bits of its attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// Not compressed.
    None,
    /// RFC 1952.
    Gzip,
    /// Raw snappy blocks in xerial's framing.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard frames.
    Zstd,
}

impl Codec {
    /// The codec's value in the attributes.
    pub fn attribute(self) -> i16 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::Snappy => 2,
            Codec::Lz4 => 3,
            Codec::Zstd => 4,
        }
    }

    /// Kafka's name of the codec, as `kafka-dump-log` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }
}

/// Why bytes are no batch that may be appended or served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchError {
    /// Fewer bytes than a header, or than the header's length says.
    #[error("the batch needs {needed} bytes and has {present}")]
    Truncated {
        /// Bytes that the batch would have.
        needed: u64,
        /// Bytes at hand.
        present: u64,
    },
    /// The length field is below that of a header.
    #[error("batch length {0} is below that of a header")]
    Length(i32),
    /// Not magic 2.
    #[error("magic {0} is not supported, only 2 is")]
    Magic(i8),
    /// The stored CRC-32C isn't that of the bytes.
    #[error("CRC-32C is {stored:#010x}, the bytes have {computed:#010x}")]
    Crc {
        /// As the header says.
        stored: u32,
        /// As the bytes are.
        computed: u32,
    },
    /// Codec bits 5 to 7.
    #[error("unknown compression codec {0}")]
    Codec(i16),
}

/// The 61 bytes before the records, as numbers. Plain data: nothing here has been checked but the
/// length and the magic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    /// Offset of the first record position; a client's batch has 0.
    pub base_offset: i64,
    /// Whole size of the batch in bytes, header included.
    pub size: ByteCount,
    /// Stamped by the leader.
    pub leader_epoch: LeaderEpoch,
    /// CRC-32C as stored.
    pub crc: u32,
    /// Codec, timestamp type and flags.
    pub attributes: i16,
    /// Last offset minus base offset.
    pub last_offset_delta: i32,
    /// Timestamp that the records' deltas count from (or the delete horizon).
    pub base_timestamp: Timestamp,
    /// Largest timestamp of the batch.
    pub max_timestamp: Timestamp,
    /// Who sent it, -1 when the producer is not idempotent.
    pub producer_id: ProducerId,
    /// The sender's epoch.
    pub producer_epoch: ProducerEpoch,
    /// Sequence number of the first record.
    pub base_sequence: Sequence,
    /// How many records the batch says it has.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`, which need not hold the whole batch.
    ///
    /// # Errors
    /// [`BatchError::Truncated`] below 61 bytes, [`BatchError::Length`], [`BatchError::Magic`].
    pub fn decode(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
            let (needed, present) = (u64_of(HEADER_BYTES), u64_of(bytes.len()));
            return Err(BatchError::Truncated { needed, present });
        };
        let length = i32_at(head, LENGTH_AT);
        let size = u64::try_from(length).map_err(|_| BatchError::Length(length))?
            + u64_of(LENGTH_OVERHEAD_BYTES);
        if size < u64_of(HEADER_BYTES) {
            return Err(BatchError::Length(length));
        }
        let magic = i8::from_be_bytes([head[MAGIC_AT]]);
        if magic != MAGIC_V2 {
            return Err(BatchError::Magic(magic));
        }
        Ok(BatchHeader {
            base_offset: i64_at(head, BASE_OFFSET_AT),
            size: ByteCount(size),
            leader_epoch: LeaderEpoch(i32_at(head, LEADER_EPOCH_AT)),
            crc: u32::from_be_bytes(array_at(head, CRC_AT)),
            attributes: i16_at(head, ATTRIBUTES_AT),
            last_offset_delta: i32_at(head, LAST_OFFSET_DELTA_AT),
            base_timestamp: Timestamp(i64_at(head, BASE_TIMESTAMP_AT)),
            max_timestamp: Timestamp(i64_at(head, MAX_TIMESTAMP_AT)),
            producer_id: ProducerId(i64_at(head, PRODUCER_ID_AT)),
            producer_epoch: ProducerEpoch(i16_at(head, PRODUCER_EPOCH_AT)),
            base_sequence: Sequence(i32_at(head, BASE_SEQUENCE_AT)),
            record_count: i32_at(head, RECORD_COUNT_AT),
        })
    }

    /// How the records are packed.
    ///
    /// # Errors
    /// [`BatchError::Codec`] for the values that no codec has.
    pub fn codec(&self) -> Result<Codec, BatchError> {
        match self.attributes & CODEC_MASK {
            0 => Ok(Codec::None),
            1 => Ok(Codec::Gzip),
            2 => Ok(Codec::Snappy),
            3 => Ok(Codec::Lz4),
            4 => Ok(Codec::Zstd),
            other => Err(BatchError::Codec(other)),
        }
    }

    /// Whether every record has the batch's max timestamp (attribute bit 3).
    pub fn is_log_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME != 0
    }

    /// Whether the batch is part of a transaction (bit 4).
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// Whether the batch holds control records (bit 5).
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// Whether the base timestamp is a delete horizon (bit 6).
    pub fn has_delete_horizon(&self) -> bool {
        self.attributes & DELETE_HORIZON != 0
    }

    /// Base offset of a stored batch; `None` when it is negative, as none on disk may be.
    pub fn base(&self) -> Option<Offset> {
        Offset::from_wire(self.base_offset)
    }

    /// Offset of the last record position of a stored batch; `None` when it makes no sense.
    pub fn last_offset(&self) -> Option<Offset> {
        let last = self.base_offset.checked_add(i64::from(self.last_offset_delta))?;
        if self.last_offset_delta < 0 { None } else { Offset::from_wire(last) }
    }

    /// Sequence number of the last record, -1 for a producer that is not idempotent. Of a damaged
    /// header, the number that Kafka gets (`DefaultRecordBatch.lastSequence`).
    pub fn last_sequence(&self) -> Sequence {
        match self.base_sequence {
            Sequence(-1) => Sequence(-1),
            _ => self.sequence_at(self.last_offset_delta),
        }
    }

    /// Sequence number so many records behind the first (`incrementSequence`): after 2^31 - 1 comes
    /// 0. What a damaged header may hold is reckoned as in Java, where numbers wrap.
    pub fn sequence_at(&self, delta: i32) -> Sequence {
        let base = self.base_sequence.0;
        match i32::MAX.wrapping_sub(delta) < base {
            true => Sequence(delta.wrapping_sub(i32::MAX.wrapping_sub(base)).wrapping_sub(1)),
            false => Sequence(base.wrapping_add(delta)),
        }
    }
}

/// One whole batch whose length and CRC hold; owns its bytes, which usually are a slice of the
/// frame that they arrived in.
#[derive(Debug)]
pub struct RecordBatch {
    header: BatchHeader,
    bytes: BytesMut,
}

impl RecordBatch {
    /// Takes exactly one batch.
    ///
    /// # Errors
    /// Every [`BatchError`]: [`BatchError::Truncated`] also when bytes are left over.
    pub fn decode(bytes: BytesMut) -> Result<RecordBatch, BatchError> {
        let header = BatchHeader::decode(&bytes)?;
        if header.size.0 != u64_of(bytes.len()) {
            let (needed, present) = (header.size.0, u64_of(bytes.len()));
            return Err(BatchError::Truncated { needed, present });
        }
        check_crc(&header, &bytes)?;
        header.codec()?;
        Ok(RecordBatch { header, bytes })
    }

    /// The header as it stands.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Whole size in bytes.
    pub fn size(&self) -> ByteCount {
        byte_count(self.bytes.len())
    }

    /// The whole batch.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The records behind the header, packed as the codec says.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// How many offsets the batch takes.
    ///
    /// # Panics
    /// When the last offset delta is negative, which validation refuses.
    pub fn offsets(&self) -> u64 {
        u64::try_from(self.header.last_offset_delta).expect("validated before") + 1
    }

    /// Writes base offset and leader epoch in place; the CRC stays valid.
    pub fn assign(&mut self, base_offset: Offset, epoch: LeaderEpoch) {
        self.header.base_offset = base_offset.to_wire();
        self.header.leader_epoch = epoch;
        put(&mut self.bytes, BASE_OFFSET_AT, &base_offset.to_wire().to_be_bytes());
        put(&mut self.bytes, LEADER_EPOCH_AT, &epoch.0.to_be_bytes());
    }

    /// Sets timestamp type and max timestamp in place and computes the CRC anew; does nothing when
    /// both stand there already (`DefaultRecordBatch.setMaxTimestamp`).
    pub fn set_max_timestamp(&mut self, is_log_append_time: bool, max_timestamp: Timestamp) {
        let header = &mut self.header;
        if header.is_log_append_time() == is_log_append_time
            && header.max_timestamp == max_timestamp
        {
            return;
        }
        // Only the low byte of the attributes is ever interpreted; Kafka writes the rest as zero.
        let kept = header.attributes & 0x00ff & !LOG_APPEND_TIME;
        header.attributes = if is_log_append_time { kept | LOG_APPEND_TIME } else { kept };
        header.max_timestamp = max_timestamp;
        put(&mut self.bytes, ATTRIBUTES_AT, &self.header.attributes.to_be_bytes());
        put(&mut self.bytes, MAX_TIMESTAMP_AT, &max_timestamp.0.to_be_bytes());
        self.header.crc = crc32c::crc32c(&self.bytes[ATTRIBUTES_AT..]);
        put(&mut self.bytes, CRC_AT, &self.header.crc.to_be_bytes());
    }

    /// The bytes, ready to be written; no copy.
    pub fn freeze(self) -> Bytes {
        self.bytes.freeze()
    }
}

/// Checks the CRC of a whole batch.
///
/// # Errors
/// [`BatchError::Truncated`] when `bytes` are fewer than the header says, [`BatchError::Crc`].
pub fn check_crc(header: &BatchHeader, bytes: &[u8]) -> Result<(), BatchError> {
    let Some(batch) = bytes.get(..usize_of(header.size.0)) else {
        let (needed, present) = (header.size.0, u64_of(bytes.len()));
        return Err(BatchError::Truncated { needed, present });
    };
    let computed = crc32c::crc32c(&batch[ATTRIBUTES_AT..]);
    if computed == header.crc {
        Ok(())
    } else {
        Err(BatchError::Crc { stored: header.crc, computed })
    }
}

/// Writes a header for `payload` in front of it, length and CRC included.
pub fn encode(header: &BatchHeader, payload: &[u8]) -> BytesMut {
    let size = HEADER_BYTES + payload.len();
    let length =
        i32::try_from(size - LENGTH_OVERHEAD_BYTES).expect("a batch is shorter than 2^31 bytes");
    let mut bytes = BytesMut::with_capacity(size);
    bytes.extend_from_slice(&header.base_offset.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&header.leader_epoch.0.to_be_bytes());
    bytes.extend_from_slice(&MAGIC_V2.to_be_bytes());
    bytes.extend_from_slice(&0_u32.to_be_bytes());
    bytes.extend_from_slice(&header.attributes.to_be_bytes());
    bytes.extend_from_slice(&header.last_offset_delta.to_be_bytes());
    bytes.extend_from_slice(&header.base_timestamp.0.to_be_bytes());
    bytes.extend_from_slice(&header.max_timestamp.0.to_be_bytes());
    bytes.extend_from_slice(&header.producer_id.0.to_be_bytes());
    bytes.extend_from_slice(&header.producer_epoch.0.to_be_bytes());
    bytes.extend_from_slice(&header.base_sequence.0.to_be_bytes());
    bytes.extend_from_slice(&header.record_count.to_be_bytes());
    bytes.extend_from_slice(payload);
    let crc = crc32c::crc32c(&bytes[ATTRIBUTES_AT..]);
    put(&mut bytes, CRC_AT, &crc.to_be_bytes());
    bytes
}

fn put(bytes: &mut BytesMut, at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn array_at<const N: usize>(head: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    *head[at..].first_chunk().expect("the header is longer than its last field's place")
}

fn i64_at(head: &[u8; HEADER_BYTES], at: usize) -> i64 {
    i64::from_be_bytes(array_at(head, at))
}

fn i32_at(head: &[u8; HEADER_BYTES], at: usize) -> i32 {
    i32::from_be_bytes(array_at(head, at))
}

fn i16_at(head: &[u8; HEADER_BYTES], at: usize) -> i16 {
    i16::from_be_bytes(array_at(head, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(record_count: i32) -> BytesMut {
        let header = BatchHeader {
            base_offset: 0,
            size: ByteCount(0),
            leader_epoch: LeaderEpoch(-1),
            crc: 0,
            attributes: 0,
            last_offset_delta: record_count - 1,
            base_timestamp: Timestamp(1_000),
            max_timestamp: Timestamp(1_005),
            producer_id: ProducerId(7),
            producer_epoch: ProducerEpoch(1),
            base_sequence: Sequence(i32::MAX),
            record_count,
        };
        encode(&header, b"records")
    }

    #[test]
    fn offsets_and_epoch_are_assigned_without_touching_the_crc() {
        let mut batch = RecordBatch::decode(sample(2)).expect("valid");
        let crc = batch.header().crc;
        batch.assign(Offset(42), LeaderEpoch(3));
        let again = RecordBatch::decode(BytesMut::from(batch.as_bytes())).expect("still valid");
        assert_eq!(again.header().base(), Some(Offset(42)));
        assert_eq!(again.header().last_offset(), Some(Offset(43)));
        assert_eq!(again.header().leader_epoch, LeaderEpoch(3));
        assert_eq!(again.header().crc, crc);
        assert_eq!(again.header().last_sequence(), Sequence(0));
    }

    #[test]
    fn log_append_time_changes_type_time_and_crc() {
        let mut batch = RecordBatch::decode(sample(1)).expect("valid");
        let crc = batch.header().crc;
        batch.set_max_timestamp(true, Timestamp(9));
        let again = RecordBatch::decode(BytesMut::from(batch.as_bytes())).expect("valid");
        assert!(again.header().is_log_append_time());
        assert_eq!(again.header().max_timestamp, Timestamp(9));
        assert_ne!(again.header().crc, crc);
    }

    #[test]
    fn every_flipped_bit_behind_the_crc_is_found() {
        let good = sample(1);
        for at in ATTRIBUTES_AT..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let error = RecordBatch::decode(bad).expect_err("a flipped bit");
            assert!(matches!(error, BatchError::Crc { .. }), "byte {at}: {error}");
        }
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for (length, expected) in [(-1, BatchError::Length(-1)), (48, BatchError::Length(48))] {
            let mut bad = sample(1);
            put(&mut bad, LENGTH_AT, &i32::to_be_bytes(length));
            assert_eq!(RecordBatch::decode(bad).expect_err("refused"), expected);
        }
        let mut long = sample(1);
        long.extend_from_slice(b"x");
        assert!(matches!(RecordBatch::decode(long), Err(BatchError::Truncated { .. })));
    }
}
