//! On what it was measured: the head of a report.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::experiments::measure;
use crate::experiments::{Doing, Failure};

/// A file system under test.
pub struct Machine {
    pub label: String,
    /// Its type, with the mount's options.
    pub file_system: String,
    /// Below it.
    pub device: String,
}

impl Machine {
    /// Looks where a folder lies.
    pub fn of(path: &Path, label: &str) -> Result<Machine, Failure> {
        let path = path.canonicalize().doing("find the folder")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").doing("read the mounts")?;
        let mount = mounts.lines().filter_map(Mount::parse).filter(|it| path.starts_with(&it.at));
        let mount = mount.max_by_key(|it| it.at.as_os_str().len());
        let mount = mount.ok_or_else(|| Failure::Wrong("no mount holds the folder".to_owned()))?;
        Ok(Machine {
            label: label.to_owned(),
            file_system: format!("{} ({})", mount.kind, mount.options),
            device: device(&mount),
        })
    }

    /// A line of the report.
    pub fn line(&self) -> String {
        format!("- **{}**: {}; {}", self.label, self.file_system, self.device)
    }
}

/// A line of `/proc/self/mountinfo`.
struct Mount {
    device: String,
    at: PathBuf,
    options: String,
    kind: String,
    source: String,
}

impl Mount {
    fn parse(line: &str) -> Option<Mount> {
        let (own, of_kind) = line.split_once(" - ")?;
        let own: Vec<&str> = own.split(' ').collect();
        let of_kind: Vec<&str> = of_kind.split(' ').collect();
        let more = *of_kind.get(2)?;
        let per_mount = *own.get(5)?;
        Some(Mount {
            device: (*own.get(2)?).to_owned(),
            at: own.get(4)?.into(),
            options: format!("{per_mount}; {more}"),
            kind: (*of_kind.first()?).to_owned(),
            source: (*of_kind.get(1)?).to_owned(),
        })
    }
}

/// What the kernel says of the block device: its name, write cache, scheduler.
fn device(mount: &Mount) -> String {
    let folder = Path::new("/sys/dev/block").join(&mount.device);
    let queue = |name: &str| read(&folder.join("queue").join(name));
    let name = mount.source.rsplit('/').next().unwrap_or_default();
    let loop_image = folder.join("loop").exists().then_some("a loop image on the root disk, ");
    let rotates = if queue("rotational") == "1" { "rotating" } else { "not rotating" };
    format!(
        "{}device {name}, {rotates}, write cache {}, FUA {}, scheduler {}",
        loop_image.unwrap_or_default(),
        queue("write_cache"),
        queue("fua"),
        queue("scheduler"),
    )
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).map_or_else(|_| "?".to_owned(), |text| text.trim().to_owned())
}

/// Processor, memory and kernel, in a line.
pub fn host() -> String {
    let Host { cores, processor, memory_bytes, kernel } = Host::here();
    let gigabytes = memory_bytes / 1_000_000_000;
    format!("{cores} cores ({processor}), {gigabytes} GB, Linux {kernel}")
}

/// The machine without its file systems.
pub struct Host {
    pub cores: usize,
    pub processor: String,
    pub memory_bytes: u64,
    pub kernel: String,
}

impl Host {
    /// This one; "?" where the kernel doesn't say.
    pub fn here() -> Host {
        let field = |file: &str, name: &str| {
            let text = read(Path::new(file));
            let line = text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
            let value = line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()));
            value.unwrap_or_else(|| "?".to_owned())
        };
        let kib = field("/proc/meminfo", "MemTotal");
        let kib: u64 = kib.trim_end_matches(" kB").parse().unwrap_or(0);
        Host {
            cores: measure::cores(),
            processor: field("/proc/cpuinfo", "model name"),
            memory_bytes: kib * 1024,
            kernel: read(Path::new("/proc/sys/kernel/osrelease")),
        }
    }
}

/// The revision that the program is built from, as far as git in this folder knows.
pub fn revision() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(revision) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    match changed.is_none_or(|changed| changed.is_empty()) {
        true => revision,
        false => format!("{revision} with changes"),
    }
}

/// The command line, with folders as DIR: where they lie on this machine says nothing.
pub fn command() -> String {
    let arguments = std::env::args().skip(1);
    let shown = arguments.map(|argument| match argument.split_once('=') {
        Some((option @ ("--dir" | "--fs"), place)) => {
            let label = place.split_once('=').map_or(place, |pair| pair.1);
            format!("{option} DIR={}", quoted(label))
        }
        Some((path, label)) if path.starts_with(['/', '.']) => format!("DIR={}", quoted(label)),
        _ => match argument.starts_with('/') {
            true => argument.rsplit('/').next().unwrap_or_default().to_owned(),
            false => argument,
        },
    });
    format!("bench-harness {}", shown.collect::<Vec<_>>().join(" "))
}

fn quoted(label: &str) -> String {
    if label.contains(' ') { format!("'{label}'") } else { label.to_owned() }
}

/// Waits until the machine has had next to nothing to do for a moment, or `most` is over.
pub fn await_quiet(most: Duration) {
    const MOMENT: Duration = Duration::from_millis(300);
    /// Share of a core.
    const BUSY_MAX: f64 = 0.2;
    let started = Instant::now();
    while started.elapsed() < most {
        let before = (Instant::now(), measure::machine_cpu());
        std::thread::sleep(MOMENT);
        let busy = measure::machine_cpu().saturating_sub(before.1);
        if busy.as_secs_f64() < BUSY_MAX * before.0.elapsed().as_secs_f64() {
            return;
        }
    }
}

/// Load average of the last minute.
pub fn load() -> String {
    let text = read(Path::new("/proc/loadavg"));
    text.split(' ').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read() {
        let line = "36 25 7:0 / /mnt/x rw,relatime shared:1 - xfs /dev/loop0 rw,attr2,noquota";
        let mount = Mount::parse(line).expect("a mount");
        assert_eq!((mount.device.as_str(), mount.kind.as_str()), ("7:0", "xfs"));
        assert_eq!(mount.options, "rw,relatime; rw,attr2,noquota");
        assert_eq!(mount.at, Path::new("/mnt/x"));
        assert!(Mount::parse("nonsense").is_none());
    }
}
