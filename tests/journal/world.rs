//! The disk, the journals and the partitions of one history.

use std::path::Path;
use std::sync::Arc;

use uringlog::disk::faults::FaultHook;
use uringlog::disk::sim::{SimDisk, SimOptions};
use uringlog::disk::{Disk, Place, Plan};
use uringlog::format::batch::{Codec, RecordBatch};
use uringlog::format::properties::DirectoryId;
use uringlog::format::record::{BatchBuilder, NewRecord};
use uringlog::log::{Durability, Journal, LogConfig, LogSpec, LogState, PartitionLog};
use uringlog::units::{ByteCount, LeaderEpoch, Offset, Timestamp, TopicId};

use crate::known::Known;
use crate::random::Random;

pub const ROOT: &str = "/data";
pub const START: Timestamp = Timestamp(1_700_000_000_000);
pub const DIRECTORY_ID: DirectoryId = DirectoryId([9; 16]);
/// Numbers of the disk's users: logs count from 1, journals from here.
pub const JOURNAL_OWNER: u32 = 1 << 20;
/// Whoever replays and makes journals.
pub const MAKER: u32 = 1 << 21;
/// Whoever does a step that no log does.
pub const HANDS: u32 = 1 << 22;

/// What a history is played with.
#[derive(Clone, Debug)]
pub struct Settings {
    pub seed: u64,
    pub partitions: u32,
    pub shards: u32,
    /// Without one, every plan syncs its own file.
    pub is_journaled: bool,
    pub journal_bytes: ByteCount,
    pub plan_bytes_max: ByteCount,
    pub config: LogConfig,
}

impl Settings {
    pub fn of(seed: u64, random: &mut Random) -> Settings {
        let segment_bytes = random.of(&[3_000, 6_000, 20_000]);
        let retention_bytes = random.of(&[None, Some(ByteCount(2 * segment_bytes))]);
        let config = LogConfig {
            segment_bytes: ByteCount(segment_bytes),
            segment_ms: 5_000,
            index_interval_bytes: ByteCount(500),
            segment_index_bytes: ByteCount(10_000),
            retention_bytes,
            retention_ms: Some(30_000),
            file_delete_delay_ms: 5,
            preallocate: random.one_in(6),
            producer_expiration_ms: random.of(&[10, 86_400_000]),
            ..LogConfig::defaults(Durability::Device)
        };
        Settings {
            seed,
            partitions: 1 + u32::try_from(random.below(4)).expect("small"),
            shards: 1 + u32::try_from(random.below(2)).expect("small"),
            is_journaled: true,
            journal_bytes: ByteCount(4096 * (2 + random.of(&[8, 12, 24]))),
            plan_bytes_max: ByteCount(random.of(&[1_500, 4_000, 12_000])),
            config,
        }
    }
}

/// What is going on with a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Live,
    /// Its topic is deleted, and the directory still to be renamed.
    Retiring,
    /// There is none.
    Gone,
}

/// A partition by name. Topics come and go under it.
pub struct Slot {
    pub index: u32,
    pub directory: Arc<Path>,
    pub topic: TopicId,
    pub number: u32,
    pub phase: Phase,
    pub log: Option<PartitionLog>,
    pub known: Known,
}

/// Counters over many histories, so that a test can say that it tested something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub histories: u64,
    pub starts: u64,
    pub cut_starts: u64,
    pub acked: u64,
    pub records: u64,
    pub recorded_plans: u64,
    pub large_plans: u64,
    pub full: u64,
    pub settles: u64,
    pub replayed: u64,
    pub written: u64,
    pub voided: u64,
    pub deleted: u64,
    pub frozen: u64,
    pub restarts: u64,
    pub resumed: u64,
    pub offline: u64,
    pub retired: u64,
    pub clean_stops: u64,
    pub damaged: u64,
    pub refused: u64,
}

impl Counts {
    pub fn add(&mut self, other: Counts) {
        self.histories += other.histories;
        self.starts += other.starts;
        self.cut_starts += other.cut_starts;
        self.acked += other.acked;
        self.records += other.records;
        self.recorded_plans += other.recorded_plans;
        self.large_plans += other.large_plans;
        self.full += other.full;
        self.settles += other.settles;
        self.replayed += other.replayed;
        self.written += other.written;
        self.voided += other.voided;
        self.deleted += other.deleted;
        self.frozen += other.frozen;
        self.restarts += other.restarts;
        self.resumed += other.resumed;
        self.offline += other.offline;
        self.retired += other.retired;
        self.clean_stops += other.clean_stops;
        self.damaged += other.damaged;
        self.refused += other.refused;
    }
}

/// Everything.
pub struct World {
    pub settings: Settings,
    pub random: Random,
    /// Apart, so that a history is the same with and without journals.
    pub nonces: Random,
    pub now: Timestamp,
    pub disk: SimDisk,
    pub hook: FaultHook,
    pub journals: Vec<Journal>,
    pub slots: Vec<Slot>,
    /// Plans that open the journals' files.
    pub pending_opens: Vec<Plan>,
    pub counts: Counts,
    /// A sync was made to fail since the last check. What stood behind what was lost with it, in
    /// the next segment, may be left: a gap, though of nothing that was acknowledged.
    pub may_gap: bool,
    /// Whether what happens is told, for who looks at one history.
    is_told: bool,
    numbers: u32,
    batches: u64,
}

impl World {
    /// An empty disk.
    pub fn new(settings: Settings, random: Random) -> World {
        let hook = FaultHook::new();
        let options = SimOptions {
            seed: settings.seed,
            root: ROOT.into(),
            reorders: true,
            faults: Some(hook.clone()),
            ..SimOptions::default()
        };
        let mut world = World {
            random,
            nonces: Random::new(!settings.seed),
            now: START,
            disk: SimDisk::new(options),
            hook,
            journals: Vec::new(),
            slots: Vec::new(),
            pending_opens: Vec::new(),
            counts: Counts::default(),
            may_gap: false,
            is_told: std::env::var_os("JOURNAL_SEED").is_some(),
            numbers: 0,
            batches: 0,
            settings,
        };
        for index in 0..world.settings.partitions {
            let directory = Arc::from(Path::new(ROOT).join(format!("topic-{index}")));
            world.slots.push(Slot {
                index,
                directory,
                topic: TopicId([0; 16]),
                number: 0,
                phase: Phase::Gone,
                log: None,
                known: Known::default(),
            });
        }
        world
    }

    pub fn tell(&self, what: impl FnOnce() -> String) {
        if self.is_told {
            eprintln!("{} {}", self.now.0 - START.0, what());
        }
    }

    pub fn pass_time(&mut self, ms: i64) {
        self.now = Timestamp(self.now.0 + ms);
        self.disk.set_now(self.now);
    }

    pub fn root() -> Arc<Path> {
        Arc::from(Path::new(ROOT))
    }

    /// A number that no log had before.
    pub fn new_number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    pub fn spec(&self, slot: usize) -> LogSpec {
        let slot = &self.slots[slot];
        LogSpec {
            number: slot.number,
            directory: slot.directory.clone(),
            topic_id: slot.topic,
            config: self.settings.config.clone(),
            leader_epoch: LeaderEpoch(0),
            jitter_seed: 1,
        }
    }

    /// Makes a partition under a new topic id; nothing else is under way.
    pub fn create(&mut self, slot: usize) {
        let number = self.new_number();
        let mut topic = [7; 16];
        topic[..4].copy_from_slice(&number.to_be_bytes());
        let at = &mut self.slots[slot];
        (at.number, at.topic, at.known) = (number, TopicId(topic), Known::default());
        let (mut log, plan) = PartitionLog::create(self.spec(slot), self.now);
        let finished = self.disk.run(plan);
        if self.disk.is_crashed() {
            return;
        }
        assert_eq!(finished.result, Ok(()), "nothing fails while a partition is made");
        log.complete(finished, self.now);
        self.slots[slot].log = Some(log);
        self.slots[slot].phase = Phase::Live;
    }

    /// Which journal a partition's log uses.
    pub fn journal_of(&self, slot: usize) -> Option<usize> {
        let shards = u32::try_from(self.journals.len()).expect("small");
        let shard = self.slots[slot].index.checked_rem(shards)?;
        usize::try_from(shard).ok()
    }

    pub fn journal_place(shard: u32) -> Place {
        let name = uringlog::format::journal::file_name(shard).into_boxed_str();
        Place { directory: World::root(), name }
    }

    /// A batch unlike any other.
    pub fn batch(&mut self, records: u64, bytes: usize) -> RecordBatch {
        self.batches += 1;
        let mut builder = BatchBuilder::new(Codec::None);
        let letter = b'a' + u8::try_from(self.batches % 26).expect("small");
        let mut value = vec![letter; bytes.max(8)];
        value[..8].copy_from_slice(&self.batches.to_be_bytes());
        let timestamp = self.now;
        for _ in 0..records {
            let value = Some(value.as_slice());
            builder.push(&NewRecord { timestamp, key: None, value, headers: &[] });
        }
        builder.build()
    }

    /// Appends a batch and notes it.
    pub fn append(&mut self, slot: usize, batch: RecordBatch) {
        let mut bytes = batch.as_bytes().to_vec();
        let now = self.now;
        let slot = &mut self.slots[slot];
        let Some(log) = slot.log.as_mut().filter(|log| log.state() == LogState::Serving) else {
            return;
        };
        let appended = log.append(batch, now).expect("a valid batch");
        bytes[..8].copy_from_slice(&appended.base_offset.0.to_be_bytes());
        bytes[12..16].copy_from_slice(&log.leader_epoch().0.to_be_bytes());
        let (index, base, last) = (slot.index, appended.base_offset, appended.last_offset);
        slot.known.stage(appended.base_offset.0, appended.last_offset.0, bytes);
        self.tell(|| format!("append topic-{index} {base} to {last}"));
    }

    pub fn slot_of(&self, number: u32) -> Option<usize> {
        self.slots.iter().position(|slot| slot.number == number && slot.log.is_some())
    }

    /// What an acknowledgement and the checkpoints say.
    pub fn note(&mut self, slot: usize) {
        let Slot { log, known, .. } = &mut self.slots[slot];
        let Some(log) = log else { return };
        let cursors = log.cursors();
        known.ack(cursors.high_watermark);
        if log.append_refusal().is_some() {
            known.refuse(cursors.log_end);
        }
        known.log_start = known.log_start.max(cursors.log_start);
        known.recovery_point = known.recovery_point.max(cursors.recovery_point);
    }

    pub fn high_watermark(&self, slot: usize) -> Offset {
        let log = self.slots[slot].log.as_ref();
        log.map_or(Offset(0), |log| log.cursors().high_watermark)
    }
}
