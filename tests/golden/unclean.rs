//! Opens directories that were damaged after their broker was killed or stopped, stops them again,
//! and compares with what Kafka made of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use uringlog::disk::Disk;
use uringlog::disk::plain::PlainDisk;
use uringlog::format::checkpoint;
use uringlog::log::{LogSpec, Opening, PartitionLog, RecoveryReport};
use uringlog::units::{LeaderEpoch, Timestamp};

use super::driver::{EPOCHS_PER_RESTART, FILES_MAX, differences, files, resolve};
use super::keep::Keep;
use super::timeline::Timeline;

/// What became of a damaged directory.
pub struct Recovered {
    /// Against Kafka's directory after the start, and after the stop that followed; empty when
    /// Kafka did not start.
    pub differences: Vec<String>,
    /// Whether Kafka started at all.
    pub kafka_started: bool,
    pub report: RecoveryReport,
    /// The partition's files after the stop.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// Opens the case's first directory at the time of Kafka's start, and stops again.
pub fn recover(root: &Path, keep: &Keep) -> Recovered {
    let timeline = Timeline::read(root);
    let work = tempfile::tempdir().expect("a temporary directory");
    let damaged = root.join("dir-1-damaged");
    let history = timeline.histories().pop().expect("a partition");
    let name = history.place.folder();
    let folder = work.path().join(&name);
    copy(&damaged.join(&name), &folder);
    // What Kafka led it with, which it knows by its metadata; or the next one after the file's.
    let led_with = match newest_epoch(&root.join("dir-2-started").join(&name)) {
        Some(epoch) => epoch,
        None => newest_epoch(&folder).unwrap_or(0) + EPOCHS_PER_RESTART,
    };
    let spec = LogSpec {
        number: 1,
        directory: folder.clone().into(),
        topic_id: history.topic_id,
        config: resolve(&history.server, &history.configs),
        leader_epoch: LeaderEpoch(led_with),
        jitter_seed: 0,
    };
    let (started, stopped) = timeline.start_and_stop();
    let mut disk = PlainDisk::new(FILES_MAX, None);
    let opened = PartitionLog::open(&mut disk, spec.clone(), how(&damaged, &name), started);
    let (mut log, report) = opened.unwrap_or_else(|error| panic!("{}: {error}", root.display()));
    log.become_leader(spec.leader_epoch, started);
    settle(&mut log, &mut disk, started);
    // Brokers of these cases look for what retention wants soon after their start.
    log.retain(started);
    settle(&mut log, &mut disk, started);

    let kafkas = |directory: &str| Some(root.join(directory).join(&name)).filter(|it| it.is_dir());
    let (first, second) = (kafkas("dir-2-started"), kafkas("dir-3-stopped"));
    let mut found = Vec::new();
    found.extend(first.iter().flat_map(|it| differences(&files(&folder), it, false)));
    let plan = log.close(stopped);
    let finished = disk.run(plan);
    assert_eq!(finished.result, Ok(()));
    log.complete(finished, stopped);
    keep.partition(&folder, &history.configs, None);
    found.extend(second.iter().flat_map(|it| differences(&files(&folder), it, true)));
    Recovered {
        differences: found,
        kafka_started: first.is_some() && second.is_some(),
        report,
        files: files(&folder),
    }
}

fn how(damaged: &Path, name: &str) -> Opening {
    let point = |file: &str| {
        let bytes = fs::read(damaged.join(file)).unwrap_or_default();
        let lines = checkpoint::parse_offsets(&bytes).unwrap_or_default();
        let ours = lines.iter().find(|it| format!("{}-{}", it.topic, it.partition.0) == name);
        ours.map(|it| it.offset)
    };
    Opening {
        clean: damaged.join(".kafka_cleanshutdown").exists(),
        recovery_point: point("recovery-point-offset-checkpoint"),
        log_start: point("log-start-offset-checkpoint"),
        leader_epoch_bump: false,
    }
}

/// That of the last leader, as its file says.
fn newest_epoch(folder: &Path) -> Option<i32> {
    let bytes = fs::read(folder.join("leader-epoch-checkpoint")).ok()?;
    Some(checkpoint::parse_epochs(&bytes).ok()?.last()?.epoch.0)
}

fn settle(log: &mut PartitionLog, disk: &mut PlainDisk, now: Timestamp) {
    while let Some(plan) = log.plan(now).or_else(|| log.housekeeping(now)) {
        let finished = disk.run(plan);
        assert_eq!(finished.result, Ok(()));
        log.complete(finished, now);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a new folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_owned();
        let is_of_the_tool = name.to_string_lossy().ends_with(".index")
            && fs::metadata(&path).expect("it is there").len() == 0;
        if !is_of_the_tool {
            fs::copy(&path, to.join(name)).expect("copied");
        }
    }
}
