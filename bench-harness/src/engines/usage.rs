//! What a server's process takes, read from `/proc`; and a thread that looks at such things, so
//! that nobody who measures latencies has to.

use std::fs;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::experiments::measure::u64_of;
use crate::experiments::{Doing, Failure};

/// What the kernel counts process times in (`sysconf(_SC_CLK_TCK)`, 100 on every Linux).
const TICK: Duration = Duration::from_millis(10);

/// What a process takes at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// When it was read.
    pub at: Instant,
    /// CPU time of all its threads so far, kernel workers included, in steps of 10 ms.
    pub cpu: Duration,
    /// Memory that is resident (`VmRSS`), page cache not included.
    pub memory_bytes: u64,
    /// Threads, kernel workers included.
    pub threads: u64,
    /// Open files, sockets and rings.
    pub descriptors: u64,
}

impl Usage {
    /// Of a process that runs; `None` when it has ended, waited for or not.
    pub fn of(pid: Pid) -> Option<Usage> {
        let folder = format!("/proc/{}", pid.as_raw_nonzero());
        let stat = fs::read_to_string(format!("{folder}/stat")).ok()?;
        let status = fs::read_to_string(format!("{folder}/status")).ok()?;
        let (cpu, threads) = times(&stat)?;
        let memory_bytes = resident(&status)?;
        let descriptors = u64_of(fs::read_dir(format!("{folder}/fd")).ok()?.count());
        Some(Usage { at: Instant::now(), cpu, memory_bytes, threads, descriptors })
    }
}

/// CPU time and threads of a `/proc/PID/stat`; `None` for a process that has ended. The name in it
/// may hold anything, so fields count from its closing parenthesis.
fn times(stat: &str) -> Option<(Duration, u64)> {
    const USER: usize = 11;
    const THREADS: usize = 17;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
    if ["Z", "X"].contains(fields.first()?) {
        return None;
    }
    let ticks = |at: usize| fields.get(at)?.parse::<u32>().ok();
    Some((TICK * (ticks(USER)? + ticks(USER + 1)?), fields.get(THREADS)?.parse().ok()?))
}

/// `VmRSS` of a `/proc/PID/status`, in bytes.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Looks at something again and again, on a thread of its own, until it is dropped.
pub struct Watcher<T> {
    stop: Option<mpsc::Sender<()>>,
    samples: mpsc::Receiver<T>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Watcher<T> {
    /// Begins at once; ends by itself when there is nothing to see any more.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub fn start(
        every: Duration,
        look: impl Fn() -> Option<T> + Send + 'static,
    ) -> Result<Watcher<T>, Failure> {
        let (stop, stopped) = mpsc::channel::<()>();
        let (sender, samples) = mpsc::channel();
        let work = move || {
            while let Some(seen) = look() {
                let is_over = sender.send(seen).is_err()
                    || stopped.recv_timeout(every) != Err(mpsc::RecvTimeoutError::Timeout);
                if is_over {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("usage".to_owned()).spawn(work);
        let thread = thread.doing("start a thread that watches")?;
        Ok(Watcher { stop: Some(stop), samples, thread: Some(thread) })
    }

    /// What was seen since it was asked last; `None` when that is nothing, and no more will come.
    pub fn read(&self) -> Option<Vec<T>> {
        // In this order: what it saw last is not to be missed.
        let is_over = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let read: Vec<T> = self.samples.try_iter().collect();
        (!is_over || !read.is_empty()).then_some(read)
    }
}

impl<T> Drop for Watcher<T> {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It doesn't panic, and if it did, there would be nothing to do about it.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn fields_are_read_behind_any_name() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 7 0 100";
        assert_eq!(times(stat), Some((Duration::from_secs(3), 7)));
        assert_eq!(times(&stat.replace(" S ", " Z ")), None);
        assert_eq!(times("42 (a) S 1"), None);
        assert_eq!(resident("Name:\ta\nVmRSS:\t    1234 kB\n"), Some(1234 << 10));
        assert_eq!(resident("Name:\ta\n"), None);
    }

    #[test]
    fn this_process_is_there_and_an_ended_one_is_not() {
        let usage = Usage::of(rustix::process::getpid()).expect("it runs");
        assert!(0 < usage.memory_bytes && 0 < usage.threads && 2 < usage.descriptors);
        let mut child = Command::new("true").spawn().expect("it starts");
        let pid = Pid::from_child(&child);
        child.wait().expect("it ends");
        assert_eq!(Usage::of(pid), None);
    }

    #[test]
    fn a_watcher_sees_the_end() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("it starts");
        let pid = Pid::from_child(&child);
        let watcher = Watcher::start(Duration::from_millis(1), move || Usage::of(pid));
        let watcher = watcher.expect("a thread");
        let mut seen = 0;
        while seen < 3 {
            seen += watcher.read().expect("it runs").len();
            std::thread::yield_now();
        }
        child.kill().expect("it runs");
        // Not waited for: a zombie has ended, too.
        while watcher.read().is_some() {
            std::thread::yield_now();
        }
        child.wait().expect("it ends");
    }
}
