//! The engine on its own: many partitions of one shard, on a real ring.

use std::time::Duration;

use uringlog::format::batch::{Codec, RecordBatch};
use uringlog::format::names::TopicName;
use uringlog::format::record::{BatchBuilder, NewRecord};
use uringlog::log::{Durability, LogConfig};
use uringlog::shard::edge::{self, EdgeKind};
use uringlog::shard::{Engine, EngineKind, EngineOptions, Partition, PartitionSpec};
use uringlog::units::{ByteCount, LeaderEpoch, PartitionId, Timestamp, TopicId};

const PARTITIONS: u32 = 6;
const ROUNDS: usize = 30;
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
