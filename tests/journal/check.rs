//! What a start has made of the files, against what is known.

use std::collections::{BTreeMap, BTreeSet};

use uringlog::format::batch::BatchHeader;
use uringlog::format::names::{FileKind, SegmentFile, Suffix};
use uringlog::units::Offset;

use crate::known::{Fate, Known};
use crate::world::{Phase, World};

/// How much is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// Every acknowledged batch, and nothing that was given up.
    All,
    /// The journal was damaged: nothing made up, and nothing twice.
    NothingForeign,
}

impl World {
    /// Checks every partition after a start, and takes what it found for known.
    pub fn check(&mut self, asked: Asked) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].phase != Phase::Live {
                continue;
            }
            let logs = self.log_files(slot);
            let slot = &mut self.slots[slot];
            let cursors = slot.log.as_ref().expect("it was opened").cursors();
            let (known, start, may_gap) = (&slot.known, cursors.log_start, self.may_gap);
            let mut view = View { known, start, asked, may_gap, gaps: BTreeSet::new() };
            let (found, next) = view.walk(&logs);
            assert_eq!(next, cursors.log_end.0, "the files end where the log does");
            assert_eq!(cursors.high_watermark, cursors.log_end);
            if asked == Asked::All {
                assert_eq!(cursors.log_start, slot.known.log_start);
                view.assert_acked(&found);
            }
            let gaps = view.gaps;
            slot.known.recovered(&found, cursors.log_start);
            slot.known.gaps.extend(gaps);
        }
        self.may_gap = false;
    }

    fn log_files(&self, slot: usize) -> BTreeMap<u64, Vec<u8>> {
        let tree = self.disk.tree(&self.slots[slot].directory).expect("it was opened");
        let logs = tree.into_iter().filter_map(|(path, bytes)| {
            let file = SegmentFile::parse(path.to_str()?)?;
            let is_log = file.kind == FileKind::Log && file.suffix == Suffix::None;
            is_log.then_some((file.base.0, bytes))
        });
        logs.collect()
    }
}

struct View<'a> {
    known: &'a Known,
    start: Offset,
    asked: Asked,
    may_gap: bool,
    gaps: BTreeSet<(u64, u64)>,
}

impl View<'_> {
    /// Goes through all segments that are in use; returns what stands there, and what is next.
    fn walk(&mut self, logs: &BTreeMap<u64, Vec<u8>>) -> (Vec<(u64, usize)>, u64) {
        let first = logs.range(..=self.start.0).next_back().map(|(base, _)| *base);
        let mut next = first.expect("the log start lies in a segment");
        let mut found = Vec::new();
        for (base, bytes) in logs.range(next..) {
            self.assert_segment_follows(next, *base);
            let mut rest = &bytes[..];
            next = *base;
            while !rest.is_empty() {
                let header = BatchHeader::decode(rest).expect("nothing but batches");
                let base = header.base().expect("stored").0;
                self.assert_follows(next, base);
                let size = usize::try_from(header.size.0).expect("small");
                found.push((base, self.identify(base, &rest[..size])));
                next = header.last_offset().expect("stored").0 + 1;
                rest = &rest[size..];
            }
        }
        (found, next)
    }

    fn assert_segment_follows(&mut self, next: u64, base: u64) {
        let is_known = self.known.gaps.contains(&(next, base));
        if next < base && (self.may_gap || is_known) {
            self.gaps.insert((next, base));
            return;
        }
        self.assert_follows(next, base);
    }

    fn assert_follows(&self, next: u64, base: u64) {
        match self.asked {
            Asked::All => assert_eq!(next, base, "a gap, or the same twice"),
            Asked::NothingForeign => assert!(next <= base, "{base} comes again after {next}"),
        }
    }

    /// Which of the batches that were appended at this offset it is, byte for byte.
    fn identify(&self, base: u64, bytes: &[u8]) -> usize {
        let staged = self.known.staged.get(&base).map_or(&[][..], Vec::as_slice);
        let number = staged.iter().rposition(|staged| staged.bytes == bytes);
        let number = number.unwrap_or_else(|| panic!("offset {base} is made up"));
        let is_dead = staged[number].fate == Fate::Dead;
        let may_be = !is_dead || self.asked == Asked::NothingForeign;
        assert!(may_be, "offset {base} was given up, and has come back");
        number
    }

    fn assert_acked(&self, found: &[(u64, usize)]) {
        let found: BTreeSet<u64> = found.iter().map(|(base, _)| *base).collect();
        for (base, staged) in self.known.acked().filter(|(_, it)| self.start.0 <= it.last) {
            assert!(found.contains(&base), "offset {base} was acknowledged: {}", staged.last);
        }
    }
}
