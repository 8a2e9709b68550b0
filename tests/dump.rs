//! `uringlog dump` on every file of directories that Apache Kafka 4.3.1 wrote, against what Kafka's
//! own tool printed of them, character for character.
//!
//! The archives are in `tests/golden/kafka`; further ones of the same form are taken from the
//! directory named in `GOLDEN_DIR`. Each case prints a line.

mod support {
    pub mod archives;
}

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clap::Parser;
use support::archives::Archive;
use uringlog::cli::dump::{self, args::Dump};

/// What Kafka's tool was asked, and what it said.
struct Expected {
    arguments: Vec<String>,
    out: String,
    complaints: Vec<String>,
    /// A Java exception ended it.
    has_failed: bool,
}

impl Expected {
    fn parse(text: &str) -> Option<Expected> {
        let (command, output) = text.split_once('\n')?;
        let arguments = command.strip_prefix("$ kafka-dump-log ")?;
        let (output, status) = match output.split_once("---- exit status") {
            Some((output, _)) => (output, true),
            None => (output, false),
        };
        let (out, complaints) = output.split_once("---- stderr\n").unwrap_or((output, ""));
        Some(Expected {
            arguments: arguments.split(' ').map(str::to_owned).collect(),
            out: out.to_owned(),
            complaints: blocks(complaints),
            has_failed: status || complaints.contains("Exception"),
        })
    }

    /// Kafka's tool opens a time index's offset index, too, makes an empty one where there is none
    /// (the archive has it for that reason), and fails at it. Ours only reads.
    fn tripped_over_itself(&self) -> bool {
        self.complaints.iter().any(|it| it.contains("Invalid max index size: -1"))
    }
}

/// Complaints about a file each, sorted: their order depends on where the files lie.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    for line in text.lines() {
        let is_more = line.starts_with(' ') || line.starts_with("Indexed offset");
        match blocks.last_mut() {
            Some(block) if is_more => *block += line,
            _ => blocks.push(line.to_owned()),
        }
    }
    blocks.sort();
    blocks
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    dump: Dump,
}

/// The same command here: its output with the archive's own names.
fn dumped(root: &Path, arguments: &[String]) -> (String, Vec<String>, bool) {
    let prefix = format!("{}/", root.display());
    let mut words = vec!["dump".to_owned()];
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        words.push(word.clone());
        if word == "--files" {
            let files = arguments.next().expect("files").split(',');
            let files: Vec<String> = files.map(|it| format!("{prefix}{it}")).collect();
            words.push(files.join(","));
        }
    }
    let options = Line::try_parse_from(words).expect("Kafka's flags").dump.options();
    let (mut out, mut complaints) = (Vec::new(), Vec::new());
    let outcome = dump::run(&options, &mut out, &mut complaints);
    let text = |bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).expect("text");
        text.replace(&prefix, "")
    };
    (text(out), blocks(&text(complaints)), outcome.is_err())
}

/// The text files below a folder of the case, by their names.
fn texts(root: &Path, folder: &str) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "txt") {
                let text = fs::read_to_string(&path).expect("text");
                let name = path.strip_prefix(root).expect("below it");
                texts.insert(name.display().to_string(), text);
            }
        }
    }
    texts
}

fn check(archive: &Archive) -> usize {
    let root = archive.unpack();
    let mut compared = 0;
    for (name, text) in texts(&root.path(), "dump") {
        let Some(expected) = Expected::parse(&text) else { continue };
        if expected.tripped_over_itself() {
            continue;
        }
        let (out, complaints, has_failed) = dumped(&root.path(), &expected.arguments);
        let place = format!("{}: {name}", archive.name);
        for (number, (ours, kafkas)) in out.lines().zip(expected.out.lines()).enumerate() {
            assert_eq!(ours, kafkas, "{place}, line {}", number + 2);
        }
        assert_eq!(out.trim_end(), expected.out.trim_end(), "{place}");
        assert_eq!(has_failed, expected.has_failed, "{place}");
        if !has_failed {
            let kafkas: Vec<String> =
                expected.complaints.iter().map(|it| it.replace("/golden/", "")).collect();
            assert_eq!(complaints, kafkas, "{place}");
        }
        compared += 1;
    }
    compared
}

#[test]
fn every_golden_file_is_dumped_as_kafka_does() {
    let mut compared = 0;
    for archive in Archive::all() {
        let files = check(&archive);
        println!("{}: {files} dumps are the same", archive.name);
        compared += files;
    }
    assert!(1_000 < compared, "only {compared} dumps were compared");
}

/// What the tool prints of a log with these bytes, and what ends it.
fn dump_bytes(bytes: &[u8], flags: &[&str]) -> (String, Option<String>) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("00000000000000000000.log");
    fs::write(&path, bytes).expect("written");
    let words = ["dump"].iter().chain(flags).map(|it| (*it).to_owned());
    let words = words.chain([path.display().to_string()]);
    let options = Line::try_parse_from(words).expect("Kafka's flags").dump.options();
    let mut out = Vec::new();
    let outcome = dump::run(&options, &mut out, &mut Vec::new());
    let out = String::from_utf8(out).expect("text");
    let prefix = format!("{}/", folder.path().display());
    let error = outcome.err().map(|it| it.to_string().replace(&prefix, ""));
    (out.replace(&prefix, ""), error)
}

/// The first log of a case.
fn log_of(case: &str) -> Vec<u8> {
    let archive = Archive::all().into_iter().find(|it| it.name == case);
    let root = archive.expect("an archive of that name").unpack();
    let mut folders = vec![root.path()];
    while let Some(folder) = folders.pop() {
        let mut paths: Vec<_> = fs::read_dir(folder)
            .expect("readable")
            .map(|it| it.expect("an entry").path())
            .collect();
        paths.sort();
        let is_log = |it: &&std::path::PathBuf| it.extension().is_some_and(|it| it == "log");
        if let Some(log) = paths.iter().find(is_log) {
            return fs::read(log).expect("readable");
        }
        folders.extend(paths.into_iter().filter(|it| it.is_dir()));
    }
    panic!("{case} has a log")
}

/// Where batches begin.
fn starts(bytes: &[u8]) -> Vec<usize> {
    let (mut at, mut starts) = (0, Vec::new());
    while let Some(size) = bytes.get(at + 8..at + 12) {
        starts.push(at);
        let size = u32::from_be_bytes(size.try_into().expect("four bytes"));
        at += 12 + usize::try_from(size).expect("fits");
    }
    starts
}

type Damage<'a> = &'a dyn Fn(&mut Vec<u8>);

/// Batches that several threads check come out in the order of the file, and end where going from
/// record to record, which one thread does, ends.
#[test]
fn a_long_log_is_the_same_with_and_without_its_records() {
    const MIB: usize = 1 << 20;
    let short = log_of("size-roll-exact");
    let long = short.repeat(9 * MIB / short.len());
    let starts = starts(&long);
    let middle = starts[starts.len() / 2];
    let damages: [(&str, Damage); 5] = [
        ("none", &|_| {}),
        ("a torn end", &|bytes| bytes.truncate(bytes.len() - 30)),
        ("the size of no batch", &|bytes| bytes[middle + 8..middle + 12].fill(0)),
        ("a codec that doesn't exist", &|bytes| bytes[middle + 22] |= 7),
        ("a wrong epoch of the producer and a wrong CRC", &|bytes| bytes[middle + 52] ^= 1),
    ];
    for (what, damage) in damages {
        let mut bytes = long.clone();
        damage(&mut bytes);
        let (shallow, shallow_end) = dump_bytes(&bytes, &[]);
        let (deep, deep_end) = dump_bytes(&bytes, &["--deep-iteration"]);
        let batches: String =
            deep.split_inclusive('\n').filter(|it| !it.starts_with('|')).collect();
        assert!(shallow == batches, "{what}: the lines of batches differ");
        assert_eq!(shallow_end, deep_end, "{what}");
        assert_eq!(shallow.contains("isvalid: false"), what.contains("CRC"), "{what}");
        assert!(starts.len() / 2 < shallow.lines().count(), "{what}");
    }
}

/// Kafka's tool has printed what a record says of itself when its decoder fails.
#[test]
fn what_ends_a_dump_ends_it_within_the_line() {
    let log = log_of("codecs");
    let (out, error) = dump_bytes(&log, &["--key-decoder-class", "LongDecoder"]);
    let (_, last) = out.rsplit_once('\n').expect("lines before it");
    assert!(last.starts_with("| offset: 0 ") && last.ends_with(']'), "{out}");
    assert!(error.expect("no number").contains("too few for a number"));
    let (out, error) = dump_bytes(&log, &["--json", "--key-decoder-class", "LongDecoder"]);
    assert!(out.ends_with("}\n") && error.is_some(), "{out}");
    let (out, error) = dump_bytes(&log, &["--max-bytes", "0"]);
    assert_eq!(out.lines().count(), 2, "{out}");
    assert_eq!(error, None);
}
