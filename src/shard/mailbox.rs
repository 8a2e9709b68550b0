//! Messages between shards, and from the control thread to a shard.
//!
//! Nothing on the data path travels here: a client's Produce and Fetch arrive on the thread that
//! owns the file. What does travel is the control plane: new topics, scrapes, the order to stop.

use tokio::sync::mpsc;

/// Messages that may wait in one mailbox; a sender beyond that waits.
pub const MAILBOX_MESSAGES_MAX: usize = 1024;

/// The sending end; cheap to clone, usable from any thread.
pub struct Mailbox<M> {
    sender: mpsc::Sender<M>,
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Mailbox { sender: self.sender.clone() }
    }
}

/// The receiver is gone: its shard has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the shard has stopped")]
pub struct ShardStopped;

impl<M> Mailbox<M> {
    /// A mailbox and its receiving end.
    pub fn new() -> (Mailbox<M>, Inbox<M>) {
        let (sender, receiver) = mpsc::channel(MAILBOX_MESSAGES_MAX);
        (Mailbox { sender }, Inbox { receiver })
    }

    /// Puts a message in, waiting while the mailbox is full.
    ///
    /// # Errors
    /// [`ShardStopped`].
    pub async fn send(&self, message: M) -> Result<(), ShardStopped> {
        self.sender.send(message).await.map_err(|_| ShardStopped)
    }

    /// Puts a message in from a thread that may block.
    ///
    /// # Errors
    /// [`ShardStopped`].
    pub fn send_blocking(&self, message: M) -> Result<(), ShardStopped> {
        self.sender.blocking_send(message).map_err(|_| ShardStopped)
    }
}

/// The receiving end.
pub struct Inbox<M> {
    receiver: mpsc::Receiver<M>,
}

impl<M> Inbox<M> {
    /// The next message; `None` when every sender is gone.
    pub async fn receive(&mut self) -> Option<M> {
        self.receiver.recv().await
    }
}
