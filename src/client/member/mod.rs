//! Being a member of a group: join, be told what to read, keep alive, let go when the group is
//! rebalanced, leave. By the classic protocol (`rounds`) or by that of KIP-848 (`epochs`).
//!
//! A task of its own does that, over connections of its own: a JoinGroup that waits for others
//! would hold up every answer behind it. The reader of the partitions hears from it through
//! [`Member::next`] and stops, commits and goes on accordingly. Decisions are made in [`decide`]
//! and [`assign`], messages written in `protocol`; here they are carried out.

pub mod assign;

pub mod decide;

mod epochs;

mod link;

mod rounds;

pub(super) mod protocol;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kafka_protocol::messages::OffsetCommitRequest;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use self::assign::Assignor;
use self::epochs::Epochs;
use self::rounds::Rounds;
use super::cluster::{Client, ClientOptions};
use super::error::ClientError;
use super::groups::{Committed, TopicPartition, check_commit, commit_topics, group_id, text};

/// Happenings that wait to be looked at.
const HAPPENINGS_MAX: usize = 8;

/// How to be a member.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// The group.
    pub group: String,
    /// A name of its own (static membership): a member with a name doesn't leave when it ends, but
    /// finds its partitions when it comes back in time.
    pub instance: Option<String>,
    /// Topics to read.
    pub topics: Vec<String>,
    /// How it speaks to the coordinator.
    pub protocol: Protocol,
    /// How long the coordinator waits for a sign of life.
    pub session_timeout: Duration,
    /// How long the coordinator waits for members to join when the group is rebalanced.
    pub rebalance_timeout: Duration,
    /// Pause between signs of life.
    pub heartbeat_pause: Duration,
}

/// How a group shares out partitions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// One of the members does it, in rounds of joining: ways that this one takes part in, the best
    /// one first.
    Classic(Vec<Assignor>),
    /// The coordinator does it, member by member (KIP-848): its way, where this member wants one.
    Consumer(Option<String>),
}

impl Protocol {
    /// The classic one, with the assignors that Kafka's consumer offers.
    pub fn classic() -> Protocol {
        Protocol::Classic(vec![Assignor::Range, Assignor::CooperativeSticky])
    }
}

impl MemberOptions {
    /// The timeouts of Kafka's consumer.
    pub fn new(group: &str, topics: &[String]) -> MemberOptions {
        MemberOptions {
            group: group.to_owned(),
            instance: None,
            topics: topics.to_vec(),
            protocol: Protocol::classic(),
            session_timeout: Duration::from_secs(45),
            rebalance_timeout: Duration::from_secs(60),
            heartbeat_pause: Duration::from_secs(3),
        }
    }

    /// What is on offer in the classic protocol.
    pub(super) fn assignors(&self) -> &[Assignor] {
        match &self.protocol {
            Protocol::Classic(assignors) => assignors,
            Protocol::Consumer(_) => &[],
        }
    }

    /// Whether partitions may be kept while the group is rebalanced.
    pub fn is_cooperative(&self) -> bool {
        self.assignors().iter().all(|one| one.is_cooperative())
    }
}

/// What a member hears.
#[derive(Debug)]
pub enum Happening {
    /// These are all of its partitions from now on.
    Assigned(Vec<TopicPartition>),
    /// These go to somebody else: stop, commit, then drop the sender.
    Revoked(Vec<TopicPartition>, oneshot::Sender<()>),
    /// All partitions are somebody else's already; commits would be refused.
    Lost,
    /// It is no member any more.
    Failed(ClientError),
}

/// Who the member is to the coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Identity {
    member_id: String,
    generation: i32,
}

impl Identity {
    fn nobody() -> Identity {
        Identity { member_id: String::new(), generation: -1 }
    }
}

type Shared = Arc<Mutex<Identity>>;

/// A member of a group. [`Member::leave`] takes it out again.
#[derive(Debug)]
pub struct Member {
    client: Client,
    options: MemberOptions,
    identity: Shared,
    happenings: mpsc::Receiver<Happening>,
    leaving: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), ClientError>>,
}

impl Member {
    /// Begins to join; what comes of it is heard from [`Member::next`].
    ///
    /// # Errors
    /// [`ClientError`] when no broker can be reached.
    pub async fn start(bootstrap: &str, options: MemberOptions) -> Result<Member, ClientError> {
        let own = Client::connect(bootstrap, ClientOptions::default()).await?;
        let client = Client::connect(bootstrap, ClientOptions::default()).await?;
        let identity = Arc::new(Mutex::new(Identity::nobody()));
        let (sender, happenings) = mpsc::channel(HAPPENINGS_MAX);
        let (leaving, leave) = oneshot::channel();
        let told = (Arc::clone(&identity), sender);
        let task = match options.protocol {
            Protocol::Classic(_) => {
                tokio::spawn(link::run(Rounds::new(own, options.clone(), told), leave))
            }
            Protocol::Consumer(_) => {
                tokio::spawn(link::run(Epochs::new(own, options.clone(), told), leave))
            }
        };
        Ok(Member { client, options, identity, happenings, leaving: Some(leaving), task })
    }

    /// What happens next. May be given up while it waits; nothing is lost.
    pub async fn next(&mut self) -> Happening {
        match self.happenings.recv().await {
            Some(happening) => happening,
            None => {
                let text = "the group's task has ended".to_owned();
                Happening::Failed(ClientError::Argument(text))
            }
        }
    }

    /// Commits in the member's name. Whether it was refused because the group is being rebalanced
    /// or has gone on without the member is told by [`decide::verdict`] of the error's code.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn commit(&self, offsets: &[Committed]) -> Result<(), ClientError> {
        if offsets.is_empty() {
            return Ok(());
        }
        let identity = self.identity.lock().expect("nothing panics while it holds it").clone();
        let instance = self.options.instance.as_deref().map(text);
        let request = OffsetCommitRequest::default()
            .with_group_id(group_id(&self.options.group))
            .with_generation_id_or_member_epoch(identity.generation)
            .with_member_id(text(&identity.member_id))
            .with_group_instance_id(instance)
            .with_topics(commit_topics(offsets));
        let connection = self.client.coordinator(&self.options.group).await?;
        check_commit(&self.options.group, connection.ask(&request).await?)
    }

    /// Leaves the group, so that the others get its partitions at once, and waits until that is
    /// done.
    ///
    /// # Errors
    /// [`ClientError`] when the coordinator can't be told.
    pub async fn leave(mut self) -> Result<(), ClientError> {
        // Revocations that are still to come have nobody to answer them.
        self.happenings.close();
        while self.happenings.try_recv().is_ok() {}
        drop(self.leaving.take());
        self.task.await.unwrap_or(Ok(()))
    }
}

fn milliseconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
