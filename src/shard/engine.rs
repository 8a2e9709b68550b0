//! One shard's engine: the loop that joins logs and disk.
//!
//! Append during the turn, plan at its end: the first append of a turn wakes the flusher, which
//! yields once (so that every connection that is ready has appended too), plans all dirty
//! partitions and enters the kernel once. Completions come back through one task that drains the
//! ring. Everything here runs on one thread; nothing mutable is held across a wait.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, oneshot};

use crate::disk::faults::FaultHook;
use crate::disk::lock::DirectoryLock;
use crate::disk::plain::PlainDisk;
use crate::disk::{Disk, Finished, Plan, PlanTag};
use crate::format::names::TopicName;
use crate::format::partition_metadata;
use crate::log::{
    Cause, Durability, LogConfig, LogSpec, LogState, Opening, PartitionLog, RecoveryReport,
};
use crate::ring::{RingDisk, RingOptions, SendError};
use crate::shard::cleaner::{Cleaner, CleanerOptions};
use crate::shard::edge;
use crate::shard::error::EngineError;
use crate::shard::journal::JournalDesk;
use crate::shard::journals::{self, JournalFile, JournalOptions};
use crate::shard::partition::{Partition, PartitionCell, ReadSlice};
use crate::shard::stats::{ShardStats, Stats};
use crate::shard::storage::{Aside, EngineKind, Storage};
use crate::shard::turns;
use crate::units::{ByteCount, LeaderEpoch, PartitionId, Timestamp, TopicId};

/// How one shard's engine is set up.
#[derive(Clone)]
pub struct EngineOptions {
    /// The data directory.
    pub directory: PathBuf,
    /// Which engine runs the plans.
    pub kind: EngineKind,
    /// How the ring is set up; unused by plain files.
    pub ring: RingOptions,
    /// Slices of at least this many bytes travel by splice (ring engine only).
    pub splice_bytes_min: ByteCount,
    /// How often retention looks (`log.retention.check.interval.ms`).
    pub retention_check_ms: u64,
    /// When it looks for the first time (`log.initial.task.delay.ms`).
    pub first_retention_ms: u64,
    /// Heap that loaded indexes of sealed segments may take, all partitions of the shard together.
    pub sealed_index_bytes_max: ByteCount,
    /// Sealed segments whose files may be open at a time.
    pub sealed_files_max: usize,
    /// Files that plain files may keep open; the ring's table has its size in `ring`.
    pub files_max: usize,
    /// How compacted logs are cleaned.
    pub cleaner: CleanerOptions,
    /// How [`Engine::open_directory`] makes the commit journal.
    pub journals: JournalOptions,
    /// The commit journal, made ready; `None`: every plan of the device tier syncs its own files.
    pub journal: Option<JournalFile>,
    /// Faults for tests; `None` in production.
    pub faults: Option<FaultHook>,
}

impl EngineOptions {
    /// Defaults for a directory.
    pub fn new(directory: impl Into<PathBuf>, kind: EngineKind) -> EngineOptions {
        EngineOptions {
            directory: directory.into(),
            kind,
            ring: RingOptions::default(),
            splice_bytes_min: ByteCount(128 << 10),
            retention_check_ms: 300_000,
            first_retention_ms: 30_000,
            sealed_index_bytes_max: ByteCount(32 << 20),
            // The others of the table's are for active segments.
            sealed_files_max: 1024,
            files_max: 1 << 20,
            cleaner: CleanerOptions::default(),
            journals: JournalOptions::default(),
            journal: None,
            faults: None,
        }
    }
}

/// Which partition, and how it is to behave.
#[derive(Clone, Debug)]
pub struct PartitionSpec {
    /// Its topic.
    pub topic: TopicName,
    /// Its number in the topic.
    pub partition: PartitionId,
    /// The topic's id, which `partition.metadata` carries.
    pub topic_id: TopicId,
    /// The settings.
    pub config: LogConfig,
    /// The epoch that batches are stamped with.
    pub leader_epoch: LeaderEpoch,
}

impl PartitionSpec {
    /// Partition 0 of a topic with a new id, with Kafka's defaults in the given tier.
    pub fn new(topic: TopicName, durability: Durability) -> PartitionSpec {
        PartitionSpec {
            topic,
            partition: PartitionId(0),
            topic_id: TopicId::random(),
            config: LogConfig::defaults(durability),
            leader_epoch: LeaderEpoch(0),
        }
    }
}

/// The engine of one shard; cheap to clone, bound to its thread.
#[derive(Clone)]
pub struct Engine {
    pub(crate) core: Rc<Core>,
}

pub(crate) struct Core {
    pub options: EngineOptions,
    storage: RefCell<Storage>,
    /// By the number of their log; a number is never given twice.
    partitions: RefCell<HashMap<u32, Rc<PartitionCell>>>,
    numbers: Cell<u32>,
    /// Partitions with something staged, each once.
    dirty: RefCell<Vec<Rc<PartitionCell>>>,
    turn: Notify,
    /// Plans that somebody waits for.
    runs: RefCell<HashMap<PlanTag, oneshot::Sender<Finished>>>,
    /// Splices that somebody waits for, by token.
    sends: RefCell<HashMap<u64, Sending>>,
    next_token: Cell<u64>,
    pub stats: Stats,
    pub sealed: RefCell<crate::shard::sealed::SealedFiles>,
    stopped: Cell<bool>,
    pub desk: JournalDesk,
    pub house: crate::shard::chores::House,
    pub cleaner: Cleaner,
    /// Held from [`Engine::open_directory`] until [`Engine::close`].
    lock: RefCell<Option<DirectoryLock>>,
}

/// A splice under way: its socket stays open until the ring is done with it.
struct Sending {
    _socket: Rc<OwnedFd>,
    outcome: oneshot::Sender<Result<(), SendError>>,
}

impl Engine {
    /// Starts the engine on this thread's runtime (see [`edge::run`]).
    ///
    /// # Errors
    /// [`EngineError::Ring`] and [`EngineError::Runtime`].
    pub fn start(options: EngineOptions) -> Result<Engine, EngineError> {
        let storage = storage(&options)?;
        let completions = storage.completions().map_err(EngineError::Runtime)?;
        let sealed = crate::shard::sealed::SealedFiles::new(
            options.sealed_index_bytes_max,
            options.sealed_files_max,
        );
        let core = Rc::new(Core {
            options,
            storage: RefCell::new(storage),
            partitions: RefCell::default(),
            numbers: Cell::new(0),
            dirty: RefCell::default(),
            turn: Notify::new(),
            runs: RefCell::default(),
            sends: RefCell::default(),
            next_token: Cell::new(0),
            stats: Stats::default(),
            sealed: RefCell::new(sealed),
            stopped: Cell::new(false),
            desk: JournalDesk::default(),
            house: crate::shard::chores::House::default(),
            cleaner: Cleaner::default(),
            lock: RefCell::default(),
        });
        if let Some(journal) = core.options.journal.clone() {
            core.open_journal(journal)?;
        }
        edge::spawn(turns::flusher(core.clone()));
        if let Some(descriptor) = completions {
            let watched = edge::watch(descriptor).map_err(EngineError::Runtime)?;
            edge::spawn(turns::reaper(core.clone(), watched));
        }
        edge::spawn(crate::shard::chores::run(core.clone()));
        edge::spawn(crate::shard::chores::keep_on(core.clone()));
        Ok(Engine { core })
    }

    /// Starts the engine on a data directory that nobody else works on: makes it if it isn't there,
    /// and holds its `.lock`, the one that Kafka and the server take, until [`Engine::close`].
    ///
    /// # Errors
    /// [`EngineError::Directory`], [`EngineError::Lock`], [`EngineError::Journal`], and those of
    /// [`Engine::start`].
    pub fn open_directory(options: EngineOptions) -> Result<Engine, EngineError> {
        let path = options.directory.clone();
        std::fs::create_dir_all(&path)
            .map_err(|error| EngineError::Directory { path: path.clone(), error })?;
        let lock = DirectoryLock::acquire(&path)?;
        journals::check_directory(&path)?;
        lock.take_clean_marker()
            .map_err(|error| EngineError::Directory { path: path.clone(), error })?;
        let journal = journals::of_directory(&path, options.journals)?;
        let options = EngineOptions { journal, ..options };
        let engine = Engine::start(options)?;
        engine.core.lock.replace(Some(lock));
        Ok(engine)
    }

    /// Which engine runs the plans.
    pub fn kind(&self) -> EngineKind {
        self.core.options.kind
    }

    /// Opens a partition that is on disk, recovering it if need be. Blocks the shard meanwhile.
    ///
    /// # Errors
    /// [`EngineError::Open`], [`EngineError::Stopped`].
    pub fn open(
        &self,
        spec: PartitionSpec,
        opening: Opening,
    ) -> Result<(Partition, RecoveryReport), EngineError> {
        if self.core.is_stopped() {
            return Err(EngineError::Stopped);
        }
        let (number, spec, directory) = self.core.name(spec);
        let opened =
            self.core.blocking(number, |disk| PartitionLog::open(disk, spec, opening, now()));
        let (log, report) = opened?;
        let cell = self.core.add(number, log, directory);
        Ok((Partition::new(self.core.clone(), cell), report))
    }

    /// Opens the partition that lies in its place, or makes it: what most users of the library
    /// want. The topic id that an existing partition carries stays. Its files are checked from the
    /// first segment on, which takes a while for a large log, since nothing says how they were
    /// left.
    ///
    /// # Errors
    /// [`EngineError::Directory`], [`EngineError::Metadata`], and those of [`Engine::create`] and
    /// [`Engine::open`].
    pub async fn open_or_create(&self, spec: PartitionSpec) -> Result<Partition, EngineError> {
        let name = format!("{}-{}", spec.topic, spec.partition);
        let directory = self.core.options.directory.join(name);
        if !directory.is_dir() {
            return self.create(spec).await;
        }
        let path = directory.join(partition_metadata::FILE_NAME);
        let topic_id = match std::fs::read(&path) {
            Ok(bytes) => partition_metadata::parse(&bytes)
                .map_err(|error| EngineError::Metadata { path, error })?,
            // Kafka before 2.8, or a kill while it was made: opening writes the file.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => spec.topic_id,
            Err(error) => return Err(EngineError::Directory { path, error }),
        };
        let opening = Opening {
            clean: false,
            recovery_point: None,
            log_start: None,
            leader_epoch_bump: true,
        };
        let (partition, report) = self.open(PartitionSpec { topic_id, ..spec }, opening)?;
        if report.is_lossy() {
            tracing::error!(partition = %partition.directory().display(), "{report}");
        }
        partition.become_leader(partition.leader_epoch());
        Ok(partition)
    }

    /// All partitions of this engine.
    pub fn partitions(&self) -> Vec<Partition> {
        let cells = self.core.partitions.borrow();
        cells.values().map(|cell| Partition::new(self.core.clone(), cell.clone())).collect()
    }

    /// Counters and stage histograms as of now.
    pub fn stats(&self) -> ShardStats {
        let ring = self.core.storage.borrow_mut().ring().map(|ring| ring.counters());
        self.core.stats.snapshot(ring, self.core.journal_stats())
    }

    /// Clean stop: what is staged is written, then every log is trimmed, synced and closed. The
    /// engine is of no further use.
    ///
    /// Returns the partitions that could not be closed, with the reason.
    pub async fn close(&self) -> Vec<(PathBuf, String)> {
        self.core.stopped.set(true);
        let cells = self.core.all_drained().await;
        let (mut closing, mut failed) = (Vec::new(), Vec::new());
        for cell in &cells {
            if let LogState::ReadOnly(cause) | LogState::Offline(cause) = cell.log.borrow().state()
            {
                failed.push((cell.directory.to_path_buf(), cause.to_string()));
            }
            let plan = cell.log.borrow_mut().close(now());
            closing.push((cell.clone(), self.core.start(plan)));
        }
        self.core.enter_and_reap();
        for (cell, finished) in closing {
            let finished = finished.await.expect("the engine answers every plan");
            if let Err(failure) = finished.result {
                failed.push((cell.directory.to_path_buf(), failure.error.to_string()));
            }
            let was_closed = finished.result.is_ok();
            cell.log.borrow_mut().complete(finished, now());
            let is_synced = cell.log.borrow().state() == LogState::Offline(Cause::Closed);
            if was_closed && is_synced {
                self.core.forget(&cell);
            }
        }
        // Last: until here it is what holds the newest records.
        let directory = &self.core.options.directory;
        let is_alone = self.core.lock.borrow().is_some() && self.core.options.journal.is_some();
        let left = match self.core.close_journal() {
            None if is_alone => journals::retire_journals(directory).err().map(|it| it.to_string()),
            other => other,
        };
        failed.extend(left.map(|reason| (directory.clone(), format!("the journal: {reason}"))));
        self.core.lock.replace(None);
        failed
    }
}

fn storage(options: &EngineOptions) -> Result<Storage, EngineError> {
    Ok(match options.kind {
        EngineKind::Ring => {
            let mut ring = options.ring.clone();
            ring.faults.clone_from(&options.faults);
            Storage::Ring(Box::new(RingDisk::new(ring)?))
        }
        EngineKind::PlainFile => {
            Storage::Plain(Box::new(PlainDisk::new(options.files_max, options.faults.clone())))
        }
    })
}

/// The wall clock, which the log gets as an argument.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

impl Core {
    /// The next log's number and directory.
    pub fn name(&self, spec: PartitionSpec) -> (u32, LogSpec, Arc<Path>) {
        let number = self.next_number();
        let name = format!("{}-{}", spec.topic, spec.partition);
        let directory: Arc<Path> = self.options.directory.join(name).into();
        let spec = LogSpec {
            number,
            directory: directory.clone(),
            topic_id: spec.topic_id,
            config: spec.config,
            leader_epoch: spec.leader_epoch,
            jitter_seed: u64::from(number) ^ u64::from(std::process::id()),
        };
        (number, spec, directory)
    }

    /// A number that no other user of the disk has.
    pub fn next_number(&self) -> u32 {
        self.numbers.replace(self.numbers.get() + 1)
    }

    /// The engine has the partition from here on.
    pub fn add(&self, number: u32, log: PartitionLog, directory: Arc<Path>) -> Rc<PartitionCell> {
        let cell = Rc::new(PartitionCell::new(number, log, directory));
        self.partitions.borrow_mut().insert(number, cell.clone());
        cell
    }

    /// Takes a partition out: nothing reaches it through the engine any more.
    pub fn forget(&self, cell: &PartitionCell) {
        self.partitions.borrow_mut().remove(&cell.number);
        self.sealed.borrow_mut().forget(cell.number);
        self.journal_forgets(cell.number);
    }

    /// The partitions, for the chores.
    pub fn cells(&self) -> Vec<Rc<PartitionCell>> {
        self.partitions.borrow().values().cloned().collect()
    }

    /// One partition, by the number of its log.
    pub fn cells_by_number(&self, number: u32) -> Option<Rc<PartitionCell>> {
        self.partitions.borrow().get(&number).cloned()
    }

    /// Whether a clean stop is under way.
    pub fn is_stopped(&self) -> bool {
        self.stopped.get()
    }

    /// The partition has something staged: its plan is made at the end of this turn.
    pub fn mark_dirty(&self, cell: &Rc<PartitionCell>) {
        // While a plan is under way its completion is what makes the next one possible.
        if cell.is_planned() || cell.dirty.replace(true) {
            return;
        }
        let mut dirty = self.dirty.borrow_mut();
        dirty.push(cell.clone());
        if dirty.len() == 1 {
            self.cleaner.turn_begins();
            self.turn.notify_one();
        }
    }

    /// Whether appends wait for the end of this turn.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.borrow().is_empty()
    }

    /// The flusher has something to do at the end of this turn.
    pub fn turn_begins(&self) {
        self.turn.notify_one();
    }

    /// Waits for the first append of a turn.
    pub async fn turn(&self) {
        self.turn.notified().await;
    }

    /// The partitions to plan at the end of this turn.
    pub fn take_dirty(&self) -> Vec<Rc<PartitionCell>> {
        std::mem::take(&mut *self.dirty.borrow_mut())
    }

    /// The list's memory serves the next turn, unless that has begun with one of its own.
    pub fn reuse(&self, list: Vec<Rc<PartitionCell>>) {
        let mut next = self.dirty.borrow_mut();
        if next.capacity() == 0 {
            *next = list;
        }
    }

    /// Starts a plan whose outcome the caller waits for; it enters the kernel with the next
    /// [`Core::enter_and_reap`].
    pub fn start(&self, plan: Plan) -> oneshot::Receiver<Finished> {
        let (sender, receiver) = oneshot::channel();
        let former = self.runs.borrow_mut().insert(plan.tag, sender);
        assert!(former.is_none(), "two plans with one tag are under way");
        self.storage.borrow_mut().submit(plan);
        receiver
    }

    /// Who waits for a plan, if somebody does.
    pub fn take_waiter(&self, tag: PlanTag) -> Option<oneshot::Sender<Finished>> {
        self.runs.borrow_mut().remove(&tag)
    }

    /// Runs a plan on behalf of the caller.
    pub fn run(&self, plan: Plan) -> impl Future<Output = Finished> + use<> {
        let finished = self.start(plan);
        self.enter_and_reap();
        async move { finished.await.expect("the engine answers every plan") }
    }

    /// Runs plans to their end on this thread, for straight-line code over the disk.
    pub fn blocking<T>(&self, owner: u32, code: impl FnOnce(&mut dyn Disk) -> T) -> T {
        let mut others = Vec::new();
        let outcome = code(&mut Aside::new(&mut self.storage.borrow_mut(), &mut others, owner));
        for finished in others {
            self.finish(finished);
        }
        outcome
    }

    /// Submits a plan whose outcome goes to its log.
    pub fn submit(&self, plan: Plan) {
        self.storage.borrow_mut().submit(plan);
    }

    /// Everything submitted enters the kernel; what is over already is completed at once, which
    /// with plain files is everything.
    pub fn enter_and_reap(&self) {
        self.storage.borrow_mut().enter();
        self.reap();
    }

    /// Completes everything that is over. Looking for splices may come upon plans and the other way
    /// round, and the ring's descriptor tells of each once, so this ends when no outcome is left.
    fn reap(&self) {
        while self.reap_plan() || self.reap_send() || self.has_outcomes() {}
    }

    fn has_outcomes(&self) -> bool {
        self.storage.borrow_mut().ring().is_some_and(|ring| ring.has_outcomes())
    }

    fn reap_plan(&self) -> bool {
        let finished = self.storage.borrow_mut().reap(false);
        let Some(finished) = finished else { return false };
        self.finish(finished);
        true
    }

    fn reap_send(&self) -> bool {
        let sent = self.storage.borrow_mut().ring().and_then(RingDisk::reap_send);
        let Some(sent) = sent else { return false };
        let waits = self.sends.borrow_mut().remove(&sent.token);
        let waits = waits.expect("every splice was started here");
        // The connection may be gone; the splice is over all the same.
        let _ = waits.outcome.send(sent.result);
        true
    }

    /// Starts a splice of a file's bytes to a socket.
    pub fn send_slice(
        &self,
        slice: &ReadSlice,
        socket: &Rc<OwnedFd>,
    ) -> oneshot::Receiver<Result<(), SendError>> {
        let token = self.next_token.get();
        self.next_token.set(token + 1);
        let (outcome, receiver) = oneshot::channel();
        let sending = Sending { _socket: socket.clone(), outcome };
        self.sends.borrow_mut().insert(token, sending);
        {
            let mut storage = self.storage.borrow_mut();
            let ring = storage.ring().expect("only the ring engine splices");
            ring.send_slice(slice.file, slice.at, slice.length, socket.as_fd(), token);
        }
        self.enter_and_reap();
        receiver
    }

    /// The number of a read that is told apart from all others.
    pub fn read_number(&self) -> u64 {
        let token = self.next_token.get();
        self.next_token.set(token + 1);
        token
    }

    /// Waits until nothing of any partition is staged or under way; returns those that are left:
    /// while one was waited for, another may have become busy again, or be gone.
    async fn all_drained(&self) -> Vec<Rc<PartitionCell>> {
        loop {
            let cells = self.cells();
            if !cells.iter().any(|cell| cell.is_busy()) {
                return cells;
            }
            for cell in &cells {
                self.drained(cell).await;
            }
        }
    }

    /// Waits until nothing of the partition is staged or under way.
    pub async fn drained(&self, cell: &Rc<PartitionCell>) {
        while cell.is_busy() {
            self.mark_dirty(cell);
            cell.idle.notified().await;
        }
    }
}
