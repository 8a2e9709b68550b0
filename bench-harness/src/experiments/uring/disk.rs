//! Sequential against random writes: each block of a file is overwritten once, in order or in
//! disorder. The blocks were written before, so that no way has to find room for them.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use uringlog::disk::Aligned;

use super::cost::{Cost, Outcome, Side};
use super::{new_file, pictures, point_time};
use crate::experiments::measure::{self, Traces, u64_of, usize_of};
use crate::experiments::{DoingTo, Failure};
use crate::record::{Latency, Recorder, Table, unit};
use crate::run::Context;

/// How the blocks get to the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Into the page cache, and all with one fdatasync at the end, whose time counts.
    SyncedOnce,
    /// An fdatasync after each.
    SyncedEach,
    /// Past the page cache (`O_DIRECT`).
    Direct,
}

const WAYS: [(Way, &str); 3] =
    [(Way::SyncedOnce, "synced-once"), (Way::SyncedEach, "synced-each"), (Way::Direct, "direct")];
const PATTERNS: [&str; 2] = ["sequential", "random"];

/// Every block size, way and pattern.
///
/// # Errors
/// Whatever the file system refuses.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let path = context.folder.join("written");
    let bytes = context.parameters.number("disk_bytes");
    let file = new_file(&path)?;
    prepare(&file, bytes).doing_to("fill", &path)?;
    let columns = ["bytes of a write", "way", "sequential MB/s", "random MB/s", "ratio"];
    let mut table = Table::new("Sequential against random writes", &columns);
    let blocks = context.parameters.numbers("block_bytes");
    let progress = context.progress(u64_of(blocks.len() * WAYS.len()), "sequential and random");
    for block in blocks {
        if !block.is_multiple_of(4096) || bytes < block {
            let text = "--set block_bytes: blocks are multiples of 4096 and no longer than \
                        disk_bytes";
            return Err(Failure::Usage(text.to_owned()));
        }
        recorder.vary("block_bytes", block);
        for way in super::in_turn(context, &WAYS) {
            let rates = patterns(context, (&path, way, bytes / block), (block, recorder))?;
            let [sequential, random] = rates;
            recorder.forget("pattern");
            recorder.as_engine(way.1);
            recorder.figure("sequential_to_random", sequential / random, unit::RATIO);
            let shown = [sequential / 1e6, random / 1e6].map(|it| format!("{it:.1}"));
            let ratio = format!("{:.2}", sequential / random);
            let [sequential, random] = shown;
            table.row(vec![block.to_string(), way.1.to_owned(), sequential, random, ratio]);
            progress.advance(1);
        }
    }
    recorder.as_engine("none");
    recorder.table(table);
    recorder.note(
        "uring, disk: blocks that were written before are overwritten once each, as far as the \
         time for a point goes. `synced-once` is as good as the page cache's sorting: it writes \
         random blocks back in order. `direct` goes past the cache and ends when the device has \
         taken the block, which its own cache may still hold.",
    );
    pictures::disk(recorder);
    super::remove(&path)
}

fn prepare(file: &File, bytes: u64) -> std::io::Result<()> {
    let piece = vec![0xa5; 1 << 20];
    for at in (0..bytes).step_by(piece.len()) {
        let count = usize_of((bytes - at).min(u64_of(piece.len())));
        file.write_all_at(&piece[..count], at)?;
    }
    file.sync_data()
}

/// Bytes/s in order and in disorder.
fn patterns(
    context: &Context,
    (path, (way, name), blocks): (&Path, (Way, &str), u64),
    (block, recorder): (u64, &mut Recorder),
) -> Result<[f64; 2], Failure> {
    let mut rates = [0.0; 2];
    for (rate, pattern) in rates.iter_mut().zip(PATTERNS) {
        context.check()?;
        let order = match pattern {
            "sequential" => (0..blocks).collect(),
            _ => shuffled(blocks, context.seed),
        };
        recorder.vary("pattern", pattern);
        let written = write(context, (path, way), (&order, block))?;
        *rate = written.record((name, block), recorder).throughput;
    }
    Ok(rates)
}

struct Written {
    blocks: u64,
    wall: Duration,
    cpu: Duration,
    latency: Latency,
    traced: measure::Traced,
}

impl Written {
    fn record(&self, (way, block): (&str, u64), recorder: &mut Recorder) -> Outcome {
        let cost = Cost {
            way,
            side: Side::Aside,
            operations: self.blocks,
            bytes: self.blocks * block,
            wall: self.wall,
            cpu: self.cpu,
            traced: self.traced,
            workers: 0,
            latency: &self.latency,
        };
        cost.record("write", recorder)
    }
}

fn write(
    context: &Context,
    (path, way): (&Path, Way),
    (order, block): (&[u64], u64),
) -> Result<Written, Failure> {
    let mut options = File::options();
    options.read(true).write(true);
    if way == Way::Direct {
        options.custom_flags(libc::O_DIRECT);
    }
    let file = options.open(path).doing_to("open for direct writes", path)?;
    let mut memory = Aligned::new(usize_of(block));
    memory.set_length(usize_of(block));
    memory.memory_mut().fill(0x5a);
    let (traces, cpu) = (Traces::of_this_thread(), measure::process_cpu());
    let traced = traces.start();
    let mut latency = Latency::new();
    let (started, time) = (Instant::now(), point_time(context));
    let mut blocks = 0;
    for number in order {
        let begun = Instant::now();
        file.write_all_at(memory.bytes(), number * block).doing_to("write", path)?;
        if way == Way::SyncedEach {
            file.sync_data().doing_to("sync", path)?;
        }
        latency.record(begun.elapsed());
        blocks += 1;
        // Enough of them for a rate, whatever the time.
        if time <= started.elapsed() && 4 <= blocks {
            break;
        }
    }
    if way == Way::SyncedOnce {
        file.sync_data().doing_to("sync", path)?;
    }
    let wall = started.elapsed();
    let traced = traces.since(traced);
    let cpu = measure::process_cpu() - cpu;
    Ok(Written { blocks, wall, cpu, latency, traced })
}

/// The numbers below `count`, each once, in an order that follows from the seed.
fn shuffled(count: u64, seed: u64) -> Vec<u64> {
    let mut state = seed | 1;
    let mut numbers: Vec<u64> = (0..count).collect();
    for at in (1..numbers.len()).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let other = usize_of((state >> 33) % u64_of(at + 1));
        numbers.swap(at, other);
    }
    numbers
}

/// How many of these follow the one before them: what makes an order sequential.
#[cfg(test)]
fn successors(order: &[u64]) -> f64 {
    let count = order.windows(2).filter(|it| it[0] + 1 == it[1]).count();
    measure::f64_of(u64_of(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disorder_holds_each_block_once() {
        let order = shuffled(1000, 1);
        assert!(successors(&order) < 20.0);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<u64>>());
        assert_ne!(order, shuffled(1000, 5));
        assert_eq!(shuffled(0, 1), Vec::<u64>::new());
    }
}
