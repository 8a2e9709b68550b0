//! Index entries against the batches that they name, while these go by in order.

use std::io;
use std::path::{Path, PathBuf};

use super::finding::{Finding, Limited};
use crate::cli::log_file::read_whole;
use crate::format::index::{
    self, OFFSET_ENTRY_BYTES, OffsetEntry, TIME_ENTRY_BYTES, TimeEntry, check_offset_index,
    check_time_index,
};
use crate::units::u64_of;

/// A file that is no `.log`, read whole; `None` when there is none.
///
/// # Errors
/// Why it can't be looked at.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>, Finding> {
    match read_whole(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Err(Finding::damage(path, None, error.to_string()))
        }
        Err(error) => Err(Finding::unseen(path, format!("cannot be read: {error}"))),
    }
}

/// A batch as it goes by.
#[derive(Clone, Copy, Debug)]
pub struct Passing {
    /// Its first byte.
    pub at: u64,
    /// Its last offset.
    pub last_offset: i64,
    /// Its largest timestamp.
    pub max_timestamp: i64,
}

/// The two indexes of a segment.
pub struct Indexes {
    base: i64,
    offsets: Option<Checked<OffsetEntry>>,
    times: Option<Checked<TimeEntry>>,
    newest: i64,
}

struct Checked<T> {
    entries: Vec<T>,
    next: usize,
    found: Limited,
}

impl<T: Copy> Checked<T> {
    /// The next entry if it is one that a batch passing now settles.
    fn take(&mut self, is_settled: impl Fn(T) -> bool) -> Option<T> {
        let entry = self.entries.get(self.next).copied().filter(|it| is_settled(*it))?;
        self.next += 1;
        Some(entry)
    }
}

impl Indexes {
    /// Reads both; `may_have_tail` says whether zeros may follow the last entry, as they do in an
    /// index that is being written, or was when its broker was killed.
    pub fn read(
        base: i64,
        (offsets, times): (&Path, &Path),
        may_have_tail: bool,
        findings: &mut Vec<Finding>,
    ) -> Indexes {
        let mut load = |path: &Path| match read(path) {
            Ok(bytes) => bytes,
            Err(finding) => {
                findings.push(finding);
                None
            }
        };
        let (offset_bytes, time_bytes) = (load(offsets), load(times));
        let offsets = offset_bytes.map(|bytes| {
            let used = index::offset_index_used(&bytes);
            let found = checked(offsets, &bytes, (used, OFFSET_ENTRY_BYTES), may_have_tail, |it| {
                check_offset_index(it).map_err(|error| error.to_string())
            });
            let entries = index::offset_entries(&bytes[..used]).collect();
            Checked { entries, next: 0, found }
        });
        let times = time_bytes.map(|bytes| {
            let used = index::time_index_used(&bytes);
            let found = checked(times, &bytes, (used, TIME_ENTRY_BYTES), may_have_tail, |it| {
                check_time_index(it).map_err(|error| error.to_string())
            });
            let entries = index::time_entries(&bytes[..used]).collect();
            Checked { entries, next: 0, found }
        });
        Indexes { base, offsets, times, newest: -1 }
    }

    /// Settles the entries that this batch decides.
    pub fn pass(&mut self, batch: Passing) {
        let base = self.base;
        if let Some(offsets) = &mut self.offsets {
            while let Some(entry) = offsets.take(|it| u64::from(it.position) <= batch.at) {
                let (position, offset) =
                    (u64::from(entry.position), base + i64::from(entry.relative_offset));
                let at = u64_of((offsets.next - 1) * OFFSET_ENTRY_BYTES);
                if position < batch.at {
                    let what = format!("the entry points to {position}, where no batch begins");
                    offsets.found.damage(at, what);
                } else if offset != batch.last_offset {
                    offsets.found.damage(at, format!(
                        "the entry says offset {offset} for position {position}; the batch there \
                         ends with offset {}",
                        batch.last_offset
                    ));
                }
            }
        }
        if let Some(times) = &mut self.times {
            let is_settled =
                |it: TimeEntry| base + i64::from(it.relative_offset) <= batch.last_offset;
            while let Some(entry) = times.take(is_settled) {
                let offset = base + i64::from(entry.relative_offset);
                let at = u64_of((times.next - 1) * TIME_ENTRY_BYTES);
                if offset != batch.last_offset {
                    let what = format!("no batch ends with offset {offset} of the entry");
                    times.found.damage(at, what);
                } else if entry.timestamp != batch.max_timestamp {
                    times.found.damage(
                        at,
                        format!(
                            "the entry says time {} for offset {offset}; the batch that ends there \
                         has {}",
                            entry.timestamp, batch.max_timestamp
                        ),
                    );
                } else if entry.timestamp < self.newest {
                    times.found.damage(
                        at,
                        format!(
                            "the entry's time {} is not the newest so far, which is {}",
                            entry.timestamp, self.newest
                        ),
                    );
                }
            }
        }
        self.newest = self.newest.max(batch.max_timestamp);
    }

    /// Entries that are left name nothing, once the last batch has gone by.
    pub fn finish(self, log_bytes: u64) -> Vec<Finding> {
        let mut findings = Vec::new();
        findings.extend(self.emptied());
        if let Some(mut offsets) = self.offsets {
            while let Some(entry) = offsets.take(|_| true) {
                let at = u64_of((offsets.next - 1) * OFFSET_ENTRY_BYTES);
                offsets.found.damage(at, format!(
                    "the entry points to {}, behind the last batch; the log has {log_bytes} bytes",
                    entry.position
                ));
            }
            findings.extend(offsets.found.into_findings());
        }
        if let Some(mut times) = self.times {
            while let Some(entry) = times.take(|_| true) {
                let at = u64_of((times.next - 1) * TIME_ENTRY_BYTES);
                let offset = self.base + i64::from(entry.relative_offset);
                times.found.damage(at, format!("offset {offset} is behind the last batch"));
            }
            findings.extend(times.found.into_findings());
        }
        findings
    }

    /// An entry of the time index comes with one of the offset index, but for those of a roll or a
    /// stop. Without any, somebody may have emptied the file; it is whole all the same.
    fn emptied(&self) -> Option<Finding> {
        let (offsets, times) = (self.offsets.as_ref()?, self.times.as_ref()?);
        let count = times.entries.len();
        (offsets.entries.is_empty() && 1 < count).then(|| {
            Finding::note(offsets.found.path(), format!(
                "no entry, where the time index has {count}: reads scan the segment from its start"
            ))
        })
    }

    /// Which of the two files are there.
    pub fn are_there(&self) -> (bool, bool) {
        (self.offsets.is_some(), self.times.is_some())
    }
}

/// Length, order, and zeros behind the entries.
fn checked(
    path: &Path,
    bytes: &[u8],
    (used, entry_bytes): (usize, usize),
    may_have_tail: bool,
    check: impl Fn(&[u8]) -> Result<(), String>,
) -> Limited {
    let mut found = Limited::new(path);
    if !bytes.len().is_multiple_of(entry_bytes) {
        let what = format!("{} bytes are no multiple of {entry_bytes}", bytes.len());
        found.damage(None, what);
    }
    if let Err(what) = check(&bytes[..used]) {
        found.damage(None, what);
    }
    let tail = &bytes[used..];
    if tail.iter().any(|byte| *byte != 0) {
        found.damage(u64_of(used), "what follows the last entry is neither an entry nor zeros");
    } else if !tail.is_empty() && !may_have_tail {
        found.damage(
            u64_of(used),
            format!(
                "{} bytes of zeros behind the last entry of a sealed segment's index: Kafka takes \
             them for entries",
                tail.len()
            ),
        );
    }
    found
}

/// The files of a segment.
#[derive(Clone, Debug)]
pub struct Paths {
    /// `.log`.
    pub log: PathBuf,
    /// `.index`.
    pub offsets: PathBuf,
    /// `.timeindex`.
    pub times: PathBuf,
    /// `.txnindex`.
    pub aborted: PathBuf,
}
