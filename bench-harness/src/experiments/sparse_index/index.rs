//! Lookups as the log does them, step by step: a sparse index is searched, then batch headers are
//! walked. With and without the warm section, every entry that is looked at told.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use uringlog::Offset;
use uringlog::format::batch::BatchHeader;
use uringlog::format::index::{OFFSET_ENTRY_BYTES, OffsetEntry, TIME_ENTRY_BYTES, TimeEntry};
use uringlog::format::scan::{self, Scan, Window};
use uringlog::units::Position;

use crate::experiments::measure::{u64_of, usize_of};
use crate::experiments::{DoingTo, Failure};

/// What Kafka keeps warm at an index's end: 8,192 bytes, whatever an entry has (`AbstractIndex`).
pub const WARM_BYTES: usize = 8192;
/// Of the page cache.
pub const PAGE_BYTES: usize = 4096;
/// How much of a `.log` is read at a time while only headers matter; the log's own number.
const WINDOW_BYTES: u64 = 8 << 10;

/// Where a binary search begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Search {
    /// In the whole index.
    Plain,
    /// In the warm section at its end, and in what is before it only when the target is not there.
    Warm,
}

impl Search {
    /// Both.
    pub const ALL: [Search; 2] = [Search::Plain, Search::Warm];

    /// As figures name it.
    pub fn name(self) -> &'static str {
        match self {
            Search::Plain => "plain",
            Search::Warm => "warm-section",
        }
    }
}

/// The last entry whose offset is at or below the target; `seen` gets the number of every entry
/// that is looked at. `None`: the target is before the first entry, so a scan begins at the
/// segment's base.
pub fn floor(
    bytes: &[u8],
    target: u32,
    search: Search,
    mut seen: impl FnMut(usize),
) -> Option<OffsetEntry> {
    let entries = bytes.as_chunks::<OFFSET_ENTRY_BYTES>().0;
    let mut offset_at = |at: usize| {
        seen(at);
        OffsetEntry::decode(&entries[at]).relative_offset
    };
    let last = entries.len().checked_sub(1)?;
    let warm = last.saturating_sub(WARM_BYTES / OFFSET_ENTRY_BYTES);
    let (mut low, mut high) = match search {
        Search::Warm if offset_at(warm) < target => (warm, last),
        Search::Warm => (0, warm),
        Search::Plain => (0, last),
    };
    if low == 0 && target < offset_at(0) {
        return None;
    }
    // The entry at `low` is at or below the target, those behind `high` are above it.
    while low < high {
        let middle = (low + high).div_ceil(2);
        if offset_at(middle) <= target {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Some(OffsetEntry::decode(&entries[low]))
}

/// The page of the file that an entry of an offset index lies in.
pub fn page(entry: usize) -> usize {
    entry * OFFSET_ENTRY_BYTES / PAGE_BYTES
}

/// A batch of a `.log`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    pub base: u64,
    pub last: u64,
    pub at: u64,
    pub bytes: u64,
    pub max_timestamp: i64,
}

impl Batch {
    fn new(header: &BatchHeader, at: Position) -> Option<Batch> {
        let (base, last) = (header.base()?.0, header.last_offset()?.0);
        let max_timestamp = header.max_timestamp.0;
        Some(Batch { base, last, at: at.0, bytes: header.size.0, max_timestamp })
    }
}

/// Batch headers of an open `.log`, one after the other, read in windows as the log reads them.
pub struct Walk<'a> {
    file: &'a File,
    at: Position,
    end: Position,
    window: Vec<u8>,
    window_at: Position,
    /// Headers read so far.
    pub headers: u64,
    /// Reads of the file so far.
    pub reads: u64,
}

impl Walk<'_> {
    /// From one position to another.
    pub fn new(file: &File, from: u64, end: u64) -> Walk<'_> {
        let (at, end) = (Position(from), Position(end));
        Walk { file, at, end, window: Vec::new(), window_at: at, headers: 0, reads: 0 }
    }

    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// What is no batch, and a file that can't be read.
    pub fn next(&mut self) -> Result<Option<Batch>, Failure> {
        loop {
            let window = Window { bytes: &self.window, at: self.window_at };
            match scan::header_at(window, self.at, self.end) {
                Scan::End => return Ok(None),
                Scan::Batch { header, at, next } => {
                    (self.at, self.headers) = (next, self.headers + 1);
                    let negative = || Failure::Wrong(format!("a negative offset at {}", at.0));
                    return Batch::new(&header, at).ok_or_else(negative).map(Some);
                }
                Scan::NeedMore { .. } => self.read()?,
                Scan::Invalid(fault) => {
                    let at = self.at.0;
                    return Err(Failure::Wrong(format!("no batch at position {at}: {fault}")));
                }
            }
        }
    }

    fn read(&mut self) -> Result<(), Failure> {
        let length = (self.end - self.at).0.min(WINDOW_BYTES);
        self.window.resize(usize_of(length), 0);
        self.window_at = self.at;
        self.reads += 1;
        let read = self.file.read_exact_at(&mut self.window, self.at.0);
        read.map_err(|source| Failure::Io { doing: "read a .log", source })
    }

    /// The first batch that ends at this offset or behind it.
    ///
    /// # Errors
    /// Those of [`Walk::next`].
    pub fn find(&mut self, offset: u64) -> Result<Option<Batch>, Failure> {
        while let Some(batch) = self.next()? {
            if offset <= batch.last {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }
}

/// All batches of a `.log`.
///
/// # Errors
/// Those of [`Walk::next`].
pub fn batches(log: &Path, bytes: u64) -> Result<Vec<Batch>, Failure> {
    let file = File::open(log).doing_to("open", log)?;
    let mut walk = Walk::new(&file, 0, bytes);
    let mut batches = Vec::new();
    while let Some(batch) = walk.next()? {
        batches.push(batch);
    }
    Ok(batches)
}

/// The entries that the rule of an append gives: one for a batch before which more than the
/// interval was appended since the last entry, with its last offset and its own position.
pub fn by_the_rule(batches: &[Batch], interval: u64) -> Vec<(u64, u64)> {
    let (mut since, mut entries) = (0, Vec::new());
    for batch in batches {
        if interval < since {
            entries.push((batch.last, batch.at));
            since = 0;
        }
        since += batch.bytes;
    }
    entries
}

/// Full offsets and positions of an offset index.
pub fn entries(bytes: &[u8], base: u64) -> Vec<(u64, u64)> {
    let entries = bytes.as_chunks::<OFFSET_ENTRY_BYTES>().0.iter().map(OffsetEntry::decode);
    entries.map(|it| (it.offset(Offset(base)).0, u64::from(it.position))).collect()
}

/// Timestamps and full offsets of a time index.
pub fn time_entries(bytes: &[u8], base: u64) -> Vec<(i64, u64)> {
    let entries = bytes.as_chunks::<TIME_ENTRY_BYTES>().0.iter().map(TimeEntry::decode);
    entries.map(|it| (it.timestamp, it.offset(Offset(base)).0)).collect()
}

/// Offsets to look up: the same for the same seed, anywhere in the range.
pub fn targets(count: u64, range: std::ops::Range<u64>, seed: u64) -> Vec<u64> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        // The upper bits of such a generator are its good ones.
        range.start + (state >> 24) % (range.end - range.start)
    };
    (0..count).map(|_| next()).collect()
}

/// The mean of counts.
pub fn mean(counts: &[u64]) -> f64 {
    use crate::experiments::measure::f64_of;
    f64_of(counts.iter().sum()) / f64_of(u64_of(counts.len()).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uringlog::format::index::floor_by_offset;

    fn index(entries: u32) -> Vec<u8> {
        let entry = |at: u32| OffsetEntry { relative_offset: 10 * at + 3, position: at + 1 };
        (0..entries).map(entry).flat_map(OffsetEntry::encode).collect()
    }

    #[test]
    fn both_searches_find_what_the_log_finds() {
        for entries in [0, 1, 2, 3, 1023, 1024, 1025, 1026, 3000] {
            let bytes = index(entries);
            let edges = [0, 2, 3, 4, 10 * entries, 10 * entries + 3, u32::MAX];
            let targets = targets(200, 0..u64::from(10 * entries + 20), 7);
            let targets = targets.into_iter().map(|it| u32::try_from(it).expect("small"));
            for target in targets.chain(edges) {
                let expected = floor_by_offset(&bytes, target);
                for search in Search::ALL {
                    let found = floor(&bytes, target, search, |_| {});
                    assert_eq!(found, expected, "{entries} entries, {target}, {search:?}");
                }
            }
        }
    }

    #[test]
    fn the_warm_section_is_all_that_a_tail_lookup_touches() {
        let bytes = index(100_000);
        let mut pages = std::collections::BTreeSet::new();
        for target in 999_000..999_900 {
            floor(&bytes, target, Search::Warm, |entry| {
                pages.insert(page(entry));
            });
        }
        assert!(pages.iter().all(|it| 100_000 * 8 / PAGE_BYTES - 2 <= *it), "{pages:?}");
        let mut first = Vec::new();
        floor(&bytes, 999_500, Search::Plain, |entry| first.push(entry));
        assert_eq!(first[..2], [0, 50_000]);
    }

    #[test]
    fn entries_follow_the_rule() {
        let batch = |number: u64, bytes: u64| Batch {
            base: 15 * number,
            last: 15 * number + 14,
            at: number * bytes,
            bytes,
            max_timestamp: 0,
        };
        let large: Vec<Batch> = (0..4).map(|it| batch(it, 5000)).collect();
        assert_eq!(by_the_rule(&large, 4096), [(29, 5000), (44, 10_000), (59, 15_000)]);
        // More than the interval, not as much: with 4,096 bytes each it takes two.
        let exact: Vec<Batch> = (0..5).map(|it| batch(it, 4096)).collect();
        assert_eq!(by_the_rule(&exact, 4096), [(44, 8192), (74, 16_384)]);
        assert_eq!(by_the_rule(&exact, 0).len(), 4);
        assert_eq!(by_the_rule(&[], 0), []);
    }

    #[test]
    fn targets_are_the_same_for_a_seed_and_lie_in_the_range() {
        let some = targets(1000, 50..60, 3);
        assert_eq!(some, targets(1000, 50..60, 3));
        assert_ne!(some, targets(1000, 50..60, 5));
        assert!((50..60).all(|it| some.contains(&it)));
        assert!(some.iter().all(|it| (50..60).contains(it)));
    }
}
