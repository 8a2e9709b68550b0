//! Durable writes: the same on all disks, and torn at sectors where one is cut off.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use uringlog::disk::faults::FaultHook;
use uringlog::disk::sim::{SimDisk, SimOptions};
use uringlog::disk::{Aligned, Disk, DiskError, Finished, Step, StepFailure};
use uringlog::units::Position;

use crate::{Tree, disks, file, place, plan, root_for, tree, write};

const FILE_BYTES: usize = 65_536;
const DISKS: [&str; 4] = ["plain", "ring", "ring, registered files", "simulated"];

fn buffer(byte: u8, length: usize) -> Box<Aligned> {
    let mut buffer = Box::new(Aligned::new(length));
    buffer.set_length(length);
    buffer.memory_mut().fill(byte);
    buffer
}

fn durable(at: u64, buffer: Box<Aligned>) -> Step {
    Step::WriteDurable { file: file(2), at: Position(at), buffer }
}

/// Makes a file full of ones, durably, and opens it for direct writing as file 2.
fn prepare(disk: &mut dyn Disk, root: &Path) {
    let finished = disk.run(plan(vec![
        Step::Create { file: file(1), place: place(root, "j") },
        write(file(1), 0, &[&[1; FILE_BYTES]]),
        Step::Sync { file: file(1) },
        Step::SyncDirectory { directory: Arc::from(root) },
        Step::Close { file: file(1) },
    ]));
    assert_eq!(finished.result, Ok(()));
    let open = Step::OpenDirect { file: file(2), place: place(root, "j") };
    assert_eq!(
        disk.run(plan(vec![open])).result,
        Ok(()),
        "these tests need a temporary directory (TMPDIR) on a file system with direct I/O"
    );
}

fn contents(disk: &mut dyn Disk, root: &Path) -> Vec<u8> {
    tree(disk, root).remove(Path::new("j")).expect("it was made")
}

/// Runs `test` on each disk, with a fault hook and a prepared file.
fn on_each(mut test: impl FnMut(&str, &FaultHook, &mut dyn Disk, &Path)) {
    for name in DISKS {
        let hook = FaultHook::new();
        let mut disks = disks(|| Some(hook.clone()));
        let index = disks.iter().position(|(it, _)| *it == name).expect("it is there");
        let (_, mut disk) = disks.remove(index);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = root_for(name, &directory);
        prepare(disk.as_mut(), &root);
        test(name, &hook, disk.as_mut(), &root);
    }
}

fn failure(step: usize, error: DiskError) -> Result<(), StepFailure> {
    Err(StepFailure { step, partial: true, error })
}

fn buffer_of(finished: Finished, step: usize) -> Box<Aligned> {
    match finished.plan.steps.into_iter().nth(step) {
        Some(Step::WriteDurable { buffer, .. }) => buffer,
        other => panic!("a durable write comes home, not {other:?}"),
    }
}

#[test]
fn a_durable_write_overwrites_in_place() {
    on_each(|name, _, disk, root| {
        let mut expected = vec![1; FILE_BYTES];
        let mut bytes = buffer(2, 12_288);
        for (round, registers) in [(2, false), (3, true), (4, true)] {
            if registers {
                disk.register(&mut bytes);
            }
            let at = usize::from(round) * 4096;
            bytes.memory_mut().fill(round);
            let finished = disk.run(plan(vec![durable(u64::from(round) * 4096, bytes)]));
            assert_eq!(finished.result, Ok(()), "{name}");
            bytes = buffer_of(finished, 0);
            expected[at..at + 12_288].fill(round);
            assert_eq!(bytes.registration().is_some(), registers && name.starts_with("ring"));
        }
        // Fewer bytes than the buffer holds, its last block, and steps around it.
        bytes.set_length(4096);
        let finished = disk.run(plan(vec![
            Step::CreateDirectory { place: place(root, "before") },
            durable(61_440, bytes),
            Step::CreateDirectory { place: place(root, "behind") },
            Step::Close { file: file(2) },
        ]));
        assert_eq!(finished.result, Ok(()), "{name}");
        expected[61_440..].fill(4);
        assert!(contents(disk, root) == expected, "{name}");
        assert_eq!(disk.list(root).expect("it is there").len(), 3, "{name}");
    });
}

#[test]
fn a_position_between_blocks_is_refused() {
    on_each(|name, _, disk, root| {
        for at in [1, 512, 4095] {
            let steps =
                vec![durable(at, buffer(2, 4096)), Step::Remove { place: place(root, "j") }];
            let refused = failure(0, DiskError::Io(libc::EINVAL));
            assert_eq!(disk.run(plan(steps)).result, refused, "{name}");
        }
        assert!(contents(disk, root) == [1; FILE_BYTES], "{name}");
    });
}

/// An odd read is refused by the kernel, which shows that the file was opened for direct I/O.
#[test]
fn the_file_is_open_past_the_page_cache() {
    on_each(|name, _, disk, _| {
        let read = Step::Read { file: file(2), at: Position(1), bytes: BytesMut::zeroed(10) };
        let result = disk.run(plan(vec![read])).result;
        let error = DiskError::Io(libc::EINVAL);
        let refused = Err(StepFailure { step: 0, partial: false, error });
        assert_eq!(result, if name == "simulated" { Ok(()) } else { refused }, "{name}");
    });
}

#[test]
fn a_file_that_is_not_there_is_neither_opened_nor_made() {
    on_each(|name, _, disk, root| {
        let open = Step::OpenDirect { file: file(3), place: place(root, "absent") };
        let absent = StepFailure { step: 0, partial: false, error: DiskError::NotFound };
        assert_eq!(disk.run(plan(vec![open])).result, Err(absent), "{name}");
        let closed = Step::WriteDurable { file: file(3), at: Position(0), buffer: buffer(2, 4096) };
        let result = disk.run(plan(vec![closed])).result;
        assert_eq!(result, failure(0, DiskError::Io(libc::EBADF)), "{name}");
        assert_eq!(disk.list(root).expect("it is there").len(), 1, "{name}");
    });
}

#[test]
fn faults_on_demand_hit_durable_writes() {
    let mut all: Vec<(Vec<Result<(), StepFailure>>, Tree)> = Vec::new();
    on_each(|_, hook, disk, root| {
        let mut run = |at, byte| disk.run(plan(vec![durable(at, buffer(byte, 12_288))])).result;
        let mut results = Vec::new();
        hook.fail_sync(1, libc::EIO);
        results.push(run(0, 2));
        hook.fail_write(1, libc::EIO);
        results.push(run(0, 3));
        hook.short_write(2, 9000, libc::ENOSPC);
        results.push(run(0, 4));
        results.push(run(12_288, 5));
        hook.short_write(1, 100, libc::ENOSPC);
        results.push(run(24_576, 6));
        hook.short_write(1, 100_000, libc::EIO);
        results.push(run(36_864, 7));
        all.push((results, tree(disk, root)));
    });
    let (results, tree) = &all[0];
    let (broken, full) = (DiskError::Io(libc::EIO), DiskError::NoSpace);
    let failed = |error| failure(0, error);
    let expected =
        [failed(broken), failed(broken), Ok(()), failed(full), failed(full), failed(broken)];
    assert_eq!(results[..], expected);
    let mut bytes = vec![1; FILE_BYTES];
    bytes[..12_288].fill(4);
    bytes[12_288..12_288 + 8192].fill(5);
    bytes[36_864..49_152].fill(7);
    assert!(tree[Path::new("j")] == bytes);
    assert_eq!(all.len(), 4);
    for (name, answers) in DISKS.iter().zip(&all) {
        assert!(answers == &all[0], "{name}: {:?}", answers.0);
    }
}

#[test]
fn a_held_durable_write_has_not_begun() {
    on_each(|name, hook, disk, root| {
        hook.hold_syncs();
        disk.submit(plan(vec![
            Step::CreateDirectory { place: place(root, "before") },
            durable(0, buffer(2, 8192)),
            Step::CreateDirectory { place: place(root, "behind") },
        ]));
        disk.enter();
        while hook.syncs_waiting() == 0 {
            assert!(disk.reap(false).is_none(), "{name}");
        }
        // A fault that is set while it stands still meets it when it goes on.
        hook.short_write(1, 4096, libc::EIO);
        hook.release_syncs();
        let finished = disk.reap(true).expect("it was let go");
        assert_eq!(finished.result, failure(1, DiskError::Io(libc::EIO)), "{name}");
        assert_eq!(hook.syncs_waiting(), 0, "{name}");
        let mut expected = vec![1; FILE_BYTES];
        expected[..4096].fill(2);
        assert!(contents(disk, root) == expected, "{name}");
        assert_eq!(disk.list(root).expect("it is there").len(), 2, "{name}: j and before");
        // Whole, without a further fault; and not a byte of it before.
        hook.hold_syncs();
        disk.submit(plan(vec![durable(0, buffer(3, 8192))]));
        disk.enter();
        while hook.syncs_waiting() == 0 {
            assert!(disk.reap(false).is_none(), "{name}");
        }
        if name != "simulated" {
            assert!(std::fs::read(root.join("j")).expect("it is there") == expected, "{name}");
        }
        hook.release_syncs();
        assert_eq!(disk.reap(true).expect("it was let go").result, Ok(()), "{name}");
        expected[..8192].fill(3);
        assert!(contents(disk, root) == expected, "{name}");
    });
}

/// One step on the same file, through the page cache or past it.
#[derive(Clone, Debug)]
enum Action {
    Durable { block: u8, blocks: u8, byte: u8 },
    Cached { at: u16, length: u16, byte: u8 },
    Read { at: u16, length: u16 },
    Sync,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (0_u8..12, 0_u8..5, any::<u8>())
            .prop_map(|(block, blocks, byte)| Action::Durable { block, blocks, byte }),
        3 => (0_u16..50_000, 0_u16..15_000, any::<u8>())
            .prop_map(|(at, length, byte)| Action::Cached { at, length, byte }),
        2 => (0_u16..50_000, 0_u16..15_000).prop_map(|(at, length)| Action::Read { at, length }),
        1 => Just(Action::Sync),
    ]
}

impl Action {
    /// The step, through file 2 (direct) or 3.
    fn step(&self) -> Step {
        match *self {
            Action::Durable { block, blocks, byte } => {
                durable(u64::from(block) * 4096, buffer(byte, usize::from(blocks) * 4096))
            }
            Action::Cached { at, length, byte } => {
                write(file(3), u64::from(at), &[&vec![byte; usize::from(length)]])
            }
            Action::Read { at, length } => {
                let bytes = BytesMut::zeroed(usize::from(length));
                Step::Read { file: file(3), at: Position(u64::from(at)), bytes }
            }
            Action::Sync => Step::Sync { file: file(3) },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn both_ways_into_a_file_leave_the_same_bytes(
        history in prop::collection::vec(prop::collection::vec(action(), 1..8), 1..6)
    ) {
        let mut all = Vec::new();
        on_each(|_, _, disk, root| {
            let open = Step::Open { file: file(3), place: place(root, "j") };
            assert_eq!(disk.run(plan(vec![open])).result, Ok(()));
            let run = |actions: &Vec<Action>| {
                let finished = disk.run(plan(actions.iter().map(Action::step).collect()));
                (finished.result, finished.plan.steps)
            };
            let answers: Vec<_> = history.iter().map(run).collect();
            all.push((answers, contents(disk, root)));
        });
        for (name, answers) in DISKS.iter().zip(&all) {
            prop_assert!(answers.0.iter().all(|(result, _)| result.is_ok()));
            prop_assert!(answers == &all[0], "{}", name);
        }
    }
}

fn simulated(seed: u64) -> SimDisk {
    let mut disk = SimDisk::new(SimOptions { seed, ..SimOptions::default() });
    prepare(&mut disk, Path::new("/"));
    disk
}

fn sectors(bytes: &[u8]) -> Vec<u8> {
    let sectors = bytes.chunks(512);
    let firsts = sectors.map(|sector| {
        assert!(sector.iter().all(|byte| *byte == sector[0]), "sectors are whole");
        sector[0]
    });
    firsts.collect()
}

#[test]
fn the_power_fails_during_a_durable_write_and_sectors_are_old_or_new() {
    let path = Path::new("/j");
    let mut patterns = BTreeSet::new();
    for seed in 0..64 {
        let mut disk = simulated(seed);
        assert_eq!(disk.run(plan(vec![durable(4096, buffer(2, 4096))])).result, Ok(()));
        disk.crash_after_steps(0);
        assert!(disk.run(plan(vec![durable(8192, buffer(3, 4096))])).result.is_err());
        assert!(disk.is_crashed());
        let disk = disk.crash();
        let bytes = disk.durable_bytes(path).expect("its name was synced");
        assert_eq!(disk.tree(Path::new("/")).expect("the root")[Path::new("j")], bytes);
        assert_eq!(bytes[4096..8192], [2; 4096], "what was over is durable without a sync");
        assert_eq!(bytes[..4096], [1; 4096]);
        assert_eq!(bytes[12_288..], [1; FILE_BYTES - 12_288]);
        let torn = sectors(&bytes[8192..12_288]);
        assert!(torn.iter().all(|byte| [1, 3].contains(byte)));
        patterns.insert(torn);
    }
    assert!(40 < patterns.len(), "sectors are independent: {}", patterns.len());
}

/// A failed write shows what the device has; a failed sync shows all of it, durable or not.
#[test]
fn a_failed_durable_write_is_durable_in_part() {
    let check = |write_fails_one_in, sync_fails_one_in| {
        let mut seen_whole = 0;
        for seed in 0..32 {
            let plain = SimOptions { seed, ..SimOptions::default() };
            let mut disk =
                SimDisk::new(SimOptions { write_fails_one_in, sync_fails_one_in, ..plain });
            let root = Path::new("/");
            // With every write or sync failing, the file is made without either.
            let finished = disk.run(plan(vec![
                Step::Create { file: file(2), place: place(root, "j") },
                Step::Allocate { file: file(2), length: uringlog::units::ByteCount(65_536) },
                durable(0, buffer(2, 8192)),
            ]));
            assert_eq!(finished.result, failure(2, DiskError::Io(libc::EIO)));
            let durable = sectors(&disk.durable_bytes(Path::new("/j")).expect("it was made"));
            let cached = disk.tree(root).expect("the root").remove(Path::new("j")).expect("made");
            let cached = sectors(&cached[..8192]);
            let news = durable.iter().filter(|byte| **byte == 2).count();
            assert!(0 < news && news < 16, "{news} of 16 sectors");
            seen_whole += usize::from(cached.iter().all(|byte| *byte == 2));
        }
        seen_whole
    };
    assert_eq!(check(1, 0), 0);
    assert_eq!(check(0, 1), 32);
}

#[test]
fn a_bit_is_flipped_for_good() {
    let mut disk = simulated(1);
    let path = Path::new("/j");
    disk.flip_bit(path, 5000, 3);
    let mut expected = vec![1; FILE_BYTES];
    expected[5000] = 0b1001;
    assert!(disk.durable_bytes(path).expect("it is there") == expected);
    assert!(contents(&mut disk, Path::new("/")) == expected);
    let mut disk = disk.crash();
    assert!(contents(&mut disk, Path::new("/")) == expected);
    assert_eq!(disk.durable_bytes(Path::new("/absent")), None);
}

#[test]
fn unsynced_writes_are_no_danger_to_a_durable_one() {
    for seed in 0..64 {
        let mut disk = simulated(seed);
        let old = Bytes::from(vec![9; 16_384]);
        let steps = vec![
            Step::Write { file: file(2), at: Position(0), parts: [old].into_iter().collect() },
            durable(4096, buffer(2, 4096)),
        ];
        assert_eq!(disk.run(plan(steps)).result, Ok(()));
        let bytes = disk.crash().durable_bytes(Path::new("/j")).expect("it is there");
        assert_eq!(bytes[4096..8192], [2; 4096]);
    }
}
