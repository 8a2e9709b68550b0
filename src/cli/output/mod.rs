//! What commands print: a table for people, JSON for programs, words on standard error.

mod table;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

pub use self::table::{Cell, Column, Table, Tone, left, right};
use super::command::CommandError;

/// `--color`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ColourChoice {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// So many of a thing.
pub fn plural(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Output {
    /// JSON instead of tables.
    pub json: bool,
    /// Whether there are colours.
    pub colour: bool,
    /// Whether tables may be wrapped to the width of a terminal.
    pub wrap: bool,
}

impl Output {
    /// As this process's standard output wants it.
    pub fn of_process(json: bool, choice: ColourChoice) -> Output {
        let is_terminal = io::stdout().is_terminal();
        // https://no-color.org: set and not empty.
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Output { json, colour: has_colour(choice, is_terminal, refused), wrap: is_terminal }
    }

    /// Prints the table, or else the JSON, which ends in a newline.
    ///
    /// # Errors
    /// [`CommandError::Output`].
    pub fn show(
        &self,
        out: &mut impl Write,
        table: &Table,
        json: &Value,
    ) -> Result<(), CommandError> {
        let text = if self.json { pretty(json) } else { table.render(self.colour, self.wrap) };
        print(out, &text)
    }

    /// Prints a line for people, or else the JSON.
    ///
    /// # Errors
    /// [`CommandError::Output`].
    pub fn line(&self, out: &mut impl Write, line: &str, json: &Value) -> Result<(), CommandError> {
        let text = if self.json { pretty(json) } else { format!("{line}\n") };
        print(out, &text)
    }
}

fn has_colour(choice: ColourChoice, is_terminal: bool, refused: bool) -> bool {
    match choice {
        ColourChoice::Always => true,
        ColourChoice::Never => false,
        ColourChoice::Auto => is_terminal && !refused,
    }
}

fn pretty(json: &Value) -> String {
    format!("{json:#}\n")
}

/// Prints a text and sees to it that it leaves.
///
/// # Errors
/// [`CommandError::Output`].
pub fn print(out: &mut impl Write, text: &str) -> Result<(), CommandError> {
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CommandError::Output)
}

/// Says something on standard error; that nobody listens is no failure.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Progress on standard error when that is a terminal: how many records, how fast, and how long
/// it will take where the number is known.
pub fn progress(records: Option<u64>) -> ProgressBar {
    const REDRAWS_PER_SECOND: u8 = 5;
    let (bar, template) = match records {
        Some(records) => (
            ProgressBar::new(records),
            "{bar:30} {human_pos}/{human_len} records, {per_sec}, {msg}, {eta} left",
        ),
        None => (ProgressBar::new_spinner(), "{spinner} {human_pos} records, {per_sec}, {msg}"),
    };
    let target = indicatif::ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND);
    bar.set_draw_target(target);
    bar.set_style(ProgressStyle::with_template(template).expect("the templates above hold"));
    bar
}

/// `1 record`, `2 records`.
pub fn counted(count: u64, (one, many): (&str, &str)) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// `12.3 MB/s`.
pub fn byte_rate(bytes: u64, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    let rate = if seconds > 0.0 { float(bytes) / seconds } else { 0.0 };
    format!("{:.1} MB/s", rate / 1e6)
}

/// A count for arithmetic that needn't be exact.
pub fn float(count: u64) -> f64 {
    let high = u32::try_from(count >> 32).expect("the upper half");
    let low = u32::try_from(count & u64::from(u32::MAX)).expect("the lower half");
    f64::from(high) * 4_294_967_296.0 + f64::from(low)
}

/// Bytes as people read them, in powers of 1000.
pub fn bytes(count: i64) -> String {
    let Ok(count) = u64::try_from(count) else { return "-".to_owned() };
    let units =
        [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    for (size, name) in units {
        if count >= size {
            return format!("{:.1} {name}", float(count) / float(size));
        }
    }
    format!("{count} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        assert!(has_colour(ColourChoice::Auto, true, false));
        assert!(!has_colour(ColourChoice::Auto, true, true));
        assert!(!has_colour(ColourChoice::Auto, false, false));
        assert!(has_colour(ColourChoice::Always, false, true));
        assert!(!has_colour(ColourChoice::Never, true, false));
    }

    #[test]
    fn one_is_not_many() {
        let words = ("batch", "batches");
        let shown = [0, 1, 2].map(|count| counted(count, words));
        assert_eq!(shown, ["0 batches", "1 batch", "2 batches"]);
    }

    #[test]
    fn sizes_have_one_digit_behind_the_point() {
        for (count, text) in [
            (-1, "-"),
            (0, "0 B"),
            (999, "999 B"),
            (1_500, "1.5 kB"),
            (20_000_000, "20.0 MB"),
            (3_210_000_000_000, "3.2 TB"),
        ] {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(byte_rate(5_000_000, Duration::from_secs(2)), "2.5 MB/s");
        assert_eq!(byte_rate(5, Duration::ZERO), "0.0 MB/s");
        assert!((float(1 << 40) - 1_099_511_627_776.0).abs() < 1.0);
    }

    #[test]
    fn json_and_table_say_the_same_in_their_own_way() {
        let mut table = Table::new(&[left("NAME"), right("N")]);
        table.row([Cell::from("a"), Cell::from(7)]);
        let json = serde_json::json!([{"name": "a", "n": 7}]);
        let shown = |json_wanted| {
            let mut out = Vec::new();
            let output = Output { json: json_wanted, colour: false, wrap: false };
            output.show(&mut out, &table, &json).expect("memory takes it");
            String::from_utf8(out).expect("text")
        };
        assert_eq!(shown(false), "NAME  N\na     7\n");
        let parsed: Value = serde_json::from_str(&shown(true)).expect("JSON");
        assert_eq!(parsed, json);
    }
}
