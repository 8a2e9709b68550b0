//! The harness as its users run it: real runs into temporary folders, read back from their files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn harness(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_bench-harness");
    Command::new(program).args(arguments).output().expect("the program starts")
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// On the file system that the sources lie on: /tmp may be memory, where O_DIRECT is not to be had.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// Runs experiments into a new folder.
fn run(folder: &Path, arguments: &[&str]) -> (PathBuf, Output) {
    let out = folder.join("out");
    let text = out.to_str().expect("a path of ours");
    let whole: Vec<&str> =
        ["run"].iter().chain(arguments).copied().chain(["--out", text]).collect();
    let output = harness(&whole);
    (out, output)
}

fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// Values of a figure, those whose parameters agree.
fn values(results: &Value, figure: &str, parameters: &[(&str, Value)]) -> Vec<Value> {
    let list = results.as_array().expect("results are a list").iter();
    let is_it = |it: &&Value| {
        it["figure"] == figure
            && parameters.iter().all(|(name, value)| it["parameters"][name] == *value)
    };
    list.filter(is_it).map(|it| it["value"].clone()).collect()
}

/// Files below a folder with this ending.
fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path, end));
        } else if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
    found
}

#[test]
fn roll_by_size_shows_the_figures_of_the_documents() {
    let folder = folder();
    let (out, output) = run(folder.path(), &["roll-by-size", "--quick"]);
    assert!(output.status.success(), "{}", said(&output));
    let results = json(&out.join("results.json"));
    // Two engines in two tiers.
    let behind_small = [
        ("small_records", true.into()),
        ("record_size", 1024.into()),
        ("through", "library".into()),
    ];
    let bases: Value = vec![0, 1028, 2033, 3038].into();
    assert_eq!(values(&results, "base_offsets", &behind_small), vec![bases.clone(); 4]);
    let wire = [("through", "wire".into())];
    assert_eq!(values(&results, "base_offsets", &wire), vec![bases; 4]);
    let closed: Value = vec![1_044_700, 1_042_252, 1_042_252].into();
    assert_eq!(values(&results, "closed_log_bytes", &behind_small), vec![closed; 4]);
    let indexes: Value = vec![528, 528, 528].into();
    assert_eq!(values(&results, "closed_index_bytes", &behind_small), vec![indexes; 4]);
    let alone = [("small_records", false.into()), ("record_size", 1024.into())];
    let bases: Value = vec![0, 1005, 2010, 3015, 4000].into();
    assert_eq!(values(&results, "base_offsets_and_end", &alone), vec![bases; 4]);
    let numbered = [("record_size", 2000.into())];
    let bases: Value = vec![0, 512, 1024, 1536, 2048].into();
    assert_eq!(values(&results, "base_offsets", &numbered), vec![bases; 4]);
    let active = values(&results, "active_index_bytes", &behind_small);
    assert_eq!(active, vec![Value::from(10_485_760); 4]);
    let allocated = values(&results, "active_index_allocated_bytes", &behind_small);
    assert!(allocated.iter().all(|it| it.as_u64() < Some(1 << 20)), "{allocated:?}");

    assert_eq!(json(&out.join("run.json"))["state"], "complete");
    assert!(json(&out.join("machine.json"))["kernel"].is_string());
    assert!(10 <= files(&out, ".svg").len());
    assert!(4 <= files(&out, ".hgrm").len());
    assert_eq!(files(&out, ".hgrm").len(), files(&out, ".hlog").len());
    assert!(2 <= files(&out, ".jsonl").len());
    let report = fs::read_to_string(out.join("report.md")).expect("a report");
    for part in ["1044700", "What differs, and why", "](pictures/", "Tier: device", "Noise"] {
        assert!(report.contains(part), "{part} is not in the report");
    }
    the_report_comes_from_the_files(&out, &report);
    the_same_run_compares_as_the_same(&out);
}

/// Made anew, it is the same, and so are its pictures.
fn the_report_comes_from_the_files(out: &Path, report: &str) {
    let pictures = files(out, ".svg");
    let before = fs::read_to_string(&pictures[0]).expect("a picture");
    fs::remove_file(out.join("report.md")).expect("it was there");
    fs::remove_dir_all(out.join("pictures")).expect("they were there");
    let output = harness(&["report", out.to_str().expect("a path of ours")]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read_to_string(out.join("report.md")).expect("it is back"), report);
    assert_eq!(fs::read_to_string(&pictures[0]).expect("it is back"), before);
}

fn the_same_run_compares_as_the_same(out: &Path) {
    let text = out.to_str().expect("a path of ours");
    let output = harness(&["compare", text, text]);
    assert!(output.status.success(), "{}", said(&output));
    let changed = out.with_file_name("changed");
    fs::create_dir(&changed).expect("a folder");
    for name in ["run.json", "machine.json", "noise.jsonl", "results.json"] {
        let text = fs::read_to_string(out.join(name)).expect("it is there");
        fs::write(changed.join(name), text.replace("[0,1028,", "[0,1029,")).expect("a copy");
    }
    let output = harness(&["compare", text, changed.to_str().expect("a path of ours")]);
    assert!(!output.status.success());
    assert!(said(&output).contains("WORSE"), "{}", said(&output));
}

#[test]
fn other_parameters_give_other_figures() {
    let folder = folder();
    let arguments =
        ["roll-by-size", "--quick", "--engines", "plain-file", "--durability", "page-cache"];
    let set = ["--set", "record_size=1023", "--set", "small_records=false", "--set", "cost=false"];
    let (out, output) = run(folder.path(), &[&arguments[..], &set[..]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let results = json(&out.join("results.json"));
    // Directly and through the wire.
    let bases = values(&results, "base_offsets", &[("record_size", 1023.into())]);
    // A batch has 15 bytes less, so that as many fit; only the closed sizes differ.
    assert_eq!(bases, vec![Value::from(vec![0, 1005, 2010, 3015]); 2]);
    let closed = values(&results, "closed_log_bytes", &[]);
    assert_eq!(closed, vec![Value::from(vec![67 * 15_541; 3]); 2]);
}

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
    let cases: [(&[&str], &str); 9] = [
        (&["nonsense"], "unknown experiment nonsense; there are: all, roll-by-size"),
        (&["roll-by-size", "--engines", "uring,fast"], "unknown engine fast; there are: uring"),
        (&["roll-by-size", "--durability", "none"], "there are: device, page-cache"),
        (&["roll-by-size", "--fs", "/no/such/folder=x"], "there is no such folder"),
        (&["roll-by-size", "--fs", "/tmp"], "want PATH=LABEL"),
        (&["roll-by-size", "--set", "records=0"], "records must be 1 to 10000000"),
        (&["roll-by-size", "--set", "sizes=0"], "no such parameter; there are, for roll-by-size"),
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
fn roll_by_time_cuts_by_the_times_of_records_only() {
    let folder = folder();
    let (out, output) = run(folder.path(), &["roll-by-time", "--quick"]);
    assert!(output.status.success(), "{}", said(&output));
    let results = json(&out.join("results.json"));
    // Two engines in two tiers, by the library and through the wire.
    let of = |figure: &str, parameter: &str, value: &str| {
        let found = values(&results, figure, &[(parameter, value.into())]);
        assert_eq!(found.len(), 8, "{figure}: {found:?}");
        assert!(found.iter().all(|it| *it == found[0]), "{figure}: {found:?}");
        found[0].clone()
    };
    assert_eq!(of("base_offsets", "timestamps", "falling"), Value::from(vec![0]));
    assert_eq!(of("base_offsets", "timestamps", "none"), Value::from(vec![0]));
    let rising = |figure: &str| of(figure, "timestamps", "rising");
    assert_eq!(rising("base_offsets"), Value::from(vec![0, 2]));
    assert_eq!(rising("log_bytes"), Value::from(vec![147, 74]));
    assert_eq!(rising("closed_index_bytes"), Value::from(vec![0]));
    assert_eq!(rising("closed_time_index_bytes"), Value::from(vec![12]));
    let full = |times: &str| of("full_index_base_offsets", "index_timestamps", times);
    assert_eq!(full("rising"), Value::from(vec![0, 10, 20]));
    assert_eq!(full("equal"), Value::from(vec![0, 16]));
    assert_eq!(rising("idle_segments"), 1);
    assert_eq!(rising("idle_segments_after_append"), 2);
    let together =
        |jitter: u64| values(&results, "most_that_roll_together", &[("jitter_ms", jitter.into())]);
    assert_eq!(together(0), vec![Value::from(8); 4]);
    let (spread, first) = (together(10_000), values(&results, "first_roll_ms", &[]));
    assert_eq!((spread.len(), first.len()), (4, 8));
    assert!(spread.iter().all(|it| it.as_u64() < Some(8)), "{spread:?}");
    assert!(10 <= files(&out, ".svg").len(), "{:?}", files(&out, ".svg"));
}

#[test]
fn roll_by_time_follows_its_parameters() {
    let folder = folder();
    let arguments =
        ["roll-by-time", "--quick", "--engines", "plain-file", "--durability", "page-cache"];
    let set = ["records=9", "record_gap_ms=3000", "record_size=100", "segment_index_bytes=48"];
    let set: Vec<&str> = set.iter().flat_map(|it| ["--set", it]).collect();
    let (out, output) = run(folder.path(), &[&arguments[..], &set[..]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let results = json(&out.join("results.json"));
    // Ages of 0, 3, 6 and 9 s fit. A record of 100 bytes is 170 in the file.
    assert_eq!(values(&results, "base_offsets", &[]), vec![Value::from(vec![0, 4, 8]); 2]);
    let logs: Value = vec![73 + 3 * 170, 4 * 170, 170].into();
    assert_eq!(values(&results, "log_bytes", &[]), vec![logs; 2]);
    let rising = [("index_timestamps", "rising".into())];
    let bases: Value = vec![0, 4, 8, 12, 16, 20].into();
    assert_eq!(values(&results, "full_index_base_offsets", &rising), vec![bases; 2]);
}

#[test]
fn batch_on_disk_is_the_documents_byte_for_byte() {
    let folder = folder();
    let (out, output) = run(folder.path(), &["batch-on-disk", "--quick"]);
    assert!(output.status.success(), "{}", said(&output));
    let results = json(&out.join("results.json"));
    let figure = |name: &str| values(&results, name, &[]);
    assert_eq!(figure("positions"), vec![Value::from(vec![0, 74, 148, 217]); 8]);
    assert_eq!(figure("batch_bytes"), vec![Value::from(vec![74, 74, 69, 69]); 8]);
    let crcs = vec![1_103_641_000_u64, 4_128_348_420, 978_536_071, 4_154_198_374];
    assert_eq!(figure("crcs"), vec![Value::from(crcs); 8]);
    let of = |count: u64| {
        let point = [("batch_records", count.into()), ("record_sizes", 10.into())];
        values(&results, "overhead_per_record", &point)
    };
    assert_eq!((of(1), of(10)), (vec![Value::from(68.0); 8], vec![Value::from(13.1); 8]));
    let packed = |codec: &str| values(&results, "packed_bytes", &[("codec", codec.into())]);
    assert_eq!(packed("none"), vec![Value::from(100_997); 8]);
    for codec in ["gzip", "snappy", "lz4", "zstd"] {
        assert!(packed(codec).iter().all(|it| it.as_u64() < Some(50_000)), "{codec}");
        let stored = [("compression_type", codec.into())];
        let stored = values(&results, "repacked_bytes", &stored);
        assert!(stored.len() == 4 && stored.iter().all(|it| it.as_u64() < Some(50_000)));
    }
    assert!(said(&output).contains("1103641000  true"), "{}", said(&output));
    assert_eq!(files(&out, ".svg").len(), 12);
}

#[test]
fn batch_on_disk_follows_its_parameters() {
    let folder = folder();
    let arguments = ["batch-on-disk", "--quick", "--engines", "uring", "--durability", "device"];
    let set = ["value_sizes=57,58,1023", "key_size=3", "headers=2", "through=library"];
    let set: Vec<&str> = set.iter().flat_map(|it| ["--set", it]).collect();
    let (out, output) = run(folder.path(), &[&arguments[..], &set[..]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let results = json(&out.join("results.json"));
    // 61 of the header; of a record 7 and, with so much in it, one more for its length; a key of 3;
    // two headers of 3 and 8; values of 64 bytes and more have a length of two bytes.
    let bytes: Vec<u64> = [57, 58, 1023].map(|it| 61 + 8 + 3 + 22 + it).to_vec();
    let bytes: Value = vec![bytes[0], bytes[1], bytes[2] + 1].into();
    assert_eq!(values(&results, "batch_bytes", &[]), [bytes]);
}

#[test]
fn partitions_show_which_keys_move_and_that_offsets_count_no_records() {
    let folder = folder();
    let (out, output) = run(folder.path(), &["partitions", "--quick"]);
    assert!(output.status.success(), "{}", said(&output));
    let results = json(&out.join("results.json"));
    let grown = |figure: &str, partitions: u64| {
        let found = values(&results, figure, &[("grown_partitions", partitions.into())]);
        assert!(found.len() == 8 && found.iter().all(|it| *it == found[0]), "{found:?}");
        found[0].clone()
    };
    assert_eq!((grown("moved_keys", 5), grown("moved_keys", 8)), (776.into(), 498.into()));
    assert_eq!(grown("example_key_partition", 5), 0);
    assert_eq!(grown("example_key_partition_grown", 5), 4);
    let batches = |partitioner: &str, partitions: u64| {
        let point = [("partitioner", partitioner.into()), ("sticky_partitions", partitions.into())];
        values(&results, "batches", &point)
    };
    assert_eq!(batches("record by record", 1), vec![Value::from(10); 4]);
    assert_eq!(batches("record by record", 8), vec![Value::from(80); 4]);
    assert_eq!(batches("sticky", 8), vec![Value::from(10); 4]);
    let figure = |name: &str| values(&results, name, &[]);
    assert_eq!(figure("offset_difference"), vec![Value::from(1100); 4]);
    assert_eq!(figure("readable_records"), vec![Value::from(100); 4]);
    assert_eq!(figure("control_records"), vec![Value::from(100); 4]);
    assert_eq!(figure("compacted_offsets"), vec![Value::from(900); 4]);
    assert_eq!(files(&out, ".svg").len(), 10);
}

#[test]
fn limits_are_those_of_kafka_and_each_setting_does_what_it_says() {
    let folder = folder();
    let (out, output) = run(folder.path(), &["limits", "--quick", "--engines", "plain-file"]);
    assert!(output.status.success(), "{}", said(&output));
    let results = json(&out.join("results.json"));
    assert_eq!(values(&results, "segment_bytes_min", &[]), [Value::from(1_048_576)]);
    let text = said(&output);
    let refusal = "300  Invalid value 300 for configuration segment.bytes: Value must be at least \
                   1048576";
    assert!(text.contains(refusal), "{text}");
    let of =
        |parameter: &str, value: u64| values(&results, "segments", &[(parameter, value.into())]);
    assert_eq!(of("segment_bytes", 2 << 20), [Value::from(9)]);
    assert_eq!(of("segment_hours", 24), [Value::from(14)]);
    for parameter in ["wire_throughput", "library_throughput"] {
        assert_eq!(values(&results, parameter, &[]).len(), 5, "{parameter}");
    }
    assert!(7 <= files(&out, ".svg").len(), "{:?}", files(&out, ".svg"));
}

#[test]
fn retention_takes_whole_segments_in_two_stages() {
    let folder = folder();
    let arguments = ["retention", "--quick", "--durability", "page-cache"];
    let (out, output) = run(folder.path(), &arguments);
    assert!(output.status.success(), "{}", said(&output));
    let results = json(&out.join("results.json"));
    let both = |figure: &str, parameters: &[(&str, Value)], expected: Value| {
        assert_eq!(values(&results, figure, parameters), vec![expected; 2], "{figure}");
    };
    // The document on retention.ms, then that on retention.bytes.
    let by_time = [("rule", "time".into())];
    both("deleted_base_offsets", &by_time, vec![0, 1005, 2010, 3015].into());
    let sizes = vec![1_042_252, 1_042_252, 1_042_252, 1_021_531];
    both("deleted_log_bytes", &by_time, sizes.into());
    both("kept_base_offsets", &by_time, vec![4000].into());
    both("earliest_offset", &by_time, 4000.into());
    both("latest_offset", &by_time, 4000.into());
    both("latest_offset_after_one_more", &by_time, 4001.into());
    let by_size = [("rule", "size".into()), ("record_size", 2000.into())];
    both("deleted_base_offsets", &by_size, vec![0, 512].into());
    both("kept_log_bytes", &by_size, vec![1_032_144, 1_032_144, 911_243].into());
    both("earliest_offset", &by_size, 1024.into());
    both("latest_offset", &by_size, 2500.into());
    both("held_from_offset", &[], 2.into());
    both("segments_deleted", &[("cost_segments", 20.into())], 20.into());
    // A segment's oldest record outlives its newest by what it spans.
    let of = |figure: &str| values(&results, figure, &[("span_ms", 500.into())]);
    let number = |value: &Value| value.as_u64().expect("milliseconds");
    let lifetimes = of("oldest_record_lifetime").into_iter().zip(of("newest_record_lifetime"));
    for ((oldest, newest), span) in lifetimes.zip(of("segment_span")) {
        assert!(400 < number(&newest), "{newest} ms");
        assert!(number(&newest) + number(&span) <= number(&oldest), "{oldest} ms");
    }
    let report = fs::read_to_string(out.join("report.md")).expect("a report");
    assert!(report.contains("00000000000000003015.log.deleted"), "the stages are listed");
    assert_eq!(files(&out, ".svg").len(), 8, "{:?}", files(&out, ".svg"));
}

#[test]
fn offsets_say_what_a_consumer_may_read() {
    let folder = folder();
    let set = ["--set", "records=20", "--set", "unsynced_records=3"];
    let (out, output) = run(folder.path(), &[&["offsets", "--quick"], &set[..]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let results = json(&out.join("results.json"));
    // In the device tier what waits for its sync can't be read, in the other it can.
    let held = values(&results, "high_watermark", &[("moment", "held".into())]);
    assert_eq!(held, [17, 17, 20, 20].map(Value::from));
    let next = values(&results, "next_offset", &[("moment", "held".into())]);
    assert_eq!(next, [20; 4].map(Value::from));
    let released = values(&results, "readable_records", &[("moment", "released".into())]);
    assert_eq!(released, [19; 4].map(Value::from));
    let early = values(&results, "readable_before_durable_max", &[]);
    assert_eq!(early[..2], [0; 2].map(Value::from));
    assert!(early[2..].iter().all(|it| Some(0) < it.as_u64()), "{early:?}");
    let after_stop = values(&results, "recovery_point_after_stop", &[]);
    assert_eq!(after_stop, [20; 4].map(Value::from));
    assert_eq!(files(&out, ".svg").len(), 10, "{:?}", files(&out, ".svg"));
}

#[test]
fn uring_compares_the_same_work_in_every_way_and_says_where_the_ring_loses() {
    let folder = folder();
    let set = ["--set", "middle_partitions=3", "--set", "group_batches=4", "--set", "point_ms=5"];
    let (out, output) = run(folder.path(), &[&["uring", "--quick"], &set[..]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let results = json(&out.join("results.json"));
    let of = |way: &str, figure: &str, parameters: &[(&str, Value)]| -> Vec<f64> {
        let all = results.as_array().expect("results are a list").iter();
        let ours: Value = all.filter(|it| it["engine"] == way).cloned().collect();
        values(&ours, figure, parameters).iter().filter_map(Value::as_f64).collect()
    };
    let synced = |sync: &str| [("sweep", "sync".into()), ("sync", sync.into())];
    let grouped = |is: bool| [("sweep", "group_commit".into()), ("group_commit", is.into())];
    // The rules of the plans: a sync each, none at all, one for all batches of a partition.
    for way in ["linked", "unlinked", "pwrite", "serial", "pool"] {
        assert_eq!(of(way, "append_syncs", &synced("fdatasync")), [1.0], "{way}");
        assert_eq!(of(way, "append_syncs", &synced("none")), [0.0], "{way}");
        assert_eq!(of(way, "append_syncs", &grouped(true)), [0.25], "{way}");
        assert_eq!(of(way, "append_syncs", &grouped(false)), [1.0], "{way}");
    }
    // What links save: a plan is one chain, or as many as it has steps.
    assert_eq!(of("linked", "append_chains", &synced("fdatasync")), [1.0]);
    assert!(1.0 < of("unlinked", "append_chains", &synced("fdatasync"))[0]);
    for way in ["read-send", "sendfile", "splice", "send-zc", "mmap-send"] {
        let read = |cache: &str| of(way, "device_bytes_read", &[("cache", cache.into())]);
        // Single points can be off: pages that a socket still holds are not dropped, and what the
        // program itself is paged in from counts, too.
        let (cold, hot) = (read("cold"), read("hot"));
        assert!(hot.iter().sum::<f64>() < cold.iter().sum(), "{way}: {cold:?}, {hot:?}");
    }
    let compared = of("none", "points_compared", &[]);
    assert_eq!(compared.len(), 5, "plans, reads, queues, syncs, index: {compared:?}");
    assert!(compared.iter().all(|it| 0.0 < *it));
    let report = fs::read_to_string(out.join("report.md")).expect("a report");
    assert!(report.contains("the ring loses in"), "{report}");
    assert!(15 <= files(&out, ".svg").len(), "{:?}", files(&out, ".svg"));
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

#[test]
fn a_sparse_index_names_the_batches_of_the_document() {
    let folder = folder();
    // The sweep stays small; the phenomenon is the whole one, directly and through the wire.
    let arguments = ["sparse-index", "--quick", "--engines", "plain-file"];
    let set = ["--set", "sweep_batches=1000", "--set", "sweep_intervals=0,4096"];
    let (out, output) = run(folder.path(), &[&arguments[..], &set[..]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let results = json(&out.join("results.json"));
    let of = |figure: &str| values(&results, figure, &[]);
    for offsets in of("entry_offsets") {
        let offsets = offsets.as_array().expect("a list");
        assert_eq!((offsets.len(), &offsets[..3]), (66, &[52, 67, 82].map(Value::from)[..]));
    }
    let twice = |value: u64| vec![Value::from(value); 2];
    assert_eq!(of("index_bytes"), twice(528));
    assert_eq!(of("lookup_floor_position"), twice(18_004));
    assert_eq!(of("lookup_batch_position"), twice(33_560));
    assert_eq!(of("lookup_scanned_bytes"), twice(15_556));
    assert_eq!(of("time_found_offset"), twice(1234));
    let swept = |interval: u64| {
        values(&results, "sweep_index_entries", &[("sweep_intervals", interval.into())])
    };
    // 2,097 batches in 2 MiB: an entry for each but the first, and for every fifth.
    assert_eq!((swept(0), swept(4096)), (vec![2096.into()], vec![419.into()]));
    // A tail lookup with the warm section stays in three pages of the index.
    let tail = [("targets", "tail".into()), ("search", "warm-section".into())];
    let pages = values(&results, "search_pages_in_all", &tail);
    assert!(pages.iter().all(|it| it.as_u64() <= Some(3)), "{pages:?}");
    assert!(7 <= files(&out, ".svg").len());
}

#[test]
fn a_restart_scans_what_the_checkpoint_does_not_know() {
    let folder = folder();
    let arguments = ["restart", "--quick", "--engines", "plain-file", "--set", "cost=false"];
    let (out, output) = run(folder.path(), &arguments);
    assert!(output.status.success(), "{}", said(&output));
    let results = json(&out.join("results.json"));
    let of = |tier: &str, case: &str, figure: &str| -> Value {
        let list = results.as_array().expect("results are a list").iter();
        let mut found = list.filter(|it| {
            it["tier"] == tier && it["parameters"]["case"] == case && it["figure"] == figure
        });
        let value = found.next().map(|it| it["value"].clone());
        value.unwrap_or_else(|| panic!("{figure} of {case} in {tier}"))
    };
    // 267 batches, 66 of them in the last segment; 67 in the one before it, which ends where the
    // checkpoint is: its indexes may not have been durable then.
    let checked = |case: &str| of("page-cache", case, "checked_bytes");
    assert_eq!(checked("killed-before-checkpoint"), 4_148_287);
    assert_eq!(checked("killed"), 1_021_531);
    assert_eq!(of("page-cache", "killed", "headers_read"), 267);
    assert_eq!(of("page-cache", "killed-two-days-ago", "headers_read"), 133);
    let bases = of("page-cache", "index-removed", "rebuilt_index_bases");
    assert_eq!(bases, Value::from(vec![0, 1005, 2010, 3015]));
    assert_eq!(of("page-cache", "index-removed", "index_bytes_differing"), 0);
    // The last batch has ten records; 100 bytes less, and all of it is cut off.
    assert_eq!(of("page-cache", "torn-tail", "records_lost"), 10);
    for case in ["clean", "killed", "killed-before-checkpoint", "index-removed"] {
        for tier in ["device", "page-cache"] {
            assert_eq!(of(tier, case, "records_lost"), 0, "{case}, {tier}");
        }
    }
    assert!(5 <= files(&out, ".svg").len(), "{:?}", files(&out, ".svg"));
}
