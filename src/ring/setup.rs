//! Setting a ring up, with as much as the kernel grants.

use io_uring::{IoUring, opcode};
use rustix::io::Errno;

use crate::disk::faults::FaultHook;
use crate::ring::error::{self, RingError};
use crate::ring::links::Links;

/// What a ring is made with. All numbers are limits.
#[derive(Clone, Debug)]
pub struct RingOptions {
    /// Entries of the submission queue, and plans in the kernel at a time.
    pub entries: u32,
    /// Entries of the completion queue, not below `entries`.
    pub cq_entries: u32,
    /// Open files.
    pub files_max: u32,
    /// Pipes of 1 MiB for file ranges on their way to sockets.
    pub pipes_max: usize,
    /// Kernel workers for file reads and writes; 0 leaves the kernel's default.
    pub workers_bounded: u32,
    /// Kernel workers for syncs, splices and names; 0 leaves the kernel's default.
    pub workers_unbounded: u32,
    /// Cores that the kernel's workers run on; `None`: where the thread that makes the ring runs.
    pub worker_affinity: Option<Vec<usize>>,
    /// Faults on demand, for tests.
    pub faults: Option<FaultHook>,
}

impl Default for RingOptions {
    fn default() -> RingOptions {
        RingOptions {
            entries: 1024,
            cq_entries: 4096,
            files_max: 4096,
            pipes_max: 16,
            workers_bounded: 4,
            workers_unbounded: 16,
            worker_affinity: None,
            faults: None,
        }
    }
}

/// How files get into the table, and what is left to system calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileMode {
    /// `OPENAT` puts a file straight into its slot, and `FTRUNCATE` sets its length, all inside
    /// chains (Linux 6.9 and newer).
    Direct,
    /// Files are opened, cut and closed by system calls between chains.
    Registered,
}

/// Operations that no plan can do without, and their names for the error text.
const OPERATIONS: &[(u8, &str)] = &[
    (opcode::Writev::CODE, "WRITEV"),
    (opcode::Write::CODE, "WRITE"),
    (opcode::Read::CODE, "READ"),
    (opcode::Fsync::CODE, "FSYNC"),
    (opcode::Fadvise::CODE, "FADVISE"),
    (opcode::OpenAt::CODE, "OPENAT"),
    (opcode::Close::CODE, "CLOSE"),
    (opcode::RenameAt::CODE, "RENAMEAT"),
    (opcode::UnlinkAt::CODE, "UNLINKAT"),
    (opcode::MkDirAt::CODE, "MKDIRAT"),
    (opcode::Splice::CODE, "SPLICE"),
    (opcode::PollAdd::CODE, "POLL_ADD"),
    (opcode::Timeout::CODE, "TIMEOUT"),
    (opcode::AsyncCancel::CODE, "ASYNC_CANCEL"),
];

/// Flags of a ring, most wanted first; each row is tried when the one before is refused with
/// `EINVAL`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupFlags {
    /// `SINGLE_ISSUER | COOP_TASKRUN | SUBMIT_ALL | CLAMP` (Linux 6.0).
    All,
    /// `COOP_TASKRUN | SUBMIT_ALL | CLAMP` (Linux 5.19).
    Cooperative,
    /// `CLAMP` alone.
    Clamp,
}

/// The ring and what was found about it.
pub(crate) struct Made {
    pub(crate) ring: IoUring,
    pub(crate) flags: SetupFlags,
    pub(crate) mode: FileMode,
    pub(crate) links: Links,
}

/// Makes a ring, its file table and its workers' settings.
pub(crate) fn make(options: &RingOptions) -> Result<Made, RingError> {
    assert!(options.entries <= options.cq_entries, "completions of a full queue must fit");
    assert!(0 < options.files_max, "a disk without files is of no use");
    let (mut ring, flags) = setup(options.entries, options.cq_entries)?;
    let probe = supported(&ring)?;
    for (code, operation) in OPERATIONS {
        if !probe.is_supported(*code) {
            return Err(RingError::Missing { operation });
        }
    }
    ring.submitter().register_files_sparse(options.files_max + options.entries).map_err(
        |error| {
            let remedy =
                format!("{} files were asked for; {}", options.files_max, error::FILES_REMEDY);
            registering("a table of files", &error, remedy)
        },
    )?;
    set_workers(&ring, options)?;
    let has_truncate = probe.is_supported(opcode::Ftruncate::CODE);
    let links = Links::find(&mut ring, has_truncate)?;
    let direct = has_truncate && ring.params().is_feature_linked_file();
    let mode = if direct { FileMode::Direct } else { FileMode::Registered };
    Ok(Made { ring, flags, mode, links })
}

/// `io_uring_setup` with as many of the wanted flags as the kernel knows.
pub(crate) fn setup(entries: u32, cq_entries: u32) -> Result<(IoUring, SetupFlags), RingError> {
    let mut refused = Errno::INVAL.raw_os_error();
    for flags in [SetupFlags::All, SetupFlags::Cooperative, SetupFlags::Clamp] {
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_cqsize(cq_entries).dontfork();
        if flags != SetupFlags::Clamp {
            builder.setup_coop_taskrun().setup_submit_all();
        }
        if flags == SetupFlags::All {
            builder.setup_single_issuer();
        }
        match builder.build(entries) {
            Ok(ring) => return Ok((ring, flags)),
            Err(error) => refused = errno_of(&error),
        }
        if Errno::from_raw_os_error(refused) != Errno::INVAL {
            break;
        }
    }
    Err(error::diagnose(refused, crate::ring::limits::io_uring_disabled()))
}

/// Which operations the kernel knows.
pub(crate) fn supported(ring: &IoUring) -> Result<io_uring::Probe, RingError> {
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(|error| {
        registering("a probe of its operations", &error, error::KERNEL_REMEDY.to_owned())
    })?;
    Ok(probe)
}

fn set_workers(ring: &IoUring, options: &RingOptions) -> Result<(), RingError> {
    let mut workers = [options.workers_bounded, options.workers_unbounded];
    ring.submitter().register_iowq_max_workers(&mut workers).map_err(|error| {
        registering("limits of its workers", &error, error::KERNEL_REMEDY.to_owned())
    })?;
    let Some(cores) = &options.worker_affinity else { return Ok(()) };
    let set = cpu_set(cores);
    ring.submitter().register_iowq_aff(&set).map_err(|error| {
        let remedy = format!("cores {cores:?} must exist and be allowed for this process");
        registering("the workers' cores", &error, remedy)
    })
}

fn cpu_set(cores: &[usize]) -> libc::cpu_set_t {
    const BITS: usize = 64;
    const CORES_MAX: usize = BITS * (size_of::<libc::cpu_set_t>() / size_of::<u64>());
    let mut words = [0_u64; size_of::<libc::cpu_set_t>() / size_of::<u64>()];
    for core in cores {
        assert!(*core < CORES_MAX, "cores come from the process's own set");
        words[core / BITS] |= 1 << (core % BITS);
    }
    // SAFETY: both types are plain words of the same size, and every bit pattern of either is
    // valid; the value is owned here and copied.
    unsafe { std::mem::transmute::<[u64; 16], libc::cpu_set_t>(words) }
}

fn registering(what: &'static str, error: &std::io::Error, remedy: String) -> RingError {
    RingError::Register { what, errno: errno_of(error), remedy }
}

pub(crate) fn errno_of(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())
}
