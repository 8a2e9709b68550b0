//! The system's allocator, counting for the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);
static LARGEST: AtomicU64 = AtomicU64::new(0);

/// Allocations and reallocations so far, of all threads.
pub fn allocations() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Bytes of the largest allocation since the last call, of all threads.
pub fn take_largest() -> u64 {
    LARGEST.swap(0, Ordering::Relaxed)
}

fn counted(bytes: usize) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    LARGEST.fetch_max(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
}

// SAFETY: every call is passed on to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        counted(layout.size());
        // SAFETY: the caller keeps `GlobalAlloc::alloc`'s contract, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        counted(layout.size());
        // SAFETY: the caller keeps `GlobalAlloc::alloc_zeroed`'s contract, which is the system's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from the system's allocator, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        counted(size);
        // SAFETY: `memory` came from the system's allocator, with this layout.
        unsafe { System.realloc(memory, layout, size) }
    }
}
