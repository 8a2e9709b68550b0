//! The space of a journal: records one behind the other, in a circle.

use std::collections::VecDeque;

use crate::units::{ByteCount, Position};

/// Where a record lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    sequence: u64,
    at: u64,
    bytes: u64,
}

/// Which part of the file the records take that a replay would look at.
#[derive(Debug)]
pub(super) struct Circle {
    start: u64,
    end: u64,
    /// Where the next record goes, if it fits before the end.
    head: u64,
    /// Oldest first.
    live: VecDeque<Span>,
}

impl Circle {
    pub fn new(start: Position, end: Position) -> Circle {
        assert!(start < end, "a journal has room for records");
        Circle { start: start.0, end: end.0, head: start.0, live: VecDeque::new() }
    }

    pub fn capacity(&self) -> ByteCount {
        ByteCount(self.end - self.start)
    }

    /// From the oldest record on that is still needed, gaps at the end included.
    pub fn used(&self) -> ByteCount {
        ByteCount(match self.live.front() {
            None => 0,
            Some(oldest) if oldest.at < self.head => self.head - oldest.at,
            Some(oldest) => self.end - oldest.at + self.head - self.start,
        })
    }

    /// Where a record of `bytes` goes such that `reserve` bytes in one piece are left behind it;
    /// `None` when nothing that is needed may be overwritten.
    pub fn place(&self, bytes: u64, reserve: u64) -> Option<Position> {
        let fits = |from: u64, to: u64, left: u64| {
            let rest = (to - from).checked_sub(bytes)?;
            (reserve <= rest.max(left)).then_some(Position(from))
        };
        match self.live.front() {
            None => fits(self.head, self.end, self.head - self.start)
                .or_else(|| fits(self.start, self.end, 0)),
            Some(oldest) if oldest.at < self.head => {
                fits(self.head, self.end, oldest.at - self.start)
                    .or_else(|| fits(self.start, oldest.at, 0))
            }
            Some(oldest) => fits(self.head, oldest.at, 0),
        }
    }

    /// A record goes to a place that was just given.
    pub fn push(&mut self, sequence: u64, at: Position, bytes: u64) {
        assert!(self.is_free(at.0, at.0 + bytes), "a place that was given");
        self.live.push_back(Span { sequence, at: at.0, bytes });
        self.head = at.0 + bytes;
    }

    fn is_free(&self, from: u64, to: u64) -> bool {
        let is_apart = |span: &Span| span.at + span.bytes <= from || to <= span.at;
        self.start <= from && to <= self.end && self.live.iter().all(is_apart)
    }

    /// Records before `tail` are needed no more.
    pub fn release(&mut self, tail: u64) {
        while self.live.front().is_some_and(|span| span.sequence < tail) {
            self.live.pop_front();
        }
    }

    /// Everything is free again.
    pub fn clear(&mut self) {
        self.live.clear();
        self.head = self.start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circle() -> Circle {
        Circle::new(Position(8), Position(108))
    }

    /// Pushes a record where it goes.
    fn push(circle: &mut Circle, sequence: u64, bytes: u64) -> Option<u64> {
        let at = circle.place(bytes, 0)?;
        circle.push(sequence, at, bytes);
        Some(at.0)
    }

    #[test]
    fn records_follow_each_other_and_wrap() {
        let mut circle = circle();
        assert_eq!(push(&mut circle, 1, 40), Some(8));
        assert_eq!(push(&mut circle, 2, 40), Some(48));
        assert_eq!(push(&mut circle, 3, 40), None, "only 20 bytes are left");
        assert_eq!(circle.used(), ByteCount(80));
        circle.release(2);
        assert_eq!(push(&mut circle, 3, 40), Some(8), "the first one's place, exactly");
        assert_eq!(circle.used(), ByteCount(100));
        assert_eq!(push(&mut circle, 4, 1), None, "full");
        circle.release(3);
        assert_eq!(push(&mut circle, 4, 60), Some(48));
        circle.release(5);
        assert_eq!(circle.used(), ByteCount(0));
        assert_eq!(push(&mut circle, 5, 101), None, "longer than the circle");
        assert_eq!(push(&mut circle, 5, 100), Some(8));
    }

    #[test]
    fn the_reserve_stays_in_one_piece() {
        let mut circle = circle();
        assert_eq!(circle.place(90, 11), None);
        assert_eq!(circle.place(90, 10), Some(Position(8)));
        circle.push(1, Position(8), 60);
        // 40 bytes are left up to the end, none before the record.
        assert_eq!(circle.place(30, 11), None);
        assert_eq!(circle.place(30, 10), Some(Position(68)));
        circle.push(2, Position(68), 30);
        circle.release(2);
        assert_eq!(circle.place(10, 60), Some(Position(98)), "the reserve is in front");
        assert_eq!(circle.place(11, 50), None);
        assert_eq!(circle.place(11, 49), Some(Position(8)));
    }

    /// Whatever is pushed and released: no two needed records overlap, and none leaves the file.
    #[test]
    fn needed_records_never_overlap() {
        let mut circle = circle();
        let (mut sequence, mut tail, mut state) = (0, 0, 7_u64);
        for _ in 0..10_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let bytes = 1 + (state >> 33) % 50;
            if push(&mut circle, sequence, bytes).is_some() {
                sequence += 1;
            } else {
                tail += 1 + (state >> 50) % 3;
                tail = tail.min(sequence);
                circle.release(tail);
            }
            let mut spans: Vec<Span> = circle.live.iter().copied().collect();
            spans.sort_by_key(|span| span.at);
            assert!(spans.windows(2).all(|pair| pair[0].at + pair[0].bytes <= pair[1].at));
            assert!(spans.iter().all(|span| 8 <= span.at && span.at + span.bytes <= 108));
        }
        assert!(sequence > 1000);
    }
}
