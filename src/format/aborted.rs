//! `.txnindex`: the aborted transactions that end in a segment (`TransactionIndex`, `AbortedTxn`).
//!
//! ```text
//! 0 version i16 = 0    2 producer id i64    10 first offset i64    18 last offset i64
//! 26 last stable offset i64                                                       34 bytes
//! ```
//!
//! Big-endian. The last offset is that of the marker, and rises from entry to entry.

use crate::format::compact::{CompactError, Reader};
use crate::units::{ProducerId, u64_of};

/// Newest version that is known.
pub const VERSION: i16 = 0;
/// Size of an entry.
pub const ENTRY_BYTES: usize = 34;

/// One aborted transaction. Offsets stand as in the file, which may be damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AbortedTransaction {
    /// Of the entry; [`VERSION`].
    pub version: i16,
    /// Whose transaction it was.
    pub producer_id: ProducerId,
    /// Its first record.
    pub first_offset: i64,
    /// Its marker.
    pub last_offset: i64,
    /// Where records were stable up to when the marker came.
    pub last_stable_offset: i64,
}

/// Why an index can't be read to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AbortedError {
    /// An entry that a newer program wrote.
    #[error("entry {entry} of the transaction index has version {version}, above {VERSION}")]
    Version {
        /// Its number.
        entry: u64,
        /// As found.
        version: i16,
    },
    /// Not a multiple of an entry's size.
    #[error("the transaction index has {0} bytes, no multiple of {ENTRY_BYTES}")]
    Length(u64),
}

impl AbortedTransaction {
    /// The entry as it stands in the file.
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut out = [0; ENTRY_BYTES];
        out[..2].copy_from_slice(&self.version.to_be_bytes());
        let numbers =
            [self.producer_id.0, self.first_offset, self.last_offset, self.last_stable_offset];
        for (place, number) in out[2..].chunks_exact_mut(size_of::<i64>()).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        out
    }

    fn decode(bytes: &[u8]) -> Result<AbortedTransaction, CompactError> {
        let mut reader = Reader::new(bytes);
        Ok(AbortedTransaction {
            version: reader.i16()?,
            producer_id: ProducerId(reader.i64()?),
            first_offset: reader.i64()?,
            last_offset: reader.i64()?,
            last_stable_offset: reader.i64()?,
        })
    }
}

/// The entries of a file whatever their versions; less than one at the end is passed over.
pub fn whole_entries(bytes: &[u8]) -> impl Iterator<Item = AbortedTransaction> {
    bytes.chunks_exact(ENTRY_BYTES).filter_map(|it| AbortedTransaction::decode(it).ok())
}

/// The entries of a file, up to the first that isn't one.
pub fn entries(bytes: &[u8]) -> impl Iterator<Item = Result<AbortedTransaction, AbortedError>> {
    let mut is_over = false;
    bytes.chunks(ENTRY_BYTES).enumerate().map_while(move |(number, chunk)| {
        if is_over {
            return None;
        }
        let read = match AbortedTransaction::decode(chunk) {
            Err(_) => Err(AbortedError::Length(u64_of(bytes.len()))),
            Ok(entry) if VERSION < entry.version => {
                Err(AbortedError::Version { entry: u64_of(number), version: entry.version })
            }
            Ok(entry) => Ok(entry),
        };
        is_over = read.is_err();
        Some(read)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: AbortedTransaction = AbortedTransaction {
        version: VERSION,
        producer_id: ProducerId(1),
        first_offset: 3,
        last_offset: 123,
        last_stable_offset: 0,
    };

    #[test]
    fn entries_are_read_up_to_the_first_that_is_none() {
        let mut bytes = ENTRY.encode().to_vec();
        let newer = AbortedTransaction { version: 1, ..ENTRY };
        bytes.extend_from_slice(&newer.encode());
        bytes.extend_from_slice(&ENTRY.encode());
        let read: Vec<_> = entries(&bytes).collect();
        assert_eq!(read, [Ok(ENTRY), Err(AbortedError::Version { entry: 1, version: 1 })]);
        let read: Vec<_> = entries(&bytes[..40]).collect();
        assert_eq!(read, [Ok(ENTRY), Err(AbortedError::Length(40))]);
        assert_eq!(entries(&[]).count(), 0);
        let versions: Vec<i16> = whole_entries(&bytes[..101]).map(|it| it.version).collect();
        assert_eq!(versions, [0, 1]);
    }
}
