//! What each experiment shows, read back from the files of real runs: the documents' figures, and
//! other ones for other parameters.

mod support;

use std::fs;
use std::path::Path;

use serde_json::Value;
use support::{files, folder, harness, json, run, said, values};

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
    // Plans that roll, with next segments prepared and not: of 1 and of 8 partitions.
    for form in ["unprepared", "prepared"] {
        let count = values(&results, &format!("plan_that_rolls_{form}_count"), &[]);
        assert_eq!(count, [vec![Value::from(40); 4], vec![Value::from(40); 4]].concat());
    }
    assert_eq!(values(&results, "prepared_to_unprepared_p50", &[]).len(), 8);

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
    for title in report.lines().filter(|it| it.starts_with("**4,000 x 1,024 B behind")) {
        let cells = title.split_once("** (").expect("it says which").1.trim_end_matches(')');
        let mut cells: Vec<&str> = cells.split("; ").collect();
        let count = cells.len();
        cells.sort_unstable();
        cells.dedup();
        assert_eq!(cells.len(), count, "a cell stands there twice: {title}");
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

/// More than topics take in a batch unless they are told to.
#[test]
fn batches_above_the_default_limit_are_taken() {
    let folder = folder();
    let arguments =
        ["limits", "soak", "--quick", "--engines", "plain-file", "--durability", "page-cache"];
    let set = [
        "flush_record_size=1048576",
        "flush_messages=10",
        "flush_appends=10",
        "flush_warm_up=1",
        "record_bytes=65536",
        "batch_records=20",
        "segment_mib=2",
        "rate=5",
        "seconds=0.5",
    ];
    let set = set.iter().flat_map(|it| ["--set", it]);
    let arguments: Vec<&str> = arguments.into_iter().chain(set).collect();
    let (_, output) = run(folder.path(), &arguments);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn retention_through_the_wire_is_set_when_the_log_is_full() {
    let folder = folder();
    let arguments =
        ["retention", "--quick", "--engines", "plain-file", "--durability", "page-cache"];
    // Sooner over than all is appended, if it counted from the beginning.
    let set = ["--set", "through=wire", "--set", "record_size=1000", "--set", "retention_ms=50"];
    let (out, output) = run(folder.path(), &[&arguments[..], &set[..]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let results = json(&out.join("results.json"));
    let of = |figure: &str, rule: &str| values(&results, figure, &[("rule", rule.into())]);
    // 69 batches of 15,196 bytes fit a segment.
    let all = [Value::from(vec![0, 1035, 2070, 3105])];
    assert_eq!(of("base_offsets", "time"), all);
    assert_eq!(of("deleted_base_offsets", "time"), all);
    assert_eq!(of("kept_base_offsets", "time"), [Value::from(vec![4000])]);
    assert_eq!(of("base_offsets", "size"), all);
    assert_eq!(of("deleted_base_offsets", "size"), [Value::from(vec![0])]);
    assert_eq!(of("kept_bytes", "size"), [Value::from(2 * 69 * 15_196 + 59 * 15_196 + 10_151)]);
    for rule in ["time", "size"] {
        let drawn = files(&out, ".svg");
        let is_it = |it: &Path| it.to_string_lossy().contains(&format!("stages-by-{rule}"));
        assert!(drawn.iter().any(|it| is_it(it)), "{rule}: {drawn:?}");
    }
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
    let committed = values(&results, "committed_offset", &[]);
    assert_eq!(committed, [4; 4].map(Value::from));
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
    assert_eq!(of("page-cache", "killed", "headers_read"), 133);
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
