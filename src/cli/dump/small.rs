//! Producer snapshots and transaction indexes.

use std::io::Write;
use std::path::Path;

use super::items::Item;
use super::{DumpError, Printer, java};
use crate::cli::log_file::{LogFileError, read_whole};
use crate::format::aborted::{self, AbortedError, AbortedTransaction};
use crate::format::compact::CompactError;
use crate::format::producer_snapshot::{self, SnapshotError};
use crate::units::u64_of;

/// Prints the producers of a snapshot; one that is damaged is told of, and no failure.
///
/// # Errors
/// [`DumpError`].
pub fn dump_snapshot(
    path: &Path,
    printer: &mut Printer<'_>,
    complaints: &mut dyn Write,
) -> Result<(), DumpError> {
    let bytes = read_whole(path).map_err(LogFileError::read(path))?;
    match producer_snapshot::decode(&bytes) {
        Ok(entries) => entries.iter().try_for_each(|it| printer.print(&Item::Producer(it))),
        Err(error) => {
            printer.out.flush()?;
            Ok(writeln!(complaints, "{}", complaint(&error))?)
        }
    }
}

/// As Kafka says it: without the file's name, which has just been printed.
fn complaint(error: &SnapshotError) -> String {
    let why = match error {
        SnapshotError::Crc { stored, computed } => {
            return format!(
                "Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed \
                 crc: {computed}"
            );
        }
        SnapshotError::Version(version) => {
            format!("Snapshot contained an unknown file version {version}")
        }
        SnapshotError::Count { count: ..0, .. } => {
            java::field_reason("producerEntries", CompactError::Null)
        }
        SnapshotError::Count { count, bytes } => {
            let announced = u64::from(count.unsigned_abs());
            java::field_reason("", CompactError::Items { announced, left: *bytes })
        }
        SnapshotError::Bytes(error) => java::field_reason("", *error),
    };
    format!("Snapshot failed schema validation: {why}")
}

/// Prints the whole entries of a transaction index, or none when one of them is of a newer version.
/// Of a version Kafka's tool looks at the first byte only.
///
/// # Errors
/// [`DumpError`].
pub fn dump_aborted(path: &Path, printer: &mut Printer<'_>) -> Result<(), DumpError> {
    let bytes = read_whole(path).map_err(LogFileError::read(path))?;
    let version = |entry: AbortedTransaction| entry.version >> u8::BITS;
    let entries = || aborted::whole_entries(&bytes).map(|it| (it, version(it)));
    if let Some(entry) = entries().position(|it| aborted::VERSION < it.1) {
        let version = entries().nth(entry).map_or(0, |it| it.1);
        let error = AbortedError::Version { entry: u64_of(entry), version };
        return Err(LogFileError::corrupt(path, error).into());
    }
    for (entry, version) in entries() {
        printer.print(&Item::Aborted(&AbortedTransaction { version, ..entry }))?;
    }
    Ok(())
}
