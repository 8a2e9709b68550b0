//! Whether a log with a journal leaves the very files that one without leaves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use uringlog::disk::sim::SimDisk;
use uringlog::units::Offset;

use crate::random::Random;
use crate::world::{ROOT, Settings, World};

/// Everything but the journals.
fn tree(world: &World) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut tree = world.disk.tree(Path::new(ROOT)).expect("the root is there");
    // When the files of deleted segments go hangs on how far the disk has come.
    tree.retain(|path, _| path.extension().is_none_or(|it| it != "journal" && it != "deleted"));
    tree.remove(Path::new("commit-journals"));
    tree
}

/// Plays a history without faults: its files after a clean stop, and after a kill and a start.
fn play(seed: u64, is_journaled: bool) -> (Vec<BTreeMap<PathBuf, Vec<u8>>>, u64) {
    let mut random = Random::new(seed);
    let settings = Settings { is_journaled, ..Settings::of(seed, &mut random) };
    let mut world = World::new(settings, random);
    world.start(false).expect("nothing is wrong");
    (0..world.slots.len()).for_each(|slot| world.create(slot));
    let mut trees = Vec::new();
    for is_stopped in [true, false] {
        for _ in 0..5 + world.random.below(30) {
            world.act_calmly();
        }
        if is_stopped {
            assert!(world.stop(), "nothing is wrong");
            trees.push(tree(&world));
        } else {
            world.rest();
            // How far the files were synced is what differs. Recovery builds the indexes behind it
            // anew, which begins with a fresh byte count where an append after a start did not.
            for slot in &mut world.slots {
                slot.known.recovery_point = Offset(0);
            }
        }
        world.swap_disk(SimDisk::reopen);
        world.start(is_stopped).expect("nothing is wrong");
        let mut tree = tree(&world);
        // After a kill, which indexes are built anew hangs on when the disk had come how far.
        tree.retain(|path, _| is_stopped || path.extension().is_some_and(|it| it == "log"));
        trees.push(tree);
    }
    let files = trees.iter().map(|tree| u64::try_from(tree.len()).expect("small")).sum();
    (trees, files)
}

#[test]
fn files_are_those_of_a_log_without_a_journal() {
    let mut files = 0;
    for seed in 0..500 {
        let (with, count) = play(seed, true);
        let (without, _) = play(seed, false);
        for (number, (with, without)) in with.iter().zip(&without).enumerate() {
            assert_same(with, without, &format!("history {seed}, look {number}"));
        }
        files += count;
    }
    assert!(files > 5_000, "{files} files were compared");
}

fn assert_same(
    with: &BTreeMap<PathBuf, Vec<u8>>,
    without: &BTreeMap<PathBuf, Vec<u8>>,
    context: &str,
) {
    let names = |tree: &BTreeMap<PathBuf, Vec<u8>>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(with), names(without), "{context}");
    for (path, bytes) in with {
        assert!(*bytes == without[path], "{context}: {} differs", path.display());
    }
}
