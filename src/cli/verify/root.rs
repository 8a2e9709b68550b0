//! What lies at the root of a log directory: checkpoints, and who holds it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::finding::{Finding, Limited};
use super::index;
use super::partition::Partition;
use crate::cli::holder;
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
        let held = holder::of(directory);
        findings.extend(held.map(|it| Finding::note(directory, it)));
        Some(Root { path: directory.to_owned(), files })
    }

    /// Up to where the cleaner has been.
    pub fn cleaned_up_to(&self, partition: &Partition) -> Option<i64> {
        let of = partition_of(&partition.path)?;
        let lines = self.files.get(CLEANED)?;
        lines.iter().find(|it| is_of(it, &of)).map(|it| it.offset.to_wire())
    }

    /// What the files say of partitions must fit these.
    pub fn check<'a>(
        &self,
        partitions: impl Iterator<Item = &'a Partition> + Clone,
        findings: &mut Vec<Finding>,
    ) {
        for (name, lines) in &self.files {
            let path = self.path.join(name);
            let mut found = Limited::new(&path);
            let (mut elsewhere, mut passed) = (0_u64, 0_u64);
            for line in lines {
                let of =
                    |it: &&Partition| partition_of(&it.path).is_some_and(|of| is_of(line, &of));
                match partitions.clone().find(of) {
                    None => elsewhere += 1,
                    Some(partition) if is_passed(name, line, partition) => passed += 1,
                    Some(partition) => {
                        if let Some(what) = misfit(line, partition) {
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
            if passed != 0 {
                let what = format!(
                    "{passed} lines lie before the first segment, as when retention has deleted \
                     segments since they were written"
                );
                findings.push(Finding::note(&path, what));
            }
        }
    }
}

fn is_of(line: &PartitionOffset, partition: &PartitionDirectory) -> bool {
    partition.state == DirectoryState::Live
        && (&line.topic, line.partition) == (&partition.topic, partition.partition)
}

/// Whether segments were deleted behind a log start: Kafka writes its file every minute, and
/// deletes meanwhile.
fn is_passed(name: &str, line: &PartitionOffset, partition: &Partition) -> bool {
    name == LOG_STARTS && partition.is_seen && line.offset.to_wire() < partition.range().0
}

/// A recovery point, a start or a high watermark behind the log's end can't be, unless the end was
/// lost with the power.
fn misfit(line: &PartitionOffset, partition: &Partition) -> Option<String> {
    let end = partition.range().1;
    let PartitionOffset { topic, partition: number, offset } = line;
    (partition.is_seen && end < offset.to_wire())
        .then(|| format!("{topic}-{number} {offset}: the log ends with {end}"))
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
