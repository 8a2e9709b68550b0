//! Index entries: written to their files, or stored into memory that the files are mapped to.
//!
//! Each append is followed by an entry of 8 bytes in the offset index and one of 12 in the time
//! index, as with Kafka's default interval and batches of 4 KiB. Kafka maps its indexes; the
//! product writes them in the same chain as the log, since a mapped file tells of a full disk by a
//! signal, and of nothing else at all.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::cost::{Cost, Outcome, Ratios, Side};
use super::{new_file, pictures, point_time};
use crate::experiments::measure::{self, Traces, u64_of, usize_of};
use crate::experiments::{Doing, DoingTo, Failure};
use crate::record::{Latency, Recorder};
use crate::run::Context;
use crate::sys::mapping::Mapping;
use crate::sys::{Op, Ring};

const INDEX_BYTES: u64 = 10 << 20;
const LOG_BYTES_MAX: u64 = 1 << 30;
const ENTRY: [u8; 8] = *b"an entry";
const TIME_ENTRY: [u8; 12] = *b"a time entry";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A linked chain of three writes.
    Chain,
    /// Three calls.
    Calls,
    /// One call, two stores.
    Mapped,
    /// The log alone.
    LogOnly,
}

const WAYS: [(Way, &str, Side); 4] = [
    (Way::Chain, "chain", Side::Ring),
    (Way::Calls, "calls", Side::Other),
    (Way::Mapped, "mapped-index", Side::Other),
    (Way::LogOnly, "log-only", Side::Aside),
];

/// With and without syncs.
///
/// # Errors
/// Whatever the disk refuses.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let mut ratios = Ratios::new("Appends with index entries");
    for is_synced in [false, true] {
        let sync = if is_synced { "fdatasync" } else { "none" };
        recorder.vary("sync", sync);
        let mut outcomes = Vec::new();
        for way in super::in_turn(context, &WAYS) {
            context.check()?;
            outcomes.push(measure_way(context, (is_synced, way), recorder)?);
        }
        ratios.point(recorder, &format!("sync {sync}"), &outcomes);
    }
    ratios.finish(recorder);
    recorder.note(
        "uring, index: a loop of its own with an entry in each append. Only the log is synced, as \
         in the product and in Kafka. A mapped index costs no call; its pages are written back by \
         the kernel when it likes, a full disk comes as SIGBUS, and a store into a page that is \
         under write-back may wait.",
    );
    pictures::index(recorder);
    Ok(())
}

/// A log and its two indexes.
struct Files {
    paths: [PathBuf; 3],
    log: File,
    index: File,
    time_index: File,
}

impl Files {
    fn create(folder: &Path) -> Result<Files, Failure> {
        let paths = ["log", "index", "timeindex"].map(|end| folder.join(format!("indexed.{end}")));
        let [log, index, time_index] = [0, 1, 2].map(|number| new_file(&paths[number]));
        let (log, index, time_index) = (log?, index?, time_index?);
        for (file, path) in [(&index, &paths[1]), (&time_index, &paths[2])] {
            file.set_len(INDEX_BYTES).doing_to("extend", path)?;
        }
        Ok(Files { paths, log, index, time_index })
    }

    /// What was appended is there, and every entry.
    fn check(&self, appends: u64, (bytes, has_index): (u64, bool)) -> Result<(), Failure> {
        let length = self.log.metadata().doing_to("look at", &self.paths[0])?.len();
        let count = usize_of(if has_index { appends } else { 0 });
        let is_whole = length == appends * bytes
            && holds(&self.index, &ENTRY, count)?
            && holds(&self.time_index, &TIME_ENTRY, count)?;
        match is_whole {
            true => Ok(()),
            false => Err(Failure::Wrong(format!(
                "{appends} appends of {bytes} bytes have left {length} bytes, or other entries"
            ))),
        }
    }
}

/// Whether the index holds so many entries, and zeros behind them.
fn holds(index: &File, entry: &[u8], count: usize) -> Result<bool, Failure> {
    let mut bytes = vec![0; (count + 1) * entry.len()];
    index.read_exact_at(&mut bytes, 0).doing("read an index")?;
    let (entries, behind) = bytes.split_at(count * entry.len());
    Ok(entries == entry.repeat(count) && behind.iter().all(|it| *it == 0))
}

fn measure_way(
    context: &Context,
    (is_synced, (way, name, side)): (bool, (Way, &str, Side)),
    recorder: &mut Recorder,
) -> Result<Outcome, Failure> {
    let bytes = context.parameters.number("indexed_bytes");
    let files = Files::create(&context.folder)?;
    let mut appender = Appender::new(&files, (way, is_synced), bytes)?;
    // One entry less than fits, so that zeros follow.
    let appends_max = (LOG_BYTES_MAX / bytes).min(INDEX_BYTES / u64_of(TIME_ENTRY.len()) - 1);
    // The first one finds nothing ready.
    appender.append()?;
    let (traces, cpu) = (Traces::of_this_thread(), measure::process_cpu());
    let (traced, started) = (traces.start(), Instant::now());
    let mut latency = Latency::new();
    while started.elapsed() < point_time(context) && appender.appends < appends_max {
        let begun = Instant::now();
        appender.append()?;
        latency.record(begun.elapsed());
    }
    let wall = started.elapsed().max(Duration::from_nanos(1));
    let traced = traces.since(traced);
    let cpu = measure::process_cpu() - cpu;
    let appends = appender.appends;
    drop(appender);
    files.check(appends, (bytes, way != Way::LogOnly))?;
    let operations = appends - 1;
    files.paths.iter().try_for_each(|path| super::remove(path))?;
    let (bytes, latency, workers) = (operations * bytes, &latency, measure::kernel_workers());
    let cost = Cost { way: name, side, operations, bytes, wall, cpu, traced, workers, latency };
    Ok(cost.record("indexed_append", recorder))
}

struct Appender<'a> {
    files: &'a Files,
    way: Way,
    is_synced: bool,
    batch: Bytes,
    appends: u64,
    ring: Option<Ring>,
    mappings: Option<(Mapping, Mapping)>,
}

impl Appender<'_> {
    fn new(
        files: &Files,
        (way, is_synced): (Way, bool),
        bytes: u64,
    ) -> Result<Appender<'_>, Failure> {
        let ring = match way {
            Way::Chain => Some(Ring::new(8).doing("make a ring")?),
            _ => None,
        };
        let mappings = match way {
            Way::Mapped => Some((
                Mapping::writable(&files.index).doing("map an index")?,
                Mapping::writable(&files.time_index).doing("map an index")?,
            )),
            _ => None,
        };
        let batch = vec![0x5a; usize_of(bytes)].into();
        Ok(Appender { files, way, is_synced, batch, appends: 0, ring, mappings })
    }

    fn append(&mut self) -> Result<(), Failure> {
        let at = self.appends * u64_of(self.batch.len());
        let index_at = self.appends * u64_of(ENTRY.len());
        let time_index_at = self.appends * u64_of(TIME_ENTRY.len());
        if let Some(ring) = &mut self.ring {
            chain(ring, self.files, (&self.batch, self.is_synced), [at, index_at, time_index_at])?;
        } else {
            self.files.log.write_all_at(&self.batch, at).doing("write")?;
        }
        if self.way == Way::Calls {
            self.files.index.write_all_at(&ENTRY, index_at).doing("write")?;
            self.files.time_index.write_all_at(&TIME_ENTRY, time_index_at).doing("write")?;
        }
        if let Some((index, time_index)) = &mut self.mappings {
            index.store(usize_of(index_at), &ENTRY);
            time_index.store(usize_of(time_index_at), &TIME_ENTRY);
        }
        if self.is_synced && self.way != Way::Chain {
            self.files.log.sync_data().doing("sync")?;
        }
        self.appends += 1;
        Ok(())
    }
}

fn chain(
    ring: &mut Ring,
    files: &Files,
    (batch, is_synced): (&Bytes, bool),
    [at, index_at, time_index_at]: [u64; 3],
) -> Result<(), Failure> {
    let write = |file: &File, bytes: Bytes, at| Op::Write {
        file: file.as_raw_fd(),
        parts: vec![bytes],
        at,
    };
    let mut ops = vec![
        write(&files.log, batch.clone(), at),
        write(&files.index, Bytes::from_static(&ENTRY), index_at),
        write(&files.time_index, Bytes::from_static(&TIME_ENTRY), time_index_at),
    ];
    let mut expected = vec![batch.len(), ENTRY.len(), TIME_ENTRY.len()];
    if is_synced {
        ops.push(Op::Sync { file: files.log.as_raw_fd() });
        expected.push(0);
    }
    let want = ops.len();
    ring.push(0, ops).doing("queue a chain")?;
    let mut finished = Vec::new();
    while finished.is_empty() {
        ring.submit_and_wait(want).doing("enter")?;
        ring.reap(&mut finished);
    }
    let is_it = |(result, expected): (&i32, &usize)| usize::try_from(*result) == Ok(*expected);
    let results = finished.iter().flat_map(|it| &it.results);
    match results.clone().zip(&expected).all(is_it) {
        true => Ok(()),
        false => {
            let results: Vec<&i32> = results.collect();
            Err(Failure::Wrong(format!("a chain gave {results:?}, not {expected:?}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_leaves_the_same_files() {
        for (way, name, _) in WAYS {
            let folder = tempfile::tempdir().expect("a folder");
            let files = Files::create(folder.path()).expect("files");
            let mut appender = Appender::new(&files, (way, true), 100).expect("an appender");
            for _ in 0..5 {
                appender.append().expect("room");
            }
            drop(appender);
            let has_index = way != Way::LogOnly;
            files.check(5, (100, has_index)).unwrap_or_else(|failure| panic!("{name}: {failure}"));
            assert!(files.check(4, (125, has_index)).is_err() == has_index, "{name}");
        }
    }
}
