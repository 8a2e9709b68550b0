//! The brokers of a cluster, their features and their log directories.

use kafka_protocol::messages::{
    ApiVersionsRequest, DescribeClusterRequest, DescribeLogDirsRequest,
};
use kafka_protocol::protocol::Request as _;

use super::cluster::{Client, join_address};
use super::connection::Connection;
use super::error::ClientError;
use super::groups::{TopicPartition, text};
use crate::wire::versions::api;

/// A cluster and its brokers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterDescription {
    /// The cluster's id, if it has one.
    pub id: Option<String>,
    /// The broker that changes go to; -1 when there is none.
    pub controller: i32,
    /// Its brokers.
    pub brokers: Vec<Node>,
}

/// A broker with what is known beside its address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its number.
    pub id: i32,
    /// Host and port.
    pub address: String,
    /// Its rack, if it has one.
    pub rack: Option<String>,
    /// Whether it is registered and not in use.
    pub fenced: bool,
}

/// A feature of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feature {
    /// Its name.
    pub name: String,
    /// Levels that the broker knows, lowest and highest.
    pub supported: (i16, i16),
    /// The level that the cluster is at; 0 for a feature that isn't in use.
    pub level: i16,
}

/// A directory where a broker keeps partitions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogDirectory {
    /// Its path on the broker's host.
    pub path: String,
    /// 0, or why it can't be used.
    pub error_code: i16,
    /// Size of its file system in bytes; -1 when not known.
    pub total: i64,
    /// Room in its file system in bytes; -1 when not known.
    pub usable: i64,
    /// Partitions with their sizes in bytes.
    pub partitions: Vec<(TopicPartition, i64)>,
}

impl Client {
    /// The cluster with all of its brokers.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn describe_cluster(&self) -> Result<ClusterDescription, ClientError> {
        let connection = self.any_connection().await?;
        if !connection.speaks(api::DESCRIBE_CLUSTER) {
            return self.describe_old_cluster().await;
        }
        let header = connection.header(DescribeClusterRequest::KEY)?;
        let request =
            DescribeClusterRequest::default().with_include_fenced_brokers(header.version >= 2);
        let answer = connection.ask_with(header, &request).await?;
        let message = answer.error_message.as_deref();
        let what = || "describe the cluster".to_owned();
        ClientError::check_message(answer.error_code, message, what)?;
        let mut brokers: Vec<_> = answer
            .brokers
            .iter()
            .map(|broker| Node {
                id: broker.broker_id.0,
                address: join_address(&broker.host, broker.port),
                rack: broker.rack.as_deref().map(str::to_owned),
                fenced: broker.is_fenced,
            })
            .collect();
        brokers.sort_by_key(|broker| broker.id);
        let id = Some(answer.cluster_id.to_string()).filter(|id| !id.is_empty());
        Ok(ClusterDescription { id, controller: answer.controller_id.0, brokers })
    }

    /// Before Kafka 2.8 Metadata has to do.
    async fn describe_old_cluster(&self) -> Result<ClusterDescription, ClientError> {
        let cluster = self.metadata(Some(&[])).await?;
        let node = |broker: &super::Broker| Node {
            id: broker.id,
            address: broker.address.clone(),
            rack: None,
            fenced: false,
        };
        let mut brokers: Vec<_> = cluster.brokers.iter().map(node).collect();
        brokers.sort_by_key(|broker| broker.id);
        Ok(ClusterDescription { id: cluster.id, controller: cluster.controller, brokers })
    }

    /// The log directories of a broker.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn log_directories(&self, broker: i32) -> Result<Vec<LogDirectory>, ClientError> {
        let connection = self.broker(broker).await?;
        let answer = connection.ask(&DescribeLogDirsRequest::default().with_topics(None)).await?;
        let what = || format!("describe the log directories of broker {broker}");
        ClientError::check(answer.error_code, what)?;
        let directories = answer.results.iter().map(|one| LogDirectory {
            path: one.log_dir.to_string(),
            error_code: one.error_code,
            total: one.total_bytes,
            usable: one.usable_bytes,
            partitions: one
                .topics
                .iter()
                .flat_map(|topic| {
                    topic.partitions.iter().map(|partition| {
                        let at = TopicPartition::new(&topic.name, partition.partition_index);
                        (at, partition.partition_size)
                    })
                })
                .collect(),
        });
        Ok(directories.collect())
    }
}

/// The features that this broker knows, and their levels in the cluster.
///
/// # Errors
/// [`ClientError::Unsupported`] before version 3 of ApiVersions; [`ClientError`].
pub async fn features(connection: &Connection) -> Result<Vec<Feature>, ClientError> {
    let header = connection.header(api::API_VERSIONS)?;
    if header.version < 3 {
        let (address, api) = (connection.address().to_owned(), "features".to_owned());
        return Err(ClientError::Unsupported { address, api });
    }
    let request = ApiVersionsRequest::default()
        .with_client_software_name(text(env!("CARGO_PKG_NAME")))
        .with_client_software_version(text(env!("CARGO_PKG_VERSION")));
    let answer = connection.call_with(header, &request).await?;
    ClientError::check(answer.error_code, || "ask for features".to_owned())?;
    let level = |name: &str| {
        let found = answer.finalized_features.iter().find(|one| &*one.name == name);
        found.map_or(0, |one| one.max_version_level)
    };
    let features = answer.supported_features.iter().map(|one| Feature {
        name: one.name.to_string(),
        supported: (one.min_version, one.max_version),
        level: level(&one.name),
    });
    Ok(features.collect())
}
