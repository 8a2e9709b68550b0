//! What the log wants done to its files, as plain data.
//!
//! A [`Plan`] is an ordered list of steps. Every disk runs them front to back and stops at the
//! first failure: the steps before it are whole, the failing one may be partial, those after it
//! never ran. Nothing here opens a file, reads a clock or blocks.

use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use crate::disk::aligned::Aligned;
use crate::units::{ByteCount, Position};

/// A file that a disk knows by number; the log never sees a descriptor.
///
/// `owner` is the number of the log (or other user of the disk) that named the file, unique per
/// disk; `number` is that owner's own count. A number is never given twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct FileId {
    /// Number of the log that the file belongs to.
    pub owner: u32,
    /// The owner's count of files.
    pub number: u32,
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Place {
    /// The directory, shared by all places in it.
    pub directory: Arc<Path>,
    /// The entry's name, without a slash.
    pub name: Box<str>,
}

/// One operation on a file or a name.
#[derive(PartialEq, Debug)]
pub enum Step {
    /// Makes a directory; an existing one is fine.
    CreateDirectory {
        /// Where.
        place: Place,
    },
    /// Opens a file for reading and writing, and makes it (empty) when it doesn't exist.
    Create {
        /// The number that the file is known by from here on.
        file: FileId,
        /// Where.
        place: Place,
    },
    /// Opens an existing file for reading and writing.
    Open {
        /// The number that the file is known by from here on.
        file: FileId,
        /// Where.
        place: Place,
    },
    /// Opens an existing file for direct reading and writing (`O_RDWR | O_DIRECT`, open(2)): past
    /// the page cache, in whole blocks only. A file system that has no direct I/O refuses with
    /// `EINVAL`, which comes as [`DiskError::Io`]`(22)`.
    OpenDirect {
        /// The number that the file is known by from here on.
        file: FileId,
        /// Where.
        place: Place,
    },
    /// Extends a file to `length` bytes without writing: the tail is a hole that reads as zeros.
    Allocate {
        /// Which file.
        file: FileId,
        /// Its new length, not below the present one.
        length: ByteCount,
    },
    /// Writes `parts`, one after the other, from `at` on.
    Write {
        /// Which file.
        file: FileId,
        /// Position of the first byte.
        at: Position,
        /// What to write; slices of received frames, never copied.
        parts: Parts,
    },
    /// Overwrites [`Aligned::bytes`] from `at` on, and is over when they are durable (`RWF_DSYNC`,
    /// pwritev2(2)): one request instead of a write and a sync. Meant for a file of
    /// [`Step::OpenDirect`], inside its length, and for bytes that were written before: then no
    /// metadata changes.
    ///
    /// A power failure leaves each sector of it old or new. So does a failure of the step, whose
    /// error may come from the write or from the sync behind it: it always counts as partial, and
    /// is never tried again. An `at` between blocks is refused with `EINVAL`.
    WriteDurable {
        /// Which file.
        file: FileId,
        /// Position of the first byte, a multiple of [`BLOCK_BYTES`].
        ///
        /// [`BLOCK_BYTES`]: crate::disk::BLOCK_BYTES
        at: Position,
        /// What to write; comes home in the finished plan.
        buffer: Box<Aligned>,
    },
    /// Fills `bytes` (its length says how much) from `at` on. The end of the file before that is a
    /// failure.
    Read {
        /// Which file.
        file: FileId,
        /// Position of the first byte.
        at: Position,
        /// The buffer; comes home in the finished plan.
        bytes: BytesMut,
    },
    /// Cuts a file to `length` bytes.
    Truncate {
        /// Which file.
        file: FileId,
        /// Its new length, not above the present one.
        length: ByteCount,
    },
    /// Makes a file's data and length durable (fdatasync).
    Sync {
        /// Which file.
        file: FileId,
    },
    /// Drops what the page cache holds of a file and is not dirty (`POSIX_FADV_DONTNEED`,
    /// posix_fadvise(2)), so that the next read shows the device's bytes. After a failed writeback
    /// the kernel marks pages clean that the device lacks (fsync(2)): they are dropped, too.
    ///
    /// - A dirty page stays, and so does one that is being written (`invalidate_mapping_pages`;
    ///   mm/fadvise.c only begins to write them and waits for none): [`Step::Sync`] first.
    /// - A page that somebody else refers to stays: one that is mapped, or that a splice left in a
    ///   pipe or a socket, even of a process that is gone. The kernel doesn't say so.
    /// - It is the whole file (length 0): a range spares the page or large folio that it cuts.
    /// - The file's length stays: it is the inode's. Where the page cache is the file (tmpfs), and
    ///   where there is none (DAX), nothing happens.
    Forget {
        /// Which file.
        file: FileId,
    },
    /// Sets when a file was last modified: what is written in the place of old files keeps their
    /// age (`LogSegment#setLastModified`). Goes by name, since a file of a ring's table has no
    /// descriptor; not made durable.
    SetModified {
        /// Which file.
        place: Place,
        /// Milliseconds since the epoch.
        modified_ms: i64,
    },
    /// Gives an entry another name in the same file system, replacing what stands there.
    Rename {
        /// The present name.
        from: Place,
        /// The new name.
        to: Place,
    },
    /// Removes a file's name. An absent one is fine: recovery repeats removals.
    Remove {
        /// Which name.
        place: Place,
    },
    /// Removes an empty directory. An absent one is fine.
    RemoveDirectory {
        /// Which name.
        place: Place,
    },
    /// Makes the names in a directory durable.
    SyncDirectory {
        /// Which directory.
        directory: Arc<Path>,
    },
    /// Forgets a file; its number is not used again.
    Close {
        /// Which file.
        file: FileId,
    },
}

/// The pieces of one write. Four batches a turn are kept without a heap allocation.
pub type Parts = SmallVec<[Bytes; 4]>;

/// Steps of one plan. A chain of write, two index writes and a sync needs no heap allocation.
pub type Steps = SmallVec<[Step; 4]>;

/// Plans of one lane and owner run one at a time; lanes of an owner touch different files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Lane {
    /// Appends to the active segment.
    Append,
    /// Everything that no append touches: unlink, checkpoints, flush of sealed segments.
    Housekeeping,
    /// Reads on behalf of fetches; any number may be under way.
    Read,
}

/// Who a plan comes from; comes back untouched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct PlanTag {
    /// Number of the log that planned it.
    pub owner: u32,
    /// Which lane it runs in.
    pub lane: Lane,
    /// Free for the planner: tells apart reads that are under way together.
    pub number: u64,
}

/// An ordered list of steps with one outcome.
#[derive(PartialEq, Debug)]
pub struct Plan {
    /// Who it comes from.
    pub tag: PlanTag,
    /// What to do, in order. Never empty when submitted.
    pub steps: Steps,
}

/// A plan that has left the disk. Its buffers come home with it, whatever the result.
#[derive(Debug)]
pub struct Finished {
    /// The plan as submitted, reads filled in.
    pub plan: Plan,
    /// Whole, or where it stopped and why.
    pub result: Result<(), StepFailure>,
}

/// Where a plan stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StepFailure {
    /// Index of the failing step in the plan.
    pub step: usize,
    /// Whether the failing step may have taken effect in part (a short write, for one).
    pub partial: bool,
    /// Why.
    pub error: DiskError,
}

/// Why a step failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DiskError {
    /// `ENOSPC` or `EDQUOT`: the file system or the quota is full.
    #[error("no space left on the device")]
    NoSpace,
    /// `EAGAIN`, `EINTR` or `ENOMEM`: the same step may well succeed when tried again.
    #[error("transient failure (errno {0})")]
    Transient(i32),
    /// `ENOENT`.
    #[error("no such file or directory")]
    NotFound,
    /// `EACCES`, `EPERM` or `EROFS`.
    #[error("permission denied or read-only file system (errno {0})")]
    Denied(i32),
    /// `EMFILE` or `ENFILE`: out of file descriptors.
    #[error("too many open files (errno {0}); raise the nofile limit")]
    TooManyFiles(i32),
    /// A read met the end of the file.
    #[error("the file ends before the bytes wanted")]
    UnexpectedEnd,
    /// Everything else, `EIO` above all.
    #[error("input/output error (errno {0})")]
    Io(i32),
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub struct Listed {
    /// The entry's name.
    pub name: String,
    /// Apparent length in bytes; 0 for a directory.
    pub length: ByteCount,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Last modification, milliseconds since the epoch: Kafka's retention falls back on it.
    pub modified_ms: i64,
}

/// The only way bytes reach a file.
pub trait Disk {
    /// Takes a plan and its buffers. The ring queues it until [`Disk::enter`]; the others may run
    /// it at once.
    fn submit(&mut self, plan: Plan);

    /// Hands everything submitted since the last call to the kernel, in one call.
    fn enter(&mut self);

    /// Returns a plan that is over, in any order. With `wait`, blocks until one of those under way
    /// is over; `None` then means that none is.
    fn reap(&mut self, wait: bool) -> Option<Finished>;

    /// Gives a buffer of [`Step::WriteDurable`] to the disk's kernel interface, once, so that the
    /// kernel need not pin its pages for each write. Only this disk may then write from it. Where
    /// there is nothing to gain, or the kernel refuses, the buffer works as it is.
    fn register(&mut self, buffer: &mut Aligned) {
        let _ = buffer;
    }

    /// The entries of a directory, sorted by name. Blocks; for start-up and tools.
    ///
    /// # Errors
    /// [`DiskError::NotFound`] when there is no such directory; others as the file system says.
    fn list(&mut self, directory: &Path) -> Result<Vec<Listed>, DiskError>;

    /// Runs one plan to its end while nothing else is under way. For start-up, tools and tests.
    fn run(&mut self, plan: Plan) -> Finished {
        self.submit(plan);
        self.enter();
        self.reap(true).expect("a plan was just submitted")
    }
}
