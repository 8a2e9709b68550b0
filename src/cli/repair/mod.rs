//! `uringlog repair`: a log directory brought in order without a server, in a copy, or in place
//! with a backup of every partition that is changed.
//!
//! The work is that of a start ([`PartitionLog::open`]) which trusts nothing: every checksum is
//! computed, torn tails are cut off, damaged ranges set aside in files of their own, indexes and
//! producer snapshots rebuilt. What was lost is said exactly, and stays as [`REPORT_FILE`] with the
//! copy, or with the backup.

pub mod args;
mod checkpoints;
mod copy;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use checkpoints::Repaired;

use crate::broker::config::{ServerConfig, TopicConfigs};
use crate::cli::explain;
use crate::cli::holder;
use crate::cli::log_file::read_whole;
use crate::disk::Disk;
use crate::disk::lock::{DirectoryLock, LockError};
use crate::disk::plain::PlainDisk;
use crate::format::names::{DirectoryState, PartitionDirectory};
use crate::format::{clean_shutdown, partition_metadata};
use crate::log::{LogSpec, OpenError, Opening, PartitionLog, RecoveryReport};
use crate::units::{LeaderEpoch, Timestamp, TopicId};

/// Files that are open at the same time, at most.
const FILES_MAX: usize = 64;
/// What follows the directory's name in that of the folder with copies of what is changed.
const BACKUP_SUFFIX: &str = ".before-repair";
/// Exit status when something could not be repaired, or nothing at all.
pub const NOT_REPAIRED: u8 = 2;
/// What was done, as it was printed. Kafka passes over files in a log directory's root.
pub const REPORT_FILE: &str = "repair-report.txt";

/// What the command line says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RepairOptions {
    /// A log directory, or the folder of one partition.
    pub directory: PathBuf,
    /// Where the repaired copy goes; `None` repairs in place.
    pub to: Option<PathBuf>,
    /// The time of the repair, in ms since 1970.
    pub now: i64,
}

/// Why a repair ends early.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// A file or folder.
    #[error("cannot {what} {}: {error}", path.display())]
    Io {
        /// Read, copy, ...
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// As the system says.
        error: io::Error,
    },
    /// The copy would be mixed with what is there.
    #[error("{} is there already: name a folder that isn't", .0.display())]
    Exists(PathBuf),
    /// A copy inside of what is copied.
    #[error(
        "{} lies inside of the directory that is repaired: name a place outside of it",
        .0.display()
    )]
    Inside(PathBuf),
    /// A server runs on the directory.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Nothing to repair.
    #[error(
        "{} is no log directory and no folder of a partition: there is no .log file in it, nor in \
         a folder named like a partition (topic-0); name one with",
        .0.display()
    )]
    NoLogs(PathBuf),
    /// Standard output can't be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// What came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Partitions of which something is lost.
    pub lossy: usize,
    /// Partitions that could not be repaired.
    pub failed: usize,
}

impl Outcome {
    /// As [`Verdict`](crate::cli::verify::Verdict) has it: 0 when nothing is lost, 1 when something
    /// is, 2 when a partition could not be repaired.
    pub fn exit_status(self) -> u8 {
        match self {
            Outcome { failed: 1.., .. } => NOT_REPAIRED,
            Outcome { lossy: 1.., .. } => 1,
            Outcome { lossy: 0, failed: 0 } => 0,
        }
    }
}

/// Repairs, and says what was done to each partition.
///
/// # Errors
/// [`RepairError`].
pub fn run(options: &RepairOptions, out: &mut dyn Write) -> Result<Outcome, RepairError> {
    let source = &options.directory;
    let is_single = partition_of(source).is_some() && has_log(source);
    let (target, lock) = match &options.to {
        Some(to) => {
            copy::check(source, to)?;
            // The name of a partition's folder says what it is.
            let target = match is_single {
                true => to.join(source.file_name().unwrap_or_default()),
                false => to.clone(),
            };
            copy::tree(source, &target).inspect_err(|_| {
                // Nothing was there before; half a copy would be in the way of the next try.
                let _ = std::fs::remove_dir_all(to);
            })?;
            (target, None)
        }
        None => {
            let root = if is_single { parent(source) } else { source.clone() };
            (source.clone(), Some(DirectoryLock::acquire(&root)?))
        }
    };
    let held = match (&options.to, is_single) {
        (None, _) => None,
        (Some(_), true) => holder::of_partition(source),
        (Some(_), false) => holder::of(source),
    };
    let folders = if is_single { vec![target.clone()] } else { partitions(&target)? };
    if folders.is_empty() {
        return Err(RepairError::NoLogs(source.clone()));
    }
    if !is_single {
        // The next start must look for itself: partitions may have been left as they are.
        remove(&target.join(clean_shutdown::FILE_NAME))?;
    }
    let (mut outcome, mut report, mut repaired) = (Outcome::default(), Vec::new(), Vec::new());
    if let Some(held) = held {
        writeln!(report, "{}: {held}", source.display())?;
    }
    for folder in &folders {
        match repair(folder, options, &mut outcome, &mut report) {
            Ok(found) => repaired.extend(found),
            Err(error) => {
                out.write_all(&report)?;
                return Err(error);
            }
        }
    }
    // Beside what was saved, or beside what was made.
    let backups = backup_of(&folders[0]);
    let backups = options.to.is_none().then(|| parent(&backups));
    if !is_single {
        for what in checkpoints::settle(&target, &repaired, backups.as_deref())? {
            writeln!(report, "{what}")?;
        }
    }
    let (count, Outcome { lossy, failed }) = (folders.len(), outcome);
    let partitions = if count == 1 { "partition" } else { "partitions" };
    writeln!(report, "{count} {partitions}: {lossy} with losses, {failed} not repaired")?;
    out.write_all(&report)?;
    let beside = backups.or_else(|| options.to.clone()).unwrap_or_default();
    let path = beside.join(REPORT_FILE);
    let failed = |error| RepairError::Io { what: "write", path: path.clone(), error };
    std::fs::write(&path, &report).map_err(failed)?;
    writeln!(out, "the same stands in {}", path.display())?;
    drop(lock);
    Ok(outcome)
}

/// Where a partition is copied to before it is repaired in place: beside the log directory, since
/// Kafka refuses to start with a strange folder in it.
fn backup_of(folder: &Path) -> PathBuf {
    let root = parent(folder);
    let mut beside = root.file_name().unwrap_or_default().to_owned();
    beside.push(BACKUP_SUFFIX);
    parent(&root).join(beside).join(folder.file_name().unwrap_or_default())
}

/// One partition.
fn repair(
    folder: &Path,
    options: &RepairOptions,
    outcome: &mut Outcome,
    out: &mut dyn Write,
) -> Result<Option<Repaired>, RepairError> {
    let name = folder.display();
    if options.to.is_none() {
        let backup = backup_of(folder);
        if backup.exists() {
            return Err(RepairError::Exists(backup));
        }
        copy::tree(folder, &backup)?;
        writeln!(out, "{name}: copied to {} first", backup.display())?;
    }
    match open_and_close(folder, Timestamp(options.now)) {
        Ok(report) => {
            outcome.lossy += usize::from(report.is_lossy());
            writeln!(out, "{name}: {report}")?;
            for removed in &report.removed {
                writeln!(out, "{name}: {removed} was a leftover or damaged, and is gone")?;
            }
            let (start, end) = (report.log_start, report.log_end);
            Ok(partition_of(folder).map(|partition| Repaired { partition, start, end }))
        }
        Err(error) => {
            outcome.failed += 1;
            writeln!(out, "{name}: not repaired: {error}")?;
            Ok(None)
        }
    }
}

/// A start that trusts nothing, and a clean stop.
fn open_and_close(folder: &Path, now: Timestamp) -> Result<RecoveryReport, OpenError> {
    let server = ServerConfig::defaults();
    let overrides = explain::configs(folder).unwrap_or_default();
    let config = TopicConfigs::new(&server).resolve(&overrides);
    let topic_id = read_whole(&folder.join(partition_metadata::FILE_NAME))
        .ok()
        .and_then(|bytes| partition_metadata::parse(&bytes).ok());
    let directory: Arc<Path> =
        std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()).into();
    let spec = LogSpec {
        number: 0,
        directory,
        topic_id: topic_id.unwrap_or_else(TopicId::random),
        config,
        leader_epoch: LeaderEpoch(0),
        jitter_seed: 0,
    };
    let how =
        Opening { clean: false, recovery_point: None, log_start: None, leader_epoch_bump: false };
    let mut disk = PlainDisk::new(FILES_MAX, None);
    let (mut log, report) = PartitionLog::open(&mut disk, spec, how, now)?;
    let plan = log.close(now);
    let finished = disk.run(plan);
    if let Err(failure) = &finished.result {
        let (what, error) = ("close the repaired log".to_owned(), failure.error);
        return Err(OpenError::Disk { what, error });
    }
    log.complete(finished, now);
    Ok(report)
}

fn partitions(root: &Path) -> Result<Vec<PathBuf>, RepairError> {
    let unreadable = |error| RepairError::Io { what: "read", path: root.to_owned(), error };
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(root).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let is_live = partition_of(&path).is_some_and(|it| it.state == DirectoryState::Live);
        if path.is_dir() && is_live && has_log(&path) {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

fn partition_of(path: &Path) -> Option<PartitionDirectory> {
    let absolute = std::path::absolute(path).ok()?;
    PartitionDirectory::parse(absolute.file_name()?.to_str()?).ok()
}

fn has_log(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|it| it.path().extension().is_some_and(|it| it == "log"))
}

fn parent(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

fn remove(path: &Path) -> Result<(), RepairError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(RepairError::Io { what: "remove", path: path.to_owned(), error })
        }
        _ => Ok(()),
    }
}
