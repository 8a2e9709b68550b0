//! The shard's commit journal at work: filled at the end of a turn, told what is over, given its
//! space back.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::disk::{Finished, Plan};
use crate::log::journal::{JournalCounters, JournalState, Turn};
use crate::log::{Journal, JournalError};
use crate::shard::engine::{Core, now};
use crate::shard::journals::{JournalFile, nonce};
use crate::shard::partition::PartitionCell;
use crate::units::{ByteCount, Timestamp};

/// The journal, and who waits for it.
#[derive(Default)]
pub(crate) struct JournalDesk {
    journal: RefCell<Option<Journal>>,
    /// Of the turn that is being ended.
    plans: RefCell<Vec<Plan>>,
    /// Partitions whose next plan goes into the next record.
    later: RefCell<Vec<Rc<PartitionCell>>>,
    /// Partitions that have something to be taken back.
    voids: RefCell<Vec<Rc<PartitionCell>>>,
    /// Whether it was said that the journal is out of use.
    is_frozen: Cell<bool>,
}

/// How the journal is, for whoever asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalStats {
    /// What it has done.
    pub counters: JournalCounters,
    /// Bytes that a replay would look at.
    pub used: ByteCount,
    /// Of how many.
    pub capacity: ByteCount,
    /// Whether it takes plans.
    pub is_serving: bool,
}

impl Core {
    /// Opens a journal that was made ready.
    ///
    /// # Errors
    /// [`JournalError::Disk`]; it must not be left aside then, having been announced.
    pub fn open_journal(&self, file: JournalFile) -> Result<(), JournalError> {
        let JournalFile { place, superblock, plan_bytes_max } = file;
        let (directory, name) = (place.directory.to_path_buf(), place.name.clone());
        let owner = self.next_number();
        let (mut journal, plan) = Journal::new(owner, place, superblock, plan_bytes_max);
        let opened = self.blocking(owner, |disk| {
            if let Some(buffer) = journal.buffer() {
                disk.register(buffer);
            }
            disk.run(plan)
        });
        opened.result.map_err(|failure| {
            let what = format!("open {name} for direct writing");
            JournalError::Disk { directory, what, error: failure.error }
        })?;
        self.desk.journal.replace(Some(journal));
        Ok(())
    }

    /// What a partition does at the end of a turn.
    pub fn plan_turn(&self, cell: &Rc<PartitionCell>, now: Timestamp) {
        let mut journal = self.desk.journal.borrow_mut();
        match cell.plan(now, &self.stats, journal.as_mut()) {
            Turn::Plan(plan) => self.desk.plans.borrow_mut().push(plan),
            Turn::Later => {
                cell.dirty.set(true);
                self.desk.later.borrow_mut().push(cell.clone());
            }
            Turn::Nothing => {}
        }
    }

    /// Submits the turn: first its record, for which the others wait longest, then the plans, then
    /// the syncs that give space back.
    pub fn end_turn(&self, now: Timestamp) {
        self.end_record();
        for plan in self.desk.plans.borrow_mut().drain(..) {
            self.submit(plan);
        }
        self.settle_due(now);
    }

    /// Voids go into a turn's record before its data: partitions wait for them, and data would
    /// leave them no room under load.
    pub fn take_back(&self) {
        let mut journal = self.desk.journal.borrow_mut();
        let Some(journal) = journal.as_mut() else { return };
        let voids = std::mem::take(&mut *self.desk.voids.borrow_mut());
        for cell in voids {
            if !journal.take_back(&mut cell.log.borrow_mut()) {
                self.desk.voids.borrow_mut().push(cell);
            }
        }
    }

    fn end_record(&self) {
        let mut journal = self.desk.journal.borrow_mut();
        if let Some(plan) = journal.as_mut().and_then(Journal::seal) {
            self.submit(plan);
        }
    }

    fn settle_due(&self, now: Timestamp) {
        let mut journal = self.desk.journal.borrow_mut();
        let Some(journal) = journal.as_mut() else { return };
        while let Some(owner) = journal.next_settle() {
            let Some(cell) = self.cells_by_number(owner) else {
                journal.forget(owner);
                continue;
            };
            cell.log.borrow_mut().settle();
            // A log whose first record is still under way has nothing to sync yet, and would be
            // the next one again: what is over later looks anew.
            if !self.settle_now(&cell, now) {
                journal.settled(&cell.log.borrow());
                return;
            }
        }
    }

    /// Starts the sync that a log was asked for; `false` when there is none to be started now.
    fn settle_now(&self, cell: &PartitionCell, now: Timestamp) -> bool {
        match cell.housekeeping_plan(now) {
            Some(plan) => {
                self.submit(plan);
                self.turn_begins();
                true
            }
            None => false,
        }
    }

    /// A plan of the partition is over: the journal may have space again, or something to take
    /// back.
    pub fn tell_journal(&self, cell: &Rc<PartitionCell>) {
        let mut journal = self.desk.journal.borrow_mut();
        let Some(journal) = journal.as_mut() else { return };
        cell.log.borrow_mut().note_journal_tail(journal.tail());
        let mut has_settled = journal.settled(&cell.log.borrow());
        let is_wanted = cell.log.borrow().is_settling();
        if is_wanted && !self.settle_now(cell, now()) {
            // Another plan may have synced everything meanwhile.
            has_settled |= journal.settled(&cell.log.borrow());
        }
        self.want_void(cell);
        // The next one to be synced is asked for at the end of a turn.
        if has_settled || journal.wants_seal() {
            self.turn_begins();
        }
    }

    /// Has the next record take back what the partition wants to be rid of.
    pub fn want_void(&self, cell: &Rc<PartitionCell>) {
        if cell.log.borrow().void_wanted().is_none() {
            return;
        }
        let mut voids = self.desk.voids.borrow_mut();
        if !voids.iter().any(|it| it.number == cell.number) {
            voids.push(cell.clone());
        }
        self.turn_begins();
    }

    /// Whether a plan is the journal's own.
    pub fn is_of_journal(&self, owner: u32) -> bool {
        self.desk.journal.borrow().as_ref().is_some_and(|it| it.owner() == owner)
    }

    /// A record, or the beginning of a new round, is over.
    pub fn journal_finished(&self, finished: Finished) {
        let written = {
            let mut journal = self.desk.journal.borrow_mut();
            journal.as_mut().expect("it has a plan under way").finish(finished)
        };
        self.say_frozen();
        for cell in written.voids.iter().filter_map(|owner| self.cells_by_number(*owner)) {
            cell.log.borrow_mut().void_over(written.is_durable);
        }
        for cell in written.members.iter().filter_map(|owner| self.cells_by_number(*owner)) {
            cell.record_over(written.is_durable, &self.stats);
            if cell.log.borrow().has_staged() || !written.is_durable {
                self.mark_dirty(&cell);
            }
            self.tell_journal(&cell);
        }
        for cell in std::mem::take(&mut *self.desk.later.borrow_mut()) {
            cell.dirty.set(false);
            self.mark_dirty(&cell);
        }
        if !self.desk.voids.borrow().is_empty() {
            self.turn_begins();
        }
    }

    fn say_frozen(&self) {
        let journal = self.desk.journal.borrow();
        let Some(journal) = journal.as_ref() else { return };
        let is_frozen = matches!(journal.state(), JournalState::Frozen(_));
        if self.desk.is_frozen.replace(is_frozen) == is_frozen {
            return;
        }
        let path = journal.place().directory.join(&*journal.place().name);
        let path = path.display();
        match journal.state() {
            JournalState::Frozen(error) => {
                tracing::error!("{path}: {error}; plans sync their own files until it works again");
            }
            JournalState::Serving => tracing::warn!("{path}: the journal is in use again"),
            JournalState::Closed => {}
        }
    }

    /// What has to be looked at from time to time: space that nobody asks for, and a journal that
    /// may work again.
    pub fn keep_journal(&self) {
        let plan = {
            let mut journal = self.desk.journal.borrow_mut();
            let Some(journal) = journal.as_mut() else { return };
            journal.restart(nonce())
        };
        if let Some(plan) = plan {
            self.submit(plan);
        }
        self.turn_begins();
    }

    /// Has the journal pass a record, so that no replay comes upon it again.
    pub fn pass_record(&self, record: u64) {
        if let Some(journal) = self.desk.journal.borrow_mut().as_mut() {
            journal.pass(record);
            self.turn_begins();
        }
    }

    /// Before the partition is read or resumed: what a replay would look at.
    pub fn note_tail(&self, cell: &PartitionCell) {
        if let Some(journal) = self.desk.journal.borrow().as_ref() {
            cell.log.borrow_mut().note_journal_tail(journal.tail());
        }
    }

    /// The partition is gone: deleted, or closed with everything synced.
    pub fn journal_forgets(&self, number: u32) {
        if let Some(journal) = self.desk.journal.borrow_mut().as_mut() {
            journal.forget(number);
        }
    }

    /// Empties the journal at a clean stop. Says why it could not be.
    pub fn close_journal(&self) -> Option<String> {
        self.await_record();
        let plan: Plan = {
            let mut journal = self.desk.journal.borrow_mut();
            let journal = journal.as_mut()?;
            match journal.close(nonce()) {
                Some(plan) => plan,
                None => return Some("it has records of partitions that are not synced".to_owned()),
            }
        };
        let finished = self.blocking(plan.tag.owner, |disk| disk.run(plan));
        let failure = finished.result.err().map(|failure| failure.error.to_string());
        self.journal_finished(finished);
        failure
    }

    /// Waits for the write under way.
    fn await_record(&self) {
        let owner = {
            let journal = self.desk.journal.borrow();
            let under_way = journal.as_ref().filter(|journal| journal.is_writing());
            let Some(journal) = under_way else { return };
            journal.owner()
        };
        let finished = self.blocking(owner, |disk| disk.reap(true));
        if let Some(finished) = finished {
            self.journal_finished(finished);
        }
    }

    /// How the journal is; `None` where there is none.
    pub fn journal_stats(&self) -> Option<JournalStats> {
        let journal = self.desk.journal.borrow();
        let journal = journal.as_ref()?;
        let (used, capacity) = journal.fill();
        let is_serving = journal.state() == JournalState::Serving;
        Some(JournalStats { counters: journal.counters(), used, capacity, is_serving })
    }
}
