//! Histories of partitions that Apache Kafka 4.3.1 wrote, repeated: every file of the folder is
//! compared byte for byte at every copy that was taken; and directories that were damaged, opened.
//!
//! `tests/golden/kafka` has an archive for each case: what a single broker left, unpacked by what
//! its `case.toml` says, copies of its log directory at several moments, and what its own dump tool
//! printed of them. Further archives of the same form are taken from the directory named in
//! `GOLDEN_DIR`. Each case prints a line.

#[path = "../support/archives.rs"]
mod archives;
mod compacted;
mod compacted_case;
mod driver;
mod keep;
#[path = "../compaction/rounds.rs"]
mod rounds;
mod timeline;
mod unclean;

use archives::Archive;
use driver::repeat;
use keep::Keep;
use timeline::Timeline;
use unclean::Recovered;

/// Those in `tests/golden/kafka` that are histories; `GOLDEN_DIR` may have more.
const REPEATED_MIN: usize = 18;

#[test]
fn histories_leave_the_files_that_kafka_left() {
    let (mut repeated, mut failed) = (0, Vec::new());
    for archive in Archive::all() {
        if variant(&archive.name).is_some() {
            continue;
        }
        let root = archive.unpack();
        let timeline = Timeline::read(&root.path());
        let (mut files, mut differences) = (0, Vec::new());
        let mut unknown = timeline.unknown_steps();
        if unknown == ["clean"] {
            unknown.clear();
            (files, differences) = compacted::repeat_case(&root.path(), &Keep::of(&archive.name));
        }
        if !unknown.is_empty() {
            println!("{}: not repeated, it has {}", archive.name, unknown.join(", "));
            continue;
        }
        let is_compacted = files != 0;
        for history in timeline.histories().into_iter().filter(|_| !is_compacted) {
            let outcome = repeat(history, &Keep::of(&archive.name));
            files += outcome.files;
            differences.extend(outcome.differences);
        }
        println!("{}: {files} files compared, {} differ", archive.name, differences.len());
        repeated += 1;
        if !differences.is_empty() {
            failed.push(format!("{}:\n  {}", archive.name, differences.join("\n  ")));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(REPEATED_MIN <= repeated, "only {repeated} cases were repeated");
}

/// Where a damaged directory becomes another one here than under Kafka: it loses or hides good data
/// there, and keeps it here. Nothing else may differ.
struct Better {
    /// The letters of cases.
    variants: &'static [&'static str],
    kafka: &'static str,
    ours: &'static str,
    /// Whether what is here is what is said.
    holds: fn(&Recovered) -> bool,
}

/// What an active segment's end decides: the last batch may have entries in both indexes.
const IN_ACTIVE: &[&str] =
    &[".index", ".timeindex", ".log", ".snapshot", "leader-epoch-checkpoint"];

const BETTER: &[Better] = &[
    Better {
        variants: &["c"],
        kafka: "cuts the active segment off at the damaged batch",
        ours: "moves the damaged batch to a .quarantine file and keeps those behind it",
        holds: |it| is_set_aside(it) && differ_only_from_the_damage_on(it),
    },
    Better {
        variants: &["e2"],
        kafka: "does not notice a sealed segment's broken time index",
        ours: "rebuilds it",
        holds: |it| differ_only_in(it, &[".timeindex"]),
    },
    Better {
        variants: &["h2"],
        kafka: "completes a swap whose indexes are empty and leaves them so",
        ours: "completes it and rebuilds them",
        holds: |it| differ_only_in(it, &[".index", ".timeindex"]),
    },
    // Where Kafka doesn't start there is no directory of its to compare with. What is here is what
    // its case j, the same damage without a wrong version, is compared with byte for byte.
    Better {
        variants: &["j2"],
        kafka: "ends with status 1: the recovery point's file has a wrong version",
        ours: "recovers all segments, as without the file",
        holds: |it| !it.kafka_started && !it.report.is_lossy(),
    },
    Better {
        variants: &["k3"],
        kafka: "cuts a sealed segment at its damaged batch and deletes all later ones",
        ours: "moves the damaged batch to a .quarantine file and keeps everything behind it",
        holds: |it| is_set_aside(it) && differ_only_from_the_damage_on(it),
    },
    Better {
        variants: &["l"],
        kafka: "trusts a clean stop, and hides the active segment behind its torn last batch",
        ours: "cuts the torn batch off and shows the rest",
        holds: |it| differ_only_in(it, IN_ACTIVE),
    },
    Better {
        variants: &["m3"],
        kafka: "takes missing snapshots after a clean stop for no producers",
        ours: "rebuilds the producers from the log",
        holds: |it| differ_only_in(it, &[".snapshot"]),
    },
    Better {
        variants: &["n", "y2", "y3"],
        kafka: "rebuilds the leader epochs from the segments that it recovers",
        ours: "rebuilds them from all segments",
        holds: |it| differ_only_in(it, &["leader-epoch-checkpoint"]),
    },
    Better {
        variants: &["q5"],
        kafka: "does not notice the torn end of a sealed segment's index of aborted transactions",
        ours: "rebuilds it",
        holds: |it| differ_at_most_in(it, &[".txnindex"]),
    },
    Better {
        variants: &["y1"],
        kafka: "ends with status 1 over one partition's leader-epoch-checkpoint",
        ours: "rebuilds the file",
        holds: |it| !it.kafka_started && !it.report.is_lossy(),
    },
    Better {
        variants: &["r1", "r2"],
        kafka: "makes a missing time index anew without entries",
        ours: "rebuilds it",
        holds: |it| differ_at_most_in(it, &[".timeindex"]),
    },
    Better {
        variants: &["s1", "s2", "s3", "s4", "s5", "s6", "s7"],
        kafka: "does not notice a wrong, cut or empty index of a segment that it does not recover",
        ours: "rebuilds it where it is read, and after a kill everywhere",
        holds: |it| differ_at_most_in(it, &[".index", ".timeindex"]),
    },
    Better {
        variants: &["t1", "t3"],
        kafka: "trusts a clean stop, and hides the active segment when its last batch is gone",
        ours: "shows the rest",
        holds: |it| differ_at_most_in(it, IN_ACTIVE),
    },
    Better {
        variants: &["t2"],
        kafka: "keeps the index entries of an active segment that is empty after a clean stop",
        ours: "has none",
        holds: |it| differ_at_most_in(it, &[".index", ".timeindex", ".txnindex"]),
    },
    Better {
        variants: &["v1", "v4"],
        kafka: "cuts the log off at a header that is wrong, or serves its offsets as they are",
        ours: "moves the batch to a .quarantine file and keeps those behind it",
        holds: |it| is_set_aside(it) && differ_only_from_its_segment_on(it),
    },
    Better {
        variants: &["v2"],
        kafka: "takes a batch of an unknown format for format 2",
        ours: "moves a last batch of an unknown format to a .quarantine file",
        holds: |it| is_set_aside(it) && differ_only_from_its_segment_on(it),
    },
    Better {
        variants: &["v3"],
        kafka: "keeps index entries that do not fit the last batch's offsets after a clean stop",
        ours: "rebuilds them",
        holds: |it| differ_at_most_in(it, &[".index", ".timeindex"]),
    },
    Better {
        variants: &["v5"],
        kafka: "empties the active segment, or keeps both, when its last batch is there twice",
        ours: "cuts the second one off",
        holds: |it| {
            let base = it.files.keys().filter(|name| name.ends_with(".log")).max();
            let base = base.map_or("", |name| &name[..20]);
            let epochs = "leader-epoch-checkpoint";
            different(it)
                .all(|name| name.starts_with(base) || name.ends_with(".snapshot") || name == epochs)
        },
    },
    Better {
        variants: &["z7"],
        kafka: "keeps what lies before the log's start as .deleted files for a while",
        ours: "removes it at once, and writes the end's snapshot at the stop",
        holds: |it| differ_only_in(it, &[".deleted", ".snapshot"]),
    },
    Better {
        variants: &["aa"],
        kafka: "takes a folder without partition.metadata for a stray one and begins an empty one",
        ours: "keeps the records, and writes the file",
        holds: |it| !it.report.is_lossy() && it.files.contains_key("partition.metadata"),
    },
];

/// Nothing differs silently: README's table names the cases above, and no others.
#[test]
fn readme_names_every_difference() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"));
    let readme = readme.expect("README.md");
    let (_, behind) = readme.split_once("### Where uringlog keeps more").expect("its section");
    let section = behind.split("\n### ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').next());
    let mut told: Vec<&str> = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let mut known: Vec<&str> = BETTER.iter().flat_map(|it| it.variants).copied().collect();
    told.sort_unstable();
    known.sort_unstable();
    assert_eq!(told, known);
}

/// The letter of a damaged directory's case; something may stand before `unclean`.
fn variant(name: &str) -> Option<&str> {
    let (_, variant) =
        format!("-{name}").contains("-unclean-").then(|| name.split_once("unclean-"))??;
    variant.split('-').next()
}

fn is_set_aside(recovered: &Recovered) -> bool {
    let mut names = recovered.files.keys();
    recovered.report.is_lossy() && names.any(|name| name.ends_with(".quarantine"))
}

/// The files that differ.
fn different(recovered: &Recovered) -> impl Iterator<Item = &str> {
    let paths = recovered.differences.iter().map(|it| it.split(": ").next().unwrap_or_default());
    paths.map(|path| path.rsplit('/').next().unwrap_or_default())
}

fn differ_only_in(recovered: &Recovered, files: &[&str]) -> bool {
    !recovered.differences.is_empty()
        && different(recovered).all(|name| files.iter().any(|file| name.ends_with(file)))
}

fn differ_at_most_in(recovered: &Recovered, files: &[&str]) -> bool {
    recovered.differences.is_empty() || differ_only_in(recovered, files)
}

/// Whether the segments before that of the damaged batch are as Kafka's.
fn differ_only_from_its_segment_on(recovered: &Recovered) -> bool {
    let base = |name: &str| name.split('.').next().and_then(|it| it.parse::<u64>().ok());
    let ours = |end| recovered.files.keys().filter(move |name| name.ends_with(end));
    let damage = ours(".quarantine").find_map(|name| base(name)).expect("it was set aside");
    let segment = ours(".log").filter_map(|name| base(name)).filter(|it| *it <= damage).max();
    different(recovered).all(|name| {
        name == "leader-epoch-checkpoint" || base(name).is_some_and(|it| segment <= Some(it))
    })
}

/// Whether what lies before the damaged batch is as Kafka's, but for the indexes of its segment,
/// which is the active one there, and for the epochs.
fn differ_only_from_the_damage_on(recovered: &Recovered) -> bool {
    let base = |name: &str| name.split('.').next().and_then(|it| it.parse::<u64>().ok());
    let ours = |end| recovered.files.keys().filter(move |name| name.ends_with(end));
    let damage = ours(".quarantine").find_map(|name| base(name)).expect("it was set aside");
    let segment = ours(".log").filter_map(|name| base(name)).filter(|it| *it <= damage).max();
    let is_index = |name: &str| name.ends_with(".index") || name.ends_with(".timeindex");
    different(recovered).all(|name| {
        name == "leader-epoch-checkpoint"
            || base(name).is_some_and(|it| damage <= it)
            || base(name) == segment && is_index(name)
    })
}

#[test]
fn damaged_directories_become_what_kafka_makes_of_them_or_better() {
    let (mut seen, mut failed) = (0, Vec::new());
    for archive in Archive::all() {
        let Some(variant) = variant(&archive.name) else { continue };
        let root = archive.unpack();
        let recovered = unclean::recover(&root.path(), &Keep::of(&archive.name));
        let is_right = match BETTER.iter().find(|it| it.variants.contains(&variant)) {
            Some(better) => {
                println!("{}: Kafka {}; here it {}", archive.name, better.kafka, better.ours);
                (better.holds)(&recovered)
            }
            None => {
                println!("{}: as Kafka; {}", archive.name, recovered.report);
                recovered.kafka_started && recovered.differences.is_empty()
            }
        };
        if !is_right {
            let (report, found) = (&recovered.report, recovered.differences.join("\n  "));
            failed.push(format!("{}: {report}\n  {found}", archive.name));
        }
        seen += 1;
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(27 <= seen, "only {seen} damaged directories");
}
