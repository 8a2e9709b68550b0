//! The one module of the harness that holds `unsafe`: rings that own all memory their operations
//! point at, mapped files, tracepoint counters, the placement of kernel workers, and the allocator.

pub mod mapping;

pub mod write_ring;

use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use memmap2::Mmap;
use rustix::net::RecvFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use mapping::Mapping;

/// Most operations of one chain: log, index, time index, sync fit.
pub const CHAIN_OPS_MAX: usize = 8;
/// Most pieces of one gathered write, the kernel's own bound.
pub const WRITE_PARTS_MAX: usize = 1024;

/// One operation. It owns what the kernel reads from or writes to, and names files by descriptor:
/// a descriptor that was closed too early makes the operation fail, never touch memory.
pub enum Op {
    /// A gathered write at a position in bytes.
    Write { file: RawFd, parts: Vec<Bytes>, at: u64 },
    /// `fdatasync`.
    Sync { file: RawFd },
    /// `recv` into the whole buffer.
    Receive { socket: RawFd, buffer: Vec<u8>, flags: i32 },
    /// `recv` that is told to wait for readiness first (`IORING_RECVSEND_POLL_FIRST`).
    ReceivePollFirst { socket: RawFd, buffer: Vec<u8> },
    /// `send` of `buffer[from..to]`.
    Send { socket: RawFd, buffer: Vec<u8>, from: usize, to: usize },
    /// The same without a copy where the network can do without (`SEND_ZC`): over when the kernel
    /// has let go of the buffer.
    SendZeroCopy { socket: RawFd, buffer: Vec<u8>, from: usize, to: usize },
    /// `send` of `len` bytes of a mapped file.
    SendMapped { socket: RawFd, file: Arc<Mapping>, at: u64, len: u32 },
    /// Moves bytes between a file and a pipe or a pipe and a socket; the position is a file's.
    Splice { from: RawFd, at: Option<u64>, to: RawFd, len: u32, flags: u32 },
    /// Completes when the socket takes bytes again, or failed.
    PollWritable { socket: RawFd },
    /// Completes when there are bytes or the other side has closed.
    PollReadable { socket: RawFd },
}

/// What became of one chain: its operations with their buffers, and one result each (bytes or
/// a negative errno).
pub struct Finished {
    pub tag: u64,
    pub ops: Vec<Op>,
    pub results: Vec<i32>,
}

struct Slot {
    tag: u64,
    ops: Vec<Op>,
    vectors: Vec<Vec<libc::iovec>>,
    results: Vec<i32>,
    left: usize,
}

/// A raw ring for one thread. Every chain lives in a slot until its last completion.
pub struct Ring {
    ring: IoUring,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    unsubmitted: usize,
    /// Calls of `io_uring_enter` made through this type.
    pub enters: u64,
}

impl Ring {
    /// A ring with `SINGLE_ISSUER | COOP_TASKRUN`, the flags of the design.
    pub fn new(entries: u32) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_cqsize(entries.saturating_mul(4))
            .build(entries)?;
        Ok(Self { ring, slots: Vec::new(), free: Vec::new(), unsubmitted: 0, enters: 0 })
    }

    /// Lets tokio watch the ring for completions, through a descriptor of its own.
    pub fn watch(&self) -> io::Result<AsyncFd<OwnedFd>> {
        // SAFETY: the ring owns the descriptor and is borrowed for as long as it is used here.
        let descriptor = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        let descriptor = descriptor.try_clone_to_owned()?;
        // SAFETY: the `AsyncFd` owns the descriptor until it is dropped, and then deregisters it
        // before it is closed.
        let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        watched.map_err(io::Error::from)
    }

    /// Chains that the kernel may still touch, queued ones included.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Queues one chain of linked operations. When the queue is full, it is submitted first.
    pub fn push(&mut self, tag: u64, mut ops: Vec<Op>) -> io::Result<()> {
        assert!(!ops.is_empty());
        assert!(ops.len() <= CHAIN_OPS_MAX);
        if self.unsubmitted + ops.len() > usize_of(self.ring.params().sq_entries()) {
            self.submit()?;
        }
        let vectors: Vec<_> = ops.iter().map(vectors_of).collect();
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let last = ops.len() - 1;
        let entries: Vec<squeue::Entry> = ops
            .iter_mut()
            .zip(&vectors)
            .enumerate()
            .map(|(member, (op, vector))| {
                let link = if member < last { squeue::Flags::IO_LINK } else { no_flags() };
                entry_of(op, vector).flags(link).user_data(user_data(index, member))
            })
            .collect();
        self.unsubmitted += entries.len();
        let results = vec![0; ops.len()];
        let left = ops.len();
        // The slot takes the operations before the kernel can see the entries; the buffers that
        // the entries point at are heap blocks, which a move of their owner leaves in place.
        self.slots[index] = Some(Slot { tag, ops, vectors, results, left });
        // SAFETY: `slots[index]` owns every buffer and vector these entries point at, until the
        // chain's last completion; `Drop` leaks what is still in flight.
        unsafe { self.ring.submission().push_multiple(&entries) }.map_err(io::Error::other)
    }

    /// Hands all queued chains to the kernel in one call.
    pub fn submit(&mut self) -> io::Result<()> {
        if self.unsubmitted > 0 {
            self.enter(0)?;
        }
        Ok(())
    }

    /// Hands all queued chains over and waits for `want` completions.
    pub fn submit_and_wait(&mut self, want: usize) -> io::Result<()> {
        self.enter(want)
    }

    fn enter(&mut self, want: usize) -> io::Result<()> {
        loop {
            self.enters += 1;
            match self.ring.submit_and_wait(want) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.unsubmitted = 0;
        Ok(())
    }

    /// Collects the chains whose last member has completed.
    pub fn reap(&mut self, finished: &mut Vec<Finished>) {
        for completion in self.ring.completion() {
            let (index, member) = split(completion.user_data());
            let slot = self.slots[index].as_mut().expect("a completion belongs to a chain");
            // A send without a copy completes twice: with its result, and when its buffer is free.
            if !cqueue::notif(completion.flags()) {
                slot.results[member] = completion.result();
            }
            if cqueue::more(completion.flags()) {
                continue;
            }
            slot.left -= 1;
            if slot.left == 0 {
                let slot = self.slots[index].take().expect("the slot was just used");
                self.free.push(index);
                drop(slot.vectors);
                finished.push(Finished { tag: slot.tag, ops: slot.ops, results: slot.results });
            }
        }
    }

    /// Lets the thread's kernel workers run on these cores only. It covers all rings of the thread.
    pub fn place_workers(&self, cores: &[usize]) -> io::Result<()> {
        // SAFETY: an all-zero `cpu_set_t` is the empty set.
        let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
        for core in cores {
            // SAFETY: `set` is a valid local set, and the macro checks nothing but its bounds,
            // which a core number of this machine keeps.
            unsafe { libc::CPU_SET(*core, &mut set) };
        }
        self.ring.submitter().register_iowq_aff(&set)
    }

    /// Bounds the kernel workers of this thread: for regular files, and for everything else.
    pub fn bound_workers(&self, bounded: u32, unbounded: u32) -> io::Result<()> {
        self.ring.submitter().register_iowq_max_workers(&mut [bounded, unbounded])
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel cancels what is in flight some time after the descriptor is closed, so the
        // buffers of unfinished chains are given up rather than freed.
        for slot in self.slots.drain(..).flatten() {
            mem::forget(slot);
        }
    }
}

fn user_data(index: usize, member: usize) -> u64 {
    u64::try_from(index * CHAIN_OPS_MAX + member).expect("usize is 64 bits")
}

fn split(user_data: u64) -> (usize, usize) {
    let number = usize::try_from(user_data).expect("usize is 64 bits");
    (number / CHAIN_OPS_MAX, number % CHAIN_OPS_MAX)
}

fn no_flags() -> squeue::Flags {
    squeue::Flags::empty()
}

fn usize_of(number: u32) -> usize {
    usize::try_from(number).expect("usize is 64 bits")
}

fn u32_of(number: usize) -> u32 {
    u32::try_from(number).expect("an operation moves less than 4 GiB")
}

fn vectors_of(op: &Op) -> Vec<libc::iovec> {
    let Op::Write { parts, .. } = op else { return Vec::new() };
    assert!(parts.len() <= WRITE_PARTS_MAX);
    let vector = |part: &Bytes| libc::iovec {
        iov_base: part.as_ptr().cast_mut().cast(),
        iov_len: part.len(),
    };
    parts.iter().map(vector).collect()
}

fn entry_of(op: &mut Op, vector: &[libc::iovec]) -> squeue::Entry {
    match op {
        Op::Write { file, at, .. } => {
            opcode::Writev::new(types::Fd(*file), vector.as_ptr(), u32_of(vector.len()))
                .offset(*at)
                .build()
        }
        Op::Sync { file } => {
            opcode::Fsync::new(types::Fd(*file)).flags(types::FsyncFlags::DATASYNC).build()
        }
        Op::Receive { socket, buffer, flags } => {
            opcode::Recv::new(types::Fd(*socket), buffer.as_mut_ptr(), u32_of(buffer.len()))
                .flags(*flags)
                .build()
        }
        Op::ReceivePollFirst { socket, buffer } => receive_poll_first(*socket, buffer),
        Op::Send { socket, buffer, from, to } => {
            let part = &buffer[*from..*to];
            opcode::Send::new(types::Fd(*socket), part.as_ptr(), u32_of(part.len())).build()
        }
        Op::SendZeroCopy { socket, buffer, from, to } => {
            let part = &buffer[*from..*to];
            opcode::SendZc::new(types::Fd(*socket), part.as_ptr(), u32_of(part.len())).build()
        }
        Op::SendMapped { socket, file, at, len } => {
            opcode::Send::new(types::Fd(*socket), file.pointer(*at, *len), *len).build()
        }
        Op::Splice { from, at, to, len, flags } => {
            let at = at.map_or(-1, |at| i64::try_from(at).expect("a file is below 8 EiB"));
            opcode::Splice::new(types::Fd(*from), at, types::Fd(*to), -1, *len)
                .flags(*flags)
                .build()
        }
        Op::PollWritable { socket } => {
            opcode::PollAdd::new(types::Fd(*socket), poll_mask(libc::POLLOUT)).build()
        }
        Op::PollReadable { socket } => {
            opcode::PollAdd::new(types::Fd(*socket), poll_mask(libc::POLLIN)).build()
        }
    }
}

fn receive_poll_first(socket: RawFd, buffer: &mut [u8]) -> squeue::Entry {
    /// `IORING_RECVSEND_POLL_FIRST` of the kernel's `io_uring.h`.
    const POLL_FIRST: u16 = 1;
    opcode::Recv::new(types::Fd(socket), buffer.as_mut_ptr(), u32_of(buffer.len()))
        .ioprio(POLL_FIRST)
        .build()
}

fn poll_mask(events: libc::c_short) -> u32 {
    u32::from(events.unsigned_abs())
}

/// Appends what a socket holds right now to the buffer's spare room, by system call.
pub fn receive_now(socket: impl AsFd, buffer: &mut BytesMut) -> io::Result<usize> {
    let spare = buffer.spare_capacity_mut();
    let ((received, _), _) = rustix::net::recv(socket, spare, RecvFlags::DONTWAIT)?;
    let filled = received.len();
    let whole = buffer.len() + filled;
    // SAFETY: the kernel has just filled `filled` bytes behind the buffer's length.
    unsafe { buffer.set_len(whole) };
    Ok(filled)
}

/// Maps a file that nobody writes to or shortens any more, for reading.
pub fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: callers map indexes of sealed segments in folders of their own cell, which nothing
    // changes while the mapping lives; the mapping owns its pages until it is dropped.
    unsafe { Mmap::map(file) }
}

/// Gives what the allocator holds free back to the kernel, so that resident memory counts what is
/// allocated from then on.
pub fn give_back_free_memory() {
    // SAFETY: it takes no memory of ours; only pages that nobody has allocated are given back.
    // Whether there were any, which it returns, makes no difference here.
    unsafe { libc::malloc_trim(0) };
}

/// Starts writing a range of a file out and waits until the device has it (`sync_file_range` with
/// all three flags): neither metadata nor the device's own cache is made durable.
pub fn write_range_out(file: &File, at: i64, bytes: i64) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the call takes numbers only; the descriptor is that of an open file.
    let outcome = unsafe { libc::sync_file_range(file.as_raw_fd(), at, bytes, flags) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Counts how often one thread passes a kernel tracepoint.
pub struct TraceCount(File);

/// The first 64 bytes of the kernel's `perf_event_attr`, its oldest version.
#[repr(C)]
#[derive(Default)]
struct PerfAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

impl TraceCount {
    /// Counts `event` (for example `syscalls/sys_enter_io_uring_enter`) of thread `thread` from
    /// now on. `None` without tracefs or without the right to it.
    pub fn open(event: &str, thread: i32) -> Option<Self> {
        Self::open_with(event, thread, 0)
    }

    /// As [`TraceCount::open`], with those threads that the thread starts from now on.
    pub fn open_with_children(event: &str, thread: i32) -> Option<Self> {
        /// The bit `inherit` of `perf_event_attr`.
        const INHERIT: u64 = 1 << 1;
        Self::open_with(event, thread, INHERIT)
    }

    fn open_with(event: &str, thread: i32, flags: u64) -> Option<Self> {
        /// `PERF_TYPE_TRACEPOINT` and `PERF_FLAG_FD_CLOEXEC` of the kernel's `perf_event.h`.
        const TRACEPOINT: u32 = 2;
        const CLOSE_ON_EXEC: libc::c_ulong = 8;
        let path = Path::new("/sys/kernel/tracing/events").join(event).join("id");
        let config = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
        let attributes = PerfAttributes {
            kind: TRACEPOINT,
            size: u32_of(size_of::<PerfAttributes>()),
            config,
            flags,
            ..PerfAttributes::default()
        };
        let pointer: *const PerfAttributes = &raw const attributes;
        // SAFETY: the kernel reads `size` bytes of `attributes`, a local that outlives the call.
        let number = unsafe {
            libc::syscall(libc::SYS_perf_event_open, pointer, thread, -1, -1, CLOSE_ON_EXEC)
        };
        let descriptor = RawFd::try_from(number).ok().filter(|number| *number >= 0)?;
        // SAFETY: the call returned a new descriptor that nothing else owns.
        Some(Self(unsafe { File::from_raw_fd(descriptor) }))
    }

    /// The count so far.
    pub fn read(&self) -> Option<u64> {
        let mut bytes = [0; size_of::<u64>()];
        (&self.0).read_exact(&mut bytes).ok()?;
        Some(u64::from_ne_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ops: Vec<Op>) -> Finished {
        let mut ring = Ring::new(8).expect("a ring");
        let want = ops.len();
        ring.push(7, ops).expect("room for a chain");
        ring.submit_and_wait(want).expect("completions");
        let mut finished = Vec::new();
        ring.reap(&mut finished);
        assert_eq!(ring.in_flight(), 0);
        finished.pop().expect("the chain has ended")
    }

    #[test]
    fn a_chain_writes_in_order_and_stops_at_the_first_failure() {
        let file = tempfile::tempfile().expect("a temporary file");
        let (whole, refused) = (file.as_raw_fd(), -1);
        let write = |file, at| Op::Write { file, parts: vec!["ab".into(), "c".into()], at };
        let done = outcome(vec![write(whole, 0), write(refused, 0), write(whole, 3)]);
        assert_eq!((done.tag, done.ops.len()), (7, 3));
        assert_eq!(done.results, [3, -libc::EBADF, -libc::ECANCELED]);
        assert_eq!(file.metadata().expect("its length").len(), 3);
        let done = outcome(vec![write(whole, 3), Op::Sync { file: whole }]);
        assert_eq!(done.results, [3, 0]);
    }
}
