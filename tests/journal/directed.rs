//! Short stories, each about one rule that chance would meet too rarely.

use bytes::Bytes;
use uringlog::disk::sim::SimDisk;
use uringlog::disk::{
    Disk, DiskError, FileId, Finished, Lane, Place, Plan, PlanTag, Step, StepFailure,
};
use uringlog::log::journal::{Turn, replay};
use uringlog::log::{JournalError, JournalReplay};
use uringlog::units::{ByteCount, Position};

use crate::random::Random;
use crate::world::{DIRECTORY_ID, HANDS, MAKER, Settings, World};

const SMALL_BYTES: usize = 300;

fn world() -> World {
    world_of(1)
}

/// Partitions with one journal, nothing random about the sizes.
fn world_of(partitions: u32) -> World {
    let mut random = Random::new(0);
    let mut settings = Settings::of(0, &mut random);
    settings.partitions = partitions;
    settings.shards = 1;
    settings.journal_bytes = ByteCount(4096 * (2 + 24));
    settings.plan_bytes_max = ByteCount(4_000);
    settings.config.segment_bytes = ByteCount(1 << 20);
    let mut world = World::new(settings, random);
    world.start(false).expect("nothing is wrong yet");
    for slot in 0..world.slots.len() {
        world.create(slot);
    }
    world
}

impl World {
    fn appended(&mut self, bytes: usize) {
        let batch = self.batch(1, bytes);
        self.append(0, batch);
        self.rest();
    }

    fn used(&self) -> u64 {
        self.journals[0].fill().0.0
    }
}

/// Files that are synced make a record needless, but a replay only learns it from a later record:
/// until that one is durable, the old one's place must not be written to.
#[test]
fn space_is_free_only_when_a_durable_record_says_so() {
    let mut world = world();
    // Too few for a sync to be asked for.
    for _ in 0..2 {
        world.appended(SMALL_BYTES);
    }
    let used = world.used();
    assert_eq!(used, 2 * 4096, "each has a record");
    // It syncs the file, and goes past the journal.
    world.appended(9_000);
    assert_eq!(world.journals[0].counters().large, 1);
    assert_eq!(world.used(), used, "no record has said so");
    world.appended(SMALL_BYTES);
    assert_eq!(world.used(), 4096, "the newest record says that it is the only one needed");
}

/// The journal names segments, and takes one that isn't there for deleted.
#[test]
fn a_segment_that_retention_begins_has_a_durable_name_before_a_record_names_it() {
    let mut world = world();
    world.appended(SMALL_BYTES);
    world.pass_time(100_000);
    let now = world.now;
    let log = world.slots[0].log.as_mut().expect("it was opened");
    log.retain(now);
    assert_eq!(log.recordable_bytes(), None, "nothing is recorded in front of the roll");
    let plan = log.plan(now).expect("the roll");
    let is_made = plan.steps.iter().any(|it| matches!(it, Step::Create { .. }));
    assert!(is_made, "{plan:?}");
    let is_named = plan.steps.iter().any(|it| matches!(it, Step::SyncDirectory { .. }));
    assert!(is_named, "{plan:?}");
}

/// Of two syncs of one file that overlap, only one hears that pages were lost; the other's success
/// proves nothing.
#[test]
fn a_log_has_one_sync_under_way() {
    let mut world = world();
    world.appended(SMALL_BYTES);
    let large = world.batch(1, 9_000);
    world.append(0, large);
    let now = world.now;
    let log = world.slots[0].log.as_mut().expect("it was opened");
    log.settle();
    let settling = log.housekeeping(now).expect("a record has what no sync has covered");
    assert!(settling.steps.iter().any(|it| matches!(it, Step::Sync { .. })));
    assert!(log.plan(now).is_none(), "a plan that syncs waits for it");
    let finished = world.disk.run(settling);
    let log = world.slots[0].log.as_mut().expect("it was opened");
    log.complete(finished, now);
    let plan = log.plan(now).expect("now it may");
    log.settle();
    assert!(log.housekeeping(now).is_none(), "and the other way round");
    let finished = world.disk.run(plan);
    let log = world.slots[0].log.as_mut().expect("it was opened");
    log.complete(finished, now);
    assert!(log.housekeeping(now).is_none(), "the plan has synced everything");
    assert!(!log.is_settling());
}

/// A plan of nobody's.
fn by_hand(world: &mut World, steps: impl IntoIterator<Item = Step>) {
    let tag = PlanTag { owner: HANDS, lane: Lane::Append, number: 0 };
    let plan = Plan { tag, steps: steps.into_iter().collect() };
    assert_eq!(world.disk.run(plan).result, Ok(()));
}

fn replayed(world: &mut World) -> Result<JournalReplay, JournalError> {
    replay(&mut world.disk, (MAKER, &World::root()), (DIRECTORY_ID, 1), 1)
}

/// Kafka was started on a directory that a crash had left, and has acknowledged something where the
/// journal has something else. Whichever is longer, it is left alone.
#[test]
fn what_another_program_has_written_is_not_written_over() {
    for (own, others) in [(300, 300), (300, 90), (300, 5_000)] {
        let mut world = world();
        world.appended(own);
        world.swap_disk(SimDisk::reopen);
        let batch = Bytes::copy_from_slice(world.batch(1, others).as_bytes());
        let directory = world.slots[0].directory.clone();
        let place = Place { directory, name: "00000000000000000000.log".into() };
        let file = FileId { owner: HANDS, number: 1 };
        let length = ByteCount(0);
        let parts = [batch].into_iter().collect();
        let steps = [
            Step::Open { file, place },
            Step::Truncate { file, length },
            Step::Write { file, at: Position(0), parts },
        ];
        by_hand(&mut world, steps);
        let refused = replayed(&mut world).expect_err("another batch stands there");
        let is_it = matches!(&refused, JournalError::Foreign { offset, .. } if offset.0 == 0);
        assert!(is_it, "{refused}");
    }
}

#[test]
fn a_journal_that_is_gone_is_missed_until_a_stop_in_order() {
    let remove = |world: &mut World| {
        let steps = [
            Step::Remove { place: World::journal_place(0) },
            Step::SyncDirectory { directory: World::root() },
        ];
        let tag = PlanTag { owner: HANDS, lane: Lane::Append, number: 0 };
        let plan = Plan { tag, steps: steps.into_iter().collect() };
        assert_eq!(world.disk.run(plan).result, Ok(()));
    };
    let replayed =
        |world: &mut World| replay(&mut world.disk, (MAKER, &World::root()), (DIRECTORY_ID, 1), 1);
    let mut killed = world();
    killed.appended(SMALL_BYTES);
    remove(&mut killed);
    let missing =
        JournalError::Missing { directory: World::root().to_path_buf(), shard: 0, shards: 1 };
    assert_eq!(replayed(&mut killed), Err(missing));
    let count = Place { directory: World::root(), name: "commit-journals".into() };
    by_hand(&mut killed, [Step::Remove { place: count }]);
    assert!(replayed(&mut killed).is_ok_and(|report| report.journals.is_empty()));

    let mut stopped = world();
    stopped.appended(SMALL_BYTES);
    assert!(stopped.stop());
    remove(&mut stopped);
    assert!(replayed(&mut stopped).is_ok_and(|report| report.journals.is_empty()));
}

/// Ends the turn's record with the disk's outcome; false when there is none.
fn seal(world: &mut World) -> bool {
    let Some(plan) = world.journals[0].seal() else { return false };
    let finished = world.disk.run(plan);
    world.journals[0].finish(finished);
    true
}

/// Plans an append, and says whether the journal took it.
fn recorded(world: &mut World, slot: usize) -> Option<Plan> {
    let batch = world.batch(1, 100);
    world.append(slot, batch);
    let (now, log) = (world.now, world.slots[slot].log.as_mut().expect("it was opened"));
    let Turn::Plan(plan) = world.journals[0].plan(log, now) else { panic!("nothing waits") };
    log.is_recorded().then_some(plan)
}

/// Several partitions want something taken back when the journal is full. The voids must not take
/// the last block: the record that gives space back needs it.
#[test]
fn voids_leave_room_for_the_record_that_gives_space_back() {
    const SLOW: std::ops::Range<usize> = 1..8;
    let mut world = world_of(8);
    for slot in 0..8 {
        let batch = world.batch(1, 100);
        world.append(slot, batch);
        world.rest();
    }
    let slow: Vec<Plan> = SLOW.map(|slot| recorded(&mut world, slot).expect("room")).collect();
    assert!(seal(&mut world));
    for slot in SLOW {
        world.slots[slot].log.as_mut().expect("it was opened").record_over(true);
    }
    // Another one fills the journal, and no sync is over meanwhile.
    while let Some(plan) = recorded(&mut world, 0) {
        let (now, finished) = (world.now, world.disk.run(plan));
        world.slots[0].log.as_mut().expect("it was opened").complete(finished, now);
        assert!(seal(&mut world));
        world.slots[0].log.as_mut().expect("it was opened").record_over(true);
    }
    for (slot, plan) in SLOW.zip(slow) {
        let result = Err(StepFailure { step: 0, partial: false, error: DiskError::NoSpace });
        let (now, log) = (world.now, world.slots[slot].log.as_mut().expect("it was opened"));
        log.complete(Finished { plan, result }, now);
        if world.journals[0].take_back(log) {
            assert!(seal(&mut world));
            world.slots[slot].log.as_mut().expect("it was opened").void_over(true);
        }
    }
    // Now everything is synced.
    for slot in 0..8 {
        let owner = world.slots[slot].number;
        world.journals[0].forget(owner);
    }
    assert!(world.journals[0].wants_seal());
    assert!(seal(&mut world), "no record can be written any more");
    assert!(world.used() <= 4096);
}
