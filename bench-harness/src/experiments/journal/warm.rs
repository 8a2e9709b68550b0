//! Memory that a run's files may take.
//!
//! A virtual machine's host takes freed memory back, and the first touch of such a page costs ten
//! times what a copy to it costs, whoever makes it. So as much as the run will write is touched
//! before, and given back just ahead of the files.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::experiments::measure;

const PIECE_BYTES: u32 = 1 << 20;
/// Free memory that the files find ahead of them.
const AHEAD_BYTES: u64 = 256 << 20;
/// Never touches more than this: machines are small.
const BYTES_MAX: u64 = 4 << 30;
const LOOK_EVERY: Duration = Duration::from_millis(20);

struct Shared {
    used: AtomicU64,
    is_over: AtomicBool,
    cpu: Mutex<Duration>,
}

/// Touched memory, and the thread that gives it back.
pub struct Warm {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Warm {
    /// Touches memory for `bytes` of files.
    pub fn touch(bytes: u64) -> Warm {
        let total = (bytes + AHEAD_BYTES).min(BYTES_MAX);
        let piece = usize::try_from(PIECE_BYTES).expect("usize is 64 bits");
        let count = total / u64::from(PIECE_BYTES);
        let mut pieces: Vec<Vec<u8>> = (0..count).map(|_| vec![1; piece]).collect();
        let shared = Shared {
            used: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            cpu: Mutex::default(),
        };
        let shared = Arc::new(shared);
        let its = shared.clone();
        let thread = thread::spawn(move || {
            while !its.is_over.load(Ordering::Relaxed) {
                let used = its.used.load(Ordering::Relaxed) + AHEAD_BYTES;
                let left = total.saturating_sub(used) / u64::from(PIECE_BYTES);
                pieces.truncate(usize::try_from(left).expect("usize is 64 bits"));
                *its.cpu.lock().expect("nobody panics with it") = measure::thread_cpu();
                thread::sleep(LOOK_EVERY);
            }
        });
        Warm { shared, thread: Some(thread) }
    }

    /// The files hold so many bytes by now.
    pub fn used(&self, bytes: u64) {
        self.shared.used.store(bytes, Ordering::Relaxed);
    }

    /// CPU time that giving back took so far.
    pub fn cpu(&self) -> Duration {
        *self.shared.cpu.lock().expect("nobody panics with it")
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}
