//! Coordinators of groups and transactions on the shards.
//!
//! Their state is a function of an internal topic: `__consumer_offsets` for groups,
//! `__transaction_state` for transactions. A key (group, transactional id) belongs to the partition
//! that its hash names, a partition to its shard, as every partition does; so a client finds the
//! coordinator as a broker, by FindCoordinator, and what it sends arrives on the thread that owns
//! both state and log.
//!
//! - [`internal_topic`]: the topics, made when somebody first asks.
//! - [`find`]: who coordinates a key.
//! - [`store`]: the partitions of one kind that this shard has.
//! - `driver`: one partition: loading, requests, records, timers.
//!
//! The state runs ahead of the log, as the log runs ahead of its files. Answers wait until
//! everything before them is durable. When a record can't be appended or written the state is
//! thrown away and loaded again from what the log has; who waits gets an error that makes clients
//! try again.

mod driver;
pub mod find;
pub mod internal_topic;
mod load;
pub mod markers;
pub mod store;
pub mod transactions;

pub use internal_topic::Kind;
pub use store::Store;

use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::broker::config::CoordinatorConfig;
use crate::broker::coordinators::transactions::TransactionDesk;
use crate::broker::image::{Image, Topic};
use crate::broker::node::Node;
use crate::coordinator::group::{GroupContext, GroupCoordinator, Request, Topics};

/// The coordinators of one shard.
pub struct Coordinators {
    /// Those of groups.
    pub groups: Store<GroupCoordinator>,
    /// Transactions.
    pub transactions: TransactionDesk,
}

impl Coordinators {
    /// Coordinators without partitions, for a node that is about to be made.
    pub fn new(node: &Weak<Node>, config: &CoordinatorConfig) -> Coordinators {
        let nothing: Arc<dyn Topics> = Arc::new(Image::default());
        let context = GroupContext { settings: config.groups.clone(), topics: nothing };
        Coordinators {
            groups: Store::new(Kind::Groups, context, |_, effect| match effect {}),
            transactions: TransactionDesk::new(node.clone(), &config.transactions),
        }
    }

    /// Follows the image that the node shows now.
    pub fn follow(&self, node: &Node) {
        let settings = node.shared.config.coordinators.groups.clone();
        self.groups.configure(GroupContext { settings, topics: node.image() });
        self.groups.follow(node);
        self.transactions.follow(node);
    }

    /// These topics are gone: groups forget their offsets.
    pub fn topics_deleted(&self, topics: &[Arc<Topic>]) {
        if topics.is_empty() {
            return;
        }
        let topics: Rc<[_]> = topics.iter().map(|it| (it.name.to_string(), it.id)).collect();
        self.groups.tell_all(|| Request::TopicsDeleted(topics.clone()));
    }
}
