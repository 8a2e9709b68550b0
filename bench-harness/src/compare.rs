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
//!   side the interval knows nothing of the noise: the ranges of the two must not meet, and the
//!   median has to be worse by a factor of two at least.
//! - `none`: not judged.
//!
//! A figure that only one run has is listed and is no regression; an `exact` one that the second
//! run lost is one.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::experiments::Failure;
use crate::experiments::measure::f64_of;
use crate::record::{Better, Figure};
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
    let compared = compare(&before.figures, &after.figures, threshold);
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

fn compare(before: &[Figure], after: &[Figure], threshold: f64) -> Vec<Compared> {
    let (before, after) = (by_name(before), by_name(after));
    let mut compared: Vec<Compared> = Vec::new();
    for (name, old) in &before {
        let (verdict, text) = match after.get(name) {
            Some(new) => judge(old, new, threshold),
            None if old[0].better == Better::Exact => {
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
    let beyond = if is_few { FEW_ROUNDS_FACTOR - 1.0 } else { threshold };
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

    fn verdict(before: &[Figure], after: &[Figure]) -> Verdict {
        let compared = compare(before, after, THRESHOLD_MIN);
        assert_eq!(compared.len(), 1);
        compared[0].verdict
    }

    #[test]
    fn exact_figures_must_be_equal() {
        let bases = |value: Vec<u64>| figures("base_offsets", &[value], unit::OFFSET);
        let seed = bases(vec![0, 1028, 2033, 3038]);
        assert_eq!(verdict(&seed, &seed), Verdict::Same);
        assert_eq!(verdict(&seed, &bases(vec![0, 1028, 2033, 3039])), Verdict::Regression);
        assert_eq!(verdict(&seed, &[]), Verdict::Regression);
        assert_eq!(verdict(&[], &seed), Verdict::OnlyAfter);
        let compared = compare(&[], &seed, THRESHOLD_MIN);
        assert_eq!(lonely(&compared, Verdict::OnlyAfter), BTreeMap::from([("test", 1)]));
        assert!(lonely(&compared, Verdict::OnlyBefore).is_empty());
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
