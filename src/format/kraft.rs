//! Metadata records of KRaft: topics, partitions, configs. One stands in the value of each record
//! of `__cluster_metadata-0`.
//!
//! ```text
//! frame version uvarint (1) | record type uvarint | record version uvarint | flexible struct
//! ```
//!
//! Read are the types that this broker writes and those that Kafka adds when it runs on the same
//! directory. Of these, records about brokers and controllers are checked and say nothing here;
//! what would have to be obeyed and isn't (access control, credentials, quotas) is an error, never
//! skipped.

use crate::format::compact::{
    self, CompactError, Reader, put_items, put_nullable_string, put_string, put_tagged,
};
use crate::format::kraft_users::{self, QuotaRecord, ScramRecord};
use crate::format::names::{TopicName, TopicNameError};
use crate::format::properties::DirectoryId;
use crate::format::schema::{self, SchemaError};
use crate::format::varint;
use crate::units::{BrokerId, LeaderEpoch, PartitionId, ProducerId, TopicId};

const FRAME_VERSION: u32 = 1;

const TOPIC: u32 = 2;
const PARTITION: u32 = 3;
const CONFIG: u32 = 4;
const PARTITION_CHANGE: u32 = 5;
const REMOVE_TOPIC: u32 = 9;
const FEATURE_LEVEL: u32 = 12;
const PRODUCER_IDS: u32 = 15;
const USER_SCRAM_CREDENTIAL: u32 = 11;
const CLIENT_QUOTA: u32 = 14;
const NO_OP: u32 = 20;
const REMOVE_USER_SCRAM_CREDENTIAL: u32 = 22;
const BEGIN_TRANSACTION: u32 = 23;
const END_TRANSACTION: u32 = 24;
const ABORT_TRANSACTION: u32 = 25;

/// Registered, unregistered, fenced, unfenced brokers and changes of them, a migration that is
/// over, controllers, and what a broker forgets that was stopped in order.
const OF_BROKERS: [u32; 8] = [0, 1, 7, 8, 17, 21, 27, 28];

/// Version of the partition record that is written: with directories and eligible replicas.
const PARTITION_VERSION: u32 = 2;
const DIRECTORIES_SINCE: u32 = 1;
const RECOVERY_STATE_TAG: u32 = 0;
const ELIGIBLE_TAG: u32 = 1;
const LAST_KNOWN_TAG: u32 = 2;

const CHANGE_VERSION: u32 = 2;
const CHANGED_LEADER_TAG: u32 = 1;

/// Why a record can't be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KraftError {
    /// The bytes aren't a flexible struct of the type.
    #[error("metadata record: {0}")]
    Compact(#[from] CompactError),
    /// A frame version other than 1.
    #[error("metadata record of frame version {0}, only 1 is supported")]
    Frame(u32),
    /// A type or version that this broker doesn't know.
    #[error("metadata record of type {kind}, version {version} is not supported")]
    Unknown {
        /// KRaft's number of the type.
        kind: u32,
        /// The version.
        version: u32,
    },
    /// A partition number below 0.
    #[error("metadata record: partition {0} is negative")]
    Partition(i32),
    /// A record about brokers that isn't one.
    #[error("metadata record: {0}")]
    OfBrokers(#[from] SchemaError),
    /// A topic whose name breaks the rules.
    #[error("metadata record: {0}")]
    Topic(#[from] TopicNameError),
    /// A resource that has no configs.
    #[error("metadata record: configs of resource type {0} are not supported")]
    Resource(i8),
}

/// What a config belongs to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ConfigResource {
    /// A topic, by name.
    Topic(TopicName),
    /// A broker by its number as text; empty for all brokers.
    Broker(String),
    /// A subscription to clients' metrics, by name.
    ClientMetrics(String),
    /// A group, by its id.
    Group(String),
}

/// One metadata record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MetadataRecord {
    /// A topic exists.
    Topic {
        /// Its name.
        name: TopicName,
        /// Its id.
        topic_id: TopicId,
    },
    /// A partition exists or is replaced as a whole.
    Partition(PartitionRecord),
    /// Something about a partition changes.
    PartitionChange(PartitionChange),
    /// A config is set, or removed by a null value.
    Config {
        /// What it belongs to.
        resource: ConfigResource,
        /// Kafka's name of the config.
        name: String,
        /// The value as text.
        value: Option<String>,
    },
    /// A topic is gone, with its partitions and configs.
    RemoveTopic {
        /// Its id.
        topic_id: TopicId,
    },
    /// A feature's level, `metadata.version` above all.
    FeatureLevel {
        /// Name of the feature.
        name: String,
        /// Its level.
        level: i16,
    },
    /// A block of producer ids was handed out.
    ProducerIds {
        /// To this broker.
        broker: BrokerId,
        /// In this epoch of it.
        broker_epoch: i64,
        /// The first id that wasn't.
        next: ProducerId,
    },
    /// A quota of clients or users is set or removed.
    ClientQuota(QuotaRecord),
    /// A user gets a credential.
    UserScramCredential(ScramRecord),
    /// A user's credential is gone.
    RemoveUserScramCredential {
        /// The user.
        user: String,
        /// As in [`ScramRecord`].
        mechanism: i8,
    },
    /// Says nothing.
    NoOp,
    /// The records behind it count all together, or not at all.
    Begin,
    /// Those since the last beginning count.
    End,
    /// Those since the last beginning don't.
    Abort,
    /// About brokers and controllers of Kafka: says nothing here.
    OfBrokers {
        /// KRaft's number of the type.
        kind: u32,
    },
}

/// What a change says that matters to a single broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionChange {
    /// The partition.
    pub partition: PartitionId,
    /// Its topic.
    pub topic_id: TopicId,
    /// The new leader, -1 for none, if the record names one. Each such record raises the leader
    /// epoch by 1, a leader that stays included (Kafka's `PartitionRegistration.merge`).
    pub leader: Option<BrokerId>,
}

/// A partition's state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionRecord {
    /// The partition.
    pub partition: PartitionId,
    /// Its topic.
    pub topic_id: TopicId,
    /// Brokers that hold it.
    pub replicas: Vec<BrokerId>,
    /// Those of them in sync.
    pub isr: Vec<BrokerId>,
    /// Replicas being removed.
    pub removing: Vec<BrokerId>,
    /// Replicas being added.
    pub adding: Vec<BrokerId>,
    /// The leader, -1 for none.
    pub leader: BrokerId,
    /// 1 while a leader that was elected uncleanly recovers.
    pub recovery_state: i8,
    /// Rises with each election.
    pub leader_epoch: LeaderEpoch,
    /// Rises with each change of the record.
    pub partition_epoch: i32,
    /// For each replica the log directory that holds it.
    pub directories: Vec<DirectoryId>,
    /// Replicas that may lead without loss though they are not in sync.
    pub eligible: Option<Vec<BrokerId>>,
    /// Last known members of that set.
    pub last_known_eligible: Option<Vec<BrokerId>>,
}

impl PartitionRecord {
    /// The only state that a single broker's partition has.
    pub fn single(
        topic_id: TopicId,
        partition: PartitionId,
        broker: BrokerId,
        directory: DirectoryId,
    ) -> PartitionRecord {
        PartitionRecord {
            partition,
            topic_id,
            replicas: vec![broker],
            isr: vec![broker],
            removing: Vec::new(),
            adding: Vec::new(),
            leader: broker,
            recovery_state: 0,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: 0,
            directories: vec![directory],
            eligible: None,
            last_known_eligible: None,
        }
    }
}

impl MetadataRecord {
    /// The record's value as it stands in the log.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let (kind, version) = self.kind();
        for number in [FRAME_VERSION, kind, version] {
            varint::put_u32(&mut out, number);
        }
        self.put_fields(&mut out);
        out
    }

    fn kind(&self) -> (u32, u32) {
        match self {
            MetadataRecord::Topic { .. } => (TOPIC, 0),
            MetadataRecord::Partition(_) => (PARTITION, PARTITION_VERSION),
            MetadataRecord::Config { .. } => (CONFIG, 0),
            MetadataRecord::RemoveTopic { .. } => (REMOVE_TOPIC, 0),
            MetadataRecord::FeatureLevel { .. } => (FEATURE_LEVEL, 0),
            MetadataRecord::ProducerIds { .. } => (PRODUCER_IDS, 0),
            MetadataRecord::PartitionChange(_) => (PARTITION_CHANGE, CHANGE_VERSION),
            MetadataRecord::ClientQuota(_) => (CLIENT_QUOTA, 0),
            MetadataRecord::UserScramCredential(_) => (USER_SCRAM_CREDENTIAL, 0),
            MetadataRecord::RemoveUserScramCredential { .. } => (REMOVE_USER_SCRAM_CREDENTIAL, 0),
            MetadataRecord::NoOp => (NO_OP, 0),
            MetadataRecord::Begin => (BEGIN_TRANSACTION, 0),
            MetadataRecord::End => (END_TRANSACTION, 0),
            MetadataRecord::Abort => (ABORT_TRANSACTION, 0),
            MetadataRecord::OfBrokers { .. } => unreachable!("it is read, never written"),
        }
    }

    fn put_fields(&self, out: &mut Vec<u8>) {
        let mut tagged = Vec::new();
        match self {
            MetadataRecord::Topic { name, topic_id } => {
                put_string(out, name.as_str());
                out.extend(topic_id.0);
            }
            MetadataRecord::Partition(partition) => tagged = put_partition(out, partition),
            MetadataRecord::PartitionChange(change) => tagged = put_change(out, change),
            MetadataRecord::Config { resource, name, value } => {
                let (kind, resource_name) = match resource {
                    ConfigResource::Topic(topic) => (RESOURCE_TOPIC, topic.as_str()),
                    ConfigResource::Broker(broker) => (RESOURCE_BROKER, broker.as_str()),
                    ConfigResource::ClientMetrics(name) => (RESOURCE_CLIENT_METRICS, name.as_str()),
                    ConfigResource::Group(group) => (RESOURCE_GROUP, group.as_str()),
                };
                out.extend(kind.to_be_bytes());
                put_string(out, resource_name);
                put_string(out, name);
                put_nullable_string(out, value.as_deref());
            }
            MetadataRecord::RemoveTopic { topic_id } => out.extend(topic_id.0),
            MetadataRecord::FeatureLevel { name, level } => {
                put_string(out, name);
                out.extend(level.to_be_bytes());
            }
            MetadataRecord::ProducerIds { broker, broker_epoch, next } => {
                out.extend(broker.0.to_be_bytes());
                out.extend(broker_epoch.to_be_bytes());
                out.extend(next.0.to_be_bytes());
            }
            MetadataRecord::ClientQuota(quota) => kraft_users::put_quota(out, quota),
            MetadataRecord::UserScramCredential(scram) => kraft_users::put_scram(out, scram),
            MetadataRecord::RemoveUserScramCredential { user, mechanism } => {
                put_string(out, user);
                out.extend(mechanism.to_be_bytes());
            }
            MetadataRecord::NoOp
            | MetadataRecord::Begin
            | MetadataRecord::End
            | MetadataRecord::Abort
            | MetadataRecord::OfBrokers { .. } => {}
        }
        put_tagged(out, &tagged);
    }

    /// Reads a record's value.
    ///
    /// # Errors
    /// [`KraftError`].
    pub fn decode(value: &[u8]) -> Result<MetadataRecord, KraftError> {
        let mut reader = Reader::new(value);
        let frame = reader.uvarint()?;
        if frame != FRAME_VERSION {
            return Err(KraftError::Frame(frame));
        }
        let (kind, version) = (reader.uvarint()?, reader.uvarint()?);
        let record = match (kind, version) {
            (PARTITION, 0..=PARTITION_VERSION) => decode_partition(&mut reader, version)?,
            (PARTITION_CHANGE, 0..=CHANGE_VERSION) => decode_change(&mut reader)?,
            _ if OF_BROKERS.contains(&kind) => decode_of_brokers(&mut reader, kind, version)?,
            (_, 0) => {
                let record = decode_fields(&mut reader, kind)?;
                reader.tagged(|_, _| Ok(()))?;
                record
            }
            _ => return Err(KraftError::Unknown { kind, version }),
        };
        reader.end()?;
        Ok(record)
    }
}

const RESOURCE_TOPIC: i8 = 2;
const RESOURCE_BROKER: i8 = 4;
const RESOURCE_CLIENT_METRICS: i8 = 16;
const RESOURCE_GROUP: i8 = 32;

fn decode_fields(reader: &mut Reader<'_>, kind: u32) -> Result<MetadataRecord, KraftError> {
    Ok(match kind {
        TOPIC => MetadataRecord::Topic {
            name: TopicName::new(reader.string()?)?,
            topic_id: TopicId(reader.array()?),
        },
        CONFIG => MetadataRecord::Config {
            resource: match (reader.i8()?, reader.string()?) {
                (RESOURCE_TOPIC, name) => ConfigResource::Topic(TopicName::new(name)?),
                (RESOURCE_BROKER, name) => ConfigResource::Broker(name.to_owned()),
                (RESOURCE_CLIENT_METRICS, name) => ConfigResource::ClientMetrics(name.to_owned()),
                (RESOURCE_GROUP, name) => ConfigResource::Group(name.to_owned()),
                (other, _) => return Err(KraftError::Resource(other)),
            },
            name: reader.string()?.to_owned(),
            value: reader.nullable_string()?.map(str::to_owned),
        },
        REMOVE_TOPIC => MetadataRecord::RemoveTopic { topic_id: TopicId(reader.array()?) },
        FEATURE_LEVEL => {
            MetadataRecord::FeatureLevel { name: reader.string()?.to_owned(), level: reader.i16()? }
        }
        PRODUCER_IDS => MetadataRecord::ProducerIds {
            broker: BrokerId(reader.i32()?),
            broker_epoch: reader.i64()?,
            next: ProducerId(reader.i64()?),
        },
        CLIENT_QUOTA => MetadataRecord::ClientQuota(kraft_users::take_quota(reader)?),
        USER_SCRAM_CREDENTIAL => {
            MetadataRecord::UserScramCredential(kraft_users::take_scram(reader)?)
        }
        REMOVE_USER_SCRAM_CREDENTIAL => MetadataRecord::RemoveUserScramCredential {
            user: reader.string()?.to_owned(),
            mechanism: reader.i8()?,
        },
        NO_OP => MetadataRecord::NoOp,
        BEGIN_TRANSACTION => MetadataRecord::Begin,
        END_TRANSACTION => MetadataRecord::End,
        ABORT_TRANSACTION => MetadataRecord::Abort,
        _ => return Err(KraftError::Unknown { kind, version: 0 }),
    })
}

/// Only its form matters.
fn decode_of_brokers(
    reader: &mut Reader<'_>,
    kind: u32,
    version: u32,
) -> Result<MetadataRecord, KraftError> {
    let unknown = || KraftError::Unknown { kind, version };
    let number = |it: u32| i16::try_from(it).ok();
    let schema = number(kind).and_then(|it| schema::METADATA.values.get(&it));
    let version_number = number(version).ok_or_else(unknown)?;
    schema.ok_or_else(unknown)?.decode_front(version_number, reader)?;
    Ok(MetadataRecord::OfBrokers { kind })
}

fn partition_id(reader: &mut Reader<'_>) -> Result<PartitionId, KraftError> {
    let number = reader.i32()?;
    u32::try_from(number).map(PartitionId).map_err(|_| KraftError::Partition(number))
}

/// The other tagged fields are about replicas; a single broker is its own.
fn decode_change(reader: &mut Reader<'_>) -> Result<MetadataRecord, KraftError> {
    let partition = partition_id(reader)?;
    let topic_id = TopicId(reader.array()?);
    let mut leader = None;
    reader.tagged(|tag, mut field| {
        if tag != CHANGED_LEADER_TAG {
            return Ok(());
        }
        leader = Some(BrokerId(field.i32()?));
        field.end()
    })?;
    Ok(MetadataRecord::PartitionChange(PartitionChange { partition, topic_id, leader }))
}

fn decode_partition(reader: &mut Reader<'_>, version: u32) -> Result<MetadataRecord, KraftError> {
    let mut record = PartitionRecord {
        partition: partition_id(reader)?,
        topic_id: TopicId(reader.array()?),
        replicas: brokers(reader)?,
        isr: brokers(reader)?,
        removing: brokers(reader)?,
        adding: brokers(reader)?,
        leader: BrokerId(reader.i32()?),
        recovery_state: 0,
        leader_epoch: LeaderEpoch(reader.i32()?),
        partition_epoch: reader.i32()?,
        directories: Vec::new(),
        eligible: None,
        last_known_eligible: None,
    };
    if version >= DIRECTORIES_SINCE {
        record.directories = reader.items(16, |reader| reader.array().map(DirectoryId))?;
    }
    reader.tagged(|tag, mut field| {
        match tag {
            RECOVERY_STATE_TAG => record.recovery_state = field.i8()?,
            ELIGIBLE_TAG => record.eligible = nullable_brokers(&mut field)?,
            LAST_KNOWN_TAG => record.last_known_eligible = nullable_brokers(&mut field)?,
            _ => return Ok(()),
        }
        field.end()
    })?;
    Ok(MetadataRecord::Partition(record))
}

fn nullable_brokers(reader: &mut Reader<'_>) -> Result<Option<Vec<BrokerId>>, CompactError> {
    reader.nullable_items(size_of::<i32>(), |reader| reader.i32().map(BrokerId))
}

fn brokers(reader: &mut Reader<'_>) -> Result<Vec<BrokerId>, CompactError> {
    nullable_brokers(reader)?.ok_or(CompactError::Null)
}

/// Appends the fields; gives the tagged ones, which are left out at their defaults.
fn put_partition(out: &mut Vec<u8>, record: &PartitionRecord) -> Vec<(u32, Vec<u8>)> {
    out.extend(i32::try_from(record.partition.0).expect("below 2^31").to_be_bytes());
    out.extend(record.topic_id.0);
    for brokers in [&record.replicas, &record.isr, &record.removing, &record.adding] {
        put_brokers(out, brokers);
    }
    for number in [record.leader.0, record.leader_epoch.0, record.partition_epoch] {
        out.extend(number.to_be_bytes());
    }
    put_items(out, &record.directories, |out, directory| out.extend(directory.0));
    let mut tagged = Vec::new();
    if record.recovery_state != 0 {
        tagged.push((RECOVERY_STATE_TAG, record.recovery_state.to_be_bytes().to_vec()));
    }
    let sets = [(ELIGIBLE_TAG, &record.eligible), (LAST_KNOWN_TAG, &record.last_known_eligible)];
    for (tag, brokers) in sets {
        if let Some(brokers) = brokers {
            let mut field = Vec::new();
            put_brokers(&mut field, brokers);
            tagged.push((tag, field));
        }
    }
    tagged
}

fn put_change(out: &mut Vec<u8>, change: &PartitionChange) -> Vec<(u32, Vec<u8>)> {
    out.extend(i32::try_from(change.partition.0).expect("below 2^31").to_be_bytes());
    out.extend(change.topic_id.0);
    let leader = change.leader.map(|leader| (CHANGED_LEADER_TAG, leader.0.to_be_bytes().to_vec()));
    leader.into_iter().collect()
}

fn put_brokers(out: &mut Vec<u8>, brokers: &[BrokerId]) {
    compact::put_items(out, brokers, |out, broker| out.extend(broker.0.to_be_bytes()));
}

#[cfg(test)]
mod tests;
