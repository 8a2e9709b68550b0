//! Pinning a shard's thread to its core. io-wq workers inherit it, which measurement says is right:
//! workers on another core cost 1.5 to 2 times the CPU per batch.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Cores that this process may run on, ascending.
///
/// # Errors
/// As `sched_getaffinity(2)`.
pub fn cores() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Pins the calling thread to one core.
///
/// # Errors
/// As `sched_setaffinity(2)`: `EINVAL` for a core that this process may not run on.
pub fn pin(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_has_one_core() {
        let all = cores().expect("a process may run somewhere");
        let last = *all.last().expect("one core at least");
        let pinned = std::thread::spawn(move || {
            pin(last).expect("it is one of ours");
            cores().expect("as before")
        });
        assert_eq!(pinned.join().expect("no panic"), vec![last]);
    }
}
