//! What the tests of the checklist share: logs that are written, and logs laid out by hand.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use uringlog::disk::faults::FaultHook;
use uringlog::disk::plain::PlainDisk;
use uringlog::format::batch::{Codec, RecordBatch};
use uringlog::format::index::{self, OffsetEntry, TimeEntry};
use uringlog::format::names::{FileKind, SegmentFile};
use uringlog::format::record::{BatchBuilder, NewRecord};
use uringlog::log::producers::Marker;
use uringlog::log::{Durability, LogConfig, LogSpec, Opening, RecoveryReport};
use uringlog::units::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use crate::support::{self, KILLED, START, Store};

const FILES_MAX: usize = 100;

/// A partition's folder in a temporary directory.
pub struct Folder {
    directory: TempDir,
    pub config: LogConfig,
    pub faults: FaultHook,
}

impl Folder {
    /// In the page cache's tier, with small segments.
    pub fn new() -> Folder {
        Folder::with(support::config(Durability::PageCache))
    }

    pub fn with(config: LogConfig) -> Folder {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Folder { directory, config, faults: FaultHook::new() }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("topic-0")
    }

    pub fn file(&self, base: u64, kind: FileKind) -> PathBuf {
        self.path().join(SegmentFile::new(Offset(base), kind).to_string())
    }

    fn disk(&self) -> PlainDisk {
        PlainDisk::new(FILES_MAX, Some(self.faults.clone()))
    }

    fn spec(&self) -> LogSpec {
        support::spec(&self.path(), self.config.clone())
    }

    /// A new log.
    pub fn create(&self) -> Store<PlainDisk> {
        Store::create(self.disk(), self.spec())
    }

    /// A new log that begins at an offset.
    pub fn create_at(&self, offset: u64) -> Store<PlainDisk> {
        std::fs::create_dir(self.path()).expect("a new folder");
        self.open(Opening { log_start: Some(Offset(offset)), ..KILLED }).0
    }

    pub fn open(&self, how: Opening) -> (Store<PlainDisk>, RecoveryReport) {
        Store::open(self.disk(), self.spec(), how).expect("it opens")
    }

    /// Lays a segment out: batches of one record and of more, at these offsets.
    pub fn lay(&self, base: u64, batches: Vec<RecordBatch>) {
        std::fs::create_dir_all(self.path()).expect("a folder");
        let bytes: Vec<u8> = batches.iter().flat_map(|it| it.as_bytes().to_vec()).collect();
        std::fs::write(self.file(base, FileKind::Log), bytes).expect("writable");
    }

    /// Names of all files, sorted.
    pub fn names(&self) -> Vec<String> {
        names(&self.path())
    }

    pub fn has(&self, base: u64, kind: FileKind) -> bool {
        self.file(base, kind).exists()
    }

    /// The entries of an offset index, as relative offset and position.
    pub fn offsets(&self, base: u64) -> Vec<(u32, u32)> {
        let bytes = std::fs::read(self.file(base, FileKind::Index)).expect("it exists");
        let used = &bytes[..index::offset_index_used(&bytes)];
        let entries = index::offset_entries(used);
        entries
            .map(|OffsetEntry { relative_offset, position }| (relative_offset, position))
            .collect()
    }

    /// The entries of a time index, as timestamp and relative offset.
    pub fn times(&self, base: u64) -> Vec<(i64, u32)> {
        let bytes = std::fs::read(self.file(base, FileKind::TimeIndex)).expect("it exists");
        let used = &bytes[..index::time_index_used(&bytes)];
        let entries = index::time_entries(used);
        entries
            .map(|TimeEntry { timestamp, relative_offset }| (timestamp, relative_offset))
            .collect()
    }
}

fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).expect("it exists");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("readable").file_name().into_string().expect("ASCII"))
        .collect();
    names.sort();
    names
}

/// A stored batch: `count` records from `offset` on.
pub fn stored(offset: u64, count: usize) -> RecordBatch {
    at(offset, support::batch(count, 20, START))
}

pub fn at(offset: u64, mut batch: RecordBatch) -> RecordBatch {
    batch.assign(Offset(offset), LeaderEpoch(0));
    batch
}

/// A batch of one record at a time.
pub fn timed(timestamp: i64) -> RecordBatch {
    support::batch(1, 20, Timestamp(timestamp))
}

/// A batch of a transaction.
pub fn transactional(id: i64, sequence: i32, count: usize) -> RecordBatch {
    let mut builder = BatchBuilder::new(Codec::None)
        .with_producer(ProducerId(id), ProducerEpoch(0), Sequence(sequence))
        .transactional();
    for _ in 0..count {
        builder.push(&NewRecord::value(START, b"in a transaction"));
    }
    builder.build()
}

/// The marker of a producer's first epoch.
pub fn marker(id: i64, commits: bool) -> Marker {
    Marker {
        producer_id: ProducerId(id),
        epoch: ProducerEpoch(0),
        raises_epoch: false,
        coordinator_epoch: 3,
        commits,
    }
}

/// Base offsets of the segments.
pub fn bases(store: &Store<PlainDisk>) -> Vec<u64> {
    store.log.segments().map(|it| it.base.0).collect()
}
