//! Whether there is room again for a log that ran out of it.

use super::housekeeping::TEMPORARY_SUFFIX;
use super::partition::PartitionLog;
use crate::disk::plan::{Parts, Steps};
use crate::disk::{Disk, DiskError, Lane, Place, Plan, Step};
use crate::units::Position;

/// Less than this isn't worth a recovery.
const ROOM_BYTES: usize = 1 << 20;

impl PartitionLog {
    /// Writes a small file and removes it. [`PartitionLog::resume`] reads the log first and finds
    /// out at its end only.
    ///
    /// # Errors
    /// What the disk says.
    ///
    /// # Panics
    /// While a plan of the log is under way.
    pub fn check_room(&mut self, disk: &mut dyn Disk) -> Result<(), DiskError> {
        assert!(!self.is_in_flight(), "a plan is still under way");
        let (file, directory) = (self.new_file(), self.directory.clone());
        let name = format!("room{TEMPORARY_SUFFIX}").into_boxed_str();
        let place = Place { directory, name };
        let parts = Parts::from_iter([vec![0; ROOM_BYTES].into()]);
        let create = Step::Create { file, place: place.clone() };
        let write = Step::Write { file, at: Position(0), parts };
        let tag = self.tag(Lane::Housekeeping, 0);
        let result = disk.run(Plan { tag, steps: Steps::from_iter([create, write]) }).result;
        let is_open = result.is_ok() || result.is_err_and(|failure| 0 < failure.step);
        let mut steps = Steps::new();
        if is_open {
            steps.push(Step::Close { file });
        }
        steps.push(Step::Remove { place });
        let removed = disk.run(Plan { tag, steps }).result;
        result.and(removed).map_err(|failure| failure.error)
    }
}
