//! What the tests of the log share: batches, a log on some disk, and reading it back.

use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use smallvec::smallvec;
use uringlog::disk::{Disk, FileId, Finished, Lane, Plan, PlanTag, Step};
use uringlog::format::batch::{BatchHeader, Codec, RecordBatch};
use uringlog::format::record::{BatchBuilder, NewRecord};
use uringlog::log::{
    Appended, Durability, Located, LogConfig, LogSpec, OpenError, Opening, PartitionLog,
    RecoveryReport, Slice,
};
use uringlog::units::{
    ByteCount, LeaderEpoch, Offset, Position, ProducerEpoch, ProducerId, Sequence, Timestamp,
    TopicId,
};

/// Number of the log; the tests' own reads come from another owner.
pub const OWNER: u32 = 3;
const READER: u32 = 99;

/// The time at which tests begin.
pub const START: Timestamp = Timestamp(1_700_000_000_000);

/// A batch of `count` records of `bytes` bytes, all at `timestamp`.
pub fn batch(count: usize, bytes: usize, timestamp: Timestamp) -> RecordBatch {
    filled(BatchBuilder::new(Codec::None), count, bytes, timestamp)
}

/// The same from an idempotent producer.
pub fn idempotent(id: i64, sequence: i32, count: usize) -> RecordBatch {
    idempotent_at(id, sequence, count, START)
}

/// The same with records of another time.
pub fn idempotent_at(id: i64, sequence: i32, count: usize, timestamp: Timestamp) -> RecordBatch {
    let builder = BatchBuilder::new(Codec::None);
    let (id, epoch) = (ProducerId(id), ProducerEpoch(0));
    filled(builder.with_producer(id, epoch, Sequence(sequence)), count, 10, timestamp)
}

fn filled(
    mut builder: BatchBuilder,
    count: usize,
    bytes: usize,
    timestamp: Timestamp,
) -> RecordBatch {
    // Not zeros: a lost sector must not look like a record.
    let value: Vec<u8> =
        (0..bytes).map(|at| b'a' + u8::try_from(at % 26).expect("small")).collect();
    for _ in 0..count {
        let value = Some(value.as_slice());
        builder.push(&NewRecord { timestamp, key: None, value, headers: &[] });
    }
    builder.build()
}

/// Small segments, in the given tier.
pub fn config(durability: Durability) -> LogConfig {
    LogConfig {
        segment_bytes: ByteCount(4_000),
        index_interval_bytes: ByteCount(500),
        segment_index_bytes: ByteCount(10_000),
        ..LogConfig::defaults(durability)
    }
}

pub fn spec(directory: &Path, config: LogConfig) -> LogSpec {
    LogSpec {
        number: OWNER,
        directory: Arc::from(directory),
        topic_id: TopicId([7; 16]),
        config,
        leader_epoch: LeaderEpoch(0),
        jitter_seed: 1,
    }
}

/// After a kill, with nothing known from checkpoints.
pub const KILLED: Opening =
    Opening { clean: false, recovery_point: None, log_start: None, leader_epoch_bump: false };

/// After a clean stop.
pub const CLEAN: Opening = Opening { clean: true, ..KILLED };

/// A log on some disk.
pub struct Store<D> {
    pub log: PartitionLog,
    pub disk: D,
    pub now: Timestamp,
}

impl<D: Disk> Store<D> {
    pub fn create(mut disk: D, spec: LogSpec) -> Store<D> {
        let (log, plan) = PartitionLog::create(spec, START);
        let finished = disk.run(plan);
        let mut store = Store { log, disk, now: START };
        assert_eq!(finished.result, Ok(()));
        store.log.complete(finished, START);
        store
    }

    pub fn open(
        mut disk: D,
        spec: LogSpec,
        how: Opening,
    ) -> Result<(Store<D>, RecoveryReport), OpenError> {
        let (log, report) = PartitionLog::open(&mut disk, spec, how, START)?;
        Ok((Store { log, disk, now: START }, report))
    }

    /// Stages a batch.
    pub fn append(&mut self, batch: RecordBatch) -> Appended {
        self.log.append(batch, self.now).expect("a valid batch")
    }

    /// Runs every plan that is due.
    pub fn settle(&mut self) {
        while let Some(finished) = self.step() {
            self.log.complete(finished, self.now);
        }
    }

    /// Runs the next plan that is due, without completing it.
    pub fn step(&mut self) -> Option<Finished> {
        let now = self.now;
        let plan = self.log.plan(now).or_else(|| self.log.housekeeping(now))?;
        Some(self.disk.run(plan))
    }

    pub fn close(&mut self) {
        self.settle();
        let plan = self.log.close(self.now);
        let finished = self.disk.run(plan);
        assert_eq!(finished.result, Ok(()));
        self.log.complete(finished, self.now);
    }

    /// The slice that an offset is in, its segment loaded if need be; `None` at the end.
    pub fn locate(&mut self, offset: Offset) -> Option<Slice> {
        loop {
            match self.log.locate(offset).expect("in range") {
                Located::Empty => return None,
                Located::Slice(slice) => return Some(slice),
                Located::Load(plan) => {
                    let finished = self.disk.run(plan);
                    let completed = self.log.complete(finished, self.now);
                    assert_eq!(completed.load_failed, None);
                }
                Located::Loading => panic!("no load is under way"),
            }
        }
    }

    /// The bytes of a slice.
    pub fn bytes(&mut self, file: FileId, from: Position, to: Position) -> BytesMut {
        let length = usize::try_from((to - from).0).expect("small");
        let tag = PlanTag { owner: READER, lane: Lane::Read, number: 0 };
        let bytes = BytesMut::zeroed(length);
        let steps = smallvec![Step::Read { file, at: from, bytes }];
        let mut finished = self.disk.run(Plan { tag, steps });
        assert_eq!(finished.result, Ok(()));
        let Some(Step::Read { bytes, .. }) = finished.plan.steps.pop() else {
            panic!("the plan comes back as it went")
        };
        bytes
    }

    /// Base and last offset of every batch from `offset` on, as a consumer sees them.
    pub fn read_from(&mut self, offset: Offset) -> Vec<(u64, u64)> {
        self.batches_from(offset)
            .iter()
            .map(|batch| {
                let header = batch.header();
                let (base, last) = (header.base(), header.last_offset());
                (base.expect("stored").0, last.expect("stored").0)
            })
            .collect()
    }

    /// Every batch from `offset` on, checksums verified.
    pub fn batches_from(&mut self, offset: Offset) -> Vec<RecordBatch> {
        let (mut offset, mut batches) = (offset, Vec::new());
        while let Some(slice) = self.locate(offset) {
            let bytes = self.bytes(slice.file, slice.at, slice.end);
            let mut rest = &bytes[..];
            let before = offset;
            while !rest.is_empty() {
                let header = BatchHeader::decode(rest).expect("a slice ends with a whole batch");
                let size = usize::try_from(header.size.0).expect("small");
                let last = header.last_offset().expect("stored");
                if last >= offset {
                    let batch = RecordBatch::decode(BytesMut::from(&rest[..size]));
                    batches.push(batch.expect("a valid batch"));
                    offset = last + 1;
                }
                rest = &rest[size..];
            }
            if offset == before {
                offset = slice.next_segment.expect("a gap ends at a segment");
                assert!(before < offset, "a gap has an end");
            }
        }
        batches
    }
}
