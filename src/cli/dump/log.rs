//! `.log` files and KRaft snapshots.

use std::borrow::Cow;
use std::path::Path;

use super::contents::Decoder;
use super::items::{self, BatchItem, Control, Form, Item, RecordItem};
use super::{DumpError, DumpOptions, Findings, Printer};
use super::{absolute, base_of, bytes_of, java, legacy, shallow};
use crate::cli::flat;
use crate::cli::log_file::{Found, LogFile, LogFileError};
use crate::format::batch::{BatchError, BatchHeader, Codec, HEADER_BYTES, MAGIC_V2};
use crate::format::codec;
use crate::format::compact::{CompactError, Reader};
use crate::format::record::{RecordError, RecordView, RecordsIter};
use crate::format::schema::{self, Value};
use crate::format::{control, id};
use crate::units::{ByteCount, Sequence, u64_of, usize_of};

/// Unpacked bytes of one batch, at most: what a signed number of 32 bits counts.
pub const UNPACKED_BYTES_MAX: ByteCount = ByteCount(1 << 31);

/// Longest file that is tried by the flat layout, which nobody has in earnest.
const FLAT_BYTES_MAX: u64 = 64 << 20;

const BOOTSTRAP: &str = "bootstrap.checkpoint";

/// Where records of a file go, whatever their format.
pub struct Records<'a, 'b> {
    pub printer: &'a mut Printer<'b>,
    pub findings: &'a mut Findings,
    pub decoder: Option<Decoder>,
    pub is_bare: bool,
    name: String,
    last_offset: i64,
}

impl Records<'_, '_> {
    /// Prints a record with what it was read to say besides, and notes when its offset doesn't
    /// follow that of the record before it. When that can't be read the line ends before it.
    ///
    /// # Errors
    /// [`DumpError`].
    pub fn print_with<'c, T: Default>(
        &mut self,
        said: Result<T, LogFileError>,
        item: impl FnOnce(T) -> RecordItem<'c>,
    ) -> Result<(), DumpError> {
        let (said, fault) = match said {
            Ok(said) => (said, None),
            Err(error) => (T::default(), Some(error)),
        };
        let record = item(said);
        if Some(record.offset) != self.last_offset.checked_add(1) {
            self.findings.gaps.entry(&self.name).insert(self.last_offset, record.offset);
        }
        self.last_offset = record.offset;
        let item = Item::Record(&record);
        let Some(fault) = fault else { return self.printer.print(&item) };
        self.printer.print_unfinished(|out| item.write_text(out))?;
        Err(fault.into())
    }
}

/// Prints every batch of the file, and its records when they are asked for.
///
/// # Errors
/// [`DumpError`].
pub fn dump(
    path: &Path,
    options: &DumpOptions,
    printer: &mut Printer<'_>,
    findings: &mut Findings,
) -> Result<(), DumpError> {
    head(path, printer)?;
    let mut log = LogFile::open(path)?;
    let end = match options.max_bytes {
        Some(limit) => bytes_of(path, "--max-bytes", limit)?.min(log.length()),
        None => log.length(),
    };
    let mut records = Records {
        printer,
        findings,
        decoder: options.contents,
        is_bare: options.skips_metadata,
        name: absolute(path),
        last_offset: -1,
    };
    let mut at = 0;
    if is_flat(&mut log)? {
        let bytes = log.bytes(0, log.length())?.to_vec();
        let json = records.printer.json;
        flat::print(path, &bytes, json, records.printer.out)
            .map_err(|it| LogFileError::corrupt(path, it))?;
        return Err(
            LogFileError::corrupt(path, "no Kafka segment, see `uringlog decode-flat`").into()
        );
    }
    if options.is_deep {
        while let Some(found) = log.batch(at, end)? {
            if found.magic < MAGIC_V2 {
                legacy::dump_batch(&mut log, found, true, &mut records)?;
            } else {
                dump_batch(&mut log, found, &mut records)?;
            }
            at = found.end();
        }
    } else {
        at = shallow::dump(&mut log, end, &mut records)?;
    }
    if at < end && options.max_bytes.is_none() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        records.printer.print(&Item::Trailing { bytes: end - at, name })?;
    }
    Ok(())
}

/// Whether a file that no batch begins is one of those that `decode-flat` reads.
fn is_flat(log: &mut LogFile) -> Result<bool, LogFileError> {
    let length = log.length();
    if flat::begins_with_batch(log)? || length == 0 || FLAT_BYTES_MAX < length {
        return Ok(false);
    }
    Ok(flat::is_flat(log.bytes(0, length)?))
}

/// What the name says.
fn head(path: &Path, printer: &mut Printer<'_>) -> Result<(), DumpError> {
    let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
    let item = match name.strip_suffix(".checkpoint") {
        None => Item::LogStart(base_of(path)?),
        Some(_) if name == BOOTSTRAP => Item::Bootstrap,
        Some(numbers) => {
            let parts = numbers.split_once('-');
            let parsed =
                parts.and_then(|(offset, epoch)| Some((offset.parse().ok()?, epoch.parse().ok()?)));
            let (offset, epoch) = parsed.ok_or_else(|| {
                let what = "a snapshot's name is its end offset, a hyphen and its epoch";
                LogFileError::corrupt(path, what)
            })?;
            Item::SnapshotEnd { offset, epoch }
        }
    };
    printer.print(&item)
}

fn dump_batch(
    log: &mut LogFile,
    found: Found,
    records: &mut Records<'_, '_>,
) -> Result<(), DumpError> {
    let (header, is_valid) = log.header(found)?;
    let item = batch_item(log, found, header, records.printer)?;
    let item = BatchItem { is_valid, ..item };
    records.printer.print(&Item::Batch(&item))?;
    whole_header(log, found)?;
    if header.record_count == 0 {
        return Ok(());
    }
    let payload = payload(log, found, item.codec)?;
    let fault = |error| at(log, found, error);
    if item.codec != Codec::None {
        // Kafka reads all records of a packed batch before it shows the first.
        RecordsIter::new(&header, &payload).try_for_each(|it| it.map(drop)).map_err(fault)?;
    }
    let mut items = RecordsIter::new(&header, &payload).peekable();
    while let Some(record) = items.next() {
        let record = record.map_err(fault)?;
        // And looks for bytes behind the last record before it shows that one.
        if let Some(Err(error @ RecordError::BatchSurplus(_))) = items.peek() {
            return Err(fault(*error).into());
        }
        dump_record(log, found, (&item, &record), records)?;
    }
    Ok(())
}

/// What says that it has records must have a whole header. (What is shown of the batch itself is
/// read beyond its end, as Kafka does.)
fn whole_header(log: &LogFile, found: Found) -> Result<(), LogFileError> {
    let wanted = u64_of(HEADER_BYTES);
    match found.size < wanted {
        true => Err(at(log, found, format!("{} bytes, and a header has {wanted}", found.size))),
        false => Ok(()),
    }
}

/// A batch whose CRC isn't known to hold. One with a codec that doesn't exist ends Kafka's tool in
/// the middle of its line.
///
/// # Errors
/// [`DumpError`].
pub fn batch_item(
    log: &LogFile,
    found: Found,
    header: BatchHeader,
    printer: &mut Printer<'_>,
) -> Result<BatchItem, DumpError> {
    let item =
        |codec| BatchItem { header, magic: found.magic, at: found.at, codec, is_valid: false };
    match header.codec() {
        Ok(codec) => Ok(item(codec)),
        Err(error) => {
            printer.print_unfinished(|out| item(Codec::None).write_front(out))?;
            Err(at(log, found, error).into())
        }
    }
}

/// The records of a batch, unpacked.
///
/// # Errors
/// `LogFileError`.
pub fn payload(log: &mut LogFile, found: Found, codec: Codec) -> Result<Vec<u8>, LogFileError> {
    let bytes = log.bytes(found.at, found.size)?;
    let packed = bytes.get(HEADER_BYTES..).unwrap_or_default();
    let unpacked = codec::decompress(codec, packed, UNPACKED_BYTES_MAX).map(Cow::into_owned);
    unpacked.map_err(|error| at(log, found, error))
}

/// A fault of the batch, with its place.
pub fn at(log: &LogFile, found: Found, error: impl std::fmt::Display) -> LogFileError {
    LogFileError::corrupt(log.path(), format!("batch at position {}: {error}", found.at))
}

fn dump_record(
    log: &LogFile,
    found: Found,
    (batch, record): (&BatchItem, &RecordView<'_>),
    records: &mut Records<'_, '_>,
) -> Result<(), DumpError> {
    let header = &batch.header;
    let offset = header.base_offset.wrapping_add(record.offset_delta.into());
    let is_bare = records.is_bare;
    let said = match (header.is_control(), records.decoder) {
        (true, _) if is_bare => Ok((None, None)),
        (true, _) => {
            said_by(record).map(|it| (Some(it), None)).map_err(|error| at(log, found, error))
        }
        (false, None) => Ok((None, None)),
        (false, Some(decoder)) => {
            let contents = decoder.read(offset, record.key, record.value);
            let fault = |error| LogFileError::corrupt(log.path(), error);
            contents.map(|it| (None, Some(it))).map_err(fault)
        }
    };
    let header_keys = record.headers.map(|(key, _)| java::text(key)).collect();
    let sequence = sequence(header, record);
    records.print_with(said, |(control, contents)| RecordItem {
        offset,
        time_label: batch.time_label(),
        timestamp: record.timestamp.0,
        key_bytes: items::length(record.key),
        value_bytes: items::length(record.value),
        form: Form::New { sequence, header_keys, control },
        is_bare,
        contents,
    })
}

fn sequence(header: &BatchHeader, record: &RecordView<'_>) -> i32 {
    match Sequence(0) <= header.base_sequence {
        true => header.sequence_at(record.offset_delta).0,
        false => -1,
    }
}

/// What a control record says: its key has a version and a type.
fn said_by(record: &RecordView<'_>) -> Result<Control, ControlFault> {
    let kind = control::kind(record.key)?;
    let bytes = record.value.unwrap_or_default();
    let has_version = matches!(kind, control::ABORT | control::COMMIT);
    for part in [record.key.unwrap_or_default(), if has_version { bytes } else { &[0; 2] }] {
        let version = Reader::new(part).i16()?;
        if version < 0 {
            return Err(ControlFault::Version(version));
        }
    }
    let mut value = Reader::new(bytes);
    let name = match kind {
        control::ABORT | control::COMMIT => {
            let coordinator_epoch = control::coordinator_epoch(record.value)?;
            let commits = kind == control::COMMIT;
            return Ok(Control::Marker { commits, coordinator_epoch });
        }
        2 => "LeaderChange:",
        3 => "SnapshotHeader",
        4 => "SnapshotFooter",
        5 => "KRaftVersion",
        6 => "KRaftVoters",
        other => return Ok(Control::Unknown(other)),
    };
    // Kafka's tool reads every version as the first one, and shows what later ones have with its
    // default.
    let mut data = schema::CONTROL.values[&kind].decode_front(0, &mut value)?;
    if Reader::new(bytes).i16()? != 0 {
        add_directories(&mut data);
    }
    Ok(Control::Kraft(name, data))
}

/// What a leader change of version 1 says of voters besides.
fn add_directories(data: &mut Value) {
    let Some(Value::Number(1..)) = data.get("version") else { return };
    for list in ["voters", "grantingVoters"] {
        let Some(Value::List(voters)) = data.get_mut(list) else { continue };
        for voter in voters {
            let Value::Struct(fields) = voter else { continue };
            if fields.len() == 1 {
                fields.push(("voterDirectoryId", Value::Text(id::encode([0; 16]))));
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum ControlFault {
    #[error("a control record that is none: {0}")]
    Bytes(#[from] CompactError),
    #[error("a control record has version {0}, and none is below 0")]
    Version(i16),
    #[error("a control record: {0}")]
    Record(#[from] schema::SchemaError),
}

/// The largest timestamp among a batch's records, which the time index should have.
///
/// # Errors
/// [`LogFileError`].
pub fn largest_timestamp(log: &mut LogFile, found: Found) -> Result<i64, LogFileError> {
    if found.magic < MAGIC_V2 {
        return legacy::largest_timestamp(log, found);
    }
    let (header, _) = log.header(found)?;
    let codec = header.codec().map_err(|error: BatchError| at(log, found, error))?;
    whole_header(log, found)?;
    if header.record_count == 0 {
        return Ok(-1);
    }
    let payload = payload(log, found, codec)?;
    let mut largest = -1;
    for record in RecordsIter::new(&header, &payload) {
        largest = record.map_err(|error| at(log, found, error))?.timestamp.0.max(largest);
    }
    Ok(largest)
}

/// A batch's last offset.
///
/// # Errors
/// [`LogFileError`].
pub fn last_offset(log: &mut LogFile, found: Found) -> Result<i64, LogFileError> {
    if found.magic < MAGIC_V2 {
        return Ok(found.offset);
    }
    let whole = found.size.min(u64_of(HEADER_BYTES));
    let mut reader = Reader::new(log.bytes(found.at, whole)?);
    let delta = reader
        .take(usize_of(crate::cli::log_file::LAST_OFFSET_DELTA_AT))
        .and_then(|_| reader.i32());
    Ok(found.offset.wrapping_add(delta.unwrap_or_default().into()))
}
