//! Plans of the append lane: everything staged becomes one plan, and one is under way at a time.

use super::partition::{InFlight, LogState, PartitionLog, Target};
use super::segment::{Largest, Planner};
use crate::disk::plan::Steps;
use crate::disk::{Lane, Plan, PlanTag, Step};
use crate::units::{Offset, Position, Timestamp};

/// How many segments one plan may seal; further ones go with the next plan, so that its length
/// stays bounded.
const SEALS_PER_PLAN_MAX: usize = 4;

impl PartitionLog {
    /// The next plan for the active segment: what was staged since the last one, and a sync when
    /// one is due. `None` while one is under way, while there is nothing to do, and while the log
    /// doesn't serve.
    pub fn plan(&mut self, now: Timestamp) -> Option<Plan> {
        if self.state != LogState::Serving {
            return None;
        }
        if let Some(plan) = self.retry.take() {
            return Some(plan);
        }
        if self.in_flight.is_some() || !(self.is_dirty() || self.is_sync_due(now)) {
            return None;
        }
        // Of two syncs of one file only one hears of an error: this one waits for the other.
        if self.housekeeping.is_settle_under_way() && self.wants_sync(now) {
            return None;
        }
        Some(self.plan_staged(now))
    }

    pub(super) fn is_dirty(&self) -> bool {
        !self.sealing.is_empty() || self.active.is_dirty()
    }

    /// `flush.messages` and `flush.ms`, counted from the last sync.
    fn is_sync_due(&self, now: Timestamp) -> bool {
        let unsynced = self.cursors.next - self.secured();
        if unsynced == 0 {
            return false;
        }
        let waited = u64::try_from(now.0.saturating_sub(self.last_sync.0)).unwrap_or(0);
        unsynced >= self.config.flush_messages || waited >= self.config.flush_ms
    }

    /// Whether the next plan syncs. What a roll makes and ends is synced in the device tier even if
    /// no record asks for it (a retention pass rolled): the commit journal names only segments
    /// whose names are durable.
    fn wants_sync(&self, now: Timestamp) -> bool {
        self.is_sync_due(now) || (self.is_device_tier() && !self.sealing.is_empty())
    }

    fn plan_staged(&mut self, now: Timestamp) -> Plan {
        let is_synced = self.wants_sync(now);
        if is_synced {
            self.last_sync = now;
        }
        self.plan_steps(is_synced)
    }

    /// Everything staged, as far as one plan takes it.
    pub(super) fn plan_steps(&mut self, is_synced: bool) -> Plan {
        let end = self.active_target();
        self.number_aborted_files();
        let mut planner = Planner {
            directory: &self.directory,
            steps: Steps::new(),
            scratch: &mut self.scratch,
            spare: &mut self.spare,
            has_new_log: false,
        };
        let mut has_unsynced_name = self.has_unsynced_name;
        for _ in 0..self.sealing.len().min(SEALS_PER_PLAN_MAX) {
            let mut active = self.sealing.pop_front().expect("counted before");
            active.seal_steps(&mut planner);
            has_unsynced_name |= std::mem::take(&mut planner.has_new_log);
            // Before the next segment gets its first byte: whatever a crash leaves of that one,
            // this one is whole.
            if is_synced {
                planner.steps.push(Step::Sync { file: active.files.log });
            }
            if is_synced && std::mem::take(&mut has_unsynced_name) {
                let directory = self.directory.clone();
                planner.steps.push(Step::SyncDirectory { directory });
            }
        }
        let target = match self.sealing.front() {
            Some(next) => Target::base_of(next.base),
            None => {
                self.active.take_steps(&mut planner);
                end
            }
        };
        let Planner { mut steps, has_new_log, .. } = planner;
        if is_synced && self.sealing.is_empty() {
            steps.push(Step::Sync { file: self.active.files.log });
        }
        has_unsynced_name |= has_new_log;
        if is_synced && has_unsynced_name {
            steps.push(Step::SyncDirectory { directory: self.directory.clone() });
        }
        self.has_unsynced_name |= has_unsynced_name;
        self.in_flight = Some(InFlight::new(target, is_synced));
        Plan { tag: self.tag(Lane::Append, 0), steps }
    }

    /// Where everything appended so far ends.
    pub(super) fn active_target(&self) -> Target {
        let (segment, largest) = (self.active.base, self.active.largest);
        let at = Position(self.active.size.0);
        Target { next: self.cursors.next, segment, at, largest }
    }

    pub(super) fn tag(&self, lane: Lane, number: u64) -> PlanTag {
        PlanTag { owner: self.number, lane, number }
    }
}

impl InFlight {
    pub(super) fn new(target: Target, is_synced: bool) -> InFlight {
        InFlight { target, is_synced, record: None, tries: 0, is_given_up: false }
    }
}

impl Target {
    /// The end of everything before the segment with this base.
    pub(super) fn base_of(segment: Offset) -> Target {
        Target { next: segment, segment, at: Position(0), largest: Largest::none(segment) }
    }
}
