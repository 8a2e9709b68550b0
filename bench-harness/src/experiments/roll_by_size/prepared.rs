//! What a roll would take if the files of the next segment were there already, under another name.
//!
//! Two sets of logs get the same batches on the engine's own disk. One set's plans run as the log
//! makes them: the plan that rolls makes the files. Of the other set's, what makes them is taken
//! out and run before, under temporary names, and the plan that rolls renames them. The log knows
//! nothing of it, so both sets must leave the same bytes under the same names, which is checked.

use std::hash::{DefaultHasher, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uringlog::disk::plain::PlainDisk;
use uringlog::disk::plan::{PlanTag, Steps};
use uringlog::disk::{Disk, FileId, Finished, Lane, Place, Plan, Step};
use uringlog::log::{LogConfig, LogSpec, PartitionLog};
use uringlog::ring::{RingDisk, RingOptions};
use uringlog::units::{LeaderEpoch, TopicId};
use uringlog::{Durability, EngineKind, RecordBatch, now};

use super::cost::Point;
use crate::engines::batches;
use crate::experiments::measure::f64_of;
use crate::experiments::{DoingTo, Failure};
use crate::record::picture::names;
use crate::record::{Kind, Latency, Picture, Recorder, unit};
use crate::run::Context;

/// Batches that fit a segment: the first rolls, the others are its neighbours.
const FIT: u64 = 4;
/// Files that a log may have open: three of its active segment, three of the one before it until
/// that is flushed, a snapshot, and one that housekeeping opens.
const FILES_OF_A_LOG: u64 = 8;
/// What Kafka neither loads nor cleans: it asks for the end of a name.
const TEMPORARY_SUFFIX: &str = ".prepared";
/// Names of a segment's files end so.
const SEGMENT_SUFFIXES: [&str; 3] = [".log", ".index", ".timeindex"];

/// Latencies of plans by what they do.
#[derive(Default)]
struct Latencies {
    unprepared: Latency,
    prepared: Latency,
    preparation: Latency,
    neighbour: Latency,
}

/// Logs whose plans run as they are, or with their next segments prepared.
struct Set {
    logs: Vec<PartitionLog>,
    is_prepared: bool,
}

/// Every point of the sweep.
///
/// # Errors
/// Whatever the disk refuses, and sets that differ in the end.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let sweep = context.parameters.numbers("cost_partitions");
    for partitions in &sweep {
        let point = Point::new(context, *partitions);
        recorder.vary("cost_partitions", *partitions);
        let root = context.folder.join(format!("prepared-{partitions}"));
        let latencies = measure(context, &root, &point)?;
        std::fs::remove_dir_all(&root).doing_to("remove", &root)?;
        recorder.latency("plan_that_rolls_unprepared", &latencies.unprepared);
        recorder.latency("plan_that_rolls_prepared", &latencies.prepared);
        recorder.latency("plan_that_prepares", &latencies.preparation);
        recorder.latency("plan_that_rolls_nothing", &latencies.neighbour);
        let median = |of: &Latency| f64_of(of.total().value_at_quantile(0.5));
        let ratio = median(&latencies.prepared) / median(&latencies.unprepared);
        recorder.figure("prepared_to_unprepared_p50", ratio, unit::RATIO);
    }
    pictures(recorder, &sweep);
    recorder.note(
        "Prepared next segments: the log has none, and makes a segment's files in the plan that \
         rolls. The plans that are timed for them are the log's own, on the engine's disk, without \
         shard and commit journal; for the prepared form the files are made, sized and, in the \
         device tier, synced before, under temporary names, and the plan that rolls renames them. \
         Both forms left the same bytes under the same names.",
    );
    Ok(())
}

fn measure(context: &Context, root: &Path, point: &Point) -> Result<Latencies, Failure> {
    let mut disk = disk(context, 2 * point.partitions * FILES_OF_A_LOG)?;
    let mut sets = Vec::new();
    for is_prepared in [false, true] {
        sets.push(Set::create(disk.as_mut(), context, (root, point, is_prepared))?);
    }
    let what = format!("{} partitions roll, prepared or not", point.partitions);
    let progress = context.progress(point.rolls * FIT, &what);
    let mut latencies = Latencies::default();
    let batch = &point.batch;
    for turn in 0..=point.rolls * FIT {
        context.check()?;
        // The one that goes first finds another disk than the one that goes second.
        sets.reverse();
        for set in &mut sets {
            set.turn(disk.as_mut(), (batch, turn), &mut latencies)?;
        }
        progress.advance(1);
    }
    check_the_same(root, point.partitions)?;
    Ok(latencies)
}

fn disk(context: &Context, files_max: u64) -> Result<Box<dyn Disk>, Failure> {
    let files_max = u32::try_from(files_max).expect("two sets of at most 1,000 logs");
    let engine = context.engine().expect("the experiment has cells for engines");
    let (kind, _) = engine.of_library().ok_or(Failure::Skipped("no library".to_owned()))?;
    Ok(match kind {
        EngineKind::Ring => {
            let options = RingOptions { files_max, ..RingOptions::default() };
            let ring = RingDisk::new(options);
            Box::new(ring.map_err(|error| Failure::Wrong(error.to_string()))?)
        }
        EngineKind::PlainFile => {
            let files_max = usize::try_from(files_max).expect("usize is 64 bits");
            Box::new(PlainDisk::new(files_max, None))
        }
    })
}

fn directory(root: &Path, is_prepared: bool, number: u32) -> Arc<Path> {
    let form = if is_prepared { "prepared" } else { "unprepared" };
    root.join(format!("{form}-{number}")).into()
}

impl Set {
    fn create(
        disk: &mut dyn Disk,
        context: &Context,
        (root, point, is_prepared): (&Path, &Point, bool),
    ) -> Result<Set, Failure> {
        std::fs::create_dir_all(root).doing_to("make", root)?;
        let partitions = u32::try_from(point.partitions).expect("at most 1,000");
        let mut config = LogConfig::defaults(context.durability());
        config.segment_bytes.0 = point.batch_bytes() * FIT;
        config.preallocate = context.parameters.flag("preallocate");
        let mut logs = Vec::new();
        for number in 0..partitions {
            let spec = LogSpec {
                number: number + if is_prepared { partitions } else { 0 },
                directory: directory(root, is_prepared, number),
                topic_id: TopicId([0xb7; 16]),
                config: config.clone(),
                leader_epoch: LeaderEpoch(0),
                jitter_seed: 0,
            };
            let (mut log, plan) = PartitionLog::create(spec, now());
            log.complete(done(disk.run(plan))?, now());
            logs.push(log);
        }
        Ok(Set { logs, is_prepared })
    }

    /// A batch for each log: their plans go together, and each is over when it is over.
    fn turn(
        &mut self,
        disk: &mut dyn Disk,
        (batch, turn): (&RecordBatch, u64),
        latencies: &mut Latencies,
    ) -> Result<(), Failure> {
        let mut plans = Vec::new();
        for log in &mut self.logs {
            log.append(batches::copy(batch), now())?;
            let plan = log.plan(now());
            plans.push(plan.ok_or_else(|| Failure::Wrong("no plan for a batch".to_owned()))?);
        }
        let rolls = 0 < turn && turn.is_multiple_of(FIT);
        if self.is_prepared && rolls {
            let is_synced = self.logs[0].config().durability() == Durability::Device;
            let before = plans.iter_mut().map(|plan| take_out(plan, is_synced)).collect();
            for (took, _) in together(disk, before)? {
                latencies.preparation.record(took);
            }
        }
        let kind = match (rolls, self.is_prepared) {
            (true, true) => &mut latencies.prepared,
            (true, false) => &mut latencies.unprepared,
            (false, _) => &mut latencies.neighbour,
        };
        for (took, finished) in together(disk, plans)? {
            // The first ones make the logs' first files.
            if 0 < turn {
                kind.record(took);
            }
            let partitions = self.logs.len();
            let number = usize::try_from(finished.plan.tag.owner).expect("usize is 64 bits");
            self.logs[number % partitions].complete(finished, now());
        }
        self.logs.iter_mut().try_for_each(|log| chores(log, disk))
    }
}

/// Flushes and closes what was sealed, so that the next turn finds a quiet disk.
fn chores(log: &mut PartitionLog, disk: &mut dyn Disk) -> Result<(), Failure> {
    while let Some(plan) = log.housekeeping(now()) {
        let completed = log.complete(done(disk.run(plan))?, now());
        for base in completed.sealed {
            if let Some(plan) = log.unload(base) {
                log.complete(done(disk.run(plan))?, now());
            }
        }
    }
    Ok(())
}

fn done(finished: Finished) -> Result<Finished, Failure> {
    match &finished.result {
        Ok(()) => Ok(finished),
        Err(failure) => Err(Failure::Wrong(format!("a plan failed: {failure:?}"))),
    }
}

/// All of them at once; how long each took from then on.
fn together(disk: &mut dyn Disk, plans: Vec<Plan>) -> Result<Vec<(Duration, Finished)>, Failure> {
    let count = plans.len();
    let started = Instant::now();
    for plan in plans {
        disk.submit(plan);
    }
    disk.enter();
    let mut over = Vec::with_capacity(count);
    while over.len() < count {
        let finished = disk.reap(true).expect("one of the plans is under way");
        over.push((started.elapsed(), done(finished)?));
    }
    Ok(over)
}

/// Takes what makes a segment's files out of the plan, for a plan that makes them under temporary
/// names; the first one then renames them.
fn take_out(plan: &mut Plan, is_synced: bool) -> Plan {
    let (mut before, mut rest, mut made) = (Steps::new(), Steps::new(), Vec::<FileId>::new());
    let mut directory = None;
    for step in std::mem::take(&mut plan.steps) {
        match step {
            Step::Create { file, place } if is_segment_file(&place) => {
                let name = format!("{}{TEMPORARY_SUFFIX}", place.name).into_boxed_str();
                let from = Place { directory: place.directory.clone(), name };
                directory = Some(place.directory.clone());
                made.push(file);
                before.push(Step::Create { file, place: from.clone() });
                rest.push(Step::Rename { from, to: place });
            }
            Step::Allocate { file, .. } if made.contains(&file) => before.push(step),
            _ => rest.push(step),
        }
    }
    if is_synced {
        before.extend(made.into_iter().map(|file| Step::Sync { file }));
        before.extend(directory.map(|directory| Step::SyncDirectory { directory }));
    }
    plan.steps = rest;
    let tag = PlanTag { lane: Lane::Housekeeping, ..plan.tag };
    Plan { tag, steps: before }
}

fn is_segment_file(place: &Place) -> bool {
    SEGMENT_SUFFIXES.iter().any(|suffix| place.name.ends_with(suffix))
}

/// Names and bytes of every pair of logs that got the same batches.
fn check_the_same(root: &Path, partitions: u64) -> Result<(), Failure> {
    for number in 0..u32::try_from(partitions).expect("at most 1,000") {
        let [one, other] = [false, true].map(|form| directory(root, form, number));
        if contents(&one)? != contents(&other)? {
            let (one, other) = (one.display(), other.display());
            return Err(Failure::Wrong(format!("{one} and {other} hold different files")));
        }
    }
    Ok(())
}

/// Names in order, with lengths and a hash of what is in the files.
fn contents(directory: &Path) -> Result<Vec<(String, u64, u64)>, Failure> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).doing_to("list", directory)? {
        let path = entry.doing_to("list", directory)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let length = path.metadata().doing_to("look at", &path)?.len();
        // Active indexes, long holes behind their entries, included: there are two.
        let bytes = std::fs::read(&path).doing_to("read", &path)?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        found.push((name, length, hasher.finish()));
    }
    found.sort_unstable();
    Ok(found)
}

fn pictures(recorder: &mut Recorder, sweep: &[u64]) {
    let forms = ["plan_that_rolls_unprepared", "plan_that_rolls_prepared"];
    let all = [&forms[..], &["plan_that_rolls_nothing"]].concat();
    let ends = [sweep.first(), sweep.last().filter(|it| Some(*it) != sweep.first())];
    for partitions in ends.into_iter().flatten() {
        recorder.picture(
            Picture::new(
                &format!("prepared-{partitions}"),
                &format!("Next segments prepared or not; {partitions} roll together"),
                "How far the prepared line lies below the unprepared one of its engine is what \
                 preparing would save; from there to the line that rolls nothing is what it can't.",
                Kind::Percentiles { latencies: names(&all) },
            )
            .only("cost_partitions", *partitions),
        );
    }
    let medians: Vec<String> = all.iter().map(|name| format!("{name}_p50")).collect();
    recorder.picture(Picture::new(
        "prepared-scaling",
        "Median plan against partitions that roll together, prepared or not",
        "Lines of one engine that meet mean that preparing saves nothing there.",
        Kind::Scaling { figures: medians, against: "cost_partitions".to_owned() },
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use uringlog::ByteCount;

    #[test]
    fn what_makes_files_is_taken_out_and_renames_are_left() {
        let folder: Arc<Path> = Path::new("/t-0").into();
        let place = |name: &str| Place { directory: folder.clone(), name: name.into() };
        let file = |number| FileId { owner: 3, number };
        let tag = PlanTag { owner: 3, lane: Lane::Append, number: 0 };
        let length = ByteCount(120);
        let mut plan = Plan {
            tag,
            steps: Steps::from_iter([
                Step::Truncate { file: file(1), length },
                Step::Create { file: file(4), place: place("7.snapshot") },
                Step::Create { file: file(5), place: place("7.log") },
                Step::Create { file: file(6), place: place("7.index") },
                Step::Allocate { file: file(6), length },
                Step::Sync { file: file(5) },
            ]),
        };
        let before = take_out(&mut plan, false);
        let made = [
            Step::Create { file: file(5), place: place("7.log.prepared") },
            Step::Create { file: file(6), place: place("7.index.prepared") },
            Step::Allocate { file: file(6), length },
        ];
        assert_eq!(before.steps, Steps::from_iter(made));
        assert_eq!(before.tag.lane, Lane::Housekeeping);
        let rest = [
            Step::Truncate { file: file(1), length },
            Step::Create { file: file(4), place: place("7.snapshot") },
            Step::Rename { from: place("7.log.prepared"), to: place("7.log") },
            Step::Rename { from: place("7.index.prepared"), to: place("7.index") },
            Step::Sync { file: file(5) },
        ];
        assert_eq!(plan.steps, Steps::from_iter(rest));
    }
}
