//! A ring for appends of one size to many files, set up in every way that a ring can be: what the
//! product's ring could gain or lose by other flags and by registration.

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};
use uringlog::disk::{Aligned, BLOCK_BYTES};

/// How the ring is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingSetup {
    /// No flags.
    Bare,
    /// `SINGLE_ISSUER | COOP_TASKRUN`, as the product has it.
    Cooperative,
    /// `SINGLE_ISSUER | DEFER_TASKRUN`: completions are taken in only by a thread that waits.
    Deferred,
    /// A kernel thread polls the submission queue.
    Polled,
    /// As `Cooperative`, with files and buffers registered.
    Registered,
}

/// The polling thread sleeps after so long without work.
const POLL_IDLE_MS: u32 = 50;
/// The thread that appends spins for so long before it sleeps.
const SPIN: Duration = Duration::from_micros(100);

/// An append: `bytes` of a buffer to a file at a position, with a linked fdatasync if asked for.
#[derive(Clone, Copy)]
pub struct Append {
    pub file: usize,
    pub at: u64,
    pub bytes: u32,
    pub is_synced: bool,
}

/// Results of the write and, if there was one, the sync: bytes or a negative errno.
#[derive(Clone, Copy)]
pub struct Appended {
    pub append: Append,
    pub write: i32,
    pub sync: i32,
}

struct Flying {
    appended: Appended,
    left: u32,
}

/// The ring with its files, and a buffer for each append that may be under way.
pub struct WriteRing {
    ring: IoUring,
    files: Vec<File>,
    setup: RingSetup,
    /// Never changed in number or place while the ring lives.
    buffers: Vec<Aligned>,
    flying: Vec<Option<Flying>>,
    free: Vec<usize>,
}

impl WriteRing {
    /// With `depth` buffers of `bytes` each.
    pub fn new(
        setup: RingSetup,
        files: Vec<File>,
        (depth, bytes): (u32, usize),
    ) -> io::Result<WriteRing> {
        let mut builder = IoUring::builder();
        match setup {
            RingSetup::Bare => {}
            RingSetup::Cooperative | RingSetup::Registered => {
                builder.setup_single_issuer().setup_coop_taskrun();
            }
            RingSetup::Deferred => {
                builder.setup_single_issuer().setup_defer_taskrun();
            }
            RingSetup::Polled => {
                builder.setup_sqpoll(POLL_IDLE_MS);
            }
        }
        // A write and a sync for each.
        let ring = builder.build(depth.saturating_mul(2).max(2))?;
        let buffers: Vec<Aligned> = (0..depth).map(|_| buffer(bytes)).collect();
        let flying = buffers.iter().map(|_| None).collect();
        let free = (0..buffers.len()).collect();
        let this = WriteRing { ring, files, setup, buffers, flying, free };
        if setup == RingSetup::Registered {
            this.register()?;
        }
        Ok(this)
    }

    fn register(&self) -> io::Result<()> {
        let descriptors: Vec<_> = self.files.iter().map(AsRawFd::as_raw_fd).collect();
        self.ring.submitter().register_files(&descriptors)?;
        let vector = |it: &Aligned| libc::iovec {
            iov_base: it.bytes().as_ptr().cast_mut().cast(),
            iov_len: it.length(),
        };
        let vectors: Vec<_> = self.buffers.iter().map(vector).collect();
        // SAFETY: the buffers live and stay in place as long as the ring, which is dropped with
        // them or leaked.
        unsafe { self.ring.submitter().register_buffers(&vectors) }
    }

    /// How many appends are under way.
    pub fn under_way(&self) -> usize {
        self.buffers.len() - self.free.len()
    }

    /// Queues an append.
    ///
    /// # Panics
    /// When as many are under way as there are buffers, or `bytes` is longer than a buffer.
    pub fn push(&mut self, append: Append) -> io::Result<()> {
        let index = self.free.pop().expect("there is a buffer for each append");
        let buffer = &self.buffers[index];
        assert!(usize_of(append.bytes) <= buffer.length());
        let write = self.write_entry(index, append);
        let appended = Appended { append, write: 0, sync: 0 };
        let left = if append.is_synced { 2 } else { 1 };
        self.flying[index] = Some(Flying { appended, left });
        let user_data = u64::try_from(2 * index).expect("usize is 64 bits");
        let link = if append.is_synced { squeue::Flags::IO_LINK } else { squeue::Flags::empty() };
        let write = write.flags(link).user_data(user_data);
        if append.is_synced {
            let sync = self.sync_entry(append.file).user_data(user_data + 1);
            // SAFETY: the write points at `buffers[index]`, which stays until its completion:
            // `index` isn't free before, and `Drop` leaks what is still in flight.
            unsafe { self.ring.submission().push_multiple(&[write, sync]) }
        } else {
            // SAFETY: as above.
            unsafe { self.ring.submission().push(&write) }
        }
        .map_err(io::Error::other)
    }

    fn write_entry(&self, index: usize, append: Append) -> squeue::Entry {
        let memory = self.buffers[index].bytes().as_ptr();
        if self.setup == RingSetup::Registered {
            let file = types::Fixed(u32::try_from(append.file).expect("files are few"));
            let number = u16::try_from(index).expect("buffers are few");
            return opcode::WriteFixed::new(file, memory, append.bytes, number)
                .offset(append.at)
                .build();
        }
        let file = types::Fd(self.files[append.file].as_raw_fd());
        opcode::Write::new(file, memory, append.bytes).offset(append.at).build()
    }

    fn sync_entry(&self, file: usize) -> squeue::Entry {
        let flags = types::FsyncFlags::DATASYNC;
        if self.setup == RingSetup::Registered {
            let file = types::Fixed(u32::try_from(file).expect("files are few"));
            return opcode::Fsync::new(file).flags(flags).build();
        }
        opcode::Fsync::new(types::Fd(self.files[file].as_raw_fd())).flags(flags).build()
    }

    /// Hands over what is queued, and waits until an append is over.
    pub fn submit_and_wait(&mut self) -> io::Result<()> {
        if self.setup == RingSetup::Polled && self.is_over_while_spinning()? {
            return Ok(());
        }
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A polled ring needs no call while its thread is awake, and whoever uses it looks for
    /// completions without one, too: for a while, since this thread spins.
    fn is_over_while_spinning(&mut self) -> io::Result<bool> {
        self.ring.submit()?;
        let until = Instant::now() + SPIN;
        while Instant::now() < until {
            if !self.ring.completion().is_empty() {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    /// Appends that are over.
    pub fn reap(&mut self, over: &mut Vec<Appended>) {
        for completion in self.ring.completion() {
            let number = usize::try_from(completion.user_data()).expect("usize is 64 bits");
            let (index, is_sync) = (number / 2, number % 2 == 1);
            let flying = self.flying[index].as_mut().expect("a completion belongs to an append");
            let result =
                if is_sync { &mut flying.appended.sync } else { &mut flying.appended.write };
            *result = completion.result();
            flying.left -= 1;
            if flying.left == 0 {
                over.push(flying.appended);
                self.flying[index] = None;
                self.free.push(index);
            }
        }
    }

    /// The files, in their order.
    pub fn files(&self) -> &[File] {
        &self.files
    }
}

impl Drop for WriteRing {
    fn drop(&mut self) {
        // As with the other ring: the kernel may still read from them for a while.
        if self.under_way() > 0 {
            mem::forget(mem::take(&mut self.buffers));
        }
    }
}

fn buffer(bytes: usize) -> Aligned {
    let mut buffer = Aligned::new(bytes.max(1));
    let length = bytes.max(1).next_multiple_of(BLOCK_BYTES);
    buffer.set_length(length);
    buffer.memory_mut()[..length].fill(0x5a);
    buffer
}

fn usize_of(number: u32) -> usize {
    usize::try_from(number).expect("usize is 64 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setup_appends_and_syncs() {
        let all = [
            RingSetup::Bare,
            RingSetup::Cooperative,
            RingSetup::Deferred,
            RingSetup::Polled,
            RingSetup::Registered,
        ];
        for setup in all {
            let files: Vec<File> = (0..2).map(|_| tempfile::tempfile().expect("a file")).collect();
            let mut ring = WriteRing::new(setup, files, (2, 5000)).expect("a ring");
            for file in 0..2 {
                let append = Append { file, at: 0, bytes: 5000, is_synced: file == 1 };
                ring.push(append).expect("room");
            }
            let mut over = Vec::new();
            while over.len() < 2 {
                ring.submit_and_wait().expect("completions");
                ring.reap(&mut over);
            }
            assert!(over.iter().all(|it| (it.write, it.sync) == (5000, 0)), "{setup:?}");
            assert_eq!(ring.under_way(), 0);
            for file in ring.files() {
                assert_eq!(file.metadata().expect("its length").len(), 5000);
            }
        }
    }
}
