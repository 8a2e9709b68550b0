//! Faults on demand, for tests: one switchboard that any thread may set and every disk obeys.
//!
//! A disk asks once for each write and each sync step, when that step's turn has come. How the
//! disks carry a fault out:
//!
//! - *hold*: the plan stands still before its sync until [`FaultHook::release_syncs`]. The ring
//!   submits the sync only then, as a chain of its own; the plain-file disk parks the plan and goes
//!   on with others. Nothing of the sync happens before.
//! - *delay*: the same, released by time. The plain-file disk sleeps, as a slow device would make
//!   it; the simulated one, which has no clock, ignores it.
//! - *fail*: the step isn't carried out and fails with the errno given.
//! - *short*: only the first bytes are written, then the step fails with the errno given.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// Faults that are set to happen; clones share them.
#[derive(Clone, Debug, Default)]
pub struct FaultHook {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    syncs_held: AtomicBool,
    /// Syncs that stand still now.
    waiting: AtomicU64,
    write: Countdown,
    /// Bytes that the faulty write still writes; `u64::MAX` never occurs as a length.
    write_bytes: AtomicU64,
    sync: Countdown,
    delay_every: AtomicU64,
    delay_micros: AtomicU64,
    syncs_seen: AtomicU64,
}

/// Fires once, when it has been asked as often as set.
#[derive(Debug, Default)]
struct Countdown {
    /// 0: nothing is set.
    left: AtomicU64,
    errno: AtomicI32,
}

impl Countdown {
    fn set(&self, nth: u64, errno: i32) {
        assert!(0 < nth, "the next one is number 1");
        self.errno.store(errno, Ordering::SeqCst);
        self.left.store(nth, Ordering::SeqCst);
    }

    fn fires(&self) -> Option<i32> {
        let step = |left: u64| left.checked_sub(1);
        let before = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step).ok()?;
        (before == 1).then(|| self.errno.load(Ordering::SeqCst))
    }
}

/// What happens to a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteFault {
    /// Nothing unusual.
    None,
    /// It writes this many bytes at most, then fails with the errno.
    Short {
        /// Bytes that are still written; 0 when it fails as a whole.
        bytes: u64,
        /// Why it then fails.
        errno: i32,
    },
}

/// What happens to a sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncFault {
    /// Nothing unusual.
    None,
    /// It waits for [`FaultHook::release_syncs`].
    Hold,
    /// It begins this much later.
    Delay(Duration),
    /// It fails with the errno.
    Fail(i32),
}

impl FaultHook {
    /// A hook with no fault set.
    pub fn new() -> FaultHook {
        FaultHook::default()
    }

    /// From now on every sync stands still before it begins.
    pub fn hold_syncs(&self) {
        self.state.syncs_held.store(true, Ordering::SeqCst);
    }

    /// Lets all held syncs go.
    pub fn release_syncs(&self) {
        self.state.syncs_held.store(false, Ordering::SeqCst);
    }

    /// Whether syncs are held.
    pub fn is_holding(&self) -> bool {
        self.state.syncs_held.load(Ordering::SeqCst)
    }

    /// How many syncs stand still now: a test waits for this to become what it expects.
    pub fn syncs_waiting(&self) -> u64 {
        self.state.waiting.load(Ordering::SeqCst)
    }

    /// The `nth` write from now (1 is the next) fails with `errno` and writes nothing.
    pub fn fail_write(&self, nth: u64, errno: i32) {
        self.short_write(nth, 0, errno);
    }

    /// The `nth` write from now (1 is the next) writes `bytes`, then fails with `errno`.
    pub fn short_write(&self, nth: u64, bytes: u64, errno: i32) {
        self.state.write_bytes.store(bytes, Ordering::SeqCst);
        self.state.write.set(nth, errno);
    }

    /// The `nth` sync from now (1 is the next) fails with `errno`.
    pub fn fail_sync(&self, nth: u64, errno: i32) {
        self.state.sync.set(nth, errno);
    }

    /// Every `every`th sync begins `by` later; 0 ends that.
    pub fn delay_syncs(&self, every: u64, by: Duration) {
        let micros = u64::try_from(by.as_micros()).expect("a delay of less than 500,000 years");
        self.state.delay_micros.store(micros, Ordering::SeqCst);
        self.state.delay_every.store(every, Ordering::SeqCst);
    }

    /// Asked by a disk before each write step.
    pub fn before_write(&self) -> WriteFault {
        match self.state.write.fires() {
            None => WriteFault::None,
            Some(errno) => {
                WriteFault::Short { bytes: self.state.write_bytes.load(Ordering::SeqCst), errno }
            }
        }
    }

    /// Asked by a disk before each sync of a file.
    pub fn before_sync(&self) -> SyncFault {
        if let Some(errno) = self.state.sync.fires() {
            return SyncFault::Fail(errno);
        }
        if self.is_holding() {
            return SyncFault::Hold;
        }
        let seen = self.state.syncs_seen.fetch_add(1, Ordering::SeqCst) + 1;
        let every = self.state.delay_every.load(Ordering::SeqCst);
        if every != 0 && seen.is_multiple_of(every) {
            let micros = self.state.delay_micros.load(Ordering::SeqCst);
            return SyncFault::Delay(Duration::from_micros(micros));
        }
        SyncFault::None
    }

    /// A disk says that a sync has begun to stand still.
    pub fn sync_waits(&self) {
        self.state.waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// A disk says that a sync that stood still goes on, or was given up.
    pub fn sync_goes_on(&self) {
        let before = self.state.waiting.fetch_sub(1, Ordering::SeqCst);
        assert!(0 < before, "only a sync that waits can go on");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_write_is_hit_and_no_other() {
        let hook = FaultHook::new();
        hook.short_write(2, 7, 28);
        assert_eq!(hook.before_write(), WriteFault::None);
        assert_eq!(hook.before_write(), WriteFault::Short { bytes: 7, errno: 28 });
        assert_eq!(hook.before_write(), WriteFault::None);
    }

    #[test]
    fn syncs_are_held_failed_and_delayed() {
        let hook = FaultHook::new();
        hook.hold_syncs();
        assert_eq!(hook.before_sync(), SyncFault::Hold);
        hook.fail_sync(1, 5);
        assert_eq!(hook.before_sync(), SyncFault::Fail(5), "a failure goes before holding");
        hook.release_syncs();
        hook.delay_syncs(2, Duration::from_millis(3));
        assert_eq!(hook.before_sync(), SyncFault::None);
        assert_eq!(hook.before_sync(), SyncFault::Delay(Duration::from_millis(3)));
        assert_eq!(hook.before_sync(), SyncFault::None);
    }
}
