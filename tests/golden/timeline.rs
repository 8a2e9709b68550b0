//! What a case's broker did, in the order in which it happened: from `case.toml`, the producers'
//! outputs, and the batches of the partition folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use uringlog::broker::config::ServerConfig;
use uringlog::format::batch::{BatchHeader, RecordBatch};
use uringlog::format::codec;
use uringlog::format::names::{FileKind, SegmentFile, Suffix};
use uringlog::format::partition_metadata;
use uringlog::format::record::RecordsIter;
use uringlog::units::{ByteCount, Offset, Timestamp, TopicId};

use super::driver::server;

/// A partition of a case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    pub topic: String,
    pub partition: u32,
}

impl Place {
    fn parse(folder: &str) -> Option<Place> {
        let (topic, partition) = folder.rsplit_once('-')?;
        Some(Place { topic: topic.to_owned(), partition: partition.parse().ok()? })
    }

    pub fn folder(&self) -> String {
        format!("{}-{}", self.topic, self.partition)
    }
}

/// One thing that happened to a partition.
#[derive(Debug)]
pub enum Event {
    Append(RecordBatch),
    Configure(BTreeMap<String, String>),
    Retain,
    /// DeleteRecords; -1 is the high watermark.
    DeleteRecords(i64),
    Stop,
    Kill,
    Start,
    /// A copy of the folder was taken.
    Snapshot(Copied),
}

/// A copy of the log directory.
#[derive(Clone, Debug)]
pub struct Copied {
    pub path: PathBuf,
    /// Whether its broker had stopped in order.
    pub is_stopped: bool,
}

/// A partition's history.
#[derive(Debug)]
pub struct History {
    pub place: Place,
    pub topic_id: TopicId,
    pub created: Timestamp,
    pub server: ServerConfig,
    pub configs: BTreeMap<String, String>,
    pub events: Vec<(Timestamp, Event)>,
}

/// A case that is laid out in a folder.
pub struct Timeline {
    root: PathBuf,
    table: toml::Table,
    /// Copies of the log directory, oldest first, with their times.
    snapshots: Vec<(i64, Copied)>,
    /// What the outputs of producers say: when a topic was made, and when an offset came.
    created: BTreeMap<String, i64>,
    acked: BTreeMap<Place, Vec<(u64, i64)>>,
    /// When configs of topics changed, as the tool that did it says.
    altered: BTreeMap<String, Vec<i64>>,
}

impl Timeline {
    pub fn read(root: &Path) -> Timeline {
        let text = fs::read_to_string(root.join("case.toml")).expect("case.toml");
        let table: toml::Table = text.parse().expect("TOML");
        let mut timeline = Timeline {
            root: root.to_owned(),
            table,
            snapshots: Vec::new(),
            created: BTreeMap::new(),
            acked: BTreeMap::new(),
            altered: BTreeMap::new(),
        };
        let tables = timeline.list("snapshot").chain(timeline.list("step"));
        let mut snapshots: Vec<(i64, Copied)> = tables
            .filter_map(|it| {
                let path = root.join(text_of(it, "dir")?);
                let is_stopped = text_of(it, "broker").as_deref() == Some("stopped");
                Some((number(it, "at_ms")?, Copied { path, is_stopped }))
            })
            .collect();
        snapshots.sort_by_key(|it| it.0);
        timeline.snapshots = snapshots;
        timeline.read_outputs();
        timeline
    }

    fn list(&self, name: &str) -> impl Iterator<Item = &toml::Table> {
        let tables = self.table.get(name).and_then(toml::Value::as_array);
        tables.into_iter().flatten().filter_map(toml::Value::as_table)
    }

    /// The kinds of steps that this can't repeat.
    pub fn unknown_steps(&self) -> Vec<String> {
        const KNOWN: &[&str] = &[
            "produce",
            "append",
            "refused",
            "client",
            "create-topic",
            "config",
            "alter-config",
            "start",
            "stop",
            "kill",
            "snapshot",
            "retention_pass",
            "tool",
            "delete_records",
            "partitions",
            "delete_topic",
        ];
        let kinds = self.list("step").filter_map(|it| text_of(it, "kind"));
        let cleans = self.list("clean").map(|_| "clean".to_owned());
        let mut unknown: Vec<String> =
            kinds.filter(|it| !KNOWN.contains(&it.as_str())).chain(cleans).collect();
        unknown.sort();
        unknown.dedup();
        unknown
    }

    /// When the broker started on a damaged directory, and when it stopped after that.
    pub fn start_and_stop(&self) -> (Timestamp, Timestamp) {
        let at = |kind: &str| {
            let is_it = |it: &&toml::Table| text_of(it, "kind").as_deref() == Some(kind);
            self.list("step").find(is_it).and_then(|it| number(it, "at_ms"))
        };
        let start = at("start").expect("a start");
        (Timestamp(start), Timestamp(at("stop").unwrap_or(start)))
    }

    fn read_outputs(&mut self) {
        for step in self.table["step"].as_array().cloned().unwrap_or_default() {
            let Some(step) = step.as_table() else { continue };
            let Some(script) = text_of(step, "script") else { continue };
            let output = self.root.join(script.replace(".script", ".out"));
            let mut now = number(step, "to_ms");
            for line in fs::read_to_string(output).unwrap_or_default().lines() {
                let words: Vec<&str> = line.split(' ').collect();
                match words[..] {
                    ["created", topic, .., "at", at] => {
                        self.created.insert(topic.to_owned(), at.parse().expect("a time"));
                    }
                    ["now", _, at] => now = at.parse().ok(),
                    ["acked", folder, range, ..] => {
                        let place = Place::parse(folder).expect("topic-partition");
                        let last = range.rsplit("..").next().expect("a range");
                        let last = last.parse().expect("an offset");
                        let at = now.expect("a step has times");
                        self.acked.entry(place).or_default().push((last, at));
                    }
                    ["altered", "topic", topic, "at", at] => {
                        let at = at.parse().expect("a time");
                        self.altered.entry(topic.to_owned()).or_default().push(at);
                    }
                    _ => {}
                }
            }
        }
        for step in self.list("step").cloned().collect::<Vec<_>>() {
            if text_of(&step, "kind").as_deref() != Some("append") {
                continue;
            }
            let topic = text_of(&step, "topic").expect("a topic");
            let partition = number(&step, "partition").unwrap_or(0);
            let place = Place { topic, partition: u32::try_from(partition).expect("small") };
            let last = u64::try_from(number(&step, "last").expect("an offset")).expect("positive");
            let at = number(&step, "at_ms").expect("a time");
            self.acked.entry(place).or_default().push((last, at));
        }
        for acked in self.acked.values_mut() {
            acked.sort_unstable();
        }
    }

    /// The histories of all partitions.
    pub fn histories(&self) -> Vec<History> {
        self.places().into_iter().map(|place| self.history(place)).collect()
    }

    fn history(&self, place: Place) -> History {
        let (configs, created) = self.topic(&place.topic);
        let mut events: Vec<(i64, u8, Event)> = Vec::new();
        let mut newest = i64::MIN;
        let gone = raised(&self.root, &place.folder(), "segment deletion");
        for batch in self.batches(&place) {
            // What is behind another batch in the log came after it, and what retention deleted
            // was there before that.
            let last = batch.header().last_offset().expect("Kafka's").to_wire();
            let until = gone.iter().find(|(_, to)| last < *to).map_or(i64::MAX, |it| it.0 - 1);
            newest = newest.max(self.time_of(&place, &batch)).min(until);
            events.push((newest, 1, Event::Append(sent(batch))));
        }
        events.extend(self.steps(&place));
        events.extend(self.passes(&place, created).into_iter().map(|at| (at, 2, Event::Retain)));
        for (at, to) in raised(&self.root, &place.folder(), "client delete records request") {
            events.push((at, 2, Event::DeleteRecords(to)));
        }
        for (at, copied) in &self.snapshots {
            events.push((*at, 4, Event::Snapshot(copied.clone())));
        }
        // The first start is before the topic was made.
        events.retain(|(at, _, event)| !matches!(event, Event::Start) || created < *at);
        events.sort_by_key(|(at, order, _)| (*at, *order));
        let events = events.into_iter().map(|(at, _, event)| (Timestamp(at), event)).collect();
        let topic_id = self.topic_id(&place);
        let server = server(&self.broker());
        History { place, topic_id, created: Timestamp(created), server, configs, events }
    }

    /// The broker's settings that differ from the defaults.
    fn broker(&self) -> BTreeMap<String, String> {
        let table = self.table.get("broker").and_then(toml::Value::as_table);
        table
            .map(|it| it.iter().map(|(name, it)| (name.clone(), text(it))).collect())
            .unwrap_or_default()
    }

    fn topic_id(&self, place: &Place) -> TopicId {
        let mut files = self.snapshots.iter().filter_map(|(_, copied)| {
            fs::read(copied.path.join(place.folder()).join(partition_metadata::FILE_NAME)).ok()
        });
        let bytes = files.next().expect("a copy of the folder has the file");
        partition_metadata::parse(&bytes).expect("Kafka's")
    }

    fn steps(&self, place: &Place) -> Vec<(i64, u8, Event)> {
        let mut events = Vec::new();
        let mut altered = 0;
        for step in self.list("step") {
            let Some(at) = number(step, "at_ms") else { continue };
            let is_ours = text_of(step, "topic").is_none_or(|it| it == place.topic);
            match text_of(step, "kind").as_deref() {
                Some("start") => events.push((at, 0, Event::Start)),
                Some("stop") => events.push((at, 3, Event::Stop)),
                Some("kill") => events.push((at, 3, Event::Kill)),
                Some("config" | "alter-config") if is_ours => {
                    let told = self.altered.get(&place.topic).and_then(|it| it.get(altered));
                    altered += 1;
                    let at = told.copied().unwrap_or(at);
                    events.push((at, 0, Event::Configure(settings(step))));
                }
                _ => {}
            }
        }
        events
    }

    /// When retention looked at the partition: brokers that were told to look often did so at the
    /// time that their log says, and every so many milliseconds before and after.
    fn passes(&self, place: &Place, created: i64) -> Vec<i64> {
        let broker = self.broker();
        let every = broker.get("log.retention.check.interval.ms");
        let every = every.and_then(|it| it.parse::<i64>().ok());
        let Some(every) = every.filter(|it| (1..=60_000).contains(it)) else { return Vec::new() };
        let topic = place.topic.replace('-', "_");
        let known = self.list("step").find_map(|it| {
            // The name may lack what stands before all topics of a case.
            let is_ours =
                |name: &str| name.strip_prefix("pass_ms_").is_some_and(|it| topic.ends_with(it));
            it.keys().find(|name| is_ours(name)).and_then(|name| number(it, name))
        });
        let known = known.unwrap_or(created + every);
        let first = known - (known - created) / every * every;
        let last = self.snapshots.last().map_or(created, |it| it.0);
        let step = usize::try_from(every).expect("positive");
        let raised = raised(&self.root, &place.folder(), "segment deletion");
        let told: Vec<i64> = raised.into_iter().map(|it| it.0).collect();
        // The broker's clock drifts against the grid: a point next to a pass that was told of is
        // that pass.
        let is_told = |at: &i64| told.iter().any(|it| (it - at).abs() < every / 2);
        let grid = (first..last).step_by(step).filter(|at| created < *at && !is_told(at));
        grid.chain(told.iter().copied()).collect()
    }

    fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for (_, copied) in &self.snapshots {
            let Ok(entries) = fs::read_dir(&copied.path) else { continue };
            for entry in entries {
                let path = entry.expect("an entry").path();
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                let place = Place::parse(&name).filter(|_| path.is_dir());
                places.extend(place.filter(|it| it.topic != "__cluster_metadata"));
            }
        }
        places.sort();
        places.dedup();
        places
    }

    /// Configs at first, and the time of its creation.
    fn topic(&self, name: &str) -> (BTreeMap<String, String>, i64) {
        let is_it = |it: &&toml::Table| {
            text_of(it, "name").or(text_of(it, "topic")).as_deref() == Some(name)
        };
        let created = |it: &toml::Table| text_of(it, "kind").as_deref() == Some("create-topic");
        let table = self.list("topic").find(is_it);
        let table = table.or_else(|| self.list("step").filter(|it| created(it)).find(is_it));
        let mut configs = table.map(settings).unwrap_or_default();
        if table.is_none() && name.starts_with("__") {
            // As the broker makes its internal topics.
            configs.insert("cleanup.policy".to_owned(), "compact".to_owned());
            configs.insert("segment.bytes".to_owned(), "104857600".to_owned());
        }
        let told = table.and_then(|it| number(it, "created_ms").or(number(it, "at_ms")));
        let first =
            self.list("step").filter_map(|it| number(it, "from_ms").or(number(it, "at_ms")));
        let created = self.created.get(name).copied().or(told).or(first.min());
        (configs, created.expect("a time"))
    }

    /// Every batch that was ever seen, by the oldest copy that has it: later ones may be compacted.
    fn batches(&self, place: &Place) -> Vec<RecordBatch> {
        let mut batches: BTreeMap<i64, (i64, RecordBatch)> = BTreeMap::new();
        for (_, copied) in &self.snapshots {
            let folder = copied.path.join(place.folder());
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries {
                let path = entry.expect("an entry").path();
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                let is_log = SegmentFile::parse(&name).is_some_and(|it| {
                    it.kind == FileKind::Log && matches!(it.suffix, Suffix::None | Suffix::Deleted)
                });
                if !is_log {
                    continue;
                }
                let bytes = fs::read(&path).expect("readable");
                let mut rest = bytes.as_slice();
                while let Ok(header) = BatchHeader::decode(rest) {
                    let size = usize::try_from(header.size.0).expect("small");
                    let Some(batch) = rest.get(..size) else { break };
                    let last = header.base_offset + i64::from(header.last_offset_delta);
                    let known = batches.range(..=last).next_back().map(|(_, it)| it.0);
                    if known.is_none_or(|known| known < header.base_offset)
                        && let Ok(batch) = RecordBatch::decode(BytesMut::from(batch))
                    {
                        batches.insert(header.base_offset, (last, batch));
                    }
                    rest = &rest[size..];
                }
            }
        }
        batches.into_values().map(|it| it.1).collect()
    }

    /// When a batch was appended: as its step says, a marker and what has no step at its own time.
    fn time_of(&self, place: &Place, batch: &RecordBatch) -> i64 {
        let own = batch.header().max_timestamp.0;
        if batch.header().is_control() || batch.header().is_log_append_time() {
            return own;
        }
        let Some(acked) = self.acked.get(place) else { return own };
        let last = batch.header().last_offset().expect("Kafka's").0;
        let behind = acked.partition_point(|(offset, _)| *offset < last);
        acked.get(behind).map_or(own, |(_, at)| *at)
    }
}

/// When the log start of a partition's folder rose and where to, for this reason, by the broker's
/// log in a case's folder.
pub fn raised(root: &Path, folder: &str, why: &str) -> Vec<(i64, i64)> {
    const WHAT: &str = "Incremented log start offset to ";
    let text = fs::read_to_string(root.join("dump/broker-log.txt")).unwrap_or_default();
    let about = format!("partition={folder},");
    let lines = text.lines().filter(|line| line.contains(&about));
    let raised = lines.filter_map(|line| {
        let (offset, reason) = line.split_once(WHAT)?.1.split_once(" due to ")?;
        let offset = offset.parse().expect("an offset");
        reason.starts_with(why).then(|| (logged_at(line), offset))
    });
    raised.collect()
}

/// A batch as its producer sent it: offsets and stamp taken off. When no record has the time that
/// the header says, it was sent with the LogAppendTime flag, which the broker took off, believing
/// the header.
fn sent(mut batch: RecordBatch) -> RecordBatch {
    let is_stamped = batch.header().is_log_append_time();
    let stored = *batch.header();
    if is_stamped {
        batch.set_max_timestamp(false, stored.max_timestamp);
    }
    let header = *batch.header();
    let codec = header.codec().expect("Kafka's");
    let payload = codec::decompress(codec, batch.payload(), ByteCount(1 << 30)).expect("Kafka's");
    let records = RecordsIter::new(&header, &payload).map_while(Result::ok);
    let newest = records.map(|it| it.timestamp).max();
    drop(payload);
    if let Some(newest) = newest.filter(|it| *it != stored.max_timestamp) {
        if is_stamped {
            batch.set_max_timestamp(false, newest);
        } else if !header.is_control() {
            batch.set_max_timestamp(true, stored.max_timestamp);
        }
    }
    batch.assign(Offset(0), stored.leader_epoch);
    batch
}

/// `config` of a step or topic: a table, or `set`: words `name=value`.
fn settings(table: &toml::Table) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    if let Some(config) = table.get("config").and_then(toml::Value::as_table) {
        for (name, value) in config {
            settings.insert(name.clone(), text(value));
        }
    }
    for pair in text_of(table, "set").unwrap_or_default().split_whitespace() {
        let (name, value) = pair.split_once('=').expect("name=value");
        settings.insert(name.to_owned(), value.to_owned());
    }
    settings
}

/// When a line of the broker's log was written, in milliseconds; its clock is UTC:
/// `[2026-11-29 22:18:29,648] ...`.
fn logged_at(line: &str) -> i64 {
    let digits: String = line.chars().take(24).filter(char::is_ascii_digit).collect();
    let number = |from: usize, to: usize| digits[from..to].parse::<i64>().expect("digits");
    let (year, month, day) = (number(0, 4), number(4, 6), number(6, 8));
    // Days since 1970, with years that begin in March, so that the odd day is the last.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    let days = days - 719_469;
    let seconds = ((days * 24 + number(8, 10)) * 60 + number(10, 12)) * 60 + number(12, 14);
    seconds * 1_000 + number(14, 17)
}

fn text(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn text_of(table: &toml::Table, name: &str) -> Option<String> {
    table.get(name)?.as_str().map(str::to_owned)
}

fn number(table: &toml::Table, name: &str) -> Option<i64> {
    table.get(name)?.as_integer()
}
