//! What the tests of the harness share: running it, and reading what it leaves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

pub fn harness(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_bench-harness");
    Command::new(program).args(arguments).output().expect("the program starts")
}

pub fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// On the file system that the sources lie on: /tmp may be memory, where O_DIRECT is not to be had.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// Runs experiments into a new folder.
pub fn run(folder: &Path, arguments: &[&str]) -> (PathBuf, Output) {
    let out = folder.join("out");
    let text = out.to_str().expect("a path of ours");
    let whole: Vec<&str> =
        ["run"].iter().chain(arguments).copied().chain(["--out", text]).collect();
    let output = harness(&whole);
    (out, output)
}

pub fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// Values of a figure, those whose parameters agree.
pub fn values(results: &Value, figure: &str, parameters: &[(&str, Value)]) -> Vec<Value> {
    let list = results.as_array().expect("results are a list").iter();
    let is_it = |it: &&Value| {
        it["figure"] == figure
            && parameters.iter().all(|(name, value)| it["parameters"][name] == *value)
    };
    list.filter(is_it).map(|it| it["value"].clone()).collect()
}

/// Files below a folder with this ending.
pub fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path, end));
        } else if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
    found
}
