//! Walking from batch to batch through a window of a `.log` file: recovery, reads and the offline
//! tools step with these two functions and read more of the file when told to.

use crate::format::batch::{BatchError, BatchHeader, HEADER_BYTES, check_crc};
use crate::units::{ByteCount, Position, u64_of, usize_of};

/// Part of a file in memory.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Where the first of them lies in the file.
    pub at: Position,
}

/// What lies at a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scan {
    /// The end of the file or of what may be read of it.
    End,
    /// A batch; it ends at or before the end of the file.
    Batch {
        /// Its header.
        header: BatchHeader,
        /// Its first byte.
        at: Position,
        /// The byte behind it.
        next: Position,
    },
    /// The window doesn't reach: so many bytes from the position on must be in it.
    NeedMore {
        /// Bytes needed from the position on; never beyond the end of the file.
        bytes: ByteCount,
    },
    /// No batch.
    Invalid(ScanFault),
}

/// Why there is no batch at a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScanFault {
    /// The file ends before a header would.
    #[error("{left} bytes are left, a batch header has {HEADER_BYTES}")]
    PartialHeader {
        /// Bytes from the position to the end.
        left: ByteCount,
    },
    /// The file ends before the batch would.
    #[error("the batch has {size} bytes, {left} are left")]
    PartialBatch {
        /// Size that the header says.
        size: ByteCount,
        /// Bytes from the position to the end.
        left: ByteCount,
    },
    /// The bytes are none of a batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// Looks at the header at `at`; of the file, bytes up to `end` count. The records need not be in
/// the window and aren't checked.
///
/// # Panics
/// When the window begins behind `at`.
pub fn header_at(window: Window<'_>, at: Position, end: Position) -> Scan {
    if at >= end {
        return Scan::End;
    }
    let left = end - at;
    let header_bytes = ByteCount(u64_of(HEADER_BYTES));
    if left < header_bytes {
        return Scan::Invalid(ScanFault::PartialHeader { left });
    }
    let present = bytes_from(window, at);
    if present.len() < HEADER_BYTES {
        return Scan::NeedMore { bytes: header_bytes };
    }
    match BatchHeader::decode(present) {
        Ok(header) if header.size > left => {
            Scan::Invalid(ScanFault::PartialBatch { size: header.size, left })
        }
        Ok(header) => Scan::Batch { header, at, next: at + header.size },
        Err(error) => Scan::Invalid(ScanFault::Batch(error)),
    }
}

/// The same, with the whole batch in the window and its CRC and codec checked.
///
/// # Panics
/// When the window begins behind `at`.
pub fn batch_at(window: Window<'_>, at: Position, end: Position) -> Scan {
    let scan = header_at(window, at, end);
    let Scan::Batch { header, .. } = scan else { return scan };
    let present = bytes_from(window, at);
    let Some(batch) = present.get(..usize_of(header.size.0)) else {
        return Scan::NeedMore { bytes: header.size };
    };
    match check_crc(&header, batch).and_then(|()| header.codec()) {
        Ok(_) => scan,
        Err(error) => Scan::Invalid(ScanFault::Batch(error)),
    }
}

/// The bytes of a batch that [`batch_at`] found in the window.
///
/// # Panics
/// When the batch isn't wholly in the window.
pub fn bytes_of<'a>(window: Window<'a>, at: Position, header: &BatchHeader) -> &'a [u8] {
    &bytes_from(window, at)[..usize_of(header.size.0)]
}

fn bytes_from(window: Window<'_>, at: Position) -> &[u8] {
    let skipped = usize_of((at - window.at).0);
    window.bytes.get(skipped..).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::batch::{Codec, LENGTH_OVERHEAD_BYTES};
    use crate::format::record::{BatchBuilder, NewRecord};
    use crate::units::{Timestamp, byte_count};

    fn batch(value: &[u8]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(Codec::None);
        builder.push(&NewRecord::value(Timestamp(1), value));
        builder.build().as_bytes().to_vec()
    }

    fn window(bytes: &[u8]) -> Window<'_> {
        Window { bytes, at: Position(1000) }
    }

    #[test]
    fn batches_follow_one_another() {
        let (one, two) = (batch(b"one"), batch(b"number two"));
        let both = [&one[..], &two[..]].concat();
        let end = Position(1000) + byte_count(both.len());
        let mut at = Position(1000);
        let mut sizes = Vec::new();
        while let Scan::Batch { header, next, .. } = batch_at(window(&both), at, end) {
            assert_eq!(header_at(window(&both), at, end), batch_at(window(&both), at, end));
            assert_eq!(bytes_of(window(&both), at, &header).len(), usize_of(header.size.0));
            sizes.push(header.size);
            at = next;
        }
        assert_eq!(sizes, [byte_count(one.len()), byte_count(two.len())]);
        assert_eq!(batch_at(window(&both), at, end), Scan::End);
    }

    #[test]
    fn a_short_window_asks_for_more_and_a_short_file_is_invalid() {
        let one = batch(b"a value of some length");
        let (at, end) = (Position(1000), Position(1000) + byte_count(one.len()));
        let header_bytes = ByteCount(u64_of(HEADER_BYTES));
        let need = |bytes| Scan::NeedMore { bytes };
        assert_eq!(header_at(window(&one[..60]), at, end), need(header_bytes));
        assert_eq!(header_at(window(&[]), at, end), need(header_bytes));
        assert!(matches!(header_at(window(&one[..61]), at, end), Scan::Batch { .. }));
        assert_eq!(batch_at(window(&one[..61]), at, end), need(byte_count(one.len())));
        let fault = |end| match batch_at(window(&one), at, end) {
            Scan::Invalid(fault) => fault,
            other => panic!("{other:?}"),
        };
        let left = ByteCount(60);
        assert_eq!(fault(Position(1060)), ScanFault::PartialHeader { left });
        let (size, left) = (byte_count(one.len()), ByteCount(61));
        assert_eq!(fault(Position(1061)), ScanFault::PartialBatch { size, left });
    }

    #[test]
    fn damage_is_invalid() {
        let mut bad = batch(b"x");
        let (at, end) = (Position(1000), Position(1000) + byte_count(bad.len()));
        let last = bad.len() - 1;
        bad[last] ^= 1;
        assert!(matches!(header_at(window(&bad), at, end), Scan::Batch { .. }));
        let crc = batch_at(window(&bad), at, end);
        assert!(matches!(crc, Scan::Invalid(ScanFault::Batch(BatchError::Crc { .. }))));
        let zeros = [0; 200];
        let end = Position(1200);
        let length = Scan::Invalid(ScanFault::Batch(BatchError::Length(0)));
        assert_eq!(header_at(window(&zeros), at, end), length);
        bad[LENGTH_OVERHEAD_BYTES - 4] = 0x80;
        assert!(matches!(header_at(window(&bad), at, end), Scan::Invalid(_)));
    }
}
