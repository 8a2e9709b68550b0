//! `uringlog repair` on directories that Apache Kafka 4.3.1 wrote and that were damaged then: the
//! copy is in order, what was lost is said, the original stays as it was.

mod support {
    pub mod archives;
}

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::archives::{Archive, Unpacked};
use uringlog::cli::repair::{self, Outcome, REPORT_FILE, RepairError, RepairOptions};
use uringlog::cli::verify::{self, Verdict, VerifyOptions};

/// A time after that of the archives' records, and well within the expiration of their producers.
const NOW: i64 = 1_795_991_000_000;

fn unpack(name: &str) -> Unpacked {
    let mut archives = Archive::all();
    archives.retain(|it| it.name == name);
    archives.pop().expect("an archive of that name").unpack()
}

/// The directory that was damaged, before Kafka started on it.
fn damaged(case: &Unpacked) -> PathBuf {
    case.path().join("dir-1-damaged")
}

fn repair(directory: &Path, to: Option<&Path>) -> (Result<Outcome, RepairError>, String) {
    let (directory, to) = (directory.to_owned(), to.map(Path::to_owned));
    let mut out = Vec::new();
    let outcome = repair::run(&RepairOptions { directory, to, now: NOW }, &mut out);
    (outcome, String::from_utf8(out).expect("text"))
}

fn verify(directory: &Path) -> (Verdict, String) {
    let options =
        VerifyOptions { directory: directory.to_owned(), threads: 2, is_deep: true, json: false };
    let mut out = Vec::new();
    let verdict = verify::run(&options, &mut out).expect("a log directory");
    (verdict, String::from_utf8(out).expect("text"))
}

/// Path below `root` to bytes.
fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("readable") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below").to_owned();
                found.insert(name, fs::read(&path).expect("readable"));
            }
        }
    }
    found
}

#[test]
fn a_repaired_copy_is_in_order_and_the_original_as_it_was() {
    let mut seen = 0;
    for archive in Archive::all() {
        if !archive.name.starts_with("unclean-") {
            continue;
        }
        let case = archive.unpack();
        let (directory, to) = (damaged(&case), case.path().join("repaired"));
        let before = tree(&directory);
        let (outcome, said) = repair(&directory, Some(&to));
        let outcome = outcome.unwrap_or_else(|error| panic!("{}: {error}", archive.name));
        assert_eq!(outcome.failed, 0, "{}: {said}", archive.name);
        assert!(tree(&directory) == before, "{}: the original changed", archive.name);
        let (verdict, found) = verify(&to);
        assert_eq!(verdict, Verdict::Clean, "{}: {said}\n{found}", archive.name);
        let report = fs::read_to_string(to.join(REPORT_FILE)).expect("a report");
        assert!(said.starts_with(&report), "{}: {said}\n{report}", archive.name);
        seen += 1;
    }
    assert!(27 <= seen, "only {seen} damaged directories");
}

#[test]
fn what_is_lost_is_said() {
    for (name, lossy, words) in [
        ("unclean-a-torn-tail", true, "bytes at "),
        ("unclean-k1-flip-old-clean", true, "offsets 751 to before 771 are lost"),
        ("unclean-e2-timeindex-garbage-sealed", false, "indexes of"),
    ] {
        let case = unpack(name);
        let to = case.path().join("repaired");
        let (outcome, said) = repair(&damaged(&case), Some(&to));
        let outcome = outcome.expect("it can be repaired");
        assert_eq!(outcome.lossy, usize::from(lossy), "{name}: {said}");
        assert_eq!(outcome.exit_status(), u8::from(lossy), "{name}: {said}");
        assert!(said.contains(words), "{name}: {said}");
    }
}

/// A script must tell "repaired, with losses" from "nothing was done".
#[test]
fn the_exit_status_says_what_came_out() {
    assert_eq!(Outcome { lossy: 3, failed: 1 }.exit_status(), 2);
    let exit = |directory: &Path, to: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uringlog"));
        let done = command.arg("repair").arg(directory).arg("--to").arg(to).output();
        done.expect("the binary runs").status.code()
    };
    let case = unpack("unclean-k1-flip-old-clean");
    let to = case.path().join("repaired");
    assert_eq!(exit(&damaged(&case), &to), Some(1));
    assert_eq!(exit(&to, &case.path().join("again")), Some(0));
    assert_eq!(exit(&damaged(&case), &to), Some(2), "the place is taken");
    assert_eq!(exit(&case.path().join("absent"), &case.path().join("more")), Some(2));
}

#[test]
fn in_place_keeps_a_backup() {
    let case = unpack("unclean-k1-flip-old-clean");
    let directory = damaged(&case);
    let before = tree(&directory.join("u-0"));
    let (outcome, said) = repair(&directory, None);
    assert_eq!(outcome.expect("repaired"), Outcome { lossy: 1, failed: 0 }, "{said}");
    let backup = case.path().join("dir-1-damaged.before-repair");
    assert!(tree(&backup.join("u-0")) == before, "the backup has every file as it was");
    assert!(backup.join(REPORT_FILE).exists(), "{said}");
    assert_eq!(verify(&directory).0, Verdict::Clean);
    // A second repair would overwrite the backup.
    let (outcome, said) = repair(&directory, None);
    assert!(
        matches!(outcome, Err(RepairError::Exists(path)) if path.starts_with(&backup)),
        "{said}"
    );
}

#[test]
fn places_that_cannot_be_are_refused() {
    let case = unpack("unclean-d-index-gone");
    let directory = damaged(&case);
    let (outcome, _) = repair(&directory, Some(&case.path()));
    assert!(matches!(outcome, Err(RepairError::Exists(_))));
    let (outcome, _) = repair(&directory, Some(&directory.join("copy")));
    assert!(matches!(outcome, Err(RepairError::Inside(_))));
    let empty = case.path().join("empty");
    fs::create_dir(&empty).expect("created");
    let (outcome, _) = repair(&empty, Some(&case.path().join("of-empty")));
    assert!(matches!(outcome, Err(RepairError::NoLogs(_))));
    let lock = uringlog::disk::lock::DirectoryLock::acquire(&directory).expect("free");
    let (outcome, _) = repair(&directory, None);
    assert!(matches!(outcome, Err(RepairError::Lock(_))), "a server runs there");
    drop(lock);
}

/// Neither a copy nor in place: the message names both ways, and nothing is touched.
#[test]
fn without_a_place_both_ways_are_named() {
    let case = unpack("unclean-a-torn-tail");
    let directory = damaged(&case);
    let before = tree(&case.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_uringlog"));
    let done = command.arg("repair").arg(&directory).output().expect("the binary runs");
    assert_eq!(done.status.code(), Some(2));
    let said = String::from_utf8(done.stderr).expect("text");
    assert!(said.contains("--to") && said.contains("--in-place"), "{said}");
    assert_eq!(done.stdout, b"");
    assert!(tree(&case.path()) == before, "something was changed");
}
