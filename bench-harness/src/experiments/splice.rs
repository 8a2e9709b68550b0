//! Splice to slow readers: does a reader that never reads harm the others?
//!
//! One thread serves ranges of a file from one ring. Some readers ask and never read, one reads
//! and checks every byte, and some reset their connection in the middle of an answer. Without the
//! stalled ones the same server gives the curve over the answer's size.

mod client;
mod many;
mod pipes;
mod probe;
mod server;

use std::fmt;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::measure::{self, Row, f64_of, u64_of};
use super::{Doing, Failure};
use client::{Live, Readers};
pub use many::{Many, Read, fill, measure_many};
pub use probe::set_nonblocking;
use server::{Served, Setup};

/// Bytes of the file that is served; it stays in the page cache.
const FILE_BYTES: usize = 64 << 20;

/// All answers of one size together on the curve, in KiB; most answers are bounded by `--answers`.
const CURVE_KIB: usize = 2 << 20;
const CURVE_KIB_QUICK: usize = 128 << 10;

/// What to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Only ask the kernel how `O_NONBLOCK`, receives and splices of one socket get on.
    #[arg(long)]
    probe: bool,
    /// Only the curve over the answer's size, without stalled readers.
    #[arg(long)]
    curve: bool,
    /// Folder for the served file.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Append one JSON line per run to this file.
    #[arg(long)]
    out: Option<PathBuf>,
    /// steal, drop, hold (what becomes of a pipe when its socket is full), blocking, sendfile,
    /// read-send, send-zc, mapped; may be repeated [default: all but the last two].
    #[arg(long = "mode", default_values_t = MODES)]
    modes: Vec<Mode>,
    /// Readers that ask and never read.
    #[arg(long, default_value_t = 200)]
    stalled: usize,
    /// Connections that are reset in the middle of an answer, one after the other.
    #[arg(long, default_value_t = 200)]
    resets: usize,
    #[arg(long, default_value_t = 2_000)]
    answers: usize,
    #[arg(long, default_value_t = 1 << 20)]
    answer_bytes: usize,
    /// Pipes in the pool; the blocking mode gets one more for each reader.
    #[arg(long, default_value_t = 32)]
    pipes: usize,
    /// Bound of the kernel's workers of the ring.
    #[arg(long)]
    workers_max: Option<u32>,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    #[arg(long, default_value_t = 1)]
    client_core: usize,
    /// One short round.
    #[arg(long)]
    quick: bool,
}

/// How a range gets to a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Linked splices to a non-blocking socket.
    Splice(WhenFull),
    /// Linked splices to a blocking socket.
    SpliceBlocking,
    Sendfile,
    ReadSend,
    /// As `ReadSend`, but that the network may take the buffer's pages instead of copying.
    ReadSendZeroCopy,
    /// Sends from memory that the file is mapped to.
    Mapped,
}

/// What becomes of a pipe that holds bytes while its socket is full.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// It waits with its bytes, unless another connection needs a pipe.
    Steal,
    /// It is closed at once; the bytes are spliced from the file again.
    Drop,
    /// It waits with its bytes, whoever else needs one.
    Hold,
}

/// What is measured when nothing is said.
const MODES: [Mode; 6] = [
    Mode::Splice(WhenFull::Steal),
    Mode::Splice(WhenFull::Drop),
    Mode::Splice(WhenFull::Hold),
    Mode::SpliceBlocking,
    Mode::Sendfile,
    Mode::ReadSend,
];

const NAMES: [(Mode, &str); 8] = [
    (Mode::Splice(WhenFull::Steal), "steal"),
    (Mode::Splice(WhenFull::Drop), "drop"),
    (Mode::Splice(WhenFull::Hold), "hold"),
    (Mode::SpliceBlocking, "blocking"),
    (Mode::Sendfile, "sendfile"),
    (Mode::ReadSend, "read-send"),
    (Mode::ReadSendZeroCopy, "send-zc"),
    (Mode::Mapped, "mapped"),
];

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(mode, _)| *mode).ok_or(format!("unknown mode: {text}"))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(NAMES.iter().find(|(mode, _)| mode == self).map_or("", |pair| pair.1))
    }
}

/// One thing to measure.
#[derive(Clone, Copy)]
struct Cell {
    mode: Mode,
    readers: Readers,
}

/// Runs the experiment and prints its tables.
pub fn run(options: &Options) -> Result<(), Failure> {
    if options.probe {
        return probe::run();
    }
    let content = Arc::new(content());
    if options.curve {
        for kib in [16, 64, 256, 1024, 4096] {
            let fewer = if options.quick { CURVE_KIB_QUICK } else { CURVE_KIB };
            let answers = options.answers.min(fewer / kib);
            let readers = Readers { stalled: 0, resets: 0, answers, answer_bytes: kib << 10 };
            let modes = [Mode::ReadSend, Mode::Sendfile, Mode::Splice(WhenFull::Steal)];
            compare(options, &content, &modes.map(|mode| Cell { mode, readers }))?;
        }
        return Ok(());
    }
    let readers = Readers {
        stalled: options.stalled,
        resets: if options.quick { options.resets / 4 } else { options.resets },
        answers: if options.quick { options.answers / 8 } else { options.answers },
        answer_bytes: options.answer_bytes,
    };
    let cells: Vec<_> = options.modes.iter().map(|mode| Cell { mode: *mode, readers }).collect();
    compare(options, &content, &cells)
}

fn compare(options: &Options, content: &Arc<Vec<u8>>, cells: &[Cell]) -> Result<(), Failure> {
    let mut rows: Vec<_> = cells.iter().map(|cell| row(options, *cell)).collect();
    for _ in 0..if options.quick { 1 } else { options.rounds } {
        for (cell, row) in cells.iter().zip(&mut rows) {
            row.rounds.push(run_once(options, content, *cell)?);
        }
    }
    measure::print_table(&rows);
    measure::write_lines(&rows, "splice", options.out.as_deref())
}

fn row(options: &Options, Cell { mode, readers }: Cell) -> Row {
    let workers = options.workers_max.map_or("default".to_owned(), |count| count.to_string());
    let labels = vec![
        ("mode", mode.to_string()),
        ("answer KiB", (readers.answer_bytes >> 10).to_string()),
        ("stalled", readers.stalled.to_string()),
        ("resets", readers.resets.to_string()),
        ("pipes max", options.pipes.to_string()),
        ("workers max", workers),
    ];
    Row { labels, rounds: Vec::new() }
}

fn content() -> Vec<u8> {
    let words = 0..u64_of(FILE_BYTES / size_of::<u64>());
    words.flat_map(word).collect()
}

/// Bytes that tell their position: every eight differ from all other eight.
fn word(number: u64) -> [u8; size_of::<u64>()] {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    number.wrapping_mul(SPREAD).to_le_bytes()
}

fn served_file(dir: &Path, content: &[u8]) -> Result<File, Failure> {
    let mut file = tempfile::tempfile_in(dir).doing("make the served file")?;
    file.write_all(content).doing("write the served file")?;
    file.rewind().doing("rewind the served file")?;
    Ok(file)
}

fn run_once(
    options: &Options,
    content: &Arc<Vec<u8>>,
    cell: Cell,
) -> Result<Vec<(&'static str, f64)>, Failure> {
    let more = if cell.mode == Mode::SpliceBlocking { cell.readers.stalled + 8 } else { 0 };
    let setup = Setup {
        file: served_file(&options.dir, content)?,
        mode: cell.mode,
        pipes_max: options.pipes + more,
        workers_max: options.workers_max,
        core: options.server_core,
    };
    let (ready, when_ready) = mpsc::channel();
    let server = thread::spawn(move || server::serve(setup, &ready));
    let Ok(address) = when_ready.recv() else {
        return Err(join(server).err().unwrap_or(Failure::Wrong("the server left".to_owned())));
    };
    let stalled = client::stall(address, cell.readers)?;
    thread::sleep(Duration::from_millis(if cell.readers.stalled > 0 { 300 } else { 20 }));
    let (process, own) = (measure::process_cpu(), measure::thread_cpu());
    let core = options.client_core;
    let checked = Arc::clone(content);
    let resets = thread::spawn(move || client::reset(address, cell.readers, core));
    let live = thread::spawn(move || client::read(address, cell.readers, (core, &checked)));
    let mut workers = measure::kernel_workers();
    while !live.is_finished() {
        thread::sleep(Duration::from_millis(20));
        workers = workers.max(measure::kernel_workers());
    }
    let live = join(live)?;
    let clients = live.cpu + join(resets)?;
    let all = measure::process_cpu() - process;
    let cpu = all.saturating_sub(clients + (measure::thread_cpu() - own));
    client::stop(address)?;
    let served = join(server)?;
    drop(stalled);
    Ok(figures(&live, &served, (cpu, workers)))
}

fn join<T>(thread: thread::JoinHandle<Result<T, Failure>>) -> Result<T, Failure> {
    thread.join().unwrap_or_else(|_| Err(Failure::Wrong("a thread panicked".to_owned())))
}

fn figures(
    live: &Live,
    served: &Served,
    (cpu, workers): (Duration, usize),
) -> Vec<(&'static str, f64)> {
    let quantile = |at: f64| match live.nanos.len() {
        0 => f64::NAN,
        _ => f64_of(live.nanos.value_at_quantile(at)) / 1e3,
    };
    let answers = live.nanos.len();
    vec![
        ("answers read", f64_of(answers)),
        ("p50 us", quantile(0.5)),
        ("p99 us", quantile(0.99)),
        ("p99.9 us", quantile(0.999)),
        ("CPU us/answer", cpu.as_secs_f64() * 1e6 / f64_of(answers.max(1))),
        ("workers", f64_of(u64_of(workers))),
        ("enters", f64_of(served.enters)),
        ("sockets full", f64_of(served.full)),
        ("short first hops", f64_of(served.short_first_hops)),
        ("failed answers", f64_of(served.failed)),
        ("pipes made", f64_of(served.pipes_made)),
        ("pipes lent", f64_of(served.pipes_lent)),
        ("pipes closed dirty", f64_of(served.pipes_closed_dirty)),
    ]
}
