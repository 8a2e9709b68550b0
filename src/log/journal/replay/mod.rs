//! After a crash: what the journals have and the files may lack is put where it belongs.
//!
//! Runs before any log is opened, over all journals in the directory, however many shards wrote
//! them. Entries name segment and position, so writing them again changes nothing: a crash during
//! the replay is only another crash. When every file that an entry names is synced, the journal is
//! begun anew, and its records mean nothing from then on. The recovery of each log follows; it
//! brings the indexes up to date and cuts off what stands behind the last whole batch.

mod place;
mod records;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::{JournalError, forget_count, write_superblock};
use crate::disk::{Disk, Listed};
use crate::format::journal::{
    BLOCK_BYTES, Generation, RECORDS_START, Record, SUFFIX, Superblock, SuperblockError, file_name,
    shard_of,
};
use crate::format::journal_count;
use crate::format::properties::DirectoryId;
use crate::log::housekeeping::TEMPORARY_SUFFIX;
use crate::log::recovery::OpenError;
use crate::log::recovery::files::Files;
use crate::units::{ByteCount, Offset, u64_of};
use place::{Partition, Written, partitions};
use records::{Loaded, live_entries, load, usable};

/// Holes that a report names one by one.
const HOLES_NAMED_MAX: usize = 8;

/// What became of one journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Whose it was.
    pub shard: u32,
    /// Records that a replay had to look at.
    pub records: u64,
    /// Bytes of batches that were not in place.
    pub written: ByteCount,
    /// Bytes of batches that were, as the page cache has it; they are written again.
    pub present: ByteCount,
    /// Entries that were taken back by later records.
    pub voided: u64,
    /// Entries whose partition or segment was deleted.
    pub deleted: u64,
    /// Entries that don't fit their segment: directory and first offset. They were not put in
    /// place.
    pub holes: Vec<(PathBuf, Offset)>,
    /// First record that is damaged, when one is: it and all behind it were not put in place, but
    /// what they take back was.
    pub damaged: Option<u64>,
    /// The name under which the journal was kept, when not all of it could be used.
    pub kept: Option<String>,
}

/// What the replay of a directory did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalReplay {
    /// One for each journal that was there.
    pub journals: Vec<Replayed>,
}

impl JournalReplay {
    /// Whether something that was acknowledged may be missing.
    pub fn is_lossy(&self) -> bool {
        self.journals.iter().any(|it| it.kept.is_some())
    }

    /// Whether there was nothing to do: no journal had records.
    pub fn is_uneventful(&self) -> bool {
        self.journals.iter().all(|it| it.records == 0 && it.damaged.is_none())
    }
}

impl fmt::Display for JournalReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, it) in self.journals.iter().enumerate() {
            let Replayed { shard, records, written, present, .. } = it;
            let separator = if number == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {records} records, ", file_name(*shard))?;
            write!(f, "{written} bytes written, {present} bytes were in place")?;
            if 0 < it.voided {
                write!(f, ", {} entries taken back", it.voided)?;
            }
            if 0 < it.deleted {
                write!(f, ", {} entries of what was deleted since", it.deleted)?;
            }
            for (partition, offset) in it.holes.iter().take(HOLES_NAMED_MAX) {
                let partition = partition.display();
                write!(f, ", offset {offset} of {partition} has no place: records are missing")?;
            }
            if let more @ 1.. = it.holes.len().saturating_sub(HOLES_NAMED_MAX) {
                write!(f, ", and {more} more places like these")?;
            }
            if let Some(record) = &it.damaged {
                write!(f, ", damaged from record {record} on: what was acknowledged last may be ")?;
                write!(f, "missing")?;
            }
            if let Some(kept) = &it.kept {
                write!(f, "; the journal is kept as {kept}")?;
            }
        }
        Ok(())
    }
}

/// Replays every journal in a data directory and leaves them empty. `shards` is how many there will
/// be: journals of further ones are removed. `nonce` is a random number, `owner` a number that no
/// log of the disk has.
///
/// # Errors
/// [`JournalError`]. Nothing is lost by it: replaying again begins anew.
pub fn replay(
    disk: &mut dyn Disk,
    (owner, root): (u32, &Arc<Path>),
    (directory, shards): (DirectoryId, u32),
    nonce: u64,
) -> Result<JournalReplay, JournalError> {
    let mut files = Files::new(disk, root.clone(), owner);
    let run = Run { root: root.clone(), directory, shards, nonce };
    let replayed = run.all(&mut files);
    if replayed.is_err() {
        files.abandon();
    }
    replayed
}

/// Whether the journals in a directory are its own, and none is missing: what [`replay`] asks
/// before it changes anything.
///
/// # Errors
/// As [`replay`]'s.
pub fn check(
    disk: &mut dyn Disk,
    (owner, root): (u32, &Arc<Path>),
    directory: DirectoryId,
) -> Result<(), JournalError> {
    let run = Run { root: root.clone(), directory, shards: 0, nonce: 0 };
    let mut files = Files::new(disk, root.clone(), owner);
    let found = run.found(&mut files);
    files.abandon();
    found.map(drop)
}

/// Whether [`replay`] would find every journal empty. Reads all of them and changes nothing.
///
/// # Errors
/// As [`replay`]'s.
pub fn is_empty(
    disk: &mut dyn Disk,
    (owner, root): (u32, &Arc<Path>),
    directory: DirectoryId,
) -> Result<bool, JournalError> {
    let run = Run { root: root.clone(), directory, shards: 0, nonce: 0 };
    let mut files = Files::new(disk, root.clone(), owner);
    let is_empty = run.is_empty(&mut files);
    files.abandon();
    is_empty
}

struct Run {
    root: Arc<Path>,
    directory: DirectoryId,
    shards: u32,
    nonce: u64,
}

/// All journals, in the order of their shards.
struct Found {
    /// What they begin with, and how long the files are.
    journals: Vec<(Superblock, ByteCount)>,
    /// Files with a journal's name that are none, and that hold nothing by all that is known.
    others: Vec<String>,
    /// Whether they may hold what is nowhere else. If not, the last stop was in order, or somebody
    /// has decided to do without them.
    is_counted: bool,
}

impl Run {
    fn all(&self, files: &mut Files<'_>) -> Result<JournalReplay, JournalError> {
        let failed = |error| JournalError::disk(&self.root, error);
        let found = self.found(files)?;
        let mut report = JournalReplay::default();
        for journal in &found.journals {
            let loaded = self.load(files, *journal, found.is_counted)?;
            report.journals.push(self.one(files, &loaded)?);
        }
        Run::name_kept(files, &mut report).map_err(failed)?;
        self.clear(files, &found, &report).map_err(failed)?;
        Ok(report)
    }

    /// Everything is in place and durable: journals begin anew, and may go from then on. One that
    /// is kept is moved away when the others are done with.
    fn clear(
        &self,
        files: &mut Files<'_>,
        found: &Found,
        report: &JournalReplay,
    ) -> Result<(), OpenError> {
        for ((superblock, _), one) in found.journals.iter().zip(&report.journals) {
            if one.kept.is_none() {
                self.empty(files, *superblock)?;
            }
        }
        forget_count(files)?;
        for name in &found.others {
            let kept = free_name(&files.list()?, name);
            files.rename(name, &kept)?;
        }
        // What a start that was cut short has left takes space for nothing.
        for entry in files.list()?.iter().filter(|entry| is_temporary(&entry.name)) {
            files.remove(&entry.name)?;
        }
        for one in &report.journals {
            match &one.kept {
                Some(kept) => {
                    files.rename(&file_name(one.shard), kept)?;
                    files.sync_directory()?;
                }
                None if self.shards <= one.shard => files.remove(&file_name(one.shard))?,
                None => {}
            }
        }
        Ok(())
    }

    fn found(&self, files: &mut Files<'_>) -> Result<Found, JournalError> {
        let listed = files.list().map_err(|error| JournalError::disk(&self.root, error))?;
        let mut shards: Vec<(u32, ByteCount)> = listed
            .iter()
            .filter(|entry| !entry.is_directory)
            .filter_map(|entry| Some((shard_of(&entry.name)?, entry.length)))
            .collect();
        shards.sort_unstable();
        let counted = listed.iter().find(|entry| entry.name == journal_count::FILE_NAME);
        let count = match counted {
            Some(entry) => self.count(files, entry.length)?,
            None => 0,
        };
        let is_there = |shard: &u32| shards.iter().any(|(it, _)| it == shard);
        if let Some(shard) = (0..count).find(|shard| !is_there(shard)) {
            let directory = self.root.to_path_buf();
            return Err(JournalError::Missing { directory, shard, shards: count });
        }
        let is_counted = counted.is_some();
        let mut found = Found { journals: Vec::new(), others: Vec::new(), is_counted };
        for (shard, length) in shards {
            match self.head(files, shard, length) {
                Ok(superblock) => found.journals.push((superblock, length)),
                Err(error) if !is_counted && error.is_no_journal() => {
                    found.others.push(file_name(shard));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn is_empty(&self, files: &mut Files<'_>) -> Result<bool, JournalError> {
        let found = self.found(files)?;
        for journal in found.journals {
            let loaded = self.load(files, journal, found.is_counted)?;
            let usable = usable(&loaded);
            if !usable.records.is_empty() || usable.damaged.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads a journal. One of whose superblocks one can't be read is refused when a record shows
    /// that this was the newer one: which of its records count is not known then.
    fn load(
        &self,
        files: &mut Files<'_>,
        (superblock, length): (Superblock, ByteCount),
        is_counted: bool,
    ) -> Result<Loaded, JournalError> {
        let loaded = load(files, superblock, length);
        let mut loaded = loaded.map_err(|error| JournalError::disk(&self.root, error))?;
        loaded.is_cut &= is_counted;
        let blocks = loaded.bytes.chunks(BLOCK_BYTES).enumerate();
        let starts = blocks.map(|(number, _)| &loaded.bytes[number * BLOCK_BYTES..]);
        let is_newer = |at: Generation| superblock.generation.number < at.number;
        if Superblock::is_doubtful(&loaded.bytes)
            && starts.filter_map(Record::generation_at).any(is_newer)
        {
            let path = self.root.join(&loaded.name);
            return Err(JournalError::Superblock { path, error: SuperblockError::Checksum });
        }
        Ok(loaded)
    }

    fn head(
        &self,
        files: &mut Files<'_>,
        shard: u32,
        length: ByteCount,
    ) -> Result<Superblock, JournalError> {
        let name = file_name(shard);
        let path = self.root.join(&name);
        let head = files.read_range(&name, 0, length.0.min(RECORDS_START));
        let head = head.map_err(|error| JournalError::disk(&self.root, error))?;
        let superblock = Superblock::newest(&head)
            .map_err(|error| JournalError::Superblock { path: path.clone(), error })?;
        if superblock.directory != self.directory {
            let (found, own) = (superblock.directory, self.directory);
            return Err(JournalError::OtherDirectory { path, found, own });
        }
        if superblock.shard != shard {
            return Err(JournalError::OtherShard { path, found: superblock.shard });
        }
        Ok(superblock)
    }

    /// How many journals there were while the last program ran, if it was cut short.
    fn count(&self, files: &mut Files<'_>, length: ByteCount) -> Result<u32, JournalError> {
        let name = journal_count::FILE_NAME;
        let bytes = files.read_range(name, 0, length.0.min(journal_count::BYTES_MAX));
        let bytes = bytes.map_err(|error| JournalError::disk(&self.root, error))?;
        journal_count::parse(&bytes).ok_or_else(|| JournalError::Count(self.root.join(name)))
    }

    fn one(&self, files: &mut Files<'_>, loaded: &Loaded) -> Result<Replayed, JournalError> {
        let failed = |error| JournalError::disk(&self.root, error);
        let usable = usable(loaded);
        let mut report = Replayed {
            shard: loaded.superblock.shard,
            records: u64_of(usable.records.len()),
            written: ByteCount(0),
            present: ByteCount(0),
            voided: 0,
            deleted: 0,
            holes: Vec::new(),
            damaged: usable.damaged,
            kept: None,
        };
        let (mut entries, voided) = live_entries(&usable);
        report.voided = voided;
        if !entries.is_empty() {
            let mut written = Written::new(self.root.join(&loaded.name));
            for (name, directory) in partitions(files, &self.root).map_err(failed)? {
                let Some(entries) = entries.remove(&name) else { continue };
                let place = Partition { directory: directory.into() };
                place.apply(files, &entries, (&mut report, &mut written))?;
            }
            written.sync(files)?;
        }
        report.deleted += entries.values().map(|it| u64_of(it.len())).sum::<u64>();
        Ok(report)
    }

    /// Those that could not be used up are kept for whoever wants to look.
    fn name_kept(files: &mut Files<'_>, report: &mut JournalReplay) -> Result<(), OpenError> {
        let listed = files.list()?;
        for one in &mut report.journals {
            let is_used_up = one.damaged.is_none() && one.holes.is_empty();
            one.kept = (!is_used_up).then(|| free_name(&listed, &file_name(one.shard)));
        }
        Ok(())
    }

    /// Everything is in place and durable: begins the journal anew.
    fn empty(&self, files: &mut Files<'_>, superblock: Superblock) -> Result<(), OpenError> {
        let number = superblock.generation.number + 1;
        let generation = Generation { number, nonce: self.nonce };
        let next = Superblock { generation, ..superblock };
        write_superblock(files, &file_name(superblock.shard), &next)
    }
}

/// A name that nothing has, for a journal that is no longer one.
fn free_name(listed: &[Listed], name: &str) -> String {
    let is_free = |kept: &String| listed.iter().all(|entry| entry.name != *kept);
    let mut names = (1_u64..).map(|number| format!("{name}.damaged-{number}"));
    names.find(is_free).expect("there are more numbers than files")
}

fn is_temporary(name: &str) -> bool {
    let written = name.strip_suffix(TEMPORARY_SUFFIX);
    written.is_some_and(|it| it.ends_with(SUFFIX) || it == journal_count::FILE_NAME)
}
