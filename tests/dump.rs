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
    let (out, _, error) = dump_file(("log", bytes), flags);
    (out, error)
}

/// The same of a file of any kind, with what it complains of in between.
fn dump_file((kind, bytes): (&str, &[u8]), flags: &[&str]) -> (String, String, Option<String>) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join(format!("00000000000000000000.{kind}"));
    fs::write(&path, bytes).expect("written");
    let words = ["dump"].iter().chain(flags).map(|it| (*it).to_owned());
    let words = words.chain([path.display().to_string()]);
    let options = Line::try_parse_from(words).expect("Kafka's flags").dump.options();
    let (mut out, mut complaints) = (Vec::new(), Vec::new());
    let outcome = dump::run(&options, &mut out, &mut complaints);
    let prefix = format!("{}/", folder.path().display());
    let text = |bytes| String::from_utf8(bytes).expect("text").replace(&prefix, "");
    let error = outcome.err().map(|it| it.to_string().replace(&prefix, ""));
    (text(out), text(complaints), error)
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

/// A record without headers, at most 63 bytes long.
fn record(delta: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    let zigzag = |number: usize| u8::try_from(2 * number).expect("short");
    let mut body = vec![0, 0, 2 * delta, zigzag(key.len())];
    body.extend_from_slice(key);
    body.push(zigzag(value.len()));
    body.extend_from_slice(value);
    body.push(0);
    [vec![zigzag(body.len())], body].concat()
}

/// What a batch's header says.
#[derive(Clone, Copy)]
struct Head {
    attributes: i16,
    last_delta: i32,
    base_sequence: i32,
    count: i32,
}

const THREE: Head = Head { attributes: 0, last_delta: 2, base_sequence: -1, count: 3 };
const CONTROL: Head = Head { attributes: 0x20, last_delta: 0, base_sequence: -1, count: 1 };

fn batch(head: Head, records: &[u8]) -> Vec<u8> {
    let mut body = head.attributes.to_be_bytes().to_vec();
    body.extend_from_slice(&head.last_delta.to_be_bytes());
    body.extend_from_slice(&[1_000_i64.to_be_bytes(); 2].concat());
    body.extend_from_slice(&[0xff; 10]);
    body.extend_from_slice(&head.base_sequence.to_be_bytes());
    body.extend_from_slice(&head.count.to_be_bytes());
    body.extend_from_slice(records);
    let size = i32::try_from(9 + body.len()).expect("short");
    let mut bytes = vec![0; 8];
    bytes.extend_from_slice(&size.to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 0, 2]);
    bytes.extend_from_slice(&crc32c::crc32c(&body).to_be_bytes());
    [bytes, body].concat()
}

fn three_records() -> Vec<u8> {
    [record(0, b"k", b"v0"), record(1, b"k", b"v1"), record(2, b"k", b"v2")].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let codec = uringlog::format::batch::Codec::Gzip;
    uringlog::format::codec::compress(codec, Default::default(), bytes).expect("packed")
}

/// Records that a dump shows of a batch, and whether an error ends it: as Kafka 4.3.1 does with the
/// same bytes.
#[test]
fn of_a_wrong_count_the_records_are_shown_that_kafka_shows() {
    let packed = |head: Head| Head { attributes: 1, ..head };
    let with = |count, last_delta| Head { count, last_delta, ..THREE };
    let records = three_records();
    let cases: [(&str, Head, Vec<u8>, usize, bool); 10] = [
        ("as it should be", THREE, records.clone(), 3, false),
        ("packed", packed(THREE), gzip(&records), 3, false),
        ("none is announced", with(0, 2), records.clone(), 0, false),
        ("none, and what is packed is garbage", packed(with(0, 2)), b"zzz".to_vec(), 0, false),
        // The last one is hidden by what is behind it.
        ("too few are announced", with(2, 2), records.clone(), 1, true),
        ("too few, packed", packed(with(2, 2)), gzip(&records), 0, true),
        ("too many are announced", with(5, 4), records.clone(), 3, true),
        // Of packed ones all are read first.
        ("too many, packed", packed(with(5, 4)), gzip(&records), 0, true),
        ("fewer than none", with(-3, 2), records.clone(), 0, true),
        ("the packed stream is cut", packed(THREE), gzip(&records)[..20].to_vec(), 0, true),
    ];
    for (what, head, records, shown, has_failed) in cases {
        let (out, error) = dump_bytes(&batch(head, &records), &["--print-data-log"]);
        assert_eq!(out.lines().filter(|it| it.starts_with("| ")).count(), shown, "{what}: {out}");
        assert_eq!(error.is_some(), has_failed, "{what}: {error:?}");
    }
}

/// The numbers that Java's arithmetic gives for headers that can't be.
#[test]
fn last_sequences_are_those_of_kafka() {
    for (base_sequence, last_delta, expected) in [
        (-1, 2, -1),
        (-3, 2, -1),
        (-2, 36, 34),
        (-129, 0, -129),
        (i32::MAX - 1, 2, 0),
        (41, -1, -2_147_483_608),
        (50, i32::MIN, 50),
    ] {
        let head = Head { base_sequence, last_delta, ..THREE };
        let (out, _) = dump_bytes(&batch(head, &three_records()), &[]);
        let told = format!("baseSequence: {base_sequence} lastSequence: {expected} ");
        assert!(out.contains(&told), "{told}: {out}");
    }
}

/// Kafka's tool reads control records of KRaft by their first version, whatever they say.
#[test]
fn control_records_of_every_version_are_shown() {
    let shown = |key: [u8; 4], value: &[u8]| {
        let log = batch(CONTROL, &record(0, &key, value));
        let (out, error) = dump_bytes(&log, &["--deep-iteration"]);
        let (_, line) = out.split_once("headerKeys: []").expect("a record");
        (line.trim().to_owned(), error)
    };
    for (kind, value, expected) in [
        (2, &[0, 0, 0, 0, 0, 1, 1, 1, 0][..], r#"LeaderChange: {"version":0,"leaderId":1,"#),
        (3, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 77, 0], r#"SnapshotHeader {"version":1,"last"#),
        (4, &[1, 0, 0], r#"SnapshotFooter {"version":256}"#),
        (4, &[0xff, 0xff, 0], r#"SnapshotFooter {"version":-1}"#),
        (5, &[0, 7, 0, 1, 0], r#"KRaftVersion {"version":7,"kRaftVersion":1}"#),
        (6, &[0, 2, 1, 0], r#"KRaftVoters {"version":2,"voters":[]}"#),
        (7, &[1], "controlType: UNKNOWN(7)"),
    ] {
        let (line, error) = shown([0, 0, 0, kind], value);
        assert!(line.starts_with(expected) && error.is_none(), "{line} {error:?}");
    }
    let leader = [0, 1, 0, 0, 0, 1, 2, 0, 0, 0, 1, 0, 1, 0];
    let voter = r#"{"voterId":1,"voterDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA"}"#;
    let before = r#"LeaderChange: {"version":1,"leaderId":1,"voters":["#;
    let expected = format!(r#"{before}{voter}],"grantingVoters":[]}}"#);
    assert_eq!(shown([0, 0, 0, 2], &leader), (expected, None));
    assert_eq!(shown([0; 4], &[0, 9, 0, 0, 0, 5]).1, None);
    let (line, error) = shown([0; 4], &[0xff, 0xff, 0, 0, 0, 5]);
    assert!(line.is_empty() && error.expect("refused").contains("version -1"), "{line}");
    let (line, error) = shown([0xff, 0xff, 0, 2], &leader);
    assert!(line.is_empty() && error.expect("refused").contains("version -1"), "{line}");
}

/// What holds no batch is told as Kafka tells it.
#[test]
fn what_is_no_log_is_told_as_kafka_tells_it() {
    let text = b"This is a text file and no log of Kafka, and it goes on for quite a while.\n";
    let whole = batch(THREE, &three_records());
    for bytes in [&text[..], b"hello\n", &[0; 17], &[0], &whole[..12], &whole[..18], &whole[..62]] {
        let (out, error) = dump_bytes(bytes, &[]);
        let trailing =
            format!("Found {} invalid bytes at the end of 00000000000000000000.log\n", bytes.len());
        assert!(out.ends_with(&trailing) && error.is_none(), "{out} {error:?}");
    }
    let (out, error) = dump_bytes(&[0; 100], &[]);
    assert_eq!(out.lines().count(), 2, "{out}");
    assert!(error.expect("zeros end it").contains("Found record size 0"));
}

#[test]
fn numbers_below_zero_end_a_dump_where_they_end_kafkas() {
    let log = batch(THREE, &three_records());
    for flags in [["--max-bytes", "-1"], ["--max-bytes", "-5"]] {
        let (out, error) = dump_bytes(&log, &flags);
        assert_eq!(out.lines().count(), 2, "{out}");
        let error = error.expect("refused");
        assert!(error.contains(&flags.join(" ")) && error.contains("0 or more"), "{error}");
    }
    let (out, error) = dump_bytes(&log, &["--max-message-size", "-1", "--deep-iteration"]);
    assert_eq!((out.lines().count(), error), (6, None), "{out}");
    let twice = ["--deep-iteration", "--deep-iteration", "--offsets-decoder", "--offsets-decoder"];
    assert_eq!(dump_bytes(&log, &twice).1, None);
}

#[test]
fn of_a_damaged_transaction_index_what_kafka_reads_is_shown() {
    let entry = |version: i16, last: i64| {
        let numbers = [1, 2, last, 4_i64].map(i64::to_be_bytes).concat();
        [version.to_be_bytes().to_vec(), numbers].concat()
    };
    let dump = |bytes: &[u8]| dump_file(("txnindex", bytes), &[]);
    let (out, _, error) = dump(&[entry(0, 3), entry(11, 5), entry(-256, 7), vec![0; 20]].concat());
    let versions: Vec<&str> = out.lines().skip(1).map(|it| &it[..12]).collect();
    assert_eq!((versions, error), (vec!["version: 0 p", "version: 0 p", "version: -1 "], None));
    let (out, _, error) = dump(&[entry(0, 3), entry(256, 5)].concat());
    assert_eq!(out.lines().count(), 1, "all or none: {out}");
    assert!(error.expect("newer").contains("entry 1 of the transaction index has version 1"));
}

#[test]
fn a_damaged_snapshot_is_told_of_in_kafkas_words() {
    let file = |version: i16, count: i32, body: &[u8]| {
        let counted = [&count.to_be_bytes()[..], body].concat();
        let crc = crc32c::crc32c(&counted).to_be_bytes();
        [&version.to_be_bytes()[..], &crc, &counted].concat()
    };
    let good = file(1, 1, &[0; 46]);
    let failed = "Snapshot failed schema validation: ";
    for (bytes, expected) in [
        (good.clone(), ""),
        (file(1, 1, &[0; 48]), ""),
        (Vec::new(), "null"),
        (good[..5].to_vec(), "null"),
        (good[..40].to_vec(), "null"),
        (file(1, 2, &[0; 46]), "null"),
        (file(2, 1, &[0; 46]), "Snapshot contained an unknown file version 2"),
        (
            file(1, 65, &[0; 53]),
            "Tried to allocate a collection of size 65, but there are only 53 bytes remaining.",
        ),
        (file(1, -1, &[0; 46]), "non-nullable field producerEntries was serialized as null"),
    ] {
        let (out, complaint, error) = dump_file(("snapshot", &bytes), &[]);
        assert_eq!(error, None);
        assert_eq!(out.lines().count(), if expected.is_empty() { 2 } else { 1 }, "{out}");
        assert_eq!(complaint.trim_end().strip_prefix(failed).unwrap_or(&complaint), expected);
    }
    let mut flipped = good;
    flipped[20] ^= 1;
    let (_, complaint, _) = dump_file(("snapshot", &flipped), &[]);
    assert!(complaint.starts_with("Snapshot is corrupt (CRC is no longer valid). Stored crc: "));
}
