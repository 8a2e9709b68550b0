//! Why a ring can't be had, and what its user can do about it.

use rustix::io::Errno;

/// A ring was refused, or the kernel lacks something that the engine needs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RingError {
    /// `io_uring_setup` failed.
    #[error("io_uring is refused (errno {errno}, {cause}): {remedy}")]
    Refused {
        /// What the kernel said.
        errno: i32,
        /// Who refuses, as far as can be told.
        cause: Cause,
        /// The exact way out.
        remedy: String,
    },
    /// An operation that plans need is not there.
    #[error("this kernel's io_uring lacks {operation}: run Linux 5.15 or newer")]
    Missing {
        /// The operation's name.
        operation: &'static str,
    },
    /// A table or setting of the ring was refused.
    #[error("io_uring refuses {what} (errno {errno}): {remedy}")]
    Register {
        /// What was asked for.
        what: &'static str,
        /// What the kernel said.
        errno: i32,
        /// The exact way out.
        remedy: String,
    },
    /// A self-test did not come out as it must.
    #[error("io_uring fails the self-test \"{test}\": {found}")]
    SelfTest {
        /// Which test.
        test: &'static str,
        /// What was found.
        found: String,
    },
}

/// Who refuses a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A seccomp filter, as container runtimes install.
    Seccomp,
    /// The sysctl `kernel.io_uring_disabled`.
    Sysctl,
    /// A kernel without io_uring, or one too old.
    Kernel,
    /// `RLIMIT_MEMLOCK`, which old kernels charge rings to.
    Memlock,
    /// `RLIMIT_NOFILE`, or the system's table of open files.
    Files,
    /// None of these.
    Unknown,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Cause::Seccomp => "seccomp",
            Cause::Sysctl => "sysctl",
            Cause::Kernel => "kernel",
            Cause::Memlock => "memlock",
            Cause::Files => "nofile",
            Cause::Unknown => "unknown cause",
        })
    }
}

/// Tells who refused `io_uring_setup`, from its errno and the value of
/// `/proc/sys/kernel/io_uring_disabled` (`None`: no such file, as before Linux 6.6).
pub(crate) fn diagnose(errno: i32, disabled: Option<u32>) -> RingError {
    let (cause, remedy) = match (Errno::from_raw_os_error(errno), disabled) {
        (Errno::PERM, Some(1 | 2)) => (Cause::Sysctl, SYSCTL_REMEDY),
        (Errno::PERM | Errno::ACCESS, _) => (Cause::Seccomp, SECCOMP_REMEDY),
        (Errno::NOSYS, Some(_)) => (Cause::Seccomp, SECCOMP_REMEDY),
        (Errno::NOSYS, None) => (Cause::Kernel, KERNEL_REMEDY),
        (Errno::INVAL, _) => (Cause::Kernel, KERNEL_REMEDY),
        (Errno::NOMEM, _) => (Cause::Memlock, MEMLOCK_REMEDY),
        (Errno::MFILE | Errno::NFILE, _) => (Cause::Files, FILES_REMEDY),
        _ => (Cause::Unknown, "run with --engine plain-file"),
    };
    RingError::Refused { errno, cause, remedy: remedy.to_owned() }
}

pub(crate) const SYSCTL_REMEDY: &str =
    "kernel.io_uring_disabled forbids it; run: sysctl -w kernel.io_uring_disabled=0";
pub(crate) const SECCOMP_REMEDY: &str = "a seccomp filter forbids it; allow io_uring_setup, \
     io_uring_enter and io_uring_register in the profile (docker: --security-opt seccomp=FILE, \
     or seccomp=unconfined)";
pub(crate) const KERNEL_REMEDY: &str =
    "the kernel is too old or built without CONFIG_IO_URING; run Linux 5.15 or newer";
pub(crate) const MEMLOCK_REMEDY: &str = "locked memory is exhausted; raise it (ulimit -l \
     unlimited, systemd: LimitMEMLOCK=infinity), or ask for fewer entries";
pub(crate) const FILES_REMEDY: &str =
    "out of file descriptors; raise the limit (ulimit -n, systemd: LimitNOFILE=)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_follows_from_errno_and_sysctl() {
        let check = |errno: Errno, disabled, expected| {
            match diagnose(errno.raw_os_error(), disabled) {
                RingError::Refused { cause, .. } => assert_eq!(cause, expected),
                other => panic!("{other:?}"),
            };
        };
        check(Errno::PERM, Some(2), Cause::Sysctl);
        check(Errno::PERM, Some(1), Cause::Sysctl);
        check(Errno::PERM, Some(0), Cause::Seccomp);
        check(Errno::PERM, None, Cause::Seccomp);
        check(Errno::NOSYS, None, Cause::Kernel);
        check(Errno::NOSYS, Some(0), Cause::Seccomp);
        check(Errno::NOMEM, Some(0), Cause::Memlock);
        check(Errno::MFILE, Some(0), Cause::Files);
        check(Errno::IO, Some(0), Cause::Unknown);
    }
}
