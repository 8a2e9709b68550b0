//! A log on a plain-file disk that does what the case's broker did.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use uringlog::disk::plain::PlainDisk;
use uringlog::disk::{Disk, Plan};
use uringlog::format::batch::RecordBatch;
use uringlog::log::{LogConfig, LogSpec, LogState, Opening, PartitionLog, TimestampType};
use uringlog::units::{LeaderEpoch, Offset, Timestamp, TopicId};

use super::case::Topic;

const FILES_MAX: usize = 1_000;

pub struct Replay {
    /// How many batches were appended.
    pub appended: usize,
    log: PartitionLog,
    disk: PlainDisk,
    spec: LogSpec,
    _directory: tempfile::TempDir,
    is_log_append_time: bool,
}

impl Replay {
    pub fn create(topic: &Topic, now: Timestamp) -> Replay {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path: Arc<Path> = directory.path().join(format!("{}-0", topic.name)).into();
        let spec = LogSpec {
            number: 1,
            directory: path,
            topic_id: TopicId([7; 16]),
            config: topic.config.clone(),
            leader_epoch: LeaderEpoch(0),
            jitter_seed: 0,
        };
        let (log, plan) = PartitionLog::create(spec.clone(), now);
        let disk = PlainDisk::new(FILES_MAX, None);
        let is_log_append_time = topic.config.timestamp_type == TimestampType::LogAppendTime;
        let mut replay =
            Replay { appended: 0, log, disk, spec, _directory: directory, is_log_append_time };
        replay.run(plan, now);
        replay
    }

    /// A directory that a broker left when it was killed, opened as the next leader.
    pub fn recover(
        files: &BTreeMap<String, Vec<u8>>,
        recovery_point: Option<Offset>,
        config: LogConfig,
    ) -> Replay {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path: Arc<Path> = directory.path().join("u-0").into();
        std::fs::create_dir(&path).expect("writable");
        for (name, bytes) in files {
            std::fs::write(path.join(name), bytes).expect("writable");
        }
        let spec = LogSpec {
            number: 1,
            directory: path,
            topic_id: TopicId([7; 16]),
            config,
            leader_epoch: LeaderEpoch(0),
            jitter_seed: 0,
        };
        let how =
            Opening { clean: false, recovery_point, log_start: None, leader_epoch_bump: false };
        let mut disk = PlainDisk::new(FILES_MAX, None);
        let now = Timestamp(0);
        let (mut log, _) = PartitionLog::open(&mut disk, spec.clone(), how, now).expect("opens");
        log.become_leader(LeaderEpoch(1), now);
        let is_log_append_time = false;
        Replay { appended: 0, log, disk, spec, _directory: directory, is_log_append_time }
    }

    fn run(&mut self, plan: Plan, now: Timestamp) {
        let finished = self.disk.run(plan);
        assert_eq!(finished.result, Ok(()), "{:?}", finished.plan);
        self.log.complete(finished, now);
    }

    /// Appends and writes; on LogAppendTime topics the batch brings its own clock.
    pub fn append(&mut self, batch: RecordBatch, now: Timestamp) {
        let now = if self.is_log_append_time { batch.header().max_timestamp } else { now };
        self.log.append(batch, now).expect("Kafka took it, too");
        self.appended += 1;
        self.settle(now);
    }

    /// Runs every plan that is due.
    pub fn settle(&mut self, now: Timestamp) {
        while let Some(plan) = self.log.plan(now).or_else(|| self.log.housekeeping(now)) {
            self.run(plan, now);
        }
    }

    pub fn reconfigure(&mut self, topic: &Topic) {
        self.log.reconfigure(topic.config.clone());
    }

    /// Opens the closed log again, as the leader with `epoch`.
    pub fn reopen(&mut self, epoch: i32, now: Timestamp) {
        let how = Opening {
            clean: true,
            recovery_point: Some(self.log.cursors().recovery_point),
            log_start: None,
            leader_epoch_bump: false,
        };
        let spec = LogSpec { leader_epoch: LeaderEpoch(epoch), ..self.spec.clone() };
        let opened = PartitionLog::open(&mut self.disk, spec, how, now);
        let (log, report) = opened.expect("it was closed cleanly");
        assert!(report.is_uneventful(), "{report:?}");
        self.log = log;
        self.log.become_leader(LeaderEpoch(epoch), now);
        self.settle(now);
    }

    pub fn retain(&mut self, now: Timestamp) {
        self.log.retain(now);
        self.settle(now);
    }

    pub fn log_start(&self) -> Offset {
        self.log.cursors().log_start
    }

    pub fn close(&mut self, now: Timestamp) {
        let plan = self.log.close(now);
        self.run(plan, now);
        assert!(matches!(self.log.state(), LogState::Offline(_)));
        assert_eq!(self.disk.files_open(), 0, "a clean stop closes every file");
    }

    /// Compares content, name by name; `partition.metadata` has another id.
    pub fn assert_files(&self, expected: &BTreeMap<String, Vec<u8>>, topic: &str) {
        let mut names: Vec<_> = self.listing().into_iter().map(|(name, _)| name).collect();
        let epochs = "leader-epoch-checkpoint";
        let is_compared = |name: &str| name != epochs || expected.contains_key(epochs);
        names.retain(|name| name != "partition.metadata" && is_compared(name));
        assert_eq!(names, expected.keys().cloned().collect::<Vec<_>>(), "{topic}");
        for (name, bytes) in expected {
            let found = std::fs::read(self.spec.directory.join(name)).expect("it was listed");
            if found != *bytes {
                let at = found.iter().zip(bytes).position(|(a, b)| a != b);
                let (ours, theirs) = (found.len(), bytes.len());
                panic!("{topic}/{name}: {ours} bytes, Kafka's {theirs}; they part at {at:?}");
            }
        }
    }

    /// Names and apparent sizes.
    pub fn listing(&self) -> Vec<(String, u64)> {
        let entries = std::fs::read_dir(&self.spec.directory).expect("it exists");
        let mut listing: Vec<_> = entries
            .map(|entry| {
                let entry = entry.expect("readable");
                let name = entry.file_name().into_string().expect("ASCII");
                (name, entry.metadata().expect("it exists").len())
            })
            .collect();
        listing.sort();
        listing
    }
}
