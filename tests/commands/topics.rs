//! `uringlog topic`, `config`, `offsets` and `cluster`: tables, JSON and colours.

use std::process::Command;

use serde_json::json;

use crate::serving::{PROGRAM, Serving, said};

const ESCAPE: char = '\u{1b}';

#[test]
fn topics_come_and_go() {
    let server = Serving::start();
    let made = server.json("topic create flights --partitions 2 --config retention.ms=86400000");
    let id = made["id"].as_str().expect("an id").to_owned();
    assert_eq!((made["created"].as_bool(), id.len()), (Some(true), 22));
    let again = server.json("topic create flights --if-not-exists");
    assert_eq!(again, json!({"topic": "flights", "created": false, "id": null}));
    let listed = server.fine("topic list");
    let expected =
        format!("TOPIC    PARTITIONS  REPLICAS  ID\nflights           2         1  {id}\n");
    assert_eq!(listed, expected);
    let described = server.fine("topic describe flights");
    let expected = format!(
        "topic flights ({id}), 2 partitions
  retention.ms=86400000
PARTITION  LEADER  EPOCH  REPLICAS  IN-SYNC  LOG-START  HIGH-WATERMARK
        0       1      0  1         1                0               0
        1       1      0  1         1                0               0
"
    );
    assert_eq!(described, expected);
    let described = server.json("topic describe flights");
    assert_eq!(described[0]["configs"], json!({"retention.ms": "86400000"}));
    assert_eq!(described[0]["partitions"][1]["high_watermark"], 0);
    assert_eq!(server.fine("topic rm flights"), "deleted topic flights\n");
    assert_eq!(server.json("topic delete flights --if-exists")["deleted"], false);
    assert_eq!(server.json("topic list"), json!([]));
}

#[test]
fn offsets_are_those_of_the_records() {
    let server = Serving::with_topic("t");
    server.feed("produce t", b"one\ntwo\n");
    let records = server.json_lines("consume t");
    let time = records[0]["timestamp"].as_i64().expect("a number");
    let found = server.json(&format!("offsets t --at @{time} --at 2099-01-01"));
    let own = &found[0];
    assert_eq!((&own["earliest"], &own["latest"]), (&json!(0), &json!(2)));
    assert_eq!(own["max_timestamp"]["timestamp"], records[1]["timestamp"]);
    assert_eq!(own["at"][0], json!({"time": time, "offset": 0, "timestamp": time}));
    assert_eq!(own["at"][1]["offset"], serde_json::Value::Null);
    let shown = server.fine("offsets");
    assert!(shown.starts_with("TOPIC  PARTITION  EARLIEST  LATEST  RECORDS"), "{shown}");
    assert!(shown.contains("t              0         0       2        2"), "{shown}");
}

#[test]
fn settings_say_where_they_come_from() {
    let server = Serving::start();
    server.fine("topic create t --config retention.ms=5000");
    let shown = server.fine("config describe topic/t");
    let row = shown.lines().find(|line| line.starts_with("retention.ms ")).expect("it is set");
    assert_eq!(row.split_whitespace().collect::<Vec<_>>()[1..], ["5000", "DYNAMIC_TOPIC_CONFIG"]);
    assert!(!shown.contains("DEFAULT_CONFIG"), "{shown}");
    let all = server.fine("config describe topic/t --all");
    assert!(all.contains("DEFAULT_CONFIG") && shown.len() < all.len(), "{all}");
    assert!(server.json("config describe broker/1 --all").as_array().map(Vec::len) > Some(50));
}

#[test]
fn a_cluster_is_its_brokers() {
    let server = Serving::start();
    let cluster = server.json("cluster describe");
    assert_eq!(cluster["brokers"][0]["address"], json!(server.address));
    assert_eq!(cluster["controller"], cluster["brokers"][0]["id"]);
    let apis = server.json("cluster api-versions");
    let produce = json!({"key": 0, "api": "Produce", "min": 0, "max": 13});
    assert_eq!(apis[0], produce);
}

/// A terminal for the command, made by a program of Python's library.
fn on_a_terminal(server: &Serving, line: &str, no_colour: &str) -> String {
    let spawn = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    let mut command = Command::new("python3");
    command.args(["-c", spawn, PROGRAM]).args(line.split_whitespace());
    command.env("URINGLOG_BOOTSTRAP", &server.address).env("TERM", "xterm");
    said(with(command, no_colour), b"").fine()
}

fn with(mut command: Command, no_colour: &str) -> Command {
    command.env("NO_COLOR", no_colour);
    command
}

#[test]
fn colours_are_for_terminals() {
    let server = Serving::with_topic("t");
    let line = "topic describe t";
    let plain = server.fine(line);
    assert!(!plain.contains(ESCAPE), "{plain}");
    assert!(server.fine("topic describe t --color always").contains(ESCAPE));
    assert!(on_a_terminal(&server, line, "").contains(ESCAPE));
    let refused = on_a_terminal(&server, line, "1");
    assert!(!refused.contains(ESCAPE) && refused.contains("HIGH-WATERMARK"), "{refused}");
    assert!(!on_a_terminal(&server, "topic describe t --color never", "").contains(ESCAPE));
    assert!(!on_a_terminal(&server, "topic list --json", "").contains(ESCAPE));
}
