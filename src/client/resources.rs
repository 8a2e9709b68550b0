//! Settings of topics and brokers, more partitions, fewer records, and what a cluster consists of.

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{
    CreatePartitionsRequest, DeleteRecordsRequest, DescribeConfigsRequest,
    IncrementalAlterConfigsRequest, TopicName,
};

use super::cluster::Client;
use super::cluster_admin::milliseconds;
use super::connection::Connection;
use super::error::ClientError;
use super::groups::{TopicPartition, text};
use crate::wire::error::WireError;
use crate::wire::versions::api;

/// Something that has settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resource {
    /// A topic, by its name.
    Topic(String),
    /// A broker, by its number; `None` for what holds of all of them.
    Broker(Option<i32>),
    /// A broker's loggers and their levels, by its number.
    Loggers(i32),
    /// A group of consumers, by its name.
    Group(String),
}

impl Resource {
    fn kind(&self) -> i8 {
        match self {
            Resource::Topic(_) => 2,
            Resource::Broker(_) => 4,
            Resource::Loggers(_) => 8,
            Resource::Group(_) => 32,
        }
    }

    fn name(&self) -> String {
        match self {
            Resource::Topic(name) | Resource::Group(name) => name.clone(),
            Resource::Broker(id) => id.map(|id| id.to_string()).unwrap_or_default(),
            Resource::Loggers(id) => id.to_string(),
        }
    }
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Resource::Topic(name) => write!(f, "topic {name}"),
            Resource::Broker(Some(id)) => write!(f, "broker {id}"),
            Resource::Broker(None) => write!(f, "all brokers"),
            Resource::Loggers(id) => write!(f, "the loggers of broker {id}"),
            Resource::Group(name) => write!(f, "group {name}"),
        }
    }
}

/// A setting with where it comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Kafka's name.
    pub name: String,
    /// Its value; `None` when it is secret or unset.
    pub value: Option<String>,
    /// Kafka's name of the place that it comes from.
    pub source: &'static str,
    /// Whether it can only be set where the broker starts.
    pub read_only: bool,
    /// Whether its value isn't shown.
    pub sensitive: bool,
}

impl Setting {
    /// Whether nobody has set it.
    pub fn is_default(&self) -> bool {
        self.source == "DEFAULT_CONFIG"
    }
}

/// A change of one setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Alteration {
    /// Gives it a value.
    Set(String, String),
    /// Takes its value away, so that the default holds.
    Unset(String),
}

impl Client {
    /// All settings of a resource.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the broker's reason, and what keeps the request from it.
    pub async fn settings(&self, resource: &Resource) -> Result<Vec<Setting>, ClientError> {
        let connection = self.in_charge_of(resource).await?;
        let header = connection.header(api::DESCRIBE_CONFIGS)?;
        let described = DescribeConfigsResource::default()
            .with_resource_type(resource.kind())
            .with_resource_name(text(&resource.name()))
            .with_configuration_keys(None);
        let request = DescribeConfigsRequest::default().with_resources(vec![described]);
        let answer = connection.call_with(header, &request).await?;
        let result = only(&connection, answer.results, "results")?;
        let what = || format!("describe {resource}");
        ClientError::check_message(result.error_code, result.error_message.as_deref(), what)?;
        let setting = |one: &DescribeConfigsResourceResult| Setting {
            name: one.name.to_string(),
            value: one.value.as_deref().map(str::to_owned),
            source: source_name(one.config_source),
            read_only: one.read_only,
            sensitive: one.is_sensitive,
        };
        let mut settings: Vec<_> = result.configs.iter().map(setting).collect();
        settings.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(settings)
    }

    /// Changes settings of a resource, all or none; with `only_check` none at all.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the broker's reason, and what keeps the request from it.
    pub async fn alter_settings(
        &self,
        resource: &Resource,
        alterations: &[Alteration],
        only_check: bool,
    ) -> Result<(), ClientError> {
        let connection = self.in_charge_of(resource).await?;
        let altered = AlterConfigsResource::default()
            .with_resource_type(resource.kind())
            .with_resource_name(text(&resource.name()))
            .with_configs(alterations.iter().map(alterable).collect());
        let request = IncrementalAlterConfigsRequest::default()
            .with_resources(vec![altered])
            .with_validate_only(only_check);
        let answer = connection.ask(&request).await?;
        let result = only(&connection, answer.responses, "responses")?;
        let what = || format!("alter {resource}");
        ClientError::check_message(result.error_code, result.error_message.as_deref(), what)
    }

    /// A broker's own settings are its own to tell and to change.
    async fn in_charge_of(&self, resource: &Resource) -> Result<Connection, ClientError> {
        match resource {
            Resource::Broker(Some(id)) | Resource::Loggers(id) => self.broker(*id).await,
            Resource::Topic(_) | Resource::Broker(None) | Resource::Group(_) => {
                self.controller().await
            }
        }
    }

    /// Adds partitions until the topic has `total`.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the broker's reason: INVALID_PARTITIONS when it has as many
    /// or more.
    pub async fn add_partitions(&self, topic: &str, total: i32) -> Result<(), ClientError> {
        let connection = self.controller().await?;
        let grown = CreatePartitionsTopic::default()
            .with_name(TopicName(text(topic)))
            .with_count(total)
            .with_assignments(None);
        let request = CreatePartitionsRequest::default()
            .with_topics(vec![grown])
            .with_timeout_ms(milliseconds(self.options().timeout));
        let answer = connection.ask(&request).await?;
        let result = only(&connection, answer.results, "results")?;
        let what = || format!("add partitions to topic {topic:?}");
        ClientError::check_message(result.error_code, result.error_message.as_deref(), what)
    }

    /// Deletes the records below `offset` (-1: all that can be read) and returns the new log start
    /// offset.
    ///
    /// # Errors
    /// [`ClientError::Refused`]: OFFSET_OUT_OF_RANGE beyond the high watermark, POLICY_VIOLATION
    /// for a topic that is only compacted.
    pub async fn delete_records(
        &self,
        at: &TopicPartition,
        offset: i64,
    ) -> Result<i64, ClientError> {
        let connection = self.leader(&at.topic, at.partition).await?;
        let partition = DeleteRecordsPartition::default()
            .with_partition_index(at.partition)
            .with_offset(offset);
        let topic = DeleteRecordsTopic::default()
            .with_name(TopicName(text(&at.topic)))
            .with_partitions(vec![partition]);
        let request = DeleteRecordsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(milliseconds(self.options().timeout));
        let answer = connection.ask(&request).await?;
        let topic = only(&connection, answer.topics, "topics")?;
        let one = only(&connection, topic.partitions, "partitions")?;
        ClientError::check(one.error_code, || {
            format!("delete records of partition {} of topic {:?}", at.partition, at.topic)
        })?;
        Ok(one.low_watermark)
    }
}

fn alterable(alteration: &Alteration) -> AlterableConfig {
    const SET: i8 = 0;
    const DELETE: i8 = 1;
    let (name, operation, value) = match alteration {
        Alteration::Set(name, value) => (name, SET, Some(text(value))),
        Alteration::Unset(name) => (name, DELETE, None),
    };
    AlterableConfig::default()
        .with_name(text(name))
        .with_config_operation(operation)
        .with_value(value)
}

/// `ConfigSource` of Kafka's admin client.
fn source_name(source: i8) -> &'static str {
    match source {
        1 => "DYNAMIC_TOPIC_CONFIG",
        2 => "DYNAMIC_BROKER_CONFIG",
        3 => "DYNAMIC_DEFAULT_BROKER_CONFIG",
        4 => "STATIC_BROKER_CONFIG",
        5 => "DEFAULT_CONFIG",
        6 => "DYNAMIC_BROKER_LOGGER_CONFIG",
        7 => "DYNAMIC_CLIENT_METRICS_CONFIG",
        8 => "DYNAMIC_GROUP_CONFIG",
        _ => "UNKNOWN",
    }
}

pub(super) fn only<T>(
    connection: &Connection,
    mut list: Vec<T>,
    what: &'static str,
) -> Result<T, ClientError> {
    let length = i64::try_from(list.len()).unwrap_or(-1);
    match (list.pop(), list.is_empty()) {
        (Some(one), true) => Ok(one),
        _ => Err(connection.wrong(WireError::Length { what, length })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alterations_are_kafkas_operations() {
        let set = alterable(&Alteration::Set("a".to_owned(), String::new()));
        assert_eq!((set.config_operation, set.value.as_deref()), (0, Some("")));
        let unset = alterable(&Alteration::Unset("a".to_owned()));
        assert_eq!((unset.config_operation, unset.value), (1, None));
    }

    #[test]
    fn resources_have_kafkas_types_and_names() {
        for (resource, kind, name, shown) in [
            (Resource::Topic("t".to_owned()), 2, "t", "topic t"),
            (Resource::Broker(Some(7)), 4, "7", "broker 7"),
            (Resource::Broker(None), 4, "", "all brokers"),
            (Resource::Loggers(7), 8, "7", "the loggers of broker 7"),
            (Resource::Group("g".to_owned()), 32, "g", "group g"),
        ] {
            assert_eq!((resource.kind(), resource.name().as_str()), (kind, name));
            assert_eq!(resource.to_string(), shown);
        }
    }
}
