//! Where settings come from: the TOML file and `--set`, as flat names and values.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

/// Where a setting was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// In the file, at a line counted from 1.
    File {
        /// As it was given to `--config`.
        path: Arc<Path>,
        /// Line of the value.
        line: usize,
    },
    /// By `--set`.
    Set,
    /// By another flag of the command line, named here with its dashes.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Set => f.write_str("--set"),
            Origin::Flag(flag) => f.write_str(flag),
        }
    }
}

/// A name and its value as text, not checked yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// Dotted name.
    pub name: String,
    /// The value.
    pub value: String,
    /// Where it stands.
    pub origin: Origin,
}

/// A file or an argument that isn't even names and values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxError {
    /// Where.
    pub origin: Origin,
    /// What is wrong.
    pub text: String,
}

/// Reads the text of a TOML file. Tables and dotted keys make dotted names; a quoted key with dots
/// means the same. What can't be read is reported beside the rest.
pub fn parse_file(path: &Path, text: &str) -> (Vec<Given>, Vec<SyntaxError>) {
    let mut walk = Walk { path: path.into(), text, given: Vec::new(), errors: Vec::new() };
    match DeTable::parse(text) {
        Ok(table) => walk.table("", table.get_ref()),
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            walk.error(at, error.message().to_owned());
        }
    }
    (walk.given, walk.errors)
}

/// Reads an argument of `--set`.
///
/// # Errors
/// Without a `=`, or without a name before it.
pub fn parse_set(argument: &str) -> Result<Given, SyntaxError> {
    let pair = argument.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
    match pair {
        Some((name, value)) if !name.is_empty() => {
            Ok(Given { name: name.to_owned(), value: value.to_owned(), origin: Origin::Set })
        }
        _ => Err(SyntaxError {
            origin: Origin::Set,
            text: format!("{argument:?} is not NAME=VALUE"),
        }),
    }
}

struct Walk<'a> {
    path: Arc<Path>,
    text: &'a str,
    given: Vec<Given>,
    errors: Vec<SyntaxError>,
}

impl Walk<'_> {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let key = key.get_ref();
            let name = if prefix.is_empty() { key.to_string() } else { format!("{prefix}.{key}") };
            let at = value.span().start;
            match value.get_ref() {
                DeValue::Table(inner) => self.table(&name, inner),
                other => match scalar(other) {
                    Ok(value) => {
                        let origin = self.origin(at);
                        self.given.push(Given { name, value, origin });
                    }
                    Err(text) => self.error(at, format!("{name}: {text}")),
                },
            }
        }
    }

    fn origin(&self, at: usize) -> Origin {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        Origin::File { path: self.path.clone(), line }
    }

    fn error(&mut self, at: usize, text: String) {
        let origin = self.origin(at);
        self.errors.push(SyntaxError { origin, text });
    }
}

fn scalar(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Boolean(value) => Ok(value.to_string()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map(|number| number.to_string())
            .map_err(|_| "the number is too large".to_owned()),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| scalar(item.get_ref()));
            items.collect::<Result<Vec<_>, _>>().map(|items| items.join(","))
        }
        DeValue::Datetime(_) => Err("no setting is a date".to_owned()),
        DeValue::Table(_) => Err("a table can't stand in a list".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Vec<(String, String, usize)>, Vec<String>) {
        let (given, errors) = parse_file(Path::new("f.toml"), text);
        let mut rows: Vec<_> = given
            .into_iter()
            .map(|given| match given.origin {
                Origin::File { line, .. } => (given.name, given.value, line),
                other => panic!("{other}"),
            })
            .collect();
        rows.sort_by_key(|row| row.2);
        let shown = |error: SyntaxError| format!("{}: {}", error.origin, error.text);
        (rows, errors.into_iter().map(shown).collect())
    }

    #[test]
    fn quoted_dotted_and_nested_names_are_the_same() {
        let text = "\"log.segment.bytes\" = 1_048_576\nlog.roll.hours = 0x10\n\
                    auto.create.topics.enable = false\n[log.retention]\nms = \"-1\"\n\
                    [log.cleanup]\npolicy = [\"compact\", \"delete\"]\n";
        let row = |name: &str, value: &str, line| (name.to_owned(), value.to_owned(), line);
        let expected = vec![
            row("log.segment.bytes", "1048576", 1),
            row("log.roll.hours", "16", 2),
            row("auto.create.topics.enable", "false", 3),
            row("log.retention.ms", "-1", 5),
            row("log.cleanup.policy", "compact,delete", 7),
        ];
        assert_eq!(parsed(text), (expected, vec![]));
    }

    #[test]
    fn errors_have_their_line() {
        let (_, errors) = parsed("a = 1\nb = = 2\n");
        assert!(errors[0].starts_with("f.toml:2: "), "{errors:?}");
        let (rows, errors) = parsed("a = 1\nb = 2020-01-01\nc = [{d = 1}]\n");
        assert_eq!(rows.len(), 1);
        assert_eq!(errors[0], "f.toml:2: b: no setting is a date");
        assert_eq!(errors[1], "f.toml:3: c: a table can't stand in a list");
    }

    #[test]
    fn arguments_of_set() {
        let given = parse_set("log.dir = /a=b").expect("valid");
        assert_eq!((given.name.as_str(), given.value.as_str()), ("log.dir", "/a=b"));
        for bad in ["log.dir", "=x", " =x", ""] {
            assert!(parse_set(bad).is_err(), "{bad}");
        }
    }
}
