//! A data directory that a killed server left, copies of it, and what is done to a copy before it
//! is opened.

use std::fs::{self, File, FileTimes};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use uringlog::Offset;
use uringlog::format::checkpoint::parse_offsets;
use uringlog::format::names::{FileKind, SegmentFile, Suffix};

use crate::engines::files;
use crate::engines::server::{Server, block_on};
use crate::engines::sink::Sink;
use crate::experiments::measure::{u64_of, usize_of};
use crate::experiments::{DoingTo, Failure};
use crate::run::Context;

/// Of every partition.
pub const TOPIC: &str = "restarts";
const CHECKPOINT: &str = "recovery-point-offset-checkpoint";
/// Folder of the server in the cell's; it holds `data`.
const SERVER: &str = "server";
/// So that the checkpoint is there soon; by default it is written once a minute.
const SETTINGS: &[(&str, &str)] =
    &[("log.flush.offset.checkpoint.interval.ms", "100"), ("log.initial.task.delay.ms", "50")];
/// Of the commit journal: enough for the newest appends, and little to copy for every case.
const JOURNAL_BYTES: &str = "4194304";
/// How long a checkpoint that knows all full segments is waited for.
const CHECKPOINT_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Beyond `producer.id.expiration.ms`, which is a day.
const LONG_AGO: Duration = Duration::from_secs(2 * 86_400);

/// What is wrong when the log is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// Nothing: an orderly stop.
    Clean,
    /// SIGKILL; the checkpoint knows how far the files were synced.
    Killed,
    /// SIGKILL before the first checkpoint was written.
    KilledBeforeCheckpoint,
    /// SIGKILL, and the files were last written to two days ago.
    KilledLongAgo,
    /// SIGKILL, and no index is there any more.
    IndexRemoved,
    /// SIGKILL, and the newest bytes of the log are missing.
    TornTail,
}

impl Case {
    /// All, in the order of the tables.
    pub const ALL: &'static [Case] = &[
        Case::Clean,
        Case::Killed,
        Case::KilledBeforeCheckpoint,
        Case::KilledLongAgo,
        Case::IndexRemoved,
        Case::TornTail,
    ];

    /// As figures name it.
    pub fn name(self) -> &'static str {
        match self {
            Case::Clean => "clean",
            Case::Killed => "killed",
            Case::KilledBeforeCheckpoint => "killed-before-checkpoint",
            Case::KilledLongAgo => "killed-two-days-ago",
            Case::IndexRemoved => "index-removed",
            Case::TornTail => "torn-tail",
        }
    }
}

/// What a server left when it was killed, and when it was stopped in order after that.
pub struct Scene<'a> {
    context: &'a Context,
    partitions: u32,
    killed: PathBuf,
    clean: PathBuf,
    torn_bytes: u64,
}

impl<'a> Scene<'a> {
    /// Starts a server, has it filled, kills it; then starts it on a copy and stops it in order.
    ///
    /// # Errors
    /// Those of the server and of filling.
    pub fn make(
        context: &'a Context,
        partitions: u32,
        settings: &[(&str, u64)],
        fill: impl AsyncFnOnce(&Sink) -> Result<(), Failure>,
    ) -> Result<Scene<'a>, Failure> {
        let scene = Scene {
            context,
            partitions,
            killed: context.folder.join("killed"),
            clean: context.folder.join("clean"),
            torn_bytes: context.parameters.number("torn_bytes"),
        };
        for folder in [&scene.killed, &scene.clean, &scene.server()] {
            remove(folder)?;
        }
        let server = scene.start()?;
        block_on(async {
            let sink = Sink::wire(&server, (TOPIC, partitions), settings).await?;
            fill(&sink).await?;
            scene.await_checkpoint(&sink).await
        })?;
        server.kill()?;
        let data = scene.data();
        fs::rename(&data, &scene.killed).doing_to("rename", &data)?;
        copy(&scene.killed, &data)?;
        scene.start()?.stop()?;
        fs::rename(&data, &scene.clean).doing_to("rename", &data)?;
        Ok(scene)
    }

    fn server(&self) -> PathBuf {
        self.context.folder.join(SERVER)
    }

    fn data(&self) -> PathBuf {
        self.server().join("data")
    }

    /// Until the checkpoint has every partition's full segments: these were synced when they were
    /// left.
    async fn await_checkpoint(&self, sink: &Sink) -> Result<(), Failure> {
        let until = Instant::now() + CHECKPOINT_MAX;
        while Instant::now() < until {
            self.context.check()?;
            let points = recovery_points(&self.data(), self.partitions);
            let mut is_reached = points.iter().all(Option::is_some);
            for (partition, point) in (0..self.partitions).zip(points) {
                let segments = files::segments(&sink.directory(partition))?;
                let last = segments.last().map_or(0, |it| it.base);
                is_reached &= point.is_some_and(|it| last <= it);
            }
            if is_reached {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// A fresh copy for a case, in place of what was there before; where the server looks for it.
    ///
    /// # Errors
    /// Files that can't be copied, and more torn bytes than there are.
    pub fn prepare(&self, case: Case) -> Result<PathBuf, Failure> {
        let data = self.data();
        remove(&data)?;
        let source = if case == Case::Clean { &self.clean } else { &self.killed };
        copy(source, &data)?;
        match case {
            Case::Clean | Case::Killed => {}
            Case::KilledBeforeCheckpoint => remove_file(&data.join(CHECKPOINT))?,
            Case::KilledLongAgo => {
                let then = SystemTime::now() - LONG_AGO;
                self.each_file(&data, |path, _| set_modified(path, then))?;
            }
            Case::IndexRemoved => self.each_file(&data, |path, kind| {
                let is_index = matches!(kind, FileKind::Index | FileKind::TimeIndex);
                if is_index { remove_file(path) } else { Ok(()) }
            })?,
            Case::TornTail => self.tear(&data)?,
        }
        Ok(data)
    }

    /// Starts the server on what was prepared.
    ///
    /// # Errors
    /// Those of the server.
    pub fn start(&self) -> Result<Server, Failure> {
        start(self.context, SERVER, SETTINGS)
    }

    /// The log that Kafka keeps of its start; empty for others.
    pub fn said(&self) -> String {
        fs::read_to_string(self.server().join("server.log")).unwrap_or_default()
    }

    /// A partition's directory in a copy.
    pub fn directory(data: &Path, partition: u32) -> PathBuf {
        data.join(format!("{TOPIC}-{partition}"))
    }

    fn each_file(
        &self,
        data: &Path,
        what: impl Fn(&Path, FileKind) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for partition in 0..self.partitions {
            let directory = Scene::directory(data, partition);
            for (name, _) in files::listing(&directory)? {
                let file = SegmentFile::parse(&name).filter(|it| it.suffix == Suffix::None);
                if let Some(file) = file {
                    what(&directory.join(name), file.kind)?;
                }
            }
        }
        Ok(())
    }

    /// Cuts the newest bytes of partition 0 off.
    fn tear(&self, data: &Path) -> Result<(), Failure> {
        let directory = Scene::directory(data, 0);
        let segments = files::segments(&directory)?;
        let last = segments.last().ok_or_else(|| Failure::Wrong("no segment".to_owned()))?;
        let bytes = last.log.map_or(0, |it| it.bytes);
        let Some(left) = bytes.checked_sub(self.torn_bytes).filter(|it| 0 < *it) else {
            return Err(Failure::Usage(format!(
                "torn_bytes={}: the last segment has {bytes} bytes only; lower it",
                self.torn_bytes
            )));
        };
        let path = log_path(&directory, last.base);
        let file = File::options().write(true).open(&path).doing_to("open", &path)?;
        file.set_len(left).doing_to("shorten", &path)
    }
}

/// Starts a server in a folder of the cell, with the journal that the parameter asks for.
///
/// # Errors
/// Those of the server.
pub fn start(
    context: &Context,
    folder: &str,
    settings: &[(&str, &str)],
) -> Result<Server, Failure> {
    let journal = match context.parameters.choice("journal") {
        "always" => "true",
        "never" => "false",
        other => other,
    };
    let is_ours = context.engine().is_some_and(|it| it.of_library().is_some());
    let own = [("journal.enable", journal), ("journal.bytes", JOURNAL_BYTES)];
    let own = own.into_iter().filter(|_| is_ours);
    let settings: Vec<(&str, &str)> = settings.iter().copied().chain(own).collect();
    Server::start(context, folder, &settings)
}

/// A segment's `.log`.
pub fn log_path(directory: &Path, base: u64) -> PathBuf {
    directory.join(SegmentFile::new(Offset(base), FileKind::Log).to_string())
}

/// What the checkpoint of a data directory says of each partition.
pub fn recovery_points(data: &Path, partitions: u32) -> Vec<Option<u64>> {
    let bytes = fs::read(data.join(CHECKPOINT)).unwrap_or_default();
    let known = parse_offsets(&bytes).unwrap_or_default();
    let of = |number: u32| {
        let is_it = |it: &&uringlog::format::checkpoint::PartitionOffset| {
            it.topic.to_string() == TOPIC && it.partition.0 == number
        };
        known.iter().find(is_it).map(|it| it.offset.0)
    };
    (0..partitions).map(of).collect()
}

fn remove(folder: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).doing_to("remove", folder)
        }
        _ => Ok(()),
    }
}

fn remove_file(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).doing_to("remove", path)
        }
        _ => Ok(()),
    }
}

fn set_modified(path: &Path, at: SystemTime) -> Result<(), Failure> {
    let file = File::options().append(true).open(path).doing_to("open", path)?;
    file.set_times(FileTimes::new().set_modified(at)).doing_to("date back", path)
}

/// Copies a folder with its times; holes stay holes.
fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::create_dir_all(to).doing_to("make the folder", to)?;
    for entry in fs::read_dir(from).doing_to("list", from)? {
        let entry = entry.doing_to("list", from)?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let metadata = entry.metadata().doing_to("look at", &source)?;
        if metadata.is_dir() {
            copy(&source, &target)?;
        } else if metadata.is_file() {
            copy_file(&source, &target)?;
            let modified = metadata.modified().doing_to("look at", &source)?;
            set_modified(&target, modified)?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> Result<(), Failure> {
    const PIECE_BYTES: usize = 64 << 10;
    const STAT_BLOCK_BYTES: u64 = 512;
    let metadata = fs::metadata(from).doing_to("look at", from)?;
    if metadata.len() <= metadata.blocks() * STAT_BLOCK_BYTES {
        return fs::copy(from, to).map(drop).doing_to("copy", from);
    }
    let mut source = File::open(from).doing_to("open", from)?;
    let target = File::create(to).doing_to("make", to)?;
    target.set_len(metadata.len()).doing_to("lengthen", to)?;
    let (mut piece, mut at) = (vec![0; PIECE_BYTES], 0);
    loop {
        let length = source.read(&mut piece).doing_to("read", from)?;
        if length == 0 {
            return Ok(());
        }
        if piece[..length].iter().any(|it| *it != 0) {
            target.write_all_at(&piece[..length], at).doing_to("write", to)?;
        }
        at += u64_of(length);
    }
}

/// How many bytes two files differ in, the tail that only one has included.
///
/// # Errors
/// Files that can't be read; a missing one is an empty one.
pub fn differing_bytes(one: &[u8], other: &[u8]) -> u64 {
    let common = one.iter().zip(other).filter(|(one, other)| one != other).count();
    u64_of(common + one.len().abs_diff(other.len()))
}

/// Records that are readable from the beginning to the end of a partition.
///
/// # Errors
/// What the server refuses, and what is no batch.
pub async fn readable(sink: &Sink, partition: u32) -> Result<u64, Failure> {
    use uringlog::format::batch::BatchHeader;
    const ANSWER_BYTES: u32 = 1 << 20;
    let (mut offset, mut records) = (0, 0);
    let end = sink.end(partition).await?;
    while offset < end {
        let bytes = sink.read(partition, offset, ANSWER_BYTES).await?;
        let (mut rest, before) = (&bytes[..], offset);
        while let Ok(header) = BatchHeader::decode(rest) {
            let Some(behind) = rest.get(usize_of(header.size.0)..) else { break };
            let last = header.last_offset().map_or(0, |it| it.0);
            records += u64::try_from(header.record_count).unwrap_or_default();
            (offset, rest) = (last + 1, behind);
        }
        if offset == before {
            return Err(Failure::Wrong(format!("offset {offset} of {end} can't be read")));
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_the_same_and_keeps_holes_and_times() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("inner")).expect("a folder");
        fs::write(from.join("inner/full"), b"bytes").expect("a file");
        let sparse = File::create(from.join("sparse")).expect("a file");
        sparse.set_len(10 << 20).expect("a hole");
        sparse.write_all_at(b"end", (1 << 20) + 5).expect("some bytes");
        let then = SystemTime::now() - LONG_AGO;
        set_modified(&from.join("sparse"), then).expect("dated back");
        copy(&from, &to).expect("copied");
        for name in ["inner/full", "sparse"] {
            let read = |folder: &Path| fs::read(folder.join(name)).expect("it is there");
            assert_eq!(read(&from), read(&to), "{name}");
        }
        let metadata = fs::metadata(to.join("sparse")).expect("it is there");
        assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
        let modified = metadata.modified().expect("a time");
        assert!(modified.duration_since(then).unwrap_or_default() < Duration::from_secs(1));
    }

    #[test]
    fn differences_are_counted_with_the_tail() {
        assert_eq!(differing_bytes(b"abc", b"abc"), 0);
        assert_eq!(differing_bytes(b"abc", b"axcde"), 3);
        assert_eq!(differing_bytes(b"", b"ab"), 2);
    }
}
