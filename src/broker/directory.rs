//! The root of the data directory: who owns it, how it was left, what lies in it.
//!
//! Everything at the root is written here, by the control thread: `meta.properties`, the clean
//! marker, the checkpoint files. A file is replaced as a whole (temporary file, sync, rename, sync
//! of the directory), so that a crash leaves the old one or the new one. Nothing is ever deleted
//! but partition directories that were renamed to `-delete` before, after their delay.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub use crate::broker::checkpoints::{Checkpoints, PartitionKey, PartitionReport};
use crate::disk::lock::{DirectoryLock, LOCK_FILE, LockError};
use crate::format::checkpoint::{self, PartitionOffset};
use crate::format::names::{DirectoryState, PartitionDirectory, Unique};
use crate::format::properties::{self, DirectoryId, MetaProperties, MetaPropertiesError};
use crate::format::{clean_shutdown, id, partition_metadata};
use crate::units::{BrokerId, Offset, Timestamp, TopicId};

const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
const LOG_STARTS: &str = "log-start-offset-checkpoint";
const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
const FIRST_DIRTY: &str = "cleaner-offset-checkpoint";

/// The file systems that Linux has put `lost+found` on; not worth a warning.
const LOST_AND_FOUND: &str = "lost+found";

/// Why the directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Another process uses it.
    #[error(transparent)]
    Lock(LockError),
    /// A file or directory in it can't be read or written.
    #[error("{}: {error}{}", .path.display(), remedy(.error))]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// `meta.properties` makes no sense.
    #[error(
        "{}:{line}: {error}; restore the file from a backup. Removing it makes a new cluster id \
         and keeps the data, but clients and tools then see another cluster", .path.display()
    )]
    MetaProperties {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1; the last one when something is missing.
        line: usize,
        /// What is wrong with it.
        error: MetaPropertiesError,
    },
    /// The directory belongs to another broker.
    #[error(
        "{}:{line}: the directory belongs to node.id {found}, this broker has node.id {own}; start \
         it with --set node.id={found} or use another directory", .path.display()
    )]
    Foreign {
        /// `meta.properties`.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// Whose it is.
        found: BrokerId,
        /// Who asks.
        own: BrokerId,
    },
}

impl From<LockError> for DirectoryError {
    fn from(error: LockError) -> DirectoryError {
        match error {
            LockError::File { directory, error } => {
                DirectoryError::File { path: directory.join(LOCK_FILE), error }
            }
            held @ LockError::Held { .. } => DirectoryError::Lock(held),
        }
    }
}

impl DirectoryError {
    /// Whether what it names isn't there.
    pub fn is_not_found(&self) -> bool {
        let absent = io::ErrorKind::NotFound;
        matches!(self, DirectoryError::File { error, .. } if error.kind() == absent)
    }
}

/// What a system error means for whoever starts the broker.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; give this user write permission or choose another directory with --dir"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; mount it read-write or choose another directory with --dir"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space or choose another directory with --dir"
        }
        _ => "",
    }
}

/// A directory of a partition in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// What its `partition.metadata` says; `None` when it can't be read.
    pub topic_id: Option<TopicId>,
    /// Whether some segment has bytes: a kill in the middle of the creation leaves none.
    pub has_records: bool,
}

/// All directories of partitions in use.
pub type FoundPartitions = BTreeMap<PartitionKey, Found>;

/// The data directory, held by this process until it is dropped.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    /// Who owns the directory.
    pub identity: MetaProperties,
    /// Whether the last run ended in order, so that nothing needs recovery.
    pub was_clean: bool,
    /// Kafka's controller takes a stop for a crash when this isn't the last registration's epoch.
    broker_epoch: i64,
    _lock: DirectoryLock,
}

impl DataDirectory {
    /// Takes the directory, making it when it isn't there.
    ///
    /// # Errors
    /// Which file, why, and what to do.
    pub fn open(path: &Path, node: BrokerId, now: Timestamp) -> Result<Self, DirectoryError> {
        create_directory(path)?;
        let lock = DirectoryLock::acquire(path)?;
        let identity = identity(path, node, now)?;
        let marker = path.join(clean_shutdown::FILE_NAME);
        let was_clean = marker.exists();
        let epoch = fs::read(marker).ok().and_then(|bytes| clean_shutdown::parse(&bytes));
        let broker_epoch = epoch.unwrap_or(clean_shutdown::EPOCH_NONE);
        let path = path.to_owned();
        Ok(DataDirectory { path, identity, was_clean, broker_epoch, _lock: lock })
    }

    /// From here on until [`DataDirectory::mark_clean`] a stop counts as a crash.
    ///
    /// # Errors
    /// When the marker can't be taken away.
    pub fn begin(&self) -> Result<(), DirectoryError> {
        let marker = self.path.join(clean_shutdown::FILE_NAME);
        match fs::remove_file(&marker) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(DirectoryError::File { path: marker, error }),
        }
        sync_directory(&self.path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory's own id, which partition records carry.
    ///
    /// # Panics
    /// Never: a directory that has none gets one when it is opened.
    pub fn id(&self) -> DirectoryId {
        self.identity.directory_id.expect("it was made when the directory was opened")
    }

    /// Reads the checkpoint files.
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints {
            recovery_points: self.read_checkpoint(RECOVERY_POINTS),
            log_starts: self.read_checkpoint(LOG_STARTS),
            first_dirty: self.read_checkpoint(FIRST_DIRTY),
        }
    }

    /// Lists the partitions in use. What isn't the directory of a partition is named once and left
    /// alone.
    ///
    /// # Errors
    /// When the directory can't be listed.
    pub fn partitions(&self) -> Result<FoundPartitions, DirectoryError> {
        let mut found = FoundPartitions::new();
        for name in subdirectories(&self.path)? {
            match PartitionDirectory::parse(&name) {
                Ok(directory) if directory.state == DirectoryState::Live => {
                    let key = (directory.topic, directory.partition);
                    found.insert(key, look_into(&self.path.join(&name))?);
                }
                Ok(directory) if is_deleted(&directory) => {}
                Ok(_) => tracing::warn!(
                    "{}/{name} is a copy or a stray partition; it is left alone",
                    self.path.display()
                ),
                Err(_) if name == LOST_AND_FOUND => {}
                Err(error) => tracing::warn!(
                    "{}/{name} is not the directory of a partition ({error}); it is left alone",
                    self.path.display()
                ),
            }
        }
        Ok(found)
    }

    /// Writes the four checkpoint files for all partitions of the broker.
    ///
    /// # Errors
    /// The file that could not be replaced; the old one is still there.
    pub fn write_checkpoints(&self, reports: &[PartitionReport]) -> Result<(), DirectoryError> {
        let log_start = |report: &PartitionReport| report.log_start;
        self.write_checkpoint(RECOVERY_POINTS, reports, |report| Some(report.recovery_point))?;
        self.write_checkpoint(LOG_STARTS, reports, log_start)?;
        self.write_checkpoint(FIRST_DIRTY, reports, |report| report.first_dirty)?;
        self.write_checkpoint(HIGH_WATERMARKS, reports, |report| Some(report.high_watermark))
    }

    /// Says that everything was closed in order: the next start recovers nothing.
    ///
    /// # Errors
    /// When the marker can't be written.
    pub fn mark_clean(&self) -> Result<(), DirectoryError> {
        let marker = self.path.join(clean_shutdown::FILE_NAME);
        replace(&marker, clean_shutdown::print(self.broker_epoch).as_bytes())
    }

    /// Names of the directories of deleted partitions that await their removal.
    ///
    /// # Errors
    /// When the directory can't be listed.
    pub fn deleted_partitions(&self) -> Result<Vec<String>, DirectoryError> {
        let mut names = subdirectories(&self.path)?;
        names.retain(|name| {
            PartitionDirectory::parse(name).is_ok_and(|directory| is_deleted(&directory))
        });
        Ok(names)
    }

    /// Removes the directory of a deleted partition.
    ///
    /// # Errors
    /// When a file of it can't be removed.
    ///
    /// # Panics
    /// When the name isn't one that [`DataDirectory::deleted_partitions`] returns.
    pub fn remove_deleted(&self, name: &str) -> Result<(), DirectoryError> {
        let directory = PartitionDirectory::parse(name).expect("a name that was listed");
        assert!(is_deleted(&directory));
        let path = self.path.join(name);
        fs::remove_dir_all(&path).map_err(|error| DirectoryError::File { path, error })
    }

    fn read_checkpoint(&self, name: &str) -> HashMap<PartitionKey, Offset> {
        let path = self.path.join(name);
        let entries = match fs::read(&path) {
            Ok(bytes) => checkpoint::parse_offsets(&bytes).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        };
        let entries = entries.unwrap_or_else(|error| {
            tracing::warn!("{}: {error}; it is taken as empty", path.display());
            Vec::new()
        });
        entries.into_iter().map(|entry| ((entry.topic, entry.partition), entry.offset)).collect()
    }

    fn write_checkpoint(
        &self,
        name: &str,
        reports: &[PartitionReport],
        offset: impl Fn(&PartitionReport) -> Option<Offset>,
    ) -> Result<(), DirectoryError> {
        let entry = |report: &PartitionReport| {
            let (topic, partition) = report.key.clone();
            offset(report).map(|offset| PartitionOffset { topic, partition, offset })
        };
        let entries: Vec<PartitionOffset> = reports.iter().filter_map(entry).collect();
        replace(&self.path.join(name), checkpoint::print_offsets(&entries).as_bytes())
    }
}

fn create_directory(path: &Path) -> Result<(), DirectoryError> {
    if path.is_dir() {
        return Ok(());
    }
    let failed = |error| DirectoryError::File { path: path.to_owned(), error };
    fs::create_dir_all(path).map_err(failed)?;
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_directory(parent),
        _ => Ok(()),
    }
}

/// Reads `meta.properties`, or makes it in a directory that has none.
fn identity(
    directory: &Path,
    node: BrokerId,
    now: Timestamp,
) -> Result<MetaProperties, DirectoryError> {
    let path = directory.join(properties::FILE_NAME);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return write_identity(&path, new_identity(node), now);
        }
        Err(error) => return Err(DirectoryError::File { path, error }),
    };
    let identity = properties::parse(&bytes).map_err(|error| DirectoryError::MetaProperties {
        line: line_of(&bytes, key_of(&error)),
        path: path.clone(),
        error,
    })?;
    if identity.node_id != node {
        let (line, found) = (line_of(&bytes, "node.id"), identity.node_id);
        return Err(DirectoryError::Foreign { path, line, found, own: node });
    }
    match identity.directory_id {
        Some(_) => Ok(identity),
        None => {
            let directory_id = new_identity(node).directory_id;
            write_identity(&path, MetaProperties { directory_id, ..identity }, now)
        }
    }
}

/// Random ids; none of Kafka's reserved ones, which random UUIDs can't be.
fn new_identity(node_id: BrokerId) -> MetaProperties {
    MetaProperties {
        cluster_id: id::encode(TopicId::random().0),
        node_id,
        directory_id: Some(DirectoryId(TopicId::random().0)),
    }
}

fn write_identity(
    path: &Path,
    identity: MetaProperties,
    now: Timestamp,
) -> Result<MetaProperties, DirectoryError> {
    replace(path, properties::print(&identity, now).as_bytes())?;
    Ok(identity)
}

/// The key that an error of `meta.properties` is about; empty when it is about none of the lines.
fn key_of(error: &MetaPropertiesError) -> &'static str {
    match error {
        MetaPropertiesError::Version(_) => "version",
        MetaPropertiesError::NodeId(_) => "node.id",
        MetaPropertiesError::DirectoryId(_) | MetaPropertiesError::Reserved => "directory.id",
        MetaPropertiesError::NotText | MetaPropertiesError::Missing(_) => "",
    }
}

/// Number of the last line that sets `key`, which is the one that counts; of the last line when
/// there is none.
fn line_of(bytes: &[u8], key: &str) -> usize {
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let sets = |line: &[u8]| !key.is_empty() && line.trim_ascii().starts_with(key.as_bytes());
    let last = lines.iter().rposition(|line| !line.trim_ascii().is_empty()).unwrap_or(0);
    lines.iter().rposition(|line| sets(line)).unwrap_or(last) + 1
}

/// The directory of a partition, by its files; what is wrong with them comes up when it is opened.
///
/// # Errors
/// When it can't be listed, because it isn't there for example.
pub fn look_into(directory: &Path) -> Result<Found, DirectoryError> {
    let failed = |error| DirectoryError::File { path: directory.to_owned(), error };
    let bytes = fs::read(directory.join(partition_metadata::FILE_NAME)).ok();
    let topic_id = bytes.and_then(|bytes| partition_metadata::parse(&bytes).ok());
    let mut has_records = false;
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_log = Path::new(&entry.file_name()).extension().is_some_and(|end| end == "log");
        has_records |= is_log && entry.metadata().map_err(failed)?.len() > 0;
    }
    Ok(Found { topic_id, has_records })
}

fn is_deleted(directory: &PartitionDirectory) -> bool {
    matches!(directory.state, DirectoryState::Deleted(_))
}

/// The name that the directory of a deleted partition gets.
pub fn deleted_name(key: &PartitionKey) -> String {
    let (topic, partition) = key.clone();
    let unique = Unique(u128::from_be_bytes(TopicId::random().0));
    let state = DirectoryState::Deleted(unique);
    PartitionDirectory { topic, partition, state }.to_string()
}

/// Names of the directories in a directory, sorted. A name that isn't UTF-8 is none of ours.
fn subdirectories(path: &Path) -> Result<Vec<String>, DirectoryError> {
    let failed = |error| DirectoryError::File { path: path.to_owned(), error };
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir()
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Replaces a file as a whole: after a crash there is the old one or the new one.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), DirectoryError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| DirectoryError::File { path: path.to_owned(), error })?;
    sync_directory(path.parent().expect("a file has its directory"))
}

fn sync_directory(path: &Path) -> Result<(), DirectoryError> {
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(|error| DirectoryError::File { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::names::TopicName;
    use crate::units::PartitionId;

    const NOW: Timestamp = Timestamp(1_796_000_000_000);

    fn temporary() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    fn open(path: &Path) -> Result<DataDirectory, DirectoryError> {
        DataDirectory::open(path, BrokerId(1), NOW)
    }

    fn key(topic: &str, partition: u32) -> PartitionKey {
        (TopicName::new(topic).expect("a legal name"), PartitionId(partition))
    }

    #[test]
    fn the_first_start_names_the_directory_and_the_second_finds_the_names() {
        let root = temporary();
        let path = root.path().join("a/b");
        let first = open(&path).expect("it is made").identity.clone();
        let second = open(&path).expect("it is there");
        assert_eq!(second.identity, first);
        assert_eq!(first.cluster_id.len(), 22);
        assert!(!second.was_clean);
    }

    #[test]
    fn the_clean_marker_counts_once() {
        let root = temporary();
        open(root.path()).expect("new").mark_clean().expect("written");
        assert!(open(root.path()).expect("left in order").was_clean);
        let marker = root.path().join(clean_shutdown::FILE_NAME);
        fs::write(&marker, clean_shutdown::print(12)).expect("as Kafka");
        open(root.path()).expect("left in order").mark_clean().expect("written");
        assert_eq!(fs::read(&marker).expect("there"), clean_shutdown::print(12).as_bytes());
        let third = open(root.path()).expect("nothing has begun");
        third.begin().expect("the marker goes");
        drop(third);
        assert!(!open(root.path()).expect("not marked again").was_clean);
    }

    #[test]
    fn a_damaged_meta_properties_is_named_with_line_and_remedy() {
        let root = temporary();
        let file = root.path().join("meta.properties");
        fs::write(&file, "#\nversion=1\nnode.id=one\ncluster.id=x\n").expect("written");
        let error = open(root.path()).expect_err("node.id is no number").to_string();
        assert!(error.contains("meta.properties:3:"), "{error}");
        assert!(error.contains("restore"), "{error}");
        fs::write(&file, "#\nversion=1\nnode.id=7\ncluster.id=x\n").expect("written");
        let error = open(root.path()).expect_err("another broker's").to_string();
        assert!(error.contains("meta.properties:3:"), "{error}");
        assert!(error.contains("node.id=7"), "{error}");
        assert!(file.exists());
    }

    #[test]
    fn a_directory_without_an_id_gets_one_and_keeps_its_cluster() {
        let root = temporary();
        let file = root.path().join("meta.properties");
        fs::write(&file, "version=1\nnode.id=1\ncluster.id=mine\n").expect("written");
        let identity = open(root.path()).expect("usable").identity.clone();
        assert_eq!(identity.cluster_id, "mine");
        assert_eq!(open(root.path()).expect("again").identity, identity);
        assert!(identity.directory_id.is_some());
    }

    #[test]
    fn checkpoints_come_back_as_written() {
        let root = temporary();
        let directory = open(root.path()).expect("new");
        let report = |topic, log_start| PartitionReport {
            key: key(topic, 3),
            recovery_point: Offset(10),
            log_start,
            first_dirty: log_start.map(|start| start + 2),
            high_watermark: Offset(12),
        };
        let reports = [report("a", None), report("b-c", Some(Offset(7)))];
        directory.write_checkpoints(&reports).expect("written");
        let checkpoints = directory.checkpoints();
        assert_eq!(checkpoints.recovery_point(&key("a", 3)), Some(Offset(10)));
        assert_eq!(checkpoints.log_start(&key("a", 3)), None);
        assert_eq!(checkpoints.log_start(&key("b-c", 3)), Some(Offset(7)));
        let text = fs::read_to_string(root.path().join(HIGH_WATERMARKS)).expect("written");
        assert_eq!(text, "0\n2\na 3 12\nb-c 3 12\n");
        let text = fs::read_to_string(root.path().join(FIRST_DIRTY)).expect("written");
        assert_eq!(text, "0\n1\nb-c 3 9\n");
        assert_eq!(checkpoints.first_dirty(&key("b-c", 3)), Some(Offset(9)));
    }

    #[test]
    fn an_unreadable_checkpoint_counts_as_empty() {
        let root = temporary();
        let directory = open(root.path()).expect("new");
        fs::write(root.path().join(RECOVERY_POINTS), "garbage").expect("written");
        assert_eq!(directory.checkpoints(), Checkpoints::default());
    }

    #[test]
    fn foreign_entries_are_left_alone() {
        let root = temporary();
        let directory = open(root.path()).expect("new");
        let deleted = format!("gone-0.{}-delete", "0a".repeat(16));
        for name in ["flights-2", "lost+found", "no partition", deleted.as_str()] {
            fs::create_dir(root.path().join(name)).expect("made");
        }
        fs::write(root.path().join("file-0"), "").expect("written");
        let id = TopicId([5; 16]);
        fs::write(root.path().join("flights-2/partition.metadata"), partition_metadata::print(id))
            .expect("written");
        let found = directory.partitions().expect("listed");
        assert_eq!(
            found,
            [(key("flights", 2), Found { topic_id: Some(id), has_records: false })].into()
        );
        assert_eq!(directory.deleted_partitions().expect("listed"), std::slice::from_ref(&deleted));
        directory.remove_deleted(&deleted).expect("removed");
        assert!(directory.deleted_partitions().expect("listed").is_empty());
        assert!(root.path().join("no partition").exists());
    }

    /// A partition is made where there is none, and nowhere else.
    #[test]
    fn only_an_absent_directory_is_not_found() {
        let root = temporary();
        let absent = look_into(&root.path().join("topic-0")).expect_err("nothing is there");
        assert!(absent.is_not_found(), "{absent}");
        let file = root.path().join("topic-1");
        fs::write(&file, "").expect("written");
        let unreadable = look_into(&file).expect_err("a file can't be listed");
        assert!(!unreadable.is_not_found(), "{unreadable}");
    }
}
