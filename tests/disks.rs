//! One seam, three disks: the same history of plans leaves the same bytes on all of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use uringlog::disk::faults::FaultHook;
use uringlog::disk::plain::PlainDisk;
use uringlog::disk::sim::{SimDisk, SimOptions};
use uringlog::disk::{Disk, DiskError, FileId, Lane, Place, Plan, PlanTag, Step, StepFailure};
use uringlog::ring::{RingDisk, RingOptions};
use uringlog::units::{ByteCount, Position};

#[path = "disks/durable.rs"]
mod durable;
#[path = "disks/forget.rs"]
mod forget;

type Tree = BTreeMap<PathBuf, Vec<u8>>;

fn ring_options(faults: Option<FaultHook>) -> RingOptions {
    RingOptions { entries: 16, cq_entries: 32, files_max: 400, faults, ..RingOptions::default() }
}

/// Every disk that there is, each over a directory of its own.
fn disks(faults: impl Fn() -> Option<FaultHook>) -> Vec<(&'static str, Box<dyn Disk>)> {
    let registered = RingDisk::with_registered_files(ring_options(faults()));
    let sim = SimOptions { faults: faults(), root: PathBuf::from("/"), ..SimOptions::default() };
    vec![
        ("plain", Box::new(PlainDisk::new(400, faults()))),
        ("ring", Box::new(RingDisk::new(ring_options(faults())).expect("io_uring"))),
        ("ring, registered files", Box::new(registered.expect("io_uring"))),
        ("simulated", Box::new(SimDisk::new(sim))),
    ]
}

fn plan(steps: Vec<Step>) -> Plan {
    Plan { tag: PlanTag { owner: 1, lane: Lane::Append, number: 0 }, steps: steps.into() }
}

fn place(directory: &Path, name: &str) -> Place {
    Place { directory: Arc::from(directory), name: name.into() }
}

const fn file(number: u32) -> FileId {
    FileId { owner: 1, number }
}

fn write(file: FileId, at: u64, parts: &[&[u8]]) -> Step {
    let parts = parts.iter().map(|part| Bytes::copy_from_slice(part)).collect();
    Step::Write { file, at: Position(at), parts }
}

/// All files below a directory, read through the disk itself.
fn tree(disk: &mut dyn Disk, directory: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut open = vec![directory.to_owned()];
    let mut number = 1_000_000;
    while let Some(path) = open.pop() {
        for entry in disk.list(&path).expect("the directory is there") {
            let inside = path.join(&entry.name);
            if entry.is_directory {
                open.push(inside);
                continue;
            }
            number += 1;
            let length = usize::try_from(entry.length.0).expect("it fits memory");
            let bytes = BytesMut::zeroed(length);
            let finished = disk.run(plan(vec![
                Step::Open { file: file(number), place: place(&path, &entry.name) },
                Step::Read { file: file(number), at: Position(0), bytes },
                Step::Close { file: file(number) },
            ]));
            assert_eq!(finished.result, Ok(()));
            let read = finished.plan.steps.into_iter().nth(1);
            let Some(Step::Read { bytes, .. }) = read else { panic!("a read") };
            let relative = inside.strip_prefix(directory).expect("it lies inside");
            tree.insert(relative.to_owned(), bytes.to_vec());
        }
    }
    tree
}

/// One action of a history, over four names in one directory.
#[derive(Clone, Debug)]
enum Action {
    Open { name: u8 },
    Create { name: u8 },
    Write { file: u8, at: u16, parts: Vec<Vec<u8>> },
    Truncate { file: u8 },
    Allocate { file: u8 },
    Sync { file: u8 },
    Forget { file: u8 },
    Close { file: u8 },
    Rename { from: u8, to: u8 },
    Remove { name: u8 },
    MakeDirectory { name: u8 },
    RemoveDirectory { name: u8 },
    SyncDirectory,
    ReadBack { file: u8, at: u16, length: u16 },
}

fn action() -> impl Strategy<Value = Action> {
    let byte = 0_u8..4;
    let parts = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6);
    prop_oneof![
        1 => byte.clone().prop_map(|name| Action::Open { name }),
        4 => byte.clone().prop_map(|name| Action::Create { name }),
        8 => (byte.clone(), 0_u16..9000, parts)
            .prop_map(|(file, at, parts)| Action::Write { file, at, parts }),
        1 => byte.clone().prop_map(|file| Action::Truncate { file }),
        1 => byte.clone().prop_map(|file| Action::Allocate { file }),
        2 => byte.clone().prop_map(|file| Action::Sync { file }),
        2 => byte.clone().prop_map(|file| Action::Forget { file }),
        1 => byte.clone().prop_map(|file| Action::Close { file }),
        2 => (byte.clone(), byte.clone()).prop_map(|(from, to)| Action::Rename { from, to }),
        1 => byte.clone().prop_map(|name| Action::Remove { name }),
        1 => byte.clone().prop_map(|name| Action::MakeDirectory { name }),
        1 => byte.clone().prop_map(|name| Action::RemoveDirectory { name }),
        1 => Just(Action::SyncDirectory),
        2 => (byte, 0_u16..9000, 0_u16..600)
            .prop_map(|(file, at, length)| Action::ReadBack { file, at, length }),
    ]
}

/// Turns actions to steps: numbers of files follow from the history alone, and lengths are kept so
/// that Allocate never cuts and Truncate never extends.
#[derive(Default)]
struct Writer {
    opened: u32,
    /// The file that stands for each of the four, and its length as far as it is known.
    files: [Option<(FileId, u64)>; 4],
}

impl Writer {
    fn file(&self, which: u8) -> FileId {
        // A number that was never given: every disk refuses it alike.
        self.files[usize::from(which)].map_or(file(999_999), |(file, _)| file)
    }

    fn open(&mut self, which: u8) -> FileId {
        self.opened += 1;
        self.files[usize::from(which)] = Some((file(self.opened), 0));
        file(self.opened)
    }

    fn step(&mut self, action: &Action, root: &Path) -> Step {
        let name = |name: &u8| place(root, &format!("n{name}"));
        match action {
            Action::Open { name: which } => {
                Step::Open { file: self.open(*which), place: name(which) }
            }
            Action::Create { name: which } => {
                Step::Create { file: self.open(*which), place: name(which) }
            }
            Action::Write { file, at, parts } => {
                let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
                write(self.file(*file), u64::from(*at), &parts)
            }
            // Writes end below 9000 + 6 * 300, so these two never go the wrong way.
            Action::Truncate { file } => {
                Step::Truncate { file: self.file(*file), length: ByteCount(0) }
            }
            Action::Allocate { file } => {
                Step::Allocate { file: self.file(*file), length: ByteCount(20_000) }
            }
            Action::Sync { file } => Step::Sync { file: self.file(*file) },
            Action::Forget { file } => Step::Forget { file: self.file(*file) },
            Action::Close { file } => Step::Close { file: self.file(*file) },
            Action::Rename { from, to } => Step::Rename { from: name(from), to: name(to) },
            Action::Remove { name: which } => Step::Remove { place: name(which) },
            Action::MakeDirectory { name: which } => Step::CreateDirectory { place: name(which) },
            Action::RemoveDirectory { name: which } => Step::RemoveDirectory { place: name(which) },
            Action::SyncDirectory => Step::SyncDirectory { directory: Arc::from(root) },
            Action::ReadBack { file, at, length } => Step::Read {
                file: self.file(*file),
                at: Position(u64::from(*at)),
                bytes: BytesMut::zeroed(usize::from(*length)),
            },
        }
    }
}

/// What a disk answers to a history, and the tree that it leaves.
type Answers = (Vec<(Result<(), StepFailure>, Vec<Vec<u8>>)>, Tree);

fn run_history(disk: &mut dyn Disk, root: &Path, history: &[Vec<Action>]) -> Answers {
    let mut writer = Writer::default();
    let mut answers = Vec::new();
    for actions in history {
        let steps = actions.iter().map(|action| writer.step(action, root)).collect();
        let finished = disk.run(plan(steps));
        let reads = match finished.result {
            Err(_) => Vec::new(),
            Ok(()) => finished.plan.steps.iter().filter_map(read_bytes).collect(),
        };
        answers.push((finished.result, reads));
    }
    (answers, tree(disk, root))
}

fn read_bytes(step: &Step) -> Option<Vec<u8>> {
    match step {
        Step::Read { bytes, .. } => Some(bytes.to_vec()),
        _ => None,
    }
}

/// A directory for a disk that keeps files, `/` for the one that doesn't.
fn root_for(name: &str, directory: &tempfile::TempDir) -> PathBuf {
    if name == "simulated" { PathBuf::from("/") } else { directory.path().to_owned() }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_same_history_leaves_the_same_bytes(
        history in prop::collection::vec(prop::collection::vec(action(), 1..24), 1..12)
    ) {
        let mut expected: Option<Answers> = None;
        for (name, mut disk) in disks(|| None) {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let root = root_for(name, &directory);
            let answers = run_history(disk.as_mut(), &root, &history);
            match &expected {
                None => expected = Some(answers),
                Some(expected) => prop_assert_eq!(expected, &answers, "{}", name),
            }
        }
    }
}

#[test]
fn a_failing_step_leaves_the_later_ones_undone() {
    for (name, mut disk) in disks(|| None) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = root_for(name, &directory);
        let finished = disk.run(plan(vec![
            Step::Create { file: file(1), place: place(&root, "a") },
            write(file(1), 0, &[b"before"]),
            Step::Rename { from: place(&root, "absent"), to: place(&root, "b") },
            write(file(1), 0, &[b"after!"]),
            Step::CreateDirectory { place: place(&root, "d") },
            Step::Remove { place: place(&root, "a") },
        ]));
        let failure = StepFailure { step: 2, partial: false, error: DiskError::NotFound };
        assert_eq!(finished.result, Err(failure), "{name}");
        assert_eq!(finished.plan.steps.len(), 6, "{name}: the plan comes home whole");
        let listed = disk.list(&root).expect("the directory");
        assert_eq!(listed.len(), 1, "{name}");
        let expected = Tree::from([(PathBuf::from("a"), b"before".to_vec())]);
        assert_eq!(tree(disk.as_mut(), &root), expected, "{name}");
    }
}

#[test]
fn faults_on_demand_hit_the_same_step_on_all_disks() {
    let history = |hook: &FaultHook, disk: &mut dyn Disk, root: &Path| {
        let mut results = Vec::new();
        let create = Step::Create { file: file(1), place: place(root, "a") };
        results.push(disk.run(plan(vec![create])).result);
        hook.short_write(2, 5, libc::ENOSPC);
        let write_sync = |at, bytes: &[u8]| {
            plan(vec![
                write(file(1), at, &[bytes, bytes]),
                write(file(1), at + 20, &[bytes]),
                Step::Sync { file: file(1) },
            ])
        };
        results.push(disk.run(write_sync(0, b"0123456789")).result);
        hook.fail_write(1, libc::EIO);
        results.push(disk.run(write_sync(40, b"abcdefghij")).result);
        hook.fail_sync(1, libc::EIO);
        results.push(disk.run(write_sync(80, b"ABCDEFGHIJ")).result);
        (results, tree(disk, root))
    };
    let mut expected = None;
    for name in ["plain", "ring", "ring, registered files", "simulated"] {
        let hook = FaultHook::new();
        let mut disks = disks(|| Some(hook.clone()));
        let index = disks.iter().position(|(it, _)| *it == name).expect("it is there");
        let (_, mut disk) = disks.remove(index);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let answers = history(&hook, disk.as_mut(), &root_for(name, &directory));
        let expected = expected.get_or_insert_with(|| answers.clone());
        assert_eq!(*expected, answers, "{name}");
    }
    let (results, tree) = expected.expect("four disks ran");
    let failure = |step, partial, error| Err(StepFailure { step, partial, error });
    assert_eq!(results[1], failure(1, true, DiskError::NoSpace));
    assert_eq!(results[2], failure(0, false, DiskError::Io(libc::EIO)));
    assert_eq!(results[3], failure(2, true, DiskError::Io(libc::EIO)));
    assert_eq!(&tree[Path::new("a")][..25], b"0123456789012345678901234");
}

/// A small file system that goes away with the test.
struct Mounted {
    /// Keeps the mount point, and the image where there is one.
    _directory: tempfile::TempDir,
    root: PathBuf,
}

fn sh(command: &str) {
    let output = std::process::Command::new("sh").args(["-c", command]).output().expect("sh runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "this test needs root and `{command}`: {said}");
}

impl Mounted {
    fn new(kind: &str) -> Mounted {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().display().to_string();
        std::fs::create_dir(directory.path().join("root")).expect("a mount point");
        match kind {
            "tmpfs" => sh(&format!("mount -t tmpfs -o size=1m tmpfs {path}/root")),
            _ => sh(&format!(
                "truncate -s 4m {path}/image && mkfs.ext4 -q -F {path}/image && \
                 mount -o loop {path}/image {path}/root"
            )),
        }
        Mounted { root: directory.path().join("root"), _directory: directory }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        sh(&format!("umount {}", self.root.display()));
    }
}

#[test]
fn a_full_file_system_is_told_from_a_broken_one() {
    for kind in ["tmpfs", "ext4"] {
        for (name, mut disk) in disks(|| None).into_iter().filter(|(name, _)| *name != "simulated")
        {
            let mounted = Mounted::new(kind);
            let batch = Bytes::from(vec![7; 100_001]);
            let parts = std::iter::repeat_n(batch, 50).collect();
            let finished = disk.run(plan(vec![
                Step::Create { file: file(1), place: place(&mounted.root, "a") },
                write(file(1), 0, &[b"head"]),
                Step::Write { file: file(1), at: Position(4), parts },
                Step::Sync { file: file(1) },
                Step::CreateDirectory { place: place(&mounted.root, "d") },
            ]));
            let failure = StepFailure { step: 2, partial: true, error: DiskError::NoSpace };
            assert_eq!(finished.result, Err(failure), "{name} on {kind}");
            assert!(!mounted.root.join("d").exists(), "{name} on {kind}");
            // Space comes back, and the file goes on behind what was whole.
            let finished = disk.run(plan(vec![
                Step::Truncate { file: file(1), length: ByteCount(4) },
                write(file(1), 4, &[b"tail"]),
                Step::Sync { file: file(1) },
                Step::Close { file: file(1) },
            ]));
            assert_eq!(finished.result, Ok(()), "{name} on {kind}");
            let bytes = std::fs::read(mounted.root.join("a")).expect("it is there");
            assert_eq!(bytes, b"headtail", "{name} on {kind}");
        }
    }
}

#[test]
fn a_write_of_more_parts_than_a_call_takes_is_whole() {
    for (name, mut disk) in disks(|| None) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = root_for(name, &directory);
        let parts: Vec<Vec<u8>> = (0..3000_u32).map(|it| it.to_be_bytes().to_vec()).collect();
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let finished = disk.run(plan(vec![
            Step::Create { file: file(1), place: place(&root, "a") },
            write(file(1), 3, &slices),
            Step::Sync { file: file(1) },
        ]));
        assert_eq!(finished.result, Ok(()), "{name}");
        let bytes = &tree(disk.as_mut(), &root)[Path::new("a")];
        assert_eq!(bytes[3..], parts.concat(), "{name}");
    }
}

/// Plans of many owners under way together: each keeps its order, and they mix in no file.
#[test]
fn plans_of_many_owners_run_together_and_each_in_order() {
    const OWNERS: u32 = 40;
    const ROUNDS: u8 = 12;
    let sim = |seed| SimDisk::new(SimOptions { seed, reorders: true, ..SimOptions::default() });
    let mut all = disks(|| None);
    all.push(("simulated", Box::new(sim(1))));
    all.push(("simulated", Box::new(sim(2))));
    for (name, mut disk) in all {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = root_for(name, &directory);
        let mut under_way = 0;
        let mut rounds = vec![0_u8; 0];
        let submit = |disk: &mut dyn Disk, owner: u32, round: u8| {
            let file = FileId { owner, number: u32::from(round) };
            let at = u64::from(round) * 10;
            let steps = vec![
                Step::Create { file, place: place(&root, &format!("f{owner}")) },
                write(file, at, &[&[round; 4], &[round; 6]]),
                Step::Sync { file },
                Step::Close { file },
            ];
            let tag = PlanTag { owner, lane: Lane::Append, number: u64::from(round) };
            disk.submit(Plan { tag, steps: steps.into() });
        };
        for owner in 0..OWNERS {
            rounds.push(0);
            submit(disk.as_mut(), owner, 0);
            under_way += 1;
        }
        disk.enter();
        while 0 < under_way {
            let finished = disk.reap(true).expect("plans are under way");
            assert_eq!(finished.result, Ok(()), "{name}");
            under_way -= 1;
            let owner = finished.plan.tag.owner;
            let round = &mut rounds[usize::try_from(owner).expect("small")];
            *round += 1;
            if *round < ROUNDS {
                submit(disk.as_mut(), owner, *round);
                disk.enter();
                under_way += 1;
            }
        }
        let expected: Vec<u8> = (0..ROUNDS).flat_map(|round| [round; 10]).collect();
        let tree = tree(disk.as_mut(), &root);
        assert_eq!(tree.len(), 40, "{name}");
        assert!(tree.values().all(|bytes| *bytes == expected), "{name}");
    }
}

#[test]
fn a_delayed_sync_takes_at_least_that_long() {
    let delay = std::time::Duration::from_millis(30);
    let hook = FaultHook::new();
    hook.delay_syncs(2, delay);
    for (name, mut disk) in disks(|| Some(hook.clone())) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = root_for(name, &directory);
        let before = std::time::Instant::now();
        let finished = disk.run(plan(vec![
            Step::Create { file: file(1), place: place(&root, "a") },
            Step::Sync { file: file(1) },
            Step::Sync { file: file(1) },
            write(file(1), 0, &[b"behind"]),
        ]));
        assert_eq!(finished.result, Ok(()), "{name}");
        assert!(name == "simulated" || delay <= before.elapsed(), "{name}");
    }
}
