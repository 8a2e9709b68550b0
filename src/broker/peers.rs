//! What shards ask each other on behalf of clients: whether a batch belongs to a transaction that
//! another shard coordinates, and markers for partitions that another shard has.
//!
//! A mailbox of its own, so that none of it waits behind a change of topics.

use std::rc::Rc;

use tokio::sync::oneshot;

use crate::broker::coordinators::markers;
use crate::broker::node::Node;
use crate::coordinator::transactions::{Answer, Request, TopicPartition, TransactionalId};
use crate::log::producers::Marker;
use crate::shard::{Inbox, Mailbox, edge};
use crate::wire::error::ErrorCode;

/// What became of a marker on one partition.
pub type Marked = (TopicPartition, Result<(), ErrorCode>);

/// To the shard that has the partitions in question.
pub enum PeerOrder {
    /// A question to the coordinator of a transactional id.
    Transactions {
        /// The id.
        id: TransactionalId,
        /// The question.
        request: Request,
        /// Where the answer goes.
        answer: oneshot::Sender<Result<Answer, ErrorCode>>,
    },
    /// A marker for some partitions.
    Markers {
        /// What is written.
        marker: Marker,
        /// Where.
        partitions: Vec<TopicPartition>,
        /// Where the outcome goes, one for each partition.
        answer: oneshot::Sender<Vec<Marked>>,
    },
}

/// The mailboxes of all shards, by their numbers.
#[derive(Clone, Default)]
pub struct Peers(Vec<Mailbox<PeerOrder>>);

impl Peers {
    /// One mailbox for each shard.
    pub fn new(shards: usize) -> (Peers, Vec<Inbox<PeerOrder>>) {
        let (mailboxes, inboxes) = (0..shards).map(|_| Mailbox::new()).unzip();
        (Peers(mailboxes), inboxes)
    }

    /// Puts a question to another shard's coordinator of transactions.
    ///
    /// # Errors
    /// Those of [`Store::ask`](crate::broker::coordinators::Store::ask).
    pub async fn ask(
        &self,
        shard: usize,
        id: TransactionalId,
        request: Request,
    ) -> Result<Answer, ErrorCode> {
        let (answer, answered) = oneshot::channel();
        self.send(shard, PeerOrder::Transactions { id, request, answer }).await?;
        answered.await.unwrap_or(Err(ErrorCode::NotCoordinator))
    }

    /// Has another shard write a marker.
    ///
    /// # Errors
    /// NOT_COORDINATOR when the shard has stopped.
    pub async fn mark(
        &self,
        shard: usize,
        marker: Marker,
        partitions: Vec<TopicPartition>,
    ) -> Result<Vec<Marked>, ErrorCode> {
        let (answer, answered) = oneshot::channel();
        self.send(shard, PeerOrder::Markers { marker, partitions, answer }).await?;
        answered.await.map_err(|_| ErrorCode::NotCoordinator)
    }

    async fn send(&self, shard: usize, order: PeerOrder) -> Result<(), ErrorCode> {
        let mailbox = self.0.get(shard).ok_or(ErrorCode::NotCoordinator)?;
        mailbox.send(order).await.map_err(|_| ErrorCode::NotCoordinator)
    }
}

/// Carries out what other shards ask, until they are gone. Not before this shard serves: a topic
/// that it doesn't show yet would be taken for a deleted one, and a transaction for finished whose
/// marker is missing here.
pub async fn obey(node: Rc<Node>, mut inbox: Inbox<PeerOrder>) {
    node.served().await;
    while let Some(order) = inbox.receive().await {
        // Whoever asked may be gone.
        match order {
            PeerOrder::Transactions { id, request, answer } => {
                let node = node.clone();
                edge::spawn(async move {
                    drop(
                        answer.send(node.coordinators.transactions.ask(&node, &id, request).await),
                    );
                });
            }
            PeerOrder::Markers { marker, partitions, answer } => {
                // Appended in the order in which they come; waited for beside one another.
                let under_way = markers::append(&node, &marker, partitions);
                edge::spawn(async move { drop(answer.send(markers::reached(under_way).await)) });
            }
        }
    }
}
