//! File ranges to sockets without a copy: file -> pipe -> socket, as linked pairs of splices.
//!
//! The socket must be non-blocking, or a slow reader would park a kernel worker. Then a splice
//! into a full socket ends at once, short or with `EAGAIN`, and the transfer waits for the socket
//! with `POLL_ADD`. The caller keeps the socket open until the transfer is over; a transfer whose
//! peer stalls for ever ends when the caller shuts the socket down.
//!
//! Who has a pipe: a transfer whose hop is under way. After each hop it passes the pipe on when
//! another wants one. A transfer that waits for its socket keeps its pipe only as long as nobody
//! else wants it; otherwise the pipe is closed, bytes and all. That loses nothing, because the
//! pipe holds references to the file's pages and published bytes never change: the transfer goes on
//! from the first byte that the socket hasn't taken. So any number of stalled readers holds no pipe
//! that a live one needs, and at most `pipes_max` pipes are open. (1 MiB to a live reader on a
//! busy machine of two cores, unoptimised build: median 0.53 ms alone, 0.51 ms beside 200 stalled
//! ones; p99 3.0 and 4.0 ms with 16 pipes, 6.5 ms with 4; 7 kernel workers in all.) The price is
//! one new pipe for each that is taken away so.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::disk::errors::{self, TRANSIENT_RETRIES_MAX};
use crate::disk::{DiskError, FileId};
use crate::ring::disk::RingDisk;
use crate::ring::files::FileSlot;
use crate::ring::pipes::{Pipe, Pipes};
use crate::ring::slots::Ticket;
use crate::units::{ByteCount, Position};

/// Transfers under way at a time, waiting ones included.
pub const TRANSFERS_MAX: usize = 65_536;

/// A transfer that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendFinished {
    /// As given to [`RingDisk::send_slice`].
    pub token: u64,
    /// Whether all bytes are with the socket. After a failure some may be: close the connection.
    pub result: Result<(), SendError>,
}

/// Why a transfer ended early.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// The peer is gone, or the socket failed.
    #[error("the socket takes no more (errno {0})")]
    Socket(i32),
    /// The file failed.
    #[error("the file can't be read: {0}")]
    File(DiskError),
    /// The file ends before the range does.
    #[error("the file ends before the range does")]
    FileEnded,
    /// No pipe could be made.
    #[error("no pipe can be made (errno {0}); raise the nofile limit")]
    NoPipe(i32),
    /// The socket is in blocking mode.
    #[error("the socket is in blocking mode; set O_NONBLOCK when it is accepted")]
    Blocking,
    /// [`TRANSFERS_MAX`] are under way.
    #[error("more than {TRANSFERS_MAX} transfers are under way")]
    TooMany,
    /// The ring was dropped.
    #[error("given up")]
    GivenUp,
}

#[derive(Debug)]
struct Transfer {
    token: u64,
    socket: RawFd,
    fixed: FileSlot,
    /// Position in the file of the next byte that goes into a pipe.
    at: u64,
    /// Bytes that are not in a pipe yet.
    left: u64,
    /// Bytes in the pipe.
    buffered: u64,
    pipe: Option<Pipe>,
    /// Completions to come.
    pending: usize,
    /// What the two hops returned; `None`: that hop was not under way.
    filled: Option<i32>,
    drained: Option<i32>,
    waits_for_socket: bool,
    retries: u32,
}

/// What a transfer does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Bytes in the pipe go to the socket.
    Drain,
    /// The next hop.
    Hop,
    /// It waits until the socket takes bytes.
    Wait,
    /// It is over.
    End(Result<(), SendError>),
}

impl Transfer {
    /// Books what the hops returned and says what is next.
    fn book(&mut self) -> Next {
        let (filled, drained) = (self.filled.take(), self.drained.take());
        if let Some(result) = filled {
            match u64::try_from(result) {
                Ok(0) => return Next::End(Err(SendError::FileEnded)),
                Ok(bytes) => {
                    self.at += bytes;
                    self.left -= bytes;
                    self.buffered += bytes;
                }
                Err(_) => return self.after_file_failure(-result),
            }
        }
        let Some(result) = drained else { return self.next() };
        match u64::try_from(result) {
            Ok(0) => Next::End(Err(SendError::Socket(Errno::IO.raw_os_error()))),
            Ok(bytes) => {
                self.buffered -= bytes;
                self.retries = 0;
                if self.buffered == 0 { self.next() } else { Next::Wait }
            }
            Err(_) => match Errno::from_raw_os_error(-result) {
                Errno::AGAIN => Next::Wait,
                // The hop before it was short, so this one never ran.
                Errno::CANCELED => Next::Drain,
                Errno::INTR | Errno::NOMEM if self.may_retry() => Next::Drain,
                errno => Next::End(Err(SendError::Socket(errno.raw_os_error()))),
            },
        }
    }

    fn next(&self) -> Next {
        match (self.buffered, self.left) {
            (0, 0) => Next::End(Ok(())),
            (0, _) => Next::Hop,
            _ => Next::Drain,
        }
    }

    fn after_file_failure(&mut self, errno: i32) -> Next {
        let error = errors::classify(errno);
        if matches!(error, DiskError::Transient(_)) && self.may_retry() {
            return self.next();
        }
        Next::End(Err(SendError::File(error)))
    }

    fn may_retry(&mut self) -> bool {
        self.retries += 1;
        self.retries <= TRANSIENT_RETRIES_MAX
    }

    /// Forgets what is in the pipe; it comes from the file once more.
    fn rewind(&mut self) {
        self.at -= self.buffered;
        self.left += self.buffered;
        self.buffered = 0;
    }

    fn pipe(&self) -> &Pipe {
        self.pipe.as_ref().expect("a hop has a pipe")
    }

    /// The pair of hops for the next bytes.
    fn hop(&self, index: usize) -> [Entry; 2] {
        let pipe = self.pipe();
        let bytes = self.left.min(pipe.hop_bytes_max(self.at));
        let length = u32::try_from(bytes).expect("a pipe holds at most 1 MiB");
        let at = i64::try_from(self.at).expect("files are shorter than 2^63 bytes");
        let write = types::Fd(pipe.write.as_raw_fd());
        let fill = opcode::Splice::new(types::Fixed(self.fixed), at, write, -1, length).build();
        let fill = fill.flags(Flags::IO_LINK);
        let fill = fill.user_data(Ticket::Fill { transfer: index }.encode());
        [fill, self.drain_entry(index, length, bytes < self.left)]
    }

    /// What is in the pipe, to the socket.
    fn drain(&self, index: usize) -> Entry {
        let length = u32::try_from(self.buffered).expect("a pipe holds at most 1 MiB");
        self.drain_entry(index, length, 0 < self.left)
    }

    fn drain_entry(&self, index: usize, length: u32, more: bool) -> Entry {
        let read = types::Fd(self.pipe().read.as_raw_fd());
        let flags = if more { libc::SPLICE_F_MORE } else { 0 };
        opcode::Splice::new(read, -1, types::Fd(self.socket), -1, length)
            .flags(flags)
            .build()
            .user_data(Ticket::Drain { transfer: index }.encode())
    }

    fn wait_entry(&self, index: usize) -> Entry {
        let events = u32::try_from(libc::POLLOUT).expect("a small constant");
        opcode::PollAdd::new(types::Fd(self.socket), events)
            .build()
            .user_data(Ticket::Writable { transfer: index }.encode())
    }
}

/// All transfers of a ring.
#[derive(Debug)]
pub(crate) struct Transfers {
    all: Vec<Option<Transfer>>,
    free: Vec<usize>,
    /// Transfers whose next entries are to be pushed.
    ready: VecDeque<usize>,
    /// Transfers that want a pipe, oldest first.
    wanting: VecDeque<usize>,
    /// Transfers that wait for their socket and have a pipe: no more of them than pipes.
    parked: VecDeque<usize>,
    finished: VecDeque<SendFinished>,
    pipes: Pipes,
}

impl Transfers {
    pub(crate) fn new(pipes_max: usize) -> Transfers {
        Transfers {
            all: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            wanting: VecDeque::new(),
            parked: VecDeque::new(),
            finished: VecDeque::new(),
            pipes: Pipes::new(pipes_max),
        }
    }

    pub(crate) fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    pub(crate) fn under_way(&self) -> usize {
        self.all.len() - self.free.len()
    }

    fn insert(&mut self, transfer: Transfer) -> usize {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        self.all[index] = Some(transfer);
        index
    }

    fn get(&mut self, index: usize) -> &mut Transfer {
        self.all[index].as_mut().expect("only transfers under way are named")
    }

    /// Takes a transfer's pipe: back to the pool when empty, closed when not.
    fn take_pipe(&mut self, index: usize) {
        let transfer = self.get(index);
        let Some(pipe) = transfer.pipe.take() else { return };
        if transfer.buffered == 0 {
            self.pipes.give(pipe);
        } else {
            transfer.rewind();
            self.pipes.discard(pipe);
        }
        if let Some(next) = self.wanting.pop_front() {
            self.ready.push_back(next);
        }
    }

    /// A pipe from a transfer that can't use it now.
    fn steal(&mut self) {
        if let Some(index) = self.parked.pop_front() {
            assert!(self.get(index).waits_for_socket, "no hop of a parked transfer is under way");
            self.take_pipe(index);
        }
    }

    /// Makes sure that a transfer has a pipe; otherwise it waits for one. `Err`: none can be made.
    fn provide(&mut self, index: usize) -> Result<bool, SendError> {
        if self.get(index).pipe.is_some() {
            return Ok(true);
        }
        let mut taken = self.pipes.take();
        if matches!(taken, Ok(None)) {
            self.steal();
            taken = self.pipes.take();
        }
        match taken {
            Ok(Some(pipe)) => {
                self.get(index).pipe = Some(pipe);
                Ok(true)
            }
            // One of those that have a pipe passes it on.
            Err(_) if 0 < self.pipes.open() => {
                self.wanting.push_back(index);
                Ok(false)
            }
            Ok(None) => {
                self.wanting.push_back(index);
                Ok(false)
            }
            Err(errno) => Err(SendError::NoPipe(errno.raw_os_error())),
        }
    }
}

impl RingDisk {
    /// Starts sending `length` bytes of a file, from `at` on, to a non-blocking socket. The range
    /// must exist and never change. Enters the kernel with the next [`crate::disk::Disk::enter`];
    /// the outcome comes from [`RingDisk::reap_send`].
    pub fn send_slice(
        &mut self,
        file: FileId,
        at: Position,
        length: ByteCount,
        socket: BorrowedFd<'_>,
        token: u64,
    ) {
        let refused = match self.files.slot_of(file) {
            None => Err(SendError::File(errors::not_open())),
            Some(fixed) => self.checked(socket).map(|()| fixed),
        };
        let fixed = match refused {
            Ok(fixed) => fixed,
            Err(error) => return self.end(token, Err(error)),
        };
        self.files.pin(fixed);
        let index = self.transfers.insert(Transfer {
            token,
            socket: socket.as_raw_fd(),
            fixed,
            at: at.0,
            left: length.0,
            buffered: 0,
            pipe: None,
            pending: 0,
            filled: None,
            drained: None,
            waits_for_socket: false,
            retries: 0,
        });
        self.transfers.ready.push_back(index);
    }

    fn checked(&self, socket: BorrowedFd<'_>) -> Result<(), SendError> {
        if TRANSFERS_MAX <= self.transfers.under_way() {
            return Err(SendError::TooMany);
        }
        let flags = rustix::fs::fcntl_getfl(socket);
        let flags = flags.map_err(|errno| SendError::Socket(errno.raw_os_error()))?;
        if flags.contains(OFlags::NONBLOCK) { Ok(()) } else { Err(SendError::Blocking) }
    }

    fn end(&mut self, token: u64, result: Result<(), SendError>) {
        self.transfers.finished.push_back(SendFinished { token, result });
    }

    /// Returns a transfer that is over, in any order. Like [`crate::disk::Disk::reap`], it is to be
    /// called until it returns `None` whenever the descriptor was readable.
    pub fn reap_send(&mut self) -> Option<SendFinished> {
        self.harvest();
        self.push_continued();
        self.push_sends();
        self.hand_over_pushed();
        self.transfers.finished.pop_front()
    }

    /// Transfers that are not over.
    pub fn sends_under_way(&self) -> usize {
        self.transfers.under_way()
    }

    /// Pipes that are open now, idle ones included.
    pub fn pipes_open(&self) -> usize {
        self.transfers.pipes.open()
    }

    /// Pushes the next entries of all transfers that have some.
    pub(crate) fn push_sends(&mut self) {
        while let Some(index) = self.transfers.ready.pop_front() {
            let next = self.transfers.get(index).next();
            self.push_send(index, next);
        }
    }

    fn push_send(&mut self, index: usize, next: Next) {
        match next {
            Next::End(result) => self.end_transfer(index, result),
            Next::Wait => {
                let transfer = self.transfers.get(index);
                transfer.waits_for_socket = true;
                let entry = transfer.wait_entry(index);
                self.push_entries(index, &[entry]);
                if !self.transfers.wanting.is_empty() {
                    self.transfers.take_pipe(index);
                } else if self.transfers.get(index).pipe.is_some() {
                    self.transfers.parked.push_back(index);
                }
            }
            Next::Drain => {
                let entry = self.transfers.get(index).drain(index);
                self.counters.splices += 1;
                self.push_entries(index, &[entry]);
            }
            Next::Hop => match self.transfers.provide(index) {
                Ok(true) => {
                    let entries = self.transfers.get(index).hop(index);
                    self.counters.splices += 2;
                    self.counters.linked_sqes += 1;
                    self.push_entries(index, &entries);
                }
                Ok(false) => {}
                Err(error) => self.end_transfer(index, Err(error)),
            },
        }
    }

    fn push_entries(&mut self, index: usize, entries: &[Entry]) {
        self.transfers.get(index).pending = entries.len();
        self.push(entries);
    }

    /// Takes a completion of a transfer.
    pub(crate) fn complete_send(&mut self, ticket: Ticket, result: i32) {
        let (Ticket::Fill { transfer: index }
        | Ticket::Drain { transfer: index }
        | Ticket::Writable { transfer: index }) = ticket
        else {
            unreachable!("only tickets of transfers come here")
        };
        let transfer = self.transfers.get(index);
        transfer.pending -= 1;
        match ticket {
            Ticket::Fill { .. } => transfer.filled = Some(result),
            Ticket::Drain { .. } => transfer.drained = Some(result),
            _ => return self.socket_is_ready(index, result),
        }
        if transfer.pending == 0 {
            let next = transfer.book();
            if self.is_ending {
                return self.end_transfer(index, Err(SendError::GivenUp));
            }
            self.after_hop(index, next);
        }
    }

    fn after_hop(&mut self, index: usize, next: Next) {
        if next == Next::Hop && !self.transfers.wanting.is_empty() {
            self.transfers.take_pipe(index);
            // Behind those that waited longer.
            self.transfers.wanting.push_back(index);
            return;
        }
        self.push_send(index, next);
    }

    fn socket_is_ready(&mut self, index: usize, result: i32) {
        self.transfers.parked.retain(|parked| *parked != index);
        let transfer = self.transfers.get(index);
        transfer.waits_for_socket = false;
        if self.is_ending {
            return self.end_transfer(index, Err(SendError::GivenUp));
        }
        // An error of the socket shows in the splice that follows.
        let next = match result {
            0.. => transfer.next(),
            _ if -result == Errno::CANCELED.raw_os_error() => Next::End(Err(SendError::GivenUp)),
            _ => Next::End(Err(SendError::Socket(-result))),
        };
        self.push_send(index, next);
    }

    fn end_transfer(&mut self, index: usize, result: Result<(), SendError>) {
        self.transfers.take_pipe(index);
        let transfer = self.transfers.all[index].take().expect("it was under way");
        assert_eq!(transfer.pending, 0, "the kernel still works on this transfer");
        self.transfers.free.push(index);
        self.files.unpin(transfer.fixed);
        self.end(transfer.token, result);
    }

    /// Gives all transfers up: waits for hops, cancels waits. For the end of the ring.
    pub(crate) fn give_up_sends(&mut self) {
        self.transfers.ready.clear();
        self.transfers.wanting.clear();
        for index in 0..self.transfers.all.len() {
            if self.transfers.all[index].as_ref().is_some_and(|it| it.waits_for_socket) {
                let waiting = Ticket::Writable { transfer: index }.encode();
                let cancel = opcode::AsyncCancel::new(waiting).build();
                self.push(&[cancel.user_data(Ticket::Cancel.encode())]);
            }
        }
    }

    /// Whether the kernel works on any transfer.
    pub(crate) fn sends_in_kernel(&self) -> bool {
        self.transfers.all.iter().flatten().any(|transfer| 0 < transfer.pending)
    }
}
