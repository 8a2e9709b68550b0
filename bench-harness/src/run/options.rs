//! What `run` takes, checked before anything runs.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::clock;
use crate::engines::{EngineName, Tier};
use crate::experiments::{DoingTo, Failure};
use crate::parameters::{Scale, Setting};

/// Rounds without `--rounds`, but for quick runs, which have one.
const ROUNDS: u32 = 3;

/// What to run, on what, how large.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Experiments by name, or `all`.
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Engines to compare: uring, plain-file, kafka.
    #[arg(long, value_delimiter = ',', default_value = "uring,plain-file")]
    pub engines: Vec<EngineName>,
    /// What an acknowledgement promises: device, page-cache.
    #[arg(long, value_delimiter = ',', default_value = "device,page-cache")]
    pub durability: Vec<Tier>,
    /// A folder on a file system under test, and what to call it; may be repeated. Without it the
    /// output's own file system is used.
    #[arg(long, value_name = "PATH=LABEL")]
    pub fs: Vec<Where>,
    /// The phenomena and rough figures, in seconds.
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Figures to be quoted; takes hours.
    #[arg(long)]
    pub full: bool,
    /// How often each cell is run [default: 1 with --quick, else 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// A new folder for raw data and report [default: results/run-DATE].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Go on with the run in --out, which was interrupted or had cells that failed: the same
    /// command with this option. What is done stays.
    #[arg(long, requires = "out")]
    pub resume: bool,
    /// Of everything random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// A parameter of an experiment (`list` shows them); may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<Setting>,
}

/// A folder on a file system, and what to call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Where {
    /// The folder.
    pub path: PathBuf,
    /// As figures name the file system.
    pub label: String,
}

impl FromStr for Where {
    type Err = String;

    fn from_str(text: &str) -> Result<Where, String> {
        match text.split_once('=') {
            Some((path, label)) if !path.is_empty() && !label.is_empty() => {
                Ok(Where { path: path.into(), label: label.to_owned() })
            }
            _ => Err("want PATH=LABEL".to_owned()),
        }
    }
}

impl Options {
    /// How large the run is.
    pub fn scale(&self) -> Scale {
        match (self.quick, self.full) {
            (true, _) => Scale::Quick,
            (false, true) => Scale::Full,
            (false, false) => Scale::Normal,
        }
    }

    /// How often each cell is run.
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { ROUNDS })
    }

    /// Whether Kafka's column is asked for.
    pub fn wants_kafka(&self) -> bool {
        self.engines.contains(&EngineName::Kafka)
    }

    /// Where raw data and report go.
    pub fn folder(&self) -> PathBuf {
        let default = || PathBuf::from(format!("results/run-{}", clock::stamp()));
        self.out.clone().unwrap_or_else(default)
    }

    /// Every `--fs` is a folder that can be written to, and no label stands for two.
    ///
    /// # Errors
    /// The first one that isn't so.
    pub fn check_places(&self) -> Result<(), Failure> {
        for (number, place) in self.fs.iter().enumerate() {
            if !place.path.is_dir() {
                return Err(Failure::Usage(format!(
                    "--fs {}={}: there is no such folder; make it, or mount the file system first",
                    place.path.display(),
                    place.label
                )));
            }
            tempfile::tempdir_in(&place.path).doing_to("write to", &place.path)?;
            if self.fs[..number].iter().any(|it| it.label == place.label) {
                let label = &place.label;
                let text = format!("--fs: two folders are called {label}; give each its own label");
                return Err(Failure::Usage(text));
            }
        }
        Ok(())
    }

    /// The file systems under test; the output's own when none is named.
    ///
    /// # Errors
    /// When that one can't be looked at.
    pub fn places(&self, folder: &Path) -> Result<Vec<Where>, Failure> {
        if !self.fs.is_empty() {
            return Ok(self.fs.clone());
        }
        let label = crate::experiments::measure::file_system(folder)?;
        Ok(vec![Where { path: folder.into(), label }])
    }
}
