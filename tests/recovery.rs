//! Opening a log after a kill, a power cut, or damage: on real files, changed as the case says.

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;

use support::{CLEAN, KILLED, START, Store, batch, config, idempotent, idempotent_at, spec};
use uringlog::disk::plain::PlainDisk;
use uringlog::format::producer_snapshot::{self, ProducerEntry};
use uringlog::log::{Durability, LogConfig, LogSpec, LogState, OpenError, Opening, RecoveryReport};
use uringlog::units::{
    ByteCount, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicId, u64_of,
};

/// How many batches a log has here.
const COUNT: u64 = 90;

/// Size of every batch here: one record of 60 bytes.
fn size() -> usize {
    usize::try_from(size_bytes()).expect("small")
}

fn size_bytes() -> u64 {
    batch(1, 60, START).size().0
}

struct Case {
    directory: tempfile::TempDir,
    config: LogConfig,
    /// Base offsets of the segments.
    bases: Vec<u64>,
}

impl Case {
    /// A log of [`COUNT`] batches, in three segments, that was killed, or stopped.
    fn new(tier: Durability, is_clean: bool) -> Case {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let config = config(tier);
        let spec = spec(&directory.path().join("topic-0"), config.clone());
        let mut store = Store::create(PlainDisk::new(100, None), spec);
        for _ in 0..COUNT {
            store.append(batch(1, 60, START));
            store.settle();
        }
        if is_clean {
            store.close();
        }
        let bases = store.log.segments().map(|it| it.base.0).collect();
        Case { directory, config, bases }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("topic-0").join(name)
    }

    fn segment(&self, number: usize, extension: &str) -> PathBuf {
        self.path(&format!("{:020}.{extension}", self.bases[number]))
    }

    fn last(&self) -> usize {
        self.bases.len() - 1
    }

    fn spec(&self) -> LogSpec {
        spec(&self.directory.path().join("topic-0"), self.config.clone())
    }

    fn open(&self, how: Opening) -> (Store<PlainDisk>, RecoveryReport) {
        Store::open(PlainDisk::new(100, None), self.spec(), how).expect("it opens")
    }

    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(self.path("")).expect("it exists");
        let files = entries.map(|entry| {
            let entry = entry.expect("readable");
            let bytes = std::fs::read(entry.path()).expect("readable");
            (entry.file_name().into_string().expect("ASCII"), bytes)
        });
        files.collect()
    }

    /// Changes the bytes of a file.
    fn edit(&self, path: &PathBuf, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = std::fs::read(path).expect("it exists");
        change(&mut bytes);
        std::fs::write(path, bytes).expect("writable");
    }
}

fn offsets(range: std::ops::Range<u64>) -> Vec<(u64, u64)> {
    range.map(|offset| (offset, offset)).collect()
}

/// Compares without printing whole files.
fn assert_same(left: &BTreeMap<String, Vec<u8>>, right: &BTreeMap<String, Vec<u8>>) {
    assert_eq!(left.keys().collect::<Vec<_>>(), right.keys().collect::<Vec<_>>());
    for (name, bytes) in left {
        assert!(*bytes == right[name], "{name} differs");
    }
}

/// The log takes appends, survives a clean stop, and then opens without any event.
fn check_goes_on(case: &Case, mut store: Store<PlainDisk>) {
    let next = store.log.cursors().next;
    assert_eq!(store.append(batch(1, 60, START)).base_offset, next);
    store.settle();
    let before = store.read_from(store.log.cursors().log_start);
    store.close();
    assert_eq!(store.disk.files_open(), 0, "no file is left open");
    let (mut store, report) = case.open(CLEAN);
    assert!(report.is_uneventful(), "{report:?}");
    assert_eq!(store.read_from(store.log.cursors().log_start), before);
}

#[test]
fn a_clean_stop_is_opened_without_any_event() {
    let case = Case::new(Durability::PageCache, true);
    let before = case.files();
    let (mut store, report) = case.open(CLEAN);
    assert!(report.is_uneventful(), "{report:?}");
    assert_eq!(store.log.cursors().recovery_point, Offset(COUNT));
    assert_eq!(store.read_from(Offset(0)), offsets(0..COUNT));
    store.close();
    assert_same(&case.files(), &before);
    check_goes_on(&case, case.open(CLEAN).0);
}

#[test]
fn a_kill_leaves_full_length_indexes_that_are_built_anew() {
    let case = Case::new(Durability::PageCache, false);
    let before = case.files();
    let (mut store, report) = case.open(KILLED);
    assert!(!report.is_lossy(), "{report:?}");
    assert_eq!(report.indexes_rebuilt, []);
    assert_eq!(store.log.cursors().log_end, Offset(COUNT));
    assert_eq!(store.log.cursors().durable_end, Offset(COUNT));
    assert_eq!(store.log.cursors().recovery_point, Offset(0), "recovery doesn't advance it");
    assert_eq!(store.read_from(Offset(0)), offsets(0..COUNT));
    let after = case.files();
    for (name, bytes) in &before {
        if !name.contains(&format!("{:020}.timeindex", case.bases[case.last()])) {
            assert!(after.get(name) == Some(bytes), "{name}");
        }
    }
    check_goes_on(&case, store);
}

#[test]
fn a_torn_tail_is_cut_off_even_behind_a_clean_marker() {
    for (is_clean, how) in [(false, KILLED), (true, CLEAN)] {
        for cut in [1, 20, 61, size() - 1] {
            let case = Case::new(Durability::Device, is_clean);
            case.edit(&case.segment(case.last(), "log"), |bytes| {
                bytes.truncate(bytes.len() - cut);
            });
            let (mut store, report) = case.open(how);
            assert_eq!(report.truncated.len(), 1, "{report:?}");
            assert_eq!(report.truncated[0].bytes, ByteCount(size_bytes() - u64_of(cut)));
            assert_eq!(store.read_from(Offset(0)), offsets(0..COUNT - 1));
            check_goes_on(&case, store);
        }
    }
}

#[test]
fn garbage_and_zeros_behind_the_end_are_cut_off() {
    for tail in [vec![0; 10_000], vec![0x5a; 10_000], vec![2; 333]] {
        let case = Case::new(Durability::PageCache, false);
        case.edit(&case.segment(case.last(), "log"), |bytes| bytes.extend(&tail));
        let (mut store, report) = case.open(KILLED);
        assert_eq!(report.truncated.len(), 1, "{report:?}");
        assert_eq!(store.read_from(Offset(0)), offsets(0..COUNT));
        check_goes_on(&case, store);
    }
}

#[test]
fn damage_costs_only_itself() {
    for tier in [Durability::Device, Durability::PageCache] {
        for (segment, number) in [(0, 0), (1, 5), (2, 0), (2, 7)] {
            for byte in [3, 16, 80] {
                check_damage(tier, segment, number, byte);
            }
        }
    }
}

fn check_damage(tier: Durability, segment: usize, number: usize, byte: usize) {
    let case = Case::new(tier, false);
    assert_eq!(case.last(), 2);
    case.edit(&case.segment(segment, "log"), |bytes| bytes[number * size() + byte] ^= 0x41);
    let (mut store, report) = case.open(KILLED);
    let lost = case.bases[segment] + u64_of(number);
    let expected: Vec<_> = offsets(0..COUNT).into_iter().filter(|it| it.0 != lost).collect();
    let found = store.read_from(store.log.cursors().log_start);
    assert_eq!(found, expected, "{segment} {number} {byte} {report:?}");
    let [damage] = report.damages.as_slice() else { panic!("{report:?}") };
    assert_eq!((damage.lost_from, damage.lost_to), (Offset(lost), Offset(lost + 1)));
    assert_eq!(damage.bytes, ByteCount(size_bytes()));
    let kept = std::fs::read(case.path(&damage.quarantine)).expect("it was set aside");
    assert_eq!(kept.len(), size());
    assert_eq!(report.truncated, []);
    assert_eq!(report.gaps, []);
    check_goes_on(&case, store);
}

/// The checksum does not cover the format: the records are whole, and a later version may know it.
#[test]
fn a_last_batch_of_an_unknown_format_is_kept_aside() {
    for how in [KILLED, CLEAN] {
        let case = Case::new(Durability::PageCache, false);
        case.edit(&case.segment(2, "log"), |bytes| {
            let magic = bytes.len() - size() + 16;
            bytes[magic] = 9;
        });
        let (store, report) = case.open(how);
        let [damage] = report.damages.as_slice() else { panic!("{report:?}") };
        assert_eq!((damage.lost_from, damage.lost_to), (Offset(COUNT - 1), Offset(COUNT)));
        assert_eq!((damage.bytes, damage.was_unsynced), (ByteCount(size_bytes()), false));
        assert_eq!(report.truncated, []);
        assert_eq!(store.log.cursors().log_end, Offset(COUNT - 1));
        let kept = std::fs::read(case.path(&damage.quarantine)).expect("it was set aside");
        assert_eq!((kept.len(), kept[16]), (size(), 9));
    }
}

#[test]
fn the_end_of_a_sealed_segment_is_missed() {
    let case = Case::new(Durability::PageCache, false);
    case.edit(&case.segment(0, "log"), |bytes| bytes.truncate(bytes.len() - size()));
    let (mut store, report) = case.open(KILLED);
    assert_eq!(report.gaps.len(), 1, "{report:?}");
    assert!(report.is_lossy());
    let lost = case.bases[1] - 1;
    let expected: Vec<_> = offsets(0..COUNT).into_iter().filter(|it| it.0 != lost).collect();
    assert_eq!(store.read_from(Offset(0)), expected);
}

#[test]
fn behind_a_hole_that_was_never_synced_nothing_was_acknowledged() {
    for (tier, expected) in [(Durability::Device, 0..75), (Durability::PageCache, 0..COUNT)] {
        let case = Case::new(tier, false);
        // Far enough from the sealed segments, wide enough for a whole sector.
        let (hole, from) = (8, usize::try_from(75 - case.bases[2]).expect("it has them"));
        case.edit(&case.segment(2, "log"), |bytes| {
            bytes[from * size()..(from + hole) * size()].fill(0);
        });
        let (mut store, report) = case.open(KILLED);
        let lost = 75..75 + u64_of(hole);
        let expected: Vec<_> =
            offsets(expected).into_iter().filter(|it| !lost.contains(&it.0)).collect();
        assert_eq!(store.read_from(Offset(0)), expected, "{report:?}");
        assert_eq!(report.damages.len(), 1);
        assert_eq!(report.damages[0].was_unsynced, tier == Durability::Device);
        check_goes_on(&case, store);
    }
}

#[test]
fn missing_and_wrong_indexes_are_rebuilt() {
    let reference = Case::new(Durability::PageCache, true);
    let right = reference.files();
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 4] = [
        ("odd length", |bytes| bytes.push(0)),
        ("an entry between batches", |bytes| bytes[7] ^= 1),
        ("an entry that is no batch's end", |bytes| bytes[3] ^= 1),
        ("garbage", |bytes| bytes.fill(0x77)),
    ];
    for number in [0, 2] {
        for how in [CLEAN, KILLED] {
            for extension in ["index", "timeindex"] {
                for change in changes.iter().map(Some).chain([None]) {
                    let case = Case::new(Durability::PageCache, true);
                    let path = case.segment(number, extension);
                    match change {
                        None => std::fs::remove_file(&path).expect("it was there"),
                        Some((_, change)) => case.edit(&path, change),
                    }
                    let (mut store, report) = case.open(how);
                    assert_eq!(store.read_from(Offset(0)), offsets(0..COUNT), "{report:?}");
                    assert!(!report.is_lossy(), "{report:?}");
                    store.close();
                    // A sealed segment's indexes are trusted after a clean stop, if they are there
                    // and have whole entries; whatever is in them, no record is missed.
                    let is_trusted = number == 0
                        && how == CLEAN
                        && !matches!(change, None | Some(("odd length", _)));
                    if !is_trusted {
                        assert_same(&case.files(), &right);
                    }
                }
            }
        }
    }
}

#[test]
fn leftovers_are_removed_and_swaps_finished() {
    let case = Case::new(Durability::PageCache, true);
    let right = case.files();
    for name in [
        "00000000000000000007.log.deleted",
        "00000000000000000000.log.cleaned",
        "00000000000000000000.index.cleaned",
        "00000000000000000003.log.swap",
        "00000000000000000009.index",
        "00000000000000000009.timeindex",
        "leader-epoch-checkpoint.tmp",
    ] {
        std::fs::write(case.path(name), b"leftover").expect("writable");
    }
    let (mut store, report) = case.open(CLEAN);
    assert_eq!(report.removed.len(), 7, "{report:?}");
    store.close();
    assert_same(&case.files(), &right);
    // A swap that was complete: the first segment's content under its new name.
    let log = case.segment(0, "log");
    std::fs::rename(&log, log.with_extension("log.swap")).expect("there");
    let (mut store, report) = case.open(KILLED);
    assert_eq!(report.removed.len(), 2, "the old indexes: {report:?}");
    assert_eq!(store.read_from(Offset(0)), offsets(0..COUNT));
    store.close();
    assert_same(&case.files(), &right);
}

#[test]
fn a_log_behind_its_log_start_begins_anew_there() {
    let case = Case::new(Durability::PageCache, false);
    let (store, _) = case.open(Opening { log_start: Some(Offset(104)), ..KILLED });
    let segments: Vec<_> = store.log.segments().map(|it| it.base).collect();
    assert_eq!(segments, [Offset(104)]);
    assert_eq!(store.log.cursors().log_end, Offset(104));
    check_goes_on(&case, store);
}

#[test]
fn the_log_start_checkpoint_is_obeyed() {
    let case = Case::new(Durability::PageCache, false);
    let (mut store, report) = case.open(Opening { log_start: Some(Offset(42)), ..KILLED });
    assert_eq!(report.log_start, Offset(42));
    assert!(store.log.locate(Offset(41)).is_err());
    assert_eq!(store.read_from(Offset(42)), offsets(42..COUNT));
}

#[test]
fn the_directory_of_another_topic_is_refused() {
    let case = Case::new(Durability::PageCache, true);
    let spec = LogSpec { topic_id: TopicId([9; 16]), ..case.spec() };
    let error =
        Store::open(PlainDisk::new(100, None), spec, CLEAN).map(|_| ()).expect_err("refused");
    assert!(matches!(error, OpenError::TopicId { .. }), "{error}");
    std::fs::remove_file(case.path("partition.metadata")).expect("it was there");
    case.open(CLEAN);
    assert!(case.path("partition.metadata").exists(), "an absent one is written");
}

#[test]
fn epochs_come_from_the_batches_when_their_file_is_gone_or_wrong() {
    for text in [None, Some("garbage")] {
        let case = Case::new(Durability::PageCache, true);
        let file = case.path("leader-epoch-checkpoint");
        match text {
            None => std::fs::remove_file(&file).expect("it was there"),
            Some(text) => std::fs::write(&file, text).expect("writable"),
        }
        let (mut store, report) = case.open(CLEAN);
        assert!(report.epochs_rebuilt);
        store.settle();
        assert_eq!(std::fs::read_to_string(&file).expect("written"), "0\n1\n0 0\n");
    }
}

#[test]
fn producers_are_known_again() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let spec = spec(&directory.path().join("topic-0"), config(Durability::Device));
    let mut store = Store::create(PlainDisk::new(100, None), spec.clone());
    let original = store.append(idempotent(5, 0, 3));
    // The producer's batch ends up in a sealed segment below the recovery point.
    for _ in 0..100 {
        store.append(batch(1, 60, START));
        store.settle();
    }
    let point = store.log.cursors().recovery_point;
    let how = Opening { recovery_point: Some(point), ..KILLED };
    let (mut store, _) = Store::open(PlainDisk::new(100, None), spec, how).expect("opens");
    let last = store.log.producers().last_sequence(ProducerId(5));
    assert_eq!(last.map(|it| it.1), Some(Sequence(2)));
    let again = store.append(idempotent(5, 0, 3));
    assert!(again.duplicate);
    assert_eq!(again.base_offset, original.base_offset);
}

/// The records are ten years older than the time for which producers are remembered: what counts is
/// when they were last seen here. Kafka forgets such a producer at each start, and takes the
/// batch that was written but not answered before a kill once more.
#[test]
fn producers_of_old_records_are_known_again() {
    let old = Timestamp(START.0 - 10 * 365 * 86_400_000);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let spec = spec(&directory.path().join("topic-0"), config(Durability::Device));
    let mut store = Store::create(PlainDisk::new(100, None), spec.clone());
    store.append(idempotent_at(5, 0, 3, old));
    for _ in 0..100 {
        store.append(batch(1, 60, old));
        store.settle();
    }
    store.append(idempotent_at(6, 0, 3, old));
    store.settle();
    let point = store.log.cursors().recovery_point;
    let bases: Vec<Offset> = store.log.segments().map(|it| it.base).collect();
    assert!(bases[1] <= point, "the first segment is sealed and durable");
    let how = Opening { recovery_point: Some(point), ..KILLED };
    let known = |store: &Store<PlainDisk>, id| {
        store.log.producers().last_sequence(ProducerId(id)).is_some()
    };
    let open = || Store::open(PlainDisk::new(100, None), spec.clone(), how).expect("opens").0;
    let mut store = open();
    assert!(known(&store, 5) && known(&store, 6));
    assert!(store.append(idempotent_at(5, 0, 3, old)).duplicate);
    let expiration_ms = i64::try_from(spec.config.producer_expiration_ms).expect("a day");
    store.log.expire_producers(Timestamp(START.0 + expiration_ms - 1));
    assert!(known(&store, 5));
    store.log.expire_producers(Timestamp(START.0 + expiration_ms));
    assert!(!known(&store, 5), "it has been silent since the start");

    // The next kill: the snapshot at the recovery point still names the one, the records the other.
    let store = open();
    assert!(known(&store, 5) && known(&store, 6));
}

/// As Kafka does it: from the segment that has the recovery point on, snapshots are not believed
/// but made anew, one at each segment's end.
#[test]
fn after_a_kill_snapshots_behind_the_recovery_point_are_made_anew() {
    let case = Case::new(Durability::PageCache, false);
    let stranger = ProducerEntry {
        producer_id: ProducerId(77),
        epoch: ProducerEpoch(0),
        coordinator_epoch: -1,
        timestamp: START,
        batch: None,
        transaction: None,
    };
    let snapshot = producer_snapshot::encode(&[stranger], 1);
    let known = |recovery_point: u64| {
        for number in 1..=case.last() {
            std::fs::write(case.segment(number, "snapshot"), &snapshot).expect("writable");
        }
        let how = Opening { recovery_point: Some(Offset(recovery_point)), ..KILLED };
        let (store, _) = case.open(how);
        let names = case.files().into_keys().filter(|name| name.ends_with(".snapshot"));
        let at = case.bases[1..].iter().chain([&COUNT]);
        let expected: Vec<_> = at.map(|at| format!("{at:020}.snapshot")).collect();
        assert_eq!(names.collect::<Vec<_>>(), expected);
        store.log.producers().last_sequence(ProducerId(77)).is_some()
    };
    assert!(!known(0) && !known(case.bases[1] - 1));
    assert!(known(case.bases[1]) && known(case.bases[2]));
}

#[test]
fn checksums_are_computed_behind_the_recovery_point_only() {
    let case = Case::new(Durability::PageCache, false);
    let checked = |recovery_point: u64| {
        let recovery_point = Some(Offset(recovery_point));
        let (mut store, report) = case.open(Opening { recovery_point, ..KILLED });
        assert_eq!(store.read_from(Offset(0)), offsets(0..COUNT));
        report.checked.0
    };
    assert_eq!(checked(0), COUNT * size_bytes());
    assert!(checked(85) < 20 * size_bytes());
    let whole_last = (COUNT - case.bases[2]) * size_bytes();
    assert_eq!(checked(case.bases[2]), whole_last);
}

#[test]
fn opening_twice_changes_nothing_more() {
    let case = Case::new(Durability::PageCache, false);
    case.edit(&case.segment(1, "log"), |bytes| bytes[3 * size() + 70] ^= 1);
    case.edit(&case.segment(2, "log"), |bytes| bytes.truncate(bytes.len() - 5));
    case.open(KILLED);
    let once = case.files();
    let (_, report) = case.open(KILLED);
    assert!(!report.is_lossy(), "{report:?}");
    assert_same(&case.files(), &once);
}

#[test]
fn an_absent_directory_is_an_error_and_an_empty_one_a_new_log() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("topic-0");
    let spec = spec(&path, config(Durability::Device));
    let error = Store::open(PlainDisk::new(100, None), spec.clone(), KILLED).map(|_| ());
    assert!(matches!(error, Err(OpenError::Disk { .. })));
    std::fs::create_dir(&path).expect("writable");
    let (store, _) = Store::open(PlainDisk::new(100, None), spec, KILLED).expect("opens");
    assert_eq!(store.log.cursors().log_end, Offset(0));
    assert_eq!(store.log.state(), LogState::Serving);
}

#[test]
fn a_loss_may_raise_the_leader_epoch() {
    let case = Case::new(Durability::PageCache, false);
    let how = Opening { leader_epoch_bump: true, ..KILLED };
    assert_eq!(case.open(how).0.log.leader_epoch().0, 0);
    case.edit(&case.segment(2, "log"), |bytes| bytes.truncate(bytes.len() - 5));
    assert_eq!(case.open(how).0.log.leader_epoch().0, 1);
}
