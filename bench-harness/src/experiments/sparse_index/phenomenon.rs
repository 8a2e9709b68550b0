//! The entries of an index as its file has them, and the lookup of one offset, step by step.

use std::fs::File;
use std::path::{Path, PathBuf};

use uringlog::Offset;
use uringlog::RecordsIter;
use uringlog::format::batch::{BatchHeader, HEADER_BYTES};
use uringlog::format::index as format;
use uringlog::format::names::{FileKind, SegmentFile};

use super::index::{self, Batch, Search, Walk};
use crate::engines::files::{self, Segment};
use crate::engines::sink::Sink;
use crate::experiments::measure::{f64_of, u64_of, usize_of};
use crate::experiments::roll_by_size::programme::{KIB_RECORDS, Programme};
use crate::experiments::{DoingTo, Failure};
use crate::record::{Recorder, Table, unit};

const DOCUMENT: &str = "the document on segments and indexes (Kafka 4.3.1)";
const RULE: &str = "an entry for a batch when more than the interval was appended since the last";
/// Lines of an index that the table shows; the document shows as many.
const SHOWN: usize = 5;

/// A segment read back from its files.
pub struct Contents {
    pub base: u64,
    pub log: PathBuf,
    pub log_bytes: u64,
    /// Of the `.index`, without the zero tail of an active one.
    pub index: Vec<u8>,
    /// Of the `.timeindex`, likewise.
    pub times: Vec<u8>,
}

impl Contents {
    /// Reads a segment's indexes.
    ///
    /// # Errors
    /// Files that can't be read.
    pub fn read(folder: &Path, segment: &Segment) -> Result<Contents, Failure> {
        let path = |kind| folder.join(SegmentFile::new(Offset(segment.base), kind).to_string());
        let bytes = |kind| {
            let path = path(kind);
            std::fs::read(&path).doing_to("read", &path)
        };
        let (mut index, mut times) = (bytes(FileKind::Index)?, bytes(FileKind::TimeIndex)?);
        index.truncate(format::offset_index_used(&index));
        times.truncate(format::time_index_used(&times));
        let log_bytes = segment.log.map_or(0, |it| it.bytes);
        Ok(Contents { base: segment.base, log: path(FileKind::Log), log_bytes, index, times })
    }

    /// The index entry that a lookup of the offset begins with; what was looked at goes to `seen`.
    pub fn floor(&self, offset: u64, seen: impl FnMut(usize)) -> (u64, u64) {
        let target = u32::try_from(offset - self.base).unwrap_or(u32::MAX);
        match index::floor(&self.index, target, Search::Plain, seen) {
            Some(entry) => (entry.offset(Offset(self.base)).0, u64::from(entry.position)),
            None => (self.base, 0),
        }
    }
}

/// Figures and tables of what lies on disk, and of one lookup in it.
///
/// # Errors
/// An offset that isn't there, and what can't be read.
pub async fn record(
    sink: &Sink,
    (programme, offset): (&Programme, u64),
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let (folder, end) = (sink.directory(0), sink.end(0).await?);
    if end <= offset {
        return Err(Failure::Usage(format!(
            "lookup_offset={offset}: the log ends before {end}; give a smaller one, or more records"
        )));
    }
    let segments = files::segments(&folder)?;
    let first = segments.first().ok_or_else(|| no_segment(&folder))?;
    entries(&Contents::read(&folder, first)?, programme, recorder)?;
    let holder = segments.iter().rfind(|it| it.base <= offset).unwrap_or(first);
    let lookup = Lookup::run(&Contents::read(&folder, holder)?, offset)?;
    lookup.record(recorder);
    let read = sink.read(0, offset, 1).await?;
    let header = BatchHeader::decode(&read).map_err(|it| Failure::Wrong(it.to_string()))?;
    let given = header.base().map_or(0, |it| it.0);
    recorder.figure("read_begins_at_offset", given, unit::OFFSET);
    recorder.expect("read_begins_at_offset", (given, lookup.batch.base), "the batch that has it");
    if *programme == KIB_RECORDS && offset == 60 {
        lookup.check(recorder);
    }
    Ok(())
}

fn no_segment(folder: &Path) -> Failure {
    Failure::Wrong(format!("there is no segment in {}", folder.display()))
}

fn entries(
    contents: &Contents,
    programme: &Programme,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let entries = index::entries(&contents.index, contents.base);
    let (offsets, positions): (Vec<u64>, Vec<u64>) = entries.iter().copied().unzip();
    let batches = index::batches(&contents.log, contents.log_bytes)?;
    let records: u64 = batches.iter().map(|it| it.last + 1 - it.base).sum();
    let by_the_rule = index::by_the_rule(&batches, programme.index_interval_bytes);
    let pairs = |entries: &[(u64, u64)]| -> Vec<u64> {
        entries.iter().flat_map(|(offset, position)| [*offset, *position]).collect()
    };
    recorder.expect("entries_by_the_rule", (pairs(&entries), pairs(&by_the_rule)), RULE);
    if *programme == KIB_RECORDS {
        let five = |list: &[u64]| list.iter().take(SHOWN).copied().collect::<Vec<u64>>();
        recorder.expect(
            "first_entry_offsets",
            (five(&offsets), vec![52_u64, 67, 82, 97, 112]),
            DOCUMENT,
        );
        recorder.expect(
            "first_entry_positions",
            (five(&positions), vec![18_004_u64, 33_560, 49_116, 64_672, 80_228]),
            DOCUMENT,
        );
        recorder.expect("index_bytes", (u64_of(contents.index.len()), 528), DOCUMENT);
    }
    let mut table = Table::new(
        "The index, as its file has it",
        &["last offset of the batch", "its position", "its first offset", "bytes since the last"],
    );
    let mut before = 0;
    for (offset, position) in entries.iter().take(SHOWN) {
        let batch = batches.iter().find(|it| it.at == *position);
        let base = batch.map_or("no batch".to_owned(), |it| it.base.to_string());
        let cells = [offset.to_string(), position.to_string(), base];
        table.row(cells.into_iter().chain([(position - before).to_string()]).collect());
        before = *position;
    }
    recorder.table(table);
    let count = u64_of(entries.len());
    recorder.figure("entry_offsets", offsets, unit::OFFSET);
    recorder.figure("entry_positions", positions, unit::POSITION);
    recorder.figure("index_entries", count, unit::COUNT);
    recorder.figure("index_bytes", u64_of(contents.index.len()), unit::BYTES);
    recorder.figure("log_bytes", contents.log_bytes, unit::BYTES);
    recorder.figure("batches", u64_of(batches.len()), unit::COUNT);
    recorder.figure("records_of_the_segment", records, unit::COUNT);
    let dense = records * u64_of(format::OFFSET_ENTRY_BYTES);
    recorder.figure("dense_index_bytes", dense, unit::BYTES);
    let records_per_entry = f64_of(records) / f64_of(count.max(1));
    recorder.figure("records_per_entry", records_per_entry, unit::RATIO);
    Ok(())
}

/// What a lookup goes through.
struct Lookup {
    offset: u64,
    segment: u64,
    /// Offsets of the entries that the binary search compares, in that order.
    probed: Vec<u64>,
    floor: (u64, u64),
    /// Batches whose headers are read, the last one has the offset.
    walked: Vec<Batch>,
    batch: Batch,
    /// Which record of the batch it is, from 0 on, and how many there are.
    record: (u64, u64),
}

impl Lookup {
    fn run(contents: &Contents, offset: u64) -> Result<Lookup, Failure> {
        let entries = index::entries(&contents.index, contents.base);
        let mut probed = Vec::new();
        let floor = contents.floor(offset, |entry| probed.push(entries[entry].0));
        let file = File::open(&contents.log).doing_to("open", &contents.log)?;
        let mut walk = Walk::new(&file, floor.1, contents.log_bytes);
        let mut walked = Vec::new();
        let batch = loop {
            let Some(batch) = walk.next()? else {
                return Err(Failure::Wrong(format!("no batch behind {floor:?} has {offset}")));
            };
            walked.push(batch);
            if offset <= batch.last {
                break batch;
            }
        };
        let record = record_of(&file, batch, offset)?;
        Ok(Lookup { offset, segment: contents.base, probed, floor, walked, batch, record })
    }

    fn scanned(&self) -> u64 {
        self.batch.at - self.floor.1
    }

    fn record(&self, recorder: &mut Recorder) {
        self.table(recorder);
        recorder.figure("lookup_segment", self.segment, unit::OFFSET);
        recorder.figure("lookup_probed_offsets", self.probed.clone(), unit::OFFSET);
        recorder.figure("lookup_floor_offset", self.floor.0, unit::OFFSET);
        recorder.figure("lookup_floor_position", self.floor.1, unit::POSITION);
        recorder.figure("lookup_headers", u64_of(self.walked.len()), unit::COUNT);
        recorder.figure("lookup_scanned_bytes", self.scanned(), unit::BYTES);
        recorder.figure("lookup_batch_offset", self.batch.base, unit::OFFSET);
        recorder.figure("lookup_batch_last_offset", self.batch.last, unit::OFFSET);
        recorder.figure("lookup_batch_position", self.batch.at, unit::POSITION);
        recorder.figure("lookup_batch_bytes", self.batch.bytes, unit::BYTES);
        recorder.figure("lookup_record_in_batch", self.record.0, unit::COUNT);
    }

    fn table(&self, recorder: &mut Recorder) {
        let Lookup { offset, segment, floor, batch, record, .. } = self;
        let title = format!("Lookup of offset {offset}, step by step");
        let mut table = Table::new(&title, &["step", "what", "found"]);
        let mut row = |what: String, found: String| {
            table.row(vec![(table.rows.len() + 1).to_string(), what, found]);
        };
        row(format!("segment with the largest base up to {offset}"), format!("{segment:020}"));
        let probed: Vec<String> = self.probed.iter().map(u64::to_string).collect();
        row(
            format!("binary search in its index for the last entry up to {offset}"),
            format!("compares {}", probed.join(", ")),
        );
        let is_entry = self.probed.contains(&floor.0) && 0 < floor.1;
        let found = match is_entry {
            true => format!("offset {}, position {}", floor.0, floor.1),
            false => "none: the segment's beginning, position 0".to_owned(),
        };
        row("the entry".to_owned(), found);
        for batch in &self.walked {
            let what = format!("header at {} of the .log", batch.at);
            row(what, format!("offsets {} to {}", batch.base, batch.last));
        }
        let what = format!("record {offset} in the batch at {}", batch.at);
        row(what, format!("number {} of {}", record.0 + 1, record.1));
        recorder.table(table);
    }

    fn check(&self, recorder: &mut Recorder) {
        recorder.expect("lookup_floor_offset", (self.floor.0, 52), DOCUMENT);
        recorder.expect("lookup_floor_position", (self.floor.1, 18_004), DOCUMENT);
        recorder.expect("lookup_batch_position", (self.batch.at, 33_560), DOCUMENT);
        recorder.note(
            "The document reads the entry 67, 33560 as \"record 67 begins at byte 33560\". It is \
             the batch that ends with 67, and begins with 53, that stands there; so offset 60, \
             found from the entry before, is in it.",
        );
    }
}

/// Which record of a batch has the offset, read from its bytes, and how many there are.
fn record_of(file: &File, batch: Batch, offset: u64) -> Result<(u64, u64), Failure> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; usize_of(batch.bytes)];
    let read = file.read_exact_at(&mut bytes, batch.at);
    read.map_err(|source| Failure::Io { doing: "read a batch", source })?;
    let header = BatchHeader::decode(&bytes).map_err(|it| Failure::Wrong(it.to_string()))?;
    let (mut number, mut count) = (None, 0);
    for record in RecordsIter::new(&header, &bytes[HEADER_BYTES..]) {
        let record = record.map_err(|it| Failure::Wrong(it.to_string()))?;
        let delta = u64::try_from(record.offset_delta).unwrap_or(u64::MAX);
        if batch.base.checked_add(delta) == Some(offset) {
            number = Some(count);
        }
        count += 1;
    }
    let missing = || Failure::Wrong(format!("no record of the batch has offset {offset}"));
    Ok((number.ok_or_else(missing)?, count))
}
