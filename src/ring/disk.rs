//! The ring disk: plans in, chains to the kernel, outcomes back.

use std::collections::{HashMap, VecDeque};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode, types};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::disk::errors;
use crate::disk::plain::{FILE_MODE, list_directory, path_of};
use crate::disk::{Disk, DiskError, FileId, Finished, Listed, Place, Plan, Step, StepFailure};
use crate::ring::chain::{self, Means, Verdict};
use crate::ring::error::RingError;
use crate::ring::files::FileTable;
use crate::ring::setup::{self, FileMode, RingOptions};
use crate::ring::slots::{Detour, Slots, Ticket};
use crate::ring::splice::Transfers;
use crate::units::{u64_of, usize_of};

/// How often plans that the fault hook holds are looked at.
const CLOCK: Duration = Duration::from_millis(1);

/// What a ring has done since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingCounters {
    /// Chains of a plan's steps; more than plans where a plan took several.
    pub chains: u64,
    /// Entries that were linked to a successor.
    pub linked_sqes: u64,
    /// All entries.
    pub sqes: u64,
    /// Calls of `io_uring_enter`.
    pub enters: u64,
    /// Entries that moved bytes by splice, both hops counted.
    pub splices: u64,
    /// Syncs of files and of directories.
    pub syncs: u64,
    /// Writes and reads that moved less than wanted.
    pub short_writes: u64,
    /// Entries that were not complete when their `io_uring_enter` returned: handed to a kernel
    /// worker, or linked behind one that was. A worker that is faster than the return isn't seen.
    pub punts: u64,
    /// Plans that waited for a free slot.
    pub waited: u64,
}

/// A [`Disk`] on one io_uring. It must be used on the thread that made it.
pub struct RingDisk {
    pub(crate) ring: IoUring,
    pub(crate) files: FileTable,
    pub(crate) counters: RingCounters,
    pub(crate) transfers: Transfers,
    /// The ring is on its way down: nothing new is pushed.
    pub(crate) is_ending: bool,
    /// Entries pushed and not yet handed to the kernel.
    pushed: usize,
    sq_entries: usize,
    cq_entries: usize,
    mode: FileMode,
    /// Descriptors of the table's files, when system calls open and cut them.
    descriptors: HashMap<FileId, OwnedFd>,
    slots: Slots,
    /// Plans that no slot was free for, oldest first.
    waiting: VecDeque<Plan>,
    /// Slots that [`Disk::enter`] makes a chain of.
    ready: VecDeque<usize>,
    /// Slots whose plan goes on with another chain.
    continued: VecDeque<usize>,
    /// Slots whose sync the fault hook holds, and until when; `None`: until it lets go.
    held: Vec<(usize, Option<Instant>)>,
    clock_runs: bool,
    finished: VecDeque<Finished>,
    /// Entries of chains in the kernel: bounded, so that completions never overflow.
    in_kernel: usize,
    /// Whether [`Disk::enter`] left plans behind, which [`Disk::reap`] then pushes.
    is_short_of_room: bool,
    options: RingOptions,
    /// Kept to be filled again.
    entries: Vec<Entry>,
    completions: Vec<(u64, i32)>,
    /// `SINGLE_ISSUER`: the kernel refuses other threads.
    not_send: PhantomData<*const ()>,
}

impl RingDisk {
    /// Makes a ring on this thread.
    ///
    /// # Errors
    /// Names what was refused, by whom as far as can be told, and the way out.
    pub fn new(options: RingOptions) -> Result<RingDisk, RingError> {
        let made = setup::make(&options)?;
        Ok(RingDisk::with(made.ring, made.mode, options))
    }

    /// As [`RingDisk::new`], with files opened and cut by system calls as on kernels before 6.9.
    ///
    /// # Errors
    /// As [`RingDisk::new`].
    pub fn with_registered_files(options: RingOptions) -> Result<RingDisk, RingError> {
        let made = setup::make(&options)?;
        Ok(RingDisk::with(made.ring, FileMode::Registered, options))
    }

    fn with(ring: IoUring, mode: FileMode, options: RingOptions) -> RingDisk {
        let slots_max = usize_of(u64::from(options.entries));
        let parameters = ring.params();
        let sq_entries = usize_of(u64::from(parameters.sq_entries()));
        let cq_entries = usize_of(u64::from(parameters.cq_entries()));
        RingDisk {
            ring,
            files: FileTable::new(options.files_max, options.entries),
            counters: RingCounters::default(),
            transfers: Transfers::new(options.pipes_max),
            is_ending: false,
            pushed: 0,
            sq_entries,
            cq_entries,
            mode,
            descriptors: HashMap::new(),
            slots: Slots::new(slots_max),
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            continued: VecDeque::new(),
            held: Vec::new(),
            clock_runs: false,
            finished: VecDeque::new(),
            in_kernel: 0,
            is_short_of_room: false,
            options,
            entries: Vec::new(),
            completions: Vec::new(),
            not_send: PhantomData,
        }
    }

    /// The ring's descriptor: readable when completions wait for [`Disk::reap`].
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: `self.ring` owns the descriptor, and the borrow of `self` keeps it open.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// What the ring has done so far.
    pub fn counters(&self) -> RingCounters {
        self.counters
    }

    /// How many files are open.
    pub fn files_open(&self) -> usize {
        self.files.len()
    }

    /// Whether all steps run inside chains; otherwise this kernel lacks an operation, and opening,
    /// cutting and closing files is done by system calls between chains.
    pub fn is_all_in_chains(&self) -> bool {
        self.mode == FileMode::Direct
    }

    /// Plans that are not over.
    pub fn under_way(&self) -> usize {
        self.slots.in_use() + self.waiting.len()
    }

    /// Pushes entries that belong together; makes room first, so that they enter together.
    pub(crate) fn push(&mut self, entries: &[Entry]) {
        assert!(entries.len() <= self.sq_entries);
        if self.sq_entries - self.pushed < entries.len() {
            self.hand_over(0);
        }
        // SAFETY: the entries point into memory that a slot or transfer owns and neither moves nor
        // frees before the last completion of these entries; see `Slot`.
        unsafe { self.ring.submission().push_multiple(entries) }.expect("room was made");
        self.pushed += entries.len();
        self.counters.sqes += u64_of(entries.len());
    }

    /// Hands all pushed entries over, and waits for `want` completions.
    fn hand_over(&mut self, want: usize) {
        let ready_before = self.ring.completion().len();
        loop {
            self.counters.enters += 1;
            match self.ring.submit_and_wait(want) {
                Ok(count) => {
                    // A part would tear a chain apart: its tail would run though its head failed.
                    assert!(self.pushed <= count, "the kernel took only a part of the queue");
                    break;
                }
                Err(error) => match Errno::from_io_error(&error) {
                    // A signal while waiting: the entries were taken before the wait.
                    Some(Errno::INTR) if self.ring.submission().is_empty() => break,
                    Some(Errno::INTR) => {}
                    // Out of memory, or completions piled up: nothing was taken.
                    Some(Errno::AGAIN | Errno::BUSY) => self.drain_completions(),
                    _ => panic!("io_uring_enter failed: {error}"),
                },
            }
        }
        if want == 0 {
            let done = self.ring.completion().len().saturating_sub(ready_before);
            self.counters.punts += u64_of(self.pushed.saturating_sub(done));
        }
        self.pushed = 0;
    }

    /// Moves completions out of the shared queue.
    fn drain_completions(&mut self) {
        let completions = self.ring.completion();
        self.completions.extend(completions.map(|it| (it.user_data(), it.result())));
    }

    /// Acts on all completions there are.
    pub(crate) fn harvest(&mut self) {
        self.drain_completions();
        while !self.completions.is_empty() {
            let mut completions = std::mem::take(&mut self.completions);
            for (user_data, result) in completions.drain(..) {
                self.dispatch(Ticket::decode(user_data), result);
            }
            if self.completions.is_empty() {
                self.completions = completions;
                return;
            }
        }
    }

    fn dispatch(&mut self, ticket: Ticket, result: i32) {
        match ticket {
            Ticket::Chain { slot, member } => self.complete(slot, member, result),
            Ticket::Clock => self.clock_rang(),
            Ticket::Fill { .. } | Ticket::Drain { .. } | Ticket::Writable { .. } => {
                self.complete_send(ticket, result);
            }
            Ticket::Cancel | Ticket::Wake => {}
        }
    }

    fn complete(&mut self, index: usize, member: usize, result: i32) {
        self.in_kernel -= 1;
        let slot = self.slots.get(index);
        let known = slot.members[member].result.replace(result);
        assert_eq!(known, None, "an entry completes once");
        slot.pending -= 1;
        if slot.pending == 0 {
            self.chain_is_over(index);
        }
    }

    fn chain_is_over(&mut self, index: usize) {
        self.settle_files(index);
        let slot = self.slots.get(index);
        let short = slot.members.iter().any(|member| match (member.wanted, member.result) {
            (Some(wanted), Some(result)) => u64::try_from(result).is_ok_and(|it| it < wanted),
            _ => false,
        });
        self.counters.short_writes += u64::from(short);
        match chain::judge(slot) {
            Verdict::Again => self.continued.push_back(index),
            Verdict::Over(result) => self.finish(index, result),
        }
    }

    /// Brings the file table in line with what a chain did to it.
    fn settle_files(&mut self, index: usize) {
        let slot = self.slots.get(index);
        let mut is_scratch_open = false;
        for member in &slot.members {
            let is_done = member.result.is_some_and(|result| 0 <= result);
            match &slot.plan.steps[member.step] {
                Step::Create { file, .. } | Step::Open { file, .. } if !is_done => {
                    self.files.release(*file);
                }
                Step::Close { file } if is_done => {
                    self.files.release(*file);
                }
                // Opened, and closed again only when the sync went well.
                Step::SyncDirectory { .. } if is_done => is_scratch_open = !member.ends_step,
                _ => {}
            }
            if let Some(pinned) = member.pins {
                self.files.unpin(pinned);
            }
        }
        if is_scratch_open {
            let scratch = self.files.scratch_of(index);
            let emptied = self.ring.submitter().register_files_update(scratch, &[-1]);
            emptied.expect("a slot of the table can be emptied");
        }
    }

    fn finish(&mut self, index: usize, result: Result<(), StepFailure>) {
        let slot = self.slots.remove(index);
        self.finished.push_back(Finished { plan: slot.plan, result });
        if let Some(plan) = self.waiting.pop_front() {
            let index = self.slots.insert(plan).expect("a slot was just freed");
            self.continued.push_back(index);
        }
    }

    /// Pushes the next chain of a slot, when its completions are sure to find room.
    fn push_if_room(&mut self, index: usize) -> bool {
        let entries_max = self.sq_entries.min(self.cq_entries);
        let bound = chain::entries_bound(self.slots.get(index), entries_max);
        let has_room = self.in_kernel + bound <= self.cq_entries;
        if has_room {
            self.push_chain(index, entries_max);
        }
        has_room
    }

    fn push_chain(&mut self, index: usize, entries_max: usize) {
        let mut entries = std::mem::take(&mut self.entries);
        let scratch = self.files.scratch_of(index);
        let mut means = Means {
            scratch,
            files: &mut self.files,
            mode: self.mode,
            faults: self.options.faults.as_ref(),
            entries_max,
        };
        let built = chain::build((index, self.slots.get(index)), &mut means, &mut entries);
        match built {
            Ok(()) => {
                self.count_chain(&entries);
                self.in_kernel += entries.len();
                self.push(&entries);
            }
            Err(detour) => self.take_detour(index, detour),
        }
        entries.clear();
        self.entries = entries;
    }

    fn count_chain(&mut self, entries: &[Entry]) {
        let syncs = entries.iter().filter(|it| it.get_opcode() == u32::from(opcode::Fsync::CODE));
        self.counters.syncs += u64_of(syncs.count());
        self.counters.chains += 1;
        self.counters.linked_sqes += u64_of(entries.len() - 1);
    }

    fn take_detour(&mut self, index: usize, detour: Detour) {
        match detour {
            Detour::Fail(error) => self.fail(index, error),
            Detour::Hold => self.hold(index, None),
            Detour::Delay(by) => self.hold(index, Some(Instant::now() + by)),
            Detour::Syscall => match self.run_by_syscall(index) {
                Ok(()) => {
                    let slot = self.slots.get(index);
                    slot.progress.step += 1;
                    if slot.progress.step < slot.plan.steps.len() {
                        self.continued.push_back(index);
                    } else {
                        self.finish(index, Ok(()));
                    }
                }
                Err(error) => self.fail(index, error),
            },
        }
    }

    fn fail(&mut self, index: usize, error: DiskError) {
        let slot = self.slots.get(index);
        let step = slot.progress.step;
        let failure = errors::failure(step, &slot.plan.steps[step], slot.progress.done, error);
        self.finish(index, Err(failure));
    }

    fn hold(&mut self, index: usize, until: Option<Instant>) {
        if let (Some(faults), None) = (&self.options.faults, until) {
            faults.sync_waits();
        }
        self.held.push((index, until));
        self.start_clock();
    }

    fn start_clock(&mut self) {
        if self.clock_runs {
            return;
        }
        self.clock_runs = true;
        let timespec = types::Timespec::from(CLOCK);
        let entry = opcode::Timeout::new(&raw const timespec).build();
        self.push(&[entry.user_data(Ticket::Clock.encode())]);
        // The kernel copies the time when it takes the entry, so it does that before the time goes.
        self.hand_over(0);
    }

    fn clock_rang(&mut self) {
        self.clock_runs = false;
        let Some(faults) = self.options.faults.clone() else { return };
        let now = Instant::now();
        let (holding, mut kept) = (faults.is_holding(), Vec::new());
        for (index, until) in std::mem::take(&mut self.held) {
            if until.map_or(holding, |until| now < until) {
                kept.push((index, until));
                continue;
            }
            if until.is_none() {
                faults.sync_goes_on();
            }
            self.continued.push_back(index);
        }
        self.held = kept;
        if !self.held.is_empty() {
            self.start_clock();
        }
    }

    /// Pushes the plans that go on with another chain.
    pub(crate) fn push_continued(&mut self) {
        // A detour may put a slot back at once: each time round such a plan moves on by a step.
        while let Some(index) = self.continued.pop_front() {
            if !self.push_if_room(index) {
                return self.continued.push_front(index);
            }
        }
    }

    fn push_ready(&mut self) {
        self.push_continued();
        while let Some(index) = self.ready.pop_front() {
            if !self.push_if_room(index) {
                self.is_short_of_room = true;
                return self.ready.push_front(index);
            }
        }
        self.is_short_of_room = false;
        self.push_continued();
    }

    pub(crate) fn hand_over_pushed(&mut self) {
        if self.pushed != 0 {
            self.hand_over(0);
        }
    }
}

/// Steps by system call, where the kernel can't run them inside chains.
impl RingDisk {
    fn run_by_syscall(&mut self, index: usize) -> Result<(), DiskError> {
        let slot = self.slots.get(index);
        // The step leaves its plan for the time of the call: nothing of it is in the kernel.
        match &slot.plan.steps[slot.progress.step] {
            Step::Create { file, place } => {
                let (file, place) = (*file, place.clone());
                self.open_registered(file, &place, OFlags::CREATE)
            }
            Step::Open { file, place } => {
                let (file, place) = (*file, place.clone());
                self.open_registered(file, &place, OFlags::empty())
            }
            Step::Close { file } => {
                let file = *file;
                self.close_registered(file)
            }
            Step::Allocate { file, length } | Step::Truncate { file, length } => {
                let descriptor = self.descriptors.get(file).ok_or_else(errors::not_open)?;
                classified(rustix::fs::ftruncate(descriptor, length.0))
            }
            _ => unreachable!("all other steps run inside chains"),
        }
    }

    fn open_registered(
        &mut self,
        file: FileId,
        place: &Place,
        more: OFlags,
    ) -> Result<(), DiskError> {
        let slot = self.files.reserve(file).ok_or_else(errors::table_full)?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | more;
        let opened = rustix::fs::open(path_of(place), flags, Mode::from(FILE_MODE));
        let registered = classified(opened).and_then(|descriptor| {
            let update =
                self.ring.submitter().register_files_update(slot, &[descriptor.as_raw_fd()]);
            update.map_err(|error| errors::classify(setup::errno_of(&error)))?;
            Ok(descriptor)
        });
        match registered {
            Ok(descriptor) => {
                self.descriptors.insert(file, descriptor);
                Ok(())
            }
            Err(error) => {
                self.files.release(file);
                Err(error)
            }
        }
    }

    fn close_registered(&mut self, file: FileId) -> Result<(), DiskError> {
        let slot = self.files.slot_of(file).ok_or_else(errors::not_open)?;
        let update = self.ring.submitter().register_files_update(slot, &[-1]);
        update.map_err(|error| errors::classify(setup::errno_of(&error)))?;
        self.files.release(file);
        self.descriptors.remove(&file);
        Ok(())
    }
}

fn classified<T>(result: rustix::io::Result<T>) -> Result<T, DiskError> {
    result.map_err(|errno| errors::classify(errno.raw_os_error()))
}

impl Disk for RingDisk {
    fn submit(&mut self, plan: Plan) {
        assert!(!plan.steps.is_empty(), "a plan has at least one step");
        match self.slots.insert(plan) {
            Ok(index) => self.ready.push_back(index),
            Err(plan) => {
                self.counters.waited += 1;
                self.waiting.push_back(plan);
            }
        }
    }

    fn enter(&mut self) {
        self.push_ready();
        self.push_sends();
        if !self.finished.is_empty() || self.transfers.has_finished() {
            // Plans that are over without the kernel's help make the descriptor readable too.
            self.push(&[opcode::Nop::new().build().user_data(Ticket::Wake.encode())]);
        }
        self.hand_over_pushed();
    }

    fn reap(&mut self, wait: bool) -> Option<Finished> {
        loop {
            self.harvest();
            if wait || self.is_short_of_room {
                self.push_ready();
            } else {
                self.push_continued();
            }
            self.push_sends();
            let finished = self.finished.pop_front();
            if finished.is_some() || !wait || self.under_way() == 0 {
                self.hand_over_pushed();
                return finished;
            }
            self.hand_over(1);
        }
    }

    fn list(&mut self, directory: &Path) -> Result<Vec<Listed>, DiskError> {
        list_directory(directory)
    }
}

impl std::fmt::Debug for RingDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingDisk")
            .field("under_way", &self.under_way())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl Drop for RingDisk {
    /// Waits for everything in the kernel, whose buffers must outlive it. Plans that are not in the
    /// kernel are given up.
    fn drop(&mut self) {
        self.ready.clear();
        self.waiting.clear();
        self.is_ending = true;
        self.give_up_sends();
        while self.in_kernel != 0 || self.sends_in_kernel() {
            self.continued.clear();
            self.hand_over(1);
            self.harvest();
        }
        if let Some(faults) = &self.options.faults {
            for _ in self.held.iter().filter(|(_, until)| until.is_none()) {
                faults.sync_goes_on();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::{Bytes, BytesMut};

    use super::*;
    use crate::disk::faults::FaultHook;
    use crate::disk::{Lane, PlanTag};
    use crate::units::Position;

    const FILE: FileId = FileId { owner: 1, number: 7 };

    fn plan(steps: Vec<Step>) -> Plan {
        Plan { tag: PlanTag { owner: 1, lane: Lane::Append, number: 0 }, steps: steps.into() }
    }

    fn place(directory: &tempfile::TempDir, name: &str) -> Place {
        Place { directory: Arc::from(directory.path()), name: name.into() }
    }

    fn write(at: u64, parts: &[&'static [u8]]) -> Step {
        let parts = parts.iter().map(|part| Bytes::from_static(part)).collect();
        Step::Write { file: FILE, at: Position(at), parts }
    }

    fn ring(faults: Option<FaultHook>) -> RingDisk {
        let options = RingOptions {
            entries: 8,
            cq_entries: 16,
            files_max: 4,
            faults,
            ..RingOptions::default()
        };
        RingDisk::new(options).expect("io_uring")
    }

    #[test]
    fn a_plan_is_one_chain() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut disk = ring(None);
        assert!(disk.is_all_in_chains(), "this kernel has FTRUNCATE");
        let finished = disk.run(plan(vec![
            Step::Create { file: FILE, place: place(&directory, "f") },
            Step::Allocate { file: FILE, length: crate::units::ByteCount(9) },
            write(1, &[b"ab", b"", b"cde"]),
            write(6, &[b"fg"]),
            write(8, &[]),
            Step::Sync { file: FILE },
        ]));
        assert_eq!(finished.result, Ok(()));
        let counters = disk.counters();
        assert_eq!((counters.chains, counters.sqes, counters.linked_sqes), (1, 6, 5));
        assert_eq!(counters.syncs, 1);
        let read = Step::Read { file: FILE, at: Position(0), bytes: BytesMut::zeroed(9) };
        let finished = disk.run(plan(vec![read]));
        assert_eq!(finished.result, Ok(()));
        let Step::Read { bytes, .. } = &finished.plan.steps[0] else { panic!("a read") };
        assert_eq!(&bytes[..], b"\0abcdefg\0");
    }

    #[test]
    fn a_plan_longer_than_the_queue_runs_as_several_chains() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut disk = ring(None);
        let mut steps = vec![Step::Create { file: FILE, place: place(&directory, "f") }];
        steps.extend((0..100).map(|at| write(at, &[b"xyz"])));
        steps.push(Step::SyncDirectory { directory: Arc::from(directory.path()) });
        steps.push(Step::Close { file: FILE });
        assert_eq!(disk.run(plan(steps)).result, Ok(()));
        assert!(10 < disk.counters().chains);
        assert_eq!((disk.files_open(), disk.under_way()), (0, 0));
        let written = std::fs::read(directory.path().join("f")).expect("it was written");
        assert_eq!(written.len(), 102);
    }

    #[test]
    fn more_plans_than_slots_wait_their_turn() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut disk = ring(None);
        for _ in 0..50 {
            disk.submit(plan(vec![
                Step::CreateDirectory { place: place(&directory, "d") },
                Step::Remove { place: place(&directory, "absent") },
                Step::SyncDirectory { directory: Arc::from(directory.path()) },
            ]));
        }
        disk.enter();
        let mut count = 0;
        while let Some(finished) = disk.reap(true) {
            assert_eq!(finished.result, Ok(()));
            count += 1;
        }
        assert_eq!((count, disk.counters().waited, disk.under_way()), (50, 42, 0));
    }

    #[test]
    fn a_failure_ends_the_plan_and_names_its_step() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut disk = ring(None);
        let check = |disk: &mut RingDisk, steps, step, error| {
            let failure = StepFailure { step, partial: false, error };
            assert_eq!(disk.run(plan(steps)).result, Err(failure));
        };
        let absent = Step::Open { file: FILE, place: place(&directory, "absent") };
        let make = Step::CreateDirectory { place: place(&directory, "d") };
        check(&mut disk, vec![absent, make], 0, DiskError::NotFound);
        assert!(!directory.path().join("d").exists(), "what is behind a failure never runs");
        let made = Step::CreateDirectory { place: place(&directory, "d") };
        check(&mut disk, vec![made, write(0, &[b"x"])], 1, errors::not_open());
        let inside = Place { directory: Arc::from(Path::new("/nowhere")), name: "d".into() };
        let make = Step::CreateDirectory { place: inside };
        let remove = Step::RemoveDirectory { place: place(&directory, "d") };
        check(&mut disk, vec![make, remove], 0, DiskError::NotFound);
        assert!(directory.path().join("d").exists(), "what is behind a failure never runs");
        assert_eq!(disk.files_open(), 0);
    }

    #[test]
    fn the_file_table_is_bounded_and_its_slots_are_used_again() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut disk = ring(None);
        let file = |number| FileId { owner: 1, number };
        let create = |number| Step::Create { file: file(number), place: place(&directory, "f") };
        let finished = disk.run(plan((0..5).map(create).collect()));
        let failure = StepFailure { step: 4, partial: false, error: errors::table_full() };
        assert_eq!(finished.result, Err(failure));
        for number in 5..50 {
            let close =
                Step::Close { file: file(if number < 9 { number - 5 } else { number - 4 }) };
            assert_eq!(disk.run(plan(vec![close, create(number)])).result, Ok(()));
        }
        assert_eq!(disk.files_open(), 4);
    }

    #[test]
    fn held_syncs_wait_and_their_writes_do_not() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let hook = FaultHook::new();
        let mut disk = ring(Some(hook.clone()));
        hook.hold_syncs();
        disk.submit(plan(vec![
            Step::Create { file: FILE, place: place(&directory, "f") },
            write(0, &[b"abc"]),
            Step::Sync { file: FILE },
            Step::Rename { from: place(&directory, "f"), to: place(&directory, "g") },
        ]));
        disk.enter();
        while hook.syncs_waiting() == 0 {
            assert!(disk.reap(false).is_none());
        }
        assert_eq!(std::fs::read(directory.path().join("f")).expect("it is there"), b"abc");
        hook.release_syncs();
        assert_eq!(disk.reap(true).expect("it was let go").result, Ok(()));
        assert_eq!(std::fs::read(directory.path().join("g")).expect("it is there"), b"abc");
        assert_eq!(hook.syncs_waiting(), 0);
    }

    #[test]
    fn dropping_a_disk_waits_for_the_kernel_and_not_for_the_hook() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let hook = FaultHook::new();
        let mut disk = ring(Some(hook.clone()));
        hook.hold_syncs();
        disk.submit(plan(vec![
            Step::Create { file: FILE, place: place(&directory, "f") },
            write(0, &[b"abc"]),
            Step::Sync { file: FILE },
        ]));
        disk.enter();
        drop(disk);
        assert_eq!(std::fs::read(directory.path().join("f")).expect("it is there"), b"abc");
        assert_eq!(hook.syncs_waiting(), 0);
    }
}
