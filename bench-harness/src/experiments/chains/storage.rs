//! Partitions of three files each, and the ways in which a turn's batches reach them.

use std::fmt;
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::str::FromStr;

use bytes::Bytes;

use crate::experiments::measure::{u64_of, usize_of};
use crate::experiments::{Doing, Failure};
use crate::sys::{Finished, Op, Ring, WRITE_PARTS_MAX};

/// An index entry is due when more than this many bytes follow the last one: Kafka's default.
const INDEX_INTERVAL_BYTES: u64 = 4096;
/// An offset index entry is eight bytes, a time index entry twelve.
const INDEX_ENTRY: [u8; 8] = [1; 8];
const TIME_INDEX_ENTRY: [u8; 12] = [2; 12];
/// Held-back index entries are written when a page of them has come together.
const HELD_INDEX_BYTES_MAX: usize = 4096;
const RING_ENTRIES: u32 = 4096;

/// How a plan is carried out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Not at all: the network alone.
    Network,
    /// Three writes by system call; a sync goes through the ring.
    Pwrite,
    /// Log, index and time index as one chain, an entry in each plan.
    Chain,
    /// A chain whose index steps are there only when an entry is due.
    Due,
    /// The log alone; index entries wait for a page of them.
    Late,
}

const NAMES: [(Variant, &str); 5] = [
    (Variant::Network, "network"),
    (Variant::Pwrite, "pwrite"),
    (Variant::Chain, "chain"),
    (Variant::Due, "due"),
    (Variant::Late, "late"),
];

impl FromStr for Variant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(variant, _)| *variant).ok_or(format!("unknown variant: {text}"))
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(variant, _)| variant == self).map_or("", |pair| pair.1);
        formatter.write_str(name)
    }
}

/// A file and the position of its end.
struct Tail {
    file: File,
    end: u64,
}

impl Tail {
    fn create(path: &Path) -> Result<Self, Failure> {
        Ok(Self { file: File::create_new(path).doing("create a file")?, end: 0 })
    }

    /// A write of the parts behind the end.
    fn write(&mut self, parts: Vec<Bytes>) -> Op {
        let at = self.end;
        self.end += parts.iter().map(|part| u64_of(part.len())).sum::<u64>();
        Op::Write { file: self.file.as_raw_fd(), parts, at }
    }

    fn sync(&self) -> Op {
        Op::Sync { file: self.file.as_raw_fd() }
    }
}

struct Partition {
    log: Tail,
    index: Tail,
    time_index: Tail,
    /// Batches of this turn, and the number of the connection that waits for the answer.
    pending: Vec<(Bytes, usize)>,
    /// Who waits for the plan in flight; a partition has one at most.
    flying: Vec<usize>,
    is_flying: bool,
    bytes_since_entry: u64,
    index_held: Vec<u8>,
    time_index_held: Vec<u8>,
}

impl Partition {
    fn create(folder: &Path, number: usize) -> Result<Self, Failure> {
        let tail = |name: &str| Tail::create(&folder.join(format!("{number}.{name}")));
        Ok(Self {
            log: tail("log")?,
            index: tail("index")?,
            time_index: tail("timeindex")?,
            pending: Vec::new(),
            flying: Vec::new(),
            is_flying: false,
            bytes_since_entry: 0,
            index_held: Vec::new(),
            time_index_held: Vec::new(),
        })
    }

    /// Takes the pending batches into flight and adds the index entries that they make due.
    fn take_batches(&mut self) -> Vec<Bytes> {
        let count = self.pending.len().min(WRITE_PARTS_MAX);
        let mut parts = Vec::with_capacity(count);
        for (bytes, connection) in self.pending.drain(..count) {
            if self.bytes_since_entry > INDEX_INTERVAL_BYTES {
                self.index_held.extend(INDEX_ENTRY);
                self.time_index_held.extend(TIME_INDEX_ENTRY);
                self.bytes_since_entry = 0;
            }
            self.bytes_since_entry += u64_of(bytes.len());
            parts.push(bytes);
            self.flying.push(connection);
        }
        parts
    }

    fn plan(&mut self, variant: Variant, sync: bool) -> Vec<Op> {
        let parts = self.take_batches();
        if variant == Variant::Network {
            return Vec::new();
        }
        if variant == Variant::Chain && self.index_held.is_empty() {
            self.index_held.extend(INDEX_ENTRY);
            self.time_index_held.extend(TIME_INDEX_ENTRY);
        }
        let held_max = if variant == Variant::Late { HELD_INDEX_BYTES_MAX } else { 1 };
        let mut steps = vec![self.log.write(parts)];
        if self.index_held.len() >= held_max {
            let index = Bytes::from(std::mem::take(&mut self.index_held));
            let time_index = Bytes::from(std::mem::take(&mut self.time_index_held));
            steps.push(self.index.write(vec![index]));
            steps.push(self.time_index.write(vec![time_index]));
        }
        if sync {
            steps.push(self.log.sync());
        }
        steps
    }
}

/// What the storage has done so far.
#[derive(Default)]
pub struct Work {
    pub batches: u64,
    pub plans: u64,
    pub turns: u64,
}

/// All partitions of the server's thread, and its storage ring.
pub struct Storage {
    partitions: Vec<Partition>,
    dirty: Vec<usize>,
    ring: Ring,
    variant: Variant,
    sync: bool,
    answered: Vec<usize>,
    pub work: Work,
}

impl Storage {
    pub fn create(
        folder: &Path,
        partitions: usize,
        variant: Variant,
        sync: bool,
    ) -> Result<Self, Failure> {
        let partitions: Result<_, _> =
            (0..partitions).map(|number| Partition::create(folder, number)).collect();
        let ring = Ring::new(RING_ENTRIES).doing("storage ring")?;
        let (dirty, answered, work) = (Vec::new(), Vec::new(), Work::default());
        Ok(Self { partitions: partitions?, dirty, ring, variant, sync, answered, work })
    }

    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The connections whose batches are written, each as often as it had batches.
    pub fn take_answered(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.answered)
    }

    /// Keeps a batch for the end of the turn. True when it is the turn's first that can be planned.
    pub fn append(&mut self, batch: Bytes, connection: usize) -> bool {
        let number = connection % self.partitions.len();
        let partition = &mut self.partitions[number];
        partition.pending.push((batch, connection));
        if partition.is_flying || partition.pending.len() > 1 {
            return false;
        }
        self.dirty.push(number);
        self.dirty.len() == 1
    }

    /// The end of a turn: plans every partition that has batches and none in flight, and enters
    /// the kernel once. True when plans that were done on the spot left batches behind.
    pub fn flush(&mut self) -> Result<bool, Failure> {
        self.work.turns += u64::from(!self.dirty.is_empty());
        for number in std::mem::take(&mut self.dirty) {
            self.start_plan(number)?;
        }
        self.ring.submit().doing("submit the plans")?;
        Ok(!self.dirty.is_empty())
    }

    fn start_plan(&mut self, number: usize) -> Result<(), Failure> {
        let partition = &mut self.partitions[number];
        assert!(!partition.is_flying);
        let mut steps = partition.plan(self.variant, self.sync);
        self.work.plans += 1;
        self.work.batches += u64_of(partition.flying.len());
        partition.is_flying = true;
        if self.variant == Variant::Pwrite {
            for step in steps.iter().filter(|step| matches!(step, Op::Write { .. })) {
                write_now(partition, step)?;
            }
            steps.retain(|step| matches!(step, Op::Sync { .. }));
        }
        if steps.is_empty() {
            self.finish(number);
            return Ok(());
        }
        self.ring.push(u64_of(number), steps).doing("queue a plan")
    }

    /// Collects plans that the kernel has finished. True when batches came meanwhile.
    pub fn complete(&mut self) -> bool {
        let mut finished = Vec::new();
        self.ring.reap(&mut finished);
        for chain in &finished {
            assert_whole(chain);
            self.finish(usize_of(chain.tag));
        }
        !self.dirty.is_empty()
    }

    fn finish(&mut self, number: usize) {
        let partition = &mut self.partitions[number];
        assert!(partition.is_flying);
        partition.is_flying = false;
        self.answered.append(&mut partition.flying);
        if !partition.pending.is_empty() {
            self.dirty.push(number);
        }
    }
}

fn assert_whole(chain: &Finished) {
    for (op, result) in chain.ops.iter().zip(&chain.results) {
        let Op::Write { parts, .. } = op else {
            assert_eq!(*result, 0, "a sync failed");
            continue;
        };
        let whole: usize = parts.iter().map(Bytes::len).sum();
        assert_eq!(usize::try_from(*result), Ok(whole), "a write failed or fell short");
    }
}

fn write_now(partition: &Partition, step: &Op) -> Result<(), Failure> {
    let Op::Write { file, parts, at } = step else { return Ok(()) };
    let tails = [&partition.log, &partition.index, &partition.time_index];
    let tail = tails.into_iter().find(|tail| tail.file.as_raw_fd() == *file);
    let tail = tail.expect("a plan writes to files of its partition");
    let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let whole: usize = parts.iter().map(Bytes::len).sum();
    let written = rustix::io::pwritev(&tail.file, &slices, *at).doing("pwritev")?;
    assert_eq!(written, whole, "a write fell short");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of the plans that batches of these sizes make, one plan for each, as the bytes that
    /// each step writes.
    fn plans(variant: Variant, batches: &[usize]) -> Vec<Vec<usize>> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut partition = Partition::create(folder.path(), 0).expect("three files");
        let plan = |bytes: &usize| -> Vec<usize> {
            partition.pending.push((vec![0; *bytes].into(), 0));
            let steps = partition.plan(variant, false);
            steps.iter().map(written).collect()
        };
        batches.iter().map(plan).collect()
    }

    fn written(step: &Op) -> usize {
        let Op::Write { parts, .. } = step else { return 0 };
        parts.iter().map(Bytes::len).sum()
    }

    #[test]
    fn index_steps_follow_the_variant() {
        let sizes = [4000, 97, 4096, 10_000, 1];
        let due = vec![vec![4000], vec![97], vec![4096, 8, 12], vec![10_000], vec![1, 8, 12]];
        assert_eq!(plans(Variant::Due, &sizes), due);
        assert!(plans(Variant::Chain, &sizes).iter().all(|steps| steps.len() == 3));
        assert!(plans(Variant::Late, &sizes).iter().all(|steps| steps.len() == 1));
        assert!(plans(Variant::Network, &sizes).iter().all(Vec::is_empty));
    }
}
