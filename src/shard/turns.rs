//! The two tasks that make a shard's loop: one ends turns, one takes in completions.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use tokio::io::unix::AsyncFd;

use crate::shard::engine::{Core, now};

/// Plans all dirty partitions at the end of each turn that has any.
pub async fn flusher(core: Rc<Core>) {
    loop {
        core.turn().await;
        // Every task that was ready with this one appends before the turn's plans are made.
        tokio::task::yield_now().await;
        let mut dirty = core.take_dirty();
        core.stats.turns.add(u64::from(!dirty.is_empty()));
        let now = now();
        core.take_back();
        for cell in dirty.drain(..) {
            cell.dirty.set(false);
            core.plan_turn(&cell, now);
        }
        core.end_turn(now);
        core.enter_and_reap();
        core.reuse(dirty);
    }
}

/// Completes what the ring says is over.
pub async fn reaper(core: Rc<Core>, descriptor: AsyncFd<OwnedFd>) {
    loop {
        match descriptor.readable().await {
            // Cleared before draining: a completion that comes meanwhile is a new edge.
            Ok(mut ready) => ready.clear_ready(),
            Err(error) => {
                tracing::error!(%error, "the storage ring can't be waited for");
                std::process::abort();
            }
        }
        core.enter_and_reap();
    }
}
