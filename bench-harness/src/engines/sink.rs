//! Where batches go: to partitions of the library, or through the wire to a server. What is
//! appended, and how it is looked at afterwards, is the same.

use std::path::PathBuf;

use bytes::Bytes;
use uringlog::client::{Acks, Client, FetchFrom, FetchLimits, NewTopic, Target, timestamp};
use uringlog::{ByteCount, Engine, LogConfig, Offset, Partition, RecordBatch, Timestamp};

use super::library;
use super::server::Server;
use crate::experiments::Failure;
use crate::run::Context;

/// A topic that takes batches.
pub enum Sink {
    /// Partitions of the library.
    Library(Vec<Partition>),
    /// A topic of a server.
    Wire(Remote),
}

/// A topic of a server.
pub struct Remote {
    client: Client,
    topic: String,
    partitions: u32,
    data: PathBuf,
}

impl Sink {
    /// New partitions of the engine, in the cell's tier, with settings changed.
    ///
    /// # Errors
    /// Those of the engine.
    pub async fn library(
        context: &Context,
        engine: &Engine,
        (topic, partitions): (&str, u32),
        change: impl Fn(&mut LogConfig),
    ) -> Result<Sink, Failure> {
        let mut opened = Vec::new();
        for number in 0..partitions {
            let spec = library::spec(context, (topic, number), &change);
            opened.push(engine.open_or_create(spec).await?);
        }
        Ok(Sink::Library(opened))
    }

    /// A new topic of the server, with these settings by Kafka's names.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn wire(
        server: &Server,
        (topic, partitions): (&str, u32),
        settings: &[(&str, u64)],
    ) -> Result<Sink, Failure> {
        let client = server.client().await?;
        let configs = settings.iter().map(|(name, value)| ((*name).to_owned(), value.to_string()));
        let new = NewTopic {
            name: topic.to_owned(),
            partitions: i32::try_from(partitions).expect("partitions are few"),
            replication_factor: 1,
            configs: configs.collect(),
        };
        client.create_topic(&new).await?;
        for partition in 0..new.partitions {
            // Asked until it is answered: a new partition has no leader for a moment.
            client.list_offsets(topic, partition, timestamp::LATEST).await?;
        }
        Sink::attach(server, (topic, partitions)).await
    }

    /// A topic that the server has already.
    ///
    /// # Errors
    /// When the server doesn't answer.
    pub async fn attach(
        server: &Server,
        (topic, partitions): (&str, u32),
    ) -> Result<Sink, Failure> {
        let client = server.client().await?;
        let (topic, data) = (topic.to_owned(), server.data.clone());
        Ok(Sink::Wire(Remote { client, topic, partitions, data }))
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> u32 {
        match self {
            Sink::Library(partitions) => u32::try_from(partitions.len()).expect("few"),
            Sink::Wire(remote) => remote.partitions,
        }
    }

    /// Appends a batch and awaits its acknowledgement.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn append(&self, partition: u32, batch: RecordBatch) -> Result<(), Failure> {
        match self {
            Sink::Library(partitions) => {
                let partition = &partitions[index(partition)];
                let appended = partition.append(batch)?;
                partition.reached(appended.due).await?;
            }
            Sink::Wire(Remote { client, topic, .. }) => {
                let partition = i32::try_from(partition).expect("partitions are few");
                let target = Target { topic, partition, acks: Acks::All };
                // Once: sent again it may be stored twice, and a full disk is told of late.
                client.try_produce(target, batch.freeze()).await?;
            }
        }
        Ok(())
    }

    /// Where a partition begins: the first offset that can still be read.
    ///
    /// # Errors
    /// When the server doesn't say.
    pub async fn start(&self, partition: u32) -> Result<u64, Failure> {
        match self {
            Sink::Library(partitions) => Ok(partitions[index(partition)].cursors().log_start.0),
            Sink::Wire(remote) => remote.listed(partition, timestamp::EARLIEST).await,
        }
    }

    /// Where a partition ends.
    ///
    /// # Errors
    /// When the server doesn't say.
    pub async fn end(&self, partition: u32) -> Result<u64, Failure> {
        match self {
            Sink::Library(partitions) => Ok(partitions[index(partition)].cursors().log_end.0),
            Sink::Wire(remote) => remote.listed(partition, timestamp::LATEST).await,
        }
    }

    /// Batches from the one that holds `offset` on: at most `bytes_max` bytes, but one at least.
    ///
    /// # Errors
    /// An offset that isn't there.
    pub async fn read(
        &self,
        partition: u32,
        offset: u64,
        bytes_max: u32,
    ) -> Result<Bytes, Failure> {
        match self {
            Sink::Library(partitions) => {
                let bytes_max = ByteCount(u64::from(bytes_max));
                Ok(partitions[index(partition)].read(Offset(offset), bytes_max).await?)
            }
            Sink::Wire(Remote { client, topic, .. }) => {
                let from = FetchFrom {
                    topic: topic.clone(),
                    partition: i32::try_from(partition).expect("partitions are few"),
                    offset: i64::try_from(offset).expect("offsets have 63 bits"),
                    bytes_max: i32::try_from(bytes_max).unwrap_or(i32::MAX),
                };
                let limits = FetchLimits { bytes_max: from.bytes_max, ..FetchLimits::default() };
                Ok(client.fetch(&from, limits).await?.records)
            }
        }
    }

    /// The first offset whose record has this time or a later one, if there is one.
    ///
    /// # Errors
    /// When the server doesn't say.
    pub async fn offset_for_timestamp(
        &self,
        partition: u32,
        at: Timestamp,
    ) -> Result<Option<u64>, Failure> {
        match self {
            Sink::Library(partitions) => {
                let found = partitions[index(partition)].offset_for_timestamp(at).await?;
                Ok(found.map(|(_, offset, _)| offset.0))
            }
            Sink::Wire(Remote { client, topic, .. }) => {
                let partition = i32::try_from(partition).expect("partitions are few");
                let found = client.list_offsets(topic, partition, at.0).await?;
                // -1 stands for none.
                Ok(u64::try_from(found.offset).ok())
            }
        }
    }

    /// A partition's directory, to be read only.
    pub fn directory(&self, partition: u32) -> PathBuf {
        match self {
            Sink::Library(partitions) => partitions[index(partition)].directory().to_owned(),
            Sink::Wire(remote) => remote.data.join(format!("{}-{partition}", remote.topic)),
        }
    }
}

impl Remote {
    /// What ListOffsets says to one of its special times.
    async fn listed(&self, partition: u32, time: i64) -> Result<u64, Failure> {
        let Remote { client, topic, .. } = self;
        let partition = i32::try_from(partition).expect("partitions are few");
        let found = client.list_offsets(topic, partition, time).await?;
        let negative = |_| Failure::Wrong(format!("{topic} has an offset of {}", found.offset));
        u64::try_from(found.offset).map_err(negative)
    }
}

fn index(partition: u32) -> usize {
    usize::try_from(partition).expect("usize is 64 bits")
}
