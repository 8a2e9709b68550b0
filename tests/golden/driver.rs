//! Repeats a partition's history in a log of ours and compares the folder at every copy that was
//! taken of Kafka's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uringlog::broker::config::{ServerConfig, TopicConfigs};
use uringlog::disk::plain::PlainDisk;
use uringlog::disk::{Disk, Plan};
use uringlog::format::batch::RecordBatch;
use uringlog::format::record::RecordsIter;
use uringlog::log::producers::Marker;
use uringlog::log::{AppendError, LogConfig, LogSpec, Opening, PartitionLog};
use uringlog::units::{LeaderEpoch, Offset, Timestamp, TopicId};

use super::timeline::{Event, History};

const FILES_MAX: usize = 1_000;
/// A clean stop and start raise the leader epoch by so much: the stop fences the broker.
const EPOCHS_PER_RESTART: i32 = 2;

/// What came of a history.
#[derive(Default, Debug)]
pub struct Outcome {
    pub files: usize,
    pub differences: Vec<String>,
}

struct Replay {
    log: PartitionLog,
    disk: PlainDisk,
    spec: LogSpec,
    configs: BTreeMap<String, String>,
    recovery_point: Offset,
    is_clean: bool,
    is_running: bool,
    folder: PathBuf,
    _directory: tempfile::TempDir,
}

/// Repeats it.
pub fn repeat(history: History) -> Outcome {
    let mut outcome = Outcome::default();
    let mut replay = Replay::create(&history);
    for (at, event) in history.events {
        match event {
            Event::Append(batch) => replay.append(batch, at, &mut outcome),
            Event::Configure(configs) => replay.configure(configs, at),
            Event::Retain => {
                replay.log.retain(at);
                replay.settle(at);
            }
            Event::Stop => replay.stop(at),
            Event::Kill => replay.kill(),
            Event::Start => replay.start(at),
            Event::Snapshot(directory) => {
                replay.settle(at);
                let kafkas = directory.join(&replay.folder);
                if kafkas.is_dir() {
                    replay.compare(&kafkas, &mut outcome);
                }
            }
        }
    }
    outcome
}

fn resolve(configs: &BTreeMap<String, String>) -> LogConfig {
    let server = ServerConfig::defaults();
    let topics = TopicConfigs::new(&server);
    let known = configs.iter().filter(|(name, value)| {
        let one = BTreeMap::from([((*name).clone(), (*value).clone())]);
        topics.validate(&one).is_ok()
    });
    let known = known.map(|(name, value)| (name.clone(), value.clone())).collect();
    let mut config = topics.resolve(&known);
    // The page cache's tier, whatever the defaults of a server are.
    config.flush_messages = u64::MAX;
    config
}

impl Replay {
    fn create(history: &History) -> Replay {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let folder = PathBuf::from(history.place.folder());
        let path: Arc<Path> = directory.path().join(&folder).into();
        let spec = LogSpec {
            number: 1,
            directory: path,
            topic_id: TopicId([7; 16]),
            config: resolve(&history.configs),
            leader_epoch: LeaderEpoch(0),
            jitter_seed: 0,
        };
        let (log, plan) = PartitionLog::create(spec.clone(), history.created);
        let mut replay = Replay {
            log,
            disk: PlainDisk::new(FILES_MAX, None),
            spec,
            configs: history.configs.clone(),
            recovery_point: Offset(0),
            is_clean: true,
            is_running: true,
            folder,
            _directory: directory,
        };
        replay.run(plan, history.created);
        replay
    }

    fn run(&mut self, plan: Plan, now: Timestamp) {
        let finished = self.disk.run(plan);
        assert_eq!(finished.result, Ok(()), "{:?}", finished.plan);
        self.log.complete(finished, now);
    }

    fn settle(&mut self, now: Timestamp) {
        while self.is_running
            && let Some(plan) = self.log.plan(now).or_else(|| self.log.housekeeping(now))
        {
            self.run(plan, now);
        }
    }

    fn append(&mut self, batch: RecordBatch, now: Timestamp, outcome: &mut Outcome) {
        let about = format!("{}: {:?}", self.folder.display(), batch.header());
        let appended = match marker(&batch) {
            Some(marker) => self.log.append_marker(&marker, now).map(drop),
            None => match self.log.append_verified(batch, now) {
                Ok(appended) if appended.duplicate => {
                    outcome.differences.push(format!("{about}: taken for a duplicate"));
                    Ok(())
                }
                other => other.map(drop),
            },
        };
        if let Err(error) = appended {
            let error: AppendError = error;
            outcome.differences.push(format!("{about}: {error}"));
        }
        self.settle(now);
    }

    fn configure(&mut self, configs: BTreeMap<String, String>, now: Timestamp) {
        self.configs.extend(configs);
        self.spec.config = resolve(&self.configs);
        self.log.reconfigure(self.spec.config.clone());
        self.settle(now);
    }

    fn stop(&mut self, now: Timestamp) {
        let plan = self.log.close(now);
        self.run(plan, now);
        self.recovery_point = self.log.cursors().recovery_point;
        (self.is_clean, self.is_running) = (true, false);
    }

    /// What the page cache has survives; the broker's checkpoint is as old as its last roll.
    fn kill(&mut self) {
        self.recovery_point = self.log.cursors().recovery_point;
        self.disk = PlainDisk::new(FILES_MAX, None);
        (self.is_clean, self.is_running) = (false, false);
    }

    fn start(&mut self, now: Timestamp) {
        if self.is_running {
            return;
        }
        let how = Opening {
            clean: self.is_clean,
            recovery_point: Some(self.recovery_point),
            log_start: None,
            leader_epoch_bump: false,
        };
        self.spec.leader_epoch.0 += EPOCHS_PER_RESTART;
        let opened = PartitionLog::open(&mut self.disk, self.spec.clone(), how, now);
        let (log, report) = opened.expect("it opens");
        assert!(!report.is_lossy(), "{report}");
        self.log = log;
        self.is_running = true;
        self.log.become_leader(self.spec.leader_epoch, now);
        self.settle(now);
    }

    /// Every file, byte for byte; `partition.metadata` has another id.
    fn compare(&self, kafkas: &Path, outcome: &mut Outcome) {
        let (ours, theirs) = (files(&self.spec.directory), files(kafkas));
        let place = kafkas.display();
        for (name, bytes) in &theirs {
            outcome.files += 1;
            match ours.get(name) {
                None => outcome.differences.push(format!("{place}/{name}: not there")),
                Some(found) if found != bytes => {
                    let at = found.iter().zip(bytes).position(|(a, b)| a != b);
                    outcome.differences.push(format!(
                        "{place}/{name}: {} bytes, Kafka's {}; they part at {at:?}",
                        found.len(),
                        bytes.len()
                    ));
                }
                Some(_) => {}
            }
        }
        for name in ours.keys().filter(|name| !theirs.contains_key(*name)) {
            outcome.differences.push(format!("{place}/{name}: Kafka has no such file"));
        }
    }
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("a folder");
    let files = entries.map(|entry| {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, fs::read(&path).expect("readable"))
    });
    files.filter(|(name, _)| name != "partition.metadata").collect()
}

/// What a transaction coordinator asked for, if the batch is its marker.
fn marker(batch: &RecordBatch) -> Option<Marker> {
    let header = batch.header();
    if !header.is_control() {
        return None;
    }
    let record = RecordsIter::new(header, batch.payload()).next()?.ok()?;
    let (key, value) = (record.key?, record.value?);
    Some(Marker {
        producer_id: header.producer_id,
        epoch: header.producer_epoch,
        // Kafka 4.3 has transaction version 2.
        raises_epoch: true,
        coordinator_epoch: i32::from_be_bytes(*value.get(2..)?.first_chunk()?),
        commits: key.get(3) == Some(&1),
    })
}
