//! Loads on servers as users run them: shares of a maximum, soaks, servers that stall or are
//! killed, and runs that go on afterwards.

#[expect(dead_code, reason = "each test uses its own part")]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{folder, json, said};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// One engine in one tier, on a fixed rate.
const ONE: &[&str] = &["--quick", "--engines", "plain-file", "--durability", "page-cache"];

/// A run of these into a folder, not yet started.
fn command(out: &Path, arguments: &[&str], set: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench-harness"));
    command.arg("run").args(arguments);
    for set in set {
        command.args(["--set", set]);
    }
    command.arg("--out").arg(out);
    command
}

/// Values of a figure, those whose parameters agree.
fn values(out: &Path, figure: &str, parameters: &[(&str, Value)]) -> Vec<Value> {
    let results = json(&out.join("results.json"));
    let is_it = |it: &&Value| {
        it["figure"] == figure
            && parameters.iter().all(|(name, value)| it["parameters"][name] == *value)
    };
    results.as_array().expect("a list").iter().filter(is_it).map(|it| it["value"].clone()).collect()
}

fn numbers(out: &Path, figure: &str, parameters: &[(&str, Value)]) -> Vec<f64> {
    values(out, figure, parameters).iter().map(|it| it.as_f64().expect("a number")).collect()
}

fn pictures(out: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(out.join("pictures")).expect("pictures");
    entries.map(|it| it.expect("an entry").path()).collect()
}

/// The server that a harness has started.
fn server_of(harness: &Child) -> Option<Pid> {
    let parent = format!(" {} ", harness.id());
    for entry in fs::read_dir("/proc").expect("it is mounted").flatten() {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let stat = read("stat");
        // Behind the name: the state, and the parent.
        let is_child = stat.rsplit_once(") ").is_some_and(|it| it.1[1..].starts_with(&parent));
        if is_child && read("cmdline").contains("\0serve\0") {
            return entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw);
        }
    }
    None
}

/// Waits until a file of the run holds this.
fn await_text(path: &Path, text: &str) {
    let until = Instant::now() + PATIENCE;
    while !fs::read_to_string(path).is_ok_and(|it| it.contains(text)) {
        assert!(Instant::now() < until, "{text} never came into {path:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn shares_of_the_maximum_are_offered_and_the_server_is_looked_at() {
    let folder = folder();
    let out = folder.path().join("out");
    let arguments = ["end-to-end", "--quick", "--durability", "page-cache"];
    let output = command(&out, &arguments, &[]).output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    for load in ["produce", "fetch", "produce-to-consume"] {
        let of = |percent: u64| [("load", Value::from(load)), ("percent", percent.into())];
        let maxima = numbers(&out, "maximum_rate", &of(10)[..1]);
        let offered = numbers(&out, "offered_rate", &of(50));
        // Two engines, each with shares of its own maximum.
        assert_eq!((maxima.len(), offered.len()), (2, 2), "{load}");
        for (maximum, offered) in maxima.iter().zip(&offered) {
            assert!(0.0 < *maximum && (offered / maximum - 0.5).abs() < 1e-9, "{load}");
        }
        assert_eq!(values(&out, "generator_is_bottleneck", &of(100)).len(), 2, "{load}");
        assert_eq!(values(&out, "server_cpu_seconds", &of(100)).len(), 2, "{load}");
        let memory = numbers(&out, "server_memory", &of(100));
        assert!(memory.iter().all(|it| (1e6..1e9).contains(it)), "{memory:?}");
        let latency = format!("{}_latency_p50", load.replace('-', "_"));
        assert!(numbers(&out, &latency, &of(50)).iter().all(|it| 0.0 < *it), "{load}");
    }
    assert!(15 <= pictures(&out).len(), "{:?}", pictures(&out));
}

#[test]
fn one_factor_is_varied_and_the_schedule_is_the_parameters() {
    let folder = folder();
    let out = folder.path().join("out");
    let set = [
        "loads=produce",
        "vary=always",
        "batch_records_sweep=1,10",
        "partitions_sweep=4",
        "rate=400",
        "percents=50",
        "varied_percents=25",
        "seconds=0.4",
        "warm_up_seconds=0.1",
        "record_bytes=100",
    ];
    let output = command(&out, &[&["end-to-end"], ONE].concat(), &set).output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    let of = |varied: &str| [("varied", Value::from(varied))];
    // 200 and 100 a second, for half a second.
    assert_eq!(values(&out, "scheduled_requests", &of("nothing")), [Value::from(100)]);
    assert_eq!(values(&out, "scheduled_requests", &of("batch_records")), [Value::from(50)]);
    assert_eq!(values(&out, "scheduled_requests", &of("acks")), vec![Value::from(50); 2]);
    assert_eq!(values(&out, "produce_latency_count", &of("nothing")), [Value::from(80)]);
    assert!(values(&out, "maximum_rate", &[]).is_empty(), "the rate was given");
}

#[test]
fn every_request_that_was_due_in_a_stall_pays_for_it() {
    let folder = folder();
    let out = folder.path().join("out");
    // One request under way at a time: a closed loop would see one slow request, and no more.
    let set = [
        "loads=produce",
        "rate=400",
        "percents=100",
        "seconds=2",
        "in_flight=1",
        "connections=1",
        "partitions=1",
    ];
    let mut harness = command(&out, &[&["end-to-end"], ONE].concat(), &set);
    let harness = harness.stdout(Stdio::null()).stderr(Stdio::null());
    let mut harness = harness.spawn().expect("it starts");
    await_text(&out.join("end-to-end/series.jsonl"), "produce 100 %");
    let server = server_of(&harness).expect("it runs");
    std::thread::sleep(Duration::from_millis(300));
    kill_process(server, Signal::STOP).expect("it runs");
    std::thread::sleep(Duration::from_millis(400));
    kill_process(server, Signal::CONT).expect("it runs");
    assert!(harness.wait().expect("it ends").success());
    assert_eq!(values(&out, "produce_latency_count", &[]), [Value::from(800)]);
    // Those due in the first 50 ms waited for 350 ms, and are more than one in a hundred.
    let p99 = numbers(&out, "produce_latency_p99", &[]);
    assert!(3.5e8 <= p99[0], "{p99:?}");
}

#[test]
fn a_killed_server_is_named_its_points_are_kept_and_the_run_goes_on() {
    let folder = folder();
    let out = folder.path().join("out");
    let set = ["loads=produce", "rate=200", "percents=10,50", "seconds=2"];
    let arguments = [&["end-to-end"], ONE].concat();
    let mut harness = command(&out, &arguments, &set);
    let mut harness = harness.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it");
    await_text(&out.join("end-to-end/series.jsonl"), "produce 50 %");
    let server = server_of(&harness).expect("it runs");
    std::thread::sleep(Duration::from_secs(1));
    kill_process(server, Signal::KILL).expect("it runs");
    assert_eq!(harness.wait().expect("it ends").code(), Some(1));
    let state = json(&out.join("run.json"));
    assert_eq!(
        (&state["state"], &state["cells"][0]["state"]),
        (&"partial".into(), &"failed".into())
    );
    let reason = state["cells"][0]["reason"].as_str().expect("a reason");
    let expected = format!("the server (process {}) has ended: signal: 9", server.as_raw_nonzero());
    assert!(reason.contains(&expected), "{reason}");
    let (ten, fifty) = ([("percent", Value::from(10))], [("percent", Value::from(50))]);
    assert_eq!(values(&out, "produce_latency_p50", &ten).len(), 1);
    assert_eq!(values(&out, "produce_latency_p50", &fifty).len(), 0);
    let after = numbers(&out, "broken_off_after", &fifty);
    assert!((0.1..2.0).contains(&after[0]), "{after:?}");
    assert!(!values(&out, "produce_latency_until_broken_off_p50", &fifty).is_empty());
    let report = fs::read_to_string(out.join("report.md")).expect("a report");
    for part in ["**Partial:", ": produce at 50 % broke off", "| broke off |", &expected] {
        assert!(report.contains(part), "{part} is not in the report");
    }

    let other = [&set[..3], &["seconds=1"]].concat();
    let arguments = [arguments, vec!["--resume"]].concat();
    let output = command(&out, &arguments, &other).output().expect("it starts");
    assert!(said(&output).contains("--resume wants the command of before"), "{}", said(&output));
    let output = command(&out, &arguments, &set).output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(json(&out.join("run.json"))["state"], "complete");
    assert_eq!(values(&out, "produce_latency_p50", &ten).len(), 1);
    assert_eq!(values(&out, "produce_latency_p50", &fifty).len(), 1);
    assert!(values(&out, "broken_off_after", &[]).is_empty());
    let report = fs::read_to_string(out.join("report.md")).expect("a report");
    assert!(!report.contains("broke off"));
    let output = command(&out, &arguments, &set).output().expect("it starts");
    assert!(
        said(&output).contains("the run is complete; there is nothing to go on with"),
        "{}",
        said(&output)
    );
}

/// Requests say no more than that their connection is lost.
#[test]
fn a_killed_server_is_named_whatever_was_done_with_it() {
    let folder = folder();
    let out = folder.path().join("out");
    // More than anybody waits for.
    let set = ["through=wire", "records=10000000", "cost=false"];
    let mut harness = command(&out, &[&["roll-by-size"], ONE].concat(), &set);
    let mut harness = harness.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it");
    let until = Instant::now() + PATIENCE;
    let has_log = |cell: fs::DirEntry| cell.path().join("server/data/segments-0-0").is_dir();
    while !fs::read_dir(&out).is_ok_and(|it| it.flatten().any(has_log)) {
        assert!(Instant::now() < until, "there never was a log");
        std::thread::sleep(Duration::from_millis(10));
    }
    let server = server_of(&harness).expect("it runs");
    kill_process(server, Signal::KILL).expect("it runs");
    assert_eq!(harness.wait().expect("it ends").code(), Some(1));
    let state = json(&out.join("run.json"));
    let reason = state["cells"][0]["reason"].as_str().expect("a reason");
    let expected = format!("the server (process {}) has ended: signal: 9", server.as_raw_nonzero());
    assert!(reason.contains(&expected), "{reason}");
}

#[test]
fn a_run_that_is_resumed_keeps_the_cells_that_are_done() {
    let folder = folder();
    let out = folder.path().join("out");
    let set = ["loads=produce", "rate=100", "percents=100", "seconds=1"];
    let arguments = ["end-to-end", "--quick", "--durability", "page-cache"];
    let mut harness = command(&out, &arguments, &set);
    let mut harness = harness.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it");
    await_text(&out.join("run.json"), "\"done\"");
    // As a power failure would: nothing is written any more, and the second cell is lost.
    harness.kill().expect("it runs");
    harness.wait().expect("it ends");
    assert_eq!(json(&out.join("run.json"))["state"], "running");
    let before = values(&out, "produce_latency_p50", &[]);
    assert_eq!(before.len(), 1);
    let arguments = [&arguments[..], &["--resume"]].concat();
    let output = command(&out, &arguments, &set).output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("1 cells are done already"), "{}", said(&output));
    let after = values(&out, "produce_latency_p50", &[]);
    assert_eq!((after.len(), &after[0]), (2, &before[0]));
    let left = fs::read_dir(&out).expect("it").map(|it| it.expect("an entry").file_name());
    let left: Vec<_> = left.filter(|it| it.to_string_lossy().starts_with("bench-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_soak_shows_slices_and_what_retention_left() {
    let folder = folder();
    let out = folder.path().join("out");
    let set = ["rate=500", "batch_records=20", "seconds=1.5"];
    let output = command(&out, &[&["soak"], ONE].concat(), &set).output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    // 1.7 s with the warm-up, 20 records each.
    assert_eq!(values(&out, "scheduled_requests", &[]), [Value::from(850)]);
    assert_eq!(values(&out, "unanswered_requests", &[]), [Value::from(0)]);
    assert_eq!(values(&out, "log_ends", &[]), [Value::from(vec![17_000])]);
    let starts = values(&out, "log_starts", &[]);
    let start = starts[0][0].as_u64().expect("an offset");
    // 17 MB were written, and less than 7 MiB may stay.
    assert!(9_000 < start && start < 17_000, "{start}");
    assert!(numbers(&out, "kept_bytes_at_end", &[])[0] <= 7.0 * 1_048_576.0);
    let slices = numbers(&out, "slices", &[])[0];
    assert!((1.0..=7.0).contains(&slices), "{slices}");
    for list in ["memory_by_slice", "descriptors_by_slice", "latency_p50_by_slice"] {
        let list = values(&out, list, &[]);
        let list = list[0].as_array().expect("a list");
        assert_eq!(list.len().to_string(), format!("{slices:.0}"));
        assert!(list.iter().all(|it| Some(0) < it.as_u64()), "{list:?}");
    }
    assert_eq!(pictures(&out).len(), 6, "{:?}", pictures(&out));
}

#[test]
fn a_soak_whose_server_is_killed_keeps_its_slices() {
    let folder = folder();
    let out = folder.path().join("out");
    let set = ["seconds=1000", "warm_up_seconds=0.1"];
    let mut harness = command(&out, &[&["soak"], ONE].concat(), &set);
    let mut harness = harness.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it");
    await_text(&out.join("soak/series.jsonl"), "\"p99\"");
    let server = server_of(&harness).expect("it runs");
    kill_process(server, Signal::KILL).expect("it runs");
    assert_eq!(harness.wait().expect("it ends").code(), Some(1));
    let state = json(&out.join("run.json"));
    let reason = state["cells"][0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("has ended: signal: 9"), "{reason}");
    assert_eq!(state["state"], "partial");
    let slices = values(&out, "latency_p99_by_slice", &[]);
    assert!(2 < slices[0].as_array().expect("a list").len(), "{slices:?}");
    assert!(0.0 < numbers(&out, "broken_off_after", &[])[0]);
    assert!(values(&out, "produce_to_consume_latency_p50", &[]).is_empty());
    assert!(pictures(&out).iter().any(|it| it.to_string_lossy().contains("soak-memory")));
    let report = fs::read_to_string(out.join("report.md")).expect("a report");
    assert!(report.contains(": the soak broke off after"), "{report}");
}
