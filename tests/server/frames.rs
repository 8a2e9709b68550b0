//! Frames that are no requests, and requests that claim more than they bring.

use std::net::Shutdown;

use uringlog::wire::versions::{self, ADVERTISED, api};

use crate::samples;
use crate::support::client::{Client, Outcome, encode, frame, produce_request};
use crate::support::process::{Broker, Launch};
use crate::support::{batch, hosts, wait};

const FRAME_BYTES_MAX: i32 = 104_857_600;
/// Memory that hostile frames may not drive the server to.
const MEMORY_KIB_MAX: u64 = 200 << 10;
const TOPIC: &str = "witness";

/// A server, and a client of it that behaves and must not notice what the others do.
fn witnessed(launch: &Launch) -> (Broker, Client) {
    let broker = launch.start();
    let mut witness = broker.connect();
    witness.create(TOPIC, 1, &[]);
    (broker, witness)
}

/// The witness is served as ever.
fn assert_served(witness: &mut Client) {
    let offset = witness.accepted(TOPIC, 0, batch::of(&["still there"]));
    let answer = witness.fetch(TOPIC, 0, offset, 1 << 20);
    let records = batch::records(&answer.records.expect("records"));
    assert_eq!(records, [(offset, b"still there".to_vec())]);
}

/// Sends bytes on a connection of their own, which has to be closed without an answer.
fn assert_closes(broker: &Broker, bytes: &[u8], what: &str) {
    let outcome = broker.connect().outcome(bytes);
    assert_eq!(outcome, Outcome::Closed, "{what}");
}

/// The same, when the client says that nothing more will come.
fn assert_closes_at_the_end(broker: &Broker, bytes: &[u8], what: &str) {
    let mut client = broker.connect();
    client.send(bytes).expect("it fits the socket's buffer");
    client.stream().shutdown(Shutdown::Write).expect("it is open");
    assert_eq!(client.outcome(&[]), Outcome::Closed, "{what}");
}

#[test]
fn a_frame_with_an_impossible_length_ends_its_own_connection_only() {
    for (host, launch) in hosts() {
        let (broker, mut witness) = witnessed(&launch);
        for length in [-1, i32::MIN, FRAME_BYTES_MAX + 1, i32::MAX] {
            assert_closes(&broker, &length.to_be_bytes(), &format!("{host}: length {length}"));
            assert_served(&mut witness);
        }
        // No request fits in so few bytes.
        for length in 0..8_i32 {
            let bytes =
                [&length.to_be_bytes()[..], &vec![0; usize::try_from(length).expect("small")]]
                    .concat();
            assert_closes(&broker, &bytes, &format!("{host}: length {length}"));
        }
        assert_served(&mut witness);
    }
}

#[test]
fn frames_up_to_socket_request_max_bytes_are_taken_and_no_larger_ones() {
    let limit = 20_000;
    let setting = format!("socket.request.max.bytes={limit}");
    let (broker, mut witness) = witnessed(&Launch::new("uring").set(&setting));
    let fitting = |value_bytes| {
        let batch = batch::large(1, value_bytes).into();
        encode(&produce_request(TOPIC, 0, batch, -1), 12, 1)
    };
    let overhead = fitting(limit - 200).len() - 4 - (limit - 200);
    let largest = fitting(limit - overhead);
    assert_eq!(largest.len() - 4, limit);
    assert!(matches!(broker.connect().outcome(&largest), Outcome::Answer(_)));
    assert_eq!(witness.end(TOPIC, 0), 1);
    assert_closes(&broker, &fitting(limit - overhead + 1), "one byte too many");
    assert_eq!(witness.end(TOPIC, 0), 1);
    assert_served(&mut witness);
}

#[test]
fn who_is_turned_away_is_named_in_the_log_with_the_reason() {
    for (host, launch) in hosts() {
        let (broker, _witness) = witnessed(&launch);
        // Ids and times of nothing, and two billion protocols in a MiB.
        let mut body = vec![0; 1 << 20];
        body[16..20].copy_from_slice(&i32::MAX.to_be_bytes());
        let group = frame(11, 5, false, &body);
        let mut client = broker.connect();
        let name = client.stream().local_addr().expect("it is open").to_string();
        assert_eq!(client.outcome(&group), Outcome::Closed, "{host}");
        let reason = "request of API 11 version 5: protocols";
        wait::until("the log names it", || {
            let output = broker.output();
            output.lines().any(|it| it.contains(&name) && it.contains(reason))
        });
        assert_closes(&broker, &(-1_i32).to_be_bytes(), host);
        wait::until("the log names it", || {
            broker.output().contains("closed: frame length -1 is outside 0..=104857600")
        });
    }
}

#[test]
fn an_unknown_api_or_version_ends_the_connection_and_apiversions_answers_any_version() {
    let (broker, mut witness) = witnessed(&Launch::new("uring"));
    for key in [-1, 4, 11, 999, i16::MAX] {
        assert_closes(&broker, &frame(key, 0, false, &[]), &format!("API key {key}"));
    }
    for range in ADVERTISED.iter().filter(|range| range.key != api::API_VERSIONS) {
        for version in [range.served_min - 1, range.max + 1, i16::MIN, i16::MAX] {
            let what = format!("{} {version}", range.name);
            assert_closes(&broker, &frame(range.key, version, false, &[]), &what);
        }
    }
    for version in [-1, 5, i16::MAX] {
        let outcome = broker.connect().outcome(&frame(api::API_VERSIONS, version, false, &[]));
        let Outcome::Answer(answer) = outcome else { panic!("ApiVersions {version}: closed") };
        let error = i16::from_be_bytes([answer[4], answer[5]]);
        assert_eq!(error, 35, "ApiVersions {version}: UNSUPPORTED_VERSION, in version 0");
    }
    assert_served(&mut witness);
}

#[test]
fn a_request_cut_off_anywhere_ends_its_connection_and_others_are_served() {
    for (host, launch) in hosts() {
        let (broker, mut witness) = witnessed(&launch);
        for (sample, _) in samples::requests() {
            let (key, version) = (sample.api_key, sample.version);
            let range = versions::find(key).expect("it is advertised");
            let has_tags = range.request_header_has_tags(version);
            for cut in 0..sample.body.len() {
                let bytes = frame(key, version, has_tags, &sample.body[..cut]);
                let what = format!("{host}: {} {version} cut at {cut}", range.name);
                assert_closes(&broker, &bytes, &what);
            }
            assert_served(&mut witness);
        }
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_frame_is_forgotten() {
    for (host, launch) in hosts() {
        let (broker, mut witness) = witnessed(&launch);
        let request = produce_request(TOPIC, 0, batch::large(1, 5_000).into(), -1);
        let whole = encode(&request, 12, 1);
        for cut in (1..whole.len()).step_by(97).chain([1, 2, 3, 4, 5, 511, 512, 513]) {
            assert_closes_at_the_end(
                &broker,
                &whole[..cut],
                &format!("{host}: left after {cut} bytes"),
            );
        }
        assert_eq!(witness.end(TOPIC, 0), 0);
        wait::until("all connections but the witness's are forgotten", || {
            broker.count("connections_opened") - broker.count("connections_closed") <= 1
        });
        assert_served(&mut witness);
    }
}

#[test]
fn two_hundred_connections_that_announce_100_mb_cost_no_memory() {
    for (host, launch) in hosts() {
        let (mut broker, mut witness) = witnessed(&launch);
        let announce = |_| {
            let mut client = broker.connect();
            client.send(&100_000_000_i32.to_be_bytes()).expect("it fits the socket's buffer");
            client.send(&[0, 0]).expect("it fits the socket's buffer");
            client
        };
        let held: Vec<Client> = (0..200).map(announce).collect();
        wait::until("the server has accepted them", || 200 < broker.count("connections_opened"));
        for seed in 0..100 {
            witness.accepted(TOPIC, 0, batch::large(seed, 100_000));
        }
        assert_served(&mut witness);
        let peak = broker.memory_kib("VmHWM");
        assert!(peak < MEMORY_KIB_MAX, "{host}: {peak} KiB at the peak");
        drop(held);
        assert_served(&mut witness);
        assert!(broker.is_alive());
    }
}

#[test]
fn frames_that_arrive_in_full_stay_within_the_budget_of_memory() {
    for (host, launch) in hosts() {
        let (broker, mut witness) = witnessed(&launch);
        // Each brings 4 MB of its 100 MB: 160 MB in all, above the budget of all frames together.
        let piece = vec![0; 4 << 20];
        let senders: Vec<_> = (0..40)
            .map(|_| {
                let mut client = broker.connect();
                let piece = piece.clone();
                std::thread::spawn(move || {
                    client
                        .send(&100_000_000_i32.to_be_bytes())
                        .expect("it fits the socket's buffer");
                    // The server may stop reading, or close; either is its right.
                    client.stream().set_write_timeout(Some(std::time::Duration::from_secs(2)))?;
                    client.send(&piece)
                })
            })
            .collect();
        for sender in senders {
            let _ = sender.join().expect("it doesn't panic");
        }
        assert_served(&mut witness);
        let peak = broker.memory_kib("VmHWM");
        assert!(peak < MEMORY_KIB_MAX, "{host}: {peak} KiB at the peak");
    }
}

/// Bodies whose first length is a lie, by API, version and whether the header has tags.
fn lies() -> Vec<(&'static str, i16, i16, bool, Vec<u8>)> {
    let billions = [0x7f, 0xff, 0xff, 0xff];
    let compact = [0xff, 0xff, 0xff, 0xff, 0x0f];
    let mut long_text = vec![0, 0, 0, 1, 0x7f, 0xff];
    long_text.extend_from_slice(b"short");
    let mut batch = vec![0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, b't'];
    batch.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0]);
    batch.extend_from_slice(&billions);
    vec![
        (
            "two billion topics in five bytes",
            api::METADATA,
            4,
            false,
            [&billions[..], &[1]].concat(),
        ),
        ("four billion topics", api::METADATA, 12, true, compact.to_vec()),
        ("a negative number of topics", api::METADATA, 4, false, vec![0x80, 0, 0, 0, 1]),
        ("a name of 32,767 bytes", api::METADATA, 4, false, long_text),
        ("topics to create", api::CREATE_TOPICS, 2, false, billions.to_vec()),
        ("topics to delete", api::DELETE_TOPICS, 1, false, billions.to_vec()),
        ("resources", api::DESCRIBE_CONFIGS, 1, false, billions.to_vec()),
        ("a batch of two billion bytes", api::PRODUCE, 3, false, batch),
        (
            "produced topics",
            api::PRODUCE,
            9,
            true,
            [&[0, 0xff, 0xff, 0, 0, 0, 1][..], &compact].concat(),
        ),
        (
            "fetched topics",
            api::FETCH,
            4,
            false,
            [&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0][..], &billions]
                .concat(),
        ),
        ("topics to list", api::LIST_OFFSETS, 1, false, [&[0xff; 4][..], &billions].concat()),
        ("tagged fields", api::API_VERSIONS, 3, true, [&[1, 1][..], &compact].concat()),
    ]
}

#[test]
fn lengths_beyond_the_frame_end_the_connection_and_cost_no_memory() {
    for (host, launch) in hosts() {
        let (broker, mut witness) = witnessed(&launch);
        for (what, key, version, has_tags, body) in lies() {
            let bytes = frame(key, version, has_tags, &body);
            assert_closes(&broker, &bytes, &format!("{host}: {what}"));
            assert_served(&mut witness);
        }
        let peak = broker.memory_kib("VmHWM");
        assert!(peak < MEMORY_KIB_MAX, "{host}: {peak} KiB at the peak");
    }
}
