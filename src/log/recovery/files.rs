//! Straight-line file work over the [`Disk`] trait: recovery reads before it decides, and blocks.

use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::report::OpenError;
use crate::disk::plan::{Parts, Steps};
use crate::disk::{Disk, FileId, Lane, Listed, Place, Plan, PlanTag, Step};
use crate::log::housekeeping::replace_steps;
use crate::units::{ByteCount, Position, usize_of};

/// The files of one partition directory.
pub(in crate::log) struct Files<'a> {
    pub disk: &'a mut dyn Disk,
    pub directory: Arc<Path>,
    pub owner: u32,
    /// How many [`FileId`]s were given.
    pub count: u32,
    /// Files that are open, to be closed when recovery fails.
    pub open: Vec<FileId>,
    /// Whether a sync has failed: what the page cache holds may never reach the device.
    pub has_failed_sync: bool,
}

impl<'a> Files<'a> {
    /// No file is open yet. `owner` is a number that nobody else has on this disk.
    pub fn new(disk: &'a mut dyn Disk, directory: Arc<Path>, owner: u32) -> Files<'a> {
        let open = Vec::new();
        Files { disk, directory, owner, count: 0, open, has_failed_sync: false }
    }
}

impl Files<'_> {
    pub fn new_file(&mut self) -> FileId {
        let number = self.count;
        self.count = number.checked_add(1).expect("a log opens fewer than 2^32 files");
        FileId { owner: self.owner, number }
    }

    pub fn place(&self, name: &str) -> Place {
        Place { directory: self.directory.clone(), name: name.into() }
    }

    /// Runs steps to their end.
    pub fn run(&mut self, steps: Steps) -> Result<Plan, OpenError> {
        let tag = PlanTag { owner: self.owner, lane: Lane::Housekeeping, number: 0 };
        let finished = self.disk.run(Plan { tag, steps });
        let done = finished.result.map_or_else(|it| it.step, |()| finished.plan.steps.len());
        for step in &finished.plan.steps[..done] {
            match step {
                Step::Create { file, .. } | Step::Open { file, .. } => self.open.push(*file),
                Step::Close { file } => self.open.retain(|it| it != file),
                _ => {}
            }
        }
        match finished.result {
            Ok(()) => Ok(finished.plan),
            Err(failure) => {
                let step = &finished.plan.steps[failure.step];
                let is_sync = matches!(step, Step::Sync { .. } | Step::SyncDirectory { .. });
                self.has_failed_sync |= is_sync;
                let what = describe(step);
                Err(OpenError::Disk { what, error: failure.error })
            }
        }
    }

    pub fn step(&mut self, step: Step) -> Result<(), OpenError> {
        self.run(Steps::from_iter([step])).map(drop)
    }

    pub fn list(&mut self) -> Result<Vec<Listed>, OpenError> {
        let directory = self.directory.clone();
        self.disk.list(&directory).map_err(|error| OpenError::Disk {
            what: format!("list {}", directory.display()),
            error,
        })
    }

    pub fn open(&mut self, name: &str) -> Result<FileId, OpenError> {
        let (file, place) = (self.new_file(), self.place(name));
        self.step(Step::Open { file, place })?;
        Ok(file)
    }

    pub fn create(&mut self, name: &str) -> Result<FileId, OpenError> {
        let (file, place) = (self.new_file(), self.place(name));
        self.step(Step::Create { file, place })?;
        Ok(file)
    }

    pub fn close(&mut self, file: FileId) -> Result<(), OpenError> {
        self.step(Step::Close { file })
    }

    /// Fills `buffer`, whose length says how much, from `at` on.
    pub fn read(
        &mut self,
        file: FileId,
        at: Position,
        buffer: BytesMut,
    ) -> Result<BytesMut, OpenError> {
        let mut plan = self.run(Steps::from_iter([Step::Read { file, at, bytes: buffer }]))?;
        let Some(Step::Read { bytes, .. }) = plan.steps.pop() else {
            unreachable!("the plan comes back as it went")
        };
        Ok(bytes)
    }

    /// The bytes of a named file from `at` on.
    pub fn read_range(&mut self, name: &str, at: u64, length: u64) -> Result<BytesMut, OpenError> {
        if length == 0 {
            return Ok(BytesMut::new());
        }
        let (file, place) = (self.new_file(), self.place(name));
        let bytes = BytesMut::zeroed(usize_of(length));
        let mut plan = self.run(Steps::from_iter([
            Step::Open { file, place },
            Step::Read { file, at: Position(at), bytes },
            Step::Close { file },
        ]))?;
        let Step::Read { bytes, .. } = plan.steps.swap_remove(1) else {
            unreachable!("the plan comes back as it went")
        };
        Ok(bytes)
    }

    pub fn write(&mut self, file: FileId, at: Position, bytes: Bytes) -> Result<(), OpenError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.step(Step::Write { file, at, parts: Parts::from_iter([bytes]) })
    }

    /// Makes a named file of this length durable, and lets later reads show what the device has of
    /// it. After a failed sync the page cache shows more, and the next one says that all is well:
    /// it finds nothing to write.
    ///
    /// The length is set anew. It isn't in the page cache, so no read shows that the failed sync
    /// has lost it: what was cut off would be there again after a power cut.
    ///
    /// Direct reads would not depend on what the kernel drops, but not every file system has them,
    /// and all reads here would need aligned buffers.
    pub fn forget(&mut self, name: &str, length: ByteCount) -> Result<(), OpenError> {
        let (file, place) = (self.new_file(), self.place(name));
        // The sync comes first: what is dirty isn't dropped.
        let steps = [
            Step::Open { file, place },
            Step::Truncate { file, length },
            Step::Sync { file },
            Step::Forget { file },
            Step::Close { file },
        ];
        self.run(Steps::from_iter(steps)).map(drop)
    }

    /// Closes everything; for when recovery fails. A disk that is gone can't do that either.
    pub fn abandon(&mut self) {
        for file in std::mem::take(&mut self.open) {
            let _ = self.close(file);
        }
    }

    /// Replaces a small file in one go.
    pub fn replace(&mut self, name: &str, text: Vec<u8>) -> Result<(), OpenError> {
        let file = self.new_file();
        let steps = replace_steps(file, &self.directory.clone(), name, text);
        self.run(steps).map(drop)
    }

    pub fn remove(&mut self, name: &str) -> Result<(), OpenError> {
        let place = self.place(name);
        self.step(Step::Remove { place })
    }

    pub fn rename(&mut self, from: &str, to: &str) -> Result<(), OpenError> {
        let (from, to) = (self.place(from), self.place(to));
        self.step(Step::Rename { from, to })
    }

    pub fn sync_directory(&mut self) -> Result<(), OpenError> {
        let directory = self.directory.clone();
        self.step(Step::SyncDirectory { directory })
    }

    /// Cuts an open file, durably.
    pub fn truncate(&mut self, file: FileId, length: ByteCount) -> Result<(), OpenError> {
        let steps = [Step::Truncate { file, length }, Step::Sync { file }];
        self.run(Steps::from_iter(steps)).map(drop)
    }

    /// Copies `[from, to)` of an open file to a new file, durably but for its name. Whatever stood
    /// under that name is overwritten.
    pub fn copy(
        &mut self,
        source: FileId,
        from: Position,
        to: Position,
        name: &str,
    ) -> Result<(), OpenError> {
        let target = self.create(name)?;
        self.step(Step::Truncate { file: target, length: ByteCount(0) })?;
        let mut at = from;
        while at < to {
            let length = (to - at).0.min(COPY_BYTES);
            let bytes = self.read(source, at, BytesMut::zeroed(usize_of(length)))?;
            self.write(target, Position((at - from).0), bytes.freeze())?;
            at += ByteCount(length);
        }
        self.run(Steps::from_iter([Step::Sync { file: target }, Step::Close { file: target }]))
            .map(drop)
    }
}

const COPY_BYTES: u64 = 1 << 20;

fn describe(step: &Step) -> String {
    match step {
        Step::CreateDirectory { place } => format!("create directory {}", place.name),
        Step::Create { place, .. } => format!("create {}", place.name),
        Step::Open { place, .. } => format!("open {}", place.name),
        Step::OpenDirect { place, .. } => format!("open {} for direct writing", place.name),
        Step::Allocate { length, .. } => format!("extend a file to {length} bytes"),
        Step::Write { at, .. } => format!("write at {at}"),
        Step::WriteDurable { at, .. } => format!("write durably at {at}"),
        Step::Read { at, .. } => format!("read at {at}"),
        Step::Truncate { length, .. } => format!("truncate a file to {length} bytes"),
        Step::Sync { .. } => "sync a file".to_owned(),
        Step::Forget { .. } => "drop a file from the page cache".to_owned(),
        Step::SetModified { place, .. } => format!("set the time of {}", place.name),
        Step::Rename { from, to } => format!("rename {} to {}", from.name, to.name),
        Step::Remove { place } => format!("remove {}", place.name),
        Step::RemoveDirectory { place } => format!("remove directory {}", place.name),
        Step::SyncDirectory { directory } => format!("sync directory {}", directory.display()),
        Step::Close { .. } => "close a file".to_owned(),
    }
}
