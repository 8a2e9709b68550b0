//! The registered file table: which of the ring's slots holds which file.
//!
//! An entry in the kernel names a slot, not a file, and looks it up when its turn comes. So a slot is
//! given to another file only when no entry under way names it: each such entry is a *pin*.

use std::collections::HashMap;

use crate::disk::FileId;
use crate::units::usize_of;

/// Index of a file in the ring's registered table.
pub(crate) type FileSlot = u32;

#[derive(Debug)]
pub(crate) struct FileTable {
    slots: HashMap<FileId, FileSlot>,
    uses: Vec<Use>,
    /// Slots that nobody uses; the last one is given next.
    free: Vec<FileSlot>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// Entries under way that name the slot.
    pins: u32,
    /// Whether a file or a directory being synced has the slot.
    taken: bool,
}

impl FileTable {
    pub(crate) fn new(files_max: u32) -> FileTable {
        FileTable {
            slots: HashMap::new(),
            uses: vec![Use::default(); usize_of(u64::from(files_max))],
            free: (0..files_max).rev().collect(),
        }
    }

    /// Gives a file its slot; `None` when all are taken.
    pub(crate) fn reserve(&mut self, file: FileId) -> Option<FileSlot> {
        assert!(!self.slots.contains_key(&file), "a file's number is given once");
        let slot = self.scratch()?;
        self.slots.insert(file, slot);
        Some(slot)
    }

    /// A slot for a short time.
    pub(crate) fn scratch(&mut self) -> Option<FileSlot> {
        let slot = self.free.pop()?;
        self.use_mut(slot).taken = true;
        Some(slot)
    }

    pub(crate) fn slot_of(&self, file: FileId) -> Option<FileSlot> {
        self.slots.get(&file).copied()
    }

    /// Forgets a file. Its slot is free as soon as nothing pins it.
    pub(crate) fn release(&mut self, file: FileId) -> Option<FileSlot> {
        let slot = self.slots.remove(&file)?;
        self.release_scratch(slot);
        Some(slot)
    }

    pub(crate) fn release_scratch(&mut self, slot: FileSlot) {
        assert!(self.use_of(slot).taken, "only a taken slot is released");
        self.use_mut(slot).taken = false;
        self.free_if_unused(slot);
    }

    pub(crate) fn pin(&mut self, slot: FileSlot) {
        self.use_mut(slot).pins += 1;
    }

    pub(crate) fn unpin(&mut self, slot: FileSlot) {
        assert!(0 < self.use_of(slot).pins, "only a pinned slot is unpinned");
        self.use_mut(slot).pins -= 1;
        self.free_if_unused(slot);
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    fn free_if_unused(&mut self, slot: FileSlot) {
        let Use { pins, taken } = self.use_of(slot);
        if pins == 0 && !taken {
            self.free.push(slot);
        }
    }

    fn use_of(&self, slot: FileSlot) -> Use {
        self.uses[usize_of(u64::from(slot))]
    }

    fn use_mut(&mut self, slot: FileSlot) -> &mut Use {
        &mut self.uses[usize_of(u64::from(slot))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn file(number: u32) -> FileId {
        FileId { owner: 0, number }
    }

    #[test]
    fn a_pinned_slot_is_not_given_to_another_file() {
        let mut table = FileTable::new(1);
        let slot = table.reserve(file(1)).expect("one is free");
        table.pin(slot);
        assert_eq!(table.release(file(1)), Some(slot));
        assert_eq!(table.reserve(file(2)), None, "an entry still names it");
        table.unpin(slot);
        assert_eq!(table.reserve(file(2)), Some(slot));
        assert_eq!(table.slot_of(file(1)), None);
    }
}
