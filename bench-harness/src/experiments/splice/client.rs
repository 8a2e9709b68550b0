//! The readers: one that reads and checks, some that never read, some that reset.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size};

use super::server::STOP_BYTES;
use crate::experiments::measure::{self, u64_of, usize_of};
use crate::experiments::{Doing, Failure};

/// Without an answer for so long the live reader counts as starved.
const PATIENCE: Duration = Duration::from_secs(3);
/// A stalled reader asks for this many answers, more than the sockets between can take.
const STALLED_REQUESTS: usize = 16;
const STALLED_RECEIVE_BUFFER_BYTES: usize = 64 << 10;
/// What is read of an answer before the connection is reset.
const RESET_AFTER_BYTES: usize = 100_000;
const RESET_PAUSE: Duration = Duration::from_millis(2);
const WARM_UP_ANSWERS: usize = 20;

/// How many readers of each kind, and what they ask for.
#[derive(Clone, Copy)]
pub struct Readers {
    pub stalled: usize,
    pub resets: usize,
    pub answers: usize,
    pub answer_bytes: usize,
}

/// What the live reader saw.
pub struct Live {
    /// Nanoseconds from the request to the last byte of its answer.
    pub nanos: Histogram<u64>,
    pub cpu: Duration,
}

fn connect(address: SocketAddr) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect(address).doing("connect")?;
    stream.set_nodelay(true).doing("set TCP_NODELAY")?;
    Ok(stream)
}

pub fn ask(mut stream: &TcpStream, at: usize, bytes: u64) -> Result<(), Failure> {
    let mut request = u64_of(at).to_le_bytes().to_vec();
    request.extend(bytes.to_le_bytes());
    stream.write_all(&request).doing("ask")
}

/// Positions all over the file, nearly all of them inside a page.
fn position(number: usize, readers: Readers) -> usize {
    const STEP: usize = 1_299_721;
    (number * STEP + 1) % (super::FILE_BYTES - readers.answer_bytes)
}

/// Connections that have asked for answers and don't read them.
pub fn stall(address: SocketAddr, readers: Readers) -> Result<Vec<TcpStream>, Failure> {
    let mut streams = Vec::new();
    for number in 0..readers.stalled {
        let stream = connect(address)?;
        set_socket_recv_buffer_size(&stream, STALLED_RECEIVE_BUFFER_BYTES).doing("SO_RCVBUF")?;
        for request in 0..STALLED_REQUESTS {
            let at = position(number * STALLED_REQUESTS + request, readers);
            ask(&stream, at, u64_of(readers.answer_bytes))?;
        }
        streams.push(stream);
    }
    Ok(streams)
}

/// Connections that are reset in the middle of an answer. Tells the CPU time of its thread.
pub fn reset(address: SocketAddr, readers: Readers, core: usize) -> Result<Duration, Failure> {
    measure::pin(core)?;
    let start = measure::thread_cpu();
    let mut bytes = vec![0; RESET_AFTER_BYTES];
    for number in 0..readers.resets {
        let mut stream = connect(address)?;
        stream.set_read_timeout(Some(PATIENCE)).doing("set a timeout")?;
        for request in 0..STALLED_REQUESTS {
            ask(&stream, position(number + request, readers), u64_of(readers.answer_bytes))?;
        }
        match stream.read_exact(&mut bytes) {
            // Starved, and so would be those that follow.
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            outcome => outcome.doing("read a part of an answer")?,
        }
        set_socket_linger(&stream, Some(Duration::ZERO)).doing("SO_LINGER")?;
        drop(stream);
        std::thread::sleep(RESET_PAUSE);
    }
    Ok(measure::thread_cpu() - start)
}

/// Reads and checks one answer after the other, and times them.
pub fn read(
    address: SocketAddr,
    readers: Readers,
    (core, content): (usize, &[u8]),
) -> Result<Live, Failure> {
    measure::pin(core)?;
    let start = measure::thread_cpu();
    let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3);
    let mut nanos = histogram.map_err(|error| Failure::Wrong(error.to_string()))?;
    let mut stream = connect(address)?;
    stream.set_read_timeout(Some(PATIENCE)).doing("set a timeout")?;
    let mut bytes = vec![0; size_of::<u64>() + readers.answer_bytes];
    for number in 0..WARM_UP_ANSWERS + readers.answers {
        let at = position(number, readers);
        let asked = Instant::now();
        ask(&stream, at, u64_of(readers.answer_bytes))?;
        match stream.read_exact(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            outcome => outcome.doing("read an answer")?,
        }
        let elapsed = asked.elapsed().as_nanos();
        check(&bytes, at, content)?;
        if number >= WARM_UP_ANSWERS {
            nanos.saturating_record(u64::try_from(elapsed).unwrap_or(u64::MAX));
        }
    }
    Ok(Live { nanos, cpu: measure::thread_cpu() - start })
}

fn check(answer: &[u8], at: usize, content: &[u8]) -> Result<(), Failure> {
    let (header, range) = answer.split_first_chunk().expect("an answer has a header");
    let length = usize_of(u64::from_le_bytes(*header));
    if length != range.len() || *range != content[at..at + length] {
        return Err(Failure::Wrong(format!("the answer for position {at} has other bytes")));
    }
    Ok(())
}

/// Ends the server.
pub fn stop(address: SocketAddr) -> Result<(), Failure> {
    ask(&connect(address)?, 0, STOP_BYTES)
}
