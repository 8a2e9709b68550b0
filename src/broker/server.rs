//! The broker as a whole: starts the shards, keeps the files at the directory's root, stops in
//! order.
//!
//! One thread per shard, and one for the control plane's file work (checkpoints, removal of deleted
//! directories), so that no shard ever waits for a file of the root.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use tokio::sync::{Notify, oneshot};

use crate::broker::apply;
use crate::broker::capacity;
use crate::broker::chores::{self, Chores};
use crate::broker::config::ServerConfig;
use crate::broker::controller::{Controller, ControllerError};
use crate::broker::directory::{DataDirectory, DirectoryError};
use crate::broker::journals::{Journals, journals};
use crate::broker::log_levels::LogLevels;
use crate::broker::mail::{Closed, ControllerOrder, Opened, ShardOrder};
use crate::broker::node::{Brokers, Node, Shared};
use crate::broker::peers::{self, PeerOrder, Peers};
use crate::broker::placement::{SHARDS_MAX, broker_of};
use crate::broker::ports::Ports;
use crate::disk::faults::FaultHook;
use crate::log::JournalError;
use crate::ring::probe::probe;
use crate::ring::{RingError, RingOptions, affinity};
use crate::shard::edge::{self, EdgeKind};
use crate::shard::journals::{are_journals_empty, check_journals, retire_journals};
use crate::shard::{
    Engine, EngineError, EngineKind, EngineOptions, Inbox, JournalFile, Mailbox, NetworkOptions,
    ShardStats, ThreadOptions, now,
};
use crate::units::usize_of;

/// Which engine is wanted (`--engine`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineChoice {
    /// The ring where it works, else plain files.
    Auto,
    /// The ring or nothing.
    Uring,
    /// Plain files.
    PlainFile,
}

/// What a broker starts with.
#[derive(Clone)]
pub struct ServerOptions {
    /// The settings.
    pub config: ServerConfig,
    /// The data directory; made when it isn't there.
    pub directory: PathBuf,
    /// Where shard 0 listens; shard i does on port + i. Port 0 lets the system choose for each.
    pub listen: SocketAddr,
    /// The host and shard 0's port that clients are told, when they differ from `listen`.
    pub advertise: Option<(String, u16)>,
    /// How many shards.
    pub shards: usize,
    /// Which engine.
    pub engine: EngineChoice,
    /// Levels of what this process logs, for clients to change; without, they can't.
    pub log_levels: Option<Arc<LogLevels>>,
    /// Faults for tests; `None` in production.
    pub faults: Option<FaultHook>,
}

/// Why the broker doesn't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// More shards than ids or ports.
    #[error("{shards} shards: use 1 to {SHARDS_MAX}, with ports up to 65535")]
    Shards {
        /// How many were asked for.
        shards: usize,
    },
    /// The data directory can't be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A port can't be had.
    #[error("cannot listen on {address}: {error}{}", port_remedy(.error))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// `--engine uring`, and the host refuses io_uring.
    #[error("{reason}. --engine auto falls back to plain files")]
    Refused {
        /// What the probe found, and the remedy.
        reason: String,
    },
    /// A shard's thread, runtime or ring.
    #[error("shard {shard}: {reason}")]
    Shard {
        /// Which one.
        shard: usize,
        /// What went wrong.
        reason: String,
    },
    /// A journal of the last run can't be replayed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The controller can't start.
    #[error(transparent)]
    Controller(#[from] ControllerError),
}

fn port_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another process uses the port: stop it, or choose other ports with --listen (shard \
             i listens on port + i)"
        }
        io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege: choose another",
        io::ErrorKind::AddrNotAvailable => "; this host has no such address",
        _ => "",
    }
}

/// Why a stop was not clean: the next start recovers.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// A file at the root can't be written.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// What says that there are journals can't be removed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Partitions that could not be closed, or shards that failed.
    #[error("not everything could be closed: {}", .0.join("; "))]
    Unclosed(Vec<String>),
}

/// A running broker.
pub struct Server {
    directory: Arc<DataDirectory>,
    shards: Vec<ShardThread>,
    chores: Chores,
    lines: Vec<String>,
}

struct ShardThread {
    /// Where it listens, if it does.
    address: Option<SocketAddr>,
    mail: Mailbox<ShardOrder>,
    thread: JoinHandle<io::Result<Result<Closed, StartError>>>,
}

/// Asks the shards how they are; cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct Monitor {
    shards: Vec<Mailbox<ShardOrder>>,
}

impl Monitor {
    /// Counters and histograms of every shard; `None` when one has stopped.
    pub async fn stats(&self) -> Option<Vec<ShardStats>> {
        let mut all = Vec::with_capacity(self.shards.len());
        for shard in &self.shards {
            let (answer, answered) = oneshot::channel();
            shard.send(ShardOrder::Stats { answer }).await.ok()?;
            all.push(answered.await.ok()?);
        }
        Some(all)
    }
}

impl Server {
    /// Starts a broker and returns when its partitions are open and clients may come.
    ///
    /// # Errors
    /// The reason, with what to do about it; nothing is left running.
    pub fn start(mut options: ServerOptions) -> Result<Server, StartError> {
        check(&options)?;
        let chosen = choose(options.engine)?;
        let ports = Ports::listen(&options)?;
        capacity::fit(&mut options.config, chosen.kind, options.shards);
        let directory = DataDirectory::open(&options.directory, options.config.node_id, now())?;
        check_journals(directory.path(), directory.id())?;
        // The clean marker goes when the metadata was read. What a journal has goes into files of
        // partitions before, and they are as after a crash until all is over.
        if !are_journals_empty(directory.path(), directory.id())? {
            directory.begin()?;
        }
        let journals = journals(&directory, &options)?;
        let (server, _) = Server::open(options, chosen, (directory, journals), Some(ports))?;
        Ok(server)
    }

    /// Opens every partition of a directory, for clients to come to these ports, or for nobody.
    /// Says what opening them found.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub(super) fn open(
        options: ServerOptions,
        chosen: Chosen,
        (directory, journals): (DataDirectory, Journals),
        ports: Option<Ports>,
    ) -> Result<(Server, Vec<Opened>), StartError> {
        let directory = Arc::new(directory);
        let node = options.config.node_id;
        let (brokers, listeners) = match ports {
            Some(Ports { brokers, listeners }) => {
                (brokers, listeners.into_iter().map(Some).collect())
            }
            None => (Brokers::none(node), (0..options.shards).map(|_| None).collect()),
        };
        let shared = Arc::new(Shared {
            brokers,
            node,
            shards: options.shards,
            cluster_id: directory.identity.cluster_id.clone(),
            directory: options.directory,
            directory_id: directory.id(),
            was_clean: directory.was_clean && journals.were_empty,
            checkpoints: directory.checkpoints(),
            found: directory.partitions()?,
            root: directory.clone(),
            log_levels: options.log_levels,
            config: options.config,
        });
        let starting = Starting { chosen, journals: journals.files, faults: options.faults };
        let (shards, opened) = start_shards(&shared, starting, listeners)?;
        let mut lines = vec![journals.line];
        lines.extend(ready_lines(&shared, chosen, &shards));
        let mail = shards.iter().map(|shard| shard.mail.clone()).collect();
        let chores = chores::start(directory.clone(), &shared.config, mail);
        Ok((Server { directory, shards, chores, lines }, opened))
    }

    /// How acknowledgements are made durable; then one line per shard: broker id, address, core,
    /// engine.
    pub fn ready_lines(&self) -> &[String] {
        &self.lines
    }

    /// Where the shards listen.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.shards.iter().filter_map(|shard| shard.address)
    }

    /// For whoever scrapes.
    pub fn monitor(&self) -> Monitor {
        Monitor { shards: self.shards.iter().map(|shard| shard.mail.clone()).collect() }
    }

    /// Stops in order: answers that are due leave, every partition is closed, checkpoints and the
    /// clean marker are written.
    ///
    /// # Errors
    /// What could not be closed; the next start then recovers.
    pub fn stop(mut self) -> Result<(), StopError> {
        self.chores.order_stop();
        let mut all = Closed::default();
        for (shard, closed) in stop_shards(self.shards) {
            match closed {
                Ok(closed) => {
                    all.reports.extend(closed.reports);
                    all.failed.extend(closed.failed);
                }
                Err(reason) => all.failed.push(format!("shard {shard}: {reason}")),
            }
        }
        all.reports.sort_by(|one, other| one.key.cmp(&other.key));
        // What it was writing comes before the last word.
        self.chores.stop();
        self.directory.write_checkpoints(&all.reports)?;
        if !all.failed.is_empty() {
            return Err(StopError::Unclosed(all.failed));
        }
        retire_journals(self.directory.path())?;
        Ok(self.directory.mark_clean()?)
    }
}

/// The engine that runs, and the runtime of the network side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub kind: EngineKind,
    edge: EdgeKind,
}

pub(super) fn check(options: &ServerOptions) -> Result<(), StartError> {
    let shards = options.shards;
    let fits = |port: u16| usize::from(port) + shards <= 1 + usize::from(u16::MAX);
    let ports_fit = options.advertise.as_ref().is_none_or(|(_, port)| fits(*port));
    let last = i32::try_from(shards).ok().and_then(|it| it.checked_add(options.config.node_id.0));
    let ids_fit = last.is_some();
    if (1..=SHARDS_MAX).contains(&shards) && fits(options.listen.port()) && ports_fit && ids_fit {
        return Ok(());
    }
    Err(StartError::Shards { shards })
}

pub(super) fn choose(choice: EngineChoice) -> Result<Chosen, StartError> {
    let found = probe().ring;
    let edge = match &found {
        Ok(features) if features.socket_reads_wait => EdgeKind::Uring,
        Ok(_) | Err(_) => EdgeKind::Tokio,
    };
    match (choice, found) {
        (EngineChoice::Auto | EngineChoice::Uring, Ok(_)) => {
            Ok(Chosen { kind: EngineKind::Ring, edge })
        }
        (EngineChoice::PlainFile, _) => Ok(Chosen { kind: EngineKind::PlainFile, edge }),
        (EngineChoice::Uring, Err(error)) => Err(StartError::Refused { reason: error.to_string() }),
        (EngineChoice::Auto, Err(error)) => {
            tracing::warn!("{error}. Serving with plain files instead");
            Ok(Chosen { kind: EngineKind::PlainFile, edge })
        }
    }
}

/// What a shard's thread starts with.
struct ShardStart {
    shard: usize,
    shared: Arc<Shared>,
    engine: EngineOptions,
    edge: EdgeKind,
    listener: Option<TcpListener>,
    inbox: Inbox<ShardOrder>,
    controller: Mailbox<ControllerOrder>,
    /// The way to the other shards, and what they ask.
    peers: (Peers, Inbox<PeerOrder>),
    /// Shard 0 only: the orders of the controller and the mailboxes of all shards.
    control: Option<(Inbox<ControllerOrder>, Vec<Mailbox<ShardOrder>>)>,
    /// Told once by every shard when its engine runs, and again by shard 0 when all serve.
    started: Started,
}

/// Where a shard says that it has started, and shard 0 also what opening all partitions found.
type Started = mpsc::Sender<Result<Vec<Opened>, StartError>>;

/// What the shards start with.
struct Starting {
    chosen: Chosen,
    /// One for each shard, or none.
    journals: Vec<JournalFile>,
    faults: Option<FaultHook>,
}

fn start_shards(
    shared: &Arc<Shared>,
    starting: Starting,
    listeners: Vec<Option<TcpListener>>,
) -> Result<(Vec<ShardThread>, Vec<Opened>), StartError> {
    let Starting { chosen, journals, faults } = starting;
    let mut journals = journals.into_iter();
    let (controller, orders) = Mailbox::new();
    let (mails, inboxes): (Vec<_>, Vec<_>) = listeners.iter().map(|_| Mailbox::new()).unzip();
    let mut control = Some((orders, mails.clone()));
    let mut shards = Vec::with_capacity(listeners.len());
    let mut outcomes = Vec::with_capacity(listeners.len());
    let (peers, questions) = Peers::new(listeners.len());
    let inboxes = inboxes.into_iter().zip(questions);
    for (shard, (listener, (inbox, asked))) in listeners.into_iter().zip(inboxes).enumerate() {
        let (started, outcome) = mpsc::channel();
        let address = listener.as_ref().and_then(|it| it.local_addr().ok());
        let start = ShardStart {
            shard,
            shared: shared.clone(),
            engine: EngineOptions {
                journal: journals.next(),
                ..engine_options(shared, chosen, faults.clone())
            },
            edge: chosen.edge,
            listener,
            inbox,
            controller: controller.clone(),
            peers: (peers.clone(), asked),
            control: control.take(),
            started,
        };
        let options = ThreadOptions {
            name: format!("shard-{shard}"),
            core: core_of(shard),
            edge: chosen.edge,
        };
        let thread = crate::shard::start_thread(options, move || run_shard(start));
        let failed = |error: io::Error| StartError::Shard { shard, reason: error.to_string() };
        match thread.map_err(failed) {
            Ok(thread) => shards.push(ShardThread { address, mail: mails[shard].clone(), thread }),
            Err(error) => return Err(give_up(shards, error)),
        }
        outcomes.push(outcome);
    }
    drop(controller);
    match wait(&outcomes) {
        Ok(opened) => Ok((shards, opened)),
        Err(error) => Err(give_up(shards, error)),
    }
}

/// The core that a shard is pinned to: the shards go round those that the process may run on.
fn core_of(shard: usize) -> Option<usize> {
    let cores = affinity::allowed_cores();
    cores.get(shard % cores.len().max(1)).copied()
}

fn engine_options(shared: &Shared, chosen: Chosen, faults: Option<FaultHook>) -> EngineOptions {
    let config = &shared.config;
    EngineOptions {
        retention_check_ms: config.retention_check_ms,
        first_retention_ms: config.first_task_delay_ms,
        sealed_files_max: capacity::sealed_files_max(config),
        files_max: usize_of(u64::from(config.ring_files_max)),
        splice_bytes_min: config.splice_bytes_min,
        ring: RingOptions {
            entries: config.ring_entries,
            cq_entries: CQ_ENTRIES_PER_ENTRY * config.ring_entries,
            files_max: config.ring_files_max,
            pipes_max: usize_of(u64::from(config.pipes_max)),
            workers_bounded: config.workers_bounded_max,
            workers_unbounded: config.workers_unbounded_max,
            ..RingOptions::default()
        },
        cleaner: config.cleaner.share(shared.shards),
        faults,
        ..EngineOptions::new(shared.directory.clone(), chosen.kind)
    }
}

/// Completions that the storage ring holds for each entry that it takes.
const CQ_ENTRIES_PER_ENTRY: u32 = 4;

/// Waits until every engine runs and the controller has opened the broker.
fn wait(
    outcomes: &[mpsc::Receiver<Result<Vec<Opened>, StartError>>],
) -> Result<Vec<Opened>, StartError> {
    let receive = |(shard, outcome): (usize, &mpsc::Receiver<_>)| match outcome.recv() {
        Ok(outcome) => outcome,
        // The thread ended without a word: its result says why.
        Err(mpsc::RecvError) => Err(StartError::Shard { shard, reason: String::new() }),
    };
    outcomes.iter().enumerate().try_for_each(|it| receive(it).map(drop))?;
    outcomes.iter().enumerate().take(1).try_fold(Vec::new(), |_, it| receive(it))
}

/// Stops what was started, and returns the reason that says most.
fn give_up(shards: Vec<ShardThread>, error: StartError) -> StartError {
    let ends: Vec<_> = stop_shards(shards).collect();
    match error {
        StartError::Shard { shard, reason } if reason.is_empty() => {
            let end = ends.into_iter().find(|(number, _)| *number == shard);
            let reason = end.and_then(|(_, end)| end.err());
            let reason = reason.unwrap_or_else(|| "the thread ended".to_owned());
            StartError::Shard { shard, reason }
        }
        other => other,
    }
}

/// Orders all shards to stop, then waits for each.
fn stop_shards(shards: Vec<ShardThread>) -> impl Iterator<Item = (usize, Result<Closed, String>)> {
    for shard in &shards {
        // One that has stopped already says so by its result.
        let _ = shard.mail.send_blocking(ShardOrder::Stop);
    }
    shards.into_iter().enumerate().map(|(number, shard)| {
        let end = match shard.thread.join() {
            Ok(Ok(Ok(closed))) => Ok(closed),
            Ok(Ok(Err(error))) => Err(error.to_string()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the thread panicked".to_owned()),
        };
        (number, end)
    })
}

/// A shard from its start to its end, on its thread.
async fn run_shard(start: ShardStart) -> Result<Closed, StartError> {
    let ShardStart { shard, shared, engine, edge, listener, started, .. } = start;
    let ShardStart { inbox, controller, control, peers: (peers, asked), .. } = start;
    let failed = |error: String| StartError::Shard { shard, reason: error };
    let engine = match Engine::start(engine) {
        Ok(engine) => engine,
        Err(error) => {
            // Whoever waits has the reason from here; nobody waits for a second one.
            let _ = started.send(Err(engine_error(shard, error)));
            return Ok(Closed::default());
        }
    };
    let options = network_options(&shared.config);
    let node = Node::new(shard, shared, engine.clone(), (controller, peers));
    let stop = Rc::new(Notify::new());
    edge::spawn(apply::obey(node.clone(), inbox, stop.clone()));
    edge::spawn(peers::obey(node.clone(), asked));
    // The receiver waits as long as threads start, so a failed send is a start given up.
    let _ = started.send(Ok(Vec::new()));
    if let Some((orders, shards)) = control {
        edge::spawn(control_plane(node.clone(), orders, shards, started));
    }
    let served = match listener {
        Some(listener) => {
            crate::shard::serve(&engine, (edge, listener), node.clone(), (options, stop)).await
        }
        None => {
            stop.notified().await;
            Ok(())
        }
    };
    let closed = node.close().await;
    served.map_err(|error| failed(error.to_string()))?;
    Ok(closed)
}

fn engine_error(shard: usize, error: EngineError) -> StartError {
    match error {
        EngineError::Ring(error) => ring_error(shard, &error),
        other => StartError::Shard { shard, reason: other.to_string() },
    }
}

fn ring_error(shard: usize, error: &RingError) -> StartError {
    let reason = format!("{error}; --engine plain-file does without a ring");
    StartError::Shard { shard, reason }
}

async fn control_plane(
    node: Rc<Node>,
    orders: Inbox<ControllerOrder>,
    shards: Vec<Mailbox<ShardOrder>>,
    started: Started,
) {
    match Controller::start(node, shards).await {
        Ok((controller, opened)) => {
            // A failed send is a start given up; the order to stop follows.
            let _ = started.send(Ok(opened));
            drop(started);
            controller.run(orders).await;
        }
        Err(error) => drop(started.send(Err(error.into()))),
    }
}

fn network_options(config: &ServerConfig) -> NetworkOptions {
    NetworkOptions {
        frame_bytes_max: config.request_bytes_max,
        frames_bytes_max: config.frames_bytes_max,
        connections_max: usize_of(u64::from(config.connections_max)),
        pipeline_max: usize_of(u64::from(config.pipeline_max)),
        idle_ms: config.connection_idle_ms_max.unwrap_or(u64::MAX),
    }
}

fn ready_lines(shared: &Shared, chosen: Chosen, shards: &[ShardThread]) -> Vec<String> {
    let engine = match chosen.kind {
        EngineKind::Ring => "uring",
        EngineKind::PlainFile => "plain-file",
    };
    let line = |(number, shard): (usize, &ShardThread)| {
        let id = broker_of(shared.node, number);
        let core = match core_of(number) {
            Some(core) => format!("core {core}"),
            None => "any core".to_owned(),
        };
        let address = shard.address?;
        Some(format!("ready: broker {id} on {address}, {core}, engine {engine}"))
    };
    shards.iter().enumerate().filter_map(line).collect()
}

/// Where a broker keeps its data, for messages.
pub fn place(server: &Server) -> PathBuf {
    server.directory.path().to_owned()
}
