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

/// What to do about an error, in words for the person who typed the command; `None` when the error
/// says all there is.
pub fn advice(error: &CommandError) -> Option<String> {
    const KNOWN: &[(i16, &str)] = &[
        (3, "list topics with: uringlog topic list"),
        (15, "the broker has no coordinator for groups; does it serve consumer groups?"),
        (17, "the broker alone writes its own topics; choose another one"),
        (23, "its members share out partitions in another way; choose theirs with --assignor"),
        (25, "the group has members; stop them first: uringlog group members GROUP"),
        (36, "use --if-not-exists where that is fine"),
        (37, "partitions can be added, not taken away; ask for more than there are"),
        (40, "see the names and values with: uringlog config describe topic/NAME --all"),
        (68, "the group has members; stop them first: uringlog group members GROUP"),
        (69, "list groups with: uringlog group list"),
        (82, "another member took over the name given with --instance"),
        (86, "the group still reads the topic; stop the members that do"),
        (111, "a member with the name given with --instance is still there; stop it first"),
        (
            112,
            "the broker shares out partitions itself; choose its way: --assignor uniform or range",
        ),
    ];
    let CommandError::Client(error) = error else { return None };
    match error {
        ClientError::Connect { .. } => Some(
            "is a broker running there? say where one is with --bootstrap HOST:PORT or in \
             URINGLOG_BOOTSTRAP"
                .to_owned(),
        ),
        ClientError::Unsupported { .. } => Some(
            "the broker is too old for this, or was made without it; see what it speaks with: \
             uringlog cluster api-versions"
                .to_owned(),
        ),
        ClientError::Wire { .. } => {
            Some("is it a Kafka broker's plain-text port (no TLS, no SASL)?".to_owned())
        }
        ClientError::Lost { .. } => Some(
            "a port that wants TLS or SASL ends connections like this; so does a broker that stops"
                .to_owned(),
        ),
        error => {
            let code = error.wire_code()?;
            let found = KNOWN.iter().find(|(known, _)| *known == code);
            found.map(|(_, text)| (*text).to_owned())
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_come_with_what_to_do() {
        let refused = |code| {
            let what = "describe group \"g\"".to_owned();
            CommandError::Client(ClientError::Refused { what, code, message: String::new() })
        };
        assert!(advice(&refused(68)).expect("known").contains("stop them first"));
        assert_eq!(advice(&refused(87)), None);
        let source = io::Error::from(io::ErrorKind::ConnectionRefused);
        let absent = ClientError::Connect { address: "h:1".to_owned(), source };
        assert!(advice(&absent.into()).expect("known").contains("--bootstrap"));
        assert_eq!(advice(&CommandError::Usage("x".to_owned())), None);
    }
}
