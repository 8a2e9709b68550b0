//! The simulated disk: in memory, from one seed, and lying the way real disks do.
//!
//! It forgets and tears what was not synced when the power is cut ([`SimDisk::crash`]), runs out of
//! space, fails writes and syncs, and finishes plans of different owners in any order. The same
//! seed and the same plans give the same outcome.

mod durable;

mod files;

mod random;

mod sparse;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};

use crate::disk::errors;
use crate::disk::faults::{FaultHook, WriteFault};
use crate::disk::plain::parts_bytes;
use crate::disk::plan::{
    Disk, DiskError, FileId, Finished, Lane, Listed, Plan, PlanTag, Step, StepFailure,
};
use crate::disk::sim::files::{Node, SimFiles};
use crate::disk::sim::random::Random;
use crate::units::{ByteCount, Timestamp, u64_of, usize_of};

/// What a simulated disk does besides working.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Everything that happens follows from it.
    pub seed: u64,
    /// A directory that exists from the start, for good.
    pub root: PathBuf,
    /// Bytes (in pages of 4 KiB) that the files may take; a write beyond fails with `ENOSPC`.
    pub quota: Option<ByteCount>,
    /// One write in this many fails with `EIO` after a part of it; 0: none.
    pub write_fails_one_in: u64,
    /// One sync in this many fails with `EIO`; 0: none.
    pub sync_fails_one_in: u64,
    /// Whether plans of different owners and lanes, and reads, overtake each other.
    pub reorders: bool,
    /// Faults on demand.
    pub faults: Option<FaultHook>,
}

impl Default for SimOptions {
    /// A disk that works, with the root `/`.
    fn default() -> SimOptions {
        SimOptions {
            seed: 0,
            root: PathBuf::from("/"),
            quota: None,
            write_fails_one_in: 0,
            sync_fails_one_in: 0,
            reorders: false,
            faults: None,
        }
    }
}

/// A disk in memory.
#[derive(Debug)]
pub struct SimDisk {
    options: SimOptions,
    random: Random,
    files: SimFiles,
    open: HashMap<FileId, Node>,
    running: Vec<Running>,
    finished: VecDeque<Finished>,
    /// Steps until the power fails, which the last of them meets.
    steps_left: Option<u64>,
    is_crashed: bool,
    steps_run: u64,
    now: Timestamp,
}

#[derive(Debug)]
struct Running {
    plan: Plan,
    next: usize,
    /// Its next step is a sync that the fault hook holds.
    is_held: bool,
}

impl SimDisk {
    /// A new disk.
    pub fn new(options: SimOptions) -> SimDisk {
        let files = SimFiles::new(&options.root);
        SimDisk::with(files, options)
    }

    fn with(files: SimFiles, options: SimOptions) -> SimDisk {
        SimDisk {
            random: Random::new(options.seed),
            options,
            files,
            open: HashMap::new(),
            running: Vec::new(),
            finished: VecDeque::new(),
            steps_left: None,
            is_crashed: false,
            steps_run: 0,
            now: Timestamp(0),
        }
    }

    /// Sets the time that files are modified at.
    pub fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Sets the bytes that the files may take.
    pub fn set_quota(&mut self, quota: Option<ByteCount>) {
        self.options.quota = quota;
    }

    /// The power fails during step number `steps` from now (0: the next). From then on every step
    /// fails; see [`SimDisk::is_crashed`].
    pub fn crash_after_steps(&mut self, steps: u64) {
        self.steps_left = Some(steps);
    }

    /// Whether the power has failed: then no outcome means anything, and only
    /// [`SimDisk::crash`] goes on.
    pub fn is_crashed(&self) -> bool {
        self.is_crashed
    }

    /// How many steps have run: what a test of every crash point counts to.
    pub fn steps_run(&self) -> u64 {
        self.steps_run
    }

    /// Cuts the power now and starts again with what is left: all that was synced, and of the rest
    /// what the seed says. Plans under way are gone, faults of the options stay.
    pub fn crash(mut self) -> SimDisk {
        let files = self.files.after_crash(&mut self.random);
        let seed = self.random.next();
        SimDisk::with(files, SimOptions { seed, ..self.options })
    }

    /// Starts again in good order: nothing is lost, synced or not, as after a kill.
    pub fn reopen(self) -> SimDisk {
        let now = self.now;
        SimDisk { now, ..SimDisk::with(self.files, self.options) }
    }

    /// All files below a directory with their bytes, by path relative to it.
    ///
    /// # Errors
    /// When there is no such directory.
    pub fn tree(&self, directory: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, DiskError> {
        self.files.tree(directory)
    }

    /// Runs one step of one plan that can go on; false when none can.
    fn advance(&mut self) -> bool {
        self.release_held();
        let eligible: Vec<usize> =
            (0..self.running.len()).filter(|index| self.is_eligible(*index)).collect();
        if eligible.is_empty() {
            return false;
        }
        let chosen = if self.options.reorders {
            eligible[usize_of(self.random.below(u64_of(eligible.len())))]
        } else {
            eligible[0]
        };
        self.advance_plan(chosen);
        true
    }

    fn release_held(&mut self) {
        let Some(faults) = self.options.faults.as_ref().filter(|it| !it.is_holding()) else {
            return;
        };
        for running in self.running.iter_mut().filter(|running| running.is_held) {
            faults.sync_goes_on();
            running.is_held = false;
        }
    }

    /// Plans of one lane and owner run one at a time, in order; reads in any.
    fn is_eligible(&self, index: usize) -> bool {
        let PlanTag { owner, lane, .. } = self.running[index].plan.tag;
        let is_same =
            |other: &Running| other.plan.tag.owner == owner && other.plan.tag.lane == lane;
        let is_behind = lane != Lane::Read && self.running[..index].iter().any(is_same);
        !self.running[index].is_held && !is_behind
    }

    fn advance_plan(&mut self, index: usize) {
        let mut running = self.running.remove(index);
        let step_index = running.next;
        match self.guarded(&mut running.plan.steps[step_index]) {
            Outcome::Held => {
                running.is_held = true;
                self.running.insert(index, running);
            }
            Outcome::Done if step_index + 1 < running.plan.steps.len() => {
                running.next += 1;
                self.running.insert(index, running);
            }
            Outcome::Done => self.finish(running.plan, Ok(())),
            Outcome::Failed { done, error } => {
                let failure =
                    errors::failure(step_index, &running.plan.steps[step_index], done, error);
                self.finish(running.plan, Err(failure));
            }
        }
    }

    fn finish(&mut self, plan: Plan, result: Result<(), StepFailure>) {
        self.finished.push_back(Finished { plan, result });
    }

    /// One step, unless the power is off or fails during it.
    fn guarded(&mut self, step: &mut Step) -> Outcome {
        if self.is_crashed {
            return Outcome::failed(errors::input_output());
        }
        self.steps_run += 1;
        match &mut self.steps_left {
            Some(0) => {
                self.is_crashed = true;
                self.cut_by_power(step);
                return Outcome::failed(errors::input_output());
            }
            Some(left) => *left -= 1,
            None => {}
        }
        self.step(step)
    }

    /// What the power's failure leaves of the step that it meets.
    fn cut_by_power(&mut self, step: &Step) {
        match step {
            Step::Write { .. } => {
                // Part of it reached the cache, and what the cache holds may survive.
                let bytes = self.random.below(u64::from(u16::MAX));
                self.write(step, bytes);
            }
            Step::WriteDurable { .. } => self.tear_durable(step),
            _ => {}
        }
    }

    fn step(&mut self, step: &mut Step) -> Outcome {
        match step {
            Step::Write { .. } => self.faulty_write(step),
            Step::WriteDurable { .. } => self.faulty_write_durable(step),
            Step::Sync { file } => self.faulty_sync(*file),
            Step::Read { file, at, bytes } => match self.node(*file) {
                Ok(node) if bytes.is_empty() || self.files.read(node, at.0, bytes) => Outcome::Done,
                Ok(_) => Outcome::failed(DiskError::UnexpectedEnd),
                Err(error) => Outcome::failed(error),
            },
            _ => match self.whole_step(step) {
                Ok(()) => Outcome::Done,
                Err(error) => Outcome::failed(error),
            },
        }
    }

    fn whole_step(&mut self, step: &Step) -> Result<(), DiskError> {
        match step {
            Step::CreateDirectory { place } => self.files.create_directory(place),
            Step::Create { file, place }
            | Step::Open { file, place }
            | Step::OpenDirect { file, place } => {
                assert!(!self.open.contains_key(file), "a file's number is given once");
                let node = self.files.open(place, matches!(step, Step::Create { .. }))?;
                self.open.insert(*file, node);
                Ok(())
            }
            Step::Allocate { file, length } | Step::Truncate { file, length } => {
                let node = self.node(*file)?;
                let is_longer = self.files.length(node) <= length.0;
                let may_be = matches!(step, Step::Allocate { .. }) == is_longer
                    || self.files.length(node) == length.0;
                assert!(may_be, "Allocate never cuts and Truncate never extends: {step:?}");
                self.files.resize(node, length.0, self.now.0);
                Ok(())
            }
            Step::Forget { file } => {
                self.files.forget(self.node(*file)?);
                Ok(())
            }
            Step::SetModified { place, modified_ms } => {
                self.files.set_modified(place, *modified_ms)
            }
            Step::Rename { from, to } => self.files.rename(from, to),
            Step::Remove { place } => self.files.remove(place),
            Step::RemoveDirectory { place } => self.files.remove_directory(place),
            Step::SyncDirectory { directory } => self.files.sync_directory(directory),
            Step::Close { file } => self.open.remove(file).map(drop).ok_or_else(errors::not_open),
            Step::Write { .. }
            | Step::WriteDurable { .. }
            | Step::Read { .. }
            | Step::Sync { .. } => {
                unreachable!("these have functions of their own")
            }
        }
    }

    fn node(&self, file: FileId) -> Result<Node, DiskError> {
        self.open.get(&file).copied().ok_or_else(errors::not_open)
    }

    fn faulty_write(&mut self, step: &Step) -> Outcome {
        let fault = self.options.faults.as_ref().map_or(WriteFault::None, FaultHook::before_write);
        if let WriteFault::Short { bytes, errno } = fault {
            return self.cut_write(step, bytes, errors::classify(errno));
        }
        if self.random.one_in(self.options.write_fails_one_in) {
            let Step::Write { parts, .. } = step else { unreachable!("a write") };
            let bytes = self.random.below(parts_bytes(parts).max(1));
            return self.cut_write(step, bytes, errors::input_output());
        }
        self.write(step, u64::MAX)
    }

    /// Writes the first `bytes` bytes, then fails.
    fn cut_write(&mut self, step: &Step, bytes: u64, error: DiskError) -> Outcome {
        let Step::Write { parts, .. } = step else { unreachable!("a write") };
        match self.write(step, bytes) {
            Outcome::Done => Outcome::Failed { done: bytes.min(parts_bytes(parts)), error },
            other => other,
        }
    }

    /// Writes the first `bytes_max` bytes, as far as the quota allows.
    fn write(&mut self, step: &Step, bytes_max: u64) -> Outcome {
        let Step::Write { file, at, parts } = step else { unreachable!("a write") };
        let node = match self.node(*file) {
            Ok(node) => node,
            Err(error) => return Outcome::failed(error),
        };
        let mut bytes: Vec<u8> = parts.iter().flatten().copied().collect();
        bytes.truncate(usize::try_from(bytes_max).unwrap_or(usize::MAX));
        let fitting = self.fitting(node, at.0, bytes.len());
        if !bytes.is_empty() {
            self.files.write(node, at.0, &bytes[..fitting], self.now.0);
        }
        match fitting == bytes.len() {
            true => Outcome::Done,
            false => Outcome::Failed { done: u64_of(fitting), error: DiskError::NoSpace },
        }
    }

    /// How many of the bytes the quota lets through: all, or what fits before it is used up.
    fn fitting(&self, node: Node, at: u64, bytes: usize) -> usize {
        let Some(quota) = self.options.quota else { return bytes };
        let free = quota.0.saturating_sub(self.files.allocated());
        bytes.min(usize_of(self.files.bytes_that_fit(node, at, free)))
    }
}

enum Outcome {
    Done,
    Held,
    Failed { done: u64, error: DiskError },
}

impl Outcome {
    fn failed(error: DiskError) -> Outcome {
        Outcome::Failed { done: 0, error }
    }
}

impl Disk for SimDisk {
    fn submit(&mut self, plan: Plan) {
        assert!(!plan.steps.is_empty(), "a plan has at least one step");
        self.running.push(Running { plan, next: 0, is_held: false });
    }

    /// Does nothing: time passes in [`Disk::reap`].
    fn enter(&mut self) {}

    fn reap(&mut self, wait: bool) -> Option<Finished> {
        // Without waiting, some steps happen, by the seed; otherwise as many as needed. A plan
        // whose sync is held never ends here: `None` then, although it is under way.
        let mut budget =
            if wait || !self.options.reorders { u64::MAX } else { self.random.below(8) };
        while self.finished.is_empty() && 0 < budget && self.advance() {
            budget -= 1;
        }
        self.finished.pop_front()
    }

    fn list(&mut self, directory: &Path) -> Result<Vec<Listed>, DiskError> {
        if self.is_crashed { Err(errors::input_output()) } else { self.files.list(directory) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::disk::plan::Place;
    use crate::units::Position;

    const FILE: FileId = FileId { owner: 1, number: 7 };

    fn place(name: &str) -> Place {
        Place { directory: Arc::from(Path::new("/data")), name: name.into() }
    }

    fn plan(owner: u32, steps: Vec<Step>) -> Plan {
        Plan { tag: PlanTag { owner, lane: Lane::Append, number: 0 }, steps: steps.into() }
    }

    fn write(at: u64, bytes: Vec<u8>) -> Step {
        Step::Write {
            file: FILE,
            at: Position(at),
            parts: [Bytes::from(bytes)].into_iter().collect(),
        }
    }

    fn disk(seed: u64) -> SimDisk {
        let root = PathBuf::from("/data");
        SimDisk::new(SimOptions { seed, root, ..SimOptions::default() })
    }

    fn names(disk: &SimDisk) -> Vec<PathBuf> {
        disk.tree(Path::new("/data")).expect("the root").into_keys().collect()
    }

    fn sync_names() -> Step {
        Step::SyncDirectory { directory: Arc::from(Path::new("/data")) }
    }

    #[test]
    fn a_name_survives_for_sure_only_when_its_directory_was_synced() {
        let survives = |synced: bool| {
            (0..64).filter(move |seed| {
                let mut disk = disk(*seed);
                let mut steps =
                    vec![Step::Create { file: FILE, place: place("f") }, Step::Sync { file: FILE }];
                if synced {
                    steps.push(sync_names());
                }
                assert_eq!(disk.run(plan(1, steps)).result, Ok(()));
                !names(&disk.crash()).is_empty()
            })
        };
        assert_eq!(survives(true).count(), 64);
        let without = survives(false).count();
        assert!(0 < without && without < 64, "{without} of 64");
    }

    #[test]
    fn a_rename_is_never_half_done() {
        let mut kept = [0, 0];
        for seed in 0..64 {
            let mut disk = disk(seed);
            let create = Step::Create { file: FILE, place: place("a") };
            assert_eq!(disk.run(plan(1, vec![create, sync_names()])).result, Ok(()));
            let rename = Step::Rename { from: place("a"), to: place("b") };
            assert_eq!(disk.run(plan(1, vec![rename])).result, Ok(()));
            let names = names(&disk.crash());
            assert_eq!(names.len(), 1);
            kept[usize::from(names[0] == Path::new("b"))] += 1;
        }
        assert!(kept.iter().all(|count| 0 < *count), "{kept:?}");
    }

    #[test]
    fn what_was_synced_survives_and_what_was_not_tears_at_sectors() {
        let mut outcomes = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let mut disk = disk(seed);
            let synced = vec![
                Step::Create { file: FILE, place: place("f") },
                write(0, vec![1; 1024]),
                Step::Sync { file: FILE },
                sync_names(),
                write(1024, vec![2; 1024]),
            ];
            assert_eq!(disk.run(plan(1, synced)).result, Ok(()));
            let tree = disk.crash().tree(Path::new("/data")).expect("the root");
            let bytes = &tree[Path::new("f")];
            assert_eq!(bytes[..1024], [1; 1024], "synced bytes stay");
            for sector in bytes[1024..].chunks(512) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "sectors are whole");
            }
            let second = bytes.get(1024).copied();
            outcomes.insert((bytes.len(), second, bytes.get(1536).copied()));
        }
        assert!(outcomes.contains(&(1024, None, None)), "lost: {outcomes:?}");
        assert!(outcomes.contains(&(2048, Some(2), Some(2))), "kept: {outcomes:?}");
        assert!(outcomes.contains(&(2048, Some(0), Some(2))), "reordered: {outcomes:?}");
    }

    #[test]
    fn after_a_failed_sync_no_later_one_helps() {
        let lost = (0..64).filter(|seed| {
            let mut disk = disk(*seed);
            let hook = FaultHook::new();
            disk.options.faults = Some(hook.clone());
            let made = vec![Step::Create { file: FILE, place: place("f") }, sync_names()];
            assert_eq!(disk.run(plan(1, made)).result, Ok(()));
            hook.fail_sync(1, 5);
            let failed = disk.run(plan(1, vec![write(0, vec![7; 512]), Step::Sync { file: FILE }]));
            let failure = StepFailure { step: 1, partial: true, error: DiskError::Io(5) };
            assert_eq!(failed.result, Err(failure));
            assert_eq!(disk.run(plan(1, vec![Step::Sync { file: FILE }])).result, Ok(()));
            let seen = &disk.tree(Path::new("/data")).expect("the root")[Path::new("f")];
            assert_eq!(seen.len(), 512, "reads see it");
            assert_eq!(disk.run(plan(1, vec![Step::Forget { file: FILE }])).result, Ok(()));
            let shown = disk.tree(Path::new("/data")).expect("the root").remove(Path::new("f"));
            let left = &disk.crash().tree(Path::new("/data")).expect("the root")[Path::new("f")];
            let (kept, rest) = shown.as_deref().expect("it is there").split_at(left.len());
            assert_eq!(kept, left, "forgotten, it shows what the device has");
            assert!(rest.iter().all(|byte| *byte == 0) && kept.len() + rest.len() == 512);
            left.iter().all(|byte| *byte == 0)
        });
        let lost = lost.count();
        assert!(0 < lost && lost < 64, "{lost} of 64");
    }

    #[test]
    fn a_full_disk_takes_a_part_and_says_so() {
        let mut disk = disk(0);
        disk.set_quota(Some(ByteCount(8192)));
        let steps = vec![
            Step::Create { file: FILE, place: place("f") },
            write(100, vec![1; 8192]),
            Step::Sync { file: FILE },
        ];
        let failure = StepFailure { step: 1, partial: true, error: DiskError::NoSpace };
        assert_eq!(disk.run(plan(1, steps)).result, Err(failure));
    }

    #[test]
    fn the_power_fails_at_the_step_that_was_set() {
        let mut disk = disk(3);
        disk.crash_after_steps(2);
        let steps = vec![
            Step::Create { file: FILE, place: place("f") },
            sync_names(),
            write(0, vec![1; 100]),
            write(100, vec![1; 100]),
        ];
        let finished = disk.run(plan(1, steps));
        assert_eq!(finished.result.expect_err("power is off").step, 2);
        assert!(disk.is_crashed());
        let mut disk = disk.crash();
        assert!(!disk.is_crashed());
        assert_eq!(
            disk.run(plan(1, vec![Step::Open { file: FILE, place: place("f") }])).result,
            Ok(())
        );
    }

    #[test]
    fn plans_of_different_owners_overtake_each_other_and_lanes_keep_their_order() {
        let mut orders = std::collections::BTreeSet::new();
        for seed in 0..32 {
            let options = SimOptions { seed, reorders: true, ..SimOptions::default() };
            let mut disk = SimDisk::new(options);
            for (owner, name) in [(1, "a"), (2, "b"), (1, "c")] {
                let directory = Arc::from(Path::new("/"));
                let place = Place { directory, name: name.into() };
                disk.submit(plan(
                    owner,
                    vec![
                        Step::CreateDirectory { place },
                        Step::Remove { place: self::place("absent") },
                    ],
                ));
            }
            let mut order = Vec::new();
            while let Some(finished) = disk.reap(true) {
                assert_eq!(finished.result, Ok(()));
                let Step::CreateDirectory { place } = &finished.plan.steps[0] else { panic!() };
                order.push(place.name.to_string());
            }
            let position = |name: &str| order.iter().position(|it| it == name);
            assert!(position("a") < position("c"), "one lane keeps its order");
            orders.insert(order);
        }
        assert_eq!(orders.len(), 3, "b goes anywhere: {orders:?}");
    }
}
