//! The log inside a program of one's own: no network, one thread, io_uring underneath.
//!
//! `cargo run --example embed [DIRECTORY]` opens the directory (made when absent, removed at the
//! end when none is named), follows partition 0 of the topic `measurements`, and appends to it
//! meanwhile. Run twice on one directory, the second run goes on where the first one ended.

use std::error::Error;
use std::path::PathBuf;

use uringlog::{
    BatchBuilder, Codec, Durability, EdgeKind, Engine, EngineKind, EngineOptions, NewRecord,
    Partition, PartitionSpec, RecordBatch, RecordsIter, TopicName, edge, now,
};

const BATCHES: usize = 100;
const RECORDS_A_BATCH: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let temporary = tempfile::tempdir()?;
    let named = std::env::args_os().nth(1).map(PathBuf::from);
    let directory = named.unwrap_or_else(|| temporary.path().join("data"));
    let (edge, kind) = match uringlog::ring::probe::probe().ring {
        Ok(_) => (EdgeKind::Uring, EngineKind::Ring),
        Err(refused) => {
            eprintln!("{refused}; going on with plain files");
            (EdgeKind::Tokio, EngineKind::PlainFile)
        }
    };
    edge::run(edge, write_and_follow(EngineOptions::new(directory, kind)))?
}

async fn write_and_follow(options: EngineOptions) -> Result<(), Box<dyn Error>> {
    // Held until it is closed: a second program on this directory is told who holds it.
    let engine = Engine::open_directory(options)?;
    let spec = PartitionSpec::new(TopicName::new("measurements")?, Durability::Device);
    let partition = engine.open_or_create(spec).await?;
    let begin = partition.cursors().log_end;

    // Appending and following take turns on this thread; nothing is shared with another.
    let (written, followed) = tokio::join!(append(&partition), follow(&partition));
    written?;
    assert_eq!(followed?, BATCHES * RECORDS_A_BATCH);

    let cursors = partition.cursors();
    println!("appended {begin} to {}, all of it on the device", cursors.log_end);
    assert_eq!(cursors.durable_end, cursors.log_end);
    let failed = engine.close().await;
    assert!(failed.is_empty(), "{failed:?}");
    Ok(())
}

/// Appends without waiting: what is appended in one turn is written, and synced, as one. The
/// acknowledgements are awaited afterwards.
async fn append(partition: &Partition) -> Result<(), Box<dyn Error>> {
    let mut acknowledged = Vec::new();
    for number in 0..BATCHES {
        let appended = partition.append(batch(number))?;
        acknowledged.push(partition.reached(appended.due));
    }
    for one in acknowledged {
        one.await?;
    }
    Ok(())
}

fn batch(number: usize) -> RecordBatch {
    let mut batch = BatchBuilder::new(Codec::None);
    for record in 0..RECORDS_A_BATCH {
        let value = format!("measurement {}", number * RECORDS_A_BATCH + record);
        batch.push(&NewRecord::value(now(), value.as_bytes()));
    }
    batch.build()
}

/// Reads what the other task appends, as it becomes durable; says how many records came.
async fn follow(partition: &Partition) -> Result<usize, Box<dyn Error>> {
    let mut follow = partition.follow(partition.cursors().high_watermark);
    let mut records = 0;
    while records < BATCHES * RECORDS_A_BATCH {
        let batch = follow.next().await?;
        for record in RecordsIter::new(batch.header(), batch.payload()) {
            let expected = format!("measurement {records}");
            assert_eq!(record?.value, Some(expected.as_bytes()));
            records += 1;
        }
    }
    Ok(records)
}
