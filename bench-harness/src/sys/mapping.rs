//! Files mapped into memory. They must keep their length as long as they are mapped: the harness
//! maps only files of its own.

use std::fs::File;
use std::io;
use std::ptr;

use memmap2::{MmapOptions, MmapRaw};

/// A whole file in memory, as a place and a length: what is stored there shows in nobody's slices.
pub struct Mapping {
    memory: MmapRaw,
}

impl Mapping {
    /// To be read, by the kernel too.
    pub fn read_only(file: &File) -> io::Result<Mapping> {
        MmapOptions::new().map_raw_read_only(file).map(|memory| Mapping { memory })
    }

    /// To be written with [`Mapping::store`]; what is stored is the file's content at once.
    pub fn writable(file: &File) -> io::Result<Mapping> {
        MmapOptions::new().map_raw(file).map(|memory| Mapping { memory })
    }

    /// Where a range lies.
    ///
    /// # Panics
    /// When it isn't inside the file.
    pub fn pointer(&self, at: u64, len: u32) -> *const u8 {
        let at = usize::try_from(at).expect("usize is 64 bits");
        let len = usize::try_from(len).expect("usize is 64 bits");
        assert!(at <= self.memory.len());
        assert!(len <= self.memory.len() - at);
        self.memory.as_ptr().wrapping_add(at)
    }

    /// Writes `content` at a position in bytes.
    ///
    /// # Panics
    /// When that isn't inside the file.
    pub fn store(&mut self, at: usize, content: &[u8]) {
        assert!(at <= self.memory.len());
        assert!(content.len() <= self.memory.len() - at);
        let to = self.memory.as_mut_ptr().wrapping_add(at);
        // SAFETY: `to` and the `content.len()` bytes behind it are inside the mapping, which `self`
        // owns alone; nobody else maps the file, so they don't overlap `content`.
        unsafe { ptr::copy_nonoverlapping(content.as_ptr(), to, content.len()) };
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
