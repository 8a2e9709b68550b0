//! When what is left of deleted topics goes.

use std::collections::BTreeMap;

/// When the directories of deleted partitions are due for removal: a delay after they were first
/// seen, by this process.
#[derive(Default, Debug)]
pub struct Sweep {
    seen: BTreeMap<String, u64>,
}

impl Sweep {
    /// Takes the names that are there so long after the start, and returns those that are due.
    pub fn due(&mut self, names: &[String], uptime_ms: u64, delay_ms: u64) -> Vec<String> {
        self.seen.retain(|name, _| names.contains(name));
        let is_due = |name: &&String| {
            let since = *self.seen.entry(String::clone(name)).or_insert(uptime_ms);
            delay_ms <= uptime_ms - since
        };
        names.iter().filter(is_due).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_partitions_are_due_a_delay_after_they_were_seen() {
        let mut sweep = Sweep::default();
        let names = ["a".to_owned(), "b".to_owned()];
        assert!(sweep.due(&names[..1], 0, 60).is_empty());
        assert!(sweep.due(&names, 59, 60).is_empty());
        assert_eq!(sweep.due(&names, 60, 60), ["a"]);
        assert_eq!(sweep.due(&names[1..], 119, 60), ["b"]);
    }
}
