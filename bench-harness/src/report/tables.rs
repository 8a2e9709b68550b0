//! Tables of the report.

use std::collections::BTreeMap;

use serde_json::Value;

use super::chart::Scale;
use super::load::Run;
use super::stats::spread;
use crate::parameters::shown;
use crate::record::{Figure, Line, Place};

/// Longer lists are cut in the middle.
const LIST_MAX: usize = 8;

/// Figures that must have certain values, and whether they have.
pub fn checks(runs: &[Run], name: &str) -> String {
    let mut rows: Vec<([String; 4], Vec<String>)> = Vec::new();
    for (run, line) in lines(runs, name) {
        let Line::Check { place, figure, expected, measured, source, .. } = line else { continue };
        let mark = if expected == measured { "yes" } else { "**no**" };
        let row = [figure.clone(), brief(expected), brief(measured), format!("{mark} | {source}")];
        let cell = cell(runs, run, place);
        match rows.iter_mut().find(|it| it.0 == row) {
            Some((_, cells)) if !cells.contains(&cell) => cells.push(cell),
            Some(_) => {}
            None => rows.push((row, vec![cell])),
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut text =
        "| figure | expected | measured | equal | by | in |\n|---|---|---|---|---|---|\n"
            .to_owned();
    let all = all_cells(runs, name);
    for (row, cells) in rows {
        text += &format!("| {} | {} |\n", row.join(" | "), where_alike(&cells, all));
    }
    text + "\n"
}

/// Tables as the experiments show them; what several cells show alike stands there once.
pub fn recorded(runs: &[Run], name: &str) -> String {
    type Shown<'a> = (&'a String, &'a Vec<String>, &'a Vec<Vec<String>>);
    let mut tables: Vec<(Shown<'_>, Vec<String>)> = Vec::new();
    for (run, line) in lines(runs, name) {
        let Line::Table { place, title, columns, rows } = line else { continue };
        if place.round != 0 {
            continue;
        }
        let (table, cell) = ((title, columns, rows), cell(runs, run, place));
        match tables.iter_mut().find(|it| it.0 == table) {
            // A cell may show the same one twice: by the library and through the wire.
            Some((_, cells)) if !cells.contains(&cell) => cells.push(cell),
            Some(_) => {}
            None => tables.push((table, vec![cell])),
        }
    }
    let all = all_cells(runs, name);
    let mut text = String::new();
    for ((title, columns, rows), cells) in tables {
        text += &format!("**{title}** ({})\n\n", where_alike(&cells, all));
        text += &format!("| {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
        for row in rows {
            text += &format!("| {} |\n", row.join(" | "));
        }
        text.push('\n');
    }
    text
}

fn lines<'a>(runs: &'a [Run], name: &'a str) -> impl Iterator<Item = (&'a Run, &'a Line)> {
    runs.iter().flat_map(move |run| run.lines(name).iter().map(move |line| (run, line)))
}

fn cell(runs: &[Run], run: &Run, place: &Place) -> String {
    let Place { engine, tier, file_system, .. } = place;
    let parts = [engine, tier, file_system].into_iter().filter(|it| *it != "none");
    let cell = parts.cloned().collect::<Vec<_>>().join(", ");
    if 1 < runs.len() { format!("{}: {cell}", run.label) } else { cell }
}

/// How many cells there are that a reader tells apart.
fn all_cells(runs: &[Run], name: &str) -> usize {
    let mut cells: Vec<String> = Vec::new();
    for (run, line) in lines(runs, name) {
        cells.extend(line.place().map(|place| cell(runs, run, place)));
    }
    cells.sort_unstable();
    cells.dedup();
    cells.len()
}

fn where_alike(cells: &[String], all: usize) -> String {
    match cells.len() {
        count if count == all && 2 < count => format!("the same in all {all} cells"),
        _ => cells.join("; "),
    }
}

/// A list may be long.
fn brief(value: &Value) -> String {
    match value.as_array() {
        Some(list) if LIST_MAX < list.len() => {
            let texts: Vec<_> = list.iter().map(shown).collect();
            let (first, last) = (&texts[..LIST_MAX - 2], &texts[texts.len() - 1]);
            format!("{}, ... {last} ({} of them)", first.join(", "), texts.len())
        }
        Some(list) => list.iter().map(shown).collect::<Vec<_>>().join(", "),
        None => shown(value),
    }
}

/// What a figure is, without its engine, run and round.
#[derive(Clone, PartialEq, PartialOrd, Debug)]
struct Row<'a> {
    tier: &'a str,
    file_system: &'a str,
    figure: &'a str,
    parameters: String,
}

/// All figures, folded away: a column for each engine (and run).
pub fn figures(runs: &[Run], name: &str) -> String {
    let all = || {
        let figures = runs.iter().flat_map(|run| run.figures.iter().map(move |it| (run, it)));
        figures.filter(|(_, it)| it.place.experiment == name)
    };
    let varied = varied(&all().map(|it| it.1).collect::<Vec<_>>());
    let mut columns: Vec<String> = Vec::new();
    let mut rows: Vec<(Row<'_>, BTreeMap<usize, Vec<&Figure>>)> = Vec::new();
    for (run, figure) in all() {
        let engine = &figure.place.engine;
        let column = match runs.len() {
            1 => engine.clone(),
            _ => format!("{}: {engine}", run.label),
        };
        let at = columns.iter().position(|it| *it == column).unwrap_or_else(|| {
            columns.push(column);
            columns.len() - 1
        });
        let row = row(figure, &varied);
        let place = rows.iter().position(|it| it.0 == row).unwrap_or_else(|| {
            rows.push((row, BTreeMap::new()));
            rows.len() - 1
        });
        rows[place].1.entry(at).or_default().push(figure);
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut text = "<details><summary>All figures</summary>\n\n".to_owned();
    text += &constant(&all().map(|it| it.1).collect::<Vec<_>>(), &varied);
    text += "| figure | with | tier | file system | ";
    text += &format!("{} |\n|{}\n", columns.join(" | "), "---|".repeat(4 + columns.len()));
    for (row, cells) in rows {
        let values: Vec<String> = (0..columns.len())
            .map(|at| cells.get(&at).map_or_else(|| "-".to_owned(), |of| value(of)))
            .collect();
        let Row { tier, file_system, figure, parameters } = row;
        let values = values.join(" | ");
        text += &format!("| {figure} | {parameters} | {tier} | {file_system} | {values} |\n");
    }
    text + "\n</details>\n\n"
}

fn row<'a>(figure: &'a Figure, varied: &[String]) -> Row<'a> {
    let parameters = varied
        .iter()
        .filter_map(|name| Some(format!("{name}={}", brief(figure.parameters.get(name)?))));
    Row {
        tier: &figure.place.tier,
        file_system: &figure.place.file_system,
        figure: &figure.figure,
        parameters: parameters.collect::<Vec<_>>().join(", "),
    }
}

/// Parameters that not all figures have alike.
fn varied(figures: &[&Figure]) -> Vec<String> {
    let mut names: Vec<String> =
        figures.iter().flat_map(|it| it.parameters.keys().cloned()).collect();
    names.sort();
    names.dedup();
    let differs = |name: &String| {
        figures.windows(2).any(|it| it[0].parameters.get(name) != it[1].parameters.get(name))
    };
    names.into_iter().filter(differs).collect()
}

fn constant(figures: &[&Figure], varied: &[String]) -> String {
    let Some(first) = figures.first() else { return String::new() };
    let same = first.parameters.iter().filter(|(name, _)| !varied.contains(name));
    let texts: Vec<_> = same.map(|(name, value)| format!("{name}={}", brief(value))).collect();
    if texts.is_empty() { String::new() } else { format!("With {}.\n\n", texts.join(", ")) }
}

/// Median and range over the rounds; a list as the first round has it.
fn value(figures: &[&Figure]) -> String {
    let Some(first) = figures.first() else { return "-".to_owned() };
    let unit = first.unit.as_str();
    let numbers: Option<Vec<f64>> = figures.iter().map(|it| it.number()).collect();
    let Some(of) = numbers.as_deref().and_then(spread) else {
        return format!("{} {unit}", brief(&first.value));
    };
    // Exact ones are integers, and all of their digits count.
    let shown = |number: f64| match (Scale::of_unit(unit), first.value.is_u64()) {
        (Scale::Time, _) => Scale::Time.shown(number),
        (_, true) => format!("{number:.0} {unit}"),
        (scale, false) => format!("{} {unit}", scale.shown(number)),
    };
    if of.min == of.max {
        return shown(of.median);
    }
    format!("{} ({} .. {})", shown(of.median), shown(of.min), shown(of.max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Better;

    fn figure(round: u32, value: impl Into<Value>, unit: &str) -> Figure {
        Figure {
            place: Place {
                experiment: "test".to_owned(),
                engine: "uring".to_owned(),
                tier: "device".to_owned(),
                file_system: "ext4".to_owned(),
                round,
            },
            parameters: BTreeMap::from([("size".to_owned(), round.into())]),
            figure: "f".to_owned(),
            value: value.into(),
            unit: unit.to_owned(),
            better: Better::None,
        }
    }

    #[test]
    fn values_have_their_range_and_exact_ones_their_digits() {
        let of = |figures: &[Figure]| value(&figures.iter().collect::<Vec<_>>());
        assert_eq!(of(&[figure(0, 1_044_700, "bytes")]), "1044700 bytes");
        let times = [figure(0, 3_000, "ns"), figure(1, 1_000, "ns"), figure(2, 9_000, "ns")];
        assert_eq!(of(&times), "3 us (1 us .. 9 us)");
        assert_eq!(of(&[figure(0, vec![0, 1028], "offset")]), "0, 1028 offset");
        assert_eq!(of(&[figure(0, 1.5, "GB/s")]), "1.5 GB/s");
    }

    #[test]
    fn long_lists_are_cut() {
        let long: Vec<u64> = (0..20).collect();
        assert_eq!(brief(&long.into()), "0, 1, 2, 3, 4, 5, ... 19 (20 of them)");
        assert_eq!(brief(&vec![1, 2].into()), "1, 2");
    }

    #[test]
    fn parameters_are_named_where_they_differ() {
        let figures = [figure(0, 1, "n"), figure(1, 1, "n")];
        let all: Vec<&Figure> = figures.iter().collect();
        assert_eq!(varied(&all), ["size"]);
        assert_eq!(row(&figures[1], &varied(&all)).parameters, "size=1");
        assert_eq!(constant(&all, &[]), "With size=0.\n\n");
    }
}
