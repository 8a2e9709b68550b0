//! Batches of other formats than the one that this log reads: older ones, and such as nobody knows.

use super::files::Files;
use super::report::OpenError;
use super::walk::Window;
use crate::format::batch::{BatchHeader, HEADER_BYTES, MAGIC_V2};
use crate::units::{Offset, Position, u64_of};

const SIZE_AT: usize = 8;
/// Of formats 0 and 1; their sizes count from here on.
const LEGACY_CRC_AT: usize = 12;
const MAGIC_AT: usize = 16;
/// Shortest message of format 0.
const LEGACY_BYTES_MIN: u64 = 14;

/// A message of format 0 or 1 at the start of a segment: not damage, but nothing that this log
/// reads. Its checksum is a CRC-32 of everything from the magic on.
///
/// # Errors
/// [`OpenError::Legacy`] when it is one.
pub(super) fn refuse_legacy(
    files: &mut Files<'_>,
    base: Offset,
    window: &mut Window,
) -> Result<(), OpenError> {
    if window.length < Position(u64_of(HEADER_BYTES)) {
        return Ok(());
    }
    let head = window.get(files, Position(0), u64_of(HEADER_BYTES), 0)?;
    let u32_at = |at: usize| u32::from_be_bytes(*head[at..].first_chunk().expect("61 bytes"));
    let (size, crc) = (u64::from(u32_at(SIZE_AT)), u32_at(LEGACY_CRC_AT));
    let magic = i8::from_be_bytes([head[MAGIC_AT]]);
    let end = Position(u64_of(LEGACY_CRC_AT) + size);
    if !matches!(magic, 0 | 1) || end > window.length || size < LEGACY_BYTES_MIN {
        return Ok(());
    }
    let mut computed = flate2::Crc::new();
    window.each(files, Position(u64_of(MAGIC_AT)), end, |bytes| computed.update(bytes))?;
    if computed.sum() == crc {
        return Err(OpenError::Legacy { segment: base, magic });
    }
    Ok(())
}

/// The offset behind the batch at a position, if the batch is whole and right but for its format,
/// which the checksum does not cover: not a tail that was torn, but records that somebody wrote.
pub(super) fn unknown(
    files: &mut Files<'_>,
    window: &mut Window,
    at: Position,
) -> Result<Option<Offset>, OpenError> {
    let left = window.length - at;
    if left.0 < u64_of(HEADER_BYTES) {
        return Ok(None);
    }
    let bytes = window.get(files, at, u64_of(HEADER_BYTES), 0)?;
    let mut head: [u8; HEADER_BYTES] = *bytes.first_chunk().expect("61 bytes");
    let [ours] = MAGIC_V2.to_be_bytes();
    if head[MAGIC_AT] == ours {
        return Ok(None);
    }
    head[MAGIC_AT] = ours;
    let header = BatchHeader::decode(&head).ok().filter(|it| it.size <= left);
    let Some((header, last)) = header.and_then(|it| Some((it, it.last_offset()?))) else {
        return Ok(None);
    };
    Ok(window.is_crc_right(files, at, &header)?.then_some(last + 1))
}
