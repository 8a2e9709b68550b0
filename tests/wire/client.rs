//! The client against a broker that does what it shouldn't.
//!
//! The broker is a closure over decoded headers on a loopback port that the system picks; it runs
//! on the test's own thread.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    BrokerId, InitProducerIdResponse, MetadataResponse, ProducerId as TheirProducerId, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;
use uringlog::cli::produce::{self, ProduceOptions};
use uringlog::client::{
    Acks, Client, ClientError, ClientOptions, Connection, ConnectionOptions, Target,
    decode_produced, encode_produce,
};
use uringlog::format::batch::{BatchHeader, Codec, HEADER_BYTES};
use uringlog::format::record::RecordsIter;
use uringlog::units::ProducerId;
use uringlog::wire::control;
use uringlog::wire::error::ErrorCode;
use uringlog::wire::frame::{self, FRAME_BYTES_MAX, RequestHeader};
use uringlog::wire::produce::{PartitionAnswer, ProduceAnswer, ProduceFrame};
use uringlog::wire::versions::api;

/// What the broker does about a request: bytes to be sent, `None` to close the connection.
type Script = Rc<dyn Fn(&RequestHeader, BytesMut) -> Option<Bytes>>;

/// Runs a test with everything that it spawns on this thread.
fn run(test: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(Duration::from_secs(20), test).await.expect("no test takes that long");
    });
}

async fn listen() -> (TcpListener, i32) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = i32::from(listener.local_addr().expect("bound").port());
    (listener, port)
}

fn serve(listener: TcpListener, script: Script) {
    tokio::task::spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::task::spawn_local(serve_one(stream, Rc::clone(&script)));
        }
    });
}

async fn serve_one(mut stream: TcpStream, script: Script) {
    loop {
        let mut prefix = [0; 4];
        if stream.read_exact(&mut prefix).await.is_err() {
            return;
        }
        let size =
            frame::frame_size(prefix, FRAME_BYTES_MAX).expect("the client's frames are right");
        let mut bytes = BytesMut::zeroed(size);
        stream.read_exact(&mut bytes).await.expect("whole frames");
        let (header, body) = frame::split(bytes).expect("a header");
        let answer = match header.api_key {
            api::API_VERSIONS => {
                Some(control::encode(&header, control::api_versions()).expect("fits"))
            }
            _ => script(&header, body),
        };
        let Some(answer) = answer else { return };
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// Topic "t" with one partition, led by the broker at `leader`.
fn metadata(header: &RequestHeader, ports: &[i32], leader: i32) -> Bytes {
    let brokers = ports.iter().map(|port| {
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(*port))
            .with_host(StrBytes::from_static_str("127.0.0.1"))
            .with_port(*port)
    });
    let partition = MetadataResponsePartition::default().with_leader_id(BrokerId(leader));
    let topic = MetadataResponseTopic::default()
        .with_name(Some(TopicName(StrBytes::from_static_str("t"))))
        .with_partitions(vec![partition]);
    let answer =
        MetadataResponse::default().with_brokers(brokers.collect()).with_topics(vec![topic]);
    control::encode(header, answer).expect("fits")
}

fn produced(header: &RequestHeader, body: BytesMut, error: ErrorCode, offset: i64) -> Bytes {
    let frame = ProduceFrame::walk(body, header.version).expect("the client's requests are right");
    let index = frame.partitions[0].index;
    let answer = PartitionAnswer { base_offset: offset, ..PartitionAnswer::refused(index, error) };
    let answer = ProduceAnswer {
        version: header.version,
        correlation_id: header.correlation_id,
        topics: &frame.topics,
        partitions: &[answer],
        nodes: &[],
        throttle_ms: 0,
    };
    answer.encode().expect("small").freeze()
}

fn options(timeout: Duration) -> ClientOptions {
    ClientOptions { timeout, retry_pause: Duration::from_millis(5), ..ClientOptions::default() }
}

const TO: Target<'static> = Target { topic: "t", partition: 0, acks: Acks::All };

fn batch() -> Bytes {
    Bytes::from_static(b"any bytes: this broker doesn't look")
}

async fn connect(port: i32, timeout: Duration) -> Client {
    let address = format!("127.0.0.1:{port}");
    Client::connect(&address, options(timeout)).await.expect("it listens")
}

#[test]
fn a_batch_follows_its_leader() {
    run(async {
        let ((first, first_port), (second, second_port)) = (listen().await, listen().await);
        let asked = Rc::new(RefCell::new(0));
        let count = Rc::clone(&asked);
        let both = [first_port, second_port];
        serve(
            first,
            Rc::new(move |header, body| match header.api_key {
                api::METADATA => {
                    *count.borrow_mut() += 1;
                    // The first two times it doesn't know yet that it leads no longer.
                    let is_old = *count.borrow() <= 2;
                    let leader = if is_old { first_port } else { second_port };
                    Some(metadata(header, &both, leader))
                }
                _ => Some(produced(header, body, ErrorCode::NotLeaderOrFollower, -1)),
            }),
        );
        serve(
            second,
            Rc::new(move |header, body| match header.api_key {
                api::METADATA => Some(metadata(header, &both, second_port)),
                _ => Some(produced(header, body, ErrorCode::None, 42)),
            }),
        );
        let client = connect(first_port, Duration::from_secs(10)).await;
        let produced = client.produce(TO, batch()).await.expect("the second broker takes it");
        assert_eq!(produced.base_offset, 42);
        assert!(*asked.borrow() >= 1);
    });
}

#[test]
fn a_lost_connection_is_made_anew() {
    run(async {
        let (listener, port) = listen().await;
        let left = Rc::new(RefCell::new(3));
        serve(
            listener,
            Rc::new(move |header, body| match header.api_key {
                api::METADATA => Some(metadata(header, &[port], port)),
                _ if *left.borrow() > 0 => {
                    *left.borrow_mut() -= 1;
                    None
                }
                _ => Some(produced(header, body, ErrorCode::None, 7)),
            }),
        );
        let client = connect(port, Duration::from_secs(10)).await;
        let produced = client.produce(TO, batch()).await.expect("the fourth connection holds");
        assert_eq!(produced.base_offset, 7);
    });
}

#[test]
fn time_runs_out_with_the_last_reason_and_permanent_errors_at_once() {
    run(async {
        let (listener, port) = listen().await;
        let code = Rc::new(RefCell::new(ErrorCode::NotEnoughReplicas));
        let current = Rc::clone(&code);
        serve(
            listener,
            Rc::new(move |header, body| match header.api_key {
                api::METADATA => Some(metadata(header, &[port], port)),
                _ => Some(produced(header, body, *current.borrow(), -1)),
            }),
        );
        let client = connect(port, Duration::from_millis(200)).await;
        let error = client.produce(TO, batch()).await.expect_err("never enough");
        assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
        assert!(error.to_string().contains("NOT_ENOUGH_REPLICAS (19)"), "{error}");
        *code.borrow_mut() = ErrorCode::MessageTooLarge;
        let error = client.produce(TO, batch()).await.expect_err("too large");
        assert_eq!(error.code(), Some(ErrorCode::MessageTooLarge));
        let elsewhere = Target { partition: 9, ..TO };
        let error = client.produce(elsewhere, batch()).await.expect_err("no such partition");
        assert!(error.to_string().contains("has no leader"), "{error}");
    });
}

async fn open(port: i32) -> Connection {
    let address = format!("127.0.0.1:{port}");
    Connection::open(&address, &ConnectionOptions::default()).await.expect("it listens")
}

async fn send_one(connection: &Connection) -> Result<Bytes, ClientError> {
    let request = encode_produce(connection, ("t", 0), batch(), (Acks::All, 1_000))?;
    Ok(connection.send(request).await?.body().await?.freeze())
}

/// Sends one request whose answer is `answer` and returns why the connection is lost.
async fn lost_by(answer: &'static [u8]) -> String {
    let (listener, port) = listen().await;
    serve(listener, Rc::new(move |_, _| Some(Bytes::from_static(answer))));
    let connection = open(port).await;
    let error = send_one(&connection).await.expect_err("no answer to this request");
    assert!(matches!(error, ClientError::Lost { .. }), "{error}");
    assert!(connection.is_closed());
    send_one(&connection).await.expect_err("it stays closed");
    error.to_string()
}

#[test]
fn answers_that_are_none_end_the_connection_with_a_reason() {
    run(async {
        let other = lost_by(&[0, 0, 0, 8, 0, 0, 3, 0xe7, 0, 0, 0, 0]).await;
        assert!(other.contains("an answer to request 999 came"), "{other}");
        let large = lost_by(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 2]).await;
        assert!(large.contains("a frame of 2147483647 bytes"), "{large}");
        let negative = lost_by(&[0xff, 0xff, 0xff, 0xff]).await;
        assert!(negative.contains("a frame of -1 bytes"), "{negative}");
    });
}

#[test]
fn a_broker_that_closes_an_idle_connection_is_noticed() {
    run(async {
        let (listener, port) = listen().await;
        let address = format!("127.0.0.1:{port}");
        let accepting = tokio::task::spawn_local(async move {
            let (mut stream, _) = listener.accept().await.expect("one client");
            let mut request = [0; 64];
            let size = stream.read(&mut request).await.expect("ApiVersions");
            let (header, _) = frame::split(BytesMut::from(&request[4..size])).expect("a header");
            let answer = control::encode(&header, control::api_versions()).expect("fits");
            stream.write_all(&answer).await.expect("the client reads");
        });
        let connection =
            Connection::open(&address, &ConnectionOptions::default()).await.expect("it listens");
        accepting.await.expect("it answered and closed");
        while !connection.is_closed() {
            tokio::task::yield_now().await;
        }
        let error = send_one(&connection).await.expect_err("closed");
        assert!(error.to_string().contains("the broker closed it"), "{error}");
    });
}

#[test]
fn requests_leave_without_waiting_for_answers() {
    const REQUESTS: usize = 50;
    run(async {
        let (listener, port) = listen().await;
        let held = Rc::new(RefCell::new(Vec::new()));
        // Answers only once all requests are there.
        serve(
            listener,
            Rc::new(move |header, body| {
                let mut held = held.borrow_mut();
                let offset = i64::try_from(held.len()).expect("few");
                held.push(produced(header, body, ErrorCode::None, offset));
                let is_last = held.len() == REQUESTS;
                Some(if is_last { Bytes::from(held.concat()) } else { Bytes::new() })
            }),
        );
        let connection = open(port).await;
        let mut answers = Vec::new();
        for _ in 0..REQUESTS {
            let request = encode_produce(&connection, ("t", 0), batch(), (Acks::All, 1_000));
            let request = request.expect("small");
            let version = request.header.version;
            answers.push((version, connection.send(request).await.expect("sent")));
        }
        for (expected, (version, answer)) in (0_i64..).zip(answers) {
            let body = answer.body().await.expect("answered");
            let produced = decode_produced(&connection, version, body).expect("well-formed");
            assert_eq!(produced.base_offset, expected);
        }
    });
}

/// A partition that keeps a producer's sequence as Kafka does.
#[derive(Default)]
struct Kept {
    calls: u32,
    next_sequence: i32,
    values: Vec<String>,
}

impl Kept {
    fn append(&mut self, batch: &BytesMut) -> ErrorCode {
        let header = BatchHeader::decode(batch).expect("a batch");
        assert_eq!(header.producer_id, ProducerId(77));
        match header.base_sequence.0.cmp(&self.next_sequence) {
            std::cmp::Ordering::Greater => ErrorCode::OutOfOrderSequenceNumber,
            std::cmp::Ordering::Less => ErrorCode::DuplicateSequenceNumber,
            std::cmp::Ordering::Equal => {
                self.next_sequence += header.record_count;
                for record in RecordsIter::new(&header, &batch[HEADER_BYTES..]) {
                    let value = record.expect("a record").value.expect("a value");
                    self.values.push(String::from_utf8(value.to_vec()).expect("ASCII"));
                }
                ErrorCode::None
            }
        }
    }
}

/// Batches are refused for a while, and an answer is lost with its connection; still every line is
/// stored once and in its place.
#[test]
fn the_produce_command_keeps_order_and_stores_nothing_twice() {
    const LINES: usize = 2_000;
    let lines: Vec<String> = (0..LINES).map(|number| format!("line {number}")).collect();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("lines");
    std::fs::write(&path, lines.join("\n")).expect("written");
    let kept = Rc::new(RefCell::new(Kept::default()));
    let seen = Rc::clone(&kept);
    run(async move {
        let (listener, port) = listen().await;
        serve(
            listener,
            Rc::new(move |header, body| match header.api_key {
                api::METADATA => Some(metadata(header, &[port], port)),
                api::INIT_PRODUCER_ID => {
                    let answer =
                        InitProducerIdResponse::default().with_producer_id(TheirProducerId(77));
                    Some(control::encode(header, answer).expect("fits"))
                }
                _ => {
                    let frame = ProduceFrame::walk(body.clone(), header.version).expect("right");
                    let mut kept = kept.borrow_mut();
                    kept.calls += 1;
                    if (3..=8).contains(&kept.calls) {
                        return Some(produced(header, body, ErrorCode::NotLeaderOrFollower, -1));
                    }
                    let error = kept.append(&frame.partitions[0].batch);
                    let is_lost = kept.calls == 15;
                    (!is_lost).then(|| produced(header, body, error, 0))
                }
            }),
        );
        let options = ProduceOptions {
            bootstrap: format!("127.0.0.1:{port}"),
            topic: "t".to_owned(),
            partition: None,
            key_separator: None,
            acks: Acks::All,
            codec: Codec::None,
            headers: Vec::new(),
            batch_bytes: 1_000,
            input: Some(path),
            json: false,
        };
        produce::run(&options).await.expect("all get through in the end");
    });
    assert_eq!(seen.borrow().values, lines);
    assert!(seen.borrow().calls > 20, "many batches");
}
