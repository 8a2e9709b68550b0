//! The table itself: complete, and true about the tests that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const ITEMS: u32 = 105;
/// How the last column begins when no test can be named.
const NO_TEST: &str = "Can't apply: ";

struct Row {
    number: u32,
    /// File and name of each test.
    tests: Vec<(String, String)>,
    reason: Option<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn rows() -> Vec<Row> {
    let text = read(&root().join("tests/checklist.md"));
    let is_row = |line: &&str| line.starts_with("| ") && !line.starts_with("| item");
    text.lines().filter(is_row).map(row).collect()
}

fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
    let [number, behaviour, tests] = cells[..] else { panic!("three columns: {line}") };
    assert!(10 < behaviour.len(), "what item {number} is about");
    let reason = tests.split_once(NO_TEST).map(|it| it.1.to_owned());
    Row { number: number.parse().expect("a number"), tests: named(tests), reason }
}

/// What stands between backticks: a file, and the tests in it.
fn named(cell: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut file = None;
    for word in cell.split('`').skip(1).step_by(2) {
        if word.contains('/') {
            file = Some(word.to_owned());
        } else {
            let file = file.clone().unwrap_or_else(|| panic!("{word} without a file"));
            found.push((file, word.to_owned()));
        }
    }
    found
}

/// Names of the tests of a file: functions behind `#[test]`, or those of a script that have the
/// word check in their names.
fn tests_of(file: &str) -> BTreeSet<String> {
    let text = read(&root().join(file));
    if file.ends_with(".py") {
        let names = text.lines().filter_map(|line| line.strip_prefix("def "));
        let names = names.filter_map(|it| Some(it.split_once('(')?.0.to_owned()));
        // What the script runs as a check; its helpers are none.
        return names.filter(|name| name.starts_with("check_")).collect();
    }
    let mut lines = text.lines().map(str::trim_start);
    let mut names = BTreeSet::new();
    while lines.by_ref().any(|line| line == "#[test]") {
        let name = lines.by_ref().find_map(|line| line.strip_prefix("fn "));
        let name = name.and_then(|it| it.split_once('(')).expect("a test has a function");
        names.insert(name.0.to_owned());
    }
    names
}

#[test]
fn every_item_is_there_once() {
    let numbers: Vec<u32> = rows().iter().map(|row| row.number).collect();
    assert_eq!(numbers, (1..=ITEMS).collect::<Vec<_>>());
}

#[test]
fn every_item_has_a_test_or_a_reason() {
    for Row { number, tests, reason } in rows() {
        let is_explained = reason.is_some_and(|it| 20 < it.len());
        assert!(!tests.is_empty() || is_explained, "item {number}");
    }
}

#[test]
fn every_test_exists() {
    let mut known = BTreeMap::new();
    let mut absent = Vec::new();
    for row in rows() {
        for (file, name) in row.tests {
            let tests = known.entry(file.clone()).or_insert_with(|| tests_of(&file));
            if !tests.contains(&name) {
                absent.push(format!("item {}: {file}: {name}", row.number));
            }
        }
    }
    assert!(absent.is_empty(), "no such tests:\n{}", absent.join("\n"));
}

/// The tests of this folder say which items they are about; so does the table.
#[test]
fn the_items_of_these_tests_name_them() {
    let rows = rows();
    let mut count = 0;
    for entry in fs::read_dir(root().join("tests/checklist")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let mut items = Vec::new();
        for line in read(&path).lines() {
            if let Some(about) = line.strip_prefix("/// Item") {
                items = numbers(about);
            } else if let Some(name) = line.strip_prefix("fn ") {
                let name = name.split('(').next().expect("a name");
                for item in std::mem::take(&mut items) {
                    let row = rows.iter().find(|row| row.number == item).expect("an item");
                    let is_named = row.tests.iter().any(|it| it.1 == name);
                    assert!(is_named, "item {item} doesn't name {name}");
                    count += 1;
                }
            }
        }
    }
    assert!(20 < count, "only {count} tests say what they are about");
}

/// `s 7, 12 and 31: ...`.
fn numbers(about: &str) -> Vec<u32> {
    let list = about.split([':', '.']).next().unwrap_or_default();
    let words = list.split(|it: char| !it.is_ascii_digit()).filter(|word| !word.is_empty());
    words.map(|word| word.parse().expect("digits")).collect()
}
