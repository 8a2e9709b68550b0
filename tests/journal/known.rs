//! What the world outside knows of a partition.

use std::collections::{BTreeMap, BTreeSet};

use uringlog::units::Offset;

/// What has become of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Appended, not answered.
    Waiting,
    /// Answered with an error: it may still turn up, as long as nothing else took its place.
    Refused,
    /// Acknowledged, or seen after a recovery.
    Acked,
    /// It is gone for good.
    Dead,
}

/// A batch that was appended.
#[derive(Debug)]
pub struct Staged {
    pub last: u64,
    /// As it is to stand in `.log`.
    pub bytes: Vec<u8>,
    pub fate: Fate,
}

/// The batches of one partition, by base offset; several where offsets were given again.
#[derive(Debug, Default)]
pub struct Known {
    pub staged: BTreeMap<u64, Vec<Staged>>,
    pub log_start: Offset,
    /// As `recovery-point-offset-checkpoint` would have it.
    pub recovery_point: Offset,
    /// Offsets that are missing, from and to.
    pub gaps: BTreeSet<(u64, u64)>,
    waiting: Vec<u64>,
    refused: Vec<u64>,
}

impl Known {
    pub fn stage(&mut self, base: u64, last: u64, bytes: Vec<u8>) {
        let staged = Staged { last, bytes, fate: Fate::Waiting };
        self.staged.entry(base).or_default().push(staged);
        self.waiting.push(base);
    }

    /// Everything below the high watermark is acknowledged.
    pub fn ack(&mut self, high_watermark: Offset) {
        for base in std::mem::take(&mut self.waiting) {
            let staged = newest(&mut self.staged, base);
            if staged.last < high_watermark.0 {
                staged.fate = Fate::Acked;
            } else {
                self.waiting.push(base);
            }
        }
    }

    /// The log went out of service: what is behind its end will be given up.
    pub fn refuse(&mut self, log_end: Offset) {
        for base in std::mem::take(&mut self.waiting) {
            if base < log_end.0 {
                self.waiting.push(base);
                continue;
            }
            newest(&mut self.staged, base).fate = Fate::Refused;
            self.refused.push(base);
        }
    }

    /// The log goes on without what was refused: that may not come back.
    pub fn bury(&mut self) {
        for base in std::mem::take(&mut self.refused) {
            for staged in self.staged.get_mut(&base).expect("it was staged") {
                if staged.fate == Fate::Refused {
                    staged.fate = Fate::Dead;
                }
            }
        }
    }

    /// After a recovery: what was found stays, and the rest is gone. `found` are base offsets, and
    /// which of the batches there.
    pub fn recovered(&mut self, found: &[(u64, usize)], log_start: Offset) {
        // Below, whole segments may be out of use, and come back into it with the next start.
        for staged in self.staged.range_mut(log_start.0..).flat_map(|(_, all)| all) {
            staged.fate = Fate::Dead;
        }
        for (base, number) in found {
            self.staged.get_mut(base).expect("it was found")[*number].fate = Fate::Acked;
        }
        self.waiting.clear();
        self.refused.clear();
        self.log_start = log_start;
    }

    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Base offsets of what was acknowledged, oldest first.
    pub fn acked(&self) -> impl Iterator<Item = (u64, &Staged)> {
        self.staged.iter().flat_map(|(base, all)| {
            let acked = all.iter().filter(|it| it.fate == Fate::Acked);
            acked.map(|it| (*base, it))
        })
    }
}

fn newest(staged: &mut BTreeMap<u64, Vec<Staged>>, base: u64) -> &mut Staged {
    staged.get_mut(&base).and_then(|all| all.last_mut()).expect("it was staged")
}
