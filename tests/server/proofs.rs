//! In the device tier nothing shows a record before its sync: the fault hook holds the sync back.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use kafka_protocol::messages::{FetchRequest, ProduceRequest};
use tempfile::TempDir;
use uringlog::broker::Server;
use uringlog::broker::config::{ServerConfig, Sources};
use uringlog::broker::server::{EngineChoice, ServerOptions};
use uringlog::disk::faults::FaultHook;
use uringlog::format::batch::RecordBatch;
use uringlog::format::names::TopicName;
use uringlog::log::{Durability, LogConfig};
use uringlog::shard::edge::{self, EdgeKind};
use uringlog::shard::{Engine, EngineKind, EngineOptions, JournalStats, Partition, PartitionSpec};
use uringlog::units::{ByteCount, LeaderEpoch, Offset, PartitionId, Timestamp, TopicId};

use crate::support::batch::{self, of};
use crate::support::client::{Client, FETCH, PRODUCE, fetch_request, only, produce_request};
use crate::support::wait;

const EIO: i32 = 5;

/// How long something that must not come is waited for.
const LONG_ENOUGH: Duration = Duration::from_millis(300);

/// A server in this process whose syncs the test holds.
struct Held {
    server: Server,
    faults: FaultHook,
    _directory: TempDir,
}

impl Held {
    fn start(engine: EngineChoice, durability: Durability, has_journal: bool) -> Held {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let faults = FaultHook::new();
        let enable = format!("journal.enable={has_journal}");
        let set = vec![enable, "journal.bytes=4194304".to_owned()];
        let sources = Sources { durability: Some(durability), set, ..Sources::default() };
        let options = ServerOptions {
            config: ServerConfig::load(&sources).expect("the defaults are valid"),
            directory: directory.path().to_owned(),
            listen: "127.0.0.1:0".parse().expect("an address"),
            advertise: None,
            shards: 1,
            engine,
            log_levels: None,
            faults: Some(faults.clone()),
        };
        let server = Server::start(options).expect("it starts");
        Held { server, faults, _directory: directory }
    }

    /// How the only shard's journal is.
    fn journal(&self) -> JournalStats {
        let monitor = self.server.monitor();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let stats = runtime.block_on(async { monitor.stats().await });
        stats.expect("it runs")[0].journal.expect("it has a journal")
    }

    fn connect(&self) -> Client {
        Client::open(self.server.addresses().next().expect("one shard").port())
    }
}

/// Neither fetch nor ListOffsets shows anything at or beyond `end`.
fn assert_ends_at(client: &mut Client, end: i64) {
    let answer = client.fetch("topic", 0, end, 1 << 20);
    assert_eq!((answer.error_code, answer.high_watermark), (0, end));
    assert_eq!(answer.last_stable_offset, end);
    assert!(answer.records.is_none_or(|records| records.is_empty()), "a record shows");
    assert_eq!(client.list_offset("topic", 0, -1), (0, end), "latest");
    let all = client.fetch("topic", 0, 0, 1 << 20);
    let seen = batch::records(&all.records.expect("the first record"));
    assert_eq!(seen.len(), usize::try_from(end).expect("small"));
    let (_, newest) = client.list_offset("topic", 0, -3);
    assert!(newest < end, "largest timestamp: {newest}");
}

fn prove(engine: EngineChoice, acks: i16, has_journal: bool) {
    let held = Held::start(engine, Durability::Device, has_journal);
    let mut client = held.connect();
    client.create("topic", 1, &[]);
    client.accepted("topic", 0, of(&["durable"]));
    held.faults.hold_syncs();
    let sent_at = batch::now().0;

    let (told, answers) = mpsc::channel();
    let mut producer = held.connect();
    let producing = std::thread::spawn(move || {
        let request = produce_request("topic", 0, of(&["held"]).into(), acks);
        producer.post(&request, PRODUCE).expect("the server reads");
        let answer = producer.collect::<ProduceRequest>(PRODUCE).expect("the server answers");
        told.send(only(answer)).expect("the test waits");
    });
    let mut waiting = held.connect();
    let patient = fetch_request("topic", 0, 1, 1 << 20).with_min_bytes(1).with_max_wait_ms(60_000);
    waiting.post(&patient, FETCH).expect("the server reads");

    wait::until("the sync stands still", || 0 < held.faults.syncs_waiting());
    let until = Instant::now() + LONG_ENOUGH;
    while Instant::now() < until {
        assert_ends_at(&mut client, 1);
        let (_, later) = client.list_offset("topic", 0, sent_at + 1_000_000);
        assert_eq!(later, -1, "by time");
        assert!(answers.try_recv().is_err(), "it is answered");
    }

    held.faults.release_syncs();
    let answer = answers.recv_timeout(wait::PATIENCE).expect("it is answered now");
    assert_eq!((answer.error_code, answer.base_offset), (0, 1));
    producing.join().expect("it is over");
    assert_ends_at(&mut client, 2);
    let woken = waiting.collect::<FetchRequest>(FETCH).expect("the server answers");
    let records = woken.responses[0].partitions[0].records.clone().expect("a record");
    assert_eq!(batch::records(&records), [(1, b"held".to_vec())]);
    held.server.stop().expect("a clean stop");
}

#[test]
fn while_the_ring_holds_a_sync_no_answer_fetch_or_listoffsets_shows_the_record() {
    prove(EngineChoice::Uring, 1, false);
    prove(EngineChoice::Uring, -1, false);
}

#[test]
fn while_plain_files_hold_a_sync_no_answer_fetch_or_listoffsets_shows_the_record() {
    prove(EngineChoice::PlainFile, 1, false);
    prove(EngineChoice::PlainFile, -1, false);
}

#[test]
fn while_the_journals_write_is_held_no_answer_fetch_or_listoffsets_shows_the_record() {
    for engine in [EngineChoice::Uring, EngineChoice::PlainFile] {
        prove(engine, 1, true);
        prove(engine, -1, true);
    }
}

#[test]
fn the_page_cache_tier_answers_without_a_sync() {
    for engine in [EngineChoice::Uring, EngineChoice::PlainFile] {
        let held = Held::start(engine, Durability::PageCache, true);
        let mut client = held.connect();
        client.create("topic", 1, &[]);
        held.faults.hold_syncs();
        assert_eq!(client.accepted("topic", 0, of(&["written"])), 0);
        assert_eq!(client.end("topic", 0), 1);
        held.faults.release_syncs();
        held.server.stop().expect("a clean stop");
    }
}

#[test]
fn after_a_failed_sync_the_partition_is_offline_and_the_record_never_shows() {
    for engine in [EngineChoice::Uring, EngineChoice::PlainFile] {
        let held = Held::start(engine, Durability::Device, false);
        let mut client = held.connect();
        client.create("topic", 1, &[]);
        client.create("other", 1, &[]);
        client.accepted("topic", 0, of(&["durable"]));
        held.faults.fail_sync(1, EIO);
        let refused = client.produce("topic", 0, of(&["lost"]));
        assert_eq!(refused.error_code, 56, "KAFKA_STORAGE_ERROR: {refused:?}");
        let again = client.produce("topic", 0, of(&["lost"]));
        assert_eq!(again.error_code, 56, "it stays offline: {again:?}");
        let answer = client.fetch("topic", 0, 1, 1 << 20);
        assert!(answer.records.is_none_or(|records| records.is_empty()), "a record shows");
        assert_eq!(client.accepted("other", 0, of(&["fine"])), 0);
    }
}

/// A record of the journal that fails stops nobody: its plans sync their own files, and so does
/// everybody until the journal works again.
#[test]
fn after_a_failed_write_of_the_journal_files_are_synced_and_the_journal_comes_back() {
    for engine in [EngineChoice::Uring, EngineChoice::PlainFile] {
        let held = Held::start(engine, Durability::Device, true);
        let mut client = held.connect();
        client.create("topic", 1, &[]);
        client.accepted("topic", 0, of(&["durable"]));
        let before = held.journal();
        held.faults.fail_sync(1, EIO);
        assert_eq!(client.accepted("topic", 0, of(&["by its own sync"])), 1);
        wait::until("the journal takes plans again", || {
            client.accepted("topic", 0, of(&["more"]));
            let now = held.journal();
            now.is_serving && before.counters.plans + 3 < now.counters.plans
        });
        let end = client.end("topic", 0);
        let stored = batch::consume(&mut client, "topic", 0, 0);
        let offsets: Vec<i64> = stored.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, (0..end).collect::<Vec<_>>());
        assert_eq!(stored[1].1, b"by its own sync");
        held.server.stop().expect("a clean stop");
    }
}

/// The same through the library's face.
async fn prove_embedded(kind: EngineKind) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let faults = FaultHook::new();
    let mut options = EngineOptions::new(directory.path(), kind);
    options.faults = Some(faults.clone());
    let engine = Engine::start(options).expect("it starts");
    let partition = engine.create(spec()).await.expect("it is made");
    let first = append(&partition, "durable");
    reached(&partition, first).await;

    faults.hold_syncs();
    let due = append(&partition, "held");
    let acknowledged = tokio::time::timeout(LONG_ENOUGH, partition.reached(due)).await;
    assert!(acknowledged.is_err(), "{kind:?}: acknowledged before the sync");
    assert_eq!(faults.syncs_waiting(), 1);
    let cursors = partition.cursors();
    assert_eq!((cursors.high_watermark, cursors.durable_end), (Offset(1), Offset(1)));
    assert_eq!(cursors.next, Offset(2));
    let hidden = partition.read(Offset(1), ByteCount(1 << 20)).await.expect("in range");
    assert!(hidden.is_empty(), "{kind:?}: a read shows the record");
    let all = partition.read(Offset(0), ByteCount(1 << 20)).await.expect("in range");
    assert_eq!(batch::records(&all).len(), 1);
    let newest = partition.offset_of_max_timestamp().await.expect("in range");
    assert!(newest.is_none_or(|(_, offset, _)| offset < Offset(1)), "{kind:?}: {newest:?}");
    let by_time = partition.offset_for_timestamp(Timestamp(i64::MAX)).await.expect("in range");
    assert_eq!(by_time, None);

    faults.release_syncs();
    reached(&partition, due).await;
    let shown = partition.read(Offset(1), ByteCount(1 << 20)).await.expect("in range");
    assert_eq!(batch::records(&shown), [(1, b"held".to_vec())]);
    assert!(engine.close().await.is_empty(), "everything is closed");
}

fn spec() -> PartitionSpec {
    PartitionSpec {
        topic: TopicName::new("topic").expect("a name"),
        partition: PartitionId(0),
        topic_id: TopicId([7; 16]),
        config: LogConfig::defaults(Durability::Device),
        leader_epoch: LeaderEpoch(0),
    }
}

fn append(partition: &Partition, value: &str) -> Offset {
    let batch = RecordBatch::decode(BytesMut::from(&of(&[value])[..])).expect("a batch");
    partition.append(batch).expect("it is accepted").due
}

async fn reached(partition: &Partition, due: Offset) {
    let reached = tokio::time::timeout(wait::PATIENCE, partition.reached(due)).await;
    reached.expect("in time").expect("it is durable");
}

#[test]
fn while_a_sync_is_held_the_library_acknowledges_and_shows_nothing() {
    for kind in [EngineKind::Ring, EngineKind::PlainFile] {
        edge::run(EdgeKind::Uring, prove_embedded(kind)).expect("the runtime starts");
    }
}
