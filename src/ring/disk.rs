//! The ring disk: plans in, chains to the kernel, outcomes back.

use std::collections::{HashMap, VecDeque};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode};
use rustix::io::Errno;

use crate::disk::plain::list_directory;
use crate::disk::{Aligned, Disk, DiskError, FileId, Finished, Listed, Plan, Step, StepFailure};
use crate::ring::chain::{self, Means};
use crate::ring::durable::Buffers;
use crate::ring::error::RingError;
use crate::ring::files::FileTable;
use crate::ring::links::Links;
use crate::ring::setup::{self, FileMode, Made, RingOptions, SetupFlags};
use crate::ring::slots::{Slots, Ticket};
use crate::ring::splice::Transfers;
use crate::ring::verdict::{self, Verdict};
use crate::units::{u64_of, usize_of};

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
    /// Durable writes: each is one entry that carries its own sync, unless it came out short.
    pub durable_writes: u64,
    /// Those of them whose buffer is registered.
    pub fixed_writes: u64,
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
    pub(super) ring: IoUring,
    pub(super) files: FileTable,
    pub(super) counters: RingCounters,
    pub(super) transfers: Transfers,
    /// The ring is on its way down: nothing new is pushed.
    pub(super) is_ending: bool,
    /// Entries pushed and not yet handed to the kernel.
    pub(super) pushed: usize,
    pub(super) sq_entries: usize,
    pub(super) cq_entries: usize,
    pub(super) mode: FileMode,
    pub(super) links: Links,
    pub(super) flags: SetupFlags,
    /// Descriptors of the table's files, when system calls open and cut them.
    pub(super) descriptors: HashMap<FileId, OwnedFd>,
    pub(super) buffers: Buffers,
    pub(super) slots: Slots,
    /// Plans that no slot was free for, oldest first.
    pub(super) waiting: VecDeque<Plan>,
    /// Slots that [`Disk::enter`] makes a chain of.
    pub(super) ready: VecDeque<usize>,
    /// Slots whose plan goes on with another chain.
    pub(super) continued: VecDeque<usize>,
    /// Slots whose sync the fault hook holds, and until when; `None`: until it lets go.
    pub(super) held: Vec<(usize, Option<Instant>)>,
    pub(super) clock_runs: bool,
    pub(super) finished: VecDeque<Finished>,
    /// Entries of chains in the kernel: bounded, so that completions never overflow.
    pub(super) in_kernel: usize,
    /// Whether [`Disk::enter`] left plans behind, which [`Disk::reap`] then pushes.
    pub(super) is_short_of_room: bool,
    pub(super) options: RingOptions,
    /// Kept to be filled again.
    pub(super) entries: Vec<Entry>,
    pub(super) completions: Vec<(u64, i32)>,
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
        let mode = made.mode;
        Ok(RingDisk::with(made, mode, options))
    }

    /// As [`RingDisk::new`], with files opened and cut by system calls as on kernels before 6.9.
    ///
    /// # Errors
    /// As [`RingDisk::new`].
    pub fn with_registered_files(options: RingOptions) -> Result<RingDisk, RingError> {
        let made = setup::make(&options)?;
        Ok(RingDisk::with(made, FileMode::Registered, options))
    }

    fn with(made: Made, mode: FileMode, options: RingOptions) -> RingDisk {
        let Made { ring, flags, links, .. } = made;
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
            links,
            flags,
            descriptors: HashMap::new(),
            buffers: Buffers::default(),
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

    /// The ring's descriptor: readable when completions wait. Then, and after [`Disk::enter`], call
    /// [`Disk::reap`] and [`RingDisk::reap_send`] until neither returns anything and
    /// [`RingDisk::has_outcomes`] is false: either may come upon outcomes of the other kind, and an
    /// edge-triggered waiter hears of them once.
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

    /// Which operations break their link when they fail, on this kernel.
    pub fn links(&self) -> Links {
        self.links
    }

    /// The flags that the kernel granted.
    pub fn flags(&self) -> SetupFlags {
        self.flags
    }

    /// Plans that are not over.
    pub fn under_way(&self) -> usize {
        self.slots.in_use() + self.waiting.len()
    }

    /// Whether outcomes that were come upon wait to be reaped.
    pub fn has_outcomes(&self) -> bool {
        !self.finished.is_empty() || self.transfers.has_finished()
    }

    /// Pushes entries that belong together; makes room first, so that they enter together.
    pub(super) fn push(&mut self, entries: &[Entry]) {
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
    pub(super) fn hand_over(&mut self, want: usize) {
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
    pub(super) fn harvest(&mut self) {
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
        match verdict::judge(slot) {
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
                Step::Create { file, .. }
                | Step::Open { file, .. }
                | Step::OpenDirect { file, .. }
                    if !is_done =>
                {
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

    pub(super) fn finish(&mut self, index: usize, result: Result<(), StepFailure>) {
        let slot = self.slots.remove(index);
        self.finished.push_back(Finished { plan: slot.plan, result });
        if let Some(plan) = self.waiting.pop_front() {
            let index = self.slots.insert(plan);
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
            links: self.links,
            faults: self.options.faults.as_ref(),
            buffers: &self.buffers,
            entries_max,
        };
        let built = chain::build((index, self.slots.get(index)), &mut means, &mut entries);
        match built {
            Ok(()) => {
                self.count_chain(index, &entries);
                self.in_kernel += entries.len();
                self.push(&entries);
            }
            Err(detour) => self.take_detour(index, detour),
        }
        entries.clear();
        self.entries = entries;
    }

    fn count_chain(&mut self, index: usize, entries: &[Entry]) {
        let count = |code: u8| {
            u64_of(entries.iter().filter(|it| it.get_opcode() == u32::from(code)).count())
        };
        self.counters.syncs += count(opcode::Fsync::CODE);
        self.counters.fixed_writes += count(opcode::WriteFixed::CODE);
        self.counters.durable_writes += u64::from(self.slots.get(index).ends_durably());
        self.counters.chains += 1;
        self.counters.linked_sqes += u64_of(entries.len() - 1);
    }

    /// Pushes the plans that go on with another chain.
    pub(super) fn push_continued(&mut self) {
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

    pub(super) fn hand_over_pushed(&mut self) {
        if self.pushed != 0 {
            self.hand_over(0);
        }
    }
}

impl Disk for RingDisk {
    fn submit(&mut self, plan: Plan) {
        assert!(!plan.steps.is_empty(), "a plan has at least one step");
        if self.slots.has_free() {
            let index = self.slots.insert(plan);
            self.ready.push_back(index);
        } else {
            self.counters.waited += 1;
            self.waiting.push_back(plan);
        }
    }

    fn enter(&mut self) {
        self.push_ready();
        self.push_sends();
        if self.has_outcomes() {
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

    fn register(&mut self, buffer: &mut Aligned) {
        self.register_buffer(buffer);
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
        // At once, not whenever the kernel gets to it: a directory may be unmounted next.
        let _ = self.ring.submitter().unregister_files();
        // Likewise the pinned pages. Refused when there are none.
        let _ = self.ring.submitter().unregister_buffers();
        if let Some(faults) = &self.options.faults {
            for _ in self.held.iter().filter(|(_, until)| until.is_none()) {
                faults.sync_goes_on();
            }
        }
    }
}
