//! `uringlog doctor` as its user runs it: what it says, and what it exits with.

use std::path::Path;
use std::process::{Command, Output};

/// Runs a program for which the kernel refuses io_uring.
const WITHOUT_IO_URING: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/support/without_io_uring.py");
const BINARY: &str = env!("CARGO_BIN_EXE_uringlog");

fn doctor(mut command: Command, directory: &Path) -> (Option<i32>, String) {
    let command = command.args(["doctor", "--dir"]).arg(directory);
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    assert_eq!(String::from_utf8_lossy(&stderr), "");
    (status.code(), String::from_utf8(stdout).expect("it writes text"))
}

/// The text behind a line's name.
fn line<'a>(report: &'a str, name: &str) -> &'a str {
    let found = report.lines().find_map(|line| line.strip_prefix(name));
    found.unwrap_or_else(|| panic!("no line {name:?} in\n{report}")).trim()
}

/// What the journal's probe took: a direct write and an append, in us.
fn measured(line: &str) -> (u64, u64) {
    let mut words = line.split_whitespace().filter_map(|word| word.parse().ok());
    let mut next = || words.next().unwrap_or_else(|| panic!("two times in {line:?}"));
    (next(), next())
}

#[test]
fn where_io_uring_works_the_ring_is_taken() {
    let kept = tempfile::tempdir().expect("a temporary directory");
    let absent = kept.path().join("not/yet");
    let (status, report) = doctor(Command::new(BINARY), &absent);
    assert_eq!(status, Some(0), "{report}");
    assert!(line(&report, "engine auto").starts_with("uring"), "{report}");
    assert_eq!(line(&report, "io_uring  "), "the ring engine can run");
    for name in ["kernel", "locked memory", "open files", "pipe size", "pipe pages"] {
        assert!(!line(&report, name).is_empty(), "{report}");
    }
    assert!(line(&report, "  linked writes").starts_with("works"), "{report}");
    assert!(line(&report, "directory").contains("doesn't exist yet"), "{report}");
    assert!(line(&report, "file system").contains('('), "{report}");
    assert!(line(&report, "fdatasync").starts_with("median"), "{report}");
    let journal = line(&report, "commit journal");
    let (direct, append) = measured(journal);
    assert_eq!(journal.starts_with("used: "), direct <= append, "{report}");
    let writes = line(&report, "buffered writes");
    assert!(writes.starts_with("done in place") || writes.starts_with("handed"), "{report}");
    assert!(!absent.exists(), "looking makes nothing");
    assert_eq!(std::fs::read_dir(kept.path()).expect("readable").count(), 0);
}

#[test]
fn where_io_uring_is_refused_plain_files_are_taken() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new("python3");
    command.args([WITHOUT_IO_URING, BINARY]);
    let (status, report) = doctor(command, directory.path());
    assert_eq!(status, Some(3), "{report}");
    let verdict = line(&report, "engine auto");
    assert!(verdict.starts_with("plain-file: io_uring is refused (errno 1"), "{report}");
    assert!(verdict.contains("seccomp"), "{report}");
    assert!(line(&report, "fdatasync").starts_with("median"), "{report}");
}

#[test]
fn a_directory_that_cannot_be_written_is_still_reported() {
    let (status, report) = doctor(Command::new(BINARY), Path::new("/proc/self"));
    assert_eq!(status, Some(0), "{report}");
    assert!(line(&report, "file system").starts_with("proc"), "{report}");
    assert!(line(&report, "fdatasync").starts_with("not measured"), "{report}");
    assert!(line(&report, "commit journal").starts_with("not used: it can't be tried"), "{report}");
    assert!(line(&report, "buffered writes").starts_with("not tried"), "{report}");
}
