//! Random histories with rounds in between.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use uringlog::disk::Disk;
use uringlog::disk::sim::{SimDisk, SimOptions};
use uringlog::log::{Durability, Opening, PartitionLog};
use uringlog::units::{ByteCount, Offset};

use crate::history::{History, Stored, config, spec};
use crate::rounds;
use crate::support::{KILLED, Store};

const ROOT: &str = "/data";
/// Memory for four keys: a dirty part takes several rounds.
const LITTLE: ByteCount = ByteCount(5 * 24);

pub fn disk(seed: u64) -> SimDisk {
    SimDisk::new(SimOptions { seed, root: PathBuf::from(ROOT), ..SimOptions::default() })
}

pub fn history(seed: u64, tier: Durability) -> History<SimDisk> {
    History::create(disk(seed), spec(Path::new(ROOT), config(tier)), seed)
}

/// Appends, cleans, restarts; everything is checked after each round.
fn play(seed: u64, memory: ByteCount) -> u64 {
    let mut history = history(seed, Durability::Device);
    let mut rounds = 0;
    for _ in 0..8 {
        for _ in 0..25 {
            history.act();
        }
        let next = history.random.below(4);
        history = match next {
            0 => history.restart(true),
            1 => history.restart(false),
            _ => history,
        };
        history.store.now.0 += history.random.below(1_500).cast_signed();
        rounds += u64::from(history.clean(memory).is_some());
    }
    history.end_transaction();
    history.clean(memory);
    history.store.now.0 += 2_000;
    while history.clean(memory).is_some() {
        rounds += 1;
    }
    rounds
}

#[test]
fn rounds_leave_the_newest_and_what_they_must() {
    let rounds: u64 = (1..=20).map(|seed| play(seed, rounds::MEMORY)).sum();
    assert!(100 < rounds, "{rounds} rounds");
}

/// Item 100: the map is full in the middle of the dirty part, again and again.
#[test]
fn item_100_a_full_map_takes_several_rounds() {
    let rounds: u64 = (1..=8).map(|seed| play(seed, LITTLE)).sum();
    assert!(100 < rounds, "{rounds} rounds");
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    PowerCut,
    Kill,
}

/// A history with a round or two behind it and another one about to begin.
fn prepared(seed: u64) -> History<SimDisk> {
    let mut history = history(seed, Durability::Device);
    for _ in 0..2 {
        for _ in 0..22 {
            history.act();
        }
        history.clean_all();
        history.store.now.0 += 700;
    }
    for _ in 0..22 {
        history.act();
    }
    history.end_transaction();
    for _ in 0..6 {
        history.act();
    }
    history.store.settle();
    history
}

struct Seen {
    records: Vec<Stored>,
    end: Offset,
    sequences: Vec<Option<(i16, i32)>>,
}

fn look(history: &mut History<SimDisk>) -> Seen {
    let sequence = |id| {
        let known = history.store.log.producers().last_sequence(uringlog::units::ProducerId(id));
        known.map(|(epoch, sequence)| (epoch.0, sequence.0))
    };
    let sequences = [7, 9].map(sequence).to_vec();
    let end = history.store.log.cursors().log_end;
    Seen { records: history.read(), end, sequences }
}

/// Cleans until the power fails after so many steps; `None` when the round was over before.
fn cut(seed: u64, steps: u64) -> Option<(History<SimDisk>, Seen)> {
    let mut history = prepared(seed);
    let before = look(&mut history);
    history.store.disk.crash_after_steps(steps);
    let Store { log, disk, now } = &mut history.store;
    let cleanable = log.cleanable(*now).expect("it serves");
    log.begin_cleaning(&cleanable, rounds::options(rounds::MEMORY, 900), *now);
    while let Some(plan) = log.plan(*now).or_else(|| log.housekeeping(*now)) {
        let finished = Disk::run(disk, plan);
        if disk.is_crashed() {
            return Some((history, before));
        }
        log.complete(finished, *now);
    }
    None
}

/// Starts again after a crash; adds the kinds of names that it found.
fn recover(
    mut history: History<SimDisk>,
    end: End,
    found: &mut BTreeSet<String>,
) -> History<SimDisk> {
    let first_dirty = history.store.log.first_dirty();
    let cursors = history.store.log.cursors();
    // The checkpoint is as old as it likes.
    let recovery_point = (history.random.below(2) == 0).then_some(cursors.recovery_point);
    let how = Opening { recovery_point, ..KILLED };
    let over = |disk: SimDisk| match end {
        End::PowerCut => disk.crash(),
        End::Kill => disk.reopen(),
    };
    let now = history.store.now;
    let spec = spec(Path::new(ROOT), config(Durability::Device));
    let mut disk = over(history.store.disk);
    found.extend(names(&mut disk).iter().filter_map(|name| kind(name)));
    for _ in 0..history.random.below(3) {
        disk.crash_after_steps(history.random.below(60));
        if let Err(error) = PartitionLog::open(&mut disk, spec.clone(), how, now) {
            assert!(disk.is_crashed(), "{error}");
        }
        disk = over(disk);
    }
    let (mut store, report) = Store::open(disk, spec, how).expect("it opens");
    assert!(!report.is_lossy(), "{report}");
    store.now = now;
    store.log.set_first_dirty(first_dirty);
    history.store = store;
    history
}

/// What a whole round leaves.
fn cleaned(seed: u64) -> Vec<Stored> {
    let mut history = prepared(seed);
    history.clean_all().expect("something is dirty");
    history.read()
}

fn check(seed: u64, end: End, found: &mut BTreeSet<String>) -> u64 {
    let left = cleaned(seed);
    let mut steps = 0;
    while let Some((history, before)) = cut(seed, steps) {
        let context = format!("seed {seed}, {end:?}, step {steps}");
        let mut history = recover(history, end, found);
        let after = look(&mut history);
        assert_eq!(after.end, before.end, "{context}");
        assert_eq!(after.sequences, before.sequences, "{context}");
        for stored in &left {
            assert!(after.records.contains(stored), "{context}: {stored:?} is gone");
        }
        for stored in &after.records {
            assert!(before.records.contains(stored), "{context}: {stored:?} is made up");
        }
        history.check_visible();
        check_names(&mut history, &context);
        // The next round finishes what this one began.
        history.clean_all();
        assert_eq!(history.read(), left, "{context}");
        steps += 1;
    }
    steps
}

fn names(disk: &mut SimDisk) -> BTreeSet<String> {
    let directory = Path::new(ROOT).join("topic-0");
    let listed = disk.list(&directory).expect("it is there");
    listed.into_iter().map(|entry| entry.name).collect()
}

/// What a name has behind its offset, if only a round, or a deletion, makes such names.
fn kind(name: &str) -> Option<String> {
    let is_left = [".cleaned", ".swap", ".deleted"].iter().any(|it| name.ends_with(it));
    is_left.then(|| name.trim_start_matches(|it: char| it.is_ascii_digit()).to_owned())
}

/// Nothing of a round is left behind.
fn check_names(history: &mut History<SimDisk>, context: &str) {
    let names = names(&mut history.store.disk);
    assert_eq!(names.iter().find(|name| kind(name).is_some()), None, "{context}");
}

/// Whether crashes left every name that a round gives a file.
fn check_kinds(found: &BTreeSet<String>) {
    for suffix in [".cleaned", ".swap", ".deleted"] {
        for kind in [".log", ".index", ".timeindex", ".txnindex"] {
            assert!(found.contains(&format!("{kind}{suffix}")), "{kind}{suffix} of {found:?}");
        }
    }
    assert!(found.contains(".snapshot.deleted"), "{found:?}");
}

/// Item 85: a crash at every step of a round, and again while recovering from it.
#[test]
fn item_85_a_kill_at_any_step_of_a_round_loses_nothing() {
    let mut found = BTreeSet::new();
    let steps: u64 = (1..=3).map(|seed| check(seed, End::Kill, &mut found)).sum();
    assert!(200 < steps, "{steps} steps");
    check_kinds(&found);
}

/// The same with what was not synced lost, or part of it.
#[test]
fn item_85_a_power_cut_at_any_step_of_a_round_loses_nothing() {
    let mut found = BTreeSet::new();
    let steps: u64 = (4..=6).map(|seed| check(seed, End::PowerCut, &mut found)).sum();
    assert!(200 < steps, "{steps} steps");
    check_kinds(&found);
}
