//! Leader epochs: those that batches carry, and those that `leader-epoch-checkpoint` says.

use std::path::Path;

use super::finding::{Finding, Limited};
use super::index;
use crate::format::checkpoint::{self, EpochStart};

/// Changes of the epoch from batch to batch of a segment.
#[derive(Debug, Default)]
pub struct Changes(Vec<(i32, i64)>);

impl Changes {
    /// A batch goes by.
    pub fn note(&mut self, epoch: i32, base: i64) {
        if self.0.last().is_none_or(|last| last.0 != epoch) {
            self.0.push((epoch, base));
        }
    }

    /// Epochs and the base offsets of the first batches that have them.
    pub fn iter(&self) -> impl Iterator<Item = (i32, i64)> {
        self.0.iter().copied()
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
/// offset can't be held against it: Kafka forgets epochs that ended before the log start.
pub fn check(log: &Path, changes: &Changes, entries: &[EpochStart], end: i64) -> Vec<Finding> {
    let mut found = Limited::new(log);
    for (number, (epoch, base)) in changes.iter().enumerate() {
        let until = changes.0.get(number + 1).map_or(end, |next| next.1);
        let told = |offset: i64| {
            let entry = entries.iter().rev().find(|it| it.start.to_wire() <= offset);
            entry.map(|it| it.epoch.0)
        };
        for offset in [base, until - 1] {
            if let Some(expected) = told(offset).filter(|it| 0 <= epoch && *it != epoch) {
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
