//! The names in a partition's directory: leftovers removed, interrupted swaps finished, segments
//! found (`LogLoader#load`, passes 1 to 4).

use std::collections::{BTreeMap, BTreeSet};

use super::files::Files;
use super::report::{OpenError, RecoveryReport};
use super::walk::{Rebuilt, Walk, Window};
use crate::disk::Listed;
use crate::format::names::{FileKind, SegmentFile, Suffix};
use crate::log::housekeeping::TEMPORARY_SUFFIX;
use crate::log::segment::IndexBytes;
use crate::units::{ByteCount, Offset, Position};

/// A segment as its directory shows it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub log_bytes: ByteCount,
    pub modified_ms: i64,
    pub index_bytes: Option<ByteCount>,
    pub time_index_bytes: Option<ByteCount>,
    pub has_snapshot: bool,
    pub txn_index_bytes: Option<ByteCount>,
}

/// What is in the directory once it is tidy.
#[derive(Debug, Default)]
pub(super) struct Directory {
    pub segments: BTreeMap<Offset, Seen>,
    /// Lengths of producer snapshots, by offset.
    pub snapshots: BTreeMap<Offset, ByteCount>,
    /// Lengths of the partition's other files, by name.
    pub others: BTreeMap<String, ByteCount>,
    /// Bases of the offset indexes that a finished swap brought.
    pub swapped: BTreeSet<Offset>,
}

impl Directory {
    /// Lengths of the `.txnindex` files, by base.
    pub fn txn_indexes(&self) -> BTreeMap<Offset, ByteCount> {
        let segments = self.segments.iter();
        segments.filter_map(|(base, seen)| Some((*base, seen.txn_index_bytes?))).collect()
    }

    /// Bases of the segments that lacked an offset index when they were found.
    pub fn unindexed(&self) -> BTreeSet<Offset> {
        let segments = self.segments.iter().filter(|(_, seen)| seen.index_bytes.is_none());
        segments.map(|(base, _)| *base).filter(|base| !self.swapped.contains(base)).collect()
    }

    /// Lists and tidies. Everything it does can be done again.
    pub fn tidy(
        files: &mut Files<'_>,
        report: &mut RecoveryReport,
    ) -> Result<Directory, OpenError> {
        let listed = files.list()?;
        let cleaned_min = segment_files(&listed)
            .filter(|(file, _)| file.suffix == Suffix::Cleaned)
            .map(|(file, _)| file.base)
            .min();
        for (file, entry) in segment_files(&listed) {
            let is_leftover = match file.suffix {
                Suffix::None => false,
                Suffix::Deleted | Suffix::Cleaned => true,
                Suffix::Swap => cleaned_min.is_some_and(|min| min <= file.base),
            };
            if is_leftover {
                remove(files, report, &entry.name)?;
            }
        }
        for entry in listed.iter().filter(|entry| entry.name.ends_with(TEMPORARY_SUFFIX)) {
            remove(files, report, &entry.name)?;
        }
        let swapped = finish_swaps(files, report)?;
        let listed = files.list()?;
        let directory = Directory { swapped, ..Directory::of(&listed) };
        remove_orphans(files, report, &directory, &listed)?;
        Ok(directory)
    }

    fn of(listed: &[Listed]) -> Directory {
        let mut directory = Directory::default();
        for entry in listed.iter().filter(|entry| !entry.is_directory) {
            let Some(file) = SegmentFile::parse(&entry.name) else {
                directory.others.insert(entry.name.clone(), entry.length);
                continue;
            };
            if file.suffix == Suffix::None && file.kind == FileKind::Log {
                let (log_bytes, modified_ms) = (entry.length, entry.modified_ms);
                let seen = Seen { log_bytes, modified_ms, ..Seen::default() };
                directory.segments.insert(file.base, seen);
            }
        }
        for (file, entry) in segment_files(listed) {
            if (file.kind, file.suffix) == (FileKind::Snapshot, Suffix::None) {
                directory.snapshots.insert(file.base, entry.length);
            }
            let seen = directory.segments.get_mut(&file.base);
            let Some(seen) = seen.filter(|_| file.suffix == Suffix::None) else { continue };
            match file.kind {
                FileKind::Log => {}
                FileKind::Index => seen.index_bytes = Some(entry.length),
                FileKind::TimeIndex => seen.time_index_bytes = Some(entry.length),
                FileKind::TxnIndex => seen.txn_index_bytes = Some(entry.length),
                FileKind::Snapshot => seen.has_snapshot = true,
            }
        }
        directory
    }
}

fn segment_files(listed: &[Listed]) -> impl Iterator<Item = (SegmentFile, &Listed)> {
    let files = listed.iter().filter(|entry| !entry.is_directory);
    files.filter_map(|entry| Some((SegmentFile::parse(&entry.name)?, entry)))
}

fn remove(files: &mut Files<'_>, report: &mut RecoveryReport, name: &str) -> Result<(), OpenError> {
    files.remove(name)?;
    report.removed.push(name.to_owned());
    Ok(())
}

/// A compaction that was interrupted when its output was complete: what the output replaces goes,
/// the output gets its final names. Returns the bases of its offset indexes, which are rebuilt.
fn finish_swaps(
    files: &mut Files<'_>,
    report: &mut RecoveryReport,
) -> Result<BTreeSet<Offset>, OpenError> {
    let listed = files.list()?;
    let swaps: Vec<_> =
        segment_files(&listed).filter(|(file, _)| file.suffix == Suffix::Swap).collect();
    let logs = swaps.iter().filter(|(file, _)| file.kind == FileKind::Log);
    let mut range: Option<(Offset, Offset)> = None;
    for (file, entry) in logs {
        let next = next_of(files, file.base, entry)?;
        let (low, high) = range.unwrap_or((file.base, next));
        range = Some((low.min(file.base), high.max(next)));
    }
    let Some((low, high)) = range else {
        for (file, entry) in swaps {
            files.rename(&entry.name, &file.with(Suffix::None).to_string())?;
        }
        return Ok(BTreeSet::new());
    };
    for (file, entry) in segment_files(&listed) {
        if file.suffix == Suffix::None && low <= file.base && file.base < high {
            remove(files, report, &entry.name)?;
        }
    }
    let indexes = swaps.iter().filter(|(file, _)| file.kind == FileKind::Index);
    let indexed = indexes.map(|(file, _)| file.base).collect();
    // Kafka keeps the indexes as they are, and one that was cut short for good; here they are
    // rebuilt.
    for (file, entry) in swaps {
        match file.kind {
            FileKind::Index | FileKind::TimeIndex => remove(files, report, &entry.name)?,
            FileKind::Log | FileKind::TxnIndex | FileKind::Snapshot => {
                files.rename(&entry.name, &file.with(Suffix::None).to_string())?;
            }
        }
    }
    files.sync_directory()?;
    Ok(indexed)
}

/// The offset after the last batch of a `.log`.
fn next_of(files: &mut Files<'_>, base: Offset, entry: &Listed) -> Result<Offset, OpenError> {
    let file = files.open(&entry.name)?;
    let walk = Walk {
        base,
        interval: ByteCount(u64::MAX),
        checked_from: Position(u64::MAX),
        limit: Offset::MAX,
        existing: &IndexBytes::default(),
    };
    let mut window = Window::new(file, entry.length);
    let walked = walk.run(files, &mut window, &mut Rebuilt::default())?;
    files.close(file)?;
    Ok(walked.next)
}

/// Index files without their `.log`.
fn remove_orphans(
    files: &mut Files<'_>,
    report: &mut RecoveryReport,
    directory: &Directory,
    listed: &[Listed],
) -> Result<(), OpenError> {
    for (file, entry) in segment_files(listed) {
        let is_index =
            matches!(file.kind, FileKind::Index | FileKind::TimeIndex | FileKind::TxnIndex);
        if is_index && !directory.segments.contains_key(&file.base) {
            remove(files, report, &entry.name)?;
        }
    }
    Ok(())
}
