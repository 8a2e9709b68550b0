//! Carries out a run: cells in their order, each on its own, all findings on disk as they come.

pub mod cells;
pub mod clock;
pub mod context;
pub mod machine;
pub mod noise;
pub mod options;
mod resume;
pub mod terminal;

use std::time::{Duration, Instant};

pub use context::{Context, Endings, Interrupt};
pub use options::{Options, Where};

use cells::{Cell, Choice};
use machine::MachineRecord;
use noise::Noise;
use resume::Begun;
use terminal::Terminal;

use crate::engines::EngineName;
use crate::experiments::{Doing, DoingTo, Failure};
use crate::parameters::{Parameters, Scale, check_keys};
use crate::record::output::{CellState, MACHINE_FILE, NOISE_FILE, RunState, State};
use crate::record::{Figure, Output, Place, Recorder};
use crate::registry;

/// Folders of cells begin like this; a kill leaves one.
const CELL_PREFIX: &str = "bench-harness-";
/// A file system with less space than this is full.
const SPACE_MIN: u64 = 2 << 20;

/// A run under way.
struct Run {
    options: Options,
    places: Vec<Where>,
    output: Output,
    terminal: Terminal,
    interrupt: Interrupt,
    started: Instant,
    state: RunState,
    figures: Vec<Figure>,
}

/// Runs what the options name, writes the report, and says what became of it.
///
/// # Errors
/// Bad options, before anything runs; at the end when a cell failed.
pub fn run(options: Options) -> Result<(), Failure> {
    let experiments = registry::chosen(&options.names)?;
    check_keys(&experiments, &options.set)?;
    for experiment in &experiments {
        Parameters::new(experiment, options.scale(), &options.set)?;
    }
    options.check_places()?;
    let (engines, mut skipped) = usable_engines(&options);
    let choice = Choice {
        experiments,
        engines,
        tiers: options.durability.clone(),
        file_systems: options.fs.len().max(1),
        rounds: options.rounds(),
    };
    let (cells, left_out) = cells::plan(&choice);
    skipped.extend(left_out);
    if cells.is_empty() {
        return Err(Failure::Usage(format!("nothing is left to run: {}", skipped.join("; "))));
    }
    let folder = options.folder();
    let created = match options.resume {
        true => resume::check(&folder).map(|()| None)?,
        false => Some(Output::create(&folder)?),
    };
    let places = options.places(&folder)?;
    let machine = MachineRecord::here(&options, &places)?;
    let (output, begun) = match created {
        Some(output) => begin(output, &machine, (cells.len(), skipped))?,
        None => resume::reopen(&folder, &machine)?,
    };
    uringlog::ring::limits::raise_nofile();
    let run = Run {
        options,
        places,
        output,
        terminal: Terminal::new(),
        interrupt: Interrupt::listen()?,
        started: Instant::now(),
        state: begun.state,
        figures: begun.figures,
    };
    run.all(&cells)
}

/// Writes what is known before anything runs.
fn begin(
    output: Output,
    machine: &MachineRecord,
    (planned, skipped): (usize, Vec<String>),
) -> Result<(Output, Begun), Failure> {
    let text = serde_json::to_string_pretty(machine).expect("strings and numbers only");
    output.write(MACHINE_FILE, &(text + "\n"))?;
    let state = RunState {
        state: State::Running,
        command: machine.command.clone(),
        started: machine.date.clone(),
        ended: None,
        planned,
        cells: Vec::new(),
        skipped,
    };
    output.write_state(&state)?;
    Ok((output, Begun { state, figures: Vec::new() }))
}

/// Those that can be had here, and a sentence for each that can't.
fn usable_engines(options: &Options) -> (Vec<EngineName>, Vec<String>) {
    let mut skipped = Vec::new();
    let mut engines = options.engines.clone();
    if options.wants_kafka() && machine::java() == "none" {
        engines.retain(|it| *it != EngineName::Kafka);
        skipped.push(
            "kafka: this column is skipped, as there is no java in the path (Debian: \
             apt-get install default-jdk-headless)"
                .to_owned(),
        );
    }
    (engines, skipped)
}

impl Run {
    fn all(mut self, cells: &[Cell]) -> Result<(), Failure> {
        let labels: Vec<String> = self.places.iter().map(|it| it.label.clone()).collect();
        let is_over = |it: &&Cell| self.state.cells.iter().any(|of| of.place == it.place(&labels));
        let cells: Vec<&Cell> = cells.iter().filter(|it| !is_over(it)).collect();
        self.announce(&cells);
        let bar = self.terminal.task(u64::try_from(cells.len()).unwrap_or(u64::MAX), "all cells");
        self.calibrate("before", 0);
        for (number, cell) in cells.iter().enumerate() {
            if self.interrupt.is_set() {
                break;
            }
            self.cell(cell, (cell.place(&labels), &cells[number + 1..]))?;
            self.calibrate("between", cell.file_system);
            bar.advance(1);
        }
        drop(bar);
        self.calibrate("after", 0);
        self.end()
    }

    fn announce(&self, cells: &[&Cell]) {
        for skipped in &self.state.skipped {
            self.terminal.tell(&format!("skipped: {skipped}"));
        }
        if !self.state.cells.is_empty() {
            self.terminal.tell(&format!("{} cells are done already", self.state.cells.len()));
        }
        self.terminal.tell(&format!(
            "cells to run: {}, {}; raw data and report in {}",
            cells.len(),
            about(estimate(cells, self.options.scale())),
            self.output.folder().display(),
        ));
        if cfg!(debug_assertions) {
            self.terminal.tell("this is a debug build: its times say little");
        }
    }

    /// A disk that is full when this is written has been told of already, or will be.
    fn calibrate(&self, when: &str, file_system: usize) {
        let place = &self.places[file_system];
        let measured = tempfile::tempdir_in(&place.path)
            .doing_to("make a folder in", &place.path)
            .and_then(|folder| noise::measure(folder.path()));
        let written = measured.and_then(|(cpu_ns, sync_ns)| {
            let noise = Noise {
                when: when.to_owned(),
                file_system: place.label.clone(),
                seconds: self.started.elapsed().as_secs_f64(),
                cpu_ns,
                sync_ns,
            };
            let line = serde_json::to_string(&noise).expect("strings and numbers only");
            self.output.append(NOISE_FILE, &(line + "\n"))
        });
        if let Err(failure) = written {
            self.terminal.tell(&format!("calibration: {}", explained(&failure)));
        }
    }

    /// One cell; only what makes it senseless to go on is an error.
    fn cell(&mut self, cell: &Cell, (place, left): (Place, &[&Cell])) -> Result<(), Failure> {
        let parameters = Parameters::new(cell.experiment, self.options.scale(), &self.options.set)?;
        let mut recorder = Recorder::new(
            self.output.clone(),
            self.terminal.clone(),
            place.clone(),
            parameters.values().clone(),
        );
        let started = Instant::now();
        let outcome = self.carry_out(cell, parameters, &mut recorder);
        let (figures, recorded) = recorder.finish();
        self.figures.extend(figures);
        let outcome = outcome.and(recorded);
        let (state, reason) = match &outcome {
            Ok(()) => ("done", None),
            Err(Failure::Skipped(why)) => ("skipped", Some(why.clone())),
            Err(Failure::Interrupted) => ("interrupted", Some("interrupted".to_owned())),
            Err(failure) => ("failed", Some(explained(failure))),
        };
        let seconds = started.elapsed().as_secs_f64();
        let (shown, state) = (place.shown(), state.to_owned());
        self.state.cells.push(CellState { place, state: state.clone(), reason, seconds });
        let why = self.state.cells.last().and_then(|it| it.reason.clone());
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        let left = about(estimate(left, self.options.scale()));
        self.terminal.tell(&format!("{shown}: {state} in {seconds:.1} s{why} ({left} left)"));
        self.output.write_figures(&self.figures)?;
        self.output.write_state(&self.state)
    }

    fn carry_out(
        &self,
        cell: &Cell,
        parameters: Parameters,
        recorder: &mut Recorder,
    ) -> Result<(), Failure> {
        let place = &self.places[cell.file_system];
        let folder = tempfile::Builder::new()
            .prefix(CELL_PREFIX)
            .tempdir_in(&place.path)
            .doing_to("make a folder in", &place.path)?;
        let context = Context {
            parameters,
            scale: self.options.scale(),
            round: cell.round,
            rounds: self.options.rounds(),
            seed: self.options.seed,
            file_system: place.label.clone(),
            folder: folder.path().to_owned(),
            logs: self.output.folder().join(cell.experiment.name),
            endings: Endings::default(),
            engine: cell.engine,
            tier: cell.tier,
            terminal: self.terminal.clone(),
            interrupt: self.interrupt.clone(),
        };
        // On a thread of its own: engines pin theirs, and a panic ends this cell only.
        let carried_out = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name(cell.experiment.name.to_owned());
            let spawned = thread.spawn_scoped(scope, || (cell.experiment.run)(&context, recorder));
            let panicked = |_| Err(Failure::Wrong("it panicked; see the message above".to_owned()));
            spawned.doing("start a thread").and_then(|it| it.join().unwrap_or_else(panicked))
        });
        let carried_out = carried_out.map_err(|failure| match failure {
            Failure::Interrupted | Failure::Skipped(_) => failure,
            failure => with_space_left(context.endings.explain(failure), place),
        });
        let removed = folder.close().doing("remove the folder of the cell");
        carried_out.and(removed)
    }

    fn end(mut self) -> Result<(), Failure> {
        let is_whole = self.state.cells.len() == self.state.planned
            && self.state.cells.iter().all(|it| it.state == "done" || it.state == "skipped");
        self.state.state = if is_whole { State::Complete } else { State::Partial };
        self.state.ended = Some(clock::now());
        self.output.write_state(&self.state)?;
        let report = crate::report::write(&[self.output.folder().to_owned()], None)?;
        self.terminal.print(&format!("report: {}", report.display()));
        let failed = self.state.cells.iter().filter(|it| it.state == "failed").count();
        match (self.interrupt.is_set(), failed) {
            (true, _) => Err(Failure::Interrupted),
            (false, 0) => Ok(()),
            (false, _) => {
                let planned = self.state.planned;
                Err(Failure::Wrong(format!("{failed} of {planned} cells failed; see the report")))
            }
        }
    }
}

fn estimate(cells: &[&Cell], scale: Scale) -> Duration {
    Duration::from_secs(cells.iter().map(|it| it.experiment.seconds.of(scale)).sum())
}

/// A time that nobody takes for exact.
fn about(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..100 => format!("about {seconds} s"),
        seconds @ 100..6000 => format!("about {} min", seconds.div_ceil(60)),
        seconds => format!("about {:.1} h", Duration::from_secs(seconds).as_secs_f64() / 3600.0),
    }
}

/// A server may not say that its disk is full, but the disk does.
fn with_space_left(failure: Failure, place: &Where) -> Failure {
    let Ok(space) = rustix::fs::statvfs(&place.path) else { return failure };
    let left = space.f_bavail * space.f_frsize;
    if SPACE_MIN <= left || is_full(&failure.to_string()) {
        return failure;
    }
    let label = &place.label;
    Failure::Wrong(format!("{failure} ({label}: {left} bytes left: No space left on device)"))
}

/// As the system and as uringlog say it.
fn is_full(text: &str) -> bool {
    text.to_lowercase().contains("no space left")
}

/// The failure with its remedy, where there is one.
pub fn explained(failure: &Failure) -> String {
    let text = failure.to_string();
    let is_full = match failure {
        Failure::Io { source, .. } | Failure::Path { source, .. } => {
            source.kind() == std::io::ErrorKind::StorageFull
        }
        _ => is_full(&text),
    };
    let remedy = "; free some space, or name a folder on another file system with --fs";
    if is_full { text + remedy } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_about() {
        let shown = |seconds| about(Duration::from_secs(seconds));
        assert_eq!((shown(99), shown(100)), ("about 99 s".to_owned(), "about 2 min".to_owned()));
        assert_eq!(shown(9000), "about 2.5 h");
    }

    #[test]
    fn a_full_disk_has_a_remedy() {
        let full = std::io::Error::from_raw_os_error(libc::ENOSPC);
        let path = std::path::Path::new("/x");
        let failure = Err::<(), _>(full).doing_to("write", path).expect_err("full");
        assert!(explained(&failure).ends_with("on another file system with --fs"));
        assert_eq!(explained(&Failure::Interrupted), "interrupted");
    }
}
