//! The coordinators of one kind on one shard, by the partitions of their internal topic.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::broker::coordinators::driver::{Act, Driver};
use crate::broker::coordinators::find::partition_of;
use crate::broker::coordinators::internal_topic::{self, Kind};
use crate::broker::node::Node;
use crate::coordinator::Coordinator;
use crate::shard::edge;
use crate::units::PartitionId;
use crate::wire::error::ErrorCode;

/// All coordinators of one kind that this shard has.
pub struct Store<C: Coordinator> {
    kind: Kind,
    settings: RefCell<Rc<C::Settings>>,
    act: Act<C>,
    drivers: RefCell<BTreeMap<PartitionId, Rc<Driver<C>>>>,
}

impl<C: Coordinator> Store<C> {
    /// A store without partitions. `act` is handed the effects, once what led to them is durable.
    pub fn new(
        kind: Kind,
        settings: C::Settings,
        act: impl Fn(PartitionId, C::Effect) + 'static,
    ) -> Store<C> {
        let (settings, act) = (RefCell::new(Rc::new(settings)), Rc::new(act));
        Store { kind, settings, act, drivers: RefCell::default() }
    }

    /// All coordinators, those that are to come included, have these settings from now on.
    pub fn configure(&self, settings: C::Settings) {
        let settings = Rc::new(settings);
        self.drivers.borrow().values().for_each(|driver| driver.configure(&settings));
        *self.settings.borrow_mut() = settings;
    }

    /// Follows the image: begins to load partitions of the internal topic that are new on this
    /// shard, and drops those that are gone.
    pub fn follow(&self, node: &Node) {
        let topic = internal_topic::get(node, self.kind);
        let mut drivers = self.drivers.borrow_mut();
        drivers.retain(|_, driver| {
            let stays = topic.as_ref().is_some_and(|it| it.id == driver.topic_id());
            if !stays {
                driver.end();
            }
            stays
        });
        let Some(topic) = topic else { return };
        for id in topic.partitions() {
            let Some(partition) = node.open_partition(topic.id, id) else { continue };
            drivers.entry(id).or_insert_with(|| {
                let name = format!("{}-{id}", topic.name);
                let settings = self.settings.borrow().clone();
                let driver =
                    Rc::new(Driver::new((name, id), partition, settings, self.act.clone()));
                edge::spawn(driver.clone().run());
                driver
            });
        }
    }

    /// Puts a request to the coordinator of a key and waits for its answer.
    ///
    /// # Errors
    /// NOT_COORDINATOR when another shard has the key (or nobody: FindCoordinator makes the topic),
    /// COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE when the records can't be written;
    /// for transactional writes what the log says of the producer.
    pub async fn ask(
        &self,
        node: &Node,
        key: &str,
        request: C::Request,
    ) -> Result<C::Answer, ErrorCode> {
        let topic = internal_topic::get(node, self.kind).ok_or(ErrorCode::NotCoordinator)?;
        self.ask_partition(partition_of(&topic, key), request).await
    }

    /// The same for whoever knows the partition.
    ///
    /// # Errors
    /// As [`Store::ask`].
    pub async fn ask_partition(
        &self,
        id: PartitionId,
        request: C::Request,
    ) -> Result<C::Answer, ErrorCode> {
        let driver = self.drivers.borrow().get(&id).cloned();
        driver.ok_or(ErrorCode::NotCoordinator)?.ask(request).await
    }

    /// Puts a request to every partition of this shard, one after the other.
    ///
    /// # Errors
    /// The first error: COORDINATOR_LOAD_IN_PROGRESS when one isn't loaded.
    pub async fn ask_all(
        &self,
        mut request: impl FnMut() -> C::Request,
    ) -> Result<Vec<C::Answer>, ErrorCode> {
        let drivers: Vec<_> = self.drivers.borrow().values().cloned().collect();
        let mut answers = Vec::with_capacity(drivers.len());
        for driver in drivers {
            answers.push(driver.ask(request()).await?);
        }
        Ok(answers)
    }

    /// Tells every partition of this shard something whose answer doesn't matter; one that is being
    /// loaded hears of it afterwards.
    pub fn tell_all(&self, request: impl Fn() -> C::Request) {
        self.drivers.borrow().values().for_each(|driver| driver.tell(request()));
    }

    /// Whether this shard coordinates the key.
    pub fn has(&self, node: &Node, key: &str) -> bool {
        internal_topic::get(node, self.kind)
            .is_some_and(|topic| self.drivers.borrow().contains_key(&partition_of(&topic, key)))
    }
}
