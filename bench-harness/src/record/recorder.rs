//! What an experiment hands its findings to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::figure::{self, Figure, Unit, unit};
use super::latency::{self, Latency};
use super::line::{Line, Place};
use super::output::{Output, RECORD_FILE, SERIES_FILE};
use super::picture::Picture;
use crate::experiments::Failure;
use crate::experiments::measure::f64_of;
use crate::run::terminal::Terminal;

/// Lines are held back a little: a measurement isn't to wait for each.
const HELD_BYTES_MAX: usize = 64 << 10;
/// And no longer than this, as long as there are new ones.
const HELD_MAX: Duration = Duration::from_secs(5);
/// Quantiles of a latency that become figures, as they are named.
const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("max", 1.0)];
/// So many values must lie above a quantile before it is judged and not only told.
const ABOVE_MIN: f64 = 10.0;

/// A table as the terminal and the report show it.
pub struct Table {
    /// Above it.
    pub title: String,
    /// Heads.
    pub columns: Vec<String>,
    /// As many cells as there are heads in each.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Without rows.
    pub fn new(title: &str, columns: &[&str]) -> Table {
        let columns = columns.iter().map(|it| (*it).to_owned()).collect();
        Table { title: title.to_owned(), columns, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "{}: a cell for each head", self.title);
        self.rows.push(cells);
    }
}

/// Takes everything that comes out of one cell. Nothing here fails: what could not be written fails
/// the cell at its end.
pub struct Recorder {
    output: Output,
    terminal: Terminal,
    place: Place,
    parameters: BTreeMap<String, Value>,
    started: Instant,
    record: String,
    series: String,
    figures: Vec<Figure>,
    mismatches: Vec<String>,
    histograms: usize,
    flushed: Instant,
    broken: Option<Failure>,
}

impl Recorder {
    /// For a cell whose parameters have these values.
    pub fn new(
        output: Output,
        terminal: Terminal,
        place: Place,
        parameters: BTreeMap<String, Value>,
    ) -> Recorder {
        let folder = output.folder().join(&place.experiment);
        let made = std::fs::create_dir_all(&folder);
        let broken = made.err().map(|source| Failure::Path {
            doing: "make the folder",
            path: folder,
            source,
        });
        Recorder {
            output,
            terminal,
            place,
            parameters,
            started: Instant::now(),
            record: String::new(),
            series: String::new(),
            figures: Vec::new(),
            mismatches: Vec::new(),
            histograms: 0,
            flushed: Instant::now(),
            broken,
        }
    }

    /// From now on the parameter has this value: a point of a sweep.
    pub fn vary(&mut self, parameter: &str, value: impl Into<Value>) {
        self.parameters.insert(parameter.to_owned(), value.into());
    }

    /// From now on it has no such parameter: one that [`Recorder::vary`] brought in.
    pub fn forget(&mut self, parameter: &str) {
        self.parameters.remove(parameter);
    }

    /// From now on what is recorded is of this engine: for experiments that compare variants
    /// themselves.
    pub fn as_engine(&mut self, name: &str) {
        name.clone_into(&mut self.place.engine);
    }

    /// Time since the cell began: what series and events count from.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// A figure: a number or a list of numbers.
    ///
    /// # Panics
    /// For any other value.
    pub fn figure(&mut self, name: &str, value: impl Into<Value>, unit: Unit) {
        let value = value.into();
        assert!(figure::is_measure(&value), "{name}: a number or a list of them, not {value}");
        self.figures.push(Figure {
            place: self.place.clone(),
            parameters: self.parameters.clone(),
            figure: name.to_owned(),
            value,
            unit: unit.name.to_owned(),
            better: unit.better,
        });
    }

    /// A figure that must have the expected value; `source` says who expects it. A difference fails
    /// the cell at its end.
    pub fn expect(
        &mut self,
        name: &str,
        (measured, expected): (impl Into<Value>, impl Into<Value>),
        source: &str,
    ) {
        let (measured, expected) = (measured.into(), expected.into());
        if measured != expected {
            self.mismatches.push(format!("{name} is {measured}, not {expected} ({source})"));
        }
        self.line(Line::Check {
            place: self.place.clone(),
            parameters: self.parameters.clone(),
            figure: name.to_owned(),
            expected,
            measured,
            source: source.to_owned(),
        });
    }

    /// Latencies: their histograms go to files, their quantiles become figures `NAME_p50` and so
    /// on.
    pub fn latency(&mut self, name: &str, latency: &Latency) {
        let total = latency.total();
        let file = self.file_name(name);
        let path = |extension: &str| format!("{}/{file}.{extension}", self.place.experiment);
        let written = self
            .output
            .write(&path("hlog"), &latency.log(&name.replace([' ', ','], "-")))
            .and_then(|()| self.output.write(&path("hgrm"), &latency::hgrm(&total)));
        self.keep(written);
        self.line(Line::Latency {
            place: self.place.clone(),
            parameters: self.parameters.clone(),
            latency: name.to_owned(),
            count: total.len(),
            file,
        });
        self.figure(&format!("{name}_count"), total.len(), Unit { ..unit::COUNT }.told());
        if total.is_empty() {
            return;
        }
        for (quantile_name, quantile) in QUANTILES {
            let above = f64_of(total.len()) * (1.0 - quantile);
            let unit = if ABOVE_MIN <= above { unit::NS } else { unit::NS.told() };
            let value = total.value_at_quantile(quantile);
            self.figure(&format!("{name}_{quantile_name}"), value, unit);
        }
    }

    fn file_name(&mut self, name: &str) -> String {
        self.histograms += 1;
        let number = self.histograms;
        let Place { engine, tier, file_system, round, .. } = &self.place;
        let parts = format!("{name}.{engine}.{tier}.{file_system}.r{round}.{number}");
        let keeps = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
        parts.chars().map(|it| if keeps(it) { it } else { '-' }).collect()
    }

    /// A value of a series, now.
    pub fn sample(&mut self, series: &str, value: f64, unit: Unit) {
        self.sample_at(series, self.started.elapsed(), (value, unit));
    }

    /// A value of a series at a time since the cell began.
    pub fn sample_at(&mut self, series: &str, at: Duration, (value, unit): (f64, Unit)) {
        self.series_line(Line::Sample {
            place: self.place.clone(),
            parameters: self.parameters.clone(),
            series: series.to_owned(),
            unit: unit.name.to_owned(),
            seconds: at.as_secs_f64(),
            value,
        });
    }

    /// Something happened at a time since the cell began: a roll, a retention pass.
    pub fn event_at(&mut self, event: &str, at: Duration, label: &str) {
        self.series_line(Line::Event {
            place: self.place.clone(),
            parameters: self.parameters.clone(),
            event: event.to_owned(),
            seconds: at.as_secs_f64(),
            label: label.to_owned(),
        });
    }

    /// What a counter stands at now.
    pub fn counter(&mut self, counter: &str, value: u64) {
        self.series_line(Line::Counter {
            place: self.place.clone(),
            parameters: self.parameters.clone(),
            counter: counter.to_owned(),
            seconds: self.started.elapsed().as_secs_f64(),
            value,
        });
    }

    /// A table; the terminal shows that of the first round.
    pub fn table(&mut self, table: Table) {
        if self.place.round == 0 {
            let Place { engine, tier, file_system, .. } = &self.place;
            let of = format!("{} ({engine}, {tier}, {file_system})", table.title);
            self.terminal.print_table(&of, &aligned(&table));
        }
        self.line(Line::Table {
            place: self.place.clone(),
            title: table.title,
            columns: table.columns,
            rows: table.rows,
        });
    }

    /// What differs from what one might expect, and why; the report shows each text once.
    pub fn note(&mut self, text: &str) {
        self.line(Line::Note { place: self.place.clone(), text: text.to_owned() });
    }

    /// What the report is to draw; to be declared in every cell, it counts once.
    pub fn picture(&mut self, picture: Picture) {
        self.line(Line::Picture { experiment: self.place.experiment.clone(), picture });
    }

    fn line(&mut self, line: Line) {
        push(&mut self.record, &line);
        self.flush_if_due();
    }

    fn series_line(&mut self, line: Line) {
        push(&mut self.series, &line);
        self.flush_if_due();
    }

    fn flush_if_due(&mut self) {
        let held = self.record.len() + self.series.len();
        if HELD_BYTES_MAX <= held || HELD_MAX <= self.flushed.elapsed() {
            self.flush();
        }
    }

    /// Writes what is held back. Long cells call it now and then, so that a kill costs little.
    pub fn flush(&mut self) {
        self.flushed = Instant::now();
        for (name, is_series) in [(RECORD_FILE, false), (SERIES_FILE, true)] {
            let held = if is_series { &mut self.series } else { &mut self.record };
            let text = std::mem::take(held);
            if !text.is_empty() {
                let written =
                    self.output.append(&format!("{}/{name}", self.place.experiment), &text);
                self.keep(written);
            }
        }
    }

    fn keep(&mut self, outcome: Result<(), Failure>) {
        if let Err(failure) = outcome {
            self.broken.get_or_insert(failure);
        }
    }

    /// The cell is over: its figures, and whether all was written and as expected.
    pub fn finish(mut self) -> (Vec<Figure>, Result<(), Failure>) {
        self.flush();
        let outcome = match (self.broken, self.mismatches.is_empty()) {
            (Some(failure), _) => Err(failure),
            (None, true) => Ok(()),
            (None, false) => Err(Failure::Wrong(self.mismatches.join("; "))),
        };
        (self.figures, outcome)
    }
}

fn push(held: &mut String, line: &Line) {
    *held += &serde_json::to_string(line).expect("lines hold strings and numbers only");
    held.push('\n');
}

/// The table as text, its columns aligned; numbers to the right.
fn aligned(table: &Table) -> String {
    let width = |at: usize| {
        let cells = table.rows.iter().chain([&table.columns]).map(|row| row[at].chars().count());
        cells.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let is_number = cell.starts_with(|it: char| it.is_ascii_digit());
            if is_number { format!("{cell:>width$}") } else { format!("{cell:width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let lines: Vec<_> = [&table.columns].into_iter().chain(&table.rows).map(line).collect();
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            experiment: "test".to_owned(),
            engine: "uring".to_owned(),
            tier: "device".to_owned(),
            file_system: "ext4 (root)".to_owned(),
            round: 1,
        }
    }

    fn recorder(folder: &std::path::Path) -> Recorder {
        let output = Output::create(&folder.join("out")).expect("a new folder");
        let parameters = BTreeMap::from([("size".to_owned(), 10.into())]);
        Recorder::new(output, Terminal::quiet(), place(), parameters)
    }

    #[test]
    fn everything_is_in_files_when_the_cell_is_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut recorder = recorder(folder.path());
        recorder.figure("sizes", vec![1, 2], unit::BYTES);
        recorder.vary("size", 20);
        let mut latency = Latency::new();
        latency.record(Duration::from_millis(1));
        recorder.latency("append", &latency);
        recorder.sample("rate", 5.0, unit::RECORDS_PER_SECOND);
        recorder.event_at("roll", Duration::from_secs(1), "segment 2");
        recorder.counter("syncs", 7);
        recorder.note("it differs");
        let (figures, outcome) = recorder.finish();
        outcome.expect("nothing is wrong");
        assert_eq!(figures[0].parameters["size"], 10);
        let p50 = figures.iter().find(|it| it.figure == "append_p50").expect("a quantile");
        assert_eq!(p50.parameters["size"], 20);
        assert_eq!(p50.better, figure::Better::None, "one value is too few to judge");
        let names: Vec<_> = std::fs::read_dir(folder.path().join("out/test"))
            .expect("its folder")
            .map(|it| it.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        let count = |end: &str| names.iter().filter(|it| it.ends_with(end)).count();
        assert_eq!((count(".hlog"), count(".hgrm"), count(".jsonl")), (1, 1, 2), "{names:?}");
        let series = folder.path().join("out/test/series.jsonl");
        let series = std::fs::read_to_string(series).expect("series");
        let lines: Vec<Line> =
            series.lines().map(|it| serde_json::from_str(it).expect("a line")).collect();
        assert_eq!(lines.len(), 3);
        assert!(matches!(&lines[1], Line::Event { label, .. } if label == "segment 2"));
        assert_eq!(lines[2].place(), Some(&place()));
    }

    #[test]
    fn a_figure_that_is_not_as_expected_fails_the_cell() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut recorder = recorder(folder.path());
        recorder.expect("sizes", (vec![1, 2], vec![1, 2]), "the document");
        recorder.expect("bases", (vec![0, 9], vec![0, 8]), "the document");
        let (_, outcome) = recorder.finish();
        let text = outcome.expect_err("a mismatch").to_string();
        assert_eq!(text, "wrong: bases is [0,9], not [0,8] (the document)");
    }

    #[test]
    fn tables_are_aligned() {
        let mut table = Table::new("t", &["file", "bytes"]);
        table.row(vec!["a.log".to_owned(), "7".to_owned()]);
        assert_eq!(aligned(&table), "file   bytes\na.log      7\n");
    }
}
