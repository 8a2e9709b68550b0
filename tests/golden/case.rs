//! One case: its topics, their batches, and the clock that they were appended by.

use std::collections::BTreeMap;

use bytes::BytesMut;
use uringlog::format::batch::{BatchHeader, Codec, RecordBatch};
use uringlog::log::{CleanupPolicy, Durability, LogConfig, TimestampType};
use uringlog::units::{ByteCount, Timestamp};

use super::archive;

/// Without timestamps the wall clock decides when to roll: the appends of the only such topic.
const NO_TIMESTAMPS: &str = "time-roll-nots";
const NO_TIMESTAMPS_CREATED: i64 = 1_795_989_994_859;
const NO_TIMESTAMPS_CLOCK: [i64; 4] =
    [1_795_989_999_631, 1_795_989_999_631, 1_795_990_003_823, 1_795_990_007_884];

/// A topic and its configuration.
#[derive(Clone)]
pub struct Topic {
    pub name: String,
    pub config: LogConfig,
}

/// An unpacked case.
pub struct Case {
    pub topics: Vec<Topic>,
    files: BTreeMap<String, Vec<u8>>,
    table: toml::Table,
}

impl Case {
    pub fn load(name: &str) -> Case {
        let files = archive::read(name);
        // The unclean cases are all about one topic and need no description.
        let text = files.get("case.toml").map_or(&[][..], Vec::as_slice);
        let table: toml::Table = std::str::from_utf8(text).expect("UTF-8").parse().expect("TOML");
        let topics = table.get("topic").and_then(toml::Value::as_array);
        let topics = topics.into_iter().flatten().map(topic).collect();
        Case { topics, files, table }
    }

    /// The files of a topic's only partition, by name.
    pub fn files(&self, directory: &str, topic: &str) -> BTreeMap<String, Vec<u8>> {
        let prefix = format!("{directory}/{topic}-0/");
        let files = self.files.iter();
        let files = files.filter_map(|(name, bytes)| Some((name.strip_prefix(&prefix)?, bytes)));
        files.map(|(name, bytes)| (name.to_owned(), bytes.clone())).collect()
    }

    /// A file of a directory's root, as text.
    pub fn text(&self, name: &str) -> &str {
        std::str::from_utf8(&self.files[name]).expect("UTF-8")
    }

    /// The batches of a partition as its producers sent them: offsets taken off, and on
    /// LogAppendTime topics the stamp.
    pub fn batches(&self, directory: &str, topic: &str) -> Vec<RecordBatch> {
        let files = self.files(directory, topic);
        let logs = files.iter().filter(|(name, _)| name.ends_with(".log"));
        let mut batches = Vec::new();
        for (_, bytes) in logs {
            let mut rest = bytes.as_slice();
            while let Ok(header) = BatchHeader::decode(rest) {
                let size = usize::try_from(header.size.0).expect("small");
                batches.push(sent(&rest[..size], topic, batches.len()));
                rest = &rest[size..];
            }
        }
        assert!(!batches.is_empty() || topic.ends_with("-empty"), "{topic} has no batches");
        batches
    }

    /// Kafka's listing of a partition: names and sizes, snapshots and metadata left out.
    pub fn listing(&self, file: &str, topic: &str) -> Vec<(String, u64)> {
        let prefix = format!("{topic}-0/");
        let text = std::str::from_utf8(&self.files[file]).expect("UTF-8");
        let lines = text.lines().filter_map(|line| line.strip_prefix(&prefix)?.split_once('\t'));
        let lines = lines.filter(|(name, _)| !name.contains(".snapshot"));
        let lines = lines.map(|(name, size)| (name.to_owned(), size.parse().expect("a size")));
        lines.collect()
    }

    pub fn created_at(&self, topic: &str) -> Timestamp {
        if topic == NO_TIMESTAMPS {
            return Timestamp(NO_TIMESTAMPS_CREATED);
        }
        self.first_step()
    }

    /// When batch number `appended` of the topic was appended.
    pub fn clock(&self, topic: &str, appended: usize) -> Timestamp {
        if topic == NO_TIMESTAMPS {
            return Timestamp(NO_TIMESTAMPS_CLOCK[appended]);
        }
        self.first_step()
    }

    pub fn stopped_at(&self) -> Timestamp {
        let steps = self.steps().filter(|step| step["kind"].as_str() == Some("stop"));
        Timestamp(steps.last().expect("a stop")["at_ms"].as_integer().expect("a time"))
    }

    /// The retention settings that the case made before its pass.
    pub fn reconfigure(&self, topic: &mut Topic) {
        let config = |step: &&toml::Value| {
            step["kind"].as_str() == Some("config") && step["topic"].as_str() == Some(&topic.name)
        };
        let step = self.steps().find(config).expect("every topic gets its limits");
        for pair in step["set"].as_str().expect("settings").split(' ') {
            let (name, value) = pair.split_once('=').expect("name=value");
            set(&mut topic.config, name, value);
        }
    }

    pub fn retention_pass(&self, topic: &str) -> Timestamp {
        let step = self.steps().find(|step| step["kind"].as_str() == Some("retention_pass"));
        let step = step.expect("a pass");
        let name = format!("pass_ms_{}", topic.replace('-', "_"));
        let at = step.get(&name).or(step.get("at_ms")).expect("a time");
        Timestamp(at.as_integer().expect("a time"))
    }

    fn first_step(&self) -> Timestamp {
        let produce = self.steps().find(|step| step["kind"].as_str() == Some("produce"));
        Timestamp(produce.expect("a step")["to_ms"].as_integer().expect("a time"))
    }

    fn steps(&self) -> impl Iterator<Item = &toml::Value> {
        self.table["step"].as_array().expect("steps").iter()
    }
}

/// The batch as it was sent. Two topics hold batches that were sent with the LogAppendTime flag to
/// a CreateTime topic: the broker takes the flag off and believes their header's time.
fn sent(stored: &[u8], topic: &str, number: usize) -> RecordBatch {
    let mut batch = RecordBatch::decode(BytesMut::from(stored)).expect("Kafka's batches are valid");
    let max_timestamp = batch.header().max_timestamp;
    let is_flagged = topic == "ts-flag" || (topic == "ts-lies" && number == 4);
    batch.set_max_timestamp(is_flagged, max_timestamp);
    let epoch = batch.header().leader_epoch;
    batch.assign(uringlog::units::Offset(0), epoch);
    batch
}

fn topic(value: &toml::Value) -> Topic {
    let name = value["name"].as_str().expect("a name").to_owned();
    let mut config = LogConfig::defaults(Durability::PageCache);
    config.retention_ms = None;
    for (name, value) in value["config"].as_table().expect("a table") {
        set(&mut config, name, value.as_str().expect("text"));
    }
    Topic { name, config }
}

fn set(config: &mut LogConfig, name: &str, value: &str) {
    let number = || value.parse::<i64>().expect("a number");
    let natural = || u64::try_from(number()).expect("not negative");
    match name {
        "segment.bytes" => config.segment_bytes = ByteCount(natural()),
        "segment.ms" => config.segment_ms = natural(),
        "segment.index.bytes" => config.segment_index_bytes = ByteCount(natural()),
        "index.interval.bytes" => config.index_interval_bytes = ByteCount(natural()),
        "retention.ms" => config.retention_ms = u64::try_from(number()).ok(),
        "retention.bytes" => config.retention_bytes = u64::try_from(number()).ok().map(ByteCount),
        "file.delete.delay.ms" => config.file_delete_delay_ms = natural(),
        "max.message.bytes" => config.batch_bytes_max = ByteCount(natural()),
        "max.compaction.lag.ms" => config.compaction_lag_max_ms = natural(),
        "message.timestamp.after.max.ms" => config.timestamp_after_max_ms = natural(),
        "cleanup.policy" => {
            let (delete, compact) = (value.contains("delete"), value.contains("compact"));
            config.cleanup_policy = CleanupPolicy { delete, compact };
        }
        "message.timestamp.type" => {
            assert_eq!(value, "LogAppendTime");
            config.timestamp_type = TimestampType::LogAppendTime;
        }
        "compression.type" => {
            assert_eq!(value, "zstd");
            config.compression = Some(Codec::Zstd);
        }
        other => panic!("{other} is new here"),
    }
}
