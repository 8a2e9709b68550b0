//! Each experiment answers one question of the design with figures.

pub mod chains;
pub mod end_to_end;
pub mod journal;
pub mod limits;
pub mod load;
pub mod measure;
pub mod roll_by_size;
pub mod self_test;
pub mod soak;
pub mod splice;

use std::io;
use std::path::{Path, PathBuf};

/// Why an experiment could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line asks for something that there isn't.
    #[error("{0}")]
    Usage(String),
    /// It can't be had here, and that is no failure: the reason.
    #[error("skipped: {0}")]
    Skipped(String),
    /// Ctrl-C, or SIGTERM.
    #[error("interrupted")]
    Interrupted,
    /// A file or folder refused a call.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Path { doing: &'static str, path: PathBuf, source: io::Error },
    /// The engine can't be had, or stopped serving.
    #[error(transparent)]
    Engine(#[from] uringlog::EngineError),
    /// A batch was refused, or lost.
    #[error(transparent)]
    Append(#[from] uringlog::AppendError),
    /// Records can't be read.
    #[error(transparent)]
    Read(#[from] uringlog::ReadError),
    /// The machine refused a call.
    #[error("{doing}: {source}")]
    Io { doing: &'static str, source: io::Error },
    /// The broker refused, or could not be reached.
    #[error(transparent)]
    Client(#[from] uringlog::client::ClientError),
    /// What came out contradicts what must hold.
    #[error("wrong: {0}")]
    Wrong(String),
}

/// Names what was being done when a call failed.
pub trait Doing<T> {
    /// Turns the error into a [`Failure::Io`].
    fn doing(self, doing: &'static str) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, doing: &'static str) -> Result<T, Failure> {
        self.map_err(|source| Failure::Io { doing, source: source.into() })
    }
}

/// Names the file or folder that a call was about.
pub trait DoingTo<T> {
    /// Turns the error into a [`Failure::Path`].
    fn doing_to(self, doing: &'static str, path: &Path) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> DoingTo<T> for Result<T, E> {
    fn doing_to(self, doing: &'static str, path: &Path) -> Result<T, Failure> {
        self.map_err(|source| Failure::Path { doing, path: path.into(), source: source.into() })
    }
}
