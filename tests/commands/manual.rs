//! Completions and man pages, as a shell and a reader get them.

use std::process::Command;

use crate::serving::{PROGRAM, command, said};

const NOWHERE: &str = "127.0.0.1:1";

/// What bash offers for the last word of a line.
fn completed(words: &str) -> Vec<String> {
    let script = format!(
        "source <({PROGRAM} completions bash)
         COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
         complete -p uringlog >/dev/null || exit 3
         _uringlog uringlog \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &script]);
    said(bash, b"").fine().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_values() {
    assert_eq!(completed("uringlog conf"), ["config"]);
    assert_eq!(completed("uringlog group res"), ["reset"]);
    assert_eq!(completed("uringlog group reset --to-e"), ["--to-earliest"]);
    assert_eq!(completed("uringlog produce --codec z"), ["zstd"]);
    assert!(completed("uringlog consume --").iter().any(|it| it == "--follow"));
}

#[test]
fn other_shells_have_theirs() {
    let text = |shell: &str| said(command(&format!("completions {shell}"), NOWHERE), b"").fine();
    assert!(text("zsh").starts_with("#compdef uringlog\n"));
    assert!(text("fish").contains("complete -c uringlog "));
}

#[test]
fn pages_name_what_the_commands_take() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("man1");
    let line = format!("man {}", path.display());
    let written = said(command(&line, NOWHERE), b"");
    assert!(written.err.contains(" pages in "), "{}", written.err);
    assert_eq!(written.fine(), "");
    let page = |name: &str| std::fs::read_to_string(path.join(name)).expect("it was written");
    let consume = page("uringlog-consume.1");
    for option in ["\\-\\-follow", "\\-\\-group", "\\-\\-until", "URINGLOG_BOOTSTRAP"] {
        assert!(consume.contains(option), "{option}");
    }
    assert!(page("uringlog.1").contains("uringlog\\-consume(1)"));
    assert!(page("uringlog-group-reset.1").starts_with(".ie"), "roff");
}
