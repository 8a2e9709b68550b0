//! Waiting for a condition, never longer than a limit.

use std::time::{Duration, Instant};

/// No test waits longer than this for one thing. Far above what is usual: a loaded machine is no
/// failure.
pub const PATIENCE: Duration = Duration::from_secs(60);

const POLL_EVERY: Duration = Duration::from_millis(5);

/// Asks until `found` gives something.
pub fn for_some<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(it) = found() {
            return it;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(POLL_EVERY);
    }
}

/// Asks until it holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for_some(what, || holds().then_some(()));
}
