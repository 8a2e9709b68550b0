//! Random histories on the simulated disk, with the power cut (or the process killed) at every
//! step, and again during recovery.
//!
//! What must hold afterwards: every acknowledged batch is there, once, at its offset and byte for
//! byte; nothing is there that was never appended; offsets have no gap; and the log goes on. The
//! page-cache tier promises this for a kill only; after a power cut it still shows nothing twice
//! and nothing made up.

#[path = "simulation/failed_sync.rs"]
mod failed_sync;
#[expect(dead_code, reason = "each test uses its own part")]
mod support;

use std::collections::BTreeMap;
use std::path::Path;

use support::{CLEAN, KILLED, START, Store, batch, config, idempotent, spec};
use uringlog::disk::plan::Parts;
use uringlog::disk::sim::{SimDisk, SimOptions};
use uringlog::disk::{Disk, Lane, Plan, PlanTag, Step};
use uringlog::log::{
    Durability, LogConfig, LogSpec, LogState, OpenError, Opening, PartitionLog, RecoveryReport,
};
use uringlog::units::{ByteCount, Offset, Position, Timestamp};

const DIRECTORY: &str = "/data/topic-0";
const ACTIONS: usize = 40;

/// xorshift64*: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    PowerCut,
    Kill,
}

/// What the world outside knows.
#[derive(Default)]
struct Known {
    /// Checksum and size of every batch that was staged, by base offset; a later one at the same
    /// offset was staged after the former was given up.
    staged: BTreeMap<u64, Vec<(u32, u64)>>,
    /// Acknowledged: base offset and checksum.
    acked: BTreeMap<u64, u32>,
    /// Staged, not acknowledged: base offset, checksum, due.
    waiting: Vec<(u64, u32, Offset)>,
    recovery_point: Offset,
    log_start: Offset,
    is_created: bool,
    is_clean: bool,
    sequence: i32,
}

impl Known {
    fn stage(&mut self, store: &mut Store<SimDisk>, batch: uringlog::format::batch::RecordBatch) {
        let (crc, size) = (batch.header().crc, batch.size().0);
        let appended = store.append(batch);
        assert!(!appended.duplicate);
        let base = appended.base_offset.0;
        self.staged.entry(base).or_default().push((crc, size));
        self.waiting.push((base, crc, appended.due));
    }

    fn note(&mut self, store: &Store<SimDisk>) {
        let cursors = store.log.cursors();
        let (acked, waiting) =
            self.waiting.drain(..).partition(|it| it.2 <= cursors.high_watermark);
        self.waiting = waiting;
        let acked: Vec<(u64, u32, Offset)> = acked;
        self.acked.extend(acked.into_iter().map(|(base, crc, _)| (base, crc)));
        self.recovery_point = cursors.recovery_point;
        self.log_start = cursors.log_start;
    }
}

struct Run {
    seed: u64,
    tier: Durability,
    end: End,
}

impl Run {
    fn config(&self) -> LogConfig {
        LogConfig {
            retention_bytes: Some(ByteCount(9_000)),
            file_delete_delay_ms: 5,
            preallocate: self.seed.is_multiple_of(5),
            flush_messages: match self.tier {
                Durability::Device => 1,
                Durability::PageCache => 7,
            },
            ..config(self.tier)
        }
    }

    fn disk(&self) -> SimDisk {
        let (seed, root) = (self.seed, "/data".into());
        SimDisk::new(SimOptions { seed, root, ..SimOptions::default() })
    }

    /// Plays the history until it is over or the power fails; returns the disk and what is known.
    fn play(&self, crash_after: Option<u64>) -> (SimDisk, Known) {
        let mut known = Known::default();
        let mut random = Random(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut disk = self.disk();
        if let Some(steps) = crash_after {
            disk.crash_after_steps(steps);
        }
        let spec = spec(Path::new(DIRECTORY), self.config());
        let (log, plan) = PartitionLog::create(spec, START);
        let finished = Disk::run(&mut disk, plan);
        let mut store = Store { log, disk, now: START };
        if store.disk.is_crashed() {
            return (store.disk, known);
        }
        known.is_created = true;
        store.log.complete(finished, START);
        for _ in 0..ACTIONS {
            store = self.act(store, &mut random, &mut known);
            if store.disk.is_crashed() {
                return (store.disk, known);
            }
        }
        (store.disk, known)
    }

    fn act(
        &self,
        mut store: Store<SimDisk>,
        random: &mut Random,
        known: &mut Known,
    ) -> Store<SimDisk> {
        store.now = Timestamp(store.now.0 + 1);
        match random.below(20) {
            0..12 => {
                let (count, bytes) = (1 + random.below(3), random.below(700));
                let (count, bytes) = (size_of(count), size_of(bytes));
                let now = store.now;
                known.stage(&mut store, batch(count, bytes, now));
            }
            12..14 => {
                known.stage(&mut store, idempotent(5, known.sequence, 2));
                known.sequence += 2;
            }
            14 => {
                store.log.retain(store.now);
            }
            15 => return self.restart(store, known),
            _ => self.work(&mut store, known),
        }
        if random.below(3) == 0 {
            self.work(&mut store, known);
        }
        store
    }

    fn work(&self, store: &mut Store<SimDisk>, known: &mut Known) {
        while let Some(finished) = store.step() {
            if store.disk.is_crashed() {
                return;
            }
            assert_eq!(finished.result, Ok(()), "{:?}", finished.plan);
            store.log.complete(finished, store.now);
            assert_eq!(store.log.state(), LogState::Serving);
            known.note(store);
        }
    }

    /// A clean stop and start.
    fn restart(&self, mut store: Store<SimDisk>, known: &mut Known) -> Store<SimDisk> {
        self.work(&mut store, known);
        if store.disk.is_crashed() {
            return store;
        }
        let plan = store.log.close(store.now);
        let finished = Disk::run(&mut store.disk, plan);
        if store.disk.is_crashed() {
            return store;
        }
        store.log.complete(finished, store.now);
        known.note(&store);
        known.is_clean = true;
        let how = Opening { log_start: Some(known.log_start), ..CLEAN };
        let spec = spec(Path::new(DIRECTORY), self.config());
        let opened = PartitionLog::open(&mut store.disk, spec, how, store.now);
        match opened {
            Ok((log, report)) => {
                assert!(!report.is_lossy(), "{report:?}");
                store.log = log;
                known.is_clean = false;
            }
            Err(error) => assert!(store.disk.is_crashed(), "{error}"),
        }
        store
    }

    /// Recovers, with the power cut a few more times on the way.
    fn recover(
        &self,
        disk: SimDisk,
        known: &Known,
        random: &mut Random,
    ) -> (Store<SimDisk>, RecoveryReport) {
        let recovery_point = (random.below(2) == 0).then_some(known.recovery_point);
        let how = Opening { recovery_point, log_start: Some(known.log_start), ..KILLED };
        let mut disk = self.end_of(disk);
        for _ in 0..random.below(4) {
            disk.crash_after_steps(random.below(60));
            let spec = spec(Path::new(DIRECTORY), self.config());
            match PartitionLog::open(&mut disk, spec, how, START) {
                Ok(_) => {}
                Err(error) => assert!(disk.is_crashed(), "{error}"),
            }
            disk = self.end_of(disk);
        }
        let spec = spec(Path::new(DIRECTORY), self.config());
        let opened = Store::open(disk, spec, how);
        let (store, report) = opened.unwrap_or_else(|error| self.fail(&format!("{error}")));
        (store, report)
    }

    fn end_of(&self, disk: SimDisk) -> SimDisk {
        match self.end {
            End::PowerCut => disk.crash(),
            End::Kill => disk.reopen(),
        }
    }

    fn fail(&self, what: &str) -> ! {
        panic!("seed {}, {:?}, {:?}: {what}", self.seed, self.tier, self.end)
    }

    fn check(&self, steps: u64) {
        let (disk, known) = self.play(Some(steps));
        let mut random = Random((self.seed ^ steps.wrapping_mul(0x9e37_79b9)) | 1);
        if !known.is_created {
            return self.check_creation(disk);
        }
        let (mut store, report) = self.recover(disk, &known, &mut random);
        let context = || format!("stopped at step {steps}, {report:?}");
        let promised = self.tier == Durability::Device || self.end == End::Kill;
        let start = store.log.cursors().log_start;
        let mut next = start;
        for batch in store.batches_from(start) {
            let header = batch.header();
            let base = header.base().expect("stored");
            if promised && base != next {
                self.fail(&format!("{}: gap from {next} to {base}", context()));
            }
            let is_known = known
                .staged
                .get(&base.0)
                .is_some_and(|staged| staged.contains(&(header.crc, batch.size().0)));
            assert!(is_known, "seed {}: {} made up offset {base}", self.seed, context());
            if let Some(crc) = known.acked.get(&base.0)
                && promised
            {
                assert_eq!(header.crc, *crc, "seed {}: {}", self.seed, context());
            }
            next = header.last_offset().expect("stored") + 1;
        }
        let acked_end = known.acked.keys().next_back().map_or(Offset(0), |base| Offset(*base));
        if promised && !known.acked.is_empty() && next <= acked_end {
            self.fail(&format!("{}: {acked_end} was acknowledged, {next} is next", context()));
        }
        if promised && start > known.log_start {
            self.fail(&format!("{}: the log starts at {start}", context()));
        }
        assert_eq!(store.log.cursors().log_end, next.max(store.log.cursors().log_end));
        let appended = store.append(batch(1, 10, START));
        store.settle();
        assert_eq!(
            store.read_from(appended.base_offset),
            [(appended.base_offset.0, appended.base_offset.0)]
        );
    }

    /// The power failed while the partition was made: it can be made again, or opened.
    fn check_creation(&self, disk: SimDisk) {
        let spec = spec(Path::new(DIRECTORY), self.config());
        let disk = self.end_of(disk);
        let mut store = match Store::open(disk, spec.clone(), KILLED) {
            Ok((store, _)) => store,
            Err(OpenError::Disk { .. }) => Store::create(self.disk(), spec),
            Err(error) => self.fail(&format!("{error}")),
        };
        store.append(batch(1, 10, START));
        store.settle();
        assert_eq!(store.read_from(Offset(0)), [(0, 0)]);
    }
}

fn size_of(number: u64) -> usize {
    usize::try_from(number).expect("small")
}

/// Every step of each seed's history.
fn check_seeds(seeds: std::ops::Range<u64>, tier: Durability, end: End) {
    for seed in seeds {
        let run = Run { seed, tier, end };
        let (disk, known) = run.play(None);
        assert!(!known.acked.is_empty(), "seed {seed}: nothing was acknowledged");
        for steps in 0..disk.steps_run() {
            run.check(steps);
        }
    }
}

#[test]
fn the_device_tier_survives_power_cuts() {
    check_seeds(1..9, Durability::Device, End::PowerCut);
}

/// Writes and syncs fail now and then, and the disk is full for a while: whatever happens, what was
/// acknowledged stays, and the log comes back.
#[test]
fn failing_disks_lose_nothing_acknowledged() {
    let (mut read_only, mut offline) = (0, 0);
    for seed in 1..60 {
        let run = Run { seed, tier: Durability::Device, end: End::PowerCut };
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let faulty = SimOptions {
            seed,
            root: "/data".into(),
            write_fails_one_in: 25,
            sync_fails_one_in: 25,
            ..SimOptions::default()
        };
        let config = LogConfig { retention_bytes: None, ..run.config() };
        let spec = spec(Path::new(DIRECTORY), config);
        let Some(mut store) = created(SimDisk::new(faulty), spec.clone()) else { continue };
        let mut known = Known::default();
        for _ in 0..60 {
            let quota = (random.below(4) == 0).then(|| ByteCount(random.below(120_000)));
            store.disk.set_quota(quota);
            let batch = batch(1, size_of(random.below(900)), store.now);
            if store.log.state() == LogState::Serving {
                known.stage(&mut store, batch);
            }
            while let Some(finished) = store.step() {
                store.log.complete(finished, store.now);
                known.note(&store);
            }
            known.waiting.clear();
            match store.log.state() {
                LogState::Serving => {}
                LogState::ReadOnly(_) => {
                    read_only += 1;
                    // It may fail, too, and is tried again after the next append.
                    let _ = store.log.resume(&mut store.disk, store.now);
                    if matches!(store.log.state(), LogState::Offline(_)) {
                        // A sync of its failed.
                        store = reopened(ended(store.disk, &mut random), &spec);
                    }
                }
                LogState::Offline(_) => {
                    offline += 1;
                    store = reopened(ended(store.disk, &mut random), &spec);
                }
            }
            let found: BTreeMap<u64, u32> = store
                .batches_from(Offset(0))
                .iter()
                .map(|it| (it.header().base_offset.unsigned_abs(), it.header().crc))
                .collect();
            for (base, crc) in &known.acked {
                assert_eq!(found.get(base), Some(crc), "seed {seed}, offset {base}");
            }
        }
    }
    assert!(read_only > 50, "{read_only}");
    assert!(offline > 50, "{offline}");
}

fn created(mut disk: SimDisk, spec: LogSpec) -> Option<Store<SimDisk>> {
    let (log, plan) = PartitionLog::create(spec, START);
    let finished = disk.run(plan);
    let mut store = Store { log, disk, now: START };
    store.log.complete(finished, START);
    (store.log.state() == LogState::Serving).then_some(store)
}

/// The recovery point comes to the end of a segment, which then rolls; the power is cut before its
/// indexes are synced. Their last time entry, zeros now, must not make it look old.
#[test]
fn a_segment_whose_indexes_were_lost_is_not_taken_for_old() {
    let mut cut = 0;
    for seed in 1..=64 {
        let run = Run { seed, tier: Durability::Device, end: End::PowerCut };
        let config = LogConfig { retention_ms: Some(3_600_000), ..config(run.tier) };
        let spec = spec(Path::new(DIRECTORY), config);
        let mut store = Store::create(run.disk(), spec.clone());
        while store.log.segments().count() < 2 {
            store.append(batch(1, 600, START));
            let plan = store.log.plan(store.now).expect("a batch is staged");
            let finished = Disk::run(&mut store.disk, plan);
            store.log.complete(finished, store.now);
        }
        let end = store.log.cursors().log_end;
        let recovery_point = Some(store.log.cursors().recovery_point);
        cut += u64::from(recovery_point == store.log.segments().last().map(|it| it.base));
        let how = Opening { recovery_point, ..KILLED };
        let (mut store, _) = Store::open(store.disk.crash(), spec, how).expect("it opens");
        store.log.retain(Timestamp(START.0 + 1));
        store.settle();
        let (first, cursors) = (store.log.segments().next(), store.log.cursors());
        assert_eq!(first.map(|it| it.base), Some(Offset(0)), "seed {seed}");
        assert_eq!((cursors.log_start, cursors.log_end), (Offset(0), end), "seed {seed}");
    }
    assert!(0 < cut, "the recovery point was where it should be");
}

/// The process is killed, or the power cut.
fn ended(disk: SimDisk, random: &mut Random) -> SimDisk {
    if random.below(2) == 0 { disk.reopen() } else { disk.crash() }
}

/// Opens as often as it takes.
fn reopened(mut disk: SimDisk, spec: &LogSpec) -> Store<SimDisk> {
    disk.set_quota(None);
    loop {
        match PartitionLog::open(&mut disk, spec.clone(), KILLED, START) {
            Ok((log, _)) => return Store { log, disk, now: START },
            Err(OpenError::Disk { .. }) => disk = disk.crash(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A byte of a durable batch is wrong, and the power is cut at every step of the recovery.
#[test]
fn damage_costs_only_itself_even_if_recovery_is_cut() {
    let damage = |segment: u64, at: u64| {
        let run = Run { seed: 3, tier: Durability::Device, end: End::PowerCut };
        let mut store = Store::create(run.disk(), spec(Path::new(DIRECTORY), run.config()));
        for _ in 0..90 {
            store.append(batch(1, 60, START));
        }
        store.settle();
        let slice = store.locate(Offset(segment)).expect("there");
        let byte = store.bytes(slice.file, Position(at), Position(at + 1))[0] ^ 0x41;
        let file = slice.file;
        let steps = smallvec::smallvec![
            Step::Write { file, at: Position(at), parts: Parts::from_iter([vec![byte].into()]) },
            Step::Sync { file },
        ];
        let tag = PlanTag { owner: 99, lane: Lane::Append, number: 0 };
        assert_eq!(store.disk.run(Plan { tag, steps }).result, Ok(()));
        (run, store.disk.reopen())
    };
    // The first and a later batch of the first, the second and the last segment.
    for (segment, lost) in [(0, 0), (0, 4), (31, 31), (31, 40), (62, 62), (62, 70)] {
        let at = (lost - segment) * batch(1, 60, START).size().0 + 70;
        for steps in 0.. {
            let (run, mut disk) = damage(segment, at);
            disk.crash_after_steps(steps);
            let spec = || spec(Path::new(DIRECTORY), run.config());
            let is_cut = PartitionLog::open(&mut disk, spec(), KILLED, START).is_err();
            let (mut store, _) = Store::open(disk.crash(), spec(), KILLED).expect("opens");
            let start = store.log.cursors().log_start;
            let found: Vec<u64> = store.read_from(start).iter().map(|it| it.0).collect();
            let expected: Vec<u64> = (0..90).filter(|offset| *offset != lost).collect();
            assert_eq!(found, expected, "offset {lost} damaged, cut at step {steps}");
            if !is_cut {
                assert!(steps > 20, "the recovery takes more steps than {steps}");
                break;
            }
        }
    }
}

#[test]
fn the_device_tier_survives_kills() {
    check_seeds(20..24, Durability::Device, End::Kill);
}

#[test]
fn the_page_cache_tier_survives_kills() {
    check_seeds(40..44, Durability::PageCache, End::Kill);
}

#[test]
fn the_page_cache_tier_makes_nothing_up_after_power_cuts() {
    check_seeds(60..64, Durability::PageCache, End::PowerCut);
}
