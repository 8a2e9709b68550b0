//! Repeats a partition's history in a log of ours and compares the folder at every copy that was
//! taken of Kafka's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uringlog::broker::config::{ServerConfig, Sources, TopicConfigs};
use uringlog::disk::plain::PlainDisk;
use uringlog::disk::{Disk, Plan};
use uringlog::format::batch::RecordBatch;
use uringlog::format::checkpoint;
use uringlog::format::record::RecordsIter;
use uringlog::log::producers::Marker;
use uringlog::log::{AppendError, LogConfig, LogSpec, Opening, PartitionLog};
use uringlog::units::{LeaderEpoch, Offset, Timestamp};

use super::keep::Keep;
use super::timeline::{Copied, Event, History};

pub const FILES_MAX: usize = 1_000;
const EPOCHS: &str = "leader-epoch-checkpoint";
/// A clean stop and start raise the leader epoch by so much: the stop fences the broker.
pub const EPOCHS_PER_RESTART: i32 = 2;

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
    server: ServerConfig,
    configs: BTreeMap<String, String>,
    recovery_point: Offset,
    log_start: Option<Offset>,
    is_clean: bool,
    is_running: bool,
    folder: PathBuf,
    /// Epochs of producers as data has shown them.
    producers: BTreeMap<i64, i16>,
    _directory: tempfile::TempDir,
}

/// Repeats it, and keeps what it leaves where that is wanted.
pub fn repeat(history: History, keep: &Keep) -> Outcome {
    let mut outcome = Outcome::default();
    let mut replay = Replay::create(&history);
    let end = history.events.last().map_or(history.created, |it| it.0);
    for (at, event) in history.events {
        match event {
            Event::Append(batch) => replay.append(batch, at, &mut outcome),
            Event::Configure(configs) => replay.configure(configs, at),
            Event::Retain if replay.is_running => {
                replay.log.retain(at);
                replay.settle(at);
            }
            Event::Retain => {}
            Event::DeleteRecords(to) => {
                let to = Offset::from_wire(to).unwrap_or(replay.log.cursors().high_watermark);
                // Of two that come out of order the lower one changes nothing.
                replay.log.advance_log_start(to).expect("below the high watermark");
                replay.settle(at);
            }
            Event::Stop => replay.stop(at),
            Event::Kill => replay.kill(),
            Event::Start => replay.start(at),
            Event::Snapshot(copied) => {
                replay.settle(at);
                if copied.path.join(&replay.folder).is_dir() {
                    replay.compare(&copied, &mut outcome);
                }
            }
        }
    }
    if !replay.is_running && !replay.is_clean {
        replay.start(end);
    }
    if replay.is_running {
        replay.stop(end);
    }
    keep.partition(&replay.spec.directory, &replay.configs, replay.log_start);
    outcome
}

/// The broker's settings, which its topics' defaults come from; what is unknown here is left out.
pub fn server(broker: &BTreeMap<String, String>) -> ServerConfig {
    let load = |set| ServerConfig::load(&Sources { set, ..Sources::default() });
    let pairs = broker.iter().map(|(name, value)| format!("{name}={value}"));
    let known = pairs.filter(|pair| load(vec![pair.clone()]).is_ok()).collect();
    load(known).expect("what a broker runs with")
}

/// A topic's settings, in the page cache's tier; what is unknown here is left out.
pub fn resolve(server: &ServerConfig, configs: &BTreeMap<String, String>) -> LogConfig {
    let topics = TopicConfigs::new(server);
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
            topic_id: history.topic_id,
            config: resolve(&history.server, &history.configs),
            leader_epoch: LeaderEpoch(0),
            jitter_seed: 0,
        };
        let (log, plan) = PartitionLog::create(spec.clone(), history.created);
        let mut replay = Replay {
            log,
            disk: PlainDisk::new(FILES_MAX, None),
            spec,
            server: history.server.clone(),
            configs: history.configs.clone(),
            recovery_point: Offset(0),
            log_start: None,
            is_clean: true,
            is_running: true,
            folder,
            producers: BTreeMap::new(),
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
        let stamp = batch.header().max_timestamp;
        let header = *batch.header();
        // A producer's epoch that the marker raises says that the transaction was of version 2.
        let known = self.producers.get(&header.producer_id.0);
        let raises_epoch = known.is_some_and(|it| *it < header.producer_epoch.0);
        let appended = match marker(&batch, raises_epoch) {
            Some(marker) => self.log.append_marker(&marker, stamp).map(drop),
            None => match self.log.append_verified(batch, now) {
                Ok(appended) if appended.duplicate => {
                    outcome.differences.push(format!("{about}: taken for a duplicate"));
                    Ok(())
                }
                other => other.map(drop),
            },
        };
        self.producers.insert(header.producer_id.0, header.producer_epoch.0);
        if let Err(error) = appended {
            let error: AppendError = error;
            outcome.differences.push(format!("{about}: {error}"));
        }
        self.settle(now);
    }

    fn configure(&mut self, configs: BTreeMap<String, String>, now: Timestamp) {
        self.configs.extend(configs);
        self.spec.config = resolve(&self.server, &self.configs);
        self.log.reconfigure(self.spec.config.clone());
        self.settle(now);
    }

    fn stop(&mut self, now: Timestamp) {
        let plan = self.log.close(now);
        self.run(plan, now);
        self.checkpoint();
        (self.is_clean, self.is_running) = (true, false);
    }

    fn checkpoint(&mut self) {
        let cursors = self.log.cursors();
        self.recovery_point = cursors.recovery_point;
        self.log_start = self.log.needs_log_start_checkpoint().then_some(cursors.log_start);
    }

    /// What the page cache has survives; the broker's checkpoint is as old as its last roll.
    fn kill(&mut self) {
        self.checkpoint();
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
            log_start: self.log_start,
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

    /// Every file, byte for byte.
    fn compare(&self, copied: &Copied, outcome: &mut Outcome) {
        let kafkas = copied.path.join(&self.folder);
        outcome.files += files(&kafkas).len();
        let ours = files(&self.spec.directory);
        outcome.differences.extend(differences(&ours, &kafkas, copied.is_stopped));
        self.compare_checkpoints(copied, outcome);
    }

    /// The lines about this partition in the files of the root, after a stop in order.
    fn compare_checkpoints(&self, copied: &Copied, outcome: &mut Outcome) {
        if !copied.is_stopped {
            return;
        }
        let cursors = self.log.cursors();
        for (name, ours) in [
            ("recovery-point-offset-checkpoint", Some(cursors.recovery_point)),
            ("replication-offset-checkpoint", Some(cursors.high_watermark)),
            (
                "log-start-offset-checkpoint",
                self.log.needs_log_start_checkpoint().then_some(cursors.log_start),
            ),
        ] {
            let Ok(bytes) = fs::read(copied.path.join(name)) else { continue };
            let lines = checkpoint::parse_offsets(&bytes).expect("Kafka's");
            let line = lines.iter().find(|it| {
                self.folder.as_os_str() == format!("{}-{}", it.topic, it.partition.0).as_str()
            });
            outcome.files += 1;
            if line.map(|it| it.offset) != ours {
                outcome.differences.push(format!(
                    "{}/{name}: Kafka has {line:?}, we {ours:?} for {}",
                    copied.path.display(),
                    self.folder.display()
                ));
            }
        }
    }
}

/// What is different in Kafka's folder; a broker that `is_stopped` is done with it.
pub fn differences(
    ours: &BTreeMap<String, Vec<u8>>,
    kafkas: &Path,
    is_stopped: bool,
) -> Vec<String> {
    let theirs = files(kafkas);
    let place = kafkas.display();
    let mut found = Vec::new();
    for (name, bytes) in &theirs {
        match ours.get(name) {
            None if is_of_the_tool(name, bytes, &theirs) => {}
            None if was_asked_for(name, bytes, &theirs) => {}
            None => found.push(format!("{place}/{name}: not there")),
            Some(our) if our == bytes => {}
            // Copied before the partition had its leader again.
            Some(our) if name == EPOCHS && begins(our, bytes) && !is_stopped => {}
            Some(our) => {
                let at = our.iter().zip(bytes).position(|(a, b)| a != b);
                found.push(format!(
                    "{place}/{name}: {} bytes, Kafka's {}; they part at {at:?}",
                    our.len(),
                    bytes.len()
                ));
            }
        }
    }
    let more = ours.keys().filter(|name| !theirs.contains_key(*name));
    found.extend(more.map(|name| format!("{place}/{name}: Kafka has no such file")));
    found
}

/// Kafka's dump tool makes the offset index of a time index that it is given; the archives have it.
fn is_of_the_tool(name: &str, bytes: &[u8], files: &BTreeMap<String, Vec<u8>>) -> bool {
    let base = name.strip_suffix(".index");
    bytes.is_empty() && base.is_some_and(|it| files.contains_key(&format!("{it}.timeindex")))
}

/// A client that asks for the largest timestamp makes Kafka open the offset index of an empty
/// segment; none asks here.
fn was_asked_for(name: &str, bytes: &[u8], files: &BTreeMap<String, Vec<u8>>) -> bool {
    let Some(base) = name.strip_suffix(".index") else { return false };
    let has_no_record = files.get(&format!("{base}.log")).is_some_and(Vec::is_empty);
    has_no_record && bytes.iter().all(|it| *it == 0)
}

/// Whether the epochs of `ours` go on from those of `theirs`.
fn begins(ours: &[u8], theirs: &[u8]) -> bool {
    let parse = |bytes: &[u8]| checkpoint::parse_epochs(bytes).expect("a checkpoint of epochs");
    let (ours, theirs) = (parse(ours), parse(theirs));
    theirs.len() + 1 == ours.len() && ours.starts_with(&theirs)
}

/// All files of a folder.
pub fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("a folder");
    let files = entries.map(|entry| {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, fs::read(&path).expect("readable"))
    });
    files.collect()
}

/// What a transaction coordinator asked for, if the batch is its marker.
pub fn marker(batch: &RecordBatch, raises_epoch: bool) -> Option<Marker> {
    let header = batch.header();
    if !header.is_control() {
        return None;
    }
    let record = RecordsIter::new(header, batch.payload()).next()?.ok()?;
    let (key, value) = (record.key?, record.value?);
    Some(Marker {
        producer_id: header.producer_id,
        epoch: header.producer_epoch,
        raises_epoch,
        coordinator_epoch: i32::from_be_bytes(*value.get(2..)?.first_chunk()?),
        commits: key.get(3) == Some(&1),
    })
}
