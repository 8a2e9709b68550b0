//! Every offline tool on files that are damaged at random: bits flipped, ends cut off, lengths made
//! huge, files swapped for others. No panic, no endless loop, and no allocation that outgrows the
//! files. A program of its own, since it watches every allocation of the process.

#[path = "allocations/counting.rs"]
mod counting;
mod support {
    pub mod archives;
}

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use support::archives::Archive;
use uringlog::cli::dump::{self, Decoder, DumpOptions, TextDecoder};
use uringlog::cli::explain::{self, ExplainOptions};
use uringlog::cli::flat;
use uringlog::cli::repair::{self, RepairOptions};
use uringlog::cli::verify::{self, VerifyOptions};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

const NOW: i64 = 1_795_991_000_000;
/// What a tool may ask for at once whatever the files are: a window of a log above all.
const BUFFERS_MAX: u64 = 8 << 20;
/// Bytes of a time index's entry in memory for each of the 12 in its file.
const ENTRY_FACTOR: u64 = 4;
/// Damages of one case's directory.
const DAMAGES: u32 = 2;

/// One damage of one file.
#[derive(Clone, Debug)]
enum Damage {
    Flip {
        byte: Index,
        bit: u8,
    },
    /// Four bytes become this: lengths and counts are among them.
    Word {
        at: Index,
        value: u32,
    },
    Cut {
        to: Index,
    },
    Zeros {
        from: Index,
    },
    Empty,
    /// A hole of 8 MiB behind the end.
    Huge,
}

fn damage() -> impl Strategy<Value = Damage> {
    let word = prop_oneof![Just(u32::MAX), Just(i32::MAX.unsigned_abs()), Just(0), any::<u32>()];
    prop_oneof![
        4 => (any::<Index>(), 0..8_u8).prop_map(|(byte, bit)| Damage::Flip { byte, bit }),
        4 => (any::<Index>(), word).prop_map(|(at, value)| Damage::Word { at, value }),
        2 => any::<Index>().prop_map(|to| Damage::Cut { to }),
        1 => any::<Index>().prop_map(|from| Damage::Zeros { from }),
        1 => Just(Damage::Empty),
        1 => Just(Damage::Huge),
    ]
}

fn apply(damage: &Damage, path: &Path) -> io::Result<()> {
    let mut bytes = fs::read(path)?;
    let length = bytes.len();
    match damage {
        _ if length == 0 => {}
        Damage::Flip { byte, bit } => bytes[byte.index(length)] ^= 1 << bit,
        Damage::Word { at, value } => {
            let at = at.index(length);
            let end = length.min(at + 4);
            bytes[at..end].copy_from_slice(&value.to_be_bytes()[..end - at]);
        }
        Damage::Cut { to } => bytes.truncate(to.index(length)),
        Damage::Zeros { from } => bytes[from.index(length)..].fill(0),
        Damage::Empty => bytes.clear(),
        Damage::Huge => {}
    }
    fs::write(path, &bytes)?;
    if matches!(damage, Damage::Huge) {
        fs::File::options().write(true).open(path)?.set_len(8 << 20)?;
    }
    Ok(())
}

/// All files below, but locks.
fn files(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("readable") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    found
}

fn decoder(path: &Path) -> Decoder {
    let path = path.to_string_lossy();
    match () {
        () if path.contains("__consumer_offsets") => Decoder::Offsets,
        () if path.contains("__transaction_state") => Decoder::Transactions,
        () if path.contains("__cluster_metadata") => Decoder::ClusterMetadata,
        () => Decoder::Plain { key: TextDecoder::Text, value: TextDecoder::Text },
    }
}

/// Every tool on the directory; outcomes are free, but all of them must come to an end.
fn run_all(root: &Path, damaged: &Path) {
    let _ = dump::run(
        &DumpOptions {
            files: vec![damaged.to_owned()],
            is_deep: true,
            contents: Some(decoder(damaged)),
            skips_metadata: false,
            verifies_only: false,
            checks_sanity: false,
            max_message_bytes: 5 << 20,
            max_bytes: None,
            json: true,
        },
        &mut io::sink(),
        &mut io::sink(),
    );
    let directory = root.to_owned();
    let options = VerifyOptions { directory, threads: 2, is_deep: false, json: true };
    let _ = verify::run(&options, &mut io::sink());
    let options = ExplainOptions {
        path: damaged.parent().expect("in a folder").to_owned(),
        offset: Some(10),
        timestamp: Some(NOW - 1_000),
        configs: BTreeMap::new(),
        now: NOW,
    };
    let _ = explain::run(&options, &mut io::sink());
    let _ = flat::run(damaged, &mut io::sink());
}

fn repair_copy(root: &Path, to: PathBuf) {
    let options = RepairOptions { directory: root.to_owned(), to: Some(to.clone()), now: NOW };
    let _ = repair::run(&options, &mut io::sink());
    let _ = fs::remove_dir_all(to);
}

/// The last directory of a case that Kafka left in order.
fn last_directory(case: &Path) -> PathBuf {
    let entries = fs::read_dir(case).expect("the case's folder");
    let mut found: Vec<PathBuf> = entries.map(|it| it.expect("an entry").path()).collect();
    found.retain(|it| {
        let name = it.file_name().expect("a name").to_string_lossy();
        it.is_dir() && name.starts_with("dir")
    });
    found.into_iter().max().expect("one directory at least")
}

#[test]
fn damaged_files_end_no_tool() {
    for name in ["size-roll-exact", "timestamps", "leader-epoch", "whole-dir", "delete-records"] {
        let archive = Archive::all().into_iter().find(|it| it.name == name);
        let case = archive.expect("an archive of that name").unpack();
        let root = last_directory(&case.path());
        let files = files(&root);
        let mut runner = TestRunner::new(Config {
            cases: DAMAGES * u32::try_from(files.len().min(10)).expect("small"),
            failure_persistence: None,
            ..Config::default()
        });
        let strategy = (any::<Index>(), damage());
        let outcome = runner.run(&strategy, |(file, damage)| {
            let path = &files[file.index(files.len())];
            let good = fs::read(path).expect("readable");
            apply(&damage, path).expect("writable");
            let largest = files.iter().map(|it| fs::metadata(it).expect("there").len()).max();
            counting::take_largest();
            run_all(&root, path);
            repair_copy(&root, case.path().join("repaired"));
            let asked = counting::take_largest();
            fs::write(path, &good).expect("writable");
            let limit = BUFFERS_MAX + ENTRY_FACTOR * largest.unwrap_or_default();
            prop_assert!(asked <= limit, "{asked} bytes at once, {damage:?} of {}", path.display());
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert!(0 < counting::allocations(), "the allocator counts");
}

/// Holes of a tebibyte: nobody has the memory for them, and nobody may look for it.
#[test]
fn huge_sparse_files_are_passed_over() {
    let archive = Archive::all().into_iter().find(|it| it.name == "size-roll-exact");
    let case = archive.expect("an archive of that name").unpack();
    let root = last_directory(&case.path());
    for file in files(&root) {
        let length = fs::metadata(&file).expect("there").len();
        let opened = fs::File::options().write(true).open(&file).expect("writable");
        if opened.set_len(1 << 40).is_ok() {
            run_all(&root, &file);
        }
        opened.set_len(length).expect("shorter again");
    }
}

#[test]
fn what_is_no_log_is_refused_or_passed_over() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let partition = directory.path().join("t-0");
    fs::create_dir(&partition).expect("created");
    let log = partition.join("00000000000000000000.log");
    run_all(directory.path(), &log);
    fs::write(&log, b"").expect("written");
    run_all(directory.path(), &log);
    // A link to itself, a link to nothing, a folder of a segment's name.
    fs::remove_file(&log).expect("removed");
    symlink(&log, &log).expect("linked");
    run_all(directory.path(), &log);
    fs::remove_file(&log).expect("removed");
    symlink("/nowhere/at/all", &log).expect("linked");
    run_all(directory.path(), &log);
    fs::remove_file(&log).expect("removed");
    fs::create_dir(&log).expect("created");
    run_all(directory.path(), &log);
    repair_copy(directory.path(), directory.path().with_extension("repaired"));
}
