//! The same plans in other ways: a step at a time, a piece of a write at a time; and a ring whose
//! counters can be read from outside.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::rc::Rc;

use uringlog::disk::plan::Steps;
use uringlog::disk::{
    Aligned, Disk, DiskError, FileId, Finished, Listed, Plan, PlanTag, Step, StepFailure,
};
use uringlog::ring::{RingCounters, RingDisk};
use uringlog::{ByteCount, units::Position};

use crate::experiments::measure::u64_of;

/// The product's ring, which tells its counters after every call.
pub struct CountedRing {
    ring: RingDisk,
    counters: Rc<Cell<RingCounters>>,
}

impl CountedRing {
    /// Counters are in `counters` from now on.
    pub fn new(ring: RingDisk, counters: Rc<Cell<RingCounters>>) -> CountedRing {
        CountedRing { ring, counters }
    }
}

impl Disk for CountedRing {
    fn submit(&mut self, plan: Plan) {
        self.ring.submit(plan);
    }

    fn enter(&mut self) {
        self.ring.enter();
        self.counters.set(self.ring.counters());
    }

    fn reap(&mut self, wait: bool) -> Option<Finished> {
        let finished = self.ring.reap(wait);
        self.counters.set(self.ring.counters());
        finished
    }

    fn register(&mut self, buffer: &mut Aligned) {
        self.ring.register(buffer);
    }

    fn list(&mut self, directory: &Path) -> Result<Vec<Listed>, DiskError> {
        self.ring.list(directory)
    }
}

/// A disk on which each step of a plan is a plan of its own, and goes when the one before it is
/// over. Plans overtake each other as before.
pub struct StepDisk<D> {
    inner: D,
    /// Whether each piece of a write is a write.
    is_piece_by_piece: bool,
    under_way: HashMap<u64, Parted>,
    next: u64,
    finished: VecDeque<Finished>,
}

/// A plan whose steps are carried out one by one.
struct Parted {
    tag: PlanTag,
    /// In reverse.
    to_do: Vec<Step>,
    done: Vec<Step>,
    /// How many of these each step of the plan was made of.
    pieces: Vec<usize>,
}

impl<D: Disk> StepDisk<D> {
    /// On top of another disk.
    pub fn new(inner: D) -> StepDisk<D> {
        StepDisk {
            inner,
            is_piece_by_piece: false,
            under_way: HashMap::new(),
            next: 0,
            finished: VecDeque::new(),
        }
    }

    /// From now on a write of n pieces is n writes.
    #[must_use]
    pub fn piece_by_piece(mut self) -> StepDisk<D> {
        self.is_piece_by_piece = true;
        self
    }

    fn start_next(&mut self, number: u64) {
        let parted = self.under_way.get_mut(&number).expect("it is under way");
        let step = parted.to_do.pop().expect("there is a next step");
        let tag = PlanTag { number, ..parted.tag };
        self.inner.submit(Plan { tag, steps: Steps::from_iter([step]) });
    }

    /// A step is over; so may be its plan.
    fn step_over(&mut self, finished: Finished) {
        let number = finished.plan.tag.number;
        let parted = self.under_way.get_mut(&number).expect("it is under way");
        parted.done.extend(finished.plan.steps);
        if finished.result.is_ok() && !parted.to_do.is_empty() {
            return self.start_next(number);
        }
        let parted = self.under_way.remove(&number).expect("it was there");
        self.finished.push_back(parted.whole(finished.result));
    }
}

impl Parted {
    fn new(plan: Plan, is_piece_by_piece: bool) -> Parted {
        let (mut to_do, mut pieces) = (Vec::new(), Vec::new());
        for step in plan.steps {
            let before = to_do.len();
            match step {
                Step::Write { file, at, parts } if is_piece_by_piece => {
                    split(&mut to_do, (file, at), parts);
                }
                step => to_do.push(step),
            }
            pieces.push(to_do.len() - before);
        }
        to_do.reverse();
        Parted { tag: plan.tag, to_do, done: Vec::new(), pieces }
    }

    /// The plan as it came, and what became of it.
    fn whole(mut self, result: Result<(), StepFailure>) -> Finished {
        let failed_at = self.done.len() - 1;
        let mut steps = self.done.into_iter().chain(std::iter::from_fn(|| self.to_do.pop()));
        let mut whole = Steps::new();
        let (mut begin, mut failed) = (0, 0);
        for (index, count) in self.pieces.iter().copied().enumerate() {
            if (begin..begin + count).contains(&failed_at) {
                failed = index;
            }
            begin += count;
            let mut first = steps.next().expect("each step has a piece");
            for _ in 1..count {
                join(&mut first, steps.next().expect("all pieces are there"));
            }
            whole.push(first);
        }
        let result = result.map_err(|failure| StepFailure { step: failed, ..failure });
        Finished { plan: Plan { tag: self.tag, steps: whole }, result }
    }
}

fn split(
    to_do: &mut Vec<Step>,
    (file, mut at): (FileId, Position),
    parts: uringlog::disk::plan::Parts,
) {
    for part in parts {
        let length = ByteCount(u64_of(part.len()));
        to_do.push(Step::Write { file, at, parts: [part].into_iter().collect() });
        at += length;
    }
}

fn join(first: &mut Step, next: Step) {
    let (Step::Write { parts, .. }, Step::Write { parts: more, .. }) = (first, next) else {
        unreachable!("only writes are split")
    };
    parts.extend(more);
}

impl<D: Disk> Disk for StepDisk<D> {
    fn submit(&mut self, plan: Plan) {
        let number = self.next;
        self.next += 1;
        self.under_way.insert(number, Parted::new(plan, self.is_piece_by_piece));
        self.start_next(number);
    }

    fn enter(&mut self) {
        self.inner.enter();
    }

    fn reap(&mut self, wait: bool) -> Option<Finished> {
        loop {
            let mut is_first = true;
            while let Some(finished) = self.inner.reap(false) {
                self.step_over(finished);
                is_first = false;
            }
            if !is_first {
                // The steps that follow go to the kernel together.
                self.inner.enter();
            }
            if let Some(finished) = self.finished.pop_front() {
                return Some(finished);
            }
            if !wait {
                return None;
            }
            let finished = self.inner.reap(true)?;
            self.step_over(finished);
            self.inner.enter();
        }
    }

    fn register(&mut self, buffer: &mut Aligned) {
        self.inner.register(buffer);
    }

    fn list(&mut self, directory: &Path) -> Result<Vec<Listed>, DiskError> {
        self.inner.list(directory)
    }
}

#[cfg(test)]
mod tests {
    use uringlog::disk::plain::PlainDisk;
    use uringlog::disk::{Lane, Place};

    use super::*;

    const FILE: FileId = FileId { owner: 1, number: 0 };

    fn plan(steps: Vec<Step>) -> Plan {
        let tag = PlanTag { owner: 1, lane: Lane::Append, number: 42 };
        Plan { tag, steps: Steps::from_vec(steps) }
    }

    fn write(file: FileId, parts: &[&'static str]) -> Step {
        let parts = parts.iter().map(|it| (*it).into()).collect();
        Step::Write { file, at: Position(0), parts }
    }

    #[test]
    fn plans_come_home_whole_and_failures_name_their_step() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = Place { directory: folder.path().into(), name: "f".into() };
        let mut disk = StepDisk::new(PlainDisk::new(4, None)).piece_by_piece();
        let steps = || {
            let create = Step::Create { file: FILE, place: place.clone() };
            vec![create, write(FILE, &["ab", "c", "de"]), Step::Sync { file: FILE }]
        };
        let done = disk.run(plan(steps()));
        assert_eq!((done.plan, done.result), (plan(steps()), Ok(())));
        assert_eq!(std::fs::read(folder.path().join("f")).expect("it is there"), b"abcde");
        let absent = FileId { owner: 1, number: 9 };
        let failing =
            || vec![write(FILE, &["x", "y"]), write(absent, &["z", "z"]), write(FILE, &["w"])];
        let done = disk.run(plan(failing()));
        assert_eq!(done.plan, plan(failing()));
        assert_eq!(done.result.expect_err("no such file").step, 1);
        assert!(disk.reap(true).is_none(), "nothing is under way");
    }
}
