//! Producer snapshots and transaction indexes.

use std::io::Write;
use std::path::Path;

use super::items::Item;
use super::{DumpError, Printer};
use crate::cli::log_file::{LogFileError, read_whole};
use crate::format::aborted;
use crate::format::producer_snapshot::{self, SnapshotError};

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
            Ok(writeln!(complaints, "{}", complaint(path, &error))?)
        }
    }
}

/// As Kafka says it where it says anything: without the file's name, which has just been printed.
/// Of a file that is too short it shows a Java exception.
fn complaint(path: &Path, error: &SnapshotError) -> String {
    match error {
        SnapshotError::Crc { stored, computed } => format!(
            "Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: \
             {computed}"
        ),
        SnapshotError::Version(version) => format!(
            "Snapshot failed schema validation: Snapshot contained an unknown file version \
             {version}"
        ),
        SnapshotError::Count { .. } | SnapshotError::Bytes(_) => {
            format!("Snapshot file '{}' is corrupted: {error}", path.display())
        }
    }
}

/// Prints the entries of a transaction index.
///
/// # Errors
/// [`DumpError`].
pub fn dump_aborted(path: &Path, printer: &mut Printer<'_>) -> Result<(), DumpError> {
    let bytes = read_whole(path).map_err(LogFileError::read(path))?;
    for entry in aborted::entries(&bytes) {
        let entry = entry.map_err(|error| LogFileError::corrupt(path, error))?;
        printer.print(&Item::Aborted(&entry))?;
    }
    Ok(())
}
