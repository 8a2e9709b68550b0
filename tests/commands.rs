//! The commands against a server of their own, as a user runs them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_uringlog");

/// A server on a free port, ended with the test.
struct Serving {
    child: Child,
    address: String,
    _directory: tempfile::TempDir,
}

impl Serving {
    fn start() -> Serving {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut child = Command::new(PROGRAM)
            .args(["serve", "--listen", "127.0.0.1:0", "--shards", "1"])
            .args(["--set", "journal.bytes=4194304", "--dir"])
            .arg(directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program is built");
        let out = child.stdout.take().expect("it is piped");
        let lines = BufReader::new(out).lines().map(|line| line.expect("text"));
        let ready = lines.take(2).find(|line| line.starts_with("ready: ")).expect("a line");
        let address = ready.split([' ', ',']).find(|word| word.starts_with("127.0.0.1:"));
        let address = address.expect("the line names the address").to_owned();
        Serving { child, address, _directory: directory }
    }

    fn run(&self, arguments: &[&str], input: &str) -> String {
        let mut child = Command::new(PROGRAM)
            .args(arguments)
            .args(["--bootstrap", &self.address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program is built");
        let mut pipe = child.stdin.take().expect("it is piped");
        pipe.write_all(input.as_bytes()).expect("it reads its input");
        drop(pipe);
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).expect("text")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

/// The process once ended before its batches had left.
#[test]
fn what_was_produced_without_acks_is_there_when_the_command_ends() {
    let server = Serving::start();
    server.run(&["topic", "create", "lines", "--partitions", "2"], "");
    for round in 1..=5 {
        server.run(&["produce", "lines", "--acks", "0", "--partition", "1"], "one\ntwo\n");
        let records = server.run(&["consume", "lines"], "");
        assert_eq!(records, "one\ntwo\n".repeat(round));
    }
}
