//! `uringlog dump`: what lies in the files of a Kafka log directory, in the words of
//! `kafka-dump-log` (`DumpLogSegments` of Apache Kafka 4.3), or as JSON.
//!
//! Nothing is written and no server is asked. Where Kafka's tool ends with a Java exception, the
//! line on standard error is ours: it names the file and the place.

pub mod args;
mod contents;
mod decimal;
mod indexes;
mod items;
mod java;
mod legacy;
mod log;
mod remote;
mod shallow;
mod small;

pub use contents::{Decoder, TextDecoder};
pub use legacy::{OldBatch, old_batch};
pub use log::payload;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use items::Item;

use crate::cli::holder;
use crate::cli::log_file::LogFileError;

/// What the command line says.
#[derive(Clone, PartialEq, Debug)]
pub struct DumpOptions {
    /// The files, in the order in which they are dumped.
    pub files: Vec<PathBuf>,
    /// Print the lines of records.
    pub is_deep: bool,
    /// Print what records hold, as this decoder reads it.
    pub contents: Option<Decoder>,
    /// Print what records hold and nothing else of them.
    pub skips_metadata: bool,
    /// Check indexes, don't print their entries.
    pub verifies_only: bool,
    /// Only look whether an index would be rebuilt at a start.
    pub checks_sanity: bool,
    /// Bytes from an index entry's position on in which its batch must lie. Below 0, no index with
    /// entries can be read, as in Kafka.
    pub max_message_bytes: i64,
    /// Stop when so many bytes of a log were read. Below 0, none can be.
    pub max_bytes: Option<i64>,
    /// One JSON object a line instead of Kafka's text.
    pub json: bool,
}

/// Why a dump ends early.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// A file that can't be read, or isn't what its name says from some place on.
    #[error(transparent)]
    File(#[from] LogFileError),
    /// Standard output can't be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Where lines go.
struct Printer<'a> {
    out: &'a mut dyn Write,
    json: bool,
    line: String,
}

impl Printer<'_> {
    fn print(&mut self, item: &Item<'_>) -> Result<(), DumpError> {
        self.line.clear();
        if self.json {
            item.to_json().write_json(&mut self.line);
        } else {
            item.write_text(&mut self.line);
        }
        self.line.push('\n');
        Ok(self.out.write_all(self.line.as_bytes())?)
    }

    /// What Kafka's tool has printed of a line when an exception ends it. Half an object is none.
    fn print_unfinished(&mut self, text: impl FnOnce(&mut String)) -> Result<(), DumpError> {
        self.line.clear();
        if !self.json {
            text(&mut self.line);
        }
        Ok(self.out.write_all(self.line.as_bytes())?)
    }
}

/// Pairs of one kind, by the file's absolute path.
type Pairs = java::HashMap<Vec<(i64, i64)>>;

/// What doesn't fit together, told when every file has been dumped.
#[derive(Default)]
struct Findings {
    /// Offset of an index entry, newest first, and last offset of the batch it points to.
    index_mismatches: java::HashMap<BTreeMap<Reverse<i64>, i64>>,
    time_mismatches: Pairs,
    times_out_of_order: Pairs,
    offsets_not_found: Pairs,
    /// Offset of a record and of the next one.
    gaps: java::HashMap<BTreeMap<i64, i64>>,
}

impl Findings {
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, mismatches) in self.index_mismatches.in_order() {
            lines.push(format!("Mismatches in :{name}"));
            for (index, log) in mismatches {
                lines.push(format!("  Index offset: {}, log offset: {log}", index.0));
            }
        }
        let pairs = [
            (&self.time_mismatches, "Found timestamp mismatch in :", TIME_PAIR),
            (&self.times_out_of_order, "Found out of order timestamp in :", ORDER_PAIR),
            (
                &self.offsets_not_found,
                "The following indexed offsets are not found in :",
                OFFSET_PAIR,
            ),
        ];
        for (found, head, (before, between)) in pairs {
            for (name, pairs) in found.in_order() {
                lines.push(format!("{head}{name}"));
                lines.extend(pairs.iter().map(|(a, b)| format!("{before}{a}{between}{b}")));
            }
        }
        for (name, gaps) in self.gaps.in_order() {
            lines.push(format!("Non-consecutive offsets in {name}"));
            lines.extend(gaps.iter().map(|(from, to)| format!("  {from} is followed by {to}")));
        }
        lines
    }
}

const TIME_PAIR: (&str, &str) = ("  Index timestamp: ", ", log timestamp: ");
const ORDER_PAIR: (&str, &str) = ("  Index timestamp: ", ", Previously indexed timestamp: ");
const OFFSET_PAIR: (&str, &str) = ("Indexed offset: ", ", found log offset: ");

/// Dumps every file; what doesn't fit together goes to `complaints` afterwards.
///
/// # Errors
/// [`DumpError`], at the first file that can't be dumped to its end.
pub fn run(
    options: &DumpOptions,
    out: &mut dyn Write,
    complaints: &mut dyn Write,
) -> Result<(), DumpError> {
    let mut printer = Printer { out, json: options.json, line: String::new() };
    let mut findings = Findings::default();
    let mut told: Option<&Path> = None;
    for path in &options.files {
        let folder = path.parent().filter(|it| told != Some(*it));
        if let Some(held) = folder.and_then(holder::of_partition) {
            writeln!(complaints, "{}: {held}", path.display())?;
        }
        told = path.parent();
        let outcome = dump(path, options, (&mut printer, &mut findings), complaints);
        if outcome.is_err() {
            // What was found before the damage was printed, and belongs before the complaint.
            printer.out.flush()?;
        }
        outcome?;
    }
    printer.out.flush()?;
    for line in findings.lines() {
        writeln!(complaints, "{line}")?;
    }
    Ok(())
}

fn dump(
    path: &Path,
    options: &DumpOptions,
    (printer, findings): (&mut Printer<'_>, &mut Findings),
    complaints: &mut dyn Write,
) -> Result<(), DumpError> {
    printer.print(&Item::File(path))?;
    match path.extension().and_then(|it| it.to_str()) {
        Some("log" | "checkpoint") => log::dump(path, options, printer, findings),
        Some("index") => indexes::dump_offsets(path, options, printer, findings),
        Some("timeindex") => indexes::dump_times(path, options, printer, findings),
        Some("snapshot") => small::dump_snapshot(path, printer, complaints),
        Some("txnindex") => small::dump_aborted(path, printer),
        _ => {
            // Both may go to one terminal.
            printer.out.flush()?;
            Ok(writeln!(complaints, "Ignoring unknown file {}", path.display())?)
        }
    }
}

/// A number of bytes that the command line gives under this name.
fn bytes_of(path: &Path, name: &str, number: i64) -> Result<u64, LogFileError> {
    let what = || format!("can't be read with {name} {number}: a size is 0 or more");
    u64::try_from(number).map_err(|_| LogFileError::corrupt(path, what()))
}

/// The base offset in a file's name, which is what stands before the first point.
fn base_of(path: &Path) -> Result<i64, LogFileError> {
    let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
    let number = name.split('.').next().unwrap_or_default();
    number.parse().map_err(|_| {
        LogFileError::corrupt(
            path,
            format!("the name of a segment's file is a number, not {number:?}"),
        )
    })
}

/// The file of the same segment with another extension.
fn sibling(path: &Path, extension: &str) -> PathBuf {
    let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
    let stem = name.split('.').next().unwrap_or_default();
    path.with_file_name(format!("{stem}.{extension}"))
}

/// The name under which findings are told: dots stay in it, as in Java.
fn absolute(path: &Path) -> String {
    let folder = std::env::current_dir().unwrap_or_default();
    folder.join(path).display().to_string()
}
