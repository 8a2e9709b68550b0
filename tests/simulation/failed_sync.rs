//! An fdatasync fails, and the kernel marks clean what the device lacks. The process starts again
//! without a reboot, so the page cache still shows it; more is acknowledged behind it; then the
//! power is cut.

use std::collections::BTreeMap;
use std::path::Path;

use uringlog::disk::faults::FaultHook;
use uringlog::disk::sim::{SimDisk, SimOptions};
use uringlog::format::names::{FileKind, SegmentFile};
use uringlog::log::{Durability, LogSpec, LogState, Opening};
use uringlog::units::{ByteCount, Offset};

use crate::support::{KILLED, START, Store, batch, config, spec};
use crate::{DIRECTORY, Known, Random, size_of};

const SEEDS: u64 = 192;

struct Run {
    random: Random,
    hook: FaultHook,
    spec: LogSpec,
    known: Known,
    /// Whether the starts know the recovery point.
    is_checkpointed: bool,
}

#[test]
fn what_is_acknowledged_behind_a_failed_sync_survives_a_power_cut() {
    for seed in 1..=SEEDS {
        eprintln!("history {seed}");
        Run::new(seed).play(seed);
    }
}

/// What was refused is cut off, and the sync of the cut fails. The process starts again, and finds
/// the length that it wanted: the device must have it, too.
#[test]
fn what_was_cut_off_before_a_failed_sync_stays_away() {
    for seed in 1..=64 {
        eprintln!("history {seed}");
        let mut run = Run::new(seed);
        run.spec.config.segment_bytes = ByteCount(100_000);
        let mut store = run.create(seed);
        run.append(&mut store);
        let end = store.log.cursors().log_end;
        let (whole, cut) = (batch(1, 700, START), batch(1, 700, START));
        run.hook.short_write(1, whole.size().0, libc::ENOSPC);
        store.append(whole);
        store.append(cut);
        let finished = store.step().expect("batches are staged");
        store.log.complete(finished, START);
        assert!(matches!(store.log.state(), LogState::ReadOnly(_)));
        // The first one is that before anything is read.
        run.hook.fail_sync(2, libc::EIO);
        store.log.resume(&mut store.disk, START).expect_err("its sync fails");
        assert!(matches!(store.log.state(), LogState::Offline(_)));
        let store = run.open(store.disk.reopen());
        assert_on_device(&store);
        let store = run.open(store.disk.crash());
        assert_eq!(store.log.cursors().log_end, end, "what was refused has come back");
    }
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let is_checkpointed = random.below(2) == 0;
        let spec = spec(Path::new(DIRECTORY), config(Durability::Device));
        let (hook, known) = (FaultHook::new(), Known::default());
        Run { random, hook, spec, known, is_checkpointed }
    }

    fn create(&self, seed: u64) -> Store<SimDisk> {
        let (root, faults) = ("/data".into(), Some(self.hook.clone()));
        let options = SimOptions { seed, root, faults, ..SimOptions::default() };
        Store::create(SimDisk::new(options), self.spec.clone())
    }

    fn play(&mut self, seed: u64) {
        let mut store = self.create(seed);
        for _ in 0..self.random.below(4) {
            self.append(&mut store);
        }
        // The append's, or one of those behind a roll.
        self.hook.fail_sync(1 + self.random.below(4), libc::EIO);
        while store.log.state() == LogState::Serving {
            self.append(&mut store);
        }
        assert!(matches!(store.log.state(), LogState::Offline(_)));
        self.known.waiting.clear();

        let mut store = self.open(store.disk.reopen());
        assert_on_device(&store);
        for _ in 0..1 + self.random.below(4) {
            self.append(&mut store);
        }
        assert!(self.known.waiting.is_empty(), "all of it is acknowledged");
        self.open(store.disk.crash());
    }

    /// A few batches, and all plans that are due.
    fn append(&mut self, store: &mut Store<SimDisk>) {
        for _ in 0..1 + self.random.below(6) {
            let bytes = size_of(1 + self.random.below(900));
            self.known.stage(store, batch(1, bytes, START));
        }
        while let Some(finished) = store.step() {
            store.log.complete(finished, START);
            self.known.note(store);
        }
    }

    /// Starts, and finds what was acknowledged.
    fn open(&self, disk: SimDisk) -> Store<SimDisk> {
        let recovery_point = self.is_checkpointed.then_some(self.known.recovery_point);
        let how = Opening { recovery_point, ..KILLED };
        let opened = Store::open(disk, self.spec.clone(), how);
        let mut store = opened.expect("no sync fails any more").0;
        let batches = store.batches_from(Offset(0));
        let found: BTreeMap<u64, u32> = batches
            .iter()
            .map(|it| (it.header().base_offset.unsigned_abs(), it.header().crc))
            .collect();
        for (base, crc) in &self.known.acked {
            assert_eq!(found.get(base), Some(crc), "offset {base} was acknowledged");
        }
        store
    }
}

/// Every `.log`, and every index of a sealed segment, has on the device what reads see. A snapshot
/// of producers need not: its checksum tells when it isn't whole, and the log has all of it.
fn assert_on_device(store: &Store<SimDisk>) {
    let directory = Path::new(DIRECTORY);
    let active = store.log.segments().last().expect("one is active").base;
    for (name, bytes) in store.disk.tree(directory).expect("it was opened") {
        let Some(file) = SegmentFile::parse(name.to_str().expect("ASCII")) else { continue };
        if file.kind == FileKind::Snapshot {
            continue;
        }
        if file.base != active || file.kind == FileKind::Log {
            let durable = store.disk.durable_bytes(&directory.join(&name));
            assert!(durable == Some(bytes), "{} is not on the device", name.display());
        }
    }
}
