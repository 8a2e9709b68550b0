//! Many connections that all read: each has one request under way, and asks again when its answer
//! is there.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use super::client::stop;
use super::server::{self, Served, Setup};
use super::{Mode, join, word};
use crate::experiments::measure::{self, Traced, u64_of, usize_of};
use crate::experiments::{Doing, Failure};
use crate::record::Latency;

/// Pipes in the pool, as many as the product has at most.
const PIPES_MAX: usize = 32;
const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;
const WORD_BYTES: u64 = 8;

/// Who reads what.
#[derive(Clone, Copy)]
pub struct Many {
    pub mode: Mode,
    pub connections: u32,
    /// A multiple of eight, and not above `file_bytes`.
    pub answer_bytes: u64,
    pub file_bytes: u64,
    /// Whether each part of the file is read once at most.
    pub is_once: bool,
    /// After so long no more is asked for.
    pub time: Duration,
}

/// What came of it.
pub struct Read {
    /// From the request to the last byte of its answer.
    pub latency: Latency,
    pub answers: u64,
    pub wall: Duration,
    /// Of the process without the readers: the server and its kernel workers.
    pub cpu: Duration,
    /// Kernel workers at most, as far as looking every few milliseconds tells.
    pub workers: usize,
    pub enters: u64,
    pub traced: Traced,
}

/// Writes bytes that tell their position.
///
/// # Errors
/// When the file can't be written.
pub fn fill(file: &File, bytes: u64) -> Result<(), Failure> {
    use std::os::unix::fs::FileExt;
    const PIECE_WORDS: u64 = (1 << 20) / WORD_BYTES;
    let words = bytes / WORD_BYTES;
    for from in (0..words).step_by(usize_of(PIECE_WORDS)) {
        let piece: Vec<u8> = (from..words.min(from + PIECE_WORDS)).flat_map(word).collect();
        file.write_all_at(&piece, from * WORD_BYTES).doing("write the served file")?;
    }
    rustix::fs::fdatasync(file).doing("sync the served file")
}

impl Many {
    fn slots(&self) -> u64 {
        self.file_bytes / self.answer_bytes
    }

    /// All over the file: the stride has no divisor in common with the number of slots.
    fn position(&self, number: u64) -> u64 {
        let slots = self.slots();
        // Far from one, so that the kernel's read-ahead sees no sequence.
        let mut stride = (slots * 5 / 13).max(1);
        while 1 < greatest_common_divisor(stride, slots) {
            stride += 1;
        }
        number % slots * stride % slots * self.answer_bytes
    }
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

/// A server of the file, and its readers. What the server counts as failed answers isn't looked at:
/// a reader that has all of its last answer may leave before the server knows that it is sent. The
/// readers themselves miss nothing.
///
/// # Errors
/// Whatever fails, and an answer with other bytes than the file.
pub fn measure_many(file: &File, many: Many) -> Result<Read, Failure> {
    assert!(many.answer_bytes.is_multiple_of(WORD_BYTES));
    assert!(0 < many.slots());
    let setup = Setup {
        file: file.try_clone().doing("share the served file")?,
        mode: many.mode,
        pipes_max: PIPES_MAX,
        workers_max: None,
        core: SERVER_CORE,
    };
    let (ready, when_ready) = mpsc::channel();
    let server = thread::spawn(move || server::serve(setup, &ready));
    let Ok(address) = when_ready.recv() else {
        return Err(join(server).err().unwrap_or(Failure::Wrong("the server left".to_owned())));
    };
    let (process, own) = (measure::process_cpu(), measure::thread_cpu());
    let readers = thread::spawn(move || read(address, many));
    let mut workers = measure::kernel_workers();
    while !readers.is_finished() {
        thread::sleep(Duration::from_millis(5));
        workers = workers.max(measure::kernel_workers());
    }
    let outcome = join(readers);
    let all = measure::process_cpu() - process;
    let own = measure::thread_cpu() - own;
    stop(address)?;
    let Served { enters, traced, .. } = join(server)?;
    let Readers { latency, answers, wall, cpu } = outcome?;
    let cpu = all.saturating_sub(cpu + own);
    Ok(Read { latency, answers, wall, cpu, workers, enters, traced })
}

struct Readers {
    latency: Latency,
    answers: u64,
    wall: Duration,
    cpu: Duration,
}

/// What the tasks of the readers' thread share.
struct Shared {
    many: Many,
    next: Cell<u64>,
    until: Instant,
    latency: RefCell<Latency>,
}

fn read(address: SocketAddr, many: Many) -> Result<Readers, Failure> {
    measure::pin(CLIENT_CORE)?;
    let cpu = measure::thread_cpu();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.doing("start the readers")?;
    LocalSet::new().block_on(&runtime, async {
        let mut streams = Vec::new();
        for _ in 0..many.connections {
            let stream = TcpStream::connect(address).await.doing("connect")?;
            stream.set_nodelay(true).doing("set TCP_NODELAY")?;
            streams.push(stream);
        }
        let started = Instant::now();
        let shared = Rc::new(Shared {
            many,
            next: Cell::new(0),
            until: started + many.time,
            latency: RefCell::new(Latency::new()),
        });
        let each = |stream| tokio::task::spawn_local(keep_reading(stream, Rc::clone(&shared)));
        let tasks: Vec<_> = streams.into_iter().map(each).collect();
        let mut answers = 0;
        for task in tasks {
            let outcome = task.await;
            answers += outcome.map_err(|_| Failure::Wrong("a reader panicked".to_owned()))??;
        }
        let (wall, cpu) = (started.elapsed(), measure::thread_cpu() - cpu);
        let latency = shared.latency.take();
        Ok(Readers { latency, answers, wall, cpu })
    })
}

async fn keep_reading(mut stream: TcpStream, shared: Rc<Shared>) -> Result<u64, Failure> {
    let many = shared.many;
    let mut bytes = vec![0; usize_of(WORD_BYTES + many.answer_bytes)];
    let mut answers = 0;
    loop {
        let number = shared.next.get();
        let is_spent = many.is_once && many.slots() <= number;
        if is_spent || shared.until <= Instant::now() {
            return Ok(answers);
        }
        shared.next.set(number + 1);
        let at = many.position(number);
        let mut request = at.to_le_bytes().to_vec();
        request.extend(many.answer_bytes.to_le_bytes());
        let asked = Instant::now();
        stream.write_all(&request).await.doing("ask")?;
        stream.read_exact(&mut bytes).await.doing("read an answer")?;
        shared.latency.borrow_mut().record(asked.elapsed());
        check(&bytes, at, many.answer_bytes)?;
        answers += 1;
    }
}

/// Length, first and last bytes are those of the file there.
fn check(answer: &[u8], at: u64, length: u64) -> Result<(), Failure> {
    let (header, range) = answer.split_first_chunk::<8>().expect("an answer has a header");
    let (first, last) = (at / WORD_BYTES, (at + length) / WORD_BYTES - 1);
    let is_right = u64::from_le_bytes(*header) == u64_of(range.len())
        && range.starts_with(&word(first))
        && range.ends_with(&word(last));
    match is_right {
        true => Ok(()),
        false => Err(Failure::Wrong(format!("the answer for position {at} has other bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::WhenFull;
    use super::*;

    fn many(mode: Mode) -> Many {
        Many {
            mode,
            connections: 3,
            answer_bytes: 40_000,
            file_bytes: 1 << 20,
            is_once: true,
            time: Duration::from_secs(20),
        }
    }

    #[test]
    fn every_part_is_read_once_in_every_mode() {
        if measure::cores() < 2 {
            return;
        }
        let file = tempfile::tempfile().expect("a file");
        fill(&file, 1 << 20).expect("room for it");
        let modes = [
            Mode::ReadSend,
            Mode::Sendfile,
            Mode::Splice(WhenFull::Steal),
            Mode::ReadSendZeroCopy,
            Mode::Mapped,
        ];
        for mode in modes {
            let read = measure_many(&file, many(mode)).expect("answers");
            assert_eq!(read.answers, 26, "{mode}");
            assert_eq!(read.latency.total().len(), 26, "{mode}");
        }
    }

    #[test]
    fn positions_are_all_different() {
        for file_bytes in [40_000, 80_000, 1 << 20, 13_000_000] {
            let many = Many { file_bytes, ..many(Mode::Mapped) };
            let mut seen: Vec<u64> = (0..many.slots()).map(|it| many.position(it)).collect();
            seen.sort_unstable();
            let expected: Vec<u64> = (0..many.slots()).map(|it| it * many.answer_bytes).collect();
            assert_eq!(seen, expected);
        }
    }
}
