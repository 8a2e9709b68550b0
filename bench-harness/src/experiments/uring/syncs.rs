//! Ways to make one append durable before the next: appends of one size to one file.
//!
//! They don't do the same: `sync_file_range` leaves metadata and the device's cache alone, so that
//! a crash may lose what it has written; direct writes come in whole blocks, so that the block at
//! the log's end is written again by the next append, from a copy that is kept in memory.

use std::fs::File;
use std::io::IoSlice;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::ReadWriteFlags;
use uringlog::disk::{Aligned, BLOCK_BYTES};

use super::cost::{Cost, Outcome, Ratios, Side, per_operation};
use super::{pictures, point_time};
use crate::experiments::measure::{self, Traces, u64_of, usize_of};
use crate::experiments::{Doing, DoingTo, Failure};
use crate::record::{Latency, Recorder};
use crate::run::Context;
use crate::sys::write_range_out;
use crate::sys::write_ring::{Append, Appended, RingSetup, WriteRing};

/// No file grows beyond; so much is allocated beforehand where that is done.
const FILE_BYTES_MAX: u64 = 256 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A linked chain of write and fdatasync.
    RingLinked,
    Fdatasync,
    /// As before, with room allocated beforehand.
    Preallocated,
    /// A file that syncs each write (`O_DSYNC`).
    OpenDsync,
    /// A write that syncs itself (`RWF_DSYNC`).
    WriteDsync,
    /// `O_DIRECT` into allocated room, and fdatasync.
    Direct,
    /// `O_DIRECT` into allocated room, each write syncing itself.
    DirectDsync,
    SyncFileRange,
    /// Nothing is synced.
    None,
}

const WAYS: [(Way, &str, Side); 9] = [
    (Way::RingLinked, "ring-linked", Side::Ring),
    (Way::Fdatasync, "fdatasync", Side::Other),
    (Way::Preallocated, "preallocated", Side::Other),
    (Way::OpenDsync, "o_dsync", Side::Other),
    (Way::WriteDsync, "rwf_dsync", Side::Other),
    (Way::Direct, "o_direct", Side::Other),
    (Way::DirectDsync, "o_direct-dsync", Side::Other),
    (Way::SyncFileRange, "sync_file_range", Side::Aside),
    (Way::None, "not-synced", Side::Aside),
];

impl Way {
    fn is_direct(self) -> bool {
        matches!(self, Way::Direct | Way::DirectDsync)
    }

    fn is_allocated(self) -> bool {
        self.is_direct() || self == Way::Preallocated
    }

    fn open(self, path: &Path) -> Result<File, Failure> {
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        if self.is_direct() {
            options.custom_flags(libc::O_DIRECT);
        }
        if self == Way::OpenDsync {
            options.custom_flags(libc::O_DSYNC);
        }
        let file = options.open(path).doing_to("make", path)?;
        if self.is_allocated() {
            let room = fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES_MAX);
            room.doing_to("allocate room for", path)?;
            file.sync_all().doing_to("sync", path)?;
        }
        Ok(file)
    }
}

/// Every size.
///
/// # Errors
/// Whatever the file system refuses.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let mut ratios = Ratios::new("One durable append");
    let sizes = context.parameters.numbers("synced_bytes");
    let progress = context.progress(u64_of(sizes.len() * WAYS.len()), "ways to sync");
    for bytes in sizes {
        recorder.vary("synced_bytes", bytes);
        let mut outcomes = Vec::new();
        for way in super::in_turn(context, &WAYS) {
            context.check()?;
            outcomes.extend(measure_way(context, (bytes, way), recorder)?);
            progress.advance(1);
        }
        ratios.point(recorder, &format!("{bytes} B"), &outcomes);
    }
    ratios.finish(recorder);
    recorder.note(
        "uring, syncs: one append at a time to one file, which is where a ring has least to \
         offer. `o_direct` writes whole blocks: it rewrites the block at the log's end \
         (`rewritten_bytes` for one append) and pads the last one. `preallocated`, `o_direct` \
         and `o_direct-dsync` write into room that was allocated, so that the file's length, which \
         a plain log's sync must write, doesn't change. `sync_file_range` is not durable: \
         neither metadata nor the device's cache is written. It and `not-synced` are shown \
         beside the others and are nobody's best.",
    );
    pictures::syncs(recorder);
    Ok(())
}

/// An appender of one way, and what it has done.
struct Appender {
    way: Way,
    file: File,
    ring: Option<WriteRing>,
    batch: Vec<u8>,
    /// For direct writes: the bytes behind the last whole block, and room for a write.
    tail: Vec<u8>,
    block: Aligned,
    end: u64,
    rewritten: u64,
}

/// `None` where the file system refuses.
fn measure_way(
    context: &Context,
    (bytes, (way, name, side)): (u64, (Way, &str, Side)),
    recorder: &mut Recorder,
) -> Result<Option<Outcome>, Failure> {
    let path = context.folder.join("synced");
    let file = match way.open(&path) {
        Ok(file) => file,
        Err(failure) => {
            recorder.note(&format!("uring, syncs: {name} can't be had here: {failure}"));
            // It may be there all the same.
            let _ = std::fs::remove_file(&path);
            return Ok(None);
        }
    };
    let mut appender = Appender::new((way, file), bytes)?;
    // The first one finds nothing ready.
    appender.append()?;
    appender.rewritten = 0;
    let (traces, cpu) = (Traces::of_this_thread(), measure::process_cpu());
    let (traced, started) = (traces.start(), Instant::now());
    let mut latency = Latency::new();
    let mut appends = 0;
    while started.elapsed() < point_time(context) && appender.end + bytes <= FILE_BYTES_MAX {
        let begun = Instant::now();
        appender.append()?;
        latency.record(begun.elapsed());
        appends += 1;
    }
    let wall = started.elapsed().max(Duration::from_nanos(1));
    let traced = traces.since(traced);
    let cpu = measure::process_cpu() - cpu;
    let workers = measure::kernel_workers();
    let rewritten = appender.rewritten;
    appender.check(&path, 1 + appends)?;
    super::remove(&path)?;
    let (operations, bytes, latency) = (appends, appends * bytes, &latency);
    let cost = Cost { way: name, side, operations, bytes, wall, cpu, traced, workers, latency };
    let outcome = cost.record("synced_write", recorder);
    per_operation(recorder, "rewritten_bytes", (rewritten, appends));
    Ok(Some(outcome))
}

impl Appender {
    fn new((way, file): (Way, File), bytes: u64) -> Result<Appender, Failure> {
        let ring = match way {
            Way::RingLinked => {
                let files = vec![file.try_clone().doing("share the file")?];
                let ring = WriteRing::new(RingSetup::Cooperative, files, (1, usize_of(bytes)));
                Some(ring.doing("make a ring")?)
            }
            _ => None,
        };
        let batch = vec![0x5a; usize_of(bytes)];
        // A block before it and one behind.
        let block = Aligned::new(usize_of(bytes) + 2 * BLOCK_BYTES);
        Ok(Appender { way, file, ring, batch, tail: Vec::new(), block, end: 0, rewritten: 0 })
    }

    fn append(&mut self) -> Result<(), Failure> {
        match self.way {
            Way::RingLinked => self.by_ring()?,
            Way::Direct | Way::DirectDsync => self.directly()?,
            Way::WriteDsync => {
                let parts = [IoSlice::new(&self.batch)];
                let flags = ReadWriteFlags::DSYNC;
                let written = rustix::io::pwritev2(&self.file, &parts, self.end, flags);
                whole(written.doing("write")?, self.batch.len())?;
            }
            Way::Fdatasync
            | Way::Preallocated
            | Way::OpenDsync
            | Way::SyncFileRange
            | Way::None => self.file.write_all_at(&self.batch, self.end).doing("write")?,
        }
        match self.way {
            Way::Fdatasync | Way::Preallocated | Way::Direct => {
                self.file.sync_data().doing("sync")?;
            }
            Way::SyncFileRange => self.write_out()?,
            Way::RingLinked | Way::OpenDsync | Way::WriteDsync | Way::DirectDsync | Way::None => {}
        }
        self.end += u64_of(self.batch.len());
        Ok(())
    }

    fn write_out(&self) -> Result<(), Failure> {
        let signed = |it: u64| i64::try_from(it).expect("files are below 8 EiB");
        let bytes = signed(u64_of(self.batch.len()));
        write_range_out(&self.file, signed(self.end), bytes).doing("sync_file_range")
    }

    fn by_ring(&mut self) -> Result<(), Failure> {
        let ring = self.ring.as_mut().expect("this way has a ring");
        let bytes = u32::try_from(self.batch.len()).expect("at most 16 MiB");
        let append = Append { file: 0, at: self.end, bytes, is_synced: true };
        ring.push(append).doing("queue a chain")?;
        let mut over = Vec::new();
        while over.is_empty() {
            ring.submit_and_wait().doing("enter")?;
            ring.reap(&mut over);
        }
        match over.as_slice() {
            [Appended { write, sync: 0, .. }] if u32::try_from(*write) == Ok(bytes) => Ok(()),
            [Appended { write, sync, .. }, ..] => {
                Err(Failure::Wrong(format!("a write gave {write}, its sync {sync}")))
            }
            [] => unreachable!("it waits for one"),
        }
    }

    /// The block at the end once more, from the copy, and what follows it.
    fn directly(&mut self) -> Result<(), Failure> {
        let at = self.end - u64_of(self.tail.len());
        self.rewritten += u64_of(self.tail.len());
        let mut content = std::mem::take(&mut self.tail);
        content.extend_from_slice(&self.batch);
        let padded = content.len().next_multiple_of(BLOCK_BYTES);
        self.block.set_length(padded);
        let memory = &mut self.block.memory_mut()[..padded];
        memory[..content.len()].copy_from_slice(&content);
        memory[content.len()..].fill(0);
        self.tail = content.split_off(content.len() - content.len() % BLOCK_BYTES);
        let flags = match self.way {
            Way::DirectDsync => ReadWriteFlags::DSYNC,
            _ => ReadWriteFlags::empty(),
        };
        let parts = [IoSlice::new(self.block.bytes())];
        let written = rustix::io::pwritev2(&self.file, &parts, at, flags).doing("write")?;
        whole(written, padded)
    }

    /// The file holds as many batches as were appended, to the first and the last byte.
    fn check(self, path: &Path, appends: u64) -> Result<(), Failure> {
        let whole = appends * u64_of(self.batch.len());
        if self.way.is_allocated() {
            self.file.set_len(whole).doing_to("cut", path)?;
        }
        // Not through a descriptor that takes whole blocks only.
        let file = File::open(path).doing_to("open", path)?;
        let length = file.metadata().doing_to("look at", path)?.len();
        let mut last = vec![0; self.batch.len()];
        if 0 < appends {
            let at = length.saturating_sub(u64_of(last.len()));
            file.read_exact_at(&mut last, at).doing_to("read", path)?;
        }
        match length == whole && (appends == 0 || last == self.batch) {
            true => Ok(()),
            false => Err(Failure::Wrong(format!(
                "{appends} appends of {} bytes have left {length} bytes, or others",
                self.batch.len()
            ))),
        }
    }
}

fn whole(written: usize, wanted: usize) -> Result<(), Failure> {
    match written == wanted {
        true => Ok(()),
        false => Err(Failure::Wrong(format!("{written} of {wanted} bytes were written"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_leaves_all_bytes_and_direct_writes_repeat_the_tail() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        for (way, name, _) in WAYS {
            let path = folder.path().join(name);
            // Where there is no direct I/O there is nothing to check.
            let Ok(file) = way.open(&path) else { continue };
            let mut appender = Appender::new((way, file), 3000).expect("an appender");
            for _ in 0..4 {
                appender.append().expect("room");
            }
            // 0, then 3,000 of the first, 6,000 - 4,096 of the first two, 9,000 - 8,192.
            let expected = if way.is_direct() { 3000 + 1904 + 808 } else { 0 };
            assert_eq!(appender.rewritten, expected, "{name}");
            appender.check(&path, 4).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        }
    }
}
