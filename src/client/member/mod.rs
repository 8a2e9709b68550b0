//! Being a member of a group, by the classic protocol: join, be told what to read, keep alive, let
//! go when the group is rebalanced, leave.
//!
//! A task of its own does that, over connections of its own: a JoinGroup that waits for others
//! would hold up every answer behind it. The reader of the partitions hears from it through
//! [`Member::next`] and stops, commits and goes on accordingly. Decisions are made in [`decide`]
//! and [`assign`], messages written in `protocol`; here they are carried out.

pub mod assign;

pub mod decide;

mod rounds;

pub(super) mod protocol;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kafka_protocol::messages::OffsetCommitRequest;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use self::assign::Assignor;
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
    /// Ways of sharing out partitions that it takes part in, the best one first.
    pub assignors: Vec<Assignor>,
    /// How long the coordinator waits for a sign of life.
    pub session_timeout: Duration,
    /// How long the coordinator waits for members to join when the group is rebalanced.
    pub rebalance_timeout: Duration,
    /// Pause between signs of life.
    pub heartbeat_pause: Duration,
}

impl MemberOptions {
    /// The timeouts of Kafka's consumer, and the assignors that it offers.
    pub fn new(group: &str, topic: &str) -> MemberOptions {
        MemberOptions {
            group: group.to_owned(),
            instance: None,
            topics: vec![topic.to_owned()],
            assignors: vec![Assignor::Range, Assignor::CooperativeSticky],
            session_timeout: Duration::from_secs(45),
            rebalance_timeout: Duration::from_secs(60),
            heartbeat_pause: Duration::from_secs(3),
        }
    }

    /// Whether partitions may be kept while the group is rebalanced.
    pub fn is_cooperative(&self) -> bool {
        self.assignors.iter().all(|one| one.is_cooperative())
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
        let rounds = Rounds::new(own, options.clone(), (Arc::clone(&identity), sender));
        let task = tokio::spawn(rounds.run(leave));
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
