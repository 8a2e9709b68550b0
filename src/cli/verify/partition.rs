//! One partition's folder: its files by name, and what only all of its segments together show.

use std::fs;
use std::path::{Path, PathBuf};

use super::epochs::{self, Changes};
use super::finding::{Finding, Limited};
use super::index::{self, Paths};
use super::root;
use super::transactions::{self, Event};
use crate::cli::log_file::{LogFile, LogFileError};
use crate::format::names::{DirectoryState, FileKind, SegmentFile, Suffix};
use crate::format::{partition_metadata, producer_snapshot};
use crate::units::u64_of;

const EPOCHS: &str = "leader-epoch-checkpoint";
/// Files of a partition that belong to no segment; `quorum-state` is KRaft's.
const KNOWN: &[&str] = &[EPOCHS, partition_metadata::FILE_NAME, "quorum-state"];

/// What reading a segment gave.
#[derive(Debug, Default)]
pub struct Walked {
    /// Batches.
    pub batches: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The offset behind the last batch; `None` without one.
    pub end: Option<i64>,
    /// Position, offset that was expected, offset that was there.
    pub gaps: Vec<(u64, i64, i64)>,
    /// Leader epochs of the batches.
    pub epochs: Changes,
    /// Whether all of it could be read.
    pub is_seen: bool,
    /// What happened to transactions.
    pub events: Vec<Event>,
    /// What is wrong with the segment's files.
    pub findings: Vec<Finding>,
}

/// A segment.
#[derive(Debug)]
pub struct Segment {
    /// Its base offset.
    pub base: i64,
    /// Bytes of its log.
    pub bytes: u64,
    /// Its files.
    pub paths: Paths,
    /// Once it has been read.
    pub walked: Option<Walked>,
}

impl Segment {
    /// The offset behind its last batch.
    pub fn end(&self) -> i64 {
        self.walked.as_ref().and_then(|it| it.end).unwrap_or(self.base)
    }
}

/// A partition.
#[derive(Debug)]
pub struct Partition {
    /// Its folder.
    pub path: PathBuf,
    /// By base offset.
    pub segments: Vec<Segment>,
    /// Whether all of it could be read: what is missing from a part says nothing.
    pub is_seen: bool,
    /// Producer snapshots by the offset in their names.
    snapshots: Vec<(i64, PathBuf)>,
    /// Snapshots of KRaft's metadata.
    checkpoints: Vec<PathBuf>,
}

impl Partition {
    /// Looks through the folder.
    pub fn list(path: &Path, findings: &mut Vec<Finding>) -> Partition {
        let mut partition = Partition {
            path: path.to_owned(),
            segments: Vec::new(),
            is_seen: true,
            snapshots: Vec::new(),
            checkpoints: Vec::new(),
        };
        let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut names: Vec<String> = match entries {
            Ok(entries) => entries.iter().map(|it| lossy(&it.path())).collect(),
            Err(error) => {
                findings.push(Finding::unread(path, &error));
                partition.is_seen = false;
                return partition;
            }
        };
        names.sort();
        let mut others = Vec::new();
        for name in names {
            let file = path.join(&name);
            match SegmentFile::parse(&name) {
                Some(SegmentFile { base, kind, suffix: Suffix::None }) => match kind {
                    FileKind::Log => partition.segments.push(segment(base.to_wire(), &file)),
                    FileKind::Snapshot => partition.snapshots.push((base.to_wire(), file)),
                    _ => others.push((base.to_wire(), file)),
                },
                Some(SegmentFile { suffix, .. }) => {
                    let what = match suffix {
                        Suffix::Deleted => "a deleted file that waits for its removal",
                        Suffix::Cleaned => "a cleaner was writing it; the next start removes it",
                        _ => "a file about to replace others; the next start goes on with that",
                    };
                    findings.push(Finding::note(&file, what));
                }
                None if KNOWN.contains(&name.as_str()) => {}
                None if name.ends_with(".checkpoint") => partition.checkpoints.push(file),
                None => findings.push(Finding::note(&file, "no file of a partition log")),
            }
        }
        for (base, file) in others {
            if partition.segments.binary_search_by_key(&base, |it| it.base).is_err() {
                let what = "there is no .log of this segment; the next start removes the file";
                findings.push(Finding::damage(&file, None, what));
            }
        }
        partition
    }

    /// Whether the folder waits for its removal, where files are as a kill would have left them.
    pub fn is_doomed(&self) -> bool {
        let state = root::partition_of(&self.path).map(|it| it.state);
        matches!(state, Some(DirectoryState::Deleted(_)))
    }

    /// Whether it is a log in use, so that each segment has its indexes.
    pub fn is_log(&self) -> bool {
        !self.is_doomed()
    }

    /// What has been read.
    pub fn walked(&self) -> impl Iterator<Item = &Walked> {
        self.segments.iter().filter_map(|it| it.walked.as_ref())
    }

    /// The first offset and the one behind the last.
    pub fn range(&self) -> (i64, i64) {
        let first = self.segments.first().map_or(0, |it| it.base);
        (first, self.segments.last().map_or(first, Segment::end))
    }

    /// What segments show together. `cleaned` is the offset up to which the cleaner has been, if
    /// that is known: gaps below are its work.
    pub fn check(&mut self, cleaned: Option<i64>, findings: &mut Vec<Finding>) {
        for segment in &mut self.segments {
            if let Some(walked) = &mut segment.walked {
                self.is_seen &= walked.is_seen;
                findings.append(&mut walked.findings);
            }
        }
        if !self.is_seen {
            return;
        }
        self.check_metadata(findings);
        self.check_gaps(cleaned, findings);
        let entries = epochs::read(&self.path.join(EPOCHS), findings);
        let mut newest = epochs::NONE;
        for segment in &self.segments {
            if let Some(walked) = &segment.walked {
                let (log, changes) = (&segment.paths.log, &walked.epochs);
                findings.extend(epochs::check(log, changes, &entries, &mut newest));
            }
        }
        let open = self.check_snapshots(findings);
        findings.extend(transactions::check(&self.segments, &open));
        for path in &self.checkpoints {
            findings.extend(check_checkpoint(path));
        }
    }

    fn check_metadata(&self, findings: &mut Vec<Finding>) {
        let path = self.path.join(partition_metadata::FILE_NAME);
        match index::read(&path) {
            Ok(Some(bytes)) => {
                if let Err(error) = partition_metadata::parse(&bytes) {
                    findings.push(Finding::damage(&path, None, error));
                }
            }
            Ok(None) => {
                let what = "missing: Kafka takes a folder without a topic id for a stray";
                findings.push(Finding::note(&path, what));
            }
            Err(finding) => findings.push(finding),
        }
    }

    /// Only the cleaner makes gaps, and never in the last segment.
    fn check_gaps(&self, cleaned: Option<i64>, findings: &mut Vec<Finding>) {
        for (number, segment) in self.segments.iter().enumerate() {
            let Some(walked) = &segment.walked else { continue };
            let is_last = number + 1 == self.segments.len();
            let mut found = Limited::new(&segment.paths.log);
            let mut missing = 0_i64;
            for &(at, expected, base) in &walked.gaps {
                let is_known = cleaned.is_some_and(|cleaned| base <= cleaned);
                if is_last && !is_known {
                    let what = format!("offsets {expected} to {} are missing", base - 1);
                    found.damage(at, what);
                } else {
                    missing = missing.saturating_add(base - expected);
                }
            }
            findings.extend(found.into_findings());
            if missing != 0 {
                let what = format!("{missing} offsets are missing, as compaction leaves it");
                findings.push(Finding::note(&segment.paths.log, what));
            }
        }
    }

    /// Returns where transactions were open at the first segment's base.
    fn check_snapshots(&self, findings: &mut Vec<Finding>) -> Vec<(i64, i64)> {
        let (start, end) = self.range();
        let mut open = Vec::new();
        for (offset, path) in &self.snapshots {
            let bytes = match index::read(path) {
                Ok(bytes) => bytes.unwrap_or_default(),
                Err(finding) => {
                    findings.push(finding);
                    continue;
                }
            };
            let entries = match producer_snapshot::decode(&bytes) {
                Ok(entries) => entries,
                Err(error) => {
                    findings.push(Finding::damage(path, None, error));
                    continue;
                }
            };
            let used = producer_snapshot::file_bytes(entries.len());
            if used != bytes.len() {
                let what = format!("{} bytes behind its producers", bytes.len() - used);
                findings.push(Finding::damage(path, Some(u64_of(used)), what));
            }
            if end < *offset && self.is_log() {
                let what = format!("state at {offset}, but the log ends with {end}");
                findings.push(Finding::damage(path, None, what));
            }
            for entry in &entries {
                let last = entry.batch.map_or(-1, |it| it.last_offset.to_wire());
                let transaction = entry.transaction.map_or(-1, |it| it.to_wire());
                if *offset <= last.max(transaction) {
                    let what = format!(
                        "producer {} has offset {} in the state at {offset}",
                        entry.producer_id,
                        last.max(transaction)
                    );
                    findings.push(Finding::damage(path, None, what));
                }
                if *offset == start && 0 <= transaction {
                    open.push((entry.producer_id.0, transaction));
                }
            }
        }
        open
    }
}

fn lossy(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn segment(base: i64, log: &Path) -> Segment {
    Segment {
        base,
        bytes: fs::metadata(log).map_or(0, |it| it.len()),
        paths: Paths {
            log: log.to_owned(),
            offsets: log.with_extension("index"),
            times: log.with_extension("timeindex"),
            aborted: log.with_extension("txnindex"),
        },
        walked: None,
    }
}

/// Every batch of a KRaft snapshot has its CRC, and nothing else is in the file.
fn check_checkpoint(path: &Path) -> Vec<Finding> {
    let mut found = Limited::new(path);
    let mut check = || -> Result<(), LogFileError> {
        let mut log = LogFile::open(path)?;
        let mut at = 0;
        while let Some(batch) = log.batch(at, log.length())? {
            let (_, is_valid) = log.header(batch)?;
            if !is_valid {
                found.damage(at, "the batch does not have its CRC-32C");
            }
            at = batch.end();
        }
        if at != log.length() {
            found.damage(at, "the bytes from here to the end are no whole batch");
        }
        Ok(())
    };
    let outcome = check();
    let mut findings = found.into_findings();
    findings.extend(outcome.err().map(Finding::of_log));
    findings
}
