//! Batches of Kafka before 0.11 (formats 0 and 1), which a broker of today still serves as they
//! are: a record each, or a packed one whose value holds records.
//!
//! ```text
//! 0 offset i64   8 size i32   12 crc u32 (CRC-32 of what follows)   16 magic i8   17 attributes i8
//! 18 timestamp i64 (format 1)   then key length i32, key, value length i32, value
//! ```

use super::DumpError;
use super::items::{self, Form, Item, OldBatchItem, RecordItem};
use super::log::{Records, UNPACKED_BYTES_MAX, at};
use crate::cli::log_file::{Found, LogFile, LogFileError};
use crate::format::batch::Codec;
use crate::format::codec;
use crate::format::compact::{CompactError, Reader};
use crate::units::usize_of;

const CRC_FROM: usize = 16;
const CODEC_MASK: i8 = 7;
const LOG_APPEND_TIME: i8 = 8;
const OVERHEAD_BYTES: u64 = 12;

/// One record as it stands in a file or in the value of a packed one.
#[derive(Clone, Debug)]
struct OldRecord {
    offset: i64,
    size: u64,
    crc: u32,
    is_valid: bool,
    magic: i8,
    attributes: i8,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
}

impl OldRecord {
    fn read(bytes: &[u8]) -> Result<OldRecord, CompactError> {
        let mut reader = Reader::new(bytes);
        let offset = reader.i64()?;
        let size = u64::from(reader.i32()?.max(0).unsigned_abs()) + OVERHEAD_BYTES;
        let covered = bytes.get(CRC_FROM..usize_of(size)).ok_or(CompactError::Truncated)?;
        let crc = u32::from_be_bytes(reader.array()?);
        let mut computed = flate2::Crc::new();
        computed.update(covered);
        let (magic, attributes) = (reader.i8()?, reader.i8()?);
        let timestamp = if magic == 0 { -1 } else { reader.i64()? };
        Ok(OldRecord {
            offset,
            size,
            crc,
            is_valid: computed.sum() == crc,
            magic,
            attributes,
            timestamp,
            key: take(&mut reader)?,
            value: take(&mut reader)?,
        })
    }

    fn codec(&self) -> Option<Codec> {
        match self.attributes & CODEC_MASK {
            0 => Some(Codec::None),
            1 => Some(Codec::Gzip),
            2 => Some(Codec::Snappy),
            3 => Some(Codec::Lz4),
            _ => None,
        }
    }

    fn time_label(&self) -> &'static str {
        match (self.magic, self.attributes & LOG_APPEND_TIME) {
            (0, _) => "NoTimestampType",
            (_, 0) => "CreateTime",
            _ => "LogAppendTime",
        }
    }

    /// The records inside, oldest first; itself when it isn't packed.
    fn inner(self, codec: Codec) -> Result<Vec<OldRecord>, OldFault> {
        if codec == Codec::None {
            return Ok(vec![self]);
        }
        let packed = self.value.as_deref().ok_or(OldFault::Empty)?;
        let bytes = codec::decompress(codec, packed, UNPACKED_BYTES_MAX)?;
        let (mut inner, mut rest) = (Vec::new(), &bytes[..]);
        while !rest.is_empty() {
            let record = OldRecord::read(rest)?;
            rest = &rest[usize_of(record.size)..];
            inner.push(record);
        }
        // In format 1 the offsets inside count from 0, and the packed record has the last one.
        let last = inner.last().ok_or(OldFault::Empty)?.offset;
        for record in &mut inner {
            if self.magic == 1 {
                record.offset = self.offset.wrapping_sub(last).wrapping_add(record.offset);
            }
            if self.attributes & LOG_APPEND_TIME != 0 {
                record.timestamp = self.timestamp;
            }
        }
        Ok(inner)
    }
}

fn take(reader: &mut Reader<'_>) -> Result<Option<Vec<u8>>, CompactError> {
    match usize::try_from(reader.i32()?) {
        Ok(length) => reader.take(length).map(|it| Some(it.to_vec())),
        Err(_) => Ok(None),
    }
}

#[derive(Debug, thiserror::Error)]
enum OldFault {
    #[error("codec {0} doesn't exist in this format")]
    Codec(i8),
    #[error("a packed record of the old format holds none")]
    Empty,
    #[error("a record of the old format: {0}")]
    Bytes(#[from] CompactError),
    #[error(transparent)]
    Packed(#[from] codec::CodecError),
}

/// Prints the batch, and its records when they are asked for.
///
/// # Errors
/// [`DumpError`].
pub fn dump_batch(
    log: &mut LogFile,
    found: Found,
    is_deep: bool,
    records: &mut Records<'_, '_>,
) -> Result<(), DumpError> {
    let (record, codec) = read(log, found)?;
    let time_label = record.time_label();
    records.printer.print(&Item::OldBatch(&OldBatchItem {
        last_offset: record.offset,
        at: found.at,
        size: found.size,
        magic: found.magic,
        time_label,
        timestamp: record.timestamp,
        codec,
        crc: record.crc,
        is_valid: record.is_valid,
    }))?;
    if !is_deep {
        return Ok(());
    }
    let is_bare = records.is_bare;
    for record in record.inner(codec).map_err(|error| at(log, found, error))? {
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        let contents = records.decoder.map(|it| it.read(record.offset, key, value)).transpose();
        let contents = contents.map_err(|error| LogFileError::corrupt(log.path(), error));
        records.print_with(contents, |contents| RecordItem {
            offset: record.offset,
            time_label,
            timestamp: record.timestamp,
            key_bytes: items::length(key),
            value_bytes: items::length(value),
            form: Form::Old { is_valid: record.is_valid, crc: record.crc },
            is_bare,
            contents,
        })?;
    }
    Ok(())
}

fn read(log: &mut LogFile, found: Found) -> Result<(OldRecord, Codec), LogFileError> {
    let bytes = log.bytes(found.at, found.size)?;
    let record = OldRecord::read(bytes).map_err(OldFault::Bytes).and_then(|record| {
        let codec = record.codec().ok_or(OldFault::Codec(record.attributes & CODEC_MASK))?;
        Ok((record, codec))
    });
    record.map_err(|error| at(log, found, error))
}

/// What a batch of an old format says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OldBatch {
    /// Offset of its first record.
    pub first_offset: i64,
    /// Offset of its last record.
    pub last_offset: i64,
    /// Its largest timestamp, -1 for none.
    pub max_timestamp: i64,
    /// Whether its CRC-32 holds.
    pub is_valid: bool,
}

/// Reads a batch of an old format; a packed one is unpacked.
///
/// # Errors
/// `LogFileError`.
pub fn old_batch(log: &mut LogFile, found: Found) -> Result<OldBatch, LogFileError> {
    let (record, codec) = read(log, found)?;
    let (last_offset, is_valid) = (record.offset, record.is_valid);
    let inner = record.inner(codec).map_err(|error| at(log, found, error))?;
    Ok(OldBatch {
        first_offset: inner.first().map_or(last_offset, |it| it.offset),
        last_offset,
        max_timestamp: inner.iter().map(|it| it.timestamp).max().unwrap_or(-1),
        is_valid,
    })
}

/// The largest timestamp among a batch's records.
///
/// # Errors
/// [`LogFileError`].
pub fn largest_timestamp(log: &mut LogFile, found: Found) -> Result<i64, LogFileError> {
    old_batch(log, found).map(|it| it.max_timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::u64_of;

    fn entry(offset: i64, magic: i8, attributes: i8, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut body = vec![magic.to_be_bytes()[0], attributes.to_be_bytes()[0]];
        if magic == 1 {
            body.extend_from_slice(&1_000_i64.to_be_bytes());
        }
        for part in [key, value] {
            body.extend_from_slice(&u32::try_from(part.len()).expect("short").to_be_bytes());
            body.extend_from_slice(part);
        }
        let mut crc = flate2::Crc::new();
        crc.update(&body);
        let size = u32::try_from(body.len()).expect("short") + 4;
        let mut out = offset.to_be_bytes().to_vec();
        out.extend_from_slice(&size.to_be_bytes());
        out.extend_from_slice(&crc.sum().to_be_bytes());
        out.extend_from_slice(&body);
        assert_eq!(u64_of(out.len()), u64::from(size) + OVERHEAD_BYTES);
        out
    }

    #[test]
    fn records_of_a_packed_one_get_their_offsets_from_it() {
        let inner = [entry(0, 1, 0, b"k", b"v"), entry(1, 1, 0, b"k", b"w")].concat();
        let packed = codec::compress(Codec::Gzip, codec::Levels::default(), &inner);
        let outer = entry(41, 1, 1, b"", &packed.expect("gzip takes everything"));
        let record = OldRecord::read(&outer).expect("well formed");
        assert!(record.is_valid && record.codec() == Some(Codec::Gzip));
        let inner = record.inner(Codec::Gzip).expect("two records");
        let offsets: Vec<i64> = inner.iter().map(|it| it.offset).collect();
        assert_eq!(offsets, [40, 41]);
        assert!(inner.iter().all(|it| it.is_valid && it.timestamp == 1_000));
    }

    #[test]
    fn format_0_has_no_timestamp() {
        let record = OldRecord::read(&entry(7, 0, 0, b"k", b"v")).expect("well formed");
        assert_eq!((record.timestamp, record.time_label()), (-1, "NoTimestampType"));
        assert_eq!(
            (record.key.as_deref(), record.value.as_deref()),
            (Some(&b"k"[..]), Some(&b"v"[..]))
        );
        assert!(OldRecord::read(&entry(7, 0, 0, b"k", b"v")[..20]).is_err());
    }
}
