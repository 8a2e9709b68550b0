//! The journal's file: made once, written full, started anew with each start of the shard.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::{Disk, DiskError, Step};
use crate::format::journal::{
    BLOCK_BYTES, Generation, RECORDS_START, Superblock, SuperblockError, file_name,
};
use crate::format::properties::DirectoryId;
use crate::log::housekeeping::TEMPORARY_SUFFIX;
use crate::log::recovery::OpenError;
use crate::log::recovery::files::Files;
use crate::units::{ByteCount, Offset, Position, u64_of};

/// How much is written at a time when the file is made.
const FILL_BYTES: usize = 1 << 20;

/// Whose journal it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Id of the data directory; all zeros where there is no `meta.properties`.
    pub directory: DirectoryId,
    /// Which shard.
    pub shard: u32,
    /// Of how many.
    pub shards: u32,
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
    /// A file with a journal's name is none, or of another version.
    #[error(
        "{}: {error}; it may hold records that were acknowledged and are nowhere else. Start the \
         program that wrote it and stop it in order, or move the file away to do without them",
        .path.display()
    )]
    Superblock {
        /// The journal.
        path: PathBuf,
        /// What is wrong with its beginning.
        error: SuperblockError,
    },
    /// It was copied from somewhere else.
    #[error(
        "{}: the journal belongs to the data directory with id {found:?}, this one has {own:?}; \
         move the file away", .path.display()
    )]
    OtherDirectory {
        /// The journal.
        path: PathBuf,
        /// Whose it is.
        found: DirectoryId,
        /// Who asks.
        own: DirectoryId,
    },
    /// Shards that had a journal have none now.
    #[error(
        "{}: the journal of shard {shard} is missing, there were {shards}; it may hold records \
         that were acknowledged and are nowhere else. Put the file back; without it, remove the \
         other *.journal files, too, to serve what is left", .directory.display()
    )]
    Missing {
        /// The data directory.
        directory: PathBuf,
        /// Whose is missing.
        shard: u32,
        /// How many there were.
        shards: u32,
    },
    /// The log has gone on without the journal.
    #[error(
        "{}: offset {offset} of {} is another batch than the one that the journal has: another \
         program has written to the directory since. Move the journal away to keep what is there",
        .path.display(), .partition.display()
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
    pub(super) fn disk(directory: &Path, error: OpenError) -> JournalError {
        let directory = directory.to_owned();
        match error {
            OpenError::Disk { what, error } => JournalError::Disk { directory, what, error },
            other => unreachable!("plain file work fails no other way: {other}"),
        }
    }
}

/// Has a shard's journal ready to be written to: an existing one, which must have been replayed, is
/// started anew, any other is made: every block written, so that writing in place changes nothing
/// but data. To be called for every shard, and then for every shard again: only then does each
/// journal say how many there are, so that one that goes missing is missed. `nonce` is a random
/// number, `owner` a number that no log of the disk has.
///
/// # Errors
/// [`JournalError::Disk`]; then there is no journal, or the one that was there.
pub fn make(
    disk: &mut dyn Disk,
    (owner, root): (u32, &Arc<Path>),
    (identity, length): (Identity, ByteCount),
    nonce: u64,
) -> Result<Superblock, JournalError> {
    let mut files = Files::new(disk, root.clone(), owner);
    let made = make_in(&mut files, identity, length, nonce);
    if made.is_err() {
        files.abandon();
    }
    made.map_err(|error| JournalError::disk(root, error))
}

fn make_in(
    files: &mut Files<'_>,
    identity: Identity,
    length: ByteCount,
    nonce: u64,
) -> Result<Superblock, OpenError> {
    let name = file_name(identity.shard);
    let listed = files.list()?;
    let found = listed.iter().find(|entry| entry.name == name);
    let superblock = |number, shards| Superblock {
        generation: Generation { number, nonce },
        directory: identity.directory,
        length,
        shard: identity.shard,
        shards,
    };
    // How many there are is said once all of them are there: the next time round.
    let is_there = |shard| listed.iter().any(|entry| entry.name == file_name(shard));
    let is_complete = (0..identity.shards).all(is_there);
    if let Some(entry) = found.filter(|entry| entry.length == length) {
        let head = files.read_range(&name, 0, RECORDS_START.min(entry.length.0))?;
        if let Ok(before) = Superblock::newest(&head)
            && before.length == length
        {
            let shards = if is_complete { identity.shards } else { 0 };
            let next = superblock(before.generation.number + 1, shards);
            write_superblock(files, &name, &next)?;
            return Ok(next);
        }
    }
    let first = superblock(1, 0);
    let result = fill(files, &name, &first);
    if result.is_err() {
        // What there was of it would take space for nothing.
        let _ = files.remove(&temporary(&name));
    }
    result.map(|()| first)
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
