//! Pinning threads to cores.

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A thread can't be pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "core {core} is not usable (errno {errno}); this process may run on the cores of its cpuset"
)]
pub struct PinError {
    /// The core that was asked for.
    pub core: usize,
    /// What the kernel said.
    pub errno: i32,
}

/// The cores that this thread may run on, ascending.
pub fn allowed_cores() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

/// Pins the calling thread to a core. Threads that it makes later, the ring's workers among them,
/// inherit that.
///
/// # Errors
/// When there is no such core, or the process may not use it.
pub fn pin_current_thread(core: usize) -> Result<(), PinError> {
    let mut set = CpuSet::new();
    if CpuSet::MAX_CPU <= core {
        return Err(PinError { core, errno: Errno::INVAL.raw_os_error() });
    }
    set.set(core);
    sched_setaffinity(None, &set).map_err(|errno| PinError { core, errno: errno.raw_os_error() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_was_pinned() {
        let core = *allowed_cores().last().expect("at least one core");
        let pinned = std::thread::spawn(move || {
            pin_current_thread(core).expect("an allowed core");
            allowed_cores()
        });
        assert_eq!(pinned.join().expect("the thread ends"), [core]);
        assert!(pin_current_thread(CpuSet::MAX_CPU - 1).is_err());
        assert!(pin_current_thread(usize::MAX).is_err());
    }
}
