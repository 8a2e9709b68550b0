//! What the client commands share: how they run, what ends them, what can go wrong.

use std::io;
use std::os::unix::net::UnixStream as Pipe;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use crate::client::ClientError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The broker refused, or can't be reached.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The input can't be read.
    #[error("cannot read {name}: {source}")]
    Input {
        /// A file's name, or "standard input".
        name: String,
        /// As the system says.
        source: io::Error,
    },
    /// The output can't be written.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    /// No runtime, no signal handler.
    #[error("cannot start: {0}")]
    Start(io::Error),
    /// An argument, or the input, breaks a rule.
    #[error("{0}")]
    Usage(String),
}

impl CommandError {
    /// Whether the reader of our output has left, which is its right (`| head`).
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, CommandError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Runs a command on a runtime of its own. That the reader of standard output has left is no
/// failure.
///
/// # Errors
/// The command's own; [`CommandError::Start`].
pub fn run(command: impl Future<Output = Result<(), CommandError>>) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandError::Start)?;
    let result = runtime.block_on(command);
    // A thread that still waits for a line of standard input must not keep the process.
    runtime.shutdown_background();
    match result {
        Err(error) if error.is_broken_pipe() => Ok(()),
        other => other,
    }
}

/// SIGINT and SIGTERM, once this exists, no longer end the process but [`Interrupt::wait`]; a
/// second one ends the process after all, in case it hangs on its output.
#[derive(Debug)]
pub struct Interrupt {
    pipe: UnixStream,
}

impl Interrupt {
    /// Takes over the two signals.
    ///
    /// # Errors
    /// [`CommandError::Start`].
    pub fn install() -> Result<Interrupt, CommandError> {
        let install = || {
            let (signalled, handler) = Pipe::pair()?;
            signalled.set_nonblocking(true)?;
            let is_second = Arc::new(AtomicBool::new(false));
            for signal in [SIGINT, SIGTERM] {
                // In this order: the first signal only arms the default action of the second.
                flag::register_conditional_default(signal, Arc::clone(&is_second))?;
                flag::register(signal, Arc::clone(&is_second))?;
                signal_hook::low_level::pipe::register(signal, handler.try_clone()?)?;
            }
            UnixStream::from_std(signalled)
        };
        Ok(Interrupt { pipe: install().map_err(CommandError::Start)? })
    }

    /// Returns when one of them has come.
    pub async fn wait(&mut self) {
        // The other end is the handler's and stays open as long as the process lives.
        let _ = self.pipe.read_u8().await;
    }
}
