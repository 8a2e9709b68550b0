//! The transactions that this shard coordinates.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use crate::broker::config::TransactionConfig;
use crate::broker::coordinators::find::partition_of;
use crate::broker::coordinators::internal_topic::{self, Kind};
use crate::broker::coordinators::markers;
use crate::broker::coordinators::store::Store;
use crate::broker::errors::Refusal;
use crate::broker::node::Node;
use crate::broker::placement::shard_of;
use crate::coordinator::transactions::{
    Answer, Effect, Request, Settings, TransactionVersion, TransactionalId, Transactions,
};
use crate::shard::edge;
use crate::units::{PartitionId, ProducerId};
use crate::wire::error::ErrorCode;

/// The transactions that this shard coordinates.
pub struct TransactionDesk {
    store: Store<Transactions>,
    /// Who writes the markers of each decided transaction. After a coordinator was loaded again
    /// somebody else does, and the former one must not go on: the producer may be in its next
    /// transaction by then.
    rounds: RefCell<HashMap<TransactionalId, u64>>,
    next_round: Cell<u64>,
}

/// The right to write the markers of a transaction, as long as nobody else has it.
pub struct Round {
    node: Rc<Node>,
    id: TransactionalId,
    number: u64,
}

impl Round {
    /// The shard that it is on.
    pub fn node(&self) -> &Rc<Node> {
        &self.node
    }

    /// Whether it still counts.
    pub fn is_current(&self) -> bool {
        let rounds = self.node.coordinators.transactions.rounds.borrow();
        rounds.get(&self.id) == Some(&self.number)
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        if self.is_current() {
            self.node.coordinators.transactions.rounds.borrow_mut().remove(&self.id);
        }
    }
}

impl TransactionDesk {
    /// A desk without partitions, for a node that is about to be made.
    pub fn new(node: Weak<Node>, config: &TransactionConfig) -> TransactionDesk {
        let settings = Settings {
            timeout_ms_max: config.timeout_ms_max,
            id_expiration_ms: config.id_expiration_ms,
            abort_interval_ms: config.abort_interval_ms,
            expiration_interval_ms: config.expiration_interval_ms,
            version: TransactionVersion::Two,
        };
        let act = move |partition, effect| {
            if let Some(node) = node.upgrade() {
                act(&node, partition, effect);
            }
        };
        TransactionDesk {
            store: Store::new(Kind::Transactions, settings, act),
            rounds: RefCell::default(),
            next_round: Cell::new(0),
        }
    }

    /// Follows the image that the node shows now.
    pub fn follow(&self, node: &Node) {
        self.store.follow(node);
    }

    /// Puts a request to the coordinator of an id, if this shard has it.
    ///
    /// # Errors
    /// INVALID_REQUEST for no id (Kafka's `TransactionCoordinator`); as [`Store::ask`].
    pub async fn ask(&self, node: &Node, id: &str, request: Request) -> Result<Answer, ErrorCode> {
        if id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        self.store.ask(node, id, request).await
    }

    /// Puts a request to the coordinator of one partition.
    ///
    /// # Errors
    /// As [`Store::ask`].
    pub async fn ask_partition(
        &self,
        id: PartitionId,
        request: Request,
    ) -> Result<Answer, ErrorCode> {
        self.store.ask_partition(id, request).await
    }

    /// Puts a request to every coordinator of this shard.
    ///
    /// # Errors
    /// As [`Store::ask_all`].
    pub async fn ask_all(
        &self,
        request: impl FnMut() -> Request,
    ) -> Result<Vec<Answer>, ErrorCode> {
        self.store.ask_all(request).await
    }

    fn round(&self, node: &Rc<Node>, id: TransactionalId) -> Round {
        let number = self.next_round.get();
        self.next_round.set(number + 1);
        self.rounds.borrow_mut().insert(id.clone(), number);
        Round { node: node.clone(), id, number }
    }
}

fn act(node: &Rc<Node>, partition: PartitionId, effect: Effect) {
    match effect {
        Effect::Markers(due) => {
            let round = node.coordinators.transactions.round(node, due.id.clone());
            edge::spawn(markers::finish(round, partition, due));
        }
        Effect::NeedsProducerId(id) => {
            edge::spawn(time_out(node.clone(), partition, id));
        }
    }
}

/// Aborts a transaction that is open for too long and takes a new producer id. If that can't be
/// had the next look comes back to it.
async fn time_out(node: Rc<Node>, partition: PartitionId, id: TransactionalId) {
    match node.new_producer_id().await {
        Ok(fresh) => {
            let request = Request::TimeOut { id, fresh };
            let _ = node.coordinators.transactions.ask_partition(partition, request).await;
        }
        Err(refusal) => tracing::warn!("transaction {id:?} can't be timed out: {refusal}"),
    }
}

impl Node {
    /// Puts a request to the coordinator of a transactional id, on whichever shard it is.
    ///
    /// # Errors
    /// As [`Store::ask`]; COORDINATOR_NOT_AVAILABLE while there is no `__transaction_state`.
    pub async fn ask_transactions(
        &self,
        id: &TransactionalId,
        request: Request,
    ) -> Result<Answer, ErrorCode> {
        let topic = internal_topic::get(self, Kind::Transactions);
        let topic = topic.ok_or(ErrorCode::CoordinatorNotAvailable)?;
        let shard = shard_of(topic.id, partition_of(&topic, id), self.shared.shards);
        if shard == self.shard {
            self.coordinators.transactions.ask(self, id, request).await
        } else {
            self.peers.ask(shard, id.clone(), request).await
        }
    }

    /// Puts a request to this shard's coordinator of an id that may take a new producer id.
    ///
    /// # Errors
    /// As [`Store::ask`], and when no producer id can be had.
    pub async fn ask_with_producer_id(
        &self,
        id: &str,
        request: impl Fn(Option<ProducerId>) -> Request,
    ) -> Result<Answer, Refusal> {
        let refused = |code: ErrorCode| Refusal::new(code, code.name());
        let desk = &self.coordinators.transactions;
        let mut fresh = None;
        loop {
            match desk.ask(self, id, request(fresh)).await.map_err(refused)? {
                Answer::NeedsProducerId => fresh = Some(self.new_producer_id().await?),
                answer => return Ok(answer),
            }
        }
    }
}
