//! Files mapped into memory. They must keep their length as long as they are mapped: the harness
//! maps only files of its own.

use std::fs::File;
use std::io;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A whole file in memory.
pub struct Mapping {
    memory: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process and not to a thread; shared access is reading only,
// and writing needs `&mut`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// To be read, by the kernel too.
    pub fn read_only(file: &File) -> io::Result<Mapping> {
        Mapping::new(file, ProtFlags::READ)
    }

    /// To be written with [`Mapping::store`]; what is stored is the file's content at once.
    pub fn writable(file: &File) -> io::Result<Mapping> {
        Mapping::new(file, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn new(file: &File, protection: ProtFlags) -> io::Result<Mapping> {
        let bytes = file.metadata()?.len();
        let bytes = usize::try_from(bytes).expect("usize is 64 bits");
        // SAFETY: a new mapping at a place of the kernel's choice overlaps nothing.
        let memory =
            unsafe { mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }?;
        Ok(Mapping { memory: memory.cast(), bytes })
    }

    /// Where a range lies.
    ///
    /// # Panics
    /// When it isn't inside the file.
    pub fn pointer(&self, at: u64, len: u32) -> *const u8 {
        let at = usize::try_from(at).expect("usize is 64 bits");
        let len = usize::try_from(len).expect("usize is 64 bits");
        assert!(at <= self.bytes);
        assert!(len <= self.bytes - at);
        self.memory.cast_const().wrapping_add(at)
    }

    /// Writes `content` at a position in bytes.
    ///
    /// # Panics
    /// When that isn't inside the file.
    pub fn store(&mut self, at: usize, content: &[u8]) {
        assert!(at <= self.bytes);
        assert!(content.len() <= self.bytes - at);
        let to = self.memory.wrapping_add(at);
        // SAFETY: `to` and the `content.len()` bytes behind it are inside the mapping, which `self`
        // owns alone; nobody else maps the file, so they don't overlap `content`.
        unsafe { ptr::copy_nonoverlapping(content.as_ptr(), to, content.len()) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the one that was mapped. Operations of a ring hold the mapping by
        // reference count, and those that are never reaped are leaked with it.
        let unmapped = unsafe { munmap(self.memory.cast(), self.bytes) };
        unmapped.expect("the range is the one that was mapped");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn what_is_stored_is_in_the_file() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(10).expect("room");
        let mut mapping = Mapping::writable(&file).expect("a mapping");
        mapping.store(3, b"abc");
        let mut bytes = [0; 10];
        file.read_exact_at(&mut bytes, 0).expect("its bytes");
        assert_eq!(&bytes, b"\0\0\0abc\0\0\0\0");
    }
}
