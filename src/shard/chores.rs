//! What a shard does from time to time: housekeeping of its logs, retention passes, and another
//! try for partitions that ran out of space.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::disk::DiskError;
use crate::log::{LogState, OpenError};
use crate::shard::engine::{Core, now};
use crate::shard::partition::PartitionCell;
use crate::units::{Offset, Timestamp, u64_of};

/// How often the shard looks. Delays of deletion and flushing are exact to this.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often a partition that ran out of space is tried again.
const RESUME_EVERY_MS: i64 = 1_000;

/// How much longer than a try took it takes to the next one, at least.
const RESUME_PAUSES: u32 = 20;

/// The task; ends with the engine.
pub async fn run(core: Rc<Core>) {
    let (mut last_retention, mut wait_ms) = (now(), core.options.first_retention_ms);
    let mut last_resume = now();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if core.is_stopped() {
            return;
        }
        let now = now();
        if is_over(last_retention, wait_ms, now) {
            (last_retention, wait_ms) = (now, core.options.retention_check_ms);
            core.retain(now);
        }
        if RESUME_EVERY_MS <= now.0 - last_resume.0 {
            last_resume = now;
            core.resume(now);
        }
        core.keep_house(now);
    }
}

fn is_over(since: Timestamp, wait_ms: u64, now: Timestamp) -> bool {
    u64::try_from(now.0 - since.0).is_ok_and(|waited| wait_ms <= waited)
}

impl Core {
    /// One retention pass over every log; the files follow through the housekeeping lane. Producers
    /// that have been silent for long go with it.
    pub fn retain(&self, now: Timestamp) {
        for cell in self.cells() {
            cell.log.borrow_mut().expire_producers(now);
            let retained = cell.log.borrow_mut().retain(now);
            self.stats.segments_deleted.add(u64_of(retained.segments));
            if cell.log.borrow().has_staged() {
                // A log whose segments all went has rolled to an empty one first.
                self.mark_dirty(&cell);
            }
        }
    }

    /// Starts every housekeeping plan that is due.
    pub fn keep_house(&self, now: Timestamp) {
        for cell in self.cells() {
            let due = cell.log.borrow().next_due();
            if due.is_none_or(|due| now < due) {
                continue;
            }
            if let Some(plan) = cell.housekeeping_plan(now) {
                self.submit(plan);
            }
            // A sync that flush.ms asks for goes through the append lane.
            self.mark_dirty(&cell);
        }
        self.enter_and_reap();
    }

    /// Partitions that are read-only for want of space recover to their log end and serve again,
    /// when there is space.
    pub fn resume(&self, now: Timestamp) {
        for cell in self.cells() {
            let is_early = cell.resume_not_before.get().is_some_and(|it| Instant::now() < it);
            let is_read_only = matches!(cell.log.borrow().state(), LogState::ReadOnly(_));
            if is_read_only && !is_early && !cell.is_busy() {
                self.resume_one(&cell, now);
            }
        }
    }

    fn resume_one(&self, cell: &Rc<PartitionCell>, now: Timestamp) {
        let started = Instant::now();
        let resumed = self.blocking(cell.number, |disk| cell.log.borrow_mut().resume(disk, now));
        // The others of the shard wait meanwhile, and a large log takes long.
        cell.resume_not_before.set(Some(Instant::now() + RESUME_PAUSES * started.elapsed()));
        let directory = cell.directory.display();
        match resumed {
            Ok(_) => {
                // What the recovery synced may be visible now.
                let end = cell.log.borrow().cursors().high_watermark;
                cell.waiting.borrow_mut().release(end);
                tracing::warn!(partition = %directory, "there is space again: writing goes on");
            }
            Err(OpenError::Disk {
                error: DiskError::NoSpace | DiskError::TooManyFiles(_), ..
            }) => {}
            Err(error) => tracing::error!(partition = %directory, %error, "cannot resume writing"),
        }
    }

    /// Forgets a sealed segment that is over the shard's limits, unless an answer still needs it.
    pub fn unload(&self, number: u32, segment: Offset) {
        let cell = self.cells_by_number(number);
        let Some(cell) = cell else { return };
        if cell.pins.borrow().contains_key(&segment) {
            return;
        }
        if let Some(plan) = cell.log.borrow_mut().unload(segment) {
            self.submit(plan);
        }
    }
}
