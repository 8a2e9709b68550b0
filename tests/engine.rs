//! The engine on its own: many partitions of one shard, on a real ring.

use std::task::{Context, Waker};
use std::time::Duration;

use uringlog::disk::Place;
use uringlog::disk::faults::FaultHook;
use uringlog::format::batch::{Codec, RecordBatch};
use uringlog::format::names::TopicName;
use uringlog::format::record::{BatchBuilder, NewRecord};
use uringlog::log::{Durability, LogConfig};
use uringlog::ring::RingOptions;
use uringlog::shard::edge::{self, EdgeKind};
use uringlog::shard::{Engine, EngineError, EngineKind, EngineOptions, Partition, PartitionSpec};
use uringlog::units::{ByteCount, LeaderEpoch, Offset, PartitionId, Timestamp, TopicId};

const PARTITIONS: u32 = 6;
const ROUNDS: usize = 30;
const DEVICE: Durability = Durability::Device;
const EIO: i32 = 5;
/// Files of one partition, and one that is replaced meanwhile.
const FILES_MAX: u32 = 4;
/// Beyond it a wait is taken for one that never ends.
const PATIENCE: Duration = Duration::from_secs(20);

/// A batch of one record.
fn batch(bytes: usize) -> RecordBatch {
    let mut builder = BatchBuilder::new(Codec::None);
    let (timestamp, value) = (Timestamp(1_700_000_000_000), vec![b'x'; bytes]);
    builder.push(&NewRecord { timestamp, key: None, value: Some(&value), headers: &[] });
    builder.build()
}

async fn within<F: Future>(what: &str, wait: F) -> F::Output {
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{what} takes for ever"))
}

async fn partitions(engine: &Engine) -> Vec<Partition> {
    let mut partitions = Vec::new();
    for number in 0..PARTITIONS {
        let spec = PartitionSpec {
            topic: TopicName::new("topic").expect("a legal name"),
            partition: PartitionId(number),
            topic_id: TopicId([7; 16]),
            config: LogConfig {
                segment_bytes: ByteCount(4_000),
                ..LogConfig::defaults(Durability::Device)
            },
            leader_epoch: LeaderEpoch(0),
        };
        partitions.push(within("creating", engine.create(spec)).await.expect("created"));
    }
    partitions
}

/// A plan takes several chains, and each outcome may be come upon while the engine looks for
/// something else. Every one has to reach whoever waits for it: a stop once waited for ever for the
/// plan that closes a partition.
#[test]
fn every_outcome_arrives() {
    for _ in 0..ROUNDS {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let options = EngineOptions::new(directory.path(), EngineKind::Ring);
        let run = edge::run(EdgeKind::Uring, async move {
            let engine = Engine::start(options).expect("io_uring");
            let partitions = partitions(&engine).await;
            for partition in &partitions {
                // Several segments, so that housekeeping is under way when the stop comes.
                for _ in 0..3 {
                    let appended = partition.append(batch(3_000)).expect("serving");
                    within("an append", partition.reached(appended.due)).await.expect("serving");
                }
            }
            let failed = within("the stop", engine.close()).await;
            assert!(failed.is_empty(), "{failed:?}");
        });
        run.expect("a runtime");
    }
}

/// A creation that fails half-way is tried again by clients; each try once kept the files that it
/// had opened.
#[test]
fn a_failed_creation_keeps_no_file_open() {
    for kind in [EngineKind::Ring, EngineKind::PlainFile] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let faults = FaultHook::new();
        let ring = RingOptions { files_max: FILES_MAX, ..RingOptions::default() };
        let options = EngineOptions {
            files_max: usize::try_from(FILES_MAX).expect("small"),
            ring,
            faults: Some(faults.clone()),
            ..EngineOptions::new(directory.path(), kind)
        };
        let run = edge::run(EdgeKind::Tokio, async move {
            let engine = Engine::start(options).expect("io_uring");
            let spec = || PartitionSpec::new(TopicName::new("topic").expect("a name"), DEVICE);
            // Each sync of the plan in turn, those of the directories included.
            let mut failures = 0;
            loop {
                faults.fail_sync(failures + 1, EIO);
                match within("creating", engine.create(spec())).await {
                    Ok(_) => break,
                    Err(error) => assert!(error.to_string().contains("(errno 5)"), "{error}"),
                }
                failures += 1;
            }
            assert_eq!(failures, 3, "{kind:?}: three files are synced");
            assert_eq!(engine.partitions().len(), 1);
            // The fault that is still set hits the stop.
            assert_eq!(within("the stop", engine.close()).await.len(), 1);
            let late = engine.create(spec()).await.map(|_| ());
            assert!(matches!(late, Err(EngineError::Stopped)), "nobody would close it");
        });
        run.expect("a runtime");
    }
}

/// A reader that gave up while a segment was loaded once took the outcome with it, and every later
/// reader of the segment waited for ever.
#[test]
fn a_read_that_is_given_up_stops_no_other() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let spec = || PartitionSpec {
        config: LogConfig {
            segment_bytes: ByteCount(4_000),
            ..LogConfig::defaults(Durability::PageCache)
        },
        ..PartitionSpec::new(TopicName::new("topic").expect("a name"), DEVICE)
    };
    let run = edge::run(EdgeKind::Uring, async {
        let options = || EngineOptions::new(directory.path(), EngineKind::Ring);
        let engine = Engine::start(options()).expect("io_uring");
        let partition = engine.open_or_create(spec()).await.expect("created");
        for _ in 0..3 {
            let appended = partition.append(batch(3_000)).expect("serving");
            within("an append", partition.reached(appended.due)).await.expect("serving");
        }
        assert!(within("the stop", engine.close()).await.is_empty());
        // Opened anew, nothing of the sealed segments is in memory.
        let engine = Engine::start(options()).expect("io_uring");
        let partition = engine.open_or_create(spec()).await.expect("opened");
        for offset in [0, 1] {
            let mut given_up = Box::pin(partition.read(Offset(offset), ByteCount(1)));
            let mut context = Context::from_waker(Waker::noop());
            assert!(given_up.as_mut().poll(&mut context).is_pending());
            drop(given_up);
            let read = within("a read", partition.read(Offset(offset), ByteCount(1))).await;
            assert!(3_000 < read.expect("readable").len());
        }
        assert!(within("the stop", engine.close()).await.is_empty());
    });
    run.expect("a runtime");
}

/// Begins something, and gives it up before its end.
fn give_up(what: &str, begun: impl Future) {
    let mut begun = Box::pin(begun);
    let mut context = Context::from_waker(Waker::noop());
    assert!(begun.as_mut().poll(&mut context).is_pending(), "{what} was over at once");
}

/// Ctrl-C during a creation once left a log whose plan nobody brought to its end, and the stop
/// waited for it for ever. So did the renaming of a partition that is deleted.
#[test]
fn what_is_given_up_is_carried_out_and_the_engine_stops() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let options = EngineOptions::new(directory.path(), EngineKind::Ring);
    let run = edge::run(EdgeKind::Uring, async {
        let engine = Engine::start(options).expect("io_uring");
        let spec = |number| PartitionSpec {
            partition: PartitionId(number),
            ..PartitionSpec::new(TopicName::new("topic").expect("a name"), DEVICE)
        };
        let retired = within("creating", engine.create(spec(0))).await.expect("created");
        let place = Place { directory: directory.path().into(), name: "renamed".into() };
        give_up("a renaming", retired.retire(place));
        give_up("a creation", engine.create(spec(1)));
        let failed = within("the stop", engine.close()).await;
        assert!(failed.is_empty(), "{failed:?}");
    });
    run.expect("a runtime");
    let is_there = |name: &str| directory.path().join(name).is_dir();
    assert_eq!(
        [is_there("topic-0"), is_there("renamed"), is_there("topic-1")],
        [false, true, true]
    );
}
