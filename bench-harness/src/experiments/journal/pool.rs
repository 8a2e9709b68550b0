//! Plain files whose syncs run on a few threads: what a program without io_uring would do to have
//! many files synced at once.
//!
//! Everything but the syncs happens on the caller's thread, as on the plain-file disk. A plan that
//! comes to a sync goes to the pool, and goes on behind it when the sync is over: steps of one plan
//! stay in order, and plans overtake each other.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use uringlog::disk::plain::PlainDisk;
use uringlog::disk::plan::{Place, Steps};
use uringlog::disk::{
    Disk, DiskError, FileId, Finished, Lane, Listed, Plan, PlanTag, Step, StepFailure, errors,
};

use crate::experiments::{Doing, Failure};

/// Threads that sync.
pub const THREADS: usize = 8;

/// A plan of which a step is a sync, and that step's number.
struct Parked {
    plan: Plan,
    step: usize,
}

/// A sync that a thread is to make.
struct Job {
    parked: Parked,
    file: Result<Arc<File>, PathBuf>,
}

type Synced = (Parked, rustix::io::Result<()>);

/// A [`Disk`] on plain files and a pool of threads.
pub struct PoolDisk {
    plain: PlainDisk,
    /// Descriptors of their own for the pool's threads: the plain disk doesn't give its away.
    files: HashMap<FileId, Arc<File>>,
    jobs: Option<Sender<Job>>,
    synced: Receiver<Synced>,
    under_way: usize,
    finished: VecDeque<Finished>,
    threads: Vec<JoinHandle<()>>,
}

impl PoolDisk {
    /// A disk that keeps at most `files_max` files open. The threads may run where the caller may.
    pub fn new(files_max: usize) -> Result<PoolDisk, Failure> {
        let (jobs, taken) = mpsc::channel::<Job>();
        let (done, synced) = mpsc::channel();
        let taken = Arc::new(Mutex::new(taken));
        let spawn = |_| {
            let (taken, done) = (taken.clone(), done.clone());
            thread::Builder::new().name("sync".to_owned()).spawn(move || work(&taken, &done))
        };
        let threads: Result<Vec<_>, _> = (0..THREADS).map(spawn).collect();
        Ok(PoolDisk {
            plain: PlainDisk::new(files_max, None),
            files: HashMap::new(),
            jobs: Some(jobs),
            synced,
            under_way: 0,
            finished: VecDeque::new(),
            threads: threads.doing("start the threads that sync")?,
        })
    }

    /// Runs a plan from step `from` on, to its end or to its next sync.
    fn go_on(&mut self, mut plan: Plan, from: usize) {
        for step in from..plan.steps.len() {
            let file = match &plan.steps[step] {
                Step::Sync { file } => match self.files.get(file) {
                    Some(open) => Ok(open.clone()),
                    None => return self.fail(plan, step, errors::not_open()),
                },
                Step::SyncDirectory { directory } => Err(directory.to_path_buf()),
                _ => match self.one(&mut plan, step) {
                    Ok(()) => continue,
                    Err(failure) => {
                        let failure = StepFailure { step, ..failure };
                        return self.finished.push_back(Finished { plan, result: Err(failure) });
                    }
                },
            };
            let job = Job { parked: Parked { plan, step }, file };
            let jobs = self.jobs.as_ref().expect("the pool lives as long as the disk");
            jobs.send(job).expect("its threads wait for jobs");
            self.under_way += 1;
            return;
        }
        self.finished.push_back(Finished { plan, result: Ok(()) });
    }

    fn fail(&mut self, plan: Plan, step: usize, error: DiskError) {
        let failure = StepFailure { step, partial: false, error };
        self.finished.push_back(Finished { plan, result: Err(failure) });
    }

    /// One step, as the plain-file disk carries it out.
    fn one(&mut self, plan: &mut Plan, step: usize) -> Result<(), StepFailure> {
        let opened = match &plan.steps[step] {
            Step::Create { file, place }
            | Step::Open { file, place }
            | Step::OpenDirect { file, place } => Some((*file, path_of(place))),
            Step::Close { file } => {
                self.files.remove(file);
                None
            }
            _ => None,
        };
        let nothing = Step::Close { file: FileId { owner: u32::MAX, number: u32::MAX } };
        let taken = std::mem::replace(&mut plan.steps[step], nothing);
        let tag = PlanTag { owner: plan.tag.owner, lane: Lane::Append, number: 0 };
        let mut done = self.plain.run(Plan { tag, steps: Steps::from_iter([taken]) });
        plan.steps[step] = done.plan.steps.pop().expect("it comes home");
        if let (Ok(()), Some((file, path))) = (done.result, opened)
            && let Ok(open) = File::options().read(true).write(true).open(path)
        {
            self.files.insert(file, Arc::new(open));
        }
        done.result
    }

    fn take_synced(&mut self, (parked, result): Synced) {
        self.under_way -= 1;
        let Parked { plan, step } = parked;
        match result {
            Ok(()) => self.go_on(plan, step + 1),
            Err(errno) => self.fail(plan, step, errors::classify(errno.raw_os_error())),
        }
    }
}

fn path_of(place: &Place) -> PathBuf {
    place.directory.join(&*place.name)
}

/// What a thread of the pool does until the disk is dropped.
fn work(jobs: &Mutex<Receiver<Job>>, done: &Sender<Synced>) {
    loop {
        let job = jobs.lock().expect("no thread panics with it").recv();
        let Ok(Job { parked, file }) = job else { return };
        let result = match file {
            Ok(file) => rustix::fs::fdatasync(file.as_fd()),
            Err(directory) => sync_directory(&directory),
        };
        if done.send((parked, result)).is_err() {
            return;
        }
    }
}

fn sync_directory(directory: &Path) -> rustix::io::Result<()> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    let descriptor = rustix::fs::open(directory, flags, rustix::fs::Mode::empty())?;
    rustix::fs::fsync(descriptor)
}

impl Disk for PoolDisk {
    fn submit(&mut self, plan: Plan) {
        self.go_on(plan, 0);
    }

    /// Does nothing: what isn't a sync runs when it is submitted.
    fn enter(&mut self) {}

    fn reap(&mut self, wait: bool) -> Option<Finished> {
        loop {
            while let Ok(synced) = self.synced.try_recv() {
                self.take_synced(synced);
            }
            if let Some(finished) = self.finished.pop_front() {
                return Some(finished);
            }
            if !wait || self.under_way == 0 {
                return None;
            }
            let synced = self.synced.recv().expect("the threads live as long as the disk");
            self.take_synced(synced);
        }
    }

    fn list(&mut self, directory: &Path) -> Result<Vec<Listed>, DiskError> {
        self.plain.list(directory)
    }
}

impl Drop for PoolDisk {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use uringlog::units::Position;

    use super::*;

    const FILE: FileId = FileId { owner: 1, number: 0 };

    fn plan(number: u64, steps: Vec<Step>) -> Plan {
        let tag = PlanTag { owner: 1, lane: Lane::Append, number };
        Plan { tag, steps: Steps::from_vec(steps) }
    }

    #[test]
    fn steps_behind_a_sync_follow_it_and_failures_end_the_plan() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = |name: &str| Place { directory: folder.path().into(), name: name.into() };
        let write = |at, text: &'static str| Step::Write {
            file: FILE,
            at,
            parts: [text.into()].into_iter().collect(),
        };
        let mut disk = PoolDisk::new(4).expect("threads");
        let done = disk.run(plan(
            7,
            vec![
                Step::Create { file: FILE, place: place("f") },
                write(Position(0), "ab"),
                Step::Sync { file: FILE },
                write(Position(2), "c"),
                Step::SyncDirectory { directory: folder.path().into() },
            ],
        ));
        assert_eq!((done.result, done.plan.steps.len(), done.plan.tag.number), (Ok(()), 5, 7));
        assert_eq!(std::fs::read(folder.path().join("f")).expect("it is there"), b"abc");
        let absent = FileId { owner: 1, number: 9 };
        let done = disk.run(plan(8, vec![Step::Sync { file: FILE }, Step::Sync { file: absent }]));
        assert_eq!(done.result.expect_err("no such file").step, 1);
        assert!(disk.reap(true).is_none(), "nothing is under way");
    }
}
