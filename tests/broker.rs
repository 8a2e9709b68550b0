//! A broker in this process, driven over the network by the wire layer's client: topics, records,
//! restarts, shards. Every case runs with both engines.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use uringlog::broker::config::{ServerConfig, Sources};
use uringlog::broker::{EngineChoice, Server, ServerOptions, StartError};
use uringlog::client::{
    Acks, Client, ClientError, ClientOptions, FetchFrom, FetchLimits, NewTopic, Target, timestamp,
};
use uringlog::disk::faults::FaultHook;
use uringlog::format::batch::{BatchHeader, Codec, RecordBatch};
use uringlog::format::record::{BatchBuilder, NewRecord, RecordsIter};
use uringlog::units::{Timestamp, usize_of};
use uringlog::wire::error::ErrorCode;

const ENGINES: [EngineChoice; 2] = [EngineChoice::Uring, EngineChoice::PlainFile];

/// What a test starts a broker with.
#[derive(Clone)]
struct Setup {
    engine: EngineChoice,
    shards: usize,
    set: Vec<&'static str>,
    faults: Option<FaultHook>,
}

impl Setup {
    fn new(engine: EngineChoice, shards: usize) -> Setup {
        Setup { engine, shards, set: Vec::new(), faults: None }
    }

    fn options(&self, directory: &Path) -> ServerOptions {
        let set = self.set.iter().map(|setting| (*setting).to_owned()).collect();
        let sources = Sources { set, ..Sources::default() };
        ServerOptions {
            config: ServerConfig::load(&sources).expect("valid settings"),
            directory: directory.to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            shards: self.shards,
            engine: self.engine,
            log_levels: None,
            faults: self.faults.clone(),
        }
    }

    fn start(&self, directory: &Path) -> Server {
        Server::start(self.options(directory)).expect("the broker starts")
    }
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Runs the client's side of a test.
fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

async fn client(server: &Server) -> Client {
    let address = server.addresses().next().expect("there is a shard").to_string();
    let options = ClientOptions { timeout: Duration::from_secs(10), ..ClientOptions::default() };
    Client::connect(&address, options).await.expect("the broker answers")
}

fn topic(name: &str, partitions: i32) -> NewTopic {
    NewTopic { name: name.to_owned(), partitions, replication_factor: 1, configs: Vec::new() }
}

fn batch(values: &[&str]) -> Bytes {
    batch_at(values, Timestamp(1_700_000_000_000))
}

/// A batch whose records lie a millisecond apart.
fn batch_at(values: &[&str], first: Timestamp) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    for (value, delta) in values.iter().zip(0..) {
        builder.push(&NewRecord::value(Timestamp(first.0 + delta), value.as_bytes()));
    }
    builder.build().freeze()
}

fn to(topic: &str, partition: i32) -> Target<'_> {
    Target { topic, partition, acks: Acks::All }
}

fn from(topic: &str, partition: i32, offset: i64) -> FetchFrom {
    FetchFrom { topic: topic.to_owned(), partition, offset, bytes_max: 1 << 20 }
}

/// The values of whole batches.
fn values(records: Bytes) -> Vec<String> {
    let mut rest = BytesMut::from(records);
    let mut values = Vec::new();
    while !rest.is_empty() {
        let header = BatchHeader::decode(&rest).expect("a whole batch");
        let size = usize_of(header.size.0);
        let batch = RecordBatch::decode(rest.split_to(size)).expect("a valid batch");
        for record in RecordsIter::new(&header, batch.payload()) {
            let value = record.expect("a valid record").value.expect("not null");
            values.push(String::from_utf8(value.to_vec()).expect("text"));
        }
    }
    values
}

async fn fetch(client: &Client, topic: &str, partition: i32, offset: i64) -> Vec<String> {
    let limits = FetchLimits { wait_max_ms: 0, ..FetchLimits::default() };
    let fetched = client.fetch(&from(topic, partition, offset), limits).await;
    values(fetched.expect("the partition is readable").records)
}

fn code<T: std::fmt::Debug>(outcome: Result<T, ClientError>) -> ErrorCode {
    let error = outcome.expect_err("the broker refuses");
    error.code().unwrap_or_else(|| panic!("refused by a code, not by: {error}"))
}

#[test]
fn records_come_back_from_every_partition_of_two_shards() {
    for engine in ENGINES {
        let directory = temporary();
        let server = Setup::new(engine, 2).start(directory.path());
        block_on(async {
            let client = client(&server).await;
            client.create_topic(&topic("flights", 4)).await.expect("a new topic");
            let cluster = client.metadata(Some(&["flights"])).await.expect("metadata");
            assert_eq!(cluster.brokers.len(), 2);
            assert_eq!(cluster.controller, 1);
            let leaders: Vec<i32> =
                cluster.topics[0].partitions.iter().map(|partition| partition.leader).collect();
            assert!(leaders.contains(&1) && leaders.contains(&2), "{leaders:?}");
            for partition in 0..4 {
                let (one, two) = (format!("{partition}-a"), format!("{partition}-b"));
                let first = client.produce(to("flights", partition), batch(&[&one])).await;
                assert_eq!(first.expect("appended").base_offset, 0);
                let second = client.produce(to("flights", partition), batch(&[&two])).await;
                assert_eq!(second.expect("appended").base_offset, 1);
                assert_eq!(fetch(&client, "flights", partition, 0).await, [one, two.clone()]);
                assert_eq!(fetch(&client, "flights", partition, 1).await, [two]);
                assert!(fetch(&client, "flights", partition, 2).await.is_empty());
            }
        });
        server.stop().expect("a clean stop");
    }
}

#[test]
fn a_restart_keeps_topics_ids_records_and_producer_ids() {
    for engine in ENGINES {
        let directory = temporary();
        let setup = Setup::new(engine, 2);
        let server = setup.start(directory.path());
        let (id, producer) = block_on(async {
            let client = client(&server).await;
            let mut new = topic("kept", 3);
            new.configs.push(("retention.ms".to_owned(), "-1".to_owned()));
            let id = client.create_topic(&new).await.expect("a new topic");
            for partition in 0..3 {
                client.produce(to("kept", partition), batch(&["x"])).await.expect("appended");
            }
            (id, client.init_producer_id().await.expect("an id"))
        });
        server.stop().expect("a clean stop");
        assert!(directory.path().join(".kafka_cleanshutdown").exists());
        let server = setup.start(directory.path());
        assert!(!directory.path().join(".kafka_cleanshutdown").exists());
        block_on(async {
            let client = client(&server).await;
            let cluster = client.metadata(None).await.expect("metadata");
            assert_eq!(cluster.topics.iter().map(|topic| topic.id).collect::<Vec<_>>(), [id]);
            for partition in 0..3 {
                assert_eq!(fetch(&client, "kept", partition, 0).await, ["x"]);
            }
            let configs = client.describe_configs("kept").await.expect("described");
            let own: Vec<_> = configs.iter().filter(|entry| entry.is_set_on_topic()).collect();
            assert_eq!(own.len(), 1);
            assert_eq!(own[0].value.as_deref(), Some("-1"));
            let next = client.init_producer_id().await.expect("an id");
            assert!(producer.id < next.id, "{producer:?} {next:?}");
        });
        server.stop().expect("a clean stop");
    }
}

#[test]
fn a_deleted_topic_is_gone_and_its_name_free() {
    for engine in ENGINES {
        let directory = temporary();
        let setup = Setup::new(engine, 2);
        let server = setup.start(directory.path());
        block_on(async {
            let client = client(&server).await;
            let first = client.create_topic(&topic("short", 2)).await.expect("a new topic");
            client.produce(to("short", 0), batch(&["old"])).await.expect("appended");
            client.delete_topic("short").await.expect("deleted");
            assert_eq!(
                code(client.delete_topic("short").await),
                ErrorCode::UnknownTopicOrPartition
            );
            let again = client.create_topic(&topic("short", 2)).await.expect("a new topic");
            assert_ne!(first, again);
            assert!(fetch(&client, "short", 0, 0).await.is_empty());
        });
        let names = || std::fs::read_dir(directory.path()).expect("listed");
        let names = names().map(|entry| entry.expect("an entry").file_name().into_string());
        let deleted = names.filter(|name| name.as_ref().is_ok_and(|it| it.ends_with("-delete")));
        assert_eq!(deleted.count(), 2);
        server.stop().expect("a clean stop");
    }
}

#[test]
fn topics_that_may_not_be_made_are_refused_with_their_code() {
    let directory = temporary();
    let server = Setup::new(EngineChoice::PlainFile, 1).start(directory.path());
    block_on(async {
        let client = client(&server).await;
        client.create_topic(&topic("a.b", 1)).await.expect("a new topic");
        let with = |name: &str, value: &str| NewTopic {
            configs: vec![(name.to_owned(), value.to_owned())],
            ..topic("configured", 1)
        };
        let cases = [
            (topic("a.b", 1), ErrorCode::TopicAlreadyExists),
            (topic("a_b", 1), ErrorCode::InvalidTopicException),
            (topic("no/slash", 1), ErrorCode::InvalidTopicException),
            (topic("__cluster_metadata", 1), ErrorCode::InvalidRequest),
            (topic("none", 0), ErrorCode::InvalidPartitions),
            (
                NewTopic { replication_factor: 2, ..topic("two", 1) },
                ErrorCode::InvalidReplicationFactor,
            ),
            (with("retention.mss", "1"), ErrorCode::InvalidConfig),
            (with("segment.bytes", "12"), ErrorCode::InvalidConfig),
        ];
        for (new, expected) in cases {
            assert_eq!(code(client.create_topic(&new).await), expected, "{new:?}");
        }
        let cluster = client.metadata(None).await.expect("metadata");
        assert_eq!(cluster.topics.len(), 1);
    });
    server.stop().expect("a clean stop");
}

#[test]
fn a_topic_is_made_when_it_is_asked_for_and_only_if_that_is_allowed() {
    for (set, expected) in [
        ("auto.create.topics.enable=true", ErrorCode::None),
        ("auto.create.topics.enable=false", ErrorCode::UnknownTopicOrPartition),
    ] {
        let directory = temporary();
        let mut setup = Setup::new(EngineChoice::PlainFile, 2);
        setup.set = vec![set, "num.partitions=3"];
        let server = setup.start(directory.path());
        block_on(async {
            let address = server.addresses().next().expect("a shard").to_string();
            let options = ClientOptions { auto_create: true, ..ClientOptions::default() };
            let client = Client::connect(&address, options).await.expect("connected");
            let cluster = client.metadata(Some(&["wanted"])).await.expect("metadata");
            assert_eq!(cluster.topics[0].error_code, expected.to_wire());
            let partitions = if expected.is_none() { 3 } else { 0 };
            assert_eq!(cluster.topics[0].partitions.len(), partitions);
        });
        server.stop().expect("a clean stop");
    }
}

#[test]
fn offsets_are_found_by_time() {
    for engine in ENGINES {
        let directory = temporary();
        let server = Setup::new(engine, 1).start(directory.path());
        block_on(async {
            let client = client(&server).await;
            client.create_topic(&topic("timed", 1)).await.expect("a new topic");
            let empty = client.list_offsets("timed", 0, timestamp::MAX).await.expect("an answer");
            assert_eq!(empty.offset, -1);
            for start in [1_000, 3_000, 2_000] {
                let batch = batch_at(&["a", "b"], Timestamp(start));
                client.produce(to("timed", 0), batch).await.expect("appended");
            }
            for (target, expected) in [
                (timestamp::EARLIEST, (0, -1)),
                (timestamp::EARLIEST_LOCAL, (0, -1)),
                (timestamp::LATEST, (6, -1)),
                (timestamp::MAX, (3, 3_001)),
                (0, (0, 1_000)),
                (1_001, (1, 1_001)),
                (1_002, (2, 3_000)),
                (3_002, (-1, -1)),
            ] {
                let found = client.list_offsets("timed", 0, target).await.expect("an answer");
                assert_eq!((found.offset, found.timestamp), expected, "target {target}");
            }
        });
        server.stop().expect("a clean stop");
    }
}

#[test]
fn a_long_poll_ends_with_the_record_and_not_before() {
    for engine in ENGINES {
        let directory = temporary();
        let server = Setup::new(engine, 1).start(directory.path());
        block_on(async {
            let reader = client(&server).await;
            let writer = client(&server).await;
            writer.create_topic(&topic("slow", 1)).await.expect("a new topic");
            let limits = FetchLimits { wait_max_ms: 300, ..FetchLimits::default() };
            let start = Instant::now();
            let place = from("slow", 0, 0);
            let nothing = reader.fetch(&place, limits).await.expect("an empty answer");
            assert!(nothing.records.is_empty());
            assert!(start.elapsed() >= Duration::from_millis(300));
            let limits = FetchLimits { wait_max_ms: 60_000, ..FetchLimits::default() };
            let (fetched, produced) = tokio::join!(
                reader.fetch(&place, limits),
                writer.produce(to("slow", 0), batch(&["there"]))
            );
            produced.expect("appended");
            assert_eq!(values(fetched.expect("woken").records), ["there"]);
        });
        server.stop().expect("a clean stop");
    }
}

#[test]
fn until_the_sync_is_over_nobody_sees_the_record() {
    for engine in ENGINES {
        let directory = temporary();
        let faults = FaultHook::new();
        let setup = Setup { faults: Some(faults.clone()), ..Setup::new(engine, 1) };
        let server = setup.start(directory.path());
        block_on(async {
            let (writer, reader) = (client(&server).await, client(&server).await);
            writer.create_topic(&topic("held", 1)).await.expect("a new topic");
            faults.hold_syncs();
            let produce = writer.produce(to("held", 0), batch(&["secret"]));
            let look = async {
                while faults.syncs_waiting() == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let end = reader.list_offsets("held", 0, timestamp::LATEST).await;
                let shown = fetch(&reader, "held", 0, 0).await;
                faults.release_syncs();
                (end.expect("an answer").offset, shown)
            };
            let mut is_acknowledged = false;
            let acknowledged = async {
                let produced = produce.await;
                is_acknowledged = true;
                produced
            };
            let (produced, (end, shown)) = tokio::join!(acknowledged, look);
            assert_eq!(end, 0);
            assert!(shown.is_empty());
            assert_eq!(produced.expect("appended").base_offset, 0);
            assert!(is_acknowledged);
            assert_eq!(fetch(&reader, "held", 0, 0).await, ["secret"]);
        });
        server.stop().expect("a clean stop");
    }
}

#[test]
fn a_directory_in_use_a_damaged_one_and_a_port_in_use_are_named() {
    let directory = temporary();
    let setup = Setup::new(EngineChoice::PlainFile, 1);
    let server = setup.start(directory.path());
    let refused = Server::start(setup.options(directory.path()));
    let message = refused.err().expect("one process per directory").to_string();
    assert!(message.contains(".lock is held by process"), "{message}");
    let other = temporary();
    let taken = server.addresses().next().expect("a shard");
    let options = ServerOptions { listen: taken, ..setup.options(other.path()) };
    let refused = Server::start(options).err().expect("the port is in use");
    assert!(matches!(refused, StartError::Listen { .. }), "{refused}");
    assert!(refused.to_string().contains(&taken.to_string()), "{refused}");
    server.stop().expect("a clean stop");
    // A start that comes to nothing leaves the directory as clean as it was.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = taken.local_addr().expect("bound");
    let options = ServerOptions { listen, ..setup.options(directory.path()) };
    assert!(matches!(Server::start(options).err(), Some(StartError::Listen { .. })));
    assert!(directory.path().join(".kafka_cleanshutdown").exists());
    let file = directory.path().join("meta.properties");
    std::fs::write(&file, "version=1\nnode.id=1\ncluster.id=\n").expect("written");
    let refused = Server::start(setup.options(directory.path())).err().expect("it is damaged");
    assert!(refused.to_string().contains("meta.properties:3"), "{refused}");
}

/// Whoever mends the metadata log must not pay for the attempt with a recovery of all partitions.
#[test]
fn a_start_that_the_metadata_log_refuses_leaves_the_clean_marker() {
    for engine in ENGINES {
        let directory = temporary();
        let setup = Setup::new(engine, 1);
        let server = setup.start(directory.path());
        block_on(async {
            client(&server).await.create_topic(&topic("kept", 1)).await.expect("a new topic");
        });
        server.stop().expect("a clean stop");
        let marker = directory.path().join(".kafka_cleanshutdown");
        let log = directory.path().join("__cluster_metadata-0/00000000000000000000.log");
        let whole = std::fs::read(&log).expect("the metadata log");
        let mut damaged = whole.clone();
        // In the name of the first feature.
        damaged[80] ^= 1;
        std::fs::write(&log, damaged).expect("written");
        let refused = Server::start(setup.options(directory.path())).err().expect("it is damaged");
        assert!(refused.to_string().contains("__cluster_metadata-0"), "{refused}");
        assert!(marker.exists(), "{engine:?}");
        std::fs::write(&log, whole).expect("written");
        let server = setup.start(directory.path());
        assert!(!marker.exists(), "{engine:?}: it serves");
        let epoch = block_on(async {
            let cluster = client(&server).await.metadata(Some(&["kept"])).await.expect("metadata");
            cluster.topics[0].partitions[0].leader_epoch
        });
        assert_eq!(epoch, 0, "{engine:?}: recovery would have raised it");
        server.stop().expect("a clean stop");
    }
}

#[test]
fn foreign_directories_are_left_alone_and_the_broker_starts() {
    let directory = temporary();
    for name in ["no partition", "stranger-0"] {
        std::fs::create_dir(directory.path().join(name)).expect("made");
    }
    let setup = Setup::new(EngineChoice::PlainFile, 1);
    let server = setup.start(directory.path());
    block_on(async {
        let client = client(&server).await;
        assert!(client.metadata(None).await.expect("metadata").topics.is_empty());
    });
    server.stop().expect("a clean stop");
    for name in ["no partition", "stranger-0"] {
        assert!(directory.path().join(name).is_dir(), "{name} is left alone");
    }
}

/// Nothing is added to an older segment, so a reader of it has nothing to wait for there.
#[test]
fn a_fetch_from_an_older_segment_waits_for_nothing() {
    for engine in ENGINES {
        let directory = temporary();
        let server = Setup::new(engine, 1).start(directory.path());
        block_on(async {
            let client = client(&server).await;
            let mut new = topic("rolled", 1);
            new.configs.push(("segment.bytes".to_owned(), "1048576".to_owned()));
            client.create_topic(&new).await.expect("a new topic");
            let large = "x".repeat(600_000);
            for _ in 0..2 {
                client.produce(to("rolled", 0), batch(&[&large])).await.expect("appended");
            }
            // Longer than the client has patience.
            let limits =
                FetchLimits { wait_max_ms: 60_000, bytes_min: 1 << 20, ..FetchLimits::default() };
            let fetched = client.fetch(&from("rolled", 0, 0), limits).await.expect("at once");
            assert_eq!(values(fetched.records), [large]);
        });
        server.stop().expect("a clean stop");
    }
}

/// After a crash it would otherwise never be recovered, and its log start be forgotten.
#[test]
fn a_stop_is_unclean_while_a_partition_could_not_be_opened() {
    let directory = temporary();
    let setup = Setup::new(EngineChoice::PlainFile, 1);
    let server = setup.start(directory.path());
    block_on(async {
        let client = client(&server).await;
        client.create_topic(&topic("kept", 2)).await.expect("a new topic");
        client.produce(to("kept", 0), batch(&["x", "y"])).await.expect("appended");
    });
    server.stop().expect("a clean stop");
    let checkpoint = directory.path().join("recovery-point-offset-checkpoint");
    let checkpoint = || std::fs::read_to_string(&checkpoint).expect("written");
    let before = checkpoint();
    assert!(before.contains("kept 0 2"), "{before}");
    let metadata = directory.path().join("kept-0/partition.metadata");
    let sound = std::fs::read(&metadata).expect("written");
    std::fs::write(&metadata, "garbage").expect("writable");
    let unclean = setup.start(directory.path()).stop().expect_err("kept-0 is not open");
    assert!(unclean.to_string().contains("kept-0"), "{unclean}");
    assert!(!directory.path().join(".kafka_cleanshutdown").exists());
    assert_eq!(checkpoint(), before);
    std::fs::write(&metadata, sound).expect("writable");
    setup.start(directory.path()).stop().expect("a clean stop");
}
