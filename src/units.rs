//! Newtypes for every kind of number that the log counts in, so that they can't be mixed up.
//!
//! Integer conversions live here and nowhere else: the rest of the crate never writes `as`.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

macro_rules! unit {
    ($(#[$meta:meta])* $name:ident($inner:ty)) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

unit! {
    /// Logical number of a record in its partition. Never negative inside the engine; the wire's
    /// negative values are separate cases there.
    Offset(u64)
}
unit! {
    /// A byte in a file.
    Position(u64)
}
unit! {
    /// How many bytes.
    ByteCount(u64)
}
unit! {
    /// Milliseconds since the Unix epoch; -1 means none, as in Kafka's record batches.
    Timestamp(i64)
}
unit! {
    /// Kafka's partition leader epoch; -1 means none.
    LeaderEpoch(i32)
}
unit! {
    /// A broker's number on the wire.
    BrokerId(i32)
}
unit! {
    /// A partition's number within its topic, 0 to 2^31 - 1.
    PartitionId(u32)
}
unit! {
    /// Producer id of an idempotent or transactional producer; -1 means none.
    ProducerId(i64)
}
unit! {
    /// Producer epoch; -1 means none.
    ProducerEpoch(i16)
}
unit! {
    /// Sequence number of a producer's record in one partition; -1 means none. After 2^31 - 1
    /// comes 0.
    Sequence(i32)
}

impl Offset {
    /// The largest offset that the wire's signed 64 bits can carry.
    pub const MAX: Offset = Offset(u64_of_i64_max());

    /// The offset as the wire and the files carry it.
    ///
    /// # Panics
    /// When the offset exceeds [`Offset::MAX`], which nothing can assign.
    pub fn to_wire(self) -> i64 {
        i64::try_from(self.0).expect("offsets stay below 2^63")
    }

    /// Reads an offset off the wire or a file; `None` for the negative special values.
    pub fn from_wire(value: i64) -> Option<Offset> {
        u64::try_from(value).ok().map(Offset)
    }
}

const fn u64_of_i64_max() -> u64 {
    i64::MAX.unsigned_abs()
}

impl Add<u64> for Offset {
    type Output = Offset;

    fn add(self, records: u64) -> Offset {
        Offset(self.0.checked_add(records).expect("offsets stay below 2^64"))
    }
}

impl Sub for Offset {
    type Output = u64;

    /// How many offsets lie between the two.
    fn sub(self, earlier: Offset) -> u64 {
        self.0.checked_sub(earlier.0).expect("the later offset stands on the left")
    }
}

impl Add<ByteCount> for Position {
    type Output = Position;

    fn add(self, bytes: ByteCount) -> Position {
        Position(self.0.checked_add(bytes.0).expect("positions stay below 2^64"))
    }
}

impl AddAssign<ByteCount> for Position {
    fn add_assign(&mut self, bytes: ByteCount) {
        *self = *self + bytes;
    }
}

impl Sub for Position {
    type Output = ByteCount;

    fn sub(self, earlier: Position) -> ByteCount {
        ByteCount(self.0.checked_sub(earlier.0).expect("the later position stands on the left"))
    }
}

impl Add for ByteCount {
    type Output = ByteCount;

    fn add(self, more: ByteCount) -> ByteCount {
        ByteCount(self.0.checked_add(more.0).expect("byte counts stay below 2^64"))
    }
}

impl AddAssign for ByteCount {
    fn add_assign(&mut self, more: ByteCount) {
        *self = *self + more;
    }
}

impl Timestamp {
    /// No timestamp, as a batch without one carries it.
    pub const NONE: Timestamp = Timestamp(-1);
}

impl LeaderEpoch {
    /// No leader epoch.
    pub const NONE: LeaderEpoch = LeaderEpoch(-1);
}

impl ProducerId {
    /// The batch of a producer that is not idempotent.
    pub const NONE: ProducerId = ProducerId(-1);
}

impl Sequence {
    /// The sequence `records` after this one: after 2^31 - 1 comes 0
    /// (`DefaultRecordBatch.incrementSequence`).
    pub fn plus(self, records: u32) -> Sequence {
        let sum = (i64::from(self.0) + i64::from(records)) % (i64::from(i32::MAX) + 1);
        Sequence(i32::try_from(sum).expect("the remainder of 2^31 fits 31 bits"))
    }
}

/// A topic's id: a random UUID, never all zero for a topic that exists.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// The id that means "none" on the wire.
    pub const ZERO: TopicId = TopicId([0; 16]);

    /// A new random id (UUID version 4).
    pub fn random() -> TopicId {
        TopicId(uuid::Uuid::new_v4().into_bytes())
    }
}

/// A length that indexes memory, as 64 bits.
pub fn u64_of(length: usize) -> u64 {
    u64::try_from(length).expect("memory is addressed with at most 64 bits")
}

/// A number that is known to fit memory, as an index.
///
/// # Panics
/// When it doesn't fit, which on 64-bit Linux cannot happen.
pub fn usize_of(number: u64) -> usize {
    usize::try_from(number).expect("this crate builds for 64-bit Linux only")
}

/// A length of something in memory as bytes.
pub fn byte_count(length: usize) -> ByteCount {
    ByteCount(u64_of(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_wrap_to_zero() {
        assert_eq!(Sequence(i32::MAX).plus(1), Sequence(0));
        assert_eq!(Sequence(i32::MAX - 1).plus(3), Sequence(1));
        assert_eq!(Sequence(5).plus(2), Sequence(7));
    }

    #[test]
    fn negative_wire_offsets_are_no_offsets() {
        assert_eq!(Offset::from_wire(-1), None);
        assert_eq!(Offset::from_wire(7), Some(Offset(7)));
        assert_eq!(Offset(7).to_wire(), 7);
    }
}
