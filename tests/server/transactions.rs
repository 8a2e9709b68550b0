//! Transactions over raw sockets, on two shards: what each version of the protocol does, what is
//! refused, what a kill leaves.

#[path = "transactions/client.rs"]
pub mod client;

use kafka_protocol::messages::{EndTxnRequest, InitProducerIdRequest, ProduceRequest};

use self::client::{Cluster, named};
use crate::admin::alter;
use crate::support::batch::transactional;
use crate::support::client::{only, produce_request};
use crate::support::process::Launch;
use crate::support::{ENGINES, wait};

const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const TOPIC_AUTHORIZATION_FAILED: i16 = 29;
const INVALID_REQUEST: i16 = 42;
const INVALID_PRODUCER_EPOCH: i16 = 47;
const INVALID_TXN_STATE: i16 = 48;
const INVALID_PRODUCER_ID_MAPPING: i16 = 49;
const INVALID_TRANSACTION_TIMEOUT: i16 = 50;
const TRANSACTIONAL_ID_AUTHORIZATION_FAILED: i16 = 53;
const UNSTABLE_OFFSET_COMMIT: i16 = 88;
const PRODUCER_FENCED: i16 = 90;
const TRANSACTIONAL_ID_NOT_FOUND: i16 = 105;
const TRANSACTION_ABORTABLE: i16 = 120;

/// Produce, EndTxn and TxnOffsetCommit of transaction version 2.
const PRODUCE_2: i16 = 12;
const END_2: i16 = 5;
const COMMIT_2: i16 = 5;
/// The last ones before it.
const PRODUCE_1: i16 = 11;
const END_1: i16 = 4;
const COMMIT_1: i16 = 4;

fn launch(engine: &str) -> Launch {
    let launch = Launch::new(engine).shards(2).with(&["--durability", "page-cache"]);
    launch.set("transaction.state.log.num.partitions=4").set("offsets.topic.num.partitions=4")
}

fn started(topic: &str, partitions: i32) -> Cluster {
    let cluster = Cluster::new(launch("uring").start());
    cluster.broker.connect().create(topic, partitions, &[]);
    cluster
}

#[test]
fn with_version_2_writing_adds_the_partition_and_every_end_raises_the_epoch() {
    for engine in ENGINES {
        let cluster = Cluster::new(launch(engine).start());
        cluster.broker.connect().create("topic", 4, &[]);
        let mut producer = cluster.init("copier", 60_000);
        let start = producer;
        for (number, commits) in [(0, true), (1, false), (2, true)] {
            for partition in 0..4 {
                let value = format!("{number} {commits}");
                let batch = transactional(producer, 0, &[&value]);
                assert_eq!(cluster.produce(("copier", PRODUCE_2), ("topic", partition), batch), 0);
            }
            assert_eq!(cluster.describe("copier").transaction_state.as_str(), "Ongoing");
            let ended = cluster.end(("copier", END_2), producer, commits);
            assert_eq!(ended, Ok((producer.0, producer.1 + 1)));
            producer.1 += 1;
        }
        assert_eq!(producer, (start.0, start.1 + 3));
        for partition in 0..4 {
            cluster.settled("topic", partition);
            assert_eq!(cluster.committed("topic", partition), ["0 true", "2 true"]);
        }
    }
}

#[test]
fn before_version_2_partitions_are_added_first_and_the_epoch_stays() {
    let cluster = started("topic", 2);
    let producer = cluster.init("copier", 60_000);
    let added = cluster.add("copier", producer, ("topic", &[0, 1]));
    assert_eq!(added, [0, 0]);
    assert_eq!(cluster.verify("copier", producer, ("topic", 1)), 0);
    let old = (producer.0, producer.1 - 1);
    assert_eq!(cluster.verify("copier", old, ("topic", 1)), PRODUCER_FENCED);
    for partition in 0..2 {
        let batch = transactional(producer, 0, &["first"]);
        assert_eq!(cluster.produce(("copier", PRODUCE_1), ("topic", partition), batch), 0);
    }
    assert_eq!(cluster.end(("copier", END_1), producer, true), Ok((-1, -1)));
    assert_eq!(cluster.end(("copier", END_1), producer, true), Ok((-1, -1)), "the answer was lost");
    assert_eq!(cluster.end(("copier", END_1), producer, false), Err(INVALID_TXN_STATE));
    assert_eq!(cluster.add("copier", producer, ("topic", &[1])), [0]);
    let batch = transactional(producer, 1, &["second"]);
    assert_eq!(cluster.produce(("copier", PRODUCE_1), ("topic", 1), batch), 0);
    assert_eq!(cluster.end(("copier", END_1), producer, false), Ok((-1, -1)));
    cluster.settled("topic", 1);
    assert_eq!(cluster.committed("topic", 1), ["first"]);
    // The whole request is refused when one of its partitions isn't there.
    let added = cluster.add("copier", producer, ("topic", &[0, 7]));
    assert_eq!(added, [55, UNKNOWN_TOPIC_OR_PARTITION]);
    let added = cluster.add("copier", producer, ("__transaction_state", &[0]));
    assert_eq!(added, [TOPIC_AUTHORIZATION_FAILED]);
}

#[test]
fn batches_outside_of_their_transaction_are_refused() {
    let cluster = started("topic", 1);
    let producer = cluster.init("copier", 60_000);
    let batch = || transactional(producer, 0, &["late"]);
    let place = ("topic", 0);
    assert_eq!(cluster.verify("copier", producer, place), TRANSACTION_ABORTABLE);
    assert_eq!(cluster.produce(("copier", PRODUCE_1), place, batch()), TRANSACTION_ABORTABLE);
    assert_eq!(cluster.produce(("copier", 10), place, batch()), INVALID_TXN_STATE);
    let strange = transactional((producer.0 + 500, 0), 0, &["of a stranger"]);
    let code = cluster.produce(("copier", PRODUCE_2), place, strange);
    assert_eq!(code, INVALID_PRODUCER_ID_MAPPING);
    let old = transactional((producer.0, producer.1 - 1), 0, &["of a zombie"]);
    let code = cluster.produce(("copier", PRODUCE_2), place, old);
    assert_eq!(code, INVALID_PRODUCER_EPOCH);
    let code = cluster.leader("topic", 0).produce("topic", 0, batch()).error_code;
    assert_eq!(code, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no transactional id");
    assert_eq!(cluster.leader("topic", 0).end("topic", 0), 0, "nothing was taken");
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let cluster = started("topic", 1);
    let producer = cluster.init("copier", 60_000);
    let mut client = cluster.coordinator("copier");
    let mut init = |name: &str, timeout_ms, producer: (i64, i16)| {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(named(name)))
            .with_transaction_timeout_ms(timeout_ms)
            .with_producer_id(producer.0.into())
            .with_producer_epoch(producer.1);
        client.call(&request, 5).error_code
    };
    assert_eq!(init("copier", 0, (-1, -1)), INVALID_TRANSACTION_TIMEOUT);
    assert_eq!(init("copier", 900_001, (-1, -1)), INVALID_TRANSACTION_TIMEOUT);
    assert_eq!(init("copier", 1000, (-1, 0)), INVALID_REQUEST);
    assert_eq!(init("copier", 1000, (producer.0, -1)), INVALID_REQUEST);
    assert_eq!(init("copier", 1000, (producer.0, producer.1 + 5)), PRODUCER_FENCED);
    assert_eq!(init("copier", 1000, (producer.0 + 1, producer.1)), PRODUCER_FENCED);
    let end = |name, producer, commits| cluster.end((name, END_2), producer, commits);
    assert_eq!(end("copier", producer, true), Err(INVALID_TXN_STATE), "nothing to commit");
    assert_eq!(end("copier", (producer.0, 30_000), true), Err(PRODUCER_FENCED));
    assert_eq!(end("copier", (producer.0 + 1, 0), true), Err(INVALID_PRODUCER_ID_MAPPING));
    // Any coordinator knows that it doesn't know the id.
    assert_eq!(end("nobody", producer, true), Err(INVALID_PRODUCER_ID_MAPPING));
    assert_eq!(cluster.describe("nobody").error_code, TRANSACTIONAL_ID_NOT_FOUND);
    let empty = EndTxnRequest::default().with_producer_id(producer.0.into());
    let code = cluster.coordinator("").call(&empty, END_2).error_code;
    assert_eq!(code, INVALID_REQUEST);
}

#[test]
fn a_newer_producer_shuts_the_older_one_out_and_aborts_what_it_left_open() {
    let cluster = started("topic", 1);
    let old = cluster.init("copier", 60_000);
    let batch = transactional(old, 0, &["of the zombie"]);
    assert_eq!(cluster.produce(("copier", PRODUCE_2), ("topic", 0), batch), 0);
    let new = cluster.init("copier", 60_000);
    assert!(new.0 == old.0 && old.1 < new.1, "{old:?} {new:?}");
    assert_eq!(cluster.end(("copier", END_2), old, true), Err(PRODUCER_FENCED));
    assert_eq!(cluster.end(("copier", 1), old, true), Err(INVALID_PRODUCER_EPOCH));
    let late = transactional(old, 1, &["late"]);
    let code = cluster.produce(("copier", PRODUCE_2), ("topic", 0), late);
    assert_eq!(code, INVALID_PRODUCER_EPOCH);
    let batch = transactional(new, 0, &["of its successor"]);
    assert_eq!(cluster.produce(("copier", PRODUCE_2), ("topic", 0), batch), 0);
    assert_eq!(cluster.end(("copier", END_2), new, true), Ok((new.0, new.1 + 1)));
    cluster.settled("topic", 0);
    assert_eq!(cluster.committed("topic", 0), ["of its successor"]);
}

#[test]
fn transactions_of_dead_clients_are_aborted_after_their_timeout() {
    let often = "transaction.abort.timed.out.transaction.cleanup.interval.ms=50";
    let cluster = Cluster::new(launch("uring").set(often).start());
    cluster.broker.connect().create("topic", 1, &[]);
    let dead = cluster.init("dead", 300);
    let batch = transactional(dead, 0, &["of the dead"]);
    assert_eq!(cluster.produce(("dead", PRODUCE_2), ("topic", 0), batch), 0);
    assert_eq!(cluster.stable("topic", 0), 0);
    wait::until("the server aborts it", || cluster.stable("topic", 0) == 2);
    wait::until("it is over", || {
        cluster.describe("dead").transaction_state.as_str() == "CompleteAbort"
    });
    let code = cluster.end(("dead", END_2), dead, true).expect_err("it is shut out");
    assert!([PRODUCER_FENCED, INVALID_TXN_STATE].contains(&code), "{code}");
    assert_eq!(cluster.committed("topic", 0), [""; 0]);
}

#[test]
fn batches_that_follow_one_another_wait_for_the_first_ones_word() {
    let cluster = started("topic", 1);
    let mut producer = cluster.init("copier", 60_000);
    let mut client = cluster.leader("topic", 0);
    for round in 0..3 {
        for sequence in 0..5 {
            let batch = transactional(producer, sequence, &[&format!("{round} {sequence}")]);
            let request = produce_request("topic", 0, batch.into(), -1);
            let request = request.with_transactional_id(Some(named("copier")));
            client.post(&request, PRODUCE_2).expect("it is sent");
        }
        for sequence in 0..5 {
            let answer = client.collect::<ProduceRequest>(PRODUCE_2).expect("it is answered");
            assert_eq!(only(answer).error_code, 0, "{round} {sequence}");
        }
        producer = cluster.end(("copier", END_2), producer, true).expect("it is committed");
        // The next one may begin while this one is still being ended: the server waits a little.
        cluster.settled("topic", 0);
    }
    let expected = (0..3).flat_map(|round| (0..5).map(move |it| format!("{round} {it}")));
    assert_eq!(cluster.committed("topic", 0), expected.collect::<Vec<_>>());
}

#[test]
fn ids_that_nobody_uses_are_forgotten_and_stay_so() {
    let launch = launch("uring")
        .set("transactional.id.expiration.ms=300")
        .set("transaction.remove.expired.transaction.cleanup.interval.ms=50");
    let cluster = Cluster::new(launch.start());
    cluster.broker.connect().create("topic", 1, &[]);
    let (unused, used) = (cluster.init("unused", 60_000), cluster.init("used", 60_000));
    let batch = transactional(used, 0, &["x"]);
    assert_eq!(cluster.produce(("used", PRODUCE_2), ("topic", 0), batch), 0);
    wait::until("the unused id is forgotten", || {
        cluster.describe("unused").error_code == TRANSACTIONAL_ID_NOT_FOUND
    });
    let ended = cluster.end(("unused", END_2), unused, false);
    assert_eq!(ended, Err(INVALID_PRODUCER_ID_MAPPING));
    assert_eq!(cluster.describe("used").transaction_state.as_str(), "Ongoing");
    let cluster = Cluster::new(cluster.broker.kill().start());
    assert_eq!(cluster.describe("unused").error_code, TRANSACTIONAL_ID_NOT_FOUND);
    let again = cluster.init("unused", 60_000);
    assert!(unused.0 < again.0 && again.1 == 0, "{unused:?} {again:?}");
}

#[test]
fn a_topic_may_be_deleted_under_a_transaction() {
    let cluster = started("stays", 1);
    cluster.broker.connect().create("goes", 2, &[]);
    let producer = cluster.init("copier", 60_000);
    for (topic, partition) in [("stays", 0), ("goes", 0), ("goes", 1)] {
        let batch = transactional(producer, 0, &["x"]);
        assert_eq!(cluster.produce(("copier", PRODUCE_2), (topic, partition), batch), 0);
    }
    cluster.broker.connect().delete("goes");
    let ended = cluster.end(("copier", END_2), producer, true);
    assert_eq!(ended, Ok((producer.0, producer.1 + 1)));
    cluster.settled("stays", 0);
    assert_eq!(cluster.committed("stays", 0), ["x"]);
    wait::until("the transaction is over", || {
        cluster.describe("copier").transaction_state.as_str() == "CompleteCommit"
    });
    // The producer goes on, also with a new topic of that name.
    cluster.broker.connect().create("goes", 2, &[]);
    let producer = (producer.0, producer.1 + 1);
    let batch = transactional(producer, 0, &["y"]);
    assert_eq!(cluster.produce(("copier", PRODUCE_2), ("goes", 1), batch), 0);
    assert_eq!(cluster.end(("copier", END_2), producer, true), Ok((producer.0, producer.1 + 1)));
    cluster.settled("goes", 1);
    assert_eq!(cluster.committed("goes", 1), ["y"]);
}

#[test]
fn offsets_count_when_their_transaction_is_committed() {
    let cluster = started("topic", 1);
    let mut producer = cluster.init("copier", 60_000);
    let place = ("group", "topic", 0);
    // With version 2 the commit adds the group to the transaction.
    let commit = |version, producer, offset| {
        cluster.commit_offset(("copier", version), producer, (place, offset))
    };
    assert_eq!(commit(COMMIT_1, producer, 5), TRANSACTION_ABORTABLE, "it was not added");
    assert_eq!(commit(3, producer, 5), INVALID_TXN_STATE);
    assert_eq!(commit(COMMIT_2, producer, 5), 0);
    assert_eq!(cluster.offset(place, true), (UNSTABLE_OFFSET_COMMIT, -1));
    assert_eq!(cluster.offset(place, false), (0, -1));
    producer = cluster.end(("copier", END_2), producer, true).expect("it is committed");
    wait::until("the offset counts", || cluster.offset(place, true) == (0, 5));
    assert_eq!(commit(COMMIT_2, producer, 9), 0);
    producer = cluster.end(("copier", END_2), producer, false).expect("it is aborted");
    wait::until("the transaction is over", || cluster.offset(place, true).0 == 0);
    assert_eq!(cluster.offset(place, true), (0, 5));
    // Before, AddOffsetsToTxn does.
    assert_eq!(cluster.add_offsets("copier", producer, "group"), 0);
    assert_eq!(commit(COMMIT_1, producer, 12), 0);
    assert_eq!(commit(0, producer, 13), 0);
    assert_eq!(cluster.end(("copier", END_1), producer, true), Ok((-1, -1)));
    wait::until("the offset counts", || cluster.offset(place, true) == (0, 13));
    let old = (producer.0, producer.1 - 1);
    assert_eq!(commit(COMMIT_2, old, 20), INVALID_PRODUCER_EPOCH);
    assert_eq!(cluster.offset(("stranger", "topic", 0), true), (0, -1));
}

/// A batch of which the coordinator knows nothing hangs for ever; an operator finds and ends it.
#[test]
fn without_verification_a_batch_of_an_old_client_is_taken_unasked() {
    let cluster = started("topic", 1);
    let place = ("topic", 0);
    let producer = cluster.init("hanging", 60_000);
    let send = |sequence| {
        let batch = transactional(producer, sequence, &["late"]);
        cluster.produce(("hanging", PRODUCE_1), place, batch)
    };
    let verifies = |value| {
        let mut client = cluster.broker.connect();
        let name = "transaction.partition.verification.enable";
        // 4: a broker; 0: set, 1: unset.
        assert_eq!(alter(&mut client, (4, ""), (name, i8::from(value), Some("false")), false), 0);
    };
    assert_eq!(send(0), TRANSACTION_ABORTABLE);
    verifies(false);
    assert_eq!(send(0), 0);
    verifies(true);
    assert_eq!(send(1), 0, "the transaction is open");
    assert_eq!(cluster.describe("hanging").transaction_state.as_str(), "Empty");
    assert_eq!(cluster.stable("topic", 0), 0);
    assert_eq!(cluster.producers("topic", 0)[0].current_txn_start_offset, 0);
    assert_eq!(cluster.write_marker("topic", 0, (producer, false)), 0);
    cluster.settled("topic", 0);
    assert_eq!(send(2), TRANSACTION_ABORTABLE);
}

#[test]
fn an_operator_sees_transactions_and_ends_one_that_hangs() {
    let cluster = started("topic", 1);
    let producer = cluster.init("hanging", 60_000);
    let batch = transactional(producer, 0, &["x", "y"]);
    assert_eq!(cluster.produce(("hanging", PRODUCE_2), ("topic", 0), batch), 0);
    let seen = cluster.producers("topic", 0).remove(0);
    assert_eq!(seen.producer_id.0, producer.0);
    assert_eq!((seen.last_sequence, seen.current_txn_start_offset), (1, 0));
    let described = cluster.describe("hanging");
    assert_eq!((described.producer_id.0, described.producer_epoch), producer);
    assert_eq!(described.transaction_timeout_ms, 60_000);
    assert_eq!(described.topics[0].topic.as_str(), "topic");
    assert_eq!(described.topics[0].partitions, [0]);
    assert_eq!(cluster.list(&["Ongoing"]), ["hanging"]);
    assert_eq!(cluster.list(&["CompleteCommit"]), [""; 0]);
    assert_eq!(cluster.write_marker("topic", 7, (producer, false)), UNKNOWN_TOPIC_OR_PARTITION);
    let old = (producer.0, producer.1 - 1);
    assert_eq!(cluster.write_marker("topic", 0, (old, false)), INVALID_PRODUCER_EPOCH);
    assert_eq!(cluster.write_marker("topic", 0, (producer, false)), 0);
    cluster.settled("topic", 0);
    assert_eq!(cluster.committed("topic", 0), [""; 0]);
    assert_eq!(cluster.producers("topic", 0)[0].current_txn_start_offset, -1);
}

#[test]
fn a_kill_loses_no_decision_and_gives_no_producer_id_twice() {
    let mut cluster = started("topic", 3);
    let mut expected: Vec<String> = Vec::new();
    let mut last = -1;
    for round in 0..6 {
        // One is decided just before the kill, one is left open.
        let mut producer = cluster.init("copier", 60_000);
        for partition in 0..3 {
            let batch = transactional(producer, 0, &[&format!("{round}")]);
            assert_eq!(cluster.produce(("copier", PRODUCE_2), ("topic", partition), batch), 0);
        }
        let commits = round % 3 != 2;
        producer = cluster.end(("copier", END_2), producer, commits).expect("it is decided");
        if commits {
            expected.push(format!("{round}"));
        }
        let open = cluster.init("open", 60_000);
        let batch = transactional(open, 0, &["open"]);
        assert_eq!(cluster.produce(("open", PRODUCE_2), ("topic", round % 3), batch), 0);
        let (fresh, _) = cluster.broker.connect().producer_id();
        assert!(last < fresh, "{last} {fresh}");
        last = fresh;
        cluster = Cluster::new(cluster.broker.kill().start());
        assert_eq!(cluster.describe("open").transaction_state.as_str(), "Ongoing");
        let open = cluster.end(("open", END_2), open, false).expect("it was still open");
        for partition in 0..3 {
            cluster.settled("topic", partition);
            assert_eq!(cluster.committed("topic", partition), expected, "round {round}");
        }
        assert_eq!(cluster.init("copier", 60_000), (producer.0, producer.1 + 1));
        assert_eq!(cluster.init("open", 60_000), (open.0, open.1 + 1));
    }
}
