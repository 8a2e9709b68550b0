//! Topics, settings, offsets, producer ids.

use std::time::Duration;

use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest,
    InitProducerIdRequest, ListOffsetsRequest, TopicName,
};

use super::cluster::Client;
use super::error::ClientError;
use super::produce::check_topic;
use crate::units::{ProducerEpoch, ProducerId, TopicId};
use crate::wire::StrBytes;
use crate::wire::error::WireError;
use crate::wire::versions::api;

/// Special timestamps of ListOffsets.
pub mod timestamp {
    /// The end: the high watermark.
    pub const LATEST: i64 = -1;
    /// The log start offset.
    pub const EARLIEST: i64 = -2;
    /// The record with the largest timestamp.
    pub const MAX: i64 = -3;
    /// The first offset that is on this broker's own disk.
    pub const EARLIEST_LOCAL: i64 = -4;
}

/// What DescribeConfigs calls a topic.
const RESOURCE_TOPIC: i8 = 2;

/// A topic to be created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// How many partitions; -1 leaves it to the broker.
    pub partitions: i32,
    /// How many replicas; -1 leaves it to the broker.
    pub replication_factor: i16,
    /// Settings by Kafka's names.
    pub configs: Vec<(String, String)>,
}

/// One setting of a topic or broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigEntry {
    /// Kafka's name.
    pub name: String,
    /// Its value; `None` when it is secret or unset.
    pub value: Option<String>,
    /// 1 when the topic itself sets it; higher numbers are the broker's settings and defaults.
    pub source: i8,
}

impl ConfigEntry {
    /// Whether the topic itself sets it.
    pub fn is_set_on_topic(&self) -> bool {
        self.source == 1
    }
}

/// An offset found by time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundOffset {
    /// The offset; -1 when there is none.
    pub offset: i64,
    /// Timestamp of its record; -1 for earliest and latest.
    pub timestamp: i64,
    /// Its leader epoch; -1 when the version doesn't say.
    pub leader_epoch: i32,
}

/// Who an idempotent producer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerIdentity {
    /// Its id.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
}

impl Client {
    /// Creates a topic and returns its id, all zero when the broker doesn't say.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the broker's reason, and what keeps the request from it.
    pub async fn create_topic(&self, topic: &NewTopic) -> Result<TopicId, ClientError> {
        let mut tries = self.tries(format!("creating topic {:?}", topic.name));
        loop {
            match tries.limited(self.try_create_topic(topic)).await {
                Ok(id) => return Ok(id),
                Err(error) => tries.pause(error).await?,
            }
        }
    }

    async fn try_create_topic(&self, topic: &NewTopic) -> Result<TopicId, ClientError> {
        check_topic(&topic.name)?;
        let connection = self.any_connection().await?;
        let config = |(name, value): &(String, String)| {
            CreatableTopicConfig::default()
                .with_name(StrBytes::from_string(name.clone()))
                .with_value(Some(StrBytes::from_string(value.clone())))
        };
        let creatable = CreatableTopic::default()
            .with_name(topic_name(&topic.name))
            .with_num_partitions(topic.partitions)
            .with_replication_factor(topic.replication_factor)
            .with_configs(topic.configs.iter().map(config).collect());
        let request = CreateTopicsRequest::default()
            .with_topics(vec![creatable])
            .with_timeout_ms(milliseconds(self.options().timeout));
        let answer = connection.call(&request).await?;
        let created = only(&answer.topics, "topics").map_err(|why| connection.wrong(why))?;
        let what = || format!("create topic {:?}", topic.name);
        ClientError::check_message(created.error_code, created.error_message.as_deref(), what)?;
        Ok(TopicId(created.topic_id.into_bytes()))
    }

    /// Deletes a topic.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the broker's reason, and what keeps the request from it.
    pub async fn delete_topic(&self, name: &str) -> Result<(), ClientError> {
        check_topic(name)?;
        let tries = self.tries(format!("deleting topic {name:?}"));
        // Not tried again: a topic that is gone by now would be reported as unknown.
        tries.limited(self.try_delete_topic(name)).await
    }

    async fn try_delete_topic(&self, name: &str) -> Result<(), ClientError> {
        let connection = self.any_connection().await?;
        let header = connection.header(api::DELETE_TOPICS)?;
        let request =
            DeleteTopicsRequest::default().with_timeout_ms(milliseconds(self.options().timeout));
        let request = if header.version >= 6 {
            let state = DeleteTopicState::default().with_name(Some(topic_name(name)));
            request.with_topics(vec![state])
        } else {
            request.with_topic_names(vec![topic_name(name)])
        };
        let answer = connection.call_with(header, &request).await?;
        let deleted = only(&answer.responses, "topics").map_err(|why| connection.wrong(why))?;
        let what = || format!("delete topic {name:?}");
        ClientError::check_message(deleted.error_code, deleted.error_message.as_deref(), what)
    }

    /// All settings of a topic.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the broker's reason, and what keeps the request from it.
    pub async fn describe_configs(&self, topic: &str) -> Result<Vec<ConfigEntry>, ClientError> {
        check_topic(topic)?;
        let mut tries = self.tries(format!("describing topic {topic:?}"));
        loop {
            match tries.limited(self.try_describe_configs(topic)).await {
                Ok(entries) => return Ok(entries),
                // A topic that isn't there now won't be there soon.
                Err(error @ ClientError::Refused { .. }) => return Err(error),
                Err(error) => tries.pause(error).await?,
            }
        }
    }

    async fn try_describe_configs(&self, topic: &str) -> Result<Vec<ConfigEntry>, ClientError> {
        let connection = self.any_connection().await?;
        let resource = DescribeConfigsResource::default()
            .with_resource_type(RESOURCE_TOPIC)
            .with_resource_name(StrBytes::from_string(topic.to_owned()))
            .with_configuration_keys(None);
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        let answer = connection.call(&request).await?;
        let result = only(&answer.results, "results").map_err(|why| connection.wrong(why))?;
        let what = || format!("describe topic {topic:?}");
        ClientError::check_message(result.error_code, result.error_message.as_deref(), what)?;
        let entry = |entry: &DescribeConfigsResourceResult| ConfigEntry {
            name: entry.name.to_string(),
            value: entry.value.as_deref().map(str::to_owned),
            source: entry.config_source,
        };
        Ok(result.configs.iter().map(entry).collect())
    }

    /// The first offset at or after `target` (milliseconds, or one of [`timestamp`]'s).
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn list_offsets(
        &self,
        topic: &str,
        partition: i32,
        target: i64,
    ) -> Result<FoundOffset, ClientError> {
        check_topic(topic)?;
        let what = format!("looking for offset {target} in partition {partition} of {topic:?}");
        let mut tries = self.tries(what);
        loop {
            match tries.limited(self.try_list_offsets(topic, partition, target)).await {
                Ok(found) => return Ok(found),
                Err(error) => tries.pause(error).await?,
            }
        }
    }

    async fn try_list_offsets(
        &self,
        topic: &str,
        index: i32,
        target: i64,
    ) -> Result<FoundOffset, ClientError> {
        let connection = self.leader(topic, index).await?;
        let partition = ListOffsetsPartition::default()
            .with_partition_index(index)
            .with_current_leader_epoch(-1)
            .with_timestamp(target);
        let named = ListOffsetsTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(vec![partition]);
        let request =
            ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![named]);
        let answer = connection.call(&request).await?;
        let found = only(&answer.topics, "topics")
            .and_then(|topic| only(&topic.partitions, "partitions"))
            .map_err(|why| connection.wrong(why))?;
        let what = || format!("look for offset {target} in partition {index} of {topic:?}");
        ClientError::check(found.error_code, what)?;
        Ok(FoundOffset {
            offset: found.offset,
            timestamp: found.timestamp,
            leader_epoch: found.leader_epoch,
        })
    }

    /// An id for an idempotent producer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn init_producer_id(&self) -> Result<ProducerIdentity, ClientError> {
        let mut tries = self.tries("asking for a producer id".to_owned());
        loop {
            match tries.limited(self.try_init_producer_id()).await {
                Ok(identity) => return Ok(identity),
                Err(error) => tries.pause(error).await?,
            }
        }
    }

    async fn try_init_producer_id(&self) -> Result<ProducerIdentity, ClientError> {
        let connection = self.any_connection().await?;
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(i32::MAX);
        let answer = connection.call(&request).await?;
        ClientError::check(answer.error_code, || "ask for a producer id".to_owned())?;
        let (id, epoch) = (answer.producer_id.0, answer.producer_epoch);
        Ok(ProducerIdentity { id: ProducerId(id), epoch: ProducerEpoch(epoch) })
    }
}

fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

pub(super) fn milliseconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// The only element of an answer about one thing.
fn only<'a, T>(list: &'a [T], what: &'static str) -> Result<&'a T, WireError> {
    match list {
        [one] => Ok(one),
        _ => Err(WireError::Length { what, length: i64::try_from(list.len()).unwrap_or(-1) }),
    }
}
