//! The registered file table: which of the ring's slots holds which file.
//!
//! An entry in the kernel names a slot, not a file, and looks it up when its turn comes. So a slot
//! is given to another file only when no entry under way names it: each such entry is a *pin*.

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
    /// Behind the files' slots stand the scratch slots, one for each plan under way.
    scratches_from: FileSlot,
    scratches_max: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// Entries under way that name the slot.
    pins: u32,
    /// Whether a file has the slot.
    taken: bool,
}

impl FileTable {
    pub(crate) fn new(files_max: u32, scratches_max: u32) -> FileTable {
        FileTable {
            slots: HashMap::new(),
            uses: vec![Use::default(); usize_of(u64::from(files_max))],
            free: (0..files_max).rev().collect(),
            scratches_from: files_max,
            scratches_max,
        }
    }

    /// Gives a file its slot; `None` when all are taken.
    pub(crate) fn reserve(&mut self, file: FileId) -> Option<FileSlot> {
        assert!(!self.slots.contains_key(&file), "a file's number is given once");
        let slot = self.free.pop()?;
        self.use_mut(slot).taken = true;
        self.slots.insert(file, slot);
        Some(slot)
    }

    /// The slot for directories that plan number `index` syncs.
    pub(crate) fn scratch_of(&self, index: usize) -> FileSlot {
        let index = u32::try_from(index).expect("fewer plans than entries of a queue");
        assert!(index < self.scratches_max);
        self.scratches_from + index
    }

    pub(crate) fn slot_of(&self, file: FileId) -> Option<FileSlot> {
        self.slots.get(&file).copied()
    }

    /// Forgets a file. Its slot is free as soon as nothing pins it.
    pub(crate) fn release(&mut self, file: FileId) -> Option<FileSlot> {
        let slot = self.slots.remove(&file)?;
        assert!(self.use_of(slot).taken, "only a taken slot is released");
        self.use_mut(slot).taken = false;
        self.free_if_unused(slot);
        Some(slot)
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
        let mut table = FileTable::new(1, 1);
        let slot = table.reserve(file(1)).expect("one is free");
        table.pin(slot);
        assert_eq!(table.release(file(1)), Some(slot));
        assert_eq!(table.reserve(file(2)), None, "an entry still names it");
        table.unpin(slot);
        assert_eq!(table.reserve(file(2)), Some(slot));
        assert_eq!(table.slot_of(file(1)), None);
    }
}
