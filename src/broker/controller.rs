//! The controller: the one place where topics come and go. It lives on shard 0, takes one order
//! after the other, and answers when every shard has followed.
//!
//! A change is written to the metadata log first and waited for; then the new image goes to all
//! shards, each of which opens, makes or retires its own partitions. A topic that some shard can't
//! make is taken back by a further record.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::broker::errors::Refusal;
use crate::broker::image::{Image, Topic};
use crate::broker::leftovers;
use crate::broker::mail::{
    Applied, ControllerOrder, Decide, NewTopic, Opened, ProducerIdBlock, ShardOrder,
};
use crate::broker::metadata_log::{MetadataError, MetadataLog};
use crate::broker::node::Node;
use crate::broker::placement::shard_of;
use crate::broker::topics;
use crate::format::kraft::{ConfigResource, MetadataRecord, PartitionRecord};
use crate::shard::{Inbox, Mailbox};
use crate::units::{LeaderEpoch, PartitionId, ProducerId, TopicId};
use crate::wire::error::ErrorCode;

/// The feature whose level says which records a metadata log may hold.
pub const METADATA_VERSION: &str = "metadata.version";

/// The level of Kafka 4.3.
pub const METADATA_VERSION_LEVEL: i16 = 30;

/// The feature whose level says how transactions are spoken of; from 2 on every end of one raises
/// the producer's epoch (KIP-890).
pub const TRANSACTION_VERSION: &str = "transaction.version";

/// The level of Kafka 4.3.
pub const TRANSACTION_VERSION_LEVEL: i16 = 2;

/// The feature whose level says which protocols groups speak; 1 is the consumer protocol (KIP-848).
pub const GROUP_VERSION: &str = "group.version";

/// The level of Kafka 4.3.
pub const GROUP_VERSION_LEVEL: i16 = 1;

/// What a new cluster of Kafka 4.3 has; what is missing is added at the start.
const FEATURES: [(&str, i16); 3] = [
    (METADATA_VERSION, METADATA_VERSION_LEVEL),
    (TRANSACTION_VERSION, TRANSACTION_VERSION_LEVEL),
    (GROUP_VERSION, GROUP_VERSION_LEVEL),
];

/// Producer ids that a shard gets at a time (`ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE`).
pub const PRODUCER_ID_BLOCK: i64 = 1000;

/// Epoch records that go into one batch.
const EPOCHS_PER_BATCH: usize = 1000;

/// Why the controller can't start.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The metadata log can't be had.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// A directory of a deleted topic can't be put aside.
    #[error(transparent)]
    Leftover(#[from] crate::broker::directory::DirectoryError),
    /// A shard stopped before it had opened its partitions.
    #[error("a shard stopped while it opened its partitions")]
    ShardStopped,
}

/// The controller of the broker.
pub struct Controller {
    node: Rc<Node>,
    log: MetadataLog,
    shards: Vec<Mailbox<ShardOrder>>,
}

impl Controller {
    /// Replays the metadata log, has all shards open their partitions, and opens the broker to
    /// clients. Says what opening them found.
    ///
    /// # Errors
    /// [`ControllerError`]. A partition that can't be opened is none: it stays offline, the others
    /// serve.
    pub async fn start(
        node: Rc<Node>,
        shards: Vec<Mailbox<ShardOrder>>,
    ) -> Result<(Controller, Vec<Opened>), ControllerError> {
        let (log, own) = MetadataLog::open(&node.engine, &node.shared).await?;
        let mut controller = Controller { node, log, shards };
        controller.raise_features().await?;
        leftovers::settle(&controller.node.shared, controller.log.image())?;
        let applied = controller.publish().await.ok_or(ControllerError::ShardStopped)?;
        for (topic, partition, reason) in &applied.failed {
            let name = controller.name_of(*topic);
            tracing::error!("partition {name}-{partition} is offline: {reason}");
        }
        if !applied.epochs.is_empty() {
            controller.raise_epochs(&applied).await?;
            controller.publish().await.ok_or(ControllerError::ShardStopped)?;
        }
        for shard in &controller.shards {
            shard.send(ShardOrder::Serve).await.map_err(|_| ControllerError::ShardStopped)?;
        }
        let mut opened: Vec<Opened> = own.into_iter().chain(applied.opened).collect();
        opened.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok((controller, opened))
    }

    /// Carries out orders until the senders are gone.
    pub async fn run(mut self, mut inbox: Inbox<ControllerOrder>) {
        while let Some(order) = inbox.receive().await {
            match order {
                // Whoever asked may have given up waiting; what was done stays done.
                ControllerOrder::CreateTopics { topics, answer } => {
                    drop(answer.send(self.create_topics(topics).await));
                }
                ControllerOrder::DeleteTopics { topics, answer } => {
                    drop(answer.send(self.delete_topics(&topics).await));
                }
                ControllerOrder::Change { changes, is_trial, answer } => {
                    drop(answer.send(self.change(changes, is_trial).await));
                }
                ControllerOrder::ProducerIds { answer } => {
                    drop(answer.send(self.producer_ids().await));
                }
            }
        }
    }

    /// The first records of a new log say which level its records have, and what clients may use.
    async fn raise_features(&mut self) -> Result<(), MetadataError> {
        let is_missing = |name: &str| self.log.image().feature(name).is_none();
        let missing = FEATURES.into_iter().filter(|(name, _)| is_missing(name));
        let record =
            |(name, level)| MetadataRecord::FeatureLevel { name: str::to_owned(name), level };
        let records: Vec<MetadataRecord> = missing.map(record).collect();
        if records.is_empty() {
            return Ok(());
        }
        self.log.write(&[records]).await
    }

    /// Recovery bumped epochs; clients must hear of them, or they would be fenced for ever.
    async fn raise_epochs(&mut self, applied: &Applied) -> Result<(), MetadataError> {
        let records: Vec<MetadataRecord> = applied
            .epochs
            .iter()
            .map(|(topic, partition, epoch)| self.partition_record(*topic, *partition, *epoch))
            .collect();
        let groups: Vec<Vec<MetadataRecord>> =
            records.chunks(EPOCHS_PER_BATCH).map(<[MetadataRecord]>::to_vec).collect();
        self.log.write(&groups).await
    }

    async fn create_topics(&mut self, wanted: Vec<NewTopic>) -> Vec<Result<Arc<Topic>, Refusal>> {
        let mut made = HashSet::new();
        let mut outcomes = Vec::with_capacity(wanted.len());
        let mut groups = Vec::new();
        // Each topic is checked against those before it, too.
        let mut image = self.log.image().clone();
        for new in &wanted {
            let shared = &self.node.shared;
            let outcome = topics::admit(new, &image, &shared.config);
            let outcome = outcome.map(|()| new_id(new.first_shard, shared.shards));
            if let Ok(id) = &outcome {
                let records = self.records_of(new, *id);
                for record in &records {
                    image.apply(record).expect("an admitted topic follows the image");
                }
                groups.push(records);
                made.insert(*id);
            }
            outcomes.push(outcome);
        }
        let failure = self.carry_out(&groups, &made).await;
        let image = self.node.image();
        let settle = |outcome: Result<TopicId, Refusal>| {
            let id = outcome?;
            match (&failure, image.topic_by_id(id)) {
                (None, Some(topic)) => Ok(topic.clone()),
                (Some(refusal), _) => Err(refusal.clone()),
                (None, None) => Err(Refusal::new(
                    ErrorCode::KafkaStorageError,
                    "a partition of the topic could not be made; the broker's log says why",
                )),
            }
        };
        outcomes.into_iter().map(settle).collect()
    }

    /// Writes and publishes new topics, and takes back those that some shard could not make.
    /// Returns why nothing at all was made.
    async fn carry_out(
        &mut self,
        groups: &[Vec<MetadataRecord>],
        made: &HashSet<TopicId>,
    ) -> Option<Refusal> {
        if groups.is_empty() {
            return None;
        }
        if let Err(error) = self.log.write(groups).await {
            return Some(storage_refusal(&error));
        }
        let Some(applied) = self.publish().await else { return Some(stopping()) };
        let mut lost = HashSet::new();
        for (topic, partition, reason) in &applied.failed {
            if made.contains(topic) && lost.insert(*topic) {
                let name = self.name_of(*topic);
                tracing::error!("topic {name} is not made: partition {partition}: {reason}");
            }
        }
        if lost.is_empty() {
            return None;
        }
        let remove = |id: &TopicId| vec![MetadataRecord::RemoveTopic { topic_id: *id }];
        let groups: Vec<_> = lost.iter().map(remove).collect();
        if let Err(error) = self.log.write(&groups).await {
            return Some(storage_refusal(&error));
        }
        self.publish().await.is_none().then(stopping)
    }

    async fn delete_topics(&mut self, wanted: &[TopicId]) -> Vec<Result<(), Refusal>> {
        let mut gone = HashSet::new();
        let unknown =
            || Refusal::new(ErrorCode::UnknownTopicId, "the topic has been deleted already");
        let is_there =
            |id: &&TopicId| self.log.image().topic_by_id(**id).is_some() && gone.insert(**id);
        let groups: Vec<Vec<MetadataRecord>> = wanted
            .iter()
            .filter(is_there)
            .map(|id| vec![MetadataRecord::RemoveTopic { topic_id: *id }])
            .collect();
        if let Err(error) = self.log.write(&groups).await {
            return vec![Err(storage_refusal(&error)); wanted.len()];
        }
        if !groups.is_empty() {
            match self.publish().await {
                None => return vec![Err(stopping()); wanted.len()],
                Some(applied) => {
                    for (topic, partition, reason) in applied.failed {
                        tracing::warn!("deleted partition {topic:?}-{partition}: {reason}");
                    }
                }
            }
        }
        wanted.iter().map(|id| if gone.contains(id) { Ok(()) } else { Err(unknown()) }).collect()
    }

    async fn change(&mut self, changes: Vec<Decide>, is_trial: bool) -> Vec<Result<(), Refusal>> {
        // Each change is decided on what those before it have made of the image.
        let mut image = self.log.image().clone();
        let decide = |decide: Decide| {
            let records = decide(&image)?;
            for record in &records {
                image.apply(record).expect("it was decided on this image");
            }
            Ok(records)
        };
        let decided: Vec<Result<Vec<MetadataRecord>, Refusal>> =
            changes.into_iter().map(decide).collect();
        let groups: Vec<_> =
            decided.iter().flatten().filter(|it| !it.is_empty()).cloned().collect();
        let made = if is_trial || groups.is_empty() {
            Ok(HashSet::new())
        } else {
            self.make(&groups).await
        };
        let outcome = |decided: Result<Vec<MetadataRecord>, Refusal>| {
            let (records, lost) = (decided?, made.as_ref().map_err(Clone::clone)?);
            let is_lost = |record: &MetadataRecord| match record {
                MetadataRecord::Partition(it) => lost.contains(&(it.topic_id, it.partition)),
                _ => false,
            };
            match records.iter().any(is_lost) {
                true => Err(Refusal::new(
                    ErrorCode::KafkaStorageError,
                    "a partition could not be made and is offline; the broker's log says why",
                )),
                false => Ok(()),
            }
        };
        decided.into_iter().map(outcome).collect()
    }

    /// Writes and publishes; returns the partitions that some shard could not make.
    async fn make(
        &mut self,
        groups: &[Vec<MetadataRecord>],
    ) -> Result<HashSet<(TopicId, PartitionId)>, Refusal> {
        self.log.write(groups).await.map_err(|error| storage_refusal(&error))?;
        let applied = self.publish().await.ok_or_else(stopping)?;
        let lost = applied.failed.into_iter().map(|(topic, partition, reason)| {
            let name = self.name_of(topic);
            tracing::error!("partition {name}-{partition} is offline: {reason}");
            (topic, partition)
        });
        Ok(lost.collect())
    }

    async fn producer_ids(&mut self) -> Result<ProducerIdBlock, Refusal> {
        let block = block_at(self.log.image().next_producer_id())?;
        let record = MetadataRecord::ProducerIds {
            broker: self.node.shared.node,
            broker_epoch: 0,
            next: ProducerId(block.end),
        };
        let written = self.log.write(&[vec![record]]).await;
        written.map_err(|error| storage_refusal(&error))?;
        Ok(block)
    }

    /// Sends the image to all shards and gathers how they followed; `None` when one has stopped.
    async fn publish(&mut self) -> Option<Applied> {
        let image: Arc<Image> = Arc::new(self.log.next_version());
        let mut answers = Vec::with_capacity(self.shards.len());
        for shard in &self.shards {
            let (answer, answered) = oneshot::channel();
            let order = ShardOrder::Publish { image: image.clone(), answer };
            shard.send(order).await.ok()?;
            answers.push(answered);
        }
        let mut all = Applied::default();
        for answered in answers {
            let applied = answered.await.ok()?;
            all.epochs.extend(applied.epochs);
            all.failed.extend(applied.failed);
            all.opened.extend(applied.opened);
        }
        Some(all)
    }

    fn records_of(&self, new: &NewTopic, id: TopicId) -> Vec<MetadataRecord> {
        let name = new.name.clone();
        let mut records = vec![MetadataRecord::Topic { name: name.clone(), topic_id: id }];
        let partitions = (0..new.partitions).map(PartitionId);
        records.extend(partitions.map(|it| self.partition_record(id, it, LeaderEpoch(0))));
        records.extend(new.overrides.iter().map(|(key, value)| MetadataRecord::Config {
            resource: ConfigResource::Topic(name.clone()),
            name: key.clone(),
            value: Some(value.clone()),
        }));
        records
    }

    /// On disk there is one broker, `node.id`: shards are brokers on the wire only.
    fn partition_record(
        &self,
        topic: TopicId,
        partition: PartitionId,
        epoch: LeaderEpoch,
    ) -> MetadataRecord {
        let shared = &self.node.shared;
        let record = PartitionRecord::single(topic, partition, shared.node, shared.directory_id);
        MetadataRecord::Partition(PartitionRecord {
            leader_epoch: epoch,
            partition_epoch: epoch.0,
            ..record
        })
    }

    fn name_of(&self, topic: TopicId) -> String {
        match self.log.image().topic_by_id(topic) {
            Some(topic) => topic.name.to_string(),
            None => format!("{topic:?}"),
        }
    }
}

/// A random id, one that puts partition 0 on a shard if it has to be that one.
fn new_id(first_shard: Option<usize>, shards: usize) -> TopicId {
    let fits = |id: &TopicId| {
        first_shard.is_none_or(|first| first == shard_of(*id, PartitionId(0), shards))
    };
    std::iter::repeat_with(TopicId::random).find(fits).expect("one of a few hundred fits")
}

/// The block of producer ids that begins here.
fn block_at(next: i64) -> Result<ProducerIdBlock, Refusal> {
    match next.checked_add(PRODUCER_ID_BLOCK) {
        Some(end) => Ok(ProducerIdBlock { next, end }),
        None => {
            let message = "all producer ids have been given out";
            Err(Refusal::new(ErrorCode::UnknownServerError, message))
        }
    }
}

fn storage_refusal(error: &MetadataError) -> Refusal {
    tracing::error!("{error}");
    Refusal::new(ErrorCode::KafkaStorageError, error.to_string())
}

fn stopping() -> Refusal {
    Refusal::new(ErrorCode::BrokerNotAvailable, "the broker is being stopped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topics_id_puts_its_first_partition_where_it_is_to_be() {
        for first in 0..5 {
            let id = new_id(Some(first), 5);
            assert_eq!(shard_of(id, PartitionId(0), 5), first);
            assert_eq!(shard_of(id, PartitionId(1), 5), (first + 1) % 5);
        }
    }

    #[test]
    fn producer_ids_end_with_a_refusal() {
        let last = i64::MAX - PRODUCER_ID_BLOCK;
        assert_eq!(block_at(0).map(|it| (it.next, it.end)), Ok((0, PRODUCER_ID_BLOCK)));
        assert_eq!(block_at(last).map(|it| (it.next, it.end)), Ok((last, i64::MAX)));
        let refusal = block_at(last + 1).map(|it| it.end).expect_err("there are no more");
        assert_eq!(refusal.code, ErrorCode::UnknownServerError);
    }
}
