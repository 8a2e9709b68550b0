//! Where batches go: to partitions of the library, or through the wire to a server. What is
//! appended, and how it is looked at afterwards, is the same.

use std::path::PathBuf;

use uringlog::client::{Acks, Client, NewTopic, Target, timestamp};
use uringlog::{Engine, LogConfig, Partition, RecordBatch};

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
                client.produce(target, batch.freeze()).await?;
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
