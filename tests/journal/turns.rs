//! What a shard does: turns, plans that come back in any order, the housekeeping lane.

use uringlog::disk::{Disk, Finished, Step};
use uringlog::log::LogState;
use uringlog::log::journal::{JournalState, Turn, Written};

use crate::world::{HANDS, JOURNAL_OWNER, Phase, World};

/// More than any history needs to come to rest.
const ROUNDS_MAX: usize = 3_000;

impl World {
    /// One pass: everything that is due is submitted.
    pub fn turn(&mut self) {
        for slot in 0..self.slots.len() {
            let Some(journal) = self.journal_of(slot) else { continue };
            let Some(log) = &mut self.slots[slot].log else { continue };
            let journal = &mut self.journals[journal];
            log.note_journal_tail(journal.tail());
            if log.void_wanted().is_some() {
                journal.take_back(log);
            }
        }
        for slot in 0..self.slots.len() {
            self.plan(slot);
        }
        for journal in &mut self.journals {
            if let Some(plan) = journal.seal() {
                self.disk.submit(plan);
            }
            let nonce = self.nonces.next();
            if let Some(plan) = journal.restart(nonce) {
                self.counts.restarts += 1;
                self.disk.submit(plan);
            }
        }
        self.chores();
        self.disk.enter();
    }

    fn plan(&mut self, slot: usize) {
        let (now, journal) = (self.now, self.journal_of(slot));
        if self.slots[slot].phase != Phase::Live {
            return;
        }
        let Some(log) = &mut self.slots[slot].log else { return };
        let turn = match journal {
            Some(journal) => self.journals[journal].plan(log, now),
            None => log.plan(now).map_or(Turn::Nothing, Turn::Plan),
        };
        if let Turn::Plan(plan) = turn {
            self.disk.submit(plan);
        }
    }

    fn chores(&mut self) {
        for journal in 0..self.journals.len() {
            while let Some(owner) = self.journals[journal].next_settle() {
                let slot = self.slot_of(owner).expect("the journal was told of those that went");
                let log = self.slots[slot].log.as_mut().expect("it was just found");
                // As the shard does: at once, and no further when there is nothing to start.
                log.settle();
                let Some(plan) = log.housekeeping(self.now) else {
                    self.journals[journal].settled(log);
                    break;
                };
                self.disk.submit(plan);
            }
        }
        for slot in 0..self.slots.len() {
            let journal = self.journal_of(slot);
            let is_live = self.slots[slot].phase == Phase::Live;
            let Some(log) = self.slots[slot].log.as_mut().filter(|_| is_live) else { continue };
            if let Some(journal) = journal {
                log.note_journal_tail(self.journals[journal].tail());
            }
            if let Some(plan) = log.housekeeping(self.now) {
                self.disk.submit(plan);
            }
        }
    }

    /// Takes the outcome of one plan, if one is over; false when none is, and when the power is
    /// off.
    pub fn reap(&mut self, wait: bool) -> bool {
        let Some(finished) = self.disk.reap(wait) else { return false };
        if self.disk.is_crashed() {
            return false;
        }
        self.take(finished);
        true
    }

    fn take(&mut self, finished: Finished) {
        let owner = finished.plan.tag.owner;
        self.tell(|| format!("finished {owner}: {}", told(&finished)));
        if owner == HANDS {
            return;
        }
        if let Some(journal) = owner.checked_sub(JOURNAL_OWNER) {
            let journal = usize::try_from(journal).expect("small");
            let written = self.journals[journal].finish(finished);
            self.record_over(written);
            let is_frozen = matches!(self.journals[journal].state(), JournalState::Frozen(_));
            self.counts.frozen += u64::from(is_frozen);
            return;
        }
        let slot = self.slot_of(owner).expect("a log waits for its plans");
        let (now, journal) = (self.now, self.journal_of(slot));
        if self.slots[slot].phase == Phase::Retiring {
            assert_eq!(finished.result, Ok(()), "nothing stands against a rename");
        }
        let log = self.slots[slot].log.as_mut().expect("it was just found");
        let completed = log.complete(finished, now);
        if let Some(journal) = journal {
            self.journals[journal].settled(log);
        }
        self.counts.offline += u64::from(matches!(completed.stopped, Some(LogState::Offline(_))));
        self.note(slot);
        if self.slots[slot].phase == Phase::Retiring {
            self.retired(slot);
        }
    }

    fn record_over(&mut self, written: Written) {
        for owner in written.members {
            let Some(slot) = self.slot_of(owner) else { continue };
            let log = self.slots[slot].log.as_mut().expect("it was just found");
            log.record_over(written.is_durable);
            self.note(slot);
        }
        for owner in written.voids {
            let Some(slot) = self.slot_of(owner) else { continue };
            let log = self.slots[slot].log.as_mut().expect("it was just found");
            log.void_over(written.is_durable);
        }
    }

    fn retired(&mut self, slot: usize) {
        let journal = self.journal_of(slot);
        let log = self.slots[slot].log.take().expect("it is being retired");
        if let Some(journal) = journal {
            self.journals[journal].forget(log.number());
        }
        self.slots[slot].phase = Phase::Gone;
        self.counts.retired += 1;
    }

    /// Waits for all plans under way; nothing new is submitted.
    pub fn drain(&mut self) {
        while self.reap(true) {}
    }

    /// Turns until nothing is left to do. What serves has then acknowledged everything.
    pub fn rest(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.turn();
            let mut is_at_rest = true;
            while self.reap(true) {
                is_at_rest = false;
            }
            if self.disk.is_crashed() {
                return;
            }
            if is_at_rest {
                self.check_rest();
                return;
            }
        }
        panic!("it never comes to rest");
    }

    fn check_rest(&self) {
        for slot in &self.slots {
            let Some(log) = &slot.log else { continue };
            if log.state() == LogState::Serving {
                assert!(!slot.known.is_waiting(), "something waits for ever: {log:#?}");
                assert_eq!(log.cursors().high_watermark, log.cursors().next);
            }
        }
    }
}

/// A plan in a few words.
fn told(finished: &Finished) -> String {
    let steps = finished.plan.steps.iter().map(|step| match step {
        Step::Create { file, place } => format!("create {}={}", file.number, place.name),
        Step::Write { file, at, parts } => {
            let bytes: usize = parts.iter().map(bytes::Bytes::len).sum();
            format!("write {} at {at} {bytes}", file.number)
        }
        Step::WriteDurable { at, buffer, .. } => format!("record at {at} {}", buffer.length()),
        Step::Sync { file } => format!("sync {}", file.number),
        Step::SyncDirectory { .. } => "sync names".to_owned(),
        Step::Rename { from, .. } => format!("rename {}", from.name),
        other => format!("{other:?}").split(' ').next().unwrap_or_default().to_owned(),
    });
    let steps: Vec<String> = steps.collect();
    format!("{:?} {:?} {}", finished.plan.tag.lane, finished.result, steps.join(", "))
}
