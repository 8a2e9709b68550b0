//! Kinds of histories, and many of each.

use std::io::Write;
use std::path::Path;

use uringlog::disk::sim::SimDisk;
use uringlog::format::journal::{BLOCK_BYTES, RECORDS_START, Record, Superblock};
use uringlog::log::{JournalError, JournalReplay};

use crate::actions::Weights;
use crate::check::Asked;
use crate::random::Random;
use crate::start::Stopped;
use crate::world::{Counts, Phase, ROOT, Settings, World};

/// What happens in a kind of history.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    name: &'static str,
    weights: Weights,
    /// Out of 8 lives, how many end with a clean stop, and how many of the others with a kill.
    stops: u64,
    kills: u64,
    /// Whether a bit of a journal is flipped in the end.
    is_damaged: bool,
}

const QUIET: Weights = Weights { retention: 6, topics: 0, space: 0, faults: 0 };

/// Says where it was when something went wrong.
struct Seed(&'static str, u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in history {} of {}", self.1, self.0);
        }
    }
}

/// How a life ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Clean,
    Killed,
    Cut,
}

/// A bit that was flipped.
#[derive(Clone, Copy, Debug)]
struct Flip {
    is_in_superblocks: bool,
    is_in_newest: bool,
}

impl Kind {
    fn play(self, seed: u64) -> Counts {
        let _seed = Seed(self.name, seed);
        let mut random = Random::new(seed);
        let settings = Settings::of(seed, &mut random);
        let mut world = World::new(settings, random);
        world.start(false).expect("nothing is wrong yet");
        for slot in 0..world.slots.len() {
            world.create(slot);
        }
        let lives = 1 + world.random.below(3);
        for life in 1..=lives {
            let end = self.live(&mut world);
            let flip = (self.is_damaged && life == lives).then(|| flip_a_bit(&mut world)).flatten();
            world.settings.shards = 1 + u32::try_from(world.random.below(2)).expect("small");
            if self.start(&mut world, end, flip).is_none() {
                break;
            }
        }
        if !world.journals.is_empty() {
            go_on(&mut world);
        }
        world.counts.histories += 1;
        world.counts
    }

    /// From a start to an end.
    fn live(self, world: &mut World) -> End {
        if world.random.one_in(2) {
            let steps = world.random.below(600);
            world.disk.crash_after_steps(steps);
        }
        let actions = if world.random.one_in(8) { 250 } else { 50 };
        for _ in 0..5 + world.random.below(actions) {
            world.act(self.weights);
            if world.disk.is_crashed() {
                break;
            }
        }
        let is_stop = world.random.below(8) < self.stops;
        let is_closed = is_stop && !world.disk.is_crashed() && world.stop();
        world.count_journals();
        let is_killed =
            !world.disk.is_crashed() && (is_closed || world.random.below(8) < self.kills);
        world.swap_disk(if is_killed { SimDisk::reopen } else { SimDisk::crash });
        match (is_closed, is_killed) {
            (true, true) => End::Clean,
            (_, true) => End::Killed,
            (_, false) => End::Cut,
        }
    }

    /// Starts, with the power cut a few times on the way, and checks. `None` when the journals were
    /// refused.
    fn start(self, world: &mut World, end: End, flip: Option<Flip>) -> Option<()> {
        let mut is_clean = end == End::Clean;
        world.tell(|| format!("ended {end:?}, {flip:?}"));
        let mut asked = Asked::All;
        for _ in 0..world.random.below(3) {
            let steps = world.random.below(120);
            world.disk.crash_after_steps(steps);
            match world.start(is_clean) {
                Ok(report) => asked = judge(asked, &report, flip),
                Err(Stopped::Cut) if flip.is_some() => asked = Asked::NothingForeign,
                Err(Stopped::Cut) => {}
                Err(Stopped::Refused(error)) => return refused(world, flip, &error),
            }
            is_clean = false;
            world.counts.cut_starts += 1;
            world.swap_disk(SimDisk::crash);
        }
        match world.start(is_clean) {
            Ok(report) => {
                asked = judge(asked, &report, flip);
                world.tell(|| format!("started: {report}"));
                world.counts.note(&report);
                world.check(asked);
                Some(())
            }
            Err(Stopped::Cut) => panic!("nobody has cut the power"),
            Err(Stopped::Refused(error)) => refused(world, flip, &error),
        }
    }
}

/// What can be asked for after a replay.
fn judge(asked: Asked, report: &JournalReplay, flip: Option<Flip>) -> Asked {
    let Some(flip) = flip else {
        assert!(!report.is_lossy(), "nothing is damaged: {report}");
        return asked;
    };
    if report.is_lossy() || flip.is_in_newest { Asked::NothingForeign } else { asked }
}

fn refused(world: &mut World, flip: Option<Flip>, error: &JournalError) -> Option<()> {
    let flip = flip.unwrap_or_else(|| panic!("nothing is damaged: {error}"));
    match error {
        JournalError::Superblock { .. } => assert!(flip.is_in_superblocks, "{error}"),
        // What takes back stood where the damage is.
        JournalError::Foreign { .. } => assert!(!flip.is_in_superblocks, "{error}"),
        other => panic!("{other}"),
    }
    world.counts.refused += 1;
    world.journals.clear();
    None
}

/// Flips a bit of a journal, most often in a record that counts.
fn flip_a_bit(world: &mut World) -> Option<Flip> {
    let shard = world.random.below(u64::from(world.settings.shards));
    let name = format!("shard-{shard}.journal");
    let path = Path::new(ROOT).join(name);
    let bytes = world.disk.durable_bytes(&path).expect("the journal is there");
    let spans = spans(&bytes);
    let newest = spans.last().map(|(_, from, to)| *from..*to);
    let (from, to) = match spans.is_empty() || world.random.one_in(4) {
        true => (0, u64::try_from(bytes.len()).expect("small")),
        false => {
            let (_, from, to) = spans[world.random.size_below(spans.len())];
            (from, to)
        }
    };
    let byte = from + world.random.below(to - from);
    let bit = u8::try_from(world.random.below(8)).expect("small");
    world.disk.flip_bit(&path, byte, bit);
    world.counts.damaged += 1;
    let is_in_newest = newest.is_some_and(|newest| newest.contains(&byte));
    Some(Flip { is_in_superblocks: byte < RECORDS_START, is_in_newest })
}

/// Sequence, begin and end of each record of the round that is on, oldest first.
fn spans(bytes: &[u8]) -> Vec<(u64, u64, u64)> {
    let superblock = Superblock::newest(bytes).expect("nothing is damaged yet");
    let mut spans = Vec::new();
    let start = usize::try_from(RECORDS_START).expect("small");
    for at in (start..bytes.len()).step_by(BLOCK_BYTES) {
        let Some(record) = Record::parse(&bytes[at..], superblock.generation) else { continue };
        let at = u64::try_from(at).expect("small");
        spans.push((record.header.sequence, at, at + record.padded_length()));
    }
    spans.sort_unstable();
    spans
}

/// Every partition takes batches and acknowledges them.
fn go_on(world: &mut World) {
    for slot in 0..world.slots.len() {
        if world.slots[slot].phase == Phase::Gone {
            world.create(slot);
        }
        let batch = world.batch(1, 50);
        world.append(slot, batch);
        let before = world.high_watermark(slot);
        world.rest();
        assert!(before < world.high_watermark(slot), "it was appended and not acknowledged");
    }
}

impl Counts {
    fn note(&mut self, report: &JournalReplay) {
        self.starts += 1;
        for journal in &report.journals {
            self.replayed += journal.records;
            self.written += u64::from(0 < journal.written.0);
            self.voided += journal.voided;
            self.deleted += journal.deleted;
        }
    }
}

impl World {
    fn count_journals(&mut self) {
        for journal in &self.journals {
            let counters = journal.counters();
            self.counts.records += counters.records;
            self.counts.recorded_plans += counters.plans;
            self.counts.large_plans += counters.large;
            self.counts.full += counters.full;
            self.counts.settles += counters.settles;
        }
        for slot in &self.slots {
            self.counts.acked += u64::try_from(slot.known.acked().count()).expect("small");
        }
    }
}

/// How many of the histories are played where nobody says otherwise: all of them take an optimised
/// build, `JOURNAL_PERCENT=100 CARGO_PROFILE_TEST_OPT_LEVEL=1 cargo test --test journal`.
const PERCENT: u64 = 5;

/// Plays histories `0..count`, `JOURNAL_PERCENT` of them, or the one that `JOURNAL_SEED` names.
fn play_all(kind: Kind, count: u64) -> Counts {
    let number = |name: &str| std::env::var(name).ok().map(|it| it.parse().expect("a number"));
    let percent: u64 = number("JOURNAL_PERCENT").unwrap_or(PERCENT);
    let seeds = match number("JOURNAL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..count * percent / 100,
    };
    let began = std::time::Instant::now();
    let mut total = Counts::default();
    for seed in seeds {
        total.add(kind.play(seed));
    }
    // Past the capture of the test's output: whoever looks at CI sees how many there were.
    let took = began.elapsed().as_secs();
    let said = writeln!(std::io::stderr(), "{}: {took} s, {total:?}", kind.name);
    said.expect("stderr takes a line");
    total
}

#[test]
fn power_cuts_cost_nothing() {
    let kind = Kind { name: "power cuts", weights: QUIET, stops: 1, kills: 0, is_damaged: false };
    let counts = play_all(kind, 40_000);
    assert!(counts.written > counts.histories / 8, "{counts:?}");
}

#[test]
fn kills_and_stops_cost_nothing() {
    let weights = Weights { retention: 15, ..QUIET };
    let kind = Kind { name: "kills and stops", weights, stops: 4, kills: 5, is_damaged: false };
    let counts = play_all(kind, 20_000);
    assert!(counts.clean_stops > counts.histories / 4, "{counts:?}");
}

#[test]
fn full_and_failing_disks_cost_nothing() {
    let weights = Weights { retention: 8, topics: 1, space: 8, faults: 5 };
    let kind = Kind { name: "failing disks", weights, stops: 2, kills: 3, is_damaged: false };
    let counts = play_all(kind, 25_000);
    assert!(counts.resumed > counts.histories / 4, "{counts:?}");
    assert!(counts.voided > 0 && counts.restarts > 0, "{counts:?}");
}

#[test]
fn deleted_topics_stay_away() {
    let weights = Weights { retention: 4, topics: 10, space: 0, faults: 0 };
    let kind = Kind { name: "topics", weights, stops: 1, kills: 3, is_damaged: false };
    let counts = play_all(kind, 10_000);
    assert!(counts.deleted > counts.histories / 10, "{counts:?}");
}

#[test]
fn damage_is_reported() {
    let weights = Weights { retention: 6, topics: 1, space: 2, faults: 1 };
    let kind = Kind { name: "damage", weights, stops: 0, kills: 3, is_damaged: true };
    let counts = play_all(kind, 10_000);
    assert!(counts.damaged > counts.histories / 2, "{counts:?}");
}
