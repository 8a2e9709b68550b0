//! Which sealed segments are open, and how much heap their indexes take: a least-recently-used
//! list for the whole shard.
//!
//! A sealed segment costs a partition a few dozen bytes until somebody reads it; then its index is
//! loaded and its file opened. Beyond the limits the segments that were read longest ago are
//! forgotten again.

use std::collections::{BTreeMap, HashMap};

use crate::units::{ByteCount, Offset};

/// A log's number and a segment's base offset.
type Key = (u32, Offset);

/// The list.
pub struct SealedFiles {
    bytes_max: ByteCount,
    files_max: usize,
    bytes: u64,
    entries: HashMap<Key, Entry>,
    /// By the time of the last use; the first is the victim.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
}

struct Entry {
    bytes: u64,
    used: u64,
}

impl SealedFiles {
    /// An empty list with its limits.
    pub fn new(bytes_max: ByteCount, files_max: usize) -> SealedFiles {
        SealedFiles {
            bytes_max,
            files_max,
            bytes: 0,
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
        }
    }

    /// A segment is open, and its indexes take `bytes` of heap.
    pub fn note(&mut self, number: u32, segment: Offset, bytes: ByteCount) {
        if let Some(entry) = self.entries.get_mut(&(number, segment)) {
            self.bytes = self.bytes - entry.bytes + bytes.0;
            entry.bytes = bytes.0;
            return;
        }
        self.uses += 1;
        self.bytes += bytes.0;
        self.entries.insert((number, segment), Entry { bytes: bytes.0, used: self.uses });
        self.by_use.insert(self.uses, (number, segment));
    }

    /// A segment is read; nothing happens when it isn't in the list (an active one).
    pub fn touch(&mut self, number: u32, segment: Offset) {
        let Some(entry) = self.entries.get_mut(&(number, segment)) else { return };
        self.by_use.remove(&entry.used);
        self.uses += 1;
        entry.used = self.uses;
        self.by_use.insert(self.uses, (number, segment));
    }

    /// Takes the segments out of the list that must go so that the limits hold.
    pub fn over_limit(&mut self) -> Vec<Key> {
        let mut victims = Vec::new();
        while self.files_max < self.entries.len() || self.bytes_max.0 < self.bytes {
            // The one just loaded stays, however large: its reader is about to use it.
            if self.entries.len() <= 1 {
                break;
            }
            let Some((_, key)) = self.by_use.pop_first() else { break };
            let entry = self.entries.remove(&key).expect("both maps hold the same keys");
            self.bytes -= entry.bytes;
            victims.push(key);
        }
        victims
    }

    /// A log is gone.
    pub fn forget(&mut self, number: u32) {
        self.forget_if(|(log, _)| log == number);
    }

    /// A log begins at `first` now: the segments before it are deleted.
    pub fn forget_before(&mut self, number: u32, first: Offset) {
        self.forget_if(|(log, segment)| log == number && segment < first);
    }

    /// The segments of a range were replaced by one that nobody has read.
    pub fn forget_range(&mut self, number: u32, (from, to): (Offset, Offset)) {
        self.forget_if(|(log, segment)| log == number && from <= segment && segment < to);
    }

    fn forget_if(&mut self, is_gone: impl Fn(Key) -> bool) {
        let bytes = &mut self.bytes;
        self.entries.retain(|key, entry| {
            let is_gone = is_gone(*key);
            if is_gone {
                *bytes -= entry.bytes;
            }
            !is_gone
        });
        self.by_use.retain(|_, key| !is_gone(*key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_segment_read_longest_ago_goes_first() {
        let mut sealed = SealedFiles::new(ByteCount(100), 2);
        sealed.note(1, Offset(0), ByteCount(10));
        sealed.note(1, Offset(5), ByteCount(10));
        sealed.touch(1, Offset(0));
        sealed.note(2, Offset(0), ByteCount(10));
        assert_eq!(sealed.over_limit(), vec![(1, Offset(5))]);
        sealed.note(3, Offset(0), ByteCount(95));
        assert_eq!(sealed.over_limit(), vec![(1, Offset(0)), (2, Offset(0))]);
        sealed.forget(3);
        assert_eq!(sealed.bytes, 0);
        sealed.note(4, Offset(0), ByteCount(10));
        sealed.note(4, Offset(7), ByteCount(20));
        sealed.forget_before(4, Offset(7));
        assert_eq!((sealed.bytes, sealed.entries.len(), sealed.by_use.len()), (20, 1, 1));
    }

    #[test]
    fn what_is_loaded_later_counts_as_well() {
        let mut sealed = SealedFiles::new(ByteCount(100), 9);
        sealed.note(1, Offset(0), ByteCount(0));
        sealed.note(1, Offset(5), ByteCount(60));
        sealed.note(1, Offset(0), ByteCount(60));
        assert_eq!(sealed.over_limit(), vec![(1, Offset(0))]);
        assert_eq!(sealed.bytes, 60);
    }
}
