//! What Kafka's cleaner left of six topics, after each of three passes: the same histories and the
//! same clock must leave the same files, byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uringlog::broker::config::{ServerConfig, TopicConfigs};
use uringlog::disk::plain::PlainDisk;
use uringlog::disk::{Disk, Plan};
use uringlog::format::batch::{BatchHeader, RecordBatch};
use uringlog::format::checkpoint;
use uringlog::format::record::RecordsIter;
use uringlog::log::producers::Marker;
use uringlog::log::{LogConfig, LogSpec, Opening, PartitionLog};
use uringlog::units::{LeaderEpoch, Offset, Timestamp, TopicId};

use crate::archives::Archive;
use crate::rounds::{self, MEMORY};
use crate::timeline::{Event, History, Timeline};

const FILES_MAX: usize = 1_000;
/// A clean stop and start raise the leader epoch by so much: the stop fences the broker.
const EPOCHS_PER_RESTART: i32 = 2;

/// A pass over a topic, as the broker logged it.
struct Pass {
    topic: String,
    logged: Timestamp,
}

struct Replay {
    log: PartitionLog,
    disk: PlainDisk,
    spec: LogSpec,
    configs: BTreeMap<String, String>,
    first_dirty: Option<Offset>,
    is_running: bool,
    folder: PathBuf,
    files: usize,
    differences: Vec<String>,
    _directory: tempfile::TempDir,
}

#[test]
fn passes_leave_the_files_that_kafkas_left() {
    let archive = Archive::all().into_iter().find(|it| it.name == "compaction");
    let root = archive.expect("it is in the repository").unpack();
    let timeline = Timeline::read(&root.path());
    let passes = passes(&root.path());
    let (mut files, mut differences) = (0, Vec::new());
    for history in timeline.histories() {
        let replay = repeat(history, &passes);
        files += replay.files;
        differences.extend(replay.differences);
    }
    println!("{files} files compared, {} differ", differences.len());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(300 < files, "only {files} files");
}

fn passes(root: &Path) -> Vec<Pass> {
    let text = fs::read_to_string(root.join("case.toml")).expect("case.toml");
    let table: toml::Table = text.parse().expect("TOML");
    let passes = table["clean"].as_array().expect("passes").iter();
    passes
        .map(|pass| Pass {
            topic: pass["topic"].as_str().expect("a topic").to_owned(),
            logged: Timestamp(pass["logged_ms"].as_integer().expect("a time")),
        })
        .collect()
}

fn repeat(history: History, passes: &[Pass]) -> Replay {
    let mut replay = Replay::create(&history);
    let own = passes.iter().filter(|pass| pass.topic == history.place.topic);
    let mut own = own.peekable();
    let snapshots: Vec<(Timestamp, PathBuf)> = history
        .events
        .iter()
        .filter_map(|(at, event)| match event {
            Event::Snapshot(directory) => Some((*at, directory.clone())),
            _ => None,
        })
        .collect();
    for (at, event) in history.events {
        while let Some(pass) = own.next_if(|pass| pass.logged < at) {
            let left = snapshots.iter().find(|(at, _)| pass.logged < *at).expect("a copy");
            let began = replay.began(pass.logged, &left.1);
            replay.clean(began);
        }
        replay.take(event, at);
    }
    replay
}

fn resolve(configs: &BTreeMap<String, String>) -> LogConfig {
    let server = ServerConfig::defaults();
    let topics = TopicConfigs::new(&server);
    topics.validate(configs).expect("Kafka took them");
    let mut config = topics.resolve(configs);
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
            first_dirty: None,
            is_running: true,
            folder,
            files: 0,
            differences: Vec::new(),
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

    fn take(&mut self, event: Event, now: Timestamp) {
        match event {
            Event::Append(batch) => self.append(batch, now),
            Event::Configure(configs) => {
                self.configs.extend(configs);
                self.spec.config = resolve(&self.configs);
                self.log.reconfigure(self.spec.config.clone());
                // The cleaner's thread looks for expired segments every time it wakes.
                self.log.retain(now);
            }
            Event::Stop => {
                let plan = self.log.close(now);
                self.run(plan, now);
                self.is_running = false;
            }
            Event::Start => self.start(now),
            Event::Snapshot(directory) => {
                if self.is_running {
                    rounds::settle(&mut self.log, &mut self.disk, now);
                }
                self.compare(&directory);
            }
            Event::Retain | Event::Kill => panic!("not in this case"),
        }
        if self.is_running {
            rounds::settle(&mut self.log, &mut self.disk, now);
        }
    }

    fn append(&mut self, mut batch: RecordBatch, now: Timestamp) {
        let newest = batch.header().max_timestamp;
        if batch.header().is_log_append_time() {
            // The broker's stamp: the producer sent it without.
            batch.set_max_timestamp(false, newest);
        }
        let appended = match marker(&batch) {
            Some(marker) => self.log.append_marker(&marker, now),
            None => self.log.append_verified(batch, now),
        };
        assert!(!appended.expect("Kafka took it").duplicate);
    }

    fn start(&mut self, now: Timestamp) {
        let how = Opening {
            clean: true,
            recovery_point: Some(self.log.cursors().recovery_point),
            log_start: None,
            leader_epoch_bump: false,
        };
        self.spec.leader_epoch.0 += EPOCHS_PER_RESTART;
        let opened = PartitionLog::open(&mut self.disk, self.spec.clone(), how, now);
        let (log, report) = opened.expect("it opens");
        assert!(!report.is_lossy(), "{report}");
        self.log = log;
        self.log.set_first_dirty(self.first_dirty);
        self.is_running = true;
        self.log.become_leader(self.spec.leader_epoch, now);
    }

    fn clean(&mut self, now: Timestamp) {
        let options = rounds::options(MEMORY, 10_000);
        let report = rounds::clean(&mut self.log, &mut self.disk, options, now);
        let report = report.expect("something is dirty");
        self.first_dirty = Some(report.to);
    }

    /// When a pass began: horizons that it gave say it, the log line is up to 1 ms later.
    fn began(&self, logged: Timestamp, left: &Path) -> Timestamp {
        let retention_ms = i64::try_from(self.spec.config.delete_retention_ms).expect("small");
        for (_, bytes) in files(&left.join(&self.folder)).iter().filter(|it| it.0.ends_with(".log"))
        {
            let mut rest = &bytes[..];
            while let Ok(header) = BatchHeader::decode(rest) {
                let began = header.base_timestamp.0 - retention_ms;
                if header.has_delete_horizon() && (0..=2).contains(&(logged.0 - began)) {
                    return Timestamp(began);
                }
                rest = &rest[usize::try_from(header.size.0).expect("small")..];
            }
        }
        logged
    }

    /// Every file, byte for byte; `partition.metadata` has another id. And the checkpoint's line.
    fn compare(&mut self, copy: &Path) {
        let (ours, theirs) = (files(&self.spec.directory), files(&copy.join(&self.folder)));
        let place = copy.join(&self.folder);
        let place = place.display();
        for (name, bytes) in &theirs {
            self.files += 1;
            match ours.get(name) {
                None => self.differences.push(format!("{place}/{name}: not there")),
                Some(found) if found != bytes => {
                    let at = found.iter().zip(bytes).position(|(a, b)| a != b);
                    self.differences.push(format!(
                        "{place}/{name}: {} bytes, Kafka's {}; they part at {at:?}",
                        found.len(),
                        bytes.len()
                    ));
                }
                Some(_) => {}
            }
        }
        for name in ours.keys().filter(|name| !theirs.contains_key(*name)) {
            self.differences.push(format!("{place}/{name}: Kafka has no such file"));
        }
        let text = fs::read(copy.join("cleaner-offset-checkpoint")).expect("a checkpoint");
        let lines = checkpoint::parse_offsets(&text).expect("Kafka's");
        let line = lines
            .iter()
            .find(|it| format!("{}-{}", it.topic, it.partition.0) == self.folder.to_string_lossy());
        assert_eq!(self.first_dirty, line.map(|it| it.offset), "{place}");
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
