//! `uringlog explain` on directories that Apache Kafka 4.3.1 wrote: what a reader asks is answered.

mod support {
    pub mod archives;
}

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use support::archives::{Archive, Unpacked};
use uringlog::cli::explain::{self, ExplainError, ExplainOptions};

/// A second after the newest record of `size-roll`.
const NOW: i64 = 1_700_000_013_596;

fn unpack(name: &str) -> Unpacked {
    let mut archives = Archive::all();
    archives.retain(|it| it.name == name);
    archives.pop().expect("an archive of that name").unpack()
}

fn explain(
    path: &Path,
    offset: Option<i64>,
    configs: &[(&str, &str)],
) -> Result<String, ExplainError> {
    let configs: BTreeMap<String, String> =
        configs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let path = path.to_owned();
    let options = ExplainOptions { path, offset, timestamp: None, configs, now: NOW };
    let mut out = Vec::new();
    explain::run(&options, &mut out)?;
    Ok(String::from_utf8(out).expect("text"))
}

fn assert_tells(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "{word:?} is not in\n{said}");
    }
}

#[test]
fn a_partition_is_explained_from_the_picture_to_the_next_roll() {
    let case = unpack("size-roll");
    let folder = case.path().join("dir-live/size-roll-0");
    let said = explain(&folder, Some(1_030), &[]).expect("explained");
    assert_tells(
        &said,
        &[
            "3190 KiB in 4 segments, offsets from 0, the next one is 3150",
            "+- 0 -------------+- 1005 ----------+- 2010 ----------+- 3015 ---------->",
            "| 22:13:20.000 to | 22:13:24.0",
            "| 22:13:24.016    | 22:13:28.036    | 22:13:32.056    | 22:13:32.596",
            "1. segment 1005: the last one whose base offset is not above 1030",
            "none of its 66 entries is at or below 1030",
            "3. scan: 1 batch is passed over (15,556 bytes); the batch at position 15,556 has",
            "its newest record holds it: offset 1004 of 2023-11-14 22:13:24.016",
            "by size: never (retention.bytes is unlimited)",
            "The active segment, 3015, rolls before the next batch that",
            "(140,004 bytes in 5",
        ],
    );
    let roll = |configs: &[_]| explain(&folder, None, configs).expect("explained");
    assert_tells(&roll(&[("segment.bytes", "1048576")]), &[" the size comes first, about 2023"]);
    assert_tells(&roll(&[("segment.ms", "600")]), &["the time comes first: it is over"]);
    assert_tells(&roll(&[("segment.index.bytes", "120")]), &["a full index comes first, about"]);
    assert_tells(&roll(&[("retention.ms", "-1")]), &["never (retention.ms is unlimited)"]);
    let compact = roll(&[("cleanup.policy", "compact")]);
    assert_tells(
        &compact,
        &["cleanup.policy is compact: whole segments only go with the log start"],
    );
    assert!(!compact.contains("by time") && !compact.contains("by size"), "{compact}");
}

#[test]
fn what_has_no_records_or_other_rules_says_so() {
    let case = unpack("whole-dir");
    let quorum = explain(&case.path().join("dir/__cluster_metadata-0"), None, &[]);
    assert_tells(
        &quorum.expect("explained"),
        &["this is the quorum's log", "the newest one here ends with offset 514"],
    );
    let said = explain(&case.path().join("dir/w-three-2"), None, &[]).expect("explained");
    assert_tells(&said, &["| no records", "segment 0 is empty and active: it stays"]);
    let list = explain(&case.path().join("dir"), None, &[]).expect("listed");
    assert_tells(&list, &["16 partitions; name one", "w-three-1: 1 segment, 575 B"]);
}

#[test]
fn what_cannot_be_explained_is_named_with_what_can() {
    let case = unpack("whole-dir");
    let refused = |path: &Path| explain(path, None, &[]).expect_err("refused").to_string();
    for name in ["dir/meta.properties", "dir/bootstrap.checkpoint"] {
        let why = refused(&case.path().join(name));
        assert!(why.contains(name) && why.contains("00000000000000000000.log"), "{why}");
    }
    // A folder whose name is like a partition's, and that is none.
    fs::create_dir_all(case.path().join("etc/dbus-1")).expect("created");
    let why = refused(&case.path().join("etc"));
    assert!(why.contains("name the folder of a partition"), "{why}");
}
