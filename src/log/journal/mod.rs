//! The commit journal of a shard: one durable write for all small plans of a turn.
//!
//! A small plan that needs an fdatasync of its own file pays for a device round trip and, on most
//! file systems, for a transaction. The journal makes the plans of a whole turn durable with one
//! write in place ([`Step::WriteDurable`]), while their files are written to the page cache in the
//! same submit. The files are synced later, before the journal's space is used again.
//!
//! How a turn goes: [`Journal::plan`] for every log with something staged, [`Journal::seal`] once,
//! then the plans and the record are submitted together. When the record is over,
//! [`Journal::finish`] says whose plans it covered; they are over when both are. One record is
//! under way at a time: what is staged meanwhile becomes the next one, group commit without a
//! timer.
//!
//! What must hold, so that [`replay`] finds every acknowledged batch:
//! - Records are numbered without a gap, and none is written before the one in front of it is
//!   durable. So the records from the newest one's `tail` up to it are all there.
//! - `tail` passes a record only when every file that it has data of was synced since. A place in
//!   the file is overwritten only when a durable record says so in its `tail`.
//! - The data of a plan that failed is taken back by a void that is durable before its offsets
//!   are given again.
//!
//! A record that can't be written freezes the journal: its plans sync their own files instead, and
//! so do all others, until every file that it covers is synced and it could be started anew.

mod circle;
mod file;
mod holders;
mod replay;

use crate::disk::plan::Steps;
use crate::disk::{Aligned, DiskError, FileId, Finished, Lane, Place, Plan, PlanTag, Step};
use crate::format::journal::{
    BLOCK_BYTES, Data, ENTRY_HEADER_BYTES, Generation, RECORDS_START, RecordBuilder, RecordHeader,
    Superblock,
};
use crate::log::PartitionLog;
use crate::units::{ByteCount, Position, Timestamp, byte_count, u64_of, usize_of};
use circle::Circle;
use holders::Holders;

pub use file::{JournalError, Wanted, make, retire};
pub use replay::{JournalReplay, Replayed, check, is_empty, replay};

/// A record is no longer than this, nor than a quarter of the journal.
const RECORD_BYTES_MAX: usize = 2 << 20;
/// Kept free for records that carry no data: they are what gets a full journal going again. No more
/// than an eighth of the journal.
const RESERVE_BYTES: u64 = 64 << 10;
/// Shortest journal.
pub const BYTES_MIN: u64 = 1 << 20;
/// How many syncs are under way for the journal's sake, by how many eighths of it are in use. Early
/// and few at a time: a sync of much at once is what a record then waits for at the device.
const SYNCS_MAX: [usize; 8] = [0, 1, 2, 4, 8, 16, 32, 32];

/// What a log is to do at the end of a turn.
#[expect(clippy::large_enum_variant, reason = "a value that is matched where it is returned")]
#[derive(Debug)]
pub enum Turn {
    /// Submit this.
    Plan(Plan),
    /// Wait for the record under way, or for the one that this turn fills: the next one takes it.
    Later,
    /// Nothing.
    Nothing,
}

/// Whether the journal takes plans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalState {
    /// It does.
    Serving,
    /// Writing to it failed.
    Frozen(DiskError),
    /// It is empty, and stays so.
    Closed,
}

/// Counters since the start.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct JournalCounters {
    /// Records written.
    pub records: u64,
    /// Plans that they made durable.
    pub plans: u64,
    /// Bytes copied into records: batches and what describes them.
    pub copied: u64,
    /// Bytes written, padding included.
    pub written: u64,
    /// Plans that synced their own file because the journal was full.
    pub full: u64,
    /// Plans that were too large for it.
    pub large: u64,
    /// Syncs that were asked for to get space back.
    pub settles: u64,
}

/// What a record that is over covered.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Whether it is on the device.
    pub is_durable: bool,
    /// Logs whose plans it covers: [`PartitionLog::record_over`].
    pub members: Vec<u32>,
    /// Logs whose data it takes back: [`PartitionLog::void_over`].
    pub voids: Vec<u32>,
}

/// A record under construction.
#[derive(Debug, Default)]
struct Building {
    builder: RecordBuilder,
    at: Position,
    members: Vec<u32>,
    voids: Vec<u32>,
}

/// A record, or a superblock, on its way to the device.
#[derive(Debug)]
enum Writing {
    Record { sequence: u64, tail: u64, members: Vec<u32>, voids: Vec<u32> },
    Superblock { next: Superblock, closes: bool },
}

/// The journal of one shard.
#[derive(Debug)]
pub struct Journal {
    owner: u32,
    file: FileId,
    place: Place,
    superblock: Superblock,
    plan_bytes_max: ByteCount,
    record_bytes_max: usize,
    reserve_bytes: u64,
    circle: Circle,
    holders: Holders,
    /// The number of the next record.
    next: u64,
    /// The tail that the newest durable record carries.
    tail: u64,
    /// A record that the tail is wanted to pass, whatever room there is.
    passing: Option<u64>,
    building: Building,
    writing: Option<Writing>,
    /// At home while no write is under way.
    buffer: Option<Box<Aligned>>,
    state: JournalState,
    counters: JournalCounters,
}

/// The part of a record that a log fills.
pub struct OpenRecord<'a> {
    builder: &'a mut RecordBuilder,
    memory: &'a mut [u8],
    sequence: u64,
}

impl OpenRecord<'_> {
    /// Its number.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Adds batches.
    pub fn data<'p>(&mut self, data: Data<'_>, parts: impl Iterator<Item = &'p [u8]>) {
        self.builder.data(self.memory, data, parts);
    }
}

impl Journal {
    /// The journal that [`make`] has made or started anew. `owner` is its number among the disk's
    /// users. The returned plan opens the file; the journal is of use when it is over.
    pub fn new(
        owner: u32,
        place: Place,
        superblock: Superblock,
        plan_bytes_max: ByteCount,
    ) -> (Journal, Plan) {
        let file = FileId { owner, number: 0 };
        let circle = Circle::new(Position(RECORDS_START), Position(superblock.length.0));
        let quarter = usize_of(circle.capacity().0) / 4;
        let record_bytes_max = RECORD_BYTES_MAX.min(quarter / BLOCK_BYTES * BLOCK_BYTES);
        let journal = Journal {
            owner,
            file,
            place: place.clone(),
            superblock,
            plan_bytes_max,
            record_bytes_max,
            reserve_bytes: RESERVE_BYTES.min(circle.capacity().0 / 8),
            circle,
            holders: Holders::default(),
            next: 1,
            tail: 1,
            passing: None,
            building: Building::default(),
            writing: None,
            buffer: Some(Box::new(Aligned::new(record_bytes_max))),
            state: JournalState::Serving,
            counters: JournalCounters::default(),
        };
        let plan = journal.tagged([Step::OpenDirect { file, place }]);
        (journal, plan)
    }

    /// The buffer of its records, to be registered with the disk.
    pub fn buffer(&mut self) -> Option<&mut Aligned> {
        self.buffer.as_deref_mut()
    }

    /// Its number among the disk's users: plans with this owner go to [`Journal::finish`].
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Whether it takes plans.
    pub fn state(&self) -> JournalState {
        self.state
    }

    /// Whether a write of it is under way.
    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Where it lies.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Counters since the start.
    pub fn counters(&self) -> JournalCounters {
        self.counters
    }

    /// Bytes from the oldest record that is still needed to the newest, and of the whole circle.
    pub fn fill(&self) -> (ByteCount, ByteCount) {
        (self.circle.used(), self.circle.capacity())
    }

    /// First record that a replay would look at.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Wants the tail to pass a record, although there may be room: somebody is about to change
    /// files that it has data of.
    pub fn pass(&mut self, record: u64) {
        self.passing = self.passing.max(Some(record)).filter(|record| self.tail <= *record);
    }

    /// What a log does at the end of a turn.
    pub fn plan(&mut self, log: &mut PartitionLog, now: Timestamp) -> Turn {
        let bytes = log.recordable_bytes().filter(|_| self.state == JournalState::Serving);
        let Some(bytes) = bytes else { return plan_of(log, now) };
        if bytes > usize_of(self.plan_bytes_max.0) {
            self.counters.large += 1;
            return plan_of(log, now);
        }
        if self.writing.is_some() {
            return Turn::Later;
        }
        let padded = self.building.builder.padded_length(bytes);
        if self.record_bytes_max < padded {
            // One that is too long for an empty record would wait for ever.
            let is_first = self.building.builder.entries() == 0;
            return if is_first { plan_of(log, now) } else { Turn::Later };
        }
        let Some(at) = self.circle.place(u64_of(padded), self.reserve_bytes) else {
            self.counters.full += 1;
            return plan_of(log, now);
        };
        self.building.at = at;
        Turn::Plan(self.take(log, bytes))
    }

    fn take(&mut self, log: &mut PartitionLog, bytes: usize) -> Plan {
        let buffer = self.buffer.as_mut().expect("no write is under way");
        let mut record = OpenRecord {
            builder: &mut self.building.builder,
            memory: buffer.memory_mut(),
            sequence: self.next,
        };
        let plan = log.plan_recorded(&mut record);
        self.building.members.push(log.number());
        self.holders.note(log.number(), self.next, (log.cursors().next, u64_of(bytes)));
        self.counters.plans += 1;
        self.counters.copied += u64_of(bytes);
        plan
    }

    /// Has the next record take back what the log wants; `false` when it can't now: ask again when
    /// the record under way is over.
    pub fn take_back(&mut self, log: &mut PartitionLog) -> bool {
        log.note_journal_tail(self.tail);
        let Some(void) = log.void_wanted() else { return true };
        let padded = self.building.builder.padded_length(ENTRY_HEADER_BYTES);
        let is_free = self.state == JournalState::Serving && self.writing.is_none();
        if !is_free || self.record_bytes_max < padded {
            return false;
        }
        // The last block is for the record that gives space back.
        let Some(at) = self.circle.place(u64_of(padded), u64_of(BLOCK_BYTES)) else {
            return false;
        };
        self.building.at = at;
        let memory = self.buffer.as_mut().expect("no write is under way").memory_mut();
        self.building.builder.void(memory, void);
        self.building.voids.push(log.number());
        log.void_under_way();
        true
    }

    /// The record of this turn, if there is anything to record, or space to be had.
    pub fn seal(&mut self) -> Option<Plan> {
        if self.writing.is_some() || self.state != JournalState::Serving {
            return None;
        }
        if self.building.builder.entries() == 0 {
            if !self.wants_tail() {
                return None;
            }
            self.building.at = self.circle.place(u64_of(BLOCK_BYTES), 0)?;
        }
        let Building { builder, at, members, voids } = std::mem::take(&mut self.building);
        let sequence = self.next;
        let tail = self.holders.first().unwrap_or(sequence);
        let mut buffer = self.buffer.take().expect("no write is under way");
        let header = RecordHeader { generation: self.superblock.generation, sequence, tail };
        let length = builder.finish(buffer.memory_mut(), header);
        buffer.set_length(length);
        self.circle.push(sequence, at, u64_of(length));
        self.next += 1;
        self.counters.records += 1;
        self.counters.written += u64_of(length);
        self.writing = Some(Writing::Record { sequence, tail, members, voids });
        Some(self.tagged([Step::WriteDurable { file: self.file, at, buffer }]))
    }

    /// Whether [`Journal::seal`] has something to do although no log has.
    pub fn wants_seal(&self) -> bool {
        let is_free = self.writing.is_none() && self.state == JournalState::Serving;
        is_free && (0 < self.building.builder.entries() || self.wants_tail())
    }

    /// Whether space is held only because no durable record says yet that it is free.
    fn wants_tail(&self) -> bool {
        let first = self.holders.first().unwrap_or(self.next);
        let is_passed = |record: u64| self.tail <= record && record < first;
        self.tail < first && (self.is_filling() || self.passing.is_some_and(is_passed))
    }

    /// Whether a log needs a record that is wanted to be passed.
    fn is_passing(&self) -> bool {
        let first = self.holders.first();
        self.passing.zip(first).is_some_and(|(record, first)| first <= record)
    }

    fn is_filling(&self) -> bool {
        self.circle.capacity().0 < 2 * self.circle.used().0
    }

    /// Takes the outcome of a plan of its own.
    ///
    /// # Panics
    /// When none is under way.
    pub fn finish(&mut self, finished: Finished) -> Written {
        let mut plan = finished.plan;
        if let Some(Step::WriteDurable { buffer, .. }) = plan.steps.pop() {
            self.buffer = Some(buffer);
        }
        match self.writing.take().expect("a write of the journal is under way") {
            Writing::Record { sequence, tail, members, voids } => {
                let is_durable = finished.result.is_ok();
                match finished.result {
                    Ok(()) => {
                        assert!(self.tail <= tail && tail <= sequence);
                        self.tail = tail;
                        self.passing = self.passing.filter(|record| tail <= *record);
                        self.circle.release(tail);
                    }
                    Err(failure) => self.state = JournalState::Frozen(failure.error),
                }
                Written { is_durable, members, voids }
            }
            Writing::Superblock { next, closes } => {
                match finished.result {
                    Ok(()) => self.started_anew(next, closes),
                    Err(failure) => self.state = JournalState::Frozen(failure.error),
                }
                Written::default()
            }
        }
    }

    fn started_anew(&mut self, superblock: Superblock, closes: bool) {
        self.superblock = superblock;
        self.circle.clear();
        self.tail = self.next;
        self.state = if closes { JournalState::Closed } else { JournalState::Serving };
    }

    /// The log's files have come so far; to be told whenever one of its plans is over. Whether a
    /// sync that it was asked for is over: then [`Journal::next_settle`] may have another.
    pub fn settled(&mut self, log: &PartitionLog) -> bool {
        let owner = log.number();
        if !self.holders.contains(owner) {
            return false;
        }
        let before = self.holders.syncing();
        if log.append_refusal().is_some() {
            // What failed is taken back, not kept.
            self.holders.cut(owner, log.cursors().log_end);
        }
        self.holders.settled(owner, log.on_file_end());
        let is_over = self.holders.is_syncing(owner) && !log.is_settling();
        if is_over || !log.can_settle() {
            self.holders.sync_ended(owner, log.can_settle());
        }
        self.holders.syncing() < before
    }

    /// The log is no more: deleted, or closed with everything synced.
    pub fn forget(&mut self, owner: u32) {
        self.holders.forget(owner);
    }

    /// The log whose files should be synced next ([`PartitionLog::settle`]); `None` while there is
    /// no hurry or enough is under way. Begins early and takes the oldest first, so that there is
    /// never much to do at once.
    pub fn next_settle(&mut self) -> Option<u32> {
        let (used, capacity) = (self.circle.used().0, self.circle.capacity().0);
        let is_frozen = matches!(self.state, JournalState::Frozen(_));
        let eighth = if is_frozen { 7 } else { usize_of(8 * used / capacity).min(7) };
        let syncing = self.holders.syncing();
        let owner = match () {
            () if syncing < SYNCS_MAX[eighth] => self.holders.oldest()?,
            () if syncing == 0 && self.is_passing() => self.holders.oldest()?,
            () if syncing == 0 => self.holders.heaviest()?,
            () => return None,
        };
        self.holders.sync_begins(owner);
        self.counters.settles += 1;
        Some(owner)
    }

    /// Starts a frozen journal anew once no file depends on it.
    pub fn restart(&mut self, nonce: u64) -> Option<Plan> {
        let is_frozen = matches!(self.state, JournalState::Frozen(_));
        (is_frozen && self.is_unneeded()).then(|| self.start_anew(nonce, false))
    }

    /// Empties the journal, at a clean stop: everything that it covers is synced. `None` when a log
    /// still needs it, since its files could not be synced: the next start replays it then.
    pub fn close(&mut self, nonce: u64) -> Option<Plan> {
        let is_open = self.state != JournalState::Closed;
        (is_open && self.is_unneeded()).then(|| self.start_anew(nonce, true))
    }

    fn is_unneeded(&self) -> bool {
        self.holders.is_empty() && self.writing.is_none()
    }

    fn start_anew(&mut self, nonce: u64, closes: bool) -> Plan {
        self.building = Building::default();
        let generation = Generation { number: self.superblock.generation.number + 1, nonce };
        let next = Superblock { generation, ..self.superblock };
        let mut buffer = self.buffer.take().expect("no write is under way");
        buffer.memory_mut()[..BLOCK_BYTES].copy_from_slice(&next.encode());
        buffer.set_length(BLOCK_BYTES);
        let at = Position(next.block() * byte_count(BLOCK_BYTES).0);
        self.writing = Some(Writing::Superblock { next, closes });
        self.tagged([Step::WriteDurable { file: self.file, at, buffer }])
    }

    fn tagged(&self, steps: impl IntoIterator<Item = Step>) -> Plan {
        let tag = PlanTag { owner: self.owner, lane: Lane::Append, number: 0 };
        Plan { tag, steps: Steps::from_iter(steps) }
    }
}

fn plan_of(log: &mut PartitionLog, now: Timestamp) -> Turn {
    log.plan(now).map_or(Turn::Nothing, Turn::Plan)
}
