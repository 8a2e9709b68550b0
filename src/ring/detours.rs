//! What a plan does between two chains: waits for the fault hook, fails, or takes a system call.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::{opcode, types};
use rustix::fs::{Mode, OFlags};

use crate::disk::errors;
use crate::disk::plain::{FILE_MODE, path_of, set_modified};
use crate::disk::{DiskError, FileId, Place, Step};
use crate::ring::disk::RingDisk;
use crate::ring::setup;
use crate::ring::slots::{Detour, Ticket};

/// How often plans that the fault hook holds are looked at.
const CLOCK: Duration = Duration::from_millis(1);

impl RingDisk {
    pub(super) fn take_detour(&mut self, index: usize, detour: Detour) {
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

    pub(super) fn clock_rang(&mut self) {
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
            Step::OpenDirect { file, place } => {
                let (file, place) = (*file, place.clone());
                self.open_registered(file, &place, OFlags::DIRECT)
            }
            Step::Close { file } => {
                let file = *file;
                self.close_registered(file)
            }
            Step::Allocate { file, length } | Step::Truncate { file, length } => {
                let descriptor = self.descriptors.get(file).ok_or_else(errors::not_open)?;
                classified(rustix::fs::ftruncate(descriptor, length.0))
            }
            Step::SetModified { place, modified_ms } => {
                classified(set_modified(&path_of(place), *modified_ms))
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
