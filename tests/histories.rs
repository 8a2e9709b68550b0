//! The same random histories of a log on plain files, on the ring and on the simulated disk: they
//! must leave identical directories, and tell the same on the way.

#[expect(dead_code, reason = "each test uses its own part")]
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use support::{CLEAN, KILLED, START, Store, batch, config, idempotent, spec};
use uringlog::disk::plain::PlainDisk;
use uringlog::disk::sim::{SimDisk, SimOptions};
use uringlog::disk::{Disk, FileId, Lane, Place, Plan, PlanTag, Step};
use uringlog::log::{Cursors, Durability, LogConfig, LogSpec};
use uringlog::ring::{RingDisk, RingOptions};
use uringlog::units::{ByteCount, LeaderEpoch, Offset, Position, Timestamp, usize_of};

const HISTORIES: u64 = 24;
const ACTIONS: usize = 60;

/// What a history leaves: every file, and the cursors after every action.
#[derive(PartialEq, Debug)]
struct Left {
    files: BTreeMap<String, Vec<u8>>,
    cursors: Vec<Cursors>,
}

/// xorshift64*: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % bound
    }
}

fn settings(tier: Durability) -> LogConfig {
    LogConfig {
        retention_ms: Some(60_000),
        retention_bytes: Some(ByteCount(12_000)),
        segment_ms: 30_000,
        file_delete_delay_ms: 5_000,
        ..config(tier)
    }
}

fn history<D: Disk>(disk: D, directory: &Path, (seed, tier): (u64, Durability)) -> Left {
    let mut random = Random(seed * 2 + 1);
    let place = directory.join("topic-0");
    let mut number = support::OWNER;
    let spec_of = |number| LogSpec { number, ..spec(&place, settings(tier)) };
    let mut store = Store::create(disk, spec_of(number));
    let (mut cursors, mut sequence) = (Vec::new(), 0);
    for _ in 0..ACTIONS {
        match random.below(10) {
            0..=3 => {
                let count = 1 + usize_of(random.below(3));
                store.append(batch(count, 50 + usize_of(random.below(900)), store.now));
            }
            4 => {
                store.append(idempotent(7, sequence, 2));
                sequence += 2;
            }
            5 => store.settle(),
            6 => store.now = Timestamp(store.now.0 + 1_000 * (1 + random.below(20)).cast_signed()),
            7 => drop(store.log.retain(store.now)),
            8 => advance(&mut store, &mut random),
            _ => {
                let how = if random.below(2) == 0 { CLEAN } else { KILLED };
                number += 1;
                store = reopen(store, spec_of(number), how.clean);
            }
        }
        cursors.push(store.log.cursors());
    }
    store.close();
    Left { files: files(&mut store.disk, &place), cursors }
}

fn advance<D: Disk>(store: &mut Store<D>, random: &mut Random) {
    let cursors = store.log.cursors();
    let span = cursors.high_watermark - cursors.log_start + 1;
    let to = Offset(cursors.log_start.0 + random.below(span));
    store.log.advance_log_start(to).expect("not beyond the high watermark");
}

fn reopen<D: Disk>(mut store: Store<D>, spec: LogSpec, clean: bool) -> Store<D> {
    let now = store.now;
    if clean {
        store.close();
    } else {
        store.settle();
    }
    let cursors = store.log.cursors();
    let how = uringlog::log::Opening {
        clean,
        recovery_point: Some(cursors.recovery_point),
        log_start: Some(cursors.log_start),
        ..KILLED
    };
    let (mut store, _) = Store::open(store.disk, spec, how).expect("it opens");
    store.now = now;
    let epoch = LeaderEpoch(store.log.leader_epoch().0);
    store.log.become_leader(epoch, now);
    store
}

/// Every file of a directory, read through the disk.
fn files<D: Disk>(disk: &mut D, directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for (number, entry) in (0..).zip(disk.list(directory).expect("it is there")) {
        let file = FileId { owner: u32::MAX, number };
        let place = Place { directory: directory.into(), name: entry.name.as_str().into() };
        let bytes = BytesMut::zeroed(usize_of(entry.length.0));
        let tag = PlanTag { owner: u32::MAX, lane: Lane::Read, number: 0 };
        let steps = [
            Step::Open { file, place },
            Step::Read { file, at: Position(0), bytes },
            Step::Close { file },
        ];
        let finished = disk.run(Plan { tag, steps: steps.into_iter().collect() });
        assert_eq!(finished.result, Ok(()), "{}", entry.name);
        let read = finished.plan.steps.into_iter().nth(1);
        let Some(Step::Read { bytes, .. }) = read else { panic!("the second step is a read") };
        files.insert(entry.name, bytes.to_vec());
    }
    files
}

/// Recovery looks at the age of files, so the simulated ones are as young as the real ones.
fn simulated(seed: u64, root: &Path) -> SimDisk {
    let root = root.to_owned();
    let mut disk = SimDisk::new(SimOptions { seed, root, ..SimOptions::default() });
    disk.set_now(uringlog::shard::now());
    disk
}

fn check(tier: Durability) {
    for seed in 0..HISTORIES {
        let (one, two) = (tempfile::tempdir(), tempfile::tempdir());
        let (one, two) = (one.expect("a directory"), two.expect("a directory"));
        let plain = history(PlainDisk::new(4_000, None), one.path(), (seed, tier));
        let options = RingOptions { files_max: 4_000, ..RingOptions::default() };
        let ring = RingDisk::new(options).expect("io_uring");
        let ring = history(ring, two.path(), (seed, tier));
        let root = PathBuf::from("/data");
        let simulated = history(simulated(seed, &root), &root, (seed, tier));
        assert!(plain.files.len() > 3, "the history left something");
        assert_eq!(plain.cursors, ring.cursors, "seed {seed}");
        assert_eq!(plain.cursors, simulated.cursors, "seed {seed}");
        for (name, bytes) in &plain.files {
            assert_eq!(ring.files.get(name), Some(bytes), "ring, {name}, seed {seed}");
            assert_eq!(simulated.files.get(name), Some(bytes), "simulated, {name}, seed {seed}");
        }
        assert_eq!(plain.files.len(), ring.files.len(), "seed {seed}");
        assert_eq!(plain.files.len(), simulated.files.len(), "seed {seed}");
    }
}

#[test]
fn histories_leave_the_same_on_every_disk_in_the_device_tier() {
    check(Durability::Device);
}

#[test]
fn histories_leave_the_same_on_every_disk_in_the_page_cache_tier() {
    check(Durability::PageCache);
}

#[test]
fn histories_differ_by_their_seed() {
    let of = |seed| {
        let root = PathBuf::from("/data");
        history(simulated(seed, &root), &root, (seed, Durability::Device)).cursors
    };
    assert_ne!(of(1), of(2));
    assert!(of(1).iter().any(|it| it.log_start > Offset(0)), "something was deleted");
    assert_eq!(START, Timestamp(1_700_000_000_000));
}
