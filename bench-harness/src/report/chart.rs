//! A picture as plain data: what is drawn where, before anything is drawn.

use crate::experiments::measure::{f64_of, u64_of};

/// What an axis counts, which decides how its marks are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Nanoseconds, written as time.
    Time,
    /// Seconds since the beginning.
    Seconds,
    /// 1/(1-q), written as a percentile.
    Percentile,
    /// Anything else.
    Plain,
}

impl Scale {
    /// For values of a unit.
    pub fn of_unit(unit: &str) -> Scale {
        if unit == "ns" { Scale::Time } else { Scale::Plain }
    }

    /// A value as people write it.
    pub fn shown(self, value: f64) -> String {
        match self {
            Scale::Time => time(value),
            Scale::Seconds => format!("{} s", number(value)),
            Scale::Percentile => percentile(value),
            Scale::Plain => number(value),
        }
    }
}

fn time(ns: f64) -> String {
    let (divisor, unit) = match ns.abs() {
        ..1e3 => (1.0, "ns"),
        1e3..1e6 => (1e3, "us"),
        1e6..1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {unit}", digits(ns / divisor))
}

fn number(value: f64) -> String {
    let (divisor, unit) = match value.abs() {
        ..1e4 => (1.0, ""),
        1e4..1e6 => (1e3, " k"),
        1e6..1e9 => (1e6, " M"),
        _ => (1e9, " G"),
    };
    format!("{}{unit}", digits(value / divisor))
}

/// Three significant digits, without zeros that say nothing.
pub fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        ..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn percentile(inverse: f64) -> String {
    match inverse {
        ..1.5 => "0 %".to_owned(),
        ..5.0 => "50 %".to_owned(),
        _ => format!("{} %", 100.0 - 100.0 / inverse),
    }
}

/// An axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// What it counts, in words.
    pub label: String,
    /// How its marks are written.
    pub scale: Scale,
    /// Logarithmic: everything on it is positive.
    pub is_log: bool,
    /// Marks that replace the computed ones: places and what stands there.
    pub marks: Vec<(f64, String)>,
}

/// A point with its range; a plain one has the same value thrice.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    pub x: f64,
    pub low: f64,
    pub y: f64,
    pub high: f64,
}

/// A line through points.
#[derive(Clone, PartialEq, Debug)]
pub struct Curve {
    /// In the legend.
    pub label: String,
    /// Decides the colour.
    pub engine: String,
    pub points: Vec<Point>,
}

/// A rectangle of a heat map; heat goes from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Patch {
    pub x: (f64, f64),
    pub y: (f64, f64),
    pub heat: f64,
}

/// A bar with its range.
#[derive(Clone, PartialEq, Debug)]
pub struct Bar {
    /// Below the group that it stands in.
    pub group: String,
    /// In the legend.
    pub label: String,
    /// Decides the colour.
    pub engine: String,
    pub low: f64,
    pub value: f64,
    pub high: f64,
}

/// One coordinate system.
#[derive(Clone, PartialEq, Debug)]
pub struct Panel {
    /// Above it; empty when the chart's title says all.
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub curves: Vec<Curve>,
    pub patches: Vec<Patch>,
    pub bars: Vec<Bar>,
    /// Places on the x axis that are marked, and with what.
    pub events: Vec<(f64, String)>,
}

/// Panels below each other.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    pub title: String,
    pub panels: Vec<Panel>,
}

impl Panel {
    /// Without anything in it.
    pub fn new(x: Axis, y: Axis) -> Panel {
        let (curves, patches, bars, events) = (vec![], vec![], vec![], vec![]);
        Panel { title: String::new(), x, y, curves, patches, bars, events }
    }

    /// Whether there is nothing to be seen.
    pub fn is_empty(&self) -> bool {
        self.curves.iter().all(|it| it.points.is_empty())
            && self.patches.is_empty()
            && self.bars.is_empty()
    }

    /// Groups of the bars, in their order.
    pub fn groups(&self) -> Vec<&str> {
        unique(self.bars.iter().map(|it| it.group.as_str()))
    }

    /// Labels of bars and curves with the engine that decides their colour, in their order.
    pub fn legend(&self) -> Vec<(&str, &str)> {
        let bars = self.bars.iter().map(|it| (it.label.as_str(), it.engine.as_str()));
        let curves = self.curves.iter().map(|it| (it.label.as_str(), it.engine.as_str()));
        unique(bars.chain(curves))
    }

    /// Least and greatest x; the bars of the first group stand between 0 and 1, and so on.
    pub fn x_range(&self) -> (f64, f64) {
        if !self.bars.is_empty() {
            return (0.0, f64_of(u64_of(self.groups().len())));
        }
        let points = self.curves.iter().flat_map(|it| &it.points).map(|it| it.x);
        let patches = self.patches.iter().flat_map(|it| [it.x.0, it.x.1]);
        let marks = self.x.marks.iter().map(|it| it.0);
        range(points.chain(patches).chain(marks), &self.x)
    }

    /// Least and greatest y.
    pub fn y_range(&self) -> (f64, f64) {
        let points = self.curves.iter().flat_map(|it| &it.points);
        let points = points.flat_map(|it| [it.low, it.y, it.high]);
        let patches = self.patches.iter().flat_map(|it| [it.y.0, it.y.1]);
        let bars = self.bars.iter().flat_map(|it| [it.low, it.value, it.high]);
        range(points.chain(patches).chain(bars), &self.y)
    }
}

fn unique<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for item in items {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

/// From 0 on a linear axis, but for time, which begins when the first thing happens.
fn range(values: impl Iterator<Item = f64>, axis: &Axis) -> (f64, f64) {
    let values: Vec<f64> = values.filter(|it| it.is_finite()).collect();
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if axis.scale == Scale::Seconds {
        let first = values.iter().copied().fold(f64::INFINITY, f64::min);
        let is_fine = first.is_finite() && first < most;
        return if is_fine { (first, most) } else { (0.0, 1.0) };
    }
    if !axis.is_log {
        return (0.0, if 0.0 < most { most * 1.05 } else { 1.0 });
    }
    let least = values.iter().copied().filter(|it| 0.0 < *it).fold(f64::INFINITY, f64::min);
    if !least.is_finite() || least == most {
        let at = if least.is_finite() { least } else { 1.0 };
        return (at / 2.0, at * 2.0);
    }
    (least / 1.1, most * 1.1)
}

impl Axis {
    /// What figures of a unit stand on.
    pub fn of_unit(unit: &str) -> Axis {
        match Scale::of_unit(unit) {
            Scale::Time => Axis::linear("time taken", Scale::Time),
            scale => Axis::linear(unit, scale),
        }
    }

    /// The same one, logarithmic.
    #[must_use]
    pub fn logarithmic(self) -> Axis {
        Axis { is_log: true, ..self }
    }

    /// A linear one.
    pub fn linear(label: &str, scale: Scale) -> Axis {
        Axis { label: label.to_owned(), scale, is_log: false, marks: Vec::new() }
    }

    /// A logarithmic one.
    pub fn log(label: &str, scale: Scale) -> Axis {
        Axis { is_log: true, ..Axis::linear(label, scale) }
    }

    /// Where a value lies between the ends of a range, from 0 to 1.
    pub fn share(&self, value: f64, (from, to): (f64, f64)) -> f64 {
        let share = match self.is_log {
            true => (value.max(from) / from).ln() / (to / from).ln(),
            false => (value - from) / (to - from),
        };
        share.clamp(0.0, 1.0)
    }

    /// Marks within a range, and what stands at each.
    pub fn ticks(&self, (from, to): (f64, f64)) -> Vec<(f64, String)> {
        let computed = match self.is_log {
            // Half of all is the one that everybody looks for.
            true if self.scale == Scale::Percentile => {
                let ticks = log_ticks(from, to).into_iter().filter(|it| 0.1 < (it - 2.0).abs());
                ticks.chain([2.0]).filter(|it| *it <= to).collect()
            }
            true => log_ticks(from, to),
            false => linear_ticks(from, to),
        };
        let far = |at: &f64| {
            self.marks.iter().all(|(mark, _)| 0.05 < self.distance(*at, *mark, (from, to)))
        };
        let computed = computed.into_iter().filter(far).map(|at| (at, self.scale.shown(at)));
        computed.chain(self.marks.iter().cloned()).collect()
    }

    fn distance(&self, one: f64, other: f64, range: (f64, f64)) -> f64 {
        (self.share(one, range) - self.share(other, range)).abs()
    }
}

/// About five round numbers.
fn linear_ticks(from: f64, to: f64) -> Vec<f64> {
    let rough = (to - from) / 5.0;
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|it| it * decade).into_iter().find(|it| rough <= *it);
    let step = step.unwrap_or(decade);
    let ticks = (0u32..100).map(|number| (from / step).ceil() * step + step * f64::from(number));
    ticks.take_while(|it| *it <= to).collect()
}

/// Powers of ten; with 2 and 5 between them when there are few, every second or third when many.
fn log_ticks(from: f64, to: f64) -> Vec<f64> {
    let decades = (to / from).log10();
    let between: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let every = if decades <= 10.0 { 1 } else { 3 };
    let (first, last) = (from.log10().floor(), to.log10().ceil());
    let exponents = (0u32..64).map(|number| first + f64::from(number * every));
    let ticks = exponents
        .take_while(|it| *it <= last)
        .flat_map(|exponent| between.iter().map(move |it| it * 10f64.powf(exponent)));
    ticks.filter(|it| from <= *it && *it <= to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_people_do() {
        let cases = [
            (Scale::Time, 950.0, "950 ns"),
            (Scale::Time, 1e3, "1 us"),
            (Scale::Time, 5.25e6, "5.25 ms"),
            (Scale::Time, 2e9, "2 s"),
            (Scale::Plain, 1048.0, "1048"),
            (Scale::Plain, 1_044_700.0, "1.04 M"),
            (Scale::Percentile, 1.0, "0 %"),
            (Scale::Percentile, 10.0, "90 %"),
            (Scale::Percentile, 1000.0, "99.9 %"),
            (Scale::Seconds, 2.5, "2.5 s"),
        ];
        for (scale, value, expected) in cases {
            assert_eq!(scale.shown(value), expected);
        }
    }

    #[test]
    fn ticks_are_round_and_within_the_range() {
        let linear = Axis::linear("", Scale::Plain);
        let places =
            |ticks: Vec<(f64, String)>| ticks.into_iter().map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(places(linear.ticks((0.0, 10.0))), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let log = Axis::log("", Scale::Plain);
        assert_eq!(places(log.ticks((0.9, 1100.0))), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(places(log.ticks((1.0, 10.0))), [1.0, 2.0, 5.0, 10.0]);
        let marked = Axis { marks: vec![(1000.0, "no limit".to_owned())], ..log };
        let ticks = marked.ticks((0.9, 1100.0));
        assert_eq!(ticks.last(), Some(&(1000.0, "no limit".to_owned())));
        assert_eq!(ticks.len(), 4);
        // Written twice, a mark looks bold.
        let percentiles = Axis::log("", Scale::Percentile);
        assert_eq!(places(percentiles.ticks((0.9, 60.0))), [1.0, 5.0, 10.0, 20.0, 50.0, 2.0]);
        assert_eq!(places(percentiles.ticks((0.9, 1100.0))), [1.0, 10.0, 100.0, 1000.0, 2.0]);
    }

    #[test]
    fn shares_follow_the_axis() {
        let (linear, log) = (Axis::linear("", Scale::Plain), Axis::log("", Scale::Plain));
        assert!((linear.share(5.0, (0.0, 10.0)) - 0.5).abs() < 1e-9);
        assert!((log.share(10.0, (1.0, 100.0)) - 0.5).abs() < 1e-9);
        assert!(log.share(0.0, (1.0, 100.0)).abs() < 1e-9);
    }

    #[test]
    fn a_panel_spans_what_it_shows() {
        let mut panel = Panel::new(Axis::log("", Scale::Plain), Axis::linear("", Scale::Plain));
        assert!(panel.is_empty());
        let point = Point { x: 10.0, low: 1.0, y: 2.0, high: 4.0 };
        let other = Point { x: 1000.0, ..point };
        let (label, engine) = ("uring".to_owned(), "uring".to_owned());
        panel.curves.push(Curve { label, engine, points: vec![point, other] });
        assert!(!panel.is_empty());
        let (from, to) = panel.x_range();
        assert!(from < 10.0 && 1000.0 < to);
        assert_eq!(panel.y_range(), (0.0, 4.2));
        assert_eq!(panel.legend(), [("uring", "uring")]);
    }
}
