//! What io_uring can do here, found out by doing it. Version numbers decide nothing.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode, types};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, IoSlice, ReadWriteFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::disk::errors;
use crate::disk::{DiskError, plain};
use crate::ring::error::RingError;
use crate::ring::limits::{self, Limits};
use crate::ring::links::Links;
use crate::ring::setup::{self, Made, RingOptions, SetupFlags, errno_of};

/// A completion must wake its waiter within this time.
const WAKE_MAX: Duration = Duration::from_secs(1);

/// How long an operation that must wait is watched.
const STAYS: Duration = Duration::from_millis(20);

/// How often the wake-up is tried: lost ones are a race.
const WAKES: usize = 16;

/// What was found.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The kernel's release, for the reader only.
    pub kernel: String,
    /// The limits of process and system.
    pub limits: Limits,
    /// What the ring can do, or why there is none, and the way out.
    pub ring: Result<Features, RingError>,
}

/// What a ring can do here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// The set-up flags that the kernel granted.
    pub flags: SetupFlags,
    /// Whether all steps run inside chains; otherwise opening, cutting and closing files takes
    /// system calls between chains.
    pub all_in_chains: bool,
    /// Which operations break their link when they fail.
    pub links: Links,
    /// Whether a read of an empty non-blocking socket waits, as the network edge needs it.
    pub socket_reads_wait: bool,
}

impl Probe {
    /// Whether the ring engine can run.
    pub fn is_usable(&self) -> bool {
        self.ring.is_ok()
    }
}

/// Sets up a ring as the engine does, and tries everything that the engine relies on.
pub fn probe() -> Probe {
    let uname = rustix::system::uname();
    Probe {
        kernel: uname.release().to_string_lossy().into_owned(),
        limits: limits::read(),
        ring: find_features(),
    }
}

fn find_features() -> Result<Features, RingError> {
    let options =
        RingOptions { entries: 64, cq_entries: 128, files_max: 16, ..RingOptions::default() };
    let Made { mut ring, flags, mode, links } = setup::make(&options)?;
    if !links.open || !links.short {
        let found =
            format!("a failed or short entry doesn't cancel what is linked to it: {links:?}");
        return Err(RingError::SelfTest { test: "links", found });
    }
    test_wake_up(&mut ring)?;
    Ok(Features {
        flags,
        all_in_chains: mode == setup::FileMode::Direct,
        links,
        socket_reads_wait: socket_reads_wait(&mut ring)?,
    })
}

/// Completions of workers must make the ring's descriptor readable to epoll, each time.
fn test_wake_up(ring: &mut IoUring) -> Result<(), RingError> {
    let event = eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| failed("wake-up", errno))?;
    let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|errno| failed("wake-up", errno))?;
    // SAFETY: `ring` owns the descriptor and outlives this borrow.
    let descriptor = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
    let flags = EventFlags::IN | EventFlags::ET;
    epoll::add(&epoll, descriptor, EventData::new_u64(0), flags)
        .map_err(|errno| failed("wake-up", errno))?;
    for _ in 0..WAKES {
        // A sync is always given to a worker, whatever it returns.
        let sync = opcode::Fsync::new(types::Fd(event.as_raw_fd())).build();
        push_and_submit(ring, sync)?;
        let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }];
        let deadline = std::time::Instant::now() + WAKE_MAX;
        while ring.completion().next().is_none() {
            if deadline <= std::time::Instant::now() {
                let found = format!("no wake-up within {WAKE_MAX:?}");
                return Err(RingError::SelfTest { test: "wake-up", found });
            }
            let timeout = timespec(WAKE_MAX);
            match epoll::wait(&epoll, &mut events, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(failed("wake-up", errno)),
            }
        }
    }
    Ok(())
}

fn socket_reads_wait(ring: &mut IoUring) -> Result<bool, RingError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let (ours, theirs) = pair.map_err(|errno| failed("socket read", errno))?;
    let mut bytes = [0_u8; 8];
    let read = opcode::Read::new(types::Fd(ours.as_raw_fd()), bytes.as_mut_ptr(), 8).build();
    push_and_submit(ring, read)?;
    let timespec = types::Timespec::from(STAYS);
    let arguments = types::SubmitArgs::new().timespec(&timespec);
    // ETIME, or a signal: whether a completion came is looked at below.
    let _ = ring.submitter().submit_with_args(1, &arguments);
    let is_over = ring.completion().next().is_some();
    if !is_over {
        // End of the stream: the read completes, and its buffer may go.
        drop(theirs);
        while ring.completion().next().is_none() {
            wait(ring)?;
        }
    }
    Ok(!is_over)
}

/// Pushes an entry whose memory the caller keeps until its completion, and submits it.
fn push_and_submit(ring: &mut IoUring, entry: Entry) -> Result<(), RingError> {
    // SAFETY: the callers own what the entry points at and await its completion.
    unsafe { ring.submission().push(&entry) }.expect("the ring is idle");
    while !ring.submission().is_empty() {
        match ring.submit() {
            Ok(_) => {}
            Err(error) if errno_of(&error) == Errno::INTR.raw_os_error() => {}
            Err(error) => return Err(failed("submit", Errno::from_raw_os_error(errno_of(&error)))),
        }
    }
    Ok(())
}

fn wait(ring: &IoUring) -> Result<(), RingError> {
    match ring.submit_and_wait(1) {
        Ok(_) => Ok(()),
        Err(error) if errno_of(&error) == Errno::INTR.raw_os_error() => Ok(()),
        Err(error) => Err(failed("wait", Errno::from_raw_os_error(errno_of(&error)))),
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).expect("a second or so"),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

fn failed(test: &'static str, errno: Errno) -> RingError {
    RingError::SelfTest { test, found: format!("errno {}: {errno}", errno.raw_os_error()) }
}

/// Whether buffered writes that the ring submits run inline, or on a kernel worker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Punting {
    /// Inline.
    Never,
    /// On a worker whenever the file's modification time changes, so at each tick of the clock.
    Sometimes,
    /// Always on a worker (ext4 among others).
    Always,
}

/// Tries in a directory what the ring's first, non-blocking attempt of a buffered write does.
///
/// # Errors
/// When no file without a name can be made there, or not be written.
pub fn punting(directory: &Path) -> Result<Punting, DiskError> {
    let classified = |errno: Errno| errors::classify(errno.raw_os_error());
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = rustix::fs::open(directory, flags, Mode::from(plain::FILE_MODE));
    let file = file.map_err(classified)?;
    let bytes = [0_u8; 4096];
    let mut inline = 0;
    for attempt in 0..ATTEMPTS {
        rustix::io::pwrite(&file, &bytes, 0).map_err(classified)?;
        if attempt % 2 == 1 {
            // Into the next tick of the file system's clock.
            std::thread::sleep(Duration::from_millis(5));
        }
        let slices = [IoSlice::new(&bytes)];
        match rustix::io::pwritev2(&file, &slices, 0, ReadWriteFlags::NOWAIT) {
            Ok(_) => inline += 1,
            Err(Errno::AGAIN | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(classified(errno)),
        }
    }
    Ok(match inline {
        0 => Punting::Always,
        ATTEMPTS => Punting::Never,
        _ => Punting::Sometimes,
    })
}

const ATTEMPTS: usize = 8;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::disk::{Disk, FileId, Lane, Place, Plan, PlanTag, Step};
    use crate::ring::RingDisk;
    use crate::units::Position;

    #[test]
    fn the_engine_can_run_here() {
        let probe = probe();
        let features = probe.ring.clone().expect("io_uring is allowed where tests run");
        assert!(probe.is_usable());
        assert!(features.links.open && features.links.short);
        assert!(!probe.kernel.is_empty());
    }

    #[test]
    fn punting_agrees_with_the_ring() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut disk = RingDisk::new(RingOptions::default()).expect("io_uring");
        let file = FileId { owner: 1, number: 1 };
        let run = |disk: &mut RingDisk, step| {
            let tag = PlanTag { owner: 1, lane: Lane::Append, number: 0 };
            let before = disk.counters().punts;
            assert_eq!(disk.run(Plan { tag, steps: [step].into_iter().collect() }).result, Ok(()));
            disk.counters().punts - before
        };
        let place = Place { directory: Arc::from(directory.path()), name: "f".into() };
        run(&mut disk, Step::Create { file, place });
        let mut punts = 0;
        for _ in 0..64 {
            let parts = [Bytes::from_static(&[0; 4096])].into_iter().collect();
            punts += run(&mut disk, Step::Write { file, at: Position(0), parts });
        }
        // A fast worker hides a punt, so there is no lower bound to hold against it.
        match punting(directory.path()).expect("a directory of ours") {
            Punting::Never => assert_eq!(punts, 0),
            Punting::Sometimes | Punting::Always => assert!(punts <= 64, "one entry a plan"),
        }
        let kinds = (0..4).map(|_| punting(directory.path()).expect("a directory of ours"));
        let kinds: std::collections::HashSet<_> = kinds.collect();
        assert_eq!(kinds.len(), 1, "a file system always answers alike: {kinds:?}");
        assert_eq!(punting(Path::new("/absent-by-intent")), Err(DiskError::NotFound));
    }
}
