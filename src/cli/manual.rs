//! `uringlog completions` and `uringlog man`: both made from the definition of the command line.

use std::fs;
use std::io::Write;
use std::path::Path;

use clap::CommandFactory;

use super::args::CommandLine;
use super::command::CommandError;

/// Prints completions for a shell.
///
/// # Errors
/// [`CommandError::Output`].
pub fn completions(shell: clap_complete::Shell, out: &mut impl Write) -> Result<(), CommandError> {
    let mut command = CommandLine::command();
    let name = command.get_name().to_owned();
    // The generator panics when its writer fails; memory doesn't.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    out.write_all(&text).and_then(|()| out.flush()).map_err(CommandError::Output)
}

/// Writes a page for each command, such as `uringlog-group-reset.1`, and returns how many.
///
/// # Errors
/// [`CommandError::Usage`] when they can't be written.
pub fn pages(directory: &Path) -> Result<usize, CommandError> {
    let write = || {
        fs::create_dir_all(directory)?;
        clap_mangen::generate_to(CommandLine::command(), directory)
    };
    write().map_err(|error| {
        CommandError::Usage(format!("cannot write man pages into {}: {error}", directory.display()))
    })?;
    Ok(count(&CommandLine::command()))
}

/// A command and all that is below it.
fn count(command: &clap::Command) -> usize {
    1 + command.get_subcommands().map(count).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_has_completions() {
        use clap::ValueEnum;
        for shell in clap_complete::Shell::value_variants() {
            let mut out = Vec::new();
            completions(*shell, &mut out).expect("memory takes it");
            let text = String::from_utf8(out).expect("text");
            assert!(text.contains("delete-offsets"), "{shell}");
        }
    }

    #[test]
    fn every_command_has_a_page() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let count = pages(directory.path()).expect("it can be written");
        assert!(count > 30, "{count}");
        assert_eq!(fs::read_dir(directory.path()).expect("it is there").count(), count);
        let page = directory.path().join("uringlog-group-reset.1");
        let text = fs::read_to_string(page).expect("it is there");
        assert!(text.contains("to\\-earliest") && text.contains(".TH"), "{text}");
        let file = directory.path().join("uringlog.1");
        let error = pages(&file).expect_err("a file is no directory").to_string();
        assert!(error.contains("uringlog.1"), "{error}");
    }
}
