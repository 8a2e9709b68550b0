//! What the tasks of both protocols share: the way to the coordinator, and to the reader of the
//! partitions.

use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::{Happening, Identity, MemberOptions, Shared};
use crate::client::cluster::Client;
use crate::client::connection::Connection;
use crate::client::error::ClientError;
use crate::client::groups::TopicPartition;

/// Pause before the coordinator is asked again.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A member's task between the coordinator and the reader.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) options: MemberOptions,
    /// Whose name commits are made in.
    shared: Shared,
    happenings: mpsc::Sender<Happening>,
    coordinator: Option<Connection>,
    /// What the reader was given last and has not let go of.
    pub(super) owned: Vec<TopicPartition>,
}

impl Link {
    pub(super) fn new(
        client: Client,
        options: MemberOptions,
        (shared, happenings): (Shared, mpsc::Sender<Happening>),
    ) -> Link {
        Link { client, options, shared, happenings, coordinator: None, owned: Vec::new() }
    }

    /// The connection to the coordinator; looked up where there is none or it has been closed.
    pub(super) async fn coordinator(&mut self) -> Result<Connection, ClientError> {
        if let Some(connection) = self.coordinator.as_ref().filter(|one| !one.is_closed()) {
            return Ok(connection.clone());
        }
        let connection = self.client.coordinator(&self.options.group).await?;
        self.coordinator = Some(connection.clone());
        Ok(connection)
    }

    /// The connection that was used last, be it closed.
    pub(super) fn known_coordinator(&self) -> Option<&Connection> {
        self.coordinator.as_ref()
    }

    /// Has the coordinator looked up again.
    pub(super) fn forget_coordinator(&mut self) {
        self.coordinator = None;
    }

    /// Commits are made in this name from now on.
    pub(super) fn is_now(&self, identity: Identity) {
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = identity;
    }

    /// These are all of the reader's partitions from now on.
    pub(super) async fn assign(&mut self, assigned: Vec<TopicPartition>) {
        self.owned.clone_from(&assigned);
        self.tell(Happening::Assigned(assigned)).await;
    }

    /// Has the reader let go of partitions, and waits until it has committed.
    pub(super) async fn revoke(&self, partitions: Vec<TopicPartition>) {
        if partitions.is_empty() {
            return;
        }
        let (done, waiting) = oneshot::channel();
        self.tell(Happening::Revoked(partitions, done)).await;
        // A reader that takes too long finds its partitions with somebody else.
        let _ = tokio::time::timeout(self.options.rebalance_timeout, waiting).await;
    }

    /// The group has gone on without the member.
    pub(super) async fn lose(&mut self) {
        if !self.owned.is_empty() {
            self.owned.clear();
            self.tell(Happening::Lost).await;
        }
    }

    /// The member's end.
    pub(super) async fn fail(&self, error: ClientError) {
        self.tell(Happening::Failed(error)).await;
    }

    async fn tell(&self, happening: Happening) {
        // Whoever doesn't listen any more has ended, or is about to have the task leave.
        let _ = self.happenings.send(happening).await;
    }
}

/// What speaks one of the protocols.
pub(super) trait Task: Send + 'static {
    /// Its link.
    fn link(&self) -> &Link;
    /// Joins and keeps alive; returns what ends it.
    fn live(&mut self) -> impl Future<Output = ClientError> + Send;
    /// Tells the coordinator that the member goes.
    fn leave(self) -> impl Future<Output = Result<(), ClientError>> + Send;
}

/// Lives until the sender of `leave` is dropped, then leaves.
pub(super) async fn run<T: Task>(
    mut task: T,
    mut leave: oneshot::Receiver<()>,
) -> Result<(), ClientError> {
    let failed = tokio::select! {
        biased;
        _ = &mut leave => None,
        error = task.live() => Some(error),
    };
    match failed {
        None => task.leave().await,
        Some(error) => {
            task.link().fail(error).await;
            Ok(())
        }
    }
}
