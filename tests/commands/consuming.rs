//! `uringlog consume`: what is chosen, how it is shown, and how it ends.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::serving::{Serving, said};

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("before the year 292,278,994")
}

/// Three records, then two of a later time; that time.
fn five_records(server: &Serving) -> i64 {
    server.feed("produce t -K :", b"a:0\nb:1\nc:2\n");
    let early = server.json_lines("consume t").into_iter();
    let last = early.map(|it| it["timestamp"].as_i64().expect("a number")).max();
    let midway = last.expect("three records") + 1;
    while now_ms() <= midway {
        std::thread::yield_now();
    }
    server.feed("produce t -K : -H x=1 -H y=2", b"d:3\n4\n");
    midway
}

#[test]
fn places_times_and_counts_choose_records() {
    let server = Serving::with_topic("t");
    let midway = five_records(&server);
    let values = |rest: &str| server.fine(&format!("consume t --format %s {rest}"));
    for (rest, expected) in [
        (String::new(), "01234"),
        (format!("--from @{midway}"), "34"),
        (format!("--until @{midway}"), "012"),
        (format!("--until @{midway} -n 2"), "01"),
        ("--from 1 --until 4".to_owned(), "123"),
        ("--from 1 -n 2".to_owned(), "12"),
        ("--from 1h".to_owned(), "01234"),
        ("--from 2099-01-01".to_owned(), ""),
        ("--until 1h".to_owned(), ""),
        ("--from latest".to_owned(), ""),
        ("-n 0".to_owned(), ""),
        ("--partition 0 --from 5".to_owned(), ""),
    ] {
        assert_eq!(values(&rest), expected, "{rest}");
    }
    let error = server.say("consume t --from 6").failed();
    assert!(error.contains("offset 6 is out of range: partition 0 has 0 to 5"), "{error}");
    let error = server.say("consume t --partition 7").failed();
    assert!(error.contains("topic t has 1 partition, none is 7"), "{error}");
}

#[test]
fn keys_headers_and_times_are_shown() {
    let server = Serving::with_topic("t");
    five_records(&server);
    let line = server.fine("consume t --from 3 -n 1 --with all");
    let (time, rest) = line.split_once('\t').expect("tabs");
    assert_eq!(rest, "0\t3\td\tx=1,y=2\t3\n");
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
    // A time as it is shown is a time as it is taken.
    assert_eq!(server.fine(&format!("consume t --from {time} -n 1")), "3\n");
    assert_eq!(server.fine("consume t --from 3 --with key,offset"), "3\td\t3\n4\t\t4\n");
    let text = server.fine("consume t --from 3 --format %t-%p@%o|%k:%K|%s:%S|%h;");
    assert_eq!(text, "t-0@3|d:1|3:1|x=1,y=2;t-0@4|:-1|4:1|x=1,y=2;");
}

#[test]
fn json_has_all_of_a_record() {
    let server = Serving::with_topic("t");
    five_records(&server);
    server.feed("produce t", b"\xff\x00\n");
    let mut records = server.json_lines("consume t --from 3");
    let times: Vec<Value> = records.iter_mut().map(|it| it["timestamp"].take()).collect();
    assert!(times.iter().all(|it| it.as_i64().is_some_and(|it| it <= now_ms())), "{times:?}");
    let headers = json!([{"name": "x", "value": "1"}, {"name": "y", "value": "2"}]);
    let record = |offset: i64, key: Value, value: Value, headers: &Value| {
        json!({
            "topic": "t", "partition": 0, "offset": offset, "timestamp": null,
            "key": key, "value": value, "headers": headers,
        })
    };
    let expected = [
        record(3, json!("d"), json!("3"), &headers),
        record(4, Value::Null, json!("4"), &headers),
        record(5, Value::Null, json!({"base64": "/wA="}), &json!([])),
    ];
    assert_eq!(records, expected);
}

/// A signal is an end like another: what was read is printed, and the status is 0.
#[test]
fn following_goes_on_until_it_is_told() {
    let server = Serving::with_topic("t");
    server.feed("produce t", b"before\n");
    let mut command = server.command("consume t --follow");
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the program is there");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = || {
        let mut line = String::new();
        lines.read_line(&mut line).expect("text");
        line
    };
    assert_eq!(line(), "before\n");
    for value in ["one\n", "two\n"] {
        server.feed("produce t", value.as_bytes());
        assert_eq!(line(), value);
    }
    let id = child.id().to_string();
    let killed = std::process::Command::new("kill").args(["-INT", &id]).status();
    assert!(killed.expect("there is kill").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(line(), "");
}

#[test]
fn following_ends_with_the_count() {
    let server = Serving::with_topic("t");
    server.feed("produce t", b"one\ntwo\n");
    assert_eq!(server.fine("consume t --follow -n 2"), "one\ntwo\n");
    assert_eq!(server.fine("consume t --follow --until 1"), "one\n");
}

/// As with `| head -1`.
#[test]
fn a_reader_that_leaves_is_no_failure() {
    let server = Serving::with_topic("t");
    server.fine("bench produce t -n 2000 --size 1000");
    let mut command = server.command("consume t");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program is there");
    let mut out = child.stdout.take().expect("it is piped");
    out.read_exact(&mut [0; 10]).expect("there is much more");
    drop(out);
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!((ended.status.code(), ended.stderr), (Some(0), Vec::new()));
}

#[test]
fn a_group_needs_no_more_than_a_name_to_be_understood() {
    let server = Serving::with_topic("t");
    let both = said(server.command("consume t --group g --partition 0"), b"");
    assert_eq!(both.code, Some(2));
    assert!(both.err.contains("--group") && both.err.contains("--partition"), "{}", both.err);
}

#[test]
fn several_topics_are_read_at_once() {
    let server = Serving::with_topic("t");
    server.fine("topic create u --partitions 2");
    server.feed("produce t", b"one\ntwo\n");
    server.feed("produce u -p 0", b"three\n");
    server.feed("produce u -p 1", b"four\n");
    let read = |rest: &str| {
        let text = server.fine(&format!("consume t u t --with topic {rest}"));
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(read("--partition 0"), ["t\tone", "t\ttwo", "u\tthree"]);
    for protocol in ["classic", "consumer"] {
        let all = read("");
        assert!(4 <= all.len() && all[..2] == ["t\tone", "t\ttwo"], "{all:?}");
        let rest = format!("--protocol {protocol} --group {protocol}");
        assert_eq!(read(&rest), all, "{protocol}");
        assert!(read(&rest).is_empty(), "{protocol}: what was printed was committed");
        server.feed("produce u -p 1", b"five\n");
        assert_eq!(read(&rest), ["u\tfive"], "{protocol}");
        server.fine(&format!("consume u --group {protocol}-2 --protocol {protocol} -n 2"));
    }
    let error = server.say("consume t missing").failed();
    assert!(error.contains("missing"), "{error}");
}

#[test]
fn ways_to_share_belong_to_a_protocol() {
    let server = Serving::with_topic("t");
    for (line, hint) in [
        ("--protocol consumer --assignor roundrobin", "--assignor uniform or range"),
        ("--assignor uniform", "--protocol consumer"),
    ] {
        let error = server.say(&format!("consume t --group g {line}")).failed();
        assert!(error.contains(hint), "{error}");
    }
    server.feed("produce t", b"one\n");
    for (group, assignor) in [("r", "range"), ("u", "uniform")] {
        let rest = format!("--protocol consumer --assignor {assignor}");
        assert_eq!(server.fine(&format!("consume t --group {group} {rest}")), "one\n");
    }
    let both = said(server.command("consume t --protocol consumer"), b"");
    assert!(both.code == Some(2) && both.err.contains("--group"), "{}", both.err);
}
