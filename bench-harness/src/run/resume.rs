//! Going on with a run that was interrupted or killed: what is done stays, the rest is run again.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::CELL_PREFIX;
use super::machine::MachineRecord;
use crate::experiments::{DoingTo, Failure};
use crate::record::output::{
    MACHINE_FILE, RECORD_FILE, RESULTS_FILE, RUN_FILE, RunState, SERIES_FILE, State,
};
use crate::record::{Figure, Line, Output, Place};

/// The option, which is no part of the command that is gone on with.
pub const OPTION: &str = "--resume";

/// What a folder holds of a run: how it stands, and its figures.
pub struct Begun {
    /// With the cells that needn't be run again.
    pub state: RunState,
    /// Theirs.
    pub figures: Vec<Figure>,
}

/// Opens the folder of a run that is not complete, and leaves only what belongs to finished cells.
///
/// # Errors
/// A folder with a complete run; one that was made by another command, or on
/// another machine or revision.
pub fn reopen(folder: &Path, now: &MachineRecord) -> Result<(Output, Begun), Failure> {
    let refuse = |why: String| Err(Failure::Usage(format!("{}: {why}", folder.display())));
    let mut state: RunState = whole(&folder.join(RUN_FILE))?;
    let before: MachineRecord = whole(&folder.join(MACHINE_FILE))?;
    if state.state == State::Complete {
        return refuse("the run is complete; there is nothing to go on with".to_owned());
    }
    if without_option(&state.command) != without_option(&now.command) {
        return refuse(format!("{OPTION} wants the command of before: {}", state.command));
    }
    let same = [
        (&before.host, &now.host),
        (&before.kernel, &now.kernel),
        (&before.processor, &now.processor),
        (&before.revision, &now.revision),
        (&before.build, &now.build),
    ];
    if let Some((then, now)) = same.iter().find(|(then, now)| then != now) {
        return refuse(format!(
            "it was begun on {then}, and this is {now}: figures of both can't stand in one run; \
             begin a new one"
        ));
    }
    state.cells.retain(|it| it.state == "done" || it.state == "skipped");
    state.state = State::Running;
    let kept: Vec<&Place> = state.cells.iter().map(|it| &it.place).collect();
    let mut figures: Vec<Figure> = whole(&folder.join(RESULTS_FILE))?;
    figures.retain(|it| is_of(&it.place, &kept));
    let output = Output::reopen(folder);
    prune(&output, &kept)?;
    remove_cells(folder)?;
    output.write_figures(&figures)?;
    output.write_state(&state)?;
    Ok((output, Begun { state, figures }))
}

/// There is a run to go on with.
///
/// # Errors
/// When there is none.
pub fn check(folder: &Path) -> Result<(), Failure> {
    if folder.join(RUN_FILE).is_file() {
        return Ok(());
    }
    let folder = folder.display();
    Err(Failure::Usage(format!("{folder}: there is no run to go on with; leave {OPTION} out")))
}

/// How the run is begun, without the option that goes on with it.
pub fn without_option(command: &str) -> String {
    command.split(' ').filter(|it| *it != OPTION).collect::<Vec<_>>().join(" ")
}

/// Whether it was recorded in one of these cells. Experiments that compare variants record each as
/// an engine of its own, whose name begins with that of the cell's engine, if it has one.
fn is_of(place: &Place, cells: &[&Place]) -> bool {
    cells.iter().any(|cell| {
        let is_here = Place { engine: cell.engine.clone(), ..place.clone() } == **cell;
        is_here && (cell.engine == "none" || place.engine.starts_with(&cell.engine))
    })
}

/// Lines of cells that are run again would stand there twice.
fn prune(output: &Output, kept: &[&Place]) -> Result<(), Failure> {
    for entry in fs::read_dir(output.folder()).doing_to("list", output.folder())? {
        let path = entry.doing_to("list", output.folder())?.path();
        for name in [RECORD_FILE, SERIES_FILE] {
            let Ok(text) = fs::read_to_string(path.join(name)) else { continue };
            let mut lines = String::new();
            for text in text.split_inclusive('\n') {
                // The last one may be torn.
                let Ok(line) = serde_json::from_str::<Line>(text) else { continue };
                if line.place().is_none_or(|place| is_of(place, kept)) {
                    lines += text;
                } else if let Line::Latency { file, .. } = line {
                    for end in ["hlog", "hgrm"] {
                        // One that is gone is what is wanted.
                        drop(fs::remove_file(path.join(format!("{file}.{end}"))));
                    }
                }
            }
            let folder = path.file_name().unwrap_or_default().to_string_lossy();
            output.write(&format!("{folder}/{name}"), &lines)?;
        }
    }
    Ok(())
}

/// What a kill has left of the cell under way, if it was on the file system of the output.
fn remove_cells(folder: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(folder).doing_to("list", folder)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(CELL_PREFIX) {
            fs::remove_dir_all(entry.path()).doing_to("remove", &entry.path())?;
        }
    }
    Ok(())
}

fn whole<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let text = fs::read_to_string(path).doing_to("read", path)?;
    let damaged = |error| Failure::Wrong(format!("{} is damaged: {error}", path.display()));
    serde_json::from_str(&text).map_err(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_the_same_with_the_option_and_without() {
        let command = "bench-harness run all --resume --out x";
        assert_eq!(without_option(command), "bench-harness run all --out x");
    }
    #[test]
    fn variants_belong_to_the_cell_that_compared_them() {
        let place = |engine: &str, round| Place {
            experiment: "uring".to_owned(),
            engine: engine.to_owned(),
            tier: "none".to_owned(),
            file_system: "ext4".to_owned(),
            round,
        };
        let (whole, engine) = (place("none", 0), place("uring", 0));
        assert!(is_of(&place("linked", 0), &[&whole]));
        assert!(!is_of(&place("linked", 1), &[&whole]));
        assert!(is_of(&place("uring", 0), &[&engine]));
        assert!(is_of(&place("uring, held", 0), &[&engine]));
        assert!(!is_of(&place("plain-file", 0), &[&engine]));
    }
}
