//! Charts as SVG. Everything is laid out here; plotters writes the elements.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::chart::{Bar, Chart, Curve, Panel, Scale};
use crate::experiments::Failure;

const WIDTH: i32 = 900;
const TITLE_HEIGHT: i32 = 34;
/// Of the plotting area of a chart's only panel, and of one among several.
const HEIGHT_ALONE: i32 = 380;
const HEIGHT_AMONG: i32 = 220;
/// Around the plotting area.
const LEFT: i32 = 86;
const RIGHT: i32 = 24;
const ABOVE: i32 = 24;
const BELOW: i32 = 50;
const LEGEND_LINE: i32 = 20;
const TEXT: i32 = 13;
/// Roughly, of a letter of ordinary text.
const LETTER_WIDTH: i32 = 7;
const FONT: &str = "sans-serif";

const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(225, 225, 225);
const EVENT: RGBColor = RGBColor(150, 60, 60);

/// A colour for each engine that can be told apart by everybody, and more for other names.
const COLOURS: [(&str, RGBColor); 7] = [
    ("uring", RGBColor(0, 114, 178)),
    ("plain-file", RGBColor(213, 94, 0)),
    ("kafka", RGBColor(0, 158, 115)),
    ("", RGBColor(204, 121, 167)),
    ("", RGBColor(230, 159, 0)),
    ("", RGBColor(86, 180, 233)),
    ("", RGBColor(0, 0, 0)),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The chart as the text of an SVG file.
///
/// # Errors
/// When plotters refuses an element.
pub fn svg(chart: &Chart) -> Result<String, Failure> {
    let mut text = String::new();
    draw(chart, &mut text).map_err(|error| Failure::Wrong(format!("drawing: {error}")))?;
    Ok(text)
}

fn draw(chart: &Chart, text: &mut String) -> Drawn {
    let plot_height = if chart.panels.len() == 1 { HEIGHT_ALONE } else { HEIGHT_AMONG };
    let heights = chart.panels.iter().map(|panel| height(panel, plot_height));
    let whole = TITLE_HEIGHT + heights.sum::<i32>();
    let size = (WIDTH.unsigned_abs(), whole.unsigned_abs());
    let area = SVGBackend::with_string(text, size).into_drawing_area();
    area.fill(&WHITE)?;
    write(&area, &chart.title, (WIDTH / 2, 10), (HPos::Center, VPos::Top, 17))?;
    let mut top = TITLE_HEIGHT;
    for panel in &chart.panels {
        let frame = Frame::new(panel, top, plot_height);
        frame.draw(&area)?;
        top += height(panel, plot_height);
    }
    area.present()?;
    Ok(())
}

fn height(panel: &Panel, plot: i32) -> i32 {
    let lines = i32::try_from(legend_lines(panel).len()).expect("legends are short");
    ABOVE + plot + BELOW + LEGEND_LINE * lines
}

/// Legend entries, as many in a line as fit.
fn legend_lines(panel: &Panel) -> Vec<Vec<(&str, &str)>> {
    let mut lines: Vec<Vec<(&str, &str)>> = Vec::new();
    let mut used = WIDTH;
    for entry in panel.legend() {
        let width = entry_width(entry.0);
        if WIDTH - LEFT - RIGHT < used + width || lines.is_empty() {
            lines.push(Vec::new());
            used = 0;
        }
        used += width;
        lines.last_mut().expect("there is one now").push(entry);
    }
    lines
}

fn entry_width(label: &str) -> i32 {
    44 + LETTER_WIDTH * i32::try_from(label.chars().count()).expect("labels are short")
}

/// A panel with its place in the picture.
struct Frame<'a> {
    panel: &'a Panel,
    top: i32,
    bottom: i32,
    x: (f64, f64),
    y: (f64, f64),
}

impl Frame<'_> {
    fn new(panel: &Panel, top: i32, plot_height: i32) -> Frame<'_> {
        let (x, y) = (panel.x_range(), panel.y_range());
        let top = top + ABOVE;
        Frame { panel, top, bottom: top + plot_height, x, y }
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        write(area, &self.panel.title, (LEFT, self.top - 5), (HPos::Left, VPos::Bottom, TEXT))?;
        self.axes(area)?;
        self.patches(area)?;
        self.bars(area)?;
        for curve in &self.panel.curves {
            self.curve(area, curve, self.colour(&curve.engine, &curve.label))?;
        }
        self.events(area)?;
        let corners = [(LEFT, self.top), (WIDTH - RIGHT, self.bottom)];
        area.draw(&Rectangle::new(corners, ShapeStyle::from(INK).stroke_width(1)))?;
        self.legend(area)
    }

    fn x_at(&self, value: f64) -> i32 {
        LEFT + part(self.panel.x.share(value, self.x), WIDTH - LEFT - RIGHT)
    }

    fn y_at(&self, value: f64) -> i32 {
        self.bottom - part(self.panel.y.share(value, self.y), self.bottom - self.top)
    }

    fn axes(&self, area: &Area<'_>) -> Drawn {
        for (value, text) in self.panel.y.ticks(self.y) {
            let at = self.y_at(value);
            area.draw(&PathElement::new([(LEFT, at), (WIDTH - RIGHT, at)], GRID))?;
            write(area, &text, (LEFT - 6, at), (HPos::Right, VPos::Center, TEXT))?;
        }
        if self.panel.bars.is_empty() {
            for (value, text) in self.panel.x.ticks(self.x) {
                let at = self.x_at(value);
                area.draw(&PathElement::new([(at, self.top), (at, self.bottom)], GRID))?;
                write(area, &text, (at, self.bottom + 6), (HPos::Center, VPos::Top, TEXT))?;
            }
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2;
        let below = (middle, self.bottom + 26);
        write(area, &self.panel.x.label, below, (HPos::Center, VPos::Top, TEXT))?;
        let style = (FONT, TEXT).into_font().transform(FontTransform::Rotate270).color(&INK);
        let style = style.pos(Pos::new(HPos::Center, VPos::Top));
        let beside = (8, (self.top + self.bottom) / 2);
        area.draw(&Text::new(self.panel.y.label.clone(), beside, style))?;
        Ok(())
    }

    fn patches(&self, area: &Area<'_>) -> Drawn {
        for patch in &self.panel.patches {
            let corners = [
                (self.x_at(patch.x.0), self.y_at(patch.y.1)),
                (self.x_at(patch.x.1), self.y_at(patch.y.0)),
            ];
            area.draw(&Rectangle::new(corners, heat(patch.heat).filled()))?;
        }
        Ok(())
    }

    fn bars(&self, area: &Area<'_>) -> Drawn {
        let groups = self.panel.groups();
        for (number, group) in groups.iter().enumerate() {
            let bars: Vec<&Bar> = self.panel.bars.iter().filter(|it| it.group == *group).collect();
            let count = f64_of(bars.len());
            let start = f64_of(number) + 0.1;
            for (place, bar) in bars.iter().enumerate() {
                let from = start + 0.8 * f64_of(place) / count;
                self.bar(area, bar, (from, from + 0.76 / count))?;
            }
            let middle = self.x_at(f64_of(number) + 0.5);
            write(area, group, (middle, self.bottom + 6), (HPos::Center, VPos::Top, TEXT))?;
        }
        Ok(())
    }

    fn bar(&self, area: &Area<'_>, bar: &Bar, (from, to): (f64, f64)) -> Drawn {
        let colour = self.colour(&bar.engine, &bar.label);
        let (left, right) = (self.x_at(from), self.x_at(to));
        let corners = [(left, self.y_at(bar.value)), (right, self.bottom)];
        area.draw(&Rectangle::new(corners, colour.filled()))?;
        let middle = i32::midpoint(left, right);
        self.whisker(area, middle, (bar.low, bar.high))?;
        let text = self.panel.y.scale.shown(bar.value);
        let above = (middle, self.y_at(bar.high) - 3);
        write(area, &text, above, (HPos::Center, VPos::Bottom, TEXT - 2))
    }

    /// The range over the rounds, where there is one.
    fn whisker(&self, area: &Area<'_>, x: i32, (low, high): (f64, f64)) -> Drawn {
        let (low, high) = (self.y_at(low), self.y_at(high));
        if low == high {
            return Ok(());
        }
        for path in
            [[(x, low), (x, high)], [(x - 4, low), (x + 4, low)], [(x - 4, high), (x + 4, high)]]
        {
            area.draw(&PathElement::new(path, INK))?;
        }
        Ok(())
    }

    fn curve(&self, area: &Area<'_>, curve: &Curve, colour: RGBColor) -> Drawn {
        let places: Vec<_> =
            curve.points.iter().map(|it| (self.x_at(it.x), self.y_at(it.y))).collect();
        let style = ShapeStyle::from(colour).stroke_width(2);
        area.draw(&PathElement::new(places.clone(), style))?;
        // A dot shows where there is a value; a percentile's curve has no such places.
        if places.len() <= 40 && self.panel.x.scale != Scale::Percentile {
            for (place, point) in places.iter().zip(&curve.points) {
                area.draw(&Circle::new(*place, 3, colour.filled()))?;
                self.whisker(area, place.0, (point.low, point.high))?;
            }
        }
        Ok(())
    }

    fn events(&self, area: &Area<'_>) -> Drawn {
        // Labels above each other become a smear: one for each stretch of the axis.
        let mut free_from = i32::MIN;
        for (value, text) in &self.panel.events {
            let at = self.x_at(*value);
            area.draw(&PathElement::new([(at, self.top), (at, self.bottom)], EVENT.mix(0.6)))?;
            if free_from <= at {
                let style = (FONT, TEXT - 2).into_font().color(&EVENT);
                area.draw(&Text::new(text.clone(), (at + 3, self.top + 3), style))?;
                let letters = i32::try_from(text.chars().count()).expect("labels are short");
                free_from = at + LETTER_WIDTH * letters;
            }
        }
        Ok(())
    }

    fn legend(&self, area: &Area<'_>) -> Drawn {
        let mut y = self.bottom + BELOW;
        for line in legend_lines(self.panel) {
            let mut x = LEFT;
            for (label, engine) in line {
                let colour = self.colour(engine, label);
                area.draw(&Rectangle::new([(x, y - 2), (x + 24, y + 3)], colour.filled()))?;
                write(area, label, (x + 30, y), (HPos::Left, VPos::Center, TEXT))?;
                x += entry_width(label);
            }
            y += LEGEND_LINE;
        }
        Ok(())
    }

    /// The engine's colour, lighter for each further label of that engine.
    fn colour(&self, engine: &str, label: &str) -> RGBColor {
        let legend = self.panel.legend();
        let mut engines: Vec<&str> = Vec::new();
        for (_, other) in &legend {
            if !engines.contains(other) {
                engines.push(other);
            }
        }
        let known = COLOURS.iter().position(|it| it.0 == engine);
        let place = engines.iter().position(|it| *it == engine).unwrap_or_default();
        let base = COLOURS[known.unwrap_or((3 + place) % COLOURS.len())].1;
        let same: Vec<_> = legend.iter().filter(|it| it.1 == engine).collect();
        let shade = same.iter().position(|it| it.0 == label).unwrap_or_default();
        lighter(base, f64_of(shade) / f64_of(same.len().max(1)) * 0.75)
    }
}

fn f64_of(count: usize) -> f64 {
    f64::from(u32::try_from(count).expect("pictures show few things"))
}

/// A share of a length in pixels.
fn part(share: f64, length: i32) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "a share of a picture's size")]
    let pixels = (share * f64::from(length)).round() as i32;
    pixels
}

fn lighter(RGBColor(red, green, blue): RGBColor, by: f64) -> RGBColor {
    let white = (255, 255, 255);
    blended((red, green, blue), white, by)
}

/// From a pale yellow to a dark blue.
fn heat(share: f64) -> RGBColor {
    const STOPS: [(u8, u8, u8); 4] = [(255, 247, 188), (254, 178, 76), (200, 50, 60), (60, 10, 90)];
    let at = share.clamp(0.0, 1.0) * 2.999;
    let stop = STOPS.len() - 2;
    let stop = (0..stop).find(|it| at < f64_of(it + 1)).unwrap_or(stop);
    blended(STOPS[stop], STOPS[stop + 1], at - f64_of(stop))
}

/// A share of the way from one colour to another.
fn blended(from: (u8, u8, u8), to: (u8, u8, u8), by: f64) -> RGBColor {
    let channel = |from: u8, to: u8| {
        let between = f64::from(from) + (f64::from(to) - f64::from(from)) * by.clamp(0.0, 1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it lies between two colour values"
        )]
        let rounded = between.round() as u8;
        rounded
    };
    RGBColor(channel(from.0, to.0), channel(from.1, to.1), channel(from.2, to.2))
}

fn write(
    area: &Area<'_>,
    text: &str,
    at: (i32, i32),
    (horizontal, vertical, size): (HPos, VPos, i32),
) -> Drawn {
    let style = (FONT, size).into_font().color(&INK).pos(Pos::new(horizontal, vertical));
    area.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::chart::{Axis, Patch, Point};

    /// One panel of each kind: what is told must be in the text.
    #[test]
    fn everything_that_is_to_be_seen_is_drawn() {
        let axes = || (Axis::log("size", Scale::Plain), Axis::log("latency", Scale::Time));
        let mut lines = Panel::new(axes().0, axes().1);
        let point = |x: f64| Point { x, low: 1e3, y: 2e3, high: 4e3 };
        let points = vec![point(1.0), point(1000.0)];
        for engine in ["uring", "plain-file & more"] {
            let (label, engine) = (engine.to_owned(), engine.to_owned());
            lines.curves.push(Curve { label, engine, points: points.clone() });
        }
        lines.events.push((10.0, "roll".to_owned()));
        let mut heat = Panel::new(Axis::linear("time", Scale::Seconds), axes().1);
        heat.title = "of uring".to_owned();
        heat.patches.push(Patch { x: (0.0, 1.0), y: (1e3, 1e4), heat: 0.5 });
        let mut bars = Panel::new(axes().0, Axis::linear("rate", Scale::Plain));
        let (group, label) = ("one".to_owned(), "kafka".to_owned());
        let engine = label.clone();
        bars.bars.push(Bar { group, label, engine, low: 1.0, value: 2.0, high: 3.0 });
        let title = "A title".to_owned();
        let text = svg(&Chart { title, panels: vec![lines, heat, bars] }).expect("a picture");
        let parts = ["<svg", "A title", "uring", "plain-file &amp; more", "roll", "of uring"];
        for part in parts.iter().chain(&["latency", "kafka", "one", "0072B2", "2 us", "</svg>"]) {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(1 < text.matches("<circle").count());
    }

    #[test]
    fn colours_stay_within_their_ends() {
        assert_eq!(heat(0.0), RGBColor(255, 247, 188));
        assert_eq!(heat(-1.0), heat(0.0));
        let RGBColor(red, ..) = heat(1.0);
        assert!(red.abs_diff(60) < 3);
        assert_eq!(lighter(RGBColor(0, 100, 200), 1.0), RGBColor(255, 255, 255));
    }
}
