//! Timers of a state machine: what is due when.

use std::collections::{BTreeMap, BTreeSet};

use crate::units::Timestamp;

/// Timers by key; each key has one at most.
#[derive(Clone, Debug)]
pub struct Timers<K> {
    // Both say the same.
    by_key: BTreeMap<K, Timestamp>,
    by_time: BTreeSet<(Timestamp, K)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Timers<K> {
        Timers { by_key: BTreeMap::new(), by_time: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> Timers<K> {
    /// Starts a timer, or starts it anew. It is never due at once: what a timer that is due starts
    /// is for another time.
    pub fn start(&mut self, key: K, now: Timestamp, after_ms: i64) {
        self.cancel(&key);
        let at = Timestamp(now.0.saturating_add(after_ms.max(1)));
        self.by_time.insert((at, key.clone()));
        self.by_key.insert(key, at);
    }

    /// Stops a timer, if it runs.
    pub fn cancel(&mut self, key: &K) {
        if let Some(at) = self.by_key.remove(key) {
            let was_there = self.by_time.remove(&(at, key.clone()));
            assert!(was_there);
        }
    }

    /// Whether a timer runs.
    pub fn runs(&self, key: &K) -> bool {
        self.by_key.contains_key(key)
    }

    /// When the first one is due.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes one that is due.
    pub fn take_due(&mut self, now: Timestamp) -> Option<K> {
        let (at, _) = self.by_time.first()?;
        if now < *at {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_due_in_their_order_and_a_second_start_replaces_the_first() {
        let mut timers = Timers::default();
        let start = Timestamp(1_000);
        timers.start("a", start, 30);
        timers.start("b", start, 20);
        timers.start("c", start, 10);
        timers.start("c", start, 40);
        timers.cancel(&"b");
        assert_eq!(timers.deadline(), Some(Timestamp(1_030)));
        assert_eq!(timers.take_due(Timestamp(1_029)), None);
        assert_eq!(timers.take_due(Timestamp(1_040)), Some("a"));
        assert_eq!(timers.take_due(Timestamp(1_040)), Some("c"));
        assert_eq!((timers.deadline(), timers.runs(&"c")), (None, false));
    }
}
