//! `__cluster_metadata-0`: the partition that keeps topics, ids and configs as KRaft records.
//!
//! An ordinary partition of shard 0's engine, always in the device tier and kept for ever. What
//! belongs together is one batch, so that a crash leaves all of it or nothing.
//!
//! Kafka may have run on the directory in between. Then there are records about brokers, and
//! records between a beginning and an end that count together. Where Kafka has dropped the front of
//! the log there is a snapshot (`END_OFFSET-EPOCH.checkpoint`) of what it said: batches, too.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::BytesMut;

use crate::broker::apply::tell;
use crate::broker::directory::{DirectoryError, FoundPartitions};
use crate::broker::image::{Image, ImageError};
use crate::broker::mail::Opened;
use crate::broker::node::Shared;
use crate::format::batch::{BatchHeader, Codec, RecordBatch};
use crate::format::codec;
use crate::format::id::CLUSTER_METADATA_ID;
use crate::format::kraft::{KraftError, MetadataRecord};
use crate::format::names::{CLUSTER_METADATA, TopicName};
use crate::format::record::{BatchBuilder, NewRecord, RecordsIter};
use crate::log::config::{CleanupPolicy, Durability};
use crate::log::{AppendError, LogConfig, Opening};
use crate::shard::{Engine, EngineError, Partition, PartitionSpec, ReadError, now};
use crate::units::{ByteCount, LeaderEpoch, Offset, PartitionId, usize_of};

/// Largest batch of the metadata log: a topic of the most partitions with all its configs fits.
const BATCH_BYTES_MAX: ByteCount = ByteCount(8 << 20);

/// How much of the log is read at a time when it is replayed.
const REPLAY_BYTES: ByteCount = ByteCount(1 << 20);

const PARTITION: PartitionId = PartitionId(0);

/// Why the metadata can't be had.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// The log can't be opened or made.
    #[error("{CLUSTER_METADATA}-0: {0}")]
    Engine(#[from] EngineError),
    /// The log can't be read.
    #[error("{CLUSTER_METADATA}-0: {0}")]
    Read(#[from] ReadError),
    /// The log can't be written.
    #[error("{CLUSTER_METADATA}-0: {0}")]
    Append(#[from] AppendError),
    /// A batch whose records can't be read.
    #[error("{CLUSTER_METADATA}-0: the batch at offset {offset} is damaged: {error}")]
    Batch {
        /// Its first offset.
        offset: i64,
        /// What is wrong with it.
        error: String,
    },
    /// A record that this broker doesn't understand.
    #[error(
        "{CLUSTER_METADATA}-0: record {offset}: {error}; the log was written by another or a newer \
         broker"
    )]
    Record {
        /// Its offset.
        offset: i64,
        /// What is wrong with it.
        error: KraftError,
    },
    /// A snapshot can't be read.
    #[error("{}: {error}", .path.display())]
    Snapshot {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The front of the log is gone, and so is what it said.
    #[error(
        "{CLUSTER_METADATA}-0 begins at offset {start}, and no snapshot reaches that far; restore \
         its .checkpoint files"
    )]
    NoSnapshot {
        /// First offset of the log.
        start: Offset,
    },
    /// The directory can't be marked as in use.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A record that contradicts those before it.
    #[error("{CLUSTER_METADATA}-0: record {offset}: {error}")]
    Image {
        /// Its offset.
        offset: i64,
        /// What is wrong with it.
        error: ImageError,
    },
}

/// The log, and what it says.
pub struct MetadataLog {
    partition: Partition,
    /// What is durable.
    image: Image,
}

impl MetadataLog {
    /// Opens the log and replays it, or makes it. Says what opening it found. The clean marker
    /// goes in between: a log that is refused leaves the directory as clean as it was, and from
    /// the first write on a stop counts as a crash.
    ///
    /// # Errors
    /// [`MetadataError`].
    pub async fn open(
        engine: &Engine,
        shared: &Shared,
    ) -> Result<(MetadataLog, Option<Opened>), MetadataError> {
        let topic = TopicName::cluster_metadata();
        let key = (topic.clone(), PARTITION);
        let spec = PartitionSpec {
            topic,
            partition: PARTITION,
            topic_id: CLUSTER_METADATA_ID,
            config: config(),
            leader_epoch: LeaderEpoch(0),
        };
        let (partition, opened) = if is_there(&shared.found) {
            let clean = shared.was_clean;
            // It is not in the checkpoint files, as in Kafka, so an unclean start scans all of it.
            let opening =
                Opening { clean, recovery_point: None, log_start: None, leader_epoch_bump: false };
            let (partition, report) = engine.open(spec, opening)?;
            tell(&key, &report);
            // Batches never carry an epoch below those before them, which may be Kafka's.
            partition.become_leader(partition.epoch_of(partition.cursors().next));
            (partition, Some((key, report)))
        } else {
            shared.root.begin()?;
            (engine.create(spec).await?, None)
        };
        let replay = replay(&partition).await?;
        shared.root.begin()?;
        let is_begun = replay.put_off.is_some();
        let mut log = MetadataLog { partition, image: replay.image };
        if is_begun {
            // As Kafka's controller: what follows must not count as part of it.
            log.write(&[vec![MetadataRecord::Abort]]).await?;
        }
        Ok((log, opened))
    }

    /// What is durable.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Writes records, one batch for each group, and waits until they are durable. Then, and only
    /// then, the image says so too.
    ///
    /// # Errors
    /// [`MetadataError`]: nothing has changed. After a failed write the log stays offline until the
    /// next start, which finds out what the file holds.
    pub async fn write(&mut self, groups: &[Vec<MetadataRecord>]) -> Result<(), MetadataError> {
        let mut image = self.image.clone();
        let offset = self.partition.cursors().next.to_wire();
        for record in groups.iter().flatten() {
            image.apply(record).map_err(|error| MetadataError::Image { offset, error })?;
        }
        let mut due = None;
        for batch in batches(groups)? {
            due = Some(self.partition.append(batch)?.due);
        }
        if let Some(due) = due {
            self.partition.reached(due).await?;
        }
        self.image = image;
        Ok(())
    }

    /// The next version of the image, to be published.
    pub fn next_version(&mut self) -> Image {
        self.image.version += 1;
        self.image.log_end = self.partition.cursors().high_watermark;
        self.image.clone()
    }
}

/// Whether the log's directory is there; its records may still be in a commit journal.
pub fn is_made(found: &FoundPartitions) -> bool {
    found.contains_key(&(TopicName::cluster_metadata(), PARTITION))
}

/// Whether the directory has a metadata log.
pub fn is_there(found: &FoundPartitions) -> bool {
    let key = (TopicName::cluster_metadata(), PARTITION);
    found.get(&key).is_some_and(|it| it.has_records)
}

fn config() -> LogConfig {
    LogConfig {
        retention_ms: None,
        retention_bytes: None,
        cleanup_policy: CleanupPolicy { delete: false, compact: false },
        batch_bytes_max: BATCH_BYTES_MAX,
        ..LogConfig::defaults(Durability::Device)
    }
}

async fn replay(partition: &Partition) -> Result<Replay, MetadataError> {
    let mut replay = Replay::default();
    let start = partition.cursors().log_start;
    let mut from = start;
    if Offset(0) < start {
        from = replay.take_snapshot(partition.directory(), start)?;
    }
    let mut outcome = Ok(());
    partition
        .replay(from, REPLAY_BYTES, |batch| {
            if outcome.is_ok() {
                outcome = replay.take(&batch);
            }
        })
        .await?;
    outcome?;
    Ok(replay)
}

/// What the batches read so far say.
#[derive(Default)]
struct Replay {
    image: Image,
    /// Records since a beginning that has no end yet, with their offsets.
    put_off: Option<Vec<(i64, MetadataRecord)>>,
}

impl Replay {
    /// Reads the newest snapshot; gives the offset that the log goes on from.
    fn take_snapshot(&mut self, directory: &Path, start: Offset) -> Result<Offset, MetadataError> {
        let failed = |path: &Path, error| MetadataError::Snapshot { path: path.to_owned(), error };
        let listed = snapshots(directory).map_err(|error| failed(directory, error))?;
        let newest = listed.into_iter().max().filter(|(end, _)| start <= *end);
        let (end, path) = newest.ok_or(MetadataError::NoSnapshot { start })?;
        let bytes = fs::read(&path).map_err(|error| failed(&path, error))?;
        let mut records = Vec::new();
        let mut rest = BytesMut::from(&bytes[..]);
        while !rest.is_empty() {
            let damaged = |error: String| MetadataError::Batch { offset: end.to_wire(), error };
            let header = BatchHeader::decode(&rest).map_err(|error| damaged(error.to_string()))?;
            let size = usize_of(header.size.0);
            if rest.len() < size {
                return Err(damaged("the snapshot ends inside it".into()));
            }
            let batch = RecordBatch::decode(rest.split_to(size));
            records.extend(read(&batch.map_err(|error| damaged(error.to_string()))?)?);
        }
        // A topic's partitions stand in the order of a hash map there.
        records.sort_by_key(|(_, record)| match record {
            MetadataRecord::Topic { .. } => (1, 0),
            MetadataRecord::Partition(partition) => (2, partition.partition.0),
            MetadataRecord::Config { .. } => (3, 0),
            _ => (0, 0),
        });
        for (offset, record) in records {
            self.apply(offset, record)?;
        }
        Ok(end)
    }

    fn take(&mut self, batch: &RecordBatch) -> Result<(), MetadataError> {
        for (offset, record) in read(batch)? {
            match (record, &mut self.put_off) {
                (MetadataRecord::Begin, put_off) => *put_off = Some(Vec::new()),
                (MetadataRecord::Abort, put_off) => *put_off = None,
                (MetadataRecord::End, put_off) => {
                    for (offset, record) in put_off.take().unwrap_or_default() {
                        self.apply(offset, record)?;
                    }
                }
                (record, Some(put_off)) => put_off.push((offset, record)),
                (record, None) => self.apply(offset, record)?,
            }
        }
        Ok(())
    }

    fn apply(&mut self, offset: i64, record: MetadataRecord) -> Result<(), MetadataError> {
        self.image.apply(&record).map_err(|error| MetadataError::Image { offset, error })
    }
}

/// Snapshots by the offset that they end at; the one that `kafka-storage format` leaves ends at 0.
fn snapshots(directory: &Path) -> io::Result<Vec<(Offset, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let id = name.strip_suffix(".checkpoint").and_then(|name| name.split_once('-'));
        if let Some((end, epoch)) = id
            && epoch.parse::<u32>().is_ok()
            && let Ok(end) = end.parse()
        {
            found.push((Offset(end), path));
        }
    }
    Ok(found)
}

/// The records of a batch with their offsets; control batches carry nothing for the image.
fn read(batch: &RecordBatch) -> Result<Vec<(i64, MetadataRecord)>, MetadataError> {
    let header = batch.header();
    if header.is_control() {
        return Ok(Vec::new());
    }
    let base = header.base_offset;
    let damaged = |error: String| MetadataError::Batch { offset: base, error };
    let codec = header.codec().map_err(|error| damaged(error.to_string()))?;
    let payload = codec::decompress(codec, batch.payload(), BATCH_BYTES_MAX);
    let payload = payload.map_err(|error| damaged(error.to_string()))?;
    let mut records = Vec::new();
    for record in RecordsIter::new(header, &payload) {
        let record = record.map_err(|error| damaged(error.to_string()))?;
        let offset = base + i64::from(record.offset_delta);
        let decoded = MetadataRecord::decode(record.value.unwrap_or_default());
        let record = decoded.map_err(|error| MetadataError::Record { offset, error })?;
        records.push((offset, record));
    }
    Ok(records)
}

/// One time for all: Kafka's controller doesn't start on a batch whose records differ in theirs
/// (`RecordsIterator`).
fn batch(records: &[MetadataRecord]) -> RecordBatch {
    let mut builder = BatchBuilder::new(Codec::None);
    let time = now();
    for record in records {
        builder.push(&NewRecord::value(time, &record.encode()));
    }
    builder.build()
}

/// The batches of these groups, if the log takes all of them: one that was appended can't be taken
/// back.
fn batches(groups: &[Vec<MetadataRecord>]) -> Result<Vec<RecordBatch>, AppendError> {
    let batches = groups.iter().filter(|group| !group.is_empty()).map(|group| batch(group));
    let batches: Vec<RecordBatch> = batches.collect();
    let limit = BATCH_BYTES_MAX;
    match batches.iter().map(RecordBatch::size).find(|size| limit < *size) {
        Some(size) => Err(AppendError::MessageTooLarge { size, limit }),
        None => Ok(batches),
    }
}

/// Where the log ends, for the log line at the start.
pub fn end(log: &MetadataLog) -> Offset {
    log.partition.cursors().high_watermark
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::format::kraft::{PartitionChange, PartitionRecord};
    use crate::format::properties::DirectoryId;
    use crate::units::{BrokerId, TopicId};

    const ID: TopicId = TopicId([7; 16]);

    fn topic() -> MetadataRecord {
        let name = TopicName::new("flights").expect("a legal name");
        MetadataRecord::Topic { name, topic_id: ID }
    }

    fn partition(number: u32) -> MetadataRecord {
        let (number, directory) = (PartitionId(number), DirectoryId([9; 16]));
        MetadataRecord::Partition(PartitionRecord::single(ID, number, BrokerId(1), directory))
    }

    #[test]
    fn what_was_begun_counts_once_it_has_ended() {
        let mut replay = Replay::default();
        replay.take(&batch(&[MetadataRecord::Begin, topic()])).expect("read");
        assert!(replay.image.topic("flights").is_none());
        replay.take(&batch(&[MetadataRecord::Abort])).expect("read");
        replay.take(&batch(&[MetadataRecord::Begin, topic(), partition(0)])).expect("read");
        replay.take(&batch(&[MetadataRecord::End])).expect("read");
        let found = replay.image.topic("flights").expect("it counts");
        assert_eq!(found.leader_epochs, [LeaderEpoch(0)]);
        assert!(replay.put_off.is_none());
    }

    #[test]
    fn the_newest_snapshot_stands_for_what_is_gone() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        let none = Replay::default().take_snapshot(directory.path(), Offset(5));
        assert!(matches!(none, Err(MetadataError::NoSnapshot { start: Offset(5) })));
        fs::write(path("00000000000000000004-0000000001.checkpoint"), b"older").expect("written");
        let change = PartitionChange { partition: PartitionId(1), topic_id: ID, leader: None };
        let batches =
            [batch(&[topic(), partition(1), partition(0)]), batch(&[MetadataRecord::NoOp])];
        let bytes = batches.each_ref().map(RecordBatch::as_bytes).concat();
        let newest = path("00000000000000000009-0000000002.checkpoint");
        fs::write(&newest, &bytes).expect("written");
        let mut replay = Replay::default();
        let end = replay.take_snapshot(directory.path(), Offset(5)).expect("it is read");
        assert_eq!(end, Offset(9));
        replay.take(&batch(&[MetadataRecord::PartitionChange(change)])).expect("both are there");
        fs::write(&newest, &bytes[..100]).expect("written");
        let torn = Replay::default().take_snapshot(directory.path(), Offset(5));
        assert!(matches!(torn, Err(MetadataError::Batch { offset: 9, .. })));
    }

    #[test]
    fn a_group_that_is_too_large_stops_those_before_it() {
        let group =
            |bytes| vec![MetadataRecord::FeatureLevel { name: "x".repeat(bytes), level: 1 }];
        let made = batches(&[group(1), Vec::new(), group(2)]).expect("small");
        assert_eq!(made.len(), 2);
        let refused = batches(&[group(1), group(9 << 20)]).map(|made| made.len());
        assert!(matches!(refused, Err(AppendError::MessageTooLarge { .. })), "{refused:?}");
    }
}
