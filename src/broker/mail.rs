//! What shards and the control thread tell each other. Nothing of the data path travels here.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::broker::directory::{PartitionKey, PartitionReport};
use crate::broker::errors::Refusal;
use crate::broker::image::{Image, Overrides, Topic};
use crate::format::kraft::MetadataRecord;
use crate::format::names::TopicName;
use crate::log::RecoveryReport;
use crate::shard::ShardStats;
use crate::units::{LeaderEpoch, PartitionId, TopicId};

/// What a change means for the image as it is when its turn comes: the records that make it, or why
/// it can't be.
pub type Decide = Box<dyn FnOnce(&Image) -> Result<Vec<MetadataRecord>, Refusal> + Send>;

/// To the controller, which lives on shard 0. It takes one order after the other, so that of two
/// equal ones the second finds what the first has done.
pub enum ControllerOrder {
    /// Make topics; every topic is answered, in the same order.
    CreateTopics {
        /// Which ones.
        topics: Vec<NewTopic>,
        /// Where the answers go.
        answer: oneshot::Sender<Vec<Result<Arc<Topic>, Refusal>>>,
    },
    /// Delete topics; every topic is answered, in the same order.
    DeleteTopics {
        /// Which ones.
        topics: Vec<TopicId>,
        /// Where the answers go.
        answer: oneshot::Sender<Vec<Result<(), Refusal>>>,
    },
    /// Make changes, each of them as a whole or not at all; every one is answered, in the same
    /// order.
    Change {
        /// Which ones.
        changes: Vec<Decide>,
        /// Only say whether they could be made.
        is_trial: bool,
        /// Where the answers go.
        answer: oneshot::Sender<Vec<Result<(), Refusal>>>,
    },
    /// Reserve a block of producer ids for a shard.
    ProducerIds {
        /// Where the block goes.
        answer: oneshot::Sender<Result<ProducerIdBlock, Refusal>>,
    },
}

/// A topic to be made, its settings checked already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewTopic {
    /// Its name.
    pub name: TopicName,
    /// How many partitions.
    pub partitions: u32,
    /// Its configs.
    pub overrides: Overrides,
    /// The shard that is to have partition 0, if the client says so; the others follow.
    pub first_shard: Option<usize>,
}

/// Producer ids that one shard may give out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerIdBlock {
    /// The next one to give out.
    pub next: i64,
    /// The first one that belongs to somebody else.
    pub end: i64,
}

/// To a shard.
pub enum ShardOrder {
    /// Make partitions and image agree, then show the image to clients.
    Publish {
        /// The image.
        image: Arc<Image>,
        /// Told when all partitions of this shard have followed.
        answer: oneshot::Sender<Applied>,
    },
    /// The controller's last word at the start: partitions are open, clients may come.
    Serve,
    /// What the checkpoint files need.
    Report {
        /// Where it goes.
        answer: oneshot::Sender<Vec<PartitionReport>>,
    },
    /// What the scrape needs.
    Stats {
        /// Where it goes.
        answer: oneshot::Sender<ShardStats>,
    },
    /// Let due answers leave and close everything in order; the thread's result says how it went.
    Stop,
}

/// How a shard followed an image.
#[derive(Default, Debug)]
pub struct Applied {
    /// Partitions whose log has a newer leader epoch than the image: recovery bumped it.
    pub epochs: Vec<(TopicId, PartitionId, LeaderEpoch)>,
    /// Partitions that should be there and are not, with the reason.
    pub failed: Vec<(TopicId, PartitionId, String)>,
    /// Partitions that were opened, with what was found.
    pub opened: Vec<Opened>,
}

/// A partition that was opened, with what was found.
pub type Opened = (PartitionKey, RecoveryReport);

/// How a shard stopped.
#[derive(Default, Debug)]
pub struct Closed {
    /// For the checkpoint files.
    pub reports: Vec<PartitionReport>,
    /// Why partitions could not be closed; empty after a clean stop.
    pub failed: Vec<String>,
}
