//! The metadata image: which topics there are, with their ids, partitions and configs.
//!
//! A plain value, made by applying KRaft records in the order of `__cluster_metadata-0`, and by
//! nothing else. The controller owns the working copy; the shards see frozen ones (`Arc<Image>`),
//! told apart by their version.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::broker::config;
use crate::broker::settings::Settings;
use crate::coordinator::group::Topics;
use crate::format::kraft::{ConfigResource, MetadataRecord, PartitionChange, PartitionRecord};
use crate::format::names::{TOPIC_NAME_BYTES_MAX, TopicName};
use crate::units::{LeaderEpoch, Offset, PartitionId, TopicId};

/// Topic configs as they were set: Kafka's names and the values' text.
pub type Overrides = BTreeMap<String, String>;

/// A topic as the metadata log describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topic {
    /// Its name.
    pub name: TopicName,
    /// Its id; a topic that is deleted and made again gets another one.
    pub id: TopicId,
    /// Leader epoch of each partition; the partition's number is the place in the list.
    pub leader_epochs: Vec<LeaderEpoch>,
    /// What was set for this topic.
    pub overrides: Overrides,
}

impl Topic {
    /// How many partitions it has.
    pub fn partition_count(&self) -> u32 {
        u32::try_from(self.leader_epochs.len()).expect("partition numbers fit 31 bits")
    }

    /// The numbers of its partitions, from 0.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.partition_count()).map(PartitionId)
    }

    /// Whether it has a partition with this number, as the wire has it.
    pub fn has(&self, index: i32) -> bool {
        u32::try_from(index).is_ok_and(|number| number < self.partition_count())
    }

    /// Leader epoch of a partition; `None` when there is no such partition.
    pub fn leader_epoch(&self, partition: PartitionId) -> Option<LeaderEpoch> {
        let index = usize::try_from(partition.0).ok()?;
        self.leader_epochs.get(index).copied()
    }
}

/// Why a record can't follow those before it: the log is damaged, or somebody else wrote it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ImageError {
    /// A record about a topic that isn't there.
    #[error("a record names the topic {0:?}, which no earlier record creates")]
    UnknownTopic(TopicId),
    /// A second topic of that name or id.
    #[error("a record creates the topic {0}, which exists already")]
    TopicExists(TopicName),
    /// Partitions come in order from 0.
    #[error("a record is about partition {partition} of {topic}, whose next one is {next}")]
    PartitionOrder {
        /// The topic.
        topic: TopicName,
        /// What the record says.
        partition: PartitionId,
        /// What it should say.
        next: u32,
    },
}

/// Everything that the metadata log says, up to some record.
#[derive(Clone, Default, Debug)]
pub struct Image {
    /// Grows by one with every change that the controller publishes.
    pub version: u64,
    names: BTreeMap<Box<str>, TopicId>,
    ids: HashMap<TopicId, Arc<Topic>>,
    deleted: HashSet<TopicId>,
    features: BTreeMap<String, i16>,
    next_producer_id: i64,
    partition_count: u64,
    settings: Arc<Settings>,
    /// Where the metadata log ended when this image was published.
    pub log_end: Offset,
}

impl Image {
    /// The topic of that name. A name that is longer than any topic's is not looked at, as requests
    /// may have it for each of many partitions.
    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        if TOPIC_NAME_BYTES_MAX < name.len() {
            return None;
        }
        self.names.get(name).map(|id| &self.ids[id])
    }

    /// The topic with that id.
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.ids.get(&id)
    }

    /// All topics, sorted by name.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.names.values().map(|id| &self.ids[id])
    }

    /// The topic whose name differs from this one only by `.` against `_`, if there is one.
    pub fn colliding(&self, name: &TopicName) -> Option<&TopicName> {
        let collides = |topic: &&Arc<Topic>| topic.name.collides_with(name);
        self.ids.values().find(collides).map(|topic| &topic.name)
    }

    /// Whether a topic with that id was there and has been deleted.
    pub fn was_deleted(&self, id: TopicId) -> bool {
        self.deleted.contains(&id)
    }

    /// Level of a feature, `metadata.version` above all.
    pub fn feature(&self, name: &str) -> Option<i16> {
        self.features.get(name).copied()
    }

    /// First producer id that no block holds yet.
    pub fn next_producer_id(&self) -> i64 {
        self.next_producer_id
    }

    /// Levels of all features.
    pub fn features(&self) -> &BTreeMap<String, i16> {
        &self.features
    }

    /// Configs of everything but topics, quotas, credentials.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// How many partitions all topics have together.
    pub fn partition_count(&self) -> u64 {
        self.partition_count
    }

    /// Takes one record of the metadata log.
    ///
    /// # Errors
    /// When the record contradicts those before it; the image is unchanged then.
    pub fn apply(&mut self, record: &MetadataRecord) -> Result<(), ImageError> {
        match record {
            MetadataRecord::Topic { name, topic_id } => self.add_topic(name, *topic_id),
            MetadataRecord::Partition(partition) => self.add_partition(partition),
            MetadataRecord::Config { resource, name, value } => {
                match resource {
                    ConfigResource::Topic(topic) => {
                        self.set_config(topic, name, value.as_deref());
                    }
                    ConfigResource::Broker(_)
                    | ConfigResource::ClientMetrics(_)
                    | ConfigResource::Group(_) => Arc::make_mut(&mut self.settings).apply(record),
                }
                Ok(())
            }
            MetadataRecord::ClientQuota(_)
            | MetadataRecord::UserScramCredential(_)
            | MetadataRecord::RemoveUserScramCredential { .. } => {
                Arc::make_mut(&mut self.settings).apply(record);
                Ok(())
            }
            MetadataRecord::RemoveTopic { topic_id } => self.remove_topic(*topic_id),
            MetadataRecord::FeatureLevel { name, level } => {
                self.features.insert(name.clone(), *level);
                Ok(())
            }
            MetadataRecord::ProducerIds { next, .. } => {
                self.next_producer_id = self.next_producer_id.max(next.0);
                Ok(())
            }
            MetadataRecord::PartitionChange(change) => self.change_partition(change),
            // Whoever replays the log puts off what stands between a beginning and its end.
            MetadataRecord::NoOp
            | MetadataRecord::Begin
            | MetadataRecord::End
            | MetadataRecord::Abort
            | MetadataRecord::OfBrokers { .. } => Ok(()),
        }
    }

    fn add_topic(&mut self, name: &TopicName, id: TopicId) -> Result<(), ImageError> {
        if self.names.contains_key(name.as_str()) || self.ids.contains_key(&id) {
            return Err(ImageError::TopicExists(name.clone()));
        }
        self.names.insert(name.as_str().into(), id);
        let name = name.clone();
        let topic = Topic { name, id, leader_epochs: Vec::new(), overrides: Overrides::new() };
        self.ids.insert(id, Arc::new(topic));
        Ok(())
    }

    /// A new partition, or a newer state of one that exists: KRaft writes both the same way.
    fn add_partition(&mut self, record: &PartitionRecord) -> Result<(), ImageError> {
        let id = record.topic_id;
        let topic = self.ids.get_mut(&id).ok_or(ImageError::UnknownTopic(id))?;
        let next = topic.partition_count();
        let number = record.partition.0;
        if number > next {
            let (topic, partition) = (topic.name.clone(), record.partition);
            return Err(ImageError::PartitionOrder { topic, partition, next });
        }
        let epochs = &mut Arc::make_mut(topic).leader_epochs;
        if number == next {
            epochs.push(record.leader_epoch);
            self.partition_count += 1;
        } else {
            let index = usize::try_from(number).expect("a list's index fits memory");
            epochs[index] = record.leader_epoch;
        }
        Ok(())
    }

    fn change_partition(&mut self, change: &PartitionChange) -> Result<(), ImageError> {
        let id = change.topic_id;
        let topic = self.ids.get_mut(&id).ok_or(ImageError::UnknownTopic(id))?;
        let (partition, next) = (change.partition, topic.partition_count());
        if topic.leader_epoch(partition).is_none() {
            let topic = topic.name.clone();
            return Err(ImageError::PartitionOrder { topic, partition, next });
        }
        if change.leader.is_some() {
            let index = usize::try_from(partition.0).expect("a list's index fits memory");
            Arc::make_mut(topic).leader_epochs[index].0 += 1;
        }
        Ok(())
    }

    /// Configs of a topic that is gone are gone with it.
    fn set_config(&mut self, topic: &TopicName, name: &str, value: Option<&str>) {
        let Some(id) = self.names.get(topic.as_str()) else { return };
        let topic = self.ids.get_mut(id).expect("every name has its topic");
        let overrides = &mut Arc::make_mut(topic).overrides;
        match value {
            Some(value) => overrides.insert(name.to_owned(), value.to_owned()),
            None => overrides.remove(name),
        };
    }

    fn remove_topic(&mut self, id: TopicId) -> Result<(), ImageError> {
        let topic = self.ids.remove(&id).ok_or(ImageError::UnknownTopic(id))?;
        self.names.remove(topic.name.as_str());
        self.partition_count -= u64::from(topic.partition_count());
        self.deleted.insert(id);
        Ok(())
    }
}

impl Topics for Image {
    fn version(&self) -> u64 {
        self.version
    }

    fn by_name(&self, name: &str) -> Option<(TopicId, u32)> {
        self.topic(name).map(|topic| (topic.id, topic.partition_count()))
    }

    fn by_id(&self, id: TopicId) -> Option<(&str, u32)> {
        self.topic_by_id(id).map(|topic| (topic.name.as_str(), topic.partition_count()))
    }

    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.names.keys().map(|name| &**name))
    }

    fn group_config(&self, group: &str, name: &str) -> Option<i32> {
        let configs = self.settings.configs(&ConfigResource::Group(group.to_owned()))?;
        config::group_number(name, configs.get(name)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::format::properties::DirectoryId;
    use crate::units::{BrokerId, ProducerId};

    const FLIGHTS: TopicId = TopicId([7; 16]);

    fn topic(name: &str, id: TopicId) -> MetadataRecord {
        MetadataRecord::Topic { name: named(name), topic_id: id }
    }

    fn named(name: &str) -> TopicName {
        TopicName::new(name).expect("a legal name")
    }

    fn partition(number: u32, epoch: i32) -> MetadataRecord {
        let directory = DirectoryId([9; 16]);
        let record = PartitionRecord::single(FLIGHTS, PartitionId(number), BrokerId(1), directory);
        MetadataRecord::Partition(PartitionRecord { leader_epoch: LeaderEpoch(epoch), ..record })
    }

    fn config(name: &str, value: Option<&str>) -> MetadataRecord {
        MetadataRecord::Config {
            resource: ConfigResource::Topic(named("flights")),
            name: name.to_owned(),
            value: value.map(str::to_owned),
        }
    }

    fn image(records: &[MetadataRecord]) -> Image {
        let mut image = Image::default();
        for record in records {
            image.apply(record).expect("the records follow each other");
        }
        image
    }

    #[test]
    fn a_topic_is_found_by_name_and_id_with_its_configs() {
        let image = image(&[
            topic("flights", FLIGHTS),
            partition(0, 0),
            partition(1, 0),
            config("segment.bytes", Some("1048576")),
            config("retention.ms", Some("1000")),
            config("retention.ms", None),
            partition(1, 3),
        ]);
        let found = image.topic("flights").expect("it was created");
        assert_eq!(found.leader_epochs, [LeaderEpoch(0), LeaderEpoch(3)]);
        assert_eq!(image.topic_by_id(FLIGHTS), Some(found));
        assert_eq!(found.overrides.iter().len(), 1);
        assert_eq!(image.partition_count(), 2);
    }

    /// As Kafka writes them when a broker stops and starts on the directory.
    #[test]
    fn a_change_of_the_leader_raises_the_epoch() {
        let change = |number, leader: Option<i32>| {
            let (partition, leader) = (PartitionId(number), leader.map(BrokerId));
            let change = PartitionChange { partition, topic_id: FLIGHTS, leader };
            MetadataRecord::PartitionChange(change)
        };
        let mut image = image(&[
            topic("flights", FLIGHTS),
            partition(0, 4),
            change(0, Some(-1)),
            change(0, None),
            change(0, Some(1)),
            MetadataRecord::OfBrokers { kind: 17 },
        ]);
        let found = image.topic("flights").expect("it was created");
        assert_eq!(found.leader_epochs, [LeaderEpoch(6)]);
        let beyond = image.apply(&change(1, Some(1)));
        assert!(matches!(beyond, Err(ImageError::PartitionOrder { next: 1, .. })));
    }

    #[test]
    fn a_deleted_topic_is_gone_but_known_as_deleted() {
        let image = image(&[
            topic("flights", FLIGHTS),
            partition(0, 0),
            MetadataRecord::RemoveTopic { topic_id: FLIGHTS },
        ]);
        assert_eq!(image.topic("flights"), None);
        assert_eq!(image.topic_by_id(FLIGHTS), None);
        assert!(image.was_deleted(FLIGHTS));
        assert_eq!(image.partition_count(), 0);
    }

    #[test]
    fn records_that_contradict_earlier_ones_are_refused() {
        let mut image = image(&[topic("flights", FLIGHTS)]);
        let again = image.apply(&topic("flights", TopicId([8; 16])));
        assert!(matches!(again, Err(ImageError::TopicExists(_))));
        let gap = image.apply(&partition(1, 0));
        assert!(matches!(gap, Err(ImageError::PartitionOrder { next: 0, .. })));
        let unknown = image.apply(&MetadataRecord::RemoveTopic { topic_id: TopicId([8; 16]) });
        assert_eq!(unknown, Err(ImageError::UnknownTopic(TopicId([8; 16]))));
        assert!(image.topic("flights").is_some());
    }

    #[test]
    fn a_name_that_differs_by_a_dot_collides() {
        let image = image(&[topic("a.b", FLIGHTS)]);
        assert_eq!(image.colliding(&named("a_b")).map(TopicName::as_str), Some("a.b"));
    }

    #[test]
    fn producer_id_blocks_only_move_forward() {
        let block = |next| MetadataRecord::ProducerIds {
            broker: BrokerId(1),
            broker_epoch: 0,
            next: ProducerId(next),
        };
        assert_eq!(image(&[block(1000), block(2000)]).next_producer_id(), 2000);
    }
}
