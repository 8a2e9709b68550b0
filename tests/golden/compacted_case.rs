//! The golden case as it happened: `case.toml`, and the batches of the oldest copies that have
//! them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use uringlog::broker::config::ServerConfig;
use uringlog::format::batch::{BatchHeader, RecordBatch};
use uringlog::units::{Offset, Timestamp};

use crate::driver::{files, server};
use crate::timeline::raised;

/// One thing that happened to a topic's only partition.
pub enum Event {
    /// Before anything that happened in the same millisecond.
    Configure(BTreeMap<String, String>),
    Start,
    Append(RecordBatch),
    Clean,
    /// The cleaner's thread looks for expired segments of all topics behind each round, whichever
    /// topic that was of, and whenever it wakes and finds nothing to clean; this is when it found
    /// some, as the broker's log says.
    Retain,
    Stop,
    /// A copy was taken.
    Copied(PathBuf),
}

/// A topic's history.
pub struct History {
    pub topic: String,
    pub created: Timestamp,
    pub server: ServerConfig,
    pub configs: BTreeMap<String, String>,
    pub events: Vec<(Timestamp, Event)>,
}

/// All topics of the case.
pub fn histories(root: &Path) -> Vec<History> {
    let text = fs::read_to_string(root.join("case.toml")).expect("case.toml");
    let table: toml::Table = text.parse().expect("TOML");
    let created = steps(&table).filter(|step| text_of(step, "kind") == "create-topic");
    created.map(|step| history(root, &table, step)).collect()
}

fn steps(table: &toml::Table) -> impl Iterator<Item = &toml::Value> {
    table["step"].as_array().expect("steps").iter()
}

fn history(root: &Path, table: &toml::Table, creation: &toml::Value) -> History {
    let topic = text_of(creation, "topic").to_owned();
    let created = time_of(creation, "at_ms");
    let mut events = Vec::new();
    let mut copies = Vec::new();
    for step in steps(table).filter(|step| created < time_of(step, "at_ms")) {
        let is_ours = step.get("topic").is_none_or(|it| it.as_str() == Some(&topic));
        let at = time_of(step, "at_ms");
        match text_of(step, "kind") {
            "alter-config" if is_ours => events.push((at, 0, Event::Configure(configs(step)))),
            "start" => events.push((at, 0, Event::Start)),
            "stop" => events.push((at, 2, Event::Stop)),
            "snapshot" => {
                let copy = root.join(text_of(step, "dir"));
                copies.push(copy.clone());
                events.push((at, 3, Event::Copied(copy)));
            }
            _ => {}
        }
    }
    for pass in table["clean"].as_array().expect("passes") {
        if text_of(pass, "topic") == topic {
            events.push((time_of(pass, "logged_ms"), 1, Event::Clean));
        }
    }
    for (at, _) in raised(root, &format!("{topic}-0"), "segment deletion") {
        events.push((Timestamp(at), 0, Event::Retain));
    }
    let acked: BTreeMap<u64, Timestamp> = steps(table)
        .filter(|step| text_of(step, "kind") == "append" && text_of(step, "topic") == topic)
        .map(|step| (number(step, "last").cast_unsigned(), time_of(step, "at_ms")))
        .collect();
    // The order of the batches is that of the appends, whatever clocks say.
    let mut latest = created;
    for batch in batches(&copies, &topic) {
        latest = latest.max(appended(&batch, &acked));
        events.push((latest, 1, Event::Append(sent(batch))));
    }
    events.sort_by_key(|(at, order, _)| (*at, *order));
    let events = events.into_iter().map(|(at, _, event)| (at, event)).collect();
    let server = server(&table.get("broker").map(settings).unwrap_or_default());
    History { topic, created, server, configs: configs(creation), events }
}

/// When a batch was appended: as its step says; markers and what the broker stamped at their own
/// time.
fn appended(batch: &RecordBatch, acked: &BTreeMap<u64, Timestamp>) -> Timestamp {
    let header = batch.header();
    if header.is_control() || header.is_log_append_time() {
        return header.max_timestamp;
    }
    let last = header.last_offset().expect("Kafka's").0;
    acked.range(last..).next().map_or(header.max_timestamp, |(_, at)| *at)
}

/// Every batch, from the oldest copy that has it: later ones are cleaned.
fn batches(copies: &[PathBuf], topic: &str) -> Vec<RecordBatch> {
    let mut batches: BTreeMap<i64, (i64, RecordBatch)> = BTreeMap::new();
    for copy in copies {
        for (name, bytes) in files(&copy.join(format!("{topic}-0"))) {
            let mut rest = &bytes[..];
            while name.ends_with(".log")
                && let Ok(header) = BatchHeader::decode(rest)
            {
                let (batch, behind) = rest.split_at(usize::try_from(header.size.0).expect("small"));
                let last = header.base_offset + i64::from(header.last_offset_delta);
                let known = batches.range(..=last).next_back().map(|(_, it)| it.0);
                if known.is_none_or(|known| known < header.base_offset) {
                    let batch = RecordBatch::decode(BytesMut::from(batch)).expect("Kafka's");
                    batches.insert(header.base_offset, (last, batch));
                }
                rest = behind;
            }
        }
    }
    batches.into_values().map(|it| it.1).collect()
}

/// A batch as its producer sent it.
fn sent(mut batch: RecordBatch) -> RecordBatch {
    let header = *batch.header();
    if header.is_log_append_time() {
        batch.set_max_timestamp(false, header.max_timestamp);
    }
    batch.assign(Offset(0), header.leader_epoch);
    batch
}

fn configs(step: &toml::Value) -> BTreeMap<String, String> {
    settings(&step["config"])
}

fn settings(table: &toml::Value) -> BTreeMap<String, String> {
    let pairs = table.as_table().expect("settings").iter();
    pairs.map(|(name, value)| (name.clone(), value.as_str().expect("text").to_owned())).collect()
}

fn text_of<'a>(step: &'a toml::Value, name: &str) -> &'a str {
    step.get(name).and_then(toml::Value::as_str).unwrap_or_default()
}

fn number(step: &toml::Value, name: &str) -> i64 {
    step[name].as_integer().expect("a number")
}

fn time_of(step: &toml::Value, name: &str) -> Timestamp {
    Timestamp(number(step, name))
}
