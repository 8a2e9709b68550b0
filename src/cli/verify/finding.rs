//! What is told about a file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::cli::log_file::LogFileError;
use crate::cli::object::{long, object, text};
use crate::format::schema::Value;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The file isn't what it should be.
    Damage,
    /// Worth knowing, and nothing wrong.
    Note,
    /// It could not be looked at.
    Unseen,
}

/// One thing to tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// How bad it is.
    pub kind: Kind,
    /// The file or folder.
    pub path: PathBuf,
    /// Byte of the file.
    pub position: Option<u64>,
    /// What it is.
    pub what: String,
}

impl Finding {
    /// Something is wrong.
    pub fn damage(path: &Path, position: Option<u64>, what: impl ToString) -> Finding {
        Finding { kind: Kind::Damage, path: path.to_owned(), position, what: what.to_string() }
    }

    /// Something is to be told.
    pub fn note(path: &Path, what: impl ToString) -> Finding {
        let what = what.to_string();
        Finding { kind: Kind::Note, path: path.to_owned(), position: None, what }
    }

    /// Something could not be looked at.
    pub fn unseen(path: &Path, what: impl ToString) -> Finding {
        let what = what.to_string();
        Finding { kind: Kind::Unseen, path: path.to_owned(), position: None, what }
    }

    /// What reading a log came upon.
    pub fn of_log(error: LogFileError) -> Finding {
        match error {
            LogFileError::Read { path, error } => Finding::unread(&path, &error),
            LogFileError::Corrupt { path, what } => Finding::damage(&path, None, what),
        }
    }

    /// Something that was listed can't be read. A running broker removes what waits for it.
    pub fn unread(path: &Path, error: &io::Error) -> Finding {
        if error.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_err() {
            return Finding::note(path, "is gone since it was listed: a server has removed it");
        }
        Finding::unseen(path, format!("cannot be read: {error}"))
    }

    /// An object on a line.
    pub fn to_json(&self) -> Value {
        let fields = [
            ("file", text(self.path.display())),
            ("position", self.position.map_or(Value::Null, long)),
            ("what", text(&self.what)),
        ];
        object(self.kind.name(), fields)
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Damage => "finding",
            Kind::Note => "note",
            Kind::Unseen => "unseen",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.kind.name(), self.path.display())?;
        if let Some(position) = self.position {
            write!(f, "position {position}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// Findings about one file. A file that is wrong from front to back is not told of a million times.
pub struct Limited {
    path: PathBuf,
    findings: Vec<Finding>,
    more: u64,
}

/// Findings of a file that are told one by one.
const FINDINGS_MAX: usize = 20;

impl Limited {
    /// About this file.
    pub fn new(path: &Path) -> Limited {
        Limited { path: path.to_owned(), findings: Vec::new(), more: 0 }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Something is wrong at a position.
    pub fn damage(&mut self, position: impl Into<Option<u64>>, what: impl ToString) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding::damage(&self.path, position.into(), what));
        } else {
            self.more += 1;
        }
    }

    /// What is told in the end.
    pub fn into_findings(mut self) -> Vec<Finding> {
        if self.more != 0 {
            let what = format!("{} more findings like these", self.more);
            self.findings.push(Finding::damage(&self.path, None, what));
        }
        self.findings
    }
}
