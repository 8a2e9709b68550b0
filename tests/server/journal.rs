//! The commit journal in the real binary: when it is used, what a kill and a power cut leave, what
//! a clean stop leaves, and how a directory is brought in order without serving.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use uringlog::format::batch::BatchHeader;
use uringlog::format::checkpoint::parse_offsets;
use uringlog::units::usize_of;

use crate::support::ENGINES;
use crate::support::batch::{self, of};
use crate::support::client::Client;
use crate::support::files::{contents, journals, logs, names};
use crate::support::load::{Load, Random, leaders};
use crate::support::process::{Broker, Launch, directory};
use crate::support::wait;

const SECTOR_BYTES: u64 = 512;

fn recover(launch: &Launch) -> (bool, String) {
    let place = launch.place().to_str().expect("text");
    let Output { status, stdout, stderr } =
        launch.command(&["recover", place]).output().expect("it starts");
    let both = [stdout, stderr].concat();
    (status.success(), String::from_utf8(both).expect("it writes text"))
}

fn is_clean(launch: &Launch) -> bool {
    launch.place().join(".kafka_cleanshutdown").exists()
}

/// What one batch after the other adds to these counters.
fn added<const N: usize>(broker: &Broker, names: [&str; N], batches: usize) -> [u64; N] {
    let mut client = broker.connect();
    let before = names.map(|name| broker.count(name));
    for _ in 0..batches {
        client.accepted("topic", 0, of(&["x"]));
    }
    let after = names.map(|name| broker.count(name));
    std::array::from_fn(|at| after[at] - before[at])
}

#[test]
fn small_batches_are_made_durable_by_the_journal_and_no_file_is_synced() {
    for engine in ENGINES {
        let launch = Launch::new(engine).journal(true).set("journal.plan.bytes.max=65536");
        let broker = launch.start();
        let mut client = broker.connect();
        client.create("topic", 1, &[]);
        client.accepted("topic", 0, of(&["first"]));
        let names = ["journal_plans", "journal_records", "plans", "ring_syncs"];
        let [by_journal, records, plans, syncs] = added(&broker, names, 50);
        assert_eq!((plans, by_journal, records), (50, 50, 50), "{engine}");
        assert_eq!(syncs, 0, "{engine}: nothing asks for space yet");
        let [direct] = added(&broker, ["ring_durable_writes"], 10);
        assert_eq!(direct, if engine == "uring" { 10 } else { 0 }, "{engine}");
        let large = batch::large(1, 100_000);
        let before = broker.count("journal_plans");
        client.accepted("topic", 0, large);
        assert_eq!(broker.count("journal_plans"), before, "{engine}: a large one goes alone");
        assert_eq!(broker.count("journal_large"), 1, "{engine}");
        assert!(broker.output().contains("durability: one journal write a turn"), "{engine}");
    }
}

#[test]
fn without_the_journal_none_is_made_and_the_files_are_synced() {
    for engine in ENGINES {
        let broker = Launch::new(engine).journal(false).start();
        let mut client = broker.connect();
        client.create("topic", 1, &[]);
        client.accepted("topic", 0, of(&["first"]));
        let [plans, syncs] = added(&broker, ["plans", "ring_syncs"], 20);
        assert_eq!(plans, 20);
        assert_eq!(syncs, if engine == "uring" { 20 } else { 0 });
        assert_eq!(broker.count("journal_records"), 0);
        assert!(broker.output().contains("no journal: journal.enable is false"));
        let launch = broker.kill();
        assert_eq!(journals(&launch), [""; 0]);
    }
}

/// Switched off after a crash, what the journal has is put in place all the same.
#[test]
fn a_journal_that_is_switched_off_is_replayed_and_removed() {
    for engine in ENGINES {
        let launch = Launch::new(engine).shards(2);
        let broker = launch.clone().journal(true).start();
        let mut load = Load::create(&broker, ("topic", 3), 10);
        let image = Image::of(&launch);
        load.kill(broker, 60);
        image.cut_power(&launch, &mut Random::new(1));
        let broker = launch.clone().journal(false).start();
        load.check(&broker);
        assert_eq!(journals(&launch), [""; 0]);
        drop(broker);
    }
}

/// One directory through a hundred kills, by servers of both engines, with other numbers of shards,
/// with and without a journal.
#[test]
fn a_hundred_kills_lose_nothing_that_was_acknowledged() {
    const KILLS: usize = 100;
    let mut random = Random::new(1);
    let place = directory();
    let next = |random: &mut Random| {
        let engine = ENGINES[usize_of(random.below(2))];
        let shards = [2, 1, 3][usize_of(random.below(3))];
        let launch = Launch::at(engine, place.path()).shards(shards);
        launch.journal(random.below(8) != 0).set("log.segment.bytes=1048576")
    };
    let mut broker = next(&mut random).start();
    let mut load = Load::create(&broker, ("topic", 5), 100);
    load.has_large = true;
    let mut kills = 0;
    while kills < KILLS {
        load.kill(broker, 1 + usize_of(random.below(60)));
        kills += 1;
        while random.below(3) == 0 {
            // In the middle of the replay, of a journal being made, of a recovery.
            let starting = next(&mut random).starting();
            std::thread::sleep(Duration::from_millis(random.below(250)));
            starting.kill();
            kills += 1;
        }
        broker = next(&mut random).start();
        load.check_new(&broker);
    }
    load.check(&broker);
    let (stopped, _) = broker.stop();
    assert!(stopped.status.success(), "{}", stopped.output);
    let acknowledged: usize = load.partitions().iter().map(|it| it.acknowledged()).sum();
    assert!(500 < acknowledged, "{acknowledged} records were tried only");
}

/// How long the logs are at a moment when everything in them is synced.
struct Image(HashMap<PathBuf, u64>);

impl Image {
    fn of(launch: &Launch) -> Image {
        Image(logs(launch.place()))
    }

    /// What a power cut may leave of the page cache, while the journal is on the device: of what
    /// was written since, an end is missing and any sector may be.
    fn cut_power(&self, launch: &Launch, random: &mut Random) {
        for (path, length) in logs(launch.place()) {
            let synced = self.0.get(&path).copied().unwrap_or(0);
            let file = fs::File::options().write(true).open(&path).expect("it is ours");
            let left = synced + random.below(length - synced + 1);
            file.set_len(left).expect("it is ours");
            let first = synced.next_multiple_of(SECTOR_BYTES);
            for at in (first..left).step_by(usize_of(SECTOR_BYTES)) {
                if random.below(3) == 0 {
                    let bytes = SECTOR_BYTES.min(left - at);
                    file.write_all_at(&vec![0; usize_of(bytes)], at).expect("it is ours");
                }
            }
        }
    }
}

#[test]
fn after_a_power_cut_the_journal_brings_back_what_was_acknowledged() {
    for (seed, engine) in (10..).zip(ENGINES) {
        let mut random = Random::new(seed);
        // Nothing is given back to the journal in this test, so that all of it is unsynced.
        let launch = Launch::new(engine).shards(2).journal(true).set("journal.bytes=33554432");
        let mut broker = launch.start();
        let mut load = Load::create(&broker, ("topic", 4), 700);
        for _ in 0..6 {
            let image = Image::of(&launch);
            let records = 50 + usize_of(random.below(200));
            load.kill(broker, records);
            image.cut_power(&launch, &mut random);
            if random.below(2) == 0 {
                // A crash in the middle of it is only another crash.
                let place = launch.place().to_str().expect("text");
                let mut recovery = launch.command(&["recover", place]).spawn().expect("it starts");
                std::thread::sleep(Duration::from_millis(random.below(60)));
                recovery.kill().expect("it is ours");
                recovery.wait().expect("it is ours");
            }
            if random.below(2) == 0 {
                let (went_well, said) = recover(&launch);
                assert!(went_well, "{engine}: {said}");
                let is_over = said.contains("closed in order") || said.starts_with("clean");
                assert!(is_over, "{engine}: {said}");
            }
            broker = launch.start();
            load.check(&broker);
        }
    }
}

/// A clean stop leaves what Kafka expects: whole files, and nothing in the journal.
#[test]
fn a_clean_stop_leaves_whole_files_and_an_empty_journal() {
    for engine in ENGINES {
        let launch = Launch::new(engine).shards(2).journal(true);
        let broker = launch.start();
        let mut load = Load::create(&broker, ("topic", 3), 10);
        load.produce(&broker, 20);
        let (stopped, _) = broker.stop();
        assert!(stopped.status.success(), "{engine}: {}", stopped.output);
        assert!(is_clean(&launch));
        assert_whole(&launch, 20);
        let before = contents(launch.place());
        let (went_well, said) = recover(&launch);
        assert!(went_well && said.starts_with("clean"), "{engine}: {said}");
        assert!(contents(launch.place()) == before, "{engine}: nothing was changed");
        let broker = launch.start();
        load.check(&broker);
        assert_eq!(broker.gauge("journal_used_bytes"), 0, "{engine}: nothing was left in it");
    }
}

/// The partitions' logs have these offsets, by their bytes alone, and are covered by the
/// checkpoint.
fn assert_whole(launch: &Launch, records: i64) {
    let text = fs::read(launch.place().join("recovery-point-offset-checkpoint"));
    let points = parse_offsets(&text.expect("it is there")).expect("a checkpoint file");
    let points = points.iter().filter(|it| it.topic.as_str() == "topic");
    assert!(points.clone().all(|it| it.offset.to_wire() == records));
    assert_eq!(points.count(), 3);
    for (path, _) in logs(launch.place()) {
        if !path.to_str().expect("text").contains("topic-") {
            continue;
        }
        let bytes = fs::read(&path).expect("it is there");
        let (mut at, mut next) = (0, 0);
        while at < bytes.len() {
            let header = BatchHeader::decode(&bytes[at..]).expect("a batch");
            assert_eq!(header.base_offset, next, "{}", path.display());
            next += i64::from(header.last_offset_delta) + 1;
            at += usize_of(header.size.0);
        }
        assert_eq!(next, records, "{}", path.display());
    }
}

#[test]
fn recover_brings_a_directory_in_order_without_serving() {
    for engine in ENGINES {
        let launch = Launch::new(engine).shards(3).journal(true);
        let broker = launch.start();
        let mut load = Load::create(&broker, ("topic", 3), 10);
        load.produce(&broker, 20);
        let image = Image::of(&launch);
        load.produce(&broker, 1);
        broker.kill();
        // The last record of each partition is in the journal alone.
        image.truncate(&launch);
        let (went_well, said) = recover(&launch);
        assert!(went_well, "{engine}: {said}");
        for words in ["shard-2.journal: ", "topic-2: offsets 0 to 21", "closed in order"] {
            assert!(said.contains(words), "{engine}: {words}: {said}");
        }
        assert!(is_clean(&launch));
        assert_whole(&launch, 21);
        assert_eq!(journals(&launch).len(), 3, "{engine}: they stay for the next start");
        let (went_well, said) = recover(&launch);
        assert!(went_well && said.starts_with("clean"), "{engine}: {said}");
        // The number of shards counts for nothing.
        let broker = launch.clone().shards(1).start();
        load.check(&broker);
        let (went_well, said) = recover(&launch);
        assert!(!went_well && said.contains("process"), "{engine}: it is in use: {said}");
    }
}

impl Image {
    /// What was written since is gone.
    fn truncate(&self, launch: &Launch) {
        for (path, length) in logs(launch.place()) {
            let synced = self.0.get(&path).copied().unwrap_or(0);
            assert!(synced <= length);
            let file = fs::File::options().write(true).open(&path).expect("it is ours");
            file.set_len(synced).expect("it is ours");
        }
    }
}

#[test]
fn recover_refuses_what_is_no_data_directory() {
    let launch = Launch::new("auto");
    let (went_well, said) = recover(&launch);
    assert!(!went_well && said.contains("meta.properties"), "{said}");
    assert_eq!(names(launch.place(), |_| true), [""; 0], "nothing was made");
    fs::write(launch.place().join("meta.properties"), "version=1\nnode.id=1\ncluster.id=x\n")
        .expect("it is ours");
    let (went_well, said) = recover(&launch);
    assert!(!went_well && said.contains("__cluster_metadata-0"), "{said}");
    let (went_well, said) = recover(&Launch::at("auto", &launch.place().join("absent")));
    assert!(!went_well && said.contains("absent"), "{said}");
}

/// Segments that retention has deleted stay deleted, whatever the journal still has of them.
#[test]
fn segments_that_retention_deleted_do_not_come_back() {
    for engine in ENGINES {
        let launch = Launch::new(engine).journal(true).set("journal.bytes=33554432");
        let retention = |launch: &Launch, every_ms: u32| {
            let launch = launch.clone().set(&format!("log.initial.task.delay.ms={every_ms}"));
            launch.set(&format!("log.retention.check.interval.ms={every_ms}"))
        };
        let broker = retention(&launch, 100).start();
        let mut client = broker.connect();
        let configs = [
            ("segment.bytes", "1048576"),
            ("retention.bytes", "1048576"),
            ("file.delete.delay.ms", "0"),
        ];
        client.create("topic", 1, &configs);
        let value = "x".repeat(20_000);
        for _ in 0..160 {
            client.accepted("topic", 0, of(&[&value]));
        }
        let start = wait::for_some("segments go", || {
            let (error, start) = client.list_offset("topic", 0, -2);
            assert_eq!(error, 0);
            let first = names(&launch.place().join("topic-0"), |name| name.ends_with(".log"));
            (0 < start && first[0] == format!("{start:020}.log")).then_some(start)
        });
        client.accepted("topic", 0, of(&["last"]));
        let before = names(&launch.place().join("topic-0"), |name| name.ends_with(".log"));
        assert!(0 < broker.count("journal_plans"), "{engine}: they went through the journal");
        broker.kill();
        let broker = retention(&launch, 3_600_000).start();
        let after = names(&launch.place().join("topic-0"), |name| name.ends_with(".log"));
        assert_eq!(after, before, "{engine}");
        let mut client = Client::open(leaders(&broker, "topic")[0]);
        assert_eq!(client.list_offset("topic", 0, -2), (0, start), "{engine}");
        assert_eq!(client.end("topic", 0), 161, "{engine}");
        let stored = batch::consume(&mut client, "topic", 0, start);
        assert_eq!(stored.last().map(|(_, value)| &value[..]), Some(&b"last"[..]));
    }
}

/// A topic that was deleted and made anew has nothing of the old one, and all of its own.
#[test]
fn a_topic_made_anew_gets_nothing_of_its_predecessor_from_the_journal() {
    for engine in ENGINES {
        let launch = Launch::new(engine).journal(true);
        let broker = launch.start();
        let mut client = broker.connect();
        client.create("topic", 1, &[]);
        for _ in 0..5 {
            client.accepted("topic", 0, of(&["old"]));
        }
        client.delete("topic");
        client.create("topic", 1, &[]);
        client.accepted("topic", 0, of(&["new"]));
        let image = Image::of(&launch);
        client.accepted("topic", 0, of(&["newer"]));
        assert!(5 < broker.count("journal_plans"), "{engine}: old and new are in the journal");
        broker.kill();
        image.truncate(&launch);
        let broker = launch.start();
        leaders(&broker, "topic");
        let stored = batch::consume(&mut broker.connect(), "topic", 0, 0);
        assert_eq!(stored, [(0, b"new".to_vec()), (1, b"newer".to_vec())], "{engine}");
    }
}
