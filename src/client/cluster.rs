//! A client of a whole cluster: connections, leaders, and another try when they change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{MetadataResponse, MetadataResponseTopic};
use kafka_protocol::messages::{MetadataRequest, TopicName};
use tokio::time::Instant;

use super::connection::{Connection, ConnectionOptions};
use super::error::ClientError;
use super::produce::check_topic;
use crate::units::TopicId;
use crate::wire::StrBytes;
use crate::wire::versions::api;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// How connections are made.
    pub connection: ConnectionOptions,
    /// How long a call may take, all tries together.
    pub timeout: Duration,
    /// Pause before another try.
    pub retry_pause: Duration,
    /// Whether asking for a topic creates it, where the broker allows that.
    pub auto_create: bool,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            connection: ConnectionOptions::default(),
            timeout: Duration::from_secs(30),
            retry_pause: Duration::from_millis(100),
            auto_create: false,
        }
    }
}

/// A client of one cluster. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    bootstrap: Vec<String>,
    options: ClientOptions,
    /// Never held across a wait.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By address.
    connections: HashMap<String, Connection>,
    /// Addresses of brokers, by their number.
    brokers: HashMap<i32, String>,
    /// Addresses of leaders, by topic and partition.
    leaders: HashMap<String, HashMap<i32, String>>,
}

/// What a broker knows of its cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cluster {
    /// The cluster's id, if it has one.
    pub id: Option<String>,
    /// The broker that changes go to.
    pub controller: i32,
    /// All brokers.
    pub brokers: Vec<Broker>,
    /// The topics asked for.
    pub topics: Vec<Topic>,
}

/// A broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broker {
    /// Its number.
    pub id: i32,
    /// Host and port.
    pub address: String,
}

/// A topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id; all zero when the broker doesn't say.
    pub id: TopicId,
    /// 0, or why nothing more is known.
    pub error_code: i16,
    /// Its partitions, by number.
    pub partitions: Vec<Partition>,
}

/// A partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// Its number.
    pub index: i32,
    /// 0, or why it can't be used.
    pub error_code: i16,
    /// The leader's number; -1 when there is none.
    pub leader: i32,
    /// The leader's epoch; -1 when the broker doesn't say.
    pub leader_epoch: i32,
    /// Brokers that hold it.
    pub replicas: Vec<i32>,
    /// Those that are in sync.
    pub in_sync: Vec<i32>,
}

impl Client {
    /// Connects to the first of the `bootstrap` brokers (host:port, separated by commas) that
    /// answers. Has to be called on a tokio runtime with I/O and time.
    ///
    /// # Errors
    /// [`ClientError::Argument`]; what the last of the brokers failed with.
    pub async fn connect(bootstrap: &str, options: ClientOptions) -> Result<Client, ClientError> {
        let bootstrap: Vec<String> =
            bootstrap.split(',').map(|one| one.trim().to_owned()).collect();
        for address in &bootstrap {
            check_address(address)?;
        }
        let state = Mutex::default();
        let client = Client { inner: Arc::new(Inner { bootstrap, options, state }) };
        client.any_connection().await?;
        Ok(client)
    }

    /// The options that it was made with.
    pub fn options(&self) -> &ClientOptions {
        &self.inner.options
    }

    /// Brokers and topics: all topics for `None`.
    ///
    /// # Errors
    /// [`ClientError`]; that a topic is unknown is said by its own error code.
    pub async fn metadata(&self, topics: Option<&[&str]>) -> Result<Cluster, ClientError> {
        let mut tries = self.tries("asking for metadata".to_owned());
        loop {
            match tries.limited(self.try_metadata(topics)).await {
                Ok(cluster) => return Ok(cluster),
                Err(error) => tries.pause(error).await?,
            }
        }
    }

    async fn try_metadata(&self, topics: Option<&[&str]>) -> Result<Cluster, ClientError> {
        topics.unwrap_or_default().iter().try_for_each(|topic| check_topic(topic))?;
        let connection = self.any_connection().await?;
        let header = connection.header(api::METADATA)?;
        let name = |topic: &&str| {
            let name = TopicName(StrBytes::from_string((*topic).to_owned()));
            MetadataRequestTopic::default().with_name(Some(name))
        };
        let mut request = MetadataRequest::default();
        request.topics = topics.map(|topics| topics.iter().map(name).collect());
        // Version 0 has no null, and no topics mean all of them; older versions always create.
        if header.version == 0 {
            request.topics.get_or_insert_default();
        }
        request.allow_auto_topic_creation = self.inner.options.auto_create || header.version < 4;
        let answer = connection.call_with(header, &request).await?;
        let cluster = Cluster::from(&answer);
        self.note(&cluster);
        Ok(cluster)
    }

    /// A connection to the partition's leader.
    ///
    /// # Errors
    /// [`ClientError::NoLeader`], [`ClientError::Refused`] for an unknown topic, and what keeps it
    /// from connecting.
    pub async fn leader(&self, topic: &str, partition: i32) -> Result<Connection, ClientError> {
        let known = |state: &State| state.leaders.get(topic)?.get(&partition).cloned();
        let found = known(&self.state());
        let address = match found {
            Some(address) => address,
            None => {
                let cluster = self.try_metadata(Some(&[topic])).await?;
                for topic in &cluster.topics {
                    let what = || format!("looking for topic {:?}", topic.name);
                    ClientError::check(topic.error_code, what)?;
                }
                let found = known(&self.state());
                let topic = topic.to_owned();
                found.ok_or(ClientError::NoLeader { topic, partition })?
            }
        };
        self.connection_to(&address).await
    }

    /// A connection to the broker with this number.
    ///
    /// # Errors
    /// [`ClientError::Argument`] when the cluster has none; what keeps it from connecting.
    pub async fn broker(&self, id: i32) -> Result<Connection, ClientError> {
        let known = self.state().brokers.get(&id).cloned();
        let address = match known {
            Some(address) => Some(address),
            None => {
                self.try_metadata(Some(&[])).await?;
                self.state().brokers.get(&id).cloned()
            }
        };
        let Some(address) = address else {
            let mut ids: Vec<i32> = self.state().brokers.keys().copied().collect();
            ids.sort_unstable();
            let text = format!("the cluster has no broker {id}, but {ids:?}");
            return Err(ClientError::Argument(text));
        };
        self.connection_to(&address).await
    }

    /// A connection to the broker that changes go to.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn controller(&self) -> Result<Connection, ClientError> {
        let cluster = self.try_metadata(Some(&[])).await?;
        match cluster.controller {
            // No broker says so: each passes changes on.
            -1 => self.any_connection().await,
            id => self.broker(id).await,
        }
    }

    /// Forgets where leaders are, so that the next call looks again.
    pub fn forget_leaders(&self) {
        self.state().leaders.clear();
    }

    /// A connection to any broker.
    ///
    /// # Errors
    /// What the last of the brokers failed with.
    pub async fn any_connection(&self) -> Result<Connection, ClientError> {
        let open = self.state().connections.values().find(|one| !one.is_closed()).cloned();
        if let Some(connection) = open {
            return Ok(connection);
        }
        let mut failed = None;
        for address in &self.inner.bootstrap {
            match self.connection_to(address).await {
                Ok(connection) => return Ok(connection),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.expect("splitting a text yields at least one address"))
    }

    pub(super) async fn connection_to(&self, address: &str) -> Result<Connection, ClientError> {
        let open = self.state().connections.get(address).filter(|one| !one.is_closed()).cloned();
        if let Some(connection) = open {
            return Ok(connection);
        }
        let connection = Connection::open(address, &self.inner.options.connection).await?;
        self.state().connections.insert(address.to_owned(), connection.clone());
        Ok(connection)
    }

    fn note(&self, cluster: &Cluster) {
        let addresses: HashMap<i32, &String> =
            cluster.brokers.iter().map(|broker| (broker.id, &broker.address)).collect();
        let mut state = self.state();
        let owned = |broker: &Broker| (broker.id, broker.address.clone());
        state.brokers = cluster.brokers.iter().map(owned).collect();
        for topic in &cluster.topics {
            let leader = |partition: &Partition| {
                Some((partition.index, (*addresses.get(&partition.leader)?).clone()))
            };
            let leaders = topic.partitions.iter().filter_map(leader).collect();
            state.leaders.insert(topic.name.clone(), leaders);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().expect("nothing panics while it holds the lock")
    }

    /// Tries until there is success, a failure that no other try can mend, or no time left.
    pub(super) async fn retried<T, F>(
        &self,
        what: String,
        attempt: impl Fn() -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut tries = self.tries(what);
        loop {
            match tries.limited(attempt()).await {
                Ok(result) => return Ok(result),
                Err(error) => tries.pause(error).await?,
            }
        }
    }

    pub(super) fn tries(&self, what: String) -> Tries<'_> {
        Tries { client: self, what, start: Instant::now(), last: "no answer came".to_owned() }
    }
}

/// Fails unless the address is of the form host:port.
fn check_address(address: &str) -> Result<(), ClientError> {
    match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(()),
        _ => Err(ClientError::Argument(format!("{address:?} is no address of the form HOST:PORT"))),
    }
}

/// The tries of one call.
pub(super) struct Tries<'a> {
    client: &'a Client,
    what: String,
    start: Instant,
    /// What went wrong last.
    last: String,
}

impl Tries<'_> {
    /// Waits before the next try, if there may be one after `error`.
    pub(super) async fn pause(&mut self, error: ClientError) -> Result<(), ClientError> {
        if !error.is_retriable() {
            return Err(error);
        }
        self.last = error.to_string();
        let options = self.client.options();
        if self.start.elapsed() + options.retry_pause >= options.timeout {
            return Err(self.timeout());
        }
        self.client.forget_leaders();
        tokio::time::sleep(options.retry_pause).await;
        Ok(())
    }

    /// Runs a try, for at most what is left of the call's time.
    pub(super) async fn limited<T>(
        &self,
        attempt: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let timeout = self.client.options().timeout;
        match tokio::time::timeout_at(self.start + timeout, attempt).await {
            Ok(result) => result,
            Err(_) => Err(self.timeout()),
        }
    }

    fn timeout(&self) -> ClientError {
        let (what, last) = (self.what.clone(), self.last.clone());
        ClientError::Timeout { what, after: self.client.options().timeout, last }
    }
}

impl From<&MetadataResponse> for Cluster {
    fn from(answer: &MetadataResponse) -> Cluster {
        let brokers = answer.brokers.iter().map(|broker| Broker {
            id: broker.node_id.0,
            address: join_address(&broker.host, broker.port),
        });
        Cluster {
            id: answer.cluster_id.as_deref().map(str::to_owned),
            controller: answer.controller_id.0,
            brokers: brokers.collect(),
            topics: answer.topics.iter().map(Topic::from).collect(),
        }
    }
}

/// Host and port as one text; an IPv6 address is put into brackets.
pub(super) fn join_address(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl From<&MetadataResponseTopic> for Topic {
    fn from(answer: &MetadataResponseTopic) -> Topic {
        let mut partitions: Vec<Partition> = answer
            .partitions
            .iter()
            .map(|partition| Partition {
                index: partition.partition_index,
                error_code: partition.error_code,
                leader: partition.leader_id.0,
                leader_epoch: partition.leader_epoch,
                replicas: partition.replica_nodes.iter().map(|node| node.0).collect(),
                in_sync: partition.isr_nodes.iter().map(|node| node.0).collect(),
            })
            .collect();
        partitions.sort_by_key(|partition| partition.index);
        Topic {
            name: answer.name.as_deref().map(|name| name.to_string()).unwrap_or_default(),
            id: TopicId(answer.topic_id.into_bytes()),
            error_code: answer.error_code,
            partitions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for good in ["localhost:9092", "[::1]:9092", "10.0.0.1:1"] {
            check_address(good).expect(good);
        }
        for bad in ["localhost", ":9092", "localhost:", "localhost:99999", ""] {
            check_address(bad).expect_err(bad);
        }
        assert_eq!(join_address("::1", 9), "[::1]:9");
        assert_eq!(join_address("h", 9), "h:9");
    }
}
