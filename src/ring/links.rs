//! Which operations break their link when they fail, found out by letting each fail.
//!
//! A failed entry should cancel what is linked behind it. For some operations the kernel forgets
//! to mark the failure, and the rest of the chain runs on: on Linux 6.18 that is so for `FSYNC`,
//! `FTRUNCATE` and `RENAMEAT`. Such an operation must be the last of its chain. (`MKDIRAT` and
//! `UNLINKAT` end their chains anyway.) This is asked of the running kernel, never guessed from its
//! version.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};

use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::disk::Step;
use crate::ring::error::{KERNEL_REMEDY, RingError};
use crate::ring::setup::errno_of;

/// Operations of a plan's steps that break their link when they fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Links {
    /// `OPENAT`.
    pub open: bool,
    /// `FTRUNCATE`.
    pub truncate: bool,
    /// `FSYNC`.
    pub sync: bool,
    /// `RENAMEAT`.
    pub rename: bool,
    /// `CLOSE`.
    pub close: bool,
    /// `READ` and `WRITE`, when short.
    pub short: bool,
}

const ABSENT: &CStr = c"/absent-by-intent/absent";
const CWD: types::Fd = types::Fd(libc::AT_FDCWD);

impl Links {
    /// Asks the kernel. The ring must be idle; slot 0 of its file table is empty.
    pub(crate) fn find(ring: &mut IoUring, has_truncate: bool) -> Result<Links, RingError> {
        // Neither can be synced or cut.
        let event = eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| RingError::SelfTest {
            test: "links",
            found: format!("no eventfd can be made (errno {})", errno.raw_os_error()),
        })?;
        let path = ABSENT.as_ptr();
        let descriptor = types::Fd(event.as_raw_fd());
        let truncate = opcode::Ftruncate::new(descriptor, 0).build();
        Ok(Links {
            open: breaks(ring, opcode::OpenAt::new(CWD, path).build())?,
            truncate: has_truncate && breaks(ring, truncate)?,
            sync: breaks(ring, opcode::Fsync::new(descriptor).build())?,
            rename: breaks(ring, opcode::RenameAt::new(CWD, path, CWD, path).build())?,
            close: breaks(ring, opcode::Close::new(types::Fixed(0)).build())?,
            short: short_breaks(ring, &event)?,
        })
    }

    /// Whether the entry of this step must be the last of its chain.
    pub(crate) fn ends_chain(&self, step: &Step) -> bool {
        match step {
            Step::Create { .. } | Step::Open { .. } | Step::OpenDirect { .. } => !self.open,
            Step::Allocate { .. } | Step::Truncate { .. } => !self.truncate,
            Step::Sync { .. } => !self.sync,
            Step::Rename { .. } => !self.rename,
            Step::Close { .. } => !self.close,
            Step::Write { .. } | Step::Read { .. } => !self.short,
            // A short count that is within a block is judged before anything follows.
            Step::WriteDurable { .. } => true,
            // Rare enough not to be asked about.
            Step::Forget { .. } => true,
            // Never part of a chain.
            Step::SetModified { .. } => true,
            // Its failure may be fine, and must then not cancel anything.
            Step::CreateDirectory { .. } | Step::Remove { .. } => true,
            Step::RemoveDirectory { .. } => true,
            // Closing the directory, its last entry, happens in any case.
            Step::SyncDirectory { .. } => !self.sync,
        }
    }
}

/// Whether the failure of `entry` cancels an entry behind it.
fn breaks(ring: &mut IoUring, entry: Entry) -> Result<bool, RingError> {
    let [first, second] = run_pair(ring, entry)?;
    if 0 <= first {
        return Err(unexpected(format!("an entry that must fail returned {first}")));
    }
    Ok(second == -Errno::CANCELED.raw_os_error())
}

/// Whether a short read does: 8 bytes of the 16 asked for.
fn short_breaks(ring: &mut IoUring, event: &OwnedFd) -> Result<bool, RingError> {
    let written = rustix::io::write(event, &1_u64.to_ne_bytes());
    written.map_err(|errno| unexpected(format!("eventfd refuses a write: {errno}")))?;
    let mut bytes = [0_u8; 16];
    let length = u32::try_from(bytes.len()).expect("16");
    let read = opcode::Read::new(types::Fd(event.as_raw_fd()), bytes.as_mut_ptr(), length);
    let [first, second] = run_pair(ring, read.build())?;
    if first != 8 {
        return Err(unexpected(format!("a read of an eventfd returned {first}")));
    }
    Ok(second == -Errno::CANCELED.raw_os_error())
}

/// Runs an entry with another linked behind it, and returns both results.
fn run_pair(ring: &mut IoUring, entry: Entry) -> Result<[i32; 2], RingError> {
    let pair = [entry.flags(Flags::IO_LINK).user_data(0), opcode::Nop::new().build().user_data(1)];
    // SAFETY: what the entries point at belongs to the callers of this function, which outlive both
    // completions: they are awaited below.
    unsafe { ring.submission().push_multiple(&pair) }.expect("the ring is idle");
    let mut results = [None; 2];
    while results.contains(&None) {
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if errno_of(&error) == Errno::INTR.raw_os_error() => {}
            Err(error) => {
                return Err(RingError::Register {
                    what: "to run entries",
                    errno: errno_of(&error),
                    remedy: KERNEL_REMEDY.to_owned(),
                });
            }
        }
        for completion in ring.completion() {
            results[usize::from(completion.user_data() == 1)] = Some(completion.result());
        }
    }
    Ok(results.map(|result| result.expect("both came")))
}

fn unexpected(found: String) -> RingError {
    RingError::SelfTest { test: "links", found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_what_breaks_a_link() {
        let mut ring = IoUring::new(8).expect("io_uring");
        ring.submitter().register_files_sparse(1).expect("a table");
        let links = Links::find(&mut ring, true).expect("an answer");
        println!("{links:?}");
        assert!(links.open && links.short, "chains rest on these: {links:?}");
    }
}
