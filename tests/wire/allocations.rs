//! The system allocator, counting per thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

pub struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn signed(size: usize) -> i64 {
    i64::try_from(size).expect("no allocation is that large")
}

fn grown(by: i64) {
    COUNT.set(COUNT.get() + 1);
    LIVE.set(LIVE.get() + by);
    PEAK.set(PEAK.get().max(LIVE.get()));
}

// SAFETY: every call is passed on to the system's allocator as it came; counting in thread-local
// cells without destructors allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(signed(layout.size()));
        // SAFETY: the caller keeps `GlobalAlloc::alloc`'s contract, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(signed(layout.size()));
        // SAFETY: the caller keeps `GlobalAlloc::alloc_zeroed`'s contract, which is the system's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - signed(layout.size()));
        // SAFETY: `memory` came from the system's allocator, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grown(signed(size) - signed(layout.size()));
        // SAFETY: `memory` came from the system's allocator, with this layout.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// What a call cost on this thread.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Allocations and reallocations.
    pub count: u64,
    /// Most bytes above what was allocated before.
    pub peak: i64,
}

/// Runs `call` and says what it allocated.
pub fn measure<T>(call: impl FnOnce() -> T) -> (T, Cost) {
    let (count, live) = (COUNT.get(), LIVE.get());
    PEAK.set(live);
    let result = call();
    (result, Cost { count: COUNT.get() - count, peak: PEAK.get() - live })
}

#[test]
fn allocations_are_counted() {
    let (bytes, cost) = measure(|| vec![0_u8; 5_000]);
    assert_eq!((bytes.len(), cost.count, cost.peak), (5_000, 1, 5_000));
}
