//! Reading a topic's partitions from wherever they are led, through changes of leaders.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::follower::{Chunk, Cursor, Left, Source, by_leader, follow};
use crate::client::{Client, ClientError, ClientOptions};
use crate::wire::error::ErrorCode;

/// Answers that wait to be printed.
const CHUNKS_MAX: usize = 4;

/// Reading under way; it ends when this is dropped.
pub(super) struct Reading {
    client: Client,
    source: Source,
    /// Partitions that no task reads.
    waiting: Vec<Cursor>,
    tasks: JoinSet<Left>,
    sender: mpsc::Sender<Chunk>,
    chunks: mpsc::Receiver<Chunk>,
    progress: Instant,
}

impl Reading {
    pub(super) fn start(client: Client, source: Source, cursors: Vec<Cursor>) -> Reading {
        let (sender, chunks) = mpsc::channel(CHUNKS_MAX);
        Reading {
            client,
            source,
            waiting: cursors.into_iter().filter(|one| !one.is_done()).collect(),
            tasks: JoinSet::new(),
            sender,
            chunks,
            progress: Instant::now(),
        }
    }

    /// Whether nothing is at hand, so that this is the time to let go of what was printed.
    pub(super) fn is_idle(&self) -> bool {
        self.chunks.is_empty()
    }

    /// What comes next; nothing once all partitions are at their ends. May be given up while it
    /// waits.
    ///
    /// # Errors
    /// [`ClientError`], when there has been no progress for too long or no other try helps.
    pub(super) async fn next(&mut self) -> Result<Option<Chunk>, ClientError> {
        loop {
            if !self.waiting.is_empty() {
                // Those of one topic stand together in a request.
                self.waiting.sort_unstable();
                match by_leader(&self.client, &self.source.topics, &self.waiting).await {
                    Ok(groups) => {
                        self.waiting.clear();
                        for (connection, own) in groups {
                            let (source, sender) = (self.source.clone(), self.sender.clone());
                            self.tasks.spawn(follow(connection, source, own, sender));
                        }
                    }
                    Err(error) => self.pause(error).await?,
                }
            }
            tokio::select! {
                // Chunks first: a task that has ended may have left some behind.
                biased;
                Some(chunk) = self.chunks.recv() => {
                    self.progress = Instant::now();
                    return Ok(Some(chunk));
                }
                ended = self.tasks.join_next() => match ended {
                    None if self.waiting.is_empty() => return Ok(None),
                    None => {}
                    Some(left) => {
                        let left = left.expect("a task neither panics nor is cancelled");
                        let (cursors, error) = left;
                        self.waiting.extend(cursors);
                        if let Some(error) = error {
                            self.pause(named(error)).await?;
                        }
                    }
                },
            }
        }
    }

    /// Waits before the next try; gives up when there has been no progress for too long.
    async fn pause(&self, error: ClientError) -> Result<(), ClientError> {
        let ClientOptions { timeout, retry_pause, .. } = *self.client.options();
        if !error.is_retriable() || self.progress.elapsed() > timeout {
            return Err(error);
        }
        self.client.forget_leaders();
        tokio::time::sleep(Duration::max(retry_pause, Duration::from_millis(1))).await;
        Ok(())
    }
}

/// Says more about an offset that isn't there.
fn named(error: ClientError) -> ClientError {
    match (error.code(), error) {
        (Some(ErrorCode::OffsetOutOfRange), ClientError::Refused { what, code, .. }) => {
            let message = "the records were deleted before they were read".to_owned();
            ClientError::Refused { what, code, message }
        }
        (_, other) => other,
    }
}
