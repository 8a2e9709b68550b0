//! A recorded run, read back from its folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::experiments::{DoingTo, Failure};
use crate::record::latency::{self, Slice};
use crate::record::output::{
    MACHINE_FILE, NOISE_FILE, RECORD_FILE, RESULTS_FILE, RUN_FILE, RunState, SERIES_FILE,
};
use crate::record::{Figure, Line, Place};
use crate::run::machine::MachineRecord;
use crate::run::noise::Noise;

/// Everything of a run but the histograms, which are read when they are drawn.
pub struct Run {
    /// Short and different from the other runs' of a report.
    pub label: String,
    /// Where it lies.
    pub folder: PathBuf,
    /// What became of it.
    pub state: RunState,
    /// On what it was measured.
    pub machine: MachineRecord,
    /// The calibration loop.
    pub noise: Vec<Noise>,
    /// All of them.
    pub figures: Vec<Figure>,
    /// Lines by experiment.
    pub lines: BTreeMap<String, Vec<Line>>,
}

/// Latencies as recorded: what they are of, and where their histograms are.
pub struct LatencyFile<'a> {
    /// Of which cell.
    pub place: &'a Place,
    /// With which parameters.
    pub parameters: &'a BTreeMap<String, Value>,
    /// Its name.
    pub latency: &'a str,
    /// Of which run.
    pub run: &'a Run,
    file: &'a str,
}

impl LatencyFile<'_> {
    /// The histograms over time; none when the file is gone or damaged.
    pub fn slices(&self) -> Vec<Slice> {
        let name = format!("{}/{}.hlog", self.place.experiment, self.file);
        let text = fs::read_to_string(self.run.folder.join(name)).unwrap_or_default();
        latency::parse_log(&text).unwrap_or_default()
    }
}

impl Run {
    /// Reads a run.
    ///
    /// # Errors
    /// A folder that holds none, or a file of it that is damaged.
    pub fn load(folder: &Path) -> Result<Run, Failure> {
        if !folder.join(RUN_FILE).is_file() {
            return Err(Failure::Usage(format!(
                "{} holds no run: there is no {RUN_FILE} in it",
                folder.display()
            )));
        }
        let figures: Vec<Figure> = whole(&folder.join(RESULTS_FILE))?;
        let mut lines = BTreeMap::new();
        for entry in fs::read_dir(folder).doing_to("list", folder)? {
            let path = entry.doing_to("list", folder)?.path();
            let mut of_experiment: Vec<Line> = each_line(&path.join(RECORD_FILE))?;
            of_experiment.extend(each_line(&path.join(SERIES_FILE))?);
            if let Some(name) = path.file_name().filter(|_| !of_experiment.is_empty()) {
                lines.insert(name.to_string_lossy().into_owned(), of_experiment);
            }
        }
        let name = folder.canonicalize().doing_to("find", folder)?;
        let label = name.file_name().map_or_else(String::new, |it| it.to_string_lossy().into());
        Ok(Run {
            label,
            folder: folder.into(),
            state: whole(&folder.join(RUN_FILE))?,
            machine: whole(&folder.join(MACHINE_FILE))?,
            noise: each_line(&folder.join(NOISE_FILE))?,
            figures,
            lines,
        })
    }

    /// Lines of an experiment.
    pub fn lines(&self, experiment: &str) -> &[Line] {
        self.lines.get(experiment).map_or(&[], Vec::as_slice)
    }

    /// Latencies of an experiment.
    pub fn latencies(&self, experiment: &str) -> Vec<LatencyFile<'_>> {
        let lines = self.lines(experiment).iter();
        let latencies = lines.filter_map(|line| match line {
            Line::Latency { place, parameters, latency, file, .. } => {
                Some(LatencyFile { place, parameters, latency, file, run: self })
            }
            _ => None,
        });
        latencies.collect()
    }
}

fn whole<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let text = fs::read_to_string(path).doing_to("read", path)?;
    serde_json::from_str(&text).map_err(|error| damaged(path, &error))
}

/// An absent file has no lines. The last line may be torn by a kill, and is left out then.
fn each_line<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Failure> {
    let Ok(text) = fs::read_to_string(path) else { return Ok(Vec::new()) };
    let mut parsed = Vec::new();
    for line in text.split_inclusive('\n') {
        match serde_json::from_str(line) {
            Ok(line) => parsed.push(line),
            Err(_) if !line.ends_with('\n') => {}
            Err(error) => return Err(damaged(path, &error)),
        }
    }
    Ok(parsed)
}

fn damaged(path: &Path, error: &serde_json::Error) -> Failure {
    Failure::Wrong(format!("{} is damaged: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_last_line_is_left_out_and_a_damaged_one_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("noise.jsonl");
        fs::write(&path, "1\n2\n{\"a").expect("a file");
        assert_eq!(each_line::<u64>(&path).expect("lines"), [1, 2]);
        fs::write(&path, "1\nx\n2\n").expect("a file");
        let damaged = each_line::<u64>(&path).expect_err("not a number").to_string();
        assert!(damaged.contains("noise.jsonl is damaged"), "{damaged}");
        assert!(each_line::<u64>(&folder.path().join("none")).expect("no lines").is_empty());
        let none = Run::load(folder.path()).err().expect("no run").to_string();
        assert!(none.contains("holds no run"), "{none}");
    }
}
