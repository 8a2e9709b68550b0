//! One budget of memory for all frames of a shard's connections.
//!
//! It counts bytes that arrived, not bytes that were announced: 200 connections that each
//! announce 100 MB and send two bytes cost 400 bytes. Over the budget the shard stops reading,
//! except for one connection at a time, so that some frame always becomes whole and its bytes
//! come free again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::units::{ByteCount, u64_of};

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
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: ByteCount) -> Budget {
        let inner = Inner { limit: limit.0, used: Cell::new(0), overdraft: Semaphore::new(1) };
        Budget { inner: Rc::new(inner) }
    }

    /// A charge of nothing yet, for one frame.
    pub fn open(&self) -> Charge<'_> {
        Charge { held: self.held(), permit: RefCell::new(None), budget: self }
    }

    /// Bytes charged now.
    pub fn used(&self) -> ByteCount {
        ByteCount(self.inner.used.get())
    }

    fn held(&self) -> Held {
        Held { budget: self.clone(), bytes: 0 }
    }
}

/// What one frame holds of the budget while it is being received.
pub struct Charge<'a> {
    held: Held,
    permit: RefCell<Option<SemaphorePermit<'a>>>,
    budget: &'a Budget,
}

impl Charge<'_> {
    /// Whether the frame has to wait for its turn before it takes more bytes.
    pub fn must_wait(&self) -> bool {
        let inner = &self.budget.inner;
        inner.limit <= inner.used.get() && self.permit.borrow().is_none()
    }

    /// Waits until this frame may take more bytes from its socket.
    pub async fn admit(&self) {
        if !self.must_wait() {
            return;
        }
        let inner = &self.budget.inner;
        let permit = inner.overdraft.acquire().await.expect("the semaphore is never closed");
        *self.permit.borrow_mut() = Some(permit);
    }

    /// Counts bytes that arrived.
    pub fn add(&mut self, bytes: usize) {
        let inner = &self.budget.inner;
        inner.used.set(inner.used.get() + u64_of(bytes));
        self.held.bytes += u64_of(bytes);
    }

    /// The frame is whole: its bytes stay charged until the returned value is dropped.
    pub fn finish(self) -> Held {
        self.held
    }
}

/// Bytes of a received frame, given back when dropped.
pub struct Held {
    budget: Budget,
    bytes: u64,
}

impl Held {
    /// How many.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let used = &self.budget.inner.used;
        used.set(used.get().checked_sub(self.bytes).expect("only what was added is given back"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_when_the_frame_is_dropped() {
        let budget = Budget::new(ByteCount(10));
        let mut charge = budget.open();
        charge.add(7);
        let held = charge.finish();
        assert_eq!(budget.used(), ByteCount(7));
        drop(held);
        assert_eq!(budget.used(), ByteCount(0));
    }

    #[tokio::test]
    async fn over_the_limit_one_frame_at_a_time_goes_on() {
        let budget = Budget::new(ByteCount(10));
        let (mut first, second) = (budget.open(), budget.open());
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
}
