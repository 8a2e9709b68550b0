//! The report's text.

use std::collections::BTreeSet;

use super::Drawn;
use super::chart::{Scale, digits};
use super::load::Run;
use super::stats::spread;
use super::tables;
use crate::record::output::State;
use crate::record::{Line, Place};
use crate::registry::EXPERIMENTS;
use crate::run::machine::MachineRecord;
use crate::run::noise::Noise;

/// What was run on what, what is missing, and how noisy it was.
pub fn head(runs: &[Run]) -> String {
    let mut text = "# Partition log experiments\n\n".to_owned();
    text += "Medians with their range over the rounds, unless said otherwise. Every figure stands \
             in `results.json`, every histogram and series beside it.\n\n";
    for run in runs {
        if 1 < runs.len() {
            text += &format!("## Run {}\n\n", run.label);
        }
        text += &state(run);
        text += &machine(&run.machine);
        text += &noise(&run.noise);
    }
    text
}

fn state(run: &Run) -> String {
    let mut text = String::new();
    match run.state.state {
        State::Complete => {}
        State::Running => {
            text += "**Partial: this run has not ended, or was killed.** What follows is what it \
                     had recorded by then.\n\n";
        }
        State::Partial => {
            let (gone, planned) = (run.state.cells.len(), run.state.planned);
            text += &format!(
                "**Partial: {gone} of {planned} cells were gone about, and some of them are not \
                 done; see below.**\n\n"
            );
        }
    }
    text += &format!("```\n{}\n```\n\n", run.state.command);
    for skipped in &run.state.skipped {
        text += &format!("- skipped: {skipped}\n");
    }
    for cell in run.state.cells.iter().filter(|it| it.state != "done") {
        let reason = cell.reason.as_deref().unwrap_or_default();
        text += &format!("- {}: **{}**: {reason}\n", cell.place.shown(), cell.state);
    }
    text + "\n"
}

fn machine(machine: &MachineRecord) -> String {
    let MachineRecord { host, kernel, processor, cores, .. } = machine;
    let gigabytes = machine.memory_bytes / 1_000_000_000;
    let mut text = format!(
        "- machine: {host}, {cores} cores ({processor}), {gigabytes} GB, Linux {kernel}, \
         io_uring: {}\n",
        machine.io_uring
    );
    for it in &machine.file_systems {
        text += &format!("- file system **{}**: {}; {}\n", it.label, it.kind, it.device);
    }
    let MachineRecord { version, revision, rustc, build, .. } = machine;
    text += &format!("- uringlog {version}, revision {revision}, {build} build, {rustc}\n");
    if build == "debug" {
        text += "- **a debug build: its times say little**\n";
    }
    if machine.java != "not asked" {
        text += &format!("- Java for Kafka: {}\n", machine.java);
    }
    let MachineRecord { date, scale, rounds, seed, load_before, .. } = machine;
    text += &format!(
        "- {date}, {scale} run, rounds {rounds}, seed {seed}, load average before {load_before}\n\n"
    );
    text
}

/// What the same work took before, between and after the cells.
fn noise(noise: &[Noise]) -> String {
    let mut rows = Vec::new();
    let mut file_systems: Vec<&str> = noise.iter().map(|it| it.file_system.as_str()).collect();
    file_systems.sort_unstable();
    file_systems.dedup();
    let cpu: Vec<f64> = noise.iter().map(|it| f64_of(it.cpu_ns)).collect();
    rows.push(("fixed arithmetic".to_owned(), cpu));
    for label in file_systems {
        let here = noise.iter().filter(|it| it.file_system == label);
        let syncs = here.map(|it| f64_of(it.sync_ns)).collect();
        rows.push((format!("4 KiB and fdatasync on {label}"), syncs));
    }
    let mut text =
        "Noise: what the same work took before, between and after the cells.\n\n".to_owned();
    text += "| work | median | least | most | spread |\n|---|---|---|---|---|\n";
    for (what, values) in rows {
        let Some(of) = spread(&values) else { continue };
        let [median, min, max] = [of.median, of.min, of.max].map(|it| Scale::Time.shown(it));
        let percent = digits(100.0 * (of.max - of.min) / of.median);
        text += &format!("| {what} | {median} | {min} | {max} | {percent} % |\n");
    }
    text + "\n"
}

fn f64_of(count: u64) -> f64 {
    crate::experiments::measure::f64_of(count)
}

/// One experiment: checks, tables, pictures, notes, all figures.
pub fn experiment(runs: &[Run], name: &str, drawn: &[Drawn]) -> String {
    let known = EXPERIMENTS.iter().find(|it| it.name == name);
    let question = known.map_or("", |it| it.question);
    let mut text = format!("## {name}\n\n{question}\n\n");
    text += &tables::checks(runs, name);
    text += &tables::recorded(runs, name);
    for picture in drawn {
        text += &caption(runs, name, picture);
    }
    text += &notes(runs, name);
    text += &tables::figures(runs, name);
    text
}

fn caption(runs: &[Run], name: &str, drawn: &Drawn) -> String {
    let Drawn { picture, setting, path } = drawn;
    let cells = runs.iter().flat_map(|it| &it.state.cells).map(|it| &it.place);
    let here = cells.filter(|it| {
        it.experiment == name && it.tier == setting.tier && it.file_system == setting.file_system
    });
    let rounds = here.map(|it| it.round + 1).max().unwrap_or_default();
    let commands: Vec<_> = runs.iter().map(|it| format!("`{}`", it.state.command)).collect();
    format!(
        "![{title}]({path})\n\n{see}\n\n*{title}. Tier: {tier}; file system: {file_system}; \
         rounds: {rounds}; {commands}*\n\n",
        title = picture.title,
        see = picture.see,
        tier = setting.tier,
        file_system = setting.file_system,
        commands = commands.join("; "),
    )
}

/// Each text once, with the cells that say it when not all do.
fn notes(runs: &[Run], name: &str) -> String {
    let mut said: BTreeSet<String> = BTreeSet::new();
    let mut text = String::new();
    for line in runs.iter().flat_map(|it| it.lines(name)) {
        let Line::Note { place, text: note } = line else { continue };
        let note = of_cell(note, place);
        if !said.contains(&note) {
            text += &format!("- {note}\n");
            said.insert(note);
        }
    }
    if text.is_empty() { text } else { format!("What differs, and why:\n\n{text}\n") }
}

/// What is marked or cut short is so in one cell, which is named; the rest holds for all.
fn of_cell(note: &str, place: &Place) -> String {
    let Place { engine, tier, file_system, round, .. } = place;
    for word in ["Mark: ", "Partial: "] {
        if let Some(rest) = note.strip_prefix(word) {
            return format!("{word}{engine}, {tier}, {file_system}, round {round}: {rest}");
        }
    }
    note.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_says_of_which_cell_it_is() {
        let place = Place {
            experiment: "soak".to_owned(),
            engine: "uring".to_owned(),
            tier: "device".to_owned(),
            file_system: "xfs".to_owned(),
            round: 1,
        };
        assert_eq!(of_cell("Mark: slow", &place), "Mark: uring, device, xfs, round 1: slow");
        assert_eq!(of_cell("All the same", &place), "All the same");
    }
}
