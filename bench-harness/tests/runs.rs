//! Runs as such: what is refused, what fails, what is cut short and gone on with.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use support::{files, folder, harness, json, run, said, values};

#[test]
fn the_self_test_finds_the_delay() {
    let folder = folder();
    let (out, output) = run(folder.path(), &["self-test", "--quick", "--set", "delay_ms=300"]);
    assert!(output.status.success(), "{}", said(&output));
    let results = json(&out.join("results.json"));
    let p99: Vec<_> = values(&results, "append_p99", &[]);
    let max: Vec<_> = values(&results, "append_max", &[]);
    assert_eq!((p99.len(), max.len()), (2, 2));
    assert!(p99.iter().all(|it| it.as_u64() < Some(300_000_000)), "{p99:?}");
    assert!(max.iter().all(|it| Some(299_000_000) <= it.as_u64()), "{max:?}");
    assert_eq!(files(&out, ".svg").len(), 1);
}

#[test]
fn bad_input_is_named_before_anything_runs() {
    let folder = folder();
    let out = folder.path().join("out");
    let out = out.to_str().expect("a path of ours");
    let cases: [(&[&str], &str); 10] = [
        (&["nonsense"], "unknown experiment nonsense; there are: all, roll-by-size"),
        (&["roll-by-size", "--engines", "uring,fast"], "unknown engine fast; there are: uring"),
        (&["roll-by-size", "--durability", "none"], "there are: device, page-cache"),
        (&["roll-by-size", "--fs", "/no/such/folder=x"], "there is no such folder"),
        (&["roll-by-size", "--fs", "/tmp"], "want PATH=LABEL"),
        (&["roll-by-size", "--set", "records=0"], "records must be 1 to 10000000"),
        (&["roll-by-size", "--set", "sizes=0"], "no such parameter; there are, for roll-by-size"),
        (&["retention", "--set", "file_delete_delay_ms=0"], "must be 100 to 3600000 ms"),
        (&["self-test", "--engines", "kafka"], "nothing is left to run"),
        (&["roll-by-size", "--rounds", "0"], "--rounds"),
    ];
    for (arguments, expected) in cases {
        let whole = [&["run"], arguments, &["--out", out]].concat();
        let output = harness(&whole);
        assert!(!output.status.success(), "{arguments:?}");
        let text = said(&output);
        assert!(text.contains(expected), "{arguments:?}: {text}");
        assert!(!Path::new(out).exists(), "{arguments:?} left a folder");
    }
    let output = harness(&["run", "self-test", "--out", "/proc/none"]);
    assert!(said(&output).contains("cannot make the folder /proc/none"), "{}", said(&output));
    fs::create_dir(out).expect("a folder");
    fs::write(Path::new(out).join("run.json"), "{}").expect("a file");
    let output = harness(&["run", "self-test", "--out", out]);
    assert!(said(&output).contains("holds a run already; name another"), "{}", said(&output));
}

#[test]
fn a_failed_cell_leaves_the_others_and_says_why() {
    let folder = folder();
    // Batches of 2 MiB fit no segment of 1 MiB: known only when the cell is carried out.
    let arguments = ["self-test", "roll-by-size", "--quick", "--engines", "plain-file"];
    // On a busy machine more than one sync in a hundred takes 5 ms by itself.
    let set = ["--set", "record_size=1048576", "--set", "delay_ms=50", "--durability", "device"];
    let (out, output) = run(folder.path(), &[&arguments[..], &set[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let state = json(&out.join("run.json"));
    assert_eq!(state["state"], "partial");
    let states: Vec<_> = state["cells"].as_array().expect("cells").iter().collect();
    assert_eq!((&states[0]["state"], &states[1]["state"]), (&"failed".into(), &"done".into()));
    let reason = states[0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("raise segment_bytes"), "{reason}");
    let report = fs::read_to_string(out.join("report.md")).expect("a report");
    assert!(report.contains("**Partial:") && report.contains("raise segment_bytes"));
    assert!(!values(&json(&out.join("results.json")), "append_p50", &[]).is_empty());
}

#[test]
fn an_interrupted_run_leaves_a_readable_part() {
    let folder = folder();
    let out = folder.path().join("out");
    let program = env!("CARGO_BIN_EXE_bench-harness");
    let mut run = Command::new(program);
    run.args(["run", "self-test", "--engines", "plain-file", "--rounds", "2", "--out"]).arg(&out);
    // More than anybody waits for.
    run.args(["--set", "delays=1000", "--set", "delay_ms=1000"]).stderr(Stdio::null());
    let mut child = run.spawn().expect("the program starts");
    let until = Instant::now() + Duration::from_secs(30);
    while !out.join("noise.jsonl").exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(1));
    let state = json(&out.join("run.json"));
    assert_eq!((&state["state"], &state["planned"]), (&"partial".into(), &2.into()));
    let cells = state["cells"].as_array().expect("cells");
    assert!(cells.iter().all(|it| it["state"] == "interrupted"), "{cells:?}");
    let report = fs::read_to_string(out.join("report.md")).expect("a report");
    assert!(report.contains("**Partial:"), "{report}");
    resumes_with_the_same_command_only(&out);
    // Nothing is left of the cell's data.
    let left = fs::read_dir(&out).expect("it").map(|it| it.expect("an entry").file_name());
    let left: Vec<_> = left.filter(|it| it.to_string_lossy().starts_with("bench-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

fn resumes_with_the_same_command_only(out: &Path) {
    let out = out.to_str().expect("a path of ours");
    let output = harness(&["run", "self-test", "--resume", "--out", out]);
    assert!(said(&output).contains("wants the command of before: "), "{}", said(&output));
    let output = harness(&["run", "self-test", "--resume", "--out", "/nowhere"]);
    assert!(said(&output).contains("/nowhere"), "{}", said(&output));
}

#[test]
fn a_run_that_was_cut_short_is_completed() {
    let folder = folder();
    let arguments = ["self-test", "--quick", "--set", "delays=1", "--set", "delay_ms=100"];
    let (out, output) = run(folder.path(), &arguments);
    assert!(output.status.success(), "{}", said(&output));
    let figures = |text: &str| text.lines().filter(|it| it.contains("append_p50")).count();
    let whole = fs::read_to_string(out.join("results.json")).expect("results");
    assert_eq!(figures(&whole), 2);
    // As if the second cell had been killed in its middle.
    let mut state = json(&out.join("run.json"));
    state["state"] = "running".into();
    state["cells"].as_array_mut().expect("cells").truncate(1);
    fs::write(out.join("run.json"), state.to_string()).expect("it can be written to");
    let text = out.to_str().expect("a path of ours");
    let again = [&["run"], &arguments[..], &["--out", text, "--resume"]].concat();
    let output = harness(&again);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("cells to run: 1,"), "{}", said(&output));
    let state = json(&out.join("run.json"));
    assert_eq!(state["state"], "complete");
    assert_eq!(state["cells"].as_array().expect("cells").len(), 2);
    let results = fs::read_to_string(out.join("results.json")).expect("results");
    assert_eq!(figures(&results), 2, "each cell once");
    let record = fs::read_to_string(out.join("self-test/record.jsonl")).expect("lines");
    let latencies = record.lines().filter(|it| it.contains("\"kind\":\"latency\"")).count();
    assert_eq!(latencies, 2, "{record}");
    let output = harness(&again);
    assert!(said(&output).contains("the run is complete"), "{}", said(&output));
}

#[test]
fn without_java_the_column_of_kafka_is_skipped_and_said_to_be() {
    let folder = folder();
    let out = folder.path().join("out");
    let mut run = Command::new(env!("CARGO_BIN_EXE_bench-harness"));
    run.args(["run", "limits", "--engines", "kafka", "--out"]).arg(&out).env("PATH", "/nowhere");
    let output = run.output().expect("the program starts");
    assert!(!output.status.success());
    let text = said(&output);
    assert!(text.contains("kafka: this column is skipped, as there is no java"), "{text}");
    assert!(!out.exists());
}

/// The broker once stayed behind, in a folder that was gone.
#[test]
fn a_kafka_that_does_not_start_in_time_leaves_no_process() {
    let folder = folder();
    let (out, cache) = (folder.path().join("out"), folder.path().join("uringlog/kafka-4.3.1"));
    // No Kafka at all: as many jars as `scripts/kafka` looks for, and a java that only waits.
    fs::create_dir_all(&cache).expect("a folder");
    fs::write(cache.join(".complete"), "").expect("a file");
    let (java, pid) = (folder.path().join("java"), folder.path().join("java.pid"));
    let broker = format!("echo $$ >{}; exec sleep 300", pid.display());
    let text = format!("#!/bin/sh\ncase \"$*\" in\n*kafka.Kafka*) {broker} ;;\nesac\necho 17\n");
    fs::write(&java, text).expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&java, mode).expect("it is ours");
    let mut run = Command::new(env!("CARGO_BIN_EXE_bench-harness"));
    run.args(["run", "limits", "--quick", "--engines", "kafka", "--out"]).arg(&out);
    run.env("XDG_CACHE_HOME", folder.path()).env("KAFKA_START_SECONDS", "1");
    let path = std::env::var("PATH").expect("there is a path");
    run.env("PATH", format!("{}:{path}", folder.path().display()));
    let output = run.output().expect("the program starts");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let text = said(&output);
    assert!(text.contains("kafka did not start") && text.contains("within 1 s"), "{text}");
    let pid = fs::read_to_string(&pid).expect("it was started");
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "it is still there");
}
