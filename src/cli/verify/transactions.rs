//! `.txnindex` files against the transactions that the log itself shows.

use std::collections::BTreeMap;

use super::finding::{Finding, Limited};
use super::index;
use super::partition::Segment;
use crate::format::aborted::{self, AbortedTransaction, ENTRY_BYTES};
use crate::units::u64_of;

/// What a batch means to a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Records of it.
    Data {
        /// Whose.
        producer: i64,
        /// The batch's first offset.
        offset: i64,
    },
    /// Its end.
    Marker {
        /// Whose.
        producer: i64,
        /// The marker's offset.
        offset: i64,
        /// Whether it was given up.
        aborts: bool,
    },
}

/// What an entry for a marker must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Expected {
    producer: i64,
    /// `None` for a transaction of which the log shows no record: it was empty, its records are
    /// older than the log, or the cleaner took them.
    first: Option<i64>,
    /// First offset of the oldest other open transaction, or the one behind the marker.
    stable: i64,
}

/// Compares each segment's index with its markers. `open` are the transactions (producer, first
/// offset) that were open where the log begins.
pub fn check(segments: &[Segment], open: &[(i64, i64)]) -> Vec<Finding> {
    let mut open: BTreeMap<i64, i64> = open.iter().copied().collect();
    let start = segments.first().map_or(0, |it| it.base);
    // Where records are missing, or were before the log began, not all can be known.
    let mut is_sure = start == 0 || !open.is_empty();
    let mut findings = Vec::new();
    for segment in segments {
        let Some(walked) = &segment.walked else { return findings };
        is_sure &= walked.gaps.is_empty();
        let mut aborts = BTreeMap::new();
        for event in &walked.events {
            match *event {
                Event::Data { producer, offset } => {
                    open.entry(producer).or_insert(offset);
                }
                Event::Marker { producer, offset, aborts: is_abort } => {
                    let first = open.remove(&producer);
                    let stable = open.values().min().copied().unwrap_or(offset + 1);
                    if is_abort {
                        aborts.insert(offset, Expected { producer, first, stable });
                    }
                }
            }
        }
        findings.extend(compare(segment, aborts, is_sure));
    }
    findings
}

fn compare(segment: &Segment, mut aborts: BTreeMap<i64, Expected>, is_sure: bool) -> Vec<Finding> {
    let path = &segment.paths.aborted;
    let bytes = match index::read(path) {
        Ok(bytes) => bytes.unwrap_or_default(),
        Err(finding) => return vec![finding],
    };
    let mut found = Limited::new(path);
    let mut before = -1;
    for (number, entry) in aborted::entries(&bytes).enumerate() {
        let at = u64_of(number * ENTRY_BYTES);
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                found.damage(at, error);
                break;
            }
        };
        if entry.version != aborted::VERSION {
            found.damage(at, format!("version {} of the entry is not 0", entry.version));
        }
        if entry.last_offset <= before {
            let what = format!("last offset {} is not above the entry before", entry.last_offset);
            found.damage(at, what);
        }
        before = entry.last_offset;
        match aborts.remove(&entry.last_offset) {
            Some(expected) => {
                if let Some(what) = difference(&entry, expected, is_sure) {
                    found.damage(at, what);
                }
            }
            None => {
                let what = format!("no transaction is aborted at offset {}", entry.last_offset);
                found.damage(at, what);
            }
        }
    }
    for (offset, expected) in aborts {
        if let Some(first) = expected.first.filter(|_| is_sure) {
            found.damage(
                None,
                format!(
                    "no entry for the transaction of producer {} from {first} that is aborted at \
                 {offset}: readers of committed records would see it",
                    expected.producer
                ),
            );
        }
    }
    found.into_findings()
}

fn difference(entry: &AbortedTransaction, expected: Expected, is_sure: bool) -> Option<String> {
    if entry.producer_id.0 != expected.producer {
        return Some(format!(
            "the entry says producer {}, the marker at {} is of producer {}",
            entry.producer_id, entry.last_offset, expected.producer
        ));
    }
    if entry.first_offset < 0 || entry.last_offset < entry.first_offset {
        return Some(format!("a transaction from {} to {}", entry.first_offset, entry.last_offset));
    }
    if !is_sure {
        return None;
    }
    if let Some(first) = expected.first.filter(|it| *it != entry.first_offset) {
        return Some(format!(
            "the entry says that the transaction began with {}, it did with {first}",
            entry.first_offset
        ));
    }
    (entry.last_stable_offset != expected.stable).then(|| {
        format!(
            "the entry says that records were stable up to {}, they were up to {}",
            entry.last_stable_offset, expected.stable
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::ProducerId;

    #[test]
    fn every_number_of_an_entry_is_held_against_the_log() {
        let entry = AbortedTransaction {
            version: 0,
            producer_id: ProducerId(1),
            first_offset: 3,
            last_offset: 9,
            last_stable_offset: 2,
        };
        let expected = Expected { producer: 1, first: Some(3), stable: 2 };
        assert_eq!(difference(&entry, expected, true), None);
        for wrong in [
            AbortedTransaction { producer_id: ProducerId(2), ..entry },
            AbortedTransaction { first_offset: 4, ..entry },
            AbortedTransaction { first_offset: -3, ..entry },
            AbortedTransaction { last_stable_offset: 3, ..entry },
        ] {
            assert!(difference(&wrong, expected, true).is_some(), "{wrong:?}");
        }
        let unknown = Expected { first: None, ..expected };
        assert_eq!(difference(&entry, unknown, false), None);
    }
}
