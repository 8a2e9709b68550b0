//! One shard's share of the broker: its partitions, the image that clients are shown, the way to
//! the controller.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Notify, Semaphore, oneshot};

use crate::broker::config::ServerConfig;
use crate::broker::coordinators::Coordinators;
use crate::broker::directory::{Checkpoints, DataDirectory, Found, FoundPartitions, PartitionKey};
use crate::broker::errors::{Complaints, Refusal};
use crate::broker::image::{Image, Topic};
use crate::broker::log_levels::LogLevels;
use crate::broker::mail::{ControllerOrder, Decide, NewTopic, ProducerIdBlock};
use crate::broker::peers::Peers;
use crate::broker::placement::{broker_of, shard_of};
use crate::broker::quota::Meters;
use crate::broker::sessions::Sessions;
use crate::format::properties::DirectoryId;
use crate::shard::{Engine, Mailbox, Partition};
use crate::units::{BrokerId, PartitionId, ProducerId, TopicId, usize_of};
use crate::wire::error::ErrorCode;
use crate::wire::topics::{CurrentLeader, NodeEndpoint, TopicKey};

/// How long a request waits for the controller before it says REQUEST_TIMED_OUT.
pub const CONTROLLER_WAIT_MAX: Duration = Duration::from_secs(30);

/// What all shards know from the start.
pub struct Shared {
    /// The settings.
    pub config: ServerConfig,
    /// The data directory.
    pub directory: PathBuf,
    /// The broker's own id: on disk the only one, on the wire that of shard 0.
    pub node: BrokerId,
    /// The shards as clients see them.
    pub brokers: Brokers,
    /// How many shards there are.
    pub shards: usize,
    /// The cluster's id.
    pub cluster_id: String,
    /// The data directory's id.
    pub directory_id: DirectoryId,
    /// Whether the last run ended in order.
    pub was_clean: bool,
    /// What the checkpoint files said at the start.
    pub checkpoints: Checkpoints,
    /// The partitions that lay in the directory at the start.
    pub found: FoundPartitions,
    /// The files at the data directory's root.
    pub root: Arc<DataDirectory>,
    /// Levels of what this process logs, where they can be changed.
    pub log_levels: Option<Arc<LogLevels>>,
}

/// The brokers of the cluster as clients should see them: all shards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Brokers {
    /// Id of the first; the others follow.
    pub node: BrokerId,
    /// The host that clients reach them under.
    pub host: String,
    /// The port of each.
    pub ports: Vec<u16>,
}

impl Brokers {
    /// Those of a broker that nobody can reach.
    pub fn none(node: BrokerId) -> Brokers {
        Brokers { node, host: String::new(), ports: Vec::new() }
    }

    /// Id, host and port of each.
    pub fn iter(&self) -> impl Iterator<Item = (BrokerId, &str, u16)> {
        let ports = self.ports.iter().enumerate();
        ports.map(|(shard, port)| (broker_of(self.node, shard), self.host.as_str(), *port))
    }

    /// Where one of them can be reached.
    pub fn endpoint(&self, id: BrokerId) -> Option<NodeEndpoint> {
        let (id, host, port) = self.iter().find(|(known, _, _)| *known == id)?;
        Some(NodeEndpoint { id, host: host.to_owned(), port })
    }
}

/// A partition that could not be had, as Produce and Fetch tell it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotHere {
    /// What the client sees.
    pub code: ErrorCode,
    /// Who leads the partition, when another shard does.
    pub leader: Option<CurrentLeader>,
}

impl From<ErrorCode> for NotHere {
    fn from(code: ErrorCode) -> NotHere {
        NotHere { code, leader: None }
    }
}

/// The partitions of one topic that are open on this shard, by number.
type Own = HashMap<PartitionId, Partition>;

/// One shard's share of the broker; lives on the shard's thread.
pub struct Node {
    /// Which shard this is.
    pub shard: usize,
    /// What all shards know.
    pub shared: Arc<Shared>,
    /// The shard's engine.
    pub engine: Engine,
    /// The shard's coordinators.
    pub coordinators: Coordinators,
    /// The way to the other shards.
    pub peers: Peers,
    image: RefCell<Arc<Image>>,
    /// The settings with what was changed at run time.
    config: RefCell<Arc<ServerConfig>>,
    partitions: RefCell<HashMap<TopicId, Own>>,
    controller: Mailbox<ControllerOrder>,
    serving: Cell<bool>,
    told_serving: Notify,
    producer_ids: Mutex<ProducerIdBlock>,
    complaints: Complaints,
    /// When this shard started.
    pub(crate) started: Instant,
    /// What clients have sent and fetched.
    pub(crate) meters: RefCell<Meters>,
    /// What clients fetch.
    pub(crate) sessions: RefCell<Sessions>,
    /// The turn of large requests.
    pub(crate) large_requests: Semaphore,
    /// Partitions that are there and could not be opened, with the reason.
    unopened: RefCell<BTreeMap<PartitionKey, String>>,
}

impl Node {
    /// A node that knows no topic yet.
    pub fn new(
        shard: usize,
        shared: Arc<Shared>,
        engine: Engine,
        (controller, peers): (Mailbox<ControllerOrder>, Peers),
    ) -> Rc<Node> {
        let slots = usize_of(u64::from(shared.config.fetch_sessions_max));
        let config = RefCell::new(Arc::new(shared.config.clone()));
        Rc::new_cyclic(|node| Node {
            coordinators: Coordinators::new(node, &shared.config.coordinators),
            peers,
            shard,
            config,
            shared,
            engine,
            image: RefCell::default(),
            partitions: RefCell::default(),
            controller,
            serving: Cell::new(false),
            told_serving: Notify::new(),
            producer_ids: Mutex::new(ProducerIdBlock { next: 0, end: 0 }),
            complaints: Complaints::default(),
            started: Instant::now(),
            meters: RefCell::default(),
            sessions: RefCell::new(Sessions::new(slots)),
            large_requests: Semaphore::new(1),
            unopened: RefCell::default(),
        })
    }

    /// The broker id of this shard.
    pub fn broker(&self) -> BrokerId {
        broker_of(self.shared.node, self.shard)
    }

    /// The image that clients see now.
    pub fn image(&self) -> Arc<Image> {
        self.image.borrow().clone()
    }

    /// The settings as they are now.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.borrow().clone()
    }

    /// Settings that were changed at run time take effect.
    pub(crate) fn set_config(&self, config: ServerConfig) {
        *self.config.borrow_mut() = Arc::new(config);
    }

    /// Which broker leads a partition.
    pub fn leader(&self, topic: TopicId, partition: PartitionId) -> BrokerId {
        broker_of(self.shared.node, shard_of(topic, partition, self.shared.shards))
    }

    /// Waits until the partitions of all shards are open.
    pub async fn served(&self) {
        while !self.serving.get() {
            self.told_serving.notified().await;
        }
    }

    /// Clients may come.
    pub fn serve(&self) {
        self.serving.set(true);
        self.told_serving.notify_waiters();
    }

    /// Whether clients are served.
    pub fn is_serving(&self) -> bool {
        self.serving.get()
    }

    /// Clients see this image from here on.
    pub(crate) fn show(&self, image: Arc<Image>) {
        *self.image.borrow_mut() = image;
    }

    /// A partition that is open on this shard.
    pub(crate) fn open_partition(&self, topic: TopicId, number: PartitionId) -> Option<Partition> {
        self.partitions.borrow().get(&topic)?.get(&number).cloned()
    }

    /// Clients find the partition from here on.
    pub(crate) fn keep(&self, topic: TopicId, number: PartitionId, partition: Partition) {
        self.partitions.borrow_mut().entry(topic).or_default().insert(number, partition);
    }

    /// Remembers whether a partition could be opened; a later topic may have the name of one that
    /// could not.
    pub(crate) fn note_opening(&self, key: &PartitionKey, failure: Option<&String>) {
        let mut unopened = self.unopened.borrow_mut();
        match failure {
            Some(reason) => unopened.insert(key.clone(), reason.clone()),
            None => unopened.remove(key),
        };
    }

    /// Why a partition that is there could not be opened; `None` when it could.
    pub(crate) fn unopened(&self, key: &PartitionKey) -> Option<String> {
        self.unopened.borrow().get(key).cloned()
    }

    /// Takes a topic's partitions out: clients no longer find them.
    pub(crate) fn take(&self, topic: TopicId) -> impl Iterator<Item = (PartitionId, Partition)> {
        self.partitions.borrow_mut().remove(&topic).into_iter().flatten()
    }

    /// The topic that a request names.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID; NOT_LEADER_OR_FOLLOWER while the broker is
    /// starting, so that the client asks again.
    pub fn topic(&self, key: &TopicKey) -> Result<Arc<Topic>, ErrorCode> {
        if !self.serving.get() {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        let image = self.image.borrow();
        match key {
            TopicKey::Name(name) => {
                image.topic(name.as_str()).cloned().ok_or(ErrorCode::UnknownTopicOrPartition)
            }
            TopicKey::Id(id) => image.topic_by_id(*id).cloned().ok_or(ErrorCode::UnknownTopicId),
        }
    }

    /// A partition of this shard, from its number on the wire.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION when the topic has no such partition, NOT_LEADER_OR_FOLLOWER with
    /// the leader when another shard has it, KAFKA_STORAGE_ERROR when it could not be opened.
    pub fn partition(&self, topic: &Topic, number: i32) -> Result<Partition, NotHere> {
        let (number, epoch) = u32::try_from(number)
            .ok()
            .map(PartitionId)
            .and_then(|number| Some((number, topic.leader_epoch(number)?)))
            .ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let leader = self.leader(topic.id, number);
        if leader != self.broker() {
            let leader = Some(CurrentLeader { id: leader, epoch });
            return Err(NotHere { code: ErrorCode::NotLeaderOrFollower, leader });
        }
        Ok(self.open_partition(topic.id, number).ok_or(ErrorCode::KafkaStorageError)?)
    }

    /// Asks the controller for topics; every one is answered.
    pub async fn create_topics(&self, topics: Vec<NewTopic>) -> Vec<Result<Arc<Topic>, Refusal>> {
        let count = topics.len();
        let order = |answer| ControllerOrder::CreateTopics { topics, answer };
        self.ask(order).await.unwrap_or_else(|refusal| vec![Err(refusal); count])
    }

    /// Asks the controller to delete topics; every one is answered.
    pub async fn delete_topics(&self, topics: Vec<TopicId>) -> Vec<Result<(), Refusal>> {
        let count = topics.len();
        let order = |answer| ControllerOrder::DeleteTopics { topics, answer };
        self.ask(order).await.unwrap_or_else(|refusal| vec![Err(refusal); count])
    }

    /// Asks the controller for changes, or only whether they could be made; every one is answered.
    pub async fn change(&self, changes: Vec<Decide>, is_trial: bool) -> Vec<Result<(), Refusal>> {
        let count = changes.len();
        if count == 0 {
            return Vec::new();
        }
        let order = |answer| ControllerOrder::Change { changes, is_trial, answer };
        self.ask(order).await.unwrap_or_else(|refusal| vec![Err(refusal); count])
    }

    /// A producer id that nobody has had.
    ///
    /// # Errors
    /// When the controller can't reserve more.
    pub async fn new_producer_id(&self) -> Result<ProducerId, Refusal> {
        let mut block = self.producer_ids.lock().await;
        if block.next >= block.end {
            *block = self.ask(|answer| ControllerOrder::ProducerIds { answer }).await??;
        }
        let id = block.next;
        block.next += 1;
        Ok(ProducerId(id))
    }

    /// Writes a line about a client's fault, within the limit.
    pub fn complain(&self, line: impl FnOnce() -> String) {
        self.complaints.write(Instant::now(), line);
    }

    /// Writes a line about what clients do again and again in good faith, once a minute.
    pub fn mention(&self, line: impl FnOnce() -> String) {
        self.complaints.write_rarely(Instant::now(), line);
    }

    async fn ask<T>(
        &self,
        order: impl FnOnce(oneshot::Sender<T>) -> ControllerOrder,
    ) -> Result<T, Refusal> {
        let (answer, answered) = oneshot::channel();
        let stopping =
            || Refusal::new(ErrorCode::BrokerNotAvailable, "the broker is being stopped");
        self.controller.send(order(answer)).await.map_err(|_| stopping())?;
        match tokio::time::timeout(CONTROLLER_WAIT_MAX, answered).await {
            Ok(answer) => answer.map_err(|_| stopping()),
            Err(_) => Err(Refusal::new(
                ErrorCode::RequestTimedOut,
                "the controller is busy; the change may still be made",
            )),
        }
    }
}

/// What to do with a partition that should be on this shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// Nothing of it is there, or only what a kill in the middle of its creation left.
    Create,
    /// Open what is there.
    Open,
    /// The directory belongs to another topic of that name; it is not ours to touch.
    Foreign(TopicId),
}

/// Decides by what was found in the partition's place.
pub(crate) fn arrival(found: Option<&Found>, topic: TopicId) -> Arrival {
    match found {
        None | Some(Found { topic_id: None, has_records: false }) => Arrival::Create,
        Some(Found { topic_id: None, has_records: true }) => Arrival::Open,
        Some(Found { topic_id: Some(id), .. }) if *id == topic => Arrival::Open,
        Some(Found { topic_id: Some(id), .. }) => Arrival::Foreign(*id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: TopicId = TopicId([1; 16]);
    const OTHER: TopicId = TopicId([2; 16]);

    fn found(topic_id: Option<TopicId>, has_records: bool) -> Found {
        Found { topic_id, has_records }
    }

    #[test]
    fn what_lies_in_a_partitions_place_decides() {
        assert_eq!(arrival(None, OWN), Arrival::Create);
        assert_eq!(arrival(Some(&found(Some(OWN), false)), OWN), Arrival::Open);
        assert_eq!(arrival(Some(&found(Some(OTHER), false)), OWN), Arrival::Foreign(OTHER));
        assert_eq!(arrival(Some(&found(None, false)), OWN), Arrival::Create);
        assert_eq!(arrival(Some(&found(None, true)), OWN), Arrival::Open);
    }

    #[test]
    fn shards_have_ids_and_ports_of_their_own() {
        let brokers =
            Brokers { node: BrokerId(7), host: "here".to_owned(), ports: vec![9092, 9093] };
        let seen: Vec<_> = brokers.iter().collect();
        assert_eq!(seen, [(BrokerId(7), "here", 9092), (BrokerId(8), "here", 9093)]);
        assert_eq!(brokers.endpoint(BrokerId(8)).map(|node| node.port), Some(9093));
        assert_eq!(brokers.endpoint(BrokerId(9)), None);
    }
}
