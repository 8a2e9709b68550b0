//! The control thread: checkpoint files and the directories of deleted partitions.
//!
//! Its own thread and plain blocking calls: none of this may make a shard wait, and nothing waits
//! for it.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::broker::config::{ServerConfig, TopicConfigs};
use crate::broker::directory::{DataDirectory, DirectoryError, PartitionReport};
use crate::broker::image::Overrides;
use crate::broker::mail::ShardOrder;
use crate::broker::sweep::Sweep;
use crate::shard::Mailbox;

/// How often the thread looks whether something is due, at most.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(5);

/// And at least.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(100);

/// The running thread.
pub struct Chores {
    stop: Option<mpsc::Sender<()>>,
    thread: JoinHandle<()>,
}

impl Chores {
    /// Has the thread end when it is done with what it is at.
    pub fn order_stop(&mut self) {
        self.stop = None;
    }

    /// Ends the thread and waits for it.
    pub fn stop(mut self) {
        self.order_stop();
        // It ends by itself; a panic in it has been reported by then.
        let _ = self.thread.join();
    }
}

/// Starts the thread.
pub fn start(
    directory: Arc<DataDirectory>,
    config: &ServerConfig,
    shards: Vec<Mailbox<ShardOrder>>,
) -> Chores {
    // All are written together: they are small, and agree with each other then.
    let checkpoint_ms = config
        .recovery_point_checkpoint_ms
        .min(config.log_start_checkpoint_ms)
        .min(config.high_watermark_checkpoint_ms);
    let (stop, stopped) = mpsc::channel();
    let mut worker = Worker {
        directory,
        shards,
        checkpoint_ms,
        delete_delay_ms: TopicConfigs::new(config).resolve(&Overrides::new()).file_delete_delay_ms,
        checkpointed_ms: 0,
        sweep: Sweep::default(),
        stopped,
    };
    let every = Duration::from_millis(checkpoint_ms).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX);
    let thread = std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || {
            // Not by the wall clock, which may be set back.
            let started = Instant::now();
            while matches!(worker.stopped.recv_timeout(every), Err(RecvTimeoutError::Timeout)) {
                worker.look(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
            }
        })
        .expect("a broker that has its shards gets one thread more");
    Chores { stop: Some(stop), thread }
}

struct Worker {
    directory: Arc<DataDirectory>,
    shards: Vec<Mailbox<ShardOrder>>,
    checkpoint_ms: u64,
    delete_delay_ms: u64,
    checkpointed_ms: u64,
    sweep: Sweep,
    /// Its sender goes when the thread is to end.
    stopped: mpsc::Receiver<()>,
}

impl Worker {
    /// Does what is due, so long after the start. A failure is said and tried again the next time.
    fn look(&mut self, uptime_ms: u64) {
        if let Err(error) = self.sweep_deleted(uptime_ms) {
            tracing::warn!("removing deleted partitions: {error}");
        }
        if uptime_ms - self.checkpointed_ms < self.checkpoint_ms {
            return;
        }
        self.checkpointed_ms = uptime_ms;
        let Some(reports) = self.reports() else { return };
        if let Err(error) = self.directory.write_checkpoints(&reports) {
            tracing::warn!("writing checkpoints: {error}");
        }
    }

    fn sweep_deleted(&mut self, uptime_ms: u64) -> Result<(), DirectoryError> {
        let names = self.directory.deleted_partitions()?;
        for name in self.sweep.due(&names, uptime_ms, self.delete_delay_ms) {
            // A deleted topic may be large; what is left of it goes after the next start.
            if self.stopped.try_recv() == Err(TryRecvError::Disconnected) {
                return Ok(());
            }
            self.directory.remove_deleted(&name)?;
            tracing::info!("{name} is removed");
        }
        Ok(())
    }

    /// Where all partitions stand; `None` when a shard has stopped, since a file without its
    /// partitions would make them recover from the start.
    fn reports(&self) -> Option<Vec<PartitionReport>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let (answer, answered) = oneshot::channel();
            shard.send_blocking(ShardOrder::Report { answer }).ok()?;
            all.extend(answered.blocking_recv().ok()?);
        }
        all.sort_by(|one: &PartitionReport, other| one.key.cmp(&other.key));
        Some(all)
    }
}
