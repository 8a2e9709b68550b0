//! A partition as it was looked at. A running server changes it meanwhile: a segment that the
//! cleaner replaces while its batches are read seems damaged, and isn't. What seems wrong with a
//! folder that has changed since it was listed is therefore looked for again.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::finding::{Finding, Kind};
use super::partition::Partition;

/// Times that a partition is looked at which doesn't stay as it is.
const LOOKS_MAX: u32 = 6;
/// Pause before the next look, once for each that there has been.
const PAUSE: Duration = Duration::from_millis(50);

/// A partition, and what is to be told of it.
#[derive(Debug)]
pub struct Look {
    /// As it was listed and read.
    pub partition: Partition,
    /// What is to be told.
    pub findings: Vec<Finding>,
    /// Before it was listed.
    files: Vec<FileState>,
}

/// What changes of a file when somebody writes it, or puts another one in its place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct FileState {
    name: std::ffi::OsString,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Look {
    /// Lists the folder's files.
    pub fn at(folder: &Path) -> Look {
        let (files, mut findings) = (files(folder), Vec::new());
        Look { partition: Partition::list(folder, &mut findings), findings, files }
    }

    /// What the segments, once they have been read, show together.
    pub fn check(&mut self, cleaned: Option<i64>) {
        self.partition.check(cleaned, &mut self.findings);
    }

    /// Looks again, by `walk`, as long as something is wrong that may come from changes meanwhile.
    /// When they don't end, what has been found twice running is told.
    pub fn settle(&mut self, cleaned: Option<i64>, mut walk: impl FnMut(&mut Look)) {
        for number in 1..LOOKS_MAX {
            if !self.findings.iter().any(is_wrong) || files(&self.partition.path) == self.files {
                return;
            }
            thread::sleep(PAUSE * number);
            let mut again = Look::at(&self.partition.path);
            walk(&mut again);
            again.check(cleaned);
            let before = std::mem::replace(self, again);
            if number + 1 == LOOKS_MAX {
                self.keep_lasting(&before.findings);
            }
        }
    }

    fn keep_lasting(&mut self, before: &[Finding]) {
        if files(&self.partition.path) == self.files {
            return;
        }
        let count = self.findings.len();
        self.findings.retain(|it| !is_wrong(it) || before.contains(it));
        if self.findings.len() != count {
            let what = "a server changes files here faster than they can be looked at: what seemed \
                        wrong was another thing each time";
            self.findings.push(Finding::note(&self.partition.path, what));
        }
    }
}

fn is_wrong(finding: &Finding) -> bool {
    finding.kind != Kind::Note
}

/// Sorted by name; those that are gone before they are asked for are left out.
fn files(folder: &Path) -> Vec<FileState> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        files.push(FileState {
            name: entry.file_name(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        });
    }
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with a file that is wrong, and what a look at it finds.
    fn folder() -> (tempfile::TempDir, std::path::PathBuf) {
        let root = tempfile::tempdir().expect("a temporary directory");
        let folder = root.path().join("topic-0");
        fs::create_dir(&folder).expect("created");
        fs::write(folder.join("00000000000000000007.index"), [1; 8]).expect("written");
        (root, folder)
    }

    #[test]
    fn what_changed_meanwhile_is_looked_at_again() {
        let (_root, folder) = folder();
        let mut look = Look::at(&folder);
        assert_eq!(look.findings.len(), 1, "an index without a log");
        fs::remove_file(folder.join("00000000000000000007.index")).expect("removed");
        let mut looks = 0;
        look.settle(None, |_| looks += 1);
        assert_eq!((looks, look.findings.iter().filter(|it| is_wrong(it)).count()), (1, 0));
    }

    #[test]
    fn what_stays_is_told_at_once_and_what_lasts_in_the_end() {
        let (_root, folder) = folder();
        let mut look = Look::at(&folder);
        look.settle(None, |_| panic!("nothing has changed"));
        assert_eq!(look.findings.len(), 1);
        fs::write(folder.join("00000000000000000009.index"), [1; 8]).expect("written");
        let mut looks = 0_u8;
        look.settle(None, |again| {
            looks += 1;
            let name = folder.join(format!("{looks:020}.snapshot.deleted"));
            fs::write(name, []).expect("written");
            again.findings.push(Finding::damage(&folder, None, format!("seen {looks} times")));
        });
        assert_eq!(u32::from(looks) + 1, LOOKS_MAX);
        let told: Vec<_> = look.findings.iter().filter(|it| is_wrong(it)).collect();
        assert_eq!(told.len(), 2, "the two indexes without a log: {told:?}");
        assert!(look.findings.iter().any(|it| it.what.contains("faster")), "{look:?}");
    }
}
