//! The checkpoints in a log directory's root, after its partitions were repaired: none may promise
//! more than is there now.

use std::fs;
use std::io;
use std::path::Path;

use super::RepairError;
use crate::cli::log_file::read_whole;
use crate::format::checkpoint::{self, PartitionOffset};
use crate::format::names::PartitionDirectory;
use crate::units::Offset;

const LOG_STARTS: &str = "log-start-offset-checkpoint";
const NAMES: [&str; 4] = [
    "recovery-point-offset-checkpoint",
    LOG_STARTS,
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
];

/// A partition as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repaired {
    /// Which.
    pub partition: PartitionDirectory,
    /// Its first offset.
    pub start: Offset,
    /// The one behind its last.
    pub end: Offset,
}

/// Brings the checkpoints below `root` in line with the partitions, and says what it did. What is
/// changed is copied to `backup` first, if there is one.
///
/// # Errors
/// [`RepairError::Io`].
pub fn settle(
    root: &Path,
    repaired: &[Repaired],
    backup: Option<&Path>,
) -> Result<Vec<String>, RepairError> {
    let mut said = Vec::new();
    for name in NAMES {
        let path = root.join(name);
        let failed = |what| {
            let path = path.clone();
            move |error| RepairError::Io { what, path, error }
        };
        let bytes = match read_whole(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read.map_err(failed("read"))?,
        };
        let settled = checkpoint::parse_offsets(&bytes).map(|lines| clamped(name, lines, repaired));
        if settled.as_ref().is_ok_and(|(_, changes)| changes.is_empty()) {
            continue;
        }
        if let Some(backup) = backup {
            fs::copy(&path, backup.join(name)).map_err(failed("copy"))?;
        }
        match settled {
            Ok((lines, changes)) => {
                let text = checkpoint::print_offsets(&lines);
                fs::write(&path, text).map_err(failed("write"))?;
                said.extend(changes);
            }
            Err(error) => {
                fs::remove_file(&path).map_err(failed("remove"))?;
                let costs = match name {
                    LOG_STARTS => "records that were deleted before may be seen again",
                    _ => "the next start finds out what it said",
                };
                said.push(format!("{name}: {error}: removed; {costs}"));
            }
        }
    }
    Ok(said)
}

/// The lines with offsets that lie in their logs, and what was changed of them.
fn clamped(
    name: &str,
    mut lines: Vec<PartitionOffset>,
    repaired: &[Repaired],
) -> (Vec<PartitionOffset>, Vec<String>) {
    let mut changes = Vec::new();
    for line in &mut lines {
        let is_it = |it: &&Repaired| {
            (&it.partition.topic, it.partition.partition) == (&line.topic, line.partition)
        };
        let Some(now) = repaired.iter().find(is_it) else { continue };
        let first = if name == LOG_STARTS { now.start } else { Offset(0) };
        let offset = line.offset.clamp(first, now.end.max(first));
        if offset != line.offset {
            let PartitionOffset { topic, partition, offset: before } = line;
            changes.push(format!("{name}: {topic}-{partition} {before} is {offset} now"));
            line.offset = offset;
        }
    }
    (lines, changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repaired(name: &str, start: u64, end: u64) -> Repaired {
        let partition = PartitionDirectory::parse(name).expect("a partition's folder");
        Repaired { partition, start: Offset(start), end: Offset(end) }
    }

    #[test]
    fn no_checkpoint_promises_more_than_is_there() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let backup = tempfile::tempdir().expect("a temporary directory");
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text);
        write(NAMES[0], "0\n2\nt 0 90\nelsewhere 3 500\n").expect("written");
        write(LOG_STARTS, "0\n1\nt 0 3\n").expect("written");
        write(NAMES[2], "0\n1\nt 0 50\n").expect("written");
        write(NAMES[3], "nonsense").expect("written");
        let said = settle(root.path(), &[repaired("t-0", 10, 50)], Some(backup.path()));
        let said = said.expect("settled");
        assert_eq!(said.len(), 3, "{said:?}");
        let read = |name: &str| fs::read_to_string(root.path().join(name)).unwrap_or_default();
        assert_eq!(read(NAMES[0]), "0\n2\nt 0 50\nelsewhere 3 500\n");
        assert_eq!(read(LOG_STARTS), "0\n1\nt 0 10\n");
        assert_eq!(read(NAMES[2]), "0\n1\nt 0 50\n");
        assert_eq!(read(NAMES[3]), "");
        assert!(!backup.path().join(NAMES[2]).exists(), "it did not change");
        let kept = fs::read_to_string(backup.path().join(NAMES[3])).expect("copied");
        assert_eq!(kept, "nonsense");
    }
}
