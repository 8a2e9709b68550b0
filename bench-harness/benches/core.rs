//! Micro-benchmarks of what every batch goes through: `cargo bench -p bench-harness`. No I/O but in
//! the recovery scan, whose files are in the page cache.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use uringlog::disk::plain::PlainDisk;
use uringlog::disk::{Disk, Finished};
use uringlog::format::batch::{self, BatchHeader, Codec, RecordBatch};
use uringlog::format::index::{self, OffsetEntry};
use uringlog::format::record::{BatchBuilder, NewRecord, RecordsIter};
use uringlog::log::{Durability, LogConfig, LogSpec, Opening, PartitionLog};
use uringlog::units::{ByteCount, LeaderEpoch, Timestamp, TopicId, byte_count, u64_of};
use uringlog::wire::error::ErrorCode;
use uringlog::wire::fetch::FetchRequest;
use uringlog::wire::produce::{PartitionAnswer, ProduceAnswer, ProduceFrame};
use uringlog::wire::write::Writer;

const NOW: Timestamp = Timestamp(1_700_000_000_000);
/// The newest versions that name topics by name.
const PRODUCE_VERSION: i16 = 12;
const FETCH_VERSION: i16 = 12;
/// Bytes of a batch's records.
const SIZES: [usize; 3] = [100, 10_000, 1_000_000];

/// A batch of records of up to 1,000 bytes each.
fn batch_of(bytes: usize) -> RecordBatch {
    let value = vec![b'v'; bytes.min(1_000)];
    let mut builder = BatchBuilder::new(Codec::None);
    for _ in 0..bytes.div_ceil(1_000) {
        let value = Some(value.as_slice());
        builder.push(&NewRecord { timestamp: NOW, key: None, value, headers: &[] });
    }
    builder.build()
}

fn spec(directory: &Path) -> LogSpec {
    LogSpec {
        number: 1,
        directory: Arc::from(directory),
        topic_id: TopicId([7; 16]),
        config: LogConfig {
            segment_bytes: ByteCount(1 << 30),
            batch_bytes_max: ByteCount(2 << 20),
            ..LogConfig::defaults(Durability::PageCache)
        },
        leader_epoch: LeaderEpoch(0),
        jitter_seed: 1,
    }
}

/// Header and checksum, as for each batch that a client sends; and its records, as for those that
/// are looked into.
fn validation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("batch validation");
    for bytes in SIZES {
        let batch = batch_of(bytes);
        let stored = batch.as_bytes();
        group.throughput(Throughput::Bytes(u64_of(stored.len())));
        group.bench_function(BenchmarkId::new("header and CRC", bytes), |bencher| {
            bencher.iter(|| {
                let header = BatchHeader::decode(black_box(stored)).expect("it is whole");
                batch::check_crc(&header, stored).expect("it is right");
            });
        });
        group.bench_function(BenchmarkId::new("records", bytes), |bencher| {
            let header = batch.header();
            let payload = &stored[batch::HEADER_BYTES..];
            bencher.iter(|| RecordsIter::new(header, black_box(payload)).count());
        });
    }
    group.finish();
}

fn index_lookup(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("index lookup");
    for entries in [100_u32, 10_000, 1_310_720] {
        let entry = |number: u32| OffsetEntry {
            relative_offset: number * 10 + 9,
            position: number.saturating_mul(1_600),
        };
        let bytes: Vec<u8> = (0..entries).flat_map(|number| entry(number).encode()).collect();
        let mut wanted = 0_u32;
        group.bench_function(BenchmarkId::new("anywhere", entries), |bencher| {
            bencher.iter(|| {
                // A walk that meets every part of the index.
                wanted = wanted.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                index::floor_by_offset(black_box(&bytes), wanted % (entries * 10))
            });
        });
        group.bench_function(BenchmarkId::new("near the end", entries), |bencher| {
            bencher.iter(|| index::floor_by_offset(black_box(&bytes), entries * 10 - 15));
        });
    }
    group.finish();
}

/// Append, plan, and taking in the outcome: all that the log does for a batch, without the disk.
fn append_planning(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append planning");
    for batches in [1_usize, 16] {
        let root = tempfile::tempdir().expect("a temporary folder");
        let mut log = created(&root.path().join("topic-0")).0;
        group.throughput(Throughput::Elements(u64_of(batches)));
        group.bench_function(BenchmarkId::new("batches a plan", batches), |bencher| {
            bencher.iter_batched(
                || (0..batches).map(|_| batch_of(10_000)).collect::<Vec<_>>(),
                |batches| {
                    for batch in batches {
                        log.append(batch, NOW).expect("a valid batch");
                    }
                    let plan = log.plan(NOW).expect("something is staged");
                    log.complete(Finished { plan, result: Ok(()) }, NOW);
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn created(directory: &Path) -> (PartitionLog, PlainDisk) {
    let mut disk = PlainDisk::new(64, None);
    let (mut log, plan) = PartitionLog::create(spec(directory), NOW);
    let finished = disk.run(plan);
    finished.result.expect("an empty folder takes a log");
    log.complete(finished, NOW);
    (log, disk)
}

/// What a start after a kill does to a segment: checksums, headers, both indexes anew.
fn recovery_scan(criterion: &mut Criterion) {
    const BYTES: usize = 16 << 20;
    let mut group = criterion.benchmark_group("recovery scan");
    group.sample_size(10);
    for bytes in [1_000_usize, 16_000] {
        let root = tempfile::tempdir().expect("a temporary folder");
        let directory = root.path().join("topic-0");
        let (mut log, mut disk) = created(&directory);
        for _ in 0..BYTES / bytes {
            log.append(batch_of(bytes), NOW).expect("a valid batch");
            let finished = disk.run(log.plan(NOW).expect("something is staged"));
            finished.result.expect("there is room");
            log.complete(finished, NOW);
        }
        drop((log, disk));
        group.throughput(Throughput::Bytes(u64_of(BYTES)));
        group.bench_function(BenchmarkId::new("16 MiB in batches of", bytes), |bencher| {
            bencher.iter(|| {
                let killed = Opening {
                    clean: false,
                    recovery_point: None,
                    log_start: None,
                    leader_epoch_bump: false,
                };
                let mut disk = PlainDisk::new(64, None);
                PartitionLog::open(&mut disk, spec(&directory), killed, NOW).expect("it is whole")
            });
        });
    }
    group.finish();
}

/// The body of a Produce request for so many partitions of one topic.
fn produce_body(partitions: usize, bytes: usize) -> BytesMut {
    let batch = batch_of(bytes);
    let mut writer = Writer::new(true, partitions * (bytes + 200) + 100);
    writer.text(None);
    writer.i16(-1);
    writer.i32(30_000);
    writer.array(Some(1));
    writer.text(Some("flights"));
    writer.array(Some(partitions));
    for index in 0..partitions {
        writer.i32(i32::try_from(index).expect("few"));
        let length = byte_count(batch.as_bytes().len());
        writer.records_length(length).expect("below 2 GiB");
        writer.raw(batch.as_bytes());
        writer.no_tags();
    }
    writer.no_tags();
    writer.no_tags();
    writer.into_bytes()
}

fn fetch_body(partitions: usize) -> BytesMut {
    let mut writer = Writer::new(true, partitions * 40 + 100);
    // Replica, wait, least and most bytes, isolation, session and its epoch.
    for value in [-1, 500, 1, 50 << 20] {
        writer.i32(value);
    }
    writer.i8(0);
    writer.i32(0);
    writer.i32(-1);
    writer.array(Some(1));
    writer.text(Some("flights"));
    writer.array(Some(partitions));
    for index in 0..partitions {
        writer.i32(i32::try_from(index).expect("few"));
        writer.i32(-1);
        writer.i64(1_000_000);
        writer.i32(-1);
        writer.i64(-1);
        writer.i32(1 << 20);
        writer.no_tags();
    }
    writer.no_tags();
    writer.array(Some(0));
    writer.text(Some(""));
    writer.no_tags();
    writer.into_bytes()
}

fn frames(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("frames");
    for partitions in [1_usize, 100] {
        group.throughput(Throughput::Elements(u64_of(partitions)));
        let produce = produce_body(partitions, 10_000);
        group.bench_function(BenchmarkId::new("Produce walk", partitions), |bencher| {
            bencher.iter_batched(
                || produce.clone(),
                |body| ProduceFrame::walk(body, PRODUCE_VERSION).expect("well-formed"),
                BatchSize::SmallInput,
            );
        });
        let frame = ProduceFrame::walk(produce, PRODUCE_VERSION).expect("well-formed");
        let index = |number| i32::try_from(number).expect("few");
        let answers: Vec<PartitionAnswer> = (0..partitions)
            .map(|number| PartitionAnswer::refused(index(number), ErrorCode::None))
            .collect();
        group.bench_function(BenchmarkId::new("Produce answer", partitions), |bencher| {
            let answer = ProduceAnswer {
                version: PRODUCE_VERSION,
                correlation_id: 7,
                topics: &frame.topics,
                partitions: &answers,
                nodes: &[],
                throttle_ms: 0,
            };
            bencher.iter(|| black_box(&answer).encode().expect("it is short"));
        });
        let fetch = fetch_body(partitions);
        group.bench_function(BenchmarkId::new("Fetch decode", partitions), |bencher| {
            bencher.iter_batched(
                || fetch.clone(),
                |body| FetchRequest::decode(body, FETCH_VERSION).expect("well-formed"),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    validation(&mut criterion);
    index_lookup(&mut criterion);
    append_planning(&mut criterion);
    recovery_scan(&mut criterion);
    frames(&mut criterion);
    criterion.final_summary();
}
