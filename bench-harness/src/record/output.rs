//! The folder of a run: made before anything runs, written as things happen.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::figure::{self, Figure};
use crate::experiments::{DoingTo, Failure};

/// Says what became of the run and its cells; its presence marks a folder that holds a run.
pub const RUN_FILE: &str = "run.json";
/// The figures.
pub const RESULTS_FILE: &str = "results.json";
/// What it was measured on.
pub const MACHINE_FILE: &str = "machine.json";
/// The calibration loop.
pub const NOISE_FILE: &str = "noise.jsonl";
/// Lines of one experiment that aren't series.
pub const RECORD_FILE: &str = "record.jsonl";
/// Series, events and counters of one experiment.
pub const SERIES_FILE: &str = "series.jsonl";

/// What became of a run as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It has not ended, or was killed.
    Running,
    /// Every cell ran to its end.
    Complete,
    /// It was interrupted, or cells failed.
    Partial,
}

/// What became of one cell.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CellState {
    /// Which one.
    #[serde(flatten)]
    pub place: super::Place,
    /// `done`, `failed`, `skipped` or `interrupted`.
    pub state: String,
    /// Why it isn't done.
    pub reason: Option<String>,
    /// How long it took.
    pub seconds: f64,
}

/// `run.json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunState {
    /// What became of it.
    pub state: State,
    /// How it is run again.
    pub command: String,
    /// UTC.
    pub started: String,
    /// UTC, when it has ended.
    pub ended: Option<String>,
    /// How many cells there were to be.
    pub planned: usize,
    /// Those that have been gone about.
    pub cells: Vec<CellState>,
    /// Columns that are left out, each with its reason.
    pub skipped: Vec<String>,
}

/// The folder of a run that is being made.
#[derive(Clone, Debug)]
pub struct Output {
    folder: PathBuf,
}

impl Output {
    /// Makes the folder, or takes an empty one; checks that it can be written to.
    ///
    /// # Errors
    /// One that holds a run already, or can't be made or written to.
    pub fn create(folder: &Path) -> Result<Output, Failure> {
        if folder.join(RUN_FILE).exists() {
            return Err(Failure::Usage(format!(
                "{} holds a run already; name another folder with --out, remove this one, or go on \
                 with it with --resume",
                folder.display()
            )));
        }
        fs::create_dir_all(folder).doing_to("make the folder", folder)?;
        if fs::read_dir(folder).doing_to("list", folder)?.next().is_some() {
            return Err(Failure::Usage(format!(
                "{} holds other files; name a new folder with --out, or an empty one",
                folder.display()
            )));
        }
        let output = Output { folder: folder.into() };
        output.write_figures(&[])?;
        Ok(output)
    }

    /// Takes a folder that holds a run.
    ///
    /// # Errors
    /// One that holds none, or can't be written to.
    pub fn open(folder: &Path) -> Result<Output, Failure> {
        if !folder.join(RUN_FILE).is_file() {
            let text = format!("{} holds no run that could be resumed", folder.display());
            return Err(Failure::Usage(text));
        }
        tempfile::tempfile_in(folder).doing_to("write to", folder)?;
        Ok(Output { folder: folder.into() })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes all figures anew.
    ///
    /// # Errors
    /// A full disk, mostly.
    pub fn write_figures(&self, figures: &[Figure]) -> Result<(), Failure> {
        self.write(RESULTS_FILE, &figure::to_text(figures))
    }

    /// Writes what became of the run so far.
    ///
    /// # Errors
    /// A full disk, mostly.
    pub fn write_state(&self, state: &RunState) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(state).expect("strings and numbers only");
        self.write(RUN_FILE, &(text + "\n"))
    }

    /// Writes a file as a whole: a kill leaves the old one or the new one.
    ///
    /// # Errors
    /// A full disk, mostly.
    pub fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.folder.join(name);
        let new = self.folder.join(format!("{name}.new"));
        fs::write(&new, text).doing_to("write", &path)?;
        fs::rename(&new, &path).doing_to("write", &path)
    }

    /// Appends lines to a file.
    ///
    /// # Errors
    /// A full disk, mostly.
    pub fn append(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.folder.join(name);
        let file = File::options().create(true).append(true).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes())).doing_to("write to", &path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_holds_a_run_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let output = Output::create(&folder.path().join("a/b")).expect("a new folder");
        output.write(RUN_FILE, "{}").expect("it can be written to");
        let refused = Output::create(output.folder()).expect_err("it holds a run").to_string();
        assert!(refused.contains("holds a run already; name another"), "{refused}");
        let refused = Output::create(folder.path()).expect_err("it holds a folder").to_string();
        assert!(refused.contains("holds other files"), "{refused}");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let refused = Output::create(Path::new("/proc/none/run")).expect_err("proc is no place");
        let text = refused.to_string();
        assert!(text.starts_with("cannot make the folder /proc/none/run: "), "{text}");
    }
}
