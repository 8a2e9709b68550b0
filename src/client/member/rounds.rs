//! The task of a member: rounds of joining, and heartbeats in between.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::Request as _;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::assign::{Subscriber, assign};
use super::decide::{Change, Verdict, change, verdict};
use super::link::{Link, RETRY_PAUSE, Task};
use super::{Happening, Identity, MemberOptions, Shared, milliseconds, protocol};
use crate::client::cluster::Client;
use crate::client::connection::Connection;
use crate::client::error::ClientError;
use crate::client::groups::{TopicPartition, group_id, text};

const PROTOCOL_TYPE: &str = "consumer";
/// How often a leader looks whether topics have got more partitions.
const LOOK_PAUSE: Duration = Duration::from_secs(30);

pub(super) struct Rounds {
    link: Link,
    identity: Identity,
    /// What a leader has shared out: partitions of each topic. Others have none.
    shared_out: Option<BTreeMap<String, i32>>,
}

impl Rounds {
    pub(super) fn new(
        client: Client,
        options: MemberOptions,
        told: (Shared, mpsc::Sender<Happening>),
    ) -> Rounds {
        let link = Link::new(client, options, told);
        Rounds { link, identity: Identity::nobody(), shared_out: None }
    }

    /// Joins until there is an assignment that needs no other round.
    async fn join(&mut self) -> Result<(), ClientError> {
        if !self.link.options.is_cooperative() {
            let owned = std::mem::take(&mut self.link.owned);
            self.link.revoke(owned).await;
        }
        loop {
            let assigned = match self.round().await {
                Ok(Some(assigned)) => assigned,
                Ok(None) => continue,
                Err(error) if error.is_retriable() => {
                    self.link.forget_coordinator();
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let is_cooperative = self.link.options.is_cooperative();
            let Change { revoked, rejoin, .. } =
                change(&self.link.owned, &assigned, is_cooperative);
            self.link.revoke(revoked).await;
            self.link.assign(assigned).await;
            if !rejoin {
                return Ok(());
            }
        }
    }

    /// One JoinGroup and one SyncGroup; `None` when another try is due.
    async fn round(&mut self) -> Result<Option<Vec<TopicPartition>>, ClientError> {
        let connection = self.link.coordinator().await?;
        let joined = connection.ask(&self.join_request()).await?;
        if verdict(joined.error_code) == Verdict::RejoinAs {
            self.identity.member_id = joined.member_id.to_string();
        }
        if !self.goes_on(joined.error_code, "join").await? {
            return Ok(None);
        }
        self.identity.member_id = joined.member_id.to_string();
        self.identity.generation = joined.generation_id;
        let assignments = self.assignments(&joined).await?;
        let request = self.sync_request(&joined, assignments);
        let synced = connection.ask(&request).await?;
        if !self.goes_on(synced.error_code, "sync with").await? {
            return Ok(None);
        }
        self.link.is_now(self.identity.clone());
        let Some(assigned) = protocol::read_assignment(&synced.assignment) else {
            let text =
                format!("group {:?} gave an assignment that is none", self.link.options.group);
            return Err(ClientError::Argument(text));
        };
        Ok(Some(assigned))
    }

    /// Acts upon an answer's code; whether what was asked for is done.
    async fn goes_on(&mut self, code: i16, what: &str) -> Result<bool, ClientError> {
        let verdict = verdict(code);
        match verdict {
            Verdict::Fine => return Ok(true),
            Verdict::Rejoin | Verdict::RejoinAs => {}
            Verdict::Lost | Verdict::Forgotten => {
                self.identity.generation = -1;
                if verdict == Verdict::Forgotten {
                    self.identity.member_id.clear();
                }
                self.link.lose().await;
            }
            Verdict::Elsewhere => {
                self.link.forget_coordinator();
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Verdict::Wait => tokio::time::sleep(RETRY_PAUSE).await,
            Verdict::Fatal => {
                ClientError::check(code, || format!("{what} group {:?}", self.link.options.group))?;
            }
        }
        Ok(false)
    }

    fn join_request(&self) -> JoinGroupRequest {
        let (owned, generation) = match self.link.options.is_cooperative() {
            true => (self.link.owned.as_slice(), self.identity.generation),
            false => (&[][..], -1),
        };
        let metadata = protocol::write_subscription(&self.link.options.topics, owned, generation);
        let protocols = self.link.options.assignors().iter().map(|assignor| {
            JoinGroupRequestProtocol::default()
                .with_name(text(assignor.name()))
                .with_metadata(metadata.clone())
        });
        JoinGroupRequest::default()
            .with_group_id(group_id(&self.link.options.group))
            .with_session_timeout_ms(milliseconds(self.link.options.session_timeout))
            .with_rebalance_timeout_ms(milliseconds(self.link.options.rebalance_timeout))
            .with_member_id(text(&self.identity.member_id))
            .with_group_instance_id(self.link.options.instance.as_deref().map(text))
            .with_protocol_type(text(PROTOCOL_TYPE))
            .with_protocols(protocols.collect())
    }

    fn sync_request(
        &self,
        joined: &JoinGroupResponse,
        assignments: Vec<SyncGroupRequestAssignment>,
    ) -> SyncGroupRequest {
        SyncGroupRequest::default()
            .with_group_id(group_id(&self.link.options.group))
            .with_generation_id(joined.generation_id)
            .with_member_id(joined.member_id.clone())
            .with_group_instance_id(self.link.options.instance.as_deref().map(text))
            .with_protocol_type(Some(text(PROTOCOL_TYPE)))
            .with_protocol_name(joined.protocol_name.clone())
            .with_assignments(assignments)
    }

    /// What the leader has to say to the others; empty from everybody else.
    async fn assignments(
        &mut self,
        joined: &JoinGroupResponse,
    ) -> Result<Vec<SyncGroupRequestAssignment>, ClientError> {
        self.shared_out = None;
        if joined.leader != joined.member_id || joined.skip_assignment {
            return Ok(Vec::new());
        }
        let subscribers: Vec<Subscriber> = joined
            .members
            .iter()
            .filter_map(|member| {
                let instance = member.group_instance_id.as_deref();
                protocol::read_subscription(&member.member_id, instance, &member.metadata)
            })
            .collect();
        let topics: BTreeSet<String> =
            subscribers.iter().flat_map(|one| one.topics.clone()).collect();
        let counts = self.partition_counts(topics).await?;
        let chosen = joined.protocol_name.as_deref().unwrap_or_default();
        let assignor = self.link.options.assignors().iter().find(|one| one.name() == chosen);
        let Some(&assignor) = assignor else {
            let text = format!("the coordinator chose {chosen:?}, which was not on offer");
            return Err(ClientError::Argument(text));
        };
        let shared = assign(assignor, &subscribers, &counts);
        self.shared_out = Some(counts);
        let assignments = shared.iter().map(|(member, partitions)| {
            SyncGroupRequestAssignment::default()
                .with_member_id(text(member))
                .with_assignment(protocol::write_assignment(partitions))
        });
        Ok(assignments.collect())
    }

    async fn partition_counts(
        &self,
        topics: BTreeSet<String>,
    ) -> Result<BTreeMap<String, i32>, ClientError> {
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        let cluster = self.link.client.metadata(Some(&names)).await?;
        let count = |topic: &crate::client::Topic| {
            let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
            (topic.name.clone(), count)
        };
        Ok(cluster.topics.iter().map(count).collect())
    }

    /// Sends signs of life until it is time to join again.
    async fn keep_alive(&mut self) -> Result<(), ClientError> {
        let (mut heard, mut looked) = (Instant::now(), Instant::now());
        loop {
            tokio::time::sleep(self.link.options.heartbeat_pause).await;
            match self.heartbeat().await {
                Ok(code) if verdict(code) == Verdict::Fine => heard = Instant::now(),
                Ok(code) => {
                    if !self.goes_on(code, "keep alive in").await? && !is_elsewhere(code) {
                        return Ok(());
                    }
                }
                Err(error) if error.is_retriable() => self.link.forget_coordinator(),
                Err(error) => return Err(error),
            }
            if heard.elapsed() > self.link.options.session_timeout {
                self.link.lose().await;
                return Ok(());
            }
            if looked.elapsed() > LOOK_PAUSE {
                looked = Instant::now();
                if self.has_grown().await? {
                    return Ok(());
                }
            }
        }
    }

    async fn heartbeat(&mut self) -> Result<i16, ClientError> {
        let connection = self.link.coordinator().await?;
        let request = HeartbeatRequest::default()
            .with_group_id(group_id(&self.link.options.group))
            .with_generation_id(self.identity.generation)
            .with_member_id(text(&self.identity.member_id))
            .with_group_instance_id(self.link.options.instance.as_deref().map(text));
        Ok(connection.ask(&request).await?.error_code)
    }

    /// Whether a topic has other partitions than those that this leader shared out.
    async fn has_grown(&self) -> Result<bool, ClientError> {
        let Some(shared_out) = &self.shared_out else { return Ok(false) };
        let counts = self.partition_counts(shared_out.keys().cloned().collect()).await?;
        Ok(counts != *shared_out)
    }
}

impl Task for Rounds {
    fn link(&self) -> &Link {
        &self.link
    }

    /// Joins, keeps alive, joins again.
    async fn live(&mut self) -> ClientError {
        loop {
            if let Err(error) = self.join().await {
                return error;
            }
            if let Err(error) = self.keep_alive().await {
                return error;
            }
        }
    }

    /// A JoinGroup may still wait on the member's own connection, and would hold this up.
    async fn leave(self) -> Result<(), ClientError> {
        if self.link.options.instance.is_some() || self.identity.member_id.is_empty() {
            return Ok(());
        }
        let Some(coordinator) = self.link.known_coordinator() else { return Ok(()) };
        let options = &self.link.client.options().connection;
        let connection = Connection::open(coordinator.address(), options).await?;
        let header = connection.header(LeaveGroupRequest::KEY)?;
        let request =
            LeaveGroupRequest::default().with_group_id(group_id(&self.link.options.group));
        let member = text(&self.identity.member_id);
        let request = match header.version {
            0..=2 => request.with_member_id(member),
            _ => request.with_members(vec![MemberIdentity::default().with_member_id(member)]),
        };
        let answer = connection.ask_with(header, &request).await?;
        ClientError::check(answer.error_code, || {
            format!("leave group {:?}", self.link.options.group)
        })
    }
}

fn is_elsewhere(code: i16) -> bool {
    matches!(verdict(code), Verdict::Elsewhere | Verdict::Wait)
}
