//! Control records: written by brokers and never shown to consumers.
//!
//! ```text
//! key     version i16   type i16
//! value   of a transaction's marker: version i16   epoch of its coordinator i32
//! ```

use crate::format::compact::{CompactError, Reader};
use crate::units::ByteCount;

/// The type of the marker of an aborted transaction.
pub const ABORT: i16 = 0;
/// The type of the marker of a committed one.
pub const COMMIT: i16 = 1;
/// A batch of one marker.
pub const MARKER_BATCH_BYTES: ByteCount = ByteCount(78);

const VERSION: [u8; 2] = 0_i16.to_be_bytes();

/// Key and value of a marker.
pub fn marker(commits: bool, coordinator_epoch: i32) -> (Vec<u8>, Vec<u8>) {
    let kind = if commits { COMMIT } else { ABORT };
    let key = [VERSION, kind.to_be_bytes()].concat();
    (key, [&VERSION[..], &coordinator_epoch.to_be_bytes()].concat())
}

/// The type that a control record's key names.
///
/// # Errors
/// [`CompactError::Truncated`]; no key is one of no bytes.
pub fn kind(key: Option<&[u8]>) -> Result<i16, CompactError> {
    second(key)?.i16()
}

/// The epoch of the coordinator that wrote a marker.
///
/// # Errors
/// [`CompactError::Truncated`]; no value is one of no bytes.
pub fn coordinator_epoch(value: Option<&[u8]>) -> Result<i32, CompactError> {
    second(value)?.i32()
}

/// What stands behind the version.
fn second(bytes: Option<&[u8]>) -> Result<Reader<'_>, CompactError> {
    let mut reader = Reader::new(bytes.unwrap_or_default());
    reader.i16()?;
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_as_it_was_written() {
        for (commits, expected) in [(true, COMMIT), (false, ABORT)] {
            let (key, value) = marker(commits, 7);
            assert_eq!((key.len(), value.len()), (4, 6));
            assert_eq!(kind(Some(&key)), Ok(expected));
            assert_eq!(coordinator_epoch(Some(&value)), Ok(7));
        }
        assert_eq!(kind(None), Err(CompactError::Truncated));
        assert_eq!(kind(Some(&[0, 0, 1])), Err(CompactError::Truncated));
        assert_eq!(coordinator_epoch(Some(&[0; 5])), Err(CompactError::Truncated));
    }
}
