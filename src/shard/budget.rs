//! One budget of memory for all frames of a shard's connections.
//!
//! It counts bytes that arrived, not bytes that were announced: 200 connections that each
//! announce 100 MB and send two bytes cost 400 bytes. Over the budget the shard stops reading,
//! except for one connection at a time, so that some frame always becomes whole and its bytes
//! come free again. Large frames have a turn of their own, which lasts until their bytes come free:
//! so many that are whole and wait to be served can't pile up.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::units::{ByteCount, u64_of};

/// Frames above are large: no batch of the default size is.
const LARGE_BYTES: usize = 2 << 20;

/// The budget; cheap to clone.
#[derive(Clone)]
pub struct Budget {
    inner: Rc<Inner>,
}

struct Inner {
    limit: u64,
    used: Cell<u64>,
    /// The one turn to read on while over the limit.
    overdraft: Semaphore,
    /// The same for large frames.
    large: Semaphore,
    /// Told when bytes came free and the limit holds again.
    freed: Notify,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: ByteCount) -> Budget {
        let inner = Inner {
            limit: limit.0,
            used: Cell::new(0),
            overdraft: Semaphore::new(1),
            large: Semaphore::new(1),
            freed: Notify::new(),
        };
        Budget { inner: Rc::new(inner) }
    }

    /// A charge of nothing yet, for one frame of so many bytes.
    pub fn open(&self, bytes: usize) -> Charge<'_> {
        let is_large = LARGE_BYTES < bytes;
        Charge { held: self.held(), permit: RefCell::new(None), is_large, budget: self }
    }

    /// Bytes charged now.
    pub fn used(&self) -> ByteCount {
        ByteCount(self.inner.used.get())
    }

    fn held(&self) -> Held {
        Held { budget: self.clone(), bytes: 0, has_turn: false }
    }
}

/// What one frame holds of the budget while it is being received.
pub struct Charge<'a> {
    held: Held,
    permit: RefCell<Option<SemaphorePermit<'a>>>,
    is_large: bool,
    budget: &'a Budget,
}

impl Charge<'_> {
    /// Whether the frame has to wait for its turn before it takes more bytes.
    pub fn must_wait(&self) -> bool {
        let inner = &self.budget.inner;
        inner.limit <= inner.used.get() && self.permit.borrow().is_none()
    }

    /// Waits until this frame may take more bytes from its socket: it is its turn, or the limit
    /// holds again. Whoever has the turn may be slow, and the others must not wait for it then.
    pub async fn admit(&self) {
        let inner = &self.budget.inner;
        let turn = if self.is_large { &inner.large } else { &inner.overdraft };
        while self.must_wait() {
            tokio::select! {
                permit = turn.acquire() => {
                    let permit = permit.expect("the semaphore is never closed");
                    *self.permit.borrow_mut() = Some(permit);
                }
                () = inner.freed.notified() => {}
            }
        }
    }

    /// Counts bytes that arrived.
    pub fn add(&mut self, bytes: usize) {
        let inner = &self.budget.inner;
        inner.used.set(inner.used.get() + u64_of(bytes));
        self.held.bytes += u64_of(bytes);
    }

    /// The frame is whole: its bytes stay charged until the returned value is dropped.
    pub fn finish(mut self) -> Held {
        if self.is_large
            && let Some(permit) = self.permit.take()
        {
            permit.forget();
            self.held.has_turn = true;
        }
        self.held
    }
}

/// Bytes of a received frame, given back when dropped.
pub struct Held {
    budget: Budget,
    bytes: u64,
    /// It came over the limit, and no other large frame does before it is dropped.
    has_turn: bool,
}

impl Held {
    /// How many.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Inner { limit, used, freed, large, .. } = &*self.budget.inner;
        if self.has_turn {
            large.add_permits(1);
        }
        used.set(used.get().checked_sub(self.bytes).expect("only what was added is given back"));
        if used.get() < *limit {
            freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_when_the_frame_is_dropped() {
        let budget = Budget::new(ByteCount(10));
        let mut charge = budget.open(10);
        charge.add(7);
        let held = charge.finish();
        assert_eq!(budget.used(), ByteCount(7));
        drop(held);
        assert_eq!(budget.used(), ByteCount(0));
    }

    #[tokio::test]
    async fn over_the_limit_one_frame_at_a_time_goes_on() {
        let budget = Budget::new(ByteCount(10));
        let (mut first, second) = (budget.open(10), budget.open(10));
        first.add(10);
        first.admit().await;
        let mut waits = Box::pin(second.admit());
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        assert!(waits.as_mut().poll(&mut context).is_pending());
        let held = first.finish();
        // The first frame is whole, so the overdraft is free although its bytes are still held.
        assert!(waits.as_mut().poll(&mut context).is_ready());
        assert!(!second.must_wait());
        drop(held);
    }

    #[tokio::test]
    async fn a_slow_frame_with_the_turn_stops_nobody_once_the_limit_holds() {
        let budget = Budget::new(ByteCount(10));
        let (mut whole, slow, third) = (budget.open(10), budget.open(10), budget.open(10));
        whole.add(10);
        slow.admit().await;
        let mut waits = Box::pin(third.admit());
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        assert!(waits.as_mut().poll(&mut context).is_pending());
        drop(whole.finish());
        assert!(waits.as_mut().poll(&mut context).is_ready());
    }

    /// 100 MB each, whole and waiting to be served, would be all the memory there is.
    #[tokio::test]
    async fn large_frames_over_the_limit_become_whole_one_after_the_other_is_served() {
        let budget = Budget::new(ByteCount(10));
        let large = || budget.open(LARGE_BYTES + 1);
        let (mut first, second, small) = (large(), large(), budget.open(10));
        first.add(10);
        first.admit().await;
        first.add(10);
        let held = first.finish();
        let mut waits = Box::pin(second.admit());
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        assert!(waits.as_mut().poll(&mut context).is_pending(), "the first is not served yet");
        small.admit().await;
        drop(small.finish());
        assert!(waits.as_mut().poll(&mut context).is_pending(), "a small one has its own turn");
        drop(held);
        assert!(waits.as_mut().poll(&mut context).is_ready());
    }
}
