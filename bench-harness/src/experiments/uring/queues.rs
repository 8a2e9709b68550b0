//! Set-ups of a ring, and the depth of its queue: writes of one size, each to the end of a file of
//! its own, so many under way at a time; with and without an fdatasync linked behind each.
//!
//! This loop isn't the product's: a ring that polls its queue or defers its completions needs
//! another loop than the shard's, which also serves a network. So the loop is the same small one
//! for all set-ups: refill, enter, take in.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use super::cost::{Cost, Outcome, Ratios, Side};
use super::{new_file, pictures, point_time};
use crate::experiments::measure::{self, Traced, Traces, u64_of, usize_of};
use crate::experiments::{Doing, Failure};
use crate::record::{Latency, Recorder};
use crate::run::Context;
use crate::sys::write_ring::{Append, Appended, RingSetup, WriteRing};

/// Threads of the way that has some.
const THREADS_MAX: usize = 16;
/// No file grows beyond.
const FILE_BYTES_MAX: u64 = 1 << 30;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Ring(RingSetup),
    /// `pwrite`, and fdatasync, of one file after the other.
    Calls,
    /// The same on threads, each with its share of the files.
    Threads,
}

const WAYS: [(Way, &str, Side); 7] = [
    (Way::Calls, "calls", Side::Other),
    (Way::Threads, "threads", Side::Other),
    (Way::Ring(RingSetup::Bare), "bare", Side::Ring),
    (Way::Ring(RingSetup::Cooperative), "coop-taskrun", Side::Ring),
    (Way::Ring(RingSetup::Deferred), "defer-taskrun", Side::Ring),
    (Way::Ring(RingSetup::Polled), "sqpoll", Side::Ring),
    (Way::Ring(RingSetup::Registered), "registered", Side::Ring),
];

#[derive(Clone, Copy)]
struct Load {
    depth: u64,
    bytes: u64,
    is_synced: bool,
    time: Duration,
}

/// What was done, counted in writes.
struct Done {
    latency: Latency,
    writes: u64,
    wall: Duration,
    cpu: Duration,
    traced: Traced,
    workers: usize,
}

/// Every depth, with and without syncs.
///
/// # Errors
/// Whatever the disk refuses.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let mut ratios = Ratios::new("Set-ups of a ring");
    let depths = context.parameters.numbers("depth");
    let total = u64_of(2 * depths.len() * WAYS.len());
    let progress = context.progress(total, "set-ups of a ring");
    for is_synced in [false, true] {
        let sync = if is_synced { "fdatasync" } else { "none" };
        recorder.vary("sync", sync);
        for depth in &depths {
            recorder.vary("depth", *depth);
            let bytes = context.parameters.number("queued_bytes");
            let load = Load { depth: *depth, bytes, is_synced, time: point_time(context) };
            let mut outcomes = Vec::new();
            for way in super::in_turn(context, &WAYS) {
                context.check()?;
                outcomes.extend(measure_way(context, (load, way), recorder)?);
                progress.advance(1);
            }
            ratios.point(recorder, &format!("depth {depth}, sync {sync}"), &outcomes);
        }
    }
    ratios.finish(recorder);
    recorder.note(
        "uring, queues: a loop of its own that only writes, since SQPOLL and DEFER_TASKRUN need \
         another loop than the product's. A write's latency counts from when its file was free. \
         `coop-taskrun` has the product's flags; `registered` is that with registered files and \
         buffers. `sqpoll` has a kernel thread that spins on a core, which counts as CPU; its user \
         spins, too, for 100 us before it waits by a call. `threads` are at most 16, each with \
         its share of the files.",
    );
    pictures::queues(recorder);
    Ok(())
}

/// `None` where the kernel refuses the set-up.
fn measure_way(
    context: &Context,
    (load, (way, name, side)): (Load, (Way, &str, Side)),
    recorder: &mut Recorder,
) -> Result<Option<Outcome>, Failure> {
    let paths: Vec<PathBuf> =
        (0..load.depth).map(|number| context.folder.join(format!("queue-{number}"))).collect();
    let files: Result<Vec<File>, Failure> = paths.iter().map(|path| new_file(path)).collect();
    let files = files?;
    // Before a ring, whose polling thread is to be counted, too.
    let traces = Traces::of_this_thread();
    let mut ring = match way {
        Way::Ring(setup) => match ring(setup, &files, load) {
            Ok(ring) => Some(ring),
            Err(error) => {
                recorder.note(&format!("uring, queues: {name} is refused here: {error}"));
                paths.iter().try_for_each(|path| super::remove(path))?;
                return Ok(None);
            }
        },
        Way::Calls | Way::Threads => None,
    };
    let cpu = measure::process_cpu();
    let (traced, started) = (traces.start(), Instant::now());
    let latency = match (way, &mut ring) {
        (_, Some(ring)) => by_ring(ring, load)?,
        (Way::Threads, None) => by_threads(&files, load)?,
        (_, None) => {
            let mut latency = Latency::new();
            by_calls(&files, load, |at, took| latency.record_at(at, took))?;
            latency
        }
    };
    let wall = started.elapsed();
    let traced = traces.since(traced);
    let cpu = measure::process_cpu() - cpu;
    // Those without work stay for some seconds.
    let workers = measure::kernel_workers();
    drop(ring);
    let writes = latency.total().len();
    check_files(&files, (writes, load.bytes))?;
    let done = Done { latency, writes, wall, cpu, traced, workers };
    paths.iter().try_for_each(|path| super::remove(path))?;
    Ok(Some(done.record((name, side), (load.bytes, recorder))))
}

impl Done {
    fn record(
        &self,
        (way, side): (&str, Side),
        (bytes, recorder): (u64, &mut Recorder),
    ) -> Outcome {
        let cost = Cost {
            way,
            side,
            operations: self.writes,
            bytes: self.writes * bytes,
            wall: self.wall,
            cpu: self.cpu,
            traced: self.traced,
            workers: self.workers,
            latency: &self.latency,
        };
        cost.record("queued_write", recorder)
    }
}

fn ring(setup: RingSetup, files: &[File], load: Load) -> std::io::Result<WriteRing> {
    let files: std::io::Result<Vec<File>> = files.iter().map(File::try_clone).collect();
    let depth = u32::try_from(load.depth).expect("at most 1,024");
    WriteRing::new(setup, files?, (depth, usize_of(load.bytes)))
}

/// The files hold what was written.
fn check_files(files: &[File], (writes, bytes): (u64, u64)) -> Result<(), Failure> {
    let mut total = 0;
    for file in files {
        total += file.metadata().doing("look at a file")?.len();
    }
    match total == writes * bytes {
        true => Ok(()),
        false => Err(Failure::Wrong(format!(
            "{writes} writes of {bytes} bytes have left {total} bytes in files"
        ))),
    }
}

fn is_over(started: Instant, load: Load, end: u64) -> bool {
    load.time <= started.elapsed() || FILE_BYTES_MAX <= end
}

fn by_ring(ring: &mut WriteRing, load: Load) -> Result<Latency, Failure> {
    let started = Instant::now();
    let mut latency = Latency::new();
    let count = ring.files().len();
    let (mut ends, mut free_since) = (vec![0; count], vec![started; count]);
    let mut idle: Vec<usize> = (0..count).collect();
    let mut over = Vec::new();
    let bytes = u32::try_from(load.bytes).expect("at most 1 MiB");
    loop {
        for file in std::mem::take(&mut idle) {
            if !is_over(started, load, ends[file]) {
                let append = Append { file, at: ends[file], bytes, is_synced: load.is_synced };
                ring.push(append).doing("queue a write")?;
            }
        }
        if ring.under_way() == 0 {
            return Ok(latency);
        }
        ring.submit_and_wait().doing("enter")?;
        ring.reap(&mut over);
        for Appended { append, write, sync } in over.drain(..) {
            if i64::from(write) != i64::from(bytes) || sync != 0 {
                return Err(Failure::Wrong(format!("a write gave {write}, its sync {sync}")));
            }
            ends[append.file] += load.bytes;
            let now = Instant::now();
            latency.record(now - free_since[append.file]);
            free_since[append.file] = now;
            idle.push(append.file);
        }
    }
}

fn by_calls(
    files: &[File],
    load: Load,
    mut record: impl FnMut(Duration, Duration),
) -> Result<(), Failure> {
    let started = Instant::now();
    let bytes = vec![0x5a; usize_of(load.bytes)];
    let mut free_since = vec![started; files.len()];
    let mut end = 0;
    while !is_over(started, load, end) {
        for (file, free_since) in files.iter().zip(&mut free_since) {
            file.write_all_at(&bytes, end).doing("write")?;
            if load.is_synced {
                file.sync_data().doing("sync")?;
            }
            let now = Instant::now();
            record(now - started, now - *free_since);
            *free_since = now;
        }
        end += load.bytes;
    }
    Ok(())
}

fn by_threads(files: &[File], load: Load) -> Result<Latency, Failure> {
    let latency = &Mutex::new(Latency::new());
    let share = files.len().div_ceil(THREADS_MAX);
    thread::scope(|scope| {
        let work = |files| {
            scope.spawn(move || {
                let mut taken = Vec::new();
                by_calls(files, load, |at, took| taken.push((at, took)))?;
                let mut latency = latency.lock().expect("nobody panics with it");
                taken.into_iter().for_each(|(at, took)| latency.record_at(at, took));
                Ok::<(), Failure>(())
            })
        };
        let threads: Vec<_> = files.chunks(share).map(work).collect();
        threads.into_iter().try_for_each(|it| it.join().expect("no thread panics"))
    })?;
    Ok(std::mem::take(&mut *latency.lock().expect("nobody panicked with it")))
}
