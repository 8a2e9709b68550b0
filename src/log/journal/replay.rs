//! After a crash: what the journals have and the files may lack is put where it belongs.
//!
//! Runs before any log is opened, over all journals in the directory, however many shards wrote
//! them. Entries name segment and position, so writing them again changes nothing: a crash during
//! the replay is only another crash. When every file that an entry names is synced, the journal is
//! begun anew, and its records mean nothing from then on. The recovery of each log follows; it
//! brings the indexes up to date and cuts off what stands behind the last whole batch.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::{JournalError, write_superblock};
use crate::disk::{Disk, FileId, Step};
use crate::format::batch::{self, BatchHeader, HEADER_BYTES};
use crate::format::journal::{
    BLOCK_BYTES, Data, Entry, Generation, PartitionName, RECORDS_START, Record, Superblock,
    SuperblockError, Void, file_name, shard_of,
};
use crate::format::names::{DirectoryState, FileKind, PartitionDirectory, SegmentFile};
use crate::format::partition_metadata;
use crate::format::properties::DirectoryId;
use crate::format::scan::{self, Scan};
use crate::log::recovery::OpenError;
use crate::log::recovery::files::Files;
use crate::units::{ByteCount, Offset, Position, u64_of, usize_of};
use bytes::{Bytes, BytesMut};

/// How much of a journal is read at a time.
const READ_BYTES: u64 = 1 << 20;

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
    /// Entries that don't fit their segment: directory and first offset. They are lost.
    pub holes: Vec<(PathBuf, Offset)>,
    /// First record that is damaged, when one is: it and all behind it were not put in place. The
    /// journal was kept under this name.
    pub damaged: Option<(u64, String)>,
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
        self.journals.iter().any(|it| it.damaged.is_some() || !it.holes.is_empty())
    }

    /// Whether any journal had records.
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
            for (partition, offset) in &it.holes {
                let partition = partition.display();
                write!(f, ", offset {offset} of {partition} has no place: records are missing")?;
            }
            if let Some((record, kept)) = &it.damaged {
                write!(f, ", damaged from record {record} on (kept as {kept}): what ")?;
                write!(f, "was acknowledged last may be missing")?;
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

/// All journals in the order of their shards: numbers and lengths, superblocks.
type Found = (Vec<(u32, ByteCount)>, Vec<Superblock>);

/// A journal in memory.
struct Loaded {
    name: String,
    superblock: Superblock,
    bytes: Vec<u8>,
    /// Whether the file is shorter than it was made.
    is_cut: bool,
}

/// The records that count, oldest first, and the first damaged one.
struct Usable<'a> {
    records: Vec<Record<'a>>,
    damaged: Option<u64>,
}

impl Run {
    fn all(&self, files: &mut Files<'_>) -> Result<JournalReplay, JournalError> {
        let failed = |error| JournalError::disk(&self.root, error);
        let (shards, journals) = self.found(files)?;
        let mut report = JournalReplay::default();
        for (superblock, (shard, length)) in journals.iter().zip(&shards) {
            let loaded = self.load(files, *superblock, (*shard, *length))?;
            report.journals.push(self.one(files, *shard, &loaded)?);
        }
        self.clear(files, &journals, &report).map_err(failed)?;
        Ok(report)
    }

    /// Everything is in place and durable: journals begin anew, or go. A damaged one is moved away
    /// when the others don't miss it any more.
    fn clear(
        &self,
        files: &mut Files<'_>,
        journals: &[Superblock],
        report: &JournalReplay,
    ) -> Result<(), OpenError> {
        let is_damaged = report.journals.iter().any(|it| it.damaged.is_some());
        let shards = if is_damaged { 0 } else { self.shards };
        for (superblock, one) in journals.iter().zip(&report.journals) {
            if one.damaged.is_none() {
                self.empty(files, *superblock, shards)?;
            }
        }
        for one in &report.journals {
            match &one.damaged {
                Some((_, kept)) => {
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
        let mut journals = Vec::new();
        for (shard, length) in &shards {
            journals.push(self.head(files, *shard, *length)?);
        }
        self.check_complete(&journals)?;
        Ok((shards, journals))
    }

    fn is_empty(&self, files: &mut Files<'_>) -> Result<bool, JournalError> {
        let (shards, journals) = self.found(files)?;
        for (superblock, place) in journals.iter().zip(shards) {
            let loaded = self.load(files, *superblock, place)?;
            let Usable { records, damaged } = usable(&loaded);
            if !records.is_empty() || damaged.is_some() {
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
        superblock: Superblock,
        place: (u32, ByteCount),
    ) -> Result<Loaded, JournalError> {
        let loaded = load(files, superblock, place);
        let loaded = loaded.map_err(|error| JournalError::disk(&self.root, error))?;
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
        Ok(superblock)
    }

    /// Every journal says how many there were.
    fn check_complete(&self, journals: &[Superblock]) -> Result<(), JournalError> {
        let shards = journals.iter().map(|it| it.shards).max().unwrap_or(0);
        let is_there = |shard: &u32| journals.iter().any(|it| it.shard == *shard);
        match (0..shards).find(|shard| !is_there(shard)) {
            None => Ok(()),
            Some(shard) => {
                let directory = self.root.to_path_buf();
                Err(JournalError::Missing { directory, shard, shards })
            }
        }
    }

    fn one(
        &self,
        files: &mut Files<'_>,
        shard: u32,
        loaded: &Loaded,
    ) -> Result<Replayed, JournalError> {
        let failed = |error| JournalError::disk(&self.root, error);
        let usable = usable(loaded);
        let mut report = Replayed {
            shard,
            records: u64_of(usable.records.len()),
            written: ByteCount(0),
            present: ByteCount(0),
            voided: 0,
            deleted: 0,
            holes: Vec::new(),
            damaged: None,
        };
        let mut entries = live_entries(&usable.records, &mut report);
        if !entries.is_empty() {
            for (name, directory) in partitions(files, &self.root).map_err(failed)? {
                let Some(entries) = entries.remove(&name) else { continue };
                let journal = self.root.join(&loaded.name);
                let place = Partition { journal, directory: directory.into() };
                place.apply(files, &entries, &mut report)?;
            }
        }
        report.deleted += entries.values().map(|it| u64_of(it.len())).sum::<u64>();
        // Kept for whoever wants to look.
        let number = loaded.superblock.generation.number;
        let kept = |record| (record, format!("{}.damaged-{number}", loaded.name));
        report.damaged = usable.damaged.map(kept);
        Ok(report)
    }

    /// Everything is in place and durable: begins the journal anew. Those of further shards go
    /// next, and are not to be missed then.
    fn empty(
        &self,
        files: &mut Files<'_>,
        superblock: Superblock,
        shards: u32,
    ) -> Result<(), OpenError> {
        let number = superblock.generation.number + 1;
        let generation = Generation { number, nonce: self.nonce };
        let shards = shards.min(superblock.shards);
        let next = Superblock { generation, shards, ..superblock };
        write_superblock(files, &file_name(superblock.shard), &next)
    }
}

fn load(
    files: &mut Files<'_>,
    superblock: Superblock,
    (shard, length): (u32, ByteCount),
) -> Result<Loaded, OpenError> {
    let name = file_name(shard);
    let wanted = superblock.length.0.min(length.0);
    let file = files.open(&name)?;
    let mut bytes = Vec::with_capacity(usize_of(wanted));
    let mut part = BytesMut::new();
    while u64_of(bytes.len()) < wanted {
        let at = u64_of(bytes.len());
        part.resize(usize_of((wanted - at).min(READ_BYTES)), 0);
        part = files.read(file, Position(at), part)?;
        bytes.extend_from_slice(&part);
    }
    files.close(file)?;
    let is_cut = length < superblock.length;
    Ok(Loaded { name, superblock, bytes, is_cut })
}

/// Finds the run of records from the newest one's tail on.
fn usable(loaded: &Loaded) -> Usable<'_> {
    let bytes = &loaded.bytes[..];
    let mut found = BTreeMap::new();
    let mut at = usize_of(RECORDS_START);
    while at < bytes.len() {
        match Record::parse(&bytes[at..], loaded.superblock.generation) {
            Some(record) => {
                at += usize_of(record.padded_length());
                found.insert(record.header.sequence, record);
            }
            None => at += BLOCK_BYTES,
        }
    }
    let Some(newest) = found.last_key_value().map(|(_, record)| record.header) else {
        let damaged = loaded.is_cut.then_some(0);
        return Usable { records: Vec::new(), damaged };
    };
    let mut records = Vec::new();
    for sequence in newest.tail..=newest.sequence {
        // What stands behind a gap may lack what was in it.
        let Some(record) = found.remove(&sequence) else {
            return Usable { records, damaged: Some(sequence) };
        };
        records.push(record);
    }
    let damaged = loaded.is_cut.then_some(newest.sequence + 1);
    Usable { records, damaged }
}

type Entries<'a> = HashMap<PartitionName, Vec<Data<'a>>>;

/// What the records say is to be there, by partition, in order.
fn live_entries<'a>(records: &[Record<'a>], report: &mut Replayed) -> Entries<'a> {
    let mut live = Entries::new();
    for entry in records.iter().flat_map(Record::entries) {
        match entry {
            Entry::Data(data) => live.entry(data.name).or_default().push(data),
            Entry::Void(Void { name, from }) => {
                let Some(entries) = live.get_mut(&name) else { continue };
                let before = entries.len();
                entries.retain(|data| data.first < from);
                report.voided += u64_of(before - entries.len());
            }
        }
    }
    live.retain(|_, entries| !entries.is_empty());
    live
}

/// The partitions in use, by topic id and number.
fn partitions(
    files: &mut Files<'_>,
    root: &Path,
) -> Result<Vec<(PartitionName, PathBuf)>, OpenError> {
    let mut found = Vec::new();
    for entry in files.list()?.into_iter().filter(|entry| entry.is_directory) {
        let Ok(directory) = PartitionDirectory::parse(&entry.name) else { continue };
        if directory.state != DirectoryState::Live {
            continue;
        }
        let path = root.join(&entry.name);
        let of = files.directory.clone();
        files.directory = path.as_path().into();
        let topic = topic_id(files);
        files.directory = of;
        if let Some(topic) = topic? {
            found.push((PartitionName { topic, partition: directory.partition }, path));
        }
    }
    Ok(found)
}

fn topic_id(files: &mut Files<'_>) -> Result<Option<crate::units::TopicId>, OpenError> {
    const BYTES_MAX: u64 = 1 << 10;
    let name = partition_metadata::FILE_NAME;
    let listed = files.list()?;
    let Some(entry) = listed.iter().find(|it| it.name == name) else { return Ok(None) };
    let bytes = files.read_range(name, 0, entry.length.0.min(BYTES_MAX))?;
    Ok(partition_metadata::parse(&bytes).ok())
}

/// A partition's directory, and the journal whose entries go there.
struct Partition {
    journal: PathBuf,
    directory: Arc<Path>,
}

/// A `.log` that entries go to.
struct OpenLog {
    file: FileId,
    length: u64,
}

impl Partition {
    fn apply(
        &self,
        files: &mut Files<'_>,
        entries: &[Data<'_>],
        report: &mut Replayed,
    ) -> Result<(), JournalError> {
        let root = std::mem::replace(&mut files.directory, self.directory.clone());
        let applied = self.apply_here(files, entries, report);
        files.directory = root;
        applied
    }

    fn apply_here(
        &self,
        files: &mut Files<'_>,
        entries: &[Data<'_>],
        report: &mut Replayed,
    ) -> Result<(), JournalError> {
        let failed = |error| JournalError::disk(&self.directory, error);
        let listed = files.list().map_err(failed)?;
        let lengths: HashMap<&str, u64> =
            listed.iter().map(|entry| (entry.name.as_str(), entry.length.0)).collect();
        let mut open: BTreeMap<Offset, OpenLog> = BTreeMap::new();
        for data in entries {
            let name = SegmentFile::new(data.segment, FileKind::Log).to_string();
            let known = lengths.get(name.as_str()).copied();
            let log = match open.entry(data.segment) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    // Its name was durable before it was named here.
                    let Some(length) = known else {
                        report.deleted += 1;
                        continue;
                    };
                    let file = files.open(&name).map_err(failed)?;
                    entry.insert(OpenLog { file, length })
                }
            };
            self.put(files, log, data, report)?;
        }
        for log in open.values() {
            files.step(Step::Sync { file: log.file }).map_err(failed)?;
            files.close(log.file).map_err(failed)?;
        }
        Ok(())
    }

    fn put(
        &self,
        files: &mut Files<'_>,
        log: &mut OpenLog,
        data: &Data<'_>,
        report: &mut Replayed,
    ) -> Result<(), JournalError> {
        let failed = |error| JournalError::disk(&self.directory, error);
        if log.length < data.at.0 {
            report.holes.push((self.directory.to_path_buf(), data.first));
            return Ok(());
        }
        let bytes = u64_of(data.bytes.len());
        let have = (log.length - data.at.0).min(bytes);
        let buffer = BytesMut::zeroed(usize_of(have));
        let found = match have {
            0 => buffer,
            _ => files.read(log.file, data.at, buffer).map_err(failed)?,
        };
        // Written again all the same: after a failed sync the page cache shows what the device may
        // lack, and no later sync would bring it there.
        let is_present = found == data.bytes;
        if let Some(offset) = foreign_batch(&found, data.bytes) {
            let (path, partition) = (self.journal.clone(), self.directory.to_path_buf());
            return Err(JournalError::Foreign { path, partition, offset });
        }
        let copy = Bytes::copy_from_slice(data.bytes);
        files.write(log.file, data.at, copy).map_err(failed)?;
        log.length = log.length.max(data.at.0 + bytes);
        match is_present {
            true => report.present += ByteCount(bytes),
            false => report.written += ByteCount(bytes),
        }
        Ok(())
    }
}

/// The first batch of `found` that is whole and another than the one that stands in `wanted` at
/// that place. A power cut leaves zeros, old bytes or torn ones there, never a whole batch of
/// another writer. The checksum doesn't cover the first bytes, the offset among them: with the same
/// checksum it is our own batch, torn there.
fn foreign_batch(found: &[u8], wanted: &[u8]) -> Option<Offset> {
    let mut at = 0;
    while let Some(header) = batch_at(wanted, at) {
        let end = at + usize_of(header.size.0);
        let is_same = found.get(at..end).is_some_and(|it| it == &wanted[at..end]);
        if !is_same {
            let other = batch_at(found, at)?;
            let batch = &found[at..at + usize_of(other.size.0)];
            let is_whole = other.crc != header.crc && batch::check_crc(&other, batch).is_ok();
            return is_whole.then(|| other.base()).flatten();
        }
        at = end;
    }
    None
}

/// The header at `at`, if all of its batch is there.
fn batch_at(bytes: &[u8], at: usize) -> Option<BatchHeader> {
    let rest = bytes.get(at..).filter(|rest| HEADER_BYTES <= rest.len())?;
    let end = Position(u64_of(rest.len()));
    match scan::header_at(scan::Window { bytes: rest, at: Position(0) }, Position(0), end) {
        Scan::Batch { header, .. } => Some(header),
        Scan::End | Scan::Invalid(_) | Scan::NeedMore { .. } => None,
    }
}
