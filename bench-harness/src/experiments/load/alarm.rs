//! Waiting for a moment, exact to the kernel's timers and asleep meanwhile.
//!
//! A thread that spins towards its next request keeps its core from the kernel's own threads, which
//! complete direct writes there: on two cores a journal write took a tick of the scheduler, 4 ms,
//! instead of 0.15 ms, as long as the load ran.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::experiments::{Doing, Failure};

/// One timer; one task waits for it at a time.
#[derive(Debug)]
pub struct Alarm {
    timer: AsyncFd<OwnedFd>,
}

impl Alarm {
    /// # Errors
    /// When the process has no descriptor left.
    #[expect(
        deprecated,
        reason = "its successor is for types that may lend a closed descriptor; OwnedFd never does"
    )]
    pub fn new() -> Result<Alarm, Failure> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let made = timerfd_create(TimerfdClockId::Monotonic, flags);
        let timer = made.map_err(std::io::Error::from).and_then(AsyncFd::new);
        Ok(Alarm { timer: timer.doing("make a timer")? })
    }

    /// Gives way to others once at least, so that answers are taken in even when the schedule is
    /// behind.
    pub async fn until(&self, due: Instant) {
        tokio::task::yield_now().await;
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.set(left);
            let mut ready = self.timer.readable().await.expect("a timer can be waited for");
            ready.clear_ready();
        }
    }

    fn set(&self, left: Duration) {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().max(1).into(),
        };
        let once = Itimerspec { it_interval: never, it_value: at };
        // Set anew, it is no longer readable for an earlier time.
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)
            .expect("a span from now on is valid");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_ends_early_and_what_is_past_not_late() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let alarm = Alarm::new().expect("a timer");
            for micros in [0, 1, 300, 2_000, 50] {
                let due = Instant::now() + Duration::from_micros(micros);
                alarm.until(due).await;
                assert!(due <= Instant::now(), "{micros} us");
            }
            alarm.until(Instant::now() - Duration::from_secs(1)).await;
        });
    }
}
