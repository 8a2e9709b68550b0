//! `__cluster_metadata-0`: the partition that keeps topics, ids and configs as KRaft records.
//!
//! An ordinary partition of shard 0's engine, always in the device tier and kept for ever. What
//! belongs together is one batch, so that a crash leaves all of it or nothing.

use crate::broker::apply::tell;
use crate::broker::directory::FoundPartitions;
use crate::broker::image::{Image, ImageError};
use crate::broker::mail::Opened;
use crate::broker::node::Shared;
use crate::format::batch::{Codec, RecordBatch};
use crate::format::codec;
use crate::format::id::CLUSTER_METADATA_ID;
use crate::format::kraft::{KraftError, MetadataRecord};
use crate::format::names::{CLUSTER_METADATA, TopicName};
use crate::format::record::{BatchBuilder, NewRecord, RecordsIter};
use crate::log::config::{CleanupPolicy, Durability};
use crate::log::{AppendError, LogConfig, Opening};
use crate::shard::{Engine, EngineError, Partition, PartitionSpec, ReadError, now};
use crate::units::{ByteCount, LeaderEpoch, Offset, PartitionId};

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
    /// Opens the log and replays it, or makes it. Says what opening it found.
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
            (partition, Some((key, report)))
        } else {
            (engine.create(spec).await?, None)
        };
        let image = replay(&partition).await?;
        Ok((MetadataLog { partition, image }, opened))
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

async fn replay(partition: &Partition) -> Result<Image, MetadataError> {
    let mut image = Image::default();
    let mut outcome = Ok(());
    let start = partition.cursors().log_start;
    partition
        .replay(start, REPLAY_BYTES, |batch| {
            if outcome.is_ok() {
                outcome = apply(&mut image, &batch);
            }
        })
        .await?;
    outcome?;
    Ok(image)
}

/// Applies the records of a batch; control batches carry nothing for the image.
fn apply(image: &mut Image, batch: &RecordBatch) -> Result<(), MetadataError> {
    let header = batch.header();
    if header.is_control() {
        return Ok(());
    }
    let base = header.base_offset;
    let damaged = |error: String| MetadataError::Batch { offset: base, error };
    let codec = header.codec().map_err(|error| damaged(error.to_string()))?;
    let payload = codec::decompress(codec, batch.payload(), BATCH_BYTES_MAX);
    let payload = payload.map_err(|error| damaged(error.to_string()))?;
    for record in RecordsIter::new(header, &payload) {
        let record = record.map_err(|error| damaged(error.to_string()))?;
        let offset = base + i64::from(record.offset_delta);
        let decoded = MetadataRecord::decode(record.value.unwrap_or_default());
        let record = decoded.map_err(|error| MetadataError::Record { offset, error })?;
        image.apply(&record).map_err(|error| MetadataError::Image { offset, error })?;
    }
    Ok(())
}

fn batch(records: &[MetadataRecord]) -> RecordBatch {
    let mut builder = BatchBuilder::new(Codec::None);
    for record in records {
        builder.push(&NewRecord::value(now(), &record.encode()));
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
