//! `uringlog serve`: starts a broker, says when it is ready, stops it in order.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::oneshot;

use crate::broker::config::{ConfigError, ServerConfig, Sources};
use crate::broker::http;
use crate::broker::log_levels::LogLevels;
use crate::broker::server::{EngineChoice, Server, ServerOptions};
use crate::broker::{StartError, StopError};
use crate::ring::{affinity, limits};

/// What the command line says.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// `--dir`; `log.dirs` of the configuration otherwise, and `data` without either.
    pub directory: Option<PathBuf>,
    /// `--listen`.
    pub listen: SocketAddr,
    /// `--advertise`.
    pub advertise: Option<(String, u16)>,
    /// `--shards`; one per core that this process may run on otherwise.
    pub shards: Option<usize>,
    /// `--engine`.
    pub engine: EngineChoice,
    /// `--config`, each `--set` and `--durability`.
    pub sources: Sources,
    /// `--http`.
    pub http: Option<SocketAddr>,
}

/// The data directory when nothing names one.
const DIRECTORY_DEFAULT: &str = "data";

/// Why serving ends with a failure.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A setting.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The broker doesn't start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The HTTP port can't be had.
    #[error("cannot listen on {address} (--http): {error}")]
    Http {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
    /// Signals can't be waited for, or the cores can't be asked for.
    #[error("cannot set the process up: {0}")]
    Process(std::io::Error),
    /// The stop was not clean.
    #[error("stopped, but not cleanly: {0}; the next start recovers")]
    Stop(#[from] StopError),
}

/// Serves until SIGTERM or SIGINT. Clients may change the levels of what is logged.
///
/// # Errors
/// [`ServeError`]: the process exits non-zero with its message.
pub fn run(options: ServeOptions, log_levels: LogLevels) -> Result<(), ServeError> {
    // Taken over before anything starts, so that a stop never finds the process unprepared.
    let orders = Orders::take_over().map_err(ServeError::Process)?;
    let config = ServerConfig::load(&options.sources)?;
    config.shadowed().iter().for_each(|line| tracing::warn!("{line}"));
    limits::raise_nofile();
    let http = options.http.map(bind).transpose()?;
    let shards = match options.shards {
        Some(shards) => shards,
        None => affinity::allowed_cores().len(),
    };
    let directory = options
        .directory
        .or_else(|| config.directory.clone())
        .unwrap_or_else(|| PathBuf::from(DIRECTORY_DEFAULT));
    let server = Server::start(ServerOptions {
        config,
        directory,
        listen: options.listen,
        advertise: options.advertise,
        shards,
        engine: options.engine,
        log_levels: Some(Arc::new(log_levels)),
        faults: None,
    })?;
    orders.expect();
    let scraped = http.map(|listener| Scraped::start(listener, &server)).transpose()?;
    server.ready_lines().iter().for_each(|line| println!("{line}"));
    let signal = orders.next();
    tracing::info!(signal, "stopping");
    if let Some(scraped) = scraped {
        scraped.stop();
    }
    Ok(server.stop()?)
}

fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).map_err(|error| ServeError::Http { address, error })
}

/// The signals that order a stop. Until the server is ready there is nothing to stop in order, and
/// a start that recovers may take long: the process ends at once then, as shells expect it.
struct Orders {
    is_ready: Arc<AtomicBool>,
    signals: mpsc::Receiver<i32>,
}

/// What shells add to a signal's number.
const ENDED_BY_SIGNAL: i32 = 128;

impl Orders {
    fn take_over() -> std::io::Result<Orders> {
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        let is_ready = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let is_expected = is_ready.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                if !is_expected.load(Ordering::Acquire) {
                    tracing::warn!(signal, "ended before it was ready");
                    std::process::exit(ENDED_BY_SIGNAL + signal);
                }
                if sender.send(signal).is_err() {
                    return;
                }
            }
        })?;
        Ok(Orders { is_ready, signals: receiver })
    }

    /// The server is ready: from here on it is stopped in order.
    fn expect(&self) {
        self.is_ready.store(true, Ordering::Release);
    }

    fn next(&self) -> i32 {
        self.signals.recv().expect("the thread waits for signals as long as anyone listens")
    }
}

/// The thread of the HTTP port.
struct Scraped {
    ready: Arc<AtomicBool>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Scraped {
    fn start(listener: TcpListener, server: &Server) -> Result<Scraped, ServeError> {
        let ready = Arc::new(AtomicBool::new(true));
        let sources = http::Sources { monitor: server.monitor(), ready: ready.clone() };
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || http::serve(listener, sources, stopped))
            .map_err(ServeError::Process)?;
        Ok(Scraped { ready, stop, thread })
    }

    fn stop(self) {
        self.ready.store(false, Ordering::Release);
        // A thread that has ended already needs no word.
        let _ = self.stop.send(());
        match self.thread.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the HTTP port had failed"),
            Err(_) => tracing::warn!("the thread of the HTTP port had panicked"),
        }
    }
}
