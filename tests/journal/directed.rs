//! Short stories, each about one rule that chance would meet too rarely.

use uringlog::units::ByteCount;

use crate::random::Random;
use crate::world::{Settings, World};

const SMALL_BYTES: usize = 300;

/// One partition and one journal, nothing random about the sizes.
fn world() -> World {
    let mut random = Random::new(0);
    let mut settings = Settings::of(0, &mut random);
    settings.partitions = 1;
    settings.shards = 1;
    settings.journal_bytes = ByteCount(4096 * (2 + 24));
    settings.plan_bytes_max = ByteCount(4_000);
    settings.config.segment_bytes = ByteCount(1 << 20);
    let mut world = World::new(settings, random);
    world.start(false).expect("nothing is wrong yet");
    world.create(0);
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
