//! A host that refuses io_uring, as container runtimes do by seccomp.

use crate::support::batch::{self, of};
use crate::support::process::Launch;

#[test]
fn auto_serves_on_plain_files_and_says_so_once() {
    let broker = Launch::without_io_uring("auto").shards(2).start();
    let mut client = broker.connect();
    client.create("topic", 4, &[]);
    for (partition, leader) in (0..).zip(client.leaders("topic")) {
        let mut client = crate::support::client::Client::open(leader);
        assert_eq!(client.accepted("topic", partition, of(&["one", "two"])), 0);
        client.accepted("topic", partition, batch::large(1, 500_000));
        let stored = batch::consume(&mut client, "topic", partition, 0);
        assert_eq!(stored.len(), 3);
    }
    assert_eq!(broker.count("ring_sqes"), 0);
    let (stopped, launch) = broker.stop();
    assert!(stopped.status.success(), "{}", stopped.output);
    let says = |line: &&str| line.contains("io_uring is refused");
    assert_eq!(stopped.output.lines().filter(says).count(), 1, "once:\n{}", stopped.output);
    assert!(stopped.output.contains("engine plain-file"), "{}", stopped.output);
    // What it wrote is there at the next start.
    let broker = launch.start();
    let mut client = broker.connect();
    let leader = client.leaders("topic")[0];
    let mut client = crate::support::client::Client::open(leader);
    assert_eq!(batch::consume(&mut client, "topic", 0, 0).len(), 3);
}

#[test]
fn uring_refuses_to_start_and_names_reason_and_remedy() {
    let output = Launch::without_io_uring("uring").refusal();
    assert!(output.contains("io_uring"), "{output}");
    assert!(output.contains("seccomp"), "the reason:\n{output}");
    assert!(output.contains("--engine auto"), "the remedy:\n{output}");
}

#[test]
fn plain_file_needs_no_io_uring_and_says_nothing_about_it() {
    let broker = Launch::without_io_uring("plain-file").start();
    let mut client = broker.connect();
    client.create("topic", 1, &[]);
    client.accepted("topic", 0, of(&["one"]));
    let (stopped, _) = broker.stop();
    assert!(stopped.status.success(), "{}", stopped.output);
}
