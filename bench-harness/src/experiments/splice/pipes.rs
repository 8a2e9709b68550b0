//! A bounded pool of 1 MiB pipes. A pipe that still holds bytes is closed, never lent again: its
//! next borrower would send them.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::experiments::{Doing, Failure};

/// The most that an unprivileged process gets by default (`pipe-max-size`): 256 slots.
const PIPE_BYTES: usize = 1 << 20;
const PAGE_BYTES: u64 = 4096;
/// Pages that one hop may touch. A slot holds a page or a part of one, whatever the positions.
const HOP_PAGES_MAX: u64 = 255;

/// The most bytes from this position that touch no more than the pages of a hop.
pub fn hop_bytes_max(at: u64) -> u64 {
    HOP_PAGES_MAX * PAGE_BYTES - at % PAGE_BYTES
}

/// A pipe and the bytes that are known to be in it.
pub struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
    pub holds: u64,
}

impl Pipe {
    pub fn out(&self) -> RawFd {
        self.out.as_raw_fd()
    }

    pub fn input(&self) -> RawFd {
        self.into.as_raw_fd()
    }
}

/// The pool.
pub struct Pipes {
    idle: Vec<Pipe>,
    lent: usize,
    max: usize,
    pub made: u64,
    pub lendings: u64,
    pub closed_dirty: u64,
}

impl Pipes {
    pub fn new(max: usize) -> Self {
        Self { idle: Vec::new(), lent: 0, max, made: 0, lendings: 0, closed_dirty: 0 }
    }

    /// An empty pipe, or none when all are lent.
    pub fn take(&mut self) -> Result<Option<Pipe>, Failure> {
        let pipe = match self.idle.pop() {
            Some(pipe) => pipe,
            None if self.lent < self.max => self.make()?,
            None => return Ok(None),
        };
        assert_eq!(pipe.holds, 0);
        self.lent += 1;
        self.lendings += 1;
        Ok(Some(pipe))
    }

    fn make(&mut self) -> Result<Pipe, Failure> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC).doing("make a pipe")?;
        fcntl_setpipe_size(&into, PIPE_BYTES).doing("size a pipe")?;
        self.made += 1;
        Ok(Pipe { out, into, holds: 0 })
    }

    /// Takes a pipe back: an empty one to lend it again, another one to close it.
    pub fn give_back(&mut self, pipe: Pipe) {
        assert!(self.lent > 0);
        self.lent -= 1;
        if pipe.holds > 0 {
            self.closed_dirty += 1;
            return;
        }
        let inside = rustix::io::ioctl_fionread(&pipe.out).expect("a pipe tells what it holds");
        assert_eq!(inside, 0, "a pipe that was thought empty holds bytes");
        self.idle.push(pipe);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hop_never_touches_more_pages_than_allowed() {
        for at in [0, 1, 100, 4095, 4096, 4097, 1_000_003] {
            let bytes = hop_bytes_max(at);
            let pages = (at + bytes).div_ceil(PAGE_BYTES) - at / PAGE_BYTES;
            assert_eq!(pages, HOP_PAGES_MAX, "at {at}");
        }
    }

    #[test]
    fn a_dirty_pipe_is_not_lent_again() {
        let mut pipes = Pipes::new(1);
        let mut pipe = pipes.take().expect("a pipe").expect("the first one");
        assert!(pipes.take().expect("no error").is_none());
        rustix::io::write(&pipe.into, b"rest").expect("a pipe takes bytes");
        pipe.holds = 4;
        pipes.give_back(pipe);
        let pipe = pipes.take().expect("a pipe").expect("a new one");
        assert_eq!(rustix::io::ioctl_fionread(&pipe.out).expect("a pipe tells"), 0);
        assert_eq!((pipes.made, pipes.closed_dirty), (2, 1));
    }
}
