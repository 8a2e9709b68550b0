//! Random histories of a compacted log: plain, idempotent and transactional producers, all codecs,
//! tombstones, restarts. And what must be true of such a log, whatever was cleaned.

use std::collections::BTreeMap;
use std::path::Path;

use uringlog::disk::Disk;
use uringlog::format::batch::{Codec, RecordBatch};
use uringlog::format::codec;
use uringlog::format::record::{BatchBuilder, NewRecord, RecordsIter};
use uringlog::log::clean::RoundReport;
use uringlog::log::producers::Marker;
use uringlog::log::{CleanupPolicy, Durability, LogConfig, LogSpec};
use uringlog::units::{ByteCount, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use crate::rounds::{self, MEMORY};
use crate::support::{self, CLEAN, KILLED, Store};

pub const DELETE_RETENTION_MS: i64 = 1_000;
const KEYS: u64 = 9;
const IDEMPOTENT: ProducerId = ProducerId(7);
const TRANSACTIONAL: ProducerId = ProducerId(9);

/// xorshift64*: small, and the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % bound
    }
}

/// A record as it is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    pub offset: u64,
    pub timestamp: i64,
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

/// What became of a record's transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Counts,
    Aborted,
    Open,
}

/// A history, and what it wrote.
pub struct History<D> {
    pub store: Store<D>,
    pub random: Random,
    spec: LogSpec,
    written: BTreeMap<u64, (Stored, Fate)>,
    sequence: i32,
    /// Epoch, next sequence, and whether a transaction is open.
    transaction: (i16, i32, bool),
    /// When a round first found an offset, and when one first went over it. A horizon begins with
    /// the latter, or earlier: with a segment that is gone over in part.
    found_at: BTreeMap<u64, i64>,
    cleaned_at: BTreeMap<u64, i64>,
}

pub fn config(tier: Durability) -> LogConfig {
    LogConfig {
        cleanup_policy: CleanupPolicy { delete: false, compact: true },
        segment_bytes: ByteCount(2_500),
        delete_retention_ms: DELETE_RETENTION_MS.unsigned_abs(),
        file_delete_delay_ms: 5,
        retention_ms: None,
        ..support::config(tier)
    }
}

pub fn spec(directory: &Path, config: LogConfig) -> LogSpec {
    support::spec(&directory.join("topic-0"), config)
}

impl<D: Disk> History<D> {
    pub fn create(disk: D, spec: LogSpec, seed: u64) -> History<D> {
        History {
            store: Store::create(disk, spec.clone()),
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            spec,
            written: BTreeMap::new(),
            sequence: 0,
            transaction: (0, 0, false),
            found_at: BTreeMap::new(),
            cleaned_at: BTreeMap::new(),
        }
    }

    /// One random append, or a step of the clock.
    pub fn act(&mut self) {
        self.store.now.0 += self.random.below(40).cast_signed();
        match self.random.below(12) {
            0..6 => {
                let batch = self.batch(|builder| builder, Fate::Counts);
                self.store.append(batch);
            }
            6..8 => {
                let sequence = self.sequence;
                let (id, epoch) = (IDEMPOTENT, ProducerEpoch(0));
                let of = |it: BatchBuilder| it.with_producer(id, epoch, Sequence(sequence));
                let batch = self.batch(of, Fate::Counts);
                self.sequence += batch.header().record_count;
                self.store.append(batch);
            }
            8..11 => self.transact(),
            _ => self.store.settle(),
        }
    }

    fn transact(&mut self) {
        let (epoch, sequence, is_open) = self.transaction;
        if is_open && self.random.below(2) == 0 {
            return self.end_transaction();
        }
        let of = |it: BatchBuilder| {
            it.with_producer(TRANSACTIONAL, ProducerEpoch(epoch), Sequence(sequence))
                .transactional()
        };
        let batch = self.batch(of, Fate::Open);
        self.transaction = (epoch, sequence + batch.header().record_count, true);
        let now = self.store.now;
        self.store.log.append_verified(batch, now).expect("the coordinator vouches for it");
    }

    pub fn end_transaction(&mut self) {
        let (epoch, _, is_open) = self.transaction;
        if !is_open {
            return;
        }
        let commits = self.random.below(2) == 0;
        let marker = Marker {
            producer_id: TRANSACTIONAL,
            epoch: ProducerEpoch(epoch + 1),
            raises_epoch: true,
            coordinator_epoch: 0,
            commits,
        };
        let now = self.store.now;
        self.store.log.append_marker(&marker, now).expect("it is the coordinator's");
        self.transaction = (epoch + 1, 0, false);
        let fate = if commits { Fate::Counts } else { Fate::Aborted };
        for (_, now) in self.written.values_mut().filter(|it| it.1 == Fate::Open) {
            *now = fate;
        }
    }

    fn batch(&mut self, of: impl FnOnce(BatchBuilder) -> BatchBuilder, fate: Fate) -> RecordBatch {
        const CODECS: [Codec; 5] =
            [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
        let codec = CODECS[usize::try_from(self.random.below(5)).expect("small")];
        let mut builder = of(BatchBuilder::new(codec));
        let base = self.store.log.cursors().next.0;
        for number in 0..1 + self.random.below(4) {
            let stored = self.record(base + number);
            builder.push(&NewRecord {
                timestamp: Timestamp(stored.timestamp),
                key: Some(&stored.key),
                value: stored.value.as_deref(),
                headers: &[],
            });
            self.written.insert(base + number, (stored, fate));
        }
        builder.build()
    }

    fn record(&mut self, offset: u64) -> Stored {
        let key = format!("key-{}", self.random.below(KEYS)).into_bytes();
        let length = 1 + self.random.below(120);
        let value = (self.random.below(4) != 0).then(|| {
            let letters = (0..length).map(|at| b'a' + u8::try_from(at % 26).expect("small"));
            [format!("{offset}:").into_bytes(), letters.collect()].concat()
        });
        let timestamp = self.store.now.0 - self.random.below(5).cast_signed();
        Stored { offset, timestamp, key, value }
    }

    /// A stop, in order or by a kill, and a start.
    pub fn restart(mut self, is_clean: bool) -> History<D> {
        self.store.settle();
        if is_clean {
            self.store.close();
        }
        let cursors = self.store.log.cursors();
        let how = uringlog::log::Opening {
            recovery_point: Some(cursors.recovery_point),
            ..if is_clean { CLEAN } else { KILLED }
        };
        let (first_dirty, now) = (self.store.log.first_dirty(), self.store.now);
        self.spec.number += 1;
        let (mut store, report) =
            Store::open(self.store.disk, self.spec.clone(), how).expect("it opens");
        assert!(!report.is_lossy(), "{report}");
        store.now = now;
        store.log.set_first_dirty(first_dirty);
        store.log.become_leader(store.log.leader_epoch(), now);
        History { store, ..self }
    }

    /// A round; checks what it leaves.
    pub fn clean(&mut self, memory: ByteCount) -> Option<RoundReport> {
        self.store.settle();
        let before = self.read();
        let options = rounds::options(memory, 700);
        let Store { log, disk, now } = &mut self.store;
        let report = rounds::clean(log, disk, options, *now)?;
        let after = self.read();
        self.check_round(&before, &after, report.to.0);
        self.check_visible();
        Some(report)
    }

    pub fn clean_all(&mut self) -> Option<RoundReport> {
        self.clean(MEMORY)
    }

    /// All records of the log, in order.
    pub fn read(&mut self) -> Vec<Stored> {
        let batches = self.store.batches_from(Offset(0));
        batches.iter().filter(|it| !it.header().is_control()).flat_map(records).collect()
    }

    /// Whether `after` is what a round up to `to` may leave of `before`.
    fn check_round(&mut self, before: &[Stored], after: &[Stored], to: u64) {
        let now = self.store.now.0;
        let mut newest: BTreeMap<&[u8], u64> = BTreeMap::new();
        for (offset, (stored, fate)) in self.written.range(..to) {
            if *fate == Fate::Counts {
                newest.insert(&stored.key, *offset);
            }
        }
        let is_left = |it: &Stored| after.binary_search_by_key(&it.offset, |it| it.offset).is_ok();
        for stored in before {
            let Stored { offset, key, value, .. } = stored;
            let (known, fate) = &self.written[offset];
            assert_eq!(known, stored, "it reads as it was written");
            let found = *self.found_at.entry(*offset).or_insert(now);
            let first = *self.cleaned_at.entry(*offset).or_insert(now);
            let is_newest = newest.get(&key[..]) == Some(offset);
            let wanted = match () {
                // It goes as soon as its segment is written anew.
                () if to <= *offset && *fate == Fate::Aborted => is_left(stored),
                () if to <= *offset => {
                    self.cleaned_at.remove(offset);
                    true
                }
                () if *fate == Fate::Aborted || !is_newest => false,
                () if value.is_some() => true,
                () if now < found + DELETE_RETENTION_MS => true,
                () if first + DELETE_RETENTION_MS <= now => false,
                () => is_left(stored),
            };
            assert_eq!(is_left(stored), wanted, "{stored:?}, {fate:?}, up to {to}, now {now}");
        }
        for stored in after {
            assert_eq!(&self.written[&stored.offset].0, stored, "records don't change");
        }
    }

    /// A reader of committed records sees the newest value of each key, and nothing that was
    /// aborted.
    pub fn check_visible(&mut self) {
        let end = self.store.log.last_stable();
        let mut wanted: BTreeMap<&[u8], &Stored> = BTreeMap::new();
        for (stored, fate) in self.written.range(..end.0).map(|it| it.1) {
            if *fate == Fate::Counts {
                wanted.insert(&stored.key, stored);
            }
        }
        wanted.retain(|_, stored| stored.value.is_some());
        let batches = self.store.batches_from(Offset(0));
        let committed = committed(&batches, end, |from, to| {
            self.store.log.aborted(from, to).map(|it| (it.producer_id, it.first_offset)).collect()
        });
        let mut found: BTreeMap<&[u8], &Stored> = BTreeMap::new();
        for stored in &committed {
            assert_ne!(self.written[&stored.offset].1, Fate::Aborted, "{stored:?}");
            found.insert(&stored.key, stored);
        }
        found.retain(|_, stored| stored.value.is_some());
        assert_eq!(found, wanted);
    }
}

/// What a consumer with `isolation.level=read_committed` makes of batches, given the aborted
/// transactions of the range.
fn committed(
    batches: &[RecordBatch],
    end: Offset,
    aborted: impl Fn(Offset, Offset) -> Vec<(ProducerId, Offset)>,
) -> Vec<Stored> {
    let mut ahead = aborted(Offset(0), end);
    ahead.sort_by_key(|it| it.1);
    let mut ahead = ahead.into_iter().peekable();
    let (mut ongoing, mut seen) = (Vec::new(), Vec::new());
    for batch in batches {
        let header = batch.header();
        let last = header.last_offset().expect("stored");
        if end <= last {
            break;
        }
        while let Some((id, _)) = ahead.next_if(|it| it.1 <= last) {
            ongoing.push(id);
        }
        if header.is_control() {
            let record = RecordsIter::new(header, batch.payload()).next();
            let key = record.and_then(Result::ok).and_then(|it| it.key);
            if key == Some(&[0, 0, 0, 0]) {
                ongoing.retain(|id| *id != header.producer_id);
            }
        } else if !(header.is_transactional() && ongoing.contains(&header.producer_id)) {
            seen.extend(records(batch));
        }
    }
    seen
}

pub fn records(batch: &RecordBatch) -> Vec<Stored> {
    let header = batch.header();
    let codec = header.codec().expect("a codec");
    let payload = codec::decompress(codec, batch.payload(), ByteCount(1 << 20)).expect("packed");
    let base = header.base().expect("stored").0;
    let records = RecordsIter::new(header, &payload).map(|record| record.expect("a record"));
    let stored = records.map(|it| Stored {
        offset: base + u64::from(it.offset_delta.unsigned_abs()),
        timestamp: it.timestamp.0,
        key: it.key.expect("compacted topics have keys").to_vec(),
        value: it.value.map(<[u8]>::to_vec),
    });
    stored.collect()
}
