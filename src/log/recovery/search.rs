//! Looks for a valid batch behind bytes that are none: tells a torn tail from damage.

use super::files::Files;
use super::report::OpenError;
use super::walk::{WINDOW_BYTES, Window};
use crate::format::batch::{self, BatchHeader};
use crate::log::segment::relative;
use crate::units::{ByteCount, Offset, Position, byte_count, u64_of, usize_of};

/// A hole longer than this has nothing behind it: a preallocated tail is not searched to its end.
const ZEROS_MAX: u64 = 16 << 20;

/// How a disk writes: a write that was lost leaves at least one of these empty.
const SECTOR_BYTES: u64 = 512;

/// Length of a base offset.
const PROOF_BYTES_MIN: u64 = 8;

/// What is looked for.
pub(super) struct Search {
    pub base: Offset,
    /// First offset that isn't in front of the damage; a batch behind it has a later one.
    pub next: Offset,
    /// First offset that it may not have any more.
    pub limit: Offset,
    /// Where the bytes that are no batch begin.
    pub from: Position,
}

impl Search {
    /// Start and base offset of the first valid batch at or behind `from`.
    pub fn run(
        &self,
        files: &mut Files<'_>,
        window: &mut Window,
    ) -> Result<Option<(Position, Offset)>, OpenError> {
        let mut at = self.from;
        let mut zeros = 0;
        while at + byte_count(batch::HEADER_BYTES) <= window.length {
            let (least, left) = (u64_of(batch::HEADER_BYTES), (window.length - at).0);
            let bytes = window.get(files, at, least, WINDOW_BYTES)?;
            let places = bytes.len() - batch::HEADER_BYTES + 1;
            let empty = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
            zeros = if empty >= places { zeros + u64_of(places) } else { 0 };
            if zeros > ZEROS_MAX {
                return Ok(None);
            }
            let found = (0..places).find_map(|place| {
                let header = self.candidate(&bytes[place..], left - u64_of(place))?;
                Some((at + byte_count(place), header))
            });
            let Some((place, header)) = found else {
                at += byte_count(places);
                continue;
            };
            if window.is_crc_right(files, place, &header)? {
                return Ok(header.base().map(|base| (place, base)));
            }
            at = place + ByteCount(1);
        }
        Ok(None)
    }

    fn candidate(&self, bytes: &[u8], left: u64) -> Option<BatchHeader> {
        const MAGIC_AT: usize = 16;
        if bytes[MAGIC_AT] != batch::MAGIC_V2.unsigned_abs() {
            return None;
        }
        let header = BatchHeader::decode(bytes).ok()?;
        let (first, last) = (header.base()?, header.last_offset()?);
        // Not the next offset itself: what is damaged in front of it had one. The base offset is
        // not covered by the checksum, and reads 0 when its sector was lost.
        let is_plausible = header.size.0 <= left
            && self.next < first
            && last < self.limit
            && relative(self.base, first).is_some()
            && header.codec().is_ok();
        is_plausible.then_some(header)
    }
}

/// Whether `[from, to)` looks like a write that never reached the device, and not like damage to
/// one that did: a whole sector of it is empty, or the part of the first sector behind what was
/// synced before. A part shorter than a base offset proves nothing: that is mostly zeros anyway.
pub(super) fn has_empty_sector(
    files: &mut Files<'_>,
    window: &mut Window,
    from: Position,
    to: Position,
) -> Result<bool, OpenError> {
    let mut at = from;
    while at < to {
        let end = Position((at.0 + 1).next_multiple_of(SECTOR_BYTES));
        // The batch behind may begin in the sector's last bytes, with zeros.
        if end.0 >= to.0 + PROOF_BYTES_MIN {
            return Ok(false);
        }
        let length = (end.min(to) - at).0;
        let bytes = window.get(files, at, length, WINDOW_BYTES)?;
        let is_empty = bytes[..usize_of(length)].iter().all(|byte| *byte == 0);
        if is_empty && length >= PROOF_BYTES_MIN {
            return Ok(true);
        }
        at = end;
    }
    Ok(false)
}
