//! Leader epochs: those that batches carry, and those that `leader-epoch-checkpoint` says.

use std::path::Path;

use super::finding::{Finding, Limited};
use super::index;
use crate::format::checkpoint::{self, EpochStart};

/// Changes of the epoch from batch to batch of a segment.
#[derive(Debug, Default)]
pub struct Changes(Vec<Change>);

/// Of batches from before there were leader epochs.
pub const NONE: i32 = -1;

/// Batches one after the other that have the same epoch.
#[derive(Clone, Copy, Debug)]
struct Change {
    epoch: i32,
    /// Base offset of the first.
    base: i64,
    /// Last offset of the last; compaction may have left nothing for some way behind it.
    last: i64,
}

impl Changes {
    /// A batch goes by, with these offsets.
    pub fn note(&mut self, epoch: i32, base: i64, last: i64) {
        match self.0.last_mut() {
            Some(change) if change.epoch == epoch => change.last = last,
            _ => self.0.push(Change { epoch, base, last }),
        }
    }
}

/// The file's entries, if they can be relied on.
pub fn read(path: &Path, findings: &mut Vec<Finding>) -> Vec<EpochStart> {
    let bytes = match index::read(path) {
        Ok(bytes) => bytes.unwrap_or_default(),
        Err(finding) => {
            findings.push(finding);
            return Vec::new();
        }
    };
    let entries = match checkpoint::parse_epochs(&bytes) {
        Ok(entries) => entries,
        Err(error) => {
            findings.push(Finding::damage(path, None, error));
            return Vec::new();
        }
    };
    let rises = entries.is_sorted_by(|a, b| a.epoch < b.epoch && a.start < b.start);
    if !rises {
        let what = "epochs and their first offsets must rise from line to line";
        findings.push(Finding::damage(path, None, what));
        return Vec::new();
    }
    entries
}

/// Batches must carry the epoch that the file says for their offset. A file that says nothing of an
/// offset can't be held against it: Kafka forgets epochs that ended before the log start. Nor do
/// they fall from batch to batch; `newest` is that of the segments before.
pub fn check(
    log: &Path,
    changes: &Changes,
    entries: &[EpochStart],
    newest: &mut i32,
) -> Vec<Finding> {
    let mut found = Limited::new(log);
    for &Change { epoch, base, last } in &changes.0 {
        if epoch < NONE {
            let what = format!("the batch with offset {base} carries leader epoch {epoch}");
            found.damage(None, what);
            continue;
        }
        if epoch < *newest && NONE < epoch {
            let what = format!(
                "the batch with offset {base} carries leader epoch {epoch}, and one before it \
                 {newest}"
            );
            found.damage(None, what);
        }
        *newest = epoch.max(*newest);
        let told = |offset: i64| {
            let entry = entries.iter().rev().find(|it| it.start.to_wire() <= offset);
            entry.map(|it| it.epoch.0)
        };
        for offset in [base, last] {
            if let Some(expected) = told(offset).filter(|it| NONE < epoch && *it != epoch) {
                found.damage(
                    None,
                    format!(
                        "the batch with offset {offset} carries leader epoch {epoch}, \
                     leader-epoch-checkpoint says {expected}"
                    ),
                );
                break;
            }
        }
    }
    found.into_findings()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(epochs: &[i32]) -> usize {
        let mut changes = Changes::default();
        for (epoch, base) in epochs.iter().zip((0..).step_by(10)) {
            changes.note(*epoch, base, base + 9);
        }
        check(Path::new("0.log"), &changes, &[], &mut { NONE }).len()
    }

    #[test]
    fn epochs_never_fall_where_the_file_says_nothing_either() {
        assert_eq!(found(&[-1, -1, 0, 0, 3, 7]), 0);
        assert_eq!(found(&[0, 1 << 27, 0, 0]), 1);
        assert_eq!(found(&[0, 0, i32::MIN, 0]), 1);
    }
}
