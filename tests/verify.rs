//! `uringlog verify` on directories that Apache Kafka 4.3.1 wrote: nothing is found in those that
//! Kafka left, and every bit that is flipped in them is.

mod support {
    pub mod archives;
}

use std::fs;
use std::path::{Path, PathBuf};

use support::archives::Archive;
use uringlog::cli::verify::{self, Verdict, VerifyOptions};

fn verify(directory: &Path) -> (Verdict, String) {
    let options =
        VerifyOptions { directory: directory.to_owned(), threads: 2, is_deep: true, json: false };
    let mut out = Vec::new();
    let verdict = verify::run(&options, &mut out).expect("a log directory");
    (verdict, String::from_utf8(out).expect("text"))
}

fn archives(choose: impl Fn(&str) -> bool) -> Vec<Archive> {
    Archive::all().into_iter().filter(|it| choose(&it.name)).collect()
}

/// The log directories of a case: `dir`, `dir-...`.
fn directories(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).expect("the case's folder");
    let mut found: Vec<PathBuf> = entries.map(|it| it.expect("an entry").path()).collect();
    found.retain(|it| {
        let name = it.file_name().expect("a name").to_string_lossy();
        it.is_dir() && name.starts_with("dir")
    });
    found.sort();
    found
}

#[test]
fn nothing_is_found_where_kafka_left_it() {
    let mut seen = 0;
    for archive in archives(|it| !it.starts_with("unclean-")) {
        let root = archive.unpack();
        for directory in directories(&root.path()) {
            let (verdict, said) = verify(&directory);
            assert_eq!(
                verdict,
                Verdict::Clean,
                "{}: {}\n{said}",
                archive.name,
                directory.display()
            );
            seen += 1;
        }
    }
    assert!(40 < seen, "only {seen} directories");
}

/// Kafka's dump tool makes an empty offset index where there is none; the archives have them.
fn remove_what_the_tool_made(directory: &Path) {
    for index in files(directory, &["index"], |bytes| bytes == 0) {
        fs::remove_file(index).expect("removable");
    }
}

/// What was done to them by hand, and is still there before Kafka has started on them.
#[test]
fn damage_is_found() {
    for (name, what) in [
        ("unclean-a-torn-tail", "to the end are no whole batch"),
        ("unclean-b-flip-last", "does not have its CRC-32C"),
        ("unclean-c-flip-middle", "does not have its CRC-32C"),
        ("unclean-d-index-gone", "the index is missing"),
        ("unclean-e1-timeindex-garbage-active", "timeindex"),
        ("unclean-e2-timeindex-garbage-sealed", "timeindex"),
        ("unclean-f2-garbage-tail", "to the end are no whole batch"),
        ("unclean-g1-snapshot-corrupt", "snapshot"),
        ("unclean-k1-flip-old-clean", "does not have its CRC-32C"),
        ("unclean-l-torn-tail-clean", "to the end are no whole batch"),
        ("unclean-o-orphans", "there is no .log of this segment"),
        ("unclean-j2-bad-recovery-point-no-start", "recovery-point-offset-checkpoint"),
    ] {
        let archive = archives(|it| it == name).pop().expect("an archive of that name");
        let root = archive.unpack();
        let first = directories(&root.path()).into_iter().next().expect("the damaged one");
        remove_what_the_tool_made(&first);
        let (verdict, said) = verify(&first);
        assert_eq!(verdict, Verdict::Findings, "{name}: {said}");
        assert!(said.contains(what), "{name}: {said}");
    }
}

/// A segment that can't be read says nothing of what else is there: no checkpoint, snapshot or
/// epoch is called wrong for it.
#[test]
fn what_could_not_be_looked_at_is_no_damage() {
    let archive = archives(|it| it == "transactions").pop().expect("an archive of that name");
    let root = archive.unpack();
    let directory = directories(&root.path()).into_iter().next().expect("one");
    remove_what_the_tool_made(&directory);
    let (_, before) = verify(&directory);
    let log = files(&directory, &["log"], |bytes| 0 < bytes).pop().expect("a segment");
    fs::remove_file(&log).expect("removable");
    let mode = rustix::fs::Mode::from(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &log, rustix::fs::FileType::Fifo, mode, 0).expect("made");
    let (verdict, said) = verify(&directory);
    assert_eq!(verdict, Verdict::Unseen, "{said}");
    assert!(said.contains("it is no regular file"), "{said}");
    let damage = |said: &str| said.lines().filter(|it| it.starts_with("finding")).count();
    assert_eq!(damage(&said), damage(&before), "{said}");
}

/// Kafka writes its log starts every minute, and deletes segments meanwhile: a kill leaves lines
/// that lie before what is still there.
#[test]
fn a_log_start_that_retention_has_overtaken_is_no_finding() {
    let archive = archives(|it| it == "delete-records").pop().expect("an archive of that name");
    let root = archive.unpack();
    let directory = directories(&root.path()).pop().expect("the last one");
    let base = |path: &Path| path.file_stem()?.to_str()?.parse::<u64>().ok();
    let logs = files(&directory, &["log"], |_| true);
    let later = logs.iter().find(|it| base(it) != Some(0)).expect("segments were deleted");
    let folder = later.parent().expect("a folder");
    for first in files(&directory, &["log", "index", "timeindex", "snapshot"], |_| true) {
        if first.parent() == Some(folder) && base(&first) < base(later) {
            fs::remove_file(first).expect("removable");
        }
    }
    let name = folder.file_name().expect("a name").to_string_lossy();
    let (topic, partition) = name.rsplit_once('-').expect("a partition");
    let start = base(later).expect("a number") - 1;
    let line = format!("0\n1\n{topic} {partition} {start}\n");
    fs::write(directory.join("log-start-offset-checkpoint"), line).expect("written");
    let (verdict, said) = verify(&directory);
    assert_eq!(verdict, Verdict::Clean, "{said}");
    assert!(said.contains("1 lines lie before the first segment"), "{said}");
}

/// Deterministic, and different for each case.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(below).expect("64 bits")).expect("below")
    }
}

fn files(directory: &Path, extensions: &[&str], has_size: impl Fn(u64) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for partition in fs::read_dir(directory).expect("readable") {
        let partition = partition.expect("an entry").path();
        if !partition.is_dir() {
            continue;
        }
        for file in fs::read_dir(&partition).expect("readable") {
            let file = file.expect("an entry").path();
            let extension = file.extension().unwrap_or_default().to_string_lossy().into_owned();
            let bytes = fs::metadata(&file).expect("it is there").len();
            if extensions.contains(&extension.as_str()) && has_size(bytes) {
                found.push(file);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn every_flipped_bit_is_found() {
    const FLIPS: usize = 60;
    for name in
        ["size-roll-exact", "time-roll", "timestamps", "leader-epoch", "idempotent", "transactions"]
    {
        let archive = archives(|it| it == name).pop().expect("an archive of that name");
        let root = archive.unpack();
        let directory = directories(&root.path()).pop().expect("the last one");
        let kinds = ["log", "index", "timeindex", "snapshot", "txnindex"];
        let mut numbers =
            Numbers(0x9e37_79b9_7f4a_7c15 ^ u64::try_from(name.len()).expect("short"));
        for kind in kinds {
            let files = files(&directory, &[kind], |bytes| bytes != 0);
            for _ in 0..if files.is_empty() { 0 } else { FLIPS } {
                let file = &files[numbers.next(files.len())];
                let good = fs::read(file).expect("readable");
                let (byte, bit) = (numbers.next(good.len()), numbers.next(8));
                let mut bad = good.clone();
                bad[byte] ^= 1 << bit;
                fs::write(file, &bad).expect("writable");
                let (verdict, said) = verify(&directory);
                let place = format!("{name}: bit {bit} of byte {byte} of {}", file.display());
                assert_eq!(verdict, Verdict::Findings, "{place}: {said}");
                fs::write(file, &good).expect("writable");
            }
        }
        let (verdict, said) = verify(&directory);
        assert_eq!(verdict, Verdict::Clean, "{name} is whole again: {said}");
    }
}
