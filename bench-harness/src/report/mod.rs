//! The report: Markdown with SVG pictures, made from the recorded files of one or several runs.

mod chart;
mod draw;
pub mod load;
mod markdown;
mod select;
pub mod stats;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use crate::experiments::{DoingTo, Failure};
use crate::record::{Line, Picture};
use crate::registry::EXPERIMENTS;
use load::Run;

/// Beside the report.
const PICTURES: &str = "pictures";

/// A picture that was drawn.
struct Drawn {
    picture: Picture,
    setting: select::Setting,
    /// From the report's folder.
    path: String,
}

/// Makes the report of the runs in these folders, and its pictures beside it; returns its path.
///
/// # Errors
/// A folder without a run, several without `out`, and files that can't be written.
pub fn write(folders: &[PathBuf], out: Option<&Path>) -> Result<PathBuf, Failure> {
    let path = match (out, folders) {
        (Some(path), _) => path.to_owned(),
        (None, [folder]) => folder.join("report.md"),
        (None, _) => {
            let text = "several runs have no report of their own; name its file with --out FILE";
            return Err(Failure::Usage(text.to_owned()));
        }
    };
    let runs: Result<Vec<Run>, Failure> = folders.iter().map(|it| Run::load(it)).collect();
    let mut runs = runs?;
    tell_apart(&mut runs);
    let beside = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    let pictures = beside.join(PICTURES);
    fs::create_dir_all(&pictures).doing_to("make the folder", &pictures)?;
    let mut text = markdown::head(&runs);
    for experiment in names(&runs) {
        let drawn = draw_all(&runs, &experiment, &beside)?;
        text += &markdown::experiment(&runs, &experiment, &drawn);
    }
    fs::write(&path, text).doing_to("write", &path)?;
    Ok(path)
}

/// Folders of different hosts may have the same name.
fn tell_apart(runs: &mut [Run]) {
    for at in 1..runs.len() {
        let same = runs[..at].iter().filter(|it| it.label == runs[at].label).count();
        if 0 < same {
            runs[at].label += &format!(" ({})", at + 1);
        }
    }
}

/// Experiments of the runs, in the registry's order; those that it doesn't know any more are last.
fn names(runs: &[Run]) -> Vec<String> {
    let mut there: Vec<String> = Vec::new();
    for run in runs {
        let cells = run.state.cells.iter().map(|it| it.place.experiment.clone());
        there.extend(run.lines.keys().cloned().chain(cells));
    }
    let place = |name: &String| EXPERIMENTS.iter().position(|it| it.name == name);
    there.sort_by_key(|name| (place(name).unwrap_or(usize::MAX), name.clone()));
    there.dedup();
    there
}

fn draw_all(runs: &[Run], experiment: &str, beside: &Path) -> Result<Vec<Drawn>, Failure> {
    let mut drawn = Vec::new();
    for picture in pictures(runs, experiment) {
        for (setting, chart) in select::charts(runs, experiment, &picture) {
            let name = format!(
                "{experiment}-{}-{}-{}.svg",
                picture.name, setting.tier, setting.file_system
            );
            let path = format!("{PICTURES}/{}", file_name(&name));
            let file = beside.join(&path);
            fs::write(&file, draw::svg(&chart)?).doing_to("write", &file)?;
            drawn.push(Drawn { picture: picture.clone(), setting, path });
        }
    }
    Ok(drawn)
}

/// Each declared one once, by its name.
fn pictures(runs: &[Run], experiment: &str) -> Vec<Picture> {
    let mut pictures: Vec<Picture> = Vec::new();
    for line in runs.iter().flat_map(|it| it.lines(experiment)) {
        if let Line::Picture { picture, .. } = line
            && pictures.iter().all(|it| it.name != picture.name)
        {
            pictures.push(picture.clone());
        }
    }
    pictures
}

fn file_name(text: &str) -> String {
    let keeps = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
    text.chars().map(|it| if keeps(it) { it } else { '-' }).collect()
}
