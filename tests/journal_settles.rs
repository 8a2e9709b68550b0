//! The first record of a partition comes while the journal wants its space back: there is nothing
//! to sync for it yet, and the shard must not ask for that again and again.

use std::time::Duration;

use uringlog::format::batch::{Codec, RecordBatch};
use uringlog::format::names::TopicName;
use uringlog::format::record::{BatchBuilder, NewRecord};
use uringlog::log::{Durability, LogConfig};
use uringlog::shard::edge::{self, EdgeKind};
use uringlog::shard::{
    Engine, EngineKind, EngineOptions, JournalMode, JournalOptions, PartitionSpec,
};
use uringlog::units::{ByteCount, LeaderEpoch, PartitionId, Timestamp, TopicId};

fn batch(bytes: usize) -> RecordBatch {
    let mut builder = BatchBuilder::new(Codec::None);
    let (timestamp, value) = (Timestamp(1_700_000_000_000), vec![b'x'; bytes]);
    builder.push(&NewRecord { timestamp, key: None, value: Some(&value), headers: &[] });
    builder.build()
}

fn spec(number: u32) -> PartitionSpec {
    PartitionSpec {
        topic: TopicName::new("topic").expect("a legal name"),
        partition: PartitionId(number),
        topic_id: TopicId([7; 16]),
        config: LogConfig { retention_ms: None, ..LogConfig::defaults(Durability::Device) },
        leader_epoch: LeaderEpoch(0),
    }
}

fn options(directory: &std::path::Path, kind: EngineKind) -> EngineOptions {
    let journals = JournalOptions {
        mode: JournalMode::Always,
        bytes: ByteCount(1 << 20),
        plan_bytes_max: ByteCount(128 << 10),
    };
    EngineOptions { journals, ..EngineOptions::new(directory, kind) }
}

async fn first_batch_of_another(options: EngineOptions) {
    let engine = Engine::open_directory(options).expect("an engine");
    let filling = engine.create(spec(0)).await.expect("created");
    let other = engine.create(spec(1)).await.expect("created");
    // More than an eighth of the journal; the next look has it synced.
    for bytes in [1000, 126_000, 20_000] {
        let due = filling.append(batch(bytes)).expect("serving").due;
        filling.reached(due).await.expect("durable");
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    let journal = engine.stats().journal.expect("a journal");
    assert!(journal.used.0 * 8 >= journal.capacity.0, "{journal:?}");
    let due = other.append(batch(10)).expect("serving").due;
    other.reached(due).await.expect("durable");
    assert_eq!(engine.close().await, []);
}

#[test]
fn a_first_record_is_acknowledged_while_space_is_wanted() {
    for kind in [EngineKind::Ring, EngineKind::PlainFile] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let options = options(directory.path(), kind);
        edge::run(EdgeKind::Tokio, first_batch_of_another(options)).expect("a runtime");
    }
}
