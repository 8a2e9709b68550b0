//! The disk under a shard: the ring, or plain files.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use crate::disk::plain::PlainDisk;
use crate::disk::{Aligned, Disk, DiskError, Finished, Lane, Listed, Plan};
use crate::ring::RingDisk;

/// Which engine runs the plans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// io_uring: a plan is one chain of linked entries.
    Ring,
    /// System calls on the shard's thread: what the reports compare with, and the fallback.
    PlainFile,
}

impl EngineKind {
    /// As `--engine` and the start lines name it.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Ring => "uring",
            EngineKind::PlainFile => "plain-file",
        }
    }
}

/// The disk of one shard.
pub enum Storage {
    /// The ring.
    Ring(Box<RingDisk>),
    /// Plain files.
    Plain(Box<PlainDisk>),
}

impl Storage {
    /// What becomes readable when the ring has completions; plain files are done when submitted.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn completions(&self) -> io::Result<Option<OwnedFd>> {
        match self {
            Storage::Ring(ring) => {
                let descriptor: BorrowedFd<'_> = ring.descriptor();
                Ok(Some(descriptor.try_clone_to_owned()?))
            }
            Storage::Plain(_) => Ok(None),
        }
    }

    /// The ring, when this is one and splices are to be had.
    pub fn ring(&mut self) -> Option<&mut RingDisk> {
        match self {
            Storage::Ring(ring) => Some(ring),
            Storage::Plain(_) => None,
        }
    }
}

impl Disk for Storage {
    fn submit(&mut self, plan: Plan) {
        match self {
            Storage::Ring(ring) => ring.submit(plan),
            Storage::Plain(plain) => plain.submit(plan),
        }
    }

    fn enter(&mut self) {
        match self {
            Storage::Ring(ring) => ring.enter(),
            Storage::Plain(plain) => plain.enter(),
        }
    }

    fn reap(&mut self, wait: bool) -> Option<Finished> {
        match self {
            Storage::Ring(ring) => ring.reap(wait),
            Storage::Plain(plain) => plain.reap(wait),
        }
    }

    fn register(&mut self, buffer: &mut Aligned) {
        match self {
            Storage::Ring(ring) => ring.register(buffer),
            Storage::Plain(plain) => plain.register(buffer),
        }
    }

    fn list(&mut self, directory: &Path) -> Result<Vec<Listed>, DiskError> {
        match self {
            Storage::Ring(ring) => ring.list(directory),
            Storage::Plain(plain) => plain.list(directory),
        }
    }
}

/// The disk as straight-line code uses it (opening a log, recovering one) while plans of other
/// logs, and reads of the same one, are under way: those are kept aside when they finish, for the
/// engine to complete.
pub struct Aside<'a> {
    storage: &'a mut Storage,
    aside: &'a mut Vec<Finished>,
    owner: u32,
    _not_send: std::marker::PhantomData<Rc<()>>,
}

impl<'a> Aside<'a> {
    /// Lends `storage` to the log numbered `owner`; whatever else finishes goes to `aside`.
    pub fn new(storage: &'a mut Storage, aside: &'a mut Vec<Finished>, owner: u32) -> Aside<'a> {
        Aside { storage, aside, owner, _not_send: std::marker::PhantomData }
    }
}

impl Disk for Aside<'_> {
    fn submit(&mut self, plan: Plan) {
        assert!(plan.tag.owner == self.owner);
        self.storage.submit(plan);
    }

    fn enter(&mut self) {
        self.storage.enter();
    }

    fn reap(&mut self, wait: bool) -> Option<Finished> {
        loop {
            let finished = self.storage.reap(wait)?;
            let tag = finished.plan.tag;
            if tag.owner == self.owner && tag.lane != Lane::Read {
                return Some(finished);
            }
            self.aside.push(finished);
        }
    }

    fn register(&mut self, buffer: &mut Aligned) {
        self.storage.register(buffer);
    }

    fn list(&mut self, directory: &Path) -> Result<Vec<Listed>, DiskError> {
        self.storage.list(directory)
    }
}
