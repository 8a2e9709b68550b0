//! README.md is true: its settings are those of the source, its commands exist, its limits are
//! named right, its links lead somewhere.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Parser;
use uringlog::broker::config::markdown_table;
use uringlog::cli::args::CommandLine;

const BEGIN: &str = "<!-- settings: begin -->\n";
const END: &str = "<!-- settings: end -->\n";
/// Set, the test writes the settings into README.md instead of comparing them.
const RENEW: &str = "RENEW_README";
const LINE_COLUMNS_MAX: usize = 120;
/// Programs that examples may use beside our own.
const FOREIGN: &[&str] =
    &["kcat", "curl", "grep", "printf", "echo", "ls", "export", "mkdir", "tar", "cd"];

fn top() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn readme() -> String {
    fs::read_to_string(top().join("README.md")).expect("README.md is there")
}

/// The text before, between and after the marks.
fn parts(text: &str) -> (&str, &str, &str) {
    let (before, rest) = text.split_once(BEGIN).expect("the first mark");
    let (table, after) = rest.split_once(END).expect("the second mark");
    (before, table, after)
}

#[test]
fn the_settings_are_those_of_the_source() {
    let text = readme();
    let (before, table, after) = parts(&text);
    let expected = format!("\n{}\n", markdown_table());
    if std::env::var_os(RENEW).is_some() {
        let renewed = format!("{before}{BEGIN}{expected}{END}{after}");
        // In one step: the other tests read the file at the same time.
        fs::write(top().join("README.md.new"), renewed).expect("the repository can be written");
        fs::rename(top().join("README.md.new"), top().join("README.md")).expect("both are there");
        return;
    }
    assert!(table == expected, "out of date; renew it: {RENEW}=1 cargo test --test readme");
}

/// The commands of all shell examples, pipelines taken apart, continued lines joined.
fn commands(text: &str) -> Vec<Vec<String>> {
    let blocks = text.split("```sh\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().expect("a split has a first part"));
    let lines = blocks.flat_map(|block| {
        let joined = block.replace("\\\n", " ");
        joined.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    lines.flat_map(|line| pipeline(&line)).collect()
}

/// Words as a shell takes them apart, for what the examples use: quotes, blanks, pipes.
fn pipeline(line: &str) -> Vec<Vec<String>> {
    let (mut all, mut words, mut word) = (Vec::new(), Vec::new(), String::new());
    let mut quote = None;
    for character in line.chars() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => word.push(character),
            (None, '\'' | '"') => quote = Some(character),
            (None, ' ' | '|') => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                if character == '|' {
                    all.push(std::mem::take(&mut words));
                }
            }
            (None, _) => word.push(character),
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    all.push(words);
    all
}

fn check_command(words: &[String]) -> Result<(), String> {
    let (program, rest) = words.split_first().ok_or("an empty command")?;
    if program == "uringlog" {
        let parsed = CommandLine::try_parse_from(words);
        return parsed.map(drop).map_err(|error| error.to_string());
    }
    if program == "scripts/serve" {
        let line = ["uringlog", "serve"].into_iter().chain(rest.iter().map(String::as_str));
        CommandLine::try_parse_from(line).map_err(|error| error.to_string())?;
    }
    if program == "scripts/kafka" {
        let script = fs::read_to_string(top().join(program)).map_err(|it| it.to_string())?;
        let tool = rest.first().ok_or("scripts/kafka without a tool")?;
        if !script.contains(&format!("\n    {tool}) echo ")) {
            return Err(format!("scripts/kafka knows no {tool}"));
        }
    }
    if program.starts_with("scripts/") {
        return check_script(Path::new(program));
    }
    if program == "cargo"
        && let [run, flag, name] = rest
        && (run.as_str(), flag.as_str()) == ("run", "--example")
    {
        let example = top().join("examples").join(format!("{name}.rs"));
        return example.exists().then_some(()).ok_or(format!("{} is absent", example.display()));
    }
    if program == "cargo"
        && let [run, release, package, name, end, command, ..] = rest
        && [run, release, package, end] == ["run", "--release", "-p", "--"]
    {
        return check_member(name, command);
    }
    if FOREIGN.contains(&program.as_str()) { Ok(()) } else { Err("unknown".to_owned()) }
}

/// A program of the workspace, and a command that its `enum Command` has.
fn check_member(name: &str, command: &str) -> Result<(), String> {
    let cli = top().join(name).join("src/cli.rs");
    let source = fs::read_to_string(&cli).map_err(|it| format!("{}: {it}", cli.display()))?;
    let (first, rest) = command.split_at(1);
    let variant = format!("\n    {}{rest}", first.to_uppercase());
    let is_known = [",", "("].iter().any(|end| source.contains(&format!("{variant}{end}")));
    is_known.then_some(()).ok_or(format!("{name} has no command {command}"))
}

fn check_script(script: &Path) -> Result<(), String> {
    let found = fs::metadata(top().join(script)).map_err(|error| error.to_string())?;
    let is_executable = found.permissions().mode() & 0o111 != 0;
    if is_executable { Ok(()) } else { Err("not executable".to_owned()) }
}

#[test]
fn every_command_exists() {
    let all = commands(&readme());
    assert!(10 < all.len(), "only {} commands were found", all.len());
    for words in all {
        check_command(&words).unwrap_or_else(|error| panic!("{}: {error}", words.join(" ")));
    }
}

/// Code in the running text that is a command of ours.
#[test]
fn every_command_in_the_text_exists() {
    let text = readme();
    let prose: String = text.split("```").step_by(2).collect();
    let spans = prose.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " "));
    let mut found = 0;
    for span in spans {
        let words = pipeline(&span).concat();
        let Some(program) = words.first() else { continue };
        if program == "uringlog" && words.len() > 1 {
            let help = [program.as_str(), &words[1], "--help"];
            let shown = CommandLine::try_parse_from(help).expect_err("help is no command");
            assert_eq!(shown.kind(), clap::error::ErrorKind::DisplayHelp, "{span}");
            found += 1;
        } else if program.starts_with("scripts/") {
            check_script(Path::new(program)).unwrap_or_else(|error| panic!("{span}: {error}"));
            found += 1;
        }
    }
    assert!(3 < found, "only {found} were found");
}

#[test]
fn a_wrong_command_is_found() {
    for line in ["uringlog topic make t", "scripts/absent", "scripts/kafka nothing", "rm x"] {
        let words = pipeline(line).concat();
        assert!(check_command(&words).is_err(), "{line}");
    }
    let taken = pipeline(r#"a 'b | c' | d "e f""#);
    assert_eq!(taken, [vec!["a", "b | c"], vec!["d", "e f"]]);
}

#[test]
fn every_limit_has_its_name() {
    let text = readme();
    let section = text.split("\n## Limits\n").nth(1).expect("the section");
    let section = section.split("\n## ").next().expect("a split has a first part");
    let sources = sources(&top().join("src"));
    let settings = markdown_table();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let mut count = 0;
    for row in rows {
        let name = row.rsplit('`').nth(1).expect("a name in code");
        let is_known = if name.contains('.') {
            settings.contains(&format!("| `{name}` |"))
        } else {
            sources.contains(&format!("const {name}: "))
        };
        assert!(is_known, "{name}");
        count += 1;
    }
    assert!(10 < count, "only {count} rows were found");
}

fn sources(directory: &Path) -> String {
    let entries = fs::read_dir(directory).expect("sources are readable");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let text = |path: PathBuf| match path.is_dir() {
        true => sources(&path),
        false => fs::read_to_string(&path).expect("sources are text"),
    };
    paths.map(text).collect()
}

/// Tables and examples can't be broken; the rest fits a window.
#[test]
fn links_lead_somewhere_and_lines_are_short() {
    for name in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"] {
        let text = fs::read_to_string(top().join(name)).expect("the file is there");
        let mut is_example = false;
        for (number, line) in text.lines().enumerate() {
            is_example ^= line.starts_with("```");
            let is_fixed = is_example || line.starts_with('|') || line.starts_with("    ");
            let columns = line.chars().count();
            let fits = is_fixed || columns <= LINE_COLUMNS_MAX;
            assert!(fits, "{name}:{}: {columns} columns", number + 1);
        }
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            check_link(&text, target);
        }
    }
}

fn check_link(text: &str, target: &str) {
    if let Some(anchor) = target.strip_prefix('#') {
        let anchors = text.lines().filter_map(|line| line.strip_prefix("## "));
        let mut anchors = anchors.map(|title| title.to_lowercase().replace(' ', "-"));
        assert!(anchors.any(|it| it == anchor), "#{anchor}");
    } else if !target.starts_with("https://") {
        assert!(top().join(target).exists(), "{target}");
    }
}
