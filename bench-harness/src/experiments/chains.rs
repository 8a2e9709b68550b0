//! Chains with two rings on one thread: what does a batch cost from socket to file?
//!
//! One thread runs a tokio-uring runtime that receives frames as long as Produce requests and
//! answers 60 bytes to each, and a second, raw ring that writes them to a log, an offset index
//! and a time index. Everything that arrived for a partition during one turn is one plan. A second
//! thread on the other core is the client; its CPU time is not counted, that of the kernel's
//! workers is.

mod client;
mod server;
mod storage;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::measure::{self, Row, f64_of};
use super::{Doing, Failure};
use crate::sys::TraceCount;
use client::Sent;
use server::{Served, Setup};
use storage::Variant;

/// What to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Folder on the file system under test; the files in it are removed after each run.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Name of the file system in the figures; its type when not given.
    #[arg(long)]
    name: Option<String>,
    /// Append one JSON line per run to this file.
    #[arg(long)]
    out: Option<PathBuf>,
    /// `FRAME_BYTES:CONNECTIONS:IN_FLIGHT[:PARTITIONS]`, may be repeated.
    #[arg(long = "load", default_values = ["10240:1:1", "10240:1:4", "10240:1:16", "10240:1:64"])]
    loads: Vec<Load>,
    /// VARIANT[/WORKER_CORES[/MAX_WORKERS]] with network, pwrite, chain, due, late and unset, own,
    /// other, any; may be repeated.
    #[arg(long = "cell", default_values = ["network", "pwrite", "chain", "due", "late"])]
    cells: Vec<Cell>,
    /// Room for one receive, in bytes; 512 reads a frame's head first and then its rest.
    #[arg(long, default_value_t = 256 * 1024)]
    receive_bytes: usize,
    /// After a receive on the ring, take what else the socket holds by system call, in the same
    /// turn.
    #[arg(long)]
    receive_more: bool,
    /// End each plan with fdatasync of the log.
    #[arg(long)]
    sync: bool,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[arg(long, default_value_t = 1_500)]
    run_ms: u64,
    /// A run ends early when it has sent this many bytes.
    #[arg(long, default_value_t = 512 << 20)]
    run_bytes_max: u64,
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    #[arg(long, default_value_t = 1)]
    client_core: usize,
    /// Two short rounds.
    #[arg(long)]
    quick: bool,
}

/// The frames that the client keeps under way.
#[derive(Clone, Copy)]
pub struct Load {
    frame_bytes: usize,
    connections: usize,
    in_flight: usize,
    partitions: usize,
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed: Result<Vec<usize>, _> = text.split(':').map(str::parse).collect();
        let (frame_bytes, connections, in_flight, partitions) = match parsed.as_deref() {
            Ok([frame, connections, in_flight]) => (*frame, *connections, *in_flight, 1),
            Ok([frame, connections, in_flight, partitions]) => {
                (*frame, *connections, *in_flight, *partitions)
            }
            _ => return Err("want FRAME_BYTES:CONNECTIONS:IN_FLIGHT[:PARTITIONS]".to_owned()),
        };
        if !(64..=4 << 20).contains(&frame_bytes) {
            return Err("a frame has 64 bytes to 4 MiB".to_owned());
        }
        if [connections, in_flight, partitions].contains(&0) {
            return Err("there is at least one of each".to_owned());
        }
        Ok(Self { frame_bytes, connections, in_flight, partitions })
    }
}

/// Where the kernel's workers of the server's rings may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerCores {
    /// As the kernel does it: they inherit the server's pin.
    Unset,
    Own,
    Other,
    Any,
}

/// One thing to compare.
#[derive(Clone, Copy)]
pub struct Cell {
    variant: Variant,
    cores: WorkerCores,
    workers_max: Option<u32>,
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('/');
        let variant = parts.next().unwrap_or_default().parse()?;
        let cores = match parts.next() {
            None | Some("unset") => WorkerCores::Unset,
            Some("own") => WorkerCores::Own,
            Some("other") => WorkerCores::Other,
            Some("any") => WorkerCores::Any,
            Some(other) => return Err(format!("unknown worker cores: {other}")),
        };
        let workers_max = match parts.next().map(str::parse) {
            None => None,
            Some(Ok(count)) => Some(count),
            Some(Err(_)) => return Err("MAX_WORKERS is a number".to_owned()),
        };
        Ok(Self { variant, cores, workers_max })
    }
}

/// Figures of one run of `millis` milliseconds with a load and a cell as the command line has them:
/// their names, and their values.
///
/// # Errors
/// [`Failure::Usage`] for words that don't say a load or a cell.
pub fn measured(
    folder: &Path,
    (load, cell): (&str, &str),
    is_synced: bool,
    millis: u64,
) -> Result<Vec<(&'static str, f64)>, Failure> {
    let options = Options {
        dir: folder.to_owned(),
        name: None,
        out: None,
        loads: Vec::new(),
        cells: Vec::new(),
        receive_bytes: 256 * 1024,
        receive_more: false,
        sync: is_synced,
        rounds: 1,
        run_ms: millis,
        run_bytes_max: 512 << 20,
        server_core: 0,
        client_core: 1,
        quick: false,
    };
    let load = load.parse().map_err(Failure::Usage)?;
    run_once(&options, load, cell.parse().map_err(Failure::Usage)?)
}

/// Runs every load with every cell, the cells in turn, and prints a table.
pub fn run(options: &Options) -> Result<(), Failure> {
    let rounds = if options.quick { 2 } else { options.rounds };
    let file_system = match &options.name {
        Some(name) => name.clone(),
        None => measure::file_system(&options.dir)?,
    };
    for load in &options.loads {
        let label = |cell: &Cell| row(options, *load, (*cell, &file_system));
        let mut rows: Vec<_> = options.cells.iter().map(label).collect();
        for _ in 0..rounds {
            for (cell, row) in options.cells.iter().zip(&mut rows) {
                row.rounds.push(run_once(options, *load, *cell)?);
            }
        }
        measure::print_table(&rows);
        measure::write_lines(&rows, "chains", options.out.as_deref())?;
    }
    Ok(())
}

fn row(options: &Options, load: Load, (cell, file_system): (Cell, &str)) -> Row {
    let workers = cell.workers_max.map_or("default".to_owned(), |count| count.to_string());
    let more = if options.receive_more { " + more" } else { "" };
    let receive = format!("{}{more}", options.receive_bytes);
    let labels = vec![
        ("file system", file_system.to_owned()),
        ("frame B", load.frame_bytes.to_string()),
        ("connections x in flight", format!("{} x {}", load.connections, load.in_flight)),
        ("partitions", load.partitions.to_string()),
        ("receive B", receive),
        ("sync", if options.sync { "each plan" } else { "none" }.to_owned()),
        ("variant", cell.variant.to_string()),
        ("worker cores", format!("{:?}", cell.cores).to_lowercase()),
        ("workers max", workers),
    ];
    Row { labels, rounds: Vec::new() }
}

fn run_once(
    options: &Options,
    load: Load,
    cell: Cell,
) -> Result<Vec<(&'static str, f64)>, Failure> {
    let folder = tempfile::tempdir_in(&options.dir).doing("make a folder for the files")?;
    let setup = Setup {
        folder: folder.path().to_owned(),
        load,
        cell,
        receive_bytes: options.receive_bytes,
        receive_more: options.receive_more,
        sync: options.sync,
        core: options.server_core,
        other_core: options.client_core,
    };
    let (ready, when_ready) = mpsc::channel();
    let server = thread::spawn(move || server::serve(&setup, &ready));
    let Ok((address, thread)) = when_ready.recv() else {
        return Err(join(server).err().unwrap_or(Failure::Wrong("the server left".to_owned())));
    };
    let plan = client::Plan {
        address,
        load,
        core: options.client_core,
        run: Duration::from_millis(if options.quick { 400 } else { options.run_ms }),
        bytes_max: options.run_bytes_max,
    };
    let (connected, when_connected) = mpsc::channel();
    let (go, when_told) = mpsc::channel();
    let client = thread::spawn(move || client::drive(&plan, &connected, &when_told));
    let Ok(()) = when_connected.recv() else {
        return Err(join(client).err().unwrap_or(Failure::Wrong("the client left".to_owned())));
    };
    thread::sleep(Duration::from_millis(20));
    let counts = Counts::start(thread);
    go.send(()).map_err(|_| Failure::Wrong("the client left".to_owned()))?;
    let workers = watch_workers(&client);
    let sent = join(client)?;
    let figures = counts.stop(&sent, workers);
    let served = join(server)?;
    Ok(with_plans(figures, load, &sent, &served))
}

fn join<T>(thread: JoinHandle<Result<T, Failure>>) -> Result<T, Failure> {
    thread.join().unwrap_or_else(|_| Err(Failure::Wrong("a thread panicked".to_owned())))
}

/// The most workers that were seen while the client ran.
fn watch_workers<T>(client: &JoinHandle<T>) -> usize {
    let mut most = 0;
    while !client.is_finished() {
        thread::sleep(Duration::from_millis(20));
        most = most.max(measure::kernel_workers());
    }
    most
}

/// Counters as they stood when the client was let go.
struct Counts {
    process: Duration,
    own: Duration,
    enters: Option<TraceCount>,
    punts: Option<TraceCount>,
}

impl Counts {
    fn start(server_thread: i32) -> Self {
        Self {
            enters: TraceCount::open("syscalls/sys_enter_io_uring_enter", server_thread),
            punts: TraceCount::open("io_uring/io_uring_queue_async_work", server_thread),
            own: measure::thread_cpu(),
            process: measure::process_cpu(),
        }
    }

    fn stop(self, sent: &Sent, workers: usize) -> Vec<(&'static str, f64)> {
        let process = measure::process_cpu() - self.process;
        let own = measure::thread_cpu() - self.own;
        let server = process.saturating_sub(own + sent.cpu);
        let per_batch = |count: f64| count / f64_of(sent.batches.max(1));
        let counted = |count: Option<TraceCount>| {
            count.and_then(|count| count.read()).map_or(f64::NAN, |count| per_batch(f64_of(count)))
        };
        vec![
            ("CPU us/batch", per_batch(server.as_secs_f64() * 1e6)),
            ("enters/batch", counted(self.enters)),
            ("punts/batch", counted(self.punts)),
            ("workers", f64_of(measure::u64_of(workers))),
            ("us/batch wall", per_batch(sent.wall.as_secs_f64() * 1e6)),
        ]
    }
}

fn with_plans(
    mut figures: Vec<(&'static str, f64)>,
    load: Load,
    sent: &Sent,
    served: &Served,
) -> Vec<(&'static str, f64)> {
    let bytes = f64_of(sent.batches * measure::u64_of(load.frame_bytes));
    figures.push(("MB/s", bytes / sent.wall.as_secs_f64() / 1e6));
    figures.push(("batches/plan", f64_of(served.batches) / f64_of(served.plans.max(1))));
    figures.push(("batches/turn", f64_of(served.batches) / f64_of(served.turns.max(1))));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_and_cells_are_read() {
        let load: Load = "10240:16:4:8".parse().expect("a whole load");
        assert_eq!((load.frame_bytes, load.connections, load.in_flight), (10240, 16, 4));
        assert_eq!(load.partitions, 8);
        assert_eq!("1024:1:1".parse::<Load>().map(|load| load.partitions), Ok(1));
        for wrong in ["", "10240:1", "10240:0:1", "63:1:1", "10240:1:1:1:1"] {
            assert!(wrong.parse::<Load>().is_err(), "{wrong}");
        }
        let cell: Cell = "due/other/2".parse().expect("a whole cell");
        assert!(cell.variant == Variant::Due && cell.cores == WorkerCores::Other);
        assert_eq!(cell.workers_max, Some(2));
        for wrong in ["chains", "chain/here", "chain/own/few"] {
            assert!(wrong.parse::<Cell>().is_err(), "{wrong}");
        }
    }
}
