//! What lies at the root of a log directory: checkpoints, and who holds it.

use std::collections::BTreeMap;
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::finding::{Finding, Limited};
use super::index;
use super::partition::Partition;
use crate::format::checkpoint::{self, PartitionOffset};
use crate::format::names::{CLUSTER_METADATA, DirectoryState, PartitionDirectory};
use crate::format::{clean_shutdown, properties};

const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
const LOG_STARTS: &str = "log-start-offset-checkpoint";
const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
const CLEANED: &str = "cleaner-offset-checkpoint";
/// A folder of Kafka's tiered storage.
const REMOTE_INDEXES: &str = "remote-log-index-cache";

/// The files, by partition.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    files: BTreeMap<&'static str, Vec<PartitionOffset>>,
}

/// What a folder's name says of a partition.
pub fn partition_of(path: &Path) -> Option<PartitionDirectory> {
    PartitionDirectory::parse(path.file_name()?.to_str()?).ok()
}

/// A folder that is no partition's.
pub fn stranger(path: &Path) -> Option<Finding> {
    let is_known = path.file_name().is_some_and(|it| it == REMOTE_INDEXES);
    let what = "no folder of a partition: Kafka refuses to start on a directory with it";
    (!is_known).then(|| Finding::damage(path, None, what))
}

impl Root {
    /// Reads the files; `None` in the folder of a single partition.
    pub fn read(directory: &Path, findings: &mut Vec<Finding>) -> Option<Root> {
        if partition_of(directory).is_some() && !directory.join(properties::FILE_NAME).exists() {
            return None;
        }
        let mut files = BTreeMap::new();
        for name in [RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANED] {
            let path = directory.join(name);
            let bytes = match index::read(&path) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => continue,
                Err(finding) => {
                    findings.push(finding);
                    continue;
                }
            };
            match checkpoint::parse_offsets(&bytes) {
                Ok(entries) => drop(files.insert(name, entries)),
                Err(error) => findings.push(Finding::damage(&path, None, error)),
            }
        }
        check_small(directory, findings);
        findings.extend(holder(directory));
        Some(Root { path: directory.to_owned(), files })
    }

    /// Up to where the cleaner has been.
    pub fn cleaned_up_to(&self, partition: &Partition) -> Option<i64> {
        let of = partition_of(&partition.path)?;
        let lines = self.files.get(CLEANED)?;
        lines.iter().find(|it| is_of(it, &of)).map(|it| it.offset.to_wire())
    }

    /// What the files say of partitions must fit these.
    pub fn check(&self, partitions: &[Partition], findings: &mut Vec<Finding>) {
        for (name, lines) in &self.files {
            let path = self.path.join(name);
            let mut found = Limited::new(&path);
            let mut elsewhere = 0_u64;
            for line in lines {
                let of =
                    |it: &&Partition| partition_of(&it.path).is_some_and(|of| is_of(line, &of));
                match partitions.iter().find(of) {
                    None => elsewhere += 1,
                    Some(partition) => {
                        if let Some(what) = misfit(name, line, partition) {
                            found.damage(None, what);
                        }
                    }
                }
            }
            findings.extend(found.into_findings());
            if elsewhere != 0 {
                let what = format!("{elsewhere} lines are of partitions that are not here");
                findings.push(Finding::note(&path, what));
            }
        }
    }
}

fn is_of(line: &PartitionOffset, partition: &PartitionDirectory) -> bool {
    partition.state == DirectoryState::Live
        && (&line.topic, line.partition) == (&partition.topic, partition.partition)
}

/// A recovery point or a start behind the log's end can't be; a high watermark may be, when the
/// end was lost with the power.
fn misfit(name: &str, line: &PartitionOffset, partition: &Partition) -> Option<String> {
    if !partition.is_seen {
        return None;
    }
    let (start, end) = partition.range();
    let offset = line.offset.to_wire();
    let about = format!("{}-{} {offset}", line.topic, line.partition);
    if end < offset {
        return Some(format!("{about}: the log ends with {end}"));
    }
    (name == LOG_STARTS && offset < start)
        .then(|| format!("{about}: the first segment begins with {start}"))
}

fn check_small(directory: &Path, findings: &mut Vec<Finding>) {
    let mut read = |name: &str| {
        let path = directory.join(name);
        match index::read(&path) {
            Ok(bytes) => bytes.map(|bytes| (path, bytes)),
            Err(finding) => {
                findings.push(finding);
                None
            }
        }
    };
    let (meta, clean) = (read(properties::FILE_NAME), read(clean_shutdown::FILE_NAME));
    if let Some((path, bytes)) = meta
        && let Err(error) = properties::parse(&bytes)
    {
        findings.push(Finding::damage(&path, None, error));
    }
    match clean {
        Some((path, bytes)) if clean_shutdown::parse(&bytes).is_none() => {
            let what = "not as Kafka writes it; that it is there is all that counts";
            findings.push(Finding::note(&path, what));
        }
        Some(_) => {}
        None if directory.join(format!("{CLUSTER_METADATA}-0")).exists() => {
            let what = "no .kafka_cleanshutdown: a server runs here, or was killed";
            findings.push(Finding::note(directory, what));
        }
        None => {}
    }
    if directory.join(crate::format::journal_count::FILE_NAME).exists() {
        let what = "uringlog's commit journals may hold records that the logs lack: `uringlog \
                    recover` brings them there";
        findings.push(Finding::note(directory, what));
    }
}

/// Whether a process holds `.lock`: what it writes meanwhile may look torn. Asked without touching
/// the file: `/proc/locks` names its inode.
fn holder(directory: &Path) -> Option<Finding> {
    let lock = fs::metadata(directory.join(".lock")).ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let inode = lock.st_ino().to_string();
    let held = locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "POSIX", _, "WRITE", process, file, ..] = words[..] else { return None };
        (file.rsplit(':').next()? == inode).then(|| process.to_owned())
    })?;
    let what = format!(
        "process {held} holds this directory: what it writes while this looks may seem damaged"
    );
    Some(Finding::note(directory, what))
}
