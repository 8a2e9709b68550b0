//! Directories and ports that can't be had: the server says why and ends with an error.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::support::batch::{self, of};
use crate::support::mount::Mount;
use crate::support::process::{Launch, SharedDirectory, directory, free_ports};
use crate::support::{ENGINES, wait};

const NOBODY: u32 = 65_534;

fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// A copy of the binary that another user may run, wherever this one lies.
fn public_binary(place: &SharedDirectory) -> PathBuf {
    open_to_all(place.path());
    let to = place.path().join("uringlog");
    let from = env!("CARGO_BIN_EXE_uringlog");
    if fs::hard_link(from, &to).is_err() {
        fs::copy(from, &to).expect("there is room for a copy");
    }
    to
}

fn by_nobody() -> [String; 4] {
    let own = fs::metadata("/proc/self").expect("Linux has it").uid();
    assert_eq!(own, 0, "this test needs root, to run the server as another user");
    let user = |flag: &str| format!("--{flag}={NOBODY}");
    ["setpriv".to_owned(), user("reuid"), user("regid"), "--clear-groups".to_owned()]
}

fn assert_says(output: &str, words: &[&str]) {
    for word in words {
        assert!(output.contains(word), "`{word}` is missing in:\n{output}");
    }
}

#[test]
fn a_directory_without_permission_is_named_with_the_remedy() {
    let (bin, place) = (directory(), directory());
    let binary = public_binary(&bin);
    open_to_all(place.path());
    let closed = place.path().join("data");
    fs::create_dir(&closed).expect("it is ours");
    let absent = place.path().join("absent");
    for path in [&closed, &absent] {
        let launch = Launch::at("auto", path).binary(binary.clone()).wrapped(by_nobody());
        let output = launch.refusal();
        assert_says(&output, &[&path.display().to_string(), "ermission", "--dir"]);
    }
    assert!(fs::read_dir(&closed).expect("it is there").next().is_none(), "nothing was left in it");
}

#[test]
fn a_directory_on_a_read_only_file_system_is_named_with_the_remedy() {
    let mount = Mount::tmpfs("ro");
    for path in [mount.path().to_owned(), mount.path().join("data")] {
        let output = Launch::at("auto", &path).wrapped(mount.wrapper()).refusal();
        assert_says(&output, &[&mount.path().display().to_string(), "ead-only", "--dir"]);
    }
}

#[test]
fn a_file_in_place_of_the_directory_is_named() {
    let place = directory();
    let file = place.path().join("data");
    fs::write(&file, "not a directory").expect("it is ours");
    let output = Launch::at("auto", &file).refusal();
    assert_says(&output, &[&file.display().to_string()]);
    assert_eq!(fs::read(&file).expect("still there"), b"not a directory");
}

#[test]
fn a_port_in_use_is_named_and_nothing_is_written() {
    let port = free_ports(3);
    for taken in [port, port + 1] {
        let _holder = TcpListener::bind((Ipv4Addr::LOCALHOST, taken)).expect("it is free");
        let place = directory();
        let launch = Launch::at("auto", place.path()).shards(2);
        let output = launch.refusal_on(port);
        assert_says(&output, &[&format!("127.0.0.1:{taken}"), "use", "--listen"]);
        // The refusal has cost nothing: the same directory serves as soon as the port is free.
        launch.start().connect().create("topic", 1, &[]);
    }
}

#[test]
fn a_corrupt_meta_properties_is_named_with_its_line_and_left_alone() {
    let cases: [(&[u8], &str); 5] = [
        (b"", "meta.properties"),
        (b"\x00\x01\x02noise\xff\xfe", "meta.properties"),
        (b"version=1\nnode.id=one\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n", "meta.properties:2"),
        (b"version=7\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n", "meta.properties:1"),
        (b"version=1\nnode.id=9\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n", "meta.properties:2"),
    ];
    for (text, named) in cases {
        let place = directory();
        let file = place.path().join("meta.properties");
        fs::write(&file, text).expect("it is ours");
        let output = Launch::at("auto", place.path()).refusal();
        assert_says(&output, &[named]);
        assert_eq!(fs::read(&file).expect("still there"), text, "it is left alone");
    }
}

#[test]
fn a_directory_in_use_is_refused_and_its_holder_named_and_undisturbed() {
    for engine in ENGINES {
        let place = directory();
        let broker = Launch::at(engine, place.path()).start();
        let mut client = broker.connect();
        client.create("topic", 1, &[]);
        client.accepted("topic", 0, of(&["first"]));
        let output = Launch::at(engine, place.path()).refusal();
        assert_says(&output, &[".lock", &format!("process {}", broker.pid())]);
        client.accepted("topic", 0, of(&["second"]));
        assert_eq!(batch::consume(&mut client, "topic", 0, 0).len(), 2);
        // However the holder ends, its lock is gone with it.
        drop(client);
        let broker = broker.kill().start();
        let mut client = broker.connect();
        assert_eq!(batch::consume(&mut client, "topic", 0, 0).len(), 2);
    }
}

#[test]
fn unknown_settings_and_values_out_of_range_are_refused_with_what_is_meant() {
    let cases = [
        ("log.segment.byte=1", vec!["log.segment.byte", "log.segment.bytes"]),
        ("log.segment.bytes=many", vec!["log.segment.bytes", "many"]),
        ("message.max.bytes=-1", vec!["message.max.bytes", "-1"]),
        ("node.id", vec!["node.id"]),
    ];
    for (setting, words) in cases {
        let output = Launch::new("auto").set(setting).refusal();
        assert_says(&output, &words);
    }
}

#[test]
fn the_start_line_of_each_shard_names_broker_address_core_and_engine() {
    for engine in ENGINES {
        let broker = Launch::new(engine).shards(2).start();
        wait::until("both lines are there", || {
            let output = broker.output();
            let line = |(id, port): (usize, &u16)| {
                let wanted = [format!("broker {}", id + 1), format!("127.0.0.1:{port}")];
                output.lines().any(|line| {
                    wanted.iter().all(|it| line.contains(it))
                        && line.contains("core ")
                        && line.contains(&format!("engine {engine}"))
                })
            };
            broker.ports().iter().enumerate().all(line)
        });
    }
}
