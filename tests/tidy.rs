//! The style of the code, as a test. One line for each violation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where sources lie.
const TOPS: &[&str] = &[
    "src",
    "tests",
    "examples",
    "bench-harness/src",
    "bench-harness/tests",
    "bench-harness/benches",
];
/// Ground floor first. A layer may use the layers before it, and nothing after.
const LAYERS: &[&str] = &[
    "units",
    "format",
    "disk",
    "log",
    "coordinator",
    "ring",
    "wire",
    "client",
    "shard",
    "broker",
    "cli",
];
/// Where `unsafe` may appear at all.
const UNSAFE_PLACES: &[&str] = &[
    "src/ring/",
    "src/disk/mmap.rs",
    "bench-harness/src/sys.rs",
    "bench-harness/src/sys/",
    // Allocators that count.
    "tests/allocations/counting.rs",
    "tests/wire/allocations.rs",
];
/// The pure core: no clock, file, thread, random number or async.
const PURE_PLACES: &[&str] = &["src/format/", "src/disk/plan.rs", "src/log/", "src/coordinator/"];
const IMPURE_WORDS: &[&str] = &[
    "std::fs",
    "std::net",
    "std::thread",
    "std::time",
    "SystemTime",
    "Instant::now",
    "async fn",
    "tokio",
    "rustix",
    "io_uring",
    "libc::",
    "random()",
    "rand::",
    "File::open",
    "std::env",
];
/// Layers that stand one above the other and still don't know each other.
const STRANGERS: &[(&str, &str)] = &[("ring", "log")];
/// What stands at the root of the repository.
const ROOT: &[&str] = &[
    ".ci",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "bench-harness",
    "examples",
    "results",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "scripts",
    "src",
    "tests",
];
const LINE_COLUMNS_MAX: usize = 100;
const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;

#[test]
fn tidy() {
    let mut errors = Vec::new();
    let mut files = 0;
    for top in TOPS {
        for path in rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(top)) {
            let inside = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).expect("a file of ours");
            let text = fs::read_to_string(&path).expect("sources are readable");
            check(inside, &text, &mut errors);
            files += 1;
        }
    }
    assert!(10 < files, "only {files} files were found");
    assert!(errors.is_empty(), "\n{}", errors.join("\n"));
}

/// Notes and scratch files get committed by mistake. Sources that were unpacked without git's index
/// have none that could be.
#[test]
fn nothing_strays_at_the_root() {
    let root = env!("CARGO_MANIFEST_DIR");
    let listed = Command::new("git").args(["ls-files"]).current_dir(root).output();
    let listed = listed.ok().filter(|it| it.status.success()).map(|it| it.stdout);
    let text = String::from_utf8(listed.unwrap_or_default()).expect("names here are ASCII");
    let strays = strays(&text);
    assert!(strays.is_empty(), "at the root, and not in ROOT of this test: {strays:?}");
    assert_eq!(self::strays("src/a.rs\n.note\nnote/b"), [".note", "note"]);
}

/// Of paths, one a line, where those begin that belong nowhere.
fn strays(paths: &str) -> Vec<&str> {
    let tops = paths.lines().filter_map(|it| it.split('/').next());
    tops.filter(|top| !ROOT.contains(top)).collect()
}

#[test]
fn every_rule_finds_its_violation() {
    let long = "x".repeat(LINE_COLUMNS_MAX + 1);
    let body = "    let a = 1;\n".repeat(FUNCTION_LINES_MAX);
    let cases: &[(&str, &str, &str)] = &[
        ("src/log/a.rs", "use crate::shard::Engine;\n", "may not use"),
        ("src/log/a.rs", "use crate::{shard::Engine, units};\n", "may not use"),
        ("src/log/a.rs", "use crate::ring::Ring;\n", "may not use"),
        ("src/ring/a.rs", "use crate::log::Cursors;\n", "don't know each other"),
        ("src/log/a.rs", "unsafe { f() }\n", "unsafe"),
        ("src/log/a.rs", "fn f() { std::fs::read(p) }\n", "pure"),
        ("src/disk/plan.rs", "async fn f() {}\n", "pure"),
        ("src/wire/a.rs", "let a = b as usize;\n", "as"),
        ("src/wire/a.rs", "let a = b.unwrap();\n", "unwrap"),
        ("src/wire/a.rs", &long, "columns"),
        ("src/wire/a.rs", &format!("fn f() {{\n{body}}}\n"), "function"),
        ("src/wire/a.rs", &"\n".repeat(FILE_LINES_MAX + 1), "file"),
        ("src/elsewhere/a.rs", "", "no layer"),
        ("src/wire/a.rs", "#[allow(dead_code)]\n", "expect"),
    ];
    for (path, text, expected) in cases {
        let mut errors = Vec::new();
        check(Path::new(path), text, &mut errors);
        let found = errors.iter().any(|it| it.contains(expected));
        assert!(found, "{path}: {text:.60} gave {errors:?}");
    }
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut paths: Vec<_> = entries.map(|it| it.expect("readable").path()).collect();
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
    files
}

fn check(path: &Path, text: &str, errors: &mut Vec<String>) {
    let place = path.to_str().expect("our names are ASCII");
    let mut say = |line: usize, what: String| errors.push(format!("{place}:{line}: {what}"));
    if FILE_LINES_MAX < text.lines().count() {
        say(1, format!("the file is longer than {FILE_LINES_MAX} lines"));
    }
    let is_tidy = place.ends_with("tests/tidy.rs");
    for (index, line) in text.lines().enumerate() {
        if LINE_COLUMNS_MAX < line.chars().count() {
            say(index + 1, format!("the line is longer than {LINE_COLUMNS_MAX} columns"));
        }
        if !is_tidy {
            words(place, line).into_iter().for_each(|what| say(index + 1, what));
        }
    }
    for (line, length) in functions(text) {
        if FUNCTION_LINES_MAX < length {
            say(line, format!("the function is {length} lines long"));
        }
    }
    if let Some(inside) = place.strip_prefix("src/") {
        layers(inside, text).into_iter().for_each(|(line, what)| say(line, what));
    }
}

/// What a line may not contain. Strings are judged too: a rule that is easy to see beats one that
/// parses Rust.
fn words(place: &str, line: &str) -> Vec<String> {
    let code = line.split("//").next().unwrap_or_default();
    let mut found = Vec::new();
    let allowed = UNSAFE_PLACES.iter().any(|it| place.starts_with(it));
    if !allowed && has_word(code, "unsafe") {
        found.push("unsafe belongs in ring and the mmap module".to_owned());
    }
    if PURE_PLACES.iter().any(|it| place.starts_with(it)) {
        for word in IMPURE_WORDS.iter().filter(|it| code.contains(**it)) {
            found.push(format!("`{word}` in the pure core"));
        }
    }
    if code.contains(".unwrap()") {
        found.push("`unwrap`: say with `expect` what makes it safe".to_owned());
    }
    if code.contains("#[allow(") || code.contains("#![allow(") {
        found.push("`allow`: use `expect` with a reason".to_owned());
    }
    if place.starts_with("src/") && place != "src/units.rs" {
        let integers = ["usize", "u64", "u32", "u16", "u8", "i64", "i32", "i16", "i8", "isize"];
        for integer in integers.iter().filter(|it| code.contains(&format!(" as {it}"))) {
            found.push(format!("`as {integer}` outside units.rs"));
        }
    }
    for word in ["FIXME", "XXX", "dbg!(", "todo!(", "unimplemented!(", "#[ignore"] {
        if line.contains(word) {
            found.push(format!("`{word}` left behind"));
        }
    }
    found
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|it: char| !it.is_alphanumeric() && it != '_').any(|it| it == word)
}

/// Line and length of each function, found by indentation as rustfmt lays it out.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let code = line.trim();
        let head = code.split('(').next().unwrap_or_default();
        let is_function = head.split_whitespace().any(|it| it == "fn") && code.contains('(');
        if is_function && !code.starts_with("//") && !code.ends_with(';') && !code.ends_with('}') {
            open.push((index, indent));
        }
        if code == "}" && open.last().is_some_and(|(_, at)| *at == indent) {
            let (start, _) = open.pop().expect("just looked at");
            found.push((start + 1, index - start + 1));
        }
    }
    found
}

/// Uses of layers that stand above, or that are strangers.
fn layers(inside: &str, text: &str) -> Vec<(usize, String)> {
    if inside == "lib.rs" || inside == "main.rs" {
        return Vec::new();
    }
    let layer = inside.split('/').next().unwrap_or_default().trim_end_matches(".rs");
    let Some(rank) = LAYERS.iter().position(|it| *it == layer) else {
        return vec![(1, format!("`{layer}` is no layer"))];
    };
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for used in used_layers(line.split("//").next().unwrap_or_default()) {
            if STRANGERS.contains(&(layer, used)) {
                found.push((index + 1, format!("`{layer}` and `{used}` don't know each other")));
            } else if LAYERS.iter().position(|it| *it == used).is_some_and(|it| rank < it) {
                found.push((index + 1, format!("`{layer}` is below `{used}` and may not use it")));
            }
        }
    }
    found
}

fn used_layers(code: &str) -> Vec<&'static str> {
    let uses = |layer: &str| {
        let direct = code.contains(&format!("crate::{layer}::"))
            || code.contains(&format!("crate::{layer};"));
        let grouped = code.contains("crate::{")
            && (code.contains(&format!("{{{layer}::")) || code.contains(&format!(" {layer}::")));
        direct || grouped
    };
    LAYERS.iter().copied().filter(|layer| uses(layer)).collect()
}
