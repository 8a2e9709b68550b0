//! Where entries go: the segments of the partitions that are in use.

use std::collections::{BTreeMap, HashMap, btree_map};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::BytesMut;

use super::Replayed;
use crate::disk::{FileId, Step};
use crate::format::batch::{self, BatchHeader, HEADER_BYTES};
use crate::format::journal::{Data, PartitionName};
use crate::format::names::{DirectoryState, FileKind, PartitionDirectory, SegmentFile};
use crate::format::partition_metadata;
use crate::format::scan::{self, Scan};
use crate::log::journal::JournalError;
use crate::log::recovery::OpenError;
use crate::log::recovery::files::Files;
use crate::units::{ByteCount, Offset, Position, u64_of, usize_of};

/// Longest piece that is read and written at a time, but for a single entry.
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// How many files are written before they are synced.
const OPEN_LOGS_MAX: usize = 256;

/// The partitions in use, by topic id and number.
pub(super) fn partitions(
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

/// A partition's directory.
pub(super) struct Partition {
    pub directory: Arc<Path>,
}

/// A `.log` that entries go to.
struct OpenLog {
    path: PathBuf,
    file: FileId,
    length: u64,
}

/// Files that were written to, to be synced. Many are written before the first is synced: where a
/// sync commits a transaction of the file system, that one brings most of the others along.
pub(super) struct Written {
    /// Whose entries they have.
    journal: PathBuf,
    logs: Vec<OpenLog>,
}

impl Written {
    pub fn new(journal: PathBuf) -> Written {
        Written { journal, logs: Vec::new() }
    }

    pub fn sync(&mut self, files: &mut Files<'_>) -> Result<(), JournalError> {
        for log in self.logs.drain(..) {
            let synced = files.step(Step::Sync { file: log.file });
            let closed = synced.and_then(|()| files.close(log.file));
            closed.map_err(|error| JournalError::replay(&self.journal, &log.path, error))?;
        }
        Ok(())
    }
}

/// Entries that stand one behind the other in one segment: read and written in one go.
struct Piece<'e, 'a> {
    entries: &'e [Data<'a>],
    bytes: u64,
}

/// Entries in pieces; one that is longer than a piece may be is a piece of its own.
fn pieces<'e, 'a>(entries: &'e [Data<'a>]) -> Vec<Piece<'e, 'a>> {
    let mut pieces = Vec::new();
    let mut rest = entries;
    while let Some(first) = rest.first() {
        let mut bytes = u64_of(first.bytes.len());
        let mut count = 1;
        for next in &rest[1..] {
            let is_behind = next.segment == first.segment && next.at.0 == first.at.0 + bytes;
            let longer = bytes + u64_of(next.bytes.len());
            if !is_behind || PIECE_BYTES_MAX < longer {
                break;
            }
            (bytes, count) = (longer, count + 1);
        }
        let (entries, behind) = rest.split_at(count);
        pieces.push(Piece { entries, bytes });
        rest = behind;
    }
    pieces
}

impl Partition {
    /// Puts entries where they belong. Their files are synced with others, later.
    pub fn apply(
        &self,
        files: &mut Files<'_>,
        entries: &[Data<'_>],
        (report, written): (&mut Replayed, &mut Written),
    ) -> Result<(), JournalError> {
        let root = std::mem::replace(&mut files.directory, self.directory.clone());
        let put = self.put_all(files, entries, (report, &written.journal));
        files.directory = root;
        written.logs.extend(put?);
        if written.logs.len() < OPEN_LOGS_MAX { Ok(()) } else { written.sync(files) }
    }

    fn put_all(
        &self,
        files: &mut Files<'_>,
        entries: &[Data<'_>],
        (report, journal): (&mut Replayed, &Path),
    ) -> Result<Vec<OpenLog>, JournalError> {
        let failed = |error| JournalError::replay(journal, &self.directory, error);
        let listed = files.list().map_err(failed)?;
        let lengths: HashMap<&str, u64> =
            listed.iter().map(|entry| (entry.name.as_str(), entry.length.0)).collect();
        let mut open: BTreeMap<Offset, OpenLog> = BTreeMap::new();
        for piece in pieces(entries) {
            let segment = piece.entries[0].segment;
            let name = SegmentFile::new(segment, FileKind::Log).to_string();
            let known = lengths.get(name.as_str()).copied();
            let log = match open.entry(segment) {
                btree_map::Entry::Occupied(entry) => entry.into_mut(),
                btree_map::Entry::Vacant(entry) => {
                    // Its name was durable before it was named here.
                    let Some(length) = known else {
                        report.deleted += u64_of(piece.entries.len());
                        continue;
                    };
                    let (path, file) = (self.directory.join(&name), files.open(&name));
                    entry.insert(OpenLog { path, file: file.map_err(failed)?, length })
                }
            };
            self.put(files, log, &piece, (report, journal))?;
        }
        Ok(open.into_values().collect())
    }

    fn put(
        &self,
        files: &mut Files<'_>,
        log: &mut OpenLog,
        piece: &Piece<'_, '_>,
        (report, journal): (&mut Replayed, &Path),
    ) -> Result<(), JournalError> {
        let Data { at, first, .. } = piece.entries[0];
        if log.length < at.0 {
            report.holes.push((self.directory.to_path_buf(), first));
            return Ok(());
        }
        let have = (log.length - at.0).min(piece.bytes);
        let mut found = BytesMut::zeroed(usize_of(have));
        if 0 < have {
            let read = files.read(log.file, at, found);
            found = read.map_err(|error| JournalError::replay(journal, &log.path, error))?;
        }
        // Written again even where it is there: after a failed sync the page cache shows what the
        // device may lack, and no later sync would bring it there.
        let mut whole = BytesMut::with_capacity(usize_of(piece.bytes));
        for data in piece.entries {
            let old = &found[whole.len().min(found.len())..];
            let other = log.other_batch(files, (old, data));
            let other = other.map_err(|error| JournalError::replay(journal, &log.path, error))?;
            if let Some(offset) = other {
                let (path, partition) = (journal.to_path_buf(), self.directory.to_path_buf());
                return Err(JournalError::Foreign { path, partition, offset });
            }
            let bytes = ByteCount(u64_of(data.bytes.len()));
            match old.get(..data.bytes.len()) == Some(data.bytes) {
                true => report.present += bytes,
                false => report.written += bytes,
            }
            whole.extend_from_slice(data.bytes);
        }
        let put = files.write(log.file, at, whole.freeze());
        put.map_err(|error| JournalError::replay(journal, &log.path, error))?;
        log.length = log.length.max(at.0 + piece.bytes);
        Ok(())
    }
}

impl OpenLog {
    /// Offset of another program's batch in the place of an entry; `found` is what stands there,
    /// and behind it as far as the piece goes.
    fn other_batch(
        &self,
        files: &mut Files<'_>,
        (found, data): (&[u8], &Data<'_>),
    ) -> Result<Option<Offset>, OpenError> {
        let end = Position(self.length.saturating_sub(data.at.0));
        let Some((at, other)) = other_header(found, data.bytes, end) else { return Ok(None) };
        // It may be longer than what has its place here.
        let batch = BytesMut::zeroed(usize_of(other.size.0));
        let batch = files.read(self.file, data.at + ByteCount(u64_of(at)), batch)?;
        let is_whole = batch::check_crc(&other, &batch).is_ok();
        Ok(is_whole.then(|| other.base().unwrap_or(data.first)))
    }
}

/// The header of another batch than the one that stands in `wanted` at that place, and where it
/// begins: of the first batch that differs, if there is one. It is another program's if the whole
/// batch is right: a power cut leaves zeros, old bytes or torn ones there. The checksum doesn't
/// cover the first bytes, the offset among them: with the same checksum it is our own batch, torn
/// there. `end` is where the file ends.
fn other_header(found: &[u8], wanted: &[u8], end: Position) -> Option<(usize, BatchHeader)> {
    let mut at = 0;
    while let Some(header) = header_at(wanted, at, Position(u64_of(wanted.len()))) {
        let next = at + usize_of(header.size.0);
        let is_same = found.get(at..next).is_some_and(|it| it == &wanted[at..next]);
        if !is_same {
            let other = header_at(found, at, end)?;
            return (other.crc != header.crc).then_some((at, other));
        }
        at = next;
    }
    None
}

/// The header at `at`, if all of it is there and the batch ends before `end`.
fn header_at(bytes: &[u8], at: usize, end: Position) -> Option<BatchHeader> {
    let window = scan::Window { bytes, at: Position(0) };
    bytes.get(at..).filter(|rest| HEADER_BYTES <= rest.len())?;
    match scan::header_at(window, Position(u64_of(at)), end) {
        Scan::Batch { header, .. } => Some(header),
        Scan::End | Scan::Invalid(_) | Scan::NeedMore { .. } => None,
    }
}
