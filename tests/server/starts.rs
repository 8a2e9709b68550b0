//! A start of two shards of which one is ready long before the other.

use std::path::Path;

use kafka_protocol::messages::DescribeTransactionsRequest;
use uringlog::broker::Server;
use uringlog::broker::config::{ServerConfig, Sources};
use uringlog::broker::server::{EngineChoice, ServerOptions};
use uringlog::coordinator::transactions::{
    Record, State, TopicPartition, Transaction, TransactionVersion, TransactionalId,
};
use uringlog::disk::faults::FaultHook;
use uringlog::format::batch::{Codec, RecordBatch};
use uringlog::format::names::TopicName;
use uringlog::format::record::{BatchBuilder, NewRecord};
use uringlog::log::{Durability, LogConfig};
use uringlog::shard::edge::{self, EdgeKind};
use uringlog::shard::{Engine, EngineKind, EngineOptions, PartitionSpec};
use uringlog::units::{LeaderEpoch, PartitionId, ProducerEpoch, ProducerId, TopicId};

use crate::support::batch::{now, transactional};
use crate::support::client::Client;
use crate::support::process::Launch;
use crate::support::wait;
use crate::transactions::client::{Cluster, Producer, named};

const PRODUCE: i16 = 12;
const TOPIC: &str = "topic";

/// A transaction over both partitions of the topic, one on each shard; its coordinator is on the
/// first one.
struct Open {
    id: String,
    producer: Producer,
    /// The partition of `__transaction_state`.
    coordinator: u32,
    /// A partition of another topic that the second shard has.
    other: usize,
}

fn begin(cluster: &Cluster) -> Open {
    let mut client = cluster.broker.connect();
    client.create(TOPIC, 2, &[]);
    client.create("other", 2, &[]);
    let ports = cluster.broker.ports();
    let mut names = (0..).map(|number| format!("copier-{number}"));
    let id = names.find(|name| cluster.coordinator_port(name) == ports[0]).expect("endless");
    let producer = cluster.init(&id, 600_000);
    for partition in 0..2 {
        let batch = transactional(producer, 0, &[&format!("of {partition}")]);
        assert_eq!(cluster.produce((&id, PRODUCE), (TOPIC, partition), batch), 0);
    }
    let mut led_by = |topic, port| {
        let mut leaders = client.leaders(topic).into_iter();
        leaders.position(|it| it == port).expect("each shard has one of two partitions")
    };
    let coordinator = u32::try_from(led_by("__transaction_state", ports[0])).expect("0 or 1");
    Open { id, producer, coordinator, other: led_by("other", ports[1]) }
}

/// The record that the end of the transaction is decided, and the markers are still to be written.
fn prepared(open: &Open) -> RecordBatch {
    let topic = TopicName::new(TOPIC).expect("a name");
    let partition =
        |number| TopicPartition { topic: topic.clone(), partition: PartitionId(number) };
    let epoch = ProducerEpoch(open.producer.1);
    let transaction = Transaction {
        producer_id: ProducerId(open.producer.0),
        previous_producer_id: ProducerId::NONE,
        next_producer_id: ProducerId::NONE,
        epoch,
        last_epoch: epoch,
        timeout_ms: 600_000,
        state: State::PrepareCommit,
        partitions: (0..2).map(partition).collect(),
        started: now(),
        updated: now(),
        version: TransactionVersion::Zero,
    };
    let id = TransactionalId::from(open.id.as_str());
    let (key, value) = Record { id, transaction: Some(transaction) }.encode();
    let mut builder = BatchBuilder::new(Codec::None);
    let (key, value) = (Some(key.as_slice()), value.as_deref());
    builder.push(&NewRecord { timestamp: now(), key, value, headers: &[] });
    builder.build()
}

/// Appends to a partition that no server has.
pub async fn append(directory: &Path, (topic, number): (&str, u32), batch: RecordBatch) {
    let options = EngineOptions::new(directory, EngineKind::PlainFile);
    let engine = Engine::start(options).expect("it starts");
    let spec = PartitionSpec {
        topic: TopicName::new(topic).expect("a name"),
        partition: PartitionId(number),
        topic_id: TopicId([7; 16]),
        config: LogConfig::defaults(Durability::Device),
        leader_epoch: LeaderEpoch(0),
    };
    let partition = engine.open_or_create(spec).await.expect("it is there");
    let due = partition.append(batch).expect("it is accepted").due;
    partition.reached(due).await.expect("it is durable");
    assert!(engine.close().await.is_empty(), "everything is closed");
}

fn start(engine: EngineChoice, directory: &Path, faults: FaultHook) -> Server {
    let set = vec!["journal.enable=false".to_owned()];
    let options = ServerOptions {
        config: ServerConfig::load(&Sources { set, ..Sources::default() }).expect("valid"),
        directory: directory.to_owned(),
        listen: "127.0.0.1:0".parse().expect("an address"),
        advertise: None,
        shards: 2,
        engine,
        log_levels: None,
        faults: Some(faults),
    };
    Server::start(options).expect("it starts")
}

fn state_of(client: &mut Client, id: &str) -> String {
    let request = DescribeTransactionsRequest::default().with_transactional_ids(vec![named(id)]);
    client.call(&request, 0).transaction_states.remove(0).transaction_state.to_string()
}

/// The second shard shows no topic while it makes a partition that is missing, and the first one
/// has a decided transaction to end meanwhile. A marker for a topic that isn't shown must wait: it
/// would be lost, and the partition stay unreadable for readers of committed records.
#[test]
fn markers_wait_for_a_shard_that_shows_no_topics_yet() {
    for engine in [EngineChoice::Uring, EngineChoice::PlainFile] {
        let launch = Launch::new("uring").shards(2).set("transaction.state.log.num.partitions=2");
        let cluster = Cluster::new(launch.start());
        let open = begin(&cluster);
        let (stopped, launch) = cluster.broker.stop();
        assert!(stopped.status.success(), "{}", stopped.output);
        let place = ("__transaction_state", open.coordinator);
        let appending = append(launch.place(), place, prepared(&open));
        edge::run(EdgeKind::Tokio, appending).expect("the runtime starts");
        let missing = launch.place().join(format!("other-{}", open.other));
        std::fs::remove_dir_all(missing).expect("it is there");

        let faults = FaultHook::new();
        faults.hold_syncs();
        let (directory, held) = (launch.place().to_owned(), faults.clone());
        let starting = std::thread::spawn(move || start(engine, &directory, held));
        // The missing partition on the second shard, and the marker on the first.
        wait::until("both shards stand still", || 2 <= faults.syncs_waiting());
        faults.release_syncs();
        let server = starting.join().expect("it starts");
        let first = server.addresses().next().expect("two shards");
        let mut client = Client::open(first.port());
        let is_over = |client: &mut Client| state_of(client, &open.id) == "CompleteCommit";
        wait::until("the transaction is over", || is_over(&mut client));
        server.stop().expect("a clean stop");

        let cluster = Cluster::new(launch.start());
        for partition in 0..2 {
            let number = usize::try_from(partition).expect("0 or 1");
            let end = cluster.leader(TOPIC, number).end(TOPIC, partition);
            assert_eq!(end, 2, "{engine:?}: a record and its marker");
            let expected = [format!("of {partition}")];
            assert_eq!(cluster.committed(TOPIC, partition), expected, "{engine:?}");
        }
    }
}
