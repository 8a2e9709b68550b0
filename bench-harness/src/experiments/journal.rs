//! What does the commit journal buy? One shard's thread appends a batch to each of N partitions,
//! waits until all are durable, and begins anew: one turn. Variants take turns too, round by round.
//!
//! [`replay`] is the other half: how long does a full journal take to be put in place?

pub mod machine;
mod pool;
pub mod replay;
mod report;
pub mod run;
mod shard;
mod sizes;
mod steps;
mod warm;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use uringlog::shard::JournalOptions;

use super::{Doing, Failure};
use machine::Machine;
use report::{Results, Run};
use run::{Cell, Limits, Variant};

/// What to measure.
#[derive(clap::Args, Clone)]
pub struct Options {
    /// `PATH=LABEL`: a folder on the file system under test, and what to call it; may be repeated.
    #[arg(long = "dir", required = true)]
    dirs: Vec<Place>,
    /// Which cells.
    #[arg(long, default_value = "grid")]
    mode: Mode,
    /// Partitions that get a batch in each turn.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16, 100, 1000])]
    partitions: Vec<u32>,
    /// Sizes of their batches.
    #[arg(long, value_delimiter = ',', value_parser = sizes::bytes,
          default_value = "1k,4k,16k,64k,128k,256k,1m")]
    plan_bytes: Vec<u64>,
    /// `PARTITIONSxBYTES`, such as 16x16k: these cells instead of all combinations.
    #[arg(long, value_delimiter = ',')]
    cells: Vec<Cell>,
    /// Combinations with more bytes a turn are left out.
    #[arg(long, value_parser = sizes::bytes, default_value = "64m")]
    turn_bytes_max: u64,
    /// linked, unlinked, journal, pwrite, serial, pool, plain-journal, pool-journal.
    #[arg(long, value_delimiter = ',', default_value = "linked,journal,serial,pool,plain-journal")]
    variants: Vec<Variant>,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Length of the journal's file; the product's when not given.
    #[arg(long, value_parser = sizes::bytes)]
    journal_bytes: Option<u64>,
    /// Larger plans sync their own files; the product's limit when not given, `none` for no limit.
    #[arg(long, value_parser = sizes::limit)]
    plan_max: Option<u64>,
    /// A run writes this many times the journal's length in batches.
    #[arg(long, default_value_t = 10.0)]
    sustain: f64,
    /// Or it ends after so many seconds.
    #[arg(long, default_value_t = 20.0)]
    seconds_max: f64,
    /// Core of the shard's thread and of its kernel workers; `none` leaves them free.
    #[arg(long, default_value = "0")]
    core: Core,
    /// Before each run, wait at most so many seconds until others leave the machine alone.
    #[arg(long, default_value_t = 0.0)]
    quiet_wait: f64,
    /// The report; raw figures go beside it, as JSON lines. Both are written anew.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// A folder to measure in.
#[derive(Clone)]
pub struct Place {
    path: PathBuf,
    label: String,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, label) = text.split_once('=').ok_or("want PATH=LABEL")?;
        if path.is_empty() || label.is_empty() {
            return Err("want PATH=LABEL".to_owned());
        }
        Ok(Place { path: path.into(), label: label.to_owned() })
    }
}

/// Which cells are measured.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// All combinations of partitions and sizes.
    Grid,
    /// One partition, single small batches: 1 x 1 KB and 1 x 16 KB.
    Single,
}

/// Where the shard's thread runs.
#[derive(Clone, Copy)]
struct Core(Option<usize>);

impl FromStr for Core {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Core(None));
        }
        let core = text.parse().map_err(|_| "want the number of a core, or none".to_owned())?;
        Ok(Core(Some(core)))
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (partitions, bytes) = text.split_once('x').ok_or("want PARTITIONSxBYTES")?;
        let partitions = partitions.trim().parse().map_err(|_| "PARTITIONS is a number")?;
        cell(partitions, sizes::bytes(bytes)?)
    }
}

fn cell(partitions: u32, bytes: u64) -> Result<Cell, String> {
    let batch_bytes = usize::try_from(bytes).map_err(|_| "a batch has at most 1 MB")?;
    if !(1..=2000).contains(&partitions) {
        return Err("1 to 2000 partitions".to_owned());
    }
    if !(128..=1 << 20).contains(&batch_bytes) {
        return Err("a batch has 128 bytes to 1 MB".to_owned());
    }
    Ok(Cell { partitions, batch_bytes })
}

impl Options {
    fn cells(&self) -> Result<Vec<Cell>, Failure> {
        if self.mode == Mode::Single {
            return Ok(report::SINGLE_CELLS.to_vec());
        }
        if !self.cells.is_empty() {
            return Ok(self.cells.clone());
        }
        let pairs = self.partitions.iter().flat_map(|partitions| {
            self.plan_bytes.iter().map(move |bytes| cell(*partitions, *bytes))
        });
        let cells: Result<Vec<Cell>, String> = pairs.collect();
        let cells = cells.map_err(Failure::Wrong)?;
        Ok(cells.into_iter().filter(|cell| cell.turn_bytes() <= self.turn_bytes_max).collect())
    }

    fn journal(&self) -> JournalOptions {
        let product = JournalOptions::default();
        run::journal_options(
            self.journal_bytes.unwrap_or(product.bytes.0),
            self.plan_max.unwrap_or(product.plan_bytes_max.0),
        )
    }

    fn limits(&self) -> Limits {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a length of a run, in bytes"
        )]
        let bytes = (self.sustain * super::measure::f64_of(self.journal().bytes.0)) as u64;
        let time = Duration::from_secs_f64(self.seconds_max);
        Limits { bytes, time, core: self.core.0, is_warmed: true, ..Limits::default() }
    }
}

/// Runs every cell in every folder with all variants in rotating order, and writes the report
/// after each cell.
pub fn run(options: &Options) -> Result<(), Failure> {
    let (cells, limits) = (options.cells()?, options.limits());
    uringlog::ring::limits::raise_nofile();
    let mut results = Results::new(options.journal(), limits);
    for place in &options.dirs {
        results.machines.push(Machine::of(&place.path, &place.label)?);
    }
    for place in &options.dirs {
        let root = tempfile::tempdir_in(&place.path).doing("make a folder for the logs")?;
        for cell in &cells {
            for round in 0..options.rounds {
                one_round(options, (place, root.path()), (*cell, round), &mut results)?;
            }
            write(options, &results)?;
        }
    }
    results.load_after = machine::load();
    println!("{}", results.markdown());
    write(options, &results)
}

/// Each variant once. The order rotates, and every other round runs backwards, so that none always
/// follows the same one.
fn one_round(
    options: &Options,
    (place, root): (&Place, &Path),
    (cell, round): (Cell, usize),
    results: &mut Results,
) -> Result<(), Failure> {
    let mut variants = options.variants.clone();
    let shift = round % variants.len();
    variants.rotate_left(shift);
    if round % 2 == 1 {
        variants.reverse();
    }
    for variant in variants {
        machine::await_quiet(Duration::from_secs_f64(options.quiet_wait));
        let measured = run::run(root, (variant, cell), options.limits(), options.journal())?;
        let run = Run { label: place.label.clone(), cell, variant, round, measured };
        eprintln!("{}", run.line());
        results.runs.push(run);
    }
    Ok(())
}

fn write(options: &Options, results: &Results) -> Result<(), Failure> {
    let Some(path) = &options.out else { return Ok(()) };
    std::fs::write(path, results.markdown()).doing("write the report")?;
    let mut raw = File::create(path.with_extension("jsonl")).doing("open the raw figures")?;
    for run in &results.runs {
        writeln!(raw, "{}", run.json()).doing("write the raw figures")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_cells_are_read() {
        let place: Place = "/mnt/a=XFS on a loop image".parse().expect("a place");
        assert_eq!((place.path.to_str(), &*place.label), (Some("/mnt/a"), "XFS on a loop image"));
        for wrong in ["", "/mnt", "/mnt=", "=XFS"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
        let cell = Cell { partitions: 16, batch_bytes: 16 << 10 };
        assert_eq!("16x16k".parse(), Ok(cell));
        for wrong in ["16", "0x1k", "2001x1k", "1x64", "1x2m", "x", "1x"] {
            assert!(wrong.parse::<Cell>().is_err(), "{wrong}");
        }
    }
}
