//! Limits of the process and the system that a ring runs into.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limits as found; `None` means unlimited, or that the system doesn't say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes that the process may lock in memory (`RLIMIT_MEMLOCK`, soft).
    pub memlock: Option<u64>,
    /// Descriptors that the process may have (`RLIMIT_NOFILE`, soft).
    pub nofile: Option<u64>,
    /// Descriptors that it may raise itself to (`RLIMIT_NOFILE`, hard).
    pub nofile_hard: Option<u64>,
    /// Largest pipe, in bytes, that an unprivileged user may make.
    pub pipe_bytes_max: Option<u64>,
    /// Pages in pipes, of all of an unprivileged user's pipes, before new ones shrink.
    pub pipe_user_pages_soft: Option<u64>,
    /// `kernel.io_uring_disabled`: 0 allowed, 1 for the privileged only, 2 for nobody; `None`
    /// before Linux 6.6.
    pub io_uring_disabled: Option<u32>,
}

/// Reads all limits.
pub fn read() -> Limits {
    let nofile = getrlimit(Resource::Nofile);
    Limits {
        memlock: getrlimit(Resource::Memlock).current,
        nofile: nofile.current,
        nofile_hard: nofile.maximum,
        pipe_bytes_max: number("/proc/sys/fs/pipe-max-size"),
        pipe_user_pages_soft: number("/proc/sys/fs/pipe-user-pages-soft"),
        io_uring_disabled: io_uring_disabled(),
    }
}

/// The sysctl `kernel.io_uring_disabled`; `None` where there is none.
pub fn io_uring_disabled() -> Option<u32> {
    number("/proc/sys/kernel/io_uring_disabled").and_then(|value| u32::try_from(value).ok())
}

/// Raises the soft limit of descriptors to the hard one; says what it is now (`None`: unlimited).
/// Where that is refused, the limit stays as it was.
pub fn raise_nofile() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_of_descriptors_reaches_the_hard_one() {
        let raised = raise_nofile();
        let limits = read();
        assert_eq!(limits.nofile, raised);
        assert_eq!(limits.nofile, limits.nofile_hard);
        assert!(limits.pipe_bytes_max.is_some_and(|bytes| 4096 <= bytes));
    }
}
