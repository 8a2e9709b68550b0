//! One run: a variant, a cell, some seconds.

use std::cell::Cell as Shared;
use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use hdrhistogram::Histogram;
use uringlog::disk::Disk;
use uringlog::disk::plain::PlainDisk;
use uringlog::format::properties::DirectoryId;
use uringlog::log::journal::JournalCounters;
use uringlog::ring::{RingCounters, RingDisk, RingOptions};
use uringlog::shard::journals::prepare_journals;
use uringlog::shard::{JournalFile, JournalMode, JournalOptions};
use uringlog::{BatchBuilder, ByteCount, Codec, Durability, NewRecord, RecordBatch, now};

use super::pool::PoolDisk;
use super::shard::{Handed, Shard, Turned, remove_logs, sync_file_system, turn_bytes};
use super::steps::{CountedRing, StepDisk};
use super::warm::Warm;
use crate::experiments::Failure;
use crate::experiments::measure::{self, Traced, Traces};
use crate::record::Latency;

/// Turns that are not counted when nothing else is said.
const FIRST_TURNS: u32 = 3;
/// Files that a disk may have open: three for each partition, and the journal.
const FILES_MAX: u16 = 8192;
/// Longest turn that is told apart.
const TURN_NS_MAX: u64 = 600_000_000_000;
/// Bytes of a batch around the value of its only record: header, lengths, attributes, deltas.
const BATCH_BYTES_AROUND_MAX: usize = 61 + 15;

/// How batches become durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// Chains on the ring, each ending in an fdatasync.
    Linked,
    /// The same steps on the ring without links: each goes when the one before it is over.
    Unlinked,
    /// The ring and the commit journal.
    Journal,
    /// A loop of system calls, one for each piece of a write, an fdatasync for each plan.
    Pwrite,
    /// A loop of system calls, one (`pwritev`) for each write, an fdatasync for each plan: the
    /// plain-file engine.
    Serial,
    /// System calls, the syncs on threads.
    Pool,
    /// System calls and the commit journal.
    PlainJournal,
    /// System calls and the commit journal, its space given back by threads.
    PoolJournal,
}

const NAMES: [(Variant, &str); 8] = [
    (Variant::Linked, "linked"),
    (Variant::Unlinked, "unlinked"),
    (Variant::Journal, "journal"),
    (Variant::Pwrite, "pwrite"),
    (Variant::Serial, "serial"),
    (Variant::Pool, "pool"),
    (Variant::PlainJournal, "plain-journal"),
    (Variant::PoolJournal, "pool-journal"),
];

impl FromStr for Variant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(variant, _)| *variant).ok_or(format!("unknown variant: {text}"))
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl Variant {
    /// Every one.
    pub fn all() -> impl Iterator<Item = Variant> {
        NAMES.iter().map(|pair| pair.0)
    }

    /// As the command line names it.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(variant, _)| *variant == self).map_or("", |pair| pair.1)
    }

    /// Whether plans run on io_uring.
    pub fn is_ring(self) -> bool {
        matches!(self, Variant::Linked | Variant::Unlinked | Variant::Journal)
    }

    /// Whether there is a commit journal.
    pub fn has_journal(self) -> bool {
        matches!(self, Variant::Journal | Variant::PlainJournal | Variant::PoolJournal)
    }

    /// The disk, with its ring's counters in `counters`; on the ring, to be used by the calling
    /// thread only.
    fn disk(self, counters: &Rc<Shared<RingCounters>>) -> Result<Box<dyn Disk>, Failure> {
        let ring = || {
            let options = RingOptions { files_max: u32::from(FILES_MAX), ..RingOptions::default() };
            let ring = RingDisk::new(options);
            let ring = ring.map_err(|error| Failure::Wrong(error.to_string()))?;
            Ok::<_, Failure>(CountedRing::new(ring, counters.clone()))
        };
        let plain = || PlainDisk::new(usize::from(FILES_MAX), None);
        Ok(match self {
            Variant::Linked | Variant::Journal => Box::new(ring()?),
            Variant::Unlinked => Box::new(StepDisk::new(ring()?)),
            Variant::Pwrite => Box::new(StepDisk::new(plain()).piece_by_piece()),
            Variant::Serial | Variant::PlainJournal => Box::new(plain()),
            Variant::Pool | Variant::PoolJournal => {
                Box::new(PoolDisk::new(usize::from(FILES_MAX))?)
            }
        })
    }
}

/// How many partitions get a batch of which size in each turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    pub partitions: u32,
    pub batch_bytes: usize,
}

impl Cell {
    pub fn turn_bytes(self) -> u64 {
        turn_bytes(self.partitions, self.batch_bytes)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} x {}", self.partitions, super::sizes::shown(self.batch_bytes))
    }
}

/// When a run is over, and what it runs with.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Bytes in batches after which it is over.
    pub bytes: u64,
    /// Time after which it is over all the same.
    pub time: Duration,
    /// The core of the shard's thread and, as in the server, of its kernel workers.
    pub core: Option<usize>,
    /// What the logs promise.
    pub durability: Durability,
    /// Batches that each partition gets in a turn.
    pub batches: u32,
    /// Whether these make one plan; otherwise the next one is appended when the one before it is
    /// acknowledged.
    pub is_grouped: bool,
    /// Whether memory for the files is touched before.
    pub is_warmed: bool,
    /// Turns before those that are counted: files are made in them.
    pub first_turns: u32,
}

impl Default for Limits {
    /// One batch a turn in the device tier, as fast as it goes for a second.
    fn default() -> Limits {
        Limits {
            bytes: u64::MAX,
            time: Duration::from_secs(1),
            core: None,
            durability: Durability::Device,
            batches: 1,
            is_grouped: true,
            is_warmed: false,
            first_turns: FIRST_TURNS,
        }
    }
}

/// What a run has measured.
pub struct Measured {
    pub turns: u64,
    pub batches: u64,
    pub bytes: u64,
    /// Time of the run, without that in which its batches were made.
    pub wall: Duration,
    /// CPU time of the process, kernel workers and sync threads included, without that in which
    /// batches were made and memory was touched.
    pub cpu: Duration,
    /// Share of all cores' time that everybody else took, the kernel's own threads included.
    pub others: f64,
    pub turn: Histogram<u64>,
    /// The same over time.
    pub latency: Latency,
    /// Turns during which files were synced for the journal's sake, and the others.
    pub settling: Histogram<u64>,
    pub quiet: Histogram<u64>,
    pub handed: Handed,
    pub journal: JournalCounters,
    /// What the ring counted; zeros without one.
    pub ring: RingCounters,
    /// What the kernel's tracepoints counted, of the pool's threads too.
    pub traced: Traced,
    /// Threads that the kernel ran for the ring at the end.
    pub workers: usize,
    /// Whether time ended it.
    pub is_cut: bool,
}

/// Makes the journal ready, or starts it anew.
pub fn prepare(root: &Path, options: JournalOptions) -> Result<JournalFile, Failure> {
    let options = JournalOptions { mode: JournalMode::Always, ..options };
    let prepared = prepare_journals(root, (DirectoryId([0; 16]), 1), options);
    let (files, _) = prepared.map_err(|reason| Failure::Wrong(reason.to_string()))?;
    Ok(files.into_iter().next().expect("one for the one shard"))
}

/// Runs a variant on a thread of its own.
pub fn run(
    root: &Path,
    (variant, cell): (Variant, Cell),
    limits: Limits,
    options: JournalOptions,
) -> Result<Measured, Failure> {
    let journal = match variant.has_journal() {
        true => Some(prepare(root, options)?),
        false => None,
    };
    let warm = limits.is_warmed.then(|| Warm::touch(limits.bytes));
    let measured = thread::scope(|scope| {
        let shard =
            scope.spawn(|| measure(root, (variant, cell), limits, (journal, warm.as_ref())));
        shard.join().unwrap_or_else(|_| Err(Failure::Wrong("the shard panicked".to_owned())))
    });
    drop(warm);
    remove_logs(root, cell.partitions)?;
    sync_file_system(root)?;
    measured
}

fn measure(
    root: &Path,
    (variant, cell): (Variant, Cell),
    limits: Limits,
    (journal, warm): (Option<JournalFile>, Option<&Warm>),
) -> Result<Measured, Failure> {
    let traces = Traces::of_this_thread();
    let counters = Rc::default();
    // The pool's threads may run anywhere, so they come before the pin; the ring's workers stay
    // with the shard, as in the server.
    let early =
        matches!(variant, Variant::Pool | Variant::PoolJournal).then(|| variant.disk(&counters));
    if let Some(core) = limits.core {
        measure::pin(core)?;
    }
    let disk = early.unwrap_or_else(|| variant.disk(&counters))?;
    let logs = (cell.partitions, limits.durability);
    let mut shard = Shard::create(disk, root, logs, journal)?;
    let mut maker = Maker::new(cell);
    for _ in 0..limits.first_turns {
        maker.make()?;
        shard.turn(&mut maker.batches)?;
    }
    sync_file_system(root)?;
    let (before, start) = (counters.get(), traces.start());
    let mut measured = drive(&mut shard, &mut maker, limits, warm)?;
    measured.traced = traces.since(start);
    measured.ring = ring_since(counters.get(), before);
    measured.workers = measure::kernel_workers();
    Ok(measured)
}

fn drive(
    shard: &mut Shard,
    maker: &mut Maker,
    limits: Limits,
    warm: Option<&Warm>,
) -> Result<Measured, Failure> {
    let (handed, journal) = (shard.handed(), shard.journal_counters());
    let warm_so_far = || warm.map_or(Duration::ZERO, Warm::cpu);
    let (cpu, warm_cpu) = (measure::process_cpu(), warm_so_far());
    let machine_cpu = measure::machine_cpu();
    (maker.wall, maker.cpu) = (Duration::ZERO, Duration::ZERO);
    let (mut turn, mut settling, mut quiet) = (histogram(), histogram(), histogram());
    let mut latency = Latency::new();
    let started = Instant::now();
    let (mut bytes, mut is_cut) = (0, false);
    while bytes < limits.bytes && !is_cut {
        let turned = one_turn(shard, maker, limits)?;
        turn.saturating_record(nanoseconds(turned.took));
        latency.record(turned.took);
        let which = if turned.is_settling { &mut settling } else { &mut quiet };
        which.saturating_record(nanoseconds(turned.took));
        bytes += maker.cell.turn_bytes() * u64::from(limits.batches);
        if let Some(warm) = warm {
            warm.used(bytes);
        }
        is_cut = limits.time <= started.elapsed().saturating_sub(maker.wall);
    }
    let elapsed = started.elapsed();
    let own = measure::process_cpu().saturating_sub(cpu);
    let others = measure::machine_cpu().saturating_sub(machine_cpu).saturating_sub(own);
    let cores = measure::f64_of(measure::u64_of(measure::cores()));
    Ok(Measured {
        turns: turn.len(),
        batches: turn.len() * u64::from(maker.cell.partitions) * u64::from(limits.batches),
        bytes,
        wall: elapsed.saturating_sub(maker.wall),
        cpu: own.saturating_sub(maker.cpu + warm_so_far().saturating_sub(warm_cpu)),
        others: others.as_secs_f64() / elapsed.as_secs_f64() / cores,
        turn,
        latency,
        settling,
        quiet,
        ring: RingCounters::default(),
        traced: Traced::default(),
        workers: 0,
        handed: handed_since(shard.handed(), handed),
        journal: counted_since(shard.journal_counters(), journal),
        is_cut: is_cut && bytes < limits.bytes,
    })
}

/// All batches of a turn at once, or one after the other.
fn one_turn(shard: &mut Shard, maker: &mut Maker, limits: Limits) -> Result<Turned, Failure> {
    for _ in 0..limits.batches {
        maker.make()?;
    }
    if limits.is_grouped {
        return shard.turn(&mut maker.batches);
    }
    let logs = maker.batches.len() / measure::usize_of(u64::from(limits.batches));
    let mut whole = Turned { took: Duration::ZERO, is_settling: false };
    while !maker.batches.is_empty() {
        let mut one = maker.batches.drain(..logs).collect();
        let turned = shard.turn(&mut one)?;
        whole.took += turned.took;
        whole.is_settling |= turned.is_settling;
    }
    Ok(whole)
}

fn ring_since(after: RingCounters, before: RingCounters) -> RingCounters {
    RingCounters {
        chains: after.chains - before.chains,
        linked_sqes: after.linked_sqes - before.linked_sqes,
        sqes: after.sqes - before.sqes,
        enters: after.enters - before.enters,
        splices: after.splices - before.splices,
        syncs: after.syncs - before.syncs,
        durable_writes: after.durable_writes - before.durable_writes,
        fixed_writes: after.fixed_writes - before.fixed_writes,
        short_writes: after.short_writes - before.short_writes,
        punts: after.punts - before.punts,
        waited: after.waited - before.waited,
    }
}

fn handed_since(after: Handed, before: Handed) -> Handed {
    Handed {
        plans: after.plans - before.plans,
        syncs: after.syncs - before.syncs,
        settling_syncs: after.settling_syncs - before.settling_syncs,
        durable_writes: after.durable_writes - before.durable_writes,
    }
}

fn counted_since(after: JournalCounters, before: JournalCounters) -> JournalCounters {
    JournalCounters {
        records: after.records - before.records,
        plans: after.plans - before.plans,
        copied: after.copied - before.copied,
        written: after.written - before.written,
        full: after.full - before.full,
        large: after.large - before.large,
        settles: after.settles - before.settles,
    }
}

/// Makes the batches of each turn, outside of what is measured.
pub struct Maker {
    cell: Cell,
    value: Vec<u8>,
    pub batches: Vec<RecordBatch>,
    /// Time and CPU time that it took so far.
    wall: Duration,
    cpu: Duration,
}

impl Maker {
    pub fn new(cell: Cell) -> Maker {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let random = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        };
        let bytes = cell.batch_bytes.saturating_sub(BATCH_BYTES_AROUND_MAX).max(1);
        let value = (0..bytes).map(random).collect();
        Maker { cell, value, batches: Vec::new(), wall: Duration::ZERO, cpu: Duration::ZERO }
    }

    /// One batch with one record for each partition.
    pub fn make(&mut self) -> Result<(), Failure> {
        let (started, cpu) = (Instant::now(), measure::thread_cpu());
        let mut builder = BatchBuilder::new(Codec::None);
        builder.push(&NewRecord::value(now(), &self.value));
        let batch = builder.build();
        for _ in 0..self.cell.partitions {
            let copy = RecordBatch::decode(BytesMut::from(batch.as_bytes()));
            self.batches.push(copy.map_err(|error| Failure::Wrong(error.to_string()))?);
        }
        self.wall += started.elapsed();
        self.cpu += measure::thread_cpu().saturating_sub(cpu);
        Ok(())
    }
}

/// Of turns.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, TURN_NS_MAX, 3).expect("the bounds are fine")
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Journal settings as the command line says them.
pub fn journal_options(bytes: u64, plan_bytes_max: u64) -> JournalOptions {
    JournalOptions {
        mode: JournalMode::Always,
        bytes: ByteCount(bytes),
        plan_bytes_max: ByteCount(plan_bytes_max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every variant, on whatever the temporary folder lies on.
    #[test]
    fn every_variant_makes_every_batch_durable() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        let cell = Cell { partitions: 3, batch_bytes: 20_000 };
        let time = Duration::from_secs(60);
        let limits = Limits { bytes: 3_000_000, time, ..Limits::default() };
        for (variant, name) in NAMES {
            let options = journal_options(1 << 20, 64 << 10);
            let measured = run(folder.path(), (variant, cell), limits, options);
            let measured = measured.unwrap_or_else(|failure| panic!("{name}: {failure}"));
            assert_eq!(measured.turns, 50, "{name}");
            assert_eq!(measured.batches, 150, "{name}");
            let settled = measured.settling.len() + measured.quiet.len();
            assert_eq!(settled, measured.turns, "{name}");
            match variant.has_journal() {
                // The journal wraps several times, so files are synced on its behalf.
                true => {
                    assert!(0 < measured.journal.settles, "{name}");
                    assert!(measured.journal.records >= 1, "{name}");
                    assert_eq!(measured.handed.durable_writes, measured.journal.records, "{name}");
                }
                false => assert_eq!(measured.handed.syncs, 150, "{name}: one for each plan"),
            }
        }
    }

    #[test]
    fn batches_are_as_long_as_they_are_said_to_be() {
        for batch_bytes in [1 << 10, 16 << 10, 1 << 20] {
            let mut maker = Maker::new(Cell { partitions: 2, batch_bytes });
            maker.make().expect("a batch for each");
            assert_eq!(maker.batches.len(), 2);
            let real = maker.batches[0].as_bytes().len();
            assert!((batch_bytes - 16..=batch_bytes).contains(&real), "{real}");
        }
    }
}
