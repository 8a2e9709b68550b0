//! Byte rates of clients: kept, and enforced with throttle times.

use std::time::{Duration, Instant};

use kafka_protocol::messages::alter_client_quotas_request::{EntityData, EntryData, OpData};
use kafka_protocol::messages::{
    AlterClientQuotasRequest, ApiVersionsRequest, DescribeClientQuotasRequest,
};

use crate::support::ENGINES;
use crate::support::batch;
use crate::support::client::{Client, FETCH, PRODUCE, fetch_request, produce_request, text};
use crate::support::process::Launch;
use crate::support::wait;

const INVALID_REQUEST: i16 = 42;

/// Sets or removes a rate of the clients that call themselves as the tests do, or of all.
fn alter(client: &mut Client, client_id: Option<&str>, (key, rate): (&str, Option<f64>)) -> i16 {
    let part = EntityData::default()
        .with_entity_type(text("client-id"))
        .with_entity_name(client_id.map(text));
    let operation = OpData::default()
        .with_key(text(key))
        .with_value(rate.unwrap_or_default())
        .with_remove(rate.is_none());
    let entry = EntryData::default().with_entity(vec![part]).with_ops(vec![operation]);
    let request = AlterClientQuotasRequest::default().with_entries(vec![entry]);
    client.call(&request, 1).entries[0].error_code
}

/// Kinds, names, keys and values of all quotas.
fn described(client: &mut Client) -> Vec<(Option<String>, String, f64)> {
    let answer = client.call(&DescribeClientQuotasRequest::default(), 1);
    assert_eq!(answer.error_code, 0);
    let entries = answer.entries.expect("no error");
    let each = entries.iter().flat_map(|entry| {
        let name = entry.entity[0].entity_name.as_ref().map(|name| name.to_string());
        entry.values.iter().map(move |it| (name.clone(), it.key.to_string(), it.value))
    });
    each.collect()
}

/// How long the connection is not read.
fn silence(client: &mut Client) -> Duration {
    let start = Instant::now();
    client.call(&ApiVersionsRequest::default(), 2);
    start.elapsed()
}

#[test]
fn quotas_are_kept_changed_and_removed() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    assert_eq!(alter(&mut client, Some("c"), ("producer_byte_rate", Some(1_500.0))), 0);
    assert_eq!(alter(&mut client, None, ("consumer_byte_rate", Some(2_500.0))), 0);
    assert_eq!(alter(&mut client, Some("c"), ("no.such.key", Some(1.0))), INVALID_REQUEST);
    assert_eq!(alter(&mut client, Some("c"), ("producer_byte_rate", Some(-1.0))), INVALID_REQUEST);
    let halves = ("producer_byte_rate", Some(1_500.5));
    assert_eq!(alter(&mut client, Some("c"), halves), INVALID_REQUEST, "bytes are whole");
    let own = (Some("c".to_owned()), "producer_byte_rate".to_owned(), 1_500.0);
    let all = (None, "consumer_byte_rate".to_owned(), 2_500.0);
    let mut before = described(&mut client);
    before.sort_by(|one, other| one.1.cmp(&other.1));
    assert_eq!(before, [all.clone(), own]);
    let broker = broker.kill().start();
    let mut client = broker.connect();
    assert_eq!(described(&mut client).len(), 2, "after a kill");
    assert_eq!(alter(&mut client, Some("c"), ("producer_byte_rate", None)), 0);
    assert_eq!(described(&mut client), [all]);
}

#[test]
fn a_producer_over_its_rate_is_told_to_wait_and_not_read_meanwhile() {
    for engine in ENGINES {
        let broker = Launch::new(engine).start();
        let mut client = broker.connect();
        client.create("topic", 1, &[]);
        assert_eq!(alter(&mut client, Some("tests"), ("producer_byte_rate", Some(2_000.0))), 0);
        // Ten quiet seconds come before the first request: 20,000 bytes are free, and a thousand
        // more take half a second.
        let request = produce_request("topic", 0, batch::large(1, 20_800).into(), -1);
        let answer = client.call(&request, PRODUCE);
        assert!((300..5_000).contains(&answer.throttle_time_ms), "{}", answer.throttle_time_ms);
        let wait = Duration::from_millis(answer.throttle_time_ms.unsigned_abs().into());
        let silence = silence(&mut client);
        assert!(wait * 8 / 10 < silence, "{silence:?} of {wait:?}");
        assert_eq!(client.end("topic", 0), 1, "the batch itself was taken");
        assert_eq!(alter(&mut client, Some("tests"), ("producer_byte_rate", None)), 0);
        wait::until("nothing limits it any more", || {
            client.call(&request, PRODUCE).throttle_time_ms == 0
        });
    }
}

#[test]
fn a_consumer_over_its_rate_gets_an_empty_answer_and_then_its_records() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    client.create("topic", 1, &[]);
    for seed in 0..3 {
        client.accepted("topic", 0, batch::large(seed, 10_000));
    }
    assert_eq!(alter(&mut client, None, ("consumer_byte_rate", Some(2_000.0))), 0);
    // What the rate can give at once bounds an answer: one batch of the three, and then the next.
    let request = fetch_request("topic", 0, 0, 1 << 20);
    let first = client.call(&request, FETCH);
    assert_eq!(first.throttle_time_ms, 0);
    let records = first.responses[0].partitions[0].records.clone().expect("records");
    assert_eq!(batch::records(&records).len(), 1);
    let second = client.call(&fetch_request("topic", 0, 1, 1 << 20), FETCH);
    assert!(0 < second.throttle_time_ms, "{second:?}");
    assert_eq!(second.responses.len(), 0, "nothing is read for it");
    let wait = Duration::from_millis(second.throttle_time_ms.unsigned_abs().into());
    let silence = silence(&mut client);
    assert!(wait * 8 / 10 < silence, "{silence:?} of {wait:?}");
    let rest = wait::for_some("the second batch", || {
        let answer = client.call(&fetch_request("topic", 0, 1, 1 << 20), FETCH);
        answer.responses.first()?.partitions[0].records.clone()
    });
    assert!(!batch::records(&rest).is_empty());
}
