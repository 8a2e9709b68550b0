//! What a shard does from time to time: housekeeping of its logs, retention passes, and another
//! try for partitions that ran out of space.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::disk::DiskError;
use crate::log::{LogState, OpenError};
use crate::shard::engine::{Core, now};
use crate::shard::partition::PartitionCell;
use crate::units::{Offset, Timestamp, u64_of};

/// How often the shard looks. Delays of deletion and flushing are exact to this.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often a partition that ran out of space is tried again.
const RESUME_EVERY: Duration = Duration::from_secs(1);

/// How much longer than a try took it takes to the next one, at least.
const RESUME_PAUSES: u32 = 20;

/// The task; ends with the engine. Intervals don't follow the wall clock, which may be set back.
pub async fn run(core: Rc<Core>) {
    let mut retention = Interval::new(core.options.first_retention_ms);
    let mut resumption = Interval { since: Instant::now(), wait: RESUME_EVERY };
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if core.is_stopped() {
            return;
        }
        if retention.is_over(Instant::now()) {
            retention = Interval::new(core.options.retention_check_ms);
            core.retain(now());
        }
        if resumption.is_over(Instant::now()) {
            resumption.since = Instant::now();
            core.resume(now());
        }
        core.keep_clean(now());
        core.keep_house(now());
        core.keep_journal();
    }
}

/// Logs that have one more housekeeping plan due when one is over, as after a retention pass.
#[derive(Default)]
pub struct House {
    due: RefCell<VecDeque<Rc<PartitionCell>>>,
    begun: Notify,
}

/// The task that starts the next housekeeping plan where one is over; ends with the engine. A turn
/// of everybody else's comes between a plan and the next.
pub async fn keep_on(core: Rc<Core>) {
    loop {
        core.house.begun.notified().await;
        tokio::task::yield_now().await;
        if core.is_stopped() {
            return;
        }
        core.go_on_keeping(now());
        core.go_on_cleaning(now());
    }
}

struct Interval {
    since: Instant,
    wait: Duration,
}

impl Interval {
    fn new(wait_ms: u64) -> Interval {
        Interval { since: Instant::now(), wait: Duration::from_millis(wait_ms) }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.wait <= now - self.since
    }
}

impl Core {
    /// One retention pass over every log; the files follow through the housekeeping lane. Producers
    /// that have been silent for long go with it.
    pub fn retain(&self, now: Timestamp) {
        for cell in self.cells() {
            cell.log.borrow_mut().expire_producers(now);
            if !self.is_the_cleaners(&cell) {
                self.retain_one(&cell, now);
            }
        }
    }

    /// One log's old segments go.
    pub fn retain_one(&self, cell: &Rc<PartitionCell>, now: Timestamp) {
        let retained = cell.log.borrow_mut().retain(now);
        self.stats.segments_deleted.add(u64_of(retained.segments));
        if let Some(first) = cell.log.borrow().segments().next()
            && 0 < retained.segments
        {
            self.sealed.borrow_mut().forget_before(cell.number, first.base);
        }
        if cell.log.borrow().has_staged() {
            // A log whose segments all went has rolled to an empty one first.
            self.mark_dirty(cell);
        }
    }

    /// Starts every housekeeping plan that is due.
    pub fn keep_house(&self, now: Timestamp) {
        for cell in self.cells() {
            self.note_tail(&cell);
            self.want_void(&cell);
            let due = cell.log.borrow().next_due();
            if due.is_none_or(|due| now < due) {
                continue;
            }
            if cell.log.borrow().is_cleaning() {
                // A look must not put a second slice before the turn that appends wait for.
                self.want_house(&cell);
            } else if let Some(plan) = cell.housekeeping_plan(now) {
                self.submit(plan);
            }
            // A sync that flush.ms asks for goes through the append lane.
            self.mark_dirty(&cell);
        }
        self.enter_and_reap();
    }

    /// A housekeeping plan of this log is over: the next one need not wait for the next look.
    pub fn want_house(&self, cell: &Rc<PartitionCell>) {
        let is_due = cell.log.borrow().next_due().is_some_and(|due| due <= now());
        if is_due {
            let mut due = self.house.due.borrow_mut();
            // Once is enough: its completion asks again.
            if !due.iter().any(|it| Rc::ptr_eq(it, cell)) {
                due.push_back(cell.clone());
            }
            self.house.begun.notify_one();
        }
    }

    /// Starts the plan that has waited longest. One at a time: with plain files it is over
    /// afterwards, and everybody else has waited for it.
    fn go_on_keeping(&self, now: Timestamp) {
        let next = self.house.due.borrow_mut().pop_front();
        if let Some(cell) = next
            && let Some(plan) = cell.housekeeping_plan(now)
        {
            self.note_slice(&cell, self.is_dirty());
            self.submit(plan);
            self.enter_and_reap();
        }
        if !self.house.due.borrow().is_empty() {
            self.house.begun.notify_one();
        }
    }

    /// Partitions that are read-only for want of space recover to their log end and serve again,
    /// when there is space. All of a shard's lie on one file system.
    pub fn resume(&self, now: Timestamp) {
        for cell in self.cells() {
            let is_early = cell.resume_not_before.get().is_some_and(|it| Instant::now() < it);
            let is_read_only = matches!(cell.log.borrow().state(), LogState::ReadOnly(_));
            self.note_tail(&cell);
            // What failed must be out of the journal before its offsets are given again.
            let awaits_void = cell.log.borrow().awaits_void();
            if is_read_only && !is_early && !awaits_void && !cell.is_busy() {
                let log = &cell.log;
                match self.blocking(cell.number, |disk| log.borrow_mut().check_room(disk)) {
                    Ok(()) => self.resume_one(&cell, now),
                    Err(DiskError::NoSpace | DiskError::TooManyFiles(_)) => return,
                    Err(error) => {
                        let partition = cell.directory.display();
                        tracing::error!(%partition, %error, "cannot resume writing");
                    }
                }
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
                self.tell_journal(cell);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::faults::FaultHook;
    use crate::format::batch::Codec;
    use crate::format::names::TopicName;
    use crate::format::record::{BatchBuilder, NewRecord};
    use crate::log::Durability;
    use crate::shard::edge::{self, EdgeKind};
    use crate::shard::engine::{Engine, EngineOptions, PartitionSpec};
    use crate::shard::storage::EngineKind;

    const ENOSPC: i32 = 28;

    /// Thousands of segments may expire together; one a look would take an hour.
    #[test]
    fn files_of_deleted_segments_go_one_after_the_other_between_two_looks() {
        const SEGMENTS: usize = 100;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let run = edge::run(EdgeKind::Tokio, async move {
            let options = EngineOptions::new(directory.path(), EngineKind::PlainFile);
            let engine = Engine::start(options).expect("plain files need nothing");
            let topic = TopicName::new("topic").expect("a name");
            let mut spec = PartitionSpec::new(topic, Durability::PageCache);
            spec.config.segment_ms = 1;
            spec.config.file_delete_delay_ms = 0;
            let partition = engine.create(spec).await.expect("created");
            for number in 1..=SEGMENTS {
                let mut batch = BatchBuilder::new(Codec::None);
                let long_ago = Timestamp(1_000_000 * i64::try_from(number).expect("small"));
                batch.push(&NewRecord::value(long_ago, b"x"));
                let appended = partition.append(batch.build()).expect("serving");
                partition.reached(appended.due).await.expect("written");
            }
            let mut config = partition.config();
            config.retention_ms = Some(1);
            partition.reconfigure(config);
            let files = || std::fs::read_dir(partition.directory()).expect("readable").count();
            assert!(3 * SEGMENTS <= files(), "{} files", files());
            engine.core.retain(now());
            // The active segment rolls in the turn.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            engine.core.keep_house(now());
            // A flush, a rename and an unlink each; the looks of the chores are far fewer.
            for _ in 0..50 * SEGMENTS {
                tokio::task::yield_now().await;
            }
            assert!(files() < 10, "{} files are left", files());
        });
        run.expect("a runtime");
    }

    /// Recovery walks the whole log of the last day on the shard's thread; it must not begin before
    /// there is room for its end.
    #[test]
    fn a_full_disk_is_asked_before_the_log_is_recovered() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let run = edge::run(EdgeKind::Tokio, async move {
            let faults = FaultHook::new();
            let options = EngineOptions {
                faults: Some(faults.clone()),
                ..EngineOptions::new(directory.path(), EngineKind::PlainFile)
            };
            let engine = Engine::start(options).expect("plain files need nothing");
            let topic = TopicName::new("topic").expect("a name");
            let spec = PartitionSpec::new(topic, Durability::PageCache);
            let partition = engine.create(spec).await.expect("created");
            let mut batch = BatchBuilder::new(Codec::None);
            batch.push(&NewRecord::value(now(), b"x"));
            faults.fail_write(1, ENOSPC);
            let appended = partition.append(batch.build()).expect("serving");
            partition.reached(appended.due).await.expect_err("there is no room");
            // The first write from here on is the question; a recovery would succeed.
            faults.fail_write(1, ENOSPC);
            engine.core.resume(now());
            assert!(matches!(partition.state(), LogState::ReadOnly(_)));
            let names = std::fs::read_dir(partition.directory()).expect("readable");
            let mut names = names.map(|entry| entry.expect("an entry").file_name());
            assert!(!names.any(|name| name.to_string_lossy().ends_with(".tmp")));
            engine.core.resume(now());
            assert_eq!(partition.state(), LogState::Serving);
        });
        run.expect("a runtime");
    }
}
