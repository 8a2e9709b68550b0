//! One process per data directory: the lock on its `.lock` file.
//!
//! The lock is the one that Java's `FileChannel.tryLock` takes, a POSIX write lock on the whole
//! file, so that a Kafka broker and this one keep each other out. It belongs to the process: the
//! kernel frees it however the process ends, and the file itself stays where it is.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Flock, FlockType};

use crate::format::clean_shutdown;

/// The lock's file in the data directory.
pub const LOCK_FILE: &str = ".lock";

/// Directories that this process holds: the kernel's lock doesn't keep a process from itself.
static HELD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct DirectoryLock {
    directory: PathBuf,
    // Closing any descriptor of the file frees a POSIX lock, so this one stays open.
    _file: File,
}

/// Why the lock can't be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error(
        "{}/.lock is held by process {pid}: one process per directory; stop that one or use \
         another directory", .directory.display()
    )]
    Held {
        /// The data directory.
        directory: PathBuf,
        /// Who holds it; 0 when it can't be told (another machine or container).
        pid: u32,
    },
    /// The file can't be opened or locked.
    #[error("{}/.lock: {error}", .directory.display())]
    File {
        /// The data directory.
        directory: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

impl DirectoryLock {
    /// Takes the lock of an existing directory.
    ///
    /// # Errors
    /// [`LockError::Held`] at once when another process, or this one, has it.
    pub fn acquire(directory: &Path) -> Result<DirectoryLock, LockError> {
        let failed = |error| LockError::File { directory: directory.to_owned(), error };
        let directory = directory.canonicalize().map_err(failed)?;
        if !held().insert(directory.clone()) {
            let pid = std::process::id();
            return Err(LockError::Held { directory, pid });
        }
        match lock(&directory) {
            Ok(file) => Ok(DirectoryLock { directory, _file: file }),
            Err(error) => {
                held().remove(&directory);
                Err(error)
            }
        }
    }

    /// Takes away what says that the last server stopped in order, and says whether it was there:
    /// from here on a stop counts as a crash, until somebody puts it back.
    ///
    /// # Errors
    /// When it can't be removed, or not durably.
    pub fn take_clean_marker(&self) -> io::Result<bool> {
        match std::fs::remove_file(self.directory.join(clean_shutdown::FILE_NAME)) {
            Ok(()) => File::open(&self.directory)?.sync_all().map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        held().remove(&self.directory);
    }
}

fn held() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lock(directory: &Path) -> Result<File, LockError> {
    let failed = |error| LockError::File { directory: directory.to_owned(), error };
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.open(directory.join(LOCK_FILE)).map_err(failed)?;
    match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::ACCESS | Errno::AGAIN) => {
            Err(LockError::Held { directory: directory.to_owned(), pid: holder(&file) })
        }
        Err(error) => Err(failed(error.into())),
    }
}

/// The process that holds the file's lock; 0 when the system doesn't say.
fn holder(file: &File) -> u32 {
    let wanted = Flock::from(FlockType::WriteLock);
    let found = rustix::process::fcntl_getlk(file, &wanted).ok().flatten();
    let pid = found.and_then(|lock| lock.pid).map_or(0, |pid| pid.as_raw_pid());
    u32::try_from(pid).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_in_this_process_is_refused_until_the_first_is_gone() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let first = DirectoryLock::acquire(directory.path()).expect("nobody holds it");
        let second = DirectoryLock::acquire(directory.path());
        assert!(matches!(second, Err(LockError::Held { pid, .. }) if pid == std::process::id()));
        drop(first);
        DirectoryLock::acquire(directory.path()).expect("the first is gone");
    }

    #[test]
    fn a_missing_directory_is_named() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let absent = directory.path().join("absent");
        let error = DirectoryLock::acquire(&absent).expect_err("there is no such directory");
        assert!(error.to_string().contains("absent/.lock"), "{error}");
    }
}
