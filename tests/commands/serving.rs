//! A server process, and commands that are run against it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_uringlog");

/// A server on a free port, ended with the test.
pub struct Serving {
    child: Child,
    pub address: String,
    _directory: tempfile::TempDir,
}

/// What a command left behind.
#[derive(Debug)]
pub struct Said {
    pub out: String,
    pub err: String,
    pub code: Option<i32>,
}

impl Said {
    /// What it printed, having ended well.
    pub fn fine(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    /// What it said on standard error, having failed.
    pub fn failed(self) -> String {
        assert_eq!(self.code, Some(1), "{}", self.out);
        assert_eq!(self.out, "");
        self.err
    }
}

impl Serving {
    pub fn start() -> Serving {
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

    /// A server with an empty topic.
    pub fn with_topic(name: &str) -> Serving {
        let server = Serving::start();
        server.fine(&format!("topic create {name} --partitions 1"));
        server
    }

    /// The command, its words apart by blanks.
    pub fn command(&self, line: &str) -> Command {
        command(line, &self.address)
    }

    pub fn say(&self, line: &str) -> Said {
        said(self.command(line), b"")
    }

    pub fn fine(&self, line: &str) -> String {
        self.say(line).fine()
    }

    /// With this on standard input.
    pub fn feed(&self, line: &str, input: &[u8]) -> String {
        said(self.command(line), input).fine()
    }

    pub fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.fine(&format!("{line} --json"))).expect("JSON")
    }

    /// Each line of what it prints.
    pub fn json_lines(&self, line: &str) -> Vec<Value> {
        let text = self.fine(&format!("{line} --json"));
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

/// A command that finds its server at this address.
pub fn command(line: &str, address: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(line.split_whitespace()).env("URINGLOG_BOOTSTRAP", address);
    command.env_remove("NO_COLOR").env_remove("RUST_LOG");
    command
}

/// Runs it to its end.
pub fn said(mut command: Command, input: &[u8]) -> Said {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().expect("the program is there");
    let mut pipe = child.stdin.take().expect("it is piped");
    // Few bytes: a pipe takes them whether they are read or not.
    pipe.write_all(input).expect("a pipe takes that much");
    drop(pipe);
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Said { out: text(output.stdout), err: text(output.stderr), code: output.status.code() }
}
