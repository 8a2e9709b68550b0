//! A bounded pool of large pipes, the way of file pages to sockets.

use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with};

use crate::units::u64_of;

/// Bytes that a pipe is asked to hold: the most that an unprivileged user may.
const PIPE_BYTES: usize = 1 << 20;

/// A pipe's slots hold a page each, or a part of one.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// An empty pipe, unless a transfer has it.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) read: OwnedFd,
    pub(crate) write: OwnedFd,
    slots: u64,
}

impl Pipe {
    fn new() -> rustix::io::Result<Pipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // Refused when the user's pipes hold too many pages already; a small pipe serves too.
        let granted =
            fcntl_setpipe_size(&write, PIPE_BYTES).or_else(|_| fcntl_getpipe_size(&write));
        let slots = u64_of(granted?) / PAGE_BYTES;
        Ok(Pipe { read, write, slots })
    }

    /// How many bytes from position `at` of a file one hop may carry: each page of the file that
    /// they touch takes a slot, and one slot stays free.
    pub(crate) fn hop_bytes_max(&self, at: u64) -> u64 {
        hop_bytes_max(self.slots, at)
    }
}

fn hop_bytes_max(slots: u64, at: u64) -> u64 {
    let pages = slots.saturating_sub(1).max(1);
    pages * PAGE_BYTES - at % PAGE_BYTES
}

/// At most `pipes_max` pipes, those that transfers have included.
#[derive(Debug)]
pub(crate) struct Pipes {
    idle: Vec<Pipe>,
    open: usize,
    pipes_max: usize,
}

impl Pipes {
    pub(crate) fn new(pipes_max: usize) -> Pipes {
        assert!(0 < pipes_max, "without a pipe nothing can be spliced");
        Pipes { idle: Vec::new(), open: 0, pipes_max }
    }

    /// An empty pipe; `None` when all are with transfers.
    pub(crate) fn take(&mut self) -> rustix::io::Result<Option<Pipe>> {
        if let Some(pipe) = self.idle.pop() {
            return Ok(Some(pipe));
        }
        if self.pipes_max <= self.open {
            return Ok(None);
        }
        let pipe = Pipe::new()?;
        self.open += 1;
        Ok(Some(pipe))
    }

    /// Takes an empty pipe back.
    pub(crate) fn give(&mut self, pipe: Pipe) {
        self.idle.push(pipe);
    }

    /// Closes a pipe that still holds bytes: they are the file's pages, so nothing is lost.
    pub(crate) fn discard(&mut self, pipe: Pipe) {
        drop(pipe);
        self.open -= 1;
    }

    pub(crate) fn open(&self) -> usize {
        self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hop_never_needs_more_slots_than_there_are() {
        for (slots, at) in [(256, 0), (256, 1), (256, 4095), (256, 4096), (16, 100), (2, 5)] {
            let bytes = hop_bytes_max(slots, at);
            let pages = (at + bytes).div_ceil(PAGE_BYTES) - at / PAGE_BYTES;
            assert!(0 < bytes);
            assert_eq!(pages, slots - 1);
        }
        assert_eq!(hop_bytes_max(1, 4095), 1);
    }

    #[test]
    fn the_pool_is_bounded_and_empty_pipes_come_back() {
        let mut pipes = Pipes::new(1);
        let pipe = pipes.take().expect("a pipe").expect("one is allowed");
        assert!(pipes.take().expect("no failure").is_none());
        pipes.give(pipe);
        let pipe = pipes.take().expect("a pipe").expect("it came back");
        pipes.discard(pipe);
        assert_eq!(pipes.open(), 0);
        assert!(pipes.take().expect("a pipe").is_some());
    }
}
