//! Before the shards start: the journals of a data directory are replayed and made ready, if
//! writing to them in place is of any use there.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::disk::plain::PlainDisk;
use crate::disk::plan::{Parts, Steps};
use crate::disk::{
    Aligned, BLOCK_BYTES, Disk, DiskError, FileId, Lane, Place, Plan, PlanTag, Step,
};
use crate::format::journal::{Superblock, file_name};
use crate::format::properties::{self, DirectoryId};
use crate::log::journal::{self, Wanted, make, replay, retire};
use crate::log::{JournalError, JournalReplay};
use crate::shard::error::EngineError;
use crate::units::{ByteCount, Position, TopicId, u64_of};

/// Whether a journal is wanted (`journal.enable`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalMode {
    /// Where it is faster than syncing each file.
    Auto,
    /// Wherever it is possible.
    Always,
    /// Not at all.
    Never,
}

/// How journals are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalOptions {
    /// Whether.
    pub mode: JournalMode,
    /// Length of each shard's file.
    pub bytes: ByteCount,
    /// Larger plans sync their own files.
    pub plan_bytes_max: ByteCount,
}

impl Default for JournalOptions {
    fn default() -> JournalOptions {
        JournalOptions {
            mode: JournalMode::Auto,
            bytes: ByteCount(64 << 20),
            plan_bytes_max: ByteCount(128 << 10),
        }
    }
}

/// A journal that is ready to be written to.
#[derive(Clone, Debug)]
pub struct JournalFile {
    /// Where it lies.
    pub place: Place,
    /// What its beginning says.
    pub superblock: Superblock,
    /// Larger plans sync their own files.
    pub plan_bytes_max: ByteCount,
}

/// What the probe measured: medians.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalProbe {
    /// A block written in place, durably.
    pub in_place: Duration,
    /// A block appended to a file, and an fdatasync.
    pub appended: Duration,
}

impl JournalProbe {
    /// Nine tries each are a coarse measure, and one write in place stands for the syncs of many
    /// files: near a tie the journal is taken.
    fn is_in_place_slower(&self) -> bool {
        self.appended * 5 / 4 < self.in_place
    }
}

/// Why small plans sync their own files.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoJournal {
    /// It isn't wanted.
    #[error("journal.enable is false")]
    Disabled,
    /// The file system never writes in place.
    #[error("{0} writes no block in place")]
    CopyOnWrite(&'static str),
    /// `O_DIRECT` is refused.
    #[error("the file system refuses direct writes ({0})")]
    Refused(DiskError),
    /// It can't be tried.
    #[error("it can't be tried: {0}")]
    Untried(DiskError),
    /// The probe says that it doesn't pay.
    #[error(
        "a direct write takes {} us here, an append with fdatasync {} us; journal.enable=true \
         uses the journal all the same",
        .0.in_place.as_micros(), .0.appended.as_micros()
    )]
    Slower(JournalProbe),
    /// The file can't be made.
    #[error("{0}")]
    Failed(#[from] JournalError),
}

/// Numbers of a disk's users that no log has: these disks are used for nothing else.
const OWNER: u32 = 0;
const PROBE: u32 = 1;
/// How often each way is tried.
const PROBES: usize = 9;
const FILES_MAX: usize = 1 << 16;

/// Replays all journals in a directory, whoever wrote them, and leaves them empty.
///
/// # Errors
/// [`JournalError`]: what is in the journals could not be put in place, and they are as they were.
pub fn replay_journals(
    root: &Path,
    directory: DirectoryId,
    shards: u32,
) -> Result<JournalReplay, JournalError> {
    let mut disk = PlainDisk::new(FILES_MAX, None);
    replay(&mut disk, (OWNER, &root.into()), (directory, shards), nonce())
}

/// Whether the journals in a directory can be replayed, as far as can be told before.
///
/// # Errors
/// [`JournalError`]: one is missing, or another's. Nothing was changed.
pub fn check_journals(root: &Path, directory: DirectoryId) -> Result<(), JournalError> {
    let mut disk = PlainDisk::new(FILES_MAX, None);
    journal::check(&mut disk, (OWNER, &root.into()), directory)
}

/// Whether a replay would find nothing. Reads all journals and changes nothing.
///
/// # Errors
/// As [`check_journals`], and when one can't be read.
pub fn are_journals_empty(root: &Path, directory: DirectoryId) -> Result<bool, JournalError> {
    let mut disk = PlainDisk::new(FILES_MAX, None);
    journal::is_empty(&mut disk, (OWNER, &root.into()), directory)
}

/// Every journal was emptied in a stop in order: none of them will be missed.
///
/// # Errors
/// [`JournalError`]: they will be, should they go.
pub fn retire_journals(root: &Path) -> Result<(), JournalError> {
    let mut disk = PlainDisk::new(FILES_MAX, None);
    retire(&mut disk, (OWNER, &root.into()))
}

/// Makes the journals of all shards ready, after [`replay_journals`].
///
/// # Errors
/// [`NoJournal`]: the engine does without then.
pub fn prepare_journals(
    root: &Path,
    (directory, shards): (DirectoryId, u32),
    options: JournalOptions,
) -> Result<(Vec<JournalFile>, JournalProbe), NoJournal> {
    let probed = try_journal(root, options.mode)?;
    let root: Arc<Path> = root.into();
    let mut disk = PlainDisk::new(FILES_MAX, None);
    let wanted = Wanted { directory, shards, length: options.bytes };
    let superblocks = make(&mut disk, (OWNER, &root), wanted, &mut nonce)?;
    let place = |shard| Place { directory: root.clone(), name: file_name(shard).into() };
    let file = |(shard, superblock)| JournalFile {
        place: place(shard),
        superblock,
        plan_bytes_max: options.plan_bytes_max,
    };
    Ok(((0..).zip(superblocks).map(file).collect(), probed))
}

/// Whether a journal is of use in a directory, by trying; nothing is left there.
///
/// # Errors
/// [`NoJournal`]: why it isn't.
pub fn try_journal(root: &Path, mode: JournalMode) -> Result<JournalProbe, NoJournal> {
    if mode == JournalMode::Never {
        return Err(NoJournal::Disabled);
    }
    if let Some(name) = copy_on_write(root) {
        return Err(NoJournal::CopyOnWrite(name));
    }
    let probed = probe_journal(root)?;
    if mode == JournalMode::Auto && probed.is_in_place_slower() {
        return Err(NoJournal::Slower(probed));
    }
    Ok(probed)
}

/// How acknowledgements are made durable with these journals, in a few words.
pub fn probe_line(files: &[JournalFile], probed: JournalProbe) -> String {
    let bytes = files.first().map_or(0, |file| file.superblock.length.0);
    let mib = bytes >> 20;
    let (direct, append) = (probed.in_place.as_micros(), probed.appended.as_micros());
    format!(
        "one journal write a turn, {mib} MiB per shard (a direct write takes {direct} \
         us here, an append with fdatasync {append} us)"
    )
}

/// Replays the journals of a directory that one engine works on, and makes its own ready; `None`
/// where it does without.
///
/// # Errors
/// [`EngineError::Journal`]: what was left can't be put in place; [`EngineError::Directory`] and
/// [`EngineError::Properties`]: whose journals they are can't be read.
pub fn of_directory(
    root: &Path,
    options: JournalOptions,
) -> Result<Option<JournalFile>, EngineError> {
    let id = directory_id(root)?;
    let replayed = replay_journals(root, id, 1)?;
    if replayed.is_lossy() {
        tracing::error!("{replayed}");
    } else if !replayed.is_uneventful() {
        tracing::info!("{replayed}");
    }
    match prepare_journals(root, (id, 1), options) {
        Ok((files, _)) => Ok(files.into_iter().next()),
        Err(reason) => {
            tracing::debug!("plans sync their own files; no journal: {reason}");
            if let Err(error) = remove_journals(root, id) {
                tracing::warn!("{}: empty journals can't be removed: {error}", root.display());
            }
            Ok(None)
        }
    }
}

/// Whether [`of_directory`] can replay what was left, as far as can be told before anything is
/// changed.
///
/// # Errors
/// As [`of_directory`]'s.
pub fn check_directory(root: &Path) -> Result<(), EngineError> {
    Ok(check_journals(root, directory_id(root)?)?)
}

/// All zeros where there is no `meta.properties`: only a server makes one.
fn directory_id(root: &Path) -> Result<DirectoryId, EngineError> {
    let path = root.join(properties::FILE_NAME);
    let none = DirectoryId([0; 16]);
    match std::fs::read(&path) {
        Ok(bytes) => match properties::parse(&bytes) {
            Ok(found) => Ok(found.directory_id.unwrap_or(none)),
            Err(error) => Err(EngineError::Properties { path, error }),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(none),
        Err(error) => Err(EngineError::Directory { path, error }),
    }
}

/// Removes the journals, which are empty, when they aren't used.
///
/// # Errors
/// As [`replay_journals`].
pub fn remove_journals(root: &Path, directory: DirectoryId) -> Result<(), JournalError> {
    replay_journals(root, directory, 0).map(drop)
}

/// Measures with two small files in a directory what a durable write in place costs, and what it is
/// compared with.
///
/// # Errors
/// [`NoJournal::Refused`], [`NoJournal::Untried`].
pub fn probe_journal(root: &Path) -> Result<JournalProbe, NoJournal> {
    let mut disk = PlainDisk::new(FILES_MAX, None);
    let place = |name: &str| Place { directory: root.into(), name: name.into() };
    let (in_place, appended) = (place("in-place.journal.tmp"), place("appended.journal.tmp"));
    let measured = measure(&mut disk, &in_place, &appended);
    // What failed may have made neither.
    let removed = [in_place, appended].map(|place| run(&mut disk, Step::Remove { place }));
    let (mut in_place, mut appended) = measured?;
    removed.into_iter().collect::<Result<(), _>>().map_err(NoJournal::Untried)?;
    Ok(JournalProbe { in_place: median(&mut in_place), appended: median(&mut appended) })
}

type Times = [Duration; PROBES];

/// Turn and turn about, so that a disturbance hits both.
fn measure(
    disk: &mut PlainDisk,
    in_place: &Place,
    appended: &Place,
) -> Result<(Times, Times), NoJournal> {
    let mut run = |step| run(disk, step).map_err(NoJournal::Untried);
    let refused = |error| match error {
        NoJournal::Untried(error) => NoJournal::Refused(error),
        other => other,
    };
    let (written, direct, by_append) = (file(0), file(1), file(2));
    run(Step::Create { file: written, place: in_place.clone() })?;
    let zeros = Parts::from_iter([vec![0; PROBES * BLOCK_BYTES].into()]);
    run(Step::Write { file: written, at: Position(0), parts: zeros })?;
    run(Step::Sync { file: written })?;
    run(Step::OpenDirect { file: direct, place: in_place.clone() }).map_err(refused)?;
    run(Step::Create { file: by_append, place: appended.clone() })?;
    let (mut in_place, mut by_sync) = (Times::default(), Times::default());
    let block = bytes::Bytes::from(vec![0; BLOCK_BYTES]);
    for number in 0..PROBES {
        let mut buffer = Box::new(Aligned::new(BLOCK_BYTES));
        buffer.set_length(BLOCK_BYTES);
        let at = Position(u64_of(number * BLOCK_BYTES));
        let started = Instant::now();
        run(Step::WriteDurable { file: direct, at, buffer }).map_err(refused)?;
        in_place[number] = started.elapsed();
        let parts = Parts::from_iter([block.clone()]);
        let started = Instant::now();
        run(Step::Write { file: by_append, at, parts })?;
        run(Step::Sync { file: by_append })?;
        by_sync[number] = started.elapsed();
    }
    Ok((in_place, by_sync))
}

fn median(times: &mut Times) -> Duration {
    times.sort_unstable();
    times[PROBES / 2]
}

fn run(disk: &mut PlainDisk, step: Step) -> Result<(), DiskError> {
    let tag = PlanTag { owner: PROBE, lane: Lane::Append, number: 0 };
    disk.run(Plan { tag, steps: Steps::from_iter([step]) }).result.map_err(|failure| failure.error)
}

fn file(number: u32) -> FileId {
    FileId { owner: PROBE, number }
}

/// The name of a file system that puts what is overwritten elsewhere, so that "in place" costs what
/// an append costs, or more.
fn copy_on_write(root: &Path) -> Option<&'static str> {
    let kinds: [(u32, &str); 5] = [
        (0x9123_683e, "btrfs"),
        (0x2fc1_2fc1, "ZFS"),
        (0xca45_1a4e, "bcachefs"),
        (0xf2f5_2010, "F2FS"),
        (0x3434, "NILFS2"),
    ];
    let found = statfs_type(root)?;
    kinds.into_iter().find(|(kind, _)| *kind == found).map(|(_, name)| name)
}

fn statfs_type(root: &Path) -> Option<u32> {
    let found = loop {
        match rustix::fs::statfs(root) {
            Err(Errno::INTR) => {}
            other => break other.ok()?,
        }
    };
    // A magic number has 32 bits, whatever type the platform gives it.
    u32::try_from(found.f_type & 0xffff_ffff).ok()
}

/// A random number; see [`crate::format::journal::Generation`].
pub fn nonce() -> u64 {
    let random = TopicId::random();
    u64::from_be_bytes(*random.0.first_chunk().expect("16 bytes"))
}
