//! Bytes with holes, as a file has them.

use std::collections::BTreeMap;

use crate::units::{u64_of, usize_of};

const PAGE_BYTES: usize = 4096;

/// A file's bytes; pages that were never written take no memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sparse {
    length: u64,
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
}

impl Sparse {
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Bytes of memory that the pages take, as a file system counts blocks.
    pub(crate) fn allocated(&self) -> u64 {
        u64_of(self.pages.len() * PAGE_BYTES)
    }

    /// How many bytes from `at` on can be written when `free` bytes of pages may still be made.
    pub(crate) fn bytes_that_fit(&self, at: u64, free: u64) -> u64 {
        let (mut page, _) = split(at);
        let mut free_pages = free / u64_of(PAGE_BYTES);
        let last = self.pages.last_key_value().map_or(0, |(page, _)| *page);
        while page <= last {
            if !self.pages.contains_key(&page) {
                if free_pages == 0 {
                    break;
                }
                free_pages -= 1;
            }
            page += 1;
        }
        let end = if last < page { page + free_pages } else { page };
        (end * u64_of(PAGE_BYTES)).saturating_sub(at)
    }

    /// Cuts or extends. What is cut reads as zeros when the file grows again.
    pub(crate) fn resize(&mut self, length: u64) {
        if length < self.length {
            let (page, within) = split(length);
            if within == 0 {
                self.pages.split_off(&page);
            } else {
                self.pages.split_off(&(page + 1));
                if let Some(bytes) = self.pages.get_mut(&page) {
                    bytes[within..].fill(0);
                }
            }
        }
        self.length = length;
    }

    pub(crate) fn write(&mut self, at: u64, mut bytes: &[u8]) {
        let mut position = at;
        while !bytes.is_empty() {
            let (page, within) = split(position);
            let count = bytes.len().min(PAGE_BYTES - within);
            let stored = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE_BYTES]));
            stored[within..within + count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            position += u64_of(count);
        }
        self.length = self.length.max(position);
    }

    /// Fills `bytes` from `at` on; false when the file ends before that.
    pub(crate) fn read(&self, at: u64, bytes: &mut [u8]) -> bool {
        let end = at + u64_of(bytes.len());
        if self.length < end {
            return false;
        }
        let mut done = 0;
        while done < bytes.len() {
            let (page, within) = split(at + u64_of(done));
            let count = (bytes.len() - done).min(PAGE_BYTES - within);
            let target = &mut bytes[done..done + count];
            match self.pages.get(&page) {
                Some(stored) => target.copy_from_slice(&stored[within..within + count]),
                None => target.fill(0),
            }
            done += count;
        }
        true
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize_of(self.length)];
        assert!(self.read(0, &mut bytes), "a file has all its bytes");
        bytes
    }
}

fn split(position: u64) -> (u64, usize) {
    (position / u64_of(PAGE_BYTES), usize_of(position % u64_of(PAGE_BYTES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_behaves_like_a_file() {
        let mut sparse = Sparse::default();
        sparse.write(4090, b"0123456789");
        assert_eq!((sparse.length(), sparse.allocated()), (4100, 8192));
        let mut bytes = [9; 12];
        assert!(sparse.read(4088, &mut bytes));
        assert_eq!(&bytes, b"\0\x000123456789");
        assert!(!sparse.read(4089, &mut bytes), "beyond the end");
        sparse.resize(4092);
        sparse.resize(10_000);
        assert_eq!(sparse.allocated(), 4096);
        assert!(sparse.read(4088, &mut bytes));
        assert_eq!(&bytes, b"\0\x0001\0\0\0\0\0\0\0\0");
        assert_eq!(sparse.bytes_that_fit(4090, 0), 6, "page 0 is there, page 1 was cut");
        assert_eq!(sparse.bytes_that_fit(4096, 0), 0);
        assert_eq!(sparse.bytes_that_fit(4090, 8191), 6 + 4096);
        sparse.resize(0);
        assert_eq!(sparse.to_vec(), b"");
    }
}
