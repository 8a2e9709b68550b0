//! What lies in a data directory.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::process::Launch;

/// Names of the journals of a server's directory, sorted.
pub fn journals(launch: &Launch) -> Vec<String> {
    names(launch.place(), |name| name.ends_with(".journal"))
}

/// Names in a directory, sorted.
pub fn names(directory: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("it is there");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("an entry").file_name().into_string().expect("names are text")
    };
    let mut names: Vec<String> = entries.map(name).filter(|name| is_wanted(name)).collect();
    names.sort();
    names
}

/// The `.log` files of all partitions and how long they are.
pub fn logs(root: &Path) -> HashMap<PathBuf, u64> {
    let mut found = HashMap::new();
    for name in names(root, |name| root.join(name).is_dir()) {
        let directory = root.join(name);
        for name in names(&directory, |name| name.ends_with(".log")) {
            let path = directory.join(name);
            let length = fs::metadata(&path).expect("it is there").len();
            found.insert(path, length);
        }
    }
    found
}

/// All files of a directory with what is in them.
pub fn contents(root: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for name in names(root, |_| true) {
        let path = root.join(&name);
        if path.is_dir() {
            let inner = contents(&path).into_iter();
            found.extend(inner.map(|(file, bytes)| (format!("{name}/{file}"), bytes)));
        } else {
            found.push((name, fs::read(&path).expect("it is there")));
        }
    }
    found
}
