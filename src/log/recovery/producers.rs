//! Producer state at the log's end, from the newest `.snapshot` and the headers behind it
//! (`UnifiedLog#rebuildProducerState`).
//!
//! Kafka takes a clean stop's word that no state was there when all snapshots are missing; here the
//! state is rebuilt from the log.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::files::Files;
use super::report::{OpenError, RecoveryReport};
use super::walk::{Replay, Window};
use crate::disk::Step;
use crate::format::aborted::{self, AbortedTransaction};
use crate::format::names::{FileKind, SegmentFile};
use crate::format::producer_snapshot;
use crate::log::producers::{Ended, Producers};
use crate::log::segment::{Extras, SealedSegment, snapshot_steps};
use crate::units::{ByteCount, Offset, Position, Timestamp, byte_count};

/// A longer file is no snapshot: it has room for sixteen times as many producers as are remembered.
const SNAPSHOT_BYTES_MAX: u64 = 1 << 27;
/// Longest `.txnindex`: what an index has at most in Kafka.
const TXN_INDEX_BYTES_MAX: u64 = 1 << 31;

/// A segment as far as its producers go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub base: Offset,
    pub end: Offset,
    pub bytes: ByteCount,
}

impl Span {
    pub fn of(segment: &SealedSegment) -> Span {
        Span { base: segment.base, end: segment.next_base, bytes: segment.size }
    }
}

/// What there is to rebuild from.
pub(super) struct Rebuild<'a, 'b> {
    pub files: &'a mut Files<'b>,
    pub report: &'a mut RecoveryReport,
    /// Oldest first; the last one is active.
    pub spans: &'a [Span],
    pub log_start: Offset,
    /// Segments that Kafka replays as a whole.
    pub recovered: Recovered,
    pub now: Timestamp,
    pub expiration_ms: u64,
}

/// Which segments Kafka recovers, one by one and the oldest first (`LogLoader#recoverSegment`):
/// before each one the snapshots behind its base go, and behind each one a snapshot is left.
#[derive(Clone, Debug, Default)]
pub(super) struct Recovered {
    /// After a kill: the segment that has it and those behind.
    pub recovery_point: Option<Offset>,
    /// Bases of those without an offset index.
    pub unindexed: BTreeSet<Offset>,
}

/// Where snapshots are wanted, and why.
struct Wanted {
    /// Bases of segments that are recovered.
    recovered: BTreeSet<Offset>,
    /// Where snapshots are written, if there is no newer one.
    at: BTreeSet<Offset>,
}

/// What came out.
pub(super) struct RebuiltProducers {
    pub producers: Producers,
    /// Offsets of all `.snapshot` files.
    pub snapshots: BTreeSet<Offset>,
    /// Aborted transactions, by their markers' offsets.
    pub aborted: Vec<Ended>,
    /// Lengths of the `.txnindex` files, by base.
    pub aborted_files: BTreeMap<Offset, ByteCount>,
}

impl RebuiltProducers {
    /// What else the segment with this base has.
    pub fn extras(&self, base: Offset) -> Extras {
        Extras {
            snapshot: self.snapshots.contains(&base),
            txn_index: self.aborted_files.contains_key(&base),
        }
    }
}

impl Rebuild<'_, '_> {
    /// Reads the newest snapshot, replays what follows, and writes the snapshots that Kafka would.
    /// Segments that are recovered are replayed as a whole, each from what a start would find that
    /// reads the snapshot at its base.
    pub fn run(
        mut self,
        listed: BTreeMap<Offset, ByteCount>,
        txn_indexes: &BTreeMap<Offset, ByteCount>,
    ) -> Result<RebuiltProducers, OpenError> {
        let wanted = self.wanted();
        let mut snapshots = self.tidy(listed, wanted.recovered.first().copied())?;
        let (mut at, mut producers) = self.load(&mut snapshots)?;
        let unsound = self.unsound(at, txn_indexes)?;
        let mut older = self.load_older(at, unsound, &snapshots)?;
        let mut snapshots: BTreeSet<Offset> = snapshots.into_keys().collect();
        let mut newest = snapshots.last().copied().unwrap_or(self.log_start);
        let end = self.spans.last().map_or(self.log_start, |last| last.end);
        let mut follows_recovered = false;
        let (mut aborted, mut aborted_files) = (Vec::new(), BTreeMap::new());
        for span in self.spans {
            let is_recovered = wanted.recovered.contains(&span.base);
            // Replayed up to here.
            if at == span.base && wanted.at.contains(&at) && newest < at {
                write(self.files, &producers, at)?;
                snapshots.insert(at);
                newest = at;
                if follows_recovered {
                    producers.reload(self.now, self.expiration_ms);
                }
            }
            follows_recovered = is_recovered;
            let listed = txn_indexes.get(&span.base).copied();
            let mut is_whole = is_recovered || at <= span.base;
            let mut ended = Vec::new();
            if at < span.end {
                let from = if is_recovered { span.base } else { at.max(span.base) };
                ended = replay(&mut self, *span, from, &mut producers)?;
                at = span.end;
            } else if is_recovered && span.base < span.end {
                // It lies before the log start: its producers are forgotten.
                ended = replay(&mut self, *span, span.base, &mut Producers::default())?;
            }
            if let Some((from, producers)) = older.as_mut().filter(|it| it.0 < span.end) {
                is_whole |= *from <= span.base;
                let from = std::mem::replace(from, span.end).max(span.base);
                ended = replay(&mut self, *span, from, producers)?;
            }
            // What was not replayed from its first batch on is as its file says.
            let length = match is_whole {
                true => self.rewrite(span.base, &ended, listed)?,
                false => {
                    let known = self.read_aborted(*span, listed)?;
                    ended.retain(|it| {
                        known.last().is_none_or(|last| last.last_offset < it.last_offset)
                    });
                    let is_short = !ended.is_empty();
                    ended.splice(0..0, known);
                    if is_short { self.rewrite(span.base, &ended, listed)? } else { listed }
                }
            };
            aborted_files.extend(length.map(|length| (span.base, length)));
            aborted.append(&mut ended);
        }
        aborted.retain(|it| self.log_start <= it.last_offset);
        if newest < end {
            write(self.files, &producers, end)?;
            snapshots.insert(end);
            if follows_recovered {
                producers.reload(self.now, self.expiration_ms);
            }
        }
        producers.replicated(end);
        Ok(RebuiltProducers { producers, snapshots, aborted, aborted_files })
    }

    /// Snapshots stand where a segment that is recovered begins and ends, and, so that the next
    /// start has less to read, where the last two segments begin: of all, and of those that were
    /// loaded before one without an offset index.
    fn wanted(&self) -> Wanted {
        let bases: Vec<Offset> = self.spans.iter().map(|span| span.base).collect();
        let unflushed = self.recovered.recovery_point.map(|point| {
            let at_or_before = bases.iter().rfind(|base| **base <= point);
            at_or_before.or(bases.first()).copied().unwrap_or(point)
        });
        let mut wanted = Wanted { recovered: BTreeSet::new(), at: BTreeSet::new() };
        wanted.at.extend(bases.iter().rev().take(2));
        for (number, base) in bases.iter().enumerate() {
            let is_unflushed = unflushed.is_some_and(|from| from <= *base);
            let is_unindexed = !is_unflushed && self.recovered.unindexed.contains(base);
            if is_unflushed || is_unindexed {
                wanted.recovered.insert(*base);
                wanted.at.extend([Some(base), bases.get(number + 1)].into_iter().flatten());
            }
            if is_unindexed {
                wanted.at.extend(&bases[number.saturating_sub(2)..number]);
            }
        }
        wanted
    }

    /// The first segment before `at` whose `.txnindex` has an entry that can't be of it: the log
    /// says what belongs there. Those behind, which are replayed anyway, are only told of.
    fn unsound(
        &mut self,
        at: Offset,
        txn_indexes: &BTreeMap<Offset, ByteCount>,
    ) -> Result<Option<Offset>, OpenError> {
        let mut first = None;
        for span in self.spans {
            let Some(length) = txn_indexes.get(&span.base) else { continue };
            let name = SegmentFile::new(span.base, FileKind::TxnIndex).to_string();
            let bytes = self.files.read_range(&name, 0, length.0.min(TXN_INDEX_BYTES_MAX))?;
            let is_of_it = |it: Result<AbortedTransaction, _>| {
                it.is_ok_and(|it| u64::try_from(it.last_offset).is_ok_and(|it| span.base.0 <= it))
            };
            if aborted::entries(&bytes).all(is_of_it) {
                continue;
            }
            if !self.report.indexes_rebuilt.contains(&span.base) {
                self.report.indexes_rebuilt.push(span.base);
            }
            if span.base < at {
                first.get_or_insert(span.base);
            }
        }
        Ok(first)
    }

    /// The entries of a `.txnindex` up to the segment's end.
    fn read_aborted(
        &mut self,
        span: Span,
        length: Option<ByteCount>,
    ) -> Result<Vec<Ended>, OpenError> {
        let Some(length) = length else { return Ok(Vec::new()) };
        let name = SegmentFile::new(span.base, FileKind::TxnIndex).to_string();
        let bytes = self.files.read_range(&name, 0, length.0.min(TXN_INDEX_BYTES_MAX))?;
        let entries = aborted::entries(&bytes).map_while(Result::ok);
        let ended = entries.filter_map(|it| Ended::of_entry(&it));
        Ok(ended.filter(|it| span.base <= it.last_offset && it.last_offset < span.end).collect())
    }

    /// Makes a `.txnindex` what the log says; returns the length of the file, if there is one.
    fn rewrite(
        &mut self,
        base: Offset,
        ended: &[Ended],
        length: Option<ByteCount>,
    ) -> Result<Option<ByteCount>, OpenError> {
        let name = SegmentFile::new(base, FileKind::TxnIndex).to_string();
        let bytes: Vec<u8> = ended.iter().flat_map(|it| it.entry().encode()).collect();
        let wanted = byte_count(bytes.len());
        let is_there = match length {
            Some(length) if length == wanted => {
                self.files.read_range(&name, 0, length.0)? == bytes[..]
            }
            Some(_) => false,
            None => bytes.is_empty(),
        };
        if is_there {
            return Ok(length);
        }
        let file = self.files.create(&name)?;
        self.files.step(Step::Truncate { file, length: ByteCount(0) })?;
        self.files.write(file, Position(0), bytes.into())?;
        self.files.close(file)?;
        Ok(Some(wanted))
    }

    /// Removes snapshots that belong to no segment, but for the newest at the log's end, those
    /// outside of the log, and those behind the base of the first segment that is recovered.
    fn tidy(
        &mut self,
        listed: BTreeMap<Offset, ByteCount>,
        recovered_from: Option<Offset>,
    ) -> Result<BTreeMap<Offset, ByteCount>, OpenError> {
        let last_base = self.spans.last().map_or(self.log_start, |last| last.base);
        let end = self.spans.last().map_or(self.log_start, |last| last.end);
        let is_base = |at: Offset| self.spans.iter().any(|span| span.base == at);
        let stray = listed.keys().rev().copied().find(|at| !is_base(*at));
        let stray = stray.filter(|at| last_base <= *at);
        let mut kept = BTreeMap::new();
        for (at, length) in listed {
            let is_inside = self.log_start < at && at <= recovered_from.unwrap_or(end).min(end);
            let is_kept = (is_base(at) || Some(at) == stray) && is_inside;
            if is_kept {
                kept.insert(at, length);
            } else {
                // Every start of Kafka's does this, too: no event.
                self.files.remove(&name(at))?;
            }
        }
        Ok(kept)
    }

    fn remove(&mut self, at: Offset) -> Result<(), OpenError> {
        let name = name(at);
        self.files.remove(&name)?;
        self.report.removed.push(name);
        Ok(())
    }

    /// The newest snapshot that is whole, and where its state stands.
    fn load(
        &mut self,
        snapshots: &mut BTreeMap<Offset, ByteCount>,
    ) -> Result<(Offset, Producers), OpenError> {
        while let Some((&at, &length)) = snapshots.last_key_value() {
            let bytes = self.files.read_range(&name(at), 0, length.0.min(SNAPSHOT_BYTES_MAX))?;
            if let Ok(entries) = producer_snapshot::decode(&bytes) {
                let producers = Producers::of_entries(&entries, self.now, self.expiration_ms);
                return Ok((at, producers));
            }
            snapshots.remove(&at);
            self.remove(at)?;
        }
        Ok((self.log_start, Producers::default()))
    }

    /// Where a segment was cut apart, its transactions belong to files anew, and so where its index
    /// of them is `unsound`: state from a snapshot before it, which the newest one that was loaded,
    /// for `at`, is too late for.
    fn load_older(
        &mut self,
        at: Offset,
        unsound: Option<Offset>,
        snapshots: &BTreeMap<Offset, ByteCount>,
    ) -> Result<Option<(Offset, Producers)>, OpenError> {
        // What was split off stood in the segment before it.
        let before = |base: Offset| self.spans.iter().map(|it| it.base).rfind(|it| *it < base);
        let split = self.report.split.iter().map(|base| before(*base).unwrap_or(*base));
        let changed = self.report.damages.iter().map(|it| it.segment).chain(split);
        let changed = changed.chain(unsound).min();
        let Some(from) = changed else { return Ok(None) };
        if at <= from {
            return Ok(None);
        }
        for (at, length) in snapshots.range(..=from).rev() {
            let length = length.0.min(SNAPSHOT_BYTES_MAX);
            let bytes = self.files.read_range(&name(*at), 0, length)?;
            if let Ok(entries) = producer_snapshot::decode(&bytes) {
                let producers = Producers::of_entries(&entries, self.now, self.expiration_ms);
                return Ok(Some((*at, producers)));
            }
        }
        Ok(Some((self.log_start, Producers::default())))
    }
}

/// Takes in the headers of a segment from an offset on; returns the transactions that end aborted.
fn replay(
    rebuild: &mut Rebuild<'_, '_>,
    span: Span,
    from: Offset,
    producers: &mut Producers,
) -> Result<Vec<Ended>, OpenError> {
    let name = SegmentFile::new(span.base, FileKind::Log).to_string();
    let file = rebuild.files.open(&name)?;
    let mut window = Window::new(file, span.bytes);
    let mut replay = Replay {
        from,
        end: span.end,
        now: rebuild.now,
        producers,
        batches: 0,
        aborted: Vec::new(),
    };
    replay.run(rebuild.files, &mut window)?;
    let Replay { batches, aborted, .. } = replay;
    rebuild.report.replayed += batches;
    rebuild.files.close(file)?;
    Ok(aborted)
}

fn write(files: &mut Files<'_>, producers: &Producers, at: Offset) -> Result<(), OpenError> {
    let bytes = Bytes::from(producers.snapshot());
    let (file, place) = (files.new_file(), files.place(&name(at)));
    files.run(snapshot_steps(file, place, bytes).into_iter().collect()).map(drop)
}

fn name(at: Offset) -> String {
    SegmentFile::new(at, FileKind::Snapshot).to_string()
}
