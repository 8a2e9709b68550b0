//! How a shard follows the image: partitions are opened or made before clients see a topic, and
//! retired after they no longer do.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::broker::config::TopicConfigs;
use crate::broker::directory::{Found, PartitionKey, PartitionReport, deleted_name};
use crate::broker::image::{Image, Topic};
use crate::broker::mail::{Applied, Closed, ShardOrder};
use crate::broker::node::{Arrival, Node, arrival};
use crate::broker::placement::shard_of;
use crate::disk::Place;
use crate::log::{Opening, RecoveryReport};
use crate::shard::{Inbox, Partition, PartitionSpec};
use crate::units::{Offset, PartitionId, TopicId};

/// Carries out the orders of a shard until its senders are gone; `stop` ends its network side.
pub async fn obey(node: Rc<Node>, mut inbox: Inbox<ShardOrder>, stop: Rc<Notify>) {
    let mut deferred = VecDeque::new();
    loop {
        let order = match deferred.pop_front() {
            Some(order) => order,
            None => match inbox.receive().await {
                Some(order) => order,
                None => return,
            },
        };
        match order {
            ShardOrder::Publish { image, answer } => {
                let applied = apply_and_tell(&node, image, (&mut inbox, &mut deferred)).await;
                // Whoever asked may have given up waiting; what was done stays done.
                drop(answer.send(applied));
            }
            ShardOrder::Serve => node.serve(),
            ShardOrder::Stop => stop.notify_one(),
            ShardOrder::Report { .. } | ShardOrder::Stats { .. } => node.tell(order),
        }
    }
}

/// Applies an image. That takes long for a topic of many partitions, and whoever asks meanwhile how
/// the shard is must hear; the other orders wait.
async fn apply_and_tell(
    node: &Node,
    image: Arc<Image>,
    (inbox, deferred): (&mut Inbox<ShardOrder>, &mut VecDeque<ShardOrder>),
) -> Applied {
    let mut applying = std::pin::pin!(node.apply(image));
    loop {
        tokio::select! {
            biased;
            applied = &mut applying => return applied,
            Some(order) = inbox.receive() => match order {
                ShardOrder::Report { .. } | ShardOrder::Stats { .. } => node.tell(order),
                ShardOrder::Publish { .. } | ShardOrder::Serve | ShardOrder::Stop => {
                    deferred.push_back(order);
                }
            },
        }
    }
}

impl Node {
    /// Says how the shard is, if that is what the order asks.
    fn tell(&self, order: ShardOrder) {
        // Whoever asked may have given up waiting.
        match order {
            ShardOrder::Report { answer } => drop(answer.send(self.reports())),
            ShardOrder::Stats { answer } => drop(answer.send(self.engine.stats())),
            ShardOrder::Publish { .. } | ShardOrder::Serve | ShardOrder::Stop => {}
        }
    }

    /// Makes partitions and image agree.
    async fn apply(&self, image: Arc<Image>) -> Applied {
        let mut applied = Applied::default();
        let before = self.image();
        self.follow_settings(&before, &image);
        for topic in image.topics() {
            // A topic that didn't change has nothing to open.
            if before.topic_by_id(topic.id).is_some_and(|known| Arc::ptr_eq(known, topic)) {
                continue;
            }
            for partition in topic.partitions().filter(|number| self.owns(topic.id, *number)) {
                if let Some(open) = self.open_partition(topic.id, partition) {
                    self.reconfigure(&open, topic);
                    continue;
                }
                if let Err(reason) = self.bring(&image, (topic, partition), &mut applied).await {
                    applied.failed.push((topic.id, partition, reason));
                }
            }
        }
        let gone = before.topics().filter(|topic| image.topic_by_id(topic.id).is_none());
        let gone: Vec<Arc<Topic>> = gone.cloned().collect();
        self.show(image);
        self.coordinators.follow(self);
        self.coordinators.topics_deleted(&gone);
        for topic in gone {
            self.retire(&topic, &mut applied).await;
        }
        applied
    }

    /// Settings of the broker that changed: every open partition follows.
    fn follow_settings(&self, before: &Image, image: &Image) {
        let node = self.shared.node;
        let now = image.settings().of_brokers(node);
        if Arc::ptr_eq(before.settings(), image.settings())
            || before.settings().of_brokers(node) == now
        {
            return;
        }
        self.set_config(self.shared.config.changed(&now.0, &now.1));
        for topic in before.topics() {
            for partition in topic.partitions() {
                if let Some(open) = self.open_partition(topic.id, partition) {
                    self.reconfigure(&open, topic);
                }
            }
        }
    }

    /// The partition goes by the topic's configs from now on.
    fn reconfigure(&self, partition: &Partition, topic: &Topic) {
        let config = TopicConfigs::new(&self.config()).resolve(&topic.overrides);
        if partition.config() != config {
            partition.reconfigure(config);
        }
    }

    fn owns(&self, topic: TopicId, partition: PartitionId) -> bool {
        shard_of(topic, partition, self.shared.shards) == self.shard
    }

    /// Opens or makes a partition. Opening blocks the shard, which happens at the start only.
    async fn bring(
        &self,
        image: &Image,
        (topic, partition): (&Topic, PartitionId),
        applied: &mut Applied,
    ) -> Result<(), String> {
        let key = (topic.name.clone(), partition);
        let epoch = topic.leader_epoch(partition).expect("a partition of the topic");
        let spec = PartitionSpec {
            topic: topic.name.clone(),
            partition,
            topic_id: topic.id,
            config: TopicConfigs::new(&self.config()).resolve(&topic.overrides),
            leader_epoch: epoch,
        };
        let opened = match self.arrival(&key, topic.id, image)? {
            Arrival::Create => {
                self.note_opening(&key, None);
                self.engine.create(spec).await.map_err(|error| error.to_string())?
            }
            Arrival::Open => {
                let opened = self.reopen(spec, &key);
                self.note_opening(&key, opened.as_ref().err());
                let (partition, report) = opened?;
                applied.opened.push((key, report));
                partition
            }
            Arrival::Foreign(other) => {
                return Err(format!(
                    "{}/{}-{partition} belongs to another topic (id {other:?}); move it away",
                    self.shared.directory.display(),
                    topic.name
                ));
            }
        };
        if epoch < opened.leader_epoch() {
            applied.epochs.push((topic.id, partition, opened.leader_epoch()));
        }
        self.keep(topic.id, partition, opened);
        // Between two openings connections are accepted and probes answered.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// What lies in the partition's place: by the listing at the start, and later by looking, since
    /// topics come and go.
    fn arrival(
        &self,
        key: &PartitionKey,
        topic: TopicId,
        image: &Image,
    ) -> Result<Arrival, String> {
        if !self.is_serving() {
            // Those of deleted topics have been put aside since.
            let is_there = |it: &&Found| !it.topic_id.is_some_and(|id| image.was_deleted(id));
            return Ok(arrival(self.shared.found.get(key).filter(is_there), topic));
        }
        let place = self.shared.directory.join(format!("{}-{}", key.0, key.1));
        match crate::broker::directory::look_into(&place) {
            Ok(found) => Ok(arrival(Some(&found), topic)),
            Err(error) if error.is_not_found() => Ok(Arrival::Create),
            // A directory that can't be looked into now may be full of somebody's records.
            Err(error) => Err(error.to_string()),
        }
    }

    fn reopen(
        &self,
        spec: PartitionSpec,
        key: &PartitionKey,
    ) -> Result<(Partition, RecoveryReport), String> {
        let opening = Opening {
            clean: self.shared.was_clean,
            recovery_point: self.shared.checkpoints.recovery_point(key),
            log_start: self.shared.checkpoints.log_start(key),
            leader_epoch_bump: !self.shared.was_clean,
        };
        let opened = self.engine.open(spec, opening);
        let (partition, report) = opened.map_err(|error| error.to_string())?;
        tell(key, &report);
        partition.set_first_dirty(self.shared.checkpoints.first_dirty(key));
        partition.become_leader(partition.leader_epoch());
        Ok((partition, report))
    }

    /// Takes the topic's partitions out and gives their directories the `-delete` name. A directory
    /// that can't be renamed now is found and renamed at the next start.
    async fn retire(&self, topic: &Topic, applied: &mut Applied) {
        for (partition, open) in self.take(topic.id) {
            let name = deleted_name(&(topic.name.clone(), partition));
            let directory = self.shared.directory.as_path().into();
            let place = Place { directory, name: name.into() };
            if let Err(error) = open.retire(place).await {
                applied.failed.push((topic.id, partition, error.to_string()));
            }
        }
    }

    /// What the checkpoint files need of this shard's partitions.
    fn reports(&self) -> Vec<PartitionReport> {
        let image = self.image();
        let report = |topic: &Arc<Topic>, number, partition: Partition| {
            let cursors = partition.cursors();
            PartitionReport {
                key: (topic.name.clone(), number),
                recovery_point: cursors.recovery_point,
                first_dirty: partition.first_dirty(),
                log_start: partition.needs_log_start_checkpoint().then_some(cursors.log_start),
                high_watermark: cursors.high_watermark,
            }
        };
        let mut reports = Vec::new();
        for topic in image.topics() {
            for number in topic.partitions() {
                let key = (topic.name.clone(), number);
                if let Some(partition) = self.open_partition(topic.id, number) {
                    reports.push(report(topic, number, partition));
                } else if self.unopened(&key).is_some() {
                    reports.push(self.report_of_start(key));
                }
            }
        }
        reports
    }

    /// A partition that was never opened stands where it stood.
    fn report_of_start(&self, key: PartitionKey) -> PartitionReport {
        let checkpoints = &self.shared.checkpoints;
        let recovery_point = checkpoints.recovery_point(&key).unwrap_or(Offset(0));
        let log_start = checkpoints.log_start(&key);
        let first_dirty = checkpoints.first_dirty(&key);
        let high_watermark = recovery_point;
        PartitionReport { key, recovery_point, log_start, first_dirty, high_watermark }
    }

    /// Clean stop, once no client is connected: closes every partition and says where they stand.
    /// Those that could not be opened count as not closed: they wait for their recovery still.
    pub async fn close(&self) -> Closed {
        let failed = self.engine.close().await;
        let failed = failed.into_iter().map(|(path, error)| format!("{}: {error}", path.display()));
        let mut closed = Closed { reports: self.reports(), failed: failed.collect() };
        for PartitionReport { key, .. } in &closed.reports {
            let (topic, partition) = key;
            let reason = self.unopened(key);
            closed.failed.extend(reason.map(|it| format!("{topic}-{partition}: {it}")));
        }
        closed
    }
}

/// Says what recovery found, when it found anything.
pub(crate) fn tell(key: &PartitionKey, report: &RecoveryReport) {
    let (topic, partition) = key;
    if report.is_lossy() {
        tracing::error!("{topic}-{partition}: {report}");
    } else if report.is_uneventful() {
        tracing::debug!("{topic}-{partition}: {report}");
    } else {
        tracing::info!("{topic}-{partition}: {report}");
    }
}
