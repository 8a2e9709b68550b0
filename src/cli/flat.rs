//! `uringlog decode-flat`: a record layout that some introductions to Kafka's files show, and that
//! no broker has written since 0.8, if ever. People try to read a `.log` by it, or write files in
//! it; this says what its fields would be.
//!
//! ```text
//! offset i64 [size i32] key size i32, key, value size i32, value, timestamp i64, CRC-32 u32
//! ```
//!
//! The size behind the offset stands in some of these texts and not in others: whichever reading
//! gets further is taken.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::cli::log_file::{LogFile, LogFileError, read_whole};
use crate::cli::object::{long, number, object, or_null, text};
use crate::format::batch::MAGIC_V2;
use crate::format::compact::{CompactError, Reader};
use crate::format::schema::Value;
use crate::units::u64_of;

/// Characters of a key or value that are shown.
const SHOWN_MAX: usize = 60;

/// Why a file isn't decoded.
#[derive(Debug, thiserror::Error)]
pub enum FlatError {
    /// It can't be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// As the system says.
        error: io::Error,
    },
    /// Not a single record of the layout stands at its beginning.
    #[error(
        "{}: not a record of the flat layout at its beginning: {error}; `uringlog dump` reads \
         Kafka's own files",
        path.display()
    )]
    NotFlat {
        /// Which.
        path: PathBuf,
        /// What is wrong with the first one.
        error: CompactError,
    },
    /// Kafka could have written it.
    #[error("{} begins with a batch of Kafka's: `uringlog dump` reads it", .0.display())]
    Kafkas(PathBuf),
    /// There is nothing in it.
    #[error("{} is empty: no record stands in it, of this layout or another", .0.display())]
    Empty(PathBuf),
    /// Standard output can't be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// A record of the layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Record<'a> {
    offset: i64,
    size: Option<i32>,
    key: &'a [u8],
    value: &'a [u8],
    timestamp: i64,
    crc: u32,
    /// Whether the CRC-32 is that of all bytes before it.
    is_valid: bool,
}

/// How far a reading of the file got.
struct Reading<'a> {
    records: Vec<(usize, Record<'a>)>,
    end: usize,
    error: Option<CompactError>,
}

fn record<'a>(bytes: &'a [u8], has_size: bool) -> Result<(Record<'a>, usize), CompactError> {
    let mut reader = Reader::new(bytes);
    let offset = reader.i64()?;
    let size = if has_size { Some(reader.i32()?) } else { None };
    let part = |reader: &mut Reader<'a>| {
        let length = u32::from_be_bytes(reader.array()?);
        reader.take(usize::try_from(length).expect("32 bits fit"))
    };
    let (key, value) = (part(&mut reader)?, part(&mut reader)?);
    let timestamp = reader.i64()?;
    let covered = bytes.len() - reader.left();
    let crc = u32::from_be_bytes(reader.array()?);
    let mut computed = flate2::Crc::new();
    computed.update(&bytes[..covered]);
    let is_valid = computed.sum() == crc;
    let record = Record { offset, size, key, value, timestamp, crc, is_valid };
    Ok((record, bytes.len() - reader.left()))
}

fn read(bytes: &[u8], has_size: bool) -> Reading<'_> {
    let mut reading = Reading { records: Vec::new(), end: 0, error: None };
    while reading.end < bytes.len() {
        match record(&bytes[reading.end..], has_size) {
            // Two lies in a row would be needed for this to be another format.
            Ok((record, _)) if record.offset < 0 => {
                reading.error = Some(CompactError::Truncated);
                break;
            }
            Ok((record, length)) => {
                reading.records.push((reading.end, record));
                reading.end += length;
            }
            Err(error) => {
                reading.error = Some(error);
                break;
            }
        }
    }
    reading
}

/// The reading that gets further.
fn best(bytes: &[u8]) -> Reading<'_> {
    let (plain, sized) = (read(bytes, false), read(bytes, true));
    if plain.end < sized.end { sized } else { plain }
}

impl Reading<'_> {
    /// Whether bytes are of this layout: all of them, or some that a checksum vouches for.
    fn is_flat(&self) -> bool {
        let has_checksum = self.records.iter().any(|(_, record)| record.is_valid);
        !self.records.is_empty() && (self.error.is_none() || has_checksum)
    }
}

/// Whether the bytes read as records of this layout, at least from the first on. Zeros do, too, and
/// are what a broker preallocates.
pub fn is_flat(bytes: &[u8]) -> bool {
    bytes.iter().any(|it| *it != 0) && best(bytes).is_flat()
}

/// Whether a file begins with what could be a batch of Kafka's.
///
/// # Errors
/// `LogFileError::Read`.
pub fn begins_with_batch(log: &mut LogFile) -> Result<bool, LogFileError> {
    match log.batch(0, log.length()) {
        Ok(found) => Ok(found.is_some_and(|it| (0..=MAGIC_V2).contains(&it.magic))),
        Err(LogFileError::Corrupt { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Prints the records of a file that holds nothing else, or at least begins with one.
///
/// # Errors
/// [`FlatError`].
pub fn run(path: &Path, out: &mut dyn Write) -> Result<(), FlatError> {
    let unread = |error| FlatError::Read { path: path.to_owned(), error };
    let bytes = read_whole(path).map_err(unread)?;
    let is_kafkas = LogFile::open(path).and_then(|mut log| begins_with_batch(&mut log));
    if is_kafkas.unwrap_or(false) && !is_flat(&bytes) {
        return Err(FlatError::Kafkas(path.to_owned()));
    }
    print(path, &bytes, false, out)
}

/// The same with the file's bytes; as JSON, one object a line.
///
/// # Errors
/// [`FlatError`].
pub fn print(path: &Path, bytes: &[u8], json: bool, out: &mut dyn Write) -> Result<(), FlatError> {
    if bytes.is_empty() {
        return Err(FlatError::Empty(path.to_owned()));
    }
    let reading = best(bytes);
    if !reading.is_flat() {
        let error = reading.error.unwrap_or(CompactError::Truncated);
        return Err(FlatError::NotFlat { path: path.to_owned(), error });
    }
    let what = "no Kafka segment: its records stand alone, without batches, as in no version of \
                Kafka since 0.8. A broker would cut it off at its first byte.";
    if json {
        let about = [("file", text(path.display())), ("what", text(what))];
        writeln!(out, "{}", object("flatFile", about).to_json())?;
    } else {
        writeln!(out, "{} is {what}", path.display())?;
    }
    for (at, record) in &reading.records {
        if json { write_json(*at, record, out)? } else { write_text(*at, record, out)? }
    }
    let Some(error) = reading.error else { return Ok(()) };
    let left = bytes.len() - reading.end;
    if json {
        let position = long(u64_of(reading.end));
        let about = [("position", position), ("bytes", long(u64_of(left))), ("what", text(error))];
        writeln!(out, "{}", object("noRecord", about).to_json())?;
    } else {
        writeln!(out, "the {left} bytes from position {} on are no record: {error}", reading.end)?;
    }
    Ok(())
}

fn write_text(at: usize, record: &Record<'_>, out: &mut dyn Write) -> io::Result<()> {
    let size = record.size.map(|it| format!(" size: {it}")).unwrap_or_default();
    writeln!(
        out,
        "position: {at} offset: {}{size} keySize: {} key: {} valueSize: {} value: {} timestamp: {} \
         crc: {} ({})",
        record.offset,
        record.key.len(),
        shown(record.key),
        record.value.len(),
        shown(record.value),
        record.timestamp,
        record.crc,
        if record.is_valid {
            "that of the bytes before it"
        } else {
            "not the CRC-32 of the bytes before it"
        },
    )
}

fn write_json(at: usize, record: &Record<'_>, out: &mut dyn Write) -> io::Result<()> {
    let fields = [
        ("position", long(u64_of(at))),
        ("offset", number(record.offset)),
        ("size", or_null(record.size.map(i64::from))),
        ("key", text(String::from_utf8_lossy(record.key))),
        ("value", text(String::from_utf8_lossy(record.value))),
        ("timestamp", number(record.timestamp)),
        ("crc", number(record.crc)),
        ("isValid", Value::Bool(record.is_valid)),
    ];
    writeln!(out, "{}", object("flatRecord", fields).to_json())
}

fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown: String = text.chars().take(SHOWN_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flat(offset: i64, key: &[u8], value: &[u8], has_size: bool) -> Vec<u8> {
        let mut out = offset.to_be_bytes().to_vec();
        if has_size {
            out.extend_from_slice(&77_i32.to_be_bytes());
        }
        for part in [key, value] {
            out.extend_from_slice(&u32::try_from(part.len()).expect("short").to_be_bytes());
            out.extend_from_slice(part);
        }
        out.extend_from_slice(&1_700_000_000_000_i64.to_be_bytes());
        let mut crc = flate2::Crc::new();
        crc.update(&out);
        out.extend_from_slice(&crc.sum().to_be_bytes());
        out
    }

    #[test]
    fn of_an_empty_file_nothing_is_claimed() {
        let refused = print(Path::new("empty"), &[], false, &mut Vec::new());
        assert!(matches!(refused, Err(FlatError::Empty(_))));
    }

    fn printed(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        print(Path::new("f.log"), bytes, false, &mut out).expect("flat");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn fields_are_shown_with_and_without_a_size() {
        for has_size in [false, true] {
            let bytes = [flat(0, b"k", b"v\n", has_size), flat(1, b"", b"w", has_size)].concat();
            assert!(is_flat(&bytes));
            let text = printed(&bytes);
            assert!(text.starts_with("f.log is no Kafka segment"), "{text}");
            assert!(text.contains("keySize: 1 key: k valueSize: 2 value: v\\n timestamp: 17"));
            assert_eq!(text.matches("(that of the bytes before it)").count(), 2, "{text}");
            assert_eq!(text.contains("size: 77"), has_size, "{text}");
        }
    }

    #[test]
    fn a_torn_record_is_told_of_and_another_format_refused() {
        let bytes = [flat(0, b"k", b"v", false), vec![1, 2, 3]].concat();
        assert!(is_flat(&bytes), "its checksum says so");
        let mut wrong = bytes.clone();
        wrong[12] ^= 1;
        assert!(!is_flat(&wrong) && !is_flat(&[0; 320]));
        assert!(printed(&bytes).contains("the 3 bytes from position 30 on"), "{}", printed(&bytes));
        let mut out = Vec::new();
        let error = print(Path::new("f.log"), &[0xff; 40], false, &mut out).expect_err("not flat");
        assert!(error.to_string().contains("not a record of the flat layout"));
    }

    #[test]
    fn a_segment_of_kafkas_is_not_called_flat() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("00000000000000000000.log");
        // An offset, and 40 bytes of format 2 in a batch, which read as a key.
        let batch = [&[0; 11][..], &[40], &[0, 0, 0, 0, 2], &[7; 35], &[0; 60]].concat();
        std::fs::write(&path, &batch).expect("written");
        let refused = run(&path, &mut Vec::new());
        assert!(matches!(refused, Err(FlatError::Kafkas(_))), "{refused:?}");
    }

    #[test]
    fn every_line_of_json_is_an_object() {
        let bytes = [flat(0, b"k\"", b"v\n", true), vec![1, 2, 3]].concat();
        let mut out = Vec::new();
        print(Path::new("f.log"), &bytes, true, &mut out).expect("flat");
        let out = String::from_utf8(out).expect("text");
        let kinds: Vec<&str> = out.lines().filter_map(|it| it.split('"').nth(3)).collect();
        assert_eq!(kinds, ["flatFile", "flatRecord", "noRecord"], "{out}");
        assert!(out.contains(r#""key":"k\"","value":"v\n","timestamp":17"#), "{out}");
        assert!(out.lines().all(|it| it.starts_with('{') && it.ends_with('}')), "{out}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut out = Vec::new();
            let _ = print(Path::new("f.log"), &bytes, true, &mut out);
        }
    }
}
