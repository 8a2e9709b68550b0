//! A compacted topic over the wire: what consumers see while it is cleaned, and after kills in the
//! middle.

use std::collections::BTreeMap;

use uringlog::format::batch::{BatchHeader, Codec, RecordBatch};
use uringlog::format::codec;
use uringlog::format::record::{BatchBuilder, NewRecord, RecordsIter};
use uringlog::units::{ByteCount, usize_of};

use crate::support::batch::now;
use crate::support::client::Client;
use crate::support::files::names;
use crate::support::hosts;
use crate::support::process::{Broker, Launch};
use crate::support::wait;

/// What this test calls the value of a tombstone.
const NOTHING: &str = "(none)";
const KEYS: usize = 25;
const INVALID_RECORD: i16 = 87;
const COMPACTED: &[(&str, &str)] = &[
    ("cleanup.policy", "compact"),
    ("internal.segment.bytes", "8192"),
    ("min.cleanable.dirty.ratio", "0.1"),
    ("file.delete.delay.ms", "100"),
];

/// What was sent: the newest value of each key, and how many records.
#[derive(Default)]
struct Sent {
    newest: BTreeMap<String, String>,
    records: i64,
}

impl Sent {
    /// Sends every key once.
    fn round(&mut self, client: &mut Client) {
        self.round_to(client, "topic");
    }

    fn round_to(&mut self, client: &mut Client, topic: &str) {
        let mut batch = BatchBuilder::new(Codec::Lz4);
        for key in 0..KEYS {
            let (key, value) = (format!("key-{key}"), value(self.records));
            let (name, text) = (Some(key.as_bytes()), Some(value.as_bytes()));
            batch.push(&NewRecord { timestamp: now(), key: name, value: text, headers: &[] });
            self.newest.insert(key, value);
            self.records += 1;
        }
        client.accepted(topic, 0, batch.build().freeze());
    }

    /// Everything that a consumer is given; the newest value of each key is the last one sent.
    fn check(&self, client: &mut Client) -> usize {
        let found = consume(client);
        let newest: BTreeMap<_, _> = found.iter().cloned().collect();
        assert_eq!(newest, self.newest);
        assert_eq!(client.end("topic", 0), self.records, "the end stays");
        found.len()
    }
}

/// One for each record, not to be packed to nothing.
fn value(number: i64) -> String {
    let mut state = number.unsigned_abs() | 1 << 40;
    let mut word = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        format!("{:016x}", state.wrapping_mul(0x2545_f491_4f6c_dd1d))
    };
    format!("{number}:{}{}{}{}", word(), word(), word(), word())
}

/// Keys and values of all records, in the order of their offsets, batches without records and gaps
/// passed over as consumers do.
fn consume(client: &mut Client) -> Vec<(String, String)> {
    let (mut next, mut found) = (0, Vec::new());
    loop {
        let answer = client.fetch("topic", 0, next, 1 << 20);
        assert_eq!(answer.error_code, 0, "at {next}");
        let bytes = answer.records.unwrap_or_default();
        let mut rest = &bytes[..];
        let before = next;
        while let Ok(header) = BatchHeader::decode(rest) {
            let Some(batch) = rest.get(..usize_of(header.size.0)) else { break };
            let batch = RecordBatch::decode(batch.into()).expect("what is served is whole");
            let last = header.base_offset + i64::from(header.last_offset_delta);
            found.extend(records(&batch, next));
            next = next.max(last + 1);
            rest = &rest[usize_of(header.size.0)..];
        }
        if next == before {
            return found;
        }
    }
}

fn records(batch: &RecordBatch, from: i64) -> Vec<(String, String)> {
    let header = batch.header();
    let codec = header.codec().expect("a codec");
    let payload = codec::decompress(codec, batch.payload(), ByteCount(1 << 20)).expect("packed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let records = RecordsIter::new(header, &payload).map(|record| record.expect("a record"));
    let wanted = records.filter(|it| from <= header.base_offset + i64::from(it.offset_delta));
    let nothing = || NOTHING.to_owned();
    wanted.map(|it| (text(it.key.expect("keyed")), it.value.map_or_else(nothing, text))).collect()
}

fn eager(launch: Launch) -> Launch {
    launch.set("log.cleaner.backoff.ms=20").set("log.cleaner.io.buffer.size=32768")
}

/// The same, saying what it has cleaned.
fn talkative(launch: Launch) -> Launch {
    eager(launch).wrapped(["env", "RUST_LOG=info"])
}

/// Cleaned as far as can be: what is left is the newest of each key, and the active segment.
fn wait_until_compacted(broker: &Broker, client: &mut Client, sent: &Sent) {
    // Half a byte for a digit, and a key.
    const ACTIVE_RECORDS_MAX: usize = 8192 / 40;
    wait::until("the topic is compacted", || sent.check(client) <= KEYS + ACTIVE_RECORDS_MAX);
    assert_eq!(broker.gauge("cleaner_uncleanable_partitions"), 0);
}

#[test]
fn a_compacted_topic_keeps_the_newest_value_of_each_key() {
    for (host, launch) in hosts() {
        let broker = eager(launch).start();
        let mut client = broker.connect();
        client.create("topic", 1, COMPACTED);
        let mut sent = Sent::default();
        for _ in 0..60 {
            sent.round(&mut client);
        }
        wait_until_compacted(&broker, &mut client, &sent);
        // A reader may see the new segment before the round is over.
        wait::until("a round is over", || 0 < broker.count("cleaner_rounds"));
        assert!(0 < broker.count("cleaner_records_dropped"));
        let (stopped, launch) = broker.stop();
        assert!(stopped.status.success(), "{host}");
        let checkpoint = std::fs::read_to_string(launch.place().join("cleaner-offset-checkpoint"));
        let checkpoint = checkpoint.expect("it is written");
        assert!(checkpoint.starts_with("0\n1\ntopic 0 "), "{host}: {checkpoint:?}");
        let verified = launch.command(&["verify", &launch.place().to_string_lossy()]).output();
        let verified = verified.expect("it runs");
        assert!(verified.status.success(), "{host}: {}", String::from_utf8_lossy(&verified.stdout));
        let broker = launch.start();
        sent.check(&mut broker.connect());
    }
}

#[test]
fn a_record_without_a_key_is_refused() {
    let broker = Launch::new("plain-file").start();
    let mut client = broker.connect();
    client.create("topic", 1, COMPACTED);
    let mut batch = BatchBuilder::new(Codec::None);
    batch.push(&NewRecord::value(now(), b"without"));
    let answer = client.produce("topic", 0, batch.build().freeze());
    assert_eq!(answer.error_code, INVALID_RECORD, "{answer:?}");
    assert_eq!(answer.record_errors.len(), 1);
    assert_eq!(client.end("topic", 0), 0);
}

/// Kills in the middle of rounds that a limit of the rate makes long.
#[test]
fn kills_in_the_middle_of_cleaning_lose_nothing() {
    for (number, (host, launch)) in hosts().into_iter().enumerate() {
        survive(host, eager(launch).journal(number % 2 == 0));
    }
}

fn survive(host: &str, launch: Launch) {
    let directory = crate::support::process::directory();
    let slow = launch.clone().set("log.cleaner.io.max.bytes.per.second=400000");
    let slow = slow.in_directory(directory.path());
    let mut broker = slow.start();
    broker.connect().create("topic", 1, COMPACTED);
    let mut sent = Sent::default();
    for kill in 0..4_u64 {
        let mut client = broker.connect();
        for _ in 0..40 {
            sent.round(&mut client);
        }
        let partition = directory.path().join("topic-0");
        let is_written = |name: &str| name.ends_with(".log.cleaned") || name.ends_with(".swap");
        wait::until("a round writes", || !names(&partition, is_written).is_empty());
        broker.kill();
        broker = slow.start();
        let left = sent.check(&mut broker.connect());
        assert!(left <= usize::try_from(sent.records).expect("small"), "{host}, kill {kill}");
    }
    broker.kill();
    let broker = launch.in_directory(directory.path()).start();
    wait_until_compacted(&broker, &mut broker.connect(), &sent);
}

/// Sends a record with a key, or a tombstone.
fn send(client: &mut Client, topic: &str, key: &str, value: Option<&str>) {
    let mut batch = BatchBuilder::new(Codec::None);
    let (key, value) = (Some(key.as_bytes()), value.map(str::as_bytes));
    batch.push(&NewRecord { timestamp: now(), key, value, headers: &[] });
    client.accepted(topic, 0, batch.build().freeze());
}

/// What a consumer is given of the key that is deleted, after so many rounds at least.
fn deleted(delete_retention_ms: &str, rounds: u64, is_enough: fn(&[String]) -> bool) {
    let broker = eager(Launch::new("plain-file")).start();
    let mut client = broker.connect();
    let configs = [COMPACTED, &[("delete.retention.ms", delete_retention_ms)]].concat();
    client.create("topic", 1, &configs);
    send(&mut client, "topic", "gone", Some("value"));
    send(&mut client, "topic", "gone", None);
    let mut sent = Sent::default();
    wait::until("enough is cleaned", || {
        sent.round(&mut client);
        let found = consume(&mut client);
        let of_key = found.into_iter().filter(|(key, _)| key == "gone").map(|it| it.1);
        let of_key: Vec<String> = of_key.collect();
        rounds <= broker.count("cleaner_rounds") && is_enough(&of_key)
    });
}

#[test]
fn a_tombstone_hides_its_key_and_goes_after_its_time() {
    deleted("86400000", 4, |left| left == [NOTHING]);
    deleted("100", 1, <[String]>::is_empty);
}

/// A ratio of 1 is never exceeded: only the other topic is cleaned.
#[test]
fn a_log_is_left_alone_below_its_dirty_ratio() {
    let broker = talkative(Launch::new("plain-file")).start();
    let mut client = broker.connect();
    client.create("topic", 1, COMPACTED);
    let idle = [("min.cleanable.dirty.ratio", "1")];
    client.create("idle", 1, &[&COMPACTED[..2], &idle].concat());
    let mut sent = [Sent::default(), Sent::default()];
    for _ in 0..40 {
        sent[0].round_to(&mut client, "topic");
        sent[1].round_to(&mut client, "idle");
    }
    wait_until_compacted(&broker, &mut client, &sent[0]);
    wait::until("the cleaner looks", || broker.gauge("cleaner_max_dirty_percent") == 100);
    let output = broker.output();
    assert!(cleaned(&output, "topic-0").is_some(), "{output}");
    assert_eq!(cleaned(&output, "idle-0"), None, "{output}");
}

/// Number of the first line that says that a partition was cleaned.
fn cleaned(output: &str, partition: &str) -> Option<usize> {
    output.lines().position(|it| it.contains("cleaned from") && it.contains(partition))
}

/// Item 102: of two dirty logs the one with the larger dirty part comes first.
#[test]
fn item_102_the_filthiest_log_is_cleaned_first() {
    let launch = Launch::new("plain-file");
    let broker = talkative(launch.clone()).start();
    let mut client = broker.connect();
    client.create("a-little", 1, COMPACTED);
    client.create("very", 1, COMPACTED);
    for number in 0..600 {
        let key = format!("key-{number}");
        send(&mut client, "a-little", &key, Some(&value(number)));
    }
    wait::until("it is clean", || cleaned(&broker.output(), "a-little-0").is_some());
    drop(client);
    broker.stop();
    let broker = launch.clone().set("log.cleaner.enable=false").start();
    let mut client = broker.connect();
    for _ in 0..20 {
        Sent::default().round_to(&mut client, "a-little");
        Sent::default().round_to(&mut client, "very");
    }
    drop(client);
    assert_eq!(broker.count("cleaner_rounds"), 0);
    broker.stop();
    let broker = talkative(launch).start();
    wait::until("both are cleaned", || {
        let output = broker.output();
        ["very-0", "a-little-0"].iter().all(|it| cleaned(&output, it).is_some())
    });
    let output = broker.output();
    assert!(cleaned(&output, "very-0") < cleaned(&output, "a-little-0"), "{output}");
}

/// Item 102: a damaged log is said, left alone, and holds up no other.
#[test]
fn item_102_a_log_that_cannot_be_cleaned_is_left_alone() {
    let launch = Launch::new("plain-file");
    let broker = launch.clone().set("log.cleaner.enable=false").start();
    let mut client = broker.connect();
    client.create("damaged", 1, COMPACTED);
    for _ in 0..20 {
        Sent::default().round_to(&mut client, "damaged");
    }
    drop(client);
    broker.stop();
    let log = launch.place().join("damaged-0/00000000000000000000.log");
    let mut bytes = std::fs::read(&log).expect("it is there");
    bytes[100] ^= 1;
    std::fs::write(&log, &bytes).expect("writable");
    let broker = eager(launch).start();
    let is_left_alone = || broker.gauge("cleaner_uncleanable_partitions") == 1;
    wait::until("the damage is found", is_left_alone);
    let mut client = broker.connect();
    client.create("topic", 1, COMPACTED);
    let mut sent = Sent::default();
    wait::until("another log is cleaned", || {
        sent.round(&mut client);
        0 < broker.count("cleaner_rounds")
    });
    sent.check(&mut client);
    assert_eq!(broker.count("cleaner_failed"), 1, "it isn't tried again");
    assert!(broker.output().contains("can't be cleaned"), "{}", broker.output());
    assert_eq!(std::fs::read(&log).expect("it is there"), bytes, "nothing was changed");
}

/// Appends come in while slices follow one another: between an append and the end of its turn at
/// most one of them begins.
#[test]
fn appends_wait_for_one_slice_at_most() {
    for (host, launch) in hosts() {
        let broker = eager(launch).start();
        let mut client = broker.connect();
        client.create("topic", 1, COMPACTED);
        let mut sent = Sent::default();
        let slices = || broker.gauge("cleaner_turn_slices_max");
        wait::until("an append meets a slice", || {
            (0..50).for_each(|_| sent.round(&mut client));
            0 < slices()
        });
        let before = broker.count("cleaner_rounds");
        // Not faster than they are cleaned: on a slow disk rounds would take in ever more segments.
        for rounds in 1..=5 {
            (0..50).for_each(|_| sent.round(&mut client));
            wait::until("a round more", || before + rounds <= broker.count("cleaner_rounds"));
        }
        assert_eq!(slices(), 1, "{host}");
        sent.check(&mut client);
    }
}
