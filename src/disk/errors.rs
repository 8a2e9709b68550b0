//! What an errno means to the log, and which failures are tried again. Shared by all disks.

use rustix::io::Errno;

use crate::disk::plan::{DiskError, Step, StepFailure};

/// How often one plan may try again after failures of the passing kind.
pub const TRANSIENT_RETRIES_MAX: u32 = 16;

/// The one mapping from errno to [`DiskError`].
pub fn classify(errno: i32) -> DiskError {
    match Errno::from_raw_os_error(errno) {
        Errno::NOSPC | Errno::DQUOT => DiskError::NoSpace,
        Errno::AGAIN | Errno::INTR | Errno::NOMEM => DiskError::Transient(errno),
        Errno::NOENT => DiskError::NotFound,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => DiskError::Denied(errno),
        Errno::MFILE | Errno::NFILE => DiskError::TooManyFiles(errno),
        _ => DiskError::Io(errno),
    }
}

/// `EBADF` as every disk reports a step on a file that isn't open.
pub fn not_open() -> DiskError {
    DiskError::Io(Errno::BADF.raw_os_error())
}

/// A file table that is full, as every disk reports it.
pub fn table_full() -> DiskError {
    DiskError::TooManyFiles(Errno::MFILE.raw_os_error())
}

/// `EIO`, for failures that the kernel gave no number for.
pub fn input_output() -> DiskError {
    DiskError::Io(Errno::IO.raw_os_error())
}

/// Whether `errno` is fine for this step, which then counts as done: what it should bring about is
/// already so.
pub fn is_fine(step: &Step, errno: i32) -> bool {
    let errno = Errno::from_raw_os_error(errno);
    match step {
        Step::CreateDirectory { .. } => errno == Errno::EXIST,
        Step::Remove { .. } | Step::RemoveDirectory { .. } => errno == Errno::NOENT,
        _ => false,
    }
}

/// Whether a failed step is tried again: it had no effect (`done` bytes of it are 0), the reason
/// passes by itself, and it isn't a sync, whose failure leaves the page cache in an unknown state,
/// nor a durable write, whose error may be that of its sync.
pub fn is_retried(step: &Step, done: u64, error: DiskError, retries: u32) -> bool {
    matches!(error, DiskError::Transient(_))
        && done == 0
        && !syncs(step)
        && retries < TRANSIENT_RETRIES_MAX
}

fn syncs(step: &Step) -> bool {
    matches!(step, Step::Sync { .. } | Step::SyncDirectory { .. } | Step::WriteDurable { .. })
}

/// The failure of step number `index`, of which `done` bytes were carried out.
pub fn failure(index: usize, step: &Step, done: u64, error: DiskError) -> StepFailure {
    let partial = match step {
        Step::Write { .. } => done != 0,
        // Some pages may have reached the device before the failure.
        _ => syncs(step),
    };
    StepFailure { step: index, partial, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::plan::FileId;

    #[test]
    fn errnos_fall_into_the_kinds_that_the_log_tells_apart() {
        assert_eq!(classify(libc::ENOSPC), DiskError::NoSpace);
        assert_eq!(classify(libc::EDQUOT), DiskError::NoSpace);
        assert_eq!(classify(libc::EAGAIN), DiskError::Transient(libc::EAGAIN));
        assert_eq!(classify(libc::ENOENT), DiskError::NotFound);
        assert_eq!(classify(libc::EROFS), DiskError::Denied(libc::EROFS));
        assert_eq!(classify(libc::EMFILE), DiskError::TooManyFiles(libc::EMFILE));
        assert_eq!(classify(libc::EIO), DiskError::Io(libc::EIO));
        assert_eq!(classify(libc::EFBIG), DiskError::Io(libc::EFBIG));
    }

    #[test]
    fn a_sync_is_never_tried_again() {
        let file = FileId { owner: 0, number: 0 };
        let again = DiskError::Transient(libc::EINTR);
        assert!(!is_retried(&Step::Sync { file }, 0, again, 0));
        assert!(is_retried(&Step::Close { file }, 0, again, 0));
        assert!(!is_retried(&Step::Close { file }, 0, again, TRANSIENT_RETRIES_MAX));
        assert!(!is_retried(&Step::Close { file }, 1, again, 0));
        assert!(!is_retried(&Step::Close { file }, 0, DiskError::NoSpace, 0));
    }
}
