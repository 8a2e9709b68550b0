//! From recorded lines and a declared picture to charts: which data, in which curve.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde_json::Value;

use super::chart::{Axis, Bar, Chart, Curve, Panel, Patch, Point, Scale};
use super::load::{LatencyFile, Run};
use super::stats::spread;
use crate::experiments::measure::f64_of;
use crate::parameters::shown;
use crate::record::latency::{Slice, total};
use crate::record::{Figure, Kind, Line, Picture, Place};

/// More lines than this can't be told apart.
const CURVES_MAX: usize = 12;
/// From here on a parameter says "without limit".
const NO_LIMIT: f64 = 1e15;
/// Points of a percentile curve for each power of ten.
const POINTS_A_DECADE: i32 = 20;
/// Rows of a heat map for each power of ten.
const ROWS_A_DECADE: f64 = 8.0;

type Parameters = BTreeMap<String, Value>;

/// Which pictures are drawn apart from each other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Setting {
    /// Name of the tier.
    pub tier: String,
    /// Label of the file system.
    pub file_system: String,
}

/// A picture's charts: one for each tier and file system that has data for it.
pub fn charts(runs: &[Run], experiment: &str, picture: &Picture) -> Vec<(Setting, Chart)> {
    let mut drawn = Vec::new();
    for setting in settings(runs, experiment) {
        let source = Source { runs, experiment, picture, setting: &setting };
        let panels = source.panels();
        let panels: Vec<Panel> = panels.into_iter().filter(|it| !it.is_empty()).collect();
        if !panels.is_empty() {
            drawn.push((setting, Chart { title: picture.title.clone(), panels }));
        }
    }
    drawn
}

fn settings(runs: &[Run], experiment: &str) -> Vec<Setting> {
    let figures = runs.iter().flat_map(|it| &it.figures).map(|it| &it.place);
    let lines = runs.iter().flat_map(|it| it.lines(experiment)).filter_map(Line::place);
    let places = figures.chain(lines).filter(|it| it.experiment == experiment);
    let setting =
        |it: &Place| Setting { tier: it.tier.clone(), file_system: it.file_system.clone() };
    let mut settings: Vec<Setting> = places.map(setting).collect();
    settings.sort();
    settings.dedup();
    settings
}

/// Where one picture's data comes from.
struct Source<'a> {
    runs: &'a [Run],
    experiment: &'a str,
    picture: &'a Picture,
    setting: &'a Setting,
}

/// What tells a curve from others.
#[derive(Clone, PartialEq, Debug)]
struct Key {
    run: String,
    engine: String,
    name: String,
    parameters: Parameters,
}

impl Source<'_> {
    fn panels(&self) -> Vec<Panel> {
        match &self.picture.draw {
            Kind::Percentiles { latencies } => vec![self.percentiles(latencies)],
            Kind::Timeline { series, events } => self.timeline(series, events),
            Kind::HeatMap { latency } => self.heat_maps(latency),
            Kind::Scaling { figures, against } => vec![self.scaling(figures, against)],
            Kind::Bars { figures, by } => vec![self.bars(figures, by.as_deref())],
        }
    }

    fn is_here(&self, place: &Place, parameters: &Parameters) -> bool {
        let Setting { tier, file_system } = self.setting;
        place.experiment == self.experiment
            && place.tier == *tier
            && place.file_system == *file_system
            && self.picture.only.iter().all(|(name, value)| parameters.get(name) == Some(value))
    }

    fn latencies(&self, names: &[String]) -> Vec<LatencyFile<'_>> {
        let all = self.runs.iter().flat_map(|run| run.latencies(self.experiment));
        all.filter(|it| {
            self.is_here(it.place, it.parameters) && names.iter().any(|name| name == it.latency)
        })
        .collect()
    }

    fn percentiles(&self, names: &[String]) -> Panel {
        let files = self.latencies(names);
        let keyed = files.iter().map(|it| {
            let key = key(it.run, it.place, it.latency, it.parameters, &[]);
            (key, total(it.slices().iter().map(|slice| &slice.histogram)))
        });
        let grouped = grouped(keyed);
        let labels = labels(&grouped.iter().map(|it| &it.0).collect::<Vec<_>>());
        let x = Axis::log("percentile", Scale::Percentile);
        let mut panel = Panel::new(x, Axis::log("latency", Scale::Time));
        for ((key, histograms), label) in grouped.into_iter().zip(labels).take(CURVES_MAX) {
            let points = percentile_points(&total(histograms.iter()));
            panel.curves.push(Curve { label, engine: key.engine, points });
        }
        panel
    }

    fn timeline(&self, series: &[String], events: &[String]) -> Vec<Panel> {
        let mut panels: Vec<(Key, Panel)> = Vec::new();
        let lines = self
            .runs
            .iter()
            .flat_map(|run| run.lines(self.experiment).iter().map(move |line| (run, line)));
        for (run, line) in lines.clone() {
            let Line::Sample { place, parameters, series: name, unit, seconds, value } = line
            else {
                continue;
            };
            if place.round != 0 || !series.contains(name) || !self.is_here(place, parameters) {
                continue;
            }
            let of_panel = key(run, place, "", &Parameters::new(), &[]);
            let y = Axis::of_unit(unit);
            let panel = entry(&mut panels, of_panel, || {
                Panel::new(Axis::linear("time", Scale::Seconds), y)
            });
            let point = Point { x: *seconds, low: *value, y: *value, high: *value };
            match panel.curves.iter_mut().find(|it| it.label == *name) {
                Some(curve) => curve.points.push(point),
                None => {
                    let (label, engine) = (name.clone(), place.engine.clone());
                    panel.curves.push(Curve { label, engine, points: vec![point] });
                }
            }
        }
        for (run, line) in lines {
            let Line::Event { place, parameters, event, seconds, label } = line else { continue };
            if place.round != 0 || !events.contains(event) || !self.is_here(place, parameters) {
                continue;
            }
            let of_panel = key(run, place, "", &Parameters::new(), &[]);
            if let Some((_, panel)) = panels.iter_mut().find(|it| it.0 == of_panel) {
                let label = if label.is_empty() { event } else { label };
                panel.events.push((*seconds, label.clone()));
            }
        }
        titled(panels, self.runs.len())
    }

    fn heat_maps(&self, latency: &str) -> Vec<Panel> {
        let mut panels: Vec<(Key, Panel)> = Vec::new();
        for file in self.latencies(&[latency.to_owned()]) {
            let of_panel = key(file.run, file.place, "", &Parameters::new(), &[]);
            let is_new = panels.iter().all(|it| it.0 != of_panel);
            if file.place.round == 0 && is_new {
                let x = Axis::linear("time", Scale::Seconds);
                let mut panel = Panel::new(x, Axis::log("latency", Scale::Time));
                panel.patches = patches(&file.slices());
                panels.push((of_panel, panel));
            }
        }
        titled(panels, self.runs.len())
    }

    fn figures(&self, names: &[String]) -> Vec<(&Run, &Figure)> {
        let all = self.runs.iter().flat_map(|run| run.figures.iter().map(move |it| (run, it)));
        all.filter(|(_, it)| self.is_here(&it.place, &it.parameters) && names.contains(&it.figure))
            .collect()
    }

    fn scaling(&self, names: &[String], against: &str) -> Panel {
        let figures = self.figures(names);
        let x_of = |it: &Figure| it.parameters.get(against).and_then(Value::as_f64);
        let xs: Vec<f64> = figures.iter().filter_map(|(_, it)| x_of(it)).collect();
        let stretched = Stretched::of(&xs);
        let keyed = figures.iter().filter_map(|(run, it)| {
            let key = key(run, &it.place, &it.figure, &it.parameters, &[against]);
            Some((key, (x_of(it)?, it.number()?)))
        });
        let grouped = grouped(keyed);
        let labels = labels(&grouped.iter().map(|it| &it.0).collect::<Vec<_>>());
        let unit = figures.first().map_or("", |it| it.1.unit.as_str());
        let against = against.replace('_', " ");
        let x = Axis { marks: stretched.marks(), ..Axis::log(&against, Scale::Plain) };
        let mut panel = Panel::new(x, Axis::of_unit(unit).logarithmic());
        panel.events = self.marks_within(&xs);
        for ((key, values), label) in grouped.into_iter().zip(labels).take(CURVES_MAX) {
            let points = scaling_points(&values, &stretched);
            panel.curves.push(Curve { label, engine: key.engine, points });
        }
        panel
    }

    /// The picture's marks that lie where there is data.
    fn marks_within(&self, xs: &[f64]) -> Vec<(f64, String)> {
        let is_within = |at: f64| xs.iter().any(|x| *x <= at) && xs.iter().any(|x| at <= *x);
        self.picture.marks.iter().filter(|(at, _)| is_within(*at)).cloned().collect()
    }

    fn bars(&self, names: &[String], by: Option<&str>) -> Panel {
        let figures = self.figures(names);
        let keyed = figures.iter().filter_map(|(run, it)| {
            let key = key(run, &it.place, &it.figure, &it.parameters, &[]);
            Some((key, it.number()?))
        });
        let grouped = grouped(keyed);
        let without = |key: &Key| {
            let mut key = key.clone();
            by.map(|by| key.parameters.remove(by));
            key
        };
        let keys: Vec<Key> = grouped.iter().map(|it| without(&it.0)).collect();
        let labels = labels(&keys.iter().collect::<Vec<_>>());
        let unit = figures.first().map_or("", |it| it.1.unit.as_str());
        let x = Axis::linear(&by.unwrap_or_default().replace('_', " "), Scale::Plain);
        let mut panel = Panel::new(x, Axis::of_unit(unit));
        for ((key, values), label) in grouped.into_iter().zip(labels) {
            let Some(of) = spread(&values) else { continue };
            let group = by.and_then(|by| key.parameters.get(by)).map(group_name);
            panel.bars.push(Bar {
                group: group.unwrap_or_default(),
                label,
                engine: key.engine,
                low: of.min,
                value: of.median,
                high: of.max,
            });
        }
        panel
    }
}

fn group_name(value: &Value) -> String {
    match value.as_f64() {
        Some(number) if NO_LIMIT <= number => "no limit".to_owned(),
        _ => shown(value),
    }
}

fn key(run: &Run, place: &Place, name: &str, parameters: &Parameters, without: &[&str]) -> Key {
    let mut parameters = parameters.clone();
    parameters.retain(|name, _| !without.contains(&name.as_str()));
    Key { run: run.label.clone(), engine: place.engine.clone(), name: name.to_owned(), parameters }
}

fn entry(panels: &mut Vec<(Key, Panel)>, key: Key, make: impl FnOnce() -> Panel) -> &mut Panel {
    let at = panels.iter().position(|it| it.0 == key).unwrap_or_else(|| {
        panels.push((key, make()));
        panels.len() - 1
    });
    &mut panels[at].1
}

/// Values by key, in the order in which the keys come first.
fn grouped<T>(keyed: impl Iterator<Item = (Key, T)>) -> Vec<(Key, Vec<T>)> {
    let mut groups: Vec<(Key, Vec<T>)> = Vec::new();
    for (key, value) in keyed {
        match groups.iter_mut().find(|it| it.0 == key) {
            Some(group) => group.1.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// As short as tells them apart: engine, then whatever of run, name and parameters differs.
fn labels(keys: &[&Key]) -> Vec<String> {
    let differs =
        |of: &dyn Fn(&Key) -> String| keys.windows(2).any(|pair| of(pair[0]) != of(pair[1]));
    let names: Vec<&String> = keys.iter().flat_map(|it| it.parameters.keys()).collect();
    let mut varied: Vec<&String> = Vec::new();
    for name in names {
        let value = |key: &Key| key.parameters.get(name).map(shown).unwrap_or_default();
        if !varied.contains(&name) && differs(&value) {
            varied.push(name);
        }
    }
    let (runs, named) = (differs(&|it| it.run.clone()), differs(&|it| it.name.clone()));
    let label = |key: &&Key| {
        let mut parts = Vec::new();
        parts.extend(runs.then(|| key.run.clone()));
        parts.extend((key.engine != "none").then(|| key.engine.clone()));
        parts.extend((named || key.engine == "none").then(|| key.name.replace('_', " ")));
        for name in &varied {
            let value = key.parameters.get(*name).map(group_name).unwrap_or_default();
            parts.push(format!("{name}={value}"));
        }
        parts.join(", ")
    };
    keys.iter().map(label).collect()
}

fn titled(panels: Vec<(Key, Panel)>, runs: usize) -> Vec<Panel> {
    let titled = panels.into_iter().map(|(key, mut panel)| {
        panel.title = match runs {
            1 => key.engine,
            _ => format!("{}, {}", key.run, key.engine),
        };
        panel
    });
    titled.collect()
}

/// Latency at 1/(1-q) from 1 to as many values as there are, and the greatest one there.
fn percentile_points(histogram: &Histogram<u64>) -> Vec<Point> {
    if histogram.is_empty() {
        return Vec::new();
    }
    let count = f64_of(histogram.len());
    let at = |step: i32| 10f64.powf(f64::from(step) / f64::from(POINTS_A_DECADE));
    let steps = (0..).map(at).take_while(|it| *it < count).chain([count]);
    let point = |x: f64| {
        let y = f64_of(histogram.value_at_quantile(1.0 - 1.0 / x));
        Point { x, low: y, y, high: y }
    };
    let mut points: Vec<Point> = steps.map(point).collect();
    if let Some(last) = points.last_mut() {
        let most = f64_of(histogram.max());
        *last = Point { low: most, y: most, high: most, ..*last };
    }
    points
}

/// Median and range at each x, zero and "no limit" at their places.
fn scaling_points(values: &[(f64, f64)], stretched: &Stretched) -> Vec<Point> {
    let mut xs: Vec<f64> = values.iter().map(|it| it.0).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let point = |x: &f64| {
        let at: Vec<f64> = values.iter().filter(|it| it.0 == *x).map(|it| it.1).collect();
        let of = spread(&at).expect("there is one with this x");
        Point { x: stretched.place(*x), low: of.min, y: of.median, high: of.max }
    };
    xs.iter().map(point).collect()
}

/// A logarithmic axis has no place for zero and "no limit"; they get one beside the others.
struct Stretched {
    zero: Option<f64>,
    no_limit: Option<f64>,
}

impl Stretched {
    fn of(xs: &[f64]) -> Stretched {
        let inner = || xs.iter().copied().filter(|it| 0.0 < *it && *it < NO_LIMIT);
        let least = inner().fold(f64::INFINITY, f64::min);
        let most = inner().fold(0.0, f64::max);
        let least = if least.is_finite() { least } else { 1.0 };
        let zero = xs.contains(&0.0).then_some(least / 10.0);
        let no_limit = xs.iter().any(|it| NO_LIMIT <= *it).then_some(most.max(1.0) * 10.0);
        Stretched { zero, no_limit }
    }

    fn place(&self, x: f64) -> f64 {
        match (self.zero, self.no_limit) {
            (Some(place), _) if x <= 0.0 => place,
            (_, Some(place)) if NO_LIMIT <= x => place,
            _ => x,
        }
    }

    fn marks(&self) -> Vec<(f64, String)> {
        let zero = self.zero.map(|at| (at, "0".to_owned()));
        let no_limit = self.no_limit.map(|at| (at, "no limit".to_owned()));
        zero.into_iter().chain(no_limit).collect()
    }
}

/// How often which latency occurred when, the most frequent hottest, by logarithm.
fn patches(slices: &[Slice]) -> Vec<Patch> {
    let mut counts: BTreeMap<(usize, i64), u64> = BTreeMap::new();
    for (number, slice) in slices.iter().enumerate() {
        for value in slice.histogram.iter_recorded() {
            let row = row_of(value.value_iterated_to());
            *counts.entry((number, row)).or_default() += value.count_since_last_iteration();
        }
    }
    let most = counts.values().copied().max().unwrap_or(1);
    let most = (f64_of(most) + 1.0).ln();
    let edge = |row: i64| {
        let row = i32::try_from(row).expect("rows of nanoseconds are few");
        10f64.powf(f64::from(row) / ROWS_A_DECADE)
    };
    let patch = |((slice, row), count): (&(usize, i64), &u64)| {
        let Slice { start, length, .. } = slices[*slice];
        let heat = (f64_of(*count) + 1.0).ln() / most;
        Patch { x: (start, start + length), y: (edge(*row), edge(row + 1)), heat }
    };
    counts.iter().map(patch).collect()
}

fn row_of(nanoseconds: u64) -> i64 {
    let row = (f64_of(nanoseconds.max(1)).log10() * ROWS_A_DECADE).floor();
    #[expect(clippy::cast_possible_truncation, reason = "below 160")]
    let row = row as i64;
    row
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::record::output::{RunState, State};
    use crate::record::picture::names;
    use crate::record::{Latency, Output, Recorder, unit};
    use crate::run::terminal::Terminal;

    const LATENCY_MS: [(&str, u64); 2] = [("uring", 1), ("plain-file", 3)];

    /// Two engines with three rounds each, at three sizes; what they take differs by engine.
    fn recorded(folder: &std::path::Path) -> Run {
        let output = Output::create(folder).expect("a new folder");
        let mut figures = Vec::new();
        for (engine, ms) in LATENCY_MS {
            for round in 0..3 {
                let (experiment, tier) = ("test".to_owned(), "device".to_owned());
                let (engine, file_system) = (engine.to_owned(), "ext4".to_owned());
                let place = Place { experiment, engine, tier, file_system, round };
                let terminal = Terminal::quiet();
                let mut recorder =
                    Recorder::new(output.clone(), terminal, place, BTreeMap::default());
                for size in [0, 10, u64::MAX] {
                    recorder.vary("size", size);
                    recorder.figure("rate", u64::from(round) + ms, unit::RECORDS_PER_SECOND);
                    let mut latency = Latency::new();
                    for _ in 0..100 {
                        latency.record(Duration::from_millis(ms));
                    }
                    recorder.latency("append", &latency);
                }
                recorder.sample("rate", 5.0, unit::RECORDS_PER_SECOND);
                recorder.event_at("roll", Duration::from_secs(1), "");
                let (of_cell, outcome) = recorder.finish();
                outcome.expect("nothing is wrong");
                figures.extend(of_cell);
            }
        }
        output.write_figures(&figures).expect("it can be written to");
        let state = RunState {
            state: State::Complete,
            command: String::new(),
            started: String::new(),
            ended: None,
            planned: 0,
            cells: Vec::new(),
            skipped: Vec::new(),
        };
        output.write_state(&state).expect("it can be written to");
        output.write("machine.json", MACHINE).expect("it can be written to");
        Run::load(folder).expect("it was just written")
    }

    const MACHINE: &str = r#"{"host": "h", "kernel": "k", "processor": "p", "cores": 2,
        "cores_usable": 2, "memory_bytes": 1, "file_systems": [], "io_uring": "yes",
        "version": "0", "revision": "r", "rustc": "r", "build": "debug", "java": "none",
        "date": "", "command": "", "scale": "quick", "rounds": 3, "seed": 1,
        "load_before": "0"}"#;

    fn panels(picture: &Picture) -> Vec<Panel> {
        let folder = tempfile::tempdir().expect("a folder");
        let runs = [recorded(&folder.path().join("run"))];
        let mut charts = charts(&runs, "test", picture);
        assert_eq!(charts.len(), 1, "one tier, one file system");
        let (setting, chart) = charts.remove(0);
        assert_eq!((setting.tier.as_str(), setting.file_system.as_str()), ("device", "ext4"));
        chart.panels
    }

    fn curves(panel: &Panel) -> Vec<&str> {
        panel.curves.iter().map(|it| it.label.as_str()).collect()
    }

    #[test]
    fn percentiles_join_the_rounds_and_overlay_the_engines() {
        let kind = Kind::Percentiles { latencies: names(&["append"]) };
        let panels = panels(&Picture::new("p", "", "", kind).only("size", 10));
        assert_eq!(curves(&panels[0]), ["uring", "plain-file"]);
        for (curve, (_, ms)) in panels[0].curves.iter().zip(LATENCY_MS) {
            let (first, last) = (curve.points[0], *curve.points.last().expect("points"));
            assert!((last.x - 300.0).abs() < 1e-9, "100 values of three rounds each");
            assert!((first.x - 1.0).abs() < 1e-9);
            assert!((last.y / 1e6 - f64_of(ms)).abs() < 0.01, "{}", last.y);
        }
    }

    #[test]
    fn percentiles_of_a_sweep_name_its_points() {
        let kind = Kind::Percentiles { latencies: names(&["append"]) };
        let panels = panels(&Picture::new("p", "", "", kind));
        let expected =
            ["uring, size=0", "uring, size=10", "uring, size=no limit", "plain-file, size=0"];
        assert_eq!(curves(&panels[0])[..4], expected);
    }

    #[test]
    fn scaling_has_median_and_range_and_places_for_zero_and_no_limit() {
        let kind = Kind::Scaling { figures: names(&["rate"]), against: "size".to_owned() };
        let panels = panels(&Picture::new("p", "", "", kind));
        assert_eq!(curves(&panels[0]), ["uring", "plain-file"]);
        let points = &panels[0].curves[1].points;
        let xs: Vec<f64> = points.iter().map(|it| it.x).collect();
        assert_eq!(xs, [1.0, 10.0, 100.0]);
        assert_eq!((points[0].low, points[0].y, points[0].high), (3.0, 4.0, 5.0));
        let marks: Vec<&str> = panels[0].x.marks.iter().map(|it| it.1.as_str()).collect();
        assert_eq!(marks, ["0", "no limit"]);
    }

    #[test]
    fn bars_stand_in_groups() {
        let by = Some("size".to_owned());
        let kind = Kind::Bars { figures: names(&["rate"]), by };
        let panels = panels(&Picture::new("p", "", "", kind));
        assert_eq!(panels[0].groups(), ["0", "10", "no limit"]);
        let bar = &panels[0].bars[0];
        assert_eq!((bar.label.as_str(), bar.low, bar.value, bar.high), ("uring", 1.0, 2.0, 3.0));
    }

    #[test]
    fn time_goes_by_in_a_panel_for_each_engine() {
        let (series, events) = (names(&["rate"]), names(&["roll"]));
        let timeline = Kind::Timeline { series, events };
        let over_time = panels(&Picture::new("p", "", "", timeline));
        let titles: Vec<&str> = over_time.iter().map(|it| it.title.as_str()).collect();
        assert_eq!(titles, ["uring", "plain-file"]);
        assert_eq!(over_time[0].curves[0].points.len(), 1, "of the first round only");
        assert_eq!(over_time[0].events, [(1.0, "roll".to_owned())]);
        let heat = Kind::HeatMap { latency: "append".to_owned() };
        let heat = panels(&Picture::new("p", "", "", heat).only("size", 10));
        assert_eq!(heat.len(), 2);
        let patch = heat[1].patches[0];
        assert!(patch.y.0 <= 3.1e6 && 2.9e6 <= patch.y.1, "{patch:?}");
        assert!((patch.heat - 1.0).abs() < 1e-9, "the only one is the hottest");
    }

    #[test]
    fn nothing_recorded_draws_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let runs = [recorded(&folder.path().join("run"))];
        let kind = Kind::Bars { figures: names(&["none"]), by: None };
        assert!(charts(&runs, "test", &Picture::new("p", "", "", kind)).is_empty());
    }
}
