//! Which logs still need which records: their files were not synced since.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use smallvec::SmallVec;

use crate::units::Offset;

/// A log with so many bytes is synced whatever room the journal has. Much more at a time would keep
/// the device from the next records for too long.
const SYNC_BYTES: u64 = 512 << 10;

/// From this record on, up to this offset, only the journal has the log's data for sure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    sequence: u64,
    end: Offset,
}

#[derive(Debug, Default)]
struct Holder {
    /// Oldest first: one of what a sync under way covers, if one is, one of what came since, and
    /// the newest entry on its own, which may not be in the files yet.
    marks: SmallVec<[Mark; 4]>,
    /// How many of them the sync under way covers.
    covered: usize,
    is_syncing: bool,
    /// Bytes since the last sync was asked for.
    bytes: u64,
    /// Its files can't be synced: its records are kept until the next start.
    is_pinned: bool,
}

/// All logs that need records.
#[derive(Debug, Default)]
pub(super) struct Holders {
    by_owner: HashMap<u32, Holder>,
    /// First record that each needs, and whether a sync is worth asking for.
    order: BTreeSet<(u64, u32)>,
    /// Logs that have a sync's worth of bytes; those that are gone or synced meanwhile count not.
    heavy: VecDeque<u32>,
    /// Who stands there: everyone once.
    listed: HashSet<u32>,
    syncing: usize,
}

impl Holders {
    /// A record has so many bytes of `owner`, up to `end`.
    pub fn note(&mut self, owner: u32, sequence: u64, (end, bytes): (Offset, u64)) {
        let holder = self.by_owner.entry(owner).or_default();
        holder.bytes += bytes;
        if SYNC_BYTES <= holder.bytes && self.listed.insert(owner) {
            self.heavy.push_back(owner);
        }
        if holder.marks.is_empty() {
            self.order.insert((sequence, owner));
        }
        holder.marks.push(Mark { sequence, end });
        if holder.covered + 2 < holder.marks.len() {
            let later = holder.marks.remove(holder.covered + 1);
            holder.marks[holder.covered].end = later.end;
        }
    }

    /// What the owner has beyond `end` failed, and is not to be kept.
    pub fn cut(&mut self, owner: u32, end: Offset) {
        let Some(holder) = self.by_owner.get_mut(&owner) else { return };
        for mark in &mut holder.marks {
            mark.end = mark.end.min(end);
        }
    }

    /// Everything below `end` is durable in the files of `owner`.
    pub fn settled(&mut self, owner: u32, end: Offset) {
        let Some(holder) = self.by_owner.get_mut(&owner) else { return };
        let before = holder.marks.first().expect("a holder needs something").sequence;
        holder.marks.retain(|mark| end < mark.end);
        match holder.marks.first() {
            Some(first) if first.sequence == before => {}
            Some(first) => {
                holder.covered = 0;
                self.order.remove(&(before, owner));
                self.order.insert((first.sequence, owner));
            }
            None => {
                self.order.remove(&(before, owner));
                self.forget(owner);
            }
        }
    }

    /// The log needs no record any more.
    pub fn forget(&mut self, owner: u32) {
        let Some(holder) = self.by_owner.remove(&owner) else { return };
        self.syncing -= usize::from(holder.is_syncing);
        if let Some(first) = holder.marks.first() {
            self.order.remove(&(first.sequence, owner));
        }
    }

    /// First record that anyone needs.
    pub fn first(&self) -> Option<u64> {
        self.order.first().map(|(sequence, _)| *sequence)
    }

    pub fn is_empty(&self) -> bool {
        self.by_owner.is_empty()
    }

    pub fn contains(&self, owner: u32) -> bool {
        self.by_owner.contains_key(&owner)
    }

    /// How many syncs are under way.
    pub fn syncing(&self) -> usize {
        self.syncing
    }

    /// The log that needs the oldest record, among those of which no sync is under way.
    pub fn oldest(&self) -> Option<u32> {
        let idle = |owner: &u32| {
            let holder = &self.by_owner[owner];
            !holder.is_syncing && !holder.is_pinned
        };
        // Those in front of it are being synced: they are few.
        self.order.iter().map(|(_, owner)| *owner).find(idle)
    }

    /// The log that has had a sync's worth of bytes for the longest time.
    pub fn heaviest(&mut self) -> Option<u32> {
        while let Some(owner) = self.heavy.front() {
            let holder = self.by_owner.get(owner);
            let is_heavy = holder.is_some_and(|it| SYNC_BYTES <= it.bytes && !it.is_pinned);
            match holder.is_some_and(|it| it.is_syncing) {
                _ if !is_heavy => {
                    self.listed.remove(owner);
                    self.heavy.pop_front();
                }
                true => return None,
                false => return Some(*owner),
            }
        }
        None
    }

    /// A sync of the owner's files is asked for.
    pub fn sync_begins(&mut self, owner: u32) {
        let holder = self.by_owner.get_mut(&owner).expect("it needs a record");
        assert!(!holder.is_syncing, "one sync at a time");
        holder.bytes = 0;
        holder.is_syncing = true;
        self.syncing += 1;
        if let Some((_, [first, .., last])) = holder.marks.split_last() {
            let newest = *holder.marks.last().expect("there are some");
            let covered = Mark { end: last.end, ..*first };
            holder.marks = SmallVec::from_slice(&[covered, newest]);
        }
        holder.covered = holder.marks.len() - 1;
    }

    /// It is over, however it ended.
    pub fn sync_ended(&mut self, owner: u32, can_sync: bool) {
        let Some(holder) = self.by_owner.get_mut(&owner) else { return };
        self.syncing -= usize::from(std::mem::take(&mut holder.is_syncing));
        holder.covered = 0;
        holder.is_pinned = !can_sync;
    }

    pub fn is_syncing(&self, owner: u32) -> bool {
        self.by_owner.get(&owner).is_some_and(|holder| holder.is_syncing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_needs_its_records_until_its_files_are_synced() {
        let mut holders = Holders::default();
        holders.note(1, 10, (Offset(5), 1));
        holders.note(2, 11, (Offset(50), 1));
        holders.note(1, 12, (Offset(9), 1));
        assert_eq!((holders.first(), holders.oldest()), (Some(10), Some(1)));
        holders.settled(1, Offset(4));
        assert_eq!(holders.first(), Some(10));
        holders.settled(1, Offset(8));
        assert_eq!(holders.first(), Some(11), "the newest entry stands alone");
        holders.sync_begins(1);
        assert_eq!((holders.oldest(), holders.syncing()), (Some(2), 1));
        holders.note(1, 13, (Offset(12), 1));
        holders.settled(1, Offset(9));
        assert_eq!(holders.first(), Some(11), "what came later has a mark of its own");
        holders.sync_ended(1, true);
        holders.settled(2, Offset(50));
        assert_eq!((holders.first(), holders.oldest()), (Some(13), Some(1)));
        holders.settled(1, Offset(12));
        assert!(holders.is_empty() && holders.first().is_none());
        assert_eq!(holders.syncing(), 0);
    }

    #[test]
    fn marks_stay_few() {
        let mut holders = Holders::default();
        for sequence in 0..1000 {
            holders.note(1, sequence, (Offset(sequence + 1), 1));
            if sequence % 10 == 0 {
                holders.sync_begins(1);
                holders.sync_ended(1, true);
            }
        }
        assert!(holders.by_owner[&1].marks.len() <= 3);
        assert_eq!(holders.first(), Some(0), "no sync has covered anything");
        holders.settled(1, Offset(1000));
        assert!(holders.is_empty());
    }

    #[test]
    fn what_cannot_be_synced_is_not_asked_again() {
        let mut holders = Holders::default();
        holders.note(1, 1, (Offset(1), 1));
        holders.note(2, 2, (Offset(1), 1));
        holders.sync_begins(1);
        holders.sync_ended(1, false);
        assert_eq!((holders.oldest(), holders.first()), (Some(2), Some(1)));
        holders.forget(1);
        assert_eq!(holders.first(), Some(2));
    }

    #[test]
    fn many_bytes_are_synced_early() {
        let mut holders = Holders::default();
        holders.note(1, 1, (Offset(1), SYNC_BYTES - 1));
        assert_eq!(holders.heaviest(), None);
        holders.note(2, 2, (Offset(1), SYNC_BYTES));
        holders.note(1, 3, (Offset(2), 1));
        assert_eq!(holders.heaviest(), Some(2));
        holders.sync_begins(2);
        assert_eq!(holders.heaviest(), Some(1));
        holders.forget(1);
        assert_eq!(holders.heaviest(), None);
    }

    #[test]
    fn heavy_logs_are_listed_once() {
        let mut holders = Holders::default();
        for sequence in 0..100 {
            holders.note(1, sequence, (Offset(sequence + 1), SYNC_BYTES));
            // As above an eighth, where nobody asks for the heaviest.
            holders.sync_begins(1);
            holders.sync_ended(1, true);
            if sequence % 7 == 0 {
                holders.forget(1);
            }
        }
        assert_eq!(holders.heavy.len(), 1);
    }
}
