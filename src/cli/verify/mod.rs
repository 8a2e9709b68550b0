//! `uringlog verify`: checks everything about a Kafka log directory that can be checked without
//! changing it and without a server.
//!
//! Segments are read in parallel (`segment`); what spans segments follows (`partition`), then
//! what lies at the root (`root`). What Kafka itself leaves behind is no finding.

pub mod args;
mod epochs;
mod finding;
mod index;
mod look;
mod partition;
mod root;
mod segment;
mod transactions;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use finding::{Finding, Kind};
use look::Look;
use partition::Walked;

use crate::cli::object::{long, object};
use crate::cli::output::plural;
use crate::format::schema::Value;
use crate::units::u64_of;

/// What the command line says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifyOptions {
    /// A log directory, or the folder of one partition.
    pub directory: PathBuf,
    /// Segments that are read at the same time.
    pub threads: usize,
    /// Take the records of batches apart, too.
    pub is_deep: bool,
    /// Findings as JSON.
    pub json: bool,
}

/// What came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing is wrong.
    Clean,
    /// Something is.
    Findings,
    /// Something could not be looked at.
    Unseen,
}

impl Verdict {
    /// 0, 1 and 2.
    pub fn exit_status(self) -> u8 {
        match self {
            Verdict::Clean => 0,
            Verdict::Findings => 1,
            Verdict::Unseen => 2,
        }
    }
}

/// Why a directory can't be verified at all.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// It can't be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// As the system says.
        error: io::Error,
    },
    /// Neither partitions nor segments are in it.
    #[error(
        "{} is no log directory: there is no folder named like a partition (topic-0) in it, and \
         no .log file; name a log directory or the folder of a partition",
        .0.display()
    )]
    NoLogs(PathBuf),
    /// Standard output can't be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// How much was looked at.
#[derive(Clone, Copy, Default)]
struct Counts {
    partitions: usize,
    segments: usize,
    batches: u64,
    bytes: u64,
}

/// Verifies, and writes findings to `out`.
///
/// # Errors
/// [`VerifyError`].
pub fn run(options: &VerifyOptions, out: &mut dyn Write) -> Result<Verdict, VerifyError> {
    let started = Instant::now();
    let mut findings = Vec::new();
    let mut looks = looks(&options.directory, &mut findings)?;
    // Before the logs, which may grow meanwhile: what it promises must be there.
    let at_root = root::Root::read(&options.directory, &mut findings);
    walk(&mut looks, options);
    let mut counts = Counts { partitions: looks.len(), ..Counts::default() };
    for look in &mut looks {
        let cleaned = at_root.as_ref().and_then(|it| it.cleaned_up_to(&look.partition));
        look.check(cleaned);
        look.settle(cleaned, |again| walk(std::slice::from_mut(again), options));
        findings.append(&mut look.findings);
        let partition = &look.partition;
        counts.segments += partition.segments.len();
        for walked in partition.walked() {
            counts.batches += walked.batches;
            counts.bytes += walked.bytes;
        }
    }
    if let Some(root) = at_root {
        root.check(looks.iter().map(|it| &it.partition), &mut findings);
    }
    findings.sort_by(|a, b| (&a.path, a.position).cmp(&(&b.path, b.position)));
    report(options, &findings, (counts, started.elapsed().as_secs_f64()), out)?;
    Ok(verdict(&findings))
}

fn verdict(findings: &[Finding]) -> Verdict {
    let has = |kind| findings.iter().any(|it| it.kind == kind);
    if has(Kind::Unseen) {
        Verdict::Unseen
    } else if has(Kind::Damage) {
        Verdict::Findings
    } else {
        Verdict::Clean
    }
}

fn looks(directory: &Path, findings: &mut Vec<Finding>) -> Result<Vec<Look>, VerifyError> {
    let unreadable = |error| VerifyError::Read { path: directory.to_owned(), error };
    let mut folders = Vec::new();
    let mut has_segments = false;
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        has_segments |= path.extension().is_some_and(|it| it == "log");
        if path.is_dir() {
            folders.push(path);
        }
    }
    if has_segments {
        return Ok(vec![Look::at(directory)]);
    }
    folders.sort();
    let is_partition = |path: &PathBuf| root::partition_of(path).is_some();
    if !folders.iter().any(is_partition) && !directory.join("meta.properties").exists() {
        return Err(VerifyError::NoLogs(directory.to_owned()));
    }
    let (logs, strangers): (Vec<_>, Vec<_>) = folders.into_iter().partition(is_partition);
    findings.extend(strangers.into_iter().filter_map(|path| root::stranger(&path)));
    Ok(logs.iter().map(|path| Look::at(path)).collect())
}

/// Reads all segments, some at the same time.
fn walk(looks: &mut [Look], options: &VerifyOptions) {
    let segments = |look: &Look| look.partition.segments.len();
    let jobs: Vec<(usize, usize)> = looks
        .iter()
        .enumerate()
        .flat_map(|(number, look)| (0..segments(look)).map(move |it| (number, it)))
        .collect();
    let total = looks.iter().flat_map(|it| &it.partition.segments).map(|it| it.bytes).sum();
    let progress = bar(total);
    let next = AtomicUsize::new(0);
    let walked: Mutex<Vec<(usize, usize, Walked)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..options.threads.min(jobs.len()) {
            scope.spawn(|| {
                while let Some(&(look, segment)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let listed = &looks[look].partition;
                    let outcome = segment::walk(listed, segment, options.is_deep, &progress);
                    let mut walked = walked.lock().expect("no thread panics with it");
                    walked.push((look, segment, outcome));
                }
            });
        }
    });
    progress.finish_and_clear();
    for (look, segment, outcome) in walked.into_inner().expect("all threads are over") {
        looks[look].partition.segments[segment].walked = Some(outcome);
    }
}

fn bar(total: u64) -> ProgressBar {
    // Nothing is drawn where standard error is no terminal.
    let bar = ProgressBar::new(total);
    let form = "verify {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    bar.set_style(ProgressStyle::with_template(form).expect("a template of its own words"));
    bar
}

fn report(
    options: &VerifyOptions,
    findings: &[Finding],
    (counts, seconds): (Counts, f64),
    out: &mut dyn Write,
) -> io::Result<()> {
    for finding in findings {
        if options.json {
            writeln!(out, "{}", finding.to_json().to_json())?;
        } else {
            writeln!(out, "{finding}")?;
        }
    }
    let count = |kind| findings.iter().filter(|it| it.kind == kind).count();
    let (damages, notes, unseen) = (count(Kind::Damage), count(Kind::Note), count(Kind::Unseen));
    if options.json {
        let figures = [
            ("partitions", long(u64_of(counts.partitions))),
            ("segments", long(u64_of(counts.segments))),
            ("batches", long(counts.batches)),
            ("bytes", long(counts.bytes)),
            ("seconds", Value::Float(seconds)),
            ("findings", long(u64_of(damages))),
            ("notes", long(u64_of(notes))),
            ("unseen", long(u64_of(unseen))),
        ];
        return writeln!(out, "{}", object("summary", figures).to_json());
    }
    writeln!(
        out,
        "{}, {}, {} batches, {} bytes in {seconds:.1} s: {}, {}{}",
        plural(counts.partitions, "partition"),
        plural(counts.segments, "segment"),
        counts.batches,
        counts.bytes,
        plural(damages, "finding"),
        plural(notes, "note"),
        if unseen == 0 { String::new() } else { format!(", {unseen} could not be looked at") },
    )
}

#[cfg(test)]
mod tests {
    use super::partition::Partition;
    use super::*;

    /// A running server removes folders while this looks: nothing is wrong with them, nor is there
    /// anything to look at.
    #[test]
    fn what_is_removed_meanwhile_is_told_as_a_note() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let folder = root.path().join("topic-0");
        std::fs::create_dir(&folder).expect("created");
        std::fs::write(folder.join("00000000000000000000.log"), [1; 100]).expect("written");
        let mut findings = Vec::new();
        let mut partition = Partition::list(&folder, &mut findings);
        std::fs::remove_dir_all(&folder).expect("removed");
        let walked = segment::walk(&partition, 0, false, &ProgressBar::hidden());
        partition.segments[0].walked = Some(walked);
        partition.check(None, &mut findings);
        Partition::list(&folder, &mut findings);
        let about_logs = |it: &&Finding| !it.path.ends_with("partition.metadata");
        let found: Vec<&Finding> = findings.iter().filter(about_logs).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(findings.iter().all(|it| it.kind == Kind::Note), "{findings:?}");
        assert!(!partition.is_seen);
    }
}
