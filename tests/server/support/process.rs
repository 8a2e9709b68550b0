//! The server as a process of its own, and what can be seen of it from outside.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::client::Client;
use super::wait;

/// How often another port is tried when one is taken after it was found free.
const START_TRIES: usize = 10;

/// Length of a journal unless a test says otherwise: a longer one makes every first start slow.
const JOURNAL_BYTES: &str = "journal.bytes=4194304";

/// A directory that lives as long as anyone uses it.
pub type SharedDirectory = Arc<TempDir>;

/// An empty directory.
pub fn directory() -> SharedDirectory {
    Arc::new(tempfile::tempdir().expect("a temporary directory"))
}

/// How the server is to be started.
#[derive(Clone)]
pub struct Launch {
    directory: PathBuf,
    _kept: Option<SharedDirectory>,
    engine: String,
    shards: u16,
    arguments: Vec<String>,
    wrapper: Vec<OsString>,
    binary: PathBuf,
}

impl Launch {
    /// One shard, in a new directory of its own.
    pub fn new(engine: &str) -> Launch {
        let kept = directory();
        Launch { _kept: Some(kept.clone()), ..Launch::at(engine, kept.path()) }
    }

    /// One shard, in a directory that somebody else keeps.
    pub fn at(engine: &str, directory: &Path) -> Launch {
        Launch {
            directory: directory.to_owned(),
            _kept: None,
            engine: engine.to_owned(),
            shards: 1,
            arguments: Vec::new(),
            wrapper: Vec::new(),
            binary: env!("CARGO_BIN_EXE_uringlog").into(),
        }
    }

    /// The same on a host that refuses io_uring, as container runtimes do by seccomp.
    pub fn without_io_uring(engine: &str) -> Launch {
        let manifest = env!("CARGO_MANIFEST_DIR");
        let filter = format!("{manifest}/tests/server/support/without_io_uring.py");
        Launch::new(engine).wrapped(["python3".to_owned(), filter])
    }

    /// With a commit journal, whatever the probe at the start measures, or without.
    pub fn journal(self, is_used: bool) -> Launch {
        self.set(&format!("journal.enable={is_used}"))
    }

    /// The same with its data in another place, which somebody else keeps.
    pub fn in_directory(self, directory: &Path) -> Launch {
        Launch { directory: directory.to_owned(), ..self }
    }

    /// Where its data is.
    pub fn place(&self) -> &Path {
        &self.directory
    }

    /// Another command of the same binary, seeing the same file systems.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut words = self.wrapper.clone();
        words.push(self.binary.clone().into());
        words.extend(arguments.iter().map(OsString::from));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    /// With `--set NAME=VALUE`.
    pub fn set(self, setting: &str) -> Launch {
        self.with(&["--set", setting])
    }

    /// With other arguments.
    pub fn with(mut self, arguments: &[&str]) -> Launch {
        self.arguments.extend(arguments.iter().map(|it| (*it).to_owned()));
        self
    }

    /// With this many shards.
    pub fn shards(self, shards: u16) -> Launch {
        Launch { shards, ..self }
    }

    /// Run by another program, which must become the server (exec).
    pub fn wrapped<T: Into<OsString>>(mut self, wrapper: impl IntoIterator<Item = T>) -> Launch {
        self.wrapper.extend(wrapper.into_iter().map(Into::into));
        self
    }

    /// Another copy of the binary.
    pub fn binary(self, binary: PathBuf) -> Launch {
        Launch { binary, ..self }
    }

    /// Starts it and waits until it answers.
    pub fn start(&self) -> Broker {
        for _ in 0..START_TRIES {
            let mut broker = self.spawn(free_ports(self.shards + 1));
            if broker.answers() {
                return broker;
            }
            let (status, output) = broker.end();
            assert!(output.contains("cannot listen"), "the server ended: {status}\n{output}");
        }
        panic!("no free port was found in {START_TRIES} tries");
    }

    /// Starts it and waits for nothing.
    pub fn starting(&self) -> Broker {
        self.spawn(free_ports(self.shards + 1))
    }

    /// Starts it on a port, expecting that it refuses; its output, and that it failed.
    pub fn refusal_on(&self, port: u16) -> String {
        let mut broker = self.spawn(port);
        let (status, output) = broker.end();
        assert!(!status.success(), "it should not have started:\n{output}");
        assert!(status.code().is_some(), "it should exit, not die: {status}\n{output}");
        assert!(!output.contains("panicked"), "{output}");
        output
    }

    /// Starts it, expecting that it refuses.
    pub fn refusal(&self) -> String {
        self.refusal_on(free_ports(self.shards + 1))
    }

    /// The port behind those of the shards is for HTTP.
    fn spawn(&self, port: u16) -> Broker {
        let http = port + self.shards;
        let mut words = self.wrapper.clone();
        words.push(self.binary.clone().into());
        words.extend(["serve", "--dir"].map(OsString::from));
        words.push(self.directory.clone().into());
        let listen = format!("127.0.0.1:{port}");
        let (shards, http_at) = (self.shards.to_string(), format!("127.0.0.1:{http}"));
        let flags = ["--listen", &listen, "--engine", &self.engine, "--shards", &shards];
        words.extend(flags.map(OsString::from));
        words.extend(["--http", &http_at].map(OsString::from));
        if !self.arguments.iter().any(|it| it.starts_with("journal.bytes=")) {
            words.extend(["--set", JOURNAL_BYTES].map(OsString::from));
        }
        words.extend(self.arguments.iter().map(OsString::from));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the program starts");
        let output = Output::default();
        let listening = [
            output.gather(child.stdout.take().expect("it is piped")),
            output.gather(child.stderr.take().expect("it is piped")),
        ];
        let ports = (port..port + self.shards).collect();
        Broker { child, ports, http, output, listening: listening.into(), launch: self.clone() }
    }
}

/// A port from which on `count` ports are free, outside the range that the system gives out.
pub fn free_ports(count: u16) -> u16 {
    const FIRST: u16 = 20_000;
    const RANGE: u16 = 10_000;
    const STEP: u16 = 8;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    assert!(count <= STEP);
    let own = u16::try_from(std::process::id() % u32::from(RANGE / STEP)).expect("a small rest");
    wait::for_some("a free port", || {
        let step = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(own.wrapping_mul(7));
        let port = FIRST + (step % (RANGE / STEP)) * STEP;
        let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        (port..port + count).all(is_free).then_some(port)
    })
}

/// What a process has written so far.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<String>>);

impl Output {
    fn gather(&self, mut from: impl Read + Send + 'static) -> JoinHandle<()> {
        let output = self.clone();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(bytes @ 1..) = from.read(&mut piece) {
                let mut text = output.0.lock().unwrap_or_else(PoisonError::into_inner);
                text.push_str(&String::from_utf8_lossy(&piece[..bytes]));
            }
        })
    }

    fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A server process; killed when it is dropped.
pub struct Broker {
    child: Child,
    ports: Vec<u16>,
    http: u16,
    output: Output,
    listening: Vec<JoinHandle<()>>,
    launch: Launch,
}

/// How a server ended.
pub struct Stopped {
    /// What it returned.
    pub status: ExitStatus,
    /// From the order to the end.
    pub took: Duration,
    /// All it wrote.
    pub output: String,
}

impl Broker {
    /// Waits until it answers; `false` when it ended instead.
    fn answers(&mut self) -> bool {
        wait::for_some("the server answers", || {
            if self.child.try_wait().expect("it is ours").is_some() {
                return Some(false);
            }
            let mut client = Client::try_open(*self.ports.last().expect("a shard")).ok()?;
            client.try_metadata(None).ok()?;
            // What it says of its start comes later, and is read by a thread of its own.
            self.output.text().contains("ready: ").then_some(true)
        })
    }

    /// A connection to the first shard.
    pub fn connect(&self) -> Client {
        Client::open(self.ports[0])
    }

    /// The ports of the shards.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far.
    pub fn output(&self) -> String {
        self.output.text()
    }

    /// Whether the process is there.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("it is ours").is_none()
    }

    /// Ends it as a power failure of the process would (SIGKILL), and says how to start it again.
    pub fn kill(mut self) -> Launch {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
        self.launch.clone()
    }

    /// Stops it in order (SIGTERM).
    pub fn stop(mut self) -> (Stopped, Launch) {
        let began = Instant::now();
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it is ours");
        let status = self.status();
        let took = began.elapsed();
        let (status, output) = (status, self.drained());
        (Stopped { status, took, output }, self.launch.clone())
    }

    /// Waits for its end; status and output.
    fn end(&mut self) -> (ExitStatus, String) {
        (self.status(), self.drained())
    }

    fn status(&mut self) -> ExitStatus {
        let output = self.output.clone();
        wait::for_some("the server ends", || {
            let status = self.child.try_wait().expect("it is ours");
            status.or_else(|| output.text().contains("panicked").then(|| self.killed()))
        })
    }

    fn killed(&mut self) -> ExitStatus {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours")
    }

    fn drained(&mut self) -> String {
        for listening in self.listening.drain(..) {
            listening.join().expect("it only reads");
        }
        self.output.text()
    }

    /// A value of `/proc/PID/status` in KiB, such as `VmHWM`, the most memory so far.
    pub fn memory_kib(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the process is there");
        let line = status.lines().find(|line| line.starts_with(field)).expect("a field of it");
        let number = line.split_whitespace().nth(1).expect("it has a value");
        number.parse().expect("it is a number")
    }

    /// How many descriptors it has open.
    pub fn descriptors(&self) -> usize {
        let entries = fs::read_dir(format!("/proc/{}/fd", self.pid()));
        entries.expect("the process is there").count()
    }

    /// A counter of `/metrics`, all shards together.
    pub fn count(&self, name: &str) -> u64 {
        self.sum(&format!("{name}_total"))
    }

    /// A gauge of `/metrics`, all shards together.
    pub fn gauge(&self, name: &str) -> u64 {
        self.sum(name)
    }

    fn sum(&self, name: &str) -> u64 {
        let text = self.get("/metrics");
        let start = format!("uringlog_{name}");
        let own =
            |line: &&str| line.strip_prefix(&start).is_some_and(|it| it.starts_with(['{', ' ']));
        let value = |line: &str| -> u64 {
            let number = line.rsplit(' ').next().expect("a line has words");
            number.parse().expect("they are whole numbers")
        };
        let values: Vec<u64> = text.lines().filter(own).map(value).collect();
        assert!(!values.is_empty(), "{name} is not among the metrics:\n{text}");
        values.iter().sum()
    }

    /// A page of the HTTP port. A shard that waits for a slow device doesn't answer in time: it is
    /// asked again.
    pub fn get(&self, path: &str) -> String {
        wait::for_some("the HTTP port answers", || {
            let answer = self.http(path).expect("--http");
            answer.starts_with("HTTP/1.1 200").then_some(answer)
        })
    }

    fn http(&self, path: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.http))?;
        stream.set_read_timeout(Some(wait::PATIENCE))?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the server wrote:\n{}", self.output());
        }
    }
}
