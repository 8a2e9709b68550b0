//! Which leader epoch begins at which offset (`LeaderEpochFileCache`), kept in the partition's
//! `leader-epoch-checkpoint`.
//!
//! A follower or a consumer that saw another leader finds with it where the two logs part.

use crate::format::checkpoint::{self, CheckpointError, EpochStart};
use crate::units::{LeaderEpoch, Offset};

/// The epochs of one partition; both numbers strictly increase from entry to entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeaderEpochs {
    entries: Vec<EpochStart>,
}

impl LeaderEpochs {
    /// Reads a `leader-epoch-checkpoint`. Entries that contradict a later one are dropped, as if
    /// they had been assigned one after the other.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn from_text(text: &[u8]) -> Result<LeaderEpochs, CheckpointError> {
        let mut epochs = LeaderEpochs::default();
        for entry in checkpoint::parse_epochs(text)? {
            epochs.assign(entry.epoch, entry.start);
        }
        Ok(epochs)
    }

    /// The file's content.
    pub fn to_text(&self) -> String {
        checkpoint::print_epochs(&self.entries)
    }

    /// All entries, oldest first.
    pub fn entries(&self) -> &[EpochStart] {
        &self.entries
    }

    /// The newest epoch and its first offset.
    pub fn latest(&self) -> Option<EpochStart> {
        self.entries.last().copied()
    }

    /// The epoch that `offset` belongs to.
    pub fn epoch_of(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.entries.partition_point(|entry| entry.start <= offset);
        self.entries[..after].last().map(|entry| entry.epoch)
    }

    /// Notes that `epoch` begins at `start`, and says whether that changed anything, so that the
    /// file must be written. Entries that contradict the new one give way. A batch without an
    /// epoch (-1) is no entry.
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        let is_known = self.latest().is_some_and(|it| it.epoch == epoch && it.start <= start);
        if is_known || epoch < LeaderEpoch(0) {
            return false;
        }
        while self.latest().is_some_and(|it| it.epoch >= epoch || it.start >= start) {
            self.entries.pop();
        }
        self.entries.push(EpochStart { epoch, start });
        true
    }

    /// Drops the epochs that begin at `end` or after it; says whether that changed anything.
    pub fn truncate_from_end(&mut self, end: Offset) -> bool {
        let before = self.entries.len();
        self.entries.truncate(self.entries.partition_point(|entry| entry.start < end));
        self.entries.len() != before
    }

    /// Forgets what lies before `start`: the epoch that `start` belongs to now begins there. Says
    /// whether that changed anything.
    pub fn truncate_from_start(&mut self, start: Offset) -> bool {
        let dropped = self.entries.partition_point(|entry| entry.start <= start);
        let Some(last) = dropped.checked_sub(1) else { return false };
        let is_same = last == 0 && self.entries[0].start == start;
        self.entries[last].start = start;
        self.entries.drain(..last);
        !is_same
    }

    /// Where the log of `epoch` ended: the largest known epoch at or below it, and the first offset
    /// of the one after; (-1, none) when nothing is known. `log_end` ends the newest epoch.
    pub fn end_offset_for(
        &self,
        epoch: LeaderEpoch,
        log_end: Offset,
    ) -> (LeaderEpoch, Option<Offset>) {
        if epoch < LeaderEpoch(0) {
            return (LeaderEpoch::NONE, None);
        }
        if self.latest().is_some_and(|it| it.epoch == epoch) {
            return (epoch, Some(log_end));
        }
        let after = self.entries.partition_point(|entry| entry.epoch <= epoch);
        match (self.entries[..after].last(), self.entries.get(after)) {
            (_, None) => (LeaderEpoch::NONE, None),
            (None, Some(higher)) => (epoch, Some(higher.start)),
            (Some(floor), Some(higher)) => (floor.epoch, Some(higher.start)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(entries: &[(i32, u64)]) -> LeaderEpochs {
        let entries = entries
            .iter()
            .map(|(epoch, start)| EpochStart { epoch: LeaderEpoch(*epoch), start: Offset(*start) });
        LeaderEpochs { entries: entries.collect() }
    }

    fn assigned(before: &[(i32, u64)], epoch: i32, start: u64) -> (LeaderEpochs, bool) {
        let mut it = epochs(before);
        let is_changed = it.assign(LeaderEpoch(epoch), Offset(start));
        (it, is_changed)
    }

    #[test]
    fn an_epoch_is_entered_once_at_its_first_offset() {
        assert_eq!(assigned(&[], 0, 0), (epochs(&[(0, 0)]), true));
        assert_eq!(assigned(&[(0, 0)], 0, 5), (epochs(&[(0, 0)]), false));
        assert_eq!(assigned(&[(0, 0)], 2, 5), (epochs(&[(0, 0), (2, 5)]), true));
        assert_eq!(assigned(&[(0, 0)], -1, 5), (epochs(&[(0, 0)]), false));
        assert_eq!(assigned(&[], -1, 0), (epochs(&[]), false));
    }

    #[test]
    fn contradicting_entries_give_way_to_the_new_one() {
        // An idle topic after two restarts: the entry with the same start is replaced.
        assert_eq!(assigned(&[(0, 0), (2, 9)], 4, 9), (epochs(&[(0, 0), (4, 9)]), true));
        assert_eq!(assigned(&[(0, 0)], 2, 0), (epochs(&[(2, 0)]), true));
        // The same epoch from an earlier offset, an older epoch from a later one.
        assert_eq!(assigned(&[(0, 0), (2, 9)], 2, 5), (epochs(&[(0, 0), (2, 5)]), true));
        assert_eq!(assigned(&[(0, 0), (2, 9)], 1, 20), (epochs(&[(0, 0), (1, 20)]), true));
        assert_eq!(assigned(&[(3, 4), (5, 9)], 1, 2), (epochs(&[(1, 2)]), true));
    }

    #[test]
    fn the_end_is_cut_at_an_offset() {
        let check = |end, expected: &[(i32, u64)], is_changed| {
            let mut it = epochs(&[(0, 0), (1, 7), (2, 10)]);
            assert_eq!(it.truncate_from_end(Offset(end)), is_changed, "end {end}");
            assert_eq!(it, epochs(expected), "end {end}");
        };
        check(11, &[(0, 0), (1, 7), (2, 10)], false);
        check(10, &[(0, 0), (1, 7)], true);
        check(7, &[(0, 0)], true);
        check(0, &[], true);
    }

    #[test]
    fn the_start_moves_with_the_log_start() {
        let check = |before: &[(i32, u64)], start, after: &[(i32, u64)], is_changed| {
            let mut it = epochs(before);
            assert_eq!(it.truncate_from_start(Offset(start)), is_changed, "start {start}");
            assert_eq!(it, epochs(after), "start {start}");
        };
        check(&[(0, 0), (1, 7), (2, 10)], 5, &[(0, 5), (1, 7), (2, 10)], true);
        check(&[(0, 0), (1, 5), (2, 10)], 5, &[(1, 5), (2, 10)], true);
        check(&[(0, 0), (1, 5), (2, 10)], 99, &[(2, 99)], true);
        check(&[(0, 5)], 5, &[(0, 5)], false);
        check(&[(0, 5)], 4, &[(0, 5)], false);
        check(&[], 4, &[], false);
    }

    #[test]
    fn ends_of_epochs() {
        let check = |requested, epoch, end: Option<u64>| {
            let found = epochs(&[(2, 6), (3, 10), (5, 12)])
                .end_offset_for(LeaderEpoch(requested), Offset(20));
            assert_eq!(found, (LeaderEpoch(epoch), end.map(Offset)), "epoch {requested}");
        };
        check(5, 5, Some(20));
        check(4, 3, Some(12));
        check(3, 3, Some(12));
        check(2, 2, Some(10));
        check(1, 1, Some(6));
        check(6, -1, None);
        check(-1, -1, None);
        let nothing = LeaderEpochs::default().end_offset_for(LeaderEpoch(0), Offset(20));
        assert_eq!(nothing, (LeaderEpoch::NONE, None));
    }

    #[test]
    fn the_file_holds_the_entries() {
        let it = epochs(&[(0, 0), (2, 9)]);
        assert_eq!(it.to_text(), "0\n2\n0 0\n2 9\n");
        assert_eq!(LeaderEpochs::from_text(it.to_text().as_bytes()), Ok(it));
        assert_eq!(LeaderEpochs::from_text(b""), Ok(LeaderEpochs::default()));
        let crossed = LeaderEpochs::from_text(b"0\n3\n0 0\n4 9\n2 5\n").expect("readable");
        assert_eq!(crossed, epochs(&[(0, 0), (2, 5)]));
        LeaderEpochs::from_text(b"0\n1\n0 x\n").expect_err("no number");
    }

    #[test]
    fn offsets_belong_to_the_epoch_that_began_before_them() {
        let it = epochs(&[(2, 6), (3, 10)]);
        assert_eq!(it.epoch_of(Offset(5)), None);
        assert_eq!(it.epoch_of(Offset(6)), Some(LeaderEpoch(2)));
        assert_eq!(it.epoch_of(Offset(9)), Some(LeaderEpoch(2)));
        assert_eq!(it.epoch_of(Offset(10)), Some(LeaderEpoch(3)));
    }
}
