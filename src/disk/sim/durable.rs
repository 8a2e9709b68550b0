//! What becomes durable on the simulated disk: syncs and durable writes. And damage on demand.

use std::path::Path;

use crate::disk::aligned::{check_alignment, whole_blocks};
use crate::disk::errors;
use crate::disk::faults::{FaultHook, SyncFault, WriteFault};
use crate::disk::plan::{DiskError, FileId, Step};
use crate::disk::sim::files::Node;
use crate::disk::sim::{Outcome, SimDisk};
use crate::units::{u64_of, usize_of};

impl SimDisk {
    /// Flips bit `bit` (0 to 7) of byte `byte` of the file at `path`, in the cached state and in
    /// the durable one: damage that only a checksum finds.
    ///
    /// # Panics
    /// When no file stands there, or it has no such byte: then a test damages nothing.
    pub fn flip_bit(&mut self, path: &Path, byte: u64, bit: u8) {
        assert!(bit < 8, "a byte has 8 bits");
        let node = self.files.file_at(path).expect("a file stands at the path");
        assert!(self.files.flip_bit(node, byte, bit), "{} ends before {byte}", path.display());
    }

    /// The durable bytes of the file that reads find at `path`: what a power cut leaves of it, but
    /// for unsynced changes that happen to get through. `None` when no file stands there.
    pub fn durable_bytes(&self, path: &Path) -> Option<Vec<u8>> {
        self.files.file_at(path).map(|node| self.files.durable_bytes(node))
    }

    /// A sync, with the faults that are set to happen to it.
    pub(super) fn faulty_sync(&mut self, file: FileId) -> Outcome {
        let node = match self.node(file) {
            Ok(node) => node,
            Err(error) => return Outcome::failed(error),
        };
        let fault = self.options.faults.as_ref().map_or(SyncFault::None, FaultHook::before_sync);
        let fails = self.random.one_in(self.options.sync_fails_one_in);
        match fault {
            SyncFault::Hold => {
                self.options.faults.as_ref().expect("a hook holds it").sync_waits();
                return Outcome::Held;
            }
            SyncFault::Fail(errno) => {
                self.files.fail_sync(node, &mut self.random);
                return Outcome::failed(errors::classify(errno));
            }
            // There is no time here that a sync could take.
            SyncFault::None | SyncFault::Delay(_) => {}
        }
        if fails {
            self.files.fail_sync(node, &mut self.random);
            return Outcome::failed(errors::input_output());
        }
        self.files.sync(node);
        Outcome::Done
    }

    /// A durable write, with the faults that are set to happen to it.
    pub(super) fn faulty_write_durable(&mut self, step: &Step) -> Outcome {
        let (node, at, bytes) = match self.target(step) {
            Ok(target) => target,
            Err(error) => return Outcome::failed(error),
        };
        if let Some(faults) = &self.options.faults {
            match faults.before_sync() {
                SyncFault::Hold => {
                    faults.sync_waits();
                    return Outcome::Held;
                }
                SyncFault::Fail(errno) => return Outcome::failed(errors::classify(errno)),
                // There is no time here that it could take.
                SyncFault::None | SyncFault::Delay(_) => {}
            }
            if let WriteFault::Short { bytes: bytes_max, errno } = faults.before_write() {
                let done = whole_blocks(bytes_max.min(u64_of(bytes.len())));
                self.files.write_durable(node, at, &bytes[..usize_of(done)]);
                return Outcome::Failed { done, error: errors::classify(errno) };
            }
        }
        let write_fails = self.random.one_in(self.options.write_fails_one_in);
        let sync_fails = self.random.one_in(self.options.sync_fails_one_in);
        if write_fails || sync_fails {
            // When only the sync failed, the device had all of it, and reads see that.
            self.files.tear_durable(node, (at, bytes), !write_fails, &mut self.random);
            return Outcome::failed(errors::input_output());
        }
        self.files.write_durable(node, at, bytes);
        Outcome::Done
    }

    /// The power fails during a durable write: each sector of it is old or new.
    pub(super) fn tear_durable(&mut self, step: &Step) {
        if let Ok((node, at, bytes)) = self.target(step) {
            self.files.tear_durable(node, (at, bytes), false, &mut self.random);
        }
    }

    /// The file, the position and the bytes of a durable write.
    fn target<'a>(&self, step: &'a Step) -> Result<(Node, u64, &'a [u8]), DiskError> {
        let Step::WriteDurable { file, at, buffer } = step else { unreachable!("a durable write") };
        let node = self.node(*file)?;
        check_alignment(*at)?;
        let end = at.0 + u64_of(buffer.length());
        assert!(end <= self.files.length(node), "a durable write stays inside its file: {step:?}");
        Ok((node, at.0, buffer.bytes()))
    }
}
