//! The table of experiments, and how one is added.
//!
//! # Adding an experiment
//!
//! 1. Write `experiments/NAME.rs` (or a folder) with one constant and one function:
//!
//! ```text
//! pub const EXPERIMENT: Experiment = Experiment {
//!     name: "roll-by-time",
//!     question: "When does a segment roll by age, and what does that cost?",
//!     parameters: PARAMETERS,                    // &[Parameter]: typed, bounded, with help
//!     engines: EngineName::ALL,                  // &[]: not one cell for each engine
//!     tiers: Tier::ALL,                          // &[]: not one cell for each durability tier
//!     file_systems: true,                        // false: on the first --fs only
//!     seconds: Scaled { quick: 2, normal: 10, full: 60 },     // of one cell, about
//!     run,
//! };
//!
//! fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> { .. }
//! ```
//!
//! 2. Add it to [`EXPERIMENTS`], in the order of the reports. Nothing else is to be touched.
//!
//! # What the function gets and gives
//!
//! It is called once for each *cell*: engine x tier x file system x round, engines by turns. The
//! [`Context`] says which cell it is (`engine()`, `tier()`, `round`), how large it may be
//! (`scale`), what was set (`parameters`), and has an empty `folder` on the file system under test
//! that is removed afterwards. `context.check()?` in every loop, at least once a second, makes
//! Ctrl-C work; `context.progress(total, what)` shows how far it is.
//!
//! The [`Recorder`] takes everything that comes out, and writes it to files at once:
//! `figure` (a number or a list of numbers with a [`Unit`](crate::record::Unit)), `expect` (a
//! figure that must have a certain value, else the cell is failed), `latency` (histograms),
//! `sample`, `event_at` and `counter` (series), `table` (as the terminal and the report show it),
//! `note` (what differs and why), `picture` (what the report draws; data comes from what was
//! recorded under the names that the picture lists). `vary` sets a parameter from there on: a sweep
//! within a cell calls it for each point, and everything recorded afterwards carries that value.
//!
//! A [`Failure`] ends the cell, not the run; what was recorded before it stays, marked as partial.
//! `Failure::Skipped` says why a cell can't be had here, which is no failure.

use crate::engines::{EngineName, Tier};
use crate::experiments::{self, Failure};
use crate::parameters::{Parameter, Scaled};
use crate::record::Recorder;
use crate::run::Context;

/// Every experiment, in the order in which `all` runs them and reports show them.
pub const EXPERIMENTS: &[&Experiment] = &[
    &experiments::roll_by_size::EXPERIMENT,
    &experiments::limits::EXPERIMENT,
    &experiments::end_to_end::EXPERIMENT,
    &experiments::soak::EXPERIMENT,
    &experiments::self_test::EXPERIMENT,
];

/// One question, and the function that answers it with figures.
pub struct Experiment {
    /// As the command line and every recorded line name it.
    pub name: &'static str,
    /// What it answers, in one line.
    pub question: &'static str,
    /// What `--set` may change.
    pub parameters: &'static [Parameter],
    /// Engines that it can run on, one cell for each; empty: one cell, whose engine is "none".
    pub engines: &'static [EngineName],
    /// Tiers that it tells apart, one cell for each; empty: one cell, whose tier is "none".
    pub tiers: &'static [Tier],
    /// Whether there is a cell for each file system; otherwise the first one is used.
    pub file_systems: bool,
    /// How long a cell takes, roughly, in seconds.
    pub seconds: Scaled<u64>,
    /// Carries out one cell.
    pub run: fn(&Context, &mut Recorder) -> Result<(), Failure>,
}

/// The experiments with these names; `all` stands for every one.
///
/// # Errors
/// An unknown name, with the known ones.
pub fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>, Failure> {
    for name in names.iter().filter(|name| *name != "all") {
        if !EXPERIMENTS.iter().any(|it| it.name == name) {
            let known: Vec<_> = EXPERIMENTS.iter().map(|it| it.name).collect();
            return Err(Failure::Usage(format!(
                "unknown experiment {name}; there are: all, {}",
                known.join(", ")
            )));
        }
    }
    let is_chosen = |name: &str| names.iter().any(|it| it == "all" || it == name);
    Ok(EXPERIMENTS.iter().copied().filter(|it| is_chosen(it.name)).collect())
}

/// What `bench-harness list` prints.
pub fn listing() -> String {
    let width = EXPERIMENTS.iter().map(|it| it.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for experiment in EXPERIMENTS {
        text += &format!("{:width$}  {}\n", experiment.name, experiment.question);
        for parameter in experiment.parameters {
            text += &format!("{:width$}    --set {}\n", "", parameter.describe());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_listed() {
        let listing = listing();
        for (number, experiment) in EXPERIMENTS.iter().enumerate() {
            let same = |other: &&&Experiment| other.name == experiment.name;
            assert_eq!(EXPERIMENTS.iter().position(|it| same(&it)), Some(number));
            assert!(listing.contains(experiment.question), "{}", experiment.name);
            for (at, parameter) in experiment.parameters.iter().enumerate() {
                let first = experiment.parameters.iter().position(|it| it.name == parameter.name);
                assert_eq!(first, Some(at), "{} of {}", parameter.name, experiment.name);
                assert!(parameter.is_consistent(), "{} of {}", parameter.name, experiment.name);
            }
        }
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let refused = chosen(&["roll-by-size".to_owned(), "nonsense".to_owned()]);
        let text = refused.err().expect("an error").to_string();
        assert!(text.contains("unknown experiment nonsense"), "{text}");
        assert!(text.contains("roll-by-size"), "{text}");
        let all = chosen(&["all".to_owned()]).expect("all of them");
        assert_eq!(all.len(), EXPERIMENTS.len());
    }
}
