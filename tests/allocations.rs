//! How often the heap is asked for memory while Produce requests are served, the whole broker in
//! this process: a program of its own, since it counts for all threads.

#[path = "allocations/counting.rs"]
mod counting;

use std::io::{Read, Write};
use std::net::TcpStream;

use uringlog::broker::Server;
use uringlog::broker::config::{ServerConfig, Sources};
use uringlog::broker::server::{EngineChoice, ServerOptions};
use uringlog::format::batch::Codec;
use uringlog::format::record::{BatchBuilder, NewRecord};
use uringlog::log::Durability;
use uringlog::shard::now;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

const REQUESTS: u64 = 2_000;
/// Allocations that one Produce request may cost in steady state, from its first byte to the last
/// of its answer.
const PER_REQUEST_MAX: u64 = 8;
/// Bytes of the largest of them: nothing that grows with the log or with how long the server runs.
const LARGEST_BYTES_MAX: u64 = 16 << 10;

fn start(engine: EngineChoice, directory: &std::path::Path) -> Server {
    let sources = Sources { durability: Some(Durability::PageCache), ..Sources::default() };
    let options = ServerOptions {
        config: ServerConfig::load(&sources).expect("the defaults are valid"),
        directory: directory.to_owned(),
        listen: "127.0.0.1:0".parse().expect("an address"),
        advertise: None,
        shards: 1,
        engine,
        log_levels: None,
        faults: None,
    };
    Server::start(options).expect("it starts")
}

/// A frame by hand: size, API key, version, correlation id, no client id, body.
fn frame(api_key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut inner = [api_key.to_be_bytes(), version.to_be_bytes()].concat();
    inner.extend_from_slice(&7_i32.to_be_bytes());
    inner.extend_from_slice(&(-1_i16).to_be_bytes());
    inner.extend_from_slice(body);
    let mut bytes = i32::try_from(inner.len()).expect("small").to_be_bytes().to_vec();
    bytes.extend_from_slice(&inner);
    bytes
}

/// CreateTopics 2: one topic "t" of one partition.
fn create() -> Vec<u8> {
    let topic = [0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let rest = [0, 0, 0x75, 0x30, 0];
    frame(19, 2, &[&topic[..], &rest].concat())
}

/// Produce 8 to partition 0 of "t", acks 1: one batch of 1 KB.
fn produce() -> Vec<u8> {
    let mut builder = BatchBuilder::new(Codec::None);
    builder.push(&NewRecord::value(now(), &[1; 1_000]));
    let batch = builder.build();
    let mut body = vec![0xff, 0xff, 0, 1, 0, 0, 0x75, 0x30];
    body.extend_from_slice(&[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0]);
    let size = i32::try_from(batch.as_bytes().len()).expect("small");
    body.extend_from_slice(&size.to_be_bytes());
    body.extend_from_slice(batch.as_bytes());
    frame(0, 8, &body)
}

/// Reads one answer into memory that is there already; its length.
fn receive(stream: &mut TcpStream, buffer: &mut [u8]) -> usize {
    let mut size = [0; 4];
    stream.read_exact(&mut size).expect("the server answers");
    let size = usize::try_from(i32::from_be_bytes(size)).expect("an answer has a size");
    stream.read_exact(&mut buffer[..size]).expect("the server answers");
    size
}

/// Where the error code stands in the answer to [`produce`].
const ERROR_AT: usize = 4 + 4 + 2 + 1 + 4 + 4;

fn exchange(stream: &mut TcpStream, request: &[u8], buffer: &mut [u8]) {
    stream.write_all(request).expect("the server reads");
    receive(stream, buffer);
    assert_eq!(buffer[ERROR_AT..ERROR_AT + 2], [0, 0], "the batch is accepted");
}

fn per_request(engine: EngineChoice) -> (u64, u64) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = start(engine, directory.path());
    let address = server.addresses().next().expect("one shard");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("a TCP socket");
    let mut buffer = [0; 1 << 10];
    stream.write_all(&create()).expect("the server reads");
    receive(&mut stream, &mut buffer);
    let request = produce();
    for _ in 0..REQUESTS {
        exchange(&mut stream, &request, &mut buffer);
    }
    counting::take_largest();
    let before = counting::allocations();
    for _ in 0..REQUESTS {
        exchange(&mut stream, &request, &mut buffer);
    }
    let during = counting::allocations() - before;
    let largest = counting::take_largest();
    drop(stream);
    server.stop().expect("a clean stop");
    (during.div_ceil(REQUESTS), largest)
}

#[test]
fn a_produce_request_in_steady_state_costs_a_handful_of_allocations() {
    for engine in [EngineChoice::Uring, EngineChoice::PlainFile] {
        let (count, largest) = per_request(engine);
        println!("{engine:?}: {count} allocations per request, of {largest} bytes at most");
        assert!(0 < count, "the frame itself is allocated: the counter counts");
        assert!(count <= PER_REQUEST_MAX, "{engine:?}: {count} allocations per request");
        assert!(0 < largest && largest <= LARGEST_BYTES_MAX, "{engine:?}: {largest} bytes at once");
    }
}
