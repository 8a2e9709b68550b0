//! A compacted log with few records, each in a batch of its own unless a test says otherwise.

use std::path::{Path, PathBuf};

use uringlog::disk::faults::FaultHook;
use uringlog::disk::sim::{SimDisk, SimOptions};
use uringlog::format::batch::{Codec, RecordBatch};
use uringlog::format::record::{BatchBuilder, NewRecord, RecordsIter};
use uringlog::log::clean::{RoundOptions, RoundReport};
use uringlog::log::producers::Marker;
use uringlog::log::{CleanupPolicy, Durability, LogConfig, LogSpec, Opening};
use uringlog::units::{ByteCount, Offset, ProducerEpoch, ProducerId, Sequence};

use crate::rounds;
use crate::support::{self, CLEAN, KILLED, Store};

const ROOT: &str = "/data";
pub const DELETE_RETENTION_MS: i64 = 100_000;
/// More than `segment.ms`: the next record begins a segment.
const ROLL_MS: i64 = 5_000;
const COMPACT: CleanupPolicy = CleanupPolicy { delete: false, compact: true };

pub struct Topic {
    pub store: Store<SimDisk>,
    pub faults: FaultHook,
    spec: LogSpec,
    sequence: i32,
}

/// The producer of transactions.
const TRANSACTIONAL: ProducerId = ProducerId(1);

impl Topic {
    pub fn new() -> Topic {
        Topic::with(|_| ())
    }

    pub fn with(change: impl FnOnce(&mut LogConfig)) -> Topic {
        let mut config = LogConfig {
            cleanup_policy: COMPACT,
            segment_bytes: ByteCount(1 << 20),
            segment_index_bytes: ByteCount(1 << 16),
            segment_ms: 1_000,
            delete_retention_ms: DELETE_RETENTION_MS.unsigned_abs(),
            file_delete_delay_ms: 5,
            retention_ms: None,
            ..support::config(Durability::Device)
        };
        change(&mut config);
        let spec = support::spec(&Path::new(ROOT).join("topic-0"), config);
        let faults = FaultHook::new();
        let options = SimOptions { seed: 7, root: PathBuf::from(ROOT), ..SimOptions::default() };
        let disk = SimDisk::new(SimOptions { faults: Some(faults.clone()), ..options });
        Topic { store: Store::create(disk, spec.clone()), faults, spec, sequence: 0 }
    }

    pub fn directory(&self) -> &Path {
        &self.spec.directory
    }

    fn batch(
        &self,
        builder: BatchBuilder,
        records: &[(Option<&str>, Option<&str>)],
    ) -> RecordBatch {
        let mut builder = builder;
        for (key, value) in records {
            builder.push(&NewRecord {
                timestamp: self.store.now,
                key: key.map(str::as_bytes),
                value: value.map(str::as_bytes),
                headers: &[],
            });
        }
        builder.build()
    }

    pub fn put(&mut self, key: &str, value: Option<&str>) {
        self.put_record(Some(key), value);
    }

    pub fn put_record(&mut self, key: Option<&str>, value: Option<&str>) {
        let batch = self.batch(BatchBuilder::new(Codec::None), &[(key, value)]);
        self.store.append(batch);
    }

    /// A batch of a producer that numbers its batches.
    pub fn put_numbered(&mut self, producer: i64, sequence: i32, key: &str) {
        let builder = BatchBuilder::new(Codec::None).with_producer(
            ProducerId(producer),
            ProducerEpoch(0),
            Sequence(sequence),
        );
        let batch = self.batch(builder, &[(Some(key), Some("numbered"))]);
        self.store.append(batch);
    }

    /// A batch of the transaction under way.
    pub fn transact(&mut self, keys: &[&str]) {
        let builder = BatchBuilder::new(Codec::None)
            .with_producer(TRANSACTIONAL, ProducerEpoch(0), Sequence(self.sequence))
            .transactional();
        let records: Vec<_> = keys.iter().map(|key| (Some(*key), Some("transactional"))).collect();
        let batch = self.batch(builder, &records);
        self.sequence += batch.header().record_count;
        let now = self.store.now;
        self.store.log.append_verified(batch, now).expect("the coordinator vouches for it");
    }

    /// Ends it, as a coordinator does that doesn't raise epochs.
    pub fn end(&mut self, commits: bool) {
        let marker = Marker {
            producer_id: TRANSACTIONAL,
            epoch: ProducerEpoch(0),
            raises_epoch: false,
            coordinator_epoch: 0,
            commits,
        };
        let now = self.store.now;
        self.store.log.append_marker(&marker, now).expect("it is the coordinator's");
    }

    /// What comes next begins a segment.
    pub fn roll(&mut self) {
        self.store.settle();
        self.store.now.0 += ROLL_MS;
    }

    /// The same, with a record in the new active segment.
    pub fn seal(&mut self, key: &str) {
        self.roll();
        self.put(key, Some("active"));
    }

    /// A round over all that may be cleaned, in tiny slices.
    pub fn clean(&mut self) -> RoundReport {
        self.clean_with(rounds::options(rounds::MEMORY, 200))
    }

    pub fn clean_with(&mut self, options: RoundOptions) -> RoundReport {
        let Store { log, disk, now } = &mut self.store;
        rounds::clean(log, disk, options, *now).expect("something is dirty")
    }

    /// A stop, in order or by a kill, and a start.
    pub fn restart(self, is_clean: bool) -> Topic {
        let Topic { mut store, faults, spec, sequence } = self;
        store.settle();
        let (first_dirty, now) = (store.log.first_dirty(), store.now);
        let recovery_point = Some(store.log.cursors().recovery_point);
        let how = if is_clean { CLEAN } else { KILLED };
        if is_clean {
            store.close();
        }
        let how = Opening { recovery_point, ..how };
        let opened = Store::open(store.disk.reopen(), spec.clone(), how);
        let (mut store, report) = opened.expect("it opens");
        assert!(!report.is_lossy(), "{report}");
        store.now = now;
        store.log.set_first_dirty(first_dirty);
        Topic { store, faults, spec, sequence }
    }

    pub fn batches(&mut self) -> Vec<RecordBatch> {
        self.store.batches_from(self.store.log.cursors().log_start)
    }

    /// Offsets of all records below the active segment's, those of markers included.
    pub fn offsets(&mut self) -> Vec<u64> {
        self.records().into_iter().map(|(offset, _, _)| offset).collect()
    }

    /// Their keys, without those of markers.
    pub fn keys(&mut self) -> Vec<String> {
        self.records().into_iter().filter_map(|(_, key, _)| key).collect()
    }

    /// Offset, key and value of each record below the active segment's; a marker has no key here.
    pub fn records(&mut self) -> Vec<(u64, Option<String>, Option<String>)> {
        let active = self.bases().pop().expect("there is an active segment");
        let mut records = Vec::new();
        for batch in self.batches() {
            let header = batch.header();
            let base = header.base().expect("stored").0;
            for record in RecordsIter::new(header, batch.payload()) {
                let record = record.expect("a record");
                let offset = base + u64::from(record.offset_delta.unsigned_abs());
                let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
                let key = record.key.filter(|_| !header.is_control()).map(text);
                records.push((offset, key, record.value.map(text)));
            }
        }
        records.retain(|(offset, _, _)| Offset(*offset) < active);
        records
    }

    /// Base offsets of the segments.
    pub fn bases(&self) -> Vec<Offset> {
        self.store.log.segments().map(|segment| segment.base).collect()
    }

    /// Names of the partition's files.
    pub fn names(&mut self) -> Vec<String> {
        let tree = self.store.disk.tree(self.directory()).expect("it is there");
        tree.into_keys().map(|path| path.to_string_lossy().into_owned()).collect()
    }
}
