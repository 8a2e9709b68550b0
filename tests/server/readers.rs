//! Readers that are slow, and readers that go away in the middle of an answer.

use std::io::Read;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::{FetchRequest, FetchResponse, ResponseHeader};
use kafka_protocol::protocol::Decodable;

use crate::support::batch::{self, of};
use crate::support::client::{Client, FETCH, fetch_request};
use crate::support::process::{Broker, Launch};
use crate::support::{hosts, wait};

/// Records of one large answer: more than the sockets' buffers hold.
const RECORDS: u64 = 24;
const RECORD_BYTES: usize = 1_000_000;
const ANSWER_BYTES_MAX: i32 = 32 << 20;
/// No request of a client that behaves takes longer than this while others don't.
const BEARABLE: Duration = Duration::from_secs(5);

fn filled(launch: &Launch) -> Broker {
    let broker = launch.start();
    let mut client = broker.connect();
    client.create("large", 1, &[]);
    client.create("small", 1, &[]);
    for seed in 0..RECORDS {
        client.accepted("large", 0, batch::large(seed, RECORD_BYTES));
    }
    broker
}

/// A client that has asked for everything and read nothing.
fn asked(broker: &Broker) -> Client {
    let mut client = broker.connect();
    let request: FetchRequest = fetch_request("large", 0, 0, ANSWER_BYTES_MAX);
    client.post(&request, FETCH).expect("the server reads");
    client
}

/// Reads a little at a time, until the answer is there.
fn read_slowly(client: &Client, size: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(size);
    let mut piece = vec![0; 64 << 10];
    while bytes.len() < size {
        let count = client.stream().read(&mut piece).expect("the server goes on");
        assert!(0 < count, "closed after {} of {size} bytes", bytes.len());
        bytes.extend_from_slice(&piece[..count]);
        if bytes.len().is_multiple_of(7) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    bytes.into()
}

fn assert_is_everything(mut answer: Bytes) {
    ResponseHeader::decode(&mut answer, 1).expect("a header");
    let answer = FetchResponse::decode(&mut answer, FETCH).expect("a whole answer");
    let partition = &answer.responses[0].partitions[0];
    assert_eq!(partition.error_code, 0);
    let records = batch::records(partition.records.as_ref().expect("records"));
    assert_eq!(records.len(), usize::try_from(RECORDS).expect("small"));
    for (seed, (_, value)) in (0..).zip(records) {
        let sent = batch::records(&batch::large(seed, RECORD_BYTES)).remove(0).1;
        assert!(value == sent, "record {seed} arrives as it was sent");
    }
}

#[test]
fn slow_readers_hold_up_nobody_and_get_everything_in_the_end() {
    for (engine, launch) in hosts() {
        let broker = filled(&launch);
        let slow: Vec<Client> = (0..20).map(|_| asked(&broker)).collect();
        let mut live = broker.connect();
        for _ in 0..50 {
            let began = Instant::now();
            let offset = live.accepted("small", 0, of(&["quick"]));
            let answer = live.fetch("small", 0, offset, 1 << 20);
            assert_eq!(batch::records(&answer.records.expect("records")).len(), 1);
            let answer = live.fetch("large", 0, 0, 1 << 20);
            assert_eq!(answer.error_code, 0);
            let took = began.elapsed();
            assert!(took < BEARABLE, "{engine}: {took:?} while others are slow");
        }
        for mut client in slow.into_iter().take(3) {
            let mut size = [0; 4];
            client.stream().read_exact(&mut size).expect("the server answers");
            let size = usize::try_from(i32::from_be_bytes(size)).expect("an answer has a size");
            assert_is_everything(read_slowly(&client, size));
            // The connection is as good as before.
            assert_eq!(client.fetch("small", 0, 0, 1_000).error_code, 0);
        }
        let peak = broker.memory_kib("VmHWM");
        assert!(peak < 300 << 10, "{engine}: {peak} KiB at the peak");
    }
}

/// Clients that read the beginning of a large answer and go, without a word or with a reset.
fn vanish(broker: &Broker, clients: usize) {
    for number in 0..clients {
        let client = asked(broker);
        let mut piece = vec![0; 1 + number * 20_011];
        client.stream().read_exact(&mut piece).expect("the server answers");
        if number % 2 == 0 {
            let now = Some(Duration::ZERO);
            let set = rustix::net::sockopt::set_socket_linger(client.stream(), now);
            set.expect("it is a socket");
        }
    }
}

fn connections(broker: &Broker) -> u64 {
    broker.count("connections_opened") - broker.count("connections_closed")
}

#[test]
fn clients_that_vanish_in_an_answer_leave_no_descriptor_and_disturb_nobody() {
    for (engine, launch) in hosts() {
        let mut broker = filled(&launch);
        let mut live = broker.connect();
        // The first round makes whatever is made once, such as the pool of pipes.
        vanish(&broker, 30);
        wait::until("they are forgotten", || connections(&broker) <= 1);
        let before = broker.descriptors();
        for _ in 0..5 {
            vanish(&broker, 30);
            live.accepted("small", 0, of(&["still there"]));
            let answer = live.fetch("large", 0, 0, ANSWER_BYTES_MAX);
            let records = batch::records(&answer.records.expect("records"));
            assert_eq!(records.len(), usize::try_from(RECORDS).expect("small"));
        }
        wait::until("they are forgotten", || connections(&broker) <= 1);
        // One leaked descriptor a client would be 150 of them.
        wait::until("their descriptors are closed", || broker.descriptors() <= before + 8);
        if engine == "uring" {
            assert!(0 < broker.count("ring_splices"), "the answers travelled by splice");
        }
        assert!(broker.is_alive());
    }
}

#[test]
fn a_fetch_that_waits_is_woken_by_the_next_batch_and_forgotten_with_its_client() {
    for (engine, launch) in hosts() {
        let broker = filled(&launch);
        let waiting = |broker: &Broker| {
            let mut client = broker.connect();
            let request =
                fetch_request("small", 0, 0, 1 << 20).with_min_bytes(1).with_max_wait_ms(30_000);
            client.post(&request, FETCH).expect("the server reads");
            client
        };
        let leavers: Vec<Client> = (0..20).map(|_| waiting(&broker)).collect();
        let mut stayers: Vec<Client> = (0..20).map(|_| waiting(&broker)).collect();
        drop(leavers);
        broker.connect().accepted("small", 0, of(&["news"]));
        for client in &mut stayers {
            let answer = client.collect::<FetchRequest>(FETCH).expect("the server answers");
            let records = answer.responses[0].partitions[0].records.as_ref().expect("records");
            assert_eq!(batch::records(records), [(0, b"news".to_vec())], "{engine}");
        }
        drop(stayers);
        wait::until("all are forgotten", || connections(&broker) == 0);
    }
}
