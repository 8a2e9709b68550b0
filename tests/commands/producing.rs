//! `uringlog produce` and `uringlog bench`.

use crate::serving::Serving;

/// The process once ended before its batches had left.
#[test]
fn what_was_produced_without_acks_is_there_when_the_command_ends() {
    let server = Serving::start();
    server.fine("topic create lines --partitions 2");
    for round in 1..=5 {
        server.feed("produce lines --acks 0 --partition 1", b"one\ntwo\n");
        assert_eq!(server.fine("consume lines"), "one\ntwo\n".repeat(round));
    }
}

#[test]
fn what_was_acknowledged_is_told_as_json_as_well() {
    let server = Serving::with_topic("t");
    let text = server.feed("produce t --json", b"one\ntwo\n");
    let told: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&told["records"], &told["batches"]), (&2.into(), &1.into()), "{text}");
    assert!(told["bytes"].is_u64() && told["seconds"].is_f64(), "{text}");
}

#[test]
fn every_codec_is_taken_and_read_back() {
    let server = Serving::with_topic("t");
    let mut expected = String::new();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        server.feed(&format!("produce t --codec {codec}"), codec.as_bytes());
        expected.push_str(&format!("{codec}\n"));
    }
    assert_eq!(server.fine("consume t"), expected);
}

#[test]
fn records_with_one_key_are_in_one_partition() {
    let server = Serving::start();
    server.fine("topic create t --partitions 3");
    let lines: String = (0..60).map(|it| format!("{}={it}\n", it % 6)).collect();
    server.feed("produce t -K =", lines.as_bytes());
    let records = server.json_lines("consume t");
    assert_eq!(records.len(), 60);
    let mut used = std::collections::BTreeSet::new();
    for key in 0..6 {
        let name = key.to_string();
        let own = records.iter().filter(|it| it["key"] == name);
        let own: Vec<_> = own.map(|it| (&it["partition"], it["value"].as_str())).collect();
        assert!(own.iter().all(|it| it.0 == own[0].0), "{own:?}");
        let values: Vec<_> = own.iter().map(|it| it.1.expect("text")).collect();
        let expected: Vec<_> = (0..10).map(|round| (key + 6 * round).to_string()).collect();
        assert_eq!(values, expected);
        used.insert(own[0].0.as_i64());
    }
    assert!(1 < used.len(), "six keys share one partition of three");
}

#[test]
fn bench_sends_and_reads_what_it_is_told() {
    let server = Serving::with_topic("t");
    let sent = server.json("bench produce t -n 500 --size 100 --batch-bytes 5000");
    assert_eq!((&sent["records"], &sent["settings"]["acks"]), (&500.into(), &(-1).into()));
    assert!(sent["latency_us"]["p99"].as_i64() > Some(0), "{sent}");
    assert!(sent["latency_us"]["p50"].as_i64() <= sent["latency_us"]["max"].as_i64(), "{sent}");
    assert_eq!(server.json("bench consume t")["records"], 500);
    let shown = server.fine("bench consume t");
    assert!(shown.starts_with("consumed 500 records, ") && shown.contains("LATENCY"), "{shown}");
}
