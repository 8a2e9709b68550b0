//! Going on with a run that was interrupted, killed, or had cells that failed: what is done stays,
//! everything else of it is taken out and run again.

use std::fs;
use std::path::Path;

use super::machine::MachineRecord;
use crate::experiments::{DoingTo, Failure};
use crate::record::output::{RECORD_FILE, RunState, SERIES_FILE, State};
use crate::record::{Figure, Line, Output, Place};
use crate::report::load::Run;

/// Folders of cells begin like this; a kill leaves one.
pub const CELL_PREFIX: &str = "bench-harness-";
/// The option, as it stands in a command.
const OPTION: &str = "--resume";

/// What is kept.
pub struct Before {
    /// With the cells that are done.
    pub state: RunState,
    /// Theirs.
    pub figures: Vec<Figure>,
}

/// Takes everything out of the folder that isn't of cells that are done.
///
/// # Errors
/// A folder that holds no run, or one that is complete, or one of another machine, build or
/// command.
pub fn take(output: &Output, now: &MachineRecord) -> Result<Before, Failure> {
    let run = Run::load(output.folder())?;
    let folder = output.folder().display();
    if run.state.state == State::Complete {
        return Err(Failure::Usage(format!("{folder} is complete: there is nothing to resume")));
    }
    if let Some((what, before, now)) = difference(&run.machine, now) {
        return Err(Failure::Usage(format!(
            "{folder} can't be resumed: its {what} is {before:?}, and this one is {now:?}; its \
             figures would not belong together"
        )));
    }
    let mut state = run.state;
    state.cells.retain(|it| ["done", "skipped"].contains(&it.state.as_str()));
    (state.state, state.ended) = (State::Running, None);
    let done: Vec<Place> = state.cells.iter().map(|it| it.place.clone()).collect();
    for experiment in run.lines.keys() {
        keep_lines(output, experiment, &done)?;
    }
    remove_cells(output.folder())?;
    let mut figures = run.figures;
    figures.retain(|it| is_of_done(&it.place, &done));
    output.write_figures(&figures)?;
    output.write_state(&state)?;
    Ok(Before { state, figures })
}

/// Whether it was recorded in a cell that is done. Experiments that compare variants record them as
/// engines of their own, whose names begin with that of the cell's engine, if it has one.
fn is_of_done(place: &Place, done: &[Place]) -> bool {
    done.iter().any(|cell| {
        let is_here = Place { engine: cell.engine.clone(), ..place.clone() } == *cell;
        is_here && (cell.engine == "none" || place.engine.starts_with(&cell.engine))
    })
}

/// The first thing that has to be the same and isn't.
fn difference(
    before: &MachineRecord,
    now: &MachineRecord,
) -> Option<(&'static str, String, String)> {
    let without = |it: &MachineRecord| {
        let words = it.command.split(' ').filter(|word| *word != OPTION);
        words.collect::<Vec<_>>().join(" ")
    };
    type Of<'a> = &'a dyn Fn(&MachineRecord) -> String;
    let all: [(&'static str, Of<'_>); 6] = [
        ("command", &without),
        ("host", &|it| it.host.clone()),
        ("kernel", &|it| it.kernel.clone()),
        ("version", &|it| it.version.clone()),
        ("revision", &|it| it.revision.clone()),
        ("build", &|it| it.build.clone()),
    ];
    let differing = all.into_iter().find(|(_, of)| of(before) != of(now));
    differing.map(|(what, of)| (what, of(before), of(now)))
}

/// Lines of cells that are done, and pictures; histograms of others are removed.
fn keep_lines(output: &Output, experiment: &str, done: &[Place]) -> Result<(), Failure> {
    let folder = output.folder().join(experiment);
    for name in [RECORD_FILE, SERIES_FILE] {
        let path = folder.join(name);
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let mut kept = String::new();
        for text in text.split_inclusive('\n') {
            // The last one may be torn.
            let Ok(line) = serde_json::from_str::<Line>(text) else { continue };
            if line.place().is_none_or(|it| is_of_done(it, done)) {
                kept += text;
            } else if let Line::Latency { file, .. } = line {
                for end in ["hlog", "hgrm"] {
                    // One that is gone is what is wanted.
                    drop(fs::remove_file(folder.join(format!("{file}.{end}"))));
                }
            }
        }
        output.write(&format!("{experiment}/{name}"), &kept)?;
    }
    Ok(())
}

fn remove_cells(folder: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(folder).doing_to("list", folder)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(CELL_PREFIX) {
            fs::remove_dir_all(entry.path()).doing_to("remove", &entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_belong_to_cells_and_variants_to_theirs() {
        let of = |engine: &str, round: u32| Place {
            experiment: "test".to_owned(),
            engine: engine.to_owned(),
            tier: "device".to_owned(),
            file_system: "ext4".to_owned(),
            round,
        };
        let done = [of("plain-file", 0), of("none", 1)];
        assert!(is_of_done(&of("plain-file", 0), &done));
        assert!(is_of_done(&of("plain-file-pool", 0), &done));
        assert!(!is_of_done(&of("uring", 0), &done));
        assert!(is_of_done(&of("uring", 1), &done));
        assert!(!is_of_done(&of("plain-file", 2), &done));
    }
}
