//! The plain-file disk: a loop over the steps, one system call each.
//!
//! It is what the reports compare the ring with, and what serves where io_uring is refused. A plan
//! runs to its end inside [`Disk::submit`], so [`Disk::reap`] only hands out what is over. The
//! exception is a plan whose sync a [`FaultHook`] holds: it is parked, and goes on at a later
//! [`Disk::reap`] (see [`PlainDisk::is_holding`]).

use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::{Errno, ReadWriteFlags};
use smallvec::SmallVec;

use crate::disk::aligned::{check_alignment, whole_blocks};
use crate::disk::errors;
use crate::disk::faults::{FaultHook, SyncFault, WriteFault};
use crate::disk::plan::{
    Disk, DiskError, FileId, Finished, Listed, Parts, Place, Plan, Step, StepFailure,
};
use crate::units::{ByteCount, Position, byte_count, u64_of, usize_of};

/// Most buffers that one `pwritev` takes (`IOV_MAX`).
pub const WRITE_PARTS_MAX: usize = 1024;

/// How often a held plan is looked at while [`Disk::reap`] waits for nothing else.
const HELD_POLL: Duration = Duration::from_millis(1);

/// Permissions of new files, before the umask.
pub const FILE_MODE: u32 = 0o644;

/// Permissions of new directories, before the umask.
pub const DIRECTORY_MODE: u32 = 0o755;

/// Runs plans with ordinary system calls.
#[derive(Debug)]
pub struct PlainDisk {
    files: HashMap<FileId, OwnedFd>,
    /// Never more entries in `files` than this.
    files_max: usize,
    finished: VecDeque<Finished>,
    /// Plans whose next step is a sync that the fault hook holds, and that step's number.
    held: Vec<(Plan, usize)>,
    faults: Option<FaultHook>,
}

/// What to do after one step.
enum After {
    Next,
    Park,
    Fail { done: u64, error: DiskError },
}

impl PlainDisk {
    /// A disk that keeps at most `files_max` files open; one more fails with
    /// [`DiskError::TooManyFiles`].
    pub fn new(files_max: usize, faults: Option<FaultHook>) -> PlainDisk {
        assert!(0 < files_max, "a disk without files is of no use");
        PlainDisk {
            files: HashMap::new(),
            files_max,
            finished: VecDeque::new(),
            held: Vec::new(),
            faults,
        }
    }

    /// Whether a plan waits for the fault hook. Its owner must then call [`Disk::reap`] from time
    /// to time; without faults this is never so.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// How many files are open.
    pub fn files_open(&self) -> usize {
        self.files.len()
    }

    /// Runs `plan` from step `from` on; `resumed` says that the fault hook has let that one go.
    fn run_from(&mut self, mut plan: Plan, from: usize, mut resumed: bool) {
        for index in from..plan.steps.len() {
            let after = self.guarded(&mut plan.steps[index], resumed);
            resumed = false;
            match after {
                After::Next => {}
                After::Park => return self.park(plan, index),
                After::Fail { done, error } => {
                    let failure = errors::failure(index, &plan.steps[index], done, error);
                    return self.finish(plan, Err(failure));
                }
            }
        }
        self.finish(plan, Ok(()));
    }

    fn park(&mut self, plan: Plan, index: usize) {
        self.faults.as_ref().expect("only a fault hook parks plans").sync_waits();
        self.held.push((plan, index));
    }

    fn finish(&mut self, plan: Plan, result: Result<(), StepFailure>) {
        self.finished.push_back(Finished { plan, result });
    }

    /// Resumes the held plans when the hook lets them go.
    fn resume_held(&mut self) {
        let Some(faults) = self.faults.clone() else { return };
        if faults.is_holding() {
            return;
        }
        for (plan, index) in std::mem::take(&mut self.held) {
            faults.sync_goes_on();
            self.run_from(plan, index, true);
        }
    }

    /// One step, after the fault hook was asked about it.
    fn guarded(&mut self, step: &mut Step, resumed: bool) -> After {
        let Some(faults) = self.faults.clone() else { return self.step(step) };
        let syncs = matches!(step, Step::Sync { .. } | Step::WriteDurable { .. });
        if syncs && !resumed {
            match faults.before_sync() {
                SyncFault::None => {}
                SyncFault::Hold => return After::Park,
                SyncFault::Fail(errno) => {
                    return After::Fail { done: 0, error: errors::classify(errno) };
                }
                SyncFault::Delay(by) => std::thread::sleep(by),
            }
        }
        let writes = matches!(step, Step::Write { .. } | Step::WriteDurable { .. });
        match if writes { faults.before_write() } else { WriteFault::None } {
            WriteFault::None => self.step(step),
            WriteFault::Short { bytes, errno } => self.short_write(step, bytes, errno),
        }
    }

    /// Writes `bytes_max` bytes at most, and then fails.
    fn short_write(&mut self, step: &Step, bytes_max: u64, errno: i32) -> After {
        let (written, bytes) = match step {
            Step::Write { file, at, parts } => {
                (self.write(*file, *at, parts, bytes_max), parts_bytes(parts).min(bytes_max))
            }
            Step::WriteDurable { file, at, buffer } => {
                let bytes = whole_blocks(bytes_max.min(u64_of(buffer.length())));
                (self.write_durable((*file, *at), &buffer.bytes()[..usize_of(bytes)]), bytes)
            }
            _ => unreachable!("only writes are cut"),
        };
        match written {
            Ok(()) => After::Fail { done: bytes, error: errors::classify(errno) },
            Err((done, error)) => After::Fail { done, error },
        }
    }

    fn step(&mut self, step: &mut Step) -> After {
        let mut retries = 0;
        loop {
            match self.attempt(step) {
                Ok(()) => return After::Next,
                Err((done, error)) if errors::is_retried(step, done, error, retries) => {
                    retries += 1;
                }
                Err((done, error)) => return After::Fail { done, error },
            }
        }
    }

    /// Carries a step out; a failure says how many bytes of it were carried out before.
    fn attempt(&mut self, step: &mut Step) -> Result<(), (u64, DiskError)> {
        match step {
            Step::Write { file, at, parts } => self.write(*file, *at, parts, u64::MAX),
            Step::WriteDurable { file, at, buffer } => {
                self.write_durable((*file, *at), buffer.bytes())
            }
            Step::Read { file, at, bytes } => self.read(*file, *at, bytes),
            _ => self.attempt_whole(step).map_err(|error| (0, error)),
        }
    }

    /// Steps that happen as a whole or not at all.
    fn attempt_whole(&mut self, step: &Step) -> Result<(), DiskError> {
        match step {
            Step::Create { file, place } => self.open(*file, place, OFlags::CREATE),
            Step::Open { file, place } => self.open(*file, place, OFlags::empty()),
            Step::OpenDirect { file, place } => self.open(*file, place, OFlags::DIRECT),
            Step::Close { file } => self.close(*file),
            Step::Allocate { file, length } | Step::Truncate { file, length } => {
                outcome(step, rustix::fs::ftruncate(self.file(*file)?, length.0))
            }
            Step::Sync { file } => outcome(step, rustix::fs::fdatasync(self.file(*file)?)),
            Step::Forget { file } => {
                let (file, advice) = (self.file(*file)?, rustix::fs::Advice::DontNeed);
                outcome(step, rustix::fs::fadvise(file, 0, None, advice))
            }
            Step::CreateDirectory { place } => {
                outcome(step, rustix::fs::mkdir(path_of(place), Mode::from(DIRECTORY_MODE)))
            }
            Step::Rename { from, to } => {
                outcome(step, rustix::fs::rename(path_of(from), path_of(to)))
            }
            Step::SetModified { place, modified_ms } => {
                outcome(step, set_modified(&path_of(place), *modified_ms))
            }
            Step::Remove { place } => outcome(step, rustix::fs::unlink(path_of(place))),
            Step::RemoveDirectory { place } => outcome(step, rustix::fs::rmdir(path_of(place))),
            Step::SyncDirectory { directory } => outcome(step, sync_directory(directory)),
            Step::Write { .. } | Step::WriteDurable { .. } | Step::Read { .. } => {
                unreachable!("these may be done in part")
            }
        }
    }

    fn file(&self, file: FileId) -> Result<&OwnedFd, DiskError> {
        self.files.get(&file).ok_or_else(errors::not_open)
    }

    fn open(&mut self, file: FileId, place: &Place, more: OFlags) -> Result<(), DiskError> {
        assert!(!self.files.contains_key(&file), "a file's number is given once");
        if self.files_max <= self.files.len() {
            return Err(errors::table_full());
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | more;
        let opened = rustix::fs::open(path_of(place), flags, Mode::from(FILE_MODE));
        let descriptor = opened.map_err(|errno| errors::classify(errno.raw_os_error()))?;
        self.files.insert(file, descriptor);
        Ok(())
    }

    fn close(&mut self, file: FileId) -> Result<(), DiskError> {
        self.files.remove(&file).map(drop).ok_or_else(errors::not_open)
    }

    /// Writes the first `bytes_max` bytes of `parts`, going on after short writes.
    fn write(
        &self,
        file: FileId,
        at: Position,
        parts: &Parts,
        bytes_max: u64,
    ) -> Result<(), (u64, DiskError)> {
        let descriptor = self.file(file).map_err(|error| (0, error))?;
        let total = parts_bytes(parts).min(bytes_max);
        let mut done = 0;
        while done < total {
            let slices = slices_from(parts, done, total - done);
            match rustix::io::pwritev(descriptor, &slices, (at + ByteCount(done)).0) {
                Ok(0) => return Err((done, errors::input_output())),
                Ok(written) => done += u64_of(written),
                // Bytes were written before, so the step as a whole can't be tried again.
                Err(Errno::INTR) if done != 0 => {}
                Err(errno) => return Err((done, errors::classify(errno.raw_os_error()))),
            }
        }
        Ok(())
    }

    /// Overwrites `bytes` at a place, durably. A short write goes on at the last whole block, which
    /// direct I/O can only write as a whole; an error ends it, whatever was written before.
    fn write_durable(
        &self,
        (file, at): (FileId, Position),
        bytes: &[u8],
    ) -> Result<(), (u64, DiskError)> {
        let descriptor = self.file(file).map_err(|error| (0, error))?;
        check_alignment(at).map_err(|error| (0, error))?;
        let (mut done, mut stalls) = (0, 0);
        while done < bytes.len() {
            let from = (at + byte_count(done)).0;
            let rest = [IoSlice::new(&bytes[done..])];
            match rustix::io::pwritev2(descriptor, &rest, from, ReadWriteFlags::DSYNC) {
                Ok(written) => {
                    let blocks = usize_of(whole_blocks(u64_of(written)));
                    done += blocks;
                    stalls += u32::from(blocks == 0);
                }
                Err(errno) => {
                    return Err((u64_of(done), errors::classify(errno.raw_os_error())));
                }
            }
            if errors::TRANSIENT_RETRIES_MAX < stalls {
                return Err((u64_of(done), errors::input_output()));
            }
        }
        Ok(())
    }

    fn read(&self, file: FileId, at: Position, bytes: &mut [u8]) -> Result<(), (u64, DiskError)> {
        let descriptor = self.file(file).map_err(|error| (0, error))?;
        let mut done = 0;
        while done < bytes.len() {
            let from = (at + ByteCount(u64_of(done))).0;
            match rustix::io::pread(descriptor, &mut bytes[done..], from) {
                Ok(0) => return Err((u64_of(done), DiskError::UnexpectedEnd)),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err((u64_of(done), errors::classify(errno.raw_os_error())));
                }
            }
        }
        Ok(())
    }
}

impl Disk for PlainDisk {
    fn submit(&mut self, plan: Plan) {
        assert!(!plan.steps.is_empty(), "a plan has at least one step");
        self.run_from(plan, 0, false);
    }

    /// Does nothing: plans run when they are submitted.
    fn enter(&mut self) {}

    fn reap(&mut self, wait: bool) -> Option<Finished> {
        loop {
            self.resume_held();
            let finished = self.finished.pop_front();
            if finished.is_some() || !wait || self.held.is_empty() {
                return finished;
            }
            std::thread::sleep(HELD_POLL);
        }
    }

    fn list(&mut self, directory: &Path) -> Result<Vec<Listed>, DiskError> {
        list_directory(directory)
    }
}

/// A place as the path that system calls take.
pub fn path_of(place: &Place) -> PathBuf {
    place.directory.join(&*place.name)
}

/// How many bytes a write writes.
pub fn parts_bytes(parts: &Parts) -> u64 {
    parts.iter().map(|part| u64_of(part.len())).sum()
}

/// The entries of a directory, sorted by name: blocks. Shared with the ring disk.
///
/// # Errors
/// As [`Disk::list`].
pub fn list_directory(directory: &Path) -> Result<Vec<Listed>, DiskError> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|error| of_std(&error))? {
        let entry = entry.map_err(|error| of_std(&error))?;
        let metadata = entry.metadata().map_err(|error| of_std(&error))?;
        let is_directory = metadata.is_dir();
        entries.push(Listed {
            name: entry.file_name().to_string_lossy().into_owned(),
            length: ByteCount(if is_directory { 0 } else { metadata.len() }),
            is_directory,
            modified_ms: metadata.mtime() * 1000 + metadata.mtime_nsec() / 1_000_000,
        });
    }
    entries.sort();
    Ok(entries)
}

/// Opens a directory, makes its names durable, closes it.
fn sync_directory(directory: &Path) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let descriptor = rustix::fs::open(directory, flags, Mode::empty())?;
    rustix::fs::fsync(descriptor)
}

/// Sets a file's time of modification; that of access stays.
pub fn set_modified(path: &Path, modified_ms: i64) -> rustix::io::Result<()> {
    const MS_PER_SECOND: i64 = 1_000;
    const NS_PER_MS: i64 = 1_000_000;
    let last_modification = Timespec {
        tv_sec: modified_ms.div_euclid(MS_PER_SECOND),
        tv_nsec: modified_ms.rem_euclid(MS_PER_SECOND) * NS_PER_MS,
    };
    let last_access = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let times = Timestamps { last_access, last_modification };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, AtFlags::empty())
}

fn outcome(step: &Step, result: rustix::io::Result<()>) -> Result<(), DiskError> {
    match result {
        Err(errno) if !errors::is_fine(step, errno.raw_os_error()) => {
            Err(errors::classify(errno.raw_os_error()))
        }
        _ => Ok(()),
    }
}

fn of_std(error: &std::io::Error) -> DiskError {
    error.raw_os_error().map_or(errors::input_output(), errors::classify)
}

/// The next `bytes` bytes of `parts` after the first `done`, in pieces that one call takes.
fn slices_from(parts: &Parts, done: u64, bytes: u64) -> SmallVec<[IoSlice<'_>; 8]> {
    let mut slices = SmallVec::new();
    let (mut skip, mut left) = (usize_of(done), usize_of(bytes));
    for part in parts {
        let piece = &part[skip.min(part.len())..];
        skip -= part.len() - piece.len();
        let piece = &piece[..left.min(piece.len())];
        left -= piece.len();
        if !piece.is_empty() {
            slices.push(IoSlice::new(piece));
        }
        if left == 0 || slices.len() == WRITE_PARTS_MAX {
            break;
        }
    }
    slices
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::{Bytes, BytesMut};
    use smallvec::smallvec;

    use super::*;
    use crate::disk::plan::{Lane, PlanTag};

    const FILE: FileId = FileId { owner: 1, number: 7 };

    fn plan(steps: Vec<Step>) -> Plan {
        Plan { tag: PlanTag { owner: 1, lane: Lane::Append, number: 0 }, steps: steps.into() }
    }

    fn place(directory: &tempfile::TempDir, name: &str) -> Place {
        Place { directory: Arc::from(directory.path()), name: name.into() }
    }

    fn write(at: u64, parts: Parts) -> Step {
        Step::Write { file: FILE, at: Position(at), parts }
    }

    #[test]
    fn a_plan_is_carried_out_and_its_reads_come_home() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut disk = PlainDisk::new(4, None);
        let parts: Parts = smallvec![Bytes::from_static(b"ab"), Bytes::new(), "cde".into()];
        let finished = disk.run(plan(vec![
            Step::Create { file: FILE, place: place(&directory, "f") },
            write(1, parts),
            Step::Read { file: FILE, at: Position(0), bytes: BytesMut::zeroed(6) },
        ]));
        assert_eq!(finished.result, Ok(()));
        let Step::Read { bytes, .. } = &finished.plan.steps[2] else { panic!("a read") };
        assert_eq!(&bytes[..], b"\0abcde");
        let listed = disk.list(directory.path()).expect("it exists");
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].name.as_str(), listed[0].length), ("f", ByteCount(6)));
    }

    #[test]
    fn a_read_beyond_the_end_fails() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut disk = PlainDisk::new(4, None);
        let finished = disk.run(plan(vec![
            Step::Create { file: FILE, place: place(&directory, "f") },
            write(0, smallvec![Bytes::from_static(b"abc")]),
            Step::Read { file: FILE, at: Position(1), bytes: BytesMut::zeroed(3) },
            Step::Close { file: FILE },
        ]));
        let failure = StepFailure { step: 2, partial: false, error: DiskError::UnexpectedEnd };
        assert_eq!(finished.result, Err(failure));
        assert_eq!(disk.files_open(), 1, "the steps behind the failure never ran");
    }

    #[test]
    fn the_file_table_is_bounded() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut disk = PlainDisk::new(1, None);
        let other = FileId { owner: 1, number: 8 };
        let finished = disk.run(plan(vec![
            Step::Create { file: FILE, place: place(&directory, "f") },
            Step::Create { file: other, place: place(&directory, "g") },
        ]));
        let failure = StepFailure { step: 1, partial: false, error: errors::table_full() };
        assert_eq!(finished.result, Err(failure));
    }

    #[test]
    fn a_held_sync_parks_its_plan_only() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let hook = FaultHook::new();
        let mut disk = PlainDisk::new(4, Some(hook.clone()));
        hook.hold_syncs();
        disk.submit(plan(vec![
            Step::Create { file: FILE, place: place(&directory, "f") },
            Step::Sync { file: FILE },
            Step::Close { file: FILE },
        ]));
        assert!(disk.reap(false).is_none());
        assert_eq!(hook.syncs_waiting(), 1);
        let other = disk.run(plan(vec![Step::Remove { place: place(&directory, "absent") }]));
        assert_eq!(other.result, Ok(()));
        hook.release_syncs();
        assert_eq!(disk.reap(true).expect("it was let go").result, Ok(()));
        assert_eq!((hook.syncs_waiting(), disk.files_open()), (0, 0));
    }

    #[test]
    fn slices_skip_what_is_done_and_stop_at_the_limit() {
        let parts: Parts = smallvec!["abc".into(), Bytes::new(), "de".into(), "fgh".into()];
        let check = |done, bytes, expected: &[&[u8]]| {
            let slices = slices_from(&parts, done, bytes);
            let got: Vec<&[u8]> = slices.iter().map(|slice| &slice[..]).collect();
            assert_eq!(got, expected);
        };
        check(0, 8, &[b"abc", b"de", b"fgh"]);
        check(4, 4, &[b"e", b"fgh"]);
        check(3, 1, &[b"d"]);
        check(1, 1, &[b"b"]);
    }
}
