//! One shard without a network: logs, a disk and a journal, turned by hand.
//!
//! What a turn does is what the engine does (`shard::turns`, `shard::journal`): every log that has
//! something staged gives its plan, by way of the journal where there is one; the journal's record
//! and the syncs that give its space back follow; the kernel is entered once; completions are taken
//! in until the last log shows its batch.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uringlog::disk::plan::Steps;
use uringlog::disk::{Disk, Finished, Lane, Plan, Step};
use uringlog::log::journal::{JournalCounters, Turn};
use uringlog::log::{Journal, LogConfig, LogSpec, PartitionLog};
use uringlog::shard::JournalFile;
use uringlog::units::{LeaderEpoch, TopicId};
use uringlog::{Durability, Offset, RecordBatch, now};

use crate::experiments::measure::u64_of;
use crate::experiments::{Doing, Failure};

/// How often the logs are asked for chores that no append waits for (flushes of sealed segments).
const CHORES_EVERY: Duration = Duration::from_secs(1);

/// A log, and where it stands in the turn.
struct Cell {
    log: PartitionLog,
    /// The turn is over for it when its high watermark is here.
    due: Offset,
    is_reached: bool,
    is_planned: bool,
    is_dirty: bool,
    is_housekeeping: bool,
}

/// What was handed to the disk.
#[derive(Clone, Copy, Default)]
pub struct Handed {
    pub plans: u64,
    /// Steps that sync a file or a directory.
    pub syncs: u64,
    /// Of these, those that no append waits for.
    pub settling_syncs: u64,
    pub durable_writes: u64,
}

/// How one turn went.
pub struct Turned {
    pub took: Duration,
    /// Whether files were synced for the journal's sake meanwhile.
    pub is_settling: bool,
}

/// All logs of a shard, and what they share.
pub struct Shard {
    disk: Box<dyn Disk>,
    cells: Vec<Cell>,
    journal: Option<Journal>,
    dirty: Vec<usize>,
    /// Logs whose plan waits for the record under way.
    later: Vec<usize>,
    unreached: usize,
    housekeeping: usize,
    /// A plan of the housekeeping lane was under way since the turn began.
    is_settling: bool,
    chores_at: Instant,
    handed: Handed,
    /// No file is synced for the journal's sake.
    keeps_records: bool,
    /// Of the turn that is being ended.
    planned: Vec<Plan>,
}

impl Shard {
    /// Makes `partitions` new logs under `root`.
    pub fn create(
        disk: Box<dyn Disk>,
        root: &Path,
        (partitions, durability): (u32, Durability),
        journal: Option<JournalFile>,
    ) -> Result<Shard, Failure> {
        let mut shard = Shard {
            disk,
            cells: Vec::new(),
            journal: None,
            dirty: Vec::new(),
            later: Vec::new(),
            unreached: 0,
            housekeeping: 0,
            is_settling: false,
            chores_at: Instant::now(),
            handed: Handed::default(),
            keeps_records: false,
            planned: Vec::new(),
        };
        for number in 0..partitions {
            shard.create_log(root, number, durability);
        }
        shard.disk.enter();
        while shard.cells.iter().any(|cell| cell.is_planned) {
            shard.reap(true)?;
        }
        if let Some(file) = journal {
            shard.open_journal(partitions, file)?;
        }
        shard.handed = Handed::default();
        Ok(shard)
    }

    fn create_log(&mut self, root: &Path, number: u32, durability: Durability) {
        let directory: Arc<Path> = root.join(format!("bench-{number}")).into();
        let spec = LogSpec {
            number,
            directory,
            topic_id: TopicId([0xb7; 16]),
            config: LogConfig::defaults(durability),
            leader_epoch: LeaderEpoch(0),
            jitter_seed: 0,
        };
        let (log, mut plan) = PartitionLog::create(spec, now());
        // Names need not survive a crash here; thousands of syncs would take longer than the run.
        let is_sync = |step: &Step| matches!(step, Step::Sync { .. } | Step::SyncDirectory { .. });
        let steps = plan.steps.into_iter().filter(|step| !is_sync(step));
        plan.steps = Steps::from_iter(steps);
        self.cells.push(Cell {
            log,
            due: Offset(0),
            is_reached: true,
            is_planned: true,
            is_dirty: false,
            is_housekeeping: false,
        });
        self.submit(plan);
    }

    fn open_journal(&mut self, owner: u32, file: JournalFile) -> Result<(), Failure> {
        let JournalFile { place, superblock, plan_bytes_max } = file;
        let (mut journal, plan) = Journal::new(owner, place, superblock, plan_bytes_max);
        if let Some(buffer) = journal.buffer() {
            self.disk.register(buffer);
        }
        let opened = self.disk.run(plan).result;
        opened.map_err(|failure| Failure::Wrong(format!("opening the journal: {failure:?}")))?;
        self.journal = Some(journal);
        Ok(())
    }

    /// What the journal has done so far.
    pub fn journal_counters(&self) -> JournalCounters {
        self.journal.as_ref().map_or_else(JournalCounters::default, Journal::counters)
    }

    /// From now on no file is synced to give the journal its space back.
    pub fn keep_records(&mut self) {
        self.keeps_records = true;
    }

    /// What was handed to the disk so far.
    pub fn handed(&self) -> Handed {
        self.handed
    }

    /// One turn: as many batches for each log, one log after the other, until all are shown.
    pub fn turn(&mut self, batches: &mut Vec<RecordBatch>) -> Result<Turned, Failure> {
        self.reap(false)?;
        self.is_settling = 0 < self.housekeeping;
        let started = Instant::now();
        self.append(batches)?;
        self.finish_turn()?;
        let took = started.elapsed();
        let is_settling = self.is_settling;
        if CHORES_EVERY <= self.chores_at.elapsed() {
            self.chores();
        }
        Ok(Turned { took, is_settling })
    }

    fn append(&mut self, batches: &mut Vec<RecordBatch>) -> Result<(), Failure> {
        let logs = self.cells.len();
        assert!(batches.len().is_multiple_of(logs), "as many for each log");
        let now = now();
        for (number, batch) in batches.drain(..).enumerate() {
            let number = number % logs;
            let cell = &mut self.cells[number];
            let appended = cell.log.append(batch, now);
            let appended = appended.map_err(|error| Failure::Wrong(error.to_string()))?;
            cell.due = appended.due;
            self.unreached += usize::from(std::mem::replace(&mut cell.is_reached, false));
            self.mark_dirty(number);
        }
        Ok(())
    }

    fn finish_turn(&mut self) -> Result<(), Failure> {
        loop {
            if !self.dirty.is_empty() || self.journal.as_ref().is_some_and(Journal::wants_seal) {
                self.end_turn();
            }
            self.disk.enter();
            if self.unreached == 0 {
                return Ok(());
            }
            self.reap(true)?;
        }
    }

    /// Plans everything that is staged, seals the record, has the oldest files synced.
    fn end_turn(&mut self) {
        let now = now();
        for number in std::mem::take(&mut self.dirty) {
            self.plan(number);
        }
        // As the engine does: first the record, for which all others wait.
        if let Some(plan) = self.journal.as_mut().and_then(Journal::seal) {
            self.submit(plan);
        }
        for plan in std::mem::take(&mut self.planned) {
            self.submit(plan);
        }
        let Some(mut journal) = self.journal.take() else { return };
        while !self.keeps_records
            && let Some(owner) = journal.next_settle()
        {
            let number = number_of(owner);
            self.cells[number].log.settle();
            match self.housekeeping_plan(number, now) {
                Some(plan) => self.submit(plan),
                // As in the engine: it would be the next one again.
                None => {
                    journal.settled(&self.cells[number].log);
                    break;
                }
            }
        }
        self.journal = Some(journal);
    }

    fn plan(&mut self, number: usize) {
        let cell = &mut self.cells[number];
        cell.is_dirty = false;
        if cell.is_planned {
            return;
        }
        let turn = match &mut self.journal {
            Some(journal) => journal.plan(&mut cell.log, now()),
            None => cell.log.plan(now()).map_or(Turn::Nothing, Turn::Plan),
        };
        match turn {
            Turn::Plan(plan) => {
                cell.is_planned = true;
                self.planned.push(plan);
            }
            Turn::Later => {
                cell.is_dirty = true;
                self.later.push(number);
            }
            Turn::Nothing => {}
        }
    }

    fn mark_dirty(&mut self, number: usize) {
        if !std::mem::replace(&mut self.cells[number].is_dirty, true) {
            self.dirty.push(number);
        }
    }

    fn housekeeping_plan(&mut self, number: usize, now: uringlog::Timestamp) -> Option<Plan> {
        let cell = &mut self.cells[number];
        if cell.is_housekeeping {
            return None;
        }
        let plan = cell.log.housekeeping(now)?;
        cell.is_housekeeping = true;
        self.housekeeping += 1;
        self.is_settling = true;
        Some(plan)
    }

    /// Sealed segments are flushed, as a shard's chores have it done.
    fn chores(&mut self) {
        self.chores_at = Instant::now();
        for number in 0..self.cells.len() {
            if let Some(plan) = self.housekeeping_plan(number, now()) {
                self.submit(plan);
            }
        }
    }

    fn submit(&mut self, plan: Plan) {
        let handed = &mut self.handed;
        handed.plans += 1;
        for step in &plan.steps {
            let is_sync = matches!(step, Step::Sync { .. } | Step::SyncDirectory { .. });
            let is_settling = is_sync && plan.tag.lane == Lane::Housekeeping;
            handed.syncs += u64::from(is_sync);
            handed.settling_syncs += u64::from(is_settling);
            handed.durable_writes += u64::from(matches!(step, Step::WriteDurable { .. }));
        }
        self.disk.submit(plan);
    }

    /// Takes in everything that is over, after waiting for one if that is asked for.
    fn reap(&mut self, wait: bool) -> Result<(), Failure> {
        let mut next = self.disk.reap(wait);
        if wait && next.is_none() {
            return Err(Failure::Wrong(
                "a batch is not shown, and nothing is under way".to_owned(),
            ));
        }
        while let Some(finished) = next {
            self.finish(finished)?;
            next = self.disk.reap(false);
        }
        Ok(())
    }

    fn finish(&mut self, finished: Finished) -> Result<(), Failure> {
        if let Err(failure) = finished.result {
            return Err(Failure::Wrong(format!("a plan failed: {failure:?}")));
        }
        let tag = finished.plan.tag;
        if self.journal.as_ref().is_some_and(|journal| journal.owner() == tag.owner) {
            self.record_over(finished);
            return Ok(());
        }
        let number = number_of(tag.owner);
        let cell = &mut self.cells[number];
        match tag.lane {
            Lane::Housekeeping => {
                cell.is_housekeeping = false;
                self.housekeeping -= 1;
            }
            Lane::Append | Lane::Read => {}
        }
        cell.log.complete(finished, now());
        if tag.lane == Lane::Append && !cell.log.awaits_record() {
            cell.is_planned = false;
        }
        self.look_at(number);
        Ok(())
    }

    fn record_over(&mut self, finished: Finished) {
        let journal = self.journal.as_mut().expect("the record is the journal's");
        let written = journal.finish(finished);
        for owner in written.members {
            let number = number_of(owner);
            let cell = &mut self.cells[number];
            let was_awaited = cell.log.awaits_record();
            cell.log.record_over(written.is_durable);
            cell.is_planned &= !was_awaited;
            self.look_at(number);
        }
        for number in std::mem::take(&mut self.later) {
            self.cells[number].is_dirty = false;
            self.mark_dirty(number);
        }
    }

    /// After something of the log was over: what it shows, and what the journal may forget.
    fn look_at(&mut self, number: usize) {
        let cell = &mut self.cells[number];
        if !cell.is_reached && cell.due <= cell.log.cursors().high_watermark {
            cell.is_reached = true;
            self.unreached -= 1;
        }
        let is_staged = cell.log.has_staged();
        if let Some(mut journal) = self.journal.take() {
            cell.log.note_journal_tail(journal.tail());
            journal.settled(&cell.log);
            if cell.log.is_settling() {
                match self.housekeeping_plan(number, now()) {
                    Some(plan) => self.submit(plan),
                    None => {
                        journal.settled(&self.cells[number].log);
                    }
                }
            }
            self.journal = Some(journal);
        }
        if is_staged {
            self.mark_dirty(number);
        }
    }
}

fn number_of(owner: u32) -> usize {
    usize::try_from(owner).expect("usize is 64 bits")
}

/// What every file of the file system holds is on the device.
pub fn sync_file_system(root: &Path) -> Result<(), Failure> {
    let root = std::fs::File::open(root).doing("open the folder")?;
    rustix::fs::syncfs(root).doing("sync the file system")
}

/// Removes what [`Shard::create`] has made; journals stay.
pub fn remove_logs(root: &Path, partitions: u32) -> Result<(), Failure> {
    for number in 0..partitions {
        let folder = root.join(format!("bench-{number}"));
        std::fs::remove_dir_all(folder).doing("remove a partition")?;
    }
    Ok(())
}

/// Bytes in batches of one turn.
pub fn turn_bytes(partitions: u32, batch_bytes: usize) -> u64 {
    u64::from(partitions) * u64_of(batch_bytes)
}
