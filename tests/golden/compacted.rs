//! What Kafka's cleaner left of six topics, after each of three passes: the same histories and the
//! same clock must leave the same files, byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uringlog::broker::config::ServerConfig;
use uringlog::disk::plain::PlainDisk;
use uringlog::disk::{Disk, Plan};
use uringlog::format::batch::{BatchHeader, Codec, HEADER_BYTES, RecordBatch};
use uringlog::format::index::OFFSET_ENTRY_BYTES;
use uringlog::format::{checkpoint, codec, partition_metadata};
use uringlog::log::{LogSpec, Opening, PartitionLog};
use uringlog::units::{ByteCount, LeaderEpoch, Offset, Timestamp, TopicId};

use crate::compacted_case::{Event, History, histories};
use crate::driver::{EPOCHS_PER_RESTART, FILES_MAX, differences, files, marker, resolve};
use crate::keep::Keep;
use crate::rounds::{self, MEMORY};

struct Replay {
    log: PartitionLog,
    disk: PlainDisk,
    spec: LogSpec,
    server: ServerConfig,
    configs: BTreeMap<String, String>,
    first_dirty: Option<Offset>,
    is_running: bool,
    folder: String,
    files: usize,
    /// Files that are the same but for how their batches are packed.
    repacked: usize,
    differences: Vec<String>,
    _directory: tempfile::TempDir,
}

/// Repeats every topic of a case, and keeps what is left where that is wanted; returns how many
/// files were compared, and what differs.
pub fn repeat_case(root: &Path, keep: &Keep) -> (usize, Vec<String>) {
    let (mut files, mut repacked, mut differences) = (0, 0, Vec::new());
    for history in histories(root) {
        let replay = repeat(history);
        keep.partition(&replay.spec.directory, &replay.configs, None);
        files += replay.files;
        repacked += replay.repacked;
        differences.extend(replay.differences);
    }
    if repacked != 0 {
        println!("  {repacked} of them hold the same records packed by another compressor");
    }
    (files, differences)
}

fn repeat(history: History) -> Replay {
    let mut copies: Vec<(Timestamp, PathBuf)> = Vec::new();
    for (at, event) in &history.events {
        if let Event::Copied(copy) = event {
            copies.push((*at, copy.clone()));
        }
    }
    let mut replay = Replay::create(&history, &copies[0].1);
    let end = history.events.last().map_or(history.created, |it| it.0);
    for (at, event) in history.events {
        match event {
            Event::Clean => {
                let left = copies.iter().find(|(copied, _)| at < *copied).expect("a copy");
                let began = replay.began(at, &left.1);
                replay.clean(began);
            }
            event => replay.take(event, at),
        }
    }
    if replay.is_running {
        replay.take(Event::Stop, end);
    }
    replay
}

fn topic_id(folder: &Path) -> TopicId {
    let bytes = fs::read(folder.join("partition.metadata")).expect("a file");
    partition_metadata::parse(&bytes).expect("Kafka's")
}

impl Replay {
    fn create(history: &History, copy: &Path) -> Replay {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let folder = format!("{}-0", history.topic);
        let path: Arc<Path> = directory.path().join(&folder).into();
        let spec = LogSpec {
            number: 1,
            directory: path,
            topic_id: topic_id(&copy.join(&folder)),
            config: resolve(&history.server, &history.configs),
            leader_epoch: LeaderEpoch(0),
            jitter_seed: 0,
        };
        let (log, plan) = PartitionLog::create(spec.clone(), history.created);
        let mut replay = Replay {
            log,
            disk: PlainDisk::new(FILES_MAX, None),
            spec,
            server: history.server.clone(),
            configs: history.configs.clone(),
            first_dirty: None,
            is_running: true,
            folder,
            files: 0,
            repacked: 0,
            differences: Vec::new(),
            _directory: directory,
        };
        replay.run(plan, history.created);
        replay
    }

    fn run(&mut self, plan: Plan, now: Timestamp) {
        let finished = self.disk.run(plan);
        assert_eq!(finished.result, Ok(()), "{:?}", finished.plan);
        self.log.complete(finished, now);
    }

    fn take(&mut self, event: Event, now: Timestamp) {
        match event {
            Event::Append(batch) => self.append(batch, now),
            Event::Configure(configs) => {
                self.configs.extend(configs);
                self.spec.config = resolve(&self.server, &self.configs);
                self.log.reconfigure(self.spec.config.clone());
            }
            Event::Retain if self.is_running => {
                self.log.retain(now);
            }
            Event::Retain => {}
            Event::Stop => {
                let plan = self.log.close(now);
                self.run(plan, now);
                self.is_running = false;
            }
            Event::Start => self.start(now),
            Event::Copied(copy) => {
                if self.is_running {
                    rounds::settle(&mut self.log, &mut self.disk, now);
                }
                self.compare(&copy);
            }
            Event::Clean => unreachable!("it has its own time"),
        }
        if self.is_running {
            rounds::settle(&mut self.log, &mut self.disk, now);
        }
    }

    fn append(&mut self, batch: RecordBatch, now: Timestamp) {
        // Kafka 4.3 has transaction version 2.
        let appended = match marker(&batch, true) {
            Some(marker) => self.log.append_marker(&marker, now),
            None => self.log.append_verified(batch, now),
        };
        assert!(!appended.expect("Kafka took it").duplicate);
    }

    fn start(&mut self, now: Timestamp) {
        let how = Opening {
            clean: true,
            recovery_point: Some(self.log.cursors().recovery_point),
            log_start: None,
            leader_epoch_bump: false,
        };
        self.spec.leader_epoch.0 += EPOCHS_PER_RESTART;
        let opened = PartitionLog::open(&mut self.disk, self.spec.clone(), how, now);
        let (log, report) = opened.expect("it opens");
        assert!(!report.is_lossy(), "{report}");
        self.log = log;
        self.log.set_first_dirty(self.first_dirty);
        self.is_running = true;
        self.log.become_leader(self.spec.leader_epoch, now);
    }

    fn clean(&mut self, now: Timestamp) {
        let options = rounds::options(MEMORY, 10_000);
        let report = rounds::clean(&mut self.log, &mut self.disk, options, now);
        let report = report.expect("something is dirty");
        self.first_dirty = Some(report.to);
    }

    /// When a pass began: horizons that it gave say it, the log line is a few ms later.
    fn began(&self, logged: Timestamp, left: &Path) -> Timestamp {
        let retention_ms = i64::try_from(self.spec.config.delete_retention_ms).expect("small");
        for (_, bytes) in files(&left.join(&self.folder)).iter().filter(|it| it.0.ends_with(".log"))
        {
            let mut rest = &bytes[..];
            while let Ok(header) = BatchHeader::decode(rest) {
                let began = header.base_timestamp.0 - retention_ms;
                if header.has_delete_horizon() && (0..=20).contains(&(logged.0 - began)) {
                    return Timestamp(began);
                }
                rest = &rest[usize::try_from(header.size.0).expect("small")..];
            }
        }
        logged
    }

    /// Every file, byte for byte, but for the packing of records and what follows from it. And the
    /// checkpoint's line.
    fn compare(&mut self, copy: &Path) {
        let place = copy.join(&self.folder);
        let (mut ours, theirs) = (files(&self.spec.directory), files(&place));
        self.files += theirs.len();
        for (name, bytes) in &theirs {
            let Some(found) = ours.get(name).filter(|it| *it != bytes && is_repacked(it, bytes))
            else {
                continue;
            };
            self.repacked += 1;
            let index = name.replacen(".log", ".index", 1);
            let at_theirs = ours.get(&index).map(|it| moved(it, found, bytes));
            ours.extend(at_theirs.map(|it| (index, it)));
            ours.insert(name.clone(), bytes.clone());
        }
        self.differences.extend(differences(&ours, &place, true));
        let text = fs::read(copy.join("cleaner-offset-checkpoint")).expect("a checkpoint");
        let lines = checkpoint::parse_offsets(&text).expect("Kafka's");
        let line =
            lines.iter().find(|it| format!("{}-{}", it.topic, it.partition.0) == self.folder);
        assert_eq!(self.first_dirty, line.map(|it| it.offset), "{}", place.display());
    }
}

fn is_repacked(ours: &[u8], theirs: &[u8]) -> bool {
    unpacked(ours).is_some_and(|it| Some(it) == unpacked(theirs))
}

/// Our offset index as it would be if the batches of our `.log` lay where those of Kafka's lie.
fn moved(index: &[u8], ours: &[u8], theirs: &[u8]) -> Vec<u8> {
    const POSITION_AT: usize = 4;
    let (ours, theirs) = (positions(ours), positions(theirs));
    let entries = index.chunks_exact(OFFSET_ENTRY_BYTES).flat_map(|entry| {
        let (offset, position) = entry.split_at(POSITION_AT);
        let number = ours.iter().position(|it| it == position);
        let to = number.and_then(|it| theirs.get(it)).map_or(position, |it| &it[..]);
        [offset, to].concat()
    });
    entries.collect()
}

/// Where the batches of a `.log` begin, as an index has it.
fn positions(bytes: &[u8]) -> Vec<[u8; 4]> {
    let (mut at, mut positions) = (0, Vec::new());
    while let Ok(header) = BatchHeader::decode(&bytes[at..]) {
        positions.push(u32::try_from(at).expect("a segment is that short").to_be_bytes());
        at += usize::try_from(header.size.0).expect("small");
    }
    positions
}

/// The batches of a `.log`, records unpacked, without what depends on the packing; `None` where
/// nothing is packed.
fn unpacked(bytes: &[u8]) -> Option<Vec<(BatchHeader, Vec<u8>)>> {
    let (mut rest, mut batches, mut is_packed) = (bytes, Vec::new(), false);
    while !rest.is_empty() {
        let header = BatchHeader::decode(rest).ok()?;
        let size = usize::try_from(header.size.0).expect("small");
        let packed = &rest[HEADER_BYTES..size];
        let codec = header.codec().expect("Kafka's");
        let records = codec::decompress(codec, packed, ByteCount(1 << 20)).expect("Kafka's");
        is_packed |= codec != Codec::None;
        batches.push((BatchHeader { size: ByteCount(0), crc: 0, ..header }, records.to_vec()));
        rest = &rest[size..];
    }
    is_packed.then_some(batches)
}
