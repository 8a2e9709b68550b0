//! What differs between two runs, and whether it is worse.
//!
//! Figures are matched by experiment, engine, tier, file system, parameters and name. How they are
//! judged is part of the figure (`better` in `results.json`):
//!
//! - `exact`: values must be equal, in every round; any difference is a regression.
//! - `lower` and `higher`: the ratio of the medians with a 95 % bootstrap interval. It is a
//!   regression (or a gain) when the whole interval lies beyond the threshold: 10 %, or twice what
//!   the calibration loops of the two runs differed by within themselves (middle half of the loop's
//!   times, relative to their median) where that is more. With fewer than three rounds on either
//!   side the interval knows nothing of the noise: the ranges of the two must not meet, and lie
//!   apart by a factor of two at least, by the threshold where that is more.
//! - `none`: not judged.
//!
//! A figure that only one run has is listed and is no regression. An `exact` one that the second
//! run lost is one: when it went about that cell and the cell did not end well, or has other
//! figures there with the same parameters. What it was not asked for is not lost.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::experiments::Failure;
use crate::experiments::measure::f64_of;
use crate::record::output::CellState;
use crate::record::{Better, Figure, Place};
use crate::report::load::Run;
use crate::report::stats::{ratio_interval, spread};
use crate::run::noise::Noise;

/// Less than this is no difference, however quiet the machine is.
const THRESHOLD_MIN: f64 = 0.10;
/// Factor that a median is worse by with too few rounds to know the noise.
const FEW_ROUNDS_FACTOR: f64 = 2.0;
const ROUNDS_MIN: usize = 3;

/// How a figure of the second run stands to the first's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Verdict {
    Regression,
    Gain,
    OnlyBefore,
    OnlyAfter,
    Same,
}

/// One figure in both runs.
struct Compared {
    name: String,
    verdict: Verdict,
    /// Values and ratio, in words.
    text: String,
}

/// Prints what differs.
///
/// # Errors
/// Folders without a run; a regression.
pub fn run(before: &Path, after: &Path) -> Result<(), Failure> {
    let (before, after) = (Run::load(before)?, Run::load(after)?);
    let threshold = threshold(&before.noise, &after.noise);
    let after_it = After { figures: &after.figures, cells: &after.state.cells };
    let compared = compare(&before.figures, &after_it, threshold);
    println!(
        "A: {} ({})\nB: {} ({})",
        before.label, before.state.command, after.label, after.state.command
    );
    println!("threshold: {:.0} % (see the calibration loops)", 100.0 * threshold);
    let count = |verdict| compared.iter().filter(|it| it.verdict == verdict).count();
    for one in &compared {
        match one.verdict {
            Verdict::Regression => println!("WORSE   {}: {}", one.name, one.text),
            Verdict::Gain => println!("better  {}: {}", one.name, one.text),
            Verdict::OnlyBefore | Verdict::OnlyAfter | Verdict::Same => {}
        }
    }
    for (verdict, which) in [(Verdict::OnlyBefore, "A"), (Verdict::OnlyAfter, "B")] {
        for (experiment, figures) in lonely(&compared, verdict) {
            println!("only in {which}: {figures} figures of {experiment}");
        }
    }
    let (worse, gains, same) =
        (count(Verdict::Regression), count(Verdict::Gain), count(Verdict::Same));
    println!(
        "{} figures: {worse} worse, {gains} better, {same} without difference",
        compared.len()
    );
    match worse {
        0 => Ok(()),
        _ => Err(Failure::Wrong(format!("{worse} figures are worse beyond the noise"))),
    }
}

/// How many figures of which experiment one run has alone.
fn lonely(compared: &[Compared], verdict: Verdict) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for one in compared.iter().filter(|it| it.verdict == verdict) {
        let experiment = one.name.split(' ').next().unwrap_or_default();
        *counts.entry(experiment).or_default() += 1;
    }
    counts
}

/// Relative; see the module.
fn threshold(before: &[Noise], after: &[Noise]) -> f64 {
    let spread_of = |noise: &[Noise]| {
        let cpu = middle_half(noise.iter().map(|it| it.cpu_ns));
        let mut labels: Vec<&str> = noise.iter().map(|it| it.file_system.as_str()).collect();
        labels.dedup();
        let syncs = labels.iter().map(|label| {
            let here = noise.iter().filter(|it| it.file_system == *label);
            middle_half(here.map(|it| it.sync_ns))
        });
        syncs.fold(cpu, f64::max)
    };
    (2.0 * spread_of(before).max(spread_of(after))).max(THRESHOLD_MIN)
}

/// What the middle half of the values spans, relative to their median.
fn middle_half(values: impl Iterator<Item = u64>) -> f64 {
    let mut values: Vec<f64> = values.map(f64_of).collect();
    values.sort_by(f64::total_cmp);
    let quarter = values.len() / 4;
    match values.get(quarter..values.len() - quarter).and_then(spread) {
        Some(of) if 0.0 < of.median => (of.max - of.min) / of.median,
        _ => 0.0,
    }
}

/// The second run.
struct After<'a> {
    figures: &'a [Figure],
    cells: &'a [CellState],
}

impl After<'_> {
    /// Whether a figure of the first run, which this one hasn't, was to be had here.
    fn has_lost(&self, old: &Figure) -> bool {
        let broke = |it: &&CellState| ["failed", "interrupted"].contains(&it.state.as_str());
        let is_there =
            |it: &Figure| is_beside(&it.place, &old.place) && it.parameters == old.parameters;
        self.cells.iter().filter(broke).any(|it| has(&it.place, &old.place))
            || self.figures.iter().any(is_there)
    }
}

/// The same cell in any round.
fn is_beside(one: &Place, other: &Place) -> bool {
    Place { round: 0, ..one.clone() } == Place { round: 0, ..other.clone() }
}

/// Whether something was recorded in the cell, or in another round of it. Experiments that compare
/// variants name each as an engine of its own.
fn has(cell: &Place, recorded: &Place) -> bool {
    let of_cell = Place { engine: cell.engine.clone(), ..recorded.clone() };
    let is_variant = cell.engine == "none" || recorded.engine.starts_with(&cell.engine);
    is_variant && is_beside(cell, &of_cell)
}

fn compare(before: &[Figure], after: &After<'_>, threshold: f64) -> Vec<Compared> {
    let (before, second, after) = (by_name(before), after, by_name(after.figures));
    let mut compared: Vec<Compared> = Vec::new();
    for (name, old) in &before {
        let (verdict, text) = match after.get(name) {
            Some(new) => judge(old, new, threshold),
            None if old[0].better == Better::Exact && second.has_lost(old[0]) => {
                (Verdict::Regression, format!("{} in A, nothing in B", old[0].value))
            }
            None => (Verdict::OnlyBefore, old[0].value.to_string()),
        };
        compared.push(Compared { name: name.clone(), verdict, text });
    }
    for (name, new) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
        let (verdict, text) = (Verdict::OnlyAfter, new[0].value.to_string());
        compared.push(Compared { name: name.clone(), verdict, text });
    }
    compared.sort_by(|one, other| (one.verdict, &one.name).cmp(&(other.verdict, &other.name)));
    compared
}

/// The figures of each name, one for each round.
fn by_name(figures: &[Figure]) -> BTreeMap<String, Vec<&Figure>> {
    let mut named: BTreeMap<String, Vec<&Figure>> = BTreeMap::new();
    for figure in figures {
        let place = &figure.place;
        let parameters = serde_json::to_string(&figure.parameters).expect("names and values");
        let name = format!(
            "{} {} {} {} {} {parameters}",
            place.experiment, figure.figure, place.engine, place.tier, place.file_system
        );
        named.entry(name).or_default().push(figure);
    }
    named
}

fn judge(before: &[&Figure], after: &[&Figure], threshold: f64) -> (Verdict, String) {
    let better = before[0].better;
    match better {
        Better::Exact => judge_exact(before, after),
        Better::Lower | Better::Higher => judge_rate(before, after, threshold),
        Better::None => (Verdict::Same, String::new()),
    }
}

fn judge_exact(before: &[&Figure], after: &[&Figure]) -> (Verdict, String) {
    let expected = &before[0].value;
    let differs = |it: &&&Figure| it.value != *expected || it.unit != before[0].unit;
    match before.iter().chain(after).find(differs) {
        None => (Verdict::Same, String::new()),
        Some(other) => {
            let unit = &before[0].unit;
            (Verdict::Regression, format!("{expected} {unit}, then {} {}", other.value, other.unit))
        }
    }
}

fn judge_rate(before: &[&Figure], after: &[&Figure], threshold: f64) -> (Verdict, String) {
    let numbers = |of: &[&Figure]| of.iter().filter_map(|it| it.number()).collect::<Vec<f64>>();
    let (old, new) = (numbers(before), numbers(after));
    let interval = ratio_interval(&old, &new);
    let (Some(interval), Some(of_old), Some(of_new)) = (interval, spread(&old), spread(&new))
    else {
        let values = [&before[0].value, &after[0].value].map(Value::to_string);
        return (Verdict::Same, values.join(", then "));
    };
    let is_few = old.len().min(new.len()) < ROUNDS_MIN;
    let beyond = if is_few { threshold.max(FEW_ROUNDS_FACTOR - 1.0) } else { threshold };
    let ratio = of_new.median / of_old.median;
    let (low, high) =
        if is_few { (of_new.min / of_old.max, of_new.max / of_old.min) } else { interval };
    let is_up = 1.0 + beyond < low;
    let is_down = high < 1.0 / (1.0 + beyond);
    let unit = &before[0].unit;
    let (old, new) = (of_old.median, of_new.median);
    let rounds = if is_few { ", few rounds" } else { "" };
    let text = format!("{old} {unit}, then {new}: x {ratio:.2} ({low:.2} .. {high:.2}{rounds})");
    let verdict = match (before[0].better, is_up, is_down) {
        (Better::Lower, true, _) | (Better::Higher, _, true) => Verdict::Regression,
        (Better::Lower, _, true) | (Better::Higher, true, _) => Verdict::Gain,
        _ => Verdict::Same,
    };
    (verdict, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Place, Unit, unit};

    fn figures(name: &str, values: &[impl Into<Value> + Clone], unit: Unit) -> Vec<Figure> {
        let figure = |(round, value): (u32, &Value)| Figure {
            place: Place {
                experiment: "test".to_owned(),
                engine: "uring".to_owned(),
                tier: "device".to_owned(),
                file_system: "ext4".to_owned(),
                round,
            },
            parameters: BTreeMap::new(),
            figure: name.to_owned(),
            value: value.clone(),
            unit: unit.name.to_owned(),
            better: unit.better,
        };
        let values: Vec<Value> = values.iter().map(|it| it.clone().into()).collect();
        (0..).zip(&values).map(figure).collect()
    }

    fn done(figures: &[Figure]) -> After<'_> {
        After { figures, cells: &[] }
    }

    fn verdict(before: &[Figure], after: &[Figure]) -> Verdict {
        let compared = compare(before, &done(after), THRESHOLD_MIN);
        assert_eq!(compared.len(), 1);
        compared[0].verdict
    }

    #[test]
    fn exact_figures_must_be_equal() {
        let bases = |value: Vec<u64>| figures("base_offsets", &[value], unit::OFFSET);
        let seed = bases(vec![0, 1028, 2033, 3038]);
        assert_eq!(verdict(&seed, &seed), Verdict::Same);
        assert_eq!(verdict(&seed, &bases(vec![0, 1028, 2033, 3039])), Verdict::Regression);
        assert_eq!(verdict(&[], &seed), Verdict::OnlyAfter);
        let compared = compare(&[], &done(&seed), THRESHOLD_MIN);
        assert_eq!(lonely(&compared, Verdict::OnlyAfter), BTreeMap::from([("test", 1)]));
        assert!(lonely(&compared, Verdict::OnlyBefore).is_empty());
    }

    #[test]
    fn what_a_run_was_not_asked_for_is_not_lost() {
        let seed = figures("base_offsets", &[vec![0, 1028]], unit::OFFSET);
        let judged = |figures: &[Figure], cells: &[CellState]| {
            compare(&seed, &After { figures, cells }, THRESHOLD_MIN).pop().expect("one").verdict
        };
        assert_eq!(judged(&[], &[]), Verdict::OnlyBefore);
        let cell = |state: &str, engine: &str| CellState {
            place: Place { engine: engine.to_owned(), round: 7, ..seed[0].place.clone() },
            state: state.to_owned(),
            reason: None,
            seconds: 1.0,
        };
        for (state, engine, expected) in [
            ("failed", "uring", Verdict::Regression),
            ("interrupted", "none", Verdict::Regression),
            ("failed", "plain-file", Verdict::OnlyBefore),
            ("done", "uring", Verdict::OnlyBefore),
        ] {
            assert_eq!(judged(&[], &[cell(state, engine)]), expected, "{state} {engine}");
        }
        // Another figure of the same point is there, and this one isn't.
        let other = figures("segments", &[2], unit::COUNT);
        let compared = compare(&seed, &done(&other), THRESHOLD_MIN);
        assert_eq!(compared[0].verdict, Verdict::Regression);
        let mut elsewhere = other;
        elsewhere[0].parameters.insert("record_size".to_owned(), 1023.into());
        let compared = compare(&seed, &done(&elsewhere), THRESHOLD_MIN);
        assert!(compared.iter().all(|it| it.verdict != Verdict::Regression));
    }

    #[test]
    fn times_are_judged_by_their_interval_and_direction() {
        let quiet = [100, 103, 98];
        let slower = [150, 149, 155];
        let times = |values: &[u64]| figures("p99", values, unit::NS);
        assert_eq!(verdict(&times(&quiet), &times(&[99, 104, 101])), Verdict::Same);
        assert_eq!(verdict(&times(&quiet), &times(&slower)), Verdict::Regression);
        assert_eq!(verdict(&times(&slower), &times(&quiet)), Verdict::Gain);
        // One of three rounds reaches back: no confidence.
        assert_eq!(verdict(&times(&quiet), &times(&[150, 149, 104])), Verdict::Same);
        let rates = |values: &[u64]| figures("rate", values, unit::RECORDS_PER_SECOND);
        assert_eq!(verdict(&rates(&slower), &rates(&quiet)), Verdict::Regression);
        assert_eq!(verdict(&rates(&quiet), &rates(&slower)), Verdict::Gain);
        let told = |values: &[u64]| figures("max", values, unit::NS.told());
        assert_eq!(verdict(&told(&quiet), &told(&slower)), Verdict::Same);
    }

    #[test]
    fn with_few_rounds_it_takes_a_factor_of_two() {
        let times = |value: u64| figures("p99", &[value], unit::NS);
        assert_eq!(verdict(&times(100), &times(190)), Verdict::Same);
        assert_eq!(verdict(&times(100), &times(210)), Verdict::Regression);
        assert_eq!(verdict(&times(210), &times(100)), Verdict::Gain);
        assert_eq!(verdict(&times(0), &times(100)), Verdict::Same);
        // Calibration loops that differ by more say that this machine makes such differences.
        let compared = compare(&times(100), &done(&times(290)), 2.0);
        assert_eq!(compared[0].verdict, Verdict::Same);
        let compared = compare(&times(100), &done(&times(310)), 2.0);
        assert_eq!(compared[0].verdict, Verdict::Regression);
    }

    #[test]
    fn a_noisy_machine_has_a_higher_threshold() {
        let noise = |cpu_ns: &[u64]| {
            let one = |cpu_ns: &u64| Noise {
                when: "between".to_owned(),
                file_system: "ext4".to_owned(),
                seconds: 0.0,
                cpu_ns: *cpu_ns,
                sync_ns: 1000,
            };
            cpu_ns.iter().map(one).collect::<Vec<_>>()
        };
        let quiet = noise(&[100, 100, 101, 100]);
        let noisy = noise(&[100, 120, 140, 1000]);
        assert!((threshold(&quiet, &quiet) - THRESHOLD_MIN).abs() < 1e-9);
        let raised = threshold(&quiet, &noisy);
        assert!((raised - 2.0 * 20.0 / 130.0).abs() < 1e-9, "{raised}");
        assert!((threshold(&[], &[]) - THRESHOLD_MIN).abs() < 1e-9);
    }
}
