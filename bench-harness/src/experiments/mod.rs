//! Each experiment answers one question of the design with figures.

pub mod chains;
pub mod journal;
pub mod load;
pub mod measure;
pub mod splice;

use std::io;

/// Why an experiment could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
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
