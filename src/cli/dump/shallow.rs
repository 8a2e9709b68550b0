//! A log's batches without their records. One thread goes from header to header and prints, others
//! compute the CRCs: the order of lines is that of the file, and so is the place where damage ends
//! them. Small batches are read by the one that finds them, large ones by the one that checks them.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::items::{BatchItem, Item};
use super::log::{self, Records};
use super::{DumpError, legacy};
use crate::cli::log_file::{CRC_FROM, Found, LogFile, LogFileError, Window};
use crate::format::batch::{HEADER_BYTES, MAGIC_V2};
use crate::units::{u64_of, usize_of};

/// Bytes of batches that one thread checks at a time, and how many batches.
const JOB_BYTES: u64 = 1 << 20;
const JOB_BATCHES_MAX: usize = 4096;
/// Jobs for each thread that are under way or checked and not yet printed.
const JOBS_PER_THREAD: usize = 4;
/// Threads that check: the page cache gives no more to many.
const THREADS_MAX: usize = 8;
/// Bytes read at once: they are still in the core's own cache when the CRC is computed.
const PIECE_BYTES: u64 = 256 << 10;

/// Batches in a row.
type Batches = Vec<(Found, BatchItem)>;
/// The same with what their CRCs say.
type Checked = io::Result<Batches>;

/// Some batches to check, and where they go then.
struct Job {
    batches: Batches,
    /// What holds all of them, when they were small.
    window: Option<Window>,
    back: SyncSender<Checked>,
}

/// Prints every batch up to `end`; the position behind the last one.
///
/// # Errors
/// [`DumpError`], when everything before it is printed.
pub fn dump(log: &mut LogFile, end: u64, records: &mut Records<'_, '_>) -> Result<u64, DumpError> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let worthwhile = usize_of(end / JOB_BYTES);
    let threads = cores.min(THREADS_MAX).min(worthwhile);
    log.read_heads();
    let file = log.shared();
    thread::scope(|scope| {
        let (jobs, queue) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..threads {
            let (queue, file) = (queue.clone(), file.clone());
            scope.spawn(move || work(&file, &queue));
        }
        let mut walk = Walk {
            threads,
            jobs,
            file: &file,
            next: Batches::new(),
            window: None,
            under_way: VecDeque::new(),
            piece: Piece::default(),
        };
        let outcome = walk.run(log, end, records);
        // Whatever ended the walk stands behind these.
        walk.hand_over()?;
        walk.print_down_to(0, log, records)?;
        outcome.and_then(|stop| stop.result(log, records))
    })
}

fn work(file: &File, queue: &Mutex<Receiver<Job>>) {
    let mut piece = Piece::default();
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut job) = next else { return };
        let outcome = check(file, (&mut job.batches, job.window.take()), &mut piece);
        // Nobody waits for it any more when output has failed.
        let _gone = job.back.send(outcome.map(|()| job.batches));
    }
}

/// What ended a walk.
enum Stop {
    /// Less than a batch is left.
    End(u64),
    /// This one has a codec that doesn't exist.
    Codec(Found),
}

impl Stop {
    fn result(self, log: &mut LogFile, records: &mut Records<'_, '_>) -> Result<u64, DumpError> {
        match self {
            Stop::End(at) => Ok(at),
            Stop::Codec(found) => {
                let header = log.head(found)?;
                log::batch_item(log, found, header, records.printer).map(|_| found.at)
            }
        }
    }
}

struct Walk<'a> {
    threads: usize,
    jobs: Sender<Job>,
    file: &'a File,
    /// Not yet given to anybody.
    next: Batches,
    /// What holds all of these, when they are small.
    window: Option<Window>,
    /// In the order of the file.
    under_way: VecDeque<Receiver<Checked>>,
    piece: Piece,
}

impl Walk<'_> {
    fn run(
        &mut self,
        log: &mut LogFile,
        end: u64,
        records: &mut Records<'_, '_>,
    ) -> Result<Stop, DumpError> {
        let (mut at, mut bytes) = (0, 0);
        while let Some(found) = log.batch(at, end)? {
            at = found.end();
            if found.magic < MAGIC_V2 {
                self.hand_over()?;
                self.print_down_to(0, log, records)?;
                legacy::dump_batch(log, found, false, records)?;
                continue;
            }
            let header = log.head(found)?;
            let Ok(codec) = header.codec() else { return Ok(Stop::Codec(found)) };
            self.look_at(log.lend(found)?)?;
            let (magic, at) = (found.magic, found.at);
            self.next.push((found, BatchItem { header, magic, at, codec, is_valid: false }));
            bytes += found.size;
            if JOB_BYTES <= bytes || JOB_BATCHES_MAX <= self.next.len() {
                bytes = 0;
                self.hand_over()?;
                self.print_down_to(self.threads * JOBS_PER_THREAD, log, records)?;
            }
        }
        Ok(Stop::End(at))
    }

    /// Where the next batch lies; those that lie elsewhere are given away.
    fn look_at(&mut self, lent: Option<&Window>) -> Result<(), DumpError> {
        if self.window.as_ref().map(|window| window.at) != lent.map(|window| window.at) {
            self.hand_over()?;
            self.window = lent.cloned();
        }
        Ok(())
    }

    /// Gives what was collected to a thread.
    fn hand_over(&mut self) -> Result<(), DumpError> {
        if self.next.is_empty() {
            return Ok(());
        }
        let (back, checked) = mpsc::sync_channel(1);
        let mut batches = std::mem::take(&mut self.next);
        let window = self.window.clone();
        if self.threads == 0 {
            let outcome = check(self.file, (&mut batches, window), &mut self.piece);
            back.send(outcome.map(|()| batches)).expect("its receiver is here");
        } else {
            let job = Job { batches, window, back };
            self.jobs.send(job).expect("the threads wait for jobs");
        }
        self.under_way.push_back(checked);
        Ok(())
    }

    /// Prints what was given away first until no more than so many jobs are left.
    fn print_down_to(
        &mut self,
        left: usize,
        log: &LogFile,
        records: &mut Records<'_, '_>,
    ) -> Result<(), DumpError> {
        while left < self.under_way.len() {
            let Some(checked) = self.under_way.pop_front() else { break };
            let checked = checked.recv().expect("a thread answers every job");
            for (_, item) in checked.map_err(LogFileError::read(log.path()))? {
                records.printer.print(&Item::Batch(&item))?;
            }
        }
        Ok(())
    }
}

/// The part of a file that a thread has read last.
#[derive(Default)]
struct Piece {
    bytes: Vec<u8>,
    at: u64,
}

impl Piece {
    /// Bytes from a position on: as many as are at hand, one at least, none from `end` on. `last`
    /// is how far to read.
    fn from(&mut self, file: &File, (from, end, last): (u64, u64, u64)) -> io::Result<&[u8]> {
        let is_here = (self.at..self.at + u64_of(self.bytes.len())).contains(&from);
        if !is_here {
            self.bytes.resize(usize_of(PIECE_BYTES.min(last - from)), 0);
            self.at = from;
            file.read_exact_at(&mut self.bytes, from)?;
        }
        let begin = usize_of(from - self.at);
        let here = &self.bytes[begin..];
        Ok(&here[..here.len().min(usize_of(end - from))])
    }
}

/// Computes the CRCs of batches that lie one behind the other, in memory or still in the file.
fn check(
    file: &File,
    (batches, window): (&mut Batches, Option<Window>),
    piece: &mut Piece,
) -> io::Result<()> {
    let is_whole = |found: &Found| u64_of(HEADER_BYTES) <= found.size;
    if let Some(Window { bytes, at }) = window {
        for (found, item) in batches.iter_mut().filter(|(found, _)| is_whole(found)) {
            let (from, end) = (usize_of(found.at - at), usize_of(found.end() - at));
            item.is_valid = crc32c::crc32c(&bytes[from + CRC_FROM..end]) == item.header.crc;
        }
        return Ok(());
    }
    let Some(last) = batches.last().map(|(found, _)| found.end()) else { return Ok(()) };
    // What was read for other batches may have changed since.
    piece.bytes.clear();
    for (found, item) in batches {
        if !is_whole(found) {
            continue;
        }
        let (mut from, mut crc) = (found.at + u64_of(CRC_FROM), 0);
        while from < found.end() {
            let bytes = piece.from(file, (from, found.end(), last))?;
            crc = crc32c::crc32c_append(crc, bytes);
            from += u64_of(bytes.len());
        }
        item.is_valid = crc == item.header.crc;
    }
    Ok(())
}
