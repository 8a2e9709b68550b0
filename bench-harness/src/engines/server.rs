//! A server of the cell's engine in a process of its own: uringlog (this very program, started as
//! `serve`), or Apache Kafka by `scripts/kafka`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use uringlog::client::{Client, ClientOptions};

use super::{EngineName, Tier};
use crate::experiments::{Doing, DoingTo, Failure};
use crate::run::{Context, Endings};

/// Where the project has it.
const KAFKA_SCRIPT: &str = "scripts/kafka";
/// How long an orderly stop may take before the process is killed.
const STOP_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A connection may fail that long before the server's process is seen to have ended.
const END_AFTER_FAILURE: Duration = Duration::from_millis(500);
/// What the kernel counts process times in (`sysconf(_SC_CLK_TCK)`, 100 on every Linux).
const TICK: Duration = Duration::from_millis(10);

/// A running server; killed when it is dropped.
pub struct Server {
    /// Host and port of its first listener.
    pub address: String,
    /// Holds a directory for each partition, `TOPIC-NUMBER`.
    pub data: PathBuf,
    /// What it says.
    log: PathBuf,
    process: Process,
    /// Whether it was told to end.
    is_told: bool,
    endings: Endings,
}

enum Process {
    /// uringlog, a child of ours; its pipe stays open, so that it can say more.
    Child { child: Child, _said: Lines<BufReader<ChildStdout>> },
    /// Kafka, a child of the script that has ended.
    Kafka { pid: Pid, folder: PathBuf },
}

impl Server {
    /// Starts the cell's engine in its tier, on a free port of the loopback device, with data in
    /// `name` of the cell's folder. Settings are the server's, by Kafka's names (`NAME`, `VALUE`).
    ///
    /// # Errors
    /// When it doesn't start, with what it said.
    pub fn start(
        context: &Context,
        name: &str,
        settings: &[(&str, &str)],
    ) -> Result<Server, Failure> {
        let engine = context.engine().expect("an experiment with servers has cells for engines");
        let folder = context.folder.join(name);
        let folder = folder.as_path();
        fs::create_dir_all(folder).doing_to("make the folder", folder)?;
        let log = context.logs.join(context.file_name(name)).with_added_extension("server.log");
        let tier = context.tier().unwrap_or(Tier::PageCache);
        let place = Place { engine, tier, folder, log, endings: &context.endings };
        match engine {
            EngineName::Kafka => start_kafka(&place, settings),
            EngineName::Uring | EngineName::PlainFile => start_uringlog(&place, settings),
        }
    }

    /// A client of it.
    ///
    /// # Errors
    /// When it doesn't answer.
    pub async fn client(&self) -> Result<Client, Failure> {
        Ok(Client::connect(&self.address, ClientOptions::default()).await?)
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        match &self.process {
            Process::Child { child, .. } => Pid::from_child(child),
            Process::Kafka { pid, .. } => *pid,
        }
    }

    /// CPU time of all its threads so far, kernel workers included, in steps of 10 ms.
    pub fn cpu(&self) -> Duration {
        let path = format!("/proc/{}/stat", self.pid().as_raw_nonzero());
        let text = fs::read_to_string(path).unwrap_or_default();
        cpu_of(&text).unwrap_or_default()
    }

    /// How it ended without having been told to, when it has within that time: for people, with
    /// the last thing that it said.
    pub fn ending(&mut self, patience: Duration) -> Option<String> {
        let pid = self.pid();
        let until = Instant::now() + patience;
        while is_alive(pid) {
            if until <= Instant::now() {
                return None;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let how = match &mut self.process {
            // Its last threads may still be about to end.
            Process::Child { child, .. } => child.wait().ok().map(|status| status.to_string()),
            Process::Kafka { .. } => None,
        };
        let how = how.map_or(String::new(), |how| format!(": {how}"));
        let log = match &self.process {
            Process::Child { .. } => self.log.clone(),
            Process::Kafka { folder, .. } => folder.join("server.log"),
        };
        let log = fs::read_to_string(log).unwrap_or_default();
        let last = log.lines().rfind(|line| !line.trim().is_empty());
        let last = last.map_or(String::new(), |line| format!("; it last said: {}", line.trim()));
        Some(format!("the server (process {}) has ended{how}{last}", pid.as_raw_nonzero()))
    }

    /// An orderly stop.
    ///
    /// # Errors
    /// When it doesn't end, or says that something was wrong.
    pub fn stop(mut self) -> Result<(), Failure> {
        self.is_told = true;
        if let Some(how) = self.ending(Duration::ZERO) {
            return Err(Failure::Wrong(how));
        }
        let pid = self.pid();
        kill_process(pid, Signal::TERM).doing("stop the server")?;
        let until = Instant::now() + STOP_MAX;
        while Instant::now() < until {
            match &mut self.process {
                Process::Child { child, .. } => {
                    if let Some(status) = child.try_wait().doing("wait for the server")? {
                        let text = format!("the server's stop was not clean: {status}");
                        return if status.success() { Ok(()) } else { Err(Failure::Wrong(text)) };
                    }
                }
                Process::Kafka { .. } => {
                    if !is_alive(pid) {
                        return Ok(());
                    }
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(Failure::Wrong(format!("the server did not stop within {} s", STOP_MAX.as_secs())))
    }

    /// SIGKILL, and its end is awaited: what it had only in its memory is gone.
    ///
    /// # Errors
    /// When it can't be waited for.
    pub fn kill(mut self) -> Result<(), Failure> {
        self.is_told = true;
        self.end().doing("kill the server")
    }

    fn end(&mut self) -> std::io::Result<()> {
        match &mut self.process {
            Process::Child { child, .. } => {
                child.kill()?;
                child.wait()?;
            }
            Process::Kafka { pid, .. } => {
                // It may have ended by itself.
                let _ = kill_process(*pid, Signal::KILL);
                while is_alive(*pid) {
                    std::thread::sleep(LOOK_EVERY);
                }
            }
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Something has failed: perhaps because there is no server any more.
        if !self.is_told
            && let Some(how) = self.ending(END_AFTER_FAILURE)
        {
            self.endings.add(how);
        }
        // It has ended already, or nothing more can be done about it.
        drop(self.end());
        if let Process::Kafka { folder, .. } = &self.process {
            drop(fs::remove_file(folder.join("pid")));
        }
        // A server that has said nothing leaves nothing.
        if fs::metadata(&self.log).is_ok_and(|it| it.len() == 0) {
            drop(fs::remove_file(&self.log));
        }
    }
}

/// What is started where.
struct Place<'a> {
    engine: EngineName,
    tier: Tier,
    folder: &'a Path,
    /// What it says goes here.
    log: PathBuf,
    endings: &'a Endings,
}

/// A zombie is no longer alive: whoever started it hasn't looked yet.
fn is_alive(pid: Pid) -> bool {
    let text = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let state = |text: String| text.rsplit_once(") ").map(|it| it.1.starts_with('Z'));
    text.ok().and_then(state) == Some(false)
}

/// User and system time of a `/proc/PID/stat`; the name in it may hold anything, so fields count
/// from its closing parenthesis.
fn cpu_of(stat: &str) -> Option<Duration> {
    const USER: usize = 11;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u32>().ok();
    Some(TICK * (ticks(USER)? + ticks(USER + 1)?))
}

fn start_uringlog(place: &Place<'_>, settings: &[(&str, &str)]) -> Result<Server, Failure> {
    let Place { engine, tier, folder, log, endings } = place;
    let data = folder.join("data");
    let program = std::env::current_exe().doing("find this program")?;
    let mut command = Command::new(program);
    command.args(["serve", "--listen", "127.0.0.1:0", "--shards", "1"]);
    command.args(["--engine", engine.name(), "--durability", tier.name(), "--dir"]).arg(&data);
    for (name, value) in settings {
        command.arg("--set").arg(format!("{name}={value}"));
    }
    let errors = File::create(log).doing_to("write", log)?;
    // A group of its own: Ctrl-C is the harness's, which then stops its servers.
    command.stdout(Stdio::piped()).stderr(errors).stdin(Stdio::null()).process_group(0);
    let mut child = command.spawn().doing("start the server")?;
    let mut said = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut address = None;
    for line in said.by_ref() {
        let line = line.doing("read what the server says")?;
        address = line
            .strip_prefix("ready: broker ")
            .and_then(|rest| Some(rest.split_once(" on ")?.1.split_once(',')?.0.to_owned()));
        if address.is_some() {
            break;
        }
    }
    if let Some(address) = address {
        let process = Process::Child { child, _said: said };
        let (log, endings) = (log.clone(), Endings::clone(endings));
        return Ok(Server { address, data, log, process, is_told: false, endings });
    }
    // It has closed its output, so it has ended or is about to.
    let status = child.wait().doing("wait for the server")?;
    let said = fs::read_to_string(log).unwrap_or_default();
    let said = match said.trim() {
        "" => String::new(),
        said => format!(": {said}"),
    };
    Err(Failure::Wrong(format!("{engine} did not start: {status}{said}")))
}

fn start_kafka(place: &Place<'_>, settings: &[(&str, &str)]) -> Result<Server, Failure> {
    let Place { tier, folder, log, .. } = place;
    let script = kafka_script().ok_or_else(|| {
        Failure::Skipped(format!("{KAFKA_SCRIPT} is not found; run in the project's folder"))
    })?;
    // A folder that was used before has its port in it.
    let used = fs::read_to_string(folder.join("server.properties")).ok();
    let port = match used.as_deref().and_then(port_of) {
        Some(port) => port,
        None => free_port()?,
    };
    let mut command = Command::new(script);
    command.arg("start").arg(folder).arg(port.to_string());
    if *tier == Tier::Device {
        command.arg("log.flush.interval.messages=1");
    }
    for (name, value) in settings {
        command.arg(format!("{name}={value}"));
    }
    let out = File::create(log).doing_to("write", log)?;
    let errors = out.try_clone().doing_to("write", log)?;
    command.stdout(out).stderr(errors).stdin(Stdio::null()).process_group(0);
    let status = command.status().doing("start scripts/kafka")?;
    let failed = |what: &str| {
        let said = fs::read_to_string(log).unwrap_or_default();
        Failure::Wrong(format!("kafka did not start: {what}: {}", said.trim()))
    };
    if !status.success() {
        return Err(failed(&status.to_string()));
    }
    let pid = fs::read_to_string(folder.join("pid")).unwrap_or_default();
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| failed("it left no process number"))?;
    Ok(Server {
        address: format!("127.0.0.1:{port}"),
        data: folder.join("data"),
        process: Process::Kafka { pid, folder: folder.into() },
        log: log.clone(),
        is_told: false,
        endings: Endings::clone(place.endings),
    })
}

/// In the folder that it is run in or one above it, or above the program, or where it was built.
pub fn kafka_script() -> Option<PathBuf> {
    let here = std::env::current_dir().ok();
    let program = std::env::current_exe().ok();
    let built = Some(PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    let starts = [here, program, built];
    starts
        .into_iter()
        .flatten()
        .find_map(|start| start.ancestors().map(|it| it.join(KAFKA_SCRIPT)).find(|it| it.is_file()))
}

/// Where a broker with these properties listens.
fn port_of(properties: &str) -> Option<u16> {
    let line = properties.lines().find_map(|it| it.strip_prefix("advertised.listeners="))?;
    line.rsplit_once(':')?.1.trim().parse().ok()
}

fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing("find a free port")?;
    Ok(listener.local_addr().doing("find a free port")?.port())
}

/// Runs client work to its end, on this thread.
///
/// # Errors
/// Those of the work.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.doing("make a runtime for the client")?;
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_times_are_read_behind_any_name() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 100";
        assert_eq!(cpu_of(stat), Some(Duration::from_secs(3)));
        assert_eq!(cpu_of("42 (a) S 1"), None);
    }

    /// Not uringlog, but a child of ours that says something and ends.
    fn one_that_ends(folder: &Path, endings: &Endings) -> Server {
        let log = folder.join("said.log");
        let mut command = Command::new("sh");
        command.args(["-c", "echo its last words >&2; exit 3"]).stdout(Stdio::piped());
        command.stderr(File::create(&log).expect("a file"));
        let mut child = command.spawn().expect("it starts");
        let said = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Server {
            address: String::new(),
            data: folder.join("server/data"),
            log,
            process: Process::Child { child, _said: said },
            is_told: false,
            endings: endings.clone(),
        }
    }

    #[test]
    fn a_server_that_ended_is_named_with_its_last_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let endings = Endings::default();
        let mut server = one_that_ends(folder.path(), &endings);
        let how = server.ending(STOP_MAX).expect("it ends at once");
        assert!(how.ends_with("exit status: 3; it last said: its last words"), "{how}");
        assert_eq!(server.stop().expect_err("it had ended").to_string(), format!("wrong: {how}"));
        let lost = || Failure::Wrong("lost".to_owned());
        assert_eq!(endings.explain(lost()).to_string(), "wrong: lost");
        drop(one_that_ends(folder.path(), &endings));
        let text = endings.explain(lost()).to_string();
        assert!(text.contains("has ended") && text.ends_with("(wrong: lost)"), "{text}");
    }

    #[test]
    fn a_used_folder_tells_its_port() {
        let properties = "node.id=1\nadvertised.listeners=PLAINTEXT://127.0.0.1:40123\nx=y\n";
        assert_eq!(port_of(properties), Some(40_123));
        assert_eq!(port_of("node.id=1\n"), None);
    }

    #[test]
    fn the_script_is_found_and_a_process_knows_whether_it_lives() {
        assert!(kafka_script().is_some_and(|it| it.is_file()));
        assert!(is_alive(rustix::process::getpid()));
        let mut child = Command::new("true").spawn().expect("it starts");
        let pid = Pid::from_child(&child);
        child.wait().expect("it ends");
        assert!(!is_alive(pid));
    }
}
