//! What is left when ids and epochs of producers are used up.

use std::collections::HashSet;

use kafka_protocol::messages::InitProducerIdRequest;
use uringlog::format::batch::{Codec, RecordBatch};
use uringlog::format::kraft::MetadataRecord;
use uringlog::format::record::{BatchBuilder, NewRecord};
use uringlog::shard::edge::{self, EdgeKind};
use uringlog::units::{BrokerId, ProducerId};

use crate::starts::append;
use crate::support::batch::{now, of, sequenced};
use crate::support::client::Client;
use crate::support::process::Launch;
use crate::transactions::client::{Cluster, named};

const UNKNOWN_SERVER_ERROR: i16 = -1;
const PRODUCER_FENCED: i16 = 90;

/// Ids that are given out at a time, and of which two more blocks would be too many.
const BLOCK: i64 = 1000;
const NEXT: i64 = i64::MAX - BLOCK - 1;

/// The largest epoch that a client gets; the one behind it shuts it out.
const EPOCH_LAST: i16 = i16::MAX - 1;

fn blocks_are_given_up_to(next: i64) -> RecordBatch {
    let (broker, next) = (BrokerId(1), ProducerId(next));
    let value = MetadataRecord::ProducerIds { broker, broker_epoch: 0, next }.encode();
    let mut builder = BatchBuilder::new(Codec::None);
    let value = Some(value.as_slice());
    builder.push(&NewRecord { timestamp: now(), key: None, value, headers: &[] });
    builder.build()
}

fn init(client: &mut Client) -> Result<i64, i16> {
    let request =
        InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(1);
    let answer = client.call(&request, 2);
    match answer.error_code {
        0 => Ok(answer.producer_id.0),
        code => Err(code),
    }
}

/// Kafka's coordinators say COORDINATOR_LOAD_IN_PROGRESS for ever, and clients try for ever.
#[test]
fn when_all_producer_ids_are_given_out_clients_are_told_and_the_others_go_on() {
    let launch = Launch::new("uring");
    let (stopped, launch) = launch.start().stop();
    assert!(stopped.status.success(), "{}", stopped.output);
    let appending = append(launch.place(), ("__cluster_metadata", 0), blocks_are_given_up_to(NEXT));
    edge::run(EdgeKind::Tokio, appending).expect("the runtime starts");
    let broker = launch.start();
    let mut client = broker.connect();
    client.create("topic", 1, &[]);
    let given: Vec<i64> = (0..BLOCK).map(|_| init(&mut client).expect("one of a block")).collect();
    assert!(given.iter().all(|id| (NEXT..NEXT + BLOCK).contains(id)), "{given:?}");
    assert_eq!(given.iter().collect::<HashSet<_>>().len(), given.len(), "no id twice");
    for _ in 0..3 {
        assert_eq!(init(&mut client), Err(UNKNOWN_SERVER_ERROR));
    }
    let last = (given[given.len() - 1], 0);
    assert_eq!(client.accepted("topic", 0, sequenced(last, 0, &["a".to_owned()])), 0);
    assert_eq!(client.accepted("topic", 0, of(&["b"])), 1);
    let broker = broker.kill().start();
    assert_eq!(init(&mut broker.connect()), Err(UNKNOWN_SERVER_ERROR));
}

/// Requests that are sent ahead of their answers.
const DEPTH: u32 = 64;

#[test]
fn a_transactional_id_whose_epochs_are_used_up_goes_on_with_another_producer_id() {
    let launch = Launch::new("uring").with(&["--durability", "page-cache"]);
    let cluster = Cluster::new(launch.start());
    let start = cluster.init("copier", 60_000);
    let mut client = cluster.coordinator("copier");
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(named("copier")))
        .with_transaction_timeout_ms(60_000)
        .with_producer_id((-1).into())
        .with_producer_epoch(-1);
    let (mut seen, mut next) = (vec![start], (start.0, start.1 + 1));
    while next.0 == start.0 {
        for _ in 0..DEPTH {
            client.post(&request, 4).expect("the server reads");
        }
        for _ in 0..DEPTH {
            let answer = client.collect::<InitProducerIdRequest>(4).expect("the server answers");
            assert_eq!(answer.error_code, 0, "after {next:?}");
            next = (answer.producer_id.0, answer.producer_epoch);
            seen.push(next);
        }
    }
    let of_first: Vec<i16> = seen.iter().filter(|it| it.0 == start.0).map(|it| it.1).collect();
    assert_eq!(of_first, (start.1..=EPOCH_LAST).collect::<Vec<_>>());
    let of_second: Vec<i16> = seen.iter().filter(|it| it.0 == next.0).map(|it| it.1).collect();
    assert_eq!(of_second, (0..=next.1).collect::<Vec<_>>());
    // Who had the old id is out, and the newest may begin.
    let cluster = Cluster::new(cluster.broker.kill().start());
    cluster.broker.connect().create("topic", 1, &[]);
    assert_ne!(cluster.add("copier", (start.0, EPOCH_LAST), ("topic", &[0])), [0]);
    let old = (next.0, next.1 - 1);
    assert_eq!(cluster.end(("copier", 4), old, true), Err(PRODUCER_FENCED));
    assert_eq!(cluster.add("copier", next, ("topic", &[0])), [0]);
    assert_eq!(cluster.end(("copier", 4), next, true), Ok((-1, -1)));
}
