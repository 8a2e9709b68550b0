//! How long does it take to put a full journal in place?
//!
//! A journal is filled until it takes no more, with nothing synced on its behalf, and everything is
//! dropped as it stands. Two crashes are made of it: of the process (the logs are whole, the replay
//! compares) and of the machine (the logs are cut to nothing, as if no byte of theirs had reached
//! the device, and the replay writes all of it). Each is replayed with the journal's pages in
//! memory and without.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use uringlog::Durability;
use uringlog::disk::plain::PlainDisk;
use uringlog::format::journal::{RECORDS_START, file_name};
use uringlog::format::properties::DirectoryId;
use uringlog::log::JournalReplay;
use uringlog::shard::JournalOptions;
use uringlog::shard::journals::replay_journals;

use super::machine::{self, Machine};
use super::report::spread;
use super::run::{self, Cell, Maker};
use super::shard::{Shard, remove_logs, sync_file_system};
use super::{Place, sizes};
use crate::experiments::measure::usize_of;
use crate::experiments::{Doing, Failure};

/// A full default journal is to be replayed within this.
const GOAL: Duration = Duration::from_secs(1);
const FILES_MAX: usize = 8192;

/// What to measure.
#[derive(clap::Args, Clone)]
pub struct Options {
    /// `PATH=LABEL`: a folder on the file system under test, and what to call it; may be repeated.
    #[arg(long = "dir", required = true)]
    dirs: Vec<Place>,
    /// `PARTITIONSxBYTES`: what the journal is filled with.
    #[arg(long, value_delimiter = ',', default_value = "16x16k,1000x1k")]
    cells: Vec<Cell>,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of the journal's file; the product's when not given.
    #[arg(long, value_parser = sizes::bytes)]
    journal_bytes: Option<u64>,
    /// The report, written anew.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// What is left after the crash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Crash {
    Process,
    Machine,
}

impl Crash {
    fn name(self) -> &'static str {
        match self {
            Crash::Process => "process (logs whole)",
            Crash::Machine => "machine (logs lost)",
        }
    }
}

/// A filled journal, and how to have it again after a replay.
struct Filled<'a> {
    root: &'a Path,
    batch_bytes: usize,
    journal: PathBuf,
    head: Vec<u8>,
    /// The logs as they were.
    logs: Vec<(PathBuf, Vec<u8>)>,
}

struct Row {
    label: String,
    cell: Cell,
    crash: Crash,
    is_cold: bool,
    seconds: Vec<f64>,
    last: JournalReplay,
}

/// Fills and replays in every folder.
pub fn run(options: &Options) -> Result<(), Failure> {
    uringlog::ring::limits::raise_nofile();
    let (mut machines, mut rows) = (Vec::new(), Vec::new());
    for place in &options.dirs {
        machines.push(Machine::of(&place.path, &place.label)?);
        for cell in &options.cells {
            let root = tempfile::tempdir_in(&place.path).doing("make a folder for the logs")?;
            let filled = fill(root.path(), *cell, options)?;
            for (crash, is_cold) in [
                (Crash::Machine, true),
                (Crash::Machine, false),
                (Crash::Process, true),
                (Crash::Process, false),
            ] {
                let mut row = row(&place.label, *cell, (crash, is_cold));
                for _ in 0..options.rounds {
                    let (took, replayed) = filled.replay(crash, is_cold)?;
                    row.seconds.push(took.as_secs_f64());
                    row.last = replayed;
                }
                eprintln!("{}", row.line());
                rows.push(row);
            }
            remove_logs(root.path(), cell.partitions)?;
        }
    }
    let report = markdown(&machines, &rows, journal_bytes(options));
    println!("{report}");
    let Some(path) = &options.out else { return Ok(()) };
    let mut file = File::create(path).doing("open the report")?;
    file.write_all(report.as_bytes()).doing("write the report")
}

fn row(label: &str, cell: Cell, (crash, is_cold): (Crash, bool)) -> Row {
    let (label, seconds) = (label.to_owned(), Vec::new());
    Row { label, cell, crash, is_cold, seconds, last: JournalReplay::default() }
}

fn journal_bytes(options: &Options) -> u64 {
    options.journal_bytes.unwrap_or(JournalOptions::default().bytes.0)
}

/// Turns until the journal takes nothing more.
fn fill<'a>(root: &'a Path, cell: Cell, options: &Options) -> Result<Filled<'a>, Failure> {
    let settings = run::journal_options(journal_bytes(options), u64::MAX);
    let file = run::prepare(root, settings)?;
    let disk = Box::new(PlainDisk::new(FILES_MAX, None));
    let mut shard = Shard::create(disk, root, (cell.partitions, Durability::Device), Some(file))?;
    shard.keep_records();
    let mut maker = Maker::new(cell);
    while shard.journal_counters().full == 0 {
        maker.make()?;
        shard.turn(&mut maker.batches)?;
    }
    drop(shard);
    let journal = root.join(file_name(0));
    let mut head = vec![0; usize_of(RECORDS_START)];
    let file = File::open(&journal).doing("open the journal")?;
    file.read_exact_at(&mut head, 0).doing("read the journal's head")?;
    let logs = (0..cell.partitions).map(|number| {
        let path = root.join(format!("bench-{number}")).join("00000000000000000000.log");
        let bytes = std::fs::read(&path).doing("read a log")?;
        Ok((path, bytes))
    });
    let logs = logs.collect::<Result<_, Failure>>()?;
    Ok(Filled { root, batch_bytes: cell.batch_bytes, journal, head, logs })
}

impl Filled<'_> {
    /// Crashes, replays, and checks that everything is there.
    fn replay(&self, crash: Crash, is_cold: bool) -> Result<(Duration, JournalReplay), Failure> {
        let journal = File::options().write(true).open(&self.journal).doing("open the journal")?;
        journal.write_all_at(&self.head, 0).doing("write the journal's head")?;
        for (path, bytes) in &self.logs {
            match crash {
                Crash::Machine => File::create(path).map(drop),
                Crash::Process => std::fs::write(path, bytes),
            }
            .doing("write a log")?;
        }
        sync_file_system(self.root)?;
        for path in self.logs.iter().map(|(path, _)| path).chain([&self.journal]) {
            if is_cold {
                let file = File::open(path).doing("open a file")?;
                fadvise(&file, 0, None, Advice::DontNeed).doing("drop a file's pages")?;
            } else {
                std::fs::read(path).doing("read a file")?;
            }
        }
        let started = Instant::now();
        let replayed = replay_journals(self.root, DirectoryId([0; 16]), 1);
        let took = started.elapsed();
        let replayed = replayed.map_err(|error| Failure::Wrong(error.to_string()))?;
        self.check(&replayed)?;
        Ok((took, replayed))
    }

    fn check(&self, replayed: &JournalReplay) -> Result<(), Failure> {
        if replayed.is_lossy() {
            return Err(Failure::Wrong(replayed.to_string()));
        }
        for (path, bytes) in &self.logs {
            let found = std::fs::read(path).doing("read a log")?;
            // The batch of the last turn may have found the journal full.
            let is_there = bytes.len() <= found.len() + self.batch_bytes;
            if !is_there || !bytes.starts_with(&found) {
                return Err(Failure::Wrong(format!("{} is not as it was", path.display())));
            }
        }
        Ok(())
    }
}

impl Row {
    fn line(&self) -> String {
        let Row { label, cell, crash, .. } = self;
        let pages = if self.is_cold { "cold" } else { "warm" };
        let (mut written, mut present, mut records) = (0, 0, 0);
        for journal in &self.last.journals {
            written += journal.written.0;
            present += journal.present.0;
            records += journal.records;
        }
        let slowest = self.seconds.iter().copied().fold(0.0, f64::max);
        let verdict = if slowest < GOAL.as_secs_f64() { "PASS" } else { "FAIL" };
        format!(
            "| {label} | {cell} | {} | {pages} | {records} | {written} | {present} \
             | {} | {verdict} |",
            crash.name(),
            spread(&self.seconds),
        )
    }
}

fn markdown(machines: &[Machine], rows: &[Row], bytes: u64) -> String {
    let mut text = String::from("# Replaying a full journal\n\n");
    let head = format!("- {}, revision {}\n", machine::host(), machine::revision());
    text.push_str(&head);
    for machine in machines {
        text.push_str(&machine.line());
        text.push('\n');
    }
    let journal = format!("- journal of {bytes} bytes, filled; goal: below {GOAL:?}, each time\n");
    text.push_str(&journal);
    text.push_str(&format!("- `{}`\n\n", machine::command()));
    text.push_str(
        "| file system | filled with | crash of | pages | records | bytes written | \
         bytes in place | seconds | |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        text.push_str(&row.line());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_journal_brings_back_what_the_logs_have_lost() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        let place = Place { path: folder.path().into(), label: "here".to_owned() };
        let cell = Cell { partitions: 3, batch_bytes: 10_000 };
        let (journal_bytes, out) = (Some(1 << 20), None);
        let options =
            Options { dirs: vec![place], cells: vec![cell], rounds: 1, journal_bytes, out };
        let filled = fill(folder.path(), cell, &options).expect("a full journal");
        let bytes = |replayed: &JournalReplay| {
            let it = &replayed.journals[0];
            (it.written.0, it.present.0)
        };
        let (_, lost) = filled.replay(Crash::Machine, true).expect("a replay");
        let (_, kept) = filled.replay(Crash::Process, false).expect("a replay");
        assert_eq!(bytes(&lost).1, 0);
        assert_eq!(bytes(&kept), (0, bytes(&lost).0));
        assert!(850_000 < bytes(&lost).0, "{lost}");
    }
}
