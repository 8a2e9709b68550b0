//! The journal's file: made once, written full, started anew with each start of the shard.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::{Disk, DiskError, Step};
use crate::format::journal::{
    BLOCK_BYTES, Generation, RECORDS_START, Superblock, SuperblockError, file_name,
};
use crate::format::journal_count;
use crate::format::properties::DirectoryId;
use crate::log::housekeeping::TEMPORARY_SUFFIX;
use crate::log::recovery::OpenError;
use crate::log::recovery::files::Files;
use crate::units::{ByteCount, Offset, Position, u64_of};

const COUNT: &str = journal_count::FILE_NAME;
/// How much is written at a time when the file is made.
const FILL_BYTES: usize = 1 << 20;

/// Which journals there are to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Id of the data directory; all zeros where there is no `meta.properties`.
    pub directory: DirectoryId,
    /// How many: one for each shard.
    pub shards: u32,
    /// Length of each file.
    pub length: ByteCount,
}

/// Why journals can't be replayed or made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk failed.
    #[error("{}: {what}: {error}", .directory.display())]
    Disk {
        /// In which directory.
        directory: PathBuf,
        /// The step that failed.
        what: String,
        /// What the disk said.
        error: DiskError,
    },
    /// An entry can't be put in its place.
    #[error(
        "{}: {what}: {error}; what goes there is in {} still: when the cause is gone, start again",
        .log.display(), .journal.display()
    )]
    Replay {
        /// The journal.
        journal: PathBuf,
        /// The segment, or its directory.
        log: PathBuf,
        /// The step that failed.
        what: String,
        /// What the disk said.
        error: DiskError,
    },
    /// A file with a journal's name is none, or of another version.
    #[error(
        "{}: {error}; it may hold records that were acknowledged and are nowhere else. Start the \
         program that wrote it and stop it in order. To do without them, move the file and \
         {COUNT} away", .path.display()
    )]
    Superblock {
        /// The journal.
        path: PathBuf,
        /// What is wrong with its beginning.
        error: SuperblockError,
    },
    /// It was copied from somewhere else.
    #[error(
        "{}: the journal belongs to the data directory with id {found}, this one has {own}. If \
         meta.properties was replaced, bring back the former one: the journal may hold records \
         that were acknowledged and are nowhere else. If the file comes from elsewhere, move it \
         away",
        .path.display()
    )]
    OtherDirectory {
        /// The journal.
        path: PathBuf,
        /// Whose it is.
        found: DirectoryId,
        /// Who asks.
        own: DirectoryId,
    },
    /// It was copied over from its neighbour.
    #[error(
        "{}: it is the journal of shard {found} by what it begins with. Its own may hold records \
         that were acknowledged and are nowhere else: put it back. To do without them, move the \
         file and {COUNT} away", .path.display()
    )]
    OtherShard {
        /// The journal.
        path: PathBuf,
        /// Whose it is.
        found: u32,
    },
    /// Shards that had a journal have none now.
    #[error(
        "{}: shard-{shard}.journal is missing, there were {shards} journals; it may hold records \
         that were acknowledged and are nowhere else. Put the file back. To do without them, \
         remove {COUNT}", .directory.display()
    )]
    Missing {
        /// The data directory.
        directory: PathBuf,
        /// Whose is missing.
        shard: u32,
        /// How many there were.
        shards: u32,
    },
    /// The file that says how many journals there are says nothing.
    #[error(
        "{}: it doesn't say how many journals there are, as it should: it is damaged, or of \
         another version. Remove it if every *.journal file is there; one that is missing may hold \
         records that were acknowledged and are nowhere else", .0.display()
    )]
    Count(PathBuf),
    /// The log has gone on without the journal.
    #[error(
        "{}: offset {offset} of {} is another batch than the one that the journal has: another \
         program has written to the directory since. To keep what is there, move the journal and \
         {COUNT} away", .path.display(), .partition.display()
    )]
    Foreign {
        /// The journal.
        path: PathBuf,
        /// The partition's directory.
        partition: PathBuf,
        /// First offset of the batch.
        offset: Offset,
    },
}

impl JournalError {
    /// Whether a file can't be read as the journal that its name says, in this version's form.
    pub(super) fn is_no_journal(&self) -> bool {
        match self {
            JournalError::Superblock { error, .. } => !matches!(error, SuperblockError::Version(_)),
            JournalError::OtherShard { .. } => true,
            JournalError::Disk { .. }
            | JournalError::Replay { .. }
            | JournalError::OtherDirectory { .. }
            | JournalError::Missing { .. }
            | JournalError::Count(_)
            | JournalError::Foreign { .. } => false,
        }
    }

    pub(super) fn disk(directory: &Path, error: OpenError) -> JournalError {
        let (directory, (what, error)) = (directory.to_owned(), cause(error));
        JournalError::Disk { directory, what, error }
    }

    pub(super) fn replay(journal: &Path, log: &Path, error: OpenError) -> JournalError {
        let (what, error) = cause(error);
        JournalError::Replay { journal: journal.to_owned(), log: log.to_owned(), what, error }
    }
}

fn cause(error: OpenError) -> (String, DiskError) {
    match error {
        OpenError::Disk { what, error } => (what, error),
        other => unreachable!("plain file work fails no other way: {other}"),
    }
}

/// Has the journals ready to be written to: existing ones, which must have been replayed, are
/// started anew, others are made: every block written, so that writing in place changes nothing but
/// data. When all are there, `commit-journals` says how many: from then on none may be missing.
/// `nonce` gives random numbers, `owner` is a number that no log of the disk has.
///
/// # Errors
/// [`JournalError::Disk`]; those that were made by then stay, and hold nothing.
pub fn make(
    disk: &mut dyn Disk,
    (owner, root): (u32, &Arc<Path>),
    wanted: Wanted,
    nonce: &mut dyn FnMut() -> u64,
) -> Result<Vec<Superblock>, JournalError> {
    let mut files = Files::new(disk, root.clone(), owner);
    let made = make_all(&mut files, wanted, nonce);
    if made.is_err() {
        files.abandon();
    }
    made.map_err(|error| JournalError::disk(root, error))
}

fn make_all(
    files: &mut Files<'_>,
    wanted: Wanted,
    nonce: &mut dyn FnMut() -> u64,
) -> Result<Vec<Superblock>, OpenError> {
    let listed = files.list()?;
    let mut made = Vec::new();
    for shard in 0..wanted.shards {
        let name = file_name(shard);
        let found = listed.iter().find(|entry| entry.name == name).map(|entry| entry.length);
        let first = Superblock {
            generation: Generation { number: 1, nonce: nonce() },
            directory: wanted.directory,
            length: wanted.length,
            shard,
        };
        made.push(make_one(files, found, first)?);
    }
    let count = journal_count::print(wanted.shards);
    files.replace(journal_count::FILE_NAME, count.into_bytes())?;
    Ok(made)
}

fn make_one(
    files: &mut Files<'_>,
    found: Option<ByteCount>,
    first: Superblock,
) -> Result<Superblock, OpenError> {
    let name = file_name(first.shard);
    if let Some(length) = found.filter(|length| *length == first.length) {
        let head = files.read_range(&name, 0, RECORDS_START.min(length.0))?;
        if let Ok(before) = Superblock::newest(&head)
            && before.length == length
        {
            let number = before.generation.number + 1;
            let next =
                Superblock { generation: Generation { number, ..first.generation }, ..first };
            write_superblock(files, &name, &next)?;
            return Ok(next);
        }
    }
    let result = fill(files, &name, &first);
    if result.is_err() {
        // What there was of it would take space for nothing.
        let _ = files.remove(&temporary(&name));
    }
    result.map(|()| first)
}

/// Every journal is empty: from now on any may go. For a stop in order.
///
/// # Errors
/// [`JournalError::Disk`].
pub fn retire(disk: &mut dyn Disk, (owner, root): (u32, &Arc<Path>)) -> Result<(), JournalError> {
    let mut files = Files::new(disk, root.clone(), owner);
    forget_count(&mut files).map_err(|error| JournalError::disk(root, error))
}

pub(super) fn forget_count(files: &mut Files<'_>) -> Result<(), OpenError> {
    files.remove(journal_count::FILE_NAME)?;
    files.sync_directory()
}

fn temporary(name: &str) -> String {
    format!("{name}{TEMPORARY_SUFFIX}")
}

/// Writes a whole file under a temporary name, then gives it its own.
fn fill(files: &mut Files<'_>, name: &str, superblock: &Superblock) -> Result<(), OpenError> {
    let temporary = temporary(name);
    let file = files.create(&temporary)?;
    files.step(Step::Truncate { file, length: ByteCount(0) })?;
    let zeros = Bytes::from(vec![0; FILL_BYTES]);
    let mut at = 0;
    while at < superblock.length.0 {
        let bytes = (superblock.length.0 - at).min(u64_of(FILL_BYTES));
        let part = zeros.slice(..crate::units::usize_of(bytes));
        files.write(file, Position(at), part)?;
        at += bytes;
    }
    let block = Bytes::from(superblock.encode().to_vec());
    files.write(file, block_position(superblock), block)?;
    files.step(Step::Sync { file })?;
    files.close(file)?;
    files.rename(&temporary, name)?;
    files.sync_directory()
}

/// Begins another round: all records so far mean nothing from here on.
pub(super) fn write_superblock(
    files: &mut Files<'_>,
    name: &str,
    superblock: &Superblock,
) -> Result<(), OpenError> {
    let file = files.open(name)?;
    let block = Bytes::from(superblock.encode().to_vec());
    files.write(file, block_position(superblock), block)?;
    files.step(Step::Sync { file })?;
    files.close(file)
}

fn block_position(superblock: &Superblock) -> Position {
    Position(superblock.block() * u64_of(BLOCK_BYTES))
}
