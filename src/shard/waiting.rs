//! Requests that are not due yet: acknowledgements that wait for their offset, and fetches that
//! wait for more.

use std::collections::VecDeque;
use std::task::Waker;

use crate::units::Offset;

/// The tasks that wait on one partition's high watermark.
#[derive(Default)]
pub struct Waiting {
    /// Acknowledgements; their offsets rise, since appends are waited for in their order, so the
    /// front is due first. A late-comer with a lower offset is put where it belongs.
    acks: VecDeque<(Offset, Waker)>,
    /// Fetches; whatever moves the watermark wakes those that it passes.
    readers: Vec<Reader>,
    places: u64,
}

struct Reader {
    place: u64,
    beyond: Offset,
    waker: Waker,
}

impl Waiting {
    /// Wakes `waker` once the high watermark is `due` or more.
    pub fn for_ack(&mut self, due: Offset, waker: &Waker) {
        let at = self.acks.partition_point(|(other, _)| *other <= due);
        self.acks.insert(at, (due, waker.clone()));
    }

    /// A place for one reader.
    pub fn place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    /// Wakes `waker` once the high watermark is beyond `offset`; a place holds one waker.
    pub fn for_more(&mut self, place: u64, beyond: Offset, waker: &Waker) {
        self.forget(place);
        self.readers.push(Reader { place, beyond, waker: waker.clone() });
    }

    /// The reader of this place waits no longer: a long poll may have timed out.
    pub fn forget(&mut self, place: u64) {
        self.readers.retain(|reader| reader.place != place);
    }

    /// The high watermark is now `end`: wakes everything that is due.
    pub fn release(&mut self, end: Offset) {
        while self.acks.front().is_some_and(|(due, _)| *due <= end) {
            if let Some((_, waker)) = self.acks.pop_front() {
                waker.wake();
            }
        }
        self.readers.retain(|reader| {
            let waits = end <= reader.beyond;
            if !waits {
                reader.waker.wake_by_ref();
            }
            waits
        });
    }

    /// Wakes everything: the partition went offline, and each must look for itself.
    pub fn release_all(&mut self) {
        self.acks.drain(..).for_each(|(_, waker)| waker.wake());
        self.readers.drain(..).for_each(|reader| reader.waker.wake());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counted() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count::default());
        (count.clone(), Waker::from(count))
    }

    #[test]
    fn acks_wake_at_their_offset_and_readers_beyond_theirs() {
        let (mut waiting, (ack, ack_waker), (reader, reader_waker)) =
            (Waiting::default(), counted(), counted());
        waiting.for_ack(Offset(5), &ack_waker);
        waiting.for_ack(Offset(3), &ack_waker);
        let (place, gone) = (waiting.place(), waiting.place());
        waiting.for_more(place, Offset(3), &reader_waker);
        waiting.for_more(place, Offset(3), &reader_waker);
        waiting.for_more(gone, Offset(3), &reader_waker);
        waiting.forget(gone);
        waiting.release(Offset(3));
        assert_eq!(ack.0.load(Ordering::Relaxed), 1);
        assert_eq!(reader.0.load(Ordering::Relaxed), 0);
        waiting.release(Offset(4));
        assert_eq!(ack.0.load(Ordering::Relaxed), 1);
        assert_eq!(reader.0.load(Ordering::Relaxed), 1);
        waiting.release_all();
        assert_eq!(ack.0.load(Ordering::Relaxed), 2);
    }
}
