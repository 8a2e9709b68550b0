//! `uringlog recover`: brings a data directory in order without serving anybody, and says what was
//! found.

use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::broker::config::{ConfigError, ServerConfig, Sources};
use crate::broker::server::{EngineChoice, ServerOptions};
use crate::broker::{RecoverError, recover};
use crate::ring::{affinity, limits};

/// What the command line says.
#[derive(Clone, Debug)]
pub struct RecoverOptions {
    /// The data directory.
    pub directory: PathBuf,
    /// `--shards`; one per core that this process may run on otherwise.
    pub shards: Option<usize>,
    /// `--engine`.
    pub engine: EngineChoice,
    /// `--config` and each `--set`.
    pub sources: Sources,
}

/// Why the command fails.
#[derive(Debug, thiserror::Error)]
pub enum RecoverCommandError {
    /// A setting.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The directory.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// The directory is in order, but lacks something.
    #[error("recovered, but not everything could be kept: see the report")]
    Lossy,
    /// The report can't be written; the directory is in order.
    #[error("recovered, but cannot write the report: {0}")]
    Output(io::Error),
}

/// Recovers, and reports on `out`.
///
/// # Errors
/// [`RecoverCommandError`].
pub fn run(options: RecoverOptions, out: &mut impl Write) -> Result<(), RecoverCommandError> {
    let config = ServerConfig::load(&options.sources)?;
    limits::raise_nofile();
    let recovery = recover(ServerOptions {
        config,
        directory: options.directory,
        // Nobody listens.
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        advertise: None,
        shards: options.shards.unwrap_or_else(|| affinity::allowed_cores().len()),
        engine: options.engine,
        log_levels: None,
        faults: None,
    })?;
    match write!(out, "{recovery}").and_then(|()| out.flush()) {
        // Whoever read the output has seen enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(RecoverCommandError::Output(error))
        }
        _ if recovery.is_lossy() => Err(RecoverCommandError::Lossy),
        _ => Ok(()),
    }
}
