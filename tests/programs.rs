//! Programs with random parameters (limits of segments and indexes, sizes, timestamps, codecs,
//! restarts) run through all three disks: the directories must be the same.
//!
//! With `PROGRAMS_OUT` naming a folder, each program is written there as lines, for a run through a
//! real Kafka outside of CI: `scripts/golden --programs` runs them and makes an archive, which
//! `cargo test --test golden` then repeats and compares (`scripts/golden --help`).

#[expect(dead_code, reason = "each test uses its own part")]
mod support;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::BytesMut;
use proptest::prelude::*;
use support::{CLEAN, START, Store, spec};
use uringlog::disk::plain::PlainDisk;
use uringlog::disk::sim::{SimDisk, SimOptions};
use uringlog::disk::{Disk, FileId, Lane, Place, Plan, PlanTag, Step};
use uringlog::format::batch::{Codec, RecordBatch};
use uringlog::format::record::{BatchBuilder, NewRecord};
use uringlog::log::{Durability, LogConfig, LogSpec, TimestampType};
use uringlog::ring::{RingDisk, RingOptions};
use uringlog::units::{ByteCount, LeaderEpoch, Position, Timestamp, usize_of};

/// The smallest `segment.bytes` of Kafka.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// The largest payload of a batch, well below `max.message.bytes`.
const BATCH_BYTES_MAX: usize = 300_000;
/// A stop and start raise the leader epoch by so much.
const EPOCHS_PER_RESTART: i32 = 2;
/// Times of records are counted from here; none lies in the future.
const FIRST_MS: i64 = START.0 - 400_000_000;
/// Time between two actions.
const PACE_MS: i64 = 10;

#[derive(Clone, Debug)]
struct Settings {
    segment_bytes: u64,
    segment_ms: u64,
    index_interval_bytes: u64,
    segment_index_bytes: u64,
    is_stamped: bool,
    compression: Option<Codec>,
    preallocate: bool,
}

#[derive(Clone, Debug)]
enum Action {
    Append(Sent),
    /// A stop in order, and a start.
    Restart,
}

#[derive(Clone, Debug)]
struct Sent {
    count: usize,
    size: usize,
    timestamp: i64,
    step: i64,
    codec: Codec,
}

#[derive(Clone, Debug)]
struct Program {
    settings: Settings,
    actions: Vec<Action>,
}

fn codec() -> impl Strategy<Value = Codec> {
    let codecs = [Codec::None, Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    prop::sample::select(codecs.to_vec())
}

fn settings() -> impl Strategy<Value = Settings> {
    let limits = (
        SEGMENT_BYTES_MIN..2 * SEGMENT_BYTES_MIN,
        600_000_u64..90_000_000,
        prop_oneof![Just(0_u64), 1_u64..5_000, 5_000_u64..100_000],
        prop_oneof![96_u64..600, Just(10 << 20)],
    );
    let kinds = (prop::bool::weighted(0.2), prop::option::weighted(0.2, codec()), prop::bool::ANY);
    (limits, kinds).prop_map(|(limits, (is_stamped, compression, preallocate))| Settings {
        segment_bytes: limits.0,
        segment_ms: limits.1,
        index_interval_bytes: limits.2,
        segment_index_bytes: limits.3,
        is_stamped,
        compression,
        preallocate,
    })
}

fn sent() -> impl Strategy<Value = Sent> {
    let size = prop_oneof![0_usize..100, 100_usize..4_000, 4_000_usize..BATCH_BYTES_MAX];
    let time = prop_oneof![
        6 => 0_i64..100_000,
        2 => -200_000_000_i64..200_000_000,
        1 => Just(-1 - FIRST_MS),
    ];
    let step = prop_oneof![Just(0_i64), -50_i64..50];
    (1_usize..80, size, time, step, codec()).prop_map(|(count, size, time, step, codec)| Sent {
        count: count.min(BATCH_BYTES_MAX / (size + 20)).max(1),
        size,
        timestamp: FIRST_MS + time,
        // Without a time there is none in the whole batch.
        step: if FIRST_MS + time < 0 { 0 } else { step },
        codec,
    })
}

fn program() -> impl Strategy<Value = Program> {
    let action = prop_oneof![
        20 => sent().prop_map(Action::Append),
        1 => Just(Action::Restart),
    ];
    (settings(), prop::collection::vec(action, 10..90))
        .prop_map(|(settings, actions)| Program { settings, actions })
}

impl Settings {
    fn config(&self) -> LogConfig {
        LogConfig {
            segment_bytes: ByteCount(self.segment_bytes),
            segment_ms: self.segment_ms,
            index_interval_bytes: ByteCount(self.index_interval_bytes),
            segment_index_bytes: ByteCount(self.segment_index_bytes),
            timestamp_type: match self.is_stamped {
                true => TimestampType::LogAppendTime,
                false => TimestampType::CreateTime,
            },
            compression: self.compression,
            preallocate: self.preallocate,
            retention_ms: None,
            retention_bytes: None,
            ..LogConfig::defaults(Durability::PageCache)
        }
    }

    /// As a topic's settings.
    fn line(&self) -> String {
        let Settings { segment_bytes, segment_ms, index_interval_bytes, .. } = self;
        let mut line = format!(
            "topic segment.bytes={segment_bytes} segment.ms={segment_ms} retention.ms=-1 \
             index.interval.bytes={index_interval_bytes} segment.index.bytes={} preallocate={}",
            self.segment_index_bytes, self.preallocate
        );
        if self.is_stamped {
            line.push_str(" message.timestamp.type=LogAppendTime");
        }
        match self.compression {
            None => {}
            Some(Codec::None) => line.push_str(" compression.type=uncompressed"),
            Some(codec) => write!(line, " compression.type={}", codec.name()).expect("a string"),
        }
        line
    }
}

impl Sent {
    fn batch(&self) -> RecordBatch {
        let mut builder = BatchBuilder::new(self.codec);
        for number in 0..self.count {
            let letter = |at: usize| b'a' + u8::try_from((at * at + number) % 23).expect("small");
            let value: Vec<u8> = (0..self.size).map(letter).collect();
            let step = self.step * i64::try_from(number).expect("small");
            builder.push(&NewRecord::value(Timestamp(self.timestamp + step), &value));
        }
        builder.build()
    }
}

impl Program {
    /// Lines for the client of `scripts/golden`.
    fn lines(&self) -> String {
        let mut lines = self.settings.line();
        for (seed, action) in self.actions.iter().enumerate() {
            lines.push('\n');
            match action {
                Action::Restart => lines.push_str("restart"),
                Action::Append(Sent { count, size, timestamp, step, codec }) => write!(
                    lines,
                    "batch n={count} size={size} ts={timestamp} step={step} codec={} seed={seed}",
                    codec.name()
                )
                .expect("a string takes it"),
            }
        }
        lines + "\n"
    }

    fn run<D: Disk>(&self, disk: D, root: &Path) -> BTreeMap<String, Vec<u8>> {
        let place = root.join("topic-0");
        let mut number = support::OWNER;
        let spec_of = |number| LogSpec { number, ..spec(&place, self.settings.config()) };
        let mut store = Store::create(disk, spec_of(number));
        for action in &self.actions {
            store.now = Timestamp(store.now.0 + PACE_MS);
            match action {
                Action::Append(sent) => {
                    store.append(sent.batch());
                    store.settle();
                }
                Action::Restart => {
                    number += 1;
                    store = restart(store, spec_of(number));
                }
            }
        }
        store.close();
        files(&mut store.disk, &place)
    }
}

fn restart<D: Disk>(mut store: Store<D>, spec: LogSpec) -> Store<D> {
    store.close();
    let (now, epoch) = (store.now, store.log.leader_epoch());
    let (mut store, report) = Store::open(store.disk, spec, CLEAN).expect("it opens");
    assert!(report.is_uneventful(), "{report}");
    store.now = now;
    store.log.become_leader(LeaderEpoch(epoch.0 + EPOCHS_PER_RESTART), now);
    store.settle();
    store
}

/// Every file of a directory, read through the disk.
fn files<D: Disk>(disk: &mut D, directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for (number, entry) in (0..).zip(disk.list(directory).expect("it is there")) {
        let file = FileId { owner: u32::MAX, number };
        let place = Place { directory: directory.into(), name: entry.name.as_str().into() };
        let bytes = BytesMut::zeroed(usize_of(entry.length.0));
        let steps = [
            Step::Open { file, place },
            Step::Read { file, at: Position(0), bytes },
            Step::Close { file },
        ];
        let tag = PlanTag { owner: u32::MAX, lane: Lane::Read, number: 0 };
        let finished = disk.run(Plan { tag, steps: steps.into_iter().collect() });
        assert_eq!(finished.result, Ok(()), "{}", entry.name);
        let read = finished.plan.steps.into_iter().nth(1);
        let Some(Step::Read { bytes, .. }) = read else { panic!("the second step is a read") };
        files.insert(entry.name, bytes.to_vec());
    }
    files
}

fn simulated(root: &Path) -> SimDisk {
    let root = root.to_owned();
    let mut disk = SimDisk::new(SimOptions { seed: 1, root, ..SimOptions::default() });
    disk.set_now(uringlog::shard::now());
    disk
}

/// Keeps a program for a run through Kafka.
fn write_down(program: &Program) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let Some(folder) = std::env::var_os("PROGRAMS_OUT").map(PathBuf::from) else { return };
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(format!("program-{number}")), program.lines()).expect("writable");
}

fn assert_same(left: &BTreeMap<String, Vec<u8>>, right: &BTreeMap<String, Vec<u8>>, disk: &str) {
    assert_eq!(left.keys().collect::<Vec<_>>(), right.keys().collect::<Vec<_>>(), "{disk}");
    for (name, bytes) in left {
        assert!(*bytes == right[name], "{disk}: {name} differs");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 40, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn programs_leave_the_same_on_every_disk(program in program()) {
        write_down(&program);
        let one = tempfile::tempdir().expect("a temporary directory");
        let two = tempfile::tempdir().expect("a temporary directory");
        let plain = program.run(PlainDisk::new(4_000, None), one.path());
        let options = RingOptions { files_max: 4_000, ..RingOptions::default() };
        let ring = program.run(RingDisk::new(options).expect("io_uring"), two.path());
        let root = PathBuf::from("/data");
        let simulated = program.run(simulated(&root), &root);
        prop_assert!(4 <= plain.len(), "something is left");
        assert_same(&plain, &ring, "ring");
        assert_same(&plain, &simulated, "simulated");
    }
}
