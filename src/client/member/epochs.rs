//! The task of a member by KIP-848's protocol: heartbeats, with which the coordinator hands out
//! partitions and takes them back, and an epoch that tells which of the two has heard what.

use std::time::Duration;

use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::consumer_group_heartbeat_response::Assignment;
use kafka_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::decide::{Change, Verdict, change, verdict};
use super::link::{Link, RETRY_PAUSE, Task};
use super::{Happening, Identity, MemberOptions, Protocol, Shared, milliseconds};
use crate::client::cluster::Client;
use crate::client::error::ClientError;
use crate::client::groups::{TopicPartition, group_id, text};
use crate::units::TopicId;

/// Pause between heartbeats of one that has just joined and was given nothing yet: the coordinator
/// may share out partitions a little later. So many times, then in the coordinator's own pace.
const EAGER_PAUSE: Duration = Duration::from_millis(500);
const EAGER_BEATS: u32 = 10;
/// Epochs with which a member joins, leaves, and leaves for a while (static membership).
const JOINING: i32 = 0;
const LEAVING: i32 = -1;
const LEAVING_FOR_A_WHILE: i32 = -2;

pub(super) struct Epochs {
    link: Link,
    member_id: String,
    epoch: i32,
    /// Whether the reader was told since the member joined, be it that there is nothing to read.
    is_told: bool,
    /// Heartbeats that may still come early.
    eager: u32,
    /// Names of the topics by id, as far as they were looked up.
    topics: Vec<(TopicId, String)>,
    /// Whether the next heartbeat says everything: at first, and when the last one may be lost.
    is_whole: bool,
}

impl Epochs {
    pub(super) fn new(
        client: Client,
        options: MemberOptions,
        told: (Shared, mpsc::Sender<Happening>),
    ) -> Epochs {
        Epochs {
            link: Link::new(client, options, told),
            member_id: uuid::Uuid::new_v4().to_string(),
            epoch: JOINING,
            is_told: false,
            eager: EAGER_BEATS,
            topics: Vec::new(),
            is_whole: true,
        }
    }

    /// One heartbeat and what comes of it; how long to wait before the next one.
    async fn beat(&mut self) -> Result<Duration, ClientError> {
        let connection = self.link.coordinator().await?;
        let answer = connection.ask(&self.request(self.epoch)).await?;
        match verdict(answer.error_code) {
            Verdict::Fine => return self.take(answer).await,
            Verdict::Rejoin | Verdict::RejoinAs => {}
            Verdict::Lost | Verdict::Forgotten => self.join_again().await,
            Verdict::Elsewhere => self.link.forget_coordinator(),
            Verdict::Wait => {}
            Verdict::Fatal => {
                let what = || format!("keep alive in group {:?}", self.link.options.group);
                let message = answer.error_message.as_deref();
                ClientError::check_message(answer.error_code, message, what)?;
            }
        }
        self.is_whole = true;
        Ok(RETRY_PAUSE)
    }

    /// Hands on what the coordinator has given. What was let go of is said at once: somebody may
    /// wait for it.
    async fn take(
        &mut self,
        answer: ConsumerGroupHeartbeatResponse,
    ) -> Result<Duration, ClientError> {
        self.is_whole = false;
        self.epoch = answer.member_epoch;
        let identity = Identity { member_id: self.member_id.clone(), generation: self.epoch };
        self.link.is_now(identity);
        let pause = u64::try_from(answer.heartbeat_interval_ms).unwrap_or_default();
        let pause = self.paced(RETRY_PAUSE.max(Duration::from_millis(pause)));
        let assigned = match answer.assignment {
            Some(assignment) => self.named(&assignment).await?,
            None if self.is_told => return Ok(pause),
            None => Vec::new(),
        };
        let Change { revoked, added, .. } = change(&self.link.owned, &assigned, true);
        let has_changed = !revoked.is_empty() || !added.is_empty();
        self.link.revoke(revoked).await;
        if has_changed || !self.is_told {
            self.is_told = true;
            self.link.assign(assigned).await;
        }
        self.is_whole |= has_changed;
        Ok(if has_changed { Duration::ZERO } else { pause })
    }

    fn paced(&mut self, pause: Duration) -> Duration {
        if !self.link.owned.is_empty() || self.eager == 0 {
            return pause;
        }
        self.eager -= 1;
        pause.min(EAGER_PAUSE)
    }

    /// The partitions by the names of their topics. One whose topic has no name (any more) is left
    /// out: it was deleted, and the coordinator will take it back.
    async fn named(&mut self, given: &Assignment) -> Result<Vec<TopicPartition>, ClientError> {
        let id_of = |bytes: [u8; 16]| TopicId(bytes);
        let is_known = |topics: &[(TopicId, String)], id| topics.iter().any(|one| one.0 == id);
        let mut ids = given.topic_partitions.iter().map(|one| id_of(one.topic_id.into_bytes()));
        if ids.any(|id| !is_known(&self.topics, id)) {
            let names: Vec<&str> = self.link.options.topics.iter().map(String::as_str).collect();
            let cluster = self.link.client.metadata(Some(&names)).await?;
            self.topics = cluster.topics.into_iter().map(|one| (one.id, one.name)).collect();
        }
        let mut found = Vec::new();
        for one in &given.topic_partitions {
            let id = id_of(one.topic_id.into_bytes());
            let topic = self.topics.iter().find(|known| known.0 == id);
            let Some((_, topic)) = topic else { continue };
            found.extend(one.partitions.iter().map(|number| TopicPartition::new(topic, *number)));
        }
        found.sort();
        Ok(found)
    }

    fn request(&self, epoch: i32) -> ConsumerGroupHeartbeatRequest {
        let instance = self.link.options.instance.as_deref();
        let request = ConsumerGroupHeartbeatRequest::default()
            .with_group_id(group_id(&self.link.options.group))
            .with_member_id(text(&self.member_id))
            .with_member_epoch(epoch)
            .with_instance_id(instance.map(text))
            .with_rebalance_timeout_ms(-1)
            .with_subscribed_topic_names(None)
            .with_topic_partitions(None);
        if !self.is_whole || epoch < JOINING {
            return request;
        }
        let Protocol::Consumer(assignor) = &self.link.options.protocol else { return request };
        let topics = self.link.options.topics.iter().map(|topic| text(topic).into()).collect();
        request
            .with_rebalance_timeout_ms(milliseconds(self.link.options.rebalance_timeout))
            .with_subscribed_topic_names(Some(topics))
            .with_server_assignor(assignor.as_deref().map(text))
            .with_topic_partitions(Some(self.owned_by_id()))
    }

    fn owned_by_id(&self) -> Vec<TopicPartitions> {
        let of_topic = |(id, topic): &(TopicId, String)| {
            let own = self.link.owned.iter().filter(|one| one.topic == *topic);
            TopicPartitions::default()
                .with_topic_id(uuid::Uuid::from_bytes(id.0))
                .with_partitions(own.map(|one| one.partition).collect())
        };
        let all = self.topics.iter().map(of_topic);
        all.filter(|one| !one.partitions.is_empty()).collect()
    }

    /// The group has gone on without it.
    async fn join_again(&mut self) {
        self.epoch = JOINING;
        self.is_whole = true;
        self.is_told = false;
        self.eager = EAGER_BEATS;
        self.link.lose().await;
    }
}

impl Task for Epochs {
    fn link(&self) -> &Link {
        &self.link
    }

    /// Sends heartbeats.
    async fn live(&mut self) -> ClientError {
        let mut heard = Instant::now();
        loop {
            let pause = match self.beat().await {
                Ok(pause) => {
                    heard = Instant::now();
                    pause
                }
                Err(error) if error.is_retriable() => {
                    self.link.forget_coordinator();
                    self.is_whole = true;
                    if heard.elapsed() > self.link.options.session_timeout {
                        self.join_again().await;
                    }
                    RETRY_PAUSE
                }
                Err(error) => return error,
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// With a name of its own it leaves for a while, and is expected back.
    async fn leave(mut self) -> Result<(), ClientError> {
        if self.epoch == JOINING {
            return Ok(());
        }
        let epoch = match self.link.options.instance {
            Some(_) => LEAVING_FOR_A_WHILE,
            None => LEAVING,
        };
        let connection = self.link.coordinator().await?;
        let answer = connection.ask(&self.request(epoch)).await?;
        let message = answer.error_message.as_deref();
        let what = || format!("leave group {:?}", self.link.options.group);
        ClientError::check_message(answer.error_code, message, what)
    }
}
