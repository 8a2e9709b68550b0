//! Descriptors that a library lends only as numbers.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// A descriptor of one's own for the same open file.
///
/// # Errors
/// As `fcntl(F_DUPFD_CLOEXEC)`: no descriptors left.
///
/// # Panics
/// When `raw` is negative. The caller keeps the open file alive across the call.
pub fn duplicate(raw: RawFd) -> io::Result<OwnedFd> {
    assert!(raw >= 0);
    // SAFETY: the caller owns the descriptor and holds it until this function returns; it is
    // borrowed for the length of one system call only.
    let lent = unsafe { BorrowedFd::borrow_raw(raw) };
    lent.try_clone_to_owned()
}
