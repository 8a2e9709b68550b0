//! The server's thread: one ring, many sockets, ranges of one file.
//!
//! A request is two numbers of eight bytes: position and length. The answer is its length in
//! eight bytes, then the range. A receive waits on every socket all the time, also while the
//! socket is spliced to.

use std::collections::VecDeque;
use std::fs::File;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::pipes::{Pipe, Pipes, hop_bytes_max};
use super::probe::set_nonblocking;
use super::{Mode, WhenFull};
use crate::experiments::measure::{self, Traced, Traces, u64_of, usize_of};
use crate::experiments::{Doing, Failure};
use crate::sys::mapping::Mapping;
use crate::sys::{Finished, Op, Ring};

/// Position and length.
pub const REQUEST_BYTES: usize = 2 * size_of::<u64>();
/// A request for so many bytes ends the server.
pub const STOP_BYTES: u64 = u64::MAX;
const HEADER_BYTES: usize = size_of::<u64>();
const RING_ENTRIES: u32 = 1024;
const RECEIVE_BYTES: usize = 64 * REQUEST_BYTES;
/// Room of one read before it is sent.
const COPY_BYTES_MAX: u64 = 256 << 10;
/// The most that one `sendfile`, or one send of mapped memory, moves, so that one socket can't hold
/// the thread for long.
const SENDFILE_BYTES_MAX: u64 = 1 << 20;

/// What the server is told.
pub struct Setup {
    pub file: File,
    pub mode: Mode,
    pub pipes_max: usize,
    pub workers_max: Option<u32>,
    pub core: usize,
}

/// What the server counted.
#[derive(Default, Clone, Copy)]
pub struct Served {
    pub answers: u64,
    pub failed: u64,
    pub full: u64,
    pub short_first_hops: u64,
    pub pipes_made: u64,
    pub pipes_lent: u64,
    pub pipes_closed_dirty: u64,
    pub enters: u64,
    /// Of the server's thread since its first request.
    pub traced: Traced,
}

/// The part of the file that is still to be sent.
#[derive(Clone, Copy)]
struct Range {
    at: u64,
    left: u64,
}

/// What a socket is doing besides receiving; each but the first and `Waiting` has one chain in
/// flight, and no two ever do.
enum Phase {
    Idle,
    Header,
    /// For a pipe.
    Waiting,
    /// File to pipe, pipe to socket.
    BothHops {
        pipe: Pipe,
        bytes: u64,
    },
    /// Pipe to socket alone: the pipe held bytes.
    SecondHop {
        pipe: Pipe,
    },
    /// For room in the socket.
    Full {
        pipe: Option<Pipe>,
    },
    Copying,
}

struct Connection {
    socket: TcpStream,
    requests: VecDeque<Range>,
    received: Vec<u8>,
    range: Range,
    phase: Phase,
    /// The other side is gone; what is in flight is waited for.
    is_closing: bool,
}

/// What a chain belongs to.
#[derive(Clone, Copy)]
enum Tag {
    Listener,
    Receive(usize),
    Transfer(usize),
}

impl Tag {
    fn number(self) -> u64 {
        match self {
            Self::Listener => 0,
            Self::Receive(index) => u64_of(index * 2 + 2),
            Self::Transfer(index) => u64_of(index * 2 + 3),
        }
    }

    fn of(number: u64) -> Self {
        match usize_of(number) {
            0 => Self::Listener,
            even if even % 2 == 0 => Self::Receive(even / 2 - 1),
            odd => Self::Transfer((odd - 3) / 2),
        }
    }
}

struct Server {
    ring: Ring,
    listener: TcpListener,
    /// An index is never given twice, so that a late completion finds nobody.
    connections: Vec<Option<Connection>>,
    waiting: VecDeque<usize>,
    /// Who holds a pipe while its socket is full, the longest first; entries may be out of date.
    holders: VecDeque<usize>,
    pipes: Pipes,
    /// Buffers that nobody sends from.
    spare: Vec<Vec<u8>>,
    file: File,
    /// The same file, where it is sent from memory.
    mapped: Option<Arc<Mapping>>,
    mode: Mode,
    served: Served,
    traces: Traces,
    /// What these stood at when the first request came.
    begun: Option<Traced>,
    is_told_to_stop: bool,
}

/// Serves until it is asked to stop. Tells its address once it listens.
pub fn serve(setup: Setup, ready: &Sender<SocketAddr>) -> Result<Served, Failure> {
    measure::pin(setup.core)?;
    let ring = Ring::new(RING_ENTRIES).doing("ring")?;
    if let Some(count) = setup.workers_max {
        ring.bound_workers(count, count).doing("bound the kernel's workers")?;
    }
    let listener = TcpListener::bind("127.0.0.1:0").doing("listen")?;
    listener.set_nonblocking(true).doing("set O_NONBLOCK")?;
    let told = ready.send(listener.local_addr().doing("address")?);
    told.map_err(|_| Failure::Wrong("nobody waits for the server".to_owned()))?;
    let mapped = match setup.mode {
        Mode::Mapped => Some(Arc::new(Mapping::read_only(&setup.file).doing("map the file")?)),
        _ => None,
    };
    let mut server = Server {
        ring,
        listener,
        connections: Vec::new(),
        waiting: VecDeque::new(),
        holders: VecDeque::new(),
        pipes: Pipes::new(setup.pipes_max),
        spare: Vec::new(),
        file: setup.file,
        mapped,
        mode: setup.mode,
        served: Served::default(),
        traces: Traces::of_this_thread(),
        begun: None,
        is_told_to_stop: false,
    };
    server.watch_listener()?;
    server.run()?;
    Ok(server.counts())
}

impl Server {
    fn run(&mut self) -> Result<(), Failure> {
        let mut finished = Vec::new();
        while !self.is_told_to_stop {
            self.ring.submit_and_wait(1).doing("enter")?;
            self.ring.reap(&mut finished);
            for chain in finished.drain(..) {
                self.handle(chain)?;
            }
            self.serve_waiting()?;
        }
        Ok(())
    }

    fn counts(&self) -> Served {
        Served {
            pipes_made: self.pipes.made,
            pipes_lent: self.pipes.lendings,
            pipes_closed_dirty: self.pipes.closed_dirty,
            enters: self.ring.enters,
            traced: self.begun.map_or(Traced::default(), |begun| self.traces.since(begun)),
            ..self.served
        }
    }

    fn handle(&mut self, chain: Finished) -> Result<(), Failure> {
        match Tag::of(chain.tag) {
            Tag::Listener => {
                self.accept()?;
                self.watch_listener()
            }
            Tag::Receive(index) => self.received(index, chain),
            Tag::Transfer(index) => self.transferred(index, chain),
        }
    }

    fn watch_listener(&mut self) -> Result<(), Failure> {
        let socket = self.listener.as_raw_fd();
        self.ring.push(Tag::Listener.number(), vec![Op::PollReadable { socket }]).doing("push")
    }

    fn accept(&mut self) -> Result<(), Failure> {
        loop {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).doing("accept"),
            };
            socket.set_nodelay(true).doing("set TCP_NODELAY")?;
            set_nonblocking(&socket, self.mode != Mode::SpliceBlocking)?;
            self.connections.push(Some(Connection {
                socket,
                requests: VecDeque::new(),
                received: Vec::new(),
                range: Range { at: 0, left: 0 },
                phase: Phase::Idle,
                is_closing: false,
            }));
            self.receive(self.connections.len() - 1, vec![0; RECEIVE_BYTES])?;
        }
    }

    fn socket(&self, index: usize) -> RawFd {
        let connection = self.connections[index].as_ref().expect("the connection is open");
        connection.socket.as_raw_fd()
    }

    fn connection(&mut self, index: usize) -> &mut Connection {
        self.connections[index].as_mut().expect("the connection is open")
    }

    fn receive(&mut self, index: usize, buffer: Vec<u8>) -> Result<(), Failure> {
        let op = Op::Receive { socket: self.socket(index), buffer, flags: 0 };
        self.ring.push(Tag::Receive(index).number(), vec![op]).doing("push")
    }

    fn received(&mut self, index: usize, mut chain: Finished) -> Result<(), Failure> {
        let Some(connection) = self.connections[index].as_mut() else { return Ok(()) };
        let Some(Op::Receive { buffer, .. }) = chain.ops.pop() else {
            unreachable!("a receive is a chain of its own")
        };
        let count = usize::try_from(chain.results[0]).unwrap_or(0);
        if count == 0 {
            connection.is_closing = true;
            return self.close_if_quiet(index);
        }
        connection.received.extend_from_slice(&buffer[..count]);
        while let Some(range) = connection.next_request() {
            self.is_told_to_stop |= range.left == STOP_BYTES;
            connection.requests.push_back(range);
        }
        let is_idle = matches!(connection.phase, Phase::Idle);
        self.receive(index, buffer)?;
        if is_idle { self.next_answer(index) } else { Ok(()) }
    }

    /// Closes a connection that has no chain of its own in flight but perhaps a receive.
    fn close_if_quiet(&mut self, index: usize) -> Result<(), Failure> {
        match self.connection(index).phase {
            Phase::Idle | Phase::Waiting => self.connections[index] = None,
            Phase::Header
            | Phase::BothHops { .. }
            | Phase::SecondHop { .. }
            | Phase::Full { .. }
            | Phase::Copying => {
                // Frees a hop or a send that waits for room in the socket.
                let socket = &self.connection(index).socket;
                let _already_gone = socket.shutdown(std::net::Shutdown::Both);
            }
        }
        Ok(())
    }

    fn next_answer(&mut self, index: usize) -> Result<(), Failure> {
        let connection = self.connection(index);
        let Some(range) = connection.requests.pop_front() else {
            connection.phase = Phase::Idle;
            return Ok(());
        };
        connection.range = range;
        connection.phase = Phase::Header;
        if self.begun.is_none() {
            self.begun = Some(self.traces.start());
        }
        let socket = self.socket(index);
        let buffer = range.left.to_le_bytes().to_vec();
        self.start(index, vec![Op::Send { socket, buffer, from: 0, to: HEADER_BYTES }])
    }

    fn start(&mut self, index: usize, ops: Vec<Op>) -> Result<(), Failure> {
        self.ring.push(Tag::Transfer(index).number(), ops).doing("push")
    }

    /// Goes on with a range, or with the next request when it is whole.
    fn go_on(&mut self, index: usize) -> Result<(), Failure> {
        if self.connection(index).range.left == 0 {
            self.served.answers += 1;
            return self.next_answer(index);
        }
        match self.mode {
            Mode::Splice(_) | Mode::SpliceBlocking => self.splice(index),
            Mode::Sendfile => self.sendfile(index),
            Mode::ReadSend | Mode::ReadSendZeroCopy => self.copy(index),
            Mode::Mapped => self.send_mapped(index),
        }
    }

    fn splice(&mut self, index: usize) -> Result<(), Failure> {
        let Some(pipe) = self.take_pipe()? else {
            self.connection(index).phase = Phase::Waiting;
            self.waiting.push_back(index);
            return Ok(());
        };
        let Range { at, left } = self.connection(index).range;
        let bytes = left.min(hop_bytes_max(at));
        let len = u32::try_from(bytes).expect("a hop is below 1 MiB");
        let (file, socket) = (self.file.as_raw_fd(), self.socket(index));
        let flags = 0;
        let first = Op::Splice { from: file, at: Some(at), to: pipe.input(), len, flags };
        let second = Op::Splice { from: pipe.out(), at: None, to: socket, len, flags };
        self.connection(index).phase = Phase::BothHops { pipe, bytes };
        self.start(index, vec![first, second])
    }

    /// A pipe of the pool; when all are lent and that is the policy, the one that has waited
    /// longest for a full socket is closed. Its bytes are still in the file.
    fn take_pipe(&mut self) -> Result<Option<Pipe>, Failure> {
        if let Some(pipe) = self.pipes.take()? {
            return Ok(Some(pipe));
        }
        if self.mode != Mode::Splice(WhenFull::Steal) {
            return Ok(None);
        }
        while let Some(index) = self.holders.pop_front() {
            let Some(connection) = self.connections[index].as_mut() else { continue };
            let Phase::Full { pipe } = &mut connection.phase else { continue };
            let Some(pipe) = pipe.take() else { continue };
            self.pipes.give_back(pipe);
            return self.pipes.take();
        }
        Ok(None)
    }

    fn serve_waiting(&mut self) -> Result<(), Failure> {
        for _ in 0..self.waiting.len() {
            let Some(index) = self.waiting.pop_front() else { break };
            if self.connections[index].is_some() {
                self.go_on(index)?;
            }
        }
        Ok(())
    }

    fn sendfile(&mut self, index: usize) -> Result<(), Failure> {
        let connection = self.connections[index].as_mut().expect("the connection is open");
        while connection.range.left > 0 {
            let Range { mut at, left } = connection.range;
            let bytes = usize_of(left.min(SENDFILE_BYTES_MAX));
            match rustix::fs::sendfile(&connection.socket, &self.file, Some(&mut at), bytes) {
                Ok(count) => connection.range.advance(u64_of(count)),
                Err(rustix::io::Errno::AGAIN) => return self.wait_for_room(index, None),
                Err(_) => return self.fail(index, None),
            }
        }
        self.go_on(index)
    }

    fn copy(&mut self, index: usize) -> Result<(), Failure> {
        let Range { at, left } = self.connection(index).range;
        let len = usize_of(left.min(COPY_BYTES_MAX));
        self.connection(index).phase = Phase::Copying;
        // A read of a cached range completes inline on the ring too, so it is a system call here.
        let mut buffer = self.spare.pop().unwrap_or_else(|| vec![0; usize_of(COPY_BYTES_MAX)]);
        let count = rustix::io::pread(&self.file, &mut buffer[..len], at).doing("read")?;
        assert_eq!(count, len, "the file ended early");
        let socket = self.socket(index);
        let (from, to) = (0, len);
        let send = match self.mode {
            Mode::ReadSendZeroCopy => Op::SendZeroCopy { socket, buffer, from, to },
            _ => Op::Send { socket, buffer, from, to },
        };
        self.start(index, vec![send])
    }

    fn send_mapped(&mut self, index: usize) -> Result<(), Failure> {
        let Range { at, left } = self.connection(index).range;
        self.connection(index).phase = Phase::Copying;
        let len = u32::try_from(left.min(SENDFILE_BYTES_MAX)).expect("1 MiB at most");
        let file = self.mapped.clone().expect("the file is mapped in this mode");
        let socket = self.socket(index);
        self.start(index, vec![Op::SendMapped { socket, file, at, len }])
    }

    fn wait_for_room(&mut self, index: usize, pipe: Option<Pipe>) -> Result<(), Failure> {
        self.served.full += 1;
        let pipe = match (self.mode, pipe) {
            (Mode::Splice(WhenFull::Drop), Some(pipe)) => {
                self.pipes.give_back(pipe);
                None
            }
            (_, pipe) => pipe,
        };
        if pipe.is_some() {
            self.holders.push_back(index);
        }
        self.connection(index).phase = Phase::Full { pipe };
        let socket = self.socket(index);
        self.start(index, vec![Op::PollWritable { socket }])
    }

    /// Ends a connection after an error in the middle of an answer.
    fn fail(&mut self, index: usize, pipe: Option<Pipe>) -> Result<(), Failure> {
        self.served.failed += 1;
        if let Some(pipe) = pipe {
            self.pipes.give_back(pipe);
        }
        self.connections[index] = None;
        Ok(())
    }

    fn transferred(&mut self, index: usize, mut chain: Finished) -> Result<(), Failure> {
        let connection = self.connection(index);
        let phase = std::mem::replace(&mut connection.phase, Phase::Idle);
        if matches!(phase, Phase::Copying)
            && let Some(Op::Send { buffer, .. } | Op::SendZeroCopy { buffer, .. }) = chain.ops.pop()
        {
            self.spare.push(buffer);
        }
        let connection = self.connection(index);
        let chain = &chain;
        if connection.is_closing {
            return self.fail(index, pipe_after(phase, chain));
        }
        match phase {
            Phase::Idle | Phase::Waiting => unreachable!("nothing was in flight"),
            Phase::Header if chain.results[0] == 8 => self.go_on(index),
            Phase::Header => self.fail(index, None),
            Phase::BothHops { pipe, bytes } => self.after_both_hops(index, pipe, (bytes, chain)),
            Phase::SecondHop { pipe } => self.after_second_hop(index, pipe, chain.results[0]),
            Phase::Full { pipe: Some(pipe) } => self.second_hop(index, pipe),
            Phase::Full { pipe: None } => self.go_on(index),
            Phase::Copying => self.after_copy(index, chain.results[0]),
        }
    }

    fn after_both_hops(
        &mut self,
        index: usize,
        mut pipe: Pipe,
        (bytes, chain): (u64, &Finished),
    ) -> Result<(), Failure> {
        let Ok(loaded) = u64::try_from(chain.results[0]) else {
            return self.fail(index, Some(pipe));
        };
        pipe.holds = loaded;
        if loaded < bytes {
            // A short hop ends the chain; what it moved is in the pipe.
            self.served.short_first_hops += 1;
            return self.second_hop(index, pipe);
        }
        self.after_second_hop(index, pipe, chain.results[1])
    }

    fn second_hop(&mut self, index: usize, pipe: Pipe) -> Result<(), Failure> {
        let len = u32::try_from(pipe.holds).expect("a pipe holds 1 MiB at most");
        assert!(len > 0);
        let (from, to) = (pipe.out(), self.socket(index));
        self.connection(index).phase = Phase::SecondHop { pipe };
        self.start(index, vec![Op::Splice { from, at: None, to, len, flags: 0 }])
    }

    fn after_second_hop(
        &mut self,
        index: usize,
        mut pipe: Pipe,
        result: i32,
    ) -> Result<(), Failure> {
        if result == -libc::EAGAIN {
            return self.wait_for_room(index, Some(pipe));
        }
        let moved = match u64::try_from(result) {
            Ok(moved) if moved > 0 => moved,
            _ => return self.fail(index, Some(pipe)),
        };
        pipe.holds -= moved;
        self.connection(index).range.advance(moved);
        if pipe.holds > 0 {
            return self.wait_for_room(index, Some(pipe));
        }
        self.pipes.give_back(pipe);
        self.go_on(index)
    }

    fn after_copy(&mut self, index: usize, result: i32) -> Result<(), Failure> {
        match u64::try_from(result) {
            Ok(count) if count > 0 => {
                self.connection(index).range.advance(count);
                self.go_on(index)
            }
            _ => self.fail(index, None),
        }
    }
}

/// The pipe of a chain that nobody waits for any more, with what it holds now.
fn pipe_after(phase: Phase, chain: &Finished) -> Option<Pipe> {
    let moved = |member: usize| u64::try_from(chain.results[member]).unwrap_or(0);
    match phase {
        Phase::BothHops { mut pipe, .. } => {
            pipe.holds = moved(0) - moved(1);
            Some(pipe)
        }
        Phase::SecondHop { mut pipe } => {
            pipe.holds -= moved(0);
            Some(pipe)
        }
        Phase::Full { pipe } => pipe,
        Phase::Idle | Phase::Header | Phase::Waiting | Phase::Copying => None,
    }
}

impl Range {
    fn advance(&mut self, bytes: u64) {
        assert!(bytes <= self.left);
        self.at += bytes;
        self.left -= bytes;
    }
}

impl Connection {
    fn next_request(&mut self) -> Option<Range> {
        let (at, rest) = self.received.split_first_chunk::<{ size_of::<u64>() }>()?;
        let left = rest.first_chunk::<{ size_of::<u64>() }>()?;
        let range = Range { at: u64::from_le_bytes(*at), left: u64::from_le_bytes(*left) };
        self.received.drain(..REQUEST_BYTES);
        Some(range)
    }
}
