//! Offset and time indexes, each checked against the segment's log as Kafka's tool does it.

use std::path::{Path, PathBuf};

use super::items::Item;
use super::{DumpError, DumpOptions, Findings, Pairs, Printer};
use super::{absolute, base_of, bytes_of, log, sibling};
use crate::cli::log_file::{Found, LogFile, LogFileError, read_whole};
use crate::format::index::{OFFSET_ENTRY_BYTES, OffsetEntry, TIME_ENTRY_BYTES, TimeEntry};

/// Bytes at the end of an index that Kafka searches first (`AbstractIndex`): they are in memory.
const WARM_BYTES: usize = 8192;

/// An index of which every whole entry counts, zeros behind the last one included.
struct Index {
    path: PathBuf,
    base: i64,
    bytes: Vec<u8>,
}

impl Index {
    fn read(path: &Path) -> Result<Index, LogFileError> {
        let base = base_of(path)?;
        let bytes = read_whole(path).map_err(LogFileError::read(path))?;
        Ok(Index { path: path.to_owned(), base, bytes })
    }

    fn offset_entries(&self) -> usize {
        self.bytes.len() / OFFSET_ENTRY_BYTES
    }

    /// The absolute offset and the position of an entry.
    fn offset_entry(&self, number: usize) -> (i64, i64) {
        let chunk = self.bytes.chunks_exact(OFFSET_ENTRY_BYTES).nth(number);
        let chunk = chunk.and_then(|it| it.first_chunk()).expect("the entry is there");
        let entry = OffsetEntry::decode(chunk);
        (self.base.wrapping_add(signed(entry.relative_offset)), signed(entry.position))
    }

    fn time_entries(&self) -> usize {
        self.bytes.len() / TIME_ENTRY_BYTES
    }

    /// Timestamp and absolute offset of an entry.
    fn time_entry(&self, number: usize) -> (i64, i64) {
        let chunk = self.bytes.chunks_exact(TIME_ENTRY_BYTES).nth(number);
        let chunk = chunk.and_then(|it| it.first_chunk()).expect("the entry is there");
        let entry = TimeEntry::decode(chunk);
        (entry.timestamp, self.base.wrapping_add(signed(entry.relative_offset)))
    }

    /// Where the search for an offset begins: position 0 before the first entry. Step by step as
    /// `AbstractIndex` does it, since zeros behind the last entry are searched, too.
    fn position_of(&self, offset: i64) -> i64 {
        let entries = self.offset_entries();
        if entries == 0 {
            return 0;
        }
        let warm = WARM_BYTES / OFFSET_ENTRY_BYTES;
        let first_warm = (entries - 1).saturating_sub(warm);
        if self.offset_entry(first_warm).0 < offset {
            return self.search((first_warm, entries - 1), offset);
        }
        if offset < self.offset_entry(0).0 {
            return 0;
        }
        self.search((0, first_warm), offset)
    }

    fn search(&self, (mut low, mut high): (usize, usize), offset: i64) -> i64 {
        while low < high {
            let middle = (low + high).div_ceil(2);
            let (found, position) = self.offset_entry(middle);
            match found.cmp(&offset) {
                std::cmp::Ordering::Equal => return position,
                std::cmp::Ordering::Less => low = middle,
                std::cmp::Ordering::Greater => high = middle - 1,
            }
        }
        self.offset_entry(low).1
    }

    fn corrupt(&self, what: impl ToString) -> LogFileError {
        LogFileError::corrupt(&self.path, what)
    }

    /// What Kafka would rebuild an offset index for.
    fn check_offsets(&self) -> Result<(), LogFileError> {
        let last = self.offset_entries().checked_sub(1).map(|it| self.offset_entry(it).0);
        self.check_last(last)?;
        self.check_length(OFFSET_ENTRY_BYTES)
    }

    /// What Kafka would rebuild a time index for.
    fn check_times(&self) -> Result<(), LogFileError> {
        let last = self.time_entries().checked_sub(1).map(|it| self.time_entry(it));
        if let Some((timestamp, _)) = last
            && timestamp < self.time_entry(0).0
        {
            let first = self.time_entry(0).0;
            return Err(self.corrupt(format!(
                "Corrupt time index found: the last timestamp is {timestamp}, less than the \
                 first timestamp {first}"
            )));
        }
        self.check_last(last.map(|it| it.1))?;
        self.check_length(TIME_ENTRY_BYTES)
    }

    fn check_last(&self, last: Option<i64>) -> Result<(), LogFileError> {
        match last {
            Some(last) if last < self.base => Err(self.corrupt(format!(
                "Corrupt index found: the last offset is {last}, less than the base offset {}",
                self.base
            ))),
            _ => Ok(()),
        }
    }

    fn check_length(&self, entry_bytes: usize) -> Result<(), LogFileError> {
        match self.bytes.len() {
            length if length.is_multiple_of(entry_bytes) => Ok(()),
            length => Err(self.corrupt(format!(
                "Index file is corrupt: {length} bytes are no multiple of {entry_bytes}"
            ))),
        }
    }
}

/// Java has no unsigned numbers.
fn signed(number: u32) -> i64 {
    i32::from_be_bytes(number.to_be_bytes()).into()
}

/// Prints the entries of an offset index, and finds those that don't point to their batch.
///
/// # Errors
/// [`DumpError`].
pub fn dump_offsets(
    path: &Path,
    options: &DumpOptions,
    printer: &mut Printer<'_>,
    findings: &mut Findings,
) -> Result<(), DumpError> {
    let index = Index::read(path)?;
    let mut log = LogFile::open(&sibling(path, "log"))?;
    if index.offset_entries() == 0 {
        return printer.print(&Item::Empty(path));
    }
    if options.checks_sanity {
        index.check_offsets()?;
        return printer.print(&Item::Sane(path));
    }
    let limit = bytes_of(path, "--max-message-size", options.max_message_bytes)?;
    for number in 0..index.offset_entries() {
        let (offset, position) = index.offset_entry(number);
        // Zeros behind the last entry of an index that was not trimmed.
        if offset == index.base && number != 0 {
            break;
        }
        let end = |at: u64| at.saturating_add(limit);
        let found = match u64::try_from(position) {
            Ok(at) if at <= log.length() => log.batch(at, end(at).min(log.length()))?,
            _ => {
                let length = log.length();
                let what = format!(
                    "entry {number} points to position {position}, the log has {length} bytes"
                );
                return Err(index.corrupt(what).into());
            }
        };
        let Some(found) = found else {
            let what = format!(
                "entry {number} points to position {position}, where no whole batch begins \
                 within {limit} bytes (--max-message-size)"
            );
            return Err(index.corrupt(what).into());
        };
        let last = log::last_offset(&mut log, found)?;
        if last != offset {
            let mismatches = findings.index_mismatches.entry(&absolute(path));
            mismatches.insert(std::cmp::Reverse(offset), last);
        }
        if !options.verifies_only {
            printer.print(&Item::OffsetEntry(offset, position))?;
        }
    }
    Ok(())
}

/// Prints the entries of a time index, and finds those that no batch stands for.
///
/// # Errors
/// [`DumpError`].
pub fn dump_times(
    path: &Path,
    options: &DumpOptions,
    printer: &mut Printer<'_>,
    findings: &mut Findings,
) -> Result<(), DumpError> {
    let times = Index::read(path)?;
    let offsets = Index::read(&sibling(path, "index"))?;
    let mut log = LogFile::open(&sibling(path, "log"))?;
    if options.checks_sanity {
        times.check_times()?;
        return printer.print(&Item::Sane(path));
    }
    let mut chain = Chain::default();
    let mut previous = -1;
    for number in 0..times.time_entries() {
        let (timestamp, offset) = times.time_entry(number);
        if offset == times.base && number != 0 {
            break;
        }
        let position = offsets.position_of(offset);
        let from = u64::try_from(position).ok().filter(|at| *at <= log.length());
        let from = from.ok_or_else(|| {
            offsets.corrupt(format!("an entry points to position {position}, beyond the log"))
        })?;
        let found = chain.first_reaching(&mut log, from, offset)?;
        let note = |found: &mut Pairs, a, b| found.entry(&absolute(path)).push((a, b));
        match found {
            None => note(&mut findings.offsets_not_found, offset, -1),
            Some((_, last)) if last != offset => {
                note(&mut findings.offsets_not_found, offset, last);
            }
            Some((batch, _)) => {
                let largest = log::largest_timestamp(&mut log, batch)?;
                if largest != timestamp {
                    note(&mut findings.time_mismatches, timestamp, largest);
                }
                if timestamp <= previous {
                    note(&mut findings.times_out_of_order, timestamp, previous);
                }
            }
        }
        if !options.verifies_only {
            printer.print(&Item::TimeEntry(timestamp, offset))?;
        }
        previous = timestamp;
    }
    Ok(())
}

/// The batches of a log with their last offsets, walked once. Kafka's tool walks from every entry's
/// position to the end of the log, and fails where that can't be done.
#[derive(Default)]
struct Chain {
    from: u64,
    batches: Vec<(Found, i64)>,
}

impl Chain {
    /// The first batch from a position on whose last offset is no less than this.
    fn first_reaching(
        &mut self,
        log: &mut LogFile,
        from: u64,
        offset: i64,
    ) -> Result<Option<(Found, i64)>, LogFileError> {
        let mut first = self.batches.partition_point(|(batch, _)| batch.at < from);
        let is_known = self.batches.get(first).is_some_and(|(batch, _)| batch.at == from);
        if !is_known && (from != self.from || self.batches.is_empty()) {
            self.walk(log, from)?;
            first = 0;
        }
        let mut behind = self.batches[first..].iter();
        Ok(behind.find(|(_, last)| offset <= *last).copied())
    }

    fn walk(&mut self, log: &mut LogFile, from: u64) -> Result<(), LogFileError> {
        self.batches.clear();
        self.from = from;
        let mut at = from;
        while let Some(found) = log.batch(at, log.length())? {
            let last = log::last_offset(log, found)?;
            self.batches.push((found, last));
            at = found.end();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(entries: &[(u32, u32)], zeros: usize) -> Index {
        let encode = |it: &(u32, u32)| {
            OffsetEntry { relative_offset: it.0, position: it.1 }.encode().to_vec()
        };
        let mut bytes: Vec<u8> = entries.iter().flat_map(encode).collect();
        bytes.resize(bytes.len() + zeros * OFFSET_ENTRY_BYTES, 0);
        Index { path: PathBuf::from("0.index"), base: 100, bytes }
    }

    #[test]
    fn a_lookup_gives_the_entry_at_or_below() {
        let index = index(&[(10, 1000), (20, 2000), (30, 3000)], 0);
        for (offset, position) in [(100, 0), (109, 0), (110, 1000), (119, 1000), (131, 3000)] {
            assert_eq!(index.position_of(offset), position, "{offset}");
        }
        assert_eq!(super::Index { bytes: Vec::new(), ..index }.position_of(110), 0);
    }

    #[test]
    fn sanity_is_that_of_the_last_entry_and_the_length() {
        assert!(index(&[(10, 1000)], 0).check_offsets().is_ok());
        let mut torn = index(&[(10, 1000)], 0);
        torn.bytes.pop();
        assert!(torn.check_offsets().is_err());
        let negative = index(&[(1 << 31, 1000)], 0);
        let error = negative.check_offsets().expect_err("before the base").to_string();
        assert!(error.contains("less than the base offset 100"), "{error}");
    }

    #[test]
    fn zeros_behind_the_entries_of_a_time_index_are_insane() {
        let mut bytes = TimeEntry { timestamp: 5, relative_offset: 1 }.encode().to_vec();
        bytes.resize(2 * TIME_ENTRY_BYTES, 0);
        let index = Index { path: PathBuf::from("0.timeindex"), base: 0, bytes };
        let error = index.check_times().expect_err("the last one is zero").to_string();
        assert!(error.contains("less than the first timestamp 5"), "{error}");
    }

    #[test]
    fn numbers_of_entries_are_signed() {
        assert_eq!((signed(7), signed(u32::MAX)), (7, -1));
    }
}
