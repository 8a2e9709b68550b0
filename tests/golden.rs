//! Replays the batches of log directories that Apache Kafka 4.3.1 wrote, and compares the files
//! with Kafka's byte for byte.
//!
//! Each archive in `tests/golden` holds a case's partition folders after a clean stop (for
//! retention: the data before the pass), `case.toml` with configs and times, and Kafka's listing of
//! the folder at other moments.

mod golden {
    pub mod archive;
    pub mod case;
    pub mod replay;
}

use std::path::Path;

use golden::case::Case;
use golden::replay::Replay;
use uringlog::log::{Durability, LogConfig};
use uringlog::units::{ByteCount, Offset, Timestamp};

fn check(name: &str) {
    let case = Case::load(name);
    for topic in &case.topics {
        let mut replay = Replay::create(topic, case.created_at(&topic.name));
        for batch in case.batches("dir", &topic.name) {
            replay.append(batch, case.clock(&topic.name, replay.appended));
        }
        replay.close(case.stopped_at());
        replay.assert_files(&case.files("dir", &topic.name), &topic.name);
    }
}

#[test]
fn rolls_by_size() {
    check("size-roll");
}

#[test]
fn rolls_at_exactly_segment_bytes() {
    check("size-roll-exact");
}

#[test]
fn rolls_by_time() {
    check("time-roll");
}

#[test]
fn indexes_every_interval_and_rolls_when_an_index_is_full() {
    check("index-interval");
}

#[test]
fn orders_of_timestamps() {
    check("timestamps");
}

#[test]
fn stamps_batches_when_they_are_appended() {
    check("log-append-time");
}

#[test]
fn shapes_of_batches() {
    check("shapes");
}

/// While the broker runs, the active indexes are as long as they may become.
#[test]
fn active_indexes_have_their_full_length() {
    let mut compared = 0;
    for name in ["size-roll", "index-interval"] {
        let case = Case::load(name);
        for topic in &case.topics {
            let expected = case.listing("ls-live.txt", &topic.name);
            if expected.is_empty() {
                continue;
            }
            let mut replay = Replay::create(topic, case.created_at(&topic.name));
            for batch in case.batches("dir", &topic.name) {
                replay.append(batch, case.clock(&topic.name, replay.appended));
            }
            compared += 1;
            assert_eq!(replay.listing(), expected, "{name} {}", topic.name);
        }
    }
    assert_eq!(compared, 3);
}

/// Every stop and start raises the epoch by two; the appends of each session carry its epoch.
#[test]
fn leader_epochs_over_clean_restarts() {
    const RESTARTS: i32 = 4;
    let case = Case::load("leader-epoch");
    for topic in &case.topics {
        let mut replay = Replay::create(topic, case.created_at(&topic.name));
        let mut batches = case.batches("dir", &topic.name).into_iter().peekable();
        for session in 0..=RESTARTS {
            let epoch = session * 2;
            if session > 0 {
                replay.reopen(epoch, case.stopped_at());
            }
            while let Some(batch) = batches.next_if(|it| it.header().leader_epoch.0 == epoch) {
                replay.append(batch, case.clock(&topic.name, replay.appended));
            }
            replay.close(case.stopped_at());
        }
        replay.assert_files(&case.files("dir", &topic.name), &topic.name);
    }
}

/// One pass over each topic of the retention case: names and sizes of what is left and what is
/// marked, as Kafka listed them, and nothing marked once the delay is over.
#[test]
fn retention_marks_whole_segments() {
    let case = Case::load("retention");
    for topic in &case.topics {
        let mut topic = topic.clone();
        let mut replay = Replay::create(&topic, case.created_at(&topic.name));
        for batch in case.batches("dir-before", &topic.name) {
            replay.append(batch, case.clock(&topic.name, replay.appended));
        }
        case.reconfigure(&mut topic);
        replay.reconfigure(&topic);
        let now = case.retention_pass(&topic.name);
        replay.retain(now);
        replay.retain(Timestamp(now.0 + 1_000));
        let expected = case.listing("ls-marked.txt", &topic.name);
        assert_eq!(replay.listing(), expected, "{}", topic.name);
        replay.retain(Timestamp(now.0 + 9_000));
        let left = replay.listing();
        assert!(left.iter().all(|(name, _)| !name.ends_with(".deleted")), "{left:?}");
        let start = expected.iter().find(|(name, _)| name.ends_with(".log"));
        let start = start.expect("a log is never without a segment").0[..20].parse();
        assert_eq!(replay.log_start(), Offset(start.expect("names begin with 20 digits")));
    }
}

/// A broker was killed, its directory damaged, and Kafka started and stopped again: the files are
/// the same when ours does that.
#[test]
fn recovers_as_kafka_does() {
    for name in UNCLEAN {
        let case = Case::load(&format!("unclean-{name}"));
        let config = LogConfig {
            segment_bytes: ByteCount(1 << 20),
            ..LogConfig::defaults(Durability::PageCache)
        };
        let point = case.text("dir-1-damaged/recovery-point-offset-checkpoint");
        let point = point.lines().nth(2).map(|line| {
            let offset = line.rsplit(' ').next().expect("topic, partition, offset");
            Offset(offset.parse().expect("a number"))
        });
        let files = case.files("dir-1-damaged", "u");
        let mut replay = Replay::recover(&files, point, config);
        replay.settle(Timestamp(0));
        replay.close(Timestamp(0));
        let mut expected = case.files("dir-3-stopped", "u");
        expected.retain(|name, _| name != "leader-epoch-checkpoint");
        replay.assert_files(&expected, name);
    }
}

const UNCLEAN: [&str; 4] =
    ["a-torn-tail", "d-index-gone", "e1-timeindex-garbage-active", "f-zero-tail"];

/// Where the archives lie.
fn archives() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"))
}
