//! Starting: journals replayed and made, logs opened; cut short by the power now and then.

use uringlog::disk::Disk;
use uringlog::disk::sim::SimDisk;
use uringlog::log::journal::{Journal, Wanted, make, replay};
use uringlog::log::{JournalError, JournalReplay, Opening, PartitionLog};

use crate::world::{DIRECTORY_ID, JOURNAL_OWNER, MAKER, Phase, World};

/// Why a start didn't come to its end.
#[derive(Debug)]
pub enum Stopped {
    /// The power went.
    Cut,
    /// The journals can't be replayed.
    Refused(JournalError),
}

impl World {
    /// Starts after whatever has happened. `is_clean`: all was closed in order.
    pub fn start(&mut self, is_clean: bool) -> Result<JournalReplay, Stopped> {
        self.disk.set_quota(None);
        self.disk.set_now(self.now);
        self.calm_faults();
        for slot in &mut self.slots {
            slot.log = None;
        }
        self.journals.clear();
        self.pending_opens.clear();
        let mut report = self.replay()?;
        self.make_journals()?;
        for slot in 0..self.slots.len() {
            self.open(slot, is_clean)?;
        }
        self.open_journals()?;
        report.journals.retain(|it| 0 < it.records || it.damaged.is_some());
        Ok(report)
    }

    pub fn swap_disk(&mut self, change: impl FnOnce(SimDisk) -> SimDisk) {
        let empty = SimDisk::new(uringlog::disk::sim::SimOptions::default());
        self.disk = change(std::mem::replace(&mut self.disk, empty));
    }

    fn replay(&mut self) -> Result<JournalReplay, Stopped> {
        let nonce = self.nonces.next();
        let (root, shards) = (World::root(), self.settings.shards);
        let replayed = replay(&mut self.disk, (MAKER, &root), (DIRECTORY_ID, shards), nonce);
        match replayed {
            Ok(report) if !self.disk.is_crashed() => Ok(report),
            Ok(_) => Err(Stopped::Cut),
            Err(_) if self.disk.is_crashed() => Err(Stopped::Cut),
            Err(error) => Err(Stopped::Refused(error)),
        }
    }

    fn make_journals(&mut self) -> Result<(), Stopped> {
        if !self.settings.is_journaled {
            return Ok(());
        }
        let (root, shards) = (World::root(), self.settings.shards);
        let wanted =
            Wanted { directory: DIRECTORY_ID, shards, length: self.settings.journal_bytes };
        let nonces = &mut self.nonces;
        let made = make(&mut self.disk, (MAKER, &root), wanted, &mut || nonces.next());
        let superblocks = match made {
            Ok(superblocks) => superblocks,
            Err(_) if self.disk.is_crashed() => return Err(Stopped::Cut),
            Err(error) => panic!("{error}"),
        };
        for (shard, superblock) in (0..shards).zip(superblocks) {
            let owner = JOURNAL_OWNER + shard;
            let place = World::journal_place(shard);
            let limit = self.settings.plan_bytes_max;
            let (journal, plan) = Journal::new(owner, place, superblock, limit);
            self.journals.push(journal);
            self.pending_opens.push(plan);
        }
        Ok(())
    }

    fn open_journals(&mut self) -> Result<(), Stopped> {
        for plan in std::mem::take(&mut self.pending_opens) {
            let finished = self.disk.run(plan);
            if self.disk.is_crashed() {
                return Err(Stopped::Cut);
            }
            assert_eq!(finished.result, Ok(()));
        }
        Ok(())
    }

    fn open(&mut self, slot: usize, is_clean: bool) -> Result<(), Stopped> {
        let is_checkpointed = self.random.one_in(2);
        let name = format!("topic-{}", self.slots[slot].index);
        let listed = self.disk.list(&World::root()).map_err(|_| Stopped::Cut)?;
        let is_there = listed.iter().any(|entry| entry.name == name);
        if self.slots[slot].phase != Phase::Live {
            if is_there {
                self.clear_away(slot);
            }
            if self.disk.is_crashed() {
                return Err(Stopped::Cut);
            }
            self.slots[slot].phase = Phase::Gone;
            return Ok(());
        }
        let known = &self.slots[slot].known;
        let recovery_point = is_checkpointed.then_some(known.recovery_point);
        let how = Opening {
            clean: is_clean,
            recovery_point,
            log_start: Some(known.log_start),
            leader_epoch_bump: false,
        };
        let spec = self.spec(slot);
        match PartitionLog::open(&mut self.disk, spec, how, self.now) {
            Ok(_) if self.disk.is_crashed() => Err(Stopped::Cut),
            Ok((log, report)) => {
                self.tell(|| format!("opened {name}: {report}"));
                assert!(!is_clean || !report.is_lossy(), "after a clean stop: {report}");
                self.slots[slot].log = Some(log);
                Ok(())
            }
            Err(_) if self.disk.is_crashed() => Err(Stopped::Cut),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}
