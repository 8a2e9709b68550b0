//! Batches of Kafka before 0.11 (formats 0 and 1), which a broker of today still serves as they
//! are: a record each, or a packed one whose value holds records.
//!
//! ```text
//! 0 offset i64   8 size i32   12 crc u32 (CRC-32 of what follows)   16 magic i8   17 attributes i8
//! 18 timestamp i64 (format 1)   then key length i32, key, value length i32, value
//! ```

use super::DumpError;
use super::items::{Form, Item, OldBatchItem, RecordItem};
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
/// Least that a record's size counts: the CRC to the key's length.
const SIZE_MIN: i32 = 14;

/// One record as it stands in a file or in the value of a packed one. Kafka looks at each field
/// when it is asked for it, so that of a damaged record some are shown.
#[derive(Clone, Debug)]
struct OldRecord {
    offset: i64,
    /// From the magic on.
    body: Vec<u8>,
    crc: u32,
    /// Time of the packed record that it was in, if that one decides.
    append_time: Option<i64>,
}

impl OldRecord {
    /// From all bytes of it, which are 17 at least.
    fn read(bytes: &[u8]) -> Result<OldRecord, CompactError> {
        let mut reader = Reader::new(bytes);
        let offset = reader.i64()?;
        reader.i32()?;
        let crc = u32::from_be_bytes(reader.array()?);
        let body = bytes.get(CRC_FROM..).ok_or(CompactError::Truncated)?.to_vec();
        Ok(OldRecord { offset, body, crc, append_time: None })
    }

    fn is_valid(&self) -> bool {
        let mut computed = flate2::Crc::new();
        computed.update(&self.body);
        computed.sum() == self.crc
    }

    fn reader_at(&self, at: usize) -> Result<Reader<'_>, CompactError> {
        let mut reader = Reader::new(&self.body);
        reader.take(at)?;
        Ok(reader)
    }

    fn magic(&self) -> Result<i8, CompactError> {
        self.reader_at(0)?.i8()
    }

    fn attributes(&self) -> Result<i8, CompactError> {
        self.reader_at(1)?.i8()
    }

    fn codec(&self) -> Result<Codec, OldFault> {
        match self.attributes()? & CODEC_MASK {
            0 => Ok(Codec::None),
            1 => Ok(Codec::Gzip),
            2 => Ok(Codec::Snappy),
            3 => Ok(Codec::Lz4),
            4 => Ok(Codec::Zstd),
            other => Err(OldFault::Codec(other)),
        }
    }

    fn timestamp(&self) -> Result<i64, CompactError> {
        match (self.magic()?, self.append_time) {
            (0, _) => Ok(-1),
            (_, Some(time)) => Ok(time),
            _ => self.reader_at(2)?.i64(),
        }
    }

    fn time_label(&self) -> Result<&'static str, OldFault> {
        if !(0..=1).contains(&self.magic()?) {
            return Err(OldFault::Magic(self.magic()?));
        }
        Ok(match (self.magic()?, self.attributes()? & LOG_APPEND_TIME) {
            (0, _) => "NoTimestampType",
            (_, 0) => "CreateTime",
            _ => "LogAppendTime",
        })
    }

    fn key_at(&self) -> Result<usize, CompactError> {
        Ok(if self.magic()? == 0 { 2 } else { 2 + size_of::<i64>() })
    }

    fn value_at(&self) -> Result<usize, CompactError> {
        let key_bytes = usize_of(u64::from(self.key_bytes()?.max(0).unsigned_abs()));
        Ok(self.key_at()? + size_of::<i32>() + key_bytes)
    }

    fn key_bytes(&self) -> Result<i32, CompactError> {
        self.reader_at(self.key_at()?)?.i32()
    }

    fn value_bytes(&self) -> Result<i32, CompactError> {
        self.reader_at(self.value_at()?)?.i32()
    }

    fn key(&self) -> Result<Option<&[u8]>, CompactError> {
        take(self.reader_at(self.key_at()?)?)
    }

    fn value(&self) -> Result<Option<&[u8]>, CompactError> {
        take(self.reader_at(self.value_at()?)?)
    }

    /// The records inside, oldest first; itself when it isn't packed.
    fn inner(self) -> Result<Vec<OldRecord>, OldFault> {
        let codec = self.codec()?;
        if codec == Codec::None {
            return Ok(vec![self]);
        }
        let magic = self.magic()?;
        if codec == Codec::Zstd {
            return Err(OldFault::Zstd);
        }
        let packed = self.value()?.ok_or(OldFault::Empty)?;
        let bytes = match magic {
            0 => codec::decompress_format_0(codec, packed, UNPACKED_BYTES_MAX)?,
            _ => codec::decompress(codec, packed, UNPACKED_BYTES_MAX)?,
        };
        let mut inner = packed_records(&bytes)?;
        // In format 1 the offsets inside count from 0, and the packed record has the last one.
        let last = inner.last().ok_or(OldFault::Empty)?.offset;
        if magic == 1 {
            if self.offset != 0 && self.offset < last {
                return Err(OldFault::Offset { outer: self.offset, last });
            }
            let base = if self.offset == 0 { 0 } else { self.offset.wrapping_sub(last) };
            let is_stamped = self.attributes()? & LOG_APPEND_TIME != 0;
            let append_time = is_stamped.then(|| self.timestamp()).transpose()?;
            for record in &mut inner {
                // A base of -1 is how Kafka says that there is none.
                if base != -1 {
                    record.offset = record.offset.wrapping_add(base);
                }
                record.append_time = append_time;
            }
        }
        Ok(inner)
    }
}

/// What lies in a packed record; the end of one that isn't whole is passed over, as Kafka does.
fn packed_records(mut rest: &[u8]) -> Result<Vec<OldRecord>, OldFault> {
    let mut inner = Vec::new();
    loop {
        let mut reader = Reader::new(rest);
        let (Ok(_), Ok(size)) = (reader.i64(), reader.i32()) else { return Ok(inner) };
        if size < SIZE_MIN {
            return Err(OldFault::Size(size));
        }
        let bytes = usize_of(u64::from(size.unsigned_abs()) + OVERHEAD_BYTES);
        let Some((record, behind)) = rest.split_at_checked(bytes) else { return Ok(inner) };
        inner.push(OldRecord::read(record)?);
        rest = behind;
    }
}

fn take(mut reader: Reader<'_>) -> Result<Option<&[u8]>, CompactError> {
    match usize::try_from(reader.i32()?) {
        Ok(length) => reader.take(length).map(Some),
        Err(_) => Ok(None),
    }
}

#[derive(Debug, thiserror::Error)]
enum OldFault {
    #[error("format {0} doesn't exist")]
    Magic(i8),
    #[error("codec {0} doesn't exist")]
    Codec(i8),
    #[error("zstd doesn't exist in the old formats")]
    Zstd,
    #[error("a packed record of the old format holds none")]
    Empty,
    #[error("a record inside a packed one is itself packed")]
    Nested,
    #[error("a record inside a packed one has size {0}, and {SIZE_MIN} is the least")]
    Size(i32),
    #[error("a packed record has offset {outer}, and the last one inside {last}")]
    Offset { outer: i64, last: i64 },
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
    let record = read(log, found)?;
    let item = match batch_item(&record, found) {
        Ok(item) => item,
        Err(error) => {
            let offset = record.offset;
            records.printer.print_unfinished(|out| OldBatchItem::write_front(offset, out))?;
            return Err(at(log, found, error).into());
        }
    };
    records.printer.print(&Item::OldBatch(&item))?;
    if !is_deep {
        return Ok(());
    }
    let (is_packed, time_label) = (item.codec != Codec::None, item.time_label);
    for record in record.inner().map_err(|error| at(log, found, error))? {
        if is_packed && record.codec().map_err(|error| at(log, found, error))? != Codec::None {
            return Err(at(log, found, OldFault::Nested).into());
        }
        dump_record((log, found), &record, time_label, records)?;
    }
    Ok(())
}

fn batch_item(record: &OldRecord, found: Found) -> Result<OldBatchItem, OldFault> {
    Ok(OldBatchItem {
        last_offset: record.offset,
        at: found.at,
        size: found.size,
        magic: found.magic,
        time_label: record.time_label()?,
        timestamp: record.timestamp()?,
        codec: record.codec()?,
        crc: record.crc,
        is_valid: record.is_valid(),
    })
}

fn dump_record(
    (log, found): (&LogFile, Found),
    record: &OldRecord,
    time_label: &'static str,
    records: &mut Records<'_, '_>,
) -> Result<(), DumpError> {
    let fault = |error| at(log, found, OldFault::Bytes(error));
    let contents = match records.decoder {
        None => Ok(None),
        Some(decoder) => match (record.key(), record.value()) {
            (Ok(key), Ok(value)) => decoder
                .read(record.offset, key, value)
                .map(Some)
                .map_err(|error| LogFileError::corrupt(log.path(), error)),
            (Err(error), _) | (_, Err(error)) => match decoder.unread(record.offset, &error) {
                Some(contents) => Ok(Some(contents)),
                None => Err(fault(error)),
            },
        },
    };
    let timestamp = record.timestamp().map_err(fault)?;
    let (key_bytes, value_bytes) = match records.is_bare {
        // They aren't asked for.
        true => (-1, -1),
        false => (record.key_bytes().map_err(fault)?, record.value_bytes().map_err(fault)?),
    };
    let is_bare = records.is_bare;
    records.print_with(contents, |contents| RecordItem {
        offset: record.offset,
        time_label,
        timestamp,
        key_bytes: key_bytes.into(),
        value_bytes: value_bytes.into(),
        form: Form::Old { is_valid: record.is_valid(), crc: record.crc },
        is_bare,
        contents,
    })
}

fn read(log: &mut LogFile, found: Found) -> Result<OldRecord, LogFileError> {
    let bytes = log.bytes(found.at, found.size)?;
    OldRecord::read(bytes).map_err(|error| at(log, found, OldFault::Bytes(error)))
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
    let record = read(log, found)?;
    let (last_offset, is_valid) = (record.offset, record.is_valid());
    let read = record.inner().and_then(|inner| {
        let mut max_timestamp = -1;
        for record in &inner {
            max_timestamp = record.timestamp()?.max(max_timestamp);
        }
        Ok((inner.first().map_or(last_offset, |it| it.offset), max_timestamp))
    });
    let (first_offset, max_timestamp) = read.map_err(|error| at(log, found, error))?;
    Ok(OldBatch { first_offset, last_offset, max_timestamp, is_valid })
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
        assert!(record.is_valid() && record.codec().expect("known") == Codec::Gzip);
        let inner = record.inner().expect("two records");
        let offsets: Vec<i64> = inner.iter().map(|it| it.offset).collect();
        assert_eq!(offsets, [40, 41]);
        assert!(inner.iter().all(|it| it.is_valid() && it.timestamp() == Ok(1_000)));
    }

    #[test]
    fn format_0_has_no_timestamp() {
        let record = OldRecord::read(&entry(7, 0, 0, b"k", b"v")).expect("well formed");
        assert_eq!(record.timestamp(), Ok(-1));
        assert_eq!(record.time_label().expect("format 0"), "NoTimestampType");
        let unknown = OldRecord::read(&entry(7, -128, 0, b"k", b"v")).expect("has a head");
        assert!(matches!(unknown.time_label(), Err(OldFault::Magic(-128))));
        assert_eq!((record.key(), record.value()), (Ok(Some(&b"k"[..])), Ok(Some(&b"v"[..]))));
        let cut = OldRecord::read(&entry(7, 0, 0, b"k", b"v")[..20]).expect("has a head");
        assert!(cut.key_bytes().is_err() && cut.value_bytes().is_err());
    }

    #[test]
    fn the_offset_of_a_packed_record_is_not_below_those_inside() {
        let inner = [entry(0, 1, 0, b"k", b"v"), entry(7, 1, 0, b"k", b"w")].concat();
        let packed = codec::compress(Codec::Gzip, codec::Levels::default(), &inner);
        let packed = packed.expect("gzip takes everything");
        let offsets = |outer| {
            let record = OldRecord::read(&entry(outer, 1, 1, b"", &packed)).expect("well formed");
            record.inner().map(|it| it.iter().map(|it| it.offset).collect::<Vec<_>>())
        };
        assert!(matches!(offsets(6), Err(OldFault::Offset { outer: 6, last: 7 })));
        assert_eq!(offsets(0).expect("as librdkafka once sent it"), [0, 7]);
        assert_eq!(offsets(8).expect("two"), [1, 8]);
    }
}
