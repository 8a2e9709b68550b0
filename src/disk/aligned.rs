//! Memory for direct I/O: aligned to blocks, and of whole blocks.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::disk::errors;
use crate::disk::plan::DiskError;
use crate::units::{Position, u64_of};

/// What the position, the memory and the length of direct I/O are multiples of. Larger than or
/// equal to the logical block of every disk in use, and a page.
pub const BLOCK_BYTES: usize = 4096;

/// The number of the next buffer: each has its own, for the life of the process.
static NEXT_IDENTITY: AtomicU64 = AtomicU64::new(0);

/// A buffer that begins at a multiple of [`BLOCK_BYTES`] and is some blocks long. It is of a fixed
/// capacity, and neither moves nor grows; `length` says how much of it counts.
///
/// The allocator gives no such alignment without `unsafe`. So a vector longer by one block is
/// taken, and used from its first aligned address on.
pub struct Aligned {
    /// Never resized: `from` would no longer be aligned, and the kernel may have pinned its pages.
    memory: Vec<u8>,
    /// Index of the first aligned byte.
    from: usize,
    /// Bytes from `from` on, a multiple of [`BLOCK_BYTES`].
    capacity: usize,
    /// Bytes that count: a multiple of [`BLOCK_BYTES`], at most `capacity`.
    length: usize,
    /// Given to no other buffer, not even to one at the same address later.
    identity: u64,
    /// The number that a disk knows it by.
    registration: Option<u16>,
}

impl Aligned {
    /// A buffer of at least `capacity_bytes`, rounded up to blocks, and of length 0. All zeros;
    /// pages that are never touched take no memory.
    pub fn new(capacity_bytes: usize) -> Aligned {
        let capacity = capacity_bytes.next_multiple_of(BLOCK_BYTES);
        let memory = vec![0; capacity + BLOCK_BYTES];
        let from = memory.as_ptr().addr().next_multiple_of(BLOCK_BYTES) - memory.as_ptr().addr();
        assert!(from < BLOCK_BYTES);
        let identity = NEXT_IDENTITY.fetch_add(1, Ordering::Relaxed);
        Aligned { memory, from, capacity, length: 0, identity, registration: None }
    }

    /// Bytes that it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes that count.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Sets how many bytes count.
    ///
    /// # Panics
    /// When `length` is no multiple of [`BLOCK_BYTES`], or above the capacity.
    pub fn set_length(&mut self, length: usize) {
        assert!(length.is_multiple_of(BLOCK_BYTES), "direct I/O moves whole blocks: {length}");
        assert!(length <= self.capacity, "{length} of {} bytes", self.capacity);
        self.length = length;
    }

    /// The bytes that count.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.from..self.from + self.length]
    }

    /// All its memory, whatever the length.
    pub fn memory_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..self.from + self.capacity]
    }

    /// The number that the disk it was registered with knows it by.
    pub fn registration(&self) -> Option<u16> {
        self.registration
    }

    /// Noted by the disk that took it in.
    pub(crate) fn set_registration(&mut self, number: Option<u16>) {
        self.registration = number;
    }

    /// Tells it from every other buffer of this process, past ones too.
    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }
}

/// How many of `bytes` are whole blocks.
pub(crate) fn whole_blocks(bytes: u64) -> u64 {
    bytes - bytes % u64_of(BLOCK_BYTES)
}

/// `EINVAL` for a position between blocks, the same on every disk whatever its own blocks are.
pub(crate) fn check_alignment(at: Position) -> Result<(), DiskError> {
    match whole_blocks(at.0) == at.0 {
        true => Ok(()),
        false => Err(errors::classify(Errno::INVAL.raw_os_error())),
    }
}

/// By the bytes that count.
impl PartialEq for Aligned {
    fn eq(&self, other: &Aligned) -> bool {
        self.bytes() == other.bytes()
    }
}

/// Lengths only: the bytes would fill screens.
impl fmt::Debug for Aligned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aligned")
            .field("length", &self.length)
            .field("capacity", &self.capacity)
            .field("registration", &self.registration)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_aligned_zeroed_and_of_whole_blocks() {
        for (asked, capacity) in [(0, 0), (1, 4096), (4096, 4096), (4097, 8192), (1 << 20, 1 << 20)]
        {
            let mut buffer = Aligned::new(asked);
            assert_eq!((buffer.capacity(), buffer.length()), (capacity, 0));
            buffer.set_length(capacity);
            assert_eq!(buffer.bytes(), vec![0; capacity]);
            assert_eq!(buffer.bytes().as_ptr().addr() % BLOCK_BYTES, 0);
            let before = buffer.bytes().as_ptr();
            let mut moved = Box::new(buffer);
            assert_eq!(moved.memory_mut().as_ptr(), before, "its bytes stay where they are");
        }
    }

    #[test]
    fn only_the_bytes_that_count_are_compared() {
        let (mut one, mut two) = (Aligned::new(8192), Aligned::new(4096));
        assert_ne!(one.identity(), two.identity());
        one.set_length(4096);
        two.set_length(4096);
        one.memory_mut()[4096] = 1;
        assert_eq!(one, two);
        one.memory_mut()[4095] = 1;
        assert_ne!(one, two);
    }

    #[test]
    #[should_panic(expected = "whole blocks")]
    fn a_part_of_a_block_is_refused() {
        Aligned::new(8192).set_length(100);
    }

    #[test]
    #[should_panic(expected = "of 4096 bytes")]
    fn a_length_above_the_capacity_is_refused() {
        Aligned::new(4096).set_length(8192);
    }
}
