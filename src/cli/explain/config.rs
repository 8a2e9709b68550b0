//! A topic's configs as the cluster's metadata beside the partition has them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::dump;
use crate::cli::log_file::{LogFile, LogFileError};
use crate::format::compact::Reader;
use crate::format::names::{CLUSTER_METADATA, PartitionDirectory};
use crate::format::record::RecordsIter;
use crate::format::schema::{METADATA, Value};
use crate::format::varint;

/// `resourceType` of a topic's configs.
const TOPIC: i64 = 2;
const CONFIG_RECORD: u32 = 4;
const REMOVE_TOPIC_RECORD: u32 = 9;
const TOPIC_RECORD: u32 = 2;

/// The configs of the topic whose partition's folder this is; `None` when no metadata lies beside
/// it, or it can't be read.
pub fn of_topic(folder: &Path) -> Option<BTreeMap<String, String>> {
    let folder = std::path::absolute(folder).ok()?;
    let topic = PartitionDirectory::parse(folder.file_name()?.to_str()?).ok()?.topic;
    let metadata = folder.parent()?.join(format!("{CLUSTER_METADATA}-0"));
    let mut configs = Configs { topic: topic.as_str().to_owned(), ..Configs::default() };
    for file in files(&metadata)? {
        configs.read(&file).ok()?;
    }
    Some(configs.values)
}

/// The newest snapshot, and the segments from there on; all of them do no harm.
fn files(metadata: &Path) -> Option<Vec<PathBuf>> {
    let entries = fs::read_dir(metadata).ok()?;
    let mut names: Vec<PathBuf> = entries.filter_map(|it| Some(it.ok()?.path())).collect();
    names.sort();
    let has = |path: &PathBuf, extension: &str| path.extension().is_some_and(|it| it == extension);
    let snapshot = names.iter().rfind(|path| has(path, "checkpoint")).cloned();
    let logs = names.into_iter().filter(|path| has(path, "log"));
    Some(snapshot.into_iter().chain(logs).collect())
}

#[derive(Default)]
struct Configs {
    topic: String,
    /// The id of the topic that has the name now.
    id: Option<Value>,
    values: BTreeMap<String, String>,
}

impl Configs {
    fn read(&mut self, file: &Path) -> Result<(), LogFileError> {
        let mut log = LogFile::open(file)?;
        let mut at = 0;
        while let Some(found) = log.batch(at, log.length())? {
            at = found.end();
            let (header, is_valid) = log.header(found)?;
            let Some(codec) = header.codec().ok().filter(|_| is_valid && !header.is_control())
            else {
                continue;
            };
            let payload = dump::payload(&mut log, found, codec)?;
            for record in RecordsIter::new(&header, &payload).map_while(Result::ok) {
                self.apply(record.value.unwrap_or_default());
            }
        }
        Ok(())
    }

    fn apply(&mut self, mut record: &[u8]) -> Option<()> {
        varint::take_u32(&mut record).ok().filter(|frame| *frame == 1)?;
        let kind = varint::take_u32(&mut record).ok()?;
        let version = i16::try_from(varint::take_u32(&mut record).ok()?).ok()?;
        if ![CONFIG_RECORD, TOPIC_RECORD, REMOVE_TOPIC_RECORD].contains(&kind) {
            return None;
        }
        let schema = METADATA.values.get(&i16::try_from(kind).ok()?)?;
        let value = schema.decode_front(version, &mut Reader::new(record)).ok()?;
        let is_text = |name: &str, wanted: &str| is_text(value.get(name), wanted);
        match kind {
            TOPIC_RECORD if is_text("name", &self.topic) => {
                self.id = value.get("topicId").cloned();
            }
            REMOVE_TOPIC_RECORD
                if self.id.is_some() && self.id.as_ref() == value.get("topicId") =>
            {
                self.values.clear();
            }
            CONFIG_RECORD
                if value.get("resourceType") == Some(&Value::Number(TOPIC))
                    && is_text("resourceName", &self.topic) =>
            {
                let Some(Value::Text(name)) = value.get("name") else { return None };
                match value.get("value") {
                    Some(Value::Text(text)) => drop(self.values.insert(name.clone(), text.clone())),
                    _ => drop(self.values.remove(name)),
                }
            }
            _ => {}
        }
        Some(())
    }
}

fn is_text(value: Option<&Value>, wanted: &str) -> bool {
    matches!(value, Some(Value::Text(text)) if text == wanted)
}
