//! What happens in a history, at random.

use uringlog::disk::Lane;
use uringlog::disk::{Disk, Place, Plan, PlanTag, Step};
use uringlog::log::journal::retire;
use uringlog::log::{LogState, PartitionLog};
use uringlog::units::{ByteCount, Offset};

use crate::world::{HANDS, JOURNAL_OWNER, MAKER, Phase, World};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

/// What a kind of history has more or less of, each out of 100 actions; appends and turns take the
/// rest.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// Retention, delete-records, time that passes.
    pub retention: u64,
    /// Topics deleted and made anew.
    pub topics: u64,
    /// The disk is full, or has room again.
    pub space: u64,
    /// A write or a sync fails.
    pub faults: u64,
}

impl World {
    pub fn act(&mut self, weights: Weights) {
        self.pass_time(1);
        let slot = self.random.size_below(self.slots.len());
        let mut dice = self.random.below(100);
        let mut is_in = |share: u64| {
            let is_it = dice < share;
            dice = dice.saturating_sub(share);
            if is_it {
                dice = u64::MAX;
            }
            is_it
        };
        if is_in(weights.retention) {
            self.retention(slot);
        } else if is_in(weights.topics) {
            self.topic(slot);
        } else if is_in(weights.space) {
            self.space();
        } else if is_in(weights.faults) {
            self.fault();
        } else if is_in(40) {
            self.appends(slot);
        } else {
            self.work();
        }
    }

    /// An action whose outcome doesn't hang on how far the disk has come.
    pub fn act_calmly(&mut self) {
        self.pass_time(1);
        let slot = self.random.size_below(self.slots.len());
        match self.random.below(12) {
            0 => {
                self.rest();
                self.retention(slot);
            }
            1..7 => self.appends(slot),
            _ => self.work(),
        }
    }

    fn appends(&mut self, slot: usize) {
        let limit = self.settings.config.segment_bytes.0 * 9 / 10;
        let bytes = match self.random.below(10) {
            0..6 => 20 + self.random.below(600),
            6..9 => 500 + self.random.below(3_000),
            _ => self.random.below(limit),
        };
        let bytes = usize::try_from(bytes.min(limit)).expect("small");
        for _ in 0..1 + self.random.below(3) {
            let batch = match bytes < 700 {
                true => {
                    let records = 1 + self.random.below(3);
                    self.batch(records, bytes)
                }
                false => self.batch(1, bytes),
            };
            self.append(slot, batch);
        }
    }

    fn work(&mut self) {
        self.turn();
        match self.random.below(4) {
            0 => while self.reap(true) {},
            1 => {
                for _ in 0..1 + self.random.below(4) {
                    self.reap(true);
                }
            }
            _ => {
                for _ in 0..self.random.below(6) {
                    self.reap(false);
                }
            }
        }
        if self.random.one_in(4) {
            self.resume();
        }
    }

    fn retention(&mut self, slot: usize) {
        let now = self.now;
        let Some(log) = &mut self.slots[slot].log else { return };
        match self.random.below(4) {
            0 | 1 => {
                log.retain(now);
            }
            2 => {
                let (from, to) = (log.cursors().log_start, log.cursors().high_watermark);
                let to = Offset(from.0 + self.random.below(1 + to.0 - from.0));
                log.advance_log_start(to).expect("up to the high watermark");
            }
            _ => {
                let ms = self.random.of(&[10, 6_000, 40_000]);
                self.pass_time(ms);
            }
        }
        self.note(slot);
    }

    fn topic(&mut self, slot: usize) {
        match self.slots[slot].phase {
            Phase::Live => self.retire(slot),
            Phase::Retiring => {}
            Phase::Gone => {
                self.drain();
                self.disk.set_quota(None);
                self.calm_faults();
                if !self.disk.is_crashed() {
                    self.create(slot);
                }
            }
        }
    }

    fn retire(&mut self, slot: usize) {
        let name = World::deleted_name(self.slots[slot].index, self.slots[slot].number);
        let Some(log) = self.slots[slot].log.as_mut().filter(|log| !log.is_in_flight()) else {
            return;
        };
        let plan = log.retire(Place { directory: World::root(), name });
        self.slots[slot].phase = Phase::Retiring;
        self.disk.submit(plan);
    }

    pub fn deleted_name(index: u32, number: u32) -> Box<str> {
        format!("topic-{index}.{number:032x}-delete").into_boxed_str()
    }

    /// Renames the directory of a deleted topic that a crash has left in place.
    pub fn clear_away(&mut self, slot: usize) {
        let (index, number) = (self.slots[slot].index, self.slots[slot].number);
        let name = |name| Place { directory: World::root(), name };
        let from = name(format!("topic-{index}").into_boxed_str());
        let to = name(World::deleted_name(index, number));
        let steps = [Step::Rename { from, to }, Step::SyncDirectory { directory: World::root() }];
        let tag = PlanTag { owner: HANDS, lane: Lane::Append, number: 0 };
        // A cut is noticed by whoever asked for it.
        let _ = self.disk.run(Plan { tag, steps: steps.into_iter().collect() });
    }

    fn space(&mut self) {
        let quota = (!self.random.one_in(3)).then(|| {
            let journals = self.settings.journal_bytes.0 * u64::from(self.settings.shards);
            ByteCount(journals + self.random.below(60_000))
        });
        self.disk.set_quota(quota);
        if quota.is_none() {
            self.resume();
        }
    }

    fn fault(&mut self) {
        let nth = 1 + self.random.below(5);
        match self.random.below(6) {
            0 | 1 => {
                self.may_gap = true;
                self.hook.fail_sync(nth, EIO);
            }
            2 => self.hook.short_write(nth, self.random.below(9_000), EIO),
            3 => self.hook.short_write(nth, u64::MAX - 1, EIO),
            _ => self.hook.short_write(nth, self.random.below(9_000), ENOSPC),
        }
    }

    pub fn calm_faults(&mut self) {
        self.hook.fail_sync(u64::MAX, EIO);
        self.hook.fail_write(u64::MAX, EIO);
    }

    /// Brings read-only logs back, where nothing stands against it.
    pub fn resume(&mut self) {
        let is_read_only = |log: &PartitionLog| matches!(log.state(), LogState::ReadOnly(_));
        let is_wanted = self.slots.iter().any(|slot| slot.log.as_ref().is_some_and(is_read_only));
        if !is_wanted {
            return;
        }
        self.drain();
        for slot in 0..self.slots.len() {
            let (now, journal) = (self.now, self.journal_of(slot));
            let Some(log) = &mut self.slots[slot].log else { continue };
            if let Some(journal) = journal {
                log.note_journal_tail(self.journals[journal].tail());
            }
            if !is_read_only(log) || log.is_in_flight() || log.awaits_void() {
                continue;
            }
            // On failure it stays as it is, and is tried again.
            let resumed = log.resume(&mut self.disk, now);
            if self.disk.is_crashed() {
                return;
            }
            self.tell(|| format!("resumed topic-{slot}: {resumed:?}"));
            if resumed.is_ok() {
                self.counts.resumed += 1;
                self.slots[slot].known.bury();
                self.note(slot);
            }
        }
    }

    /// A clean stop; whether everything was closed in order.
    pub fn stop(&mut self) -> bool {
        self.disk.set_quota(None);
        self.calm_faults();
        self.rest();
        if self.disk.is_crashed() {
            return false;
        }
        let mut is_clean = true;
        for slot in 0..self.slots.len() {
            let (now, journal) = (self.now, self.journal_of(slot));
            let Some(log) = &mut self.slots[slot].log else { continue };
            let plan = log.close(now);
            let closed = match plan.steps.is_empty() {
                true => None,
                false => Some(self.disk.run(plan)),
            };
            if self.disk.is_crashed() {
                return false;
            }
            let Some(finished) = closed else {
                is_clean = false;
                continue;
            };
            log.complete(finished, now);
            let is_closed = log.state() == LogState::Offline(uringlog::log::Cause::Closed);
            is_clean &= is_closed;
            if let Some(journal) = journal.filter(|_| is_closed) {
                self.journals[journal].forget(log.number());
            }
            self.note(slot);
        }
        is_clean && self.close_journals()
    }

    fn close_journals(&mut self) -> bool {
        for shard in 0..self.journals.len() {
            let nonce = self.nonces.next();
            let plan = self.journals[shard].close(nonce);
            let plan = plan.expect("every log is closed");
            assert_eq!(plan.tag.owner, JOURNAL_OWNER + u32::try_from(shard).expect("small"));
            let finished = self.disk.run(plan);
            if self.disk.is_crashed() {
                return false;
            }
            assert_eq!(finished.result, Ok(()));
            self.journals[shard].finish(finished);
        }
        let retired = retire(&mut self.disk, (MAKER, &World::root()));
        if self.disk.is_crashed() {
            return false;
        }
        assert_eq!(retired, Ok(()));
        self.counts.clean_stops += 1;
        true
    }
}
