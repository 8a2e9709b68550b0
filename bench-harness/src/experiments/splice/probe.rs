//! How receives, sends and splices on one socket get on with `O_NONBLOCK`, asked of the kernel.
//!
//! A splice into a full blocking socket parks a kernel worker, so sockets must be non-blocking
//! while they are spliced to. The flag belongs to the socket, not to the operation: what does it
//! do to a receive that waits on the same socket, on this ring or on tokio-uring's?

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with};

use crate::experiments::{Doing, Failure};
use crate::sys::{Finished, Op, Ring};

const RING_ENTRIES: u32 = 64;
const PATIENCE: Duration = Duration::from_millis(200);
const PIPE_BYTES: usize = 1 << 20;
const HOP_BYTES: u32 = 255 * 4096;

/// Asks all questions and prints a table of the answers.
pub fn run() -> Result<(), Failure> {
    println!("| question | answer |\n|---|---|");
    receive_on_nonblocking()?;
    receive_poll_first()?;
    receive_dontwait()?;
    receive_then_flag()?;
    send_on_full_nonblocking()?;
    splice_into_full(false, 0)?;
    splice_into_full(false, SpliceFlags::NONBLOCK.bits())?;
    splice_into_full(true, 0)?;
    flag_frees_parked_splice()?;
    tokio_uring::start(tokio_read_on_nonblocking())?;
    tokio_uring::start(tokio_write_on_full_nonblocking())?;
    tokio_uring::start(tokio_read_across_splice())
}

fn answer(question: &str, answer: &str) {
    println!("| {question} | {answer} |");
}

fn named(result: i32) -> String {
    match result {
        0.. => format!("{result} bytes"),
        _ => format!("{}", std::io::Error::from_raw_os_error(-result)),
    }
}

/// Both ends of a loopback connection: the server's and the client's.
fn connection() -> Result<(TcpStream, TcpStream), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").doing("listen")?;
    let client = TcpStream::connect(listener.local_addr().doing("address")?).doing("connect")?;
    let (server, _) = listener.accept().doing("accept")?;
    Ok((server, client))
}

/// Sets or clears `O_NONBLOCK` of a socket's open file.
pub fn set_nonblocking(socket: impl AsFd, on: bool) -> Result<(), Failure> {
    let mut flags = fcntl_getfl(&socket).doing("fcntl(F_GETFL)")?;
    flags.set(OFlags::NONBLOCK, on);
    fcntl_setfl(&socket, flags).doing("fcntl(F_SETFL)")
}

/// Fills the socket until it takes nothing more; the flag is left set.
fn fill(mut socket: &TcpStream) -> Result<(), Failure> {
    set_nonblocking(socket, true)?;
    let bytes = vec![7; 1 << 20];
    loop {
        match socket.write(&bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).doing("fill the socket"),
        }
    }
}

/// A pipe of 1 MiB that holds `bytes` bytes of a file of zeros.
fn loaded_pipe(bytes: usize) -> Result<(OwnedFd, OwnedFd), Failure> {
    let (out, into) = pipe_with(PipeFlags::CLOEXEC).doing("pipe")?;
    fcntl_setpipe_size(&into, PIPE_BYTES).doing("size the pipe")?;
    let file = tempfile::tempfile().doing("temporary file")?;
    file.set_len(1 << 20).doing("size the file")?;
    let mut at = 0;
    while at < u64::try_from(bytes).expect("usize is 64 bits") {
        let rest = bytes - usize::try_from(at).expect("usize is 64 bits");
        rustix::pipe::splice(&file, Some(&mut at), &into, None, rest, SpliceFlags::empty())
            .doing("load the pipe")?;
    }
    Ok((out, into))
}

/// The chain that finishes within the patience, if one does.
fn wait(ring: &mut Ring) -> Result<Option<Finished>, Failure> {
    let mut finished = Vec::new();
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        ring.submit_and_wait(0).doing("enter")?;
        ring.reap(&mut finished);
        if let Some(chain) = finished.pop() {
            return Ok(Some(chain));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(None)
}

fn start(op: Op) -> Result<Ring, Failure> {
    let mut ring = Ring::new(RING_ENTRIES).doing("ring")?;
    ring.push(0, vec![op]).doing("push")?;
    ring.submit().doing("submit")?;
    Ok(ring)
}

fn buffer() -> Vec<u8> {
    vec![0; 4096]
}

/// Whether a receive waits; when it does, whether bytes that arrive later complete it.
fn waits_then_receives(ring: &mut Ring, mut client: &TcpStream) -> Result<String, Failure> {
    if let Some(chain) = wait(ring)? {
        return Ok(format!("does not wait: {}", named(chain.results[0])));
    }
    client.write_all(b"12345678").doing("send")?;
    Ok(match wait(ring)? {
        Some(chain) => format!("waits, then {}", named(chain.results[0])),
        None => "waits for ever".to_owned(),
    })
}

fn receive_on_nonblocking() -> Result<(), Failure> {
    let (server, client) = connection()?;
    set_nonblocking(&server, true)?;
    let socket = server.as_raw_fd();
    let mut ring = start(Op::Receive { socket, buffer: buffer(), flags: 0 })?;
    answer("RECV, empty O_NONBLOCK socket", &waits_then_receives(&mut ring, &client)?);
    Ok(())
}

fn receive_poll_first() -> Result<(), Failure> {
    let (server, client) = connection()?;
    set_nonblocking(&server, true)?;
    let socket = server.as_raw_fd();
    let mut ring = start(Op::ReceivePollFirst { socket, buffer: buffer() })?;
    answer("RECV with POLL_FIRST, the same", &waits_then_receives(&mut ring, &client)?);
    Ok(())
}

fn receive_dontwait() -> Result<(), Failure> {
    let (server, client) = connection()?;
    let socket = server.as_raw_fd();
    let flags = libc::MSG_DONTWAIT;
    let mut ring = start(Op::Receive { socket, buffer: buffer(), flags })?;
    answer("RECV with MSG_DONTWAIT, blocking socket", &waits_then_receives(&mut ring, &client)?);
    Ok(())
}

fn receive_then_flag() -> Result<(), Failure> {
    let (server, client) = connection()?;
    let socket = server.as_raw_fd();
    let mut ring = start(Op::Receive { socket, buffer: buffer(), flags: 0 })?;
    set_nonblocking(&server, true)?;
    answer("RECV waits, then O_NONBLOCK is set", &waits_then_receives(&mut ring, &client)?);
    Ok(())
}

fn send_on_full_nonblocking() -> Result<(), Failure> {
    let (server, mut client) = connection()?;
    fill(&server)?;
    let socket = server.as_raw_fd();
    let mut ring = start(Op::Send { socket, buffer: buffer(), from: 0, to: 4096 })?;
    let early = wait(&mut ring)?.map(|chain| named(chain.results[0]));
    drain(&mut client)?;
    let late = wait(&mut ring)?.map(|chain| named(chain.results[0]));
    answer(
        "SEND, full O_NONBLOCK socket",
        &match (early, late) {
            (Some(early), _) => format!("does not wait: {early}"),
            (None, Some(late)) => format!("waits, then {late}"),
            (None, None) => "waits for ever".to_owned(),
        },
    );
    Ok(())
}

/// Reads until the other side has sent nothing for a while.
fn drain(client: &mut TcpStream) -> Result<usize, Failure> {
    client.set_read_timeout(Some(Duration::from_millis(50))).doing("timeout")?;
    let mut bytes = vec![0; 1 << 20];
    let mut total = 0;
    loop {
        match client.read(&mut bytes) {
            Ok(0) => return Ok(total),
            Ok(count) => total += count,
            // A completion that is delivered to this thread interrupts the blocking read.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(total),
            Err(error) => return Err(error).doing("drain"),
        }
    }
}

fn splice_into_full(nonblocking: bool, flags: u32) -> Result<(), Failure> {
    let (server, mut client) = connection()?;
    fill(&server)?;
    set_nonblocking(&server, nonblocking)?;
    let (out, _into) = loaded_pipe(1 << 20)?;
    let op =
        |len| Op::Splice { from: out.as_raw_fd(), at: None, to: server.as_raw_fd(), len, flags };
    let mut ring = start(op(HOP_BYTES))?;
    let early = wait(&mut ring)?.map(|chain| named(chain.results[0]));
    let workers = crate::experiments::measure::kernel_workers();
    drain(&mut client)?;
    let late = wait(&mut ring)?.map(|chain| named(chain.results[0]));
    answer(
        &format!(
            "SPLICE pipe -> full socket, O_NONBLOCK {nonblocking}, SPLICE_F_NONBLOCK {}",
            flags != 0
        ),
        &match (early, late) {
            (Some(early), _) => format!("at once: {early}"),
            (None, Some(late)) => format!("parks ({workers} workers), then {late}"),
            (None, None) => format!("parks ({workers} workers) for ever"),
        },
    );
    Ok(())
}

fn flag_frees_parked_splice() -> Result<(), Failure> {
    let (server, mut client) = connection()?;
    fill(&server)?;
    set_nonblocking(&server, false)?;
    let (out, _into) = loaded_pipe(1 << 20)?;
    let (from, to) = (out.as_raw_fd(), server.as_raw_fd());
    let mut ring = start(Op::Splice { from, at: None, to, len: HOP_BYTES, flags: 0 })?;
    let parked = wait(&mut ring)?.is_none();
    set_nonblocking(&server, true)?;
    let after = wait(&mut ring)?.map(|chain| named(chain.results[0]));
    drain(&mut client)?;
    let late = wait(&mut ring)?.map(|chain| named(chain.results[0]));
    answer(
        "SPLICE parked on a blocking socket, then O_NONBLOCK is set",
        &format!("parked: {parked}; after the flag: {after:?}; after draining: {late:?}"),
    );
    Ok(())
}

async fn within_patience<T>(task: &mut tokio::task::JoinHandle<T>) -> Option<T> {
    match tokio::time::timeout(PATIENCE, task).await {
        Ok(Ok(outcome)) => Some(outcome),
        Ok(Err(_)) | Err(_) => None,
    }
}

fn told(result: std::io::Result<usize>) -> String {
    result.map_or_else(|error| error.to_string(), |count| format!("{count} bytes"))
}

async fn tokio_read_on_nonblocking() -> Result<(), Failure> {
    let (server, mut client) = connection()?;
    set_nonblocking(&server, true)?;
    let stream = tokio_uring::net::TcpStream::from_std(server);
    let mut task = tokio_uring::spawn(async move { told(stream.read(buffer()).await.0) });
    let outcome = match within_patience(&mut task).await {
        Some(told) => format!("does not wait: {told}"),
        None => {
            client.write_all(b"12345678").doing("send")?;
            let late = within_patience(&mut task).await;
            format!("waits, then {}", late.unwrap_or_else(|| "for ever".to_owned()))
        }
    };
    answer("tokio-uring read (OP_READ), empty O_NONBLOCK socket", &outcome);
    Ok(())
}

async fn tokio_write_on_full_nonblocking() -> Result<(), Failure> {
    let (server, mut client) = connection()?;
    fill(&server)?;
    let stream = tokio_uring::net::TcpStream::from_std(server);
    let mut task =
        tokio_uring::spawn(async move { told(stream.write(vec![1_u8; 4096]).submit().await.0) });
    let outcome = match within_patience(&mut task).await {
        Some(told) => format!("does not wait: {told}"),
        None => {
            drain(&mut client)?;
            let late = within_patience(&mut task).await;
            format!("waits, then {}", late.unwrap_or_else(|| "for ever".to_owned()))
        }
    };
    answer("tokio-uring write (OP_WRITE), full O_NONBLOCK socket", &outcome);
    Ok(())
}

/// A read waits on tokio-uring's ring; meanwhile the flag is set, a second ring splices into the
/// socket until it is full, waits with `POLL_ADD` and goes on; then the flag is cleared.
async fn tokio_read_across_splice() -> Result<(), Failure> {
    let (server, mut client) = connection()?;
    let socket = server.as_raw_fd();
    let flag = server.try_clone().doing("clone")?;
    let stream = Rc::new(tokio_uring::net::TcpStream::from_std(server));
    let reader = Rc::clone(&stream);
    let mut task = tokio_uring::spawn(async move { told(reader.read(buffer()).await.0) });
    let waited = within_patience(&mut task).await.is_none();
    set_nonblocking(&flag, true)?;
    let mut hops = 0;
    let mut refused = 0;
    while refused == 0 {
        let (out, _into) = loaded_pipe(1 << 19)?;
        let op = Op::Splice { from: out.as_raw_fd(), at: None, to: socket, len: 1 << 19, flags: 0 };
        let chain = wait(&mut start(op)?)?;
        match chain.map(|chain| chain.results[0]) {
            Some(result) if result == -libc::EAGAIN => refused += 1,
            Some(_) => hops += 1,
            None => return Err(Failure::Wrong("a non-blocking splice parked".to_owned())),
        }
    }
    let mut ring = start(Op::PollWritable { socket })?;
    let poll_waits = wait(&mut ring)?.is_none();
    client.write_all(b"12345678").doing("send")?;
    let read = within_patience(&mut task).await;
    let drained = drain(&mut client)?;
    let polled = wait(&mut ring)?.is_some();
    set_nonblocking(&flag, false)?;
    let reader = Rc::clone(&stream);
    let mut task = tokio_uring::spawn(async move { told(reader.read(buffer()).await.0) });
    let waits_again = within_patience(&mut task).await.is_none();
    client.write_all(b"1234").doing("send")?;
    let again = within_patience(&mut task).await;
    answer(
        "tokio-uring read waits across: flag set, splices until full, POLL_ADD, drained, cleared",
        &format!(
            "waited {waited}; {hops} hops then EAGAIN; POLLOUT waited {poll_waits}; read during \
             it: {read:?}; drained {drained} bytes; POLLOUT came {polled}; next read waited \
             {waits_again}, then {again:?}"
        ),
    );
    Ok(())
}
