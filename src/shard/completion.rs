//! What happens when a plan is over.

use std::rc::Rc;

use crate::disk::{Finished, Lane};
use crate::shard::engine::Core;
use crate::shard::partition::PartitionCell;
use crate::units::Offset;

impl Core {
    /// Brings an outcome to whoever waits for it: somebody, the journal, or a log.
    pub fn finish(&self, finished: Finished) {
        let tag = finished.plan.tag;
        let waits = self.take_waiter(tag);
        if let Some(waits) = waits {
            // Whoever waited may have given up; the plan is over all the same.
            let _ = waits.send(finished);
            return;
        }
        if self.is_of_journal(tag.owner) {
            self.journal_finished(finished);
        } else if let Some(cell) = self.cells_by_number(tag.owner) {
            self.complete(&cell, finished);
        }
    }

    /// The log takes the outcome in; whoever waited for what moved is woken.
    pub fn complete(&self, cell: &Rc<PartitionCell>, finished: Finished) {
        let was_housekeeping = finished.plan.tag.lane == Lane::Housekeeping;
        let completed = cell.complete(finished, &self.stats);
        if was_housekeeping {
            self.want_house(cell);
        }
        if !completed.sealed.is_empty() {
            self.note_sealed(cell, &completed.sealed);
        }
        if let Some(range) = completed.swapped {
            self.sealed.borrow_mut().forget_range(cell.number, range);
        }
        if cell.log.borrow().has_staged() {
            self.mark_dirty(cell);
        }
        self.tell_journal(cell);
    }

    /// Segments just sealed have open files that nobody may read for long.
    fn note_sealed(&self, cell: &PartitionCell, segments: &[Offset]) {
        let log = cell.log.borrow();
        let mut sealed = self.sealed.borrow_mut();
        // Readers are often right behind a roll, so the indexes are still in memory, too.
        for (segment, bytes) in log.loaded().filter(|(segment, _)| segments.contains(segment)) {
            sealed.note(cell.number, segment, bytes);
        }
        let victims = sealed.over_limit();
        drop((log, sealed));
        for (number, segment) in victims {
            self.unload(number, segment);
        }
    }
}
