//! What a case's broker did, in the order in which it happened: from `case.toml`, the producers'
//! outputs, and the batches of the partition folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use uringlog::format::batch::{BatchHeader, RecordBatch};
use uringlog::format::codec;
use uringlog::format::names::{FileKind, SegmentFile, Suffix};
use uringlog::format::record::RecordsIter;
use uringlog::units::{ByteCount, Offset, Timestamp};

/// A partition of a case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    pub topic: String,
    pub partition: u32,
}

impl Place {
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
    Stop,
    Kill,
    Start,
    /// A copy of the folder was taken: the name of the log directory.
    Snapshot(PathBuf),
}

/// A partition's history.
#[derive(Debug)]
pub struct History {
    pub place: Place,
    pub created: Timestamp,
    pub configs: BTreeMap<String, String>,
    pub events: Vec<(Timestamp, Event)>,
}

/// A case that is laid out in a folder.
pub struct Timeline {
    root: PathBuf,
    table: toml::Table,
    /// Copies of the log directory, oldest first, with their times.
    snapshots: Vec<(i64, PathBuf)>,
    /// What the outputs of producers say: when a topic was made, and when an offset came.
    created: BTreeMap<String, i64>,
    acked: BTreeMap<Place, Vec<(u64, i64)>>,
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
        };
        let tables = timeline.list("snapshot").chain(timeline.list("step"));
        let snapshots = tables.filter_map(|it| Some((text_of(it, "dir")?, number(it, "at_ms")?)));
        let mut snapshots: Vec<(i64, PathBuf)> =
            snapshots.map(|(dir, at)| (at, root.join(dir))).collect();
        snapshots.sort();
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
        ];
        let kinds = self.list("step").filter_map(|it| text_of(it, "kind"));
        let cleans = self.list("clean").map(|_| "clean".to_owned());
        let mut unknown: Vec<String> =
            kinds.filter(|it| !KNOWN.contains(&it.as_str())).chain(cleans).collect();
        unknown.sort();
        unknown.dedup();
        unknown
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
                        let (topic, partition) = folder.rsplit_once('-').expect("topic-partition");
                        let place = Place {
                            topic: topic.to_owned(),
                            partition: partition.parse().expect("a number"),
                        };
                        let last = range.rsplit("..").next().expect("a range");
                        let last = last.parse().expect("an offset");
                        let at = now.expect("a step has times");
                        self.acked.entry(place).or_default().push((last, at));
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
        let mut histories = Vec::new();
        for place in self.places() {
            let (configs, created) = self.topic(&place.topic);
            let mut events: Vec<(i64, u8, Event)> = Vec::new();
            for batch in self.batches(&place) {
                let at = self.time_of(&place, &batch);
                events.push((at, 1, Event::Append(sent(batch))));
            }
            for step in self.list("step") {
                let Some(at) = number(step, "at_ms") else { continue };
                let is_ours = text_of(step, "topic").is_none_or(|it| it == place.topic);
                match text_of(step, "kind").as_deref() {
                    Some("start") => events.push((at, 0, Event::Start)),
                    Some("stop") => events.push((at, 2, Event::Stop)),
                    Some("kill") => events.push((at, 2, Event::Kill)),
                    Some("config" | "alter-config") if is_ours => {
                        events.push((at, 0, Event::Configure(settings(step))));
                    }
                    Some("retention_pass") => {
                        let name = format!("pass_ms_{}", place.topic.replace('-', "_"));
                        if let Some(at) = number(step, &name) {
                            events.push((at, 2, Event::Retain));
                        }
                    }
                    _ => {}
                }
            }
            for (at, directory) in &self.snapshots {
                events.push((*at, 3, Event::Snapshot(directory.clone())));
            }
            // The first start is before the topic was made.
            events.retain(|(at, _, event)| !matches!(event, Event::Start) || created < *at);
            events.sort_by_key(|(at, order, _)| (*at, *order));
            let events = events.into_iter().map(|(at, _, event)| (Timestamp(at), event)).collect();
            histories.push(History { place, created: Timestamp(created), configs, events });
        }
        histories
    }

    fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for (_, directory) in &self.snapshots {
            let Ok(entries) = fs::read_dir(directory) else { continue };
            for entry in entries {
                let path = entry.expect("an entry").path();
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                let Some((topic, partition)) = name.rsplit_once('-') else { continue };
                let Ok(partition) = partition.parse() else { continue };
                if path.is_dir() && topic != "__cluster_metadata" {
                    places.push(Place { topic: topic.to_owned(), partition });
                }
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
        for (_, directory) in &self.snapshots {
            let folder = directory.join(place.folder());
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

/// A batch as its producer sent it: offsets taken off. When no record has the time that the header
/// says, it was sent with the LogAppendTime flag, which the broker took off, believing the header.
fn sent(mut batch: RecordBatch) -> RecordBatch {
    let header = *batch.header();
    let codec = header.codec().expect("Kafka's");
    let payload = codec::decompress(codec, batch.payload(), ByteCount(1 << 30)).expect("Kafka's");
    let records = RecordsIter::new(&header, &payload).map_while(Result::ok);
    let newest = records.map(|it| it.timestamp).max();
    let is_flagged = !header.is_log_append_time()
        && !header.is_control()
        && newest.is_some_and(|it| it != header.max_timestamp);
    let epoch = header.leader_epoch;
    drop(payload);
    if is_flagged {
        batch.set_max_timestamp(true, header.max_timestamp);
    }
    batch.assign(Offset(0), epoch);
    batch
}

/// `config` of a step or topic: a table, or `set`: words `name=value`.
fn settings(table: &toml::Table) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    if let Some(config) = table.get("config").and_then(toml::Value::as_table) {
        for (name, value) in config {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            settings.insert(name.clone(), text);
        }
    }
    for pair in text_of(table, "set").unwrap_or_default().split_whitespace() {
        let (name, value) = pair.split_once('=').expect("name=value");
        settings.insert(name.to_owned(), value.to_owned());
    }
    settings
}

fn text_of(table: &toml::Table, name: &str) -> Option<String> {
    table.get(name)?.as_str().map(str::to_owned)
}

fn number(table: &toml::Table, name: &str) -> Option<i64> {
    table.get(name)?.as_integer()
}
