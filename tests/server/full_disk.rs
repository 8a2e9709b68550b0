//! A file system that fills up: writes are refused for now, reads go on, writing resumes by itself.

use std::fs;

use crate::support::batch;
use crate::support::client::Client;
use crate::support::load::Load;
use crate::support::mount::Mount;
use crate::support::process::Launch;
use crate::support::{ENGINES, wait};

/// Kafka's retriable code for a log that can't be written at the moment.
const KAFKA_STORAGE_ERROR: i16 = 56;
const VALUE_BYTES: usize = 200_000;
/// Goes into the journal.
const SMALL_VALUE_BYTES: usize = 20_000;

/// Produces until the first refusal; how many batches were acknowledged before.
fn fill(client: &mut Client) -> i64 {
    for seed in 0..1_000 {
        let answer = client.produce("topic", 0, batch::large(seed, VALUE_BYTES));
        let offset = i64::try_from(seed).expect("small");
        if answer.error_code != 0 {
            assert_eq!(answer.error_code, KAFKA_STORAGE_ERROR, "{answer:?}");
            let why = answer.error_message.expect("a reason");
            assert!(why.contains("space"), "{why}");
            return offset;
        }
        assert_eq!(answer.base_offset, offset);
    }
    panic!("the file system never filled up");
}

/// The acknowledged batches are there, in order, and nothing else.
fn assert_stored(client: &mut Client, count: i64) {
    let stored = batch::consume(client, "topic", 0, 0);
    let sent = (0..).map(|seed| batch::records(&batch::large(seed, VALUE_BYTES)).remove(0).1);
    let offsets = stored.iter().map(|(offset, _)| *offset);
    assert_eq!(offsets.collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
    let equal = stored.iter().zip(sent).all(|((_, value), sent)| *value == sent);
    assert!(equal, "the values are those that were sent");
}

#[test]
fn a_full_file_system_refuses_writes_serves_reads_and_resumes_by_itself() {
    for engine in ENGINES {
        let mount = Mount::tmpfs("size=48m");
        let data = mount.path().join("data");
        let launch = Launch::at(engine, &data).wrapped(mount.wrapper());
        let mut broker = launch.start();
        let mut client = broker.connect();
        client.create("topic", 1, &[]);
        client.create("other", 1, &[]);
        fs::write(mount.outside("filler"), vec![1; 16 << 20]).expect("there is room for it");

        let acknowledged = fill(&mut client);
        assert!(0 < acknowledged, "{engine}: something fitted");
        assert!(broker.is_alive());
        assert_stored(&mut client, acknowledged);
        let refused = client.produce("topic", 0, batch::large(0, VALUE_BYTES));
        assert_eq!(refused.error_code, KAFKA_STORAGE_ERROR, "{engine}: it stays refused");

        fs::remove_file(mount.outside("filler")).expect("it is there");
        let next = batch::large(u64::try_from(acknowledged).expect("positive"), VALUE_BYTES);
        let resumed = wait::for_some("writing resumes", || {
            let answer = client.produce("topic", 0, next.clone());
            (answer.error_code == 0).then_some(answer.base_offset)
        });
        assert_eq!(resumed, acknowledged, "{engine}: no offset is lost, none is given twice");
        assert_stored(&mut client, acknowledged + 1);

        let (stopped, launch) = broker.stop();
        assert!(stopped.status.success(), "{engine}: {}", stopped.output);
        let broker = launch.start();
        assert_stored(&mut broker.connect(), acknowledged + 1);
    }
}

/// The records of a journal lie before the writes that fail: a batch that was refused must not come
/// back over, or beside, what was stored since.
#[test]
fn what_was_refused_on_a_full_file_system_does_not_come_back_from_the_journal() {
    for (engine, is_killed_when_full) in [("uring", false), ("plain-file", false), ("uring", true)]
    {
        let mount = Mount::tmpfs("size=72m");
        let launch = Launch::at(engine, &mount.path().join("data")).wrapped(mount.wrapper());
        // Less than half of it is used, so that it asks for nothing back in the meantime.
        let launch = launch.journal(true).set("journal.bytes=33554432");
        let mut broker = launch.start();
        let mut load = Load::create(&broker, ("topic", 2), SMALL_VALUE_BYTES);
        load.produce(&broker, 10);
        let before = broker.count("journal_plans");
        fs::write(mount.outside("filler"), vec![1; 28 << 20]).expect("there is room for it");
        let mut client = broker.connect();
        fill_by(&mut client, &mut load);
        assert!(before + 100 < broker.count("journal_plans"), "{engine}: by the journal");
        assert!(broker.is_alive());
        for _ in 0..3 {
            assert_eq!(load.try_produce(&mut client, 0), KAFKA_STORAGE_ERROR, "{engine}");
        }
        load.check(&broker);
        if is_killed_when_full {
            broker.kill();
            fs::remove_file(mount.outside("filler")).expect("it is there");
            broker = launch.start();
            load.check(&broker);
        } else {
            fs::remove_file(mount.outside("filler")).expect("it is there");
            // The first one at the refused offsets goes by its own sync: no later record says more.
            load.value_bytes = VALUE_BYTES;
            for partition in 0..2 {
                wait::until("writing resumes", || load.try_produce(&mut client, partition) == 0);
            }
            load.value_bytes = SMALL_VALUE_BYTES;
        }
        for _ in 0..2 {
            broker.kill();
            broker = launch.start();
            load.check(&broker);
            load.produce(&broker, 10);
            load.check(&broker);
        }
    }
}

/// Produces to both partitions until both refuse.
fn fill_by(client: &mut Client, load: &mut Load) {
    let mut refused = [false; 2];
    for round in 0.. {
        assert!(round < 4_000, "the file system never filled up");
        for (partition, refused) in (0..).zip(&mut refused) {
            let error = load.try_produce(client, partition);
            assert!([0, KAFKA_STORAGE_ERROR].contains(&error), "{error}");
            *refused = error != 0;
        }
        if refused.iter().all(|it| *it) {
            return;
        }
    }
}

#[test]
fn a_directory_on_a_full_file_system_is_refused_with_the_remedy() {
    let mount = Mount::tmpfs("size=1m");
    // Fills it to the last page; what the error is doesn't matter.
    let _ = fs::write(mount.outside("filler"), vec![1; 2 << 20]);
    let launch = Launch::at("auto", &mount.path().join("data")).wrapped(mount.wrapper());
    let output = launch.refusal();
    assert!(output.contains("space"), "{output}");
}
